//! Large pages: when they come, what makes them small, and how they go.

use crate::machine;

use std::cell::Cell;
use std::rc::Rc;

use machine::race::{Place, at, at_every_touch, race};
use machine::showing::{self, ANON, LARGE, Operation, TO, entry};
use machine::swapping::{DEVICE, end};
use machine::{Host, Mm, Setup, bare, counted, exhaust, give_back, pages, settled};
use quietmm::{Advice, AllocFrom, Config, Counter, Entry, Error, NodeId, PageNumber, Prot, Rule, SpaceId};

/// A space of two large pages, advised and touched.
fn large(mm: &Mm<'_>) -> SpaceId {
    let id = mm.create_space().unwrap();
    mm.space(id).map(pages(LARGE, 1024), ANON, Prot::ReadWrite).unwrap();
    mm.space(id).advise(pages(LARGE, 1024), Advice::Large).unwrap();
    mm.space(id).switch_to().unwrap();
    for page in [LARGE, LARGE + 511, LARGE + 600] {
        mm.platform().write(mm, id, page, page).unwrap();
    }
    assert_eq!(counted(mm, Counter::LargeFault), 2);
    id
}

#[test]
fn a_large_page_comes_by_one_fault_and_goes_whole() {
    let host = Host::new(Setup { cpus: 2, ..Setup::default() });
    host.run(bare("linux"), |mm| {
        let id = large(mm);
        assert_eq!(counted(mm, Counter::PgFault), 2);
        let first = entry(mm, id, LARGE);
        assert!(first.has(Entry::LARGE));
        for part in [0, 1, 300, 511] {
            let part = part as u32;
            assert_eq!(entry(mm, id, LARGE + u64::from(part)).frame(), first.frame().add(part));
        }
        let now = settled(mm);
        assert_eq!((now.anon, now.mapped), (1024, 2));
        mm.space(id).unmap(pages(LARGE, 512)).unwrap();
        let after = settled(mm);
        assert_eq!((after.anon, after.mapped, after.free), (512, 1, now.free + 512));
        assert_eq!(counted(mm, Counter::LargeSplit), 0);
        // A block of that order can be had again.
        mm.space(id).unmap(pages(LARGE + 512, 512)).unwrap();
        assert_eq!((settled(mm).anon, host.stale.get()), (0, 0));
    });
}

#[test]
fn without_a_large_frame_the_pages_are_small() {
    let host = Host::new(Setup::default());
    host.run(bare("linux"), |mm| {
        let id = mm.create_space().unwrap();
        mm.space(id).map(pages(LARGE, 1024), ANON, Prot::ReadWrite).unwrap();
        mm.space(id).advise(pages(LARGE, 1024), Advice::Large).unwrap();
        mm.space(id).switch_to().unwrap();
        let mut held = exhaust(mm);
        // Every other frame: enough, and none of them next to another.
        let mut other = Vec::new();
        for (i, block) in held.drain(..).enumerate() {
            if i % 2 == 0 { other.push(block) } else { mm.frames().free(block) }
        }
        host.write(mm, id, LARGE + 3, 5).unwrap();
        assert_eq!((counted(mm, Counter::LargeFault), settled(mm).anon), (0, 1));
        give_back(mm, other);
        host.write(mm, id, LARGE + 4, 6).unwrap();
        assert_eq!(counted(mm, Counter::LargeFault), 0, "small pages are there");
        host.write(mm, id, LARGE + 512, 7).unwrap();
        assert_eq!(counted(mm, Counter::LargeFault), 1);
        // Not where the VMA ends inside, and not where nobody asked.
        let (b, c) = (LARGE + 2048, LARGE + 4096);
        mm.space(id).map(pages(b, 511), ANON, Prot::ReadWrite).unwrap();
        mm.space(id).advise(pages(b, 511), Advice::Large).unwrap();
        mm.space(id).map(pages(c, 512), ANON, Prot::ReadWrite).unwrap();
        host.write(mm, id, b, 8).unwrap();
        host.write(mm, id, c, 9).unwrap();
        assert_eq!(counted(mm, Counter::LargeFault), 1);
        mm.space(id).advise(pages(LARGE, 1024), Advice::Small).unwrap();
        assert!(entry(mm, id, LARGE + 512).has(Entry::LARGE), "what is there stays");
        assert_eq!((host.read(mm, id, LARGE + 3), host.read(mm, id, LARGE + 512)), (Ok(5), Ok(7)));
    });
}

