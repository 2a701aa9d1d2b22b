//! The work of one CPU on a stack of its own, so that it can stop in the middle of an operation while others go on, and
//! they in the middle of this one. Exactly one of all runs at any time: the others wait for their turn.

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;

use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, Yielder};

use super::Host;

type Context = Coroutine<(), (), ()>;

thread_local! {
    /// Stacks that were used before: to map and unmap one takes as long as a small case.
    static STACKS: RefCell<Vec<DefaultStack>> = const { RefCell::new(Vec::new()) };
}

#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
enum Turn {
    /// It stands still, at its start at first.
    #[default]
    Main,
    Aside,
    /// The work on the side has ended.
    Over,
}

/// Work on the side.
#[derive(Default)]
pub struct Aside {
    turn: Cell<Turn>,
    /// While it stands still.
    context: RefCell<Option<Context>>,
    yielder: Cell<Option<*const Yielder<(), ()>>>,
}

/// Those that are on their way.
#[derive(Default)]
pub struct Asides {
    /// In the order in which they were lent a stack.
    all: RefCell<Vec<Rc<Aside>>>,
    /// Those that run now: each was resumed by the one before.
    running: RefCell<Vec<Rc<Aside>>>,
    /// How often one of them was resumed, whichever.
    resumed: Cell<usize>,
}

/// Takes the stack back.
struct Ends<'a>(&'a Host, Rc<Aside>);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.asides.all.borrow_mut().pop();
        let Some(mut context) = self.1.context.take() else { return };
        if !context.started() {
            // Drops the work; there is nothing to unwind.
            context.force_unwind();
        } else if !context.done() {
            // SAFETY: the case has fallen, and the work stands still where it is for ever. On its stack are borrows of what
            // outlives it, and what it owns there is leaked. To unwind it would go on with what is broken.
            unsafe { context.force_reset() };
        }
        STACKS.with_borrow_mut(|stacks| stacks.push(context.into_stack()));
    }
}

impl Host {
    /// Does `work` as `cpu`, a part at each [`resume`](Self::resume) in `main`, and the rest when `main` has ended.
    /// `main` may put more on the side, each on a stack of its own.
    pub fn aside<R>(&self, cpu: u16, work: impl FnOnce(), main: impl FnOnce(&Rc<Aside>) -> R) -> R {
        let (mut main, mut result) = (Some(main), None);
        self.aside_once(cpu, Box::new(work), &mut |aside| result = main.take().map(|main| main(aside)));
        result.expect("it was run")
    }

    fn aside_once(&self, cpu: u16, work: Box<dyn FnOnce() + '_>, main: &mut dyn FnMut(&Rc<Aside>)) {
        let aside = Rc::new(Aside::default());
        let own = Rc::clone(&aside);
        let body = move |yielder: &Yielder<(), ()>, ()| {
            own.yielder.set(Some(yielder));
            drop(own);
            self.on(cpu, work);
        };
        let stack = STACKS.with_borrow_mut(Vec::pop).unwrap_or_default();
        // SAFETY: what it borrows outlives this function, and `ends` makes an end of it before that returns or unwinds. It is not
        // sent to another thread.
        let context: Context = unsafe { Coroutine::with_stack_unchecked(stack, body) };
        aside.context.replace(Some(context));
        self.asides.all.borrow_mut().push(Rc::clone(&aside));
        let ends = Ends(self, aside);
        main(&ends.1);
        while self.resume_one(&ends.1) {}
    }

    /// Lets what was last put on the side go on until it stops or ends; says whether there is more of it.
    pub fn resume(&self) -> bool {
        let last = self.asides.all.borrow().last().cloned();
        self.resume_one(&last.expect("something is on the side"))
    }

    /// The same, if there is any on the side: false if there is none, or it has ended.
    pub fn resume_any(&self) -> bool {
        // One after the other: one may wait for another.
        let waits = |aside: &&Rc<Aside>| aside.turn.get() == Turn::Main;
        let waiting: Vec<_> = self.asides.all.borrow().iter().rev().filter(waits).cloned().collect();
        let nth = self.asides.resumed.replace(self.asides.resumed.get() + 1);
        if waiting.is_empty() {
            return false;
        }
        self.resume_one(&waiting[nth % waiting.len()]);
        true
    }

    /// The same, for this one. Where it panics this does.
    pub fn resume_one(&self, aside: &Rc<Aside>) -> bool {
        match aside.turn.get() {
            Turn::Main => {}
            Turn::Over => return false,
            turn => panic!("it cannot go on: {turn:?}"),
        }
        let cpu = self.current.get();
        let mut context = aside.context.take().expect("it stands still");
        self.asides.running.borrow_mut().push(Rc::clone(aside));
        aside.turn.set(Turn::Aside);
        let went = catch_unwind(AssertUnwindSafe(|| context.resume(())));
        aside.turn.set(if context.done() { Turn::Over } else { Turn::Main });
        aside.context.replace(Some(context));
        self.asides.running.borrow_mut().pop();
        self.current.set(cpu);
        match went {
            Ok(result) => result.as_yield().is_some(),
            Err(payload) => resume_unwind(payload),
        }
    }

    /// In the work on the side: stops here until it is resumed.
    pub fn stop(&self) {
        let aside = self.asides.running.borrow().last().cloned().expect("only work on the side can stop");
        let cpu = self.current.get();
        let yielder = aside.yielder.get().expect("it runs");
        drop(aside);
        // SAFETY: it is that of the stack on which this runs.
        unsafe { &*yielder }.suspend(());
        self.current.set(cpu);
    }

    /// Whether work on the side is what runs now.
    pub fn is_aside(&self) -> bool {
        !self.asides.running.borrow().is_empty()
    }
}
