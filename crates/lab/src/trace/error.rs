//! What can go wrong, in one line each: `FILE:LINE: what; what would be right`.

use std::fmt;
use std::io;
use std::path::PathBuf;

use quietmm_workloads::trace::{EncodeError, Fault, TraceError};

/// Why nothing was imported. Nothing has been written then.
#[derive(Debug)]
#[non_exhaustive]
pub enum ImportError {
    /// An option is out of range.
    Option {
        /// Its name on the command line.
        name: &'static str,
        /// What would be right.
        right: &'static str,
    },
    /// The input cannot be read (line 0: not opened).
    Read {
        /// Name of the input.
        source: String,
        /// The line that was reached.
        line: u64,
        /// The system's reason.
        error: io::Error,
    },
    /// The last line has no line feed.
    Cut {
        /// Name of the input.
        source: String,
        /// The last line.
        line: u64,
        /// The length of the input in bytes.
        byte: u64,
    },
    /// There is no access in the input.
    NoAccess {
        /// Name of the input.
        source: String,
        /// The line that was reached.
        line: u64,
        /// Accesses that the options left out.
        left_out: u64,
    },
    /// Too many lines are neither accesses nor valgrind's own.
    Foreign {
        /// Name of the input.
        source: String,
        /// The first such line.
        line: u64,
        /// How many there are.
        foreign: u64,
        /// Of how many lines.
        lines: u64,
        /// The share that is accepted.
        percent: u32,
    },
    /// The program touches more pages than the importer holds.
    TooManyPages {
        /// Name of the input.
        source: String,
        /// The line that was reached.
        line: u64,
        /// The bound.
        most: usize,
    },
    /// The trace has more records than the importer holds.
    TooManyRecords {
        /// Name of the input.
        source: String,
        /// The line that was reached.
        line: u64,
        /// The bound.
        most: usize,
    },
    /// The trace would be larger than any that is read.
    TooLarge {
        /// Name of the input.
        source: String,
        /// The line that was reached.
        line: u64,
        /// The bound, in bytes.
        most: u64,
    },
    /// A line does not end.
    Endless {
        /// Name of the input.
        source: String,
        /// The line.
        line: u64,
        /// How far it was read, in bytes.
        most: u64,
    },
    /// The pages lie too far apart, even compacted.
    Span {
        /// Name of the input.
        source: String,
        /// The line that was reached.
        line: u64,
        /// The span that would be needed, in pages.
        span: u64,
    },
    /// A text does not fit into the header.
    Encode {
        /// Name of the input.
        source: String,
        /// What does not fit.
        error: EncodeError,
    },
    /// What was made is no sound trace: a mistake of the importer.
    Unsound {
        /// Name of the input.
        source: String,
        /// What is wrong with it.
        error: TraceError,
    },
    /// The trace cannot be written.
    Write {
        /// Where.
        path: PathBuf,
        /// The system's reason.
        error: io::Error,
    },
}

impl fmt::Display for ImportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Option { name, right } => write!(f, "{name}: out of range; {right}"),
            Self::Read { source, line: 0, error } => {
                write!(f, "{source}: {error}; a readable file or '-' is needed")
            }
            Self::Read { source, line, error } => {
                write!(f, "{source}:{line}: {error}; the input must be readable to its end")
            }
            Self::Cut { source, line, byte } => write!(
                f,
                "{source}:{line}: the line is cut at byte {byte}, the end of the input; each line should end with a line \
                 feed: record again, or stop before it with --limit"
            ),
            Self::NoAccess { source, line, left_out: 0 } => write!(
                f,
                "{source}:{line}: no access in {line} lines; the output of 'valgrind --tool=lackey --trace-mem=yes \
                 PROGRAM' is expected, lines such as ' L 04222c50,8', or of `perf script`, ftrace or `strace -f -ttt -T`"
            ),
            Self::NoAccess { source, line, left_out } => write!(
                f,
                "{source}:{line}: all {left_out} accesses are left out; a smaller --skip or no --no-fetch would leave some"
            ),
            Self::Foreign { source, line, foreign, lines, percent } => write!(
                f,
                "{source}:{line}: the first of {foreign} foreign lines among {lines}; at most {percent}% are accepted: keep the \
                 program's output apart (valgrind --log-file=FILE) or raise --foreign"
            ),
            Self::TooManyPages { source, line, most } => {
                write!(
                    f,
                    "{source}:{line}: more than {most} distinct pages; a shorter recording (--limit) is needed"
                )
            }
            Self::TooManyRecords { source, line, most } => write!(
                f,
                "{source}:{line}: more than {most} records; a shorter recording (--limit) or a larger --window is needed"
            ),
            Self::TooLarge { source, line, most } => write!(
                f,
                "{source}:{line}: the trace would have more than {most} bytes; a shorter recording (--limit) or a larger \
                 --window is needed"
            ),
            Self::Endless { source, line, most } => write!(
                f,
                "{source}:{line}: a line of more than {most} bytes; the output of 'valgrind --tool=lackey --trace-mem=yes \
                 PROGRAM' is expected, in short lines"
            ),
            Self::Span { source, line, span } => write!(
                f,
                "{source}:{line}: the pages span {span} pages, even compacted; at most 2^32 are possible: use --limit"
            ),
            Self::Encode { source, error } => {
                write!(f, "{source}: {error}; give a shorter --program or --command")
            }
            Self::Unsound { source, error } => {
                write!(
                    f,
                    "{source}: the trace made of it is unsound ({error}); this is a bug of quietmm, please report it"
                )
            }
            Self::Write { path, error } => {
                write!(f, "{}: {error}; the directory must exist and be writable", path.display())
            }
        }
    }
}

impl std::error::Error for ImportError {}

/// Why a trace cannot be shown.
#[derive(Debug)]
#[non_exhaustive]
pub enum ShowError {
    /// The file cannot be read.
    Read {
        /// Which.
        path: PathBuf,
        /// The system's reason.
        error: io::Error,
    },
    /// The file is not a trace, or a damaged one.
    Trace {
        /// Which.
        path: PathBuf,
        /// What is wrong.
        error: TraceError,
    },
    /// The file is larger than any trace.
    TooLarge {
        /// Which.
        path: PathBuf,
        /// The bound, in bytes.
        most: u64,
    },
    /// The header's number of distinct pages is wrong. Only counting, which needs memory, tells.
    Pages {
        /// Which.
        path: PathBuf,
        /// What the header says.
        header: u64,
        /// What the records touch.
        body: u64,
    },
}

impl fmt::Display for ShowError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read { path, error } => {
                write!(f, "{}: {error}; a readable .qtrace file is needed", path.display())
            }
            Self::Trace { path, error } if error.fault == Fault::NotATrace => {
                write!(f, "{}: {error}; `quietmm trace import` makes one of a text", path.display())
            }
            Self::Trace { path, error } => write!(f, "{}: {error}", path.display()),
            Self::TooLarge { path, most } => write!(
                f,
                "{}: more than {most} bytes; record less of the program, or fold it with a larger --window",
                path.display()
            ),
            Self::Pages { path, header, body } => write!(
                f,
                "{}: byte 64: the header says {header} distinct pages; the records touch {body}",
                path.display()
            ),
        }
    }
}

impl std::error::Error for ShowError {}
