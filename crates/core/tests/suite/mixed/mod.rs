//! Everything at once: work by chance that mixes what other tests have one at a time, against a model of what each page must show;
//! then two pieces of such work in the middle of each other.

mod model;
mod work;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use quietmm::addr::PAGE_SIZE;
use quietmm::{
    Advice, Config, Error, FrameNumber, NodeId, PageNumber, PageRange, Pins, Prot, Region, Rule, UserAccess,
};

use crate::machine;
use machine::race::{Place, race, take_turns};
use machine::{Host, Mm, Setup, StandsStill, bare, pages, pcp, settled};
use model::{Backs, Model, Page, Shown, Target, is_refused, must};
use work::{
    BASE, CPUS, Chance, ENDLESS, FILES, LARGE, LARGE_AT, Out, PLACES, SLOTS, SMALL, SPACES, Step, World,
    draw, near,
};

pub type Seen = Result<(), String>;

/// A world, and the model of it.
struct Play<'m, 'p> {
    world: World<'m, 'p>,
    model: Model,
    chance: Chance,
    value: u64,
    /// Where most is done at the moment: a space, and a part of it.
    near: (usize, u64),
    /// Where something was unmapped.
    gone: Option<(usize, PageRange)>,
    /// All that was done.
    said: Vec<String>,
}

impl<'m, 'p> Play<'m, 'p> {
    fn begin(mm: &'m Mm<'p>, seed: u64) -> Self {
        let files = [
            mm.create_file(FILES[0]).unwrap(),
            mm.create_memory_file(FILES[1]).unwrap(),
            mm.create_file(FILES[2]).unwrap(),
        ];
        (0..2).for_each(|device| mm.swap().on(device, SLOTS, device as i16).unwrap());
        if seed % 4 == 3 {
            mm.file(files[0]).watch_writes().unwrap();
        }
        let world = World {
            mm,
            host: mm.platform(),
            files,
            spaces: [(); SPACES].map(|()| Cell::new(mm.create_space().unwrap())),
            groups: [(); 2].map(|()| Cell::new(mm.create_group(ENDLESS).unwrap())),
            pins: RefCell::default(),
            held: RefCell::default(),
            offline: RefCell::default(),
            swap: [(); 2].map(|()| Cell::new(true)),
            lazy: Default::default(),
        };
        let shown = |len| Shown { len, ..Shown::default() };
        let model = Model {
            spaces: vec![BTreeMap::new(); SPACES],
            files: FILES.map(shown).to_vec(),
            ..Model::default()
        };
        Play {
            world,
            model,
            chance: Chance::new(seed),
            value: 0,
            near: (0, PLACES[0]),
            gone: None,
            said: vec![format!("seed {seed}")],
        }
    }

    fn draw(&mut self, beside: bool, anew: bool) -> Step {
        self.value += 1;
        let backs = self.chance.of(&KINDS);
        if anew || self.chance.below(3) == 0 {
            let spaces = if beside { SPACES - 1 } else { SPACES } as u64;
            let any = self.chance.below(spaces) as usize;
            self.near = (
                self.chance.of(&[0, 0, 0, 1, 1, any]),
                self.chance.of(&[PLACES[0], PLACES[0], PLACES[1], LARGE_AT]),
            );
        }
        if let Some((space, range)) =
            self.gone.take_if(|gone| backs != KINDS[0] && !(beside && gone.0 == SPACES - 1))
        {
            return Step::Map(space, range, backs, Prot::ReadWrite);
        }
        let step = draw(&mut self.chance, self.value, self.near, beside);
        if let Step::Unmap(space, range) | Step::Move(space, range, _) | Step::Remap(space, range, _) = step {
            self.gone = Some((space, range));
        }
        step
    }

