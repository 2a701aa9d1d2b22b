//! A counterexample, shrunk, told, and saved.

use std::path::{Path, PathBuf};

use quietmm_check::explore::Counterexample;
use quietmm_check::replay::{self, Replay};
use quietmm_check::scenario::Scenario;
use quietmm_check::shrink;
use quietmm_check::timeline;
use quietmm_sim::Rule;
use serde_json::{Value as Json, json};

use crate::process::interrupt;
use crate::process::replace::replace;

/// Characters in a line of a timeline: of a terminal that is not narrow, and short enough for a mailing list.
pub const WIDTH: usize = 110;

/// A counterexample for people.
pub struct Story {
    /// As short as it became.
    pub found: Counterexample,
    /// Departures before.
    pub was: usize,
    /// What happens.
    pub told: timeline::Story,
    /// Its file, if one was wanted, or why there is none.
    pub saved: Option<Result<PathBuf, String>>,
}

/// Shrinks, draws, and saves it in a folder, if there is one. What cannot be saved is told all the same.
pub fn tell(scenario: &Scenario, mut found: Counterexample, save: Option<&Path>) -> Story {
    let was = found.schedule.len();
    shrink::shrink(scenario, &mut found, &mut || !interrupt::requested());
    let told = timeline::Story::of(scenario, &Replay::from(&found).run(scenario));
    let rule = found.broken.map_or(String::new(), |rule| format!(".{rule}"));
    let saved = save.map(|folder| {
        let file = folder.join(format!("{}{rule}.replay.toml", found.scenario));
        let written = replace(&file, &[replay::write(&found).as_bytes()]);
        written.map_err(|error| format!("cannot write {}: {error}", file.display())).map(|()| file)
    });
    Story { found, was, told, saved }
}

impl Story {
    /// As text.
    pub fn text(&self) -> String {
        let found = &self.found;
        let departures = found.schedule.len();
        let saved = match &self.saved {
            Some(Ok(file)) => format!("Saved: {0}\nAgain: quietmm check --replay {0}\n", file.display()),
            Some(Err(why)) => format!("Not saved: {why}\n"),
            None => "Not saved: --save DIR keeps it as a file for --replay\n".to_string(),
        };
        format!(
            "{}: found by {} after {} schedules; {} departures, shrunk to {departures}\n\n{}\n{saved}",
            self.name(),
            found.way.name(),
            found.after,
            self.was,
            self.told.text(WIDTH),
        )
    }

    /// Where, and with which rule broken.
    pub fn name(&self) -> String {
        name(self.found.scenario, self.found.broken)
    }

    /// As JSON.
    pub fn json(&self) -> Json {
        let found = &self.found;
        json!({
            "scenario": found.scenario,
            "architecture": found.architecture.name(),
            "rule": found.broken.map(|rule| rule.name()),
            "invariant": found.violation.invariant,
            "what": found.violation.what,
            "step": found.violation.step,
            "way": found.way.name(),
            "after": found.after,
            "hardware": found.hardware.name(),
            "departures": found.schedule.iter().map(|made| json!([made.at, made.act.to_string()])).collect::<Json>(),
            "file": self.saved.iter().flatten().next().map(|file| file.display().to_string()),
            "not_saved": self.saved.as_ref().and_then(|saved| saved.as_ref().err()),
        })
    }
}

/// A scenario, and what is broken there.
pub fn name(scenario: &str, broken: Option<Rule>) -> String {
    let rule = broken.map_or("no rule broken".to_string(), |rule| format!("{rule} broken"));
    format!("{scenario}, {rule}")
}
