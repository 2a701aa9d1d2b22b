//! What is in a recording, short enough to be pasted in a mail.

use std::collections::BTreeMap;
use std::fmt;

use quietmm_workloads::trace::Recording;
use quietmm_workloads::trace::recording::{Spaces, Victim, What};

use crate::syscall::flushes;

/// Calls of one kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Calls {
    /// How many.
    pub count: u64,
    /// Pages in all.
    pub pages: u64,
    /// Nanoseconds in all.
    pub took: u64,
    /// Those of which it is known how long they took: not what was mapped when the recording began, nor what a capture has no times of.
    pub timed: u64,
    /// Half of these took no longer.
    pub median: u64,
}

/// What is in a recording.
#[derive(Clone, PartialEq, Debug)]
pub struct Summary {
    /// What was recorded.
    pub program: String,
    /// Its command line.
    pub command: String,
    /// How.
    pub method: String,
    /// A part of its run.
    pub bounded: bool,
    /// CPUs of the machine.
    pub cpus: u16,
    /// Threads, most of them alive at once, and processes.
    pub threads: u32,
    /// Most that were there at the same time.
    pub most_alive: u32,
    /// Spaces: processes, and programs that they went on with.
    pub spaces: u32,
    /// Events.
    pub events: u64,
    /// Nanoseconds.
    pub duration: u64,
    /// Nanoseconds on a CPU, all threads.
    pub ran: u64,
    /// Events that are missing.
    pub lost: u64,
    /// Page faults, if recorded.
    pub faults: Option<u64>,
    /// Of these, writes.
    pub write_faults: u64,
    /// Calls by name.
    pub calls: BTreeMap<&'static str, Calls>,
    /// Calls that change entries of a space and ended while another such call of the same space was under way. Linux cannot know then which of
    /// the other's entries are flushed, and flushes all of the space, even if the call found nothing (`mm_tlb_flush_nested`).
    pub overlapping: u64,
    /// Flush requests received for the program, if recorded.
    pub received: Option<u64>,
    /// Flush requests that the whole machine's CPUs received.
    pub machine: Option<u64>,
    /// Who was interrupted: recorded threads, idle CPUs, CPUs that had left the space before, others.
    pub victims: [u64; 4],
    /// Size of the file.
    pub file_bytes: u64,
}

impl Summary {
    /// Of a recording in a file of so many bytes.
    #[must_use]
    pub fn of(recording: &Recording<'_>, file_bytes: u64) -> Summary {
        let (about, sums) = (recording.header().about, recording.header().sums);
        let mut summary = Summary {
            program: about.program.to_owned(),
            command: about.command.to_owned(),
            method: about.method.to_owned(),
            bounded: about.bounded,
            cpus: about.cpus,
            threads: sums.threads,
            most_alive: 0,
            spaces: 0,
            events: sums.events,
            duration: about.duration,
            ran: 0,
            lost: about.lost,
            faults: about.faults.then_some(0),
            write_faults: 0,
            calls: BTreeMap::new(),
            overlapping: overlapping(recording),
            received: about.received.program,
            machine: about.received.machine,
            victims: [0; 4],
            file_bytes,
        };
        let mut alive = 0u32;
        let mut times: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
        for event in recording.events() {
            summary.ran = summary.ran.saturating_add(event.ran);
            let (name, pages, call) = match event.what {
                What::Start { by, shares, call } => {
                    alive += 1;
                    summary.most_alive = summary.most_alive.max(alive);
                    summary.spaces += u32::from(!shares);
                    if by == event.thread {
                        continue;
                    }
                    (if shares { "clone" } else { "fork" }, 0, call)
                }
                What::End => {
                    alive = alive.saturating_sub(1);
                    continue;
                }
                What::Exec(_) => {
                    summary.spaces += 1;
                    continue;
                }
                What::Map { pages, call, .. } => ("mmap", pages.count, call),
                What::Unmap { pages, call } => ("munmap", pages.count, call),
                What::Protect { pages, call, .. } => ("mprotect", pages.count, call),
                What::Advise { pages, call, .. } => ("madvise", pages.count, call),
                What::Move { from, call, .. } => ("mremap", from.count, call),
                What::Fault { write, .. } => {
                    summary.faults = Some(summary.faults.unwrap_or(0) + 1);
                    summary.write_faults += u64::from(write);
                    continue;
                }
                What::Shootdown { victim, .. } => {
                    summary.victims[match victim {
                        Victim::Thread(_) => 0,
                        Victim::Idle => 1,
                        Victim::Left => 2,
                        Victim::Other => 3,
                    }] += 1;
                    continue;
                }
                _ => continue,
            };
            let calls = summary.calls.entry(name).or_default();
            calls.count += 1;
            calls.pages = calls.pages.saturating_add(pages);
            calls.took = calls.took.saturating_add(call.took);
            if call.took > 0 {
                calls.timed += 1;
                times.entry(name).or_default().push(call.took);
            }
        }
        for (name, calls) in &mut summary.calls {
            let Some(times) = times.get_mut(name).filter(|times| !times.is_empty()) else { continue };
            let middle = (times.len() - 1) / 2;
            calls.median = *times.select_nth_unstable(middle).1;
        }
        summary
    }
}

