//! A study as text: the table, published figures, stories, and how to repeat it.

use std::fmt::Write;

use quietmm_sim::Better;
use quietmm_sim::machine::Machine;

use crate::cli::Common;
use crate::figure::Figure;
use crate::gain::{self, Gain};
use crate::latencies;
use crate::measure::{Column, Study};
use crate::plan::Form;
use crate::profile;
use crate::published::{self, Published};
use crate::rows::{self, Group};
use crate::table::{self, Cell, Line};
use crate::verdict;
use crate::wrap::{self, WIDTH, hanging};

/// More stories than this are only counted.
const STORIES: usize = 3;

/// The gibibyte, in bytes.
const GIB: f64 = (1u64 << 30) as f64;

/// How much is shown.
#[derive(Clone, Copy, Debug, Default)]
pub struct Depth {
    /// Every counter.
    pub all: bool,
    /// What depends on the host.
    pub host: bool,
    /// What each row means.
    pub explain: bool,
    /// Of where the figures are from, only what differs from study to study.
    pub brief: bool,
}

impl Depth {
    /// As asked for on the command line; one run alone always shows every counter.
    pub fn of(form: Form, common: &Common) -> Depth {
        Depth {
            all: common.stats || form == Form::Run,
            host: common.stats,
            explain: common.explain,
            brief: false,
        }
    }
}

/// The whole text of one study.
pub fn study(study: &Study, depth: Depth) -> String {
    let columns = study.columns();
    if columns.is_empty() {
        return interrupted(study);
    }
    let groups = rows::groups(study.plan.workload.name(), &columns, depth.all);
    let published = published::find(&study.plan).filter(|_| columns.len() == 2);
    let mut out = String::new();
    if study.interrupted() {
        out.push_str(&interrupted(study));
        out.push('\n');
    }
    out.push_str(&tables(study, &columns, &groups, published, depth));
    for column in &columns {
        let name = &study.plan.names[column.policy];
        // The first seed stands for all; the JSON has each.
        if let Some((seed, report)) = column.runs.first() {
            let title = format!("{name}, seed {seed}");
            out.push_str(&latencies::tables(&title, &report.latencies));
            if let Some(profile) = &report.profile {
                out.push_str(&profile::table(&title, profile));
            }
        }
    }
    if let Some(verdict) = verdict::verdict(study, &columns, published) {
        out.push('\n');
        out.push_str(&hanging("verdict  ", &verdict));
    }
    out.push_str(&stories(study, &columns, STORIES));
    if depth.explain {
        out.push_str(&explanations(&columns, &groups));
        let reports = columns.iter().filter_map(|column| column.runs.first());
        out.push_str(&profile::explanations(reports.filter_map(|(_, report)| report.profile.as_ref())));
    }
    out.push('\n');
    out.push_str(&origin(study, &columns, depth));
    out
}

/// Only the stories of stale accesses, at most `most` of them, and the line that repeats them.
pub fn stories_alone(study: &Study, most: usize) -> String {
    if study.columns().is_empty() {
        return interrupted(study);
    }
    let told = stories(study, &study.columns(), most);
    format!("{}\nrepeat   {}\n", told.trim_start(), study.plan.command())
}

fn interrupted(study: &Study) -> String {
    let (finished, count) = (study.finished(), study.plan.count());
    format!("INTERRUPTED: {finished} of {count} runs of {} finished\n", study.plan.workload.name())
}

