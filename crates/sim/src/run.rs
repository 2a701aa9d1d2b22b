//! One run: a workload on a machine with a policy, and what came of it.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use quietmm::{Config, Counter, Error, FrameNumber, ListLimits, NodeId, PageNumber, PageRange, Policy, Rule};
use quietmm_workloads::{Params, System, TaskKind, TaskReport, Workload};

use crate::cpu::Mode;
use crate::figures::{self, Metric};
use crate::latency::Latencies;
use crate::machine::Machine;
use crate::profile::Profile;
use crate::sim::{END, Sim, Stop, Watch};
use crate::story::Story;
use crate::timeline::{Timeline, Wanted};
use crate::traffic::Traffic;
use quietmm_workloads::trace::AnyTrace;
use quietmm_workloads::work::replay;

/// What is to be run.
#[derive(Clone, Debug)]
pub struct RunSpec {
    /// The workload.
    pub workload: Workload,
    /// The machine, at full size.
    pub machine: Machine,
    /// The policy.
    pub policy: Policy,
    /// The machine's memory, and with it the work, is divided by this. CPUs, TLBs and costs are not.
    pub scale: u32,
    /// Varies the ticks' phases, start delays, and what random workloads do.
    pub seed: u64,
    /// A rule to be broken.
    pub broken: Option<Rule>,
    /// The trace to be replayed.
    pub trace: Option<Arc<[u8]>>,
    /// How many threads work, where the workload lets one choose; at most one a CPU. `None`: one a CPU.
    pub threads: Option<u32>,
    /// How much other work there is for each part of the workload's own, where it lets one choose: one of
    /// [`Workload::parts`]. `None`: all of them, one after another.
    pub parts: Option<u32>,
    /// Frames by which the work is sized, instead of the machine's.
    pub work: Option<u64>,
    /// Keeps an account of where the CPUs' time goes: [`Report::profile`]. Changes nothing else.
    pub profile: bool,
    /// Keeps who interrupts whom, and memory over time: [`Report::traffic`]. Changes nothing else.
    pub traffic: bool,
    /// Keeps what each CPU did when: [`Report::timeline`]. Changes nothing else.
    pub timeline: Option<Wanted>,
}

/// What came of it.
#[derive(Clone, Debug)]
pub struct Report {
    /// The figures, in the order of a table.
    pub metrics: Vec<Metric>,
    /// What depends on the host.
    pub host: Host,
    /// What the workload measured operation by operation; empty for most.
    pub latencies: Latencies,
    /// Where the CPUs' time went, if that was asked for.
    pub profile: Option<Profile>,
    /// Who interrupts whom, and memory over time, if that was asked for.
    pub traffic: Option<Traffic>,
    /// What each CPU did when, if that was asked for.
    pub timeline: Option<Timeline>,
    /// The first stale accesses, several lines each.
    pub stories: Vec<Story>,
    /// What a reader must know of the scale.
    pub notes: Vec<String>,
}

/// What depends on the host.
#[derive(Clone, Copy, Debug)]
pub struct Host {
    /// Seconds.
    pub host_s: f64,
    /// Events of the simulation.
    pub events: u64,
    /// Pages reclaimed in a second of the host's time.
    pub reclaimed_pages_per_host_s: f64,
    /// The most memory that the process had in the host's memory so far, in MiB: with other runs side by side
    /// theirs too. 0 where the host does not say.
    pub host_peak_rss_mib: u64,
}