#[test]
fn what_concerns_a_part_of_a_large_page_makes_it_small() {
    let part = pages(LARGE + 100, 300);
    let changes: [(Operation, u64); 5] = [
        (|mm, id| mm.space(id).unmap(pages(LARGE + 100, 300)).unwrap(), 300),
        (|mm, id| mm.space(id).advise(pages(LARGE + 100, 300), Advice::Drop).unwrap(), 300),
        (|mm, id| mm.space(id).protect(pages(LARGE + 100, 300), Prot::Read).unwrap(), 0),
        (|mm, id| mm.space(id).move_range(pages(LARGE + 100, 300), PageNumber(TO)).unwrap(), 0),
        (|mm, id| _ = mm.space(id).fork().unwrap(), 0),
    ];
    for (i, (change, freed)) in changes.into_iter().enumerate() {
        let host = Host::new(Setup { cpus: 2, ..Setup::default() });
        host.run(bare("linux"), |mm| {
            let id = large(mm);
            host.write(mm, id, LARGE + 200, 200).unwrap();
            host.on(1, || {
                mm.space(id).switch_to().unwrap();
                host.write(mm, id, LARGE + 1, 1).unwrap();
            });
            host.forget();
            change(mm, id);
            assert_eq!(host.interrupts_to(1), 1, "change {i}");
            assert!(!entry(mm, id, LARGE).has(Entry::LARGE));
            let fork = i == 4;
            assert_eq!(entry(mm, id, LARGE + 512).has(Entry::LARGE), !fork);
            assert_eq!(settled(mm).anon, 1024 - freed);
            for cpu in [0, 1] {
                host.on(cpu, || {
                    let value = host.read(mm, id, LARGE + 200);
                    let hole = Err(Error::NotMapped(PageNumber(LARGE + 200)));
                    assert_eq!(value, [hole, Ok(0), Ok(200), hole, Ok(200)][i], "change {i}");
                    assert_eq!(host.read(mm, id, LARGE + 511), Ok(LARGE + 511));
                    assert_eq!(host.read(mm, id, LARGE + 1), Ok(1));
                    host.write(mm, id, LARGE + 2, 2).unwrap();
                    let inside = host.write(mm, id, part.start.0 + 7, 3);
                    assert_eq!(inside.is_ok(), matches!(i, 1 | 4), "change {i}");
                });
            }
            if i == 3 {
                assert_eq!(host.read(mm, id, TO + 100), Ok(200));
            }
            assert_eq!(host.stale.get(), 0);
        });
    }
}

#[test]
fn a_whole_large_page_is_protected_as_it_is() {
    let host = Host::new(Setup::default());
    host.run(bare("linux"), |mm| {
        let id = large(mm);
        mm.space(id).protect(pages(LARGE, 512), Prot::Read).unwrap();
        assert_eq!(host.write(mm, id, LARGE + 9, 1), Err(Error::NotPermitted(PageNumber(LARGE + 9))));
        mm.space(id).protect(pages(LARGE, 1024), Prot::None).unwrap();
        assert_eq!(host.read(mm, id, LARGE + 600), Err(Error::NotPermitted(PageNumber(LARGE + 600))));
        mm.space(id).protect(pages(LARGE, 1024), Prot::ReadWrite).unwrap();
        assert_eq!(host.read(mm, id, LARGE + 600), Ok(LARGE + 600));
        host.write(mm, id, LARGE + 9, 1).unwrap();
        assert_eq!((counted(mm, Counter::LargeSplit), settled(mm).anon), (0, 1024));
        mm.space(id).advise(pages(LARGE, 512), Advice::Drop).unwrap();
        assert_eq!((counted(mm, Counter::LargeSplit), settled(mm).anon), (0, 512));
        assert_eq!(host.read(mm, id, LARGE), Ok(0));
        assert_eq!(counted(mm, Counter::LargeFault), 3, "and comes again as one");
    });
}

