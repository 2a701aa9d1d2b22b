//! Units that a person reads: 3.68 ms, not 3679317 ns; 251,810, not 251810.

use quietmm_sim::{Figure, Value};

use crate::show::gain::plain;
use crate::study::sample::Sample;

/// Digits that a figure shows at least, if it is not zero: 0.00 says nothing about 0.0047.
const SIGNIFICANT: i32 = 3;
/// More decimals than these are never shown.
const MOST_DECIMALS: i32 = 9;
/// Nor more than these beside a larger figure of the same row, where a unit was chosen.
const MOST_BESIDE: usize = 4;

/// Units of time, in seconds.
const TIMES: [(&str, f64); 4] = [("s", 1.0), ("ms", 1e-3), ("us", 1e-6), ("ns", 1e-9)];

/// How all figures of a row are shown: in one unit, with the decimals that the smallest needs.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    /// The unit; empty for a plain number.
    pub unit: &'static str,
    factor: f64,
    decimals: usize,
}

impl Scale {
    /// For these samples of one figure.
    pub fn of(figure: &Figure, samples: &[&Sample]) -> Scale {
        let numbers = || samples.iter().map(|sample| sample.number().abs());
        let most = numbers().fold(0.0, f64::max);
        if let Some(base) = seconds(figure.unit) {
            let (unit, each) = time_unit(most * base);
            let factor = base / each;
            // Seconds are shown as mmtests shows them.
            let least = if unit == "s" { 2 } else { 0 };
            let needed = numbers().map(|value| decimals(value * factor, least)).max().unwrap_or(0);
            return Scale { unit, factor, decimals: needed.min(MOST_BESIDE) };
        }
        let needed = samples.iter().map(|sample| match (sample.value, sample.spread) {
            (Value::Int(_), _) => 0,
            // Means of whole numbers: what is behind the point says something only about a few.
            (Value::Real(value), Some(spread)) if figure.decimals == 0 => {
                usize::from(value.abs() < 100.0 && spread > 0.0)
            }
            (Value::Real(value), _) => decimals(value, figure.decimals.into()),
        });
        let unit = if figure.unit == "/s" { "" } else { figure.unit };
        Scale { unit, factor: 1.0, decimals: needed.max().unwrap_or(0) }
    }

    /// A sample as a table shows it.
    pub fn show(&self, sample: &Sample) -> String {
        let shown = match sample.value {
            Value::Int(value) if self.factor == 1.0 && self.decimals == 0 => grouped(&value.to_string()),
            value => self.number(value.number()),
        };
        match sample.spread {
            None => shown,
            Some(spread) => format!("{shown} ±{}", self.number(spread)),
        }
    }

    fn number(&self, value: f64) -> String {
        grouped(&plain(value * self.factor, self.decimals))
    }
}

/// A unit of time, in seconds.
fn seconds(unit: &str) -> Option<f64> {
    TIMES.iter().find(|(name, _)| *name == unit).map(|(_, seconds)| *seconds)
}

/// The unit in which so many seconds are read best.
pub fn time_unit(seconds: f64) -> (&'static str, f64) {
    let fits = |(_, each): &&(&str, f64)| seconds >= *each * 0.9995;
    let smallest = TIMES[TIMES.len() - 1];
    if seconds == 0.0 { TIMES[0] } else { *TIMES.iter().find(fits).unwrap_or(&smallest) }
}

/// Nanoseconds, with their unit.
pub fn time(ns: f64) -> String {
    let (unit, each) = time_unit(ns * 1e-9);
    let value = ns * 1e-9 / each;
    format!("{} {unit}", plain(value, decimals(value, 0).min(3)))
}

/// `least` decimals, or more if `value` needs them to show three significant digits.
pub fn decimals(value: f64, least: usize) -> usize {
    if value == 0.0 || !value.is_finite() {
        return least;
    }
    // As it is when it is rounded: 0.9996 has three digits with two decimals.
    let rounded = format!("{value:.*e}", SIGNIFICANT as usize - 1);
    let exponent = rounded.split_once('e').and_then(|(_, exponent)| exponent.parse::<i32>().ok());
    let needed = SIGNIFICANT - 1 - exponent.unwrap_or(0);
    (needed.clamp(0, MOST_DECIMALS) as usize).max(least)
}

