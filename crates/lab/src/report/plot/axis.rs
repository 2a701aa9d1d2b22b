//! Axes: from where to where, the places that have a number, and what the numbers are.

use std::ops::Range;

use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};

use super::LETTER;
use crate::show::gain::plain;
use crate::show::units::{decimals, grouped, time, time_unit};

/// Times that lie as far apart are numbered by powers of ten alone.
const FEW_POWERS: f64 = 400.0;

/// More numbers than these are never written beside an axis of ratios.
const MOST_TICKS: usize = 40;

/// One direction of a picture.
#[derive(Clone)]
pub struct Axis {
    /// What is counted, with its unit.
    pub label: String,
    /// Where it begins and ends.
    pub ends: (f64, f64),
    /// Places that have a number, and the number.
    pub ticks: Vec<(f64, String)>,
}

impl Axis {
    /// From zero to at least `most`, with about so many numbers.
    pub fn from_zero(label: impl Into<String>, most: f64, numbers: usize) -> Axis {
        let step = step(most, numbers);
        let places = if step > 0.0 { (most / step - 1e-9).ceil().max(1.0) as usize } else { 1 };
        let step = if step > 0.0 { step } else { 1.0 };
        let least = decimals_of(step);
        let ticks = (0..=places).map(|nth| nth as f64 * step);
        let number = |at| if at == 0.0 { "0".to_string() } else { grouped(&plain(at, least)) };
        let ticks = ticks.map(|at| (at, number(at))).collect();
        Axis { label: label.into(), ends: (0.0, places as f64 * step), ticks }
    }

    /// Of times in nanoseconds; positions are logarithms. The numbers are powers of ten, or finer where it goes over few of them.
    pub fn of_times(label: impl Into<String>, least: f64, most: f64) -> Axis {
        let (least, most) = (least.max(1.0), most.max(1.0));
        let times: &[f64] = if most / least > FEW_POWERS { &[1.0] } else { &[1.0, 2.0, 5.0] };
        let round = |power: u32| times.iter().map(move |times| times * power_of_ten(power));
        let (first, last) = (logarithm(least) as u32, logarithm(most) as u32 + 2);
        let all: Vec<f64> = (first..=last).flat_map(round).collect();
        let from = all.iter().rposition(|ns| *ns <= least).unwrap_or(0);
        let to = all.iter().position(|ns| *ns >= most).unwrap_or(all.len() - 1).max(from + 1);
        let ticks = all[from..=to].iter().map(|ns| (logarithm(*ns), round_time(*ns)));
        Axis { label: label.into(), ends: (logarithm(all[from]), logarithm(all[to])), ticks: ticks.collect() }
    }

    /// Of values above zero that lie far apart; positions are their [`Axis::of_ratio`] to the least. The numbers are powers of ten,
    /// or finer where it goes over few of them.
    pub fn of_ratios(label: impl Into<String>, least: f64, most: f64) -> Axis {
        let times: &[f64] = if most / least > FEW_POWERS { &[1.0] } else { &[1.0, 2.0, 5.0] };
        let mut power = 1.0;
        while power > least {
            power /= 10.0;
        }
        while power * 10.0 <= least {
            power *= 10.0;
        }
        let mut ticks: Vec<(f64, String)> = Vec::new();
        while ticks.len() < MOST_TICKS && power <= most {
            let all = times
                .iter()
                .map(|times| times * power)
                .filter(|at| (least * 0.999..=most * 1.001).contains(at));
            ticks.extend(all.map(|at| (Axis::of_ratio(at, least), said(at))));
            power *= 10.0;
        }
        if ticks.is_empty() {
            ticks.push((0.0, said(least)));
        }
        Axis { label: label.into(), ends: (0.0, Axis::of_ratio(most, least).max(1e-9)), ticks }
    }

    /// Where on an axis of ratios a value stands.
    pub fn of_ratio(value: f64, least: f64) -> f64 {
        if value < least { -logarithm(least / value) } else { logarithm(value / least) }
    }

