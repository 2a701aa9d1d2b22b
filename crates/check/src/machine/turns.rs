//! Whose turn it is. Every CPU has a stack of its own; exactly one runs, and gives way at points.

use quietmm::Entry;
use quietmm::platform::WaitKey;

use super::{Machine, Mm, Status, What};
use crate::act::{Act, Kind};
use crate::violation::Violation;

/// Points after which a run is given up: none of the scenarios comes near.
const STEPS: u32 = 200_000;
/// The same for what is not interleaved: it may fill memory, and read all of a device.
const ALONE: u32 = 50_000_000;
/// Rounds in which only those who spin go on, after which nobody will.
const IDLE_ROUNDS: u32 = 100;

/// What an access was to, where it was not a word of memory.
#[derive(Clone, Copy)]
pub(crate) enum Place {
    /// What a CPU has cached.
    Tlb(u16),
    /// Interrupts on their way to a CPU.
    Line(u16),
    /// What a CPU keeps for itself, and its interrupt handler too.
    Own(u16),
    /// What a CPU has written to a frame.
    Content(u32, u16),
    /// What devices keep.
    Disk,
    /// What scripts share.
    World,
    /// A word, by its offset.
    Word(u64),
}

impl Place {
    fn number(self) -> u64 {
        match self {
            Place::Tlb(cpu) => 1 << 40 | u64::from(cpu),
            Place::Line(cpu) => 2 << 40 | u64::from(cpu),
            Place::Content(frame, lane) => 3 << 40 | u64::from(frame) << 4 | u64::from(lane),
            Place::Disk => 4 << 40,
            Place::World => 6 << 40,
            Place::Own(cpu) => 5 << 40 | u64::from(cpu),
            Place::Word(offset) => offset >> 2,
        }
    }
}

impl Machine {
    /// Something that others may see is about to be done here: others may go first.
    #[inline]
    pub(crate) fn point(&self, place: Place, write: bool) {
        if !self.running.get() {
            return self.step_alone();
        }
        self.step();
        self.arbitrate();
        self.record(place, write);
        // What a CPU keeps for itself is nothing that others wait for.
        if write && !matches!(place, Place::Own(_)) {
            self.did();
        }
    }

    fn step(&self) {
        let steps = self.steps.get() + 1;
        self.steps.set(steps);
        if steps > STEPS {
            let said = format!("no end after {STEPS} points; {}", self.who_waits());
            self.fail(Violation::new("livelock", self.current.get(), said));
        }
    }

    /// The same before the scripts begin, and after they have ended.
    fn step_alone(&self) {
        let steps = self.alone.get() + 1;
        self.alone.set(steps);
        if steps > ALONE && !self.falling.get() {
            let said = "no end before the scripts begin, or after they have ended".to_string();
            self.fail(Violation::new("livelock", self.current.get(), said));
        }
    }

    /// An access belongs to the same point as the last one.
    #[inline]
    pub(crate) fn record(&self, place: Place, write: bool) {
        if self.running.get() {
            let handler = if self.cpu().in_handler.get() { 4 } else { 0 };
            self.driver.borrow_mut().access(self.current.get() as u8 + handler, place.number(), write);
        }
    }

    /// Comes back when this CPU is to go on.
    #[inline]
    pub(crate) fn arbitrate(&self) {
        self.judge_change();
        let me = self.current.get();
        let mut act = self.decide();
        while act != Act::run(me) {
            act = self.obey(me, act);
        }
    }

    /// Does what was decided, as far as it is not to go on here; returns what was decided next.
    fn obey(&self, me: u16, act: Act) -> Act {
        match act.kind() {
            Kind::Interrupt(cpu) if cpu == me => {
                self.take_interrupt();
                self.decide()
            }
            Kind::Tick(cpu) if cpu == me => {
                self.take_tick();
                self.decide()
            }
            Kind::Evict(cpu) => {
                self.evict(cpu);
                self.decide()
            }
            Kind::Fetch(cpu) => {
                self.fetch(cpu, false);
                self.decide()
            }
            Kind::FetchToWrite(cpu) => {
                self.fetch(cpu, true);
                self.decide()
            }
            _ => {
                self.give_way(act);
                self.command.get()
            }
        }
    }

    /// Somebody else goes on; comes back when this CPU is told to do something.
    pub(crate) fn give_way(&self, act: Act) {
        let who =
            if self.interleaved.get() { usize::from(self.current.get()) } else { self.yielders.len() - 1 };
        self.next.set(act);
        let yielder = self.yielders[who].get();
        // SAFETY: set by this very context when it began, and it lives as long as the context.
        unsafe { &*yielder }.suspend(());
    }

