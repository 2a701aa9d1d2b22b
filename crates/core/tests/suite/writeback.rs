//! Writing dirty pages out while programs go on: what is written, who waits, and what may not be lost.

use crate::machine;

use std::cell::Cell;
use std::rc::Rc;

use machine::showing::{AT, Operation, TO, mapped, private, shared, write_all};
use machine::swapping::take_free;
use machine::{
    Happened, Host, Mm, Setup, bare, everywhere, exhaust, give_back, keep_batches, pages, settled,
};
use quietmm::addr::PAGE_SIZE;
use quietmm::{Advice, AllocFrom, Backing, Error, FileId, PageNumber, Prot, Rule, SpaceId, UserAccess};

#[test]
fn write_back_writes_what_is_dirty_and_costs_one_flush_for_many_pages() {
    for (guarantees, policy) in [(true, "linux"), (false, "vanilla")] {
        let host = Host::new(Setup { cpus: 2, guarantees, ..Setup::default() });
        host.run(bare(policy), |mm| {
            let file = mm.create_file(64).unwrap();
            let id = mapped(mm, shared(file), 64);
            host.on(1, || {
                mm.space(id).switch_to().unwrap();
                (AT..AT + 32).for_each(|page| host.write(mm, id, page, page).unwrap());
            });
            host.forget();
            assert_eq!(mm.file(file).write_back(), Ok(32));
            assert_eq!(host.interrupts_to(1), 1);
            assert!((0..32).all(|i| host.on_disk(file, i) == Some(AT + i)));
            host.forget();
            assert_eq!((mm.file(file).write_back(), host.interrupts()), (Ok(0), 0));
            host.on(1, || host.write(mm, id, AT + 3, 5)).unwrap();
            assert_eq!((mm.file(file).write_back(), host.on_disk(file, 3)), (Ok(1), Some(5)));
            let other = mm.create_file(1).unwrap();
            mm.file(other).destroy().unwrap();
            assert_eq!(mm.file(other).write_back(), Err(Error::NoSuchFile));
            assert_eq!(host.stale.get(), 0);
        });
    }
}

#[test]
fn each_32_pages_cost_one_flush() {
    let host = Host::new(Setup { cpus: 2, ..Setup::default() });
    host.run(bare("linux"), |mm| {
        let file = mm.create_file(80).unwrap();
        let id = mapped(mm, shared(file), 80);
        host.on(1, || mm.space(id).switch_to().unwrap());
        for count in [1, 31, 32, 33, 63, 64, 65] {
            host.on(1, || {
                (AT..AT + count).for_each(|page| host.write(mm, id, page, page + count).unwrap());
            });
            host.forget();
            assert_eq!(mm.file(file).write_back(), Ok(count));
            assert_eq!(host.interrupts_to(1) as u64, count.div_ceil(32), "{count} pages");
            assert!((0..count).all(|i| host.on_disk(file, i) == Some(AT + i + count)), "{count} pages");
        }
    });
}

