//! The file system of the examples, used by four CPUs at once: `read`, `write`, programs that map its files, `truncate`, holes, write-back
//! and eviction; with little memory, a disk that is too small, and transfers that fail. Each seed is an order in which the CPUs
//! go on. What is read is checked against a model: each word holds what the last write left there, or one that was under
//! way.

use crate::machine;

#[path = "../../../../examples/files/mod.rs"]
mod files;

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use files::{Disk, Files, FsError, Inode};
use machine::{Aside, Host, Mm, Setup, bare, exhaust, give_back, pages, settled};
use quietmm::addr::PAGE_SIZE;
use quietmm::platform::{BlockDevice, DeviceError, Memory, Store, WriteRefused};
use quietmm::{Backing, Config, Counter, Error, FileId, FrameNumber, Prot, Rule, SpaceId};

const CPUS: u16 = 4;
/// Where each program maps the file.
const AT: u64 = 0x11f8;
/// Pages of the file at most; of these, so many it never loses; and blocks of the disk, fewer than pages.
const MOST: u64 = 20;
const STAY: u64 = 6;
const BLOCKS: usize = 12;
/// Frames for pages and tables.
const MEMORY: usize = 26;
const STEPS: u32 = 50;
/// Plays, some 40 ms each; those of `make soak` are a thousand.
fn seeds() -> u64 {
    if machine::soaks() { 1000 } else { 250 }
}

/// The words of a page that are looked at: the first, which programs use, and one in its middle.
const WORDS: [u64; 2] = [0, 2048];

/// Numbers by chance, always the same ones.
struct Dice(Cell<u64>);

impl Dice {
    fn below(&self, most: u64) -> u64 {
        let mut x = self.0.get();
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        self.0.set(x);
        (x >> 11) % most
    }
    fn one_in(&self, n: u64) -> bool {
        self.below(n) == 0
    }
}

/// A value that was, or is being, written.
struct Version {
    value: u64,
    began: u64,
    /// After all others as long as it is under way.
    ended: u64,
    /// Whether it was written for certain.
    sure: bool,
}

/// What one word, or the length, may hold.
#[derive(Default)]
struct Register(Vec<Version>);

impl Register {
    /// Whether it may have held such a value at some time between these two.
    fn allows(&self, (from, to): (u64, u64), is: impl Fn(u64) -> bool) -> bool {
        let gone = |x: &Version| self.0.iter().any(|y| y.sure && y.ended < from && x.ended < y.began);
        self.0.iter().any(|x| is(x.value) && x.began <= to && !gone(x))
    }
}

/// What the file may hold.
struct Model {
    now: Cell<u64>,
    words: Vec<RefCell<Register>>,
    len: RefCell<Register>,
}

/// Whether an operation has had its effect.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Effect {
    Yes,
    No,
    Perhaps,
}

impl Model {
    fn new() -> Model {
        let zero = || RefCell::new(Register(vec![Version { value: 0, began: 0, ended: 0, sure: true }]));
        let words = (0..MOST * WORDS.len() as u64).map(|_| zero()).collect();
        Model { now: Cell::new(1), words, len: zero() }
    }

    fn tick(&self) -> u64 {
        self.now.replace(self.now.get() + 1)
    }

    fn word(&self, page: u64, which: usize) -> &RefCell<Register> {
        &self.words[page as usize * WORDS.len() + which]
    }

    /// The words whose bytes lie in a range.
    fn words_in(&self, from: u64, to: u64) -> Vec<&RefCell<Register>> {
        let all = (0..MOST).flat_map(|page| (0..WORDS.len()).map(move |which| (page, which)));
        let inside = |&(page, which): &(u64, usize)| {
            let at = page * PAGE_SIZE + WORDS[which];
            at >= from && at + 8 <= to
        };
        all.filter(inside).map(|(page, which)| self.word(page, which)).collect()
    }

