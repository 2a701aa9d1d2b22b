//! Page tables in which nothing is left while something is mapped where they lie: given back by an unmap, by a drop, when asked, and before anybody
//! has to end for memory.

use std::cell::RefCell;

use crate::groups::charged;
use crate::machine;

use machine::faults::run_in;
use machine::race::{Cases, Place, at_every_touch, race};
use machine::showing::{ANON, shared};
use machine::swapping::{DEVICE, read, reclaim, swapping, take_free};
use machine::{Host, Mm, Setup, bare, counted, exhaust, give_back, pages, pcp, settled};
use quietmm::{
    Advice, AllocFrom, Backing, Config, Counter, Error, FileId, PageNumber, Prot, Rule, SpaceId, UserAccess,
};

/// The first page of a table of the level above the lowest.
const AT: u64 = 1 << 18;
/// Pages under a table.
const TABLE: u64 = 512;

fn setup(cpus: u32) -> Setup {
    Setup { cpus, ..Setup::default() }
}

fn tables(mm: &Mm<'_>, id: SpaceId) -> u64 {
    mm.space(id).usage().unwrap().tables
}

fn space(mm: &Mm<'_>, backing: Backing, at: u64, count: u64) -> SpaceId {
    let id = mm.create_space().unwrap();
    mm.space(id).map(pages(at, count), backing, Prot::ReadWrite).unwrap();
    mm.space(id).switch_to().unwrap();
    id
}

fn stale(mm: &Mm<'_>) -> u32 {
    mm.platform().stale.get()
}

#[test]
fn a_tebibyte_that_is_mapped_touched_and_unmapped_in_strides_leaves_the_tables_that_there_were() {
    const ALL: u64 = 1 << 28;
    let host = Host::new(Setup { frames: 4096, ..setup(2) });
    host.run(bare("linux"), |mm| {
        let id = space(mm, ANON, AT, 8);
        host.write(mm, id, AT, 1).unwrap();
        let before = (settled(mm).tables, tables(mm, id));
        let first = 1 << 30;
        // At distances at which two share all, some, or no tables; pieces that go in another order than they came.
        for (stride, piece) in
            [(1 << 18, 1 << 20), ((1 << 20) + 513, 1 << 22), (1 << 27, ALL), (1 << 9, 1 << 15)]
        {
            let all = if stride < 1 << 18 { 1 << 17 } else { ALL };
            let pieces: Vec<u64> = (0..all / piece).map(|n| first + n * piece).collect();
            pieces.iter().for_each(|&at| mm.space(id).map(pages(at, piece), ANON, Prot::ReadWrite).unwrap());
            let touched = (first..first + all).step_by(stride as usize);
            touched.for_each(|page| host.write(mm, id, page, page).unwrap());
            assert!(tables(mm, id) > before.1 + 2, "{stride:#x}");
            let (even, odd): (Vec<_>, Vec<_>) = pieces.into_iter().partition(|at| at / piece % 2 == 0);
            for at in even.into_iter().chain(odd.into_iter().rev()) {
                // In two halves: what the first leaves the second takes.
                [at + piece / 2, at].iter().for_each(|&at| mm.space(id).unmap(pages(at, piece / 2)).unwrap());
            }
            assert_eq!((settled(mm).tables, tables(mm, id)), before, "{stride:#x}");
        }
        assert_eq!((read(mm, id, AT), stale(mm)), (Ok(1), 0));
    });
}

/// A space with pages of a file, a page touched under each of so many tables, then cut off, and the file as long as before.
fn cut(mm: &Mm<'_>, many: u64) -> (SpaceId, FileId) {
    let file = mm.create_file(many * TABLE).unwrap();
    let id = space(mm, shared(file), AT, many * TABLE);
    (0..many).for_each(|n| mm.platform().write(mm, id, AT + n * TABLE + n, n).unwrap());
    mm.file(file).punch_hole(0, many * TABLE * 4096).unwrap();
    (id, file)
}

