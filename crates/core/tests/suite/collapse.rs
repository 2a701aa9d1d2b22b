//! Small pages become a large one again: with what they hold, for one flush, or not at all.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use crate::machine;

use machine::race::{Place, at, at_every_touch, race};
use machine::showing::{ANON, LARGE, entry, frame, private};
use machine::swapping::{DEVICE, is_out, read, reclaim, sound, squeeze, take_free, write};
use machine::{Host, Mm, Setup, bare, counted, exhaust, give_back, pages, pcp, settled};
use quietmm::platform::DeviceError;
use quietmm::{
    Advice, Config, Counter, Entry, Error, FileId, PageNumber, Prot, Rule, SpaceId, Term, UserAccess,
};

const POLICIES: [&str; 5] = ["linux", "vanilla", "quiet", "quiet+free=sweep", "linux+unmap=batch-clean"];
/// Pages that are written, of the 512.
const WRITTEN: [u64; 4] = [0, 1, 300, 511];

fn setup(cpus: u32) -> Setup {
    Setup { cpus, ..Setup::default() }
}

fn config(policy: &str, swap: bool) -> Config {
    Config { swap, lru_batch: 1, scan_batch: 4, page_lists: pcp(1), ..bare(policy) }
}

/// A space with room for so many large pages, in each of which small ones are written, with their numbers.
fn small(mm: &Mm<'_>, large: u64) -> SpaceId {
    let id = mm.create_space().unwrap();
    mm.space(id).map(pages(LARGE, 512 * large), ANON, Prot::ReadWrite).unwrap();
    mm.space(id).switch_to().unwrap();
    written(large).for_each(|page| mm.platform().write(mm, id, page, page).unwrap());
    mm.drain_lru_batch();
    id
}

fn written(large: u64) -> impl Iterator<Item = u64> {
    (0..large).flat_map(|n| WRITTEN.map(|page| LARGE + 512 * n + page))
}

fn collapse(mm: &Mm<'_>, id: SpaceId, large: u64) -> Result<(), Error> {
    mm.space(id).advise(pages(LARGE, 512 * large), Advice::Collapse)
}

fn is_large(mm: &Mm<'_>, id: SpaceId, at: u64) -> bool {
    entry(mm, id, at).has(Entry::LARGE)
}

fn holds(mm: &Mm<'_>, id: SpaceId, large: u64) -> bool {
    written(large).all(|page| read(mm, id, page) == Ok(page)) && read(mm, id, LARGE + 2) == Ok(0)
}

#[test]
fn small_pages_become_large_with_what_they_hold_for_one_flush() {
    for (policy, swap) in POLICIES.into_iter().flat_map(|policy| [(policy, false), (policy, true)]) {
        let host = Host::new(setup(3));
        host.run(config(policy, swap), |mm| {
            let id = small(mm, 2);
            let before = mm.space(id).usage().unwrap();
            // One uses the space, one is lazy.
            for cpu in [1, 2] {
                host.on(cpu, || {
                    mm.space(id).switch_to().unwrap();
                    assert!(written(2).all(|page| host.read(mm, id, page) == Ok(page)));
                });
            }
            host.on(2, || mm.enter_lazy());
            host.forget();
            collapse(mm, id, 2).unwrap();
            // The tables go, so the lazy one is asked too.
            assert_eq!([1, 2].map(|cpu| host.interrupts_to(cpu)), [1, 1], "{policy}");
            assert!(is_large(mm, id, LARGE) && is_large(mm, id, LARGE + 512), "{policy}");
            let (first, last) = (frame(mm, id, LARGE), frame(mm, id, LARGE + 511));
            assert_eq!((first.0 % 512, last.0), (0, first.0 + 511));
            host.on(1, || {
                assert!(holds(mm, id, 2), "{policy}");
                host.write(mm, id, LARGE + 7, 7).unwrap();
            });
            assert_eq!(host.read(mm, id, LARGE + 7), Ok(7));
            let after = mm.space(id).usage().unwrap();
            // Where memory may go to swap, the tables are with the large pages.
            assert_eq!(
                (after.anon, after.tables),
                (1024, before.tables - if swap { 0 } else { 2 }),
                "{policy}"
            );
            assert_eq!(counted(mm, Counter::LargeCollapse), 2);
            assert_eq!((settled(mm).anon, settled(mm).mapped), (1024, 2), "{policy}");
            // They are as others: they become small, and go.
            mm.space(id).protect(pages(LARGE + 1, 1), Prot::Read).unwrap();
            assert!(holds(mm, id, 2) && !is_large(mm, id, LARGE));
            mm.space(id).unmap(pages(LARGE, 1024)).unwrap();
            assert_eq!((settled(mm).anon, host.stale.get()), (0, 0), "{policy}");
        });
    }
}

