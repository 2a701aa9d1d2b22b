//! The TLB of a simulated CPU: two levels of sets and ways for small pages, an array for large ones, address-space
//! tags. Entries of kernel addresses are global: they have a tag of their own, which is no space's, so they outlive loads and
//! flushes of spaces.
//!
//! An entry remembers when it was filled, so that a use of it after its frame was freed is seen.

use quietmm::addr::{FrameNumber, PageNumber, PageRange};

use crate::machine;
use crate::walks::WalkCache;

/// Small pages in a large one.
pub const LARGE_PAGES: u64 = 512;

/// What a TLB entry says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Translation {
    /// The frame; of a large page in the TLB, its first one.
    pub frame: FrameNumber,
    /// When it was filled, by the account's clock ([`crate::truth::Truth::now`]).
    pub filled: u64,
    /// The table entry allowed writes then.
    pub writable: bool,
    /// It allowed instructions to be fetched then.
    pub executable: bool,
    /// The table entry's dirty bit was set when it was filled or since: writes do not walk again.
    pub dirty: bool,
    /// An operation that took this mapping away has returned: any use is stale.
    pub revoked: bool,
}

/// A cached translation of a small page.
#[derive(Clone, Copy)]
struct Cached {
    /// Tag in the upper bits, page number below; `EMPTY` when the slot is free.
    key: u64,
    to: Translation,
    /// Time of the last use, for replacement.
    used: u32,
}

/// One of a large page.
struct CachedLarge {
    /// As in [`Cached`], with the page number / 512.
    key: u64,
    to: Translation,
    /// `to.revoked` of each small page in it.
    revoked: [u64; LARGE_PAGES as usize / 64],
    used: u32,
}

pub(crate) const EMPTY: u64 = u64::MAX;
/// Pages that are looked up one by one, where more are found by a look at every entry.
const FEW: u64 = 64;
pub(crate) const TAG_SHIFT: u32 = 40;
/// The tag of global entries: no space has it, x86 has 12 bits of tags.
pub(crate) const GLOBAL: u16 = u16::MAX;

/// What an entry keeps of a page's number. The bits above are those of the sign: all kernel pages have the same.
const fn kept(page: PageNumber) -> u64 {
    page.0 & ((1 << TAG_SHIFT) - 1)
}

pub(crate) fn key(tag: u16, page: PageNumber) -> u64 {
    u64::from(tag) << TAG_SHIFT | kept(page)
}

fn large_key(tag: u16, page: PageNumber) -> u64 {
    key(tag, PageNumber(page.0 / LARGE_PAGES))
}

fn page_of(key: u64) -> PageNumber {
    PageNumber(kept(PageNumber(key)))
}

pub(crate) fn tag_of(key: u64) -> u64 {
    key >> TAG_SHIFT
}

/// Sets of ways, the least recently used of a set goes first.
struct Level {
    slots: Vec<Cached>,
    ways: usize,
    sets: u64,
}

impl Level {
    fn new(entries: u32, ways: u32) -> Level {
        let to = Translation {
            frame: FrameNumber::NONE,
            filled: 0,
            writable: false,
            executable: false,
            dirty: false,
            revoked: false,
        };
        let none = Cached { key: EMPTY, to, used: 0 };
        let ways = ways.max(1) as usize;
        Level { slots: vec![none; entries as usize], ways, sets: (entries as u64 / ways as u64).max(1) }
    }

    fn set(&mut self, page: PageNumber) -> &mut [Cached] {
        if self.slots.is_empty() {
            return &mut [];
        }
        let first = (kept(page) % self.sets) as usize * self.ways;
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

    /// Says how many.
    fn drop_where(&mut self, mut which: impl FnMut(&Cached) -> bool) -> u64 {
        let found = self.slots.iter_mut().filter(|slot| slot.key != EMPTY && which(slot));
        found.map(|slot| slot.key = EMPTY).count() as u64
    }
}

/// Entries for large pages, fully associative.
struct Large {
    slots: Vec<CachedLarge>,
    most: usize,
}

impl Large {
    fn find(&mut self, key: u64) -> Option<&mut CachedLarge> {
        self.slots.iter_mut().find(|slot| slot.key == key)
    }

    fn insert(&mut self, entry: CachedLarge) {
        if self.slots.len() < self.most {
            self.slots.push(entry);
        } else if let Some(victim) = self.slots.iter_mut().min_by_key(|slot| slot.used) {
            *victim = entry;
        }
    }

    fn drop_where(&mut self, which: impl Fn(&CachedLarge) -> bool) -> u64 {
        let before = self.slots.len();
        self.slots.retain(|slot| !which(slot));
        (before - self.slots.len()) as u64
    }
}

/// Where a translation was found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hit {
    /// In the first level, or among the large pages: its time is part of the access.
    First,
    /// In the second.
    Second,
}

