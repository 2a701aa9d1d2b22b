//! Calls that make processes and threads, and have them run other programs.

mod barrier;
pub(crate) mod capabilities;
mod compare;
mod groups;
mod many;
mod pidfd;
mod prctl;
mod scheduling;
pub(super) mod users;
mod wait;

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};

use crate::capabilities::OWNS;
use crate::errno::{Answer, Errno};
use crate::exec::Named;
use crate::frame::Frame;
use crate::kernel::{AFTER_SIGNALS, Linux};
use crate::machine::Machine;
use crate::open::Kind;
use crate::process::{Memory, Process, Thread};
use crate::signal::number;
use crate::sync::{Mutex, Spin, key_of};
use crate::trace::event;
use crate::tree::{Body, Inode};

mod flag {
    pub const MEMORY: u64 = 0x100;
    pub const FILES: u64 = 0x400;
    /// One table of handlers.
    pub const HANDLERS: u64 = 0x800;
    pub const VFORK: u64 = 0x4000;
    pub const PARENT: u64 = 0x8000;
    /// Whoever traces this one does not trace that one.
    pub const UNTRACED: u64 = 0x80_0000;
    pub const THREAD: u64 = 0x1_0000;
    pub const TLS: u64 = 0x8_0000;
    pub const PARENT_TID: u64 = 0x10_0000;
    pub const CLEAR_TID: u64 = 0x20_0000;
    pub const CHILD_TID: u64 = 0x100_0000;
    /// Namespaces, and other things that are not here.
    pub const UNKNOWN: u64 = 0x7e02_0000 | 0x2000;
    /// A descriptor of the process.
    pub const DESCRIPTOR: u64 = 0x1000;
    /// Nobody hears how it ends: no more.
    pub const DETACHED: u64 = 0x40_0000;
    /// Signal handlers back to usual.
    pub const CLEAR_HANDLERS: u64 = 0x1_0000_0000;
    /// Into a group of which there is none here.
    pub const INTO_GROUP: u64 = 0x2_0000_0000;
}

/// Above all numbers of processes, as `/proc/sys/kernel/pid_max` has it.
const PID_MAX: i32 = 32768;

/// What an area takes of the kernel's memory, at most.
const BYTES_OF_AREA: u64 = 192;

