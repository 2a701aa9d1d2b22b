//! `quietmm check`: looks for schedules that break an invariant, and shows them.

mod args;
mod coverage;
mod files;
mod mutants;
mod page;
mod replay;
mod story;

pub use args::CheckArgs;

use std::time::Instant;

use quietmm_check::explore::Budget;
use quietmm_check::scenario::Scenario;
use quietmm_check::scenarios;
use quietmm_sim::near::unknown;

use crate::process::ending::{Ending, Failure};
use crate::process::output::Output;
use files::Files;

/// Does what was asked.
pub fn check(args: &CheckArgs, output: &mut Output) -> Result<Ending, Failure> {
    let files = Files::of(args)?;
    if let Some(file) = &args.replay {
        return replay::replay(args, file, &files, output);
    }
    let mut scenarios = chosen(&args.scenarios)?;
    if let Some(architecture) = args.architecture {
        scenarios = scenarios.into_iter().map(|scenario| scenario.on(architecture)).collect();
    }
    match &args.mutant {
        Some(name) => mutants::mutants(args, &scenarios, name, &files, output),
        None => coverage::coverage(args, &scenarios, &files, output),
    }
}

/// The scenarios of these names, or all.
fn chosen(names: &[String]) -> Result<Vec<Scenario>, Failure> {
    let all = scenarios::all();
    if names.is_empty() {
        return Ok(all);
    }
    let mut chosen: Vec<Scenario> = Vec::new();
    for name in names {
        let scenario = all.iter().find(|scenario| scenario.name == name).ok_or_else(|| {
            Failure::Input(unknown("scenario", name, all.iter().map(|scenario| scenario.name)))
        })?;
        if !chosen.iter().any(|known| known.name == scenario.name) {
            chosen.push(scenario.clone());
        }
    }
    Ok(chosen)
}

/// How far each search goes.
fn budget(args: &CheckArgs) -> Budget {
    Budget { random: args.schedules, exhaustive: 2 * args.schedules, departures: args.departures.into() }
}

/// So many of what is called so, of which one has no `s` at its end.
fn several(number: usize, name: &str) -> String {
    format!("{number} {name}{}", if number == 1 { "" } else { "s" })
}

/// So many of something a second, for people.
fn rate(count: u64, since: Instant) -> String {
    let seconds = since.elapsed().as_secs_f64().max(1e-3);
    format!("{:.0}", count as f64 / seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_name_lists_the_near_ones() {
        let wrong = chosen(&["reclaim-unmpa".to_string()]);
        assert!(matches!(wrong, Err(Failure::Input(line)) if line.contains("reclaim-unmap")));
    }
}
