//! CPUs that are threads of the host: whoever waits goes on serving, and CPUs that go and come are neither waited for nor
//! forgotten, in whatever order it happens.

use crate::threads;

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use quietmm::platform::Cpus;
use quietmm::{AllocFrom, Certainty, Config, FrameNumber, ListLimits, NodeId, Policy, Rule, SpaceId};
use threads::{FRAMES, Mm, Threads};

/// Two CPUs shoot at each other with interrupts off, again and again: whether both come to an end.
fn shoot_at_each_other(broken: Option<Rule>) -> bool {
    const ROUNDS: u32 = 100;
    let done = AtomicU32::new(0);
    let deaf = AtomicU32::new(0);
    Threads::run(
        2,
        broken,
        |mm| mm.create_space().unwrap(),
        |mm, &space, _| {
            let machine = mm.platform();
            mm.space(space).switch_to().unwrap();
            for round in 0..ROUNDS {
                machine.irqs_off();
                if round == 0 {
                    // Both are deaf before either shoots. Later on that would be a wait that serves nobody.
                    deaf.fetch_add(1, Ordering::SeqCst);
                    machine.wait_until(|| deaf.load(Ordering::SeqCst) == 2);
                }
                mm.space(space).flush().unwrap();
                machine.irqs_on();
                machine.got_on();
            }
            done.fetch_add(1, Ordering::SeqCst);
            // It still serves, and leaves it to the other to say that it is stuck.
            machine.wait_until(|| {
                machine.got_on();
                done.load(Ordering::SeqCst) == 2
            });
        },
    )
}

#[test]
fn p14_two_cpus_that_shoot_at_each_other_with_interrupts_off_both_come_to_an_end() {
    assert!(shoot_at_each_other(None));
    assert!(!shoot_at_each_other(Some(Rule::ServeWhileWaiting)), "each waits for the other, for ever");
}

/// What the CPUs of `go_and_come` share.
struct Shared {
    space: SpaceId,
    /// Raised before each flush, and noted when the flush has returned.
    version: AtomicU64,
    flushed: AtomicU64,
    working: AtomicU32,
}

/// CPU 0 flushes, the others go and come and use what they have cached in between. Whether nobody hung, and how often
/// something was used that had been flushed.
fn go_and_come(broken: Option<Rule>) -> (bool, u64) {
    const OTHERS: u16 = 2;
    const ROUNDS: u32 = 100;
    let stale = AtomicU64::new(0);
    let fine = Threads::run(
        OTHERS + 1,
        broken,
        |mm| Shared {
            space: mm.create_space().unwrap(),
            version: AtomicU64::new(1),
            flushed: AtomicU64::new(0),
            working: AtomicU32::new(OTHERS.into()),
        },
        |mm, shared, cpu| {
            let machine = mm.platform();
            if cpu == 0 {
                while shared.working.load(Ordering::SeqCst) > 0 {
                    let version = shared.version.fetch_add(1, Ordering::SeqCst);
                    mm.space(shared.space).flush().unwrap();
                    shared.flushed.store(version, Ordering::SeqCst);
                    machine.got_on();
                    std::thread::yield_now();
                }
                return;
            }
            for _ in 0..ROUNDS {
                mm.space(shared.space).switch_to().unwrap();
                stale.fetch_add((0..8).filter(|_| uses_stale(mm, shared)).count() as u64, Ordering::SeqCst);
                go_for_a_flush(mm, shared);
                machine.got_on();
            }
            mm.cpu_offline().unwrap();
            shared.working.fetch_sub(1, Ordering::SeqCst);
        },
    );
    (fine, stale.load(Ordering::SeqCst))
}

/// Off, and deaf, until at least one flush has come and gone.
fn go_for_a_flush(mm: &Mm<'_>, shared: &Shared) {
    let machine = mm.platform();
    let version = || shared.flushed.load(Ordering::SeqCst);
    mm.cpu_offline().unwrap();
    machine.irqs_off();
    let before = version();
    machine.wait_until(|| version() > before + 1);
    mm.cpu_online().unwrap();
    machine.irqs_on();
}