    /// What came of a step must be what the model says, where the CPU did not use what another has parked.
    fn step(&mut self, step: Step, cpu: u16) -> Seen {
        let host = self.world.host;
        let parked = host.parked_uses.get();
        let said = self.said.len();
        self.said.push(format!("CPU {cpu}: {step:?}"));
        let out = host.on(cpu, || self.world.insist(step));
        self.said[said] += &format!(" -> {out:?}");
        if host.parked_uses.get() > parked {
            return Ok(());
        }
        let may_fail =
            matches!(step, Step::Advise(_, _, Advice::Collapse) | Step::SwapOff(..) | Step::SwapOn(_));
        if is_refused(out) && !may_fail {
            return Err(format!("{step:?}: {out:?} though there is memory"));
        }
        self.model
            .apply(step, out)
            .and_then(|()| self.glance())
            .and_then(|()| self.write_on())
            .map_err(|seen| format!("{step:?}: {seen}"))
    }

    /// What is true at any time.
    fn look(&self) -> Seen {
        let World { mm, host, ref spaces, .. } = self.world;
        must((host.stale.get(), host.torn.get()), (0, 0))?;
        for (id, shown) in spaces.iter().zip(&self.model.spaces) {
            for (&page, _) in shown.iter().filter(|(_, page)| page.stays) {
                let entry = mm.space(id.get()).lookup(PageNumber(page)).unwrap();
                must(entry.is_mapped(), true)
                    .map_err(|_| format!("page {page:#x} is locked, and gone: {entry:?}"))?;
            }
        }
        must(mm.validate().broken, None)
    }

    /// What programs use without a fault is what it must be, whatever their CPUs have cached.
    fn glance(&self) -> Seen {
        let World { mm, host, ref spaces, ref lazy, .. } = self.world;
        for cpu in (0..CPUS).filter(|&cpu| !lazy[usize::from(cpu)].get()) {
            let Some(id) = host.on(cpu, || mm.loaded_space()) else { continue };
            let Some(space) = spaces.iter().position(|space| space.get() == id) else { continue };
            for page in near() {
                let parked = host.parked_uses.get();
                let seen = host.on(cpu, || host.try_read(page)).filter(|_| host.parked_uses.get() == parked);
                let Some(seen) = seen else { continue };
                let known = self.model.spaces[space]
                    .get(&page)
                    .filter(|_| self.model.error(space, page, UserAccess::Read).is_none());
                let good = known.is_some_and(|known| self.model.value(known).allows(seen));
                must(good, true)
                    .map_err(|_| format!("CPU {cpu} has {seen} at page {page:#x}, and not {known:?}"))?;
            }
        }
        must(host.stale.get(), 0)
    }

    /// A program writes on, by what its CPU has cached, where that needs no fault.
    fn write_on(&mut self) -> Seen {
        let World { mm, host, ref spaces, ref lazy, .. } = self.world;
        let cpu = self.chance.below(CPUS.into()) as u16;
        let page = near().nth(self.chance.below(12) as usize).expect("there are so many");
        let loaded = host.on(cpu, || mm.loaded_space()).filter(|_| !lazy[usize::from(cpu)].get());
        let Some(space) = spaces.iter().position(|space| Some(space.get()) == loaded) else { return Ok(()) };
        self.value += 1;
        let parked = host.parked_uses.get();
        if !host.on(cpu, || host.try_write(page, self.value)) || host.parked_uses.get() > parked {
            return Ok(());
        }
        self.said.push(format!("CPU {cpu} writes on at {page} of space {space}: {}", self.value));
        must(self.model.error(space, page, UserAccess::Write), None)?;
        self.model.write(space, page, self.value);
        must(host.stale.get(), 0)
    }

    /// Each page of each space and file is read, by whichever CPU.
    fn read_all(&mut self) -> Seen {
        for space in 0..SPACES {
            let all: Vec<_> = self.model.spaces[space].keys().copied().collect();
            for page in all {
                let cpu = self.chance.below(CPUS.into()) as u16;
                self.step(Step::Read(space, page), cpu)?;
            }
        }
        for file in 0..FILES.len() {
            (0..self.model.files[file].len).try_for_each(|page| self.step(Step::FileRead(file, page), 0))?;
        }
        Ok(())
    }

