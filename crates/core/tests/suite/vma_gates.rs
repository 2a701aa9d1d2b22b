//! Faults in one VMA while somebody else has the VMAs of its space alone: they enter it by its gate.

use crate::machine;

use std::cell::{Cell, RefCell};
use std::mem::MaybeUninit;
use std::rc::Rc;

use machine::race::{Cases, Place, at_every_touch, race};
use machine::showing::{ANON, AT, LARGE, TO};
use machine::swapping::{DEVICE, swapping};
use machine::{Host, Mm, Setup, bare, pages};
use quietmm::sync::Gate;
use quietmm::{Advice, Counter, Error, PageNumber, Prot, Rule, SpaceId, UserAccess};

/// A VMA beside which others change.
const ELSEWHERE: u64 = AT + 100;

fn setup(cpus: u32) -> Setup {
    Setup { cpus, frames: 512, ..Setup::default() }
}

fn fault(mm: &Mm<'_>, id: SpaceId, page: u64) -> Result<(), Error> {
    mm.space(id).fault(PageNumber(page).addr(), UserAccess::Write)
}

/// A space with two VMAs of eight pages, of which CPU `cpu` remembers that at `AT`.
fn two_vmas(mm: &Mm<'_>, cpu: u16) -> SpaceId {
    let id = mm.create_space().unwrap();
    for at in [ELSEWHERE, AT] {
        mm.space(id).map(pages(at, 8), ANON, Prot::ReadWrite).unwrap();
    }
    mm.platform().on(cpu, || fault(mm, id, AT + 7)).unwrap();
    id
}

