//! The simulator: any machine, deterministic to the byte.

use quietmm_sim::machine::Machine;
use quietmm_sim::timeline::Wanted;
use quietmm_sim::{Latencies, Report, RunError, RunSpec, Shot, Workload};

use super::recorded::{self, Recorded};
use crate::cli::flags::On;
use crate::process::ending::Failure;
use crate::process::progress::Lane;
use crate::study::account::Account;
use crate::study::command::CommandLine;
use crate::study::result::{Host, Metrics, Point, Timing};
use crate::study::{Ask, Backend, Named, Place, Plan, Run};

/// Memory of a run whose scale nobody chose, at most: some minutes of the host's time.
const MOST_MEMORY: u64 = 4 << 30;
/// The same of a recording of threads that brings so much in.
const MOST_FOR_RECORDING: u64 = 64 << 30;
/// The gibibyte, in bytes.
const GIB: f64 = (1u64 << 30) as f64;

/// A simulated machine.
pub struct Simulated {
    /// With `--cpus` and `--set` applied.
    machine: Machine,
    /// What it was called.
    name: String,
    cpus: Option<u32>,
    sets: Vec<(String, String)>,
    scale: u32,
    trace: Option<Recorded>,
    parts: Option<u32>,
    /// Whether the account of where time went is a result.
    profile: bool,
    /// Whether somebody draws who interrupts whom.
    traffic: bool,
    /// Which part of what each CPU does somebody wants to see.
    timeline: Option<Wanted>,
}

impl Simulated {
    /// The machine of this name, or the workload's own.
    pub fn of(ask: &Ask<'_>, workload: Workload, name: Option<&str>) -> Result<Simulated, Failure> {
        let name = name.unwrap_or(workload.default_machine()).to_string();
        check_parts(workload, ask.sim.machine.parts)?;
        let mut machine = load(&name)?;
        if let Some(cpus) = ask.cpus {
            let wrong = |error| Failure::Input(format!("--cpus {cpus}: {error}"));
            machine = machine.with_cpus(cpus).map_err(wrong)?;
        }
        for (key, value) in &ask.common.work.sets {
            machine.set(key, value).map_err(|error| Failure::Input(error.to_string()))?;
        }
        let trace =
            workload.needs_trace().then(|| recorded::find(ask.sim.machine.trace.as_deref())).transpose()?;
        Ok(Simulated {
            scale: ask.sim.machine.scale.unwrap_or_else(|| default_scale(workload, &machine, trace.as_ref())),
            machine,
            name,
            cpus: ask.cpus,
            sets: ask.common.work.sets.clone(),
            trace,
            parts: ask.sim.machine.parts,
            profile: ask.sim.profile,
            traffic: ask.common.report.is_some(),
            timeline: crate::timeline::wanted(ask)?,
        })
    }
}

/// A machine by name or file.
pub fn load(name: &str) -> Result<Machine, Failure> {
    Machine::load(name)
        .map_err(|error| Failure::Faults(error.to_string().lines().map(str::to_string).collect()))
}

/// Whether the workload has this ratio of other work.
fn check_parts(workload: Workload, parts: Option<u32>) -> Result<(), Failure> {
    let Some(parts) = parts.filter(|parts| !workload.parts().contains(parts)) else { return Ok(()) };
    let name = workload.name();
    let wrong = if workload.parts().is_empty() {
        format!("--parts: {name} has no other work to choose; only dir-buffers has")
    } else {
        let all: Vec<String> = workload.parts().iter().map(u32::to_string).collect();
        format!("--parts {parts}: {name} has {}", all.join(", "))
    };
    Err(Failure::Input(wrong))
}

/// The workload's own scale, unless the machine is so large that it would run for hours, or has so many CPUs that they need more. Of a trace it is the power of two
/// that leaves at most three quarters of what all CPUs touch, as far as the machine can be so small.
fn default_scale(workload: Workload, machine: &Machine, trace: Option<&Recorded>) -> u32 {
    let own = if trace.is_some() { 1 } else { workload.default_scale() };
    match trace.and_then(|trace| footprint(machine, trace)) {
        Some(bytes) if bytes > 0 => too_small(machine.memory, bytes, quietmm_sim::least_memory(machine)),
        // A recorded program has the memory that it needs: pages, their tables, and what is on per-CPU lists.
        _ => {
            let needed = trace.and_then(recorded::brought_in).unwrap_or(0).saturating_mul(2);
            let scale = own.max(divisor(machine.memory, needed.clamp(MOST_MEMORY, MOST_FOR_RECORDING)));
            scale.min(smallest(machine))
        }
    }
}