/// Only what lies in the range, in as few flushes, and nothing is looked at elsewhere.
#[test]
fn a_part_is_written_back_by_itself() {
    let host = Host::new(Setup { cpus: 2, ..Setup::default() });
    host.run(bare("linux"), |mm| {
        let file = mm.create_file(80).unwrap();
        let id = mapped(mm, shared(file), 80);
        host.on(1, || mm.space(id).switch_to().unwrap());
        for (first, count) in [
            (0, 0),
            (0, 1),
            (79, 1),
            (3, 31),
            (3, 32),
            (3, 33),
            (0, 80),
            (70, u64::MAX),
            (80, 1),
            (u64::MAX, 1),
        ] {
            host.on(1, || (AT..AT + 80).for_each(|page| host.write(mm, id, page, page).unwrap()));
            host.forget();
            let inside =
                (0..80).filter(|page| (first..first.saturating_add(count)).contains(page)).count() as u64;
            assert_eq!(mm.file(file).write_back_range(first, count), Ok(inside), "{count} from {first} on");
            assert_eq!(host.interrupts_to(1) as u64, inside.div_ceil(32));
            assert_eq!(mm.file(file).write_back_range(first, count), Ok(0));
            assert_eq!(mm.file(file).write_back(), Ok(80 - inside), "the others are dirty");
        }
        // What lies around a page costs nothing.
        let touches = |pages: u64| {
            host.on(1, || (AT..AT + pages).for_each(|page| host.write(mm, id, page, page).unwrap()));
            let before = host.touches_of(0);
            mm.file(file).write_back_range(0, 1).unwrap();
            host.touches_of(0) - before
        };
        assert_eq!(touches(1), touches(80));
        mm.space(id).unmap(pages(AT, 80)).unwrap();
        mm.file(file).destroy().unwrap();
        assert_eq!(mm.file(file).write_back_range(0, 1), Err(Error::NoSuchFile));
    });
}

#[test]
fn what_the_device_does_not_take_stays_dirty() {
    let host = Host::new(Setup::default());
    host.run(bare("linux"), |mm| {
        let file = mm.create_file(8).unwrap();
        let id = mapped(mm, shared(file), 8);
        write_all(mm, id, 3);
        host.fail_writes.set(true);
        assert_eq!(mm.file(file).write_back(), Err(Error::Device));
        host.fail_writes.set(false);
        assert_eq!(mm.file(file).write_back(), Ok(3));
        assert_eq!(host.on_disk(file, 2), Some(AT + 2));
    });
}

