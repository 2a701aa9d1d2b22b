//! Runs a study: every plan with every policy and seed, on the host's cores, with results in a fixed order.

use crate::process::ending::Failure;
use crate::process::progress::{Lane, Progress};
use crate::process::{interrupt, jobs};
use crate::show::verdict;
use crate::study::{Comparison, Plan, Run, Study};

/// One run of a plan: the policy and the seed, by their numbers.
#[derive(Clone, Copy)]
struct Cell<'a> {
    plan: &'a Plan,
    column: usize,
    seed: u32,
}

/// Runs everything, several at a time where the backends allow it.
pub fn measure(study: &Study) -> Result<Vec<Comparison>, Failure> {
    interrupt::listen();
    study.plans.iter().try_for_each(|plan| plan.backend.prepare())?;
    let cells: Vec<Cell<'_>> = study.plans.iter().flat_map(cells).collect();
    let side_by_side = study.plans.iter().all(|plan| plan.backend.side_by_side());
    let workers = if side_by_side { jobs::workers(study.jobs) } else { 1 };
    let progress = Progress::new(cells.len(), workers);
    let job = |nth: usize| {
        let Cell { plan, column, seed } = cells[nth];
        let lane = progress.lane(nth, &plan.policies[column].name);
        let run = one(plan, column, plan.seed_of(seed), &lane)?;
        // One that was stopped stays where it was.
        run.iter().for_each(|_| lane.done());
        Ok(run)
    };
    let runs = jobs::in_order(cells.len(), workers, interrupt::requested, job);
    progress.clear();
    let mut runs: Vec<Option<Run>> = runs?;
    if !runs.is_empty() && runs.iter().all(Option::is_none) {
        return Err(Failure::Interrupted { percent: progress.percent() });
    }
    let of_plan = |plan: &Plan| {
        let rest = runs.split_off(plan.count());
        comparison(plan, std::mem::replace(&mut runs, rest).into_iter().flatten().collect())
    };
    Ok(study.plans.iter().map(of_plan).collect())
}

/// One run, with the policy of this number and this seed. `None` after Ctrl-C.
pub fn one(plan: &Plan, column: usize, seed: u64, lane: &Lane<'_>) -> Result<Option<Run>, Failure> {
    let policy = &plan.policies[column];
    let run = plan.backend.run(plan, policy, seed, lane)?;
    Ok(run.map(|run| Run { policy: policy.name.clone(), seed, column, ..run }))
}

/// All policies with the first seed, then with the second: what has finished can be compared.
fn cells(plan: &Plan) -> impl Iterator<Item = Cell<'_>> {
    (0..plan.runs)
        .flat_map(move |seed| (0..plan.policies.len()).map(move |column| Cell { plan, column, seed }))
}

/// What came of a plan, from the runs that finished.
pub fn comparison(plan: &Plan, mut runs: Vec<Run>) -> Comparison {
    runs.sort_by_key(|run| run.column);
    let mut notes: Vec<String> = Vec::new();
    for note in runs.iter().flat_map(|run| &run.notes) {
        if !notes.contains(note) {
            notes.push(note.clone());
        }
    }
    let mut place = plan.backend.place();
    place.threads = plan.threads;
    let mut comparison = Comparison {
        workload: plan.workload.name(),
        place,
        seed: plan.seed,
        interrupted: runs.len() < plan.count(),
        runs,
        summary: Vec::new(),
        policies: plan.policies.clone(),
        broken: plan.broken,
        verdict: Vec::new(),
        notes,
        command: plan.command(),
        asked: plan.count(),
        origin: origin(plan),
        short: plan.backend.when_never_short(plan),
    };
    if plan.runs > 1 {
        comparison.summary = comparison.summaries();
        if comparison.interrupted {
            let (seeds, last) = (comparison.compared().len(), plan.seed_of(plan.runs - 1));
            let said = format!(
                "{} to {last} were asked for; mean ± standard deviation of {seeds} that all have",
                plan.seed
            );
            comparison
                .origin
                .iter_mut()
                .filter(|(name, _)| *name == "seeds")
                .for_each(|(_, of)| of.clone_from(&said));
        }
    }
    comparison.verdict = verdict::verdict(&comparison);
    comparison
}

/// Where the figures are from.
fn origin(plan: &Plan) -> Vec<(&'static str, String)> {
    let mut lines = vec![("workload", format!("{}: {}", plan.workload.name(), plan.workload.about()))];
    lines.extend(plan.backend.origin());
    lines.extend(plan.backend.place().sets.iter().map(|(key, value)| ("set", format!("{key} = {value}"))));
    lines.extend(plan.policies.iter().filter_map(|named| {
        let canonical = named.policy.to_string();
        // In words that a line can end between.
        let words = || canonical.replace('+', " + ");
        (canonical != named.name).then(|| ("policy", format!("{} is {}", named.name, words())))
    }));
    lines.push(match plan.runs {
        1 => ("seed", plan.seed.to_string()),
        runs => {
            let last = plan.seed_of(runs - 1);
            ("seeds", format!("{} to {last}; mean ± standard deviation of {runs} runs", plan.seed))
        }
    });
    lines.extend(plan.broken.map(|rule| ("broken", format!("{}: {}", rule.name(), rule.about()))));
    lines
}
