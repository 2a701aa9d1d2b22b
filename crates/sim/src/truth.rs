//! What is true of every frame, whatever the core believes: the account of stale accesses.
//!
//! A use through a cached entry is *stale* if the frame was freed after the entry was filled, or if an
//! operation that took the mapping away has returned. A write to a frame whose content is being written out is
//! stale however it came there. A use of an entry that was cleared and not flushed yet is
//! legal, and counted as a *window* access, unless the address leads to another frame by now (INV-12).
//!
//! A kernel address has no space whose operations promise anything. A use of one is stale if the frame was freed, or if the
//! table leads to another frame by now: the address was unmapped, became free and was mapped again before this CPU was
//! flushed (INV-3). One of an entry that was cleared and leads nowhere yet is a window access.
//!
//! A page table that is freed while a CPU has it loaded, or remembers it and might walk on from it, is stale
//! at that moment (INV-9): hardware walks when it likes.
//!
//! A write that is neither written out nor in memory any more when its frame is freed is *lost*.
//!
//! What programs use is known too, where the core knows accessed bits: a page that is reclaimed as idle although it was used
//! since it was looked at before is *wrongly reclaimed*. It costs time and loses nothing (INV-10).
//!
//! The account has its own clock, which counts frees and cleared entries: whatever a CPU caches is stamped
//! with it, and what happened to a frame later makes it old.

use std::collections::VecDeque;

use quietmm::addr::{FrameNumber, PageNumber};
use quietmm::{Event, Kind, Rule};

use crate::story::{Step, StepKind, Story, us};
use crate::tlb::Translation;
use crate::zeroed::{Zero, Zeroed};

/// Stories that a run keeps; all stale accesses are counted.
const STORIES: usize = 3;

/// One frame: a cache line of the host.
#[derive(Clone, Copy)]
#[repr(C)]
struct Frame {
    /// When it was freed last, and when an entry to it was cleared last, by the account's clock; 0 is never.
    freed: u64,
    cut: u64,
    /// In the allocator's hands.
    free: bool,
    /// Being written out.
    io: bool,
    /// What it is.
    is: Is,
    /// What is known of its use: `USED`, `OVERLOOKED`.
    seen: u8,
    /// Who wrote to it last since it was written out, plus one.
    written_by: u16,
    unmapped_by: u16,
    freed_by: u16,
    io_by: u16,
    space: u32,
    unmapped_at: u64,
    freed_at: u64,
    io_at: u64,
    page: u64,
}

const _: () = assert!(size_of::<Frame>() == 64);

/// What a frame is, as far as the account wants to know.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Is {
    Other = 0,
    File,
    Table,
}

/// Used since it was looked at.
const USED: u8 = 1;
/// The last look found it idle, though it had been used since the one before.
const OVERLOOKED: u8 = 2;

// SAFETY: numbers, `false`, and `Is::Other`.
unsafe impl Zero for Frame {}

/// The account.
pub struct Truth {
    frames: Zeroed<Frame>,
    /// For each frame in how many places CPUs have it as a table: loaded, or remembered.
    walkable: Zeroed<u32>,
    clock: u64,
    /// Uses of what was no longer there.
    pub stale: u64,
    /// Uses inside a legal deferral window.
    pub window: u64,
    /// Writes to files that never reached the disk.
    pub lost: u64,
    /// What a workload read, checked and found to be something else.
    pub wrong: u64,
    /// Pages that were reclaimed as idle and were not.
    pub wrong_reclaims: u64,
    /// The first stale accesses, told.
    pub stories: Vec<Story>,
    /// The last steps that were left out, as long as stories are told.
    skipped: VecDeque<Skip>,
}

/// A step that was left out: rule, CPU, time.
type Skip = (Rule, u16, u64);

/// So many of them are kept: some milliseconds of many CPUs.
const SKIPS: usize = 4096;

/// A use through a cached entry.
pub struct Use {
    /// Who.
    pub cpu: u16,
    /// When, in picoseconds.
    pub now: u64,
    /// The page of the address.
    pub page: PageNumber,
    /// Whether it writes.
    pub write: bool,
}

impl Use {
    fn verb(&self) -> &'static str {
        if self.write { "wrote to" } else { "read" }
    }

    fn step(&self, said: String) -> Step {
        Step { at: self.now, cpu: self.cpu, kind: StepKind::Use { write: self.write }, said }
    }
}

