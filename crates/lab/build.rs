//! Of which revision this build is: for reports, which say so.

use std::process::Command;

/// What the command is built from, seen from the repository.
const SOURCES: [&str; 12] = [
    "Cargo.lock",
    "machines",
    "traces",
    "crates/core/src",
    "crates/hardware/src",
    "crates/workloads/src",
    "crates/sim/src",
    "crates/check/src",
    "crates/host/src",
    "crates/emulator/src",
    "crates/lab",
    "crates/python",
];

/// What git prints; nothing where there is no git, or no repository.
fn git(args: &[&str]) -> Option<String> {
    let got = Command::new("git").arg("-C").arg("../..").args(args).output().ok()?;
    got.status.success().then(|| String::from_utf8_lossy(&got.stdout).trim().to_string())
}

fn main() {
    // Not at every commit: one that changes none of these has what was built from the same sources.
    SOURCES.iter().for_each(|source| println!("cargo::rerun-if-changed=../../{source}"));
    let changes = git(&[&["status", "--porcelain", "--"], &SOURCES[..]].concat());
    // But once what was built with changes is committed: then it is of that revision.
    if changes.as_ref().is_some_and(|changes| !changes.is_empty())
        && let Some(log) = git(&["rev-parse", "--path-format=absolute", "--git-path", "logs/HEAD"])
    {
        println!("cargo::rerun-if-changed={log}");
    }
    let revision = match (git(&["rev-parse", "--short=12", "HEAD"]), changes) {
        (Some(revision), Some(changes)) if changes.is_empty() => revision,
        (Some(revision), _) => format!("{revision} with changes"),
        (None, _) => "of no known revision".to_string(),
    };
    println!("cargo::rustc-env=QUIETMM_REVISION={revision}");
}
