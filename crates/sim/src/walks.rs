//! What a CPU's table walker remembers: for some pages of a tag, the leaf table on the way to them. A walk that
//! finds it here does not look at the upper tables, whatever they say by now.

use quietmm::addr::{FrameNumber, PageNumber, PageRange};

use crate::tlb::{key, tag_of};
use crate::truth::Truth;

/// One remembered table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Slot {
    /// Tag, and page / 512.
    key: u64,
    table: FrameNumber,
    /// When it was found, by the account's clock.
    since: u64,
}

/// The cache: the oldest goes first. The account hears of every table that enters and leaves.
pub struct WalkCache {
    slots: Vec<Slot>,
    most: usize,
    next: usize,
}

impl WalkCache {
    /// An empty cache of `entries`.
    pub fn new(entries: u32) -> WalkCache {
        WalkCache { slots: Vec::new(), most: entries as usize, next: 0 }
    }

    /// The leaf table on the way to a page, and since when it is remembered.
    pub fn find(&self, tag: u16, page: PageNumber) -> Option<(FrameNumber, u64)> {
        let key = key(tag, PageNumber(page.0 >> 9));
        self.slots.iter().find(|slot| slot.key == key).map(|slot| (slot.table, slot.since))
    }

    /// Remembers a leaf table that was not remembered.
    pub fn remember(&mut self, tag: u16, page: PageNumber, table: FrameNumber, truth: &mut Truth) {
        if self.most == 0 {
            return;
        }
        truth.walkable(table);
        let slot = Slot { key: key(tag, PageNumber(page.0 >> 9)), table, since: truth.now() };
        if self.slots.len() < self.most {
            self.slots.push(slot);
        } else {
            truth.not_walkable(self.slots[self.next].table);
            self.slots[self.next] = slot;
            self.next = (self.next + 1) % self.most;
        }
    }

    /// Forgets all: what INVLPG of any page and a flush of any tag do.
    pub fn forget(&mut self, truth: &mut Truth) {
        for slot in self.slots.drain(..) {
            truth.not_walkable(slot.table);
        }
        self.next = 0;
    }

    /// Forgets the tables on the way to these pages under a tag (`None`: to all).
    pub fn forget_ways(&mut self, tag: u16, range: Option<PageRange>, truth: &mut Truth) {
        let ways = range.map(|range| {
            let (first, last) = (range.start, PageNumber(range.end().0 - 1));
            key(tag, PageNumber(first.0 >> 9))..=key(tag, PageNumber(last.0 >> 9))
        });
        self.slots.retain(|slot| {
            let stays = tag_of(slot.key) != u64::from(tag)
                || ways.as_ref().is_some_and(|ways| !ways.contains(&slot.key));
            if !stays {
                truth.not_walkable(slot.table);
            }
            stays
        });
        // Where the oldest is, is not kept: the next one that comes takes the place of some other.
        self.next = 0;
    }

    /// Whether a walk under this tag would use the table.
    pub fn leads_to(&self, tag: u16, table: FrameNumber) -> bool {
        self.slots.iter().any(|slot| slot.table == table && tag_of(slot.key) == u64::from(tag))
    }
}

#[cfg(test)]
mod tests {
    use quietmm::{Event, Kind};

    use super::*;

    #[test]
    fn the_oldest_table_is_forgotten_first_and_a_flush_forgets_all() {
        let mut truth = Truth::new(8).unwrap();
        truth.observe(&Event::Taken { frame: FrameNumber(0), order: 3, kind: Kind::Table }, 0, 0);
        let mut walks = WalkCache::new(2);
        for n in 1..=3 {
            walks.remember(0, PageNumber(512 * n), FrameNumber(n as u32), &mut truth);
        }
        let tables: Vec<_> = (1..=3).map(|n| walks.find(0, PageNumber(512 * n + 5)).map(|w| w.0.0)).collect();
        assert_eq!(tables, [None, Some(2), Some(3)]);
        assert!(walks.find(1, PageNumber(1024)).is_none() && !walks.leads_to(1, FrameNumber(2)));
        let known = |truth: &Truth| (1..=3).map(|n| truth.is_walkable(FrameNumber(n))).collect::<Vec<_>>();
        assert_eq!(known(&truth), [false, true, true]);
        walks.forget(&mut truth);
        assert_eq!(known(&truth), [false; 3]);
    }

    #[test]
    fn the_ways_to_some_pages_of_a_tag_are_forgotten() {
        let mut truth = Truth::new(8).unwrap();
        truth.observe(&Event::Taken { frame: FrameNumber(0), order: 3, kind: Kind::Table }, 0, 0);
        let mut walks = WalkCache::new(4);
        for (tag, n) in [(0, 1), (0, 2), (0, 3), (1, 2)] {
            walks.remember(tag, PageNumber(512 * n), FrameNumber((4 * tag as u32) + n as u32), &mut truth);
        }
        walks.forget_ways(0, Some(PageRange::new(PageNumber(1030), 1)), &mut truth);
        let known = |walks: &WalkCache| {
            [(0, 1), (0, 2), (0, 3), (1, 2)].map(|(tag, n)| walks.find(tag, PageNumber(512 * n)).is_some())
        };
        assert_eq!(known(&walks), [true, false, true, true]);
        assert!(!truth.is_walkable(FrameNumber(2)) && truth.is_walkable(FrameNumber(3)));
        walks.forget_ways(0, Some(PageRange::new(PageNumber(1000), 600)), &mut truth);
        assert_eq!(known(&walks), [false, false, false, true]);
        walks.forget_ways(1, None, &mut truth);
        assert_eq!(known(&walks), [false; 4]);
    }

    #[test]
    fn a_machine_without_a_walk_cache_remembers_nothing() {
        let mut truth = Truth::new(8).unwrap();
        let mut walks = WalkCache::new(0);
        walks.remember(0, PageNumber(0), FrameNumber(1), &mut truth);
        assert!(walks.find(0, PageNumber(0)).is_none() && !truth.is_walkable(FrameNumber(1)));
    }
}
