//! What a CPU does when it is interrupted: each room's handler, in one place.

use crate::Manager;
use crate::cpu::CpuId;
use crate::event::Event;
use crate::percpu::{CpuGuard, Work};
use crate::platform::Platform;
use crate::tlb;

impl<P: Platform> Manager<'_, P> {
    /// To be called by the handler of each CPU's periodic timer, with interrupts off: where the policy wants sweeps, this is
    /// where CPUs that are busy elsewhere take part in them. Reads one line that all CPUs share, for user addresses and for kernel
    /// addresses each; while a sweep is under way, once, it flushes what these have left in this CPU's TLB. With `vmap=sweep` it
    /// also looks whether others have taken part, at no more than 64 CPUs, and may wake who waits in
    /// [`Vmap::purger`](crate::Vmap::purger). No lock is waited for; no IPI.
    ///
    /// A CPU whose timer is stopped is in lazy mode ([`enter_lazy`](crate::Manager::enter_lazy)) or offline, or is interrupted for each
    /// sweep that somebody waits for longer than [`Config::sweep_deadline`](crate::config::Config::sweep_deadline).
    ///
    /// # Examples
    /// ```
    /// # use quietmm_doc::*;
    /// # doc(|mm| {
    /// // The handler of the timer, interrupts off.
    /// let on = mm.platform().irqs_off();
    /// mm.tick();
    /// if on {
    ///     mm.platform().irqs_on();
    /// }
    /// # Ok(())
    /// # });
    /// ```
    pub fn tick(&self) {
        self.sweep_here();
        crate::vmap::ticked(self);
    }

    /// Carries out what the CPU `from` asks of this one, with interrupts off: in the handler of an interrupt, or while this CPU
    /// waits. `ipi.rs` has received it, and acknowledges it.
    pub(crate) fn carry_out(&self, here: &CpuGuard<'_, '_, P>, from: CpuId, work: Work) {
        match work {
            Work::Drain => return crate::frame::hand_over(here, from),
            Work::DrainLru => return crate::reclaim::hand_over(here, from),
            _ => self.emit(Event::FlushServed),
        }
        match work {
            Work::Drain | Work::DrainLru => {}
            Work::FlushAll => tlb::catch_up(here),
            Work::Flush { space, range, generation, tables } => {
                tlb::local(here, space, range, generation, tables)
            }
            Work::Kernel(range) => tlb::kernel::local(here, range),
            Work::Sweep => tlb::sweep::join(here),
            Work::KernelSweep => crate::vmap::join_sweep(here),
        }
    }
}
