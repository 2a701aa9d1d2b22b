//! What a program drops while others drop and fault in the same space: with the VMAs shared, where that will do.

use crate::machine;

use std::cell::Cell;

use machine::race::{Cases, Place, at_every_touch, race};
use machine::showing::{ANON, AT, TO};
use machine::swapping::{DEVICE, is_out, reclaim, swapping, take_free};
use machine::{Mm, Setup, bare, give_back, pages, settled};
use quietmm::{Advice, Error, PageNumber, Prot, Rule, SpaceId, UserAccess};

/// Under another table than `AT`.
const FAR: u64 = AT + 0x1000;
/// What CPU 0 drops of the eight pages at `AT`, of which the first six are there.
const DROPPED: (u64, u64) = (AT + 1, 6);
/// What is written anew is this and the page's number.
const NEW: u64 = 1 << 40;

fn setup() -> Setup {
    Setup { cpus: 3, frames: 512, ..Setup::default() }
}

/// Drops a range, and sees that CPU 2 cannot use what was there.
fn drops(mm: &Mm<'_>, id: SpaceId, (at, count): (u64, u64)) -> Result<(), Error> {
    let done = mm.space(id).advise(pages(at, count), Advice::Drop);
    let host = mm.platform();
    host.deliver_all();
    let old = |page| host.on(2, || host.try_read(page)) == Some(page);
    let used = (at..at + count).find(|&page| done.is_ok() && old(page));
    assert_eq!(used, None, "a page that CPU 2 uses after it was dropped");
    done
}

fn writes(mm: &Mm<'_>, id: SpaceId, page: u64) {
    mm.platform().write(mm, id, page, NEW + page).unwrap();
}

/// A space in which all CPUs run, with eight pages at two places, of which all but the last two are there, and CPU 2 has them cached.
fn scene(mm: &Mm<'_>) -> SpaceId {
    let (host, id) = (mm.platform(), mm.create_space().unwrap());
    [AT, FAR].iter().for_each(|&at| mm.space(id).map(pages(at, 8), ANON, Prot::ReadWrite).unwrap());
    for cpu in [2, 1, 0] {
        host.on(cpu, || {
            mm.space(id).switch_to().unwrap();
            for page in [AT, FAR].into_iter().flat_map(|at| at..at + 6) {
                host.write(mm, id, page, page).unwrap();
            }
            mm.drain_lru_batch();
        });
    }
    id
}

