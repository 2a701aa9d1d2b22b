//! `churn`: everything at once. Threads of several processes map, write, read, protect, move, drop, fork, migrate and
//! write back, while memory is short and CPUs leave and return. Each thread owns some addresses and some pages of a file
//! that all share; it knows what it left there, and checks it; others look too, and must see what was there at some time
//! while they looked.

mod ledger;

use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;

use quietmm::{
    Advice, AllocFrom, Backing, Counter, CpuId, Error, FileId, Frames, Manager, NodeId, PageNumber,
    PageRange, Prot, SpaceId,
};
use rand_core::Rng;
use rand_xoshiro::Xoshiro256StarStar;

use self::ledger::{Ledger, Look, Shown, State};
use super::Params;
use crate::guarded::Guarded;
use crate::machine::Machine;
use crate::system::System;
use crate::task::TaskKind;

/// Steps of a thread, and those of the first one before which a CPU leaves, and returns.
const STEPS: u64 = 160;
const LEAVES: u64 = 60;
const RETURNS: u64 = 90;
/// Addresses that a thread owns.
const SLOTS: u64 = 32;
/// Pages of the shared file that a thread owns.
const OWN: u64 = 4;
/// Where threads have their addresses, side by side; where the shared file is; where large pages are, per thread.
const ARENAS: u64 = 0x10_0000;
const SHARED: u64 = 0x20_0000;
const LARGE: u64 = 0x40_0000;
/// Pages of the file that private mappings show.
const PLAIN: u64 = 64;
/// Cold pages that are read together, and looks of a thread that lingers.
const COLD: u64 = 16;
const LOOKS: u64 = 40;
/// The fewest and most CPUs that take part.
const FEWEST: u64 = 2;
const MOST: u64 = 16;

/// What all threads know.
struct World {
    /// The file that all share, and what its owned pages show: the first ones, a thread's side by side.
    file: FileId,
    pages: u64,
    owned: Guarded<Ledger>,
    /// The file that private mappings show: page `i` holds `plain(i)`.
    plain: FileId,
    cpus: u64,
    nodes: u64,
    threads: u64,
    /// Thread 0 has put things in their places.
    ready: Guarded<bool>,
}

/// What the threads of a process know.
struct Process {
    space: SpaceId,
    arenas: Guarded<Ledger>,
    threads: u64,
    /// Nothing but reclaim takes its pages away: what its CPUs have cached stays so for long.
    calm: bool,
}

struct Thread<'s, 'p, M: Machine> {
    system: &'s System<'p, M>,
    world: Arc<World>,
    process: Arc<Process>,
    rng: Xoshiro256StarStar,
    /// Among all, and in its process.
    index: u64,
    place: u64,
    written: u64,
}

/// Frames that are left for programs where memory is short.
const SPARE: u64 = 256;
const SPARE_PER_CPU: u64 = 96;

/// Frames for the kernel's own use, for good.
fn take_all_but<M: Machine>(system: &System<'_, M>, nodes: u64, spare: u64) {
    // From all nodes alike.
    for node in (0..nodes).cycle() {
        let from = AllocFrom { node: Some(NodeId(node as u16)), may_reclaim: false };
        if system.mm.free_frame_count() <= spare
            || system.mm.alloc_frames(0, from).map(Frames::into_raw).is_err()
        {
            return;
        }
    }
}

fn plain(page: u64) -> u64 {
    0xf11e_0000_0000_0000 | page
}

