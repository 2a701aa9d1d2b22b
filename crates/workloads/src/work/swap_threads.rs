//! `swap-threads`: a program that swaps. One process, a thread per CPU, and anonymous memory of twice the machine's. A quarter
//! of the machine's memory is hot: all threads look there again and again, anywhere. The rest is cold: each thread sweeps
//! through its own part of it, in order, and writes to every page. So nearly every cold page that comes in pushes out another
//! that is dirty, and what is hot should stay.
//!
//! A page holds its number and how often its owner has written to it. Whoever looks checks both.

use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

use quietmm::{Backing, CpuId, Error, PageNumber, PageRange, Prot, UserAccess};
use rand_core::Rng;

use super::{BASE, Params};
use crate::machine::Machine;
use crate::system::System;
use crate::task::TaskKind;

/// All pages together are so many times the memory.
const TIMES_MEMORY: u64 = 2;
/// This part of the memory is hot.
const HOT: u64 = 4;
/// Sweeps through what is cold, after all pages have been written once.
const SWEEPS: u64 = 2;
/// Looks at hot pages beside each cold page, and a write to a hot page of the thread's own.
const LOOKS: u64 = 8;
/// Accesses of a look.
const ACCESSES: u32 = 64;

/// What pages hold, and how it is checked. Words of the host, which cost the machine nothing.
pub(super) struct Checked {
    first: PageNumber,
    /// For each page how many writes its owner has begun and ended. One host thread runs the machine, so any ordering does.
    begun: Vec<AtomicU32>,
    ended: Vec<AtomicU32>,
}

impl Checked {
    /// Pages from `first` on, never written to.
    pub fn new(first: PageNumber, pages: u64) -> Checked {
        let zeros = || (0..pages).map(|_| AtomicU32::new(0)).collect();
        Checked { first, begun: zeros(), ended: zeros() }
    }

    /// The address of a page.
    pub fn page(&self, index: u64) -> PageNumber {
        PageNumber(self.first.0 + index)
    }

    /// What a page shows after so many writes: nothing but zeros before the first.
    fn content(index: u64, writes: u32) -> u64 {
        if writes == 0 { 0 } else { (index + 1) << 32 | u64::from(writes) }
    }

    /// Its owner writes to a page.
    pub fn write<M: Machine>(&self, system: &System<'_, M>, index: u64) -> Result<(), Error> {
        let writes = self.ended[index as usize].load(Relaxed) + 1;
        self.begun[index as usize].store(writes, Relaxed);
        system.store(self.page(index).addr(), Self::content(index, writes))?;
        self.ended[index as usize].store(writes, Relaxed);
        Ok(())
    }

    /// Whoever looks at a page finds what was there at some time during the look.
    pub fn look<M: Machine>(&self, system: &System<'_, M>, index: u64) -> Result<(), Error> {
        let from = self.ended[index as usize].load(Relaxed);
        let found = system.load(self.page(index).addr())?;
        let to = self.begun[index as usize].load(Relaxed);
        if !(from..=to).any(|writes| found == Self::content(index, writes)) {
            let at = self.page(index).addr().0;
            let text =
                format!("a look at {at:#x} found {found:#x}; writes {from} to {to} of page {index} were due");
            system.mm.platform().wrong_content(&text);
        }
        Ok(())
    }
}

/// The part of `pages` that one of `threads` has.
pub(super) fn part(pages: u64, thread: u64, threads: u64) -> core::ops::Range<u64> {
    pages * thread / threads..pages * (thread + 1) / threads
}

/// One process.
pub fn set_up<M: Machine>(system: &System<'_, M>, params: &Params<'_>) -> Result<u64, Error> {
    let threads = u64::from(params.threads);
    let (all, hot) = (TIMES_MEMORY * params.frames, params.frames / HOT);
    let space = system.create_space()?;
    system.mm.space(space).map(PageRange::new(BASE, all), Backing::Anonymous, Prot::ReadWrite)?;
    let pages = Arc::new(Checked::new(BASE, all));
    for thread in 0..threads {
        let (pages, mut rng) = (pages.clone(), params.rng(thread as u32));
        let delay = params.delay(thread as u32);
        let own = part(hot, thread, threads);
        let cold = part(all - hot, thread, threads);
        let cold = cold.start + hot..cold.end + hot;
        let cpu = CpuId(thread as u16);
        system.spawn(format!("swapper/{thread}"), TaskKind::User(space), cpu, move |system| {
            system.mm.platform().compute(delay);
            for index in own.clone().chain(cold.clone()) {
                pages.write(system, index)?;
                system.mm.platform().progressed(1);
            }
            for index in (0..SWEEPS).flat_map(|_| cold.clone()) {
                pages.look(system, index)?;
                pages.write(system, index)?;
                for _ in 0..LOOKS {
                    let look = rng.next_u64() % hot;
                    system.access(pages.page(look).addr(), ACCESSES, UserAccess::Read)?;
                    pages.look(system, look)?;
                }
                if !own.is_empty() {
                    pages.write(system, own.start + rng.next_u64() % (own.end - own.start))?;
                }
                system.mm.platform().progressed(1);
            }
            Ok(())
        });
    }
    Ok(all + SWEEPS * (all - hot))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_all_and_apart() {
        for (pages, threads) in [(100, 8), (7, 8), (64, 1)] {
            let all: Vec<u64> = (0..threads).flat_map(|thread| part(pages, thread, threads)).collect();
            assert_eq!(all, (0..pages).collect::<Vec<_>>());
        }
    }

    #[test]
    fn every_page_and_write_has_a_content_of_its_own() {
        let some =
            [(0, 1), (0, 2), (1, 1), (1 << 20, 1)].map(|(page, writes)| Checked::content(page, writes));
        assert!(some.iter().enumerate().all(|(at, one)| *one != 0 && !some[..at].contains(one)));
        assert_eq!(Checked::content(5, 0), 0, "a page that was never written to is zeros");
    }
}
