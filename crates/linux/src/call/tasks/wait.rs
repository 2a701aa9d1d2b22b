//! Waiting for children: for their end, and for news of them.

use alloc::sync::Arc;
use core::sync::atomic::Ordering;

use crate::errno::{Answer, Errno};
use crate::kernel::{AGAIN, Linux, Waited};
use crate::layout::Pack;
use crate::machine::Machine;
use crate::open::flag;
use crate::process::{ENDED, Process, Thread};
use crate::signal::number;
use crate::stop::News;
use crate::sync::key_of;
use crate::trace::Ended;
use crate::usage::Usage;

/// What is waited for of children.
mod children {
    pub const AT_ONCE: u64 = 1;
    pub const STOPPED: u64 = 2;
    pub const ENDED: u64 = 4;
    pub const GO_ON: u64 = 8;
    /// Another wait hears the same.
    pub const LEAVE: u64 = 0x100_0000;
    /// Also those, or only those, of whose end no `SIGCHLD` tells; and the thread's own: all of a process are the same here.
    pub const WHOSE: u64 = ALL | OTHERS | 0x2000_0000;
    pub const ALL: u64 = 0x4000_0000;
    pub const OTHERS: u64 = 0x8000_0000;
}

/// What was heard of a child.
struct Heard {
    pid: u32,
    /// As `wait4` says it.
    code: u32,
    /// As `waitid` says it: why, and the code or signal.
    why: u32,
    value: u32,
    /// Whose it is, or was.
    user: u32,
    /// What it has used.
    used: Usage,
}

