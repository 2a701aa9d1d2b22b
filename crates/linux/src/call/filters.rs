//! What a thread says of the system calls that it will make (`seccomp`), and what becomes of each: filters say, one after the other, and the
//! hardest word counts.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use super::n;
use crate::capabilities::OWNS;
use crate::errno::{Answer, Errno};
use crate::filter::{BYTES, MOST, Program, Step};
use crate::filtering::{FILTERED, Filters, STRICT};
use crate::frame::Frame;
use crate::kernel::Linux;
use crate::machine::Machine;
use crate::process::Thread;
use crate::signal::{Info, number};
use crate::trace::event;

/// What a filter may say, in its upper half; the hardest is the least, with its sign.
mod verdict {
    pub const KILL_PROCESS: u32 = 0x8000_0000;
    pub const KILL_THREAD: u32 = 0;
    pub const TRAP: u32 = 0x3_0000;
    pub const ERROR: u32 = 0x5_0000;
    pub const TRACE: u32 = 0x7ff0_0000;
    pub const NOTE: u32 = 0x7ffc_0000;
    pub const GO: u32 = 0x7fff_0000;
    pub const OF: u32 = 0xffff_0000;
}

/// x86-64, as filters know it.
const ARCHITECTURE: u32 = 0xc000_003e;
/// The largest error that there is.
const LAST_ERROR: u32 = 4095;
/// Instructions of all of a thread's filters, each with so many more.
const MOST_IN_ALL: usize = 32768;
const MORE_OF_EACH: usize = 4;
/// How a signal says that a filter has sent it.
const BY_FILTER: i32 = 1;

/// What becomes of a call.
pub(super) enum Passed {
    /// It is made, under this number.
    Made(u64),
    /// It is not, and this is its answer.
    Answered(u64),
}

fn what_is_seen(frame: &Frame, number: u64) -> [u8; BYTES] {
    let mut seen = [0; BYTES];
    seen[..4].copy_from_slice(&(number as u32).to_le_bytes());
    seen[4..8].copy_from_slice(&ARCHITECTURE.to_le_bytes());
    let words = core::iter::once(frame.registers.rip).chain(frame.arguments());
    for (place, word) in seen[8..].chunks_exact_mut(8).zip(words) {
        place.copy_from_slice(&word.to_le_bytes());
    }
    seen
}

