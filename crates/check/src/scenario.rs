//! A small situation: what is there before, what each CPU does, and what must hold afterwards.

use quietmm::{Architecture, Config, ListLimits, PageNumber, Policy, Rule};

use crate::machine::Setup;
use crate::task::Task;

/// What a CPU does, or what is done before and after.
pub type Script = fn(&Task<'_>);

/// A situation. Scripts start together, one on each CPU from 0 on; CPUs without one only hear interrupts.
#[derive(Clone)]
pub struct Scenario {
    /// Its name on the command line.
    pub name: &'static str,
    /// What is against what, in one line.
    pub about: &'static str,
    /// The machine.
    pub setup: Setup,
    /// What the manager is made with.
    pub config: Config,
    /// Rules that it is there to show, when they are broken.
    pub rules: &'static [Rule],
    /// Known faults of other systems that it repeats, by their numbers in `docs/rules.md`.
    pub pitfalls: &'static [u8],
    /// What happens first, on CPU 0, with nothing interleaved.
    pub before: Script,
    /// What each CPU does.
    pub scripts: Vec<Script>,
    /// What happens when all have ended, on CPU 0. Contents and the core's own account are looked at after it anyway.
    pub after: Script,
    /// The manager must refuse to be made.
    pub refused: bool,
}

impl Scenario {
    /// One of two CPUs under this policy, with no frames on per-CPU lists, no watermarks, and short lists: everything
    /// happens at once, and the core gives way wherever it may.
    ///
    /// # Panics
    /// When the policy has no such name.
    pub fn new(name: &'static str, about: &'static str, policy: &str) -> Scenario {
        let policy = Policy::parse(policy).expect("a policy's name");
        let config = Config {
            page_lists: Some(ListLimits { batch: 1, high: 0 }),
            min_free: Some(0),
            lru_batch: 1,
            scan_batch: 4,
            // Others may run wherever there is a point for it.
            resched_after: 1,
            ..Config::new(policy)
        };
        Scenario {
            name,
            about,
            setup: Setup::default(),
            config,
            rules: &[],
            pitfalls: &[],
            before: |_| (),
            scripts: Vec::new(),
            after: |_| (),
            refused: false,
        }
    }

    /// So many CPUs.
    pub fn cpus(mut self, cpus: u16) -> Self {
        self.setup.cpus = cpus;
        self
    }

    /// The timer of each CPU fires so often.
    pub fn ticks(mut self, ticks: u32) -> Self {
        self.setup.ticks = ticks;
        self
    }

    /// The same on a machine of this architecture.
    pub fn on(mut self, architecture: Architecture) -> Self {
        self.setup.architecture = architecture;
        self
    }

    /// Something else about the machine.
    pub fn machine(mut self, change: fn(&mut Setup)) -> Self {
        change(&mut self.setup);
        self
    }

    /// Something else about the manager.
    pub fn config(mut self, change: fn(&mut Config)) -> Self {
        change(&mut self.config);
        self
    }

    /// Pages that hardware may fetch before it is asked to.
    pub fn watch(mut self, page: u64, pages: u64) -> Self {
        self.setup.watched.extend((page..page + pages).map(PageNumber));
        self
    }

    /// Rules that it shows.
    pub fn shows(mut self, rules: &'static [Rule]) -> Self {
        self.rules = rules;
        self
    }

    /// Faults that it repeats.
    pub fn repeats(mut self, pitfalls: &'static [u8]) -> Self {
        self.pitfalls = pitfalls;
        self
    }

    /// What happens first.
    pub fn before(mut self, script: Script) -> Self {
        self.before = script;
        self
    }

    /// What the next CPU does.
    pub fn cpu(mut self, script: Script) -> Self {
        self.scripts.push(script);
        self
    }

    /// What happens last.
    pub fn after(mut self, script: Script) -> Self {
        self.after = script;
        self
    }
}
