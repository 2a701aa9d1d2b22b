//! Swap on CPUs that are threads of the host: faults, writes, reclaim, forks and unmaps in whatever order it happens, each
//! page's content checked when it is read.

use crate::machine::soaks;
use crate::threads;

use std::sync::Mutex;
use std::sync::atomic::Ordering;

use quietmm::{
    AllocFrom, Backing, Config, Counter, Error, Frames, ListLimits, PageNumber, PageRange, Policy, Prot,
    Rule, SpaceId, UserAccess,
};
use threads::{Mm, Threads};

/// Pages of each CPU in the space that all share.
const PAGES: u64 = 200;
/// Frames that are left to each for them, and for tables.
const MEMORY: usize = 120;

struct Shared {
    space: SpaceId,
    /// What makes memory short.
    _held: Mutex<Vec<Frames>>,
}

fn page(cpu: u16, index: u64) -> PageNumber {
    PageNumber(0x1000 + u64::from(cpu) * 0x1000 + index)
}

/// An access of a program; an error of the device is tried again, and so is one for want of memory.
fn access(mm: &Mm<'_>, id: SpaceId, at: PageNumber, write: Option<u64>) -> u64 {
    let kind = if write.is_some() { UserAccess::Write } else { UserAccess::Read };
    loop {
        if let Some(value) = mm.platform().access(at, write) {
            return value;
        }
        match mm.space(id).fault(at.addr(), kind) {
            Ok(()) | Err(Error::OutOfMemory) => {}
            // Another CPU's, which it is about to map again.
            Err(Error::NotMapped(_)) => {}
            Err(Error::SwapDevice(of)) => assert_eq!(of, at),
            Err(error) => panic!("{at:?}: {error}"),
        }
        mm.platform().got_on();
    }
}

fn first(mm: &Mm<'_>, cpus: u16) -> Shared {
    mm.swap().on(0, 1024, 0).unwrap();
    mm.swap().on(1, 1024, 0).unwrap();
    let space = mm.create_space().unwrap();
    for cpu in 0..cpus {
        let own = PageRange::new(page(cpu, 0), PAGES);
        mm.space(space).map(own, Backing::Anonymous, Prot::ReadWrite).unwrap();
    }
    let mut held: Vec<_> = std::iter::from_fn(|| mm.frames().alloc(0, AllocFrom::NOW).ok()).collect();
    held.split_off(held.len() - MEMORY * usize::from(cpus))
        .into_iter()
        .for_each(|frame| mm.frames().free(frame));
    mm.platform().fail_one_in.store(37, Ordering::SeqCst);
    Shared { space, _held: Mutex::new(held) }
}

fn work(mm: &Mm<'_>, shared: &Shared, (cpu, cpus): (u16, u16), steps: u64) {
    let (machine, id) = (mm.platform(), shared.space);
    let mut own = [0u64; PAGES as usize];
    let mut random = 0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(u64::from(cpu) + 1);
    mm.space(id).switch_to().unwrap();
    for step in 1..=steps {
        machine.got_on();
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let pick = (random >> 32) % PAGES;
        // Whose a value is can be told from it.
        let value = step * u64::from(cpus) + u64::from(cpu);
        match random % 1024 {
            0..2 => {
                // Nobody else writes to what is this CPU's: the child shows what it was.
                let Ok(child) = mm.space(id).fork() else { continue };
                mm.space(child).switch_to().unwrap();
                for at in (pick..PAGES).step_by(7) {
                    assert_eq!(access(mm, child, page(cpu, at), None), own[at as usize]);
                    access(mm, child, page(cpu, at), Some(value));
                }
                mm.space(id).switch_to().unwrap();
                while mm.space(child).destroy() == Err(Error::Busy) {
                    machine.got_on();
                }
            }
            2..6 => {
                let part = PageRange::new(page(cpu, pick), (PAGES - pick).min(8));
                if mm.space(id).unmap(part) == Err(Error::OutOfMemory) {
                    continue;
                }
                while let Err(error) = mm.space(id).map(part, Backing::Anonymous, Prot::ReadWrite) {
                    assert_eq!(error, Error::OutOfMemory);
                    machine.got_on();
                }
                (pick..pick + part.pages).for_each(|at| own[at as usize] = 0);
            }
            6 if cpu == 0 => {
                // What it cannot read it says, and is asked again.
                while mm.swap().off(1).is_err() {
                    machine.got_on();
                }
                while mm.swap().on(1, 1024, 0).is_err() {
                    machine.got_on();
                }
            }
            7..400 => {
                access(mm, id, page(cpu, pick), Some(value));
                own[pick as usize] = value;
            }
            400..600 => {
                let other = (cpu + 1) % cpus;
                let seen = access(mm, id, page(other, pick), None);
                assert!(seen == 0 || seen % u64::from(cpus) == other.into(), "{seen} is not CPU {other}'s");
            }
            _ => assert_eq!(access(mm, id, page(cpu, pick), None), own[pick as usize], "step {step}"),
        }
    }
    (0..PAGES).for_each(|at| assert_eq!(access(mm, id, page(cpu, at), None), own[at as usize]));
    mm.cpu_offline().unwrap();
}

fn last(mm: &Mm<'_>, policy: &str) {
    assert!(
        mm.counter(Counter::PswpOut) > 500 && mm.counter(Counter::PswpIn) > 500,
        "{policy}: there was swap"
    );
    assert!(mm.counter(Counter::PgPgOutFailed) > 0 && mm.counter(Counter::PgCopied) > 0);
    let audit = mm.validate();
    assert_eq!(audit.broken, None, "{policy}");
}

fn run(policy: &'static str, cpus: u16, broken: Option<Rule>) -> bool {
    let config = Config {
        page_lists: Some(ListLimits { batch: 1, high: 0 }),
        min_free: Some(0),
        lru_batch: 4,
        scan_batch: 8,
        swap: true,
        shadows: true,
        sweep_deadline: 0,
        ..Config::new(Policy::parse(policy).unwrap())
    };
    // With a rule broken what is wrong must come up.
    let steps = if broken.is_some() || soaks() { 20_000 } else { 5000 };
    Threads::run_as(
        config,
        cpus,
        broken,
        |mm| first(mm, cpus),
        |mm, shared, cpu| work(mm, shared, (cpu, cpus), steps),
        |mm| {
            if broken.is_none() {
                last(mm, policy);
            }
        },
    )
}

#[test]
fn every_page_shows_what_was_written_there_while_all_cpus_need_memory() {
    for (policy, cpus) in [("linux", 3), ("quiet", 2), ("vanilla", 3), ("linux+unmap=batch-clean", 4)] {
        assert!(run(policy, cpus, None), "{policy}: somebody waits for ever");
    }
}

#[test]
fn without_its_rules_what_was_written_is_lost() {
    for rule in [Rule::KeepWhatFailed, Rule::DirtyBeforeUnlock] {
        let fine = std::panic::catch_unwind(|| run("linux", 3, Some(rule)));
        assert!(!matches!(fine, Ok(true)), "{rule}: nothing was seen");
    }
}
