//! What a script can do with kernel addresses, and with the frames on per-CPU lists.

use quietmm::addr::FrameNumber;
use quietmm::{Certainty, Config, Error, KernelProt, ListLimits, NodeId, PageNumber, PageRange, VmapPlace};

use crate::machine::Told;
use crate::task::{Task, range};

/// Where the kernel range of scenarios begins: in the middle of a page table, 256 pages before its end.
pub const KERNEL: PageNumber = PageNumber(0xf_fff8_1234_5700);
/// Anywhere, without a guard page.
pub const BARE: VmapPlace = VmapPlace { align: 1, within: None, guard: false, node: None };
const RW: KernelProt = KernelProt::ReadWrite;

/// A kernel range of so many pages, where nothing is purged unless it is asked for or addresses are short.
pub fn kernel_range(config: &mut Config, pages: u64) {
    config.vmap = Some(PageRange::new(KERNEL, pages));
    config.vmap_lazy = Some(u64::MAX);
}

/// Pages of the kernel range.
pub fn kernel(page: u64, pages: u64) -> PageRange {
    range(KERNEL.0 + page, pages)
}

impl Task<'_> {
    /// What the core has said so far.
    pub fn told(&self) -> &Told {
        &self.mm().platform().told
    }

    /// Takes so many frames for the scenario: they are [`frame`](Self::frame) 0 and so on, in the order in which they come.
    pub fn take_frames(&self, count: usize) {
        (0..count).for_each(|_| self.promise(self.reclaim(), "there is a frame"));
    }

    /// One of the frames that the scenario holds.
    pub fn frame(&self, n: usize) -> FrameNumber {
        self.world.frames.borrow()[n].first()
    }

    fn some_frames(&self, first: usize, pages: u64) -> Vec<FrameNumber> {
        self.world.frames.borrow()[first..].iter().take(pages as usize).map(quietmm::Frames::first).collect()
    }

    /// Maps a frame of the scenario, or some in a row, and uses the first page.
    pub fn vmap(&self, first: usize, pages: u64, place: VmapPlace) -> PageRange {
        let frames = self.some_frames(first, pages);
        let range = self.must("vmap", |mm| mm.vmap().map(&frames, place, RW));
        self.use_given(range, frames[0])
    }

    /// Maps one frame of the scenario everywhere in as many pages, for whoever wants addresses only.
    pub fn vmap_filled(&self, frame: usize, pages: u64, place: VmapPlace) -> PageRange {
        let frame = self.frame(frame);
        let range = self.must("vmap", |mm| mm.vmap().map(&vec![frame; pages as usize], place, RW));
        self.use_given(range, frame)
    }

    /// Unmaps such a range.
    pub fn vunmap(&self, range: PageRange) {
        self.must("vunmap", |mm| mm.vmap().unmap(range.start));
    }

    /// The same with frames that come with it.
    pub fn vmalloc(&self, pages: u64) -> PageRange {
        let range = self.must("vmalloc", |mm| mm.vmap().alloc(pages, BARE, RW));
        self.use_vmalloc(range)
    }

    /// The same, where memory may be short.
    pub fn try_vmalloc(&self, pages: u64) -> Result<PageRange, Error> {
        let range = self.call("vmalloc", |mm| mm.vmap().alloc(pages, BARE, RW))?;
        Ok(self.use_vmalloc(range))
    }

    fn use_vmalloc(&self, range: PageRange) -> PageRange {
        let frame = self.must("vmap_frame", |mm| mm.vmap().frame_at(range.start));
        self.use_given(range, frame)
    }

    /// Gives such a range back.
    pub fn vfree(&self, range: PageRange) {
        self.must("vfree", |mm| mm.vmap().free(range.start));
    }

    /// Maps from this CPU's block.
    pub fn map_ram(&self, first: usize, pages: u64) -> PageRange {
        let frames = self.some_frames(first, pages);
        let range = self.must("map_ram", |mm| mm.vmap().map_ram(&frames, RW));
        self.use_given(range, frames[0])
    }

    /// The same with one frame in as many pages.
    pub fn map_ram_filled(&self, frame: usize, pages: u64) -> PageRange {
        let frame = self.frame(frame);
        let range = self.must("map_ram", |mm| mm.vmap().map_ram(&vec![frame; pages as usize], RW));
        self.use_given(range, frame)
    }

    /// Unmaps such a range.
    pub fn unmap_ram(&self, range: PageRange) {
        self.must("unmap_ram", |mm| mm.vmap().unmap_ram(range));
    }

    /// Purges, so that nobody can use anything that was unmapped before.
    pub fn unmap_aliases(&self) {
        self.must("unmap_aliases", |mm| mm.vmap().unmap_aliases());
    }

    fn use_given(&self, range: PageRange, first: FrameNumber) -> PageRange {
        self.given(range);
        self.use_kernel(range.start, first);
        range
    }

    /// Remembers a range for other scripts.
    pub fn keep(&self, range: PageRange) {
        self.world.ranges.borrow_mut().push(range);
    }

    /// One of these.
    pub fn kept(&self, n: usize) -> PageRange {
        self.world.ranges.borrow()[n]
    }

    /// Puts the frames on per-CPU lists into their zones.
    pub fn drain(&self, certainty: Certainty) {
        let _ = self.call("drain_page_lists", |mm| Ok(mm.frames().drain(certainty)));
    }

    /// From now on each CPU keeps so many frames on its lists.
    pub fn limit_lists(&self, batch: u32, high: u32) {
        self.must("set_list_limits", |mm| mm.frames().set_list_limits(NodeId(0), ListLimits { batch, high }));
    }

    /// Promises that no frame is on a CPU's lists.
    pub fn nothing_on_pcp(&self) {
        let held = self.mm().frames().on_lists();
        self.promise(held == 0, "no frame is left on a CPU's lists");
    }
}
