//! What can be wrong with a trace, and what would be right.

use core::fmt;

use super::header::{FIXED_BYTES, MAX_SPAN, RECORDING_VERSION, VERSION};

/// Why bytes are not a trace. Displays as one line: `byte 8: version 7; this build reads version 1`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceError {
    /// Offset of the first byte that is wrong, counted from 0. The length of the file, if bytes are missing.
    pub at: usize,
    /// What is wrong there.
    pub fault: Fault,
}

/// What is wrong with a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// The file does not begin as a trace does.
    NotATrace,
    /// The file ends too early.
    TooShort {
        /// The length it should have, at least.
        need: u64,
    },
    /// The file goes on behind its body.
    TooLong,
    /// Another version of the format.
    Version {
        /// The version in the file.
        found: u16,
    },
    /// A flag that this version does not know.
    Flags {
        /// The flags in the file.
        found: u16,
    },
    /// The header's checksum does not fit: the header was damaged.
    HeaderChecksum {
        /// The sum in the file.
        found: u64,
        /// The sum of what the file holds.
        computed: u64,
    },
    /// The body's checksum does not fit: the body was damaged.
    BodyChecksum {
        /// The sum in the header.
        found: u64,
        /// The sum of what the file holds.
        computed: u64,
    },
    /// The program's name or the command line is not UTF-8.
    Text,
    /// An impossible page size.
    PageBytes {
        /// The page size in the file.
        found: u32,
    },
    /// The span is larger than page numbers can say.
    Span {
        /// The span in the file, in pages.
        found: u64,
    },
    /// The number of distinct pages cannot be.
    Pages {
        /// The number in the file.
        found: u64,
        /// The smaller of span and records.
        most: u64,
    },
    /// The body ends within a record.
    RecordCut,
    /// An integer is longer than it need be, or than 64 bits.
    Integer,
    /// A record names a page outside the span.
    PageOutside {
        /// The span in the header, in pages.
        span: u64,
    },
    /// A count does not fit in 32 bits.
    Count,
    /// A total in the header is not what the body adds up to.
    Total {
        /// Which total.
        of: &'static str,
        /// What the header says.
        header: u64,
        /// What it adds up to.
        body: u64,
    },
    /// An event of a kind that there is not, or with bits that mean nothing.
    Event,
    /// An event names something that is not there yet.
    Unknown {
        /// What.
        of: &'static str,
    },
    /// A thread's number is too large.
    Thread,
    /// A CPU's number is too large, or there is none.
    Cpu,
    /// A range of pages is empty or ends beyond 64 bits of address.
    Pages64,
}

impl Fault {
    pub(super) const fn at(self, at: usize) -> TraceError {
        TraceError { at, fault: self }
    }
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "byte {}: {}", self.at, self.fault)
    }
}

impl core::error::Error for TraceError {}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::NotATrace => write!(f, "not a trace; a .qtrace file begins with the bytes 89 'QTRACE' 0a"),
            Self::TooShort { need } => {
                write!(f, "the file ends here; it needs {need} bytes (a header alone has {FIXED_BYTES})")
            }
            Self::TooLong => write!(f, "bytes behind the body; the file should end here"),
            Self::Version { found } => {
                write!(f, "version {found}; this build reads versions {VERSION} and {RECORDING_VERSION}")
            }
            Self::Flags { found } => {
                write!(
                    f,
                    "flags {found:#x}; version {VERSION} knows bits 0 and 1, version {RECORDING_VERSION} bits 0 to 3"
                )
            }
            Self::HeaderChecksum { found, computed } => {
                write!(
                    f,
                    "header checksum {found:016x}; the header adds up to {computed:016x}, so it was damaged"
                )
            }
            Self::BodyChecksum { found, computed } => {
                write!(
                    f,
                    "body checksum {found:016x}; the body adds up to {computed:016x}, so it was damaged"
                )
            }
            Self::Text => write!(f, "not UTF-8; the program and its command line are UTF-8 text"),
            Self::PageBytes { found } => write!(f, "pages of {found} bytes; a power of two is needed"),
            Self::Span { found } => write!(f, "a span of {found} pages; at most {MAX_SPAN} are possible"),
            Self::Pages { found, most } => write!(
                f,
                "{found} distinct pages; at most {most} (the smaller of span and records) are possible, and none \
                 only without records"
            ),
            Self::RecordCut => {
                write!(f, "the body ends within a record; a record ends with its last integer")
            }
            Self::Integer => write!(f, "a malformed integer; the shortest form of at most 64 bits is needed"),
            Self::PageOutside { span } => write!(f, "a page outside the span; pages 0 to below {span} exist"),
            Self::Count => write!(f, "a count of accesses above 32 bits; at most {} are possible", u32::MAX),
            Self::Total { of, header, body } => {
                write!(f, "the header says {header} {of}; the records add up to {body}")
            }
            Self::Event => {
                write!(f, "no event; its kind, and each of its bits, must be one that has a meaning")
            }
            Self::Unknown { of } => {
                write!(f, "an event names a {of} that is not there; what is named comes before")
            }
            Self::Thread => write!(f, "a thread's number above 32 bits"),
            Self::Cpu => write!(f, "a machine has 1 to 65,535 CPUs, counted from 0"),
            Self::Pages64 => write!(f, "a range of no pages, or beyond page 2^52; addresses have 64 bits"),
        }
    }
}
