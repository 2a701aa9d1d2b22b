//! Swap: anonymous pages go out and come back whole, slots are free when nobody wants them, and devices may fail.

use crate::machine;

use machine::{Happened, Host, Mm, Setup, bare, exhaust, give_back, pages, settled};
use quietmm::addr::PAGE_SIZE;
use quietmm::platform::Store;
use quietmm::{Advice, Backing, Config, Counter, Error, NodeId, PageNumber, Prot, Rule, SpaceId};

const AT: u64 = 0x1000;
const DEVICE: u32 = 7;

fn swapping(policy: &str) -> Config {
    Config { swap: true, ..bare(policy) }
}

/// A space with `count` anonymous pages, each written with its number, on a machine with a swap device of 1024 pages.
fn written(mm: &Mm<'_>, count: u64) -> SpaceId {
    mm.swap().on(DEVICE, 1024, 0).unwrap();
    anonymous(mm, count)
}

fn anonymous(mm: &Mm<'_>, count: u64) -> SpaceId {
    let id = mm.create_space().unwrap();
    mm.space(id).map(pages(AT, count), Backing::Anonymous, Prot::ReadWrite).unwrap();
    mm.space(id).switch_to().unwrap();
    for page in AT..AT + count {
        mm.platform().write(mm, id, page, page).unwrap();
    }
    mm.drain_lru_batch();
    id
}

/// All memory is wanted for a moment: what can be reclaimed is.
fn squeeze(mm: &Mm<'_>) {
    mm.drain_lru_batch();
    let held = exhaust(mm);
    give_back(mm, held);
}

fn swapped(mm: &Mm<'_>, id: SpaceId, page: u64) -> bool {
    mm.space(id).lookup(PageNumber(page)).unwrap().is_swapped()
}

fn read(mm: &Mm<'_>, id: SpaceId, page: u64) -> Result<u64, Error> {
    mm.space(id).switch_to().unwrap();
    mm.platform().read(mm, id, page)
}

fn write(mm: &Mm<'_>, id: SpaceId, page: u64, value: u64) -> Result<(), Error> {
    mm.space(id).switch_to().unwrap();
    mm.platform().write(mm, id, page, value)
}

fn sound(mm: &Mm<'_>) {
    assert_eq!(settled(mm).broken, None);
}

#[test]
fn pages_go_out_and_come_back_whole() {
    for policy in ["vanilla", "linux", "quiet", "linux+unmap=batch-clean", "linux+aging=flush"] {
        let host = Host::new(Setup::default());
        host.run(swapping(policy), |mm| {
            let id = written(mm, 64);
            squeeze(mm);
            assert!((AT..AT + 64).all(|page| swapped(mm, id, page)), "{policy}");
            assert_eq!((mm.counter(Counter::PswpOut), mm.validate().swapped), (64, 64));
            sound(mm);
            assert!((AT..AT + 64).all(|page| read(mm, id, page) == Ok(page)), "{policy}");
            assert_eq!(mm.counter(Counter::PswpIn), 64);
            sound(mm);
            // They are clean: they go again, and nothing is written.
            squeeze(mm);
            assert_eq!(mm.counter(Counter::PswpOut), 64);
            // One is changed, and is written again.
            write(mm, id, AT + 3, 1).unwrap();
            squeeze(mm);
            assert_eq!((mm.counter(Counter::PswpOut), read(mm, id, AT + 3)), (65, Ok(1)));
            sound(mm);
            mm.space(id).unmap(pages(AT, 64)).unwrap();
            assert_eq!((settled(mm).swapped, settled(mm).anon, settled(mm).broken), (0, 0, None));
            mm.swap().off(DEVICE).unwrap();
        });
    }
}

#[test]
fn without_a_device_or_without_swap_anonymous_pages_stay() {
    for config in [swapping("linux"), bare("linux")] {
        let host = Host::new(Setup::default());
        host.run(config, |mm| {
            let id = anonymous(mm, 16);
            squeeze(mm);
            assert!((AT..AT + 16).all(|page| !swapped(mm, id, page) && read(mm, id, page) == Ok(page)));
            sound(mm);
        });
    }
}

