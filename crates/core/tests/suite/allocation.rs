//! Frames: who gets which, what is refused, and what it all costs in bookkeeping.

use crate::machine;

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use machine::showing::two_nodes;
use machine::{Host, Mm, NO_PCP, Setup, bare, config, exhaust, give_back, pages, pcp, settled};
use proptest::prelude::*;
use quietmm::{
    AllocFrom, Backing, Config, Error, FrameNumber, Frames, Kind, ListLimits, NodeId, PageRange, Prot, Region,
};

const BASE: u32 = 0xfc00;

/// Free blocks as the plain model sees them: a bit per frame.
struct Model {
    taken: BTreeMap<u32, u8>,
}

impl Model {
    fn take(&mut self, first: u32, order: u8, setup: &Setup) {
        let len = 1 << order;
        assert_eq!(first % len, 0, "a block of order {order} is aligned to its size");
        assert!(first >= setup.base && first + len <= setup.base + setup.frames, "inside the memory");
        let below = self.taken.range(..first + len).next_back();
        assert!(below.is_none_or(|(&f, &o)| f + (1 << o) <= first), "two owners of one frame");
        self.taken.insert(first, order);
    }

    fn frames(&self) -> u64 {
        self.taken.values().map(|&order| 1 << order).sum()
    }
}

/// Asks for blocks and gives them back as `steps` say; checks each against the model.
fn follow(steps: &[(u8, u16)], page_lists: Option<ListLimits>) {
    let setup = Setup::default();
    let host = Host::new(setup.clone());
    host.run(Config { page_lists, ..bare("vanilla") }, |mm| {
        let start = settled(mm);
        let mut model = Model { taken: BTreeMap::new() };
        for &(order, pick) in steps {
            if order <= 10 {
                match mm.frames().alloc(order, AllocFrom::NOW) {
                    Ok(block) => {
                        let (first, order) = block.into_raw();
                        model.take(first.0, order, &setup);
                    }
                    Err(error) => assert_eq!(error, Error::OutOfMemory),
                }
            } else if !model.taken.is_empty() {
                let index = pick as usize % model.taken.len();
                let (&first, &order) = model.taken.iter().nth(index).unwrap();
                model.taken.remove(&first);
                mm.frames().free_at(FrameNumber(first), order).unwrap();
            }
            let audit = mm.validate();
            assert_eq!(audit.broken, None);
            assert_eq!(audit.kernel, model.frames());
            assert_eq!(audit.free, start.free - model.frames());
        }
        for (first, order) in model.taken {
            mm.frames().free_at(FrameNumber(first), order).unwrap();
        }
        assert_eq!(settled(mm), start);
        assert_eq!(mm.frames().available(), start.free);
        // Merged back: as many of the largest blocks as a fresh manager gives.
        let largest =
            || std::iter::from_fn(|| mm.frames().alloc(10, AllocFrom::NOW).ok()).collect::<Vec<_>>();
        let blocks = largest();
        assert_eq!(blocks.len(), fresh_largest_blocks());
        give_back(mm, blocks);
    });
}

