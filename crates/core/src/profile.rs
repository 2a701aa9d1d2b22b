//! Where time goes: the core's main functions and its locks by name, for a machine that keeps a profile.
//!
//! The core tells [`Hooks::enter`](crate::platform::Hooks::enter) and [`Hooks::leave`](crate::platform::Hooks::leave) when it goes into one of them and comes back. Both do nothing
//! by default and compile to nothing; the simulated machine charges its CPUs' time to whatever is innermost. Waiting
//! is no matter of its own: whoever takes a lock is in that lock's scope until it has it.

macro_rules! scopes {
    ($($variant:ident, $room:ident, $name:literal, $about:literal;)*) => {
        /// A part of the core that time is charged to.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[repr(u8)]
        #[non_exhaustive]
        pub enum Scope { $(#[doc = $about] $variant,)* }

        impl Scope {
            /// All of them. The place of each is its number.
            pub const ALL: &'static [Scope] = &[$(Scope::$variant,)*];

            /// The name in a profile.
            pub const fn name(self) -> &'static str {
                match self { $(Scope::$variant => $name,)* }
            }

            /// The room of the core that it belongs to.
            pub const fn room(self) -> Room {
                match self { $(Scope::$variant => Room::$room,)* }
            }

            /// What is counted there, in one line.
            pub const fn about(self) -> &'static str {
                match self { $(Scope::$variant => $about,)* }
            }
        }
    };
}

scopes! {
    // The first is what a `SpinLock` is that says nothing of itself.
    EmbedderLock, Locks, "spin_lock(embedding kernel)", "taking a spin lock of the kernel around the core";
    ZoneLock, Locks, "spin_lock(zone)", "taking the lock of a zone's free frames";
    SwapLock, Locks, "spin_lock(swap devices)", "taking the lock of which swap devices there are";
    ClusterLock, Locks, "spin_lock(swap cluster)", "taking the lock of a cluster of swap slots";
    SwapOpenLock, Locks, "spin_lock(swap device)", "taking the lock of a swap device's clusters with room";
    CpuListsLock, Locks, "spin_lock(CPU's lists)", "taking the lock of a CPU's lists of free frames";
    PoolLock, Locks, "spin_lock(pool)", "taking the lock of a pool's free slots";
    TableLock, Locks, "spin_lock(table)", "taking the lock of a page table's entries";
    FileTreeLock, Locks, "spin_lock(file's tree)", "taking the lock of a page cache's tree";
    NodeListsLock, Locks, "spin_lock(node's lists)", "taking the lock of a node's LRU lists";
    GroupsLock, Locks, "spin_lock(groups)", "taking the lock of which groups there are, and who belongs to them";
    FreeExtentsLock, Locks, "spin_lock(free extents)", "taking the lock of a shard's free kernel extents";
    StockLock, Locks, "spin_lock(CPU's extents)", "taking the lock of what a CPU has unmapped and has in its cache";
    TogetherLock, Locks, "spin_lock(flushes together)", "taking the lock of what waits to be flushed in a space";
    ParkedLock, Locks, "spin_lock(CPU's parked)", "taking the lock of pages that a CPU has unmapped and nobody has swept yet";
    EagerListLock, Locks, "spin_lock(eager list)", "taking the one lock of vmap=eager";
    // The first is what an `RwLock` is that says nothing of itself.
    OtherRwLock, Locks, "rw_lock(other)", "taking a sleeping lock that has no name";
    VmasLock, Locks, "rw_lock(space's VMAs)", "taking the lock of a space's VMAs";
    ReverseMapLock, Locks, "rw_lock(reverse map)", "taking the lock of the VMAs that show a file, or pages of an `anon_vma`";
    FileLock, Locks, "rw_lock(file)", "taking the lock of a file's length, and of who reads and writes it";
    PurgeLock, Locks, "rw_lock(purge)", "taking the lock of who purges kernel addresses";
    PageLock, Locks, "page_lock", "taking the lock of a page that is read, reclaimed or written out, or waiting for it";

    Fault, Paging, "fault", "a page fault, from the VMA to the entry";
    Map, Paging, "map", "mapping a range";
    Unmap, Paging, "unmap", "unmapping a range";
    Protect, Paging, "protect", "changing the rights of a range";
    Advise, Paging, "advise", "taking pages away that a program does not need";
    MoveRange, Paging, "move_range", "moving a range to other addresses";
    Migrate, Paging, "migrate", "moving pages to another node";
    Fork, Paging, "fork", "copying a space";
    Pin, Paging, "pin", "taking the frames of a range for a device";
    CreateSpace, Paging, "create_space", "making a space";
    DestroySpace, Paging, "destroy_space", "ending a space";
    SwitchTo, Paging, "switch_to", "loading a space, or finding that it is loaded";
    EnterLazy, Paging, "enter_lazy", "keeping a space loaded for a task without one";

    ReadFile, File, "read_file", "copying a file's content out of its cache";
    WriteFile, File, "write_file", "copying new content into it";
    CutFile, File, "cut_file", "cutting pages off a file, or out of it";
    WriteBack, File, "write_back", "a file's dirty pages to their device";

    AllocFrame, Frame, "alloc_frame", "taking frames: per-CPU lists, then zones";
    AllocStall, Frame, "alloc_stall", "a task that found no frame reclaims, drains and looks again";
    FreeFrame, Frame, "free_frame", "giving frames back";
    Drain, Frame, "drain_page_lists", "putting frames on per-CPU lists back into their zones";

    Kswapd, Reclaim, "kswapd", "reclaim ahead of need";
    DirectReclaim, Reclaim, "direct_reclaim", "reclaim by a task that needs a frame";
    ShrinkActive, Reclaim, "shrink_active", "moving pages from the active list to the inactive one";
    ShrinkInactive, Reclaim, "shrink_inactive", "judging, unmapping and freeing a batch of pages";
    RmapWalk, Reclaim, "rmap_walk", "visiting the entries that lead to a page";
    PageOut, Reclaim, "pageout", "writing a page out";

    SwapIn, Swap, "swap_in", "finding a page in the swap cache, or reading it back";
    SwapOff, Swap, "swap_off", "bringing all pages of a swap device back";

    UnmapDefer, Tlb, "unmap_batch_defer", "noting that an entry was cleared and is not flushed";
    UnmapFlush, Tlb, "unmap_batch_flush", "one flush for all that a batch has unmapped";
    TlbFlush, Tlb, "tlb_flush", "flushing a range of a space on all CPUs that may hold it";
    SweepWait, Tlb, "sweep_wait", "waiting until a sweep is over";
    KernelFlush, Tlb, "tlb_flush_kernel", "flushing kernel addresses on all CPUs";
    LocalFlush, Tlb, "local_flush", "flushing on this CPU";

    IpiCall, Ipi, "ipi_call", "asking other CPUs: choosing whom to interrupt, and interrupting";
    IpiWait, Ipi, "ipi_wait", "waiting until those CPUs have acknowledged";
    IpiServe, Ipi, "ipi_serve", "carrying out what other CPUs ask for, and acknowledging";

    Vmap, Vmap, "vmap", "mapping scattered frames at kernel addresses";
    Vunmap, Vmap, "vunmap", "unmapping them";
    Vmalloc, Vmap, "vmalloc", "the same with frames of its own";
    Vfree, Vmap, "vfree", "and giving these back";
    MapRam, Vmap, "map_ram", "a small map for a short time";
    UnmapRam, Vmap, "unmap_ram", "and its end";
    VmapFind, Vmap, "vmap_at", "finding what was mapped together with an address";
    VmapPurge, Vmap, "vmap_purge", "one flush for all kernel addresses that were unmapped, which are free then";
    ExtentSearch, Vmap, "extent_search", "finding and cutting a free extent in a shard";
    EagerWalk, Vmap, "eager_list_walk", "walking the list of vmap=eager for a hole or an area";
}

