//! Nothing is under way: nobody has a lock or waits for an answer, and each CPU's own words are as they are between two calls.

use crate::Manager;
use crate::cpu::CpuId;
use crate::file::FileState;
use crate::frame::Zone;
use crate::handle::SpaceId;
use crate::platform::Platform;
use crate::pool;

impl<P: Platform> Manager<'_, P> {
    /// The first thing that somebody has begun and not ended.
    pub(super) fn audit_rest(&self) -> Option<&'static str> {
        let p = self.platform();
        let mut cpus = (0..p.possible_cpus()).map(|cpu| CpuId(cpu as u16));
        let of_cpu = cpus.find_map(|cpu| self.audit_cpu(cpu));
        let of_space = || self.live_spaces().find_map(|id| self.audit_space(id));
        let of_file = || {
            let idle = |file: &FileState| file.rmap.lock.audit_free(p) && file.is_idle(p);
            let busy = self.live_files().any(|id| !idle(self.file_at(id)));
            busy.then_some("a file or its VMAs are locked, or closed, and nobody changes them")
        };
        let of_zone = || self.zones().find_map(|zone| self.audit_zone(zone));
        let read = || (!pool::nobody_reads(self)).then_some("somebody reads slots for ever");
        let writing = || (!self.audit_writes()).then_some("pages are on their way to devices for ever");
        let slots = || self.audit_slots();
        of_cpu
            .or_else(of_space)
            .or_else(of_file)
            .or_else(of_zone)
            .or_else(read)
            .or_else(writing)
            .or_else(slots)
    }

    fn audit_cpu(&self, cpu: CpuId) -> Option<&'static str> {
        let (p, slot) = (self.platform(), self.slot(cpu));
        #[cfg(debug_assertions)]
        let locks = slot.spin_locks.get() == 0;
        #[cfg(not(debug_assertions))]
        let locks = true;
        let loaded = slot.tlb.loaded();
        let in_masks = |id: SpaceId| self.space_at(id).cpus.0.contains(p, cpu) == (loaded == Some(id.slot()));
        let checks = [
            (locks, "a CPU holds a spin lock"),
            (slot.visible_reads.is_empty(p), "somebody shares a lock, and nobody is at work"),
            (slot.inbox.is_empty(p), "a CPU's inbox has a request that nobody waits for"),
            (slot.request.audit_answered(p), "a CPU's request that somebody has not acknowledged"),
            (slot.targets.is_empty() && slot.sending.is_empty(), "a CPU's set of targets that it keeps"),
            (slot.returned.is_empty(p), "frames that were handed to a CPU and that it has not taken"),
            (slot.returned_lru.is_empty(p), "pages that were handed to a CPU and that it has not taken"),
            (self.live_spaces().all(in_masks), "a space's mask, and the CPUs that have it loaded, differ"),
        ];
        checks.iter().find(|(good, _)| !good).map(|(_, what)| *what)
    }

    /// Whether each slot in use is what somebody has.
    fn audit_slots(&self) -> Option<&'static str> {
        let (p, root) = (self.platform(), self.root);
        let linked: u64 =
            self.live_spaces().map(|id| u64::from(self.space_at(id).vmas.map_count.get(p))).sum();
        let anon_vmas =
            (0..root.anon_vmas.bound(self)).filter(|&handle| root.anon_vmas.is_used(self, handle));
        let mut rmap = anon_vmas.map(|handle| &root.anon_vmas.get(self, handle).rmap);
        let checks = [
            (
                root.spaces.audit_used(self) == self.live_spaces().count() as u64,
                "slots of spaces that nobody has",
            ),
            (
                root.files.audit_used(self) == self.live_files().count() as u64,
                "slots of files that nobody has",
            ),
            (root.vmas.audit_used(self) == linked, "slots of VMAs that are in no space"),
            (
                rmap.all(|rmap| !rmap.is_empty(p) && rmap.lock.audit_free(p)),
                "an `anon_vma` that nobody belongs to",
            ),
        ];
        checks.iter().find(|(good, _)| !good).map(|(_, what)| *what)
    }

    fn audit_space(&self, id: SpaceId) -> Option<&'static str> {
        let (p, space) = (self.platform(), self.space_at(id));
        let newest = space.generation(p);
        let checks = [
            (
                space.vmas.lock.audit_free(p)
                    && space.vmas.leaving.get(p) == 0
                    && space.vmas.waiting.get(p) == 0,
                "a space's VMAs are locked",
            ),
            (space.together.audit_free(p), "a flush that somebody waits for, and nobody makes"),
            (
                self.vmas_of(space).all(|(_, vma)| vma.gate.audit_free(p)),
                "a VMA whose gate is shut, or in which a fault is",
            ),
            (!space.is_changing(p), "an operation on a space that never ends"),
            (space.deferred(p) <= newest, "a flush was deferred until a generation that never comes"),
            (
                space.is_behind(p, crate::addr::Generation(newest.0 + 1)),
                "a space says that what will be cleared is flushed",
            ),
        ];
        checks.iter().find(|(good, _)| !good).map(|(_, what)| *what)
    }

    /// Whether a zone says of itself what its watermarks say.
    fn audit_zone(&self, zone: &Zone) -> Option<&'static str> {
        let p = self.platform();
        let free = zone.free(p);
        let starved = zone.limits.is_paused(p, crate::frame::Pause::Starved);
        let leaving = zone.limits.is_paused(p, crate::frame::Pause::Leaving);
        let (now, chosen) = (zone.limits.get(p), zone.limits.chosen(p));
        let high = if starved || leaving { 0 } else { chosen.high };
        let checks = [
            (free >= zone.low(p) || zone.is_short(p), "a zone below its low watermark that is not short"),
            (free < zone.high(p) || !zone.is_short(p), "a zone above its high watermark that is short"),
            (free < zone.low(p) || !starved, "a zone above its low watermark whose CPUs keep nothing"),
            (
                leaving == zone.leaving(p).is_some(),
                "a zone keeps nothing on per-CPU lists, and no block of it leaves",
            ),
            (now.high == high, "a zone's limits for per-CPU lists are not those that count"),
        ];
        checks.iter().find(|(good, _)| !good).map(|(_, what)| *what)
    }

    /// Pages in the batches that are bound for lists, of all CPUs.
    pub(super) fn batch_refs(&self) -> u64 {
        let cpus = (0..self.platform().possible_cpus()).map(|cpu| CpuId(cpu as u16));
        cpus.map(|cpu| self.slot(cpu).lru.len() as u64).sum()
    }
}
