//! Allocating and freeing frames on the host's real threads, beside `buddy_system_allocator` in the same run.
//!
//!     cargo bench -p quietmm                   all, and a table at the end
//!     cargo bench -p quietmm -- pair           those with "pair" in their names
//!
//! Every thread is a CPU of its own. A figure is the time of one thread from one operation to the next while all of
//! them are at it: a pair (allocate, free), or the same per frame in bulk and at random.

mod host;

use std::fs;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use buddy_system_allocator::LockedFrameAllocator;
use criterion::{BenchmarkId, Criterion, SamplingMode};
use quietmm::{AllocFrom, Config, Frames, ListLimits, MAX_ORDER, Policy};

use host::{FRAMES, Host, Shared};

/// The first one runs everything, the others what depends on them.
const POLICIES: [&str; 3] = ["linux+drain=all-cpus", "linux+drain=holding-cpus", "linux+drain=remote"];
/// A sample has at least so many blocks, or starting the threads and reading the clock would show.
const FEWEST: u64 = 100_000;
const NO_LISTS: ListLimits = ListLimits { batch: 1, high: 0 };
const PEER: &str = "buddy_system_allocator";

/// What the figures stand beside: measured elsewhere, so they say the order of magnitude.
const ELSEWHERE: &str =
    "LLFree, on another host with 2 cores: pair of order 0: 61 ns at 1 thread, 101 to 166 ns at 2.";

/// What is asked of an allocator.
#[derive(Clone, Copy, PartialEq)]
enum Load {
    /// Allocate a block, free it.
    Pair,
    /// Allocate many, then free them all.
    Bulk,
    /// Of many, free a random one and allocate another.
    Random,
}

/// What it is asked in.
#[derive(Clone, Copy, PartialEq)]
enum Memory {
    /// Only what the bench holds is in use.
    Fresh,
    /// Half of the frames are in use, each by chance.
    HalfUsed,
}

struct Case {
    name: &'static str,
    load: Load,
    order: u8,
    memory: Memory,
    /// Whether single frames may come from the CPU's own list.
    lists: bool,
    nodes: u16,
}

const fn case(name: &'static str, load: Load, order: u8) -> Case {
    Case { name, load, order, memory: Memory::Fresh, lists: true, nodes: 1 }
}

const fn zone_pair(name: &'static str, memory: Memory, nodes: u16) -> Case {
    Case { name, load: Load::Pair, order: 0, memory, lists: false, nodes }
}

const CASES: [Case; 9] = [
    case("pair, per-CPU list", Load::Pair, 0),
    zone_pair("pair, zone half used", Memory::HalfUsed, 1),
    zone_pair("pair, zone half used, one for each CPU", Memory::HalfUsed, 2),
    zone_pair("pair, fresh zone", Memory::Fresh, 1),
    zone_pair("pair, fresh zone, one for each CPU", Memory::Fresh, 2),
    case("bulk, order 0", Load::Bulk, 0),
    case("bulk, order 9", Load::Bulk, 9),
    case("random, order 0", Load::Random, 0),
    case("random, order 9", Load::Random, 9),
];

impl Case {
    fn config(&self, policy: &str) -> Config {
        let config = Config::new(Policy::parse(policy).expect("a policy of this name"));
        if self.lists { config } else { Config { page_lists: Some(NO_LISTS), ..config } }
    }

    /// Blocks that one thread holds.
    fn blocks(&self) -> usize {
        if self.order == 0 { 4096 } else { 256 }
    }

    /// A zone knows nothing of policies.
    fn depends_on_policy(&self) -> bool {
        self.lists && self.order == 0
    }

    /// The peer has neither lists nor nodes.
    fn fits_peer(&self) -> bool {
        self.nodes == 1 && !(self.lists && self.load == Load::Pair)
    }

    /// Whether there is something to see at so many threads.
    fn runs_at(&self, threads: u16) -> bool {
        threads >= self.nodes
    }
}

trait Allocator: Sync {
    type Block;
    fn take(&self, order: u8) -> Self::Block;
    fn give(&self, block: Self::Block, order: u8);
    fn free_frames(&self) -> usize;
    /// What a thread does while it waits for the others.
    fn idle(&self);
}

