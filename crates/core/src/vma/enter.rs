//! Faults in one VMA while others change other VMAs of its space (Linux: per-VMA locks).
//!
//! A fault shares the VMAs of its space. While somebody has them alone it would wait, though that one mostly changes other VMAs. So it
//! *enters* the VMA that this CPU remembers, by its gate, without the lock and without a look at the tree. Whoever has the VMAs alone has shut
//! the gates of all that it may change: those that touch its range.
//!
//! ```text
//!   fault                              who has the VMAs alone
//!   the gate is open: enters           shuts the gates in its range
//!   is it a VMA of this space, and     waits until nobody is inside
//!     does it hold the page?           changes VMAs, entries, tables
//!   finds no table of it gone          opens the gates
//! ```
//!
//! While a fault is inside, its VMA stays in the tree with the borders that it has: so no table on the way to its pages is unhooked,
//! since those go only where no VMA lies.

use super::area::Vma;
use super::space::SpaceState;
use crate::Manager;
use crate::addr::{PageNumber, PageRange};
use crate::error::Error;
use crate::handle::SpaceId;
use crate::percpu::CpuGuard;
use crate::platform::Platform;
use crate::pool::Reading;
use crate::resched::{Work, cost};
use crate::rule::Rule;
use crate::sync::{Inside, SharedGuard};

/// Nobody changes a VMA, until dropped.
#[must_use]
pub(crate) enum VmaGuard<'p, P: Platform> {
    /// None of its space.
    All { _shared: SharedGuard<'p, P> },
    /// This one.
    One { _inside: Inside<'p, P> },
}

impl<'p, P: Platform> Manager<'p, P> {
    /// The VMA of a space that holds `page`, and nobody changes it. May wait; who waited for somebody that ended the space finds none.
    ///
    /// # Errors
    /// [`Error::NoSuchSpace`], [`Error::NotMapped`].
    #[inline(always)]
    pub(crate) fn share_vma(
        &self,
        id: SpaceId,
        page: PageNumber,
    ) -> Result<(&'p SpaceState, &'p Vma, VmaGuard<'p, P>), Error> {
        let space = self.find_space(id)?;
        if space.vmas.lock.is_written(self.platform())
            && let Some((vma, inside)) = self.enter_last(id, space, page)
        {
            return Ok((space, vma, VmaGuard::One { _inside: inside }));
        }
        let shared = self.share(id, space)?;
        let (_, vma) = self.find_vma(id, space, page).ok_or(Error::NotMapped(page))?;
        Ok((space, vma, VmaGuard::All { _shared: shared }))
    }

    /// The VMA in which this CPU's last fault in a space lay, entered, if it is open and holds the page. Never waits.
    #[inline(never)]
    fn enter_last(
        &self,
        id: SpaceId,
        space: &SpaceState,
        page: PageNumber,
    ) -> Option<(&'p Vma, Inside<'p, P>)> {
        let p = self.platform();
        let hint = CpuGuard::new(self).slot().last_vma.last(id.slot())?;
        let reading = Reading::begin(self);
        let vma = self.root.vmas.read_to_keep(&reading, hint)?;
        // A VMA that is open is in a space: its slot is in use while this is inside.
        let inside = vma.gate.enter(p)?;
        drop(reading);
        // Only now that nobody changes it: it may be another VMA than it was, and the space may have ended.
        let holds = vma.space.get(p) == id.index() && vma.range(p).contains(page) && space.is(p, id);
        (holds || p.broken(Rule::LookAgainInside)).then_some((vma, inside))
    }

    /// The VMAs that touch a range. Under the VMA lock.
    fn vmas_at(&self, space: &SpaceState, range: PageRange) -> impl Iterator<Item = &'p Vma> {
        let p = self.platform();
        let first = PageNumber(range.start.0.saturating_sub(1));
        self.vmas_from(space, first)
            .map(|(_, vma)| vma)
            .take_while(move |vma| vma.range(p).start <= range.end())
    }

    /// Shuts the VMAs that touch a range, and waits until no fault is inside. By whoever holds the VMAs alone. May wait.
    pub(super) fn shut_vmas(&self, space: &SpaceState, range: PageRange) {
        let p = self.platform();
        let mut work = Work::begin(self);
        let mut empty = true;
        for vma in self.vmas_at(space, range) {
            empty &= vma.gate.shut(p);
            work.did(cost::VMA);
        }
        if !empty {
            self.vmas_at(space, range).for_each(|vma| vma.gate.wait_empty(p));
        }
    }

    /// Shuts them if no fault is inside; whether it did. By whoever holds the VMAs alone. Never waits.
    pub(super) fn try_shut_vmas(&self, space: &SpaceState, range: PageRange) -> bool {
        let p = self.platform();
        let shut = self.vmas_at(space, range).all(|vma| vma.gate.try_shut(p));
        if !shut {
            self.open_vmas(space, range);
        }
        shut
    }

    /// Opens those that touch a range, but for those that are leaving. By whoever holds the VMAs alone, or the whole space, and has changed what it wanted to.
    pub(crate) fn open_vmas(&self, space: &SpaceState, range: PageRange) {
        let (p, mut work) = (self.platform(), Work::begin(self));
        self.vmas_at(space, range).for_each(|vma| {
            if !vma.is_leaving(p) {
                vma.gate.open(p);
            }
            work.did(cost::VMA);
        });
    }
}
