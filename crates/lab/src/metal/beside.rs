//! Simulation and metal side by side, as text and as JSON, and how far they differ.

use std::fmt::Write;

use quietmm_sim::machine::Machine;
use serde_json::{Map, Value as Json, json};

use crate::figure::Figure;
use crate::gain::{self, Gain};
use crate::json::{number, real};
use crate::metal::args::Asked;
use crate::metal::both::{MACHINE, Pair};
use crate::metal::measure::Study;
use crate::metal::{json as boots, text as origins};
use crate::plan::quoted;
use crate::table::{self, Cell, Line};
use crate::wrap::hanging;

/// What is compared: counts that both machines have. Times are not: an emulator's are none.
const ROWS: [&str; 23] = [
    "ipis_sent",
    "ipis_received",
    "nr_tlb_remote_flush",
    "nr_tlb_remote_flush_received",
    "pages_reclaimed",
    "ipis_per_reclaimed_page",
    "flushes_received_per_reclaimed_page",
    "pages_per_flush",
    "flushes_full",
    "flushes_page",
    "nr_tlb_local_flush_kernel",
    "tlb_lazy_skipped",
    "flush_targets",
    "tlb_batch_flushes",
    "tlb_batch_pages",
    "pgfault",
    "pgmajfault",
    "pgalloc",
    "pgsteal_kswapd",
    "pgsteal_direct",
    "pgscan_kswapd",
    "pgscan_direct",
    "vmap_purges",
];

/// A difference above this many per cent is pointed at.
const MUCH: f64 = 10.0;
/// All that is shown of one workload.
pub struct Beside<'a> {
    /// What was booted.
    pub study: &'a Study,
    /// Policies that finished on both.
    pub pairs: &'a [Pair],
    /// The simulated machine, but for its memory.
    pub machine: &'a Machine,
    /// What it was called on the command line.
    pub machine_name: &'a str,
    /// What was asked for.
    pub asked: &'a Asked<'a>,
}

impl Pair {
    /// Both figures of a row.
    fn row(&self, key: &str) -> Option<(&Figure, &Figure)> {
        let find = |figures: &'_ [Figure]| figures.iter().position(|figure| figure.key == key);
        Some((&self.metal[find(&self.metal)?], &self.simulated[find(&self.simulated)?]))
    }

    /// The rows that say anything, not those that are zero on both: those that matter, or all that both machines have.
    fn rows(&self, all: bool) -> impl Iterator<Item = (&Figure, &Figure)> {
        let others = self.metal.iter().map(|figure| figure.key).filter(move |key| all && !ROWS.contains(key));
        let rows = ROWS.into_iter().chain(others).filter_map(|key| self.row(key));
        rows.filter(|(metal, simulated)| metal.number() != 0.0 || simulated.number() != 0.0)
    }
}

/// By how many per cent of metal's figure the simulation's is larger; nothing if metal's is zero.
fn difference(metal: f64, simulated: f64) -> Option<f64> {
    (metal != 0.0).then(|| 100.0 * (simulated - metal) / metal)
}
/// As text.
pub fn text(beside: &Beside<'_>) -> String {
    let Beside { study, pairs, machine, machine_name, asked } = *beside;
    let plan = &study.plan;
    let mut out = String::new();
    if pairs.len() < plan.policies.len() {
        let _ = writeln!(out, "INTERRUPTED: {} of {} policies finished\n", pairs.len(), plan.policies.len());
    }
    let mut lines = Vec::new();
    for pair in pairs {
        lines.push(Line::Title(plan.policies[pair.policy].to_string()));
        lines.extend(pair.rows(asked.stats).map(|(metal, simulated)| {
            let decimals = metal.decimals().max(simulated.decimals());
            let far = difference(metal.number(), simulated.number());
            let cells = vec![
                Cell { value: metal.shown(decimals), gain: Gain::None },
                Cell { value: simulated.shown(decimals), gain: far.map_or(Gain::Undefined, Gain::Percent) },
            ];
            Line::Row(simulated.label.to_string(), cells, if is_much(far) { "*" } else { "" })
        }));
        lines.push(Line::Gap);
    }
    lines.pop();
    out.push_str(&table::lay_out(&["metal".to_string(), "simulation".to_string()], &lines));
    out.push('\n');
    out.push_str(&hanging("verdict  ", &verdict(beside)));
    if asked.explain {
        out.push_str(&explanations(beside));
    }
    out.push_str(&origins::origin(plan));
    let frames = study
        .boots
        .iter()
        .flatten()
        .find_map(|boot| boot.printed.head.as_ref())
        .map_or(0, |head| head.frames);
    let mib = gain::plain(frames as f64 / 256.0, 1);
    out.push_str(&hanging(
        "beside   ",
        &format!(
            "{machine_name} with {} CPUs and as much memory as the image left to the core, {mib} MiB",
            machine.cpus
        ),
    ));
    for (key, value) in asked.sets.iter().filter(|set| !plan.sets.contains(set)) {
        out.push_str(&hanging("         ", &format!("{key} = {value}")));
    }
    let _ = writeln!(out, "repeat   {}", command(beside));
    out
}
/// The line that repeats it: the plan's, and what only the simulated machine was told.
fn command(beside: &Beside<'_>) -> String {
    let plan = &beside.study.plan;
    let mut line = plan.command(Some("both"));
    let mut flag = |name: &str, value: &str| line += &format!(" {name} {}", quoted(value));
    if beside.machine_name != MACHINE {
        flag("--machine", beside.machine_name);
    }
    for (key, value) in beside.asked.sets.iter().filter(|set| !plan.sets.contains(set)) {
        flag("--set", &format!("{key}={value}"));
    }
    line
}

