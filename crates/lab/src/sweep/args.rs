//! `quietmm sweep`: what can be asked.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::cli::flags::{MachineArgs, WorkArgs};
use crate::sweep::part::Part;

/// The end of the help.
pub const EXAMPLES: &str = "\
What can be varied: workload, machine, policy, cpus, threads, scale, parts, trace, seed, and each constant of a machine by its name \
(quietmm list --machine NAME). Whatever is not varied is said by the flag of that name, and stays.

Values of one --vary, separated by commas:
  linux,quiet,linux+free=sweep  one after another
  4..4096                       doubling from 4 to 4096; both ends are in
  100ns..2us                    the same: 100, 200, 400, 800, 1600 ns, 2 us
  1..5                          of seeds: each of them
  0ns..1us:+250ns               so much more each time
  1us..10ms:x10                 so many times as much each time

The grid has every combination, and its order is that of an odometer: the last --vary goes round first. Each point is one \
`quietmm run`, whose command stands in its line.

Examples:
  quietmm sweep --vary cpus=1,2,4..64 --vary policy=linux,quiet --out s.jsonl
  quietmm sweep unmap-storm --vary ipi_send=100ns..2us --vary seed=1..5 --report s.html
  quietmm sweep --vary cpus=1..64 --vary seed=1..99 --shard 2/8 --out part-2.jsonl
  quietmm sweep merge part-*.jsonl --out study.jsonl --csv study.csv

A file that is there is gone on with: what it has is not run again.

Exit: 0 done; 1 points failed, and the others are there; 2 the command line or a file is wrong; 130 interrupted (what had \
finished is in the file; the same command goes on).";

const OUT_HELP: &str = "\
Where the results go: a line of JSON that says what was asked, then one for each point, with its coordinates and what `run --json` \
has for it. Points are added as they are done, and stand in the order of the grid when all are. If the file is there, only what is \
missing is run. Without --out the lines are printed at the end";

/// `quietmm sweep`
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct SweepArgs {
    #[command(subcommand)]
    pub command: Option<SweepCommand>,
    /// The workloads; several are varied, before all else (default: lru-file-mmap-read)
    #[arg(value_name = "WORKLOAD")]
    pub workloads: Vec<String>,
    /// Vary this over these values (see below); may be repeated
    #[arg(long, value_name = "NAME=VALUES")]
    pub vary: Vec<String>,
    /// The policy, where it is not varied (default: linux)
    #[arg(long, value_name = "POLICY")]
    pub policy: Option<String>,
    #[command(flatten)]
    pub machine: MachineArgs,
    #[command(flatten)]
    pub work: WorkArgs,
    /// Write the results to this file, and go on with what is in it
    #[arg(long, value_name = "FILE", long_help = OUT_HELP)]
    pub out: Option<PathBuf>,
    /// Run only this part of the grid, as 2/8: the second of eight, which have about as much to do each
    #[arg(long, value_name = "I/N")]
    pub shard: Option<Part>,
    #[command(flatten)]
    pub views: Views,
}

/// What can be made of results.
#[derive(Clone, Debug, Args)]
pub struct Views {
    /// Write a table to this file: a line for each point, a column for each figure
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,
    /// Write a page for a browser to this file: curves over the first number that is varied, and their table
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
}

/// What is done with results that are there.
#[derive(Debug, Subcommand)]
pub enum SweepCommand {
    /// Join the parts of a grid: the same bytes as of one run
    Merge(MergeArgs),
}

/// `quietmm sweep merge`
#[derive(Debug, Args)]
pub struct MergeArgs {
    /// The files of all parts, in any order
    #[arg(value_name = "PART", required = true)]
    pub parts: Vec<PathBuf>,
    /// Where all of them go together; a file of that name is replaced, in one step
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
    #[command(flatten)]
    pub views: Views,
}
