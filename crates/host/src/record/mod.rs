//! Recording a program as it runs, by what the host allows; best first:
//!
//! | method | sees | needs |
//! |---|---|---|
//! | `perf` | calls, faults, times on a CPU, shootdowns with sender and victim | tracepoints: root, or `CAP_PERFMON`, and tracefs |
//! | `ptrace` | calls; faults by a software event, where that is allowed | nothing, of one's own programs |
//! | `strace` | calls | strace |
//!
//! The program runs as it would, a little slower by perf, many times slower by ptrace where it makes many calls.

mod child;
mod interrupts;
mod perf;
mod proc;
mod ptrace;
mod strace;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use quietmm_workloads::trace::recording::{About, Shootdowns, Sums};

use crate::assemble::{Assembled, Assembly, Oddities, Strangers};
use crate::write::{self, Writer};
pub use child::Ended;

/// How a program is recorded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Method {
    /// Perf events: tracepoints.
    Perf,
    /// A tracer of our own.
    Ptrace,
    /// The program strace.
    Strace,
}

impl Method {
    /// Best first.
    pub const ALL: [Method; 3] = [Method::Perf, Method::Ptrace, Method::Strace];

    /// Its name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Method::Perf => "perf",
            Method::Ptrace => "ptrace",
            Method::Strace => "strace",
        }
    }

    /// How it is called in a recording.
    const fn words(self) -> &'static str {
        match self {
            Method::Perf => "perf events: tracepoints of system calls, page faults, TLB flushes",
            Method::Ptrace => "ptrace",
            Method::Strace => "strace -f",
        }
    }
}

/// What is recorded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum What {
    /// A command that is started for it: the program and its arguments.
    Command(Vec<std::ffi::OsString>),
    /// A process that runs.
    Process(i32),
}

/// What to record, and how.
#[derive(Clone, Debug)]
pub struct Options {
    /// What.
    pub what: What,
    /// How; the best that works, if nothing is said.
    pub method: Option<Method>,
    /// For so long at most.
    pub at_most: Option<Duration>,
    /// Where the recording goes.
    pub out: PathBuf,
}

/// Something that could not be had, and the one command that allows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Missing {
    /// What.
    pub what: String,
    /// The command; empty if there is none.
    pub command: String,
}

impl Missing {
    fn new(what: impl Into<String>, command: impl Into<String>) -> Missing {
        Missing { what: what.into(), command: command.into() }
    }
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        if self.command.is_empty() { Ok(()) } else { write!(f, "; this allows it: {}", self.command) }
    }
}

/// A recording that was made.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// How.
    pub method: Method,
    /// What could not be had.
    pub missing: Vec<Missing>,
    /// What is in it.
    pub sums: Sums,
    /// Nanoseconds.
    pub duration: u64,
    /// Events that were lost.
    pub lost: u64,
    /// What the kernel counted.
    pub received: Shootdowns,
    /// What could not be made sense of.
    pub odd: Oddities,
    /// How the program ended, if it did.
    pub ended: Option<Ended>,
}

/// Why there is no recording.
#[derive(Debug)]
pub enum RecordError {
    /// No method that was asked for works here: each with what it lacks.
    NotAllowed(Vec<(Method, Missing)>),
    /// The program cannot be started, or the process is not there.
    Program(String),
    /// The recording cannot be written where it was to be.
    Output(io::Error),
    /// Something else failed.
    Io(io::Error),
}

impl RecordError {
    fn lacks(method: Method, what: impl Into<String>, command: impl Into<String>) -> RecordError {
        RecordError::NotAllowed(vec![(method, Missing::new(what, command))])
    }
}

impl fmt::Display for RecordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RecordError::NotAllowed(all) => {
                f.write_str("the program cannot be recorded")?;
                all.iter().try_for_each(|(method, missing)| write!(f, "; {}: {missing}", method.name()))
            }
            RecordError::Program(why) => f.write_str(why),
            RecordError::Output(error) | RecordError::Io(error) => write!(f, "{error}"),
        }
    }
}

impl std::error::Error for RecordError {}

impl From<io::Error> for RecordError {
    fn from(error: io::Error) -> Self {
        RecordError::Io(error)
    }
}

/// Asked now and then: whether the recording should end.
pub type Stop = dyn Fn() -> bool;

/// The one command after which whoever asks may use tracepoints, until the next boot. Others than owner and group may not read the
/// files of tracefs, whatever its folder allows.
fn allow() -> String {
    // SAFETY: a call without arguments that cannot fail.
    let group = unsafe { libc::getgid() };
    format!(
        "sudo sh -c 'mount -o remount,mode=750,gid={group} /sys/kernel/tracing && sysctl kernel.perf_event_paranoid=-1'"
    )
}

