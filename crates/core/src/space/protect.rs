//! Change what may be done with a range.

use core::sync::atomic::Ordering;

use crate::Manager;
use crate::addr::{FrameNumber, PageRange};
use crate::charge::charge;
use crate::error::Error;
use crate::event::{FlushReason, Revoked};
use crate::memmap::{Frame, flag};
use crate::paging::{Entry, Prot, UserAccess};
use crate::platform::Platform;
use crate::profile::Scope;
use crate::resched::{Work, cost};
use crate::rule::Rule;
use crate::space::range::Gather;
use crate::view::Space;
use crate::vma::{SpaceState, Vma, check_range};

impl<'p, P: Platform> Space<'_, 'p, P> {
    /// Changes what may be done with `range`, all of which must be mapped. When it returns no CPU can do what is no
    /// longer permitted (INV-4). May wait.
    ///
    /// Code that was written somewhere is executed once the pages are [`Prot::ReadExecute`]: on x86-64 by all CPUs, elsewhere (RISC-V) once the kernel has
    /// had each CPU that runs the program fetch anew (FENCE.I), which is no affair of the core's.
    ///
    /// Where rights are taken away: one flush, thus at most one IPI per CPU that uses the space and is neither lazy nor
    /// this one. None if no page loses a right that is present, or was dropped and waits for a sweep (`free=sweep`), and nothing is deferred: rights that are only given cost
    /// nothing, since a CPU that still has the old ones faults and looks again.
    ///
    /// # Errors
    /// [`Error::NoSuchSpace`], [`Error::BadRange`], [`Error::NotMapped`]; [`Error::WriteAndExecute`] where the configuration forbids both;
    /// [`Error::OutOfMemory`] when a VMA or a large page must be split, and [`Error::MapCount`] when a VMA must.
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
        mm.check_prot(prot)?;
        let mut work = Work::begin(mm);
        let (space, _alone) = mm.write_lock(id, range)?;
        mm.split_vmas(id, space, range, &mut work)?;
        let mut executable = false;
        let mut gather = Gather::begin(p, space);
        for (_, vma) in mm.vmas_from(space, range.start) {
            let part = vma.range(p);
            if part.start >= range.end() {
                break;
            }
            let before = vma.prot(p);
            executable |= before.permits(UserAccess::Execute);
            vma.set_prot(p, prot);
            work.did(cost::VMA);
            mm.change_rights((space, vma), (before, prot), &mut gather, &mut work);
        }
        gather.flush(mm, id, FlushReason::Protect, Rule::FlushBeforeProtectReturns).done();
        if prot == Prot::None {
            mm.revoke(id, space, range, Revoked::All);
        } else {
            if !prot.permits(UserAccess::Write) {
                mm.revoke(id, space, range, Revoked::Writes);
            }
            if executable && !prot.permits(UserAccess::Execute) {
                mm.revoke(id, space, range, Revoked::Execution);
            }
        }
        mm.merge_vmas(space, range, &mut work);
        Ok(())
    }
}

impl<'p, P: Platform> Manager<'p, P> {
    /// Gives the entries of a VMA the rights that it has now, in place of those before. By whoever holds the VMAs alone.
    fn change_rights(
        &self,
        (space, vma): (&SpaceState, &Vma),
        (before, prot): (Prot, Prot),
        gather: &mut Gather<'p>,
        work: &mut Work<'_, 'p, P>,
    ) {
        let p = self.platform();
        let narrows =
            UserAccess::ALL.into_iter().any(|access| before.permits(access) && !prot.permits(access));
        let shared = vma.file(p).is_some() && !vma.is_private(p) && !vma.rights(p).1;
        self.split_file_entries(space, vma.range(p), work);
        self.visit(space, vma.range(p), (work, cost::ENTRY), |leaf, page, entry, pages| {
            if !entry.is_mapped() {
                // INV-4: what was dropped, and a CPU may still use (INV-14), it may use no longer than the rights last.
                if narrows && entry.parked_until().is_some_and(|until| self.may_be_used(until)) {
                    leaf.write(page, Entry::NONE);
                    gather.add(page, pages);
                }
                return;
            }
            let gains = |access| prot.permits(access) && !entry.permits(access);
            if entry.exceeds(prot) {
                // Writing is given below, if at all.
                let less = if gains(UserAccess::Write) { prot.read_only() } else { prot };
                // What nobody may use is not present: rights alone would leave it to the kernel.
                let executes = entry.permits(UserAccess::Execute) && !prot.permits(UserAccess::Execute);
                let old = match prot {
                    _ if executes => leaf.set_prot(page, less),
                    Prot::None => leaf.set_prot(page, prot),
                    _ => leaf.clear_bits(page, Entry::WRITABLE),
                };
                // Until the flush a CPU may go on writing; where a clean entry lets it, no dirty bit will tell (INV-11).
                if old.may_be_dirty(p) && !p.broken(Rule::DirtyBeforeUnlock) {
                    self.note_dirty(old.frame(), old.has(Entry::WRITABLE));
                }
                if self.may_be_cached(space, page, old) {
                    gather.add(page, pages);
                }
            }
            // Who may write is decided by a fault, where a page may have to be copied, or its device waited for; but
            // what is this space's alone, or memory that programs share, has nobody to ask.
            let own = || {
                // A large page is never shared. Of a page that somebody works on a fault will see.
                let n = entry.frame();
                pages > 1
                    || shared && self.is_idle_memory(n)
                    || self.has_only_mapping(n) == Some(true) && !self.is_lazy(n)
            };
            let writes = gains(UserAccess::Write) && own();
            let prot = if gains(UserAccess::Write) && !writes { prot.read_only() } else { prot };
            if entry.is_prot_none() {
                // It is not present: no CPU changes it, nor has it.
                leaf.write(page, entry.with_prot(prot));
            } else if gains(UserAccess::Execute) {
                leaf.set_prot(page, prot);
            } else if writes {
                leaf.set_bits(page, Entry::WRITABLE);
            }
        });
    }

    /// Whether a page that programs share is one of a memory file, and on its way nowhere: whoever may write to it needs nobody's leave. By whoever
    /// has found an entry that leads there, under the lock of its table: whoever takes it out of memory locks it before it waits for that (INV-2).
    fn is_idle_memory(&self, n: FrameNumber) -> bool {
        let p = self.platform();
        let state = self.memmap().get(n).state.load(p, Ordering::Acquire);
        Frame::is_memory(state) && state & flag::LOCKED == 0
    }

    /// Whether a mapping may have these rights.
    pub(super) fn check_prot(&self, prot: Prot) -> Result<(), Error> {
        let both = self.config().write_xor_execute && prot == Prot::ReadWriteExecute;
        if both { Err(Error::WriteAndExecute) } else { Ok(()) }
    }
}
