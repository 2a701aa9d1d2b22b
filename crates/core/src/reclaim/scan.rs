//! The scan: a few pages off the old end of a list, judged, unmapped, flushed once, freed.

use crate::Manager;
use crate::addr::{FrameNumber, NodeId};
use crate::charge::charge;
use crate::event::{Event, Reclaimer};
use crate::frame::AllocRequest;
use crate::handle::GroupSlot;
use crate::memmap::{FrameVec, flag};
use crate::platform::Platform;
use crate::profile::Scope;
use crate::reclaim::aging::{self, Verdict};
use crate::reclaim::caches::{self, Share};
use crate::reclaim::eviction::{Leave, detach, look, take_out};
use crate::reclaim::lru::{LruType, LruVec, Turn};
use crate::resched::{Work, cost};
use crate::tlb::{Fate, UnmapBatch};

/// A scan starts with this fraction of a list (2^-12) and doubles it while it finds nothing.
const PRIORITY: u32 = 12;
/// Sweeps that a task waits for before it looks elsewhere: a page may wait for the second of two, and be used in between.
const SWEEPS: u32 = 3;

/// Reclaims for a task that needs a frame: a batch from the nearest node that yields one. Returns how many.
/// Needs interrupts on and no spin lock held. May wait.
pub(crate) fn direct<P: Platform>(
    mm: &Manager<'_, P>,
    request: &AllocRequest,
    work: &mut Work<'_, '_, P>,
) -> u32 {
    let _scope = charge(mm.platform(), Scope::DirectReclaim);
    let want = mm.config().scan_batch;
    mm.throttle();
    // Frames that wait for a flush of kernel addresses cost one flush, however many: enough of them are worth it.
    let purged = mm.purge_frames(want, false);
    let shrunk = over_sweeps(mm, work, |work| {
        let (mut last, mut all) = (None, Shrunk::default());
        for zone in mm.zones_for(request) {
            if all.freed.saturating_add(purged) >= want {
                break;
            }
            if last.replace(zone.node) != Some(zone.node) {
                all.add(shrink_node(mm, zone.node, Reclaimer::Direct, want, work));
            }
        }
        // What was purged is enough not to wait for more.
        if purged > 0 { Shrunk { waiting: 0, ..all } } else { all }
    });
    let reclaimed = shrunk.saturating_add(purged);
    if reclaimed > 0 { reclaimed } else { mm.purge_frames(1, true) }
}

/// The same from the pages of a group that is close to its limit, on all nodes from this one on,
/// for as long as these are `wanted`: looked at again after each point where it may have given way.
pub(super) fn of_group<P: Platform>(
    mm: &Manager<'_, P>,
    group: GroupSlot,
    wanted: &dyn Fn() -> bool,
    work: &mut Work<'_, '_, P>,
) -> u32 {
    let _scope = charge(mm.platform(), Scope::DirectReclaim);
    let want = mm.config().scan_batch;
    mm.throttle();
    mm.sweep_here();
    over_sweeps(mm, work, |work| {
        let (here, mut all) = (mm.node_here(), Shrunk::default());
        let nodes = || mm.node_ids();
        for node in nodes().filter(|&node| node >= here).chain(nodes().filter(|&node| node < here)) {
            if all.freed >= want {
                break;
            }
            let scan = Scan { wanted, demote: None, ..Scan::of(mm, node, group, Reclaimer::Direct) };
            all.add(shrink_types(mm, &scan, want, work));
        }
        all
    })
}

/// Looks for pages; where that has found none but pages that wait for a sweep, again when the sweep is over. Returns how many are free.
fn over_sweeps<'w, 'p, P: Platform>(
    mm: &Manager<'_, P>,
    work: &mut Work<'w, 'p, P>,
    mut look: impl FnMut(&mut Work<'w, 'p, P>) -> Shrunk,
) -> u32 {
    for _ in 0..SWEEPS {
        let shrunk = look(work);
        if shrunk.freed > 0 || shrunk.waiting == 0 {
            return shrunk.freed;
        }
        mm.await_sweep(work);
    }
    look(work).freed
}

