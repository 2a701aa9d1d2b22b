//! Boots as text: the same table as the simulation's, and where it is from.

use std::fmt::Write;

use quietmm_emulator::Accel;
use quietmm_sim::Better;

use crate::gain::{self, Gain};
use crate::measure::Column;
use crate::metal::args::Asked;
use crate::metal::figures::OWN;
use crate::metal::lines::Operation;
use crate::metal::measure::Study;
use crate::metal::plan::Plan;
use crate::rows::{self, Group};
use crate::table::{self, Cell, Line};
use crate::text::{explanations, row};
use crate::wrap::hanging;

/// The whole text of one study.
pub fn study(study: &Study, asked: &Asked<'_>) -> String {
    let plan = &study.plan;
    let columns = study.columns();
    if columns.is_empty() {
        return interrupted(study);
    }
    let mut out = String::new();
    if study.interrupted() {
        out.push_str(&interrupted(study));
        out.push('\n');
    }
    let groups = groups(plan, &columns, asked.stats);
    out.push_str(&tables(study, &columns, &groups, asked.stats));
    out.push_str(&harm(study));
    if asked.explain {
        out.push_str(&explanations(&columns, &groups));
    }
    out.push('\n');
    out.push_str(&origin(plan));
    let _ = writeln!(out, "repeat   {}", plan.command(None));
    out
}

fn interrupted(study: &Study) -> String {
    let (finished, count) = (study.finished(), study.plan.count());
    format!("INTERRUPTED: {finished} of {count} boots of {} finished\n", study.plan.workload.name())
}