/// CPU 1 goes on using a large page through what it has cached, right after aging has cleared its accessed bit; idle small
/// pages are beside it. How often the page was found in use again, and how often it was made small to go to swap.
fn aged_in_use(broken: Option<Rule>) -> (u64, u64) {
    let host = Host::new(Setup { cpus: 2, ..Setup::default() });
    host.broken.set(broken);
    host.run(Config { swap: true, ..bare("linux") }, |mm| {
        mm.swap().on(0, 1024, 0).unwrap();
        let id = mm.create_space().unwrap();
        mm.space(id).map(pages(LARGE, 512), ANON, Prot::ReadWrite).unwrap();
        mm.space(id).map(pages(TO, 64), ANON, Prot::ReadWrite).unwrap();
        mm.space(id).advise(pages(LARGE, 512), Advice::Large).unwrap();
        mm.space(id).switch_to().unwrap();
        host.write(mm, id, LARGE + 3, 5).unwrap();
        (TO..TO + 63).for_each(|page| host.write(mm, id, page, page).unwrap());
        mm.drain_lru_batch();
        host.on(1, || mm.space(id).switch_to().unwrap());
        host.on(1, || assert_eq!(host.read(mm, id, LARGE + 3), Ok(5)));
        // The oldest page is judged first.
        host.on_rotated.borrow_mut().push_back(Box::new(move |mm| {
            let host = mm.platform();
            host.on(1, || assert_eq!(host.read(mm, id, LARGE + 3), Ok(5)));
        }));
        let mut held = Vec::new();
        while counted(mm, Counter::PgStealDirect) == 0 {
            held.push(mm.frames().alloc(0, quietmm::AllocFrom::HERE).unwrap());
        }
        give_back(mm, held);
        assert_eq!(settled(mm).broken, None);
        (counted(mm, Counter::PgActivate), counted(mm, Counter::LargeSplit))
    })
}

#[test]
fn p33_a_large_page_is_flushed_when_its_accessed_bit_is_cleared() {
    assert_eq!(aged_in_use(None), (1, 0), "the use was seen");
    assert_eq!(aged_in_use(Some(Rule::LargeAgingFlushes)), (0, 1), "the hottest memory looked idle");
}

#[test]
fn an_idle_large_page_goes_to_swap_in_small_ones_and_comes_back_whole() {
    for policy in ["vanilla", "linux", "quiet"] {
        let host = Host::new(Setup::default());
        host.run(Config { swap: true, ..bare(policy) }, |mm| {
            mm.swap().on(0, 2048, 0).unwrap();
            let id = large(mm);
            mm.drain_lru_batch();
            give_back(mm, exhaust(mm));
            mm.drain_lru_batch();
            give_back(mm, exhaust(mm));
            assert_eq!((counted(mm, Counter::LargeSplit), settled(mm).swapped), (2, 1024), "{policy}");
            for page in [LARGE, LARGE + 511, LARGE + 600] {
                assert_eq!(host.read(mm, id, page), Ok(page), "{policy}");
            }
            assert_eq!(host.read(mm, id, LARGE + 1), Ok(0));
            mm.space(id).unmap(pages(LARGE, 1024)).unwrap();
            let end = settled(mm);
            assert_eq!((end.broken, end.swapped, end.anon), (None, 0, 0), "{policy}");
        });
    }
}

