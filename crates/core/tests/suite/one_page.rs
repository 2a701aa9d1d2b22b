//! A page of a file, or of a swap slot, is never in two frames that CPUs can use, in whatever spaces (INV-12).

use crate::machine;

use std::cell::Cell;
use std::rc::Rc;

use machine::race::{Place, at, race};
use machine::swapping::{reclaim, take_free};
use machine::{Mm, Setup, at_hand, bare, give_back, pages, settled};
use quietmm::{
    AllocFrom, Backing, Config, Counter, FileId, Frames, PageNumber, Prot, Rule, SpaceId, UserAccess,
};

const AT: u64 = 0x1000;

/// Other pages of the file: more than one batch.
const OTHERS: u64 = 8;

fn setup() -> Setup {
    Setup { cpus: 3, frames: 512, ..Setup::default() }
}

fn config(policy: &str) -> Config {
    Config { page_lists: at_hand(1), lru_batch: 1, scan_batch: 4, ..bare(policy) }
}

struct Shared {
    file: FileId,
    /// Run on CPUs 1 and 2, which have read the page.
    spaces: [SpaceId; 2],
    held: Vec<Frames>,
}

/// Two spaces show a page of a file, above the first block of memory if there is more, which was not used since the last
/// look. Its next pages are in memory too, and nobody shows them. All other memory is the test's, but what CPU 1 has at
/// hand.
fn shared(mm: &Mm<'_>) -> Shared {
    let host = mm.platform();
    let (mut held, high): (Vec<_>, _) = take_free(mm).into_iter().partition(in_first_block);
    give_back(mm, if high.is_empty() { std::mem::take(&mut held) } else { high });
    let file = mm.create_file(1 + OTHERS).unwrap();
    let spaces = [1, 2].map(|cpu| {
        let id = mm.create_space().unwrap();
        mm.space(id).map(pages(AT, 1), Backing::File { file, offset: 0 }, Prot::ReadWrite).unwrap();
        host.on(cpu, || {
            mm.space(id).switch_to().unwrap();
            assert_eq!(host.read(mm, id, AT), Ok(0));
            mm.drain_lru_batch();
        });
        id
    });
    host.on(1, || {
        mm.space(spaces[0])
            .map(pages(AT + 1, OTHERS), Backing::File { file, offset: 1 }, Prot::Read)
            .unwrap();
        (AT + 1..AT + 1 + OTHERS).for_each(|page| assert_eq!(host.read(mm, spaces[0], page), Ok(0)));
        mm.drain_lru_batch();
        mm.space(spaces[0]).unmap(pages(AT + 1, OTHERS)).unwrap();
    });
    let own: Vec<_> = (0..2).map(|_| mm.frames().alloc(0, AllocFrom::NOW).unwrap()).collect();
    held.extend(take_free(mm));
    host.on(1, || give_back(mm, own));
    [1, 2].iter().for_each(|&cpu| host.on(cpu, || host.make_idle(AT)));
    Shared { file, spaces, held }
}

fn in_first_block(frame: &Frames) -> bool {
    frame.first().0 < 0x10000
}

fn end(mm: &Mm<'_>, shared: Shared) {
    give_back(mm, shared.held);
    (0..3).for_each(|cpu| mm.platform().on(cpu, || mm.unload()));
    shared.spaces.iter().for_each(|&id| mm.space(id).destroy().unwrap());
    mm.file(shared.file).destroy().unwrap();
    assert_eq!(settled(mm).broken, None);
}

/// How the page goes.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Way {
    /// A task reclaims.
    Reclaim,
    /// The memory that may go offline does, if it can. No memory is short then.
    Offline,
}

fn go(mm: &Mm<'_>, way: Way) {
    if way == Way::Reclaim {
        return reclaim(mm);
    }
    let leaving: Vec<_> =
        mm.frames().blocks().filter_map(|block| mm.frames().begin_offline(block).ok()).collect();
    for block in leaving {
        match mm.frames().finish_offline(block) {
            Ok(offline) => mm.frames().bring_online(offline),
            Err(remains) => mm.frames().cancel_offline(remains.leaving),
        }
    }
}

