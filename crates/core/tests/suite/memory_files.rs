//! Memory files: what programs share in them goes to swap where memory is short, and comes back whole.

use crate::machine;

use machine::race::{at, at_every_touch, at_places, every_third, race};
use machine::showing::{private, shared};
use machine::swapping::{AT, DEVICE, reclaim, sound, squeeze, swapping, take_free};
use machine::{Happened, Mm, Setup, bare, give_back, pages, settled};
use quietmm::addr::PAGE_SIZE;
use quietmm::platform::{Cpus, DeviceError, Store};
use quietmm::{Advice, Backing, Config, Error, FileId, PageNumber, Prot, Rule, SpaceId, Term, UserAccess};

pub(crate) fn setup(cpus: u32) -> Setup {
    Setup { cpus, frames: 256, ..Setup::default() }
}

/// Another space that shows the file; a CPU runs in it.
pub(crate) fn shown_on(mm: &Mm<'_>, cpu: u16, backing: Backing, count: u64) -> SpaceId {
    let id = mm.create_space().unwrap();
    mm.space(id).map(pages(AT, count), backing, Prot::ReadWrite).unwrap();
    mm.platform().on(cpu, || mm.space(id).switch_to().unwrap());
    id
}

/// A memory file, shown by a space in which CPU 0 runs, with each of its pages written through that: its address.
pub(crate) fn written(mm: &Mm<'_>, slots: u64, count: u64) -> (SpaceId, FileId) {
    mm.swap().on(DEVICE, slots, 0).unwrap();
    let file = mm.create_memory_file(count).unwrap();
    let id = shown_on(mm, 0, shared(file), count);
    (AT..AT + count).for_each(|page| mm.platform().write(mm, id, page, page).unwrap());
    (id, file)
}

/// What CPU `cpu` reads at a page of the space in which it runs.
pub(crate) fn seen(mm: &Mm<'_>, cpu: u16, id: SpaceId, page: u64) -> Result<u64, Error> {
    mm.platform().on(cpu, || mm.platform().read(mm, id, page))
}

pub(crate) fn in_swap(mm: &Mm<'_>, file: FileId) -> u64 {
    mm.file(file).swapped_pages().unwrap()
}

pub(crate) fn used(mm: &Mm<'_>) -> u64 {
    mm.swap().usage().used
}

pub(crate) fn copied(mm: &Mm<'_>, file: FileId, page: u64) -> Result<u64, Error> {
    let mut word = [0; 8];
    mm.file(file).read(page * PAGE_SIZE, &mut word).map(|_| u64::from_ne_bytes(word))
}

pub(crate) fn copy(mm: &Mm<'_>, file: FileId, page: u64, word: u64) -> Result<usize, Error> {
    mm.file(file).write(page * PAGE_SIZE, &word.to_ne_bytes())
}

/// The end: nothing is left in memory, nor on the device, which goes off.
pub(crate) fn end(mm: &Mm<'_>, spaces: &[SpaceId], files: &[FileId]) {
    let host = mm.platform();
    (0..host.possible_cpus() as u16).for_each(|cpu| host.on(cpu, || mm.unload()));
    spaces.iter().for_each(|&id| mm.space(id).destroy().unwrap());
    sound(mm);
    files.iter().for_each(|&file| mm.file(file).destroy().unwrap());
    let left = settled(mm);
    assert_eq!((left.broken, left.file, left.anon, used(mm)), (None, 0, 0, 0));
    if mm.swap().usage().slots > 0 {
        mm.swap().off(DEVICE).unwrap();
    }
}