#[test]
fn a_device_is_asked_for_once_and_only_where_swap_is() {
    let host = Host::new(Setup::default());
    host.run(bare("linux"), |mm| assert_eq!(mm.swap().on(0, 512, 0), Err(Error::NoSwap)));
    let host = Host::new(Setup::default());
    host.run(swapping("linux"), |mm| {
        assert_eq!(mm.swap().on(0, 511, 0), Err(Error::BadRange));
        assert_eq!(mm.swap().on(0, 1 << 40, 0), Err(Error::BadRange));
        assert_eq!(mm.swap().off(0), Err(Error::NoSuchSwapDevice));
        assert_eq!(mm.swap().on(0, 512, 0), Ok(()));
        assert_eq!(mm.swap().on(0, 512, 0), Err(Error::NoSuchSwapDevice));
        for device in 1..16 {
            assert_eq!(mm.swap().on(device, 512, 0), Ok(()));
        }
        assert_eq!(mm.swap().on(16, 512, 0), Err(Error::TooMany));
        assert_eq!(mm.swap().off(3), Ok(()));
        assert_eq!(mm.swap().on(16, 512, 0), Ok(()), "in the place of the one that is off");
        sound(mm);
    });
}

#[test]
fn fork_shares_what_is_out_and_the_last_one_frees_the_slot() {
    let host = Host::new(Setup::default());
    host.run(swapping("linux"), |mm| {
        let a = written(mm, 32);
        squeeze(mm);
        let b = mm.space(a).fork().unwrap();
        assert_eq!(settled(mm).swapped, 64);
        assert_eq!((read(mm, a, AT), read(mm, b, AT)), (Ok(AT), Ok(AT)));
        // Both have the page; whoever writes gets a copy.
        write(mm, b, AT, 1).unwrap();
        assert_eq!((read(mm, a, AT), read(mm, b, AT)), (Ok(AT), Ok(1)));
        sound(mm);
        // What one has in memory and the other in its entry only is shared too.
        assert_eq!(read(mm, b, AT + 1), Ok(AT + 1));
        write(mm, b, AT + 1, 2).unwrap();
        assert_eq!((read(mm, a, AT + 1), read(mm, b, AT + 1)), (Ok(AT + 1), Ok(2)));
        squeeze(mm);
        assert_eq!((read(mm, a, AT), read(mm, b, AT), read(mm, b, AT + 1)), (Ok(AT), Ok(1), Ok(2)));
        sound(mm);
        mm.space(a).switch_to().unwrap();
        mm.space(b).destroy().unwrap();
        assert!((AT..AT + 32).all(|page| read(mm, a, page) == Ok(page)));
        mm.space(a).unmap(pages(AT, 32)).unwrap();
        sound(mm);
        mm.swap().off(DEVICE).unwrap();
        assert_eq!(settled(mm).broken, None);
    });
}

#[test]
fn what_was_written_before_a_fork_is_not_lost_with_the_copy() {
    let host = Host::new(Setup::default());
    host.run(swapping("linux"), |mm| {
        let a = written(mm, 1);
        squeeze(mm);
        // Read back, its slot kept; then changed, and shared.
        write(mm, a, AT, 5).unwrap();
        let b = mm.space(a).fork().unwrap();
        write(mm, a, AT, 6).unwrap();
        squeeze(mm);
        assert_eq!((read(mm, a, AT), read(mm, b, AT)), (Ok(6), Ok(5)));
        sound(mm);
    });
}

#[test]
fn pages_are_found_where_they_were_moved() {
    let host = Host::new(Setup::default());
    host.run(swapping("linux"), |mm| {
        let id = written(mm, 32);
        mm.space(id).move_range(pages(AT + 8, 8), PageNumber(0x9000)).unwrap();
        squeeze(mm);
        assert!((0x9000..0x9008).all(|page| swapped(mm, id, page)), "the reverse map has found them");
        mm.space(id).move_range(pages(0x9004, 4), PageNumber(0xa000)).unwrap();
        assert!((0..4).all(|i| read(mm, id, 0x9000 + i) == Ok(AT + 8 + i)));
        assert!((0..4).all(|i| read(mm, id, 0xa000 + i) == Ok(AT + 12 + i)));
        assert!((0..8).all(|i| read(mm, id, AT + i) == Ok(AT + i)));
        sound(mm);
    });
}