/// A room of the core.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum Room {
    /// Locks of all rooms.
    Locks,
    /// Address spaces.
    Paging,
    /// Page caches.
    File,
    /// Page frames.
    Frame,
    /// Reclaim.
    Reclaim,
    /// Swap.
    Swap,
    /// Flushes.
    Tlb,
    /// Interrupts between CPUs.
    Ipi,
    /// Kernel virtual ranges.
    Vmap,
}

impl Room {
    /// All of them. The place of each is its number.
    pub const ALL: &'static [Room] = &[
        Room::Locks,
        Room::Paging,
        Room::File,
        Room::Frame,
        Room::Reclaim,
        Room::Swap,
        Room::Tlb,
        Room::Ipi,
        Room::Vmap,
    ];

    /// The name in a profile.
    pub const fn name(self) -> &'static str {
        match self {
            Room::Locks => "locks",
            Room::Paging => "paging",
            Room::File => "file",
            Room::Frame => "frame",
            Room::Reclaim => "reclaim",
            Room::Swap => "swap",
            Room::Tlb => "tlb",
            Room::Ipi => "ipi",
            Room::Vmap => "vmap",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scopes_and_rooms_are_numbered_by_their_places_and_named_apart() {
        for (place, scope) in Scope::ALL.iter().enumerate() {
            assert_eq!(*scope as usize, place);
            assert!(Scope::ALL[..place].iter().all(|other| other.name() != scope.name()), "{scope:?}");
            let lock = scope.name().contains("lock");
            assert_eq!(lock, scope.room() == Room::Locks, "{scope:?}");
        }
        for (place, room) in Room::ALL.iter().enumerate() {
            assert_eq!(*room as usize, place);
            assert!(Scope::ALL.iter().any(|scope| scope.room() == *room), "{room:?}");
        }
    }
}