/// Threads on 2 to 16 of the machine's CPUs, as the seed says; the others are offline from the start.
pub fn set_up<M: Machine>(system: &System<'_, M>, params: &Params<'_>) -> Result<u64, Error> {
    let most = MOST.min(params.cpus.into());
    let cpus = (FEWEST + params.seed % (MOST - FEWEST + 1)).min(most);
    let threads = 2 * cpus;
    let processes = 1 + cpus.div_ceil(4);
    // Larger than the memory, so that pages come and go.
    let pages = params.frames * 3 / 2;
    let node_of = |cpu: u32| u64::from(system.mm.platform().node_of(CpuId(cpu as u16)).0);
    let nodes = (0..params.cpus).map(node_of).max().unwrap_or(0) + 1;
    // Three seeds of four have no memory to spare; the fourth has, for large pages.
    if !params.seed.is_multiple_of(4) {
        take_all_but(system, nodes, SPARE + SPARE_PER_CPU * cpus);
    }
    let world = Arc::new(World {
        file: system.mm.create_file(pages)?,
        pages,
        owned: Guarded::new(Ledger::new(
            (threads * OWN) as usize,
            State { prot: Some(Prot::ReadWrite), ..State::GONE },
        )),
        plain: system.mm.create_file(PLAIN)?,
        cpus,
        nodes,
        threads,
        ready: Guarded::new(false),
    });
    for process in 0..processes {
        let space = system.mm.create_space()?;
        let backing = Backing::File { file: world.file, offset: 0 };
        system.mm.map(space, PageRange::new(PageNumber(SHARED), pages), backing, Prot::ReadWrite)?;
        let threads = (process..threads).step_by(processes as usize).count() as u64;
        let shared = Arc::new(Process {
            space,
            arenas: Guarded::new(Ledger::new((threads * SLOTS) as usize, State::GONE)),
            threads,
            calm: process == processes - 1,
        });
        for place in 0..threads {
            let index = process + place * processes;
            let (world, process) = (world.clone(), shared.clone());
            let rng = params.rng(index as u32);
            let machine_cpus = params.cpus as u64;
            let home = CpuId((index % cpus) as u16);
            system.spawn(format!("churn/{index}"), TaskKind::User(space), home, move |system| {
                let mut thread = Thread { system, world, process, rng, index, place, written: 0 };
                if index == 0 {
                    thread.prepare(machine_cpus)?;
                }
                while !thread.world.ready.with(&system.mm, |ready| *ready) {
                    system.nap(10_000);
                }
                thread.live()
            });
        }
    }
    Ok(STEPS * threads)
}

impl<M: Machine> Thread<'_, '_, M> {
    /// Takes CPUs away that this seed does not want, and writes the file that private mappings show.
    fn prepare(&mut self, machine_cpus: u64) -> Result<(), Error> {
        for cpu in self.world.cpus..machine_cpus {
            self.system.take_offline(CpuId(cpu as u16));
        }
        let range = PageRange::new(self.slot(0), PLAIN.min(SLOTS));
        for offset in (0..PLAIN).step_by(range.pages as usize) {
            let backing = Backing::File { file: self.world.plain, offset };
            self.system.syscall(|mm| mm.map(self.process.space, range, backing, Prot::ReadWrite))?;
            for i in 0..range.pages {
                self.system.store(PageNumber(range.start.0 + i).addr(), plain(offset + i))?;
            }
            self.system.syscall(|mm| mm.unmap(self.process.space, range))?;
        }
        self.world.ready.with(&self.system.mm, |ready| *ready = true);
        Ok(())
    }

    fn live(&mut self) -> Result<(), Error> {
        // Whatever chance says, in each run a CPU goes and comes back.
        let last = CpuId(self.world.cpus as u16 - 1);
        for step in 0..STEPS {
            match (self.index, step) {
                (0, LEAVES) => _ = self.system.take_offline(last),
                (0, RETURNS) => _ = self.system.bring_online(last),
                _ => {}
            }
            match self.process.calm {
                true => self.calm_step(),
                false => self.stormy_step(),
            }
            self.system.mm.platform().progressed(1);
        }
        if self.index == 0 && self.system.mm.counter(Counter::CpuOnline) == 0 {
            self.one_comes_back();
        }
        (0..SLOTS).for_each(|slot| self.check_own(slot));
        Ok(())
    }

