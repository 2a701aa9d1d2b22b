//! Memory files beside other things: limits of groups and of dirty pages, memory that goes offline, read-ahead, and a file system that refuses writes.

use crate::machine;
use crate::memory_files::{copied, copy, end, in_swap, seen, setup, shown_on, written};

use machine::race::at;
use machine::showing::shared;
use machine::swapping::{AT, DEVICE, sound, squeeze, swapping, take_free};
use machine::{Setup, give_back, pages};
use quietmm::addr::PAGE_SIZE;
use quietmm::platform::DeviceError;
use quietmm::{Advice, Config, Counter, Error, PageNumber};

#[test]
fn what_is_out_is_charged_to_nobody_and_what_comes_back_to_who_wants_it() {
    at(&setup(1), &Config { groups: 2, ..swapping("linux") }, None, |mm| {
        let (id, file) = written(mm, 512, 32);
        let groups = [0; 2].map(|_| mm.create_group(1000).unwrap());
        mm.space(id).set_group(Some(groups[0])).unwrap();
        let charged = |group| {
            let usage = mm.group(group).usage().unwrap();
            usage.charged - usage.stocked
        };
        squeeze(mm);
        let before = charged(groups[0]);
        assert!((AT..AT + 16).all(|page| seen(mm, 0, id, page) == Ok(page)));
        assert!(charged(groups[0]) >= before + 16);
        squeeze(mm);
        // But for tables, which are looked for now and then.
        assert_eq!(in_swap(mm, file), 32);
        assert!((before..before + 4).contains(&charged(groups[0])), "{before}, {}", charged(groups[0]));
        let before = charged(groups[0]);
        // Its limit holds for them.
        mm.group(groups[0]).set_limit(before + 8).unwrap();
        assert!((AT..AT + 32).all(|page| seen(mm, 0, id, page) == Ok(page)));
        assert!(charged(groups[0]) <= before + 8);
        assert!(in_swap(mm, file) >= 24);
        // But not for what a device that goes off gives back: that goes to the group of whoever has asked.
        mm.swap().off(DEVICE).unwrap();
        assert_eq!((in_swap(mm, file), mm.file(file).cached_pages()), (0, Ok(32)));
        assert!(charged(groups[0]) >= before + 32);
        end(mm, &[id], &[file]);
        groups.into_iter().for_each(|group| mm.group(group).destroy().unwrap());
    });
}

#[test]
fn memory_that_goes_offline_has_its_shared_pages_move() {
    let setup = Setup { frames: 4096, ..setup(1) };
    at(&setup, &swapping("linux"), None, |mm| {
        let (id, file) = written(mm, 2048, 1500);
        mm.drain_lru_batch();
        // Tables do not move, nor does the core's bookkeeping.
        for block in mm.frames().blocks() {
            let Ok(leaving) = mm.frames().begin_offline(block) else { continue };
            match mm.frames().finish_offline(leaving) {
                Ok(gone) => mm.frames().bring_online(gone),
                Err(left) => {
                    assert_ne!(left.kind, quietmm::Kind::File);
                    mm.frames().cancel_offline(left.leaving);
                }
            }
        }
        assert_eq!((in_swap(mm, file), mm.file(file).cached_pages()), (0, Ok(1500)));
        assert!(mm.counter(Counter::PgMigrated) > 500);
        assert!((AT..AT + 1500).all(|page| seen(mm, 0, id, page) == Ok(page)));
        end(mm, &[id], &[file]);
    });
}

#[test]
fn dirty_pages_of_memory_files_count_as_none_that_a_device_is_to_get() {
    let config = Config { dirty_limit: 8, dirty_background: 4, dirty_expire: 1000, ..swapping("linux") };
    at(&setup(1), &config, None, |mm| {
        let (id, file) = written(mm, 512, 32);
        assert_eq!((mm.dirty_pages(), mm.flusher()), (0, 0));
        (0..32).for_each(|page| assert_eq!(copy(mm, file, page, page), Ok(8)));
        squeeze(mm);
        assert_eq!((0..32).find(|&page| copied(mm, file, page) != Ok(page)), None);
        assert_eq!((mm.dirty_pages(), mm.platform().mkwrites.borrow().len()), (0, 0));
        sound(mm);
        end(mm, &[id], &[file]);
    });
}

