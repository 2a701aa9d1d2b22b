//! The command line: what can be asked, and one line for what cannot.

use std::io::Write;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{Args, Parser, Subcommand};

use crate::check::CheckArgs;
use crate::ending;
use crate::host::{MachineCommand, RecordArgs};
use crate::metal::args::{BootArgs, MachineArgs, On};
use crate::trace::{ImportArgs, ShowArgs};

const EXAMPLES: &str = "\
Examples:
  quietmm list                                  what there is to choose from
  quietmm compare                               a flush per page against one per batch, on 48 CPUs
  quietmm compare --explain                     the same, and what each row means
  quietmm compare no-pressure tlb-bystander     where batching should not, and may, cost something
  quietmm compare --policies vanilla,linux,quiet --runs 5
  quietmm run hackbench-oom                     memory too small for all: who waits how long, and who must end
  quietmm compare --set ipi_send=2us --cpus 96   another machine
  quietmm compare trace --trace sort            recorded accesses of a real program
  quietmm run trace --trace own:threads=16,operation=munmap,pages=4,rate=1000 --machine modern-2x64
  quietmm compare vmap-touch --threads 2 --policies linux+vmap=eager,linux
  quietmm run revisit --break flush-before-free leave one flush out, and read what happens
  quietmm run lru-file-mmap-read --policy linux --stats --json
  quietmm compare dir-buffers --parts 28 --policies linux+vmap=eager,linux --profile
  quietmm boot lru-file-mmap-read               the same core on real page tables and interrupts, in QEMU
  quietmm compare --on both                     and how far the simulation's counts are from that

Exit: 0 done; 1 a run failed, or memory was used after it was freed although no rule was broken;
2 the command line or an input file is wrong; 130 interrupted (what had finished is printed).";

const IMPORT_EXAMPLE: &str = "\
Example:
  valgrind --tool=lackey --trace-mem=yes --log-file=sort.lackey sort README.md >/dev/null
  quietmm trace import sort.lackey --output sort.qtrace
  quietmm compare trace --trace sort.qtrace";

const RECORD_EXAMPLES: &str = "\
Examples:
  quietmm record -- make -j8                 by the best way that this host allows; says which
  quietmm record -p 1234 --seconds 10        a program that runs
  quietmm record --by ptrace -o sort.qtrace -- sort big.txt
  quietmm compare trace --trace make.qtrace --machine modern-2x64";

const CHECK_EXAMPLES: &str = "\
Examples:
  quietmm check                                    every scenario, with nothing broken
  quietmm check reclaim-unmap --schedules 100000   one of them, further
  quietmm check --mutant flush-before-free         leave one step out: the counterexample, drawn and saved
  quietmm check --mutant all --json                each rule in turn
  quietmm check --replay reclaim-unmap.flush-before-free.replay.toml
  quietmm check --deep                             until Ctrl-C

Exit: 0 nothing is broken, all mutants were found, or the file did what it says; 1 otherwise; 2 the command line or the file
is wrong; 130 interrupted (what was covered is printed).";

const SEED_HELP: &str = "\
The seed of the first run. What a machine leaves to chance is drawn from it: when each task starts and where the timer ticks fall. \
The work itself is the same with every seed. The same seed prints the same bytes on any host";

const PROFILE_HELP: &str = "\
Print where CPU time went, for each policy, as `perf report` would: by function of the core, by lock, by interrupt, user work and \
idle time; every picosecond of every CPU once. Below it how long tasks slept and for what, as `perf sched` would. With several \
runs that of the first seed; with --json of each, under the key `profile`. Changes no other figure";

/// The seed unless another is asked for.
const FIRST_SEED: u64 = 1;