/// One CPU's TLB.
pub struct Tlb {
    first: Level,
    second: Level,
    large: Large,
    /// What the walker remembers of upper tables.
    pub walks: WalkCache,
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
            large: Large { slots: Vec::new(), most: shape.large_entries as usize },
            walks: WalkCache::new(shape.walk_cache),
            clock: 0,
            live: false,
        }
    }

    fn tick(&mut self) -> u32 {
        self.clock = self.clock.wrapping_add(1).max(1);
        self.clock
    }

    /// Looks a small page up, by itself or as part of a large one; a hit in the second level moves it to the first.
    pub fn find(&mut self, tag: u16, page: PageNumber) -> Option<(Translation, Hit)> {
        let (key, used) = (key(tag, page), self.tick());
        if let Some(entry) = self.first.find(key, page) {
            entry.used = used;
            return Some((entry.to, Hit::First));
        }
        if let Some(large) = self.large.find(large_key(tag, page)) {
            large.used = used;
            let at = page.0 % LARGE_PAGES;
            let revoked = large.revoked[at as usize / 64] >> (at % 64) & 1 != 0;
            return Some((
                Translation { frame: large.to.frame.add(at as u32), revoked, ..large.to },
                Hit::First,
            ));
        }
        let slot = self.second.find(key, page)?;
        let found = Cached { used, ..*slot };
        slot.key = EMPTY;
        self.place(page, found);
        Some((found.to, Hit::Second))
    }

    /// Fills in a translation of a small page.
    pub fn fill(&mut self, tag: u16, page: PageNumber, to: Translation) {
        self.flush_page(tag, page);
        let used = self.tick();
        self.live = true;
        self.place(page, Cached { key: key(tag, page), to, used });
    }

    /// Fills in the large page that covers `page`; `to` leads to its first frame.
    pub fn fill_large(&mut self, tag: u16, page: PageNumber, to: Translation) {
        self.flush_page(tag, page);
        let used = self.tick();
        self.live = true;
        self.large.insert(CachedLarge { key: large_key(tag, page), to, revoked: [0; 8], used });
    }

    fn place(&mut self, page: PageNumber, entry: Cached) {
        if let Some(out) = self.first.insert(page, entry) {
            self.second.insert(page_of(out.key), out);
        }
    }

    /// The CPU wrote through the entry of a page and notes in it, and there only, that it is dirty.
    pub fn set_dirty(&mut self, tag: u16, page: PageNumber) {
        if let Some(entry) = self.first.find(key(tag, page), page) {
            entry.to.dirty = true;
        } else if let Some(large) = self.large.find(large_key(tag, page)) {
            large.to.dirty = true;
        }
    }

    /// INVLPG, but for what the walker remembers: the page, and with it the large one that covers it. Says how many entries.
    pub fn flush_page(&mut self, tag: u16, page: PageNumber) -> u64 {
        let key = key(tag, page);
        let mut found = 0;
        for level in [&mut self.first, &mut self.second] {
            if let Some(slot) = level.find(key, page) {
                slot.key = EMPTY;
                found += 1;
            }
        }
        let large = large_key(tag, page);
        found + self.large.drop_where(|slot| slot.key == large)
    }

    /// Everything of a tag, but for what the walker remembers. Says how many entries.
    pub fn flush_tag(&mut self, tag: u16) -> u64 {
        if !self.live {
            return 0;
        }
        let tag = u64::from(tag);
        self.first.drop_where(|slot| tag_of(slot.key) == tag)
            + self.second.drop_where(|slot| tag_of(slot.key) == tag)
            + self.large.drop_where(|slot| tag_of(slot.key) == tag)
    }

    /// Marks all entries of a tag in a range: whoever uses them from now on uses a stale one. Of a large page only
    /// what lies in the range. With `writes` only those through which a write would not walk again.
    pub fn revoke(&mut self, tag: u16, range: PageRange, writes: bool) {
        if !self.live {
            return;
        }
        let hit = |to: &Translation| !writes || to.dirty && to.writable;
        for level in [&mut self.first, &mut self.second] {
            if range.pages <= FEW {
                for page in (range.start.0..range.end().0).map(PageNumber) {
                    if let Some(slot) = level.find(key(tag, page), page).filter(|slot| hit(&slot.to)) {
                        slot.to.revoked = true;
                    }
                }
                continue;
            }
            for slot in level.slots.iter_mut().filter(|slot| slot.key != EMPTY && hit(&slot.to)) {
                if tag_of(slot.key) == u64::from(tag) && range.contains(page_of(slot.key)) {
                    slot.to.revoked = true;
                }
            }
        }
        let tagged = |large: &&mut CachedLarge| tag_of(large.key) == u64::from(tag) && hit(&large.to);
        for large in self.large.slots.iter_mut().filter(tagged) {
            let whole = PageRange::new(PageNumber(page_of(large.key).0 * LARGE_PAGES), LARGE_PAGES);
            if let Some(part) = whole.intersect(range) {
                for at in part.start.0 - whole.start.0..part.end().0 - whole.start.0 {
                    large.revoked[at as usize / 64] |= 1 << (at % 64);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(large_entries: u32) -> machine::Tlb {
        machine::Tlb {
            l1_entries: 4,
            l1_ways: 2,
            l2_entries: 8,
            l2_ways: 2,
            large_entries,
            tags: 2,
            walk_cache: 2,
            broadcast_pages: 0,
        }
    }

    fn small() -> Tlb {
        Tlb::new(&shape(2))
    }

    fn to(frame: u32) -> Translation {
        Translation {
            frame: FrameNumber(frame),
            filled: 0,
            writable: true,
            executable: false,
            dirty: false,
            revoked: false,
        }
    }

    fn fill(tlb: &mut Tlb, tag: u16, page: u64) {
        tlb.fill(tag, PageNumber(page), to(page as u32));
    }

    fn frame(tlb: &mut Tlb, tag: u16, page: u64) -> Option<u32> {
        tlb.find(tag, PageNumber(page)).map(|(to, _)| to.frame.0)
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
    fn global_entries_outlive_the_flush_of_a_space() {
        // Three sets: the bits above those that are kept would change a page's set.
        let mut tlb = Tlb::new(&machine::Tlb { l1_entries: 6, l2_entries: 12, ..shape(2) });
        let page = PageNumber(PageNumber::KERNEL_START.0 + 5);
        tlb.fill(GLOBAL, page, to(5));
        for n in [8, 11, 14, 17] {
            tlb.fill(GLOBAL, PageNumber(PageNumber::KERNEL_START.0 + n), to(n as u32));
        }
        fill(&mut tlb, 0, 5);
        tlb.flush_tag(0);
        assert!(tlb.find(0, PageNumber(5)).is_none());
        assert_eq!(tlb.find(GLOBAL, page).map(|(to, hit)| (to.frame.0, hit)), Some((5, Hit::Second)));
        tlb.flush_page(GLOBAL, page);
        assert!(tlb.find(GLOBAL, page).is_none());
        tlb.flush_tag(GLOBAL);
        assert!(tlb.find(GLOBAL, PageNumber(page.0 + 12)).is_none());
    }

    #[test]
    fn revoked_entries_stay_and_are_marked() {
        let mut tlb = small();
        fill(&mut tlb, 0, 1);
        fill(&mut tlb, 0, 2);
        tlb.revoke(0, PageRange::new(PageNumber(1), 1), false);
        assert!(tlb.find(0, PageNumber(1)).unwrap().0.revoked);
        assert!(!tlb.find(0, PageNumber(2)).unwrap().0.revoked);
    }

    #[test]
    fn a_large_entry_serves_its_512_pages_and_goes_with_a_flush_of_any() {
        let mut tlb = small();
        tlb.fill_large(0, PageNumber(1024 + 7), to(5120));
        assert_eq!(frame(&mut tlb, 0, 1024), Some(5120));
        assert_eq!(frame(&mut tlb, 0, 1535), Some(5631));
        assert_eq!(frame(&mut tlb, 0, 1536), None);
        assert_eq!(frame(&mut tlb, 1, 1024), None, "another tag is another space");
        tlb.flush_page(0, PageNumber(1300));
        assert_eq!(frame(&mut tlb, 0, 1024), None);

        tlb.fill_large(0, PageNumber(0), to(0));
        tlb.fill_large(1, PageNumber(0), to(512));
        tlb.flush_tag(0);
        assert_eq!((frame(&mut tlb, 0, 3), frame(&mut tlb, 1, 3)), (None, Some(515)));
    }

    #[test]
    fn the_large_entry_that_was_not_used_longest_goes_first() {
        let mut tlb = small();
        tlb.fill_large(0, PageNumber(0), to(0));
        tlb.fill_large(0, PageNumber(512), to(512));
        assert!(frame(&mut tlb, 0, 0).is_some());
        tlb.fill_large(0, PageNumber(1024), to(1024));
        assert!(frame(&mut tlb, 0, 0).is_some() && frame(&mut tlb, 0, 512).is_none());
        let mut none = Tlb::new(&shape(0));
        none.fill_large(0, PageNumber(0), to(0));
        assert!(frame(&mut none, 0, 0).is_none(), "a TLB without large entries caches none");
    }

    #[test]
    fn a_range_revokes_only_its_part_of_a_large_entry() {
        let mut tlb = small();
        tlb.fill_large(0, PageNumber(512), to(512));
        tlb.revoke(0, PageRange::new(PageNumber(500), 77), false);
        let revoked: Vec<u64> =
            (512..1024).filter(|&page| tlb.find(0, PageNumber(page)).unwrap().0.revoked).collect();
        assert_eq!(revoked, (512..577).collect::<Vec<_>>());
    }
}
