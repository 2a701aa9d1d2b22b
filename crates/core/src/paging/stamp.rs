//! The number in an entry by which reclaim knows when no CPU can have it cached any more (INV-13). `tlb/sweep.rs` has the argument.

use crate::platform::Platform;
use crate::rule::Rule;

/// Until which sweep CPUs may have cached an entry whose accessed bit was cleared: its number, modulo as many as the
/// architecture has room for, plus one; 0 is none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Stamp(pub(crate) u8);

impl Stamp {
    pub(crate) fn of<P: Platform>(p: &P, sweep: u64) -> Stamp {
        Stamp((sweep % p.architecture().stamps() + 1) as u8)
    }

    /// For an entry that was cleared in this epoch: the first sweep that begins later.
    pub(crate) fn after<P: Platform>(p: &P, epoch: u64) -> Stamp {
        if p.broken(Rule::StampWhatIsCleared) { Stamp::of(p, epoch) } else { Stamp::of(p, epoch + 1) }
    }

    /// Whether its sweep is over, where so many are. Of the sweeps that are not, a stamp names the next or the one after it,
    /// since one at most is under way: all other numbers are from before. One that is very old may look like those: then its
    /// entry waits for a sweep once more. With three values, as on RISC-V without more bits, only the stamp of the last sweep that is over counts as over.
    pub(crate) fn is_over<P: Platform>(self, p: &P, completed: u64) -> bool {
        let next = Stamp::of(p, completed + 1) == self;
        let one_after = Stamp::of(p, completed + 2) == self && !p.broken(Rule::StampsOfTwoSweeps);
        self.0 != 0 && !next && !one_after
    }
}
