//! Frames in the handler of an interrupt: from this CPU's lists and back, in the middle of whatever the task does that was interrupted.

use crate::machine;

use std::cell::RefCell;
use std::rc::Rc;

use machine::showing::two_nodes;
use machine::{Host, Mm, Setup, bare, give_back, pcp, settled};
use quietmm::platform::Cpus;
use quietmm::{AllocFrom, Certainty, Config, Error, FrameNumber, Frames, ListLimits, NodeId};

const POLICIES: [&str; 3] = ["linux+drain=all-cpus", "linux+drain=holding-cpus", "linux+drain=remote"];

fn config(policy: &str) -> Config {
    Config { page_lists: pcp(8), ..bare(policy) }
}

/// Does something as a handler would, if an interrupt could come now.
fn interrupted<R>(mm: &Mm<'_>, handler: impl FnOnce() -> R) -> Option<R> {
    let host = mm.platform();
    host.irqs_off().then(|| {
        let result = handler();
        host.irqs_on();
        result
    })
}

#[test]
fn a_handler_gets_what_lies_on_its_cpus_lists_and_no_more() {
    for policy in POLICIES {
        let host = Host::new(Setup { cpus: 2, ..Setup::default() });
        host.run(config(policy), |mm| {
            let start = settled(mm);
            mm.frames().drain(Certainty::Certain);
            assert_eq!(interrupted(mm, || mm.frames().alloc_in_handler(0)), Some(None), "nothing is there");
            let first = mm.frames().alloc(0, AllocFrom::NOW).unwrap();
            assert_eq!(mm.frames().on_lists(), 7);
            let far = host.on(1, || interrupted(mm, || mm.frames().alloc_in_handler(0))).unwrap();
            assert_eq!(far, None, "another CPU's are not its own");
            let mut blocks: Vec<_> =
                std::iter::from_fn(|| interrupted(mm, || mm.frames().alloc_in_handler(0)).unwrap()).collect();
            assert_eq!((blocks.len(), mm.frames().on_lists()), (7, 0));
            for order in [1, 3, 4, 9, 10, 11, 255] {
                assert_eq!(interrupted(mm, || mm.frames().alloc_in_handler(order)), Some(None));
            }
            blocks.push(first);
            let mut numbers: Vec<_> = blocks.iter().map(Frames::first).collect();
            numbers.sort_unstable();
            numbers.dedup();
            assert_eq!(numbers.len(), 8, "each is one owner's");
            for block in blocks {
                assert_eq!(interrupted(mm, || mm.frames().free_in_handler(block)), Some(None));
            }
            assert_eq!((mm.frames().on_lists(), mm.validate().broken), (8, None));
            mm.frames().drain(Certainty::Certain);
            assert_eq!(settled(mm), start);
        });
    }
}

#[test]
fn what_lists_do_not_keep_a_task_frees() {
    let host = Host::new(Setup::default());
    host.run(config("linux"), |mm| {
        let start = settled(mm);
        let take = |order, n: usize| -> Vec<_> {
            (0..n).map(|_| mm.frames().alloc(order, AllocFrom::NOW).unwrap()).collect()
        };
        let free = |blocks: Vec<Frames>| -> Vec<Frames> {
            blocks
                .into_iter()
                .filter_map(|block| interrupted(mm, || mm.frames().free_in_handler(block)).unwrap())
                .collect()
        };
        // Of 32 that it may keep a CPU holds up to 64, until a task of its frees one.
        let blocks = take(0, 70);
        mm.frames().drain(Certainty::Certain);
        let left = free(blocks);
        assert_eq!((left.len(), mm.frames().on_lists()), (6, 64));
        give_back(mm, left);
        assert!(mm.frames().on_lists() < 64, "its tasks let go of what is too much");
        mm.frames().drain(Certainty::Certain);
        // As whole blocks.
        let blocks = take(3, 9);
        mm.frames().drain(Certainty::Certain);
        let left = free(blocks);
        assert_eq!((left.len(), mm.frames().on_lists()), (1, 64));
        give_back(mm, left);
        // Orders that no list has; and nothing at all while nothing is to be kept.
        let left = free(take(4, 1));
        assert_eq!(left.len(), 1);
        give_back(mm, left);
        mm.frames().drain(Certainty::Certain);
        let blocks = take(0, 3);
        mm.frames().drain(Certainty::Certain);
        mm.frames().set_list_limits(NodeId(0), ListLimits { batch: 1, high: 0 }).unwrap();
        let left = free(blocks);
        assert_eq!((left.len(), mm.frames().on_lists()), (3, 0));
        give_back(mm, left);
        // Nor a block that is more than all that may be kept.
        let blocks = take(3, 1);
        mm.frames().set_list_limits(NodeId(0), ListLimits { batch: 1, high: 4 }).unwrap();
        let left = free(blocks);
        assert_eq!((left.len(), mm.frames().on_lists()), (1, 0));
        give_back(mm, left);
        mm.frames().set_list_limits(NodeId(0), pcp(8).unwrap()).unwrap();
        assert_eq!(settled(mm), start);
    });
}

