//! A zone: a run of frames on one node, and a buddy allocator over it, orders 0 to 10.

use super::limits::{Limits, Pause};
use crate::Manager;
use crate::addr::{FrameNumber, NodeId};
use crate::error::Error;
use crate::kind::Kind;
use crate::memmap::MAX_ORDER;
use crate::memmap::{Chain, Frame, FrameBlock, FrameTable};
use crate::platform::Platform;
use crate::profile::Scope;
use crate::sync::{SpinGuard, SpinLock, Word32, Word64};

/// How many orders there are.
const ORDERS: usize = MAX_ORDER as usize + 1;

/// A zone. The fields that are set at start lie apart from those that every allocation writes.
#[repr(C, align(128))]
pub(crate) struct Zone {
    pub start: FrameNumber,
    pub end: FrameNumber,
    pub node: NodeId,
    pub index: u16,
    marks: Marks,
    /// For the lists of each CPU.
    pub limits: Limits,
    short: Short,
    hot: Hot,
}

/// The watermarks: written where memory comes or goes.
#[repr(C)]
struct Marks {
    min: Word32,
    low: Word32,
    high: Word32,
}

/// Whether the zone fell below low and has not been above high since: a hint, on a line that is read by
/// every allocation and written only when that changes.
#[repr(C, align(64))]
struct Short(Word32);

#[repr(C, align(64))]
struct Hot {
    lock: SpinLock<{ Scope::ZoneLock as u8 }>,
    free: Word64,
    /// The block that is on its way offline: its first frame plus one; plus two while what was retired of one that stays is put back; or 0.
    leaving: Word32,
    /// Frames of it that are retired.
    left: Word32,
    /// Frames of the zone that are offline, or not here yet.
    offline: Word32,
    areas: [Chain; ORDERS],
}

/// Free frames at which something begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Watermarks {
    /// Below it, a task that wants a frame reclaims for itself.
    pub min: u32,
    /// Below it, `kswapd` is woken.
    pub low: u32,
    /// `kswapd` reclaims up to here.
    pub high: u32,
}

impl Zone {
    pub fn init<P: Platform>(&self, p: &P) {
        self.hot.areas.iter().for_each(|area| area.init(p));
    }

    /// Below it, a task that wants a frame reclaims for itself.
    pub fn min<P: Platform>(&self, p: &P) -> u32 {
        self.marks.min.get(p)
    }

    /// Below it, `kswapd` is woken.
    pub fn low<P: Platform>(&self, p: &P) -> u64 {
        self.marks.low.get(p).into()
    }

    /// `kswapd` reclaims up to here.
    pub fn high<P: Platform>(&self, p: &P) -> u64 {
        self.marks.high.get(p).into()
    }

    /// Frames that are here, and not offline.
    pub fn present<P: Platform>(&self, p: &P) -> u32 {
        self.end.0 - self.start.0 - self.hot.offline.get(p)
    }

    /// Whether it has memory, as far as its watermarks know. Without a lock a guess.
    pub fn has_memory<P: Platform>(&self, p: &P) -> bool {
        self.low(p) > 0
    }

    /// At start: none of it is here yet.
    pub fn begin_absent<P: Platform>(&self, p: &P) {
        self.hot.offline.set(p, self.end.0 - self.start.0);
    }

    /// Whether what is out of use is offline, or has left a block that is on its way: of so many frames. For audits of a quiet system.
    pub fn audit_absent<P: Platform>(&self, p: &P, absent: u32) -> bool {
        let leaving = if self.leaving(p).is_some() { self.hot.left.get(p) } else { 0 };
        absent == self.hot.offline.get(p) + leaving
    }

    /// Whether memory is short here: below low, or on the way from there to high.
    pub fn is_short<P: Platform>(&self, p: &P) -> bool {
        self.short.0.get(p) != 0
    }

    /// Free frames; without the lock a guess.
    pub fn free<P: Platform>(&self, p: &P) -> u64 {
        self.hot.free.get(p)
    }

    /// Tasks wait for frames: until the low watermark is reached again, CPUs keep nothing of this zone on their lists.
    pub fn starve<P: Platform>(&self, mm: &Manager<'_, P>) {
        let p = mm.platform();
        if !self.limits.is_paused(p, Pause::Starved) && self.free(p) < self.low(p) {
            let _guard = self.lock(mm);
            self.limits.pause(p, Pause::Starved);
        }
    }

    /// The block that is on its way offline.
    pub fn leaving<P: Platform>(&self, p: &P) -> Option<FrameNumber> {
        self.hot
            .leaving
            .get(p)
            .checked_sub(1)
            .map(FrameNumber)
            .filter(|first| first.0.is_multiple_of(1 << MAX_ORDER))
    }

