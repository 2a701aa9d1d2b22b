//! Dirty pages of files: their number, who writes them back and when, and that no writer waits for ever.

use crate::machine;

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use machine::faults::{AT, reclaim_all, showing_as};
use machine::race::{Cases, at_every_touch, race};
use machine::showing::shared;
use machine::swapping::{AT as ANON, squeeze, swapping, written};
use machine::{Host, Mm, Setup, bare, pages, settled};
use quietmm::addr::PAGE_SIZE;
use quietmm::platform::{DeviceError, WaitKey};
use quietmm::{Config, Counter, Error, FileId, Rule, SpaceId, Term, UserAccess};

const LIMIT: u64 = 16;
const SECOND: u64 = 1_000_000_000;

fn setup() -> Setup {
    Setup { cpus: 2, frames: 512, ..Setup::default() }
}

fn limit(dirty_limit: u64) -> Config {
    Config { dirty_limit, ..bare("linux") }
}

/// Of no effect, but for the count.
fn counting() -> Config {
    limit(u64::MAX)
}

fn write(mm: &Mm<'_>, file: FileId, page: u64, value: u64) {
    assert_eq!(mm.file(file).write(page * PAGE_SIZE, &value.to_ne_bytes()), Ok(8));
}

fn shows(mm: &Mm<'_>, file: FileId, page: u64) -> u64 {
    let mut word = [0; 8];
    mm.file(file).read(page * PAGE_SIZE, &mut word).unwrap();
    u64::from_ne_bytes(word)
}

/// A file of so many pages, and a space that shows it, in which CPU 0 runs.
fn mapped(mm: &Mm<'_>, count: u64) -> (FileId, SpaceId) {
    let file = mm.create_file(count).unwrap();
    (file, showing_as(mm, shared(file), count, &[0]))
}

#[test]
fn each_page_of_a_file_that_is_dirty_is_counted_once_however_it_became_so() {
    let host = Host::new(setup());
    host.run(counting(), |mm| {
        let (file, id) = mapped(mm, 32);
        let dirty = |want: u64| {
            assert_eq!(mm.dirty_pages(), want);
            assert_eq!(settled(mm).broken, None);
        };
        // By calls, through mappings, by devices, by what a shorter length leaves of a page.
        (0..4).for_each(|page| write(mm, file, page, page));
        dirty(4);
        (2..8).for_each(|page| host.write(mm, id, AT + page, page).unwrap());
        dirty(8);
        host.read(mm, id, AT + 8).unwrap();
        dirty(8);
        let pins = mm.space(id).pin(pages(AT + 8, 2), UserAccess::Write, Term::Short).unwrap();
        dirty(10);
        assert_eq!(mm.file(file).write_back(), Ok(10));
        // A device may write on.
        dirty(2);
        mm.unpin(pins);
        dirty(2);
        assert_eq!(mm.file(file).write_back(), Ok(2));
        dirty(0);
        assert_eq!(host.write(mm, id, AT, 5), Ok(()));
        dirty(1);
        mm.file(file).set_size(9 * PAGE_SIZE + 100).unwrap();
        dirty(2);
        // By a hole, a cut, and the end; what a device does not take stays.
        mm.file(file).punch_hole(0, 4096).unwrap();
        dirty(1);
        (0..6).for_each(|page| write(mm, file, page, page));
        host.fail_writes.set(true);
        assert_eq!(mm.file(file).write_back(), Err(Error::Device));
        dirty(7);
        host.fail_writes.set(false);
        mm.file(file).set_size(3 * PAGE_SIZE).unwrap();
        dirty(3);
        mm.drain_lru_batch();
        reclaim_all(mm);
        dirty(0);
        write(mm, file, 1, 1);
        mm.unload();
        mm.space(id).destroy().unwrap();
        mm.file(file).destroy().unwrap();
        dirty(0);
    });
}