/// Reclaims from a node until `want` pages are free or a full look at its lists has found no more; pages that wait for a
/// sweep are not looked at behind.
pub(super) fn shrink_node<P: Platform>(
    mm: &Manager<'_, P>,
    id: NodeId,
    by: Reclaimer,
    want: u32,
    work: &mut Work<'_, '_, P>,
) -> Shrunk {
    // Where memory is short each CPU comes by here often: it takes part in a sweep before its timer asks.
    mm.sweep_here();
    let pages = caches::pages_before(mm, id, work);
    let mut all = match mm.turn(id) {
        None => shrink_types(mm, &Scan::of(mm, id, GroupSlot::NONE, by), want, work),
        Some(turn) => shrink_groups(mm, id, turn, by, want, work),
    };
    let yields = all.freed >= want || all.waiting > 0;
    let share =
        if yields { Share::Of { scanned: all.scanned, pages } } else { Share::Until(want - all.freed) };
    // What a cache says is only believed.
    all.freed = all.freed.saturating_add(caches::ask(mm, id, share, work));
    all
}

/// Looks at the pages of all groups, and at those of none: each batch at those of one, whose turn comes as often as it has pages.
fn shrink_groups<P: Platform>(
    mm: &Manager<'_, P>,
    id: NodeId,
    turn: &Turn,
    by: Reclaimer,
    want: u32,
    work: &mut Work<'_, '_, P>,
) -> Shrunk {
    let p = mm.platform();
    let step = u64::from(mm.config().scan_batch);
    let groups = || core::iter::once(GroupSlot::NONE).chain(mm.groups().slots(p));
    // Those that nothing can take are not counted: where there are only such, nobody looks for a turn.
    let anon = may_shrink(mm, LruType::Anon) || mm.demotion_of(id).is_some();
    let pages = |group| mm.lists(id, group).pages_of(p, |kind| kind == LruType::Files || anon);
    // There may be many: each of these sums is one of moments.
    let mut all_pages = 0;
    for group in groups() {
        all_pages += pages(group);
        work.did(cost::ENTRY);
    }
    let mut all = Shrunk::default();
    for priority in (1..=PRIORITY).rev() {
        let mut left = (all_pages >> priority).max(step).min(all_pages);
        while left > 0 {
            let mut at = turn.next(p, all_pages);
            let chosen = groups().find(|&group| {
                work.did(cost::ENTRY);
                let here = pages(group);
                let found = at < here;
                at = at.saturating_sub(here);
                found
            });
            let Some(group) = chosen else { break };
            let scan = Scan::of(mm, id, group, by);
            let mut sorts = scan.types.iter().filter(|&&kind| scan.may_shrink(mm, kind));
            let Some(&kind) = sorts.find(|&&kind| scan.lists.lens(p, kind) != (0, 0)) else {
                left = left.saturating_sub(step);
                work.did(cost::RECLAIM);
                continue;
            };
            let one = shrink_once(mm, &scan, kind, scan.lists.lens(p, kind).1, work);
            all.add(one);
            if all.freed >= want {
                return all;
            }
            if one.waiting > 0 && one.freed == 0 && !mm.sweep_is_over() {
                break;
            }
            if one.scanned == 0 {
                // None was to be had, or no batch.
                left = left.saturating_sub(step);
                work.did(cost::RECLAIM);
                continue;
            }
            left = left.saturating_sub(one.scanned.into());
        }
        if all.waiting > 0 {
            return all;
        }
    }
    // The last look is at all that each has.
    for group in groups() {
        work.did(cost::TABLE);
        if pages(group) == 0 {
            continue;
        }
        all.add(shrink_at(mm, &Scan::of(mm, id, group, by), 0, want - all.freed, work));
        if all.freed >= want {
            break;
        }
    }
    all
}

fn may_shrink<P: Platform>(mm: &Manager<'_, P>, kind: LruType) -> bool {
    kind == LruType::Files || mm.swap_may_shrink()
}

/// Which pages a scan looks at, and for whom.
struct Scan<'a> {
    lists: &'a LruVec,
    /// In the order in which to look.
    types: &'static [LruType],
    by: Reclaimer,
    /// Whether they are wanted still.
    wanted: &'a dyn Fn() -> bool,
    /// To which node pages go that were to leave memory.
    demote: Option<NodeId>,
}