impl Truth {
    /// Nothing has happened to `frames` frames.
    ///
    /// # Errors
    /// The host has no address space for so many.
    pub fn new(frames: usize) -> std::io::Result<Truth> {
        Ok(Truth {
            frames: Zeroed::new(frames)?,
            walkable: Zeroed::new(frames)?,
            clock: 0,
            stale: 0,
            window: 0,
            lost: 0,
            wrong: 0,
            wrong_reclaims: 0,
            stories: Vec::new(),
            skipped: VecDeque::new(),
        })
    }

    /// The account's clock: what a CPU caches now is stamped with it.
    #[inline]
    pub fn now(&self) -> u64 {
        self.clock
    }

    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    /// Notes what the core did on `cpu` at `now`.
    #[inline]
    pub fn observe(&mut self, event: &Event, cpu: u16, now: u64) {
        match *event {
            Event::Unmapped { space, page, frame, pages, .. } => {
                self.cleared(frame, pages, (space.index(), page), cpu, now);
            }
            Event::Taken { frame, order, kind } => {
                for f in &mut self.frames[frame.0 as usize..][..1 << order] {
                    (f.free, f.written_by, f.seen) = (false, 0, 0);
                    f.is = match kind {
                        Kind::File => Is::File,
                        Kind::Table => Is::Table,
                        _ => Is::Other,
                    };
                }
            }
            Event::Freed { frame, order } => {
                let freed = self.tick();
                for n in frame.0..frame.0 + (1 << order) {
                    let f = &mut self.frames[n as usize];
                    (f.free, f.freed, f.freed_by, f.freed_at) = (true, freed, cpu, now);
                    let f = *f;
                    if f.is == Is::File && f.written_by > 0 {
                        self.lose(FrameNumber(n), &f);
                    }
                }
            }
            Event::Looked { frame, used } => {
                let f = &mut self.frames[frame.0 as usize];
                f.seen = if !used && f.seen & USED != 0 { OVERLOOKED } else { 0 };
            }
            Event::Evicted { frame } => {
                let overlooked = self.frames[frame.0 as usize].seen & OVERLOOKED != 0;
                self.wrong_reclaims += u64::from(overlooked);
            }
            // What was written, and what is known of its use, is the new frame's.
            Event::Migrated { from, to } => {
                let old = &mut self.frames[from.0 as usize];
                let (written_by, seen) = (old.written_by, old.seen);
                (old.written_by, old.seen) = (0, 0);
                let new = &mut self.frames[to.0 as usize];
                (new.written_by, new.seen) = (written_by, seen);
            }
            Event::WriteBegins { frame } => {
                let f = &mut self.frames[frame.0 as usize];
                (f.io, f.io_by, f.io_at, f.written_by) = (true, cpu, now, 0);
            }
            Event::WriteEnds { frame, .. } => self.frames[frame.0 as usize].io = false,
            _ => {}
        }
    }

    /// The entries that led to a run of frames were cleared: one small page's, or those of a part of a large page.
    pub fn cleared(
        &mut self,
        frame: FrameNumber,
        run: u32,
        (space, page): (u32, PageNumber),
        cpu: u16,
        now: u64,
    ) {
        let cut = self.tick();
        for i in 0..run {
            let f = &mut self.frames[(frame.0 + i) as usize];
            f.cut = cut;
            (f.unmapped_by, f.unmapped_at, f.space, f.page) = (cpu, now, space, page.0 + u64::from(i));
        }
    }

    /// A CPU wrote through an entry that was sound when it was filled.
    #[inline]
    pub fn wrote(&mut self, n: FrameNumber, cpu: u16) {
        if let Some(f) = self.frames.get_mut(n.0 as usize) {
            f.written_by = cpu + 1;
        }
    }

    /// A workload found a wrong content.
    pub fn found_wrong(&mut self, story: &str) {
        self.wrong += 1;
        if self.stories.len() < STORIES {
            self.stories.push(format!("Wrong content: {story}.").into());
        }
    }

    fn lose(&mut self, n: FrameNumber, f: &Frame) {
        self.lost += 1;
        if self.stories.len() < STORIES {
            let by = self.rests();
            let said = format!(
                "A write of CPU {} to {n:?} (page {:#x} of space {}) was lost: CPU {} freed the frame at {}, and it was \
                 not written out since.{by}",
                f.written_by - 1,
                f.page << 12,
                f.space,
                f.freed_by,
                us(f.freed_at)
            );
            let lost = format!("freed {n:?}, and with it what CPU {} had written", f.written_by - 1);
            self.told(said, vec![Step::new(f.freed_at, f.freed_by, lost)], (f.freed_at, f.freed_by), None);
        }
    }

