//! What was measured operation by operation, as text: the curve of one-page shootdowns, and quantiles by pages.

use std::fmt::Write;

use quietmm_sim::{Latencies, Latency, Op, Shot};

/// Names of operations are padded to this width.
const NAME: usize = 14;

/// Both tables of one run, in microseconds; nothing if nothing was measured.
pub fn tables(title: &str, latencies: &Latencies) -> String {
    let mut out = String::new();
    if latencies.curve().next().is_some() {
        let _ = writeln!(out, "\nOne CPU unmaps a page that all these have cached, us [{title}]");
        let _ = writeln!(
            out,
            "{:>7} {:>8} {:>10} {:>10} {:>10} {:>8}",
            "CPUs", "sockets", "mean", "p50", "p99", "IPIs"
        );
        for Shot { cpus, sockets, latency, ipis } in latencies.curve() {
            let [mean, p50, p99] = [latency.mean, latency.p50 as f64, latency.p99 as f64].map(us);
            let _ = writeln!(out, "{cpus:>7} {sockets:>8} {mean:>10} {p50:>10} {p99:>10} {ipis:>8.1}");
        }
    }
    if !latencies.ops().is_empty() {
        let _ = writeln!(out, "\nHow long each operation took, us [{title}]");
        let names = ["mean", "p50", "p90", "p99", "max"].map(|name| format!(" {name:>9}")).concat();
        let _ = writeln!(out, "{:<NAME$} {:>5} {:>8}{names}", "", "pages", "count");
    }
    for op in latencies.ops() {
        // Of the others the JSON has all.
        if op.goes_by_pages() {
            latencies.by_pages(op).for_each(|(pages, one)| line(&mut out, op, &pages.to_string(), one));
        }
        line(&mut out, op, "all", latencies.over_all(op));
    }
    out
}

fn line(out: &mut String, op: Op, pages: &str, Latency { count, mean, p50, p90, p99, max, .. }: Latency) {
    let times = [mean, p50 as f64, p90 as f64, p99 as f64, max as f64].map(|ns| format!(" {:>9}", us(ns)));
    let _ = writeln!(out, "{:<NAME$} {pages:>5} {count:>8}{}", op.name(), times.concat());
}

/// Nanoseconds as microseconds; a tenth of a second and more as whole ones.
fn us(ns: f64) -> String {
    if ns < 1e8 { format!("{:.2}", ns / 1e3) } else { format!("{:.0}", ns / 1e3) }
}
