//! What is true of every frame, whatever the core believes: the account of stale accesses.
//!
//! A use through a cached entry is *stale* if the frame was freed after the entry was filled, if an
//! operation that took the mapping away has returned, or if it writes while the content is being written out
//! through an entry that was cleared before that began. A use of an entry that was cleared and not flushed yet is
//! legal, and counted as a *window* access, unless the address leads to another frame by now (INV-12).
//!
//! A write that is neither written out nor in memory any more when its frame is freed is *lost*.

use quietmm::addr::{FrameNumber, PageNumber};
use quietmm::{Event, Kind, Rule, SpaceId};

use crate::tlb::{Cached, Filled};

/// Stories that a run keeps; all stale accesses are counted.
const STORIES: usize = 3;

/// One frame.
#[derive(Clone, Copy)]
#[repr(C)]
struct Frame {
    filled: Filled,
    /// Being written out, and how often an entry to it had been cleared when that began.
    io: bool,
    io_cut: u32,
    /// A page of a file, and who wrote to it last since it was written out, plus one.
    file: bool,
    written_by: u16,
    unmapped_by: u16,
    freed_by: u16,
    space: u32,
    unmapped_at: u64,
    freed_at: u64,
    page: u64,
}

/// The account.
pub struct Truth {
    frames: Vec<Frame>,
    /// Uses of what was no longer there.
    pub stale: u64,
    /// Uses inside a legal deferral window.
    pub window: u64,
    /// Writes to files that never reached the disk.
    pub lost: u64,
    /// The first stale accesses, told.
    pub stories: Vec<String>,
    /// The last step that was left out: rule, CPU, time.
    pub skipped: Option<(Rule, u16, u64)>,
}

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

fn us(ps: u64) -> String {
    format!("{}.{:03} us", ps / 1_000_000, ps / 1000 % 1000)
}

impl Truth {
    /// Nothing has happened to `frames` frames.
    pub fn new(frames: usize) -> Truth {
        let fresh = Frame {
            filled: Filled::default(),
            io: false,
            io_cut: 0,
            file: false,
            written_by: 0,
            unmapped_by: 0,
            freed_by: 0,
            space: 0,
            unmapped_at: 0,
            freed_at: 0,
            page: 0,
        };
        Truth {
            frames: vec![fresh; frames],
            stale: 0,
            window: 0,
            lost: 0,
            stories: Vec::new(),
            skipped: None,
        }
    }

    /// What is true of a frame now.
    #[inline]
    pub fn filled(&self, n: FrameNumber) -> Filled {
        self.frames.get(n.0 as usize).map_or(Filled::default(), |f| f.filled)
    }

    /// Notes what the core did on `cpu` at `now`.
    #[inline]
    pub fn observe(&mut self, event: &Event, cpu: u16, now: u64) {
        match *event {
            Event::Unmapped { space: SpaceId(space), page, frame, .. } => {
                let f = &mut self.frames[frame.0 as usize];
                f.filled.cut = f.filled.cut.wrapping_add(1);
                (f.unmapped_by, f.unmapped_at, f.space, f.page) = (cpu, now, space, page.0);
            }
            Event::Taken { frame, order, kind } => {
                for f in &mut self.frames[frame.0 as usize..][..1 << order] {
                    (f.file, f.written_by) = (kind == Kind::File, 0);
                }
            }
            Event::Freed { frame, order } => {
                for f in &mut self.frames[frame.0 as usize..][..1 << order] {
                    f.filled.life = f.filled.life.wrapping_add(1);
                    (f.freed_by, f.freed_at) = (cpu, now);
                }
                let f = self.frames[frame.0 as usize];
                if f.file && f.written_by > 0 {
                    self.lose(frame, &f);
                }
            }
            Event::WriteBegins { frame } => {
                let f = &mut self.frames[frame.0 as usize];
                (f.io, f.io_cut, f.written_by) = (true, f.filled.cut, 0);
            }
            Event::WriteEnds { frame, .. } => self.frames[frame.0 as usize].io = false,
            _ => {}
        }
    }

    /// A CPU wrote through an entry that was sound when it was filled.
    #[inline]
    pub fn wrote(&mut self, n: FrameNumber, cpu: u16) {
        if let Some(f) = self.frames.get_mut(n.0 as usize) {
            f.written_by = cpu + 1;
        }
    }

    fn lose(&mut self, n: FrameNumber, f: &Frame) {
        self.lost += 1;
        if self.stories.len() < STORIES {
            let by = self
                .skipped
                .map_or(String::new(), |(rule, ..)| format!(" {} rests on: {rule}.", rule.invariant()));
            self.stories.push(format!(
                "A write of CPU {} to {n:?} (page {:#x} of space {}) was lost: CPU {} freed the frame at {}, and it was \
                 not written out since.{by}",
                f.written_by - 1,
                f.page << 12,
                f.space,
                f.freed_by,
                us(f.freed_at)
            ));
        }
    }

    /// Judges a use. `elsewhere` says whether the address leads to another frame now.
    #[inline]
    pub fn judge(&mut self, entry: &Cached, by: &Use, elsewhere: impl FnOnce() -> bool) {
        let now = self.filled(entry.frame);
        if now == entry.filled && !entry.revoked {
            return;
        }
        let frame = self.frames[entry.frame.0 as usize];
        let what = if now.life != entry.filled.life {
            "after the frame was freed"
        } else if entry.revoked {
            "after the operation that unmapped it had returned"
        } else if frame.io && by.write && (entry.filled.cut.wrapping_sub(frame.io_cut) as i32) < 0 {
            "while its content was being written out"
        } else if elsewhere() {
            "though the address leads to another frame by now"
        } else {
            self.window += 1;
            return;
        };
        self.stale += 1;
        if self.stories.len() < STORIES {
            let story = self.tell(entry, by, &frame, what);
            self.stories.push(story);
        }
    }

    fn tell(&self, entry: &Cached, by: &Use, f: &Frame, what: &str) -> String {
        let verb = if by.write { "wrote to" } else { "read" };
        let mut lines = vec![format!(
            "CPU {} {verb} {:#x} ({:?}) through a stale TLB entry, {what}.",
            by.cpu,
            by.page.addr().0,
            entry.frame
        )];
        let mut when = vec![(
            f.unmapped_at,
            format!("CPU {} cleared the entry of {:#x} in space {}", f.unmapped_by, f.page << 12, f.space),
        )];
        if f.filled.life != entry.filled.life {
            when.push((
                f.freed_at,
                format!("CPU {} gave {:?} back to the allocator", f.freed_by, entry.frame),
            ));
        }
        when.push((by.now, format!("CPU {} {verb} it all the same", by.cpu)));
        if let Some((rule, cpu, at)) = self.skipped {
            when.push((at, format!("CPU {cpu} skipped a step: {rule}, \"{}\" (latest)", rule.about())));
        }
        when.sort_by_key(|w| w.0);
        lines.extend(when.into_iter().map(|(at, text)| format!("  {:>16}  {text}", us(at))));
        if let Some((rule, ..)) = self.skipped {
            lines.push(format!(
                "  {} rests on that step: CPU {} had to be flushed first.",
                rule.invariant(),
                by.cpu
            ));
        }
        lines.join("\n")
    }
}
