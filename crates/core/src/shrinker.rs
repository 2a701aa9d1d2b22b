//! What the embedding kernel keeps for itself in memory, and can do without: names, inodes, buffers.

use crate::addr::NodeId;

/// Caches of the embedding kernel's own, which reclaim asks to give memory back.
pub trait Shrinker {
    /// Memory is short: give up this [share](Shrink::share) of what is kept, with
    /// [`FrameAllocator::free`](crate::FrameAllocator::free). Returns how many frames were given back: these count as reclaimed, and a
    /// task that finds no frame goes on as long as some are. Who returns more than was freed keeps `kswapd` at work for nothing.
    ///
    /// Whoever reclaims from a node asks, after it has looked at that node's pages: `kswapd`, and a task that finds no frame. Not a
    /// group that is at its limit: what the kernel keeps is not charged to it. While the pages of programs yield enough, the share is that of them
    /// which was looked at. When they do not, it asks again, from 1/4096 on, for twice as much each time, in the end for all.
    ///
    /// Interrupts are on, and no spin lock of the core's is held; it may wait. But the task may be one that wanted memory with
    /// [`AllocFrom::may_reclaim`](crate::AllocFrom), and may hold whatever the kernel held when it did, and the VMAs of a space:
    /// a lock of the kernel's under which it asks for such memory is only tried here, and no space is changed or ended. Several tasks may
    /// come at once. Frames that are asked for in here must not be waited for ([`AllocFrom::NOW`](crate::AllocFrom)).
    fn shrink(&self, ask: &Shrink) -> u32;
}

/// How much of what the embedding kernel keeps is to go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Shrink {
    /// The node on which memory is short. Frames of others are welcome too.
    pub node: NodeId,
    /// So many pages of programs and files were looked at,
    pub scanned: u64,
    /// out of so many. At least one.
    pub pages: u64,
}

impl Shrink {
    /// The share of so many objects, rounded up: none only of none, and never more than there are.
    ///
    /// # Examples
    /// ```
    /// # use quietmm::{NodeId, platform::Shrink};
    /// let ask = Shrink::new(NodeId(0), 32, 320);
    /// assert_eq!(ask.share(1000), 100);
    /// assert_eq!(ask.share(5), 1);
    /// ```
    pub fn share(&self, of: u64) -> u64 {
        let share = (u128::from(of) * u128::from(self.scanned)).div_ceil(u128::from(self.pages.max(1)));
        share.min(of.into()) as u64
    }

    /// For the kernel's own tests of its caches.
    ///
    /// # Examples
    /// ```
    /// # use quietmm::{NodeId, platform::Shrink};
    /// assert_eq!(Shrink::new(NodeId(0), 1, 1).share(7), 7, "all");
    /// ```
    pub fn new(node: NodeId, scanned: u64, pages: u64) -> Self {
        Shrink { node, scanned, pages }
    }
}
