//! What `unmap=quiet` rests on: that the hardware sets the accessed bit of an entry before it caches it; and what the core
//! makes of it, sweeps (INV-13). The entries are the test's own, changed by hand: the core knows nothing of them, and owes
//! them no flush. Each CPU but the first has two, of a small page and of a large one.

use alloc::format;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::hint::spin_loop;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use quietmm::platform::{Services, WaitKey};
use quietmm::{AllocFrom, Backing, Counter, Entry, Error, Frames, PageNumber, PageRange, Prot, VirtAddr};
use quietmm_workloads::{Kernel, Params};

use super::Sys;
use super::team::{Step, Team, check, wait_until};
use crate::user::{self, By};
use crate::{clock, cpu, line, paging};

/// A page of the core's: so there are tables. Entries beside it are the test's, of the same table and of the one above.
const PAGE: PageNumber = PageNumber(0x10_0000);
const KEY: WaitKey = WaitKey::Own(8 << 40);
/// In the first word of the two frames: where an entry leads before it is changed, and after.
const OLD: u64 = 0x01d0_01d0;
const NEW: u64 = 0x2e30_2e30;
/// How long those who race wait at most, in nanoseconds.
const RACE_NS: u64 = 4_000;
/// Words that a program reads without leaving ring 3: some hundred thousand instructions.
const LONG: u32 = 50_000;

/// What a round is about: all four in turn.
#[derive(Clone, Copy)]
struct Round {
    number: u32,
    large: bool,
    write: bool,
}

impl Round {
    fn of(number: u32) -> Round {
        Round { number, large: number & 1 != 0, write: number & 2 != 0 }
    }

    /// Where a CPU's page lies.
    fn at(self, cpu: u32) -> VirtAddr {
        let pages = if self.large { 512 } else { 1 };
        PageNumber(PAGE.0 + pages * u64::from(cpu)).addr()
    }

    /// A CPU uses its page: writes a word of its own, or reads what all share. Returns whether it is the old page, if it can
    /// tell.
    fn use_page(self, system: &Sys, cpu: u32) -> Result<bool, Error> {
        if self.write {
            system.store(VirtAddr(self.at(cpu).0 + 8 * u64::from(cpu)), 1)?;
            return Ok(false);
        }
        Ok(system.load(self.at(cpu))? == OLD)
    }

    /// Some time, different in each round on each CPU.
    fn some_ns(self, cpu: u32) -> u64 {
        let mixed = (u64::from(self.number) << 8 | u64::from(cpu)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed >> 40) % RACE_NS
    }
}

/// The entries, and the frames that they lead to: blocks as large as a large page.
struct Entries {
    tables: [&'static [AtomicU64; 512]; 2],
    old: Frames,
    new: Frames,
    followers: u32,
}

impl Entries {
    /// For the space that is loaded here. Where `PAGE` is, all tables are.
    fn new(system: &Sys, followers: u32) -> Result<Entries, Error> {
        let table = |physical: u64| {
            let words = paging::direct(physical).cast::<[AtomicU64; 512]>();
            // SAFETY: a table of the loaded space, which goes when the space does; used by atomic steps only, as by the core.
            unsafe { &*words }
        };
        let below = |words: &[AtomicU64; 512], shift: u32| {
            let entry = Entry(words[(PAGE.0 >> shift) as usize % 512].load(Ordering::Relaxed));
            table(entry.frame().phys().0)
        };
        let upper = below(below(table(paging::root() & !0xfff), 27), 18);
        let block = |word| {
            let frames = system.mm.frames().alloc(9, AllocFrom::HERE)?;
            paging::fill_page(frames.first().phys().0, word);
            Ok::<_, Error>(frames)
        };
        Ok(Entries { tables: [below(upper, 9), upper], old: block(OLD)?, new: block(NEW)?, followers })
    }

    /// The entry of a CPU's page.
    fn word(&self, round: Round, cpu: u32) -> &AtomicU64 {
        &self.tables[usize::from(round.large)][cpu as usize]
    }

