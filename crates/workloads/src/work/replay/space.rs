//! What is mapped in a recorded space at each moment, so that what is replayed is always possible: recordings begin late,
//! lose events, and order those of different CPUs by clocks that agree only roughly.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::ops::Range;

use quietmm::{Backing, PageRange, Prot};

use super::order::Done;
use crate::trace::recording::Pages;

/// The pages that programs can have.
pub const MAPPABLE: Range<u64> =
    PageRange::MAPPABLE.start.0..PageRange::MAPPABLE.start.0 + PageRange::MAPPABLE.pages;
/// Pages that Linux maps together where one of a file is read, as far as it has them in memory (`fault_around_bytes`), and those of a page table.
const AROUND: u64 = 16;
const TABLE: u64 = 512;
/// Pages that are mapped together where a fault shows that something must be there: a stack that grows, for one.
const GUESS: u64 = 16;

/// What a piece of a space shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mapped {
    pub backing: Shows,
    pub prot: Prot,
}

/// As `quietmm::Backing`, of files by their numbers in the recording.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shows {
    Anonymous,
    File { file: u32, offset: u64, shared: bool },
}

impl Shows {
    /// What is shown so many pages further on.
    pub fn further(self, pages: u64) -> Shows {
        match self {
            Shows::File { file, offset, shared } => Shows::File { file, offset: offset + pages, shared },
            Shows::Anonymous => self,
        }
    }

    /// For the core.
    pub fn backing(self, files: &[quietmm::FileId]) -> Backing {
        match self {
            Shows::Anonymous => Backing::Anonymous,
            Shows::File { file, offset, shared: true } => {
                Backing::File { file: files[file as usize], offset }
            }
            Shows::File { file, offset, shared: false } => {
                Backing::Private { file: files[file as usize], offset }
            }
        }
    }
}

/// What Linux shows in a page until it is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shown {
    /// The page of zeros that all share.
    Zeros,
    /// A page of a file, which came with another one.
    File,
}

/// A run of pages with one history. Nothing is mapped there if `mapped` is none; its history still counts.
#[derive(Clone, Copy, Debug)]
struct Piece {
    end: u64,
    mapped: Option<Mapped>,
    by: Done,
}

/// A space.
#[derive(Clone, Default)]
pub struct Space {
    pieces: BTreeMap<u64, Piece>,
    /// Who touched a page last since it was last changed.
    touched: BTreeMap<u64, Done>,
    /// Anonymous pages that were read and never written: Linux shows one page of zeros there, which all share.
    zeros: BTreeSet<u64>,
    /// Other pages that were touched since they were mapped or dropped, so that something is there. A copy begins with none.
    filled: BTreeSet<u64>,
    /// Those of them that were said to be cold and not touched since, as far as that is known: a touch without a fault is not.
    cold: BTreeSet<u64>,
    /// Pages of files that came with others that were read, copied where they are written: Linux shows the file's own until then.
    around: BTreeSet<u64>,
    /// The latest of each thread.
    latest: BTreeMap<u32, u32>,
    /// All that is done here comes after this: the fork that made it, or that copied it.
    since: Option<Done>,
    /// Threads that live in it.
    pub users: u32,
}

impl Space {
    /// A space in which everything comes after `since`.
    pub fn new(since: Option<Done>) -> Space {
        Space { since, ..Space::default() }
    }

    /// The copy that a fork makes of this one, for which everything so far must be done.
    pub fn forked(&mut self, by: Done) -> Space {
        self.since = Some(by);
        self.touched.clear();
        let by = |piece: &Piece| Piece { by, ..*piece };
        let pieces = self.pieces.iter().filter(|(_, piece)| piece.mapped.is_some());
        let (pieces, zeros) = (pieces.map(|(&at, piece)| (at, by(piece))).collect(), self.zeros.clone());
        Space { pieces, zeros, ..Space::new(self.since) }
    }

    /// Everything that was done here so far.
    pub fn everything(&self) -> Vec<Done> {
        let latest = self.latest.iter().map(|(&thread, &steps)| Done { thread, steps });
        latest.chain(self.since).collect()
    }

    /// What an operation on these pages must come after.
    pub fn before_change(&self, pages: Pages) -> Vec<Done> {
        let changes = self.overlapping(pages).map(|(_, piece)| piece.by);
        let touches = self.touched.range(pages.start..pages.end()).map(|(_, &done)| done);
        let mut latest = BTreeMap::new();
        for done in changes.chain(touches).chain(self.since) {
            let steps: &mut u32 = latest.entry(done.thread).or_default();
            *steps = done.steps.max(*steps);
        }
        latest.into_iter().map(|(thread, steps)| Done { thread, steps }).collect()
    }

