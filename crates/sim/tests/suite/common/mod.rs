//! What the tests of the simulated machine share: specs, runs, figures by name.

#![allow(dead_code)] // each test binary uses its own part

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock};

use quietmm_sim::machine::Machine;
use quietmm_sim::{Policy, Report, Rule, RunError, RunSpec, Value, Watch, Workload};

/// Nobody watches, nobody stops it.
pub struct Nobody;

impl Watch for Nobody {
    fn progress(&self, _done: u64, _total: u64) {}
    fn cancelled(&self) -> bool {
        false
    }
}

/// A builtin machine.
pub fn machine(name: &str) -> Machine {
    Machine::builtin(name).unwrap_or_else(|| panic!("{name} is a builtin machine"))
}

/// A workload on its default machine, at its default scale, with seed 1 and policy `linux`.
pub fn spec(workload: Workload) -> RunSpec {
    RunSpec {
        workload,
        machine: machine(workload.default_machine()),
        policy: policy("linux"),
        scale: workload.default_scale(),
        seed: 1,
        broken: None,
        trace: workload.needs_trace().then(trace),
        threads: None,
        parts: None,
        work: None,
        profile: false,
        traffic: false,
        timeline: None,
    }
}

/// A policy by its text.
pub fn policy(text: &str) -> Policy {
    Policy::parse(text).unwrap_or_else(|error| panic!("{error}"))
}

/// The smaller shipped trace.
pub fn trace() -> Arc<[u8]> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../traces/sort.qtrace");
    std::fs::read(path).expect("a shipped trace").into()
}

/// A run that must come to an end.
pub fn run(spec: &RunSpec) -> Report {
    quietmm_sim::run(spec, &Nobody).unwrap_or_else(|error| panic!("{}: {error}", what(spec)))
}

/// The same for several tests: what is asked for twice is made once. Not for tests of whether two runs are the same.
pub fn shared(spec: &RunSpec) -> Arc<Report> {
    static MADE: Mutex<BTreeMap<String, Arc<OnceLock<Arc<Report>>>>> = Mutex::new(BTreeMap::new());
    assert!(spec.trace.is_none(), "its bytes are no name for it");
    let made = Arc::clone(MADE.lock().expect("no panic").entry(format!("{spec:?}")).or_default());
    Arc::clone(made.get_or_init(|| Arc::new(run(spec))))
}

/// A run that must not.
pub fn refusal(spec: &RunSpec) -> RunError {
    match quietmm_sim::run(spec, &Nobody) {
        Ok(_) => panic!("{}: ran", what(spec)),
        Err(error) => error,
    }
}

/// What is being run, for a failed assertion.
pub fn what(spec: &RunSpec) -> String {
    format!(
        "{} on {} with {} CPUs, {}, scale {}, seed {}, broken {:?}",
        spec.workload.name(),
        spec.machine.name,
        spec.machine.cpus,
        spec.policy,
        spec.scale,
        spec.seed,
        spec.broken.map(Rule::name)
    )
}

/// A figure by its key.
pub trait Figures {
    /// The figure, whether a count or not.
    fn figure(&self, key: &str) -> f64;
    /// The figure, a count.
    fn count(&self, key: &str) -> u64;
}

impl Figures for Report {
    fn figure(&self, key: &str) -> f64 {
        value(self, key).number()
    }
    fn count(&self, key: &str) -> u64 {
        match value(self, key) {
            Value::Int(n) => n,
            Value::Real(_) => panic!("{key} is no count"),
        }
    }
}

fn value(report: &Report, key: &str) -> Value {
    let found = report.metrics.iter().find(|metric| metric.key == key);
    found.unwrap_or_else(|| panic!("no figure {key}")).value
}
