//! Families of anonymous pages (Linux: `anon_vma`), and the trees of VMAs that families and files have. `shown.rs` has the argument.

use crate::platform::Platform;
use crate::pool::{Goes, Pooled};
use crate::profile::Scope;
use crate::sync::{RwLock, Word32, Word64, WriteGuard};
use crate::tree::{Links, Tree};
use crate::zeroed::Zeroed;

/// The VMAs that show something.
#[repr(C)]
pub(crate) struct Shown {
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
    /// That of its family.
    Family,
}

/// A family, by the handle of its slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FamilyId(pub u32);

/// What the core keeps about a family.
#[repr(C, align(64))]
pub(crate) struct Family {
    pub shown: Shown,
}

// SAFETY: atomics and locks only; zeros are shown by nobody.
unsafe impl Zeroed for Family {}

impl Pooled for Family {
    // A page names it, also one that nobody maps any more.
    const GOES: Goes = Goes::Unread;
}

/// The reverse map cannot look at a VMA meanwhile: neither through its file nor through its family.
pub(crate) struct Alone<'p, P: Platform> {
    pub(super) _file: Option<WriteGuard<'p, P>>,
    pub(super) _family: Option<WriteGuard<'p, P>>,
}
