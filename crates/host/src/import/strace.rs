//! `strace -f -ttt -T -e trace=memory,process`: a line for each call, at the time of its beginning; in two halves if another
//! thread's came between.
//!
//! A thread may show itself before the call that made it has come back. Its lines wait for that, as long as such a call is under
//! way. `strace -p` shows threads that nobody makes: they are taken for threads of the process that came first.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use super::fields::seconds;
use super::stack::Stack;
use super::{Notes, Reader, shown};
use crate::assemble::Assembly;
use crate::seen::{Saw, Seen};
use crate::syscall::{CLONE_THREAD, CLONE_VM, Syscall};
use crate::write::Writer;

/// Lines of threads that nobody has made yet, all together, and their bytes.
const MOST_WAITING: usize = 100_000;
const MOST_WAITING_BYTES: usize = 16 << 20;
/// A call that makes a thread and is shown as a whole, at its end, comes after the thread's first lines by less than so many nanoseconds.
const SOON: u64 = 20_000_000;
/// Bytes of first halves, all together.
const MOST_HALVES: usize = 16 << 20;

/// What strace prints with -ttt is a time since 1970, in nanoseconds, and later than this; with -r it is one since the line before.
const EARLIEST: u64 = 1_000_000_000 * 1_000_000;

/// What has been met so far.
#[derive(Default)]
pub struct Strace {
    program: String,
    /// The first halves of calls, by thread: when, and the text up to where it broke off.
    halves: BTreeMap<i32, (u64, String)>,
    /// Lines of threads that nobody has made yet.
    waiting: BTreeMap<i32, Vec<(u64, String)>>,
    waiters: usize,
    waiting_bytes: usize,
    halves_bytes: usize,
    /// The threads among them that make another.
    makers: BTreeSet<i32>,
    /// When the first of those that wait showed itself.
    since: u64,
    /// The process of the first thread.
    first: Option<i32>,
    /// Nobody is waited for any more.
    closed: bool,
    /// The last line, with its number: who asked for its call may stand below it (`strace -k`).
    held: Option<(u64, String)>,
    /// What stands there so far.
    stack: Stack,
}

/// A line.
#[derive(Debug, PartialEq, Eq)]
struct Line<'a> {
    tid: i32,
    at: u64,
    rest: &'a str,
    /// Who asked for the call, if that stood below it.
    stack: &'a str,
}

/// Whether a line has what it needs of a line of strace.
pub fn looks_like(text: &str) -> bool {
    read(text).filter(|line| line.at >= EARLIEST).is_some_and(|line| {
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        line.rest.starts_with("+++ ")
            || line.rest.starts_with("<... ")
            || line.rest.split_once('(').is_some_and(|(name, _)| !name.is_empty() && name.chars().all(plain))
    })
}

/// Whether it is a whole call of strace with another time in front than `-ttt` prints, or with none: `-t`, `-tt`, `-r`.
pub fn has_other_times(text: &str) -> bool {
    let whole = text.rsplit_once(" = ").is_some_and(|(call, _)| call.trim_end().ends_with(')'));
    if !whole || read(text).is_some_and(|line| line.at >= EARLIEST) {
        return false;
    }
    let call = |word: &str| {
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        word.split_once('(').is_some_and(|(name, _)| {
            name.starts_with(|c: char| c.is_ascii_lowercase()) && name.chars().all(plain)
        })
    };
    let front =
        |word: &str| word.starts_with('[') || word.chars().all(|c| c.is_ascii_digit() || ":.]+".contains(c));
    text.split_whitespace().take(5).find(|word| !front(word)).is_some_and(call)
}

/// `1234  1700000000.123456 call(...)`, `[pid 1234] 1700000000.123456 call(...)`, or without a number if there is one thread.
fn read(text: &str) -> Option<Line<'_>> {
    let text = text.trim_start();
    let (tid, rest) = if let Some(rest) = text.strip_prefix("[pid") {
        let (tid, rest) = rest.split_once(']')?;
        (tid.trim().parse().ok()?, rest)
    } else {
        let (first, rest) = text.split_once(char::is_whitespace)?;
        match first.parse() {
            Ok(tid) => (tid, rest),
            Err(_) => (1, text),
        }
    };
    let (time, rest) = rest.trim_start().split_once(char::is_whitespace)?;
    let (rest, stack) = rest.split_once('\n').unwrap_or((rest, ""));
    Some(Line { tid, at: seconds(time)?, rest: rest.trim(), stack })
}

