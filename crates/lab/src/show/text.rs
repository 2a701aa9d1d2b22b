//! A comparison as text: the table, published figures, latencies, the verdict, stories, and how to repeat it.

use std::fmt::Write;

use quietmm_sim::story::Story;
use quietmm_sim::{Better, Figure, Value};

use crate::cli::flags::{AccelName, On};
use crate::show::beside;
use crate::show::gain::{self, Gain};
use crate::show::latencies;
use crate::show::profile;
use crate::show::published::{self, Published};
use crate::show::rows::{self, Rows};
use crate::show::table::{self, Cell, Line};
use crate::show::units::Scale;
use crate::show::wrap::{self, hanging};
use crate::study::result::{Column, Comparison, Operation};
use crate::study::sample::Sample;

/// More stories than this are only counted.
const STORIES: usize = 3;

/// How much is shown, and how wide.
#[derive(Clone, Copy, Debug)]
pub struct Depth {
    /// Every counter.
    pub all: bool,
    /// What each row means.
    pub explain: bool,
    /// Where CPU time went.
    pub profile: bool,
    /// Of where the figures are from, only what differs from table to table.
    pub brief: bool,
    /// Characters in a line.
    pub width: usize,
}

/// The whole text.
pub fn comparison(of: &Comparison, depth: &Depth) -> String {
    let mut out = String::new();
    if of.interrupted {
        let (finished, asked) = (of.runs.len(), of.asked);
        let _ = writeln!(out, "INTERRUPTED: {finished} of {asked} runs of {} finished", of.workload);
    }
    let columns = of.columns();
    if columns.is_empty() {
        return out;
    }
    if let Some(short) = never_short(of) {
        out += &hanging(depth.width, "", &format!("NOTHING WAS RECLAIMED: {short}"));
    }
    if !out.is_empty() {
        out.push('\n');
    }
    let both = of.place.on == On::Both;
    let groups = if both { Vec::new() } else { rows::groups(&columns, depth.all) };
    out += &if both { beside::table(&columns, depth) } else { figures(of, &columns, &groups, depth) };
    out += &latencies::tables(&columns, depth.width);
    if depth.profile {
        // The first seed stands for all; the JSON has each.
        let firsts = columns.iter().filter_map(|column| Some((column, *column.runs.first()?)));
        for (column, run) in firsts {
            let title = format!("{}, seed {}", column.name, run.seed);
            out +=
                &run.account.as_ref().map_or(String::new(), |one| profile::table(&title, one, depth.width));
        }
    }
    out.push('\n');
    for (nth, sentence) in of.verdict.iter().enumerate() {
        out += &hanging(depth.width, if nth == 0 { "verdict  " } else { "         " }, sentence);
    }
    out += &harm(of, STORIES, depth.width);
    if depth.explain {
        let rows: Rows = if both { beside::rows(&columns, depth.all) } else { groups.concat() };
        out += &explanations(&rows, depth.width);
        if depth.profile {
            out += &profile::explanations(of.runs.iter().filter_map(|run| run.account.as_ref()), depth.width);
        }
    }
    out.push('\n');
    out + &origin(of, depth)
}

/// Only what was seen that must never be, and the line that repeats it.
pub fn harm_alone(of: &Comparison, stories: usize, width: usize) -> String {
    format!("{}\nrepeat   {}\n", harm(of, stories, width).trim_start(), of.command)
}

/// What to say if nothing was reclaimed although the work is about that.
pub fn never_short(of: &Comparison) -> Option<String> {
    let reclaimed = of.runs.iter().filter_map(|run| run.metrics.get("pages_reclaimed")).map(Value::number);
    let short = of.short.as_ref().filter(|_| reclaimed.sum::<f64>() == 0.0)?;
    Some(format!("memory was never short, and {} is about memory that is; {short}", of.workload))
}