/// A device lets go of a page, which is dirty by that, and another CPU writes it back, at every place.
#[test]
fn nobody_finds_fewer_dirty_pages_than_none() {
    let Cases { results, .. } = at_every_touch(&setup(), &limit(LIMIT), None, |mm, place| {
        let host = mm.platform();
        let file = mm.create_file(4).unwrap();
        mm.file(file).watch_writes().unwrap();
        let id = showing_as(mm, shared(file), 4, &[0]);
        let pins = mm.space(id).pin(pages(AT, 1), UserAccess::Write, Term::Short).unwrap();
        // Nobody gives leave for what the device writes on: the page is clean while it is pinned.
        host.refuse_mkwrite.set(true);
        assert_eq!((mm.file(file).write_back(), mm.dirty_pages()), (Ok(1), 0));
        let written = || (mm.file(file).write_back().unwrap(), mm.dirty_pages());
        let seen = race(mm, place, || mm.unpin(pins), written);
        assert_eq!((mm.file(file).write_back().unwrap() + seen.0, mm.dirty_pages()), (1, 0));
        seen
    });
    assert!(results.iter().all(|&(_, dirty)| dirty <= 1), "{results:?}");
    assert!(results.iter().any(|&(written, _)| written == 1));
}

/// Files that have ended leave their places behind.
#[test]
fn who_looks_for_pages_of_other_files_lets_others_run() {
    let host = Host::new(Setup { frames: 2048, ..setup() });
    host.run(Config { resched_after: 1024, ..limit(LIMIT) }, |mm| {
        let file = mm.create_file(LIMIT + 1).unwrap();
        let ended: Vec<_> = (0..3000).map(|_| mm.create_file(1).unwrap()).collect();
        let others = [0; 2].map(|_| mm.create_file(1).unwrap());
        ended.into_iter().for_each(|file| mm.file(file).destroy().unwrap());
        (0..LIMIT).for_each(|page| write(mm, file, page, 1));
        write(mm, others[0], 0, 1);
        assert_eq!(
            mm.dirty_pages(),
            1,
            "the first file's pages were written back, and the next in line is behind it"
        );
        (0..LIMIT - 1).for_each(|page| write(mm, file, page, 1));
        let longest = host.longest_stretch(|| write(mm, others[1], 0, 1));
        assert!(longest < 8000, "{longest} touches of shared memory before another task may run");
        assert_eq!((mm.dirty_pages(), host.on_disk(others[0], 0)), (LIMIT, Some(1)));
    });
}

#[test]
fn where_nobody_counts_nothing_is_counted_and_no_write_is_a_fault_of_its_own() {
    let faults = |config| {
        let host = Host::new(setup());
        host.run(config, |mm| {
            let (_, id) = mapped(mm, 4);
            host.read(mm, id, AT).unwrap();
            host.write(mm, id, AT, 1).unwrap();
            (mm.counter(Counter::PgFault), mm.dirty_pages(), mm.flusher())
        })
    };
    assert_eq!(faults(bare("linux")), (1, 0, 0));
    assert_eq!(faults(counting()), (2, 1, 0));
    // No file system is asked for that.
    let host = Host::new(setup());
    host.run(counting(), |mm| {
        let (_, id) = mapped(mm, 4);
        host.write(mm, id, AT, 1).unwrap();
        assert_eq!((host.mkwrites.take().len(), mm.counter(Counter::MkwriteAsked)), (0, 0));
    });
}

/// The most pages that were dirty while 100 were written, half by calls and half through mappings; all is in the files afterwards.
fn most_dirty(config: Config, fail: bool, broken: Option<Rule>) -> (u64, u64) {
    let host = Host::new(setup());
    host.broken.set(broken);
    host.run(config, |mm| {
        let (shown, id) = mapped(mm, 50);
        let called = mm.create_file(50).unwrap();
        host.fail_writes.set(fail);
        let mut most = 0;
        for page in 0..50 {
            write(mm, called, page, 100 + page);
            most = most.max(mm.dirty_pages());
            host.write(mm, id, AT + page, 200 + page).unwrap();
            most = most.max(mm.dirty_pages());
        }
        host.fail_writes.set(false);
        for page in 0..50 {
            assert_eq!((shows(mm, called, page), shows(mm, shown, page)), (100 + page, 200 + page));
        }
        let out = mm.counter(Counter::PgPgOut);
        mm.file(called).write_back().unwrap();
        mm.file(shown).write_back().unwrap();
        assert!((0..50).all(|page| host.on_disk(called, page) == Some(100 + page)));
        assert!((0..50).all(|page| host.on_disk(shown, page) == Some(200 + page)));
        assert_eq!((mm.dirty_pages(), host.torn.get(), settled(mm).broken), (0, 0, None));
        (most, out)
    })
}

