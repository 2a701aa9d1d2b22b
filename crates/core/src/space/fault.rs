//! Page faults on user addresses.

use core::sync::atomic::Ordering;

use crate::Manager;
use crate::addr::{FrameNumber, PageNumber, PageRange, VirtAddr};
use crate::charge::charge;
use crate::error::Error;
use crate::event::{Event, FlushReason};
use crate::file::{FilePage, Window};
use crate::frame::AllocFrom;
use crate::group::Payer;
use crate::handle::{FileId, FileSlot, GroupSlot, SpaceId};
use crate::kind::Kind;
use crate::memmap::{Frame, flag};
use crate::paging::table::{self, Leaf, Way};
use crate::paging::{Entry, Prot, UserAccess};
use crate::platform::Platform;
use crate::profile::Scope;
use crate::resched::Work;
use crate::rule::Rule;
use crate::space::outside::{Kept, Outside};
use crate::swap::SwapIn;
use crate::sync::full_fence;
use crate::tlb;
use crate::view::Space;
use crate::vma::{SpaceState, Vma};

/// Where a fault stands.
pub(super) enum FaultStep {
    /// The access may be tried again.
    Done,
    /// Something changed under way: look again.
    Again,
    /// Something must be waited for, with the VMAs let go.
    Outside(Outside),
}

/// What a fault gets for a page that is missing.
enum Got {
    /// A frame, held; what may be done with it; whether it was made for this fault.
    Page(FrameNumber, Prot, bool),
    /// It must be read or waited for first.
    Outside(Outside),
}

/// What to read of a file once the fault is resolved: it came to the mark of a window.
type Ahead = Option<(FileId, Window)>;

/// A fault, on its way.
pub(super) struct Fault<'a> {
    pub id: SpaceId,
    pub space: &'a SpaceState,
    pub vma: &'a Vma,
    pub page: PageNumber,
    pub leaf: Leaf,
    pub access: UserAccess,
    /// What [`Vma::rights`] says.
    pub prot: Prot,
    pub watched: bool,
}

