//! `perf script` and ftrace: a line for each event.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use super::fields::{Line, hex, value};
use super::stack::Stack;
use super::{Notes, Reader, shown};
use crate::assemble::Assembly;
use crate::seen::{Saw, Seen};
use crate::syscall::{CLONE_THREAD, CLONE_VM, Syscall};
use crate::write::Writer;

/// What has been met so far.
#[derive(Default)]
pub struct Events {
    program: String,
    cpus: u16,
    faults: bool,
    switches: bool,
    flushes: bool,
    /// The process of the first thread that was let in: whose events come before are not the program's.
    first: Option<i32>,
    /// Events of idle CPUs are there too, so those of all programs may be.
    all: bool,
    /// Threads in a call that makes another one, which may show itself before the call is over.
    makers: BTreeSet<i32>,
    /// What threads are called: they take other names when they run.
    names: BTreeMap<i32, String>,
    /// A call whose stack follows, in the lines below it.
    held: Option<Held>,
    /// The line of the last event.
    number: u64,
}

/// The beginning of a call, until the next event: `perf script` prints its stack behind it, innermost function first.
struct Held {
    line: u64,
    at: u64,
    cpu: u16,
    tid: i32,
    call: Syscall,
    args: [u64; 6],
    stack: Stack,
}

/// Names that are remembered: after so many all are forgotten, and taken for new when they come again.
const MOST_NAMES: usize = 1 << 17;

/// Threads in a call that makes another one, of which that is remembered.
const MOST_MAKERS: usize = 1 << 12;

/// What a line is good for.
enum Use {
    Taken,
    /// Known, and nothing to take.
    Known,
    Unknown,
}

impl Reader for Events {
    fn line(
        &mut self,
        number: u64,
        text: &str,
        assembly: &mut Assembly<Writer>,
        notes: &mut Notes,
    ) -> io::Result<bool> {
        // Comments, call stacks and the empty lines after them.
        if text.starts_with('\t') {
            self.frame(text);
            return Ok(false);
        }
        if text.trim().is_empty() || text.starts_with('#') {
            return Ok(false);
        }
        self.let_go(assembly, notes)?;
        self.number = number;
        if let Some(lost) = lost(text) {
            assembly.take(Seen { at: 0, cpu: 0, tid: 0, saw: Saw::Lost(lost) })?;
            notes.add(number, "events are missing here, says the capture");
            return Ok(true);
        }
        let Some(line) = Line::read(text) else {
            notes.add(number, "a line that is no event; left out");
            return Ok(false);
        };
        self.cpus = self.cpus.max(line.cpu.saturating_add(1));
        match self.event(&line, assembly, notes)? {
            Use::Taken => Ok(true),
            Use::Known => Ok(true),
            Use::Unknown => {
                notes.add(number, &format!("events `{}` say nothing here; left out", shown(line.event)));
                Ok(false)
            }
        }
    }

    fn end(&mut self, assembly: &mut Assembly<Writer>, notes: &mut Notes) -> io::Result<bool> {
        self.let_go(assembly, notes)?;
        Ok(false)
    }

    fn program(&self) -> &str {
        &self.program
    }

    fn cpus(&self) -> u16 {
        self.cpus
    }

    fn kinds(&self) -> (bool, bool, bool) {
        (self.faults, self.switches, self.flushes)
    }
}

/// `CPU:1 [LOST 12 EVENTS]`, or perf's record.
fn lost(text: &str) -> Option<u64> {
    if let Some((_, rest)) = text.split_once("[LOST ") {
        return rest.split(' ').next()?.parse().ok();
    }
    let (_, rest) = text.split_once("PERF_RECORD_LOST")?;
    rest.rsplit(' ').next()?.trim().parse().ok().or(Some(1))
}

