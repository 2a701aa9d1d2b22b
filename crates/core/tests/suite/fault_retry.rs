//! What a fault waits for outside memory it waits for with the VMAs of its space let go, and looks anew after it.

use crate::machine;

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;

use machine::showing::{ANON, AT, TO, mapped, shared, write_all};
use machine::swapping::{self, DEVICE, is_out, squeeze, swapping, written};
use machine::{Host, Mm, Setup, StandsStill, bare, exhaust, give_back, pages, race, settled};
use quietmm::{Config, Counter, Error, PageNumber, Prot, Rule, SpaceId, UserAccess};

fn fault(mm: &Mm<'_>, id: SpaceId, page: u64, access: UserAccess) -> Result<(), Error> {
    mm.space(id).fault(PageNumber(page).addr(), access)
}

fn stop(mm: &Mm<'_>) {
    mm.platform().stop();
}

/// Where the fault of CPU 1 stands still.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stands {
    /// Where it waits: for a device, or for whoever works on its page.
    Outside,
    /// Somewhere with the VMAs held.
    Inside,
}

/// What CPU 1's fault at `AT` waits for.
type Wanted = (fn() -> Config, fn(&Mm<'_>) -> SpaceId, UserAccess);

/// A page that nobody has touched.
const ELSEWHERE: u64 = AT + 100;

/// CPU 1's fault at `AT` stands still, CPU 2 maps something, and CPU 0 has a fault elsewhere in the space. Returns whether
/// CPU 0 had to wait.
fn waits_behind_a_map((config, prepare, access): Wanted, stands: Stands) -> bool {
    let played = catch_unwind(AssertUnwindSafe(|| {
        let host = Host::new(Setup { cpus: 3, frames: 512, ..Setup::default() });
        host.run(config(), |mm| {
            let id = prepare(mm);
            // CPU 0 must not remember that VMA, which it would enter by its gate; nor one whose slot that VMA has now.
            for at in [ELSEWHERE + 10, ELSEWHERE] {
                host.on(2, || mm.space(id).map(pages(at, 1), ANON, Prot::ReadWrite)).unwrap();
            }
            host.place();
            match stands {
                Stands::Outside => host.on_disk_read.borrow_mut().push_back(Box::new(stop)),
                // Behind the lock of the VMAs, and before anything that could be waited for.
                Stands::Inside => host.at_touch(1, 12, stop),
            }
            let faults = || fault(mm, id, AT, access).unwrap();
            let maps = || mm.space(id).map(pages(TO, 1), ANON, Prot::ReadWrite).unwrap();
            host.aside(1, faults, |faulting| {
                assert!(host.resume_one(faulting), "it stands still");
                host.aside(2, maps, |mapping| {
                    host.resume_one(mapping);
                    let give_up = || resume_unwind(Box::new(StandsStill));
                    host.on_wait.borrow_mut().push_back(Box::new(give_up));
                    fault(mm, id, ELSEWHERE, UserAccess::Read).unwrap();
                    host.on_wait.borrow_mut().clear();
                });
            });
            host.on_disk_read.borrow_mut().clear();
            assert!(host.all_placed());
            assert!(host.read(mm, id, AT).is_ok());
        });
    }));
    match played {
        Ok(()) => false,
        Err(payload) if payload.is::<StandsStill>() => true,
        Err(payload) => resume_unwind(payload),
    }
}

/// A page of a file that is not in memory.
fn of_a_file(mm: &Mm<'_>) -> SpaceId {
    mapped(mm, shared(mm.create_file(1).unwrap()), 1)
}

/// Two anonymous pages on a device.
fn in_swap(mm: &Mm<'_>) -> SpaceId {
    let id = written(mm, 512, 2);
    squeeze(mm);
    assert!(is_out(mm, id, AT_SWAP));
    mm.space(id).move_range(pages(AT_SWAP, 2), PageNumber(AT)).unwrap();
    mm.drain_lru_batch();
    id
}

const AT_SWAP: u64 = swapping::AT;

#[test]
fn a_map_that_waits_does_not_stop_faults_while_a_device_reads() {
    let wanted: [(&str, Wanted); 2] = [
        ("a file", (|| bare("linux"), of_a_file, UserAccess::Read)),
        ("swap", (|| swapping("linux"), in_swap, UserAccess::Read)),
    ];
    for (name, wanted) in wanted {
        assert!(!waits_behind_a_map(wanted, Stands::Outside), "{name}");
        // The look sees who stands still with the VMAs.
        assert!(waits_behind_a_map(wanted, Stands::Inside), "{name}");
    }
}

#[test]
fn a_map_that_waits_does_not_stop_faults_while_another_waits_for_a_page() {
    let host = Host::new(Setup { cpus: 4, ..Setup::default() });
    host.run(bare("linux"), |mm| {
        let file = mm.create_file(2).unwrap();
        let id = mapped(mm, shared(file), 2);
        write_all(mm, id, 1);
        host.place();
        host.on_disk_write.borrow_mut().push_back(Box::new(stop));
        let order = Rc::new(Cell::new(0));
        let writes_back = || assert_eq!(mm.file(file).write_back(), Ok(1));
        let writes = || {
            fault(mm, id, AT, UserAccess::Write).unwrap();
            order.set(order.get() + 1);
        };
        let maps = || {
            mm.space(id).map(pages(TO, 1), ANON, Prot::ReadWrite).unwrap();
            order.set(order.get() + 10);
        };
        host.aside(3, writes_back, |writing| {
            assert!(host.resume_one(writing), "the page is on its way out");
            host.aside(1, writes, |waiting| {
                assert!(host.resume_one(waiting), "it must not be written to");
                host.aside(2, maps, |mapping| {
                    assert!(!host.resume_one(mapping), "nobody has the VMAs");
                    fault(mm, id, AT + 1, UserAccess::Read).unwrap();
                    assert_eq!(order.get(), 10, "the write still waits");
                });
                while host.resume_one(writing) {}
            });
        });
        host.all_placed();
        assert_eq!((order.get(), host.torn.get()), (11, 0));
    });
}

#[test]
fn a_fault_that_looks_anew_counts_once() {
    let host = Host::new(Setup { cpus: 2, frames: 512, ..Setup::default() });
    host.run(swapping("linux"), |mm| {
        let id = in_swap(mm);
        let file = mm.create_file(1).unwrap();
        mm.space(id).map(pages(TO, 1), shared(file), Prot::ReadWrite).unwrap();
        for page in [AT, TO] {
            let counted = || [Counter::PgFault, Counter::PgMajFault].map(|counter| mm.counter(counter));
            let before = counted();
            fault(mm, id, page, UserAccess::Read).unwrap();
            assert_eq!(counted(), before.map(|count| count + 1));
        }
        mm.unload();
        swapping::end(mm, &[id], &[DEVICE]);
    });
}

/// While a device reads the page of a fault, all else may happen: here, as CPU 1, `meanwhile`. Then the fault reads the
/// page at `AT`.
fn read_after(
    broken: Option<Rule>,
    meanwhile: impl FnOnce(&Mm<'_>, SpaceId) + 'static,
) -> Result<u64, Error> {
    let host = Host::new(Setup { cpus: 2, ..Setup::default() });
    host.run(bare("linux"), |mm| {
        let file = mm.create_file(1).unwrap();
        let id = mapped(mm, shared(file), 1);
        host.write(mm, id, AT, 7).unwrap();
        mm.file(file).write_back().unwrap();
        mm.space(id).advise(pages(AT, 1), quietmm::Advice::Drop).unwrap();
        mm.drain_lru_batch();
        give_back(mm, exhaust(mm));
        assert_eq!(mm.file(file).cached_pages(), Ok(0));
        host.broken.set(broken);
        host.on_disk_read.borrow_mut().push_back(Box::new(move |mm| {
            mm.platform().on(1, || meanwhile(mm, id));
        }));
        let read = host.read(mm, id, AT);
        assert_eq!(host.stale.get(), 0);
        read
    })
}

#[test]
fn a_fault_maps_what_is_shown_when_its_page_has_been_read() {
    assert_eq!(read_after(None, |_, _| ()), Ok(7));
    let unmaps = |mm: &Mm<'_>, id| mm.space(id).unmap(pages(AT, 1)).unwrap();
    assert_eq!(read_after(None, unmaps), Err(Error::NotMapped(PageNumber(AT))));
    let remaps = move |mm: &Mm<'_>, id| {
        unmaps(mm, id);
        let other = mm.create_file(1).unwrap();
        mm.space(id).map(pages(AT, 1), shared(other), Prot::ReadWrite).unwrap();
    };
    assert_eq!(read_after(None, remaps), Ok(0), "of the file that is there now");
    assert_eq!(read_after(Some(Rule::RetryLooksAnew), remaps), Ok(7));
    let protects = |mm: &Mm<'_>, id| mm.space(id).protect(pages(AT, 1), Prot::None).unwrap();
    assert_eq!(read_after(None, protects), Err(Error::NotPermitted(PageNumber(AT))));
    let forks = |mm: &Mm<'_>, id| {
        let child = mm.space(id).fork().unwrap();
        mm.space(child).destroy().unwrap();
    };
    assert_eq!(read_after(None, forks), Ok(7));
}

#[test]
fn a_file_ends_after_the_read_that_a_fault_has_begun() {
    for fails in [false, true] {
        let host = Host::new(Setup { cpus: 2, ..Setup::default() });
        host.run(bare("linux"), |mm| {
            let file = mm.create_file(2).unwrap();
            let id = mapped(mm, shared(file), 1);
            host.place();
            let ended = Cell::new(false);
            let ends = || {
                mm.space(id).unmap(pages(AT, 1)).unwrap();
                mm.file(file).destroy().unwrap();
                ended.set(true);
            };
            host.aside(1, ends, |ending| {
                let resume = |mm: &Mm<'_>| _ = mm.platform().resume();
                host.on_disk_read.borrow_mut().push_back(Box::new(resume));
                if fails {
                    // The hook comes with a read that the device takes.
                    host.refuse_reads.set(Some(|_, _| Some(quietmm::platform::DeviceError::Failed)));
                    host.resume_one(ending);
                }
                let done = fault(mm, id, AT, UserAccess::Read);
                assert_eq!(done, Err(Error::NotMapped(PageNumber(AT))));
                assert!(fails || !ended.get(), "until the page is there");
            });
            host.all_placed();
            assert_eq!(mm.file(file).cached_pages(), Err(Error::NoSuchFile));
            assert_eq!(settled(mm).file, 0);
        });
    }
}

#[test]
fn what_a_fault_has_read_is_still_there_when_it_looks_anew() {
    const MANY: usize = 20;
    let setup = Setup { cpus: 2, frames: 256, ..Setup::default() };
    let config = Config { lru_batch: 1, ..bare("linux") };
    let reads = race::at_every_touch(&setup, &config, None, |mm, place| {
        let host = mm.platform();
        let file = mm.create_file(1).unwrap();
        let id = mapped(mm, shared(file), 1);
        (0..MANY).for_each(|_| host.on_disk_read.borrow_mut().push_back(Box::new(|_| ())));
        // The other CPU reclaims all that it can, and for a moment it has all memory.
        let done = Cell::new(Ok(()));
        let faults = || done.set(fault(mm, id, AT, UserAccess::Read));
        race::race(mm, place, faults, || give_back(mm, exhaust(mm)));
        (done.get(), MANY - host.on_disk_read.borrow().len())
    });
    assert!(reads.count(|&seen| seen == (Ok(()), 1)) > 50, "{:?}", reads.results);
    let is_right = |&seen: &_| matches!(seen, (Ok(()), 1) | (Err(Error::OutOfMemory), 0 | 1));
    assert_eq!(reads.count(|seen| !is_right(seen)), 0, "{:?}", reads.results);
}
