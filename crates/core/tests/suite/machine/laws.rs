//! What is true of all that the core reports, whatever it does: each test that runs a machine to its end looks at it.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use quietmm::addr::PAGE_SIZE;
use quietmm::platform::{Store, WaitKey};
use quietmm::{Audit, CpuId, Event, FrameNumber, Kind, PageNumber, SpaceId};

use quietmm_hardware::Arena;

use super::{Happened, Host, Mm};

/// What the core has reported so far, and what the machine has seen of the same.
#[derive(Default)]
pub(super) struct Books {
    /// Which frames of memory are taken from the allocator, and how many.
    taken: Vec<bool>,
    count_taken: u64,
    /// Where each page that is mapped leads.
    mapped: BTreeMap<(SpaceId, PageNumber), FrameNumber>,
    /// Frames whose content is being written out.
    writing: BTreeSet<FrameNumber>,
    /// The same thing, reported and seen.
    interrupts: (u64, u64),
    received: (u64, u64),
    flushed_pages: (u64, u64),
    flushed_all: (u64, u64),
    flushed_kernel: (u64, u64),
    broadcasts: (u64, u64),
    /// Where there is a device that can be told.
    forgotten: (u64, u64),
    disk: bool,
    swapped_out: (u64, u64),
    swapped_in: (u64, u64),
    /// Requests carried out, and asked for.
    served: (u64, u64),
    faulted: u64,
    /// Large pages that are mapped: the one entry of each is 512 pages here.
    large: u64,
    /// The same thing, reported in two ways: large pages that were made, and mapped; tasks that began to reclaim, and ended.
    large_made: (u64, u64),
    stalls: (u64, u64),
    /// The same thing, reported and seen.
    mkwrites: (u64, u64),
    mkwrites_refused: (u64, u64),
    caches_asked: (u64, u64),
    caches_freed: (u64, u64),
    victims: (u64, u64),
    kswapd_woken: (u64, u64),
    purger_woken: (u64, u64),
    /// Files that the device has heard the end of.
    ended: BTreeSet<Store>,
    /// The first that is not as it must be.
    wrong: Option<String>,
}

impl Books {
    fn must(&mut self, good: bool, wrong: impl FnOnce() -> String) {
        if !good {
            self.wrong.get_or_insert_with(wrong);
        }
    }

    /// Notes of a frame of memory whether it is taken, which it was not before, or was.
    fn take(&mut self, frame: FrameNumber, memory: &Arena, taken: bool) {
        let index = memory.index_of(frame).expect("it lies in memory");
        if self.taken.len() <= index {
            self.taken.resize(index + 1, false);
        }
        let was = std::mem::replace(&mut self.taken[index], taken);
        self.count_taken = self.count_taken + u64::from(taken) - u64::from(was);
        self.must(was != taken, || match taken {
            true => format!("{frame:?} is taken twice"),
            false => format!("{frame:?} is freed and was not taken"),
        });
    }

    fn event(&mut self, event: &Event, online: Option<u32>, memory: &Arena) {
        match *event {
            Event::Taken { frame, order, .. } => {
                (0..1 << order).for_each(|n| self.take(frame.add(n), memory, true));
            }
            Event::Freed { frame, order } => {
                (0..1 << order).for_each(|n| self.take(frame.add(n), memory, false));
            }
            Event::Mapped { space, page, frame, pages } => {
                self.large += u64::from(pages > 1);
                self.large_made.1 += u64::from(pages > 1);
                for n in 0..pages {
                    let page = PageNumber(page.0 + u64::from(n));
                    let before = self.mapped.insert((space, page), frame.add(n));
                    self.must(before.is_none(), || {
                        format!("{page:?} of {space:?} is mapped onto {before:?}")
                    });
                }
            }
            Event::Unmapped { space, page, frame, pages, .. } => {
                self.large = self.large.wrapping_sub(u64::from(pages > 1));
                for n in 0..pages {
                    let page = PageNumber(page.0 + u64::from(n));
                    let before = self.mapped.remove(&(space, page));
                    let good = before == Some(frame.add(n));
                    self.must(good, || {
                        format!("{page:?} of {space:?} is unmapped from {frame:?} and led to {before:?}")
                    });
                }
            }
            Event::WriteBegins { frame } => {
                let new = self.writing.insert(frame);
                self.must(new, || format!("{frame:?} is written out twice at a time"));
            }
            Event::WriteEnds { frame, .. } => {
                let was = self.writing.remove(&frame);
                self.must(was, || format!("{frame:?} was not being written out"));
            }
            Event::IpiSent { targets } => {
                self.interrupts.0 += u64::from(targets);
                self.must(targets > 0, || "an interrupt to nobody".to_string());
            }
            Event::IpiReceived => self.received.0 += 1,
            Event::RemoteFlush { targets, .. } => {
                self.served.1 += u64::from(targets);
                self.must(targets > 0, || "a flush of nobody".to_string());
            }
            Event::Drained { sent, saved, .. } => {
                self.served.1 += u64::from(sent);
                let all = |online: u32| sent + saved == sent.max(online - 1);
                // One may be about to leave.
                let good = online.is_none_or(|online| all(online) || online > 1 && all(online - 1));
                self.must(good, || format!("a drain asks {sent} CPUs and spares {saved} of {online:?}"));
            }
            Event::FlushServed => self.served.0 += 1,
            Event::FlushedPages { pages } => self.flushed_pages.0 += u64::from(pages),
            Event::FlushedAll => self.flushed_all.0 += 1,
            Event::FlushedKernel => self.flushed_kernel.0 += 1,
            Event::Broadcast { .. } => self.broadcasts.0 += 1,
            Event::Evicted { .. } => self.forgotten.0 += u64::from(self.disk),
            Event::SwappedOut => self.swapped_out.0 += 1,
            Event::SwappedIn { .. } => self.swapped_in.0 += 1,
            Event::Faulted { .. } => self.faulted += 1,
            Event::LargeFaulted | Event::LargeCollapsed => self.large_made.0 += 1,
            Event::LargeSplit => self.large = self.large.wrapping_sub(1),
            Event::AllocStall => self.stalls.0 += 1,
            Event::AllocStallEnds { .. } => self.stalls.1 += 1,
            Event::WriteAsked { may } => {
                self.mkwrites.0 += 1;
                self.mkwrites_refused.0 += u64::from(!may);
            }
            Event::CachesAsked { frames } => {
                self.caches_asked.0 += 1;
                self.caches_freed.0 += u64::from(frames);
            }
            Event::OutOfMemory { .. } => self.victims.0 += 1,
            Event::KswapdWoken => self.kswapd_woken.0 += 1,
            Event::VmapPurgeWanted => self.purger_woken.0 += 1,
            _ => {}
        }
    }
}

