//! Timers of a process (`timer_create`): they ring by a signal.

use alloc::sync::Arc;

use crate::call::time::is_of_machine;
use crate::errno::{Answer, Errno};
use crate::kernel::{Linux, SHORTEST};
use crate::machine::Machine;
use crate::meters::{LOOKS, soonest};
use crate::process::{Clock, Process, Ringer, Thread};
use crate::signal::{Info, number};
use crate::timer::Timer;

/// Timers that a process may have.
const MOST: usize = 256;
/// The reason that such a signal gives.
pub(super) const BY_TIMER: i32 = -2;

fn overruns(before: u64, more: u64) -> u64 {
    before.saturating_add(more).min(i32::MAX as u64)
}

impl<M: Machine> Linux<'_, M> {
    pub(crate) fn timer_create(&self, thread: &Thread, clock: u64, event: u64, to: u64) -> Answer {
        const SIGNAL: u32 = 0;
        const NOTHING: u32 = 1;
        const THREAD: u32 = 4;
        let clock = match clock as u32 {
            4..=6 => return Err(Errno::EOPNOTSUPP),
            _ if is_of_machine(clock) => Clock::Machine(clock),
            _ => Clock::Cpus(self.metered(thread, clock)?),
        };
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
        if how == THREAD && process.thread(tid).is_none() {
            return Err(Errno::EINVAL);
        }
        let thread = (how == THREAD).then_some(tid);
        let id = process.timers.with(|timers| {
            if timers.len() >= MOST {
                return Err(Errno::EAGAIN);
            }
            let id = (0..).find(|id| !timers.contains_key(id)).expect("few are there");
            let value = value.unwrap_or(id.into());
            let (timer, overruns, rang) = (Timer::default(), 0, 0);
            timers.insert(id, Ringer { timer, clock, signal, thread, value, overruns, rang });
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
        let clock = self.with_timer(thread, id, |ringer| ringer.clock.clone())?;
        let (now, ahead) = match &clock {
            Clock::Machine(clock) => (self.now(), self.ahead(thread, *clock)?),
            Clock::Cpus(metered) => (metered.read(self.now()).ok_or(Errno::ESRCH)?.0, 0),
        };
        let (due, every) = self.load_timer(new, flags & ABSOLUTE != 0, ahead, now)?;
        let before = self.with_timer(thread, id, |ringer| {
            (ringer.overruns, ringer.rang) = (0, 0);
            ringer.timer.set(due, every, now)
        })?;
        self.alarm_changed();
        if old == 0 { Ok(0) } else { self.store_timer(old, before) }
    }

    pub(crate) fn timer_gettime(&self, thread: &Thread, id: u64, to: u64) -> Answer {
        let left = self.with_timer(thread, id, |ringer| {
            let now = self.now();
            match ringer.used(now) {
                // Nobody is there any more who could use any.
                Some((_, 0)) => (0, 0),
                used => ringer.timer.left(used.map_or(now, |used| used.0)),
            }
        })?;
        self.store_timer(to, left)
    }

    pub(crate) fn timer_getoverrun(&self, thread: &Thread, id: u64) -> Answer {
        self.with_timer(thread, id, |ringer| ringer.overruns)
    }

    pub(crate) fn timer_delete(&self, thread: &Thread, id: u64) -> Answer {
        thread.process.timers.with(|timers| timers.remove(&(id as u32))).map(|_| 0).ok_or(Errno::EINVAL)
    }

    /// Rings those of a process that are due, and its alarm; returns when the next one is.
    pub(crate) fn ring(&self, process: &Arc<Process>, now: u64) -> u64 {
        process.ringing.with(self.machine, |()| self.ring_due(process, now))
    }

    fn ring_due(&self, process: &Arc<Process>, now: u64) -> u64 {
        let (alarm, is_due) = process.alarm.with(|(at, every)| {
            let is_due = *at != 0 && *at <= now;
            if is_due {
                // What comes more often than this machine can tell is late.
                *at = if *every > 0 { now.saturating_add((*every).max(SHORTEST)) } else { 0 };
            }
            (*at, is_due)
        });
        let mut due = alloc::vec::Vec::new();
        let next = process.timers.with(|timers| {
            let ring = |(&id, ringer): (&u32, &mut Ringer)| {
                // One that expires more often than this is late, and says how often it has.
                let again = if ringer.rang == 0 { 0 } else { ringer.rang + SHORTEST };
                let used = ringer.used(now);
                let time = used.map_or(now, |used| used.0);
                let count = if now < again { 0 } else { ringer.timer.take(time) };
                if count > 0 {
                    ringer.rang = now;
                    due.push((id, ringer.signal, ringer.thread, ringer.value, count));
                }
                let next = if ringer.timer.is_due(time) { Some(time) } else { ringer.timer.next(time) };
                let next = next.map(|next| match used {
                    None => next,
                    // Of its own it is looked again when there are more threads.
                    Some(used) if ringer.is_of(process) => soonest(now, used, next),
                    Some(used) => soonest(now, used, next).min(now + LOOKS),
                });
                next.map(|next| next.max(if count > 0 { now + SHORTEST } else { again }))
            };
            timers.iter_mut().filter_map(ring).min()
        });
        let mut hear = alloc::vec::Vec::new();
        for (id, signal, tid, value, count) in due.into_iter().filter(|&(_, signal, ..)| signal != 0) {
            let thread = match tid.map(|tid| process.thread(tid)) {
                // Whoever was to hear it is gone.
                Some(None) => continue,
                Some(found) => found,
                None => None,
            };
            let infos = thread.as_ref().map_or(&process.infos, |thread| &thread.infos);
            // One that nobody has heard yet is not sent again: it says how often it would have been.
            let waits = infos.with(|infos| {
                let same = |info: &&mut Info| {
                    info.signal == signal && info.code == BY_TIMER && info.word as u32 == id
                };
                let found = infos.iter_mut().find(same);
                found.map(|info| info.word = u64::from(id) | overruns(info.word >> 32, count) << 32)
            });
            if waits.is_none() {
                let word = u64::from(id) | overruns(0, count - 1) << 32;
                hear.push((thread, Info { signal, code: BY_TIMER, word, value, error: 0 }));
            }
        }
        if is_due {
            hear.push((None, Info { signal: number::ALARM, code: 128, ..Info::default() }));
        }
        // Those that are due at once are all there before one of them is heard.
        hear.retain(|(thread, info)| self.leave_signal(process, thread.as_ref(), *info));
        hear.iter().for_each(|(thread, info)| self.nudge_for(process, thread.as_ref(), info.signal));
        let alarm = if alarm == 0 { u64::MAX } else { alarm };
        next.unwrap_or(u64::MAX).min(alarm)
    }

    /// A signal is heard: one by a timer says how often that has expired until now.
    pub(crate) fn heard_timer(&self, thread: &Thread, mut info: Info) -> Info {
        let id = info.word as u32;
        if info.code == BY_TIMER {
            thread.process.timers.with(|timers| {
                let Some(ringer) = timers.get_mut(&id).filter(|ringer| ringer.signal == info.signal) else {
                    return;
                };
                let now = self.now();
                let now = ringer.used(now).map_or(now, |used| used.0);
                // What does not repeat rings by itself.
                let more = if ringer.timer.left(now).1 > 0 { ringer.timer.take(now) } else { 0 };
                ringer.overruns = overruns(info.word >> 32, more);
                info.word = u64::from(id) | ringer.overruns << 32;
            });
        }
        info
    }
}