/// What a method has of its own to say.
struct Told {
    assembled: Assembled<Writer>,
    missing: Vec<Missing>,
    faults: bool,
    times: bool,
    shootdowns: bool,
    ended: Option<Ended>,
}

/// The recording on its way, and what it is about.
struct Session<'a> {
    options: &'a Options,
    stop: &'a Stop,
    program: String,
    command: String,
    cpus: u16,
    began: Instant,
}

impl Session<'_> {
    fn about(&self, method: Method) -> About<'_> {
        About {
            program: &self.program,
            command: &self.command,
            method: method.words(),
            faults: false,
            bounded: false,
            times: false,
            shootdowns: false,
            cpus: self.cpus,
            duration: 0,
            lost: 0,
            received: Shootdowns::default(),
        }
    }

    fn assembly(&self, method: Method, switches: bool) -> io::Result<Assembly<Writer>> {
        let writer = Writer::begin(&self.options.out, &self.about(method))?;
        Ok(Assembly::new(writer, self.cpus, Strangers::Leave, switches))
    }

    /// Whether it is time to end.
    fn is_over(&self) -> bool {
        (self.stop)() || self.options.at_most.is_some_and(|most| self.began.elapsed() >= most)
    }
}

/// Records. Blocks until the program has ended, the time is over, or `stop` says so.
///
/// # Errors
/// See [`RecordError`]. There is no file then.
pub fn record(options: &Options, stop: &Stop) -> Result<Recorded, RecordError> {
    let (program, command) = described(&options.what)?;
    // Nothing runs whose recording would be lost.
    write::can(&options.out).map_err(RecordError::Output)?;
    let cpus = proc::possible_cpus();
    let session = Session { options, stop, program, command, cpus, began: Instant::now() };
    let methods = options.method.map_or(Method::ALL.to_vec(), |method| vec![method]);
    let mut refused = Vec::new();
    for method in methods {
        let before = interrupts::shootdowns();
        let told = match method {
            Method::Perf => perf::record(&session),
            Method::Ptrace => ptrace::record(&session),
            Method::Strace => strace::record(&session),
        };
        match told {
            Ok(told) => {
                let after = interrupts::shootdowns();
                let machine = before.zip(after).map(|(before, after)| after.saturating_sub(before));
                return finish(&session, method, told, machine, refused);
            }
            Err(RecordError::NotAllowed(why)) => refused.extend(why),
            Err(error) => return Err(error),
        }
    }
    Err(RecordError::NotAllowed(refused))
}

fn finish(
    session: &Session<'_>,
    method: Method,
    told: Told,
    machine: Option<u64>,
    refused: Vec<(Method, Missing)>,
) -> Result<Recorded, RecordError> {
    let Told { assembled, mut missing, faults, times, shootdowns, ended } = told;
    missing.extend(refused.into_iter().map(|(method, missing)| {
        Missing::new(format!("{} was not used: {}", method.name(), missing.what), missing.command)
    }));
    let received = Shootdowns { machine, program: shootdowns.then_some(assembled.shootdowns) };
    let bounded = ended.is_none() || matches!(session.options.what, What::Process(_));
    let (duration, lost) = (assembled.duration, assembled.lost);
    let about =
        About { faults, bounded, times, shootdowns, duration, lost, received, ..session.about(method) };
    let sums = assembled.sink.finish(&about)?;
    Ok(Recorded { method, missing, sums, duration, lost, received, odd: assembled.odd, ended })
}

/// What is recorded, and its command line.
fn described(what: &What) -> Result<(String, String), RecordError> {
    match what {
        What::Command(words) => {
            let words: Vec<String> = words.iter().map(|word| word.to_string_lossy().into_owned()).collect();
            let first = words.first().ok_or_else(|| RecordError::Program("no command to record".into()))?;
            let name = Path::new(first).file_name().map(|name| name.to_string_lossy().into_owned());
            Ok((shortened(name.unwrap_or_else(|| first.clone())), shortened(words.join(" "))))
        }
        What::Process(process) => {
            let gone = || RecordError::Program(format!("there is no process {process}, or it is not yours"));
            Ok((shortened(proc::name(*process).ok_or_else(gone)?), shortened(proc::command(*process))))
        }
    }
}

/// As long as a header takes it.
fn shortened(mut text: String) -> String {
    let mut most = 4096.min(text.len());
    while !text.is_char_boundary(most) {
        most -= 1;
    }
    text.truncate(most);
    text
}

#[cfg(test)]
mod tests {
    #[test]
    fn what_allows_tracepoints_lets_the_own_group_read_them() {
        // SAFETY: a call without arguments that cannot fail.
        let group = unsafe { libc::getgid() };
        assert!(super::allow().contains(&format!("gid={group} /sys/kernel/tracing")), "{}", super::allow());
    }
}
