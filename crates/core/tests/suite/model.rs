//! Random work on a few CPUs against a small model of what each address must show.

use crate::machine;

use std::collections::BTreeMap;

use machine::{Host, Mm, Setup, bare, exhaust, give_back, pages, settled};
use proptest::prelude::*;
use proptest::test_runner::{RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};
use quietmm::{
    Advice, Backing, Config, Counter, Error, FileId, FrameNumber, NodeId, PageNumber, Prot, Region, Rule,
    SpaceId,
};

const AT: u64 = 0xfff8; // 8 pages before the end of a table, and before numbers of more than 16 bits
const PAGES: u64 = 48;
/// Addresses of small ranges that are touched.
const SMALL: u8 = 14;
/// Where ranges are long enough for large pages, and what is touched there.
const LARGE_AT: u64 = 0x40000;
const LARGE_PAGES: u64 = 1024;
const LARGE: [u64; 8] = [0, 1, 255, 511, 512, 600, 1000, 1023];
/// The ranges there, often whole large pages.
const LARGE_RANGES: [(u64, u64); 8] =
    [(0, 1024), (0, 512), (512, 512), (0, 1), (511, 2), (255, 400), (600, 1), (1, 1022)];
const SPACES: usize = 4;
const PROTS: [Prot; 3] = [Prot::None, Prot::Read, Prot::ReadWrite];

/// A range, by numbers that are taken modulo what there is.
#[derive(Clone, Copy, Debug)]
struct Part {
    at: u8,
    count: u8,
}

/// One step. Numbers are taken modulo what there is.
#[derive(Clone, Debug)]
enum Step {
    Map {
        space: u8,
        part: Part,
        backing: u8,
        prot: u8,
    },
    Unmap {
        space: u8,
        part: Part,
    },
    Protect {
        space: u8,
        part: Part,
        prot: u8,
    },
    Move {
        space: u8,
        part: Part,
        to: u8,
    },
    Advise {
        space: u8,
        part: Part,
        advice: u8,
    },
    Migrate {
        space: u8,
        part: Part,
        to: u16,
    },
    Fork {
        cpu: u8,
        from: u8,
        to: u8,
    },
    WriteBack {
        cpu: u8,
    },
    Device {
        fails: bool,
    },
    /// Reads fail for the next access.
    FailRead {
        cpu: u8,
        space: u8,
        at: u8,
    },
    /// A swap device goes off, and comes back.
    SwapOff {
        cpu: u8,
        device: bool,
    },
    Read {
        cpu: u8,
        space: u8,
        at: u8,
    },
    /// By every CPU that has the space loaded, lazily or not.
    ReadByAll {
        space: u8,
        at: u8,
    },
    Write {
        cpu: u8,
        space: u8,
        at: u8,
        value: u64,
    },
    Lazy {
        cpu: u8,
    },
    Unload {
        cpu: u8,
    },
    Renew {
        cpu: u8,
        space: u8,
    },
    Reclaim {
        cpu: u8,
    },
}

/// A place that is touched: few, so that the same one is used again.
fn place() -> impl Strategy<Value = u8> + Clone {
    // The hottest lie on both sides of a border between tables.
    prop_oneof![4 => 6u8..10, 2 => 0..SMALL, 2 => SMALL..SMALL + LARGE.len() as u8].boxed()
}

fn address(at: u8) -> u64 {
    match at.checked_sub(SMALL) {
        None => AT + u64::from(at),
        Some(large) => LARGE_AT + LARGE[large as usize],
    }
}

impl Part {
    fn range(self) -> (u64, u64) {
        match self.at.checked_sub(SMALL) {
            None => (address(self.at), u64::from(self.count).min(PAGES - u64::from(self.at))),
            Some(_) => {
                let (from, count) = LARGE_RANGES[self.count as usize % LARGE_RANGES.len()];
                (LARGE_AT + from, count.min(LARGE_PAGES - from))
            }
        }
    }
}

