//! On which nodes pages come: each policy, for each way in which a page comes, and what becomes of it as ranges change.

use std::cell::RefCell;
use std::rc::Rc;

use crate::machine;

use machine::faults::AT;
use machine::swapping::swapping;
use machine::{Host, Mm, Setup, bare, give_back, pages, settled};
use quietmm::{
    Advice, AllocFrom, Backing, Config, Entry, Error, FrameNumber, Frames, NodeId, NodePolicy, NodeSet,
    PageNumber, PageRange, Prot, Region, SpaceId,
};

const BASE: u32 = 0xfc00;
/// Frames of a node.
const NODE: u32 = 2048;

/// Four nodes; CPU 0 is on the first.
fn four() -> Setup {
    let node =
        |n: u16| Region { start: FrameNumber(BASE + NODE * u32::from(n)), frames: NODE, node: NodeId(n) };
    Setup {
        cpus: 4,
        nodes: 4,
        frames: 4 * NODE,
        regions: Some((0..4).map(node).collect()),
        ..Setup::default()
    }
}

fn set(nodes: &[u16]) -> NodeSet {
    NodeSet::of(&nodes.iter().copied().map(NodeId).collect::<Vec<_>>()).unwrap()
}

fn mapped(mm: &Mm<'_>, count: u64) -> SpaceId {
    let id = mm.create_space().unwrap();
    mm.space(id).map(pages(AT, count), Backing::Anonymous, Prot::ReadWrite).unwrap();
    mm.space(id).switch_to().unwrap();
    id
}

fn node_of(mm: &Mm<'_>, id: SpaceId, page: u64) -> u32 {
    (mm.space(id).lookup(PageNumber(page)).unwrap().frame().0 - BASE) / NODE
}

/// Touches so many pages; on which nodes they are then.
fn touched(mm: &Mm<'_>, id: SpaceId, from: u64, count: u64) -> Vec<u32> {
    (from..from + count).for_each(|page| mm.platform().write(mm, id, page, page).unwrap());
    (from..from + count).map(|page| node_of(mm, id, page)).collect()
}