    /// What happens next.
    fn decide(&self) -> Act {
        let me = self.current.get();
        let (mut enabled, mut all_done) = (0, true);
        for (id, cpu) in self.cpus.iter().enumerate() {
            let id = id as u16;
            let goes_on = match cpu.status.get() {
                Status::Busy => true,
                Status::Spins(seen) => self.progress.get() - cpu.own.get() != seen,
                Status::Sleeps(_) => cpu.woken.get(),
                Status::Done => false,
            };
            all_done &= cpu.status.get() == Status::Done;
            if goes_on || cpu.in_handler.get() && !matches!(cpu.status.get(), Status::Spins(_)) {
                enabled |= Act::run(id).bit();
            }
            if cpu.pending.get() && cpu.irqs.get() {
                enabled |= Act::interrupt(id).bit();
            }
            if cpu.ticks.get() > 0 && cpu.irqs.get() && cpu.in_kernel() {
                enabled |= Act::tick(id).bit();
            }
        }
        let cpus = self.setup.cpus;
        let in_turn = || (0..cpus).map(|n| (me + n) % cpus);
        let first = |act: fn(u16) -> Act| in_turn().map(act).find(|act| enabled & act.bit() != 0);
        let ordinary = match first(Act::run).or_else(|| first(Act::interrupt)).or_else(|| first(Act::tick)) {
            Some(act) => act,
            None if all_done => return Act::END,
            None => return self.who_spins(),
        };
        if self.hardware.get() == super::Hardware::Fickle {
            for (id, cpu) in self.cpus.iter().enumerate().filter(|(_, cpu)| cpu.online.get()) {
                if let Ok(tlb) = cpu.tlb.try_borrow()
                    && tlb.root.is_some()
                {
                    let id = id as u16;
                    enabled |= Act::evict(id).bit() | Act::fetch(id).bit();
                    // Only a write sets a dirty bit, if one that is undone.
                    if cpu.user.get() {
                        enabled |= Act::fetch_to_write(id).bit();
                    }
                }
            }
        }
        self.driver.borrow_mut().decide(enabled, ordinary)
    }

    /// Nobody can go on but those who spin, and nothing has changed for them: some give up after a while.
    fn who_spins(&self) -> Act {
        let rounds = self.idle_rounds.get();
        let spins = |id: &u16| matches!(self.cpus[usize::from(*id)].status.get(), Status::Spins(_));
        let (me, cpus) = (self.current.get(), self.setup.cpus);
        let next = (1..=cpus).map(|n| (me + n) % cpus).find(spins);
        self.idle_rounds.set(rounds + 1);
        match next {
            Some(cpu) if rounds < IDLE_ROUNDS => Act::run(cpu),
            _ => {
                let said = format!("nobody can go on: {}", self.who_waits());
                self.fail(Violation::new("deadlock", me, said))
            }
        }
    }

    /// What every CPU is doing.
    fn who_waits(&self) -> String {
        let of = |(id, cpu): (usize, &super::Cpu)| {
            let deaf = if cpu.irqs.get() { "" } else { ", interrupts off" };
            let what = match cpu.status.get() {
                Status::Busy => "runs".to_string(),
                Status::Spins(_) => "spins".to_string(),
                Status::Sleeps(key) => format!("sleeps for {}", super::log::key(&key)),
                Status::Done => "has done its work".to_string(),
            };
            format!("CPU {id} {what}{deaf}")
        };
        self.cpus.iter().enumerate().map(of).collect::<Vec<_>>().join("; ")
    }

    /// The handler of an interrupt from another CPU, on this CPU's stack.
    pub(crate) fn take_interrupt(&self) {
        self.cpu().pending.set(false);
        self.handle(What::Arrives, |mm| mm.on_interrupt());
    }

    /// The handler of this CPU's timer.
    fn take_tick(&self) {
        let ticks = &self.cpu().ticks;
        ticks.set(ticks.get() - 1);
        self.handle(What::Ticks, |mm| mm.tick());
    }

