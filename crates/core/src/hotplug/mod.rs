//! CPUs that go and come, each by itself, in the middle of everything.
//!
//! A CPU that is offline is in no mask, holds no frame and no page, and answers nothing. It says so in its presence
//! word, which whoever flushes reads anyway. `ipi` draws the race with those who were about to ask it.

mod contiguous;
mod later;
mod memory;

pub use contiguous::Contiguous;
pub use memory::{Leaving, Offline, Remains};

use core::sync::atomic::Ordering;

use crate::Manager;
use crate::cpu::CpuId;
use crate::error::Error;
use crate::event::Event;
use crate::handle::{SpaceId, SpaceSlot};
use crate::ipi;
use crate::percpu::{CpuGuard, Presence};
use crate::platform::Platform;
use crate::rule::Rule;
use crate::sync::full_fence;
use crate::tlb::unload;

impl<P: Platform> Manager<'_, P> {
    /// This CPU goes offline: it leaves no mask, no queue and no page behind (PITFALLS 11). Until
    /// [`cpu_online`](crate::Manager::cpu_online) it may call nothing else of the core, and nobody waits for it.
    ///
    /// In a task's context, with interrupts on. The kernel has moved its tasks and timers to other CPUs before. An
    /// interrupt may still arrive that was on its way, or be sent by a CPU that looked before: its request has been
    /// answered, so it may be taken or lost. No IPI.
    ///
    /// # Errors
    /// [`Error::NotOnline`]: it is offline already, or never came online.
    ///
    /// # Examples
    /// ```
    /// # use quietmm_doc::*;
    /// # doc(|mm| {
    /// mm.cpu_offline()?; // on the CPU that goes
    /// mm.cpu_online()?; // and when it is back
    /// # Ok(())
    /// # });
    /// ```
    pub fn cpu_offline(&self) -> Result<(), Error> {
        let p = self.platform();
        if !self.is_online(p.this_cpu()) {
            return Err(Error::NotOnline);
        }
        // The pages and the batch first: what is freed with them goes to the lists of frames. Nothing comes after
        // those but from interrupt handlers, since this CPU runs nothing else.
        self.drain_lru_batch();
        self.drain_batch();
        let drain = || {
            if !p.broken(Rule::OfflineDrainsLists) {
                self.frames().drain_here();
            }
        };
        drain();
        self.emit(Event::CpuOffline);
        let here = CpuGuard::new(self);
        // INV-7: what a handler has freed meanwhile. None comes any more.
        drain();
        if !p.broken(Rule::OfflineLeavesMasks) {
            unload(&here);
        }
        // The lists are empty before: a drain that does not find this CPU here has nothing to ask of it.
        self.set_online(here.cpu, false);
        // Release: partner of the Acquires in `tlb` and `ipi`: what this CPU did comes before what those do who leave
        // it alone.
        here.slot().presence.word.store(p, Presence::OFFLINE, Ordering::Release);
        crate::vmap::go_away(&here);
        // Partner: the fence in `ipi::is_gone`. Who posted before it is served here; who posts later sees OFFLINE.
        full_fence(p);
        ipi::serve(&here);
        self.leave_block();
        self.adjust_vmap();
        Ok(())
    }

    /// This CPU comes online: called on it before it may call anything else of the core. It runs on the kernel's own
    /// table; its TLB may hold anything. Interrupts on or off. No IPI.
    ///
    /// # Errors
    /// [`Error::AlreadyOnline`]: it has said so before, or [`Cpus::is_online`](crate::platform::Cpus::is_online) has when the manager was made.
    ///
    /// # Examples
    /// ```
    /// # use quietmm_doc::*;
    /// # doc(|mm| {
    /// // The manager was told by `Cpus::is_online`.
    /// assert_eq!(mm.cpu_online(), Err(Error::AlreadyOnline));
    /// # Ok(())
    /// # });
    /// ```
    pub fn cpu_online(&self) -> Result<(), Error> {
        let (p, here) = (self.platform(), CpuGuard::new(self));
        if self.is_online(here.cpu) {
            return Err(Error::AlreadyOnline);
        }
        // INV-6: whatever the TLB has kept of its tags, nobody flushed it meanwhile. A tag that is not known is flushed
        // when it is loaded.
        for (space, generation) in &here.slot().tlb.tags {
            match space.get().checked_sub(1) {
                Some(id) if p.broken(Rule::OnlineStartsEmpty) => {
                    generation.set(self.space_at(SpaceSlot(id)).generation(p).0);
                }
                _ => space.set(0),
            }
        }
        here.slot().presence.word.store(p, Presence::ACTIVE, Ordering::Relaxed);
        crate::vmap::come_back(&here);
        self.set_online(here.cpu, true);
        // Partners: the fence in `ipi::is_gone`, as on the way out, and that of a drain: it finds this CPU, or what was
        // changed before it is seen here. The look also clears the summary that those have
        // left who took their bits back: a full-looking inbox would never be rung again.
        full_fence(p);
        // INV-3: who unmapped kernel addresses meanwhile left this CPU alone, or asks it now. Partner: the fence in
        // `tlb::kernel::flush`, or in `Epochs::look`.
        if self.has_kernel_range() {
            crate::vmap::start_empty(&here);
        }
        ipi::serve(&here);
        self.adjust_vmap();
        self.emit(Event::CpuOnline);
        Ok(())
    }

    /// Before any CPU uses the manager: those that do not run yet are offline until they call `cpu_online`.
    pub(crate) fn note_presence(&self) {
        let p = self.platform();
        for cpu in (0..p.possible_cpus()).map(|cpu| CpuId(cpu as u16)) {
            let online = p.is_online(cpu);
            if online {
                self.set_online(cpu, true);
            }
            self.slot(cpu).presence.word.set(p, if online { Presence::LAZY } else { Presence::OFFLINE });
        }
    }

    fn set_online(&self, cpu: CpuId, online: bool) {
        let (p, root) = (self.platform(), self.root);
        if online {
            root.online.insert(p, cpu);
            root.online_cpus.fetch_add(p, 1, Ordering::Relaxed);
        } else {
            root.online.remove(p, cpu);
            root.online_cpus.fetch_sub(p, 1, Ordering::Relaxed);
        }
    }

    /// Whether the CPUs that say they are online are those that are counted. On a quiet system.
    pub(crate) fn online_adds_up(&self) -> bool {
        let p = self.platform();
        let mut cpus = (0..p.possible_cpus()).map(|cpu| CpuId(cpu as u16));
        let count = cpus.clone().filter(|&cpu| self.is_online(cpu)).count();
        count as u32 == self.online_cpus()
            && cpus.all(|cpu| self.online().contains(p, cpu) == self.is_online(cpu))
    }

    /// Whether a CPU that is offline has left nothing behind. On a quiet system.
    pub(crate) fn left_nothing(&self, cpu: CpuId, mut spaces: impl Iterator<Item = SpaceId>) -> bool {
        let (p, slot) = (self.platform(), self.slot(cpu));
        slot.pages.held(p) == 0
            && slot.returned.is_empty(p)
            && slot.returned_lru.is_empty(p)
            && slot.lru.len() == 0
            && slot.spare_batch.get() == 0
            && !self.has_block(cpu)
            && slot.inbox.is_empty(p)
            && !spaces.any(|id| self.space_at(id).cpus.0.contains(p, cpu))
    }
}
