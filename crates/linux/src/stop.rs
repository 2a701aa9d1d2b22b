//! Processes that are stopped by a signal and go on by another.
//!
//! Whoever is stopped waits before it goes back to its program, or where it waits already; a stop ends no wait.

use alloc::sync::Arc;
use core::sync::atomic::Ordering;

use crate::kernel::Linux;
use crate::machine::Machine;
use crate::process::{Process, Thread};
use crate::signal::{Info, act, bit, number};
use crate::sync::{Spin, key_of};

/// What is known of a process that is stopped or was.
#[derive(Default)]
pub(crate) struct Stopping {
    /// How often it was told to go on: whoever is about to stop it for a signal from before does not.
    told: u64,
    /// The signal that stopped it.
    pub signal: u32,
    /// See [`News`].
    pub news: Option<News>,
}

/// What a parent can wait for besides the end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum News {
    Stopped(u32),
    GoesOn,
}

/// How `siginfo` says these.
const STOPPED: i32 = 5;
const GOES_ON: i32 = 6;

impl Process {
    pub fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::SeqCst)
    }
}

impl<M: Machine> Linux<'_, M> {
    /// A signal is about to be sent: one that stops undoes one that lets go on, and the other way round.
    pub(crate) fn before_signal(&self, process: &Arc<Process>, signal: u32) {
        let without = |signals: u64| {
            let clear = |pending: &core::sync::atomic::AtomicU64, infos: &Spin<alloc::vec::Vec<Info>>| {
                infos.with(|infos| {
                    infos.retain(|info| bit(info.signal) & signals == 0);
                    pending.fetch_and(!signals, Ordering::SeqCst);
                });
            };
            clear(&process.pending, &process.infos);
            let threads = process.threads.with(|threads| threads.clone());
            threads.iter().for_each(|thread| clear(&thread.pending, &thread.infos));
        };
        match signal {
            number::CONTINUE => {
                without(number::STOPS);
                let was = process.stopping.with(|stopping| {
                    stopping.told += 1;
                    let was = process.stopped.swap(false, Ordering::SeqCst);
                    if was {
                        stopping.news = Some(News::GoesOn);
                    }
                    was
                });
                self.trace_stops(process, true);
                if was {
                    self.machine.wake(key_of(&process.stopping));
                    self.tell_parent(process, GOES_ON, number::CONTINUE);
                }
            }
            signal if bit(signal) & number::STOPS != 0 => without(bit(number::CONTINUE)),
            _ => {}
        }
    }

    /// How often it was told to go on so far: for [`stop`](Self::stop), from before the signal is taken.
    pub(crate) fn told_to_go_on(&self, process: &Process) -> u64 {
        process.stopping.with(|stopping| stopping.told)
    }

    /// A signal stops a process, unless it was told to go on since.
    pub(crate) fn stop(&self, process: &Arc<Process>, signal: u32, told: u64) {
        // Nobody would let it go on, but for one who meant to stop it.
        if signal != number::STOP && self.is_orphaned(process) {
            return;
        }
        let parent = process.parent.load(Ordering::SeqCst);
        // Who traces it hears of each thread.
        let hears = process.tracing.by.load(Ordering::SeqCst) != parent;
        let stops = process.stopping.with(|stopping| {
            let stops = stopping.told == told && !process.stopped.swap(true, Ordering::SeqCst);
            if stopping.told == told {
                stopping.signal = signal;
            }
            if stops && hears {
                stopping.news = Some(News::Stopped(signal));
            }
            stops
        });
        if process.is_stopped() {
            // Those whose tracers let them go on stop again.
            self.trace_stops(process, false);
        }
        if stops && hears {
            self.tell_parent(process, STOPPED, signal);
        }
    }

    /// Waits while the thread's process is stopped.
    pub(crate) fn while_stopped(&self, thread: &Thread) {
        let process = &thread.process;
        if process.is_stopped() {
            let goes = || !process.is_stopped() || thread.traced.is();
            self.wait_to_the_death(thread, key_of(&process.stopping), goes);
        }
    }

    /// Stops where a thread waits, if that is all that its signals want; says whether.
    pub(crate) fn stops_here(&self, thread: &Thread) -> bool {
        let process = &thread.process;
        let signals = thread.signals();
        // A tracer hears of it with all registers.
        if thread.is_dying() || signals == 0 || thread.traced.is() {
            return false;
        }
        let signal = thread.first_of(signals);
        if !process.action(signal).stops(signal) {
            return false;
        }
        let told = self.told_to_go_on(process);
        if self.take(thread, signal).is_some() {
            self.stop(process, signal, told);
            self.while_stopped(thread);
        }
        true
    }

    /// Whether nobody outside a process's group looks after it. Whoever has started the first program does.
    pub(crate) fn is_orphaned(&self, process: &Process) -> bool {
        let (group, session) =
            (process.group.load(Ordering::Relaxed), process.session.load(Ordering::Relaxed));
        self.processes.with(|all| {
            let looks_after = |member: &&Arc<Process>| {
                let parent = all.get(&member.parent.load(Ordering::SeqCst));
                member.pid == 1
                    || parent.is_some_and(|parent| {
                        parent.group.load(Ordering::Relaxed) != group
                            && parent.session.load(Ordering::Relaxed) == session
                    })
            };
            !all.values().filter(|it| it.group.load(Ordering::Relaxed) == group).any(|it| looks_after(&it))
        })
    }

    /// Those whose parent has ended, and who are stopped, and whom nobody else looks after, hear of it and go on.
    pub(crate) fn let_orphan_go_on(&self, child: &Arc<Process>) {
        if child.is_stopped() && self.is_orphaned(child) {
            self.kill(child, number::HANG_UP);
            self.kill(child, number::CONTINUE);
        }
    }

    fn tell_parent(&self, process: &Process, code: i32, signal: u32) {
        let parent = process.parent.load(Ordering::SeqCst);
        let Some(parent) = self.processes.with(|all| all.get(&parent).cloned()) else { return };
        if parent.action(number::CHILD).flags & act::NO_STOPS == 0 {
            let (word, value) = (process.names_itself(), signal.into());
            self.post(&parent, None, Info { signal: number::CHILD, code, word, value, error: 0 });
        }
        self.machine.wake(key_of(&*parent));
    }
}
