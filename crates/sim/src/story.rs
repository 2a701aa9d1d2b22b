//! What went wrong, as people are told it: what was seen, and how it came to that.

use std::fmt;

use quietmm::Rule;

/// Something that must never be, and how it came to that.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Story {
    /// What was seen, in a sentence or two.
    pub said: String,
    /// What led to it, in the order of time.
    pub steps: Vec<Step>,
    /// The rule that was left out, if one was.
    pub broken: Option<Rule>,
    /// The steps are told below, and then this; otherwise what was seen says all.
    pub below: Option<String>,
}

/// What a CPU did.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Step {
    /// When, in picoseconds.
    pub at: u64,
    /// Which CPU.
    pub cpu: u16,
    /// What kind of thing.
    pub kind: StepKind,
    /// What.
    pub said: String,
}

/// Kinds of what CPUs do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StepKind {
    /// A step was left out.
    Skip,
    /// The memory is used, though it must not be.
    Use {
        /// Written.
        write: bool,
    },
    /// Anything else.
    Other,
}

impl Step {
    /// Something that is neither left out nor wrong.
    pub fn new(at: u64, cpu: u16, said: String) -> Step {
        Step { at, cpu, kind: StepKind::Other, said }
    }
}

/// A time as it is told.
#[must_use]
pub fn us(ps: u64) -> String {
    format!("{}.{:03} us", ps / 1_000_000, ps / 1000 % 1000)
}

impl From<String> for Story {
    fn from(said: String) -> Story {
        Story { said, ..Story::default() }
    }
}

impl fmt::Display for Story {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.said)?;
        let Some(below) = &self.below else { return Ok(()) };
        for Step { at, cpu, said, .. } in &self.steps {
            write!(f, "\n  {:>16}  CPU {cpu} {said}", us(*at))?;
        }
        f.write_str(below)
    }
}

/// As text: it is looked at in tests, and written as JSON.
impl fmt::Debug for Story {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.to_string(), f)
    }
}
