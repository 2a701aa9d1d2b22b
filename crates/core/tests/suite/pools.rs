//! Memory for what the core keeps comes back: mappings, `anon_vma`s, batches.

use crate::machine;

use std::cell::Cell;
use std::rc::Rc;

use machine::showing::ANON;
use machine::swapping::{squeeze, swapping};
use machine::{Host, Mm, Setup, bare, pages, settled};
use quietmm::{Config, Error, PageNumber, Prot, SpaceId, UserAccess};

const AT: u64 = 0x1000;

/// Maps single pages, with holes between them, until that fails; returns how many, and why it failed.
fn map_all(mm: &Mm<'_>, id: SpaceId) -> (u64, Error) {
    for n in 0.. {
        if let Err(error) = mm.space(id).map(pages(AT + 2 * n, 1), ANON, Prot::ReadWrite) {
            return (n, error);
        }
    }
    unreachable!()
}

/// Each pool has its first slab.
fn warm(mm: &Mm<'_>) -> quietmm::Audit {
    let id = mm.create_space().unwrap();
    mm.space(id).map(pages(AT, 1), ANON, Prot::ReadWrite).unwrap();
    mm.space(id).fault(PageNumber(AT).addr(), UserAccess::Write).unwrap();
    mm.space(id).destroy().unwrap();
    settled(mm)
}

fn greedy(swap: bool) -> Config {
    Config { max_map_count: u32::MAX, ..if swap { swapping("linux") } else { bare("linux") } }
}

#[test]
fn what_a_greedy_space_took_is_back_when_it_ends() {
    for swap in [false, true] {
        let host = Host::new(Setup { frames: 1024, ..Setup::default() });
        host.run(greedy(swap), |mm| {
            let before = warm(mm);
            for _ in 0..3 {
                let id = mm.create_space().unwrap();
                let (count, error) = map_all(mm, id);
                let full = settled(mm);
                assert_eq!(error, Error::OutOfMemory);
                assert!(count > 10_000 && full.free < 16, "{count} mappings, {} frames left", full.free);
                assert!(full.pools > before.pools + 500);
                mm.space(id).destroy().unwrap();
                let after = settled(mm);
                assert_eq!((after.broken, after.pools, after.free), (None, before.pools, before.free));
            }
        });
    }
}

/// Slabs of which others have a slot stay, and all others go.
#[test]
fn a_slab_goes_when_its_last_slot_is_free() {
    let host = Host::new(Setup::default());
    host.run(greedy(true), |mm| {
        let before = warm(mm);
        let [kept, gone] = [0, 1].map(|_| mm.create_space().unwrap());
        // By turns, so that they share their slabs, and then the second alone.
        for n in 0..200 {
            for id in [kept, gone] {
                mm.space(id).map(pages(AT + 2 * n, 1), ANON, Prot::ReadWrite).unwrap();
            }
        }
        let shared = settled(mm).pools;
        for n in 200..2000 {
            mm.space(gone).map(pages(AT + 2 * n, 1), ANON, Prot::ReadWrite).unwrap();
        }
        assert!(settled(mm).pools > shared + 50);
        mm.space(gone).destroy().unwrap();
        // One slab of each pool may be kept with nothing in it.
        assert!((shared..=shared + 2).contains(&settled(mm).pools), "{} of {shared}", settled(mm).pools);
        // What is left is used first.
        let again = mm.create_space().unwrap();
        (0..150).for_each(|n| mm.space(again).map(pages(AT + 2 * n, 1), ANON, Prot::ReadWrite).unwrap());
        assert!(settled(mm).pools <= shared + 2);
        mm.space(again).destroy().unwrap();
        mm.space(kept).destroy().unwrap();
        assert_eq!((settled(mm).pools, settled(mm).free), (before.pools, before.free));
    });
}

#[test]
fn a_slot_that_is_taken_and_given_back_costs_no_frame_each_time() {
    let host = Host::new(Setup::default());
    host.run(bare("linux"), |mm| {
        let id = mm.create_space().unwrap();
        // As many as fill slabs to the last slot.
        for count in 1..100 {
            mm.space(id).map(pages(AT + 2 * count, 1), ANON, Prot::ReadWrite).unwrap();
            let map = |n: u64| {
                mm.space(id).map(pages(n, 1), ANON, Prot::ReadWrite).unwrap();
                mm.space(id).unmap(pages(n, 1)).unwrap();
            };
            map(0x10);
            host.forget();
            (0..20).for_each(|_| map(0x10));
            let freed =
                host.count(|what| matches!(what, machine::Happened::Event(quietmm::Event::Freed { .. })));
            assert_eq!(freed, 0, "after {count} mappings");
        }
    });
}

