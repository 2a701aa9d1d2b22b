//! Folding: many accesses become one record per page and epoch.
//!
//! An epoch ends when the next access would touch one page more than the window holds, or when it has had its number of
//! accesses. The rule, and what it keeps of the order, is stated in [`quietmm_workloads::trace`].
//!
//! Memory grows with the distinct pages and the records, not with the accesses. Both are bounded.

use std::collections::BTreeMap;

use quietmm_workloads::trace::Record;

/// Most distinct pages: a program of 64 GiB.
pub(super) const MOST_PAGES: usize = 1 << 24;
/// Most records: 1.5 GiB of them.
pub(super) const MOST_RECORDS: usize = 1 << 27;

/// Ways of the small cache in front of the map of pages. Lackey switches between code, stack and data at each
/// line, so one entry would not do.
const CACHED: usize = 1024;

/// Why no more accesses can be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Full {
    Pages,
    Records,
}

/// Accesses on their way to records. `Record::page` counts the pages in order of first touch here; the numbers in the
/// file are known only when all pages are.
pub(super) struct Fold {
    window: usize,
    epoch: u64,
    ids: BTreeMap<u64, u32>,
    cache: Vec<(u64, u32)>,
    /// For each page its latest record. It belongs to the epoch under way if it is not below `epoch_start`.
    latest: Vec<Option<u32>>,
    records: Vec<Record>,
    epoch_start: usize,
    epoch_accesses: u64,
}

impl Fold {
    pub(super) fn new(window: u32, epoch: u32) -> Self {
        Self {
            window: window as usize,
            epoch: u64::from(epoch),
            ids: BTreeMap::new(),
            // No user page has this number: addresses have 64 bits, their page numbers fewer.
            cache: vec![(u64::MAX, 0); CACHED],
            latest: Vec::new(),
            records: Vec::new(),
            epoch_start: 0,
            epoch_accesses: 0,
        }
    }

    /// Takes `reads` and `writes`, 0 or 1 each, of the page with this number.
    pub(super) fn add(&mut self, page: u64, reads: u32, writes: u32) -> Result<(), Full> {
        let id = self.id(page)?;
        if self.epoch_accesses >= self.epoch {
            self.end_epoch();
        }
        let latest = self.latest[id as usize].map(|index| index as usize);
        match latest.filter(|&index| index >= self.epoch_start) {
            Some(index) => {
                // An epoch is far shorter than 2^32 accesses (`Options` sees to it): no overflow.
                self.records[index].reads += reads;
                self.records[index].writes += writes;
            }
            None => {
                if self.records.len() - self.epoch_start == self.window {
                    self.end_epoch();
                }
                if self.records.len() == MOST_RECORDS {
                    return Err(Full::Records);
                }
                self.latest[id as usize] = Some(self.records.len() as u32);
                self.records.push(Record { page: id, reads, writes });
            }
        }
        self.epoch_accesses += u64::from(reads + writes);
        Ok(())
    }

    fn end_epoch(&mut self) {
        self.epoch_start = self.records.len();
        self.epoch_accesses = 0;
    }

    fn id(&mut self, page: u64) -> Result<u32, Full> {
        let way = page as usize % CACHED;
        let (cached, id) = self.cache[way];
        if cached == page {
            return Ok(id);
        }
        let id = match self.ids.get(&page) {
            Some(&id) => id,
            None if self.latest.len() == MOST_PAGES => return Err(Full::Pages),
            None => {
                let id = self.latest.len() as u32;
                self.ids.insert(page, id);
                self.latest.push(None);
                id
            }
        };
        self.cache[way] = (page, id);
        Ok(id)
    }

    /// The distinct pages in ascending order, each with its number of first touch, and the records.
    pub(super) fn finish(self) -> (BTreeMap<u64, u32>, Vec<Record>) {
        (self.ids, self.records)
    }
}
