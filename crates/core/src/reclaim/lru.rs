//! The lists of a node, and the per-CPU batches through which pages get there.

use core::sync::atomic::Ordering;

use crate::Manager;
use crate::addr::FrameNumber;
use crate::config::MAX_LRU_BATCH;
use crate::cpu::CpuId;
use crate::handle::GroupSlot;
use crate::ipi;
use crate::kind::Kind;
use crate::memmap::{Frame, FrameChain, FrameVec, List, flag};
use crate::percpu::{CpuGuard, Work};
use crate::platform::Platform;
use crate::profile::Scope;
use crate::rule::Rule;
use crate::sync::{SpinLock, Word32};
use crate::zeroed::Zeroed;

/// What reclaim keeps about a node.
#[repr(C, align(128))]
pub(crate) struct Node {
    /// Of pages that are charged to no group.
    pub lists: LruVec,
    /// Whether somebody wants this node's `kswapd` to run.
    pub wanted: Wanted,
}

/// The lists of a node's pages that are charged to one group, or to none.
#[repr(C)]
#[doc(alias = "lruvec")]
pub(crate) struct LruVec {
    lock: SpinLock<{ Scope::NodeListsLock as u8 }>,
    files: Lists,
    anon: Lists,
    /// How many pages of each were looked at lately: files, and anonymous ones.
    looked: [Word32; 2],
}

/// The lists of all groups on a node, and whose turn it is.
#[derive(Clone, Copy)]
pub(crate) struct GroupLists<'p> {
    pub of: &'p [OwnLines<LruVec>],
    pub turn: &'p Turn,
}

/// With cache lines of its own.
#[repr(C, align(128))]
pub(crate) struct OwnLines<T>(T);

/// Whose turn it is to give up pages.
#[repr(C, align(64))]
pub(crate) struct Turn(Word32);

impl Turn {
    /// A place among so many pages, near none of those that came last: multiples of the golden ratio fill the circle evenly.
    pub fn next<P: Platform>(&self, p: &P, pages: u64) -> u64 {
        let place = self.0.fetch_add(p, 0x9e37_79b9, core::sync::atomic::Ordering::Relaxed);
        ((u128::from(place) * u128::from(pages)) >> 32) as u64
    }
}

/// Two lists of pages of one sort.
#[repr(C)]
struct Lists {
    inactive: List,
    active: List,
}

/// Which pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LruType {
    /// Cached pages of files.
    Files = 0,
    /// Anonymous pages, and those of memory files. They are looked at only where they may go to swap.
    Anon = 1,
}

impl LruType {
    /// Of a page in this state.
    const fn of(state: u32) -> LruType {
        if Frame::goes_to_swap(state) { LruType::Anon } else { LruType::Files }
    }
}

/// On a line of its own: every allocation below the low watermark looks at it.
#[repr(C, align(64))]
pub(crate) struct Wanted(pub Word32);

// SAFETY: atomics and locks only; `init` makes the lists.
unsafe impl Zeroed for Node {}
// SAFETY: as above.
unsafe impl Zeroed for OwnLines<LruVec> {}
// SAFETY: atomics.
unsafe impl Zeroed for Turn {}

impl Node {
    pub fn init<P: Platform>(&self, p: &P) {
        self.lists.init(p);
    }
}

impl<'p> GroupLists<'p> {
    pub fn init<P: Platform>(&self, p: &P) {
        self.of.iter().for_each(|lists| lists.0.init(p));
    }

    pub fn of(&self, group: GroupSlot) -> &'p LruVec {
        &self.of[group.0 as usize - 1].0
    }

    pub fn each(&self, f: impl FnMut(&'p LruVec)) {
        self.of.iter().map(|lists| &lists.0).for_each(f);
    }
}

impl LruVec {
    fn init<P: Platform>(&self, p: &P) {
        for lists in [&self.files, &self.anon] {
            lists.inactive.init(p);
            lists.active.init(p);
        }
    }

    fn lists(&self, kind: LruType) -> &Lists {
        match kind {
            LruType::Files => &self.files,
            LruType::Anon => &self.anon,
        }
    }

    fn list(&self, state: u32) -> &List {
        self.lists(LruType::of(state)).list(state & flag::ACTIVE != 0)
    }

