//! Sets of semaphores (System V): several are changed in one step, or none is.

use alloc::vec::Vec;
use core::ops::Range;

use crate::errno::Errno;
use crate::sync::Spin;

/// What is undone of a semaphore when a process ends.
struct Undo {
    pid: u32,
    index: u16,
    by: i32,
}

/// The highest value.
pub const HIGHEST: i32 = 32767;

/// One step of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Step {
    /// Which semaphore.
    pub index: u16,
    /// More or less by so many; 0: it is to be 0.
    pub by: i16,
    /// It does not wait for this.
    pub at_once: bool,
    /// It is undone when the process ends.
    pub undo: bool,
}

/// One of them.
#[derive(Clone, Copy, Default)]
pub struct Semaphore {
    /// Its value.
    pub value: i32,
    /// Who changed it last.
    pub pid: u32,
}

/// What a wait is for: which semaphore, and 1 if it is to be 0.
type Blocked = (usize, usize);

/// One that waits. Whoever changes the set does for it what it waits for, at once: before anybody else can change the set again.
struct Waiter {
    ticket: u64,
    steps: Vec<Step>,
    pid: u32,
    blocked: Blocked,
    answer: Option<Result<(), Errno>>,
}

/// The semaphores of a set, and what is undone of them.
#[derive(Default)]
struct Values {
    all: Vec<Semaphore>,
    undos: Vec<Undo>,
}

#[derive(Default)]
struct State {
    values: Values,
    gone: bool,
    /// When it was last used, and changed, in seconds since 1970.
    times: [u64; 2],
    /// In the order in which they came.
    waiters: Vec<Waiter>,
    tickets: u64,
}

impl Values {
    /// Takes all steps, or none: then it is said for what it would wait.
    fn take(&mut self, steps: &[Step], pid: u32) -> Result<Option<Blocked>, Errno> {
        let all = &mut self.all;
        for (taken, step) in steps.iter().enumerate() {
            let value = &mut all[usize::from(step.index)].value;
            let new = *value + i32::from(step.by);
            let waits = if step.by == 0 { *value != 0 } else { new < 0 };
            if !waits && new <= HIGHEST {
                *value = new;
                continue;
            }
            for step in &steps[..taken] {
                all[usize::from(step.index)].value -= i32::from(step.by);
            }
            return match () {
                () if !waits => Err(Errno::ERANGE),
                () if step.at_once => Err(Errno::EAGAIN),
                () => Ok(Some((usize::from(step.index), usize::from(step.by == 0)))),
            };
        }
        steps.iter().for_each(|step| all[usize::from(step.index)].pid = pid);
        // In the same step: whoever sets a value later forgets it.
        steps.iter().filter(|step| step.undo && step.by != 0).for_each(|step| self.note(step, pid));
        Ok(None)
    }

    /// A step is to be undone.
    fn note(&mut self, step: &Step, pid: u32) {
        let by = -i32::from(step.by);
        match self.undos.iter_mut().find(|undo| (undo.pid, undo.index) == (pid, step.index)) {
            Some(undo) => undo.by = (undo.by + by).clamp(-HIGHEST, HIGHEST),
            None => self.undos.push(Undo { pid, index: step.index, by }),
        }
        self.undos.retain(|undo| undo.by != 0);
    }

    /// What was done before to these is nothing to be undone.
    fn forget(&mut self, range: &Range<usize>) {
        self.undos.retain(|undo| !range.contains(&usize::from(undo.index)));
    }
}

impl Waiter {
    /// It changes nothing.
    fn only_looks(&self) -> bool {
        self.steps.iter().all(|step| step.by == 0)
    }
}

impl State {
    /// Something has changed: what others wait for is done, as far as it goes now. Those who change nothing come first: what they wait for may last until the
    /// next change only.
    fn settle(&mut self, now: u64) {
        while self.settle_some(true, now) || self.settle_some(false, now) {}
    }

    /// The same for those who change nothing, or for the first of the others for whom it goes; returns whether that one has changed something.
    fn settle_some(&mut self, looks: bool, now: u64) -> bool {
        let waits = |waiter: &&mut Waiter| waiter.answer.is_none() && waiter.only_looks() == looks;
        for waiter in self.waiters.iter_mut().filter(waits) {
            match self.values.take(&waiter.steps, waiter.pid) {
                Ok(Some(blocked)) => waiter.blocked = blocked,
                Ok(None) => {
                    waiter.answer = Some(Ok(()));
                    self.times[0] = now;
                    if !looks {
                        return true;
                    }
                }
                Err(error) => waiter.answer = Some(Err(error)),
            }
        }
        false
    }
}

/// A set.
pub struct Set(Spin<State>);

