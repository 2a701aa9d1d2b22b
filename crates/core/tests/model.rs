//! Random work on a few CPUs against a small model of what each address must show.

mod machine;

use std::collections::BTreeMap;

use machine::{Host, Mm, Setup, bare, exhaust, give_back, pages, settled};
use proptest::prelude::*;
use proptest::test_runner::{RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};
use quietmm::{Backing, Config, Counter, Error, FileId, NodeId, PageNumber, Prot, Rule, SpaceId};

const AT: u64 = 0x11f8; // 8 pages before the end of a table
const PAGES: u64 = 48;
const SPACES: usize = 2;

/// One step. Numbers are taken modulo what there is.
#[derive(Clone, Debug)]
enum Step {
    Map { space: u8, at: u8, count: u8, file: bool },
    Unmap { space: u8, at: u8, count: u8 },
    Read { cpu: u8, space: u8, at: u8 },
    Write { cpu: u8, space: u8, at: u8, value: u64 },
    Lazy { cpu: u8 },
    Unload { cpu: u8 },
    Renew { cpu: u8, space: u8 },
    Reclaim { cpu: u8 },
}

fn step() -> impl Strategy<Value = Step> {
    // Few addresses, so that the same one is used again; the ranges are longer.
    let (cpu, space, at) = (0u8..4, 0u8..SPACES as u8, 0u8..14);
    prop_oneof![
        3 => (space.clone(), at.clone(), 1u8..48, any::<bool>())
            .prop_map(|(space, at, count, file)| Step::Map { space, at, count, file }),
        3 => (space.clone(), at.clone(), 1u8..48).prop_map(|(space, at, count)| Step::Unmap { space, at, count }),
        12 => (cpu.clone(), space.clone(), at.clone()).prop_map(|(cpu, space, at)| Step::Read { cpu, space, at }),
        12 => (cpu.clone(), space.clone(), at, 1u64..1000)
            .prop_map(|(cpu, space, at, value)| Step::Write { cpu, space, at, value }),
        4 => cpu.clone().prop_map(|cpu| Step::Lazy { cpu }),
        1 => cpu.clone().prop_map(|cpu| Step::Unload { cpu }),
        1 => (cpu.clone(), space).prop_map(|(cpu, space)| Step::Renew { cpu, space }),
        2 => cpu.prop_map(|cpu| Step::Reclaim { cpu }),
    ]
}

/// What a page shows: its own memory, or a page of the file.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shown {
    Own(u64),
    File(u64),
}

#[derive(Clone, Debug)]
struct Case {
    cpus: u32,
    tags: u16,
    policy: &'static str,
    steps: Vec<Step>,
}

fn case(cpus: impl Strategy<Value = u32>) -> impl Strategy<Value = Case> {
    let policies =
        vec!["vanilla", "linux", "linux+unmap=batch-clean", "linux+aging=flush", "linux+unmap=per-page"];
    (cpus, 1u16..4, prop::sample::select(policies), prop::collection::vec(step(), 1..120))
        .prop_map(|(cpus, tags, policy, steps)| Case { cpus, tags, policy, steps })
}

struct World<'m, 'p> {
    mm: &'m Mm<'p>,
    host: &'p Host,
    cpus: u8,
    file: FileId,
    spaces: Vec<SpaceId>,
    /// What each space shows at each page.
    shown: Vec<BTreeMap<u64, Shown>>,
    content: BTreeMap<u64, u64>,
}

impl World<'_, '_> {
    /// The part of `at..at + count` that exists.
    fn range(at: u8, count: u8) -> (u64, u64) {
        (AT + u64::from(at), u64::from(count).min(PAGES - u64::from(at)))
    }

    fn take(&mut self, step: &Step) -> Result<(), TestCaseError> {
        let (mm, host) = (self.mm, self.host);
        match *step {
            Step::Map { space, at, count, file } => {
                let (start, count) = Self::range(at, count);
                let shown = &mut self.shown[space as usize];
                let offset = u64::from(at) / 2;
                let backing =
                    if file { Backing::File { file: self.file, offset } } else { Backing::Anonymous };
                let clash = (start..start + count).find(|page| shown.contains_key(page));
                let want = clash.map_or(Ok(()), |page| Err(Error::Overlaps(PageNumber(page))));
                let done = mm.map(self.spaces[space as usize], pages(start, count), backing, Prot::ReadWrite);
                prop_assert_eq!(done, want);
                if done.is_ok() {
                    let what = |i| if file { Shown::File(offset + i) } else { Shown::Own(0) };
                    shown.extend((0..count).map(|i| (start + i, what(i))));
                }
            }
            Step::Unmap { space, at, count } => {
                let (start, count) = Self::range(at, count);
                let shown = &mut self.shown[space as usize];
                let hole = (start..start + count).find(|page| !shown.contains_key(page));
                let want = hole.map_or(Ok(()), |page| Err(Error::NotMapped(PageNumber(page))));
                let done = mm.unmap(self.spaces[space as usize], pages(start, count));
                prop_assert_eq!(done, want);
                if done.is_ok() {
                    (start..start + count).for_each(|page| _ = shown.remove(&page));
                }
            }
            Step::Read { cpu, space, at } => self.access(cpu, space, at, None)?,
            Step::Write { cpu, space, at, value } => self.access(cpu, space, at, Some(value))?,
            Step::Lazy { cpu } => host.on((cpu % self.cpus).into(), || mm.enter_lazy()),
            Step::Unload { cpu } => host.on((cpu % self.cpus).into(), || mm.unload()),
            Step::Renew { cpu, space } => {
                // All others leave, or are lazy; then the space ends, and a new one takes its slot.
                let id = self.spaces[space as usize];
                for other in 0..self.cpus {
                    host.on(other.into(), || if other % 2 == 0 { mm.enter_lazy() } else { mm.unload() });
                }
                host.on((cpu % self.cpus).into(), || mm.destroy_space(id)).unwrap();
                self.spaces[space as usize] = mm.create_space().unwrap();
                self.shown[space as usize].clear();
            }
            Step::Reclaim { cpu } => host.on((cpu % self.cpus).into(), || {
                mm.drain_lru_batch();
                give_back(mm, exhaust(mm));
                let kswapd = mm.counter(Counter::KswapdWoken) > 0 && mm.free_frame_count() < 100;
                if kswapd {
                    mm.kswapd(NodeId(0)).map_err(|e| TestCaseError::fail(e.to_string()))
                } else {
                    Ok(())
                }
            })?,
        }
        prop_assert_eq!(host.stale.get(), 0, "a CPU used what the tables no longer hold");
        prop_assert_eq!(mm.validate().broken, None);
        Ok(())
    }