/// CPU 0 takes the page out of memory, and stands still at a place. CPU 1 writes to it, and then CPU 2 reads by what it has
/// cached, if that is still there: whether it misses what was written. And the touch at which the page left its cache.
fn misses(mm: &Mm<'_>, way: Way, place: Place) -> (bool, Option<u32>) {
    let host = mm.platform();
    let mut shared = shared(mm);
    let [writer, reader] = shared.spaces;
    if way == Way::Offline {
        // There is some elsewhere for who wants the page.
        give_back(mm, std::mem::take(&mut shared.held));
    }
    let left = Rc::new(Cell::new(None));
    let before = host.touches_of(0);
    for _ in 0..=OTHERS {
        let at = Rc::clone(&left);
        host.on_forget.borrow_mut().push_back(Box::new(move |mm| {
            if at.get().is_none() && !mm.space(reader).lookup(PageNumber(AT)).unwrap().is_present() {
                at.set(Some(mm.platform().touches_of(0) - before));
            }
        }));
    }
    let write_and_look = || {
        host.write(mm, writer, AT, 77).unwrap();
        host.on(2, || host.try_read(AT))
    };
    let read = race(mm, place, || go(mm, way), write_and_look);
    let later = host.on(2, || host.read(mm, reader, AT));
    let bad = read.is_some_and(|read| read != 77) || later != Ok(77);
    if host.broken.get().is_none() {
        end(mm, shared);
    }
    (bad, left.get())
}

/// At every place shortly before and after the page leaves its cache: how often something is missed.
fn missed(frames: u32, policy: &str, broken: Option<Rule>, way: Way) -> usize {
    let setup = Setup { frames, ..setup() };
    let play = |place| at(&setup, &config(policy), broken, |mm| misses(mm, way, place));
    // Never: it stands still nowhere.
    let (_, left) = play(Place::Touch(u32::MAX));
    let left = left.expect("the page goes");
    (left.saturating_sub(300)..left + 100).filter(|&n| play(Place::Touch(n)).0).count()
}

#[test]
fn what_is_written_to_a_page_on_its_way_out_is_seen_in_all_spaces() {
    for (frames, policy, way) in [
        (512, "linux", Way::Reclaim),
        (512, "quiet+unmap=batch", Way::Reclaim),
        (2048, "linux", Way::Offline),
    ] {
        assert_eq!(missed(frames, policy, None, way), 0, "{policy}, {way:?}");
        assert!(missed(frames, policy, Some(Rule::CacheUntilFlush), way) > 0, "{policy}, {way:?}");
    }
    // Flushed page by page there is no window.
    assert_eq!(missed(512, "vanilla", Some(Rule::CacheUntilFlush), Way::Reclaim), 0);
}

#[test]
fn a_page_that_is_wanted_before_its_flush_stays() {
    let reads = |broken| {
        at(&setup(), &config("linux"), broken, |mm| {
            let shared = shared(mm);
            let (host, reader) = (mm.platform(), shared.spaces[0]);
            let frame = || mm.space(reader).lookup(PageNumber(AT)).unwrap().frame();
            let before = frame();
            let seen = Rc::new(Cell::new(0));
            let count = Rc::clone(&seen);
            host.when_unmapped(reader, AT, move |mm| {
                count.set(mm.counter(Counter::PgMajFault));
                let fault = || mm.space(reader).fault(PageNumber(AT).addr(), UserAccess::Read);
                mm.platform().on(1, || assert_eq!(fault(), Ok(())));
                count.set(mm.counter(Counter::PgMajFault) - count.get());
            });
            reclaim(mm);
            let same = frame() == before;
            if broken.is_none() {
                end(mm, shared);
            }
            (seen.get(), same)
        })
    };
    assert_eq!(reads(None), (0, true), "it is found, and not read again");
    assert_eq!(reads(Some(Rule::CacheUntilFlush)), (1, false), "read into a second frame");
}

#[test]
fn a_page_leaves_its_cache_when_no_cpu_can_use_it() {
    for policy in ["linux", "vanilla", "quiet+unmap=batch"] {
        let still_used = |broken| {
            at(&setup(), &config(policy), broken, |mm| {
                let shared = shared(mm);
                let used = Rc::new(Cell::new(None));
                let found = Rc::clone(&used);
                mm.platform().on_forget.borrow_mut().push_back(Box::new(move |mm| {
                    found
                        .set(Some([1, 2].map(|cpu| mm.platform().on(cpu, || mm.platform().caches(cpu, AT)))));
                }));
                reclaim(mm);
                if broken.is_none() {
                    end(mm, shared);
                }
                used.get().expect("it went")
            })
        };
        assert_eq!(still_used(None), [false; 2], "{policy}");
        let old = if policy == "vanilla" { [false; 2] } else { [true; 2] };
        assert_eq!(still_used(Some(Rule::CacheUntilFlush)), old, "{policy}");
    }
}