/// The scale that leaves a machine just what its CPUs and nodes need. No power of two: memory, work, and what the host waits for would be up to
/// twice that.
fn smallest(machine: &Machine) -> u32 {
    u32::try_from(machine.memory / quietmm_sim::least_memory(machine)).unwrap_or(u32::MAX).max(1)
}

fn too_small(memory: u64, touched: u64, least: u64) -> u32 {
    let scale = divisor(memory, touched / 4 * 3).checked_next_power_of_two().unwrap_or(u32::MAX);
    scale.min(u32::try_from(memory / least).unwrap_or(u32::MAX)).max(1)
}

/// What divides `memory` into at most `most`.
fn divisor(memory: u64, most: u64) -> u32 {
    u32::try_from(memory.div_ceil(most.max(1))).unwrap_or(u32::MAX)
}

/// Bytes that the traces of all CPUs touch, where each CPU replays one.
fn footprint(machine: &Machine, trace: &Recorded) -> Option<u64> {
    Some(trace.pages()?.saturating_mul(4096).saturating_mul(machine.cpus.into()))
}

impl Backend for Simulated {
    fn place(&self) -> Place {
        Place {
            scale: Some(self.scale),
            trace: self.trace.clone(),
            parts: self.parts,
            sets: self.sets.clone(),
            ..Place::of(On::Sim, &self.name, self.machine.cpus)
        }
    }

    fn flags(&self, line: &mut CommandLine) {
        line.flag("--machine", &self.name);
        line.option("--cpus", self.cpus);
        line.option("--trace", self.trace.as_ref().map(|trace| &trace.name));
        line.option("--parts", self.parts);
        line.flag("--scale", self.scale);
    }

    fn origin(&self) -> Vec<(&'static str, String)> {
        let Machine { name, about, cpus, memory, .. } = &self.machine;
        let trace = self.trace.iter().map(|trace| ("trace", trace.name.clone()));
        let plural = if *cpus == 1 { "" } else { "s" };
        let gib = format!("{:.2}", *memory as f64 / GIB);
        let gib = gib.trim_end_matches('0').trim_end_matches('.');
        let machine = format!("{name} with {cpus} CPU{plural} and {gib} GiB ({about})");
        let scale = format!("{} (memory, and the work that is sized by it, are divided by it)", self.scale);
        trace.chain([("machine", machine), ("scale", scale)]).collect()
    }

    fn side_by_side(&self) -> bool {
        true
    }

    fn run(&self, plan: &Plan, policy: &Named, seed: u64, lane: &Lane<'_>) -> Result<Option<Run>, Failure> {
        let spec = RunSpec {
            workload: plan.workload,
            machine: self.machine.clone(),
            policy: policy.policy,
            scale: self.scale,
            seed,
            broken: plan.broken,
            trace: self.trace.as_ref().map(|trace| trace.bytes.clone()),
            threads: plan.threads,
            parts: self.parts,
            work: None,
            // Always: the verdict names the cause.
            profile: true,
            // The first seed stands for all.
            traffic: self.traffic && seed == plan.seed,
            timeline: self.timeline.filter(|_| seed == plan.seed),
        };
        match quietmm_sim::run(&spec, lane) {
            Ok(report) => Ok(Some(run(report, self.profile))),
            Err(RunError::Cancelled) => Ok(None),
            Err(RunError::Refused(why)) => Err(Failure::Input(why)),
            Err(RunError::Failed(why)) => Err(plan.failed(policy, seed, why)),
        }
    }

    fn when_never_short(&self, plan: &Plan) -> Option<String> {
        if !plan.workload.needs_pressure() {
            return None;
        }
        // A larger one is refused.
        let most = smallest(&self.machine);
        let larger = self.scale.saturating_mul(4).min(most);
        let Some(trace) = &self.trace else {
            return Some(if larger > self.scale {
                format!("try --scale {larger}, or less with --set memory=")
            } else {
                "memory is as small as it can be with so many CPUs and nodes".to_string()
            });
        };
        let touched = footprint(&self.machine, trace)?;
        let enough = too_small(self.machine.memory, touched, quietmm_sim::least_memory(&self.machine));
        let larger = if enough > self.scale { enough } else { larger };
        let memory = self.machine.memory / u64::from(self.scale);
        let (unit, shift) = if touched.max(memory) >= 10 << 20 { ("MiB", 20) } else { ("KiB", 10) };
        let [touched, memory] = [touched, memory].map(|bytes| bytes >> shift);
        let scale = if larger > self.scale { format!("--scale {larger}, ") } else { String::new() };
        Some(format!(
            "the traces of all CPUs touch {touched} {unit} and memory has {memory}; try {scale}more --cpus, or a longer trace"
        ))
    }
}