impl Host {
    /// Enters what happened.
    pub(super) fn enter(&self, what: &Happened) {
        match *what {
            Happened::Event(Event::Taken { frame, order, kind }) => {
                self.note_foreign(frame, order, matches!(kind, Kind::Anon | Kind::File));
            }
            Happened::Event(Event::Freed { frame, order }) => self.note_foreign(frame, order, true),
            _ => {}
        }
        let online = match what {
            Happened::Event(Event::Drained { .. }) => self.count_online(),
            _ => None,
        };
        let mut books = self.books.borrow_mut();
        books.disk = self.setup.disk;
        match what {
            Happened::Event(event) => books.event(event, online, &self.memory),
            Happened::Interrupt(_) => books.interrupts.1 += 1,
            Happened::FlushPage(..) | Happened::FlushKernelPage(..) => books.flushed_pages.1 += 1,
            Happened::FlushSpace(_) => books.flushed_all.1 += 1,
            Happened::FlushKernel(_) => books.flushed_kernel.1 += 1,
            Happened::Broadcast(..) => books.broadcasts.1 += 1,
            Happened::DiskWrite(..) => {}
        }
    }

    fn count_online(&self) -> Option<u32> {
        // Parts of the core that stand alone have none.
        (!self.manager.get().is_null()).then_some(())?;
        // It is no step of what the CPU does.
        let placing = self.placing.replace(false);
        let online = (0..self.setup.cpus).filter(|&cpu| self.manager().is_online(CpuId(cpu as u16))).count();
        self.placing.set(placing);
        Some(online as u32)
    }

    /// A file system was asked, or the kernel's caches, or for a victim; somebody was woken; a file or a device has ended.
    pub(super) fn enter_mkwrite(&self, may: bool) {
        let mut books = self.books.borrow_mut();
        books.mkwrites.1 += 1;
        books.mkwrites_refused.1 += u64::from(!may);
    }

    pub(super) fn enter_shrink(&self, frames: u32) {
        let mut books = self.books.borrow_mut();
        books.caches_asked.1 += 1;
        books.caches_freed.1 += u64::from(frames);
    }

    pub(super) fn enter_victim(&self) {
        self.books.borrow_mut().victims.1 += 1;
    }

    pub(super) fn enter_wake(&self, key: WaitKey) {
        let mut books = self.books.borrow_mut();
        books.kswapd_woken.1 += u64::from(matches!(key, WaitKey::Kswapd(_)));
        books.purger_woken.1 += u64::from(key == WaitKey::VmapPurge);
    }

    pub(super) fn enter_end(&self, store: Store) {
        self.books.borrow_mut().ended.insert(store);
    }

    fn note_foreign(&self, first: FrameNumber, order: u8, foreign: bool) {
        for frame in (0..1 << order).map(|n| first.add(n)) {
            if let Some(index) = self.memory.index_of(frame) {
                self.foreign[index].set(foreign);
            }
        }
    }

    /// A CPU touches a word that it shares with others: no such word lies in a frame that is free, or a page of a program's.
    #[inline]
    pub(super) fn enter_touch(&self, at: *const u8) {
        if let Some(offset) = self.memory.offset_of(at)
            && self.foreign[(offset / PAGE_SIZE) as usize].get()
        {
            self.touched_foreign(at);
        }
    }

