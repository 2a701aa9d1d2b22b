//! Calls that make processes and threads, and wait for them.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use crate::areas::What;
use crate::errno::{Answer, Errno};
use crate::frame::Frame;
use crate::futex::Word;
use crate::kernel::{AGAIN, Linux, Waited};
use crate::layout::Pack;
use crate::machine::Machine;
use crate::open::{Kind, Open, flag as open_flag};
use crate::process::{ENDED, Memory, Process, Thread, limit};
use crate::signal::{Info, number};
use crate::stop::News;
use crate::sync::{Spin, key_of};

mod flag {
    pub const MEMORY: u64 = 0x100;
    pub const FILES: u64 = 0x400;
    pub const VFORK: u64 = 0x4000;
    pub const PARENT: u64 = 0x8000;
    pub const THREAD: u64 = 0x1_0000;
    pub const TLS: u64 = 0x8_0000;
    pub const PARENT_TID: u64 = 0x10_0000;
    pub const CLEAR_TID: u64 = 0x20_0000;
    pub const CHILD_TID: u64 = 0x100_0000;
    /// Namespaces, and other things that are not here.
    pub const UNKNOWN: u64 = 0x7e02_0000 | 0x2000;
    /// A descriptor of the process.
    pub const DESCRIPTOR: u64 = 0x1000;
    /// Signal handlers back to usual.
    pub const CLEAR_HANDLERS: u64 = 0x1_0000_0000;
}

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
}

/// In the word of a lock: others wait, and its owner has died.
const WAITERS: u32 = 1 << 31;
const DIED: u32 = 1 << 30;

/// What an area takes of the kernel's memory, at most.
const BYTES_OF_AREA: u64 = 192;

/// What `clone` is asked for.
pub struct Clone {
    flags: u64,
    stack: u64,
    parent_tid: u64,
    child_tid: u64,
    tls: u64,
    ends_with: u32,
    /// Where the number of its descriptor is to be written.
    descriptor: u64,
}

impl Clone {
    pub fn fork() -> Clone {
        Clone {
            flags: 0,
            stack: 0,
            parent_tid: 0,
            child_tid: 0,
            tls: 0,
            ends_with: number::CHILD,
            descriptor: 0,
        }
    }

    pub fn vfork() -> Clone {
        Clone { flags: flag::MEMORY | flag::VFORK, ..Clone::fork() }
    }

    pub fn plain([flags, stack, parent_tid, child_tid, tls]: [u64; 5]) -> Clone {
        Clone {
            flags: flags & 0xffff_ff00,
            stack,
            parent_tid,
            child_tid,
            tls,
            ends_with: flags as u32 & 0xff,
            descriptor: parent_tid,
        }
    }
}

