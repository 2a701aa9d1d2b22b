//! The laboratory: `quietmm` compares policies of the memory manager on the same work, on machines that are
//! simulated to the last IPI, and on machines that boot.
//!
//! The way through: [`cli`] reads the command line, [`study`] holds it against what exists and runs it, each run where its
//! [`backend`] says, and [`show`] renders what came of it as text, JSON or CSV, [`report`] as
//! a page to look at, and [`timeline`] as a trace to walk through. [`process`] is the terminal, the
//! threads and Ctrl-C. [`host`] records programs and measures, [`traces`] imports and shows recordings. [`check`] looks for schedules
//! that break an invariant. [`sweep`] runs grids of runs.
//! [`demo`] is what `make run` shows.

mod backend;
mod check;
mod cli;
mod cost;
mod demo;
mod explain;
mod host;
mod list;
mod process;
mod report;
mod shipped;
mod show;
mod study;
mod sweep;
mod timeline;
mod trace;
mod traces;

use std::process::ExitCode;

use cli::Command;
use process::ending::{self, Ending, Failure};
use process::output::Output;
use study::file::Targets;
use study::{Ask, Study};

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
    let ask = match command {
        Command::List(args) => return list::list(args, output),
        Command::Explain(args) => return explain::explain(args, output),
        Command::Record(args) => return host::record(args, output),
        Command::Machine { command } => return host::machine(command, output),
        Command::Trace { command } => return traces::obey(command, output),
        Command::Check(args) => return check::check(args, output),
        Command::Sweep(args) => return sweep::sweep(args, output),
        Command::Demo(args) => return demo::demo(args, output),
        Command::Completions(args) => return cli::completions(args, output),
        Command::Man(args) => return cli::man(args, output),
        Command::Run(args) => Ask::run(args),
        Command::Compare(args) => Ask::compare(args),
        Command::Boot(args) => Ask::boot(args),
    };
    let study = Study::of(&ask)?;
    let files = Targets::of(&ask)?;
    show::run(&study, ask.form, ask.common, &files, output)
}