type Change = fn(&Mm<'_>, SpaceId) -> Result<(), Error>;

/// Operations that have the VMAs alone, on the VMA elsewhere.
const CHANGES: [(&str, Change); 5] = [
    ("map", |mm, id| mm.space(id).map(pages(TO, 8), ANON, Prot::ReadWrite)),
    ("unmap", |mm, id| mm.space(id).unmap(pages(ELSEWHERE, 8))),
    ("unmap a part", |mm, id| mm.space(id).unmap(pages(ELSEWHERE + 2, 2))),
    ("protect", |mm, id| mm.space(id).protect(pages(ELSEWHERE, 4), Prot::Read)),
    ("drop", |mm, id| mm.space(id).advise(pages(ELSEWHERE, 8), Advice::Drop)),
];

#[test]
fn a_fault_does_not_wait_for_who_changes_another_vma() {
    for (name, change) in CHANGES {
        let cases = at_every_touch(&setup(2), &bare("linux"), None, |mm, place| {
            let id = two_vmas(mm, 1);
            fault(mm, id, ELSEWHERE).unwrap();
            let changed = Cell::new(false);
            let changes = || {
                change(mm, id).unwrap();
                changed.set(true);
            };
            race(mm, place, changes, || {
                fault(mm, id, AT).unwrap();
                !changed.get()
            })
        });
        // Where it waits somebody holds a spin lock, of the frames that are free, say.
        let first = cases.count(|&first| first);
        assert!(first * 10 > cases.results.len() * 8, "{name}: {first} of {}", cases.results.len());
    }
}

#[test]
fn a_fault_waits_for_who_forks() {
    let cases = at_every_touch(&setup(2), &bare("linux"), None, |mm, place| {
        let id = two_vmas(mm, 1);
        let child = Cell::new(None);
        race(mm, place, || child.set(mm.space(id).fork().ok()), || fault(mm, id, AT + 7).unwrap());
        // What the child sees was written before it came, or it has a page of its own.
        let child = child.get().expect("there is memory");
        let [one, other] = [id, child].map(|id| mm.space(id).lookup(PageNumber(AT + 7)).unwrap());
        assert!(one.frame() != other.frame() || !one.permits(UserAccess::Write));
    });
    assert!(cases.results.len() > 50);
}

/// CPU 2 begins to change another VMA and stands still with the VMAs alone, CPU 0 comes to this page by its VMA's gate and stands still in it,
/// CPU 2 ends, and CPU 1 changes that VMA. What CPU 0 was told.
fn changed_under_a_fault(
    mm: &Mm<'_>,
    (id, page, other): (SpaceId, u64, Change),
    place: Place,
    change: &dyn Fn(&Mm<'_>, SpaceId) -> Result<(), Error>,
) -> Result<(), Error> {
    let host = mm.platform();
    host.place();
    host.at_touch(2, ALONE, |mm| mm.platform().stop());
    host.aside(
        2,
        || other(mm, id).unwrap(),
        |mapping| {
            assert!(host.resume_one(mapping), "it stands still");
            let told = Cell::new(Ok(()));
            race(
                mm,
                place,
                || told.set(fault(mm, id, page)),
                || {
                    host.resume_one(mapping);
                    change(mm, id).unwrap();
                },
            );
            told.get()
        },
    )
}

/// A touch of `map`, and of `protect`, at which it has the VMAs alone, and has shut what it shuts.
const ALONE: u32 = 30;

const MAPS: Change = CHANGES[0].1;

fn changes_under_a_fault(broken: Option<Rule>) -> Cases<Result<(), Error>> {
    at_every_touch(&setup(3), &bare("linux"), broken, |mm, place| {
        let id = two_vmas(mm, 0);
        let told =
            changed_under_a_fault(mm, (id, AT, MAPS), place, &|mm, id| mm.space(id).unmap(pages(AT, 8)));
        assert_eq!(machine::settled(mm).broken, None);
        told
    })
}

#[test]
fn a_vma_goes_when_no_fault_is_in_it_any_more() {
    let cases = changes_under_a_fault(None);
    let told = |right| cases.count(|&told| told == right);
    let (good, late) = (told(Ok(())), told(Err(Error::NotMapped(PageNumber(AT)))));
    assert!(good > 20 && good + late == cases.results.len(), "{:?}", cases.results);
    // The control.
    assert!(changes_under_a_fault(Some(Rule::WaitUntilInsideLeave)).fell > 0);
}

/// Who changes several VMAs waits for a fault in each of them, the first and the last.
#[test]
fn who_changes_several_vmas_waits_for_faults_in_each() {
    for before in [true, false] {
        let cases = at_every_touch(&setup(3), &bare("linux"), None, |mm, place| {
            // Beside the one in which the fault is.
            let (id, beside) = (two_vmas(mm, 0), if before { AT - 8 } else { AT + 8 });
            mm.space(id).map(pages(beside, 8), ANON, Prot::Read).unwrap();
            let unmaps = |mm: &Mm<'_>, id| mm.space(id).unmap(pages(beside.min(AT), 16));
            let told = changed_under_a_fault(mm, (id, AT, MAPS), place, &unmaps);
            assert_eq!(machine::settled(mm).broken, None);
            told
        });
        let told = |right| cases.count(|&told| told == right);
        let (good, late) = (told(Ok(())), told(Err(Error::NotMapped(PageNumber(AT)))));
        assert!(good > 20 && good + late == cases.results.len(), "{:?}", cases.results);
    }
}

/// CPU 0 remembers a VMA that goes, and another takes its slot. Whether its fault at the old place is refused while CPU 2 has the
/// VMAs alone.
fn remembers_what_is_another(broken: Option<Rule>) -> Cases<Result<(), Error>> {
    at_every_touch(&setup(3), &bare("linux"), broken, |mm, place| {
        let (host, id) = (mm.platform(), two_vmas(mm, 0));
        host.on(1, || {
            mm.space(id).unmap(pages(AT, 8)).unwrap();
            mm.space(id).map(pages(AT + 1000, 8), ANON, Prot::ReadWrite).unwrap();
        });
        let told = Cell::new(Ok(()));
        let maps = || mm.space(id).map(pages(TO, 8), ANON, Prot::ReadWrite).unwrap();
        host.place();
        race(mm, place, maps, || host.on(0, || told.set(fault(mm, id, AT))));
        assert_eq!(machine::settled(mm).broken, None);
        told.get()
    })
}

#[test]
fn who_enters_a_vma_looks_again_what_it_is() {
    let cases = remembers_what_is_another(None);
    assert_eq!(cases.count(|&told| told != Err(Error::NotMapped(PageNumber(AT)))), 0, "{:?}", cases.results);
    let cases = remembers_what_is_another(Some(Rule::LookAgainInside));
    assert!(cases.count(|told| told.is_ok()) > 0);
}

/// CPU 0 remembers a VMA that goes, and one of another space takes its slot, at the same place.
#[test]
fn who_enters_a_vma_looks_again_whose_it_is() {
    let cases = at_every_touch(&setup(3), &bare("linux"), None, |mm, place| {
        let (host, id) = (mm.platform(), two_vmas(mm, 0));
        host.on(1, || {
            let other = mm.create_space().unwrap();
            mm.space(id).unmap(pages(AT, 8)).unwrap();
            mm.space(other).map(pages(AT, 8), ANON, Prot::ReadWrite).unwrap();
        });
        let told = Cell::new(Ok(()));
        let maps = || mm.space(id).map(pages(TO, 8), ANON, Prot::ReadWrite).unwrap();
        host.place();
        race(mm, place, maps, || host.on(0, || told.set(fault(mm, id, AT))));
        assert_eq!(machine::settled(mm).broken, None);
        told.get()
    });
    assert_eq!(cases.count(|&told| told != Err(Error::NotMapped(PageNumber(AT)))), 0, "{:?}", cases.results);
}

fn gate() -> &'static Gate {
    // SAFETY: all zeros is shut, as the type's documentation says.
    Box::leak(Box::new(unsafe { MaybeUninit::<Gate>::zeroed().assume_init() }))
}

fn host() -> &'static Host {
    Box::leak(Box::new(Host::new(Setup::default())))
}