fn fresh_largest_blocks() -> usize {
    let host = Host::new(Setup::default());
    host.run(bare("vanilla"), |mm| {
        let blocks: Vec<_> = std::iter::from_fn(|| mm.frames().alloc(10, AllocFrom::NOW).ok()).collect();
        let count = blocks.len();
        give_back(mm, blocks);
        count
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// Orders 0 to 10 half the time, else a block goes back.
    #[test]
    fn blocks_never_overlap_and_merge_back_to_the_start(
        steps in prop::collection::vec((0u8..=21, any::<u16>()), 1..60),
        page_lists in prop::sample::select(vec![Some(NO_PCP), pcp(1), pcp(31), None]),
    ) {
        follow(&steps, page_lists);
    }
}

/// What random blocks once found.
#[test]
fn a_block_of_one_frame_merges_back_from_a_list() {
    follow(&[(0, 0)], pcp(31));
}

/// Runs `attempt`, which must be refused with `error` and must leave everything as it was.
fn refused<T: std::fmt::Debug>(mm: &Mm<'_>, error: Error, attempt: impl FnOnce() -> Result<T, Error>) {
    let before = (mm.validate(), mm.frames().available());
    assert_eq!(attempt().unwrap_err(), error);
    assert_eq!((mm.validate(), mm.frames().available()), before);
}

#[test]
fn a_bad_request_is_refused_and_changes_nothing() {
    let host = Host::new(Setup::default());
    host.run(bare("vanilla"), |mm| {
        refused(mm, Error::BadOrder(11), || mm.frames().alloc(11, AllocFrom::HERE));
        refused(mm, Error::BadOrder(255), || mm.frames().alloc(255, AllocFrom::NOW));
        for node in [1, 63, 64, u16::MAX] {
            let from = AllocFrom { node: Some(NodeId(node)), may_reclaim: true };
            refused(mm, Error::NoSuchNode, || mm.frames().alloc(0, from));
            refused(mm, Error::NoSuchNode, || mm.kswapd(NodeId(node)));
        }
    });
}

#[test]
fn a_block_is_freed_once_whole_and_by_its_first_frame() {
    let host = Host::new(Setup::default());
    host.run(bare("vanilla"), |mm| {
        let (first, order) = mm.frames().alloc(3, AllocFrom::NOW).unwrap().into_raw();
        for wrong in [0, 2, 4, 10, 11, 255] {
            refused(mm, Error::NotAllocated(first), || mm.frames().free_at(first, wrong));
        }
        refused(mm, Error::NotAllocated(first.add(1)), || mm.frames().free_at(first.add(1), 0));
        refused(mm, Error::NotAllocated(first.add(4)), || mm.frames().free_at(first.add(4), 2));
        mm.frames().free_at(first, order).unwrap();
        refused(mm, Error::NotAllocated(first), || mm.frames().free_at(first, order));
        refused(mm, Error::NotAllocated(first), || mm.frames().free_at(first, 0));
    });
}

#[test]
fn frames_that_were_never_handed_out_cannot_be_freed() {
    let setup = Setup::default();
    let host = Host::new(setup.clone());
    host.run(bare("vanilla"), |mm| {
        let end = setup.base + setup.frames;
        for outside in [0, BASE - 1, end, u32::MAX - 1, u32::MAX] {
            let n = FrameNumber(outside);
            refused(mm, Error::NoSuchFrame(n), || mm.frames().free_at(n, 0));
        }
        // The first frames hold the bookkeeping, the last ones are free.
        for inside in [BASE, BASE + 1, end - 1] {
            let n = FrameNumber(inside);
            refused(mm, Error::NotAllocated(n), || mm.frames().free_at(n, 0));
        }
    });
}

#[test]
fn frames_of_the_core_itself_cannot_be_freed() {
    let setup = Setup::default();
    let host = Host::new(setup.clone());
    // With single frames and files of two index levels: pools, index nodes, tables, pages of both kinds.
    host.run(bare("vanilla"), |mm| {
        let space = mm.create_space().unwrap();
        let file = mm.create_file(5000).unwrap();
        let backing = quietmm::Backing::File { file, offset: 0 };
        mm.space(space)
            .map(machine::pages(0x400, 4), quietmm::Backing::Anonymous, quietmm::Prot::ReadWrite)
            .unwrap();
        mm.space(space).map(machine::pages(0x800, 5000), backing, quietmm::Prot::ReadWrite).unwrap();
        mm.space(space).switch_to().unwrap();
        host.write(mm, space, 0x400, 1).unwrap();
        host.write(mm, space, 0x800, 1).unwrap();
        mm.drain_lru_batch();
        let before = mm.validate();
        assert_eq!(before.broken, None);
        assert!(before.pools >= 5 && before.tables >= 4 && before.anon == 1 && before.file == 1);
        for n in (setup.base..setup.base + setup.frames).map(FrameNumber) {
            assert_eq!(mm.frames().free_at(n, 0), Err(Error::NotAllocated(n)));
        }
        assert_eq!(mm.validate(), before);
        mm.space(space).destroy().unwrap();
        mm.file(file).destroy().unwrap();
    });
}

#[test]
fn without_memory_each_order_is_refused_and_comes_back() {
    for page_lists in [Some(NO_PCP), pcp(31)] {
        let host = Host::new(Setup::default());
        host.run(Config { page_lists, ..bare("vanilla") }, |mm| {
            let all = exhaust(mm);
            assert_eq!(mm.frames().available(), 0);
            for order in 0..=10 {
                refused(mm, Error::OutOfMemory, || mm.frames().alloc(order, AllocFrom::HERE));
                refused(mm, Error::OutOfMemory, || mm.frames().alloc(order, AllocFrom::NOW));
            }
            assert_eq!(mm.create_space().unwrap_err(), Error::OutOfMemory);
            assert_eq!(mm.create_file(1).unwrap_err(), Error::OutOfMemory);
            give_back(mm, all);
            mm.frames().drain_here();
            give_back(mm, vec![mm.frames().alloc(10, AllocFrom::NOW).unwrap()]);
        });
    }
}

#[test]
fn whoever_cannot_wait_goes_below_the_mark_that_others_respect() {
    let host = Host::new(Setup::default());
    host.run(Config { min_free: Some(400), ..bare("vanilla") }, |mm| {
        let held: Vec<_> = std::iter::from_fn(|| mm.frames().alloc(0, AllocFrom::NOW).ok()).collect();
        assert_eq!(mm.frames().available(), 200);
        give_back(mm, held);
    });
}

#[test]
fn frames_come_from_the_node_that_was_asked_for_and_then_from_the_next() {
    let region = |start, node| Region { start: FrameNumber(BASE + start), frames: 2048, node: NodeId(node) };
    let regions = Some(vec![region(0, 0), region(2048, 1)]);
    let host = Host::new(Setup { cpus: 2, nodes: 2, regions, ..Setup::default() });
    host.run(bare("vanilla"), |mm| {
        let node_of = |block: &quietmm::Frames| u16::from(block.first().0 >= BASE + 2048);
        let mut held = Vec::new();
        for node in [0, 1] {
            let from = AllocFrom { node: Some(NodeId(node)), may_reclaim: false };
            held.push(mm.frames().alloc(0, from).unwrap());
            assert_eq!(node_of(held.last().unwrap()), node);
            held.push(host.on(node, || mm.frames().alloc(0, AllocFrom::NOW).unwrap()));
            assert_eq!(node_of(held.last().unwrap()), node);
        }
        let rest = exhaust(mm);
        let first_far = rest.iter().position(|block| node_of(block) == 1).unwrap();
        // But for the last frame of the near zone, which its low watermark holds back at first.
        let (_, far) = rest[first_far..].split_last().unwrap();
        assert!(first_far > 1000 && far.iter().filter(|block| node_of(block) == 0).count() <= 1);
        give_back(mm, rest);
        give_back(mm, held);
    });
}

fn made(setup: Setup, config: Config) -> Result<(), Error> {
    let host = Host::new(setup);
    host.make(config).map(|_| ())
}

fn with_regions(regions: &[(u32, u32)]) -> Result<(), Error> {
    let region =
        |&(start, frames): &(u32, u32)| Region { start: FrameNumber(start), frames, node: NodeId(0) };
    made(Setup { regions: Some(regions.iter().map(region).collect()), ..Setup::default() }, config("vanilla"))
}

#[test]
fn memory_may_hold_anything_at_the_start() {
    let setup = Setup::default();
    let host = Host::new(setup.clone());
    for frame in (setup.base..setup.base + setup.frames).map(FrameNumber) {
        (0..512).for_each(|word| host.word(frame, word).store(0xa5a5_a5a5_a5a5_a5a5, Ordering::SeqCst));
    }
    host.run(config("linux"), |mm| {
        let id = mm.create_space().unwrap();
        mm.space(id).map(pages(0x1000, 8), Backing::Anonymous, Prot::ReadWrite).unwrap();
        mm.space(id).switch_to().unwrap();
        assert!((0x1000..0x1008).all(|page| host.read(mm, id, page) == Ok(0)));
    });
}

#[test]
fn memory_may_come_in_255_regions() {
    let regions = |count: u32| {
        let places = (0..count).map(|n| if n == 0 { (BASE, 4096) } else { (BASE + 4096 + 64 * n, 32) });
        let region = |(start, frames)| Region { start: FrameNumber(start), frames, node: NodeId(0) };
        let regions = Some(places.map(region).collect());
        made(Setup { frames: 4096 + 64 * 256 + 64, regions, ..Setup::default() }, config("vanilla"))
    };
    assert_eq!(regions(255), Ok(()));
    assert!(regions(256).is_err());
}

#[test]
fn memory_that_cannot_be_is_refused() {
    assert_eq!(with_regions(&[]), Err(Error::TooLittleMemory));
    assert_eq!(with_regions(&[(BASE, 1)]), Err(Error::TooLittleMemory));
    assert_eq!(with_regions(&[(BASE, 16)]), Err(Error::TooLittleMemory));
    for wrong in [
        &[(BASE, 0)][..],
        &[(BASE, 2048), (BASE + 2048, 0)],
        &[(BASE, 2048), (BASE + 2047, 1024)],
        &[(BASE, 2048), (BASE, 2048)],
        &[(BASE + 2048, 2048), (BASE, 1024)],
        &[(BASE, 2048), (FrameNumber::END.0 - 10, 11)],
        &[(BASE, 2048), (FrameNumber::END.0, 1)],
        &[(BASE, 2048), (u32::MAX - 10, 100)],
        &[(BASE, 2048), (u32::MAX, 1)],
    ] {
        assert_eq!(with_regions(wrong), Err(Error::BadRegion), "{wrong:?}");
    }
    // Neighbours in one section are fine, and so is a hole.
    assert_eq!(with_regions(&[(BASE, 1500), (BASE + 1500, 1500)]), Ok(()));
    assert_eq!(with_regions(&[(BASE, 1500), (BASE + 2600, 1400)]), Ok(()));
}

#[test]
fn memory_up_to_the_last_frame_number_is_managed() {
    let frames = 32768;
    let base = FrameNumber::END.0 - frames;
    let host = Host::new(Setup { base, frames, ..Setup::default() });
    host.run(bare("vanilla"), |mm| {
        let all = exhaust(mm);
        assert_eq!(mm.validate().total, u64::from(frames));
        give_back(mm, all);
    });
}

#[test]
fn a_machine_has_1_to_4096_cpus_on_64_nodes() {
    let cpus = |cpus, frames| made(Setup { cpus, frames, ..Setup::default() }, config("vanilla"));
    assert_eq!(cpus(0, 4096), Err(Error::BadTopology));
    assert_eq!(cpus(4097, 32768), Err(Error::BadTopology));
    assert_eq!(cpus(4096, 32768), Ok(()));
    assert_eq!(cpus(4096, 1024), Err(Error::TooLittleMemory));
    let nodes = |nodes| made(Setup { cpus: 100, nodes, ..Setup::default() }, config("vanilla"));
    assert_eq!(nodes(64), Ok(()));
    assert_eq!(nodes(65), Err(Error::BadTopology));
}

#[test]
fn settings_out_of_range_are_named() {
    let base = config("vanilla");
    for (wrong, name) in [
        (Config { lru_batch: 0, ..base }, "lru_batch"),
        (Config { lru_batch: 65, ..base }, "lru_batch"),
        (Config { scan_batch: 0, ..base }, "scan_batch"),
        (Config { scan_batch: 65, ..base }, "scan_batch"),
        (Config { page_lists: pcp(0), ..base }, "batch"),
        (Config { page_lists: pcp(64), ..base }, "batch"),
        (Config { page_lists: Some(ListLimits { batch: 8, high: 7 }), ..base }, "high"),
        (Config { flush_ceiling: 0, ..base }, "flush_ceiling"),
    ] {
        let error = made(Setup::default(), wrong).unwrap_err();
        assert!(matches!(error, Error::BadSetting(text) if text.contains(name)), "{error}");
    }
    for right in [
        Config { lru_batch: 1, scan_batch: 1, page_lists: Some(NO_PCP), flush_ceiling: 1, ..base },
        Config { lru_batch: 64, scan_batch: 64, page_lists: pcp(63), flush_ceiling: u32::MAX, ..base },
        Config { min_free: Some(u32::MAX), ..base },
    ] {
        assert_eq!(made(Setup::default(), right), Ok(()));
    }
}

#[test]
fn a_policy_whose_guarantee_is_missing_is_refused_by_name() {
    let without = || Setup { guarantees: false, ..Setup::default() };
    for (policy, refused, wants) in [
        ("linux", "unmap=batch", "with_clean_write_walks"),
        ("vanilla+unmap=batch-clean", "unmap=batch-clean", "with_clean_write_walks"),
        ("vanilla+aging=no-flush", "aging=no-flush", "with_unflushed_accessed"),
    ] {
        let error = made(without(), config(policy)).unwrap_err();
        assert_eq!(error, Error::GuaranteeMissing { policy: refused, guarantee: wants });
        assert!(error.to_string().contains(refused) && error.to_string().contains(wants));
        assert_eq!(made(Setup::default(), config(policy)), Ok(()), "with the guarantees it is accepted");
    }
    assert_eq!(made(without(), config("vanilla")), Ok(()));
}

#[test]
fn bookkeeping_is_at_most_64_bytes_a_frame() {
    for (gib, cpus) in [(1u32, 1u32), (1, 64), (4, 4)] {
        let frames = gib << 18;
        let host = Host::new(Setup { base: 0x100, frames, cpus, ..Setup::default() });
        host.run(config("vanilla"), |mm| {
            let bytes = mm.frames().reserved() * 4096;
            let per_frame = (bytes - u64::from(cpus) * 4096) / u64::from(frames);
            assert!(per_frame <= 64, "{per_frame} bytes a frame with {gib} GiB and {cpus} CPUs");
        });
    }
}

#[test]
fn what_a_frame_is_for_is_counted() {
    let host = Host::new(Setup::default());
    host.run(bare("vanilla"), |mm| {
        let block = mm.frames().alloc(4, AllocFrom::HERE).unwrap();
        let taken = machine::Happened::Event(quietmm::Event::Taken {
            frame: block.first(),
            order: 4,
            kind: Kind::Kernel,
        });
        assert_eq!(host.count(|what| *what == taken), 1);
        assert_eq!(mm.validate().kernel, 16);
        mm.frames().free(block);
        assert_eq!(mm.validate().kernel, 0);
    });
}

#[test]
fn frames_on_per_cpu_lists_are_near_ones() {
    let region = |start, node| Region { start: FrameNumber(BASE + start), frames: 2048, node: NodeId(node) };
    let regions = Some(vec![region(0, 0), region(2048, 1)]);
    let host = Host::new(Setup { cpus: 2, nodes: 2, regions, ..Setup::default() });
    host.run(Config { page_lists: pcp(31), ..bare("vanilla") }, |mm| {
        let far = AllocFrom { node: Some(NodeId(1)), may_reclaim: false };
        let block = mm.frames().alloc(0, far).unwrap();
        assert!(block.first().0 >= BASE + 2048);
        let near = mm.frames().alloc(0, AllocFrom::NOW).unwrap();
        assert!(near.first().0 < BASE + 2048, "this node has plenty, and nobody asked for the other");
        give_back(mm, vec![block, near]);
    });
}

#[test]
fn frame_0_is_given_to_nobody() {
    // An entry that is empty has its address, and some CPUs read there on paths that they only speculate on.
    let host = Host::new(Setup { base: 0, ..Setup::default() });
    host.run(bare("vanilla"), |mm| {
        let all = exhaust(mm);
        assert!(all.len() > 3000 && all.iter().all(|frame| frame.first() != FrameNumber(0)));
        give_back(mm, all);
    });
}

/// Everything that the core keeps it has made itself: memory that is handed over may hold anything.
#[test]
fn memory_that_is_handed_over_may_hold_anything() {
    let node =
        |node: u16, start: u32, frames: u32| Region { start: FrameNumber(start), frames, node: NodeId(node) };
    let regions = vec![node(0, 0xfc00, 3000), node(1, 0xfc00 + 3100, 3000), node(1, 0xfc00 + 9000, 2000)];
    let setup = Setup {
        cpus: 3,
        nodes: 2,
        tags: 2,
        frames: 12 << 10,
        regions: Some(regions),
        soiled: true,
        ..Setup::default()
    };
    for policy in ["linux", "quiet", "vanilla", "linux+vmap=sweep", "linux+vmap=eager+drain=remote"] {
        let host = Host::new(setup.clone());
        let range = PageRange::new(machine::kernel::START, 4096);
        let config = Config {
            vmap: Some(range),
            page_lists: None,
            shadows: true,
            ..machine::swapping::swapping(policy)
        };
        host.run(config, |mm| {
            assert_eq!(mm.validate().broken, None, "{policy}");
            let id = machine::swapping::written(mm, 512, 300);
            let file = mm.create_file(100).unwrap();
            mm.space(id).map(pages(0x9000, 100), Backing::File { file, offset: 0 }, Prot::ReadWrite).unwrap();
            assert!((0x9000..0x9064).all(|page| host.read(mm, id, page) == Ok(0)));
            let kernel = mm.vmap().alloc(40, machine::kernel::BARE, machine::kernel::RW).unwrap();
            assert!((0..40).all(|at| host.read_kernel(machine::kernel::next(kernel.start, at)).is_some()));
            machine::swapping::squeeze(mm);
            let child = mm.space(id).fork().unwrap();
            for space in [id, child] {
                assert!((0x1000..0x112c).all(|page| machine::swapping::read(mm, space, page) == Ok(page)));
            }
            mm.vmap().free(kernel.start).unwrap();
            mm.vmap().purge().unwrap();
            machine::swapping::end(mm, &[id, child], &[machine::swapping::DEVICE]);
            mm.file(file).destroy().unwrap();
            assert_eq!(machine::settled(mm).file, 0, "{policy}");
        });
    }
}

/// What a frame was, it is not any more: frames go round between slots, tables, indexes, clusters and pages.
#[test]
fn a_frame_forgets_what_it_was() {
    let host = Host::new(Setup { frames: 1024, ..Setup::default() });
    let config = Config { lru_batch: 1, ..machine::swapping::swapping("linux") };
    host.run(config, |mm| {
        for round in 0..4 {
            let sizes: [u64; 4] = [600, 40, 300, 200];
            // Slots and tables, in turn with pages, until there are no more.
            let spaces: Vec<_> =
                std::iter::from_fn(|| mm.create_space().ok()).take(sizes[round] as usize / 8).collect();
            let file = mm.create_file(512 * 512).unwrap();
            for (at, &id) in spaces.iter().enumerate() {
                let at = 0x1000 + 512 * at as u64;
                let own = mm.space(id).map(pages(at, 8), Backing::Anonymous, Prot::ReadWrite);
                let whole = Backing::File { file, offset: 512 * (at % 512) };
                let shown = mm.space(id).map(pages(at + 16, 4), whole, Prot::ReadWrite);
                if own.is_err() || shown.is_err() {
                    break;
                }
                mm.space(id).switch_to().unwrap();
                for page in (at..at + 8).chain(at + 16..at + 20) {
                    _ = host.write(mm, id, page, page);
                }
                assert_eq!(mm.validate().broken, None);
            }
            mm.unload();
            spaces.iter().for_each(|&id| mm.space(id).destroy().unwrap());
            mm.file(file).destroy().unwrap();
            let frames = exhaust(mm);
            give_back(mm, frames);
            let left = machine::settled(mm);
            assert_eq!((left.broken, left.anon, left.file, left.kernel), (None, 0, 0, 0));
        }
    });
}

/// Somebody frees a block by its number, and perhaps another has it by then, whole or in part: its owner, who does not know, frees nothing.
#[test]
fn a_block_that_was_freed_behind_its_owners_back_is_not_freed_twice() {
    let host = Host::new(Setup { cpus: 2, frames: 1024, ..Setup::default() });
    host.run(bare("linux"), |mm| {
        let frames = mm.frames();
        for (order, next) in [(0, None), (2, None), (2, Some(0)), (1, Some(0))] {
            let block = frames.alloc(order, AllocFrom::NOW).unwrap();
            let (first, held) = (block.first(), exhaust(mm));
            frames.free_at(first, order).unwrap();
            let again = next.map(|order| frames.alloc(order, AllocFrom::NOW).unwrap());
            assert!(again.as_ref().is_none_or(|again| again.first() == first));
            let available = frames.available();
            frames.free(block);
            assert_eq!(frames.available(), available, "order {order}, then {next:?}");
            again.into_iter().for_each(|again| frames.free(again));
            give_back(mm, held);
            assert_eq!(mm.validate().broken, None);
        }
    });
}

/// A node that has run short gives frames again once it has as many as it should, and not as soon as it has as many as it must.
#[test]
fn a_node_that_was_short_gives_frames_again_when_it_has_enough() {
    machine::race::at(&two_nodes(), &Config { min_free: Some(256), ..bare("linux") }, None, |mm| {
        let here = AllocFrom { node: Some(NodeId(0)), may_reclaim: false };
        let is_here = |frame: &Frames| frame.first() < FrameNumber(0xfc00 + 2048);
        // Where no node has more than it should another frame is of the one that was asked for, which is short by then.
        let (mut held, mut others) = (Vec::new(), Vec::new());
        loop {
            let frame = mm.frames().alloc(0, here).unwrap();
            match (is_here(&frame), others.is_empty()) {
                (true, true) => held.push(frame),
                (true, false) => break held.push(frame),
                (false, _) => others.push(frame),
            }
        }
        give_back(mm, others);
        // Its min watermark is 128: so it is short below 161 frames, and has enough with 194.
        let mut back = 0;
        loop {
            mm.frames().free(held.pop().unwrap());
            back += 1;
            let frame = mm.frames().alloc(0, here).unwrap();
            let is_here = is_here(&frame);
            mm.frames().free(frame);
            if is_here {
                break;
            }
        }
        assert_eq!(back, 194 - 160);
        give_back(mm, held);
    });
}