/// Why there is no report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunError {
    /// Stopped by whoever watches.
    Cancelled,
    /// The machine, scale and workload do not go together. The user's to mend.
    Refused(String),
    /// A task failed, or the run came to nothing.
    Failed(String),
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RunError::Cancelled => f.write_str("cancelled"),
            RunError::Refused(why) | RunError::Failed(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for RunError {}

/// Runs it. The same spec gives the same report on any host, but for [`Report::host`].
///
/// # Errors
/// See [`RunError`].
pub fn run(spec: &RunSpec, watch: &dyn Watch) -> Result<Report, RunError> {
    match spec.broken {
        // In a build for tests one machine does for both: the core, which is generic, is compiled once.
        #[cfg(not(debug_assertions))]
        None => run_on::<false>(spec, watch),
        _ => run_on::<true>(spec, watch),
    }
}

/// Where the kernel range begins: where Linux's begins with four levels of tables.
const KERNEL_RANGE: PageNumber = PageNumber(0xf_fffc_9000_0000);
/// Frames that each CPU and each node need at least: bookkeeping, one task's tables, and what sits in a CPU's
/// batches while memory is short.
const LEAST_PER_CPU: u64 = 128;
const LEAST_PER_NODE: u64 = 512;
/// Memory of a run, in bytes, at most.
const MOST_MEMORY: u64 = FrameNumber::END.phys().0;
/// Pages that a swap device has at least, however small the scale: one cluster of slots.
const LEAST_SWAP: u64 = 512;

/// Bytes of memory that a run on this machine has at least, whatever the scale.
#[must_use]
pub fn least_memory(machine: &Machine) -> u64 {
    4096 * (LEAST_PER_CPU * u64::from(machine.cpus) + LEAST_PER_NODE * u64::from(machine.nodes))
}

fn shrink(spec: &RunSpec) -> Result<Machine, RunError> {
    let mut machine = spec.machine.clone();
    let unit = 4096 * u64::from(machine.nodes);
    machine.memory = machine.memory / u64::from(spec.scale.max(1)) / unit * unit;
    if let Some(swap) = &mut machine.swap {
        swap.size = (swap.size / u64::from(spec.scale.max(1)) / 4096).max(LEAST_SWAP) * 4096;
    }
    machine.later /= u64::from(spec.scale.max(1));
    machine.slow = machine.slow.take().filter(|slow| slow.size != 0);
    if let Some(slow) = &mut machine.slow {
        slow.size = (slow.size / u64::from(spec.scale.max(1)) / 4096).max(LEAST_PER_NODE) * 4096;
    }
    let least = least_memory(&machine) / 4096;
    if machine.all_memory() > MOST_MEMORY {
        return Err(RunError::Refused(format!(
            "{} at scale 1/{} has {} GiB of memory, more than frames can be numbered; at most {} GiB: a larger --scale \
             or --set memory=",
            machine.name,
            spec.scale,
            machine.all_memory() >> 30,
            MOST_MEMORY >> 30
        )));
    }
    if machine.memory / 4096 < least {
        return Err(RunError::Refused(format!(
            "{} at scale 1/{} has {} KiB of memory, less than its tables need; at least {} KiB: a smaller --scale \
             or --set memory=",
            machine.name,
            spec.scale,
            machine.memory / 1024,
            least * 4
        )));
    }
    Ok(machine)
}

/// The sum of the min watermarks, in frames. It buffers bursts of batches from every CPU, and neither batches
/// nor CPUs are scaled: so it is that of the machine at full size, as far as the memory allows.
fn min_free(spec: &RunSpec, shrunk: &Machine) -> u64 {
    let full = Config::linux_min_free(spec.machine.all_memory() / 4096);
    spec.machine.kernel.min_free_kib.map_or(full, |kib| kib / 4).min(shrunk.all_memory() / 4096 / 8)
}

/// What a CPU keeps on its lists of each zone: as on the machine at full size, for the same reason, but all CPUs
/// together at most a sixteenth of the memory.
fn page_lists(spec: &RunSpec, shrunk: &Machine) -> ListLimits {
    let (machine, nodes) = (&spec.machine, u64::from(spec.machine.nodes));
    let frames = machine.memory / 4096;
    let min_free = machine.kernel.min_free_kib.map_or(Config::linux_min_free(frames), |kib| kib / 4);
    let full = Config::linux_page_lists(frames / nodes, min_free / nodes, machine.cpus / machine.nodes);
    let room = (shrunk.memory / 4096 / 16 / u64::from(machine.cpus)).clamp(1, u64::from(full.high)) as u32;
    ListLimits { batch: full.batch.min(room.div_ceil(4)), high: room }
}

fn run_on<const FAULTS: bool>(spec: &RunSpec, watch: &dyn Watch) -> Result<Report, RunError> {
    let began = Instant::now();
    let mut machine = shrink(spec)?;
    if spec.threads.is_some_and(|threads| threads == 0 || threads > machine.cpus) {
        let (name, cpus) = (&machine.name, machine.cpus);
        return Err(RunError::Refused(format!("{name} has {cpus} CPUs, so 1 to {cpus} threads")));
    }
    if let Some(parts) = spec.parts.filter(|parts| !spec.workload.parts().contains(parts)) {
        return Err(RunError::Refused(format!("{} has no run with {parts} parts", spec.workload.name())));
    }
    let trace = match &spec.trace {
        Some(bytes) if spec.workload.needs_trace() => {
            Some(AnyTrace::parse(bytes).map_err(|error| RunError::Refused(error.to_string()))?)
        }
        _ => None,
    };
    if let Some(AnyTrace::Operations(_)) = &trace {
        // What the program waited for devices is in the recording: its threads slept.
        (machine.device.read_latency, machine.device.write_latency) = (0, 0);
    }
    if spec.workload.needs_swap() && machine.swap.is_none() {
        let (name, machine) = (spec.workload.name(), &machine.name);
        return Err(RunError::Refused(format!(
            "{name} needs swap devices, and {machine} has none: a machine with a section [swap], such as ssd-8"
        )));
    }
    let kernel_pages = spec.workload.kernel_pages(machine.cpus);
    let config = Config {
        lru_batch: machine.kernel.lru_batch,
        scan_batch: machine.kernel.scan_batch,
        flush_ceiling: machine.kernel.flush_ceiling,
        page_lists: Some(page_lists(spec, &machine)),
        min_free: Some(min_free(spec, &machine) as u32),
        vmap: kernel_pages.map(|pages| PageRange::new(KERNEL_RANGE, pages)),
        vmap_shards: machine.kernel.vmap_shards,
        vmap_lazy: machine.kernel.vmap_lazy_kib.map(|kib| kib / 4),
        swap: machine.swap.is_some(),
        shadows: machine.swap.is_some(),
        groups: spec.workload.groups(),
        ..Config::new(spec.policy)
    };
    let purgers = u32::from(kernel_pages.is_some());
    let users = match &trace {
        Some(trace) => replay::tasks(trace, machine.cpus),
        None => spec.workload.tasks(machine.cpus, spec.work.unwrap_or(machine.memory / 4096)),
    };
    let tasks = machine.cpus + machine.all_nodes() * machine.kernel.kswapd + purgers + users;
    let mut sim =
        Sim::<FAULTS>::new(machine, tasks as usize, spec.seed, spec.broken, watch).map_err(|error| {
            RunError::Failed(format!("the host has no room for the machine's memory: {error}"))
        })?;
    if spec.profile {
        sim.keep_profile();
    }
    if spec.traffic {
        sim.keep_traffic();
    }
    if let Some(wanted) = spec.timeline {
        sim.keep_timeline(wanted);
    }
    let sim = sim;
    let refused = |error: Error| {
        if let Error::GuaranteeMissing { policy, guarantee: "broadcast" } = error {
            return RunError::Refused(format!(
                "{policy} needs hardware that flushes all CPUs, which {} does not have; another policy, or a machine with \
                 broadcast_pages, such as epyc-2x128",
                spec.machine.name
            ));
        }
        if let Error::GuaranteeMissing { policy, guarantee } = error {
            let guarantee = guarantee.trim_start_matches("with_");
            return RunError::Refused(format!(
                "{policy} rests on {guarantee}, which {} does not guarantee; another policy, or --set \
                 guarantees.{guarantee}=true",
                spec.machine.name
            ));
        }
        RunError::Refused(format!(
            "{} does not fit {} at scale 1/{}: {error}",
            spec.workload.name(),
            spec.machine.name,
            spec.scale
        ))
    };
    let system = sim.system(config).map_err(refused)?;
    sim.swap_on(&system).map_err(refused)?;
    if sim.machine.kernel.demotion {
        let (nodes, frames) = (sim.machine.nodes as u16, system.mm.frames());
        (0..nodes)
            .try_for_each(|node| frames.set_demotion(NodeId(node), Some(NodeId(nodes))))
            .map_err(refused)?;
    }
    let params = Params {
        cpus: sim.machine.cpus,
        frames: spec.work.unwrap_or(sim.machine.memory / 4096),
        seed: spec.seed,
        trace,
        threads: spec.threads.unwrap_or(sim.machine.cpus),
        parts: spec.parts,
    };
    let total = spec.workload.set_up(&system, &params).map_err(refused)?;
    sim.total.set(total);
    let stop = sim.run(&system);
    let (profile, traffic) = (sim.profile(), sim.traffic());
    // SAFETY: `run` has returned: no CPU goes on until `rest`, and the reports are copies.
    let tasks = unsafe { system.reports_of_stopped() };
    let timeline = spec.timeline.and_then(|_| {
        // SAFETY: as above.
        let names = unsafe { system.names_of_stopped() };
        sim.timeline(system.mm.frames().available() + system.mm.frames().on_lists(), names)
    });
    match stop {
        Stop::Finished => {}
        Stop::Cancelled => return Err(RunError::Cancelled),
        // With a rule broken anything may follow, a hang too; what was seen until then is the result.
        _ if spec.broken.is_some() => {}
        Stop::Deadlock => {
            let waiting: Vec<_> =
                system.waiting().iter().map(|(who, key)| format!("{who} for {key:?}")).collect();
            let why = format!("deadlock: no CPU runs; {}", waiting.join(", "));
            return Err(RunError::Failed(why));
        }
        Stop::TooLate => {
            return Err(RunError::Failed(format!(
                "{} minutes of simulated time have passed and the work is not done; less work, or a machine with \
                 shorter times",
                END / 60_000_000_000_000
            )));
        }
        Stop::TooSlow => {
            return Err(RunError::Failed(format!(
                "the machine is too slow for its work: after {} million events {} of {total} pages are done; less work, or a \
                 machine with other costs",
                sim.events.get() / 1_000_000,
                sim.done.get()
            )));
        }
        Stop::Stuck | Stop::Collapsed => {
            return Err(RunError::Failed("livelock: CPUs run and nothing gets done".into()));
        }
    }
    if let Some(task) = tasks.iter().find(|t| t.result.is_err() && spec.broken.is_none()) {
        let why = task.result.err().map_or(String::new(), |error| error.to_string());
        return Err(RunError::Failed(format!("{} ended early: {why}", task.name)));
    }
    if sim.overflowed() {
        return Err(RunError::Failed("a task ran over the end of its stack".into()));
    }
    let metrics = measured(&sim, &system, &tasks);
    let host_s = began.elapsed().as_secs_f64();
    let reclaimed = system.mm.counter(Counter::PgStealKswapd) + system.mm.counter(Counter::PgStealDirect);
    let host = Host {
        host_s,
        events: sim.events.get(),
        reclaimed_pages_per_host_s: reclaimed as f64 / host_s,
        host_peak_rss_mib: peak_rss_mib(),
    };
    let mut notes = vec![format!(
        "scale 1/{}: memory {} MiB and all files with it; watermarks (min {} KiB in all, never above 1/8) and \
         per-CPU lists (at most {} frames of a zone) of the full size; CPUs, TLBs and costs in full",
        spec.scale,
        sim.machine.memory >> 20,
        min_free(spec, &sim.machine) * 4,
        page_lists(spec, &sim.machine).high
    )];
    let mended = metrics.iter().find(|metric| metric.key == figures::STEPS_MENDED.key);
    if let Some(mended) = mended.map(|metric| metric.value.number()).filter(|&mended| mended > 0.0) {
        notes.push(format!(
            "{mended} steps of the recording were left out or added, because they cannot be: pages below 0x10000, faults where nothing \
             was known to be mapped, accesses without the right to, minutes in which nothing happens"
        ));
    }
    let stories = sim.truth().stories.clone();
    let latencies = sim.latencies.take();
    if spec.broken.is_none() && spec.workload.comes_to_rest() {
        match sim.rest(&system) {
            Stop::Deadlock => add_up(&system, spec.workload).map_err(RunError::Failed)?,
            Stop::Cancelled => return Err(RunError::Cancelled),
            _ => {
                let why = "the user tasks have ended, and the kernel's do not come to rest";
                return Err(RunError::Failed(why.into()));
            }
        }
    }
    Ok(Report { metrics, latencies, profile, traffic, timeline, host, stories, notes })
}

/// Whether every frame, list, table and tree of the core adds up once the machine is at rest, and the workload has given
/// back what it took as a kernel does.
fn add_up<const FAULTS: bool>(
    system: &System<'_, Sim<'_, FAULTS>>,
    workload: Workload,
) -> Result<(), String> {
    let audit = system.mm.validate();
    if audit.kernel > 0 && !workload.keeps_frames() {
        return Err(format!("{} of the workload's kernel frames were not given back", audit.kernel));
    }
    audit
        .broken
        .map_or(Ok(()), |what| Err(format!("the frames do not add up at the end: {what} ({audit:?})")))
}

/// The process's `VmHWM`, in MiB.
fn peak_rss_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0).div_ceil(1024)
}

