//! What a thread knows of its addresses, and holds against what it finds.

use alloc::format;
use alloc::vec::Vec;

use quietmm::{Error, Manager, PageNumber, PageRange, Prot, SpaceId};

use super::ledger::{Ledger, Look, Shown, State};
use super::{ARENAS, SLOTS, Thread};
use crate::machine::Machine;

impl<M: Machine> Thread<'_, '_, M> {
    pub(super) fn slot(&self, slot: u64) -> PageNumber {
        PageNumber(ARENAS + self.place * SLOTS + slot)
    }

    pub(super) fn range(&self, first: u64, count: u64) -> PageRange {
        PageRange::new(self.slot(first), count)
    }

    /// A few slots side by side; sometimes all.
    pub(super) fn some_slots(&mut self) -> (u64, u64) {
        if self.pick(16) == 0 {
            return (0, SLOTS);
        }
        let first = self.pick(SLOTS);
        (first, 1 + self.pick((SLOTS - first).min(8)))
    }

    pub(super) fn ledger<R>(&self, work: impl FnOnce(&mut Ledger) -> R) -> R {
        self.process.arenas.with(&self.system.mm, work)
    }

    pub(super) fn entry(&self, slot: u64) -> usize {
        (self.place * SLOTS + slot) as usize
    }

    pub(super) fn state(&self, slot: u64) -> State {
        self.ledger(|ledger| ledger.state(self.entry(slot)))
    }

    /// A value that nobody else writes, and nobody has written before.
    pub(super) fn fresh(&mut self) -> u64 {
        self.written += 1;
        (self.index + 1) << 32 | self.written
    }

    pub(super) fn wrong(&self, what: &str, at: PageNumber, found: Option<Shown>, expected: Shown) {
        let text = format!(
            "churn/{} {what} {:#x} of space {} and found {found:x?} instead of {expected:x?}",
            self.index,
            at.addr().0,
            self.process.space.index()
        );
        self.system.mm.platform().wrong_content(&text);
    }

    /// Whether an operation did what it must: succeed exactly where `possible`, unless memory was short.
    pub(super) fn did(&self, what: &str, at: PageNumber, done: Result<(), Error>, possible: bool) -> bool {
        match done {
            Ok(()) if possible => true,
            Err(Error::OutOfMemory) => false,
            Err(_) if !possible => false,
            other => {
                let text = format!("churn/{}: {what} at {:#x} gave {other:?}", self.index, at.addr().0);
                self.system.mm.platform().wrong_content(&text);
                other.is_ok()
            }
        }
    }

    /// Whether a store happened, which it must exactly where `prot` permits it.
    pub(super) fn stored(&self, at: PageNumber, done: Result<(), Error>, prot: Option<Prot>) -> bool {
        match (done, prot) {
            (Ok(()), Some(Prot::ReadWrite)) => true,
            (Err(Error::NotPermitted(_)), Some(Prot::None | Prot::Read)) => false,
            (Err(Error::NotMapped(_)), None) => false,
            (Err(Error::OutOfMemory | Error::Device), _) => false,
            // The content is lost, and this page's alone.
            (Err(Error::SwapDevice(page)), Some(Prot::ReadWrite)) if page == at => false,
            (other, _) => {
                let text = format!(
                    "churn/{} stored at {:#x} of space {}, {prot:?}, and it gave {other:?}",
                    self.index,
                    at.addr().0,
                    self.process.space.index()
                );
                self.system.mm.platform().wrong_content(&text);
                other.is_ok()
            }
        }
    }

    /// Does something to some of this thread's slots that changes each as `next` says; `possible` says whether it can be
    /// done to a slot in this state, and so, to all.
    pub(super) fn change(
        &mut self,
        what: &str,
        (first, count): (u64, u64),
        possible: impl Fn(State) -> bool,
        next: impl Fn(u64, State) -> State,
        work: impl FnOnce(&Manager<'_, M>, SpaceId, PageRange) -> Result<(), Error>,
    ) {
        let range = self.range(first, count);
        let before: Vec<State> = (first..first + count).map(|slot| self.state(slot)).collect();
        let all = before.iter().all(|&state| possible(state));
        let after = |i: usize| if all { next(i as u64, before[i]) } else { before[i] };
        self.ledger(|ledger| {
            (0..before.len()).for_each(|i| ledger.begin(self.entry(first + i as u64), after(i)));
        });
        let done = self.system.syscall(|mm| work(mm, self.process.space, range));
        let done = self.did(what, range.start, done, all);
        self.ledger(|ledger| {
            for (i, &old) in before.iter().enumerate() {
                ledger.end(self.entry(first + i as u64), if done { after(i) } else { old });
            }
        });
    }

    /// What this thread left in a slot must be there.
    pub(super) fn check_own(&mut self, slot: u64) {
        let expected = self.state(slot).shown();
        let loaded = self.system.load(self.slot(slot).addr());
        let found = Shown::of(loaded);
        if found.is_some_and(|found| found != expected) {
            self.wrong("loaded its own", self.slot(slot), found, expected);
        }
        if let Err(Error::SwapDevice(page)) = loaded {
            self.give_up_slot(slot, page);
        }
    }

    /// The device that had a slot's content says that it is lost.
    fn give_up_slot(&mut self, slot: u64, page: PageNumber) {
        if page != self.slot(slot) || self.state(slot).file.is_some() {
            self.wrong("was told of another's loss at", self.slot(slot), None, Shown::NotMapped);
        }
        match self.pick(2) {
            0 => self.drop_slots((slot, 1)),
            _ => self.unmap_slots((slot, 1)),
        }
    }

    pub(super) fn look_at_another(&mut self) {
        let entry = self.pick(self.process.threads * SLOTS);
        let at = PageNumber(ARENAS + entry);
        let look = self.ledger(|ledger| ledger.look(entry as usize));
        let found = Shown::of(self.system.load(at.addr()));
        let (sees, expected) = self.ledger(|ledger| could_see(ledger, look, found, entry as usize));
        if !sees {
            self.wrong("loaded another's", at, found, expected);
        }
    }
}

/// Whether what was found could be there, and what is there now.
pub(super) fn could_see(ledger: &Ledger, look: Look, found: Option<Shown>, entry: usize) -> (bool, Shown) {
    (found.is_none_or(|found| ledger.could_see(look, found)), ledger.state(entry).shown())
}
