//! Devices that do not take what is written to them: nothing is lost, and nobody tries for ever.

use crate::machine;

use machine::swapping::{AT, anonymous, end, is_out, read, squeeze, swapping, take_free, write};
use machine::{Happened, Host, Mm, Setup, bare, give_back, pages, settled};
use quietmm::platform::{DeviceError, Store};
use quietmm::{AllocFrom, Backing, Config, Counter, Error, PageNumber, Prot, SpaceId, UserAccess};

fn config() -> Config {
    Config { scan_batch: 32, lru_batch: 14, ..swapping("linux") }
}

fn written_out(mm: &Mm<'_>) -> usize {
    mm.platform().count(|what| matches!(what, Happened::DiskWrite(..)))
}

/// A space with so many pages of its own, each written with its number, and all other memory the test's.
fn full(mm: &Mm<'_>, count: u64) -> (SpaceId, Vec<quietmm::Frames>) {
    let id = anonymous(mm, count);
    mm.space(id).map(pages(AT + count, 8), Backing::Anonymous, Prot::ReadWrite).unwrap();
    mm.drain_lru_batch();
    let held = take_free(mm);
    mm.platform().forget();
    (id, held)
}

/// The same with a device that fails, and has been tried.
fn failing(mm: &Mm<'_>) -> (SpaceId, Vec<quietmm::Frames>) {
    mm.swap().on(7, 1024, 0).unwrap();
    let (id, held) = full(mm, 256);
    mm.platform().fail_writes.set(true);
    (0..4).for_each(|_| assert_eq!(fault(mm, id, AT + 256), Err(Error::OutOfMemory)));
    (id, held)
}

fn fault(mm: &Mm<'_>, id: SpaceId, page: u64) -> Result<(), Error> {
    mm.space(id).fault(PageNumber(page).addr(), UserAccess::Write)
}

#[test]
fn a_fault_tries_a_failing_device_a_few_times_however_much_memory_there_is() {
    for (frames, count) in [(768, 256), (4096, 3072)] {
        let host = Host::new(Setup { cpus: 1, frames, ..Setup::default() });
        host.run(config(), |mm| {
            mm.swap().on(7, 4096, 0).unwrap();
            let (id, held) = full(mm, count);
            host.fail_writes.set(true);
            let looks = || mm.counter(Counter::PgScanDirect);
            let before = looks();
            assert_eq!(fault(mm, id, AT + count), Err(Error::OutOfMemory));
            let (tried, looked) = (written_out(mm), looks() - before);
            assert!((32..=128).contains(&tried), "{tried} tries with {count} pages");
            // In each round a few times over all pages, as where there is no swap at all.
            assert!(looked < 16 * 4 * (count + 512), "{looked} looks at {count} pages");
            assert!(mm.counter(Counter::PageoutDeferred) > 0);
            assert_eq!(mm.swap().usage().failing, 4096);
            // It is known now.
            host.forget();
            assert_eq!(fault(mm, id, AT + count), Err(Error::OutOfMemory));
            let tried = written_out(mm);
            assert!(tried <= 64, "{tried} tries");
            // All of it is there, and no fault waits for the device.
            assert!((AT..AT + count).all(|page| read(mm, id, page) == Ok(page)));
            host.fail_writes.set(false);
            give_back(mm, held);
            end(mm, &[id], &[7]);
        });
    }
}

#[test]
fn a_device_that_works_again_is_found() {
    let host = Host::new(Setup { cpus: 1, frames: 768, ..Setup::default() });
    host.run(config(), |mm| {
        let (id, held) = failing(mm);
        host.fail_writes.set(false);
        let tries = (0..16).position(|_| fault(mm, id, AT + 256).is_ok());
        assert!(tries.is_some(), "it is never tried again");
        assert_eq!(mm.swap().usage().failing, 0);
        squeeze(mm);
        assert!((AT..AT + 256).all(|page| read(mm, id, page) == Ok(page)));
        give_back(mm, held);
        end(mm, &[id], &[7]);
    });
}

