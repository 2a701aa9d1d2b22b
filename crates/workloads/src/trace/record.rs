//! One record: the accesses to one page in one epoch, and how they are written.

use super::error::Fault;
use super::varint::{self, Varint, unzigzag, zigzag};

/// The accesses to one page within one epoch. At least one of the counts is above 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// Page number in the compacted address space, below [`super::Header::span`].
    pub page: u32,
    /// Reads, instruction fetches among them if [`super::Header::fetches`] is set.
    pub reads: u32,
    /// Writes.
    pub writes: u32,
}

impl Record {
    /// Reads and writes together.
    #[must_use]
    pub fn accesses(&self) -> u64 {
        u64::from(self.reads) + u64::from(self.writes)
    }

    /// The integers of this record, given the page of the record before; `None` for a record without accesses.
    pub(super) fn integers(&self, previous: u32) -> Option<[Option<Varint>; 3]> {
        let (reads, writes) = (u64::from(self.reads), u64::from(self.writes));
        let (shape, first, second) = match (reads, writes) {
            (0, 0) => return None,
            (1, 0) => (0, None, None),
            (n, 0) => (1, Some(n - 2), None),
            (0, m) => (2, Some(m - 1), None),
            (n, m) => (3, Some(n - 1), Some(m - 1)),
        };
        let step = zigzag(i64::from(self.page) - i64::from(previous));
        Some([Some(Varint::new((step << 2) | shape)), first.map(Varint::new), second.map(Varint::new)])
    }

    /// Reads the record at `*at` and moves `*at` behind it. On an error `*at` is near the byte that is wrong:
    /// in the integer that is, or at the record's start if its page is.
    pub(super) fn read(bytes: &[u8], at: &mut usize, previous: u32, span: u64) -> Result<Self, Fault> {
        let start = *at;
        let token = varint::read(bytes, at)?;
        let page = i64::from(previous).checked_add(unzigzag(token >> 2));
        let page = page.and_then(|page| u32::try_from(page).ok()).filter(|&page| u64::from(page) < span);
        let Some(page) = page else {
            *at = start;
            return Err(Fault::PageOutside { span });
        };
        let mut count = |least: u64| {
            let from = *at;
            let value = varint::read(bytes, at)?.checked_add(least);
            value.and_then(|value| u32::try_from(value).ok()).ok_or_else(|| {
                *at = from;
                Fault::Count
            })
        };
        let (reads, writes) = match token & 3 {
            0 => (1, 0),
            1 => (count(2)?, 0),
            2 => (0, count(1)?),
            _ => (count(1)?, count(1)?),
        };
        Ok(Self { page, reads, writes })
    }
}
