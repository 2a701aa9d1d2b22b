//! Swap devices that come and go: the numbers of their slots, whose clusters these are, and what is known of a device's writes. What one
//! leaves behind is no other's.

use crate::machine;

use std::cell::RefCell;
use std::rc::Rc;

use machine::race::{at_every_touch, race};
use machine::swapping::{AT, anonymous, end, read, sound, squeeze, swapping, take_free};
use machine::{Host, Mm, Setup, give_back, pages, settled};
use quietmm::platform::{BlockDevice, DeviceError, Store};
use quietmm::{Advice, Error, FrameNumber};

/// Slots of a cluster, and clusters that devices may have: the last one that has a number is none of theirs.
const CLUSTER: u64 = 512;
const CLUSTERS: u64 = ((1 << 28) - 1) / CLUSTER - 8;

fn on(mm: &Mm<'_>, device: u32, clusters: u64) {
    mm.swap().on(device, clusters * CLUSTER, 0).unwrap();
}

/// 64 pages go out and come back whole; returns the devices that they went to.
fn goes_to(mm: &Mm<'_>) -> Vec<Store> {
    let host = mm.platform();
    let id = anonymous(mm, 64);
    host.forget();
    squeeze(mm);
    let mut stores: Vec<Store> = host
        .log
        .borrow()
        .iter()
        .filter_map(
            |what| if let machine::Happened::DiskWrite(store, _) = what { Some(*store) } else { None },
        )
        .collect();
    stores.dedup();
    assert!((AT..AT + 64).all(|page| read(mm, id, page) == Ok(page)));
    mm.unload();
    mm.space(id).destroy().unwrap();
    sound(mm);
    stores
}

/// A device takes the first numbers that are free and enough: it needs no frames if others have left as many in a row.
#[test]
fn a_device_takes_the_first_numbers_that_are_enough() {
    let host = Host::new(Setup { frames: 1024, ..Setup::default() });
    host.run(swapping("linux"), |mm| {
        (1..).zip([1, 2, 1, 3, 1]).for_each(|(device, clusters)| on(mm, device, clusters));
        let free = settled(mm).free;
        // At the start, in the middle, and one that is larger than a hole, and just as large as the next.
        for (goes, comes) in [
            (&[(1, 1)][..], &[(11, 1)][..]),
            (&[(2, 2)], &[(12, 2)]),
            (&[(11, 1), (12, 2)], &[(13, 3)]),
            (&[(13, 3)], &[(14, 2), (15, 1)]),
            (&[(14, 2), (4, 3)], &[(16, 3), (17, 2)]),
            (&[(5, 1)], &[(18, 1)]),
        ] {
            goes.iter().for_each(|&(device, _)| mm.swap().off(device).unwrap());
            comes.iter().for_each(|&(device, clusters)| on(mm, device, clusters));
            assert_eq!(settled(mm).free, free, "{goes:?}, {comes:?}");
            assert_eq!(mm.swap().usage().slots, 8 * CLUSTER);
        }
        on(mm, 19, 1);
        assert_eq!(settled(mm).free, free - 1, "nothing is left: a cluster more");
    });
}

/// Of a device that comes all slots are its own, also those that several others had.
#[test]
fn slots_of_devices_that_have_gone_belong_to_the_one_that_came() {
    let host = Host::new(Setup { frames: 1024, ..Setup::default() });
    host.run(swapping("linux"), |mm| {
        // Each of the first three has a place and a cluster; those that come are in other places.
        (1..=4).for_each(|device| on(mm, device, 1));
        [1, 2, 3].into_iter().for_each(|device| mm.swap().off(device).unwrap());
        on(mm, 5, 3);
        mm.swap().off(4).unwrap();
        assert_eq!(goes_to(mm), [Store::Swap(5)]);
        mm.swap().off(5).unwrap();
        on(mm, 6, 1);
        on(mm, 7, 2);
        mm.swap().off(6).unwrap();
        assert_eq!(goes_to(mm), [Store::Swap(7)]);
        mm.swap().off(7).unwrap();
        // The second takes the slots that the first had, and another is in the first one's place among the devices.
        [1, 2].into_iter().for_each(|device| on(mm, device, 1));
        mm.swap().off(1).unwrap();
        mm.swap().on(3, 2 * CLUSTER, -1).unwrap();
        mm.swap().off(2).unwrap();
        on(mm, 4, 1);
        assert_eq!(goes_to(mm), [Store::Swap(4)]);
        [3, 4].into_iter().for_each(|device| mm.swap().off(device).unwrap());
        assert_eq!(mm.swap().usage(), quietmm::SwapUsage::default());
    });
}

