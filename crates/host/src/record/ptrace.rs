//! A tracer of our own, for where nothing else is allowed: it stops each thread before and after each system call. What a
//! thread does between two calls counts as running, and what a call takes as sleeping. Page faults come from a software
//! event of perf, where that is allowed.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::ptrace::{self, Event, Options};
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use super::child::{Child, Ended};
use super::perf::{self, Events, Pump};
use super::{Method, Missing, RecordError, Session, Told, What, proc};
use crate::assemble::Assembly;
use crate::seen::{Saw, Seen};
use crate::syscall::{CLONE_VM, Syscall};
use crate::write::Writer;

/// Between two looks at what has stopped: a thread that stands still costs the program time, looking costs the host.
const SHORTEST_PAUSE: Duration = Duration::from_micros(5);
const LONGEST_PAUSE: Duration = Duration::from_micros(500);

/// What a thread is stopped for.
fn options() -> Options {
    Options::PTRACE_O_TRACESYSGOOD
        | Options::PTRACE_O_TRACEFORK
        | Options::PTRACE_O_TRACEVFORK
        | Options::PTRACE_O_TRACECLONE
        | Options::PTRACE_O_TRACEEXEC
}

/// Records by ptrace.
pub fn record(session: &Session<'_>) -> Result<Told, RecordError> {
    let (mut child, threads) = match &session.options.what {
        What::Command(words) => {
            let child = Child::hold(words)?;
            let pid = child.pid;
            (Some(child), vec![pid])
        }
        What::Process(process) => (None, proc::threads(*process)),
    };
    let mut missing = vec![Missing::new("shootdowns are not recorded: no tracer sees them", "")];
    let began = perf::now();
    let faults = match Events::of_faults(&threads) {
        Ok(events) => Some(Pump::new(events)),
        Err(error) => {
            missing.push(match perf::files::missing(&error, &threads) {
                Some(Missing { what, command }) => {
                    Missing::new(format!("page faults are not recorded: {what}"), command)
                }
                None => {
                    let what = format!("page faults are not recorded ({error})");
                    Missing::new(what, "sudo sysctl kernel.perf_event_paranoid=2")
                }
            });
            None
        }
    };
    for &tid in &threads {
        if let Err(error) = ptrace::seize(Pid::from_raw(tid), options()) {
            // It may have ended meanwhile, unless it is the first.
            if tid == threads[0] {
                child.into_iter().for_each(Child::abandon);
                return Err(refused(error));
            }
        }
    }
    let mut assembly = session.assembly(Method::Ptrace, false)?;
    perf::begin(session, began, &threads, &mut assembly)?;
    let has_faults = faults.is_some();
    let mut tracer = Tracer {
        assembly,
        faults,
        root: threads[0],
        traced: threads.iter().copied().collect(),
        inside: BTreeMap::new(),
        early: BTreeSet::new(),
        ended: None,
    };
    for &tid in &threads {
        // Stops it, so that it can be let go to its next system call.
        let _ = ptrace::interrupt(Pid::from_raw(tid));
    }
    if let Some(child) = &mut child {
        child.release()?;
    }
    tracer.run(session)?;
    if let Some(failure) = child.as_mut().filter(|_| tracer.ended.is_some()).and_then(Child::failure) {
        return Err(failure);
    }
    let Tracer { assembly, ended, .. } = tracer;
    Ok(Told {
        assembled: assembly.finish(),
        missing,
        faults: has_faults,
        times: true,
        shootdowns: false,
        ended,
    })
}

fn refused(error: Errno) -> RecordError {
    let what = format!("the program cannot be traced ({})", error.desc());
    RecordError::lacks(Method::Ptrace, what, "sudo sysctl kernel.yama.ptrace_scope=0")
}

