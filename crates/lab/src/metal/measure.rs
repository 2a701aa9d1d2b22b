//! Boots: one for each policy and seed, one after another, and what came of them.

use std::path::Path;

use quietmm_emulator::{EMULATOR, End, Outcome};
use quietmm_sim::Metric;

use crate::ending::{Ending, Failure};
use crate::figure;
use crate::interrupt;
use crate::measure::Column;
use crate::metal::figures::figures;
use crate::metal::lines::{self, Last, Printed};
use crate::metal::plan::Plan;
use crate::metal::progress::Progress;

/// More of a foreign text is not repeated, in characters.
const MOST_QUOTED: usize = 200;

/// A plan and what came of it.
pub struct Study {
    /// What was asked.
    pub plan: Plan,
    /// By index of the plan; `None` where Ctrl-C came first.
    pub boots: Vec<Option<Boot>>,
}

/// One boot that came to something.
#[derive(Clone, Debug)]
pub struct Boot {
    /// What it printed.
    pub printed: Printed,
    /// Its figures.
    pub metrics: Vec<Metric>,
    /// How it ended, where a rule was broken and it did not end well.
    pub harm: Option<String>,
    /// Seconds of the host's time.
    pub host_s: f64,
}

impl Study {
    /// The policies of which at least one boot finished, with their figures.
    pub fn columns(&self) -> Vec<Column<'_>> {
        let policies = self.boots.chunks(self.plan.runs as usize).enumerate();
        policies
            .filter(|(_, boots)| boots.iter().any(Option::is_some))
            .map(|(policy, boots)| {
                let metrics: Vec<&[Metric]> = boots.iter().flatten().map(|boot| &boot.metrics[..]).collect();
                Column { policy, runs: Vec::new(), figures: figure::figures(&metrics) }
            })
            .collect()
    }

    /// The finished boots of a policy.
    pub fn of(&self, policy: usize) -> impl Iterator<Item = (u64, &Boot)> {
        let all = self.boots.iter().enumerate().filter(move |(index, _)| self.plan.of(*index).0 == policy);
        all.filter_map(|(index, boot)| Some((self.plan.of(index).1, boot.as_ref()?)))
    }

    /// How many boots finished.
    pub fn finished(&self) -> usize {
        self.boots.iter().flatten().count()
    }

    /// Whether any boot is missing.
    pub fn interrupted(&self) -> bool {
        self.finished() < self.boots.len()
    }

    /// How the command ends because of this study.
    pub fn ending(&self) -> Ending {
        if self.interrupted() { Ending::Interrupted } else { Ending::Good }
    }
}

/// Boots everything.
pub fn measure(plans: Vec<Plan>, image: &Path) -> Result<Vec<Study>, Failure> {
    let all: usize = plans.iter().map(Plan::count).sum();
    let progress = Progress::new("");
    let mut nth = 0;
    let mut studies = Vec::new();
    for plan in plans {
        let mut boots = Vec::new();
        for index in 0..plan.count() {
            nth += 1;
            progress.says(format!("boot {nth} of {all}: {}", plan.names[plan.of(index).0]));
            let booted = boot(&plan, index, image, &progress);
            if booted.is_err() {
                progress.clear();
            }
            boots.push(booted?);
        }
        studies.push(Study { plan, boots });
    }
    progress.clear();
    if studies.iter().all(|study| study.finished() == 0) {
        return Err(Failure::Interrupted);
    }
    Ok(studies)
}

fn boot(plan: &Plan, index: usize, image: &Path, progress: &Progress) -> Result<Option<Boot>, Failure> {
    if interrupt::requested() {
        return Ok(None);
    }
    let stop = || {
        progress.look();
        interrupt::requested()
    };
    let running = interrupt::hold();
    let outcome = plan.machine.boot(image, &plan.words(index), plan.limit, &stop);
    drop(running);
    let outcome = outcome.map_err(|error| Failure::Run(error.to_string()))?;
    let printed = lines::read(&outcome.printed);
    let (policy, seed) = plan.of(index);
    let host_s = outcome.took.as_secs_f64();
    let metrics = figures(&printed, plan.machine.accel);
    let wrong = match judge(plan, index, &outcome, &printed) {
        Verdict::Stopped => return Ok(None),
        Verdict::Well => None,
        Verdict::Refused(why) => return Err(Failure::Input(format!("{}: {why}", plan.workload.name()))),
        Verdict::Wrong(why) if plan.broken.is_some() => Some(why),
        Verdict::Wrong(why) | Verdict::Never(why) => {
            let (workload, policy) = (plan.workload.name(), plan.policies[policy]);
            return Err(Failure::Run(format!("{workload} with {policy}, seed {seed}: {why}")));
        }
    };
    Ok(Some(Boot { printed, metrics, harm: wrong, host_s }))
}