impl<M: Machine> Linux<'_, M> {
    pub(crate) fn clone_arguments(&self, at: u64, bytes: u64) -> Result<Clone, Errno> {
        if !(64..=4096).contains(&bytes) {
            return Err(Errno::EINVAL);
        }
        let word = |index: u64| self.load_long(at + 8 * index);
        let (stack, len) = (word(5)?, word(6)?);
        Ok(Clone {
            flags: word(0)?,
            stack: if stack == 0 { 0 } else { stack.wrapping_add(len) },
            child_tid: word(2)?,
            parent_tid: word(3)?,
            ends_with: word(4)? as u32,
            tls: word(7)?,
            descriptor: word(1)?,
        })
    }

    pub(crate) fn clone_(&self, thread: &Arc<Thread>, frame: &Frame, ask: &Clone) -> Answer {
        let Clone { flags, .. } = *ask;
        let is_thread = flags & flag::THREAD != 0;
        if flags & flag::UNKNOWN != 0
            || is_thread && flags & flag::MEMORY == 0
            || ask.ends_with > number::LAST
        {
            return Err(Errno::EINVAL);
        }
        if is_thread && flags & flag::DESCRIPTOR != 0 {
            return Err(Errno::EINVAL);
        }
        // A base of `fs` that no register takes.
        if flags & flag::TLS != 0 && ask.tls >> 47 != 0 {
            return Err(Errno::EPERM);
        }
        let parent = &thread.process;
        let tid = self.new_tid();
        let mask = thread.mask.load(Ordering::SeqCst);
        let process = if is_thread { parent.clone() } else { self.new_process(thread, tid, ask)? };
        let new = Thread::new(tid, &process, mask);
        new.fs.store(if flags & flag::TLS != 0 { ask.tls } else { thread.fs() }, Ordering::Relaxed);
        if flags & flag::CLEAR_TID != 0 {
            new.clear_tid.store(ask.child_tid, Ordering::SeqCst);
        }
        if flags & flag::CHILD_TID != 0 {
            new.set_tid.store(ask.child_tid, Ordering::SeqCst);
        }
        if flags & flag::MEMORY == 0 {
            new.stack.with(|stack| *stack = thread.stack.with(|stack| *stack));
        }
        if flags & flag::PARENT_TID != 0 {
            self.machine.write_user(ask.parent_tid, &tid.to_le_bytes())?;
        }
        let close = |number: u64| drop(parent.files.with(|files| files.take(number)));
        let mut descriptor = None;
        if flags & flag::DESCRIPTOR != 0 {
            let number = self.open_process(thread, &process, 0)?;
            let at = ask.descriptor;
            self.machine.write_user(at, &(number as u32).to_le_bytes()).inspect_err(|_| close(number))?;
            descriptor = Some(number);
        }
        let mut registers = Box::new(*frame);
        registers.registers.rax = 0;
        if ask.stack != 0 {
            registers.registers.rsp = ask.stack;
        }
        process.threads.with(|threads| threads.push(new.clone()));
        if !is_thread {
            self.processes.with(|all| all.insert(tid, process.clone()));
        }
        if let Err(error) = self.machine.begin(new.clone(), registers) {
            process.threads.with(|threads| threads.retain(|other| !Arc::ptr_eq(other, &new)));
            if !is_thread {
                self.processes.with(|all| all.remove(&tid));
                drop(process.memory.with(Option::take));
            }
            descriptor.into_iter().for_each(close);
            return Err(error);
        }
        if flags & flag::VFORK != 0 {
            let lent = || !process.borrows.load(Ordering::SeqCst);
            // Its memory is the child's now: it waits, whatever comes, until that is no longer so, or it is to end.
            self.wait_to_the_death(thread, key_of(&*process), lent);
        }
        Ok(tid.into())
    }

    fn new_process(&self, thread: &Thread, pid: u32, ask: &Clone) -> Result<Arc<Process>, Errno> {
        let parent = &thread.process;
        let memory = thread.memory();
        let memory = if ask.flags & flag::MEMORY != 0 {
            memory
        } else {
            memory.layout.with(self.machine, |layout| {
                if !self.machine.has_room(BYTES_OF_AREA * layout.areas.iter().count() as u64) {
                    return Err(Errno::ENOMEM);
                }
                let space = self.mm.space(memory.space).fork()?;
                Ok::<_, Errno>(Memory::new(space, layout.clone(), &self.left))
            })?
        };
        if ask.flags & flag::FILES != 0 && ask.flags & flag::VFORK == 0 {
            // Two processes with one table of open files.
            return Err(Errno::EINVAL);
        }
        let mut actions = parent.actions.with(|actions| *actions);
        if ask.flags & flag::CLEAR_HANDLERS != 0 {
            actions.iter_mut().filter(|action| action.handler > 1).for_each(|action| action.handler = 0);
        }
        let above =
            if ask.flags & flag::PARENT != 0 { parent.parent.load(Ordering::SeqCst) } else { parent.pid };
        Ok(Arc::new(Process {
            pid,
            parent: AtomicU32::new(above),
            group: AtomicU32::new(parent.group.load(Ordering::Relaxed)),
            session: AtomicU32::new(parent.session.load(Ordering::Relaxed)),
            memory: Spin::new(Some(memory)),
            files: Spin::new(parent.files.with(|files| files.clone())),
            place: Spin::new(parent.place.with(|place| place.clone())),
            actions: Spin::new(actions),
            pending: AtomicU64::new(0),
            infos: Spin::default(),
            threads: Spin::default(),
            dying: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            undo: Spin::default(),
            stopping: Spin::default(),
            stopped: AtomicBool::new(false),
            borrows: AtomicBool::new(ask.flags & flag::VFORK != 0),
            alarm: Spin::default(),
            timers: Spin::default(),
            limits: Spin::new(parent.limits.with(|limits| *limits)),
            began: self.now(),
            ends_with: ask.ends_with,
        }))
    }

    /// It has a space of its own now, or has ended.
    pub(crate) fn no_longer_borrows(&self, process: &Process) {
        if process.borrows.swap(false, Ordering::SeqCst) {
            self.machine.wake(key_of(process));
        }
    }

    pub(crate) fn execve(
        &self,
        thread: &Arc<Thread>,
        frame: &mut Frame,
        [path, arguments, environment]: [u64; 3],
    ) -> Answer {
        let path = self.load_path(path)?;
        let (arguments, environment) = (self.load_texts(arguments)?, self.load_texts(environment)?);
        // The stack's content, and what `/proc` shows, are made of them.
        let bytes: usize = arguments.iter().chain(&environment).map(|text| 3 * text.len() + 64).sum();
        if !self.machine.has_piece(bytes as u64) {
            return Err(Errno::ENOMEM);
        }
        self.exec(thread, frame, &path, arguments, environment).map(|()| 0)
    }

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
                let code = (ended & !ENDED) as u32;
                let (why, value) = if code & 0x7f == 0 { (1, code >> 8) } else { (2, code & 0x7f) };
                return first.then_some(Heard { pid: child.pid, code, why, value });
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
                News::Stopped(by) => Heard { pid: child.pid, code: by << 8 | 0x7f, why: 5, value: by },
                News::GoesOn => Heard { pid: child.pid, code: 0xffff, why: 6, value: number::CONTINUE },
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
            self.machine.write_user(usage, &[0; 144])?;
        }
        Ok(heard.pid.into())
    }

    pub(crate) fn waitid(&self, thread: &Thread, [kind, id, info, options, ..]: [u64; 6]) -> Answer {
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
        if info != 0 {
            let head = Pack::default().word(number::CHILD).word(0).word(heard.why).word(0);
            let all = head.word(heard.pid).word(0).word(heard.value).zeros_to(128);
            self.machine.write_user(info, &all.0)?;
        }
        Ok(0)
    }

    /// The word that an address stands for: of its space, or of the file that several spaces map there.
    pub(crate) fn futex_word(&self, thread: &Thread, at: u64, private: bool) -> Word {
        let memory = thread.memory();
        if !private {
            let shared = memory.layout.with(self.machine, |layout| {
                let (start, area) = layout.areas.at(at)?;
                match &area.what {
                    What::File { file, page, shared: true } => {
                        Some((file.inode.number << 1 | 1, page * 4096 + (at - start)))
                    }
                    _ => None,
                }
            });
            if let Some(word) = shared {
                return word;
            }
        }
        (u64::from(memory.space.index()) << 1, at)
    }

    pub(crate) fn wake_futex(&self, word: Word, count: u32, bits: u32) -> u64 {
        let woken = self.futexes.wake(word, count, bits);
        woken.iter().for_each(|sleeper| self.machine.wake(key_of(&**sleeper)));
        woken.len() as u64
    }

    pub(crate) fn futex(&self, thread: &Thread, [at, what, value, time, other, value3]: [u64; 6]) -> Answer {
        const PRIVATE: u64 = 0x80;
        const REAL_TIME: u64 = 0x100;
        let private = what & PRIVATE != 0;
        if !at.is_multiple_of(4) {
            return Err(Errno::EINVAL);
        }
        let word = |at: u64| self.futex_word(thread, at, private);
        match what & 0x7f {
            // To wait; with bits, and until a time.
            kind @ (0 | 9) => {
                let bits = if kind == 9 { value3 as u32 } else { u32::MAX };
                if bits == 0 {
                    return Err(Errno::EINVAL);
                }
                let until = match time {
                    0 => None,
                    time => {
                        let time = self.time(time)?;
                        Some(match (kind, what & REAL_TIME != 0) {
                            (0, _) => self.now().saturating_add(time),
                            (_, true) => self.now().saturating_add(time.saturating_sub(self.clock())),
                            (_, false) => time,
                        })
                    }
                };
                let sleeper = self.futexes.stand(word(at), bits);
                let now = self.machine.load_user(at);
                if now != Ok(value as u32) && self.futexes.leave(&sleeper) {
                    return now.and(Err(Errno::EAGAIN));
                }
                let how = self.wait(thread, key_of(&*sleeper), until, || sleeper.is_woken());
                if how == Waited::Ready || !self.futexes.leave(&sleeper) {
                    return Ok(0);
                }
                match how {
                    Waited::Late => Err(Errno::ETIMEDOUT),
                    _ if until.is_some() => Err(Errno::EINTR),
                    _ => Err(AGAIN),
                }
            }
            kind @ (1 | 10) => {
                let bits = if kind == 10 { value3 as u32 } else { u32::MAX };
                Ok(self.wake_futex(word(at), value as u32, bits))
            }
            // To wake some and move others, perhaps only if the word is as it was.
            kind @ (3 | 4) => {
                if kind == 4 && self.machine.load_user(at)? != value3 as u32 {
                    return Err(Errno::EAGAIN);
                }
                let (from, to) = (word(at), word(other));
                let woken = self.wake_futex(from, value as u32, u32::MAX);
                Ok(woken + self.futexes.requeue(from, to, time as u32))
            }
            5 => {
                let code = value3 as u32;
                let (operation, compare) = (code >> 28, code >> 24 & 15);
                let (mut operand, compared) = (code >> 12 & 0xfff, code & 0xfff);
                if operation & 8 != 0 {
                    operand = 1 << (operand & 31);
                }
                let old = loop {
                    let old = self.machine.load_user(other)?;
                    let new = match operation & 7 {
                        0 => operand,
                        1 => old.wrapping_add(operand),
                        2 => old | operand,
                        3 => old & !operand,
                        4 => old ^ operand,
                        _ => return Err(Errno::ENOSYS),
                    };
                    if self.machine.swap_user(other, old, new)? == old {
                        break old;
                    }
                };
                let (old, compared) = (old as i32, (compared << 20) as i32 >> 20);
                let holds = match compare {
                    0 => old == compared,
                    1 => old != compared,
                    2 => old < compared,
                    3 => old <= compared,
                    4 => old > compared,
                    5 => old >= compared,
                    _ => return Err(Errno::ENOSYS),
                };
                let woken = self.wake_futex(word(at), value as u32, u32::MAX);
                Ok(woken + if holds { self.wake_futex(word(other), time as u32, u32::MAX) } else { 0 })
            }
            // Locks whose word names their owner.
            kind @ (6 | 8 | 13) => {
                let until = match time {
                    0 => None,
                    time => {
                        let time = self.time(time)?;
                        let is_real = kind == 6 || what & REAL_TIME != 0;
                        let ahead = if is_real { self.clock() - self.now() } else { 0 };
                        Some(time.saturating_sub(ahead))
                    }
                };
                self.lock_owned(thread, at, word(at), until, kind == 8)
            }
            7 => self.unlock_owned(thread, at, word(at)),
            _ => {
                self.note_unknown(thread, super::n::futex);
                Err(Errno::ENOSYS)
            }
        }
    }

    /// Takes a lock whose word names its owner. Priorities are not inherited: there are none.
    fn lock_owned(&self, thread: &Thread, at: u64, word: Word, until: Option<u64>, at_once: bool) -> Answer {
        let mut waited = false;
        loop {
            if thread.is_dying() {
                return Err(AGAIN);
            }
            let now = self.machine.load_user(at)?;
            let owner = now & !(WAITERS | DIED);
            if owner == 0 {
                // Who has waited does not know of others: it says that there are some.
                let more = if waited || now & WAITERS != 0 { WAITERS } else { 0 };
                if self.machine.swap_user(at, now, thread.tid | now & DIED | more)? == now {
                    return Ok(0);
                }
                continue;
            }
            if owner == thread.tid {
                return Err(Errno::EDEADLK);
            }
            if at_once {
                return Err(Errno::EAGAIN);
            }
            let lives = |process: &Arc<Process>| {
                process.threads.with(|threads| threads.iter().any(|thread| thread.tid == owner))
            };
            let is_gone = || !self.processes.with(|all| all.values().any(lives));
            if is_gone() {
                // It has died meanwhile: whoever waited is its heir. Who only comes has named nobody.
                if !waited {
                    return Err(Errno::ESRCH);
                }
                if self.machine.swap_user(at, now, thread.tid | DIED | WAITERS)? == now {
                    return Ok(0);
                }
                continue;
            }
            if now & WAITERS == 0 && self.machine.swap_user(at, now, now | WAITERS)? != now {
                continue;
            }
            let sleeper = self.futexes.stand_as_heir(word);
            // An owner that ends from here on wakes it.
            if (self.machine.load_user(at) != Ok(now | WAITERS) || is_gone()) && self.futexes.leave(&sleeper)
            {
                waited = true;
                continue;
            }
            let how = self.wait(thread, key_of(&*sleeper), until, || sleeper.is_woken());
            waited = true;
            if how == Waited::Ready || !self.futexes.leave(&sleeper) {
                continue;
            }
            return Err(if how == Waited::Late { Errno::ETIMEDOUT } else { AGAIN });
        }
    }

    fn unlock_owned(&self, thread: &Thread, at: u64, word: Word) -> Answer {
        loop {
            let now = self.machine.load_user(at)?;
            if now & !(WAITERS | DIED) != thread.tid {
                return Err(Errno::EPERM);
            }
            if self.machine.swap_user(at, now, 0)? == now {
                self.wake_futex(word, 1, u32::MAX);
                return Ok(0);
            }
        }
    }

    /// The locks that a thread holds when it ends: each says so, and one who waits for it is woken.
    pub(crate) fn leave_locks(&self, thread: &Thread) {
        const MOST: u32 = 2048;
        let head = thread.robust.swap(0, Ordering::SeqCst);
        if head == 0 {
            return;
        }
        let words = [head, head + 8, head + 16].map(|at| self.load_long(at));
        let [Ok(first), Ok(offset), Ok(pending)] = words else { return };
        let mut at = first;
        for _ in 0..MOST {
            if at & !1 == head {
                break;
            }
            let Ok(next) = self.load_long(at & !1) else { break };
            if at & !1 != pending & !1 {
                self.leave_lock(thread, (at & !1).wrapping_add(offset), false);
            }
            at = next;
        }
        if pending & !1 != 0 {
            self.leave_lock(thread, (pending & !1).wrapping_add(offset), true);
        }
    }

    fn leave_lock(&self, thread: &Thread, at: u64, pending: bool) {
        if !at.is_multiple_of(4) {
            return;
        }
        while let Ok(now) = self.machine.load_user(at) {
            // It had let go of this one, and not woken anybody yet.
            if pending && now == 0 {
                self.wake_futex(self.futex_word(thread, at, false), 1, u32::MAX);
                self.wake_futex(self.futex_word(thread, at, true), 1, u32::MAX);
            }
            if now & !(WAITERS | DIED) != thread.tid {
                return;
            }
            match self.machine.swap_user(at, now, now & WAITERS | DIED) {
                Ok(was) if was == now => {
                    if now & WAITERS != 0 {
                        self.wake_futex(self.futex_word(thread, at, false), 1, u32::MAX);
                        self.wake_futex(self.futex_word(thread, at, true), 1, u32::MAX);
                    }
                    return;
                }
                Ok(_) => {}
                Err(_) => return,
            }
        }
    }

    pub(crate) fn get_robust_list(&self, thread: &Thread, [tid, head, len]: [u64; 3]) -> Answer {
        let found = if tid == 0 || tid == u64::from(thread.tid) {
            thread.robust.load(Ordering::SeqCst)
        } else {
            let robust = |process: &Arc<Process>| {
                let threads = process.threads.with(|all| all.clone());
                threads
                    .iter()
                    .find(|one| u64::from(one.tid) == tid)
                    .map(|one| one.robust.load(Ordering::SeqCst))
            };
            let all: alloc::vec::Vec<_> = self.processes.with(|all| all.values().cloned().collect());
            all.iter().find_map(robust).ok_or(Errno::ESRCH)?
        };
        self.machine.write_user(head, &found.to_le_bytes())?;
        self.machine.write_user(len, &24_u64.to_le_bytes()).map(|()| 0)
    }

    /// A process as an open file: it can be read, as `poll` has it, once it has ended.
    fn open_process(&self, thread: &Thread, process: &Arc<Process>, flags: u32) -> Answer {
        let open = Open::new(
            Kind::Process(process.clone()),
            flags & open_flag::NO_WAIT | open_flag::READ_WRITE,
            b"anon_inode:[pidfd]".to_vec(),
        );
        thread.process.files.with(|files| files.add(open, true, 0))
    }

    pub(crate) fn pidfd_open(&self, thread: &Thread, pid: u64, flags: u64) -> Answer {
        if flags & !u64::from(open_flag::NO_WAIT) != 0 || pid as i32 <= 0 {
            return Err(Errno::EINVAL);
        }
        let process = self.process_of(thread, pid)?;
        self.open_process(thread, &process, flags as u32)
    }

    fn process_behind(&self, thread: &Thread, number: u64) -> Result<Arc<Process>, Errno> {
        match &self.open_file(thread, number)?.kind {
            Kind::Process(process) => Ok(process.clone()),
            // Its directory below `/proc`.
            Kind::Directory(inode) if crate::procfs::shows(inode).is_some() => {
                let pid = crate::procfs::shows(inode).unwrap_or_default();
                self.processes.with(|all| all.get(&pid).cloned()).ok_or(Errno::ESRCH)
            }
            _ => Err(Errno::EBADF),
        }
    }

    pub(crate) fn pidfd_send_signal(
        &self,
        thread: &Thread,
        [number, signal, info, flags]: [u64; 4],
    ) -> Answer {
        let process = self.process_behind(thread, number)?;
        if flags != 0 || signal > u64::from(number::LAST) {
            return Err(Errno::EINVAL);
        }
        if process.ended.load(Ordering::SeqCst) != 0 {
            // Until it was waited for, it is there.
            return self.processes.with(|all| all.get(&process.pid).map(|_| 0)).ok_or(Errno::ESRCH);
        }
        if info != 0 {
            return self.sigqueue(thread, None, [process.pid.into(), signal, info]);
        }
        if signal != 0 {
            let word = u64::from(thread.process.pid);
            self.post(&process, None, Info { signal: signal as u32, word, ..Info::default() });
        }
        Ok(0)
    }

    pub(crate) fn get_affinity(&self, bytes: u64, to: u64) -> Answer {
        let cpus = self.machine.possible_cpus() as usize;
        let len = cpus.div_ceil(64) * 8;
        if (bytes as usize) < len || !bytes.is_multiple_of(8) {
            return Err(Errno::EINVAL);
        }
        let mut set = alloc::vec![0_u8; len];
        (0..cpus).for_each(|cpu| set[cpu / 8] |= 1 << (cpu % 8));
        self.machine.write_user(to, &set)?;
        Ok(len as u64)
    }

    /// A set of one CPU is where the calling thread goes; of others it is taken as all CPUs.
    pub(crate) fn set_affinity(&self, thread: &Thread, tid: u64, bytes: u64, from: u64) -> Answer {
        let mut set = alloc::vec![0; (bytes as usize).min(512)];
        self.machine.read_user(from, &mut set)?;
        let cpus = self.machine.possible_cpus() as usize;
        let mut meant =
            (0..cpus).filter(|cpu| set.get(cpu / 8).is_some_and(|byte| byte >> (cpu % 8) & 1 != 0));
        let first = meant.next().ok_or(Errno::EINVAL)?;
        if tid == 0 || tid == u64::from(thread.tid) {
            self.machine.prefer(meant.next().is_none().then_some(first as u32));
        }
        Ok(0)
    }

    /// What a thread wants of the scheduler, and its priority. It is kept, and all are served alike.
    pub(crate) fn scheduling(
        &self,
        thread: &Thread,
        tid: u64,
        new: Option<(Option<u32>, u32)>,
    ) -> Result<(u32, u32), Errno> {
        const RESET: u32 = 0x4000_0000;
        let all: alloc::vec::Vec<_> = self.processes.with(|all| all.values().cloned().collect());
        let find = |process: &Arc<Process>| {
            process.threads.with(|all| all.iter().find(|one| u64::from(one.tid) == tid).cloned())
        };
        let found = if tid == 0 { None } else { Some(all.iter().find_map(find).ok_or(Errno::ESRCH)?) };
        let kept = found.as_ref().map_or(&thread.scheduling, |found| &found.scheduling);
        let (old, old_priority) = kept.with(|kept| *kept);
        if let Some((how, priority)) = new {
            let how = how.map_or(old, |how| how & !RESET);
            let fits = match how {
                0 | 3 | 5 => priority == 0,
                1 | 2 => (1..=99).contains(&priority),
                _ => false,
            };
            if !fits {
                return Err(Errno::EINVAL);
            }
            kept.with(|kept| *kept = (how, priority));
        }
        Ok((old, old_priority))
    }

    pub(crate) fn getcpu(&self, cpu: u64, node: u64) -> Answer {
        let here = u32::from(self.machine.this_cpu().0);
        for (at, value) in [(cpu, here), (node, 0)] {
            if at != 0 {
                self.machine.write_user(at, &value.to_le_bytes())?;
            }
        }
        Ok(0)
    }

    fn process_of(&self, thread: &Thread, pid: u64) -> Result<Arc<Process>, Errno> {
        if pid == 0 {
            return Ok(thread.process.clone());
        }
        self.processes.with(|all| all.get(&(pid as u32)).cloned()).ok_or(Errno::ESRCH)
    }

    pub(crate) fn group_of(&self, thread: &Thread, pid: u64) -> Answer {
        self.process_of(thread, pid).map(|process| process.group.load(Ordering::Relaxed).into())
    }

    pub(crate) fn set_group(&self, thread: &Thread, pid: u64, group: u64) -> Answer {
        let me = &thread.process;
        let process = self.process_of(thread, u64::from(pid as u32))?;
        if pid as i32 > 0 && process.pid != me.pid && process.parent.load(Ordering::SeqCst) != me.pid {
            return Err(Errno::ESRCH);
        }
        let group = if group as u32 == 0 { process.pid } else { group as u32 };
        if group as i32 <= 0 {
            return Err(Errno::EINVAL);
        }
        let session = process.session.load(Ordering::Relaxed);
        let in_it = |other: &Arc<Process>| {
            other.group.load(Ordering::Relaxed) == group && other.session.load(Ordering::Relaxed) == session
        };
        let exists = group == process.pid || self.processes.with(|all| all.values().any(in_it));
        if session == process.pid || session != me.session.load(Ordering::Relaxed) || !exists {
            return Err(Errno::EPERM);
        }
        process.group.store(group, Ordering::Relaxed);
        Ok(0)
    }

    pub(crate) fn session_of(&self, thread: &Thread, pid: u64) -> Answer {
        let process = self.process_of(thread, u64::from(pid as u32))?;
        Ok(process.session.load(Ordering::Relaxed).into())
    }

    /// A session of its own, and a group.
    pub(crate) fn set_session(&self, thread: &Thread) -> Answer {
        let me = &thread.process;
        let leads = |other: &Arc<Process>| other.group.load(Ordering::Relaxed) == me.pid;
        if self.processes.with(|all| all.values().any(leads)) {
            return Err(Errno::EPERM);
        }
        me.session.store(me.pid, Ordering::Relaxed);
        me.group.store(me.pid, Ordering::Relaxed);
        Ok(me.pid.into())
    }

    pub(crate) fn arch_prctl(&self, thread: &Thread, what: u64, value: u64) -> Answer {
        const SET_FS: u64 = 0x1002;
        const GET_FS: u64 = 0x1003;
        match what {
            SET_FS if value >> 47 != 0 => Err(Errno::EPERM),
            SET_FS => {
                thread.fs.store(value, Ordering::Relaxed);
                self.machine.set_fs(value);
                Ok(0)
            }
            GET_FS => self.machine.write_user(value, &thread.fs().to_le_bytes()).map(|()| 0),
            _ => Err(Errno::EINVAL),
        }
    }

    pub(crate) fn prctl(&self, thread: &Thread, what: u64, value: u64) -> Answer {
        const SET_NAME: u64 = 15;
        const GET_NAME: u64 = 16;
        match what {
            SET_NAME => {
                let mut name = self.load_text(value, 64)?;
                name.truncate(15);
                if thread.tid == thread.process.pid {
                    thread.process.place.with(|place| place.name = name);
                }
                Ok(0)
            }
            GET_NAME => {
                let mut name = thread.process.place.with(|place| place.name.clone());
                name.resize(16, 0);
                self.machine.write_user(value, &name).map(|()| 0)
            }
            // Core files, timer slack, large pages, parents' deaths, and names of memory: nothing depends on them.
            3 | 4 | 1 | 2 | 29 | 30 | 38 | 39 | 41 | 42 | 36 | 37 => Ok(0),
            _ => Err(Errno::EINVAL),
        }
    }

    pub(crate) fn prlimit(&self, thread: &Thread, [pid, what, new, old]: [u64; 4]) -> Answer {
        let process = self.process_of(thread, pid)?;
        let what = what as u32 as usize;
        let now = process.limits.with(|limits| limits.get(what).copied()).ok_or(Errno::EINVAL)?;
        if new != 0 {
            let wanted = [self.load_long(new)?, self.load_long(new + 8)?];
            if wanted[0] > wanted[1] {
                return Err(Errno::EINVAL);
            }
            // As many as there can be, whoever asks.
            if what == limit::FILES && wanted[1] > crate::open::MOST as u64 {
                return Err(Errno::EPERM);
            }
            process.limits.with(|limits| limits[what] = wanted);
            if what == limit::FILES {
                process.files.with(|files| files.limit(wanted[0]));
            }
        }
        if old != 0 {
            self.machine.write_user(old, &Pack::default().long(now[0]).long(now[1]).0)?;
        }
        Ok(0)
    }

    /// All CPUs have passed a full barrier when each has been interrupted, or was not in a program of this process: no such
    /// interrupt is sent for programs. The private kinds are not offered, and libraries do without them.
    pub(crate) fn membarrier(&self, what: u64) -> Answer {
        if what == 0 { Ok(0) } else { Err(Errno::EINVAL) }
    }
}
