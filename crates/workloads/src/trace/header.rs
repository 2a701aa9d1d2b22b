//! The header: what a trace is of, how it was folded, and what its body must add up to.

use super::checksum::Checksum;
use super::encode::EncodeError;
use super::error::{Fault, TraceError};

/// The first bytes of every trace. The line feed at the end does not survive a transfer as text.
pub const MAGIC: [u8; 8] = *b"\x89QTRACE\n";
/// The version of traces of accesses.
pub const VERSION: u16 = 1;
/// The version of recordings of operations.
pub const RECORDING_VERSION: u16 = 2;
/// Length of the header without its texts.
pub const FIXED_BYTES: usize = 104;
/// Page numbers are 32 bits wide: the span is at most this many pages.
pub const MAX_SPAN: u64 = 1 << 32;

const FLAG_FETCHES: u16 = 1;
const FLAG_BOUNDED: u16 = 2;

/// What a body adds up to. Made by [`super::BodyEncoder::finish`], checked by [`super::Trace::parse`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Totals {
    /// Records.
    pub records: u64,
    /// Reads in all records.
    pub reads: u64,
    /// Writes in all records.
    pub writes: u64,
    /// Length of the body in bytes.
    pub bytes: u64,
    /// Checksum of the body.
    pub checksum: u64,
}

impl Totals {
    /// Reads and writes together.
    #[must_use]
    pub fn accesses(&self) -> u64 {
        self.reads.saturating_add(self.writes)
    }
}

/// The header of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header<'a> {
    /// What was recorded, with its version.
    pub program: &'a str,
    /// The command line that was recorded.
    pub command: &'a str,
    /// Instruction fetches are among the reads.
    pub fetches: bool,
    /// Only a part of the program's run was recorded.
    pub bounded: bool,
    /// Bytes in a page, a power of two.
    pub page_bytes: u32,
    /// Most pages in one epoch.
    pub window: u32,
    /// Most accesses in one epoch (one that reads and writes is not split, so one more may occur).
    pub epoch: u32,
    /// Longest gap between pages that was kept, in pages.
    pub gap: u32,
    /// Distinct pages. The one number that `parse` cannot check without memory; it checks its bounds.
    pub pages: u64,
    /// Every page number is below it. At most [`MAX_SPAN`].
    pub span: u64,
    /// What the body adds up to.
    pub totals: Totals,
}

impl<'a> Header<'a> {
    /// Appends the header to `out`; the body follows it.
    ///
    /// # Errors
    /// A text that is longer than 65,535 bytes.
    pub fn encode(&self, out: &mut impl Extend<u8>) -> Result<(), EncodeError> {
        let text_length = |text: &str| {
            u16::try_from(text.len()).map_err(|_| EncodeError::TextTooLong { bytes: text.len() })
        };
        let flags = (u16::from(self.fetches) * FLAG_FETCHES) | (u16::from(self.bounded) * FLAG_BOUNDED);
        let mut fixed = [0; FIXED_BYTES];
        fixed[..8].copy_from_slice(&MAGIC);
        for (at, value) in
            [(8, VERSION), (10, flags), (12, text_length(self.program)?), (14, text_length(self.command)?)]
        {
            fixed[at..at + 2].copy_from_slice(&value.to_le_bytes());
        }
        for (at, value) in [(16, self.page_bytes), (20, self.window), (24, self.epoch), (28, self.gap)] {
            fixed[at..at + 4].copy_from_slice(&value.to_le_bytes());
        }
        let totals = &self.totals;
        for (at, value) in [
            (32, totals.accesses()),
            (40, totals.reads),
            (48, totals.writes),
            (56, totals.records),
            (64, self.pages),
            (72, self.span),
            (80, totals.bytes),
            (88, totals.checksum),
        ] {
            fixed[at..at + 8].copy_from_slice(&value.to_le_bytes());
        }
        let sum = Checksum::of(&[&fixed[..96], self.program.as_bytes(), self.command.as_bytes()]);
        fixed[96..].copy_from_slice(&sum.to_le_bytes());
        out.extend(fixed);
        out.extend(self.program.bytes());
        out.extend(self.command.bytes());
        Ok(())
    }