/// Each operation that makes large pages small, with less and less memory for the tables that take their place: it is refused,
/// leaves nothing behind, and works with more.
#[test]
fn a_large_page_for_which_there_is_no_table_stays_and_goes_later() {
    type Try = fn(&Mm<'_>, SpaceId) -> Result<(), Error>;
    let tries: [(&str, Try); 6] = [
        ("unmap", |mm, id| mm.space(id).unmap(pages(LARGE + 8, 600))),
        ("unmap one", |mm, id| mm.space(id).unmap(pages(LARGE + 8, 1))),
        ("protect", |mm, id| mm.space(id).protect(pages(LARGE + 8, 600), Prot::Read)),
        ("drop", |mm, id| mm.space(id).advise(pages(LARGE + 8, 600), Advice::Drop)),
        ("move", |mm, id| mm.space(id).move_range(pages(LARGE + 8, 600), PageNumber(LARGE << 4))),
        ("fork", |mm, id| mm.space(id).fork().map(|_| ())),
    ];
    for (name, attempt) in tries {
        let mut refused = 0;
        for frames in 0.. {
            let host = Host::new(Setup::default());
            let done = host.run(bare("linux"), |mm| {
                let id = large(mm);
                // A slot for a VMA is there, and one for a space.
                mm.space(mm.create_space().unwrap()).destroy().unwrap();
                let mut held = exhaust(mm);
                give_back(mm, held.split_off(held.len() - frames));
                let result = attempt(mm, id);
                assert_eq!(mm.validate().broken, None, "{name} with {frames} frames: {result:?}");
                give_back(mm, held);
                if result == Err(Error::OutOfMemory) {
                    let all = [LARGE, LARGE + 511, LARGE + 600];
                    assert!(all.iter().all(|&page| host.read(mm, id, page) == Ok(page)), "{name}");
                    assert_eq!(attempt(mm, id), Ok(()), "{name}");
                }
                result
            });
            match done {
                Ok(()) => break,
                Err(error) => assert_eq!(error, Error::OutOfMemory, "{name} with {frames} frames"),
            }
            refused += 1;
        }
        assert!(refused > 0, "{name}: never refused");
    }
}

#[test]
fn what_is_refused_leaves_a_large_page_large() {
    let host = Host::new(Setup::default());
    host.run(bare("vanilla"), |mm| {
        let id = large(mm);
        let is_large = || entry(mm, id, LARGE).has(Entry::LARGE);
        assert!(is_large());
        // Each range begins in the middle of the large page and ends where nothing is mapped.
        let beyond = pages(LARGE + 8, 1 << 14);
        let hole =
            |result: Result<(), Error>| assert!(matches!(result, Err(Error::NotMapped(_))), "{result:?}");
        hole(mm.space(id).migrate(beyond, NodeId(0)).map(|_| ()));
        hole(mm.space(id).protect(beyond, Prot::Read));
        hole(mm.space(id).advise(beyond, Advice::Drop));
        hole(mm.space(id).move_range(beyond, PageNumber(LARGE << 4)));
        assert_eq!((is_large(), mm.counter(Counter::LargeSplit)), (true, 0));
        assert_eq!(host.read(mm, id, LARGE), Ok(LARGE));
        mm.unload();
    });
}

#[test]
fn of_two_faults_one_may_make_the_page_large_while_the_other_is_on_its_way_to_a_small_one() {
    let setup = Setup { cpus: 2, ..Setup::default() };
    let cases = at_every_touch(&setup, &bare("linux"), None, |mm, place| {
        let host = mm.platform();
        let id = mm.create_space().unwrap();
        mm.space(id).map(pages(LARGE, 512), ANON, Prot::ReadWrite).unwrap();
        [0, 1].iter().for_each(|&cpu| host.on(cpu, || mm.space(id).switch_to().unwrap()));
        race(
            mm,
            place,
            || host.write(mm, id, LARGE + 1, 1).unwrap(),
            || {
                mm.space(id).advise(pages(LARGE, 512), Advice::Large).unwrap();
                host.write(mm, id, LARGE + 2, 2).unwrap();
            },
        );
        assert_eq!([1, 2, 3].map(|page| host.read(mm, id, LARGE + page)), [Ok(1), Ok(2), Ok(0)]);
        assert_eq!(settled(mm).broken, None);
        entry(mm, id, LARGE).has(Entry::LARGE)
    });
    let large = cases.count(|&large| large);
    assert!(large > 0 && large < cases.results.len(), "{large} of {}", cases.results.len());
}

/// Where this CPU's node has none, the pages are small, whatever others have.
#[test]
fn a_large_page_is_of_the_node_that_wants_it() {
    let host = Host::new(machine::showing::two_nodes());
    host.run(bare("linux"), |mm| {
        let own = |block: &quietmm::Frames| block.first().0 < Setup::default().base + 2048;
        let from = AllocFrom { node: Some(NodeId(0)), may_reclaim: false };
        let take = || mm.frames().alloc(0, from).unwrap();
        let mut held: Vec<_> = std::iter::from_fn(|| Some(take())).take(1700).collect();
        assert!(held.iter().all(own));
        let id = mm.create_space().unwrap();
        mm.space(id).map(pages(LARGE, 1024), ANON, Prot::ReadWrite).unwrap();
        mm.space(id).advise(pages(LARGE, 1024), Advice::Large).unwrap();
        mm.space(id).switch_to().unwrap();
        mm.platform().write(mm, id, LARGE, 1).unwrap();
        assert_eq!(counted(mm, Counter::LargeFault), 0);
        assert!(!entry(mm, id, LARGE).has(Entry::LARGE));
        held.drain(..).for_each(|block| mm.frames().free(block));
        mm.platform().write(mm, id, LARGE + 512, 1).unwrap();
        assert_eq!(counted(mm, Counter::LargeFault), 1);
    });
}

/// Two CPUs touch what becomes a large page: when one has taken its frames the other has it there before. It comes once, and what was taken in vain
/// is given back.
#[test]
fn a_large_page_that_two_want_at_once_comes_once() {
    let came = |swap, groups, both| {
        let host = Host::new(Setup { cpus: 2, ..Setup::default() });
        host.run(Config { swap, groups, lru_batch: 1, ..bare("linux") }, |mm| {
            let id = mm.create_space().unwrap();
            let group = (groups > 0).then(|| mm.create_group(1 << 20).unwrap());
            if group.is_some() {
                mm.space(id).set_group(group).unwrap();
            }
            mm.space(id).map(pages(LARGE, 512), ANON, Prot::ReadWrite).unwrap();
            mm.space(id).advise(pages(LARGE, 512), Advice::Large).unwrap();
            [0, 1].into_iter().for_each(|cpu| host.on(cpu, || mm.space(id).switch_to().unwrap()));
            let other = move |mm: &Mm<'_>| {
                let host = mm.platform();
                host.on(1, || host.write(mm, id, LARGE + 300, 300).unwrap());
            };
            if both {
                host.on_large_taken.borrow_mut().push_back(Box::new(other));
            }
            host.write(mm, id, LARGE + 7, 7).unwrap();
            other(mm);
            assert_eq!([7, 300].map(|page| host.read(mm, id, LARGE + page)), [Ok(7), Ok(300)]);
            let now = settled(mm);
            assert_eq!((now.broken, now.anon, now.mapped), (None, 512, 1));
            let charged = group.map(|group| mm.group(group).usage().unwrap());
            let charged = charged.map(|usage| usage.charged - usage.stocked);
            mm.space(id).protect(pages(LARGE + 1, 1), Prot::Read).unwrap();
            assert_eq!(settled(mm).mapped, 512, "it is made small");
            (counted(mm, Counter::LargeFault), now.free, charged)
        })
    };
    for (swap, groups) in [(false, 0), (true, 0), (true, 1)] {
        let alone = came(swap, groups, false);
        assert_eq!((came(swap, groups, true), alone.0), (alone, 1), "{swap} {groups}");
    }
}

