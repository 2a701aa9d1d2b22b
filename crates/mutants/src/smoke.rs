//! Does the tool itself work? A few mutants of fixed choice must be seen, and one must not once its tests are left out.

use std::collections::BTreeMap;
use std::io;
use std::process::ExitCode;

use crate::compile::{self, Compiled, Places};
use crate::find::Found;
use crate::judges::{Judge, Set};
use crate::mutant::{Kind, Mutant};
use crate::results::{Results, Verdict};
use crate::run::{self, Order};
use crate::source::Source;

/// Mutants that must be seen: the file, the function, the kind, and what their line holds.
const MUST: [(&str, &str, Kind, &str); 6] = [
    ("ipi.rs", "serve", Kind::Deletion, "acknowledge"),
    ("ipi.rs", "post", Kind::Deletion, ""),
    ("frame/buddy.rs", "ZoneGuard::put", Kind::Condition, "!= Kind::Free"),
    ("frame/buddy.rs", "ZoneGuard::put", Kind::Literal, ""),
    ("sync/spin.rs", "release", Kind::Literal, ""),
    ("tlb/flush.rs", "Space::flush_range", Kind::Deletion, "flush("),
];

/// Judges them, in a copy that holds no others.
pub fn smoke(places: &Places, sources: &[Source], mut found: Found, jobs: usize) -> io::Result<ExitCode> {
    let chosen = |mutant: &Mutant, (file, function, kind, text): (&str, &str, Kind, &str)| {
        let key = &mutant.key;
        key.file == file && key.function == function && key.kind == kind && mutant.line().contains(text)
    };
    let mut any = true;
    for must in MUST {
        if !found.mutants.iter().any(|mutant| chosen(mutant, must)) {
            eprintln!("FAILED: no mutant is {must:?}");
            any = false;
        }
    }
    found.mutants.retain(|mutant| MUST.iter().any(|must| chosen(mutant, *must)));
    let Compiled { mutants, numbers } = compile::compile(places, sources, found)?;
    let mut judge = Judge::new(Set::Core, places, jobs, "")?;
    let order = Order { mutants: &mutants, numbers: &numbers, jobs, again: true };
    let fresh = |name: &str| -> io::Result<Results> {
        let path = places.ours.join(name);
        let _ = std::fs::remove_file(&path);
        Results::open(&path)
    };
    let mut results = fresh("smoke.jsonl")?;
    run::run(&order, &judge, &mut results)?;
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    for mutant in &mutants {
        match results.known.get(&mutant.key) {
            Some(Verdict::Killed { by, .. }) => {
                println!("seen by {by}: {}", mutant.line());
                *seen.entry(by).or_default() += 1;
            }
            _ => {
                eprintln!("FAILED: nobody sees {}", mutant.line());
                any = false;
            }
        }
    }
    // The control: whoever is left cannot see anything, for nobody is left.
    judge.tests.retain(|test| test.name.starts_with("policy::"));
    let mut results = fresh("smoke.jsonl")?;
    run::run(&order, &judge, &mut results)?;
    for mutant in &mutants {
        if !matches!(results.known.get(&mutant.key), Some(Verdict::Survived { .. })) {
            eprintln!("FAILED: seen by a test that has nothing to do with it: {}", mutant.line());
            any = false;
        }
    }
    println!(
        "{}",
        if any { "ok: each is seen, and by nobody when its tests are left out" } else { "FAILED" }
    );
    Ok(if any { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
