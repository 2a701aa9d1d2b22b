//! Which pages are in memory, and what programs say of that: populate, `WillNeed`, `Cold`, `PageOut`.

use crate::machine;

use machine::showing::{AT, LARGE, entry, mapped, private, shared};
use machine::swapping::{self, DEVICE, anonymous, is_out, reclaim, sound, swapping, take_free, written};
use machine::{Host, Mm, Setup, bare, give_back, pages, settled};
use quietmm::addr::PAGE_SIZE;
use quietmm::{Advice, Backing, Config, Counter, Error, FileId, PageNumber, Prot, SpaceId, UserAccess};

const OWN: u64 = swapping::AT;

fn resident(mm: &Mm<'_>, id: SpaceId, at: u64, count: u64) -> Vec<u8> {
    let mut all = vec![7; count as usize];
    let said = mm.space(id).residency(pages(at, count), &mut all).unwrap();
    assert_eq!(said, all.iter().map(|&there| u64::from(there)).sum::<u64>());
    all
}

fn advise(mm: &Mm<'_>, id: SpaceId, at: u64, count: u64, advice: Advice) {
    mm.space(id).advise(pages(at, count), advice).unwrap();
}

/// A file of so many pages, each of which has its number, on its device alone.
fn on_device(mm: &Mm<'_>, count: u64) -> FileId {
    let file = mm.create_file(count).unwrap();
    (0..count).for_each(|page| _ = mm.file(file).write(page * PAGE_SIZE, &page.to_ne_bytes()).unwrap());
    mm.file(file).write_back().unwrap();
    mm.drain_lru_batch();
    assert_eq!(mm.file(file).evict(0, count), Ok(count));
    file
}

#[test]
fn populate_brings_what_is_missing_by_faults_and_nothing_else() {
    let host = Host::new(Setup::default());
    host.run(bare("linux"), |mm| {
        let id = mapped(mm, Backing::Anonymous, 32);
        let space = mm.space(id);
        host.write(mm, id, AT + 3, 33).unwrap();
        let before = mm.counter(Counter::PgFault);
        space.populate(pages(AT, 32), UserAccess::Write).unwrap();
        assert_eq!(mm.counter(Counter::PgFault) - before, 31);
        space.populate(pages(AT, 32), UserAccess::Write).unwrap();
        assert_eq!(mm.counter(Counter::PgFault) - before, 31, "all are there");
        assert!((AT..AT + 32).all(|page| entry(mm, id, page).permits(UserAccess::Write)));
        assert_eq!(host.read(mm, id, AT + 3), Ok(33));
        // By advice it is the same.
        space.advise(pages(AT, 32), Advice::Drop).unwrap();
        advise(mm, id, AT, 32, Advice::PopulateRead);
        assert_eq!(mm.counter(Counter::PgFault) - before, 63);
        space.protect(pages(AT, 32), Prot::Read).unwrap();
        assert_eq!(
            space.advise(pages(AT, 32), Advice::PopulateWrite),
            Err(Error::NotPermitted(PageNumber(AT)))
        );
    });
}

#[test]
fn populate_says_of_the_first_page_why_it_cannot_be_had() {
    let host = Host::new(Setup::default());
    host.run(bare("linux"), |mm| {
        let file = mm.create_file(4).unwrap();
        let id = mapped(mm, shared(file), 8);
        let space = mm.space(id);
        assert_eq!(space.populate(pages(AT, 8), UserAccess::Read), Err(Error::BeyondFile));
        assert_eq!(resident(mm, id, AT, 8), [1, 1, 1, 1, 0, 0, 0, 0]);
        assert_eq!(space.populate(pages(AT + 6, 4), UserAccess::Read), Err(Error::BeyondFile));
        space.unmap(pages(AT + 2, 2)).unwrap();
        assert_eq!(space.populate(pages(AT, 4), UserAccess::Read), Err(Error::NotMapped(PageNumber(AT + 2))));
        assert_eq!(space.populate(pages(AT, 0), UserAccess::Read), Err(Error::BadRange));
    });
}