/// Where there is room for a large page, and none for the table that it will need some day, pages are small, and nothing is kept.
#[test]
fn without_room_for_its_table_a_large_page_does_not_come() {
    let host = Host::new(Setup::default());
    host.run(Config { swap: true, groups: 1, ..bare("linux") }, |mm| {
        let id = mm.create_space().unwrap();
        let group = mm.create_group(1 << 20).unwrap();
        mm.space(id).set_group(Some(group)).unwrap();
        mm.space(id).map(pages(LARGE, 1024), ANON, Prot::ReadWrite).unwrap();
        mm.space(id).advise(pages(LARGE, 1024), Advice::Large).unwrap();
        mm.space(id).switch_to().unwrap();
        host.write(mm, id, LARGE, 1).unwrap();
        assert_eq!(counted(mm, Counter::LargeFault), 1);
        let charged = || {
            let usage = mm.group(group).usage().unwrap();
            usage.charged - usage.stocked
        };
        let (before, free) = (charged(), settled(mm).free);
        mm.group(group).set_limit(before + 512).unwrap();
        host.write(mm, id, LARGE + 600, 2).unwrap();
        assert_eq!((counted(mm, Counter::LargeFault), charged()), (1, before + 2), "a page and its table");
        assert_eq!((settled(mm).free, settled(mm).broken), (free - 2, None));
        mm.space(id).advise(pages(LARGE + 512, 512), Advice::Drop).unwrap();
        mm.space(id).unmap(pages(LARGE + 512, 512)).unwrap();
        assert_eq!((charged(), settled(mm).free), (before, free));
        // With room for the table too, it does.
        mm.group(group).set_limit(before + 513).unwrap();
        mm.space(id).map(pages(LARGE + 512, 512), ANON, Prot::ReadWrite).unwrap();
        mm.space(id).advise(pages(LARGE + 512, 512), Advice::Large).unwrap();
        host.write(mm, id, LARGE + 600, 2).unwrap();
        assert_eq!((counted(mm, Counter::LargeFault), charged()), (2, before + 513));
    });
}

