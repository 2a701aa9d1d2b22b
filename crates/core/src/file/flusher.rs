//! Dirty pages of files, by their number and age: who writes them back, and who must do so before making another.
//!
//! The core owns no thread and no timer: the embedding kernel calls [`Manager::flusher`] in a task. Whoever writes faster than that comes to the
//! limit, and writes some pages back itself before it goes on: first of the file that it writes to, then of others. So
//! the number passes the limit by no more than the pages that writers make dirty at the same time, one each.
//!
//! Nobody waits for ever: whoever finds nothing that can be written back, because devices do not take it or others have it on its way, has tried
//! some times, and goes on; a device that does not take a batch is left alone for a while (`writeback/backoff.rs`). Then reclaim finds the pages dirty, as it would without a limit.

use core::sync::atomic::Ordering;

use super::tree::Cached;
use super::writeback::TOGETHER;
use crate::Manager;
use crate::handle::FileId;
use crate::memmap::flag;
use crate::platform::Platform;
use crate::resched::{Work, cost};
use crate::rule::Rule;

/// How often who is at the limit looks for pages that can be written back.
const TRIES: u32 = 8;

impl<'p, P: Platform> Manager<'p, P> {
    /// Pages of files that are dirty: what [`Config::dirty_limit`](crate::Config::dirty_limit) is about. 0 where nothing of these settings is chosen.
    ///
    /// # Examples
    /// ```
    /// # use quietmm_doc::*;
    /// # doc(|mm| {
    /// // Nobody counts them here.
    /// assert_eq!(mm.dirty_pages(), 0);
    /// # Ok(())
    /// # });
    /// ```
    #[doc(alias = "NR_FILE_DIRTY")]
    pub fn dirty_pages(&self) -> u64 {
        self.count_of_dirty()
    }

    /// Writes back the files of which a page is dirty for longer than [`Config::dirty_expire`](crate::Config::dirty_expire), and others as long as more pages are dirty than
    /// [`Config::dirty_background`](crate::Config::dirty_background). Returns how many pages were written. What a device does not take stays
    /// dirty, and is tried again when it is as old once more.
    ///
    /// For a task that runs in no user space, again and again: it sleeps a part of the age in between, and no longer than until it is woken by
    /// [`WaitKey::Flusher`](crate::platform::WaitKey::Flusher), when there are too many dirty pages. Looks at each file. One at a time is
    /// enough. May wait. IPIs as [`File::write_back`](crate::File::write_back).
    ///
    /// # Examples
    /// ```
    /// # use quietmm_doc::*;
    /// # doc(|mm| {
    /// // A kernel's thread: sleeps, say for five seconds or until it is woken, and then
    /// mm.flusher();
    /// # Ok(())
    /// # });
    /// ```
    #[doc(alias = "wb_workfn")]
    pub fn flusher(&self) -> u64 {
        let (mut written, mut work) = (0, Work::begin(self));
        for slot in self.file_slots() {
            work.did(cost::TABLE);
            if let Some(id) = self.live_file(slot).filter(|&id| self.is_expired(id)) {
                written += self.flush_while(id, || true);
            }
        }
        for slot in self.file_slots() {
            work.did(cost::TABLE);
            if !self.is_above_background() {
                break;
            }
            if let Some(id) = self.live_file(slot) {
                written += self.flush_while(id, || self.is_above_background());
            }
        }
        written
    }

    fn is_above_background(&self) -> bool {
        let background = self.config().dirty_background;
        background > 0 && self.count_of_dirty() > background
    }

    fn is_expired(&self, id: FileId) -> bool {
        let (p, expire) = (self.platform(), self.config().dirty_expire);
        let since = self.file_at(id.slot()).dirty_since.load(p, Ordering::Relaxed);
        expire > 0 && since != 0 && p.now().0.saturating_sub(since) >= expire
    }

    /// Writes a file back of which a page is dirty, as long as its pages are to go. Returns how many were written.
    fn flush_while(&self, id: FileId, goes_on: impl Fn() -> bool) -> u64 {
        let mut all = (0, false);
        if self.file_at(id.slot()).dirty_since.load(self.platform(), Ordering::Relaxed) != 0 {
            // What a device does not take is tried again later; a file that ended has no pages.
            let _ = self.write_while(id, &mut all, goes_on);
        }
        all.0
    }

    /// Before somebody makes a page of a file dirty: where as many are as may be it writes some back first, unless this one is dirty already. No lock is held but
    /// the file's `io`, shared or alone. May wait.
    pub(super) fn balance_dirty(&self, id: FileId, index: u64) {
        let limit = self.config().dirty_limit;
        // Pages of a memory file count as no dirty ones.
        if limit == 0 || self.is_memory_file(id) || self.platform().broken(Rule::WriteBackAtLimit) {
            return;
        }
        for _ in 0..TRIES {
            if self.count_of_dirty() < limit || self.is_dirty_at(id, index) {
                return;
            }
            // Others have them on their way: they are clean soon.
            if !self.write_some(id) && !self.await_pageout() {
                return;
            }
        }
    }

    /// Whether a page of a file is in its cache, and dirty. A moment's truth.
    fn is_dirty_at(&self, id: FileId, index: u64) -> bool {
        let Cached::Page(n) = self.find_cached(self.file_at(id), index) else { return false };
        let is_dirty = self.memmap().get(n).state.get(self.platform()) & flag::DIRTY != 0;
        self.put_page(n);
        is_dirty
    }

    /// Writes a few pages back, of this file or, if it has none, of the next that has; says whether one was written.
    fn write_some(&self, id: FileId) -> bool {
        let p = self.platform();
        let next = &self.root.dirty.next;
        if self.write_some_of(id) {
            return true;
        }
        let from = next.load(p, Ordering::Relaxed);
        let slots = || self.file_slots();
        let mut others = slots().filter(|slot| slot.0 >= from).chain(slots().filter(|slot| slot.0 < from));
        let mut work = Work::begin(self);
        let found = others.find(|&slot| {
            work.did(cost::TABLE);
            self.live_file(slot).is_some_and(|other| other != id && self.write_some_of(other))
        });
        found.into_iter().for_each(|slot| next.store(p, slot.0 + 1, Ordering::Relaxed));
        found.is_some()
    }

    /// Goes on where the last one left off, and once around.
    fn write_some_of(&self, id: FileId) -> bool {
        let (p, file) = (self.platform(), self.file_at(id.slot()));
        if file.dirty_since.load(p, Ordering::Relaxed) == 0 || !file.backoff.may_write(p) {
            return false;
        }
        let from = file.written_to.load(p, Ordering::Relaxed);
        let (mut at, mut around, mut work) = (from, from == 0, Work::begin(self));
        loop {
            let Ok(round) = self.write_next(id, &mut at, u64::MAX) else { return false };
            if round.written > 0 {
                file.written_to.store(p, at, Ordering::Relaxed);
                return true;
            }
            // A device that takes nothing is not asked for every page, by every writer.
            if file.backoff.is_failing(p) {
                return false;
            }
            if round.was_last {
                if around {
                    return false;
                }
                (at, around) = (0, true);
            }
            work.did(TOGETHER as u32 * cost::FRAME);
        }
    }
}