fn step() -> impl Strategy<Value = Step> {
    // Most work is in two spaces; the others come by fork.
    let (cpu, at) = (0u8..4, place());
    let space = prop_oneof![5 => Just(0u8), 2 => Just(1), 1 => 2..SPACES as u8].boxed();
    let count = prop_oneof![1u8..4, 1u8..48];
    let part = (place(), count).prop_map(|(at, count)| Part { at, count }).boxed();
    let on = (space.clone(), part).boxed();
    prop_oneof![
        4 => (on.clone(), 0u8..4, 0u8..5)
            .prop_map(|((space, part), backing, prot)| Step::Map { space, part, backing, prot }),
        2 => on.clone().prop_map(|(space, part)| Step::Unmap { space, part }),
        2 => (on.clone(), 0u8..4).prop_map(|((space, part), prot)| Step::Protect { space, part, prot }),
        2 => (on.clone(), at.clone()).prop_map(|((space, part), to)| Step::Move { space, part, to }),
        3 => (on.clone(), 0u8..4).prop_map(|((space, part), advice)| Step::Advise { space, part, advice }),
        2 => (on, 0u16..2).prop_map(|((space, part), to)| Step::Migrate { space, part, to }),
        2 => (cpu.clone(), space.clone(), space.clone())
            .prop_map(|(cpu, from, to)| Step::Fork { cpu, from, to }),
        2 => cpu.clone().prop_map(|cpu| Step::WriteBack { cpu }),
        1 => prop::bool::weighted(0.3).prop_map(|fails| Step::Device { fails }),
        6 => (cpu.clone(), space.clone(), at.clone()).prop_map(|(cpu, space, at)| Step::Read { cpu, space, at }),
        6 => (space.clone(), at.clone()).prop_map(|(space, at)| Step::ReadByAll { space, at }),
        12 => (cpu.clone(), space.clone(), at, 1u64..1000)
            .prop_map(|(cpu, space, at, value)| Step::Write { cpu, space, at, value }),
        4 => cpu.clone().prop_map(|cpu| Step::Lazy { cpu }),
        1 => cpu.clone().prop_map(|cpu| Step::Unload { cpu }),
        1 => (cpu.clone(), space).prop_map(|(cpu, space)| Step::Renew { cpu, space }),
        2 => cpu.prop_map(|cpu| Step::Reclaim { cpu }),
    ]
}

/// What a page shows when nobody has written to it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Origin {
    Zeros,
    /// A page of the file, shared.
    File(u64),
    /// The same until it is written.
    Private(u64),
}

/// A page of a space.
#[derive(Clone, Copy)]
struct Page {
    origin: Origin,
    /// What was written to it, where that is the space's own.
    own: Option<u64>,
    prot: Prot,
}

#[derive(Clone, Debug)]
struct Case {
    cpus: u32,
    tags: u16,
    nodes: u16,
    /// Whether there is room for large pages; without it memory is short.
    roomy: bool,
    policy: &'static str,
    /// The priorities of two swap devices, if there is swap.
    swap: Option<[i16; 2]>,
    steps: Vec<Step>,
}

/// What only machines with swap do, among the rest.
fn swap_step() -> impl Strategy<Value = Step> {
    let (cpu, at) = (0u8..4, place());
    let space = prop_oneof![5 => Just(0u8), 2 => Just(1), 1 => 2..SPACES as u8];
    prop_oneof![
        30 => step(),
        5 => cpu.clone().prop_map(|cpu| Step::Reclaim { cpu }),
        2 => (cpu.clone(), space, at).prop_map(|(cpu, space, at)| Step::FailRead { cpu, space, at }),
        1 => (cpu, any::<bool>()).prop_map(|(cpu, device)| Step::SwapOff { cpu, device }),
    ]
}

/// The same on a machine with two swap devices, where memory is short.
fn swap_case() -> impl Strategy<Value = Case> {
    let priorities = prop::sample::select(vec![[0, 0], [1, 0], [-5, 5]]);
    let steps = prop::collection::vec(swap_step(), 1..120);
    (case(1u32..=4, Just(false)), priorities, steps).prop_map(|(case, priorities, steps)| Case {
        swap: Some(priorities),
        steps,
        ..case
    })
}

