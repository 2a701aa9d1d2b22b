//! The command line: what can be asked, and one line for what cannot.

pub mod flags;
mod shell;

use std::io::Write;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{Args, CommandFactory, Parser, Subcommand};

use crate::check::CheckArgs;
use crate::explain::ExplainArgs;
use crate::host::{MachineCommand, RecordArgs};
use crate::process::ending::{self, Failure};
use crate::sweep::{self, args::SweepArgs};
use crate::trace::{ImportArgs, ShowArgs};
use flags::{BootArgs, CompareArgs, RunArgs};
pub use shell::{CompletionsArgs, ManArgs, completions, man};

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
  quietmm explain make.qtrace                   who interrupts whom in a program of your own, and what to change
  quietmm run trace --trace own:threads=16,operation=munmap,pages=4,rate=1000 --machine modern-2x64
  quietmm compare vmap-touch --threads 2 --policies linux+vmap=eager,linux
  quietmm run revisit --break flush-before-free leave one flush out, and read what happens
  quietmm run lru-file-mmap-read --policy linux --stats --json
  quietmm compare dir-buffers --parts 28 --policies linux+vmap=eager,linux --profile
  quietmm sweep --vary cpus=1..64 --vary policy=linux,quiet --out study.jsonl
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

const EXPLAIN_EXAMPLES: &str = "\
Examples:
  quietmm machine measure > mine.toml
  quietmm record -- make -j8
  quietmm explain make.qtrace --machine mine.toml
  quietmm explain make.qtrace --machine mine.toml --larger modern-2x64 --cpus 32,128
  quietmm explain own:threads=16,operation=madvise,sharing=3 --machine modern-2x64";

const CHECK_EXAMPLES: &str = "\
Examples:
  quietmm check                                    every scenario, with nothing broken
  quietmm check reclaim-unmap --schedules 100000   one of them, further
  quietmm check --mutant flush-before-free         leave one step out: the counterexample, drawn
  quietmm check --mutant flush-before-free --save . and kept as a file
  quietmm check --mutant all --json                each rule in turn
  quietmm check --replay reclaim-unmap.flush-before-free.replay.toml
  quietmm check --deep                             until Ctrl-C

Exit: 0 nothing is broken, all mutants were found, or the file did what it says; 1 otherwise; 2 the command line or the file
is wrong; 130 interrupted (what was covered is printed).";

const BOOT_EXAMPLES: &str = "\
Examples:
  quietmm boot lru-file-mmap-read --cpus 8 --memory 512M
  quietmm boot vmap-touch --threads 2 --accel icount --policies linux+vmap=eager,linux
  quietmm boot swap-threads --cpus 4 --memory 96M --policies linux
  quietmm boot lru-file-mmap-read --break flush-before-free --policies linux
  quietmm boot --program \"busybox sh -c 'echo hello | wc'\" --cpus 4

Times under tcg say little: a virtual CPU is a host thread that may wait for a processor at any moment. Counts are counts.";

/// What memory-management policies do to other CPUs, computed by the real memory manager on simulated machines.
///
/// Every interruption of another CPU is counted and has a reason. Policies run the same code on the same work
/// with the same seed; the first one named is the baseline, and a gain is positive where it is better.
#[derive(Debug, Parser)]
#[command(name = "quietmm", version, after_help = EXAMPLES, max_term_width = 100)]
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
        The first policy is the baseline. Where figures for the same comparison were published they stand below the \
        computed ones. Columns that do not fit the terminal (80 columns where there is none) are stacked.")]
    Compare(CompareArgs),
    /// Run a grid of machines, policies, constants and seeds, on all cores, and go on where it stopped
    #[command(
        long_about = "Run a grid of machines, policies, constants and seeds, on all cores, and go on where it stopped.\n\n\
        Each --vary is an axis, and each combination of their values a run, as `quietmm run` would do it. Results are lines of JSON, \
        the same bytes whatever ran where and when; a grid can be cut into parts for many machines.",
        after_help = sweep::args::EXAMPLES
    )]
    Sweep(SweepArgs),
    /// Boot the same work on an emulated machine, once for each policy, and print the same table
    #[command(
        long_about = "Boot the same work on an emulated machine, once for each policy, and print the same table.\n\n\
        The same core runs on page tables, interrupts and processors that we did not write: x86-64 in QEMU. Work is small \
        enough for an emulator; counts are what to compare.",
        after_help = BOOT_EXAMPLES
    )]
    Boot(BootArgs),
    /// Record what a program on this host asks of the kernel's memory manager
    #[command(after_help = RECORD_EXAMPLES)]
    Record(RecordArgs),
    /// What a recorded program's shootdowns cost, who causes them, and what would change that
    #[command(
        long_about = "What a recorded program's shootdowns cost, who causes them, and what would change that.\n\n\
        First what was recorded: which threads interrupt whom, by which call, from which call stack where that is known, and what it cost \
        by the machine's constants. Then what to change in the program, most to be saved first. Then the recording is replayed under other \
        policies, on the machine and on a larger one: flush requests, and the CPU time that they take.\n\n\
        Who is interrupted is known of recordings by perf; of others only which calls may interrupt.",
        after_help = EXPLAIN_EXAMPLES
    )]
    Explain(ExplainArgs),
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
    /// Print what makes a shell complete the words of `quietmm`
    #[command(
        after_help = "Example:\n  quietmm completions bash >~/.local/share/bash-completion/completions/quietmm"
    )]
    Completions(CompletionsArgs),
    /// Print the manual page, or write those of all commands
    Man(ManArgs),
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

