//! `quietmm compare --on both`: the same work on a simulated machine and on one that boots, side by side, and how far the
//! counts differ.
//!
//! Metal goes first: what the image leaves to the core is what the simulated machine has for its memory, to the frame.

use std::fmt::Write;

use quietmm_sim::machine::Machine;
use quietmm_sim::{Better, Counter, Metric, Report, RunError, RunSpec};
use serde_json::{Map, Value as Json, json};

use crate::cli::Common;
use crate::ending::{Ending, Failure};
use crate::figure::{self, Figure};
use crate::gain::{self, Gain};
use crate::json::{number, pretty, real};
use crate::metal::args::Asked;
use crate::metal::measure::{self, Boot, Study};
use crate::metal::plan::Plan;
use crate::metal::{image, json, plan, text};
use crate::output::Output;
use crate::plan::quoted;
use crate::progress::Progress;
use crate::table::{self, Cell, Line};
use crate::wrap::hanging;
use crate::{interrupt, jobs};

/// The simulated machine unless another is named: one node, like the machine that boots.
const MACHINE: &str = "uma-8";

/// What is compared: counts that both machines have. Times are not: an emulator's are none.
const ROWS: [&str; 23] = [
    "ipis_sent",
    "ipis_received",
    "nr_tlb_remote_flush",
    "nr_tlb_remote_flush_received",
    "pages_reclaimed",
    "ipis_per_reclaimed_page",
    "flushes_received_per_reclaimed_page",
    "pages_per_flush",
    "flushes_full",
    "flushes_page",
    "nr_tlb_local_flush_kernel",
    "tlb_lazy_skipped",
    "flush_targets",
    "tlb_batch_flushes",
    "tlb_batch_pages",
    "pgfault",
    "pgmajfault",
    "pgalloc",
    "pgsteal_kswapd",
    "pgsteal_direct",
    "pgscan_kswapd",
    "pgscan_direct",
    "vmap_purges",
];

/// A difference above this many per cent is pointed at.
const MUCH: f64 = 10.0;

/// One policy on both machines.
struct Pair {
    policy: usize,
    metal: Vec<Figure>,
    simulated: Vec<Figure>,
}

impl Pair {
    /// Both figures of a row.
    fn row(&self, key: &str) -> Option<(&Figure, &Figure)> {
        let find = |figures: &'_ [Figure]| figures.iter().position(|figure| figure.key == key);
        Some((&self.metal[find(&self.metal)?], &self.simulated[find(&self.simulated)?]))
    }

