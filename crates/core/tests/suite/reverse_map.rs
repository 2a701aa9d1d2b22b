//! The reverse map: whom a page's walk visits, what that costs, and what may happen where it lets others go on.

use crate::machine;

use std::cell::Cell;
use std::rc::Rc;

use machine::showing::{AT, TO, mapped, shared};
use machine::swapping::{self, DEVICE, anonymous, is_out, reclaim, swapping, take_free};
use machine::{Happened, Host, Mm, Setup, bare, give_back, pages};
use quietmm::{Backing, Config, Event, FileId, PageNumber, Prot, Rule, SpaceId};

/// Others may go on now and then, as by default.
fn ordinary() -> Config {
    Config { resched_after: 1024, ..bare("linux") }
}

fn space_with(mm: &Mm<'_>, file: FileId, offset: u64, count: u64) -> SpaceId {
    let id = mm.create_space().unwrap();
    mm.space(id).map(pages(AT, count), Backing::File { file, offset }, Prot::ReadWrite).unwrap();
    id
}

/// Touches of shared memory that it takes to write back page 4 of a file, which `here` spaces map, and of which `elsewhere`
/// map other pages.
fn cost_of_a_walk(here: u64, elsewhere: u64) -> u32 {
    let host = Host::new(Setup { frames: 16_000, ..Setup::default() });
    host.run(ordinary(), |mm| {
        let file = mm.create_file(8).unwrap();
        let first = mapped(mm, shared(file), 8);
        (1..here).for_each(|n| _ = space_with(mm, file, 1 + n % 4, 4));
        for n in 0..elsewhere {
            match n % 4 {
                0 => space_with(mm, file, 0, 1 + n % 3),
                1 => space_with(mm, file, n % 3, 4 - n % 3),
                2 => space_with(mm, file, 5 + n % 3, 1),
                _ => space_with(mm, file, 5, 3),
            };
        }
        host.write(mm, first, AT + 4, 1).unwrap();
        let before = host.touches_of(0);
        assert_eq!(mm.file(file).write_back(), Ok(1));
        host.touches_of(0) - before
    })
}

#[test]
fn a_walk_costs_what_those_cost_who_map_the_page_however_many_map_the_file() {
    let (few, many) = (cost_of_a_walk(10, 0), cost_of_a_walk(10, 9_990));
    assert!(many < 3 * few, "{few} touches with 10 spaces, {many} with 10,000");
    // What is counted grows with those who map this page.
    let all = cost_of_a_walk(1_000, 0);
    assert!(all > 30 * few, "{few} touches with 10 spaces, {all} with 1,000");
}

#[test]
fn who_comes_and_goes_waits_for_a_part_of_a_walk() {
    let host = Host::new(Setup { cpus: 2, frames: 8192, ..Setup::default() });
    host.run(ordinary(), |mm| {
        let file = mm.create_file(4).unwrap();
        let id = mapped(mm, shared(file), 1);
        (0..300).for_each(|_| _ = space_with(mm, file, 0, 1));
        host.write(mm, id, AT, 1).unwrap();
        let met = Rc::new(Cell::new(0));
        let count = Rc::clone(&met);
        host.at_cond_resched(move |mm| {
            // On a stack above the walk's: if that had the lock of the tree, this would wait for ever.
            mm.platform().on(1, || {
                let new = space_with(mm, file, count.get(), 1);
                mm.space(new).destroy().unwrap();
            });
            count.set(count.get() + 1);
        });
        assert_eq!(mm.file(file).write_back(), Ok(1));
        assert!(met.get() >= 3, "{} times", met.get());
    });
}

