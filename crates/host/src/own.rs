//! A workload of one's own without a program: threads that do one operation again and again, as a recording.
//!
//! `own:threads=16,operation=munmap,pages=4,rate=1000` says it in a line; a file says it with a line for each.

use std::fmt;

use quietmm_workloads::trace::recording::{
    About, Backing, Call, Event, Pages, RecordingEncoder, RecordingHeader, Rights, Shootdowns, What,
};

/// What begins a specification on the command line.
pub const PREFIX: &str = "own:";
/// Where the first thread has its pages, and how far apart those of others are.
const BASE: u64 = 0x10_0000;
const APART: u64 = 1 << 22;

/// What threads do again and again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    /// Map, touch, unmap.
    Munmap,
    /// Touch, and give up (`MADV_DONTNEED`).
    Madvise,
    /// Touch, take the right to write, and give it back.
    Mprotect,
    /// Touch, and move to another place.
    Mremap,
    /// Write to all, fork; the child ends at once.
    Fork,
}

impl Operation {
    const ALL: [(&'static str, Operation); 5] = [
        ("munmap", Operation::Munmap),
        ("madvise", Operation::Madvise),
        ("mprotect", Operation::Mprotect),
        ("mremap", Operation::Mremap),
        ("fork", Operation::Fork),
    ];

    fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, operation)| *operation == self).map_or("", |(name, _)| name)
    }
}

/// A workload.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Own {
    /// Threads in all.
    pub threads: u32,
    /// Processes that they are spread over.
    pub processes: u32,
    /// What each does.
    pub operation: Operation,
    /// To how many pages at once.
    pub pages: u64,
    /// How often.
    pub rounds: u64,
    /// For how long each runs in between, in nanoseconds.
    pub think: u64,
    /// How many other threads of its process touch the pages before each operation.
    pub sharing: u32,
}

impl Default for Own {
    fn default() -> Self {
        Own {
            threads: 4,
            processes: 1,
            operation: Operation::Munmap,
            pages: 1,
            rounds: 200,
            think: 100_000,
            sharing: 0,
        }
    }
}

/// What is wrong with a specification: one line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OwnError {
    what: String,
    /// On which line, from 1, where it is one line that is wrong.
    pub line: Option<usize>,
}

impl OwnError {
    fn new(what: impl Into<String>) -> OwnError {
        OwnError { what: what.into(), line: None }
    }
}

impl fmt::Display for OwnError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl std::error::Error for OwnError {}

impl Own {
    /// From `threads=16,operation=munmap`, or from lines `threads = 16` with comments, as in a TOML file.
    ///
    /// # Errors
    /// An unknown word or a value that cannot be, with what would be right.
    pub fn parse(text: &str) -> Result<Own, OwnError> {
        let mut own = Own::default();
        let mut said: Vec<&str> = Vec::new();
        for (nth, line) in text.lines().enumerate() {
            let plain = line.split('#').next().unwrap_or("");
            for pair in plain.split(',').map(str::trim).filter(|pair| !pair.is_empty()) {
                own.pair(pair, &mut said).map_err(|error| OwnError { line: Some(nth + 1), ..error })?;
            }
        }
        if own.processes > own.threads {
            let (processes, threads) = (own.processes, own.threads);
            return Err(OwnError::new(format!(
                "{processes} processes of {threads} threads; a process has one at least"
            )));
        }
        let others = own.threads / own.processes - 1;
        if own.sharing > others {
            let sharing = own.sharing;
            return Err(OwnError::new(format!(
                "sharing={sharing}: a process has {others} other threads; 0 to {others}"
            )));
        }
        if u64::from(own.threads) * own.rounds * (own.pages * u64::from(1 + own.sharing) + 4) > 20_000_000 {
            return Err(OwnError::new("more than 20 million events; fewer threads, rounds or pages"));
        }
        Ok(own)
    }

