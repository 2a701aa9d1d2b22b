//! Each rule broken in turn: is there a schedule that shows it?

use quietmm_check::explore::Way;
use quietmm_check::hunt::{self, Hunted};
use quietmm_check::scenario::Scenario;
use quietmm_sim::Rule;
use quietmm_sim::near::unknown;
use serde_json::{Value as Json, json};

use super::args::CheckArgs;
use super::files::Files;
use super::story::Story;
use super::{budget, page, story};
use crate::process::ending::{Ending, Failure};
use crate::process::output::Output;
use crate::process::progress::Progress;
use crate::process::{interrupt, jobs};
use crate::show::json::pretty;
use crate::show::table::grid;
use crate::show::wrap::hanging;

/// What became of a rule, by way.
pub struct Row {
    /// The rule.
    pub rule: Rule,
    /// Nothing of a way that was stopped.
    ways: Vec<(Way, Option<Hunted>)>,
}

impl Row {
    /// What the first way found that found something.
    pub fn first(&self) -> Option<&Hunted> {
        self.ways.iter().flat_map(|(_, hunted)| hunted).find(|hunted| hunted.found.is_some())
    }

    /// Nothing was found, and not all that was to be tried was.
    pub fn is_open(&self) -> bool {
        self.first().is_none() && self.ways.iter().any(|(_, hunted)| hunted.is_none())
    }

    /// Whether this way found it.
    pub fn found_by(&self, way: Way) -> bool {
        self.ways.iter().any(|(known, hunted)| {
            *known == way && hunted.as_ref().is_some_and(|hunted| hunted.found.is_some())
        })
    }
}

/// `quietmm check --mutant`
pub fn mutants(
    args: &CheckArgs,
    scenarios: &[Scenario],
    name: &str,
    files: &Files,
    output: &mut Output,
) -> Result<Ending, Failure> {
    let rules: Vec<Rule> = if name == "all" {
        Rule::ALL.to_vec()
    } else {
        let known = || Rule::ALL.iter().map(|rule| rule.name()).chain(["all"]);
        vec![Rule::parse(name).ok_or_else(|| Failure::Input(unknown("rule", name, known())))?]
    };
    interrupt::listen();
    let budget = budget(args);
    let work: Vec<(Rule, Way)> =
        rules.iter().flat_map(|&rule| args.ways().map(move |way| (rule, way))).collect();
    let progress = Progress::new(work.len(), jobs::workers(args.jobs));
    let job = |index: usize| {
        let (rule, way) = work[index];
        let hunted = hunt::hunt(scenarios, rule, way, args.seed, &budget, &mut || !interrupt::requested());
        progress.lane(index, rule.name()).done();
        Ok::<_, Failure>((!hunted.stopped).then_some(hunted))
    };
    let mut results =
        jobs::in_order(work.len(), jobs::workers(args.jobs), interrupt::requested, job)?.into_iter();
    progress.clear();
    let row = |&rule: &Rule| Row { rule, ways: args.ways().zip(results.by_ref()).collect() };
    let rows: Vec<Row> = rules.iter().map(row).collect();
    report(args, scenarios, &rows, files, output)
}

