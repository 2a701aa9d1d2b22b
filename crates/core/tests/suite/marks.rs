//! Watermarks and limits of lists, exactly where they are: not one frame more, nor one reason less.

use crate::machine;

use machine::showing::{ANON, AT, LARGE, TO, mapped, shared, two_nodes, write_all};
use machine::swapping::{DEVICE, end, is_out, reclaim, swapping, take_free};
use machine::{Host, Setup, bare, exhaust, give_back, pages, pcp};
use quietmm::{
    Advice, AllocFrom, Config, Counter, FrameNumber, Frames, ListLimits, NodeId, NodePolicy, NodeSet, Prot,
};

const LAST: FrameNumber = FrameNumber(0x10800);
const SECOND_NODE: FrameNumber = FrameNumber(0xfc00 + 2048);

/// However many frames a CPU takes at a time, it leaves as many as whoever takes one by one.
#[test]
fn a_piece_for_a_list_leaves_what_is_to_be_left() {
    for (batch, half) in (1..=9).flat_map(|batch| [(batch, 50), (batch, 51)]) {
        let host = Host::new(Setup { frames: 1024, ..Setup::default() });
        host.run(Config { min_free: Some(2 * half), page_lists: pcp(batch), ..bare("linux") }, |mm| {
            let held = take_free(mm);
            assert_eq!(mm.frames().available(), u64::from(half), "in batches of {batch}");
            give_back(mm, held);
        });
    }
}

/// A zone whose share of what is to be kept free grows under it is short at once: the first who wants a frame of it wakes its `kswapd`.
#[test]
fn a_zone_that_becomes_short_by_its_marks_wakes_its_kswapd() {
    let host = Host::new(two_nodes());
    host.run(Config { min_free: Some(600), ..bare("linux") }, |mm| {
        let near = AllocFrom { node: Some(NodeId(0)), may_reclaim: false };
        let id = mapped(mm, ANON, 2);
        let only = NodePolicy::Bind(NodeSet::of(&[NodeId(0)]).unwrap());
        mm.space(id).set_node_policy(pages(AT, 2), only).unwrap();
        host.write(mm, id, AT, 1).unwrap();
        // Of each node 376 frames are below the low mark, and of the first 501 when the other is half as large.
        let mut held = Vec::new();
        while held.last().is_none_or(|frames: &Frames| frames.first() < SECOND_NODE) {
            held.push(mm.frames().alloc(0, near).unwrap());
        }
        give_back(mm, held.drain(..74).collect());
        let woken = mm.counter(Counter::KswapdWoken);
        let gone = mm.frames().finish_offline(mm.frames().begin_offline(LAST).unwrap()).unwrap();
        assert_eq!(mm.counter(Counter::KswapdWoken), woken);
        host.write(mm, id, AT + 1, 1).unwrap();
        assert_eq!(mm.counter(Counter::KswapdWoken), woken + 1);
        give_back(mm, held);
        mm.frames().bring_online(gone);
    });
}

/// A large page is worth no frame below the low mark: above it by one too few it comes in small ones.
#[test]
fn a_large_page_leaves_as_many_frames_as_the_low_mark() {
    for (spare, large) in [(0, 1), (1, 0)] {
        let host = Host::new(Setup::default());
        host.run(Config { min_free: Some(100), ..bare("linux") }, |mm| {
            let id = mm.create_space().unwrap();
            mm.space(id).map(pages(LARGE, 1024), ANON, Prot::ReadWrite).unwrap();
            mm.space(id).switch_to().unwrap();
            // The tables on the way to it are there.
            host.write(mm, id, LARGE + 1000, 1).unwrap();
            mm.space(id).advise(pages(LARGE, 512), Advice::Large).unwrap();
            let low = 126;
            let mut held = Vec::new();
            while mm.frames().available() > low + 512 - spare {
                held.push(mm.frames().alloc(0, AllocFrom::NOW).unwrap());
            }
            host.write(mm, id, LARGE, 1).unwrap();
            assert_eq!(mm.counter(Counter::LargeFault), large, "with {} free", low + 512 - spare);
            give_back(mm, held);
        });
    }
}

/// Large pages come eight at a time at most, however many may lie on a list.
#[test]
fn a_batch_of_large_pages_is_of_eight() {
    const LARGE: u64 = 512;
    for (high, batch) in [(4, 2), (15, 7), (16, 8), (17, 8), (40, 8)] {
        let host = Host::new(Setup { frames: 16 << 10, ..Setup::default() });
        let limits = ListLimits { batch: 63, high: high * LARGE as u32 };
        host.run(Config { page_lists: Some(limits), ..bare("linux") }, |mm| {
            mm.frames().drain_here();
            let one = mm.frames().alloc(9, AllocFrom::NOW).unwrap();
            assert_eq!(mm.frames().on_lists(), (batch - 1) * LARGE, "of {high}");
            give_back(mm, vec![one]);
        });
    }
}

