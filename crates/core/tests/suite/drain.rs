//! The frames on per-CPU lists, and the drain that gives them back: who is interrupted for it, and that no frame is
//! lost or left behind, whatever happens in the middle.

use crate::machine;

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;

use machine::{Happened, Host, Mm, Setup, StandsStill, bare, everywhere_as, pcp, settled};
use quietmm::platform::Cpus;
use quietmm::{AllocFrom, Certainty, Config, Counter, CpuId, Error, Event, Frames, ListLimits, NodeId, Rule};

const POLICIES: [&str; 3] = ["linux+drain=all-cpus", "linux+drain=holding-cpus", "linux+drain=remote"];
const INTERRUPTING: [&str; 2] = [POLICIES[0], POLICIES[1]];
const NOTHING: ListLimits = ListLimits { batch: 1, high: 0 };

fn cpus(cpus: u32) -> Setup {
    Setup { cpus, ..Setup::default() }
}

fn small(policy: &str) -> Config {
    Config { page_lists: pcp(8), ..bare(policy) }
}

fn take(mm: &Mm<'_>, cpu: u16, count: usize) -> Vec<Frames> {
    mm.platform().on(cpu, || (0..count).map(|_| mm.frames().alloc(0, AllocFrom::NOW).unwrap()).collect())
}

fn give(mm: &Mm<'_>, cpu: u16, frames: Vec<Frames>) {
    mm.platform().on(cpu, || frames.into_iter().for_each(|block| mm.frames().free(block)));
}

/// Leaves this many frames on a CPU's lists: it takes and frees them.
fn hold(mm: &Mm<'_>, cpu: u16, frames: usize) {
    let before = mm.frames().on_lists();
    let taken = take(mm, cpu, frames);
    give(mm, cpu, taken);
    assert!(mm.frames().on_lists() - before >= frames as u64);
}

fn drain(mm: &Mm<'_>, cpu: u16, certainty: Certainty) -> u32 {
    mm.platform().on(cpu, || mm.frames().drain(certainty))
}

/// Two CPUs of eight hold frames, one of which drains. The CPUs that were interrupted, and the counters of the drain.
fn drained(policy: &str, certainty: Certainty) -> (Vec<usize>, [u64; 4]) {
    let host = Host::new(cpus(8));
    host.run(small(policy), |mm| {
        settled(mm);
        hold(mm, 3, 10);
        hold(mm, 5, 10);
        let free = mm.frames().available() + mm.frames().on_lists();
        host.forget();
        assert!(drain(mm, 3, certainty) >= 20);
        assert_eq!((mm.frames().on_lists(), mm.frames().available()), (0, free));
        let counters = [
            Counter::PcpGlobalDrain,
            Counter::PcpGlobalIpiSaved,
            Counter::DrainIpisSent,
            Counter::DrainIpisSaved,
        ];
        (
            (0..8).filter(|&cpu| host.interrupts_to(cpu) > 0).map(usize::from).collect(),
            counters.map(|c| mm.counter(c)),
        )
    })
}

#[test]
fn a_drain_interrupts_all_or_those_that_hold_or_nobody() {
    let others = vec![0, 1, 2, 4, 5, 6, 7];
    assert_eq!(drained(POLICIES[0], Certainty::Likely), (others.clone(), [1, 0, 7, 0]));
    assert_eq!(drained(POLICIES[1], Certainty::Likely), (vec![5], [1, 1, 1, 6]));
    assert_eq!(drained(POLICIES[2], Certainty::Likely), (vec![], [1, 1, 0, 7]));
    assert_eq!(drained(POLICIES[1], Certainty::Certain), (others, [1, 1, 7, 0]));
    assert_eq!(drained(POLICIES[2], Certainty::Certain), (vec![], [1, 1, 0, 7]));
}