    /// All is given back, and nothing is left.
    fn end(&mut self) -> Seen {
        self.world.relieve(4);
        self.read_all()?;
        self.look()?;
        let World { mm, host, files, ref spaces, ref groups, ref pins, .. } = self.world;
        pins.take().into_iter().for_each(|pins| mm.unpin(pins));
        (0..CPUS).for_each(|cpu| host.on(cpu, || mm.unload()));
        for id in spaces {
            must(mm.space(id.get()).destroy(), Ok(()))?;
        }
        for file in files {
            must(mm.file(file).destroy(), Ok(()))?;
        }
        for (device, on) in self.world.swap.iter().enumerate() {
            must(mm.swap().off(device as u32).is_ok(), on.get())?;
        }
        for group in groups {
            let ended = mm.group(group.get()).destroy();
            must(matches!(ended, Ok(()) | Err(Error::NoSuchGroup)), true)?;
        }
        // What is parked goes when memory is wanted.
        self.world.act(Step::Squeeze).unwrap();
        let left = settled(mm);
        must((left.broken, left.swapped, left.tables, left.anon), (None, 0, 1, 0))?;
        must((left.file, left.mapped, left.parked, left.pinned, left.kernel), (0, 0, 0, 0, 0))
    }
}

/// What a part of a space shows, one after the other at the start.
const KINDS: [Backs; 6] =
    [Backs::Zeros, Backs::File(1, 0), Backs::Zeros, Backs::Private(0, 2), Backs::Zeros, Backs::File(0, 4)];

const POLICIES: [&str; 6] = [
    "linux",
    "quiet",
    "vanilla",
    "linux+free=sweep",
    "quiet+unmap=batch+free=sweep",
    "linux+unmap=batch-clean",
];

/// Has such work done on a machine of its own.
fn played(seed: u64, broken: Option<Rule>, work: impl FnOnce(&mut Play<'_, '_>) -> Seen) -> Seen {
    let mut chance = Chance::new(!seed);
    chance.below(1);
    let node =
        |first: u32, frames, node| Region { start: FrameNumber(BASE + first), frames, node: NodeId(node) };
    let setup = Setup {
        cpus: CPUS.into(),
        nodes: 2,
        tags: chance.of(&[1, 3]),
        frames: 3072,
        regions: Some(vec![node(0, 2048, 0), node(2048, 1024, 1)]),
        ..Setup::default()
    };
    let dirty_limit = chance.of(&[0, 0, 6]);
    let config = Config {
        swap: true,
        groups: 3,
        lru_batch: chance.of(&[1, 4]),
        scan_batch: chance.of(&[4, 16]),
        flush_ceiling: 7,
        read_ahead: chance.of(&[0, 8]),
        fault_around: chance.of(&[1, 8]),
        shadows: chance.below(2) == 0,
        page_lists: if chance.below(2) == 0 { pcp(1) } else { bare("linux").page_lists },
        min_free: Some(chance.of(&[0, 0, 48])),
        dirty_limit,
        dirty_background: dirty_limit / 2,
        ..bare(POLICIES[(seed % POLICIES.len() as u64) as usize])
    };
    let host = Host::new(setup);
    host.broken.set(broken);
    host.patient.set(true);
    host.run(config, |mm| {
        let mut play = Play::begin(mm, seed);
        let seen = work(&mut play);
        if seen.is_err() && broken.is_none() {
            play.tell();
        }
        seen
    })
}

type Work = fn(u64, Option<Rule>) -> Seen;

const CONTROLS: [Rule; 3] = [Rule::DirtyBeforeUnlock, Rule::KeepWhatFailed, Rule::PinnedIsMapped];
const CONTROLS_BESIDE: [Rule; 2] = [Rule::FlushBeforeForkReturns, Rule::FreezeBeforeFree];

/// So much is done one after the other, and so often two things beside each other after a third of it.
const STEPS: u32 = 150;
const RACES: u32 = 24;

fn one_after_the_other(seed: u64, broken: Option<Rule>) -> Seen {
    played(seed, broken, |play| {
        play.furnish()?;
        play.steps(STEPS)?;
        play.end()
    })
}