#[test]
fn who_shuts_a_gate_waits_for_each_who_is_inside_and_is_woken_by_the_last() {
    let (host, gate) = (host(), gate());
    assert!(gate.enter(host).is_none(), "it begins shut");
    gate.open(host);
    let inside = Rc::new(RefCell::new(vec![gate.enter(host).unwrap(), gate.enter(host).unwrap()]));
    // Whoever leaves an open gate wakes nobody.
    drop(gate.enter(host));
    assert_eq!(host.take_woken().len(), 0);
    assert!(!gate.try_shut(host));
    assert!(gate.enter(host).map(drop).is_some(), "who only tried left it open");
    assert!(!gate.shut(host), "two are inside");
    assert!(gate.enter(host).is_none() && !gate.try_shut(host));
    host.on_wait.borrow_mut().push_back(Box::new({
        let inside = Rc::clone(&inside);
        move || {
            inside.borrow_mut().pop();
            assert_eq!(host.take_woken().len(), 0, "somebody is inside");
            inside.borrow_mut().pop();
            assert_eq!(host.take_woken().len(), 1);
        }
    }));
    gate.wait_empty(host);
    assert!(inside.borrow().is_empty());
    // Nobody is inside: nobody waits.
    gate.wait_empty(host);
    assert!(gate.shut(host) && gate.try_shut(host), "it is shut");
    gate.open(host);
    assert!(gate.try_shut(host) && gate.enter(host).is_none());
}

/// Reclaim only tries to have VMAs alone. Where a fault is inside one of them it lets all be as they were, also those beside it.
#[test]
fn who_only_tries_and_finds_a_fault_inside_leaves_all_open() {
    let setup = Setup { frames: 2048, ..setup(3) };
    let cases = at_every_touch(&setup, &swapping("linux"), None, |mm, place| {
        let host = mm.platform();
        mm.swap().on(DEVICE, 1024, 0).unwrap();
        let id = mm.create_space().unwrap();
        mm.space(id).map(pages(LARGE - 8, 8), ANON, Prot::Read).unwrap();
        mm.space(id).map(pages(ELSEWHERE, 8), ANON, Prot::ReadWrite).unwrap();
        let protects: Change = |mm, id| mm.space(id).protect(pages(ELSEWHERE, 8), Prot::Read);
        mm.space(id).map(pages(LARGE, 512), ANON, Prot::ReadWrite).unwrap();
        mm.space(id).advise(pages(LARGE, 512), Advice::Large).unwrap();
        host.on(0, || fault(mm, id, LARGE + 7)).unwrap();
        host.on(0, || mm.drain_lru_batch());
        // It waits for nobody.
        let reclaims = |mm: &Mm<'_>, id| mm.space(id).advise(pages(LARGE, 512), Advice::PageOut);
        let told = changed_under_a_fault(mm, (id, LARGE + 7, protects), place, &reclaims);
        assert_eq!(told, Ok(()));
        assert_eq!(machine::settled(mm).broken, None);
        mm.counter(Counter::LargeSplit)
    });
    assert!(cases.results.len() > 10);
    assert!(cases.count(|&split| split > 0) > 0, "no large page was split");
}