#[test]
fn a_device_is_refused_for_its_length_only_where_there_are_no_such_numbers() {
    let host = Host::new(Setup { frames: 512, ..Setup::default() });
    host.run(swapping("linux"), |mm| {
        let on = |device, pages| mm.swap().on(device, pages, 0);
        for pages in [0, 1, CLUSTER - 1, (CLUSTERS + 1) * CLUSTER, u64::MAX] {
            assert_eq!(on(1, pages), Err(Error::BadRange), "{pages}");
        }
        assert_eq!(on(1, CLUSTER), Ok(()));
        assert_eq!(on(2, CLUSTERS * CLUSTER), Err(Error::BadRange), "one has a number");
        assert_eq!(on(1, CLUSTER), Err(Error::NoSuchSwapDevice), "it is in use");
        mm.swap().off(1).unwrap();
        // The rest of the last cluster does not count. There is no memory for so many, and no trace of them is left.
        let held = take_free(mm);
        for pages in [CLUSTERS * CLUSTER, CLUSTERS * CLUSTER + CLUSTER - 1] {
            assert_eq!(on(2, pages), Err(Error::OutOfMemory), "{pages}");
            assert_eq!(mm.swap().usage().slots, 0);
            assert_eq!(mm.swap().off(2), Err(Error::NoSuchSwapDevice));
        }
        give_back(mm, held);
        assert_eq!(on(2, 2 * CLUSTER - 1), Ok(()));
        assert_eq!(mm.swap().usage().slots, CLUSTER);
    });
}

/// As many devices as may be: the next is refused, until one has gone.
#[test]
fn there_are_as_many_devices_at_once_as_may_be() {
    let host = Host::new(Setup::default());
    host.run(swapping("linux"), |mm| {
        (0..16).for_each(|device| on(mm, device, 1));
        assert_eq!(mm.swap().on(16, CLUSTER, 0), Err(Error::TooMany));
        mm.swap().off(7).unwrap();
        on(mm, 16, 1);
        assert_eq!(mm.swap().on(7, CLUSTER, 0), Err(Error::TooMany));
    });
}

/// So many failures in a row are a device that fails; the next one, in the same place, is not.
#[test]
fn what_is_known_of_a_devices_writes_goes_with_it() {
    let host = Host::new(Setup { frames: 512, ..Setup::default() });
    host.run(swapping("linux"), |mm| {
        on(mm, 1, 1);
        let id = anonymous(mm, 40);
        host.refuse_writes.set(Some(|_, _| Some(DeviceError::Failed)));
        squeeze(mm);
        assert_eq!(mm.swap().usage().failing, CLUSTER);
        host.refuse_writes.set(None);
        mm.swap().off(1).unwrap();
        on(mm, 2, 1);
        assert_eq!(mm.swap().usage().failing, 0);
        end(mm, &[id], &[2]);
    });
}

/// Keeps pages, and writes down what has ended.
#[derive(Default)]
struct Ends(RefCell<Vec<Store>>);

impl BlockDevice for Ends {
    fn read(&self, _: Store, _: u64, _: FrameNumber) -> Result<(), DeviceError> {
        Err(DeviceError::Failed)
    }
    fn write(&self, _: Store, _: u64, _: FrameNumber) -> Result<(), DeviceError> {
        Ok(())
    }
    fn end(&self, store: Store) {
        self.0.borrow_mut().push(store);
    }
}

#[test]
fn the_machine_hears_once_that_a_device_has_gone_and_not_before() {
    let host = Host::new(Setup { frames: 512, ..Setup::default() });
    let ends = Rc::new(Ends::default());
    host.set_device(Rc::<Ends>::clone(&ends));
    host.run(swapping("linux"), |mm| {
        on(mm, 3, 1);
        let id = anonymous(mm, 4);
        squeeze(mm);
        // Its pages cannot be read.
        assert!(matches!(mm.swap().off(3), Err(Error::SwapDevice { .. })), "{:?}", mm.swap().usage());
        assert_eq!(*ends.0.borrow(), []);
        mm.unload();
        mm.space(id).destroy().unwrap();
        assert_eq!(mm.swap().off(3), Ok(()));
        assert_eq!(*ends.0.borrow(), [Store::Swap(3)]);
        assert_eq!(mm.swap().off(3), Err(Error::NoSuchSwapDevice));
        assert_eq!(ends.0.borrow().len(), 1);
    });
}

/// While its pages come back it is nobody else's, and goes once.
#[test]
fn a_device_that_is_going_is_neither_taken_nor_sent_away_by_another() {
    let host = Host::new(Setup { frames: 512, ..Setup::default() });
    host.run(swapping("linux"), |mm| {
        on(mm, 3, 1);
        let id = anonymous(mm, 4);
        squeeze(mm);
        let said = Rc::new(RefCell::new(Vec::new()));
        let says = Rc::clone(&said);
        host.on_disk_read.borrow_mut().push_back(Box::new(move |mm: &Mm<'_>| {
            says.borrow_mut().push(mm.swap().off(3));
            says.borrow_mut().push(mm.swap().on(3, CLUSTER, 0));
        }));
        assert_eq!(mm.swap().off(3), Ok(()));
        assert_eq!(*said.borrow(), [Err(Error::NoSuchSwapDevice); 2]);
        on(mm, 3, 1);
        end(mm, &[id], &[3]);
    });
}

