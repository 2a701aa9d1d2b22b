//! The invariants, as the machine sees them: whatever a CPU *could* do next is judged, not only what it does.
//!
//! A CPU that runs a program may use, at any moment, everything that it has cached of its space. So each law is looked
//! at where it could come to be broken: when a frame is freed, when a device begins to read it, when an operation returns,
//! when a CPU goes back to its program.

use quietmm::addr::{FrameNumber, PageRange};
use quietmm::event::Revoked;
use quietmm::{Entry, PageNumber, Rule, UserAccess};

use super::tlb::{Cached, CachedKernel, LARGE_PAGES, Tlb, Walked};
use super::{Cpu, Machine, What};
use crate::violation::{Skipped, Violation};

impl Machine {
    /// A step is left out here, if this is the one.
    #[inline]
    pub(crate) fn leaves_out(&self, rule: Rule) -> bool {
        if self.broken.get() != Some(rule) {
            return false;
        }
        self.skipped.set(Some(Skipped { rule, cpu: self.current.get(), step: self.steps.get() }));
        self.note(|| What::Skip(rule));
        true
    }

    /// Whether a write through this entry goes to its frame without a look at the table.
    fn writes_unseen(&self, cached: &Cached) -> bool {
        cached.entry.has(Entry::WRITABLE) && (cached.entry.has(Entry::DIRTY) || !self.setup.guarantees)
    }

    /// What a program on this CPU could use now.
    pub(crate) fn judge_user(&self, id: u16) {
        let wrong = {
            let tlb = self.cpus[usize::from(id)].tlb.borrow();
            tlb.usable()
                .find_map(|cached| self.wrong_with(id, tlb.root, cached))
                .or_else(|| self.wrong_way(id, &tlb))
        };
        if let Some(violation) = wrong {
            self.fail(violation);
        }
    }

    /// A table that this CPU remembers the way to is no table any more (INV-9).
    fn wrong_way(&self, id: u16, tlb: &Tlb) -> Option<Violation> {
        let gone = |walked: &&Walked| {
            let state = self.memory.state(walked.table);
            walked.tag == tlb.tag
                && state.is_some_and(|state| state.free.get() || state.life.get() != walked.life)
        };
        let table = tlb.walked.iter().find(gone)?.table;
        let said = format!("CPU {id} runs a program, and can walk {table:?}, which was a page table");
        Some(Violation::new("INV-9", id, said))
    }

    /// Judges one entry that a program on this CPU could use.
    fn wrong_with(&self, id: u16, root: Option<FrameNumber>, cached: &Cached) -> Option<Violation> {
        let (page, frame) = (cached.page, cached.frame(cached.page));
        let state = self.memory.state(frame)?;
        let says = |invariant, what: String| Some(Violation::new(invariant, id, what));
        if cached.root != root {
            return says("INV-6", format!("CPU {id} can use page {page:#x} ({frame:?}) of another space"));
        }
        let freed = |n: &u32| self.memory.state(frame.add(*n)).is_some_and(|state| state.free.get());
        if cached.large
            && let Some(n) = (0..LARGE_PAGES as u32).find(freed)
        {
            let frame = frame.add(n);
            return says(
                "INV-1",
                format!("CPU {id} can use the large page {page:#x} in {frame:?}, which is free"),
            );
        }
        if state.free.get() || state.life.get() != cached.life {
            let now = if state.free.get() { "is free" } else { "is somebody else's by now" };
            return says("INV-1", format!("CPU {id} can use page {page:#x} in {frame:?}, which {now}"));
        }
        if cached.execution_revoked && cached.entry.permits(UserAccess::Execute) {
            let what = format!(
                "CPU {id} can execute page {page:#x} ({frame:?}) after the operation that forbade it"
            );
            return says("INV-4", what);
        }
        match cached.revoked {
            Some(Revoked::All) => {
                return says(
                    "INV-4",
                    format!(
                        "CPU {id} can use page {page:#x} ({frame:?}) after the operation that took it away"
                    ),
                );
            }
            Some(Revoked::Writes) if self.writes_unseen(cached) => {
                return says(
                    "INV-4",
                    format!(
                        "CPU {id} can write to page {page:#x} ({frame:?}) after the operation that forbade it"
                    ),
                );
            }
            _ => {}
        }
        if state.going_out.get() > 0 && self.writes_unseen(cached) {
            return says(
                "INV-2",
                format!("CPU {id} can write to page {page:#x} while a device reads {frame:?}"),
            );
        }
        self.other_frame(id, cached).or_else(|| self.second_frame(id, cached))
    }