impl Events {
    fn event(
        &mut self,
        line: &Line<'_>,
        assembly: &mut Assembly<Writer>,
        notes: &mut Notes,
    ) -> io::Result<Use> {
        let seen = |tid: i32, saw| Seen { at: line.at, cpu: line.cpu, tid, saw };
        self.all |= line.tid == 0;
        let number = |key| value(line.payload, key).and_then(|text| text.parse::<i32>().ok());
        match line.event {
            "sys_enter" | "sys_exit" => {
                let Some((call, rest)) = raw_call(line.payload) else { return Ok(Use::Known) };
                if line.event == "sys_enter" {
                    self.let_in(line, assembly, notes)?;
                    self.hold(line, call, bare_arguments(rest));
                } else {
                    let result = rest.trim_start_matches([' ', '=']);
                    let Some(result) = hex(result, false) else { return Ok(Use::Unknown) };
                    self.let_in(line, assembly, notes)?;
                    self.makers.remove(&line.tid);
                    assembly.take(seen(line.tid, Saw::Leave { call, result: result as i64 }))?;
                }
            }
            "page_fault_user" | "page_fault_kernel" => {
                let Some(address) = value(line.payload, "address=").and_then(|text| hex(text, true)) else {
                    return Ok(Use::Unknown);
                };
                let code = value(line.payload, "error_code=").and_then(|text| hex(text, true)).unwrap_or(0);
                if address >> 47 != 0 {
                    return Ok(Use::Known);
                }
                self.faults = true;
                self.let_in(line, assembly, notes)?;
                assembly.take(seen(line.tid, Saw::Fault { address, write: code & 2 != 0 }))?;
            }
            "page-faults" | "minor-faults" | "faults" => {
                let mut words = line.payload.split_whitespace();
                let (Some(address), Some(_)) = (words.next().and_then(|word| hex(word, true)), words.next())
                else {
                    return Ok(Use::Unknown);
                };
                self.faults = true;
                self.let_in(line, assembly, notes)?;
                // Whether it wrote is not said. Most first touches do.
                assembly.take(seen(line.tid, Saw::Fault { address, write: true }))?;
            }
            "tlb_flush" => {
                let reason =
                    line.payload.rsplit('(').next().and_then(|text| text.trim_end_matches(')').parse().ok());
                self.flushes = true;
                // 1 is a remote shootdown, 5 one on a CPU that had left the space.
                if !matches!(reason, Some(1 | 5)) {
                    return Ok(Use::Known);
                }
                let pages =
                    value(line.payload, "pages:").and_then(|text| text.parse::<i64>().ok()).unwrap_or(-1);
                let (pages, left) = (u64::try_from(pages).unwrap_or(0), reason == Some(5));
                assembly.take(seen(line.tid, Saw::Flushed { pages, left }))?;
            }
            "csd_queue_cpu" => {
                let flushes = value(line.payload, "func=").is_some_and(crate::seen::is_flush);
                if let Some(cpu) = number("cpu=").filter(|_| flushes) {
                    let Ok(cpu) = u16::try_from(cpu) else { return Ok(Use::Unknown) };
                    assembly.take(seen(line.tid, Saw::Asks(cpu)))?;
                }
            }
            "ipi_send_cpumask" | "ipi_send_cpu" => {
                // Without a function to call there it is for the scheduler. Which function it is the kernel says of masks only,
                // so what makes it a flush is that its target flushes next.
                if value(line.payload, "callback=").is_none_or(|callback| hex(callback, true) == Some(0)) {
                    return Ok(Use::Known);
                }
                let mask = match number("cpu=") {
                    Some(cpu) => one_bit(cpu),
                    None => value_of_mask(line.payload),
                };
                if !mask.is_empty() {
                    assembly.take(seen(line.tid, Saw::Sends(&mask)))?;
                }
            }
            "sched_switch" => {
                let Some((prev, preempted, next)) = switch(line.payload) else { return Ok(Use::Unknown) };
                self.switches = true;
                if assembly.knows(prev) {
                    assembly.take(seen(prev, Saw::Off { preempted }))?;
                }
                if assembly.knows(next) {
                    assembly.take(seen(next, Saw::On))?;
                }
            }
            "task_newtask" => {
                let Some(child) = number("pid=") else { return Ok(Use::Unknown) };
                let flags = value(line.payload, "clone_flags=").and_then(|text| hex(text, true)).unwrap_or(0);
                self.names.remove(&child);
                if assembly.knows(line.tid) {
                    let own = || line.process.or_else(|| assembly.process_of(line.tid));
                    let process = (flags & CLONE_THREAD != 0).then(own).flatten();
                    let shares = Some(flags & CLONE_VM != 0);
                    assembly.take(seen(line.tid, Saw::Made { tid: child, process, shares }))?;
                }
            }
            "sched_process_fork" => {
                let Some(child) = number("child_pid=") else { return Ok(Use::Unknown) };
                if assembly.knows(line.tid) && !assembly.knows(child) {
                    assembly.take(seen(line.tid, Saw::Made { tid: child, process: None, shares: None }))?;
                }
            }
            "sched_process_exec" => {
                let program = value(line.payload, "filename=").unwrap_or("");
                if self.program.is_empty() {
                    self.program = program.to_owned();
                }
                assembly.take_over(line.tid);
                self.let_in(line, assembly, notes)?;
                assembly.take(seen(line.tid, Saw::Exec(program)))?;
            }
            "sched_process_exit" => assembly.take(seen(number("pid=").unwrap_or(line.tid), Saw::Gone))?,
            other => match named_call(other, line.payload) {
                Some((call, None)) => {
                    self.let_in(line, assembly, notes)?;
                    self.hold(line, call, named_arguments(line.payload));
                }
                Some((call, Some(result))) => {
                    self.let_in(line, assembly, notes)?;
                    self.makers.remove(&line.tid);
                    assembly.take(seen(line.tid, Saw::Leave { call, result }))?;
                }
                None if other.starts_with("sys_") => return Ok(Use::Known),
                None => return Ok(Use::Unknown),
            },
        }
        Ok(Use::Taken)
    }