    /// A CPU that is offline, or one that goes for this.
    fn one_comes_back(&self) {
        let all = || (0..self.world.cpus as u16).map(CpuId);
        if !all().any(|cpu| self.system.bring_online(cpu)) {
            let gone = all().find(|&cpu| self.system.take_offline(cpu));
            gone.map(|cpu| self.system.bring_online(cpu));
        }
    }

    fn calm_step(&mut self) {
        match self.pick(64) {
            0..34 => self.linger_in_the_file(),
            34..38 => self.write_own_page(),
            38..58 => self.cold_pages(),
            58 => self.write_back(),
            59 => self.cpus_come_and_go(),
            _ => self.nap(),
        }
    }

    fn stormy_step(&mut self) {
        match self.pick(64) {
            0..12 => self.store_own(),
            12..22 => {
                let slot = self.pick(SLOTS);
                self.check_own(slot);
            }
            22..28 => self.look_at_another(),
            28..33 => {
                let page = self.pick(self.world.threads * OWN);
                self.look_at_page(page);
            }
            33..35 => self.write_own_page(),
            35 => self.linger(),
            36..39 => self.cold_pages(),
            39..44 => self.map(),
            44..47 => self.unmap(),
            47..51 => self.protect(),
            51..53 => self.drop_content(),
            53..55 => self.move_slots(),
            55 => self.migrate(),
            56..58 => self.fork(),
            58 => self.large(),
            59 => self.write_back(),
            60 => self.cpus_come_and_go(),
            61 => self.shoot_deaf(),
            _ => self.nap(),
        }
    }

    fn nap(&mut self) {
        let ns = 1_000 + self.pick(20_000);
        self.system.nap(ns);
    }

    fn pick(&mut self, n: u64) -> u64 {
        self.rng.next_u64() % n
    }

    fn slot(&self, slot: u64) -> PageNumber {
        PageNumber(ARENAS + self.place * SLOTS + slot)
    }

    fn range(&self, first: u64, count: u64) -> PageRange {
        PageRange::new(self.slot(first), count)
    }

    /// A few slots side by side; sometimes all.
    fn some_slots(&mut self) -> (u64, u64) {
        if self.pick(16) == 0 {
            return (0, SLOTS);
        }
        let first = self.pick(SLOTS);
        (first, 1 + self.pick((SLOTS - first).min(8)))
    }

    fn ledger<R>(&self, work: impl FnOnce(&mut Ledger) -> R) -> R {
        self.process.arenas.with(&self.system.mm, work)
    }

    fn entry(&self, slot: u64) -> usize {
        (self.place * SLOTS + slot) as usize
    }

    fn state(&self, slot: u64) -> State {
        self.ledger(|ledger| ledger.state(self.entry(slot)))
    }

    /// A value that nobody else writes, and nobody has written before.
    fn fresh(&mut self) -> u64 {
        self.written += 1;
        (self.index + 1) << 32 | self.written
    }

    fn wrong(&self, what: &str, at: PageNumber, found: Option<Shown>, expected: Shown) {
        let text = format!(
            "churn/{} {what} {:#x} of space {} and found {found:x?} instead of {expected:x?}",
            self.index,
            at.addr().0,
            self.process.space.0
        );
        self.system.mm.platform().wrong_content(&text);
    }

    /// Whether an operation did what it must: succeed exactly where `possible`, unless memory was short.
    fn did(&self, what: &str, at: PageNumber, done: Result<(), Error>, possible: bool) -> bool {
        match done {
            Ok(()) if possible => true,
            Err(Error::OutOfMemory) => false,
            Err(_) if !possible => false,
            other => {
                let text = format!("churn/{}: {what} at {:#x} gave {other:?}", self.index, at.addr().0);
                self.system.mm.platform().wrong_content(&text);
                other.is_ok()
            }
        }
    }