#[test]
fn single_bad_blocks_keep_nobody_from_the_others() {
    let host = Host::new(Setup { cpus: 1, frames: 768, ..Setup::default() });
    host.run(config(), |mm| {
        mm.swap().on(7, 1024, 0).unwrap();
        let id = anonymous(mm, 256);
        host.refuse_writes.set(Some(|_, block| (block % 4 == 3).then_some(DeviceError::Failed)));
        squeeze(mm);
        let out = (0..1024).filter(|&block| host.kept(Store::Swap(7), block).is_some()).count();
        assert_eq!(out, 192, "three quarters");
        assert!((AT..AT + 256).all(|page| read(mm, id, page) == Ok(page)));
        host.refuse_writes.set(None);
        end(mm, &[id], &[7]);
    });
}

#[test]
fn pages_go_to_another_device_while_one_fails() {
    let host = Host::new(Setup { cpus: 1, frames: 768, ..Setup::default() });
    host.run(config(), |mm| {
        mm.swap().on(1, 1024, 5).unwrap();
        mm.swap().on(2, 1024, 1).unwrap();
        let (id, held) = full(mm, 256);
        host.refuse_writes.set(Some(|store, _| (store == Store::Swap(1)).then_some(DeviceError::Failed)));
        assert_eq!(write(mm, id, AT + 256, 1), Ok(()), "by way of the second device");
        assert_eq!(mm.swap().usage().failing, 1024);
        squeeze(mm);
        let out = (0..1024).filter(|&block| host.kept(Store::Swap(2), block).is_some()).count();
        assert!(out >= 256 - 64, "{out}: all but what was on its way to the first");
        assert!((AT..AT + 256).all(|page| read(mm, id, page) == Ok(page)));
        host.refuse_writes.set(None);
        give_back(mm, held);
        end(mm, &[id], &[1, 2]);
    });
}

#[test]
fn files_whose_writes_fail_are_left_alone_too_and_others_are_not() {
    let host = Host::new(Setup { cpus: 1, frames: 1024, ..Setup::default() });
    host.run(Config { scan_batch: 32, ..bare("linux") }, |mm| {
        let id = mm.create_space().unwrap();
        mm.space(id).switch_to().unwrap();
        let files = [0, 1].map(|n| {
            let file = mm.create_file(256).unwrap();
            let at = AT + 256 * n;
            mm.space(id).map(pages(at, 256), Backing::File { file, offset: 0 }, Prot::ReadWrite).unwrap();
            (at..at + 256).for_each(|page| host.write(mm, id, page, page).unwrap());
            file
        });
        mm.drain_lru_batch();
        let held = take_free(mm);
        host.forget();
        assert_eq!(files.map(|file| file.index()), [0, 1]);
        let first = |store| matches!(store, Store::File(file) if file.index() == 0);
        host.refuse_writes.set(Some(|store, _| {
            matches!(store, Store::File(file) if file.index() == 0).then_some(DeviceError::Failed)
        }));
        let more: Vec<_> = std::iter::from_fn(|| mm.frames().alloc(0, AllocFrom::HERE).ok()).collect();
        let tried = host.count(|what| matches!(what, Happened::DiskWrite(store, _) if first(*store)));
        assert_eq!(written_out(mm) - tried, 256, "all of the other file");
        assert!(more.len() >= 256);
        assert!((32..=128).contains(&tried), "{tried} tries");
        host.refuse_writes.set(None);
        give_back(mm, held);
        give_back(mm, more);
        assert_eq!(mm.file(files[0]).write_back(), Ok(256), "who asks for it is not kept waiting");
        assert!((AT..AT + 512).all(|page| host.read(mm, id, page) == Ok(page)));
        mm.unload();
        mm.space(id).destroy().unwrap();
        files.iter().for_each(|&file| mm.file(file).destroy().unwrap());
        assert_eq!(settled(mm).broken, None);
    });
}