    pub fn contains(&self, n: FrameNumber) -> bool {
        n >= self.start && n < self.end
    }

    pub fn lock<'a, P: Platform>(&'a self, mm: &'a Manager<'_, P>) -> ZoneGuard<'a, P> {
        ZoneGuard { zone: self, p: mm.platform(), frames: mm.memmap(), _lock: self.hot.lock.lock(mm) }
    }

    /// Takes a block, if taking it leaves `floor` frames.
    pub fn take<P: Platform>(
        &self,
        mm: &Manager<'_, P>,
        order: u8,
        kind: Kind,
        floor: u64,
    ) -> Option<FrameNumber> {
        // A look before the lock: an exhausted zone is passed without moving its lock's line for writing.
        if self.free(mm.platform()) < floor + (1 << order) {
            return None;
        }
        self.lock(mm).take(order, kind, floor)
    }

    /// Its place among all zones.
    pub fn index(&self) -> usize {
        usize::from(self.index)
    }
}

/// A zone with its lock held.
pub(crate) struct ZoneGuard<'a, P: Platform> {
    zone: &'a Zone,
    p: &'a P,
    frames: FrameTable<'a>,
    _lock: SpinGuard<'a, P>,
}

impl<P: Platform> ZoneGuard<'_, P> {
    fn hot(&self) -> &Hot {
        &self.zone.hot
    }

    /// A block, if taking it leaves `floor` frames.
    pub fn take(&self, order: u8, kind: Kind, floor: u64) -> Option<FrameNumber> {
        let (FrameBlock { n, frame }, _) = self.take_up_to(order, order, floor)?;
        frame.set_kind(self.p, kind, order);
        Some(n)
    }

    /// Blocks of an order in one piece, `most` of them or fewer, if taking them leaves `floor` frames: all are the caller's, and of no use yet.
    /// Returns the first one, and how many there are. They are the ones that [`take`](Self::take) would return one by one.
    pub fn take_piece(&self, order: u8, most: u32, floor: u64) -> Option<(FrameNumber, u32)> {
        let left = self.hot().free.get(self.p).checked_sub(floor)?;
        let most = u64::from(most).min(left >> order).checked_ilog2()?;
        let (FrameBlock { n, frame }, taken) = self.take_up_to(order, order + most as u8, floor)?;
        frame.set_kind(self.p, Kind::Tail, 0);
        Some((n, 1 << (taken - order)))
    }

    /// The smallest free block of at least this order, cut down to `most`; and its order.
    fn take_up_to(&self, order: u8, most: u8, floor: u64) -> Option<(FrameBlock<'_>, u8)> {
        let p = self.p;
        let free = self.hot().free.get(p);
        if free < floor + (1 << order) {
            return None;
        }
        let (found, block) = (order..=MAX_ORDER)
            .find_map(|o| Some((o, self.hot().areas[o as usize].pop_front(p, &self.frames)?)))?;
        let taken = found.min(most);
        // Give back the upper halves until the block has the size that is wanted.
        for o in (taken..found).rev() {
            self.insert(block.n.add(1 << o), o);
        }
        self.fewer(taken);
        Some((block, taken))
    }

    /// Counts a block off.
    fn fewer(&self, order: u8) {
        let p = self.p;
        let left = self.hot().free.get(p) - (1 << order);
        self.hot().free.set(p, left);
        if left < self.zone.low(p) && !self.zone.is_short(p) {
            self.zone.short.0.set(p, 1);
        }
    }

    /// From now on what is freed into this block is retired.
    ///
    /// # Errors
    /// [`Error::NoSuchFrame`] if it is out of use; [`Error::Busy`] if a block is on its way, or being put back.
    pub fn begin_leave(&self, first: FrameNumber) -> Result<(), Error> {
        let (p, hot) = (self.p, self.hot());
        let busy = hot.leaving.get(p);
        // Whoever puts a block to use again begins with its first frame: as long as the last is out of use it is not ours to put back.
        let last = self.frames.get(first.add((1 << MAX_ORDER) - 1));
        if last.kind(p) == Kind::Absent && (busy.wrapping_sub(1) ^ first.0) >> MAX_ORDER != 0 {
            return Err(Error::NoSuchFrame(first));
        }
        if busy != 0 {
            return Err(Error::Busy);
        }
        hot.leaving.set(p, first.0 + 1);
        hot.left.set(p, 0);
        self.zone.limits.pause(p, Pause::Leaving);
        Ok(())
    }

    /// Frames of the block on its way that are retired.
    pub fn left(&self) -> u32 {
        self.hot().left.get(self.p)
    }

    /// Ends the block's way if all of its frames are retired; says whether it does.
    pub fn end_leave(&self) -> bool {
        let ends = self.left() == 1 << MAX_ORDER;
        if ends {
            self.hot().leaving.set(self.p, 0);
            self.zone.limits.resume(self.p, Pause::Leaving);
        }
        ends
    }

    /// The block stays: what is freed into it is used again, and whoever gave it up puts back what was retired. Until it
    /// [has](Self::stays) no block begins to leave: it would count as retired what is put back.
    pub fn begin_stay(&self, first: FrameNumber) {
        self.hot().leaving.set(self.p, first.0 + 2);
        self.zone.limits.resume(self.p, Pause::Leaving);
    }

    /// All that was retired is back.
    pub fn stays(&self) {
        self.hot().leaving.set(self.p, 0);
    }

    /// Takes the free block that begins here, if one does, off its list and out of use; returns the frame after it, or the
    /// next one.
    pub fn retire_if_free(&self, n: FrameNumber) -> FrameNumber {
        let state = self.frames.get(n).state.get(self.p);
        if Frame::kind_of(state) != Kind::Free {
            return n.add(1);
        }
        let order = Frame::order_of(state);
        self.hot().areas[order as usize].remove(self.p, &self.frames, n);
        self.fewer(order);
        self.retire(n, order);
        n.add(1 << order)
    }

    fn retire(&self, n: FrameNumber, order: u8) {
        (0..1 << order).for_each(|i| self.frames.get(n.add(i)).retire(self.p));
        self.hot().left.set(self.p, self.left() + (1 << order));
    }

    fn insert(&self, n: FrameNumber, order: u8) {
        let block = self.frames.block(n);
        block.frame.set_kind(self.p, Kind::Free, order);
        self.hot().areas[order as usize].push_front(self.p, &self.frames, block);
    }

    /// Puts a block back and merges it with free buddies.
    pub fn put(&self, n: FrameNumber, order: u8) {
        let p = self.p;
        if self.zone.leaving(p).is_some_and(|block| (n.0 ^ block.0) >> MAX_ORDER == 0) {
            return self.retire(n, order);
        }
        let free = self.hot().free.get(p) + (1 << order);
        self.hot().free.set(p, free);
        self.is_less_short(free);
        let (mut n, mut order) = (n, order);
        while order < MAX_ORDER {
            let buddy = FrameNumber(n.0 ^ (1 << order));
            // A free block lies in the zone as a whole, so its first frame is all that must.
            if !self.zone.contains(buddy) {
                break;
            }
            let Some(frame) = self.frames.find(buddy) else { break };
            let state = frame.state.get(p);
            if Frame::kind_of(state) != Kind::Free || Frame::order_of(state) != order {
                break;
            }
            self.hot().areas[order as usize].remove(p, &self.frames, buddy);
            let upper = n.max(buddy);
            self.frames.get(upper).set_kind(p, Kind::Tail, 0);
            n = n.min(buddy);
            order += 1;
        }
        self.insert(n, order);
    }

    /// So many frames are free, more than before, or fewer are enough.
    fn is_less_short(&self, free: u64) {
        let p = self.p;
        if free >= self.zone.high(p) && self.zone.is_short(p) {
            self.zone.short.0.set(p, 0);
        }
        if free >= self.zone.low(p) && self.zone.limits.is_paused(p, Pause::Starved) {
            self.zone.limits.resume(p, Pause::Starved);
        }
    }

    /// So many more frames are offline, or fewer.
    pub fn count_offline(&self, change: i32) {
        let offline = &self.hot().offline;
        offline.set(self.p, offline.get(self.p).wrapping_add_signed(change));
    }

    /// From now on these are the zone's.
    pub fn set_watermarks(&self, Watermarks { min, low, high }: Watermarks) {
        let (p, zone) = (self.p, self.zone);
        zone.marks.min.set(p, min);
        zone.marks.low.set(p, low);
        zone.marks.high.set(p, high);
        let free = zone.free(p);
        if free < zone.low(p) && !zone.is_short(p) {
            zone.short.0.set(p, 1);
        }
        self.is_less_short(free);
    }

    /// Walks the free lists: the frames on them, and whether every block looks as it should.
    pub fn audit(&self) -> (u64, bool) {
        let (mut total, mut good) = (0, true);
        for (order, area) in self.hot().areas.iter().enumerate() {
            let (mut n, mut len) = (area.first(self.p), 0);
            // At most so many, should the list lead round in a circle.
            while n != FrameNumber::NONE && len <= u64::from(self.zone.end.0 - self.zone.start.0) {
                let state = self.frames.get(n).state.get(self.p);
                good &= Frame::kind_of(state) == Kind::Free
                    && Frame::order_of(state) as usize == order
                    && n.0 % (1 << order) == 0
                    && self.zone.contains(n);
                len += 1;
                n = self.frames.get(n).next(self.p);
            }
            total += len << order;
        }
        (total, good && total == self.hot().free.get(self.p))
    }
}
