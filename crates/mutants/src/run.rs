//! Runs, for each mutant, the tests that reach it, until one sees it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::judges::{Judge, Set, Test};
use crate::mutant::{Mutant, hash};
use crate::process::{self, Ended};
use crate::results::{Results, Verdict};

/// A mutant that takes so many times what its tests take hangs; and a constant, for what starts.
const PATIENCE: u32 = 5;
const START: Duration = Duration::from_secs(2);
/// As little as that is one tick of the host's clock, or none.
const TICK: Duration = Duration::from_millis(10);

/// So many of the tests that reach a mutant are named.
const NAMED: usize = 6;

/// What to run.
pub struct Order<'a> {
    pub mutants: &'a [Mutant],
    pub numbers: &'a [u32],
    pub jobs: usize,
    /// Those that survived are tried again, whatever is known.
    pub again: bool,
}

/// Tests by how many mutants of a function they have seen: the next ones are likely to be seen by the same.
type Seen = BTreeMap<(String, String), BTreeMap<usize, u32>>;

/// Judges the mutants that this set has not judged yet.
pub fn run(order: &Order<'_>, judge: &Judge, results: &mut Results) -> io::Result<()> {
    let wanted = |mutant: &&(usize, &Mutant)| match results.known.get(&mutant.1.key) {
        None => true,
        Some(Verdict::Killed { .. }) => false,
        Some(Verdict::Survived { sets, .. }) => order.again || !sets.contains(&judge.set),
    };
    let all: Vec<(usize, &Mutant)> = order.mutants.iter().enumerate().collect();
    let mut queue: Vec<(usize, &Mutant)> = all.iter().filter(wanted).copied().collect();
    // In an order that has nothing to do with the source: those that are through at any time are a sample of all.
    queue.sort_by_key(|(_, mutant)| hash(&mutant.place_and_change()));
    let queue: VecDeque<(usize, &Mutant)> = queue.into();
    let total = queue.len();
    let state =
        Mutex::new(State { queue, seen: Seen::new(), results, done: 0, killed: 0, told: Instant::now() });
    let (began, error, cpu) = (Instant::now(), Mutex::new(None), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..order.jobs {
            scope.spawn(|| {
                let next = || state.lock().expect("no panic").queue.pop_front();
                while let Some((at, mutant)) = next() {
                    let number = order.numbers[at];
                    let verdict = one(judge, number, mutant, &state, &cpu);
                    let mut state = state.lock().expect("no panic");
                    if let Err(failed) = state.end(judge, mutant, verdict) {
                        state.queue.clear();
                        *error.lock().expect("no panic") = Some(failed);
                    }
                    if state.told.elapsed() > Duration::from_secs(10) || state.done == total {
                        state.told = Instant::now();
                        tell(judge.set, &state, total, began, cpu.load(Ordering::Relaxed));
                    }
                }
            });
        }
    });
    error.into_inner().expect("no panic").map_or(Ok(()), Err)
}

struct State<'a> {
    queue: VecDeque<(usize, &'a Mutant)>,
    seen: Seen,
    results: &'a mut Results,
    done: usize,
    killed: usize,
    told: Instant,
}

impl State<'_> {
    fn end(&mut self, judge: &Judge, mutant: &Mutant, verdict: (Verdict, Option<usize>)) -> io::Result<()> {
        let (verdict, test) = verdict;
        let verdict = match (verdict, self.results.known.get(&mutant.key)) {
            (
                Verdict::Survived { sets, reached, tests },
                Some(Verdict::Survived { sets: before, reached: more, tests: others }),
            ) if !before.contains(&judge.set) => {
                let tests = others.iter().chain(&tests).take(NAMED).cloned().collect();
                Verdict::Survived { sets: &sets | before, reached: reached + more, tests }
            }
            (verdict, _) => verdict,
        };
        self.done += 1;
        self.killed += usize::from(matches!(verdict, Verdict::Killed { .. }));
        if let Some(test) = test {
            let function = (mutant.key.file.clone(), mutant.key.function.clone());
            *self.seen.entry(function).or_default().entry(test).or_default() += 1;
        }
        self.results.add(&mutant.key, verdict)
    }
}