    fn hold(&mut self, line: &Line<'_>, call: Syscall, args: [u64; 6]) {
        let (at, cpu, tid) = (line.at, line.cpu, line.tid);
        let stack = Stack::default();
        if call.makes_task() && self.makers.len() < MOST_MAKERS {
            self.makers.insert(line.tid);
        }
        self.held = Some(Held { line: self.number, at, cpu, tid, call, args, stack });
    }

    /// Its stack is over.
    fn let_go(&mut self, assembly: &mut Assembly<Writer>, notes: &mut Notes) -> io::Result<()> {
        let Some(Held { line, at, cpu, tid, call, args, stack }) = self.held.take() else {
            return Ok(());
        };
        assembly.take(Seen {
            at,
            cpu,
            tid,
            saw: Saw::Enter { call, args, path: None, stack: stack.text() },
        })?;
        notes.add_odd(line, assembly.odd());
        Ok(())
    }

    /// A line of a stack: `7f4d7702b5e0 __munmap+0xb (/usr/lib/libc.so.6)`. The kernel's own are left out.
    fn frame(&mut self, text: &str) {
        let Some(held) = self.held.as_mut() else { return };
        let Some((address, rest)) = text.trim().split_once(' ') else { return };
        let Some(address) = hex(address, true) else { return };
        if address >> 63 != 0 {
            return;
        }
        let (symbol, object) = rest.rsplit_once(" (").unwrap_or((rest, ""));
        held.stack.push(symbol, object.trim_end_matches(')'));
    }

    /// The threads of the program are those whose calls and faults are in the capture: `perf record COMMAND` has no others.
    fn let_in(
        &mut self,
        line: &Line<'_>,
        assembly: &mut Assembly<Writer>,
        notes: &mut Notes,
    ) -> io::Result<()> {
        if line.tid == 0 {
            return Ok(());
        }
        if assembly.knows(line.tid) {
            return self.name(line, assembly);
        }
        if self.first.is_none() && self.program.is_empty() {
            self.program = line.name.to_owned();
        }
        let process = self.process(line, notes);
        self.first.get_or_insert(process);
        assembly.known(line.at, process, &[line.tid])?;
        self.name(line, assembly)
    }

    /// Of which process a thread is that nobody is seen to make. Where lines do not say it, and only one program was captured, it is the first one's:
    /// it was there before.
    fn process(&self, line: &Line<'_>, notes: &mut Notes) -> i32 {
        if let Some(process) = line.process {
            return process;
        }
        let Some(first) = self.first else { return line.tid };
        let (taken, process) = if self.all || !self.makers.is_empty() {
            ("a process of its own", line.tid)
        } else {
            ("one of the process that came first", first)
        };
        notes.add(
            self.number,
            &format!("a thread that nobody is seen to make, and no process is named (`perf script -F +pid` does); taken for {taken}"),
        );
        process
    }

