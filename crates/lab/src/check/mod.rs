//! `quietmm check`: looks for schedules that break an invariant, and shows them.

mod args;
mod coverage;
mod mutants;
mod replay;
mod story;

pub use args::CheckArgs;

use std::time::Instant;

use quietmm_check::explore::Budget;
use quietmm_check::scenario::Scenario;
use quietmm_check::scenarios;

use crate::ending::{Ending, Failure};
use crate::near;
use crate::output::Output;

/// Does what was asked.
pub fn check(args: &CheckArgs, output: &mut Output) -> Result<Ending, Failure> {
    if let Some(file) = &args.replay {
        return replay::replay(file, args.json, output);
    }
    let scenarios = chosen(&args.scenarios)?;
    match &args.mutant {
        Some(name) => mutants::mutants(args, &scenarios, name, output),
        None => coverage::coverage(args, &scenarios, output),
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
            Failure::Input(near::unknown("scenario", name, all.iter().map(|scenario| scenario.name)))
        })?;
        if !chosen.iter().any(|known| known.name == scenario.name) {
            chosen.push(scenario.clone());
        }
    }
    Ok(chosen)
}

/// How far each search goes.
fn budget(args: &CheckArgs) -> Budget {
    Budget { random: args.schedules, exhaustive: 2 * args.schedules, departures: args.departures }
}

/// So many of something a second, for people.
fn rate(count: u64, since: Instant) -> String {
    let seconds = since.elapsed().as_secs_f64().max(1e-3);
    format!("{:.0}", count as f64 / seconds)
}

/// Columns as wide as they need: the first to the left, all others to the right.
fn columns(rows: &[Vec<String>]) -> String {
    let count = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |n: usize| {
        rows.iter().filter_map(|row| row.get(n)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..count).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (n, cell) in row.iter().enumerate() {
            let pad = widths[n] - cell.chars().count();
            if n > 0 {
                line.push_str("  ");
                line.extend(std::iter::repeat_n(' ', pad));
            }
            line.push_str(cell);
            if n == 0 {
                line.extend(std::iter::repeat_n(' ', pad));
            }
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_stand_under_each_other() {
        let rows = [vec!["a".to_string(), "1".to_string()], vec!["bcd".to_string(), "1000".to_string()]];
        assert_eq!(columns(&rows), "a       1\nbcd  1000\n");
    }

    #[test]
    fn a_wrong_name_lists_the_near_ones() {
        let wrong = chosen(&["reclaim-unmpa".to_string()]);
        assert!(matches!(wrong, Err(Failure::Input(line)) if line.contains("reclaim-unmap")));
    }
}
