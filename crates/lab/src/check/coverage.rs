//! The sound core under every scenario: what was tried, and that nothing broke.

use std::path::Path;
use std::sync::Mutex;
use std::time::Instant;

use quietmm_check::explore::{Budget, Counterexample, Search, Tally, Way};
use quietmm_check::scenario::Scenario;
use quietmm_sim::Watch;
use serde_json::{Value as Json, json};

use super::args::CheckArgs;
use super::files::Files;
use super::{budget, page, rate, several, story};
use crate::process::ending::{Ending, Failure};
use crate::process::output::Output;
use crate::process::progress::Progress;
use crate::process::{interrupt, jobs};
use crate::report::value::count;
use crate::show::json::pretty;
use crate::show::table::grid;
use crate::show::wrap::hanging;

/// What one scenario was put through.
#[derive(Clone, Default)]
struct Covered {
    tally: Tally,
    /// The exhaustive way came to its end.
    complete: bool,
    found: Option<Counterexample>,
}

/// `quietmm check`, with `--deep` or without.
pub fn coverage(
    args: &CheckArgs,
    scenarios: &[Scenario],
    files: &Files,
    output: &mut Output,
) -> Result<Ending, Failure> {
    interrupt::listen();
    let since = Instant::now();
    let mut all = vec![Covered::default(); scenarios.len()];
    let mut budget = budget(args);
    let mut round = 0;
    loop {
        explore(args, scenarios, &budget, args.seed.wrapping_add(round), &mut all);
        let broken = all.iter().any(|covered| covered.found.is_some());
        if !args.deep || broken || interrupt::requested() {
            break;
        }
        // Further each time: other seeds, and more departures once all with fewer were tried.
        round += 1;
        budget.random = budget.random.saturating_mul(2);
        budget.exhaustive = budget.exhaustive.saturating_mul(4);
        budget.departures = (budget.departures + 1).min(6);
    }
    report(args, scenarios, all, since, files, output)
}

/// One round: each scenario in each way.
fn explore(args: &CheckArgs, scenarios: &[Scenario], budget: &Budget, seed: u64, all: &mut [Covered]) {
    let work: Vec<(usize, Way)> =
        (0..scenarios.len()).flat_map(|n| args.ways().map(move |way| (n, way))).collect();
    let progress = Progress::new(work.len(), jobs::workers(args.jobs));
    // What a search that was stopped has covered is told, too.
    let merged = Mutex::new(&mut *all);
    let job = |index: usize| {
        let (n, way) = work[index];
        let mut search = Search::new(&scenarios[n], None);
        let lane = progress.lane(index, scenarios[n].name);
        let total = if way == Way::Exhaustive { 2 * budget.exhaustive } else { budget.random };
        let found = search.go(way, seed, budget, &mut |tally| {
            if tally.schedules % 64 == 0 {
                lane.progress(tally.schedules, total);
            }
            !interrupt::requested()
        });
        lane.done();
        let complete = search.complete;
        let mut merged = merged.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let covered = &mut merged[n];
        covered.tally.merge(&search.tally);
        if way == Way::Exhaustive {
            covered.complete = complete;
        }
        // The ways have an order, whoever comes first.
        if found.as_ref().is_some_and(|new| covered.found.as_ref().is_none_or(|old| new.way < old.way)) {
            covered.found = found;
        }
        Ok::<_, Failure>(Some(()))
    };
    let _ = jobs::in_order(work.len(), jobs::workers(args.jobs), interrupt::requested, job);
    progress.clear();
}