/// How many calls ended while another of their space was under way. A recording has calls in the order of their ends, so those that were under way
/// when one ended are among those behind it.
fn overlapping(recording: &Recording<'_>) -> u64 {
    let (mut calls, mut spaces) = (Vec::new(), Spaces::default());
    for event in recording.events() {
        let space = spaces.see(&event);
        let took = match event.what {
            What::Unmap { call, .. } | What::Protect { call, .. } => call.took,
            What::Advise { advice, call, .. } if flushes(advice) => call.took,
            _ => continue,
        };
        calls.push((space, event.at.saturating_sub(took), event.at));
    }
    // The earliest beginning of those behind, of each space.
    let mut earliest: BTreeMap<u32, u64> = BTreeMap::new();
    let mut count = 0;
    for &(space, began, ended) in calls.iter().rev() {
        let others = earliest.entry(space).or_insert(u64::MAX);
        count += u64::from(*others < ended);
        *others = began.min(*others);
    }
    count
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let part = if self.bounded { " (a part of its run)" } else { "" };
        let seconds = |ns: u64| ns as f64 / 1e9;
        writeln!(f, "program      {}{part}", plain(&self.program))?;
        writeln!(f, "command      {}", plain(&self.command))?;
        writeln!(f, "recorded by  {}, on {}", plain(&self.method), several(self.cpus.into(), "CPU"))?;
        writeln!(
            f,
            "time         {:.3} s, {:.3} s on CPUs outside of what follows",
            seconds(self.duration),
            seconds(self.ran)
        )?;
        writeln!(
            f,
            "threads      {}, at most {} at once; {}",
            self.threads,
            self.most_alive,
            several(self.spaces.into(), "space")
        )?;
        writeln!(
            f,
            "events       {}, {} lost; the file has {} bytes",
            self.events, self.lost, self.file_bytes
        )?;
        match self.faults {
            Some(faults) => writeln!(f, "page faults  {faults}, {} of them writes", self.write_faults)?,
            None => writeln!(f, "page faults  not recorded")?,
        }
        for (name, calls) in &self.calls {
            let mean = calls.took as f64 / calls.timed.max(1) as f64 / 1e3;
            let median = calls.median as f64 / 1e3;
            let (count, pages) = (several(calls.count, "call"), several(calls.pages, "page"));
            let took = match calls.timed {
                0 => String::new(),
                _ => format!(", {mean:.1} us each, half of them at most {median:.1} us"),
            };
            writeln!(f, "{name:<12} {count}, {pages}{took}")?;
        }
        if self.overlapping > 0 {
            writeln!(
                f,
                "overlapping  {} that may flush ended while another of the same space was under way: Linux flushes all for each",
                several(self.overlapping, "call")
            )?;
        }
        match self.received {
            Some(received) => writeln!(
                f,
                "shootdowns   {} received for the program: by threads of it {}, idle CPUs {}, CPUs that had left it {}, others {}",
                several(received, "flush request"),
                self.victims[0],
                self.victims[1],
                self.victims[2],
                self.victims[3]
            )?,
            None => writeln!(f, "shootdowns   not recorded")?,
        }
        match self.machine {
            Some(machine) => {
                writeln!(f, "             {machine} received by all CPUs meanwhile, whoever they were for")
            }
            None => Ok(()),
        }
    }
}

/// So many of what is called so, of which one has no `s` at its end.
pub fn several(count: u64, name: &str) -> String {
    format!("{count} {name}{}", if count == 1 { "" } else { "s" })
}

/// A text from a file, without what a terminal would act on.
fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}
