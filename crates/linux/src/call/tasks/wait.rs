//! Waiting for children: for their end, and for news of them.

use alloc::sync::Arc;
use core::sync::atomic::Ordering;

use crate::errno::{Answer, Errno};
use crate::kernel::{AGAIN, Linux, Waited};
use crate::layout::Pack;
use crate::machine::Machine;
use crate::process::{ENDED, Process, Thread};
use crate::signal::number;
use crate::stop::News;
use crate::sync::key_of;

/// What is waited for of children.
mod children {
    pub const AT_ONCE: u64 = 1;
    pub const STOPPED: u64 = 2;
    pub const ENDED: u64 = 4;
    pub const GO_ON: u64 = 8;
    /// Another wait hears the same.
    pub const LEAVE: u64 = 0x100_0000;
}

/// What was heard of a child.
struct Heard {
    pid: u32,
    /// As `wait4` says it.
    code: u32,
    /// As `waitid` says it: why, and the code or signal.
    why: u32,
    value: u32,
    /// What it has used of CPUs.
    spent: u64,
}

impl<M: Machine> Linux<'_, M> {
    /// News of a child, if there are any of one that is meant: whoever hears them has them for itself, unless they are to be left.
    fn news_of_child(&self, thread: &Thread, meant: i32, wanted: u64) -> Result<Option<Heard>, Errno> {
        let me = &thread.process;
        let group = me.group.load(Ordering::Relaxed);
        let children: alloc::vec::Vec<_> = self.processes.with(|all| {
            let mine = |child: &&Arc<Process>| {
                child.parent.load(Ordering::SeqCst) == me.pid
                    && match meant {
                        1.. => child.pid == meant as u32,
                        -1 => true,
                        0 => child.group.load(Ordering::Relaxed) == group,
                        other => child.group.load(Ordering::Relaxed) == other.unsigned_abs(),
                    }
            };
            all.values().filter(mine).cloned().collect()
        });
        if children.is_empty() {
            return Err(Errno::ECHILD);
        }
        let leaves = wanted & children::LEAVE != 0;
        let heard = |child: &Arc<Process>| {
            let ended = child.ended.load(Ordering::SeqCst);
            if ended != 0 {
                let first = wanted & children::ENDED != 0
                    && (leaves || self.processes.with(|all| all.remove(&child.pid)).is_some());
                if first && !leaves {
                    let spent = child.spent.iter().map(|spent| spent.load(Ordering::Relaxed)).sum();
                    me.spent[1].fetch_add(spent, Ordering::Relaxed);
                }
                let code = (ended & !ENDED) as u32;
                let (why, value) = if code & 0x7f == 0 { (1, code >> 8) } else { (2, code & 0x7f) };
                let spent = child.spent.iter().map(|spent| spent.load(Ordering::Relaxed)).sum();
                return first.then_some(Heard { pid: child.pid, code, why, value, spent });
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
            news.map(|news| match news {
                News::Stopped(by) => {
                    Heard { pid: child.pid, code: by << 8 | 0x7f, why: 5, value: by, spent: 0 }
                }
                News::GoesOn => {
                    Heard { pid: child.pid, code: 0xffff, why: 6, value: number::CONTINUE, spent: 0 }
                }
            })
        };
        Ok(children.iter().find_map(heard))
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
        // Threads' children and others' are all the same here.
        const WHOSE: u64 = 0xe000_0000;
        let options = u64::from(options as u32) & !WHOSE;
        if options & !(children::AT_ONCE | children::STOPPED | children::GO_ON) != 0 {
            return Err(Errno::EINVAL);
        }
        let Some(heard) = self.wait_for_child(thread, pid as i32, options | children::ENDED)? else {
            return Ok(0);
        };
        if status != 0 {
            self.machine.write_user(status, &heard.code.to_le_bytes())?;
        }
        if usage != 0 {
            self.store_usage(usage, heard.spent)?;
        }
        Ok(heard.pid.into())
    }

    pub(crate) fn waitid(&self, thread: &Thread, [kind, id, info, options, usage, _]: [u64; 6]) -> Answer {
        let meant = match kind {
            0 => -1,
            1 => id as i32,
            2 => -(id as i32),
            3 => self.process_behind(thread, id)?.pid as i32,
            _ => return Err(Errno::EINVAL),
        };
        if options & (children::ENDED | children::STOPPED | children::GO_ON) == 0 {
            return Err(Errno::EINVAL);
        }
        let Some(heard) = self.wait_for_child(thread, meant, options)? else {
            if info != 0 {
                self.machine.write_user(info, &[0; 128])?;
            }
            return Ok(0);
        };
        if usage != 0 {
            self.store_usage(usage, heard.spent)?;
        }
        if info != 0 {
            let head = Pack::default().word(number::CHILD).word(0).word(heard.why).word(0);
            let all = head.word(heard.pid).word(0).word(heard.value).zeros_to(128);
            self.machine.write_user(info, &all.0)?;
        }
        Ok(0)
    }
}
