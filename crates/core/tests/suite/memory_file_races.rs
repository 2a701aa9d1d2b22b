//! Two operations on a memory file at once, at every place: what both spaces and the file show in the end is what one after the other leaves.

use crate::machine;
use crate::memory_files::{copied, copy, end, in_swap, seen, setup, shown_on, written};

use machine::race::{Cases, Place, at, at_every_touch, at_places, every_third, race};
use machine::showing::shared;
use machine::swapping::{AT, DEVICE, reclaim, squeeze, swapping};
use machine::{Mm, pages, settled};
use quietmm::addr::PAGE_SIZE;
use quietmm::platform::Cpus;
use quietmm::{Advice, Error, FileId, Rule, SpaceId};

/// Pages of the file in the races.
const COUNT: u64 = 4;
/// A page that operations are about.
const ONE: u64 = 1;

/// Something done with the file by whoever runs in a space that shows it, and what it makes of its pages.
struct Op {
    name: &'static str,
    run: fn(&Mm<'_>, SpaceId, FileId),
    makes: fn(&mut [u64]),
}

/// Where memory is short the other CPU has it; what has been cut off is the other's doing.
fn insist(mm: &Mm<'_>, attempt: impl Fn() -> Result<(), Error>) {
    for _ in 0..1000 {
        match attempt() {
            Err(Error::OutOfMemory) => mm.platform().pause(1),
            Ok(()) | Err(Error::BeyondFile | Error::NoSuchSwapDevice) => return,
            Err(error) => panic!("{error}"),
        }
    }
    panic!("no memory came back");
}

/// The device goes off and comes back; so it may at the same time by another.
pub(crate) fn off(mm: &Mm<'_>) {
    insist(mm, || mm.swap().off(DEVICE));
    insist(mm, || mm.swap().on(DEVICE, 512, 0));
}

const OPS: [Op; 9] = [
    Op {
        name: "read",
        run: |mm, id, _| insist(mm, || mm.platform().read(mm, id, AT + ONE).map(drop)),
        makes: |_| {},
    },
    Op {
        name: "write",
        run: |mm, id, _| insist(mm, || mm.platform().write(mm, id, AT + ONE, 100)),
        makes: |all| all[ONE as usize] = 100,
    },
    Op {
        name: "read by copy",
        run: |mm, _, file| insist(mm, || copied(mm, file, ONE).map(drop)),
        makes: |_| {},
    },
    Op {
        name: "write by copy",
        // Where the file is shorter by now it becomes longer: left out.
        run: |mm, _, file| {
            insist(mm, || copy(mm, file, 0, 200).map(drop));
        },
        makes: |all| all[0] = 200,
    },
    Op {
        name: "cut",
        run: |mm, _, file| insist(mm, || mm.file(file).set_size(PAGE_SIZE)),
        makes: |all| all[1..].fill(0),
    },
    Op {
        name: "hole",
        run: |mm, _, file| insist(mm, || mm.file(file).punch_hole(ONE * PAGE_SIZE, PAGE_SIZE)),
        makes: |all| all[ONE as usize] = 0,
    },
    Op { name: "off", run: |mm, _, _| off(mm), makes: |_| {} },
    Op { name: "reclaim", run: |mm, _, _| squeeze(mm), makes: |_| {} },
    Op {
        name: "page out",
        run: |mm, id, _| mm.space(id).advise(pages(AT, COUNT), Advice::PageOut).unwrap(),
        makes: |_| {},
    },
];

/// Two spaces show a file; CPU 0 runs in one, CPU 1 in the other. All pages are in swap, or in memory and shown by the second.
fn scene(mm: &Mm<'_>, out: bool) -> ([SpaceId; 2], FileId) {
    let (a, file) = written(mm, 512, COUNT);
    let b = shown_on(mm, 1, shared(file), COUNT);
    if out {
        squeeze(mm);
        assert_eq!(in_swap(mm, file), COUNT);
    } else {
        // CPU 1 has them cached, and may write to them.
        mm.space(a).advise(pages(AT, COUNT), Advice::Drop).unwrap();
        mm.platform().on(1, || {
            (AT..AT + COUNT).for_each(|page| mm.platform().write(mm, b, page, page).unwrap());
            mm.drain_lru_batch();
        });
    }
    ([a, b], file)
}

/// What both spaces and the file show in the end is what one after the other leaves.
fn meet(mm: &Mm<'_>, place: Place, out: bool, (first, second): (&Op, &Op)) -> bool {
    let host = mm.platform();
    let ([a, b], file) = scene(mm, out);
    let of = if out { a } else { b };
    // While one page is on its way out CPUs may use it until the flush: the contents say whether one did after it.
    host.uses_windows.set(true);
    race(mm, place, || (first.run)(mm, of, file), || (second.run)(mm, b, file));
    let sound = host.broken.get().is_some() || settled(mm).broken.is_none();
    mm.file(file).set_size(COUNT * PAGE_SIZE).unwrap();
    let all: Vec<u64> = (0..COUNT).map(|page| copied(mm, file, page).unwrap()).collect();
    let after = |ops: [&Op; 2]| {
        let mut model: Vec<u64> = (AT..AT + COUNT).collect();
        ops.iter().for_each(|op| (op.makes)(&mut model));
        model
    };
    let mut right = sound && [after([first, second]), after([second, first])].contains(&all);
    for page in 0..COUNT {
        right &= seen(mm, 0, a, AT + page) == Ok(all[page as usize]);
        right &= seen(mm, 1, b, AT + page) == Ok(all[page as usize]);
    }
    right &= host.torn.get() == 0;
    if host.broken.get().is_none() {
        end(mm, &[a, b], &[file]);
    }
    right
}

fn op(name: &str) -> &'static Op {
    OPS.iter().find(|op| op.name == name).unwrap()
}