fn with<R>(work: impl FnOnce(&Mm<'_>) -> R) -> R {
    Host::new(four()).run(swapping("linux"), work)
}

#[test]
fn pages_come_where_the_policy_says() {
    with(|mm| {
        for (policy, expected) in [
            (NodePolicy::Local, [0; 6]),
            (NodePolicy::Preferred(NodeId(2)), [2; 6]),
            (NodePolicy::Preferred(NodeId(0)), [0; 6]),
            (NodePolicy::Bind(set(&[3])), [3; 6]),
            (NodePolicy::Bind(set(&[0, 1])), [0; 6]),
            (NodePolicy::Interleave(set(&[1, 3])), [1, 3, 1, 3, 1, 3]),
            (NodePolicy::Interleave(set(&[0, 1, 2])), [1, 2, 0, 1, 2, 0]),
        ] {
            let id = mapped(mm, 6);
            mm.space(id).set_node_policy(pages(AT, 6), policy).unwrap();
            assert_eq!(mm.space(id).node_policy(PageNumber(AT + 5)), Ok(policy));
            assert_eq!(touched(mm, id, AT, 6), expected, "{policy:?}, from page {}", AT % 3);
            mm.space(id).destroy().unwrap();
        }
        assert_eq!(mm.validate().broken, None);
    });
}

/// Of the nodes that a range is bound to the CPU's own comes first, if it is one of them.
#[test]
fn who_is_bound_to_several_nodes_gets_what_is_near() {
    with(|mm| {
        for cpu in 0..4 {
            mm.platform().on(cpu, || {
                let id = mapped(mm, 2);
                mm.space(id).set_node_policy(pages(AT, 2), NodePolicy::Bind(set(&[1, 3]))).unwrap();
                assert_eq!(touched(mm, id, AT, 2), if cpu == 3 { [3; 2] } else { [1; 2] }, "CPU {cpu}");
                mm.unload();
                mm.space(id).destroy().unwrap();
            });
        }
    });
}

/// The most VMAs of a space, where they are counted.
const MOST: u32 = 16;

/// How many VMAs a space has: it may have as many more as are missing.
fn vmas(mm: &Mm<'_>, id: SpaceId) -> u32 {
    let map = |i: u64| mm.space(id).map(pages(AT + 0x4000 + 2 * i, 1), Backing::Anonymous, Prot::Read);
    let more = (0..).take_while(|&i| map(i).is_ok()).count();
    (0..more as u64).for_each(|i| mm.space(id).unmap(pages(AT + 0x4000 + 2 * i, 1)).unwrap());
    MOST - more as u32
}

/// A part of a range has its own, the rest keeps its; alike again they are one VMA again.
#[test]
fn a_policy_is_that_of_its_range() {
    let config = Config { max_map_count: MOST, ..swapping("linux") };
    Host::new(four()).run(config, |mm| {
        let id = mapped(mm, 9);
        let space = mm.space(id);
        space.set_node_policy(pages(AT + 3, 3), NodePolicy::Preferred(NodeId(3))).unwrap();
        assert_eq!(touched(mm, id, AT, 9), [0, 0, 0, 3, 3, 3, 0, 0, 0]);
        assert_eq!(vmas(mm, id), 3);
        // It goes along: moved, forked, with other rights.
        space.move_range(pages(AT, 9), PageNumber(AT + 0x800)).unwrap();
        assert_eq!(space.node_policy(PageNumber(AT + 0x804)), Ok(NodePolicy::Preferred(NodeId(3))));
        space.protect(pages(AT + 0x803, 3), Prot::Read).unwrap();
        assert_eq!(space.node_policy(PageNumber(AT + 0x803)), Ok(NodePolicy::Preferred(NodeId(3))));
        space.protect(pages(AT + 0x803, 3), Prot::ReadWrite).unwrap();
        let child = space.fork().unwrap();
        mm.space(child).switch_to().unwrap();
        // Copies of what is written to come where the policy says.
        assert_eq!(touched(mm, child, AT + 0x800, 9), [0, 0, 0, 3, 3, 3, 0, 0, 0]);
        space.switch_to().unwrap();
        assert_eq!(vmas(mm, id), 3);
        space.set_node_policy(pages(AT + 0x803, 3), NodePolicy::Local).unwrap();
        assert_eq!(vmas(mm, id), 1);
        assert_eq!(mm.validate().broken, None);
    });
}

#[test]
fn what_is_mapped_from_now_on_has_the_policy_of_its_space() {
    with(|mm| {
        let id = mapped(mm, 2);
        let space = mm.space(id);
        space.set_default_node_policy(NodePolicy::Preferred(NodeId(1))).unwrap();
        space.map(pages(AT + 8, 2), Backing::Anonymous, Prot::ReadWrite).unwrap();
        assert_eq!(touched(mm, id, AT, 2), [0, 0], "what was mapped before has its own");
        assert_eq!(touched(mm, id, AT + 8, 2), [1, 1]);
        let child = space.fork().unwrap();
        mm.space(child).map(pages(AT + 16, 1), Backing::Anonymous, Prot::ReadWrite).unwrap();
        assert_eq!(mm.space(child).node_policy(PageNumber(AT + 16)), Ok(NodePolicy::Preferred(NodeId(1))));
        // A space that begins in the same slot begins anew.
        mm.space(child).destroy().unwrap();
        let other = mapped(mm, 2);
        assert_eq!(mm.space(other).node_policy(PageNumber(AT)), Ok(NodePolicy::Local));
        assert_eq!(touched(mm, other, AT, 2), [0, 0]);
    });
}

/// All frames of a node.
fn fill(mm: &Mm<'_>, node: u32) -> Vec<Frames> {
    let all: Vec<_> = std::iter::from_fn(|| mm.frames().alloc(0, AllocFrom::NOW).ok()).collect();
    let (own, others) = all.into_iter().partition(|frame| (frame.first().0 - BASE) / NODE == node);
    give_back(mm, others);
    own
}

/// Where a node is full others serve, but for whoever is bound: he gets what can be reclaimed there, and in the end nothing.
#[test]
fn where_a_node_is_full_only_those_who_are_bound_do_without() {
    Host::new(four()).run(bare("linux"), |mm| {
        let held = fill(mm, 2);
        for policy in [NodePolicy::Preferred(NodeId(2)), NodePolicy::Interleave(set(&[2]))] {
            let id = mapped(mm, 1);
            mm.space(id).set_node_policy(pages(AT, 1), policy).unwrap();
            assert_ne!(touched(mm, id, AT, 1), [2], "{policy:?}");
            mm.space(id).destroy().unwrap();
        }
        let id = mapped(mm, 2);
        mm.space(id).set_node_policy(pages(AT, 2), NodePolicy::Bind(set(&[2]))).unwrap();
        assert_eq!(mm.platform().write(mm, id, AT, 1), Err(Error::OutOfMemory));
        let short = *mm.platform().shortages.borrow().last().expect("somebody was asked for a victim");
        assert_eq!((short.node, short.nodes), (NodeId(2), set(&[2])));
        give_back(mm, held);
        assert_eq!(touched(mm, id, AT, 2), [2, 2]);
        mm.space(id).destroy().unwrap();
        let audit = settled(mm);
        assert_eq!((audit.broken, audit.anon, audit.kernel), (None, 0, 0));
    });
}

#[test]
fn who_is_bound_has_memory_reclaimed_on_his_nodes() {
    with(|mm| {
        mm.swap().on(7, 4096, 0).unwrap();
        let id = mapped(mm, 2 * u64::from(NODE));
        mm.space(id).set_node_policy(pages(AT, 2 * u64::from(NODE)), NodePolicy::Bind(set(&[1, 2]))).unwrap();
        for page in AT..AT + 2 * u64::from(NODE) {
            mm.platform().write(mm, id, page, page).unwrap();
            let node = node_of(mm, id, page);
            assert!(node == 1 || node == 2, "page {page:#x} is on {node}");
        }
        assert_eq!(mm.validate().broken, None);
    });
}

#[test]
fn large_pages_come_where_the_policy_says() {
    with(|mm| {
        for (policy, expected) in [
            (NodePolicy::Local, [0, 0]),
            (NodePolicy::Preferred(NodeId(3)), [3, 3]),
            (NodePolicy::Bind(set(&[2])), [2, 2]),
            (NodePolicy::Interleave(set(&[1, 2])), [1, 2]),
        ] {
            let id = mapped(mm, 1024);
            let space = mm.space(id);
            space.set_node_policy(pages(AT, 1024), policy).unwrap();
            space.advise(pages(AT, 1024), Advice::Large).unwrap();
            mm.platform().write(mm, id, AT, 1).unwrap();
            mm.platform().write(mm, id, AT + 512, 1).unwrap();
            assert!(space.lookup(PageNumber(AT + 512)).unwrap().has(quietmm::Entry::LARGE));
            assert_eq!([node_of(mm, id, AT), node_of(mm, id, AT + 512)], expected, "{policy:?}");
            // Made small, elsewhere, and large again.
            space.migrate(pages(AT, 1024), NodeId(0)).unwrap();
            space.advise(pages(AT, 1024), Advice::Collapse).unwrap();
            assert_eq!([node_of(mm, id, AT), node_of(mm, id, AT + 512)], expected, "{policy:?}, collapsed");
            space.destroy().unwrap();
        }
    });
}

#[test]
fn what_cannot_be_meant_is_refused_and_changes_nothing() {
    with(|mm| {
        let id = mapped(mm, 4);
        let space = mm.space(id);
        let kept = NodePolicy::Preferred(NodeId(1));
        space.set_node_policy(pages(AT, 4), kept).unwrap();
        let all = pages(AT, 4);
        assert_eq!(space.set_node_policy(all, NodePolicy::Preferred(NodeId(4))), Err(Error::NoSuchNode));
        assert_eq!(space.set_node_policy(all, NodePolicy::Bind(set(&[0, 63]))), Err(Error::NoSuchNode));
        assert!(matches!(
            space.set_node_policy(all, NodePolicy::Interleave(NodeSet::default())),
            Err(Error::BadSetting(_))
        ));
        assert_eq!(space.set_default_node_policy(NodePolicy::Preferred(NodeId(9))), Err(Error::NoSuchNode));
        let hole = PageNumber(AT + 4);
        assert_eq!(space.set_node_policy(pages(AT, 5), NodePolicy::Local), Err(Error::NotMapped(hole)));
        assert_eq!(space.node_policy(hole), Err(Error::NotMapped(hole)));
        assert_eq!(space.set_node_policy(pages(AT, 0), NodePolicy::Local), Err(Error::BadRange));
        assert_eq!(space.node_policy(PageNumber(AT)), Ok(kept));
        assert_eq!(NodeSet::of(&[NodeId(64)]), None);
        assert_eq!(set(&[5, 0]).iter().collect::<Vec<_>>(), [NodeId(0), NodeId(5)]);
        // Each set is kept once, however often it is named: all fifteen that there are of four nodes, again and again.
        for bits in (1..16_u16).chain(1..16).chain(1..16) {
            let nodes: Vec<_> = (0..4).filter(|node| bits & 1 << node != 0).collect();
            let policy = NodePolicy::Bind(set(&nodes));
            space.set_node_policy(all, policy).unwrap();
            assert_eq!(space.node_policy(PageNumber(AT)), Ok(policy));
        }
        let ended = mapped(mm, 1);
        mm.space(ended).destroy().unwrap();
        assert_eq!(mm.space(ended).set_node_policy(pages(AT, 1), kept), Err(Error::NoSuchSpace));
        assert_eq!(mm.space(ended).set_default_node_policy(kept), Err(Error::NoSuchSpace));
    });
}

/// All of a node belongs to the kernel; others free memory elsewhere all the time.
#[test]
fn victims_are_not_asked_for_without_end_where_only_some_nodes_will_do() {
    let host = Host::new(four());
    host.run(swapping("linux"), |mm| {
        let id = mapped(mm, 8);
        mm.platform().write(mm, id, AT, 1).unwrap();
        mm.space(id).set_node_policy(pages(AT, 8), NodePolicy::Bind(set(&[1]))).unwrap();
        let all: Vec<_> = std::iter::from_fn(|| mm.frames().alloc(0, AllocFrom::NOW).ok()).collect();
        let (full, rest): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|frame| (frame.first().0 - BASE) / NODE == 1);
        give_back(mm, rest);
        let others: Vec<_> = (0..200).map(|_| mm.frames().alloc(0, AllocFrom::NOW).unwrap()).collect();
        let others = Rc::new(RefCell::new(others));
        let goes = others.clone();
        // Each victim frees a frame, of another node.
        *host.on_out_of_memory.borrow_mut() = Some(Box::new(move |mm: &Mm<'_>| {
            goes.borrow_mut().pop().map(|frame| mm.frames().free(frame)).is_some()
        }));
        assert_eq!(mm.platform().write(mm, id, AT + 1, 1), Err(Error::OutOfMemory));
        assert_eq!(others.borrow().len(), 200 - 12, "victims");
        give_back(mm, others.take());
        give_back(mm, full);
        assert_eq!(touched(mm, id, AT + 1, 2), [1, 1]);
        *host.on_out_of_memory.borrow_mut() = None;
    });
}

