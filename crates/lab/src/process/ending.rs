//! How the command ends, and the exit code that says so.

use std::io::{self, Write};
use std::process::ExitCode;

use crate::process::plain;

/// The exit code of a command that was stopped by Ctrl-C, as shells have it (128 + SIGINT).
pub const INTERRUPTED: u8 = 130;

/// The longest complaint, in characters: a name that was given may be longer than anybody wants to read again.
const LONGEST: usize = 1000;

/// An end with its results printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Everything ran, and nothing was wrong.
    Good,
    /// Memory was used after it was freed although no rule was broken: a bug, already printed.
    Stale,
    /// An invariant was broken although no rule was: a bug, already printed.
    Broken,
    /// A rule was broken and no schedule showed it, already printed.
    Missed,
    /// A file of a counterexample did not do what it says, already printed.
    Otherwise,
    /// Ctrl-C: what had finished has been printed.
    Interrupted,
    /// A program has ended with this code, already told.
    Program(u8),
}

impl Ending {
    /// The worse of two: what a sequence of runs ends with.
    pub fn worse(self, other: Ending) -> Ending {
        let rank = |ending| match ending {
            Ending::Good | Ending::Program(0) => 0,
            Ending::Stale | Ending::Broken | Ending::Missed | Ending::Otherwise | Ending::Program(_) => 1,
            Ending::Interrupted => 2,
        };
        if rank(other) > rank(self) { other } else { self }
    }
}

/// An end without results. A text is one line without the name of the command.
#[derive(Debug)]
pub enum Failure {
    /// What was asked for cannot be: exit 2.
    Input(String),
    /// The same, a line for each of the things that are wrong with a file: exit 2.
    Faults(Vec<String>),
    /// A run failed: exit 1.
    Run(String),
    /// Ctrl-C before any run had finished, so much of all of them being done: exit 130.
    Interrupted {
        /// Of all runs, in per cent.
        percent: u64,
    },
    /// Nobody reads any more (`quietmm ... | head`): a quiet end.
    Closed,
    /// Standard output cannot be written: exit 1.
    Output(io::Error),
}

/// Prints what is left to say on standard error, and returns the exit code.
pub fn exit_code(ended: Result<Ending, Failure>) -> ExitCode {
    let (code, lines) = said(ended);
    lines.iter().for_each(|line| note(line));
    ExitCode::from(code)
}

/// Says something on standard error that is no result.
pub fn note(line: &str) {
    // A closed standard error is nothing to fail for.
    let _ = writeln!(io::stderr(), "quietmm: {line}");
}

/// The exit code, and what is left to say: a line each.
pub fn said(ended: Result<Ending, Failure>) -> (u8, Vec<String>) {
    let (code, line) = match ended {
        Ok(Ending::Good) | Err(Failure::Closed) => (0, None),
        Ok(Ending::Stale) => {
            (1, Some("stale, lost or wrong data although no rule was broken: this is a bug".to_string()))
        }
        Ok(Ending::Broken) => {
            (1, Some("an invariant was broken although no rule was: this is a bug".to_string()))
        }
        Ok(Ending::Missed) => {
            (1, Some("a rule was broken, and no schedule that was tried shows it".to_string()))
        }
        Ok(Ending::Otherwise) => (1, Some("the file did not do what it says".to_string())),
        Ok(Ending::Interrupted) => (INTERRUPTED, None),
        Ok(Ending::Program(code)) => (code, None),
        Err(Failure::Input(line)) => (2, Some(line)),
        Err(Failure::Faults(lines)) => {
            return (2, lines.iter().map(|line| complaint(line)).collect());
        }
        Err(Failure::Run(line)) => (1, Some(line)),
        Err(Failure::Interrupted { percent }) => {
            let line = format!("interrupted; no run had finished, and {percent}% of all of them was done");
            (INTERRUPTED, Some(line))
        }
        Err(Failure::Output(error)) => (1, Some(format!("cannot write the output: {error}"))),
    };
    (code, line.iter().map(|line| complaint(line)).collect())
}

/// As it is told: in one line, and not longer than anybody reads.
pub fn complaint(line: &str) -> String {
    let line = line.split_whitespace().collect::<Vec<_>>().join(" ");
    plain::short(&plain::line(&line), LONGEST).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interruption_outranks_a_stale_access_outranks_success() {
        assert_eq!(Ending::Good.worse(Ending::Stale), Ending::Stale);
        assert_eq!(Ending::Stale.worse(Ending::Good), Ending::Stale);
        assert_eq!(Ending::Interrupted.worse(Ending::Stale), Ending::Interrupted);
    }
}
