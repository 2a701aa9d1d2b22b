//! [`Prot::None`]: the page stays, with its content and its dirty bit, and nobody can use it, the kernel neither.

use std::cell::Cell;
use std::rc::Rc;

use crate::machine;

use machine::showing::{
    ANON, AT, LARGE, TO, entry, frame, mapped, private, read_in, shared, two_nodes, write_all, write_in,
};
use machine::swapping::{DEVICE, squeeze, swapping};
use machine::{Host, Mm, Setup, bare, counted, exhaust, give_back, pages, settled};
use quietmm::platform::Cpus;
use quietmm::{Advice, Backing, Counter, Entry, Error, FrameNumber, NodeId, PageNumber, Prot, SpaceId};

/// Pages that everything is about.
const COUNT: u64 = 8;

/// The page is there, and nobody can use it: not by the tables, and not by guessing what their entry says (L1TF).
fn out_of_reach(mm: &Mm<'_>, id: SpaceId, page: u64) {
    let (host, entry) = (mm.platform(), entry(mm, id, page));
    assert!(
        entry.is_prot_none() && entry.is_mapped() && !entry.is_present() && !entry.is_taken(),
        "{entry:?}"
    );
    assert_eq!(host.read(mm, id, page), Err(Error::NotPermitted(PageNumber(page))));
    for cpu in 0..host.possible_cpus() as u16 {
        host.on(cpu, || assert_eq!(host.try_read_as_kernel(page), None, "the kernel reads {page:#x}"));
    }
    let address = (entry.0 & 0x000f_ffff_ffff_f000) >> 12;
    assert!(address >= u64::from(FrameNumber::END.0), "{entry:?} names memory");
}

/// A space that shows eight pages at `AT`, each written with its number; CPU 1 runs there too, and has written to the first.
fn written(mm: &Mm<'_>, backing: Backing) -> SpaceId {
    let (host, id) = (mm.platform(), mapped(mm, backing, COUNT));
    write_all(mm, id, COUNT);
    host.on(1, || {
        mm.space(id).switch_to().unwrap();
        host.write(mm, id, AT, AT).unwrap();
    });
    id
}

fn nobody(mm: &Mm<'_>, id: SpaceId) {
    mm.space(id).protect(pages(AT, COUNT), Prot::None).unwrap();
    (AT..AT + COUNT).for_each(|page| out_of_reach(mm, id, page));
}

/// All is as it was written.
fn is_back(mm: &Mm<'_>, id: SpaceId, at: u64) {
    mm.space(id).protect(pages(at, COUNT), Prot::ReadWrite).unwrap();
    for i in 0..COUNT {
        assert_eq!(read_in(mm, id, at + i), Ok(AT + i));
        write_in(mm, id, at + i, AT + i).unwrap();
    }
}

fn machine() -> Host {
    Host::new(Setup { cpus: 2, ..Setup::default() })
}

#[test]
fn what_nobody_may_use_is_not_present_and_comes_back_without_a_flush() {
    for kind in 0..3 {
        let host = machine();
        host.run(bare("linux"), |mm| {
            let file = mm.create_file(COUNT).unwrap();
            let backing = [ANON, shared(file), private(file)][kind];
            let id = written(mm, backing);
            let frames: Vec<_> = (AT..AT + COUNT).map(|page| frame(mm, id, page)).collect();
            host.forget();
            nobody(mm, id);
            assert_eq!(host.interrupts_to(1), 1, "one flush takes all of it away");
            let before = settled(mm);
            host.forget();
            is_back(mm, id, AT);
            assert_eq!(host.interrupts(), 0, "nobody has it: to give it back costs nothing");
            assert!((AT..AT + COUNT).zip(&frames).all(|(page, &was)| frame(mm, id, page) == was));
            assert_eq!(settled(mm), before);
            nobody(mm, id);
            host.forget();
            mm.space(id).advise(pages(AT, 1), Advice::Drop).unwrap();
            mm.space(id).move_range(pages(AT + 1, 1), PageNumber(TO)).unwrap();
            assert_eq!(host.interrupts(), 0, "nor does it to take it away");
            mm.space(id).unmap(pages(AT, 1)).unwrap();
            mm.space(id).unmap(pages(AT + 2, COUNT - 2)).unwrap();
            mm.space(id).unmap(pages(TO, 1)).unwrap();
            assert_eq!((settled(mm).mapped, settled(mm).anon, host.stale.get()), (0, 0, 0));
        });
    }
}

