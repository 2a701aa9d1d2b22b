//! What CPUs want of each other: the inbox of each, and its request. `ipi.rs` carries it out.

use crate::addr::{Generation, PageNumber, PageRange};
use crate::cpu::MAX_CPUS;
use crate::handle::SpaceSlot;
use crate::platform::Hooks;
use crate::sync::{Word32, Word64};

/// The CPUs that want something of this one.
#[repr(C, align(64))]
pub(crate) struct Inbox {
    /// One bit per word of `senders` that may hold a bit.
    pub summary: Word64,
    pub senders: [Word64; (MAX_CPUS / 64) as usize],
}

impl Inbox {
    pub fn is_empty<P: Hooks>(&self, p: &P) -> bool {
        self.senders.iter().all(|word| word.get(p) == 0)
    }
}

/// What a CPU wants of others, packed into three words of one line. Written only while nobody still owes an
/// acknowledgement.
#[repr(C, align(64))]
pub(crate) struct IpiRequest {
    /// The space plus one, and `TABLES`; 0 asks for everything that user addresses may have left, `DRAIN` for the frames
    /// on its lists, `DRAIN_LRU` for the pages bound for their lists.
    space: Word64,
    /// The first page, and in the low bits how many; 0 pages are the whole space.
    range: Word64,
    generation: Word64,
    pub awaited: Awaited,
}

/// Page tables go too: lazy CPUs must let go of the space.
const TABLES: u64 = 1 << 32;
/// No flush: the frames on the CPU's lists.
const DRAIN: u64 = 1 << 33;
/// No flush: the pages bound for their lists.
const DRAIN_LRU: u64 = 1 << 34;
/// No space: what a sweep wants, of user or of kernel addresses.
const SWEEP: u64 = 1 << 35;
const KERNEL_SWEEP: u64 = 1 << 36;
/// Instead of a space: kernel addresses.
const KERNEL: u64 = 1 << 40;
/// The part of a kernel page's number that differs from one to another.
const KERNEL_PAGE: u64 = (1 << 36) - 1;
/// Room for the pages of a range. A longer one is above every ceiling: it stands as the whole space.
const PAGES: u64 = (1 << 20) - 1;

/// Apart from the request: the targets read that and write this.
#[repr(C, align(64))]
pub(crate) struct Awaited(pub Word32);

/// What can be asked of other CPUs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Work {
    /// Give up the free frames on the CPU's lists, to whoever asks.
    Drain,
    /// Give up the pages that are bound for their lists, to whoever asks.
    DrainLru,
    /// Flush everything that user addresses may have left.
    FlushAll,
    /// Flush a range of a space (`None`: all of it), which brings a CPU that has seen everything before up to
    /// this generation.
    Flush { space: SpaceSlot, range: Option<PageRange>, generation: Generation, tables: bool },
    /// Take part in the sweep that is under way.
    Sweep,
    /// The same of kernel addresses.
    KernelSweep,
    /// A range of kernel addresses (`None`: all of them), whatever space is loaded.
    Kernel(Option<PageRange>),
}

impl IpiRequest {
    /// Whether nobody still owes an acknowledgement. On a quiet system.
    pub fn audit_answered<P: Hooks>(&self, p: &P) -> bool {
        self.awaited.0.get(p) == 0
    }

    pub fn write<P: Hooks>(&self, p: &P, work: Work) {
        let (space, range, generation, tables) = match work {
            Work::Drain => return self.space.set(p, DRAIN),
            Work::DrainLru => return self.space.set(p, DRAIN_LRU),
            Work::FlushAll => return self.space.set(p, 0),
            Work::Sweep => return self.space.set(p, SWEEP),
            Work::KernelSweep => return self.space.set(p, KERNEL_SWEEP),
            Work::Kernel(range) => {
                let short = range.filter(|range| range.pages <= PAGES);
                let place =
                    |range: PageRange| (range.start.0 & KERNEL_PAGE) << PAGES.count_ones() | range.pages;
                self.range.set(p, short.map_or(0, place));
                return self.space.set(p, KERNEL);
            }
            Work::Flush { space, range, generation, tables } => (space, range, generation, tables),
        };
        let short = range.filter(|range| range.pages <= PAGES);
        self.space.set(p, (u64::from(space.0) + 1) | if tables { TABLES } else { 0 });
        self.range.set(p, short.map_or(0, |range| range.start.0 << PAGES.count_ones() | range.pages));
        self.generation.set(p, generation.0);
    }

