//! Areas that grow down when what lies below them is used (`MAP_GROWSDOWN`): stacks that programs make themselves.

use core::ops::Range;

use quietmm::{Error, UserAccess, VirtAddr};

use super::ALL;
use crate::areas::{PAGE, What, rights};
use crate::errno::Errno;
use crate::kernel::Linux;
use crate::machine::Machine;
use crate::process::{Layout, Mapped, Thread, limit};

impl<M: Machine> Linux<'_, M> {
    pub(crate) fn resolve(&self, thread: &Thread, at: u64, access: UserAccess) -> Result<(), Error> {
        let memory = thread.memory();
        let space = self.mm.space(memory.space);
        match space.fault(VirtAddr(at), access) {
            Err(Error::NotMapped(_)) => {
                self.grow(thread, at)?;
                space.fault(VirtAddr(at), access)
            }
            other => other,
        }
    }

    /// An area grows down to an address where nothing is, if one may. Takes the layout's lock: nobody reaches a program's memory
    /// with it held.
    ///
    /// # Errors
    /// `NotMapped`: none may. The core's: no memory for it.
    pub fn grow(&self, thread: &Thread, at: u64) -> Result<(), Error> {
        let memory = thread.memory();
        memory.layout.with(self.machine, |layout| {
            if layout.areas.at(at).is_some() {
                // Another thread was faster.
                return Ok(());
            }
            let grown = Self::grows_to(thread, layout, at);
            let (lacking, of, what) = grown.ok_or(Error::NotMapped(VirtAddr(at).page()))?;
            self.map(memory.space, layout, lacking, of, what)
        })
    }

    /// What an area would gain that grows down to an address.
    fn grows_to(thread: &Thread, layout: &Layout, at: u64) -> Option<(Range<u64>, u8, What<Mapped>)> {
        let start = at & !(PAGE - 1);
        let (end, area) = layout.areas.next(at)?;
        let most = thread.process.limits.with(|limits| limits[limit::STACK][0]);
        let own = matches!(area.what, What::Own(_));
        let may = own
            && area.rights & rights::GROWS != 0
            && start >= ALL.start
            && area.end - start <= most
            && layout.areas.may_grow(start, end);
        may.then(|| (start..end, area.rights & !rights::LOCKED, area.what.clone()))
    }

    /// A range that is to reach down to where the area begins that grows (`PROT_GROWSDOWN`).
    pub(super) fn down_to_start(layout: &Layout, range: Range<u64>) -> Result<Range<u64>, Errno> {
        let (start, area) = layout.areas.at(range.start).ok_or(Errno::ENOMEM)?;
        if area.rights & rights::GROWS == 0 {
            return Err(Errno::EINVAL);
        }
        Ok(start..range.end)
    }
}
