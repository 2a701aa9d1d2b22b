//! What was asked for, held against what exists: what is in a [`Study`] can be run.

use std::borrow::Cow;
use std::sync::Arc;

use quietmm_sim::near::unknown;
use quietmm_sim::{Policy, Rule, Workload};
use serde::Serialize;

use crate::backend::metal::Booted;
use crate::backend::sim::Simulated;
use crate::backend::{Backend, Beside};
use crate::cli::flags::{BootArgs, Common, CompareArgs, MetalArgs, On, RunArgs, SimArgs, WorkArgs};
use crate::process::ending::Failure;
use crate::study::command::CommandLine;

/// What a command line asks for.
pub struct Ask<'a> {
    pub form: Form,
    pub on: On,
    pub workloads: &'a [String],
    pub policies: &'a [String],
    pub cpus: Option<u32>,
    pub sim: Cow<'a, SimArgs>,
    pub metal: Cow<'a, MetalArgs>,
    pub common: &'a Common,
}

/// Which command asked: it stands in the line that repeats it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// One policy, every counter.
    Run,
    /// Policies side by side.
    Compare,
    /// The same, booted.
    Boot,
}

/// A policy, and what it was called.
#[derive(Clone, Debug, Serialize)]
pub struct Named {
    /// As it was typed.
    pub name: String,
    /// What it is.
    #[serde(rename = "choices", serialize_with = "choices")]
    pub policy: Policy,
}

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

impl<'a> Ask<'a> {
    /// `quietmm run`.
    pub fn run(args: &'a RunArgs) -> Ask<'a> {
        Ask {
            form: Form::Run,
            on: On::Sim,
            workloads: std::slice::from_ref(&args.workload),
            policies: std::slice::from_ref(&args.policy),
            cpus: args.sim.machine.cpus,
            sim: Cow::Borrowed(&args.sim),
            metal: Cow::default(),
            common: &args.common,
        }
    }

    /// `quietmm compare`.
    pub fn compare(args: &'a CompareArgs) -> Ask<'a> {
        Ask {
            form: Form::Compare,
            on: args.on,
            workloads: &args.workloads,
            policies: &args.policies,
            cpus: args.sim.machine.cpus,
            sim: Cow::Borrowed(&args.sim),
            metal: Cow::Borrowed(&args.metal),
            common: &args.common,
        }
    }

    /// `quietmm boot`.
    pub fn boot(args: &'a BootArgs) -> Ask<'a> {
        Ask {
            form: Form::Boot,
            on: On::Metal,
            workloads: std::slice::from_ref(&args.workload),
            policies: &args.policies,
            cpus: args.cpus,
            sim: Cow::Owned(SimArgs { timeline: args.timeline.clone(), ..SimArgs::default() }),
            metal: Cow::Borrowed(&args.metal),
            common: &args.common,
        }
    }
}

impl Study {
    /// The plans for what was asked, or what is wrong with the first thing that does not exist.
    pub fn of(ask: &Ask<'_>) -> Result<Study, Failure> {
        let workloads = ask.workloads.iter().map(|name| workload(name)).collect::<Result<Vec<_>, _>>()?;
        let policies = ask.policies.iter().map(|name| named(name)).collect::<Result<Vec<_>, _>>()?;
        let (runs, &WorkArgs { seed, threads, .. }) = (ask.common.runs, &ask.common.work);
        let broken = ask.common.work.broken.as_deref().map(rule).transpose()?;
        let wrong = |why: String| Err(Failure::Input(why));
        if seed.checked_add(u64::from(runs) - 1).is_none() {
            return wrong(format!("--seed {seed} leaves no room for {runs} seeds"));
        }
        if ask.on == On::Sim
            && let Some(flag) = ask.metal.given()
        {
            return wrong(format!("{flag}: only for a machine that boots; with --on metal or both"));
        }
        if ask.on != On::Sim
            && let Some(flag) = ask.sim.only_simulated(ask.on == On::Both)
        {
            let on = if ask.on == On::Both { "both" } else { "metal" };
            return wrong(format!("{flag}: only the simulation has that; not with --on {on}"));
        }
        if ask.sim.machine.trace.is_some() && !workloads.iter().any(|workload| workload.needs_trace()) {
            return wrong("--trace: only the workload trace replays one".to_string());
        }
        let mut plans = Vec::new();
        for &workload in &workloads {
            if threads.is_some() && !workload.takes_threads() {
                let takers = Workload::ALL.iter().filter(|workload| workload.takes_threads());
                let takers: Vec<&str> = takers.map(|workload| workload.name()).collect();
                let (name, takers) = (workload.name(), takers.join(" and "));
                return wrong(format!(
                    "--threads: {name} has the threads that it has; only {takers} let you choose"
                ));
            }
            for backend in backends(ask, workload)? {
                if let Some(threads) = threads.filter(|&threads| threads > backend.place().cpus) {
                    let (machine, cpus) = (backend.place().machine, backend.place().cpus);
                    return wrong(format!("--threads {threads}: {machine} has {cpus} CPUs; 1 to {cpus}"));
                }
                let policies = policies.clone();
                plans.push(Plan { form: ask.form, workload, policies, seed, runs, broken, threads, backend });
            }
        }
        Ok(Study { plans, jobs: ask.sim.machine.jobs })
    }
}

/// Where a workload runs: on each machine that was named, or on its own.
fn backends(ask: &Ask<'_>, workload: Workload) -> Result<Vec<Arc<dyn Backend>>, Failure> {
    let of = |machine: Option<&str>| -> Result<Arc<dyn Backend>, Failure> {
        Ok(match ask.on {
            On::Sim => Arc::new(Simulated::of(ask, workload, machine)?),
            On::Metal => Arc::new(Booted::of(ask, workload)?),
            On::Both => Arc::new(Beside::of(ask, workload, machine)?),
        })
    };
    match &ask.sim.machine.names[..] {
        [] => Ok(vec![of(None)?]),
        machines => machines.iter().map(|machine| of(Some(machine))).collect(),
    }
}

impl Plan {
    /// How many runs there are: every policy with every seed.
    pub fn count(&self) -> usize {
        self.policies.len() * self.runs as usize
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

/// A workload by its name.
pub fn workload(name: &str) -> Result<Workload, Failure> {
    let names = || Workload::ALL.iter().map(|workload| workload.name());
    Workload::parse(name).ok_or_else(|| Failure::Input(unknown("workload", name, names())))
}

/// A rule by its name.
pub fn rule(name: &str) -> Result<Rule, Failure> {
    let names = || Rule::ALL.iter().map(|rule| rule.name());
    Rule::parse(name).ok_or_else(|| Failure::Input(unknown("rule", name, names())))
}

/// A policy as the command line has it.
fn named(text: &str) -> Result<Named, Failure> {
    let policy = Policy::parse(text).map_err(|error| Failure::Input(error.to_string()))?;
    Ok(Named { name: text.to_string(), policy })
}

/// What a policy does, by mechanism.
fn choices<S: serde::Serializer>(policy: &Policy, to: S) -> Result<S::Ok, S::Error> {
    let names = Policy::mechanisms().iter().map(|mechanism| mechanism.name);
    to.collect_map(names.zip(policy.choices()))
}