    pub fn read<P: Hooks>(&self, p: &P) -> Work {
        let word = self.space.get(p);
        if word == KERNEL {
            let range = self.range.get(p);
            let start = PageNumber(range >> PAGES.count_ones() | PageNumber::KERNEL_START.0);
            return Work::Kernel((range & PAGES != 0).then(|| PageRange::new(start, range & PAGES)));
        }
        if word & DRAIN != 0 {
            return Work::Drain;
        }
        if word & DRAIN_LRU != 0 {
            return Work::DrainLru;
        }
        if word & SWEEP != 0 {
            return Work::Sweep;
        }
        if word & KERNEL_SWEEP != 0 {
            return Work::KernelSweep;
        }
        let Some(space) = (word as u32).checked_sub(1) else {
            return Work::FlushAll;
        };
        let range = self.range.get(p);
        let (start, pages) = (PageNumber(range >> PAGES.count_ones()), range & PAGES);
        Work::Flush {
            space: SpaceSlot(space),
            range: (pages != 0).then(|| PageRange::new(start, pages)),
            generation: Generation(self.generation.get(p)),
            tables: word & TABLES != 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;
    use crate::tree::tests::Touches;

    fn request() -> IpiRequest {
        let word = || Word64::new(0);
        IpiRequest { space: word(), range: word(), generation: word(), awaited: Awaited(Word32::new(0)) }
    }

    /// Both sides of the border of each number of bits, below an end.
    fn numbers(end: u64) -> Vec<u64> {
        let edges = (0..64).map(|bit| 1_u64 << bit).flat_map(|at| [at - 1, at, at.wrapping_add(1)]);
        edges.chain([end - 1]).filter(|&number| number < end).collect()
    }

    /// Whoever is asked does what was written, whatever was written there before: or, for so many pages that there is no room for
    /// their number, all of the space.
    #[test]
    fn what_is_asked_for_is_what_is_read() {
        let (p, request) = (Touches::default(), request());
        let mut works =
            Vec::from([Work::Drain, Work::DrainLru, Work::FlushAll, Work::Sweep, Work::KernelSweep]);
        let starts = numbers(PageNumber::USER_END.0);
        let counts = numbers(PAGES + 3);
        let ranges = |first: u64| {
            let some =
                starts.iter().map(move |&start| PageRange::new(PageNumber(first + start), 1 + start % PAGES));
            let of = counts.iter().filter(|&&pages| pages > 0);
            some.chain(of.map(move |&pages| PageRange::new(PageNumber(first), pages))).map(Some).chain([None])
        };
        let flush = |space, range, generation, tables| Work::Flush {
            space: SpaceSlot(space),
            range,
            generation: Generation(generation),
            tables,
        };
        works.extend(ranges(0).map(|range| flush(7, range, 5, false)));
        works.extend(ranges(PageNumber::KERNEL_START.0).map(Work::Kernel));
        works.extend(numbers(u32::MAX.into()).into_iter().map(|space| flush(space as u32, None, 9, true)));
        works.extend(numbers(u64::MAX).into_iter().map(|generation| flush(3, None, generation, false)));
        let short = |range: Option<PageRange>| range.filter(|range| range.pages <= PAGES);
        for work in works {
            let want = match work {
                Work::Kernel(range) => Work::Kernel(short(range)),
                Work::Flush { space, range, generation, tables } => {
                    Work::Flush { space, range: short(range), generation, tables }
                }
                other => other,
            };
            request.write(&p, work);
            assert_eq!(request.read(&p), want);
        }
    }
}