#[test]
fn nothing_is_read_ahead_of_a_memory_file_but_from_swap() {
    at(&setup(1), &Config { read_ahead: 8, ..swapping("linux") }, None, |mm| {
        mm.swap().on(DEVICE, 512, 0).unwrap();
        let file = mm.create_memory_file(64).unwrap();
        let id = shown_on(mm, 0, shared(file), 64);
        assert!((0..4).all(|page| seen(mm, 0, id, AT + page) == Ok(0)));
        let open = quietmm::ReadAhead::new();
        for page in 4..8 {
            assert_eq!(mm.file(file).read_with(&open, page * PAGE_SIZE, &mut [0; 8]), Ok(8));
        }
        assert_eq!(mm.file(file).cached_pages(), Ok(8), "holes that nobody has touched take no memory");
        assert_eq!(mm.file(file).read_ahead(0, 64), Ok(0));
        (0..32).for_each(|page| assert_eq!(copy(mm, file, page, page), Ok(8)));
        squeeze(mm);
        assert_eq!((0..32).find(|&page| seen(mm, 0, id, AT + page) != Ok(page)), None);
        assert!(mm.platform().read_commands.get() < 32, "they lie beside each other on the device");
        end(mm, &[id], &[file]);
    });
}

/// What nobody has asked for has nobody reclaim for it, and no program end; and one page that cannot be read keeps no others away.
#[test]
fn reading_ahead_takes_what_is_free_and_what_can_be_read() {
    at(&setup(1), &Config { groups: 1, ..swapping("linux") }, None, |mm| {
        let host = mm.platform();
        let (id, file) = written(mm, 512, 32);
        squeeze(mm);
        let (held, asked) = (take_free(mm), host.shortages.borrow().len());
        let stalls = mm.counter(Counter::AllocStall);
        assert_eq!(mm.file(file).read_ahead(0, 32), Ok(0));
        mm.space(id).advise(pages(AT, 32), Advice::WillNeed).unwrap();
        assert_eq!((host.shortages.borrow().len(), mm.counter(Counter::AllocStall)), (asked, stalls));
        give_back(mm, held);
        // Nor is a group's limit a reason to.
        let group = mm.create_group(1).unwrap();
        mm.space(id).set_group(Some(group)).unwrap();
        let came = mm.file(file).read_ahead(0, 32).unwrap();
        assert!(came <= 1, "{came}");
        assert_eq!(mm.group(group).usage().unwrap().hits, 0);
        mm.space(id).set_group(None).unwrap();
        squeeze(mm);
        host.refuse_reads.set(Some(|_, block| (block == 5).then_some(DeviceError::Failed)));
        assert_eq!(mm.file(file).read_ahead(0, 32), Ok(31));
        assert_eq!(in_swap(mm, file), 1);
        host.refuse_reads.set(None);
        assert!((AT..AT + 32).all(|page| seen(mm, 0, id, page) == Ok(page)));
        end(mm, &[id], &[file]);
        mm.group(group).destroy().unwrap();
    });
}

/// The same of the few pages that are in memory between many that are not.
#[test]
fn pages_that_lie_far_apart_are_found_in_parts_too() {
    const MANY: u64 = 12_000;
    for gives_way in [true, false] {
        let config = Config { resched_after: if gives_way { 1024 } else { u32::MAX }, ..swapping("linux") };
        let longest = at(&setup(1), &config, None, |mm| {
            mm.swap().on(DEVICE, 16_384, 0).unwrap();
            let file = mm.create_memory_file(MANY).unwrap();
            (0..MANY).for_each(|page| _ = copy(mm, file, page, page).unwrap());
            squeeze(mm);
            assert!((0..MANY).step_by(400).all(|page| copied(mm, file, page) == Ok(page)));
            assert_eq!(in_swap(mm, file), MANY - MANY.div_ceil(400));
            let longest = mm.platform().longest_stretch(|| mm.file(file).set_size(PAGE_SIZE).unwrap());
            end(mm, &[], &[file]);
            longest
        });
        assert_eq!(longest < 8000, gives_way, "{longest}");
    }
}

#[test]
fn a_file_system_in_memory_may_refuse_what_programs_would_write() {
    at(&setup(1), &swapping("linux"), None, |mm| {
        let host = mm.platform();
        mm.swap().on(DEVICE, 512, 0).unwrap();
        let file = mm.create_memory_file(4).unwrap();
        mm.file(file).watch_writes().unwrap();
        let id = shown_on(mm, 0, shared(file), 4);
        host.refuse_mkwrite.set(true);
        assert_eq!(host.write(mm, id, AT, 1), Err(Error::WriteRefused(PageNumber(AT))));
        host.refuse_mkwrite.set(false);
        for value in 1..4 {
            host.write(mm, id, AT, value).unwrap();
            squeeze(mm);
            assert_eq!((in_swap(mm, file), seen(mm, 0, id, AT)), (1, Ok(value)));
        }
        // Once: it has been dirty ever since.
        assert_eq!(host.mkwrites.borrow().len(), 2);
        end(mm, &[id], &[file]);
    });
}