impl<'p, P: Platform> Space<'_, 'p, P> {
    /// Resolves a fault at `at` in `id`. Call it from the page-fault handler, with interrupts on. May wait for memory and
    /// I/O; other threads map, unmap and fault while it waits for I/O.
    ///
    /// Sends no IPI, unless it reclaims, or the address still waits for a deferred flush (INV-12), or a write copies a page
    /// that another space shares: then at most one per CPU that uses the space and is neither lazy nor this one.
    ///
    /// Where the hardware does not set accessed and dirty bits, this does, so it is called for these too; and where the hardware
    /// keeps that it refused an access, this CPU has forgotten that when it returns ([`Architecture`](crate::Architecture)).
    ///
    /// # Errors
    /// [`Error::NotMapped`], [`Error::NotPermitted`] and [`Error::BeyondFile`] are the program's fault; [`Error::OutOfMemory`],
    /// [`Error::Device`], [`Error::WriteRefused`] and [`Error::SwapDevice`] are not. [`Error::NoSuchSpace`]. [`Error::NotOnline`] on a CPU that has not
    /// called [`cpu_online`](crate::Manager::cpu_online): nobody would flush what it caches.
    ///
    /// # Examples
    /// ```
    /// # use quietmm_doc::*;
    /// # doc(|mm| {
    /// let space = mm.space(mm.create_space()?);
    /// let heap = PageRange::new(PageNumber(0x400), 16);
    /// space.map(heap, Backing::Anonymous, Prot::ReadWrite)?;
    /// // From the kernel's handler, with the address and what was tried there.
    /// space.fault(heap.start.addr(), UserAccess::Write)?;
    /// assert!(space.lookup(heap.start)?.permits(UserAccess::Write));
    /// # Ok(())
    /// # });
    /// ```
    pub fn fault(&self, at: VirtAddr, access: UserAccess) -> Result<(), Error> {
        let Space { mm, id } = *self;
        let _scope = charge(mm.platform(), Scope::Fault);
        let page = at.page();
        let (mut major, mut ahead) = (false, None);
        loop {
            let resolved = mm.with_vma(id, page, &mut major, |(space, vma), kept, major| {
                mm.resolve((id, space, vma), page, access, (kept, &mut ahead), major)
            });
            match resolved {
                Err(Error::NotMapped(hole)) if hole == page && mm.grow_to(id, page)? => {}
                result => break result?,
            }
        }
        tlb::forget_refusal(mm, page);
        if let Some((file, window)) = ahead {
            mm.read_next(file, window);
        }
        mm.emit(Event::Faulted { major });
        Ok(())
    }

    /// What the tables of a space say of a page now: for kernels that look before they copy. Of a large page, the part
    /// that `page` is.
    ///
    /// # Errors
    /// [`Error::NoSuchSpace`]; [`Error::BadRange`] beyond user addresses.
    ///
    /// # Examples
    /// ```
    /// # use quietmm_doc::*;
    /// # doc(|mm| {
    /// let space = mm.space(mm.create_space()?);
    /// let heap = PageRange::new(PageNumber(0x400), 16);
    /// space.map(heap, Backing::Anonymous, Prot::ReadWrite)?;
    /// assert!(!space.lookup(heap.start)?.is_present());
    /// space.fault(heap.start.addr(), UserAccess::Read)?;
    /// assert!(space.lookup(heap.start)?.is_present());
    /// # Ok(())
    /// # });
    /// ```
    pub fn lookup(&self, page: PageNumber) -> Result<Entry, Error> {
        let Space { mm, id } = *self;
        let (space, _shared) = mm.read_lock(id)?;
        if page >= PageNumber::USER_END {
            return Err(Error::BadRange);
        }
        let entry = loop {
            break match table::find(mm, space.root(mm.platform()), page) {
                Way::Gap(_) => Entry::NONE,
                Way::Small(leaf) => leaf.lock(mm).read(page),
                Way::Large(leaf) => {
                    let locked = leaf.lock(mm);
                    if locked.leads_on(page) {
                        continue;
                    }
                    let entry = locked.read(page);
                    // It may be about to go, or have gone: an unmap does not hold the VMAs all the time.
                    let part = || entry.leading_to(entry.frame().add(page.index(0) as u32));
                    if entry.is_mapped() { part() } else { Entry::NONE }
                }
            };
        };
        Ok(if entry.is_taken() { Entry::NONE } else { entry })
    }
}

impl<'p, P: Platform> Manager<'p, P> {
    /// An entry that permits an access is used: sets the bits that say so, where the hardware does not. Under the table's lock,
    /// so no bit is set in what another has put in its place. Returns whether it did.
    fn mark_used(&self, leaf: Leaf, page: PageNumber, access: UserAccess) -> bool {
        let bits = Entry::ACCESSED | if access == UserAccess::Write { Entry::DIRTY } else { 0 };
        if self.platform().architecture().sets_accessed() || leaf.peek(self, page).has(bits) {
            return false;
        }
        let locked = leaf.lock(self);
        let now = locked.read(page);
        let marks = now.permits(access) && !now.has(bits) && !locked.leads_on(page);
        if marks {
            locked.set_bits(page, bits);
        }
        marks
    }