/// Uses what this CPU has cached, or caches what there is now. Whether it was flushed before this began.
fn uses_stale(mm: &Mm<'_>, shared: &Shared) -> bool {
    let machine = mm.platform();
    let flushed = shared.flushed.load(Ordering::SeqCst);
    match machine.cached() {
        0 => {
            // The walk and the fill are one step to interrupts, as on hardware.
            let were_on = machine.irqs_off();
            machine.cache(shared.version.load(Ordering::SeqCst));
            if were_on {
                machine.irqs_on();
            }
            false
        }
        version => version <= flushed,
    }
}

#[test]
fn p11_cpus_that_go_and_come_while_another_flushes_are_neither_waited_for_nor_forgotten() {
    assert_eq!(go_and_come(None), (true, 0));
    let (fine, stale) = go_and_come(Some(Rule::OfflineLeavesMasks));
    assert!(fine && stale > 0, "they come back with what they had");
}

/// What the CPUs of `take_and_free` share.
struct Pool {
    /// Blocks that one CPU has taken and another will free.
    handed: Mutex<Vec<(FrameNumber, u8)>>,
    /// By frame, whether somebody has it.
    taken: Vec<AtomicBool>,
}

impl Pool {
    /// Every frame of a block changes hands: nobody had it, or who gives it did.
    fn note(&self, (first, order): (FrameNumber, u8), taken: bool) {
        for n in first.0..first.0 + (1 << order) {
            assert_ne!(
                self.taken[n as usize].swap(taken, Ordering::SeqCst),
                taken,
                "frame {n} has two owners"
            );
        }
    }
}

/// CPUs take and free blocks, their own and each other's, drain, go and come; limits change, and a block of memory goes
/// and comes.
fn take_and_free(mm: &Mm<'_>, pool: &Pool, cpu: u16) {
    const STEPS: u64 = 4000;
    let machine = mm.platform();
    let mut random = 0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(u64::from(cpu) + 1);
    for _ in 0..STEPS {
        machine.got_on();
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let pick = (random >> 32) as u32;
        let handed = || pool.handed.lock().unwrap();
        match random % 128 {
            0 => _ = mm.frames().drain(Certainty::Likely),
            1 => _ = mm.frames().drain(Certainty::Certain),
            2 => {
                let high = pick % 64;
                mm.frames()
                    .set_list_limits(NodeId(0), ListLimits { batch: (high / 4).max(1), high })
                    .unwrap();
            }
            3 if cpu != 0 => {
                mm.cpu_offline().unwrap();
                mm.cpu_online().unwrap();
            }
            4..8 if cpu == 0 => {
                let leaving = mm.frames().begin_offline(FrameNumber(FRAMES - 1024)).unwrap();
                match mm.frames().finish_offline(leaving) {
                    Ok(block) => mm.frames().bring_online(block),
                    Err(remains) => mm.frames().cancel_offline(remains.leaving),
                }
            }
            8..72 => {
                if let Ok(block) = mm.frames().alloc((pick % 5) as u8, AllocFrom::NOW) {
                    let block = block.into_raw();
                    pool.note(block, true);
                    handed().push(block);
                }
            }
            _ => {
                let mut all = handed();
                let block = if all.is_empty() { None } else { Some(pick as usize % all.len()) };
                let block = block.map(|at| all.swap_remove(at));
                drop(all);
                if let Some(block) = block {
                    pool.note(block, false);
                    mm.frames().free_at(block.0, block.1).unwrap();
                }
            }
        }
    }
    // Whoever has ended serves nobody.
    mm.cpu_offline().unwrap();
}

#[test]
fn frames_add_up_when_cpus_are_threads_whatever_the_drain() {
    for drain in ["all-cpus", "holding-cpus", "remote"] {
        let config = Config {
            page_lists: Some(ListLimits { batch: 8, high: 32 }),
            min_free: Some(0),
            ..Config::new(Policy::parse(&format!("vanilla+drain={drain}")).unwrap())
        };
        let pool = |_: &Mm<'_>| Pool {
            handed: Mutex::default(),
            taken: (0..FRAMES).map(|_| AtomicBool::new(false)).collect(),
        };
        let last = |mm: &Mm<'_>| {
            let audit = mm.validate();
            assert_eq!((audit.broken, audit.pcp), (None, 0), "{drain}");
            assert_eq!(mm.online_cpus(), 0);
        };
        assert!(
            Threads::run_as(config, 3, None, pool, take_and_free, last),
            "{drain}: somebody waits for ever"
        );
    }
}
