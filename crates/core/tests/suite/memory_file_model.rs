//! Memory files against a model: work by chance on three CPUs, and on real threads.

use crate::machine;
use crate::memory_files::{copied, copy, end, shown_on};
use crate::threads;

use machine::race::at;
use machine::showing::shared;
use machine::swapping::{AT, DEVICE, swapping};
use machine::{Setup, exhaust, give_back, pages, settled};
use quietmm::addr::PAGE_SIZE;
use quietmm::platform::DeviceError;
use quietmm::{Advice, Config, Counter, Error, FileId, PageNumber, Prot, Rule, SpaceId, UserAccess};

/// Random numbers, the same each time.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

/// What comes of something for which memory may be short for a moment: all that there is was used since the last look.
fn soon<T>(attempt: impl Fn() -> Result<T, Error>) -> Result<T, Error> {
    (0..20).map(|_| attempt()).find(|done| !matches!(done, Err(Error::OutOfMemory))).expect("there is memory")
}

/// Work by chance on three CPUs against a model; returns whether all was as the model says, and the device was busy.
fn worked(seed: u64, policy: &str, broken: Option<Rule>) -> bool {
    const PAGES: u64 = 120;
    let setup = Setup { cpus: 3, frames: 256, ..Setup::default() };
    at(&setup, &swapping(policy), broken, |mm| {
        let (host, mut random) = (mm.platform(), Random(seed));
        mm.swap().on(DEVICE, 512, 0).unwrap();
        let file = mm.create_memory_file(PAGES).unwrap();
        let spaces = [0, 1, 2].map(|cpu| shown_on(mm, cpu, shared(file), PAGES));
        let mut model = vec![0u64; PAGES as usize];
        let mut len = PAGES;
        // Each CPU has a batch for what it reclaims.
        let kept = mm.create_file(1).unwrap();
        (0..3).for_each(|cpu| assert_eq!(host.on(cpu, || mm.file(kept).write_back()), Ok(0)));
        mm.file(kept).destroy().unwrap();
        let short = || {
            let mut all = exhaust(mm);
            give_back(mm, all.split_off(all.len() - 60));
            all
        };
        let (mut held, mut right) = (short(), true);
        for step in 1..=1500u64 {
            let (cpu, page) = (random.below(3), random.below(PAGES));
            let (id, inside) = (spaces[cpu as usize], page < len);
            let beyond = |result: Result<u64, Error>| result == Err(Error::BeyondFile);
            host.on(cpu as u16, || match random.below(40) {
                0 if step % 8 == 0 => {
                    len = page + 1;
                    soon(|| mm.file(file).set_size(len * PAGE_SIZE)).unwrap();
                    model[len as usize..].fill(0);
                }
                1 => {
                    len = PAGES;
                    mm.file(file).set_size(len * PAGE_SIZE).unwrap();
                }
                2 => {
                    let end = (page + 5).min(PAGES);
                    mm.file(file).punch_hole(page * PAGE_SIZE, (end - page) * PAGE_SIZE).unwrap();
                    model[page as usize..end as usize].fill(0);
                }
                3 => mm.space(id).advise(pages(AT, PAGES), Advice::PageOut).unwrap(),
                4 => {
                    host.refuse_writes.set(
                        (step % 3 == 0)
                            .then_some(|_, block| (block % 16 == 5).then_some(DeviceError::Failed)),
                    );
                }
                5 if step % 5 == 0 => {
                    // Of memory that does not suffice others speak.
                    give_back(mm, std::mem::take(&mut held));
                    mm.swap().off(DEVICE).unwrap();
                    mm.swap().on(DEVICE, 512, 0).unwrap();
                    held = short();
                }
                6..16 if inside => {
                    right &= soon(|| host.write(mm, id, AT + page, step)).is_ok();
                    model[page as usize] = step;
                }
                16..20 if inside => {
                    right &= soon(|| copy(mm, file, page, step)) == Ok(8);
                    model[page as usize] = step;
                }
                20..24 if inside => {
                    right &= soon(|| copied(mm, file, page)) == Ok(model[page as usize]);
                }
                _ if inside => {
                    right &= soon(|| host.read(mm, id, AT + page)) == Ok(model[page as usize]);
                }
                _ => right &= beyond(host.read(mm, id, AT + page)),
            });
        }
        if broken.is_none() {
            let (out, back) = (mm.counter(Counter::PswpOut), mm.counter(Counter::PswpIn));
            assert!(out > 100 && back > 100, "{out} went out, {back} came back");
            assert_eq!(settled(mm).broken, None);
            host.refuse_writes.set(None);
            give_back(mm, held);
            end(mm, &spaces, &[file]);
        } else {
            std::mem::forget(held);
        }
        right && host.torn.get() == 0
    })
}

#[test]
fn whatever_is_done_with_it_a_memory_file_shows_what_a_model_says() {
    for seed in 0..20 {
        for policy in ["linux", "quiet", "vanilla"] {
            assert!(worked(seed, policy, None), "seed {seed}, {policy}");
        }
    }
    // Controls.
    for rule in [Rule::BackIsDirty, Rule::KeepWhatFailed] {
        let fine = |seed| std::panic::catch_unwind(|| worked(seed, "linux", Some(rule)));
        assert!((0..4).any(|seed| !matches!(fine(seed), Ok(true))), "{rule}: nothing was seen");
    }
}

