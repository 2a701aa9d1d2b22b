//! Children that see what was there.

use quietmm::Prot;

use super::ledger::Shown;
use super::{SLOTS, Thread};
use crate::machine::Machine;

impl<M: Machine> Thread<'_, '_, M> {
    /// A child that sees what was there, and writes what the parent must not see.
    pub(super) fn fork(&mut self) {
        let parent = self.process.space;
        let child = match self.system.syscall(|mm| mm.space(parent).fork()) {
            Ok(child) => child,
            Err(error) => {
                self.did("fork", self.slot(0), Err(error), true);
                return;
            }
        };
        let steps = self.pick(SLOTS);
        self.system.run_in(child, || {
            for _ in 0..steps {
                let slot = self.pick(SLOTS);
                let state = self.state(slot);
                let found = Shown::of(self.system.load(self.slot(slot).addr()));
                // It may have written there itself.
                let own = matches!(found, Some(Shown::Value(value)) if value >> 32 == 0xc1d);
                if !own && found.is_some_and(|found| found != state.shown()) {
                    self.wrong("loaded in its child", self.slot(slot), found, state.shown());
                }
                if state.prot == Some(Prot::ReadWrite) && state.file.is_none() && self.pick(2) == 0 {
                    let _ = self.system.store(self.slot(slot).addr(), 0xc1d << 32 | slot);
                }
            }
            self.use_heap_of_child();
        });
        let ended = self.system.end_space(child);
        self.did("destroy_space", self.slot(0), ended, true);
        let slot = self.pick(SLOTS);
        self.check_own(slot);
    }
}
