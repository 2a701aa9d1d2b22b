//! A mapping becomes longer, shorter, or another place's, in one step.

use crate::machine;

use machine::race::{at_every_touch, race};
use machine::showing::{ANON, AT, TO, entry, mapped, private, shared};
use machine::{Host, Mm, Setup, bare, exhaust, give_back, pages, settled};
use quietmm::{Advice, Backing, Config, Counter, Error, PageNumber, PageRange, Prot, SpaceId};

fn with<R>(config: Config, work: impl FnOnce(&Host, &Mm<'_>) -> R) -> R {
    let host = Host::new(Setup { cpus: 2, ..Setup::default() });
    host.run(config, |mm| {
        let result = work(&host, mm);
        assert_eq!((settled(mm).broken, host.stale.get()), (None, 0));
        result
    })
}

fn swapping() -> Config {
    Config { swap: true, ..bare("linux") }
}

fn remap(mm: &Mm<'_>, id: SpaceId, from: PageRange, to: PageRange) -> Result<(), Error> {
    mm.space(id).remap(from, to)
}

/// A space with 8 pages there, each of which has its number; CPU 1 has them cached too.
fn eight(host: &Host, mm: &Mm<'_>, backing: Backing) -> SpaceId {
    let id = mapped(mm, backing, 8);
    (0..8).for_each(|page| host.write(mm, id, AT + page, page).unwrap());
    host.on(1, || {
        mm.space(id).switch_to().unwrap();
        (0..8).for_each(|page| assert_eq!(host.read(mm, id, AT + page), Ok(page)));
    });
    id
}

fn has(host: &Host, mm: &Mm<'_>, id: SpaceId, at: u64, want: impl IntoIterator<Item = u64>) {
    want.into_iter()
        .enumerate()
        .for_each(|(i, value)| assert_eq!(host.read(mm, id, at + i as u64), Ok(value)));
}

#[test]
fn what_grows_in_place_goes_on_with_the_same() {
    for config in [bare("linux"), swapping(), Config { ..bare("quiet+free=sweep") }] {
        with(config, |host, mm| {
            let file = mm.create_file(32).unwrap();
            for backing in [ANON, shared(file), private(file)] {
                let id = eight(host, mm, backing);
                let sent = mm.counter(Counter::IpisSent);
                remap(mm, id, pages(AT, 8), pages(AT, 20)).unwrap();
                assert_eq!(mm.counter(Counter::IpisSent), sent);
                has(host, mm, id, AT, 0..8);
                (8..20).for_each(|page| host.write(mm, id, AT + page, 100 + page).unwrap());
                has(host, mm, id, AT + 8, 108..120);
                if backing == shared(file) {
                    let mut word = [0; 8];
                    mm.file(file).read(15 * 4096, &mut word).unwrap();
                    assert_eq!(u64::from_ne_bytes(word), 115);
                }
                assert!(host.read(mm, id, AT + 20).is_err());
                host.on(1, || mm.unload());
                mm.unload();
                mm.space(id).destroy().unwrap();
            }
        });
    }
}

#[test]
fn what_becomes_shorter_is_unmapped_for_all() {
    with(bare("linux"), |host, mm| {
        let id = eight(host, mm, ANON);
        remap(mm, id, pages(AT, 8), pages(AT, 3)).unwrap();
        has(host, mm, id, AT, 0..3);
        for cpu in 0..2 {
            host.on(cpu, || assert_eq!(host.read(mm, id, AT + 3), Err(Error::NotMapped(PageNumber(AT + 3)))));
        }
        // From the middle: what follows stays.
        mm.space(id).map(pages(AT + 3, 8), ANON, Prot::ReadWrite).unwrap();
        remap(mm, id, pages(AT + 1, 4), pages(AT + 1, 1)).unwrap();
        assert_eq!(host.read(mm, id, AT + 2), Err(Error::NotMapped(PageNumber(AT + 2))));
        assert_eq!(host.read(mm, id, AT + 5), Ok(0));
        remap(mm, id, pages(AT, 2), pages(AT, 2)).unwrap();
        has(host, mm, id, AT, 0..2);
    });
}

#[test]
fn what_moves_becomes_longer_or_shorter_on_the_way() {
    for config in [bare("linux"), bare("quiet"), swapping()] {
        with(config, |host, mm| {
            let file = mm.create_file(32).unwrap();
            for backing in [ANON, shared(file), private(file)] {
                let id = eight(host, mm, backing);
                let frame = entry(mm, id, AT + 5).frame();
                remap(mm, id, pages(AT, 8), pages(TO, 12)).unwrap();
                assert_eq!(entry(mm, id, TO + 5).frame(), frame);
                has(host, mm, id, TO, 0..8);
                host.write(mm, id, TO + 11, 11).unwrap();
                assert!(host.read(mm, id, AT).is_err() && host.read(mm, id, TO + 12).is_err());
                remap(mm, id, pages(TO, 12), pages(AT, 2)).unwrap();
                has(host, mm, id, AT, 0..2);
                let gone = [TO, TO + 1, TO + 11, AT + 2];
                assert!(gone.into_iter().all(|page| host.read(mm, id, page).is_err()));
                host.on(1, || mm.unload());
                mm.unload();
                mm.space(id).destroy().unwrap();
            }
        });
    }
}

#[test]
fn a_part_that_moves_leaves_the_rest_and_grows_by_itself() {
    with(swapping(), |host, mm| {
        let id = eight(host, mm, ANON);
        remap(mm, id, pages(AT + 4, 4), pages(TO, 8)).unwrap();
        remap(mm, id, pages(AT, 4), pages(AT, 8)).unwrap();
        has(host, mm, id, AT, [0, 1, 2, 3, 0, 0, 0, 0]);
        has(host, mm, id, TO, [4, 5, 6, 7, 0, 0, 0, 0]);
        (0..4).for_each(|page| host.write(mm, id, AT + 4 + page, 50 + page).unwrap());
        (0..4).for_each(|page| host.write(mm, id, TO + 4 + page, 70 + page).unwrap());
        mm.swap().on(1, 512, 0).unwrap();
        for at in [AT, TO] {
            mm.drain_lru_batch();
            mm.space(id).advise(pages(at, 8), Advice::PageOut).unwrap();
        }
        has(host, mm, id, AT, [0, 1, 2, 3, 50, 51, 52, 53]);
        has(host, mm, id, TO, [4, 5, 6, 7, 70, 71, 72, 73]);
    });
}

#[test]
fn what_is_refused_changes_nothing() {
    with(Config { max_map_count: 3, ..bare("linux") }, |host, mm| {
        let id = eight(host, mm, ANON);
        let space = mm.space(id);
        space.map(pages(AT + 12, 4), ANON, Prot::Read).unwrap();
        let same = |from: PageRange, to: PageRange, error: Error| {
            assert_eq!(remap(mm, id, from, to), Err(error));
            has(host, mm, id, AT, 0..8);
            assert_eq!(host.read(mm, id, AT + 12), Ok(0));
        };
        same(pages(AT, 8), pages(AT, 13), Error::Overlaps(PageNumber(AT + 12)));
        same(pages(AT, 4), pages(AT, 8), Error::Overlaps(PageNumber(AT + 4)));
        same(pages(AT, 8), pages(AT + 4, 8), Error::Overlaps(PageNumber(AT + 4)));
        same(pages(AT, 8), pages(AT + 10, 8), Error::Overlaps(PageNumber(AT + 12)));
        // Only what it would gain elsewhere is in the way.
        same(pages(AT, 4), pages(AT + 8, 8), Error::Overlaps(PageNumber(AT + 12)));
        same(pages(AT + 6, 4), pages(TO, 4), Error::NotMapped(PageNumber(AT + 8)));
        same(pages(AT, 8), pages(AT, 0), Error::BadRange);
        let end = PageNumber::USER_END.0;
        assert!(remap(mm, id, pages(AT, 8), pages(end - 4, 8)).is_err());
        // In the middle of a VMA two borders more would be needed, and one may be.
        same(pages(AT + 2, 4), pages(TO, 2), Error::MapCount { most: 3 });
        // Beyond what a file can have.
        let file = mm.create_file(1).unwrap();
        space.unmap(pages(AT + 12, 4)).unwrap();
        space.map(pages(TO, 2), Backing::File { file, offset: (1 << 40) - 2 }, Prot::Read).unwrap();
        assert_eq!(remap(mm, id, pages(TO, 2), pages(TO, 3)), Err(Error::BadRange));
        assert_eq!(remap(mm, id, pages(TO, 2), pages(TO + 8, 3)), Err(Error::BadRange));
        remap(mm, id, pages(TO, 2), pages(TO + 8, 2)).unwrap();
    });
}

/// Each round it moves down and becomes longer by as much again: only as far as a page can say where it is.
#[test]
fn what_moves_and_grows_again_and_again_is_refused_before_its_pages_cannot_say_where_they_are() {
    const LONG: u64 = 1 << 33;
    with(swapping(), |host, mm| {
        mm.swap().on(7, 512, 0).unwrap();
        let id = mapped(mm, ANON, 1);
        let (mut rounds, end) = (0, AT + LONG);
        let refused = loop {
            if let Err(error) = remap(mm, id, pages(AT, 1), pages(AT, LONG)) {
                break error;
            }
            mm.space(id).unmap(pages(AT, LONG - 1)).unwrap();
            host.write(mm, id, end - 1, rounds).unwrap();
            mm.space(id).move_range(pages(end - 1, 1), PageNumber(AT)).unwrap();
            rounds += 1;
            mm.drain_lru_batch();
            give_back(mm, exhaust(mm));
            assert!(mm.space(id).lookup(PageNumber(AT)).unwrap().is_swapped());
            assert_eq!(host.read(mm, id, AT), Ok(rounds - 1));
        };
        assert_eq!((refused, rounds), (Error::BadRange, 7));
        assert_eq!(remap(mm, id, pages(AT, 1), pages(TO + LONG, LONG)), Err(Error::BadRange));
        remap(mm, id, pages(AT, 1), pages(AT, 9)).unwrap();
    });
}

#[test]
fn without_memory_for_tables_it_stays_where_it_is() {
    with(Config { max_map_count: 2, ..bare("linux") }, |host, mm| {
        let id = eight(host, mm, ANON);
        // There is a slot for a mapping, and none for tables.
        mm.space(id).map(pages(TO, 1), ANON, Prot::Read).unwrap();
        mm.space(id).unmap(pages(TO, 1)).unwrap();
        let away = PageNumber(1 << 30).0;
        let held = exhaust(mm);
        assert_eq!(remap(mm, id, pages(AT, 8), pages(away, 16)), Err(Error::OutOfMemory));
        assert_eq!(remap(mm, id, pages(AT, 8), pages(away, 4)), Err(Error::OutOfMemory));
        has(host, mm, id, AT, 0..8);
        give_back(mm, held);
        // It is one mapping still: there may be one more, and no third.
        let more = |at: u64| mm.space(id).map(pages(at, 1), ANON, Prot::Read);
        assert_eq!([more(TO), more(TO + 2)], [Ok(()), Err(Error::MapCount { most: 2 })]);
        mm.space(id).unmap(pages(TO, 1)).unwrap();
        remap(mm, id, pages(AT, 8), pages(away, 16)).unwrap();
        has(host, mm, id, away, 0..8);
    });
}

#[test]
fn a_range_with_a_hole_is_not_remapped_wherever_it_is_to_be() {
    with(bare("linux"), |host, mm| {
        let id = eight(host, mm, ANON);
        mm.space(id).unmap(pages(AT + 3, 1)).unwrap();
        let hole = Err(Error::NotMapped(PageNumber(AT + 3)));
        for to in [pages(AT, 12), pages(AT, 6), pages(AT, 8), pages(TO, 12), pages(TO, 8), pages(TO, 6)] {
            assert_eq!(remap(mm, id, pages(AT, 8), to), hole, "{to:?}");
            has(host, mm, id, AT, 0..3);
            has(host, mm, id, AT + 4, 4..8);
            let beyond = [AT + 8, TO, TO + 11].map(|page| host.read(mm, id, page).is_err());
            assert_eq!(beyond, [true; 3], "{to:?}");
        }
    });
}

#[test]
fn what_grows_up_to_what_goes_on_with_the_same_is_one_mapping_with_it() {
    with(Config { max_map_count: 3, ..bare("linux") }, |host, mm| {
        let file = mm.create_file(32).unwrap();
        let id = eight(host, mm, shared(file));
        let space = mm.space(id);
        space.map(pages(AT + 12, 4), Backing::File { file, offset: 12 }, Prot::ReadWrite).unwrap();
        remap(mm, id, pages(AT, 8), pages(AT, 12)).unwrap();
        // One, and two more may be.
        let more = [0, 4, 8].map(|n| space.map(pages(TO + n, 1), ANON, Prot::Read).is_ok());
        assert_eq!(more, [true, true, false]);
        host.write(mm, id, AT + 11, 11).unwrap();
        has(host, mm, id, AT, (0..8).chain([0, 0, 0, 11]));
    });
}

#[test]
fn however_few_mappings_are_allowed_all_is_done_or_nothing() {
    let mut refused = 0;
    for most in 1..=5 {
        for (from, to) in [
            (pages(AT, 4), pages(TO, 2)),
            (pages(AT + 4, 4), pages(TO, 2)),
            (pages(AT + 2, 4), pages(TO, 2)),
            (pages(AT + 2, 4), pages(TO, 6)),
            (pages(AT, 8), pages(TO, 3)),
            (pages(AT + 2, 3), pages(AT + 2, 1)),
        ] {
            with(Config { max_map_count: most, ..bare("linux") }, |host, mm| {
                let id = eight(host, mm, ANON);
                let done = remap(mm, id, from, to);
                let goes = |page: u64| (from.start.0..from.end().0).contains(&(AT + page));
                for page in 0..8 {
                    let here = host.read(mm, id, AT + page);
                    let stays = to.start == from.start && AT + page < to.end().0;
                    if done.is_err() || !goes(page) || stays {
                        assert_eq!(here, Ok(page), "{most}: {from:?} to {to:?}, page {page}");
                    } else {
                        assert_eq!(here, Err(Error::NotMapped(PageNumber(AT + page))));
                        let place = page - (from.start.0 - AT);
                        if place < to.pages {
                            assert_eq!(host.read(mm, id, to.start.0 + place), Ok(page));
                        }
                    }
                }
                match done {
                    Ok(()) => {}
                    Err(Error::MapCount { .. }) => {
                        refused += 1;
                        assert!(to.start == from.start || host.read(mm, id, to.start.0).is_err());
                    }
                    Err(error) => panic!("{error}"),
                }
            });
        }
    }
    assert!((4..26).contains(&refused), "{refused}");
}

/// A mapping grows while its file is emptied, at every place: no CPU sees afterwards what was there.
#[test]
fn what_grows_while_its_file_is_cut_shows_nothing_that_was_cut_off() {
    let setup = Setup { cpus: 2, frames: 512, ..Setup::default() };
    let cases = at_every_touch(&setup, &bare("linux"), None, |mm, place| {
        let host = mm.platform();
        let file = mm.create_file(16).unwrap();
        let id = eight(host, mm, shared(file));
        let grows = || remap(mm, id, pages(AT, 8), pages(AT, 12)).unwrap();
        race(mm, place, grows, || mm.file(file).set_size(0).unwrap());
        mm.file(file).set_size(16 * 4096).unwrap();
        let shows = [0, 1].map(|cpu| host.on(cpu, || host.read(mm, id, AT + 3)));
        host.write(mm, id, AT + 11, 11).unwrap();
        assert_eq!(settled(mm).broken, None);
        shows == [Ok(0); 2] && host.stale.get() == 0
    });
    assert!(cases.results.len() > 20 && cases.count(|sound| !sound) == 0);
}

/// Pages of a space's own have numbers up to 2^36, wherever they lie. A mapping whose last page has the last of these does not become longer, and one
/// that would come beyond them neither.
#[test]
fn a_mapping_grows_up_to_the_last_number_that_a_page_can_have() {
    const NUMBERS: u64 = 1 << 36;
    with(swapping(), |host, mm| {
        let (first, end) = (PageRange::MAPPABLE.start.0, PageRange::MAPPABLE.end().0);
        let id = mm.create_space().unwrap();
        mm.space(id).switch_to().unwrap();
        // The number of the last page, which goes to the lowest place each time.
        mm.space(id).map(pages(end - 1, 1), ANON, Prot::ReadWrite).unwrap();
        let (mut number, mut place) = (end - 1, end - 1);
        while number < NUMBERS - 1 {
            mm.space(id).move_range(pages(place, 1), PageNumber(first)).unwrap();
            let more = (NUMBERS - 1 - number).min(end - first - 2);
            if number + more == NUMBERS - 1 {
                let beyond = remap(mm, id, pages(first, 1), pages(first, 2 + more));
                assert_eq!(beyond, Err(Error::BadRange), "{more}");
            }
            remap(mm, id, pages(first, 1), pages(first, 1 + more)).unwrap();
            (number, place) = (number + more, first + more);
            mm.space(id).unmap(pages(first, more)).unwrap();
        }
        // What comes beside it has numbers of its own: there are none behind the last one.
        mm.space(id).map(pages(place + 1, 1), ANON, Prot::ReadWrite).unwrap();
        let both = [place, place + 1];
        both.iter().for_each(|&page| host.write(mm, id, page, page).unwrap());
        mm.swap().on(machine::swapping::DEVICE, 512, 0).unwrap();
        (0..3).for_each(|_| machine::swapping::squeeze(mm));
        assert!(both.iter().all(|&page| machine::swapping::is_out(mm, id, page)), "a walk finds them");
        assert!(both.iter().all(|&page| host.read(mm, id, page) == Ok(page)));
        machine::swapping::end(mm, &[id], &[machine::swapping::DEVICE]);
    });
}

/// A range of several mappings moves as a whole or not at all: where there may not be so many, none of those that were made for it stays.
#[test]
fn a_range_of_several_mappings_that_may_not_move_leaves_none_where_it_was_to_go() {
    for most in 3..=6 {
        with(Config { max_map_count: most, ..bare("linux") }, |host, mm| {
            let id = eight(host, mm, ANON);
            mm.space(id).protect(pages(AT + 2, 2), Prot::Read).unwrap();
            let done = mm.space(id).move_range(pages(AT, 8), PageNumber(TO));
            assert_eq!(done.is_ok(), most == 6, "{most}: {done:?}");
            let (here, gone) = if done.is_ok() { (TO, AT) } else { (AT, TO) };
            for page in 0..8 {
                assert_eq!(host.read(mm, id, here + page), Ok(page), "{most}");
                assert_eq!(host.read(mm, id, gone + page), Err(Error::NotMapped(PageNumber(gone + page))));
            }
        });
    }
}