/// The simulation's groups, with those rows that only metal has before the rest of the counters.
fn groups(plan: &Plan, columns: &[Column<'_>], all: bool) -> Vec<Group> {
    let mut groups = rows::groups(plan.workload.name(), columns, all);
    let own = |key: &&str| {
        let figure = columns.iter().find_map(|column| column.figure(key))?;
        let says = !key.starts_with("disk_")
            || columns.iter().any(|column| column.figure(key).is_some_and(|f| f.number() > 0.0));
        says.then(|| (figure.label.to_string(), figure.key))
    };
    let own: Group = OWN.iter().filter_map(own).collect();
    groups.iter_mut().for_each(|group| group.retain(|(_, key)| !OWN.contains(key)));
    let at = groups.len() - usize::from(all && !groups.is_empty());
    groups.insert(at, own);
    groups.retain(|group| !group.is_empty());
    groups
}

fn tables(study: &Study, columns: &[Column<'_>], groups: &[Group], host: bool) -> String {
    let names: Vec<String> = columns.iter().map(|column| study.plan.names[column.policy].clone()).collect();
    let mut lines = Vec::new();
    for group in groups {
        lines.extend(group.iter().map(|(label, key)| row(label, key, columns)));
        lines.push(Line::Gap);
    }
    let operations = operations(study, columns);
    if !operations.is_empty() {
        lines.extend(operations);
        lines.push(Line::Gap);
    }
    if host {
        let seconds = columns.iter().map(|column| study.of(column.policy).map(|(_, boot)| boot.host_s).sum());
        let cells = seconds.map(|seconds: f64| Cell { value: gain::plain(seconds, 2), gain: Gain::None });
        lines.push(Line::Row("host seconds".to_string(), cells.collect(), ""));
        lines.push(Line::Gap);
    }
    lines.pop();
    table::lay_out(&names, &lines)
}

/// How long operations took: means over all boots of a policy, and the least of all.
fn operations(study: &Study, columns: &[Column<'_>]) -> Vec<Line> {
    let accel = study.plan.machine.accel;
    let unit = if accel == Accel::Instructions { "instructions" } else { "ns" };
    let mut names: Vec<&str> = Vec::new();
    for boot in study.boots.iter().flatten() {
        for operation in &boot.printed.operations {
            if !names.contains(&operation.name.as_str()) {
                names.push(&operation.name);
            }
        }
    }
    let mut lines = Vec::new();
    for name in names {
        let all = |column: &Column<'_>, of: fn(&Operation) -> f64| -> Vec<f64> {
            let boots = study.of(column.policy).map(|(_, boot)| &boot.printed.operations);
            boots.filter_map(|all| all.iter().find(|one| one.name == name)).map(of).collect()
        };
        let mean = |column: &Column<'_>| {
            let means = all(column, |one| one.mean);
            (!means.is_empty()).then(|| means.iter().sum::<f64>() / means.len() as f64)
        };
        let least = |column: &Column<'_>| all(column, |one| one.least as f64).into_iter().reduce(f64::min);
        lines.push(operation(format!("{name}, {unit}"), columns, accel, 1, &mean));
        lines.push(operation(format!("{name}, at least"), columns, accel, 0, &least));
    }
    lines
}

fn operation(
    label: String,
    columns: &[Column<'_>],
    accel: Accel,
    decimals: usize,
    of: &dyn Fn(&Column<'_>) -> Option<f64>,
) -> Line {
    // Times of threads that race for the host's processors are not judged.
    let judged = accel != Accel::Threads;
    let base = columns.first().filter(|column| column.policy == 0 && judged).and_then(of);
    let cells = columns.iter().map(|column| match of(column) {
        None => Cell { value: "-".to_string(), gain: Gain::None },
        Some(value) => Cell {
            value: gain::plain(value, decimals),
            gain: base.map_or(Gain::None, |base| Gain::of(Better::Less, base, value)),
        },
    });
    Line::Row(label, cells.collect(), "")
}

/// What was seen of a broken rule.
fn harm(study: &Study) -> String {
    let Some(rule) = study.plan.broken else { return String::new() };
    let mut out = format!("\nbroken   {}: {}\n", rule.name(), rule.about());
    for (policy, name) in study.plan.names.iter().enumerate() {
        for (seed, boot) in study.of(policy) {
            let end = boot.harm.as_deref().unwrap_or("nothing was seen of it");
            out.push_str(&hanging(&format!("[{name}, seed {seed}] "), end));
            if let Some(story) = boot.printed.wrong.first() {
                out.push_str(&hanging("    ", story));
            }
        }
    }
    out
}

/// Where the figures are from, but for the line that repeats them.
pub fn origin(plan: &Plan) -> String {
    let mut out = String::new();
    let mut say = |what: &str, text: &str| out.push_str(&hanging(&format!("{what:<9}"), text));
    say("workload", &format!("{}: {}", plan.workload.name(), plan.workload.about()));
    let plural = if plan.machine.cpus == 1 { "" } else { "s" };
    let disk = plan.machine.disk.map_or_else(String::new, |bytes| format!(", a disk of {} MiB", bytes >> 20));
    let how = match plan.machine.accel {
        Accel::Threads => {
            "emulated, a host thread for each CPU: times say little, and counts differ from run to run"
        }
        Accel::Instructions if plan.repeats() => {
            "emulated, CPUs take turns, an instruction is a nanosecond: each run prints the same"
        }
        Accel::Instructions => {
            "emulated, CPUs take turns, an instruction is a nanosecond; the disk answers when the host has time"
        }
        Accel::Kvm => "on the host's processors",
    };
    say("machine", &format!("{} CPU{plural} and {} MiB{disk}; {how}", plan.machine.cpus, plan.machine.mib));
    if let Some(frames) = plan.work {
        say("work", &format!("sized by {} MiB", frames / 256));
    }
    if let Some(period) = plan.period {
        say("timer", &format!("after each {period} instructions of a CPU"));
    }
    for (key, value) in &plan.sets {
        say("set", &format!("{key} = {value}"));
    }
    for (name, policy) in plan.names.iter().zip(&plan.policies) {
        let policy = policy.to_string();
        say("policy", &if *name == policy { policy } else { format!("{name} is {policy}") });
    }
    match plan.runs {
        1 => say("seed", &plan.seed.to_string()),
        runs => {
            let last = plan.of(runs as usize - 1).1;
            say("seeds", &format!("{} to {last}; mean ± standard deviation of {runs} boots", plan.seed));
        }
    }
    out
}
