//! What each part keeps about the others, counted anew.

use crate::Manager;
use crate::addr::FrameNumber;
use crate::cpu::CpuId;
use crate::event::Counter;
use crate::frame::{Zone, watermarks};
use crate::handle::{FileSlot, GroupSlot, SpaceId};
use crate::kind::Kind;
use crate::memmap::{Frame, flag};
use crate::paging::table;
use crate::platform::Platform;
use crate::vma::{AnonVmaId, Of, Vma};

/// Of pages, counted while all frames are looked at.
#[derive(Default)]
pub(super) struct Pages {
    /// On no list of their node.
    unlisted: u64,
    /// Read ahead, and used by nobody yet.
    ahead: u64,
    /// Of a file that does not know that one of its pages is dirty.
    ageless: bool,
}

impl Pages {
    pub fn add<P: Platform>(&mut self, mm: &Manager<'_, P>, frame: &Frame, state: u32) {
        let p = mm.platform();
        let file = Frame::kind_of(state) == Kind::File;
        let on_lists = file || mm.config().swap && Frame::kind_of(state) == Kind::Anon;
        self.unlisted += u64::from(on_lists && state & flag::LISTED == 0);
        self.ahead += u64::from(file && state & flag::UNUSED != 0);
        self.ageless |= mm.counts_dirty()
            && state & flag::DIRTY != 0
            && Frame::is_kept_by_device(state)
            && mm.file_at(FileSlot(frame.owner.get(p))).dirty_since.get(p) == 0;
    }
}

impl<P: Platform> Manager<'_, P> {
    /// The first thing that is not what it was counted as.
    pub(super) fn audit_counts(&self, pages: &Pages, pinned: u64) -> Option<&'static str> {
        let p = self.platform();
        let root = self.root;
        let pools = root.spaces.audit(self)
            && root.vmas.audit(self)
            && root.anon_vmas.audit(self)
            && root.files.audit(self)
            && root.batches.audit(self);
        let cpus = || (0..p.possible_cpus()).map(|cpu| CpuId(cpu as u16));
        let batches_good =
            cpus().all(|cpu| self.slot(cpu).lru.len() > 0 || self.slot(cpu).lru.has_no_group(p));
        let ahead = self.counter(Counter::FileRa)
            - self.counter(Counter::FileRaHit)
            - self.counter(Counter::FileRaUnused);
        let out = self.counter(Counter::Pinned) - self.counter(Counter::Unpinned);
        let checks = [
            (pools, "a slab of a pool has other slots than it says, or is on another list"),
            (self.rmap_recount(), "a tree of the reverse map holds other VMAs than those that belong there"),
            (self.audit_sweeps(), "somebody looks at sweeps for ever, or they are not as many as were told"),
            (pages.unlisted == self.batch_refs(), "pages that are on no list, nor on the way to one"),
            (pages.ahead == ahead, "pages that were read ahead and not used yet, and their count, differ"),
            (!pages.ageless, "a dirty page of a file that has none since any time"),
            (pinned == out, "pins that are out, and those that were told, differ"),
            (batches_good, "a CPU's batch that is empty and has pages of a group"),
            (
                self.zones_recount(),
                "a zone's watermarks, limits, or frames offline are others than those of its memory",
            ),
            (self.members_recount(), "spaces of a group, and their count, differ"),
            (
                self.ended_spaces_good(),
                "a space that ended, in whose mask a CPU is that has it loaded no more",
            ),
        ];
        let of_all = checks.iter().find(|(good, _)| !good).map(|(_, what)| *what);
        of_all.or_else(|| self.live_spaces().find_map(|id| self.audit_shape(id)))
    }

    /// Whether each tree of the reverse map holds the VMAs that belong there, and no others.
    fn rmap_recount(&self) -> bool {
        let (p, root) = (self.platform(), self.root);
        let vmas = self.live_spaces().flat_map(|id| self.vmas_of(self.space_at(id)));
        let named: usize = vmas.map(|(_, vma)| self.count_trees(vma)).sum();
        let files = self.live_files().map(|id| {
            let of = |vma: &Vma| vma.file(p) == Some(id.slot());
            self.audit_rmap(&self.file_at(id).rmap, Of::File, of)
        });
        let anon_vmas = root.anon_vmas.used(self).map(|handle| {
            let of = |vma: &Vma| vma.anon_vma(p) == Some(AnonVmaId(handle));
            self.audit_rmap(&root.anon_vmas.get(self, handle).rmap, Of::AnonVma, of)
        });
        files.chain(anon_vmas).try_fold(0, |sum, found| Some(sum + found?)) == Some(named)
    }

    fn zones_recount(&self) -> bool {
        let p = self.platform();
        let all = self.zones().map(|zone| u64::from(zone.present(p))).sum();
        let good = |zone: &Zone| {
            let marks = watermarks(self.config(), zone.present(p), all);
            let is_absent = |n: &u32| self.memmap().is_absent(FrameNumber(*n));
            let absent = (zone.start.0..zone.end.0).filter(is_absent).count() as u32;
            let ruled = zone.limits.by_rule(p, zone.present(p), marks.low);
            ruled.is_none_or(|limits| limits == zone.limits.chosen(p))
                && (zone.min(p), zone.low(p), zone.high(p))
                    == (marks.min, marks.low.into(), marks.high.into())
                && zone.audit_absent(p, absent)
        };
        self.zones().all(good)
    }

    fn members_recount(&self) -> bool {
        let p = self.platform();
        let members = |group: GroupSlot| {
            self.live_spaces().filter(|&id| self.space_at(id).group_slot(p) == group).count() as u32
        };
        self.groups().slots(p).all(|group| self.groups().state(group).members.get(p) == members(group))
    }

    fn ended_spaces_good(&self) -> bool {
        let p = self.platform();
        let ended = self.space_slots().filter(|&slot| self.live_space(slot).is_none());
        ended.into_iter().all(|slot| {
            let stale = |cpu: CpuId| self.slot(cpu).tlb.loaded() != Some(slot);
            !self.space_at(slot).cpus.0.any(p, stale)
        })
    }

    /// Whether VMAs that could be one are one, and no table is kept where none lies.
    fn audit_shape(&self, id: SpaceId) -> Option<&'static str> {
        let (p, space) = (self.platform(), self.space_at(id));
        let mut neighbours = self.vmas_of(space).zip(self.vmas_of(space).skip(1));
        if neighbours.any(|((_, vma), (_, next))| !vma.audit_apart(p, next)) {
            return Some("two VMAs that could be one");
        }
        let mut alone = false;
        table::each_span(self, space.root(p), &mut |span| {
            alone |= self.first_mapped(space, span).is_none();
        });
        alone.then_some("a page table where nothing is mapped")
    }
}
