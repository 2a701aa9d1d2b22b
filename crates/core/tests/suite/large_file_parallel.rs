//! A file that is shown by a large entry again and again, on CPUs that are threads of the host: each reads it there, and writes it by copy and by another mapping, while it
//! becomes shorter and longer, is written back and reclaimed, and parts of what is shown are dropped.

use crate::machine::soaks;
use crate::threads;

use std::sync::atomic::Ordering;

use quietmm::addr::PAGE_SIZE;
use quietmm::{
    Advice, Backing, Config, Counter, Error, FileId, ListLimits, PageNumber, PageRange, Policy, Prot,
    SpaceId, UserAccess,
};
use threads::{Mm, Threads};

/// Pages that stay, by turns one of each CPU, which alone writes it.
const STAY: u64 = 300;
/// All pages: those behind come and go.
const ALL: u64 = 512;
/// Where the file is shown for reading, and for writing too.
const LARGE: u64 = 0x40000;
const SMALL: u64 = 0x11f8;

struct Shared {
    space: SpaceId,
    file: FileId,
}

fn first(mm: &Mm<'_>) -> Shared {
    // Whoever makes an entry large takes each lock for some hundred pages, and others wait for him.
    mm.platform().patience.store(100_000, Ordering::SeqCst);
    let (space, file) = (mm.create_space().unwrap(), mm.create_file(ALL).unwrap());
    for (at, prot) in [(LARGE, Prot::Read), (SMALL, Prot::ReadWrite)] {
        let range = PageRange::new(PageNumber(at), ALL);
        mm.space(space).map(range, Backing::File { file, offset: 0 }, prot).unwrap();
    }
    Shared { space, file }
}

/// A program uses the first word of a page; `None` where the file has no such page now.
fn access(mm: &Mm<'_>, id: SpaceId, at: u64, write: Option<u64>) -> Option<u64> {
    let kind = if write.is_some() { UserAccess::Write } else { UserAccess::Read };
    loop {
        if let Some(value) = mm.platform().access(PageNumber(at), write) {
            return Some(value);
        }
        match mm.space(id).fault(PageNumber(at).addr(), kind) {
            Ok(()) => mm.platform().got_on(),
            Err(Error::BeyondFile) => return None,
            Err(error) => panic!("{at:#x}: {error}"),
        }
    }
}

/// What a page that comes and goes may hold: nothing, or what says that it is of this page.
fn is_of(page: u64, value: Option<u64>) -> bool {
    value.is_none_or(|value| value == 0 || value % ALL == page)
}

/// Whether what is looked for has happened: the entry was made, and split, some times.
fn came_and_went(mm: &Mm<'_>) -> bool {
    mm.counter(Counter::LargeCollapse) > 3 && mm.counter(Counter::LargeSplit) > 3
}

/// Pages that stay may have come to lie so that for ever no memory is free in a piece of the entry's size: they leave, and come anew where there is room.
fn come_anew(mm: &Mm<'_>, shared: &Shared) {
    for at in [LARGE, SMALL] {
        let range = PageRange::new(PageNumber(at), ALL);
        mm.space(shared.space).advise(range, Advice::PageOut).unwrap();
    }
    _ = mm.file(shared.file).write_back();
    mm.file(shared.file).evict(0, ALL).unwrap();
}

fn work(mm: &Mm<'_>, shared: &Shared, cpu: u16, cpus: u16) {
    let steps = if soaks() { 6000 } else { 1500 };
    let (machine, id, file) = (mm.platform(), shared.space, shared.file);
    let mut own = [0u64; STAY as usize];
    let mut random = 0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(u64::from(cpu) + 1);
    mm.space(id).switch_to().unwrap();
    // How often the entry comes and goes depends on how the host lets its threads take turns: they go on until it has.
    for step in (1..).take_while(|&step| step <= steps || !came_and_went(mm)) {
        assert!(step < 100 * steps, "the entry does not come, or does not go");
        machine.got_on();
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let turns = (STAY - u64::from(cpu)).div_ceil(u64::from(cpus));
        let mine = (random >> 8) % turns * u64::from(cpus) + u64::from(cpu);
        let goes = STAY + (random >> 8) % (ALL - STAY);
        let value = step * ALL + goes;
        match (random >> 32) % 1000 {
            0..25 => {
                let done = mm.space(id).advise(PageRange::new(PageNumber(LARGE), ALL), Advice::Collapse);
                assert!(
                    matches!(done, Ok(()) | Err(Error::NotCollapsible(_) | Error::OutOfMemory)),
                    "{done:?}"
                );
                if step > steps && done == Err(Error::OutOfMemory) {
                    come_anew(mm, shared);
                }
            }
            25..29 => mm.file(file).set_size(goes * PAGE_SIZE + random % 2 * 8).unwrap(),
            29..40 => mm.file(file).set_size(ALL * PAGE_SIZE).unwrap(),
            40..44 => _ = mm.file(file).write_back(),
            44..48 => _ = mm.file(file).evict(goes, 16).unwrap(),
            48..52 => {
                mm.space(id).advise(PageRange::new(PageNumber(LARGE + goes), 1), Advice::Drop).unwrap();
            }
            52..150 => {
                let word = value.to_ne_bytes();
                assert_eq!(mm.file(file).write(mine * PAGE_SIZE, &word), Ok(8));
                own[mine as usize] = value;
            }
            150..250 => {
                assert_eq!(access(mm, id, SMALL + mine, Some(value)), Some(value));
                own[mine as usize] = value;
            }
            250..300 => _ = access(mm, id, SMALL + goes, Some(value)),
            300..800 => {
                assert_eq!(access(mm, id, LARGE + mine, None), Some(own[mine as usize]), "step {step}");
            }
            _ => assert!(is_of(goes, access(mm, id, LARGE + goes, None)), "step {step}"),
        }
    }
    for page in (u64::from(cpu)..STAY).step_by(cpus.into()) {
        assert_eq!(access(mm, id, LARGE + page, None), Some(own[page as usize]));
    }
    mm.cpu_offline().unwrap();
}

fn run(policy: &'static str, cpus: u16) -> bool {
    let config = Config {
        page_lists: Some(ListLimits { batch: 1, high: 0 }),
        min_free: Some(0),
        lru_batch: 4,
        scan_batch: 8,
        sweep_deadline: 0,
        ..Config::new(Policy::parse(policy).unwrap())
    };
    let last = |mm: &Mm<'_>| assert_eq!(mm.validate().broken, None, "{policy}");
    Threads::run_as(config, cpus, None, first, |mm, shared, cpu| work(mm, shared, cpu, cpus), last)
}

#[test]
fn a_large_entry_shows_all_cpus_what_was_written_to_the_file() {
    for (policy, cpus) in [("linux", 3), ("quiet", 2), ("vanilla", 4)] {
        assert!(run(policy, cpus), "{policy}: somebody waits for ever");
    }
}