/// A copy of a page of a file that is out is not there, though the page that it was made of is.
#[test]
fn what_is_in_swap_of_a_private_file_is_not_in_memory() {
    let host = Host::new(Setup::default());
    host.run(swapping("linux"), |mm| {
        mm.swap().on(DEVICE, 512, 0).unwrap();
        let file = on_device(mm, 4);
        let id = mapped(mm, private(file), 4);
        host.write(mm, id, AT + 1, 7).unwrap();
        advise(mm, id, AT, 4, Advice::PageOut);
        mm.file(file).read(PAGE_SIZE, &mut [0; PAGE_SIZE as usize + 1]).unwrap();
        assert!(is_out(mm, id, AT + 1));
        assert_eq!(resident(mm, id, AT, 4), [0, 0, 1, 0]);
        assert_eq!(host.read(mm, id, AT + 1), Ok(7));
        assert_eq!(resident(mm, id, AT, 4), [0, 1, 1, 0]);
    });
}

#[test]
fn residency_counts_entries_caches_and_nothing_else() {
    let host = Host::new(Setup::default());
    host.run(swapping("linux"), |mm| {
        let id = written(mm, 512, 8);
        assert_eq!(resident(mm, id, OWN, 8), [1; 8]);
        advise(mm, id, OWN + 2, 3, Advice::PageOut);
        assert_eq!(resident(mm, id, OWN, 8), [1, 1, 0, 0, 0, 1, 1, 1]);
        mm.space(id).advise(pages(OWN, 1), Advice::Drop).unwrap();
        mm.space(id).protect(pages(OWN + 7, 1), Prot::None).unwrap();
        assert_eq!(resident(mm, id, OWN, 8), [0, 1, 0, 0, 0, 1, 1, 1]);
        // Of files what is in their caches, mapped or not.
        let file = on_device(mm, 8);
        for shown in [shared(file), private(file)] {
            let other = mapped(mm, shown, 8);
            mm.file(file).evict(0, 8).unwrap();
            assert_eq!(resident(mm, other, AT, 8), [0; 8]);
            mm.file(file).read(2 * PAGE_SIZE, &mut [0; 8]).unwrap();
            host.read(mm, other, AT + 5).unwrap();
            mm.drain_lru_batch();
            assert_eq!(resident(mm, other, AT, 8), [0, 0, 1, 0, 0, 1, 0, 0]);
            mm.space(id).switch_to().unwrap();
            mm.space(other).destroy().unwrap();
        }
        let space = mm.space(id);
        assert_eq!(space.residency(pages(OWN, 8), &mut [0; 7]), Err(Error::BadRange));
        assert_eq!(
            space.residency(pages(OWN + 4, 8), &mut [0; 8]),
            Err(Error::NotMapped(PageNumber(OWN + 8)))
        );
        sound(mm);
    });
}

#[test]
fn a_part_of_a_large_page_is_in_memory_as_the_whole_is() {
    let host = Host::new(Setup { frames: 8192, ..Setup::default() });
    host.run(swapping("linux"), |mm| {
        let id = mm.create_space().unwrap();
        let space = mm.space(id);
        space.switch_to().unwrap();
        space.map(pages(LARGE, 1024), Backing::Anonymous, Prot::ReadWrite).unwrap();
        advise(mm, id, LARGE, 1024, Advice::Large);
        space.populate(pages(LARGE + 5, 1), UserAccess::Write).unwrap();
        assert_eq!(mm.counter(Counter::LargeFault), 1);
        host.write(mm, id, LARGE + 512, 1).unwrap();
        assert_eq!(resident(mm, id, LARGE + 510, 4), [1, 1, 1, 1]);
        space.advise(pages(LARGE + 512, 512), Advice::Drop).unwrap();
        assert_eq!(resident(mm, id, LARGE + 510, 4), [1, 1, 0, 0]);
        // It goes in small ones, and whole.
        mm.swap().on(DEVICE, 1024, 0).unwrap();
        host.write(mm, id, LARGE + 7, 77).unwrap();
        advise(mm, id, LARGE, 512, Advice::PageOut);
        assert_eq!(resident(mm, id, LARGE, 512), [0; 512]);
        assert_eq!(host.read(mm, id, LARGE + 7), Ok(77));
        sound(mm);
    });
}