#[test]
fn what_a_cut_file_has_left_goes_when_asked_for_one_flush_of_many() {
    for policy in ["linux", "vanilla", "quiet", "linux+flush=broadcast"] {
        let host = Host::new(Setup { frames: 2048, broadcast: policy.contains("broadcast"), ..setup(3) });
        host.run(bare(policy), |mm| {
            let (id, file) = cut(mm, 70);
            let pinned = AT + 7 * TABLE + 100;
            host.write(mm, id, pinned, 77).unwrap();
            run_in(mm, id, &[1, 2]);
            [1, 2].iter().for_each(|&cpu| host.on(cpu, || assert_eq!(host.try_read(pinned), Some(77))));
            host.on(2, || mm.enter_lazy());
            assert_eq!(tables(mm, id), 3 + 70);
            host.forget();
            // One is in use.
            assert_eq!(mm.space(id).free_empty_tables(), Ok(69), "{policy}");
            assert_eq!((tables(mm, id), stale(mm)), (4, 0), "{policy}");
            // 64 with one flush; the lazy one lets go at the first.
            let asked = [1, 2].map(|cpu| host.interrupts_to(cpu));
            assert_eq!(
                (asked, host.broadcasts().len()),
                if policy.contains("broadcast") { ([0, 0], 2) } else { ([2, 1], 0) }
            );
            host.forget();
            assert_eq!(
                (mm.space(id).free_empty_tables(), host.interrupts()),
                (Ok(0), 0),
                "nothing is left to do"
            );
            assert_eq!((host.read(mm, id, pinned), host.read(mm, id, pinned + 1)), (Ok(77), Ok(0)));
            // They come again, and the last goes with those above.
            mm.file(file).punch_hole(0, 70 * TABLE * 4096).unwrap();
            assert_eq!((mm.space(id).free_empty_tables(), tables(mm, id)), (Ok(3), 1));
            (0..3).for_each(|n| assert_eq!(host.read(mm, id, AT + n * TABLE), Ok(0)));
            assert_eq!((settled(mm).broken, stale(mm)), (None, 0), "{policy}");
        });
    }
}

/// Tables are freed under CPUs: those that were, and whether one CPU is lazy.
fn freed_under(broken: Option<Rule>, lazy: bool) -> u32 {
    let host = Host::new(setup(2));
    host.broken.set(broken);
    host.run(bare("linux"), |mm| {
        let (id, _) = cut(mm, 2);
        host.on(1, || {
            mm.space(id).switch_to().unwrap();
            assert_eq!(host.try_read(AT), None, "it walks, and finds no page");
            if lazy {
                mm.enter_lazy();
            }
        });
        assert_eq!(mm.space(id).free_empty_tables(), Ok(4));
        stale(mm)
    })
}

#[test]
fn they_are_freed_after_a_flush_that_lazy_cpus_hear() {
    for lazy in [false, true] {
        assert_eq!(freed_under(None, lazy), 0);
        assert!(freed_under(Some(Rule::TablesAfterFlush), lazy) > 0);
    }
    assert!(freed_under(Some(Rule::TablesToLazy), true) > 0);
}

/// What shares a table with another mapping stays, and so does one that names swap slots; what neighbours leave alone goes.
/// Of several tables that go together the flush is of all that they are for, and not of the last alone.
#[test]
fn several_tables_are_flushed_as_one() {
    let host = Host::new(setup(2));
    host.run(bare("linux"), |mm| {
        let id = space(mm, ANON, AT, 4 * TABLE);
        host.write(mm, id, AT + 3 * TABLE, 1).unwrap();
        for page in [AT, AT + TABLE] {
            host.write(mm, id, page, 1).unwrap();
            mm.space(id).advise(pages(page, 1), Advice::Drop).unwrap();
        }
        run_in(mm, id, &[1]);
        host.forget();
        assert_eq!(mm.space(id).free_empty_tables(), Ok(2));
        assert_eq!(host.flushes(1), (1, 0));
    });
}

