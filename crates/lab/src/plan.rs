//! What was asked for, held against what exists: a [`Plan`] can be run.

use quietmm_sim::machine::Machine;
use quietmm_sim::{Policy, Rule, RunSpec, Workload};

use crate::cli::Common;
use crate::ending::Failure;
use crate::near;
use crate::recorded::{self, Recorded};

/// Which command the plan came from: it stands in the line that repeats it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// One policy, every counter.
    Run,
    /// Policies side by side.
    Compare,
}

/// One workload under some policies, with some seeds.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Which command asked.
    pub form: Form,
    /// The work.
    pub workload: Workload,
    /// The machine, with `--cpus` and `--set` applied.
    pub machine: Machine,
    /// What the machine was called on the command line.
    pub machine_name: String,
    /// The policies; the first is the baseline.
    pub policies: Vec<Policy>,
    /// Short names of the policies, by what differs.
    pub names: Vec<String>,
    /// Memory and work are divided by it.
    pub scale: u32,
    /// The seed of the first run.
    pub seed: u64,
    /// How many seeds each policy runs with.
    pub runs: u32,
    /// The rule that is broken.
    pub broken: Option<Rule>,
    /// What the workload replays.
    pub trace: Option<Recorded>,
    /// How many threads work, where the workload lets one choose.
    pub threads: Option<u32>,
    /// How much other work there is, where the workload lets one choose.
    pub parts: Option<u32>,
    /// Frames by which the work is sized, if not the machine's.
    pub work: Option<u64>,
    /// Whether to say where time went. Changes no figure.
    pub profile: bool,
    /// `--cpus`, for the line that repeats the plan.
    pub cpus: Option<u32>,
    /// `--set`, for the line that repeats the plan.
    pub sets: Vec<(String, String)>,
}

impl Plan {
    /// How many runs the plan has: every policy with every seed.
    pub fn count(&self) -> usize {
        self.policies.len() * self.runs as usize
    }

    /// The seed of the `nth` run of a policy.
    pub fn seed_of(&self, nth: usize) -> u64 {
        self.seed.wrapping_add(nth as u64)
    }

    /// The run with this index: all seeds of the first policy, then of the second, and so on.
    pub fn spec(&self, index: usize) -> RunSpec {
        let runs = self.runs as usize;
        RunSpec {
            workload: self.workload,
            machine: self.machine.clone(),
            policy: self.policies[index / runs],
            scale: self.scale,
            seed: self.seed_of(index % runs),
            broken: self.broken,
            trace: self.trace.as_ref().map(|trace| trace.bytes.clone()),
            threads: self.threads,
            parts: self.parts,
            work: self.work,
            profile: self.profile,
        }
    }

    /// The command line that repeats this plan, defaults spelled out.
    pub fn command(&self) -> String {
        let policies: Vec<String> = self.policies.iter().map(Policy::to_string).collect();
        let mut words = vec!["quietmm".to_string()];
        let mut flag = |name: &str, value: &str| words.extend([name.to_string(), quoted(value)]);
        match self.form {
            Form::Run => flag("run", self.workload.name()),
            Form::Compare => flag("compare", self.workload.name()),
        }
        flag("--machine", &self.machine_name);
        if let Some(cpus) = self.cpus {
            flag("--cpus", &cpus.to_string());
        }
        match self.form {
            Form::Run => flag("--policy", &policies.concat()),
            Form::Compare => flag("--policies", &policies.join(",")),
        }
        for (key, value) in &self.sets {
            flag("--set", &format!("{key}={value}"));
        }
        if let Some(trace) = &self.trace {
            flag("--trace", &trace.name);
        }
        if let Some(threads) = self.threads {
            flag("--threads", &threads.to_string());
        }
        if let Some(parts) = self.parts {
            flag("--parts", &parts.to_string());
        }
        flag("--scale", &self.scale.to_string());
        flag("--seed", &self.seed.to_string());
        if self.runs > 1 {
            flag("--runs", &self.runs.to_string());
        }
        if let Some(rule) = self.broken {
            flag("--break", rule.name());
        }
        words.join(" ")
    }
}