/// The table of all figures, with the published ones below.
fn figures(of: &Comparison, columns: &[Column<'_>], groups: &[Rows], depth: &Depth) -> String {
    let published = published::find(of).filter(|_| columns.len() == of.policies.len());
    let mut blocks: Vec<Vec<Line>> = Vec::new();
    for group in groups {
        blocks.push(group.iter().map(|figure| row(of, figure, columns)).collect());
    }
    blocks.push(operations(of, columns));
    blocks.push(host(columns));
    if let Some(published) = published {
        let title = Line::Title(published.source.to_string());
        blocks.push([title].into_iter().chain(published.lines(columns.len())).collect());
    }
    blocks.retain(|block| !block.is_empty());
    let lines = blocks.join(&Line::Gap);
    let names: Vec<&str> = columns.iter().map(|column| column.name).collect();
    table::lay_out(&names, &lines, depth.width)
}

/// A row with its gains over the first policy.
fn row(of: &Comparison, figure: &Figure, columns: &[Column<'_>]) -> Line {
    let samples: Vec<&Sample> = columns.iter().filter_map(|column| column.get(figure.key)).collect();
    let scale = Scale::of(figure, &samples);
    // Without the first policy's runs nothing is the baseline.
    let base = columns.first().filter(|column| column.policy == 0).and_then(|column| column.number(figure));
    let cells = columns.iter().map(|column| match column.get(figure.key) {
        None => Cell { value: "-".to_string(), gain: Gain::None, number: 0.0 },
        Some(sample) => Cell {
            value: scale.show(sample),
            gain: base.map_or(Gain::None, |base| Gain::of(figure.better, base, sample.number())),
            number: sample.number(),
        },
    });
    let ops = figure.group == quietmm_sim::Group::Ops;
    let prefix = if ops { format!("Ops {}-", of.workload) } else { String::new() };
    let unit = if scale.unit.is_empty() { String::new() } else { format!(", {}", scale.unit) };
    let label = format!("{}{unit}", figure.label);
    Line::Row { prefix, label, cells: cells.collect(), remark: "" }
}

/// A row of numbers that are no figures of the simulation.
fn plain_row(
    label: String,
    columns: &[Column<'_>],
    decimals: usize,
    judged: bool,
    value: impl Fn(&Column<'_>) -> Option<f64>,
) -> Line {
    let base = columns.first().filter(|column| column.policy == 0 && judged).and_then(&value);
    let cells = columns.iter().map(|column| match value(column) {
        None => Cell { value: "-".to_string(), gain: Gain::None, number: 0.0 },
        Some(number) => Cell {
            value: gain::plain(number, decimals),
            gain: base.map_or(Gain::None, |base| Gain::of(Better::Less, base, number)),
            number,
        },
    });
    Line::row(label, cells.collect())
}

/// How long operations took on a machine that boots: means over all boots of a policy, and the least of all.
pub fn operations(of: &Comparison, columns: &[Column<'_>]) -> Vec<Line> {
    let (unit, judged) = match of.place.accel {
        Some(AccelName::Icount) => ("instructions", true),
        // Times of threads that race for the host's processors are not judged.
        accel => ("ns", accel == Some(AccelName::Kvm)),
    };
    let mut names: Vec<&str> = Vec::new();
    for (name, _) in of.runs.iter().flat_map(|run| &run.operations) {
        if !names.contains(&name.as_str()) {
            names.push(name);
        }
    }
    let all = |column: &Column<'_>, name: &str, value: fn(&Operation) -> f64| -> Vec<f64> {
        let named = column.runs.iter().flat_map(|run| &run.operations).filter(|(one, _)| one == name);
        named.map(|(_, operation)| value(operation)).collect()
    };
    let rows = names.iter().flat_map(|name| {
        let mean = |column: &Column<'_>| {
            let means = all(column, name, |one| one.mean);
            (!means.is_empty()).then(|| means.iter().sum::<f64>() / means.len() as f64)
        };
        let least =
            |column: &Column<'_>| all(column, name, |one| one.least as f64).into_iter().reduce(f64::min);
        [
            plain_row(format!("{name}, {unit}"), columns, 1, judged, mean),
            plain_row(format!("{name}, least"), columns, 0, judged, least),
        ]
    });
    rows.collect()
}

/// What depends on the host: sums over the seeds of a policy.
fn host(columns: &[Column<'_>]) -> Vec<Line> {
    let hosts = |column: &Column<'_>| column.runs.iter().filter_map(|run| run.host).collect::<Vec<_>>();
    if columns.iter().all(|column| hosts(column).is_empty()) {
        return Vec::new();
    }
    let row = |label: &str, decimals, value: &dyn Fn(&Column<'_>) -> Option<f64>| {
        plain_row(label.to_string(), columns, decimals, false, value)
    };
    let mut lines =
        vec![row("host seconds", 2, &|column| Some(hosts(column).iter().map(|host| host.host_s).sum()))];
    if columns.iter().flat_map(hosts).any(|host| host.events.is_some()) {
        lines.push(row("simulated events", 0, &|column| {
            Some(hosts(column).iter().filter_map(|host| host.events).sum::<u64>() as f64)
        }));
        lines.push(row("reclaimed pages per host second", 0, &|column| {
            let rates: Vec<f64> =
                hosts(column).iter().filter_map(|host| host.reclaimed_pages_per_host_s).collect();
            (!rates.is_empty()).then(|| rates.iter().sum::<f64>() / rates.len() as f64)
        }));
    }
    lines
}

/// Stale accesses and the like: expected with a broken rule, loud without.
pub fn harm(of: &Comparison, most: usize, width: usize) -> String {
    let mut out = String::new();
    let harm = of.harm();
    let ended = |run: &&crate::study::Run| run.end.as_ref().is_some_and(|end| end != "well");
    let seen = !harm.is_empty() || of.runs.iter().any(|run| ended(&run) || !run.stories.is_empty());
    match (seen, of.broken) {
        (false, None) => return out,
        (false, Some(rule)) => {
            let name = rule.name();
            let text =
                format!("No stale access, lost write or wrong content was seen although {name} was broken.");
            out += &format!("\n{}", hanging(width, "", &text));
        }
        (true, Some(rule)) => {
            let what = if harm.is_empty() { "What came" } else { &harm };
            let head = format!("{what} with {} broken ({}):", rule.name(), rule.about());
            out += &format!("\n{}", hanging(width, "", &head));
        }
        (true, None) => {
            let bar = "!".repeat(width);
            let harm = harm.to_uppercase();
            let _ = writeln!(out, "\n{bar}\n{harm}, although no rule was broken. This is a bug.\n{bar}");
        }
    }
    let name = |run: &crate::study::Run| format!("[{}, seed {}]", run.policy, run.seed);
    for run in of.runs.iter().filter(ended) {
        out += &hanging(width, &format!("{} ", name(run)), run.end.as_deref().unwrap_or(""));
    }
    let told = of.runs.iter().map(|run| run.stories.len()).sum::<usize>();
    let all = stories(of);
    let shown = all.len().min(most);
    for (run, story) in &all[..shown] {
        let _ = write!(out, "\n{}\n{}", name(run), wrap::story(width, &story.to_string()));
    }
    if told > shown {
        let _ = writeln!(out, "\n(The first {told} are kept in full: --json prints them.)");
    }
    out
}

/// What was seen in each run. A CPU that reads the same page again and again has one story.
pub fn stories(of: &Comparison) -> Vec<(&crate::study::Run, &Story)> {
    let mut all: Vec<_> =
        of.runs.iter().flat_map(|run| run.stories.iter().map(move |story| (run, story))).collect();
    all.dedup_by_key(|(run, story)| (run.column, run.seed, story.said.lines().next()));
    all
}

/// What each row means.
fn explanations(rows: &[&Figure], width: usize) -> String {
    let mut out = "\nWhat the rows mean\n".to_string();
    for figure in rows {
        let better = match figure.better {
            Better::Less => "less is better",
            Better::More => "more is better",
            Better::Neither => "neither way is better",
        };
        out += &hanging(width, "  ", figure.label);
        out += &hanging(width, "      ", &format!("{} ({better}; {} in JSON)", figure.about, figure.key));
    }
    out
}

/// Where the figures are from, and the line that repeats them.
fn origin(of: &Comparison, depth: &Depth) -> String {
    let brief = |(label, _): &&(&str, String)| !depth.brief || *label != "policy";
    let line = |label: &str, text: &str| hanging(depth.width, &format!("{label:<9}"), text);
    let mut out: String = of.origin.iter().filter(brief).map(|(label, text)| line(label, text)).collect();
    if !depth.brief {
        out.extend(of.notes.iter().map(|note| line("note", note)));
    }
    if depth.all {
        out += &line("zeros", "figures that are zero everywhere are left out; --json has them");
    }
    // Not wrapped: it is there to be copied.
    out + &format!("repeat   {}\n", of.command)
}

impl Published {
    /// The published rows, in the first columns of a table of so many.
    pub fn lines(&self, columns: usize) -> Vec<Line> {
        let none = || Cell { value: "-".to_string(), gain: Gain::None, number: 0.0 };
        let line = |row: &published::Row| {
            let cell =
                |value: f64, gain| Cell { value: gain::plain(value, row.decimals), gain, number: value };
            let mut cells = vec![cell(row.before, Gain::Percent(0.0)), cell(row.after, row.gain())];
            cells.resize_with(columns, none);
            Line::row(row.label, cells)
        };
        self.rows.iter().map(line).collect()
    }
}