/// Limits that somebody chose stay, however much memory there is afterwards.
#[test]
fn chosen_limits_stay_when_memory_goes_and_comes() {
    let host = Host::new(Setup::default());
    host.run(Config { min_free: Some(4096), page_lists: None, ..bare("linux") }, |mm| {
        let (node, chosen) = (NodeId(0), ListLimits { batch: 3, high: 17 });
        let gone = |mm: &machine::Mm<'_>| {
            mm.frames().finish_offline(mm.frames().begin_offline(LAST).unwrap()).unwrap()
        };
        let rule = mm.frames().list_limits(node);
        let block = gone(mm);
        assert_ne!(mm.frames().list_limits(node), rule, "by the rule there are others");
        mm.frames().bring_online(block);
        mm.frames().set_list_limits(node, chosen).unwrap();
        let block = gone(mm);
        assert_eq!(mm.frames().list_limits(node), Some(chosen));
        mm.frames().bring_online(block);
        assert_eq!(mm.frames().list_limits(node), Some(chosen));
    });
}

/// By the rule a CPU keeps a large page where there is much memory. Where somebody chose less it keeps none.
#[test]
fn chosen_limits_are_those_of_large_pages_too() {
    let host = Host::new(Setup { frames: 40 << 10, ..Setup::default() });
    host.run(Config { page_lists: None, ..bare("linux") }, |mm| {
        let kept = || {
            mm.frames().drain_here();
            give_back(mm, vec![mm.frames().alloc(9, AllocFrom::NOW).unwrap()]);
            mm.frames().on_lists()
        };
        assert!(kept() >= 512);
        mm.frames().set_list_limits(NodeId(0), ListLimits { batch: 7, high: 42 }).unwrap();
        assert_eq!(kept(), 0);
    });
}

/// Lists are paused while a block leaves, and while memory is short: the end of one is not the end of the other.
#[test]
fn memory_that_is_no_longer_short_ends_no_pause_of_a_block_that_leaves() {
    let host = Host::new(Setup { cpus: 2, ..Setup::default() });
    host.run(Config { min_free: Some(64), page_lists: pcp(8), ..bare("linux") }, |mm| {
        let leaving = mm.frames().begin_offline(LAST).unwrap();
        give_back(mm, exhaust(mm));
        assert_eq!(mm.frames().on_lists(), 0, "the block leaves still");
        mm.frames().cancel_offline(leaving);
        give_back(mm, vec![mm.frames().alloc(0, AllocFrom::NOW).unwrap()]);
        assert!(mm.frames().on_lists() > 0);
    });
}

/// A `kswapd` is about its own node: that another one is short is no reason to go on.
#[test]
fn a_kswapd_takes_nothing_for_another_node() {
    let host = Host::new(two_nodes());
    host.run(Config { min_free: Some(600), ..bare("linux") }, |mm| {
        let (_, file) = machine::flushing::cached(mm, 8, &[0]);
        let (far, mut near): (Vec<_>, Vec<_>) =
            take_free(mm).into_iter().partition(|frames| frames.first() >= SECOND_NODE);
        assert_eq!(mm.counter(Counter::KswapdWoken), 2);
        // Of each 452 frames are below the high mark: one has more, and both together have less than twice as many.
        give_back(mm, near.drain(..400).collect());
        mm.kswapd(NodeId(0)).unwrap();
        assert_eq!((mm.counter(Counter::PgScanKswapd), mm.file(file).cached_pages()), (0, Ok(8)));
        give_back(mm, near);
        give_back(mm, far);
        mm.kswapd(NodeId(1)).unwrap();
        assert_eq!(mm.counter(Counter::PgScanKswapd), 0);
    });
}

/// Of two zones of its node one has enough: that is not enough for both.
#[test]
fn a_kswapd_looks_at_all_zones_of_its_node() {
    let regions = two_nodes().regions.map(|regions| {
        regions.into_iter().map(|region| quietmm::Region { node: NodeId(0), ..region }).collect()
    });
    let host = Host::new(Setup { regions, ..Setup::default() });
    host.run(Config { min_free: Some(600), ..bare("linux") }, |mm| {
        let _ = machine::flushing::cached(mm, 8, &[0]);
        let (second, mut first): (Vec<_>, Vec<_>) =
            take_free(mm).into_iter().partition(|frames| frames.first() >= SECOND_NODE);
        give_back(mm, first.drain(..400).collect());
        mm.kswapd(NodeId(0)).unwrap();
        assert!(mm.counter(Counter::PgScanKswapd) > 0);
        give_back(mm, first);
        give_back(mm, second);
    });
}

/// It looks for pages where one frame is missing to the high mark, and for none where that is reached.
#[test]
fn a_kswapd_looks_for_pages_below_the_high_mark_and_not_at_it() {
    for (free, looks) in [(451, true), (452, false)] {
        let host = Host::new(two_nodes());
        host.run(Config { min_free: Some(600), ..bare("linux") }, |mm| {
            let _ = machine::flushing::cached(mm, 8, &[0]);
            let (far, mut near): (Vec<_>, Vec<_>) =
                take_free(mm).into_iter().partition(|frames| frames.first() >= SECOND_NODE);
            // Of the other node as many are left as are below half its min mark.
            let most = usize::try_from(free + 150 - mm.frames().available()).unwrap();
            give_back(mm, near.drain(..most).collect());
            mm.kswapd(NodeId(0)).unwrap();
            assert_eq!(mm.counter(Counter::PgScanKswapd) > 0, looks, "{free} are free");
            give_back(mm, near);
            give_back(mm, far);
        });
    }
}