fn case(cpus: impl Strategy<Value = u32>, roomy: impl Strategy<Value = bool>) -> impl Strategy<Value = Case> {
    let policies = vec![
        "vanilla",
        "linux",
        "linux+unmap=batch-clean",
        "linux+aging=flush",
        "linux+unmap=per-page",
        "linux+flush=broadcast",
    ];
    let machine = (cpus, 1u16..4, 1u16..3, roomy);
    (machine, prop::sample::select(policies), prop::collection::vec(step(), 1..120)).prop_map(
        |((cpus, tags, nodes, roomy), policy, steps)| Case {
            cpus,
            tags,
            nodes,
            roomy,
            policy,
            swap: None,
            steps,
        },
    )
}

impl Case {
    fn setup(&self) -> Setup {
        // With room, four spaces of large pages fit; without, all of one space's pages and little more.
        let frames = if self.roomy { 5120 } else { 448 };
        let broadcast = self.policy.contains("broadcast");
        let setup = Setup {
            cpus: self.cpus,
            tags: self.tags,
            nodes: self.nodes,
            frames,
            broadcast,
            ..Setup::default()
        };
        let part = frames / u32::from(self.nodes);
        let region = |node: u16| Region {
            start: FrameNumber(setup.base + u32::from(node) * part),
            frames: part,
            node: NodeId(node),
        };
        Setup { regions: Some((0..self.nodes).map(region).collect()), ..setup }
    }
}

struct World<'m, 'p> {
    mm: &'m Mm<'p>,
    host: &'p Host,
    cpus: u8,
    nodes: u16,
    swap: Option<[i16; 2]>,
    file: FileId,
    spaces: Vec<SpaceId>,
    /// What each space shows at each page.
    shown: Vec<BTreeMap<u64, Page>>,
    content: BTreeMap<u64, u64>,
}

impl World<'_, '_> {
    /// What an operation on mapped pages gives: an error at the first page that is not.
    fn all_mapped(&self, space: u8, (start, count): (u64, u64)) -> Result<(), Error> {
        let hole = (start..start + count).find(|page| !self.shown[space as usize].contains_key(page));
        hole.map_or(Ok(()), |page| Err(Error::NotMapped(PageNumber(page))))
    }

    fn all_free(&self, space: u8, (start, count): (u64, u64)) -> Result<(), Error> {
        let clash = (start..start + count).find(|page| self.shown[space as usize].contains_key(page));
        clash.map_or(Ok(()), |page| Err(Error::Overlaps(PageNumber(page))))
    }

    fn each(&mut self, space: u8, (start, count): (u64, u64), change: impl Fn(&mut Page)) {
        self.shown[space as usize].range_mut(start..start + count).for_each(|(_, page)| change(page));
    }