/// What a CPU that used a small page finds after another has written to the large one; and how often what it had was stale.
fn seen_by_another(broken: Option<Rule>) -> (Option<u64>, u32) {
    let host = Host::new(setup(2));
    host.broken.set(broken);
    host.run(config("linux", false), |mm| {
        let id = small(mm, 1);
        host.on(1, || {
            mm.space(id).switch_to().unwrap();
            host.write(mm, id, LARGE + 1, 5).unwrap();
        });
        collapse(mm, id, 1).unwrap();
        host.write(mm, id, LARGE + 1, 6).unwrap();
        (host.on(1, || host.try_read(LARGE + 1)), host.stale.get())
    })
}

#[test]
fn no_cpu_goes_on_with_the_small_pages() {
    assert_eq!(seen_by_another(None), (Some(6), 0));
    assert!(seen_by_another(Some(Rule::FlushBeforeCollapse)).1 > 0);
}

#[test]
fn a_lazy_cpu_lets_go_of_the_table() {
    for broken in [None, Some(Rule::TablesToLazy), Some(Rule::TablesAfterFlush)] {
        let host = Host::new(setup(2));
        host.broken.set(broken);
        host.run(config("linux", false), |mm| {
            let id = small(mm, 1);
            host.on(1, || {
                mm.space(id).switch_to().unwrap();
                assert!(holds(mm, id, 1));
                mm.enter_lazy();
            });
            collapse(mm, id, 1).unwrap();
            assert_eq!(host.stale.get() > 0, broken.is_some(), "{broken:?}");
        });
    }
}

/// Each thing that is in the way, whether it is the fault of the first or of the second part of three, and what it is told.
#[test]
fn what_is_refused_stays_as_it_was_and_the_rest_becomes_large() {
    let host = Host::new(setup(2));
    host.run(config("linux", true), |mm| {
        let id = small(mm, 3);
        let pinned = PageNumber(LARGE + 512 + 300);
        let pins = mm.space(id).pin(pages(pinned.0, 1), UserAccess::Read, Term::Short).unwrap();
        let (old, frames) = (entry(mm, id, pinned.0), settled(mm).free);
        assert_eq!(collapse(mm, id, 3), Err(Error::NotCollapsible(pinned)));
        assert_eq!([0, 512, 1024].map(|at| is_large(mm, id, LARGE + at)), [true, false, true]);
        assert_eq!(entry(mm, id, pinned.0), old);
        assert!(holds(mm, id, 3));
        // Two of the tables are with the large pages that they belong to.
        assert_eq!(settled(mm).free, frames - 2 * 512 + 2 * 4);
        host.forget();
        assert_eq!(collapse(mm, id, 3), Err(Error::NotCollapsible(pinned)));
        assert_eq!(host.interrupts(), 0, "nothing was done");
        mm.unpin(pins);
        assert_eq!(collapse(mm, id, 3), Ok(()));
        assert!(is_large(mm, id, LARGE + 512) && holds(mm, id, 3));
        assert_eq!(collapse(mm, id, 3), Ok(()), "all of it is large");
        // Where nothing is, nothing is made.
        mm.space(id).advise(pages(LARGE, 512), Advice::Drop).unwrap();
        assert_eq!((collapse(mm, id, 1), settled(mm).anon), (Ok(()), 1024));
        // What is no whole large page is left alone; a hole is not.
        assert_eq!(mm.space(id).advise(pages(LARGE + 1, 1022), Advice::Collapse), Ok(()));
        let hole = Err(Error::NotMapped(PageNumber(LARGE + 3 * 512)));
        assert_eq!(mm.space(id).advise(pages(LARGE, 4 * 512), Advice::Collapse), hole);
    });
}

