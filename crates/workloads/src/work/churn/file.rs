//! What a thread does with the file that all share.

use alloc::vec::Vec;

use quietmm::{Error, PageNumber, Prot};

use super::check::could_see;
use super::ledger::{Shown, State};
use super::{COLD, LOOKS, OWN, SHARED, SLOTS, Thread};
use crate::machine::Machine;

impl<M: Machine> Thread<'_, '_, M> {
    pub(super) fn write_own_page(&mut self) {
        let page = self.index * OWN + self.pick(OWN);
        self.write_the_file(page, PageNumber(SHARED + page), Some(Prot::ReadWrite));
    }

    /// Writes to one of this thread's pages of the shared file, at an address that shows it.
    pub(super) fn write_the_file(&mut self, page: u64, at: PageNumber, prot: Option<Prot>) {
        let value = self.fresh();
        let mm = &self.system.mm;
        let writable = prot == Some(Prot::ReadWrite);
        let next = |old: State| if writable { State { value, ..old } } else { old };
        let slots: Vec<(usize, State)> = (0..SLOTS)
            .map(|slot| (self.entry(slot), self.state(slot)))
            .filter(|(_, state)| state.file == Some(page))
            .collect();
        let old = self.world.owned.with(mm, |ledger| ledger.state(page as usize));
        self.world.owned.with(mm, |ledger| ledger.begin(page as usize, next(old)));
        self.ledger(|ledger| slots.iter().for_each(|&(entry, state)| ledger.begin(entry, next(state))));
        let done = self.system.store(at.addr(), value);
        let done = self.stored(at, done, prot);
        let now = |old: State| if done { next(old) } else { old };
        self.ledger(|ledger| slots.iter().for_each(|&(entry, state)| ledger.end(entry, now(state))));
        self.world.owned.with(mm, |ledger| ledger.end(page as usize, now(old)));
    }

    /// Whatever is found there must have been there while this thread looked.
    pub(super) fn look_at_page(&self, entry: u64) {
        let at = PageNumber(SHARED + entry);
        let owned = &self.world.owned;
        let look = owned.with(&self.system.mm, |ledger| ledger.look(entry as usize));
        let found = Shown::of(self.system.load(at.addr()));
        let (sees, expected) =
            owned.with(&self.system.mm, |ledger| could_see(ledger, look, found, entry as usize));
        if !sees {
            self.wrong("loaded from the shared file", at, found, expected);
        }
    }

    /// Goes on looking at a few pages of the file, mostly others', and writing to one of its own.
    pub(super) fn linger_in_the_file(&mut self) {
        let first = self.pick(self.world.threads * OWN - 3);
        let own = self.index * OWN + self.pick(OWN);
        for look in 0..LOOKS {
            self.look_at_page(first + look % 3);
            if look % 4 == 0 {
                self.write_the_file(own, PageNumber(SHARED + own), Some(Prot::ReadWrite));
            }
            self.system.mm.platform().compute(200);
        }
    }

    /// Pages that nobody owns or writes: they take memory from the others.
    pub(super) fn cold_pages(&mut self) {
        let owned = self.world.threads * OWN;
        for _ in 0..COLD {
            let at = PageNumber(SHARED + owned + self.pick(self.world.pages - owned));
            let found = Shown::of(self.system.load(at.addr()));
            if found.is_some_and(|found| found != Shown::Value(0)) {
                self.wrong("loaded from the shared file", at, found, Shown::Value(0));
            }
        }
    }

    pub(super) fn write_back(&mut self) {
        let file = self.world.file;
        let done = self.system.syscall(|mm| mm.file(file).write_back().map(|_| ()));
        if done != Err(Error::Device) {
            self.did("write_back", PageNumber(SHARED), done, true);
        }
    }
}
