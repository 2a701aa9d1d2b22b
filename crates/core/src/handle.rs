//! Handles: what callers name spaces and files by, and where the core keeps these.
//!
//! A handle names one life of a slot, and no later one (`life.rs`).

use core::fmt;

/// A handle to an address space: [`Manager::create_space`](crate::Manager::create_space) and [`Space::fork`](crate::Space::fork) return them.
///
/// It names this space only. Once the space has ended the handle names nothing, for ever: every call gets
/// [`Error::NoSuchSpace`](crate::Error::NoSuchSpace), also when a new space has the old one's place in memory.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SpaceId {
    pub(crate) slot: SpaceSlot,
    pub(crate) life: u64,
}

impl SpaceId {
    /// A small number that no other living space has; a later one may. For tables of the embedding kernel.
    pub const fn index(self) -> u32 {
        self.slot.0
    }

    pub(crate) const fn slot(self) -> SpaceSlot {
        self.slot
    }
}

impl fmt::Debug for SpaceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "space {}.{}", self.slot.0, nth(self.life))
    }
}

/// Where the core keeps a space: what it stores instead of a handle where it knows that the space lives, or that it
/// makes no difference.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(transparent)]
pub(crate) struct SpaceSlot(pub u32);

impl From<SpaceId> for SpaceSlot {
    fn from(id: SpaceId) -> SpaceSlot {
        id.slot
    }
}

/// A handle to a file: [`Manager::create_file`](crate::Manager::create_file) returns it, and the
/// [`BlockDevice`](crate::platform::BlockDevice) is asked with it.
///
/// It names this file only. Once the file has ended the handle names nothing, for ever: every call gets
/// [`Error::NoSuchFile`](crate::Error::NoSuchFile), also when a new file has the old one's place in memory.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId {
    pub(crate) slot: FileSlot,
    pub(crate) life: u64,
}

impl FileId {
    /// A small number that no other living file has; a later one may. For tables of the embedding kernel.
    pub const fn index(self) -> u32 {
        self.slot.0
    }

    pub(crate) const fn slot(self) -> FileSlot {
        self.slot
    }

    /// How many files had this number, with this one.
    pub(crate) const fn nth(self) -> u64 {
        nth(self.life)
    }
}

impl fmt::Debug for FileId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "file {}.{}", self.slot.0, self.nth())
    }
}

/// Where the core keeps a file: what it stores instead of a handle where it knows that the file lives, or that it makes no
/// difference.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(transparent)]
pub(crate) struct FileSlot(pub u32);

impl From<FileId> for FileSlot {
    fn from(id: FileId) -> FileSlot {
        id.slot
    }
}

/// Counts the lives of a slot from 1, for people.
const fn nth(life: u64) -> u64 {
    life.div_ceil(2)
}