#[test]
fn tables_that_somebody_needs_stay() {
    let host = Host::new(Setup { frames: 2048, ..setup(1) });
    host.run(swapping("linux"), |mm| {
        mm.swap().on(DEVICE, 512, 0).unwrap();
        let id = space(mm, ANON, AT, 700);
        mm.space(id).map(pages(AT + 700, 1500), ANON, Prot::Read).unwrap();
        mm.space(id).map(pages(AT + (2 << 27), 8), ANON, Prot::ReadWrite).unwrap();
        // Under tables 0, 1 (which both share) and 2 to 4; and under another one of the highest level.
        for page in [AT, AT + 600, AT + (2 << 27)] {
            host.write(mm, id, page, page).unwrap();
        }
        for n in 2..5 {
            mm.space(id).fault(PageNumber(AT + n * TABLE).addr(), UserAccess::Read).unwrap();
        }
        let all = tables(mm, id);
        mm.space(id).advise(pages(AT, 1), Advice::PageOut).unwrap();
        assert!(mm.space(id).lookup(PageNumber(AT)).unwrap().is_swapped());
        for (page, count) in [(AT + 600, 1), (AT + 2 * TABLE, 1), (AT + 3 * TABLE, 1), (AT + (2 << 27), 8)] {
            mm.space(id).advise(pages(page, count), Advice::Drop).unwrap();
        }
        assert_eq!(tables(mm, id), all, "one page here and there: no table goes with it");
        // 2 and 3, and the one far away with the two above it.
        assert_eq!(mm.space(id).free_empty_tables(), Ok(5));
        assert_eq!(tables(mm, id), all - 5);
        assert_eq!((host.read(mm, id, AT), host.read(mm, id, AT + 600)), (Ok(AT), Ok(0)));
        assert_eq!(settled(mm).broken, None);
    });
}

/// A CPU drops what lies under eight tables and in a part of another; one CPU uses the space, one may be lazy in it. Tables that went, interrupts to both, and
/// tables freed under a CPU.
fn dropped(policy: &str, lazy: bool, broken: Option<Rule>) -> (u64, [usize; 2], u32) {
    let host = Host::new(Setup { frames: 2048, ..setup(3) });
    host.broken.set(broken);
    host.run(bare(policy), |mm| {
        let id = space(mm, ANON, AT, 16 * TABLE);
        (0..9).for_each(|n| host.write(mm, id, AT + n * TABLE + 3, n).unwrap());
        run_in(mm, id, if lazy { &[1, 2] } else { &[1] });
        host.on(1, || (0..9).for_each(|n| assert_eq!(host.try_read(AT + n * TABLE + 3), Some(n))));
        host.on(2, || {
            if lazy {
                assert_eq!(host.try_read(AT + 3), Some(0));
                mm.enter_lazy()
            }
        });
        let before = tables(mm, id);
        host.forget();
        mm.space(id).advise(pages(AT, 8 * TABLE + 100), Advice::Drop).unwrap();
        let interrupts = [1, 2].map(|cpu| host.interrupts_to(cpu));
        let gone = before - tables(mm, id);
        let stale = stale(mm);
        if broken.is_none() {
            (0..9).for_each(|n| assert_eq!(host.read(mm, id, AT + n * TABLE + 3), Ok(0)));
            assert_eq!(settled(mm).broken, None);
        }
        (gone, interrupts, stale)
    })
}

#[test]
fn a_drop_gives_the_tables_back_if_its_flush_serves_them_and_interrupts_nobody_more() {
    for policy in ["linux+emptied=quietly", "quiet", "vanilla"] {
        assert_eq!(dropped(policy, false, None), (8, [1, 0], 0), "{policy}");
        assert_eq!(dropped(policy, true, None), (0, [1, 0], 0), "{policy}: a lazy CPU would be asked for it");
    }
    // As Linux has it.
    for policy in ["linux", "quiet+emptied=at-once"] {
        assert_eq!(dropped(policy, false, None), (8, [1, 0], 0), "{policy}");
        assert_eq!(dropped(policy, true, None), (8, [1, 1], 0), "{policy}: it lets go of the space");
    }
    assert!(dropped("linux", true, Some(Rule::TablesToLazy)).2 > 0);
    assert_eq!(
        dropped("quiet+free=sweep", false, None),
        (0, [0, 0], 0),
        "what is parked leaves its mark there"
    );
    let (gone, _, stale) = dropped("linux", false, Some(Rule::FlushBeforeDropReturns));
    assert!(gone == 8 && stale > 0, "{stale} tables");
}