    /// What a touch of this page must come after.
    pub fn before_touch(&self, page: u64) -> impl Iterator<Item = Done> {
        let piece = self.piece(page).map(|(_, piece)| piece.by);
        piece.into_iter().chain(self.touched.get(&page).copied()).chain(self.since)
    }

    /// The page was touched.
    pub fn touch(&mut self, page: u64, write: bool, by: Done) {
        self.touched.insert(page, by);
        self.cold.remove(&page);
        let backing = self.at(page).map(|mapped| mapped.backing);
        let is_new = !self.filled.contains(&page);
        if !write && backing == Some(Shows::Anonymous) && is_new {
            self.zeros.insert(page);
        } else {
            self.zeros.remove(&page);
            self.around.remove(&page);
            self.filled.insert(page);
        }
        if !write && is_new && matches!(backing, Some(Shows::File { shared: false, .. })) {
            self.come_around(page);
        }
        self.note(by);
    }

    /// With a page of a file come those around it: as many as `AROUND`, from its multiple or where the mapping begins.
    fn come_around(&mut self, page: u64) {
        // One mapping shows the file from one page on.
        let exactly = |at: u64| {
            let (start, piece) = self.piece(at)?;
            let Mapped { backing: Shows::File { file, offset, .. }, prot } = piece.mapped? else {
                return None;
            };
            Some((file, (offset + (at - start)).wrapping_sub(at), prot))
        };
        let same = |&other: &u64| exactly(other) == exactly(page);
        let first = (page / AROUND * AROUND..page).rev().take_while(same).last().unwrap_or(page);
        let end = (first + AROUND).min((page / TABLE + 1) * TABLE);
        let came: Vec<u64> = (first..end).skip_while(|other| !same(other)).take_while(same).collect();
        self.around.extend(came.into_iter().filter(|other| !self.filled.contains(other)));
    }

    /// Something else than before may be there.
    pub fn fill(&mut self, page: u64) {
        self.zeros.remove(&page);
        self.around.remove(&page);
    }

    /// What Linux takes out, and flushes, before a write to the page, which this core does not have there.
    pub fn shows(&self, page: u64) -> Option<Shown> {
        if self.zeros.contains(&page) {
            return Some(Shown::Zeros);
        }
        self.around.contains(&page).then_some(Shown::File)
    }

    /// Whether nothing is known to be there, mapped or not.
    pub fn is_empty(&self, pages: Pages) -> bool {
        let range = || pages.start..pages.end();
        self.zeros.range(range()).next().is_none() && self.filled.range(range()).next().is_none()
    }

    /// Whether something is there, and nobody may use it: Linux's entries say so and count as present, this core's are not.
    pub fn is_hidden(&self, pages: Pages) -> bool {
        let parts = self.mapped(pages);
        parts.iter().all(|(_, mapped)| mapped.prot == Prot::None) && !self.is_empty(pages)
    }

    /// What is known of pages that are there.
    fn kept(&mut self) -> [&mut BTreeSet<u64>; 4] {
        [&mut self.zeros, &mut self.around, &mut self.filled, &mut self.cold]
    }

    /// These pages are said to be cold. Returns whether that is new of any: Linux leaves its page of zeros alone.
    pub fn age(&mut self, pages: Pages) -> bool {
        let before = self.cold.len();
        self.cold.extend(self.filled.range(pages.start..pages.end()));
        self.cold.len() > before
    }

    /// What was there is gone. Returns it: pages of zeros, those that came with others, all that were touched, and those that are cold.
    pub fn drop_all(&mut self, pages: Pages) -> [Vec<u64>; 4] {
        self.kept().map(|set| {
            let gone: Vec<u64> = set.range(pages.start..pages.end()).copied().collect();
            gone.iter().for_each(|page| {
                set.remove(page);
            });
            gone
        })
    }

    /// These pages are there now, this far from where they were.
    pub fn put_all(&mut self, pages: [Vec<u64>; 4], from: u64, to: u64) {
        for (set, pages) in self.kept().into_iter().zip(pages) {
            set.extend(pages.into_iter().map(|page| page - from + to));
        }
    }