    fn entry(round: Round, to: &Frames) -> Entry {
        let size = if round.large { Entry::LARGE } else { 0 };
        Entry(Entry::page(to.first(), Prot::ReadWrite).0 | size)
    }

    /// A word of the old page that one CPU writes to.
    fn old_word(&self, cpu: u32) -> &AtomicU64 {
        let at = paging::direct(self.old.first().phys().0 + 8 * u64::from(cpu));
        // SAFETY: in the test's own frame, which programs write to, and the kernel by atomic steps only.
        unsafe { AtomicU64::from_ptr(at.cast()) }
    }

    /// Each CPU's entry leads to the old page.
    fn show(&self, round: Round) {
        for cpu in 1..=self.followers {
            self.word(round, cpu).store(Self::entry(round, &self.old).0, Ordering::SeqCst);
        }
    }

    /// Clears the accessed bits: all CPUs have used their pages.
    fn clear(&self, round: Round) {
        for cpu in 1..=self.followers {
            self.old_word(cpu).store(0, Ordering::SeqCst);
            self.word(round, cpu).fetch_and(!Entry::ACCESSED, Ordering::SeqCst);
        }
    }

    /// Lets a CPU's entry lead to the new page, if it is not accessed: in one step. Says whether it did.
    fn take(&self, round: Round, cpu: u32) -> bool {
        let word = self.word(round, cpu);
        let seen = Entry(word.load(Ordering::SeqCst));
        let new = Self::entry(round, &self.new);
        !seen.has(Entry::ACCESSED)
            && word.compare_exchange(seen.0, new.0, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    /// Nothing of the test's is left, and the followers flush next.
    fn end(self, system: &Sys) {
        for words in self.tables {
            (1..=self.followers).for_each(|cpu| words[cpu as usize].store(0, Ordering::SeqCst));
        }
        for frames in [self.old, self.new] {
            system.mm.frames().free(frames);
        }
    }
}

/// This CPU flushes all that user addresses have left.
fn flush_here() {
    let were_on = cpu::irqs_off();
    paging::reload();
    if were_on {
        cpu::irqs_on();
    }
}

fn rounds(cpus: u32) -> u32 {
    (384 / cpus).clamp(8, 64).next_multiple_of(4)
}

/// The space that all are in, with the one page of the core's.
fn space(system: &Sys) -> Result<quietmm::SpaceId, Error> {
    let space = system.mm.create_space()?;
    system.mm.space(space).map(PageRange::new(PAGE, 1), Backing::Anonymous, Prot::ReadWrite)?;
    Ok(space)
}

fn found(of: Round, cpu: u32, what: &str) -> alloc::string::String {
    let Round { number, large, write } = of;
    let (size, access) = (if large { "large" } else { "small" }, if write { "written" } else { "read" });
    format!("CPU {cpu}, a {size} page that is {access}, round {number}: {what}")
}

/// Each CPU has its page cached. The accessed bit is cleared; the CPU flushes; it uses the page again: the bit is set.
pub fn first(system: &Sys, params: &Params<'static>) -> Result<(), Error> {
    set_again(system, params, true)
}

/// The same without the flush: CPUs use what they have cached, and set nothing. The control of the one above, which must fail.
pub fn first_unflushed(system: &Sys, params: &Params<'static>) -> Result<(), Error> {
    set_again(system, params, false)
}

fn set_again(system: &Sys, params: &Params<'static>, flush: bool) -> Result<(), Error> {
    let rounds = rounds(params.cpus);
    let lead = move |system: &Sys, team: &Team| {
        system.store(PAGE.addr(), 1)?;
        let entries = Entries::new(system, team.followers)?;
        for round in (0..rounds).map(Round::of) {
            entries.show(round);
            team.step(system);
            entries.clear(round);
            team.step(system);
            for cpu in 1..=team.followers {
                let is_set = Entry(entries.word(round, cpu).load(Ordering::SeqCst)).has(Entry::ACCESSED);
                check(system, is_set, || found(round, cpu, "it was used, and the accessed bit is clear"));
            }
        }
        entries.end(system);
        team.step(system);
        Ok(())
    };
    Team::spawn(system, space(system)?, 2 * rounds + 1, lead, move |system, step| {
        if step.number > 2 * rounds {
            flush_here();
            return Ok(());
        }
        let round = Round::of((step.number - 1) / 2);
        // What the last round has left, and then what this one has.
        if step.number % 2 == 1 || flush {
            flush_here();
        }
        round.use_page(system, step.cpu).map(drop)
    });
    Ok(())
}

/// How CPUs come to have nothing cached, between the clear and the race.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Flush {
    /// Each flushes by itself.
    Own,
    /// Nobody flushes: a control.
    Nobody,
    /// They stay in ring 3, and the core sweeps.
    Sweep,
    /// They sleep, and the core sweeps.
    LazySweep,
}

/// After the flush an entry is changed without a flush, while its CPU begins to use it. If it was not accessed in that
/// step, the CPU uses the old page neither before nor after.
pub fn taken(system: &Sys, params: &Params<'static>) -> Result<(), Error> {
    race(system, params, Flush::Own)
}

/// The same without any flush. The control of the one above, which must fail.
pub fn taken_unflushed(system: &Sys, params: &Params<'static>) -> Result<(), Error> {
    race(system, params, Flush::Nobody)
}

/// A sweep instead, while programs run and make no fault and no call: their timer is all that brings them into the core.
pub fn sweep(system: &Sys, params: &Params<'static>) -> Result<(), Error> {
    race(system, params, Flush::Sweep)
}

/// A sweep while CPUs are lazy: it does not wait for them, and they have flushed before they use a page again. The entries
/// are changed while they sleep.
pub fn lazy_sweep(system: &Sys, params: &Params<'static>) -> Result<(), Error> {
    race(system, params, Flush::LazySweep)
}

/// What those who race know of each other.
struct Race {
    /// The sweep is over.
    over: AtomicBool,
    /// For each CPU, whether it has used the old page since the flush, up to its last look.
    used_old: Vec<AtomicBool>,
    /// The CPU that races, by its number, and how far the two are.
    turn: AtomicU32,
}

/// How far the two are that race: the leader calls, the CPU has come, both go.
const CALLED: u32 = 1 << 8;
const CAME: u32 = 2 << 8;
const GO: u32 = 3 << 8;

impl Race {
    /// The leader waits for a CPU.
    fn call(&self, system: &Sys, cpu: u32) {
        self.turn.store(CALLED | cpu, Ordering::SeqCst);
        wait_until(system, || self.turn.load(Ordering::SeqCst) == CAME | cpu);
        self.turn.store(GO | cpu, Ordering::SeqCst);
    }

