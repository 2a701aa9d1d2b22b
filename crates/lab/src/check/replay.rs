//! A counterexample's file, run again.

use std::io::{ErrorKind, Read};
use std::path::Path;

use quietmm_check::replay::{Replay, Unreadable};
use quietmm_check::scenarios;
use quietmm_check::timeline::Story;
use quietmm_sim::near::unknown;
use serde_json::json;

use super::args::CheckArgs;
use super::files::Files;
use super::page;
use super::story::{self, WIDTH};
use crate::process::ending::{Ending, Failure};
use crate::process::output::Output;
use crate::show::json::pretty;

/// Bytes of a file at most: one with as many departures as can be.
const MOST: u64 = 8 << 20;

/// `quietmm check --replay`
pub fn replay(args: &CheckArgs, file: &Path, files: &Files, output: &mut Output) -> Result<Ending, Failure> {
    let input = |what: String| Failure::Input(format!("{}: {what}", file.display()));
    let mut text = String::new();
    // A pipe may have no writer, and no end.
    if std::fs::metadata(file).is_ok_and(|found| !found.is_file()) {
        return Err(input("not a regular file".to_string()));
    }
    std::fs::File::open(file).and_then(|open| open.take(MOST + 1).read_to_string(&mut text)).map_err(
        |error| match error.kind() {
            ErrorKind::InvalidData => input("not UTF-8; a file that `check --save` wrote".to_string()),
            _ => input(error.to_string()),
        },
    )?;
    if text.len() as u64 > MOST {
        return Err(input(format!("more than {} MiB, which no counterexample has", MOST >> 20)));
    }
    let replay = Replay::parse(&text).map_err(|error| match error {
        Unreadable::Syntax { line, what } => {
            Failure::Input(format!("{}:{line}: {what}; a file that `check --save` wrote", file.display()))
        }
        error => input(error.to_string()),
    })?;
    let all = scenarios::all();
    let scenario = all.iter().find(|scenario| scenario.name == replay.scenario).ok_or_else(|| {
        input(unknown("scenario", &replay.scenario, all.iter().map(|scenario| scenario.name)))
    })?;
    let outcome = replay.run(scenario);
    let seen = outcome.violation.as_ref();
    let again = seen.is_some_and(|violation| violation.invariant == replay.invariant);
    let story = Story::of(scenario, &outcome);
    let out = json!({
        "scenario": scenario.name,
        "architecture": replay.architecture.name(),
        "rule": replay.broken.map(|rule| rule.name()),
        "invariant": seen.map(|violation| violation.invariant),
        "what": seen.map(|violation| violation.what.clone()),
        "step": seen.map(|violation| violation.step),
        "steps": outcome.steps,
        "missed_departures": outcome.missed,
        "as_saved": again,
    });
    let name = story::name(scenario.name, replay.broken);
    let page = || page::replay(file, scenario, &replay.invariant, &out, (&name, &story));
    let written = files.write(page, Some((name.clone(), &story)));
    if args.json {
        output.data(&pretty(&out))?;
    } else {
        output.text(&format!("{}: {}\n\n", scenario.name, scenario.about))?;
        output.text(&story.text(WIDTH))?;
        if !again {
            let saw = seen.map_or("nothing", |violation| violation.invariant);
            output.text(&format!("\nThe file says {}; this run broke {saw}.\n", replay.invariant))?;
        }
        if outcome.missed > 0 {
            let departures = super::several(outcome.missed as usize, "departure");
            output.text(&format!("{departures} could not be made: the core has changed since.\n"))?;
        }
    }
    written?;
    Ok(if again { Ending::Good } else { Ending::Otherwise })
}