/// Until the machine has heard that a device has gone its number is nobody else's: what goes to the next device of that number would be
/// forgotten with the first.
#[test]
fn a_number_comes_back_when_the_machine_has_heard_of_the_end() {
    let host = Host::new(Setup { frames: 512, ..Setup::default() });
    host.run(swapping("linux"), |mm| {
        on(mm, 3, 1);
        let said = Rc::new(RefCell::new(Vec::new()));
        let says = Rc::clone(&said);
        host.on_end.borrow_mut().push_back(Box::new(move |mm: &Mm<'_>| {
            says.borrow_mut().push(mm.swap().on(3, CLUSTER, 0));
            says.borrow_mut().push(mm.swap().off(3));
        }));
        assert_eq!(mm.swap().off(3), Ok(()));
        assert_eq!(*said.borrow(), [Err(Error::NoSuchSwapDevice); 2]);
        on(mm, 3, 1);
        assert_eq!(mm.swap().off(3), Ok(()));
    });
}

/// A CPU goes on where it was on a device. Where that is gone, and its numbers are another's, the device that has its place gets pages of its own.
#[test]
fn where_a_cpu_was_on_a_device_that_is_gone_is_no_place_on_the_next() {
    let host = Host::new(Setup { frames: 1024, ..Setup::default() });
    host.run(swapping("linux"), |mm| {
        let on = |device, clusters, priority| mm.swap().on(device, clusters * CLUSTER, priority).unwrap();
        on(1, 1, 0);
        assert_eq!(goes_to(mm), [Store::Swap(1)]);
        on(2, 1, -9);
        mm.swap().off(1).unwrap();
        // In its place, and with other numbers; and one with its numbers.
        on(3, 2, 5);
        on(4, 1, -5);
        assert_eq!(goes_to(mm), [Store::Swap(3)]);
        [2, 3, 4].into_iter().for_each(|device| mm.swap().off(device).unwrap());
    });
}

/// However long a device says that it is, beside another too: it is refused, and no number is counted round.
#[test]
fn a_device_of_more_slots_than_there_are_numbers_is_refused() {
    let host = Host::new(Setup { frames: 512, ..Setup::default() });
    host.run(swapping("linux"), |mm| {
        on(mm, 1, 1);
        for pages in [512 * u64::from(u32::MAX), 512 << 32, 512 << 33, u64::MAX] {
            assert_eq!(mm.swap().on(2, pages, 0), Err(Error::BadRange), "{pages}");
        }
        mm.swap().off(1).unwrap();
    });
}

/// Who found what was read ahead, and then finds nothing of it, has less read ahead each time.
#[test]
fn less_is_read_ahead_when_nobody_wants_it_any_more() {
    let host = Host::new(Setup { frames: 768, ..Setup::default() });
    host.run(swapping("linux"), |mm| {
        on(mm, 1, 1);
        let id = anonymous(mm, 320);
        squeeze(mm);
        let ahead = |pages: std::ops::Range<u64>, step: usize| {
            let before = mm.counter(quietmm::Counter::SwapRa);
            pages.step_by(step).for_each(|page| assert_eq!(read(mm, id, AT + page), Ok(AT + page)));
            mm.counter(quietmm::Counter::SwapRa) - before
        };
        assert!(ahead(0..32, 1) > 20, "in a row");
        // Each of another eight: first as many, and then half of it each time.
        let falls = ahead(32..64, 8);
        assert!(falls <= 7 + 3 + 1, "{falls}");
        assert!(ahead(64..192, 8) <= 2, "now and then one is tried");
        end(mm, &[id], &[1]);
    });
}

/// A page is about to get a slot of a device that goes off at this moment. One that comes takes its place among the devices, with other numbers.
#[test]
fn a_page_gets_no_slot_of_a_device_that_has_gone_meanwhile() {
    let setup = Setup { cpus: 2, frames: 512, ..Setup::default() };
    let cases = at_every_touch(&setup, &swapping("linux"), None, |mm, place| {
        mm.swap().on(1, CLUSTER, 1).unwrap();
        mm.swap().on(2, CLUSTER, 0).unwrap();
        let id = anonymous(mm, 1);
        mm.drain_lru_batch();
        let goes = || mm.space(id).advise(pages(AT, 1), Advice::PageOut).unwrap();
        let another = || {
            mm.swap().off(1).unwrap();
            mm.swap().on(3, 2 * CLUSTER, 1).unwrap();
        };
        race(mm, place, goes, another);
        assert_eq!(read(mm, id, AT), Ok(AT));
        end(mm, &[id], &[2, 3]);
    });
    assert!(cases.results.len() > 10, "{}", cases.results.len());
}