#[test]
fn a_limit_on_dirty_pages_holds_and_whoever_writes_writes_back() {
    let (most, out) = most_dirty(limit(LIMIT), false, None);
    assert_eq!(most, LIMIT);
    assert!((100 - LIMIT..=100).contains(&out), "each page goes once: {out}");
    assert_eq!(most_dirty(limit(1), false, None).0, 1);
    // The controls.
    assert_eq!(most_dirty(limit(LIMIT), false, Some(Rule::WriteBackAtLimit)), (100, 0));
    assert_eq!(most_dirty(counting(), false, None), (100, 0));
}

/// Whole pages, and parts of one.
#[test]
fn whoever_makes_a_file_longer_is_held_to_the_limit_on_dirty_pages() {
    for bytes in [PAGE_SIZE, 100] {
        let host = Host::new(setup());
        host.run(limit(LIMIT), |mm| {
            let file = mm.create_file(1).unwrap();
            for page in 1..50 {
                assert_eq!(
                    mm.file(file).write(page * PAGE_SIZE, &vec![7; bytes as usize]),
                    Ok(bytes as usize)
                );
                assert!(mm.dirty_pages() <= LIMIT, "{} pages, {bytes} bytes of each", mm.dirty_pages());
            }
            let many = 40 * PAGE_SIZE as usize;
            assert_eq!(mm.file(file).write(60 * PAGE_SIZE, &vec![7; many]), Ok(many));
            assert!(mm.dirty_pages() <= LIMIT, "{} of what was written at once", mm.dirty_pages());
            assert_eq!(mm.file(file).size(), Ok(100 * PAGE_SIZE));
        });
    }
}

#[test]
fn a_device_that_takes_nothing_stops_no_writer() {
    assert_eq!(most_dirty(limit(LIMIT), true, None).0, 100);
}

#[test]
fn who_writes_to_one_file_writes_others_back_where_it_has_nothing_itself() {
    let host = Host::new(setup());
    host.run(limit(LIMIT), |mm| {
        let files = [0; 3].map(|_| mm.create_file(16).unwrap());
        (0..LIMIT).for_each(|page| write(mm, files[(page % 2) as usize], page, page + 1));
        assert_eq!(mm.dirty_pages(), LIMIT);
        (0..8).for_each(|page| write(mm, files[2], page, 7));
        assert!(mm.dirty_pages() <= LIMIT);
        let clean =
            (0..LIMIT).filter(|&page| host.on_disk(files[(page % 2) as usize], page) == Some(page + 1));
        assert_eq!(clean.count(), 8, "one file of the two, whole");
        assert_eq!(settled(mm).broken, None);
    });
}

#[test]
fn pages_go_when_they_are_old_and_no_sooner() {
    let host = Host::new(setup());
    host.run(Config { dirty_expire: 30 * SECOND, ..bare("linux") }, |mm| {
        let files = [0; 2].map(|_| mm.create_file(64).unwrap());
        host.clock.set(SECOND);
        (0..40).for_each(|page| write(mm, files[0], page, 1));
        host.clock.set(20 * SECOND);
        write(mm, files[1], 0, 2);
        // What becomes dirty later makes the file no younger.
        write(mm, files[0], 50, 3);
        host.clock.set(31 * SECOND - 1);
        assert_eq!((mm.flusher(), mm.dirty_pages()), (0, 42));
        host.clock.set(31 * SECOND + 1);
        assert_eq!((mm.flusher(), mm.dirty_pages()), (41, 1));
        assert_eq!((host.on_disk(files[0], 50), host.on_disk(files[1], 0)), (Some(3), None));
        assert_eq!(mm.flusher(), 0);
        host.clock.set(51 * SECOND);
        host.fail_writes.set(true);
        assert_eq!((mm.flusher(), mm.dirty_pages()), (0, 1));
        // It is tried again when it is as old once more.
        host.fail_writes.set(false);
        host.clock.set(60 * SECOND);
        assert_eq!((mm.flusher(), mm.dirty_pages()), (0, 1));
        host.clock.set(81 * SECOND + 1);
        assert_eq!((mm.flusher(), mm.dirty_pages()), (1, 0));
    });
}