/// Reclaim looks for a large page that is dropped meanwhile, with another in its place by then: that is as it was, or is made small with its own
/// table.
#[test]
fn reclaim_that_comes_too_late_for_a_large_page_takes_nothing_from_the_next() {
    let setup = Setup { cpus: 2, ..Setup::default() };
    let config = Config { swap: true, lru_batch: 1, ..bare("linux") };
    let mut late = 0;
    for n in 0..250 {
        late += u64::from(at(&setup, &config, None, |mm| {
            let host = mm.platform();
            mm.swap().on(DEVICE, 1024, 0).unwrap();
            let id = mm.create_space().unwrap();
            mm.space(id).map(pages(LARGE, 512), ANON, Prot::ReadWrite).unwrap();
            mm.space(id).advise(pages(LARGE, 512), Advice::Large).unwrap();
            host.on(1, || mm.space(id).switch_to().unwrap());
            let write = |value| host.write(mm, id, LARGE + 9, value).unwrap();
            host.on(1, || write(1));
            let again = || {
                mm.space(id).advise(pages(LARGE, 512), Advice::Drop).unwrap();
                write(2);
                counted(mm, Counter::LargeSplit) == 0
            };
            let reclaims = || mm.space(id).advise(pages(LARGE, 1), Advice::PageOut).unwrap();
            let late = race(mm, Place::Touch(n), reclaims, again);
            assert_eq!(host.on(1, || host.read(mm, id, LARGE + 9)), Ok(2));
            assert_eq!(settled(mm).broken, None);
            end(mm, &[id], &[DEVICE]);
            late
        }));
    }
    assert!(late > 50, "{late}");
}

/// A range that begins, or ends, in the middle of a large page: what lies outside is as it was, and what lies inside is not.
#[test]
fn a_range_that_ends_in_a_large_page_takes_no_more_than_that() {
    for (first, count) in [(LARGE - 8, 108), (LARGE + 100, 512), (LARGE + 100, 924), (LARGE - 8, 8 + 512 + 1)]
    {
        let ops: [(&str, Operation); 4] = [
            ("drop", |mm, id| mm.space(id).advise(pages(at_of(), count_of()), Advice::Drop).unwrap()),
            ("unmap", |mm, id| mm.space(id).unmap(pages(at_of(), count_of())).unwrap()),
            ("move", |mm, id| mm.space(id).move_range(pages(at_of(), count_of()), PageNumber(TO)).unwrap()),
            ("free", |mm, id| {
                mm.space(id).advise(pages(at_of(), count_of()), Advice::Free).unwrap();
                let held = exhaust(mm);
                give_back(mm, held);
            }),
        ];
        RANGE.set((first, count));
        for (name, op) in ops {
            let host = Host::new(Setup { cpus: 1, frames: 4096, ..Setup::default() });
            host.run(Config { swap: true, lru_batch: 1, ..bare("linux") }, |mm| {
                let id = mm.create_space().unwrap();
                mm.space(id).map(pages(LARGE - 8, 8 + 1024), ANON, Prot::ReadWrite).unwrap();
                mm.space(id).advise(pages(LARGE, 1024), Advice::Large).unwrap();
                mm.space(id).switch_to().unwrap();
                let all = || [LARGE - 1].into_iter().chain((LARGE..LARGE + 1024).step_by(3));
                all().for_each(|page| host.write(mm, id, page, page).unwrap());
                assert_eq!(counted(mm, Counter::LargeFault), 2);
                op(mm, id);
                for page in all() {
                    let inside = (first..first + count).contains(&page);
                    let now = host.read(mm, id, page);
                    let gone = match name {
                        "drop" => now == Ok(0),
                        "free" => now == Ok(0) || now == Ok(page),
                        _ => now.is_err(),
                    };
                    assert!(if inside { gone } else { now == Ok(page) }, "{name}: {page:#x}: {now:?}");
                }
                assert_eq!(settled(mm).broken, None);
            });
        }
    }
}

