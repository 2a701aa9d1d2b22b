//! Slabs of VMAs, of which the last slot is given back while somebody may look at one: they are put back.

use crate::machine;

use machine::race::{Place, at_every_touch, every_third, race, take_turns};
use machine::showing::{ANON, shared};
use machine::swapping::{anonymous, swapping};
use machine::{Host, Mm, Setup, pages};
use quietmm::platform::Cpus as _;
use quietmm::{Advice, Config, Error, PageNumber, Prot, SpaceId, UserAccess};

const AT: u64 = machine::swapping::AT;
/// Of many VMAs, each apart from the next.
const MANY: u64 = 0x8000;
/// In a slab.
const PER_SLAB: u64 = 32;

fn map(mm: &Mm<'_>, id: SpaceId, n: u64) {
    mm.space(id).map(pages(MANY + 2 * n, 1), ANON, Prot::ReadWrite).unwrap();
}

fn unmap(mm: &Mm<'_>, id: SpaceId, n: u64) {
    mm.space(id).unmap(pages(MANY + 2 * n, 1)).unwrap();
}

/// A space with one VMA in a slab of its own, and another slab in which none is left. The number behind these was a slab's that went. There is one VMA
/// elsewhere.
fn one_of_many(mm: &Mm<'_>) -> SpaceId {
    let id = mm.create_space().unwrap();
    (0..PER_SLAB - 1).for_each(|n| map(mm, id, 1000 + n));
    (0..3 * PER_SLAB).for_each(|n| map(mm, id, n));
    (1..3 * PER_SLAB).for_each(|n| unmap(mm, id, n));
    id
}

/// A space of two pages, of which CPU 3 has used the first.
fn used_on_3(mm: &Mm<'_>) -> SpaceId {
    mm.swap().on(0, 512, 0).unwrap();
    let id = anonymous(mm, 2);
    mm.platform().on(3, || {
        mm.space(id).switch_to().unwrap();
        assert_eq!(mm.platform().read(mm, id, AT), Ok(AT));
    });
    id
}

/// While CPU 2 looks for the mappings of a page, CPU 0 gives the last slot of a slab back, and CPU 1 takes some, more than there are in a slab, and gives one
/// back. It remembers the VMA that CPU 0 gives back, and looks for it in every other case.
#[test]
fn slabs_that_are_put_back_are_put_back_by_one_at_a_time() {
    let setup = Setup { cpus: 4, frames: 1024, ..Setup::default() };
    let config = Config { lru_batch: 1, ..swapping("linux+unmap=per-page") };
    let cases = at_every_touch(&setup, &config, None, |mm, place: Place| {
        let host = mm.platform();
        let id = used_on_3(mm);
        let (many, other) = (one_of_many(mm), mm.create_space().unwrap());
        let touch = || mm.space(many).fault(PageNumber(MANY).addr(), UserAccess::Read);
        host.on(1, touch).unwrap();
        // It answers nobody.
        host.on(3, || assert!(host.irqs_off()));
        host.place();
        let looks = host.aside(
            2,
            || mm.space(id).advise(pages(AT, 1), Advice::PageOut).unwrap(),
            |looks| {
                let stands = host.resume_one(looks);
                race(
                    mm,
                    place,
                    || unmap(mm, many, 0),
                    || {
                        if matches!(place, Place::Touch(n) if n % 2 == 1) {
                            assert!(matches!(touch(), Ok(()) | Err(Error::NotMapped(_))));
                        }
                        (0..=PER_SLAB).for_each(|n| map(mm, other, n));
                        unmap(mm, other, 1);
                    },
                );
                host.on(3, || host.irqs_on());
                stands
            },
        );
        assert_eq!(mm.validate().broken, None);
        looks
    });
    assert!(cases.results.len() > 50 && cases.results.iter().all(|&looks| looks));
}

/// CPU 1 looks for a VMA that it remembers, in a slab that CPU 0 gives back. It finds none once CPU 0 has seen nobody look: CPU 0 goes on to its end, and frees
/// the slab, while CPU 1 stands where it would have found it.
#[test]
fn nobody_finds_a_slab_that_goes() {
    let setup = Setup { cpus: 2, frames: 512, ..Setup::default() };
    let config = Config { lru_batch: 1, ..swapping("linux+unmap=per-page") };
    for step in 7..9 {
        let cases = at_every_touch(&setup, &config, None, |mm, place| {
            let (host, other) = (mm.platform(), mm.create_space().unwrap());
            map(mm, other, 0);
            let many = one_of_many(mm);
            let touch = || mm.space(many).fault(PageNumber(MANY).addr(), UserAccess::Read);
            host.on(1, touch).unwrap();
            let before = mm.validate().pools;
            race(
                mm,
                every_third(place),
                || unmap(mm, many, 0),
                || {
                    take_turns(host, &[step]);
                    assert!(matches!(touch(), Ok(()) | Err(Error::NotMapped(_))));
                },
            );
            let audit = mm.validate();
            assert_eq!(audit.broken, None);
            audit.pools < before
        });
        let freed = cases.count(|&freed| freed);
        assert!(freed > 50, "{freed} of {}", cases.results.len());
    }
}

