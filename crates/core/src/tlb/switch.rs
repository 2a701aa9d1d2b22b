//! Which space a CPU uses, lazily or not.
//!
//! A CPU that loads a space enters its mask, and only then reads its generation; a flusher raises the
//! generation, and only then reads the mask. With a full fence between the two steps on either side, one of
//! them sees the other (PITFALLS 8 and 9):
//!
//! ```text
//!   switcher                      flusher
//!   mask |= me                    entry cleared
//!   ---- fence ----               generation += 1
//!   read generation               ---- fence ----
//!   load, flush if it moved       read mask: sees me, or I saw the new generation
//! ```
//!
//! Leaving lazy mode is the same with `presence = ACTIVE` in place of the mask (PITFALLS 10).
//!
//! Whoever ends a space frees its tables, so it and a switcher must not miss each other either (INV-9). By the same fences:
//!
//! ```text
//!   switcher                      who ends the space
//!   mask |= me                    the end is being decided
//!   ---- fence ----               ---- fence ----
//!   does it go on?                read mask, and who in it is not lazy
//!     no: leave the mask            somebody: it goes on, `Busy`
//!     yes: load                     nobody: it has ended; lazy CPUs are made to let go
//! ```
//!
//! A lazy CPU does not count as one that runs there. It looks again behind `presence = ACTIVE`, and lets go by itself of a
//! space that has ended. So does one that was lazy elsewhere when it switched: it was in the mask and still lazy.

use core::sync::atomic::Ordering;

use super::local::{catch_up, mark_lazy, unload};
use crate::Manager;
use crate::addr::Generation;
use crate::charge::charge;
use crate::error::Error;
use crate::handle::{SpaceId, SpaceSlot};
use crate::percpu::{CpuGuard, MAX_TAGS, Presence};
use crate::platform::Platform;
use crate::profile::Scope;
use crate::rule::Rule;
use crate::sync::full_fence;
use crate::view::Space;
use crate::vma::SpaceState;

impl<'p, P: Platform> Space<'_, 'p, P> {
    /// Loads a space on this CPU, which may then touch its user addresses. Any context but an interrupt
    /// handler. Sends no IPI; flushes this CPU only if it has no tag for the space, or missed a flush.
    ///
    /// # Errors
    /// [`Error::NoSuchSpace`], also when the space ends at this moment: then the CPU has no space loaded, or the one that it
    /// had. [`Error::NotOnline`] on a CPU that has not called [`cpu_online`](crate::Manager::cpu_online).
    ///
    /// # Examples
    /// ```
    /// # use quietmm_doc::*;
    /// # doc(|mm| {
    /// let space = mm.space(mm.create_space()?);
    /// space.switch_to()?;
    /// assert_eq!(mm.loaded_space(), Some(space.id()));
    /// # Ok(())
    /// # });
    /// ```
    pub fn switch_to(&self) -> Result<(), Error> {
        let Space { mm, id } = *self;
        let _scope = charge(mm.platform(), Scope::SwitchTo);
        let space = mm.find_space(id)?;
        let here = CpuGuard::new(mm);
        let (p, slot) = (mm.platform(), here.slot());
        if slot.presence.word.get(p) == Presence::OFFLINE {
            return Err(Error::NotOnline);
        }
        if slot.tlb.loaded() == Some(id.slot()) {
            return leave_lazy(&here);
        }
        let early = p.broken(Rule::MaskBeforeGeneration).then(|| space.generation(p));
        space.cpus.0.insert(p, here.cpu);
        full_fence(p);
        if !space.life.goes_on(p) && !p.broken(Rule::LifeAfterMask) {
            space.cpus.0.remove(p, here.cpu);
            return Err(Error::NoSuchSpace);
        }
        let generation = early.unwrap_or_else(|| space.generation(p));

        let tags = usize::from(p.tags()).clamp(1, MAX_TAGS);
        let known = slot.tlb.tags[..tags].iter().position(|(s, _)| s.get() == id.index() + 1);
        let tag = known.unwrap_or_else(|| {
            let next = slot.tlb.next_tag.get();
            slot.tlb.next_tag.set((next + 1) % tags as u16);
            next as usize
        });
        let (tag_space, tag_generation) = &slot.tlb.tags[tag];
        let current = known.is_some() && is_current(p, Generation(tag_generation.get()), generation);
        // Where there are no tags the one of a space is known only while it is loaded: nothing is kept.
        let keep = known.is_some() && (current || p.broken(Rule::SwitchFlush));
        // INV-9: until the new root is loaded, this CPU can walk the old tables. It stays in their mask, so that who
        // frees them waits (PITFALLS 8):
        //
        //   this CPU                     who ends the old space
        //   old mask &= !me
        //                                read mask: empty; free the tables
        //   load the new root: too late
        let old = slot.tlb.loaded();
        let leave = || old.into_iter().for_each(|old| mm.space_at(old).cpus.0.remove(p, here.cpu));
        let early = p.broken(Rule::LeaveMaskAfterLoad);
        if early {
            leave();
        }
        p.load_space(space.root(p), tag as u16, keep);
        tag_space.set(id.index() + 1);
        tag_generation.set(generation.0);
        slot.tlb.loaded.set(id.index() + 1);
        slot.tlb.tag.set(tag as u16);
        if !early {
            leave();
        }
        // INV-6: a flusher that found us in the new mask, and still lazy, left us alone. So the generation that was
        // read above may be old by now: look again.
        //
        //   this CPU, lazy in the old space    flusher in the new one
        //   mask |= me
        //   read generation
        //                                      entry cleared, generation += 1
        //                                      read mask: sees me; read presence: LAZY, skip
        //   load
        //   presence = ACTIVE, read generation again
        leave_lazy(&here)
    }
}

