//! Handles: what callers name spaces, files and groups by, and where the core keeps these.
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

    /// The handle as numbers, for a language that cannot keep it otherwise: its index, and which use of that this is.
    pub const fn into_raw(self) -> (u32, u64) {
        (self.slot.0, self.life)
    }

    /// The handle of such numbers. `None` if no handle has them; else it names what it named before, or nothing.
    ///
    /// # Examples
    /// ```
    /// # use quietmm_doc::*;
    /// # doc(|mm| {
    /// let id = mm.create_space()?;
    /// let (index, life) = id.into_raw();
    /// assert_eq!(SpaceId::from_raw(index, life), Some(id));
    /// assert_eq!(SpaceId::from_raw(0, 0), None);
    /// # Ok(())
    /// # });
    /// ```
    pub const fn from_raw(index: u32, life: u64) -> Option<SpaceId> {
        if !names_a_life(life) {
            return None;
        }
        Some(SpaceId { slot: SpaceSlot(index), life })
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
    /// In two halves, the upper one first: with them a [`Transfer`](crate::platform::Transfer) is 32 bytes, and there are 32 of these on a stack.
    life: [u32; 2],
}

const _: () = assert!(size_of::<crate::platform::Transfer>() == 32);

impl FileId {
    /// A small number that no other living file has; a later one may. For tables of the embedding kernel.
    pub const fn index(self) -> u32 {
        self.slot.0
    }

    /// The handle as numbers, for a language that cannot keep it otherwise: its index, and which use of that this is.
    pub const fn into_raw(self) -> (u32, u64) {
        (self.slot.0, self.life())
    }

    /// The handle of such numbers. `None` if no handle has them; else it names what it named before, or nothing.
    ///
    /// # Examples
    /// ```
    /// # use quietmm_doc::*;
    /// # doc(|mm| {
    /// let id = mm.create_file(1)?;
    /// let (index, life) = id.into_raw();
    /// assert_eq!(FileId::from_raw(index, life), Some(id));
    /// assert_eq!(FileId::from_raw(0, 0), None);
    /// # Ok(())
    /// # });
    /// ```
    pub const fn from_raw(index: u32, life: u64) -> Option<FileId> {
        if !names_a_life(life) {
            return None;
        }
        Some(FileId::of(FileSlot(index), life))
    }

    pub(crate) const fn of(slot: FileSlot, life: u64) -> FileId {
        FileId { slot, life: [(life >> 32) as u32, life as u32] }
    }

    pub(crate) const fn life(self) -> u64 {
        (self.life[0] as u64) << 32 | self.life[1] as u64
    }

    pub(crate) const fn slot(self) -> FileSlot {
        self.slot
    }

    /// How many files had this number, with this one.
    pub(crate) const fn nth(self) -> u64 {
        nth(self.life())
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

/// A handle to a group of spaces: [`Manager::create_group`](crate::Manager::create_group) returns it.
///
/// It names this group only. Once the group has ended the handle names nothing, for ever: every call gets
/// [`Error::NoSuchGroup`](crate::Error::NoSuchGroup), also when a new group has the old one's place in memory.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId {
    pub(crate) slot: GroupSlot,
    pub(crate) life: u64,
}

impl GroupId {
    /// A small number, from 1 on, that no other living group has; a later one may. For tables of the embedding kernel.
    pub const fn index(self) -> u32 {
        self.slot.0
    }

    /// The handle as numbers, for a language that cannot keep it otherwise: its index, and which use of that this is.
    pub const fn into_raw(self) -> (u32, u64) {
        (self.slot.0, self.life)
    }

    /// The handle of such numbers. `None` if no handle has them; else it names what it named before, or nothing.
    ///
    /// # Examples
    /// ```
    /// # use quietmm_doc::*;
    /// # doc(|mm| {
    /// let id = mm.create_group(100)?;
    /// let (index, life) = id.into_raw();
    /// assert_eq!(GroupId::from_raw(index, life), Some(id));
    /// assert_eq!(GroupId::from_raw(0, life), None);
    /// # Ok(())
    /// # });
    /// ```
    pub const fn from_raw(index: u32, life: u64) -> Option<GroupId> {
        if index == 0 || !names_a_life(life) {
            return None;
        }
        Some(GroupId { slot: GroupSlot(index), life })
    }
}

impl fmt::Debug for GroupId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "group {}.{}", self.slot.0, nth(self.life))
    }
}

/// Where the core keeps a group, from 1 on: what it stores instead of a handle.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(transparent)]
pub(crate) struct GroupSlot(pub u32);

impl GroupSlot {
    /// What belongs to no group.
    pub const NONE: GroupSlot = GroupSlot(0);

    /// One of 32 bits, by which sets of groups are noted roughly. None for no group.
    pub(crate) const fn bit(self) -> u32 {
        if self.0 == 0 { 0 } else { 1 << (self.0 % 32) }
    }
}

/// Whether a handle may have this number: it is odd while something lives in the slot, and its last bit is the slot's own (`life.rs`). An
/// even one would find a slot in which nothing lives.
const fn names_a_life(life: u64) -> bool {
    life < 1 << 63 && !life.is_multiple_of(2)
}

/// Counts the lives of a slot from 1, for people.
const fn nth(life: u64) -> u64 {
    life.div_ceil(2)
}