/// What was freed behind its owner's back is not freed again.
#[test]
fn a_block_is_freed_once() {
    let host = Host::new(Setup::default());
    host.run(config("linux"), |mm| {
        let block = mm.frames().alloc(0, AllocFrom::NOW).unwrap();
        mm.frames().drain(Certainty::Certain);
        let free = mm.frames().available();
        mm.frames().free_at(block.first(), 0).unwrap();
        assert_eq!(interrupted(mm, || mm.frames().free_in_handler(block)), Some(None));
        assert_eq!(mm.frames().on_lists(), 1);
        mm.frames().drain(Certainty::Certain);
        assert_eq!((mm.frames().available(), mm.validate().broken), (free + 1, None));
    });
}

/// A kernel that keeps numbers frees by these: what the lists do not keep is its own as before, and nobody frees anything twice.
#[test]
fn a_handler_frees_by_number() {
    let host = Host::new(Setup::default());
    host.run(config("linux"), |mm| {
        let start = settled(mm);
        let take = |order| mm.frames().alloc(order, AllocFrom::NOW).unwrap().into_raw().0;
        let free = |first, order| interrupted(mm, || mm.frames().free_at_in_handler(first, order)).unwrap();
        let (small, long) = (take(0), take(4));
        mm.frames().drain(Certainty::Certain);
        assert_eq!(free(small, 1), Err(Error::NotAllocated(small)), "another order");
        assert_eq!((free(small, 0), mm.frames().on_lists()), (Ok(true), 1));
        assert_eq!(free(small, 0), Err(Error::NotAllocated(small)), "a second time");
        assert_eq!(free(FrameNumber(1 << 30), 0), Err(Error::NoSuchFrame(FrameNumber(1 << 30))));
        // No list has such.
        assert_eq!((free(long, 4), free(long, 4), mm.frames().on_lists()), (Ok(false), Ok(false), 1));
        assert_eq!(mm.validate().broken, None);
        mm.frames().free_at(long, 4).unwrap();
        assert_eq!(free(long, 4), Err(Error::NotAllocated(long)));
        mm.frames().drain(Certainty::Certain);
        assert_eq!(settled(mm), start);
    });
}

/// A task of CPU 0's that is interrupted at its `n`th touch, by a handler that allocates or frees: no frame has two owners, and none is lost.
/// Says whether there is such a touch.
fn is_interrupted(policy: &str, task: fn(&Mm<'_>), frees: bool, n: u32) -> bool {
    let config = Config { page_lists: Some(ListLimits { batch: 2, high: 4 }), ..bare(policy) };
    let host = Host::new(Setup { cpus: 2, ..Setup::default() });
    host.run(config, |mm| {
        let start = settled(mm);
        let took = |&order: &u8| mm.frames().alloc(order, AllocFrom::NOW).unwrap();
        let held = Rc::new(RefCell::new([0, 0, 2].iter().map(took).collect::<Vec<_>>()));
        let own = Rc::clone(&held);
        mm.platform().place();
        mm.platform().at_touch(0, n, move |mm| {
            interrupted(mm, || {
                let mut own = own.borrow_mut();
                if frees {
                    let blocks = std::mem::take(&mut *own);
                    own.extend(blocks.into_iter().filter_map(|block| mm.frames().free_in_handler(block)));
                } else {
                    own.extend([0, 2, 0].iter().filter_map(|&order| mm.frames().alloc_in_handler(order)));
                }
            });
        });
        task(mm);
        let is = mm.platform().all_placed();
        mm.platform().forget_placed();
        let mut numbers: Vec<_> = held.borrow().iter().map(Frames::first).collect();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), held.borrow().len());
        give_back(mm, held.take());
        mm.frames().drain(Certainty::Certain);
        assert_eq!(settled(mm), start, "{policy}, touch {n}");
        is
    })
}