/// A device is failing when so many writes have failed in a row, and no sooner.
#[test]
fn a_device_is_failing_from_its_32nd_failure_on() {
    let host = Host::new(Setup { frames: 512, ..Setup::default() });
    host.run(Config { lru_batch: 1, ..config() }, |mm| {
        mm.swap().on(7, 512, 0).unwrap();
        let id = anonymous(mm, 40);
        host.refuse_writes.set(Some(|_, _| Some(DeviceError::Failed)));
        for (tries, page) in (1..).zip(AT..AT + 40) {
            mm.space(id).advise(pages(page, 1), quietmm::Advice::PageOut).unwrap();
            assert_eq!(mm.swap().usage().failing > 0, tries >= 32, "{tries}");
        }
        host.refuse_writes.set(None);
        end(mm, &[id], &[7]);
    });
}

/// A device that cannot give all pages back is to go off, and fails. What is in memory of its pages then stays there, whatever is wanted of memory: a page
/// that its device did not take, and one that came with another.
#[test]
fn what_is_in_memory_of_a_device_that_could_not_go_off_stays() {
    for dirty in [true, false] {
        let host = Host::new(Setup { cpus: 1, frames: 256, ..Setup::default() });
        host.run(swapping("linux"), |mm| {
            mm.swap().on(7, 512, 0).unwrap();
            let id = anonymous(mm, 32);
            let there = |mm: &Mm<'_>| {
                let mut pages_there = [0; 32];
                mm.space(id).residency(pages(AT, 32), &mut pages_there).unwrap();
                pages_there
            };
            if dirty {
                mm.drain_lru_batch();
                mm.space(id).advise(pages(AT, 16), quietmm::Advice::PageOut).unwrap();
                host.fail_writes.set(true);
                squeeze(mm);
                host.fail_writes.set(false);
            } else {
                squeeze(mm);
                // The last one of these brings another along, which no entry leads to.
                assert!((AT + 16..AT + 23).all(|page| host.read(mm, id, page) == Ok(page)));
                mm.drain_lru_batch();
            }
            let before = there(mm);
            assert_eq!(&before[..16], &[0; 16]);
            assert!(before[16..].iter().filter(|&&there| there == 1).count() > 7);
            host.fail_reads.set(true);
            assert_eq!(mm.swap().off(7), Err(Error::SwapDevice(PageNumber(AT))));
            host.forget();
            squeeze(mm);
            assert_eq!((written_out(mm), there(mm)), (0, before));
            let lost = |page: &u64| host.read(mm, id, AT + page) != Ok(AT + page);
            assert_eq!((16..32).filter(|&n| before[n as usize] == 1).find(lost), None);
            host.fail_reads.set(false);
            end(mm, &[id], &[7]);
        });
    }
}

/// What is in memory as it is on a failing device needs no other: it goes without a write, and comes from there again.
#[test]
fn a_clean_page_leaves_memory_though_its_device_takes_nothing() {
    let host = Host::new(Setup { cpus: 1, frames: 512, ..Setup::default() });
    host.run(swapping("linux"), |mm| {
        mm.swap().on(7, 512, 9).unwrap();
        let id = anonymous(mm, 8);
        let go =
            |mm: &Mm<'_>, id, count| mm.space(id).advise(pages(AT, count), quietmm::Advice::PageOut).unwrap();
        go(mm, id, 8);
        assert!((AT..AT + 8).all(|page| read(mm, id, page) == Ok(page)));
        mm.swap().on(8, 512, 0).unwrap();
        let other = anonymous(mm, 64);
        host.refuse_writes.set(Some(|store, _| (store == Store::Swap(7)).then_some(DeviceError::Failed)));
        go(mm, other, 64);
        assert_eq!(mm.swap().usage().failing, 512);
        host.forget();
        go(mm, id, 8);
        assert_eq!(written_out(mm), 0);
        assert!((AT..AT + 8).all(|page| is_out(mm, id, page)));
        assert!((AT..AT + 8).all(|page| read(mm, id, page) == Ok(page)));
        host.refuse_writes.set(None);
        end(mm, &[id, other], &[7, 8]);
    });
}