    fn take(&mut self, step: &Step) -> Result<(), TestCaseError> {
        let (mm, host) = (self.mm, self.host);
        match *step {
            Step::Map { space, part, backing, prot } => {
                let range @ (start, count) = part.range();
                let offset = u64::from(part.at) / 2;
                let prot = *PROTS.get(prot as usize).unwrap_or(&Prot::ReadWrite);
                let (file, backed) = (self.file, count <= PAGES);
                let backing = match backing {
                    1 if backed => Backing::File { file, offset },
                    2 if backed => Backing::Private { file, offset },
                    _ => Backing::Anonymous,
                };
                let done = mm.space(self.spaces[space as usize]).map(pages(start, count), backing, prot);
                prop_assert_eq!(done, self.all_free(space, range));
                if done.is_ok() {
                    let origin = |i| match backing {
                        Backing::Anonymous => Origin::Zeros,
                        Backing::File { .. } => Origin::File(offset + i),
                        Backing::Private { .. } => Origin::Private(offset + i),
                    };
                    let page = |i| (start + i, Page { origin: origin(i), own: None, prot });
                    self.shown[space as usize].extend((0..count).map(page));
                }
            }
            Step::Unmap { space, part } => {
                let range @ (start, count) = part.range();
                let done = mm.space(self.spaces[space as usize]).unmap(pages(start, count));
                prop_assert_eq!(done, self.all_mapped(space, range));
                if done.is_ok() {
                    (start..start + count).for_each(|page| _ = self.shown[space as usize].remove(&page));
                }
            }
            Step::Protect { space, part, prot } => {
                let range @ (start, count) = part.range();
                let prot = *PROTS.get(prot as usize).unwrap_or(&Prot::ReadWrite);
                let done = mm.space(self.spaces[space as usize]).protect(pages(start, count), prot);
                prop_assert_eq!(done, self.all_mapped(space, range));
                if done.is_ok() {
                    self.each(space, range, |page| page.prot = prot);
                }
            }
            Step::Move { space, part, to } => {
                let range @ (start, count) = part.range();
                let to = address(to);
                let done =
                    mm.space(self.spaces[space as usize]).move_range(pages(start, count), PageNumber(to));
                let want = self.all_free(space, (to, count)).and_then(|()| self.all_mapped(space, range));
                prop_assert_eq!(done, want);
                if done.is_ok() {
                    let shown = &mut self.shown[space as usize];
                    for i in 0..count {
                        let page = shown.remove(&(start + i)).unwrap();
                        shown.insert(to + i, page);
                    }
                }
            }
            Step::Advise { space, part, advice } => {
                let range @ (start, count) = part.range();
                let advice = [Advice::Drop, Advice::Small, Advice::Large, Advice::Large][advice as usize];
                let done = mm.space(self.spaces[space as usize]).advise(pages(start, count), advice);
                prop_assert_eq!(done, self.all_mapped(space, range));
                if done.is_ok() && advice == Advice::Drop {
                    self.each(space, range, |page| page.own = None);
                }
            }
            Step::Migrate { space, part, to } => {
                let range @ (start, count) = part.range();
                let done = mm.space(self.spaces[space as usize]).migrate(pages(start, count), NodeId(to));
                let known = if to < self.nodes { Ok(()) } else { Err(Error::NoSuchNode) };
                prop_assert_eq!(done.map(|_| ()), known.and_then(|()| self.all_mapped(space, range)));
            }
            Step::Fork { cpu, from, to } if from != to => {
                self.end(cpu, to);
                let id = self.spaces[from as usize];
                let child = host.on((cpu % self.cpus).into(), || mm.space(id).fork());
                self.spaces[to as usize] = child.map_err(|e| TestCaseError::fail(e.to_string()))?;
                self.shown[to as usize] = self.shown[from as usize].clone();
            }
            Step::Fork { .. } => {}
            Step::WriteBack { cpu } => {
                let done = host.on((cpu % self.cpus).into(), || mm.file(self.file).write_back());
                if host.fail_writes.get() {
                    prop_assert!(matches!(done, Ok(0) | Err(Error::Device)), "{:?}", done);
                } else {
                    prop_assert!(done.is_ok(), "{:?}", done);
                    self.check_device()?;
                }
            }
            Step::Device { fails } => host.fail_writes.set(fails),
            Step::FailRead { cpu, space, at } => {
                host.fail_reads.set(true);
                let failed = self.try_access(cpu, space, at, None);
                host.fail_reads.set(false);
                match failed {
                    // Only where something had to be read: it changes nothing, as the next access shows.
                    Err(Error::Device) => {}
                    Err(Error::SwapDevice(page)) => prop_assert_eq!(page, PageNumber(address(at))),
                    _ => {
                        let want = self.expect(space, at, None);
                        prop_assert_eq!(failed, want);
                    }
                }
                self.access(cpu, space, at, None)?;
            }
            Step::SwapOff { cpu, device } => {
                if let Some(priorities) = self.swap {
                    let device = u32::from(device);
                    host.on((cpu % self.cpus).into(), || {
                        prop_assert_eq!(mm.swap().off(device), Ok(()));
                        prop_assert_eq!(mm.swap().on(device, 512, priorities[device as usize]), Ok(()));
                        Ok(())
                    })?;
                }
            }
            Step::Read { cpu, space, at } => self.access(cpu, space, at, None)?,
            Step::ReadByAll { space, at } => {
                for cpu in 0..self.cpus {
                    if host.on(cpu.into(), || mm.loaded_space()) == Some(self.spaces[space as usize]) {
                        self.access(cpu, space, at, None)?;
                    }
                }
            }
            Step::Write { cpu, space, at, value } => self.access(cpu, space, at, Some(value))?,
            Step::Lazy { cpu } => host.on((cpu % self.cpus).into(), || mm.enter_lazy()),
            Step::Unload { cpu } => host.on((cpu % self.cpus).into(), || mm.unload()),
            Step::Renew { cpu, space } => {
                self.end(cpu, space);
                self.spaces[space as usize] = mm.create_space().unwrap();
                self.shown[space as usize].clear();
            }
            Step::Reclaim { cpu } => host.on((cpu % self.cpus).into(), || {
                mm.drain_lru_batch();
                give_back(mm, exhaust(mm));
                let kswapd = mm.counter(Counter::KswapdWoken) > 0 && mm.frames().available() < 100;
                if kswapd {
                    mm.kswapd(NodeId(0)).map_err(|e| TestCaseError::fail(e.to_string()))
                } else {
                    Ok(())
                }
            })?,
        }
        prop_assert_eq!(host.stale.get(), 0, "a CPU used what the tables no longer hold");
        Ok(())
    }