/// A walk for the second page of a file has visited one space that shows it, and gives way; meanwhile another joins a VMA
/// that shows this page with the one before it. Returns whether its program could then write to the page while the
/// device had it.
fn written_behind_a_walk(broken: Option<Rule>) -> bool {
    let host = Host::new(Setup { cpus: 2, ..Setup::default() });
    host.broken.set(broken);
    host.run(bare("linux"), |mm| {
        let file = mm.create_file(2).unwrap();
        let joins = mapped(mm, shared(file), 2);
        mm.space(joins).protect(pages(AT, 1), Prot::Read).unwrap();
        host.write(mm, joins, AT + 1, 1).unwrap();
        let other = space_with(mm, file, 0, 2);
        host.on(1, || mm.space(other).switch_to().unwrap());
        host.on(1, || host.write(mm, other, AT + 1, 2)).unwrap();
        let joined = Rc::new(Cell::new(false));
        let once = Rc::clone(&joined);
        host.at_cond_resched(move |mm| {
            if !once.replace(true) {
                mm.space(joins).protect(pages(AT, 1), Prot::ReadWrite).unwrap();
            }
        });
        let written = Rc::new(Cell::new(false));
        let seen = Rc::clone(&written);
        host.on_disk_write.borrow_mut().push_back(Box::new(move |mm| {
            seen.set(mm.platform().on(0, || mm.platform().try_write(AT + 1, 3)));
        }));
        host.on(1, || assert_eq!(mm.file(file).write_back(), Ok(1)));
        assert!(joined.get());
        assert_eq!(written.get(), host.torn.get() > 0);
        written.get()
    })
}

#[test]
fn what_was_merged_behind_a_walk_is_visited_all_the_same() {
    assert!(!written_behind_a_walk(None));
    assert!(written_behind_a_walk(Some(Rule::RewalkAfterMerge)));
}

#[test]
fn a_walk_that_is_overtaken_again_and_again_comes_to_an_end() {
    let host = Host::new(Setup { cpus: 2, ..Setup::default() });
    host.run(bare("linux"), |mm| {
        let file = mm.create_file(2).unwrap();
        let joins = mapped(mm, shared(file), 2);
        host.write(mm, joins, AT + 1, 1).unwrap();
        (0..4).for_each(|_| _ = space_with(mm, file, 0, 2));
        let (merges, over) = (Cell::new(0), Cell::new(false));
        let merge = || {
            while !over.get() {
                mm.space(joins).protect(pages(AT, 1), Prot::Read).unwrap();
                mm.space(joins).protect(pages(AT, 1), Prot::ReadWrite).unwrap();
                merges.set(merges.get() + 1);
                host.stop();
            }
        };
        host.place();
        host.aside(1, merge, |_| {
            host.at_cond_resched(|mm| {
                if !mm.platform().is_aside() {
                    mm.platform().resume();
                }
            });
            assert_eq!(mm.file(file).write_back(), Ok(1));
            host.on_cond_resched.take();
            // From some time on the walk kept the lock.
            assert!((3..10).contains(&merges.get()), "{} merges", merges.get());
            over.set(true);
        });
        host.all_placed();
    });
}

#[test]
fn a_walk_comes_by_an_entry_that_a_fork_copies_before_it() {
    let host = Host::new(Setup { cpus: 2, frames: 512, ..Setup::default() });
    host.run(swapping("linux"), |mm| {
        mm.swap().on(DEVICE, 512, 0).unwrap();
        let parent = anonymous(mm, 1);
        let child = mm.space(parent).fork().unwrap();
        mm.drain_lru_batch();
        mm.unload();
        // What the fork needs comes back in the middle.
        let mut held = take_free(mm);
        let spare = Cell::new(Some(held.split_off(held.len() - 16)));
        host.forget();
        let third = Rc::new(Cell::new(None));
        let made = Rc::clone(&third);
        host.at_cond_resched(move |mm| {
            let host = mm.platform();
            let taken = host.count(|what| matches!(what, Happened::Event(Event::Unmapped { .. })));
            // Reclaim has taken the parent's entry, and comes to the child's next.
            if taken == 1
                && let Some(spare) = spare.take()
            {
                host.on(1, || {
                    give_back(mm, spare);
                    made.set(Some(mm.space(child).fork().unwrap()));
                });
            }
        });
        reclaim(mm);
        reclaim(mm);
        host.on_cond_resched.take();
        give_back(mm, held);
        let spaces = [parent, child, third.get().expect("the walk gave way in the middle")];
        assert!(spaces.iter().all(|&id| is_out(mm, id, swapping::AT)), "one walk found all entries");
        swapping::end(mm, &spaces, &[DEVICE]);
    });
}

