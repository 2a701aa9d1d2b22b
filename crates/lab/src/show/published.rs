//! Published figures, to stand beside computed ones where the comparison is the same.

use quietmm_sim::{Better, Policy, figures};

use crate::cli::flags::On;
use crate::show::gain::Gain;
use crate::study::result::Comparison;

/// A published comparison of two policies.
pub struct Published {
    /// Where it was published.
    pub source: &'static str,
    workload: &'static str,
    machine: &'static str,
    cpus: u32,
    policies: [&'static [&'static str]; 2],
    /// Less is better in all of them.
    pub rows: &'static [Row],
    /// Interrupts received per reclaimed page, before and after, as derived from the published figures.
    pub per_page: (f64, f64),
}

/// One published figure, before and after.
pub struct Row {
    /// Its name in the table.
    pub label: &'static str,
    /// The key of the figure that is the same; empty where none is.
    pub key: &'static str,
    /// Decimals that were published.
    pub decimals: usize,
    /// Before,
    pub before: f64,
    /// and after.
    pub after: f64,
    /// The published gain, where one was published; it was computed before rounding.
    gain: Option<f64>,
}

const fn row(
    label: &'static str,
    key: &'static str,
    decimals: usize,
    (before, after): (f64, f64),
    gain: Option<f64>,
) -> Row {
    Row { label, key, decimals, before, after, gain }
}

/// The batched flush of Linux 4.3: one reader per CPU on 4 nodes, 48 CPUs, 64 GiB.
static BATCHED_UNMAP: Published = Published {
    source: "Linux 4.3, commit 72b252aed5: measured on 4 nodes, 48 CPUs, 64 GiB",
    workload: "lru-file-mmap-read",
    machine: "numa-4x12",
    cpus: 48,
    // The files are only read, so that no entry is dirty and both kinds of batch do what Linux 4.3 did.
    policies: [&["linux+unmap=per-page"], &["linux", "linux+unmap=batch-clean"]],
    rows: &[
        row("published elapsed, s", figures::ELAPSED.key, 2, (159.62, 120.68), Some(24.40)),
        row("published time_range, s", figures::TIME_RANGE.key, 2, (30.59, 2.80), Some(90.85)),
        row("published time_stddv, s", figures::TIME_STDDEV.key, 2, (6.70, 0.64), Some(90.38)),
        row("published User, s", figures::USER.key, 2, (581.00, 611.43), None),
        row("published System, s", figures::SYSTEM.key, 2, (5804.93, 4111.76), None),
        row("published Elapsed, s", "", 2, (161.03, 122.12), None),
        row(
            "published interrupts/s, ticks too",
            figures::INTERRUPTS_PER_S.key,
            0,
            (900_000.0, 180_000.0),
            None,
        ),
    ],
    per_page: (0.95, 0.144),
};

/// The published comparison that this one repeats with its first policies, if it does: the same work on the same machine,
/// one mechanism changed, and nothing set or broken.
pub fn find(of: &Comparison) -> Option<&'static Published> {
    let published = &BATCHED_UNMAP;
    let place = &of.place;
    let means = |names: &[&str], policy| {
        names.iter().any(|name| Policy::parse(name).is_ok_and(|known| known == policy))
    };
    let same = place.on == On::Sim
        && of.workload == published.workload
        && place.machine == published.machine
        && place.cpus == published.cpus
        && place.sets.is_empty()
        && of.broken.is_none()
        && of.policies.len() >= published.policies.len()
        && of.policies.iter().zip(published.policies).all(|(named, names)| means(names, named.policy));
    same.then_some(published)
}

impl Row {
    /// The gain that was published, or that of the published figures.
    pub fn gain(&self) -> Gain {
        self.gain.map_or_else(|| Gain::of(Better::Less, self.before, self.after), Gain::Percent)
    }
}

impl Published {
    /// The published gain of the figure with this key, in per cent.
    pub fn gain(&self, key: &str) -> Option<f64> {
        match self.rows.iter().find(|row| row.key == key)?.gain() {
            Gain::Percent(percent) => Some(percent),
            Gain::None | Gain::Undefined => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::show::table::Line;

    #[test]
    fn published_gains_agree_with_the_published_figures() {
        for row in BATCHED_UNMAP.rows {
            let Gain::Percent(computed) = Gain::of(Better::Less, row.before, row.after) else {
                panic!("{}", row.label)
            };
            let published = row.gain.unwrap_or(computed);
            assert!((computed - published).abs() < 0.1, "{}: {computed} and {published}", row.label);
        }
        assert_eq!(BATCHED_UNMAP.gain(figures::ELAPSED.key), Some(24.40));
    }

    #[test]
    fn a_policy_of_which_nothing_was_published_has_a_dash() {
        let lines = BATCHED_UNMAP.lines(3);
        assert_eq!(lines.len(), BATCHED_UNMAP.rows.len());
        let Line::Row { cells, .. } = &lines[0] else { panic!("a row") };
        let shown: Vec<&str> = cells.iter().map(|cell| cell.value.as_str()).collect();
        assert_eq!(shown, ["159.62", "120.68", "-"]);
    }
}