/// What the number of an open file takes.
const BYTES_OF_FILE: u64 = 64;

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
    pub(crate) fn clone_arguments(&self, thread: &Thread, at: u64, bytes: u64) -> Result<Clone, Errno> {
        /// Bytes of what may be said.
        const KNOWN: u64 = 88;
        if bytes > 4096 {
            return Err(Errno::E2BIG);
        }
        if bytes < 64 {
            return Err(Errno::EINVAL);
        }
        let word = |index: u64| self.load_long(at + 8 * index);
        // What is not known here must be nothing.
        let mut more = alloc::vec![0; bytes.saturating_sub(KNOWN) as usize];
        self.machine.read_user(at + KNOWN.min(bytes), &mut more)?;
        if more.iter().any(|&byte| byte != 0) {
            return Err(Errno::E2BIG);
        }
        let (flags, ends_with, stack, len) = (word(0)?, word(4)?, word(5)?, word(6)?);
        if ends_with > u64::from(number::LAST)
            || flags & (flag::DETACHED | 0x7f) != 0
            || flags & flag::HANDLERS != 0 && flags & flag::CLEAR_HANDLERS != 0
            || flags & (flag::THREAD | flag::PARENT) != 0 && ends_with != 0
            || (stack == 0) != (len == 0)
        {
            return Err(Errno::EINVAL);
        }
        // Words that are not there say nothing.
        let later = |index: u64| if bytes >= 8 * (index + 1) { word(index) } else { Ok(0) };
        self.numbers_are_free(thread, later(8)?, later(9)?)?;
        if flags & flag::INTO_GROUP != 0 {
            let is_number = bytes >= KNOWN && i32::try_from(later(10)?).is_ok();
            return Err(if is_number { Errno::EBADF } else { Errno::EINVAL });
        }
        Ok(Clone {
            flags,
            stack: if stack == 0 { 0 } else { stack.wrapping_add(len) },
            child_tid: word(2)?,
            parent_tid: word(3)?,
            ends_with: ends_with as u32,
            tls: word(7)?,
            descriptor: word(1)?,
        })
    }

    /// Numbers that the new one is to have, one for each namespace. There is one of these, and nobody chooses here what its numbers are.
    fn numbers_are_free(&self, thread: &Thread, at: u64, many: u64) -> Result<(), Errno> {
        const RESTORES: u32 = 40;
        match (at, many) {
            (0, 0) => return Ok(()),
            (0, _) | (_, 0) | (_, 2..) => return Err(Errno::EINVAL),
            _ => {}
        }
        let number = self.load_word(at)?;
        let may = thread.process.owner.with(|owner| owner.may(RESTORES) || owner.may(OWNS));
        match number as i32 {
            ..1 | PID_MAX.. => Err(Errno::EINVAL),
            _ if may && self.process_with(number).is_some() => Err(Errno::EEXIST),
            _ => Err(Errno::EPERM),
        }
    }

    pub(crate) fn clone_(&self, thread: &Arc<Thread>, frame: &mut Frame, ask: &Clone) -> Answer {
        let Clone { flags, .. } = *ask;
        let is_thread = flags & flag::THREAD != 0;
        if flags & flag::UNKNOWN != 0
            || is_thread && flags & flag::HANDLERS == 0
            || flags & (flag::THREAD | flag::HANDLERS) != 0 && flags & flag::MEMORY == 0
            || flags >> 34 != 0
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
        self.may_make_more(thread)?;
        let parent = &thread.process;
        let heard = parent.heard.load(Ordering::SeqCst);
        // What was heard is seen to first: the one that is made does not hear of it.
        if !is_thread && (thread.is_dying() || thread.signals() != 0) {
            return Err(AFTER_SIGNALS);
        }
        let tid = self.new_tid();
        let mask = thread.mask.load(Ordering::SeqCst);
        let process = if is_thread { parent.clone() } else { self.new_process(thread, tid, ask)? };
        let new = Thread::new(tid, &process, mask);
        new.scheduling.with(|new| *new = scheduling::of_child(thread.scheduling.with(|now| *now)));
        let within = thread.within.with(|within| *within);
        new.within.with(|new| *new = within);
        new.moves.store(within != [u64::MAX; 4], Ordering::SeqCst);
        new.fs.store(if flags & flag::TLS != 0 { ask.tls } else { thread.fs() }, Ordering::Relaxed);
        if flags & flag::CLEAR_TID != 0 {
            new.clear_tid.store(ask.child_tid, Ordering::SeqCst);
        }
        if flags & flag::CHILD_TID != 0 {
            new.set_tid.store(ask.child_tid, Ordering::SeqCst);
        }
        // Nor does one lose it for whom this one waits.
        if flags & (flag::MEMORY | flag::VFORK) != flag::MEMORY {
            new.stack.with(|stack| *stack = thread.stack.with(|stack| *stack));
        }
        if flags & flag::PARENT_TID != 0 {
            // Whoever has named a bad place finds nothing there.
            let _ = self.machine.write_user(ask.parent_tid, &tid.to_le_bytes());
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
        let event = match () {
            () if flags & flag::UNTRACED != 0 => 0,
            () if flags & flag::VFORK != 0 => event::VFORK,
            () if is_thread || ask.ends_with != number::CHILD => event::CLONE,
            () => event::FORK,
        };
        if event != 0 && thread.traced.is() {
            self.trace_new(thread, &new, event);
        }
        process.threads.with(|threads| {
            new.filtering.follow(&thread.filtering);
            threads.push(new.clone());
        });
        if !is_thread {
            let missed = self.processes.with(|all| {
                all.insert(tid, process.clone());
                self.announced.with(|now| now.since(heard, &process))
            });
            missed.into_iter().for_each(|info| self.post(&process, None, info));
        }
        // Its use grows sooner now.
        if crate::meters::is_metered(&process) {
            self.alarm_changed();
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
        if event != 0 {
            self.stop_for_event(thread, frame, event, tid.into());
        }
        if flags & flag::VFORK != 0 {
            let lent = || !process.borrows.load(Ordering::SeqCst);
            // Its memory is the child's now: it waits, whatever comes, until that is no longer so, or it is to end.
            self.wait_to_the_death(thread, key_of(&*process), lent);
            self.stop_for_event(thread, frame, event::VFORK_DONE, tid.into());
        }
        Ok(tid.into())
    }

    fn new_process(&self, thread: &Thread, pid: u32, ask: &Clone) -> Result<Arc<Process>, Errno> {
        let parent = &thread.process;
        let memory = thread.memory();
        let memory = if ask.flags & flag::MEMORY != 0 {
            memory
        } else {
            let announced = memory.barriers.load(Ordering::SeqCst);
            memory.layout.with(self.machine, |layout| {
                let files = parent.files.with(|files| files.count()) as u64;
                let areas = layout.areas.iter().count() as u64;
                if !self.machine.has_room(BYTES_OF_AREA * areas + BYTES_OF_FILE * files) {
                    return Err(Errno::ENOMEM);
                }
                let space = self.mm.space(memory.space).fork()?;
                let mut copy = layout.clone();
                let inherited = self.inherit(space, &mut copy);
                let memory = Memory::new(space, copy, &self.left);
                memory.barriers.store(announced, Ordering::SeqCst);
                inherited?;
                Ok::<_, Errno>(memory)
            })?
        };
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
            files: if ask.flags & flag::FILES != 0 { parent.files.share() } else { parent.files.copy() },
            place: Spin::new(parent.place.with(|place| place.clone())),
            owner: Spin::new(parent.owner.with(|owner| owner.clone())),
            nice: AtomicU32::new(parent.nice.load(Ordering::Relaxed)),
            personality: AtomicU32::new(parent.personality.load(Ordering::Relaxed)),
            policy: AtomicU32::new(parent.policy.load(Ordering::Relaxed)),
            actions: Spin::new(actions),
            pending: AtomicU64::new(0),
            infos: Spin::default(),
            threads: Spin::default(),
            dying: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            heard: AtomicU64::new(0),
            undo: Spin::default(),
            stopping: Spin::default(),
            stopped: AtomicBool::new(false),
            borrows: AtomicBool::new(ask.flags & flag::VFORK != 0),
            alarm: Spin::default(),
            meters: Spin::default(),
            timers: Spin::default(),
            ringing: Mutex::new(()),
            said: parent.said.of_child(),
            limits: Spin::new(parent.limits.with(|limits| *limits)),
            began: self.now(),
            spent: Default::default(),
            ends_with: AtomicU32::new(ask.ends_with),
            with_parent: AtomicU32::new(0),
            made_by: AtomicU32::new(thread.tid),
            adjust: AtomicI32::new(parent.adjust.load(Ordering::Relaxed)),
            used: Default::default(),
            limits_locks: AtomicBool::new(parent.limits_locks.load(Ordering::Relaxed)),
            tracing: Default::default(),
            crowds: AtomicBool::new(false),
            terminal: Spin::new(parent.terminal.with(|own| own.clone())),
        }))
    }

    /// It has a space of its own now, or has ended.
    pub(crate) fn no_longer_borrows(&self, process: &Process) {
        if process.borrows.swap(false, Ordering::SeqCst) {
            self.machine.wake(key_of(process));
        }
    }

    /// A program that is named from a directory on, or by its descriptor alone: it is told so.
    fn named(&self, thread: &Thread, from: u64, path: Vec<u8>, may_be_empty: bool) -> Result<Named, Errno> {
        if path.starts_with(b"/") || from as u32 == super::HERE as u32 && !path.is_empty() {
            return Ok(Named::by_path(path));
        }
        if path.is_empty() && !may_be_empty {
            return Err(Errno::ENOENT);
        }
        let is_lost = thread.process.files.with(|files| files.close_on_exec(from).map(|closes| *closes))?;
        let name = alloc::format!("/dev/fd/{}", from as u32).into_bytes();
        let (path, name) = match path.is_empty() {
            true => (name.clone(), name),
            false => {
                let open = self.open_file(thread, from)?;
                let Kind::Directory(inode) = &open.kind else { return Err(Errno::ENOTDIR) };
                ([crate::path::path_of(inode).as_slice(), &path].join(&b'/'), [name, path].join(&b'/'))
            }
        };
        Ok(Named { path, name, is_lost })
    }

    pub(crate) fn execve(
        &self,
        thread: &Arc<Thread>,
        frame: &mut Frame,
        [directory, path, arguments, environment, flags]: [u64; 5],
    ) -> Answer {
        const EMPTY_PATH: u64 = 0x1000;
        const NO_FOLLOW: u64 = 0x100;
        if flags & !(EMPTY_PATH | NO_FOLLOW) != 0 {
            return Err(Errno::EINVAL);
        }
        self.may_run_another(thread)?;
        let named = self.named(thread, directory, self.load_path(path)?, flags & EMPTY_PATH != 0)?;
        let leads = |it: &Arc<Inode>| matches!(it.body, Body::Link(_));
        if flags & NO_FOLLOW != 0
            && self.walk(thread, None, &named.path, false)?.inode.is_some_and(|it| leads(&it))
        {
            return Err(Errno::ELOOP);
        }
        let (arguments, environment) = (self.load_texts(arguments)?, self.load_texts(environment)?);
        // The stack's content, and what `/proc` shows, are made of them.
        let bytes: usize = arguments.iter().chain(&environment).map(|text| 4 * text.len() + 64).sum();
        if !self.machine.has_piece(bytes as u64) {
            return Err(Errno::ENOMEM);
        }
        let number = frame.registers.error;
        self.exec(thread, frame, named, arguments, environment)?;
        self.stop_for_exec(thread, frame, number);
        Ok(0)
    }

    /// Shares files and the like with nobody any more; namespaces are not here.
    pub(crate) fn unshare(&self, thread: &Thread, flags: u64) -> Answer {
        const SHARED: u64 = 0x1_0000 | 0x800 | 0x100;
        const ALONE: u64 = 0x200 | 0x400 | 0x4_0000 | 0x1_0000 | 0x100 | 0x800;
        match flags {
            flags if flags & !(ALONE | flag::UNKNOWN | 0x80) != 0 => Err(Errno::EINVAL),
            flags if flags & (flag::UNKNOWN | 0x80) != 0 => Err(Errno::EPERM),
            // Threads share their memory and their handlers as long as there are several.
            flags if flags & SHARED != 0 && thread.process.threads.with(|all| all.len()) > 1 => {
                Err(Errno::EINVAL)
            }
            flags => {
                // Threads share them as long as there are several.
                if flags & flag::FILES != 0 && thread.process.threads.with(|all| all.len()) == 1 {
                    thread.process.files.unshare();
                }
                Ok(0)
            }
        }
    }

    /// A process by its number, or by that of one of its threads.
    pub(crate) fn process_with(&self, number: u32) -> Option<Arc<Process>> {
        let has = |process: &&Arc<Process>| process.thread(number).is_some();
        self.processes.with(|all| all.get(&number).or_else(|| all.values().find(has)).cloned())
    }

    pub(crate) fn process_of(&self, thread: &Thread, pid: u64) -> Result<Arc<Process>, Errno> {
        if pid == 0 {
            return Ok(thread.process.clone());
        }
        self.process_with(pid as u32).ok_or(Errno::ESRCH)
    }
}