fn tables(
    study: &Study,
    columns: &[Column<'_>],
    groups: &[Group],
    published: Option<&Published>,
    depth: Depth,
) -> String {
    let names: Vec<String> = columns.iter().map(|column| study.plan.names[column.policy].clone()).collect();
    let mut lines = Vec::new();
    for group in groups {
        lines.extend(group.iter().map(|(label, key)| row(label, key, columns)));
        lines.push(Line::Gap);
    }
    if depth.host {
        lines.extend(host(columns));
        lines.push(Line::Gap);
    }
    if let Some(published) = published {
        lines.push(Line::Title(published.source.to_string()));
        lines.extend(published.lines());
        lines.push(Line::Gap);
    }
    lines.pop();
    table::lay_out(&names, &lines)
}

/// A row with its gains over the first policy.
pub fn row(label: &str, key: &str, columns: &[Column<'_>]) -> Line {
    // Without the first policy's runs nothing is the baseline.
    let base = columns.first().filter(|column| column.policy == 0).and_then(|column| column.figure(key));
    let decimals = columns.iter().filter_map(|column| column.figure(key)).map(Figure::decimals).max();
    let cells = columns.iter().map(|column| match column.figure(key) {
        None => Cell { value: "-".to_string(), gain: Gain::None },
        Some(figure) => Cell {
            value: figure.shown(decimals.unwrap_or(0)),
            gain: base.map_or(Gain::None, |base| Gain::of(base.better, base.number(), figure.number())),
        },
    });
    let unit = columns.iter().find_map(|column| column.figure(key)).map_or("", |figure| figure.unit);
    Line::Row(label.to_string(), cells.collect(), if columns.len() == 1 { unit } else { "" })
}

/// What depends on the host: sums over the seeds of a policy.
fn host(columns: &[Column<'_>]) -> Vec<Line> {
    let line = |label: &str, value: &dyn Fn(&Column<'_>) -> String| {
        let cells = columns.iter().map(|column| Cell { value: value(column), gain: Gain::None });
        Line::Row(label.to_string(), cells.collect(), "")
    };
    let seconds = |column: &Column<'_>| column.runs.iter().map(|(_, report)| report.host.host_s).sum::<f64>();
    let events = |column: &Column<'_>| column.runs.iter().map(|(_, report)| report.host.events).sum::<u64>();
    let rate = |column: &Column<'_>| {
        let rates = column.runs.iter().map(|(_, report)| report.host.reclaimed_pages_per_host_s);
        rates.sum::<f64>() / column.runs.len() as f64
    };
    vec![
        line("host seconds", &|column| gain::plain(seconds(column), 2)),
        line("simulated events", &|column| events(column).to_string()),
        line("reclaimed pages per host second", &|column| gain::plain(rate(column), 0)),
    ]
}

/// Stale accesses: expected with a broken rule, loud without.
fn stories(study: &Study, columns: &[Column<'_>], most: usize) -> String {
    let mut out = String::new();
    let (harm, broken) = (study.harm_text(), study.plan.broken);
    match (harm.is_empty(), broken) {
        (true, None) => return out,
        (true, Some(rule)) => {
            let _ = writeln!(
                out,
                "\nNo stale access, lost write or wrong content was seen although {} was broken.",
                rule.name()
            );
        }
        (false, Some(rule)) => {
            let head = format!("{harm} with {} broken ({}):", rule.name(), rule.about());
            out.push('\n');
            out.push_str(&hanging("", &head));
        }
        (false, None) => {
            let bar = "!".repeat(WIDTH);
            let _ = writeln!(
                out,
                "\n{bar}\n{}, although no rule was broken. This is a bug.\n{bar}",
                harm.to_uppercase()
            );
        }
    }
    let mut all: Vec<(usize, u64, &String)> = columns
        .iter()
        .flat_map(|column| column.runs.iter().map(move |(seed, report)| (column.policy, *seed, *report)))
        .flat_map(|(policy, seed, report)| report.stories.iter().map(move |story| (policy, seed, story)))
        .collect();
    let told = all.len();
    // A CPU that reads the same page again and again has one story.
    all.dedup_by_key(|(policy, seed, story)| (*policy, *seed, story.lines().next()));
    let shown = all.len().min(most);
    for (policy, seed, story) in &all[..shown] {
        let _ = write!(out, "\n[{}, seed {seed}]\n{}", study.plan.policies[*policy], wrap::story(story));
    }
    if told > shown {
        let _ = writeln!(out, "\n(The first {told} are kept in full: --json prints them.)");
    }
    out
}

/// What each row means.
pub fn explanations(columns: &[Column<'_>], groups: &[Group]) -> String {
    let mut out = "\nWhat the rows mean\n".to_string();
    for (label, key) in groups.iter().flatten() {
        let Some(figure) = columns.iter().find_map(|column| column.figure(key)) else { continue };
        let better = match figure.better {
            Better::Less => "less is better",
            Better::More => "more is better",
            Better::Neither => "neither way is better",
        };
        let unit = if figure.unit.is_empty() { String::new() } else { format!("{}, ", figure.unit) };
        out.push_str(&hanging("  ", label));
        out.push_str(&hanging("      ", &format!("{} ({unit}{better})", figure.about)));
    }
    out
}

/// Where the figures are from, and the line that repeats them.
fn origin(study: &Study, columns: &[Column<'_>], depth: Depth) -> String {
    let plan = &study.plan;
    let mut out = String::new();
    let mut say = |what: &str, text: &str| out.push_str(&hanging(&format!("{what:<9}"), text));
    let Machine { name, about, cpus, .. } = &plan.machine;
    let gib = plan.machine.memory as f64 / GIB;
    say("workload", &format!("{}: {}", plan.workload.name(), plan.workload.about()));
    if let Some(trace) = &plan.trace {
        say("trace", &trace.name);
    }
    let plural = if *cpus == 1 { "" } else { "s" };
    say("machine", &format!("{name} with {cpus} CPU{plural} and {} GiB ({about})", trimmed(gib)));
    for (key, value) in &plan.sets {
        say("set", &format!("{key} = {value}"));
    }
    let policies = plan.policies.iter().map(|policy| policy.to_string());
    for (name, policy) in plan.names.iter().zip(policies).filter(|_| !depth.brief) {
        say("policy", &if *name == policy { policy } else { format!("{name} is {policy}") });
    }
    say("scale", &format!("{} (memory, and the work that is sized by it, are divided by it)", plan.scale));
    match plan.runs {
        1 => say("seed", &plan.seed.to_string()),
        runs => {
            let last = plan.seed_of(runs as usize - 1);
            say("seeds", &format!("{} to {last}; mean ± standard deviation of {runs} runs", plan.seed));
        }
    }
    if let Some(rule) = plan.broken {
        say("broken", &format!("{}: {}", rule.name(), rule.about()));
    }
    for note in notes(columns).into_iter().filter(|_| !depth.brief) {
        say("note", note);
    }
    // Not wrapped: it is there to be copied.
    out + &format!("repeat   {}\n", plan.command())
}

/// The notes of all runs, each once, in the order in which they first appear.
pub fn notes<'a>(columns: &[Column<'a>]) -> Vec<&'a str> {
    let mut notes: Vec<&str> = Vec::new();
    for (_, report) in columns.iter().flat_map(|column| &column.runs) {
        for note in &report.notes {
            if !notes.contains(&note.as_str()) {
                notes.push(note);
            }
        }
    }
    notes
}

/// At most two decimals, and none that say nothing.
fn trimmed(value: f64) -> String {
    let text = format!("{value:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_string()
}

#[cfg(test)]
mod tests {
    use quietmm_sim::{Host, Metric, Report, Value};

    use super::*;
    use crate::ending::Ending;
    use crate::plan::plans;

    fn report(elapsed: f64, stale: u64) -> Report {
        let metric = |key, better, value| Metric { key, label: key, unit: "", better, value, about: "" };
        Report {
            latencies: Default::default(),
            profile: None,
            metrics: vec![
                metric("elapsed_s", Better::Less, Value::Real { value: elapsed, decimals: 2 }),
                metric("stale_accesses", Better::Less, Value::Int(stale)),
            ],
            host: Host { host_s: 1.0, events: 1, reclaimed_pages_per_host_s: 1.0, host_peak_rss_mib: 1 },
            stories: (0..stale).map(|nth| format!("story {nth}")).collect(),
            notes: Vec::new(),
        }
    }

    fn study_of(reports: Vec<Option<Report>>) -> Study {
        let words = |words: &[&str]| words.iter().map(|word| word.to_string()).collect::<Vec<_>>();
        let policies = words(&["linux+unmap=per-page", "linux"]);
        let plan =
            plans(Form::Compare, &words(&["revisit"]), &policies, &Common::default()).unwrap().remove(0);
        Study { plan, reports }
    }

    #[test]
    fn finished_runs_are_shown_after_an_interruption() {
        let half = study_of(vec![Some(report(2.0, 0)), None]);
        let text = study(&half, Depth::default());
        assert!(text.starts_with("INTERRUPTED: 1 of 2 runs"), "{text}");
        assert!(text.contains("2.00") && !text.contains("verdict"), "{text}");
        assert_eq!(half.ending(), Ending::Interrupted);
    }

    #[test]
    fn without_its_baseline_a_policy_has_no_gain() {
        let text = study(&study_of(vec![None, Some(report(2.0, 0))]), Depth::default());
        assert!(text.contains("2.00") && !text.contains('%'), "{text}");
    }

    #[test]
    fn stale_accesses_are_loud_and_fail() {
        let bad = study_of(vec![Some(report(2.0, 0)), Some(report(1.0, 5))]);
        let text = study(&bad, Depth::default());
        assert!(
            text.contains("5 STALE ACCESSES")
                && text.contains("story 2")
                && text.contains("first 5 are kept"),
            "{text}"
        );
        assert_eq!(bad.ending(), Ending::Stale);
    }

    #[test]
    fn two_finished_policies_get_a_verdict() {
        let text = study(&study_of(vec![Some(report(2.0, 0)), Some(report(1.0, 0))]), Depth::default());
        assert!(text.contains("verdict  elapsed 50.00% better; no stale access"), "{text}");
    }
}