    /// Resolves it as far as nothing is to be waited for. By whoever shares the VMA.
    pub(super) fn resolve(
        &self,
        (id, space, vma): (SpaceId, &SpaceState, &Vma),
        page: PageNumber,
        access: UserAccess,
        (kept, ahead): (&mut Kept<'_, 'p, P>, &mut Ahead),
        major: &mut bool,
    ) -> Result<Option<Outside>, Error> {
        let p = self.platform();
        // A fault that has waited may go on on another CPU.
        if !self.is_online(p.this_cpu()) {
            return Err(Error::NotOnline);
        }
        let (prot, watched) = vma.rights(p);
        if !prot.permits(access) {
            return Err(Error::NotPermitted(page));
        }
        let mut changed = self.fault_large((id, space, vma), page, access, major)?;
        if changed && p.architecture().sets_accessed() {
            return Ok(None);
        }
        let find = || table::find_or_make(self, space.root(p), page, &|| self.group_of(space));
        let mut leaf = find()?;
        let is_small = |leaf: Leaf| {
            let locked = leaf.lock(self);
            // Whatever it is that the large entry of a file does not permit, a small one may.
            locked.leads_on(page) || !locked.read(page).permits(access) && locked.split_file(page)
        };
        if leaf.is_large() && self.has_spares() && is_small(leaf) {
            leaf = find()?;
        }
        if leaf.is_large() {
            changed |= self.fault_on_large(leaf, page, vma, access);
            if !(self.mark_used(leaf, page, access) || changed) {
                tlb::forget_refusals_above(self);
            }
            return Ok(None);
        }
        let fault = Fault { id, space, vma, page, leaf, access, prot, watched };
        loop {
            let now = leaf.peek(self, page);
            // It may permit the access by now: another thread was faster, or rights were given and this CPU still
            // had the old ones.
            if now.permits(access) {
                if !(self.mark_used(leaf, page, access) || changed) {
                    tlb::forget_refusals_above(self);
                }
                return Ok(None);
            }
            let step = if let Some(slot) = now.swap_slot() {
                self.map_swapped(&fault, slot, Payer::Within)?
            } else if !now.is_mapped() {
                self.map_missing(&fault, (kept, ahead), major)?
            } else if access == UserAccess::Write {
                self.copy_on_write(&fault)?
            } else {
                FaultStep::Again
            };
            match step {
                FaultStep::Done if p.architecture().sets_accessed() => return Ok(None),
                FaultStep::Done => changed = true,
                FaultStep::Again => {}
                FaultStep::Outside(outside) => return Ok(Some(outside)),
            }
        }
    }

    /// Maps a page where none is.
    #[inline(never)]
    fn map_missing(
        &self,
        fault: &Fault<'_>,
        (kept, ahead): (&mut Kept<'_, 'p, P>, &mut Ahead),
        major: &mut bool,
    ) -> Result<FaultStep, Error> {
        let p = self.platform();
        let (frame, prot, made) = match self.page_for(fault, kept, ahead)? {
            Got::Page(frame, prot, made) => (frame, prot, made),
            Got::Outside(outside) => return Ok(FaultStep::Outside(outside)),
        };
        *major |= made;
        let list = made && self.ref_for_list(frame);
        loop {
            let locked = fault.leaf.lock(self);
            let now = locked.read(fault.page);
            let is_there = now.is_mapped() || now.is_swapped();
            if is_there || now.is_taken() && !p.broken(Rule::FaultWaitsForDrop) {
                // Another thread was faster; and so may reclaim have been, or a drop that is not done.
                drop(locked);
                if list {
                    self.put_page(frame);
                }
                self.put_page(frame);
                let dropped = FaultStep::Outside(Outside::Dropped(fault.id));
                return Ok(if is_there { FaultStep::Again } else { dropped });
            }
            if let Some(until) = now.deferred_until(|| fault.space.generation(p)) {
                // INV-12: another CPU may still see the file's page here. That page may be mapped again: it is in its cache
                // until the flush, so what was found there is the same frame, or was read after it. A copy of it may not:
                // finish that flush first, without the lock, and look again.
                let is_copy = self.memmap().get(frame).kind(p) == Kind::Anon;
                if is_copy && fault.space.is_behind(p, until) && !p.broken(Rule::RefaultAfterFlush) {
                    drop(locked);
                    self.emit(Event::DeferredCompleted);
                    let range = PageRange::new(fault.page, 1);
                    tlb::flush(self, fault.id, Some(range), FlushReason::Deferred, false);
                    continue;
                }
            }
            // INV-12: whoever cuts it off has marked it before, or finds the entry.
            if self.is_cut(frame) && !p.broken(Rule::LookForCut) {
                return Ok(FaultStep::Outside(Outside::Page(frame)));
            }
            // INV-2: while the page is being written out nobody may begin to write to it. Looked at under the lock
            // under which write-back takes such rights away, after it has locked the page.
            let bar = self.write_bar(fault, frame, prot);
            let prot = if bar.is_some() { prot.read_only() } else { prot };
            if let Some(bar) = bar
                && fault.access == UserAccess::Write
            {
                return Ok(FaultStep::Outside(bar));
            }
            if now.parked_until().is_some() {
                // INV-14: a CPU may still see there what was dropped.
                drop(locked);
                self.settle_one(fault.id, fault.leaf, fault.page, now);
                continue;
            }
            self.memmap().get(frame).maps.fetch_add(p, 1, Ordering::Relaxed);
            locked.write(fault.page, Entry::page(frame, prot));
            self.emit(Event::Mapped { space: fault.id, page: fault.page, frame, pages: 1 });
            drop(locked);
            if list {
                self.list_held(frame);
            }
            self.map_around(fault);
            return Ok(FaultStep::Done);
        }
    }