/// Pages of each CPU in the file that all share, and frames that are left to each for them, and for tables.
const OWN: u64 = 150;
const LEFT: usize = 110;

/// The same with real threads: each CPU writes to its own pages, through its own space or by copy, and reads those of all.
fn in_parallel(policy: &'static str, cpus: u16) -> bool {
    type Parallel<'p> = quietmm::Manager<'p, threads::Threads>;
    type Shared = (FileId, std::sync::Mutex<Vec<quietmm::Frames>>);
    let config = Config {
        page_lists: Some(quietmm::ListLimits { batch: 1, high: 0 }),
        min_free: Some(0),
        lru_batch: 4,
        scan_batch: 8,
        swap: true,
        sweep_deadline: 0,
        ..Config::new(quietmm::Policy::parse(policy).unwrap())
    };
    let first = |mm: &Parallel<'_>| -> Shared {
        (0..2).for_each(|device| mm.swap().on(device, 1024, 0).unwrap());
        let file = mm.create_memory_file(OWN * u64::from(cpus)).unwrap();
        let mut held: Vec<_> =
            std::iter::from_fn(|| mm.frames().alloc(0, quietmm::AllocFrom::NOW).ok()).collect();
        let left = held.split_off(held.len() - LEFT * usize::from(cpus));
        left.into_iter().for_each(|frame| mm.frames().free(frame));
        mm.platform().fail_one_in.store(37, std::sync::atomic::Ordering::SeqCst);
        (file, held.into())
    };
    let work = |mm: &Parallel<'_>, (file, _): &Shared, cpu: u16| {
        let (machine, mut random) = (mm.platform(), Random(u64::from(cpu) + 1));
        let insist = |attempt: &mut dyn FnMut() -> Result<u64, Error>| loop {
            match attempt() {
                Ok(value) => return value,
                Err(Error::OutOfMemory | Error::Device | Error::SwapDevice(_)) => machine.got_on(),
                Err(error) => panic!("{error}"),
            }
        };
        let id = insist_space(mm);
        let range = pages(AT, OWN * u64::from(cpus));
        insist(&mut || mm.space(id).map(range, shared(*file), Prot::ReadWrite).map(|()| 0));
        mm.space(id).switch_to().unwrap();
        let access = |page: u64, write: Option<u64>| {
            let kind = if write.is_some() { UserAccess::Write } else { UserAccess::Read };
            insist(&mut || match machine.access(PageNumber(AT + page), write) {
                Some(value) => Ok(value),
                None => mm.space(id).fault(PageNumber(AT + page).addr(), kind).and(Err(Error::OutOfMemory)),
            })
        };
        let mut own = [0u64; OWN as usize];
        for step in 1..=3000u64 {
            machine.got_on();
            let (pick, value) = (random.below(OWN), step * u64::from(cpus) + u64::from(cpu));
            let mine = u64::from(cpu) * OWN + pick;
            match random.below(64) {
                0 if cpu == 0 && step % 4 == 0 => {
                    while mm.swap().off(1).is_err() {
                        machine.got_on();
                    }
                    while mm.swap().on(1, 1024, 0).is_err() {
                        machine.got_on();
                    }
                }
                0..20 => {
                    access(mine, Some(value));
                    own[pick as usize] = value;
                }
                20..26 => {
                    let word = value.to_ne_bytes();
                    insist(&mut || mm.file(*file).write(mine * PAGE_SIZE, &word).map(|_| 0));
                    own[pick as usize] = value;
                }
                26..32 => {
                    let mut word = [0; 8];
                    insist(&mut || mm.file(*file).read(mine * PAGE_SIZE, &mut word).map(|_| 0));
                    assert_eq!(u64::from_ne_bytes(word), own[pick as usize], "step {step}");
                }
                32..44 => {
                    let other = (cpu + 1) % cpus;
                    let seen = access(u64::from(other) * OWN + pick, None);
                    assert!(
                        seen == 0 || seen % u64::from(cpus) == other.into(),
                        "{seen} is not CPU {other}'s"
                    );
                }
                _ => assert_eq!(access(mine, None), own[pick as usize], "step {step}"),
            }
        }
        mm.cpu_offline().unwrap();
    };
    let last = |mm: &Parallel<'_>| {
        assert!(
            mm.counter(Counter::PswpOut) > 0 && mm.counter(Counter::PswpIn) > 0,
            "{policy}: there was swap"
        );
        assert_eq!(mm.validate().broken, None, "{policy}");
    };
    threads::Threads::run_as(config, cpus, None, first, work, last)
}

fn insist_space(mm: &quietmm::Manager<'_, threads::Threads>) -> SpaceId {
    loop {
        match mm.create_space() {
            Err(Error::OutOfMemory) => mm.platform().got_on(),
            made => return made.unwrap(),
        }
    }
}

#[test]
fn all_cpus_see_what_they_share_while_all_of_them_need_memory() {
    for (policy, cpus) in [("linux", 3), ("quiet", 2), ("vanilla", 3)] {
        assert!(in_parallel(policy, cpus), "{policy}: somebody waits for ever");
    }
}
