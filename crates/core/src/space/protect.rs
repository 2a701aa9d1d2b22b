//! Change what may be done with a range.

use crate::addr::PageRange;
use crate::charge::charge;
use crate::error::Error;
use crate::event::{FlushReason, Revoked};
use crate::memmap::flag;
use crate::paging::{Entry, Prot};
use crate::platform::Platform;
use crate::profile::Scope;
use crate::resched::{Work, cost};
use crate::rule::Rule;
use crate::space::range::Gather;
use crate::view::Space;
use crate::vma::check_range;

impl<'p, P: Platform> Space<'_, 'p, P> {
    /// Changes what may be done with `range`, all of which must be mapped. When it returns no CPU can do what is no
    /// longer permitted (INV-4). May wait.
    ///
    /// Where rights are taken away: one flush, thus at most one IPI per CPU that uses the space and is neither lazy nor
    /// this one. None if no page that is present loses a right and nothing is deferred: rights that are only given cost
    /// nothing, since a CPU that still has the old ones faults and looks again.
    ///
    /// # Errors
    /// [`Error::NoSuchSpace`], [`Error::BadRange`], [`Error::NotMapped`]; [`Error::OutOfMemory`] when a VMA or a large
    /// page must be split.
    ///
    /// # Examples
    /// ```
    /// # use quietmm_doc::*;
    /// # doc(|mm| {
    /// let space = mm.space(mm.create_space()?);
    /// let heap = PageRange::new(PageNumber(0x400), 16);
    /// space.map(heap, Backing::Anonymous, Prot::ReadWrite)?;
    /// space.protect(heap, Prot::Read)?;
    /// assert_eq!(space.fault(heap.start.addr(), UserAccess::Write), Err(Error::NotPermitted(heap.start)));
    /// # Ok(())
    /// # });
    /// ```
    #[doc(alias = "mprotect")]
    pub fn protect(&self, range: PageRange, prot: Prot) -> Result<(), Error> {
        let Space { mm, id } = *self;
        let _scope = charge(mm.platform(), Scope::Protect);
        let p = mm.platform();
        let range = check_range(range)?;
        let mut work = Work::begin(mm);
        let (space, _alone) = mm.write_lock(id)?;
        mm.split_vmas(id, space, range, &mut work)?;
        for (_, vma) in mm.vmas_from(space, range.start) {
            if vma.range(p).start >= range.end() {
                break;
            }
            vma.set_prot(p, prot);
            work.did(cost::VMA);
        }
        let mut gather = Gather::begin(p, space);
        mm.visit(space, range, (&mut work, cost::ENTRY), |leaf, page, entry, pages| {
            if !entry.is_mapped() {
                return;
            }
            let lost = entry.0 & Entry::RIGHTS & !prot.bits();
            if lost != 0 {
                // What nobody may use is not present: rights alone would leave it to the kernel.
                let old = match prot {
                    Prot::None => leaf.set_prot(page, prot),
                    _ => leaf.clear_bits(page, lost),
                };
                // Until the flush a CPU may go on writing; where a clean entry lets it, no dirty bit will tell (INV-11).
                if old.may_be_dirty(p) && !p.broken(Rule::DirtyBeforeUnlock) {
                    mm.memmap().get(old.frame()).set_flags(p, flag::DIRTY);
                }
                if mm.may_be_cached(space, page, old) {
                    gather.add(page, pages);
                }
            }
            let gained = prot.bits() & !entry.0;
            // Who may write is decided by a fault, where a page may have to be copied, or its device waited for; but
            // what is this space's alone has nobody to ask.
            let own = || {
                // A large page is never shared. Of a page that somebody works on a fault will see.
                pages > 1 || mm.has_only_mapping(entry.frame()) == Some(true)
            };
            let read_only = gained & Entry::WRITABLE != 0 && !own();
            let (gained, prot) =
                if read_only { (gained & !Entry::WRITABLE, prot.read_only()) } else { (gained, prot) };
            if entry.is_prot_none() {
                // It is not present: no CPU changes it, nor has it.
                leaf.write(page, entry.with_prot(prot));
            } else if gained != 0 {
                leaf.set_bits(page, gained);
            }
        });
        gather.flush(mm, id, FlushReason::Protect, Rule::FlushBeforeProtectReturns).done();
        match prot {
            Prot::None => mm.revoke(id, space, range, Revoked::All),
            Prot::Read => mm.revoke(id, space, range, Revoked::Writes),
            Prot::ReadWrite => {}
        }
        mm.merge_vmas(space, range, &mut work);
        Ok(())
    }
}
