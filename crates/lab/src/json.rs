//! A study as JSON. Keys keep their order, and numbers are written with fixed decimals, so that the same runs
//! give the same bytes.

use quietmm_sim::{Latencies, Latency, Report, Shot, Value};
use serde_json::{Map, Number, Value as Json, json};

use crate::figure::{self, mean_and_spread};
use crate::measure::{Column, Study};
use crate::{profile, text};

/// Digits behind the point of every real number: more than a table shows, so that gains can be computed again.
const DECIMALS: usize = 6;

/// One study, or an array of several, with a newline at the end. `host` adds what depends on the host.
pub fn studies(studies: &[Study], host: bool) -> String {
    let mut all: Vec<Json> = studies.iter().map(|one| study(one, host)).collect();
    pretty(&if all.len() == 1 { all.remove(0) } else { Json::Array(all) })
}

/// JSON for people to read too, with a newline at the end.
pub fn pretty(value: &Json) -> String {
    format!("{value:#}\n")
}

fn study(study: &Study, host: bool) -> Json {
    let plan = &study.plan;
    let columns = study.columns();
    let mut out = Map::new();
    let mut put = |key: &str, value: Json| out.insert(key.to_string(), value);
    put("workload", json!(plan.workload.name()));
    put("machine", json!(plan.machine.name));
    put("cpus", json!(plan.machine.cpus));
    put("scale", json!(plan.scale));
    put("seed", json!(plan.seed));
    if let Some(trace) = &plan.trace {
        put("trace", json!(trace.name));
    }
    if let Some(threads) = plan.threads {
        put("threads", json!(threads));
    }
    if let Some(parts) = plan.parts {
        put("parts", json!(parts));
    }
    if !plan.sets.is_empty() {
        let sets: Map<String, Json> =
            plan.sets.iter().map(|(key, value)| (key.clone(), json!(value))).collect();
        put("set", Json::Object(sets));
    }
    if let Some(rule) = plan.broken {
        put("broken", json!(rule.name()));
    }
    if study.interrupted() {
        put("interrupted", json!(true));
    }
    put("runs", columns.iter().flat_map(|column| runs(study, column, host)).collect());
    if plan.runs > 1 {
        put("summary", columns.iter().map(|column| summary(study, column)).collect());
    }
    put("notes", json!(text::notes(&columns)));
    put("command", json!(plan.command()));
    Json::Object(out)
}

fn runs(study: &Study, column: &Column<'_>, host: bool) -> Vec<Json> {
    let policy = study.plan.policies[column.policy].to_string();
    column.runs.iter().map(|(seed, report)| run(study, &policy, *seed, report, host)).collect()
}

fn run(study: &Study, policy: &str, seed: u64, report: &Report, host: bool) -> Json {
    let mut out = Map::new();
    out.insert("policy".to_string(), json!(policy));
    if study.plan.runs > 1 {
        out.insert("seed".to_string(), json!(seed));
    }
    let metrics: Map<String, Json> =
        report.metrics.iter().map(|metric| (metric.key.to_string(), number(metric.value))).collect();
    out.insert("metrics".to_string(), Json::Object(metrics));
    if !report.latencies.is_empty() {
        out.insert("curve".to_string(), curve(&report.latencies));
        out.insert("latency".to_string(), latencies(&report.latencies));
    }
    if let Some(profile) = &report.profile {
        out.insert("profile".to_string(), profile::json(profile));
    }
    if study.plan.broken.is_some() || !report.stories.is_empty() {
        out.insert("stories".to_string(), json!(report.stories));
    }
    if host {
        let figures = json!({
            "host_s": real(report.host.host_s),
            "events": report.host.events,
            "reclaimed_pages_per_host_s": real(report.host.reclaimed_pages_per_host_s),
            "host_peak_rss_mib": report.host.host_peak_rss_mib,
        });
        out.insert("host".to_string(), figures);
    }
    Json::Object(out)
}

/// The curve of one-page shootdowns.
fn curve(latencies: &Latencies) -> Json {
    let point = |shot: Shot| {
        json!({
            "cpus": shot.cpus,
            "sockets": shot.sockets,
            "rounds": shot.latency.count,
            "mean_us": real(shot.latency.mean / 1e3),
            "p50_us": real(shot.latency.p50 as f64 / 1e3),
            "p99_us": real(shot.latency.p99 as f64 / 1e3),
            "ipis": real(shot.ipis),
        })
    };
    latencies.curve().map(point).collect()
}

/// By operation, then by pages, in nanoseconds.
fn latencies(latencies: &Latencies) -> Json {
    let of = |latency: Latency| {
        let Latency { count, mean, p50, p90, p99, p999, max } = latency;
        json!({
            "count": count, "mean": real(mean), "p50": p50, "p90": p90, "p99": p99, "p999": p999, "max": max,
        })
    };
    let by_pages = |op| {
        let all = std::iter::once(("all".to_string(), of(latencies.over_all(op))));
        let each = latencies.by_pages(op).map(|(pages, one)| (pages.to_string(), of(one)));
        Json::Object(each.chain(all).collect())
    };
    let ops = latencies.ops();
    Json::Object(ops.into_iter().map(|op| (op.name().to_string(), by_pages(op))).collect())
}

fn summary(study: &Study, column: &Column<'_>) -> Json {
    let metrics: Map<String, Json> = column
        .figures
        .iter()
        .map(|figure| {
            let values: Vec<f64> = column
                .runs
                .iter()
                .flat_map(|(_, report)| report.metrics.iter().filter(|metric| metric.key == figure.key))
                .map(|metric| figure::number(metric.value))
                .collect();
            let (mean, stddev) = mean_and_spread(&values);
            (figure.key.to_string(), json!({ "mean": real(mean), "stddev": real(stddev) }))
        })
        .collect();
    json!({
        "policy": study.plan.policies[column.policy].to_string(),
        "runs": column.runs.len(),
        "metrics": Json::Object(metrics),
    })
}

/// A figure: a count as it is, anything else with fixed decimals.
pub fn number(value: Value) -> Json {
    match value {
        Value::Int(value) => json!(value),
        Value::Real { value, .. } => real(value),
    }
}

/// A real number with fixed decimals; what is no number (never meant to happen) is null.
pub fn real(value: f64) -> Json {
    let text = format!("{value:.DECIMALS$}");
    text.parse::<Number>().map_or(Json::Null, Json::Number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reals_have_fixed_decimals_and_integers_none() {
        assert_eq!(number(Value::Real { value: 120.68, decimals: 2 }).to_string(), "120.680000");
        assert_eq!(number(Value::Int(u64::MAX)).to_string(), u64::MAX.to_string());
        assert_eq!(real(f64::NAN), Json::Null);
    }
}