    /// `work` gives these registers these values, or may.
    fn write<R>(&self, to: &[(&RefCell<Register>, u64)], work: impl FnOnce() -> (R, Effect)) -> R {
        let began = self.tick();
        for (register, value) in to {
            let version = Version { value: *value, began, ended: u64::MAX, sure: false };
            register.borrow_mut().0.push(version);
        }
        let (result, effect) = work();
        let ended = self.tick();
        for (register, value) in to {
            let Register(versions) = &mut *register.borrow_mut();
            let own = versions.iter().position(|v| (v.value, v.began) == (*value, began)).unwrap();
            match effect {
                Effect::No => drop(versions.remove(own)),
                _ => (versions[own].ended, versions[own].sure) = (ended, effect == Effect::Yes),
            }
        }
        result
    }
}

/// The disk, which lets others go on while it works, and fails now and then.
struct Slow {
    disk: Rc<Disk>,
    host: *const Host,
    dice: Dice,
    /// One transfer in so many fails; none for 0.
    fails: Cell<u64>,
    /// It forgets one write, and says nothing: what the test must find.
    forgets: Cell<bool>,
    failed: Cell<u32>,
}

impl Slow {
    fn transfer(&self, work: impl FnOnce() -> Result<(), DeviceError>) -> Result<(), DeviceError> {
        // SAFETY: the machine has this device, and so outlives it.
        let host = unsafe { &*self.host };
        let stop = || {
            if host.is_aside() {
                host.stop();
            }
        };
        stop();
        let done = match self.fails.get() {
            n if n > 0 && self.dice.one_in(n) => {
                self.failed.set(self.failed.get() + 1);
                Err(DeviceError::Failed)
            }
            _ => work(),
        };
        stop();
        done
    }
}

impl BlockDevice for Slow {
    fn read(&self, from: Store, page: u64, frame: FrameNumber) -> Result<(), DeviceError> {
        self.transfer(|| self.disk.read(from, page, frame))
    }
    fn write(&self, to: Store, page: u64, frame: FrameNumber) -> Result<(), DeviceError> {
        self.transfer(|| match self.forgets.get() && self.dice.one_in(8) {
            true => Ok(()),
            false => self.disk.write(to, page, frame),
        })
    }
    fn discard(&self, file: FileId, pages: std::ops::Range<u64>) -> Result<(), DeviceError> {
        self.disk.discard(file, pages)
    }
    fn page_mkwrite(&self, file: FileId, page: u64) -> Result<(), WriteRefused> {
        let ask = || self.disk.page_mkwrite(file, page).map_err(|_| DeviceError::Failed);
        self.transfer(ask).map_err(|_| WriteRefused)
    }
    fn end(&self, store: Store) {
        self.disk.end(store);
    }
}

/// One seed's play.
struct Play<'a, 'p> {
    mm: &'a Mm<'p>,
    disk: &'a Disk,
    model: Model,
    inode: Inode,
    /// One that stays in memory.
    notes: Inode,
    dice: Dice,
    tally: &'a Tally,
}

/// What happened in all plays.
#[derive(Default)]
struct Tally {
    full: Cell<u32>,
    refused: Cell<u32>,
    beyond: Cell<u32>,
    evicted: Cell<u64>,
    failed: Cell<u32>,
    asked: Cell<u64>,
}

impl Tally {
    fn one(cell: &Cell<u32>) {
        cell.set(cell.get() + 1);
    }
}

impl<'a, 'p> Play<'a, 'p> {
    fn files(&self) -> Files<'a, 'p, Host> {
        Files { mm: self.mm, disk: self.disk }
    }

    /// What the call said is what the file system may say.
    fn effect<T>(&self, result: &Result<T, FsError>) -> Effect {
        match result {
            Ok(_) => Effect::Yes,
            Err(FsError::NoSpace) => {
                Tally::one(&self.tally.full);
                // A file that it made longer is as long as it was by now; what lay behind its end is zeros either way.
                Effect::Perhaps
            }
            Err(FsError::Core(Error::OutOfMemory | Error::Device)) => Effect::Perhaps,
            Err(error) => panic!("{error:?}"),
        }
    }

