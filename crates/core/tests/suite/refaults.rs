//! Pages that come back after reclaim: whether it was soon, and what that says; and tasks that wait for devices.

use crate::machine;

use std::cell::Cell;

use machine::swapping::{AT, DEVICE, anonymous, end, is_out, read, sound, squeeze, swapping, take_free};
use machine::{Host, Mm, Setup, give_back, pages};
use quietmm::addr::PAGE_SIZE;
use quietmm::{AllocFrom, Backing, Config, Counter, FileId, PageNumber, Prot, SpaceId};

fn config(shadows: bool) -> Config {
    Config { shadows, ..swapping("linux") }
}

fn host() -> Host {
    Host::new(Setup { frames: 2048, ..Setup::default() })
}

/// Refaults, and those that went to the active list.
fn counts(mm: &Mm<'_>) -> (u64, u64) {
    (mm.counter(Counter::WorkingsetRefault), mm.counter(Counter::WorkingsetActivate))
}

/// A space with `hot` pages that reclaim has put on the active list: each was used again after it had been looked at. None
/// goes out, since another space, which this gives too, has all slots of the one device.
fn with_active(mm: &Mm<'_>, hot: u64) -> [SpaceId; 2] {
    mm.swap().on(DEVICE, 512, 0).unwrap();
    let filler = anonymous(mm, 512);
    squeeze(mm);
    let id = anonymous(mm, hot.max(1));
    for _ in 0..3 * hot.min(1) {
        squeeze(mm);
        use_all(mm, id, hot);
    }
    [id, filler]
}

/// So that each of its entries is marked as used.
fn use_all(mm: &Mm<'_>, id: SpaceId, hot: u64) {
    mm.space(id).flush().unwrap();
    (AT..AT + hot).for_each(|page| assert_eq!(read(mm, id, page), Ok(page)));
}

/// A file of which `count` pages are read one after the other.
fn stream(mm: &Mm<'_>, count: u64) -> (SpaceId, FileId) {
    let (id, file) = (mm.create_space().unwrap(), mm.create_file(count).unwrap());
    mm.space(id).map(pages(AT, count), Backing::File { file, offset: 0 }, Prot::Read).unwrap();
    (id, file)
}

#[test]
fn without_shadows_nothing_is_remembered() {
    let host = host();
    host.run(config(false), |mm| {
        mm.swap().on(DEVICE, 512, 0).unwrap();
        let id = anonymous(mm, 64);
        squeeze(mm);
        assert!((AT..AT + 64).all(|page| read(mm, id, page) == Ok(page)));
        assert_eq!(counts(mm), (0, 0));
        end(mm, &[id], &[DEVICE]);
    });
}

#[test]
fn a_page_that_was_never_reclaimed_is_no_refault() {
    let host = host();
    host.run(config(true), |mm| {
        let (id, _) = stream(mm, 256);
        (AT..AT + 256).for_each(|page| assert_eq!(read(mm, id, page), Ok(0)));
        assert_eq!(counts(mm), (0, 0));
    });
}

/// There are `hot` active pages; a page of a file goes, then `between` others come and go, and then it is wanted again.
fn comes_back(hot: u64, between: u64) -> (u64, u64) {
    comes_back_in(hot, between, 0)
}

/// The same where the file's pages are charged to another group.
fn comes_back_in(hot: u64, between: u64, groups: u32) -> (u64, u64) {
    let host = host();
    host.run(Config { groups, ..config(true) }, |mm| {
        let (keep, _) = stream(mm, hot.max(1));
        let (id, _) = stream(mm, 4096);
        if groups > 0 {
            let group = mm.create_group(4096).unwrap();
            mm.space(id).set_group(Some(group)).unwrap();
        }
        // What is hot is in use all the time.
        let next = Cell::new(AT);
        let read_on = || {
            assert_eq!(read(mm, id, next.get()), Ok(0));
            next.set(next.get() + 1);
            mm.space(keep).flush().unwrap();
            (AT..AT + hot).for_each(|page| assert_eq!(read(mm, keep, page), Ok(0)));
        };
        read_on();
        // Memory is short from here on: each page that comes takes the place of another.
        let mut all = take_free(mm);
        give_back(mm, all.split_off(all.len() - 200));
        (0..800).for_each(|_| read_on());
        let page = next.get();
        read_on();
        while mm.space(id).lookup(PageNumber(page)).unwrap().is_present() {
            read_on();
        }
        (0..between).for_each(|_| read_on());
        let before = counts(mm);
        assert_eq!(read(mm, id, page), Ok(0));
        let now = counts(mm);
        let lists = mm.frames().lru_pages();
        assert!(groups > 0 || (hot..hot + 2).contains(&lists.active_file), "{lists:?}");
        assert!(lists.active_file >= hot / 2 && lists.inactive_file > 0, "{lists:?}");
        give_back(mm, all);
        sound(mm);
        end(mm, &[keep, id], &[]);
        (now.0 - before.0, now.1 - before.1)
    })
}

