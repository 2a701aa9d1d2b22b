//! Machines that boot: the same core on page tables, interrupts and processors that we did not write.
//!
//! [`image`] finds the bootable image or has it built, [`lines`] reads what a machine printed, [`judge`] says what is to be
//! thought of how it ended, [`figures`] makes the figures of it that the simulation has, and [`timeline`] its timeline.

mod figures;
pub mod image;
mod judge;
mod lines;
mod timeline;

use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::Duration;

use quietmm_emulator::{Accel, EMULATOR, MOST_CPUS, Machine};
use quietmm_sim::Workload;
use quietmm_sim::near::unknown;

use crate::cli::flags::{AccelName, On};
use crate::process::ending::Failure;
use crate::process::interrupt;
use crate::process::progress::Lane;
use crate::study::command::CommandLine;
use crate::study::result::{Host, Metrics};
use crate::study::{Ask, Backend, Named, Place, Plan, Run};
use judge::Verdict;

/// CPUs and memory, in MiB, unless others are asked for.
const CPUS: u32 = 8;
const MEMORY: u64 = 512;
/// What `--on both` has instead: small work, and CPUs that take turns as finely as those of the simulated machine do. A host
/// thread for each CPU would have them run as the host's scheduler likes, thousands of instructions in a row.
const CPUS_BOTH: u32 = 4;
const MEMORY_BOTH: u64 = 128;
const PERIOD_BOTH: u64 = 1009;
/// Seconds that a machine has.
const TIMEOUT: u64 = 600;

/// Constants that `--set` takes: those of the core, and the image's own (`crates/metal/README.md`).
const SETTINGS: [&str; 7] = ["lru_batch", "scan_batch", "vmap_shards", "content", "heap", "hz", "late"];
/// Of these, those that only the image has.
pub const ONLY_IMAGE: [&str; 4] = ["content", "heap", "hz", "late"];

/// Memory below which the image's heap, 32 MiB unless it is told, leaves the core too little: it gets an eighth, in MiB.
const SMALL: u64 = 256;
/// The disk is so many times as large as the memory. Three quarters of it are for swap, the rest for files; what is not
/// written takes no room.
const DISK: u64 = 4;

/// An emulated machine that boots.
pub struct Booted {
    machine: Machine,
    accel: AccelName,
    /// Frames by which the work is sized, if not the machine's.
    work: Option<u64>,
    /// Instructions of a CPU's own between two timer interrupts.
    period: Option<u64>,
    sets: Vec<(String, String)>,
    /// Notes that each CPU keeps of what it does, for a timeline.
    notes: Option<u32>,
    /// How long a machine may take.
    limit: Duration,
    /// The image that was named.
    named: Option<PathBuf>,
    /// The image that is booted.
    image: OnceLock<PathBuf>,
}

impl Booted {
    /// The machine that was asked for.
    pub fn of(ask: &Ask<'_>, workload: Workload) -> Result<Booted, Failure> {
        let wrong = |why: String| Err(Failure::Input(why));
        let both = ask.on == On::Both;
        let name = workload.name();
        let accel = ask.metal.accel.unwrap_or(if both { AccelName::Icount } else { AccelName::Tcg });
        if ask.metal.period.is_some() && accel != AccelName::Icount {
            return wrong("--period: only with --accel icount are instructions the clock".to_string());
        }
        let is_own = |(key, _): &&(String, String)| SETTINGS.contains(&key.as_str());
        if let Some((key, _)) = ask.common.work.sets.iter().find(|set| !both && !is_own(set)) {
            // What stands beside has constants of its own, and says itself what is none.
            return wrong(unknown("constant", key, SETTINGS));
        }
        let sets: Vec<_> = ask.common.work.sets.iter().filter(is_own).cloned().collect();
        if let Some((key, _)) =
            sets.iter().find(|(_, value)| value.contains(|c: char| c.is_whitespace() || c == '"'))
        {
            return wrong(format!("--set {key}: a value without spaces"));
        }
        if workload.needs_trace() {
            return wrong(format!(
                "{name} does not boot: the image holds no trace; quietmm compare {name} simulates it"
            ));
        }
        let cpus = ask.cpus.unwrap_or(if both { CPUS_BOTH } else { CPUS });
        if cpus > MOST_CPUS {
            return wrong(format!("--cpus {cpus}: a machine that boots has 1 to {MOST_CPUS}"));
        }
        let mib = ask.metal.memory.unwrap_or(if both { MEMORY_BOTH } else { MEMORY });
        let disk = workload.needs_swap().then_some((DISK * mib) << 20);
        Ok(Booted {
            machine: Machine { cpus, mib, accel: accel.accel(), disk },
            accel,
            work: ask.metal.work.or_else(|| work(workload, mib)),
            period: ask.metal.period.or((both && accel == AccelName::Icount).then_some(PERIOD_BOTH)),
            sets,
            notes: ask.sim.timeline.is_some().then(|| timeline::notes(cpus)),
            limit: Duration::from_secs(ask.metal.timeout.unwrap_or(TIMEOUT)),
            named: ask.metal.image.clone(),
            image: OnceLock::new(),
        })
    }

    /// Frames by which the work is sized, if not the machine's.
    pub fn work(&self) -> Option<u64> {
        self.work
    }

    /// Whether two runs print the same. A disk answers when the host has time for it.
    fn repeats(&self) -> bool {
        self.machine.accel == Accel::Instructions && self.machine.disk.is_none()
    }