    /// Reads a header and returns it with the body that follows. The body's length is right, its
    /// content unchecked.
    pub(super) fn decode(bytes: &'a [u8]) -> Result<(Self, &'a [u8]), TraceError> {
        // A foreign file first: that it is short too is not what its owner needs to hear.
        let known = bytes.len().min(MAGIC.len());
        if bytes[..known] != MAGIC[..known] {
            return Err(Fault::NotATrace.at(0));
        }
        let short = |need: u64| Fault::TooShort { need }.at(bytes.len());
        let Some((fixed, rest)) = bytes.split_first_chunk::<FIXED_BYTES>() else {
            return Err(short(FIXED_BYTES as u64));
        };
        let version = u16_at(fixed, 8);
        if version != VERSION {
            return Err(Fault::Version { found: version }.at(8));
        }
        let program_length = usize::from(u16_at(fixed, 12));
        let texts_length = program_length + usize::from(u16_at(fixed, 14));
        let Some((texts, body)) = rest.split_at_checked(texts_length) else {
            return Err(short((FIXED_BYTES + texts_length) as u64));
        };
        let computed = Checksum::of(&[&fixed[..96], texts]);
        if computed != u64_at(fixed, 96) {
            return Err(Fault::HeaderChecksum { found: u64_at(fixed, 96), computed }.at(96));
        }

        let flags = u16_at(fixed, 10);
        if flags & !(FLAG_FETCHES | FLAG_BOUNDED) != 0 {
            return Err(Fault::Flags { found: flags }.at(10));
        }
        let (program, command) = texts.split_at(program_length);
        let text = |piece: &'a [u8], start: usize| {
            core::str::from_utf8(piece).map_err(|error| Fault::Text.at(start + error.valid_up_to()))
        };
        let header = Self {
            program: text(program, FIXED_BYTES)?,
            command: text(command, FIXED_BYTES + program_length)?,
            fetches: flags & FLAG_FETCHES != 0,
            bounded: flags & FLAG_BOUNDED != 0,
            page_bytes: u32_at(fixed, 16),
            window: u32_at(fixed, 20),
            epoch: u32_at(fixed, 24),
            gap: u32_at(fixed, 28),
            pages: u64_at(fixed, 64),
            span: u64_at(fixed, 72),
            totals: Totals {
                records: u64_at(fixed, 56),
                reads: u64_at(fixed, 40),
                writes: u64_at(fixed, 48),
                bytes: u64_at(fixed, 80),
                checksum: u64_at(fixed, 88),
            },
        };
        header.check_bounds(u64_at(fixed, 32))?;

        let have = body.len() as u64;
        let start = FIXED_BYTES + texts_length;
        if have < header.totals.bytes {
            return Err(short(header.totals.bytes.saturating_add(start as u64)));
        }
        if have > header.totals.bytes {
            // The length is below `have`, so it fits in a `usize`.
            return Err(Fault::TooLong.at(start + header.totals.bytes as usize));
        }
        Ok((header, body))
    }

    /// What must hold whatever the body says.
    fn check_bounds(&self, accesses: u64) -> Result<(), TraceError> {
        if !self.page_bytes.is_power_of_two() {
            return Err(Fault::PageBytes { found: self.page_bytes }.at(16));
        }
        if self.totals.reads.checked_add(self.totals.writes) != Some(accesses) {
            return Err(
                Fault::Total { of: "accesses", header: accesses, body: self.totals.accesses() }.at(32)
            );
        }
        if self.span > MAX_SPAN {
            return Err(Fault::Span { found: self.span }.at(72));
        }
        let pages_may_be = self.span.min(self.totals.records);
        if self.pages > pages_may_be || (self.pages == 0) != (self.totals.records == 0) {
            return Err(Fault::Pages { found: self.pages, most: pages_may_be }.at(64));
        }
        Ok(())
    }
}

/// The version of what begins as a trace does.
pub(super) fn version(bytes: &[u8]) -> Option<u16> {
    let bytes = bytes.strip_prefix(&MAGIC)?;
    Some(u16::from_le_bytes([*bytes.first()?, *bytes.get(1)?]))
}

// The offsets are constants below `FIXED_BYTES`, so the indexing cannot fail.

pub(super) fn u16_at(fixed: &[u8; FIXED_BYTES], at: usize) -> u16 {
    u16::from_le_bytes([fixed[at], fixed[at + 1]])
}

pub(super) fn u32_at(fixed: &[u8; FIXED_BYTES], at: usize) -> u32 {
    u32::from(u16_at(fixed, at)) | (u32::from(u16_at(fixed, at + 2)) << 16)
}

pub(super) fn u64_at(fixed: &[u8; FIXED_BYTES], at: usize) -> u64 {
    u64::from(u32_at(fixed, at)) | (u64::from(u32_at(fixed, at + 4)) << 32)
}