    /// Maps the page of a swap slot again.
    #[inline(never)]
    fn map_swapped(
        &self,
        fault: &Fault<'_>,
        slot: u32,
        payer: fn(GroupSlot) -> Payer,
    ) -> Result<FaultStep, Error> {
        let p = self.platform();
        let new = || (payer(self.group_of(fault.space)), self.place_of_new(fault.vma, fault.page));
        let n = match self.swap_in(slot, new)? {
            SwapIn::Found(n) => n,
            SwapIn::Busy(n) => return Ok(FaultStep::Outside(Outside::Page(n))),
            SwapIn::New(n) => return Ok(FaultStep::Outside(Outside::Swap(slot, n))),
            SwapIn::Gone => return Ok(FaultStep::Again),
        };
        // INV-12, and INV-2: the page is locked, so whoever took it out of memory has flushed, and nobody writes it out.
        let locked = fault.leaf.lock(self);
        if locked.read(fault.page).swap_slot() != Some(slot) {
            drop(locked);
            self.unlock_page(n);
            self.put_page(n);
            return Ok(FaultStep::Again);
        }
        let frame = self.memmap().get(n);
        if let Some(anon_vma) = fault.vma.anon_vma(p) {
            // All entries that name this slot are of one `anon_vma`, at one index.
            frame.owner.set(p, anon_vma.0);
            frame.set_anon_index(p, fault.vma.anon_index(p, fault.page));
        }
        self.keep_content(n);
        let before = frame.maps.fetch_add(p, 1, Ordering::Relaxed);
        let others = self.swap_undo(slot);
        let prot = if before == 0 && others == 0 { fault.prot } else { fault.prot.read_only() };
        locked.write(fault.page, Entry::page(n, prot));
        self.emit(Event::Mapped { space: fault.id, page: fault.page, frame: n, pages: 1 });
        if others == 0 && (Self::is_transit(slot) || self.swap_is_tight()) {
            // Somebody needs the slot more. By whoever holds the page locked, so nobody else looks at what it has. Where it gets another slot it is dirty.
            self.swap_detach(n, slot);
        }
        // The mapping has the caller's reference now: the page may be gone as soon as others reach the entry.
        self.unlock_page(n);
        drop(locked);
        Ok(FaultStep::Done)
    }

    /// Whether a new page goes to a list of its own once it is mapped: then it is held until it is on its way.
    pub(super) fn ref_for_list(&self, n: FrameNumber) -> bool {
        let (p, frame) = (self.platform(), self.memmap().get(n));
        let list = self.config().swap && frame.kind(p) == Kind::Anon;
        if list {
            frame.refs.fetch_add(p, 1, Ordering::Relaxed);
        }
        list
    }

    pub(super) fn list_held(&self, n: FrameNumber) {
        self.lru_add(n);
        self.put_page(n);
    }