    /// Another program of the space can use the same page in another frame (INV-12).
    fn other_frame(&self, id: u16, cached: &Cached) -> Option<Violation> {
        let root = self.cpus[usize::from(id)].tlb.borrow().root;
        for (other, cpu) in self.cpus.iter().enumerate() {
            if other == usize::from(id) || !cpu.in_user_mode() {
                continue;
            }
            let tlb = cpu.tlb.borrow();
            let theirs = tlb.usable().find(|theirs| tlb.root == root && theirs.covers(cached.page));
            let theirs = theirs.map(|theirs| theirs.frame(cached.page));
            if let Some(theirs) = theirs.filter(|&theirs| theirs != cached.frame(cached.page)) {
                let (page, mine) = (cached.page, cached.frame(cached.page));
                let said = format!("page {page:#x} is {mine:?} for CPU {id}, and {theirs:?} for CPU {other}");
                return Some(Violation::new("INV-12", id, said));
            }
        }
        None
    }

    /// A program, of whatever space, can use the same page of a file or of swap in another frame (INV-12).
    fn second_frame(&self, id: u16, cached: &Cached) -> Option<Violation> {
        let frame = cached.frame(cached.page);
        let holds = |frame| self.memory.state(frame).and_then(|state| state.holds.get());
        let (store, block) = holds(frame)?;
        for (other, cpu) in self.cpus.iter().enumerate().filter(|(_, cpu)| cpu.in_user_mode()) {
            let tlb = cpu.tlb.borrow();
            let elsewhere = |theirs: &&Cached| {
                let second = theirs.frame(theirs.page);
                second != frame && !theirs.large && holds(second) == Some((store, block))
            };
            if let Some(theirs) = tlb.usable().find(elsewhere) {
                let (mine, second) = (cached.page, theirs.frame(theirs.page));
                let said = format!(
                    "block {block} of {store:?} is {frame:?} for CPU {id}, at page {mine:#x}, and {second:?} for CPU \
                     {other}, at page {:#x}",
                    theirs.page
                );
                return Some(Violation::new("INV-12", id, said));
            }
        }
        None
    }

    /// What all CPUs have cached matters here.
    fn looks_at_all(&self) {
        (0..self.setup.cpus).for_each(|cpu| self.record(super::Place::Tlb(cpu), false));
    }

    /// The core gives frames back.
    pub(crate) fn judge_freed(&self, frame: FrameNumber) {
        let Some(state) = self.memory.state(frame) else { return };
        let by = self.current.get();
        self.looks_at_all();
        if state.free.get() {
            self.fail(Violation::new("INV-1", by, format!("{frame:?} is freed twice")));
        }
        if state.going_out.get() > 0 {
            self.fail(Violation::new("INV-2", by, format!("{frame:?} is freed while a device reads it")));
        }
        for (id, cpu) in self.cpus.iter().enumerate().filter(|(_, cpu)| cpu.online.get()) {
            let tlb = cpu.tlb.borrow();
            let said = if cpu.in_user_mode()
                && let Some(cached) = tlb.usable().find(|cached| cached.leads_to(frame))
            {
                Some((
                    "INV-1",
                    format!("{frame:?} is freed, and CPU {id} can still use page {:#x} in it", cached.page),
                ))
            } else if state.table.get() && tlb.can_walk(frame) {
                let how = if tlb.root == Some(frame) { "has loaded it" } else { "may walk it" };
                Some(("INV-9", format!("the page table in {frame:?} is freed, and CPU {id} {how}")))
            } else if !state.lent.get()
                && cpu.in_kernel()
                && let Some(cached) = tlb.kernel_usable().find(|cached| cached.entry.frame() == frame)
            {
                let page = cached.page;
                Some((
                    "INV-1",
                    format!("{frame:?} is freed, and CPU {id} can still use kernel page {page:#x} in it"),
                ))
            } else {
                None
            };
            drop(tlb);
            if let Some((invariant, said)) = said {
                self.fail(Violation::new(invariant, id as u16, said));
            }
        }
        state.free.set(true);
        state.table.set(false);
        state.lent.set(false);
        state.holds.set(None);
        state.life.set(state.life.get() + 1);
    }