fn met(first: &str, second: &str, out: bool, broken: Option<Rule>, every: fn(Place) -> Place) -> Cases<bool> {
    let both = (op(first), op(second));
    at_every_touch(&setup(2), &swapping("linux"), broken, |mm, place| meet(mm, every(place), out, both))
}

parts!(
    any_two_who_meet_at_a_page_in_swap_leave_what_one_after_the_other_does,
    |part, parts| {
        assert!(parts.is_multiple_of(4 * OPS.len()), "all of them");
        let first = ["read", "write by copy", "cut", "off"][part / OPS.len() % 4];
        let second = OPS[part % OPS.len()].name;
        let places = (part / OPS.len() / 4, parts / OPS.len() / 4);
        let cases = at_places(places, || met(first, second, true, None, every_third));
        assert_eq!(cases.count(|&right| !right), 0, "{first} and {second}");
        assert!(cases.results.len() > 3, "{first} and {second}: {}", cases.results.len());
    },
    [
        p0 p1 p2 p3 p4 p5 p6 p7 p8 p9 p10 p11 p12 p13 p14 p15 p16 p17 p18 p19 p20 p21 p22 p23 p24
        p25 p26 p27 p28 p29 p30 p31 p32 p33 p34 p35 p36 p37 p38 p39 p40 p41 p42 p43 p44 p45 p46
        p47 p48 p49 p50 p51 p52 p53 p54 p55 p56 p57 p58 p59 p60 p61 p62 p63 p64 p65 p66 p67 p68
        p69 p70 p71
    ]
);

parts!(
    any_two_who_meet_at_a_page_that_goes_out_leave_what_one_after_the_other_does,
    |part, parts| {
        assert!(parts.is_multiple_of(OPS.len()), "all of them");
        let second = OPS[part % OPS.len()].name;
        let places = (part / OPS.len(), parts / OPS.len());
        let cases = at_places(places, || met("page out", second, false, None, every_third));
        assert_eq!(cases.count(|&right| !right), 0, "page out and {second}");
        assert!(cases.results.len() > 6, "page out and {second}: {}", cases.results.len());
    },
    [
        p0 p1 p2 p3 p4 p5 p6 p7 p8 p9 p10 p11 p12 p13 p14 p15 p16 p17 p18 p19 p20 p21 p22 p23 p24
        p25 p26
    ]
);