#[test]
fn what_a_program_will_need_is_read_before_it_faults() {
    let host = Host::new(Setup::default());
    host.run(swapping("linux"), |mm| {
        let file = on_device(mm, 40);
        let id = mapped(mm, shared(file), 40);
        host.read_commands.set(0);
        advise(mm, id, AT + 4, 36, Advice::WillNeed);
        assert_eq!((host.read_commands.get(), mm.counter(Counter::PgFault)), (2, 0));
        assert_eq!(resident(mm, id, AT, 40)[..6], [0, 0, 0, 0, 1, 1]);
        (4..40).for_each(|page| assert_eq!(host.read(mm, id, AT + page), Ok(page)));
        assert_eq!((host.read_commands.get(), mm.counter(Counter::PgMajFault)), (2, 0));
        host.read(mm, id, AT).unwrap();
        assert_eq!(mm.counter(Counter::PgMajFault), 1, "control");
        // Of swap.
        let id = written(mm, 512, 8);
        advise(mm, id, OWN, 8, Advice::PageOut);
        assert!((OWN..OWN + 8).all(|page| is_out(mm, id, page)));
        advise(mm, id, OWN, 8, Advice::WillNeed);
        assert!(!(OWN..OWN + 8).any(|page| is_out(mm, id, page)));
        assert!((OWN..OWN + 8).all(|page| host.read(mm, id, page) == Ok(page)));
        sound(mm);
    });
}

#[test]
fn what_is_not_wanted_soon_goes_first() {
    for policy in ["linux", "vanilla", "quiet"] {
        let left = |cold: Option<u64>| {
            let host = Host::new(Setup { frames: 512, ..Setup::default() });
            host.run(swapping(policy), |mm| {
                let id = written(mm, 512, 16);
                cold.into_iter().for_each(|at| advise(mm, id, at, 8, Advice::Cold));
                let free = take_free(mm);
                (0..2).for_each(|_| reclaim(mm));
                let out: Vec<u64> = (OWN..OWN + 16).filter(|&page| is_out(mm, id, page)).collect();
                give_back(mm, free);
                assert!((OWN..OWN + 16).all(|page| host.read(mm, id, page) == Ok(page)));
                sound(mm);
                out
            })
        };
        let is_of =
            |out: &[u64], at: u64| !out.is_empty() && out.iter().all(|page| (at..at + 8).contains(page));
        assert!(is_of(&left(Some(OWN + 8)), OWN + 8), "{policy}: the second half is cold");
        assert!(is_of(&left(Some(OWN)), OWN), "{policy}: the first half is");
        assert!(!is_of(&left(None), OWN + 8), "{policy}: control");
    }
}

#[test]
fn what_is_not_wanted_for_a_while_goes_now_and_comes_back_whole() {
    for policy in ["linux", "vanilla", "quiet", "linux+unmap=batch-clean"] {
        let host = Host::new(Setup { cpus: 8, ..Setup::default() });
        host.run(Config { scan_batch: 32, ..swapping(policy) }, |mm| {
            let id = written(mm, 512, 96);
            for cpu in 1..8 {
                host.on(cpu, || {
                    mm.space(id).switch_to().unwrap();
                    (OWN..OWN + 96).for_each(|page| assert_eq!(host.read(mm, id, page), Ok(page)));
                });
            }
            let sent = mm.counter(Counter::IpisSent);
            advise(mm, id, OWN, 64, Advice::PageOut);
            let sent = mm.counter(Counter::IpisSent) - sent;
            let out = (OWN..OWN + 96).filter(|&page| is_out(mm, id, page)).count();
            assert_eq!((out, is_out(mm, id, OWN + 64)), (64, false), "{policy}");
            // One flush of seven CPUs for a batch of 32.
            if policy == "linux" || policy == "quiet" {
                assert_eq!(sent, 14, "{policy}");
            } else {
                assert!(sent > 14, "control: {policy} flushes one by one");
            }
            for cpu in 0..8 {
                host.on(cpu, || {
                    (OWN..OWN + 96).for_each(|page| assert_eq!(host.read(mm, id, page), Ok(page)))
                });
            }
            assert_eq!(host.stale.get(), 0);
            sound(mm);
        });
    }
}

