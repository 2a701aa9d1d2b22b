//! What a program says of how it will use its memory (`madvise`).

use core::ops::Range;

use quietmm::{Advice, Error};

use super::{pages, range};
use crate::areas::{What, rights};
use crate::errno::{Answer, Errno};
use crate::kernel::Linux;
use crate::machine::Machine;
use crate::open::Kind;
use crate::process::{Memory, Thread};

/// Bytes of a large page.
const LARGE: u64 = 2 << 20;

impl<M: Machine> Linux<'_, M> {
    pub(crate) fn madvise(&self, thread: &Thread, [at, bytes, advice, ..]: [u64; 6]) -> Answer {
        let range = range(at, bytes)?;
        let memory = thread.memory();
        let advice = match advice {
            // Usual, at random, in order; not in a core file, or again.
            0..=2 | 16 | 17 => None,
            3 => return self.advise_pages(&memory, range, Advice::WillNeed),
            20 => return self.advise_pages(&memory, range, Advice::Cold),
            21 => return self.advise_pages(&memory, range, Advice::PageOut),
            4 => Some(Advice::Drop),
            8 => Some(Advice::Free),
            14 => Some(Advice::Large),
            15 => Some(Advice::Small),
            25 => return self.collapse(&memory, range),
            22 | 23 => {
                return self.bring(thread, &memory, range, advice == 23).map(|()| 0).map_err(|error| {
                    match error {
                        Errno::EINVAL => Errno::EFAULT,
                        other => other,
                    }
                });
            }
            _ => return Err(Errno::EINVAL),
        };
        if advice == Some(Advice::Drop) {
            self.gives_back(&memory, range.end - range.start);
        }
        memory.layout.with(self.machine, |layout| {
            let drops = matches!(advice, Some(Advice::Drop | Advice::Free));
            if drops && layout.areas.is_locked(&range) {
                return Err(Errno::EINVAL);
            }
            if let Some(advice) = advice {
                let mut at = range.start;
                while let Some((start, area)) = layout.areas.first(&(at..range.end)) {
                    at = area.end;
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

    /// Large pages of small ones, in each aligned piece: all of them, or it is said that one was not to be had. Where nothing is yet
    /// nothing is done, and that is well; Linux says `EINVAL`.
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
            if matches!(area.what, What::File { .. }) || aligned(&all).is_empty() || inner.start > inner.end {
                return Err(Errno::EINVAL);
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

    /// Advice about the memory of another process, or of one's own; says for how many bytes it was taken.
    pub(crate) fn process_madvise(
        &self,
        thread: &Thread,
        [number, at, count, advice, flags]: [u64; 5],
    ) -> Answer {
        if flags != 0 {
            return Err(Errno::EINVAL);
        }
        let vectors = self.vectors(at, count)?;
        let process = match &self.open_file(thread, number)?.kind {
            Kind::Process(process) => process.clone(),
            _ => return Err(Errno::EBADF),
        };
        let advice = match advice {
            3 => Advice::WillNeed,
            20 => Advice::Cold,
            21 => Advice::PageOut,
            25 => Advice::Collapse,
            _ => return Err(Errno::EINVAL),
        };
        let memory = process.memory.with(|memory| memory.clone()).ok_or(Errno::ESRCH)?;
        let mut done = 0;
        for (at, bytes) in vectors {
            let advised = range(at, bytes).and_then(|range| match advice {
                Advice::Collapse => self.collapse(&memory, range),
                _ => self.advise_pages(&memory, range, advice),
            });
            match advised {
                Ok(_) => done += bytes,
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
            }
        }
        Ok(done)
    }
}