/// A function of a stack: ` > /usr/lib/libc.so.6(mmap+0x23) [0xfe9d7]`. Returns its name and its file's.
fn frame(text: &str) -> Option<(&str, &str)> {
    let text = text.strip_prefix(" > ")?.trim_end();
    let place = text.rsplit_once(" [").map_or(text, |(place, _)| place);
    let (path, symbol) = place.split_once('(').unwrap_or((place, ""));
    Some((symbol.strip_suffix(')').unwrap_or(symbol), path))
}

impl Reader for Strace {
    fn line(
        &mut self,
        number: u64,
        text: &str,
        assembly: &mut Assembly<Writer>,
        notes: &mut Notes,
    ) -> io::Result<bool> {
        if let Some((symbol, path)) = frame(text) {
            self.stack.push(symbol, path);
            return Ok(false);
        }
        let known = self.let_go(assembly, notes)?;
        self.held = Some((number, text.to_owned()));
        Ok(known)
    }

    fn end(&mut self, assembly: &mut Assembly<Writer>, notes: &mut Notes) -> io::Result<bool> {
        let known = self.let_go(assembly, notes)?;
        self.let_all_in(assembly, notes)?;
        Ok(known)
    }

    fn program(&self) -> &str {
        &self.program
    }

    fn cpus(&self) -> u16 {
        1
    }

    fn kinds(&self) -> (bool, bool, bool) {
        (false, false, false)
    }
}

impl Strace {
    /// The stack below the last line is over.
    fn let_go(&mut self, assembly: &mut Assembly<Writer>, notes: &mut Notes) -> io::Result<bool> {
        let stack = std::mem::take(&mut self.stack);
        let Some((number, mut text)) = self.held.take() else { return Ok(false) };
        if !stack.text().is_empty() {
            text.push('\n');
            text.push_str(stack.text());
        }
        let known = self.take(number, &text, assembly, notes)?;
        notes.add_odd(number, assembly.odd());
        Ok(known)
    }

    fn take(
        &mut self,
        number: u64,
        text: &str,
        assembly: &mut Assembly<Writer>,
        notes: &mut Notes,
    ) -> io::Result<bool> {
        let Some(line) = read(text) else {
            if !text.trim().is_empty() && !text.starts_with("strace: ") {
                notes.add(number, "a line that is none of strace's with -ttt; left out");
            }
            return Ok(false);
        };
        if self.waiters > 0 && self.makers.is_empty() && line.at.saturating_sub(self.since) > SOON {
            self.let_all_in(assembly, notes)?;
        }
        if !assembly.knows(line.tid) {
            if assembly.alive() == 0 && self.first.is_none() {
                self.first = Some(line.tid);
                assembly.known(line.at, line.tid, &[line.tid])?;
            } else if !self.closed {
                if self.waiters == 0 {
                    self.since = line.at;
                }
                self.waiting.entry(line.tid).or_default().push((number, text.to_owned()));
                self.waiters += 1;
                self.waiting_bytes += text.len();
                if self.waiters > MOST_WAITING || self.waiting_bytes > MOST_WAITING_BYTES {
                    notes.add(number, "threads that nobody is seen to make; taken for the program's");
                    self.closed = true;
                    self.let_all_in(assembly, notes)?;
                }
                return Ok(true);
            }
        }
        self.act(number, &line, assembly, notes)
    }

    fn let_all_in(&mut self, assembly: &mut Assembly<Writer>, notes: &mut Notes) -> io::Result<()> {
        // One that makes another may be among them.
        while self.waiters > 0 {
            let mut all: Vec<(u64, String)> =
                std::mem::take(&mut self.waiting).into_values().flatten().collect();
            (self.waiters, self.waiting_bytes) = (0, 0);
            all.sort_unstable_by_key(|&(number, _)| number);
            self.act_late(all, assembly, notes)?;
        }
        Ok(())
    }

    /// Lines that have waited: their times are those of then.
    fn act_late(
        &mut self,
        lines: Vec<(u64, String)>,
        assembly: &mut Assembly<Writer>,
        notes: &mut Notes,
    ) -> io::Result<()> {
        for (number, text) in lines {
            if let Some(line) = read(&text) {
                assembly.late(true);
                self.act(number, &line, assembly, notes)?;
            }
        }
        assembly.late(false);
        Ok(())
    }

    /// A thread that nobody is seen to make.
    fn let_in(
        &mut self,
        number: u64,
        line: &Line<'_>,
        assembly: &mut Assembly<Writer>,
        notes: &mut Notes,
    ) -> io::Result<()> {
        let process = self.first.unwrap_or(line.tid);
        notes.add(
            number,
            "a thread that nobody is seen to make; taken for one of the process that came first",
        );
        assembly.known(line.at, process, &[line.tid])
    }

