//! Random work on a kernel range, against a model that knows for each page whether it is free, in use, or waits for its
//! flush: nothing overlaps, no address is handed out before its flush, and no hole is missed.

use crate::machine;

use std::cell::Cell;
use std::collections::BTreeSet;

use machine::kernel::{RW, START, at, frames, free, kernel};
use machine::{Host, Mm, Setup};
use proptest::prelude::*;
use proptest::test_runner::{RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};
use quietmm::platform::Cpus;
use quietmm::policy::VmapPolicy;
use quietmm::{Config, Counter, Error, FrameNumber, PageNumber, PageRange, Rule, SpaceId, VmapPlace, Waits};

/// Pages of a block where the range is as small as here.
const BLOCK: u64 = 64;

#[derive(Clone, Debug)]
enum Step {
    Map {
        cpu: u8,
        pages: u64,
        align: u8,
        guard: bool,
        within: Option<(u16, u16)>,
        own: bool,
    },
    Ram {
        cpu: u8,
        pages: u64,
    },
    /// Of what is live, counted round and round; perhaps with interrupts off.
    Unmap {
        cpu: u8,
        which: u16,
        deaf: bool,
    },
    /// Half of what is live.
    UnmapMany {
        cpu: u8,
    },
    Purge {
        cpu: u8,
    },
    Read {
        cpu: u8,
        which: u16,
        page: u8,
    },
    Lazy {
        cpu: u8,
    },
    GoAndCome {
        cpu: u8,
    },
    /// Its timer fires.
    Tick {
        cpu: u8,
    },
    /// It is idle until it does anything else.
    Idle {
        cpu: u8,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let cpu = 0u8..4;
    let pages = prop_oneof![4 => 1u64..8, 2 => 8u64..100, 1 => 100u64..600];
    let within = prop::option::weighted(0.2, (any::<u16>(), any::<u16>()));
    prop_oneof![
        6 => (cpu.clone(), pages, 0u8..8, any::<bool>(), within, prop::bool::weighted(0.3))
            .prop_map(|(cpu, pages, align, guard, within, own)| Step::Map { cpu, pages, align, guard, within, own }),
        5 => (cpu.clone(), prop_oneof![3 => 1u64..9, 1 => 1u64..=64]).prop_map(|(cpu, pages)| Step::Ram { cpu, pages }),
        8 => (cpu.clone(), any::<u16>(), any::<bool>())
            .prop_map(|(cpu, which, deaf)| Step::Unmap { cpu, which, deaf }),
        1 => cpu.clone().prop_map(|cpu| Step::UnmapMany { cpu }),
        1 => cpu.clone().prop_map(|cpu| Step::Purge { cpu }),
        6 => (cpu.clone(), any::<u16>(), any::<u8>()).prop_map(|(cpu, which, page)| Step::Read { cpu, which, page }),
        1 => cpu.clone().prop_map(|cpu| Step::Lazy { cpu }),
        1 => cpu.clone().prop_map(|cpu| Step::GoAndCome { cpu }),
        4 => cpu.clone().prop_map(|cpu| Step::Tick { cpu }),
        1 => cpu.prop_map(|cpu| Step::Idle { cpu }),
    ]
}

#[derive(Clone, Debug)]
struct Case {
    cpus: u8,
    pages: u64,
    shards: u32,
    /// Purges come by themselves when so many pages wait twice over.
    lazy: Option<u64>,
    vmap: VmapPolicy,
    steps: Vec<Step>,
}

fn case() -> impl Strategy<Value = Case> {
    let lazy = prop::option::weighted(0.3, 10u64..200);
    let steps = prop::collection::vec(step(), 1..160);
    let vmap =
        prop_oneof![2 => Just(VmapPolicy::Eager), 5 => Just(VmapPolicy::Lazy), 5 => Just(VmapPolicy::Sweep)];
    (1u8..=4, 100u64..700, 1u32..=4, lazy, vmap, steps)
        .prop_map(|(cpus, pages, shards, lazy, vmap, steps)| Case { cpus, pages, shards, lazy, vmap, steps })
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Map,
    Own,
    Ram,
}

#[derive(Clone, Debug)]
struct Live {
    range: PageRange,
    /// With its guard page.
    whole: PageRange,
    kind: Kind,
    frames: Vec<FrameNumber>,
    /// What its first page holds; the next ones count up.
    stamp: u64,
}

struct World<'m, 'p> {
    mm: &'m Mm<'p>,
    host: &'p Host,
    case: &'m Case,
    live: Vec<Live>,
    waiting: BTreeSet<u64>,
    purges: u64,
    frames: Vec<FrameNumber>,
    stamps: u64,
    space: SpaceId,
}

fn pages_of(range: PageRange) -> impl Iterator<Item = u64> {
    range.start.0..range.end().0
}

impl World<'_, '_> {
    fn on<R>(&self, cpu: u8, work: impl FnOnce() -> R) -> R {
        self.host.on((cpu % self.case.cpus).into(), || {
            self.mm.leave_idle();
            work()
        })
    }

