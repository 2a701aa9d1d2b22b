//! What a thread does to its own addresses.

use alloc::vec::Vec;

use quietmm::{Advice, Backing, NodeId, Prot};

use super::ledger::State;
use super::{LOOKS, OWN, PLAIN, SLOTS, Thread, plain};
use crate::machine::Machine;

impl<M: Machine> Thread<'_, '_, M> {
    pub(super) fn store_own(&mut self) {
        let slot = self.pick(SLOTS);
        let old = self.state(slot);
        if let Some(page) = old.file {
            return self.write_the_file(page, self.slot(slot), old.prot);
        }
        let value = self.fresh();
        let entry = self.entry(slot);
        let writable = old.prot == Some(Prot::ReadWrite);
        let new = if writable { State { value, ..old } } else { old };
        self.ledger(|ledger| ledger.begin(entry, new));
        let done = self.system.store(self.slot(slot).addr(), value);
        let done = self.stored(self.slot(slot), done, old.prot);
        self.ledger(|ledger| ledger.end(entry, if done { new } else { old }));
    }

    /// Goes on looking at a few of its slots: what this CPU has cached of them stays so, while others work.
    pub(super) fn linger(&mut self) {
        let first = self.pick(SLOTS - 3);
        for look in 0..LOOKS {
            self.check_own(first + look % 3);
            self.system.mm.platform().compute(200);
        }
    }

    pub(super) fn map(&mut self) {
        let slots = self.some_slots();
        let offset = self.pick(PLAIN - SLOTS);
        let own = self.index * OWN;
        let (plain_file, file) = (self.world.plain, self.world.file);
        let anonymous = State { prot: Some(Prot::ReadWrite), ..State::GONE };
        match self.pick(3) {
            0 => self.map_as(slots, Backing::Anonymous, |_| anonymous),
            1 => self.map_as(slots, Backing::Private { file: plain_file, offset }, |i| State {
                value: plain(offset + i),
                base: plain(offset + i),
                ..anonymous
            }),
            _ => {
                let values: Vec<u64> = (own..own + OWN)
                    .map(|page| self.world.owned.with(&self.system.mm, |l| l.state(page as usize).value))
                    .collect();
                let (first, count) = (slots.0, slots.1.min(OWN));
                self.map_as((first, count), Backing::File { file, offset: own }, |i| State {
                    value: values[i as usize],
                    file: Some(own + i),
                    ..anonymous
                });
            }
        }
    }

    pub(super) fn map_as(&mut self, slots: (u64, u64), backing: Backing, state: impl Fn(u64) -> State) {
        self.change(
            "map",
            slots,
            |state| state.prot.is_none(),
            |i, _| state(i),
            |mm, space, range| mm.space(space).map(range, backing, Prot::ReadWrite),
        );
    }

    pub(super) fn unmap(&mut self) {
        let slots = self.some_slots();
        self.unmap_slots(slots);
    }

    pub(super) fn unmap_slots(&mut self, slots: (u64, u64)) {
        let mapped = |state: State| state.prot.is_some();
        self.change(
            "unmap",
            slots,
            mapped,
            |_, _| State::GONE,
            |mm, space, range| mm.space(space).unmap(range),
        );
    }

    pub(super) fn protect(&mut self) {
        let slots = self.some_slots();
        let prot = [Prot::None, Prot::Read, Prot::Read, Prot::ReadWrite][self.pick(4) as usize];
        self.change(
            "protect",
            slots,
            |state| state.prot.is_some(),
            |_, state| State { prot: Some(prot), ..state },
            |mm, space, range| mm.space(space).protect(range, prot),
        );
    }

    pub(super) fn drop_content(&mut self) {
        let slots = self.some_slots();
        self.drop_slots(slots);
    }

    pub(super) fn drop_slots(&mut self, slots: (u64, u64)) {
        self.change(
            "advise(drop)",
            slots,
            |state| state.prot.is_some(),
            |_, state| if state.file.is_some() { state } else { State { value: state.base, ..state } },
            |mm, space, range| mm.space(space).advise(range, Advice::Drop),
        );
    }

    pub(super) fn migrate(&mut self) {
        let slots = self.some_slots();
        let node = NodeId(self.pick(self.world.nodes) as u16);
        self.change(
            "migrate",
            slots,
            |state| state.prot.is_some(),
            |_, state| state,
            |mm, space, range| mm.space(space).migrate(range, node).map(|_| ()),
        );
    }

    /// From the first half of the slots to the second, or back.
    pub(super) fn move_slots(&mut self) {
        let half = SLOTS / 2;
        let first = self.pick(half);
        let count = 1 + self.pick((half - first).min(8));
        let (from, to) = if self.pick(2) == 0 { (first, first + half) } else { (first + half, first) };
        let states = |first: u64| (first..first + count).map(|slot| self.state(slot));
        let (old, target): (Vec<_>, Vec<_>) = (states(from).collect(), states(to).collect());
        let possible = old.iter().all(|s| s.prot.is_some()) && target.iter().all(|s| s.prot.is_none());
        let mark = |done: Option<bool>| {
            self.ledger(|ledger| {
                for i in 0..count {
                    let (a, b) = (self.entry(from + i), self.entry(to + i));
                    let (was, there) = (old[i as usize], target[i as usize]);
                    match done {
                        None if possible => {
                            ledger.begin(a, State::GONE);
                            ledger.begin(b, was);
                        }
                        Some(true) => {
                            ledger.end(a, State::GONE);
                            ledger.end(b, was);
                        }
                        _ => {
                            ledger.end(a, was);
                            ledger.end(b, there);
                        }
                    }
                }
            });
        };
        mark(None);
        let (range, to) = (self.range(from, count), self.slot(to));
        let done = self.system.syscall(|mm| mm.space(self.process.space).move_range(range, to));
        mark(Some(self.did("move", range.start, done, possible)));
    }
}