/// What lies in the range as a whole goes, however few pages were there; no table that only others' silence would let go.
#[test]
fn at_once_whole_tables_go_with_a_drop_of_one_page() {
    for (policy, range, gone) in [
        ("linux", pages(AT, TABLE), 1),
        ("linux", pages(AT + 1, TABLE - 1), 0),
        ("linux", pages(AT, TABLE - 1), 0),
        ("linux", pages(AT + 1, 2 * TABLE), 1),
        // Nothing else is mapped under the first one, and under the last.
        ("linux", pages(AT + 2 * TABLE, 100), 0),
        ("linux", pages(AT + TABLE, TABLE + 100), 1),
        ("linux", pages(AT - 100, TABLE + 100), 1),
        ("linux+emptied=quietly", pages(AT, TABLE), 0),
    ] {
        let host = Host::new(setup(2));
        host.run(bare(policy), |mm| {
            let id = space(mm, ANON, AT - 100, 2 * TABLE + 200);
            for page in [AT - 50, AT + 5, AT + TABLE + 5, AT + 2 * TABLE + 5] {
                host.write(mm, id, page, page).unwrap();
            }
            run_in(mm, id, &[1]);
            host.on(1, || mm.enter_lazy());
            let before = tables(mm, id);
            host.forget();
            mm.space(id).advise(range, Advice::Drop).unwrap();
            assert_eq!(
                (before - tables(mm, id), host.interrupts_to(1)),
                (gone, gone as usize),
                "{policy}, {range:?}"
            );
            assert_eq!((settled(mm).broken, stale(mm)), (None, 0));
        });
    }
}

/// All memory is gone but for what tables take in which nothing is left, of a space that somebody else uses, or nobody. Whether a frame comes, and how often a victim
/// was asked for.
fn short_of_memory(broken: Option<Rule>) -> (bool, u64) {
    let host = Host::new(Setup { frames: 1024, ..setup(2) });
    host.broken.set(broken);
    host.run(Config { page_lists: pcp(1), ..bare("linux") }, |mm| {
        let (id, _) = cut(mm, 40);
        host.on(1, || mm.space(id).switch_to().unwrap());
        mm.unload();
        let held = take_free(mm);
        let got = mm.frames().alloc(0, AllocFrom::HERE);
        let asked = counted(mm, Counter::OutOfMemory);
        let came = got.map(|frame| give_back(mm, vec![frame])).is_ok();
        give_back(mm, held);
        assert_eq!(stale(mm), 0);
        (came, asked)
    })
}

#[test]
fn nobody_has_to_end_for_tables_in_which_nothing_is_left() {
    assert_eq!(short_of_memory(None), (true, 0));
    assert_eq!(short_of_memory(Some(Rule::TablesBeforeVictim)), (false, 1));
}

/// A look reads all tables, so one that found nothing is not made again for a while, however many find no memory.
#[test]
fn what_was_looked_for_in_vain_is_looked_for_later() {
    let host = Host::new(Setup { frames: 1024, ..setup(2) });
    host.run(Config { page_lists: pcp(1), ..bare("linux") }, |mm| {
        let (id, _) = cut(mm, 1);
        mm.space(id).free_empty_tables().unwrap();
        let held = take_free(mm);
        let came = |at| {
            host.clock.set(at);
            let before = counted(mm, Counter::OutOfMemory);
            let got = mm.frames().alloc(0, AllocFrom::HERE);
            got.map(|frame| give_back(mm, vec![frame])).is_ok() && counted(mm, Counter::OutOfMemory) == before
        };
        assert!(!came(1_000_000_000), "there is none");
        give_back(mm, held);
        let (other, _) = cut(mm, 40);
        let held = take_free(mm);
        assert!(!came(1_099_999_999), "not yet");
        assert!(came(1_100_000_001));
        assert_eq!(mm.space(other).free_empty_tables(), Ok(0));
        give_back(mm, held);
        cut(mm, 40);
        let held = take_free(mm);
        assert!(came(1_100_000_002), "what was found is looked for again at once");
        give_back(mm, held);
    });
}

/// The same where a group may have no more: the tables are of a space of its own, or of another group's. Whether a page comes in another space of it.
fn group_at_its_limit(own: bool, broken: Option<Rule>) -> Result<(), Error> {
    let host = Host::new(Setup { frames: 2048, ..setup(2) });
    host.broken.set(broken);
    host.run(Config { groups: 2, page_lists: pcp(1), ..bare("linux") }, |mm| {
        let groups = [0; 2].map(|_| mm.create_group(1000).unwrap());
        let [id, other] = [0; 2].map(|_| mm.create_space().unwrap());
        mm.space(id).set_group(Some(groups[usize::from(!own)])).unwrap();
        mm.space(other).set_group(Some(groups[0])).unwrap();
        for space in [id, other] {
            mm.space(space).map(pages(AT, 40 * TABLE), ANON, Prot::ReadWrite).unwrap();
        }
        mm.space(id).switch_to().unwrap();
        (0..40).for_each(|n| host.write(mm, id, AT + n * TABLE, n).unwrap());
        (0..40).for_each(|n| mm.space(id).advise(pages(AT + n * TABLE, 1), Advice::Drop).unwrap());
        mm.space(other).switch_to().unwrap();
        host.write(mm, other, AT, 1).unwrap();
        mm.group(groups[0]).set_limit(charged(mm, groups[0])).unwrap();
        let result = host.write(mm, other, AT + 1, 1);
        assert!(own || mm.space(id).free_empty_tables().unwrap() >= 40, "another group's are left alone");
        result
    })
}

