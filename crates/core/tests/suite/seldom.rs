//! What is so only for the second of two, for the last of a row, or once in a long while.

use crate::machine;
use crate::revoked::told;

use machine::race::at;
use machine::showing::{ANON, AT, TO, entry, frame, mapped, private, read_in, shared, two_nodes, write_all};
use machine::swapping::{DEVICE, anonymous, is_out, reclaim, sound, squeeze, swapping, take_free};
use machine::{Host, Mm, Setup, bare, counted, give_back, pages, settled};
use quietmm::addr::PAGE_SIZE;
use quietmm::event::Revoked;
use quietmm::{
    Advice, Config, Counter, Error, FrameNumber, Frames, Migrated, NodeId, NodePolicy, NodeSet, PageNumber,
    Prot, ReadAhead, SpaceId, UserAccess,
};

const NEAR: NodeId = NodeId(0);
const FAR: NodeId = NodeId(1);
/// Pages whose entries one table holds.
const TABLE: u64 = 512;

fn small(cpus: u32) -> Setup {
    Setup { cpus, frames: 1024, ..Setup::default() }
}

fn anywhere() -> NodeSet {
    NodeSet::of(&[NEAR, FAR]).unwrap()
}

/// A right that only one of several mappings has is taken away with the others, whichever of them that is.
#[test]
fn what_one_of_several_mappings_loses_is_told() {
    for execute in 0..3 {
        let host = Host::new(small(2));
        host.run(bare("linux"), |mm| {
            let id = mm.create_space().unwrap();
            for n in 0..3 {
                let prot = if n == execute { Prot::ReadExecute } else { Prot::ReadWrite };
                mm.space(id).map(pages(AT + 2 * n, 2), ANON, prot).unwrap();
            }
            host.forget();
            mm.space(id).protect(pages(AT, 6), Prot::Read).unwrap();
            let lost = [Revoked::Writes, Revoked::Execution].map(|what| (id, pages(AT, 6), what));
            assert_eq!(told(&host), lost, "of the mapping {execute}");
        });
    }
}

/// Wherever the ends of tables lie in what moves, and in where it goes, each page is there afterwards.
#[test]
fn pages_that_move_over_ends_of_tables_are_all_there() {
    const COUNT: u64 = 5;
    for (from, to) in (0..=COUNT).flat_map(|from| (0..=COUNT).map(move |to| (from, to))) {
        let host = Host::new(small(1));
        host.run(bare("linux"), |mm| {
            let id = mm.create_space().unwrap();
            let (from, to) = (40 * TABLE - from, 60 * TABLE - to);
            mm.space(id).map(pages(from, COUNT), ANON, Prot::ReadWrite).unwrap();
            mm.space(id).switch_to().unwrap();
            (0..COUNT).for_each(|n| host.write(mm, id, from + n, n + 1).unwrap());
            mm.space(id).move_range(pages(from, COUNT), PageNumber(to)).unwrap();
            assert!((0..COUNT).all(|n| host.read(mm, id, to + n) == Ok(n + 1)), "{from:#x} to {to:#x}");
            assert_eq!(settled(mm).broken, None);
        });
    }
}

/// Pages that moved are found by reclaim as before, whichever space of many they are of.
#[test]
fn what_has_moved_is_still_its_own_spaces() {
    at(&two_nodes(), &swapping("linux"), None, |mm| {
        mm.swap().on(DEVICE, 512, 0).unwrap();
        let spaces = [0; 3].map(|_| anonymous(mm, 4));
        let at = machine::swapping::AT;
        for (n, &id) in spaces.iter().enumerate() {
            let here = u16::from(frame(mm, id, at).0 >= 0xfc00 + 2048);
            assert_eq!(mm.space(id).migrate(pages(at, 4), NodeId(1 - here)), Ok(4), "space {n}");
            sound(mm);
        }
        squeeze(mm);
        assert!(spaces.iter().all(|&id| (at..at + 4).all(|page| is_out(mm, id, page))));
        sound(mm);
    });
}

