//! Flags of the commands that run work: what all share, what only a simulated machine has, what only one that boots.

use std::path::PathBuf;

use clap::builder::RangedU64ValueParser;
use clap::{Args, ValueEnum, value_parser};
use quietmm_emulator::{Accel, MOST_CPUS};

const SEED_HELP: &str = "\
The seed of the first run. What a machine leaves to chance is drawn from it: when each task starts and where the timer ticks fall. \
The work itself is the same with every seed. The same seed prints the same bytes on any host";

const PROFILE_HELP: &str = "\
Print where CPU time went, for each policy, as `perf report` would: by function of the core, by lock, by interrupt, user work and \
idle time; every picosecond of every CPU once. Below it how long tasks slept and for what, as `perf sched` would. With several \
runs that of the first seed; with --json of each, under the key `profile`. Changes no other figure";

const REPORT_HELP: &str = "\
Write a page to look at, beside what is printed: the verdict, the table, where the tasks' time went, latencies, which CPUs interrupt \
which, memory over time, and the command that repeats it. One file of HTML that any browser shows without a network, that can be \
printed and read aloud. A file of that name is replaced, in one step at the end; after Ctrl-C the page has what had finished. Changes \
no figure and nothing that is printed; pictures of CPUs and memory are of the first seed, and only of simulated machines";

const PROGRAM_HELP: &str = "\
Run a program of Linux instead of a workload, unmodified: words, with quotes as in a shell, but no shell. The program is taken from --root, \
or from this host, those of --with too, with the libraries that it and the programs in --root link to. Its output comes as it is; how it ended, and the counts of the core, on standard \
error, or with --json all together. Exit: the program's own code, 128 and the signal that ended it, or 38 if it failed after a system call that is not \
there. With several policies it runs under each, and prints the first one's output; the others' must be the same";

const METAL_TIMELINE_HELP: &str = "\
Write what each CPU did when, as a trace for the viewer at ui.perfetto.dev or for chrome://tracing: the kernel's functions, user work, waiting, \
and arrows from who interrupts to who is interrupted. Each CPU keeps its last notes, 32768 of all together, so a long run shows its end. The machine's \
clocks tell when; to note takes time too, so figures of time, and with icount all figures, are others than without. Of the first seed. A file of that name is \
replaced, in one step at the end";

const SVG_HELP: &str = "\
Draw how what the broken rule did came about, as a sequence diagram (SVG), to this file: the first story that the terminal tells, with a lane for \
each CPU in it, and its words for those who do not see it, in light and dark. Where nothing was seen nothing is written, and that is said";
const TIMELINE_HELP: &str = "\
Write what each CPU did when, as a trace for the viewer at ui.perfetto.dev, which works offline once it is loaded, or for \
chrome://tracing: user work, the kernel's functions, waiting for locks and for acknowledgements, interrupts off; arrows from who \
interrupts to who is interrupted, and from who acknowledges to who waits; kswapd, batches of reclaim, sweeps, free memory. The last \
2 ms of a run unless --last, --from or --to say otherwise; a process for each policy, with the first seed. A file of that name is \
replaced, in one step at the end. Changes no figure and nothing that is printed";

/// The policies unless others are named: one mechanism changed, and then all that can be.
const POLICIES: &str = "linux+unmap=per-page,linux,quiet";

/// The same on metal, where each takes its time.
const METAL_POLICIES: &str = "linux+unmap=per-page,linux";

/// `quietmm run`
#[derive(Clone, Debug, Args)]
pub struct RunArgs {
    /// The workload (see `quietmm list`)
    pub workload: String,
    /// The policy: a bundle, or a bundle with other choices, as in linux+unmap=per-page
    #[arg(long, value_name = "POLICY", default_value = "linux")]
    pub policy: String,
    #[command(flatten)]
    pub sim: SimArgs,
    #[command(flatten)]
    pub common: Common,
}

/// `quietmm compare`
#[derive(Debug, Args)]
pub struct CompareArgs {
    /// The workloads (see `quietmm list`)
    #[arg(value_name = "WORKLOAD", default_value = "lru-file-mmap-read")]
    pub workloads: Vec<String>,
    /// The policies, separated by commas; the first is the baseline
    #[arg(long, value_name = "A,B,...", value_delimiter = ',', default_value = POLICIES)]
    pub policies: Vec<String>,
    /// Where: simulated, booted on an emulated machine, or both side by side
    #[arg(long, value_name = "WHERE", default_value = "sim")]
    pub on: On,
    #[command(flatten)]
    pub sim: SimArgs,
    #[command(flatten)]
    pub metal: MetalArgs,
    #[command(flatten)]
    pub common: Common,
}