type Second = fn(&Mm<'_>, SpaceId);

const SECONDS: &[(&str, Second)] = &[
    ("a write to a page that goes", |mm, id| writes(mm, id, AT + 1)),
    ("a read of one", |mm, id| _ = mm.platform().read(mm, id, AT + 5).unwrap()),
    ("a write to one that was not there", |mm, id| writes(mm, id, AT + 6)),
    ("a write beside", |mm, id| writes(mm, id, AT + 7)),
    ("the same drop", |mm, id| drops(mm, id, DROPPED).unwrap()),
    ("a drop of a part, and a write", |mm, id| {
        drops(mm, id, (AT + 2, 2)).unwrap();
        writes(mm, id, AT + 3);
    }),
    ("a drop of more", |mm, id| drops(mm, id, (AT + 1, 7)).unwrap()),
    ("a drop under another table", |mm, id| drops(mm, id, (FAR, 8)).unwrap()),
    ("an unmap of a part", |mm, id| {
        mm.space(id).unmap(pages(AT + 2, 2)).unwrap();
        mm.space(id).map(pages(AT + 2, 2), ANON, Prot::ReadWrite).unwrap();
    }),
    ("protect", |mm, id| {
        mm.space(id).protect(pages(AT, 4), Prot::Read).unwrap();
        mm.space(id).protect(pages(AT, 4), Prot::ReadWrite).unwrap();
    }),
    ("fork", |mm, id| {
        let child = mm.space(id).fork().unwrap();
        mm.space(child).fault(PageNumber(AT + 1).addr(), UserAccess::Write).unwrap();
        mm.space(child).destroy().unwrap();
    }),
    ("a move", |mm, id| {
        mm.space(id).move_range(pages(AT, 8), PageNumber(TO)).unwrap();
        mm.space(id).move_range(pages(TO, 8), PageNumber(AT)).unwrap();
    }),
    ("reclaim", |mm, _| {
        let held = take_free(mm);
        (0..2).for_each(|_| reclaim(mm));
        give_back(mm, held);
    }),
    ("out of memory, and lazily free", |mm, id| {
        mm.space(id).advise(pages(AT, 4), Advice::PageOut).unwrap();
        mm.space(id).advise(pages(AT + 4, 4), Advice::Free).unwrap();
    }),
    ("a sweep", |mm, _| {
        mm.begin_sweep();
        mm.tick();
    }),
    ("a look", |mm, id| _ = mm.space(id).usage().unwrap()),
];

/// CPU 0 drops, CPU 1 does something in the middle of it, and CPU 2 uses what it has cached. What was wrong.
fn raced(policy: &str, second: Second, broken: Option<Rule>) -> Cases<Option<String>> {
    at_every_touch(&setup(), &swapping(policy), broken, |mm, place: Place| {
        mm.swap().on(DEVICE, 512, 0).unwrap();
        let (host, id) = (mm.platform(), scene(mm));
        // While an operation goes on CPUs may use what it is about to flush.
        host.uses_windows.set(true);
        let dropped = Cell::new(false);
        let first = || {
            let done = drops(mm, id, DROPPED);
            assert!(matches!(done, Ok(()) | Err(Error::NotMapped(_))), "{done:?}");
            dropped.set(done.is_ok());
        };
        race(mm, place, first, || second(mm, id));
        let before = host.stale.get();
        for cpu in [2, 1, 0] {
            let values: Vec<_> = (AT..AT + 8).map(|page| host.on(cpu, || host.read(mm, id, page))).collect();
            let right = |&(page, value): &(u64, Result<u64, Error>)| {
                // A part that was not mapped when the drop came was not dropped, and with it nothing.
                let was = value == Ok(page) && page < AT + 6 && (page == AT || !dropped.get());
                value == Ok(0) || value == Ok(NEW + page) || was
            };
            if let Some(page) = (AT..AT + 8).zip(values).find(|page| !right(page)) {
                return Some(format!("CPU {cpu} reads {page:x?}"));
            }
        }
        let used = host.stale.get() - before + host.freed_under.get();
        let settled = settled(mm).broken;
        (used > 0 || settled.is_some()).then(|| format!("{used} used, {settled:?}"))
    })
}

/// CPU 0 drops pages of which one is in swap, and CPU 1 unmaps the last: the drop comes first, and all is gone, or it is refused, and all is there.
fn drop_and_unmap(broken: Option<Rule>) -> Cases<bool> {
    at_every_touch(&setup(), &swapping("linux"), broken, |mm, place| {
        mm.swap().on(DEVICE, 512, 0).unwrap();
        let (host, id) = (mm.platform(), scene(mm));
        mm.space(id).advise(pages(AT + 2, 1), Advice::PageOut).unwrap();
        assert!(is_out(mm, id, AT + 2));
        let done = Cell::new(Ok(()));
        let drops = || done.set(mm.space(id).advise(pages(AT, 4), Advice::Drop));
        race(mm, place, drops, || mm.space(id).unmap(pages(AT + 3, 1)).unwrap());
        let values = [0, 1, 2].map(|n| host.read(mm, id, AT + n));
        let sound = match done.get() {
            Ok(()) => values == [Ok(0); 3],
            error => {
                error == Err(Error::NotMapped(PageNumber(AT + 3))) && values == [0, 1, 2].map(|n| Ok(AT + n))
            }
        };
        sound && settled(mm).broken.is_none()
    })
}

#[test]
fn a_drop_that_has_begun_ends_though_a_part_is_unmapped_meanwhile() {
    let cases = drop_and_unmap(None);
    assert!(cases.results.len() > 50 && cases.count(|sound| !sound) == 0);
    assert!(drop_and_unmap(Some(Rule::BegunDropEnds)).count(|sound| !sound) > 0);
}

fn whatever_others_do((part, parts): (usize, usize)) {
    for (name, second) in SECONDS.iter().skip(part).step_by(parts) {
        for policy in ["linux", "quiet", "vanilla"] {
            let cases = raced(policy, *second, None);
            assert!(cases.results.len() > 50, "{name}, {policy}: {}", cases.results.len());
            let wrong = cases.results.iter().flatten().next();
            assert_eq!((wrong, cases.fell), (None, 0), "{name}, {policy}");
        }
    }
}

parts!(
    whatever_others_do_meanwhile_what_is_dropped_is_gone,
    |part, parts| whatever_others_do((part, parts)),
    [
        p0 p1 p2 p3
    ]
);

#[test]
fn each_step_of_it_is_needed() {
    for (rule, second) in [
        (Rule::ClaimWhatIsDropped, SECONDS[4]),
        (Rule::FaultWaitsForDrop, SECONDS[0]),
        (Rule::FlushBeforeDropReturns, SECONDS[15]),
    ] {
        let cases = raced("linux", second.1, Some(rule));
        assert!(cases.count(Option::is_some) > 0, "{rule}, {}", second.0);
    }
}

/// What was in swap when the drop came, and what was brought back in the middle of it, is dropped as well: whoever brings it, a program or the kernel.
#[test]
fn what_comes_back_from_swap_meanwhile_is_dropped() {
    let back: [Second; 4] = [
        |mm, id| (AT..AT + 4).for_each(|page| _ = mm.platform().read(mm, id, page).unwrap()),
        |mm, id| mm.space(id).advise(pages(AT, 4), Advice::WillNeed).unwrap(),
        |mm, _| mm.swap().off(DEVICE).unwrap(),
        |_, _| (),
    ];
    for (policy, second) in
        ["linux", "quiet", "vanilla"].iter().flat_map(|policy| back.map(|second| (policy, second)))
    {
        let came = Cell::new(0);
        let cases = at_every_touch(&setup(), &swapping(policy), None, |mm, place| {
            mm.swap().on(DEVICE, 512, 0).unwrap();
            let (host, id) = (mm.platform(), scene(mm));
            mm.space(id).advise(pages(AT, 4), Advice::PageOut).unwrap();
            assert!((AT..AT + 4).all(|page| is_out(mm, id, page)));
            let dropped = Cell::new(false);
            let first = || {
                mm.space(id).advise(pages(AT, 4), Advice::Drop).unwrap();
                dropped.set(true);
            };
            let before = race(mm, place, first, || {
                second(mm, id);
                !dropped.get()
            });
            came.set(came.get() + u32::from(before));
            let old = (AT..AT + 4).find(|&page| host.read(mm, id, page) != Ok(0));
            (old.is_some() || settled(mm).broken.is_some()).then(|| format!("{place:?}: {old:x?}"))
        });
        assert_eq!(cases.results.iter().flatten().next(), None, "{policy}");
        // Somebody is done in the middle of it.
        assert!(came.get() > 20, "{policy}: {}", came.get());
    }
}

/// How often CPU 1 is done before CPU 0 has dropped, in hundred of all places.
fn done_before(second: Second) -> usize {
    let cases = at_every_touch(&setup(), &bare("linux"), None, |mm, place| {
        let (id, dropped) = (scene(mm), Cell::new(false));
        mm.platform().uses_windows.set(true);
        let first = || {
            drops(mm, id, DROPPED).unwrap();
            dropped.set(true);
        };
        race(mm, place, first, || {
            second(mm, id);
            !dropped.get()
        })
    });
    100 * cases.count(|&before| before) / cases.results.len()
}

#[test]
fn who_drops_and_faults_elsewhere_does_not_wait() {
    // Where they wait somebody holds a spin lock, or all of it was before or after the drop.
    let [beside, behind] =
        [&[2, 3, 7][..], &[9, 10]].map(|which| which.iter().map(|&n: &usize| done_before(SECONDS[n].1)));
    let (beside, behind) = (beside.min().unwrap(), behind.max().unwrap());
    assert!(beside > 50 && behind < 10, "{beside}, {behind} of a hundred");
}