fn tell(set: Set, state: &State<'_>, total: usize, began: Instant, cpu_ms: u64) {
    let (done, killed) = (state.done, state.killed);
    let seconds = began.elapsed().as_secs_f64();
    let left = seconds / done.max(1) as f64 * (total - done) as f64;
    println!(
        "{}: {done} of {total}, {killed} killed, {} left over, {:.0} s of CPU; about {:.0} min to go",
        set.name(),
        done - killed,
        cpu_ms as f64 / 1000.0,
        left / 60.0
    );
}

/// The verdict on one mutant, and the test that killed it.
fn one(
    judge: &Judge,
    number: u32,
    mutant: &Mutant,
    state: &Mutex<State<'_>>,
    cpu: &AtomicU64,
) -> (Verdict, Option<usize>) {
    let reaching: Vec<usize> =
        (0..judge.tests.len()).filter(|&test| judge.tests[test].reaches.contains(&number)).collect();
    let function = (mutant.key.file.clone(), mutant.key.function.clone());
    let seen = state.lock().expect("no panic").seen.get(&function).cloned().unwrap_or_default();
    for batch in batches(judge, &reaching, &seen) {
        for (binary, tests) in by_binary(judge, &batch) {
            let names: Vec<&str> = tests.iter().map(|&test| judge.tests[test].name.as_str()).collect();
            let limit: Duration =
                START + tests.iter().map(|&test| cost(&judge.tests[test])).sum::<Duration>() * PATIENCE;
            let run = process::run(&judge.binaries[binary], &names, &number.to_string(), limit);
            cpu.fetch_add(run.cpu.as_millis() as u64, Ordering::Relaxed);
            let (by, how) = match run.ended {
                Ended::Passed => continue,
                Ended::Failed(by) => (by, "failed"),
                Ended::Died(by) => (by, "died"),
                Ended::Hung(by) => (by, "hung"),
            };
            let test = tests.into_iter().find(|&test| judge.tests[test].name == by);
            return (Verdict::Killed { by, how: how.to_string() }, test);
        }
    }
    let tests = reaching.iter().take(NAMED).map(|&test| judge.tests[test].name.clone()).collect();
    (Verdict::Survived { sets: BTreeSet::from([judge.set]), reached: reaching.len(), tests }, None)
}

fn cost(test: &Test) -> Duration {
    test.cpu.max(TICK)
}

/// The tests in the order in which they are likely to pay: a few that saw others of this function, then the quick ones, in
/// batches that become longer, so that little time is lost on starting processes, and little on what comes after a failure.
fn batches(judge: &Judge, reaching: &[usize], seen: &BTreeMap<usize, u32>) -> Vec<Vec<usize>> {
    let mut likely: Vec<usize> = reaching.iter().copied().filter(|test| seen.contains_key(test)).collect();
    likely.sort_by_key(|test| std::cmp::Reverse(seen[test]));
    likely.retain(|&test| cost(&judge.tests[test]) < Duration::from_millis(300));
    likely.truncate(6);
    let mut rest: Vec<usize> = reaching.iter().copied().filter(|test| !likely.contains(test)).collect();
    rest.sort_by_key(|&test| judge.tests[test].cpu);
    let mut all = vec![likely];
    let (mut batch, mut sum, mut most) = (Vec::new(), Duration::ZERO, Duration::from_millis(150));
    for test in rest {
        if !batch.is_empty() && sum + cost(&judge.tests[test]) > most {
            all.push(std::mem::take(&mut batch));
            (sum, most) = (Duration::ZERO, most * 2);
        }
        sum += cost(&judge.tests[test]);
        batch.push(test);
    }
    all.push(batch);
    all.retain(|batch| !batch.is_empty());
    all
}

fn by_binary(judge: &Judge, batch: &[usize]) -> BTreeMap<usize, Vec<usize>> {
    let mut by: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for &test in batch {
        by.entry(judge.tests[test].binary).or_default().push(test);
    }
    by
}