    /// The first page from `from` on whose entry names a swap slot that is one of these. Nowhere in a space that ends.
    pub(crate) fn next_swapped(
        &self,
        id: SpaceId,
        from: PageNumber,
        own: impl Fn(u32) -> bool,
    ) -> Option<PageNumber> {
        let (space, _shared) = self.read_lock(id).ok()?;
        let range = PageRange::between(from, PageNumber::USER_END);
        let work = &mut Work::begin(self);
        self.visit_until(space, range, (work, 1), |_, _, entry, _| !entry.swap_slot().is_some_and(&own))
    }

    /// Brings the page of an entry that names a swap slot back, whatever programs may do with it, and has its space's group charged so.
    /// May wait.
    pub(crate) fn swap_in_at(
        &self,
        id: SpaceId,
        page: PageNumber,
        payer: fn(GroupSlot) -> Payer,
    ) -> Result<(), Error> {
        self.with_vma(id, page, &mut false, |(space, vma), _, _| {
            // It may be another VMA by now: then there may be no table, and nothing in it.
            let Way::Small(leaf) = table::find(self, space.root(self.platform()), page) else {
                return Ok(None);
            };
            let (access, prot) = (UserAccess::Read, vma.prot(self.platform()));
            let fault = Fault { id, space, vma, page, leaf, access, prot, watched: false };
            while let Some(slot) = leaf.peek(self, page).swap_slot() {
                if let FaultStep::Outside(outside) = self.map_swapped(&fault, slot, payer)? {
                    return Ok(Some(outside));
                }
            }
            Ok(None)
        })
    }

    /// The frame for a missing page.
    fn page_for(
        &self,
        fault: &Fault<'_>,
        kept: &mut Kept<'_, 'p, P>,
        ahead: &mut Ahead,
    ) -> Result<Got, Error> {
        let p = self.platform();
        let prot = fault.prot;
        let Some(slot) = fault.vma.file(p) else {
            let n = self.new_anon(fault.space, fault.vma, fault.page)?;
            p.clear_frame(n);
            return Ok(Got::Page(n, prot, true));
        };
        let index = fault.vma.file_page(p, fault.page);
        let file = (slot, self.file_at(slot));
        let id = || file.1.id(p, slot);
        let n = match kept.take_if(file, index) {
            Some(read) => read,
            None => match self.file_page(file, index)? {
                FilePage::Found(n) => {
                    if self.config().read_ahead > 0 {
                        let id = id();
                        let window = self.window_of_fault(id, index, true);
                        *ahead = (!window.is_empty()).then_some((id, window)).or(ahead.take());
                    }
                    n
                }
                FilePage::Busy(n) => return Ok(Got::Outside(Outside::Page(n))),
                FilePage::New(n) => {
                    let id = id();
                    let window = self.window_of_fault(id, index, false);
                    return Ok(Got::Outside(Outside::File((id, index), n, window)));
                }
                FilePage::Out(slot, n) => return Ok(Got::Outside(Outside::Swap(slot, n))),
                FilePage::Closed => return Ok(Got::Outside(Outside::Hole(slot))),
            },
        };
        if self.is_cut(n) && !p.broken(Rule::LookForCut) {
            return Ok(Got::Outside(Outside::Page(n)));
        }
        if !fault.vma.is_private(p) || fault.access != UserAccess::Write {
            // INV-2: before the look at the page's lock, and INV-12: at its mark. The reverse map may not see a table yet that this fault has made,
            // or found; where it does, the table's lock orders the two.
            //
            //   this CPU                  write-back
            //   table made, or found      page locked
            //   ---- fence ----           ---- fence ----
            //   is the page locked?       walk: is there a table?
            //     yes: read-only            yes: its entry loses the right to write
            //     no: it finds the table    no: it finds the page locked
            //
            // Partner: the fence in `rmap::walk::walk_all`. So it is with a page that is cut off: marked, in place of locked.
            full_fence(p);
            let prot = if fault.vma.is_private(p) { prot.read_only() } else { prot };
            return Ok(Got::Page(n, prot, false));
        }
        self.first_copy(fault, n)
    }

