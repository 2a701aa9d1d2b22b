//! A page of a file, or of a swap slot, is never in two frames that CPUs can use, in whatever spaces (INV-12).

use crate::machine;

use std::cell::Cell;
use std::rc::Rc;

use machine::faults::showing;
use machine::race::{Place, at, at_every_touch, race};
use machine::swapping::{reclaim, take_free};
use machine::{Host, Mm, Setup, bare, give_back, pages, pcp, settled};
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
    Config { page_lists: pcp(1), lru_batch: 1, scan_batch: 4, ..bare(policy) }
}

struct Shared {
    file: FileId,
    /// Run on CPUs 1 and 2, which have read the page.
    spaces: [SpaceId; 2],
    held: Vec<Frames>,
}

/// Two spaces show a page of a file, which was not used since the last
/// look. Its next pages are in memory too, and nobody shows them. All other memory is the test's, but what is on CPU
/// 1's lists.
fn shared(mm: &Mm<'_>) -> Shared {
    let host = mm.platform();
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
    let held = take_free(mm);
    host.on(1, || give_back(mm, own));
    [1, 2].iter().for_each(|&cpu| host.on(cpu, || host.make_idle(AT)));
    Shared { file, spaces, held }
}

fn end(mm: &Mm<'_>, shared: Shared) {
    give_back(mm, shared.held);
    (0..3).for_each(|cpu| mm.platform().on(cpu, || mm.unload()));
    shared.spaces.iter().for_each(|&id| mm.space(id).destroy().unwrap());
    mm.file(shared.file).destroy().unwrap();
    assert_eq!(settled(mm).broken, None);
}

/// CPU 0 takes the page out of memory, and stands still at a place. CPU 1 writes to it, and then CPU 2 reads by what it has
/// cached, if that is still there: whether it misses what was written. And the touch at which the page left its cache.
fn misses(mm: &Mm<'_>, place: Place) -> (bool, Option<u32>) {
    let host = mm.platform();
    let shared = shared(mm);
    let [writer, reader] = shared.spaces;
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
    let read = race(mm, place, || reclaim(mm), write_and_look);
    let later = host.on(2, || host.read(mm, reader, AT));
    let bad = read.is_some_and(|read| read != 77) || later != Ok(77);
    if host.broken.get().is_none() {
        end(mm, shared);
    }
    (bad, left.get())
}

/// At every place shortly before and after the page leaves its cache: how often something is missed.
fn missed(policy: &str, broken: Option<Rule>) -> usize {
    let play = |place| at(&setup(), &config(policy), broken, |mm| misses(mm, place));
    // Never: it stands still nowhere.
    let (_, left) = play(Place::Touch(u32::MAX));
    let left = left.expect("the page goes");
    (left.saturating_sub(300)..left + 100).filter(|&n| play(Place::Touch(n)).0).count()
}

#[test]
fn what_is_written_to_a_page_on_its_way_out_is_seen_in_all_spaces() {
    for policy in ["linux", "quiet+unmap=batch"] {
        assert_eq!(missed(policy, None), 0, "{policy}");
        assert!(missed(policy, Some(Rule::CacheUntilFlush)) > 0, "{policy}");
    }
    // Flushed page by page there is no window.
    assert_eq!(missed("vanilla", Some(Rule::CacheUntilFlush)), 0);
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

/// CPU 1 writes to a clean page of a file, of which it has no entry, and unmaps it; it stands still at its touch `n`. CPU 0 takes the
/// page out of its cache meanwhile, and at its own touch `m` the other goes on to its end. Whether what was written is there
/// in the end; `None` if there are no such touches.
fn written_as_it_leaves(n: u32, m: u32, broken: Option<Rule>) -> Option<bool> {
    let host = Host::new(Setup { cpus: 2, frames: 128, ..Setup::default() });
    host.broken.set(broken);
    host.patient.set(true);
    host.run(bare("linux"), |mm| {
        let (id, file) = showing(mm, 2, &[1]);
        // Its table is there.
        host.on(1, || host.write(mm, id, AT + 1, 1).unwrap());
        let mut word = [0; 8];
        mm.file(file).read(0, &mut word).unwrap();
        [0, 1].into_iter().for_each(|cpu| host.on(cpu, || mm.drain_lru_batch()));
        let work = || {
            host.write(mm, id, AT, 7).unwrap();
            mm.space(id).unmap(pages(AT, 1)).unwrap();
        };
        host.place();
        host.at_touch(1, n, |mm| {
            if mm.platform().is_aside() {
                mm.platform().stop();
            }
        });
        let came = host.aside(1, work, |first| {
            let more = host.resume_one(first);
            host.at_touch(0, m, |mm| _ = mm.platform().resume_any());
            mm.file(file).evict(0, 1).unwrap();
            more && host.all_placed()
        });
        if !came {
            host.all_placed();
            host.forget_placed();
            return None;
        }
        mm.file(file).read(0, &mut word).unwrap();
        Some(u64::from_ne_bytes(word) == 7)
    })
}

/// How many cases there are, and how many of them lose what was written.
fn lost_as_they_leave(broken: Option<Rule>) -> (u32, u32) {
    let (mut all, mut lost) = (0, 0);
    for n in 0.. {
        let before = all;
        for m in 0.. {
            let case = std::panic::AssertUnwindSafe(|| written_as_it_leaves(n, m, broken));
            let kept = match std::panic::catch_unwind(case) {
                Ok(Some(kept)) => kept,
                Ok(None) => break,
                Err(_) if broken.is_some() => false,
                Err(payload) => std::panic::resume_unwind(payload),
            };
            (all, lost) = (all + 1, lost + u32::from(!kept));
        }
        // With a rule broken one is enough.
        if all == before || broken.is_some() && lost > 0 {
            break;
        }
    }
    (all, lost)
}

/// A page that is being written to stays, or is in memory anew with what was written; and whether it was is known only when
/// nobody can come to it any more.
#[test]
fn a_page_that_is_written_to_as_it_leaves_its_cache_is_not_lost() {
    let (all, lost) = lost_as_they_leave(None);
    assert!(all > 200 && lost == 0, "{lost} of {all}");
    assert!(lost_as_they_leave(Some(Rule::FreezeBeforeFree)).1 > 0);
}

/// Two CPUs read the same page of a file for the first time, the second while the first stands still: by copy, or through a mapping.
#[test]
fn a_page_that_two_read_at_once_is_read_into_one_frame() {
    type Read = fn(&Mm<'_>, FileId);
    let by_copy: Read = |mm, file| {
        let mut word = [1; 8];
        assert_eq!((mm.file(file).read(0, &mut word), u64::from_ne_bytes(word)), (Ok(8), 0));
    };
    let fault: Read = |mm, _| {
        let id = mm.loaded_space().unwrap();
        assert_eq!(mm.platform().read(mm, id, AT), Ok(0));
    };
    let setup = Setup { cpus: 2, frames: 256, ..Setup::default() };
    for (first, second) in [(by_copy, by_copy), (fault, by_copy), (by_copy, fault), (fault, fault)] {
        let cases = at_every_touch(&setup, &bare("linux"), None, |mm, place| {
            let (_, file) = showing(mm, 1, &[0, 1]);
            race(mm, place, || first(mm, file), || second(mm, file));
            let audit = settled(mm);
            assert_eq!((audit.broken, audit.file, mm.file(file).cached_pages()), (None, 1, Ok(1)));
        });
        assert!(cases.results.len() > 20, "{} cases", cases.results.len());
    }
}