#[test]
fn a_page_is_found_wherever_a_move_has_got_to() {
    const COUNT: u64 = 100;
    let host = Host::new(Setup { cpus: 2, ..Setup::default() });
    host.run(bare("linux"), |mm| {
        let file = mm.create_file(COUNT).unwrap();
        let id = mapped(mm, shared(file), COUNT);
        (AT..AT + COUNT).for_each(|page| host.write(mm, id, page, page).unwrap());
        let (times, inside) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(false)));
        let count = Rc::clone(&times);
        host.at_cond_resched(move |mm| {
            let host = mm.platform();
            if inside.replace(true) {
                return;
            }
            (0..COUNT).for_each(|_| {
                host.on_disk_write.borrow_mut().push_back(Box::new(move |mm| {
                    let host = mm.platform();
                    let last = host.log.borrow().last().copied();
                    let Some(Happened::DiskWrite(_, page)) = last else { panic!("a write was noted") };
                    assert!(!host.on(0, || host.try_write(AT + page, 1) || host.try_write(TO + page, 1)));
                }));
            });
            host.on(1, || mm.file(file).write_back()).unwrap();
            host.on_disk_write.borrow_mut().clear();
            count.set(count.get() + 1);
            inside.set(false);
        });
        mm.space(id).move_range(pages(AT, COUNT), PageNumber(TO)).unwrap();
        host.on_cond_resched.take();
        assert!(times.get() > 3, "{} times", times.get());
        assert!((0..COUNT).all(|n| host.read(mm, id, TO + n) == Ok(AT + n)));
        assert!((0..COUNT).all(|n| host.on_disk(file, n) == Some(AT + n)));
        assert_eq!((host.torn.get(), host.stale.get()), (0, 0));
    });
}

/// Touches of shared memory that it takes to reclaim the page of a file which one space has used, of so many that map it.
fn cost_of_reclaim(mapping: u64) -> u32 {
    let host = Host::new(Setup { frames: 4096, ..Setup::default() });
    host.run(ordinary(), |mm| {
        let file = mm.create_file(1).unwrap();
        let first = mapped(mm, shared(file), 1);
        (1..mapping).for_each(|_| _ = space_with(mm, file, 0, 1));
        assert_eq!(host.read(mm, first, AT), Ok(0));
        mm.drain_lru_batch();
        let held = take_free(mm);
        let before = host.touches_of(0);
        let freed = mm.frames().alloc(0, quietmm::AllocFrom::HERE);
        let cost = host.touches_of(0) - before;
        give_back(mm, held);
        mm.frames().free(freed.unwrap());
        assert!(!mm.space(first).lookup(PageNumber(AT)).unwrap().is_present());
        cost
    })
}

/// It is found in the space that was there first, and others are not asked any more.
#[test]
fn a_page_that_no_entry_leads_to_any_more_is_looked_for_no_further() {
    let (alone, among) = (cost_of_reclaim(1), cost_of_reclaim(200));
    assert!(among < alone + 100, "{alone} touches where one space maps the file, {among} where 200 do");
}