    /// A copy of a page of a file, held, for a mapping's own. The first access is a write: the copy is mapped at once, and no CPU ever sees
    /// the original here.
    #[inline(never)]
    fn first_copy(&self, fault: &Fault<'_>, n: FrameNumber) -> Result<Got, Error> {
        let p = self.platform();
        let copy = self.new_anon(fault.space, fault.vma, fault.page);
        if let Ok(copy) = copy {
            p.copy_frame(n, copy);
            if self.is_cut(n) {
                // While there was no memory for the copy, say: the file has something else there by now.
                self.free_one(copy);
                return Ok(Got::Outside(Outside::Page(n)));
            }
            self.emit(Event::Copied);
        }
        self.put_page(n);
        Ok(Got::Page(copy?, fault.prot, true))
    }

    /// An anonymous frame for a page of a space's VMA, not cleared, with one reference.
    pub(super) fn new_anon(
        &self,
        space: &SpaceState,
        vma: &Vma,
        page: PageNumber,
    ) -> Result<FrameNumber, Error> {
        let p = self.platform();
        let group = space.group_slot(p);
        let n = match self.nodes_of(vma) {
            0 => self.alloc_charged(Kind::Anon, AllocFrom::HERE, group)?,
            nodes => self.alloc_charged_on(Kind::Anon, self.placement(nodes, page.0), group)?,
        };
        let frame = self.memmap().get(n);
        frame.owner.set(p, vma.anon_vma(p).map_or(0, |anon_vma| anon_vma.0));
        frame.index.set(p, vma.anon_index(p, page));
        frame.maps.set(p, 0);
        frame.refs.set(p, 1);
        Ok(n)
    }

    /// Lets the program write to a page that is there and read-only, or to its copy.
    #[inline(never)]
    fn copy_on_write(&self, fault: &Fault<'_>) -> Result<FaultStep, Error> {
        let p = self.platform();
        let locked = fault.leaf.lock(self);
        let now = locked.read(fault.page);
        if !now.is_present() || now.permits(UserAccess::Write) {
            return Ok(FaultStep::Again);
        }
        let n = now.frame();
        let frame = self.memmap().get(n);
        if !fault.vma.is_private(p) {
            // No fence here: whoever mapped the page for reading has passed the one in `page_for`, under this table's lock.
            let Some(bar) = self.write_bar(fault, n, Prot::ReadWrite) else {
                locked.set_bits(fault.page, Entry::WRITABLE);
                return Ok(FaultStep::Done);
            };
            frame.refs.fetch_add(p, 1, Ordering::Relaxed);
            return Ok(FaultStep::Outside(bar));
        }
        match self.has_only_mapping(n) {
            Some(true) => {
                self.keep_content(n);
                locked.set_bits(fault.page, Entry::WRITABLE);
                return Ok(FaultStep::Done);
            }
            Some(false) => {}
            None => {
                frame.refs.fetch_add(p, 1, Ordering::Relaxed);
                return Ok(FaultStep::Outside(Outside::Page(n)));
            }
        }
        frame.refs.fetch_add(p, 1, Ordering::Relaxed);
        drop(locked);
        let done = self.copy_and_replace(fault, now, n);
        self.put_page(n);
        done
    }

