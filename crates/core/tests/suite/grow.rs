//! Stacks: mappings that grow downwards when a program, or a device, uses what lies below them.

use crate::machine;

use std::cell::Cell;
use std::rc::Rc;

use machine::race::{at, at_every_touch, race};
use machine::showing::{ANON, frame, shared, two_nodes};
use machine::swapping::{DEVICE, end, is_out, read, squeeze, swapping, write};
use machine::{Happened, Host, Mm, Setup, bare, pages, settled};
use quietmm::{
    Advice, Error, Event, NodeId, NodeSet, PageNumber, Prot, Rule, Space, SpaceId, Term, UserAccess,
};

/// The first page of a stack of two, where it may be 40.
const STACK: u64 = 0x10100;
const MOST: u64 = 40;
/// The lowest page that it may have.
const LOWEST: u64 = STACK + 2 - MOST;
const GAP: u64 = Space::<Host>::STACK_GAP;

fn stack(mm: &Mm<'_>) -> SpaceId {
    let id = mm.create_space().unwrap();
    mm.space(id).map(pages(STACK, 2), ANON, Prot::ReadWrite).unwrap();
    mm.space(id).grow_down(PageNumber(STACK), MOST).unwrap();
    mm.space(id).switch_to().unwrap();
    id
}

fn refused(mm: &Mm<'_>, id: SpaceId, page: u64) -> bool {
    write(mm, id, page, 1) == Err(Error::NotMapped(PageNumber(page)))
}

