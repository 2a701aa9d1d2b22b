//! Calls about time, and about the system as a whole.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use crate::errno::{Answer, Errno};
use crate::kernel::{Linux, RESTART, UNLESS_HANDLED, Waited};
use crate::layout::Pack;
use crate::machine::Machine;
use crate::meters::{LOOKS, Metered, soonest};
use crate::process::{Process, Thread};
use crate::sync::key_of;
use crate::usage::Usage;

/// Whether a clock is the machine's, or one ahead of it.
pub(super) fn is_of_machine(clock: u64) -> bool {
    matches!(clock as u32, 0..=1 | 7..=9 | 11)
}

/// A sleep was interrupted that ends then, and goes on behind a signal that nobody handles.
fn restarts_at(thread: &Thread, until: u64) -> Errno {
    thread.deadline.with(|at| *at = Some(until));
    RESTART
}

impl<M: Machine> Linux<'_, M> {
    /// What a process has used of CPUs.
    pub(crate) fn spent(&self, process: &Process) -> u64 {
        process.spent(self.now()).0
    }

    /// What was used, as `getrusage` has it.
    pub(crate) fn store_usage(&self, to: u64, used: &Usage) -> Result<(), Errno> {
        let head = Pack::default().long(used.spent / 1_000_000_000).long(used.spent % 1_000_000_000 / 1000);
        let memory = head.zeros_to(32).long(used.peak_kib).zeros_to(64).long(used.faults);
        self.machine.write_user(to, &memory.zeros_to(144).0)
    }

    pub(crate) fn getrusage(&self, thread: &Thread, whose: u64, to: u64) -> Answer {
        let used = match whose as i32 {
            0 => self.used_by(&thread.process),
            -1 => Self::used_by_children(&thread.process),
            1 => Usage { spent: thread.ran.read(self.now()), ..self.used_by(&thread.process) },
            _ => return Err(Errno::EINVAL),
        };
        self.store_usage(to, &used).map(|()| 0)
    }

    /// A clock in nanoseconds: of the wall, of the machine, or of what a process or a thread has used.
    pub(super) fn clock_of(&self, thread: &Thread, clock: u64) -> Result<u64, Errno> {
        match clock as u32 {
            0 | 5 | 8 | 11 => Ok(self.clock()),
            1 | 4 | 6 | 7 | 9 => Ok(self.now()),
            3 => Ok(thread.ran.read(self.now())),
            _ => self.metered(thread, clock)?.read(self.now()).map(|(used, _)| used).ok_or(Errno::EINVAL),
        }
    }

    /// Whose use of CPUs a clock tells: of a process or a thread by number, or its own.
    pub(super) fn metered(&self, thread: &Thread, clock: u64) -> Result<Metered, Errno> {
        let clock = clock as u32 as i32;
        let (number, of_thread) = match clock {
            2 | 3 => (0, clock == 3),
            clock if clock < 0 && clock & 3 != 3 => (!(clock >> 3) as u32, clock & 4 != 0),
            _ => return Err(Errno::EINVAL),
        };
        let own = &thread.process;
        if of_thread {
            // Clocks of others' threads are nobody else's.
            let found = own.thread(if number == 0 { thread.tid } else { number });
            return found.map(|found| Metered::Thread(Arc::downgrade(&found))).ok_or(Errno::EINVAL);
        }
        let found = match number {
            0 => Some(own.clone()),
            pid => self.processes.with(|all| all.get(&pid).cloned()),
        };
        found.map(|found| Metered::Process(Arc::downgrade(&found))).ok_or(Errno::EINVAL)
    }

    pub(crate) fn clock_gettime(&self, thread: &Thread, clock: u64, to: u64) -> Answer {
        let time = self.clock_of(thread, clock)?;
        self.machine.write_user(to, &Pack::default().time(time).0).map(|()| 0)
    }

    /// Nobody can set a clock, which whoever has none, or no time, hears first.
    pub(crate) fn clock_settime(&self, thread: &Thread, clock: u64, time: u64) -> Answer {
        match clock as u32 as i32 {
            0 => self.time(time).map(drop),
            i32::MIN..0 => self.metered(thread, clock).map(drop),
            _ => Err(Errno::EINVAL),
        }?;
        Err(Errno::EPERM)
    }

    /// The clock's state, which nobody can change.
    pub(crate) fn adjtimex(&self, at: u64) -> Answer {
        if self.load_word(at)? != 0 {
            return Err(Errno::EPERM);
        }
        let now = self.clock();
        let head = Pack::default()
            .word(0)
            .word(0)
            .long(0)
            .long(0)
            .long(0)
            .long(0)
            .word(0)
            .word(0)
            .long(0)
            .long(1)
            .long(0);
        let all = head.long(now / 1_000_000_000).long(now % 1_000_000_000 / 1000).long(10_000).zeros_to(208);
        self.machine.write_user(at, &all.0).map(|()| 0)
    }

    pub(crate) fn clock_getres(&self, thread: &Thread, clock: u64, to: u64) -> Answer {
        /// Of those that are read without care.
        const COARSE: u64 = 4_000_000;
        self.clock_of(thread, clock)?;
        if to != 0 {
            let least = if matches!(clock as u32, 5 | 6) { COARSE } else { 1 };
            self.machine.write_user(to, &Pack::default().time(least).0)?;
        }
        Ok(0)
    }

    /// The time, and how far from it that of the place is: not at all.
    pub(crate) fn gettimeofday(&self, to: u64, place: u64) -> Answer {
        let now = self.clock();
        if to != 0 {
            let packed = Pack::default().long(now / 1_000_000_000).long(now % 1_000_000_000 / 1000);
            self.machine.write_user(to, &packed.0)?;
        }
        if place != 0 {
            self.machine.write_user(place, &[0; 8])?;
        }
        Ok(0)
    }

    pub(crate) fn time_of_day(&self, to: u64) -> Answer {
        let now = self.clock() / 1_000_000_000;
        if to != 0 {
            self.machine.write_user(to, &now.to_le_bytes())?;
        }
        Ok(now)
    }

    pub(crate) fn sleep(&self, thread: &Thread, [clock, flags, time, left]: [u64; 4]) -> Answer {
        const ABSOLUTE: u64 = 1;
        // Of a sleep that goes on.
        let goes_on = thread.deadline.with(Option::take);
        let now = self.clock_of(thread, clock)?;
        // Clocks that are only read, and what a thread itself uses, which it does not while it sleeps.
        if matches!(clock as u32, 3..=6) {
            return Err(Errno::EOPNOTSUPP);
        }
        let time = self.time(time)?;
        if !is_of_machine(clock) {
            let metered = self.metered(thread, clock)?;
            return self.sleep_by(thread, &metered, goes_on, [flags & ABSOLUTE, time, left]);
        }
        let ns = if flags & ABSOLUTE != 0 { time.saturating_sub(now) } else { time };
        let until = goes_on.unwrap_or_else(|| self.now().saturating_add(ns));
        if ns == 0 {
            return Ok(0);
        }
        match self.wait(thread, key_of(thread), Some(until), || false) {
            Waited::Interrupted => {
                if left != 0 && flags & ABSOLUTE == 0 {
                    let left_ns = until.saturating_sub(self.now());
                    self.machine.write_user(left, &Pack::default().time(left_ns).0)?;
                }
                // A time of the clock is reached when it is reached.
                if flags & ABSOLUTE != 0 {
                    return Err(UNLESS_HANDLED);
                }
                Err(restarts_at(thread, until))
            }
            Waited::Ready | Waited::Late => Ok(0),
        }
    }

    /// Sleeps until a process, or another thread, has used so much of CPUs.
    fn sleep_by(
        &self,
        thread: &Thread,
        metered: &Metered,
        goes_on: Option<u64>,
        [absolute, time, left]: [u64; 3],
    ) -> Answer {
        if matches!(metered, Metered::Thread(of) if of.as_ptr() == core::ptr::from_ref(thread)) {
            return Err(Errno::EINVAL);
        }
        let used = || metered.read(self.now()).ok_or(Errno::EINVAL);
        let until = match goes_on {
            Some(until) => until,
            None if absolute != 0 => time,
            None => used()?.0.saturating_add(time),
        };
        loop {
            let used = used()?;
            if used.0 >= until {
                return Ok(0);
            }
            let now = self.now();
            let look = soonest(now, used, until).min(now + LOOKS);
            if self.wait(thread, key_of(thread), Some(look), || false) == Waited::Interrupted {
                let used = metered.read(self.now()).map_or(until, |used| used.0);
                if used >= until {
                    return Ok(0);
                }
                if left != 0 && absolute == 0 {
                    self.machine.write_user(left, &Pack::default().time(until - used).0)?;
                }
                return Err(if absolute != 0 { UNLESS_HANDLED } else { restarts_at(thread, until) });
            }
        }
    }

    /// Sets the alarm of a process; returns what was left of the one before, and its repetition.
    pub(crate) fn set_alarm(&self, thread: &Thread, ns: u64, every: u64) -> Result<(u64, u64), Errno> {
        let now = self.now();
        let new = if ns == 0 { 0 } else { now.saturating_add(ns) };
        let (at, old) = thread.process.alarm.with(|alarm| core::mem::replace(alarm, (new, every)));
        self.alarm_changed();
        Ok((if at == 0 { 0 } else { at.saturating_sub(now).max(1) }, old))
    }

    fn pack_timer(&self, (left, every): (u64, u64)) -> Vec<u8> {
        let time = |pack: Pack, ns: u64| pack.long(ns / 1_000_000_000).long(ns % 1_000_000_000 / 1000);
        time(time(Pack::default(), every), left).0
    }

    pub(crate) fn setitimer(&self, thread: &Thread, which: u64, new: u64, old: u64) -> Answer {
        if which > 2 {
            return Err(Errno::EINVAL);
        }
        let micros = |at: u64| {
            let (seconds, micros) = (self.load_long(at)?, self.load_long(at + 8)?);
            if seconds >> 63 != 0 || micros >= 1_000_000 {
                return Err(Errno::EINVAL);
            }
            Ok(seconds.saturating_mul(1_000_000_000).saturating_add(micros * 1000))
        };
        let (every, first) = if new == 0 { (0, 0) } else { (micros(new)?, micros(new + 16)?) };
        let before = match which {
            0 => self.set_alarm(thread, first, every)?,
            // By what the process uses of CPUs.
            _ => {
                let now = self.spent(&thread.process);
                let new = if first == 0 { 0 } else { now.saturating_add(first) };
                let timers = &thread.process.meters;
                let (at, old) =
                    timers.with(|all| core::mem::replace(&mut all[which as usize - 1], (new, every)));
                self.alarm_changed();
                (if at == 0 { 0 } else { at.saturating_sub(now).max(1) }, old)
            }
        };
        if old != 0 {
            self.machine.write_user(old, &self.pack_timer(before))?;
        }
        Ok(0)
    }

    pub(crate) fn getitimer(&self, thread: &Thread, which: u64, to: u64) -> Answer {
        let ((at, every), now) = match which {
            0 => (thread.process.alarm.with(|alarm| *alarm), self.now()),
            1 | 2 => (thread.process.meters.with(|all| all[which as usize - 1]), self.spent(&thread.process)),
            _ => return Err(Errno::EINVAL),
        };
        let left = if at == 0 { 0 } else { at.saturating_sub(now).max(1) };
        self.machine.write_user(to, &self.pack_timer((left, every))).map(|()| 0)
    }

    pub(crate) fn times(&self, thread: &Thread, to: u64) -> Answer {
        const TICK: u64 = 10_000_000;
        if to != 0 {
            let children = thread.process.spent[1].load(Ordering::Relaxed);
            let used = Pack::default().long(self.spent(&thread.process) / TICK).long(0);
            self.machine.write_user(to, &used.long(children / TICK).long(0).0)?;
        }
        Ok(self.now() / TICK)
    }

    pub(crate) fn uname(&self, to: u64) -> Answer {
        let mut all = Vec::new();
        let host = self.host.with(|host| host.clone());
        for word in [b"Linux", host.as_slice(), b"6.12.0", b"#1 SMP", b"x86_64", b"(none)"] {
            let end = all.len() + 65;
            all.extend_from_slice(word);
            all.resize(end, 0);
        }
        self.machine.write_user(to, &all).map(|()| 0)
    }

    /// The machine is called otherwise from now on.
    pub(crate) fn set_host_name(&self, thread: &Thread, at: u64, bytes: u64) -> Answer {
        const LONGEST: u64 = 64;
        if !thread.process.owner.with(|owner| owner.is_root()) {
            return Err(Errno::EPERM);
        }
        if bytes > LONGEST {
            return Err(Errno::EINVAL);
        }
        let mut name = alloc::vec![0; bytes as usize];
        self.machine.read_user(at, &mut name)?;
        self.host.with(|host| *host = name);
        Ok(0)
    }

    pub(crate) fn sysinfo(&self, to: u64) -> Answer {
        let (total, free) = self.machine.memory();
        let head = Pack::default().long(self.now() / 1_000_000_000).long(0).long(0).long(0);
        let swap = self.mm.swap().usage();
        let (slots, left) = (swap.slots << 12, (swap.slots - swap.used.min(swap.slots)) << 12);
        let memory = head.long(total << 10).long(free << 10).long(0).long(0).long(slots).long(left);
        let processes = self.processes.with(|all| all.len()) as u16;
        let all = memory.half(processes).half(0).word(0).long(0).long(0).word(1).zeros_to(112);
        self.machine.write_user(to, &all.0).map(|()| 0)
    }

    pub(crate) fn getrandom(&self, to: u64, bytes: u64, flags: u64) -> Answer {
        /// From where there may be none; from where there may be bad ones.
        const SLOW: u64 = 2;
        const BAD: u64 = 4;
        if flags & !7 != 0 || flags & (SLOW | BAD) == SLOW | BAD {
            return Err(Errno::EINVAL);
        }
        let bytes = bytes.min(1 << 20);
        let mut done = 0;
        while done < bytes {
            let word = self.random().to_le_bytes();
            let len = (bytes - done).min(8) as usize;
            self.machine.write_user(to + done, &word[..len])?;
            done += len as u64;
        }
        Ok(bytes)
    }
}