    /// The core touches a word.
    #[inline]
    pub(crate) fn judge_own(&self, at: *const u8) {
        let Some(frame) = self.memory.frame_of(at) else { return };
        if let Some(state) = self.memory.state(frame)
            && state.free.get()
            && state.life.get() > 0
            && !self.falling.get()
        {
            let said = format!("the core uses a word in {frame:?}, which it has given back");
            self.fail(Violation::new("freed", self.current.get(), said));
        }
    }

    /// A device begins to read a frame.
    pub(crate) fn judge_going_out(&self, frame: FrameNumber) {
        self.looks_at_all();
        for (id, cpu) in self.cpus.iter().enumerate().filter(|(_, cpu)| cpu.in_user_mode()) {
            let found = {
                let tlb = cpu.tlb.borrow();
                tlb.usable()
                    .find(|cached| cached.leads_to(frame) && self.writes_unseen(cached))
                    .map(|cached| cached.page)
            };
            if let Some(page) = found {
                let said = format!(
                    "a device begins to read {frame:?}, and CPU {id} can write to it as page {page:#x}"
                );
                self.fail(Violation::new("INV-2", id as u16, said));
            }
            if cpu.begun.get() == Some(frame) {
                let said =
                    format!("a device begins to read {frame:?}, and CPU {id} has begun to write to it");
                self.fail(Violation::new("INV-2", id as u16, said));
            }
        }
    }

    /// The core is about to change an entry. Nobody else comes in between: it has been looked at by the next point.
    pub(crate) fn will_change(&self, at: *const u8) {
        // An entry has 8 bytes; the lock in a table's frame is no entry.
        let aligned = at.addr().is_multiple_of(8);
        self.changing.set(aligned.then(|| (at, self.entry_in(at))));
    }

    /// What a word of a table says: of a table of small pages, but for its size the same of one of large ones.
    fn entry_in(&self, at: *const u8) -> Entry {
        // SAFETY: a word of a table, aligned, in the machine's memory, which one host thread uses.
        Entry::decode(unsafe { *at.cast::<u64>() }, self.setup.architecture, 0)
    }

    /// And has changed it: no dirty bit is gone while the entry still allows writes, by which it would be lost that the page
    /// was written (INV-11), be it that only the accessed bit was to be cleared (INV-10).
    pub(crate) fn judge_change(&self) {
        let Some((at, old)) = self.changing.take() else { return };
        let new = self.entry_in(at);
        let bits = Entry::PRESENT | Entry::USER;
        let same = old.has(bits | Entry::DIRTY) && new.has(bits) && old.frame() == new.frame();
        if same && !new.has(Entry::DIRTY) && new.has(Entry::WRITABLE) {
            let aged = old.has(Entry::ACCESSED) && !new.has(Entry::ACCESSED);
            let said = format!(
                "the dirty bit of an entry of {:?} is cleared, and the page can be written",
                old.frame()
            );
            self.fail(Violation::new(if aged { "INV-10" } else { "INV-11" }, self.current.get(), said));
        }
    }

    /// What is not present leads nowhere: a CPU that speculates takes its address bits for an address (L1TF). By what stands
    /// in the word until it is changed.
    pub(crate) fn judge_entry(&self, at: *const u8) {
        let entry = self.entry_in(at);
        let address = entry.0 >> 12 & 0xff_ffff_ffff;
        if !entry.is_present() && entry != Entry::NONE && address < u64::from(FrameNumber::END.0) {
            let said =
                format!("an entry that is not present has the address of frame {address:#x}: {entry:?}");
            self.fail(Violation::new("nowhere", self.current.get(), said));
        }
    }

    /// Somebody, the kernel at least, can use a page that an operation has taken away from all.
    fn still_there(&self, root: FrameNumber, range: PageRange) -> Option<Violation> {
        let watched = self.watched.borrow();
        let (page, frame) = watched
            .iter()
            .filter(|&&page| range.contains(PageNumber(page)))
            .find_map(|&page| Some((page, self.present_at(root, page)?)))?;
        let said = format!(
            "page {page:#x} ({frame:?}) is present when the operation that took it away returns: the kernel can use it"
        );
        Some(Violation::new("INV-4", self.current.get(), said))
    }

    /// An operation that took this away is about to return (INV-4).
    pub(crate) fn judge_revoked(&self, root: FrameNumber, range: PageRange, what: Revoked) {
        self.looks_at_all();
        if what == Revoked::All
            && let Some(violation) = self.still_there(root, range)
        {
            self.fail(violation);
        }
        for (id, cpu) in self.cpus.iter().enumerate() {
            {
                let mut tlb = cpu.tlb.borrow_mut();
                let roots = tlb.roots;
                tlb.revoke(|tag| roots[usize::from(tag)] == Some(root), range, what);
            }
            if cpu.in_user_mode() {
                self.judge_user(id as u16);
            }
        }
    }

