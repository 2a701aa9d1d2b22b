//! Threads that another process looks into and steers (`ptrace`): how they stop, what the tracer hears of it, and how they go on. What it
//! asks for is in `call/ptrace.rs`.
//!
//! A traced thread stops on its own way to or from its program, with its registers kept where the tracer may change them, and waits there
//! until it is let go. Whoever traces is a process: any of its threads may ask and hear.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crate::errno::Errno;
use crate::frame::Frame;
use crate::kernel::{AGAIN, Linux, RESTART, UNLESS_HANDLED};
use crate::machine::Machine;
use crate::process::{Process, Thread};
use crate::signal::{Info, act, bit, number};
use crate::sync::{Spin, key_of};

/// What a tracer wants to hear of.
pub(crate) mod option {
    /// System calls are told from signals.
    pub const GOOD: u32 = 1;
    /// Whoever is traced ends with its tracer.
    pub const KILL: u32 = 0x10_0000;
    /// All that there are.
    pub const ALL: u32 = 0x30_00ff;
    /// That of an event.
    pub const fn of(event: u32) -> u32 {
        1 << event
    }
}

/// What happens besides signals and system calls.
pub(crate) mod event {
    pub const FORK: u32 = 1;
    pub const VFORK: u32 = 2;
    pub const CLONE: u32 = 3;
    pub const EXEC: u32 = 4;
    pub const VFORK_DONE: u32 = 5;
    pub const EXIT: u32 = 6;
    /// A filter wants the tracer to look at a call.
    pub const FILTER: u32 = 7;
    pub const STOP: u32 = 128;
}

/// How `siginfo` says that a thread has stopped for its tracer.
const TRAPPED: i32 = 4;
const STOPPED: i32 = 5;
/// A signal from the kernel itself.
const BY_KERNEL: i32 = 0x80;
/// After each instruction of the program there is a trap.
const STEPS: u64 = 0x100;

/// How far a traced thread goes.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) enum Goes {
    #[default]
    Freely,
    /// To where a system call begins or ends.
    ToCall,
    /// One instruction.
    OneStep,
}

/// Why a thread has stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Why {
    /// A signal is about to be delivered.
    Signal,
    /// A system call begins, with this number, or has ended.
    Enters(u64),
    Leaves,
    /// Something else has happened.
    Event,
    /// Its process is stopped, or was asked to be.
    Group,
    /// It ends.
    Ends,
}

/// A thread that has stopped.
pub(crate) struct Stop {
    pub why: Why,
    /// The signal, and above it the event, as `wait4` says it.
    pub code: u32,
    /// What is said of the signal, if anything.
    pub info: Option<Info>,
    /// Its registers, which its tracer may change.
    pub frame: Box<Frame>,
    pub fs: u64,
    /// Its tracer has heard of it.
    pub told: bool,
    /// It may go on.
    pub goes: bool,
}

/// Who traces a thread, and how.
#[derive(Default)]
pub(crate) struct State {
    /// A process; 0 for none.
    pub tracer: u32,
    /// By `PTRACE_SEIZE`: stops of the whole process are told as what they are.
    pub seized: bool,
    pub options: u32,
    pub goes: Goes,
    pub stop: Option<Stop>,
    /// What came with the last event.
    pub message: u64,
    /// The signal with which it goes on.
    pub signal: u32,
    /// It stays stopped until its process goes on, and says so then.
    pub listens: bool,
}

/// What is kept of tracing with a thread.
#[derive(Default)]
pub(crate) struct Traced {
    pub state: Spin<State>,
    /// Whether it is traced.
    is: AtomicBool,
    /// It is to stop and say so, soon.
    pub traps: AtomicBool,
    /// It goes on though its process is stopped: its tracer wants that.
    pub passes: AtomicBool,
}

/// A thread that was traced and has ended.
pub(crate) struct Ended {
    pub tid: u32,
    pub status: u32,
}

/// What is kept of tracing with a process.
#[derive(Default)]
pub(crate) struct Tracing {
    /// It traces, or has traced.
    pub any: AtomicBool,
    /// Threads that it traced: not those whose process has ended with them, which wait like children.
    pub ended: Spin<Vec<Ended>>,
    /// Who traces its first thread, and hears first that it has ended; 0 for none.
    pub by: AtomicU32,
}

