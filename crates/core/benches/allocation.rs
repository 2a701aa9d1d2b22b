//! Allocating and freeing frames on the host's real threads, beside `buddy_system_allocator` in the same run.
//!
//!     cargo bench -p quietmm                   all, and a table at the end
//!     cargo bench -p quietmm -- pair           those with "pair" in their names
//!
//! Every thread is a CPU of its own. A figure is the time of one thread from one operation to the next while all of
//! them are at it: a pair (allocate, free), or the same per block in bulk and at random.
//!
//! The host may be busy with other things, and what they cost is not ours. So each figure is the best of many short
//! runs, those of one thread and of two by turns, and of the latter only those count in which both threads had a core
//! all the time: one that is alone for a while has it too easy.

mod host;

use std::hint::black_box;
use std::time::{Duration, Instant};

use buddy_system_allocator::LockedFrameAllocator;
use quietmm::{AllocFrom, Config, Frames, ListLimits, MAX_ORDER, Policy};

use host::team::{Dice, ON_CORE, Team, Took};
use host::{FRAMES, Host, Shared};

/// The first one runs everything, the others what depends on them.
const POLICIES: [&str; 3] = ["linux+drain=all-cpus", "linux+drain=holding-cpus", "linux+drain=remote"];
/// Blocks of one run: a few milliseconds.
const BLOCKS: u64 = 100_000;
/// For so long runs are repeated, and at least so often.
const TIME: Duration = Duration::from_millis(1_500);
const RUNS: u32 = 15;
const NO_LISTS: ListLimits = ListLimits { batch: 1, high: 0 };
const PEER: &str = "buddy_system_allocator";

/// What the figures stand beside: measured elsewhere, so they say the order of magnitude.
const ELSEWHERE: &str =
    "LLFree, on another host with 2 cores: pair of order 0: 61 ns at 1 thread, 101 to 166 ns at 2.";

/// What is asked of an allocator.
#[derive(Clone, Copy, PartialEq)]
enum Load {
    /// Allocate a frame, free it.
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

    /// Blocks that a thread allocates in one run.
    fn in_a_run(&self) -> u64 {
        let many = self.blocks() as u64;
        if self.load == Load::Bulk { BLOCKS / many * many } else { BLOCKS }
    }

    /// A zone knows nothing of policies.
    fn depends_on_policy(&self) -> bool {
        self.lists && self.order == 0
    }

