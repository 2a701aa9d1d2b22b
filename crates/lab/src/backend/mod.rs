//! Where work runs: on a simulated machine, on one that boots, or on both.

pub mod beside;
pub mod metal;
pub mod recorded;
pub mod sim;

pub use beside::Beside;

use crate::process::ending::Failure;
use crate::process::progress::Lane;
use crate::study::command::CommandLine;
use crate::study::{Named, Place, Plan, Run};

/// Where a plan runs. A new one (a recording that is explained, a checker's scenario) is a file beside these.
pub trait Backend: Send + Sync {
    /// What there is to say of it: in the JSON, and where flags are held against it.
    fn place(&self) -> Place;

    /// Flags of the command line that repeats a plan.
    fn flags(&self, line: &mut CommandLine);

    /// Lines that say what it is: a label and a text.
    fn origin(&self) -> Vec<(&'static str, String)>;

    /// What must be there before the first run.
    fn prepare(&self) -> Result<(), Failure> {
        Ok(())
    }

    /// Whether the host can take several runs at once.
    fn side_by_side(&self) -> bool;

    /// One run. `None` after Ctrl-C.
    fn run(&self, plan: &Plan, policy: &Named, seed: u64, lane: &Lane<'_>) -> Result<Option<Run>, Failure>;

    /// What to do if memory was never short although `plan` is about that; `None` if it need not be.
    fn when_never_short(&self, _plan: &Plan) -> Option<String> {
        None
    }
}

/// A failed run, with what was running.
fn failed(plan: &Plan, policy: &Named, seed: u64, why: impl std::fmt::Display) -> Failure {
    Failure::Run(format!("{} with {}, seed {seed}: {why}", plan.workload.name(), policy.name))
}
