//! A space ends while another CPU comes to it, or comes back to it (INV-9): one of the two is refused.

use crate::machine;

use std::cell::Cell;

use machine::race::{Cases, Place, at_all_places, at_every_touch, race};
use machine::showing::ANON;
use machine::{Mm, Setup, bare, pages};
use quietmm::{Error, PageNumber, Prot, Rule, SpaceId, UserAccess};

const AT: u64 = 0x1000;

/// What a CPU does while another ends the space.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    /// It switches to the space, from another in which it runs.
    Enter,
    /// The same, and it was lazy there.
    EnterFromLazy,
    /// It is lazy in the space, and switches to it.
    Return,
    /// It is lazy in the space, and leaves lazy mode.
    LeaveLazy,
}

const WAYS: [Way; 4] = [Way::Enter, Way::EnterFromLazy, Way::Return, Way::LeaveLazy];

fn before(mm: &Mm<'_>, way: Way, comer: u16) -> SpaceId {
    let host = mm.platform();
    let id = mm.create_space().unwrap();
    mm.space(id).map(pages(AT, 2), ANON, Prot::ReadWrite).unwrap();
    host.on(comer, || {
        mm.space(id).switch_to().unwrap();
        host.write(mm, id, AT, 7).unwrap();
        if matches!(way, Way::Enter | Way::EnterFromLazy) {
            mm.space(mm.create_space().unwrap()).switch_to().unwrap();
        }
        if way != Way::Enter {
            mm.enter_lazy();
        }
    });
    id
}

fn come(mm: &Mm<'_>, id: SpaceId, way: Way) -> bool {
    let host = mm.platform();
    let entered = match way {
        Way::LeaveLazy => mm.leave_lazy() == Some(id),
        _ => mm.space(id).switch_to().is_ok(),
    };
    if entered && host.broken.get().is_none() {
        assert_eq!(mm.loaded_space(), Some(id));
        assert_eq!(host.read(mm, id, AT), Ok(7));
        assert_eq!(mm.space(id).fault(PageNumber(AT + 1).addr(), UserAccess::Write), Ok(()));
    }
    entered
}

/// What became of both; uses of what was freed. CPU 0 stands still at a place: the one that comes, or the one that ends.
fn case(mm: &Mm<'_>, place: Place, way: Way, comer: u16) -> (Result<(), Error>, bool, u32) {
    let host = mm.platform();
    let id = before(mm, way, comer);
    let (ended, entered) = (Cell::new(Ok(())), Cell::new(false));
    let end = || ended.set(mm.space(id).destroy());
    let come = || entered.set(come(mm, id, way));
    if comer == 1 {
        race(mm, place, end, come)
    } else {
        race(mm, place, come, end)
    };
    if host.broken.get().is_none() {
        match ended.get() {
            Ok(()) => assert_eq!(mm.space(id).lookup(PageNumber(AT)).map(drop), Err(Error::NoSuchSpace)),
            // As if it had not been asked.
            Err(_) => assert!(mm.space(id).lookup(PageNumber(AT)).unwrap().is_present()),
        }
    }
    (ended.get(), entered.get(), host.stale.get())
}

/// How often the space ended, how often the CPU got there; cases in which something freed was used, or worse.
fn races(way: Way, broken: Option<Rule>) -> (usize, usize, usize) {
    let setup = Setup { cpus: 2, ..Setup::default() };
    let mut sums = (0, 0, 0);
    for comer in [0, 1] {
        let cases: Cases<_> =
            at_every_touch(&setup, &bare("linux"), broken, |mm, place| case(mm, place, way, comer));
        if broken.is_none() {
            for &(ended, entered, stale) in &cases.results {
                assert_eq!((stale, ended), (0, if entered { Err(Error::Busy) } else { Ok(()) }), "{way:?}");
            }
        }
        sums.0 += cases.results.iter().filter(|(ended, ..)| ended.is_ok()).count();
        sums.1 += cases.results.iter().filter(|(_, entered, _)| *entered).count();
        sums.2 += cases.count(|&(_, _, stale)| stale > 0);
    }
    sums
}

#[test]
fn a_space_ends_or_the_cpu_that_comes_is_there_first() {
    for way in WAYS {
        let (ended, entered, bad) = races(way, None);
        assert!(ended > 0 && entered > 0 && bad == 0, "{way:?}: {ended} ended, {entered} entered, {bad} bad");
    }
}

#[test]
fn who_comes_and_does_not_look_uses_tables_that_are_freed() {
    for (rule, way) in [
        (Rule::EndBeforeMask, Way::Enter),
        (Rule::LifeAfterMask, Way::Enter),
        (Rule::LifeAfterLazy, Way::Return),
        (Rule::LifeAfterLazy, Way::LeaveLazy),
        (Rule::LifeAfterLazy, Way::EnterFromLazy),
        (Rule::EndBeforeMask, Way::LeaveLazy),
    ] {
        let (_, _, bad) = at_all_places(|| races(way, Some(rule)));
        println!("{rule} {way:?}: {bad} cases");
        assert!(bad > 0, "{rule}, {way:?}: nothing was seen");
    }
}

/// A CPU that came too late is in no mask: nobody asks it for a flush of the space that has the slot next, nor waits for it to end that.
#[test]
fn who_came_too_late_has_nothing_to_do_with_the_next_space() {
    let (setup, mut late) = (Setup { cpus: 2, ..Setup::default() }, 0);
    for way in WAYS {
        let cases = at_every_touch(&setup, &bare("linux"), None, |mm, place| {
            let (host, elsewhere) = (mm.platform(), mm.create_space().unwrap());
            let id = before(mm, way, 0);
            let (ended, entered) = (Cell::new(Ok(())), Cell::new(false));
            race(mm, place, || entered.set(come(mm, id, way)), || ended.set(mm.space(id).destroy()));
            if ended.get().is_err() {
                return false;
            }
            assert!(!entered.get());
            mm.space(elsewhere).switch_to().unwrap();
            let next = mm.create_space().unwrap();
            assert_eq!(next.index(), id.index(), "the test is about a slot that is used again");
            host.forget();
            host.on(1, || mm.space(next).flush().unwrap());
            assert_eq!(host.interrupts(), 0, "{way:?}: nobody runs in it");
            assert_eq!(host.on(1, || mm.space(next).destroy()), Ok(()), "{way:?}");
            true
        });
        late += cases.count(|&late| late);
    }
    assert!(late > 0);
}
