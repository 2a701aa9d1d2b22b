//! Fault-around: which neighbours a read fault maps, how, and that it gets in nobody's way.

use crate::machine;

use machine::faults::{machine as small, reclaim_all};
use machine::race::{at_every_touch, race};
use machine::showing::{AT, entry, mapped, private, shared};
use machine::{Host, Mm, Setup, bare, pages, settled, ticks};
use quietmm::addr::PAGE_SIZE;
use quietmm::platform::Memory;
use quietmm::{Backing, Config, Counter, Entry, Error, FileId, PageNumber, Prot, Rule, SpaceId, UserAccess};

fn around(policy: &str, pages: u32) -> Config {
    Config { fault_around: pages, ..bare(policy) }
}

/// A file of so many pages, all in memory; each has its number.
fn cached(mm: &Mm<'_>, count: u64) -> FileId {
    let file = mm.create_file(count).unwrap();
    for page in 0..count {
        mm.file(file).write(page * PAGE_SIZE, &page.to_ne_bytes()).unwrap();
    }
    mm.file(file).write_back().unwrap();
    mm.drain_lru_batch();
    file
}

fn present(mm: &Mm<'_>, id: SpaceId, count: u64) -> Vec<u64> {
    (0..count).filter(|page| entry(mm, id, AT + page).is_present()).collect()
}

#[test]
fn a_read_fault_maps_an_aligned_window_of_what_is_in_memory() {
    let faults = |window: u32, shown: fn(FileId) -> Backing| {
        let host = small(1, None);
        host.run(around("linux", window), |mm| {
            let file = cached(mm, 40);
            let id = mapped(mm, shown(file), 40);
            let before = mm.counter(Counter::PgFault);
            (0..40).for_each(|page| assert_eq!(host.read(mm, id, AT + page), Ok(page)));
            (mm.counter(Counter::PgFault) - before, mm.counter(Counter::FaultAround))
        })
    };
    for shown in [shared, private] {
        // `AT` is 8 pages before a border.
        assert_eq!(faults(16, shown), (3, 37));
        assert_eq!(faults(64, shown), (2, 38));
        assert_eq!(faults(1, shown), (40, 0), "control");
    }
}

#[test]
fn a_neighbour_is_not_accessed_and_cannot_be_written() {
    for policy in ["linux", "quiet", "vanilla"] {
        let host = small(1, None);
        host.run(around(policy, 16), |mm| {
            let file = cached(mm, 8);
            let id = mapped(mm, shared(file), 8);
            host.read(mm, id, AT + 2).unwrap();
            let sets = host.architecture().sets_accessed();
            for page in (0..8).filter(|&page| page != 2) {
                let now = entry(mm, id, AT + page);
                assert!(
                    now.permits(UserAccess::Read) && !now.permits(UserAccess::Write),
                    "{policy}: {now:?}"
                );
                assert_eq!(now.has(Entry::ACCESSED), !sets, "{policy}: {now:?}");
            }
            assert!(entry(mm, id, AT + 2).has(Entry::ACCESSED));
            // The first use says so; the first write is a fault.
            assert_eq!(host.read(mm, id, AT + 3), Ok(3));
            assert!(entry(mm, id, AT + 3).has(Entry::ACCESSED));
            host.write(mm, id, AT + 4, 44).unwrap();
            assert_eq!(host.read(mm, id, AT + 4), Ok(44));
            mm.file(file).write_back().unwrap();
            assert_eq!(host.on_disk(file, 4), Some(44));
        });
    }
}

#[test]
fn what_was_only_mapped_around_goes_first() {
    for policy in ["linux", "quiet"] {
        let host = small(1, None);
        host.run(Config { scan_batch: 4, ..around(policy, 16) }, |mm| {
            let id = mapped(mm, shared(cached(mm, 8)), 8);
            host.read(mm, id, AT).unwrap();
            host.read(mm, id, AT + 1).unwrap();
            // Two sweeps: none was used since the first.
            (0..2).for_each(|_| {
                mm.begin_sweep();
                ticks(mm, &[0]);
                assert!(mm.sweep_is_over());
            });
            let mut held = Vec::new();
            while present(mm, id, 8).len() > 4 {
                held.push(mm.frames().alloc(0, quietmm::AllocFrom::HERE).unwrap());
            }
            let left = present(mm, id, 8);
            assert!(left.contains(&0) && left.contains(&1), "{policy}: {left:?} are left");
            machine::give_back(mm, held);
        });
    }
}