fn report(
    args: &CheckArgs,
    scenarios: &[Scenario],
    rows: &[Row],
    files: &Files,
    output: &mut Output,
) -> Result<Ending, Failure> {
    let open: Vec<&str> = rows.iter().filter(|row| row.is_open()).map(|row| row.rule.name()).collect();
    let missed: Vec<&Row> = rows.iter().filter(|row| row.first().is_none() && !row.is_open()).collect();
    let found = rows.iter().filter(|row| row.first().is_some()).count();
    let only_exhaustive: Vec<&str> = rows
        .iter()
        .filter(|_| args.ways().any(|way| way == Way::Random))
        .filter(|row| !row.found_by(Way::Random) && row.found_by(Way::Exhaustive))
        .map(|row| row.rule.name())
        .collect();
    let mut story = None;
    if let [row] = rows
        && let Some(found) = row.first().and_then(|hunted| hunted.found.clone())
        && let Some(scenario) = scenarios.iter().find(|scenario| scenario.name == found.scenario)
    {
        story = Some(story::tell(scenario, found, args.save.as_deref()));
    }
    let mut out = json!({
        "mutants": rows.len(),
        "found": found,
        "missed": missed.iter().map(|row| row.rule.name()).collect::<Json>(),
        "not_tried": open,
        "missed_by_random_found_by_exhaustive": only_exhaustive,
        "rules": rows.iter().map(as_json).collect::<Json>(),
        "interrupted": interrupt::requested(),
    });
    if let Some(story) = &story {
        out["counterexample"] = story.json();
    }
    let told = story.as_ref().map(|story| (story.name(), &story.told));
    // Of many rules each has its picture on the page, and nowhere else.
    let others =
        if rows.len() > 1 && files.has_report() { told_each(args, scenarios, rows)? } else { Vec::new() };
    let said = files.write(|| page::mutants(args, rows, &out, (story.as_ref(), &others)), told);
    if args.json {
        output.data(&pretty(&out))?;
    } else {
        output.text(&grid(&format!("l{}", "r".repeat(2 + args.ways().count())), &table(args, rows)))?;
        if !open.is_empty() {
            let of = format!("{} of {} rules were tried to the end", rows.len() - open.len(), rows.len());
            output.text(&format!("\n{}", hanging(output.width(), "INTERRUPTED  ", &of)))?;
        }
        output.text(&format!("\n{found} of {} found.", rows.len() - open.len()))?;
        output.text(" Schedules until one showed it; `-N`: none of N did.\n")?;
        if !only_exhaustive.is_empty() {
            let text = format!(
                "Missed by the random walk, found by the exhaustive way: {}.\n",
                only_exhaustive.join(", ")
            );
            let text = hanging(output.width(), "", text.trim_end());
            output.text(&text)?;
        }
        if !missed.is_empty() {
            let names: Vec<&str> = missed.iter().map(|row| row.rule.name()).collect();
            let text = hanging(output.width(), "", &format!("Missed: {}.", names.join(", ")));
            output.text(&text)?;
        }
        if let Some(story) = &story {
            output.text(&format!("\n{}", story.text()))?;
        }
        output.text(said.as_ref().map_or("", |said| *said))?;
    }
    said?;
    Ok(match (interrupt::requested(), missed.is_empty()) {
        (true, _) => Ending::Interrupted,
        (false, false) => Ending::Missed,
        (false, true) => Ending::Good,
    })
}

/// What is found of each rule, made short and told, on all cores.
fn told_each(args: &CheckArgs, scenarios: &[Scenario], rows: &[Row]) -> Result<Vec<Story>, Failure> {
    let found: Vec<_> = rows.iter().filter_map(|row| row.first()?.found.as_ref()).collect();
    let workers = jobs::workers(args.jobs);
    let progress = Progress::new(found.len(), workers);
    let job = |nth: usize| {
        let scenario = scenarios.iter().find(|scenario| scenario.name == found[nth].scenario);
        let told = scenario.map(|scenario| story::tell(scenario, found[nth].clone(), None));
        progress.lane(nth, found[nth].scenario).done();
        Ok::<_, Failure>(told)
    };
    let told = jobs::in_order(found.len(), workers, interrupt::requested, job)?;
    progress.clear();
    Ok(told.into_iter().flatten().collect())
}

fn table(args: &CheckArgs, rows: &[Row]) -> Vec<Vec<String>> {
    let mut table = vec![["rule", "breaks", "in scenario"].map(String::from).to_vec()];
    table[0].extend(args.ways().map(|way| way.name().to_string()));
    for row in rows {
        let found = row.first().and_then(|hunted| hunted.found.as_ref());
        let (broke, scenario) = found.map_or(("-", "-"), |found| (found.violation.invariant, found.scenario));
        let mut cells = vec![row.rule.name().to_string(), broke.to_string(), scenario.to_string()];
        cells.extend(row.ways.iter().map(|(_, hunted)| match hunted {
            None => "?".to_string(),
            Some(Hunted { found: Some(_), schedules, .. }) => schedules.to_string(),
            Some(Hunted { found: None, schedules: 0, .. }) => "-".to_string(),
            Some(Hunted { found: None, schedules, .. }) => format!("-{schedules}"),
        }));
        table.push(cells);
    }
    table
}

fn as_json(row: &Row) -> Json {
    let mut out = json!({ "rule": row.rule.name(), "about": row.rule.about() });
    for (way, hunted) in &row.ways {
        out[way.name()] = match hunted {
            None => Json::Null,
            Some(hunted) => json!({
                "schedules": hunted.schedules,
                "scenario": hunted.found.as_ref().map(|found| found.scenario),
                "invariant": hunted.found.as_ref().map(|found| found.violation.invariant),
            }),
        };
    }
    out
}