    fn is_eager(&self) -> bool {
        self.case.vmap == VmapPolicy::Eager
    }

    /// Whether the model knows what waits: where sweeps come by themselves, only who uses an address sees whether it was
    /// flushed.
    fn knows(&self) -> bool {
        self.case.vmap != VmapPolicy::Sweep
    }

    /// Whatever waited was flushed, if somebody has purged.
    fn note_purges(&mut self) {
        let now = self.mm.counter(Counter::VmapPurges);
        if now != self.purges {
            self.waiting.clear();
            self.purges = now;
        }
    }

    /// Pages that nobody can have: in use, or of a block in which something is mapped.
    fn taken(&self) -> BTreeSet<u64> {
        let of = |live: &Live| match live.kind {
            Kind::Ram if !self.is_eager() => {
                PageRange::new(PageNumber(live.range.start.0 / BLOCK * BLOCK), BLOCK)
            }
            _ => live.whole,
        };
        self.live.iter().flat_map(|live| pages_of(of(live))).collect()
    }

    /// Whether there is a hole.
    fn fits(&self, pages: u64, align: u64, within: PageRange) -> bool {
        let taken = self.taken();
        let mut start = within.start.0.next_multiple_of(align);
        while start + pages <= within.end().0 {
            match taken.range(start..start + pages).next_back() {
                None => return true,
                Some(last) => start = (last + 1).next_multiple_of(align),
            }
        }
        false
    }

    /// Whether a small map has room in a block that is there, or in a new one.
    fn ram_fits(&self, pages: u64) -> bool {
        let whole = at(0, self.case.pages);
        if self.is_eager() {
            return self.fits(pages, 1, whole);
        }
        let rams = || self.live.iter().filter(|live| live.kind == Kind::Ram).map(|live| live.range);
        let used: BTreeSet<u64> = rams().flat_map(pages_of).collect();
        let in_block = |block: u64| {
            (block..=block + BLOCK - pages).any(|start| used.range(start..start + pages).next().is_none())
        };
        self.fits(BLOCK, BLOCK, whole) || rams().any(|range| in_block(range.start.0 / BLOCK * BLOCK))
    }

    fn begin(
        &mut self,
        cpu: u8,
        whole: PageRange,
        range: PageRange,
        kind: Kind,
        given: Vec<FrameNumber>,
    ) -> Result<(), TestCaseError> {
        self.note_purges();
        prop_assert!(at(0, self.case.pages).covers(whole), "{:?} lies outside", whole);
        for live in &self.live {
            prop_assert!(live.whole.intersect(whole).is_none(), "{:?} overlaps {:?}", whole, live);
        }
        let early = pages_of(whole).find(|page| self.waiting.contains(page));
        prop_assert_eq!(early, None, "handed out before its flush");
        let stamp = self.stamps;
        self.stamps += range.pages;
        for (i, page) in pages_of(range).enumerate() {
            prop_assert!(self.on(cpu, || self.host.write_kernel(PageNumber(page), stamp + i as u64)));
        }
        self.live.push(Live { range, whole, kind, frames: given, stamp });
        Ok(())
    }

    fn end(&mut self, cpu: u8, which: usize, deaf: bool) -> Result<(), TestCaseError> {
        let gone = self.live.swap_remove(which);
        let deaf = deaf && !self.is_eager();
        let done = self.on(cpu, || {
            let were_on = deaf && self.host.irqs_off();
            let done = match gone.kind {
                Kind::Map => self.mm.vmap().unmap(gone.range.start),
                Kind::Own => self.mm.vmap().free(gone.range.start),
                Kind::Ram => self.mm.vmap().unmap_ram(gone.range),
            };
            if were_on {
                self.host.irqs_on();
            }
            done
        });
        prop_assert_eq!(done, Ok(()), "{:?}", &gone);
        self.note_purges();
        if self.case.vmap == VmapPolicy::Lazy {
            self.waiting.extend(pages_of(gone.whole));
        }
        self.frames.extend(gone.frames);
        prop_assert!(!self.knows() || self.mm.vmap().waits().unwrap().pages == self.waiting.len() as u64);
        Ok(())
    }