/// A number of more than four digits before the point, in groups of three.
pub fn grouped(number: &str) -> String {
    let (sign, rest) = number.split_at(usize::from(number.starts_with('-')));
    let (whole, fraction) = rest.split_at(rest.find('.').unwrap_or(rest.len()));
    if whole.len() < 5 || !whole.bytes().all(|byte| byte.is_ascii_digit()) {
        return number.to_string();
    }
    let mut out = String::new();
    for (nth, digit) in whole.chars().enumerate() {
        if nth > 0 && (whole.len() - nth).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    format!("{sign}{out}{fraction}")
}

#[cfg(test)]
mod tests {
    use quietmm_sim::figures;

    use super::*;

    fn shown(figure: &'static Figure, values: &[f64]) -> (String, &'static str) {
        let samples: Vec<Sample> =
            values.iter().map(|&value| Sample { figure, value: Value::Real(value), spread: None }).collect();
        let scale = Scale::of(figure, &samples.iter().collect::<Vec<_>>());
        (samples.iter().map(|sample| scale.show(sample)).collect::<Vec<_>>().join(" "), scale.unit)
    }

    #[test]
    fn a_row_has_one_unit_that_a_person_reads() {
        assert_eq!(shown(&figures::UNMAP_MEAN, &[3_679_317.0, 12_396_524.0]), ("3.68 12.40".into(), "ms"));
        assert_eq!(shown(&figures::ELAPSED, &[159.62, 120.68]), ("159.62 120.68".into(), "s"));
        assert_eq!(shown(&figures::ELAPSED, &[0.264, 0.199]), ("264 199".into(), "ms"));
        assert_eq!(shown(&figures::SWAP_COMMAND, &[58.8]), ("58.8".into(), "us"));
        assert_eq!(shown(&figures::EXIT_MEAN, &[0.0, 999.4]), ("0 999".into(), "ns"));
        assert_eq!(
            shown(&figures::INTERRUPTS_PER_S, &[978_135.0, 120_396.0]),
            ("978,135 120,396".into(), "")
        );
    }

    #[test]
    fn small_figures_show_three_digits_and_large_ones_what_they_ask_for() {
        for (value, least, text) in [
            (159.62, 2, "159.62"),
            (0.784, 2, "0.784"),
            (1.5, 2, "1.50"),
            (0.00467, 2, "0.00467"),
            (-0.0123, 0, "-0.0123"),
            (77_645.4, 0, "77645"),
            (3.5, 0, "3.50"),
            (0.0, 2, "0.00"),
            (1e-12, 2, "0.000000000"),
        ] {
            assert_eq!(plain(value, decimals(value, least)), text);
        }
        let spread = Sample { figure: &figures::IPIS_SENT, value: Value::Real(3.5), spread: Some(0.5) };
        assert_eq!(Scale::of(&figures::IPIS_SENT, &[&spread]).show(&spread), "3.5 ±0.5");
        let exact = Sample { figure: &figures::IPIS_SENT, value: Value::Int(u64::MAX), spread: None };
        assert_eq!(Scale::of(&figures::IPIS_SENT, &[&exact]).show(&exact), grouped(&u64::MAX.to_string()));
    }

    #[test]
    fn times_and_counts_alone_are_short() {
        assert_eq!([time(0.0), time(667.0), time(12_396_524.0)], ["0 s", "667 ns", "12.4 ms"]);
        assert_eq!([time(5.07e9), time(999_999.0), time(9.0)], ["5.07 s", "1.00 ms", "9.00 ns"]);
        let numbers = ["1234", "12345", "-1234567.25", "1e9", "NaN"].map(grouped);
        assert_eq!(numbers, ["1234", "12,345", "-1,234,567.25", "1e9", "NaN"]);
    }
}