fn run<R>(work: impl FnOnce(&Mm<'_>) -> R) -> R {
    let host = Host::new(Setup { cpus: 2, ..Setup::default() });
    let result = host.run(swapping("linux"), work);
    assert_eq!(host.stale.get(), 0);
    result
}

#[test]
fn a_stack_grows_to_the_page_that_is_touched_and_to_its_limit() {
    run(|mm| {
        let id = stack(mm);
        mm.platform().forget();
        write(mm, id, STACK - 3, 3).unwrap();
        assert_eq!(mm.platform().interrupts(), 0);
        // What lies between is there, and zeros; what lies below is not.
        assert_eq!((read(mm, id, STACK - 1), read(mm, id, STACK - 3)), (Ok(0), Ok(3)));
        assert_eq!(
            mm.space(id).protect(pages(STACK - 4, 1), Prot::Read),
            Err(Error::NotMapped(PageNumber(STACK - 4)))
        );
        assert!(refused(mm, id, LOWEST - 1) && refused(mm, id, STACK + 2));
        write(mm, id, LOWEST, 4).unwrap();
        assert!(refused(mm, id, LOWEST - 1));
        assert_eq!((read(mm, id, LOWEST), read(mm, id, STACK - 3)), (Ok(4), Ok(3)));
        mm.space(id).unmap(pages(LOWEST, MOST)).unwrap();
        assert!(refused(mm, id, STACK - 1), "there is nothing that grows");
        assert_eq!(settled(mm).anon, 0);
    });
}

#[test]
fn it_keeps_away_from_what_lies_below() {
    for broken in [None, Some(Rule::StackGap)] {
        let host = Host::new(Setup::default());
        host.broken.set(broken);
        host.run(bare("linux"), |mm| {
            let id = stack(mm);
            mm.space(id).map(pages(STACK - GAP - 10, 1), ANON, Prot::Read).unwrap();
            write(mm, id, STACK - 9, 9).unwrap();
            assert_eq!(refused(mm, id, STACK - 10), broken.is_none(), "{broken:?}");
        });
    }
    run(|mm| {
        let id = stack(mm);
        // Nobody can use it, so nobody comes from there.
        mm.space(id).map(pages(STACK - 10, 1), ANON, Prot::None).unwrap();
        write(mm, id, STACK - 9, 9).unwrap();
        assert_eq!(write(mm, id, STACK - 10, 1), Err(Error::NotPermitted(PageNumber(STACK - 10))));
        // What lies there is unmapped, and it grows on.
        mm.space(id).unmap(pages(STACK - 10, 1)).unwrap();
        write(mm, id, STACK - 12, 12).unwrap();
    });
}

#[test]
fn what_is_split_cut_moved_or_forked_grows_as_it_did() {
    run(|mm| {
        mm.swap().on(DEVICE, 512, 0).unwrap();
        let id = stack(mm);
        write(mm, id, STACK - 8, 8).unwrap();
        // Its lower part goes, and may come again.
        mm.space(id).unmap(pages(STACK - 8, 4)).unwrap();
        write(mm, id, LOWEST, 1).unwrap();
        assert!(refused(mm, id, LOWEST - 1));
        assert_eq!(read(mm, id, STACK - 8), Ok(0));
        mm.space(id).unmap(pages(LOWEST, 20)).unwrap();
        // In two, and one again.
        mm.space(id).protect(pages(STACK, 1), Prot::Read).unwrap();
        write(mm, id, LOWEST + 10, 10).unwrap();
        mm.space(id).protect(pages(STACK, 1), Prot::ReadWrite).unwrap();
        let child = mm.space(id).fork().unwrap();
        write(mm, child, LOWEST, 2).unwrap();
        assert!(refused(mm, child, LOWEST - 1));
        assert_eq!((read(mm, child, LOWEST + 10), read(mm, id, LOWEST + 9)), (Ok(10), Ok(0)));
        end(mm, &[id, child], &[DEVICE]);
    });
}

#[test]
fn what_it_has_grown_by_goes_to_swap_and_comes_back() {
    run(|mm| {
        mm.swap().on(DEVICE, 512, 0).unwrap();
        let id = stack(mm);
        (LOWEST..STACK + 2).rev().for_each(|page| write(mm, id, page, page).unwrap());
        (0..3).for_each(|_| squeeze(mm));
        assert!((LOWEST..STACK + 2).all(|page| is_out(mm, id, page)));
        assert!((LOWEST..STACK + 2).all(|page| read(mm, id, page) == Ok(page)));
        // Moved far down, its pages have no lower place than they had.
        mm.space(id).move_range(pages(LOWEST, MOST), PageNumber(0x4000)).unwrap();
        assert_eq!(read(mm, id, 0x4000), Ok(LOWEST));
        assert!(refused(mm, id, 0x3fff));
        end(mm, &[id], &[DEVICE]);
    });
}

#[test]
fn devices_and_limits() {
    run(|mm| {
        let id = stack(mm);
        let pins = mm.space(id).pin(pages(STACK - 2, 1), UserAccess::Write, Term::Short).unwrap();
        mm.unpin(pins);
        assert_eq!(mm.space(id).advise(pages(STACK - 2, 4), Advice::Cold), Ok(()));
        // With what it has it grows no longer.
        mm.space(id).grow_down(PageNumber(STACK - 2), 4).unwrap();
        assert!(refused(mm, id, STACK - 3));
        mm.space(id).grow_down(PageNumber(STACK - 2), 5).unwrap();
        assert_eq!((write(mm, id, STACK - 3, 1), refused(mm, id, STACK - 4)), (Ok(()), true));
        let none = Err(Error::NotMapped(PageNumber(STACK)));
        assert_eq!(mm.space(id).grow_down(PageNumber(STACK), MOST), none, "it begins lower");
        let file = mm.create_file(1).unwrap();
        mm.space(id).map(pages(0x4000, 1), shared(file), Prot::Read).unwrap();
        assert_eq!(mm.space(id).grow_down(PageNumber(0x4000), 8), Err(Error::BadRange));
        // Not to where nobody may map anything.
        let first = quietmm::PageRange::MAPPABLE.start.0;
        mm.space(id).map(pages(first + 1, 1), ANON, Prot::ReadWrite).unwrap();
        mm.space(id).grow_down(PageNumber(first + 1), 1000).unwrap();
        assert_eq!(write(mm, id, first, 1), Ok(()));
        assert!(refused(mm, id, first - 1));
        mm.space(id).unmap(pages(0x4000, 1)).unwrap();
        mm.file(file).destroy().unwrap();
    });
}

#[test]
fn two_threads_that_touch_it_at_once_both_find_it() {
    let setup = Setup { cpus: 2, frames: 512, ..Setup::default() };
    let cases = at_every_touch(&setup, &swapping("quiet"), None, |mm, place| {
        let host = mm.platform();
        let id = stack(mm);
        host.on(1, || mm.space(id).switch_to().unwrap());
        race(
            mm,
            place,
            || host.write(mm, id, STACK - 5, 5).unwrap(),
            || {
                host.write(mm, id, STACK - 3, 3).unwrap();
                let _ = mm.space(id).unmap(pages(STACK, 1));
                host.write(mm, id, STACK - 7, 7).unwrap();
            },
        );
        let seen = [5, 3, 7].map(|n| host.read(mm, id, STACK - n));
        assert_eq!((seen, settled(mm).broken), ([Ok(5), Ok(3), Ok(7)], None));
    });
    assert!(cases.results.len() > 50, "{}", cases.results.len());
}

#[test]
fn a_stack_without_a_limit_grows_and_is_split() {
    run(|mm| {
        let id = mm.create_space().unwrap();
        mm.space(id).map(pages(STACK, 2), ANON, Prot::ReadWrite).unwrap();
        mm.space(id).grow_down(PageNumber(STACK), u64::MAX).unwrap();
        mm.space(id).switch_to().unwrap();
        write(mm, id, STACK - 3, 3).unwrap();
        mm.space(id).protect(pages(STACK, 1), Prot::Read).unwrap();
        write(mm, id, STACK - 9, 9).unwrap();
        assert_eq!((read(mm, id, STACK - 3), read(mm, id, STACK - 9)), (Ok(3), Ok(9)));
    });
}

/// Pages of a stack have numbers, and below the first there is none: one that was mapped low, and moved up, grows that far.
#[test]
fn a_stack_grows_no_further_than_its_pages_have_numbers() {
    const LOW: u64 = 20;
    run(|mm| {
        mm.swap().on(DEVICE, 512, 0).unwrap();
        let id = mm.create_space().unwrap();
        mm.space(id).switch_to().unwrap();
        mm.space(id).map(pages(LOW, 2), ANON, Prot::ReadWrite).unwrap();
        mm.space(id).move_range(pages(LOW, 2), PageNumber(STACK)).unwrap();
        mm.space(id).grow_down(PageNumber(STACK), 1000).unwrap();
        assert!(refused(mm, id, STACK - LOW - 1));
        for page in [STACK - 1, STACK - LOW] {
            assert_eq!(write(mm, id, page, page), Ok(()));
        }
        (0..3).for_each(|_| squeeze(mm));
        assert!([STACK - 1, STACK - LOW].into_iter().all(|page| is_out(mm, id, page)));
        assert_eq!(read(mm, id, STACK - LOW), Ok(STACK - LOW));
        end(mm, &[id], &[DEVICE]);
    });
}

#[test]
fn what_lies_next_to_each_other_and_grows_alike_is_one() {
    run(|mm| {
        let id = stack(mm);
        let one = |grows: u64| {
            mm.space(id).grow_down(PageNumber(STACK - 2), grows).unwrap();
            assert_eq!(settled(mm).broken, None, "{grows}");
        };
        mm.space(id).map(pages(STACK - 2, 2), ANON, Prot::ReadWrite).unwrap();
        one(MOST);
        one(0);
        // The upper one does not grow any more either, and then what lies below it goes on behind it.
        mm.space(id).map(pages(STACK - 4, 2), ANON, Prot::ReadWrite).unwrap();
        assert!(refused(mm, id, STACK - 5));
        // Of one that nobody can use two parts come together.
        mm.space(id).grow_down(PageNumber(STACK - 4), MOST).unwrap();
        mm.space(id).protect(pages(STACK - 4, 6), Prot::None).unwrap();
        mm.space(id).unmap(pages(STACK - 2, 2)).unwrap();
        let page = PageNumber(STACK - 2);
        assert_eq!(write(mm, id, page.0, 1), Err(Error::NotPermitted(page)));
        assert_eq!(settled(mm).broken, None);
        end(mm, &[id], &[]);
    });
}

#[test]
fn it_does_not_grow_where_a_program_only_says_that_it_wants_what_is_mapped() {
    run(|mm| {
        let id = stack(mm);
        let (space, hole) = (mm.space(id), Err(Error::NotMapped(PageNumber(STACK - 3))));
        assert_eq!(space.advise(pages(STACK - 3, 5), Advice::PopulateWrite), hole);
        assert_eq!(space.populate(pages(STACK - 3, 5), UserAccess::Read), hole);
        // Nor where a page table is there already.
        space.populate(pages(STACK, 1), UserAccess::Write).unwrap();
        assert_eq!(space.populate(pages(STACK - 3, 5), UserAccess::Read), hole);
        assert_eq!(space.unmap(pages(STACK - 1, 1)), Err(Error::NotMapped(PageNumber(STACK - 1))));
    });
}

/// A walk for a page of a stack has visited one space that shows it, and gives way; meanwhile the stack of the next one grows, and stands before where
/// the walk has got to.
#[test]
fn a_stack_that_grows_before_a_walk_is_visited_all_the_same() {
    at(&two_nodes(), &swapping("linux"), None, |mm| {
        let host = mm.platform();
        let parent = stack(mm);
        write(mm, parent, STACK, 1).unwrap();
        let child = mm.space(parent).fork().unwrap();
        mm.drain_lru_batch();
        let here = NodeId(u16::from(frame(mm, parent, STACK).0 >= 0xfc00 + 2048));
        let from = NodeSet::of(&[here]).unwrap();
        host.forget();
        let grown = Rc::new(Cell::new(None));
        let grows = Rc::clone(&grown);
        host.at_cond_resched(move |mm| {
            let host = mm.platform();
            let taken = host.count(|what| matches!(what, Happened::Event(Event::Unmapped { .. })));
            // The parent's entry is out, and the child's is next.
            if taken == 1 && grows.get().is_none() {
                grows.set(Some(Ok(())));
                grows.set(Some(host.on(1, || write(mm, child, STACK - 1, 2))));
            }
        });
        let moved = mm.space(parent).migrate_all(pages(STACK, 1), from, NodeId(1 - here.0)).unwrap();
        host.on_cond_resched.take();
        assert_eq!(grown.get(), Some(Ok(())), "the walk gave way in the middle");
        assert_eq!((moved.moved, moved.stayed), (1, 0), "one walk found all entries");
        assert_eq!((read(mm, child, STACK), read(mm, child, STACK - 1)), (Ok(1), Ok(2)));
        host.on(1, || mm.unload());
        end(mm, &[parent, child], &[]);
    });
}

/// The one that was about to grow is unmapped, and another further up has room that reaches as far.
#[test]
fn where_the_nearest_stack_goes_the_next_one_grows() {
    const UPPER: u64 = STACK + 300;
    let setup = Setup { cpus: 2, frames: 512, ..Setup::default() };
    let cases = at_every_touch(&setup, &swapping("linux"), None, |mm, place| {
        let (host, id) = (mm.platform(), stack(mm));
        mm.space(id).map(pages(UPPER, 1), ANON, Prot::ReadWrite).unwrap();
        mm.space(id).grow_down(PageNumber(UPPER), 400).unwrap();
        host.on(1, || mm.space(id).switch_to().unwrap());
        let unmaps = || mm.space(id).unmap(pages(STACK, 2)).is_ok();
        let gone = race(mm, place, || host.write(mm, id, STACK - 5, 5).unwrap(), unmaps);
        let (value, below) = (host.read(mm, id, STACK - 5), refused(mm, id, LOWEST - 1));
        assert_eq!((gone, value, settled(mm).broken), (true, Ok(5), None));
        below
    });
    assert!(cases.count(|&below| below) > 0, "the nearest one has grown, and goes on to its end");
    assert!(cases.count(|&below| !below) > 0, "the next one has, in its place");
}
