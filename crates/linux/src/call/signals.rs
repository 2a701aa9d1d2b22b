//! Calls about signals.

use alloc::sync::Arc;
use core::sync::atomic::Ordering;

use crate::announced::{Meant, Sender};
use crate::errno::{Answer, Errno};
use crate::kernel::{Linux, UNLESS_HANDLED, Waited};
use crate::layout::Pack;
use crate::machine::Machine;
use crate::process::{Process, Thread};
use crate::signal::{ALWAYS, Action, DISARMS, Info, Stack, bit, first_of, number};
use crate::sync::key_of;

/// Flags of actions; no others are kept.
const FLAGS: u64 = 0xdc00_0807;

/// There is no stack of handlers.
const OFF: u32 = 2;

impl<M: Machine> Linux<'_, M> {
    pub(crate) fn sigaction(&self, thread: &Thread, [signal, new, old, size]: [u64; 4]) -> Answer {
        if size != 8 || !(1..=u64::from(number::LAST)).contains(&signal) {
            return Err(Errno::EINVAL);
        }
        let action = match new {
            0 => None,
            at => {
                let word = |index: u64| self.load_long(at + 8 * index);
                let (handler, flags, restorer, mask) = (word(0)?, word(1)?, word(2)?, word(3)?);
                Some(Action { handler, flags: flags & FLAGS, restorer, mask: mask & !ALWAYS })
            }
        };
        if action.is_some() && ALWAYS & bit(signal as u32) != 0 {
            return Err(Errno::EINVAL);
        }
        let before = thread.process.actions.with(|actions| {
            let before = actions[signal as usize];
            if let Some(action) = action {
                actions[signal as usize] = action;
            }
            before
        });
        // What waits to be heard is gone once nobody wants to.
        if action.is_some_and(|action| action.ignores(signal as u32)) {
            Self::drop_waiting(&thread.process, signal as u32);
        }
        if old != 0 {
            let Action { handler, flags, restorer, mask } = before;
            let packed = Pack::default().long(handler).long(flags).long(restorer).long(mask);
            self.machine.write_user(old, &packed.0)?;
        }
        Ok(0)
    }

    pub(crate) fn sigprocmask(&self, thread: &Thread, [how, new, old, size]: [u64; 4]) -> Answer {
        if size != 8 {
            return Err(Errno::EINVAL);
        }
        let before = thread.mask.load(Ordering::SeqCst);
        if new != 0 {
            let set = self.load_long(new)?;
            let mask = match how {
                0 => before | set,
                1 => before & !set,
                2 => set,
                _ => return Err(Errno::EINVAL),
            };
            thread.mask.store(mask & !ALWAYS, Ordering::SeqCst);
        }
        if old != 0 {
            self.machine.write_user(old, &before.to_le_bytes())?;
        }
        Ok(0)
    }

    pub(crate) fn sigpending(&self, thread: &Thread, to: u64) -> Answer {
        let pending = thread.pending.load(Ordering::SeqCst) | thread.process.pending.load(Ordering::SeqCst);
        self.machine.write_user(to, &(pending & thread.mask.load(Ordering::SeqCst)).to_le_bytes()).map(|()| 0)
    }

    pub(crate) fn sigsuspend(&self, thread: &Thread, at: u64) -> Answer {
        let mask = self.load_long(at)?;
        let old = thread.mask.swap(mask & !ALWAYS, Ordering::SeqCst);
        thread.old_mask.with(|kept| *kept = Some(old));
        self.pause(thread)
    }

    pub(crate) fn pause(&self, thread: &Thread) -> Answer {
        let _ = self.wait(thread, key_of(thread), None, || false);
        Err(UNLESS_HANDLED)
    }

    pub(crate) fn sigtimedwait(&self, thread: &Thread, [set, info, time]: [u64; 3]) -> Answer {
        let set = self.load_long(set)? & !ALWAYS;
        let until = match time {
            0 => None,
            at => Some(self.end_of_wait(thread, self.time(at)?)),
        };
        let there = || {
            let pending =
                thread.pending.load(Ordering::SeqCst) | thread.process.pending.load(Ordering::SeqCst);
            pending & set
        };
        let mut found = None;
        let waited = self.wait(thread, key_of(thread), until, || {
            let there = there();
            if there != 0 {
                // None if another thread was first.
                found = self.take(thread, first_of(there));
            }
            found.is_some()
        });
        match waited {
            Waited::Ready => {
                let found = found.expect("it was taken");
                if info != 0 {
                    let packed =
                        Pack::default().word(found.signal).word(found.error).word(found.code as u32).word(0);
                    self.machine
                        .write_user(info, &packed.long(found.word).long(found.value).zeros_to(128).0)?;
                }
                Ok(found.signal.into())
            }
            Waited::Interrupted if until.is_none_or(|until| self.now() < until) => {
                Err(Self::unless_handled(thread, until))
            }
            Waited::Late | Waited::Interrupted => Err(Errno::EAGAIN),
        }
    }

    /// Names the stack of handlers of a thread whose stack pointer is `sp`: its address, how it is used, its length.
    pub(crate) fn name_stack(
        thread: &Thread,
        sp: u64,
        (at, flags, bytes): (u64, u32, u64),
    ) -> Result<(), Errno> {
        thread.stack.with(|stack| {
            if stack.is_some_and(|stack| stack.has(sp)) {
                return Err(Errno::EPERM);
            }
            if flags & !DISARMS > OFF {
                return Err(Errno::EINVAL);
            }
            if flags & OFF == 0 && bytes < 2048 {
                return Err(Errno::ENOMEM);
            }
            *stack = (flags & OFF == 0).then_some(Stack { at, bytes, disarms: flags & DISARMS != 0 });
            Ok(())
        })
    }

    pub(crate) fn sigaltstack(&self, thread: &Thread, sp: u64, new: u64, old: u64) -> Answer {
        const IN_USE: u32 = 1;
        let before = thread.stack.with(|stack| *stack);
        if new != 0 {
            let asked = (self.load_long(new)?, self.load_word(new + 8)?, self.load_long(new + 16)?);
            Self::name_stack(thread, sp, asked)?;
        }
        if old != 0 {
            let flags = before.map_or(OFF, |stack| stack.flags() | if stack.has(sp) { IN_USE } else { 0 });
            let (at, bytes) = before.map_or((0, 0), |stack| (stack.at, stack.bytes));
            self.machine.write_user(old, &Pack::default().long(at).word(flags).word(0).long(bytes).0)?;
        }
        Ok(0)
    }

    pub(crate) fn kill_call(&self, thread: &Thread, pid: i32, signal: u32) -> Answer {
        let me = &thread.process;
        let (sender, word) = (Sender::of(me), me.names_itself());
        let info = Info { signal, word, ..Info::default() };
        // A signal that there is not is refused only if there is somebody.
        let exists = signal <= number::LAST;
        let (mut found, mut reached) = (false, false);
        let send = |process: &Arc<Process>| {
            found = true;
            if !exists || !sender.may_signal(process, signal) {
                return;
            }
            reached = true;
            if signal != 0 && process.ended.load(Ordering::SeqCst) == 0 {
                self.post(process, None, info);
            }
        };
        match pid {
            1.. => self.process_with(pid as u32).iter().for_each(send),
            0 => self.send_to_all(Meant::Group(me.group.load(Ordering::Relaxed)), Some(sender), info, send),
            -1 => self.send_to_all(Meant::AllBut(me.pid), Some(sender), info, send),
            group => self.send_to_all(Meant::Group(group.unsigned_abs()), Some(sender), info, send),
        }
        match () {
            () if !found => Err(Errno::ESRCH),
            () if !exists => Err(Errno::EINVAL),
            // Who means all others does not hear that none of them was to be reached.
            () if reached || pid == -1 => Ok(0),
            () => Err(Errno::EPERM),
        }
    }

    /// A signal with a value, for a process or a thread of it.
    pub(crate) fn sigqueue(
        &self,
        thread: &Thread,
        tid: Option<u64>,
        [pid, signal, info]: [u64; 3],
    ) -> Answer {
        let (signal, pid) = (signal as u32, pid as u32);
        let (code, word, value) =
            (self.load_word(info + 8)? as i32, self.load_long(info + 16)?, self.load_long(info + 24)?);
        let error = self.load_word(info + 4)?;
        // Only the kernel itself may say that it has sent one.
        if (code >= 0 || code == -6) && pid != thread.process.pid {
            return Err(Errno::EPERM);
        }
        let process = self.process_with(pid).ok_or(Errno::ESRCH)?;
        let find = |tid: u64| {
            let found = process.threads.with(|all| all.iter().find(|one| u64::from(one.tid) == tid).cloned());
            found.ok_or(Errno::ESRCH)
        };
        let meant = tid.map(find).transpose()?;
        if signal > number::LAST {
            return Err(Errno::EINVAL);
        }
        if !Sender::of(&thread.process).may_signal(&process, signal) {
            return Err(Errno::EPERM);
        }
        if signal != 0 && process.ended.load(Ordering::SeqCst) == 0 {
            self.post(&process, meant.as_ref(), Info { signal, code, word, value, error });
        }
        Ok(0)
    }

    pub(crate) fn tgkill(&self, thread: &Thread, group: Option<u32>, tid: u32, signal: u32) -> Answer {
        let is_meant = |target: &Arc<Thread>| group.is_none_or(|group| target.process.pid == group);
        let target = self.thread_numbered(tid).filter(is_meant).ok_or(Errno::ESRCH)?;
        if signal > number::LAST {
            return Err(Errno::EINVAL);
        }
        if !Sender::of(&thread.process).may_signal(&target.process, signal) {
            return Err(Errno::EPERM);
        }
        if signal != 0 {
            let word = thread.process.names_itself();
            self.post(&target.process, Some(&target), Info { signal, code: -6, word, value: 0, error: 0 });
        }
        Ok(0)
    }
}
