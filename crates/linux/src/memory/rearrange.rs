//! Pages of a file in another order (`remap_file_pages`): each such piece is an area of its own.

use quietmm::Error;

use super::range;
use crate::areas::{PAGE, What};
use crate::errno::{Answer, Errno};
use crate::kernel::Linux;
use crate::machine::Machine;
use crate::process::Thread;

impl<M: Machine> Linux<'_, M> {
    /// A range that shows a file with others shows the file from another page on.
    pub(crate) fn remap_file_pages(&self, thread: &Thread, [at, bytes, of, page, _, _]: [u64; 6]) -> Answer {
        let start = at & !(PAGE - 1);
        let range = range(start, bytes & !(PAGE - 1))?;
        if of != 0 || range.is_empty() || page.checked_add(bytes / PAGE).is_none_or(|end| end > 1 << 40) {
            return Err(Errno::EINVAL);
        }
        let memory = thread.memory();
        memory.layout.with(self.machine, |layout| {
            if !layout.areas.covers(&range) {
                return Err(Errno::EINVAL);
            }
            let (_, area) = layout.areas.first(&range).ok_or(Errno::EINVAL)?;
            let What::File { file, shared: true, .. } = area.what else { return Err(Errno::EINVAL) };
            let mut at = range.start;
            while let Some((_, other)) = layout.areas.first(&(at..range.end)) {
                at = other.end;
                let same = matches!(&other.what, What::File { file: its, shared: true, .. } if *its == file);
                if !same || other.rights != area.rights {
                    return Err(Errno::EINVAL);
                }
            }
            self.unmap(memory.space, layout, &range)?;
            let what = What::File { file, page, shared: true };
            self.map_as_locked(memory.space, layout, range.clone(), area.rights, what)
                .map_err(|error: Error| error.into())
        })?;
        Ok(0)
    }
}