thread_local! {
    static RANGE: std::cell::Cell<(u64, u64)> = const { std::cell::Cell::new((0, 0)) };
}

fn at_of() -> u64 {
    RANGE.get().0
}

fn count_of() -> u64 {
    RANGE.get().1
}

/// Of a file there are only small pages, whatever is advised; and who pages a large one out where there is no swap comes to an end.
#[test]
fn advice_about_large_pages_leaves_files_alone_and_comes_to_an_end() {
    let host = Host::new(Setup::default());
    host.run(bare("linux"), |mm| {
        let id = mm.create_space().unwrap();
        let file = mm.create_file(1024).unwrap();
        for (at, private) in [(LARGE, false), (LARGE + 1024, true)] {
            let backing = if private { showing::private(file) } else { showing::shared(file) };
            mm.space(id).map(pages(at, 512), backing, Prot::ReadWrite).unwrap();
            mm.space(id).advise(pages(at, 512), Advice::Large).unwrap();
        }
        mm.space(id).switch_to().unwrap();
        host.write(mm, id, LARGE + 3, 7).unwrap();
        assert_eq!((host.read(mm, id, LARGE + 1024 + 3), host.on_disk(file, 3)), (Ok(7), None));
        host.write(mm, id, LARGE + 1024 + 3, 8).unwrap();
        assert_eq!(host.read(mm, id, LARGE + 3), Ok(7));
        assert_eq!((counted(mm, Counter::LargeFault), settled(mm).anon), (0, 1));
        mm.space(id).map(pages(LARGE + 2048, 512), ANON, Prot::ReadWrite).unwrap();
        mm.space(id).advise(pages(LARGE + 2048, 512), Advice::Large).unwrap();
        host.write(mm, id, LARGE + 2048, 9).unwrap();
        assert_eq!(counted(mm, Counter::LargeFault), 1);
        mm.space(id).advise(pages(LARGE + 2048, 512), Advice::PageOut).unwrap();
        assert_eq!(host.read(mm, id, LARGE + 2048), Ok(9));
    });
}

/// Where memory is short no large page comes, though one is free and more than the low watermark would be left: not until enough is free again.
#[test]
fn no_large_page_comes_until_memory_is_no_longer_short() {
    let host = Host::new(Setup { frames: 16384, ..Setup::default() });
    host.run(Config { min_free: Some(4096), ..bare("linux") }, |mm| {
        let id = mm.create_space().unwrap();
        mm.space(id).map(pages(LARGE, 1024), ANON, Prot::ReadWrite).unwrap();
        mm.space(id).advise(pages(LARGE, 1024), Advice::Large).unwrap();
        mm.space(id).switch_to().unwrap();
        let mut held = Vec::new();
        while counted(mm, Counter::KswapdWoken) == 0 {
            held.push(mm.frames().alloc(0, AllocFrom::NOW).unwrap());
        }
        // From here on a large page more than low is free, and less than high.
        give_back(mm, held.split_off(held.len() - 512 - 16));
        host.write(mm, id, LARGE, 1).unwrap();
        assert_eq!(counted(mm, Counter::LargeFault), 0);
        give_back(mm, held);
        host.write(mm, id, LARGE + 512, 1).unwrap();
        assert_eq!(counted(mm, Counter::LargeFault), 1);
    });
}