    /// Does something to some of this thread's slots that changes each as `next` says; `possible` says whether it can be
    /// done to a slot in this state, and so, to all.
    fn change(
        &mut self,
        what: &str,
        (first, count): (u64, u64),
        possible: impl Fn(State) -> bool,
        next: impl Fn(u64, State) -> State,
        work: impl FnOnce(&Manager<'_, M>, SpaceId, PageRange) -> Result<(), Error>,
    ) {
        let range = self.range(first, count);
        let before: Vec<State> = (first..first + count).map(|slot| self.state(slot)).collect();
        let all = before.iter().all(|&state| possible(state));
        let after = |i: usize| if all { next(i as u64, before[i]) } else { before[i] };
        self.ledger(|ledger| {
            (0..before.len()).for_each(|i| ledger.begin(self.entry(first + i as u64), after(i)));
        });
        let done = self.system.syscall(|mm| work(mm, self.process.space, range));
        let done = self.did(what, range.start, done, all);
        self.ledger(|ledger| {
            for (i, &old) in before.iter().enumerate() {
                ledger.end(self.entry(first + i as u64), if done { after(i) } else { old });
            }
        });
    }

    fn store_own(&mut self) {
        let slot = self.pick(SLOTS);
        let old = self.state(slot);
        if let Some(page) = old.file {
            return self.write_the_file(page, self.slot(slot), old.prot);
        }
        let value = self.fresh();
        let entry = self.entry(slot);
        let writable = old.prot == Some(Prot::ReadWrite);
        let new = if writable { State { value, ..old } } else { old };
        self.ledger(|ledger| ledger.begin(entry, new));
        let done = self.system.store(self.slot(slot).addr(), value);
        let done = self.stored(self.slot(slot), done, old.prot);
        self.ledger(|ledger| ledger.end(entry, if done { new } else { old }));
    }

    /// Whether a store happened, which it must exactly where `prot` permits it.
    fn stored(&self, at: PageNumber, done: Result<(), Error>, prot: Option<Prot>) -> bool {
        match (done, prot) {
            (Ok(()), Some(Prot::ReadWrite)) => true,
            (Err(Error::NotPermitted(_)), Some(Prot::None | Prot::Read)) => false,
            (Err(Error::NotMapped(_)), None) => false,
            (Err(Error::OutOfMemory | Error::Device), _) => false,
            (other, _) => {
                let text = format!(
                    "churn/{} stored at {:#x} of space {}, {prot:?}, and it gave {other:?}",
                    self.index,
                    at.addr().0,
                    self.process.space.0
                );
                self.system.mm.platform().wrong_content(&text);
                other.is_ok()
            }
        }
    }

    /// Writes to one of this thread's pages of the shared file, at an address that shows it.
    fn write_the_file(&mut self, page: u64, at: PageNumber, prot: Option<Prot>) {
        let value = self.fresh();
        let mm = &self.system.mm;
        let writable = prot == Some(Prot::ReadWrite);
        let next = |old: State| if writable { State { value, ..old } } else { old };
        let slots: Vec<(usize, State)> = (0..SLOTS)
            .map(|slot| (self.entry(slot), self.state(slot)))
            .filter(|(_, state)| state.file == Some(page))
            .collect();
        let old = self.world.owned.with(mm, |ledger| ledger.state(page as usize));
        self.world.owned.with(mm, |ledger| ledger.begin(page as usize, next(old)));
        self.ledger(|ledger| slots.iter().for_each(|&(entry, state)| ledger.begin(entry, next(state))));
        let done = self.system.store(at.addr(), value);
        let done = self.stored(at, done, prot);
        let now = |old: State| if done { next(old) } else { old };
        self.ledger(|ledger| slots.iter().for_each(|&(entry, state)| ledger.end(entry, now(state))));
        self.world.owned.with(mm, |ledger| ledger.end(page as usize, now(old)));
    }

    /// What this thread left in a slot must be there.
    fn check_own(&mut self, slot: u64) {
        let expected = self.state(slot).shown();
        let found = Shown::of(self.system.load(self.slot(slot).addr()));
        if found.is_some_and(|found| found != expected) {
            self.wrong("loaded its own", self.slot(slot), found, expected);
        }
    }

    fn look_at_another(&mut self) {
        let entry = self.pick(self.process.threads * SLOTS);
        let at = PageNumber(ARENAS + entry);
        let look = self.ledger(|ledger| ledger.look(entry as usize));
        let found = Shown::of(self.system.load(at.addr()));
        let (sees, expected) = self.ledger(|ledger| could_see(ledger, look, found, entry as usize));
        if !sees {
            self.wrong("loaded another's", at, found, expected);
        }
    }

    /// Goes on looking at a few pages of the file, mostly others', and writing to one of its own.
    fn linger_in_the_file(&mut self) {
        let first = self.pick(self.world.threads * OWN - 3);
        let own = self.index * OWN + self.pick(OWN);
        for look in 0..LOOKS {
            self.look_at_page(first + look % 3);
            if look % 4 == 0 {
                self.write_the_file(own, PageNumber(SHARED + own), Some(Prot::ReadWrite));
            }
            self.system.mm.platform().compute(200);
        }
    }

    fn write_own_page(&mut self) {
        let page = self.index * OWN + self.pick(OWN);
        self.write_the_file(page, PageNumber(SHARED + page), Some(Prot::ReadWrite));
    }

    /// Whatever is found there must have been there while this thread looked.
    fn look_at_page(&self, entry: u64) {
        let at = PageNumber(SHARED + entry);
        let owned = &self.world.owned;
        let look = owned.with(&self.system.mm, |ledger| ledger.look(entry as usize));
        let found = Shown::of(self.system.load(at.addr()));
        let (sees, expected) =
            owned.with(&self.system.mm, |ledger| could_see(ledger, look, found, entry as usize));
        if !sees {
            self.wrong("loaded from the shared file", at, found, expected);
        }
    }

    /// Pages that nobody owns or writes: they take memory from the others.
    fn cold_pages(&mut self) {
        let owned = self.world.threads * OWN;
        for _ in 0..COLD {
            let at = PageNumber(SHARED + owned + self.pick(self.world.pages - owned));
            let found = Shown::of(self.system.load(at.addr()));
            if found.is_some_and(|found| found != Shown::Value(0)) {
                self.wrong("loaded from the shared file", at, found, Shown::Value(0));
            }
        }
    }

    /// Goes on looking at a few of its slots: what this CPU has cached of them stays so, while others work.
    fn linger(&mut self) {
        let first = self.pick(SLOTS - 3);
        for look in 0..LOOKS {
            self.check_own(first + look % 3);
            self.system.mm.platform().compute(200);
        }
    }

    fn map(&mut self) {
        let slots = self.some_slots();
        let offset = self.pick(PLAIN - SLOTS);
        let own = self.index * OWN;
        let (plain_file, file) = (self.world.plain, self.world.file);
        let anonymous = State { prot: Some(Prot::ReadWrite), ..State::GONE };
        match self.pick(3) {
            0 => self.map_as(slots, Backing::Anonymous, |_| anonymous),
            1 => self.map_as(slots, Backing::Private { file: plain_file, offset }, |i| State {
                value: plain(offset + i),
                base: plain(offset + i),
                ..anonymous
            }),
            _ => {
                let values: Vec<u64> = (own..own + OWN)
                    .map(|page| self.world.owned.with(&self.system.mm, |l| l.state(page as usize).value))
                    .collect();
                let (first, count) = (slots.0, slots.1.min(OWN));
                self.map_as((first, count), Backing::File { file, offset: own }, |i| State {
                    value: values[i as usize],
                    file: Some(own + i),
                    ..anonymous
                });
            }
        }
    }

    fn map_as(&mut self, slots: (u64, u64), backing: Backing, state: impl Fn(u64) -> State) {
        self.change(
            "map",
            slots,
            |state| state.prot.is_none(),
            |i, _| state(i),
            |mm, space, range| mm.map(space, range, backing, Prot::ReadWrite),
        );
    }

    fn unmap(&mut self) {
        let slots = self.some_slots();
        let mapped = |state: State| state.prot.is_some();
        self.change("unmap", slots, mapped, |_, _| State::GONE, |mm, space, range| mm.unmap(space, range));
    }

    fn protect(&mut self) {
        let slots = self.some_slots();
        let prot = [Prot::None, Prot::Read, Prot::Read, Prot::ReadWrite][self.pick(4) as usize];
        self.change(
            "protect",
            slots,
            |state| state.prot.is_some(),
            |_, state| State { prot: Some(prot), ..state },
            |mm, space, range| mm.protect(space, range, prot),
        );
    }

    fn drop_content(&mut self) {
        let slots = self.some_slots();
        self.change(
            "advise(drop)",
            slots,
            |state| state.prot.is_some(),
            |_, state| if state.file.is_some() { state } else { State { value: state.base, ..state } },
            |mm, space, range| mm.advise(space, range, Advice::Drop),
        );
    }

    fn migrate(&mut self) {
        let slots = self.some_slots();
        let node = NodeId(self.pick(self.world.nodes) as u16);
        self.change(
            "migrate",
            slots,
            |state| state.prot.is_some(),
            |_, state| state,
            |mm, space, range| mm.migrate(space, range, node).map(|_| ()),
        );
    }

    /// From the first half of the slots to the second, or back.
    fn move_slots(&mut self) {
        let half = SLOTS / 2;
        let first = self.pick(half);
        let count = 1 + self.pick((half - first).min(8));
        let (from, to) = if self.pick(2) == 0 { (first, first + half) } else { (first + half, first) };
        let states = |first: u64| (first..first + count).map(|slot| self.state(slot));
        let (old, target): (Vec<_>, Vec<_>) = (states(from).collect(), states(to).collect());
        let possible = old.iter().all(|s| s.prot.is_some()) && target.iter().all(|s| s.prot.is_none());
        let mark = |done: Option<bool>| {
            self.ledger(|ledger| {
                for i in 0..count {
                    let (a, b) = (self.entry(from + i), self.entry(to + i));
                    let (was, there) = (old[i as usize], target[i as usize]);
                    match done {
                        None if possible => {
                            ledger.begin(a, State::GONE);
                            ledger.begin(b, was);
                        }
                        Some(true) => {
                            ledger.end(a, State::GONE);
                            ledger.end(b, was);
                        }
                        _ => {
                            ledger.end(a, was);
                            ledger.end(b, there);
                        }
                    }
                }
            });
        };
        mark(None);
        let (range, to) = (self.range(from, count), self.slot(to));
        let done = self.system.syscall(|mm| mm.move_range(self.process.space, range, to));
        mark(Some(self.did("move", range.start, done, possible)));
    }

    /// A child that sees what was there, and writes what the parent must not see.
    fn fork(&mut self) {
        let parent = self.process.space;
        let child = match self.system.syscall(|mm| mm.fork(parent)) {
            Ok(child) => child,
            Err(error) => {
                self.did("fork", self.slot(0), Err(error), true);
                return;
            }
        };
        let steps = self.pick(SLOTS);
        self.system.run_in(child, || {
            for _ in 0..steps {
                let slot = self.pick(SLOTS);
                let state = self.state(slot);
                let found = Shown::of(self.system.load(self.slot(slot).addr()));
                // It may have written there itself.
                let own = matches!(found, Some(Shown::Value(value)) if value >> 32 == 0xc1d);
                if !own && found.is_some_and(|found| found != state.shown()) {
                    self.wrong("loaded in its child", self.slot(slot), found, state.shown());
                }
                if state.prot == Some(Prot::ReadWrite) && state.file.is_none() && self.pick(2) == 0 {
                    let _ = self.system.store(self.slot(slot).addr(), 0xc1d << 32 | slot);
                }
            }
        });
        let ended = self.system.syscall(|mm| mm.destroy_space(child));
        self.did("destroy_space", self.slot(0), ended, true);
        let slot = self.pick(SLOTS);
        self.check_own(slot);
    }

    /// Large pages, in whole and in parts.
    fn large(&mut self) {
        let space = self.process.space;
        let range = PageRange::new(PageNumber(LARGE + self.place * 1024), 1024);
        let mapped = self.system.syscall(|mm| {
            mm.map(space, range, Backing::Anonymous, Prot::ReadWrite)?;
            mm.advise(space, range, Advice::Large)
        });
        if !self.did("map large", range.start, mapped, true) {
            // Mapped perhaps, and not advised.
            let _ = self.system.syscall(|mm| mm.unmap(space, range));
            return;
        }
        let pages = [3, 511, 512, 700, 1023].map(|i| PageNumber(range.start.0 + i));
        let values = pages.map(|page| {
            let value = self.fresh();
            self.system.store(page.addr(), value).is_ok().then_some(value)
        });
        let part = PageRange::new(PageNumber(range.start.0 + self.pick(600)), 1 + self.pick(400));
        let (done, gone) = match self.pick(4) {
            0 => (self.system.syscall(|mm| mm.protect(space, part, Prot::Read)), None),
            1 => (self.system.syscall(|mm| mm.advise(space, part, Advice::Drop)), Some(Shown::Value(0))),
            2 => (self.system.syscall(|mm| mm.unmap(space, part)), Some(Shown::NotMapped)),
            _ => (Ok(()), None),
        };
        let done = self.did("change a part of a large page", part.start, done, true);
        for (page, value) in pages.into_iter().zip(values) {
            let inside = done && part.contains(page);
            let expected = match (gone, value) {
                (Some(gone), _) if inside => gone,
                (_, Some(value)) => Shown::Value(value),
                (_, None) => continue,
            };
            let found = Shown::of(self.system.load(page.addr()));
            if found.is_some_and(|found| found != expected) {
                self.wrong("loaded from a large page", page, found, expected);
            }
        }
        let (left, right) =
            (PageRange::between(range.start, part.start), PageRange::between(part.end(), range.end()));
        let rest = if gone == Some(Shown::NotMapped) && done {
            [left, right]
        } else {
            [range, PageRange::new(range.end(), 0)]
        };
        for range in rest.into_iter().filter(|range| range.pages > 0) {
            let ended = self.system.syscall(|mm| mm.unmap(space, range));
            self.did("unmap large", range.start, ended, true);
        }
    }

    fn write_back(&mut self) {
        let file = self.world.file;
        let done = self.system.syscall(|mm| mm.write_back(file).map(|_| ()));
        if done != Err(Error::Device) {
            self.did("write_back", PageNumber(SHARED), done, true);
        }
    }

    fn cpus_come_and_go(&mut self) {
        let cpu = CpuId(self.pick(self.world.cpus) as u16);
        if !self.system.take_offline(cpu) {
            self.system.bring_online(cpu);
        }
    }

    /// A flush that nobody owes, by a CPU that hears no interrupt while it waits: others do so at the same time.
    fn shoot_deaf(&mut self) {
        let (space, range) = (self.process.space, self.range(0, 4));
        self.system
            .syscall(|mm| {
                let were_on = mm.platform().irqs_off();
                let done = mm.flush_range(space, range);
                if were_on {
                    mm.platform().irqs_on();
                }
                done
            })
            .unwrap_or_default();
    }
}

fn could_see(ledger: &Ledger, look: Look, found: Option<Shown>, entry: usize) -> (bool, Shown) {
    (found.is_none_or(|found| ledger.could_see(look, found)), ledger.state(entry).shown())
}
