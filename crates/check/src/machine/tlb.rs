//! What a CPU has cached of the tables: whatever it may keep, it keeps, until it is flushed or the schedule says otherwise.

use quietmm::Entry;
use quietmm::addr::{FrameNumber, PageNumber, PageRange};
use quietmm::event::Revoked;

pub use quietmm_hardware::walk::LARGE_PAGES;
use quietmm_hardware::walk::frame_for;

/// A cached translation of a program's page, or that there was none ([`Entry::NONE`]).
#[derive(Clone, Copy, Debug)]
pub struct Cached {
    /// The tag under which it was cached.
    pub tag: u16,
    /// The page; of a large one the first.
    pub page: u64,
    /// Whether it stands for a large page.
    pub large: bool,
    /// The entry as it was, with what the CPU set since.
    pub entry: Entry,
    /// No table led to the page.
    pub above: bool,
    /// How often its frame had been freed.
    pub life: u32,
    /// How many flushes everywhere had begun.
    pub since: u64,
    /// The top table from which it was found.
    pub root: Option<FrameNumber>,
    /// An operation that took the page away, or the right to write to it, has returned.
    pub revoked: Option<Revoked>,
    /// One that took the right to execute it away has.
    pub execution_revoked: bool,
}

impl Cached {
    /// The frame for one small page.
    pub fn frame(&self, page: u64) -> FrameNumber {
        frame_for(self.entry, self.large, PageNumber(page))
    }

    /// Whether it translates this page.
    pub fn covers(&self, page: u64) -> bool {
        self.page == if self.large { page & !(LARGE_PAGES - 1) } else { page }
    }

    /// Whether it leads to this frame.
    pub fn leads_to(&self, frame: FrameNumber) -> bool {
        let first = self.frame(self.page);
        let frames = if self.large { LARGE_PAGES as u32 } else { 1 };
        (first.0..first.0 + frames).contains(&frame.0)
    }
}

/// A cached translation of the kernel's own range, or that there was none: global.
#[derive(Clone, Copy, Debug)]
pub struct CachedKernel {
    /// The page.
    pub page: u64,
    /// The entry as it was.
    pub entry: Entry,
    /// No table led to the page.
    pub above: bool,
    /// How often its frame had been freed.
    pub life: u32,
    /// How many flushes everywhere had begun.
    pub since: u64,
}

/// Everything that one CPU has cached.
#[derive(Default)]
pub struct Tlb {
    /// The top table that is loaded.
    pub root: Option<FrameNumber>,
    /// The tag in use.
    pub tag: u16,
    /// What was last loaded under each tag.
    pub roots: [Option<FrameNumber>; 16],
    /// Of programs.
    pub user: Vec<Cached>,
    /// Of the kernel.
    pub kernel: Vec<CachedKernel>,
    /// Tables that the CPU has walked, by tag: it may walk them again without a look above.
    pub walked: Vec<Walked>,
}

/// A table that a CPU remembers the way to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Walked {
    /// The tag under which it was walked.
    pub tag: u16,
    /// Its frame.
    pub table: FrameNumber,
    /// How often that had been freed.
    pub life: u32,
    /// How many flushes everywhere had begun.
    pub since: u64,
    /// 0 for a table of pages, 3 for the top table.
    pub level: u8,
    /// A page on the way to which it lies.
    pub page: u64,
}

impl Walked {
    /// Whether it lies on the way to this page.
    pub fn leads_to(&self, page: u64) -> bool {
        let part = |page: u64| page >> (9 * (u32::from(self.level) + 1));
        part(page) == part(self.page)
    }
}

impl Tlb {
    /// What is cached for a page under the tag in use.
    pub fn find(&self, page: u64) -> Option<&Cached> {
        self.user.iter().find(|cached| cached.tag == self.tag && cached.covers(page))
    }

    /// The same, to change it.
    pub fn find_mut(&mut self, page: u64) -> Option<&mut Cached> {
        let tag = self.tag;
        self.user.iter_mut().find(|cached| cached.tag == tag && cached.covers(page))
    }

    /// What a program of the loaded space can use.
    pub fn usable(&self) -> impl Iterator<Item = &Cached> {
        self.user.iter().filter(|cached| cached.tag == self.tag && cached.entry.is_present())
    }

    /// What the kernel can use of its own range.
    pub fn kernel_usable(&self) -> impl Iterator<Item = &CachedKernel> {
        self.kernel.iter().filter(|cached| cached.entry.is_present())
    }

    /// Forgets one page under the tag in use, and all tables on the way to it, if it reaches them.
    pub fn flush_page(&mut self, page: u64, reaches_tables: bool) {
        let tag = self.tag;
        let stays = |cached: &Cached| cached.above && !reaches_tables;
        self.user.retain(|cached| cached.tag != tag || !cached.covers(page) || stays(cached));
        self.walked.retain(|walked| walked.tag != tag || !walked.leads_to(page) || !reaches_tables);
    }

    /// Forgets all of a tag.
    pub fn flush_tag(&mut self, tag: u16) {
        self.user.retain(|cached| cached.tag != tag);
        self.walked.retain(|walked| walked.tag != tag);
    }

    /// Remembers a table of a walk.
    pub fn remember(&mut self, walked: Walked) {
        let same = |known: &Walked| {
            known.tag == walked.tag && known.table == walked.table && known.life == walked.life
        };
        if !self.walked.iter().any(same) {
            self.walked.push(walked);
        }
    }

    /// Whether the CPU can walk this table: it is loaded, or remembered under the tag in use.
    pub fn can_walk(&self, table: FrameNumber) -> bool {
        self.root == Some(table)
            || self.walked.iter().any(|walked| walked.tag == self.tag && walked.table == table)
    }

    /// An operation that took this away has returned.
    pub fn revoke(&mut self, tags: impl Fn(u16) -> bool, range: PageRange, what: Revoked) {
        let inside = |page: u64| range.contains(PageNumber(page));
        for cached in &mut self.user {
            let hit = if cached.large {
                cached.page < range.end().0 && range.start.0 < cached.page + LARGE_PAGES
            } else {
                inside(cached.page)
            };
            match what {
                _ if !hit || !tags(cached.tag) => {}
                Revoked::Execution => cached.execution_revoked = true,
                what if cached.revoked != Some(Revoked::All) => cached.revoked = Some(what),
                _ => {}
            }
        }
    }
}