/// What memory-management policies do to other CPUs, computed by the real memory manager on simulated machines.
///
/// Every interruption of another CPU is counted and has a reason. Policies run the same code on the same work
/// with the same seed; the first one named is the baseline, and a gain is positive where it is better.
#[derive(Debug, Parser)]
#[command(name = "quietmm", version, after_help = EXAMPLES, max_term_width = 100, disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Workloads, machines, policies, traces, and rules that can be broken, each with a line
    List(ListArgs),
    /// Run one workload under one policy and print every counter
    Run(RunArgs),
    /// Run the same work under several policies and print the table
    #[command(long_about = "Run the same work under several policies and print the table.\n\n\
        The first policy is the baseline; columns are named by what differs. Where figures for the same \
        comparison were published they stand below the computed ones.")]
    Compare(CompareArgs),
    /// Boot the same work on an emulated machine, once for each policy, and print the same table
    #[command(
        long_about = "Boot the same work on an emulated machine, once for each policy, and print the same table.\n\n\
        The same core runs on page tables, interrupts and processors that we did not write: x86-64 in QEMU. Work is small \
        enough for an emulator; counts are what to compare."
    )]
    Boot(BootArgs),
    /// Record what a program on this host asks of the kernel's memory manager
    #[command(after_help = RECORD_EXAMPLES)]
    Record(RecordArgs),
    /// This host as a machine to simulate
    Machine {
        #[command(subcommand)]
        command: MachineCommand,
    },
    /// Import a recording of a real program, or tell what is in a trace
    Trace {
        #[command(subcommand)]
        command: TraceCommand,
    },
    /// Look for a schedule, an interrupt or a freak of hardware that breaks an invariant
    #[command(long_about = "Look for a schedule, an interrupt or a freak of hardware that breaks an invariant.\n\n\
        Small situations over the real memory manager, 2 to 4 CPUs and a handful of pages, are played in thousands of orders: at \
        random, by random priorities, and exhaustively up to a few departures from the ordinary order. After each step it is \
        judged what every CPU could use. With --mutant a rule is broken, and a schedule must show it.", after_help = CHECK_EXAMPLES)]
    Check(CheckArgs),
    /// What `make run` shows: the comparison, a recorded trace, and what one missing flush does
    Demo(DemoArgs),
}

/// `quietmm list`
#[derive(Debug, Args)]
pub struct ListArgs {
    /// List the constants of one machine instead: what --set can change, with units and sources
    #[arg(long, value_name = "NAME|FILE")]
    pub machine: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `quietmm run`
#[derive(Debug, Args)]
pub struct RunArgs {
    /// The workload (see `quietmm list`)
    pub workload: String,
    /// The policy: a bundle, or a bundle with other choices, as in linux+unmap=per-page
    #[arg(long, value_name = "POLICY", default_value = "linux")]
    pub policy: String,
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
    #[arg(long, value_name = "A,B,...", value_delimiter = ',', default_value = "linux+unmap=per-page,linux")]
    pub policies: Vec<String>,
    /// Where: simulated, booted on an emulated machine, or both side by side
    #[arg(long, value_name = "WHERE", default_value = "sim")]
    pub on: On,
    #[command(flatten)]
    pub metal: MachineArgs,
    #[command(flatten)]
    pub common: Common,
}

/// `quietmm demo`
#[derive(Debug, Args)]
pub struct DemoArgs {
    /// How many host threads run side by side (default: every core); changes no figure
    #[arg(long, value_name = "N", value_parser = jobs)]
    pub jobs: Option<usize>,
}

/// What `run` and `compare` share.
#[derive(Debug, Args)]
pub struct Common {
    /// The machine: a name from `quietmm list`, or a TOML file (default: the workload's own)
    #[arg(long, value_name = "NAME|FILE")]
    pub machine: Option<String>,
    /// Give the machine this many CPUs, 1 to 4096
    #[arg(long, value_name = "N", value_parser = cpus, allow_negative_numbers = true)]
    pub cpus: Option<u32>,
    /// Change a constant of the machine (see `quietmm list --machine NAME`); may be repeated
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = setting)]
    pub sets: Vec<(String, String)>,
    /// Divide memory and work by N (default: the workload's own, or what leaves 4 GiB of a larger machine)
    #[arg(long, value_name = "N", value_parser = scale, allow_negative_numbers = true)]
    pub scale: Option<u32>,
    /// The seed of the first run
    #[arg(long, value_name = "N", default_value_t = FIRST_SEED, value_parser = seed, allow_negative_numbers = true,
          long_help = SEED_HELP)]
    pub seed: u64,
    /// Run with N seeds, from --seed upwards, and show mean and standard deviation
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = runs, allow_negative_numbers = true)]
    pub runs: u32,
    /// Break a rule of the memory manager (see `quietmm list`) and report what follows: stale accesses, lost writes, wrong contents
    #[arg(long = "break", value_name = "RULE")]
    pub broken: Option<String>,
    /// The trace that the workload `trace` replays: a shipped one by name, a file, or threads of your own, as in
    /// own:threads=16,operation=munmap,pages=4,rate=1000 (default: the first shipped)
    #[arg(long, value_name = "NAME|FILE")]
    pub trace: Option<String>,
    /// How many threads work, each on a CPU of its own, while the machine stays whole: for vmap-touch (default: one a CPU)
    #[arg(long, value_name = "N", value_parser = cpus, allow_negative_numbers = true)]
    pub threads: Option<u32>,
    /// With this many parts of other work to one of mapping, and no other ratio: for dir-buffers (default: all, one after another)
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub parts: Option<u32>,
    /// Print where CPU time went, for each policy
    #[arg(long, long_help = PROFILE_HELP)]
    pub profile: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Print every counter, and what depends on the host: time, events, reclaimed pages per second
    #[arg(long)]
    pub stats: bool,
    /// Say what each row means
    #[arg(long)]
    pub explain: bool,
    /// How many host threads run side by side (default: every core); changes no figure
    #[arg(long, value_name = "N", value_parser = jobs, allow_negative_numbers = true)]
    pub jobs: Option<usize>,
}