#[test]
fn pages_can_not_be_bound_to_nodes_without_memory() {
    let region = Region { start: FrameNumber(BASE), frames: NODE, node: NodeId(0) };
    let setup = Setup { cpus: 2, nodes: 2, frames: NODE, regions: Some(vec![region]), ..Setup::default() };
    Host::new(setup).run(swapping("linux"), |mm| {
        let id = mapped(mm, 8);
        let policy = |policy| mm.space(id).set_node_policy(pages(AT, 8), policy);
        assert_eq!(policy(NodePolicy::Preferred(NodeId(1))), Ok(()), "there is such a node");
        assert_eq!(policy(NodePolicy::Bind(set(&[1]))), Err(Error::NoSuchNode));
        assert_eq!(policy(NodePolicy::Bind(set(&[0, 1]))), Ok(()));
        assert_eq!(touched(mm, id, AT, 2), [0, 0]);
    });
}

/// A set of nodes is kept once, however often it is named.
#[test]
fn a_set_of_nodes_may_be_named_as_often_as_one_likes() {
    Host::new(four()).run(bare("linux"), |mm| {
        let id = mapped(mm, 4);
        for n in 0..100 {
            let policy = if n % 2 == 0 {
                NodePolicy::Bind(set(&[1, 2]))
            } else {
                NodePolicy::Interleave(set(&[0, 3]))
            };
            assert_eq!(mm.space(id).set_node_policy(pages(AT, 1 + n % 4), policy), Ok(()), "{n}");
            assert_eq!(mm.space(id).node_policy(PageNumber(AT)), Ok(policy));
        }
    });
}

