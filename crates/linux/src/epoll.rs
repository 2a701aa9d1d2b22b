//! A set of open files that are watched (`epoll`).

use alloc::collections::BTreeMap;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::cell::Cell;
use core::ops::Bound;

use crate::errno::Errno;
use crate::open::{Kind, Open};
use crate::sync::Spin;

/// Reported once for each change.
pub const EDGE: u32 = 1 << 31;
/// Reported once, until it is asked for again.
pub const ONCE: u32 = 1 << 30;
/// Events of whoever writes; all others are of whoever reads.
const WRITES: u32 = 4 | 0x100 | 0x200;
/// One of those who wait is to be woken.
pub const EXCLUSIVE: u32 = 1 << 28;
/// Flags that name no event.
pub const FLAGS: u32 = EDGE | ONCE | 1 << 29 | EXCLUSIVE;
/// Sets in sets in sets.
pub const DEEPEST: u32 = 5;
/// Never reported.
const NEVER: u64 = u64::MAX;

struct Item {
    open: Weak<Open>,
    events: u32,
    data: u64,
    /// How often it had changed when it was reported last.
    reported: u64,
    /// It was reported, and was to be once.
    off: bool,
}

/// By number, and which file that was.
type Key = (u64, usize);

/// Says what a file is ready for, and how often it has changed for whoever reads and for whoever writes, if that is known.
pub type Look<'a> = dyn FnMut(&Arc<Open>) -> (u32, Option<[u64; 2]>) + 'a;

/// Looks at a file, at its changes first: what comes meanwhile is reported with the next look. The other way round it would count as reported, and nobody would hear of it.
pub fn see(
    changes: impl FnOnce() -> Option<[u64; 2]>,
    events: impl FnOnce() -> u32,
) -> (u32, Option<[u64; 2]>) {
    let changes = changes();
    (events(), changes)
}

/// How many files in sets in sets one look may still see. Sets that watch all the same sets could be gone through in more ways
/// than there is time for.
pub struct Looks(Cell<u32>);

impl Default for Looks {
    fn default() -> Looks {
        Looks(Cell::new(65_536))
    }
}

impl Looks {
    /// One more; false if there are no more.
    pub fn take(&self) -> bool {
        let left = self.0.get();
        self.0.set(left.saturating_sub(1));
        left > 0
    }

    /// Whether there are no more.
    pub fn are_over(&self) -> bool {
        self.0.get() == 0
    }
}

/// How often a file has changed for whoever asks for these events.
fn changes_for(changes: [u64; 2], events: u32) -> u64 {
    let writes = events & WRITES != 0;
    let reads = events & !WRITES & !FLAGS != 0 || !writes;
    if reads { changes[0] } else { 0 }.wrapping_add(if writes { changes[1] } else { 0 })
}

/// The set.
#[derive(Default)]
pub struct Epoll(Spin<Items>);

#[derive(Default)]
struct Items {
    all: BTreeMap<Key, Item>,
    /// Whoever was reported last: the next one begins behind it.
    last: Option<Key>,
}

fn key(number: u64, open: &Arc<Open>) -> Key {
    (number, Arc::as_ptr(open).addr())
}

impl Epoll {
    /// One more.
    ///
    /// # Errors
    /// `EEXIST`; `ELOOP`: it would watch itself; `ENOSPC`: as many as may be.
    pub fn add(
        &self,
        own: &Arc<Open>,
        number: u64,
        open: &Arc<Open>,
        events: u32,
        data: u64,
    ) -> Result<(), Errno> {
        /// How many sets one may watch: each takes memory of the kernel's.
        const MOST: usize = 8192;
        if let Kind::Poll(other) = &open.kind
            && (Arc::ptr_eq(own, open) || other.reaches(own, DEEPEST, &Looks::default()))
        {
            return Err(if Arc::ptr_eq(own, open) { Errno::EINVAL } else { Errno::ELOOP });
        }
        self.0.with(|items| {
            // One that ended may have lain where this lies now.
            items.all.retain(|_, item| item.open.strong_count() > 0);
            if items.all.len() >= MOST {
                return Err(Errno::ENOSPC);
            }
            if items.all.contains_key(&key(number, open)) {
                return Err(Errno::EEXIST);
            }
            let item = Item { open: Arc::downgrade(open), events, data, reported: NEVER, off: false };
            items.all.insert(key(number, open), item);
            Ok(())
        })
    }

    /// A line for each that is watched, as `/proc` has it.
    pub fn describe(&self) -> alloc::string::String {
        let all: Vec<_> = self.0.with(|items| {
            let one =
                |(key, item): (&Key, &Item)| Some((key.0, item.open.upgrade()?, item.events, item.data));
            items.all.iter().filter_map(one).collect()
        });
        let line = |(number, open, events, data): &(u64, Arc<Open>, u32, u64)| {
            let inode = open.inode().map_or_else(|| open.number(), |inode| inode.number);
            alloc::format!(
                "tfd: {number:8} events: {events:8x} data: {data:16x}  pos:0 ino:{inode:x} sdev:0\n"
            )
        };
        all.iter().map(line).collect()
    }

