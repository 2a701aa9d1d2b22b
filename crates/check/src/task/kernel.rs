//! What a script does with frames, and with the kernel's own addresses.

use quietmm::addr::FrameNumber;
use quietmm::{AllocFrom, PageNumber, PageRange, UserAccess};

use super::Task;
use super::memory::FAULTS;
use crate::machine::Place;

impl Task<'_> {
    /// Takes all frames that are free, so that whoever wants one must reclaim.
    pub fn take_all_memory(&self) {
        self.take_all_of(0);
    }

    /// The same where there is much of it: as blocks, as large as they come.
    pub fn take_all_blocks(&self) {
        (0..=9).rev().for_each(|order| self.take_all_of(order));
    }

    fn take_all_of(&self, order: u8) {
        while let Ok(frames) = self.mm.frames().alloc(order, AllocFrom::NOW) {
            (0..1 << order).for_each(|n| self.lend(frames.first().add(n)));
            self.world.frames.borrow_mut().push(frames);
        }
    }

    /// Gives back so many of the frames that the scenario holds.
    pub fn give_back(&self, count: usize) {
        for _ in 0..count {
            self.machine.record(Place::World, true);
            let Some(frames) = self.world.frames.borrow_mut().pop() else { return };
            self.mm.frames().free(frames);
        }
    }

    /// The same, but what lies in this block of memory and what follows.
    pub fn take_all_below(&self, block: FrameNumber) {
        self.take_all_blocks();
        let mut frames = self.world.frames.borrow_mut();
        let (below, above) = frames.drain(..).partition(|frames| frames.first() < block);
        *frames = below;
        let above: Vec<_> = above;
        above.into_iter().for_each(|frames| self.mm.frames().free(frames));
    }

    /// Begins to take a block of memory offline.
    pub fn begin_offline(&self, block: FrameNumber) {
        let leaving = self.must("begin_offline", |mm| mm.frames().begin_offline(block));
        self.world.leaving.set(Some(leaving));
    }

    /// Empties it as far as it can be.
    pub fn finish_offline(&self) {
        self.machine.record(Place::World, true);
        let leaving = self.world.leaving.take().expect("it was begun");
        let _ = self.call("finish_offline", |mm| {
            match mm.frames().finish_offline(leaving) {
                Ok(offline) => mm.frames().bring_online(offline),
                Err(remains) => self.world.leaving.set(Some(remains.leaving)),
            }
            Ok(())
        });
    }

    /// And gives up, if it is still on its way.
    pub fn cancel_offline(&self) {
        self.world.leaving.take().into_iter().for_each(|leaving| self.mm.frames().cancel_offline(leaving));
    }

    /// A block of memory has come; says whether this is who has it.
    pub fn add_block(&self, block: FrameNumber) -> bool {
        self.machine.record(Place::World, true);
        // SAFETY: the machine has it, and nobody uses it.
        let added = self.call("add_block", |mm| unsafe { mm.frames().add_block(block) });
        added.map(|block| self.world.offline.borrow_mut().push(block)).is_ok()
    }

    /// What has come is used.
    pub fn bring_online(&self) {
        self.world.offline.take().into_iter().for_each(|block| self.mm.frames().bring_online(block));
    }

    /// What the scenario holds is from now on in the kernel's own cache, which gives it back when it is asked.
    pub fn cache_all(&self) {
        self.machine.record(Place::World, true);
        let frames = self.world.frames.take();
        self.machine.cache.borrow_mut().extend(frames);
    }

    /// The cache ends.
    pub fn empty_cache(&self) {
        let frames = self.machine.cache.take();
        frames.into_iter().for_each(|frames| self.mm.frames().free(frames));
    }

    /// One frame for the scenario, by reclaim if there is no other; says whether there was one.
    pub fn reclaim(&self) -> bool {
        let frames = self.call("alloc_frames", |mm| mm.frames().alloc(0, AllocFrom::HERE));
        match frames {
            Ok(frames) => {
                self.lend(frames.first());
                self.machine.record(Place::World, true);
                self.world.frames.borrow_mut().push(frames);
                true
            }
            Err(_) => false,
        }
    }

    /// The same, whether there was one or not.
    pub fn reclaim_one(&self) {
        self.reclaim();
    }

    /// So many frames for the scenario, for kernel maps; all of order 0.
    pub fn frames(&self, count: usize) -> Vec<FrameNumber> {
        (0..count)
            .map(|_| {
                let frames = self.must("alloc_frames", |mm| mm.frames().alloc(0, AllocFrom::NOW));
                self.lend(frames.first());
                frames.into_raw().0
            })
            .collect()
    }

    /// Gives one of these back.
    pub fn free_frame(&self, frame: FrameNumber) {
        self.must("free_frames", |mm| mm.frames().free_at(frame, 0));
    }

    pub(crate) fn lend(&self, frame: FrameNumber) {
        if let Some(state) = self.machine.memory.state(frame) {
            state.lent.set(true);
        }
    }

    /// The core has just given these kernel addresses out.
    pub fn given(&self, range: PageRange) -> PageRange {
        self.machine.judge_given(range);
        range
    }

    /// The kernel uses a page of its own: it must lead to this frame.
    pub fn use_kernel(&self, page: PageNumber, frame: FrameNumber) {
        let found = self.kernel_access(page);
        if found != Some(frame) {
            let said = format!(
                "CPU {} finds {found:?} at kernel page {:#x}, where {frame:?} is mapped",
                self.id, page.0
            );
            self.fail("INV-3", said);
        }
    }

    /// What the kernel finds at an address of its own, as long as the core says that a fault is none.
    fn kernel_access(&self, page: PageNumber) -> Option<FrameNumber> {
        for _ in 0..FAULTS {
            let found = self.machine.kernel_access(page.0);
            let again = || self.mm.vmap().fault(page.addr(), UserAccess::Read).is_ok();
            if found.is_some() || !self.machine.setup().architecture.keeps_refusals() || !again() {
                return found;
            }
        }
        self.fail("livelock", format!("kernel page {:#x} faults again and again", page.0))
    }

    /// No CPU may have this frame at any kernel address.
    pub fn no_alias(&self, frame: FrameNumber) {
        self.machine.judge_no_alias(frame);
    }
}
