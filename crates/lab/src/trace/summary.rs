//! What an import has done, in one line.

use std::fmt;

use serde::Serialize;

/// What was imported.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// Lines read.
    pub lines: u64,
    /// Lines of valgrind itself.
    pub valgrind_lines: u64,
    /// Lines that were neither accesses nor valgrind's.
    pub foreign_lines: u64,
    /// The first of them.
    pub first_foreign: Option<u64>,
    /// Accesses in the trace.
    pub accesses: u64,
    /// Reads among them.
    pub reads: u64,
    /// Writes among them.
    pub writes: u64,
    /// Accesses left out by `skip` and without fetches.
    pub left_out: u64,
    /// Distinct pages.
    pub pages: u64,
    /// Span of the compacted address space, in pages.
    pub span: u64,
    /// Records.
    pub records: u64,
    /// Size of the file.
    pub bytes: u64,
    /// The program did more than was imported: a limit was reached, a start was skipped, a signal ended it, or
    /// valgrind's line with the exit code is missing.
    pub bounded: bool,
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} accesses ({} reads, {} writes) to {} pages in {} records, {} bytes; {} lines read, {} foreign{}",
            self.accesses,
            self.reads,
            self.writes,
            self.pages,
            self.records,
            self.bytes,
            self.lines,
            self.foreign_lines,
            if self.bounded { "; a part of the program's run" } else { "" },
        )
    }
}