    fn act(
        &mut self,
        number: u64,
        line: &Line<'_>,
        assembly: &mut Assembly<Writer>,
        notes: &mut Notes,
    ) -> io::Result<bool> {
        let seen = |at, saw| Seen { at, cpu: 0, tid: line.tid, saw };
        if let Some(end) = line.rest.strip_prefix("+++ ") {
            if end.starts_with("exited") || end.starts_with("killed") {
                self.forget_half(line.tid);
                assembly.take(seen(line.at, Saw::Gone))?;
            } else if let Some(other) = end.strip_prefix("superseded by execve in pid ")
                && let Some(other) = other.split(' ').next().and_then(|tid| tid.parse().ok())
            {
                // The thread that begins a program goes on under the number of its process.
                self.forget_half(line.tid);
                if let Some(half) = self.halves.remove(&other) {
                    self.halves.insert(line.tid, half);
                }
                assembly.take(Seen { at: line.at, cpu: 0, tid: other, saw: Saw::Gone })?;
            }
            return Ok(true);
        }
        if line.rest.starts_with("--- ") {
            return Ok(true);
        }
        if !assembly.knows(line.tid) {
            self.let_in(number, line, assembly, notes)?;
        }
        if let Some(first) = line.rest.strip_suffix("<unfinished ...>") {
            let first = first.trim_end();
            self.forget_half(line.tid);
            if let Some((name, inside)) = first.split_once('(')
                && let Some(call) = Syscall::of_name(name)
            {
                enter(line.tid, line.at, call, inside, assembly)?;
                if call.makes_task() {
                    self.makers.insert(line.tid);
                }
            }
            if self.halves_bytes + first.len() > MOST_HALVES {
                notes.add(number, "too many calls are under way to remember their beginnings; left out");
                return Ok(true);
            }
            self.halves_bytes += first.len();
            self.halves.insert(line.tid, (line.at, first.to_owned()));
            return Ok(true);
        }
        if let Some(rest) = line.rest.strip_prefix("<... ") {
            let Some((_, second)) = rest.split_once("resumed>") else {
                notes.add(number, "half a call that is not one; left out");
                return Ok(false);
            };
            self.makers.remove(&line.tid);
            let Some((begun, first)) = self.halves.remove(&line.tid) else {
                notes.add(number, "the second half of a call whose first is not there; left out");
                return Ok(false);
            };
            self.halves_bytes -= first.len();
            return self.call(
                number,
                line,
                begun,
                Some(line.at),
                &format!("{first}{second}"),
                assembly,
                notes,
            );
        }
        self.call(number, line, line.at, None, line.rest, assembly, notes)
    }

    #[expect(clippy::too_many_arguments, reason = "a line's number, its place and its parts")]
    fn call(
        &mut self,
        number: u64,
        line: &Line<'_>,
        begun: u64,
        resumed: Option<u64>,
        text: &str,
        assembly: &mut Assembly<Writer>,
        notes: &mut Notes,
    ) -> io::Result<bool> {
        let Some((name, rest)) = text.split_once('(') else {
            notes.add(number, &format!("`{}` is no call; left out", shown(text)));
            return Ok(false);
        };
        let Some(call) = Syscall::of_name(name) else { return Ok(true) };
        let Some((inside, result, took)) = result(rest) else {
            notes.add(number, "a call without its result; left out");
            return Ok(false);
        };
        let ended = resumed.unwrap_or(begun).max(begun.saturating_add(took));
        let seen = |at, saw| Seen { at, cpu: 0, tid: line.tid, saw };
        if resumed.is_none() {
            enter(line.tid, begun, call, inside, assembly)?;
        }
        if !line.stack.is_empty() {
            assembly.take(seen(line.at, Saw::Caller(line.stack)))?;
        }
        if let Ok(child) = i32::try_from(result)
            && call.makes_task()
            && child > 0
        {
            let flags = flags_of(call, inside);
            let own = assembly.process_of(line.tid).unwrap_or(line.tid);
            let process = if flags & CLONE_THREAD != 0 { own } else { child };
            let made = Saw::Made { tid: child, process: Some(process), shares: Some(flags & CLONE_VM != 0) };
            assembly.take(seen(begun, made))?;
            self.catch_up(child, assembly, notes)?;
        }
        if matches!(call, Syscall::Execve | Syscall::Execveat) && result == 0 {
            let program = inside.split('"').nth(1).unwrap_or("");
            if self.program.is_empty() {
                self.program = program.to_owned();
            }
            assembly.take(seen(ended, Saw::Exec(program)))?;
        }
        assembly.take(seen(ended, Saw::Leave { call, result }))?;
        Ok(true)
    }

    /// A thread was made: what it has done meanwhile.
    fn catch_up(&mut self, child: i32, assembly: &mut Assembly<Writer>, notes: &mut Notes) -> io::Result<()> {
        let lines = self.waiting.remove(&child).unwrap_or_default();
        for (_, text) in &lines {
            self.waiters -= 1;
            self.waiting_bytes -= text.len();
        }
        self.act_late(lines, assembly, notes)
    }