    /// By call, these pages; all of their words get the value.
    fn write(&self, first: u64, count: u64, value: u64) {
        let bytes: Vec<u8> = value.to_ne_bytes().repeat((count * PAGE_SIZE / 8) as usize);
        let (from, to) = (first * PAGE_SIZE, (first + count) * PAGE_SIZE);
        let words = self.model.words_in(from, to);
        let all: Vec<_> = words.into_iter().map(|word| (word, value)).collect();
        self.model.write(&all, || match self.files().write(&self.inode, from, &bytes) {
            Ok(written) if written < bytes.len() => ((), Effect::Perhaps),
            result => ((), self.effect(&result)),
        });
    }

    /// By whoever alone changes the length.
    fn truncate(&self, len: u64) {
        let words = self.model.words_in(len, MOST * PAGE_SIZE);
        let mut all: Vec<_> = words.into_iter().map(|word| (word, 0)).collect();
        all.push((&self.model.len, len));
        self.model.write(&all, || {
            let result = self.files().truncate(&self.inode, len);
            ((), self.effect(&result))
        });
    }

    fn punch(&self, at: u64, len: u64) {
        let words = self.model.words_in(at, at + len);
        let all: Vec<_> = words.into_iter().map(|word| (word, 0)).collect();
        self.model.write(&all, || {
            let result = self.files().punch(&self.inode, at, len);
            ((), self.effect(&result))
        });
    }

    fn read(&self, page: u64) -> Result<(), String> {
        let mut bytes = [0xff; PAGE_SIZE as usize];
        let from = self.model.tick();
        let result = self.files().read(&self.inode, page * PAGE_SIZE, &mut bytes);
        let during = (from, self.model.tick());
        let Ok(read) = result else {
            self.effect(&result);
            return Ok(());
        };
        let fits = |len: u64| len.saturating_sub(page * PAGE_SIZE).min(PAGE_SIZE) == read as u64;
        if !self.model.len.borrow().allows(during, fits) {
            return Err(format!("{read} bytes of page {page}: the file was never so long"));
        }
        for (which, at) in WORDS.into_iter().enumerate().filter(|&(_, at)| at + 8 <= read as u64) {
            let at = at as usize;
            let value = u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap());
            self.holds(page, which, value, during)?;
        }
        Ok(())
    }

    fn holds(&self, page: u64, which: usize, value: u64, during: (u64, u64)) -> Result<(), String> {
        match self.model.word(page, which).borrow().allows(during, |held| held == value) {
            true => Ok(()),
            false => Err(format!("word {which} of page {page} holds {value:#x}")),
        }
    }

    /// A program reads or writes the first word of a page. It may be that of no page, where the file is shorter.
    fn program(&self, space: SpaceId, page: u64, value: Option<u64>) -> Result<(), String> {
        let host = self.mm.platform();
        let from = self.model.tick();
        let result = match value {
            None => host.read(self.mm, space, AT + page),
            Some(value) => self
                .model
                .write(&[(self.model.word(page, 0), value)], || {
                    let result = host.write(self.mm, space, AT + page, value);
                    (result, if result.is_ok() { Effect::Yes } else { Effect::No })
                })
                .map(|()| value),
        };
        let during = (from, self.model.tick());
        let is_long = |long: bool| {
            let fits = |len: u64| (len > page * PAGE_SIZE) == long;
            self.model.len.borrow().allows(during, fits)
        };
        match result {
            Ok(read) if value.is_none() => {
                self.holds(page, 0, read, during)?;
                is_long(true)
                    .then_some(())
                    .ok_or(format!("page {page} is there, and the file was never so long"))
            }
            Ok(_) => Ok(()),
            Err(Error::BeyondFile) => {
                Tally::one(&self.tally.beyond);
                is_long(false)
                    .then_some(())
                    .ok_or(format!("page {page} is not there, and the file was never so short"))
            }
            Err(Error::WriteRefused(_)) if value.is_some() => {
                Tally::one(&self.tally.refused);
                Ok(())
            }
            Err(Error::OutOfMemory | Error::Device) => Ok(()),
            Err(error) => panic!("{error:?}"),
        }
    }

    /// What one CPU does, whose program runs in this space.
    fn work(&self, cpu: u16, space: SpaceId) -> Result<(), String> {
        let dice = &self.dice;
        for step in 0..STEPS {
            let value = ((u64::from(cpu) + 1) << 32) + u64::from(step) + 1;
            let (page, stays) = (dice.below(MOST), dice.below(STAY - 2));
            match dice.below(100) {
                0..8 if cpu == 0 => {
                    self.truncate(PAGE_SIZE * (STAY + dice.below(MOST - STAY)) + 1024 * dice.below(2))
                }
                8..20 if cpu == 0 => {
                    // Inside the file, as long as nobody else changes that.
                    let len = self.mm.file(self.inode.file).size().unwrap() / PAGE_SIZE;
                    self.write(dice.below(len - 1), 1 + dice.below(2), value);
                }
                0..20 => self.write(stays, 1 + dice.below(3), value),
                20..26 => {
                    self.punch(PAGE_SIZE * page + 1024 * dice.below(2), PAGE_SIZE / 2 * (1 + dice.below(6)))
                }
                26..30 => _ = self.files().sync(&self.inode),
                30..33 => _ = self.mm.file(self.inode.file).evict(0, MOST),
                33..36 => _ = self.files().write(&self.notes, 8 * u64::from(cpu), &value.to_ne_bytes()),
                36..60 => self.program(space, page, Some(value))?,
                60..80 => self.program(space, page, None)?,
                _ => self.read(page)?,
            }
        }
        Ok(())
    }

    /// All that there is, once nobody does anything any more, in memory and then on the disk.
    fn look_through(&self, space: SpaceId) -> Result<(), String> {
        for _ in 0..2 {
            for page in 0..MOST {
                self.read(page)?;
                self.program(space, page, None)?;
            }
            self.files().sync(&self.inode).map_err(|error| format!("{error:?}"))?;
            settled(self.mm);
            self.mm.file(self.inode.file).evict(0, MOST).unwrap();
        }
        Ok(())
    }
}

