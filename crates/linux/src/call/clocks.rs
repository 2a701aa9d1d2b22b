//! Timers of a process (`timer_create`): they ring by a signal.

use alloc::sync::Arc;

use crate::errno::{Answer, Errno};
use crate::kernel::Linux;
use crate::machine::Machine;
use crate::process::{Process, Ringer, Thread};
use crate::signal::{Info, number};
use crate::timer::Timer;

/// Timers that a process may have.
const MOST: usize = 256;
/// The reason that such a signal gives.
const BY_TIMER: i32 = -2;

impl<M: Machine> Linux<'_, M> {
    pub(crate) fn timer_create(&self, thread: &Thread, clock: u64, event: u64, to: u64) -> Answer {
        const SIGNAL: u32 = 0;
        const NOTHING: u32 = 1;
        const THREAD: u32 = 4;
        self.clock_of(thread, clock)?;
        let process = &thread.process;
        let (value, signal, how, tid) = match event {
            0 => (None, number::ALARM, SIGNAL, 0),
            at => (
                Some(self.load_long(at)?),
                self.load_word(at + 8)?,
                self.load_word(at + 12)?,
                self.load_word(at + 16)?,
            ),
        };
        let signal = match how {
            NOTHING => 0,
            SIGNAL | THREAD if (1..=number::LAST).contains(&signal) => signal,
            _ => return Err(Errno::EINVAL),
        };
        if how == THREAD && !process.threads.with(|threads| threads.iter().any(|thread| thread.tid == tid)) {
            return Err(Errno::EINVAL);
        }
        let thread = (how == THREAD).then_some(tid);
        let id = process.timers.with(|timers| {
            if timers.len() >= MOST {
                return Err(Errno::EAGAIN);
            }
            let id = (0..).find(|id| !timers.contains_key(id)).expect("few are there");
            let value = value.unwrap_or(id.into());
            let (timer, overruns) = (Timer::default(), 0);
            timers.insert(id, Ringer { timer, clock, signal, thread, value, overruns });
            Ok(id)
        })?;
        self.machine.write_user(to, &id.to_le_bytes()).map(|()| 0)
    }

    fn with_timer<R>(
        &self,
        thread: &Thread,
        id: u64,
        work: impl FnOnce(&mut Ringer) -> R,
    ) -> Result<R, Errno> {
        let id = id as u32;
        thread.process.timers.with(|timers| timers.get_mut(&id).map(work)).ok_or(Errno::EINVAL)
    }

    pub(crate) fn timer_settime(&self, thread: &Thread, [id, flags, new, old]: [u64; 4]) -> Answer {
        const ABSOLUTE: u64 = 1;
        let clock = self.with_timer(thread, id, |ringer| ringer.clock)?;
        let (due, every) = self.load_timer(new, flags & ABSOLUTE != 0, self.ahead(thread, clock)?)?;
        let now = self.now();
        let before = self.with_timer(thread, id, |ringer| {
            ringer.overruns = 0;
            ringer.timer.set(due, every, now)
        })?;
        self.alarm_changed();
        if old == 0 { Ok(0) } else { self.store_timer(old, before) }
    }

    pub(crate) fn timer_gettime(&self, thread: &Thread, id: u64, to: u64) -> Answer {
        let left = self.with_timer(thread, id, |ringer| ringer.timer.left(self.now()))?;
        self.store_timer(to, left)
    }

    pub(crate) fn timer_getoverrun(&self, thread: &Thread, id: u64) -> Answer {
        self.with_timer(thread, id, |ringer| ringer.overruns)
    }

    pub(crate) fn timer_delete(&self, thread: &Thread, id: u64) -> Answer {
        thread.process.timers.with(|timers| timers.remove(&(id as u32))).map(|_| 0).ok_or(Errno::EINVAL)
    }

    /// Rings those of a process that are due; gives when the next one is.
    pub(crate) fn ring(&self, process: &Arc<Process>, now: u64) -> Option<u64> {
        let mut due = alloc::vec::Vec::new();
        let next = process.timers.with(|timers| {
            for (&id, ringer) in timers.iter_mut() {
                let count = ringer.timer.take(now);
                if count > 0 {
                    ringer.overruns = count - 1;
                    due.push((id, ringer.signal, ringer.thread, ringer.value, count - 1));
                }
            }
            timers.values().filter_map(|ringer| ringer.timer.next(now)).min()
        });
        for (id, signal, tid, value, overruns) in due.into_iter().filter(|&(_, signal, ..)| signal != 0) {
            let word = u64::from(id) | overruns << 32;
            let find = |tid| process.threads.with(|all| all.iter().find(|thread| thread.tid == tid).cloned());
            let thread = match tid.map(find) {
                // Whoever was to hear it is gone.
                Some(None) => continue,
                Some(found) => found,
                None => None,
            };
            let infos = thread.as_ref().map_or(&process.infos, |thread| &thread.infos);
            // One that nobody has heard yet is not sent again.
            let waits = infos.with(|infos| {
                infos
                    .iter()
                    .any(|info| info.signal == signal && info.code == BY_TIMER && info.word as u32 == id)
            });
            if !waits {
                self.post(process, thread.as_ref(), Info { signal, code: BY_TIMER, word, value });
            }
        }
        next
    }
}
