//! `vmap=sweep`: nobody is interrupted for what was unmapped. It waits until every CPU has flushed its kernel addresses since,
//! each by itself: when it maps, or at its timer's tick (INV-3).
//!
//! A sweep has a number, as a purge has, and takes its place: what is unmapped notes that of the next one.
//!
//! ```text
//!   who unmaps                      who begins a sweep      each CPU
//!   entries cleared
//!   ---- fence ----                 last = 5                reads the last: 5
//!   reads the last: 4                                       ---- fence ----
//!     so it waits for sweep 5                               flushes all kernel addresses
//!                                                           swept = 5
//! ```
//!
//! Whoever reads 4 has done so before it was 5, so whoever reads 5 flushes after the entries were cleared. If it reads 5 already,
//! it waits for sweep 6.
//!
//! All CPUs count, lazy ones too: kernel threads run there. Left alone are those that are *away*: offline, or halted in the idle
//! loop ([`Manager::enter_idle`]). They say so, and look again before they use a kernel address: the race is drawn at
//! [`Epochs::look`](crate::tlb::Epochs::look).
//!
//! A CPU begins a sweep when it has unmapped enough, looks whether it is over as more waits, and so does each tick. Nobody waits
//! for one, unless addresses or frames are short: then those that have not taken part are interrupted.

use core::sync::atomic::Ordering;

use super::cpu::ExtentCache;
use super::state::KernelRange;
use super::sweeping::{AWAY, GROUP, Group, Owned, Part, Shared, Sweeping, Waiting};
use crate::Manager;
use crate::addr::PageRange;
use crate::cpu::CpuId;
use crate::error::Error;
use crate::event::{Event, FlushReason};
use crate::frame::{order_of, own};
use crate::percpu::{CpuGuard, Work};
use crate::platform::{Platform, WaitKey};
use crate::rule::Rule;
use crate::sync::{Word64, full_fence};
use crate::tlb::{kernel, sweep};

/// CPUs that are looked at in one go, by an interrupt handler and by whoever maps: eight are in a line.
const TICK_LOOKS: u32 = 64;
const MAP_LOOKS: u32 = 1024;
/// A CPU looks again when a share and one more of so many parts of it wait.
const PARTS: u64 = 4;

fn add<P: Platform>(p: &P, word: &Word64, more: u64) {
    if more != 0 {
        word.set(p, word.get(p) + more);
    }
}

impl Owned {
    fn take_over<'p, P: Platform>(&self, mm: &Manager<'p, P>, v: &KernelRange<'p>, other: &Owned) {
        let p = mm.platform();
        if !other.extents.is_empty(p) {
            self.extents.take_over(p, &other.extents, v.link(mm));
            add(p, &self.pages, other.pages.get(p));
            add(p, &self.frames, other.frames.get(p));
            // Release: partner of the Acquire in `sums`.
            other.pages.store(p, 0, Ordering::Release);
            other.frames.store(p, 0, Ordering::Release);
        }
    }
}

impl Waiting {
    fn parts(&self) -> [&Part; 2] {
        [&self.sealed, &self.fresh]
    }

    /// Moves on what was flushed meanwhile, where the next sweep to begin has this number. Under the lock of this CPU's extent cache.
    fn turn<'p, P: Platform>(&self, mm: &Manager<'p, P>, v: &KernelRange<'p>, next: u64) {
        let p = mm.platform();
        for part in self.parts() {
            let until = part.until.get(p);
            if until != 0 && v.state.numbers.has_flushed(p, until) {
                self.flushed.take_over(mm, v, &part.owned);
                // Release, here and below: partner of the Acquire in `sums`.
                part.pages.store(p, 0, Ordering::Release);
                part.until.store(p, 0, Ordering::Release);
                self.look_at.set(p, v.share(mm));
            }
        }
        let (fresh, sealed) = (&self.fresh, &self.sealed);
        let until = fresh.until.get(p);
        if until != 0 && until < next {
            // Its sweep has begun. What is sealed already waits with it: a sweep was begun over another.
            sealed.owned.take_over(mm, v, &fresh.owned);
            add(p, &sealed.pages, fresh.pages.get(p));
            fresh.pages.store(p, 0, Ordering::Release);
            sealed.until.store(p, until, Ordering::Release);
            fresh.until.store(p, 0, Ordering::Release);
        }
    }

    /// Pages that wait for a sweep. A hint where others change them.
    fn pages<P: Platform>(&self, p: &P) -> u64 {
        self.parts().into_iter().map(|part| part.pages.get(p) + part.owned.pages.get(p)).sum()
    }

    /// What waits for a sweep, and frames that nobody has freed since. Without the lock of this CPU's extent cache a moment's truth for each part: what is
    /// sealed in between may be missed, and its sweep is under way then, as whoever has missed it finds.
    fn sums<P: Platform>(&self, p: &P, over: u64) -> (u64, u64) {
        // Acquire: partner of the Releases in `turn`: whoever finds that it is not here any more finds that its sweep has begun.
        let now = |word: &Word64| word.load(p, Ordering::Acquire);
        let waits = |part: &Part| if now(&part.until) > over { now(&part.pages) } else { 0 };
        let owned = [&self.sealed.owned, &self.fresh.owned, &self.flushed];
        let pages = self.parts().into_iter().map(waits).chain(owned.map(|owned| now(&owned.pages))).sum();
        (pages, owned.into_iter().map(|owned| now(&owned.frames)).sum())
    }
}