#[test]
fn a_range_of_two_mappings_or_with_a_copy_of_a_files_page_is_no_large_page() {
    let host = Host::new(setup(1));
    host.run(config("linux", true), |mm| {
        let id = small(mm, 1);
        mm.space(id).protect(pages(LARGE + 8, 8), Prot::Read).unwrap();
        let refused = Err(Error::NotCollapsible(PageNumber(LARGE)));
        assert_eq!(collapse(mm, id, 1), refused);
        mm.space(id).protect(pages(LARGE + 8, 8), Prot::ReadWrite).unwrap();
        assert_eq!(collapse(mm, id, 1), Ok(()), "one mapping again");
        let file: FileId = mm.create_file(512).unwrap();
        mm.space(id).map(pages(LARGE + 512, 512), private(file), Prot::ReadWrite).unwrap();
        host.write(mm, id, LARGE + 512, 1).unwrap();
        let refused = Err(Error::NotCollapsible(PageNumber(LARGE + 512)));
        assert_eq!(collapse(mm, id, 2), refused);
        assert_eq!((host.read(mm, id, LARGE + 512), is_large(mm, id, LARGE)), (Ok(1), true));
        // Nobody may use it, and it becomes large all the same.
        mm.space(id).unmap(pages(LARGE, 1024)).unwrap();
        mm.file(file).destroy().unwrap();
        mm.space(id).map(pages(LARGE, 512), ANON, Prot::ReadWrite).unwrap();
        host.write(mm, id, LARGE + 3, 3).unwrap();
        mm.space(id).protect(pages(LARGE, 512), Prot::None).unwrap();
        assert_eq!(collapse(mm, id, 1), Ok(()));
        assert!(host.read(mm, id, LARGE + 3).is_err());
        mm.space(id).protect(pages(LARGE, 512), Prot::Read).unwrap();
        assert_eq!((host.read(mm, id, LARGE + 3), is_large(mm, id, LARGE)), (Ok(3), true));
    });
}

#[test]
fn without_a_large_frame_they_stay_small() {
    let host = Host::new(setup(1));
    host.run(config("linux", true), |mm| {
        let id = small(mm, 2);
        let mut held = exhaust(mm);
        // Every other frame: enough, and none of them next to another.
        let mut other = Vec::new();
        for (i, block) in held.drain(..).enumerate() {
            if i % 2 == 0 { other.push(block) } else { mm.frames().free(block) }
        }
        let before = settled(mm);
        assert_eq!(collapse(mm, id, 2), Err(Error::OutOfMemory));
        let after = settled(mm);
        assert_eq!((after.free, after.anon, after.broken), (before.free, before.anon, None));
        assert!(holds(mm, id, 2));
        give_back(mm, other);
        assert_eq!(collapse(mm, id, 2), Ok(()));
        assert!(holds(mm, id, 2) && is_large(mm, id, LARGE));
    });
}

/// Where there is room for two large pages more, and no more, all become large: some at a time, each time for a flush.
#[test]
fn where_memory_is_short_each_sets_free_what_the_next_one_takes() {
    let host = Host::new(Setup { frames: 4608, ..setup(2) });
    host.run(config("linux", false), |mm| {
        let id = mm.create_space().unwrap();
        mm.space(id).map(pages(LARGE, 5 * 512), ANON, Prot::ReadWrite).unwrap();
        mm.space(id).switch_to().unwrap();
        (LARGE..LARGE + 5 * 512).for_each(|page| host.write(mm, id, page, page).unwrap());
        host.on(1, || mm.space(id).switch_to().unwrap());
        host.forget();
        assert_eq!(collapse(mm, id, 5), Ok(()));
        let flushes = host.interrupts_to(1);
        assert!((2..5).contains(&flushes), "{flushes}");
        assert!((LARGE..LARGE + 5 * 512).all(|page| host.read(mm, id, page) == Ok(page)));
        assert!((0..5).all(|n| is_large(mm, id, LARGE + 512 * n)));
    });
}