    /// Other events of one that is there.
    ///
    /// # Errors
    /// `ENOENT`; `EINVAL`: it was for one alone.
    pub fn change(&self, number: u64, open: &Arc<Open>, events: u32, data: u64) -> Result<(), Errno> {
        self.0.with(|items| {
            let item = items.all.get_mut(&key(number, open)).ok_or(Errno::ENOENT)?;
            if item.events & EXCLUSIVE != 0 {
                return Err(Errno::EINVAL);
            }
            *item = Item { open: Arc::downgrade(open), events, data, reported: NEVER, off: false };
            Ok(())
        })
    }

    /// No more of it.
    ///
    /// # Errors
    /// `ENOENT`.
    pub fn remove(&self, number: u64, open: &Arc<Open>) -> Result<(), Errno> {
        self.0.with(|items| items.all.remove(&key(number, open)).map(drop).ok_or(Errno::ENOENT))
    }

    /// What is watched.
    fn members(&self) -> Vec<Arc<Open>> {
        self.0.with(|items| items.all.values().filter_map(|item| item.open.upgrade()).collect())
    }

    /// Whether this watches a set, itself or through others. Too deep counts as yes, and so does too wide.
    fn reaches(&self, other: &Arc<Open>, depth: u32, looks: &Looks) -> bool {
        let found = |open: &Arc<Open>| match &open.kind {
            _ if !looks.take() => true,
            Kind::Poll(inner) => {
                depth == 0 || Arc::ptr_eq(open, other) || inner.reaches(other, depth - 1, looks)
            }
            _ => false,
        };
        self.members().iter().any(found)
    }

    /// Events and data of up to `most` that are ready. Whoever is left out comes first the next time.
    pub fn collect(&self, most: usize, look: &mut Look<'_>) -> Vec<(u32, u64)> {
        let mut found = Vec::new();
        let mut held = Vec::new();
        self.0.with(|items| {
            let Items { all, last } = items;
            let from = last.map_or(Bound::Unbounded, Bound::Excluded);
            let mut keys: Vec<Key> = all.range((from, Bound::Unbounded)).map(|(&key, _)| key).collect();
            if let Some(last) = *last {
                keys.extend(all.range(..=last).map(|(&key, _)| key));
            }
            for key in keys {
                if found.len() == most {
                    break;
                }
                let Some(item) = all.get_mut(&key).filter(|item| !item.off) else { continue };
                let Some(open) = item.open.upgrade() else { continue };
                let (events, changes) = look(&open);
                // Let go outside the lock: it may be the last.
                held.push(open);
                let events = events & (item.events & !FLAGS | 0x18);
                let changes = changes.map(|changes| changes_for(changes, item.events));
                if events == 0 || item.events & EDGE != 0 && changes == Some(item.reported) {
                    continue;
                }
                item.reported = changes.unwrap_or(NEVER);
                item.off = item.events & ONCE != 0;
                found.push((events, item.data));
                *last = Some(key);
            }
            all.retain(|_, item| item.open.strong_count() > 0);
        });
        found
    }

    /// Whether any is ready, as [`collect`](Self::collect) would find it, without a change.
    pub fn is_ready(&self, look: &mut Look<'_>) -> bool {
        let mut held = Vec::new();
        self.0.with(|items| {
            items.all.values().filter(|item| !item.off).any(|item| {
                let Some(open) = item.open.upgrade() else { return false };
                let (events, changes) = look(&open);
                held.push(open);
                let changes = changes.map(|changes| changes_for(changes, item.events));
                events & (item.events & !FLAGS | 0x18) != 0
                    && !(item.events & EDGE != 0 && changes == Some(item.reported))
            })
        })
    }