impl<'p> Sweeping<'p> {
    /// Before any CPU uses the manager.
    pub fn new<P: Platform>(mm: &Manager<'p, P>) -> Result<Self, Error> {
        let p = mm.platform();
        let cpus = p.possible_cpus() as usize;
        let sweeping = Sweeping {
            shared: &own::<P, Shared>(mm, 1)?[0],
            swept: own(mm, cpus)?,
            waiting: own(mm, cpus)?,
            groups: own(mm, cpus.div_ceil(GROUP))?,
        };
        for (cpu, swept) in sweeping.swept.iter().enumerate() {
            swept.set(p, if p.is_online(CpuId(cpu as u16)) { 0 } else { AWAY });
        }
        Ok(sweeping)
    }

    /// Frames of all this.
    pub fn fixed_frames(&self) -> u64 {
        let orders = [
            order_of::<Shared>(1),
            order_of::<Word64>(self.swept.len()),
            order_of::<Waiting>(self.waiting.len()),
            order_of::<Group>(self.groups.len()),
        ];
        orders.iter().map(|order| 1 << order).sum()
    }

    fn waiting<P: Platform>(&self, p: &P) -> &'p Waiting {
        &self.waiting[p.this_cpu().index()]
    }

    /// Those that this CPU is one of. A hint where the task may go on elsewhere.
    fn group<P: Platform>(&self, p: &P) -> &'p Group {
        &self.groups[p.this_cpu().index() / GROUP]
    }

    /// Whether a CPU has taken part in a sweep, or will before it uses a kernel address.
    fn is_past<P: Platform>(&self, p: &P, cpu: CpuId, sweep: u64) -> bool {
        // Acquire: partner of the Releases of `join` and `go_away`: its last use comes before.
        self.swept[cpu.index()].load(p, Ordering::Acquire) >= sweep || p.broken(Rule::KernelSweepCountsAll)
    }

    /// An extent with frames of its own waits for this sweep. Under the lock of this CPU's extent cache, with [`wait`].
    pub fn own<P: Platform>(
        &self,
        mm: &Manager<'p, P>,
        v: &KernelRange<'p>,
        handle: u32,
        range: PageRange,
        frames: u64,
    ) {
        let (p, waiting) = (mm.platform(), self.waiting(mm.platform()));
        let (part, owned) = (&waiting.fresh, &waiting.fresh.owned);
        // Counted with the others before.
        part.pages.set(p, part.pages.get(p) - range.pages);
        owned.extents.push(p, v.link(mm), handle);
        add(p, &owned.pages, range.pages);
        add(p, &owned.frames, frames);
        if !self.shared.owners.contains(p, p.this_cpu()) {
            self.shared.owners.insert(p, p.this_cpu());
        }
    }

    /// What waits, pages and frames. A sum of moments.
    pub fn waits<P: Platform>(&self, p: &P, over: u64) -> (u64, u64) {
        self.waiting.iter().fold((0, 0), |(pages, frames), waiting| {
            let here = waiting.sums(p, over);
            (pages + here.0, frames + here.1)
        })
    }

    /// Whether anything waits on any CPU: for certain, of what was unmapped before this is called. Looks at each under its lock.
    pub fn any_waits<P: Platform>(&self, mm: &Manager<'p, P>, v: &KernelRange<'p>) -> bool {
        let (p, sweeps) = (mm.platform(), &v.state.numbers.sweeps);
        let waits = |waiting: &Waiting| waiting.sums(p, sweeps.last_over(p)) != (0, 0);
        v.cpus.iter().zip(self.waiting).any(|(cache, waiting)| cache.with(mm, || waits(waiting)))
    }

    /// For a look at a quiet system: all extents with frames that wait.
    pub fn each<P: Platform>(&self, mm: &Manager<'p, P>, v: &KernelRange<'p>, mut each: impl FnMut(u32)) {
        for waiting in self.waiting {
            for owned in [&waiting.sealed.owned, &waiting.fresh.owned, &waiting.flushed] {
                owned.extents.each(mm.platform(), v.link(mm), &mut each);
            }
        }
    }
}