/// Whether it was seen to fail; a case in which a CPU waits for one that stands still is none.
fn beside_each_other(seed: u64, broken: Option<Rule>) -> Seen {
    let work = AssertUnwindSafe(|| {
        played(seed, broken, |play| {
            play.furnish()?;
            play.steps(STEPS / 3)?;
            play.world.host.uses_windows.set(true);
            for _ in 0..RACES {
                let (one, two) = (play.draw(true, true), play.draw(true, false));
                if can_meet(one, two) && can_meet(two, one) {
                    play.race(one, two)?;
                    play.steps(3)?;
                }
            }
            play.end()
        })
    });
    catch_unwind(work).unwrap_or_else(|payload| match payload.is::<StandsStill>() {
        true => Ok(()),
        false => resume_unwind(payload),
    })
}

/// There is one place for children. And whoever brings 512 pages back while another holds all memory does so for as long as it may.
fn can_meet(one: Step, two: Step) -> bool {
    match one {
        Step::Fork(..) => !matches!(two, Step::Fork(..)),
        Step::Squeeze => !matches!(two, Step::Advise(_, _, Advice::Collapse)),
        _ => true,
    }
}

impl Play<'_, '_> {
    /// What is there at the start.
    fn furnish(&mut self) -> Seen {
        for space in 0..2 {
            let parts = (0..SMALL).step_by(6).flat_map(|n| PLACES.map(|at| pages(at + n, 6.min(SMALL - n))));
            for (part, backs) in parts.zip(KINDS.into_iter().cycle()) {
                self.step(Step::Map(space, part, backs, Prot::ReadWrite), 0)?;
            }
            let backs = if space == 0 { Backs::Zeros } else { Backs::File(2, 0) };
            self.step(Step::Map(space, pages(LARGE_AT, LARGE), backs, Prot::ReadWrite), 0)?;
        }
        Ok(())
    }

    fn steps(&mut self, count: u32) -> Seen {
        for n in 1..=count {
            let (step, cpu) = (self.draw(false, true), self.chance.below(CPUS.into()) as u16);
            self.step(step, cpu)?;
            if n.is_multiple_of(8) || n == count {
                self.look()?;
            }
        }
        Ok(())
    }

    /// CPU 0 does one thing, and CPU 1 another in its middle, or by turns with it: what comes of it is what comes of one after the other, for each page by
    /// itself.
    fn race(&mut self, one: Step, two: Step) -> Seen {
        let (mm, host) = (self.world.mm, self.world.host);
        let most = self.chance.of(&[4, 32, 200, 1000, 5000]);
        let nth = self.chance.below(most) as u32;
        let place = match self.chance.below(12) {
            0 => Place::Write(nth % 4),
            1 => Place::Read(nth % 4),
            _ => Place::Touch(nth),
        };
        let turns: Vec<_> =
            (0..self.chance.of(&[0, 1, 1, 2, 3, 5])).map(|_| self.chance.below(most) as u32).collect();
        self.said.push(format!("{place:?} of {one:?}: {two:?}, then by turns {turns:?}"));
        // What is there is cached elsewhere.
        let id = self.world.spaces[self.near.0].get();
        host.on(2, || {
            mm.space(id).switch_to().unwrap();
            self.world.lazy[2].set(false);
            near().for_each(|page| _ = host.try_read(page));
        });
        let parked = host.parked_uses.get();
        let outs = [Cell::new(Ok(0)), Cell::new(Ok(0))];
        race(
            mm,
            place,
            || outs[0].set(self.world.act(one)),
            || {
                take_turns(host, &turns);
                outs[1].set(self.world.act(two));
            },
        );
        host.forget_placed();
        [&host.on_disk_write, &host.on_disk_read].iter().for_each(|hooks| hooks.borrow_mut().clear());
        for (cpu, (out, step)) in (0..).zip(outs.iter().zip([one, two])) {
            if is_refused(out.get()) {
                out.set(host.on(cpu, || self.world.insist(step)));
            }
        }
        // While it goes on CPUs may use what is about to be flushed, and not after it.
        host.stale.set(0);
        for cpu in (0..CPUS).filter(|&cpu| !self.world.lazy[usize::from(cpu)].get()) {
            host.on(cpu, || near().for_each(|page| _ = host.try_read(page)));
        }
        must(host.stale.get(), 0).map_err(|_| format!("{place:?} of {one:?}: {two:?}: stale"))?;
        let [first, second] = [(one, outs[0].get()), (two, outs[1].get())];
        let mut orders = vec![vec![first, second], vec![second, first]];
        if host.parked_uses.get() > parked {
            // An access by what was parked is one to what nobody has any more.
            orders.extend([vec![first], vec![second]]);
        }
        let follow = |order: &Vec<(Step, Out)>, begun: bool| {
            let mut model = self.model.clone();
            if begun {
                order.iter().for_each(|&(step, out)| model.begun(step, out));
            }
            order.iter().try_for_each(|&(step, out)| model.apply(step, out)).map(|()| model)
        };
        let follow: Vec<_> =
            orders.iter().flat_map(|order| [false, true].map(|begun| follow(order, begun))).collect();
        let said: Vec<_> = follow.iter().map(|followed| followed.as_ref().err().cloned()).collect();
        let allowed: Vec<_> = follow.into_iter().flatten().collect();
        if allowed.is_empty() {
            return Err(format!("{place:?} of {first:?}: {second:?}: {said:?}"));
        }
        self.settle(allowed)
            .and_then(|()| self.glance())
            .map_err(|seen| format!("{place:?} of {first:?}: {second:?}: {seen}"))
    }