#[test]
fn to_read_is_given_back_to_what_is_shared_and_to_write_by_a_fault() {
    let host = machine();
    host.run(bare("linux"), |mm| {
        let id = written(mm, ANON);
        nobody(mm, id);
        let child = mm.space(id).fork().unwrap();
        (AT..AT + COUNT).for_each(|page| assert!(entry(mm, child, page).is_prot_none()));
        is_back(mm, child, AT);
        let copied = counted(mm, Counter::PgCopied);
        assert_eq!(copied, COUNT, "each write finds that the page is the other's too");
        out_of_reach_in(mm, id);
        mm.space(id).switch_to().unwrap();
        mm.space(id).protect(pages(AT, COUNT), Prot::Read).unwrap();
        assert_eq!(host.read(mm, id, AT + 1), Ok(AT + 1));
        assert_eq!(host.write(mm, id, AT + 1, 0), Err(Error::NotPermitted(PageNumber(AT + 1))));
        is_back(mm, id, AT);
        assert_eq!(counted(mm, Counter::PgCopied), copied, "it has them alone by now");
        assert_eq!((settled(mm).anon, settled(mm).mapped), (2 * COUNT, 2 * COUNT));
    });
}

fn out_of_reach_in(mm: &Mm<'_>, id: SpaceId) {
    mm.space(id).switch_to().unwrap();
    (AT..AT + COUNT).for_each(|page| out_of_reach(mm, id, page));
}

#[test]
fn it_moves_to_other_addresses_and_nodes() {
    let host = Host::new(two_nodes());
    host.run(bare("linux"), |mm| {
        let id = written(mm, ANON);
        nobody(mm, id);
        mm.space(id).move_range(pages(AT, COUNT), PageNumber(TO)).unwrap();
        (TO..TO + COUNT).for_each(|page| out_of_reach(mm, id, page));
        let before = entry(mm, id, TO).frame();
        assert_eq!(mm.space(id).migrate(pages(TO, COUNT), NodeId(1)), Ok(COUNT));
        (TO..TO + COUNT).for_each(|page| out_of_reach(mm, id, page));
        assert_ne!(entry(mm, id, TO).frame(), before);
        is_back(mm, id, TO);
        assert_eq!((settled(mm).anon, host.stale.get()), (COUNT, 0));
    });
}

#[test]
fn what_was_written_before_is_written_back() {
    for guarantees in [true, false] {
        let host = Host::new(Setup { cpus: 2, guarantees, ..Setup::default() });
        host.run(bare("vanilla"), |mm| {
            let file = mm.create_file(COUNT).unwrap();
            let id = written(mm, shared(file));
            nobody(mm, id);
            assert_eq!(mm.file(file).write_back(), Ok(COUNT));
            assert!((0..COUNT).all(|i| host.on_disk(file, i) == Some(AT + i)));
            (AT..AT + COUNT).for_each(|page| out_of_reach(mm, id, page));
            assert_eq!(mm.file(file).write_back(), Ok(0));
            is_back(mm, id, AT);
            assert_eq!(mm.file(file).write_back(), Ok(COUNT));
        });
    }
}

/// CPU 1 has a page of a file cached. Just before CPU 0's `nth` access to its entry in a protect it writes, if that needs no
/// fault. What the device has of the page when all is written back, and whether that is what CPU 1 wrote, if it did.
fn written_in_the_middle(guarantees: bool, nth: u32) -> Option<(Option<u64>, bool)> {
    let host = Host::new(Setup { cpus: 2, guarantees, ..Setup::default() });
    host.run(bare("vanilla"), |mm| {
        let file = mm.create_file(1).unwrap();
        let id = mapped(mm, shared(file), 1);
        host.on(1, || {
            mm.space(id).switch_to().unwrap();
            assert_eq!(host.read(mm, id, AT), Ok(0));
        });
        let wrote = Rc::new(Cell::new(None));
        let note = Rc::clone(&wrote);
        let write = move |mm: &Mm<'_>| note.set(Some(mm.platform().on(1, || mm.platform().try_write(AT, 5))));
        host.watch(AT, nth, Box::new(write));
        mm.space(id).protect(pages(AT, 1), Prot::None).unwrap();
        host.watch_nothing();
        let wrote: bool = wrote.get()?;
        mm.file(file).write_back().unwrap();
        Some((host.on_disk(file, 0), wrote))
    })
}

#[test]
fn a_write_at_the_last_moment_is_not_lost() {
    for guarantees in [true, false] {
        let all: Vec<_> = (1..).map_while(|nth| written_in_the_middle(guarantees, nth)).collect();
        assert!(all.iter().filter(|(_, wrote)| *wrote).count() > 1, "{all:?}");
        assert!(all.iter().all(|&(kept, wrote)| !wrote || kept == Some(5)), "{all:?}");
    }
}

