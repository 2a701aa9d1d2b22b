//! Timers and signals as files.

use core::sync::atomic::{AtomicU64, Ordering};

use super::clocks::BY_TIMER;
use crate::errno::{Answer, Errno};
use crate::kernel::{AGAIN, Linux, Waited};
use crate::layout::Pack;
use crate::machine::Machine;
use crate::open::{Kind, Open, flag};
use crate::process::Thread;
use crate::signal::{ALWAYS, first_of};
use crate::sync::key_of;
use crate::timer::Timer;

impl<M: Machine> Linux<'_, M> {
    /// What a clock is ahead of the machine's, by which timers go.
    pub(super) fn ahead(&self, thread: &Thread, clock: u64) -> Result<u64, Errno> {
        // In this order, or a clock could seem to run backwards.
        let now = self.now();
        Ok(self.clock_of(thread, clock)?.saturating_sub(now) / 1_000_000_000 * 1_000_000_000)
    }

    pub(crate) fn timerfd(&self, thread: &Thread, clock: u64, flags: u32) -> Answer {
        if flags & !(flag::NO_WAIT | flag::CLOSE_ON_EXEC) != 0 || !matches!(clock, 0 | 1 | 7 | 8 | 9) {
            return Err(Errno::EINVAL);
        }
        let path = b"anon_inode:[timerfd]".to_vec();
        let open =
            Open::new(Kind::Timer(Timer::default(), clock), flags & flag::NO_WAIT | flag::READ_WRITE, path);
        thread.process.files.with(|files| files.add(open, flags & flag::CLOSE_ON_EXEC != 0, 0))
    }

    /// A repetition and a first time, and when that is by a clock that says `now`, or one ahead of it; 0 for never.
    pub(super) fn load_timer(
        &self,
        at: u64,
        is_absolute: bool,
        ahead: u64,
        now: u64,
    ) -> Result<(u64, u64), Errno> {
        let (every, first) = (self.time(at)?, self.time(at + 16)?);
        let due = match (first, is_absolute) {
            (0, _) => 0,
            (first, true) => first.saturating_sub(ahead).max(1),
            (first, false) => now.saturating_add(first),
        };
        Ok((due, every))
    }

    pub(super) fn store_timer(&self, at: u64, (left, every): (u64, u64)) -> Answer {
        self.machine.write_user(at, &Pack::default().time(every).time(left).0).map(|()| 0)
    }

    pub(crate) fn timerfd_settime(&self, thread: &Thread, [number, flags, new, old]: [u64; 4]) -> Answer {
        const ABSOLUTE: u64 = 1;
        let open = self.open_file(thread, number)?;
        let Kind::Timer(timer, clock) = &open.kind else { return Err(Errno::EINVAL) };
        if flags & !3 != 0 {
            return Err(Errno::EINVAL);
        }
        let (due, every) =
            self.load_timer(new, flags & ABSOLUTE != 0, self.ahead(thread, *clock)?, self.now())?;
        let before = timer.set(due, every, self.now());
        self.changed(key_of(&*open));
        if old == 0 { Ok(0) } else { self.store_timer(old, before) }
    }

    pub(crate) fn timerfd_gettime(&self, thread: &Thread, number: u64, to: u64) -> Answer {
        let open = self.open_file(thread, number)?;
        let Kind::Timer(timer, _) = &open.kind else { return Err(Errno::EINVAL) };
        self.store_timer(to, timer.left(self.now()))
    }

    /// How often it has expired, once it has.
    pub(super) fn read_timer(&self, thread: &Thread, open: &Open, timer: &Timer) -> Result<u64, Errno> {
        let mut count = timer.take(self.now());
        while count == 0 {
            if open.has(flag::NO_WAIT) {
                return Err(Errno::EAGAIN);
            }
            let due = || timer.next(self.now());
            let how = self.watch(thread, None, due, || {
                count = timer.take(self.now());
                count > 0
            });
            if how == Waited::Interrupted {
                return Err(AGAIN);
            }
        }
        Ok(count)
    }

    pub(crate) fn signalfd(&self, thread: &Thread, [number, mask, size, flags]: [u64; 4]) -> Answer {
        let flags = flags as u32;
        if size != 8 || flags & !(flag::NO_WAIT | flag::CLOSE_ON_EXEC) != 0 {
            return Err(Errno::EINVAL);
        }
        let mask = self.load_long(mask)? & !ALWAYS;
        if number as i32 == -1 {
            let kind = Kind::Signals(AtomicU64::new(mask));
            let open =
                Open::new(kind, flags & flag::NO_WAIT | flag::READ_WRITE, b"anon_inode:[signalfd]".to_vec());
            return thread.process.files.with(|files| files.add(open, flags & flag::CLOSE_ON_EXEC != 0, 0));
        }
        let open = self.open_file(thread, number)?;
        let Kind::Signals(now) = &open.kind else { return Err(Errno::EINVAL) };
        now.store(mask, Ordering::SeqCst);
        self.changed(key_of(&*open));
        Ok(number)
    }

    /// A signal that is pending, as `signalfd` tells of it.
    pub(super) fn read_signals(
        &self,
        thread: &Thread,
        open: &Open,
        mask: &AtomicU64,
        bytes: u64,
    ) -> Result<alloc::vec::Vec<u8>, Errno> {
        const EACH: usize = 128;
        let most = bytes as usize / EACH;
        if most == 0 {
            return Err(Errno::EINVAL);
        }
        let next = || {
            // Another thread may want others of it meanwhile.
            let pending = thread.waiting_signals() & mask.load(Ordering::SeqCst);
            if pending == 0 { None } else { self.take(thread, first_of(pending)) }
        };
        let mut first = next();
        if first.is_none() {
            if open.has(flag::NO_WAIT) {
                return Err(Errno::EAGAIN);
            }
            let how = self.wait(thread, key_of(open), None, || {
                first = next();
                first.is_some()
            });
            if how != Waited::Ready {
                return Err(AGAIN);
            }
        }
        let mut all = Pack::default();
        let mut info = first;
        while let Some(found) = info {
            let end = all.0.len() + EACH;
            let (first, second) = (found.word as u32, (found.word >> 32) as u32);
            // Who has sent it; or which timer, and how often it has expired meanwhile.
            let by_timer = found.code == BY_TIMER;
            let ([pid, user], [timer, overruns]) =
                if by_timer { ([0; 2], [first, second]) } else { ([first, second], [0; 2]) };
            let head =
                all.word(found.signal).word(found.error).word(found.code as u32).word(pid).word(user).word(0);
            // Status, and the value as a number and as a pointer.
            let status = found.value as u32;
            let middle = head.word(timer).word(0).word(overruns).word(0);
            let rest = middle.word(status).word(status).long(found.value);
            all = rest.zeros_to(end);
            info = if end / EACH < most { next() } else { None };
        }
        Ok(all.0)
    }
}