#[test]
fn a_file_that_was_written_back_is_as_old_as_what_became_dirty_since() {
    let host = Host::new(setup());
    host.run(Config { dirty_expire: 30 * SECOND, ..bare("linux") }, |mm| {
        let file = mm.create_file(64).unwrap();
        host.clock.set(SECOND);
        write(mm, file, 0, 1);
        mm.file(file).write_back().unwrap();
        host.clock.set(20 * SECOND);
        write(mm, file, 1, 1);
        host.clock.set(40 * SECOND);
        assert_eq!((mm.flusher(), mm.dirty_pages()), (0, 1));
        host.clock.set(51 * SECOND);
        assert_eq!((mm.flusher(), mm.dirty_pages()), (1, 0));
    });
}

#[test]
fn pages_go_when_they_are_too_many_and_somebody_is_woken_for_it_once() {
    let host = Host::new(setup());
    host.run(Config { dirty_background: 40, ..bare("linux") }, |mm| {
        let files = [0; 2].map(|_| mm.create_file(200).unwrap());
        let woken = || host.take_woken().into_iter().filter(|&key| key == WaitKey::Flusher).count();
        (0..20).for_each(|page| write(mm, files[0], page, 1));
        (0..20).for_each(|page| write(mm, files[1], page, 1));
        assert_eq!((woken(), mm.flusher()), (0, 0));
        (20..120).for_each(|page| write(mm, files[1], page, 1));
        assert_eq!((woken(), mm.dirty_pages()), (1, 140));
        let written = mm.flusher();
        assert_eq!((mm.dirty_pages(), mm.flusher()), (140 - written, 0));
        assert!((100..100 + 32).contains(&written), "no more than it must, and a batch: {written}");
        // What is left goes when there are too many again.
        (120..180).for_each(|page| write(mm, files[1], page, 1));
        assert_eq!(woken(), 1);
        assert!(mm.flusher() > 0 && mm.dirty_pages() <= 40);
        assert_eq!(settled(mm).broken, None);
    });
}

#[test]
fn who_writes_on_makes_what_is_left_of_a_file_no_younger() {
    let host = Host::new(setup());
    let config = Config { dirty_background: 40, dirty_expire: 30 * SECOND, ..bare("linux") };
    host.run(config, |mm| {
        let file = mm.create_file(100).unwrap();
        host.clock.set(SECOND);
        (0..50).for_each(|page| write(mm, file, page, page + 1));
        // One of the first pages stays dirty, and says so while the file is written back for its number: the last ones stay as old as they are.
        host.refuse_writes.set(Some(|_, block| (block == 0).then_some(DeviceError::Failed)));
        host.clock.set(20 * SECOND);
        assert_eq!((mm.flusher(), mm.dirty_pages()), (31, 19));
        host.refuse_writes.set(None);
        host.clock.set(31 * SECOND + 1);
        assert_eq!((mm.flusher(), mm.dirty_pages()), (19, 0));
        assert!((0..50).all(|page| host.on_disk(file, page) == Some(page + 1)));
        assert_eq!(settled(mm).broken, None);
    });
}