#[test]
fn it_goes_to_swap_and_comes_back_out_of_reach() {
    for policy in ["vanilla", "linux", "quiet"] {
        let host = machine();
        host.run(swapping(policy), |mm| {
            mm.swap().on(DEVICE, 1024, 0).unwrap();
            let id = written(mm, ANON);
            nobody(mm, id);
            squeeze(mm);
            assert_eq!(settled(mm).swapped, COUNT, "{policy}");
            for page in AT..AT + COUNT {
                assert_eq!(host.read(mm, id, page), Err(Error::NotPermitted(PageNumber(page))));
            }
            mm.swap().off(DEVICE).unwrap();
            (AT..AT + COUNT).for_each(|page| out_of_reach(mm, id, page));
            mm.swap().on(DEVICE, 1024, 0).unwrap();
            squeeze(mm);
            // Rights that come back while the page is away are there when it is.
            is_back(mm, id, AT);
            nobody(mm, id);
            mm.space(id).unmap(pages(AT, COUNT)).unwrap();
            let end = settled(mm);
            assert_eq!((end.anon, end.swapped, mm.swap().usage().used), (0, 0, 0), "{policy}");
        });
    }
}

#[test]
fn clean_and_dirty_pages_of_a_file_leave_memory_and_keep_what_was_written() {
    let host = machine();
    host.run(bare("linux"), |mm| {
        let file = mm.create_file(COUNT).unwrap();
        let id = written(mm, shared(file));
        mm.drain_lru_batch();
        nobody(mm, id);
        give_back(mm, exhaust(mm));
        assert_eq!((mm.file(file).cached_pages(), settled(mm).mapped), (Ok(0), 0));
        assert!((0..COUNT).all(|i| host.on_disk(file, i) == Some(AT + i)));
        is_back(mm, id, AT);
    });
}

#[test]
fn a_large_page_goes_out_of_reach_whole_and_comes_back_in_parts() {
    let host = machine();
    host.run(swapping("linux"), |mm| {
        mm.swap().on(DEVICE, 1024, 0).unwrap();
        let id = mm.create_space().unwrap();
        mm.space(id).map(pages(LARGE, 512), ANON, Prot::ReadWrite).unwrap();
        mm.space(id).advise(pages(LARGE, 512), Advice::Large).unwrap();
        for cpu in [1, 0] {
            host.on(cpu, || {
                mm.space(id).switch_to().unwrap();
                host.write(mm, id, LARGE + 7, 7).unwrap();
            });
        }
        mm.space(id).protect(pages(LARGE, 512), Prot::None).unwrap();
        assert!(entry(mm, id, LARGE).has(Entry::LARGE | Entry::DIRTY));
        [0, 7, 511].into_iter().for_each(|i| out_of_reach(mm, id, LARGE + i));
        assert_eq!(entry(mm, id, LARGE + 511).frame(), entry(mm, id, LARGE).frame().add(511));
        mm.space(id).protect(pages(LARGE, 512), Prot::ReadWrite).unwrap();
        assert_eq!((host.read(mm, id, LARGE + 7), counted(mm, Counter::LargeSplit)), (Ok(7), 0));
        mm.space(id).protect(pages(LARGE, 512), Prot::None).unwrap();
        mm.space(id).protect(pages(LARGE + 7, 1), Prot::Read).unwrap();
        assert_eq!((host.read(mm, id, LARGE + 7), counted(mm, Counter::LargeSplit)), (Ok(7), 1));
        [0, 6, 8, 511].into_iter().for_each(|i| out_of_reach(mm, id, LARGE + i));
        assert_eq!((settled(mm).anon, settled(mm).mapped), (512, 512));
        // Reclaim makes one small that nobody can use, too.
        mm.space(id).unmap(pages(LARGE, 512)).unwrap();
        mm.space(id).map(pages(LARGE, 512), ANON, Prot::ReadWrite).unwrap();
        mm.space(id).advise(pages(LARGE, 512), Advice::Large).unwrap();
        host.write(mm, id, LARGE + 9, 9).unwrap();
        mm.space(id).protect(pages(LARGE, 512), Prot::None).unwrap();
        squeeze(mm);
        squeeze(mm);
        assert_eq!((settled(mm).swapped, counted(mm, Counter::LargeSplit)), (512, 2));
        mm.space(id).protect(pages(LARGE, 512), Prot::Read).unwrap();
        assert_eq!(host.read(mm, id, LARGE + 9), Ok(9));
    });
}
