//! Slabs of VMAs, of which the last slot is given back while somebody may look at one: they are put back.

use crate::machine;

use machine::race::{Place, at_every_touch, race};
use machine::showing::ANON;
use machine::swapping::{anonymous, swapping};
use machine::{Mm, Setup, pages};
use quietmm::platform::Cpus as _;
use quietmm::{Advice, Config, Prot, SpaceId};

const AT: u64 = machine::swapping::AT;
/// Of many VMAs, each apart from the next.
const MANY: u64 = 0x8000;
/// More than two slabs have.
const COUNT: u64 = 90;

fn map(mm: &Mm<'_>, id: SpaceId, n: u64) {
    mm.space(id).map(pages(MANY + 2 * n, 1), ANON, Prot::ReadWrite).unwrap();
}

fn unmap(mm: &Mm<'_>, id: SpaceId, n: u64) {
    mm.space(id).unmap(pages(MANY + 2 * n, 1)).unwrap();
}

/// A space with one VMA in a slab of its own, and another slab in which none is left.
fn one_of_many(mm: &Mm<'_>) -> SpaceId {
    let id = mm.create_space().unwrap();
    (0..COUNT).for_each(|n| map(mm, id, n));
    (1..COUNT).for_each(|n| unmap(mm, id, n));
    id
}

/// While CPU 2 looks for who maps a page, CPU 0 gives the last slot of a slab back, and CPU 1 takes some and gives them back.
#[test]
fn slabs_that_are_put_back_are_put_back_by_one_at_a_time() {
    let setup = Setup { cpus: 4, frames: 1024, ..Setup::default() };
    let config = Config { lru_batch: 1, ..swapping("linux+unmap=per-page") };
    let cases = at_every_touch(&setup, &config, None, |mm, place: Place| {
        let host = mm.platform();
        mm.swap().on(0, 512, 0).unwrap();
        let id = anonymous(mm, 2);
        host.on(3, || {
            mm.space(id).switch_to().unwrap();
            assert_eq!(host.read(mm, id, AT), Ok(AT));
        });
        let (many, other) = (one_of_many(mm), mm.create_space().unwrap());
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
                        (0..3).for_each(|n| map(mm, other, n));
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
