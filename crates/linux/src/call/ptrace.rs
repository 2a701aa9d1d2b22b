//! What a tracer asks of the threads that it traces. How these stop is in `trace.rs`.
//!
//! Registers are shown as Linux has them: the selectors of its code and data, and the number of the call, or -1 when the thread did not
//! come by one.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use crate::errno::{Answer, Errno};
use crate::frame::CALL;
use crate::kernel::Linux;
use crate::layout::Pack;
use crate::machine::Machine;
use crate::process::{Memory, Thread};
use crate::signal::{ALWAYS, Info, number};
use crate::sync::{Spin, key_of};
use crate::trace::{Goes, Stop, Why, event, option};

mod ask {
    pub const TRACE_ME: u64 = 0;
    pub const PEEK_TEXT: u64 = 1;
    pub const PEEK_DATA: u64 = 2;
    pub const PEEK_USER: u64 = 3;
    pub const POKE_TEXT: u64 = 4;
    pub const POKE_DATA: u64 = 5;
    pub const POKE_USER: u64 = 6;
    pub const GO_ON: u64 = 7;
    pub const KILL: u64 = 8;
    pub const STEP: u64 = 9;
    pub const GET_REGISTERS: u64 = 12;
    pub const SET_REGISTERS: u64 = 13;
    pub const GET_FLOATS: u64 = 14;
    pub const SET_FLOATS: u64 = 15;
    pub const ATTACH: u64 = 16;
    pub const DETACH: u64 = 17;
    pub const TO_CALL: u64 = 24;
    pub const SET_OPTIONS: u64 = 0x4200;
    pub const MESSAGE: u64 = 0x4201;
    pub const GET_INFO: u64 = 0x4202;
    pub const SET_INFO: u64 = 0x4203;
    pub const GET_SET: u64 = 0x4204;
    pub const SET_SET: u64 = 0x4205;
    pub const SEIZE: u64 = 0x4206;
    pub const INTERRUPT: u64 = 0x4207;
    pub const LISTEN: u64 = 0x4208;
    pub const LOOK_AT_INFOS: u64 = 0x4209;
    pub const GET_MASK: u64 = 0x420a;
    pub const SET_MASK: u64 = 0x420b;
    pub const CALL_INFO: u64 = 0x420e;
}

/// Sets of registers.
const GENERAL: u64 = 1;
const FLOATS: u64 = 2;
const MORE: u64 = 0x202;

/// Linux's selectors of a program's code and data.
const CODE: u64 = 0x33;
const DATA: u64 = 0x2b;
/// x86-64, as programs that trace are told.
const ARCHITECTURE: u32 = 0xc000_003e;

/// Words of `struct user_regs_struct`; of `struct user` these come first, and registers for breakpoints last.
const WORDS: usize = 27;
const FLOATS_AT: usize = 224;
const USER: usize = 928;

/// All general registers, as a tracer has them.
fn words(stop: &Stop) -> [u64; WORDS] {
    let r = &stop.frame.registers;
    let number = if r.vector == CALL { r.error } else { u64::MAX };
    let general = [
        r.r15, r.r14, r.r13, r.r12, r.rbp, r.rbx, r.r11, r.r10, r.r9, r.r8, r.rax, r.rcx, r.rdx, r.rsi, r.rdi,
    ];
    let mut all = [0; WORDS];
    all[..15].copy_from_slice(&general);
    all[15..22].copy_from_slice(&[number, r.rip, CODE, r.flags, r.rsp, DATA, stop.fs]);
    all
}

