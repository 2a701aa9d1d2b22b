//! What a flush says that it has covered: no more than was cleared before it began (INV-4). What another CPU's batch defers meanwhile is still to be
//! flushed, and the next operation in that space does it.

use crate::machine;

use machine::race::{Place, at_every_touch};
use machine::showing::shared;
use machine::{Mm, Setup, bare, pages};
use quietmm::{Advice, Backing, PageNumber, Prot, SpaceId};

/// Three pages of a file, each in a table of its own; and more, which are the space's own.
const AT: u64 = 0x10000;
const SHOWN: [u64; 3] = [AT, AT + 512, AT + 1024];
const OWN: u64 = 0x20000;
/// A page of another file.
const OTHER: u64 = 0x30000;

fn stop(mm: &Mm<'_>) {
    if mm.platform().is_aside() {
        mm.platform().stop();
    }
}

/// Stands still just before this page's entry is looked at. By CPU 2, which runs in the space.
fn stop_before(mm: &Mm<'_>, page: u64) {
    let host = mm.platform();
    host.on(2, || host.watch(page, 1, Box::new(stop)));
}

/// CPU 1 defers the flush of the first page; CPU 0 flushes something else, and in the middle of that CPU 1 defers the second one.
fn deferred_in_the_middle(policy: &str, broadcast: bool, flush: fn(&Mm<'_>, SpaceId)) {
    let setup = Setup { cpus: 3, broadcast, frames: 512, ..Setup::default() };
    let cases = at_every_touch(&setup, &bare(policy), None, |mm, place| {
        let host = mm.platform();
        let Place::Touch(n) = place else { unreachable!() };
        let (file, other) = (mm.create_file(1025).unwrap(), mm.create_file(1).unwrap());
        let id = mm.create_space().unwrap();
        mm.space(id).map(pages(AT, 1025), shared(file), Prot::Read).unwrap();
        mm.space(id).map(pages(OTHER, 1), shared(other), Prot::Read).unwrap();
        mm.space(id).map(pages(OWN, 8), Backing::Anonymous, Prot::ReadWrite).unwrap();
        for cpu in [0, 2] {
            host.on(cpu, || {
                mm.space(id).switch_to().unwrap();
                SHOWN.iter().chain(&[OTHER]).for_each(|&page| assert!(host.read(mm, id, page).is_ok()));
                (OWN..OWN + 7).for_each(|page| host.write(mm, id, page, 1).unwrap());
                mm.drain_lru_batch();
            });
        }
        host.place();
        stop_before(mm, SHOWN[1]);
        let reclaims = || mm.space(id).advise(pages(AT, 1025), Advice::PageOut).unwrap();
        host.aside(1, reclaims, |reclaiming| {
            // Once when it is looked for, and once when it is unmapped.
            while mm.space(id).lookup(PageNumber(SHOWN[0])).unwrap().is_present() {
                assert!(host.resume_one(reclaiming));
                stop_before(mm, SHOWN[1]);
            }
            host.watch_nothing();
            stop_before(mm, SHOWN[2]);
            host.aside(
                0,
                || flush(mm, id),
                |flushing| {
                    host.at_touch(0, n, stop);
                    host.resume_one(flushing);
                    // It may have been flushed, and is cached again.
                    host.on(2, || assert!(host.try_read(SHOWN[1]).is_some()));
                    host.resume_one(reclaiming);
                    host.watch_nothing();
                    assert!(!mm.space(id).lookup(PageNumber(SHOWN[1])).unwrap().is_present());
                    while host.resume_one(flushing) {}
                },
            );
            host.all_placed();
            // Nothing was ever there: it has nothing of its own to flush.
            host.on(0, || mm.space(id).unmap(pages(OWN + 7, 1)).unwrap());
            assert!(!host.caches(2, SHOWN[1]), "what was deferred at touch {n}");
        });
        (0..3).for_each(|cpu| host.on(cpu, || mm.unload()));
        mm.space(id).destroy().unwrap();
        [file, other].into_iter().for_each(|file| mm.file(file).destroy().unwrap());
    });
    assert!(cases.results.len() > 20, "{}", cases.results.len());
}

#[test]
fn a_flush_by_interrupt_covers_nothing_that_is_deferred_meanwhile() {
    deferred_in_the_middle("linux", false, |mm, id| mm.space(id).flush_range(pages(OWN, 1)).unwrap());
}

#[test]
fn a_broadcast_covers_nothing_that_is_deferred_meanwhile() {
    let flush = |mm: &Mm<'_>, id| mm.space(id).flush_range(pages(OWN, 1)).unwrap();
    deferred_in_the_middle("linux+flush=broadcast", true, flush);
}

#[test]
fn a_batch_covers_nothing_that_another_defers_meanwhile() {
    let flush = |mm: &Mm<'_>, id| mm.space(id).advise(pages(OTHER, 1), Advice::PageOut).unwrap();
    deferred_in_the_middle("linux", false, flush);
    deferred_in_the_middle("linux+flush=broadcast", true, flush);
}

/// Whose entry was taken first may be the last to note that its flush is owed: what was taken since, and is owed too, is not forgotten for that. A CPU has
/// come to the space in between, and its own flush is the newer one's.
#[test]
fn an_older_flush_that_is_noted_later_hides_no_newer_one() {
    let setup = Setup { cpus: 4, frames: 512, ..Setup::default() };
    let cases = at_every_touch(&setup, &bare("linux"), None, |mm, place| {
        let host = mm.platform();
        let Place::Touch(n) = place else { unreachable!() };
        let (file, id) = (mm.create_file(1025).unwrap(), mm.create_space().unwrap());
        mm.space(id).map(pages(AT, 1025), shared(file), Prot::Read).unwrap();
        mm.space(id).map(pages(OWN, 8), Backing::Anonymous, Prot::ReadWrite).unwrap();
        let uses = |cpu, shown: &[u64]| {
            host.on(cpu, || {
                mm.space(id).switch_to().unwrap();
                shown.iter().for_each(|&page| assert!(host.read(mm, id, page).is_ok()));
                mm.drain_lru_batch();
            });
        };
        uses(3, &SHOWN);
        host.place();
        let goes = |first, count| mm.space(id).advise(pages(first, count), Advice::PageOut).unwrap();
        let there = |page| mm.space(id).lookup(PageNumber(page)).unwrap().is_present();
        host.aside(
            0,
            || goes(SHOWN[0], 1),
            |older| {
                host.at_touch(0, n, stop);
                host.resume_one(older);
                uses(2, &SHOWN[1..]);
                stop_before(mm, SHOWN[2]);
                host.aside(
                    1,
                    || goes(SHOWN[1], 513),
                    |newer| {
                        let mut turns = 0;
                        while there(SHOWN[1]) && host.resume_one(newer) {
                            stop_before(mm, SHOWN[2]);
                            // It may wait for what the other has.
                            turns += 1;
                            _ = turns > 8 && host.resume_one(older);
                        }
                        host.watch_nothing();
                        while host.resume_one(older) {}
                        host.all_placed();
                        // Nothing of it was ever touched.
                        host.on(3, || mm.space(id).protect(pages(OWN, 8), Prot::Read).unwrap());
                        let gone = !there(SHOWN[1]);
                        assert!(!gone || !host.caches(2, SHOWN[1]), "at {n}");
                        gone
                    },
                )
            },
        )
    });
    assert!(cases.count(|&gone| gone) > 50);
}