    fn rests(&self) -> String {
        self.skipped
            .back()
            .map_or(String::new(), |(rule, ..)| format!(" {} rests on: {rule}.", rule.invariant()))
    }

    /// A step is left out.
    pub fn skip(&mut self, rule: Rule, cpu: u16, now: u64) {
        if self.stories.len() < STORIES {
            if self.skipped.len() == SKIPS {
                self.skipped.pop_front();
            }
            self.skipped.push_back((rule, cpu, now));
        }
    }

    /// The step that was left out before a CPU did what was wrong then: its own last one, or anybody's.
    fn cause(&self, (until, cpu): (u64, u16)) -> Option<Skip> {
        let before = || self.skipped.iter().rev().filter(|(.., at)| *at <= until);
        let own = before().find(|(_, who, _)| *who == cpu);
        own.or_else(|| before().next()).or(self.skipped.back()).copied()
    }

    /// Judges a use. `elsewhere` says whether the address leads to another frame now.
    #[inline]
    pub fn judge(&mut self, entry: &Translation, by: &Use, elsewhere: impl FnOnce() -> bool) {
        let Some(frame) = self.frames.get_mut(entry.frame.0 as usize) else { return };
        frame.seen |= USED;
        let frame = *frame;
        let torn = frame.io && by.write;
        // What the tables say, for all that the account knows.
        let valid = frame.freed.max(frame.cut) <= entry.filled && !entry.revoked;
        if valid && !torn && !frame.free {
            return;
        }
        let what = if frame.free && valid {
            "though the frame is free"
        } else if frame.freed > entry.filled {
            "after the frame was freed"
        } else if entry.revoked {
            "after the operation that unmapped it had returned"
        } else if torn {
            "while its content was being written out"
        } else if elsewhere() {
            "though the address leads to another frame by now"
        } else {
            self.window += 1;
            return;
        };
        self.stale += 1;
        if self.stories.len() < STORIES {
            if valid {
                self.tell_valid(entry, by, &frame, what);
            } else {
                self.tell_user(entry, by, &frame, what);
            }
        }
    }

    /// Judges a use of a kernel address. `now` gives the frame that the address leads to now, if it does.
    pub fn judge_kernel(&mut self, entry: &Translation, by: &Use, now: impl FnOnce() -> Option<FrameNumber>) {
        let Some(&frame) = self.frames.get(entry.frame.0 as usize) else { return };
        let what = if frame.freed > entry.filled {
            "after the frame was freed".to_owned()
        } else if frame.free {
            "though the frame is free".to_owned()
        } else {
            match now() {
                Some(now) if now == entry.frame => return,
                Some(now) => format!("though the address leads to {now:?} by now"),
                None => {
                    self.window += 1;
                    return;
                }
            }
        };
        self.stale += 1;
        if self.stories.len() < STORIES {
            self.tell(entry, by, &frame, Vec::new(), &what);
        }
    }

    /// Keeps a story with what led to it, the step that was left out among it.
    /// `wrong` is when what should not have been done was, and by which CPU.
    fn told(&mut self, said: String, mut steps: Vec<Step>, wrong: (u64, u16), below: Option<String>) {
        let cause = self.cause(wrong);
        if let Some((rule, cpu, at)) = cause {
            let said = format!("skipped a step: {rule}, \"{}\" (latest)", rule.about());
            // In front of what comes at the same time.
            steps.insert(0, Step { at, cpu, kind: StepKind::Skip, said });
        }
        steps.sort_by_key(|step| step.at);
        self.stories.push(Story { said, steps, broken: cause.map(|(rule, ..)| rule), below });
    }

    fn tell_user(&mut self, entry: &Translation, by: &Use, f: &Frame, what: &str) {
        let cleared = format!("cleared the entry of {:#x} in space {}", f.page << 12, f.space);
        self.tell(entry, by, f, vec![Step::new(f.unmapped_at, f.unmapped_by, cleared)], what);
    }

    /// What happened, and before and after.
    fn tell(&mut self, entry: &Translation, by: &Use, f: &Frame, mut steps: Vec<Step>, what: &str) {
        let verb = by.verb();
        let said = format!(
            "CPU {} {verb} {:#x} ({:?}) through a stale TLB entry, {what}.",
            by.cpu,
            by.page.addr().0,
            entry.frame
        );
        if f.freed > entry.filled {
            let freed = format!("gave {:?} back to the allocator", entry.frame);
            steps.push(Step::new(f.freed_at, f.freed_by, freed));
        }
        steps.push(by.step(format!("{verb} it all the same")));
        let below = self.skipped.back().map_or(String::new(), |(rule, ..)| {
            format!("\n  {} rests on that step: CPU {} had to be flushed first.", rule.invariant(), by.cpu)
        });
        let wrong = if f.freed > entry.filled { (f.freed_at, f.freed_by) } else { (by.now, f.unmapped_by) };
        self.told(said, steps, wrong, Some(below));
    }