    /// The peer has neither lists nor nodes.
    fn fits_peer(&self) -> bool {
        self.nodes == 1 && !(self.lists && self.load == Load::Pair)
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
    #[inline(always)]
    fn take(&self, order: u8) -> Frames {
        let block = self.frames().alloc(order, AllocFrom::HERE).expect("plenty is free");
        // The number alone: a whole `Frames` would go through memory in parts of different sizes, and the processor
        // waits where it reads more at once than was written at once.
        black_box(block.first());
        block
    }
    #[inline(always)]
    fn give(&self, block: Frames, _order: u8) {
        (**self).frames().free(block);
    }
    fn free_frames(&self) -> usize {
        self.frames().available() as usize
    }
    fn idle(&self) {
        self.platform().idle();
    }
}

type Peer = LockedFrameAllocator<{ MAX_ORDER as usize + 1 }>;

impl Allocator for Peer {
    type Block = usize;
    #[inline(always)]
    fn take(&self, order: u8) -> usize {
        black_box(self.lock().alloc(1 << order).expect("plenty is free"))
    }
    #[inline(always)]
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

/// One thread's part: so many blocks are allocated and freed.
fn work<A: Allocator>(a: &A, case: &Case, team: &Team, cpu: u16) -> Took {
    let order = case.order;
    let many = case.blocks();
    let mut held = Vec::with_capacity(many);
    match case.load {
        // Written out: a kernel that asks for a page says so.
        Load::Pair => team.time(BLOCKS, || a.idle(), || a.give(a.take(0), 0)),
        Load::Bulk => team.time(
            BLOCKS / many as u64,
            || a.idle(),
            || {
                held.extend((0..many).map(|_| a.take(order)));
                held.drain(..).for_each(|block| a.give(block, order));
            },
        ),
        Load::Random => {
            held.extend((0..many).map(|_| a.take(order)));
            let mut dice = Dice(0x9e37_79b9_7f4a_7c15 + u64::from(cpu));
            let took = team.time(
                BLOCKS,
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

/// All threads at it: nanoseconds per block, if all of them had cores.
fn run<A: Allocator>(a: &A, case: &Case, threads: u16) -> Option<f64> {
    let team = Team::new(threads);
    let part = |cpu| {
        Host::be(cpu);
        let took = work(a, case, &team, cpu);
        // The others may still want something of this CPU.
        team.meet(&team.left, || a.idle());
        took
    };
    let parts: Vec<_> = std::thread::scope(|scope| {
        let parts: Vec<_> = (0..threads).map(|cpu| scope.spawn(move || part(cpu))).collect();
        parts.into_iter().map(|part| part.join().expect("no thread panics")).collect()
    });
    let apart = |took: &Took| took.on_core < took.passed.mul_f64(ON_CORE);
    if threads > 1 && parts.iter().any(apart) {
        return None;
    }
    let all: Duration = parts.iter().map(|took| took.on_core).sum();
    Some(all.as_nanos() as f64 / f64::from(threads) / case.in_a_run() as f64)
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

/// What one thread takes for a block, alone and beside another.
type Row = [Option<f64>; 2];

fn measure<A: Allocator>(case: &Case, a: &A) -> Row {
    let used = if case.memory == Memory::HalfUsed { use_half(a) } else { Vec::new() };
    let mut row: Row = [None; 2];
    let (start, mut runs) = (Instant::now(), 0);
    while runs < RUNS || start.elapsed() < TIME {
        for (best, threads) in row.iter_mut().zip(1..) {
            let took = run(a, case, threads);
            *best = best.iter().copied().chain(took).reduce(f64::min);
        }
        runs += 1;
    }
    used.into_iter().for_each(|block| a.give(block, 0));
    row
}

fn measure_core(case: &Case, policy: &str) -> Row {
    Host::run(2, case.nodes, case.config(policy), |mm| {
        let before = mm.validate();
        let row = measure(case, mm);
        let after = mm.validate();
        assert_eq!(after.broken, None);
        assert_eq!((after.free, after.kernel), (before.free, before.kernel), "frames were lost or doubled");
        row
    })
}

fn measure_peer(case: &Case) -> Row {
    let peer = Peer::new();
    peer.lock().add_frame(0, FRAMES as usize);
    measure(case, &peer)
}

fn print(case: &Case, who: &str, [one, two]: Row) {
    let show = |ns: Option<f64>, digits| ns.map_or("-".into(), |ns| format!("{ns:.digits$}"));
    let ratio = one.zip(two).map(|(one, two)| two / one);
    println!("{:<40} {who:<24} {:>9} {:>10} {:>7}", case.name, show(one, 1), show(two, 1), show(ratio, 2));
}

fn main() {
    // Cargo adds options of its own.
    let wanted: Vec<_> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    println!(
        "Nanoseconds per pair or block, best of {RUNS} or more runs of {BLOCKS} blocks; {FRAMES} frames."
    );
    println!("\n{:<40} {:<24} {:>9} {:>10} {:>7}", "", "", "1 thread", "2 threads", "ratio");
    for case in CASES.iter().filter(|case| wanted.iter().all(|word| case.name.contains(word.as_str()))) {
        let policies = if case.depends_on_policy() { &POLICIES[..] } else { &POLICIES[..1] };
        for policy in policies {
            print(case, policy, measure_core(case, policy));
        }
        if case.fits_peer() {
            print(case, PEER, measure_peer(case));
        }
    }
    println!("\n{ELSEWHERE}");
}