    /// A CPU comes when it is called, and goes on when the leader does.
    fn come(&self, system: &Sys, cpu: u32) {
        wait_until(system, || self.turn.load(Ordering::SeqCst) == CALLED | cpu);
        self.turn.store(CAME | cpu, Ordering::SeqCst);
        while self.turn.load(Ordering::SeqCst) == CAME | cpu {
            spin_loop();
        }
    }
}

const STEPS: u32 = 4;

fn race(system: &Sys, params: &Params<'static>, flush: Flush) -> Result<(), Error> {
    let (cpus, rounds) = (params.cpus as usize, rounds(params.cpus));
    let race = Arc::new(Race {
        over: AtomicBool::new(false),
        used_old: (0..cpus).map(|_| AtomicBool::new(false)).collect(),
        turn: AtomicU32::new(0),
    });
    let all = race.clone();
    let lead = move |system: &Sys, team: &Team| {
        system.store(PAGE.addr(), 1)?;
        let entries = Entries::new(system, team.followers)?;
        let forced = system.mm.counter(Counter::SweepForced);
        let (mut taken_at_all, mut in_use) = (0, 0);
        for round in (0..rounds).map(Round::of) {
            entries.show(round);
            all.used_old.iter().for_each(|used| used.store(false, Ordering::Relaxed));
            team.step(system);
            entries.clear(round);
            all.over.store(false, Ordering::SeqCst);
            let mut taken = vec![false; cpus];
            team.begin();
            match flush {
                Flush::Own | Flush::Nobody => {}
                Flush::Sweep => sweep_now(system),
                Flush::LazySweep => {
                    // Acquire: partner of the Release in `Machine::idle`. Whoever is idle is lazy.
                    let sleeps = |cpu| cpu::get(cpu).idle.load(Ordering::Acquire);
                    wait_until(system, || (1..=team.followers).all(sleeps));
                    sweep_now(system);
                    // Before they wake: awake, they take part at their next tick.
                    (1..=team.followers).for_each(|cpu| taken[cpu as usize] = entries.take(round, cpu));
                }
            }
            all.over.store(true, Ordering::SeqCst);
            system.wake(KEY);
            team.finish(system);
            team.begin();
            for cpu in 1..=team.followers {
                all.call(system, cpu);
                // An access takes longer than the step that takes an entry.
                clock::spin(2 * round.some_ns(!cpu));
                taken[cpu as usize] |= entries.take(round, cpu);
            }
            team.finish(system);
            team.step(system);
            for cpu in 1..=team.followers {
                let written = entries.old_word(cpu).load(Ordering::SeqCst) != 0;
                let used_old = all.used_old[cpu as usize].load(Ordering::Relaxed) || written;
                let was_taken = taken[cpu as usize];
                taken_at_all += u32::from(was_taken);
                in_use += u32::from(!was_taken);
                check(system, !(was_taken && used_old), || {
                    found(round, cpu, "used through an entry that was taken out unaccessed")
                });
            }
        }
        entries.end(system);
        team.step(system);
        line!("{{\"taken\":{taken_at_all},\"in_use\":{in_use}}}");
        check(system, taken_at_all > 0, || {
            "all were in use when they were to be taken: the test shows nothing".into()
        });
        let forced = system.mm.counter(Counter::SweepForced) - forced;
        check(system, forced == 0, || format!("{forced} CPUs were interrupted for a sweep"));
        Ok(())
    };
    Team::spawn(system, space(system)?, STEPS * rounds + 1, lead, move |system, step| {
        follow(system, &race, flush, rounds, step)
    });
    Ok(())
}

/// One step of a CPU that races.
fn follow(system: &Sys, race: &Race, flush: Flush, rounds: u32, step: Step) -> Result<(), Error> {
    let cpu = step.cpu;
    let (round, part) = (Round::of((step.number - 1) / STEPS), (step.number - 1) % STEPS);
    let note = |old: bool| race.used_old[cpu as usize].fetch_or(old, Ordering::Relaxed);
    match part {
        0 => {
            // What the last round has left.
            flush_here();
            if round.number < rounds {
                round.use_page(system, cpu)?;
            }
        }
        1 => match flush {
            Flush::Own => flush_here(),
            Flush::Nobody => {}
            Flush::Sweep => {
                while !race.over.load(Ordering::SeqCst) {
                    user::read(By::Program, PAGE.addr(), LONG)?;
                }
            }
            Flush::LazySweep => {
                system.mm.platform().wait(KEY, &mut || race.over.load(Ordering::SeqCst));
                note(round.use_page(system, cpu)?);
            }
        },
        2 => {
            race.come(system, cpu);
            clock::spin(round.some_ns(cpu));
            note(round.use_page(system, cpu)?);
        }
        _ => {
            note(round.use_page(system, cpu)?);
        }
    }
    Ok(())
}

/// A sweep begins, and is over: nobody is asked, all come by themselves.
fn sweep_now(system: &Sys) {
    system.mm.begin_sweep();
    wait_until(system, || system.mm.sweep_is_over());
}
