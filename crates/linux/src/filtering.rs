//! How the system calls of a thread are filtered: what is kept of it. The calls about it, and what becomes of others, are in `call/filters.rs`.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, Ordering};

use crate::filter::Program;
use crate::sync::Spin;

/// How a thread's calls are filtered.
pub(crate) const FREE: u32 = 0;
pub(crate) const STRICT: u32 = 1;
pub(crate) const FILTERED: u32 = 2;

pub(crate) type Filters = Arc<Vec<Arc<Program>>>;

/// What is kept of it with a thread: how, and the filters, the newest last.
#[derive(Default)]
pub(crate) struct Filtering {
    how: AtomicU32,
    filters: Spin<Filters>,
}

impl Filtering {
    pub fn how(&self) -> u32 {
        self.how.load(Ordering::SeqCst)
    }

    pub fn count(&self) -> usize {
        self.all().len()
    }

    pub fn all(&self) -> Filters {
        self.filters.with(|filters| filters.clone())
    }

    /// The same as of another thread.
    pub fn follow(&self, other: &Filtering) {
        self.set(other.how(), other.all());
    }

    pub fn set(&self, how: u32, all: Filters) {
        let old = self.filters.with(|filters| core::mem::replace(filters, all));
        drop(old);
        self.how.store(how, Ordering::SeqCst);
    }
}
