//! What anonymous pages belong to, and the trees of VMAs that lead from there, and from files, to page tables. `rmap_tree.rs` has the argument.

use crate::platform::Platform;
use crate::pool::{Goes, Pooled, SlotLink};
use crate::profile::Scope;
use crate::sync::{RwLock, Word32, Word64, WriteGuard};
use crate::tree::{Links, Tree};
use crate::zeroed::Zeroed;

/// The VMAs that show a file, or pages of an `anon_vma`: an interval tree.
#[doc(alias = "i_mmap")]
#[repr(C)]
pub(crate) struct RmapTree {
    /// Shared by the reverse map; had alone by whoever changes the tree, or the borders of a VMA in it.
    pub lock: RwLock<{ Scope::ReverseMapLock as u8 }>,
    pub(super) by_index: Tree,
    /// How often a VMA began to show what one with a higher key had shown.
    pub(super) lowered: Word32,
    /// The serial number of the VMA that was linked last.
    pub(super) linked: Word64,
}

/// A VMA's place in such a tree.
#[repr(C)]
pub(crate) struct Place {
    pub(super) links: Links,
    pub(super) highest_end: Word64,
}

/// Which of its two trees.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Of {
    /// That of its file.
    File,
    /// That of its `anon_vma`.
    AnonVma,
}

/// An `anon_vma`, by the handle of its slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct AnonVmaId(pub u32);

/// What the core keeps about an `anon_vma`.
#[repr(C, align(64))]
pub(crate) struct AnonVma {
    pub rmap: RmapTree,
    link: SlotLink,
}

// SAFETY: atomics and locks only; zeros are shown by nobody.
unsafe impl Zeroed for AnonVma {}

impl Pooled for AnonVma {
    // A page names it, also one that nobody maps any more.
    const GOES: Goes = Goes::Unread;

    fn link(&self) -> &SlotLink {
        &self.link
    }
}

/// The reverse map cannot look at a VMA meanwhile: neither through its file nor through its `anon_vma`.
pub(crate) struct Alone<'p, P: Platform> {
    pub(super) _file: Option<WriteGuard<'p, P>>,
    pub(super) _anon_vma: Option<WriteGuard<'p, P>>,
}