impl<'p> KernelRange<'p> {
    /// What waits on a CPU before it begins a sweep.
    fn share<P: Platform>(&self, mm: &Manager<'p, P>) -> u64 {
        self.state.numbers.threshold.load(mm.platform(), Ordering::Relaxed)
    }
}

/// Pages that were unmapped here wait, with `put` under the same hold of this CPU's lock; begins a sweep when that is enough.
/// Returns the number of the sweep that they wait for. Their entries were cleared. Any context.
pub(super) fn wait<'p, P: Platform>(
    mm: &Manager<'p, P>,
    v: &KernelRange<'p>,
    s: &Sweeping<'p>,
    range: PageRange,
    put: impl FnOnce(&ExtentCache, u64),
) -> u64 {
    let p = mm.platform();
    // Partner: the fence in `join_sweep`: drawn above.
    full_fence(p);
    let (next, begins, enough) = v.own(mm, |cache| {
        let (turned, waiting) = (cache.turn(mm, v), s.waiting(p));
        waiting.turn(mm, v, turned);
        let next = if p.broken(Rule::NextKernelSweep) { turned - 1 } else { turned };
        let (fresh, share) = (&waiting.fresh, v.share(mm));
        let before = fresh.pages.get(p) + fresh.owned.pages.get(p);
        fresh.until.set(p, next);
        add(p, &fresh.pages, range.pages);
        put(cache, next);
        // Once in a share, not at each unmap: many CPUs may come to this at once.
        let enough = share == 0 || before / share != (before + range.pages) / share;
        (next, turned, enough.then_some(before < share))
    });
    // For the first share one of a group is enough. Whoever has unmapped another one since asks again: what the first has asked for may have been
    // overlooked, because the last sweep was over at that moment.
    if let Some(first) = enough
        && !(first && s.group(p).has_asked(p, begins))
    {
        want(mm, v, s);
    }
    next
}

impl Group {
    /// Whether one of them has asked for this sweep; if not, the caller does.
    fn has_asked<P: Platform>(&self, p: &P, sweep: u64) -> bool {
        // Relaxed: a hint. Read before it is written.
        self.asked.load(p, Ordering::Relaxed) >= sweep
            || self.asked.fetch_max(p, sweep, Ordering::Relaxed) >= sweep
    }
}

/// Begins a sweep, or has it begin when that which is under way is over. Any context.
pub(super) fn want<'p, P: Platform>(mm: &Manager<'p, P>, v: &KernelRange<'p>, s: &Sweeping<'p>) {
    let (p, demand) = (mm.platform(), &s.shared.demand);
    if v.state.numbers.sweeps.at_rest(p) {
        demand.begun_at.store(p, p.now().0, Ordering::Relaxed);
        if v.state.numbers.sweeps.begin(p) {
            mm.emit(Event::KernelSweepBegun);
        }
    } else if demand.more.load(p, Ordering::Relaxed) == 0 {
        demand.more.store(p, 1, Ordering::Relaxed);
    }
}

/// This CPU takes part in the sweep of kernel addresses that is under way, if it has not yet. Interrupts are off.
pub(crate) fn join_sweep<P: Platform>(here: &CpuGuard<'_, '_, P>) {
    let (mm, p) = (here.mm, here.mm.platform());
    let Some((v, s)) = sweeping(mm) else { return };
    let (swept, last) = (&s.swept[here.cpu.index()], v.state.numbers.sweeps.last(p));
    // One that is away takes part when it is back.
    if swept.get(p) >= last {
        return;
    }
    // Partner: the fence in `wait`. What was unmapped before this sweep began is found so from here on.
    full_fence(p);
    if !p.broken(Rule::FlushBeforeKernelSwept) {
        kernel::local(here, None);
    }
    mm.emit(Event::KernelSwept);
    // Release: partner of the Acquire in `is_past`.
    swept.store(p, last, Ordering::Release);
}

