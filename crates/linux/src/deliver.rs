//! Signals on their way: sent, forced by what a thread did, delivered before a program goes on, and returned from. `signal.rs` has
//! their form.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};

use crate::announced::{Meant, Sender};
use crate::call::RESTART_CALL;
use crate::errno::{Answer, Errno};
use crate::frame::{Frame, Fx};
use crate::kernel::{AFTER_SIGNALS, AGAIN, Flow, Linux, RESTART};
use crate::machine::Machine;
use crate::process::{Process, Thread};
use crate::signal::{self, Info, act, bit, number};
use crate::sync::Spin;
use crate::trace::event;

/// Signals of one kind that wait for a process or a thread.
const MOST_WAITING: usize = 1024;

impl<M: Machine> Linux<'_, M> {
    /// A signal, for a process or for one thread of it.
    pub(crate) fn post(&self, process: &Arc<Process>, thread: Option<&Arc<Thread>>, info: Info) {
        if self.leave_signal(process, thread, info) {
            self.nudge_for(process, thread, info.signal);
        }
    }

    /// Puts it where they look, and says whether they are to.
    pub(crate) fn leave_signal(
        &self,
        process: &Arc<Process>,
        thread: Option<&Arc<Thread>>,
        info: Info,
    ) -> bool {
        let signal = info.signal;
        self.before_signal(process, signal);
        let deaf = |thread: &Arc<Thread>| thread.mask.load(Ordering::SeqCst) & bit(signal) != 0;
        let is_blocked = || match thread {
            Some(thread) => deaf(thread),
            None => process.threads.with(|threads| threads.iter().any(deaf)),
        };
        let is_traced = || process.threads.with(|threads| threads.iter().any(|thread| thread.traced.is()));
        // While it is blocked it waits all the same: `sigwait` may want it. A tracer hears of it.
        if process.action(signal).ignores(signal) && signal != number::KILL && !is_blocked() && !is_traced() {
            return false;
        }
        let (pending, infos) = match thread {
            Some(thread) => (&thread.pending, &thread.infos),
            None => (&process.pending, &process.infos),
        };
        infos.with(|infos| {
            // Those for real time come as often as they are sent.
            let again =
                signal >= number::FIRST_REAL && infos.len() < MOST_WAITING && self.machine.has_room(0);
            if again || !infos.iter().any(|other| other.signal == signal) {
                infos.push(info);
            }
            // With the list, so that one is never without the other.
            pending.fetch_or(bit(signal), Ordering::SeqCst);
        });
        if signal == number::KILL {
            process.die(signal);
        }
        true
    }

    /// Whoever it is for looks for it.
    pub(crate) fn nudge_for(&self, process: &Arc<Process>, thread: Option<&Arc<Thread>>, signal: u32) {
        let of_all = signal::ALWAYS | number::STOPS | bit(number::CONTINUE);
        match thread {
            // It is nobody else's, unless it ends, stops or lets go on the process: of many threads the others sleep on.
            Some(thread) if bit(signal) & of_all == 0 => self.nudge_thread(thread),
            _ => self.nudge(process),
        }
    }

    /// Sends a signal to all that are meant. Whoever is made at that moment hears of it then.
    pub(crate) fn send_to_all(
        &self,
        meant: Meant,
        from: Option<Sender>,
        info: Info,
        mut send: impl FnMut(&Arc<Process>),
    ) {
        let (number, all) = self.processes.with(|all| {
            let is_signal = (1..=number::LAST).contains(&info.signal);
            let number =
                is_signal.then(|| self.announced.with(|announced| announced.note(meant, from, info)));
            (number, all.values().filter(|process| meant.is(process)).cloned().collect::<Vec<_>>())
        });
        for process in all {
            send(&process);
            // Only now: what it makes from here on it makes with this behind it.
            if let Some(number) = number {
                process.heard.fetch_max(number, Ordering::SeqCst);
            }
        }
    }

    /// All threads of a process look at their signals, those who wait too.
    pub(crate) fn nudge(&self, process: &Process) {
        let threads = process.threads.with(|threads| threads.clone());
        threads.iter().for_each(|thread| self.nudge_thread(thread));
    }

    fn nudge_thread(&self, thread: &Thread) {
        if let Some(key) = thread.waits.with(|waits| *waits) {
            self.machine.wake(key);
        }
    }

    pub(crate) fn kill(&self, process: &Arc<Process>, signal: u32) {
        self.post(process, None, Info { signal, ..Info::default() });
    }

    /// A signal that comes of a call that this thread makes: it is for it, and for no other thread.
    pub(crate) fn post_to_itself(&self, thread: &Thread, signal: u32) {
        let process = &thread.process;
        let me = process.threads.with(|all| all.iter().find(|one| one.tid == thread.tid).cloned());
        self.post(process, me.as_ref(), Info { signal, word: process.names_itself(), ..Info::default() });
    }

    /// A signal that comes of what the thread itself did: one that it blocks or ignores ends it.
    pub(crate) fn force(&self, thread: &Arc<Thread>, info: Info) {
        let signal = info.signal;
        if signal != number::KILL && Self::open_for(thread, signal) {
            self.post(&thread.process, Some(thread), info);
            return;
        }
        let deaf = thread.mask.load(Ordering::SeqCst) & bit(signal) != 0;
        if deaf || thread.process.action(signal).handler < 2 {
            thread.process.die(signal);
            self.nudge(&thread.process);
        } else {
            self.post(&thread.process, Some(thread), info);
        }
    }

    /// Before a thread goes on: signals, and its end. `again` is the system call that a signal has interrupted.
    pub fn leave(&self, thread: &Arc<Thread>, frame: &mut Frame, again: Option<u64>) -> Flow {
        let mut again = again;
        let repeat = |frame: &mut Frame, number: u64| {
            // The instruction has two bytes.
            frame.registers.rip = frame.registers.rip.wrapping_sub(2);
            frame.registers.rax = if frame.registers.rax == RESTART.register() {
                if number != RESTART_CALL {
                    thread.restarts.store(number, Ordering::Relaxed);
                }
                RESTART_CALL
            } else {
                number
            };
        };
        loop {
            if thread.is_dying() {
                self.stop_for_event(thread, frame, event::EXIT, thread.status().into());
                self.end_thread(thread);
                return Flow::Ends;
            }
            if thread.is_to_trap() {
                self.stop_for_group(thread, frame);
                again = Self::again_of(thread, frame, again);
                continue;
            }
            if thread.is_stopped() {
                self.while_stopped(thread);
                continue;
            }
            if thread.moves.swap(false, Ordering::SeqCst) {
                self.machine.stay_within(thread.within.with(|within| *within));
            }
            let signals = thread.signals();
            if signals == 0 {
                if let Some(mask) = thread.old_mask.with(Option::take) {
                    thread.mask.store(mask, Ordering::SeqCst);
                    continue;
                }
                if let Some(number) = again {
                    repeat(frame, number);
                }
                Self::goes_on(thread, frame);
                return Flow::Goes;
            }
            let signal = thread.first_of(signals);
            let told = self.told_to_go_on(&thread.process);
            // Another thread may have taken it.
            let Some(info) = self.take(thread, signal) else { continue };
            let taken = self.stop_for_signal(thread, frame, info);
            again = Self::again_of(thread, frame, again);
            let Some(info) = taken else { continue };
            let signal = info.signal;
            let action = thread.process.action(signal);
            if action.ignores(signal) {
                continue;
            }
            if action.stops(signal) {
                self.stop(&thread.process, signal, told);
                continue;
            }
            if action.handler < 2 || signal == number::KILL {
                thread.process.die(signal);
                self.nudge(&thread.process);
                continue;
            }
            if let Some(number) = again.take() {
                thread.deadline.with(|at| *at = None);
                let asked = action.flags & act::RESTART != 0 && frame.registers.rax == AGAIN.register();
                if asked || frame.registers.rax == AFTER_SIGNALS.register() {
                    repeat(frame, number);
                } else {
                    frame.registers.rax = Errno::EINTR.register();
                }
            }
            let now = thread.mask.load(Ordering::SeqCst);
            let old = thread.old_mask.with(Option::take).unwrap_or(now);
            let stack = thread.stack.with(|stack| *stack);
            let before = frame.registers;
            let delivery = signal::deliver(frame, &action, &info, old, stack);
            // The handler's address is the program's word.
            frame.tame();
            // Who is on the stack of handlers stays there: what has no room there is not written below it.
            let stays = stack.filter(|stack| action.flags & act::ON_STACK != 0 || stack.has(before.rsp));
            let fits = stays.is_none_or(|stack| stack.holds(delivery.at));
            if !fits || self.machine.write_user(delivery.at, &delivery.bytes).is_err() {
                frame.registers = before;
                thread.old_mask.with(|kept| *kept = Some(old));
                if signal == number::SEGMENT {
                    thread.process.die(signal);
                    self.nudge(&thread.process);
                } else {
                    // There may be another stack on which it can hear that.
                    self.force(thread, Info { signal: number::SEGMENT, code: 128, ..Info::default() });
                }
                continue;
            }
            if stack.is_some_and(|stack| stack.disarms) {
                thread.stack.with(|stack| *stack = None);
            }
            let own = if action.flags & act::NO_DEFER != 0 { 0 } else { bit(signal) };
            thread.mask.store((now | action.mask | own) & !signal::ALWAYS, Ordering::SeqCst);
            if action.flags & act::RESET != 0 {
                thread.process.actions.with(|all| all[signal as usize].handler = 0);
            }
            self.stop_for_handler(thread, frame);
        }
    }

    /// Takes a pending signal, with what is known of it; none if another thread was first.
    pub(crate) fn take(&self, thread: &Thread, signal: u32) -> Option<Info> {
        let from = |pending: &AtomicU64, infos: &Spin<Vec<Info>>| {
            infos.with(|infos| {
                let found = infos.remove(infos.iter().position(|info| info.signal == signal)?);
                if !infos.iter().any(|info| info.signal == signal) {
                    pending.fetch_and(!bit(signal), Ordering::SeqCst);
                }
                Some(found)
            })
        };
        let own = from(&thread.pending, &thread.infos);
        let found = own.or_else(|| from(&thread.process.pending, &thread.process.infos));
        found.map(|info| self.heard_timer(thread, info))
    }

    /// Signals of a kind that wait, for a process and for each of its threads, do not any more.
    pub(crate) fn drop_waiting(process: &Process, signal: u32) {
        let drop_from = |pending: &AtomicU64, infos: &Spin<Vec<Info>>| {
            infos.with(|infos| {
                infos.retain(|info| info.signal != signal);
                pending.fetch_and(!bit(signal), Ordering::SeqCst);
            });
        };
        drop_from(&process.pending, &process.infos);
        for thread in process.threads.with(|threads| threads.clone()) {
            drop_from(&thread.pending, &thread.infos);
        }
    }

    /// Registers that a handler has kept come back. What cannot be read ends the program, as a fault does.
    pub(crate) fn sigreturn(&self, thread: &Arc<Thread>, frame: &mut Frame) -> Answer {
        self.restore(thread, frame).inspect_err(|_| {
            self.force(thread, Info { signal: number::SEGMENT, code: 128, ..Info::default() })
        })
    }

    fn restore(&self, thread: &Thread, frame: &mut Frame) -> Answer {
        let mut saved = [0; signal::SAVED];
        self.machine.read_user(frame.registers.rsp, &mut saved)?;
        let signal::Left { mask, fx_at, stack } = signal::restore(frame, &saved);
        // At once: what follows may fail, and the program goes on with these.
        frame.tame_kept();
        thread.mask.store(mask & !signal::ALWAYS, Ordering::SeqCst);
        // One that cannot be named stays as it is.
        let _ = Self::name_stack(thread, frame.registers.rsp, stack);
        let mut fx = Fx([0; 512]);
        match fx_at {
            0 => frame.fx = signal::fresh_fx(),
            at => {
                self.machine.read_user(at, &mut fx.0)?;
                frame.fx = fx;
                frame.tame_kept();
            }
        }
        Ok(0)
    }
}