/// `quietmm boot`
#[derive(Debug, Args)]
pub struct BootArgs {
    /// The workload (see `quietmm list`)
    #[arg(required_unless_present = "program")]
    pub workload: Option<String>,
    /// Run a program of Linux instead, with its arguments: its output and its exit code are this command's
    #[arg(long, value_name = "COMMAND", conflicts_with_all = ["workload", "timeline", "work", "accel", "period"], long_help = PROGRAM_HELP)]
    pub program: Option<String>,
    /// The files that the program finds, from its root directory on
    #[arg(long, value_name = "DIR", requires = "program", conflicts_with = "workload")]
    pub root: Option<PathBuf>,
    /// More programs of this host for it to find, separated by commas
    #[arg(
        long,
        value_name = "NAME,...",
        requires = "program",
        conflicts_with = "workload",
        value_delimiter = ','
    )]
    pub with: Vec<String>,
    /// The disk's part for swap: 64M, 1G, or 0 for none (default: three times the memory)
    #[arg(long, value_name = "SIZE", requires = "program", conflicts_with = "workload", value_parser = swap)]
    pub swap: Option<u64>,
    /// Note each system call on standard error
    #[arg(long, requires = "program", conflicts_with = "workload")]
    pub calls: bool,
    /// The policies, separated by commas; the first is the baseline
    #[arg(long, value_name = "A,B,...", value_delimiter = ',', default_value = METAL_POLICIES, default_value_if("program", clap::builder::ArgPredicate::IsPresent, Some("linux")))]
    pub policies: Vec<String>,
    /// The machine's CPUs, 1 to 255 (default: 8)
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..=i64::from(MOST_CPUS)), allow_negative_numbers = true)]
    pub cpus: Option<u32>,
    /// Write what each CPU did last to this file, for Perfetto's and Chrome's trace viewers
    #[arg(long, value_name = "FILE", long_help = METAL_TIMELINE_HELP)]
    pub timeline: Option<PathBuf>,
    #[command(flatten)]
    pub metal: MetalArgs,
    #[command(flatten)]
    pub common: Common,
}

/// The work itself, wherever it runs.
#[derive(Clone, Debug, Args)]
pub struct WorkArgs {
    /// Change a constant of the machine (see `quietmm list --machine NAME`; of one that boots: lru_batch, scan_batch,
    /// vmap_shards, content, heap, hz, late); may be repeated
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = setting)]
    pub sets: Vec<(String, String)>,
    /// The seed of the first run
    #[arg(long, value_name = "N", default_value_t = 1, allow_negative_numbers = true, long_help = SEED_HELP)]
    pub seed: u64,
    /// Break a rule of the memory manager (see `quietmm list`) and report what follows: stale accesses, lost writes, wrong contents
    #[arg(long = "break", value_name = "RULE")]
    pub broken: Option<String>,
    /// How many threads work, each on a CPU of its own, while the machine stays whole: for vmap-touch (default: one a CPU)
    #[arg(long, value_name = "N", value_parser = cpus(), allow_negative_numbers = true)]
    pub threads: Option<u32>,
}

/// What every run has, wherever it is.
#[derive(Clone, Debug, Args)]
pub struct Common {
    #[command(flatten)]
    pub work: WorkArgs,
    /// Run with N seeds, from --seed upwards, 1 to 1000, and show mean and standard deviation
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = value_parser!(u32).range(1..=1000), allow_negative_numbers = true)]
    pub runs: u32,
    /// Print JSON: a list with one element for each table
    #[arg(long, conflicts_with = "csv")]
    pub json: bool,
    /// Print CSV: a line for each figure of each run
    #[arg(long)]
    pub csv: bool,
    /// Print every counter, and what depends on the host: time, events, reclaimed pages per second
    #[arg(long)]
    pub stats: bool,
    /// Write a page for a browser to this file: verdict, table and pictures
    #[arg(long, value_name = "FILE", long_help = REPORT_HELP)]
    pub report: Option<PathBuf>,
    /// Say what each row means
    #[arg(long)]
    pub explain: bool,
}

