//! Flags of whatever boots a machine.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use quietmm_emulator::{Accel, MOST_CPUS};

use crate::cli::{self, CompareArgs};

/// CPUs unless another number is asked for.
const CPUS: u32 = 8;
/// Memory unless another size is asked for, in MiB.
const MEMORY: u64 = 512;
/// What `--on both` has instead: small work, and CPUs that take turns as finely as those of the simulated machine do. A host
/// thread for each CPU would have them run as the host's scheduler likes, thousands of instructions in a row.
const CPUS_BOTH: u32 = 4;
const MEMORY_BOTH: u64 = 128;
const ACCEL_BOTH: AccelName = AccelName::Icount;
const PERIOD_BOTH: u64 = 1009;
/// Seconds that a machine has.
const TIMEOUT: u64 = 600;
/// The least and the most memory, in MiB: below it the image has no room for itself.
const LEAST_MEMORY: u64 = 16;
const MOST_MEMORY: u64 = 1 << 20;

const EXAMPLES: &str = "\
Examples:
  quietmm boot lru-file-mmap-read --cpus 8 --memory 512M
  quietmm boot vmap-touch --threads 2 --accel icount --policies linux+vmap=eager,linux
  quietmm boot swap-threads --cpus 4 --memory 96M --policies linux
  quietmm boot lru-file-mmap-read --break flush-before-free --policies linux

Times under tcg say little: a virtual CPU is a host thread that may wait for a processor at any moment. Counts are counts.";

/// Where work runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum On {
    /// On a simulated machine
    Sim,
    /// On an emulated machine, booted
    Metal,
    /// The same work on both, and how far the counts differ
    Both,
}

/// How the emulator executes, as on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum AccelName {
    /// A host thread for each CPU: real races, unjudged times
    Tcg,
    /// CPUs take turns and instructions are the clock: each run the same
    Icount,
    /// The host's processors, where it has KVM
    Kvm,
}

impl AccelName {
    /// What the emulator is told.
    pub fn accel(self) -> Accel {
        match self {
            AccelName::Tcg => Accel::Threads,
            AccelName::Icount => Accel::Instructions,
            AccelName::Kvm => Accel::Kvm,
        }
    }
}

/// `quietmm boot`
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct BootArgs {
    /// The workload (see `quietmm list`)
    pub workload: String,
    /// The policies, separated by commas; the first is the baseline
    #[arg(long, value_name = "A,B,...", value_delimiter = ',', default_value = "linux+unmap=per-page,linux")]
    pub policies: Vec<String>,
    /// The machine's CPUs, 1 to 255
    #[arg(long, value_name = "N", default_value_t = CPUS, value_parser = cpus, allow_negative_numbers = true)]
    pub cpus: u32,
    #[command(flatten)]
    pub machine: MachineArgs,
    /// Change a constant of the core or the image: lru_batch, scan_batch, vmap_shards, content, heap, hz, late; may be repeated
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = cli::setting)]
    pub sets: Vec<(String, String)>,
    /// The seed of the first run
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = cli::seed, allow_negative_numbers = true)]
    pub seed: u64,
    /// Boot each policy with N seeds, from --seed upwards, and show mean and standard deviation
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = cli::runs, allow_negative_numbers = true)]
    pub runs: u32,
    /// Break a rule of the memory manager (see `quietmm list`) and report what follows
    #[arg(long = "break", value_name = "RULE")]
    pub broken: Option<String>,
    /// How many threads work, each on a CPU of its own: for vmap-touch (default: one a CPU)
    #[arg(long, value_name = "N", value_parser = cpus, allow_negative_numbers = true)]
    pub threads: Option<u32>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Print every counter, and what depends on the host
    #[arg(long)]
    pub stats: bool,
    /// Say what each row means
    #[arg(long)]
    pub explain: bool,
}

/// What any machine that boots has.
#[derive(Debug, Default, Args)]
pub struct MachineArgs {
    /// The memory of the machine that boots: 512M, 2G (default: 512M; with --on both 128M)
    #[arg(long, value_name = "SIZE", value_parser = memory, allow_negative_numbers = true)]
    pub memory: Option<u64>,
    /// Size the work as if memory were so much (default: all; for readers two fifths, whose files are 10 x that)
    #[arg(long, value_name = "SIZE", value_parser = work, allow_negative_numbers = true)]
    pub work: Option<u64>,
    /// How the machine that boots executes (default: tcg; with --on both icount)
    #[arg(long, value_name = "HOW")]
    pub accel: Option<AccelName>,
    /// With icount: a timer interrupts each CPU after so many of its own, and CPUs take turns as finely (--on both: 1009)
    #[arg(long, value_name = "INSTRUCTIONS", value_parser = period, allow_negative_numbers = true)]
    pub period: Option<u64>,
    /// The bootable image (default: the repository's, built when it is older than its sources)
    #[arg(long, value_name = "FILE")]
    pub image: Option<PathBuf>,
    /// Kill a machine that has not ended after so many seconds (default: 600)
    #[arg(long, value_name = "SECONDS", value_parser = timeout, allow_negative_numbers = true)]
    pub timeout: Option<u64>,
}