#[test]
fn whoever_comes_while_the_device_has_the_page_waits_or_takes_it_along() {
    for second in &OPS {
        for (first, out, place) in [
            ("page out", false, Place::Write(0)),
            ("page out", false, Place::Write(3)),
            ("read", true, Place::Read(0)),
            ("write by copy", true, Place::Read(0)),
            ("off", true, Place::Read(0)),
        ] {
            let right = at(&setup(2), &swapping("linux"), None, |mm| {
                let right = meet(mm, place, out, (op(first), second));
                assert_eq!(mm.platform().on_disk_write.borrow().len(), 0, "{first}: the place was reached");
                right
            });
            assert!(right, "{first} and {}", second.name);
        }
    }
}

/// Without a rule some case comes out wrong; with it none.
fn needs(rule: Rule, first: &str, second: &str, out: bool) {
    let all = |broken| met(first, second, out, broken, |place| place).count(|&right| !right);
    assert_eq!(all(None), 0, "{rule}");
    assert!(all(Some(rule)) > 0, "{rule}: nothing was seen");
}

#[test]
fn a_page_comes_back_only_inside_its_file() {
    needs(Rule::BackInsideFile, "read", "cut", true);
    needs(Rule::BackInsideFile, "read", "hole", true);
}

#[test]
fn a_page_that_somebody_holds_stays_in_its_file() {
    needs(Rule::FreezeBeforeFree, "page out", "write", false);
}

#[test]
fn a_page_goes_to_swap_after_its_flush() {
    needs(Rule::FlushBeforeIo, "page out", "write", false);
}

#[test]
fn a_page_on_its_way_is_waited_for() {
    for broken in [None, Some(Rule::SwapInLocks)] {
        let both = (op("page out"), op("write"));
        let cases = Cases { results: Vec::new(), fell: 0 };
        let places = (0..COUNT as u32).map(Place::Write);
        let cases = cases.and_at((&setup(2), &swapping("linux"), broken), places, |mm, place| {
            meet(mm, place, false, both)
        });
        assert_eq!(cases.count(|&right| !right) == 0, broken.is_none(), "{broken:?}");
    }
}

#[test]
fn a_file_ends_while_its_pages_come_and_go() {
    let others: [fn(&Mm<'_>); 3] = [off, squeeze, reclaim];
    for (out, other) in [false, true].into_iter().flat_map(|out| others.map(|other| (out, other))) {
        for turned in [false, true] {
            let cases = at_every_touch(&setup(2), &swapping("linux"), None, |mm, place| {
                let ([a, b], file) = scene(mm, out);
                (0..2).for_each(|cpu| mm.platform().on(cpu, || mm.unload()));
                [a, b].into_iter().for_each(|id| mm.space(id).destroy().unwrap());
                let ends = || mm.file(file).destroy().unwrap();
                match turned {
                    false => race(mm, every_third(place), ends, || other(mm)),
                    true => race(mm, every_third(place), || other(mm), ends),
                }
                end(mm, &[], &[]);
            });
            assert!(cases.results.len() > 10, "{}", cases.results.len());
        }
    }
}

/// A fault has found a page in the cache of swap. Before it has the page its file lets go of it, the device goes off and comes back, and what the file has
/// there since then goes to the same slot.
#[test]
fn a_page_that_was_found_in_a_slot_is_not_what_is_in_it_later() {
    let cases = at_every_touch(&setup(2), &swapping("linux"), None, |mm, place| {
        let (id, file) = written(mm, 512, 2);
        squeeze(mm);
        assert_eq!(in_swap(mm, file), 2);
        // The first page lies beside the second.
        assert_eq!(seen(mm, 0, id, AT + 1), Ok(AT + 1));
        assert_eq!((in_swap(mm, file), mm.swap().usage().cached), (1, 1));
        let second = || {
            insist(mm, || mm.file(file).punch_hole(0, PAGE_SIZE));
            off(mm);
            insist(mm, || copy(mm, file, 0, 200).map(drop));
            (0..2).for_each(|_| squeeze(mm));
        };
        race(mm, place, || insist(mm, || mm.platform().read(mm, id, AT).map(drop)), second);
        assert_eq!((seen(mm, 0, id, AT), copied(mm, file, 0)), (Ok(200), Ok(200)));
        end(mm, &[id], &[file]);
    });
    assert!(cases.results.len() > 10, "{}", cases.results.len());
}