#[test]
fn a_drain_of_empty_lists_interrupts_nobody_who_holds_nothing() {
    for (policy, sent) in POLICIES.into_iter().zip([3, 0, 0]) {
        let host = Host::new(cpus(4));
        host.run(small(policy), |mm| {
            settled(mm);
            host.forget();
            assert_eq!(drain(mm, 0, Certainty::Likely), 0);
            assert_eq!(host.interrupts(), sent, "{policy}");
            // A list that was used up by its own CPU holds nothing either.
            let mut taken = take(mm, 1, 1);
            while mm.frames().on_lists() > 0 {
                taken.extend(take(mm, 1, 1));
            }
            host.forget();
            drain(mm, 0, Certainty::Likely);
            assert_eq!(host.interrupts(), sent, "{policy}");
            give(mm, 1, taken);
        });
    }
}

#[test]
fn lists_keep_orders_0_to_3_within_their_limits() {
    let host = Host::new(cpus(1));
    host.run(small("linux"), |mm| {
        let start = settled(mm);
        for order in 0..=10 {
            let blocks: Vec<_> =
                (0..20).map_while(|_| mm.frames().alloc(order, AllocFrom::NOW).ok()).collect();
            assert!(!blocks.is_empty());
            for block in blocks {
                mm.frames().free(block);
                assert!(mm.frames().on_lists() <= 32, "order {order}: {} on lists", mm.frames().on_lists());
                assert_eq!(mm.validate().broken, None);
            }
            assert_eq!(mm.frames().on_lists() > 0, order <= 3, "order {order}");
            assert_eq!(settled(mm), start);
        }
    });
}

#[test]
fn a_list_is_refilled_and_spilled_in_batches() {
    let host = Host::new(cpus(1));
    host.run(small("linux"), |mm| {
        settled(mm);
        let (refilled, spilled) = (mm.counter(Counter::PcpRefill), mm.counter(Counter::PcpSpill));
        let taken = take(mm, 0, 64);
        assert_eq!(mm.counter(Counter::PcpRefill) - refilled, 64 / 8 * 7, "seven more with each of eight");
        give(mm, 0, taken);
        assert_eq!(mm.counter(Counter::PcpSpill) - spilled, 4 * 8, "64 freed, 32 stay");
        assert_eq!(mm.frames().on_lists(), 32);
    });
}

#[test]
fn frames_go_to_the_lists_of_their_own_zone() {
    let region = |start: u32, node| quietmm::Region {
        start: quietmm::FrameNumber(0xfc00 + start),
        frames: 2048,
        node: NodeId(node),
    };
    let setup = Setup { nodes: 2, regions: Some(vec![region(0, 0), region(2048, 1)]), ..cpus(2) };
    let host = Host::new(setup);
    host.run(small("linux"), |mm| {
        let far = AllocFrom { node: Some(NodeId(1)), may_reclaim: false };
        let block = mm.frames().alloc(0, far).unwrap();
        let first = block.first();
        mm.frames().free(block);
        let near = mm.frames().alloc(0, AllocFrom::NOW).unwrap();
        assert!(
            near.first() < quietmm::FrameNumber(0xfc00 + 2048),
            "what is on the list of a far zone is for later"
        );
        let again = mm.frames().alloc(0, far).unwrap();
        assert_eq!(again.first(), first, "whoever asks for it gets it from the list");
        mm.frames().free(near);
        mm.frames().free(again);
        // Limits are per node.
        mm.frames().set_list_limits(NodeId(1), NOTHING).unwrap();
        assert_eq!(mm.frames().list_limits(NodeId(1)), Some(NOTHING));
        assert_eq!(mm.frames().list_limits(NodeId(0)), pcp(8));
    });
}