#[test]
fn a_page_of_a_file_that_comes_back_soon_is_activated_and_one_that_comes_late_is_not() {
    assert_eq!(comes_back(100, 10), (1, 1), "ten pages more of memory would have kept it");
    assert_eq!(comes_back(100, 600), (1, 0));
    assert_eq!(comes_back(0, 10), (1, 0), "nothing is active: there is nothing to compete with");
}

/// A page that is written as a whole is not read, and has come back all the same.
#[test]
fn a_page_that_went_and_is_written_whole_has_come_back() {
    for part in [PAGE_SIZE as usize, 8] {
        host().run(config(true), |mm| {
            let file = mm.create_file(4).unwrap();
            let content = vec![1; part];
            assert_eq!(mm.file(file).write(PAGE_SIZE, &content), Ok(part));
            mm.file(file).write_back().unwrap();
            assert_eq!(counts(mm).0, 0);
            squeeze(mm);
            assert_eq!(mm.file(file).cached_pages(), Ok(0));
            assert_eq!(mm.file(file).write(PAGE_SIZE, &content), Ok(part));
            assert_eq!(counts(mm).0, 1, "{part} bytes");
            sound(mm);
        });
    }
}

#[test]
fn a_page_of_a_group_competes_with_what_is_active_of_that_group() {
    assert_eq!(comes_back_in(100, 10, 1), (1, 0), "what is active is of no group, or of another");
}

#[test]
fn a_page_from_swap_that_comes_back_soon_is_activated() {
    for (hot, activated) in [(100, 1), (0, 0)] {
        let host = host();
        host.run(config(true), |mm| {
            let keep = with_active(mm, hot);
            mm.swap().on(2, 512, 5).unwrap();
            let id = anonymous(mm, 1);
            let all = take_free(mm);
            for _ in 0..500 {
                mm.frames().free(mm.frames().alloc(0, AllocFrom::HERE).unwrap());
                if is_out(mm, id, AT) {
                    break;
                }
                use_all(mm, keep[0], hot);
            }
            give_back(mm, all);
            assert!(is_out(mm, id, AT));
            let before = counts(mm);
            assert_eq!(read(mm, id, AT), Ok(AT));
            let now = counts(mm);
            assert_eq!((now.0 - before.0, now.1 - before.1), (1, activated), "{hot} hot pages");
            assert_eq!(mm.frames().lru_pages().active_anon > 0, hot > 0);
            sound(mm);
            end(mm, &[keep[0], keep[1], id], &[DEVICE, 2]);
        });
    }
}

#[test]
fn a_table_that_is_full_forgets_the_oldest() {
    let host = host();
    host.run(config(true), |mm| {
        let (id, _) = stream(mm, 16_384);
        // Eight times as many as the table holds.
        for page in AT..AT + 16_384 {
            assert_eq!(read(mm, id, page), Ok(0));
        }
        squeeze(mm);
        assert!(counts(mm).0 < 16, "one page in 4096 or so is taken for another: {}", counts(mm).0);
        // The latest are known, the first are not.
        let known = |from: u64| {
            let before = counts(mm).0;
            (from..from + 200).for_each(|page| assert_eq!(read(mm, id, page), Ok(0)));
            counts(mm).0 - before
        };
        let (first, last) = (known(AT), known(AT + 16_384 - 200));
        assert!(first <= 2 && last > 190, "{first} of the first, {last} of the last");
        sound(mm);
    });
}