/// `quietmm demo`
#[derive(Debug, Args)]
pub struct DemoArgs {
    /// How many host threads run side by side (default: every core); changes no figure
    #[arg(long, value_name = "N", value_parser = flags::jobs())]
    pub jobs: Option<u16>,
}

/// `quietmm trace`
#[derive(Debug, Subcommand)]
pub enum TraceCommand {
    #[command(after_help = IMPORT_EXAMPLE)]
    Import(ImportArgs),
    Show(ShowArgs),
}

/// A command line that is no command.
#[derive(Debug)]
pub struct Unread {
    /// The exit code: 0 if help was asked for.
    pub code: u8,
    /// The help that was asked for.
    pub help: String,
    /// What is wrong, in a line.
    pub complaints: Vec<String>,
}

/// Reads the command line of this process. Help and errors are printed here, and the exit code is returned.
pub fn parse() -> Result<Command, ExitCode> {
    Cli::try_parse().map(|cli| cli.command).map_err(|error| match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            match error.print().and_then(|()| std::io::stdout().flush()) {
                Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
                    ending::exit_code(Err(Failure::Output(error)))
                }
                // A reader that has left is no failure.
                _ => ExitCode::SUCCESS,
            }
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let _ = write!(std::io::stderr(), "{}", error.render());
            ExitCode::from(2)
        }
        _ => ending::exit_code(Err(Failure::Input(complaint(&error)))),
    })
}

/// Reads these words, without the name of the command before them.
pub fn read(words: &[String]) -> Result<Command, Unread> {
    let words = std::iter::once("quietmm").chain(words.iter().map(String::as_str));
    Cli::try_parse_from(words).map(|cli| cli.command).map_err(|error| match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            Unread { code: 0, help: error.render().to_string(), complaints: Vec::new() }
        }
        _ => Unread { code: 2, help: String::new(), complaints: vec![ending::complaint(&complaint(&error))] },
    })
}

/// What Rust says of a text that is no number, and what would be right.
const NUMBERS: [(&str, &str); 6] = [
    ("invalid digit found in string", "a whole number is needed"),
    ("cannot parse integer from empty string", "a whole number is needed"),
    ("number too large to fit in target type", "the number is too large"),
    ("number too small to fit in target type", "the number is too small"),
    ("invalid float literal", "a number is needed"),
    ("cannot parse float from empty string", "a number is needed"),
];

/// What is wrong with a command line, in a line.
fn complaint(error: &clap::Error) -> String {
    let mut line = one_line(&error.render().to_string());
    for (said, needed) in NUMBERS {
        line = line.replace(said, needed);
    }
    if error.kind() == ErrorKind::InvalidSubcommand && !line.contains(';') {
        let cli = Cli::command();
        let all: Vec<&str> = cli.get_subcommands().map(clap::Command::get_name).collect();
        line.push_str(&format!("; there are {} (quietmm --help)", all.join(", ")));
    }
    line
}

/// A command line that is part of the program.
pub fn fixed(line: &str) -> Result<Command, String> {
    let cli = Cli::try_parse_from(std::iter::once("quietmm").chain(line.split_whitespace()));
    cli.map(|cli| cli.command).map_err(|error| error.to_string())
}

/// The library's message in one line: what is wrong and its tips, without usage.
fn one_line(message: &str) -> String {
    let said = message
        .lines()
        .map(str::trim)
        .take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more information"))
        .filter(|line| !line.is_empty());
    let mut line = String::new();
    for part in said {
        let part = part.strip_prefix("error: ").unwrap_or(part);
        let (gap, part) = part.strip_prefix("tip: ").map_or((" ", part), |tip| ("; ", tip));
        line.push_str(gap);
        line.push_str(part);
    }
    line.trim_start().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn what_is_no_number_is_told_what_is_needed() {
        for (words, needed) in [
            (
                ["record", "--seconds", "0.5", "ls"].as_slice(),
                "'0.5' for '--seconds <N>': a whole number is needed",
            ),
            (&["record", "--seconds", "", "ls"], "a whole number is needed"),
            (&["record", "--seconds", "99999999999999999999", "ls"], "the number is too large"),
            (&["machine", "cost", "--received", "many"], "'many' for '--received <N>': a number is needed"),
            (&["machine", "cost", "--received", "1", "--pages", "0"], "0 is not in 1.."),
        ] {
            let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
            let said = read(&words).unwrap_err().complaints;
            assert!(said[0].contains(needed), "{said:?}");
        }
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