    /// Takes a word and its value in, each word once.
    fn pair<'a>(&mut self, pair: &'a str, said: &mut Vec<&'a str>) -> Result<(), OwnError> {
        let none = || OwnError::new(format!("`{}` has no value; KEY=VALUE", shown(pair)));
        let (key, value) = pair.split_once('=').ok_or_else(none)?;
        let key = key.trim();
        // Both say for how long a thread runs in between.
        let same = |other: &&str| {
            *other == key || [*other, key] == ["rate", "think"] || [*other, key] == ["think", "rate"]
        };
        if let Some(other) = said.iter().find(|other| same(other)) {
            let what = if *other == key { "there twice".to_owned() } else { format!("there beside {other}") };
            return Err(OwnError::new(format!("{key} is {what}; one of them")));
        }
        self.set(key, value.trim().trim_matches('"'))?;
        said.push(key);
        Ok(())
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), OwnError> {
        let number = |least: u64, most: u64| {
            let number = value.replace('_', "").parse().ok().filter(|number| (least..=most).contains(number));
            number.ok_or_else(|| OwnError::new(format!("{key}={}: {least} to {most}", shown(value))))
        };
        match key {
            "threads" => self.threads = number(1, 4096)? as u32,
            "processes" => self.processes = number(1, 4096)? as u32,
            "pages" => self.pages = number(1, 65_536)?,
            "rounds" => self.rounds = number(1, 1_000_000)?,
            "sharing" => self.sharing = number(0, 4095)? as u32,
            "rate" => self.think = 1_000_000_000 / number(1, 10_000_000)?,
            "think" => self.think = time(value)?,
            "operation" => {
                let found = Operation::ALL.iter().find(|(name, _)| *name == value);
                let names = Operation::ALL.map(|(name, _)| name).join(", ");
                let wrong = || OwnError::new(format!("operation={}: one of {names}", shown(value)));
                self.operation = found.ok_or_else(wrong)?.1;
            }
            _ => {
                return Err(OwnError::new(format!(
                    "unknown word `{}`; threads, processes, operation, pages, rounds, rate, think, sharing",
                    shown(key)
                )));
            }
        }
        Ok(())
    }

    /// The recording: the bytes of a trace.
    ///
    /// # Panics
    /// Never: the texts are short, and what events name is there.
    #[must_use]
    pub fn recording(&self) -> Vec<u8> {
        let mut making = Making { at: 0, body: Vec::new(), encoder: RecordingEncoder::new(1), made: 0 };
        let each = self.threads / self.processes;
        for thread in 0..self.threads {
            let first = thread / each.max(1) * each;
            // The last process has what is left over.
            let first = first.min((self.processes - 1) * each);
            let by = if thread == first { thread } else { first };
            making.push(thread, 0, What::Start { by, shares: by != thread, call: Call::default() });
            making.made += 1;
            if self.operation != Operation::Munmap {
                making.map(thread, self.at(thread, 0), self.pages);
            }
        }
        for round in 0..self.rounds {
            for thread in 0..self.threads {
                let first = (thread / each.max(1)).min(self.processes - 1) * each;
                let last =
                    if first / each.max(1) == self.processes - 1 { self.threads } else { first + each };
                self.act(&mut making, thread, first..last, round);
                making.at += self.think / u64::from(self.threads);
            }
        }
        (0..self.threads).for_each(|thread| making.push(thread, 0, What::End));
        let command = format!(
            "threads={},processes={},operation={},pages={},rounds={},think={}ns,sharing={}",
            self.threads,
            self.processes,
            self.operation.name(),
            self.pages,
            self.rounds,
            self.think,
            self.sharing
        );
        let about = About {
            program: "own",
            command: &command,
            method: "a specification, not a program",
            faults: true,
            bounded: false,
            times: true,
            shootdowns: false,
            cpus: 1,
            duration: making.encoder.last(),
            lost: 0,
            received: Shootdowns::default(),
        };
        let mut file = Vec::new();
        let header = RecordingHeader { about, sums: making.encoder.finish() };
        header.encode(&mut file).expect("short texts");
        file.extend(making.body);
        file
    }

    /// Where a thread's pages are in a round.
    fn at(&self, thread: u32, round: u64) -> u64 {
        let there = if self.operation == Operation::Mremap && round % 2 == 1 { APART / 2 } else { 0 };
        BASE + APART * u64::from(thread) + there
    }

    fn act(&self, making: &mut Making, thread: u32, family: std::ops::Range<u32>, round: u64) {
        let here = self.at(thread, round);
        let pages = Pages { start: here, count: self.pages };
        let call = Call::default();
        if self.operation == Operation::Munmap {
            making.push(
                thread,
                self.think,
                What::Map { pages, rights: RW, backing: Backing::Anonymous, populate: false, call },
            );
        }
        let think = if self.operation == Operation::Munmap { 0 } else { self.think };
        let others = family.clone().filter(|&other| other != thread).collect::<Vec<_>>();
        for page in here..here + self.pages {
            making.push(thread, if page == here { think } else { 0 }, What::Fault { page, write: true });
            let from = (round + u64::from(thread)) as usize;
            for nth in 0..self.sharing as usize {
                let other = others[(from + nth) % others.len()];
                making.push(other, 0, What::Fault { page, write: false });
            }
        }
        match self.operation {
            Operation::Munmap => making.push(thread, 0, What::Unmap { pages, call }),
            Operation::Madvise => making.push(thread, 0, What::Advise { pages, advice: 4, call }),
            Operation::Mprotect => {
                let read = Rights { write: false, ..RW };
                making.push(thread, 0, What::Protect { pages, rights: read, call });
                making.push(thread, 0, What::Protect { pages, rights: RW, call });
            }
            Operation::Mremap => {
                let to = Pages { start: self.at(thread, round + 1), count: self.pages };
                making.push(thread, 0, What::Move { from: pages, to, call });
            }
            Operation::Fork => {
                let child = making.made;
                making.made += 1;
                making.push(child, 0, What::Start { by: thread, shares: false, call });
                making.push(child, 0, What::End);
                making.push(thread, 0, What::Join(child));
            }
        }
    }
}

const RW: Rights = Rights { read: true, write: true, execute: false };

/// A recording under way.
struct Making {
    at: u64,
    body: Vec<u8>,
    encoder: RecordingEncoder,
    made: u32,
}

impl Making {
    fn push(&mut self, thread: u32, ran: u64, what: What<'_>) {
        let event = Event { at: self.at, thread, cpu: 0, ran, what };
        self.encoder.push(&event, &mut self.body).expect("what it names is there");
    }

    fn map(&mut self, thread: u32, start: u64, count: u64) {
        let (pages, backing) = (Pages { start, count }, Backing::Anonymous);
        self.push(
            thread,
            0,
            What::Map { pages, rights: RW, backing, populate: false, call: Call::default() },
        );
    }
}

/// `100us` in nanoseconds.
fn time(text: &str) -> Result<u64, OwnError> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '_').unwrap_or(text.len());
    let factor = match text[end..].trim() {
        "ns" => 1,
        "us" => 1000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        _ => 0,
    };
    let number =
        text[..end].replace('_', "").parse::<u64>().ok().and_then(|number| number.checked_mul(factor));
    number
        .filter(|&ns| factor > 0 && ns <= 10_000_000_000)
        .ok_or_else(|| OwnError::new(format!("think={}: a time up to 10 s, such as 100us", shown(text))))
}

fn shown(text: &str) -> String {
    text.chars().take(40).map(|c| if c.is_control() { '?' } else { c }).collect()
}