impl<'a> Scan<'a> {
    fn of<'p: 'a, P: Platform>(mm: &Manager<'p, P>, node: NodeId, group: GroupSlot, by: Reclaimer) -> Self {
        let lists = mm.lists(node, group);
        Scan { lists, types: lists.types(mm), by, wanted: &|| true, demote: mm.demotion_of(node) }
    }

    fn may_shrink<P: Platform>(&self, mm: &Manager<'_, P>, kind: LruType) -> bool {
        self.demote.is_some() || may_shrink(mm, kind)
    }
}

fn shrink_types<P: Platform>(
    mm: &Manager<'_, P>,
    scan: &Scan<'_>,
    want: u32,
    work: &mut Work<'_, '_, P>,
) -> Shrunk {
    let mut all = Shrunk::default();
    for priority in (0..=PRIORITY).rev() {
        all.add(shrink_at(mm, scan, priority, want - all.freed, work));
        if all.freed >= want || all.waiting > 0 {
            break;
        }
    }
    all
}

/// Looks at 2^-`priority` of the pages, or a batch.
fn shrink_at<P: Platform>(
    mm: &Manager<'_, P>,
    scan: &Scan<'_>,
    priority: u32,
    want: u32,
    work: &mut Work<'_, '_, P>,
) -> Shrunk {
    let p = mm.platform();
    let step = u64::from(mm.config().scan_batch);
    let mut all = Shrunk::default();
    for &kind in scan.types {
        if !scan.may_shrink(mm, kind) {
            continue;
        }
        let (inactive, active) = scan.lists.lens(p, kind);
        let mut left = (inactive >> priority).max(step).min(inactive.max(step));
        while left > 0 {
            let one = shrink_once(mm, scan, kind, active, work);
            all.add(one);
            if one.scanned == 0 {
                break;
            }
            left = left.saturating_sub(one.scanned.into());
            if all.freed >= want {
                return all;
            }
            if one.waiting > 0 && one.freed == 0 && !mm.sweep_is_over() {
                // Those behind have waited less long.
                break;
            }
        }
    }
    all
}

/// One batch of a sort, after one from the active list if that is the longer one; none if they are not wanted any more.
fn shrink_once<P: Platform>(
    mm: &Manager<'_, P>,
    scan: &Scan<'_>,
    kind: LruType,
    active: u64,
    work: &mut Work<'_, '_, P>,
) -> Shrunk {
    let (p, &Scan { lists, by, .. }) = (mm.platform(), scan);
    // Before the next batch, not after the last: whoever has what it wants goes on with it.
    work.did(0);
    if !(scan.wanted)() {
        return Shrunk::default();
    }
    if active > 0 && lists.lens(p, kind).0 < lists.lens(p, kind).1 {
        shrink_active(mm, lists, kind, by);
    }
    let one = shrink_inactive(mm, scan, kind);
    work.count(one.scanned * cost::RECLAIM);
    one
}

/// Moves pages from the old end of the active list to the inactive list. Their accessed bits are cleared,
/// so that what counts there is use from now on.
///
/// Not inlined, as [`look_at_some`] is not: what each has on the stack is gone before pages are freed or written out, which goes deepest.
#[inline(never)]
fn shrink_active<P: Platform>(mm: &Manager<'_, P>, lists: &LruVec, kind: LruType, by: Reclaimer) {
    let _scope = charge(mm.platform(), Scope::ShrinkActive);
    let p = mm.platform();
    let pages = mm.isolate(lists, kind, true, mm.config().scan_batch as usize);
    mm.emit(Event::Scanned { by, pages: pages.as_slice().len() as u32 });
    for &n in pages.as_slice() {
        let frame = mm.memmap().get(n);
        if frame.try_lock(p) {
            let used = aging::uses(mm, n).used > 0;
            mm.emit(Event::Looked { frame: n, used });
            mm.unlock_page(n);
        }
        frame.clear_flags(p, flag::ACTIVE | flag::REFERENCED);
        mm.emit(Event::Deactivated);
    }
    mm.put_back(pages.as_slice());
}