    /// Pages on the inactive and on the active list; a guess without the lock.
    pub fn lens<P: Platform>(&self, p: &P, kind: LruType) -> (u64, u64) {
        (self.lists(kind).inactive.len(p), self.lists(kind).active.len(p))
    }

    /// Pages of a sort were looked at.
    pub fn note_looked<P: Platform>(&self, p: &P, kind: LruType, pages: u32) {
        let looked = &self.looked[kind as usize];
        if looked.fetch_add(p, pages, Ordering::Relaxed) > LATELY {
            // Roughly: an error of a batch does no harm.
            self.looked.iter().for_each(|looked| looked.set(p, looked.get(p) / 2));
        }
    }

    /// What there is to be reclaimed, in the order in which to look.
    pub fn types<P: Platform>(&self, mm: &Manager<'_, P>) -> &'static [LruType] {
        if mm.config().swap { self.scan_balance(mm.platform()) } else { &[LruType::Files] }
    }

    /// How many pages of these types are on them.
    pub fn pages_of<P: Platform>(&self, p: &P, counts: impl Fn(LruType) -> bool) -> u64 {
        let of = |kind| {
            let (inactive, active) = self.lens(p, kind);
            inactive + active
        };
        [LruType::Files, LruType::Anon].into_iter().filter(|&kind| counts(kind)).map(of).sum()
    }

    /// Both sorts, first the one of which fewer pages were looked at lately for the pages that there are.
    fn scan_balance<P: Platform>(&self, p: &P) -> &'static [LruType] {
        let all = |kind| {
            let (inactive, active) = self.lens(p, kind);
            inactive + active
        };
        let looked = |kind: LruType| u64::from(self.looked[kind as usize].get(p));
        if looked(LruType::Files) * all(LruType::Anon) <= looked(LruType::Anon) * all(LruType::Files) {
            &[LruType::Files, LruType::Anon]
        } else {
            &[LruType::Anon, LruType::Files]
        }
    }
}

impl Lists {
    fn list(&self, active: bool) -> &List {
        if active { &self.active } else { &self.inactive }
    }
}

/// Pages looked at after which those from before count half.
const LATELY: u32 = 4096;

