//! What a test places in the middle of what the core does: at a touch of shared memory, while a CPU waits, while a device
//! works.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;
use std::sync::atomic::AtomicU64;

use quietmm::{Config, PageNumber, Rule, SpaceId};

use super::{Host, Mm, Setup, bare};

/// Something that happens once.
pub(super) type Hook = Box<dyn FnOnce(&Mm<'_>)>;

/// Something that happens again and again.
pub(super) type Always = Rc<dyn Fn(&Mm<'_>)>;

/// So often no CPU touches shared memory in one case.
const ENDLESS: u32 = 50_000_000;

/// What a case ends with (by unwinding) that cannot be played in one thread: a CPU waits for one that stands still in
/// the middle of something, with interrupts off or with a lock.
pub struct StandsStill;

/// What is to happen when a CPU touches shared memory.
pub(super) struct Placed {
    cpu: u16,
    /// Touches that come before.
    left: u32,
    hook: Hook,
}

impl Host {
    pub(super) fn next(&self, hooks: &RefCell<VecDeque<Hook>>) -> bool {
        let hook = hooks.borrow_mut().pop_front();
        let Some(hook) = hook else { return false };
        hook(self.manager());
        true
    }

    /// Once reclaim has taken the entry of this page out, `hook` happens, before the flush if that is left to a batch: at the
    /// end of the look at the page, or, where several entries lead to it, at the next one. The core holds no lock there but
    /// those of the batch's pages.
    pub fn when_unmapped(&self, id: SpaceId, page: u64, hook: impl FnOnce(&Mm<'_>) + 'static) {
        self.on_unmapped.borrow_mut().push_back((id, page, Box::new(hook)));
    }

    /// Reclaim has looked at a page.
    pub(super) fn looked(&self) {
        let first = self.on_unmapped.borrow().front().map(|&(id, page, _)| (id, page));
        let is_out = |(id, page)| !self.manager().space(id).lookup(PageNumber(page)).unwrap().is_present();
        if first.is_some_and(is_out) {
            let found = self.on_unmapped.borrow_mut().pop_front();
            (found.expect("it was there").2)(self.manager());
        }
    }

    /// At the `n`th touch of shared memory by `cpu` from now on, or from the last such hook on, `hook` happens.
    pub fn at_touch(&self, cpu: u16, n: u32, hook: impl FnOnce(&Mm<'_>) + 'static) {
        self.at_touch.borrow_mut().push_back(Placed { cpu, left: n, hook: Box::new(hook) });
    }

    /// From here on hooks are placed: who would wait for ever for one that stands still ends the case instead.
    pub fn place(&self) {
        self.placing.set(true);
    }

    /// How often a CPU has touched shared memory.
    pub fn touches_of(&self, cpu: u16) -> u32 {
        self.touches[cpu as usize].get()
    }

    /// `happens` wherever the core lets other tasks run, from now on.
    pub fn at_cond_resched(&self, happens: impl Fn(&Mm<'_>) + 'static) {
        *self.on_cond_resched.borrow_mut() = Some(Rc::new(happens));
    }

    /// The most touches of this CPU's between two places where the core lets other tasks run, in what `work` does.
    pub fn longest_stretch(&self, work: impl FnOnce()) -> u32 {
        self.stretch.set((self.touches_of(self.current.get()), 0));
        work();
        self.end_stretch();
        self.stretch.get().1
    }

    pub(super) fn end_stretch(&self) {
        let ((began, longest), now) = (self.stretch.get(), self.touches_of(self.current.get()));
        self.stretch.set((now, longest.max(now.saturating_sub(began))));
    }

    /// What was placed and has not come will not.
    pub fn forget_placed(&self) {
        self.at_touch.borrow_mut().clear();
    }

    /// The end of what hooks are placed in; says whether all of them came.
    pub fn all_placed(&self) -> bool {
        self.placing.set(false);
        self.at_touch.borrow().is_empty()
    }

    /// Runs `hook` just before the core's `nth` access from now on to the entry of a page of this CPU's space.
    pub fn watch(&self, page: u64, nth: u32, hook: Hook) {
        let root = self.tlbs[self.current.get() as usize].borrow().root.expect("it runs in a space");
        let word: *const AtomicU64 = self.walk(root, page).0.expect("the page has a table").word;
        self.watched.set((word.cast(), nth));
        self.on_touch.borrow_mut().push_back(hook);
    }

    /// CPU 1 reads a page just before the core's `first` access from now on to its entry, and writes to it just before the one that comes `then` later. Returns
    /// where it will stand whether it could write.
    pub fn use_and_write(&self, page: u64, (first, then): (u32, u32), value: u64) -> Rc<Cell<bool>> {
        let wrote = Rc::new(Cell::new(false));
        let seen = Rc::clone(&wrote);
        let write = move |mm: &Mm<'_>| {
            let host = mm.platform();
            seen.set(host.on(1, || host.try_write(page, value)));
        };
        let read = move |mm: &Mm<'_>| {
            let host = mm.platform();
            host.on(1, || {
                assert_eq!(host.try_read(page), Some(0));
                host.watch(page, then, Box::new(write));
            });
        };
        self.on(1, || self.watch(page, first, Box::new(read)));
        wrote
    }

    pub fn watch_nothing(&self) {
        self.watched.set((std::ptr::null(), 0));
        self.on_touch.borrow_mut().clear();
    }

    /// A CPU touches shared memory.
    #[inline]
    pub(super) fn touched(&self, at: *const u8) {
        let touches = &self.touches[self.current.get() as usize];
        touches.set(touches.get() + 1);
        self.enter_touch(at);
        // Nearly always neither: nothing else is looked at then.
        if at == self.watched.get().0 || self.placing.get() {
            self.touched_there(at, touches.get());
        }
    }

    /// By itself: the core touches something so often that it matters how many registers have to be saved for it.
    #[inline(never)]
    fn touched_there(&self, at: *const u8, touches: u32) {
        let (watched, left) = self.watched.get();
        if at == watched && left > 0 {
            self.watched.set((watched, left - 1));
            if left == 1 {
                self.next(&self.on_touch);
            }
        }
        if !self.placing.get() {
            return;
        }
        // Once: what unwinds touches too.
        assert!(touches != ENDLESS, "the work has no end");
        let mut placed = self.at_touch.borrow_mut();
        let Some(first) = placed.front_mut().filter(|first| first.cpu == self.current.get()) else { return };
        if first.left > 0 {
            first.left -= 1;
            return;
        }
        let hook = placed.pop_front().expect("it is due").hook;
        drop(placed);
        hook(self.manager());
        // The touch comes now: what was the core's may be so no more.
        self.enter_touch(at);
    }
}

/// Plays `case` again and again on a new machine, with whatever it places at touch `n` for `n` from 0 on, until what it
/// does has no such touch. Returns the results, and how many cases could not be played ([`StandsStill`]).
pub fn everywhere<R>(setup: &Setup, broken: Option<Rule>, case: impl Fn(&Mm<'_>, u32) -> R) -> (Vec<R>, u32) {
    everywhere_as(setup, &bare("vanilla"), broken, case)
}

/// The same with this configuration.
pub fn everywhere_as<R>(
    setup: &Setup,
    config: &Config,
    broken: Option<Rule>,
    case: impl Fn(&Mm<'_>, u32) -> R,
) -> (Vec<R>, u32) {
    each(setup, config, broken, &case)
}

/// By itself: else it is compiled for each case.
fn each<R>(
    setup: &Setup,
    config: &Config,
    broken: Option<Rule>,
    case: &dyn Fn(&Mm<'_>, u32) -> R,
) -> (Vec<R>, u32) {
    let (mut results, mut skipped) = (Vec::new(), 0);
    for n in 0.. {
        let host = Host::new(setup.clone());
        host.broken.set(broken);
        host.placing.set(true);
        let played = catch_unwind(AssertUnwindSafe(|| host.run(*config, |mm| case(mm, n))));
        match played {
            Ok(_) if !host.at_touch.borrow().is_empty() => break,
            Ok(result) => results.push(result),
            Err(payload) if payload.is::<StandsStill>() => skipped += 1,
            Err(payload) => resume_unwind(payload),
        }
    }
    (results, skipped)
}