#[test]
fn a_handler_may_come_at_any_time() {
    let tasks: [fn(&Mm<'_>); 4] = [
        |mm| {
            // A list that runs dry, and one that has too much.
            let blocks: Vec<_> = (0..12).map(|_| mm.frames().alloc(0, AllocFrom::NOW).unwrap()).collect();
            give_back(mm, blocks);
        },
        |mm| {
            let blocks: Vec<_> = (0..3).map(|_| mm.frames().alloc(2, AllocFrom::NOW).unwrap()).collect();
            give_back(mm, blocks);
        },
        |mm| mm.frames().drain_here(),
        |mm| {
            mm.frames().drain(Certainty::Certain);
        },
    ];
    for policy in POLICIES {
        for (task, frees) in tasks.into_iter().flat_map(|task| [(task, false), (task, true)]) {
            let touches = (0..).take_while(|&n| is_interrupted(policy, task, frees, n)).count();
            assert!(touches > 4, "there are places: {touches}");
        }
    }
}

/// CPU 1 goes offline, and `handler` comes there as the interrupts go on for the `n`th time; says how often they did before the CPU was gone.
fn goes_interrupted(mm: &Mm<'_>, n: usize, handler: impl FnOnce(&Mm<'_>) + 'static) -> usize {
    const MANY: usize = 1000;
    let host = mm.platform();
    let nothing = |_| Box::new(|_: &Mm<'_>| {}) as Box<dyn FnOnce(&Mm<'_>)>;
    let mut hooks: Vec<_> = (0..MANY).map(nothing).collect();
    hooks[n] = Box::new(handler);
    host.on_irqs_on.borrow_mut().extend(hooks);
    host.on(1, || mm.cpu_offline().unwrap());
    host.off[1].set(true);
    // The last time it is gone.
    MANY - host.on_irqs_on.take().len() - 1
}

/// A handler frees a block whenever it can while its CPU goes offline: the CPU leaves none behind (INV-7).
#[test]
fn a_cpu_goes_without_what_handlers_have_freed() {
    for policy in POLICIES {
        let (mut n, mut times) = (0, 1);
        while n < times {
            let host = Host::new(Setup { cpus: 2, ..Setup::default() });
            host.run(config(policy), |mm| {
                let start = settled(mm);
                let block = Rc::new(RefCell::new(mm.frames().alloc(0, AllocFrom::NOW).ok()));
                mm.frames().drain(Certainty::Certain);
                let frees = Rc::clone(&block);
                times = goes_interrupted(mm, n, move |mm| {
                    let block = frees.take();
                    frees.replace(block.and_then(|block| mm.frames().free_in_handler(block)));
                });
                assert_eq!((mm.validate().broken, mm.frames().on_lists()), (None, 0), "{policy}, {n}");
                give_back(mm, block.take().into_iter().collect());
                mm.frames().drain(Certainty::Certain);
                assert_eq!(mm.frames().available(), start.free, "{policy}, {n}");
                host.off[1].set(false);
                host.on(1, || mm.cpu_online().unwrap());
                assert_eq!(settled(mm), start);
            });
            n += 1;
        }
        assert!(times > 1, "{policy}: {times}");
    }
}

/// Nothing of its own node lies on its lists.
#[test]
fn a_handler_takes_what_lies_on_its_cpus_lists_of_any_node() {
    let host = Host::new(two_nodes());
    host.run(config("linux"), |mm| {
        mm.frames().drain_here();
        let far = AllocFrom { node: Some(NodeId(1)), may_reclaim: false };
        let first = mm.frames().alloc(0, far).unwrap();
        assert_eq!(mm.frames().on_lists(), 7);
        let second = interrupted(mm, || mm.frames().alloc_in_handler(0)).unwrap().expect("there are seven");
        assert!(second.first() >= FrameNumber(0xfc00 + 2048));
        give_back(mm, vec![first, second]);
    });
}