impl<'p, P: Platform> Manager<'p, P> {
    /// The lists of a page: of its node, and of the group that is charged with it.
    fn lists_of(&self, n: FrameNumber) -> &'p LruVec {
        let p = self.platform();
        self.lists(Frame::node_of(self.memmap().get(n).state.get(p)), self.groups().of_frame(p, n))
    }

    /// A new page of a file, bound for its list. The batch has its own reference to the page until then.
    pub(crate) fn lru_add(&self, n: FrameNumber) {
        let p = self.platform();
        self.memmap().get(n).refs.fetch_add(p, 1, Ordering::Relaxed);
        let full = {
            let here = CpuGuard::new(self);
            let batch = &here.slot().lru;
            batch.push(n);
            let group = self.groups().of_frame(p, n);
            if group != GroupSlot::NONE {
                batch.note_group(p, group);
            }
            batch.len() >= self.config().lru_batch as usize
        };
        if full {
            self.drain_lru_batch();
        }
    }

    /// Puts this CPU's batch on the lists: before it goes offline, or to be certain. Any context but an
    /// interrupt handler.
    ///
    /// # Examples
    /// ```
    /// # use quietmm_doc::*;
    /// # doc(|mm| {
    /// mm.drain_lru_batch();
    /// # Ok(())
    /// # });
    /// ```
    pub fn drain_lru_batch(&self) {
        let mut pages = FrameVec::new();
        {
            let here = CpuGuard::new(self);
            while let Some(n) = here.slot().lru.pop() {
                pages.push(n);
            }
            if self.groups().exist() {
                here.slot().lru.note_empty(self.platform());
            }
        }
        // The batch is a stack: the oldest page is the last to be taken out and goes first.
        pages.reverse();
        self.put_back(pages.as_slice());
    }

    /// Puts pages at the head of their lists, and lets go of them. Oldest first.
    pub(crate) fn put_back(&self, pages: &[FrameNumber]) {
        self.put_back_by(pages, |list, run| list.join_front(self.platform(), &self.memmap(), run));
    }

    /// Puts pages back at the old end of the list that they come from, and lets go of them. Oldest first.
    pub(crate) fn put_back_old(&self, pages: &[FrameNumber]) {
        self.put_back_by(pages, |list, run| {
            run.iter().rev().for_each(|&n| list.push_back(self.platform(), &self.memmap(), n));
        });
    }

    fn put_back_by(&self, pages: &[FrameNumber], join: impl Fn(&List, &[FrameNumber])) {
        let p = self.platform();
        // Nobody else changes these bits of a page that is on no list and in our hands.
        let place = |n: FrameNumber| {
            let state = self.memmap().get(n).state.get(p);
            let list = (LruType::of(state), state & flag::ACTIVE != 0);
            (Frame::node_of(state), self.groups().of_frame(p, n), list)
        };
        let mut rest = pages;
        while let Some(&first) = rest.first() {
            // A run of pages bound for one list costs one hold of its lock.
            let (node, group, (kind, active)) = place(first);
            let run = rest.iter().take_while(|&&n| place(n) == (node, group, (kind, active))).count();
            let (run, after) = rest.split_at(run);
            let lists = self.lists(node, group);
            let _guard = lists.lock.lock(self);
            for &n in run {
                self.memmap().get(n).set_flags(p, flag::LISTED);
            }
            join(lists.lists(kind).list(active), run);
            rest = after;
        }
        pages.iter().for_each(|&n| self.put_page(n));
    }

    /// Takes a page off its list, if it is on one: before it is freed.
    pub(crate) fn unlist(&self, n: FrameNumber) {
        let p = self.platform();
        let frame = self.memmap().get(n);
        if frame.state.load(p, Ordering::Acquire) & flag::LISTED == 0 {
            return;
        }
        let lists = self.lists_of(n);
        let _guard = lists.lock.lock(self);
        let state = frame.state.fetch_and(p, !flag::LISTED, Ordering::AcqRel);
        if state & flag::LISTED != 0 {
            lists.list(state).remove(p, &self.memmap(), n);
        }
    }

    /// Takes up to `want` pages off the old end of a list, each with a reference for the caller.
    // Not inlined: its second list is gone when pages are looked at.
    #[inline(never)]
    pub(crate) fn isolate(&self, lists: &LruVec, kind: LruType, active: bool, want: usize) -> FrameVec {
        let p = self.platform();
        let mut pages = FrameVec::new();
        let list = lists.lists(kind).list(active);
        if list.len(p) == 0 {
            return pages;
        }
        let mut cut = [FrameNumber::NONE; MAX_LRU_BATCH];
        let _guard = lists.lock.lock(self);
        let count = list.cut_back(p, &self.memmap(), &mut cut[..want.min(MAX_LRU_BATCH)]);
        for &n in &cut[..count] {
            let frame = self.memmap().get(n);
            // A page whose last reference is gone is being freed by whoever dropped it, who waits for this lock.
            if get_unless_free(p, frame) {
                frame.clear_flags(p, flag::LISTED);
                pages.push(n);
            } else {
                list.push_front(p, &self.memmap(), n);
            }
        }
        pages
    }

    /// Takes this page off its list, with a reference for the caller, if it is on one. The caller holds it, or its
    /// frame is not allocated anew.
    pub(crate) fn isolate_one(&self, n: FrameNumber) -> bool {
        let p = self.platform();
        let (frame, lists) = (self.memmap().get(n), self.lists_of(n));
        let _guard = lists.lock.lock(self);
        // Only who holds this lock takes it off: it stays what it is, and on this list.
        let state = frame.state.load(p, Ordering::Acquire);
        let page = matches!(Frame::kind_of(state), Kind::File | Kind::Anon);
        let listed = page && state & flag::LISTED != 0;
        // Whoever has just got the frame may have charged a group with it since the look above, and listed it there.
        let here = || core::ptr::eq(lists, self.lists(Frame::node_of(state), self.groups().of_frame(p, n)));
        let mine = listed && here() && get_unless_free(p, frame);
        if mine {
            frame.clear_flags(p, flag::LISTED);
            lists.list(state).remove(p, &self.memmap(), n);
        }
        mine
    }

    /// Puts the batches of all CPUs on the lists. With interrupts on and no lock held. One IPI per other CPU that is
    /// online.
    ///
    /// # Examples
    /// ```
    /// # use quietmm_doc::*;
    /// # doc(|mm| {
    /// mm.drain_lru_batches();
    /// # Ok(())
    /// # });
    /// ```
    #[doc(alias = "lru_add_drain_all")]
    pub fn drain_lru_batches(&self) {
        self.drain_lru_batch();
        self.drain_lru_from(|_| true);
    }

    /// Puts pages of a group's that are on their way to their lists there. Returns whether there seemed to be any. With interrupts on
    /// and no lock held. One IPI for each other CPU that has some in its batch.
    pub(crate) fn drain_lru_of(&self, group: GroupSlot) -> bool {
        let p = self.platform();
        if p.broken(Rule::ListsBeforeRefusal) {
            return false;
        }
        let here = CpuGuard::new(self).slot().lru.may_have(p, group);
        if here {
            self.drain_lru_batch();
        }
        // Relaxed: who adds a page at this moment is still about to use it.
        self.drain_lru_from(|cpu| self.slot(cpu).lru.may_have(p, group)) || here
    }

    /// Has those of the other CPUs that are online and have something that is `wanted` hand over their batches. Returns whether one did.
    fn drain_lru_from(&self, wanted: impl Fn(CpuId) -> bool) -> bool {
        let p = self.platform();
        let here = CpuGuard::new(self);
        let (me, targets) = (here.cpu, &here.slot().targets);
        self.online().add_to(p, targets);
        targets.remove(me);
        for cpu in targets.iter().filter(|&cpu| !wanted(cpu)) {
            targets.remove(cpu);
        }
        if targets.is_empty() {
            return false;
        }
        ipi::call(here, Work::DrainLru, |_| {});
        let mut n = self.slot(me).returned_lru.take(p).first();
        while n != FrameNumber::NONE {
            let mut pages = FrameVec::new();
            while n != FrameNumber::NONE && !pages.is_full() {
                pages.push(n);
                n = self.memmap().get(n).next(p);
            }
            self.put_back(pages.as_slice());
        }
        true
    }

    /// Pages on the lists of all nodes, and whether each list is as long as it says: for audits.
    pub(crate) fn audit_lists(&self) -> (u64, bool) {
        let p = self.platform();
        let (mut total, mut good) = (0, true);
        let slots = || core::iter::once(GroupSlot::NONE).chain(self.groups().slots(p));
        for (node, group) in self.node_ids().flat_map(|node| slots().map(move |group| (node, group))) {
            let lists = self.lists(node, group);
            let _guard = lists.lock.lock(self);
            for (list, kind, active) in [
                (&lists.files.inactive, LruType::Files, 0),
                (&lists.files.active, LruType::Files, flag::ACTIVE),
                (&lists.anon.inactive, LruType::Anon, 0),
                (&lists.anon.active, LruType::Anon, flag::ACTIVE),
            ] {
                let (mut n, mut len) = (list.first(p), 0);
                while n != FrameNumber::NONE && len <= list.len(p) {
                    let state = self.memmap().get(n).state.get(p);
                    good &= state & (flag::LISTED | flag::ACTIVE) == flag::LISTED | active;
                    good &= matches!(Frame::kind_of(state), Kind::File | Kind::Anon);
                    good &= LruType::of(state) == kind;
                    good &= Frame::node_of(state) == node && self.groups().of_frame(p, n) == group;
                    len += 1;
                    n = self.memmap().get(n).next(p);
                }
                good &= len == list.len(p);
                total += len;
            }
        }
        (total, good)
    }
}

/// Hands this CPU's batch to `to`, in the handler of an interrupt. The pages are on no list, so their links are free.
pub(crate) fn hand_over<P: Platform>(here: &CpuGuard<'_, '_, P>, to: CpuId) {
    let mut loose = FrameChain::NONE;
    while let Some(n) = here.slot().lru.pop() {
        loose.append(here.mm, n, n);
    }
    if here.mm.groups().exist() {
        here.slot().lru.note_empty(here.mm.platform());
    }
    here.mm.slot(to).returned_lru.push(here.mm, &loose);
}

/// Takes a reference, unless the last one is gone already.
fn get_unless_free<P: Platform>(p: &P, frame: &Frame) -> bool {
    let mut seen = frame.refs.get(p);
    while seen != 0 {
        match frame.refs.replace(p, seen, seen + 1, Ordering::Acquire) {
            Ok(_) => return true,
            Err(now) => seen = now,
        }
    }
    false
}