#[test]
fn what_is_in_swap_comes_back_and_what_does_not_stays_there() {
    for policy in POLICIES {
        let host = Host::new(Setup { frames: 4096, ..setup(2) });
        host.run(config(policy, true), |mm| {
            mm.swap().on(DEVICE, 512, 0).unwrap();
            let id = small(mm, 2);
            (0..3).for_each(|_| squeeze(mm));
            assert!(written(2).all(|page| is_out(mm, id, page)), "{policy}");
            host.refuse_reads.set(Some(|_, _| Some(DeviceError::Failed)));
            assert!(matches!(collapse(mm, id, 2), Err(Error::SwapDevice(_))), "{policy}");
            assert!(written(2).all(|page| is_out(mm, id, page)), "{policy}");
            host.refuse_reads.set(None);
            assert_eq!(collapse(mm, id, 2), Ok(()), "{policy}");
            assert!(is_large(mm, id, LARGE) && is_large(mm, id, LARGE + 512) && holds(mm, id, 2), "{policy}");
            let now = settled(mm);
            assert_eq!((now.broken, now.swapped), (None, 0), "{policy}");
            // And out again, in small ones.
            (0..3).for_each(|_| squeeze(mm));
            assert!(holds(mm, id, 2), "{policy}");
            sound(mm);
        });
    }
}

/// A device fails where the second large page would be: the first comes all the same.
#[test]
fn what_lies_before_a_page_that_cannot_be_read_becomes_large() {
    let host = Host::new(Setup { frames: 4096, ..setup(1) });
    host.run(config("linux", true), |mm| {
        mm.swap().on(DEVICE, 512, 0).unwrap();
        let id = small(mm, 2);
        (0..3).for_each(|_| squeeze(mm));
        assert!(written(1).all(|page| read(mm, id, page) == Ok(page)));
        let out: Vec<u64> = written(2).filter(|&page| is_out(mm, id, page)).collect();
        assert!(out.first().is_some_and(|&page| page >= LARGE + 512), "{out:x?}");
        host.refuse_reads.set(Some(|_, _| Some(DeviceError::Failed)));
        assert_eq!(collapse(mm, id, 2), Err(Error::SwapDevice(PageNumber(out[0]))));
        host.refuse_reads.set(None);
        assert!(is_large(mm, id, LARGE) && !is_large(mm, id, LARGE + 512));
        assert!(out.iter().all(|&page| is_out(mm, id, page)) && holds(mm, id, 2));
    });
}

#[test]
fn what_a_child_has_too_is_copied_and_the_child_keeps_its_own() {
    for (policy, out) in POLICIES.into_iter().flat_map(|policy| [(policy, false), (policy, true)]) {
        let host = Host::new(Setup { frames: 4096, ..setup(1) });
        host.run(config(policy, true), |mm| {
            mm.swap().on(DEVICE, 512, 0).unwrap();
            let id = small(mm, 1);
            let child = mm.space(id).fork().unwrap();
            if out {
                (0..3).for_each(|_| squeeze(mm));
            }
            assert_eq!(collapse(mm, id, 1), Ok(()));
            assert!(is_large(mm, id, LARGE) && !is_large(mm, child, LARGE), "{policy}");
            write(mm, id, LARGE + 1, 71).unwrap();
            assert_eq!(read(mm, child, LARGE + 1), Ok(LARGE + 1), "{policy}");
            write(mm, child, LARGE + 300, 72).unwrap();
            assert_eq!(read(mm, id, LARGE + 300), Ok(LARGE + 300), "{policy}");
            assert_eq!(collapse(mm, child, 1), Ok(()));
            assert_eq!(
                [LARGE, LARGE + 1, LARGE + 300].map(|page| read(mm, child, page)),
                [Ok(LARGE), Ok(LARGE + 1), Ok(72)]
            );
            assert_eq!(
                [LARGE, LARGE + 1, LARGE + 300].map(|page| read(mm, id, page)),
                [Ok(LARGE), Ok(71), Ok(LARGE + 300)]
            );
            machine::swapping::end(mm, &[id, child], &[DEVICE]);
        });
    }
}

