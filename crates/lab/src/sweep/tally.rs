//! All lines of a sweep, counted: what failed, what was seen that must never be, and which figures there are.

use std::collections::BTreeSet;

use quietmm_sim::figures;

use crate::process::ending::Failure;
use crate::sweep::curves::Roles;
use crate::sweep::header;
use crate::sweep::lines::Lines;
use crate::sweep::point::Read;

/// Errors that are kept; more are only counted.
const MOST: usize = 20;

/// What is in a file.
#[derive(Default)]
pub struct Tally {
    /// Points that have a line.
    pub done: u64,
    /// Those that failed.
    pub failed: u64,
    /// The first of them, and why.
    pub errors: Vec<(u64, String)>,
    /// Points at which memory was used after it was freed, a write was lost, or a content was wrong.
    pub harmed: u64,
    /// Keys of all figures, in the order in which they come.
    pub keys: Vec<String>,
    /// Of each workload, by its place on their axis, those that are not zero everywhere.
    pub telling: Vec<BTreeSet<String>>,
}

impl Tally {
    /// Counts.
    pub fn of(lines: &mut Lines) -> Result<Tally, Failure> {
        let axes = lines.axes().to_vec();
        let workload = Roles::of(&axes).workload;
        let workloads = workload.map_or(1, |axis| axes[axis].1.len());
        let mut tally = Tally { telling: vec![BTreeSet::new(); workloads], ..Tally::default() };
        let mut known: BTreeSet<String> = BTreeSet::new();
        let mut changed = Ok(());
        let name = lines.name();
        lines.each(|point, line| {
            let Some(read) = Read::of(line) else {
                changed = Err(Failure::Run(format!(
                    "{name}: somebody else changes it; point {point} is not as it was"
                )));
                return Ok(());
            };
            tally.done += 1;
            if let Some(error) = read.error {
                tally.failed += 1;
                if tally.errors.len() < MOST {
                    tally.errors.push((point, error));
                }
                return Ok(());
            }
            let number = |key: &str| read.metrics.get(key).and_then(serde_json::Value::as_f64).unwrap_or(0.0);
            let harm = [&figures::STALE_ACCESSES, &figures::LOST_WRITES, &figures::WRONG_CONTENTS];
            tally.harmed += u64::from(harm.iter().any(|figure| number(figure.key) > 0.0));
            let telling = &mut tally.telling[workload.map_or(0, |axis| header::places(&axes, point)[axis])];
            for key in read.metrics.keys() {
                if !known.contains(key) {
                    known.insert(key.clone());
                    tally.keys.push(key.clone());
                }
                if number(key) != 0.0 && !telling.contains(key) {
                    telling.insert(key.clone());
                }
            }
            Ok(())
        })?;
        changed.map(|()| tally)
    }
}
