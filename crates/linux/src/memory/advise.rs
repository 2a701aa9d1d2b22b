//! What a program says of how it will use its memory (`madvise`).

use core::ops::Range;

use quietmm::{Advice, Error};

use super::{pages, range};
use crate::areas::{PAGE, What, rights};
use crate::errno::{Answer, Errno};
use crate::kernel::Linux;
use crate::machine::Machine;
use crate::process::{Memory, Thread};

/// Bytes of a large page.
const LARGE: u64 = 2 << 20;

impl<M: Machine> Linux<'_, M> {
    pub(crate) fn madvise(&self, thread: &Thread, [at, bytes, advice, ..]: [u64; 6]) -> Answer {
        self.advise(thread, &thread.memory(), range(at, bytes)?, advice)
    }

    /// What is said of a range, by whoever may.
    pub(super) fn advise(&self, thread: &Thread, memory: &Memory, range: Range<u64>, advice: u64) -> Answer {
        let even_locked = advice == 24;
        let advice = match advice {
            // Usual, at random, in order; not in a core file, or again.
            // And that equal pages may become one, which nobody looks for.
            0..=2 | 12 | 13 | 16 | 17 => None,
            9 => return self.remove_pages(memory, range),
            10 | 11 => return self.mark(memory, range, rights::NOT_FORKED, advice == 10),
            18 | 19 => return self.mark(memory, range, rights::WIPED, advice == 18),
            3 => return self.advise_pages(memory, range, Advice::WillNeed),
            20 => return self.advise_pages(memory, range, Advice::Cold),
            21 => return self.advise_pages(memory, range, Advice::PageOut),
            // Or what is locked as well.
            4 | 24 => Some(Advice::Drop),
            8 => Some(Advice::Free),
            14 => Some(Advice::Large),
            15 => Some(Advice::Small),
            25 => return self.collapse(memory, range),
            22 | 23 => {
                return self.bring(thread, memory, range, advice == 23).map(|()| 0).map_err(
                    |error| match error {
                        Errno::EINVAL => Errno::EFAULT,
                        Errno::EACCES => Errno::EINVAL,
                        other => other,
                    },
                );
            }
            _ => return Err(Errno::EINVAL),
        };
        if advice == Some(Advice::Drop) {
            self.gives_back(memory, range.end - range.start);
        }
        memory.layout.with(self.machine, |layout| {
            let drops = matches!(advice, Some(Advice::Drop | Advice::Free));
            if let Some(advice) = advice {
                let mut at = range.start;
                while let Some((start, area)) = layout.areas.first(&(at..range.end)) {
                    at = area.end;
                    if drops && !even_locked && area.rights & rights::LOCKED != 0 {
                        return Err(Errno::EINVAL);
                    }
                    let is_file = matches!(area.what, What::File { .. });
                    if is_file && advice == Advice::Free {
                        return Err(Errno::EINVAL);
                    }
                    if advice == Advice::Drop || !is_file {
                        self.mm.space(memory.space).advise(pages(&(start..area.end)), advice)?;
                    }
                }
            }
            if range.is_empty() || layout.areas.covers(&range) { Ok(0) } else { Err(Errno::ENOMEM) }
        })
    }

    /// Advice that may have devices waited for: with the layout let go.
    fn advise_pages(&self, memory: &Memory, range: Range<u64>, advice: Advice) -> Answer {
        let layout = &memory.layout;
        let whole = layout.with(self.machine, |layout| range.is_empty() || layout.areas.covers(&range));
        let mut at = range.start;
        while let Some((start, area)) =
            layout.with(self.machine, |layout| layout.areas.first(&(at..range.end)))
        {
            at = area.end;
            if advice != Advice::WillNeed && area.rights & rights::LOCKED != 0 {
                return Err(Errno::EINVAL);
            }
            match self.mm.space(memory.space).advise(pages(&(start..area.end)), advice) {
                // Another thread has unmapped it.
                Ok(()) | Err(Error::NotMapped(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
        if whole { Ok(0) } else { Err(Errno::ENOMEM) }
    }

    /// What is said of a range for when the process forks.
    fn mark(&self, memory: &Memory, range: Range<u64>, what: u8, on: bool) -> Answer {
        memory.layout.with(self.machine, |layout| {
            let mut at = range.start;
            while let Some((start, area)) = layout.areas.first(&(at..range.end)) {
                at = area.end;
                if what == rights::WIPED && on && !matches!(area.what, What::Own(_)) {
                    return Err(Errno::EINVAL);
                }
                layout.areas.mark(&(start..at), what, on);
            }
            if range.is_empty() || layout.areas.covers(&range) { Ok(0) } else { Err(Errno::ENOMEM) }
        })
    }

    /// Makes holes in the files that a range shows with others.
    fn remove_pages(&self, memory: &Memory, range: Range<u64>) -> Answer {
        let layout = &memory.layout;
        let whole = layout.with(self.machine, |layout| range.is_empty() || layout.areas.covers(&range));
        let mut at = range.start;
        while let Some((start, area)) =
            layout.with(self.machine, |layout| layout.areas.first(&(at..range.end)))
        {
            at = area.end;
            let What::File { file, page, shared } = area.what else { return Err(Errno::EINVAL) };
            if area.rights & rights::LOCKED != 0 {
                return Err(Errno::EINVAL);
            }
            if !shared || !file.may_write {
                return Err(Errno::EACCES);
            }
            self.punch(&file.inode, page * PAGE, at - start)?;
        }
        if whole { Ok(0) } else { Err(Errno::ENOMEM) }
    }

    /// Large pages of small ones, in each aligned piece: all of them, or it is said that one was not to be had. Of files those that
    /// lie in memory alone, as on a Linux that reads no others into large pages.
    fn collapse(&self, memory: &Memory, range: Range<u64>) -> Answer {
        let aligned = |range: &Range<u64>| range.start.next_multiple_of(LARGE)..range.end & !(LARGE - 1);
        let layout = &memory.layout;
        let whole = layout.with(self.machine, |layout| range.is_empty() || layout.areas.covers(&range));
        let mut at = range.start;
        while let Some((start, area, all)) = layout.with(self.machine, |layout| {
            let (start, area) = layout.areas.first(&(at..range.end))?;
            Some((start, area, layout.areas.around(start)?))
        }) {
            at = area.end;
            let inner = aligned(&(start..at));
            let fits = match &area.what {
                What::Own(_) => true,
                What::File { file, shared, .. } => *shared && file.inode.is_in_memory(),
            };
            if !fits || aligned(&all).is_empty() || inner.start > inner.end {
                return Err(Errno::EINVAL);
            }
            // Nothing becomes large where nothing is.
            let mut there = [0; (LARGE / PAGE) as usize];
            for piece in inner.clone().step_by(LARGE as usize) {
                let resident =
                    self.mm.space(memory.space).residency(pages(&(piece..piece + LARGE)), &mut there);
                if resident.is_ok() && there.iter().all(|&there| there == 0) {
                    return Err(Errno::EINVAL);
                }
            }
            if inner.is_empty() {
                continue;
            }
            match self.mm.space(memory.space).advise(pages(&inner), Advice::Collapse) {
                // Another thread has unmapped it.
                Ok(()) | Err(Error::NotMapped(_)) => {}
                Err(Error::OutOfMemory) => return Err(Errno::ENOMEM),
                Err(Error::LimitReached(_)) => return Err(Errno::EBUSY),
                Err(_) => return Err(Errno::EINVAL),
            }
        }
        if whole { Ok(0) } else { Err(Errno::ENOMEM) }
    }
}