#[test]
fn pages_that_programs_share_go_out_and_come_back_whole() {
    for policy in ["vanilla", "linux", "quiet", "linux+unmap=batch-clean", "linux+aging=flush"] {
        at(&setup(2), &swapping(policy), None, |mm| {
            let (a, file) = written(mm, 512, 40);
            let b = shown_on(mm, 1, shared(file), 40);
            assert_eq!(seen(mm, 1, b, AT), Ok(AT));
            for round in 0..3 {
                squeeze(mm);
                assert_eq!((in_swap(mm, file), used(mm)), (40, 40), "{policy}");
                assert!(!mm.space(a).lookup(PageNumber(AT)).unwrap().is_mapped());
                assert_eq!(mm.space(a).usage().unwrap().resident(), 0);
                sound(mm);
                for page in AT..AT + 40 {
                    assert_eq!(seen(mm, 1, b, page), Ok(page + round));
                    mm.platform().on(1, || mm.platform().write(mm, b, page, page + round + 1).unwrap());
                    assert_eq!(seen(mm, 0, a, page), Ok(page + round + 1));
                }
                assert_eq!((in_swap(mm, file), used(mm)), (0, 0), "what is back has no slot");
                sound(mm);
            }
            end(mm, &[a, b], &[file]);
        });
    }
}

/// Rights that come back to memory that programs share need no fault; those to a copy, to a file that a device keeps, and to one that is watched do.
#[test]
fn rights_that_come_back_let_programs_write_to_memory_that_they_share_at_once() {
    at(&setup(2), &swapping("linux"), None, |mm| {
        let (id, file) = written(mm, 512, 4);
        let copy = shown_on(mm, 1, private(file), 4);
        let others = [mm.create_file(4).unwrap(), mm.create_memory_file(4).unwrap()];
        mm.file(others[1]).watch_writes().unwrap();
        mm.space(copy).map(pages(AT + 8, 4), shared(others[0]), Prot::ReadWrite).unwrap();
        mm.space(copy).map(pages(AT + 16, 4), shared(others[1]), Prot::ReadWrite).unwrap();
        mm.platform().on(1, || {
            assert_eq!(mm.platform().read(mm, copy, AT), Ok(AT));
            [AT + 8, AT + 16].into_iter().for_each(|page| mm.platform().write(mm, copy, page, 1).unwrap());
        });
        for without in [Prot::Read, Prot::None] {
            for (id, page, at_once) in
                [(id, AT, true), (copy, AT, false), (copy, AT + 8, false), (copy, AT + 16, false)]
            {
                let may_write = || mm.space(id).lookup(PageNumber(page)).unwrap().permits(UserAccess::Write);
                mm.space(id).protect(pages(page, 4), without).unwrap();
                assert!(!may_write());
                mm.space(id).protect(pages(page, 4), Prot::ReadWrite).unwrap();
                assert_eq!(may_write(), at_once, "{without:?}, {page:#x}");
            }
        }
        assert_eq!((seen(mm, 0, id, AT + 1), seen(mm, 1, copy, AT + 1)), (Ok(AT + 1), Ok(AT + 1)));
        [AT + 8, AT + 16].into_iter().for_each(|page| mm.space(copy).unmap(pages(page, 4)).unwrap());
        others.into_iter().for_each(|file| mm.file(file).destroy().unwrap());
        end(mm, &[id, copy], &[file]);
    });
}

/// A page is on its way to swap when its right to be written comes back: what is written then is not lost.
#[test]
fn rights_that_come_back_while_a_page_leaves_wait_until_it_is_out() {
    for policy in ["linux", "vanilla", "quiet"] {
        let cases = at_every_touch(&setup(2), &swapping(policy), None, |mm, place| {
            let (id, file) = written(mm, 512, 2);
            mm.space(id).protect(pages(AT, 2), Prot::Read).unwrap();
            mm.drain_lru_batch();
            let held = take_free(mm);
            let used = race(
                mm,
                every_third(place),
                || reclaim(mm),
                || {
                    mm.space(id).switch_to().unwrap();
                    mm.space(id).protect(pages(AT, 2), Prot::ReadWrite).unwrap();
                    let at_once = mm.space(id).lookup(PageNumber(AT)).unwrap().permits(UserAccess::Write);
                    mm.platform().write(mm, id, AT, 7).unwrap();
                    at_once
                },
            );
            give_back(mm, held);
            squeeze(mm);
            assert_eq!((seen(mm, 1, id, AT), seen(mm, 0, id, AT + 1)), (Ok(7), Ok(AT + 1)));
            end(mm, &[id], &[file]);
            used
        });
        assert!(cases.count(|&at_once| at_once) > 0 && cases.count(|&at_once| !at_once) > 0, "{policy}");
    }
}

