//! What a forked process does not get of its parent's memory, or gets empty (`MADV_DONTFORK`, `MADV_WIPEONFORK`).

use quietmm::{Advice, Error, SpaceId};

use super::{ALL, pages};
use crate::areas::rights;
use crate::kernel::Linux;
use crate::machine::Machine;
use crate::process::Layout;

impl<M: Machine> Linux<'_, M> {
    /// Makes the copy of a layout, and its space, what a child gets. Nobody runs there yet.
    pub(crate) fn inherit(&self, space: SpaceId, layout: &mut Layout) -> Result<(), Error> {
        // Of what is locked, the copies are not.
        layout.areas.unlock_all();
        layout.locks_more = None;
        let special = rights::NOT_FORKED | rights::WIPED;
        if layout.areas.iter().all(|(_, area)| area.rights & special == 0) {
            return Ok(());
        }
        let mut at = 0;
        while let Some((start, area)) = layout.areas.first(&(at..ALL.end)) {
            at = area.end;
            if area.rights & rights::NOT_FORKED != 0 {
                self.unmap(space, layout, &(start..at))?;
            } else if area.rights & rights::WIPED != 0 {
                self.mm.space(space).advise(pages(&(start..at)), Advice::Drop)?;
            }
        }
        Ok(())
    }
}
