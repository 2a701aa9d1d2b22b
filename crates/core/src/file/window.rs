//! How far to read ahead of a use of a file, by what it did last.

use core::ops::Range;
use core::sync::atomic::Ordering;

use crate::platform::Hooks;
use crate::sync::Word64;

/// Pages of the first window.
const START: u64 = 4;
/// So many pages must lie before the one that a jump leads to, or it is taken for one.
const RUN: u64 = 2;

/// What one open use of a file remembers of where it reads: a kernel keeps one for each descriptor, and hands it to
/// [`File::read_with`](crate::File::read_with). Threads may share it. It is advice: whatever it says, what is read is right.
#[doc(alias = "file_ra_state")]
#[derive(Default)]
pub struct ReadAhead(Word64);

/// The same, unpacked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Run {
    /// Behind the page that was used last.
    next: u64,
    /// Behind the last page that was asked for, or read ahead.
    end: u64,
    /// Pages of the newest window: a power of two, or none.
    window: u64,
}

/// Pages to be read with, or behind, one that is wanted.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Window {
    pub pages: Range<u64>,
    /// From here on nobody has asked for them.
    pub ahead: u64,
}

const NEXT_BITS: u32 = 40;
const LEFT_BITS: u32 = 16;

impl Run {
    fn pack(self) -> u64 {
        let log = if self.window == 0 { 0 } else { u64::from(self.window.ilog2()) + 1 };
        let left = self.end.saturating_sub(self.next).min((1 << LEFT_BITS) - 1);
        self.next & ((1 << NEXT_BITS) - 1) | left << NEXT_BITS | log << (NEXT_BITS + LEFT_BITS)
    }

    fn unpack(word: u64) -> Run {
        let next = word & ((1 << NEXT_BITS) - 1);
        let left = word >> NEXT_BITS & ((1 << LEFT_BITS) - 1);
        let log = word >> (NEXT_BITS + LEFT_BITS);
        Run { next, end: next + left, window: if log == 0 { 0 } else { 1 << (log - 1) } }
    }

    /// Whether a use of this page goes on where the last one was, or anywhere up to the end of what was read for it: whoever maps
    /// neighbours too comes only to some pages.
    fn goes_on_at(self, index: u64) -> bool {
        self.next.saturating_sub(1) <= index && index <= self.end
    }

    /// A page is used that is in the cache: the state from now on, and what to read.
    fn hit(self, index: u64, most: u64) -> (Run, Window) {
        let next = index + 1;
        if !self.goes_on_at(index) {
            return (Run { next, end: next, window: 0 }, Window::default());
        }
        if self.window == 0 || index + self.window < self.end {
            return (Run { next: self.next.max(next), end: self.end.max(next), ..self }, Window::default());
        }
        let (ahead, window) = (self.end.max(next), (2 * self.window).min(most));
        (Run { next, end: ahead + window, window }, Window { pages: ahead..ahead + window, ahead })
    }

    /// A page is used that is not, as the first of so many; so many before it, of `most` that were looked at, are.
    fn miss(self, index: u64, asked: u64, most: u64, before: impl FnOnce() -> u64) -> (Run, Window) {
        let next = index + 1;
        let ahead = index + asked.clamp(1, most);
        let window = if index == self.end && self.window > 0 {
            2 * self.window
        } else if self.goes_on_at(index) {
            // The first; or what was read ahead is gone again before it was used.
            START.max((ahead - index).next_power_of_two())
        } else {
            match before() {
                run if run < RUN => 0,
                run => START.max(run.next_power_of_two()),
            }
        };
        let window = window.min(most);
        (Run { next, end: ahead + window, window }, Window { pages: next..ahead + window, ahead })
    }
}

impl Window {
    pub fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }
}

impl ReadAhead {
    /// Of a use that has not begun.
    pub const fn new() -> Self {
        ReadAhead(Word64::new(0))
    }

    /// Forgets what was.
    pub(super) fn clear<P: Hooks>(&self, p: &P) {
        self.0.set(p, 0);
    }

    /// What to read now that the use comes to a page that is in the cache; no window is larger than `most`.
    pub(crate) fn hit<P: Hooks>(&self, p: &P, index: u64, most: u64) -> Window {
        self.step(p, |run| run.hit(index, most))
    }

    /// What to read with a page that is not, the first of so many that are wanted. `before` says how many right before it are, of `most`.
    pub(crate) fn miss<P: Hooks>(
        &self,
        p: &P,
        (index, asked): (u64, u64),
        most: u64,
        before: impl FnOnce() -> u64,
    ) -> Window {
        self.step(p, |run| run.miss(index, asked, most, before))
    }

    /// Of two who change it at once one is forgotten.
    fn step<P: Hooks>(&self, p: &P, step: impl FnOnce(Run) -> (Run, Window)) -> Window {
        let was = self.0.load(p, Ordering::Relaxed);
        let (run, window) = step(Run::unpack(was));
        if run.pack() != was {
            self.0.store(p, run.pack(), Ordering::Relaxed);
        }
        window
    }
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;

