//! The faults that grown systems had with what an entry says and the hardware has cached of it: dirty and accessed bits,
//! addresses that lead elsewhere, guarantees that are not given. As `pitfalls.rs`.

use crate::machine;

use std::cell::Cell;
use std::rc::Rc;

use machine::faults::{
    AT, TO, found, in_the_window_of, machine, own, read_all, reclaim_all, run_in, showing, write_first,
};
use machine::{Host, Mm, Setup, bare, pages, pcp};
use quietmm::{AllocFrom, Backing, Config, Error, PageNumber, Prot, Rule};

/// CPU 1 writes, CPU 0 writes the file back, CPU 1 writes again, CPU 0 reclaims: what CPU 1 reads in the end.
fn written_after_write_back(broken: Option<Rule>, guarantees: bool) -> u64 {
    let host = Host::new(Setup { cpus: 2, frames: 1024, guarantees, ..Setup::default() });
    host.broken.set(broken);
    host.run(bare(if guarantees { "linux" } else { "vanilla" }), |mm| {
        let (id, file) = showing(mm, 1, &[1]);
        write_first(mm, id, 1, 1);
        assert_eq!(mm.file(file).write_back(), Ok(1));
        assert_eq!(host.on_disk(file, 0), Some(1));
        host.on(1, || host.write(mm, id, AT, 2).unwrap());
        reclaim_all(mm);
        assert_eq!(mm.file(file).cached_pages(), Ok(0));
        host.on(1, || host.read(mm, id, AT).unwrap())
    })
}

#[test]
fn p36_a_dirty_bit_goes_only_with_the_right_to_write() {
    assert_eq!(written_after_write_back(None, true), 2);
    assert_eq!(written_after_write_back(None, false), 2, "and on a machine that guarantees nothing");
    assert_eq!(written_after_write_back(Some(Rule::CleanProtects), true), 1, "the second write is lost");
}

/// While CPU 0 writes a page out, CPU 1 wants to write to it: in the space that shows it already, or in one that must
/// fault it in. Whether it could before the device was done; what it reads, and how many pages are dirty, afterwards.
fn written_during_write_back(broken: Option<Rule>, maps: bool) -> (bool, u64, u64) {
    let host = machine(2, broken);
    host.run(bare("linux"), |mm| {
        let (first, file) = showing(mm, 1, &[1]);
        write_first(mm, first, 1, 1);
        let id = if maps { first } else { mm.create_space().unwrap() };
        if !maps {
            mm.space(id).map(pages(AT, 1), Backing::File { file, offset: 0 }, Prot::ReadWrite).unwrap();
            host.on(1, || mm.space(id).switch_to().unwrap());
        }
        let wrote = Rc::new(Cell::new(false));
        let (early, seen) = (Rc::clone(&wrote), Rc::clone(&wrote));
        let (during, could_write) = found();
        host.on_disk_write.borrow_mut().push_back(Box::new(move |mm| {
            mm.platform().resume();
            during.set(Some(early.get()));
        }));
        host.aside(
            1,
            || {
                host.write(mm, id, AT, 2).unwrap();
                seen.set(true);
            },
            |_| assert_eq!(mm.file(file).write_back(), Ok(1)),
        );
        assert!(wrote.get(), "it writes as soon as the page is out");
        let read = host.on(1, || host.read(mm, id, AT).unwrap());
        (could_write(), read, mm.file(file).write_back().unwrap())
    })
}

#[test]
fn p36_a_write_waits_until_the_page_is_out() {
    for maps in [true, false] {
        assert_eq!(written_during_write_back(None, maps), (false, 2, 1));
        assert!(
            written_during_write_back(Some(Rule::WriteWaitsForIo), maps).0,
            "it writes while the device reads"
        );
    }
}