    /// The rows that say anything: not those that are zero on both.
    fn rows(&self) -> impl Iterator<Item = (&Figure, &Figure)> {
        let rows = ROWS.iter().filter_map(|key| self.row(key));
        rows.filter(|(metal, simulated)| metal.number() != 0.0 || simulated.number() != 0.0)
    }
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

/// By how many per cent of metal's figure the simulation's is larger; nothing if metal's is zero.
fn difference(metal: f64, simulated: f64) -> Option<f64> {
    (metal != 0.0).then(|| 100.0 * (simulated - metal) / metal)
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
        if asked.json {
            all.push(as_json(study, &pairs, machine_name, asked));
        } else {
            let gap = if nth > 0 { "\n\n" } else { "" };
            output.text(&format!("{gap}{}", as_text(study, &pairs, &machine, machine_name, asked)))?;
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
        let figures = |runs: &[Vec<Metric>]| figure::figures(&runs.iter().map(Vec::as_slice).collect::<Vec<_>>());
        (metal.len() == all && simulated.len() == all)
            .then(|| Pair { policy, metal: figures(&metal), simulated: figures(&simulated) })
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

fn as_text(study: &Study, pairs: &[Pair], machine: &Machine, machine_name: &str, asked: &Asked<'_>) -> String {
    let plan = &study.plan;
    let mut out = String::new();
    if pairs.len() < plan.policies.len() {
        let _ = writeln!(out, "INTERRUPTED: {} of {} policies finished\n", pairs.len(), plan.policies.len());
    }
    let mut lines = Vec::new();
    for pair in pairs {
        lines.push(Line::Title(plan.policies[pair.policy].to_string()));
        lines.extend(pair.rows().map(|(metal, simulated)| {
            let decimals = metal.decimals().max(simulated.decimals());
            let far = difference(metal.number(), simulated.number());
            let cells = vec![
                Cell { value: metal.shown(decimals), gain: Gain::None },
                Cell { value: simulated.shown(decimals), gain: far.map_or(Gain::Undefined, Gain::Percent) },
            ];
            let much = far.is_none_or(|far| far.abs() > MUCH);
            Line::Row(simulated.label.to_string(), cells, if much { "*" } else { "" })
        }));
        lines.push(Line::Gap);
    }
    lines.pop();
    out.push_str(&table::lay_out(&["metal".to_string(), "simulation".to_string()], &lines));
    out.push('\n');
    out.push_str(&hanging("verdict  ", &verdict(pairs, plan)));
    out.push_str(&text::origin(plan));
    let frames = study
        .boots
        .iter()
        .flatten()
        .find_map(|boot| boot.printed.head.as_ref())
        .map_or(0, |head| head.frames);
    let mib = gain::plain(frames as f64 / 256.0, 1);
    out.push_str(&hanging(
        "beside   ",
        &format!(
            "{machine_name} with {} CPUs and as much memory as the image left to the core, {mib} MiB",
            machine.cpus
        ),
    ));
    for (key, value) in asked.sets.iter().filter(|set| !plan.sets.contains(set)) {
        out.push_str(&hanging("         ", &format!("{key} = {value}")));
    }
    let _ = writeln!(out, "repeat   {}", command(plan, machine_name, asked));
    out
}

/// The line that repeats it: the plan's, and what only the simulated machine was told.
fn command(plan: &Plan, machine_name: &str, asked: &Asked<'_>) -> String {
    let mut line = plan.command(Some("both"));
    let mut flag = |name: &str, value: &str| line += &format!(" {name} {}", quoted(value));
    if machine_name != MACHINE {
        flag("--machine", machine_name);
    }
    for (key, value) in asked.sets.iter().filter(|set| !plan.sets.contains(set)) {
        flag("--set", &format!("{key}={value}"));
    }
    line
}

/// How far the three counts differ that matter most, and how many rows differ much.
fn verdict(pairs: &[Pair], plan: &Plan) -> String {
    let far = |pair: &Pair, key| {
        let (metal, simulated) = pair.row(key)?;
        difference(metal.number(), simulated.number())
    };
    let signed = |far: Option<f64>| {
        far.map_or("no figure".to_string(), |far| {
            format!("{}{}%", if far > 0.0 { "+" } else { "" }, gain::plain(far, 1))
        })
    };
    let mut parts: Vec<String> = pairs
        .iter()
        .map(|pair| {
            let [ipis, flushes, pages] = ["ipis_received", "nr_tlb_remote_flush_received", "pages_reclaimed"]
                .map(|key| signed(far(pair, key)));
            format!(
                "{}: IPIs {ipis}, flush requests {flushes}, pages reclaimed {pages}",
                plan.names[pair.policy]
            )
        })
        .collect();
    let much = |pair: &Pair| {
        let rows = pair.rows().map(|(metal, simulated)| difference(metal.number(), simulated.number()));
        rows.filter(|far| far.is_none_or(|far| far.abs() > MUCH)).count()
    };
    let (much, all) =
        (pairs.iter().map(much).sum::<usize>(), pairs.iter().map(|pair| pair.rows().count()).sum::<usize>());
    parts.push(format!(
        "{much} of {all} rows differ by more than {MUCH}% (*), which docs/fidelity.md explains"
    ));
    parts.join("; ")
}

fn as_json(study: &Study, pairs: &[Pair], machine_name: &str, asked: &Asked<'_>) -> Json {
    let plan = &study.plan;
    let mut out = json::head(plan);
    out.insert("on".to_string(), json!("both"));
    out.insert("machine".to_string(), json!(machine_name));
    let pair = |pair: &Pair| {
        let side = |figures: &[Figure]| -> Json {
            figures.iter().map(|figure| (figure.key.to_string(), number(figure.value))).collect()
        };
        let far: Map<String, Json> = pair
            .rows()
            .map(|(metal, simulated)| {
                let far = difference(metal.number(), simulated.number());
                (metal.key.to_string(), far.map_or(Json::Null, real))
            })
            .collect();
        let frames =
            study.of(pair.policy).find_map(|(_, boot)| boot.printed.head.as_ref()).map(|head| head.frames);
        json!({
            "policy": plan.policies[pair.policy].to_string(),
            "frames": frames,
            "difference_percent": far,
            "metal": side(&pair.metal),
            "simulation": side(&pair.simulated),
        })
    };
    if pairs.len() < plan.policies.len() {
        out.insert("interrupted".to_string(), json!(true));
    }
    out.insert("pairs".to_string(), pairs.iter().map(pair).collect());
    out.insert("command".to_string(), json!(command(plan, machine_name, asked)));
    Json::Object(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_is_of_metals_figure_and_has_a_sign() {
        assert_eq!(difference(100.0, 125.0), Some(25.0));
        assert_eq!(difference(100.0, 75.0), Some(-25.0));
        assert_eq!(difference(0.0, 1.0), None);
    }
}