#[test]
fn only_neighbours_that_are_clean_and_at_rest_are_mapped() {
    let shown = |broken: Option<Rule>, change: fn(&Mm<'_>, FileId)| {
        let host = small(2, broken);
        host.run(around("linux", 16), |mm| {
            let file = cached(mm, 8);
            let id = mapped(mm, shared(file), 8);
            change(mm, file);
            host.read(mm, id, AT).unwrap();
            let shown = present(mm, id, 8);
            host.on_disk_read.borrow_mut().clear();
            shown
        })
    };
    let all: Vec<u64> = (0..8).collect();
    assert_eq!(shown(None, |_, _| ()), all, "control");
    // Not in memory; dirty.
    assert_eq!(shown(None, |mm, file| _ = mm.file(file).evict(1, 6).unwrap()), [0, 7]);
    let dirty = |mm: &Mm<'_>, file: FileId| _ = mm.file(file).write(3 * PAGE_SIZE, &[3]).unwrap();
    assert_eq!(shown(None, dirty), [0, 1, 2, 4, 5, 6, 7]);
    assert_eq!(shown(Some(Rule::AroundLooksAtPages), dirty), all);
    // Behind the end of the file.
    assert_eq!(shown(None, |mm, file| mm.file(file).set_size(3 * PAGE_SIZE).unwrap()), [0, 1, 2]);
}

#[test]
fn a_page_on_its_way_from_or_to_the_device_is_left_alone() {
    let host = small(2, None);
    host.run(around("linux", 16), |mm| {
        let file = cached(mm, 8);
        let id = mapped(mm, shared(file), 8);
        mm.file(file).evict(3, 1).unwrap();
        mm.file(file).write(5 * PAGE_SIZE, &55u64.to_ne_bytes()).unwrap();
        let look = move |mm: &Mm<'_>| {
            mm.platform().on(1, || {
                mm.space(id).switch_to().unwrap();
                mm.platform().read(mm, id, AT).unwrap();
            });
        };
        // While page 5 is written out, and page 3 is read.
        host.on_disk_write.borrow_mut().push_back(Box::new(look));
        mm.file(file).write_back().unwrap();
        assert_eq!(present(mm, id, 8), [0, 1, 2, 4, 6, 7]);
        mm.space(id).advise(pages(AT, 8), quietmm::Advice::Drop).unwrap();
        host.on_disk_read.borrow_mut().push_back(Box::new(look));
        mm.file(file).read(3 * PAGE_SIZE, &mut [0; 8]).unwrap();
        assert_eq!(present(mm, id, 8), [0, 1, 2, 4, 5, 6, 7]);
        assert_eq!([3, 5].map(|page| host.read(mm, id, AT + page)), [Ok(3), Ok(55)]);
    });
}

#[test]
fn copies_and_other_mappings_stay_as_they_are() {
    let host = small(1, None);
    host.run(around("linux", 16), |mm| {
        let file = cached(mm, 16);
        let id = mm.create_space().unwrap();
        let space = mm.space(id);
        space.switch_to().unwrap();
        // Of the window the file is mapped in a part, from another page on.
        space.map(pages(AT + 2, 4), Backing::Private { file, offset: 9 }, Prot::ReadWrite).unwrap();
        host.write(mm, id, AT + 3, 33).unwrap();
        let copy = entry(mm, id, AT + 3);
        assert_eq!(present(mm, id, 8), [3], "a write maps its page alone");
        assert_eq!(host.read(mm, id, AT + 2), Ok(9));
        assert_eq!(present(mm, id, 8), [2, 3, 4, 5]);
        assert_eq!(entry(mm, id, AT + 3).frame(), copy.frame());
        assert_eq!([3, 4, 5].map(|page| host.read(mm, id, AT + page)), [Ok(33), Ok(11), Ok(12)]);
        // What may not be used at all is not mapped by a neighbour's fault.
        space.unmap(pages(AT + 2, 4)).unwrap();
        space.map(pages(AT, 4), shared(file), Prot::Read).unwrap();
        space.protect(pages(AT + 2, 2), Prot::None).unwrap();
        host.read(mm, id, AT).unwrap();
        assert_eq!(present(mm, id, 8), [0, 1]);
        assert_eq!(host.read(mm, id, AT + 2), Err(Error::NotPermitted(PageNumber(AT + 2))));
    });
}