/// While CPU 0 writes the page at `AT` out CPU 1 does `work`; returns whether it had to wait for the page.
fn waits_during_io(work: impl FnOnce(&Mm<'_>, SpaceId) + 'static) -> bool {
    waits_during_io_of(|mm, id, _| work(mm, id))
}

fn waits_during_io_of(work: impl FnOnce(&Mm<'_>, SpaceId, FileId) + 'static) -> bool {
    let host = Host::new(Setup { cpus: 2, ..Setup::default() });
    host.run(bare("linux"), |mm| {
        let file = mm.create_file(2).unwrap();
        let id = mapped(mm, shared(file), 2);
        host.on(1, || mm.space(id).switch_to().unwrap());
        host.write(mm, id, AT, 1).unwrap();
        host.write(mm, id, AT + 1, 1).unwrap();
        host.on_disk_write.borrow_mut().push_back(Box::new(move |mm| {
            let host = mm.platform();
            host.instead_of_page_wait.set(Some(Rule::WriteWaitsForIo));
            host.on(1, || work(mm, id, file));
            host.broken.set(None);
        }));
        assert_eq!(mm.file(file).write_back(), Ok(2));
        assert_eq!(host.on_disk(file, 0), Some(1), "what it was when it was flushed");
        assert_eq!(host.stale.get(), 0);
        host.instead_of_page_wait.take().is_none()
    })
}

#[test]
fn who_writes_to_a_page_on_its_way_to_the_device_waits_and_who_reads_does_not() {
    assert!(waits_during_io(|mm, id| mm.platform().write(mm, id, AT, 2).unwrap()));
    assert!(!waits_during_io(|mm, id| assert_eq!(mm.platform().read(mm, id, AT), Ok(1))));
    // Not mapped at the time, thus brought by the fault.
    let dropped = |mm: &Mm<'_>, id| mm.space(id).advise(pages(AT, 1), Advice::Drop).unwrap();
    assert!(waits_during_io(move |mm, id| {
        dropped(mm, id);
        mm.platform().write(mm, id, AT, 2).unwrap();
    }));
    assert!(!waits_during_io(move |mm, id| {
        dropped(mm, id);
        assert_eq!(mm.platform().read(mm, id, AT), Ok(1));
    }));
    // A private copy is no business of the device.
    assert!(!waits_during_io_of(|mm, _, file| {
        let id = mm.create_space().unwrap();
        mm.space(id).map(pages(AT, 1), private(file), Prot::ReadWrite).unwrap();
        mm.space(id).switch_to().unwrap();
        mm.platform().write(mm, id, AT, 2).unwrap();
    }));
}

#[test]
fn rights_that_are_given_during_the_write_out_wait_too() {
    assert!(waits_during_io(|mm, id| {
        mm.space(id).protect(pages(AT, 1), Prot::Read).unwrap();
        mm.space(id).protect(pages(AT, 1), Prot::ReadWrite).unwrap();
        mm.platform().write(mm, id, AT, 2).unwrap();
    }));
    assert!(waits_during_io(|mm, id| {
        mm.space(id).move_range(pages(AT, 1), PageNumber(TO)).unwrap();
        mm.platform().write(mm, id, TO, 2).unwrap();
    }));
}

/// While an operation on CPU 0 waits for CPU 1 to flush, CPU 2 writes the file back. Returns whether CPU 1 could write to
/// the page without a fault when it was on its way to the device.
fn writable_inside(policy: &str, operation: Operation, broken: Option<Rule>) -> bool {
    let host = Host::new(Setup { cpus: 3, guarantees: policy != "vanilla", ..Setup::default() });
    host.run(bare(policy), |mm| {
        let file = mm.create_file(1).unwrap();
        let id = mapped(mm, shared(file), 1);
        host.on(1, || mm.space(id).switch_to().unwrap());
        host.on(1, || host.write(mm, id, AT, 1)).unwrap();
        let writable = Rc::new(Cell::new(false));
        let seen = Rc::clone(&writable);
        host.hold_interrupts.set(true);
        host.broken.set(broken);
        host.on_pause.borrow_mut().push_back(Box::new(move |mm| {
            let host = mm.platform();
            let look = move |mm: &Mm<'_>| seen.set(mm.platform().caches(1, AT));
            host.on_disk_write.borrow_mut().push_back(Box::new(look));
            host.on(2, || assert_eq!(mm.file(file).write_back(), Ok(1)));
        }));
        operation(mm, id);
        host.hold_interrupts.set(false);
        host.deliver_all();
        host.broken.set(None);
        assert_eq!((host.on_disk(file, 0), host.stale.get()), (Some(1), 0));
        writable.get()
    })
}

#[test]
fn write_back_in_the_middle_of_an_operation_flushes_before_it_writes() {
    let operations: [(&str, Operation); 4] = [
        ("protect", |mm, id| mm.space(id).protect(pages(AT, 1), Prot::Read).unwrap()),
        ("drop", |mm, id| mm.space(id).advise(pages(AT, 1), Advice::Drop).unwrap()),
        ("move", |mm, id| mm.space(id).move_range(pages(AT, 1), PageNumber(TO)).unwrap()),
        ("unmap", |mm, id| mm.space(id).unmap(pages(AT, 1)).unwrap()),
    ];
    for (name, operation) in operations {
        for policy in ["linux", "vanilla"] {
            assert!(!writable_inside(policy, operation, None), "{name}, {policy}");
            // Protect takes nothing out, and leaves the dirty bit in its entry.
            let seen = writable_inside(policy, operation, Some(Rule::TakenIsMapped));
            assert_eq!(seen, name != "protect", "{name}, {policy}");
        }
    }
}

/// CPU 0 moves a page. Before its flush CPU 2 begins to write the page out, and before that write ends the move
/// does. Returns whether CPU 0 then had to wait to write to the page.
fn waits_after_a_move_during_io(broken: Option<Rule>) -> bool {
    let host = Host::new(Setup { cpus: 3, ..Setup::default() });
    host.run(bare("linux"), |mm| {
        let file = mm.create_file(1).unwrap();
        let id = mapped(mm, shared(file), 1);
        host.write(mm, id, AT, 1).unwrap();
        host.on(1, || mm.space(id).switch_to().unwrap());
        host.on(1, || host.read(mm, id, AT)).unwrap();
        host.hold_interrupts.set(true);
        let moving = || {
            // The flush waits for CPU 1.
            host.on_pause.borrow_mut().push_back(Box::new(|mm| mm.platform().stop()));
            mm.space(id).move_range(pages(AT, 1), PageNumber(TO)).unwrap();
        };
        let waited = Rc::new(Cell::new(false));
        let writing = || {
            let waited = Rc::clone(&waited);
            host.on_disk_write.borrow_mut().push_back(Box::new(move |mm| {
                let host = mm.platform();
                host.stop();
                host.instead_of_page_wait.set(Some(Rule::WriteWaitsForIo));
                host.on(0, || host.write(mm, id, TO, 2)).unwrap();
                host.broken.set(None);
                waited.set(host.instead_of_page_wait.take().is_none());
            }));
            assert_eq!(mm.file(file).write_back(), Ok(1));
        };
        host.aside(0, moving, |moving| {
            host.aside(2, writing, |writing| {
                assert!(host.resume_one(moving), "taken out and not flushed");
                host.hold_interrupts.set(false);
                assert!(host.resume_one(writing), "found nothing, flushed, and writes");
                host.broken.set(broken);
                assert!(!host.resume_one(moving), "moved");
                assert!(!host.resume_one(writing), "written out");
            });
        });
        assert_eq!(host.read(mm, id, TO), Ok(2));
        assert_eq!((mm.file(file).write_back(), host.on_disk(file, 0)), (Ok(1), Some(2)));
        assert_eq!(host.stale.get(), 0);
        waited.get()
    })
}

#[test]
fn a_page_that_moves_while_it_is_written_out_stays_read_only() {
    assert!(waits_after_a_move_during_io(None));
    assert!(!waits_after_a_move_during_io(Some(Rule::WriteWaitsForIo)));
}

#[test]
fn what_is_on_its_way_to_the_device_gets_there_before_its_file_ends() {
    let host = Host::new(Setup { cpus: 2, ..Setup::default() });
    host.run(bare("linux"), |mm| {
        let file = mm.create_file(2).unwrap();
        let id = mapped(mm, shared(file), 2);
        write_all(mm, id, 2);
        mm.space(id).unmap(pages(AT, 2)).unwrap();
        let next = Cell::new(None);
        let writing = || {
            host.on_disk_write.borrow_mut().push_back(Box::new(|mm| mm.platform().stop()));
            assert_eq!(mm.file(file).write_back(), Ok(2));
        };
        let ending = || {
            mm.file(file).destroy().unwrap();
            // The next file has the same slot.
            next.set(mm.create_file(2).ok());
            assert_eq!(next.get().map(FileId::index), Some(file.index()));
        };
        host.aside(1, writing, |writing| {
            host.aside(0, ending, |ending| {
                assert!(host.resume_one(writing));
                let waits = host.resume_one(ending);
                host.forget();
                assert!(!host.resume_one(writing));
                assert!(waits, "until the device has the page");
                assert!(!host.resume_one(ending));
                assert!(host.count(|what| matches!(what, Happened::DiskWrite(..))) <= 1);
            });
        });
        assert_eq!((mm.file(next.get().unwrap()).cached_pages(), settled(mm).file), (Ok(0), 0));
    });
}

/// A page that was written to, and that nobody maps now, is reclaimed by CPU 1 at the `n`th touch of a fault that brings
/// it back. Returns whether the program could write to it while it was on its way to the device.
fn written_during_pageout(mm: &Mm<'_>, n: u32) -> bool {
    let host = mm.platform();
    let (id, file) = (mm.create_space().unwrap(), mm.create_file(1).unwrap());
    mm.space(id).map(pages(AT, 1), Backing::File { file, offset: 0 }, Prot::ReadWrite).unwrap();
    mm.space(id).switch_to().unwrap();
    host.write(mm, id, AT, 1).unwrap();
    mm.drain_lru_batch();
    mm.space(id).advise(pages(AT, 1), Advice::Drop).unwrap();
    let in_io = Rc::new(Cell::new(false));
    let inside = Rc::clone(&in_io);
    host.on_disk_write.borrow_mut().push_back(Box::new(move |mm| {
        inside.set(true);
        mm.platform().stop();
        inside.set(false);
    }));
    // On the side, who stands before a lock lets the other go on.
    let give_way = |mm: &Mm<'_>| {
        if mm.platform().is_aside() {
            mm.platform().stop();
        }
    };
    (0..50).for_each(|_| host.on_pause.borrow_mut().push_back(Box::new(give_way)));
    let reclaim = || give_back(mm, exhaust(mm));
    host.aside(1, reclaim, |_| {
        host.at_touch(0, n, |mm| {
            if !mm.platform().is_aside() {
                mm.platform().resume();
            }
        });
        assert_eq!(mm.space(id).fault(PageNumber(AT).addr(), UserAccess::Read), Ok(()));
        host.all_placed();
        in_io.get() && host.try_write(AT, 2)
    })
}

#[test]
fn a_fault_that_brings_back_a_page_gives_no_right_to_write_while_it_is_written_out() {
    let setup = Setup { cpus: 2, ..Setup::default() };
    let (written, skipped) = everywhere(&setup, None, written_during_pageout);
    assert_eq!((written.iter().filter(|bad| **bad).count(), skipped), (0, 0), "of {}", written.len());
    let (written, _) = everywhere(&setup, Some(Rule::WalkBeforeIo), written_during_pageout);
    assert!(written.contains(&true), "none of {}", written.len());
}

/// CPU 1 has a page cached that is clean and writable; while CPU 0 takes the right to write away it writes.
fn written_during_a_protect(guarantees: bool) -> (bool, Option<u64>) {
    let host = Host::new(Setup { cpus: 2, guarantees, ..Setup::default() });
    host.run(bare("vanilla"), |mm| {
        let (id, file) = (mm.create_space().unwrap(), mm.create_file(1).unwrap());
        mm.space(id).map(pages(AT, 1), Backing::File { file, offset: 0 }, Prot::ReadWrite).unwrap();
        host.on(1, || mm.space(id).switch_to().unwrap());
        host.on(1, || host.read(mm, id, AT)).unwrap();
        let wrote = Rc::new(Cell::new(false));
        let seen = Rc::clone(&wrote);
        host.hold_interrupts.set(true);
        host.on_pause.borrow_mut().push_back(Box::new(move |mm| {
            let host = mm.platform();
            host.uses_windows.set(true);
            seen.set(host.on(1, || host.try_write(AT, 7)));
            host.hold_interrupts.set(false);
        }));
        mm.space(id).protect(pages(AT, 1), Prot::Read).unwrap();
        mm.file(file).write_back().unwrap();
        (wrote.get(), host.on_disk(file, 0))
    })
}

#[test]
fn what_is_written_while_the_right_is_taken_away_reaches_the_file() {
    assert_eq!(written_during_a_protect(true), (false, None));
    assert_eq!(written_during_a_protect(false), (true, Some(7)));
}

/// Two spaces show a page of a file; one has written to it, and so it is dirty: by its entry, or, where that is gone, by
/// itself. In the other, which comes first or last in the reverse map, CPU 1 has begun to write when the page is written back.
/// Whether it still writes while the device reads, how many interrupts CPU 1 got, and what the device has after a second
/// write-back.
fn begun_before_write_back(broken: Option<Rule>, first: bool, by_entry: bool) -> (bool, usize, Option<u64>) {
    let host = Host::new(Setup { cpus: 2, ..Setup::default() });
    host.broken.set(broken);
    host.run(bare("linux"), |mm| {
        let file = mm.create_file(1).unwrap();
        let other = if first { mapped(mm, shared(file), 1) } else { mm.create_space().unwrap() };
        let id = mapped(mm, shared(file), 1);
        if !first {
            mm.space(other).map(pages(AT, 1), shared(file), Prot::ReadWrite).unwrap();
        }
        host.write(mm, id, AT, 1).unwrap();
        if !by_entry {
            mm.space(id).advise(pages(AT, 1), Advice::Drop).unwrap();
        }
        host.on(1, || {
            mm.space(other).switch_to().unwrap();
            assert_eq!(host.read(mm, other, AT), Ok(1));
            assert!(host.begin_write(AT, 2), "its entry is writable and clean");
        });
        host.forget();
        let late = Rc::new(Cell::new(false));
        let seen = Rc::clone(&late);
        host.on_disk_write.borrow_mut().push_back(Box::new(move |mm| seen.set(mm.platform().end_write(1))));
        assert_eq!(mm.file(file).write_back(), Ok(1));
        let interrupts = host.interrupts_to(1);
        // It has its dirty bit all the same.
        mm.file(file).write_back().unwrap();
        (late.get(), interrupts, host.on_disk(file, 0))
    })
}

#[test]
fn a_write_that_has_begun_ends_before_the_device_reads() {
    for first in [false, true] {
        for by_entry in [false, true] {
            let what = format!("first: {first}, by its entry: {by_entry}");
            assert_eq!(begun_before_write_back(None, first, by_entry), (false, 1, Some(2)), "{what}");
            let broken = begun_before_write_back(Some(Rule::FlushWritable), first, by_entry);
            assert_eq!(broken, (true, 0, Some(2)), "{what}: it writes while the device reads");
        }
    }
}

/// The same where an operation has made the entry read-only, and waits for its flush.
fn begun_before_a_protect(broken: Option<Rule>) -> bool {
    let host = Host::new(Setup { cpus: 3, ..Setup::default() });
    host.broken.set(broken);
    host.run(bare("linux"), |mm| {
        let file = mm.create_file(1).unwrap();
        let id = mapped(mm, shared(file), 1);
        host.write(mm, id, AT, 1).unwrap();
        mm.space(id).advise(pages(AT, 1), Advice::Drop).unwrap();
        host.on(1, || {
            mm.space(id).switch_to().unwrap();
            assert_eq!(host.read(mm, id, AT), Ok(1));
            assert!(host.begin_write(AT, 2));
        });
        let late = Rc::new(Cell::new(false));
        let seen = Rc::clone(&late);
        host.hold_interrupts.set(true);
        host.on_pause.borrow_mut().push_back(Box::new(move |mm| {
            let host = mm.platform();
            host.on_disk_write
                .borrow_mut()
                .push_back(Box::new(move |mm| seen.set(mm.platform().end_write(1))));
            host.on(2, || assert_eq!(mm.file(file).write_back(), Ok(1)));
        }));
        mm.space(id).protect(pages(AT, 1), Prot::Read).unwrap();
        late.get()
    })
}

#[test]
fn a_write_that_has_begun_before_a_protect_ends_before_the_device_reads() {
    assert!(!begun_before_a_protect(None));
    assert!(begun_before_a_protect(Some(Rule::FlushWritable)));
}

#[test]
fn pages_that_have_nothing_to_write_cost_no_flush() {
    let host = Host::new(Setup { cpus: 2, ..Setup::default() });
    host.run(bare("linux"), |mm| {
        let file = mm.create_file(8).unwrap();
        let id = mapped(mm, shared(file), 8);
        host.on(1, || {
            mm.space(id).switch_to().unwrap();
            (AT..AT + 8).for_each(|page| assert_eq!(host.read(mm, id, page), Ok(0)));
        });
        host.forget();
        assert_eq!((mm.file(file).write_back(), host.interrupts()), (Ok(0), 0));
    });
}

/// Where there is not a single frame for a batch nothing is written, reclaimed or left locked; what is cut off goes all the same,
/// flushed page by page.
#[test]
fn without_memory_for_a_batch_pages_stay_as_they_are() {
    for policy in ["linux", "vanilla", "quiet"] {
        let host = Host::new(Setup { cpus: 5, frames: 1024, ..Setup::default() });
        host.run(bare(policy), |mm| {
            keep_batches(mm);
            let file = mm.create_file(8).unwrap();
            let id = mapped(mm, shared(file), 8);
            write_all(mm, id, 8);
            host.on(1, || {
                mm.space(id).switch_to().unwrap();
                (AT..AT + 8).for_each(|page| assert_eq!(host.read(mm, id, page), Ok(page)));
            });
            mm.drain_lru_batch();
            let held = take_free(mm);
            assert_eq!(mm.file(file).write_back(), Err(Error::OutOfMemory));
            assert_eq!(mm.frames().alloc(0, AllocFrom::HERE).unwrap_err(), Error::OutOfMemory);
            let audit = mm.validate();
            assert_eq!((audit.broken, audit.mapped, mm.file(file).cached_pages()), (None, 8, Ok(8)));
            assert!((0..8).all(|n| host.on_disk(file, n).is_none()), "nothing was written");
            mm.file(file).set_size(4 * PAGE_SIZE).unwrap();
            let cached =
                (AT + 4..AT + 8).filter(|&page| host.caches(1, page) || host.caches(0, page)).count();
            assert_eq!((cached, mm.file(file).cached_pages()), (0, Ok(4)), "{policy}");
            give_back(mm, held);
            assert_eq!(mm.file(file).write_back(), Ok(4));
            assert!((0..4).all(|n| host.on_disk(file, n) == Some(AT + n)));
            assert_eq!(host.stale.get(), 0);
        });
    }
}

/// Whoever reads by a device makes nothing dirty: of a file that nobody watches a page that is pinned is clean once it is out.
#[test]
fn a_page_that_a_device_reads_is_clean_once_it_was_written_out() {
    let host = Host::new(Setup::default());
    host.run(bare("linux"), |mm| {
        let file = mm.create_file(8).unwrap();
        let id = mapped(mm, shared(file), 8);
        write_all(mm, id, 8);
        let pins = mm.space(id).pin(pages(AT, 3), UserAccess::Read, quietmm::Term::Short).unwrap();
        assert_eq!([(); 2].map(|()| mm.file(file).write_back()), [Ok(8), Ok(0)]);
        mm.unpin(pins);
        assert_eq!(mm.file(file).write_back(), Ok(0));
    });
}

/// Others want a page gone, or old, while it is on its way to the device: it is on its list afterwards as before, and goes the next time.
#[test]
fn a_page_that_others_want_gone_while_it_is_written_out_stays_on_its_list() {
    for advice in [Advice::PageOut, Advice::Cold] {
        let host = Host::new(Setup { cpus: 2, frames: 512, ..Setup::default() });
        host.run(bare("linux"), |mm| {
            let file = mm.create_file(1).unwrap();
            let id = mapped(mm, shared(file), 1);
            host.write(mm, id, AT, 5).unwrap();
            mm.drain_lru_batch();
            host.on_disk_write.borrow_mut().push_back(Box::new(move |mm| {
                mm.platform().on(1, || mm.space(id).advise(pages(AT, 1), advice).unwrap());
            }));
            assert_eq!((mm.file(file).write_back(), settled(mm).broken), (Ok(1), None));
            assert!(host.on_disk_write.borrow().is_empty());
            mm.space(id).advise(pages(AT, 1), Advice::PageOut).unwrap();
            assert_eq!((mm.file(file).cached_pages(), host.on_disk(file, 0)), (Ok(0), Some(5)));
        });
    }
}