#[test]
fn rights_and_advice_hold_for_what_is_out() {
    let host = Host::new(Setup::default());
    host.run(swapping("linux"), |mm| {
        let id = written(mm, 32);
        squeeze(mm);
        mm.space(id).protect(pages(AT, 8), Prot::Read).unwrap();
        assert_eq!(read(mm, id, AT), Ok(AT));
        assert_eq!(write(mm, id, AT, 1), Err(Error::NotPermitted(PageNumber(AT))));
        mm.space(id).advise(pages(AT + 8, 8), Advice::Drop).unwrap();
        assert!((AT + 8..AT + 16).all(|page| read(mm, id, page) == Ok(0)));
        // A node is no place for what is out; the call leaves it there.
        mm.space(id).migrate(pages(AT, 32), NodeId(0)).unwrap();
        assert!((AT + 16..AT + 32).all(|page| read(mm, id, page) == Ok(page)));
        sound(mm);
    });
}

#[test]
fn copies_of_a_files_pages_go_to_swap_and_the_file_stays_as_it_was() {
    let host = Host::new(Setup::default());
    host.run(swapping("linux"), |mm| {
        mm.swap().on(DEVICE, 1024, 0).unwrap();
        let (id, file) = (mm.create_space().unwrap(), mm.create_file(16).unwrap());
        mm.space(id).map(pages(AT, 16), Backing::Private { file, offset: 0 }, Prot::ReadWrite).unwrap();
        mm.space(id).switch_to().unwrap();
        (AT..AT + 8).for_each(|page| write(mm, id, page, page).unwrap());
        (AT + 8..AT + 16).for_each(|page| assert_eq!(host.read(mm, id, page), Ok(0)));
        mm.drain_lru_batch();
        squeeze(mm);
        assert_eq!((mm.counter(Counter::PswpOut), mm.file(file).cached_pages()), (8, Ok(0)));
        assert!((AT..AT + 8).all(|page| read(mm, id, page) == Ok(page)));
        assert!((AT + 8..AT + 16).all(|page| read(mm, id, page) == Ok(0)));
        sound(mm);
    });
}

#[test]
fn a_full_device_takes_no_more_and_the_next_one_does() {
    let host = Host::new(Setup { frames: 2048, ..Setup::default() });
    host.run(swapping("linux"), |mm| {
        mm.swap().on(1, 512, 5).unwrap();
        mm.swap().on(2, 512, 1).unwrap();
        let id = anonymous(mm, 1200);
        squeeze(mm);
        let of = |device| (0..512).filter(|&block| host.kept(Store::Swap(device), block).is_some()).count();
        assert_eq!((of(1), of(2)), (512, 512), "the one of higher priority first, then the other");
        assert_eq!(mm.validate().swapped, 1024);
        assert!((AT..AT + 1200).all(|page| read(mm, id, page) == Ok(page)));
        sound(mm);
    });
}

#[test]
fn a_device_of_higher_priority_is_filled_first_whichever_came_first() {
    let host = Host::new(Setup { frames: 2048, ..Setup::default() });
    host.run(swapping("linux"), |mm| {
        for (device, priority) in [(1, -2), (2, 5), (3, 1)] {
            mm.swap().on(device, 512, priority).unwrap();
        }
        anonymous(mm, 700);
        squeeze(mm);
        let of = |device| (0..512).filter(|&block| host.kept(Store::Swap(device), block).is_some()).count();
        assert_eq!([1, 2, 3].map(of), [0, 512, 188]);
    });
}

#[test]
fn devices_of_equal_priority_share() {
    let host = Host::new(Setup { frames: 2048, ..Setup::default() });
    host.run(swapping("linux"), |mm| {
        (0..4).for_each(|device| mm.swap().on(device, 512, 0).unwrap());
        anonymous(mm, 512);
        squeeze(mm);
        let of = |device| (0..512).filter(|&block| host.kept(Store::Swap(device), block).is_some()).count();
        assert!((0..4).all(|device| of(device) == 128), "by turns, eight at a time");
    });
}

