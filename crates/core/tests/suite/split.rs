//! A large page becomes small while programs use it and reclaim looks for it.

use std::cell::Cell;
use std::rc::Rc;

use crate::machine;

use machine::showing::{ANON, LARGE, entry};
use machine::swapping::{swapping, take_free};
use machine::{Host, Mm, Setup, exhaust, give_back, pages, settled};
use quietmm::{Advice, AllocFrom, Entry, Prot, Rule, SpaceId};

/// The page of the large one that CPU 1 uses.
const USED: u64 = LARGE + 3;

/// CPUs 0 and 1 run in a space with a large page, which was read and never written, and looks idle.
fn idle_large(mm: &Mm<'_>) -> SpaceId {
    let host = mm.platform();
    let id = mm.create_space().unwrap();
    mm.space(id).map(pages(LARGE, 512), ANON, Prot::ReadWrite).unwrap();
    mm.space(id).advise(pages(LARGE, 512), Advice::Large).unwrap();
    mm.space(id).switch_to().unwrap();
    host.on(1, || mm.space(id).switch_to().unwrap());
    assert_eq!(host.read(mm, id, USED), Ok(0));
    mm.drain_lru_batch();
    host.make_cold(LARGE);
    assert!(entry(mm, id, LARGE).has(Entry::LARGE) && !entry(mm, id, LARGE).has(Entry::DIRTY));
    id
}

/// Makes the large page small.
fn split(mm: &Mm<'_>, id: SpaceId) {
    mm.space(id).protect(pages(LARGE + 100, 50), Prot::Read).unwrap();
}

fn machine(broken: Option<Rule>) -> Host {
    let host = Host::new(Setup { cpus: 2, ..Setup::default() });
    host.broken.set(broken);
    host
}

/// CPU 0 splits. Just before its `nth` access to the large entry a program on CPU 1 writes to the page, and `later` touches
/// after that CPU 1 reclaims. `None` if the entry is not accessed as often; else whether reclaim took a page, and whether
/// a frame is given out in the end that the program still has.
fn reclaimed_in_a_split(broken: Option<Rule>, nth: u32, later: u32) -> Option<(bool, bool)> {
    let host = machine(broken);
    host.run(swapping("linux"), |mm| {
        mm.swap().on(0, 2048, 0).unwrap();
        let id = idle_large(mm);
        let mut held = take_free(mm);
        let wrote = Rc::new(Cell::new(None));
        let note = Rc::clone(&wrote);
        host.patient.set(true);
        host.place();
        host.watch(
            LARGE,
            nth,
            Box::new(move |mm| {
                let host = mm.platform();
                note.set(Some(host.on(1, || host.try_write(USED, 5))));
                // An interrupt that CPU 1 sends is served on its stack.
                let stop = |mm: &Mm<'_>| {
                    if mm.platform().is_aside() {
                        mm.platform().stop()
                    }
                };
                host.at_touch(0, later, stop);
            }),
        );
        let got = host.aside(
            0,
            || split(mm, id),
            |_| {
                host.resume();
                host.on(1, || mm.frames().alloc(0, AllocFrom::HERE))
            },
        );
        host.all_placed();
        host.watch_nothing();
        let wrote = wrote.get()?;
        let took = got.is_ok();
        held.extend(got);
        // Whatever can go goes. What the allocator gives out nobody else has.
        held.extend(exhaust(mm));
        let given = |entry: Entry| {
            let block = |frame: &quietmm::Frames| frame.first() == entry.frame();
            entry.is_mapped() && held.iter().any(block)
        };
        let lost = (LARGE..LARGE + 512).any(|page| given(entry(mm, id, page)));
        if broken.is_none() {
            assert_eq!(settled(mm).broken, None, "access {nth}, {later} later");
            give_back(mm, held);
            assert!(wrote, "nothing keeps it from writing");
            assert_eq!(host.on(1, || host.read(mm, id, USED)), Ok(5), "access {nth}, {later} later");
        }
        Some((took, lost))
    })
}

/// All of these: how often reclaim took a page, and how often a frame had two owners.
fn reclaimed_in_all_splits(broken: Option<Rule>) -> (usize, usize) {
    let mut sums = (0, 0);
    for later in [0, 1, 2, 300, 1000] {
        let all = (1..).map_while(|nth| reclaimed_in_a_split(broken, nth, later));
        all.for_each(|(took, lost)| sums = (sums.0 + usize::from(took), sums.1 + usize::from(lost)));
    }
    sums
}