fn report(
    args: &CheckArgs,
    scenarios: &[Scenario],
    all: Vec<Covered>,
    since: Instant,
    files: &Files,
    output: &mut Output,
) -> Result<Ending, Failure> {
    // What a search that was stopped never came to is no result, and no row.
    let asked = scenarios.len();
    let tried = |covered: &Covered| covered.tally.schedules > 0 || covered.found.is_some();
    let (scenarios, all): (Vec<Scenario>, Vec<Covered>) = scenarios
        .iter()
        .cloned()
        .zip(all)
        .filter(|(_, covered)| !interrupt::requested() || tried(covered))
        .unzip();
    let scenarios = &scenarios[..];
    let mut total = Tally::default();
    let mut rows = vec![
        ["scenario", "schedules", "distinct", "points", "departed", "all", "violations"]
            .map(String::from)
            .to_vec(),
    ];
    let mut list: Vec<Json> = Vec::new();
    let mut stories = Vec::new();
    let (mut points, mut departed) = (0, 0);
    for (scenario, covered) in scenarios.iter().zip(all) {
        let tally = &covered.tally;
        points += u64::from(tally.decisions);
        departed += tally.departed();
        total.merge(tally);
        rows.push(vec![
            scenario.name.to_string(),
            tally.schedules.to_string(),
            tally.distinct.to_string(),
            tally.decisions.to_string(),
            percent(tally.departed(), tally.decisions.into()),
            if covered.complete { "yes" } else { "no" }.to_string(),
            u32::from(covered.found.is_some()).to_string(),
        ]);
        list.push(json!({
            "scenario": scenario.name,
            "architecture": scenario.setup.architecture.name(),
            "schedules": tally.schedules,
            "distinct": tally.distinct,
            "steps": tally.steps,
            "points": tally.decisions,
            "departed": tally.departed(),
            "complete": covered.complete,
            "violation": covered.found.as_ref().map(|found| found.violation.invariant),
        }));
        if let Some(found) = covered.found {
            stories.push(story::tell(scenario, found, Some(args.save.as_deref().unwrap_or(Path::new(".")))));
        }
    }
    let mut out = json!({
        "scenarios": list,
        "schedules": total.schedules,
        "steps": total.steps,
        "points": points,
        "departed": departed,
        "violations": stories.iter().map(story::Story::json).collect::<Json>(),
        "not_tried": asked - scenarios.len(),
        "interrupted": interrupt::requested(),
    });
    if args.stats || args.deep {
        out["seconds"] = json!(since.elapsed().as_secs());
    }
    let first = stories.first().map(|story| (story.name(), &story.told));
    let said = files.write(|| page::coverage(args, scenarios, &out, &stories), first);
    if args.json {
        output.data(&pretty(&out))?;
    } else {
        if interrupt::requested() && !args.deep {
            let of =
                format!("{} of {asked} scenarios were tried, and those not to their end", scenarios.len());
            output.text(&hanging(output.width(), "INTERRUPTED  ", &of))?;
            output.text("\n")?;
        }
        output.text(&grid("lrrrrrr", &rows))?;
        let summary = format!(
            "{}{}, {} schedules, {} points passed; of {} decisions of the ordinary runs {} were made otherwise.",
            several(scenarios.len(), "scenario"),
            args.architecture.map_or(String::new(), |architecture| format!(" on {}", architecture.name())),
            count(total.schedules as f64),
            count(total.steps as f64),
            count(points as f64),
            percent(departed, points)
        );
        output.text(&format!("\n{}", hanging(output.width(), "", &summary)))?;
        if args.stats || args.deep {
            let (seconds, a_second) = (since.elapsed().as_secs(), rate(total.schedules, since));
            let workers = jobs::workers(args.jobs);
            output.text(&format!("{seconds} s on {workers} threads: {a_second} schedules a second.\n"))?;
        }
        for story in &stories {
            output.text(&format!("\n{}", story.text()))?;
        }
        if stories.is_empty() {
            output.text(if interrupt::requested() && !args.deep {
                "No violation so far.\n"
            } else {
                "No violation.\n"
            })?;
        }
        output.text(said.as_ref().map_or("", |said| *said))?;
    }
    said?;
    Ok(match (stories.is_empty(), interrupt::requested()) {
        (false, _) => Ending::Broken,
        (true, true) if !args.deep => Ending::Interrupted,
        _ => Ending::Good,
    })
}

pub(super) fn percent(part: u64, whole: u64) -> String {
    match whole {
        0 => "-".to_string(),
        _ => format!("{}.{} %", 100 * part / whole, 1000 * part / whole % 10),
    }
}