/// Pages that came back keep their slots. One that is written to then goes out again with what was written, whoever else runs in its space.
#[test]
fn what_is_written_to_a_page_that_came_back_goes_out_again() {
    for policy in ["linux", "vanilla", "quiet", "linux+unmap=batch-clean"] {
        let host = Host::new(Setup { cpus: 2, frames: 512, ..Setup::default() });
        host.run(swapping(policy), |mm| {
            let id = written(mm, 8);
            host.on(1, || mm.space(id).switch_to().unwrap());
            (0..2).for_each(|_| squeeze(mm));
            for round in 1..4 {
                assert!((AT..AT + 8).all(|page| swapped(mm, id, page)), "{policy}");
                for page in (AT..AT + 8).step_by(2) {
                    assert!(read(mm, id, page).is_ok());
                    write(mm, id, page, page + round).unwrap();
                    host.on(1, || assert_eq!(host.read(mm, id, page), Ok(page + round)));
                }
                (0..3).for_each(|_| squeeze(mm));
            }
            for page in AT..AT + 8 {
                assert_eq!(read(mm, id, page), Ok(if page % 2 == 0 { page + 3 } else { page }), "{policy}");
            }
            sound(mm);
        });
    }
}

#[test]
fn a_page_that_the_device_does_not_take_stays_in_memory() {
    for (broken, lost) in [(None, 0), (Some(Rule::KeepWhatFailed), 16)] {
        let host = Host::new(Setup::default());
        host.broken.set(broken);
        host.run(swapping("linux"), |mm| {
            let id = written(mm, 16);
            host.fail_writes.set(true);
            squeeze(mm);
            host.fail_writes.set(false);
            assert!(mm.counter(Counter::PgPgOutFailed) >= 16);
            let wrong = (AT..AT + 16).filter(|&page| read(mm, id, page) != Ok(page)).count();
            assert_eq!(wrong, lost, "{broken:?}");
            sound(mm);
            squeeze(mm);
            assert!(broken.is_some() || (AT..AT + 16).all(|page| read(mm, id, page) == Ok(page)));
        });
    }
}

#[test]
fn a_page_that_cannot_be_read_fails_its_fault_and_no_other() {
    let host = Host::new(Setup::default());
    host.run(swapping("linux"), |mm| {
        let id = written(mm, 16);
        squeeze(mm);
        host.fail_reads.set(true);
        let error = Error::SwapDevice(PageNumber(AT + 5));
        assert_eq!(read(mm, id, AT + 5), Err(error));
        assert_eq!((mm.counter(Counter::SwapLost), read(mm, id, AT + 5)), (1, Err(error)), "each time");
        sound(mm);
        host.fail_reads.set(false);
        assert!((AT..AT + 16).all(|page| read(mm, id, page) == Ok(page)));
        sound(mm);
        // Given up, it shows zeros.
        squeeze(mm);
        host.fail_reads.set(true);
        assert!(read(mm, id, AT).is_err());
        mm.space(id).advise(pages(AT, 1), Advice::Drop).unwrap();
        assert_eq!(read(mm, id, AT), Ok(0));
        mm.space(id).unmap(pages(AT, 16)).unwrap();
        sound(mm);
    });
}

#[test]
fn a_device_that_goes_off_gives_everything_back() {
    let host = Host::new(Setup { frames: 2048, ..Setup::default() });
    host.run(swapping("linux"), |mm| {
        let a = written(mm, 64);
        let b = mm.space(a).fork().unwrap();
        mm.space(a).protect(pages(AT + 10, 4), Prot::None).unwrap();
        squeeze(mm);
        assert_eq!(read(mm, a, AT), Ok(AT));
        host.fail_reads.set(true);
        assert!(matches!(mm.swap().off(DEVICE), Err(Error::SwapDevice(_))), "not what it cannot read");
        host.fail_reads.set(false);
        assert_eq!(mm.swap().off(DEVICE), Ok(()));
        assert!(!host.pauses.borrow().contains(&1000), "nobody works on its pages: nothing is waited for");
        assert_eq!(settled(mm).swapped, 0);
        sound(mm);
        assert_eq!(write(mm, b, AT + 1, 9), Ok(()));
        mm.space(a).protect(pages(AT + 10, 4), Prot::ReadWrite).unwrap();
        assert!((AT..AT + 64).all(|page| read(mm, a, page) == Ok(page)));
        assert_eq!((read(mm, b, AT + 1), read(mm, b, AT + 2)), (Ok(9), Ok(AT + 2)));
        squeeze(mm);
        assert_eq!(settled(mm).swapped, 0, "nothing goes there any more");
        assert_eq!(mm.swap().on(DEVICE, 1024, 0), Ok(()));
        squeeze(mm);
        assert!(settled(mm).swapped > 0);
        sound(mm);
    });
}