    #[cold]
    fn touched_foreign(&self, at: *const u8) {
        let frame = self.memory.frame_of(at).expect("it lies in memory");
        self.books.borrow_mut().must(false, || format!("{frame:?} is not the core's, which touches it"));
    }

    /// An interrupt has arrived.
    pub(super) fn enter_arrival(&self) {
        self.books.borrow_mut().received.1 += 1;
    }

    /// The device has read a page.
    pub(super) fn enter_read(&self, from: Store) {
        self.books.borrow_mut().swapped_in.1 += u64::from(matches!(from, Store::Swap(_)));
    }

    /// The device has heard that a page left its cache.
    pub(super) fn enter_forgotten(&self) {
        self.books.borrow_mut().forgotten.1 += 1;
    }

    /// The device begins to write this frame out.
    pub(super) fn enter_write(&self, frame: FrameNumber) {
        let mut books = self.books.borrow_mut();
        let begun = books.writing.contains(&frame);
        books.must(begun, || format!("{frame:?} is written out and nobody said so"));
    }

    /// The device has written a page.
    pub(super) fn enter_written(&self, to: Store) {
        self.books.borrow_mut().swapped_out.1 += u64::from(matches!(to, Store::Swap(_)));
    }

    /// Faults that were resolved.
    pub(super) fn faulted(&self) -> u64 {
        self.books.borrow().faulted
    }

    /// Whether each CPU is as it was found, and has cached nothing that it could not walk to now, or that will be flushed
    /// before it is used: on a quiet machine with no rule broken.
    pub(super) fn check_cpus(&self, mm: &Mm<'_>) {
        let placing = self.placing.replace(false);
        for cpu in 0..self.irqs.len() as u16 {
            if !mm.is_online(CpuId(cpu)) {
                continue;
            }
            assert!(self.irqs[cpu as usize].get(), "CPU {cpu} was left with interrupts off");
            self.on(cpu, || {
                // Whoever is lazy flushes before it comes back.
                mm.leave_lazy();
                let stale = self.stale_translation();
                assert_eq!(stale, None, "CPU {cpu} has cached what it cannot walk to");
            });
        }
        // The device need not keep what it was told has ended.
        let disk = self.disk.borrow();
        for &(store, block) in disk.keys() {
            if let Store::File(id) = store
                && mm.file(id).size().is_err()
            {
                let ended = self.books.borrow().ended.contains(&store);
                assert!(
                    ended,
                    "{id:?} has ended, and the device, which keeps page {block} of it, was not told"
                );
            }
        }
        drop(disk);
        self.placing.set(placing);
    }

    /// Whether it all adds up, on a quiet machine with no rule broken.
    pub(super) fn check_books(&self, audit: &Audit) {
        let books = self.books.borrow();
        assert_eq!(books.wrong, None);
        let used = audit.total - audit.reserved - audit.free - audit.offline;
        assert_eq!(books.count_taken, used, "frames in use, reported and counted");
        let mapped = books.mapped.len() as u64;
        let (entries, large) = (audit.mapped, books.large);
        assert_eq!(
            mapped,
            entries + 511 * large,
            "{mapped} pages mapped are reported, and {entries} entries are, {large} of them of large pages"
        );
        assert!(books.writing.is_empty(), "{:?} are written out for ever", books.writing);
        let same = [
            ("interrupts sent", books.interrupts),
            ("interrupts received", books.received),
            ("pages flushed", books.flushed_pages),
            ("full flushes", books.flushed_all),
            ("flushes of kernel addresses", books.flushed_kernel),
            ("flushes by broadcast", books.broadcasts),
            ("pages that left their caches", books.forgotten),
            ("pages read from swap", books.swapped_in),
            ("pages written to swap", books.swapped_out),
            ("large pages made, and mapped", books.large_made),
            ("tasks that began to reclaim, and ended", books.stalls),
            ("times that a file system was asked", books.mkwrites),
            ("times that it said no", books.mkwrites_refused),
            ("times that the kernel's caches were asked", books.caches_asked),
            ("frames that they gave back", books.caches_freed),
            ("times that a victim was asked for", books.victims),
            ("times that a kswapd was woken", books.kswapd_woken),
            ("times that the purger was woken", books.purger_woken),
        ];
        for (what, (reported, seen)) in same {
            assert_eq!(reported, seen, "{what}: reported, and seen by the machine");
        }
        assert!(self.all_synced(), "a broadcast that nobody waited for");
        assert!(
            self.stale.get() == 0 || self.uses_windows.get(),
            "{} uses of what is gone",
            self.stale.get()
        );
        assert_eq!(self.kernel_stale.get(), 0, "uses of kernel addresses that lead elsewhere by now");
        let (served, asked) = books.served;
        assert!(served <= asked, "{served} requests carried out, and {asked} asked for");
    }
}