/// CPU 0 moves a page that CPU 2 has written to. While that waits for its flush, CPU 1 begins to write the page back, and
/// stands still while the device has it. Whether CPU 2 can write at the new address then, and what is there in the end.
fn written_after_a_move(broken: Option<Rule>) -> (bool, u64) {
    let host = machine(3, broken);
    host.run(bare("linux"), |mm| {
        let (id, file) = showing(mm, 1, &[0, 2]);
        write_first(mm, id, 2, 1);
        host.on_disk_write.borrow_mut().push_back(Box::new(|mm| mm.platform().stop()));
        let early = host.aside(
            1,
            || assert_eq!(mm.file(file).write_back(), Ok(1)),
            |_| {
                host.hold_interrupts.set(true);
                host.on_pause.borrow_mut().push_back(Box::new(|mm| {
                    assert!(mm.platform().resume(), "the device has the page");
                }));
                mm.space(id).move_range(pages(AT, 1), PageNumber(TO)).unwrap();
                host.hold_interrupts.set(false);
                host.on(2, || host.try_write(TO, 2))
            },
        );
        host.on(2, || host.write(mm, id, TO, 2).unwrap());
        reclaim_all(mm);
        assert_eq!(mm.file(file).cached_pages(), Ok(0));
        (early, host.read(mm, id, TO).unwrap())
    })
}

#[test]
fn p36_a_page_that_is_moved_cannot_be_written_until_it_is_out() {
    assert_eq!(written_after_a_move(None), (false, 2));
    assert_eq!(written_after_a_move(Some(Rule::WriteWaitsForIo)), (true, 2));
}

/// CPU 2 has written to a page, or only read it. CPU 0 makes it read-only; while that waits for its flush, CPU 1 writes
/// the file back. Whether CPU 2 can still write when the device has the page.
fn written_back_during_a_protect(broken: Option<Rule>, guarantees: bool, dirty_here: bool) -> bool {
    let host = Host::new(Setup { cpus: 3, frames: 1024, guarantees, ..Setup::default() });
    host.broken.set(broken);
    host.run(bare("vanilla"), |mm| {
        let (id, file) = showing(mm, 1, &[0, 2]);
        write_first(mm, id, 0, 1);
        if !dirty_here {
            // Dirty is only the page, by an entry that is gone.
            mm.space(id).unmap(pages(AT, 1)).unwrap();
            mm.space(id).map(pages(AT, 1), Backing::File { file, offset: 0 }, Prot::ReadWrite).unwrap();
        }
        host.on(2, || assert_eq!(host.read(mm, id, AT), Ok(1)));
        if dirty_here {
            host.on(2, || host.write(mm, id, AT, 1).unwrap());
        }
        host.hold_interrupts.set(true);
        let (late, could_write) = found();
        host.on_pause.borrow_mut().push_back(Box::new(move |mm| {
            let host = mm.platform();
            host.on_disk_write.borrow_mut().push_back(Box::new(move |mm| {
                let host = mm.platform();
                late.set(Some(host.on(2, || host.try_write(AT, 2))));
            }));
            assert_eq!(host.on(1, || mm.file(file).write_back()), Ok(1));
        }));
        mm.space(id).protect(pages(AT, 1), Prot::Read).unwrap();
        could_write()
    })
}

#[test]
fn p36_a_page_that_becomes_read_only_is_flushed_before_its_io() {
    for dirty_here in [true, false] {
        for guarantees in [true, false] {
            let late = written_back_during_a_protect(None, guarantees, dirty_here);
            assert!(!late, "guarantees: {guarantees}, dirty: {dirty_here}");
        }
    }
    for (guarantees, dirty_here) in [(true, true), (false, true), (false, false)] {
        let late = written_back_during_a_protect(Some(Rule::CleanProtects), guarantees, dirty_here);
        assert!(late, "guarantees: {guarantees}, dirty: {dirty_here}");
    }
}

#[test]
fn p37_an_address_is_flushed_before_a_copy_is_mapped_there() {
    let private = |file| Backing::Private { file, offset: 0 };
    let seen = |broken| {
        in_the_window_of(broken, private, |mm, id| {
            let host = mm.platform();
            host.write(mm, id, AT, 7).unwrap();
            (host.read(mm, id, AT).unwrap(), host.on(2, || host.read(mm, id, AT).unwrap()))
        })
    };
    assert_eq!(seen(None), (7, 7));
    assert_eq!(seen(Some(Rule::RefaultAfterFlush)), (7, 0), "two threads, two contents");
}

