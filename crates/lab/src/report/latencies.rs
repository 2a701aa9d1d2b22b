//! How long operations took: how the times are spread, their quantiles, and the curve of one-page shootdowns over CPUs.

use maud::{Markup, html};
use quietmm_sim::{Bin, Latency, Value};

use super::plot::axis::{Axis, logarithm, said_time};
use super::plot::lines::{self, Line, Told};
use super::plot::{Drawn, Picture, WIDE, draw};
use super::table::number;
use crate::show::gain::plain;
use crate::show::units::time;
use crate::study::Run;
use crate::study::result::{Column, Timing};

/// The size of a distribution: two stand side by side.
const SIZE: (u32, u32) = (370, 260);
/// The size of the curve.
const CURVE: (u32, u32) = (WIDE, 320);
/// Operations that are drawn; the table has all.
const MOST_DRAWN: usize = 8;
/// Numbers along an axis of times.
const NUMBERS: usize = 4;
/// Lines of a table that is shown at once.
const SHORT: usize = 16;
/// Operations of which too few were measured have no distribution.
const FEW: u64 = 10;

/// The quantiles that are drawn: of how many, and how long.
type Quantile = (&'static str, &'static str, fn(&Latency) -> u64);
const QUANTILES: [Quantile; 5] = [
    ("50%", "p50", |one| one.p50),
    ("90%", "p90", |one| one.p90),
    ("99%", "p99", |one| one.p99),
    ("99.9%", "p999", |one| one.p999),
    ("all", "max", |one| one.max),
];

/// A policy's first run, which stands for all of its seeds.
struct First<'a> {
    policy: usize,
    name: &'a str,
    run: &'a Run,
}