fn sweeping<'m, 'p, P: Platform>(mm: &'m Manager<'p, P>) -> Option<(&'m KernelRange<'p>, &'m Sweeping<'p>)> {
    let v = mm.vmap.as_ref()?;
    v.sweeping.as_ref().map(|s| (v, s))
}

/// See [`Manager::tick`].
pub(crate) fn ticked<P: Platform>(mm: &Manager<'_, P>) {
    if let Some((v, s)) = sweeping(mm) {
        if v.state.numbers.sweeps.at_rest(mm.platform()) {
            return;
        }
        join_sweep(&CpuGuard::new(mm));
        help(mm, v, s, TICK_LOOKS);
    }
}

/// Whoever maps takes part, and looks now and then whether all have. Where nobody calls [`purger`](crate::Vmap::purger), it asks those
/// who let a sweep wait for too long.
pub(super) fn throttle<'p, P: Platform>(mm: &Manager<'p, P>, v: &KernelRange<'p>, s: &Sweeping<'p>) {
    let (p, sweeps) = (mm.platform(), &v.state.numbers.sweeps);
    let last = sweeps.last(p);
    if sweeps.last_over(p) == last {
        return;
    }
    // A hint: the task may go on elsewhere.
    if s.swept[p.this_cpu().index()].load(p, Ordering::Relaxed) < last {
        join_sweep(&CpuGuard::new(mm));
    }
    let waiting = s.waiting(p);
    let pages = waiting.pages(p);
    if pages >= waiting.look_at.load(p, Ordering::Relaxed) {
        waiting.look_at.store(p, pages.saturating_add(v.share(mm) / PARTS), Ordering::Relaxed);
        if help(mm, v, s, MAP_LOOKS) > mm.config().sweep_deadline.saturating_mul(2)
            && kernel::may_wait(mm).is_ok()
        {
            finish(mm, v, s, last);
        }
    }
}

/// Looks whether the sweep that is under way is over, at some CPUs; wakes who frees what was flushed, or who asks those that it
/// waits for. Gives for how long it has been waited for. Any context.
fn help<'p, P: Platform>(mm: &Manager<'p, P>, v: &KernelRange<'p>, s: &Sweeping<'p>, most: u32) -> u64 {
    let (p, looks) = (mm.platform(), &s.group(mm.platform()).looks);
    // Read before it is written: many may come at once, and one is enough. Relaxed: a hint.
    if s.shared.look.is_busy(p)
        || looks.load(p, Ordering::Relaxed) != 0
        || looks.replace(p, 0, 1, Ordering::Relaxed).is_err()
    {
        return 0;
    }
    let waited = help_alone(mm, v, s, most);
    looks.store(p, 0, Ordering::Relaxed);
    waited
}

/// The same by the only one of its group.
fn help_alone<'p, P: Platform>(mm: &Manager<'p, P>, v: &KernelRange<'p>, s: &Sweeping<'p>, most: u32) -> u64 {
    let (p, Shared { look, demand, .. }) = (mm.platform(), s.shared);
    let begun_at = demand.begun_at.load(p, Ordering::Relaxed);
    let goes_on = || {
        let more = demand.more.load(p, Ordering::Relaxed) != 0;
        if more {
            demand.more.store(p, 0, Ordering::Relaxed);
            demand.begun_at.store(p, p.now().0, Ordering::Relaxed);
            mm.emit(Event::KernelSweepBegun);
        }
        more
    };
    let sweeps = &v.state.numbers.sweeps;
    if sweeps.look(p, look, most, |cpu, sweep| s.is_past(p, cpu, sweep), goes_on) == Some(true) {
        over(mm, v, s);
        return 0;
    }
    let waited = p.now().0.saturating_sub(begun_at);
    if waited > mm.config().sweep_deadline && !sweeps.at_rest(p) {
        wake(mm, v);
        return waited;
    }
    0
}