/// Who wants a frame while it is at work wakes it no more.
#[test]
fn a_kswapd_that_is_at_work_is_not_woken() {
    let host = Host::new(Setup::default());
    host.run(Config { min_free: Some(600), ..bare("linux") }, |mm| {
        let _ = machine::flushing::cached(mm, 64, &[0]);
        let held = take_free(mm);
        assert_eq!(mm.counter(Counter::KswapdWoken), 1);
        host.at_cond_resched(|mm| {
            if let Ok(one) = mm.frames().alloc(0, AllocFrom::NOW) {
                mm.frames().free(one);
            }
        });
        mm.kswapd(NodeId(0)).unwrap();
        host.on_cond_resched.take();
        assert!(mm.counter(Counter::PgScanKswapd) > 0);
        assert_eq!(mm.counter(Counter::KswapdWoken), 1);
        give_back(mm, held);
    });
}

/// As many pages of files as of programs' own, none of them looked at yet: the first batch is of files, and the next one of the others.
#[test]
fn who_was_looked_at_less_is_looked_at_first() {
    let host = Host::new(Setup { frames: 512, ..Setup::default() });
    host.run(swapping("linux"), |mm| {
        mm.swap().on(DEVICE, 512, 0).unwrap();
        let (id, file) = (mapped(mm, ANON, 32), mm.create_file(32).unwrap());
        mm.space(id).map(pages(TO, 32), shared(file), Prot::Read).unwrap();
        write_all(mm, id, 32);
        (TO..TO + 32).for_each(|page| assert!(host.read(mm, id, page).is_ok()));
        mm.drain_lru_batch();
        [AT, TO].iter().for_each(|&at| mm.space(id).advise(pages(at, 32), Advice::Cold).unwrap());
        let left = || {
            (
                mm.file(file).cached_pages().unwrap(),
                (AT..AT + 32).filter(|&page| !is_out(mm, id, page)).count(),
            )
        };
        let mut held = take_free(mm);
        reclaim(mm);
        assert_eq!(left(), (28, 32));
        held.extend(take_free(mm));
        reclaim(mm);
        assert_eq!(left(), (28, 28));
        give_back(mm, held);
        end(mm, &[id], &[DEVICE]);
    });
}

/// What is to leave a node goes to a slower one only where that is not short: from when it was below its low mark on until it is above its high one. Its `kswapd`
/// hears of it.
#[test]
fn nothing_is_demoted_to_a_node_that_is_short() {
    const NEAR: NodeId = NodeId(0);
    const FAR: NodeId = NodeId(1);
    let host = Host::new(two_nodes());
    host.run(Config { min_free: Some(600), ..swapping("linux") }, |mm| {
        mm.frames().set_demotion(NEAR, Some(FAR)).unwrap();
        let id = mapped(mm, ANON, 16);
        let only = NodePolicy::Bind(NodeSet::of(&[NEAR]).unwrap());
        mm.space(id).set_node_policy(pages(AT, 16), only).unwrap();
        write_all(mm, id, 8);
        mm.drain_lru_batch();
        mm.space(id).advise(pages(AT, 8), Advice::Cold).unwrap();
        let (mut far, mut near): (Vec<_>, Vec<_>) =
            take_free(mm).into_iter().partition(|frames| frames.first() >= SECOND_NODE);
        give_back(mm, near.drain(..200).collect());
        // Both were woken.
        mm.kswapd(NEAR).unwrap();
        mm.kswapd(FAR).unwrap();
        // A page more on the near node, which is short: how many are woken until its `kswapd` has done what it can.
        let woken = |page: u64| {
            let before = mm.counter(Counter::KswapdWoken);
            host.write(mm, id, AT + 8 + page, 1).unwrap();
            mm.kswapd(NEAR).unwrap();
            mm.counter(Counter::KswapdWoken) - before
        };
        assert_eq!((woken(0), mm.counter(Counter::PgDemoted)), (2, 0), "nothing is free there");
        mm.kswapd(FAR).unwrap();
        // 376 frames are below the low mark, and 452 below the high one.
        give_back(mm, far.drain(..260).collect());
        assert_eq!((woken(1), mm.counter(Counter::PgDemoted)), (2, 0), "it is short still");
        give_back(mm, far);
        assert_eq!(woken(2), 1);
        assert!(mm.counter(Counter::PgDemoted) >= 8);
        give_back(mm, near);
        end(mm, &[id], &[]);
    });
}

/// However much is to stay free, it is no more than a quarter of all memory.
#[test]
fn no_more_than_a_quarter_of_memory_stays_free() {
    for min_free in [255, 256, 257, 800, u32::MAX] {
        let host = Host::new(Setup { frames: 1024, ..Setup::default() });
        let config = Config { min_free: Some(min_free), ..bare("linux") };
        host.run(config, |mm| assert_eq!(machine::kept_free(mm), u64::from(min_free.min(256))));
    }
}