/// Pages in swap come back where the policy says, and those that are read with them on the same node.
#[test]
fn what_comes_back_from_swap_comes_where_the_policy_says() {
    with(|mm| {
        mm.swap().on(7, 4096, 0).unwrap();
        for (policy, expected) in [
            (NodePolicy::Local, [0; 4]),
            (NodePolicy::Preferred(NodeId(2)), [2; 4]),
            (NodePolicy::Bind(set(&[3])), [3; 4]),
        ] {
            let id = mapped(mm, 8);
            mm.space(id).set_node_policy(pages(AT, 8), policy).unwrap();
            touched(mm, id, AT, 8);
            mm.space(id).advise(pages(AT, 8), Advice::PageOut).unwrap();
            let is_out = |page| mm.space(id).lookup(PageNumber(page)).unwrap().is_swapped();
            assert!((AT..AT + 8).all(is_out), "{policy:?}");
            for page in AT..AT + 4 {
                assert_eq!(mm.platform().read(mm, id, page), Ok(page));
                assert_eq!(node_of(mm, id, page), expected[0], "{policy:?}");
            }
            // Advice, and whoever takes the device away, do the same.
            mm.space(id).advise(pages(AT, 8), Advice::WillNeed).unwrap();
            assert_eq!((AT + 4..AT + 8).map(|page| node_of(mm, id, page)).collect::<Vec<_>>(), expected);
            mm.space(id).advise(pages(AT, 8), Advice::PageOut).unwrap();
            mm.swap().off(7).unwrap();
            assert_eq!((AT..AT + 4).map(|page| node_of(mm, id, page)).collect::<Vec<_>>(), expected);
            mm.swap().on(7, 4096, 0).unwrap();
            mm.space(id).destroy().unwrap();
        }
        assert_eq!(mm.validate().broken, None);
    });
}