impl<M: Machine> Linux<'_, M> {
    pub(super) fn seccomp(&self, thread: &Thread, what: u64, flags: u64, with: u64) -> Answer {
        const BE_STRICT: u32 = 0;
        const ADD_FILTER: u32 = 1;
        const IS_THERE: u32 = 2;
        let (what, flags) = (what as u32, flags as u32);
        match what {
            BE_STRICT if flags != 0 || with != 0 => Err(Errno::EINVAL),
            BE_STRICT => self.be_strict(thread),
            ADD_FILTER => self.add_filter(thread, flags, with),
            IS_THERE if flags != 0 => Err(Errno::EINVAL),
            IS_THERE => match self.load_word(with)? {
                verdict::KILL_PROCESS
                | verdict::KILL_THREAD
                | verdict::TRAP
                | verdict::ERROR
                | verdict::TRACE
                | verdict::NOTE
                | verdict::GO => Ok(0),
                _ => Err(Errno::EOPNOTSUPP),
            },
            _ => Err(Errno::EINVAL),
        }
    }

    /// The older way to say so.
    pub(super) fn filter_as(&self, thread: &Thread, how: u64, with: u64) -> Answer {
        match how as u32 {
            STRICT => self.be_strict(thread),
            FILTERED => self.add_filter(thread, 0, with),
            _ => Err(Errno::EINVAL),
        }
    }

    /// From now on it reads, writes, returns from handlers and ends, and nothing else.
    fn be_strict(&self, thread: &Thread) -> Answer {
        if thread.filtering.how() == FILTERED {
            return Err(Errno::EINVAL);
        }
        thread.filtering.set(STRICT, Filters::default());
        Ok(0)
    }

    fn add_filter(&self, thread: &Thread, flags: u32, at: u64) -> Answer {
        /// For all threads of the process.
        const ALL_THREADS: u32 = 1;
        /// To write down what was refused, and to let the CPU guess: that is as it is.
        const WRITE_DOWN: u32 = 2;
        const LET_GUESS: u32 = 4;
        /// Another process decides.
        const ASK_ANOTHER: u32 = 8;
        /// A thread that has other filters is an error, not an answer.
        const OTHERS_ARE_ERRORS: u32 = 16;
        if flags & ASK_ANOTHER != 0 {
            self.note_unknown(thread, n::seccomp);
        }
        if flags & !(ALL_THREADS | WRITE_DOWN | LET_GUESS | OTHERS_ARE_ERRORS) != 0 {
            return Err(Errno::EINVAL);
        }
        let mut head = [0; 16];
        self.machine.read_user(at, &mut head)?;
        let len = usize::from(u16::from_le_bytes([head[0], head[1]]));
        let steps = u64::from_le_bytes(head[8..].try_into().expect("8 bytes"));
        if !(1..=MOST).contains(&len) {
            return Err(Errno::EINVAL);
        }
        let may = || thread.process.owner.with(|owner| owner.may(OWNS));
        if !thread.process.said.no_gain.load(Ordering::Relaxed) && !may() {
            return Err(Errno::EACCES);
        }
        if !self.machine.has_piece(16 * len as u64) {
            return Err(Errno::ENOMEM);
        }
        let mut bytes = alloc::vec![0; 8 * len];
        self.machine.read_user(steps, &mut bytes)?;
        let step = |of: &[u8]| Step {
            code: u16::from_le_bytes([of[0], of[1]]),
            yes: of[2],
            no: of[3],
            k: u32::from_le_bytes([of[4], of[5], of[6], of[7]]),
        };
        let program = Program::new(bytes.chunks_exact(8).map(step).collect()).ok_or(Errno::EINVAL)?;
        // With the list of threads: one that is made meanwhile has what its maker has then.
        thread.process.threads.with(|threads| {
            let own = thread.filtering.all();
            if thread.filtering.how() == STRICT {
                return Err(Errno::EINVAL);
            }
            let length = |program: &Arc<Program>| program.len() + MORE_OF_EACH;
            if own.iter().map(length).sum::<usize>() + program.len() > MOST_IN_ALL {
                return Err(Errno::ENOMEM);
            }
            let mut all = Vec::clone(&own);
            all.push(Arc::new(program));
            let all = Arc::new(all);
            if flags & ALL_THREADS == 0 {
                thread.filtering.set(FILTERED, all);
                return Ok(0);
            }
            let others = || threads.iter().filter(|other| other.tid != thread.tid);
            // Those that have filters which this one has not.
            let differs = |other: &&Arc<Thread>| {
                let its = other.filtering.all();
                let same = its.iter().zip(own.iter()).all(|(its, own)| Arc::ptr_eq(its, own));
                other.filtering.how() == STRICT || its.len() > own.len() || !same
            };
            if let Some(other) = others().find(differs) {
                let is_error = flags & OTHERS_ARE_ERRORS != 0;
                return if is_error { Err(Errno::ESRCH) } else { Ok(other.tid.into()) };
            }
            others().for_each(|other| other.filtering.set(FILTERED, all.clone()));
            thread.filtering.set(FILTERED, all);
            Ok(0)
        })
    }

    /// What becomes of a call that a thread is about to make. A tracer that is asked may change it.
    pub(super) fn pass_filters(&self, thread: &Arc<Thread>, frame: &mut Frame, number: u64) -> Passed {
        if thread.filtering.how() == STRICT {
            if matches!(number, n::read | n::write | n::exit | n::rt_sigreturn) {
                return Passed::Made(number);
            }
            self.end_by(thread, number::KILL, false);
            return Passed::Answered(Errno::ENOSYS.register());
        }
        let (mut number, mut asked) = (number, false);
        loop {
            let seen = what_is_seen(frame, number);
            let of = |word: u32| (word & verdict::OF) as i32;
            // Of those that are as hard the newest counts.
            let filters = thread.filtering.all();
            let said = filters.iter().rev().map(|program| program.run(&seen));
            let word = said.fold(verdict::GO, |least, word| if of(word) < of(least) { word } else { least });
            let data = word & !verdict::OF;
            match word & verdict::OF {
                verdict::GO | verdict::NOTE => return Passed::Made(number),
                verdict::ERROR => {
                    let error = data.min(LAST_ERROR) as u16;
                    return Passed::Answered(Errno(error).register());
                }
                verdict::TRAP => {
                    let value = number & 0xffff_ffff | u64::from(ARCHITECTURE) << 32;
                    let (signal, word) = (number::BAD_CALL, frame.registers.rip);
                    self.force(thread, Info { signal, code: BY_FILTER, word, value, error: data });
                    return Passed::Answered(number);
                }
                verdict::TRACE if asked => return Passed::Made(number),
                verdict::TRACE if thread.traced.hears_of_filters() => {
                    self.stop_for_event(thread, frame, event::FILTER, data.into());
                    if thread.is_dying() {
                        return Passed::Answered(frame.registers.rax);
                    }
                    // It may have made another call of it, or none.
                    number = frame.registers.error;
                    if number as i64 as i32 == -1 {
                        return Passed::Answered(frame.registers.rax);
                    }
                    asked = true;
                }
                verdict::TRACE => return Passed::Answered(Errno::ENOSYS.register()),
                verdict::KILL_THREAD => {
                    self.end_by(thread, number::BAD_CALL, false);
                    return Passed::Answered(number);
                }
                // And what nobody knows.
                _ => {
                    self.end_by(thread, number::BAD_CALL, true);
                    return Passed::Answered(number);
                }
            }
        }
    }

    /// A thread ends as by a signal, and its process with it if it is the last, or is meant.
    fn end_by(&self, thread: &Thread, signal: u32, all: bool) {
        let process = &thread.process;
        if all || process.threads.with(|threads| threads.len() == 1) {
            process.die(signal);
            self.nudge(process);
        }
        thread.dying.store(true, Ordering::SeqCst);
    }
}