    /// Nobody owes a flush for an entry that was taken out, or lost a right: no CPU on which a program of the space runs, in a
    /// call or not, may do through its TLB what the entry does not allow any more (INV-13).
    pub(crate) fn judge_spared(&self, root: FrameNumber, page: u64) {
        self.looks_at_all();
        let now = self.entry_at(root, page);
        let runs = |cpu: &Cpu| cpu.user.get() && cpu.online.get();
        for (id, cpu) in self.cpus.iter().enumerate().filter(|(_, cpu)| runs(cpu)) {
            let found = {
                let tlb = cpu.tlb.borrow();
                let stale = |cached: &&Cached| cached.covers(page) && !allows(now, cached, page);
                (tlb.root == Some(root)).then(|| tlb.usable().find(stale).copied()).flatten()
            };
            if let Some(cached) = found {
                let (frame, now) = (cached.frame(page), now.filter(|now| now.is_present()));
                let what = if now.is_some() { "has less rights" } else { "is gone" };
                let said = format!(
                    "the entry of page {page:#x} ({frame:?}) {what} and no flush is owed, and CPU {id} has it cached"
                );
                self.fail(Violation::new("INV-13", id as u16, said));
            }
        }
    }

    /// These kernel addresses were just given to somebody: nobody may have anything else cached for them (INV-3).
    pub(crate) fn judge_given(&self, range: PageRange) {
        self.looks_at_all();
        for (id, cpu) in self.cpus.iter().enumerate().filter(|(_, cpu)| cpu.in_kernel()) {
            let stale = |cached: &&CachedKernel| {
                range.contains(PageNumber(cached.page))
                    && self.kernel_entry(cached.page).is_none_or(|now| now.frame() != cached.entry.frame())
            };
            let found = cpu.tlb.borrow().kernel_usable().find(stale).copied();
            if let Some(CachedKernel { page, entry, .. }) = found {
                let frame = entry.frame();
                let said =
                    format!("kernel page {page:#x} was given out, and CPU {id} still has {frame:?} there");
                self.fail(Violation::new("INV-3", id as u16, said));
            }
        }
    }

    /// A CPU has come online: from here on the kernel may use all that it has cached (INV-3, INV-1). What was unmapped since
    /// and waits for a purge may be there; not what is mapped again, or freed.
    pub(crate) fn judge_arrival(&self, id: u16) {
        self.looks_at_all();
        let stale = |cached: &&CachedKernel| {
            let frame = cached.entry.frame();
            self.kernel_entry(cached.page).is_some_and(|now| now.frame() != frame)
                || self.memory.state(frame).is_some_and(|state| state.life.get() != cached.life)
        };
        let found = self.cpus[usize::from(id)].tlb.borrow().kernel_usable().find(stale).copied();
        if let Some(CachedKernel { page, entry, .. }) = found {
            let frame = entry.frame();
            let said = format!(
                "CPU {id} has come online, and still has {frame:?} at kernel page {page:#x}, which is another's"
            );
            self.fail(Violation::new("INV-3", id, said));
        }
    }

    /// Nobody may have this frame cached at a kernel address (`unmap_aliases`).
    pub(crate) fn judge_no_alias(&self, frame: FrameNumber) {
        self.looks_at_all();
        for (id, cpu) in self.cpus.iter().enumerate().filter(|(_, cpu)| cpu.in_kernel()) {
            let found =
                cpu.tlb.borrow().kernel_usable().find(|cached| cached.entry.frame() == frame).copied();
            if let Some(CachedKernel { page, .. }) = found {
                let said = format!(
                    "CPU {id} still has {frame:?} at kernel page {page:#x}, after all aliases were unmapped"
                );
                self.fail(Violation::new("INV-3", id as u16, said));
            }
        }
    }
}

/// Whether an entry allows all that can be done with a page through what a CPU has cached.
fn allows(now: Option<Entry>, cached: &Cached, page: u64) -> bool {
    now.is_some_and(|now| {
        let as_cached = Cached { entry: now, ..*cached };
        let less = |access| cached.entry.permits(access) && !now.permits(access);
        as_cached.frame(page) == cached.frame(page) && !UserAccess::ALL.into_iter().any(less)
    })
}