/// The last block of node 2, which is empty, and all other memory of that node.
fn last_block(mm: &Mm<'_>) -> (FrameNumber, Vec<Frames>) {
    let block = FrameNumber(BASE + 2 * NODE + 1024);
    let (own, others) = fill(mm, 2).into_iter().partition(|frame| frame.first().0 >= block.0);
    give_back(mm, own);
    (block, others)
}

/// Out of memory that goes offline pages move to the nodes for which they are bound, and to no others.
#[test]
fn what_leaves_its_block_stays_on_the_nodes_for_which_it_is_bound() {
    for nodes in [&[2][..], &[2, 3], &[1, 2]] {
        for forked in [false, true] {
            with(|mm| {
                mm.swap().on(7, 4096, 0).unwrap();
                let id = mapped(mm, 4);
                let (block, others) = last_block(mm);
                mm.space(id).set_node_policy(pages(AT, 4), NodePolicy::Preferred(NodeId(2))).unwrap();
                assert_eq!(touched(mm, id, AT, 4), [2; 4]);
                mm.space(id).set_node_policy(pages(AT, 4), NodePolicy::Bind(set(nodes))).unwrap();
                let child = forked.then(|| mm.space(id).fork().unwrap());
                mm.drain_lru_batch();
                let leaving = mm.frames().begin_offline(block).unwrap();
                let gone = mm.frames().finish_offline(leaving).expect("all of it can go");
                let is_out = mm.space(id).lookup(PageNumber(AT)).unwrap().is_swapped();
                // Where there is room on none of its nodes it goes to swap.
                assert_eq!(is_out, nodes == [2], "{nodes:?}, {forked}");
                if !is_out {
                    assert_eq!(node_of(mm, id, AT), if nodes == [2, 3] { 3 } else { 1 }, "{forked}");
                }
                mm.frames().bring_online(gone);
                give_back(mm, others);
                (AT..AT + 4).for_each(|page| assert_eq!(mm.platform().read(mm, id, page), Ok(page)));
                child.into_iter().for_each(|child| mm.space(child).destroy().unwrap());
                assert_eq!(mm.validate().broken, None);
            });
        }
    }
}

