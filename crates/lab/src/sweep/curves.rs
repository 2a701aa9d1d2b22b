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
    /// Of each workload, by its place.
    figures: Vec<Vec<&'static Figure>>,
    /// By the place on each axis, with 0 for the seed's.
    pub groups: BTreeMap<Vec<usize>, Group>,
    /// Points that have figures and are in no mean: not every line has their seeds.
    pub left_out: usize,
}

/// What all seeds of one point came to.
#[derive(Default)]
pub struct Group {
    /// The first of them.
    pub point: u64,
    /// Which seeds, by their places.
    seeds: BTreeSet<usize>,
    /// Of each figure those that there are, with the place of their seed.
    values: Vec<Vec<(usize, Number)>>,
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
        let chosen = |telling: &BTreeSet<String>| {
            let shown = tally.keys.iter().filter(|key| telling.contains(*key));
            policies::chosen(&shown.filter_map(|key| figures::find(key)).collect::<Vec<_>>())
        };
        let figures: Vec<Vec<&'static Figure>> = tally.telling.iter().map(chosen).collect();
        let mut groups: BTreeMap<Vec<usize>, Group> = BTreeMap::new();
        lines.each(|point, line| {
            let Some(read) = Read::of(line).filter(|read| read.error.is_none()) else { return Ok(()) };
            let mut places = header::places(&axes, point);
            let seed = roles.seed.map_or(0, |seed| std::mem::take(&mut places[seed]));
            let Some(figures) = figures.get(roles.workload.map_or(0, |axis| places[axis])) else {
                return Ok(());
            };
            let empty = || Group { point, values: vec![Vec::new(); figures.len()], ..Group::default() };
            let group = groups.entry(places).or_insert_with(empty);
            group.seeds.insert(seed);
            for (figure, values) in figures.iter().zip(&mut group.values) {
                let value = read.metrics.get(figure.key);
                let exact = value.and_then(serde_json::Value::as_u64).map(Number::Int);
                let number = exact.or_else(|| value?.as_f64().map(Number::Real));
                values.extend(number.map(|number| (seed, number)));
            }
            Ok(())
        })?;
        let mut curves = Curves { roles, figures, groups, left_out: 0 };
        curves.keep_common();
        Ok(curves)
    }

    /// Lines are compared: at each place by those seeds alone that all of them have, where a sweep was interrupted, or points failed. One that has
    /// none in common with those before it has no value there.
    fn keep_common(&mut self) {
        let Some(axis) = self.roles.lines else { return };
        let without = |places: &Vec<usize>| {
            let mut places = places.clone();
            places[axis] = 0;
            places
        };
        let mut common: BTreeMap<Vec<usize>, BTreeSet<usize>> = BTreeMap::new();
        for (places, group) in &self.groups {
            let seeds = common.entry(without(places)).or_insert_with(|| group.seeds.clone());
            let both: BTreeSet<usize> = seeds.intersection(&group.seeds).copied().collect();
            if !both.is_empty() {
                *seeds = both;
            }
        }
        for (places, group) in &mut self.groups {
            self.left_out += group.keep(&common[&without(places)]);
        }
        self.groups.retain(|_, group| !group.seeds.is_empty());
    }

    /// What is to be said of points that are in no mean, if there are any.
    pub fn unpaired(&self) -> Option<String> {
        let (points, are) = if self.left_out == 1 { ("point", "is") } else { ("points", "are") };
        (self.left_out > 0).then(|| {
            format!("{} {points} {are} left out: only seeds that all lines have are compared", self.left_out)
        })
    }
}

/// One workload of it.
pub struct View<'a> {
    pub workload: String,
    pub axes: &'a [Values],
    pub curves: &'a Curves,
    /// What is drawn of it.
    pub figures: &'a [&'static Figure],
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
            let figures = self.figures.get(nth).map_or(&[][..], Vec::as_slice);
            View { workload, axes, curves: self, figures, mine }
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
        self.seeds.len()
    }

    /// Forgets all seeds but these; returns how many those are.
    fn keep(&mut self, common: &BTreeSet<usize>) -> usize {
        let before = self.seeds.len();
        self.seeds.retain(|seed| common.contains(seed));
        self.values.iter_mut().for_each(|values| values.retain(|(seed, _)| common.contains(seed)));
        before - self.seeds.len()
    }

    /// The `nth` of the figures: as it is, or mean and spread.
    pub fn sample(&self, nth: usize, figure: &'static Figure) -> Option<Sample> {
        match &self.values[nth][..] {
            [] => None,
            [(_, one)] => Some(Sample { figure, value: *one, spread: None }),
            all => {
                let (mean, spread) =
                    mean_and_spread(&all.iter().map(|(_, value)| value.number()).collect::<Vec<_>>());
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

    /// Of a grid of policies and seeds with one figure: these seeds of each policy, whose figures are their number.
    fn of_seeds(each: &[&[usize]]) -> Curves {
        let roles = Roles { lines: Some(0), seed: Some(1), ..Roles::default() };
        let group = |seeds: &[usize]| Group {
            seeds: seeds.iter().copied().collect(),
            values: vec![seeds.iter().map(|&seed| (seed, Number::Int(seed as u64))).collect()],
            ..Group::default()
        };
        let groups = each.iter().enumerate().filter(|(_, seeds)| !seeds.is_empty());
        let groups = groups.map(|(policy, seeds)| (vec![policy, 0], group(seeds))).collect();
        let mut curves = Curves { roles, figures: vec![vec![&figures::ELAPSED]], groups, left_out: 0 };
        curves.keep_common();
        curves
    }

    #[test]
    fn policies_are_compared_by_the_seeds_that_all_have() {
        let means = |each: &[&[usize]]| {
            let curves = of_seeds(each);
            let mean = |group: &Group| group.sample(0, &figures::ELAPSED).map(|sample| sample.number());
            (curves.left_out, curves.groups.values().map(mean).collect::<Vec<_>>())
        };
        // Interrupted in the second policy, and not at all.
        assert_eq!(means(&[&[1, 2, 3, 9], &[1, 3]]), (2, vec![Some(2.0), Some(2.0)]));
        assert_eq!(means(&[&[1, 3], &[1, 3]]), (0, vec![Some(2.0), Some(2.0)]));
        // One that was not begun takes nothing from the others; one that has no seed of theirs is not shown.
        assert_eq!(means(&[&[1, 3], &[]]), (0, vec![Some(2.0)]));
        assert_eq!(means(&[&[1, 3], &[5, 6]]), (2, vec![Some(2.0)]));
        assert!(of_seeds(&[&[1, 3], &[3]]).unpaired().unwrap().starts_with("1 point is left out"));
        assert_eq!(of_seeds(&[&[1], &[1]]).unpaired(), None);
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