impl<M: Machine> Linux<'_, M> {
    /// News of a child, if there are any of one that is meant: whoever hears them has them for itself, unless they are to be left.
    fn news_of_child(&self, thread: &Thread, meant: i32, wanted: u64) -> Result<Option<Heard>, Errno> {
        let me = &thread.process;
        let group = me.group.load(Ordering::Relaxed);
        let children: alloc::vec::Vec<_> = self.processes.with(|all| {
            let mine = |child: &&Arc<Process>| {
                let tells = child.ends_with.load(Ordering::SeqCst) == number::CHILD;
                let is_wanted = wanted & children::ALL != 0 || tells != (wanted & children::OTHERS != 0);
                // Of one that has ended there is no other news.
                let has_news = wanted & children::ENDED != 0 || child.ended.load(Ordering::SeqCst) == 0;
                has_news
                    && (child.parent.load(Ordering::SeqCst) == me.pid && is_wanted
                        || child.tracing.by.load(Ordering::SeqCst) == me.pid)
                    && match meant {
                        1.. => child.pid == meant as u32,
                        -1 => true,
                        0 => child.group.load(Ordering::Relaxed) == group,
                        other => child.group.load(Ordering::Relaxed) == other.unsigned_abs(),
                    }
            };
            all.values().filter(mine).cloned().collect()
        });
        let leaves = wanted & children::LEAVE != 0;
        let traced = self.news_of_tracee(me, meant, wanted);
        if let Some(Some(heard)) = traced {
            return Ok(Some(heard));
        }
        if children.is_empty() && traced.is_none() {
            return Err(Errno::ECHILD);
        }
        let heard = |child: &Arc<Process>| {
            let ended = child.ended.load(Ordering::SeqCst);
            let (parent, by) = (child.parent.load(Ordering::SeqCst), child.tracing.by.load(Ordering::SeqCst));
            if ended != 0 {
                // Who traces it comes first, and its parent then.
                let turn = by == me.pid || by == 0;
                let passed_on = by == me.pid && parent != me.pid;
                let first = turn
                    && wanted & children::ENDED != 0
                    && (leaves || passed_on || self.processes.with(|all| all.remove(&child.pid)).is_some());
                if first && passed_on && !leaves {
                    self.forget_tracer(child);
                }
                if first && !leaves && !passed_on {
                    Self::add_usage(me, &Self::used_below(child));
                }
                let code = (ended & !ENDED) as u32;
                let (why, value) = if code & 0x7f == 0 { (1, code >> 8) } else { (2, code & 0x7f) };
                let used = Self::used_below(child);
                let user = child.owner.with(|owner| owner.users[0]);
                return first.then_some(Heard { pid: child.pid, code, why, value, user, used });
            }
            if parent != me.pid {
                return None;
            }
            let news = child.stopping.with(|stopping| {
                let news = stopping.news.filter(|news| match news {
                    News::Stopped(_) => wanted & children::STOPPED != 0,
                    News::GoesOn => wanted & children::GO_ON != 0,
                })?;
                if !leaves {
                    stopping.news = None;
                }
                Some(news)
            });
            news.map(|news| {
                let (code, why, value) = match news {
                    News::Stopped(by) => (by << 8 | 0x7f, 5, by),
                    News::GoesOn => (0xffff, 6, number::CONTINUE),
                };
                let user = child.owner.with(|owner| owner.users[0]);
                Heard { pid: child.pid, code, why, value, user, used: Usage::default() }
            })
        };
        Ok(children.iter().find_map(heard))
    }

    /// News of a thread that this process traces, likewise; `None` if it traces none that is meant.
    fn news_of_tracee(&self, me: &Process, meant: i32, wanted: u64) -> Option<Option<Heard>> {
        let leaves = wanted & children::LEAVE != 0;
        let ended = me.tracing.ended.with(|ended| {
            let meant = |tid: u32| meant == -1 || meant > 0 && tid == meant as u32;
            let at = ended.iter().position(|one| meant(one.tid))?;
            let one = if leaves || wanted & children::ENDED == 0 { None } else { Some(ended.remove(at)) };
            one.or_else(|| ended.get(at).map(|one| Ended { ..*one }))
        });
        let is_meant = |thread: &Arc<Thread>| {
            let group = thread.process.group.load(Ordering::Relaxed);
            match meant {
                1.. => thread.tid == meant as u32,
                -1 => true,
                0 => group == me.group.load(Ordering::Relaxed),
                other => group == other.unsigned_abs(),
            }
        };
        if let Some(Ended { tid, status }) = ended.as_ref().filter(|_| wanted & children::ENDED != 0) {
            let (why, value) = crate::kernel::how_ended((*status).into());
            let (why, value) = (why as u32, value as u32);
            let heard = Heard { pid: *tid, code: *status, why, value, user: 0, used: Usage::default() };
            return Some(Some(heard));
        }
        let all: alloc::vec::Vec<_> = self.tracees(me).into_iter().filter(is_meant).collect();
        let stopped = |thread: &Arc<Thread>| {
            let code = thread.traced.state.with(|state| {
                let stop = state.stop.as_mut().filter(|stop| !stop.told && !stop.goes)?;
                stop.told = !leaves;
                Some(stop.code)
            })?;
            Some(Heard {
                pid: thread.tid,
                code: code << 8 | 0x7f,
                why: 4,
                value: code,
                user: thread.process.owner.with(|owner| owner.users[0]),
                used: Usage::default(),
            })
        };
        let found = all.iter().find_map(stopped);
        (!all.is_empty() || ended.is_some()).then_some(found)
    }

    fn wait_for_child(&self, thread: &Thread, meant: i32, wanted: u64) -> Result<Option<Heard>, Errno> {
        let mut found = self.news_of_child(thread, meant, wanted)?;
        if found.is_some() || wanted & children::AT_ONCE != 0 {
            return Ok(found);
        }
        let mut error = None;
        let how = self.wait(thread, key_of(&*thread.process), None, || {
            match self.news_of_child(thread, meant, wanted) {
                Ok(child) => {
                    found = child;
                    found.is_some()
                }
                Err(why) => {
                    error = Some(why);
                    true
                }
            }
        });
        match (how, error) {
            (_, Some(error)) => Err(error),
            (Waited::Ready, None) => Ok(found),
            _ => Err(AGAIN),
        }
    }

    pub(crate) fn wait4(&self, thread: &Thread, [pid, status, options, usage]: [u64; 4]) -> Answer {
        let options = u64::from(options as u32);
        if options & !(children::AT_ONCE | children::STOPPED | children::GO_ON | children::WHOSE) != 0 {
            return Err(Errno::EINVAL);
        }
        if pid as i32 == i32::MIN {
            return Err(Errno::ESRCH);
        }
        let Some(heard) = self.wait_for_child(thread, pid as i32, options | children::ENDED)? else {
            return Ok(0);
        };
        if status != 0 {
            self.machine.write_user(status, &heard.code.to_le_bytes())?;
        }
        if usage != 0 {
            self.store_usage(usage, &heard.used)?;
        }
        Ok(heard.pid.into())
    }

    pub(crate) fn waitid(&self, thread: &Thread, [kind, id, info, options, usage, _]: [u64; 6]) -> Answer {
        let meant = match kind {
            0 => -1,
            1 if id as i32 <= 0 => return Err(Errno::EINVAL),
            1 => id as i32,
            2 => -(id as i32),
            3 => self.process_behind(thread, id)?.pid as i32,
            _ => return Err(Errno::EINVAL),
        };
        // Of a process as an open file, that says whether anybody waits; who does not hears why.
        let waits = kind != 3 || !self.open_file(thread, id)?.has(flag::NO_WAIT);
        const WHAT: u64 = children::ENDED | children::STOPPED | children::GO_ON;
        let options = u64::from(options as u32);
        if options & WHAT == 0
            || options & !(WHAT | children::AT_ONCE | children::LEAVE | children::WHOSE) != 0
        {
            return Err(Errno::EINVAL);
        }
        let at_once = if waits { 0 } else { children::AT_ONCE };
        let Some(heard) = self.wait_for_child(thread, meant, options | at_once)? else {
            if options & children::AT_ONCE == 0 {
                return Err(Errno::EAGAIN);
            }
            if info != 0 {
                self.machine.write_user(info, &[0; 128])?;
            }
            return Ok(0);
        };
        if usage != 0 {
            self.store_usage(usage, &heard.used)?;
        }
        if info != 0 {
            let head = Pack::default().word(number::CHILD).word(0).word(heard.why).word(0);
            let all = head.word(heard.pid).word(heard.user).word(heard.value).zeros_to(128);
            self.machine.write_user(info, &all.0)?;
        }
        Ok(0)
    }
}