/// Seconds from picoseconds.
fn s(ps: u64) -> f64 {
    ps as f64 / 1e12
}

fn measured<const FAULTS: bool>(
    sim: &Sim<'_, FAULTS>,
    system: &System<'_, Sim<'_, FAULTS>>,
    tasks: &[TaskReport],
) -> Vec<Metric> {
    let count = |counter| system.mm.counter(counter);
    let users = || tasks.iter().filter(|t| matches!(t.kind, TaskKind::User(_)));
    let last = users()
        .filter_map(|t| t.ended)
        .max()
        .unwrap_or_else(|| sim.cpus.iter().map(|cpu| cpu.now.get() / 1000).max().unwrap_or(0));
    let elapsed = last as f64 / 1e9;
    let times: Vec<f64> = users().filter_map(|t| Some((t.ended? - t.started) as f64 / 1e9)).collect();
    let range = times.iter().copied().fold(0.0, f64::max)
        - times.iter().copied().fold(f64::INFINITY, f64::min).min(times.first().copied().unwrap_or(0.0));
    let mean = times.iter().sum::<f64>() / times.len().max(1) as f64;
    let variance = times.iter().map(|t| (t - mean) * (t - mean)).sum::<f64>() / times.len().max(1) as f64;
    sim.cpus.iter().for_each(|cpu| cpu.close(last * 1000));
    let all = |mode| sim.cpus.iter().map(|cpu| cpu.spent(mode)).sum::<u64>();
    let sum = |of: fn(&crate::cpu::Cpu) -> u64| sim.cpus.iter().map(of).sum::<u64>();
    let ticks = sum(|cpu| cpu.ticks.get());
    let kicks = sum(|cpu| cpu.kicks.get());
    let alarms = sum(|cpu| cpu.alarmed.get() + cpu.io_irqs.get());
    let reclaimed = count(Counter::PgStealKswapd) + count(Counter::PgStealDirect);
    let rate = |n: u64| if elapsed > 0.0 { n as f64 / elapsed } else { 0.0 };
    let received = count(Counter::IpisReceived);
    let truth = sim.truth();
    let mut list = vec![
        figures::ELAPSED.real(elapsed),
        figures::TIME_RANGE.real(range),
        figures::TIME_STDDEV.real(variance.sqrt()),
        figures::USER.real(s(all(Mode::User))),
        figures::SYSTEM.real(s(all(Mode::System))),
        figures::IDLE.real(s(all(Mode::Idle))),
        figures::INTERRUPTS_PER_S.real(rate(received + kicks + alarms)),
        figures::TICKS_PER_S.real(rate(ticks)),
    ];
    list.extend(figures::traffic(count));
    list.extend([
        figures::TLB_REFILLS.int(sum(|cpu| cpu.refills.get())),
        figures::STALE_ACCESSES.int(truth.stale),
        figures::LOST_WRITES.int(truth.lost),
        figures::WRONG_CONTENTS.int(truth.wrong),
        figures::WINDOW_ACCESSES.int(truth.window),
    ]);
    if count(Counter::Broadcasts) > 0 {
        let wait = sim.broadcast_waits.get() as f64 / 1000.0 / sim.broadcast_syncs.get() as f64;
        list.push(figures::BROADCAST_ENTRIES.int(sim.broadcast_entries.get()));
        list.push(figures::BROADCAST_WAIT.real(wait));
    }
    list.extend(sim.swapping(&system.mm, elapsed, reclaimed));
    if sim.counted.get() > 0 {
        let bystanders = tasks.iter().filter(|t| matches!(t.kind, TaskKind::Background(_))).count();
        let ns = elapsed * 1e9 * bystanders as f64 / sim.counted.get() as f64;
        list.push(figures::BYSTANDER.real(ns));
    }
    list.extend(sim.tallies.borrow().iter().map(|(&what, &count)| figures::of_tally(what).int(count)));
    list.extend(sim.latencies.borrow().metrics());
    figures::add_counters(&mut list, |counter| Some(count(counter)));
    list
}