/// Lets the four go on, each for a while, until all have ended.
fn take_turns(host: &Host, dice: &Dice, all: &[(u16, &Rc<Aside>)]) {
    let mut left = all.to_vec();
    while !left.is_empty() {
        let next = dice.below(left.len() as u64) as usize;
        let (cpu, aside) = left[next];
        let touches = dice.below(if dice.one_in(3) { 2000 } else { 60 });
        host.at_touch(cpu, touches as u32, |mm| mm.platform().stop());
        let goes_on = host.resume_one(aside);
        host.forget_placed();
        if !goes_on {
            left.remove(next);
        }
    }
}

/// What is wrong on purpose.
#[derive(Clone, Copy)]
enum Wrong {
    Nothing,
    Core(Rule),
    Disk,
}

/// Plays a seed; what did not add up.
fn play(seed: u64, wrong: Wrong, tally: &Tally) -> Result<(), String> {
    let host = Host::new(Setup { cpus: u32::from(CPUS), frames: 512, ..Setup::default() });
    // Whoever writes may do so while a flush is under way.
    host.uses_windows.set(true);
    let dice = |salt: u64| Dice(Cell::new((seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ salt));
    let at: *const Host = &raw const host;
    // SAFETY: the disk is the machine's, which outlives its calls.
    let disk = Rc::new(Disk::new(BLOCKS, move |frame| unsafe { &*at }.direct(frame.phys())));
    let slow = Rc::new(Slow {
        disk: Rc::clone(&disk),
        host: at,
        dice: dice(1),
        fails: Cell::new(0),
        forgets: Cell::new(matches!(wrong, Wrong::Disk)),
        failed: Cell::new(0),
    });
    host.set_device(slow.clone());
    if let Wrong::Core(rule) = wrong {
        host.broken.set(Some(rule));
    }
    host.patient.set(true);
    host.sound_sleep.set(true);
    // Every other pair of seeds has few dirty pages: whoever writes writes back.
    let few = if seed % 4 < 2 { 0 } else { 3 };
    let policy = if seed.is_multiple_of(2) { "linux" } else { "quiet" };
    let config = Config { dirty_limit: few, dirty_background: few, ..bare(policy) };
    host.run(config, |mm| {
        let fs = Files { mm, disk: &disk };
        let play = Play {
            mm,
            disk: &disk,
            model: Model::new(),
            inode: fs.create().unwrap(),
            notes: fs.create_in_memory().unwrap(),
            dice: dice(2),
            tally,
        };
        play.truncate(MOST * PAGE_SIZE);
        let space = || {
            let id = mm.create_space().unwrap();
            let backing = Backing::File { file: play.inode.file, offset: 0 };
            mm.space(id).map(pages(AT, MOST), backing, Prot::ReadWrite).unwrap();
            id
        };
        let spaces = [space(), space()];
        let of = |cpu: u16| spaces[usize::from(cpu / 2)];
        (0..CPUS).for_each(|cpu| host.on(cpu, || mm.space(of(cpu)).switch_to().unwrap()));
        let mut held = exhaust(mm);
        held.split_off(held.len() - MEMORY).into_iter().for_each(|frame| mm.frames().free(frame));
        slow.fails.set(12);
        host.place();
        let ends = [const { RefCell::new(Ok(())) }; CPUS as usize];
        let work = |cpu: u16| {
            let (play, ends) = (&play, &ends);
            move || *ends[usize::from(cpu)].borrow_mut() = play.work(cpu, of(cpu))
        };
        host.aside(0, work(0), |a| {
            host.aside(1, work(1), |b| {
                host.aside(2, work(2), |c| {
                    host.aside(3, work(3), |d| {
                        take_turns(&host, &dice(3), &[(0, a), (1, b), (2, c), (3, d)])
                    });
                });
            });
        });
        host.all_placed();
        slow.fails.set(0);
        ends.into_iter().try_for_each(RefCell::into_inner)?;
        play.look_through(of(0))?;
        disk.check()?;
        (0..CPUS).for_each(|cpu| host.on(cpu, || mm.enter_lazy()));
        (0..CPUS).for_each(|cpu| host.on(cpu, || mm.unload()));
        spaces.into_iter().for_each(|id| mm.space(id).destroy().unwrap());
        [&play.inode, &play.notes].into_iter().for_each(|inode| fs.remove(inode).unwrap());
        if disk.free() != BLOCKS {
            return Err("blocks that nobody has, and that are not free".to_string());
        }
        give_back(mm, held);
        tally.evicted.set(tally.evicted.get() + mm.counter(Counter::PgEvicted));
        tally.asked.set(tally.asked.get() + mm.counter(Counter::MkwriteAsked));
        tally.failed.set(tally.failed.get() + slow.failed.get());
        match host.torn.get() {
            0 => Ok(()),
            torn => Err(format!("{torn} pages changed while the disk had them")),
        }
    })
}

#[test]
fn a_file_systems_files_hold_what_was_written_to_them_whatever_goes_on() {
    let tally = Tally::default();
    for seed in 0..seeds() {
        if let Err(wrong) = play(seed, Wrong::Nothing, &tally) {
            panic!("seed {seed}: {wrong}");
        }
    }
    // All that may stand in the way did.
    let Tally { full, refused, beyond, evicted, failed, asked } = &tally;
    let counts = [full, refused, beyond, failed].map(Cell::get);
    let all = counts.map(u64::from).into_iter().chain([evicted.get(), asked.get()]).collect::<Vec<_>>();
    assert!(all.iter().all(|&count| count > seeds() / 4), "{all:?}");
}

/// The first of so many seeds that shows it.
fn found(wrong: Wrong) -> Option<u64> {
    let tally = Tally::default();
    (0..100).find(|&seed| {
        let played = catch_unwind(AssertUnwindSafe(|| play(seed, wrong, &tally)));
        played.is_err() || played.is_ok_and(|result| result.is_err())
    })
}

#[test]
fn the_file_systems_test_sees_rules_that_are_broken_and_a_disk_that_forgets() {
    let rules = [
        Rule::AskBeforeWrite,
        Rule::CleanProtects,
        Rule::CutPagesAreUnmapped,
        Rule::FlushBeforeFree,
        Rule::FreezeBeforeFree,
        Rule::KeepWhatFailed,
        Rule::WriteLocksPage,
    ];
    assert!(found(Wrong::Disk).is_some(), "a disk that forgets");
    for rule in rules {
        assert!(found(Wrong::Core(rule)).is_some(), "{rule}");
    }
}
