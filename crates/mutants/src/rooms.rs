//! The rooms of the core that are mutated.

use std::collections::BTreeMap;

use crate::mutant::Mutant;

/// The rooms whose faults corrupt memory or lose it.
pub const ROOMS: [&str; 29] = [
    "addr",
    "boot",
    "config",
    "cpu",
    "cpumask",
    "device",
    "file",
    "frame",
    "handlers",
    "handle",
    "hotplug",
    "ipi",
    "life",
    "manager",
    "memmap",
    "paging",
    "percpu",
    "pool",
    "reclaim",
    "rmap",
    "root",
    "space",
    "swap",
    "sync",
    "tlb",
    "tree",
    "vma",
    "vmap",
    "writeback",
];

/// Not mutated: what tests look with, and a model of memory for another checker.
const NOT: [&str; 2] = ["vmap/audit.rs", "sync/modelled.rs"];

/// The room of a file below `crates/core/src`.
pub fn room(path: &str) -> &str {
    path.split('/').next().unwrap_or(path).trim_end_matches(".rs")
}

/// How many mutants each room has.
pub fn counts(mutants: &[Mutant]) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for mutant in mutants {
        *counts.entry(room(&mutant.key.file).to_string()).or_default() += 1;
    }
    counts
}

/// Whether a file is mutated when these rooms are asked for: none means all. A file or folder may be named too.
pub fn is_wanted(path: &str, rooms: &[String]) -> bool {
    let asked = || rooms.iter().any(|asked| room(path) == asked || path.starts_with(asked.as_str()));
    ROOMS.contains(&room(path)) && !NOT.contains(&path) && (rooms.is_empty() || asked())
}