    /// Of several models one is so, of each page by itself: looks which.
    fn settle(&mut self, mut all: Vec<Model>) -> Seen {
        for file in 0..FILES.len() {
            let len = self.world.mm.file(self.world.files[file]).size().unwrap().div_ceil(PAGE_SIZE);
            must(all.iter().any(|model| model.files[file].len == len), true)?;
            all.iter_mut().for_each(|model| model.files[file].len = len);
            let pages: BTreeSet<_> = all
                .iter()
                .flat_map(|model| model.files[file].content.keys().copied())
                .filter(|&n| n < len)
                .collect();
            for n in pages {
                let known: BTreeSet<_> = all.iter().map(|model| model.content(file, n)).collect();
                if known.len() == 1 {
                    continue;
                }
                let seen = self.world.insist(Step::FileRead(file, n)).unwrap();
                must(known.contains(&seen), true)
                    .map_err(|_| format!("{seen} in page {n} of file {file}, of {known:?}"))?;
                all.iter_mut().for_each(|model| _ = model.files[file].content.insert(n, seen));
            }
            all.iter_mut().for_each(|model| model.files[file].content.retain(|&n, _| n < len));
        }
        for space in 0..SPACES {
            let pages: BTreeSet<_> =
                all.iter().flat_map(|model| model.spaces[space].keys().copied()).collect();
            for page in pages {
                self.settle_page(space, page, &mut all)?;
            }
        }
        let cells = all.iter().map(|model| model.cells).max();
        self.model = all.swap_remove(0);
        self.model.cells = cells.expect("there is one");
        Ok(())
    }

