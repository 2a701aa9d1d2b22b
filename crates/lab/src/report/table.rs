//! The table: the same rows, numbers and gains as in the terminal. Each cell has its number as `--json` prints it, for programs.

use maud::{Markup, html};
use quietmm_sim::{Better, Figure, Group, Value};

use crate::cli::flags::On;
use crate::show::gain::{self, Gain};
use crate::show::table::Line;
use crate::show::units::Scale;
use crate::show::{beside, rows, text};
use crate::study::Form;
use crate::study::result::{Column, Comparison};
use crate::study::sample::Sample;

/// A number as JSON has it.
pub fn number(value: Value) -> String {
    match value {
        Value::Int(value) => value.to_string(),
        Value::Real(value) => serde_json::to_string(&value).unwrap_or_default(),
    }
}

/// The table of all figures, or of metal beside the simulation.
pub fn table(of: &Comparison, columns: &[Column<'_>], form: Form) -> Markup {
    if of.place.on == On::Both {
        return both(columns);
    }
    let shown = rows::groups(columns, false);
    let mut rest = rows::groups(columns, true);
    let rest = rest.split_off(shown.len().min(rest.len())).concat();
    let lines = text::operations(of, columns);
    let seeds = columns.iter().map(|column| column.runs.len()).max().unwrap_or(0);
    html! {
        h3 { "In figures" }
        div class="wide" {
            table {
                caption {
                    @if seeds > 1 { "Means of " (seeds) " seeds ± standard deviation. " }
                    @if columns.len() > 1 {
                        "In brackets: by how much better than " (columns[0].name) ", or worse if negative."
                    }
                }
                (head(columns))
                @for group in &shown { tbody { @for figure in group { (row(of, figure, columns)) } } }
                @if !lines.is_empty() { tbody { @for line in &lines { (operation(line)) } } }
            }
        }
        @if !rest.is_empty() {
            details open[form == Form::Run] {
                summary { "All other counters that are not zero" }
                div class="wide" {
                    table { (head(columns)) tbody { @for figure in &rest { (row(of, figure, columns)) } } }
                }
            }
        }
        details {
            summary { "What the rows mean" }
            dl {
                @for figure in shown.iter().flatten() {
                    dt { (figure.label) }
                    dd { (figure.about) " (" (better(figure)) "; " code { (figure.key) } " in JSON)" }
                }
            }
        }
    }
}

fn better(figure: &Figure) -> &'static str {
    match figure.better {
        Better::Less => "less is better",
        Better::More => "more is better",
        Better::Neither => "neither way is better",
    }
}

fn head(columns: &[Column<'_>]) -> Markup {
    html! {
        thead { tr { td {} @for column in columns { th scope="col" { (breakable(column.name)) } } } }
    }
}

/// A name that may go on in another line behind its signs.
pub fn breakable(name: &str) -> Markup {
    html! { @for part in name.split_inclusive(['+', ',']) { (part) wbr; } }
}

/// A figure with its gains over the first policy.
fn row(of: &Comparison, figure: &Figure, columns: &[Column<'_>]) -> Markup {
    let samples: Vec<&Sample> = columns.iter().filter_map(|column| column.get(figure.key)).collect();
    let scale = Scale::of(figure, &samples);
    let base = columns.first().filter(|column| column.policy == 0).and_then(|column| column.number(figure));
    html! {
        tr {
            th scope="row" {
                @if figure.group == Group::Ops { span class="dim" { (of.workload) " " } }
                (figure.label)
                @if !scale.unit.is_empty() { ", " (scale.unit) }
            }
            @for column in columns {
                @match column.get(figure.key) {
                    None => td { "–" },
                    Some(sample) => {
                        td data-figure=(figure.key) data-policy=(column.policy) data-value=(number(sample.value))
                            data-spread=[sample.spread.map(|spread| number(Value::Real(spread)))] {
                            (scale.show(sample))
                            @if let (Some(base), true) = (base, columns.len() > 1 && column.policy > 0) {
                                (gained(Gain::of(figure.better, base, sample.number())))
                            }
                        }
                    }
                }
            }
        }
    }
}

/// A gain in brackets: its colour only repeats its sign.
pub fn gained(gain: Gain) -> Markup {
    let Gain::Percent(percent) = gain else { return html! {} };
    let text = gain::plain(percent, 2);
    let class = match text.as_str() {
        "0.00" => "same",
        _ if percent > 0.0 => "better",
        _ => "worse",
    };
    html! { " " span class={ "gain " (class) } { "(" (text) "%)" } }
}

/// How long an operation took on a machine that boots.
fn operation(line: &Line) -> Markup {
    let Line::Row { label, cells, .. } = line else { return html! {} };
    html! {
        tr {
            th scope="row" { (label) }
            @for (nth, cell) in cells.iter().enumerate() {
                td { (cell.value) @if nth > 0 { (gained(cell.gain)) } }
            }
        }
    }
}

/// For each policy metal beside the simulation.
fn both(columns: &[Column<'_>]) -> Markup {
    let row = |column: &Column<'_>, (metal, simulated): (&Sample, &Sample)| {
        let scale = Scale::of(metal.figure, &[metal, simulated]);
        let sides = [("metal", metal), ("simulation", simulated)];
        let far = crate::backend::beside::difference(metal.number(), simulated.number());
        html! {
            tr {
                th scope="row" { (metal.figure.label) @if !scale.unit.is_empty() { ", " (scale.unit) } }
                @for (side, sample) in sides {
                    td data-figure=(metal.figure.key) data-policy=(column.policy) data-side=(side)
                        data-value=(number(sample.value)) { (scale.show(sample)) }
                }
                td { (far.map_or("–".to_string(), |far| format!("{}%", gain::plain(far, 2)))) }
            }
        }
    };
    html! {
        h3 { "In figures" }
        @for column in columns {
            div class="wide" {
                table {
                    caption { (column.name) }
                    thead {
                        tr {
                            td {}
                            @for name in ["metal", "simulation", "difference"] { th scope="col" { (name) } }
                        }
                    }
                    tbody { @for pair in beside::pairs(column, false) { (row(column, pair)) } }
                }
            }
        }
    }
}
