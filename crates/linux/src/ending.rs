//! How threads, processes and the system end, and who hears of it.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use crate::errno::Answer;
use crate::kernel::{Ending, Linux, how_ended};
use crate::machine::Machine;
use crate::process::{ENDED, Process, Thread};
use crate::signal::{Info, act, number};
use crate::sync::key_of;

impl<M: Machine> Linux<'_, M> {
    /// Waits until the first program has ended, and then ends all others. Says how.
    pub fn wait_for_the_first(&self) -> Ending {
        let first = self.processes.with(|all| all.get(&1).cloned()).expect("it was started");
        self.machine.wait(key_of(&*first), &mut || first.ended.load(Ordering::SeqCst) != 0);
        self.over.store(true, Ordering::SeqCst);
        loop {
            let alive: Vec<_> = self.processes.with(|all| {
                all.values().filter(|process| process.ended.load(Ordering::SeqCst) == 0).cloned().collect()
            });
            if alive.is_empty() {
                break;
            }
            alive.iter().for_each(|process| self.kill(process, number::KILL));
            self.nap(1_000_000);
        }
        self.processes.with(BTreeMap::clear);
        self.settle();
        let status = first.ended.load(Ordering::SeqCst) as u32;
        if status & 0x7f != 0 {
            Ending::Signal(status as u8 & 0x7f)
        } else {
            Ending::Code((status >> 8) as u8)
        }
    }

    /// A thread is to end; the last one's code is its process's.
    pub(crate) fn exit(&self, thread: &Thread, code: u64) -> Answer {
        let code = code as u32 & 0xff;
        thread.code.store(code, Ordering::Relaxed);
        // In one step: of two that go at once one is the last.
        let last = thread.process.threads.with(|threads| {
            thread.dying.store(true, Ordering::SeqCst);
            threads.iter().all(|other| other.dying.load(Ordering::SeqCst))
        });
        if last {
            thread.process.die(code << 8);
        }
        Ok(0)
    }

    /// All threads of a process are to end.
    pub(crate) fn exit_group(&self, process: &Process, code: u64) -> Answer {
        process.die((code as u32 & 0xff) << 8);
        self.nudge(process);
        Ok(0)
    }

    /// The thread that runs here ends.
    pub(crate) fn end_thread(&self, thread: &Arc<Thread>) {
        let process = &thread.process;
        self.leave_memory(thread);
        if thread.within.with(|within| *within) != [u64::MAX; 4] {
            // Another thread has its task next.
            self.machine.stay_within([u64::MAX; 4]);
        }
        self.machine.enter_space(None);
        self.tracee_ended(thread);
        let last = process.takes_over(thread, self.now());
        // Whoever waits for a lock of its sees that it is gone.
        self.futexes.wake_heirs().iter().for_each(|sleeper| self.machine.wake(sleeper.key()));
        if last {
            self.end_process(process);
        } else {
            self.leave_children(thread);
        }
        self.settle();
        self.hear(thread);
    }

    /// A thread has nothing more to do with its memory: it ends, or runs another program. Its locks say so, and where its number was to
    /// become zero it does, if others are there to see it.
    pub(crate) fn leave_memory(&self, thread: &Thread) {
        self.leave_locks(thread);
        let clear = thread.clear_tid.swap(0, Ordering::SeqCst);
        if clear == 0 {
            return;
        }
        let memory = thread.memory();
        // Those of its process, and this one here.
        let alone =
            thread.process.threads.with(|threads| threads.len()) < 2 && Arc::strong_count(&memory) < 3;
        if !alone && self.machine.write_user(clear, &0_u32.to_le_bytes()).is_ok() {
            let word = self.futex_word(thread, clear, false);
            self.wake_futex(word, 1, u32::MAX);
        }
    }

    /// What a thread has made that ends before its process is another's of that. Who wants to hear that its parent has ended does.
    fn leave_children(&self, thread: &Thread) {
        let pid = thread.process.pid;
        let its = |child: &&Arc<Process>| {
            child.parent.load(Ordering::SeqCst) == pid
                && child.made_by.compare_exchange(thread.tid, pid, Ordering::SeqCst, Ordering::SeqCst).is_ok()
        };
        let all: Vec<_> = self.processes.with(|all| all.values().filter(its).cloned().collect());
        for child in all {
            let signal = child.with_parent.load(Ordering::Relaxed);
            if signal != 0 && child.ended.load(Ordering::SeqCst) == 0 {
                self.kill(&child, signal);
            }
        }
    }

    fn end_process(&self, process: &Arc<Process>) {
        // One after the other: of what is open under two numbers the second is the last.
        process.files.leave().into_iter().for_each(|files| files.into_each(|open| self.closes(&open)));
        self.left.flights.let_go(true);
        self.leaves_terminal(process, true);
        process.timers.with(BTreeMap::clear);
        self.undo(process);
        self.end_contexts(process.pid);
        if self.locks.with(|locks| locks.end(process.pid)) {
            self.changed(key_of(&self.locks));
        }
        if let Some(memory) = process.memory.with(Option::take) {
            self.leaves_space(process, &memory);
        }
        self.settle();
        // Its children are those of whoever above it adopts them, or nobody's.
        // In one step: an heir that ends as well finds them among its own.
        let (heir, orphans) = self.processes.with(|all| {
            let heir = Self::who_adopts(all, process);
            let mine = |child: &&Arc<Process>| child.parent.load(Ordering::SeqCst) == process.pid;
            let orphans: Vec<_> = all.values().filter(mine).cloned().collect();
            for child in &orphans {
                // Whoever has it now did not make it.
                child.ends_with.store(number::CHILD, Ordering::SeqCst);
                child.parent.store(heir.as_ref().map_or(0, |heir| heir.pid), Ordering::SeqCst);
            }
            (heir, orphans)
        });
        for child in orphans {
            let signal = child.with_parent.load(Ordering::Relaxed);
            if signal != 0 && child.ended.load(Ordering::SeqCst) == 0 {
                self.kill(&child, signal);
            }
            if child.ended.load(Ordering::SeqCst) != 0 {
                match heir {
                    Some(_) => self.tell_end(&child),
                    None => drop(self.processes.with(|all| all.remove(&child.pid))),
                }
            }
            self.let_orphan_go_on(&child);
        }
        let status = process.dying.load(Ordering::SeqCst) | ENDED;
        process.borrows.store(false, Ordering::SeqCst);
        process.ended.store(status, Ordering::SeqCst);
        self.tracer_ended(process);
        if self.tells_tracer_of_end(process) {
            self.changed(key_of(&**process));
        } else {
            self.tell_end(process);
        }
    }

    /// Who has said that the children of a process that ends are its own from then on: the first above it.
    fn who_adopts(all: &BTreeMap<u32, Arc<Process>>, process: &Process) -> Option<Arc<Process>> {
        let mut above = all.get(&process.parent.load(Ordering::SeqCst));
        while let Some(next) = above {
            let lives = next.dying.load(Ordering::SeqCst) == 0;
            if lives && next.said.adopts.load(Ordering::Relaxed) {
                return Some(next.clone());
            }
            above = all.get(&next.parent.load(Ordering::SeqCst));
        }
        None
    }

    /// The parent of a process that has ended hears of it, and the process goes if nobody wants to.
    pub(crate) fn tell_end(&self, process: &Arc<Process>) {
        let parent = process.parent.load(Ordering::SeqCst);
        let parent = self.processes.with(|all| all.get(&parent).cloned());
        let wanted = parent.as_ref().is_some_and(|parent| {
            let action = parent.action(number::CHILD);
            let traces = process.tracing.by.load(Ordering::SeqCst) == parent.pid;
            traces || action.handler != 1 && action.flags & act::NO_WAIT == 0
        });
        if !wanted && process.pid != 1 {
            self.processes.with(|all| all.remove(&process.pid));
        }
        self.changed(key_of(&**process));
        if let Some(parent) = parent {
            let signal = process.ends_with.load(Ordering::SeqCst);
            if signal != 0 {
                let word = process.names_itself();
                let (code, value) = how_ended(process.ended.load(Ordering::SeqCst));
                self.post(&parent, None, Info { signal, code, word, value, error: 0 });
            }
            self.machine.wake(key_of(&*parent));
        }
    }
}