    /// What must be waited for before a program may write to a page of a file that it shares, held by the caller or its entry; nothing
    /// where it may not anyway, or the page is its own. Under the lock of the table whose entry leads, or is to lead, there.
    ///
    /// A page of a watched file is dirty from the time when its file system was asked, until it is written out: then its right to write
    /// is gone from all entries, under their tables' locks, and it is locked until it is clean. One look at its state finds it
    /// locked, or as it is after that.
    fn write_bar(&self, fault: &Fault<'_>, n: FrameNumber, prot: Prot) -> Option<Outside> {
        let (p, frame) = (self.platform(), self.memmap().get(n));
        let state = frame.state.load(p, Ordering::Acquire);
        if Frame::kind_of(state) != Kind::File || !prot.permits(UserAccess::Write) {
            return None;
        }
        if state & flag::LOCKED != 0 && !p.broken(Rule::WriteWaitsForIo) {
            return Some(Outside::Page(n));
        }
        let asks = fault.watched && state & flag::DIRTY == 0 && !p.broken(Rule::AskBeforeWrite);
        asks.then(|| Outside::Write(self.file_id(FileSlot(frame.owner.get(p))), frame.index.get(p), n))
    }

    /// Whether nobody but the one entry that leads to a page, under the lock of its table, has the page; `None` if somebody
    /// works on it, who can be waited for.
    ///
    /// Only a fork of this space could add a mapping to the only one, and a fork needs the VMAs alone. Or the fault of
    /// another space, of which the entry names the page's slot: while the page is locked no entry that leads to it becomes
    /// one that names its slot, nor the other way, and it keeps the slot. Without the lock that fault could come between a
    /// look at the mappings and one at the slot, and give the slot back.
    pub(super) fn has_only_mapping(&self, n: FrameNumber) -> Option<bool> {
        let (p, frame) = (self.platform(), self.memmap().get(n));
        // Acquire: partner of the Release of whoever let go of the page.
        let only = || frame.kind(p) == Kind::Anon && frame.maps.load(p, Ordering::Acquire) == 1;
        let mapped = only();
        if !mapped || !self.is_swappable(n) {
            return Some(mapped);
        }
        if !frame.try_lock(p) {
            return None;
        }
        let only = only() && !self.slot_is_used(n);
        self.unlock_page(n);
        Some(only)
    }

    /// Copies a page that others have too, and maps the copy in its place.
    #[inline(never)]
    pub(super) fn copy_and_replace(
        &self,
        fault: &Fault<'_>,
        seen: Entry,
        old: FrameNumber,
    ) -> Result<FaultStep, Error> {
        let p = self.platform();
        let copy = self.new_anon(fault.space, fault.vma, fault.page)?;
        p.copy_frame(old, copy);
        let locked = fault.leaf.lock(self);
        let now = locked.read(fault.page);
        if !now.is_present() || now.frame() != old || now.permits(UserAccess::Write) {
            // Another thread copied it meanwhile, or the others let go of it: what was copied may be half new.
            drop(locked);
            self.free_one(copy);
            return Ok(FaultStep::Again);
        }
        debug_assert_eq!(now.0 & Entry::RIGHTS, seen.0 & Entry::RIGHTS, "the VMAs are shared");
        // The others see what was written here before they shared it: a slot that has older content is not theirs.
        if locked.take(fault.page).has(Entry::DIRTY) && !p.broken(Rule::DirtyBeforeUnlock) {
            self.memmap().get(old).set_flags(p, flag::DIRTY);
        }
        self.emit(Event::Unmapped {
            space: fault.id,
            page: fault.page,
            frame: old,
            pages: 1,
            deferred: false,
        });
        // INV-12: no CPU may see the old frame here once another can see the copy. The lock is held meanwhile, so that no
        // thread takes the address for one that was never touched.
        if !p.broken(Rule::FlushBeforeCopyMaps) {
            let range = PageRange::new(fault.page, 1);
            tlb::flush(self, fault.id, Some(range), FlushReason::Copy, false);
        }
        let list = self.ref_for_list(copy);
        self.memmap().get(copy).maps.set(p, 1);
        locked.write(fault.page, Entry::page(copy, fault.prot));
        self.emit(Event::Mapped { space: fault.id, page: fault.page, frame: copy, pages: 1 });
        self.emit(Event::Copied);
        drop(locked);
        if list {
            self.list_held(copy);
        }
        self.drop_mapping(old);
        Ok(FaultStep::Done)
    }
}