/// What is to be thought of a boot.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Well,
    /// Ctrl-C.
    Stopped,
    /// What was asked for does not go on this machine.
    Refused(String),
    /// It did not go well: what one wants to see where a rule was broken.
    Wrong(String),
    /// It says nothing of the core, broken or not.
    Never(String),
}

fn judge(plan: &Plan, index: usize, outcome: &Outcome, printed: &Printed) -> Verdict {
    let why = |text: &str| quoted(text).unwrap_or_else(|| "it does not say why".to_string());
    match (outcome.end, &printed.last) {
        (End::Stopped, _) => Verdict::Stopped,
        (End::Well, Some(Last::Well)) => match foreign(plan, index, printed) {
            None => Verdict::Well,
            Some(what) => Verdict::Never(what),
        },
        (End::Failed, Some(Last::Failed(text))) => Verdict::Wrong(format!("the run failed: {}", why(text))),
        (End::Failed, Some(Last::Refused(text))) => Verdict::Refused(why(text)),
        (End::Usage, Some(Last::Usage(text))) => {
            Verdict::Never(format!("the image does not know what was asked of it: {}", why(text)))
        }
        (End::Panicked, Some(Last::Panicked { text, cpu })) => {
            let cpu = cpu.map_or_else(String::new, |cpu| format!(" on CPU {cpu}"));
            Verdict::Wrong(format!("the machine panicked{cpu}: {}", why(text)))
        }
        (End::Late, _) => {
            let seconds = plan.limit.as_secs();
            let said = saying(outcome, printed);
            Verdict::Wrong(format!(
                "the machine had not ended after {seconds} s and was killed (--timeout){said}"
            ))
        }
        (End::Other(code), _) => {
            let code = code.map_or_else(|| "by a signal".to_string(), |code| format!("with code {code}"));
            Verdict::Never(format!("{EMULATOR} ended {code}{}", saying(outcome, printed)))
        }
        (End::Well | End::Failed | End::Usage | End::Panicked, _) => Verdict::Never(format!(
            "the machine ended without a word on how; is this the image of this version?{}",
            saying(outcome, printed)
        )),
    }
}

/// What shows that something else ran than what was asked for.
fn foreign(plan: &Plan, index: usize, printed: &Printed) -> Option<String> {
    let Some(head) = &printed.head else { return Some("the image does not say what it ran".to_string()) };
    let policy = plan.policies[plan.of(index).0].to_string();
    let asked = (plan.workload.name(), policy.as_str(), u64::from(plan.machine.cpus));
    let ran = (head.workload.as_str(), head.policy.as_str(), head.cpus);
    if asked != ran {
        let (workload, policy, cpus) = ran;
        return Some(format!(
            "the image ran {workload} with {policy} on {cpus} CPUs, which is not what was asked for"
        ));
    }
    printed.counters.is_empty().then(|| "the image printed no counters".to_string())
}

/// The emulator's complaint, or else the first line that makes no sense.
fn saying(outcome: &Outcome, printed: &Printed) -> String {
    let complaint = outcome.complained.lines().map(str::trim).find(|line| !line.is_empty());
    let strange = || printed.strange.as_deref().map(|line| format!("it printed '{line}'"));
    complaint
        .map(str::to_string)
        .or_else(strange)
        .and_then(|text| quoted(&text))
        .map_or_else(String::new, |text| format!(": {text}"))
}

/// A text of others, made fit for one line of a terminal; nothing if it is empty.
fn quoted(text: &str) -> Option<String> {
    let clean: String =
        text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(MOST_QUOTED).collect();
    Some(clean.trim().to_string()).filter(|text| !text.is_empty())
}
