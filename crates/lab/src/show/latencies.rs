//! What was measured operation by operation, as text: the curve of one-page shootdowns, and quantiles by pages.

use quietmm_sim::Latency;

use crate::show::bar::bar;
use crate::show::table::grid;
use crate::show::units::time;
use crate::show::wrap::hanging;
use crate::study::result::{Column, Point, Timing};

/// The longest bar beside a curve.
const BAR: usize = 20;

/// The tables of all policies; the first seed stands for all. What is the same with several policies is shown once.
pub fn tables(columns: &[Column<'_>], width: usize) -> String {
    let firsts = || columns.iter().filter_map(|column| Some((column.name, *column.runs.first()?)));
    let seed = firsts().next().map_or(0, |(_, run)| run.seed);
    let curves = firsts().map(|(name, run)| (name, curve(&run.curve)));
    let timings = firsts().map(|(name, run)| (name, timings(&run.latency)));
    once(curves, width, &format!("One CPU unmaps a page that all these have cached, seed {seed}"))
        + &once(timings, width, &format!("How long each operation took, seed {seed}"))
}

/// Each table under the names of all policies that have it.
fn once<'a>(tables: impl Iterator<Item = (&'a str, String)>, width: usize, title: &str) -> String {
    let mut all: Vec<(Vec<&str>, String)> = Vec::new();
    for (name, table) in tables.filter(|(_, table)| !table.is_empty()) {
        match all.iter_mut().find(|(_, known)| *known == table) {
            Some((names, _)) => names.push(name),
            None => all.push((vec![name], table)),
        }
    }
    let table = |(names, table): &(Vec<&str>, String)| {
        let title = format!("{title} [{}]", names.join("; the same with "));
        format!("\n{}{table}", hanging(width, "", &title))
    };
    all.iter().map(table).collect()
}

fn curve(points: &[Point]) -> String {
    if points.is_empty() {
        return String::new();
    }
    let most = points.iter().map(|point| point.mean_us).fold(0.0, f64::max);
    let mut rows = vec![["CPUs", "sockets", "mean", "p50", "p99", "IPIs", ""].map(String::from).to_vec()];
    rows.extend(points.iter().map(|point| {
        let [mean, p50, p99] = [point.mean_us, point.p50_us, point.p99_us].map(|us| time(us * 1e3));
        let ipis = format!("{:.1}", point.ipis);
        vec![
            point.cpus.to_string(),
            point.sockets.to_string(),
            mean,
            p50,
            p99,
            ipis,
            bar(point.mean_us, most, BAR),
        ]
    }));
    grid("rrrrrrl", &rows)
}

fn timings(all: &[Timing]) -> String {
    if all.is_empty() {
        return String::new();
    }
    let head = ["", "pages", "count", "mean", "p50", "p90", "p99", "max"];
    let mut rows = vec![head.map(String::from).to_vec()];
    for timing in all {
        // Of the others the JSON has all.
        let by_pages = timing.by_pages.iter().filter(|_| timing.goes_by_pages);
        rows.extend(by_pages.map(|(pages, one)| row(timing.op, &pages.to_string(), one)));
        let line = row(timing.op, "all", &timing.all);
        // A stall is nothing but one reclaim, mostly.
        if rows.last().is_none_or(|last| last[1..] != line[1..]) {
            rows.push(line);
        }
    }
    grid("lrrrrrrr", &rows)
}

fn row(op: &str, pages: &str, one: &Latency) -> Vec<String> {
    let times = [one.mean, one.p50 as f64, one.p90 as f64, one.p99 as f64, one.max as f64].map(time);
    [op.to_string(), pages.to_string(), one.count.to_string()].into_iter().chain(times).collect()
}