#[test]
fn a_group_is_charged_with_what_is_gained_within_its_limit() {
    let host = Host::new(setup(1));
    host.run(Config { groups: 1, ..config("linux", true) }, |mm| {
        let group = mm.create_group(1000).unwrap();
        let id = mm.create_space().unwrap();
        mm.space(id).set_group(Some(group)).unwrap();
        mm.space(id).map(pages(LARGE, 512), ANON, Prot::ReadWrite).unwrap();
        mm.space(id).switch_to().unwrap();
        (LARGE..LARGE + 500).for_each(|page| host.write(mm, id, page, page).unwrap());
        mm.drain_lru_batch();
        let charged = || crate::groups::charged(mm, group);
        let before = charged();
        // There is room for 11 pages, and it would gain 12.
        mm.group(group).set_limit(before + 11).unwrap();
        assert_eq!(collapse(mm, id, 1), Err(Error::LimitReached(group)));
        assert_eq!((charged(), is_large(mm, id, LARGE)), (before, false));
        mm.group(group).set_limit(before + 12).unwrap();
        assert_eq!(collapse(mm, id, 1), Ok(()));
        assert_eq!((charged(), is_large(mm, id, LARGE)), (before + 12, true));
        assert_eq!(mm.validate().broken, None);
        mm.unload();
        mm.space(id).destroy().unwrap();
        assert_eq!(charged(), 0);
    });
}

/// A page that came back from swap, and whose slot another space names still, stays for that when its large page is there: there must be room
/// for both.
#[test]
fn what_stays_for_another_space_makes_no_room() {
    let host = Host::new(setup(1));
    host.run(Config { groups: 1, ..config("linux", true) }, |mm| {
        mm.swap().on(DEVICE, 1024, 0).unwrap();
        let group = mm.create_group(3000).unwrap();
        let id = mm.create_space().unwrap();
        mm.space(id).set_group(Some(group)).unwrap();
        mm.space(id).map(pages(LARGE, 512), ANON, Prot::ReadWrite).unwrap();
        mm.space(id).switch_to().unwrap();
        (LARGE..LARGE + 400).for_each(|page| host.write(mm, id, page, page).unwrap());
        mm.drain_lru_batch();
        let child = mm.space(id).fork().unwrap();
        (0..3).for_each(|_| squeeze(mm));
        assert!((LARGE..LARGE + 400).all(|page| is_out(mm, id, page) && is_out(mm, child, page)));
        (LARGE..LARGE + 400).for_each(|page| assert_eq!(host.read(mm, id, page), Ok(page)));
        assert!((LARGE..LARGE + 400).all(|page| is_out(mm, child, page)));
        let charged = || crate::groups::charged(mm, group);
        let before = charged();
        mm.group(group).set_limit(before + 511).unwrap();
        assert_eq!(collapse(mm, id, 1), Err(Error::LimitReached(group)));
        assert_eq!((charged(), is_large(mm, id, LARGE)), (before, false));
        mm.group(group).set_limit(before + 512).unwrap();
        assert_eq!(collapse(mm, id, 1), Ok(()));
        assert!(charged() <= before + 512 && is_large(mm, id, LARGE), "{}", charged());
        assert!((LARGE..LARGE + 400).all(|page| read(mm, child, page) == Ok(page)));
        machine::swapping::end(mm, &[id, child], &[DEVICE]);
    });
}

/// Reclaim takes small pages out, and what is wanted meanwhile is made large; then that goes, with its table, and others use the memory.
fn reclaimed_meanwhile(broken: Option<Rule>) -> usize {
    let setup = Setup { frames: 2048, ..setup(2) };
    let cases = at_every_touch(&setup, &config("linux", true), broken, |mm, place| {
        mm.swap().on(DEVICE, 1024, 0).unwrap();
        let id = small(mm, 1);
        let host = mm.platform();
        host.on(1, || mm.space(id).switch_to().unwrap());
        // Nothing is accessed any more, and reclaim takes what it finds.
        mm.space(id).advise(pages(LARGE, 512), Advice::Cold).unwrap();
        let sound = std::cell::Cell::new(true);
        race(
            mm,
            place,
            || _ = mm.space(id).advise(pages(LARGE, 512), Advice::PageOut),
            || {
                let done = collapse(mm, id, 1);
                sound.set(broken.is_some() || done == Ok(()));
                // The table with the large page is somebody else's.
                if is_large(mm, id, LARGE) {
                    sound.set(sound.get() && holds(mm, id, 1));
                }
                let other = mm.create_space().unwrap();
                mm.space(other).map(pages(LARGE, 16), ANON, Prot::ReadWrite).unwrap();
                (LARGE..LARGE + 16).for_each(|page| write(mm, other, page, 9).unwrap());
                mm.space(id).switch_to().unwrap();
            },
        );
        sound.get() && holds(mm, id, 1) && settled(mm).broken.is_none()
    });
    assert!(cases.results.len() + cases.fell > 20);
    cases.count(|&good| !good)
}