/// Another CPU writes, for the first time, at each step of what makes a large page small: the small entry says that it was written to.
#[test]
fn what_is_written_while_a_large_page_becomes_small_is_dirty() {
    let mut written = 0;
    for nth in 1..8 {
        let host = Host::new(Setup { cpus: 2, ..Setup::default() });
        host.run(bare("linux"), |mm| {
            let id = mm.create_space().unwrap();
            mm.space(id).map(pages(LARGE, 512), ANON, Prot::ReadWrite).unwrap();
            mm.space(id).advise(pages(LARGE, 512), Advice::Large).unwrap();
            host.on(1, || mm.space(id).switch_to().unwrap());
            mm.space(id).switch_to().unwrap();
            host.read(mm, id, LARGE).unwrap();
            assert!(entry(mm, id, LARGE).has(Entry::LARGE) && !entry(mm, id, LARGE).has(Entry::DIRTY));
            let wrote = Rc::new(Cell::new(false));
            let writes = Rc::clone(&wrote);
            let write = move |mm: &Mm<'_>| {
                let host = mm.platform();
                writes.set(host.on(1, || host.try_write(LARGE, 7)));
            };
            host.watch(LARGE, nth, Box::new(write));
            mm.space(id).unmap(pages(LARGE + 511, 1)).unwrap();
            host.watch_nothing();
            written += u32::from(wrote.get());
            let now = entry(mm, id, LARGE);
            assert!(!now.has(Entry::LARGE));
            assert_eq!(now.has(Entry::DIRTY), wrote.get(), "before step {nth}");
            assert_eq!(host.read(mm, id, LARGE), Ok(if wrote.get() { 7 } else { 0 }));
        });
    }
    assert!(written > 1, "{written} times");
}

/// A large page leaves a block that goes offline, in small ones, with what it holds; those that lie elsewhere stay as they are.
#[test]
fn a_large_page_leaves_a_block_that_goes() {
    let host = Host::new(Setup::default());
    host.run(Config { swap: true, lru_batch: 1, ..bare("linux") }, |mm| {
        let id = large(mm);
        let block = |page| quietmm::FrameNumber(entry(mm, id, page).frame().0 & !1023);
        // The core's bookkeeping is in the first.
        let first = if block(LARGE).0 == 0xfc00 { LARGE + 512 } else { LARGE };
        let (goes, other) = (block(first), LARGE + (LARGE + 512 - first));
        let stays = block(other) != goes;
        let leaving = mm.frames().begin_offline(goes).unwrap();
        let gone = mm.frames().finish_offline(leaving).unwrap();
        assert!((first..first + 512).all(|page| entry(mm, id, page).is_present() && block(page) != goes));
        assert_eq!(entry(mm, id, other).has(Entry::LARGE), stays);
        for page in [LARGE, LARGE + 511, LARGE + 600] {
            assert_eq!(host.read(mm, id, page), Ok(page));
        }
        // All of it is on the lists, and held by nobody.
        mm.frames().bring_online(gone);
        mm.swap().on(DEVICE, 2048, 0).unwrap();
        (0..3).for_each(|_| give_back(mm, exhaust(mm)));
        assert_eq!(settled(mm).swapped, 1024);
        end(mm, &[id], &[DEVICE]);
    });
}

/// The same where it is used at one step, and written to at a later one.
#[test]
fn what_is_used_and_then_written_while_a_large_page_becomes_small_is_dirty() {
    let mut written = 0;
    for (first, then) in (1..6).flat_map(|first| (1..4).map(move |then| (first, then))) {
        let host = Host::new(Setup { cpus: 2, ..Setup::default() });
        host.run(bare("linux"), |mm| {
            let id = mm.create_space().unwrap();
            mm.space(id).map(pages(LARGE, 512), ANON, Prot::ReadWrite).unwrap();
            mm.space(id).advise(pages(LARGE, 512), Advice::Large).unwrap();
            [1, 0].iter().for_each(|&cpu| host.on(cpu, || mm.space(id).switch_to().unwrap()));
            host.read(mm, id, LARGE).unwrap();
            host.make_cold(LARGE);
            let wrote = host.use_and_write(LARGE, (first, then), 7);
            mm.space(id).unmap(pages(LARGE + 511, 1)).unwrap();
            host.watch_nothing();
            written += u32::from(wrote.get());
            assert_eq!(entry(mm, id, LARGE).has(Entry::DIRTY), wrote.get(), "at {first}, and {then} later");
        });
    }
    assert!(written > 2, "{written} times");
}
