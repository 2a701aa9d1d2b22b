//! What is in a trace, short enough to be pasted in a mail.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use quietmm_workloads::trace::{AnyTrace, FIXED_BYTES, Trace};
use serde::Serialize;

use crate::process::plain;

use super::counts::{Counts, ratio};
use super::error::ShowError;

/// What is in a trace.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Shown {
    /// What was recorded.
    pub program: String,
    /// Its command line.
    pub command: String,
    /// Instruction fetches are among the reads.
    pub fetches: bool,
    /// Only a part of the run was recorded.
    pub bounded: bool,
    /// Bytes in a page.
    pub page_bytes: u32,
    /// Most pages of an epoch.
    pub window: u32,
    /// Most accesses of an epoch.
    pub epoch: u32,
    /// Longest gap that was kept, in pages.
    pub gap: u32,
    /// Accesses.
    pub accesses: u64,
    /// Reads among them.
    pub reads: u64,
    /// Writes among them.
    pub writes: u64,
    /// Distinct pages.
    pub pages: u64,
    /// Of these, pages that are written at least once.
    pub pages_written: u64,
    /// Span of the compacted address space, in pages.
    pub span: u64,
    /// Aligned groups of `gap` pages that hold at least one: page tables of the lowest level.
    pub tables: u64,
    /// Records.
    pub records: u64,
    /// Size of the file.
    pub file_bytes: u64,
    /// Bytes of the body per record.
    pub bytes_per_record: f64,
    /// How many records stand for how many accesses.
    pub folded: Vec<Folded>,
    /// Distinct pages in each million accesses.
    pub working_set: WorkingSet,
    /// How the accesses gather on few pages.
    pub hottest: Vec<Hottest>,
}

/// Records that stand for `from` to `to` accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Folded {
    /// Fewest accesses.
    pub from: u64,
    /// Most accesses.
    pub to: u64,
    /// Records.
    pub records: u64,
}

/// Distinct pages in each slice of a trace. The last slice, if it is not full, counts only when it is the only one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct WorkingSet {
    /// Accesses in a slice.
    pub slice: u64,
    /// Slices.
    pub slices: u64,
    /// Pages in the smallest.
    pub least: u64,
    /// Pages on average, rounded down.
    pub mean: u64,
    /// Pages in the largest.
    pub most: u64,
}

/// The most accessed pages.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Hottest {
    /// Share of the pages, in percent.
    pub percent_of_pages: u64,
    /// How many these are, at least 1.
    pub pages: u64,
    /// Their share of the accesses, in percent.
    pub percent_of_accesses: f64,
}

/// The largest trace that is made and read, in bytes: it is held in memory as a whole.
pub(super) const MOST_BYTES: u64 = 1 << 30;

/// The bytes of a trace. A file that does not begin like one is not read further: it may be a recording of many
/// gigabytes that still has to be imported.
///
/// # Errors
/// The file cannot be read, is none, or is larger than any trace. What follows the header's first bytes is unchecked.
pub fn load(path: &Path) -> Result<Vec<u8>, ShowError> {
    let read_error = |error| ShowError::Read { path: path.to_owned(), error };
    // Asked before opening: opening a FIFO would wait for a writer.
    let about = std::fs::metadata(path).map_err(read_error)?;
    if !about.is_file() {
        let what = if about.is_dir() { "a directory" } else { "not a regular file" };
        return Err(read_error(io::Error::other(what)));
    }
    let mut file = File::open(path).map_err(read_error)?;
    let mut bytes = Vec::new();
    file.by_ref().take(FIXED_BYTES as u64).read_to_end(&mut bytes).map_err(read_error)?;
    if let Err(error) = AnyTrace::parse(&bytes)
        && error.at == 0
    {
        return Err(ShowError::Trace { path: path.to_owned(), error });
    }
    let too_large = || ShowError::TooLarge { path: path.to_owned(), most: MOST_BYTES };
    if about.len() > MOST_BYTES {
        return Err(too_large());
    }
    // Once more, since a file may grow while it is read.
    file.take(MOST_BYTES + 1 - bytes.len() as u64).read_to_end(&mut bytes).map_err(read_error)?;
    if bytes.len() as u64 > MOST_BYTES { Err(too_large()) } else { Ok(bytes) }
}