/// The simulated machine, what runs on it, and by how much of the host.
#[derive(Clone, Debug, Default, Args)]
pub struct MachineArgs {
    /// The machine: a name from `quietmm list`, or a TOML file; several, separated by commas, make a table each (default: the
    /// workload's own)
    #[arg(long = "machine", value_name = "NAME|FILE", value_delimiter = ',')]
    pub names: Vec<String>,
    /// Give the machine this many CPUs, 1 to 4096 (one that boots: 1 to 255)
    #[arg(long, value_name = "N", value_parser = cpus(), allow_negative_numbers = true)]
    pub cpus: Option<u32>,
    /// Divide memory and work by N (default: the workload's own, what leaves 4 GiB of a larger machine, or what makes memory
    /// too small for a trace)
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..), allow_negative_numbers = true)]
    pub scale: Option<u32>,
    /// The trace that the workload `trace` replays: a shipped one by name, a file, or threads of your own, as in
    /// own:threads=16,operation=munmap,pages=4,rate=1000 (default: the first shipped)
    #[arg(long, value_name = "NAME|FILE")]
    pub trace: Option<String>,
    /// With this many parts of other work to one of mapping, and no other ratio: for dir-buffers (default: all, one after another)
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub parts: Option<u32>,
    /// How many host threads run side by side, 1 to 1024 (default: every core); changes no figure
    #[arg(long, value_name = "N", value_parser = jobs(), allow_negative_numbers = true)]
    pub jobs: Option<u16>,
}

/// What only a simulated machine has.
#[derive(Clone, Debug, Default, Args)]
pub struct SimArgs {
    #[command(flatten)]
    pub machine: MachineArgs,
    /// Print where CPU time went, for each policy
    #[arg(long, long_help = PROFILE_HELP)]
    pub profile: bool,
    /// Write what each CPU did when to this file, for Perfetto's and Chrome's trace viewers
    #[arg(long, value_name = "FILE", long_help = TIMELINE_HELP)]
    pub timeline: Option<PathBuf>,
    /// Draw how what the broken rule did came about, as a sequence diagram, to this file
    #[arg(long, value_name = "FILE", requires = "broken", long_help = SVG_HELP)]
    pub svg: Option<PathBuf>,
    /// The timeline is of so much before the run's end: 500us, 3ms (default: 2ms)
    #[arg(long, value_name = "TIME", value_parser = time, requires = "timeline", conflicts_with_all = ["from", "to"], allow_negative_numbers = true)]
    pub last: Option<u64>,
    /// The timeline begins here, by the clock of the run (default: its start)
    #[arg(long, value_name = "TIME", value_parser = time, requires = "timeline", allow_negative_numbers = true)]
    pub from: Option<u64>,
    /// The timeline ends here (default: with the run)
    #[arg(long, value_name = "TIME", value_parser = time, requires = "timeline", allow_negative_numbers = true)]
    pub to: Option<u64>,
}

/// What only a machine that boots has.
#[derive(Clone, Debug, Default, Args)]
pub struct MetalArgs {
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
    #[arg(long, value_name = "INSTRUCTIONS", value_parser = value_parser!(u64).range(100..=1 << 40), allow_negative_numbers = true)]
    pub period: Option<u64>,
    /// The bootable image (default: the repository's, built when it is older than its sources)
    #[arg(long, value_name = "FILE")]
    pub image: Option<PathBuf>,
    /// Kill a machine that has not ended after so many seconds, 1 to 86400 (default: 600)
    #[arg(long, value_name = "SECONDS", value_parser = value_parser!(u64).range(1..=86_400), allow_negative_numbers = true)]
    pub timeout: Option<u64>,
}

/// Where work runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum On {
    /// On a simulated machine
    Sim,
    /// On an emulated machine, booted
    Metal,
    /// The same work on both, and how far the counts differ
    Both,
}

/// How the emulator executes, as on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, serde::Serialize)]
#[serde(rename_all = "lowercase")]
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