/// The pictures and the tables.
pub fn part(columns: &[Column<'_>]) -> Drawn<Markup> {
    let firsts: Vec<First<'_>> = columns
        .iter()
        .filter_map(|column| {
            Some(First { policy: column.policy, name: column.name, run: column.runs.first()? })
        })
        .collect();
    Ok(html! { (curve(&firsts)?) (distributions(&firsts)?) })
}

fn distributions(firsts: &[First<'_>]) -> Drawn<Markup> {
    let mut ops: Vec<&str> = Vec::new();
    for timing in firsts.iter().flat_map(|first| &first.run.latency) {
        if !ops.contains(&timing.op) && !ops.iter().any(|known| alike(firsts, known, timing.op)) {
            ops.push(timing.op);
        }
    }
    let Some(seed) = firsts.first().filter(|_| !ops.is_empty()).map(|first| first.run.seed) else {
        return Ok(html! {});
    };
    let drawn = ops
        .iter()
        .filter(|op| timings(firsts, op).any(|(_, timing)| timing.all.count >= FEW))
        .take(MOST_DRAWN);
    let pictures: Vec<[Picture; 2]> =
        drawn.map(|op| Ok([spread(firsts, op)?, distribution(firsts, op)?])).collect::<Drawn<_>>()?;
    let rows: Vec<Markup> = ops.iter().flat_map(|op| rows(firsts, op)).collect();
    let table = html! {
        div class="wide" {
            table {
                thead {
                    tr {
                        th scope="col" { "operation" } th scope="col" { "pages" } th scope="col" class="name" { "policy" }
                        th scope="col" { "count" } th scope="col" { "mean" }
                        @for (_, name, _) in QUANTILES { th scope="col" { (if name == "p999" { "p99.9" } else { name }) } }
                    }
                }
                tbody { @for row in &rows { (row) } }
            }
        }
    };
    Ok(html! {
        h3 { "How long operations took" }
        p class="dim" {
            "Seed " (seed) ". On the left how many took about so long: each step is a quarter longer than the one before it. On the right so many of a "
            "hundred took no longer than this. Times are on a logarithmic scale."
        }
        div class="pictures" { @for picture in pictures.iter().flatten() { (picture) } }
        @if rows.len() <= SHORT { (table) } @else { details { summary { "The numbers" } (table) } }
    })
}

/// Whether two operations took as long with every policy: a stall is nothing but one reclaim, mostly.
fn alike(firsts: &[First<'_>], a: &str, b: &str) -> bool {
    let all = |op| timings(firsts, op).map(|(first, timing)| (first.policy, timing.all)).collect::<Vec<_>>();
    all(a) == all(b)
}

/// What each policy has of an operation.
fn timings<'a>(firsts: &'a [First<'a>], op: &'a str) -> impl Iterator<Item = (&'a First<'a>, &'a Timing)> {
    firsts
        .iter()
        .filter_map(move |first| Some((first, first.run.latency.iter().find(|timing| timing.op == op)?)))
}

/// What part of them took about so long.
fn spread(firsts: &[First<'_>], op: &str) -> Drawn<Picture> {
    let all: Vec<(&First<'_>, &Timing)> =
        timings(firsts, op).filter(|(_, timing)| timing.all.count >= FEW).collect();
    let share = |timing: &Timing, bin: &Bin| 100.0 * bin.count as f64 / timing.all.count as f64;
    let line = |(first, timing): &(&First<'_>, &Timing)| {
        let mut points = Vec::new();
        for bin in &timing.bins {
            let high = share(timing, bin);
            points.extend([bin.from, bin.to].map(|ns| (logarithm(ns as f64), high)));
        }
        // Down to nothing at both ends.
        let ends = [points.first(), points.last()].map(|end| end.map(|(at, _)| (*at, 0.0)));
        let [begin, end] = ends.map(Option::into_iter);
        Line { nth: first.policy, points: begin.chain(points).chain(end).collect() }
    };
    let lines: Vec<Line> = all.iter().map(line).collect();
    let bins = || all.iter().flat_map(|(_, timing)| timing.bins.iter().map(move |bin| (*timing, bin)));
    let least = bins().map(|(_, bin)| bin.from as f64).fold(f64::INFINITY, f64::min);
    let most = bins().map(|(_, bin)| bin.to as f64).fold(0.0, f64::max);
    let x = Axis::of_times("took", least, most).with_at_most(NUMBERS);
    let y = Axis::from_zero(
        "share of operations, %",
        bins().map(|(timing, bin)| share(timing, bin)).fold(0.0, f64::max),
        4,
    );
    let about = all.iter().filter_map(|(first, timing)| {
        let most = timing.bins.iter().max_by_key(|bin| bin.count)?;
        let [from, to] = [most.from, most.to].map(|ns| said_time(ns as f64));
        let often = plain(share(timing, most), 1);
        Some(format!("{}: most often from {from} to {to}, {often} % of {}", first.name, timing.all.count))
    });
    let about = format!("{}.", about.collect::<Vec<_>>().join("; "));
    draw(format!("{op}: how many took how long"), about, SIZE, |canvas| {
        lines::draw(canvas, &lines, (&x, &y), Told::ByStrokes)
    })
}

fn distribution(firsts: &[First<'_>], op: &str) -> Drawn<Picture> {
    let all: Vec<(&First<'_>, &Timing)> =
        timings(firsts, op).filter(|(_, timing)| timing.all.count >= FEW).collect();
    let ns = |at: &Quantile, timing: &Timing| (at.2(&timing.all) as f64).max(1.0);
    let line = |(first, timing): &(&First<'_>, &Timing)| Line {
        nth: first.policy,
        points: QUANTILES
            .iter()
            .enumerate()
            .map(|(nth, at)| (nth as f64, logarithm(ns(at, timing))))
            .collect(),
    };
    let lines: Vec<Line> = all.iter().map(line).collect();
    let least = all.iter().map(|(_, timing)| ns(&QUANTILES[0], timing)).fold(f64::INFINITY, f64::min);
    let most = all.iter().map(|(_, timing)| ns(&QUANTILES[4], timing)).fold(0.0, f64::max);
    let ticks = QUANTILES.iter().enumerate().map(|(nth, (label, _, _))| (nth as f64, (*label).to_string()));
    let x = Axis { label: "share of operations".into(), ends: (-0.2, 4.2), ticks: ticks.collect() };
    let y = Axis::of_times("took at most", least, most);
    let about = all.iter().map(|(first, timing)| {
        let one = &timing.all;
        let [p50, p99, max] = [one.p50, one.p99, one.max].map(|ns| said_time(ns as f64));
        format!(
            "{}: half of {} took at most {p50}, 99 of 100 {p99}, the longest {max}",
            first.name, one.count
        )
    });
    let about = format!("{}.", about.collect::<Vec<_>>().join("; "));
    draw(format!("{op}: quantiles"), about, SIZE, |canvas| {
        lines::draw(canvas, &lines, (&x, &y), Told::ByMarks)
    })
}

fn rows(firsts: &[First<'_>], op: &str) -> Vec<Markup> {
    let mut rows = Vec::new();
    for (first, timing) in timings(firsts, op) {
        let by_pages = timing.by_pages.iter().filter(|_| timing.goes_by_pages);
        let each = by_pages.map(|(pages, one)| (pages.to_string(), one));
        for (pages, one) in each.chain([("all".to_string(), &timing.all)]) {
            let cell = |key: &str, value: Value, shown: String| {
                html! {
                    td data-latency=(op) data-pages=(pages) data-policy=(first.policy) data-key=(key) data-value=(number(value)) {
                        (shown)
                    }
                }
            };
            rows.push(html! {
                tr {
                    th scope="row" { (op) } td { (pages) } td class="name" { (first.name) }
                    (cell("count", Value::Int(one.count), one.count.to_string()))
                    (cell("mean", Value::Real(one.mean), time(one.mean)))
                    @for (_, key, of) in QUANTILES { (cell(key, Value::Int(of(one)), time(of(one) as f64))) }
                }
            });
        }
    }
    rows
}

/// How long the unmapping of one page takes, by the CPUs that have it cached.
fn curve(firsts: &[First<'_>]) -> Drawn<Markup> {
    let with: Vec<&First<'_>> = firsts.iter().filter(|first| !first.run.curve.is_empty()).collect();
    let Some(seed) = with.first().map(|first| first.run.seed) else { return Ok(html! {}) };
    let points = || with.iter().flat_map(|first| &first.run.curve);
    let line = |first: &&First<'_>| Line {
        nth: first.policy,
        points: first.run.curve.iter().map(|point| (f64::from(point.cpus), point.mean_us)).collect(),
    };
    let lines: Vec<Line> = with.iter().map(line).collect();
    let x = Axis::from_zero(
        "CPUs that had the page cached",
        points().map(|point| point.cpus).max().unwrap_or(1).into(),
        8,
    );
    let y = Axis::from_zero("mean, us", points().map(|point| point.mean_us).fold(0.0, f64::max), 5);
    let about = with.iter().filter_map(|first| {
        let (least, most) = (first.run.curve.first()?, first.run.curve.last()?);
        let [from, to] =
            [least, most].map(|point| format!("{} with {} CPUs", said_time(point.mean_us * 1e3), point.cpus));
        Some(format!("{}: {from}, {to}", first.name))
    });
    let about = format!("{}.", about.collect::<Vec<_>>().join("; "));
    let picture = draw("One page unmapped", about, CURVE, |canvas| {
        lines::draw(canvas, &lines, (&x, &y), Told::ByMarks)
    })?;
    Ok(html! {
        h3 { "The cost of one shootdown" }
        p class="dim" { "One CPU unmaps a page that all these have cached; seed " (seed) "." }
        div class="pictures" { (picture) }
        details {
            summary { "The numbers" }
            div class="wide" {
                table {
                    thead {
                        tr {
                            th scope="col" { "policy" }
                            @for name in ["CPUs", "sockets", "mean", "p50", "p99", "IPIs"] { th scope="col" { (name) } }
                        }
                    }
                    tbody {
                        @for first in &with {
                            @for (nth, point) in first.run.curve.iter().enumerate() {
                                tr {
                                    th scope="row" { (first.name) }
                                    @for (key, count) in [("cpus", point.cpus), ("sockets", point.sockets)] {
                                        td data-curve=(nth) data-policy=(first.policy) data-key=(key) data-value=(count) { (count) }
                                    }
                                    @for (key, us) in [("mean_us", point.mean_us), ("p50_us", point.p50_us), ("p99_us", point.p99_us)] {
                                        td data-curve=(nth) data-policy=(first.policy) data-key=(key)
                                            data-value=(number(Value::Real(us))) { (time(us * 1e3)) }
                                    }
                                    td data-curve=(nth) data-policy=(first.policy) data-key="ipis"
                                        data-value=(number(Value::Real(point.ipis))) { (format!("{:.1}", point.ipis)) }
                                }
                            }
                        }
                    }
                }
            }
        }
    })
}
