//! Memory whose content is not wanted any more unless it is written again: reclaim drops it, and writes nothing.
//!
//! Such a page is *lazy*, and no CPU may write to it: the first write is a fault, and makes it a page like any other. Reclaim looks
//! where it takes the entry out:
//!
//! ```text
//!   a write fault                      reclaim
//!   table locked                       table locked
//!     not lazy any more                  lazy?
//!     the entry is writable                yes: the entry goes, and the content
//!                                          no: the page needs a swap slot first
//! ```

use core::sync::atomic::Ordering;

use crate::Manager;
use crate::addr::{FrameNumber, PageRange};
use crate::error::Error;
use crate::event::FlushReason;
use crate::handle::SpaceId;
use crate::kind::Kind;
use crate::memmap::flag;
use crate::paging::Entry;
use crate::platform::Platform;
use crate::resched::{Work, cost};
use crate::rule::Rule;
use crate::space::range::Gather;

impl<P: Platform> Manager<'_, P> {
    /// The content of an anonymous page is wanted from now on. As [`is_lazy`](Self::is_lazy).
    pub(crate) fn keep_content(&self, n: FrameNumber) {
        if self.is_lazy(n) {
            self.memmap().get(n).clear_flags(self.platform(), flag::LAZY);
        }
    }

    /// Makes those pages of a range lazy that are this space's own and in memory, and that no device uses: small ones, of memory that is no file's and
    /// not locked. When it returns no CPU can write to them without a fault. May wait.
    pub(super) fn free_lazily(&self, id: SpaceId, range: PageRange) -> Result<(), Error> {
        let p = self.platform();
        let mut work = Work::begin(self);
        let (space, _alone) = self.write_lock(id, range)?;
        if let Some(hole) = self.first_unmapped(space, range, &mut work) {
            return Err(Error::NotMapped(hole));
        }
        self.split_large_at(space, range.start)?;
        self.split_large_at(space, range.end())?;
        self.root.lazy.store(1, Ordering::Relaxed);
        let mut gather = Gather::begin(p, space);
        for (_, vma) in self.vmas_from(space, range.start) {
            let Some(part) = vma.range(p).intersect(range) else { break };
            if vma.file(p).is_some() || self.stays(vma) {
                continue;
            }
            self.visit(space, part, (&mut work, cost::ENTRY), |leaf, page, entry, pages| {
                let own = |n: FrameNumber| {
                    let frame = self.memmap().get(n);
                    frame.kind(p) == Kind::Anon
                        && frame.maps.get(p) == 1
                        && self.slot_of(n).is_none()
                        && !frame.is_pinned(p)
                };
                if !entry.is_present() || pages > 1 || !own(entry.frame()) {
                    return;
                }
                let old = leaf.clear_bits(page, Entry::WRITABLE);
                self.memmap().get(entry.frame()).set_flags(p, flag::LAZY);
                if old.has(Entry::WRITABLE) && self.may_be_cached(space, page, old) {
                    gather.add(page, pages);
                }
            });
        }
        gather.flush(self, id, FlushReason::Drop, Rule::FlushBeforeDropReturns).done();
        Ok(())
    }
}