/// What the rows mean, each once.
fn explanations(beside: &Beside<'_>) -> String {
    let mut out = "\nWhat the rows mean\n".to_string();
    let mut told: Vec<&str> = Vec::new();
    for (_, figure) in beside.pairs.iter().flat_map(|pair| pair.rows(beside.asked.stats)) {
        if !told.contains(&figure.key) {
            told.push(figure.key);
            out.push_str(&hanging("  ", figure.label));
            out.push_str(&hanging("      ", figure.about));
        }
    }
    out.push('\n');
    out
}

/// How far the three counts differ that matter most, and how many rows differ much.
fn verdict(beside: &Beside<'_>) -> String {
    let signed = |pair: &Pair, key| {
        let Some((metal, simulated)) = pair.row(key) else { return "not counted".to_string() };
        match difference(metal.number(), simulated.number()) {
            Some(far) => format!("{}{}%", if far > 0.0 { "+" } else { "" }, gain::plain(far, 1)),
            None if simulated.number() == 0.0 => "none".to_string(),
            None => "none on metal".to_string(),
        }
    };
    let mut parts: Vec<String> = Vec::new();
    let (mut much, mut all) = (0, 0);
    for pair in beside.pairs {
        let [ipis, flushes, pages] =
            ["ipis_received", "nr_tlb_remote_flush_received", "pages_reclaimed"].map(|key| signed(pair, key));
        let name = &beside.study.plan.names[pair.policy];
        parts.push(format!("{name}: IPIs {ipis}, flush requests {flushes}, pages reclaimed {pages}"));
        for (metal, simulated) in pair.rows(beside.asked.stats) {
            all += 1;
            much += usize::from(is_much(difference(metal.number(), simulated.number())));
        }
    }
    parts.push(format!(
        "{much} of {all} rows differ by more than {MUCH}% (*): docs/fidelity.md has the causes that were found"
    ));
    parts.join("; ")
}

/// Whether a difference is pointed at.
fn is_much(far: Option<f64>) -> bool {
    far.is_none_or(|far| far.abs() > MUCH)
}

/// As JSON.
pub fn json(beside: &Beside<'_>) -> Json {
    let Beside { study, pairs, machine_name, .. } = *beside;
    let plan = &study.plan;
    let mut out = boots::head(plan);
    out.insert("on".to_string(), json!("both"));
    out.insert("machine".to_string(), json!(machine_name));
    let pair = |pair: &Pair| {
        let side = |figures: &[Figure]| -> Json {
            figures.iter().map(|figure| (figure.key.to_string(), number(figure.value))).collect()
        };
        let far: Map<String, Json> = pair
            .rows(beside.asked.stats)
            .map(|(metal, simulated)| {
                let far = difference(metal.number(), simulated.number());
                (metal.key.to_string(), far.map_or(Json::Null, real))
            })
            .collect();
        let frames =
            study.of(pair.policy).find_map(|(_, boot)| boot.printed.head.as_ref()).map(|head| head.frames);
        json!({
            "policy": plan.policies[pair.policy].to_string(),
            "frames": frames,
            "difference_percent": far,
            "metal": side(&pair.metal),
            "simulation": side(&pair.simulated),
        })
    };
    if pairs.len() < plan.policies.len() {
        out.insert("interrupted".to_string(), json!(true));
    }
    out.insert("pairs".to_string(), pairs.iter().map(pair).collect());
    out.insert("command".to_string(), json!(command(beside)));
    Json::Object(out)
}
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_is_of_metals_figure_and_has_a_sign() {
        assert_eq!(difference(100.0, 125.0), Some(25.0));
        assert_eq!(difference(100.0, 75.0), Some(-25.0));
        assert_eq!(difference(0.0, 1.0), None);
    }
}
