//! Where the tasks' time goes: what CPUs worked, and what tasks slept for a lock or a device.

use maud::{Markup, html};

use super::plot::axis::{Axis, scaled};
use super::plot::bars::{self, Bar};
use super::plot::{Drawn, WIDE, draw, palette};
use crate::show::cause::Causes;
use crate::show::gain::plain;
use crate::show::units::time;
use crate::study::result::Column;

/// Causes that have a colour; all others are one piece.
const MOST: usize = 6;
/// Picoseconds of a second.
const SECOND: f64 = 1e12;

/// A policy's causes, over its seeds.
struct Told<'a> {
    name: &'a str,
    runs: Vec<Causes>,
}

impl Told<'_> {
    /// Seconds of a run in the mean.
    fn time(&self, of: impl Fn(&Causes) -> f64) -> f64 {
        self.runs.iter().map(of).sum::<f64>() / self.runs.len() as f64 / SECOND
    }
}

/// The picture, its colours, and its numbers.
pub fn part(columns: &[Column<'_>]) -> Drawn<Markup> {
    let told = columns.iter().map(|column| {
        let runs = column.runs.iter().filter_map(|run| Causes::of(run)).collect();
        Told { name: column.name, runs }
    });
    let told: Vec<Told<'_>> = told.filter(|one| one.time(|causes| causes.all) > 0.0).collect();
    if told.is_empty() {
        return Ok(html! {});
    }
    let all = |cause: &str| told.iter().map(|one| one.time(|causes| causes.time(cause))).sum::<f64>();
    let mut names: Vec<&str> = Vec::new();
    for name in told.iter().flat_map(|one| &one.runs).flat_map(Causes::names) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names.sort_by(|a, b| all(b).total_cmp(&all(a)).then_with(|| a.cmp(b)));
    let (named, rest) = names.split_at(names.len().min(MOST));
    let most = told.iter().map(|one| one.time(|causes| causes.all)).fold(0.0, f64::max);
    let (factor, unit) = scaled("s", most);
    let bar = |one: &Told<'_>| {
        let pieces = named.iter().enumerate();
        let pieces =
            pieces.map(|(nth, name)| (one.time(|causes| causes.time(name)) * factor, palette::colour(nth)));
        let others = one.time(|causes| rest.iter().map(|name| causes.time(name)).sum());
        let all = one.time(|causes| causes.all);
        Bar {
            name: one.name.to_string(),
            pieces: pieces.chain([(others * factor, palette::REST)]).collect(),
            spread: 0.0,
            value: time(all * 1e9),
        }
    };
    let bars: Vec<Bar> = told.iter().map(bar).collect();
    let share = |one: &Told<'_>, name: &str| {
        100.0 * one.time(|causes| causes.time(name)) / one.time(|causes| causes.all)
    };
    let about = told.iter().map(|one| {
        let parts: Vec<String> =
            named.iter().map(|name| format!("{name} {}%", plain(share(one, name), 1))).collect();
        format!("{}: {}", one.name, parts.join(", "))
    });
    let about = format!("{}.", about.collect::<Vec<_>>().join("; "));
    let axis = Axis::from_zero(format!("time of all tasks, {unit}"), bars::most(&bars), 6);
    let size = (WIDE, bars::height(bars.len()));
    let picture = draw("Work, and sleep for locks and devices", about, size, |canvas| {
        bars::draw(canvas, &bars, &axis, WIDE)
    })?;
    Ok(html! {
        h3 { "Where the tasks’ time goes" }
        ul class="key" aria-label="Colours of the causes" {
            @for (nth, name) in named.iter().enumerate() {
                li { span class={ "mark block " (palette::class(nth)) } aria-hidden="true" {} (name) }
            }
            @if !rest.is_empty() { li { span class="mark block rest" aria-hidden="true" {} "everything else" } }
        }
        div class="pictures" { (picture) }
        details {
            summary { "The numbers" }
            div class="wide" {
                table {
                    caption { "Shares of the tasks’ time, per cent" }
                    thead { tr { td {} @for one in &told { th scope="col" { (super::table::breakable(one.name)) } } } }
                    tbody {
                        @for name in &names {
                            tr {
                                th scope="row" { (name) }
                                @for one in &told { td { (plain(share(one, name), 2)) } }
                            }
                        }
                    }
                }
            }
        }
    })
}
