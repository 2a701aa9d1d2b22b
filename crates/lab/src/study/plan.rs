//! What is run, and where: workloads with policies and seeds.

use std::sync::Arc;

use quietmm_sim::{Rule, Workload};

use crate::cli::flags::On;
use crate::process::ending::Failure;
use crate::process::progress::Lane;
use crate::study::ask::Form;
use crate::study::command::CommandLine;
use crate::study::named::Named;
use crate::study::result::{Place, Run};

/// What is run: a plan for each workload on each machine, in this order.
pub struct Study {
    /// The plans.
    pub plans: Vec<Plan>,
    /// How many host threads run side by side, if that was said.
    pub jobs: Option<u16>,
}

/// One workload on one machine under some policies, with some seeds.
#[derive(Clone)]
pub struct Plan {
    /// Which command asked.
    pub form: Form,
    /// The work.
    pub workload: Workload,
    /// The policies; the first is the baseline.
    pub policies: Vec<Named>,
    /// The seed of the first run of each policy.
    pub seed: u64,
    /// How many seeds each policy runs with.
    pub runs: u32,
    /// The rule that is broken.
    pub broken: Option<Rule>,
    /// How many threads work, where the workload lets one choose.
    pub threads: Option<u32>,
    /// Where it runs.
    pub backend: Arc<dyn Backend>,
}

/// Where a plan runs. A new one (a recording that is explained, a checker's scenario) is a file in `backend/`.
pub trait Backend: Send + Sync {
    /// What there is to say of it: in the JSON, and where flags are held against it.
    fn place(&self) -> Place;

    /// Flags of the command line that repeats a plan.
    fn flags(&self, line: &mut CommandLine);

    /// Lines that say what it is: a label and a text.
    fn origin(&self) -> Vec<(&'static str, String)>;

    /// What must be there before the first run.
    fn prepare(&self) -> Result<(), Failure> {
        Ok(())
    }

    /// Whether the host can take several runs at once.
    fn side_by_side(&self) -> bool;

    /// One run. `None` after Ctrl-C.
    fn run(&self, plan: &Plan, policy: &Named, seed: u64, lane: &Lane<'_>) -> Result<Option<Run>, Failure>;

    /// What to do if memory was never short although `plan` is about that; `None` if it need not be.
    fn when_never_short(&self, _plan: &Plan) -> Option<String> {
        None
    }
}

impl Plan {
    /// How many runs there are: every policy with every seed.
    pub fn count(&self) -> usize {
        self.policies.len() * self.runs as usize
    }

    /// A failed run, with what was running.
    pub fn failed(&self, policy: &Named, seed: u64, why: impl std::fmt::Display) -> Failure {
        Failure::Run(format!("{} with {}, seed {seed}: {why}", self.workload.name(), policy.name))
    }

    /// The seed of the `nth` run of a policy.
    pub fn seed_of(&self, nth: u32) -> u64 {
        self.seed.wrapping_add(nth.into())
    }

    /// The command line that repeats this plan: names as they were typed, defaults spelled out.
    pub fn command(&self) -> String {
        let place = self.backend.place();
        let policies: Vec<&str> = self.policies.iter().map(|named| &named.name[..]).collect();
        let (command, flag) = match self.form {
            Form::Run => ("run", "--policy"),
            Form::Compare => ("compare", "--policies"),
            Form::Boot => ("boot", "--policies"),
        };
        let mut line = CommandLine::new(command, self.workload.name());
        if self.form == Form::Compare && place.on != On::Sim {
            line.flag("--on", if place.on == On::Both { "both" } else { "metal" });
        }
        line.flag(flag, policies.join(","));
        self.backend.flags(&mut line);
        line.sets(&place.sets);
        line.option("--threads", self.threads);
        line.flag("--seed", self.seed);
        line.option("--runs", Some(self.runs).filter(|&runs| runs > 1));
        line.option("--break", self.broken.map(Rule::name));
        line.to_string()
    }
}
