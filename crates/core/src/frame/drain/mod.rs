//! Draining: the frames on per-CPU lists go back to their zones, for somebody who finds nothing elsewhere.
//!
//! The policies differ in whom they bother: every CPU, those that hold frames, or none.

mod drained;
mod interrupt;
mod remote;

pub(crate) use interrupt::hand_over;

use super::percpu::PcpAccess;
use crate::charge::charge;
use crate::event::Event;
use crate::platform::Platform;
use crate::policy::Drain;
use crate::profile::Scope;
use crate::rule::Rule;
use crate::sync::full_fence;
use crate::view::FrameAllocator;

/// Whom a drain must reach.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Certainty {
    /// Whoever seems to hold frames. It may miss those that are freed while it looks.
    Likely,
    /// Everybody: when it returns, no frame that was on a list when it was called is still on one (INV-7). For memory
    /// that goes offline.
    Certain,
}

impl<'p, P: Platform> FrameAllocator<'_, 'p, P> {
    /// Puts the frames on per-CPU lists back into their zones. Returns how many this call has put back: another that
    /// runs at the same time may have the rest.
    ///
    /// With interrupts on, and no spin lock held. IPIs as the `drain` policy says: one per other CPU that is online, one
    /// per other CPU that holds frames (and, if it must be certain, one per other CPU that is online), or none.
    ///
    /// # Examples
    /// ```
    /// # use quietmm_doc::*;
    /// # doc(|mm| {
    /// let block = mm.frames().alloc(0, AllocFrom::HERE)?;
    /// mm.frames().free(block);
    /// mm.frames().drain(Certainty::Certain);
    /// assert_eq!(mm.frames().on_lists(), 0);
    /// # Ok(())
    /// # });
    /// ```
    #[doc(alias = "drain_all_pages")]
    pub fn drain(&self, certainty: Certainty) -> u32 {
        let mm = self.mm;
        let _scope = charge(mm.platform(), Scope::Drain);
        let p = mm.platform();
        let began = p.now().0;
        let force = certainty == Certainty::Certain && !p.broken(Rule::ForceAsksAll);
        // What the caller has changed before, such as limits, is seen by CPUs that come online from here on. Partner: the
        // fence in `cpu_online`.
        full_fence(p);
        let drained = match mm.config().policy.drain {
            Drain::AllCpus => interrupt::all(mm),
            Drain::HoldingCpus => interrupt::holding(mm, force),
            Drain::Remote => remote::take(mm, force),
        };
        let online = mm.online_cpus();
        mm.emit(Event::Drained {
            frames: drained.frames,
            sent: drained.sent,
            saved: (online - 1).saturating_sub(drained.sent),
            few: drained.holders.is_some_and(|holders| 2 * holders <= online),
            ns: p.now().0 - began,
        });
        drained.frames
    }

    /// Puts the frames on this CPU's lists back into their zones: before it goes offline, or because it will be
    /// idle for long. Any context but an interrupt handler. No IPI.
    ///
    /// # Examples
    /// ```
    /// # use quietmm_doc::*;
    /// # doc(|mm| {
    /// let block = mm.frames().alloc(0, AllocFrom::HERE)?;
    /// mm.frames().free(block);
    /// mm.frames().drain_here();
    /// assert_eq!(mm.frames().on_lists(), 0);
    /// # Ok(())
    /// # });
    /// ```
    pub fn drain_here(&self) {
        let mm = self.mm;
        let chain = PcpAccess::own(mm, |section| section.detach());
        mm.put_chain(chain);
    }
}
