//! Sets of semaphores (System V): several are changed in one step, or none is.

use alloc::sync::Weak;
use alloc::vec::Vec;

use crate::errno::Errno;
use crate::sync::Spin;

/// What a process has done to a semaphore, and what is undone when it ends.
pub struct Undo {
    pub set: Weak<Set>,
    pub index: u16,
    pub by: i32,
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
    /// How many wait for it to be more, and how many for it to be 0.
    pub waiting: [u32; 2],
}

/// What a wait is for: which semaphore, and 1 if it is to be 0.
pub type Blocked = (usize, usize);

#[derive(Default)]
struct State {
    all: Vec<Semaphore>,
    gone: bool,
    /// When it was last used, and changed, in seconds since 1970.
    times: [u64; 2],
}

/// A set.
pub struct Set(Spin<State>);

impl Set {
    /// So many, all 0.
    pub fn new(count: usize, now: u64) -> Set {
        Set(Spin::new(State { all: alloc::vec![Semaphore::default(); count], gone: false, times: [0, now] }))
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.0.with(|state| state.all.len())
    }

    /// When it was last used, and changed.
    pub fn times(&self) -> [u64; 2] {
        self.0.with(|state| state.times)
    }

    /// Takes all steps, or none: then `blocked` says for what it waits, and the set counts that.
    ///
    /// # Errors
    /// `EIDRM`: it is gone; `EFBIG`: no such semaphore; `EAGAIN`, `ERANGE`.
    pub fn take(
        &self,
        steps: &[Step],
        pid: u32,
        now: u64,
        blocked: &mut Option<Blocked>,
    ) -> Result<bool, Errno> {
        self.0.with(|state| {
            if let Some((index, which)) = blocked.take() {
                state.all[index].waiting[which] -= 1;
            }
            if state.gone {
                return Err(Errno::EIDRM);
            }
            if steps.iter().any(|step| usize::from(step.index) >= state.all.len()) {
                return Err(Errno::EFBIG);
            }
            let mut taken = 0;
            let mut refused = None;
            for step in steps {
                let value = &mut state.all[usize::from(step.index)].value;
                let new = *value + i32::from(step.by);
                let waits = if step.by == 0 { *value != 0 } else { new < 0 };
                if waits || new > HIGHEST {
                    refused = Some((step, waits));
                    break;
                }
                *value = new;
                taken += 1;
            }
            let Some((step, waits)) = refused else {
                steps.iter().for_each(|step| state.all[usize::from(step.index)].pid = pid);
                state.times[0] = now;
                return Ok(true);
            };
            for step in &steps[..taken] {
                state.all[usize::from(step.index)].value -= i32::from(step.by);
            }
            match () {
                () if !waits => Err(Errno::ERANGE),
                () if step.at_once => Err(Errno::EAGAIN),
                () => {
                    let (index, which) = (usize::from(step.index), usize::from(step.by == 0));
                    state.all[index].waiting[which] += 1;
                    *blocked = Some((index, which));
                    Ok(false)
                }
            }
        })
    }

    /// Nobody waits for this any more.
    pub fn leave(&self, blocked: Option<Blocked>) {
        if let Some((index, which)) = blocked {
            self.0.with(|state| state.all[index].waiting[which] -= 1);
        }
    }

    /// One of them.
    ///
    /// # Errors
    /// `EINVAL`.
    pub fn get(&self, index: u64) -> Result<Semaphore, Errno> {
        let index = usize::try_from(index).map_err(|_| Errno::EINVAL)?;
        self.0.with(|state| state.all.get(index).copied()).ok_or(Errno::EINVAL)
    }

    /// All values.
    pub fn values(&self) -> Vec<i32> {
        self.0.with(|state| state.all.iter().map(|one| one.value).collect())
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
            let all = state.all.get_mut(from..).filter(|all| all.len() >= values.len() && !values.is_empty());
            let all = all.ok_or(Errno::EINVAL)?;
            for (one, &value) in all.iter_mut().zip(values) {
                (one.value, one.pid) = (value, pid);
            }
            state.times[1] = now;
            Ok(())
        })
    }

    /// What a process has done is undone, as far as that goes.
    pub fn undo(&self, index: u16, by: i32, pid: u32) {
        self.0.with(|state| {
            if let Some(one) = state.all.get_mut(usize::from(index)) {
                (one.value, one.pid) = ((one.value + by).clamp(0, HIGHEST), pid);
            }
        });
    }

    /// It is gone: whoever waits hears of it.
    pub fn end(&self) {
        self.0.with(|state| state.gone = true);
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
        let (set, mut blocked) = (Set::new(3, 0), None);
        assert_eq!(set.take(&[step(0, 2), step(1, 1)], 7, 0, &mut blocked), Ok(true));
        assert_eq!(set.take(&[step(0, -1), step(1, -2)], 7, 0, &mut blocked), Ok(false));
        assert_eq!((set.values(), blocked), (alloc::vec![2, 1, 0], Some((1, 0))));
        assert_eq!((set.get(1).unwrap().waiting, set.get(1).unwrap().pid), ([1, 0], 7));
        // A step sees what those before it have done.
        assert_eq!(set.take(&[step(1, 1), step(1, -2), step(1, 0)], 8, 0, &mut blocked), Ok(true));
        assert_eq!(
            (set.values(), blocked, set.get(1).unwrap().waiting),
            (alloc::vec![2, 0, 0], None, [0, 0])
        );
        assert_eq!(set.take(&[step(0, 0)], 8, 0, &mut blocked), Ok(false));
        assert_eq!(set.get(0).unwrap().waiting, [0, 1]);
        set.leave(blocked.take());
        assert_eq!(set.get(0).unwrap().waiting, [0, 0]);
        let at_once = Step { at_once: true, ..step(2, -1) };
        assert_eq!(set.take(&[step(0, -1), at_once], 8, 0, &mut blocked), Err(Errno::EAGAIN));
        assert_eq!(set.take(&[step(2, 1), step(0, i16::MAX)], 8, 0, &mut blocked), Err(Errno::ERANGE));
        assert_eq!(set.take(&[step(3, 1)], 8, 0, &mut blocked), Err(Errno::EFBIG));
        assert_eq!(set.values(), [2, 0, 0]);
        set.end();
        assert_eq!(set.take(&[step(0, 1)], 8, 0, &mut blocked), Err(Errno::EIDRM));
    }
}