/// A device is gone, as a read of it says. What is in memory and has a slot there that another space's entry names stays, mapped as it is: nobody may get it from
/// there again.
#[test]
fn what_is_in_memory_of_a_device_that_is_gone_stays_there() {
    let host = Host::new(Setup { cpus: 1, frames: 256, ..Setup::default() });
    host.run(swapping("linux"), |mm| {
        mm.swap().on(7, 512, 0).unwrap();
        let id = anonymous(mm, 16);
        let child = mm.space(id).fork().unwrap();
        squeeze(mm);
        assert!((AT..AT + 16).all(|page| is_out(mm, id, page) && is_out(mm, child, page)));
        assert_eq!(read(mm, id, AT), Ok(AT));
        mm.drain_lru_batch();
        host.refuse_reads.set(Some(|_, _| Some(DeviceError::Gone)));
        assert_eq!(read(mm, id, AT + 15), Err(Error::SwapDevice(PageNumber(AT + 15))));
        squeeze(mm);
        assert!(!is_out(mm, id, AT), "it is mapped");
        assert_eq!((read(mm, id, AT), read(mm, child, AT)), (Ok(AT), Ok(AT)));
        host.refuse_reads.set(None);
        end(mm, &[id, child], &[7]);
    });
}

/// A page that is in memory, that nobody maps, and that another space has on a device that is gone, is the only copy there is.
#[test]
fn what_nobody_maps_of_a_device_that_is_gone_stays_in_memory() {
    let host = Host::new(Setup { cpus: 1, frames: 256, ..Setup::default() });
    host.run(swapping("linux"), |mm| {
        mm.swap().on(7, 512, 0).unwrap();
        let id = anonymous(mm, 16);
        let child = mm.space(id).fork().unwrap();
        squeeze(mm);
        assert_eq!(read(mm, id, AT), Ok(AT));
        mm.drain_lru_batch();
        mm.space(id).unmap(pages(AT, 1)).unwrap();
        host.refuse_reads.set(Some(|_, _| Some(DeviceError::Gone)));
        assert_eq!(read(mm, id, AT + 15), Err(Error::SwapDevice(PageNumber(AT + 15))));
        squeeze(mm);
        assert_eq!(read(mm, child, AT), Ok(AT));
        host.refuse_reads.set(None);
        end(mm, &[id, child], &[7]);
    });
}

/// A page that has a slot, and was written to since, goes to another device while its own fails.
#[test]
fn what_was_written_to_again_goes_to_another_device_while_its_own_fails() {
    const COUNT: u64 = 64;
    let host = Host::new(Setup { cpus: 1, frames: 768, ..Setup::default() });
    host.run(config(), |mm| {
        mm.swap().on(7, 1024, 1).unwrap();
        let id = anonymous(mm, COUNT);
        squeeze(mm);
        (AT..AT + COUNT).for_each(|page| write(mm, id, page, page + 1).unwrap());
        mm.swap().on(8, 1024, 0).unwrap();
        host.refuse_writes.set(Some(|store, _| (store == Store::Swap(7)).then_some(DeviceError::Failed)));
        for _ in 0..3 {
            squeeze(mm);
            (AT..AT + COUNT).for_each(|page| assert_eq!(read(mm, id, page), Ok(page + 1)));
        }
        squeeze(mm);
        assert!((AT..AT + COUNT).all(|page| is_out(mm, id, page)));
        host.refuse_writes.set(None);
        end(mm, &[id], &[7, 8]);
    });
}

/// A device that failed goes off and comes back: what it did before says nothing of it.
#[test]
fn a_device_that_comes_back_is_written_to_at_once() {
    let host = Host::new(Setup { cpus: 1, frames: 768, ..Setup::default() });
    host.run(config(), |mm| {
        let (id, held) = failing(mm);
        assert_eq!(mm.swap().usage().failing, 1024);
        host.fail_writes.set(false);
        mm.swap().off(7).unwrap();
        mm.swap().on(7, 1024, 0).unwrap();
        assert_eq!(mm.swap().usage().failing, 0);
        assert_eq!(fault(mm, id, AT + 256), Ok(()), "the first try");
        give_back(mm, held);
        end(mm, &[id], &[7]);
    });
}