#[test]
fn a_space_has_as_many_mappings_as_it_may() {
    let host = Host::new(Setup::default());
    host.run(Config { max_map_count: 5, ..bare("linux") }, |mm| {
        let id = mm.create_space().unwrap();
        let full = Error::MapCount { most: 5 };
        assert_eq!(map_all(mm, id), (5, full));
        mm.space(id).unmap(pages(AT, 1)).unwrap();
        mm.space(id).map(pages(AT + 20, 3), ANON, Prot::ReadWrite).unwrap();
        // What would make two of one, or three.
        assert_eq!(mm.space(id).unmap(pages(AT + 21, 1)), Err(full));
        assert_eq!(mm.space(id).protect(pages(AT + 21, 1), Prot::Read), Err(full));
        assert_eq!(mm.space(id).move_range(pages(AT + 2, 1), PageNumber(AT + 40)), Err(full));
        assert_eq!(mm.space(id).map(pages(AT, 1), ANON, Prot::Read), Err(full));
        // Nothing has changed, and another space has its own count.
        assert_eq!(mm.space(id).unmap(pages(AT + 20, 3)), Ok(()));
        let child = mm.space(id).fork().unwrap();
        mm.space(child).map(pages(AT + 20, 3), ANON, Prot::ReadWrite).unwrap();
        assert_eq!(mm.space(child).unmap(pages(AT + 21, 1)), Err(full));
        mm.space(child).unmap(pages(AT + 20, 1)).unwrap();
    });
    let refused = Host::new(Setup::default());
    let none = refused.make(Config { max_map_count: 0, ..bare("linux") });
    assert_eq!(none.err(), Some(Error::BadSetting("max_map_count must be at least 1")));
}

/// While a walk looks at `anon_vma`s many of them end: their slabs stay with the pool until nobody looks, and then go.
#[test]
fn slabs_that_somebody_may_look_into_go_later() {
    let host = Host::new(Setup { frames: 2048, ..Setup::default() });
    host.run(greedy(true), |mm| {
        mm.swap().on(7, 512, 0).unwrap();
        let before = warm(mm);
        let (looked_at, goes) = (mm.create_space().unwrap(), mm.create_space().unwrap());
        mm.space(looked_at).map(pages(AT, 1), ANON, Prot::ReadWrite).unwrap();
        mm.space(looked_at).fault(PageNumber(AT).addr(), UserAccess::Write).unwrap();
        mm.drain_lru_batch();
        let child = mm.space(looked_at).fork().unwrap();
        let small = settled(mm).pools;
        let map_many = |id| {
            (0..600).for_each(|n| mm.space(id).map(pages(AT + 2 * n, 1), ANON, Prot::ReadWrite).unwrap());
        };
        map_many(goes);
        let large = settled(mm).pools;
        assert!(large > small + 10, "{large} frames, {small} before");
        let kept = Rc::new(Cell::new(None));
        let seen = Rc::clone(&kept);
        // Between the two spaces that the walk comes by.
        host.at_cond_resched(move |mm| {
            if seen.get().is_none() && mm.space(goes).destroy().is_ok() {
                seen.set(Some(mm.validate().pools));
            }
        });
        squeeze(mm);
        *host.on_cond_resched.borrow_mut() = None;
        let kept = kept.get().expect("the walk gave way");
        assert_eq!(kept, large, "all stay while it looks");
        // Whoever is next takes them along.
        let again = mm.create_space().unwrap();
        map_many(again);
        mm.space(again).destroy().unwrap();
        [looked_at, child].into_iter().for_each(|id| mm.space(id).destroy().unwrap());
        mm.swap().off(7).unwrap();
        let after = settled(mm);
        assert_eq!((after.broken, after.anon), (None, 0));
        assert!(after.pools <= before.pools + 2, "{} frames, {} before", after.pools, before.pools);
    });
}

