//! Captures that others made, as text: `perf script`, ftrace's `trace`, `strace -f -ttt`. Read line by line, so in bounded memory
//! whatever their length.
//!
//! Captures are cut, lose events and have clocks that jump. What cannot be used is left out, counted, and told with the line
//! on which it was first met; only a capture of which nothing can be used is an error.

mod events;
mod fields;
mod stack;
mod strace;

use std::fmt;
use std::io::{self, BufRead};
use std::path::Path;

use quietmm_workloads::trace::MAGIC;
use quietmm_workloads::trace::recording::{About, Shootdowns, Sums};

use crate::assemble::{Assembled, Assembly, CROWDED, NOWHERE, OPAQUE, Oddities, Strangers, UNSENT};
use crate::lines::{ENDLESS, Lines};
use crate::summary::several;
use crate::write::Writer;

/// Most CPUs that a capture may show.
const MOST_CPUS: u16 = 4096;
/// An input that has shown nothing that is known in so many lines is of another kind; its other gigabytes are not read.
const LINES_BEFORE_GIVING_UP: u64 = 100_000;
/// So much of a line is shown where it is told.
const SHOWN: usize = 60;

/// What kind of text it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// `perf script`, or ftrace's `trace`: a line for each event, with its CPU in brackets.
    Events,
    /// `strace -f -ttt`: a line for each call.
    Strace,
}

impl Form {
    /// What the first lines of an input look like; nothing if neither.
    #[must_use]
    pub fn of(head: &[u8]) -> Option<Form> {
        let lines = || head.split(|&byte| byte == b'\n').map(|line| &line[..line.len().min(4096)]);
        let text = |line: &[u8]| String::from_utf8_lossy(line).into_owned();
        let events = lines().filter(|line| fields::Line::read(&text(line)).is_some()).count();
        let calls = lines().filter(|line| strace::looks_like(&text(line))).count();
        match (events, calls) {
            (0, 0) => None,
            (events, calls) if calls > events => Some(Form::Strace),
            _ => Some(Form::Events),
        }
    }
}

/// What an input is that nothing can be imported from, and what would be right; nothing if it may be text.
#[must_use]
pub fn unfit(head: &[u8]) -> Option<&'static str> {
    const KINDS: [(&[u8], &str); 7] = [
        (b"\x1f\x8b", "compressed by gzip; `gzip -dc FILE | quietmm trace import - -o OUT.qtrace` takes it"),
        (
            b"\x28\xb5\x2f\xfd",
            "compressed by zstd; `zstd -dc FILE | quietmm trace import - -o OUT.qtrace` takes it",
        ),
        (b"\xfd7zXZ\0", "compressed by xz; `xz -dc FILE | quietmm trace import - -o OUT.qtrace` takes it"),
        (b"BZh", "compressed by bzip2; `bzip2 -dc FILE | quietmm trace import - -o OUT.qtrace` takes it"),
        (b"PERFILE2", "a file of `perf record`; the text that `perf script -i FILE` prints is needed"),
        (
            b"\x17\x08\x44tracing",
            "a file of trace-cmd; the text that `trace-cmd report FILE` prints is needed",
        ),
        (&MAGIC, "a trace already; `quietmm trace show` and --trace take it as it is"),
    ];
    if let Some((_, what)) = KINDS.iter().find(|(begins, _)| head.starts_with(begins)) {
        return Some(what);
    }
    let text = |line: &[u8]| String::from_utf8_lossy(&line[..line.len().min(4096)]).into_owned();
    let (mut lines, mut calls) = (0, 0);
    for line in head.split(|&byte| byte == b'\n').filter(|line| !line.is_empty()).take(1000) {
        lines += 1;
        calls += usize::from(strace::has_other_times(&text(line)));
    }
    // A program that lackey watches may print one.
    (2 * calls > lines)
        .then_some("strace's lines, but without the time of day in seconds; `strace -f -ttt -T -y` is needed")
}

/// What to import.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// What the input is called in messages.
    pub source: String,
    /// What was recorded; otherwise what the capture says.
    pub program: Option<String>,
    /// Its command line.
    pub command: Option<String>,
}

/// What was met on the way: where first, how often.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Note {
    /// The line, from 1.
    pub line: u64,
    /// How often.
    pub count: u64,
    /// What.
    pub what: String,
}

/// What came of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Imported {
    /// The kind of text.
    pub form: Form,
    /// Lines.
    pub lines: u64,
    /// The recording.
    pub sums: Sums,
    /// Nanoseconds from its first event to its last.
    pub duration: u64,
    /// Events that are missing, as the capture says.
    pub lost: u64,
    /// Flush requests that CPUs received for the program.
    pub shootdowns: u64,
    /// What was met.
    pub notes: Vec<Note>,
    source: String,
}