impl Allocator for Shared<'_, '_> {
    type Block = Frames;
    fn take(&self, order: u8) -> Frames {
        self.alloc_frames(order, AllocFrom::HERE).expect("plenty is free")
    }
    fn give(&self, block: Frames, _order: u8) {
        (**self).free_frames(block);
    }
    fn free_frames(&self) -> usize {
        self.free_frame_count() as usize
    }
    fn idle(&self) {
        self.platform().idle();
    }
}

type Peer = LockedFrameAllocator<{ MAX_ORDER as usize + 1 }>;

impl Allocator for Peer {
    type Block = usize;
    fn take(&self, order: u8) -> usize {
        self.lock().alloc(1 << order).expect("plenty is free")
    }
    fn give(&self, block: usize, order: u8) {
        self.lock().dealloc(block, 1 << order);
    }
    fn free_frames(&self) -> usize {
        FRAMES as usize
    }
    fn idle(&self) {
        std::thread::yield_now();
    }
}

/// Threads that begin together and stay at work until the last has done its part.
struct Team {
    threads: u32,
    begun: AtomicU32,
    done: AtomicU32,
    left: AtomicU32,
}

impl Team {
    fn new(threads: u16) -> Team {
        let zero = || AtomicU32::new(0);
        Team { threads: threads.into(), begun: zero(), done: zero(), left: zero() }
    }

    /// Waits for the others at `place`, and does something meanwhile.
    fn meet(&self, place: &AtomicU32, mut meanwhile: impl FnMut()) {
        place.fetch_add(1, Ordering::AcqRel);
        while place.load(Ordering::Acquire) < self.threads {
            meanwhile();
        }
    }

    /// How long so many steps take while the others are at theirs.
    fn time(&self, steps: u64, idle: impl Fn(), mut step: impl FnMut()) -> Duration {
        self.meet(&self.begun, idle);
        let (start, on_core) = (Instant::now(), time_on_core());
        for _ in 0..steps {
            step();
        }
        let took = time_on_core().zip(on_core).map_or(start.elapsed(), |(after, before)| after - before);
        self.meet(&self.done, step);
        took
    }
}

/// How long this thread has had a core, if the host says so (Linux): the time that others have it is not ours.
fn time_on_core() -> Option<Duration> {
    // The account is brought up to date where the thread could lose its core.
    std::thread::yield_now();
    let account = fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    account.split(' ').next()?.parse().ok().map(Duration::from_nanos)
}

/// A stream of numbers that will do to pick by (xorshift).
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((u128::from(self.0) * n as u128) >> 64) as usize
    }
}

/// One thread's part: about `blocks` blocks are allocated and freed. The time for exactly so many.
fn work<A: Allocator>(a: &A, case: &Case, team: &Team, cpu: u16, blocks: u64) -> Duration {
    let order = case.order;
    let many = case.blocks();
    let mut held = Vec::with_capacity(many);
    match case.load {
        Load::Pair => team.time(blocks, || a.idle(), || a.give(black_box(a.take(order)), order)),
        Load::Bulk => {
            let rounds = blocks.div_ceil(many as u64);
            let took = team.time(
                rounds,
                || a.idle(),
                || {
                    held.extend((0..many).map(|_| a.take(order)));
                    held.drain(..).for_each(|block| a.give(block, order));
                },
            );
            took.mul_f64(blocks as f64 / (rounds * many as u64) as f64)
        }
        Load::Random => {
            held.extend((0..many).map(|_| a.take(order)));
            let mut dice = Dice(0x9e37_79b9_7f4a_7c15 + u64::from(cpu));
            let took = team.time(
                blocks,
                || a.idle(),
                || {
                    a.give(held.swap_remove(dice.below(many)), order);
                    held.push(a.take(order));
                },
            );
            held.drain(..).for_each(|block| a.give(block, order));
            took
        }
    }
}

/// All threads at it; what one of them takes, on average.
fn run<A: Allocator>(a: &A, case: &Case, threads: u16, blocks: u64) -> Duration {
    let team = Team::new(threads);
    let part = |cpu| {
        Host::be(cpu);
        let took = work(a, case, &team, cpu, blocks);
        // The others may still want something of this CPU.
        team.meet(&team.left, || a.idle());
        took
    };
    std::thread::scope(|scope| {
        let parts: Vec<_> = (0..threads).map(|cpu| scope.spawn(move || part(cpu))).collect();
        parts.into_iter().map(|part| part.join().expect("no thread panics")).sum::<Duration>()
            / threads.into()
    })
}