/// Frames that were slabs of one pool become slabs of another, which does not begin with what was noted about them.
#[test]
fn frames_that_were_slabs_serve_as_slabs_of_something_else() {
    use machine::kernel::{BARE, RW, frames, free, kernel};
    const EXTENTS: usize = 3000;
    let host = Host::new(Setup::default());
    host.run(Config { max_map_count: u32::MAX, ..kernel("linux", 8192) }, |mm| {
        let id = mm.create_space().unwrap();
        for _ in 0..2 {
            (0..1500).for_each(|n| mm.space(id).map(pages(AT + 2 * n, 1), ANON, Prot::ReadWrite).unwrap());
            (0..1500).for_each(|n| mm.space(id).unmap(pages(AT + 2 * n, 1)).unwrap());
        }
        let list = frames(mm, 1);
        for round in 0..3 {
            let mut live: Vec<_> =
                (0..EXTENTS).map(|_| mm.vmap().map(&list, BARE, RW).unwrap().start).collect();
            live.sort_unstable();
            assert!(live.windows(2).all(|pair| pair[0] < pair[1]), "round {round}: each has its own");
            assert_eq!(settled(mm).broken, None);
            live.into_iter().for_each(|at| mm.vmap().unmap(at).unwrap());
            // All become one, and most of the slots are nobody's.
            let whole = mm.vmap().map(&vec![list[0]; 8192], BARE, RW).unwrap();
            mm.vmap().unmap(whole.start).unwrap();
            assert_eq!(settled(mm).broken, None);
        }
        free(mm, list);
    });
}

/// Two mappings are to move, and there is room for one: neither does, and the place is free.
#[test]
fn a_move_of_two_mappings_of_which_one_fits_moves_none() {
    let host = Host::new(Setup::default());
    host.run(Config { max_map_count: 4, ..bare("linux") }, |mm| {
        let id = mm.create_space().unwrap();
        mm.space(id).map(pages(AT, 2), ANON, Prot::ReadWrite).unwrap();
        mm.space(id).map(pages(AT + 2, 2), ANON, Prot::Read).unwrap();
        mm.space(id).map(pages(AT + 20, 1), ANON, Prot::Read).unwrap();
        mm.space(id).switch_to().unwrap();
        host.write(mm, id, AT, 5).unwrap();
        let to = AT + 100;
        for _ in 0..2 {
            let moved = mm.space(id).move_range(pages(AT, 4), PageNumber(to));
            assert_eq!(moved, Err(Error::MapCount { most: 4 }));
            assert_eq!(host.read(mm, id, AT), Ok(5));
            mm.space(id).map(pages(to, 4), ANON, Prot::Read).unwrap();
            mm.space(id).unmap(pages(to, 4)).unwrap();
        }
        mm.space(id).unmap(pages(AT + 20, 1)).unwrap();
        mm.space(id).move_range(pages(AT, 4), PageNumber(to)).unwrap();
        assert_eq!((host.read(mm, id, to), settled(mm).broken), (Ok(5), None));
    });
}

/// What is mapped piece by piece is one mapping, upwards and downwards.
#[test]
fn pieces_that_are_mapped_side_by_side_are_one_mapping() {
    for swap in [false, true] {
        let host = Host::new(Setup::default());
        host.run(Config { swap, max_map_count: 2, ..bare("linux") }, |mm| {
            let id = mm.create_space().unwrap();
            let map = |at, prot| mm.space(id).map(pages(at, 1), ANON, prot);
            for n in [5, 6, 7, 4, 3, 2, 8, 1] {
                assert_eq!(map(AT + n, Prot::ReadWrite), Ok(()), "{swap} {n}");
            }
            // What is of another kind is another.
            assert_eq!(map(AT + 9, Prot::Read), Ok(()));
            assert_eq!(map(AT + 20, Prot::Read), Err(Error::MapCount { most: 2 }));
            mm.space(id).destroy().unwrap();
        });
    }
}

/// A mapping for which there is a slot, and none for its `anon_vma`, and no memory: the slot is for the next one, however often that is tried.
#[test]
fn a_mapping_that_is_refused_for_its_anon_vma_keeps_no_slot() {
    let host = Host::new(Setup { frames: 512, ..Setup::default() });
    host.run(greedy(true), |mm| {
        let id = mm.create_space().unwrap();
        let file = mm.create_file(1).unwrap();
        let shown = quietmm::Backing::File { file, offset: 0 };
        let map = |n: u64, backing| mm.space(id).map(pages(AT + 2 * n, 1), backing, Prot::Read);
        (0..400).for_each(|n| map(n, shown).unwrap());
        let held = machine::swapping::take_free(mm);
        // Every other one goes: slots are free, and no slab.
        (0..400).step_by(2).for_each(|n| mm.space(id).unmap(pages(AT + 2 * n, 1)).unwrap());
        let own = (1000..).take_while(|&n| map(n, ANON).is_ok()).count() as u64;
        assert!(own < 100, "{own} have an `anon_vma`, and there are 200 slots");
        (0..300).for_each(|_| assert_eq!(map(5000, ANON), Err(Error::OutOfMemory)));
        (0..100).for_each(|n| assert_eq!(map(6000 + n, shown), Ok(())));
        machine::give_back(mm, held);
        mm.space(id).destroy().unwrap();
        assert_eq!(settled(mm).broken, None);
    });
}
