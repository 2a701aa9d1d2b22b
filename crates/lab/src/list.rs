//! `quietmm list`: what there is to choose from, each with a line.

use quietmm_sim::machine::Machine;
use quietmm_sim::{Policy, Rule, Workload};
use serde_json::{Value as Json, json};

use crate::backend::sim;
use crate::cli::ListArgs;
use crate::process::ending::{Ending, Failure};
use crate::process::output::Output;
use crate::shipped::SHIPPED;
use crate::show::json;
use crate::show::wrap::hanging;

/// Names are padded to this width.
const NAME: usize = 28;

/// Prints everything, or one machine's constants.
pub fn list(args: &ListArgs, output: &mut Output) -> Result<Ending, Failure> {
    let machine = args.machine.as_deref().map(sim::load).transpose()?;
    match (machine, args.json) {
        (None, false) => output.text(&everything(output.width()))?,
        (None, true) => output.data(&json::pretty(&everything_as_json()))?,
        (Some(machine), false) => output.text(&constants(&machine, output.width()))?,
        (Some(machine), true) => output.data(&json::pretty(&constants_as_json(&machine)))?,
    }
    Ok(Ending::Good)
}

fn everything(width: usize) -> String {
    let entry = |indent, name: &str, about: &str| entry(width, indent, name, about);
    let mut out = String::new();
    let mut section = |title: &str| {
        if !out.is_empty() {
            out.push('\n');
        }
        out.push_str(&hanging(width, "", title));
    };
    section("Workloads");
    for workload in Workload::ALL {
        out.push_str(&entry(2, workload.name(), workload.about()));
    }
    out.push_str("\nMachines (constants of one: quietmm list --machine NAME)\n");
    for (name, about) in machines() {
        out.push_str(&entry(2, name, &about));
    }
    out.push_str("\nPolicies: a bundle, or a bundle with other choices: linux+unmap=per-page\n");
    for (name, about) in Policy::bundles() {
        out.push_str(&entry(2, name, about));
    }
    for mechanism in Policy::mechanisms() {
        out.push_str(&entry(2, &format!("+{}=", mechanism.name), mechanism.about));
        for (name, about) in mechanism.choices {
            out.push_str(&entry(6, name, about));
        }
    }
    if !SHIPPED.is_empty() {
        out.push_str("\nTraces (for the workload trace: --trace NAME)\n");
        for trace in SHIPPED {
            out.push_str(&entry(2, trace.name, trace.about));
        }
    }
    out.push_str("\nScenarios (quietmm check SCENARIO)\n");
    for scenario in quietmm_check::scenarios::all() {
        out.push_str(&entry(2, scenario.name, scenario.about));
    }
    out.push_str("\nRules that can be broken (--break RULE, check --mutant RULE)\n");
    for rule in Rule::ALL {
        out.push_str(&entry(2, rule.name(), rule.about()));
    }
    out
}

fn everything_as_json() -> Json {
    let workloads = Workload::ALL.iter().map(|workload| {
        json!({
            "name": workload.name(),
            "about": workload.about(),
            "machine": workload.default_machine(),
            "scale": workload.default_scale(),
            "needs_trace": workload.needs_trace(),
        })
    });
    let mechanisms = Policy::mechanisms().iter().map(|mechanism| {
        let choices = mechanism.choices.iter().map(|(name, about)| named(name, about));
        json!({ "name": mechanism.name, "about": mechanism.about, "choices": choices.collect::<Json>() })
    });
    json!({
        "workloads": workloads.collect::<Json>(),
        "machines": machines().iter().map(|(name, about)| named(name, about)).collect::<Json>(),
        "policies": {
            "bundles": Policy::bundles().map(|(name, about)| named(name, about)).collect::<Json>(),
            "mechanisms": mechanisms.collect::<Json>(),
        },
        "traces": SHIPPED.iter().map(|trace| named(trace.name, trace.about)).collect::<Json>(),
        "rules": Rule::ALL.iter().map(|rule| named(rule.name(), rule.about())).collect::<Json>(),
        "scenarios": quietmm_check::scenarios::all().iter().map(|one| named(one.name, one.about)).collect::<Json>(),
    })
}

fn constants(machine: &Machine, width: usize) -> String {
    let mut out = hanging(width, "", &format!("{}: {}", machine.name, machine.about));
    for constant in machine.constants() {
        let value = format!("{} {}", constant.value_text, constant.unit);
        out.push_str(&entry(width, 2, &constant.key, &format!("{} ({})", value.trim_end(), constant.source)));
    }
    out
}

fn constants_as_json(machine: &Machine) -> Json {
    let constants = machine.constants().into_iter().map(|constant| {
        json!({
            "key": constant.key,
            "value": constant.value_text,
            "unit": constant.unit,
            "source": constant.source,
        })
    });
    json!({
        "name": machine.name,
        "about": machine.about,
        "cpus": machine.cpus,
        "memory": machine.memory,
        "constants": constants.collect::<Json>(),
    })
}

fn machines() -> Vec<(&'static str, String)> {
    Machine::builtin_names().map(|name| (name, Machine::builtin_about(name).unwrap_or_default())).collect()
}

fn named(name: &str, about: &str) -> Json {
    json!({ "name": name, "about": about })
}

fn entry(width: usize, indent: usize, name: &str, about: &str) -> String {
    let column = NAME.saturating_sub(indent);
    hanging(width, &format!("{:indent$}{name:<column$} ", ""), about)
}
