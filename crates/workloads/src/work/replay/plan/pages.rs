//! What calls and touches do to the pages of a space.

use alloc::vec::Vec;

use quietmm::{Advice, Prot};

use super::super::order::Done;
use super::super::space::{MAPPABLE, Mapped, Shows};
use super::{Planner, Step, prot, user};
use crate::latency::Tally;
use crate::trace::recording::{Backing, Pages, Rights};

/// The most pages that are touched because they were populated at once.
const MOST_POPULATED: u64 = 1 << 18;

/// The most pages of a file.
const MOST_FILE: u64 = 1 << 40;

impl Planner {
    pub(super) fn map(
        &mut self,
        thread: u32,
        space: u32,
        pages: Pages,
        rights: Rights,
        backing: Backing,
        populate: bool,
    ) {
        let inside = user(pages);
        self.mended += u64::from(inside != Some(pages));
        let Some(inside) = inside else { return };
        let shows = match backing {
            Backing::Anonymous => Shows::Anonymous,
            Backing::Private { file, offset } => Shows::File { file, offset, shared: false },
            Backing::Shared { file, offset } => Shows::File { file, offset, shared: true },
        };
        let (pages, mut shows) = (inside, shows.further(inside.start - pages.start));
        if let Shows::File { offset, .. } = shows
            && offset.saturating_add(pages.count) > MOST_FILE
        {
            self.mended += 1;
            shows = Shows::Anonymous;
        }
        self.clear(thread, space, pages);
        self.map_free(thread, space, pages, Mapped { backing: shows, prot: prot(rights) });
        if populate && prot(rights) != Prot::None {
            self.populate(thread, space, pages, rights.write);
        }
    }

    /// Whether the last that the thread did was to touch one of these pages.
    pub(super) fn touched(&self, thread: u32, pages: Pages) -> bool {
        let last = self.lives[thread as usize].steps.iter().rev().find(|step| !matches!(step, Step::Run(_)));
        matches!(last, Some(Step::Touch { page, .. }) if (pages.start..pages.end()).contains(page))
    }

    /// Maps what is not mapped yet of pages that the program brought by a touch.
    pub(super) fn grow(&mut self, thread: u32, space: u32, pages: Pages, prot: Prot) {
        let Some(pages) = user(pages) else { return };
        let mut next = pages.start;
        let after = Pages { start: pages.end(), count: 0 };
        for run in self.spaces[space as usize].runs(pages).into_iter().chain([after]) {
            if let Some(hole) = Pages::new(next, run.start - next) {
                self.map_free(thread, space, hole, Mapped { backing: Shows::Anonymous, prot });
            }
            next = run.end();
        }
    }

    /// All of them come at once.
    fn populate(&mut self, thread: u32, space: u32, pages: Pages, write: bool) {
        self.mended += u64::from(pages.count > MOST_POPULATED);
        for page in pages.start..pages.end().min(pages.start + MOST_POPULATED) {
            if write {
                // No fault tells what Linux showed there, a page of zeros or nothing: it is taken for nothing.
                self.spaces[space as usize].fill(page);
            }
            self.touch(thread, space, page, write, 1);
        }
    }

    /// Maps where nothing is mapped.
    fn map_free(&mut self, thread: u32, space: u32, pages: Pages, mapped: Mapped) {
        if let Shows::File { file, offset, .. } = mapped.backing {
            let size = &mut self.files[file as usize];
            *size = (*size).max(offset + pages.count);
        }
        let before = self.spaces[space as usize].before_change(pages);
        self.after(thread, before);
        let done = self.next(thread);
        self.step(thread, Step::Map { pages, shows: mapped.backing, prot: mapped.prot });
        self.spaces[space as usize].set(pages, Some(mapped), done);
    }

    /// Unmaps what is mapped there. Returns whether something was, of which nothing is known to have come.
    fn clear(&mut self, thread: u32, space: u32, pages: Pages) -> bool {
        let runs = self.spaces[space as usize].runs(pages);
        if runs.is_empty() {
            return false;
        }
        let before = self.spaces[space as usize].before_change(pages);
        self.after(thread, before);
        let empty = self.spaces[space as usize].is_empty(pages);
        for run in runs {
            let done = self.next(thread);
            self.step(thread, Step::Unmap { pages: run });
            self.spaces[space as usize].set(run, None, done);
        }
        empty
    }

    pub(super) fn unmap(&mut self, thread: u32, space: u32, pages: Pages) {
        if let Some(pages) = user(pages) {
            let empty = self.clear(thread, space, pages);
            self.took_out(thread, empty);
        }
    }

    /// The end of a call that takes something out, or nothing.
    fn took_out(&mut self, thread: u32, nothing: bool) {
        if nothing && self.nested {
            self.step(thread, Step::FlushAll);
        }
    }

