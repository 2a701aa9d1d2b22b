//! Whether slabs are what their pool says of them: for audits of a quiet system.

use super::{Goes, LIVE, PER_DIRECTORY, Pool, Pooled, named, word_in};
use crate::Manager;
use crate::memmap::List;
use crate::platform::Platform;

impl<T: Pooled> Pool<T> {
    /// Whether each slab has as many slots in use, and as many free ones on its list, as it says, and is on the list on which it
    /// must be.
    pub fn audit<P: Platform>(&self, mm: &Manager<'_, P>) -> bool {
        let (p, frames) = (mm.platform(), mm.memmap());
        let (mut slabs, mut open, mut idle, mut good) = (0, 0, 0, true);
        let end = self.numbers.end(p);
        for (first, word) in (0..end).step_by(PER_DIRECTORY as usize).zip(&self.directories) {
            let Some(directory) = named(word.get(p)) else { continue };
            let mut below = 0;
            for number in first..end.min(first + PER_DIRECTORY) {
                let Some(n) = named(word_in(p, directory, number).get(p)) else { continue };
                let slab = frames.get(n);
                let used = slab.refs.get(p);
                let free = self.free_slots(mm, n);
                below += 1;
                open += u64::from(used > 0 && free > 0);
                idle += u64::from(used == 0);
                good &= slab.owner.get(p) == number && used + free == Self::PER_SLAB;
            }
            good &= frames.get(directory).refs.get(p) == below;
            slabs += below;
        }
        good && (T::GOES == Goes::Never || self.slabs.get(p) == slabs)
            && Self::audit_list(mm, &self.open, open, |used| 0 < used && used < Self::PER_SLAB)
            && Self::audit_list(mm, &self.idle, idle, |used| used == 0)
    }

    /// Slots of a slab that are on its list; more than there are if one of them is in use, or those that are on none are not.
    fn free_slots<P: Platform>(&self, mm: &Manager<'_, P>, n: crate::addr::FrameNumber) -> u32 {
        let p = mm.platform();
        let live = (0..Self::PER_SLAB).filter(|&place| Self::slot_in(p, n, place).link().0.get(p) == LIVE);
        let (live, mut free) = (live.count() as u32, 0);
        let mut next = mm.memmap().get(n).maps.get(p);
        while let Some(place) = next.checked_sub(1)
            && place < Self::PER_SLAB
            && free <= Self::PER_SLAB
        {
            next = Self::slot_in(p, n, place).link().0.get(p);
            free += 1;
        }
        if next == 0 && live + free == Self::PER_SLAB { free } else { Self::PER_SLAB + 1 }
    }

    fn audit_list<P: Platform>(
        mm: &Manager<'_, P>,
        list: &List,
        slabs: u64,
        belongs: impl Fn(u32) -> bool,
    ) -> bool {
        let (p, frames) = (mm.platform(), mm.memmap());
        let (mut n, mut len) = (list.first(p), 0);
        while n != crate::addr::FrameNumber::NONE && len <= slabs && belongs(frames.get(n).refs.get(p)) {
            len += 1;
            n = frames.get(n).next(p);
        }
        n == crate::addr::FrameNumber::NONE && len == slabs && list.len(p) == slabs
    }
}