    fn settle_page(&mut self, space: usize, page: u64, all: &mut [Model]) -> Seen {
        let of = |model: &Model| model.spaces[space].get(&page).copied();
        let alike = |one: Option<Page>, two: Option<Page>| match (one, two) {
            (Some(one), Some(two)) => one.is_like(&two),
            (one, two) => one.is_none() && two.is_none(),
        };
        let first = of(&all[0]);
        if all.iter().all(|model| alike(of(model), first)) {
            return Ok(());
        }
        let seen = self.world.insist(Step::Read(space, page));
        let mut fits: Vec<_> = all
            .iter()
            .filter_map(|model| {
                let mut model = model.clone();
                model.apply(Step::Read(space, page), seen).is_ok().then(|| of(&model))
            })
            .collect();
        let known: Vec<_> = all.iter().map(of).collect();
        must(fits.is_empty(), false)
            .map_err(|_| format!("{seen:?} in page {page:#x} of space {space}, of {known:?}"))?;
        let differ = |fits: &[Option<Page>]| fits.iter().any(|&fit| !alike(fit, fits[0]));
        let mut refused = matches!(seen, Err(Error::NotPermitted(_)));
        let mut wrote = None;
        if seen.is_ok() && differ(&fits) {
            // What it shows, and whether it may be written to, a write tells.
            self.value += 1;
            let out = self.world.insist(Step::Write(space, page, self.value));
            wrote = out.ok();
            fits.retain(|fit| fit.is_some_and(|page| page.prot.permits(UserAccess::Write)) == out.is_ok());
            must(fits.is_empty(), false)
                .map_err(|_| format!("{out:?} at page {page:#x} of space {space}, of {known:?}"))?;
            refused = out.is_err();
        }
        if refused && differ(&fits) && all.iter().all(|model| of(model).is_some()) {
            // Nobody can tell, unless it may be looked at and written to.
            let step = Step::Protect(space, pages(page, 1), Prot::ReadWrite);
            let out = self.world.insist(step);
            all.iter_mut().try_for_each(|model| model.apply(step, out))?;
            return self.settle_page(space, page, all);
        }
        let mut found = fits[0];
        if let Some(found) = &mut found {
            found.stays = fits.iter().flatten().all(|page| page.stays);
            let may_be_lost = fits.iter().flatten().any(|page| page.own.is_some_and(|own| own.or_zero));
            found.own.iter_mut().for_each(|own| own.or_zero = may_be_lost);
        }
        // Whether a device still has this very page nobody knows but the core.
        let entry = self.world.mm.space(self.world.spaces[space].get()).lookup(PageNumber(page));
        let frame = entry.ok().filter(|entry| entry.is_mapped()).map(|entry| entry.frame());
        let pins = self.world.pins.borrow();
        let is_pinned = |pin: &Pins| Some(pin.frames()[0]) == frame;
        for model in all {
            let cell = model.cell() + (1 << 40);
            match found {
                Some(found) => _ = model.spaces[space].insert(page, Page { cell, ..found }),
                None => _ = model.spaces[space].remove(&page),
            }
            for (_, (target, _)) in pins.iter().zip(&mut model.pins).filter(|(pin, _)| is_pinned(pin)) {
                if let Target::Own(own) = target {
                    *own = cell;
                }
            }
            wrote.into_iter().for_each(|value| model.write(space, page, value));
        }
        Ok(())
    }
}

impl Play<'_, '_> {
    /// The last of what was done.
    fn tell(&self) {
        let last = self.said.iter().skip(1).rev().take(60).rev();
        self.said.iter().take(1).chain(last).for_each(|said| eprintln!("{said}"));
    }
}

impl Drop for Play<'_, '_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.tell();
        }
    }
}

/// Seeds of so many cases: others, and more of them, where `QUIETMM_MIXED` says which.
fn seeds(few: u64) -> std::ops::Range<u64> {
    match std::env::var("QUIETMM_MIXED").ok().map(|seed| seed.parse::<u64>().expect("a seed")) {
        None => 0..few,
        Some(seed) => seed * 100..(seed + 1) * 100,
    }
}

#[test]
fn whatever_is_done_one_after_the_other_every_page_shows_what_it_must() {
    for seed in seeds(5) {
        assert_eq!(one_after_the_other(seed, None), Ok(()), "seed {seed}");
    }
}

#[test]
fn whatever_is_done_in_the_middle_of_something_else_every_page_shows_what_it_must() {
    for seed in seeds(5) {
        assert_eq!(beside_each_other(seed, None), Ok(()), "seed {seed}");
    }
}

/// Controls: a step that is left out is seen.
#[test]
fn the_model_sees_rules_that_are_broken() {
    let seen = |play: Work, rule| {
        let fine = |seed| catch_unwind(|| play(seed, Some(rule)));
        assert!((0..12).any(|seed| !matches!(fine(seed), Ok(Ok(())))), "{rule}: nothing was seen");
    };
    for rule in CONTROLS {
        seen(one_after_the_other, rule);
    }
    for rule in CONTROLS_BESIDE {
        seen(beside_each_other, rule);
    }
}