impl Set {
    /// So many, all 0.
    pub fn new(count: usize, now: u64) -> Set {
        Set(Spin::new(State {
            values: Values { all: alloc::vec![Semaphore::default(); count], undos: Vec::new() },
            times: [0, now],
            ..State::default()
        }))
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.0.with(|state| state.values.all.len())
    }

    /// Something about it has changed.
    pub fn touch(&self, now: u64) {
        self.0.with(|state| state.times[1] = now);
    }

    /// When it was last used, and changed.
    pub fn times(&self) -> [u64; 2] {
        self.0.with(|state| state.times)
    }

    /// Takes all steps, or none: then it waits, and has a number for that.
    ///
    /// # Errors
    /// `EIDRM`: it is gone; `EFBIG`: no such semaphore; `EAGAIN`, `ERANGE`.
    pub fn take(&self, steps: &[Step], pid: u32, now: u64) -> Result<Option<u64>, Errno> {
        self.0.with(|state| {
            if state.gone {
                return Err(Errno::EIDRM);
            }
            if steps.iter().any(|step| usize::from(step.index) >= state.values.all.len()) {
                return Err(Errno::EFBIG);
            }
            let Some(blocked) = state.values.take(steps, pid)? else {
                state.times[0] = now;
                state.settle(now);
                return Ok(None);
            };
            state.tickets += 1;
            let (ticket, steps, answer) = (state.tickets, steps.to_vec(), None);
            state.waiters.push(Waiter { ticket, steps, pid, blocked, answer });
            Ok(Some(ticket))
        })
    }

    /// Whether there is an answer for whoever waits.
    pub fn has_answer(&self, ticket: u64) -> bool {
        self.0.with(|state| {
            state.waiters.iter().any(|waiter| waiter.ticket == ticket && waiter.answer.is_some())
        })
    }

    /// It waits no more. Its answer, if there is one.
    pub fn leave(&self, ticket: u64) -> Option<Result<(), Errno>> {
        let gone = self.0.with(|state| {
            let at = state.waiters.iter().position(|waiter| waiter.ticket == ticket)?;
            Some(state.waiters.remove(at))
        });
        gone.and_then(|waiter| waiter.answer)
    }

    /// How many wait for one to be more, and how many for it to be 0.
    pub fn waiting(&self, index: usize) -> [u32; 2] {
        self.0.with(|state| {
            let mut waiting = [0; 2];
            for waiter in state.waiters.iter().filter(|waiter| waiter.answer.is_none()) {
                waiting[waiter.blocked.1] += u32::from(waiter.blocked.0 == index);
            }
            waiting
        })
    }

    /// One of them.
    ///
    /// # Errors
    /// `EINVAL`.
    pub fn get(&self, index: u64) -> Result<Semaphore, Errno> {
        let index = usize::try_from(index).map_err(|_| Errno::EINVAL)?;
        self.0.with(|state| state.values.all.get(index).copied()).ok_or(Errno::EINVAL)
    }

    /// All values.
    pub fn values(&self) -> Vec<i32> {
        self.0.with(|state| state.values.all.iter().map(|one| one.value).collect())
    }

    /// Sets values, from one on.
    ///
    /// # Errors
    /// `EINVAL`, `ERANGE`.
    pub fn set(&self, from: u64, values: &[i32], pid: u32, now: u64) -> Result<(), Errno> {
        if values.iter().any(|value| !(0..=HIGHEST).contains(value)) {
            return Err(Errno::ERANGE);
        }
        let from = usize::try_from(from).map_err(|_| Errno::EINVAL)?;
        self.0.with(|state| {
            let all = state
                .values
                .all
                .get_mut(from..)
                .filter(|all| all.len() >= values.len() && !values.is_empty());
            let all = all.ok_or(Errno::EINVAL)?;
            for (one, &value) in all.iter_mut().zip(values) {
                (one.value, one.pid) = (value, pid);
            }
            state.values.forget(&(from..from + values.len()));
            state.times[1] = now;
            state.settle(now);
            Ok(())
        })
    }

    /// What a process has done is undone, as far as that goes.
    pub fn undo(&self, pid: u32, now: u64) {
        self.0.with(|state| {
            let Values { all, undos } = &mut state.values;
            for undo in undos.iter().filter(|undo| undo.pid == pid) {
                let one = &mut all[usize::from(undo.index)];
                (one.value, one.pid) = ((one.value + undo.by).clamp(0, HIGHEST), pid);
            }
            undos.retain(|undo| undo.pid != pid);
            state.settle(now);
        });
    }