#[test]
fn a_device_that_takes_nothing_is_not_asked_for_every_page_by_every_writer() {
    static TRIES: AtomicUsize = AtomicUsize::new(0);
    const PAGES: u64 = 256;
    let host = Host::new(setup());
    host.run(limit(LIMIT), |mm| {
        let file = mm.create_file(PAGES).unwrap();
        host.refuse_writes.set(Some(|_, _| {
            TRIES.fetch_add(1, Relaxed);
            Some(DeviceError::Failed)
        }));
        (0..PAGES).for_each(|page| write(mm, file, page, 1));
        // Each write would try all that are dirty: some 30 000.
        let tries = TRIES.load(Relaxed);
        assert!((LIMIT as usize..PAGES as usize).contains(&tries), "{tries}");
        // Once it takes a page the limit is what it was.
        host.refuse_writes.set(None);
        assert_eq!(mm.file(file).write_back(), Ok(PAGES));
        (0..PAGES).for_each(|page| {
            write(mm, file, page, 2);
            assert!(mm.dirty_pages() <= LIMIT);
        });
        assert_eq!(settled(mm).broken, None);
    });
}

/// Who is at the limit, and finds that a device takes nothing, asks it for no more than one batch.
#[test]
fn who_finds_that_a_device_takes_nothing_looks_no_further() {
    static TRIES: AtomicUsize = AtomicUsize::new(0);
    const MANY: u64 = 128;
    let host = Host::new(setup());
    host.run(limit(MANY), |mm| {
        let file = mm.create_file(MANY + 1).unwrap();
        host.refuse_writes.set(Some(|_, _| {
            TRIES.fetch_add(1, Relaxed);
            Some(DeviceError::Failed)
        }));
        (0..MANY).for_each(|page| write(mm, file, page, 1));
        assert_eq!((TRIES.load(Relaxed), mm.dirty_pages()), (0, MANY));
        write(mm, file, MANY, 1);
        assert_eq!((TRIES.load(Relaxed), mm.dirty_pages()), (32, MANY + 1));
        host.refuse_writes.set(None);
        assert_eq!(mm.file(file).write_back(), Ok(MANY + 1));
    });
}

#[test]
fn settings_that_contradict_each_other_are_refused() {
    let host = Host::new(setup());
    let config = Config { dirty_background: 17, dirty_limit: 16, ..bare("linux") };
    let refused = host.make(config).map(drop);
    assert_eq!(refused, Err(Error::BadSetting("dirty_background must be at most dirty_limit")));
    for (dirty_background, dirty_limit) in [(16, 16), (17, 0)] {
        let config = Config { dirty_background, dirty_limit, ..bare("linux") };
        assert!(Host::new(setup()).run(config, |mm| mm.dirty_pages()) == 0);
    }
}