    /// All others leave, or are lazy; then the space ends.
    fn end(&self, cpu: u8, space: u8) {
        let (mm, host, id) = (self.mm, self.host, self.spaces[space as usize]);
        for other in 0..self.cpus {
            host.on(other.into(), || match mm.loaded_space() == Some(id) {
                true if other % 2 == 0 => mm.enter_lazy(),
                true => mm.unload(),
                false => {}
            });
        }
        host.on((cpu % self.cpus).into(), || mm.space(id).destroy()).unwrap();
    }

    /// After write-back the device has what the file shows.
    fn check_device(&self) -> Result<(), TestCaseError> {
        for (&at, &value) in &self.content {
            prop_assert_eq!(self.host.on_disk(self.file, at), Some(value), "page {} of the file", at);
        }
        Ok(())
    }

    fn access(&mut self, cpu: u8, space: u8, at: u8, write: Option<u64>) -> Result<(), TestCaseError> {
        let done = self.try_access(cpu, space, at, write);
        let want = self.expect(space, at, write);
        prop_assert_eq!(done, want, "page {:#x} of space {}", address(at), space);
        Ok(())
    }

    fn try_access(&self, cpu: u8, space: u8, at: u8, write: Option<u64>) -> Result<u64, Error> {
        let (mm, host, page) = (self.mm, self.host, address(at));
        let id = self.spaces[space as usize];
        host.on((cpu % self.cpus).into(), || {
            mm.space(id).switch_to()?;
            match write {
                Some(value) => host.write(mm, id, page, value).map(|()| value),
                None => host.read(mm, id, page),
            }
        })
    }

    /// What an access must give, and what is there after it.
    fn expect(&mut self, space: u8, at: u8, write: Option<u64>) -> Result<u64, Error> {
        let page = address(at);
        match (self.shown[space as usize].get_mut(&page), write) {
            (None, _) => Err(Error::NotMapped(PageNumber(page))),
            (Some(Page { prot: Prot::None, .. }), _) | (Some(Page { prot: Prot::Read, .. }), Some(_)) => {
                Err(Error::NotPermitted(PageNumber(page)))
            }
            (Some(Page { origin: Origin::File(at), .. }), Some(value)) => {
                self.content.insert(*at, value);
                Ok(value)
            }
            (Some(page), Some(value)) => {
                page.own = Some(value);
                Ok(value)
            }
            (Some(Page { own: Some(own), .. }), None) => Ok(*own),
            (Some(Page { origin: Origin::Zeros, .. }), None) => Ok(0),
            (Some(Page { origin: Origin::File(at) | Origin::Private(at), .. }), None) => {
                Ok(self.content.get(at).copied().unwrap_or(0))
            }
        }
    }
}

