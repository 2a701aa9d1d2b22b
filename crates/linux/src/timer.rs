//! Timers that are looked at, and not rung: whoever wants to know how often one has expired reckons.

use crate::sync::Spin;

/// A timer, on the machine's clock. All times in nanoseconds.
#[derive(Default)]
pub struct Timer {
    /// When it expires next, 0 if it does not, and how long until the time after that, 0 if there is none; and how often it has been set.
    state: Spin<((u64, u64), u64)>,
}

fn expired((at, every): (u64, u64), now: u64) -> u64 {
    match now.checked_sub(at) {
        Some(late) if at != 0 => late.checked_div(every).map_or(1, |more| more + 1),
        _ => 0,
    }
}

/// When it expires after so many times more. A program may ask for any time: one that no clock reaches is never.
fn after((at, every): (u64, u64), count: u64) -> u64 {
    at.saturating_add(count.saturating_mul(every))
}

/// When it expires next, after now.
fn next((at, every): (u64, u64), now: u64) -> Option<u64> {
    match expired((at, every), now) {
        0 => (at != 0).then_some(at),
        _ if every == 0 => None,
        count => Some(after((at, every), count)),
    }
}

/// How long it has to go, and its repetition.
fn left(state: (u64, u64), now: u64) -> (u64, u64) {
    (next(state, now).map_or(0, |at| at - now), state.1)
}

impl Timer {
    /// Sets it; returns how long it had to go, and its repetition.
    pub fn set(&self, at: u64, every: u64, now: u64) -> (u64, u64) {
        // In one step: of two who set it at once the second finds what the first has set, and whoever looks finds both or neither.
        let before = self.state.with(|(state, sets)| {
            *sets += 1;
            core::mem::replace(state, (at, every))
        });
        left(before, now)
    }

    fn now_set(&self) -> (u64, u64) {
        self.state.with(|(state, _)| *state)
    }

    /// How long it has to go, and its repetition.
    pub fn left(&self, now: u64) -> (u64, u64) {
        left(self.now_set(), now)
    }

    /// How often it has expired since it was asked last.
    pub fn take(&self, now: u64) -> u64 {
        self.state.with(|(state, _)| {
            let count = expired(*state, now);
            if count > 0 {
                state.0 = if state.1 == 0 { 0 } else { after(*state, count) };
            }
            count
        })
    }

    /// How often it has expired since; nothing is taken.
    pub fn ticks(&self, now: u64) -> u64 {
        expired(self.now_set(), now)
    }

    /// Whether it has expired since.
    pub fn is_due(&self, now: u64) -> bool {
        expired(self.now_set(), now) > 0
    }

    /// When it expires next, after now.
    pub fn next(&self, now: u64) -> Option<u64> {
        next(self.now_set(), now)
    }

    /// A number that is another one after each expiry.
    pub fn changes(&self, now: u64) -> u64 {
        let ((at, every), sets) = self.state.with(|state| *state);
        let next = match expired((at, every), now) {
            0 => at,
            count => at.wrapping_add(count.wrapping_mul(every.max(1))),
        };
        sets.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_expired_is_counted_once() {
        let timer = Timer::default();
        assert_eq!((timer.take(50), timer.next(50), timer.left(50)), (0, None, (0, 0)));
        timer.set(100, 10, 50);
        assert_eq!((timer.is_due(99), timer.next(99), timer.left(99)), (false, Some(100), (1, 10)));
        assert_eq!((timer.is_due(100), timer.next(100)), (true, Some(110)));
        assert_ne!(timer.changes(99), timer.changes(100));
        assert_eq!(timer.changes(100), timer.changes(109));
        assert_eq!((timer.take(135), timer.take(135), timer.next(135)), (4, 0, Some(140)));
        assert_eq!(timer.set(200, 0, 135), (5, 10));
        assert_eq!((timer.next(200), timer.take(500), timer.take(500)), (None, 1, 0));
    }

    #[test]
    fn what_repeats_after_longer_than_any_clock_goes_expires_once() {
        let timer = Timer::default();
        for every in [u64::MAX, u64::MAX - 100, 1 << 63] {
            timer.set(100, every, 0);
            assert!(timer.next(150).is_some_and(|next| next > 150));
            assert_eq!(
                (timer.take(150), timer.take(1 << 40), timer.is_due(1 << 62)),
                (1, 0, false),
                "{every:#x}"
            );
            assert!(timer.next(1 << 40).is_some_and(|next| next > 1 << 62));
        }
    }
}