/// The same of a page that was read from swap beside another, and that no range shows yet.
#[test]
fn what_was_read_ahead_stays_on_the_node_on_which_it_came() {
    with(|mm| {
        mm.swap().on(7, 4096, 0).unwrap();
        let id = mapped(mm, 2);
        mm.space(id).set_node_policy(pages(AT, 2), NodePolicy::Bind(set(&[2]))).unwrap();
        let (block, others) = last_block(mm);
        touched(mm, id, AT, 2);
        mm.space(id).advise(pages(AT, 2), Advice::PageOut).unwrap();
        assert_eq!(mm.platform().read(mm, id, AT), Ok(AT));
        assert_eq!(mm.swap().usage().cached, 2, "both were read");
        mm.space(id).advise(pages(AT, 1), Advice::Drop).unwrap();
        mm.drain_lru_batch();
        let leaving = mm.frames().begin_offline(block).unwrap();
        let gone = mm.frames().finish_offline(leaving).expect("all of it can go");
        mm.frames().bring_online(gone);
        assert_eq!(mm.platform().read(mm, id, AT + 1), Ok(AT + 1));
        assert_eq!(node_of(mm, id, AT + 1), 2);
        give_back(mm, others);
        assert_eq!(mm.validate().broken, None);
    });
}

/// The same of a page that was read for a space which dropped it meanwhile: another is to have it, and does not show it yet.
#[test]
fn what_is_read_and_shown_nowhere_yet_stays_on_the_node_on_which_it_came() {
    with(|mm| {
        mm.swap().on(7, 4096, 0).unwrap();
        // The first ranges that there are, one of which has the first of all indices, may be elsewhere.
        let first = PageRange::MAPPABLE.start.0;
        let other = mm.space(mm.create_space().unwrap());
        other.map(pages(first, 1), Backing::Anonymous, Prot::ReadWrite).unwrap();
        other.move_range(pages(first, 1), PageNumber(AT)).unwrap();
        other.map(pages(AT - first, first), Backing::Anonymous, Prot::ReadWrite).unwrap();
        other.set_node_policy(pages(AT - first, first), NodePolicy::Bind(set(&[3]))).unwrap();
        let id = mapped(mm, 1);
        mm.space(id).set_node_policy(pages(AT, 1), NodePolicy::Bind(set(&[2]))).unwrap();
        let (block, others) = last_block(mm);
        touched(mm, id, AT, 1);
        mm.space(id).advise(pages(AT, 1), Advice::PageOut).unwrap();
        let child = mm.space(id).fork().unwrap();
        mm.platform().on_disk_read.borrow_mut().push_back(Box::new(move |mm| {
            mm.platform().on(1, || mm.space(id).advise(pages(AT, 1), Advice::Drop).unwrap());
        }));
        assert_eq!(mm.platform().read(mm, id, AT), Ok(0), "the drop was first");
        assert_eq!(mm.swap().usage().cached, 1, "the page is there");
        mm.drain_lru_batches();
        let leaving = mm.frames().begin_offline(block).unwrap();
        let gone = mm.frames().finish_offline(leaving);
        give_back(mm, others);
        match gone {
            Ok(block) => mm.frames().bring_online(block),
            Err(remains) => mm.frames().cancel_offline(remains.leaving),
        }
        mm.space(child).switch_to().unwrap();
        assert_eq!(mm.platform().read(mm, child, AT), Ok(AT));
        assert_eq!(node_of(mm, child, AT), 2);
        assert_eq!(mm.validate().broken, None);
    });
}