    /// What is mapped at a page.
    pub fn at(&self, page: u64) -> Option<Mapped> {
        self.piece(page).and_then(|(_, piece)| piece.mapped)
    }

    /// The parts of these pages in which something is mapped, neighbours of different kinds apart.
    pub fn mapped(&self, pages: Pages) -> Vec<(Pages, Mapped)> {
        let part = |(start, piece): (u64, &Piece)| {
            let mapped = piece.mapped?;
            let from = start.max(pages.start);
            let to = piece.end.min(pages.end());
            let backing = mapped.backing.further(from - start);
            Some((Pages { start: from, count: to - from }, Mapped { backing, ..mapped }))
        };
        self.overlapping(pages).filter_map(part).collect()
    }

    /// The same, neighbours together.
    pub fn runs(&self, pages: Pages) -> Vec<Pages> {
        let mut runs: Vec<Pages> = Vec::new();
        for (part, _) in self.mapped(pages) {
            match runs.last_mut() {
                Some(last) if last.end() == part.start => last.count += part.count,
                _ => runs.push(part),
            }
        }
        runs
    }

    /// From now on this is mapped there, or nothing.
    pub fn set(&mut self, pages: Pages, mapped: Option<Mapped>, by: Done) {
        self.cut(pages.start);
        self.cut(pages.end());
        let old: Vec<u64> = self.pieces.range(pages.start..pages.end()).map(|(&at, _)| at).collect();
        for at in old {
            self.pieces.remove(&at);
        }
        self.pieces.insert(pages.start, Piece { end: pages.end(), mapped, by });
        self.drop_all(pages);
        self.changed(pages, by);
    }

    /// These pages have other rights from now on, where something is mapped.
    pub fn protect(&mut self, pages: Pages, prot: Prot, by: Done) {
        self.change(pages, by, |mapped| mapped.prot = prot);
    }

    /// Something was done to these pages that changes neither what they show nor their rights.
    pub fn advise(&mut self, pages: Pages, by: Done) {
        self.change(pages, by, |_| ());
    }

    fn change(&mut self, pages: Pages, by: Done, each: impl Fn(&mut Mapped)) {
        self.cut(pages.start);
        self.cut(pages.end());
        for (_, piece) in self.pieces.range_mut(pages.start..pages.end()) {
            piece.mapped.iter_mut().for_each(&each);
            piece.by = by;
        }
        self.changed(pages, by);
    }

    /// Whoever comes later on these pages comes after this: those that were touched, too.
    fn changed(&mut self, pages: Pages, by: Done) {
        let touched: Vec<u64> = self.touched.range(pages.start..pages.end()).map(|(&at, _)| at).collect();
        touched.iter().for_each(|page| {
            self.touched.remove(page);
        });
        self.note(by);
    }

    /// Something was done here.
    pub fn note(&mut self, by: Done) {
        self.latest.insert(by.thread, by.steps);
    }

    /// A hole round a page in which nothing is mapped, for what must have been there.
    pub fn hole(&self, page: u64) -> Pages {
        let from = (page / GUESS * GUESS).max(MAPPABLE.start);
        let before = self.pieces.range(..page).rev().find(|(_, piece)| piece.mapped.is_some());
        let after = self.pieces.range(page..).find(|(_, piece)| piece.mapped.is_some());
        let start = before.map_or(from, |(_, piece)| piece.end.max(from));
        let end = after.map_or(from + GUESS, |(&at, _)| at.min(from + GUESS)).min(MAPPABLE.end);
        Pages { start, count: end - start }
    }

    fn piece(&self, page: u64) -> Option<(u64, &Piece)> {
        let (&at, piece) = self.pieces.range(..=page).next_back()?;
        (page < piece.end).then_some((at, piece))
    }

    fn overlapping(&self, pages: Pages) -> impl Iterator<Item = (u64, &Piece)> {
        let first = self.piece(pages.start).map(|(at, _)| at).unwrap_or(pages.start);
        self.pieces.range(first..pages.end()).map(|(&at, piece)| (at, piece))
    }

    /// Makes `at` a border of pieces.
    fn cut(&mut self, at: u64) {
        let Some((start, &piece)) = self.piece(at) else { return };
        if start == at {
            return;
        }
        let further = |mapped: Mapped| Mapped { backing: mapped.backing.further(at - start), ..mapped };
        self.pieces.insert(start, Piece { end: at, ..piece });
        self.pieces.insert(at, Piece { mapped: piece.mapped.map(further), ..piece });
    }
}
