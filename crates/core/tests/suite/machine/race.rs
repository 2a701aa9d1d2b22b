//! Two CPUs in the middle of each other's work, at every place where that can be.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use quietmm::{Config, Rule};

use super::{Host, Mm, Setup, StandsStill, everywhere_as};

/// Where one stands still until the other is done, or waits for him.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// At this touch of shared memory.
    Touch(u32),
    /// While the device has this page of those that he writes out.
    Write(u32),
    /// When the device has read this page of those that he reads.
    Read(u32),
    /// When the device is about to forget blocks.
    Discard(u32),
}

fn stop(mm: &Mm<'_>) {
    // An interrupt that another CPU sends is served on that one's stack.
    if mm.platform().is_aside() {
        mm.platform().stop();
    }
}

/// CPU 0 does `first` and stands still at a place; CPU 1 does `second`, and where it has to wait CPU 0 goes on, as it
/// does in the end.
pub fn race<R>(mm: &Mm<'_>, place: Place, first: impl FnOnce(), second: impl FnOnce() -> R) -> R {
    let (mut second, mut result) = (Some(second), None);
    race_once(mm, place, Box::new(first), &mut || result = second.take().map(|second| second()));
    result.expect("it was done")
}

fn race_once(mm: &Mm<'_>, place: Place, first: Box<dyn FnOnce() + '_>, second: &mut dyn FnMut()) {
    let host = mm.platform();
    host.place();
    host.aside(0, first, |_| {
        let at_io = |hooks: &std::cell::RefCell<std::collections::VecDeque<super::Hook>>, n| {
            (0..n).for_each(|_| hooks.borrow_mut().push_back(Box::new(|_| {})));
            hooks.borrow_mut().push_back(Box::new(stop));
        };
        match place {
            Place::Touch(n) => host.at_touch(0, n, stop),
            Place::Write(n) => at_io(&host.on_disk_write, n),
            Place::Read(n) => at_io(&host.on_disk_read, n),
            Place::Discard(n) => at_io(&host.on_discard, n),
        }
        host.resume();
        host.on(1, second);
    });
    host.all_placed();
}

/// For the second of a [`race`], before it begins: the two take turns, each after so many touches of the other's, and do not only stand in the middle of one
/// another.
pub fn take_turns(host: &Host, touches: &[u32]) {
    for (nth, &touches) in touches.iter().enumerate() {
        match nth % 2 {
            0 => host.at_touch(1, touches, |mm| _ = mm.platform().resume_any()),
            _ => host.at_touch(0, touches, stop),
        }
    }
}

/// Of long pieces of work, in which hardly a step is like its neighbours' and each comes round often, every third touch; all of them
/// in `make soak`.
pub fn every_third(place: Place) -> Place {
    match place {
        Place::Touch(n) if !super::soaks() => Place::Touch(3 * n),
        place => place,
    }
}

thread_local! {
    /// With a rule broken one of so many places is played; all of them in `make soak`.
    static CONTROLS: std::cell::Cell<u32> = const { std::cell::Cell::new(3) };
    /// Which of all places are played, where no rule is broken: each so many of them, from this one on.
    static PLACES: std::cell::Cell<(u32, u32)> = const { std::cell::Cell::new((0, 1)) };
}

/// Does this at a part of the places: see `parts!`.
pub fn at_places<R>((part, parts): (usize, usize), work: impl FnOnce() -> R) -> R {
    let before = PLACES.replace((part as u32, parts as u32));
    let result = work();
    PLACES.set(before);
    result
}

/// Does this at all places, also with a rule broken: for what goes wrong at a few of them only.
pub fn at_all_places<R>(work: impl FnOnce() -> R) -> R {
    let before = CONTROLS.replace(1);
    let result = work();
    CONTROLS.set(before);
    result
}

/// What came of each case.
pub struct Cases<R> {
    pub results: Vec<R>,
    /// Cases that ended with a panic of the core, or that hung: only with a rule broken.
    pub fell: usize,
}

impl<R> Cases<R> {
    /// How many came out so, and how many fell.
    pub fn count(&self, bad: impl Fn(&R) -> bool) -> usize {
        self.number(&bad)
    }

    fn number(&self, bad: &dyn Fn(&R) -> bool) -> usize {
        self.results.iter().filter(|&result| bad(result)).count() + self.fell
    }
}

/// Plays `case` at every touch of CPU 0's, or at a part of them ([`at_places`]). With no rule broken none may fall, nor hang.
pub fn at_every_touch<R>(
    setup: &Setup,
    config: &Config,
    broken: Option<Rule>,
    case: impl Fn(&Mm<'_>, Place) -> R,
) -> Cases<R> {
    each(setup, config, broken, &case)
}

/// By itself: else it is compiled for each case.
fn each<R>(
    setup: &Setup,
    config: &Config,
    broken: Option<Rule>,
    case: &dyn Fn(&Mm<'_>, Place) -> R,
) -> Cases<R> {
    let fell = std::cell::Cell::new(0);
    let (part, parts) = match broken {
        None => PLACES.get(),
        Some(_) if !super::soaks() => (0, CONTROLS.get()),
        Some(_) => (0, 1),
    };
    let (results, hung) = everywhere_as(setup, config, broken, |mm, n| {
        // Only from `race` on is anything placed.
        mm.platform().all_placed();
        mm.platform().patient.set(true);
        assert!(n < 50_000, "the work has no end");
        match catch_unwind(AssertUnwindSafe(|| case(mm, Place::Touch(n * parts + part)))) {
            Ok(result) => Some(result),
            Err(payload) if broken.is_none() || payload.is::<StandsStill>() => resume_unwind(payload),
            Err(_) => {
                fell.set(fell.get() + 1);
                None
            }
        }
    });
    assert!(broken.is_some() || hung == 0, "{hung} cases in which a CPU waits for ever");
    Cases { results: results.into_iter().flatten().collect(), fell: fell.get() + hung as usize }
}

/// Plays a case once.
pub fn at<R>(setup: &Setup, config: &Config, broken: Option<Rule>, case: impl FnOnce(&Mm<'_>) -> R) -> R {
    let host = Host::new(setup.clone());
    host.broken.set(broken);
    host.patient.set(true);
    host.run(*config, case)
}

impl<R> Cases<R> {
    /// Plays the same at other places, too.
    pub fn and_at(
        mut self,
        (setup, config, broken): (&Setup, &Config, Option<Rule>),
        places: impl Iterator<Item = Place>,
        case: impl Fn(&Mm<'_>, Place) -> R,
    ) -> Self {
        let case: &dyn Fn(&Mm<'_>, Place) -> R = &case;
        for place in places {
            let played = AssertUnwindSafe(|| at(setup, config, broken, |mm| case(mm, place)));
            match catch_unwind(played) {
                Ok(result) => self.results.push(result),
                Err(payload) if broken.is_none() => resume_unwind(payload),
                Err(_) => self.fell += 1,
            }
        }
        self
    }
}