impl MachineArgs {
    /// The first flag that was given, if any.
    pub fn given(&self) -> Option<&'static str> {
        [
            ("--memory", self.memory.is_some()),
            ("--work", self.work.is_some()),
            ("--accel", self.accel.is_some()),
            ("--period", self.period.is_some()),
            ("--image", self.image.is_some()),
            ("--timeout", self.timeout.is_some()),
        ]
        .iter()
        .find_map(|(flag, given)| given.then_some(*flag))
    }

    /// Seconds that a machine has.
    pub fn seconds(&self) -> u64 {
        self.timeout.unwrap_or(TIMEOUT)
    }
}

/// What was asked for, by whichever command.
#[derive(Debug)]
pub struct Asked<'a> {
    pub workloads: &'a [String],
    pub policies: &'a [String],
    pub cpus: u32,
    /// MiB.
    pub memory: u64,
    pub accel: AccelName,
    pub period: Option<u64>,
    pub machine: &'a MachineArgs,
    pub sets: &'a [(String, String)],
    pub seed: u64,
    pub runs: u32,
    pub broken: Option<&'a str>,
    pub threads: Option<u32>,
    /// A simulated machine stands beside it, and `sets` may change that one's constants too.
    pub beside: bool,
    pub json: bool,
    pub stats: bool,
    pub explain: bool,
}

impl<'a> Asked<'a> {
    pub fn boot(args: &'a BootArgs) -> Asked<'a> {
        Asked {
            workloads: std::slice::from_ref(&args.workload),
            policies: &args.policies,
            cpus: args.cpus,
            memory: args.machine.memory.unwrap_or(MEMORY),
            accel: args.machine.accel.unwrap_or(AccelName::Tcg),
            period: args.machine.period,
            machine: &args.machine,
            sets: &args.sets,
            seed: args.seed,
            runs: args.runs,
            broken: args.broken.as_deref(),
            threads: args.threads,
            beside: false,
            json: args.json,
            stats: args.stats,
            explain: args.explain,
        }
    }

    pub fn compare(args: &'a CompareArgs) -> Asked<'a> {
        let common = &args.common;
        let (cpus, memory, accel, period) = if args.on == On::Both {
            (CPUS_BOTH, MEMORY_BOTH, ACCEL_BOTH, Some(PERIOD_BOTH))
        } else {
            (CPUS, MEMORY, AccelName::Tcg, None)
        };
        let accel = args.metal.accel.unwrap_or(accel);
        let period = args.metal.period.or(period.filter(|_| accel == AccelName::Icount));
        Asked {
            workloads: &args.workloads,
            policies: &args.policies,
            cpus: common.cpus.unwrap_or(cpus),
            memory: args.metal.memory.unwrap_or(memory),
            accel,
            period,
            machine: &args.metal,
            sets: &common.sets,
            seed: common.seed,
            runs: common.runs,
            broken: common.broken.as_deref(),
            threads: common.threads,
            beside: args.on == On::Both,
            json: common.json,
            stats: common.stats,
            explain: common.explain,
        }
    }
}

fn cpus(text: &str) -> Result<u32, String> {
    cli::whole(text, 1, MOST_CPUS.into()).map(|value| value as u32)
}

fn period(text: &str) -> Result<u64, String> {
    cli::whole(text, 100, 1 << 40)
}

fn timeout(text: &str) -> Result<u64, String> {
    cli::whole(text, 1, 86_400)
}

/// Memory in MiB.
fn memory(text: &str) -> Result<u64, String> {
    let wrong = || "must be a size from 16M to 1024G, in whole MiB, as 512M or 2G".to_string();
    let bytes = bytes(text).filter(|bytes| bytes % (1 << 20) == 0).ok_or_else(wrong)?;
    Some(bytes >> 20).filter(|mib| (LEAST_MEMORY..=MOST_MEMORY).contains(mib)).ok_or_else(wrong)
}

/// Work in frames.
fn work(text: &str) -> Result<u64, String> {
    let frames = bytes(text).map(|bytes| bytes / 4096).filter(|frames| (256..1 << 32).contains(frames));
    frames.ok_or_else(|| "must be a size from 1M to 16384G, as 200M".to_string())
}

/// A size with K, M or G behind it; bytes without.
fn bytes(text: &str) -> Option<u64> {
    let units = [('K', 10), ('M', 20), ('G', 30)];
    let unit = units.iter().find(|(unit, _)| text.ends_with([*unit, unit.to_ascii_lowercase()]));
    let (number, shift) = unit.map_or((text, 0), |(_, shift)| (&text[..text.len() - 1], *shift));
    if number.is_empty() || !number.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    number.parse::<u64>().ok()?.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units_and_borders() {
        assert_eq!(
            [memory("512M"), memory("2G"), memory("2g"), memory("16777216")],
            [512, 2048, 2048, 16].map(Ok)
        );
        for wrong in ["", "M", "-5M", "15M", "1025G", "1.5G", "16777217", "99999999999G", "lots", "1M1"] {
            assert!(memory(wrong).is_err(), "{wrong}");
        }
        assert_eq!(work("200M"), Ok(51_200));
        assert!(work("4K").is_err());
    }
}
