//! Runs plans: every policy with every seed, on the host's cores, with results in a fixed order.

use quietmm_sim::{Metric, Report, RunError};

use crate::ending::{Ending, Failure};
use crate::figure::{self, Figure};
use crate::plan::Plan;
use crate::progress::Progress;
use crate::{interrupt, jobs};

/// A plan and what came of it.
pub struct Study {
    /// What was asked.
    pub plan: Plan,
    /// The reports by index of the plan; `None` for runs that were interrupted.
    pub reports: Vec<Option<Report>>,
}

/// One policy's finished runs.
pub struct Column<'a> {
    /// Which of the plan's policies it is.
    pub policy: usize,
    /// Seed and report of each.
    pub runs: Vec<(u64, &'a Report)>,
    /// Over all of them.
    pub figures: Vec<Figure>,
}

impl Column<'_> {
    /// The figure with this key.
    pub fn figure(&self, key: &str) -> Option<&Figure> {
        self.figures.iter().find(|figure| figure.key == key)
    }
}

impl Study {
    /// The policies of which at least one run finished.
    pub fn columns(&self) -> Vec<Column<'_>> {
        let of_policy = |(policy, chunk): (usize, &'_ [Option<Report>])| -> Vec<(u64, usize)> {
            let finished = chunk.iter().enumerate().filter(|(_, report)| report.is_some());
            finished
                .map(|(nth, _)| (self.plan.seed_of(nth), policy * self.plan.runs as usize + nth))
                .collect()
        };
        self.reports
            .chunks(self.plan.runs as usize)
            .enumerate()
            .map(|(policy, chunk)| (policy, of_policy((policy, chunk))))
            .filter(|(_, finished)| !finished.is_empty())
            .map(|(policy, finished)| {
                let runs: Vec<(u64, &Report)> = finished
                    .iter()
                    .filter_map(|(seed, index)| self.reports[*index].as_ref().map(|report| (*seed, report)))
                    .collect();
                let metrics: Vec<&[Metric]> = runs.iter().map(|(_, report)| &report.metrics[..]).collect();
                Column { policy, figures: figure::figures(&metrics), runs }
            })
            .collect()
    }

    /// How many runs finished.
    pub fn finished(&self) -> usize {
        self.reports.iter().flatten().count()
    }

    /// Whether any run is missing.
    pub fn interrupted(&self) -> bool {
        self.finished() < self.reports.len()
    }

    /// What all runs saw that must never be: how often, and what, in words.
    pub fn harm(&self) -> Vec<(u64, &'static str)> {
        let kinds = [
            ("stale_accesses", "stale access", "stale accesses"),
            ("lost_writes", "lost write", "lost writes"),
            ("wrong_contents", "wrong content", "wrong contents"),
        ];
        let count = |key| {
            let metrics = self.reports.iter().flatten().flat_map(|report| &report.metrics);
            let found = metrics.filter(|metric| metric.key == key);
            found.map(|metric| figure::number(metric.value) as u64).sum::<u64>()
        };
        let counted = kinds.map(|(key, one, many)| (count(key), one, many));
        let seen = counted.into_iter().filter(|(count, ..)| *count > 0);
        seen.map(|(count, one, many)| (count, if count == 1 { one } else { many })).collect()
    }

    /// The same in one phrase: `2 stale accesses, 1 lost write`.
    pub fn harm_text(&self) -> String {
        self.harm().iter().map(|(count, what)| format!("{count} {what}")).collect::<Vec<_>>().join(", ")
    }

    /// How the command ends because of this study. With a broken rule harm is what was asked for.
    pub fn ending(&self) -> Ending {
        if self.interrupted() {
            Ending::Interrupted
        } else if !self.harm().is_empty() && self.plan.broken.is_none() {
            Ending::Stale
        } else {
            Ending::Good
        }
    }
}

/// Runs all plans side by side on `workers` host threads.
pub fn measure(plans: Vec<Plan>, workers: usize) -> Result<Vec<Study>, Failure> {
    let runs: Vec<(&Plan, usize)> =
        plans.iter().flat_map(|plan| (0..plan.count()).map(move |index| (plan, index))).collect();
    let progress = Progress::new(runs.len());
    let job = |nth: usize| {
        let (plan, index) = runs[nth];
        match quietmm_sim::run(&plan.spec(index), &progress.lane(nth)) {
            Ok(report) => Ok(Some(report)),
            Err(RunError::Cancelled) => Ok(None),
            Err(error) => Err(failed(plan, index, &error)),
        }
    };
    let reports = jobs::in_order(runs.len(), workers, interrupt::requested, job);
    progress.clear();
    let mut reports = reports?;
    if !reports.is_empty() && reports.iter().all(Option::is_none) {
        return Err(Failure::Interrupted);
    }
    Ok(plans
        .into_iter()
        .map(|plan| {
            let rest = reports.split_off(plan.count());
            Study { reports: std::mem::replace(&mut reports, rest), plan }
        })
        .collect())
}

/// A run that failed, with what was running.
fn failed(plan: &Plan, index: usize, error: &RunError) -> Failure {
    if let RunError::Refused(why) = error {
        return Failure::Input(why.clone());
    }
    let spec = plan.spec(index);
    let (workload, policy, seed) = (spec.workload.name(), spec.policy, spec.seed);
    Failure::Run(format!("{workload} with {policy}, seed {seed}: {error}"))
}
