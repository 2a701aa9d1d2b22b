//! `kswapd`: reclaims ahead of need, one task or more for each node. The core owns no thread: the embedding kernel calls
//! [`Manager::kswapd`] in a loop.

use core::sync::atomic::Ordering;

use crate::Manager;
use crate::addr::NodeId;
use crate::charge::charge;
use crate::error::Error;
use crate::event::{Event, Reclaimer};
use crate::frame::Zone;
use crate::platform::{Platform, WaitKey};
use crate::profile::Scope;
use crate::reclaim::scan::shrink_node;
use crate::resched::Work;

impl<P: Platform> Manager<'_, P> {
    /// Waits until the node's memory runs short, then reclaims until as much is free there as the high watermarks of its zones add up
    /// to, or nothing more is found: no page, and no page table in which nothing is left. Call it in a loop from a task that runs in no user space
    /// ([`enter_lazy`](Manager::enter_lazy)). May wait. IPIs as the `unmap` policy says; for tables one
    /// to each CPU that uses their space, the lazy ones too.
    ///
    /// Where one task for a node does not keep up with those who want memory there, several may do it: all of them are woken, and each goes
    /// on until enough is free. What they reclaim no task that runs a program has to.
    ///
    /// # Errors
    /// [`Error::NoSuchNode`].
    ///
    /// # Examples
    /// ```no_run
    /// # use quietmm_doc::*;
    /// # doc(|mm| {
    /// // A kernel's thread for each node.
    /// mm.enter_lazy();
    /// loop {
    ///     mm.kswapd(NodeId(0))?;
    /// }
    /// # });
    /// ```
    pub fn kswapd(&self, node: NodeId) -> Result<(), Error> {
        if !self.has_node(node) {
            return Err(Error::NoSuchNode);
        }
        let p = self.platform();
        let wanted = &self.node(node).wanted.0;
        p.wait(WaitKey::Kswapd(node), &mut || wanted.load(p, Ordering::Acquire) != 0);
        let mut work = Work::begin(self);
        self.unpark(&mut work);
        while self.is_unbalanced(node) {
            let scope = charge(p, Scope::Kswapd);
            let shrunk = shrink_node(self, node, Reclaimer::Kswapd, self.config().scan_batch, &mut work);
            drop(scope);
            if shrunk.freed == 0 {
                if shrunk.waiting > 0 {
                    self.await_sweep(&mut work);
                } else if self.reclaim_tables(None, &mut work) == 0 {
                    break;
                }
            }
            // Whatever was done: the owner of the CPU may want it back.
            work.give_way();
        }
        wanted.store(p, 0, Ordering::Release);
        Ok(())
    }

    /// Wakes the `kswapd` of a zone's node if memory is short there and nobody has done so yet.
    pub(crate) fn wake_kswapd(&self, zone: &Zone) {
        let p = self.platform();
        let wanted = &self.node(zone.node).wanted.0;
        if zone.is_short(p)
            && wanted.load(p, Ordering::Relaxed) == 0
            && wanted.swap(p, 1, Ordering::AcqRel) == 0
        {
            self.emit(Event::KswapdWoken);
            p.wake(WaitKey::Kswapd(zone.node));
        }
    }

    /// Whether less is free on a node than its zones should have, all together: whoever wants a frame takes it from whichever has one. A zone of
    /// which nothing can be taken (it is full of what stays, or offline) never has what it should: the pages of all others would go for it in vain.
    #[doc(alias = "pgdat_balanced")]
    fn is_unbalanced(&self, node: NodeId) -> bool {
        let p = self.platform();
        let zones = || self.zones().filter(|zone| zone.node == node);
        zones().map(|zone| zone.free(p)).sum::<u64>() < zones().map(|zone| zone.high(p)).sum()
    }
}
