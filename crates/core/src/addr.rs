//! Numbers that must not be mixed up: frames, pages, addresses, nodes, generations.

use core::fmt;

/// Bytes in a small page and in a frame.
pub const PAGE_SIZE: u64 = 4096;
/// Small pages in a large one, of 2 MiB.
pub const LARGE_PAGES: u64 = 512;
/// log2 of [`LARGE_PAGES`]: the order of a large page's block of frames.
pub const LARGE_ORDER: u8 = 9;
/// log2 of [`PAGE_SIZE`].
pub const PAGE_SHIFT: u32 = 12;

/// The most nodes.
pub(crate) const MAX_NODES: usize = 64;

/// A physical page frame, counted in units of [`PAGE_SIZE`] from physical address 0.
///
/// `FrameNumber::NONE` stands for "no frame" in links; numbers from [`FrameNumber::END`] on are never managed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct FrameNumber(pub u32);

impl FrameNumber {
    /// No frame.
    pub const NONE: FrameNumber = FrameNumber(u32::MAX);
    /// One past the last frame that can be handed over: 8 TiB. What lies in entries that are not present reads as a frame
    /// above it ([`Entry`](crate::Entry) says why).
    pub const END: FrameNumber = FrameNumber(1 << 31);

    /// The physical address of the first byte.
    pub const fn phys(self) -> PhysAddr {
        PhysAddr((self.0 as u64) << PAGE_SHIFT)
    }

    /// The frame `n` frames further on.
    pub const fn add(self, n: u32) -> FrameNumber {
        FrameNumber(self.0 + n)
    }
}

impl fmt::Debug for FrameNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::NONE { f.write_str("frame -") } else { write!(f, "frame {:#x}", self.0) }
    }
}

/// A run of memory: handed over at start, or to come later ([`Memory::later_region`](crate::platform::Memory::later_region)).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Region {
    /// Its first frame.
    pub start: FrameNumber,
    /// How many frames.
    pub frames: u32,
    /// Its node.
    pub node: NodeId,
}

/// A physical address in bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(transparent)]
pub struct PhysAddr(pub u64);

impl PhysAddr {
    /// The frame that holds this byte.
    pub const fn frame(self) -> FrameNumber {
        FrameNumber((self.0 >> PAGE_SHIFT) as u32)
    }
}

/// A virtual address in bytes. User addresses are below [`VirtAddr::USER_END`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(transparent)]
pub struct VirtAddr(pub u64);

impl VirtAddr {
    /// One past the last user address: the lower half of four-level x86-64.
    pub const USER_END: VirtAddr = VirtAddr(1 << 47);

    /// The page that holds this byte.
    pub const fn page(self) -> PageNumber {
        PageNumber(self.0 >> PAGE_SHIFT)
    }
}

/// A virtual page, counted in units of [`PAGE_SIZE`] from virtual address 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(transparent)]
pub struct PageNumber(pub u64);

impl PageNumber {
    /// One past the last user page.
    pub const USER_END: PageNumber = PageNumber(VirtAddr::USER_END.0 >> PAGE_SHIFT);

    /// The first page of the kernel's half: the upper half of four-level x86-64.
    pub const KERNEL_START: PageNumber = PageNumber(0xf_fff8_0000_0000);
    /// One past the last page of the kernel's half.
    pub const KERNEL_END: PageNumber = PageNumber(1 << (64 - PAGE_SHIFT));

    /// The address of the first byte.
    pub const fn addr(self) -> VirtAddr {
        VirtAddr(self.0 << PAGE_SHIFT)
    }

    /// The first page of the large page that covers this one.
    pub const fn large(self) -> PageNumber {
        PageNumber(self.0 & !(LARGE_PAGES - 1))
    }

    /// The index into a table of `level` (0 is the leaf level) on the way to this page.
    pub const fn index(self, level: u32) -> usize {
        ((self.0 >> (9 * level)) & 511) as usize
    }
}

/// A half-open range of virtual pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PageRange {
    /// The first page.
    pub start: PageNumber,
    /// How many pages.
    pub pages: u64,
}