/// A page that was read ahead and moved is one that was read ahead: it is counted when somebody wants it.
#[test]
fn pages_that_move_before_they_are_wanted_were_read_ahead() {
    at(&two_nodes(), &Config { read_ahead: 8, ..swapping("linux") }, None, |mm| {
        let file = mm.create_file(8).unwrap();
        mm.file(file).write(0, &[1; 8 * PAGE_SIZE as usize]).unwrap();
        mm.file(file).write_back().unwrap();
        mm.drain_lru_batches();
        assert_eq!(mm.file(file).evict(0, 8), Ok(8));
        assert_eq!(mm.file(file).read_ahead(0, 8), Ok(8));
        mm.drain_lru_batches();
        let far = u16::from(counted(mm, Counter::FileRa) == 0);
        let moved = mm.file(file).migrate(0, 8, anywhere(), NodeId(1 - far)).unwrap().moved;
        assert!(moved > 0);
        let mut into = [0; 8 * PAGE_SIZE as usize];
        assert_eq!(mm.file(file).read(0, &mut into), Ok(into.len()));
        assert_eq!(counted(mm, Counter::FileRaHit), 8);
        sound(mm);
    });
}

/// Whatever the number of pages, all come that were asked for: also the one behind a whole command.
#[test]
fn the_last_page_behind_a_whole_command_is_read_too() {
    for count in [1, 31, 32, 33, 34, 63, 64, 65, 66] {
        let host = Host::new(small(1));
        host.run(Config { read_ahead: 0, ..bare("linux") }, |mm| {
            let file = mm.create_file(80).unwrap();
            assert_eq!(mm.file(file).read_ahead(3, count), Ok(count));
            assert_eq!(mm.file(file).cached_pages(), Ok(count));
            assert_eq!(mm.file(file).read_ahead(3, count), Ok(0));
            settled(mm);
        });
        let host = Host::new(small(1));
        host.run(Config { read_ahead: 128, ..bare("linux") }, |mm| {
            let file = mm.create_file(80).unwrap();
            let (open, mut into) = (ReadAhead::new(), vec![7; (count * PAGE_SIZE) as usize]);
            assert_eq!(mm.file(file).read_with(&open, 0, &mut into), Ok(into.len()));
            assert!(into.iter().all(|&byte| byte == 0));
            // One command for each 32, and no page by itself.
            let commands = host.read_commands.get();
            assert!(u64::from(commands) <= 80_u64.div_ceil(32) + 1, "{count}: {commands}");
            settled(mm);
        });
    }
}

/// Whole pages that are written count as parts of pages do.
#[test]
fn whole_pages_are_held_to_the_limit_on_dirty_ones() {
    let host = Host::new(small(1));
    host.run(Config { dirty_limit: 8, ..bare("linux") }, |mm| {
        let file = mm.create_file(64).unwrap();
        for page in 0..64 {
            mm.file(file).write(page * PAGE_SIZE, &[5; PAGE_SIZE as usize]).unwrap();
            assert!(mm.dirty_pages() <= 8, "{} at page {page}", mm.dirty_pages());
        }
        mm.file(file).write_back().unwrap();
        assert_eq!((mm.dirty_pages(), settled(mm).broken), (0, None));
    });
}

/// Pages of a space's own that are to stay in memory may change their frame.
fn locked_pages_move(shared_too: bool) {
    at(&two_nodes(), &swapping("linux"), None, |mm| {
        mm.swap().on(DEVICE, 512, 0).unwrap();
        let id = mapped(mm, ANON, 8);
        write_all(mm, id, 8);
        mm.space(id).lock(pages(AT, 8)).unwrap();
        // A child's are not locked.
        let child = shared_too.then(|| mm.space(id).fork().unwrap());
        mm.drain_lru_batches();
        let here = u16::from(frame(mm, id, AT).0 >= 0xfc00 + 2048);
        let moved = mm.space(id).migrate_all(pages(AT, 8), anywhere(), NodeId(1 - here)).unwrap();
        assert_eq!((moved.moved, moved.stayed), (8, 0));
        squeeze(mm);
        assert!((AT..AT + 8).all(|page| entry(mm, id, page).is_present()));
        assert!((AT..AT + 8).all(|page| read_in(mm, id, page) == Ok(page)));
        assert!(child.is_none_or(|child| (AT..AT + 8).all(|page| read_in(mm, child, page) == Ok(page))));
        mm.space(id).unlock(pages(AT, 8)).unwrap();
        sound(mm);
    });
}