#[test]
fn who_reclaims_finds_no_page_in_a_table_that_goes() {
    assert_eq!(reclaimed_meanwhile(None), 0);
}

/// Whether all is well after what another CPU does while pages are made large, at places of that.
fn meanwhile(broken: Option<Rule>, what: fn(&Mm<'_>, SpaceId), last: u64) -> Vec<bool> {
    let (setup, config) = (Setup { frames: 2048, ..setup(2) }, config("linux", true));
    let play = |work: &dyn Fn(&Mm<'_>, SpaceId)| {
        at(&setup, &config, broken, |mm| {
            mm.swap().on(DEVICE, 1024, 0).unwrap();
            let host = mm.platform();
            host.uses_windows.set(true);
            let id = small(mm, 1);
            host.on(1, || {
                mm.space(id).switch_to().unwrap();
                host.write(mm, id, LARGE + 300, LARGE + 300).unwrap();
            });
            // What is not used from here on is the first to go.
            mm.space(id).advise(pages(LARGE, 512), Advice::Cold).unwrap();
            work(mm, id);
            let stale = host.stale.get();
            let good = [LARGE, LARGE + 1, LARGE + 511].into_iter().all(|page| read(mm, id, page) == Ok(page));
            good && read(mm, id, LARGE + 300) == Ok(last)
                && host.stale.get() == stale
                && settled(mm).broken.is_none()
        })
    };
    let touches = std::cell::Cell::new(0);
    play(&|mm, id| {
        let before = mm.platform().touches_of(0);
        collapse(mm, id, 1).unwrap();
        touches.set(mm.platform().touches_of(0) - before);
    });
    assert!(touches.get() > 2000, "{}", touches.get());
    let places = (0..touches.get()).step_by(53);
    let good = |n| {
        let case = || play(&|mm, id| race(mm, Place::Touch(n), || _ = collapse(mm, id, 1), || what(mm, id)));
        match catch_unwind(AssertUnwindSafe(case)) {
            Err(payload) if broken.is_none() => resume_unwind(payload),
            result => result.unwrap_or(false),
        }
    };
    places.map(good).collect()
}

#[test]
fn what_a_cpu_writes_meanwhile_is_not_lost() {
    let write: fn(&Mm<'_>, SpaceId) = |mm, id| mm.platform().write(mm, id, LARGE + 300, 71).unwrap();
    assert!(meanwhile(None, write, 71).into_iter().all(|good| good));
    assert!(meanwhile(Some(Rule::FlushBeforeCollapse), write, 71).contains(&false));
}

#[test]
fn what_reclaim_takes_meanwhile_is_not_lost() {
    let reclaim: fn(&Mm<'_>, SpaceId) = |mm, _| {
        let held = take_free(mm);
        (0..2).for_each(|_| reclaim(mm));
        give_back(mm, held);
    };
    assert!(meanwhile(None, reclaim, LARGE + 300).into_iter().all(|good| good));
    assert!(meanwhile(Some(Rule::CollapseIsAlone), reclaim, LARGE + 300).contains(&false));
}

/// Between the first look at small pages and the moment at which nobody else can reach them reclaim takes some: nothing is made large with
/// holes in it, and what was taken for it is given back, or used for the next try.
#[test]
fn what_goes_between_two_looks_is_not_lost() {
    let host = Host::new(Setup { frames: 2048, ..setup(2) });
    host.run(config("linux", true), |mm| {
        mm.swap().on(DEVICE, 1024, 0).unwrap();
        let id = small(mm, 1);
        // What is not used from here on is the first to go.
        mm.space(id).advise(pages(LARGE, 512), Advice::Cold).unwrap();
        host.on_large_taken.borrow_mut().push_back(Box::new(|mm| {
            mm.platform().on(1, || {
                let held = take_free(mm);
                (0..2).for_each(|_| reclaim(mm));
                give_back(mm, held);
            });
            assert!(counted(mm, Counter::PswpOut) > 0, "some go");
        }));
        collapse(mm, id, 1).unwrap();
        assert!(host.on_large_taken.borrow().is_empty() && is_large(mm, id, LARGE));
        assert!(holds(mm, id, 1));
        let now = settled(mm);
        assert_eq!((now.broken, now.anon, now.swapped, now.mapped), (None, 512, 0, 1));
        machine::swapping::end(mm, &[id], &[DEVICE]);
    });
}

/// Where a group may never have a large page none of its small ones is brought back for it.
#[test]
fn nothing_comes_back_for_a_large_page_that_a_group_never_has_room_for() {
    let host = Host::new(setup(1));
    host.run(Config { groups: 1, ..config("linux", true) }, |mm| {
        mm.swap().on(DEVICE, 1024, 0).unwrap();
        let group = mm.create_group(2000).unwrap();
        let id = mm.create_space().unwrap();
        mm.space(id).set_group(Some(group)).unwrap();
        mm.space(id).map(pages(LARGE, 512), ANON, Prot::ReadWrite).unwrap();
        (LARGE..LARGE + 100).for_each(|page| write(mm, id, page, page).unwrap());
        mm.space(id).advise(pages(LARGE, 100), Advice::PageOut).unwrap();
        assert!((LARGE..LARGE + 100).all(|page| is_out(mm, id, page)));
        mm.group(group).set_limit(511).unwrap();
        assert_eq!(collapse(mm, id, 1), Err(Error::LimitReached(group)));
        assert_eq!(counted(mm, Counter::PswpIn), 0);
        mm.group(group).set_limit(600).unwrap();
        assert_eq!(collapse(mm, id, 1), Ok(()));
        assert_eq!((counted(mm, Counter::PswpIn), is_large(mm, id, LARGE)), (100, true));
        assert!((LARGE..LARGE + 100).all(|page| read(mm, id, page) == Ok(page)));
        machine::swapping::end(mm, &[id], &[DEVICE]);
    });
}

/// Pages that another space shows stay charged when they are copied into a large one: all of it has to fit in.
#[test]
fn what_another_space_shows_is_no_gain_for_the_groups_limit() {
    let host = Host::new(setup(1));
    host.run(Config { groups: 1, ..config("linux", true) }, |mm| {
        let group = mm.create_group(2000).unwrap();
        let id = mm.create_space().unwrap();
        mm.space(id).set_group(Some(group)).unwrap();
        mm.space(id).map(pages(LARGE, 512), ANON, Prot::ReadWrite).unwrap();
        mm.space(id).switch_to().unwrap();
        (LARGE..LARGE + 100).for_each(|page| host.write(mm, id, page, page).unwrap());
        let child = mm.space(id).fork().unwrap();
        mm.drain_lru_batch();
        let charged = || crate::groups::charged(mm, group);
        let before = charged();
        mm.group(group).set_limit(before + 511).unwrap();
        assert_eq!(collapse(mm, id, 1), Err(Error::LimitReached(group)));
        assert_eq!((charged(), is_large(mm, id, LARGE)), (before, false));
        mm.group(group).set_limit(before + 512).unwrap();
        assert_eq!((collapse(mm, id, 1), charged()), (Ok(()), before + 512));
        mm.unload();
        [id, child].into_iter().for_each(|id| mm.space(id).destroy().unwrap());
        assert_eq!(mm.validate().broken, None);
    });
}

/// So many large pages are made at once as a batch has room for, and the rest after it: for a flush each.
#[test]
fn more_than_a_batch_becomes_large_for_two_flushes() {
    const MOST: u64 = 16 + 1;
    let host = Host::new(Setup { frames: 10 << 10, ..setup(2) });
    host.run(config("linux", false), |mm| {
        let id = mm.create_space().unwrap();
        mm.space(id).map(pages(LARGE, 512 * MOST), ANON, Prot::ReadWrite).unwrap();
        let starts = || (0..MOST).map(|n| LARGE + 512 * n);
        host.on(1, || mm.space(id).switch_to().unwrap());
        mm.space(id).switch_to().unwrap();
        starts().for_each(|page| host.write(mm, id, page, page).unwrap());
        host.forget();
        assert_eq!(collapse(mm, id, MOST), Ok(()));
        assert!(starts().all(|page| is_large(mm, id, page) && host.read(mm, id, page) == Ok(page)));
        assert_eq!(host.interrupts_to(1), 2);
    });
}
