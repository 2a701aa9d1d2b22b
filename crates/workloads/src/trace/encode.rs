//! Writing: records go into the body one by one, and the header is made of what they add up to.
//!
//! The header comes first in the file but is known last, so the caller keeps the body (or a place for the
//! header) until the end. Bytes go to anything that can be extended by bytes: a `Vec<u8>`, a buffer of a kernel.

use core::fmt;

use super::checksum::Checksum;
use super::header::Totals;
use super::record::Record;

/// Why something cannot be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EncodeError {
    /// A record without accesses.
    EmptyRecord {
        /// Its page.
        page: u32,
    },
    /// The program's name or the command line is too long.
    TextTooLong {
        /// Its length.
        bytes: usize,
    },
    /// An event names something that is not there.
    Unknown {
        /// What.
        what: &'static str,
        /// Which event, counted from 0.
        event: u64,
    },
}

impl fmt::Display for EncodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::EmptyRecord { page } => {
                write!(f, "a record of page {page} without accesses; it needs a read or a write")
            }
            Self::TextTooLong { bytes } => write!(f, "a text of {bytes} bytes; at most {} fit", u16::MAX),
            Self::Unknown { what, event } => {
                write!(f, "event {event} names a {what} that is not there; what is named comes before")
            }
        }
    }
}

impl core::error::Error for EncodeError {}

/// Writes the body of a trace and adds it up.
#[derive(Clone, Debug)]
pub struct BodyEncoder {
    previous: u32,
    highest: Option<u32>,
    sum: Checksum,
    totals: Totals,
}

impl BodyEncoder {
    /// An encoder that has written nothing.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            previous: 0,
            highest: None,
            sum: Checksum::new(),
            totals: Totals { records: 0, reads: 0, writes: 0, bytes: 0, checksum: 0 },
        }
    }

    /// Appends one record to `out`.
    ///
    /// # Errors
    /// A record without accesses; nothing is written then.
    pub fn push(&mut self, record: Record, out: &mut impl Extend<u8>) -> Result<(), EncodeError> {
        let Some(integers) = record.integers(self.previous) else {
            return Err(EncodeError::EmptyRecord { page: record.page });
        };
        for integer in integers.iter().flatten() {
            let bytes = integer.bytes();
            self.sum.add(bytes);
            self.totals.bytes += bytes.len() as u64;
            out.extend(bytes.iter().copied());
        }
        self.previous = record.page;
        self.highest = self.highest.max(Some(record.page));
        self.totals.records += 1;
        self.totals.reads += u64::from(record.reads);
        self.totals.writes += u64::from(record.writes);
        Ok(())
    }

    /// The smallest span that holds the pages written so far.
    #[must_use]
    pub fn span(&self) -> u64 {
        self.highest.map_or(0, |page| u64::from(page) + 1)
    }

    /// What the body adds up to, for [`super::Header::totals`].
    #[must_use]
    pub fn finish(self) -> Totals {
        Totals { checksum: self.sum.value(), ..self.totals }
    }
}

impl Default for BodyEncoder {
    fn default() -> Self {
        Self::new()
    }
}
