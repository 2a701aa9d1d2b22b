//! `quietmm compare --on both`: the same work on a simulated machine and on one that boots.
//!
//! Metal goes first: what the image leaves to the core is what the simulated machine has for its memory, to the frame.
//! [`beside`] prints what came of it.

use quietmm_sim::machine::Machine;
use quietmm_sim::{Better, Counter, Metric, Report, RunError, RunSpec};
use serde_json::Value as Json;

use crate::cli::Common;
use crate::ending::{Ending, Failure};
use crate::figure::{self, Figure};
use crate::json::pretty;
use crate::metal::args::Asked;
use crate::metal::beside::{self, Beside};
use crate::metal::measure::{self, Boot, Study};
use crate::metal::plan::Plan;
use crate::metal::{image, plan};
use crate::output::Output;
use crate::progress::Progress;
use crate::{interrupt, jobs};

/// The simulated machine unless another is named: one node, like the machine that boots.
pub const MACHINE: &str = "uma-8";

/// One policy on both machines.
pub struct Pair {
    /// Which of the plan's policies it is.
    pub policy: usize,
    /// What was counted on metal.
    pub metal: Vec<Figure>,
    /// And in the simulation.
    pub simulated: Vec<Figure>,
}

/// With one figure more: CPUs that had a page of a flush, whether they were interrupted or, being lazy, left alone. How the
/// pages of a batch are mixed decides it, and nothing else.
fn with_targets(metrics: &[Metric]) -> Vec<Metric> {
    let count = |counter: Counter| {
        let found = metrics.iter().find(|metric| metric.key == counter.name());
        found.map_or(0, |metric| figure::number(metric.value) as u64)
    };
    let all = count(Counter::RemoteFlushReceived) + count(Counter::LazySkipped);
    let about = "CPUs that had pages of a flush: interrupted, or lazy and left alone";
    let targets = Metric::int("flush_targets", "CPUs flushed or lazy", Better::Less, all, about);
    metrics.iter().copied().chain([targets]).collect()
}
/// Boots, simulates, and prints both.
pub fn show(asked: &Asked<'_>, common: &Common, output: &mut Output) -> Result<Ending, Failure> {
    if asked.broken.is_some() {
        let why = "--break: what a broken rule leads to is no count to compare; not with --on both";
        return Err(Failure::Input(why.to_string()));
    }
    let plans = plan::plans(asked)?;
    let machine_name = common.machine.as_deref().unwrap_or(MACHINE);
    let machine = machine(machine_name, asked)?;
    interrupt::listen();
    let image = image::find(asked.machine.image.as_deref())?;
    let booted = measure::measure(plans, &image)?;
    let mut ending = Ending::Good;
    let mut all = Vec::new();
    for (nth, study) in booted.iter().enumerate() {
        let pairs = pairs(study, &machine, jobs::workers(common.jobs))?;
        ending = ending.worse(if pairs.len() < study.plan.policies.len() {
            Ending::Interrupted
        } else {
            study.ending()
        });
        let beside = Beside { study, pairs: &pairs, machine: &machine, machine_name, asked };
        if asked.json {
            all.push(beside::json(&beside));
        } else {
            let gap = if nth > 0 { "\n\n" } else { "" };
            output.text(&format!("{gap}{}", beside::text(&beside)))?;
        }
    }
    if asked.json {
        output.text(&pretty(&if all.len() == 1 { all.remove(0) } else { Json::Array(all) }))?;
    }
    Ok(ending)
}

/// The simulated machine, but for its memory.
fn machine(name: &str, asked: &Asked<'_>) -> Result<Machine, Failure> {
    let input = |error: &dyn std::fmt::Display| Failure::Input(error.to_string());
    let machine = Machine::load(name).map_err(|error| input(&error))?;
    if machine.nodes != 1 {
        let nodes = machine.nodes;
        return Err(Failure::Input(format!(
            "--machine {name} has {nodes} nodes, and the machine that boots has one"
        )));
    }
    let mut machine = machine.with_cpus(asked.cpus).map_err(|error| input(&error))?;
    for (key, value) in asked.sets {
        if !plan::ONLY_IMAGE.contains(&key.as_str()) {
            machine.set(key, value).map_err(|error| input(&error))?;
        }
    }
    Ok(machine)
}
/// Simulates what was booted.
fn pairs(study: &Study, machine: &Machine, workers: usize) -> Result<Vec<Pair>, Failure> {
    let plan = &study.plan;
    let done: Vec<(usize, u64, &Boot)> = (0..plan.policies.len())
        .flat_map(|policy| study.of(policy).map(move |(seed, boot)| (policy, seed, boot)))
        .collect();
    let progress = Progress::new(done.len());
    let job = |nth: usize| {
        let (policy, seed, boot) = done[nth];
        match quietmm_sim::run(&spec(plan, policy, seed, boot, machine), &progress.lane(nth)) {
            Ok(report) => Ok(Some(report)),
            Err(RunError::Cancelled) => Ok(None),
            Err(RunError::Refused(why)) => Err(Failure::Input(format!("simulated: {why}"))),
            Err(RunError::Failed(why)) => Err(Failure::Run(format!("simulated: {why}"))),
        }
    };
    let reports = jobs::in_order(done.len(), workers, interrupt::requested, job);
    progress.clear();
    let reports: Vec<Option<Report>> = reports?;
    let pair = |policy: usize| {
        let mine = || done.iter().zip(&reports).filter(move |((of, ..), _)| *of == policy);
        // A policy is shown if all its seeds came to an end on both.
        let metal: Vec<Vec<Metric>> = mine().map(|((.., boot), _)| with_targets(&boot.metrics)).collect();
        let simulated: Vec<Vec<Metric>> =
            mine().filter_map(|(_, report)| Some(with_targets(&report.as_ref()?.metrics))).collect();
        let all = plan.runs as usize;
        let figures =
            |runs: &[Vec<Metric>]| figure::figures(&runs.iter().map(Vec::as_slice).collect::<Vec<_>>());
        (metal.len() == all && simulated.len() == all).then(|| Pair {
            policy,
            metal: figures(&metal),
            simulated: figures(&simulated),
        })
    };
    let pairs: Vec<Pair> = (0..plan.policies.len()).filter_map(pair).collect();
    if pairs.is_empty() { Err(Failure::Interrupted) } else { Ok(pairs) }
}
fn spec(plan: &Plan, policy: usize, seed: u64, boot: &Boot, machine: &Machine) -> RunSpec {
    let frames = boot.printed.head.as_ref().map_or(plan.machine.mib * 256, |head| head.frames);
    let mut machine = machine.clone();
    machine.memory = frames * 4096;
    RunSpec {
        workload: plan.workload,
        machine,
        policy: plan.policies[policy],
        scale: 1,
        seed,
        broken: None,
        trace: None,
        threads: plan.threads,
        parts: None,
        work: plan.work,
        profile: false,
    }
}