fn follow(case: &Case, broken: Option<Rule>) -> Result<(), TestCaseError> {
    let host = Host::new(case.setup());
    host.broken.set(broken);
    let swap = case.swap.is_some();
    let config =
        Config { lru_batch: 3, scan_batch: 8, flush_ceiling: 7, swap, shadows: swap, ..bare(case.policy) };
    host.run(config, |mm| {
        for (device, priority) in (0..).zip(case.swap.into_iter().flatten()) {
            prop_assert_eq!(mm.swap().on(device, 512, priority), Ok(()));
        }
        let file = mm.create_file(2 * PAGES).unwrap();
        let spaces: Vec<_> = (0..SPACES).map(|_| mm.create_space().unwrap()).collect();
        let mut world = World {
            mm,
            host: &host,
            cpus: case.cpus as u8,
            nodes: case.nodes,
            swap: case.swap,
            file,
            spaces,
            shown: vec![BTreeMap::new(); SPACES],
            content: BTreeMap::new(),
        };
        for (i, step) in case.steps.iter().enumerate() {
            world.take(step)?;
            // A look at every frame takes long where there are many.
            if broken.is_none() && (!case.roomy || i % 8 == 7) {
                prop_assert_eq!(mm.validate().broken, None);
            }
        }
        host.fail_writes.set(false);
        world.take(&Step::WriteBack { cpu: 0 })?;
        prop_assert_eq!(mm.file(file).write_back(), Ok(0), "nobody has written since");
        (0..case.cpus as u16).for_each(|cpu| host.on(cpu, || mm.unload()));
        for &id in &world.spaces {
            prop_assert_eq!(mm.space(id).destroy(), Ok(()));
        }
        prop_assert_eq!(mm.file(file).destroy(), Ok(()));
        for device in 0..2 * u32::from(swap) {
            prop_assert_eq!(mm.swap().off(device), Ok(()), "no slot is in use");
        }
        let end = settled(mm);
        prop_assert_eq!((end.broken, end.swapped), (None, 0));
        prop_assert_eq!((end.tables, end.anon, end.file, end.kernel, end.mapped), (1, 0, 0, 0, 0));
        prop_assert_eq!(host.interrupts() as u64, mm.counter(Counter::IpisReceived));
        if case.cpus == 1 {
            prop_assert_eq!(host.interrupts(), 0);
        }
        Ok(())
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 320, ..ProptestConfig::default() })]

    #[test]
    fn every_address_shows_what_was_last_written_there(case in case(1u32..=4, prop::bool::weighted(0.3))) {
        follow(&case, None)?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn with_swap_every_address_shows_what_was_last_written_there(case in swap_case()) {
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
        Rule::FlushBeforeProtectReturns,
        Rule::FlushBeforeForkReturns,
        Rule::FlushBeforeMove,
        Rule::FlushBeforeDropReturns,
        Rule::FlushBeforeCopyMaps,
        Rule::FlushBeforeMigrate,
        Rule::CleanProtects,
        Rule::DirtyBeforeUnlock,
        Rule::TablesAfterFlush,
    ] {
        let config = ProptestConfig {
            cases: 4000,
            max_shrink_iters: 0,
            failure_persistence: None,
            ..ProptestConfig::default()
        };
        // The same cases each time: whether a fault is seen must not be a matter of luck.
        let mut runner = TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha));
        let run = runner.run(&case(2u32..=4, Just(false)), |case| follow(&case, Some(rule)));
        assert!(matches!(run, Err(TestError::Fail(..))), "nothing was seen with {rule} broken");
    }
}

/// The rules of swap that do not take two CPUs in the middle of each other's work.
#[test]
fn the_model_sees_each_rule_of_swap_that_is_broken() {
    for rule in [Rule::KeepWhatFailed, Rule::DirtyBeforeUnlock, Rule::FlushBeforeForkReturns] {
        let config = ProptestConfig {
            cases: 4000,
            max_shrink_iters: 0,
            failure_persistence: None,
            ..ProptestConfig::default()
        };
        let mut runner = TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha));
        let run = runner.run(&swap_case(), |case| follow(&case, Some(rule)));
        assert!(matches!(run, Err(TestError::Fail(..))), "nothing was seen with {rule} broken");
    }
}
