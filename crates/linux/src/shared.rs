//! What is kept of shared memory by number (System V).

use alloc::sync::{Arc, Weak};

use crate::tree::Inode;

/// A piece of memory by number.
pub struct Segment {
    pub key: u32,
    pub inode: Weak<Inode>,
    /// Until it is removed; from then on those who show it keep it.
    pub kept: Option<Arc<Inode>>,
    pub bytes: u64,
    pub made_by: u32,
}