    /// It is gone: whoever waits hears of it.
    pub fn end(&self) {
        self.0.with(|state| {
            state.gone = true;
            let waiting = state.waiters.iter_mut().filter(|waiter| waiter.answer.is_none());
            waiting.for_each(|waiter| waiter.answer = Some(Err(Errno::EIDRM)));
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(index: u16, by: i16) -> Step {
        Step { index, by, at_once: false, undo: false }
    }

    #[test]
    fn all_steps_are_taken_or_none_is() {
        let set = Set::new(3, 0);
        assert_eq!(set.take(&[step(0, 2), step(1, 1)], 7, 0), Ok(None));
        let first = set.take(&[step(0, -1), step(1, -2)], 7, 0).unwrap().unwrap();
        assert_eq!((set.values(), set.waiting(1)), (alloc::vec![2, 1, 0], [1, 0]));
        assert_eq!((set.leave(first), set.waiting(1), set.get(1).unwrap().pid), (None, [0, 0], 7));
        // A step sees what those before it have done.
        assert_eq!(set.take(&[step(1, 1), step(1, -2), step(1, 0)], 8, 0), Ok(None));
        assert_eq!(set.values(), alloc::vec![2, 0, 0]);
        let second = set.take(&[step(0, 0)], 8, 0).unwrap().unwrap();
        assert_eq!(set.waiting(0), [0, 1]);
        let at_once = Step { at_once: true, ..step(2, -1) };
        assert_eq!(set.take(&[step(0, -1), at_once], 8, 0), Err(Errno::EAGAIN));
        assert_eq!(set.take(&[step(2, 1), step(0, i16::MAX)], 8, 0), Err(Errno::ERANGE));
        assert_eq!(set.take(&[step(3, 1)], 8, 0), Err(Errno::EFBIG));
        assert_eq!(set.values(), [2, 0, 0]);
        set.end();
        assert_eq!(
            (set.take(&[step(0, 1)], 8, 0), set.leave(second)),
            (Err(Errno::EIDRM), Some(Err(Errno::EIDRM)))
        );
    }

    #[test]
    fn who_waits_has_it_before_anybody_else() {
        let set = Set::new(2, 0);
        // Two wait for a 0 that lasts for a moment only, one for what the second of them gives.
        assert_eq!(set.take(&[step(0, 1)], 1, 0), Ok(None));
        let last = set.take(&[step(1, -1)], 4, 0).unwrap().unwrap();
        let waits =
            [2, 3].map(|pid| set.take(&[step(0, 0), step(1, i16::from(pid == 3))], pid, 0).unwrap().unwrap());
        assert_eq!((set.waiting(0), set.waiting(1)), ([0, 2], [1, 0]));
        assert_eq!(set.take(&[step(0, -1)], 1, 0), Ok(None));
        assert!(waits.iter().all(|&ticket| set.has_answer(ticket)) && set.has_answer(last));
        set.end();
        assert_eq!([waits[0], waits[1], last].map(|ticket| set.leave(ticket)), [Some(Ok(())); 3]);
        assert_eq!((set.values(), set.leave(last)), (alloc::vec![0, 0], None));
    }

    #[test]
    fn who_only_looks_is_answered_before_who_changes() {
        let set = Set::new(1, 0);
        assert_eq!(set.take(&[step(0, 1)], 1, 0), Ok(None));
        let takes = set.take(&[step(0, 0), step(0, 1)], 2, 0).unwrap().unwrap();
        let looks = set.take(&[step(0, 0)], 3, 0).unwrap().unwrap();
        let again = set.take(&[step(0, 0), step(0, 1)], 4, 0).unwrap().unwrap();
        assert_eq!(set.take(&[step(0, -1)], 1, 0), Ok(None));
        assert!(set.has_answer(takes) && set.has_answer(looks) && !set.has_answer(again));
        assert_eq!(set.values(), [1]);
    }

    #[test]
    fn what_was_done_before_a_value_was_set_is_not_undone() {
        let set = Set::new(2, 0);
        let undone = |index, by| Step { undo: true, ..step(index, by) };
        assert_eq!(set.take(&[undone(0, 3), undone(1, 2)], 7, 0), Ok(None));
        // One waits, and has it by somebody else's step before a value is set.
        let waits = set.take(&[undone(0, -4)], 8, 0).unwrap().unwrap();
        assert_eq!(set.take(&[step(0, 1)], 9, 0), Ok(None));
        assert_eq!(set.set(0, &[5], 9, 0), Ok(()));
        assert_eq!(set.leave(waits), Some(Ok(())));
        set.undo(8, 0);
        set.undo(7, 0);
        assert_eq!(set.values(), [5, 0], "of the second all is");
        assert_eq!(set.take(&[undone(0, -2), undone(0, 1)], 7, 0), Ok(None));
        // Whoever waits for it has what is undone.
        let last = set.take(&[step(0, -5)], 9, 0).unwrap().unwrap();
        set.undo(7, 0);
        assert_eq!((set.leave(last), set.values()), (Some(Ok(())), alloc::vec![0, 0]));
        set.undo(7, 0);
        assert_eq!(set.values(), [0, 0], "once");
    }
}
