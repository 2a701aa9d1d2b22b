//! What can go wrong. The core never panics on input: it says what was wrong and leaves its state as it was.

use core::fmt;

use crate::addr::{FrameNumber, PageNumber, PageRange};
use crate::handle::GroupId;

/// Why an operation was refused. Nothing has changed, unless the variant says otherwise.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Error {
    /// No frame could be had, not even by reclaim.
    OutOfMemory,
    /// As many spaces, mappings or files exist as the core can name.
    TooMany,
    /// No memory was handed over, or too little for the bookkeeping.
    TooLittleMemory,
    /// Two regions overlap, or one is empty or reaches beyond [`FrameNumber::END`]; or one that may come later is not of whole blocks of 1024 frames.
    BadRegion,
    /// More CPUs than 4096 or none, or a node beyond 63.
    BadTopology,
    /// A setting is out of its range.
    BadSetting(&'static str),
    /// The policy needs a guarantee that the platform does not declare, or hardware that it does not have.
    GuaranteeMissing {
        /// The policy.
        policy: &'static str,
        /// The guarantee or hardware, by the name of the method of [`Guarantees`](crate::platform::Guarantees) or
        /// [`Platform`](crate::Platform) that declares it.
        guarantee: &'static str,
    },
    /// Not a live address space.
    NoSuchSpace,
    /// Not a live file.
    NoSuchFile,
    /// There can be no groups.
    NoGroups,
    /// Not a live group.
    NoSuchGroup,
    /// The group is charged with as much memory as it may be, none of it could be reclaimed, and
    /// [`Services::out_of_memory`](crate::platform::Services::out_of_memory) found no victim. What may be refused for want of memory
    /// ([`Error::OutOfMemory`]) may be refused with this instead, where a group is charged with that memory.
    LimitReached(GroupId),
    /// The range is empty, reaches beyond user addresses, or wraps.
    BadRange,
    /// No program may map this page: it lies outside [`PageRange::MAPPABLE`](crate::PageRange::MAPPABLE).
    NotMappable(PageNumber),
    /// What is asked of the file lies beyond its end.
    BeyondFile,
    /// Something is mapped there already.
    Overlaps(PageNumber),
    /// The space has as many mappings as it may.
    MapCount {
        /// [`Config::max_map_count`](crate::config::Config::max_map_count).
        most: u32,
    },
    /// Nothing is mapped there.
    NotMapped(PageNumber),
    /// The mapping does not allow this access.
    NotPermitted(PageNumber),
    /// Pages may not be written and executed at once: [`Config::write_xor_execute`](crate::config::Config::write_xor_execute).
    WriteAndExecute,
    /// A device may not write to this page for an unbounded time: it is a file's, and write-back would never end.
    NotPinnable(PageNumber),
    /// The page has as many pins as can be counted.
    TooManyPins(PageNumber),
    /// These 2 MiB, or the page of them that is pinned, cannot be a large page: one mapping must show all of it, of memory of the program's own.
    NotCollapsible(PageNumber),
    /// A CPU still runs in this space, a mapping still uses this file, or another block of the region is on its way
    /// offline.
    Busy,
    /// The frame is not managed by the core.
    NoSuchFrame(FrameNumber),
    /// The frame is not allocated in a block of this order: a double free, or a wrong order.
    NotAllocated(FrameNumber),
    /// An order above 10.
    BadOrder(u8),
    /// Not the start of a block of memory that could go offline, or come.
    BadBlock(FrameNumber),
    /// The block that begins here came already, or was here from the start.
    AlreadyHere(FrameNumber),
    /// The frame can never be freed: it holds the core's bookkeeping.
    NotMovable(FrameNumber),
    /// A node that does not exist.
    NoSuchNode,
    /// The device could not read the page.
    Device,
    /// The file system lets nobody write to the page of its file that is shown here.
    WriteRefused(PageNumber),
    /// The swap device that has this page cannot give it back.
    SwapDevice(PageNumber),
    /// Swap was not asked for when the manager was made.
    NoSwap,
    /// Not a swap device that is in use, or one that is already.
    NoSuchSwapDevice,
    /// No kernel range was given when the manager was made.
    NoKernelRange,
    /// An alignment that is not a power of two, or larger than the kernel range.
    BadAlignment(u64),
    /// No run of kernel addresses is long enough, not even after a purge.
    NoAddress,
    /// The kernel pages from here on were not mapped by the call that this one belongs to: of [`Vmap`](crate::Vmap) `map`
    /// with `unmap`, `alloc` with `free`, `map_ram` with `unmap_ram`.
    WrongRelease(PageNumber),
    /// This CPU is offline, or has never come online.
    NotOnline,
    /// This CPU is online already.
    AlreadyOnline,
    /// Interrupts must be on: this policy waits for other CPUs here.
    NeedsInterrupts,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::OutOfMemory => f.write_str("no frame is free and none could be reclaimed"),
            Error::TooMany => f.write_str("too many spaces, mappings or files exist at once"),
            Error::TooLittleMemory => {
                f.write_str("too little memory for the core's bookkeeping; hand over more")
            }
            Error::BadRegion => f.write_str(
                "memory regions must be non-empty, disjoint, sorted, end at 8 TiB or before, and be whole blocks of 1024 frames if they come later",
            ),
            Error::BadTopology => f.write_str("there must be 1 to 4096 CPUs on nodes 0 to 63"),
            Error::BadSetting(which) => write!(f, "setting out of range: {which}"),
            Error::GuaranteeMissing { policy, guarantee } => {
                write!(f, "policy {policy} needs a guarantee that the platform does not declare: {guarantee}")
            }
            Error::NoSuchSpace => f.write_str("not a live address space"),
            Error::NoSuchFile => f.write_str("not a live file"),
            Error::NoGroups => f.write_str("groups were not asked for: set `groups` in the configuration"),
            Error::NoSuchGroup => f.write_str("not a live group"),
            Error::LimitReached(group) => {
                write!(
                    f,
                    "{group:?} is charged with all the memory that it may have, and none could be reclaimed"
                )
            }
            Error::BadRange => f.write_str("the range must be non-empty and inside user addresses"),
            Error::NotMappable(page) => {
                let all = PageRange::MAPPABLE;
                let (page, first, end) = (page.addr().0, all.start.addr().0, all.end().addr().0);
                write!(f, "{page:#x} cannot be mapped: programs may map from {first:#x} up to {end:#x}")
            }
            Error::BeyondFile => f.write_str("that lies beyond the end of the file"),
            Error::Overlaps(page) => write!(f, "{:#x} is mapped already", page.addr().0),
            Error::MapCount { most } => {
                write!(f, "the space has {most} mappings already, the most that `max_map_count` allows")
            }
            Error::NotMapped(page) => write!(f, "{:#x} is not mapped", page.addr().0),
            Error::NotPermitted(page) => {
                write!(f, "the mapping of {:#x} does not allow this access", page.addr().0)
            }
            Error::WriteAndExecute => {
                f.write_str("the configuration lets no page be written and executed at once")
            }
            Error::NotPinnable(page) => {
                write!(f, "{:#x} is a page of a file, which cannot be pinned long for writing", page.addr().0)
            }
            Error::NotCollapsible(page) => write!(
                f,
                "{:#x} cannot become part of a large page: it is pinned, or a file's, or not all of the 2 MiB is one mapping",
                page.addr().0
            ),
            Error::TooManyPins(page) => write!(f, "{:#x} is pinned too often already", page.addr().0),
            Error::Busy => f.write_str("still in use"),
            Error::NoSuchFrame(frame) => write!(f, "{frame:?} is not managed"),
            Error::NotAllocated(frame) => write!(f, "{frame:?} is not allocated in this order"),
            Error::BadOrder(order) => write!(f, "order {order} is above 10"),
            Error::BadBlock(frame) => write!(
                f,
                "{frame:?} does not begin a block that can go offline or come: 1024 frames, aligned, whole in one region"
            ),
            Error::AlreadyHere(frame) => write!(f, "the block of {frame:?} is here already"),
            Error::NotMovable(frame) => {
                write!(f, "{frame:?} holds the core's bookkeeping and cannot be freed")
            }
            Error::NoSuchNode => f.write_str("no such node"),
            Error::Device => f.write_str("the device could not read the page"),
            Error::WriteRefused(page) => {
                write!(f, "the file system lets nobody write to the page at {:#x}", page.addr().0)
            }
            Error::SwapDevice(page) => {
                write!(f, "the swap device cannot give back the page at {:#x}", page.addr().0)
            }
            Error::NoSwap => f.write_str("swap was not asked for: set `swap` in the configuration"),
            Error::NoSuchSwapDevice => {
                f.write_str("no swap device of this number is in use, or it is in use already")
            }
            Error::NoKernelRange => f.write_str("no kernel range was given: set `vmap` in the configuration"),
            Error::BadAlignment(pages) => {
                write!(f, "an alignment of {pages} pages: it must be a power of two within the kernel range")
            }
            Error::NoAddress => f.write_str("no run of kernel addresses is long enough"),
            Error::WrongRelease(page) => {
                write!(f, "{:#x} is not the start of what this call releases", page.addr().0)
            }
            Error::NotOnline => f.write_str("this CPU is not online: it must call `cpu_online` first"),
            Error::AlreadyOnline => {
                f.write_str("this CPU is online already, by `Cpus::is_online` or an earlier `cpu_online`")
            }
            Error::NeedsInterrupts => f.write_str("interrupts must be on: vmap=eager waits for other CPUs"),
        }
    }
}

impl core::error::Error for Error {}