    fn forget_half(&mut self, tid: i32) {
        if let Some((_, old)) = self.halves.remove(&tid) {
            self.halves_bytes -= old.len();
        }
        self.makers.remove(&tid);
    }
}

fn enter(tid: i32, at: u64, call: Syscall, inside: &str, assembly: &mut Assembly<Writer>) -> io::Result<()> {
    let arguments = arguments(inside);
    let args = numbers(call, &arguments);
    let path = arguments.get(4).and_then(|fd| fd.split_once('<')?.1.strip_suffix('>'));
    assembly.take(Seen { at, cpu: 0, tid, saw: Saw::Enter { call, args, path, stack: "" } })
}

/// The arguments of a call that has ended, its result, and how long it took.
fn result(rest: &str) -> Option<(&str, i64, u64)> {
    let (inside, result) = rest.rsplit_once(") = ").or_else(|| {
        // strace puts results under each other.
        let at = rest.rfind(" = ")?;
        let inside = rest[..at].trim_end().strip_suffix(')')?;
        Some((inside, &rest[at + 3..]))
    })?;
    let mut words = result.split_whitespace();
    let first = words.next()?;
    let value = match first.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok()? as i64,
        None => first.parse().ok()?,
    };
    let took = words.next_back().and_then(|word| seconds(word.strip_prefix('<')?.strip_suffix('>')?));
    Some((inside, value, took.unwrap_or(0)))
}

/// The arguments, apart: commas inside brackets and quotes do not count.
fn arguments(inside: &str) -> Vec<&str> {
    let (mut list, mut depth, mut quoted, mut from) = (Vec::new(), 0i32, false, 0);
    let mut before = ' ';
    for (at, c) in inside.char_indices() {
        match c {
            '"' if before != '\\' => quoted = !quoted,
            '{' | '[' | '(' | '<' if !quoted => depth += 1,
            '}' | ']' | ')' | '>' if !quoted && before != '=' => depth -= 1,
            ',' if !quoted && depth <= 0 => {
                list.push(inside[from..at].trim());
                from = at + 1;
            }
            _ => {}
        }
        before = c;
    }
    list.push(inside[from..].trim());
    list
}

/// The numbers of the arguments, as the kernel got them.
fn numbers(call: Syscall, arguments: &[&str]) -> [u64; 6] {
    let mut args = [0; 6];
    for (arg, text) in args.iter_mut().zip(arguments) {
        *arg = constant(text);
    }
    if call == Syscall::Clone {
        args[0] = flags_of(call, &arguments.join(", "));
    }
    args
}

/// What the call that makes a task says of it.
fn flags_of(call: Syscall, inside: &str) -> u64 {
    match call {
        Syscall::Vfork => CLONE_VM,
        _ => match inside.split_once("flags=") {
            Some((_, flags)) => constant(&flags[..flags.find([',', '}', ' ']).unwrap_or(flags.len())]),
            None => 0,
        },
    }
}

/// A number, or constants with `|` between them.
fn constant(text: &str) -> u64 {
    text.split('|').map(|word| word.trim().split('<').next().unwrap_or("").trim()).fold(0, |all, word| {
        let number = match word.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16).ok(),
            None => word.parse::<u64>().ok().or_else(|| word.parse::<i64>().ok().map(|number| number as u64)),
        };
        all | number.unwrap_or_else(|| named(word))
    })
}

fn named(word: &str) -> u64 {
    match word {
        "PROT_READ" | "MAP_SHARED" => 1,
        "PROT_WRITE" | "MAP_PRIVATE" => 2,
        "MAP_SHARED_VALIDATE" => 3,
        "PROT_EXEC" | "MADV_DONTNEED" => 4,
        "MADV_FREE" => 8,
        "MADV_REMOVE" => 9,
        "MAP_FIXED" => 0x10,
        "MAP_ANONYMOUS" => 0x20,
        "MADV_HUGEPAGE" => 14,
        "MADV_NOHUGEPAGE" => 15,
        "MADV_COLD" => 20,
        "MADV_PAGEOUT" => 21,
        "MADV_POPULATE_READ" => 22,
        "MADV_POPULATE_WRITE" => 23,
        "MADV_DONTNEED_LOCKED" => 24,
        "MADV_WILLNEED" => 3,
        "MAP_LOCKED" => 0x2000,
        "MAP_POPULATE" => 0x8000,
        "CLONE_VM" => CLONE_VM,
        "CLONE_THREAD" => CLONE_THREAD,
        "CLONE_VFORK" => 0x4000,
        _ => 0,
    }
}