    /// The image's command line for this run.
    fn words(&self, plan: &Plan, policy: &Named, seed: u64) -> String {
        let mut words = format!("workload={} policy={} seed={seed}", plan.workload.name(), policy.policy);
        let mut put = |key: &str, value: &dyn std::fmt::Display| words += &format!(" {key}={value}");
        if let Some(frames) = self.work {
            put("work", &frames);
        }
        if let Some(rule) = plan.broken {
            put("break", &rule.name());
        }
        if let Some(threads) = plan.threads {
            put("threads", &threads);
        }
        if let Some(period) = self.period {
            put("period", &period);
        }
        if let Some(notes) = self.notes.filter(|_| seed == plan.seed) {
            put("timeline", &notes);
        }
        if self.machine.mib < SMALL && !self.sets.iter().any(|(key, _)| key == "heap") {
            put("heap", &(self.machine.mib / 8).max(4));
        }
        self.sets.iter().for_each(|(key, value)| put(key, value));
        words
    }
}

/// Frames by which the work is sized unless one says. Readers read ten times that: two fifths of memory make files of four
/// times the memory, 2 GiB with 512 MiB, which reclaims three quarters of them and takes an emulator seconds.
fn work(workload: Workload, mib: u64) -> Option<u64> {
    let frames = mib * 256;
    matches!(workload, Workload::Reader | Workload::SharedReader).then(|| (frames * 2).div_ceil(5))
}

impl Backend for Booted {
    fn place(&self) -> Place {
        Place {
            accel: Some(self.accel),
            memory_mib: Some(self.machine.mib),
            disk_mib: self.machine.disk.map(|bytes| bytes >> 20),
            work_frames: self.work,
            period: self.period,
            sets: self.sets.clone(),
            ..Place::of(On::Metal, EMULATOR, self.machine.cpus)
        }
    }

    fn flags(&self, line: &mut CommandLine) {
        line.flag("--cpus", self.machine.cpus);
        line.flag("--memory", format!("{}M", self.machine.mib));
        line.option("--work", self.work.map(|frames| format!("{}K", frames * 4)));
        let accel = clap::ValueEnum::to_possible_value(&self.accel);
        line.option("--accel", accel.as_ref().map(clap::builder::PossibleValue::get_name));
        line.option("--period", self.period);
    }

    fn origin(&self) -> Vec<(&'static str, String)> {
        let Machine { cpus, mib, disk, accel } = self.machine;
        let plural = if cpus == 1 { "" } else { "s" };
        let disk = disk.map_or_else(String::new, |bytes| format!(", a disk of {} MiB", bytes >> 20));
        let how = match accel {
            Accel::Threads => {
                "emulated, a host thread for each CPU: times say little, and counts differ from run to run"
            }
            Accel::Instructions if self.repeats() => {
                "emulated, CPUs take turns, an instruction is a nanosecond: each run prints the same"
            }
            Accel::Instructions => {
                "emulated, CPUs take turns, an instruction is a nanosecond; the disk answers when the host has time"
            }
            Accel::Kvm => "on the host's processors",
        };
        let machine = format!("{cpus} CPU{plural} and {mib} MiB{disk}; {how}");
        let work = self.work.map(|frames| ("work", format!("sized by {} MiB", frames / 256)));
        let timer = self.period.map(|period| ("timer", format!("after each {period} instructions of a CPU")));
        [("machine", machine)].into_iter().chain(work).chain(timer).collect()
    }

    fn prepare(&self) -> Result<(), Failure> {
        let image = image::find(self.named.as_deref())?;
        // Once only, since a plan is prepared once.
        let _ = self.image.set(image);
        Ok(())
    }

    fn side_by_side(&self) -> bool {
        false
    }

    fn run(&self, plan: &Plan, policy: &Named, seed: u64, _lane: &Lane<'_>) -> Result<Option<Run>, Failure> {
        let Some(image) = self.image.get().filter(|_| !interrupt::requested()) else { return Ok(None) };
        let running = interrupt::hold();
        let words = self.words(plan, policy, seed);
        let outcome = self.machine.boot(image, &words, self.limit, &interrupt::requested);
        drop(running);
        let outcome = outcome.map_err(|error| Failure::Run(error.to_string()))?;
        let printed = lines::read(&outcome.printed);
        let ran = (plan.workload.name(), policy.policy.to_string(), u64::from(self.machine.cpus));
        let end = match judge::judge(&ran, self.limit, &outcome, &printed) {
            Verdict::Stopped => return Ok(None),
            Verdict::Well => None,
            Verdict::Refused(why) => return Err(Failure::Input(format!("{}: {why}", plan.workload.name()))),
            Verdict::Wrong(why) if plan.broken.is_some() => Some(why),
            Verdict::Wrong(why) | Verdict::Never(why) => return Err(plan.failed(policy, seed, why)),
        };
        Ok(Some(Run {
            frames: printed.head.as_ref().map(|head| head.frames),
            metrics: Metrics(figures::figures(&printed, self.machine.accel)),
            operations: printed.operations,
            shootdowns: printed.shootdowns,
            paces: printed.paces,
            end: plan.broken.map(|_| end.unwrap_or_else(|| "well".to_string())),
            stories: printed.wrong.into_iter().map(Into::into).collect(),
            timeline: timeline::timeline(&printed.timeline, self.machine.cpus),
            host: Some(Host { host_s: outcome.took.as_secs_f64(), ..Host::default() }),
            ..Run::default()
        }))
    }
}