/// A page is shown by two spaces, of which one has bound it to its node. It goes to no other, though the other one may have it there: it stays in a block that is
/// to go offline.
#[test]
fn a_page_that_spaces_share_moves_only_where_each_of_them_may_have_it() {
    const BLOCK: u32 = 0x10000;
    for bound in [0, 1] {
        let host = Host::new(four());
        host.run(swapping("linux"), |mm| {
            // All of its node but some of the block that is to go.
            let near = AllocFrom { node: Some(NodeId(0)), may_reclaim: false };
            let mut held = Vec::new();
            while held.last().is_none_or(|frames: &Frames| frames.first().0 < BASE + NODE) {
                held.push(mm.frames().alloc(0, near).unwrap());
            }
            let is_inside = |frames: &Frames| (BLOCK..BLOCK + 1024).contains(&frames.first().0);
            let (mut inside, mut held): (Vec<_>, Vec<_>) = held.into_iter().partition(is_inside);
            give_back(mm, inside.drain(..64).collect());
            held.extend(inside);
            let id = mapped(mm, 1);
            mm.space(id).set_node_policy(pages(AT, 1), NodePolicy::Bind(set(&[0]))).unwrap();
            host.write(mm, id, AT, 7).unwrap();
            let child = mm.space(id).fork().unwrap();
            let free = [child, id][bound];
            mm.space(free).set_node_policy(pages(AT, 1), NodePolicy::Bind(set(&[0, 1]))).unwrap();
            mm.drain_lru_batch();
            let first = mm.space(id).lookup(PageNumber(AT)).unwrap().frame();
            while held.last().is_none_or(|frames: &Frames| frames.first().0 < BASE + NODE) {
                held.push(mm.frames().alloc(0, near).unwrap());
            }
            assert!((BLOCK..BLOCK + 1024).contains(&first.0));
            let leaving = mm.frames().begin_offline(FrameNumber(BLOCK)).unwrap();
            let left = mm.frames().finish_offline(leaving).unwrap_err();
            assert_eq!(mm.space(id).lookup(PageNumber(AT)).unwrap().frame(), first, "{bound}");
            mm.frames().cancel_offline(left.leaving);
            give_back(mm, held);
            assert_eq!(settled(mm).broken, None);
        });
    }
}

/// Of several nodes that are named any may have it: the first has no piece of that size any more.
#[test]
fn a_large_page_comes_of_any_node_that_is_named() {
    const LARGE: u64 = 0x40000;
    with(|mm| {
        let id = mm.create_space().unwrap();
        mm.space(id).map(pages(LARGE, 1024), Backing::Anonymous, Prot::ReadWrite).unwrap();
        mm.space(id).advise(pages(LARGE, 1024), Advice::Large).unwrap();
        mm.space(id).set_node_policy(pages(LARGE, 1024), NodePolicy::Bind(set(&[0, 2]))).unwrap();
        mm.space(id).switch_to().unwrap();
        let first = AllocFrom { node: Some(NodeId(0)), may_reclaim: false };
        let mut held: Vec<Frames> = Vec::new();
        while held.last().is_none_or(|last| last.first().0 < BASE + NODE) {
            held.push(mm.frames().alloc(9, first).unwrap());
        }
        give_back(mm, held.split_off(held.len() - 1));
        mm.platform().write(mm, id, LARGE, 1).unwrap();
        let entry = mm.space(id).lookup(PageNumber(LARGE)).unwrap();
        assert_eq!((entry.has(Entry::LARGE), node_of(mm, id, LARGE)), (true, 2));
        give_back(mm, held);
        mm.platform().write(mm, id, LARGE + 512, 2).unwrap();
        assert_eq!(node_of(mm, id, LARGE + 512), 0, "near where it is wanted, if that is so");
    });
}

/// A group pays for what it gets: where the nodes that a range is bound to have nothing, it is charged with nothing.
#[test]
fn a_group_is_not_charged_with_what_its_nodes_do_not_have() {
    Host::new(four()).run(Config { groups: 1, ..bare("linux") }, |mm| {
        let (host, group) = (mm.platform(), mm.create_group(100).unwrap());
        let id = mapped(mm, 4);
        mm.space(id).set_group(Some(group)).unwrap();
        mm.space(id).set_node_policy(pages(AT, 4), NodePolicy::Bind(set(&[1]))).unwrap();
        host.write(mm, id, AT, 1).unwrap();
        let charged = |mm: &Mm<'_>| {
            let usage = mm.group(group).usage().unwrap();
            usage.charged - usage.stocked
        };
        let before = charged(mm);
        let all = std::iter::from_fn(|| mm.frames().alloc(0, AllocFrom::NOW).ok());
        let (far, near): (Vec<_>, Vec<_>) = all.partition(|block| (block.first().0 - BASE) / NODE == 1);
        give_back(mm, near);
        for page in AT + 1..AT + 4 {
            assert_eq!(host.write(mm, id, page, 1), Err(Error::OutOfMemory));
            assert_eq!(charged(mm), before);
        }
        give_back(mm, far);
        assert_eq!(mm.validate().broken, None);
    });
}