    fn handle(&self, why: What, handler: impl FnOnce(&Mm<'_>)) {
        let cpu = self.cpu();
        let status = cpu.status.get();
        cpu.irqs.set(false);
        cpu.in_handler.set(true);
        if let Status::Spins(_) = status {
            cpu.status.set(Status::Busy);
        }
        self.record(Place::Line(self.current.get()), true);
        self.record(Place::Own(self.current.get()), true);
        self.note(|| why);
        self.did();
        handler(self.mm());
        self.note(|| What::Leaves);
        cpu.in_handler.set(false);
        cpu.irqs.set(true);
        self.did();
        if let Status::Sleeps(_) | Status::Done = status {
            cpu.status.set(status);
        }
        if cpu.in_user_mode() {
            self.judge_user(self.current.get());
        }
    }

    /// Spins: others go first.
    pub(crate) fn spin(&self) {
        if !self.running.get() {
            return self.spin_alone();
        }
        self.step();
        let cpu = self.cpu();
        let before = cpu.status.get();
        self.note(|| What::Spins);
        cpu.status.set(Status::Spins(self.progress.get() - cpu.own.get()));
        self.arbitrate();
        cpu.status.set(before);
    }

    /// The same where nothing is interleaved: interrupts that wait can arrive.
    fn spin_alone(&self) {
        self.steps.set(self.steps.get() + 1);
        if !self.deliver_all() && self.steps.get() > STEPS {
            let said = "spins for ever before the scripts begin, or after they have ended".to_string();
            self.fail(Violation::new("deadlock", self.current.get(), said));
        }
    }

    /// Lets all interrupts arrive, where nothing is interleaved; says whether there was one.
    pub(crate) fn deliver_all(&self) -> bool {
        let me = self.current.get();
        let mut some = false;
        while let Some(id) = self.cpus.iter().position(|cpu| cpu.pending.get() && cpu.irqs.get()) {
            self.current.set(id as u16);
            self.take_interrupt();
            self.current.set(me);
            some = true;
        }
        some
    }

    /// Sleeps until it is woken and `ready`.
    pub(crate) fn sleep(&self, key: WaitKey, ready: &mut dyn FnMut() -> bool) {
        let cpu = self.cpu();
        for _ in 0..STEPS {
            cpu.woken.set(false);
            let before = cpu.status.replace(Status::Busy);
            // From here on whoever wakes finds the sleeper.
            self.sleepers.borrow_mut().push((self.current.get(), key));
            let is_ready = ready();
            if is_ready || !self.running.get() {
                self.sleepers.borrow_mut().retain(|sleeper| sleeper.0 != self.current.get());
                cpu.status.set(before);
                if is_ready {
                    return;
                }
                self.spin_alone();
                continue;
            }
            self.note(|| What::Sleeps(key));
            cpu.status.set(Status::Sleeps(key));
            self.step();
            self.arbitrate();
            self.sleepers.borrow_mut().retain(|sleeper| sleeper.0 != self.current.get());
            cpu.status.set(before);
            self.note(|| What::Wakes);
        }
        self.fail(Violation::new(
            "livelock",
            self.current.get(),
            format!("who sleeps for {} is woken for nothing, for ever", super::log::key(&key)),
        ));
    }

    /// Wakes all who sleep with this key, or are about to.
    pub(crate) fn wake_all(&self, key: WaitKey) {
        for &(id, waits_for) in self.sleepers.borrow().iter() {
            if waits_for == key {
                self.cpus[usize::from(id)].woken.set(true);
            }
        }
    }

    /// For people: what each CPU has cached.
    fn note_what_is_there(&self) {
        let before = self.current.get();
        for (id, cpu) in self.cpus.iter().enumerate() {
            self.current.set(id as u16);
            self.note(|| {
                let tlb = cpu.tlb.borrow();
                let kernel = tlb.kernel_usable().map(|cached| (cached.page, cached.entry));
                let all = tlb.usable().map(|cached| (cached.page, cached.entry)).chain(kernel);
                What::Has(all.map(|(page, entry)| (page, entry.frame(), entry.has(Entry::DIRTY))).collect())
            });
        }
        self.current.set(before);
    }

    /// Scripts begin.
    pub(crate) fn start(&self) {
        self.steps.set(0);
        self.note_what_is_there();
        self.note(|| What::Begins);
        self.interleaved.set(true);
        self.running.set(true);
    }

    /// Who goes first. Hardware does nothing of itself before: no CPU is there yet to say what came of it.
    pub(crate) fn first_act(&self) -> Act {
        self.current.set(0);
        let hardware = self.hardware.replace(super::Hardware::Quiet);
        let act = self.decide();
        self.hardware.set(hardware);
        act
    }

    /// The life of a CPU: its script, and then interrupts, until the run ends.
    pub(crate) fn live(&self, id: u16, script: Option<&dyn Fn()>) {
        self.guarded(|| {
            // Perhaps something arrives before the script begins.
            let mut act = self.command.get();
            while act != Act::run(id) {
                act = self.obey(id, act);
            }
            script.into_iter().for_each(|script| script());
            self.note(|| What::Done);
            self.cpu().status.set(Status::Done);
            self.did();
            self.arbitrate();
            unreachable!("who has done its work is never told to go on");
        });
    }

    /// A panic of the core, or of the script, is a violation too.
    pub(crate) fn guarded(&self, work: impl FnOnce()) {
        let result = crate::panics::catch(&self.running, &self.falling, work);
        result.unwrap_or_else(|payload| self.fell(payload));
    }

    /// The core, or a script, panicked.
    fn fell(&self, payload: Box<dyn std::any::Any + Send>) {
        let said = payload
            .downcast_ref::<String>()
            .cloned()
            .or_else(|| payload.downcast_ref::<&str>().map(|text| (*text).to_string()))
            .unwrap_or_else(|| "without a word".to_string());
        self.fail(Violation::new("panic", self.current.get(), said));
    }
}
