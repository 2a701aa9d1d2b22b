//! One run of a scenario under one schedule.

use std::cell::Cell;
use std::mem::ManuallyDrop;

use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, Yielder};
use quietmm::{Error, Manager, Rule};

use crate::act::{Act, Kind};
use crate::driver::{Deviation, Driver, Strategy, Trace};
use crate::machine::{Hardware, LogEntry, Machine, Mm};
use crate::scenario::Scenario;
use crate::task::{Task, World};
use crate::violation::Violation;

/// What is to be run.
pub struct Order {
    /// How decisions are made.
    pub strategy: Strategy,
    /// What hardware does of itself.
    pub hardware: Hardware,
    /// What is left out.
    pub broken: Option<Rule>,
    /// Whether to keep what happened, for people.
    pub log: bool,
    /// Whether to keep what matters for the order, in a trace that was used before.
    pub trace: Option<Trace>,
}

/// What came of it.
pub struct Outcome {
    /// What was broken, if anything.
    pub violation: Option<Violation>,
    /// The decisions that were not the ordinary ones.
    pub made: Vec<Deviation>,
    /// Decisions of a list that could not be made.
    pub missed: u32,
    /// Decisions in which there was a choice.
    pub decisions: u32,
    /// Points passed.
    pub steps: u32,
    /// What happened.
    pub log: Vec<LogEntry>,
    /// What matters for the order.
    pub trace: Option<Trace>,
}

type Context = Coroutine<(), (), (), DefaultStack>;

/// Bytes of a stack: below it lies a page that nobody may touch.
const STACK_BYTES: usize = 256 << 10;

/// Runs one scenario, again and again.
pub struct Runner<'s> {
    scenario: &'s Scenario,
    machine: Machine,
    stacks: Vec<DefaultStack>,
}

impl<'s> Runner<'s> {
    /// For this scenario.
    ///
    /// # Panics
    /// When the host has no memory for it.
    pub fn new(scenario: &'s Scenario) -> Runner<'s> {
        crate::panics::install();
        let stack = |_| DefaultStack::new(STACK_BYTES).expect("256 KiB for a stack");
        let stacks = (0..=scenario.setup.cpus).map(stack).collect();
        Runner { scenario, machine: Machine::new(scenario.setup.clone()), stacks }
    }

    /// One run.
    pub fn run(&mut self, order: Order) -> Outcome {
        self.machine.reset(order.hardware, order.broken, order.log);
        *self.machine.driver.borrow_mut() = Driver::new(order.strategy, order.trace);
        let world = World::default();
        let under_way = crate::panics::UnderWay;
        play(self.scenario, &self.machine, &mut self.stacks, &world);
        drop(under_way);
        self.machine.running.set(false);
        self.machine.manager.set(std::ptr::null());
        let mut driver = self.machine.driver.take();
        Outcome {
            violation: self.machine.violation.take(),
            decisions: driver.decisions(),
            missed: driver.missed(),
            made: std::mem::take(&mut driver.made),
            steps: self.machine.steps.get(),
            log: self.machine.log.take().unwrap_or_default(),
            trace: driver.trace.take(),
        }
    }

    /// Whether the memory is as new after a reset: what the speed of `reset` rests on.
    pub fn leaves_nothing_behind(&mut self) -> bool {
        self.machine.reset(Hardware::Quiet, None, false);
        self.machine.memory_is_wiped()
    }
}

fn play(scenario: &Scenario, machine: &Machine, stacks: &mut Vec<DefaultStack>, world: &World) {
    let mut made = None;
    alone(machine, stacks, || {
        // SAFETY: each play has a machine of its own, and one manager.
        match unsafe { Manager::new(machine, &machine.regions(), scenario.config) } {
            Err(Error::GuaranteeMissing { .. }) if scenario.refused => {}
            Err(error) => panic!("the manager cannot be made: {error}"),
            // With a rule broken the laws say what comes of it.
            Ok(_) if scenario.refused && machine.broken.get().is_none() => {
                let said = "the manager was made, and should have been refused".to_string();
                machine.fail(Violation::new("promise", 0, said));
            }
            Ok(mm) => made = Some(mm),
        };
    });
    // Never dropped: after a violation CPUs stand in the middle of something, for ever. It owns nothing.
    let Some(mm) = made.map(ManuallyDrop::new) else { return };
    machine.note_bookkeeping(&mm, scenario.config.vmap);
    machine.manager.set((&raw const *mm).cast());
    let first = Task::new(machine, &mm, world, 0);
    let whole = || machine.violation.borrow().is_none();
    if whole() {
        alone(machine, stacks, || (scenario.before)(&first));
    }
    if whole() {
        interleave(scenario, machine, stacks, &mm, world);
    }
    if whole() {
        alone(machine, stacks, || {
            (scenario.after)(&first);
            first.audit();
        });
    }
}

/// Does what is not interleaved, as CPU 0, on a stack of its own: a violation leaves it where it is.
fn alone(machine: &Machine, stacks: &mut Vec<DefaultStack>, work: impl FnOnce()) {
    machine.current.set(0);
    machine.interleaved.set(false);
    let stack = stacks.pop().expect("one more than there are CPUs, and all come back");
    let place = machine.yielders.len() - 1;
    let body = move |yielder: &Yielder<(), ()>, ()| {
        machine.yielders[place].set(yielder);
        machine.guarded(work);
    };
    // SAFETY: the context ends before this function returns, as in `interleave`.
    let mut context: Context = unsafe { Coroutine::with_stack_unchecked(stack, body) };
    context.resume(());
    stacks.push(end(context));
}

/// The context's stack; what still is on it is never used again.
fn end(mut context: Context) -> DefaultStack {
    if !context.started() {
        // Drops the closure; there is nothing to unwind.
        context.force_unwind();
    } else if !context.done() {
        // SAFETY: what is on the stack are borrows of what outlives it, and what scripts own, which is leaked: a run that
        // broke something has a few vectors, others none.
        unsafe { context.force_reset() };
    }
    context.into_stack()
}

/// Runs all scripts until they have ended, or something is broken.
fn interleave(
    scenario: &Scenario,
    machine: &Machine,
    stacks: &mut Vec<DefaultStack>,
    mm: &Mm<'_>,
    world: &World,
) {
    machine.start();
    let mut contexts: Vec<Context> = Vec::new();
    for id in 0..scenario.setup.cpus {
        let stack = stacks.pop().expect("one for each CPU, and all come back");
        let script = scenario.scripts.get(usize::from(id)).copied();
        let body = move |yielder: &Yielder<(), ()>, ()| {
            machine.yielders[usize::from(id)].set(yielder);
            let task = Task::new(machine, mm, world, id);
            let run = move || script.into_iter().for_each(|script| script(&task));
            machine.live(id, Some(&run));
        };
        // SAFETY: the context borrows the machine, the manager and the world. It ends before this function returns, by
        // `end` below; nothing in the loop panics, and it is not sent to another thread.
        contexts.push(unsafe { Coroutine::with_stack_unchecked(stack, body) });
    }
    let ended = Cell::new(false);
    let mut act = machine.first_act();
    while !ended.get() {
        match act.kind() {
            Kind::Run(cpu) | Kind::Interrupt(cpu) | Kind::Tick(cpu) => {
                machine.current.set(cpu);
                machine.command.set(act);
                contexts[usize::from(cpu)].resume(());
                act = machine.next.replace(Act::END);
            }
            _ => ended.set(true),
        }
    }
    machine.running.set(false);
    stacks.extend(contexts.into_iter().map(end));
}