/// Takes nearly all frames, and frees half of them by chance.
fn use_half<A: Allocator>(a: &A) -> Vec<A::Block> {
    let mut held: Vec<_> = (0..a.free_frames() / 16 * 15).map(|_| a.take(0)).collect();
    let mut dice = Dice(1);
    for _ in 0..held.len() / 2 {
        a.give(held.swap_remove(dice.below(held.len())), 0);
    }
    held
}

/// Where criterion puts its figures.
fn home() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("criterion")
}

/// The median, in nanoseconds, of what criterion measured last under this name.
fn median(estimates: &Path) -> Option<f64> {
    let text = fs::read_to_string(estimates).ok()?;
    let (_, median) = text.split_once("\"median\":")?;
    let (_, point) = median.split_once("\"point_estimate\":")?;
    point.split([',', '}']).next()?.trim().parse().ok()
}

/// Lets criterion measure a case, and adds to the table's row; nothing, if criterion's filter says so.
fn measure<A: Allocator>(
    criterion: &mut Criterion,
    who: &str,
    case: &Case,
    threads: u16,
    a: &A,
    row: &mut [Option<f64>; 2],
) {
    let used = if case.memory == Memory::HalfUsed { use_half(a) } else { Vec::new() };
    let estimates = home().join(format!("{who}/{}/{threads}/new/estimates.json", case.name));
    // Only what is measured now counts.
    let _ = fs::remove_file(&estimates);
    let mut group = criterion.benchmark_group(who);
    group.sampling_mode(SamplingMode::Flat);
    group.bench_function(BenchmarkId::new(case.name, threads), |bencher| {
        bencher.iter_custom(|blocks| {
            let most = blocks.max(FEWEST);
            run(a, case, threads, most).mul_f64(blocks as f64 / most as f64)
        });
    });
    group.finish();
    row[usize::from(threads) - 1] = median(&estimates);
    used.into_iter().for_each(|block| a.give(block, 0));
}

fn measure_core(criterion: &mut Criterion, policy: &str, case: &Case) -> [Option<f64>; 2] {
    let mut row = [None; 2];
    for threads in (1..=2).filter(|&threads| case.runs_at(threads)) {
        Host::run(threads, case.nodes, case.config(policy), |mm| {
            let before = mm.validate();
            measure(criterion, policy, case, threads, mm, &mut row);
            let after = mm.validate();
            assert_eq!(after.broken, None);
            assert_eq!(
                (after.free, after.kernel),
                (before.free, before.kernel),
                "frames were lost or doubled"
            );
        });
    }
    row
}

fn measure_peer(criterion: &mut Criterion, case: &Case) -> [Option<f64>; 2] {
    let mut row = [None; 2];
    for threads in 1..=2 {
        let peer = Peer::new();
        peer.lock().add_frame(0, FRAMES as usize);
        measure(criterion, PEER, case, threads, &peer, &mut row);
    }
    row
}

fn print(rows: &[(&str, &str, [Option<f64>; 2])]) {
    println!("\nNanoseconds per pair or frame, medians; {FRAMES} frames.\n");
    println!("{:<40} {:<24} {:>9} {:>10} {:>7}", "", "", "1 thread", "2 threads", "ratio");
    let show = |ns: Option<f64>, digits| ns.map_or("-".into(), |ns| format!("{ns:.digits$}"));
    for (case, who, [one, two]) in rows {
        let ratio = one.zip(*two).map(|(one, two)| two / one);
        println!("{case:<40} {who:<24} {:>9} {:>10} {:>7}", show(*one, 1), show(*two, 1), show(ratio, 2));
    }
    println!("\n{ELSEWHERE}");
}

fn main() {
    let mut criterion = Criterion::default()
        .output_directory(&home())
        .without_plots()
        .sample_size(20)
        .nresamples(2_000)
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_millis(1_000))
        .configure_from_args();
    let mut rows = Vec::new();
    for case in &CASES {
        for (i, policy) in POLICIES.into_iter().enumerate() {
            if i == 0 || case.depends_on_policy() {
                rows.push((case.name, policy, measure_core(&mut criterion, policy, case)));
            }
        }
        if case.fits_peer() {
            rows.push((case.name, PEER, measure_peer(&mut criterion, case)));
        }
    }
    rows.retain(|(_, _, row)| *row != [None; 2]);
    print(&rows);
    criterion.final_summary();
}
