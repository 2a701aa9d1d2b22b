//! One file, on CPUs that are threads of the host: each reads and writes it by copy and by mapping, while it becomes shorter and
//! longer, gets holes, is written back and reclaimed, and its device fails now and then.

use crate::machine::soaks;
use crate::threads;

use std::sync::Mutex;
use std::sync::atomic::Ordering;

use quietmm::addr::PAGE_SIZE;
use quietmm::{
    AllocFrom, Backing, Config, Counter, Error, FileId, Frames, ListLimits, PageNumber, PageRange, Policy,
    Prot, SpaceId, UserAccess,
};
use threads::{Mm, Threads};

/// Pages that stay, by turns one of each CPU, which alone writes it.
const STAY: u64 = 120;
/// All pages: those behind come and go.
const ALL: u64 = 240;
const AT: u64 = 0x11f8;
/// Frames that are left for them and for tables.
const MEMORY: usize = 140;

struct Shared {
    space: SpaceId,
    file: FileId,
    /// What makes memory short.
    _held: Mutex<Vec<Frames>>,
}

fn first(mm: &Mm<'_>) -> Shared {
    let (space, file) = (mm.create_space().unwrap(), mm.create_file(ALL).unwrap());
    mm.space(space)
        .map(PageRange::new(PageNumber(AT), ALL), Backing::File { file, offset: 0 }, Prot::ReadWrite)
        .unwrap();
    let mut held: Vec<_> = std::iter::from_fn(|| mm.frames().alloc(0, AllocFrom::NOW).ok()).collect();
    held.split_off(held.len() - MEMORY).into_iter().for_each(|frame| mm.frames().free(frame));
    mm.platform().fail_one_in.store(37, Ordering::SeqCst);
    Shared { space, file, _held: Mutex::new(held) }
}

/// Tries until neither the device nor memory stands in the way.
fn until<T>(mm: &Mm<'_>, mut work: impl FnMut() -> Result<T, Error>) -> T {
    loop {
        match work() {
            Err(Error::Device | Error::OutOfMemory) => mm.platform().got_on(),
            other => return other.unwrap(),
        }
    }
}

/// A program uses the first word of a page; `None` where the file has no such page now.
fn access(mm: &Mm<'_>, id: SpaceId, page: u64, write: Option<u64>) -> Option<u64> {
    let (at, kind) =
        (PageNumber(AT + page), if write.is_some() { UserAccess::Write } else { UserAccess::Read });
    loop {
        if let Some(value) = mm.platform().access(at, write) {
            return Some(value);
        }
        match mm.space(id).fault(at.addr(), kind) {
            Ok(()) | Err(Error::OutOfMemory | Error::Device) => mm.platform().got_on(),
            Err(Error::BeyondFile) => return None,
            Err(error) => panic!("{at:?}: {error}"),
        }
    }
}

fn copy_in(mm: &Mm<'_>, file: FileId, page: u64, value: u64) {
    assert_eq!(until(mm, || mm.file(file).write(page * PAGE_SIZE, &value.to_ne_bytes())), 8);
}

fn copy_out(mm: &Mm<'_>, file: FileId, page: u64) -> Option<u64> {
    let mut word = [0; 8];
    match until(mm, || mm.file(file).read(page * PAGE_SIZE, &mut word)) {
        0 => None,
        read => {
            assert_eq!(read, 8);
            Some(u64::from_ne_bytes(word))
        }
    }
}

/// What a page that comes and goes may hold: nothing, or what says that it is of this page.
fn is_of(page: u64, value: u64) -> bool {
    value == 0 || value % ALL == page
}

fn work(mm: &Mm<'_>, shared: &Shared, cpu: u16, cpus: u16) {
    let steps = if soaks() { 6000 } else { 2000 };
    let (machine, id, file) = (mm.platform(), shared.space, shared.file);
    let mut own = [0u64; STAY as usize];
    let mut random = 0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(u64::from(cpu) + 1);
    mm.space(id).switch_to().unwrap();
    for step in 1..=steps {
        machine.got_on();
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let (mine, goes) = (
            (random >> 8) % STAY / u64::from(cpus) * u64::from(cpus) + u64::from(cpu),
            STAY + (random >> 8) % (ALL - STAY),
        );
        let mine = if mine < STAY { mine } else { u64::from(cpu) };
        let value = step * ALL + goes;
        match (random >> 32) % 1000 {
            0..6 => until(mm, || mm.file(file).set_size(goes * PAGE_SIZE + random % 2 * 8)),
            6..12 => until(mm, || mm.file(file).set_size(ALL * PAGE_SIZE)),
            12..18 => until(mm, || mm.file(file).punch_hole(goes * PAGE_SIZE, 8 * PAGE_SIZE)),
            18..24 => _ = mm.file(file).write_back(),
            24..30 => _ = mm.file(file).evict(0, ALL).unwrap(),
            30..250 => {
                copy_in(mm, file, mine, value);
                own[mine as usize] = value;
            }
            250..450 => {
                assert_eq!(access(mm, id, mine, Some(value)), Some(value));
                own[mine as usize] = value;
            }
            450..550 => assert_eq!(copy_out(mm, file, mine), Some(own[mine as usize]), "step {step}"),
            550..650 => assert_eq!(access(mm, id, mine, None), Some(own[mine as usize]), "step {step}"),
            650..750 => copy_in(mm, file, goes, value),
            750..850 => _ = access(mm, id, goes, Some(value)),
            850..925 => {
                assert!(copy_out(mm, file, goes).is_none_or(|found| is_of(goes, found)), "step {step}")
            }
            _ => assert!(access(mm, id, goes, None).is_none_or(|found| is_of(goes, found)), "step {step}"),
        }
    }
    for page in (u64::from(cpu)..STAY).step_by(cpus.into()) {
        assert_eq!(access(mm, id, page, None), Some(own[page as usize]));
        assert_eq!(copy_out(mm, file, page), Some(own[page as usize]));
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
    let last = |mm: &Mm<'_>| {
        let reclaimed = mm.counter(Counter::PgStealKswapd) + mm.counter(Counter::PgStealDirect);
        // How much depends on how the host lets its threads take turns.
        assert!(reclaimed > 20, "{policy}: memory was short, and {reclaimed} pages were reclaimed");
        assert_eq!(mm.validate().broken, None, "{policy}");
    };
    Threads::run_as(config, cpus, None, first, |mm, shared, cpu| work(mm, shared, cpu, cpus), last)
}

#[test]
fn a_file_shows_all_cpus_what_was_written_to_it_while_its_length_changes() {
    for (policy, cpus) in [("linux", 3), ("quiet", 2), ("vanilla", 4)] {
        assert!(run(policy, cpus), "{policy}: somebody waits for ever");
    }
}
