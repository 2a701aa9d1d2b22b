//! The same work on a machine that boots and on a simulated one.
//!
//! Metal goes first: what the image leaves to the core is what the simulated machine has for its memory, to the frame.

use quietmm_sim::machine::Machine;
use quietmm_sim::{Counter, Metric, RunError, RunSpec, Value, Workload, figures};

use super::metal::{Booted, ONLY_IMAGE};
use super::sim;
use crate::cli::flags::On;
use crate::process::ending::Failure;
use crate::process::progress::Lane;
use crate::study::command::CommandLine;
use crate::study::result::Metrics;
use crate::study::{Ask, Backend, Named, Place, Plan, Run};

/// The simulated machine unless another is named: one node, like the machine that boots.
const MACHINE: &str = "uma-8";

/// What is compared first: counts that both machines have. Times are not: an emulator's are none.
pub const ROWS: [&str; 23] = [
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

/// A machine that boots, and a simulated one beside it.
pub struct Beside {
    booted: Booted,
    /// But for its memory.
    machine: Machine,
    /// What it was called.
    name: String,
    /// All constants, of both.
    sets: Vec<(String, String)>,
}

impl Beside {
    /// Both machines.
    pub fn of(ask: &Ask<'_>, workload: Workload, name: Option<&str>) -> Result<Beside, Failure> {
        let input = |error: &dyn std::fmt::Display| Failure::Input(error.to_string());
        if ask.common.work.broken.is_some() {
            let why = "--break: what a broken rule leads to is no count to compare; not with --on both";
            return Err(Failure::Input(why.to_string()));
        }
        let booted = Booted::of(ask, workload)?;
        let name = name.unwrap_or(MACHINE).to_string();
        let machine = sim::load(&name)?;
        if machine.nodes != 1 {
            let nodes = machine.nodes;
            let why = format!("--machine {name} has {nodes} nodes, and the machine that boots has one");
            return Err(Failure::Input(why));
        }
        let mut machine = machine.with_cpus(booted.place().cpus).map_err(|error| input(&error))?;
        for (key, value) in ask.common.work.sets.iter().filter(|(key, _)| !ONLY_IMAGE.contains(&key.as_str()))
        {
            machine.set(key, value).map_err(|error| input(&error))?;
        }
        Ok(Beside { booted, machine, name, sets: ask.common.work.sets.clone() })
    }
}

impl Backend for Beside {
    fn place(&self) -> Place {
        Place { on: On::Both, machine: self.name.clone(), sets: self.sets.clone(), ..self.booted.place() }
    }

    fn flags(&self, line: &mut CommandLine) {
        self.booted.flags(line);
        line.option("--machine", Some(&self.name).filter(|name| *name != MACHINE));
    }

    fn origin(&self) -> Vec<(&'static str, String)> {
        let Machine { cpus, .. } = self.machine;
        let beside =
            format!("{} with {cpus} CPUs and as much memory as the image left to the core", self.name);
        self.booted.origin().into_iter().chain([("beside", beside)]).collect()
    }

    fn prepare(&self) -> Result<(), Failure> {
        self.booted.prepare()
    }

    fn side_by_side(&self) -> bool {
        self.booted.side_by_side()
    }

    fn run(&self, plan: &Plan, policy: &Named, seed: u64, lane: &Lane<'_>) -> Result<Option<Run>, Failure> {
        let Some(mut run) = self.booted.run(plan, policy, seed, lane)? else { return Ok(None) };
        let mut machine = self.machine.clone();
        machine.memory = run.frames.map_or(machine.memory, |frames| frames * 4096);
        let spec = RunSpec {
            workload: plan.workload,
            machine,
            policy: policy.policy,
            scale: 1,
            seed,
            broken: None,
            trace: None,
            threads: plan.threads,
            parts: None,
            work: self.booted.work(),
            profile: false,
            traffic: false,
            timeline: None,
        };
        let report = match quietmm_sim::run(&spec, lane) {
            Ok(report) => report,
            Err(RunError::Cancelled) => return Ok(None),
            Err(RunError::Refused(why)) => return Err(Failure::Input(format!("simulated: {why}"))),
            Err(RunError::Failed(why)) => return Err(Failure::Run(format!("simulated: {why}"))),
        };
        run.metrics = with_targets(run.metrics.0);
        run.simulation = with_targets(report.metrics);
        run.difference_percent = differences(&run.metrics, &run.simulation);
        Ok(Some(run))
    }
}

/// With one figure more: CPUs that had a page of a flush, whether they were interrupted or, being lazy, left alone. How the
/// pages of a batch are mixed decides it, and nothing else.
fn with_targets(mut metrics: Vec<Metric>) -> Metrics {
    let count = |counter: Counter| {
        let found = metrics.iter().find(|metric| metric.key == counter.name());
        found.map_or(0, |metric| metric.value.number() as u64)
    };
    let all = count(Counter::RemoteFlushReceived) + count(Counter::LazySkipped);
    metrics.push(figures::FLUSH_TARGETS.int(all));
    Metrics(metrics)
}

/// Of all figures that both have and that are not zero on both.
fn differences(metal: &Metrics, simulated: &Metrics) -> Vec<(&'static str, Option<f64>)> {
    let both = metal.0.iter().filter_map(|metric| {
        let pair = [metric.value, simulated.get(metric.key)?].map(Value::number);
        (pair != [0.0, 0.0]).then(|| (metric.key, difference(pair[0], pair[1])))
    });
    both.collect()
}

/// By how many per cent of metal's figure the simulation's is larger; nothing if metal's is zero.
pub fn difference(metal: f64, simulated: f64) -> Option<f64> {
    (metal != 0.0).then(|| 100.0 * (simulated - metal) / metal)
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