#[test]
fn wrong_limits_are_refused_and_change_nothing() {
    let host = Host::new(cpus(1));
    host.run(small("linux"), |mm| {
        for (node, limits, error) in [
            (1, ListLimits { batch: 8, high: 32 }, Error::NoSuchNode),
            (u16::MAX, NOTHING, Error::NoSuchNode),
            (0, ListLimits { batch: 0, high: 32 }, Error::BadSetting("a list's batch must be 1 to 63")),
            (0, ListLimits { batch: 64, high: 320 }, Error::BadSetting("a list's batch must be 1 to 63")),
            (
                0,
                ListLimits { batch: 8, high: 7 },
                Error::BadSetting("a list's high must be 0 or at least its batch"),
            ),
        ] {
            assert_eq!(mm.frames().set_list_limits(NodeId(node), limits), Err(error));
            assert_eq!(mm.frames().list_limits(NodeId(0)), pcp(8));
        }
        assert_eq!(mm.frames().list_limits(NodeId(7)), None);
    });
}

#[test]
fn a_task_that_finds_no_memory_gets_what_is_on_per_cpu_lists_of_others() {
    for policy in POLICIES {
        let host = Host::new(cpus(2));
        host.run(small(policy), |mm| {
            hold(mm, 1, 16);
            let all = machine::exhaust(mm);
            assert_eq!((mm.frames().available(), mm.frames().on_lists()), (0, 0), "{policy}");
            // The same without a drain: what is on CPU 1's lists is out of reach.
            give(mm, 1, all);
            settled(mm);
            hold(mm, 1, 16);
            let held = mm.frames().on_lists();
            let now = std::iter::from_fn(|| mm.frames().alloc(0, AllocFrom::NOW).ok()).collect::<Vec<_>>();
            assert_eq!(mm.frames().on_lists(), held, "{policy}: who may not wait drains nobody");
            give(mm, 0, now);
        });
    }
}

/// Until the low watermark is reached again, what is freed is where all find it, without a drain.
#[test]
fn while_tasks_wait_for_memory_nothing_is_kept_on_per_cpu_lists() {
    let host = Host::new(cpus(2));
    host.run(Config { page_lists: pcp(8), min_free: Some(64), ..machine::config("linux") }, |mm| {
        let mut all = machine::exhaust(mm);
        assert_eq!(mm.frames().on_lists(), 0);
        let drains = mm.counter(Counter::PcpGlobalDrain);
        let mut freed = 0;
        while mm.frames().on_lists() == 0 {
            assert_eq!(mm.frames().list_limits(NodeId(0)), pcp(8), "what was chosen stays so");
            let block = all.pop().unwrap();
            host.on(1, || mm.frames().free(block));
            freed += 1;
        }
        // From the min watermark, 64, to the low one, 81.
        assert_eq!(freed, 81 - 64 + 1);
        assert_eq!(mm.counter(Counter::PcpGlobalDrain), drains);
        give(mm, 0, all);
    });
}

/// A CPU with its interrupts off that spins for a lock gives its frames up.
#[test]
fn a_cpu_that_waits_with_interrupts_off_serves_a_drain() {
    for policy in INTERRUPTING {
        let host = Host::new(cpus(2));
        host.run(small(policy), |mm| {
            hold(mm, 1, 10);
            host.on(1, || host.irqs_off());
            host.on_pause.borrow_mut().push_back(Box::new(|mm| {
                mm.platform().on(1, || mm.serve());
            }));
            drain(mm, 0, Certainty::Likely);
            assert_eq!(mm.frames().on_lists(), 0);
            host.on(1, || host.irqs_on());
        });
    }
}

/// CPU 2 drains. At its touch `m` CPU 1 begins to drain too, and stops at touch `n`; CPU 2 goes on to the end. Frames
/// that CPU 3 had on its lists before either began, and has when CPU 2 has drained. `None`: there is no such touch.
fn drained_twice(broken: Option<Rule>, m: u32, n: u32) -> Option<u64> {
    let host = Host::new(cpus(4));
    host.broken.set(broken);
    host.run(small("linux+drain=holding-cpus"), |mm| {
        settled(mm);
        hold(mm, 3, 10);
        let stopped = Rc::new(Cell::new(false));
        let second = || _ = mm.frames().drain(Certainty::Likely);
        host.aside(1, second, |_| {
            let stops = Rc::clone(&stopped);
            host.place();
            host.at_touch(2, m, move |mm| {
                let host = mm.platform();
                host.at_touch(1, n, move |mm| {
                    stops.set(true);
                    mm.platform().stop();
                });
                host.resume();
            });
            drain(mm, 2, Certainty::Likely);
            (host.all_placed() && stopped.get()).then(|| mm.frames().on_lists())
        })
    })
}

