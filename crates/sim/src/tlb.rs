//! The TLB of a simulated CPU: two levels of sets and ways, address-space tags, and a cache of upper table
//! levels.
//!
//! An entry remembers what was true of its frame when it was filled ([`Filled`]), so that a use of it
//! after the frame was freed is seen.

use quietmm::addr::{FrameNumber, PageNumber, PageRange};

use crate::machine;

/// What was true of a frame when an entry to it was filled.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Filled {
    /// How often the frame had been freed.
    pub life: u32,
    /// How often an entry to it had been cleared.
    pub cut: u32,
}

/// A cached translation.
#[derive(Clone, Copy, Debug)]
pub struct Cached {
    /// Tag in the upper bits, page number below; `EMPTY` when the slot is free.
    key: u64,
    /// The frame.
    pub frame: FrameNumber,
    /// What was true of it.
    pub filled: Filled,
    /// The table entry's dirty bit was set when it was filled or since: writes do not walk again.
    pub dirty: bool,
    /// An operation that took this mapping away has returned: any use is stale.
    pub revoked: bool,
    /// Time of the last use, for replacement.
    used: u32,
}

const EMPTY: u64 = u64::MAX;
const TAG_SHIFT: u32 = 40;

fn key(tag: u16, page: PageNumber) -> u64 {
    u64::from(tag) << TAG_SHIFT | page.0
}

/// Sets of ways, the least recently used of a set goes first.
struct Level {
    slots: Vec<Cached>,
    ways: usize,
    sets: u64,
}

impl Level {
    fn new(entries: u32, ways: u32) -> Level {
        let none = Cached {
            key: EMPTY,
            frame: FrameNumber::NONE,
            filled: Filled::default(),
            dirty: false,
            revoked: false,
            used: 0,
        };
        let ways = ways.max(1) as usize;
        Level { slots: vec![none; entries as usize], ways, sets: (entries as u64 / ways as u64).max(1) }
    }

    fn set(&mut self, page: PageNumber) -> &mut [Cached] {
        if self.slots.is_empty() {
            return &mut [];
        }
        let first = (page.0 % self.sets) as usize * self.ways;
        &mut self.slots[first..first + self.ways]
    }

    fn find(&mut self, key: u64, page: PageNumber) -> Option<&mut Cached> {
        self.set(page).iter_mut().find(|slot| slot.key == key)
    }

    fn insert(&mut self, page: PageNumber, entry: Cached) -> Option<Cached> {
        let victim = self.set(page).iter_mut().min_by_key(|s| if s.key == EMPTY { 0 } else { s.used })?;
        let old = std::mem::replace(victim, entry);
        (old.key != EMPTY).then_some(old)
    }

    fn drop_where(&mut self, mut which: impl FnMut(&Cached) -> bool) {
        self.slots.iter_mut().filter(|slot| slot.key != EMPTY && which(slot)).for_each(|s| s.key = EMPTY);
    }
}

/// Where a translation was found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hit {
    /// In the first level: its time is part of the access.
    First,
    /// In the second.
    Second,
}

/// One CPU's TLB.
pub struct Tlb {
    first: Level,
    second: Level,
    /// Tag and page / 512, of tables whose address the walker remembers.
    walks: Vec<u64>,
    next_walk: usize,
    clock: u32,
    /// Entries that may be in: an empty TLB is flushed for nothing.
    live: bool,
}

impl Tlb {
    /// An empty TLB.
    pub fn new(shape: &machine::Tlb) -> Tlb {
        Tlb {
            first: Level::new(shape.l1_entries, shape.l1_ways),
            second: Level::new(shape.l2_entries, shape.l2_ways),
            walks: vec![EMPTY; shape.walk_cache as usize],
            next_walk: 0,
            clock: 0,
            live: false,
        }
    }

    /// Looks a page up; a hit in the second level moves it to the first.
    pub fn find(&mut self, tag: u16, page: PageNumber) -> Option<(&mut Cached, Hit)> {
        self.clock = self.clock.wrapping_add(1).max(1);
        let (key, clock) = (key(tag, page), self.clock);
        if self.first.find(key, page).is_none() {
            let slot = self.second.find(key, page)?;
            let found = Cached { used: clock, ..*slot };
            slot.key = EMPTY;
            self.place(page, found);
            return self.first.find(key, page).map(|entry| (entry, Hit::Second));
        }
        let entry = self.first.find(key, page)?;
        entry.used = clock;
        Some((entry, Hit::First))
    }