    /// Of values with names of their own, in order, at places of their own: as many of the names as there is room for.
    pub fn of_names(label: impl Into<String>, all: &[(f64, String)], room: u32) -> Axis {
        let ends = all.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), (at, _)| {
            (least.min(*at), most.max(*at))
        });
        let span = (ends.1 - ends.0).max(1e-9);
        let letters = all.iter().map(|(_, name)| name.chars().count()).max().unwrap_or(1) as f64;
        let apart = span * (letters + 1.0) * f64::from(LETTER) / f64::from(room.max(1));
        let mut ticks: Vec<(f64, String)> = Vec::new();
        for (at, name) in all {
            if ticks.last().is_none_or(|(last, _)| at - last >= apart) {
                ticks.push((*at, name.clone()));
            }
        }
        // A margin, so that no mark stands on the edge.
        Axis { label: label.into(), ends: (ends.0 - span * 0.02, ends.0 + span * 1.02), ticks }
    }

    /// With powers of ten alone where there are more numbers than this, if at least two are left.
    pub fn with_at_most(mut self, numbers: usize) -> Axis {
        if self.ticks.len() > numbers {
            let powers: Vec<_> =
                self.ticks.iter().filter(|(_, number)| number.starts_with('1')).cloned().collect();
            let every = powers.len().div_ceil(numbers).max(1);
            self.ticks = match powers.len() {
                0 | 1 => [self.ticks.first(), self.ticks.last()].into_iter().flatten().cloned().collect(),
                _ => powers.into_iter().step_by(every).collect(),
            };
        }
        self
    }

    /// The number at this place, if it has one.
    fn number(&self, at: f64) -> String {
        let near = (self.ends.1 - self.ends.0).abs() * 1e-6;
        let tick = self.ticks.iter().find(|(place, _)| (place - at).abs() <= near);
        tick.map_or(String::new(), |(_, number)| number.clone())
    }

    /// Letters of its longest number.
    pub fn longest(&self) -> u32 {
        self.ticks.iter().map(|(_, number)| number.chars().count()).max().unwrap_or(0) as u32
    }
}

impl Ranged for Axis {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, (from, to): (i32, i32)) -> i32 {
        let (least, most) = self.ends;
        from + (f64::from(to - from) * (value - least) / (most - least)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        // Fine lines between the numbers would only be lines.
        let places = self.ticks.iter().map(|(place, _)| *place);
        if hint.weight().allow_light_points() { Vec::new() } else { places.collect() }
    }

    fn range(&self) -> Range<f64> {
        self.ends.0..self.ends.1
    }
}

impl ValueFormatter<f64> for Axis {
    fn format_ext(&self, at: &f64) -> String {
        self.number(*at)
    }
}

/// One, two or five of a power of ten, so that about so many of it reach `most`.
fn step(most: f64, numbers: usize) -> f64 {
    if most <= 0.0 || !most.is_finite() {
        return 0.0;
    }
    let rough = most / numbers.max(1) as f64;
    let mut power = 1.0;
    while power * 10.0 <= rough {
        power *= 10.0;
    }
    while power > rough {
        power /= 10.0;
    }
    let times = [1.0, 2.0, 5.0, 10.0].into_iter().find(|times| times * power >= rough * 0.999);
    times.unwrap_or(10.0) * power
}

/// Decimals that a step of this size needs.
fn decimals_of(step: f64) -> usize {
    (0..9).find(|&decimals| step * power_of_ten(decimals as u32) > 0.999).unwrap_or(9)
}

fn power_of_ten(power: u32) -> f64 {
    (0..power).fold(1.0, |all, _| all * 10.0)
}

/// The decimal logarithm of at least 1. Not the library's, whose last bits differ from host to host: the page is the same everywhere.
pub fn logarithm(value: f64) -> f64 {
    let (mut rest, mut whole) = (value.max(1.0), 0.0);
    while rest >= 10.0 {
        rest /= 10.0;
        whole += 1.0;
    }
    let (mut fraction, mut bit) = (0.0, 0.5);
    for _ in 0..30 {
        rest *= rest;
        if rest >= 10.0 {
            rest /= 10.0;
            fraction += bit;
        }
        bit /= 2.0;
    }
    whole + fraction
}

/// Round nanoseconds: `20 us`.
fn round_time(ns: f64) -> String {
    let (unit, each) = time_unit(ns * 1e-9);
    format!("{} {unit}", (ns * 1e-9 / each).round())
}