/// Cases, and those in which CPU 3 was left with its frames. CPUs are gathered with the first touches of a drain.
fn drained_together(broken: Option<Rule>) -> (usize, usize) {
    let each = |m| (0..24).map_while(move |n| drained_twice(broken, m, n));
    let all: Vec<_> = (0..12).flat_map(each).collect();
    (all.len(), all.iter().filter(|&&held| held > 0).count())
}

#[test]
fn p16_drains_at_the_same_time_gather_cpus_in_sets_of_their_own() {
    let (cases, stranded) = drained_together(None);
    assert!(cases > 100, "{cases} cases");
    assert_eq!(stranded, 0, "of {cases}");
    let (_, stranded) = drained_together(Some(Rule::OwnDrainSet));
    assert!(stranded > 0, "one drain empties the set that the other has gathered");
}

/// The interrupt of one CPU arrives at each step of another's handler.
#[test]
fn handlers_that_hand_frames_to_one_cpu_at_the_same_time_lose_none() {
    for policy in [POLICIES[0], POLICIES[1]] {
        let (left, _) = everywhere_as(&cpus(3), &small(policy), None, |mm, n| {
            settled(mm);
            hold(mm, 1, 10);
            hold(mm, 2, 10);
            mm.platform().at_touch(1, n, |mm| _ = mm.platform().deliver_all());
            drain(mm, 0, Certainty::Certain);
            mm.frames().on_lists()
        });
        assert!(left.len() > 10, "{policy}: {} cases", left.len());
        assert!(left.iter().all(|&left| left == 0), "{policy}: {left:?}");
    }
}

