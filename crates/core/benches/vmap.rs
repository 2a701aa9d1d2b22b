//! Kernel mappings on the host's real threads, beside `rangemap` and `range-alloc` in the same run.
//!
//!     cargo bench -p quietmm --bench vmap
//!
//! Every thread is a CPU of its own, and nothing is translated, so a flush costs nothing: what is measured is the
//! bookkeeping. A figure is the time of one thread for an operation and its opposite, while all of them are at it, the
//! purges included that this asks for. The peers know neither page tables nor flushes, and have a mutex where there are
//! two threads.
//!
//! Runs are cut into short pieces, and of two threads only pieces count in which both had a core nearly all the time: on a
//! host that others use too, no longer piece would.

mod host;

use std::hint::black_box;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use quietmm::{AllocFrom, Config, FrameNumber, KernelProt, PageNumber, PageRange, Policy, VmapPlace};
use range_alloc::RangeAllocator;
use rangemap::RangeSet;

use host::Host;
use host::team::{Dice, ON_CORE, Team, Took};

/// Operations before anything counts.
const WARM_UP: u64 = 100_000;
/// Operations of a piece, by each thread, and how many pieces a run has.
const STEPS: u64 = 5_000;
const PIECES: usize = 50;
/// For so long runs are repeated, and at least so often.
const TIME: Duration = Duration::from_millis(1_000);
const RUNS: u32 = 4;
/// Ranges that are there all the time, all threads together, and how long one is: 1 to so many pages.
const LIVE: usize = 10_000;
const LONGEST: u64 = 16;
/// Kernel pages: 64 GiB.
const PAGES: u64 = 1 << 24;
const START: PageNumber = PageNumber(0xf_fff8_0000_0000);
const RW: KernelProt = KernelProt::ReadWrite;
/// No guard page: the peers have none.
const BARE: VmapPlace = VmapPlace { align: 1, within: None, guard: false, node: None };

/// Takes and gives back ranges of addresses.
trait Ranges: Sync {
    type Range: Copy;
    fn take(&self, pages: u64) -> Self::Range;
    fn give(&self, range: Self::Range);
    fn idle(&self) {
        std::thread::yield_now();
    }
}

/// `vmap` and `vunmap`, or `map_ram` and `unmap_ram`, of the same frames again and again.
struct Core<'a, 'b, 'p> {
    mm: &'a host::Shared<'b, 'p>,
    frames: Vec<FrameNumber>,
    small: bool,
}

impl Ranges for Core<'_, '_, '_> {
    type Range = PageRange;
    fn take(&self, pages: u64) -> PageRange {
        let frames = &self.frames[..pages as usize];
        let mapped = if self.small {
            self.mm.vmap().map_ram(frames, RW)
        } else {
            self.mm.vmap().map(frames, BARE, RW)
        };
        black_box(mapped.expect("plenty is free"))
    }
    fn give(&self, range: PageRange) {
        let done =
            if self.small { self.mm.vmap().unmap_ram(range) } else { self.mm.vmap().unmap(range.start) };
        done.expect("it was mapped");
    }
    fn idle(&self) {
        self.mm.platform().idle();
    }
}

/// A list of free ranges, first fit.
struct Alloc(Mutex<RangeAllocator<u64>>);

impl Ranges for Alloc {
    type Range = (u64, u64);
    fn take(&self, pages: u64) -> (u64, u64) {
        let range = self.0.lock().unwrap().allocate_range(pages).expect("plenty is free");
        black_box((range.start, range.end))
    }
    fn give(&self, (start, end): (u64, u64)) {
        self.0.lock().unwrap().free_range(start..end);
    }
}

/// A set of free ranges: the first one that is long enough is looked for.
struct Set(Mutex<RangeSet<u64>>);

impl Ranges for Set {
    type Range = (u64, u64);
    fn take(&self, pages: u64) -> (u64, u64) {
        let mut free = self.0.lock().unwrap();
        let start = free.iter().find(|range| range.end - range.start >= pages).expect("plenty is free").start;
        free.remove(start..start + pages);
        black_box((start, start + pages))
    }
    fn give(&self, (start, end): (u64, u64)) {
        self.0.lock().unwrap().insert(start..end);
    }
}

#[derive(Clone, Copy)]
enum Load {
    /// Of many live ones of all sizes, free a random one and take another of any size, so that holes do not fit.
    Mixed,
    /// Of many live ones of all sizes, free a random one and take another of its size.
    Same,
    /// Take 4 pages and give them back.
    Four,
}

