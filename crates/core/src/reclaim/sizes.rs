//! How long the lists are.

use super::lru::{LruType, LruVec};
use crate::platform::Platform;
use crate::view::FrameAllocator;

/// Pages on the lists that reclaim looks at, of all nodes and groups. Those in the batches of CPUs are on none yet, nor are locked pages and, where no
/// page may go to swap, anonymous ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LruPages {
    /// Anonymous pages and those of memory files that were not used lately.
    #[doc(alias = "NR_INACTIVE_ANON")]
    pub inactive_anon: u64,
    /// The others of these.
    #[doc(alias = "NR_ACTIVE_ANON")]
    pub active_anon: u64,
    /// Cached pages of files that were not used lately.
    #[doc(alias = "NR_INACTIVE_FILE")]
    pub inactive_file: u64,
    /// The others of these.
    #[doc(alias = "NR_ACTIVE_FILE")]
    pub active_file: u64,
}

impl LruPages {
    fn add<P: Platform>(&mut self, p: &P, lists: &LruVec) {
        let (inactive, active) = lists.lens(p, LruType::Anon);
        self.inactive_anon += inactive;
        self.active_anon += active;
        let (inactive, active) = lists.lens(p, LruType::Files);
        self.inactive_file += inactive;
        self.active_file += active;
    }

    /// Cached pages of files: what memory there is that can be had without swap, as far as they are not dirty. Any context.
    ///
    /// # Examples
    /// ```
    /// # use quietmm_doc::*;
    /// # doc(|mm| {
    /// let pages = mm.frames().lru_pages();
    /// assert_eq!(pages.file(), pages.inactive_file + pages.active_file);
    /// # Ok(())
    /// # });
    /// ```
    pub fn file(&self) -> u64 {
        self.inactive_file + self.active_file
    }
}

impl<P: Platform> FrameAllocator<'_, '_, P> {
    /// How many pages reclaim can look at: what a kernel tells as its page cache, and as memory that can be had. A sum of moments; looks at
    /// the lists of each group on each node. Any context. No lock, no IPI.
    ///
    /// # Examples
    /// ```
    /// # use quietmm_doc::*;
    /// # doc(|mm| {
    /// // Nothing was read yet.
    /// assert_eq!(mm.frames().lru_pages().file(), 0);
    /// # Ok(())
    /// # });
    /// ```
    #[doc(alias = "node_page_state")]
    pub fn lru_pages(&self) -> LruPages {
        let (mm, mut all) = (self.mm, LruPages::default());
        let p = mm.platform();
        mm.nodes().for_each(|node| all.add(p, &node.lists));
        for lists in mm.group_lists() {
            lists.each(|lists| all.add(p, lists));
        }
        all
    }
}