/// Something done to a file, or to the space that shows it.
type Does = fn(&Mm<'_>, SpaceId, FileId);

/// CPU 0 faults on the first page, and CPU 1 does something with its neighbours meanwhile; whether both see what is in the file after it.
fn sees_one_file(policy: &str, broken: Option<Rule>, meanwhile: Does, again: Does) -> usize {
    let setup = Setup { cpus: 3, frames: 256, ..Setup::default() };
    let cases = at_every_touch(&setup, &around(policy, 4), broken, |mm, place| {
        let host = mm.platform();
        let file = cached(mm, 4);
        let id = mapped(mm, shared(file), 4);
        host.on(1, || mm.space(id).switch_to().unwrap());
        race(mm, place, || _ = host.read(mm, id, AT), || meanwhile(mm, id, file));
        again(mm, id, file);
        mm.file(file).write(PAGE_SIZE, &77u64.to_ne_bytes()).unwrap();
        let sees = |cpu| host.on(cpu, || host.read(mm, id, AT + 1));
        let sound = [0, 1].map(sees) == [Ok(77); 2] && host.stale.get() == 0;
        if broken.is_none() {
            settled(mm);
        }
        sound
    });
    assert!(cases.results.len() > 50 || broken.is_some());
    cases.count(|sound| !sound)
}

#[test]
fn a_neighbour_that_is_cut_off_meanwhile_is_not_mapped() {
    let cut: Does = |mm, _, file| mm.file(file).set_size(PAGE_SIZE).unwrap();
    let grow: Does = |mm, _, file| mm.file(file).set_size(4 * PAGE_SIZE).unwrap();
    let hole: Does = |mm, _, file| mm.file(file).punch_hole(PAGE_SIZE, PAGE_SIZE).unwrap();
    for policy in ["linux", "quiet"] {
        assert_eq!(sees_one_file(policy, None, cut, grow), 0);
        assert_eq!(sees_one_file(policy, None, hole, |_, _, _| ()), 0);
        assert!(sees_one_file(policy, Some(Rule::AroundLooksAtPages), cut, grow) > 0);
        assert!(sees_one_file(policy, Some(Rule::AroundLooksAtPages), hole, |_, _, _| ()) > 0);
    }
}

#[test]
fn neighbours_that_are_reclaimed_unmapped_or_written_meanwhile_are_one_page() {
    let nothing: Does = |_, _, _| ();
    let remap: Does = |mm, id, file| {
        mm.space(id).map(pages(AT + 1, 1), Backing::File { file, offset: 1 }, Prot::ReadWrite).unwrap();
    };
    let cases: [(Does, Does); 4] = [
        (|mm, _, _| reclaim_all(mm), nothing),
        (|mm, id, _| mm.space(id).unmap(pages(AT + 1, 1)).unwrap(), remap),
        (|mm, id, _| mm.platform().write(mm, id, AT + 1, 5).unwrap(), nothing),
        (|mm, id, _| mm.space(id).protect(pages(AT, 4), Prot::Read).unwrap(), nothing),
    ];
    for policy in ["linux", "quiet"] {
        for (meanwhile, again) in cases {
            assert_eq!(sees_one_file(policy, None, meanwhile, again), 0, "{policy}");
        }
    }
}

#[test]
fn only_a_power_of_two_is_taken_for_a_window() {
    for (pages, good) in [(0, false), (1, true), (12, false), (64, true), (128, false)] {
        let host = Host::new(Setup::default());
        assert_eq!(host.make(around("linux", pages)).is_ok(), good);
    }
}

/// Of what a space has in swap, or has said that nobody may use, nothing is lost to a neighbour's fault.
#[test]
fn a_copy_that_is_in_swap_stays_there() {
    let host = small(1, None);
    host.run(Config { swap: true, lru_batch: 1, ..around("linux", 16) }, |mm| {
        mm.swap().on(machine::swapping::DEVICE, 512, 0).unwrap();
        let file = cached(mm, 8);
        let id = mapped(mm, private(file), 8);
        host.write(mm, id, AT + 3, 33).unwrap();
        mm.space(id).advise(pages(AT + 3, 1), quietmm::Advice::PageOut).unwrap();
        assert!(entry(mm, id, AT + 3).is_swapped());
        assert_eq!(host.read(mm, id, AT + 2), Ok(2));
        assert_eq!(present(mm, id, 8), [0, 1, 2, 4, 5, 6, 7]);
        assert_eq!(host.read(mm, id, AT + 3), Ok(33));
        settled(mm);
    });
}