    /// The first that `of` says of what is watched.
    pub fn first(&self, of: &dyn Fn(&Open) -> Option<u64>) -> Option<u64> {
        self.members().iter().filter_map(|open| of(open)).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::open::Counter;

    fn counter() -> Arc<Open> {
        Open::new(Kind::Event(Counter::new(0, false)), 2, Vec::new())
    }

    fn set() -> Arc<Open> {
        Open::new(Kind::Poll(Epoll::default()), 2, Vec::new())
    }

    fn of(open: &Arc<Open>) -> &Epoll {
        match &open.kind {
            Kind::Poll(epoll) => epoll,
            _ => panic!("a set"),
        }
    }

    #[test]
    fn all_that_are_ready_have_their_turn() {
        let (own, files) = (set(), [0; 5].map(|_| counter()));
        for (number, file) in files.iter().enumerate() {
            of(&own).add(&own, number as u64, file, 1, number as u64).unwrap();
        }
        let mut ready = |_: &Arc<Open>| (1, None);
        let mut seen: Vec<u64> =
            (0..5).flat_map(|_| of(&own).collect(2, &mut ready)).map(|(_, data)| data).collect();
        assert_eq!(seen, [0, 1, 2, 3, 4, 0, 1, 2, 3, 4]);
        seen.clear();
        drop(files);
        assert!(of(&own).collect(9, &mut ready).is_empty(), "what is closed is not watched");
    }

    #[test]
    fn an_edge_is_reported_for_each_change_and_once_is_once() {
        let (own, file) = (set(), counter());
        of(&own).add(&own, 3, &file, 1 | EDGE, 9).unwrap();
        assert_eq!(of(&own).add(&own, 3, &file, 1, 9), Err(Errno::EEXIST));
        for (changes, reported) in [(1, 1), (1, 0), (2, 1), (2, 0)] {
            let mut look = |_: &Arc<Open>| (1, Some([changes, 7 * changes]));
            assert_eq!(of(&own).is_ready(&mut look), reported == 1);
            assert_eq!(of(&own).collect(9, &mut look).len(), reported);
        }
        of(&own).change(3, &file, 1 | ONCE, 9).unwrap();
        let mut look = |_: &Arc<Open>| (1, Some([2, 0]));
        assert_eq!([0; 2].map(|_| of(&own).collect(9, &mut look).len()), [1, 0]);
        of(&own).remove(3, &file).unwrap();
        assert_eq!(of(&own).remove(3, &file), Err(Errno::ENOENT));
    }

    #[test]
    fn who_reads_hears_of_no_room_and_who_writes_of_no_bytes() {
        let (own, file) = (set(), counter());
        of(&own).add(&own, 3, &file, 1 | EDGE, 9).unwrap();
        of(&own).add(&own, 4, &file, 4 | EDGE, 9).unwrap();
        for (changes, reported) in [([1, 1], 2), ([1, 1], 0), ([2, 1], 1), ([2, 2], 1), ([2, 2], 0)] {
            assert_eq!(of(&own).collect(9, &mut |_| (5, Some(changes))).len(), reported, "{changes:?}");
        }
    }

    #[test]
    fn what_comes_while_it_is_looked_is_reported_with_the_next_look() {
        let (own, file) = (set(), counter());
        of(&own).add(&own, 3, &file, 5 | EDGE, 9).unwrap();
        // There is room all the time, and something comes between the first thing that is looked at and the second.
        for comes in [1, 2, 3] {
            let came = Cell::new(comes - 1);
            let (first, room) = (Cell::new(true), 4);
            let now = || came.replace(if first.replace(false) { comes } else { came.get() });
            let mut look =
                |_: &Arc<Open>| see(|| Some([now(), 0]), || room | if now() == comes { 1 } else { 0 });
            let mut seen = of(&own).collect(9, &mut look);
            seen.extend(of(&own).collect(9, &mut look));
            assert!(seen.iter().any(|(events, _)| events & 1 != 0), "{comes}: {seen:?}");
            assert!(of(&own).collect(9, &mut look).is_empty(), "{comes}");
        }
    }

    /// Sixteen sets on each of five floors, and each watches all of the next: a million ways down.
    #[test]
    fn sets_that_watch_all_the_same_sets_are_looked_at_in_a_bounded_time() {
        let floors: Vec<Vec<_>> = (0..5).map(|_| (0..16).map(|_| set()).collect()).collect();
        for (above, below) in floors.iter().zip(&floors[1..]) {
            for (own, (number, inner)) in
                above.iter().flat_map(|own| below.iter().enumerate().map(move |at| (own, at)))
            {
                of(own).add(own, number as u64, inner, 1, 0).unwrap();
            }
        }
        // From the lowest floor all others would be gone through.
        let (top, wide) = (set(), &floors[0][0]);
        assert_eq!(of(&top).add(&top, 0, wide, 1, 0), Err(Errno::ELOOP));
        let looks = Looks::default();
        assert!((0..65_536).all(|_| looks.take()) && looks.are_over() && !looks.take());
    }

    #[test]
    fn no_set_watches_itself() {
        let (a, b, c) = (set(), set(), set());
        assert_eq!(of(&a).add(&a, 0, &a, 1, 0), Err(Errno::EINVAL));
        of(&a).add(&a, 0, &b, 1, 0).unwrap();
        of(&b).add(&b, 0, &c, 1, 0).unwrap();
        assert_eq!(of(&c).add(&c, 0, &a, 1, 0), Err(Errno::ELOOP));
    }
}