#[test]
fn locked_pages_move_and_stay_in_memory() {
    [false, true].into_iter().for_each(locked_pages_move);
}

/// All frames of a node that are free, which are taken.
fn fill(mm: &Mm<'_>, node: NodeId) -> Vec<Frames> {
    let of_node = |frames: &Frames| NodeId(u16::from(frames.first().0 >= 0xfc00 + 2048)) == node;
    let (own, others): (Vec<_>, Vec<_>) = take_free(mm).into_iter().partition(of_node);
    give_back(mm, others);
    own
}

/// How many pages went to the slower node from one on which memory is short.
fn demoted(mm: &Mm<'_>) -> u64 {
    let near = NodePolicy::Bind(NodeSet::of(&[NEAR]).unwrap());
    let bound = |mm: &Mm<'_>, count| -> SpaceId {
        let id = mapped(mm, ANON, count);
        mm.space(id).set_node_policy(pages(AT, count), near).unwrap();
        id
    };
    let id = bound(mm, 16);
    write_all(mm, id, 16);
    mm.drain_lru_batches();
    let wants = bound(mm, 8);
    let held = fill(mm, NEAR);
    for page in AT..AT + 8 {
        mm.space(id).advise(pages(AT, 16), Advice::Cold).unwrap();
        let _short = mm.platform().write(mm, wants, page, 1);
    }
    give_back(mm, held);
    for id in [id, wants] {
        mm.unload();
        mm.space(id).destroy().unwrap();
    }
    counted(mm, Counter::PgDemoted)
}

/// To say of one node that its pages go nowhere changes nothing for another's.
#[test]
fn a_node_that_demotes_no_more_leaves_others_as_they_were() {
    at(&two_nodes(), &swapping("linux"), None, |mm| {
        assert_eq!(demoted(mm), 0);
        mm.frames().set_demotion(NEAR, Some(FAR)).unwrap();
        mm.frames().set_demotion(FAR, None).unwrap();
        let some = demoted(mm);
        assert!(some > 0);
        mm.frames().set_demotion(NEAR, None).unwrap();
        assert_eq!(demoted(mm), some);
        sound(mm);
    });
}

/// Spaces whose numbers are alike in their lowest bits are two for a batch: what it has flushed in both is noted for both.
#[test]
fn a_batch_takes_no_space_for_another_whose_number_ends_alike() {
    let host = Host::new(Setup { cpus: 3, frames: 4096, ..Setup::default() });
    host.run(bare("linux"), |mm| {
        let all: Vec<_> = (0..257).map(|_| mm.create_space().unwrap()).collect();
        let (first, last) = (all[0], all[256]);
        let file = mm.create_file(2).unwrap();
        for (cpu, id, page) in [(1, first, AT), (2, last, AT + 1)] {
            mm.space(id).map(pages(AT, 2), shared(file), Prot::Read).unwrap();
            mm.space(id).map(pages(TO, 1), ANON, Prot::Read).unwrap();
            // Of the two the last one's generation is the higher one.
            if id == last {
                host.on(cpu, || mm.space(id).switch_to().unwrap());
                mm.space(id).map(pages(TO + 8, 1), ANON, Prot::ReadWrite).unwrap();
                for _ in 0..4 {
                    mm.space(id).fault(PageNumber(TO + 8).addr(), UserAccess::Write).unwrap();
                    mm.space(id).advise(pages(TO + 8, 1), Advice::Drop).unwrap();
                }
            }
            host.on(cpu, || {
                mm.space(id).switch_to().unwrap();
                host.read(mm, id, page).unwrap();
            });
        }
        // Not until memory is out: then empty tables go, and with them all is flushed.
        let held = take_free(mm);
        for _ in 0..4 {
            mm.drain_lru_batches();
            reclaim(mm);
        }
        give_back(mm, held);
        assert!(!entry(mm, first, AT).is_present() && !entry(mm, last, AT + 1).is_present());
        host.forget();
        for id in [first, last] {
            // Nothing is there any more, and nothing waits.
            mm.space(id).unmap(pages(TO, 1)).unwrap();
        }
        assert_eq!([1, 2].map(|cpu| host.interrupts_to(cpu)), [0, 0]);
        (1..3).for_each(|cpu| host.on(cpu, || mm.unload()));
        all.into_iter().for_each(|id| mm.space(id).destroy().unwrap());
    });
}