impl fmt::Display for Imported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} of {} in {:.3} s, from {}; {} lost; {} received",
            several(self.sums.events, "event"),
            several(self.sums.threads.into(), "thread"),
            self.duration as f64 / 1e9,
            several(self.lines, "line"),
            self.lost,
            several(self.shootdowns, "shootdown")
        )?;
        for Note { line, count, what } in &self.notes {
            let times = if *count == 1 { String::new() } else { format!(" ({count} times, first here)") };
            write!(f, "\n{}:{line}: {what}{times}", self.source)?;
        }
        Ok(())
    }
}

/// Why there is no recording.
#[derive(Debug)]
pub enum ImportError {
    /// The input cannot be read.
    Read {
        /// Its name.
        source: String,
        /// The line that was reached.
        line: u64,
        /// Why.
        error: io::Error,
    },
    /// A line does not end.
    Endless {
        /// The input's name.
        source: String,
        /// Which line.
        line: u64,
    },
    /// Nothing in it is known.
    Nothing {
        /// The input's name.
        source: String,
        /// Lines that were read.
        lines: u64,
    },
    /// The recording cannot be written.
    Write {
        /// Its path.
        path: String,
        /// Why.
        error: io::Error,
    },
}

impl fmt::Display for ImportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ImportError::Read { source, line, error } => write!(f, "{source}:{line}: {error}"),
            ImportError::Endless { source, line } => {
                write!(
                    f,
                    "{source}:{line}: a line of more than {} MiB; a text with lines is needed",
                    ENDLESS >> 20
                )
            }
            ImportError::Nothing { source, lines } => write!(
                f,
                "{source}:{lines}: no event that is known up to here; the output of `perf script`, ftrace's `trace`, or \
                 `strace -f -ttt -T -e trace=memory,process` is needed"
            ),
            ImportError::Write { path, error } => write!(f, "{path}: {error}"),
        }
    }
}

impl std::error::Error for ImportError {}

/// What was met so far.
#[derive(Default)]
struct Notes {
    notes: Vec<Note>,
    /// What is of further kinds.
    rest: Option<Note>,
    odd: Oddities,
}

impl Notes {
    /// Kinds of notes that are kept apart; a capture may have any number of unknown events.
    const MOST: usize = 40;

    fn add(&mut self, line: u64, what: &str) {
        if let Some(note) = self.notes.iter_mut().find(|note| note.what == what) {
            note.count += 1;
        } else if self.notes.len() < Self::MOST {
            self.notes.push(Note { line, count: 1, what: what.to_owned() });
        } else if let Some(rest) = &mut self.rest {
            rest.count += 1;
        } else {
            self.rest =
                Some(Note { line, count: 1, what: "lines of still other kinds; left out".to_owned() });
        }
    }

    fn add_odd(&mut self, line: u64, odd: Oddities) {
        let old = std::mem::replace(&mut self.odd, odd);
        if old == odd {
            return;
        }
        for (before, after, what) in [
            (old.back_in_time, odd.back_in_time, "the clock jumps back; taken for the latest time before"),
            (
                old.far_ahead,
                odd.far_ahead,
                "the clock jumps ahead by more than a day; taken for the latest time before",
            ),
            (old.halves, odd.halves, "a call without its beginning or end; left out"),
            (old.again, odd.again, "a thread's number begins again, and its end was not seen"),
            (
                old.strangers,
                odd.strangers,
                "a thread that nobody is seen to make; taken for one of the program's",
            ),
            (old.opaque, odd.opaque, OPAQUE),
            (old.crowded, odd.crowded, CROWDED),
            (old.nowhere, odd.nowhere, NOWHERE),
            (old.unsent, odd.unsent, UNSENT),
        ] {
            (before..after).for_each(|_| self.add(line, what));
        }
    }
}

/// What reads lines of one form.
trait Reader {
    /// Takes a line in. Returns whether anything in it was known.
    fn line(
        &mut self,
        number: u64,
        text: &str,
        assembly: &mut Assembly<Writer>,
        notes: &mut Notes,
    ) -> io::Result<bool>;
    /// There are no more. Returns whether anything was known in a line that waited for this.
    fn end(&mut self, assembly: &mut Assembly<Writer>, notes: &mut Notes) -> io::Result<bool>;
    /// What was recorded, as far as it is known from the lines.
    fn program(&self) -> &str;
    /// CPUs that were seen.
    fn cpus(&self) -> u16;
    /// Whether page faults, times on a CPU, and shootdowns were among the events.
    fn kinds(&self) -> (bool, bool, bool);
}

