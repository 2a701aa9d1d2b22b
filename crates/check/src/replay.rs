//! A counterexample as a file, to be run again exactly.

use std::fmt;

use quietmm::{Architecture, Rule};
use serde::{Deserialize, Serialize};

use crate::act::Act;
use crate::driver::{Deviation, Strategy};
use crate::explore::Counterexample;
use crate::machine::Hardware;
use crate::runner::{Order, Outcome, Runner};
use crate::scenario::Scenario;

/// Changes when an old file would no longer mean what it meant.
const FORMAT: u32 = 1;
/// Departures in a file at most: a run has no more points.
const MOST: usize = 200_000;

/// The file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    format: u32,
    scenario: String,
    /// x86-64 where none is named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    architecture: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    rule: Option<String>,
    hardware: String,
    /// What it broke when it was written.
    invariant: String,
    what: String,
    /// Departures from the ordinary schedule: decision and act.
    #[serde(default)]
    departures: Vec<(u32, String)>,
}

/// Why a file cannot be replayed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Unreadable {
    /// It is not such a file.
    Syntax {
        /// Where, from 1.
        line: usize,
        /// What the parser says.
        what: String,
    },
    /// It was written by another version.
    Format(u32),
    /// There is no such scenario, architecture, rule, hardware or act.
    Unknown(&'static str, String),
    /// Too many departures, or not in order.
    Departures(String),
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unreadable::Syntax { what, .. } => f.write_str(what),
            Unreadable::Format(n) => write!(f, "format {n}, and this program reads format {FORMAT}"),
            Unreadable::Unknown(kind, name) => write!(f, "no {kind} is called {name:?}"),
            Unreadable::Departures(what) => f.write_str(what),
        }
    }
}

/// What a file says.
pub struct Replay {
    /// The scenario's name.
    pub scenario: String,
    /// The machine's architecture.
    pub architecture: Architecture,
    /// What is left out.
    pub broken: Option<Rule>,
    /// What hardware does.
    pub hardware: Hardware,
    /// The schedule.
    pub schedule: Vec<Deviation>,
    /// What it broke when it was written.
    pub invariant: String,
}

impl Replay {
    /// From the text of a file.
    ///
    /// # Errors
    /// See [`Unreadable`].
    pub fn parse(text: &str) -> Result<Replay, Unreadable> {
        let file: File = toml::from_str(text).map_err(|error| {
            let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or("");
            Unreadable::Syntax { line: before.matches('\n').count() + 1, what: error.message().to_owned() }
        })?;
        if file.format != FORMAT {
            return Err(Unreadable::Format(file.format));
        }
        let architecture = match file.architecture {
            None => Architecture::X86_64,
            Some(name) => Architecture::parse(&name).ok_or(Unreadable::Unknown("architecture", name))?,
        };
        let broken = match file.rule {
            None => None,
            Some(name) => Some(Rule::parse(&name).ok_or(Unreadable::Unknown("rule", name))?),
        };
        let hardware =
            Hardware::parse(&file.hardware).ok_or(Unreadable::Unknown("hardware", file.hardware))?;
        if file.departures.len() > MOST {
            return Err(Unreadable::Departures(format!(
                "{} departures, at most {MOST}",
                file.departures.len()
            )));
        }
        let mut schedule: Vec<Deviation> = Vec::with_capacity(file.departures.len());
        for (at, act) in file.departures {
            if schedule.last().is_some_and(|last| last.at >= at) {
                return Err(Unreadable::Departures(format!(
                    "departure {at} does not come after the one before it"
                )));
            }
            let act = Act::parse(&act).ok_or(Unreadable::Unknown("act", act))?;
            schedule.push(Deviation { at, act });
        }
        let (scenario, invariant) = (file.scenario, file.invariant);
        Ok(Replay { scenario, architecture, broken, hardware, schedule, invariant })
    }

    /// Runs it, and keeps what happens.
    pub fn run(&self, scenario: &Scenario) -> Outcome {
        Runner::new(&scenario.clone().on(self.architecture)).run(Order {
            strategy: Strategy::Follow(self.schedule.clone()),
            hardware: self.hardware,
            broken: self.broken,
            log: true,
            trace: None,
        })
    }
}

impl From<&Counterexample> for Replay {
    fn from(found: &Counterexample) -> Replay {
        Replay {
            scenario: found.scenario.to_string(),
            architecture: found.architecture,
            broken: found.broken,
            hardware: found.hardware,
            schedule: found.schedule.clone(),
            invariant: found.violation.invariant.to_string(),
        }
    }
}

/// The text of a counterexample's file.
///
/// # Panics
/// Never: what is written is numbers and names.
pub fn write(found: &Counterexample) -> String {
    let file = File {
        format: FORMAT,
        scenario: found.scenario.to_string(),
        architecture: (found.architecture != Architecture::X86_64)
            .then(|| found.architecture.name().to_string()),
        rule: found.broken.map(|rule| rule.name().to_string()),
        hardware: found.hardware.name().to_string(),
        invariant: found.violation.invariant.to_string(),
        what: found.violation.what.clone(),
        departures: found.schedule.iter().map(|made| (made.at, made.act.to_string())).collect(),
    };
    let text = toml::to_string(&file).expect("numbers and names");
    format!("# quietmm check --replay FILE\n{text}")
}