/// Sets them; what a program may not have is made tame.
fn set_words(stop: &mut Stop, all: &[u64; WORDS]) -> Result<(), Errno> {
    // The base of `fs`.
    if all[21] >> 47 != 0 {
        return Err(Errno::EIO);
    }
    let r = &mut stop.frame.registers;
    let &[
        r15,
        r14,
        r13,
        r12,
        rbp,
        rbx,
        r11,
        r10,
        r9,
        r8,
        rax,
        rcx,
        rdx,
        rsi,
        rdi,
        number,
        rip,
        _,
        flags,
        rsp,
        _,
        fs,
        ..,
    ] = all;
    (r.r15, r.r14, r.r13, r.r12, r.rbp, r.rbx, r.r11, r.r10) = (r15, r14, r13, r12, rbp, rbx, r11, r10);
    (r.r9, r.r8, r.rax, r.rcx, r.rdx, r.rsi, r.rdi) = (r9, r8, rax, rcx, rdx, rsi, rdi);
    (r.rip, r.flags, r.rsp) = (rip, flags, rsp);
    if number != u64::MAX || r.vector == CALL {
        (r.vector, r.error) = (CALL, number);
    }
    stop.fs = fs;
    stop.frame.tame();
    Ok(())
}

fn bytes_of(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// A signal as it is said of it: `siginfo_t`.
fn said(info: &Info) -> Vec<u8> {
    let head = Pack::default().word(info.signal).word(info.error).word(info.code as u32).word(0);
    head.long(info.word).long(info.value).zeros_to(128).0
}

impl<M: Machine> Linux<'_, M> {
    /// Whether a process may look into another one.
    pub(crate) fn may_look_into(&self, thread: &Thread, target: &crate::process::Process) -> bool {
        let own = thread.process.owner.with(|owner| (owner.users[1], owner.groups[1]));
        let of = target.owner.with(|owner| (owner.users, owner.groups));
        let same =
            of.0[..3].iter().all(|&user| user == own.0) && of.1[..3].iter().all(|&group| group == own.1);
        own.0 == 0 || target.pid == thread.process.pid || same
    }

    pub(crate) fn ptrace(&self, thread: &Arc<Thread>, [request, pid, at, data]: [u64; 4]) -> Answer {
        if request == ask::TRACE_ME {
            let parent = thread.process.parent.load(Ordering::SeqCst);
            let parent = self.processes.with(|all| all.get(&parent).cloned()).ok_or(Errno::EPERM)?;
            return self.begin_to_trace(&parent, thread, false, 0).map(|()| 0);
        }
        let target = self.thread_numbered(pid as u32).ok_or(Errno::ESRCH)?;
        if matches!(request, ask::ATTACH | ask::SEIZE) {
            return self.attach(thread, &target, request == ask::SEIZE, at, data);
        }
        if target.traced.state.with(|state| state.tracer) != thread.process.pid {
            return Err(Errno::ESRCH);
        }
        match request {
            ask::KILL => {
                self.kill(&target.process, number::KILL);
                Ok(0)
            }
            ask::INTERRUPT => {
                if !target.traced.state.with(|state| state.seized) {
                    return Err(Errno::EIO);
                }
                target.traced.traps.store(true, Ordering::SeqCst);
                self.machine.wake(key_of(&target.traced));
                self.nudge(&target.process);
                Ok(0)
            }
            _ => self.ask_of_stopped(&target, [request, at, data]),
        }
    }

    fn attach(&self, thread: &Thread, target: &Arc<Thread>, seize: bool, at: u64, options: u64) -> Answer {
        if seize && (at != 0 || options & !u64::from(option::ALL) != 0) {
            return Err(Errno::EIO);
        }
        if Arc::ptr_eq(&target.process, &thread.process) || !self.may_look_into(thread, &target.process) {
            return Err(Errno::EPERM);
        }
        self.begin_to_trace(&thread.process, target, seize, options as u32)?;
        // Who ends from here on finds that it is traced. Who has ended before is not, and its parent hears of it.
        if !target.process.threads.with(|threads| threads.iter().any(|one| Arc::ptr_eq(one, target))) {
            self.end_to_trace(target, 0);
            return Err(Errno::ESRCH);
        }
        if !seize {
            self.post(&target.process, Some(target), Info { signal: number::STOP, ..Info::default() });
        }
        self.nudge(&target.process);
        // One that is stopped already is, for its tracer too, when this returns.
        let is_there =
            || target.process.threads.with(|threads| threads.iter().any(|one| Arc::ptr_eq(one, target)));
        let comes = || target.process.is_stopped() && !target.is_dying() && is_there();
        let stops = || target.traced.state.with(|state| state.stop.is_some());
        if comes() {
            let _ = self.wait(thread, key_of(&*thread.process), None, || stops() || !comes());
        }
        Ok(0)
    }

    /// Works on a thread that is stopped.
    fn of_stopped<R>(target: &Thread, work: impl FnOnce(&mut Stop) -> Result<R, Errno>) -> Result<R, Errno> {
        target.traced.state.with(|state| {
            if state.listens {
                return Err(Errno::ESRCH);
            }
            work(state.stop.as_mut().filter(|stop| !stop.goes).ok_or(Errno::ESRCH)?)
        })
    }

    /// What a thread has in memory, which may be killed as long as it is looked at.
    fn memory_of(target: &Thread) -> Result<Arc<Memory>, Errno> {
        target.process.memory.with(|memory| memory.clone()).ok_or(Errno::ESRCH)
    }

    fn ask_of_stopped(&self, target: &Arc<Thread>, [request, at, data]: [u64; 3]) -> Answer {
        Self::of_stopped(target, |_| Ok(()))?;
        match request {
            ask::PEEK_TEXT | ask::PEEK_DATA => {
                let mut word = [0; 8];
                if self.reach_into(&*Self::memory_of(target)?, at, &mut word, false) != 8 {
                    return Err(Errno::EIO);
                }
                self.machine.write_user(data, &word).map(|()| 0)
            }
            ask::POKE_TEXT | ask::POKE_DATA => {
                let mut word = data.to_le_bytes();
                let done = self.reach_into(&*Self::memory_of(target)?, at, &mut word, true);
                if done == 8 { Ok(0) } else { Err(Errno::EIO) }
            }
            ask::PEEK_USER => {
                let place = usize::try_from(at).ok().filter(|at| at.is_multiple_of(8) && *at < USER);
                let place = place.ok_or(Errno::EIO)?;
                let word = Self::of_stopped(target, |stop| {
                    let floats = |at: usize| {
                        let bytes = stop.frame.fx.0.get(at..at + 8)?;
                        Some(u64::from_le_bytes(bytes.try_into().ok()?))
                    };
                    let general = words(stop).get(place / 8).copied();
                    Ok(general.or_else(|| floats(place.checked_sub(FLOATS_AT)?)).unwrap_or(0))
                })?;
                self.machine.write_user(data, &word.to_le_bytes()).map(|()| 0)
            }
            ask::POKE_USER => {
                let place = usize::try_from(at).ok().filter(|at| at.is_multiple_of(8) && *at < USER);
                let place = place.ok_or(Errno::EIO)?;
                Self::of_stopped(target, |stop| {
                    let mut all = words(stop);
                    match all.get_mut(place / 8) {
                        Some(word) => {
                            *word = data;
                            set_words(stop, &all).map(|()| 0)
                        }
                        // Nothing watches addresses here.
                        None if data == 0 => Ok(0),
                        None => Err(Errno::EIO),
                    }
                })
            }
            ask::GET_REGISTERS => {
                let all = Self::of_stopped(target, |stop| Ok(words(stop)))?;
                self.machine.write_user(data, &bytes_of(&all)).map(|()| 0)
            }
            ask::SET_REGISTERS => {
                let mut bytes = [0; 8 * WORDS];
                self.machine.read_user(data, &mut bytes)?;
                self.set_registers(target, GENERAL, &bytes)
            }
            ask::GET_FLOATS => {
                let floats = Self::of_stopped(target, |stop| Ok(stop.frame.fx.0))?;
                self.machine.write_user(data, &floats).map(|()| 0)
            }
            ask::SET_FLOATS => {
                let mut bytes = [0; 512];
                self.machine.read_user(data, &mut bytes)?;
                self.set_registers(target, FLOATS, &bytes)
            }
            ask::GET_SET | ask::SET_SET => {
                let (to, room) = (self.load_long(data)?, self.load_long(data + 8)?);
                let mut bytes = Self::of_stopped(target, |stop| match at {
                    GENERAL => Ok(bytes_of(&words(stop))),
                    FLOATS => Ok(stop.frame.fx.0.to_vec()),
                    // No CPU here has more registers.
                    MORE => Err(Errno::ENODEV),
                    _ => Err(Errno::EINVAL),
                })?;
                let len = bytes.len().min(room as usize);
                if !room.is_multiple_of(8) {
                    return Err(Errno::EINVAL);
                }
                if request == ask::GET_SET {
                    self.machine.write_user(to, &bytes[..len])?;
                } else {
                    self.machine.read_user(to, &mut bytes[..len])?;
                    self.set_registers(target, at, &bytes)?;
                }
                self.machine.write_user(data + 8, &(len as u64).to_le_bytes()).map(|()| 0)
            }
            ask::SET_OPTIONS => {
                if data & !u64::from(option::ALL) != 0 {
                    return Err(Errno::EINVAL);
                }
                target.traced.state.with(|state| state.options = data as u32);
                Ok(0)
            }
            ask::MESSAGE => {
                let message = target.traced.state.with(|state| state.message);
                self.machine.write_user(data, &message.to_le_bytes()).map(|()| 0)
            }
            ask::GET_INFO => {
                let info = Self::of_stopped(target, |stop| stop.info.ok_or(Errno::EINVAL))?;
                self.machine.write_user(data, &said(&info)).map(|()| 0)
            }
            ask::SET_INFO => {
                let (signal, error) = (self.load_word(data)?, self.load_word(data + 4)?);
                let code = self.load_word(data + 8)? as i32;
                let (word, value) = (self.load_long(data + 16)?, self.load_long(data + 24)?);
                Self::of_stopped(target, |stop| {
                    let info = stop.info.as_mut().ok_or(Errno::EINVAL)?;
                    *info = Info { signal, code, word, value, error };
                    Ok(0)
                })
            }
            ask::LOOK_AT_INFOS => self.look_at_infos(target, at, data),
            ask::GET_MASK | ask::SET_MASK if at != 8 => Err(Errno::EINVAL),
            ask::GET_MASK => {
                self.machine.write_user(data, &target.mask.load(Ordering::SeqCst).to_le_bytes()).map(|()| 0)
            }
            ask::SET_MASK => {
                target.mask.store(self.load_long(data)? & !ALWAYS, Ordering::SeqCst);
                Ok(0)
            }
            ask::CALL_INFO => self.tell_call(target, at, data),
            ask::LISTEN => target.traced.state.with(|state| {
                let seized = state.seized;
                let stop = state.stop.as_mut().filter(|stop| !stop.goes).ok_or(Errno::ESRCH)?;
                if !seized || stop.code >> 8 != event::STOP {
                    return Err(Errno::EIO);
                }
                // What has come in the meantime ends it at once.
                stop.told = true;
                state.listens = true;
                self.machine.wake(key_of(&target.traced));
                Ok(0)
            }),
            ask::GO_ON | ask::TO_CALL | ask::STEP | ask::DETACH => self.let_go(target, request, data),
            _ => Err(Errno::EIO),
        }
    }

    /// What is said of signals that wait, of the thread or of its process, which go on waiting: as many as there are, and as are wanted.
    fn look_at_infos(&self, target: &Thread, asked: u64, mut to: u64) -> Answer {
        const OF_PROCESS: u32 = 1;
        let (first, flags, count) =
            (self.load_long(asked)?, self.load_word(asked + 8)?, self.load_word(asked + 12)? as i32);
        let count = usize::try_from(count).map_err(|_| Errno::EINVAL)?;
        if flags & !OF_PROCESS != 0 {
            return Err(Errno::EINVAL);
        }
        let first = usize::try_from(first).unwrap_or(usize::MAX);
        let copied = |infos: &Spin<Vec<Info>>| {
            infos.with(|infos| infos.iter().skip(first).take(count).copied().collect::<Vec<_>>())
        };
        let infos = copied(if flags == OF_PROCESS { &target.process.infos } else { &target.infos });
        let mut done = 0;
        for info in &infos {
            match self.machine.write_user(to, &said(info)) {
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
                Ok(()) => {}
            }
            (to, done) = (to + 128, done + 1);
        }
        Ok(done)
    }

    fn set_registers(&self, target: &Thread, set: u64, bytes: &[u8]) -> Answer {
        Self::of_stopped(target, |stop| {
            if set == FLOATS {
                stop.frame.fx.0.copy_from_slice(bytes);
                stop.frame.tame();
                return Ok(0);
            }
            let mut all = [0; WORDS];
            for (word, bytes) in all.iter_mut().zip(bytes.chunks_exact(8)) {
                *word = u64::from_le_bytes(bytes.try_into().expect("8 bytes"));
            }
            set_words(stop, &all).map(|()| 0)
        })
    }

    /// What call a thread is stopped at: `struct ptrace_syscall_info`, as much of it as there is room for.
    fn tell_call(&self, target: &Thread, room: u64, to: u64) -> Answer {
        let good = target.traced.state.with(|state| state.options & option::GOOD != 0);
        let bytes = Self::of_stopped(target, |stop| {
            let r = &stop.frame.registers;
            let head = |what: u32| Pack::default().word(what).word(ARCHITECTURE).long(r.rip).long(r.rsp);
            Ok(match stop.why {
                Why::Enters(_) if good => {
                    let [a, b, c, d, e, f] = stop.frame.arguments();
                    head(1).long(r.error).long(a).long(b).long(c).long(d).long(e).long(f).0
                }
                Why::Leaves if good => {
                    let is_error = r.rax >= -4095_i64 as u64;
                    head(2).long(r.rax).word(is_error.into()).0[..33].to_vec()
                }
                _ => head(0).0,
            })
        })?;
        self.machine.write_user(to, &bytes[..bytes.len().min(room as usize)])?;
        Ok(bytes.len() as u64)
    }

    fn let_go(&self, target: &Arc<Thread>, request: u64, signal: u64) -> Answer {
        if signal > u64::from(number::LAST) {
            return Err(Errno::EIO);
        }
        if request == ask::DETACH {
            self.end_to_trace(target, signal as u32);
            self.nudge(&target.process);
            return Ok(0);
        }
        target.traced.state.with(|state| {
            let stop = state.stop.as_mut().filter(|stop| !stop.goes).ok_or(Errno::ESRCH)?;
            stop.goes = true;
            state.signal = signal as u32;
            state.listens = false;
            state.goes = match request {
                ask::TO_CALL => Goes::ToCall,
                ask::STEP => Goes::OneStep,
                _ => Goes::Freely,
            };
            Ok::<_, Errno>(())
        })?;
        self.machine.wake(key_of(&target.traced));
        Ok(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::Frame;
    use alloc::boxed::Box;

    #[test]
    fn registers_come_back_as_they_were_set_and_no_program_becomes_the_kernel() {
        let frame = Box::new(Frame::begin(0x1000, 0x2000));
        let (why, info) = (Why::Event, None);
        let mut stop = Stop { why, code: 5, info, frame, fs: 3, told: false, goes: false };
        assert_eq!(words(&stop)[15..22], [u64::MAX, 0x1000, CODE, 0x202, 0x2000, DATA, 3]);
        let mut all: [u64; WORDS] = core::array::from_fn(|at| at as u64);
        all[18] = u64::MAX;
        set_words(&mut stop, &all).unwrap();
        let back = words(&stop);
        assert_eq!(back[..17], all[..17]);
        assert_eq!((back[17], back[20], back[19], back[21]), (CODE, DATA, 19, 21));
        assert_eq!(back[18] & 0x3300, 0x200, "interrupts stay on, no right to ports, no traps");
        all[21] = 1 << 47;
        assert_eq!(set_words(&mut stop, &all), Err(Errno::EIO));
    }
}