/// One page of a block is in use, and waits in a CPU's batch to come onto a list: it leaves the block like any other.
#[test]
fn the_only_page_of_a_block_leaves_it_though_it_is_on_no_list_yet() {
    for waits in [1, 2] {
        let host = Host::new(Setup::default());
        host.run(Config { lru_batch: 15, ..bare("linux") }, |mm| {
            let file = mm.create_file(4).unwrap();
            let id = mapped(mm, shared(file), 4);
            host.read(mm, id, AT).unwrap();
            let last = mm.frames().blocks().last().unwrap();
            let (own, others): (Vec<_>, Vec<_>) =
                take_free(mm).into_iter().partition(|frames| frames.first() >= last);
            assert_eq!(own.len(), 1024);
            give_back(mm, own);
            for page in 1..=waits {
                host.read(mm, id, AT + page).unwrap();
                assert!(frame(mm, id, AT + page) >= last);
            }
            give_back(mm, others);
            let leaving = mm.frames().begin_offline(last).unwrap();
            let gone = mm.frames().finish_offline(leaving).unwrap_or_else(|left| panic!("{waits}: {left:?}"));
            mm.frames().bring_online(gone);
            assert_eq!(settled(mm).broken, None);
        });
    }
}

/// A program writes to a page of a file that it has not seen, for the first time, and there is no frame for its copy: the file's page is held by
/// nobody afterwards.
#[test]
fn a_first_copy_for_which_there_is_no_frame_keeps_nothing() {
    let host = Host::new(small(1));
    host.run(bare("linux"), |mm| {
        let file = mm.create_file(2).unwrap();
        mm.file(file).write(0, &[3; 2 * PAGE_SIZE as usize]).unwrap();
        let id = mapped(mm, private(file), 2);
        // With its table.
        host.read(mm, id, AT + 1).unwrap();
        let mut held = take_free(mm);
        assert_eq!(host.write(mm, id, AT, 1), Err(Error::OutOfMemory));
        assert_eq!(settled(mm).broken, None);
        give_back(mm, held.split_off(held.len() - 1));
        assert_eq!(host.write(mm, id, AT, 1), Ok(()));
        give_back(mm, held);
        assert_eq!(settled(mm).broken, None);
    });
}

/// All pages of a space, and of a child of it, move away from the node of one of them, while CPU 1 has the child's VMAs alone: its entries keep the slots for the way.
fn moved_beside_a_child(mm: &Mm<'_>, id: SpaceId, one: u64, count: u64) -> (SpaceId, Migrated) {
    let (host, child) = (mm.platform(), mm.space(id).fork().unwrap());
    mm.space(child).map(pages(TO, 1), ANON, Prot::ReadWrite).unwrap();
    host.on(1, || {
        mm.space(child).switch_to().unwrap();
        host.write(mm, child, TO, 1).unwrap();
        host.watch(TO, 1, Box::new(|mm| mm.platform().stop()));
    });
    mm.drain_lru_batches();
    let here = u16::from(frame(mm, id, one).0 >= 0xfc00 + 2048);
    host.place();
    let protect = || mm.space(child).protect(pages(TO, 1), Prot::Read).unwrap();
    let moved = host.aside(1, protect, |protects| {
        assert!(host.resume_one(protects), "it has the VMAs alone");
        host.watch_nothing();
        mm.space(id).migrate_all(pages(AT, count), anywhere(), NodeId(1 - here)).unwrap()
    });
    host.all_placed();
    (child, moved)
}

