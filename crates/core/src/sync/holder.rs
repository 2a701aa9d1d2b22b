//! What locks want of whoever takes them.

use super::word::Word64;
use crate::cpu::CpuId;
#[cfg(debug_assertions)]
use crate::own::OwnU32;
use crate::platform::Platform;

/// What locks want of whoever takes them: [`Manager`](crate::Manager) is that.
pub trait Holder<'p, P: Platform> {
    /// The machine.
    fn platform(&self) -> &'p P;
    /// Called while it spins for a lock: with interrupts off it serves what other CPUs ask of this one (INV-8).
    fn serve_if_deaf(&self);
    /// Where each CPU notes which locks are shared there.
    fn visible_reads(&self, cpu: CpuId) -> &'p VisibleReads;
    /// How many spin locks this CPU holds.
    #[cfg(debug_assertions)]
    fn spin_locks_held(&self) -> &'p OwnU32;
}

/// The locks that tasks began to share on this CPU: the address of each, plus 1 once a writer waits for it to go; else 0. More than
/// one, since a task may wait while it shares a lock, and others come to its CPU.
#[repr(transparent)]
pub struct VisibleReads(pub(super) [Word64; 3]);

impl VisibleReads {
    /// Whether nobody who began here shares a lock.
    pub fn is_empty<P: Platform>(&self, p: &P) -> bool {
        self.0.iter().all(|slot| slot.get(p) == 0)
    }
}
