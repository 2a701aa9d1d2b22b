//! Recorded work of real programs: which pages a program touched, in which order, how often.
//!
//! A trace is a short file (`.qtrace`) that any machine can replay, the bare one included: reading it needs
//! no heap, no floating point and no file system, only the bytes. It is checked once, as a whole, by
//! [`Trace::parse`]; after that, iterating cannot fail, so a replay loop has no error path.
//!
//! # What a trace keeps and what it loses
//!
//! - **Kept exactly**: the set of pages, and how many reads and writes each page got.
//! - **Kept to within one epoch**: the order. Accesses are folded in *epochs*. An epoch ends when the
//!   next access would touch its `window + 1`st page, or after `epoch` accesses. It becomes one record per page,
//!   in the order in which the epoch first touched them. Order between epochs is exact. Within one, only the order of
//!   first touches remains: how reads, writes and pages alternated afterwards is gone. With `window = 1` a
//!   record is a run of accesses to one page, and only the order of reads and writes within the run is lost.
//! - **Kept**: locality, as far as page tables see it. Addresses are *compacted*: with the pages sorted, a gap of up
//!   to `gap` pages stays as it is; a larger one shrinks to the smallest distance of at least
//!   `gap` that leaves the page's number modulo `gap` unchanged. With `gap` = 512 (the pages under one table of the lowest
//!   level on x86-64) two pages share such a table in the trace exactly if they shared it in the program. Tables of
//!   higher levels are not kept: the compacted program needs fewer of them.
//! - **Lost**: addresses, sizes, times, and which thread accessed.
//!
//! Choose a window that holds the hot pages of the program (code and stack are touched all the time, so
//! a smaller one ends an epoch every few instructions and writes the hot pages again in each), and that is small beside
//! the memory of the replay: an epoch's pages should all fit in it, and in the TLB's last level, or the
//! replay misses where the program did not. The importer's default is 128 pages and 262,144 accesses.
//!
//! # Two versions
//!
//! What follows is version 1: accesses of one program, as a tool sees them that looks at each. [`Recording`] is version 2: what
//! threads and processes asked of the memory manager, as the kernel sees it. [`AnyTrace`] reads either.
//!
//! # The format
//!
//! All numbers are little-endian. The header is [`FIXED_BYTES`] long, then follow the two texts, then the body.
//!
//! | byte | size | |
//! |---:|---:|---|
//! | 0 | 8 | [`MAGIC`]; its last byte changes if the file is sent as text |
//! | 8 | 2 | version, [`VERSION`] |
//! | 10 | 2 | flags: bit 0 instruction fetches are included, bit 1 the program did more than was recorded |
//! | 12 | 2 | length of the program's name |
//! | 14 | 2 | length of the command line |
//! | 16 | 4 | bytes in a page, a power of two |
//! | 20 | 4 | window, pages |
//! | 24 | 4 | epoch, accesses |
//! | 28 | 4 | gap, pages |
//! | 32 | 8 | accesses = reads + writes |
//! | 40 | 8 | reads |
//! | 48 | 8 | writes |
//! | 56 | 8 | records |
//! | 64 | 8 | distinct pages |
//! | 72 | 8 | span: every page number is below it; at most 2^32 |
//! | 80 | 8 | length of the body |
//! | 88 | 8 | FNV-1a checksum of the body |
//! | 96 | 8 | FNV-1a checksum of bytes 0 to 95 and both texts |
//! | 104 | | program, command line (UTF-8), body |
//!
//! A record in the body is one to three variable-length integers (seven bits a byte, low bits first, shortest form
//! only). The first is `zigzag(page - previous page) * 4 + shape`, where the page before the first is 0:
//!
//! | shape | accesses | further integers |
//! |---:|---|---|
//! | 0 | one read | |
//! | 1 | `n >= 2` reads | `n - 2` |
//! | 2 | `m >= 1` writes | `m - 1` |
//! | 3 | `n` reads and `m` writes | `n - 1`, `m - 1` |
//!
//! So there is exactly one way to write a record, and decoding then encoding gives the same bytes.

mod checksum;
mod decode;
mod encode;
mod error;
mod header;
mod record;
pub mod recording;
mod varint;

#[cfg(test)]
mod tests;

pub use checksum::Checksum;
pub use decode::{Records, Trace};
pub use encode::{BodyEncoder, EncodeError};
pub use error::{Fault, TraceError};
pub use header::{FIXED_BYTES, Header, MAGIC, MAX_SPAN, RECORDING_VERSION, Totals, VERSION};
pub use record::Record;
pub use recording::Recording;

/// A trace of either version.
#[derive(Clone, Copy, Debug)]
pub enum AnyTrace<'a> {
    /// Version 1: accesses.
    Accesses(Trace<'a>),
    /// Version 2: operations of threads and processes.
    Operations(Recording<'a>),
}

impl<'a> AnyTrace<'a> {
    /// Checks `bytes` from the first to the last. Takes time in proportion to the length, no memory. May be called in any context.
    ///
    /// # Errors
    /// Says at which byte the file is wrong, and what would be right. Never panics, whatever the bytes.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, TraceError> {
        if header::version(bytes) == Some(RECORDING_VERSION) {
            Recording::parse(bytes).map(AnyTrace::Operations)
        } else {
            Trace::parse(bytes).map(AnyTrace::Accesses)
        }
    }

    /// What was recorded.
    #[must_use]
    pub fn program(&self) -> &'a str {
        match self {
            AnyTrace::Accesses(trace) => trace.header().program,
            AnyTrace::Operations(recording) => recording.header().about.program,
        }
    }
}