/// One thread's part.
fn work<R: Ranges>(r: &R, load: Load, team: &Team, cpu: u16, threads: u16) -> Vec<Took> {
    let pieces = |mut step: &mut dyn FnMut()| {
        // Addresses come round, and their tables are there.
        (0..WARM_UP).for_each(|_| step());
        (0..PIECES).map(|_| team.time(STEPS, || r.idle(), &mut step)).collect()
    };
    if let Load::Four = load {
        return pieces(&mut || r.give(r.take(4)));
    }
    let mut dice = Dice(0x9e37_79b9_7f4a_7c15 + u64::from(cpu));
    let any = |dice: &mut Dice| 1 + dice.below(LONGEST as usize) as u64;
    let mut pages: Vec<_> = (0..LIVE / usize::from(threads)).map(|_| any(&mut dice)).collect();
    let mut held: Vec<_> = pages.iter().map(|&pages| r.take(pages)).collect();
    let took = pieces(&mut || {
        let which = dice.below(held.len());
        r.give(held[which]);
        if let Load::Mixed = load {
            pages[which] = any(&mut dice);
        }
        held[which] = r.take(pages[which]);
    });
    held.into_iter().for_each(|range| r.give(range));
    took
}

/// All threads at it: nanoseconds an operation and its opposite, in the middle one of the pieces that count.
fn run<R: Ranges>(r: &R, load: Load, threads: u16) -> Option<f64> {
    let team = Team::new(threads);
    let part = |cpu| {
        Host::be(cpu);
        let took = work(r, load, &team, cpu, threads);
        // The others may still want something of this CPU.
        team.meet(&team.left, || r.idle());
        took
    };
    let parts: Vec<_> = std::thread::scope(|scope| {
        let parts: Vec<_> = (0..threads).map(|cpu| scope.spawn(move || part(cpu))).collect();
        parts.into_iter().map(|part| part.join().expect("no thread panics")).collect()
    });
    let on_core = |took: &Took| took.on_core >= took.passed.mul_f64(ON_CORE);
    let counts = |&piece: &usize| threads == 1 || parts.iter().all(|part| on_core(&part[piece]));
    let all = |piece: usize| -> Duration { parts.iter().map(|part| part[piece].on_core).sum() };
    let mut times: Vec<_> = (0..PIECES).filter(counts).map(all).collect();
    times.sort();
    let middle = times.get(times.len() / 2)?;
    Some(middle.as_nanos() as f64 / f64::from(threads) / STEPS as f64)
}

/// What one thread takes, alone and beside another, by turns.
fn measure(what: &str, who: &str, mut run: impl FnMut(u16) -> Option<f64>) {
    let mut row: [Option<f64>; 2] = [None; 2];
    let (start, mut runs) = (Instant::now(), 0);
    while runs < RUNS || start.elapsed() < TIME {
        for (best, threads) in row.iter_mut().zip(1..) {
            *best = best.iter().copied().chain(run(threads)).reduce(f64::min);
        }
        runs += 1;
    }
    let show = |ns: Option<f64>, digits| ns.map_or("-".into(), |ns| format!("{ns:.digits$}"));
    let [one, two] = row;
    let ratio = one.zip(two).map(|(one, two)| two / one);
    println!("{what:<44} {who:<20} {:>9} {:>10} {:>7}", show(one, 1), show(two, 1), show(ratio, 2));
}

/// On a machine of as many CPUs as threads: whoever purges waits for all that are online.
fn run_core(load: Load, small: bool, threads: u16) -> Option<f64> {
    let policy = Policy::parse("linux").expect("a policy of this name");
    let config = Config { vmap: Some(PageRange::new(START, PAGES)), ..Config::new(policy) };
    Host::run(threads, 1, config, |mm| {
        let frame = || mm.frames().alloc(0, AllocFrom::HERE).expect("plenty is free").into_raw().0;
        let frames: Vec<_> = (0..LONGEST).map(|_| frame()).collect();
        let core = Core { mm, frames, small };
        let took = run(&core, load, threads);
        core.frames.iter().for_each(|&frame| mm.frames().free_at(frame, 0).expect("allocated above"));
        assert_eq!(mm.validate().broken, None);
        took
    })
}

fn main() {
    println!(
        "Nanoseconds to free and take a range, or to take and free one: in the middle one of up to {PIECES} pieces of \
         {STEPS}, of the best of {RUNS} or more runs."
    );
    println!("\n{:<44} {:<20} {:>9} {:>10} {:>7}", "", "", "1 thread", "2 threads", "ratio");
    let free = 0..PAGES;
    for (what, load) in [
        ("free and take another size, 10,000 live", Load::Mixed),
        ("free and take the same size, 10,000 live", Load::Same),
        ("take and free, 4 pages", Load::Four),
    ] {
        measure(what, "vmap", |threads| run_core(load, false, threads));
        measure(what, "map_ram", |threads| run_core(load, true, threads));
        let list = Alloc(Mutex::new(RangeAllocator::new(free.clone())));
        measure(what, "range-alloc", |threads| run(&list, load, threads));
        let set = Set(Mutex::new(RangeSet::from_iter([free.clone()])));
        measure(what, "rangemap", |threads| run(&set, load, threads));
    }
}