#[test]
fn pages_that_others_have_too_stay() {
    let host = Host::new(Setup::default());
    host.run(swapping("linux"), |mm| {
        let id = written(mm, 512, 8);
        let child = mm.space(id).fork().unwrap();
        host.write(mm, id, OWN + 1, 11).unwrap();
        mm.drain_lru_batch();
        advise(mm, id, OWN, 8, Advice::PageOut);
        let out: Vec<bool> = (OWN..OWN + 8).map(|page| is_out(mm, id, page)).collect();
        assert_eq!(out, [false, true, false, false, false, false, false, false]);
        mm.space(child).destroy().unwrap();
        advise(mm, id, OWN, 8, Advice::PageOut);
        assert!((OWN..OWN + 8).all(|page| is_out(mm, id, page)), "control");
        // A file's: written first, where it must be.
        let file = on_device(mm, 4);
        let shows = mapped(mm, shared(file), 4);
        (0..4).for_each(|page| host.write(mm, shows, AT + page, 50 + page).unwrap());
        mm.drain_lru_batch();
        advise(mm, shows, AT, 4, Advice::PageOut);
        assert_eq!(mm.file(file).cached_pages(), Ok(0));
        assert_eq!(host.on_disk(file, 3), Some(53));
        sound(mm);
    });
}

#[test]
fn without_swap_memory_of_ones_own_stays_and_advice_about_nothing_is_refused() {
    let host = Host::new(Setup::default());
    host.run(bare("linux"), |mm| {
        let id = anonymous(mm, 4);
        for advice in [Advice::Cold, Advice::PageOut, Advice::WillNeed] {
            advise(mm, id, OWN, 4, advice);
            let hole = Err(Error::NotMapped(PageNumber(OWN + 4)));
            assert_eq!(mm.space(id).advise(pages(OWN, 8), advice), hole);
        }
        assert_eq!(resident(mm, id, OWN, 4), [1; 4]);
        settled(mm);
    });
}

/// A page that is in the cache of swap, where no entry leads to it yet, is in memory.
#[test]
fn pages_that_were_read_back_with_others_are_in_memory() {
    let host = Host::new(Setup { frames: 512, ..Setup::default() });
    host.run(swapping("linux"), |mm| {
        let id = written(mm, 512, 32);
        (0..3).for_each(|_| swapping::squeeze(mm));
        assert_eq!(resident(mm, id, OWN, 32), [0; 32]);
        (OWN..OWN + 5).for_each(|page| assert_eq!(host.read(mm, id, page), Ok(page)));
        let there = resident(mm, id, OWN, 32);
        let ahead = (0..32).filter(|&page| there[page as usize] == 1 && is_out(mm, id, OWN + page));
        let ahead: Vec<u64> = ahead.collect();
        assert!(!ahead.is_empty(), "none was read ahead");
        let commands = host.read_commands.get();
        ahead.iter().for_each(|page| assert_eq!(host.read(mm, id, OWN + page), Ok(OWN + page)));
        assert_eq!(host.read_commands.get(), commands, "they were there");
        sound(mm);
    });
}

#[test]
fn a_copy_that_is_in_memory_counts_where_the_files_page_is_not() {
    let host = Host::new(Setup::default());
    host.run(bare("linux"), |mm| {
        let file = mm.create_file(4).unwrap();
        let id = mapped(mm, private(file), 4);
        host.write(mm, id, AT + 1, 5).unwrap();
        mm.drain_lru_batch();
        mm.file(file).evict(0, 4).unwrap();
        assert_eq!(mm.file(file).cached_pages(), Ok(0));
        let mut there = [9; 4];
        assert_eq!(mm.space(id).residency(pages(AT, 4), &mut there), Ok(1));
        assert_eq!(there, [0, 1, 0, 0]);
    });
}