impl<'p, P: Platform> Manager<'p, P> {
    /// This CPU goes on without touching user addresses (a kernel thread, the idle loop): it keeps its space
    /// loaded, and flushes that may wait leave it alone until [`leave_lazy`](crate::Manager::leave_lazy).
    /// Any context but an interrupt handler. No IPI.
    ///
    /// # Examples
    /// ```
    /// # use quietmm_doc::*;
    /// # doc(|mm| {
    /// let space = mm.space(mm.create_space()?);
    /// space.switch_to()?;
    /// mm.enter_lazy(); // the idle loop begins
    /// assert_eq!(mm.leave_lazy(), Some(space.id())); // and ends
    /// # Ok(())
    /// # });
    /// ```
    pub fn enter_lazy(&self) {
        let _scope = charge(self.platform(), Scope::EnterLazy);
        let here = CpuGuard::new(self);
        let (p, slot) = (self.platform(), here.slot());
        mark_lazy(p, &slot.presence);
    }

    /// This CPU is about to touch addresses of its loaded space again: catches up with what it missed. Returns the space
    /// that is loaded; `None` if there is none any more: a flush that freed tables has unloaded it, or it has ended.
    /// [`Space::switch_to`](crate::Space::switch_to) instead does both. Any context but an interrupt handler. No IPI.
    ///
    /// # Examples
    /// ```
    /// # use quietmm_doc::*;
    /// # doc(|mm| {
    /// mm.enter_lazy();
    /// assert_eq!(mm.leave_lazy(), None); // no space was loaded
    /// # Ok(())
    /// # });
    /// ```
    pub fn leave_lazy(&self) -> Option<SpaceId> {
        let here = CpuGuard::new(self);
        // It says the same as what is loaded then.
        let _ = leave_lazy(&here);
        here.slot().tlb.loaded().map(|slot| self.space_id(slot))
    }

