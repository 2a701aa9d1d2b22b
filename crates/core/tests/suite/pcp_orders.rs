//! Per-CPU lists that hold blocks of several orders and zones at once: each is counted and each goes; limits and batches are of
//! frames, whatever the order.

use crate::machine;

use machine::race::{at_every_touch, race};
use machine::{Host, Mm, NO_PCP, Setup, bare, give_back, settled};
use quietmm::{AllocFrom, Certainty, Config, Counter, FrameNumber, Frames, ListLimits, NodeId, Region};

/// More than there is.
const ALL: u32 = 1 << 20;

fn config(policy: &str, batch: u32, high: u32) -> Config {
    Config { page_lists: Some(ListLimits { batch, high }), ..bare(policy) }
}

/// Two nodes, each of two zones; CPU 0 is on the first.
fn four_zones(cpus: u32) -> Setup {
    let zone =
        |n: u32| Region { start: FrameNumber(0xfc00 + 512 * n), frames: 512, node: NodeId(n as u16 / 2) };
    let regions = Some((0..4).map(zone).collect());
    Setup { cpus, nodes: 2, frames: 2048, regions, ..Setup::default() }
}

fn frames(blocks: &[Frames]) -> u64 {
    blocks.iter().map(|block| 1 << block.order()).sum()
}

/// All that is free, in blocks of the orders that lists keep, by turns.
fn take_all(mm: &Mm<'_>) -> Vec<Frames> {
    let mut taken = Vec::new();
    while let Ok(block) = mm.frames().alloc(taken.len() as u8 % 4, AllocFrom::NOW) {
        taken.push(block);
    }
    // What else is on this CPU's lists is of other orders.
    mm.frames().drain_here();
    taken.extend(std::iter::from_fn(|| mm.frames().alloc(0, AllocFrom::NOW).ok()));
    taken
}

/// CPU `cpu` has all free frames on its lists: of each zone, and of each order. Returns how many.
fn hold_all(mm: &Mm<'_>, cpu: u16) -> u64 {
    let taken = take_all(mm);
    let count = frames(&taken);
    mm.platform().on(cpu, || give_back(mm, taken));
    assert_eq!((mm.frames().on_lists(), mm.validate().broken), (count, None));
    count
}

