//! What came of it, by room.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use crate::sample::interval;

use crate::explained;
use crate::judges::Set;
use crate::mutant::Mutant;
use crate::results::{Results, Verdict};
use crate::rooms::room;

/// Counts of a room.
#[derive(Default, Clone, Copy)]
struct Counts {
    killed: usize,
    explained: usize,
    survived: usize,
    unreached: usize,
    open: usize,
}

impl Counts {
    fn cells(&self, name: &str) -> String {
        let behave = self.killed + self.survived + self.unreached;
        let score = 100.0 * self.killed as f64 / behave.max(1) as f64;
        let all = behave + self.explained + self.open;
        let Counts { killed, explained, survived, unreached, open } = self;
        let (low, high) = interval(*killed, behave);
        format!(
            "| {name} | {all} | {killed} | {explained} | {survived} | {unreached} | {open} | {score:.1} % | {low:.0} to {high:.0} % |"
        )
    }
    fn add(&mut self, other: &Counts) {
        self.killed += other.killed;
        self.explained += other.explained;
        self.survived += other.survived;
        self.unreached += other.unreached;
        self.open += other.open;
    }
}

/// A table in Markdown, a row for each room.
///
/// `all` is how many mutants each room has, where these are a sample: the last row then weighs the rooms by that.
pub fn table(mutants: &[Mutant], results: &Results, all: &BTreeMap<String, usize>) -> String {
    let list = explained::list();
    let mut rooms: BTreeMap<&str, Counts> = BTreeMap::new();
    for mutant in mutants {
        let counts = rooms.entry(room(&mutant.key.file)).or_default();
        match results.known.get(&mutant.key) {
            Some(Verdict::Killed { .. }) => counts.killed += 1,
            _ if explained::why(&list, mutant).is_some() => counts.explained += 1,
            None => counts.open += 1,
            Some(Verdict::Survived { reached: 0, .. }) => counts.unreached += 1,
            Some(Verdict::Survived { .. }) => counts.survived += 1,
        }
    }
    let mut text = String::from(
        "| room | mutants | killed | explained | survived | not reached | not judged | score | 95 % sure |\n",
    );
    text.push_str("|---|--:|--:|--:|--:|--:|--:|--:|--:|\n");
    let mut sum = Counts::default();
    for (name, counts) in &rooms {
        let _ = writeln!(text, "{}", counts.cells(&format!("`{name}`")));
        sum.add(counts);
    }
    let _ = writeln!(text, "{}", sum.cells("all"));
    // A room of which few were judged counts as much as it has mutants.
    let (mut score, mut variance, mut weight) = (0.0, 0.0, 0.0);
    for (name, counts) in &rooms {
        let behave = (counts.killed + counts.survived + counts.unreached) as f64;
        let judged = behave + counts.explained as f64;
        let room = all.get(*name).copied().unwrap_or(0) as f64 * behave / judged.max(1.0);
        let killed = counts.killed as f64 / behave.max(1.0);
        score += room * killed;
        variance += room * room * killed * (1.0 - killed) / behave.max(1.0);
        weight += room;
    }
    let (score, error) = (100.0 * score / weight.max(1.0), 196.0 * variance.sqrt() / weight.max(1.0));
    let _ = writeln!(text, "\nAll rooms, each by the number of its mutants: {score:.1} % ± {error:.1}.");
    text
}

/// Those that nobody has seen and that are not explained, a line each; and the sets that have looked at all of them.
pub fn unseen(mutants: &[Mutant], results: &Results) -> (Vec<String>, Vec<&'static str>) {
    let list = explained::list();
    let mut by: BTreeSet<Set> = Set::ALL.into_iter().collect();
    let mut lines = Vec::new();
    for mutant in mutants.iter().filter(|mutant| explained::why(&list, mutant).is_none()) {
        if let Some(Verdict::Survived { sets, .. }) = results.known.get(&mutant.key) {
            by = &by & sets;
            lines.push(mutant.line());
        }
    }
    (lines, by.into_iter().map(Set::name).collect())
}

/// Those that nobody has seen and that are not explained, with some of the tests that reach them.
pub fn survivors(mutants: &[Mutant], results: &Results) -> String {
    let list = explained::list();
    let mut text = String::new();
    for mutant in mutants.iter().filter(|mutant| explained::why(&list, mutant).is_none()) {
        if let Some(Verdict::Survived { reached, tests, sets }) = results.known.get(&mutant.key) {
            let sets: Vec<&str> = sets.iter().map(|set| set.name()).collect();
            let _ = writeln!(text, "{}", mutant.line());
            let _ =
                writeln!(text, "    {} tests of {} reach it: {}", reached, sets.join(", "), tests.join(", "));
        }
    }
    text
}

/// Explanations of mutants that a test sees after all, or that there are not.
pub fn stale(mutants: &[Mutant], results: &Results) -> Vec<String> {
    let list = explained::list();
    let mut stale = Vec::new();
    for entry in &list {
        let one = std::slice::from_ref(entry);
        let meant: Vec<&Mutant> =
            mutants.iter().filter(|mutant| explained::why(one, mutant).is_some()).collect();
        if meant.is_empty() {
            stale.push(format!("matches nothing: {}", entry.pattern));
        }
        for mutant in meant {
            if let Some(Verdict::Killed { by, .. }) = results.known.get(&mutant.key) {
                stale.push(format!("is seen by {by}: {}", mutant.line()));
            }
        }
    }
    stale
}