impl SimArgs {
    /// The first flag that says something only of a simulated machine; beside one that boots, a machine may be named.
    pub fn only_simulated(&self, beside: bool) -> Option<&'static str> {
        first(&[
            ("--machine", !self.machine.names.is_empty() && !beside),
            ("--scale", self.machine.scale.is_some()),
            ("--trace", self.machine.trace.is_some()),
            ("--parts", self.machine.parts.is_some()),
            ("--profile", self.profile),
            // One that boots keeps its last notes, and no window.
            ("--timeline", self.timeline.is_some() && beside),
            ("--svg", self.svg.is_some()),
            ("--last", self.last.is_some()),
            ("--from", self.from.is_some()),
            ("--to", self.to.is_some()),
        ])
    }
}

impl MetalArgs {
    /// The first flag that was given, if any.
    pub fn given(&self) -> Option<&'static str> {
        first(&[
            ("--memory", self.memory.is_some()),
            ("--work", self.work.is_some()),
            ("--accel", self.accel.is_some()),
            ("--period", self.period.is_some()),
            ("--image", self.image.is_some()),
            ("--timeout", self.timeout.is_some()),
        ])
    }
}

fn first(flags: &[(&'static str, bool)]) -> Option<&'static str> {
    flags.iter().find_map(|&(flag, given)| given.then_some(flag))
}

pub fn cpus() -> clap::builder::RangedI64ValueParser<u32> {
    value_parser!(u32).range(1..=4096)
}

/// Host threads that can be asked for.
pub fn jobs() -> clap::builder::RangedI64ValueParser<u16> {
    value_parser!(u16).range(1..=1024)
}

/// Schedules that can be asked for.
pub fn schedules() -> RangedU64ValueParser<u64> {
    value_parser!(u64).range(1..=1_000_000_000)
}

fn setting(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.trim().is_empty() && !value.trim().is_empty() => {
            Ok((key.trim().to_string(), value.trim().to_string()))
        }
        _ => Err("must be KEY=VALUE".to_string()),
    }
}

/// A time in picoseconds.
fn time(text: &str) -> Result<u64, String> {
    let units = [("ns", 1e3), ("us", 1e6), ("ms", 1e9), ("s", 1e12)];
    let unit = units.iter().find_map(|(unit, ps)| Some((text.strip_suffix(unit)?, ps)));
    let digits = |number: &str| number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let ps = unit
        .filter(|(number, _)| digits(number))
        .and_then(|(number, ps)| Some(number.parse::<f64>().ok()? * ps));
    // A run has 18 minutes at most.
    let ps = ps.filter(|ps| (0.0..=1e16).contains(ps)).map(|ps| ps.round() as u64);
    ps.ok_or_else(|| "must be a time of at most 10000s, as 500us or 2.5ms".to_string())
}

/// Memory in MiB.
fn memory(text: &str) -> Result<u64, String> {
    let whole = bytes(text).filter(|bytes| bytes % (1 << 20) == 0).map(|bytes| bytes >> 20);
    // Below 16 MiB the image has no room for itself.
    let mib = whole.filter(|mib| (16..=1 << 20).contains(mib));
    mib.ok_or_else(|| "must be a size from 16M to 1024G, in whole MiB, as 512M or 2G".to_string())
}

/// Swap in MiB.
fn swap(text: &str) -> Result<u64, String> {
    let whole = bytes(text).filter(|bytes| bytes % (1 << 20) == 0).map(|bytes| bytes >> 20);
    // The core wants 512 pages of a device at least.
    let mib = whole.filter(|&mib| mib == 0 || (2..=1 << 20).contains(&mib));
    mib.ok_or_else(|| "must be 0, or a size from 2M to 1024G, in whole MiB, as 64M or 1G".to_string())
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
        assert_eq!([swap("0"), swap("2M"), swap("1G")], [0, 2, 1024].map(Ok));
        for wrong in ["", "1M", "1025G", "2.5M", "-2M"] {
            assert!(swap(wrong).is_err(), "{wrong}");
        }
        assert_eq!([time("500us"), time("2.5ms"), time("0s")], [500_000_000, 2_500_000_000, 0].map(Ok));
        for wrong in ["", "ms", "5", "-1ms", "1e3ms", "nans", "infs", "10001s", "1..2ms", "5 ms", "3h"] {
            assert!(time(wrong).is_err(), "{wrong}");
        }
        assert_eq!(work("200M"), Ok(51_200));
        assert!(work("4K").is_err());
    }
}