/// How a figure in this unit is shown on an axis that reaches `most`: the factor, and the unit.
pub fn scaled(unit: &str, most: f64) -> (f64, String) {
    let known = [("s", 1.0), ("ms", 1e-3), ("us", 1e-6), ("ns", 1e-9)];
    match known.iter().find(|(name, _)| *name == unit) {
        Some((_, base)) => {
            let (unit, each) = time_unit(most * base);
            (base / each, unit.to_string())
        }
        None => (1.0, if unit == "/s" { "per second".to_string() } else { unit.to_string() }),
    }
}

/// A number for words.
pub fn said(value: f64) -> String {
    grouped(&plain(value, if value.fract() == 0.0 { 0 } else { decimals(value, 0).min(4) }))
}

/// Nanoseconds for words.
pub fn said_time(ns: f64) -> String {
    time(ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_round_and_reach_the_end() {
        let axis = Axis::from_zero("x", 197.3, 4);
        assert_eq!(
            axis.ticks.iter().map(|tick| tick.1.as_str()).collect::<Vec<_>>(),
            ["0", "50", "100", "150", "200"]
        );
        assert_eq!(axis.ends, (0.0, 200.0));
        let axis = Axis::from_zero("x", 0.013, 3);
        assert_eq!(axis.ticks.last().unwrap().1, "0.015");
        assert_eq!(Axis::from_zero("x", 0.0, 3).ends, (0.0, 1.0));
        assert_eq!(Axis::from_zero("x", 2_000_000.0, 4).number(1_000_000.0), "1,000,000");
    }

    #[test]
    fn a_logarithm_is_one() {
        for (value, expected) in
            [(1.0, 0.0), (1e7, 7.0), (7.0, 0.845_098_040), (7e3, 3.845_098_040), (0.0, 0.0)]
        {
            assert!((logarithm(value) - expected).abs() < 1e-8, "{value}: {}", logarithm(value));
        }
    }

    #[test]
    fn values_that_lie_far_apart_stand_at_their_ratios() {
        let numbers = |axis: &Axis| axis.ticks.iter().map(|tick| tick.1.clone()).collect::<Vec<_>>();
        let axis = Axis::of_ratios("x", 0.003, 50.0);
        assert_eq!(numbers(&axis), ["0.0100", "0.100", "1", "10"]);
        assert!((axis.ends.1 - 4.221_848).abs() < 1e-5, "{:?}", axis.ends);
        assert!(axis.ticks.iter().all(|(at, _)| (axis.ends.0..=axis.ends.1).contains(at)));
        assert_eq!(numbers(&Axis::of_ratios("x", 3.0, 40.0)), ["5", "10", "20"]);
        assert_eq!(numbers(&Axis::of_ratios("x", 3.0, 3.0)).len(), 1);
        assert!((Axis::of_ratio(0.5, 5.0) + 1.0).abs() < 1e-8);
    }

    #[test]
    fn names_that_would_overlap_are_left_out() {
        let all: Vec<(f64, String)> = (0..100).map(|nth| (f64::from(nth), nth.to_string())).collect();
        let axis = Axis::of_names("x", &all, 300);
        assert!((5..20).contains(&axis.ticks.len()), "{}", axis.ticks.len());
        assert_eq!(Axis::of_names("x", &all[..4], 300).ticks.len(), 4);
    }

    #[test]
    fn times_stand_at_powers_of_ten_and_finer_where_they_are_few() {
        let numbers = |axis: &Axis| axis.ticks.iter().map(|tick| tick.1.clone()).collect::<Vec<_>>();
        let axis = Axis::of_times("t", 850.0, 3.2e6);
        assert_eq!(axis.ends, (2.0, 7.0));
        assert_eq!(numbers(&axis), ["100 ns", "1 us", "10 us", "100 us", "1 ms", "10 ms"]);
        assert_eq!(numbers(&Axis::of_times("t", 11e6, 14e6)), ["10 ms", "20 ms"]);
        assert_eq!(numbers(&Axis::of_times("t", 0.0, 0.0)).len(), 2);
        let few = |least, most| numbers(&Axis::of_times("t", least, most).with_at_most(4));
        assert_eq!(few(11e6, 14e6), ["10 ms", "20 ms"]);
        assert_eq!(few(900.0, 190e3), ["1 us", "10 us", "100 us"]);
        assert_eq!(few(100.0, 1e9), ["100 ns", "10 us", "1 ms", "100 ms"]);
        assert_eq!(few(2100.0, 48e3), ["2 us", "50 us"]);
    }
}
