//! The results as a page: curves, their table, what failed, and how to have it again.

use maud::{Markup, html};
use quietmm_sim::{Figure, Value as Number};

use crate::process::ending::Failure;
use crate::report;
use crate::report::page::Page;
use crate::report::plot::axis::{Axis, scaled};
use crate::report::plot::bars::{self, Bar};
use crate::report::plot::lines::{self as plot, Line, Told};
use crate::report::plot::{Drawn, Picture, draw, palette};
use crate::report::policies::title;
use crate::report::section::key;
use crate::report::table::{breakable, number};
use crate::show::units::Scale;
use crate::study::command::CommandLine;
use crate::study::file::Target;
use crate::study::sample::Sample;
use crate::sweep::curves::{Curves, View, numbers};
use crate::sweep::header::{self, Values};
use crate::sweep::lines::Lines;
use crate::sweep::tally::Tally;
use crate::sweep::values::Value;

/// A picture: two stand side by side.
const SIZE: (u32, u32) = (370, 280);
/// Pictures of each figure.
const MOST_PICTURES: usize = 8;
/// Rows of a table.
const MOST_ROWS: usize = 1000;
/// Values as far apart as this are drawn by their ratios.
const FAR: f64 = 30.0;
/// A command line that is no longer is told.
const LONGEST: usize = 4000;

/// Writes it.
pub fn write(target: &Target, lines: &Lines, tally: &Tally, curves: &Curves) -> Result<(), Failure> {
    report::save(target, page(lines, tally, curves))
}

fn page(lines: &Lines, tally: &Tally, curves: &Curves) -> Drawn<Page> {
    let axes = lines.axes();
    let views = curves.views(lines);
    let parts = views.iter().enumerate().map(|(nth, view)| {
        let about = if nth == 0 { Some(about(lines, tally)) } else { None };
        Ok((view.workload.clone(), Section(view).markup(nth, &view.workload, about)?))
    });
    let parts = parts.collect::<Drawn<Vec<(String, Markup)>>>()?;
    let varied: Vec<&str> = axes.iter().map(|(name, _)| name.as_str()).collect();
    let workloads: Vec<&str> = views.iter().map(|view| view.workload.as_str()).collect();
    let title = format!("{} over {}", workloads.join(", "), varied.join(", "));
    Ok(Page {
        title,
        parts,
        again: "Each line of the results has the command that prints its figures again.",
    })
}

/// What was asked, what failed, and the command.
fn about(lines: &Lines, tally: &Tally) -> Markup {
    let (axes, header) = (lines.axes(), &lines.header);
    let missing = lines.all() - lines.done();
    html! {
        @if missing > 0 {
            p class="loud" { "Interrupted: " (lines.done()) " of " (lines.all()) " points are done. What follows is of those." }
        }
        @if let Some(shard) = &header.shard {
            p class="loud" { "Only the part " (shard) " of a grid of " (header.points) " points." }
        }
        @if tally.harmed > 0 {
            p class="loud" { "At " (tally.harmed) " points memory was used after it was freed, or data was lost." }
        }
        @if tally.failed > 0 {
            p class="loud" { (tally.failed) " of " (tally.done) " points failed:" }
            ul {
                @for (point, why) in &tally.errors { li { "point " (point) " (" (header::said(axes, *point)) "): " (why) } }
                @if tally.failed > tally.errors.len() as u64 { li { "and more" } }
            }
        }
        dl {
            @for (name, values) in axes { dt { (name) } dd { (listed(values)) } }
            @for (name, value) in &header.with { dt { (name) } dd { (value.as_str().map_or(value.to_string(), str::to_string)) } }
            dt { "points" } dd { (lines.done()) }
            @if let Some(command) = command(lines) { dt { "repeat" } dd { code class="command" { (command) } } }
        }
    }
}

fn listed(values: &[Value]) -> String {
    let all: Vec<String> = values.iter().map(Value::to_string).collect();
    match &all[..] {
        [first, .., last] if all.len() > 20 => format!("{} values from {first} to {last}", all.len()),
        _ => all.join(", "),
    }
}