/// Reclaim has a slot for a page when somebody uses it: the page stays where it is or comes back, and no slot is lost.
fn used_while_taken(policy: &str, is_shared: bool) {
    let cases = at_every_touch(&setup(2), &swapping(policy), None, |mm, place| {
        let (id, files) = if is_shared {
            let (id, file) = written(mm, 512, 2);
            (id, vec![file])
        } else {
            (machine::swapping::written(mm, 512, 2), vec![])
        };
        mm.platform().on(1, || mm.space(id).switch_to().unwrap());
        mm.drain_lru_batch();
        let held = take_free(mm);
        let read = race(mm, every_third(place), || reclaim(mm), || mm.platform().read(mm, id, AT));
        assert_eq!(read, Ok(AT));
        give_back(mm, held);
        sound(mm);
        let out = used(mm);
        assert_eq!((seen(mm, 1, id, AT), seen(mm, 1, id, AT + 1)), (Ok(AT), Ok(AT + 1)));
        end(mm, &[id], &files);
        out
    });
    assert!(!is_shared || cases.count(|&out| out < 2) > 0, "some of them stay");
}

parts!(
    a_slot_of_a_page_that_is_used_meanwhile_is_free_again,
    |part, parts| {
        let (policy, is_shared) = (["linux", "quiet"][part % 2], part / 2 % 2 == 0);
        at_places((part / 4, parts / 4), || used_while_taken(policy, is_shared));
    },
    [
        p0 p1 p2 p3 p4 p5 p6 p7 p8 p9 p10 p11
    ]
);

