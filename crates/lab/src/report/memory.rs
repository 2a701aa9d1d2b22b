//! What memory does over time, and what is done to other CPUs meanwhile.

use maud::{Markup, html};
use quietmm_sim::{Moment, Traffic};

use super::plot::axis::{Axis, said, scaled};
use super::plot::lines::{self, Line, Told};
use super::plot::{Drawn, Picture, draw};
use crate::show::units::time;
use crate::study::result::Column;

/// The size of a picture: two stand side by side.
const SIZE: (u32, u32) = (370, 250);
/// Frames of a MiB.
const MIB: f64 = 256.0;

/// What is drawn: what it is called, and what it was at a moment.
type Shown = (&'static str, &'static str, fn(&Moment) -> f64);

/// A policy's first run.
type First<'a> = (usize, &'a str, &'a Traffic);

/// The pictures.
pub fn part(columns: &[Column<'_>]) -> Drawn<Markup> {
    let firsts: Vec<First<'_>> = columns
        .iter()
        .filter_map(|column| Some((column.policy, column.name, column.runs.first()?.traffic.as_ref()?)))
        .collect();
    let all: [Shown; 3] = [
        ("memory in use", "MiB", |moment| moment.used as f64 / MIB),
        ("pages reclaimed so far", "pages", |moment| moment.reclaimed as f64),
        ("IPIs received so far", "IPIs", |moment| moment.ipis as f64),
    ];
    let says = |(_, _, value): &&Shown| {
        firsts.iter().any(|(_, _, one)| one.moments.iter().any(|at| value(at) > 0.0))
    };
    let pictures = all.iter().filter(says).map(|shown| picture(&firsts, shown));
    let pictures = pictures.collect::<Drawn<Vec<Picture>>>()?;
    let memory = firsts.first().map_or(0.0, |(_, _, one)| one.frames as f64 / MIB);
    Ok(html! {
        @if !pictures.is_empty() {
            h3 { "Memory over time" }
            p class="dim" {
                "The first seed, in the machine’s time, from the first event to the end of the last task. Memory has " (said(memory)) " MiB."
            }
            div class="pictures" { @for picture in &pictures { (picture) } }
        }
    })
}

fn picture(firsts: &[First<'_>], &(title, unit, value): &Shown) -> Drawn<Picture> {
    let moments = || firsts.iter().flat_map(|(_, _, one)| &one.moments);
    let last = moments().map(|moment| moment.ps).max().unwrap_or(0) as f64 / 1e12;
    let (factor, time_unit) = scaled("s", last);
    let line = |&(policy, _, one): &First<'_>| Line {
        nth: policy,
        points: one.moments.iter().map(|moment| (moment.ps as f64 / 1e12 * factor, value(moment))).collect(),
    };
    let lines: Vec<Line> = firsts.iter().map(line).collect();
    let x = Axis::from_zero(format!("time, {time_unit}"), last * factor, 4);
    let y = Axis::from_zero(unit, moments().map(value).fold(0.0, f64::max), 4);
    let about = firsts.iter().filter_map(|(_, name, one)| {
        let most = one.moments.iter().map(value).fold(0.0, f64::max);
        let end = one.moments.last()?;
        let [most, last] = [most, value(end)].map(|value| said(value.round()));
        Some(format!("{name}: at most {most} {unit}, {last} at the end after {}", time(end.ps as f64 / 1e3)))
    });
    let about = format!("{}.", about.collect::<Vec<_>>().join("; "));
    draw(title, about, SIZE, |canvas| lines::draw(canvas, &lines, (&x, &y), Told::ByStrokes))
}