    fn take(&mut self, step: &Step) -> Result<(), TestCaseError> {
        let whole = at(0, self.case.pages);
        match *step {
            Step::Map { cpu, pages, align, guard, within, own } => {
                let limits = within.map(|(from, pages)| {
                    at(u64::from(from) % self.case.pages, 1 + u64::from(pages) % self.case.pages)
                });
                let place = VmapPlace { align: 1 << align, within: limits, guard, node: None };
                let inside = limits.map_or(Some(whole), |limits| limits.intersect(whole));
                let given =
                    if own { vec![] } else { self.frames.split_off(self.frames.len() - pages as usize) };
                let done = self.on(cpu, || match own {
                    true => self.mm.vmap().alloc(pages, place, RW),
                    false => self.mm.vmap().map(&given, place, RW),
                });
                let inside = inside.filter(|inside| pages <= inside.pages);
                let align_fits = place.align <= self.case.pages.next_power_of_two();
                match (done, inside) {
                    (Ok(range), Some(inside)) => {
                        prop_assert_eq!(range.pages, pages);
                        prop_assert_eq!(range.start.0 % place.align, 0);
                        let extent = PageRange::new(range.start, pages + u64::from(guard));
                        prop_assert!(inside.covers(extent));
                        self.begin(cpu, extent, range, if own { Kind::Own } else { Kind::Map }, given)?;
                        let hit = self.on(cpu, || self.host.read_kernel(range.end()).is_some());
                        prop_assert!(!(guard && hit), "no guard page behind {:?}", range);
                    }
                    (Err(Error::NoAddress), Some(inside)) => {
                        self.note_purges();
                        self.frames.extend(given);
                        prop_assert!(self.waiting.is_empty(), "it gave up without a purge");
                        let fits = self.fits(pages + u64::from(guard), place.align, inside);
                        prop_assert!(!fits, "a hole was missed: {:?}", step);
                    }
                    (Err(Error::BadAlignment(_)), _) if !align_fits => self.frames.extend(given),
                    (Err(Error::BadRange), None) => self.frames.extend(given),
                    (done, _) => prop_assert!(false, "{:?}", done),
                }
            }
            Step::Ram { cpu, pages } => {
                let given = self.frames.split_off(self.frames.len() - pages as usize);
                match self.on(cpu, || self.mm.vmap().map_ram(&given, RW)) {
                    Ok(range) => {
                        prop_assert_eq!(range.pages, pages);
                        self.begin(cpu, range, range, Kind::Ram, given)?;
                    }
                    Err(error) => {
                        self.note_purges();
                        self.frames.extend(given);
                        prop_assert_eq!(error, Error::NoAddress);
                        prop_assert!(!self.ram_fits(pages), "there was room for {} pages", pages);
                    }
                }
            }
            Step::Unmap { cpu, which, deaf } if !self.live.is_empty() => {
                let which = usize::from(which) % self.live.len();
                let range = self.live[which].range;
                self.end(cpu, which, deaf)?;
                prop_assert_eq!(self.mm.vmap().find(range.start), Err(Error::NotMapped(range.start)));
            }
            Step::UnmapMany { cpu } => {
                for _ in 0..self.live.len() / 2 {
                    self.end(cpu, 0, false)?;
                }
            }
            Step::Purge { cpu } => {
                let flushed = self.on(cpu, || self.mm.vmap().purge());
                prop_assert!(flushed.is_ok());
                prop_assert!(!self.knows() || flushed == Ok(self.waiting.len() as u64));
                self.note_purges();
                // No alias is left, anywhere.
                let live: BTreeSet<u64> = self.live.iter().flat_map(|live| pages_of(live.range)).collect();
                for page in pages_of(whole).filter(|page| !live.contains(page)) {
                    for cpu in 0..self.case.cpus {
                        prop_assert_eq!(self.on(cpu, || self.host.read_kernel(PageNumber(page))), None);
                    }
                }
                prop_assert_eq!(self.mm.validate().broken, None);
            }
            Step::Read { cpu, which, page } if !self.live.is_empty() => {
                let live = &self.live[usize::from(which) % self.live.len()];
                let page = u64::from(page) % live.range.pages;
                let at = PageNumber(live.range.start.0 + page);
                prop_assert_eq!(
                    self.on(cpu, || self.host.read_kernel(at)),
                    Some(live.stamp + page),
                    "{:?}",
                    live
                );
                prop_assert_eq!(self.mm.vmap().find(at), Ok(live.range));
            }
            Step::Lazy { cpu } => self.on(cpu, || {
                self.mm.space(self.space).switch_to().unwrap();
                self.mm.enter_lazy();
            }),
            Step::GoAndCome { cpu } if self.case.cpus > 1 => {
                // It is away for one purge of another CPU.
                self.on(cpu, || self.mm.cpu_offline().unwrap());
                let other = cpu % self.case.cpus + 1;
                prop_assert!(self.on(other, || self.mm.vmap().purge()).is_ok());
                self.note_purges();
                self.host.on((cpu % self.case.cpus).into(), || self.mm.cpu_online().unwrap());
            }
            Step::Tick { cpu } => self.on(cpu, || {
                let were_on = self.host.irqs_off();
                self.mm.tick();
                if were_on {
                    self.host.irqs_on();
                }
            }),
            Step::Idle { cpu } => self.on(cpu, || self.mm.enter_idle()),
            _ => {}
        }
        prop_assert_eq!(self.host.kernel_stale.get(), 0, "a CPU used what an address led to before");
        Ok(())
    }
}

fn follow(case: &Case, broken: Option<Rule>) -> Result<(), TestCaseError> {
    let host = Host::new(Setup { cpus: case.cpus.into(), frames: 3072, ..Setup::default() });
    host.broken.set(broken);
    let policy = match case.vmap {
        VmapPolicy::Eager => "vanilla",
        VmapPolicy::Lazy => "linux",
        VmapPolicy::Sweep => "linux+vmap=sweep",
    };
    let config = Config {
        vmap_shards: Some(case.shards),
        vmap_lazy: Some(case.lazy.unwrap_or(u64::MAX)),
        flush_ceiling: 7,
        ..kernel(policy, case.pages)
    };
    host.run(config, |mm| {
        let space = mm.create_space().unwrap();
        let mut world = World {
            mm,
            host: &host,
            case,
            live: vec![],
            waiting: BTreeSet::new(),
            purges: 0,
            frames: frames(mm, 1400),
            stamps: 1,
            space,
        };
        for (i, step) in case.steps.iter().enumerate() {
            world.take(step)?;
            if broken.is_none() && i % 16 == 15 {
                prop_assert_eq!(mm.validate().broken, None);
            }
        }
        // Recovery: all of it is free again.
        while !world.live.is_empty() {
            world.end(0, 0, false)?;
        }
        (0..case.cpus).for_each(|cpu| world.on(cpu, || ()));
        let whole = mm.vmap().map(&vec![world.frames[0]; case.pages as usize], machine::kernel::BARE, RW);
        prop_assert_eq!(whole, Ok(at(0, case.pages)));
        mm.vmap().unmap(START).unwrap();
        mm.vmap().unmap_aliases().unwrap();
        prop_assert_eq!(mm.vmap().waits(), Ok(Waits::default()));
        (0..case.cpus).for_each(|cpu| world.on(cpu, || mm.unload()));
        mm.space(space).destroy().unwrap();
        free(mm, world.frames);
        let end = mm.validate();
        prop_assert_eq!((end.broken, end.kernel, end.vmalloc), (None, 0, 0));
        Ok(())
    })
}

/// Random operations in all: as many cases as it takes. `QUIETMM_VMAP_STEPS` asks for another number.
const STEPS: u64 = 32_000;

#[test]
fn every_address_is_free_in_use_or_waits() {
    let asked = std::env::var("QUIETMM_VMAP_STEPS").ok();
    let most = asked.map_or(STEPS, |steps| steps.parse().expect("a number of operations"));
    let config = ProptestConfig {
        // More than it takes: a case has 80 of them, in the mean.
        cases: (most / 70 + 1) as u32,
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    let done = Cell::new(0);
    let run = TestRunner::new(config).run(&case(), |case| {
        if done.get() < most {
            done.set(done.get() + case.steps.len() as u64);
            follow(&case, None)?;
        }
        Ok(())
    });
    println!("{} operations", done.get());
    run.unwrap_or_else(|error| panic!("{error}"));
    assert!(done.get() >= most);
}

/// The same work, with one rule broken: among as many cases as it takes one must be seen to fail.
#[test]
fn the_model_sees_each_rule_of_kernel_ranges_that_is_broken() {
    for rule in [
        Rule::FlushBeforeReuse,
        Rule::KernelFlushToLazy,
        Rule::OnlineFlushesKernel,
        Rule::AliasesInFullBlocks,
        Rule::ForgetWhatWasFlushed,
        Rule::EmptyBlocksGoBack,
        Rule::GuardPage,
        Rule::ExactFit,
        Rule::NextKernelSweep,
        Rule::KernelSweepCountsAll,
        Rule::FlushBeforeKernelSwept,
        Rule::IdleReturnSweep,
        Rule::AliasesBeginSweep,
    ] {
        let config = ProptestConfig {
            cases: 4000,
            max_shrink_iters: 0,
            failure_persistence: None,
            ..ProptestConfig::default()
        };
        let mut runner = TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha));
        let run = runner.run(&case(), |case| follow(&case, Some(rule)));
        assert!(matches!(run, Err(TestError::Fail(..))), "nothing was seen with {rule} broken");
    }
}