#[test]
fn nor_in_a_group_for_its_own_tables() {
    assert_eq!(group_at_its_limit(true, None), Ok(()));
    let refused = |result| matches!(result, Err(Error::LimitReached(_)));
    assert!(refused(group_at_its_limit(true, Some(Rule::TablesBeforeVictim))));
    assert!(refused(group_at_its_limit(false, None)), "those of another group help nobody");
}

/// Whoever reclaims holds the VMAs of a space itself, or another that stands still does: it waits for neither.
#[test]
fn who_reclaims_waits_for_no_vmas() {
    let host = Host::new(Setup { frames: 1024, ..setup(2) });
    host.run(Config { page_lists: pcp(1), ..bare("linux") }, |mm| {
        let (id, _) = cut(mm, 40);
        mm.space(id).map(pages(AT - 8, 4), ANON, Prot::ReadWrite).unwrap();
        let held = RefCell::new(take_free(mm));
        // The fault itself wants memory, with its VMAs shared: the tables of its own space are of no use to it.
        let faults = host.write(mm, id, AT - 7, 7);
        assert_eq!(faults, Err(Error::OutOfMemory));
        give_back(mm, held.take());
        assert_eq!(mm.space(id).free_empty_tables(), Ok(40 + 1));
        assert_eq!(settled(mm).broken, None);
    });
}

