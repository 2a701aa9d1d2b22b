//! Names, held against what exists.

use quietmm_sim::near::unknown;
use quietmm_sim::{Policy, Rule, Workload};
use serde::Serialize;

use crate::process::ending::Failure;

/// A policy, and what it was called.
#[derive(Clone, Debug, Serialize)]
pub struct Named {
    /// As it was typed.
    pub name: String,
    /// What it is.
    #[serde(rename = "choices", serialize_with = "choices")]
    pub policy: Policy,
}

/// A workload by its name.
pub fn workload(name: &str) -> Result<Workload, Failure> {
    let names = || Workload::ALL.iter().map(|workload| workload.name());
    Workload::parse(name).ok_or_else(|| Failure::Input(unknown("workload", name, names())))
}

/// A rule by its name.
pub fn rule(name: &str) -> Result<Rule, Failure> {
    let names = || Rule::ALL.iter().map(|rule| rule.name());
    Rule::parse(name).ok_or_else(|| Failure::Input(unknown("rule", name, names())))
}

/// A policy as the command line has it.
pub fn policy(text: &str) -> Result<Named, Failure> {
    let policy = Policy::parse(text).map_err(|error| Failure::Input(error.to_string()))?;
    Ok(Named { name: text.to_string(), policy })
}

/// What a policy does, by mechanism.
fn choices<S: serde::Serializer>(policy: &Policy, to: S) -> Result<S::Ok, S::Error> {
    let names = Policy::mechanisms().iter().map(|mechanism| mechanism.name);
    to.collect_map(names.zip(policy.choices()))
}