impl Traced {
    pub fn is(&self) -> bool {
        self.is.load(Ordering::SeqCst)
    }

    /// Its tracer wants to hear of system calls.
    pub fn follows_calls(&self) -> bool {
        self.is() && self.state.with(|state| state.goes == Goes::ToCall)
    }

    /// Its tracer is asked when a filter of calls says so.
    pub fn hears_of_filters(&self) -> bool {
        self.wants(option::of(event::FILTER))
    }

    fn steps(&self) -> bool {
        self.is() && self.state.with(|state| state.goes == Goes::OneStep)
    }

    fn wants(&self, option: u32) -> bool {
        self.is() && self.state.with(|state| state.options & option != 0)
    }
}

impl Thread {
    /// It has to stop for its tracer: because it was asked to, or with its process.
    pub(crate) fn is_to_trap(&self) -> bool {
        let stops = self.process.is_stopped() && !self.traced.passes.load(Ordering::SeqCst);
        self.traced.is() && (stops || self.traced.traps.load(Ordering::SeqCst))
    }
}

impl<M: Machine> Linux<'_, M> {
    /// A thread by its number.
    pub(crate) fn thread_numbered(&self, tid: u32) -> Option<Arc<Thread>> {
        self.process_with(tid)?.thread(tid)
    }

    /// All threads that a process traces.
    pub(crate) fn tracees(&self, tracer: &Process) -> Vec<Arc<Thread>> {
        if !tracer.tracing.any.load(Ordering::SeqCst) {
            return Vec::new();
        }
        let all: Vec<_> = self.processes.with(|all| all.values().cloned().collect());
        let threads = all.iter().flat_map(|process| process.threads.with(|threads| threads.clone()));
        threads.filter(|thread| thread.traced.state.with(|state| state.tracer == tracer.pid)).collect()
    }

    /// From now on a process traces a thread.
    ///
    /// # Errors
    /// `EPERM`: another one does, or the same.
    pub(crate) fn begin_to_trace(
        &self,
        tracer: &Process,
        thread: &Thread,
        seized: bool,
        options: u32,
    ) -> Result<(), Errno> {
        tracer.tracing.any.store(true, Ordering::SeqCst);
        thread.traced.state.with(|state| {
            if state.tracer != 0 {
                return Err(Errno::EPERM);
            }
            *state = State { tracer: tracer.pid, seized, options, ..State::default() };
            thread.traced.is.store(true, Ordering::SeqCst);
            Ok(())
        })?;
        if thread.tid == thread.process.pid {
            thread.process.tracing.by.store(tracer.pid, Ordering::SeqCst);
        }
        // Whoever is stopped already stops in the other way.
        self.machine.wake(key_of(&thread.process.stopping));
        Ok(())
    }

    /// Nobody traces a thread any more; it goes on, with this signal.
    pub(crate) fn end_to_trace(&self, thread: &Thread, signal: u32) {
        thread.traced.state.with(|state| {
            let stop = state.stop.take();
            *state = State { stop, signal, ..State::default() };
            state.stop.iter_mut().for_each(|stop| stop.goes = true);
            thread.traced.is.store(false, Ordering::SeqCst);
        });
        thread.traced.traps.store(false, Ordering::SeqCst);
        thread.traced.passes.store(false, Ordering::SeqCst);
        if thread.tid == thread.process.pid {
            self.forget_tracer(&thread.process);
        }
        self.machine.wake(key_of(&thread.traced));
    }

    /// What a thread makes is traced too, if its tracer wants that. Before the new one runs.
    pub(crate) fn trace_new(&self, thread: &Thread, new: &Thread, event: u32) {
        if !thread.traced.wants(option::of(event)) {
            return;
        }
        let (tracer, seized, options) =
            thread.traced.state.with(|state| (state.tracer, state.seized, state.options));
        let tracer = self.processes.with(|all| all.get(&tracer).cloned());
        let Some(tracer) = tracer else { return };
        if self.begin_to_trace(&tracer, new, seized, options).is_err() {
            return;
        }
        if seized {
            new.traced.traps.store(true, Ordering::SeqCst);
        } else {
            new.infos.with(|infos| infos.push(Info { signal: number::STOP, ..Info::default() }));
            new.pending.fetch_or(bit(number::STOP), Ordering::SeqCst);
        }
    }

    /// Stops for the tracer, until it lets the thread go on. The signal that it wants to be delivered, and what is said of it; `None` if
    /// nobody traces it, or it is to end.
    fn stop_for_tracer(
        &self,
        thread: &Arc<Thread>,
        frame: &mut Frame,
        (why, code): (Why, u32),
        info: Option<Info>,
        message: Option<u64>,
    ) -> Option<(u32, Option<Info>)> {
        let traced = &thread.traced;
        frame.registers.flags &= !STEPS;
        let kept = Box::new(*frame);
        // Whoever is to end stops for nothing else.
        let tracer = traced.state.with(|state| {
            if why != Why::Ends && thread.is_dying() {
                return 0;
            }
            if state.tracer != 0 {
                let (fs, told, goes) = (thread.fs(), false, false);
                state.stop = Some(Stop { why, code, info, frame: kept, fs, told, goes });
                (state.signal, state.listens) = (0, false);
                state.message = message.unwrap_or(state.message);
            }
            state.tracer
        });
        if tracer == 0 {
            return None;
        }
        let tracer = self.processes.with(|all| all.get(&tracer).cloned());
        // After the stop was noted: a tracer that ends finds it, or is found to have ended.
        match tracer.filter(|tracer| tracer.ended.load(Ordering::SeqCst) == 0) {
            None => self.end_to_trace(thread, 0),
            Some(tracer) => {
                let how = if why == Why::Group { STOPPED } else { TRAPPED };
                self.tell_tracer(&tracer, thread.tid, how, code & 0x7f);
            }
        }
        let goes = || {
            let traps = traced.traps.load(Ordering::SeqCst);
            traced
                .state
                .with(|state| state.stop.as_ref().is_none_or(|stop| stop.goes) || state.listens && traps)
        };
        let key = key_of(traced);
        thread.waits.with(|waits| *waits = Some(key));
        // Whoever ends has been told to already.
        self.machine.wait(key, &mut || goes() || why != Why::Ends && thread.is_dying());
        thread.waits.with(|waits| *waits = None);
        let (stop, signal) =
            traced.state.with(|state| (state.stop.take(), core::mem::take(&mut state.signal)));
        let stop = stop?;
        *frame = *stop.frame;
        if stop.fs != thread.fs() {
            thread.fs.store(stop.fs, Ordering::Relaxed);
            self.machine.set_fs(stop.fs);
        }
        let dies = why != Why::Ends && thread.is_dying();
        (!dies).then_some((signal, stop.info))
    }

    fn tell_tracer(&self, tracer: &Arc<Process>, tid: u32, code: i32, value: u32) {
        let action = tracer.action(number::CHILD);
        if action.handler != 1 && action.flags & act::NO_STOPS == 0 {
            let (word, value) = (tid.into(), value.into());
            self.post(tracer, None, Info { signal: number::CHILD, code, word, value, error: 0 });
        }
        self.machine.wake(key_of(&**tracer));
    }

    /// What a stop for no signal says of itself.
    fn trap_info(thread: &Thread, code: u32) -> Info {
        let word = thread.process.names(thread.tid);
        Info { signal: code & 0x7f, code: code as i32, word, value: 0, error: 0 }
    }

    /// A system call begins or has ended; false if it is not to be done.
    pub(crate) fn stop_for_call(&self, thread: &Arc<Thread>, frame: &mut Frame, enters: bool) -> bool {
        let good = thread.traced.wants(option::GOOD);
        let code = number::TRAP | if good { 0x80 } else { 0 };
        let why = if enters { Why::Enters(frame.registers.error) } else { Why::Leaves };
        let info = Info { signal: number::TRAP, ..Self::trap_info(thread, code) };
        let message = if enters { 1 } else { 2 };
        let went = self.stop_for_tracer(thread, frame, (why, code), Some(info), Some(message));
        if let Some((signal @ 1.., _)) = went {
            let info = Info { signal, code: BY_KERNEL, ..Info::default() };
            self.post(&thread.process, Some(thread), info);
        }
        !thread.is_dying()
    }

    /// After a system call: a thread that goes by steps has made one.
    pub(crate) fn step_of_call(&self, thread: &Arc<Thread>, frame: &mut Frame) {
        if thread.traced.steps() {
            frame.registers.flags &= !STEPS;
            let info = Info { signal: number::TRAP, code: 1, word: frame.registers.rip, value: 0, error: 0 };
            self.force(thread, info);
        }
    }

    /// Something has happened that the tracer may want to hear.
    pub(crate) fn stop_for_event(&self, thread: &Arc<Thread>, frame: &mut Frame, event: u32, message: u64) {
        if thread.traced.wants(option::of(event)) {
            let code = number::TRAP | event << 8;
            let why = if event == event::EXIT { Why::Ends } else { Why::Event };
            let info = Self::trap_info(thread, code);
            let _ = self.stop_for_tracer(thread, frame, (why, code), Some(info), Some(message));
        }
    }

    /// A thread runs another program.
    pub(crate) fn stop_for_exec(&self, thread: &Arc<Thread>, frame: &mut Frame, number: u64) {
        if !thread.traced.is() {
            return;
        }
        // It is still in its call.
        (frame.registers.vector, frame.registers.error) = (crate::frame::CALL, number);
        if thread.traced.wants(option::of(event::EXEC)) {
            self.stop_for_event(thread, frame, event::EXEC, thread.tid.into());
        } else if thread.traced.state.with(|state| state.tracer != 0 && !state.seized) {
            let info = Info { signal: number::TRAP, word: thread.process.pid.into(), ..Info::default() };
            self.post(&thread.process, Some(thread), info);
        }
    }

    /// Stops as its process does, or because it was asked to.
    pub(crate) fn stop_for_group(&self, thread: &Arc<Thread>, frame: &mut Frame) {
        let traced = &thread.traced;
        traced.traps.store(false, Ordering::SeqCst);
        let stopped = thread.process.is_stopped();
        if stopped {
            traced.passes.store(true, Ordering::SeqCst);
        }
        let signal = if stopped { thread.process.stopping.with(|it| it.signal) } else { number::TRAP };
        if traced.state.with(|state| state.seized) {
            let why = if stopped { Why::Group } else { Why::Event };
            let code = signal | event::STOP << 8;
            let info = Self::trap_info(thread, code);
            let _ = self.stop_for_tracer(thread, frame, (why, code), Some(info), Some(0));
        } else if stopped {
            let _ = self.stop_for_tracer(thread, frame, (Why::Group, signal), None, None);
        }
    }

    /// A signal is about to be delivered: what the tracer makes of it.
    pub(crate) fn stop_for_signal(
        &self,
        thread: &Arc<Thread>,
        frame: &mut Frame,
        info: Info,
    ) -> Option<Info> {
        if !thread.traced.is() || info.signal == number::KILL {
            return Some(info);
        }
        let tracer = thread.traced.state.with(|state| state.tracer);
        let why = (Why::Signal, info.signal);
        let (signal, said) = self.stop_for_tracer(thread, frame, why, Some(info), Some(0))?;
        if signal == 0 {
            return None;
        }
        let said = said.filter(|said| said.signal == signal);
        let info = said.unwrap_or(Info { signal, word: tracer.into(), ..Info::default() });
        if thread.mask.load(Ordering::SeqCst) & bit(signal) & !crate::signal::ALWAYS != 0 {
            self.post(&thread.process, Some(thread), info);
            return None;
        }
        Some(info)
    }

    /// A handler is about to run, of a thread that goes by steps.
    pub(crate) fn stop_for_handler(&self, thread: &Arc<Thread>, frame: &mut Frame) {
        if thread.traced.steps() {
            let info = Self::trap_info(thread, number::TRAP);
            let _ = self.stop_for_tracer(thread, frame, (Why::Event, number::TRAP), Some(info), Some(0));
        }
    }

    /// The system call that is to be made again, if the tracer has not changed that.
    pub(crate) fn again_of(thread: &Thread, frame: &Frame, again: Option<u64>) -> Option<u64> {
        if !thread.traced.is() {
            return again;
        }
        let r = &frame.registers;
        let again = [AGAIN, UNLESS_HANDLED, RESTART].map(Errno::register).contains(&r.rax);
        (r.vector == crate::frame::CALL && r.error as i64 >= 0 && again).then_some(r.error)
    }

    /// A thread goes back to its program.
    pub(crate) fn goes_on(thread: &Thread, frame: &mut Frame) {
        if thread.traced.steps() {
            frame.registers.flags |= STEPS;
        }
    }

    /// A thread that goes by steps has made one, or its program wanted a trap of that kind.
    pub(crate) fn stepped(thread: &Thread, frame: &mut Frame) {
        if thread.traced.is() {
            frame.registers.flags &= !STEPS;
        }
    }

    /// A signal that a traced thread cannot do without reaches it whatever it blocks.
    pub(crate) fn open_for(thread: &Thread, signal: u32) -> bool {
        if !thread.traced.is() {
            return false;
        }
        let was = thread.mask.fetch_and(!bit(signal), Ordering::SeqCst);
        thread.process.actions.with(|actions| {
            let action = &mut actions[signal as usize];
            if was & bit(signal) != 0 || action.handler == 1 {
                action.handler = 0;
            }
        });
        true
    }

    /// A process is about to be stopped, or to go on: its traced threads look.
    pub(crate) fn trace_stops(&self, process: &Process, goes_on: bool) {
        let threads = process.threads.with(|threads| threads.clone());
        for thread in threads.iter().filter(|thread| thread.traced.is()) {
            let traced = &thread.traced;
            traced.passes.store(false, Ordering::SeqCst);
            if goes_on && traced.state.with(|state| state.seized) {
                traced.traps.store(true, Ordering::SeqCst);
                self.machine.wake(key_of(traced));
            }
            if let Some(key) = thread.waits.with(|waits| *waits) {
                self.machine.wake(key);
            }
        }
    }

    /// A traced thread has ended; the process goes on without it, if it is not the first.
    pub(crate) fn tracee_ended(&self, thread: &Thread) {
        if !thread.traced.is() || thread.tid == thread.process.pid {
            return;
        }
        let tracer = thread.traced.state.with(|state| state.tracer);
        let tracer = self.processes.with(|all| all.get(&tracer).cloned());
        let status = thread.status();
        // Before it is traced no more: whoever waits for it finds one or the other.
        if let Some(tracer) = &tracer {
            tracer.tracing.ended.with(|ended| ended.push(Ended { tid: thread.tid, status }));
        }
        self.end_to_trace(thread, 0);
        let Some(tracer) = tracer else { return };
        let (code, value) = crate::kernel::how_ended(status.into());
        self.post(
            &tracer,
            None,
            Info { signal: number::CHILD, code, word: thread.process.names(thread.tid), value, error: 0 },
        );
        self.machine.wake(key_of(&*tracer));
    }

    /// A tracer has ended: what it traced goes on alone, or ends with it.
    pub(crate) fn tracer_ended(&self, tracer: &Process) {
        for thread in self.tracees(tracer) {
            if thread.traced.wants(option::KILL) {
                self.kill(&thread.process, number::KILL);
            }
            self.end_to_trace(&thread, 0);
        }
        if tracer.tracing.any.load(Ordering::SeqCst) {
            let all: Vec<_> = self.processes.with(|all| all.values().cloned().collect());
            for process in all.iter().filter(|it| it.tracing.by.load(Ordering::SeqCst) == tracer.pid) {
                self.forget_tracer(process);
            }
        }
    }

    /// The tracer of a process that has ended has heard of it, and its parent hears of it now.
    pub(crate) fn forget_tracer(&self, process: &Arc<Process>) {
        if process.tracing.by.swap(0, Ordering::SeqCst) != 0 && process.ended.load(Ordering::SeqCst) != 0 {
            self.tell_end(process);
        }
    }

    /// Whether somebody other than its parent is to hear first that a process has ended; then it has been told.
    pub(crate) fn tells_tracer_of_end(&self, process: &Arc<Process>) -> bool {
        let by = process.tracing.by.load(Ordering::SeqCst);
        if by == 0 || by == process.parent.load(Ordering::SeqCst) {
            return false;
        }
        let tracer = self.processes.with(|all| all.get(&by).cloned());
        let Some(tracer) = tracer.filter(|tracer| tracer.ended.load(Ordering::SeqCst) == 0) else {
            return false;
        };
        let (code, value) = crate::kernel::how_ended(process.ended.load(Ordering::SeqCst));
        self.post(
            &tracer,
            None,
            Info { signal: number::CHILD, code, word: process.names_itself(), value, error: 0 },
        );
        self.machine.wake(key_of(&*tracer));
        true
    }
}
