//! A file becomes shorter: what programs have of their own of the pages that are gone goes too.

use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use quietmm::Advice;

use super::pages;
use crate::areas::{PAGE, What};
use crate::kernel::Linux;
use crate::machine::Machine;
use crate::process::Memory;
use crate::tree::{Body, Inode};

impl<M: Machine> Linux<'_, M> {
    /// Drops the copies of pages from `first` on that programs made by writing to a private mapping. By whoever has made the file
    /// shorter before: a fault finds the file's end from then on.
    pub(crate) fn drop_copies(&self, inode: &Inode, first: u64) {
        let Body::File(content) = &inode.body else { return };
        // SeqCst: partner of the store in `map`. Whoever maps it after this look finds a file that is shorter already.
        if !content.is_copied.load(Ordering::SeqCst) {
            return;
        }
        let mut seen = BTreeSet::new();
        let all: Vec<Arc<Memory>> = self.processes.with(|all| {
            let memories = all.values().filter_map(|process| process.memory.with(|memory| memory.clone()));
            memories.filter(|memory| seen.insert(Arc::as_ptr(memory).addr())).collect()
        });
        for memory in all {
            memory.layout.with(self.machine, |layout| {
                for (start, area) in layout.areas.iter() {
                    let What::File { file, page, shared: false } = &area.what else { continue };
                    let gone = start + first.saturating_sub(*page).saturating_mul(PAGE);
                    if core::ptr::eq(&*file.inode, inode) && gone < area.end {
                        // What cannot be dropped stays, as it did before.
                        let _ = self.mm.space(memory.space).advise(pages(&(gone..area.end)), Advice::Drop);
                    }
                }
            });
        }
    }
}