/// A sweep is over: wakes who frees what was flushed, if there is anything.
fn over<'p, P: Platform>(mm: &Manager<'p, P>, v: &KernelRange<'p>, s: &Sweeping<'p>) {
    mm.emit(Event::KernelSweepOver);
    if !s.shared.owners.is_empty(mm.platform()) {
        wake(mm, v);
    }
}

/// Wakes who waits in [`purger`](crate::Vmap::purger).
fn wake<'p, P: Platform>(mm: &Manager<'p, P>, v: &KernelRange<'p>) {
    let (p, wanted) = (mm.platform(), &v.state.asked.wanted);
    // Partner: the fence in `purge::serve`. Whoever is awake and does not see what is to be done is woken once more.
    full_fence(p);
    if wanted.load(p, Ordering::Relaxed) == 0 && wanted.swap(p, 1, Ordering::AcqRel) == 0 {
        mm.emit(Event::VmapPurgeWanted);
        p.wake(WaitKey::VmapPurge);
    }
}

/// Interrupts those who have not taken part in the sweep that is under way, or has the hardware flush all CPUs, and returns when
/// this one is over. Interrupts are on.
pub(super) fn finish<'p, P: Platform>(
    mm: &Manager<'p, P>,
    v: &KernelRange<'p>,
    s: &Sweeping<'p>,
    sweep: u64,
) {
    let (p, sweeps) = (mm.platform(), &v.state.numbers.sweeps);
    while sweeps.last_over(p) < sweep {
        let last = sweeps.last(p);
        if kernel::flush_by_hardware(mm, FlushReason::Purge) {
            if sweeps.end(p, &s.shared.look, last) {
                over(mm, v, s);
            }
        } else {
            let forced = |targets| Event::KernelSweepForced { targets };
            sweep::ask(mm, |cpu| s.is_past(p, cpu, last), forced, Work::KernelSweep, join_sweep);
            help(mm, v, s, u32::MAX);
        }
        if sweeps.last_over(p) < sweep {
            // Somebody else looks.
            p.pause(50);
        }
    }
}

/// When it returns every CPU has flushed what was unmapped before it was called. One IPI for each CPU that is not away but this
/// one. Interrupts are on.
pub(super) fn flush_now<'p, P: Platform>(mm: &Manager<'p, P>, v: &KernelRange<'p>, s: &Sweeping<'p>) {
    let (p, sweeps) = (mm.platform(), &v.state.numbers.sweeps);
    if p.broken(Rule::AliasesBeginSweep) && !sweeps.at_rest(p) {
        return finish(mm, v, s, sweeps.last(p));
    }
    s.shared.demand.begun_at.store(p, p.now().0, Ordering::Relaxed);
    let sweep = loop {
        match sweeps.begin_anew(p, &s.shared.look) {
            Some(sweep) => break sweep,
            None => p.pause(50),
        }
    };
    mm.emit(Event::KernelSweepBegun);
    finish(mm, v, s, sweep);
}

/// Whether a sweep is under way, and which.
pub(super) fn under_way<'p, P: Platform>(mm: &Manager<'p, P>, v: &KernelRange<'p>) -> Option<u64> {
    let (p, sweeps) = (mm.platform(), &v.state.numbers.sweeps);
    let last = sweeps.last(p);
    (sweeps.last_over(p) != last).then_some(last)
}

/// Asks for what a sweep that takes too long waits for. By who was woken.
pub(super) fn hasten<'p, P: Platform>(mm: &Manager<'p, P>, v: &KernelRange<'p>, s: &Sweeping<'p>) {
    let p = mm.platform();
    let waited = p.now().0.saturating_sub(s.shared.demand.begun_at.load(p, Ordering::Relaxed));
    if let Some(sweep) = under_way(mm, v)
        && waited > mm.config().sweep_deadline
    {
        finish(mm, v, s, sweep);
    }
}

/// Moves what has frames and was flushed, of all CPUs, to those that are being freed. By whoever has the purge's lock.
pub(super) fn gather<'p, P: Platform>(mm: &Manager<'p, P>, v: &KernelRange<'p>, s: &Sweeping<'p>) {
    let (p, owners) = (mm.platform(), &s.shared.owners);
    owners.for_each(p, |cpu| {
        let (cache, waiting) = (&v.cpus[cpu.index()], &s.waiting[cpu.index()]);
        cache.with(mm, || {
            waiting.turn(mm, v, v.state.numbers.next(p));
            let flushed = &waiting.flushed;
            v.state.owning.take_over(p, &flushed.extents, v.link(mm));
            flushed.pages.set(p, 0);
            flushed.frames.set(p, 0);
            if waiting.parts().into_iter().all(|part| part.owned.extents.is_empty(p)) {
                owners.remove(p, cpu);
            }
        });
    });
}