    /// Fills in a translation.
    pub fn fill(&mut self, tag: u16, page: PageNumber, frame: FrameNumber, filled: Filled, dirty: bool) {
        self.drop_page(tag, page);
        self.clock = self.clock.wrapping_add(1).max(1);
        let key = key(tag, page);
        self.live = true;
        self.place(page, Cached { key, frame, filled, dirty, revoked: false, used: self.clock });
    }

    fn place(&mut self, page: PageNumber, entry: Cached) {
        if let Some(out) = self.first.insert(page, entry) {
            let page = PageNumber(out.key & ((1 << TAG_SHIFT) - 1));
            self.second.insert(page, out);
        }
    }

    /// Whether the walker remembers the leaf table on the way to a page; remembers it from now on.
    pub fn walk_hits(&mut self, tag: u16, page: PageNumber) -> bool {
        if self.walks.is_empty() {
            return false;
        }
        let key = key(tag, PageNumber(page.0 >> 9));
        if self.walks.contains(&key) {
            return true;
        }
        self.walks[self.next_walk] = key;
        self.next_walk = (self.next_walk + 1) % self.walks.len();
        false
    }

    fn drop_page(&mut self, tag: u16, page: PageNumber) {
        let key = key(tag, page);
        for level in [&mut self.first, &mut self.second] {
            if let Some(slot) = level.find(key, page) {
                slot.key = EMPTY;
            }
        }
    }

    /// INVLPG: the page, and all that the walker remembers.
    pub fn flush_page(&mut self, tag: u16, page: PageNumber) {
        self.drop_page(tag, page);
        self.walks.fill(EMPTY);
    }

    /// Everything of a tag.
    pub fn flush_tag(&mut self, tag: u16) {
        if !self.live {
            return;
        }
        let same = |slot: &Cached| slot.key >> TAG_SHIFT == u64::from(tag);
        self.first.drop_where(same);
        self.second.drop_where(same);
        self.walks.fill(EMPTY);
    }

    /// Marks all entries of a tag in a range: whoever uses them from now on uses a stale one.
    pub fn revoke(&mut self, tag: u16, range: PageRange) {
        let page = |slot: &Cached| PageNumber(slot.key & ((1 << TAG_SHIFT) - 1));
        for level in [&mut self.first, &mut self.second] {
            for slot in level.slots.iter_mut().filter(|slot| slot.key != EMPTY) {
                if slot.key >> TAG_SHIFT == u64::from(tag) && range.contains(page(slot)) {
                    slot.revoked = true;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn small() -> Tlb {
        Tlb::new(&machine::Tlb {
            l1_entries: 4,
            l1_ways: 2,
            l2_entries: 8,
            l2_ways: 2,
            large_entries: 0,
            tags: 2,
            walk_cache: 2,
        })
    }

    fn fill(tlb: &mut Tlb, tag: u16, page: u64) {
        tlb.fill(tag, PageNumber(page), FrameNumber(page as u32), Filled::default(), false);
    }

    #[test]
    fn the_first_level_overflows_into_the_second() {
        let mut tlb = small();
        for page in [0, 2, 4] {
            fill(&mut tlb, 0, page);
        }
        assert_eq!(tlb.find(0, PageNumber(4)).unwrap().1, Hit::First);
        assert_eq!(tlb.find(0, PageNumber(0)).unwrap().1, Hit::Second);
        assert_eq!(tlb.find(0, PageNumber(0)).unwrap().1, Hit::First);
        assert!(tlb.find(1, PageNumber(0)).is_none(), "another tag is another space");
    }

    #[test]
    fn a_flush_takes_what_it_names_and_no_more() {
        let mut tlb = small();
        for (tag, page) in [(0, 1), (0, 2), (1, 1)] {
            fill(&mut tlb, tag, page);
        }
        tlb.flush_page(0, PageNumber(1));
        assert!(tlb.find(0, PageNumber(1)).is_none());
        assert!(tlb.find(0, PageNumber(2)).is_some() && tlb.find(1, PageNumber(1)).is_some());
        tlb.flush_tag(0);
        assert!(tlb.find(0, PageNumber(2)).is_none() && tlb.find(1, PageNumber(1)).is_some());
    }

    #[test]
    fn revoked_entries_stay_and_are_marked() {
        let mut tlb = small();
        fill(&mut tlb, 0, 1);
        fill(&mut tlb, 0, 2);
        tlb.revoke(0, PageRange::new(PageNumber(1), 1));
        assert!(tlb.find(0, PageNumber(1)).unwrap().0.revoked);
        assert!(!tlb.find(0, PageNumber(2)).unwrap().0.revoked);
    }
}