/// One batch from the old end of the inactive list. Returns how many were looked at, and how many are free; of those looked at
/// the pages do not count that wait for a sweep.
fn shrink_inactive<P: Platform>(mm: &Manager<'_, P>, scan: &Scan<'_>, kind: LruType) -> Shrunk {
    let _scope = charge(mm.platform(), Scope::ShrinkInactive);
    let looked = take_out(mm, scan.demote, |batch| look_at_some(batch, scan, kind));
    let Ok(((scanned, waiting), freed)) = looked else { return Shrunk::default() };
    mm.emit(Event::Reclaimed { by: scan.by, pages: freed });
    if waiting > 0 {
        mm.emit(Event::Unswept { pages: waiting });
        mm.begin_sweep();
    }
    Shrunk { scanned, freed, waiting }
}

/// Puts those of a batch from the list that are idle into the unmap batch. Returns how many were looked at, and how many wait.
#[inline(never)]
fn look_at_some<P: Platform>(batch: &UnmapBatch<'_, '_, P>, scan: &Scan<'_>, kind: LruType) -> (u32, u32) {
    let (mm, &Scan { lists, by, demote, .. }) = (batch.manager(), scan);
    let p = mm.platform();
    let mut pages = mm.isolate(lists, kind, false, mm.config().scan_batch as usize);
    let scanned = pages.as_slice().len() as u32;
    if mm.config().swap {
        lists.note_looked(p, kind, scanned);
    }
    mm.emit(Event::Scanned { by, pages: scanned });
    let mut wait = FrameVec::new();
    pages.retain(|n| {
        if !mm.memmap().get(n).try_lock(p) {
            return true;
        }
        let stays = match consider(batch, n, demote.is_some()) {
            Considered::Goes(fate) => {
                batch.push(n, fate);
                return false;
            }
            Considered::Stays => true,
            Considered::Waits => {
                wait.push(n);
                false
            }
        };
        mm.unlock_page(n);
        stays
    });
    mm.put_back(pages.as_slice());
    mm.put_back_old(wait.as_slice());
    (scanned, wait.as_slice().len() as u32)
}

/// What came of a look at a list.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Shrunk {
    scanned: u32,
    pub freed: u32,
    /// Those that wait for a sweep.
    pub waiting: u32,
}

impl Shrunk {
    fn add(&mut self, other: Shrunk) {
        self.scanned += other.scanned;
        // A cache may have said anything.
        self.freed = self.freed.saturating_add(other.freed);
        self.waiting += other.waiting;
    }
}

/// What is to become of a page.
enum Considered {
    /// After the flush.
    Goes(Fate),
    /// It goes round again.
    Stays,
    /// It is looked at again when a sweep is over.
    Waits,
}

/// Looks at a locked page, and unmaps it if it is idle. If it stays, or waits, none of its entries was cleared that owes a
/// flush.
fn consider<P: Platform>(batch: &UnmapBatch<'_, '_, P>, n: FrameNumber, demotes: bool) -> Considered {
    let mm = batch.manager();
    let frame = mm.memmap().get(n);
    let before = batch.cleared();
    let mut leave = Leave::of(mm, n);
    leave.demotes = demotes;
    let uses = look(batch, &leave);
    if uses.used == 0 && uses.unswept {
        return Considered::Waits;
    }
    mm.emit(Event::Looked { frame: n, used: uses.used > 0 });
    match aging::judge(mm, n, uses.used) {
        Verdict::Reclaim => {
            frame.clear_flags(mm.platform(), flag::REFERENCED);
            return Considered::Goes(detach(batch, &leave, false));
        }
        Verdict::Rotate => mm.emit(Event::Rotated),
        Verdict::Activate => {
            frame.set_flags(mm.platform(), flag::ACTIVE);
            mm.emit(Event::Activated);
        }
    }
    // It is unlocked at once, and whoever finds it without an entry may write it out (INV-2). So none may be gone that is not
    // flushed: `look` takes out only the one of an idle page, and that page goes.
    debug_assert_eq!(batch.cleared(), before, "what stays has all its entries");
    Considered::Stays
}