/// CPU 0 writes through a mapping and by calls, near the limit, while CPU 1 does something, in the midst of it at every place; in how many
/// cases the count was wrong afterwards, the limit did not hold, or something was lost.
fn while_writing(other: fn(&Mm<'_>, FileId)) -> usize {
    let cases = at_every_touch(&setup(), &limit(2), None, |mm, place| {
        let (file, id) = mapped(mm, 8);
        let host = mm.platform();
        (0..2).for_each(|page| host.write(mm, id, AT + page, page + 1).unwrap());
        let work = || {
            host.write(mm, id, AT + 2, 3).unwrap();
            write(mm, file, 3, 4);
        };
        race(mm, place, work, || other(mm, file));
        // Two may be on their way at once.
        let held = mm.dirty_pages() <= 3;
        let kept = (0..4).all(|page| shows(mm, file, page) == page + 1);
        mm.file(file).write_back().unwrap();
        let out = (0..4).all(|page| host.on_disk(file, page) == Some(page + 1));
        let settled = settled(mm).broken;
        (held && kept && out && mm.dirty_pages() == 0 && host.torn.get() == 0, settled)
    });
    assert!(cases.results.len() > 50, "{}", cases.results.len());
    cases.count(|&(good, broken)| !good || broken.is_some())
}

#[test]
fn who_writes_back_at_the_same_time_loses_nothing_and_the_count_stays_right() {
    assert_eq!(while_writing(|mm, file| _ = mm.file(file).write_back().unwrap()), 0);
    assert_eq!(while_writing(|mm, file| (0..2).for_each(|page| write(mm, file, page, page + 1))), 0);
    assert_eq!(while_writing(|mm, file| _ = mm.file(file).evict(0, 8).unwrap()), 0);
}

#[test]
fn memory_that_is_no_files_is_not_counted_wherever_it_goes() {
    let host = Host::new(setup());
    host.run(Config { dirty_limit: u64::MAX, ..swapping("linux") }, |mm| {
        let id = written(mm, 512, 8);
        let file = mm.create_file(4).unwrap();
        write(mm, file, 0, 1);
        assert_eq!(mm.dirty_pages(), 1);
        // Out, and what is not in its slot any more out again.
        for value in 0..2 {
            squeeze(mm);
            (0..8).for_each(|page| host.write(mm, id, ANON + page, value).unwrap());
            write(mm, file, 0, 1);
            assert_eq!((mm.dirty_pages(), settled(mm).broken), (1, None));
        }
        assert!(mm.counter(Counter::PswpOut) >= 8);
    });
}

#[test]
fn who_writes_to_a_dirty_page_once_more_writes_none_back() {
    const FEW: u64 = 4;
    let host = Host::new(setup());
    host.run(limit(FEW), |mm| {
        let file = mm.create_file(8).unwrap();
        (0..FEW).for_each(|page| write(mm, file, page, 1));
        for page in 0..FEW {
            write(mm, file, page, 2);
            assert_eq!(mm.dirty_pages(), FEW);
        }
        // Another one is one too many.
        write(mm, file, FEW, 1);
        assert!(mm.dirty_pages() <= FEW && mm.file(file).write_back().unwrap() < FEW + 1);
    });
}

#[test]
fn who_writes_to_a_memory_file_writes_no_other_back() {
    const FEW: u64 = 4;
    let host = Host::new(setup());
    host.run(limit(FEW), |mm| {
        let (file, memory) = (mm.create_file(8).unwrap(), mm.create_memory_file(8).unwrap());
        (0..FEW).for_each(|page| write(mm, file, page, 1));
        (0..8).for_each(|page| write(mm, memory, page, 1));
        assert_eq!(mm.dirty_pages(), FEW);
        // The next one of a file that a device keeps is one too many.
        write(mm, file, FEW, 1);
        assert!(mm.dirty_pages() <= FEW && mm.file(file).write_back().unwrap() < FEW + 1);
    });
}

/// Numbers by chance, always the same.
fn chance(seed: u64) -> impl FnMut(u64) -> u64 {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    move |below| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 33) % below
    }
}

#[test]
fn the_limit_holds_in_whatever_order_files_are_written_to() {
    const FEW: u64 = 5;
    for seed in 1..4 {
        let host = Host::new(setup());
        host.run(limit(FEW), |mm| {
            let (files, mut random) = ([0; 4].map(|_| mm.create_file(64).unwrap()), chance(seed));
            let mut model = [[0; 64]; 4];
            // Some in a row to one file, and then to the next.
            let mut file = 0;
            for value in 1..300 {
                if random(7) == 0 {
                    file = random(4) as usize;
                }
                let page = random(64);
                write(mm, files[file], page, value);
                model[file][page as usize] = value;
                assert!(mm.dirty_pages() <= FEW, "{} at write {value}", mm.dirty_pages());
            }
            for (file, model) in files.into_iter().zip(model) {
                assert!((0..64).all(|page| shows(mm, file, page) == model[page as usize]));
                mm.file(file).write_back().unwrap();
                assert!((0..64).all(|page| host.on_disk(file, page).unwrap_or(0) == model[page as usize]));
            }
            assert_eq!((mm.dirty_pages(), settled(mm).broken), (0, None));
        });
    }
}