/// At each touch of what CPU 1 does, CPU 0 wants nothing kept on lists any more, and drains with certainty: frames
/// that are still on CPU 1's lists in the end. And cases in which CPU 0 has to wait for CPU 1, which cannot be played.
fn switched_off(policy: &str, broken: Option<Rule>, work: impl Fn(&Mm<'_>)) -> (Vec<u64>, u32) {
    let policy = format!("{policy}+unmap=per-page+aging=flush");
    everywhere_as(&cpus(2), &small(&policy), broken, |mm, n| {
        settled(mm);
        let host = mm.platform();
        host.at_touch(1, n, |mm| {
            mm.frames().set_list_limits(NodeId(0), NOTHING).unwrap();
            drain(mm, 0, Certainty::Certain);
        });
        host.on(1, || work(mm));
        mm.frames().on_lists()
    })
}

fn alloc_and_free(mm: &Mm<'_>) {
    let frames = take(mm, 1, 3);
    give(mm, 1, frames);
}

#[test]
fn p17_a_drain_that_must_be_certain_asks_those_who_seem_to_hold_nothing() {
    for policy in [POLICIES[1], POLICIES[2]] {
        let (held, waits) = switched_off(policy, None, alloc_and_free);
        assert!(held.len() > 5 && waits > 0, "{policy}: {} cases, {waits} more", held.len());
        assert!(held.iter().all(|&held| held == 0), "{policy}: {held:?}");
        let (held, _) = switched_off(policy, Some(Rule::ForceAsksAll), alloc_and_free);
        assert!(held.iter().any(|&held| held > 0), "{policy}: CPU 1 was about to put a frame on its list");
    }
}

#[test]
fn p20_limits_that_change_in_the_middle_hold_for_what_comes_after() {
    for policy in POLICIES {
        let (held, _) = switched_off(policy, None, alloc_and_free);
        assert!(held.iter().all(|&held| held == 0), "{policy}: {held:?}");
        let (held, _) = switched_off(policy, Some(Rule::LimitsAtPush), alloc_and_free);
        assert!(held.iter().any(|&held| held > 0), "{policy}: a batch that was taken under the old limits");
    }
}

/// At each touch of CPU 0's drain, CPU 1, which holds frames, goes offline. Frames that are still on its lists then.
fn left_in_a_drain(policy: &str, broken: Option<Rule>) -> (Vec<u64>, u32) {
    everywhere_as(&cpus(3), &small(policy), broken, |mm, n| {
        settled(mm);
        hold(mm, 1, 10);
        let host = mm.platform();
        host.at_touch(0, n, |mm| {
            mm.platform().on(1, || mm.cpu_offline().unwrap());
            mm.platform().off[1].set(true);
        });
        drain(mm, 0, Certainty::Certain);
        let held = mm.frames().on_lists();
        if host.all_placed() && broken.is_none() {
            assert_eq!(mm.validate().broken, None);
        }
        held
    })
}

/// At each touch of CPU 1's going offline, CPU 0 drains.
fn drained_in_a_leave(policy: &str, broken: Option<Rule>) -> (Vec<u64>, u32) {
    everywhere_as(&cpus(3), &small(policy), broken, |mm, n| {
        settled(mm);
        hold(mm, 1, 10);
        let host = mm.platform();
        host.at_touch(1, n, |mm| _ = drain(mm, 0, Certainty::Likely));
        host.on(1, || mm.cpu_offline().unwrap());
        host.off[1].set(true);
        mm.frames().on_lists()
    })
}

#[test]
fn p18_a_cpu_that_leaves_in_a_drain_leaves_no_frame_and_is_not_waited_for() {
    for policy in POLICIES {
        let (held, waits) = left_in_a_drain(policy, None);
        assert!(held.len() > 10, "{policy}: {} cases", held.len());
        assert!(held.iter().all(|&held| held == 0), "{policy}: {held:?}");
        let (held, _) = drained_in_a_leave(policy, None);
        assert!(held.len() > 10 && held.iter().all(|&held| held == 0), "{policy}: {held:?}");
        // CPU 1 goes without giving its frames back, after the drain has looked, or without one.
        let (held, _) = left_in_a_drain(policy, Some(Rule::OfflineDrainsLists));
        assert!(held.iter().any(|&held| held > 0), "{policy}: stranded on a CPU that is off");
        if policy != POLICIES[2] {
            let (_, for_ever) = left_in_a_drain(policy, Some(Rule::TakeBack));
            assert!(for_ever > waits, "{policy}: waits for a CPU that is off");
        }
    }
}

/// CPU 1 has this many frames on its lists, and CPU 0 drains them: touches of CPU 1 in its handler, and the most frames
/// that went back under one hold of the zone's lock.
fn drained_many(policy: &str, frames: usize, broken: Option<Rule>) -> (u32, u32) {
    let host = Host::new(cpus(2));
    host.broken.set(broken);
    host.run(small(policy), |mm| {
        settled(mm);
        mm.frames().set_list_limits(NodeId(0), ListLimits { batch: 8, high: 2000 }).unwrap();
        hold(mm, 1, frames);
        host.forget();
        let touches = host.touches_of(1);
        drain(mm, 0, Certainty::Likely);
        let touches = host.touches_of(1) - touches;
        let most = |what: &Happened| match what {
            Happened::Event(Event::Spilled { frames }) => Some(*frames),
            _ => None,
        };
        let most = host.log.borrow().iter().filter_map(most).max();
        (touches, most.expect("frames went back"))
    })
}

#[test]
fn p19_a_drain_holds_a_lock_for_a_batch_and_a_cpu_for_a_moment() {
    for policy in POLICIES {
        let (few, _) = drained_many(policy, 20, None);
        let (touches, most) = drained_many(policy, 1000, None);
        assert_eq!(touches, few, "{policy}: what CPU 1 does does not grow with what it holds");
        assert!(most <= 64, "{policy}: {most} under one hold");
        assert!(drained_many(policy, 1000, Some(Rule::DrainInChunks)).1 >= 1000, "{policy}");
    }
}

#[test]
fn p19_the_count_goes_with_what_it_counts() {
    let broken = |rule| {
        let host = Host::new(cpus(2));
        host.broken.set(rule);
        host.run(small("linux"), |mm| {
            hold(mm, 1, 20);
            drain(mm, 0, Certainty::Likely);
            mm.validate().broken
        })
    };
    assert_eq!(broken(None), None);
    assert!(broken(Some(Rule::CountWithList)).is_some());
}

/// At each touch of CPU 1's frees and allocations, CPU 0 drains: what does not add up in the end.
fn taken_in_the_middle(broken: Option<Rule>) -> (Vec<bool>, u32) {
    everywhere_as(&cpus(2), &small("linux+drain=remote"), broken, |mm, n| {
        settled(mm);
        mm.platform().at_touch(1, n, |mm| _ = drain(mm, 0, Certainty::Likely));
        let on_one_cpu = || {
            let frames = take(mm, 1, 2);
            give(mm, 1, frames);
            mm.platform().all_placed();
            mm.validate().broken.is_some()
        };
        match catch_unwind(AssertUnwindSafe(on_one_cpu)) {
            Ok(wrong) => wrong,
            Err(payload) if payload.is::<StandsStill>() => resume_unwind(payload),
            // A count that went below zero.
            Err(_) => true,
        }
    })
}

#[test]
fn a_drain_from_elsewhere_waits_for_a_list_that_its_cpu_changes() {
    let (wrong, waits) = taken_in_the_middle(None);
    assert!(wrong.len() > 20 && waits > 0, "{} cases, {waits} more", wrong.len());
    assert!(!wrong.contains(&true));
    assert!(taken_in_the_middle(Some(Rule::RemoteTakesLock)).0.contains(&true));
}

#[test]
fn a_cpu_that_comes_back_holds_nothing_and_is_asked_again() {
    for policy in POLICIES {
        let host = Host::new(cpus(2));
        host.run(small(policy), |mm| {
            hold(mm, 1, 10);
            host.on(1, || mm.cpu_offline().unwrap());
            assert_eq!(mm.online_cpus(), 1);
            host.forget();
            drain(mm, 0, Certainty::Certain);
            assert_eq!((host.interrupts(), mm.frames().on_lists()), (0, 0));
            host.on(1, || mm.cpu_online().unwrap());
            assert!(mm.is_online(CpuId(1)) && mm.online_cpus() == 2);
            hold(mm, 1, 10);
            assert!(drain(mm, 0, Certainty::Likely) > 0);
            assert_eq!(mm.frames().on_lists(), 0);
        });
    }
}

/// A CPU's lists hold frames of two zones: each goes back to its own.
#[test]
fn frames_of_two_zones_go_back_to_their_own() {
    for policy in POLICIES {
        let host = Host::new(crate::machine::showing::two_nodes());
        host.run(small(policy), |mm| {
            let from = |node| AllocFrom { node: Some(NodeId(node)), may_reclaim: false };
            let take =
                || -> Vec<Frames> { (0..12).map(|n| mm.frames().alloc(0, from(n % 2)).unwrap()).collect() };
            for here in [true, false] {
                give(mm, 0, take());
                assert!(mm.frames().on_lists() > 8);
                match here {
                    true => mm.frames().drain_here(),
                    false => _ = host.on(1, || mm.frames().drain(Certainty::Certain)),
                }
                assert_eq!((mm.validate().broken, mm.frames().on_lists()), (None, 0), "{policy}");
            }
        });
    }
}