#[test]
fn pages_on_their_way_to_a_list_go_when_they_are_not_wanted() {
    let host = Host::new(Setup::default());
    host.run(Config { lru_batch: 16, ..swapping("linux") }, |mm| {
        let id = written(mm, 512, 8);
        advise(mm, id, OWN, 8, Advice::PageOut);
        assert!((OWN..OWN + 8).all(|page| is_out(mm, id, page)));
        assert!((OWN..OWN + 8).all(|page| host.read(mm, id, page) == Ok(page)));
        sound(mm);
    });
}

#[test]
fn what_a_program_will_need_and_cannot_be_read_is_its_error_when_it_is_used() {
    let host = Host::new(Setup::default());
    host.run(swapping("linux"), |mm| {
        let id = written(mm, 512, 8);
        let file = on_device(mm, 8);
        mm.space(id).map(pages(OWN + 8, 8), shared(file), Prot::Read).unwrap();
        advise(mm, id, OWN, 8, Advice::PageOut);
        host.fail_reads.set(true);
        advise(mm, id, OWN, 16, Advice::WillNeed);
        assert!(matches!(host.read(mm, id, OWN + 3), Err(Error::SwapDevice(_))));
        host.fail_reads.set(false);
        advise(mm, id, OWN, 16, Advice::WillNeed);
        assert_eq!(resident(mm, id, OWN, 16), [1; 16]);
        assert!((OWN..OWN + 8).all(|page| host.read(mm, id, page) == Ok(page)));
        sound(mm);
    });
}

/// A large page has become small ones by then, of which this CPU had some on their way to a list.
#[test]
fn all_of_a_large_page_goes_when_it_is_not_wanted() {
    const LARGE: u64 = 0x40000;
    let host = Host::new(Setup { frames: 4096, ..Setup::default() });
    host.run(Config { swap: true, ..bare("linux") }, |mm| {
        mm.swap().on(DEVICE, 2048, 0).unwrap();
        let id = mm.create_space().unwrap();
        mm.space(id).map(pages(LARGE, 512), Backing::Anonymous, Prot::ReadWrite).unwrap();
        advise(mm, id, LARGE, 512, Advice::Large);
        mm.space(id).switch_to().unwrap();
        (LARGE..LARGE + 512).for_each(|page| host.write(mm, id, page, page).unwrap());
        assert_eq!(mm.counter(Counter::LargeFault), 1);
        advise(mm, id, LARGE, 512, Advice::PageOut);
        assert_eq!(mm.space(id).usage().unwrap().anon, 0);
        mm.drain_lru_batch();
    });
}

/// What was active is so no more where it is not wanted soon: it goes before pages of which nobody said anything.
#[test]
fn what_was_active_and_is_not_wanted_soon_goes_first_too() {
    let host = Host::new(Setup { frames: 1024, ..Setup::default() });
    host.run(swapping("linux"), |mm| {
        let (hot, other) = (on_device(mm, 16), on_device(mm, 64));
        let id = mapped(mm, shared(hot), 16);
        let mut word = [0; 8];
        for page in 0..16 {
            host.read(mm, id, AT + page).unwrap();
            mm.file(hot).read(page * PAGE_SIZE, &mut word).unwrap();
        }
        mm.drain_lru_batch();
        assert_eq!(mm.file(other).read_ahead(0, 64), Ok(64));
        mm.drain_lru_batch();
        let mut held = take_free(mm);
        reclaim(mm);
        held.extend(take_free(mm));
        let cached = |file| mm.file(file).cached_pages().unwrap();
        let before = cached(other);
        assert_eq!((mm.counter(Counter::PgActivate), cached(hot), before), (16, 16, 60));
        advise(mm, id, AT, 8, Advice::Cold);
        reclaim(mm);
        assert_eq!((cached(hot), cached(other)), (12, before));
        give_back(mm, held);
        sound(mm);
    });
}