/// More pages move than there are slots for the way, while another space that shows them too lets nobody in: its entries keep the slots. Those that are left
/// over stay where they are, and nobody holds them for it.
#[test]
fn pages_that_get_no_slot_for_the_way_stay_and_are_held_by_nobody() {
    const COUNT: u64 = 560;
    at(&two_nodes(), &swapping("linux"), None, |mm| {
        let id = mapped(mm, ANON, COUNT);
        write_all(mm, id, COUNT);
        let (child, moved) = moved_beside_a_child(mm, id, AT, COUNT);
        assert!(moved.moved >= TABLE - 64 && moved.stayed >= COUNT - TABLE, "{moved:?}");
        for space in [id, child] {
            assert!((AT..AT + COUNT).all(|page| read_in(mm, space, page) == Ok(page)));
        }
        sound(mm);
        machine::swapping::end(mm, &[id, child], &[]);
    });
}

/// Each page begins to look for a slot for the way at a place of its own. Those that all begin at the same one find others behind it, from the start again, and, with
/// more than four CPUs, in the next cluster.
#[test]
fn pages_that_look_for_a_slot_at_the_same_place_find_one_elsewhere() {
    const COUNT: u64 = 1400;
    let first_clusters: fn(FrameNumber) -> bool = |n| n.0 / 512 % 2 == 0;
    let last_slots: fn(FrameNumber) -> bool = |n| n.0 % 512 >= 384;
    for (cpus, alike, least) in [(8, first_clusters, 512 + 64), (2, last_slots, 128 + 64)] {
        at(&Setup { cpus, ..two_nodes() }, &swapping("linux"), None, |mm| {
            let id = mapped(mm, ANON, COUNT);
            write_all(mm, id, COUNT);
            let own: Vec<_> = (AT..AT + COUNT).filter(|&page| alike(frame(mm, id, page))).collect();
            assert!(own.len() > least, "{}", own.len());
            for page in (AT..AT + COUNT).filter(|page| !own.contains(page)) {
                mm.space(id).advise(pages(page, 1), Advice::Drop).unwrap();
            }
            let (child, moved) = moved_beside_a_child(mm, id, own[0], COUNT);
            assert_eq!((moved.moved, moved.stayed), (own.len() as u64, 0), "{cpus} CPUs");
            for space in [id, child] {
                assert!(own.iter().all(|&page| read_in(mm, space, page) == Ok(page)));
            }
            sound(mm);
            machine::swapping::end(mm, &[id, child], &[]);
        });
    }
}

/// Pages of files that are to stay in memory stay mapped: they do not move.
#[test]
fn locked_pages_of_files_stay_where_they_are() {
    at(&two_nodes(), &swapping("linux"), None, |mm| {
        let file = mm.create_file(4).unwrap();
        let id = mapped(mm, shared(file), 4);
        write_all(mm, id, 4);
        mm.space(id).lock(pages(AT, 4)).unwrap();
        mm.drain_lru_batches();
        let here = u16::from(frame(mm, id, AT).0 >= 0xfc00 + 2048);
        let moved = mm.file(file).migrate(0, 4, anywhere(), NodeId(1 - here)).unwrap();
        assert_eq!((moved.moved, moved.stayed), (0, 4));
        assert!((AT..AT + 4).all(|page| entry(mm, id, page).is_present()));
        mm.space(id).unlock(pages(AT, 4)).unwrap();
        sound(mm);
    });
}

/// Only what is on one of the nodes that were named moves: one's own pages, those that another space shows too, and a file's.
#[test]
fn pages_of_other_nodes_than_those_named_stay() {
    at(&two_nodes(), &swapping("linux"), None, |mm| {
        let file = mm.create_file(4).unwrap();
        let [own, both, files] = [ANON, ANON, shared(file)].map(|backing| mapped(mm, backing, 4));
        let child = mm.space(both).fork().unwrap();
        for id in [own, both, files] {
            mm.space(id).switch_to().unwrap();
            write_all(mm, id, 4);
        }
        mm.drain_lru_batches();
        for id in [own, both, files, child] {
            let from = NodeSet::of(&[FAR]).unwrap();
            assert_eq!(mm.space(id).migrate_all(pages(AT, 4), from, FAR).unwrap().moved, 0);
        }
        assert_eq!(mm.file(file).migrate(0, 4, NodeSet::of(&[FAR]).unwrap(), FAR).unwrap().moved, 0);
        sound(mm);
    });
}
