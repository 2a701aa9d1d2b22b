//! The laboratory: `quietmm` compares policies of the memory manager on the same work, on machines that are
//! simulated to the last IPI.
//!
//! The way through: [`cli`] reads the command line, [`plan`] holds it against what exists, [`measure`] runs
//! every policy with every seed on the host's cores ([`jobs`]), [`rows`] picks the figures, and [`text`] or
//! [`json`] prints them. [`traces`] imports and shows recorded
//! programs, [`host`] records them. [`metal`] boots the same work on an emulated machine. [`check`] looks for schedules that break an invariant.
//! [`demo`] is what `make run` shows.

mod check;
mod cli;
mod compare;
mod cost;
mod demo;
mod ending;
mod figure;
mod gain;
mod host;
mod interrupt;
mod jobs;
mod json;
mod latencies;
mod list;
mod measure;
mod metal;
mod near;
mod output;
mod plain;
mod plan;
mod profile;
mod progress;
mod published;
mod recorded;
mod rows;
mod shipped;
mod table;
mod text;
mod trace;
mod traces;
mod verdict;
mod wrap;

use std::process::ExitCode;

use cli::Command;
use ending::{Ending, Failure};
use output::Output;

fn main() -> ExitCode {
    let command = match cli::parse() {
        Ok(command) => command,
        Err(code) => return code,
    };
    let mut output = Output::stdout();
    let ended = obey(&command, &mut output).and_then(|ending| output.flush().map(|()| ending));
    ending::exit_code(ended)
}

fn obey(command: &Command, output: &mut Output) -> Result<Ending, Failure> {
    match command {
        Command::List(args) => list::list(args, output),
        Command::Run(args) => compare::run(args, output),
        Command::Compare(args) => compare::compare(args, output),
        Command::Boot(args) => metal::boot(args, output),
        Command::Record(args) => host::record(args, output),
        Command::Machine { command } => host::machine(command, output),
        Command::Trace { command } => traces::obey(command, output),
        Command::Check(args) => check::check(args, output),
        Command::Demo(args) => demo::demo(args, output),
    }
}