/// How a CPU's lists are emptied, and how many frames that is said to be.
type Empties = fn(&Mm<'_>) -> Option<u32>;

const EMPTIES: [(&str, Empties); 4] = [
    ("a drain", |mm| Some(mm.frames().drain(Certainty::Likely))),
    ("a certain drain", |mm| Some(mm.frames().drain(Certainty::Certain))),
    ("its own drain", |mm| {
        mm.platform().on(1, || mm.frames().drain_here());
        None
    }),
    ("it goes", |mm| {
        let host = mm.platform();
        host.on(1, || mm.cpu_offline()).unwrap();
        host.on(1, || mm.cpu_online()).unwrap();
        None
    }),
];

#[test]
fn all_orders_of_all_zones_go_at_once_and_as_often_as_they_come() {
    for policy in ["linux+drain=all-cpus", "linux+drain=holding-cpus", "linux+drain=remote"] {
        let host = Host::new(four_zones(3));
        host.run(config(policy, 8, ALL), |mm| {
            let free = settled(mm).free;
            for (name, empties) in EMPTIES.iter().chain(&EMPTIES) {
                let held = hold_all(mm, 1);
                let spilled = mm.counter(Counter::PcpSpill);
                let told = empties(mm);
                assert_eq!(mm.frames().on_lists(), 0, "{policy}, {name}");
                assert!(told.is_none_or(|told| u64::from(told) == held), "{told:?} of {held}");
                assert_eq!(mm.counter(Counter::PcpSpill) - spilled, held, "{policy}, {name}");
                let audit = mm.validate();
                assert_eq!((audit.broken, audit.free), (None, free), "{policy}, {name}");
            }
        });
    }
}

/// Whoever holds frames of one zone only is found, whichever it is, and after he had none.
#[test]
fn who_holds_frames_of_any_zone_is_found_by_a_drain() {
    for policy in ["linux+drain=holding-cpus", "linux+drain=remote"] {
        let host = Host::new(four_zones(2));
        host.run(config(policy, 1, ALL), |mm| {
            let mut all = take_all(mm);
            for zone in [3, 0, 2, 1, 3, 1] {
                let of_zone = |block: &Frames| (block.first().0 - 0xfc00) / 512 == zone;
                let at = all.iter().position(of_zone).expect("each zone has some");
                let block = all.swap_remove(at);
                let size = frames(std::slice::from_ref(&block));
                host.on(1, || mm.frames().free(block));
                assert_eq!(u64::from(mm.frames().drain(Certainty::Likely)), size, "{policy}, zone {zone}");
                assert_eq!((mm.frames().on_lists(), mm.validate().broken), (0, None));
            }
            give_back(mm, all);
        });
    }
}

/// Frames on the list of this CPU after so many blocks of an order are taken, and given back one by one.
fn refilled(batch: u32, order: u8) -> (u64, u64) {
    let host = Host::new(Setup::default());
    host.run(config("linux", batch, 4 * batch), |mm| {
        settled(mm);
        let before = mm.counter(Counter::PcpRefill);
        let block = mm.frames().alloc(order, AllocFrom::NOW).unwrap();
        let (came, held) = (mm.counter(Counter::PcpRefill) - before, mm.frames().on_lists());
        mm.frames().free(block);
        (came, held)
    })
}

#[test]
fn a_batch_is_as_many_frames_of_each_order() {
    for (batch, order, more) in [
        (8, 0, 7),
        (8, 1, 3 * 2),
        (8, 2, 4),
        (8, 3, 0),
        (7, 1, 2 * 2),
        (3, 2, 0),
        (1, 0, 0),
        (63, 0, 62),
        (63, 3, 6 * 8),
        (63, 4, 0),
    ] {
        assert_eq!(refilled(batch, order), (more, more), "order {order} in batches of {batch}");
    }
}

/// What the other CPU does meanwhile, to the other halves.
type Meanwhile = fn(&Mm<'_>, Vec<Frames>);

/// CPU 0 takes a batch of single frames, the halves of pairs, or gives one back, and the other CPU has the other halves: at each
/// step of the one the other frees them, or has them and takes more. Nobody gets what another has.
#[test]
fn what_is_on_its_way_to_or_from_a_list_is_nobodys_buddy() {
    let setup = Setup { cpus: 2, frames: 1024, ..Setup::default() };
    let frees: Meanwhile = |mm, odd| {
        give_back(mm, odd);
        mm.frames().drain_here();
    };
    let takes: Meanwhile = |mm, odd| {
        let more: Vec<_> =
            std::iter::from_fn(|| mm.frames().alloc(0, AllocFrom::NOW).ok()).take(40).collect();
        give_back(mm, more);
        mm.frames().drain_here();
        give_back(mm, odd);
    };
    for meanwhile in [frees, takes] {
        for returns in [false, true] {
            let cases = at_every_touch(&setup, &config("linux", 8, 16), None, |mm, place| {
                settled(mm);
                let before = mm.frames().available();
                let mut even = Vec::new();
                let mut odd = Vec::new();
                while let Ok(block) = mm.frames().alloc(0, AllocFrom::NOW) {
                    if block.first().0 % 2 == 0 { even.push(block) } else { odd.push(block) }
                }
                mm.frames().drain_here();
                let kept = even.split_off(24);
                let held = if returns {
                    even
                } else {
                    give_back(mm, even);
                    mm.frames().drain_here();
                    Vec::new()
                };
                let mut taken = Vec::new();
                race(
                    mm,
                    place,
                    || {
                        if returns {
                            give_back(mm, held)
                        } else {
                            taken.extend(mm.frames().alloc(0, AllocFrom::NOW).ok())
                        }
                    },
                    || meanwhile(mm, odd),
                );
                let report = mm.validate();
                let sound = report.broken.is_none();
                give_back(mm, taken);
                give_back(mm, kept);
                mm.frames().drain(Certainty::Certain);
                (sound, mm.validate().broken, before - mm.frames().available())
            });
            assert_eq!(cases.count(|result| *result != (true, None, 0)), 0);
            assert!(cases.results.len() > 20, "{}", cases.results.len());
        }
    }
}

#[test]
fn a_list_keeps_what_just_fits_and_gives_back_a_batch_from_there_on() {
    let host = Host::new(Setup::default());
    host.run(config("linux", 8, 32), |mm| {
        settled(mm);
        let blocks: Vec<_> = (0..5).map(|_| mm.frames().alloc(3, AllocFrom::NOW).unwrap()).collect();
        let one = mm.frames().alloc(0, AllocFrom::NOW).unwrap();
        mm.frames().drain_here();
        let held = |block: Frames| {
            mm.frames().free(block);
            assert_eq!(mm.validate().broken, None);
            mm.frames().on_lists()
        };
        let spilled = mm.counter(Counter::PcpSpill);
        // The fifth is one too many: the oldest goes.
        assert_eq!(blocks.into_iter().map(held).collect::<Vec<_>>(), [8, 16, 24, 32, 32]);
        // Of its own order there is no more than one frame: the rest of the batch is of another order, as a whole block.
        assert_eq!(held(one), 24);
        assert_eq!(mm.counter(Counter::PcpSpill) - spilled, 8 + 1 + 8);
    });
}

#[test]
fn a_block_that_is_larger_than_the_limit_is_kept_on_no_list() {
    for (high, order, kept) in
        [(8, 3, 8), (7, 3, 0), (4, 2, 4), (3, 2, 0), (2, 1, 2), (1, 1, 0), (1, 0, 1), (0, 0, 0)]
    {
        let host = Host::new(Setup::default());
        host.run(config("linux", 1, high), |mm| {
            settled(mm);
            let block = mm.frames().alloc(order, AllocFrom::NOW).unwrap();
            mm.frames().drain_here();
            mm.frames().free(block);
            assert_eq!(mm.frames().on_lists(), kept, "order {order}, at most {high}");
        });
    }
}

/// Limits are of all zones of a node, and of no other's.
#[test]
fn limits_of_a_node_hold_for_each_of_its_zones() {
    let host = Host::new(four_zones(1));
    host.run(config("linux", 1, ALL), |mm| {
        let taken = take_all(mm);
        mm.frames().set_list_limits(NodeId(1), ListLimits { batch: 1, high: 0 }).unwrap();
        let first: u64 = frames(&taken)
            - taken
                .iter()
                .filter(|block| block.first().0 >= 0xfc00 + 1024)
                .map(|block| 1 << block.order())
                .sum::<u64>();
        give_back(mm, taken);
        assert_eq!(mm.frames().on_lists(), first);
    });
}

/// A zone that has just what is wanted gives it, and one that has a frame less does not.
#[test]
fn the_last_block_of_a_zone_can_be_had_at_each_order() {
    for order in 0..=4 {
        let host = Host::new(Setup::default());
        host.run(config("linux", 1, 4), |mm| {
            let mut taken: Vec<_> =
                std::iter::from_fn(|| mm.frames().alloc(order, AllocFrom::NOW).ok()).collect();
            let last = taken.pop().unwrap().into_raw();
            let rest: Vec<_> = std::iter::from_fn(|| mm.frames().alloc(0, AllocFrom::NOW).ok()).collect();
            mm.frames().free_at(last.0, last.1).unwrap();
            mm.frames().drain_here();
            assert_eq!(mm.frames().available(), 1 << order);
            let again = mm.frames().alloc(order, AllocFrom::NOW).map(Frames::into_raw);
            assert_eq!(again, Ok(last), "all that there is");
            assert!(mm.frames().alloc(0, AllocFrom::NOW).is_err());
            mm.frames().free_at(last.0, last.1).unwrap();
            give_back(mm, taken);
            give_back(mm, rest);
        });
    }
}

/// 1,024 large pages, so that each of so many CPUs keeps some without being told to.
fn large(cpus: u32) -> Setup {
    Setup { cpus, frames: 1024 * 512, ..Setup::default() }
}

/// `n` large pages, of this CPU's list or of the zone.
fn take_large(mm: &Mm<'_>, n: usize) -> Vec<Frames> {
    (0..n).map(|_| mm.frames().alloc(9, AllocFrom::NOW).unwrap()).collect()
}

#[test]
fn a_cpu_keeps_large_pages_a_sixty_fourth_of_the_zone_in_all() {
    // 16 in all; what goes to the zone goes in batches of half of a CPU's share, of eight at most.
    for (cpus, share, batch) in [(1, 16_u64, 8_u64), (2, 8, 4), (5, 3, 1), (16, 1, 1), (17, 0, 0)] {
        let host = Host::new(large(cpus));
        host.run(Config { page_lists: None, ..bare("linux") }, |mm| {
            settled(mm);
            mm.frames().drain_here();
            let blocks = take_large(mm, 40);
            mm.frames().drain_here();
            let small = mm.frames().alloc(0, AllocFrom::NOW).unwrap();
            mm.frames().drain_here();
            let held = |block: Frames| {
                mm.frames().free(block);
                mm.frames().on_lists() / 512
            };
            let held: Vec<_> = blocks.into_iter().map(held).collect();
            let expected = (1..=40).scan(0, |held, _| {
                *held = if *held == share { share + 1 - batch.max(1) } else { *held + 1 };
                Some(*held)
            });
            assert_eq!(held, expected.collect::<Vec<_>>(), "{cpus} CPUs");
            assert_eq!(mm.validate().broken, None);
            // Large pages take no room from small ones, nor small ones from them.
            let before = mm.frames().on_lists();
            mm.frames().free(small);
            assert_eq!(mm.frames().on_lists(), before + 1);
            // The youngest is taken first, and what is taken is counted off.
            let taken = take_large(mm, 1);
            assert_eq!(mm.frames().on_lists(), if share == 0 { 1 } else { before + 1 - 512 });
            give_back(mm, taken);
            mm.frames().drain(Certainty::Certain);
            assert_eq!((mm.frames().on_lists(), mm.validate().broken), (0, None));
        });
    }
}

/// What is asked for comes with a batch for the list, and the next one without the zone.
#[test]
fn large_pages_come_in_batches() {
    let host = Host::new(large(2));
    host.run(Config { page_lists: None, ..bare("linux") }, |mm| {
        settled(mm);
        mm.frames().drain_here();
        let before = mm.counter(Counter::PcpRefill);
        let taken = take_large(mm, 1);
        assert_eq!((mm.counter(Counter::PcpRefill) - before, mm.frames().on_lists()), (3 * 512, 3 * 512));
        let more = take_large(mm, 3);
        assert_eq!((mm.counter(Counter::PcpRefill) - before, mm.frames().on_lists()), (3 * 512, 0));
        give_back(mm, taken);
        give_back(mm, more);
    });
}

/// Large pages alone make a CPU one that a drain asks, under each policy; and where nothing is to be kept they are not.
#[test]
fn large_pages_on_lists_are_found_by_whoever_needs_them() {
    for policy in ["linux+drain=all-cpus", "linux+drain=holding-cpus", "linux+drain=remote"] {
        let host = Host::new(large(2));
        host.run(Config { page_lists: None, ..bare(policy) }, |mm| {
            settled(mm);
            mm.frames().drain_here();
            for (name, empties) in EMPTIES {
                let blocks = take_large(mm, 5);
                mm.frames().drain_here();
                host.on(1, || give_back(mm, blocks));
                assert_eq!(mm.frames().on_lists(), 5 * 512);
                let told = empties(mm);
                assert_eq!(mm.frames().on_lists(), 0, "{policy}, {name}");
                assert!(told.is_none_or(|told| told == 5 * 512), "{told:?}");
                assert_eq!(mm.validate().broken, None);
            }
            let limits = mm.frames().list_limits(NodeId(0)).unwrap();
            mm.frames().set_list_limits(NodeId(0), ListLimits { high: 0, ..limits }).unwrap();
            let blocks = take_large(mm, 2);
            assert_eq!(mm.frames().on_lists(), 0, "nothing is taken for the list");
            give_back(mm, blocks);
            assert_eq!(mm.frames().on_lists(), 0, "nothing is kept");
        });
    }
}

/// Who says how much is kept is heard for large pages too, at the start or later: those that fit.
#[test]
fn limits_that_are_set_hold_for_large_pages() {
    for (high, kept) in [(511, 0), (512, 1), (1023, 1), (1024, 2), (3000, 5)] {
        for at_start in [true, false] {
            let host = Host::new(large(1));
            let limits = ListLimits { batch: 1, high };
            let page_lists = at_start.then_some(limits);
            host.run(Config { page_lists, ..bare("linux") }, |mm| {
                settled(mm);
                if !at_start {
                    mm.frames().set_list_limits(NodeId(0), limits).unwrap();
                }
                let blocks = take_large(mm, 5);
                mm.frames().drain_here();
                give_back(mm, blocks);
                assert_eq!(mm.frames().on_lists() / 512, kept, "at most {high}, from the start: {at_start}");
            });
        }
    }
}

/// A CPU whose lists may hold nothing any more, and still hold something, is among those that are asked for it.
#[test]
fn who_takes_past_its_lists_is_still_known_to_hold_what_they_have() {
    for policy in ["linux", "linux+drain=remote", "linux+drain=all-cpus"] {
        let host = Host::new(Setup { cpus: 2, ..Setup::default() });
        host.run(config(policy, 4, 16), |mm| {
            let alloc = |order| mm.frames().alloc(order, AllocFrom::NOW).unwrap();
            // What there was before.
            mm.frames().drain(Certainty::Certain);
            let mut held = host.on(1, || vec![alloc(0)]);
            mm.frames().set_list_limits(NodeId(0), NO_PCP).unwrap();
            held.push(host.on(1, || alloc(3)));
            let drained = mm.frames().drain(Certainty::Likely);
            assert!((3..=4).contains(&drained), "{policy}: {drained}");
            held.into_iter().for_each(|block| mm.frames().free(block));
        });
    }
}
