//! CPUs that are threads of the host map and unmap kernel addresses, and use each other's: no address leads two ways, in
//! whatever order it happens.

use crate::threads;

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use quietmm::{
    AllocFrom, Config, Error, FrameNumber, KernelProt, ListLimits, PageNumber, PageRange, Policy, Rule,
    VmapPlace,
};
use threads::{Mm, Threads};

const START: u64 = 0xf_fff8_1234_ff00;
const PAGES: u64 = 640;
const CPUS: u16 = 4;
const ROUNDS: u32 = 5000;

struct Shared {
    frames: Vec<FrameNumber>,
    /// What each CPU has mapped: its first page from `START` on, the number of its frame, and a count; 0 is nothing.
    shown: Vec<AtomicU64>,
    /// Who has each page.
    owners: Vec<AtomicU32>,
    stale: AtomicU32,
    mapped: AtomicU32,
    done: AtomicU32,
}

/// One CPU's own part.
struct Own {
    cpu: u16,
    random: u32,
    count: u64,
    /// The range, and whether it is a small map.
    has: Option<(PageRange, bool)>,
}

impl Own {
    fn draw(&mut self, below: u32) -> u32 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 17;
        self.random ^= self.random << 5;
        self.random % below
    }

    fn unmap(&mut self, mm: &Mm<'_>, shared: &Shared) {
        let Some((range, small)) = self.has.take() else { return };
        shared.shown[usize::from(self.cpu)].store(0, Ordering::SeqCst);
        for page in range.start.0..range.end().0 {
            let owner = shared.owners[(page - START) as usize].swap(0, Ordering::SeqCst);
            assert_eq!(owner, u32::from(self.cpu) + 1, "somebody else has page {page:#x}");
        }
        let done = if small { mm.vmap().unmap_ram(range) } else { mm.vmap().unmap(range.start) };
        assert_eq!(done, Ok(()));
    }

    fn map(&mut self, mm: &Mm<'_>, shared: &Shared) {
        self.unmap(mm, shared);
        let (small, pages) = (self.draw(2) == 0, self.draw(20) as usize + 1);
        let first = self.draw(shared.frames.len() as u32 - 20) as usize;
        let frames = &shared.frames[first..first + pages];
        let place = VmapPlace { align: 1 << self.draw(4), guard: false, ..VmapPlace::ANYWHERE };
        let range = match small {
            true => mm.vmap().map_ram(frames, KernelProt::ReadWrite),
            false => mm.vmap().map(frames, place, KernelProt::ReadWrite),
        };
        let range = match range {
            Ok(range) => range,
            // Others may have taken what a purge gave back.
            Err(error) => return assert_eq!(error, Error::NoAddress),
        };
        for page in range.start.0..range.end().0 {
            let owner =
                shared.owners[(page - START) as usize].swap(u32::from(self.cpu) + 1, Ordering::SeqCst);
            assert_eq!(owner, 0, "page {page:#x} is given out twice");
        }
        self.has = Some((range, small));
        self.count += 1;
        let word = (range.start.0 - START + 1) | u64::from(frames[0].0) << 16 | self.count << 40;
        shared.shown[usize::from(self.cpu)].store(word, Ordering::SeqCst);
        shared.mapped.fetch_add(1, Ordering::SeqCst);
    }

    /// Uses the first page of what another CPU shows. If that is still shown afterwards it led to the right frame.
    fn look(&mut self, mm: &Mm<'_>, shared: &Shared) {
        let shown = &shared.shown[self.draw(CPUS.into()) as usize];
        let word = shown.load(Ordering::SeqCst);
        if word == 0 {
            return;
        }
        let page = PageNumber(START + (word & 0xffff) - 1);
        let found = Threads::kernel_frame(mm, page);
        let right = found == Some(FrameNumber((word >> 16) as u32 & 0xff_ffff));
        if !right && shown.load(Ordering::SeqCst) == word {
            shared.stale.fetch_add(1, Ordering::SeqCst);
        }
    }
}

/// How often an address led elsewhere, and how much was mapped.
fn run(policy: &str, broken: Option<Rule>) -> (u32, u32) {
    let config = Config {
        page_lists: Some(ListLimits { batch: 1, high: 0 }),
        min_free: Some(0),
        vmap: Some(PageRange::new(PageNumber(START), PAGES)),
        vmap_shards: Some(3),
        vmap_lazy: Some(150),
        ..Config::new(Policy::parse(policy).unwrap())
    };
    let (stale, mapped) = (AtomicU32::new(0), AtomicU32::new(0));
    let ended = Threads::run_as(
        config,
        CPUS,
        broken,
        |mm| Shared {
            frames: (0..100).map(|_| mm.frames().alloc(0, AllocFrom::NOW).unwrap().into_raw().0).collect(),
            shown: (0..CPUS).map(|_| AtomicU64::new(0)).collect(),
            owners: (0..PAGES).map(|_| AtomicU32::new(0)).collect(),
            stale: AtomicU32::new(0),
            mapped: AtomicU32::new(0),
            done: AtomicU32::new(0),
        },
        |mm, shared, cpu| {
            let mut own = Own { cpu, random: 77 + u32::from(cpu), count: 0, has: None };
            for _ in 0..ROUNDS {
                match own.draw(40) {
                    0 => mm.vmap().unmap_aliases().unwrap(),
                    1..20 => own.map(mm, shared),
                    20..22 => own.unmap(mm, shared),
                    _ => own.look(mm, shared),
                }
                mm.platform().got_on();
            }
            own.unmap(mm, shared);
            shared.done.fetch_add(1, Ordering::SeqCst);
            // It still serves: others flush.
            mm.platform().wait_until(|| {
                mm.platform().got_on();
                shared.done.load(Ordering::SeqCst) == CPUS.into()
            });
            stale.fetch_max(shared.stale.load(Ordering::SeqCst), Ordering::SeqCst);
            mapped.fetch_max(shared.mapped.load(Ordering::SeqCst), Ordering::SeqCst);
        },
        |mm| {
            if broken.is_none() {
                assert_eq!(mm.validate().broken, None);
            }
        },
    );
    assert!(ended, "{policy}: somebody waits for ever");
    (stale.into_inner(), mapped.into_inner())
}

#[test]
fn cpus_that_map_and_unmap_at_once_never_meet_at_an_address() {
    for policy in ["vanilla+vmap=lazy", "vanilla"] {
        let (stale, mapped) = run(policy, None);
        assert_eq!(stale, 0, "{policy}");
        assert!(mapped > 1000, "{policy}: only {mapped} were mapped");
    }
}

#[test]
fn without_the_flush_an_address_leads_to_what_was_there_before() {
    for policy in ["vanilla+vmap=lazy", "vanilla"] {
        assert!(run(policy, Some(Rule::FlushBeforeReuse)).0 > 0, "{policy}");
    }
}