/// Says what is in the trace at `path`.
///
/// # Errors
/// The file cannot be read, or is no sound trace.
pub fn show(path: &Path) -> Result<Shown, ShowError> {
    let bytes = load(path)?;
    let trace = Trace::parse(&bytes).map_err(|error| ShowError::Trace { path: path.to_owned(), error })?;
    let shown = Shown::of(&trace, bytes.len() as u64);
    let header = trace.header();
    if shown.pages != header.pages {
        return Err(ShowError::Pages { path: path.to_owned(), header: header.pages, body: shown.pages });
    }
    Ok(shown)
}

impl Shown {
    pub(super) fn of(trace: &Trace<'_>, file_bytes: u64) -> Self {
        let header = trace.header();
        let totals = &header.totals;
        let counts = Counts::of(trace);
        Self {
            program: header.program.to_owned(),
            command: header.command.to_owned(),
            fetches: header.fetches,
            bounded: header.bounded,
            page_bytes: header.page_bytes,
            window: header.window,
            epoch: header.epoch,
            gap: header.gap,
            accesses: totals.accesses(),
            reads: totals.reads,
            writes: totals.writes,
            pages: counts.pages.len() as u64,
            pages_written: counts.pages.values().filter(|page| page.written).count() as u64,
            span: header.span,
            tables: counts.tables(header.gap),
            records: totals.records,
            file_bytes,
            bytes_per_record: ratio(totals.bytes, totals.records),
            hottest: counts.hottest(totals.accesses()),
            folded: counts.folded,
            working_set: counts.working_set,
        }
    }
}

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let part = if self.bounded { " (a part of its run)" } else { "" };
        writeln!(f, "program      {}{part}", plain::line(&self.program))?;
        writeln!(f, "command      {}", plain::line(&self.command))?;
        let fetches = if self.fetches { "with" } else { "without" };
        writeln!(
            f,
            "accesses     {}: {} reads ({fetches} instruction fetches), {} writes",
            self.accesses, self.reads, self.writes
        )?;
        let kib = self.pages.saturating_mul(u64::from(self.page_bytes)) / 1024;
        writeln!(
            f,
            "pages        {} of {} bytes ({kib} KiB), {} of them written",
            self.pages, self.page_bytes, self.pages_written
        )?;
        writeln!(f, "span         {} pages, in {} groups of {}", self.span, self.tables, self.gap)?;
        writeln!(
            f,
            "records      {}, {:.2} bytes each; the file has {} bytes",
            self.records, self.bytes_per_record, self.file_bytes
        )?;
        writeln!(f, "folding      epochs of at most {} pages and {} accesses", self.window, self.epoch)?;
        let set = &self.working_set;
        writeln!(
            f,
            "working set  {} to {} pages per {} accesses, {} on average",
            set.least, set.most, set.slice, set.mean
        )?;
        for (index, hot) in self.hottest.iter().enumerate() {
            let label = if index == 0 { "hottest" } else { "" };
            writeln!(
                f,
                "{label:<12} {:>3}% of the pages ({}) get {:.1}% of the accesses",
                hot.percent_of_pages, hot.pages, hot.percent_of_accesses
            )?;
        }
        for (index, folded) in self.folded.iter().enumerate() {
            let label = if index == 0 { "folded" } else { "" };
            let range = if folded.from == folded.to {
                folded.from.to_string()
            } else {
                format!("{}-{}", folded.from, folded.to)
            };
            let percent = 100.0 * ratio(folded.records, self.records);
            writeln!(f, "{label:<12} {range:>13} accesses: {:>8} records {percent:>5.1}%", folded.records)?;
        }
        Ok(())
    }
}