/// Reads a capture and writes a recording to `out`, which is as it was if that fails.
///
/// # Errors
/// See [`ImportError`].
pub fn import(
    input: &mut dyn BufRead,
    form: Form,
    options: &Options,
    out: &Path,
) -> Result<Imported, ImportError> {
    let source = options.source.clone();
    let write_error = |error| ImportError::Write { path: out.display().to_string(), error };
    let method = match form {
        Form::Events => "imported from events as text (perf script or ftrace)",
        Form::Strace => "imported from strace",
    };
    // The length of the header is known only with its texts, so they are asked for, or empty.
    let program = options.program.clone().unwrap_or_default();
    let command = options.command.clone().unwrap_or_default();
    let about = About {
        program: &program,
        command: &command,
        method,
        faults: false,
        bounded: false,
        times: false,
        shootdowns: false,
        cpus: MOST_CPUS,
        duration: 0,
        lost: 0,
        received: Shootdowns::default(),
    };
    let strangers = match form {
        Form::Events => Strangers::Leave,
        Form::Strace => Strangers::Belong,
    };
    let writer = Writer::begin(out, &about).map_err(write_error)?;
    let read = assemble(input, form, &source, Assembly::new(writer, MOST_CPUS, strangers, false));
    let read = read.map_err(|error| match error {
        ImportError::Write { error, .. } => write_error(error),
        error => error,
    })?;
    let Read { assembled, lines, mut notes, program: seems, cpus, kinds: (faults, times, shootdowns) } = read;
    if options.program.is_none() && !seems.is_empty() {
        let what =
            format!("the program seems to be {}; --program NAME says so in the recording", shown(&seems));
        notes.push(Note { line: lines, count: 1, what });
    }
    let (duration, lost) = (assembled.duration, assembled.lost);
    let received = Shootdowns { machine: None, program: shootdowns.then_some(assembled.shootdowns) };
    let about = About { faults, times, shootdowns, cpus: cpus.max(1), duration, lost, received, ..about };
    let sums = assembled.sink.finish(&about).map_err(write_error)?;
    Ok(Imported { form, lines, sums, duration, lost, shootdowns: assembled.shootdowns, notes, source })
}

/// What was read of a capture.
pub(crate) struct Read {
    pub assembled: Assembled<Writer>,
    pub lines: u64,
    pub notes: Vec<Note>,
    pub program: String,
    pub cpus: u16,
    pub kinds: (bool, bool, bool),
}

/// Reads a capture into a recording under way.
pub(crate) fn assemble(
    input: &mut dyn BufRead,
    form: Form,
    source: &str,
    mut assembly: Assembly<Writer>,
) -> Result<Read, ImportError> {
    let write_error = |error| ImportError::Write { path: "the recording".to_owned(), error };
    let mut reader: Box<dyn Reader> = match form {
        Form::Events => Box::<events::Events>::default(),
        Form::Strace => Box::<strace::Strace>::default(),
    };
    let mut notes = Notes::default();
    let mut lines = Lines::new(input);
    let (mut known, mut number) = (0u64, 0u64);
    loop {
        let text = match lines.read() {
            Ok(Some(text)) => text,
            Ok(None) => break,
            Err(error) => {
                return Err(ImportError::Read { source: source.to_owned(), line: number + 1, error });
            }
        };
        number += 1;
        if text.length > ENDLESS {
            return Err(ImportError::Endless { source: source.to_owned(), line: number });
        }
        if !text.complete {
            notes.add(number, "the last line is cut; left out");
            break;
        }
        let line = String::from_utf8_lossy(text.bytes);
        known += u64::from(reader.line(number, &line, &mut assembly, &mut notes).map_err(write_error)?);
        notes.add_odd(number, assembly.odd());
        if known == 0 && number >= LINES_BEFORE_GIVING_UP {
            break;
        }
    }
    known += u64::from(reader.end(&mut assembly, &mut notes).map_err(write_error)?);
    let assembled = assembly.finish();
    notes.add_odd(number, assembled.odd);
    if known == 0 || assembled.sink.is_empty() {
        return Err(ImportError::Nothing { source: source.to_owned(), lines: number });
    }
    let (program, cpus, kinds) = (reader.program().to_owned(), reader.cpus(), reader.kinds());
    notes.notes.extend(notes.rest);
    Ok(Read { assembled, lines: number, notes: notes.notes, program, cpus, kinds })
}

/// A text as it is shown in a message: short, without what a terminal would act on.
fn shown(text: &str) -> String {
    let plain = text.trim().chars().map(|c| if c.is_control() { '?' } else { c });
    let mut short: String = plain.take(SHOWN).collect();
    if text.trim().chars().count() > SHOWN {
        short.push_str("...");
    }
    short
}