/// CPU 0 gives the last slot of a slab back, and CPU 1 looks somewhere else once, at any step of that, while CPU 2 looks, or while nobody does. Returns how many
/// frames slots gave back in each case.
fn gives_back_while_one_comes_and_goes(somebody_looks: bool) -> Vec<u64> {
    let setup = Setup { cpus: 4, frames: 1024, ..Setup::default() };
    let config = Config { lru_batch: 1, ..swapping("linux+unmap=per-page") };
    let cases = at_every_touch(&setup, &config, None, |mm, place| {
        let host = mm.platform();
        let id = used_on_3(mm);
        let many = one_of_many(mm);
        // While another holds the VMAs it looks for the one that it remembers, and for nothing else.
        let touch = || mm.space(many).fault(PageNumber(MANY + 2000).addr(), UserAccess::Read);
        host.on(1, touch).unwrap();
        let before = mm.validate().pools;
        // It answers nobody: CPU 2 stands where it looks.
        host.on(3, || assert!(host.irqs_off()));
        host.place();
        let look = || mm.space(id).advise(pages(AT, 1), Advice::PageOut).unwrap();
        host.aside(2, look, |looks| {
            if !somebody_looks {
                host.on(3, || host.irqs_on());
            }
            assert_eq!(host.resume_one(looks), somebody_looks);
            race(mm, place, || unmap(mm, many, 0), || touch().unwrap());
            host.on(3, || host.irqs_on());
        });
        let audit = mm.validate();
        assert_eq!(audit.broken, None);
        before - audit.pools
    });
    cases.results
}

/// Whoever is counted as one who has left, and not as one who has come, is not taken for another who still looks.
#[test]
fn who_comes_and_goes_hides_nobody_who_looks() {
    let gone = gives_back_while_one_comes_and_goes(true);
    assert!(gone.len() > 50 && gone.iter().all(|&frames| frames == 0), "{gone:?}");
    // The control: where nobody looks they go, but for those cases where the other one comes just then.
    let gone = gives_back_while_one_comes_and_goes(false);
    assert!(gone.iter().filter(|&&frames| frames > 0).count() > 50, "{gone:?}");
}

/// Slabs that a directory names.
const NAMED: u64 = 1024;

/// A slab that is put back keeps its number: others may have made slabs meanwhile, and no directory for more numbers is to be had where a slot is given
/// back.
#[test]
fn a_slab_that_is_put_back_keeps_its_number() {
    let host = Host::new(Setup { cpus: 4, frames: 2048, ..Setup::default() });
    host.patient.set(true);
    host.run(Config { lru_batch: 1, ..swapping("linux+unmap=per-page") }, |mm| {
        mm.swap().on(0, 512, 0).unwrap();
        let id = anonymous(mm, 2);
        host.on(3, || mm.space(id).switch_to().unwrap());
        // With the VMA of that space, and those that come, a directory is full.
        let (file, many, other) =
            (mm.create_file(1).unwrap(), mm.create_space().unwrap(), mm.create_space().unwrap());
        let map = |id, n| mm.space(id).map(pages(MANY + 2 * n, 1), shared(file), Prot::Read).unwrap();
        let some = 0..PER_SLAB;
        (100..99 + (NAMED - 2) * PER_SLAB).for_each(|n| map(many, n));
        // CPU 2 looks for the mappings of a page. CPU 0 gives the last slot of a slab back, the second one in which nothing is in use, and CPU 1 takes
        // one more than there are in a slab when CPU 0 has come so far.
        let round = |place: Option<u32>| {
            some.clone().chain([PER_SLAB]).for_each(|n| map(many, n));
            some.clone().for_each(|n| unmap(mm, many, n));
            host.on(3, || assert!(host.read(mm, id, AT) == Ok(AT) && host.irqs_off()));
            host.place();
            let before = host.touches_of(0);
            let look = || mm.space(id).advise(pages(AT, 1), Advice::PageOut).unwrap();
            host.aside(2, look, |looks| {
                assert!(host.resume_one(looks));
                let give = || unmap(mm, many, PER_SLAB);
                match place {
                    None => give(),
                    Some(n) => race(mm, Place::Touch(n), give, || {
                        some.clone().chain([PER_SLAB]).for_each(|n| map(other, n));
                    }),
                }
                host.on(3, || host.irqs_on());
            });
            host.all_placed();
            let touches = host.touches_of(0) - before;
            let pools = mm.validate().pools;
            if place.is_some() {
                some.clone().chain([PER_SLAB]).for_each(|n| unmap(mm, other, n));
            }
            (touches, pools)
        };
        let (touches, pools) = round(None);
        // From the end on: up to where the slab is nowhere, and CPU 1 has to make one, it finds room in that.
        assert!((0..touches).rev().step_by(4).any(|n| round(Some(n)).1 > pools));
    });
}