/// CPU 0 gives tables back, or drops what is under them; CPU 1 does something meanwhile.
type Second = fn(&Mm<'_>, SpaceId);

const BESIDE: u64 = AT + TABLE;

/// Its CPU walks the tables, and keeps the way.
const WALKS: Second = |mm, _| [AT, BESIDE].iter().for_each(|&page| _ = mm.platform().try_read(page));

const SECONDS: &[(&str, Second)] = &[
    ("a walk", WALKS),
    ("a fault in the table", |mm, id| mm.platform().write(mm, id, AT, 5).unwrap()),
    ("a fault in the next", |mm, id| mm.platform().write(mm, id, BESIDE, 5).unwrap()),
    ("a fault in another mapping", |mm, id| mm.platform().write(mm, id, AT + 4 * TABLE, 5).unwrap()),
    ("reclaim", |mm, _| {
        let held = take_free(mm);
        (0..2).for_each(|_| reclaim(mm));
        give_back(mm, held);
    }),
    ("fork", |mm, id| {
        let child = mm.space(id).fork().unwrap();
        mm.space(child).fault(PageNumber(AT + 1).addr(), UserAccess::Write).unwrap();
        mm.space(child).destroy().unwrap();
    }),
    ("protect", |mm, id| {
        mm.space(id).protect(pages(AT, 2), Prot::Read).unwrap();
        mm.space(id).protect(pages(AT, 2), Prot::ReadWrite).unwrap();
    }),
    ("protect beside", |mm, id| {
        mm.space(id).protect(pages(BESIDE, 2), Prot::Read).unwrap();
        mm.space(id).protect(pages(BESIDE, 2), Prot::ReadWrite).unwrap();
    }),
    ("a sweep", |mm, _| {
        mm.begin_sweep();
        mm.tick();
    }),
    ("unmap beside", |mm, id| mm.space(id).unmap(pages(AT + 4 * TABLE, 4)).unwrap()),
    ("the same", |mm, id| _ = mm.space(id).free_empty_tables().unwrap()),
    ("a move", |mm, id| mm.space(id).move_range(pages(AT, 3 * TABLE), PageNumber(AT + 16 * TABLE)).unwrap()),
    ("a look", |mm, id| _ = mm.space(id).usage().unwrap()),
];

/// Of work in which a look at each of 512 entries is like the one before, some places, of which none is as far from the next as from the last; all in `make soak`.
fn some(place: Place) -> Place {
    match place {
        Place::Touch(n) if !machine::soaks() => Place::Touch(40 * n + n % 40),
        place => place,
    }
}

fn race_setup() -> Setup {
    Setup { cpus: 3, frames: 768, ..Setup::default() }
}

/// A mapping of three tables, of a file or not, in which CPUs 0, 1 and 2 run: something is left under the last alone; and another mapping, with
/// tables between.
fn scene(mm: &Mm<'_>, backing: fn(FileId) -> Backing) -> SpaceId {
    let host = mm.platform();
    let file = mm.create_file(3 * TABLE).unwrap();
    let id = space(mm, backing(file), AT, 3 * TABLE);
    mm.space(id).map(pages(AT + 4 * TABLE, 4), ANON, Prot::ReadWrite).unwrap();
    for page in [AT, AT + 1, BESIDE, AT + 2 * TABLE, AT + 4 * TABLE + 1] {
        host.write(mm, id, page, page).unwrap();
    }
    mm.file(file).write_back().unwrap();
    for cpu in [1, 2, 0] {
        host.on(cpu, || {
            mm.space(id).switch_to().unwrap();
            [AT, BESIDE, AT + 2 * TABLE].iter().for_each(|&page| _ = host.try_read(page));
            mm.drain_lru_batch();
        });
    }
    id
}

/// How many tables, or pages, were used after they were freed; with all else as it should be.
fn raced(
    (policy, backing): (&str, fn(FileId) -> Backing),
    first: Second,
    second: Second,
    broken: Option<Rule>,
) -> Cases<u32> {
    at_every_touch(&race_setup(), &swapping(policy), broken, |mm, place: Place| {
        mm.swap().on(DEVICE, 512, 0).unwrap();
        let host = mm.platform();
        let id = scene(mm, backing);
        host.on(2, || [AT, BESIDE].iter().for_each(|&page| _ = host.try_read(page)));
        // While an operation goes on CPUs may use what it is about to flush.
        host.uses_windows.set(true);
        race(mm, some(place), || first(mm, id), || second(mm, id));
        let before = stale(mm);
        for cpu in [2, 0] {
            host.on(cpu, || {
                for page in [AT, AT + 1, BESIDE, AT + 2 * TABLE, AT + 4 * TABLE + 1] {
                    _ = host.try_read(page);
                }
            });
        }
        let used = stale(mm) - before + host.freed_under.get();
        if broken.is_none() {
            let last = [AT, AT + 16 * TABLE]
                .into_iter()
                .find(|&at| mm.space(id).fault(PageNumber(at + 2 * TABLE).addr(), UserAccess::Read).is_ok());
            assert_eq!(read(mm, id, last.unwrap() + 2 * TABLE), Ok(AT + 2 * TABLE));
            (0..3).for_each(|cpu| host.on(cpu, || mm.unload()));
            assert_eq!(settled(mm).broken, None);
            mm.space(id).destroy().unwrap();
            assert_eq!((settled(mm).tables, settled(mm).broken), (1, None));
        }
        used
    })
}

/// It may have moved away.
fn drops(mm: &Mm<'_>, id: SpaceId, at: u64, count: u64) {
    let done = mm.space(id).advise(pages(at, count), Advice::Drop);
    assert!(matches!(done, Ok(()) | Err(Error::NotMapped(_))), "{done:?}");
}

const DROPS: Second = |mm, id| drops(mm, id, AT, 2 * TABLE);
const GIVES_BACK: Second = |mm, id| {
    // Two pages that lie close: they are flushed by themselves.
    for at in [AT, BESIDE] {
        drops(mm, id, at, 2);
    }
    mm.space(id).free_empty_tables().unwrap();
};

#[test]
fn whatever_others_do_meanwhile_nothing_is_used_that_was_freed() {
    let backings: [fn(FileId) -> Backing; 2] = [|_| ANON, shared];
    for (name, second) in SECONDS {
        for (policy, backing) in [("linux", backings[1]), ("quiet", backings[0])] {
            for first in [DROPS, GIVES_BACK] {
                let cases = raced((policy, backing), first, *second, None);
                assert!(cases.results.len() > 50, "{name}, {policy}: {}", cases.results.len());
                assert_eq!(cases.count(|&stale| stale > 0), 0, "{name}, {policy}");
            }
        }
    }
    for (first, rule) in [(DROPS, Rule::FlushBeforeDropReturns), (GIVES_BACK, Rule::TablesAfterFlush)] {
        assert!(
            raced(("linux", backings[1]), first, WALKS, Some(rule)).count(|&stale| stale > 0) > 0,
            "{rule}"
        );
    }
}

/// CPU 0 reclaims the only page under a table, and stands still in the middle of it; CPU 1 gives the table back, and another page takes its frame: what does that
/// hold when both are done?
fn reclaimed_from(broken: Option<Rule>) -> Cases<bool> {
    let config = Config { scan_batch: 4, lru_batch: 1, page_lists: pcp(1), ..bare("linux") };
    at_every_touch(&race_setup(), &config, broken, |mm, place| {
        let host = mm.platform();
        let file = mm.create_file(1).unwrap();
        let id = space(mm, shared(file), AT, 1);
        let other = space(mm, ANON, AT, 8);
        host.write(mm, other, AT + 7, 7).unwrap();
        for cpu in [2, 1] {
            host.on(cpu, || {
                mm.space(id).switch_to().unwrap();
                host.read(mm, id, AT).unwrap();
                mm.drain_lru_batch();
            });
        }
        mm.platform().make_cold(AT);
        let held = RefCell::new(take_free(mm));
        race(
            mm,
            place,
            || reclaim(mm),
            || {
                if mm.space(id).free_empty_tables().unwrap() > 0 {
                    mm.space(other).switch_to().unwrap();
                    (0..4).for_each(|page| _ = host.write(mm, other, AT + page, 1000 + page));
                }
            },
        );
        give_back(mm, held.take());
        (0..4)
            .all(|page| matches!(read(mm, other, AT + page), Ok(value) if value == 1000 + page || value == 0))
            && settled(mm).broken.is_none()
    })
}

#[test]
fn reclaim_in_the_middle_of_a_table_is_done_before_that_goes() {
    let cases = reclaimed_from(None);
    assert!(cases.results.len() > 100);
    assert_eq!(cases.count(|&good| !good), 0);
    assert!(reclaimed_from(Some(Rule::EmptiedIsAlone)).count(|&good| !good) > 0);
}

/// A space with tables as they are left by reclaim: entries that wait for a flush, and none.
#[test]
fn what_reclaim_has_left_goes_too() {
    let host = Host::new(Setup { frames: 1024, ..setup(3) });
    host.run(Config { lru_batch: 1, page_lists: pcp(1), ..bare("linux") }, |mm| {
        let file = mm.create_file(8 * TABLE).unwrap();
        let id = space(mm, shared(file), AT, 8 * TABLE);
        (0..8).for_each(|n| host.read(mm, id, AT + n * TABLE).map(drop).unwrap());
        host.on(1, || {
            mm.space(id).switch_to().unwrap();
            (0..8).for_each(|n| assert!(host.try_read(AT + n * TABLE).is_some()));
        });
        mm.drain_lru_batch();
        give_back(mm, exhaust(mm));
        let left = (0..8).filter(|n| mm.space(id).lookup(PageNumber(AT + n * TABLE)).unwrap().is_present());
        assert_eq!(left.count(), 0, "all are gone");
        // Who took everything took the tables last; CPU 1 was in the space.
        assert_eq!((tables(mm, id), mm.space(id).free_empty_tables()), (1, Ok(0)));
        assert!((0..8).all(|n| read(mm, id, AT + n * TABLE) == Ok(0)));
        assert_eq!((stale(mm), settled(mm).broken), (0, None));
    });
}

/// Of a mapping under more tables than are looked at in one go those that are empty go too that lie behind so many.
#[test]
fn empty_tables_behind_many_others_go_when_asked_for() {
    const MANY: u64 = 1100;
    let host = Host::new(Setup { frames: 4096, ..setup(1) });
    host.run(bare("linux"), |mm| {
        let id = space(mm, ANON, AT, MANY * TABLE);
        (0..MANY).for_each(|table| host.write(mm, id, AT + table * TABLE, table).unwrap());
        let before = tables(mm, id);
        for table in [MANY - 1, MANY - 2] {
            mm.space(id).advise(pages(AT + table * TABLE, 1), Advice::Drop).unwrap();
        }
        assert_eq!(mm.space(id).free_empty_tables(), Ok(2));
        assert_eq!(tables(mm, id), before - 2);
        assert_eq!(host.read(mm, id, AT + (MANY - 3) * TABLE), Ok(MANY - 3));
        settled(mm);
    });
}