/// Two mappings of one `anon_vma` that lie side by side in another order than at first: a walk finds the pages of both, which go and come back.
#[test]
fn mappings_that_changed_places_are_two() {
    let host = Host::new(Setup { cpus: 1, frames: 512, ..Setup::default() });
    host.run(swapping("linux"), |mm| {
        mm.swap().on(DEVICE, 512, 0).unwrap();
        let (at, half) = (swapping::AT, 8);
        let id = anonymous(mm, 2 * half);
        let mv = |from, to| mm.space(id).move_range(pages(from, half), PageNumber(to)).unwrap();
        mv(at + half, at + 0x1000);
        mv(at, at + half);
        mv(at + 0x1000, at);
        (0..3).for_each(|_| swapping::squeeze(mm));
        let all = || at..at + 2 * half;
        assert!(all().all(|page| is_out(mm, id, page)), "each page is found");
        for page in all() {
            let was = if page < at + half { page + half } else { page - half };
            assert_eq!(host.read(mm, id, page), Ok(was));
        }
        // Back where they were they are one again.
        mv(at + half, at + 0x1000);
        mv(at, at + half);
        mv(at + 0x1000, at);
        (0..3).for_each(|_| swapping::squeeze(mm));
        assert!(all().all(|page| is_out(mm, id, page) && swapping::read(mm, id, page) == Ok(page)));
        swapping::end(mm, &[id], &[DEVICE]);
    });
}

/// A mapping that lies where it was made, beside another that came there later: their pages have numbers that follow each other, and are of two
/// `anon_vma`s. A walk finds those of both.
#[test]
fn neighbours_of_two_families_are_two_mappings() {
    let host = Host::new(Setup { cpus: 1, frames: 512, ..Setup::default() });
    host.run(swapping("linux"), |mm| {
        mm.swap().on(DEVICE, 512, 0).unwrap();
        let (at, half) = (swapping::AT, 8);
        let id = mm.create_space().unwrap();
        mm.space(id).switch_to().unwrap();
        let map = |at| mm.space(id).map(pages(at, half), Backing::Anonymous, Prot::ReadWrite).unwrap();
        let mv = |from, to| mm.space(id).move_range(pages(from, half), PageNumber(to)).unwrap();
        map(at + half);
        (at + half..at + 2 * half).for_each(|page| host.write(mm, id, page, page).unwrap());
        mv(at + half, at + 0x1000);
        map(at);
        (at..at + half).for_each(|page| host.write(mm, id, page, page).unwrap());
        mv(at + 0x1000, at + half);
        let all = || at..at + 2 * half;
        (0..3).for_each(|_| swapping::squeeze(mm));
        assert!(all().all(|page| is_out(mm, id, page)), "each page is found");
        assert!(all().all(|page| swapping::read(mm, id, page) == Ok(page)));
        mm.space(id).unmap(pages(at, half)).unwrap();
        (0..3).for_each(|_| swapping::squeeze(mm));
        assert!((at + half..at + 2 * half).all(|page| is_out(mm, id, page)));
        swapping::end(mm, &[id], &[DEVICE]);
    });
}

/// Several spaces show a page as their own, and each may make copies: a walk that gives way at each of them comes by all.
#[test]
fn a_walk_that_gives_way_comes_by_all_who_show_a_file_as_their_own() {
    let host = Host::new(Setup { cpus: 1, frames: 512, ..Setup::default() });
    host.run(swapping("linux"), |mm| {
        let file = mm.create_file(2).unwrap();
        let spaces: Vec<_> = (0..5).map(|_| mapped(mm, Backing::Private { file, offset: 0 }, 2)).collect();
        for &id in &spaces {
            mm.space(id).switch_to().unwrap();
            assert_eq!(host.read(mm, id, AT), Ok(0));
        }
        mm.drain_lru_batch();
        let held = take_free(mm);
        assert!(!held.is_empty());
        give_back(mm, held);
        assert_eq!(mm.file(file).cached_pages(), Ok(1));
        // All are unused by then, and all are visited: the page goes.
        (0..3).for_each(|_| swapping::squeeze(mm));
        assert_eq!(mm.file(file).cached_pages(), Ok(0));
        assert_eq!(host.read(mm, spaces[4], AT), Ok(0));
    });
}