#[test]
fn a_split_brings_nothing_back_that_reclaim_has_taken_out() {
    let (took, lost) = reclaimed_in_all_splits(None);
    assert!(took > 0 && lost == 0, "{took} times reclaim took a page, {lost} times one that came back");
    assert!(reclaimed_in_all_splits(Some(Rule::SplitWhole)).1 > 0, "its frame has two owners");
}

/// CPU 0 splits; just before its `nth` access to the large entry CPU 1 uses the page. Whether it did so by the large entry,
/// and the bits that all small entries have, and that some have.
fn used_in_a_split(write: bool, nth: u32) -> Option<(bool, u64, u64)> {
    let host = machine(None);
    host.run(swapping("linux"), |mm| {
        let id = idle_large(mm);
        let by_large = Rc::new(Cell::new(None));
        let note = Rc::clone(&by_large);
        host.watch(
            LARGE,
            nth,
            Box::new(move |mm| {
                let host = mm.platform();
                host.on(1, || if write { _ = host.try_write(USED, 5) } else { _ = host.try_read(USED) });
                // A translation of another page of the large one is there only if that is what the CPU found.
                note.set(Some(host.caches(1, USED + 1)));
            }),
        );
        split(mm, id);
        host.watch_nothing();
        const BITS: u64 = Entry::ACCESSED | Entry::DIRTY;
        let bits = || (LARGE..LARGE + 512).map(|page| entry(mm, id, page).0 & BITS);
        Some((by_large.get()?, bits().fold(BITS, |all, one| all & one), bits().fold(0, |all, one| all | one)))
    })
}

#[test]
fn small_entries_say_what_the_large_one_said_in_the_end() {
    for write in [false, true] {
        let used = Entry::ACCESSED | if write { Entry::DIRTY } else { 0 };
        let mut before = 0;
        for (by_large, all, some) in (1..).map_while(|nth| used_in_a_split(write, nth)) {
            before += u32::from(by_large);
            let want = if by_large { used } else { 0 };
            assert_eq!(all, want, "a CPU goes on using all of it by what it has cached: {by_large}");
            assert!(by_large || some & !used == 0);
        }
        assert!(before > 2, "{before} times it came before the table");
    }
    // Nobody used it: all of it is as idle as it was.
    assert_eq!(used_in_a_split(false, 1).map(|(by_large, ..)| by_large), Some(true));
    let host = machine(None);
    host.run(swapping("linux"), |mm| {
        let id = idle_large(mm);
        split(mm, id);
        let idle = |page| !entry(mm, id, page).has(Entry::ACCESSED);
        assert!((LARGE..LARGE + 512).all(idle));
    });
}

/// CPU 1 has the large page cached, clean. At CPU 0's touch `n` of a split it writes, if that needs no fault. What it reads
/// when all is over, and again when the page has been to swap. `None` if there are fewer touches.
fn written_in_a_split(policy: &str, guarantees: bool, n: u32) -> Option<(u64, u64)> {
    let host = Host::new(Setup { cpus: 2, guarantees, ..Setup::default() });
    host.run(swapping(policy), |mm| {
        mm.swap().on(0, 2048, 0).unwrap();
        let id = idle_large(mm);
        host.on(1, || assert_eq!(host.read(mm, id, USED), Ok(0)));
        host.place();
        host.at_touch(0, n, |mm| {
            let host = mm.platform();
            host.on(1, || _ = host.try_write(USED, 5));
        });
        split(mm, id);
        host.all_placed().then(|| {
            let here = host.on(1, || host.read(mm, id, USED)).unwrap();
            give_back(mm, exhaust(mm));
            assert!(entry(mm, id, USED).is_swapped());
            (here, host.on(1, || host.read(mm, id, USED)).unwrap())
        })
    })
}

#[test]
fn a_write_in_the_middle_of_a_split_is_not_lost() {
    // Without the guarantee a CPU that has the page cached writes on and tells nobody.
    for (policy, guarantees) in [("linux", true), ("vanilla", false)] {
        let some = (0..).map(|n| 97 * n);
        let read: Vec<_> = some.map_while(|n| written_in_a_split(policy, guarantees, n)).collect();
        assert!(read.len() > 20 && read.iter().all(|&read| read == (5, 5)), "{read:?}");
    }
}
