//! What is drawn of a sweep: over which axis, a line for each value of which other, a picture for each of the rest. Seeds are no
//! axis of a picture: they are what a mean and its spread are of.

use std::collections::{BTreeMap, BTreeSet};

use quietmm_sim::machine::Measure;
use quietmm_sim::{Figure, Value as Number, figures};

use crate::process::ending::Failure;
use crate::report::policies;
use crate::study::sample::{Sample, mean_and_spread};
use crate::sweep::header::{self, Values};
use crate::sweep::lines::Lines;
use crate::sweep::point::Read;
use crate::sweep::tally::Tally;
use crate::sweep::values::Value;

/// Lines of a picture: the colours are six, with three kinds of marks.
const MOST_LINES: usize = 12;

/// Which axis is what, by its number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Roles {
    /// The workloads: a section each.
    pub workload: Option<usize>,
    /// From left to right: the first whose values are numbers.
    pub across: Option<usize>,
    /// A line each: policies, or else the first other.
    pub lines: Option<usize>,
    /// A picture for each combination of these.
    pub rest: Vec<usize>,
    /// Of these are means.
    pub seed: Option<usize>,
}

/// All figures that are drawn.
pub struct Curves {
    pub roles: Roles,
    pub figures: Vec<&'static Figure>,
    /// By the place on each axis, with 0 for the seed's.
    pub groups: BTreeMap<Vec<usize>, Group>,
}

/// What all seeds of one point came to.
#[derive(Default)]
pub struct Group {
    /// The first of them.
    pub point: u64,
    /// Of each figure those that there are.
    values: Vec<Vec<Number>>,
}

impl Roles {
    /// Of these axes. One with a single value is in no picture's way.
    pub fn of(axes: &[Values]) -> Roles {
        let several = || axes.iter().enumerate().filter(|(_, (_, values))| values.len() > 1);
        let find = |wanted: &str| several().find(|(_, (name, _))| name == wanted).map(|(nth, _)| nth);
        let (workload, seed, policy) = (find("workload"), find("seed"), find("policy"));
        let free = |nth: usize| Some(nth) != workload && Some(nth) != seed;
        let across = several().find(|&(nth, axis)| free(nth) && numbers(axis).is_some()).map(|(nth, _)| nth);
        let others: Vec<usize> =
            several().map(|(nth, _)| nth).filter(|&nth| free(nth) && Some(nth) != across).collect();
        let lines = policy.or_else(|| others.first().copied());
        let rest = others.into_iter().filter(|&nth| Some(nth) != lines).collect();
        Roles { workload, across, lines, rest, seed }
    }
}

/// The values of an axis as numbers, if they are; of constants in their smallest unit.
pub fn numbers((name, values): &Values) -> Option<Vec<f64>> {
    let measure = || Measure::of(name).ok().filter(|measure| measure.is_ordered());
    let cycles =
        |text: &str| measure().and_then(|measure| measure.read(text).ok()).map(|amount| amount.cycles);
    let mixed = values.iter().filter_map(|value| match value {
        Value::Text(text) => Some(cycles(text)?),
        Value::Number(_) => None,
    });
    let mixed: Vec<bool> = mixed.collect();
    if mixed.windows(2).any(|two| two[0] != two[1]) {
        return None;
    }
    let number = |value: &Value| match value {
        Value::Number(number) => Some(*number as f64),
        Value::Text(text) => Some(measure()?.read(text).ok()?.count as f64),
    };
    values.iter().map(number).collect()
}

impl Curves {
    /// Of all points that did not fail.
    pub fn of(lines: &mut Lines, tally: &Tally) -> Result<Curves, Failure> {
        let axes = lines.axes().to_vec();
        let roles = Roles::of(&axes);
        let shown: Vec<&'static Figure> = tally
            .keys
            .iter()
            .filter(|key| tally.telling.contains(*key))
            .filter_map(|key| figures::find(key))
            .collect();
        let figures = policies::chosen(&shown);
        let mut groups: BTreeMap<Vec<usize>, Group> = BTreeMap::new();
        lines.each(|point, line| {
            let Some(read) = Read::of(line).filter(|read| read.error.is_none()) else { return Ok(()) };
            let mut places = header::places(&axes, point);
            if let Some(seed) = roles.seed {
                places[seed] = 0;
            }
            let group = groups
                .entry(places)
                .or_insert_with(|| Group { point, values: vec![Vec::new(); figures.len()] });
            for (figure, values) in figures.iter().zip(&mut group.values) {
                let value = read.metrics.get(figure.key);
                let exact = value.and_then(serde_json::Value::as_u64).map(Number::Int);
                values.extend(exact.or_else(|| value?.as_f64().map(Number::Real)));
            }
            Ok(())
        })?;
        Ok(Curves { roles, figures, groups })
    }
}

/// One workload of it.
pub struct View<'a> {
    pub workload: String,
    pub axes: &'a [Values],
    pub curves: &'a Curves,
    pub mine: Vec<(&'a Vec<usize>, &'a Group)>,
}

