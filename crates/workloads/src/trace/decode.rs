//! Reading: everything is checked once, then iteration cannot fail.

use super::checksum::Checksum;
use super::error::{Fault, TraceError};
use super::header::Header;
use super::record::Record;

/// A checked trace. Borrows the bytes; copying it is cheap.
#[derive(Clone, Copy, Debug)]
pub struct Trace<'a> {
    header: Header<'a>,
    body: &'a [u8],
}

impl<'a> Trace<'a> {
    /// Checks `bytes` from the first to the last: header, lengths, checksums, each record, and the totals.
    /// Takes time in proportion to the length, no memory. May be called in any context.
    ///
    /// # Errors
    /// Says at which byte the file is wrong, and what would be right. Never panics, whatever the bytes.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, TraceError> {
        let (header, body) = Header::decode(bytes)?;
        let start = bytes.len() - body.len();
        let computed = Checksum::of(&[body]);
        if computed != header.totals.checksum {
            return Err(Fault::BodyChecksum { found: header.totals.checksum, computed }.at(start));
        }
        let trace = Self { header, body };
        trace.check_records(start)?;
        Ok(trace)
    }

    /// The header.
    #[must_use]
    pub fn header(&self) -> &Header<'a> {
        &self.header
    }

    /// The records in the order in which they are to be replayed. Needs no memory; clone the iterator to
    /// remember a place.
    #[must_use]
    pub fn records(&self) -> Records<'a> {
        Records {
            body: self.body,
            at: 0,
            previous: 0,
            span: self.header.span,
            left: self.header.totals.records,
        }
    }

    fn check_records(&self, start: usize) -> Result<(), TraceError> {
        let (mut at, mut previous) = (0, 0);
        let (mut records, mut reads, mut writes) = (0u64, 0u64, 0u64);
        while at < self.body.len() {
            let record = Record::read(self.body, &mut at, previous, self.header.span)
                .map_err(|fault| fault.at(start + at))?;
            previous = record.page;
            // A record is at least a byte and its counts are below 2^32: 2^32 bytes would be needed to overflow.
            records += 1;
            reads = reads.saturating_add(u64::from(record.reads));
            writes = writes.saturating_add(u64::from(record.writes));
        }
        let totals = &self.header.totals;
        for (of, at, header, body) in [
            ("records", 56, totals.records, records),
            ("reads", 40, totals.reads, reads),
            ("writes", 48, totals.writes, writes),
        ] {
            if header != body {
                return Err(Fault::Total { of, header, body }.at(at));
            }
        }
        Ok(())
    }
}

/// The records of a trace, from [`Trace::records`]. A few words; cloning it copies them.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    body: &'a [u8],
    at: usize,
    previous: u32,
    span: u64,
    left: u64,
}

impl Iterator for Records<'_> {
    type Item = Record;

    fn next(&mut self) -> Option<Record> {
        // `parse` has read every record, so `read` fails only at the end of the body.
        let record = Record::read(self.body, &mut self.at, self.previous, self.span).ok()?;
        self.previous = record.page;
        self.left = self.left.saturating_sub(1);
        Some(record)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        match usize::try_from(self.left) {
            Ok(left) => (left, Some(left)),
            Err(_) => (usize::MAX, None),
        }
    }
}

impl core::iter::FusedIterator for Records<'_> {}