    /// A use through an entry that the tables bear out.
    fn tell_valid(&mut self, entry: &Translation, by: &Use, f: &Frame, what: &str) {
        let (since, who) = if f.free { (f.freed_at, f.freed_by) } else { (f.io_at, f.io_by) };
        let (verb, at) = (by.verb(), by.page.addr().0);
        let said = format!(
            "CPU {} {verb} {at:#x} ({:?}) through a valid mapping at {}, {what} since {} by CPU {who} ({}).{}",
            by.cpu,
            entry.frame,
            us(by.now),
            us(since),
            if f.free { "INV-1" } else { "INV-2" },
            self.rests()
        );
        let does = if f.free { "freed" } else { "began to write out" };
        let begun = Step::new(since, who, format!("{does} {:?}", entry.frame));
        let used = by.step(format!("{verb} {at:#x} through a valid mapping"));
        self.told(said, vec![begun, used], (since, who), None);
    }

    /// A CPU has a table in one more place: loaded, or remembered.
    pub fn walkable(&mut self, table: FrameNumber) {
        if let Some(places) = self.walkable.get_mut(table.0 as usize) {
            *places += 1;
        }
    }

    /// And in one place less.
    pub fn not_walkable(&mut self, table: FrameNumber) {
        if let Some(places) = self.walkable.get_mut(table.0 as usize) {
            *places -= 1;
        }
    }

    /// Whether any CPU has a frame as a table, perhaps under a tag that is not in use.
    #[inline]
    pub fn is_walkable(&self, n: FrameNumber) -> bool {
        self.frames[n.0 as usize].is == Is::Table && self.walkable[n.0 as usize] > 0
    }

    /// `cpu` freed a table at `now` that `walker` can still walk.
    pub fn freed_under(&mut self, table: FrameNumber, cpu: u16, now: u64, walker: u16, how: &str) {
        self.stale += 1;
        if self.stories.len() < STORIES {
            let by = self.rests();
            let said = format!(
                "CPU {cpu} freed {table:?} at {}, a page table that CPU {walker} {how}: its hardware may walk it at any \
                 time (INV-9).{by}",
                us(now)
            );
            let freed = Step::new(now, cpu, format!("freed {table:?}, a page table"));
            let walks = format!("{how} it, and may walk it at any time");
            let kind = StepKind::Use { write: false };
            let walks = Step { at: now, cpu: walker, kind, said: walks };
            self.told(said, vec![freed, walks], (now, cpu), None);
        }
    }

    /// Judges a walk that went on from a table that was remembered since `since`.
    #[inline]
    pub fn judge_walk(&mut self, table: FrameNumber, since: u64, by: &Use) {
        let Some(&f) = self.frames.get(table.0 as usize) else { return };
        if f.freed <= since {
            return;
        }
        self.stale += 1;
        if self.stories.len() < STORIES {
            let (verb, at) = (by.verb(), by.page.addr().0);
            let said = format!(
                "CPU {} {verb} {at:#x} at {} by way of {table:?}, a page table that it remembered and CPU {} had freed at {} \
                 (INV-9).{}",
                by.cpu,
                us(by.now),
                f.freed_by,
                us(f.freed_at),
                self.rests()
            );
            let freed = Step::new(f.freed_at, f.freed_by, format!("freed {table:?}, a page table"));
            let walked = by.step(format!("{verb} {at:#x} by way of it"));
            self.told(said, vec![freed, walked], (f.freed_at, f.freed_by), None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_story_names_the_step_that_was_left_out_before_it_by_whoever_did_what_was_wrong() {
        let rule = Rule::FlushBeforeFree;
        let mut truth = Truth::new(1).unwrap();
        assert_eq!(truth.cause((200, 2)), None);
        for (cpu, at) in [(2, 100), (1, 150), (2, 300), (0, 400)] {
            truth.skip(rule, cpu, at);
        }
        assert_eq!(truth.cause((200, 2)), Some((rule, 2, 100)), "its own last one before");
        assert_eq!(truth.cause((200, 3)), Some((rule, 1, 150)), "or anybody's");
        assert_eq!(truth.cause((50, 2)), Some((rule, 0, 400)), "or the last one");
    }
}