struct Tracer {
    assembly: Assembly<Writer>,
    faults: Option<Pump>,
    /// The thread that was there first; when it has ended all is over.
    root: i32,
    traced: BTreeSet<i32>,
    /// Threads that are in a call, and in which, if it matters.
    inside: BTreeMap<i32, Option<Syscall>>,
    /// Threads that stopped before their maker said that it made them.
    early: BTreeSet<i32>,
    ended: Option<Ended>,
}

impl Tracer {
    fn run(&mut self, session: &Session<'_>) -> Result<(), RecordError> {
        let (mut released, mut pause) = (false, SHORTEST_PAUSE);
        while !self.traced.is_empty() && self.ended.is_none() {
            if session.is_over() && !released {
                // Each is let go where it stops next.
                released = true;
                for &tid in &self.traced {
                    let _ = ptrace::interrupt(Pid::from_raw(tid));
                }
            }
            // Only those that this thread traces: others of this process may have children of their own.
            let flags = WaitPidFlag::__WALL | WaitPidFlag::__WNOTHREAD | WaitPidFlag::WNOHANG;
            match waitpid(None, Some(flags)) {
                Ok(WaitStatus::StillAlive) => {
                    std::thread::sleep(pause);
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
                Ok(status) => {
                    pause = SHORTEST_PAUSE;
                    self.stopped(status, released)?;
                }
                Err(Errno::ECHILD) => break,
                Err(Errno::EINTR) => {}
                Err(error) => return Err(io::Error::from(error).into()),
            }
        }
        self.catch_up()?;
        // Whoever is left goes on by itself.
        for &tid in &self.traced {
            let _ = ptrace::detach(Pid::from_raw(tid), None);
        }
        Ok(())
    }

    /// Hands on the page faults up to now.
    fn catch_up(&mut self) -> io::Result<()> {
        match &mut self.faults {
            Some(pump) => pump.all(&mut self.assembly),
            None => Ok(()),
        }
    }

    fn take(&mut self, tid: i32, saw: Saw<'_>) -> io::Result<()> {
        self.catch_up()?;
        self.take_at(perf::now(), 0, tid, saw)
    }

    fn take_at(&mut self, at: u64, cpu: u16, tid: i32, saw: Saw<'_>) -> io::Result<()> {
        self.assembly.take(Seen { at, cpu, tid, saw })
    }

    fn stopped(&mut self, status: WaitStatus, released: bool) -> Result<(), RecordError> {
        let Some(pid) = status.pid() else { return Ok(()) };
        let tid = pid.as_raw();
        let mut signal = None;
        match status {
            WaitStatus::Exited(_, code) => return Ok(self.gone(tid, Ended::Code(code))?),
            WaitStatus::Signaled(_, by, _) => return Ok(self.gone(tid, Ended::Signal(by as i32))?),
            WaitStatus::PtraceSyscall(_) => self.syscall(pid)?,
            WaitStatus::PtraceEvent(_, _, event) => self.event(pid, event)?,
            // A group stop of a seized thread is an event; anything else is a signal on its way.
            WaitStatus::Stopped(_, by) => {
                signal = Some(by).filter(|&by| by != Signal::SIGTRAP || self.traced.contains(&tid))
            }
            _ => {}
        }
        if !self.traced.contains(&tid) {
            // Its maker's stop comes later.
            self.early.insert(tid);
            return Ok(());
        }
        let went_on = if released { ptrace::detach(pid, signal) } else { ptrace::syscall(pid, signal) };
        if released {
            self.traced.remove(&tid);
        }
        match went_on {
            // Killed while it stood still: its end comes.
            Ok(()) | Err(Errno::ESRCH) => Ok(()),
            Err(error) => Err(io::Error::from(error).into()),
        }
    }

    fn gone(&mut self, tid: i32, how: Ended) -> io::Result<()> {
        self.traced.remove(&tid);
        self.inside.remove(&tid);
        self.take(tid, Saw::Gone)?;
        if tid == self.root {
            self.ended = Some(how);
        }
        Ok(())
    }

    /// A thread is about to enter a call, or has come back from one.
    fn syscall(&mut self, pid: Pid) -> io::Result<()> {
        let tid = pid.as_raw();
        let Ok(regs) = ptrace::getregs(pid) else { return Ok(()) };
        if let Some(call) = self.inside.remove(&tid) {
            match call {
                Some(call) => {
                    let cpu = proc::last_cpu(tid).unwrap_or(0);
                    self.catch_up()?;
                    self.take_at(perf::now(), cpu, tid, Saw::Leave { call, result: regs.rax as i64 })?;
                }
                None => self.take(tid, Saw::On)?,
            }
            return Ok(());
        }
        let call = Syscall::of_number(regs.orig_rax);
        self.inside.insert(tid, call);
        let Some(call) = call else { return self.take(tid, Saw::Off { preempted: false }) };
        let args = [regs.rdi, regs.rsi, regs.rdx, regs.r10, regs.r8, regs.r9];
        let path = (call == Syscall::Mmap && args[4] as i32 >= 0)
            .then(|| std::fs::read_link(format!("/proc/{tid}/fd/{}", args[4])).ok())
            .flatten()
            .map(|path| path.to_string_lossy().into_owned());
        self.take(tid, Saw::Enter { call, args, path: path.as_deref(), stack: "" })?;
        if call == Syscall::Wait4 {
            self.take(tid, Saw::Off { preempted: false })?;
        }
        Ok(())
    }

    fn event(&mut self, pid: Pid, event: i32) -> Result<(), RecordError> {
        let tid = pid.as_raw();
        let (fork, vfork, clone) = (
            Event::PTRACE_EVENT_FORK as i32,
            Event::PTRACE_EVENT_VFORK as i32,
            Event::PTRACE_EVENT_CLONE as i32,
        );
        if event == fork || event == vfork || event == clone {
            let child = ptrace::getevent(pid).map_err(io::Error::from)? as i32;
            let process = proc::process_of(child).unwrap_or(child);
            let shares = self.shares(pid, event == clone, process == child);
            self.take(tid, Saw::Made { tid: child, process: Some(process), shares: Some(shares) })?;
            self.traced.insert(child);
            if self.early.remove(&child) {
                let _ = ptrace::syscall(Pid::from_raw(child), None);
            }
        } else if event == Event::PTRACE_EVENT_EXEC as i32 {
            // All other threads are gone, and this one has the process's number.
            let was = ptrace::getevent(pid).map_err(io::Error::from)? as i32;
            if was != tid {
                self.take(was, Saw::Gone)?;
                self.traced.remove(&was);
                self.inside.remove(&was);
            }
            let name = proc::name(tid).unwrap_or_default();
            self.take(tid, Saw::Exec(&name))?;
            for map in proc::maps(tid) {
                let (address, length, offset, prot) = (map.address, map.length, map.offset, map.prot);
                let flags = if map.shared { crate::syscall::MAP_SHARED } else { 0 };
                let saw = Saw::Mapped { address, length, offset, prot, flags, path: &map.path };
                self.take(tid, saw)?;
            }
        }
        Ok(())
    }

    /// Whether a thread that is just being made shares its maker's space: by the flags of the call, or else by what it is.
    fn shares(&self, maker: Pid, clone: bool, own_process: bool) -> bool {
        let Ok(regs) = ptrace::getregs(maker) else { return !own_process };
        match Syscall::of_number(regs.orig_rax) {
            Some(Syscall::Vfork) => true,
            Some(Syscall::Fork) => false,
            Some(Syscall::Clone) => regs.rdi & CLONE_VM != 0,
            // Its first argument leads to the flags.
            Some(Syscall::Clone3) => {
                let flags = ptrace::read(maker, regs.rdi as ptrace::AddressType);
                flags.map_or(!own_process, |flags| flags as u64 & CLONE_VM != 0)
            }
            _ => clone && !own_process,
        }
    }
}