/// The command line that has the same points.
fn command(lines: &Lines) -> Option<String> {
    let header = &lines.header;
    let text = |value: &serde_json::Value| value.as_str().map_or(value.to_string(), str::to_string);
    let workload = header.with.get("workload").map(text);
    let mut words =
        workload.map_or_else(|| CommandLine::bare("sweep"), |name| CommandLine::new("sweep", &name));
    for (name, values) in lines.axes() {
        let list = values.iter().map(Value::to_string).collect::<Vec<_>>().join(",");
        words.flag("--vary", format!("{name}={list}"));
    }
    for (name, value) in header.with.iter().filter(|(name, _)| *name != "workload") {
        match value.as_array() {
            Some(all) => all.iter().for_each(|one| words.flag(&format!("--{name}"), text(one))),
            None => words.flag(&format!("--{name}"), text(value)),
        }
    }
    words.option("--shard", header.shard.as_ref());
    Some(words.to_string()).filter(|line| line.len() <= LONGEST)
}

/// A line: which, what it is called, and its samples with their places across.
type Drawable = (usize, String, Vec<(usize, Sample)>);

/// A picture before its axes are known.
struct Drawing {
    title: String,
    lines: Vec<Drawable>,
}

impl Drawing {
    fn samples(&self) -> impl Iterator<Item = &Sample> {
        self.lines.iter().flat_map(|(.., samples)| samples.iter().map(|(_, one)| one))
    }
}

/// One workload.
struct Section<'a>(&'a View<'a>);