#[test]
fn a_batch_costs_an_interrupt_a_cpu_for_dirty_pages_too() {
    let ipis = |policy: &str| {
        let host = Host::new(Setup { cpus: 3, ..Setup::default() });
        host.run(swapping(policy), |mm| {
            let id = written(mm, 128);
            for cpu in [1, 2] {
                host.on(cpu, || {
                    mm.space(id).switch_to().unwrap();
                    (AT..AT + 128).for_each(|page| write(mm, id, page, page).unwrap());
                });
            }
            host.forget();
            squeeze(mm);
            assert_eq!(mm.counter(Counter::PswpOut), 128);
            host.interrupts() as u64 - mm.counter(Counter::DrainIpisSent)
        })
    };
    assert_eq!(ipis("linux"), 2 * 4, "32 pages in a batch");
    assert_eq!(ipis("linux+unmap=per-page"), 2 * 128);
    assert_eq!(ipis("linux+aging=flush"), 2 * 4 + 2 * 128);
}

#[test]
fn pages_are_read_ahead_and_those_that_nobody_wants_cost_no_write() {
    let host = Host::new(Setup { frames: 2048, ..Setup::default() });
    host.run(swapping("linux"), |mm| {
        let id = written(mm, 512);
        squeeze(mm);
        for page in AT..AT + 512 {
            assert_eq!(read(mm, id, page), Ok(page));
        }
        let (ahead, hits) = (mm.counter(Counter::SwapRa), mm.counter(Counter::SwapRaHit));
        assert!(ahead > 300 && hits > ahead * 9 / 10, "{hits} of {ahead}");
        let written = mm.counter(Counter::PswpOut);
        squeeze(mm);
        assert_eq!(mm.counter(Counter::PswpOut), written);
        sound(mm);
        assert!(host.count(|what| matches!(what, Happened::DiskWrite(Store::Swap(DEVICE), _))) == 512);
    });
}

/// What is read with a page becomes twice as much while that is wanted, and half as much where it is not: not one page at once.
#[test]
fn what_is_read_ahead_doubles_and_halves() {
    let host = Host::new(Setup { frames: 1024, ..Setup::default() });
    host.run(swapping("linux"), |mm| {
        let id = written(mm, 128);
        squeeze(mm);
        let reads = |page: u64| {
            let before = mm.counter(Counter::PswpIn);
            assert_eq!(read(mm, id, AT + page), Ok(AT + page));
            mm.counter(Counter::PswpIn) - before
        };
        let first: Vec<_> = (0..8).map(reads).filter(|&pages| pages > 0).collect();
        assert_eq!(first.iter().sum::<u64>(), 8);
        let far: Vec<_> = [24, 48, 72, 96, 120].map(reads).into();
        assert_eq!((first, far), (vec![2, 2, 4], vec![8, 4, 2, 1, 1]));
        sound(mm);
    });
}

#[test]
fn a_page_that_was_read_ahead_counts_once_however_many_want_it() {
    let host = Host::new(Setup { frames: 1024, ..Setup::default() });
    host.run(swapping("linux"), |mm| {
        let id = written(mm, 64);
        let children = [(); 3].map(|()| mm.space(id).fork().unwrap());
        squeeze(mm);
        for space in [id].into_iter().chain(children) {
            assert!((AT..AT + 64).all(|page| read(mm, space, page) == Ok(page)));
        }
        let (ahead, hits) = (mm.counter(Counter::SwapRa), mm.counter(Counter::SwapRaHit));
        assert!(ahead > 30 && hits <= ahead, "{hits} of {ahead}");
        assert_eq!(mm.counter(Counter::PswpIn), 64, "all of them share what one has read");
        sound(mm);
    });
}