/// A task that reclaims while CPU 1 has pages on their way to the device: whether it waited, and whether its memory came
/// after the device was done.
fn saturated(limit: u32) -> (u64, bool) {
    let host = Host::new(Setup { cpus: 2, frames: 768, ..Setup::default() });
    host.run(Config { pageout_limit: limit, ..swapping("linux") }, |mm| {
        mm.swap().on(DEVICE, 512, 0).unwrap();
        let id = anonymous(mm, 16);
        let all = take_free(mm);
        let done = Cell::new(false);
        let first = || {
            mm.frames().free(mm.frames().alloc(0, AllocFrom::HERE).unwrap());
            done.set(true);
        };
        host.place();
        let after = host.aside(1, first, |_| {
            host.on_disk_write.borrow_mut().push_back(Box::new(|mm| mm.platform().stop()));
            assert!(host.resume(), "the device has a page");
            assert!(!done.get());
            mm.frames().free(mm.frames().alloc(0, AllocFrom::HERE).unwrap());
            done.get()
        });
        host.all_placed();
        give_back(mm, all);
        assert!((AT..AT + 16).all(|page| read(mm, id, page) == Ok(page)));
        let waited = mm.counter(Counter::Throttled);
        end(mm, &[id], &[DEVICE]);
        (waited, after)
    })
}

#[test]
fn a_task_that_reclaims_waits_while_its_devices_are_saturated_and_is_woken() {
    assert_eq!(saturated(4), (1, true), "a batch of four is on its way");
    assert_eq!(saturated(1), (1, true));
    assert_eq!(saturated(5), (0, false), "there is room for one more");
}

/// What is remembered of the pages of a file that has ended says nothing of those of the next one, which has its place.
#[test]
fn a_page_of_a_file_that_has_the_place_of_another_is_no_refault() {
    let host = host();
    host.run(config(true), |mm| {
        let (id, file) = stream(mm, 8);
        for (n, refaults) in [(0, 0), (1, 8)] {
            (AT..AT + 8).for_each(|page| assert_eq!(read(mm, id, page), Ok(0)));
            squeeze(mm);
            assert_eq!(counts(mm).0, refaults, "round {n}");
        }
        end(mm, &[id], &[]);
        mm.file(file).destroy().unwrap();
        let (id, next) = stream(mm, 8);
        assert_eq!(next.index(), file.index());
        (AT..AT + 8).for_each(|page| assert_eq!(read(mm, id, page), Ok(0)));
        assert_eq!(counts(mm).0, 8);
        end(mm, &[id], &[]);
    });
}

/// A page that went twice, and was only read ahead in between, has gone once: it comes back once.
#[test]
fn a_page_that_went_twice_comes_back_once() {
    let host = host();
    host.run(config(true), |mm| {
        let (_, file) = stream(mm, 8);
        let goes = || {
            mm.drain_lru_batch();
            squeeze(mm);
            assert_eq!(mm.file(file).cached_pages(), Ok(0));
        };
        for _ in 0..3 {
            assert_eq!(mm.file(file).read_ahead(0, 8), Ok(8));
            goes();
        }
        assert_eq!(counts(mm).0, 0, "nobody wanted any of them");
        let mut into = [0; 8 * PAGE_SIZE as usize];
        assert_eq!(mm.file(file).read(0, &mut into), Ok(into.len()));
        assert_eq!(counts(mm).0, 8);
        // What leaves its cache by itself was not reclaimed.
        mm.drain_lru_batch();
        assert_eq!(mm.file(file).evict(0, 8), Ok(8));
        assert_eq!(mm.file(file).read(0, &mut into), Ok(into.len()));
        assert_eq!(counts(mm).0, 8);
        sound(mm);
    });
}

#[test]
fn the_lists_are_counted_by_sort_and_by_use() {
    let host = host();
    host.run(config(true), |mm| {
        mm.swap().on(DEVICE, 512, 0).unwrap();
        let lists = || {
            mm.drain_lru_batches();
            let all = mm.frames().lru_pages();
            assert_eq!(all.file(), all.inactive_file + all.active_file);
            [all.inactive_anon, all.active_anon, all.inactive_file, all.active_file]
        };
        assert_eq!(lists(), [0; 4]);
        let (reader, _) = stream(mm, 64);
        (AT..AT + 64).for_each(|page| assert_eq!(read(mm, reader, page), Ok(0)));
        assert_eq!(lists(), [0, 0, 64, 0]);
        let id = anonymous(mm, 16);
        assert_eq!(lists(), [16, 0, 64, 0]);
        end(mm, &[id, reader], &[DEVICE]);
        assert_eq!(lists()[..2], [0; 2]);
    });
}
