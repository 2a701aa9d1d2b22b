//! A case: what is prepared, what each CPU does then, and how all orders of it are checked.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use quietmm::{Config, Manager, Rule};

use crate::machine::{Machine, Mm, Setup, begin_stack};
use crate::words::Place;

/// Rounds that only find words, at most.
const ROUNDS: u32 = 400;
/// Steps of all CPUs in one execution, at most: beyond it somebody waits for ever.
const STEPS: usize = 10_000;
/// Executions for each fault of a sweep, at most.
const SWEPT: usize = 2_000;
/// Words of a CPU's stack.
const STACK: usize = 0x8000;

type Work<S> = Arc<dyn Fn(&'static Mm, S) + Send + Sync>;

/// What is wrong on purpose.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Fault {
    /// Nothing.
    Nothing,
    /// A step of the core is left out, by its name.
    Broken(Rule),
    /// Orderings are taken out, or fences: by the core's file and a piece of the line, which stands there once.
    Without(Vec<Place>),
    /// An interrupt arrives before what its sender did before.
    WeakInterrupts,
}

impl Fault {
    /// The ordering in the only line of this file of the core's that has `code` is taken out.
    pub fn without(file: &str, code: &str) -> Fault {
        Fault::Without(vec![Place::of(file, code, code)])
    }

    /// The first full fence behind the only line that has `from` is taken out.
    pub fn without_fence(file: &str, from: &str) -> Fault {
        Fault::Without(vec![Place::of(file, from, "full_fence(")])
    }
}

/// What a check has done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Checked {
    /// Executions that were played.
    pub executions: usize,
    /// Whether those are all, up to the bound on preemptions.
    pub all: bool,
    /// Places of the core that ordered anything in them.
    pub places: Vec<(Place, &'static str)>,
}