    pub(super) fn protect(&mut self, thread: u32, space: u32, pages: Pages, prot: Prot) {
        let Some(pages) = user(pages) else { return };
        let runs = self.spaces[space as usize].runs(pages);
        if runs.is_empty() {
            return;
        }
        let before = self.spaces[space as usize].before_change(pages);
        self.after(thread, before);
        for run in runs {
            let done = self.next(thread);
            self.step(thread, Step::Protect { pages: run, prot });
            self.spaces[space as usize].protect(run, prot, done);
        }
    }

    pub(super) fn advise(&mut self, thread: u32, space: u32, pages: Pages, advice: Advice) {
        let write = advice == Advice::PopulateWrite;
        if write || advice == Advice::PopulateRead {
            return self.populate_mapped(thread, space, pages, write);
        }
        let runs = self.spaces[space as usize].runs(pages);
        if runs.is_empty() {
            return;
        }
        let before = self.spaces[space as usize].before_change(pages);
        self.after(thread, before);
        let empty = self.spaces[space as usize].is_empty(pages);
        for run in runs {
            let done = self.next(thread);
            let now = &mut self.spaces[space as usize];
            now.advise(run, done);
            let hidden = advice == Advice::Drop && now.is_hidden(run);
            if advice == Advice::Drop {
                now.drop_all(run);
            }
            self.step(thread, Step::Advise { pages: run, advice });
            if hidden {
                self.step(thread, Step::FlushRange { pages: run, of: Tally::HiddenFlushes });
            }
            if advice == Advice::Cold && self.spaces[space as usize].age(run) {
                self.step(thread, Step::FlushRange { pages: run, of: Tally::AgedFlushes });
            }
        }
        self.took_out(thread, empty && matches!(advice, Advice::Drop | Advice::Cold));
    }

    /// Where nothing is mapped, or not with the right to do this, the call ended.
    fn populate_mapped(&mut self, thread: u32, space: u32, pages: Pages, write: bool) {
        let mut next = pages.start;
        for (part, mapped) in self.spaces[space as usize].mapped(pages) {
            let may = if write { mapped.prot == Prot::ReadWrite } else { mapped.prot != Prot::None };
            if part.start != next || !may {
                return;
            }
            next = part.end();
            self.populate(thread, space, part, write);
        }
    }

    pub(super) fn remap(&mut self, thread: u32, space: u32, from: Pages, to: Pages) {
        let stays = from.start == to.start;
        let overlaps = !stays && from.start < to.end() && to.start < from.end();
        if overlaps || user(from) != Some(from) || user(to) != Some(to) {
            // No kernel does the first, and only some the others.
            self.mended += 1;
            return;
        }
        let common = from.count.min(to.count);
        let parts = self.spaces[space as usize].mapped(Pages { start: from.start, count: common });
        if !stays {
            self.clear(thread, space, to);
            for &(part, mapped) in &parts {
                let there = Pages { start: part.start - from.start + to.start, count: part.count };
                let now = &self.spaces[space as usize];
                let before: Vec<Done> =
                    now.before_change(part).into_iter().chain(now.before_change(there)).collect();
                self.after(thread, before);
                let done = self.next(thread);
                self.step(thread, Step::Move { pages: part, to: there.start });
                let now = &mut self.spaces[space as usize];
                let moved = now.drop_all(part);
                now.set(part, None, done);
                now.set(there, Some(mapped), done);
                now.put_all(moved, part.start, there.start);
            }
        }
        if let Some(rest) = Pages::new(from.start + common, from.count - common) {
            self.clear(thread, space, rest);
        }
        if let (Some(rest), Some(&(last, mapped))) =
            (Pages::new(to.start + common, to.count - common), parts.last())
        {
            let mapped = Mapped { backing: mapped.backing.further(last.count), ..mapped };
            self.clear(thread, space, rest);
            self.map_free(thread, space, rest, mapped);
        }
    }

    pub(super) fn touch(&mut self, thread: u32, space: u32, page: u64, write: bool, count: u32) {
        if !MAPPABLE.contains(&page) {
            // Often a null pointer: the program was told by a signal.
            self.mended += 1;
            return;
        }
        if self.spaces[space as usize].at(page).is_none() {
            let hole = self.spaces[space as usize].hole(page);
            self.mended += 1;
            self.map_free(thread, space, hole, Mapped { backing: Shows::Anonymous, prot: Prot::ReadWrite });
        }
        let now = &self.spaces[space as usize];
        let write = match now.at(page).map(|mapped| mapped.prot) {
            Some(Prot::ReadWrite) => write,
            // Not all who record know reads from writes.
            Some(Prot::Read) => false,
            _ => {
                // A program that lets itself be told by a signal, or a change of rights that the recording has a moment later.
                self.mended += 1;
                return;
            }
        };
        let before: Vec<Done> = now.before_touch(page).collect();
        self.after(thread, before);
        if write && let Some(shown) = self.spaces[space as usize].shows(page) {
            self.step(thread, Step::Replace { page, shown });
        }
        let done = self.next(thread);
        self.step(thread, Step::Touch { page, write, count });
        self.spaces[space as usize].touch(page, write, done);
    }
}