    const MOST: u64 = 32;

    /// A use, and a cache in which all stays that was read.
    #[derive(Default)]
    struct Use {
        run: Run,
        cached: Vec<u64>,
    }

    impl Default for Run {
        fn default() -> Run {
            Run::unpack(0)
        }
    }

    impl Use {
        /// Uses `asked` pages from `index` on; what is read ahead for it.
        fn reads(&mut self, index: u64, asked: u64) -> u64 {
            let mut ahead = 0;
            for at in index..index + asked {
                let before = (0..at).rev().take(MOST as usize);
                let before = before.take_while(|page| self.cached.contains(page)).count() as u64;
                let (run, window) = match self.cached.contains(&at) {
                    true => self.run.hit(at, MOST),
                    false => self.run.miss(at, index + asked - at, MOST, || before),
                };
                self.run = Run::unpack(run.pack());
                assert_eq!(self.run, run, "what is packed is what there was");
                ahead += window.pages.end.saturating_sub(window.pages.start.max(window.ahead));
                self.cached.extend(window.pages.chain([at]));
            }
            ahead
        }
    }

    #[test]
    fn a_window_doubles_up_to_the_bound_and_the_next_begins_at_its_mark() {
        let mut by_one = Use::default();
        let read: Vec<u64> = (0..64).map(|at| by_one.reads(at, 1)).collect();
        let windows: Vec<(usize, u64)> =
            read.into_iter().enumerate().filter(|&(_, ahead)| ahead > 0).collect();
        // Miss at 0: 1 to 4. At 1: 5 to 12. At 5: 13 to 28. At 13: 29 to 60. At 29: 61 to 92. At 61 again.
        assert_eq!(windows, [(0, 4), (1, 8), (5, 16), (13, 32), (29, 32), (61, 32)]);
    }

    #[test]
    fn random_use_has_no_window_and_what_is_asked_for_is_not_ahead() {
        let mut random = Use::default();
        for at in [90, 7, 300, 41, 1000, 13, 77] {
            assert_eq!(random.reads(at, 1), 0);
        }
        // A jump of several pages: what is asked for comes at once, and it is no more.
        assert_eq!(random.reads(500, 8), 0);
        // The same place again is no jump.
        assert_eq!(random.reads(508, 1), START);
        // Control: an ordered use of the same pages.
        let mut ordered = Use::default();
        assert!([7, 8, 9].map(|at| ordered.reads(at, 1)).into_iter().sum::<u64>() > 0);
    }

    #[test]
    fn what_is_read_with_a_miss_is_at_most_twice_the_bound() {
        let open = Use::default();
        for asked in [MOST, MOST + 1, 8 * MOST] {
            let (run, window) = open.run.miss(0, asked, MOST, || 0);
            assert_eq!((window.ahead, window.pages, run.window), (MOST, 1..2 * MOST, MOST), "{asked}");
        }
    }

    #[test]
    fn a_jump_behind_a_run_that_is_in_the_cache_goes_on_with_it() {
        let mut shared = Use::default();
        let mut ahead = 0;
        for step in 0..40 {
            ahead += shared.reads(step, 1) + shared.reads(5000 + step, 1);
        }
        assert!(ahead > 60, "{ahead} pages were read ahead of two who share a use");
        // One page is no run.
        let mut one = Use { cached: [70].to_vec(), ..Use::default() };
        assert_eq!(one.reads(71, 1), 0);
        let mut two = Use { cached: [70, 71].to_vec(), ..Use::default() };
        assert_eq!(two.reads(72, 1), START);
    }

    #[test]
    fn what_is_gone_before_it_was_used_makes_the_window_small_again() {
        let mut open = Use::default();
        (0..40).for_each(|at| _ = open.reads(at, 1));
        assert_eq!(open.run.window, MOST);
        open.cached.retain(|&at| at < 40);
        assert_eq!(open.reads(40, 1), START);
    }

    #[test]
    fn a_use_that_comes_back_to_where_it_was_long_ago_does_not_go_on() {
        let mut open = Use::default();
        (0..12).for_each(|at| _ = open.reads(at, 1));
        // The page that was used last is where it is, and those before it are not.
        assert_eq!(open.reads(11, 1), 0);
        assert!(open.run.goes_on_at(11) && !open.run.goes_on_at(10));
        open.reads(3, 1);
        assert_eq!(open.run, Run { next: 4, end: 4, window: 0 });
    }

    #[test]
    fn the_end_of_the_longest_file_is_packed_without_a_panic() {
        let mut open = Use::default();
        let last = crate::file::MAX_PAGES - 1;
        open.reads(last - 1, 1);
        let (run, _) = open.run.miss(last, 1, MOST, || 0);
        assert_eq!(Run::unpack(run.pack()).next, 0, "it has come round: it is advice");
    }
}