    /// Ends a space unless another CPU runs in it: then nothing has changed. By whoever has its VMAs alone. Lazy CPUs may
    /// still have it loaded.
    pub(crate) fn end_unless_used(&self, id: SpaceId, space: &SpaceState) -> Result<(), Error> {
        let here = CpuGuard::new(self);
        let (p, targets) = (self.platform(), &here.slot().targets);
        if !p.broken(Rule::EndBeforeMask) {
            space.life.decide(p);
        }
        // Partners: the fences in `switch_to` and `leave_lazy`.
        full_fence(p);
        space.cpus.0.add_to(p, targets);
        targets.remove(here.cpu);
        // Acquire: partner of the Release in `enter_lazy`: its last use of the space comes before.
        let runs = |cpu| self.slot(cpu).presence.word.load(p, Ordering::Acquire) == Presence::ACTIVE;
        let busy = targets.iter().any(runs);
        targets.clear();
        if busy {
            space.life.stay(p);
            return Err(Error::Busy);
        }
        space.life.end(p);
        if here.slot().tlb.loaded() == Some(id.slot()) {
            unload(&here);
        }
        Ok(())
    }

    /// This CPU lets go of its space, and leaves its mask. Any context but an interrupt handler. No IPI.
    ///
    /// # Examples
    /// ```
    /// # use quietmm_doc::*;
    /// # doc(|mm| {
    /// let space = mm.space(mm.create_space()?);
    /// space.switch_to()?;
    /// mm.unload();
    /// assert_eq!(mm.loaded_space(), None);
    /// # Ok(())
    /// # });
    /// ```
    pub fn unload(&self) {
        unload(&CpuGuard::new(self));
    }

    /// The space that this CPU has loaded, lazily or not.
    ///
    /// # Examples
    /// ```
    /// # use quietmm_doc::*;
    /// # doc(|mm| {
    /// assert_eq!(mm.loaded_space(), None);
    /// # Ok(())
    /// # });
    /// ```
    pub fn loaded_space(&self) -> Option<SpaceId> {
        CpuGuard::new(self).slot().tlb.loaded().map(|slot| self.space_id(slot))
    }
}

/// Fails if the loaded space has ended meanwhile: none is loaded then.
fn leave_lazy<P: Platform>(here: &CpuGuard<'_, '_, P>) -> Result<(), Error> {
    let (mm, p, slot) = (here.mm, here.mm.platform(), here.slot());
    if slot.presence.word.get(p) != Presence::LAZY {
        // INV-14: a thread comes here that has unmapped something elsewhere.
        if mm.parks() {
            let behind = |id: SpaceSlot| !is_current(p, slot.tlb.generation(), mm.space_at(id).generation(p));
            if slot.tlb.loaded().is_some_and(behind) {
                catch_up(here);
            }
        }
        return Ok(());
    }
    slot.presence.word.store(p, Presence::ACTIVE, Ordering::Relaxed);
    full_fence(p);
    // INV-13: sweeps went by meanwhile. Partner: the fence in `sweep_is_over`.
    if mm.sweeps() && !p.broken(Rule::LazyReturnSweep) {
        crate::tlb::sweep::join(here);
    }
    let Some(id) = slot.tlb.loaded() else { return Ok(()) };
    // INV-9: left alone as lazy, so look whether it was ended meanwhile.
    if !mm.space_at(id).life.goes_on(p) && !p.broken(Rule::LifeAfterLazy) {
        unload(here);
        return Err(Error::NoSuchSpace);
    }
    // INV-6: left alone while lazy, so look whether anything was flushed meanwhile.
    let now = mm.space_at(id).generation(p);
    if !is_current(p, slot.tlb.generation(), now) && !p.broken(Rule::LazyReturnFlush) {
        catch_up(here);
    }
    Ok(())
}

/// Whether what was flushed up to `mine` has missed nothing. Generations have 64 bits and never wrap; fewer would:
/// a CPU that was away for exactly as many flushes would believe itself current (PITFALLS 15).
fn is_current<P: Platform>(p: &P, mine: Generation, now: Generation) -> bool {
    if p.broken(Rule::WholeGeneration) { mine.0 as u8 == now.0 as u8 } else { mine == now }
}
