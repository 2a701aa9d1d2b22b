//! What to import, and how it is folded.

use super::error::ImportError;

/// The longest epoch: far below 2^32 accesses, so that the counts of a record fit.
const LONGEST_EPOCH: u32 = 1 << 30;

/// What to import, and how.
#[derive(Clone, Debug)]
pub struct Options {
    /// The input's name in messages.
    pub source: String,
    /// What was recorded, with its version. Without it, the first word of the command line.
    pub program: Option<String>,
    /// The command line. Without it, the one that valgrind prints.
    pub command: Option<String>,
    /// Instruction fetches are accesses too.
    pub fetches: bool,
    /// Most pages of an epoch, at least 1. See [`quietmm_workloads::trace`] for what folding keeps.
    pub window: u32,
    /// Most accesses of an epoch, 1 to 2^30.
    pub epoch: u32,
    /// Accesses to leave out at the start.
    pub skip: u64,
    /// Stop at the first line that brings the accesses to this number. The rest of the input is not read.
    pub limit: Option<u64>,
    /// The share of foreign lines that is accepted, in percent.
    pub foreign_percent: u32,
}

impl Options {
    /// The usual choice for an input of this name.
    #[must_use]
    pub fn new(source: impl Into<String>) -> Self {
        Self {
            source: source.into(),
            program: None,
            command: None,
            fetches: true,
            window: 128,
            epoch: 262_144,
            skip: 0,
            limit: None,
            foreign_percent: 10,
        }
    }

    /// Refuses what is out of range.
    pub(super) fn check(&self) -> Result<(), ImportError> {
        if self.window == 0 {
            return Err(ImportError::Option { name: "--window", right: "at least 1 page is needed" });
        }
        if !(1..=LONGEST_EPOCH).contains(&self.epoch) {
            return Err(ImportError::Option { name: "--epoch", right: "1 to 2^30 accesses are possible" });
        }
        Ok(())
    }
}