/// This CPU uses no kernel address that is mapped from here on until it has called [`come_back`]. Interrupts are off.
pub(crate) fn go_away<P: Platform>(here: &CpuGuard<'_, '_, P>) {
    if let Some((_, s)) = sweeping(here.mm) {
        let (p, swept) = (here.mm.platform(), &s.swept[here.cpu.index()]);
        // Release: partner of the Acquire in `is_past`.
        swept.store(p, swept.get(p) | AWAY, Ordering::Release);
    }
}

/// This CPU counts again. A full fence comes next, and then [`join_sweep`]. Interrupts are off.
pub(crate) fn come_back<P: Platform>(here: &CpuGuard<'_, '_, P>) {
    if let Some((_, s)) = sweeping(here.mm) {
        let (p, swept) = (here.mm.platform(), &s.swept[here.cpu.index()]);
        swept.store(p, swept.get(p) & !AWAY, Ordering::Relaxed);
    }
}

/// This CPU comes online: flushes all kernel addresses, whether a sweep wants it or not, since its TLB may hold anything.
pub(crate) fn start_empty<P: Platform>(here: &CpuGuard<'_, '_, P>) {
    let (mm, p) = (here.mm, here.mm.platform());
    let last = sweeping(mm).map(|(v, s)| {
        let last = v.state.numbers.sweeps.last(p);
        // Partner: the fence in `wait`, as in `join_sweep`.
        full_fence(p);
        (&s.swept[here.cpu.index()], last)
    });
    if !p.broken(Rule::OnlineFlushesKernel) {
        kernel::local(here, None);
    }
    if let Some((swept, last)) = last {
        // Release: partner of the Acquire in `is_past`.
        swept.store(p, last, Ordering::Release);
    }
}

impl<P: Platform> Manager<'_, P> {
    /// This CPU halts: until [`leave_idle`](crate::Manager::leave_idle) it uses no kernel address that [`Vmap::map`](crate::Vmap::map) and its like
    /// give out, and no user address. So sweeps of kernel addresses leave it alone (`vmap=sweep`). Interrupt handlers that use
    /// such an address call `leave_idle` first. For the idle loop, just before it halts, with interrupts off. Optional: a CPU
    /// that does not say so is waited for until it ticks, or asked after
    /// [`Config::sweep_deadline`](crate::Config::sweep_deadline). No lock, no IPI.
    ///
    /// # Examples
    /// ```
    /// # use quietmm_doc::*;
    /// # doc(|mm| {
    /// let on = mm.platform().irqs_off();
    /// mm.enter_idle();
    /// // The CPU halts here.
    /// mm.leave_idle();
    /// if on {
    ///     mm.platform().irqs_on();
    /// }
    /// # Ok(())
    /// # });
    /// ```
    #[doc(alias = "ct_idle_enter")]
    pub fn enter_idle(&self) {
        if sweeping(self).is_some() {
            go_away(&CpuGuard::new(self));
        }
    }

    /// This CPU may use kernel addresses again: flushes them, if a sweep went by since [`enter_idle`](crate::Manager::enter_idle). Any
    /// context. No lock, no IPI.
    ///
    /// # Examples
    /// ```
    /// # use quietmm_doc::*;
    /// # doc(|mm| {
    /// mm.leave_idle(); // harmless where it has not entered
    /// # Ok(())
    /// # });
    /// ```
    #[doc(alias = "ct_idle_exit")]
    pub fn leave_idle(&self) {
        let Some((v, s)) = sweeping(self) else { return };
        let here = CpuGuard::new(self);
        let (p, swept) = (self.platform(), &s.swept[here.cpu.index()]);
        if swept.get(p) & AWAY == 0 {
            return;
        }
        come_back(&here);
        // Partner: the fence in `Epochs::look`.
        full_fence(p);
        if p.broken(Rule::IdleReturnSweep) {
            swept.store(p, v.state.numbers.sweeps.last(p), Ordering::Release);
        }
        join_sweep(&here);
    }
}