    /// Says what a thread is called, if that was not said.
    fn name(&mut self, line: &Line<'_>, assembly: &mut Assembly<Writer>) -> io::Result<()> {
        if self.names.get(&line.tid).is_some_and(|name| name == line.name) {
            return Ok(());
        }
        if self.names.len() >= MOST_NAMES {
            self.names.clear();
        }
        self.names.insert(line.tid, line.name.to_owned());
        assembly.take(Seen { at: line.at, cpu: line.cpu, tid: line.tid, saw: Saw::Name(line.name) })
    }
}

/// `NR 9 (...)` or `NR 9 = ...`.
fn raw_call(payload: &str) -> Option<(Syscall, &str)> {
    let rest = payload.strip_prefix("NR ")?;
    let end = rest.find(' ')?;
    Some((Syscall::of_number(rest[..end].parse().ok()?)?, rest[end..].trim()))
}

/// `(0, 2000, 3, 22, ffffffff, 0)`.
fn bare_arguments(text: &str) -> [u64; 6] {
    let inside = text.trim_start_matches('(').trim_end_matches(')');
    let mut args = [0; 6];
    for (arg, text) in args.iter_mut().zip(inside.split(',')) {
        *arg = hex(text.trim(), true).unwrap_or(0);
    }
    args
}

/// `sys_enter_mmap: addr: 0x0, len: 0x2000` of perf, `sys_mmap(addr: 0, len: 2000)` and `sys_mmap -> 0x7f0` of ftrace.
fn named_call(event: &str, payload: &str) -> Option<(Syscall, Option<i64>)> {
    let result = |text: &str| hex(text.trim(), false).map(|value| value as i64);
    if let Some(name) = event.strip_prefix("sys_enter_") {
        return Some((Syscall::of_name(name)?, None));
    }
    if let Some(name) = event.strip_prefix("sys_exit_") {
        return Some((Syscall::of_name(name)?, Some(result(payload)?)));
    }
    let call = Syscall::of_name(event.strip_prefix("sys_")?)?;
    match payload.strip_prefix("->") {
        Some(text) => Some((call, Some(result(text)?))),
        None => Some((call, None)),
    }
}

/// The values behind the names.
fn named_arguments(payload: &str) -> [u64; 6] {
    let inside = payload.trim_start_matches('(').trim_end_matches(')');
    let mut args = [0; 6];
    for (arg, text) in args.iter_mut().zip(inside.split(',')) {
        let text = text.rsplit(':').next().unwrap_or(text).trim();
        *arg = hex(text, true).unwrap_or(0);
    }
    args
}

/// Who leaves the CPU, whether it would have gone on, and who comes: as the kernel prints it, and as perf does.
fn switch(payload: &str) -> Option<(i32, bool, i32)> {
    let (left, right) = payload.split_once("==>")?;
    let runs = |state: &str| state.starts_with('R');
    if let (Some(prev), Some(next)) = (value(left, "prev_pid="), value(right, "next_pid=")) {
        let state = value(left, "prev_state=")?;
        return Some((prev.parse().ok()?, runs(state), next.parse().ok()?));
    }
    let number = |text: &str| -> Option<i32> {
        let (before, _) = text.rsplit_once(" [")?;
        before.rsplit_once(':')?.1.trim().parse().ok()
    };
    let state = left.trim().rsplit(' ').next()?;
    Some((number(left)?, runs(state), number(right)?))
}

fn one_bit(cpu: i32) -> Vec<u64> {
    let Ok(cpu) = usize::try_from(cpu) else { return Vec::new() };
    if cpu >= usize::from(super::MOST_CPUS) {
        return Vec::new();
    }
    let mut mask = vec![0; cpu / 64 + 1];
    mask[cpu / 64] = 1 << (cpu % 64);
    mask
}

/// `cpumask=00000001,00000003`: groups of 32 bits, the highest first.
fn value_of_mask(payload: &str) -> Vec<u64> {
    let Some(at) = payload.find("cpumask=") else { return Vec::new() };
    let rest = &payload[at + "cpumask=".len()..];
    let text = &rest[..rest.find(' ').unwrap_or(rest.len())];
    let mut mask = Vec::new();
    for (nth, group) in text.rsplit(',').enumerate().take(usize::from(super::MOST_CPUS) / 32) {
        let Ok(bits) = u32::from_str_radix(group, 16) else { return Vec::new() };
        if nth % 2 == 0 {
            mask.push(u64::from(bits));
        } else if let Some(word) = mask.last_mut() {
            *word |= u64::from(bits) << 32;
        }
    }
    mask
}
