//! Boots as JSON: with `icount` the same bytes each time.

use serde_json::{Map, Value as Json, json};

use crate::json::{number, pretty, real};
use crate::metal::measure::{Boot, Study};
use crate::metal::plan::Plan;

/// One study, or an array of several, with a newline at the end. `host` adds what depends on the host.
pub fn studies(studies: &[Study], host: bool) -> String {
    let mut all: Vec<Json> = studies.iter().map(|one| study(one, host)).collect();
    pretty(&if all.len() == 1 { all.remove(0) } else { Json::Array(all) })
}

fn study(study: &Study, host: bool) -> Json {
    let plan = &study.plan;
    let mut out = head(plan);
    if study.interrupted() {
        out.insert("interrupted".to_string(), json!(true));
    }
    let policies = 0..plan.policies.len();
    let runs = policies
        .flat_map(|policy| study.of(policy).map(move |(seed, boot)| run(plan, policy, seed, boot, host)));
    out.insert("runs".to_string(), runs.collect());
    out.insert("command".to_string(), json!(plan.command(None)));
    Json::Object(out)
}

/// What ran, and on what.
pub fn head(plan: &Plan) -> Map<String, Json> {
    let mut out = Map::new();
    let mut put = |key: &str, value: Json| out.insert(key.to_string(), value);
    put("workload", json!(plan.workload.name()));
    put("on", json!("metal"));
    let accel = clap::ValueEnum::to_possible_value(&plan.accel);
    put("accel", json!(accel.as_ref().map(clap::builder::PossibleValue::get_name)));
    put("cpus", json!(plan.machine.cpus));
    put("memory_mib", json!(plan.machine.mib));
    if let Some(bytes) = plan.machine.disk {
        put("disk_mib", json!(bytes >> 20));
    }
    if let Some(frames) = plan.work {
        put("work_frames", json!(frames));
    }
    if let Some(period) = plan.period {
        put("period", json!(period));
    }
    put("seed", json!(plan.seed));
    if let Some(threads) = plan.threads {
        put("threads", json!(threads));
    }
    if !plan.sets.is_empty() {
        put("set", plan.sets.iter().map(|(key, value)| (key.clone(), json!(value))).collect());
    }
    if let Some(rule) = plan.broken {
        put("broken", json!(rule.name()));
    }
    out
}

fn run(plan: &Plan, policy: usize, seed: u64, boot: &Boot, host: bool) -> Json {
    let mut out = Map::new();
    let mut put = |key: &str, value: Json| out.insert(key.to_string(), value);
    put("policy", json!(plan.policies[policy].to_string()));
    if plan.runs > 1 {
        put("seed", json!(seed));
    }
    if let Some(head) = &boot.printed.head {
        put("frames", json!(head.frames));
    }
    put("metrics", metrics(boot));
    let printed = &boot.printed;
    if !printed.operations.is_empty() {
        let operations = printed.operations.iter().map(|one| {
            let times =
                json!({ "count": one.count, "mean": real(one.mean), "least": one.least, "most": one.most });
            (one.name.clone(), times)
        });
        put("operations", operations.collect());
    }
    if !printed.shootdowns.is_empty() {
        put("shootdowns", json!(printed.shootdowns));
    }
    if !printed.paces.is_empty() {
        put("paces", json!(printed.paces));
    }
    if plan.broken.is_some() {
        put("end", json!(boot.harm.as_deref().unwrap_or("well")));
        put("wrong", json!(printed.wrong));
    }
    if host {
        put("host", json!({ "host_s": real(boot.host_s) }));
    }
    Json::Object(out)
}

/// All figures of a boot.
pub fn metrics(boot: &Boot) -> Json {
    boot.metrics.iter().map(|metric| (metric.key.to_string(), number(metric.value))).collect()
}
