//! The rooms of the core that are mutated.

use std::collections::BTreeMap;

use crate::mutant::Mutant;

/// The rooms whose faults corrupt memory or lose it.
pub const ROOMS: [&str; 32] = [
    "addr",
    "alone",
    "boot",
    "config",
    "cpu",
    "cpumask",
    "device",
    "file",
    "frame",
    "group",
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
    "view",
    "vma",
    "vmap",
    "writeback",
];

/// Not mutated: what tests look with, tests, and a model of memory for another checker.
const NOT: [&str; 3] = ["vmap/audit.rs", "tree/tests.rs", "sync/modelled.rs"];

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
    let is_below = |asked: &String| {
        path.strip_prefix(asked.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    let asked = || rooms.iter().any(|asked| room(path) == asked || is_below(asked));
    ROOMS.contains(&room(path)) && !NOT.contains(&path) && (rooms.is_empty() || asked())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_room_is_no_other_whose_name_begins_like_it() {
        let vma = ["vma".to_string()];
        assert!(is_wanted("vma/area.rs", &vma) && !is_wanted("vmap/purge.rs", &vma));
        let (file, folder) = (["vmap/purge.rs".to_string()], ["rmap/unmap".to_string()]);
        assert!(is_wanted("vmap/purge.rs", &file) && is_wanted("rmap/unmap/take.rs", &folder));
        assert!(is_wanted("vma/area.rs", &[]) && !is_wanted("vmap/audit.rs", &[]));
    }
}
