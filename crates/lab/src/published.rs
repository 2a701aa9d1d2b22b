//! Published figures, to stand beside computed ones where the comparison is the same.

use quietmm_sim::Better;

use crate::gain::{self, Gain};
use crate::plan::Plan;
use crate::table::{Cell, Line};

/// A published comparison of two policies.
pub struct Published {
    /// Where it was published.
    pub source: &'static str,
    workload: &'static str,
    machine: &'static str,
    policies: [&'static [&'static str]; 2],
    /// Less is better in all of them.
    rows: &'static [Row],
    /// Interrupts received per reclaimed page, before and after, as derived from the published figures.
    pub per_page: (f64, f64),
}

/// One published figure, before and after.
struct Row {
    label: &'static str,
    /// The metric that is the same figure; empty where none is.
    key: &'static str,
    decimals: usize,
    before: f64,
    after: f64,
    /// The published gain, where one was published; it was computed before rounding.
    gain: Option<f64>,
}

/// The batched flush of Linux 4.3: one reader per CPU on 4 nodes, 48 CPUs, 64 GiB.
static BATCHED_UNMAP: Published = Published {
    source: "Linux 4.3, commit 72b252aed5: measured on 4 nodes, 48 CPUs, 64 GiB",
    workload: "lru-file-mmap-read",
    machine: "numa-4x12",
    // The files are only read, so that no entry is dirty and both kinds of batch do what Linux 4.3 did.
    policies: [&["per-page"], &["batch", "batch-clean"]],
    rows: &[
        Row {
            label: "published elapsed",
            key: "elapsed_s",
            decimals: 2,
            before: 159.62,
            after: 120.68,
            gain: Some(24.40),
        },
        Row {
            label: "published time_range",
            key: "time_range_s",
            decimals: 2,
            before: 30.59,
            after: 2.80,
            gain: Some(90.85),
        },
        Row {
            label: "published time_stddv",
            key: "time_stddev_s",
            decimals: 2,
            before: 6.70,
            after: 0.64,
            gain: Some(90.38),
        },
        Row {
            label: "published User",
            key: "user_s",
            decimals: 2,
            before: 581.00,
            after: 611.43,
            gain: None,
        },
        Row {
            label: "published System",
            key: "system_s",
            decimals: 2,
            before: 5804.93,
            after: 4111.76,
            gain: None,
        },
        Row { label: "published Elapsed", key: "", decimals: 2, before: 161.03, after: 122.12, gain: None },
        Row {
            label: "published interrupts/s, ticks too",
            key: "interrupts_per_s",
            decimals: 0,
            before: 900_000.0,
            after: 180_000.0,
            gain: None,
        },
    ],
    per_page: (0.95, 0.144),
};

/// The published comparison that `plan` repeats, if it does: the same work on the same machine, one mechanism
/// changed, and nothing set or broken.
pub fn find(plan: &Plan) -> Option<&'static Published> {
    let published = &BATCHED_UNMAP;
    let same = plan.workload.name() == published.workload
        && plan.machine_name == published.machine
        && plan.cpus.is_none_or(|cpus| cpus == 48)
        && plan.sets.is_empty()
        && plan.broken.is_none()
        && plan.names.len() == 2
        && plan.names.iter().zip(published.policies).all(|(name, allowed)| allowed.contains(&name.as_str()));
    same.then_some(published)
}

impl Row {
    fn gain(&self) -> Gain {
        self.gain.map_or_else(|| Gain::of(Better::Less, self.before, self.after), Gain::Percent)
    }
}

impl Published {
    /// The published rows, in the columns of the table.
    pub fn lines(&self) -> Vec<Line> {
        let line = |row: &Row| {
            let cell = |value: f64, gain| Cell { value: gain::plain(value, row.decimals), gain };
            let cells = vec![cell(row.before, Gain::Percent(0.0)), cell(row.after, row.gain())];
            Line::Row(row.label.to_string(), cells, "")
        };
        self.rows.iter().map(line).collect()
    }

    /// The published gain of the figure with this key, in per cent.
    pub fn gain(&self, key: &str) -> Option<f64> {
        let row = self.rows.iter().find(|row| row.key == key)?;
        match row.gain() {
            Gain::Percent(percent) => Some(percent),
            Gain::None | Gain::Undefined => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_gains_agree_with_the_published_figures() {
        for row in BATCHED_UNMAP.rows {
            let Gain::Percent(computed) = Gain::of(Better::Less, row.before, row.after) else {
                panic!("{}", row.label)
            };
            let published = row.gain.unwrap_or(computed);
            assert!((computed - published).abs() < 0.1, "{}: {computed} and {published}", row.label);
        }
        assert_eq!(BATCHED_UNMAP.gain("elapsed_s"), Some(24.40));
    }
}