impl Default for Common {
    /// What a command line without flags asks for.
    fn default() -> Common {
        Common {
            machine: None,
            cpus: None,
            sets: Vec::new(),
            scale: None,
            seed: FIRST_SEED,
            runs: 1,
            broken: None,
            trace: None,
            threads: None,
            parts: None,
            profile: false,
            json: false,
            stats: false,
            explain: false,
            jobs: None,
        }
    }
}

/// Reads the command line. Help and errors are printed here, and the exit code is returned.
pub fn parse() -> Result<Command, ExitCode> {
    Cli::try_parse().map(|cli| cli.command).map_err(|error| match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            // A reader that has left is no failure.
            let _ = error.print();
            ExitCode::SUCCESS
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let _ = write!(std::io::stderr(), "{}", error.render());
            ExitCode::from(2)
        }
        kind => {
            let mut line = one_line(&error.render().to_string());
            if kind == ErrorKind::InvalidSubcommand && !line.contains(';') {
                line.push_str(
                    "; there are list, run, compare, boot, check, record, machine, trace, demo (quietmm --help)",
                );
            }
            ending::complain(&line);
            ExitCode::from(2)
        }
    })
}

/// The library's message in one line: what is wrong and its tips, without usage.
fn one_line(message: &str) -> String {
    let said: Vec<&str> = message
        .lines()
        .map(str::trim)
        .take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more information"))
        .filter(|line| !line.is_empty())
        .collect();
    let mut line = String::new();
    for part in said {
        let part = part.strip_prefix("error: ").unwrap_or(part);
        if let Some(tip) = part.strip_prefix("tip: ") {
            line.push_str("; ");
            line.push_str(tip);
        } else {
            line.push(' ');
            line.push_str(part);
        }
    }
    line.trim_start().to_string()
}

fn cpus(text: &str) -> Result<u32, String> {
    whole(text, 1, 4096).map(|value| value as u32)
}

fn scale(text: &str) -> Result<u32, String> {
    whole(text, 1, u64::from(u32::MAX)).map(|value| value as u32)
}

pub fn runs(text: &str) -> Result<u32, String> {
    whole(text, 1, 1000).map(|value| value as u32)
}

/// Host threads that can be asked for.
pub fn jobs(text: &str) -> Result<usize, String> {
    whole(text, 1, 1024).map(|value| value as usize)
}

/// A seed.
pub fn seed(text: &str) -> Result<u64, String> {
    whole(text, 0, u64::MAX)
}

/// Schedules that can be asked for.
pub fn schedules(text: &str) -> Result<u64, String> {
    whole(text, 1, 1_000_000_000)
}

/// Departures that can be asked for.
pub fn departures(text: &str) -> Result<usize, String> {
    whole(text, 0, 6).map(|value| value as usize)
}

/// A whole number between two others.
pub fn whole(text: &str, least: u64, most: u64) -> Result<u64, String> {
    match text.parse::<u64>() {
        Ok(value) if (least..=most).contains(&value) => Ok(value),
        _ => Err(format!("must be a whole number from {least} to {most}")),
    }
}

pub fn setting(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.trim().is_empty() && !value.trim().is_empty() => {
            Ok((key.trim().to_string(), value.trim().to_string()))
        }
        _ => Err("must be KEY=VALUE".to_string()),
    }
}

/// `quietmm trace`
#[derive(Debug, Subcommand)]
pub enum TraceCommand {
    #[command(after_help = IMPORT_EXAMPLE)]
    Import(ImportArgs),
    Show(ShowArgs),
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn an_error_becomes_one_line_with_its_tip() {
        let message =
            Cli::try_parse_from(["quietmm", "compare", "--polices", "a"]).unwrap_err().render().to_string();
        let line = one_line(&message);
        assert!(line.contains("--polices") && line.contains("--policies"), "{line}");
        assert!(!line.contains('\n') && !line.contains("Usage"));
    }
}