impl Section<'_> {
    fn markup(&self, nth: usize, workload: &str, about: Option<Markup>) -> Drawn<Markup> {
        Ok(html! {
            section id={ "s" (nth) } aria-labelledby={ "q" (nth) } {
                h2 id={ "q" (nth) } { (workload) }
                @if let Some(about) = about { (about) }
                @if self.0.mine.is_empty() {
                    p { "No point has figures." }
                } @else {
                    (self.key())
                    (self.pictures()?)
                    (self.table())
                }
            }
        })
    }

    fn key(&self) -> Markup {
        let Some(axis) = self.0.curves.roles.lines else { return html! {} };
        let lines = self.0.lines();
        let names: Vec<(usize, &str)> = lines.iter().map(|(nth, name)| (*nth, name.as_str())).collect();
        let (name, values) = &self.0.axes[axis];
        html! {
            (key(&names, "lines"))
            @if values.len() > names.len() {
                p class="dim" { "The first " (names.len()) " of " (values.len()) " values of " (name) " are drawn." }
            }
        }
    }

    fn pictures(&self) -> Drawn<Markup> {
        let frames = self.0.frames();
        let mut parts = Vec::new();
        for (nth, figure) in self.0.figures.iter().enumerate() {
            let drawn: Vec<Drawing> =
                frames.iter().take(MOST_PICTURES).map(|frame| self.drawing(nth, figure, frame)).collect();
            // All pictures of a figure have one axis, so that they can be compared.
            let ends = drawn.iter().flat_map(Drawing::samples).fold(
                (f64::INFINITY, 0.0f64),
                |(least, most), one| {
                    (one.number().min(least), (one.number() + one.spread.unwrap_or(0.0)).max(most))
                },
            );
            let drawn = drawn.iter().map(|drawing| self.picture(figure, drawing, ends));
            parts.push(drawn.collect::<Drawn<Vec<Option<Picture>>>>()?);
        }
        Ok(html! {
            @for pictures in &parts { div class="pictures" { @for picture in pictures.iter().flatten() { (picture) } } }
            @if frames.len() > MOST_PICTURES {
                p class="dim" { "The first " (MOST_PICTURES) " of " (frames.len()) " combinations are drawn; all are in the results." }
            }
        })
    }

    fn drawing(&self, nth: usize, figure: &'static Figure, frame: &[usize]) -> Drawing {
        let all = self
            .0
            .lines()
            .into_iter()
            .map(|(line, name)| (line, name, self.0.samples(nth, figure, frame, line)));
        let lines = all.filter(|(.., samples)| !samples.is_empty()).collect();
        let named = self.0.named(frame);
        let title = if named.is_empty() { title(figure) } else { format!("{}, {named}", title(figure)) };
        Drawing { title, lines }
    }

    fn picture(
        &self,
        figure: &'static Figure,
        Drawing { title, lines }: &Drawing,
        (least, most): (f64, f64),
    ) -> Drawn<Option<Picture>> {
        if lines.is_empty() {
            return Ok(None);
        }
        let all: Vec<&Sample> =
            lines.iter().flat_map(|(.., samples)| samples.iter().map(|(_, one)| one)).collect();
        let scale = Scale::of(figure, &all);
        let (factor, unit) = scaled(figure.unit, most);
        let label = if unit.is_empty() { figure.label } else { &unit };
        match self.0.curves.roles.across {
            Some(axis) => {
                let across = Across::of(&self.0.axes[axis]);
                let (y, place): (Axis, Box<dyn Fn(f64) -> f64>) = if least > 0.0 && most / least >= FAR {
                    let least = least * factor;
                    let axis = Axis::of_ratios(label, least, most * factor);
                    (axis, Box::new(move |value| Axis::of_ratio(value * factor, least)))
                } else {
                    (Axis::from_zero(label, most * factor, 5), Box::new(move |value| value * factor))
                };
                let about = self.about(figure, lines, &scale, axis);
                let drawn: Vec<Line> = lines
                    .iter()
                    .map(|(line, _, samples)| Line {
                        nth: *line,
                        points: samples
                            .iter()
                            .map(|(at, one)| (across.places[*at], place(one.number())))
                            .collect(),
                    })
                    .collect();
                let draw = draw(title.as_str(), about, SIZE, |canvas| {
                    plot::draw(canvas, &drawn, (&across.axis, &y), Told::ByMarks)
                });
                draw.map(Some)
            }
            None => {
                let bar = |(line, name, samples): &Drawable| Bar {
                    name: name.clone(),
                    pieces: vec![(samples[0].1.number() * factor, palette::colour(*line))],
                    spread: samples[0].1.spread.unwrap_or(0.0) * factor,
                    value: scale.show(&samples[0].1),
                };
                let bars: Vec<Bar> = lines.iter().map(bar).collect();
                let said: Vec<String> =
                    bars.iter().map(|bar| format!("{} {} {}", bar.name, bar.value, scale.unit)).collect();
                let about = format!("{}: {}.", figure.about, said.join("; "));
                let axis = Axis::from_zero(label, most * factor, 4);
                let size = (SIZE.0, bars::height(bars.len()));
                draw(title.as_str(), about, size, |canvas| bars::draw(canvas, &bars, &axis, SIZE.0)).map(Some)
            }
        }
    }

    /// A picture in words: where each line begins and ends.
    fn about(&self, figure: &Figure, lines: &[Drawable], scale: &Scale, axis: usize) -> String {
        let (name, values) = &self.0.axes[axis];
        let ends = lines.iter().filter_map(|(_, line, samples)| {
            let end = |(at, one): &(usize, Sample)| {
                format!("{} {} at {name} {}", scale.show(one), scale.unit, values[*at])
            };
            let (first, last) = (samples.first()?, samples.last()?);
            let of = if line.is_empty() { String::new() } else { format!("{line} ") };
            Some(if samples.len() > 1 {
                format!("{of}from {} to {}", end(first), end(last))
            } else {
                format!("{of}{}", end(first))
            })
        });
        format!("{}: {}.", figure.about, ends.collect::<Vec<_>>().join("; "))
    }

    fn table(&self) -> Markup {
        let (roles, figures) = (&self.0.curves.roles, self.0.figures);
        let hidden = |axis: usize| Some(axis) == roles.workload || Some(axis) == roles.seed;
        let axes: Vec<usize> = (0..self.0.axes.len()).filter(|&axis| !hidden(axis)).collect();
        let samples: Vec<Vec<Option<Sample>>> = self
            .0
            .mine
            .iter()
            .take(MOST_ROWS)
            .map(|(_, group)| {
                figures.iter().enumerate().map(|(nth, figure)| group.sample(nth, figure)).collect()
            })
            .collect();
        let scales: Vec<Scale> = figures
            .iter()
            .enumerate()
            .map(|(nth, figure)| {
                Scale::of(figure, &samples.iter().filter_map(|row| row[nth].as_ref()).collect::<Vec<_>>())
            })
            .collect();
        let seeds = || self.0.mine.iter().map(|(_, group)| group.seeds());
        let (fewest, most) = (seeds().min().unwrap_or(0), seeds().max().unwrap_or(0));
        let rows = self.0.mine.iter().zip(&samples);
        html! {
            h3 { "In figures" }
            div class="wide" {
                table {
                    caption {
                        @if most > 1 && fewest == most { "Means of " (most) " seeds ± standard deviation. " }
                        @if fewest != most { "Means of " (fewest) " to " (most) " seeds ± standard deviation. " }
                        @if let Some(said) = self.0.curves.unpaired() { (said) ". " }
                        @if self.0.mine.len() > MOST_ROWS { "The first " (MOST_ROWS) " of " (self.0.mine.len()) " rows; all are in the results." }
                    }
                    thead {
                        tr {
                            @for &axis in &axes { th scope="col" class="name" { (self.0.axes[axis].0) } }
                            @if fewest != most { th scope="col" { "seeds" } }
                            @for (figure, scale) in figures.iter().zip(&scales) {
                                th scope="col" { (figure.label) @if !scale.unit.is_empty() { ", " (scale.unit) } }
                            }
                        }
                    }
                    tbody {
                        @for ((places, group), samples) in rows {
                            tr {
                                @for (nth, &axis) in axes.iter().enumerate() {
                                    @let value = self.0.axes[axis].1[places[axis]].to_string();
                                    @if nth == 0 { th scope="row" { (breakable(&value)) } } @else { td class="name" { (breakable(&value)) } }
                                }
                                @if fewest != most { td { (group.seeds()) } }
                                @for ((figure, scale), sample) in figures.iter().zip(&scales).zip(samples) {
                                    @match sample {
                                        None => td { "–" },
                                        Some(sample) => {
                                            td data-figure=(figure.key) data-point=(group.point) data-seeds=(group.seeds())
                                                data-value=(number(sample.value))
                                                data-spread=[sample.spread.map(|spread| number(Number::Real(spread)))] {
                                                (scale.show(sample))
                                            }
                                        }
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// The axis from left to right.
struct Across {
    axis: Axis,
    /// Of each value.
    places: Vec<f64>,
}

impl Across {
    /// By ratios where values are doublings, or otherwise far apart.
    fn of(axis: &Values) -> Across {
        let values = numbers(axis).unwrap_or_default();
        let mut sorted = values.clone();
        sorted.sort_by(f64::total_cmp);
        let gaps: Vec<f64> = sorted.windows(2).map(|two| two[1] - two[0]).collect();
        let (small, large) =
            (gaps.iter().copied().fold(f64::INFINITY, f64::min), gaps.iter().copied().fold(0.0, f64::max));
        let least = sorted.first().copied().unwrap_or(0.0);
        let ratios = least > 0.0 && large >= 2.0 * small;
        let place = |value: &f64| if ratios { Axis::of_ratio(*value, least) } else { *value };
        let places: Vec<f64> = values.iter().map(place).collect();
        let mut names: Vec<(f64, String)> =
            places.iter().copied().zip(axis.1.iter().map(Value::to_string)).collect();
        names.sort_by(|a, b| a.0.total_cmp(&b.0));
        Across { axis: Axis::of_names(axis.0.clone(), &names, SIZE.0 - 70), places }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doublings_stand_at_their_ratios_and_steps_at_their_values() {
        let axis =
            |values: &[u64]| ("cpus".to_string(), values.iter().map(|&value| Value::Number(value)).collect());
        let places = Across::of(&axis(&[1, 10, 100])).places;
        assert!((places[2] - 2.0 * places[1]).abs() < 1e-8 && places[0] == 0.0, "{places:?}");
        assert_eq!(Across::of(&axis(&[1, 2, 3, 4])).places, [1.0, 2.0, 3.0, 4.0]);
        assert_eq!(Across::of(&axis(&[0, 8, 64])).places, [0.0, 8.0, 64.0], "nothing has no ratio");
        let back = Across::of(&axis(&[4, 2, 1]));
        assert!(back.places[0] > back.places[1] && back.axis.ticks[0].1 == "1");
    }
}