    fn access(&mut self, cpu: u8, space: u8, at: u8, write: Option<u64>) -> Result<(), TestCaseError> {
        let (mm, host, page) = (self.mm, self.host, AT + u64::from(at));
        let id = self.spaces[space as usize];
        let done = host.on((cpu % self.cpus).into(), || {
            mm.switch_to(id)?;
            match write {
                Some(value) => host.write(mm, id, page, value).map(|()| value),
                None => host.read(mm, id, page),
            }
        });
        let want = match (self.shown[space as usize].get_mut(&page), write) {
            (None, _) => Err(Error::NotMapped(PageNumber(page))),
            (Some(Shown::Own(own)), Some(value)) => {
                *own = value;
                Ok(value)
            }
            (Some(Shown::Own(own)), None) => Ok(*own),
            (Some(Shown::File(at)), Some(value)) => {
                self.content.insert(*at, value);
                Ok(value)
            }
            (Some(Shown::File(at)), None) => Ok(self.content.get(at).copied().unwrap_or(0)),
        };
        prop_assert_eq!(done, want);
        Ok(())
    }
}

fn follow(case: &Case, broken: Option<Rule>) -> Result<(), TestCaseError> {
    let host = Host::new(Setup { cpus: case.cpus, tags: case.tags, frames: 320, ..Setup::default() });
    host.broken.set(broken);
    host.run(Config { lru_batch: 3, scan_batch: 8, flush_ceiling: 7, ..bare(case.policy) }, |mm| {
        let file = mm.create_file(2 * PAGES).unwrap();
        let spaces: Vec<_> = (0..SPACES).map(|_| mm.create_space().unwrap()).collect();
        let mut world = World {
            mm,
            host: &host,
            cpus: case.cpus as u8,
            file,
            spaces,
            shown: vec![BTreeMap::new(); SPACES],
            content: BTreeMap::new(),
        };
        for step in &case.steps {
            world.take(step)?;
        }
        (0..case.cpus as u16).for_each(|cpu| host.on(cpu, || mm.unload()));
        for &id in &world.spaces {
            prop_assert_eq!(mm.destroy_space(id), Ok(()));
        }
        prop_assert_eq!(mm.destroy_file(file), Ok(()));
        let end = settled(mm);
        prop_assert_eq!(end.broken, None);
        prop_assert_eq!((end.tables, end.anon, end.file, end.kernel, end.mapped), (1, 0, 0, 0, 0));
        prop_assert_eq!(host.interrupts() as u64, mm.counter(Counter::IpisReceived));
        if case.cpus == 1 {
            prop_assert_eq!(host.interrupts(), 0);
        }
        Ok(())
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, ..ProptestConfig::default() })]

    #[test]
    fn every_address_shows_what_was_last_written_there(case in case(1u32..=4)) {
        follow(&case, None)?;
    }
}

/// The same work, with one rule broken: among as many cases as it takes one must be seen to fail.
#[test]
fn the_model_sees_each_rule_that_is_broken() {
    for rule in [
        Rule::FlushBeforeFree,
        Rule::FlushBeforeUnmapReturns,
        Rule::LazyReturnFlush,
        Rule::SwitchFlush,
        Rule::TablesToLazy,
    ] {
        let config = ProptestConfig {
            cases: 4000,
            max_shrink_iters: 0,
            failure_persistence: None,
            ..ProptestConfig::default()
        };
        // The same cases each time: whether a fault is seen must not be a matter of luck.
        let mut runner = TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha));
        let run = runner.run(&case(2u32..=4), |case| follow(&case, Some(rule)));
        assert!(matches!(run, Err(TestError::Fail(..))), "nothing was seen with {rule} broken");
    }
}