#[test]
fn more_than_memory_and_swap_together_is_out_of_memory() {
    let host = Host::new(Setup { frames: 1024, ..Setup::default() });
    host.run(swapping("linux"), |mm| {
        mm.swap().on(DEVICE, 512, 0).unwrap();
        let id = mm.create_space().unwrap();
        mm.space(id).map(pages(AT, 4096), Backing::Anonymous, Prot::ReadWrite).unwrap();
        mm.space(id).switch_to().unwrap();
        let refused = (AT..AT + 4096).find(|&page| host.write(mm, id, page, page).is_err()).unwrap();
        let (kept, frames) = (refused - AT, mm.frames().available());
        assert_eq!(host.write(mm, id, refused, 1), Err(Error::OutOfMemory));
        assert!(kept > 512 + 900 && frames < 8, "{kept} pages fit, {frames} frames are free");
        sound(mm);
        // What is out finds no frame, and nothing can go for it; what is in memory can be used.
        assert!((AT..refused).all(|page| read(mm, id, page)
            == if swapped(mm, id, page) { Err(Error::OutOfMemory) } else { Ok(page) }));
        // With a little room all of it goes round.
        mm.space(id).unmap(pages(refused - 32, 4096 - kept + 32)).unwrap();
        assert!((AT..refused - 32).all(|page| read(mm, id, page) == Ok(page)));
        assert!((AT..refused - 32).rev().all(|page| read(mm, id, page) == Ok(page)));
        sound(mm);
    });
}

/// Devices that come and go, each larger than any before, or two small ones in place of a large one: their slots get numbers
/// that were others'.
#[test]
fn the_numbers_of_devices_that_have_gone_are_used_again() {
    let host = Host::new(Setup { cpus: 1, frames: 2048, ..Setup::default() });
    host.run(swapping("linux"), |mm| {
        let at_work = |devices: &[u32]| {
            let id = anonymous(mm, 64);
            squeeze(mm);
            assert!((AT..AT + 64).all(|page| read(mm, id, page) == Ok(page)));
            squeeze(mm);
            devices.iter().for_each(|&device| mm.swap().off(device).unwrap());
            assert!((AT..AT + 64).all(|page| read(mm, id, page) == Ok(page)));
            mm.unload();
            mm.space(id).destroy().unwrap();
            sound(mm);
        };
        for clusters in 1..=40 {
            assert_eq!(mm.swap().on(DEVICE, 512 * clusters, 0), Ok(()), "{clusters} clusters");
            at_work(&[DEVICE]);
        }
        let most = settled(mm).pools;
        for (one, two) in [(8, 32), (30, 10), (20, 20), (1, 39)] {
            mm.swap().on(1, 512 * one, 0).unwrap();
            mm.swap().on(2, 512 * two, 0).unwrap();
            at_work(&[2, 1]);
        }
        // A hole between two that stay is filled.
        (1..=3).for_each(|device| mm.swap().on(device, 512, 0).unwrap());
        mm.swap().off(2).unwrap();
        mm.swap().on(4, 512 * 2, 0).unwrap();
        mm.swap().on(5, 512, 0).unwrap();
        at_work(&[1, 3, 4, 5]);
        mm.swap().on(DEVICE, 512 * 40, 0).unwrap();
        at_work(&[DEVICE]);
        assert_eq!(settled(mm).pools, most, "no more frames than the largest needs");
    });
}

#[test]
fn a_slot_is_kept_for_a_page_that_comes_back_while_at_most_half_are_in_use() {
    let left = |count: u64| {
        Host::new(Setup::default()).run(swapping("linux"), |mm| {
            mm.swap().on(DEVICE, 512, 0).unwrap();
            let id = anonymous(mm, count);
            squeeze(mm);
            assert_eq!(read(mm, id, AT), Ok(AT));
            mm.swap().usage().used
        })
    };
    assert_eq!([left(255), left(256), left(257), left(300)], [255, 256, 256, 299]);
}

/// All slots are in use: what has one and is as it was on the device goes, though nothing can be written out.
#[test]
fn where_no_slot_is_free_pages_that_have_one_go() {
    let host = Host::new(Setup { frames: 1024, ..Setup::default() });
    host.run(swapping("linux"), |mm| {
        mm.swap().on(7, 512, 0).unwrap();
        let id = anonymous(mm, 512);
        // Others use the slots, too: who brings a page back does not let go of its slot.
        let child = mm.space(id).fork().unwrap();
        squeeze(mm);
        assert_eq!(mm.swap().usage().used, 512);
        assert!((AT..AT + 64).all(|page| read(mm, id, page) == Ok(page)));
        assert!((AT..AT + 64).all(|page| !swapped(mm, id, page)));
        host.forget();
        squeeze(mm);
        assert!((AT..AT + 64).all(|page| swapped(mm, id, page)));
        assert_eq!(host.count(|what| matches!(what, machine::Happened::DiskWrite(..))), 0);
        sound(mm);
        mm.unload();
        [id, child].into_iter().for_each(|id| mm.space(id).destroy().unwrap());
    });
}

