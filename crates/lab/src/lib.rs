//! The laboratory: `quietmm` compares policies of the memory manager on the same work, on machines that are
//! simulated to the last IPI, and on machines that boot.
//!
//! The way through: [`cli`] reads the command line, [`study`] holds it against what exists and runs it, each run where its
//! [`backend`] says, and [`show`] renders what came of it as text, JSON or CSV, [`report`] as
//! a page to look at, and [`timeline`] as a trace to walk through. [`process`] is the terminal, the
//! threads and Ctrl-C. [`host`] records programs and measures, [`traces`] imports and shows recordings. [`check`] looks for schedules
//! that break an invariant. [`sweep`] runs grids of runs.
//! [`program`] boots programs of Linux. [`demo`] is what `make run` shows.
//!
//! What is public is the command, whole ([`main`]) and inside another program ([`obey`]), the points of a sweep one by one ([`Sweep`]),
//! its file line by line ([`SweepReader`]), lines with a checksum ([`sealed`]), and what figures mean ([`figures`]). So another program comes to what the command prints, and to nothing else.

// The way through is for those who change it, and what they read has these pages.
#![allow(rustdoc::private_intra_doc_links)]

mod backend;
mod check;
mod cli;
mod cost;
mod demo;
mod explain;
mod host;
mod list;
mod process;
mod program;
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
use process::caller;
use process::ending::{self, Ending, Failure};
use process::output::Output;
use study::file::Targets;
use study::{Ask, Study};

pub use process::caller::Caller;
pub use process::sealed::{opened, sealed};
pub use quietmm_sim::figures;
pub use sweep::embedded::Sweep;
pub use sweep::reader::SweepReader;

/// Of which revision this build is: see `build.rs`.
pub const REVISION: &str = env!("QUIETMM_REVISION");

/// How a command ended inside another program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The exit code: 0 done; 1 a run failed, or something was found that must never be; 2 what was asked for cannot be; 130 stopped.
    pub code: u8,
    /// What the command prints.
    pub output: Vec<u8>,
    /// What it says on standard error: a line each, without its name.
    pub complaints: Vec<String>,
}

/// The command, with the command line of this process.
pub fn main() -> ExitCode {
    let command = match cli::parse() {
        Ok(command) => command,
        Err(code) => return code,
    };
    let mut output = Output::stdout();
    let ended = do_it(&command, &mut output).and_then(|ending| output.flush().map(|()| ending));
    ending::exit_code(ended)
}

/// What the command does with these words, its name not among them. Nothing is printed, no signal is listened to, and nothing of the process is changed
/// but the files that are asked for. Runs on this thread, and on others that end before it does.
#[must_use]
pub fn obey(words: &[String], caller: &Caller) -> Answer {
    caller::serve(Some(caller.clone()), || match cli::read(words) {
        Ok(command) => answered(|output| do_it(&command, output)),
        Err(unread) => {
            Answer { code: unread.code, output: unread.help.into_bytes(), complaints: unread.complaints }
        }
    })
}

/// What is done with an output that is kept.
fn answered(work: impl FnOnce(&mut Output) -> Result<Ending, Failure>) -> Answer {
    let mut output = Output::kept();
    let (code, complaints) = ending::said(work(&mut output));
    Answer { code, output: output.taken(), complaints }
}

fn do_it(command: &Command, output: &mut Output) -> Result<Ending, Failure> {
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
        Command::Boot(args) if args.program.is_some() => return program::boot(args, output),
        Command::Boot(args) => Ask::boot(args),
    };
    let study = Study::of(&ask)?;
    let files = Targets::of(&ask)?;
    show::run(&study, ask.form, ask.common, &files, output)
}