/// CPUs 1 and 2 have a page of a file cached that their space shows privately, and whose translations were taken away so often
/// before. CPU 0 has cleared its entry and waits for the flush. Whether CPU 2 still has the page when CPU 3 has mapped a copy.
fn copied_when_old(broken: Option<Rule>, generation: u64) -> bool {
    let host = machine(4, broken);
    host.run(Config { page_lists: pcp(31), ..bare("linux") }, |mm| {
        let (id, file) = (mm.create_space().unwrap(), mm.create_file(32).unwrap());
        mm.space(id).map(pages(AT, 32), Backing::Private { file, offset: 0 }, Prot::ReadWrite).unwrap();
        run_in(mm, id, &[1, 2, 3]);
        host.on(1, || host.grow_old(mm, id, generation));
        read_all(mm, id, 1, 32);
        read_all(mm, id, 2, 32);
        // What CPU 3 will need is on its lists.
        host.on(3, || {
            mm.frames().drain_here();
            mm.frames().free(mm.frames().alloc(0, AllocFrom::NOW).unwrap());
        });
        host.hold_interrupts.set(true);
        let (seen, result) = found();
        host.on_pause.borrow_mut().push_back(Box::new(move |mm| {
            let host = mm.platform();
            host.hold_interrupts.set(false);
            assert!(host.caches(2, AT), "the window is open");
            host.on(3, || host.write(mm, id, AT, 7).unwrap());
            seen.set(Some(host.caches(2, AT)));
        }));
        reclaim_all(mm);
        // And again, with nothing outstanding.
        host.on(3, || host.write(mm, id, AT + 1, 8).unwrap());
        assert!(broken.is_some() || host.on(2, || host.read(mm, id, AT)) == Ok(7));
        result()
    })
}

#[test]
fn p37_a_generation_that_is_too_large_for_an_entry_is_waited_for_all_the_same() {
    // The last that an entry can keep, and those after it.
    for generation in [0, (1 << 43) - 10, (1 << 50) - 40, (1 << 50) - 2, 1 << 50, u64::MAX / 2] {
        assert!(!copied_when_old(None, generation), "{generation:#x}");
    }
    assert!(copied_when_old(Some(Rule::RefaultAfterFlush), 1 << 50), "two threads, two frames");
}

/// CPU 2 has a page cached that a fork shares; CPU 1 writes to it and gets a copy. What each then reads.
fn copied(broken: Option<Rule>) -> (u64, u64) {
    let host = machine(3, broken);
    host.run(bare("vanilla"), |mm| {
        let id = own(mm, 1, &[1, 2]);
        write_first(mm, id, 1, 5);
        host.on(1, || mm.space(id).fork().unwrap());
        let read = |cpu| host.on(cpu, || host.read(mm, id, AT).unwrap());
        assert_eq!(read(2), 5);
        host.on(1, || host.write(mm, id, AT, 7).unwrap());
        (read(1), read(2))
    })
}

#[test]
fn p37_the_original_is_flushed_before_its_copy_is_mapped() {
    assert_eq!(copied(None), (7, 7));
    assert_eq!(copied(Some(Rule::FlushBeforeCopyMaps)), (7, 5), "two threads, two contents");
}

/// CPU 1 has read a page. CPU 0 ages and reclaims it; just before the core's `nth` access to the entry CPU 1 writes,
/// if it can without a fault. Whether it came to that, and whether the write is lost.
fn written_at(broken: Option<Rule>, policy: &str, nth: u32) -> (bool, bool) {
    let host = machine(2, broken);
    host.run(bare(policy), |mm| {
        let (id, file) = showing(mm, 1, &[1]);
        read_all(mm, id, 1, 1);
        let wrote = Rc::new(Cell::new(None));
        let seen = Rc::clone(&wrote);
        let write = move |mm: &Mm<'_>| {
            let host = mm.platform();
            seen.set(Some(host.on(1, || host.try_write(AT, 9))));
        };
        host.on(1, || host.watch(AT, nth, Box::new(write)));
        reclaim_all(mm);
        assert_eq!(mm.file(file).cached_pages(), Ok(0));
        host.watch_nothing();
        let kept = host.on(1, || host.read(mm, id, AT)) == Ok(9);
        (wrote.get().is_some(), wrote.get() == Some(true) && !kept)
    })
}

/// The placements of a write among the accesses to the entry, and how many of them lose it.
fn placements(broken: Option<Rule>, policy: &str) -> (u32, u32) {
    let lost = (1..100).map(|nth| written_at(broken, policy, nth)).take_while(|(came, _)| *came);
    lost.fold((0, 0), |(all, lost), (_, one)| (all + 1, lost + u32::from(one)))
}