/// A case. `S` is what preparing it gives to the CPUs.
pub struct Model<S> {
    setup: Setup,
    config: Config,
    prepare: Arc<dyn Fn(&'static Mm) -> S + Send + Sync>,
    cpus: Vec<Work<S>>,
    after: Option<Work<S>>,
    bound: Option<usize>,
    most: usize,
}

impl<S: Copy + Send + Sync + 'static> Model<S> {
    /// A case on such a machine. `prepare` runs once, as CPU 0, and every execution begins with what it leaves.
    pub fn new(
        setup: Setup,
        config: Config,
        prepare: impl Fn(&'static Mm) -> S + Send + Sync + 'static,
    ) -> Self {
        let (cpus, after, bound, most) = (Vec::new(), None, None, 200_000);
        Model { setup, config, prepare: Arc::new(prepare), cpus, after, bound, most }
    }

    /// What the next CPU does, from number 0 on.
    pub fn cpu(mut self, work: impl Fn(&'static Mm, S) + Send + Sync + 'static) -> Self {
        self.cpus.push(Arc::new(work));
        self
    }

    /// What must be true when all CPUs are done.
    pub fn after(mut self, work: impl Fn(&'static Mm, S) + Send + Sync + 'static) -> Self {
        self.after = Some(Arc::new(work));
        self
    }

    /// Only orders in which at most so many CPUs are stopped where they could go on.
    pub fn bound(mut self, preemptions: usize) -> Self {
        self.bound = Some(preemptions);
        self
    }

    /// At most about so many executions.
    pub fn most(mut self, executions: usize) -> Self {
        self.most = executions;
        self
    }

    /// Plays it with a fault.
    ///
    /// # Errors
    /// What went wrong in an execution.
    pub fn play(&self, fault: &Fault) -> Result<Checked, String> {
        let machine = Machine::new(self.setup);
        // SAFETY: each machine has memory of its own, and one manager.
        let mm = unsafe { Manager::new(machine, &Machine::regions(), self.config) };
        let mm = mm.expect("a configuration that works");
        let mm: &'static Mm = Box::leak(Box::new(mm));
        machine.serve(mm);
        let state = (self.prepare)(mm);
        machine.save();
        machine.ends_together.set(self.after.is_some());
        match fault {
            Fault::Nothing => {}
            Fault::Broken(rule) => machine.broken.set(Some(*rule)),
            Fault::Without(places) => machine.words.take_out(places),
            Fault::WeakInterrupts => machine.weak_interrupts.set(true),
        }
        machine.words.tells.set(std::env::var_os("QUIETMM_LOOM_TELL").is_some());
        for round in 0..ROUNDS {
            let played = Arc::new(AtomicUsize::new(0));
            let count = played.clone();
            let (cpus, after) = (self.cpus.clone(), self.after.clone());
            let mut loom = loom::model::Builder::new();
            loom.max_branches = STEPS;
            loom.preemption_bound = self.bound;
            loom.max_permutations = Some(self.most);
            loom.checkpoint_interval = 1000;
            let execution = move || {
                let bottom = 0;
                begin_stack(&bottom);
                let first = count.fetch_add(1, Ordering::Relaxed) == 0;
                machine.begin(cpus.len(), first && round > 0);
                machine.words.told();
                let spawn = |(n, work): (usize, &Work<S>)| {
                    let work = work.clone();
                    let run = move || {
                        let bottom = 0;
                        begin_stack(&bottom);
                        machine.become_cpu(n as u16);
                        work(mm, state);
                        machine.idle();
                    };
                    let thread = loom::thread::Builder::new().stack_size(STACK).spawn(run);
                    drop(thread.expect("a thread of the model"));
                };
                cpus.iter().enumerate().for_each(spawn);
                machine.wait_for_end();
                if let Some(after) = &after {
                    after(mm, state);
                }
                machine.stop();
                assert!(!machine.meets_new(), "a round that finds words");
            };
            let ended = catch_unwind(AssertUnwindSafe(|| loom.check(execution)));
            machine.stop();
            if machine.found_new() {
                continue;
            }
            if ended.is_err() {
                machine.words.told().iter().for_each(|line| println!("  {line}"));
            }
            let executions = played.load(Ordering::Relaxed);
            return match ended {
                Ok(()) => Ok(Checked {
                    executions,
                    all: executions + 1 < self.most,
                    places: machine.words.places(),
                }),
                Err(payload) => Err(payload
                    .downcast::<String>()
                    .map(|said| *said)
                    .or_else(|payload| payload.downcast::<&str>().map(|said| said.to_string()))
                    .unwrap_or_else(|_| "it panicked".to_string())),
            };
        }
        Err(format!("after {ROUNDS} rounds there are still new words"))
    }

    /// All orders of it go well.
    ///
    /// # Panics
    /// If one does not, or there are more than the model may play.
    pub fn holds(&self) {
        let began = std::time::Instant::now();
        let checked = self.play(&Fault::Nothing).unwrap_or_else(|said| panic!("{said}"));
        print!("{:.1} s ", began.elapsed().as_secs_f64());
        println!("{} executions, {}", checked.executions, if checked.all { "all" } else { "not all" });
        assert!(checked.all, "there are more executions than it may play");
    }

    /// Takes out each ordering and each fence that this case meets, one at a time, and prints which of them it misses: for who
    /// wants to know what the cases are worth.
    ///
    /// # Panics
    /// If it does not even hold as it is.
    pub fn sweep(mut self, name: &str) {
        self.most = self.most.min(SWEPT);
        let checked = self.play(&Fault::Nothing).unwrap_or_else(|said| panic!("{said}"));
        println!(
            "{name}: {} executions, {}",
            checked.executions,
            if checked.all { "all" } else { "not all" }
        );
        for (place, what) in checked.places {
            let seen = self.play(&Fault::Without(vec![place])).is_err();
            let seen = if seen { "seen" } else { "not seen" };
            println!("{}:{}\t{what}\t{seen}\t{name}", place.file, place.line);
        }
    }

    /// With this fault some order of it goes wrong.
    ///
    /// # Panics
    /// If none does.
    pub fn fails(&self, fault: Fault) {
        match self.play(&fault) {
            Ok(checked) => panic!("{fault:?} was not seen in {} executions", checked.executions),
            Err(said) => println!("{fault:?}: {}", said.lines().next().unwrap_or_default()),
        }
    }
}
