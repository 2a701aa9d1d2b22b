//! What each page may show: written by its owner alone, before and after each thing that it does, and asked by all.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use quietmm::{Error, Prot};

/// Steps of a page that are remembered. Whoever looks for longer than that is not judged.
const REMEMBERED: usize = 16;

/// What a load finds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shown {
    /// This.
    Value(u64),
    /// Nothing is mapped.
    NotMapped,
    /// The mapping does not permit it.
    NotPermitted,
}

impl Shown {
    /// What a load found, if that says anything of the page: memory and devices may fail at any time.
    pub fn of(result: Result<u64, Error>) -> Option<Shown> {
        match result {
            Ok(value) => Some(Shown::Value(value)),
            Err(Error::NotMapped(_)) => Some(Shown::NotMapped),
            Err(Error::NotPermitted(_)) => Some(Shown::NotPermitted),
            Err(_) => None,
        }
    }
}

/// A page as its owner left it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct State {
    /// `None` where nothing is mapped.
    pub prot: Option<Prot>,
    /// Its content.
    pub value: u64,
    /// Its content when it is dropped.
    pub base: u64,
    /// The page of the shared file that it is.
    pub file: Option<u64>,
}

impl State {
    /// Nothing is mapped.
    pub const GONE: State = State { prot: None, value: 0, base: 0, file: None };

    /// What a load finds.
    pub fn shown(self) -> Shown {
        match self.prot {
            None => Shown::NotMapped,
            Some(Prot::None) => Shown::NotPermitted,
            Some(_) => Shown::Value(self.value),
        }
    }
}

struct Page {
    state: State,
    /// Steps begun, and ended.
    begun: u64,
    ended: u64,
    /// What each of the last steps leads to, the newest last.
    steps: VecDeque<(u64, Shown)>,
}

/// The pages of some owners.
pub struct Ledger {
    pages: Vec<Page>,
}

/// A look at a page, from before it to after it.
#[derive(Clone, Copy)]
pub struct Look {
    page: usize,
    ended_before: u64,
}

impl Ledger {
    /// So many pages in this state.
    pub fn new(pages: usize, state: State) -> Ledger {
        let page = || Page { state, begun: 0, ended: 0, steps: VecDeque::from([(0, state.shown())]) };
        Ledger { pages: (0..pages).map(|_| page()).collect() }
    }

    /// What the owner left.
    pub fn state(&self, page: usize) -> State {
        self.pages[page].state
    }

    /// The owner begins something that leads to `next`: from now on both may be seen.
    pub fn begin(&mut self, page: usize, next: State) {
        let page = &mut self.pages[page];
        page.begun += 1;
        page.steps.push_back((page.begun, next.shown()));
        if page.steps.len() > REMEMBERED {
            page.steps.pop_front();
        }
    }

    /// It is done, and this is what came of it: what it was to lead to, or what was there before.
    pub fn end(&mut self, page: usize, now: State) {
        let page = &mut self.pages[page];
        page.state = now;
        page.ended = page.begun;
        if let Some(last) = page.steps.back_mut() {
            last.1 = now.shown();
        }
    }

    /// Somebody begins to look.
    pub fn look(&self, page: usize) -> Look {
        Look { page, ended_before: self.pages[page].ended }
    }

    /// Whether what was found could be seen at some time during the look.
    pub fn could_see(&self, look: Look, found: Shown) -> bool {
        let page = &self.pages[look.page];
        let oldest = page.steps.front().map_or(0, |step| step.0);
        oldest > look.ended_before
            || page.steps.iter().any(|&(step, shown)| step >= look.ended_before && shown == found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const READABLE: State = State { prot: Some(Prot::Read), ..State::GONE };

    #[test]
    fn both_ends_of_a_step_may_be_seen_while_it_runs_and_only_the_new_one_after() {
        let mut ledger = Ledger::new(1, READABLE);
        let (old, new) = (Shown::Value(0), Shown::Value(7));
        let early = ledger.look(0);
        assert!(ledger.could_see(early, old) && !ledger.could_see(early, new));
        ledger.begin(0, State { value: 7, ..READABLE });
        let during = ledger.look(0);
        ledger.end(0, State { value: 7, ..READABLE });
        let late = ledger.look(0);
        for look in [early, during] {
            assert!(ledger.could_see(look, old) && ledger.could_see(look, new));
        }
        assert!(!ledger.could_see(late, old) && ledger.could_see(late, new));
        assert!(!ledger.could_see(early, Shown::NotMapped));
    }

    #[test]
    fn a_step_that_failed_changed_nothing() {
        let mut ledger = Ledger::new(1, READABLE);
        ledger.begin(0, State::GONE);
        ledger.end(0, READABLE);
        assert!(!ledger.could_see(ledger.look(0), Shown::NotMapped));
        assert!(ledger.could_see(ledger.look(0), Shown::Value(0)));
    }

    #[test]
    fn who_looks_for_too_long_is_not_judged() {
        let mut ledger = Ledger::new(1, READABLE);
        let look = ledger.look(0);
        for value in 1..=REMEMBERED as u64 {
            ledger.begin(0, State { value, ..READABLE });
            ledger.end(0, State { value, ..READABLE });
        }
        assert!(ledger.could_see(look, Shown::NotMapped));
    }
}