/// Something done with a file.
type Done = fn(&Mm<'_>, FileId);

/// What passes thousands of pages that are in swap holds the file's lock for some of them, and lets others run in between; and what lies behind them is
/// found all the same.
#[test]
fn a_file_that_is_all_in_swap_is_passed_in_parts() {
    const MANY: u64 = 6000;
    // What it does with the file, and whether that is gone then. A second device has no page of it.
    let works: [(&str, Done); 5] = [
        ("another device goes", |mm, _| mm.swap().off(DEVICE + 1).unwrap()),
        ("it becomes short", |mm, file| mm.file(file).set_size(PAGE_SIZE).unwrap()),
        ("a hole", |mm, file| mm.file(file).punch_hole(0, MANY * PAGE_SIZE).unwrap()),
        ("it goes out of memory", |mm, file| _ = mm.file(file).evict(0, MANY + 40).unwrap()),
        ("it ends", |mm, file| mm.file(file).destroy().unwrap()),
    ];
    for (what, work) in works {
        for gives_way in [true, false] {
            let config =
                Config { resched_after: if gives_way { 1024 } else { u32::MAX }, ..swapping("linux") };
            let longest = at(&setup(1), &config, None, |mm| {
                mm.swap().on(DEVICE, 8192, 0).unwrap();
                let file = mm.create_memory_file(MANY + 40).unwrap();
                (0..MANY).for_each(|page| _ = copy(mm, file, page, page).unwrap());
                squeeze(mm);
                assert_eq!(in_swap(mm, file), MANY);
                mm.swap().on(DEVICE + 1, 512, 0).unwrap();
                // Some that are in memory, behind all those.
                (MANY..MANY + 40).for_each(|page| _ = copy(mm, file, page, page).unwrap());
                let longest = mm.platform().longest_stretch(|| work(mm, file));
                sound(mm);
                longest
            });
            assert_eq!(longest < 8000, gives_way, "{what}: {longest}");
        }
    }
}

#[test]
fn what_is_back_is_dirty_or_is_lost_the_next_time() {
    for broken in [None, Some(Rule::BackIsDirty)] {
        let right = at(&setup(1), &swapping("linux"), broken, |mm| {
            let (id, _) = written(mm, 512, 4);
            let mut right = true;
            for _ in 0..2 {
                squeeze(mm);
                right &= (AT..AT + 4).all(|page| seen(mm, 0, id, page) == Ok(page));
            }
            right
        });
        assert_eq!(right, broken.is_none());
    }
}

#[test]
fn a_page_that_nobody_has_written_to_needs_no_slot_and_no_device_keeps_the_file() {
    at(&setup(1), &swapping("linux"), None, |mm| {
        let host = mm.platform();
        mm.swap().on(DEVICE, 512, 0).unwrap();
        let file = mm.create_memory_file(8).unwrap();
        let id = shown_on(mm, 0, shared(file), 8);
        host.fail_discards.set(true);
        host.refuse_writes.set(Some(|_, _| Some(DeviceError::Failed)));
        assert!((AT..AT + 8).all(|page| seen(mm, 0, id, page) == Ok(0)));
        assert_eq!(mm.file(file).cached_pages(), Ok(8));
        squeeze(mm);
        assert_eq!((mm.file(file).cached_pages(), in_swap(mm, file), used(mm)), (Ok(0), 0, 0));
        // A device would have to hear of these.
        mm.file(file).set_size(20 * PAGE_SIZE).unwrap();
        mm.file(file).punch_hole(PAGE_SIZE, PAGE_SIZE).unwrap();
        copy(mm, file, 12, 5).unwrap();
        assert_eq!(mm.file(file).write_back(), Ok(0));
        assert_eq!((host.read_commands.get(), host.on_disk(file, 12)), (0, None));
        assert!(!host.log.take().iter().any(|what| matches!(what, Happened::DiskWrite(Store::File(_), _))));
        host.refuse_writes.set(None);
        end(mm, &[id], &[file]);
    });
}

#[test]
fn what_is_in_swap_is_read_and_written_by_copy() {
    at(&setup(1), &swapping("linux"), None, |mm| {
        let (id, file) = written(mm, 512, 16);
        squeeze(mm);
        assert!((0..8).all(|page| copied(mm, file, page) == Ok(AT + page)));
        assert_eq!(in_swap(mm, file), 8);
        // A part of one page, and all of another.
        assert_eq!(mm.file(file).write(8 * PAGE_SIZE + 8, &7_u64.to_ne_bytes()), Ok(8));
        let whole = [3; PAGE_SIZE as usize];
        assert_eq!(mm.file(file).write(9 * PAGE_SIZE, &whole), Ok(whole.len()));
        squeeze(mm);
        assert_eq!(copied(mm, file, 8), Ok(AT + 8));
        let mut second = [0; 8];
        mm.file(file).read(8 * PAGE_SIZE + 8, &mut second).unwrap();
        assert_eq!(u64::from_ne_bytes(second), 7);
        assert_eq!(seen(mm, 0, id, AT + 9), Ok(u64::from_ne_bytes([3; 8])));
        assert!((10..16).all(|page| copied(mm, file, page) == Ok(AT + page)));
        end(mm, &[id], &[file]);
    });
}

#[test]
fn what_is_cut_off_in_swap_gives_its_slots_back_and_is_zeros_later() {
    at(&setup(1), &swapping("linux"), None, |mm| {
        let (id, file) = written(mm, 512, 16);
        squeeze(mm);
        mm.file(file).set_size(8 * PAGE_SIZE + 4).unwrap();
        // The page in which it ends came back.
        assert_eq!((in_swap(mm, file), used(mm)), (8, 8));
        mm.file(file).set_size(16 * PAGE_SIZE).unwrap();
        assert_eq!(copied(mm, file, 8), Ok((AT + 8) & 0xffff_ffff));
        assert_eq!(seen(mm, 0, id, AT + 9), Ok(0));
        mm.file(file).punch_hole(PAGE_SIZE + 8, 2 * PAGE_SIZE).unwrap();
        assert_eq!((in_swap(mm, file), used(mm)), (5, 5));
        let seen_now = [0, 1, 2, 3].map(|page| seen(mm, 0, id, AT + page));
        assert_eq!(seen_now, [Ok(AT), Ok(AT + 1), Ok(0), Ok(0)], "bytes 0 to 7 of page 3 are in the hole");
        squeeze(mm);
        sound(mm);
        end(mm, &[id], &[file]);
    });
}

#[test]
fn a_file_that_ends_in_swap_leaves_nothing() {
    at(&setup(1), &swapping("linux"), None, |mm| {
        let (id, file) = written(mm, 512, 16);
        squeeze(mm);
        assert_eq!(used(mm), 16);
        end(mm, &[id], &[file]);
        assert_eq!(mm.file(file).swapped_pages(), Err(Error::NoSuchFile));
        // One in its place has none of it.
        let next = mm.create_memory_file(16).unwrap();
        assert_eq!((in_swap(mm, next), copied(mm, next, 3)), (0, Ok(0)));
        end(mm, &[], &[next]);
    });
}

#[test]
fn a_memory_file_has_room_for_a_slot_beside_each_pages_number() {
    at(&setup(1), &swapping("linux"), None, |mm| {
        let most = 1 << 36;
        assert_eq!(mm.create_memory_file(most + 1), Err(Error::BadRange));
        assert_eq!(mm.create_memory_file(0), Err(Error::BadRange));
        mm.swap().on(DEVICE, 512, 0).unwrap();
        let file = mm.create_memory_file(most).unwrap();
        copy(mm, file, most - 1, 9).unwrap();
        assert_eq!(mm.file(file).set_size(most * PAGE_SIZE), Ok(()));
        assert_eq!(mm.file(file).set_size(most * PAGE_SIZE + 1), Err(Error::BadRange));
        assert_eq!(mm.file(file).write(most * PAGE_SIZE, b"x"), Err(Error::BadRange));
        squeeze(mm);
        assert_eq!((in_swap(mm, file), copied(mm, file, most - 1)), (1, Ok(9)));
        let kept = mm.create_file(most + 1).unwrap();
        end(mm, &[], &[file, kept]);
    });
}

#[test]
fn without_swap_or_where_it_is_full_pages_stay() {
    for (config, slots) in [(bare("linux"), 0), (swapping("linux"), 0), (swapping("linux"), 512)] {
        at(&Setup { frames: 1024, ..setup(1) }, &config, None, |mm| {
            let count = 600;
            if slots > 0 {
                mm.swap().on(DEVICE, slots, 0).unwrap();
            }
            let file = mm.create_memory_file(count).unwrap();
            let id = shown_on(mm, 0, shared(file), count);
            (AT..AT + count).for_each(|page| mm.platform().write(mm, id, page, page).unwrap());
            squeeze(mm);
            assert_eq!((in_swap(mm, file), mm.file(file).cached_pages()), (slots, Ok(count - slots)));
            sound(mm);
            assert!((AT..AT + count).all(|page| seen(mm, 0, id, page) == Ok(page)));
            end(mm, &[id], &[file]);
        });
    }
}

#[test]
fn a_page_that_its_device_does_not_take_stays() {
    for broken in [None, Some(Rule::KeepWhatFailed)] {
        let right = at(&setup(1), &swapping("linux"), broken, |mm| {
            let (id, file) = written(mm, 512, 16);
            mm.platform().fail_writes.set(true);
            squeeze(mm);
            mm.platform().fail_writes.set(false);
            if broken.is_none() {
                // In the swap cache, where it is tried again.
                sound(mm);
                let (usage, there) = (mm.swap().usage(), &mut [0; 16]);
                assert_eq!(usage.used, usage.cached);
                assert_eq!(mm.space(id).residency(pages(AT, 16), there), Ok(16));
                assert_eq!(mm.file(file).cached_pages().unwrap() + in_swap(mm, file), 16);
            }
            let right = (AT..AT + 16).all(|page| seen(mm, 0, id, page) == Ok(page));
            squeeze(mm);
            if broken.is_none() {
                assert_eq!((in_swap(mm, file), mm.swap().usage().cached), (16, 0));
                end(mm, &[id], &[file]);
            }
            right
        });
        assert_eq!(right, broken.is_none());
    }
}

#[test]
fn a_page_that_cannot_be_read_is_an_error_of_who_wants_it() {
    at(&setup(1), &swapping("linux"), None, |mm| {
        let host = mm.platform();
        let (id, file) = written(mm, 512, 16);
        squeeze(mm);
        host.fail_reads.set(true);
        assert_eq!(seen(mm, 0, id, AT + 3), Err(Error::SwapDevice(PageNumber(AT + 3))));
        assert_eq!(copied(mm, file, 3), Err(Error::Device));
        assert_eq!(copy(mm, file, 3, 1), Err(Error::Device));
        assert_eq!(mm.file(file).set_size(3 * PAGE_SIZE + 8), Err(Error::Device));
        assert_eq!(mm.file(file).read_ahead(0, 16), Ok(0));
        assert_eq!(mm.swap().off(DEVICE), Err(Error::Device));
        assert_eq!((in_swap(mm, file), used(mm)), (16, 16));
        sound(mm);
        // What is cut off need not be read.
        mm.file(file).punch_hole(3 * PAGE_SIZE, PAGE_SIZE).unwrap();
        assert_eq!(seen(mm, 0, id, AT + 3), Ok(0));
        host.fail_reads.set(false);
        assert!((AT..AT + 3).chain(AT + 4..AT + 16).all(|page| seen(mm, 0, id, page) == Ok(page)));
        // The device is gone for good: nothing goes there.
        squeeze(mm);
        assert_eq!(in_swap(mm, file), 0);
        end(mm, &[id], &[file]);
    });
}

/// What its device did not take is in the swap cache. When that device cannot go off it stays there, and is not lost by what the device says that it takes.
#[test]
fn what_is_in_memory_of_a_device_that_could_not_go_off_stays() {
    at(&setup(1), &swapping("linux"), None, |mm| {
        let host = mm.platform();
        let (id, file) = written(mm, 512, 32);
        mm.space(id).unmap(pages(AT, 32)).unwrap();
        squeeze(mm);
        (16..32).for_each(|page| _ = copy(mm, file, page, page).unwrap());
        host.fail_writes.set(true);
        squeeze(mm);
        host.fail_writes.set(false);
        assert_eq!((in_swap(mm, file), mm.swap().usage().cached), (32, 16));
        host.fail_reads.set(true);
        assert_eq!(mm.swap().off(DEVICE), Err(Error::Device));
        host.forget();
        squeeze(mm);
        assert!(!host.log.take().iter().any(|what| matches!(what, Happened::DiskWrite(..))));
        assert!((16..32).all(|page| copied(mm, file, page) == Ok(page)));
        host.fail_reads.set(false);
        end(mm, &[id], &[file]);
    });
}

#[test]
fn a_device_that_goes_off_gives_everything_back() {
    at(&setup(1), &swapping("linux"), None, |mm| {
        let (id, file) = written(mm, 512, 60);
        squeeze(mm);
        // Where memory does not suffice it says so, and can be asked again.
        mm.space(id).unmap(pages(AT, 60)).unwrap();
        mm.unload();
        let held = take_free(mm);
        assert_eq!(mm.swap().off(DEVICE), Err(Error::OutOfMemory));
        give_back(mm, held);
        sound(mm);
        assert_eq!(mm.swap().off(DEVICE), Ok(()));
        assert_eq!((in_swap(mm, file), mm.file(file).cached_pages()), (0, Ok(60)));
        assert!((0..60).all(|page| copied(mm, file, page) == Ok(AT + page)));
        end(mm, &[id], &[file]);
    });
}

#[test]
fn programs_advice_and_what_they_are_told() {
    at(&setup(2), &swapping("linux"), None, |mm| {
        let (id, file) = written(mm, 512, 16);
        let range = pages(AT, 16);
        let residency = |mm: &Mm<'_>| mm.space(id).residency(range, &mut [0; 16]).unwrap();
        mm.space(id).advise(range, Advice::PageOut).unwrap();
        assert_eq!((in_swap(mm, file), residency(mm)), (16, 0));
        // Shared memory in swap is no space's own: it is the file's (Linux: `VmSwap` has none of it).
        assert_eq!(mm.space(id).usage().unwrap().swapped, 0);
        mm.space(id).advise(range, Advice::WillNeed).unwrap();
        assert_eq!((in_swap(mm, file), residency(mm)), (0, 16));
        // No entry leads to them, and so they are not the program's to give up.
        mm.space(id).advise(range, Advice::PageOut).unwrap();
        assert_eq!(in_swap(mm, file), 0);
        squeeze(mm);
        assert_eq!(mm.file(file).read_ahead(4, 4), Ok(4));
        assert_eq!(in_swap(mm, file), 12);
        // A fault brings what lies beside it on the device to the swap cache, where it is in memory.
        mm.space(id).populate(range, UserAccess::Read).unwrap();
        assert_eq!((in_swap(mm, file), residency(mm)), (0, 16));
        // What others have too stays.
        let b = shown_on(mm, 1, shared(file), 16);
        assert_eq!(seen(mm, 1, b, AT), Ok(AT));
        mm.space(id).advise(range, Advice::PageOut).unwrap();
        assert_eq!(in_swap(mm, file), 15);
        end(mm, &[id, b], &[file]);
    });
}

#[test]
fn a_pinned_page_stays_and_one_in_swap_is_brought_for_a_pin() {
    at(&setup(1), &swapping("linux"), None, |mm| {
        let (id, file) = written(mm, 512, 4);
        squeeze(mm);
        let pins = mm.space(id).pin(pages(AT, 1), UserAccess::Write, Term::Short).unwrap();
        (AT + 1..AT + 4).for_each(|page| assert_eq!(seen(mm, 0, id, page), Ok(page)));
        squeeze(mm);
        assert_eq!(in_swap(mm, file), 3, "not the one that is pinned");
        mm.platform().write(mm, id, AT, 77).unwrap();
        mm.unpin(pins);
        squeeze(mm);
        assert_eq!((in_swap(mm, file), seen(mm, 0, id, AT)), (4, Ok(77)));
        end(mm, &[id], &[file]);
    });
}

#[test]
fn private_copies_and_children_have_their_own() {
    at(&setup(2), &swapping("linux"), None, |mm| {
        let (a, file) = written(mm, 512, 8);
        let b = shown_on(mm, 1, private(file), 8);
        squeeze(mm);
        mm.platform().on(1, || mm.platform().write(mm, b, AT, 1).unwrap());
        let child = mm.space(a).fork().unwrap();
        squeeze(mm);
        assert_eq!((in_swap(mm, file), used(mm)), (8, 9));
        mm.platform().on(1, || mm.space(child).switch_to().unwrap());
        mm.platform().on(1, || mm.platform().write(mm, child, AT + 1, 5).unwrap());
        assert_eq!((seen(mm, 0, a, AT + 1), seen(mm, 0, a, AT)), (Ok(5), Ok(AT)));
        mm.platform().on(1, || mm.space(b).switch_to().unwrap());
        assert_eq!((seen(mm, 1, b, AT), seen(mm, 1, b, AT + 1)), (Ok(1), Ok(5)));
        end(mm, &[a, b, child], &[file]);
    });
}

#[test]
fn a_batch_of_shared_pages_goes_out_with_one_flush() {
    at(&setup(3), &Config { scan_batch: 32, ..swapping("linux+aging=no-flush") }, None, |mm| {
        let host = mm.platform();
        let (id, file) = written(mm, 512, 32);
        host.on(1, || mm.space(id).switch_to().unwrap());
        (AT..AT + 32).for_each(|page| assert_eq!(seen(mm, 1, id, page), Ok(page)));
        mm.space(id).advise(pages(AT, 32), Advice::Cold).unwrap();
        host.forget();
        mm.space(id).advise(pages(AT, 32), Advice::PageOut).unwrap();
        assert_eq!((in_swap(mm, file), host.interrupts_to(1), host.interrupts_to(2)), (32, 1, 0));
        end(mm, &[id], &[file]);
    });
}