/// A device is gone. A page that is in memory, and that another space has there still, is in memory for both.
#[test]
fn a_page_that_another_has_on_a_device_that_is_gone_stays_in_memory() {
    let host = Host::new(Setup { frames: 512, ..Setup::default() });
    host.run(swapping("linux"), |mm| {
        let parent = written(mm, 2);
        let child = mm.space(parent).fork().unwrap();
        (0..3).for_each(|_| squeeze(mm));
        // Another page finds that it is.
        host.refuse_writes.set(Some(|_, _| Some(quietmm::platform::DeviceError::Gone)));
        let other = anonymous(mm, 1);
        (0..3).for_each(|_| squeeze(mm));
        mm.space(parent).switch_to().unwrap();
        assert_eq!(host.read(mm, parent, AT), Ok(AT));
        host.refuse_reads.set(Some(|_, _| Some(quietmm::platform::DeviceError::Gone)));
        (0..4).for_each(|_| squeeze(mm));
        mm.space(child).switch_to().unwrap();
        assert_eq!(host.read(mm, child, AT), Ok(AT));
        assert_eq!(settled(mm).broken, None);
        host.refuse_writes.set(None);
        host.refuse_reads.set(None);
        mm.unload();
        [parent, child, other].into_iter().for_each(|id| mm.space(id).destroy().unwrap());
        assert_eq!(settled(mm).broken, None);
    });
}

#[test]
fn pages_behind_one_that_cannot_be_read_come_back() {
    let host = Host::new(Setup { frames: 2048, ..Setup::default() });
    host.run(swapping("linux"), |mm| {
        let id = written(mm, 64);
        let file = mm.create_memory_file(32).unwrap();
        (0..32).for_each(|page| _ = mm.file(file).write(page * PAGE_SIZE, &page.to_ne_bytes()).unwrap());
        (0..3).for_each(|_| squeeze(mm));
        assert_eq!(mm.swap().usage().used, 96);
        host.refuse_reads
            .set(Some(|_, block| (block % 16 == 5).then_some(quietmm::platform::DeviceError::Failed)));
        assert!(mm.swap().off(DEVICE).is_err());
        let left = mm.file(file).swapped_pages().unwrap() + settled(mm).swapped;
        assert_eq!(left, 6, "of 96");
        host.refuse_reads.set(None);
        assert_eq!(mm.swap().off(DEVICE), Ok(()));
        assert!((AT..AT + 64).all(|page| read(mm, id, page) == Ok(page)));
        assert_eq!(mm.file(file).swapped_pages(), Ok(0));
        mm.file(file).destroy().unwrap();
        sound(mm);
    });
}

/// A device that could not give all pages back is off for all that comes after, and may be asked again.
#[test]
fn a_device_that_could_not_go_off_gets_no_more_pages() {
    let host = Host::new(Setup { frames: 512, ..Setup::default() });
    host.run(swapping("linux"), |mm| {
        let id = written(mm, 8);
        (0..3).for_each(|_| squeeze(mm));
        host.refuse_reads.set(Some(|_, _| Some(quietmm::platform::DeviceError::Failed)));
        assert!(matches!(mm.swap().off(DEVICE), Err(Error::SwapDevice(_))));
        host.refuse_reads.set(None);
        let out = mm.counter(Counter::PswpOut);
        let other = anonymous(mm, 8);
        (0..3).for_each(|_| squeeze(mm));
        assert_eq!(mm.counter(Counter::PswpOut), out);
        assert_eq!(mm.swap().off(DEVICE), Ok(()));
        for id in [id, other] {
            mm.space(id).switch_to().unwrap();
            assert!((AT..AT + 8).all(|page| host.read(mm, id, page) == Ok(page)));
        }
        assert_eq!(settled(mm).broken, None);
    });
}
