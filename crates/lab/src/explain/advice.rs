//! What to change in the program, most to be saved first.

use quietmm_host::blame::{Blame, Cause};
use quietmm_sim::machine::Machine;
use quietmm_workloads::trace::Recording;
use serde_json::{Value, json};

use super::recorded::{each, idle};
use crate::cost;
use crate::show::units::{grouped, time};
use crate::show::wrap::hanging;

/// Something to change.
#[derive(Clone, Debug, PartialEq)]
pub struct Advice {
    /// What made the kernel flush.
    pub cause: Cause,
    /// Interrupts that it is about; calls that may interrupt, where interrupts were not recorded.
    pub count: u64,
    recorded: bool,
    /// What they cost, in nanoseconds of CPU time.
    pub ns: f64,
    /// Calls that interrupted, and how many would be left if those that follow each other at once were one.
    calls: [u64; 2],
}

impl Advice {
    /// Interrupts that one call for each burst would save.
    fn saved(&self) -> u64 {
        let [calls, bursts] = self.calls;
        let left = (self.count * bursts.min(calls)).checked_div(calls).unwrap_or(self.count);
        self.count - left
    }

    /// What it is about, and what that is worth.
    pub fn worth(&self) -> String {
        let count = grouped(&self.count.to_string());
        let plural = if self.count == 1 { "" } else { "s" };
        let worth = if self.recorded {
            format!("{count} interrupt{plural}, {}", time(self.ns))
        } else {
            format!("{count} call{plural} that may interrupt")
        };
        format!("{} ({worth})", self.cause.name())
    }

    /// In words: what it is worth, and what to do.
    pub fn said(&self) -> String {
        let mut said = format!("{}. {}", self.worth(), self.cause.advice());
        let saved = self.saved();
        if self.recorded && gathers(self.cause) && saved > 0 {
            let how = match self.cause {
                Cause::Madvise => {
                    "process_madvise takes 1024 ranges and flushes once for all, since Linux 6.16"
                }
                _ => "where the ranges lie side by side",
            };
            said += &format!(
                " Calls that follow each other within 1 ms as one ({how}): {} interrupts less.",
                grouped(&saved.to_string())
            );
        }
        said
    }

    /// For programs.
    pub fn json(&self) -> Value {
        let key = if self.recorded { "shootdowns" } else { "calls_with_others_there" };
        json!({
            "cause": self.cause.key(),
            key: self.count,
            "cpu_ns": self.recorded.then_some(self.ns),
            "saved_by_bursts": (self.recorded && gathers(self.cause)).then(|| self.saved()),
            "change": self.cause.advice(),
        })
    }
}

/// The part of all interrupts that one `process_madvise` for each burst of `madvise` would have spared.
pub fn spared_by_one_call(all: &[Advice], blame: &Blame) -> f64 {
    let saved =
        all.iter().filter(|advice| advice.recorded && advice.cause == Cause::Madvise).map(Advice::saved);
    saved.sum::<u64>() as f64 / blame.shootdowns.max(1) as f64
}

/// Whether calls of this kind could be one.
fn gathers(cause: Cause) -> bool {
    matches!(cause, Cause::Munmap | Cause::Madvise | Cause::Mprotect)
}

/// By what they cost, the most first.
pub fn ranked(recording: &Recording<'_>, blame: &Blame, machine: &Machine) -> Vec<Advice> {
    let recorded = recording.header().about.shootdowns;
    let mut all: Vec<Advice> = Vec::new();
    for group in &blame.groups {
        let count = if recorded { group.shootdowns } else { group.shared };
        if count == 0 {
            continue;
        }
        let place = all.iter().position(|advice| advice.cause == group.cause).unwrap_or_else(|| {
            all.push(Advice { cause: group.cause, count: 0, recorded, ns: 0.0, calls: [0; 2] });
            all.len() - 1
        });
        let advice = &mut all[place];
        advice.count += count;
        advice.ns += count as f64 * each(machine) + idle(group) as f64 * cost::answers(machine);
        advice.calls[0] += group.guilty;
        advice.calls[1] += group.bursts;
    }
    all.sort_by(|a, b| b.ns.total_cmp(&a.ns).then(a.cause.cmp(&b.cause)));
    all
}

/// That there is nothing to change, and why.
pub fn nothing(recorded: bool) -> String {
    let why = if recorded { "nobody was interrupted" } else { "no call can have interrupted anybody" };
    format!("Nothing to change: {why}.")
}

/// In words.
pub fn text(all: &[Advice], recorded: bool, width: usize) -> String {
    if all.is_empty() {
        return nothing(recorded) + "\n";
    }
    let each = all.iter().enumerate();
    let each = each.map(|(nth, advice)| hanging(width, &format!("{:>2}. ", nth + 1), &advice.said()));
    "What to change, most first:\n".to_owned() + &each.collect::<String>()
}