/// Plans for all `workloads`, or what is wrong with the first thing that does not exist.
pub fn plans(
    form: Form,
    workloads: &[String],
    policies: &[String],
    common: &Common,
) -> Result<Vec<Plan>, Failure> {
    let workloads = workloads.iter().map(|name| workload(name)).collect::<Result<Vec<_>, _>>()?;
    let policies = policies.iter().map(|text| policy(text)).collect::<Result<Vec<_>, _>>()?;
    let broken = common.broken.as_deref().map(rule).transpose()?;
    if common.seed.checked_add(u64::from(common.runs) - 1).is_none() {
        return Err(Failure::Input(format!(
            "--seed {} leaves no room for {} seeds",
            common.seed, common.runs
        )));
    }
    if common.trace.is_some() && !workloads.iter().any(|workload| workload.needs_trace()) {
        return Err(Failure::Input("--trace: only the workload trace replays one".to_string()));
    }
    for workload in &workloads {
        check_threads(*workload, common.threads)?;
        check_parts(*workload, common.parts)?;
    }
    let short = match form {
        Form::Run => policies.iter().map(Policy::to_string).collect(),
        Form::Compare => names(&policies),
    };
    workloads
        .into_iter()
        .map(|workload| {
            let machine_name =
                common.machine.clone().unwrap_or_else(|| workload.default_machine().to_string());
            let machine = machine(&machine_name, common)?;
            if let Some(threads) = common.threads.filter(|&threads| threads > machine.cpus) {
                let cpus = machine.cpus;
                let wrong = format!("--threads {threads}: {machine_name} has {cpus} CPUs; 1 to {cpus}");
                return Err(Failure::Input(wrong));
            }
            let trace =
                workload.needs_trace().then(|| recorded::find(common.trace.as_deref())).transpose()?;
            let own_scale =
                if trace.as_ref().is_some_and(Recorded::has_threads) { 1 } else { workload.default_scale() };
            Ok(Plan {
                form,
                workload,
                scale: common.scale.unwrap_or_else(|| default_scale(own_scale, &machine)),
                machine,
                machine_name,
                policies: policies.clone(),
                names: short.clone(),
                seed: common.seed,
                runs: common.runs,
                broken,
                trace,
                threads: common.threads,
                parts: common.parts,
                work: None,
                profile: common.profile,
                cpus: common.cpus,
                sets: common.sets.clone(),
            })
        })
        .collect()
}

/// Whether the workload lets one choose how many threads it has, if one does.
pub fn check_threads(workload: Workload, threads: Option<u32>) -> Result<(), Failure> {
    if threads.is_none() || workload.takes_threads() {
        return Ok(());
    }
    let name = workload.name();
    Err(Failure::Input(format!(
        "--threads: {name} has the threads that it has; only vmap-touch lets you choose"
    )))
}

/// Whether the workload has this ratio of other work.
fn check_parts(workload: Workload, parts: Option<u32>) -> Result<(), Failure> {
    let Some(parts) = parts.filter(|parts| !workload.parts().contains(parts)) else { return Ok(()) };
    let name = workload.name();
    let wrong = if workload.parts().is_empty() {
        format!("--parts: {name} has no other work to choose; only dir-buffers has")
    } else {
        let all: Vec<String> = workload.parts().iter().map(u32::to_string).collect();
        format!("--parts {parts}: {name} has {}", all.join(", "))
    };
    Err(Failure::Input(wrong))
}

/// Memory of a run whose scale nobody chose, at most: some minutes of the host's time.
const MOST_MEMORY: u64 = 4 << 30;

/// The workload's own scale, unless the machine is so large that it would run for hours.
fn default_scale(own: u32, machine: &Machine) -> u32 {
    let fits = u32::try_from(machine.memory.div_ceil(MOST_MEMORY)).unwrap_or(u32::MAX);
    own.max(fits)
}

/// A machine by name or file.
pub fn load(name: &str) -> Result<Machine, Failure> {
    Machine::load(name).map_err(|error| Failure::Input(error.to_string()))
}

fn machine(name: &str, common: &Common) -> Result<Machine, Failure> {
    let mut machine = load(name)?;
    if let Some(cpus) = common.cpus {
        machine =
            machine.with_cpus(cpus).map_err(|error| Failure::Input(format!("--cpus {cpus}: {error}")))?;
    }
    for (key, value) in &common.sets {
        machine.set(key, value).map_err(|error| Failure::Input(error.to_string()))?;
    }
    Ok(machine)
}

/// A workload by its name.
pub fn workload(name: &str) -> Result<Workload, Failure> {
    Workload::parse(name).ok_or_else(|| {
        Failure::Input(near::unknown("workload", name, Workload::ALL.iter().map(|workload| workload.name())))
    })
}

/// Short names for policies, by what differs.
pub fn names(policies: &[Policy]) -> Vec<String> {
    let mut names = differing(policies);
    // Policies that differ in nothing are called by what they are.
    for (name, policy) in names.iter_mut().zip(policies) {
        if name.is_empty() {
            *name = policy.to_string();
        }
    }
    names
}

/// Their choices for the mechanisms in which they differ.
fn differing(policies: &[Policy]) -> Vec<String> {
    let choices: Vec<_> = policies.iter().map(Policy::choices).collect();
    let differs = |i: &usize| choices.iter().any(|c| c[*i] != choices[0][*i]);
    let columns: Vec<usize> = (0..Policy::mechanisms().len()).filter(differs).collect();
    let name = |c: &[&str]| columns.iter().map(|&i| c[i]).collect::<Vec<_>>().join("+");
    choices.iter().map(|c| name(c)).collect()
}

/// A policy as the command line has it.
pub fn policy(text: &str) -> Result<Policy, Failure> {
    Policy::parse(text).map_err(|error| Failure::Input(error.to_string()))
}

/// A rule by its name.
pub fn rule(name: &str) -> Result<Rule, Failure> {
    Rule::parse(name)
        .ok_or_else(|| Failure::Input(near::unknown("rule", name, Rule::ALL.iter().map(|rule| rule.name()))))
}

/// A word as a POSIX shell reads it back.
pub fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=+,./:@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_string()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_repeating_line_survives_a_shell() {
        assert_eq!(quoted("linux+unmap=per-page,linux"), "linux+unmap=per-page,linux");
        assert_eq!(quoted("my machine.toml"), "'my machine.toml'");
        assert_eq!(quoted("it's"), r"'it'\''s'");
    }
}