fn run(report: Report, profile: bool) -> Run {
    let host = Host {
        host_s: report.host.host_s,
        events: Some(report.host.events),
        reclaimed_pages_per_host_s: Some(report.host.reclaimed_pages_per_host_s),
        host_peak_rss_mib: Some(report.host.host_peak_rss_mib),
    };
    Run {
        metrics: Metrics(report.metrics),
        curve: curve(&report.latencies),
        latency: timings(&report.latencies),
        profile: report.profile.as_ref().filter(|_| profile).map(Account::of),
        stories: report.stories,
        host: Some(host),
        account: report.profile,
        traffic: report.traffic,
        timeline: report.timeline,
        notes: report.notes,
        ..Run::default()
    }
}

fn curve(latencies: &Latencies) -> Vec<Point> {
    let point = |Shot { cpus, sockets, latency, ipis }| Point {
        cpus,
        sockets,
        rounds: latency.count,
        mean_us: latency.mean / 1e3,
        p50_us: latency.p50 as f64 / 1e3,
        p99_us: latency.p99 as f64 / 1e3,
        ipis,
    };
    latencies.curve().map(point).collect()
}

fn timings(latencies: &Latencies) -> Vec<Timing> {
    let timing = |op: quietmm_sim::Op| Timing {
        op: op.name(),
        by_pages: latencies.by_pages(op).collect(),
        goes_by_pages: op.goes_by_pages(),
        bins: latencies.bins(op),
        all: latencies.over_all(op),
    };
    latencies.ops().into_iter().map(timing).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_runs_in_memory_that_is_too_small_for_it() {
        let machine = Machine::builtin("uma-8").unwrap();
        for name in ["sort", "sqlite"] {
            let shipped = recorded::find(Some(name)).unwrap();
            assert_eq!(default_scale(Workload::Replay, &machine, Some(&shipped)), 256, "{name}");
        }
        for touched in [1 << 20, 31 << 20, 93 << 20, 1 << 30, 1 << 40] {
            let memory = machine.memory / u64::from(too_small(machine.memory, touched, 1 << 12));
            let most = (touched / 4 * 3).min(machine.memory);
            assert!(memory <= most && 2 * memory >= most, "{touched}: {memory}");
        }
        // No smaller than a machine can be.
        assert_eq!(too_small(1 << 30, 1 << 20, 6 << 20), 170);
        assert_eq!(too_small(1 << 20, 1 << 20, 6 << 20), 1);
    }

    #[test]
    fn a_machine_of_many_cpus_has_the_memory_that_they_need() {
        let machine = Machine::builtin("numa-4x12").unwrap();
        let scale = |cpus| default_scale(Workload::Reader, &machine.clone().with_cpus(cpus).unwrap(), None);
        assert_eq!(scale(1024), Workload::Reader.default_scale(), "as it is without");
        let (many, least) =
            (scale(4096), quietmm_sim::least_memory(&machine.clone().with_cpus(4096).unwrap()));
        assert!(
            machine.memory / u64::from(many) >= least && machine.memory / u64::from(many + 1) < least,
            "{many}"
        );
    }

    #[test]
    fn a_recorded_program_has_the_memory_that_it_needs() {
        let machine = Machine::builtin("modern-2x64").unwrap();
        let gib = |words: &str| {
            let trace = recorded::find(Some(&format!("own:{words}"))).unwrap();
            (machine.memory / u64::from(default_scale(Workload::Replay, &machine, Some(&trace)))) >> 30
        };
        assert_eq!(gib("rounds=1"), 4, "at least");
        // 8 GiB come in.
        assert!((15..=16).contains(&gib("threads=32,pages=65536,rounds=1,operation=madvise")));
        assert!((63..=64).contains(&gib("threads=150,pages=65536,rounds=1,operation=munmap")), "at most");
    }
}