#[test]
fn p38_a_dirty_bit_set_while_the_accessed_bit_is_cleared_survives() {
    for policy in ["vanilla", "linux"] {
        let (all, lost) = placements(None, policy);
        assert!(all >= 4, "{all} accesses to the entry");
        assert_eq!(lost, 0, "{policy}");
        let (all, lost) = placements(Some(Rule::AtomicAccessedClear), policy);
        assert!(lost > 0 && lost < all, "{policy}: {lost} of {all}");
    }
}

/// CPU 1 has read a page of a machine that promises nothing of writes through clean entries. CPU 0 reclaims the page,
/// and as soon as its entry is out CPU 1 writes. Whether it could, and whether the write is lost.
fn written_without_a_walk(broken: Option<Rule>, policy: &str, guarantees: bool) -> (bool, bool) {
    let host = Host::new(Setup { cpus: 2, frames: 1024, guarantees, ..Setup::default() });
    host.broken.set(broken);
    host.run(bare(policy), |mm| {
        let (id, _) = showing(mm, 1, &[1]);
        read_all(mm, id, 1, 1);
        let (wrote, could_write) = found();
        host.when_unmapped(id, AT, move |mm| {
            let host = mm.platform();
            wrote.set(Some(host.on(1, || host.try_write(AT, 9))));
        });
        reclaim_all(mm);
        let kept = host.on(1, || host.read(mm, id, AT)) == Ok(9);
        (could_write(), could_write() && !kept)
    })
}

#[test]
fn p39_a_policy_without_its_guarantee_is_refused() {
    let host = Host::new(Setup { guarantees: false, ..Setup::default() });
    for (policy, name, guarantee) in [
        ("linux", "unmap=batch", "with_clean_write_walks"),
        ("vanilla+unmap=batch-clean", "unmap=batch-clean", "with_clean_write_walks"),
        ("vanilla+aging=no-flush", "aging=no-flush", "with_unflushed_accessed"),
    ] {
        let refused = host.make(bare(policy)).err();
        assert_eq!(refused, Some(Error::GuaranteeMissing { policy: name, guarantee }));
    }
    assert_eq!(written_without_a_walk(None, "vanilla", false), (false, false), "flushed before it leaves");
    assert_eq!(written_without_a_walk(None, "linux", true), (false, false), "with the guarantee it walks");
    for policy in ["linux", "linux+unmap=batch-clean"] {
        let lost = written_without_a_walk(Some(Rule::AskGuarantees), policy, false);
        assert_eq!(lost, (true, true), "{policy}: made all the same, it loses a write");
    }
}

/// CPU 1 reads a page that nobody has used for a while, and writes to it a moment later, each at some access of CPU 0's to the entry, which loses a right
/// of it meanwhile. Whether the write came, and what the file has on its device in the end.
fn used_and_written_meanwhile(policy: &str, first: u32, then: u32) -> (bool, Option<u64>) {
    let host = machine(2, None);
    host.run(bare(policy), |mm| {
        let (id, file) = (mm.create_space().unwrap(), mm.create_file(1).unwrap());
        let backing = Backing::File { file, offset: 0 };
        mm.space(id).map(pages(AT, 1), backing, Prot::ReadWriteExecute).unwrap();
        run_in(mm, id, &[0, 1]);
        host.read(mm, id, AT).unwrap();
        host.make_cold(AT);
        let wrote = host.use_and_write(AT, (first, then), 9);
        mm.space(id).protect(pages(AT, 1), Prot::ReadWrite).unwrap();
        host.watch_nothing();
        mm.file(file).write_back().unwrap();
        (wrote.get(), host.on_disk(file, 0))
    })
}

#[test]
fn what_is_used_and_then_written_while_its_rights_change_is_dirty() {
    for policy in ["linux", "quiet"] {
        let mut written = 0;
        for (first, then) in (1..6).flat_map(|first| (1..4).map(move |then| (first, then))) {
            let (wrote, kept) = used_and_written_meanwhile(policy, first, then);
            assert!(!wrote || kept == Some(9), "{policy}: read at access {first}, and written {then} later");
            written += u32::from(wrote);
        }
        assert!(written > 2, "{policy}: {written} times");
    }
}
