//! What frames are used for.

/// What a frame is used for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Kind {
    /// Not managed: a hole, never handed over, or offline.
    Absent = 0,
    /// Taken at start for the core's bookkeeping.
    Reserved = 1,
    /// Free: the first frame of a block in the buddy allocator.
    Free = 2,
    /// A later frame of a block, free or allocated.
    Tail = 3,
    /// Used by the embedding kernel or by the core's pools.
    Kernel = 4,
    /// A page table.
    Table = 5,
    /// Anonymous user memory.
    Anon = 6,
    /// A page of a file, in its page cache.
    File = 7,
}

impl Kind {
    pub(crate) const ALL: [Kind; 8] = [
        Kind::Absent,
        Kind::Reserved,
        Kind::Free,
        Kind::Tail,
        Kind::Kernel,
        Kind::Table,
        Kind::Anon,
        Kind::File,
    ];
}