impl PageRange {
    /// What programs can map: all user addresses but the first 64 KiB and the last page.
    ///
    /// The first, so that a null pointer faults, with an offset too, in programs and in a kernel that follows one (Linux's
    /// `mmap_min_addr`). The last, so that no instruction ends where the next address is not canonical: a `SYSRET` to there
    /// faults in the kernel on Intel's CPUs, on a stack that the program has chosen (CVE-2012-0217).
    #[doc(alias = "mmap_min_addr")]
    #[doc(alias = "TASK_SIZE_MAX")]
    pub const MAPPABLE: PageRange =
        PageRange::between(PageNumber(16), PageNumber(PageNumber::USER_END.0 - 1));

    /// `pages` pages from `start`.
    pub const fn new(start: PageNumber, pages: u64) -> Self {
        PageRange { start, pages }
    }

    /// One past the last page.
    pub const fn end(self) -> PageNumber {
        PageNumber(self.start.0 + self.pages)
    }

    /// From `start` to before `end`.
    pub const fn between(start: PageNumber, end: PageNumber) -> Self {
        PageRange { start, pages: end.0 - start.0 }
    }

    /// Whether `page` lies inside.
    pub const fn contains(self, page: PageNumber) -> bool {
        page.0 >= self.start.0 && page.0 < self.start.0 + self.pages
    }

    /// Whether all of `other` lies inside.
    pub const fn covers(self, other: PageRange) -> bool {
        self.start.0 <= other.start.0 && other.end().0 <= self.end().0
    }

    /// From the start of whichever begins first to the end of whichever ends last.
    pub(crate) const fn hull(self, other: PageRange) -> PageRange {
        let start = if self.start.0 < other.start.0 { self.start } else { other.start };
        let end = if self.end().0 > other.end().0 { self.end() } else { other.end() };
        PageRange::between(start, end)
    }

    /// The part that both ranges cover, if there is one.
    pub fn intersect(self, other: PageRange) -> Option<PageRange> {
        let start = self.start.max(other.start);
        let end = self.end().min(other.end());
        (start < end).then(|| PageRange::new(start, end.0 - start.0))
    }
}

/// A NUMA node, counted from 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(transparent)]
pub struct NodeId(pub u16);

/// A set of NUMA nodes.
///
/// ```
/// use quietmm::NodeSet;
/// use quietmm::addr::NodeId;
/// let near = NodeSet::of(&[NodeId(0), NodeId(2)]).expect("nodes are 0 to 63");
/// assert!(near.contains(NodeId(2)) && !near.contains(NodeId(1)));
/// assert_eq!(near.iter().count(), 2);
/// assert_eq!(NodeSet::of(&[NodeId(64)]), None);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct NodeSet(u64);

impl NodeSet {
    pub(crate) const ALL: NodeSet = NodeSet(u64::MAX);

    /// These. `None` if one is beyond 63, the highest that there may be.
    pub fn of(nodes: &[NodeId]) -> Option<NodeSet> {
        nodes.iter().try_fold(NodeSet(0), |set, node| Some(NodeSet(set.0 | 1u64.checked_shl(node.0.into())?)))
    }

    /// Whether the node is one of them.
    pub fn contains(self, node: NodeId) -> bool {
        1u64.checked_shl(node.0.into()).is_some_and(|bit| self.0 & bit != 0)
    }

    /// Whether there are none.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The nodes, from the lowest on.
    pub fn iter(self) -> impl Iterator<Item = NodeId> {
        (0..64).map(NodeId).filter(move |&node| self.contains(node))
    }

    pub(crate) const fn bits(self) -> u64 {
        self.0
    }

    /// Those that are in both.
    pub(crate) const fn and(self, other: NodeSet) -> NodeSet {
        NodeSet(self.0 & other.0)
    }

    pub(crate) const fn from_bits(bits: u64) -> NodeSet {
        NodeSet(bits)
    }
}

/// How often the translations of a space were taken away or narrowed. Only grows.
///
/// 64 bits: at a billion steps a second it wraps after 584 years (PITFALLS 15 is a smaller number that
/// wraps), so it is compared with `<` and never reset, not even when a space's slot is used again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[repr(transparent)]
pub struct Generation(pub u64);

/// Time from the platform's clock, in nanoseconds since an arbitrary start.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[repr(transparent)]
pub struct Nanos(pub u64);