/// Whatever was known of a file that ended is not known of the next one in its slot.
#[test]
fn a_file_begins_with_nothing_of_the_one_that_had_its_slot() {
    let host = Host::new(setup());
    host.run(Config { dirty_expire: 30 * SECOND, ..limit(LIMIT) }, |mm| {
        let old = mm.create_file(64).unwrap();
        host.clock.set(SECOND);
        host.fail_writes.set(true);
        (0..64).for_each(|page| write(mm, old, page, 1));
        for _ in 0..8 {
            assert_eq!(mm.file(old).write_back(), Err(Error::Device));
        }
        host.fail_writes.set(false);
        mm.file(old).destroy().unwrap();
        assert_eq!(mm.dirty_pages(), 0);
        // Its device takes what it gets, and it is not old.
        let next = mm.create_file(64).unwrap();
        assert_eq!(next.index(), old.index());
        host.clock.set(20 * SECOND);
        for page in 0..64 {
            write(mm, next, page, page);
            assert!(mm.dirty_pages() <= LIMIT);
        }
        let dirty = mm.dirty_pages();
        assert!(dirty > 0);
        host.clock.set(32 * SECOND);
        assert_eq!((mm.flusher(), mm.dirty_pages()), (0, dirty));
        host.clock.set(51 * SECOND);
        assert_eq!((mm.flusher(), mm.dirty_pages()), (dirty, 0));
    });
}

/// A device lets go of a page while the page is written back, at every place; and when its file has ended.
#[test]
fn what_devices_write_is_counted_once_whenever_they_let_go() {
    let cases = at_every_touch(&setup(), &counting(), None, |mm, place| {
        let (file, id) = mapped(mm, 4);
        let pin = || mm.space(id).pin(pages(AT, 2), UserAccess::Write, Term::Short).unwrap();
        let pins = pin();
        race(mm, place, || _ = mm.file(file).write_back().unwrap(), || mm.unpin(pins));
        let dirty = mm.dirty_pages();
        let written = mm.file(file).write_back().unwrap();
        assert_eq!((dirty, mm.dirty_pages()), (written, 0));
        let pins = pin();
        mm.unload();
        mm.space(id).destroy().unwrap();
        mm.file(file).destroy().unwrap();
        mm.unpin(pins);
        (mm.dirty_pages(), settled(mm).broken)
    });
    assert!(cases.results.len() > 20 && cases.results.iter().all(|found| *found == (0, None)));
}

/// What devices have written when they let go is too much at once: whoever writes next writes back until it is not.
#[test]
fn what_became_dirty_at_once_is_written_back_by_the_next_who_writes() {
    let host = Host::new(setup());
    host.run(limit(LIMIT), |mm| {
        let (file, id) = mapped(mm, 96);
        let pin = |n: u64| mm.space(id).pin(pages(AT + 32 * n, 32), UserAccess::Write, Term::Short).unwrap();
        let pins = [0, 1, 2].map(pin);
        mm.file(file).write_back().unwrap();
        pins.into_iter().for_each(|pins| mm.unpin(pins));
        assert!(mm.dirty_pages() > 5 * LIMIT, "{}", mm.dirty_pages());
        let other = mm.create_file(1).unwrap();
        write(mm, other, 0, 1);
        assert!(mm.dirty_pages() <= LIMIT, "{}", mm.dirty_pages());
        assert_eq!(settled(mm).broken, None);
    });
}

/// Whoever writes the first pages of a file again and again writes back what lies behind them, too.
#[test]
fn pages_that_are_written_again_and_again_keep_no_others_from_the_device() {
    let host = Host::new(setup());
    host.run(limit(2), |mm| {
        let file = mm.create_file(64).unwrap();
        (0..64).for_each(|page| write(mm, file, page, 1));
        mm.file(file).write_back().unwrap();
        for last in [63, 40, 50] {
            write(mm, file, last, 5);
            // A round is of 32 pages.
            (0..6).for_each(|n| write(mm, file, n % 2, n));
            assert_eq!(host.on_disk(file, last), Some(5), "page {last}");
        }
    });
}

#[test]
fn the_first_page_that_is_too_many_wakes_who_flushes() {
    let host = Host::new(setup());
    host.run(Config { dirty_background: 4, ..bare("linux") }, |mm| {
        let file = mm.create_file(16).unwrap();
        let woken = || host.take_woken().into_iter().filter(|&key| key == WaitKey::Flusher).count();
        (0..4).for_each(|page| write(mm, file, page, 1));
        assert_eq!((woken(), mm.flusher()), (0, 0));
        write(mm, file, 4, 1);
        assert_eq!(woken(), 1);
        assert!(mm.flusher() > 0);
    });
}