impl Curves {
    /// The workloads, in order.
    pub fn views<'a>(&'a self, lines: &'a Lines) -> Vec<View<'a>> {
        let axes = lines.axes();
        // One that is not varied is the only value of its axis, or stays.
        let only = axes.iter().find(|(name, _)| name == "workload").map(|(_, all)| all[0].to_string());
        let stays = || lines.header.with.get("workload").and_then(serde_json::Value::as_str).unwrap_or("");
        let names = match self.roles.workload {
            Some(nth) => axes[nth].1.iter().map(Value::to_string).collect(),
            None => vec![only.unwrap_or_else(|| stays().to_string())],
        };
        let view = |(nth, workload): (usize, String)| {
            let mine = |places: &Vec<usize>| self.roles.workload.is_none_or(|axis| places[axis] == nth);
            let mine = self.groups.iter().filter(|(places, _)| mine(places)).collect();
            View { workload, axes, curves: self, mine }
        };
        names.into_iter().enumerate().map(view).collect()
    }
}

impl View<'_> {
    /// The lines of a picture: which, and what they are called.
    pub fn lines(&self) -> Vec<(usize, String)> {
        match self.curves.roles.lines {
            Some(axis) => {
                self.axes[axis].1.iter().take(MOST_LINES).map(Value::to_string).enumerate().collect()
            }
            None => vec![(0, String::new())],
        }
    }

    /// The combinations that have a picture each, as places on the axes of the rest.
    pub fn frames(&self) -> Vec<Vec<usize>> {
        let rest = &self.curves.roles.rest;
        let all: BTreeSet<Vec<usize>> =
            self.mine.iter().map(|(places, _)| rest.iter().map(|&axis| places[axis]).collect()).collect();
        all.into_iter().collect()
    }

    /// Which part of the grid a picture is of.
    pub fn named(&self, frame: &[usize]) -> String {
        let rest = self.curves.roles.rest.iter().zip(frame);
        let each = rest.map(|(&axis, &nth)| format!("{} {}", self.axes[axis].0, self.axes[axis].1[nth]));
        each.collect::<Vec<_>>().join(", ")
    }

    /// The samples of a line of a picture, with their places across.
    pub fn samples(
        &self,
        nth: usize,
        figure: &'static Figure,
        frame: &[usize],
        line: usize,
    ) -> Vec<(usize, Sample)> {
        let roles = &self.curves.roles;
        let here = |places: &Vec<usize>| {
            roles.rest.iter().zip(frame).all(|(&axis, &nth)| places[axis] == nth)
                && roles.lines.is_none_or(|axis| places[axis] == line)
        };
        let mine = self.mine.iter().filter(|(places, _)| here(places));
        let across = |places: &Vec<usize>| roles.across.map_or(0, |axis| places[axis]);
        mine.filter_map(|(places, group)| Some((across(places), group.sample(nth, figure)?))).collect()
    }
}

impl Group {
    /// How many seeds there are.
    pub fn seeds(&self) -> usize {
        self.values.iter().map(Vec::len).max().unwrap_or(0)
    }

    /// The `nth` of the figures: as it is, or mean and spread.
    pub fn sample(&self, nth: usize, figure: &'static Figure) -> Option<Sample> {
        match &self.values[nth][..] {
            [] => None,
            [one] => Some(Sample { figure, value: *one, spread: None }),
            all => {
                let (mean, spread) =
                    mean_and_spread(&all.iter().map(|value| value.number()).collect::<Vec<_>>());
                Some(Sample { figure, value: Number::Real(mean), spread: Some(spread) })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn axis(name: &str, values: &[&str]) -> Values {
        let value = |text: &&str| text.parse().map_or(Value::Text(text.to_string()), Value::Number);
        (name.to_string(), values.iter().map(value).collect())
    }

    #[test]
    fn numbers_go_across_policies_are_lines_and_seeds_are_means() {
        let policy = || axis("policy", &["linux", "quiet"]);
        let seed = || axis("seed", &["1", "2"]);
        let roles = |axes: &[Values]| {
            let Roles { workload, across, lines, rest, seed } = Roles::of(axes);
            (workload, across, lines, rest, seed)
        };
        let send = || axis("ipi_send", &["100ns", "1us"]);
        assert_eq!(
            roles(&[seed(), axis("cpus", &["1", "2"]), policy(), send()]),
            (None, Some(1), Some(2), vec![3], Some(0))
        );
        assert_eq!(roles(&[policy()]), (None, None, Some(0), vec![], None));
        assert_eq!(roles(&[send(), axis("cpus", &["1", "2"])]), (None, Some(0), Some(1), vec![], None));
        assert_eq!(
            roles(&[axis("cpus", &["8"]), axis("workload", &["a", "b"]), send()]),
            (Some(1), Some(2), None, vec![], None)
        );
    }

    #[test]
    fn what_has_units_is_a_number_of_its_smallest() {
        assert_eq!(numbers(&axis("ipi_send", &["100ns", "2us"])), Some(vec![1e5, 2e6]));
        assert_eq!(numbers(&axis("ipi_send", &["100cycles", "200cycles"])), Some(vec![100.0, 200.0]));
        assert_eq!(numbers(&axis("ipi_send", &["100ns", "200cycles"])), None, "the clock is not asked");
        assert_eq!(numbers(&axis("clean_write_walks", &["true", "false"])), None);
        assert_eq!(numbers(&axis("policy", &["linux", "quiet"])), None);
    }
}
