//! What is kept of shared memory by number (System V).

use alloc::sync::{Arc, Weak};

use crate::tree::Inode;

/// A piece of memory by number.
#[derive(Clone)]
pub struct Segment {
    pub key: u32,
    pub inode: Weak<Inode>,
    /// Until it is removed; from then on those who show it keep it.
    pub kept: Option<Arc<Inode>>,
    pub bytes: u64,
    pub made_by: u32,
    /// By which user and group.
    pub maker: [u32; 2],
    /// Who has shown it last, or no longer, and when, in seconds.
    pub last: u32,
    pub shown: u64,
    pub left: u64,
}
