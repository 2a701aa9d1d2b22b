//! One text that holds many mutants, each behind its number.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::ops::Range;

use crate::mutant::{Mutant, Place};

/// The text of a file with its mutants, and where they stand in it.
pub struct Emitted {
    pub text: String,
    /// Where the text of a mutant stands, and its place in the list.
    pub spots: Vec<(Range<usize>, usize)>,
    /// Where a choice stands, with all that it chooses from, and the mutants that it is for.
    pub choices: Vec<(Range<usize>, Vec<usize>)>,
}

/// A place where there is something to choose.
struct Node<'a> {
    range: Range<usize>,
    place: &'a Place,
    /// Mutants, by their places in the list, and their texts.
    mutants: Vec<(usize, &'a str)>,
}

/// A number for each mutant: those of one place stand together as well as may be. 0 is none.
pub fn numbers(mutants: &[Mutant]) -> Vec<u32> {
    let mut all: Vec<usize> = (0..mutants.len()).collect();
    all.sort_by_key(|&at| {
        let edit = &mutants[at].edits[0];
        (edit.file, order(&edit.place), at)
    });
    let mut numbers = vec![0; mutants.len()];
    for (number, at) in all.into_iter().enumerate() {
        numbers[at] = number as u32 + 1;
    }
    numbers
}

/// By place; what stands outside comes before what is in it, and what is put in before what stands there.
fn order(place: &Place) -> (usize, bool, Reverse<usize>, u8) {
    let range = place.range();
    (range.start, !range.is_empty(), Reverse(range.end), rank(place))
}

fn rank(place: &Place) -> u8 {
    match place {
        Place::Before(_) => 0,
        Place::Arm(_) => 1,
        Place::Lets { .. } => 2,
        Place::Stmt(_) => 3,
        Place::Expr(_) => 4,
    }
}

/// The text of file `file` with these mutants, each under its number. The keyword `const` of functions that hold one is cut.
pub fn emit(text: &str, file: usize, mutants: &[Mutant], numbers: &[u32]) -> Emitted {
    let mut nodes: BTreeMap<(usize, bool, Reverse<usize>, u8), Node<'_>> = BTreeMap::new();
    let mut cuts = BTreeSet::new();
    for (at, mutant) in mutants.iter().enumerate() {
        for edit in mutant.edits.iter().filter(|edit| edit.file == file) {
            let range = edit.place.range();
            let node = nodes.entry(order(&edit.place)).or_insert(Node {
                range,
                place: &edit.place,
                mutants: Vec::new(),
            });
            node.mutants.push((at, &edit.text));
            cuts.extend(edit.const_fn.clone().map(|range| (range.start, range.end)));
        }
    }
    let mut nodes: Vec<Node<'_>> = nodes.into_values().collect();
    nodes.iter_mut().for_each(|node| node.mutants.sort_by_key(|&(at, _)| numbers[at]));
    let emitted = Emitted { text: String::new(), spots: Vec::new(), choices: Vec::new() };
    let mut writer = Writer { source: text, nodes: &nodes, next: 0, cuts, numbers, out: emitted };
    writer.copy(0..text.len());
    writer.out
}

struct Writer<'a> {
    source: &'a str,
    nodes: &'a [Node<'a>],
    next: usize,
    cuts: BTreeSet<(usize, usize)>,
    numbers: &'a [u32],
    out: Emitted,
}

impl Writer<'_> {
    /// Copies a part of the source, with all that there is to choose in it.
    fn copy(&mut self, range: Range<usize>) {
        let mut from = range.start;
        while let Some(node) = self.nodes.get(self.next) {
            // What stands right at the end belongs to whoever is outside, or comes later.
            let inside =
                node.range.start < range.end && node.range.end <= range.end || range.end == self.source.len();
            if !inside {
                break;
            }
            self.next += 1;
            self.plain(from..node.range.start);
            from = node.range.end;
            self.node(node);
        }
        self.plain(from..range.end);
    }

    fn plain(&mut self, range: Range<usize>) {
        let mut from = range.start;
        for &(start, end) in
            self.cuts.iter().filter(|&&(start, end)| start >= range.start && end <= range.end)
        {
            self.out.text.push_str(&self.source[from..start]);
            from = end;
        }
        self.out.text.push_str(&self.source[from..range.end]);
    }

    fn node(&mut self, node: &Node<'_>) {
        let start = self.out.text.len();
        match node.place {
            Place::Expr(range) => {
                self.out.text.push('(');
                // In parentheses too: what begins with `if` would end with its block.
                self.choice(node, ("(", ")"), |writer| writer.copy(range.clone()));
                self.out.text.push(')');
            }
            Place::Stmt(range) => self.choice(node, ("{ ", " }"), |writer| writer.copy(range.clone())),
            Place::Lets { range, pattern, names } => {
                let _ = write!(self.out.text, "let ({pattern}) = ");
                let end = format!(" ({names}) }}");
                self.choice(node, ("{ ", &end), |writer| writer.copy(range.clone()));
                self.out.text.push(';');
            }
            Place::Before(_) => {
                self.out.text.push_str("; ");
                self.choice(node, ("{ ", " }"), |_| {});
                self.out.text.push(' ');
            }
            Place::Arm(_) => {
                for &(at, _) in &node.mutants {
                    let spot = self.out.text.len();
                    let _ = write!(self.out.text, " if crate::mutation::at({}, 1) == 0", self.numbers[at]);
                    self.out.spots.push((spot..self.out.text.len(), at));
                }
            }
        }
        let mutants = node.mutants.iter().map(|&(at, _)| at).collect();
        self.out.choices.push((start..self.out.text.len(), mutants));
    }

    /// A `match` on which mutant is wanted: as it was, or one of these.
    fn choice(&mut self, node: &Node<'_>, round: (&str, &str), whole: impl FnOnce(&mut Self)) {
        // Runs of numbers without a gap share one look.
        let mut runs: Vec<&[(usize, &str)]> = Vec::new();
        let mut rest = &node.mutants[..];
        while !rest.is_empty() {
            let first = self.numbers[rest[0].0];
            let len =
                rest.iter().zip(first..).take_while(|((at, _), number)| self.numbers[*at] == *number).count();
            runs.push(&rest[..len]);
            rest = &rest[len..];
        }
        for run in &runs {
            let (first, len) = (self.numbers[run[0].0], run.len());
            let _ = write!(self.out.text, "match crate::mutation::at({first}, {len}) {{ 0 => ");
        }
        self.out.text.push_str(round.0);
        whole(self);
        self.out.text.push_str(round.1);
        for run in runs.iter().rev() {
            for (at, (mutant, text)) in run.iter().enumerate() {
                let pattern = if at + 1 == run.len() { "_".to_string() } else { (at + 1).to_string() };
                let _ = write!(self.out.text, ", {pattern} => ");
                let start = self.out.text.len();
                let _ = write!(self.out.text, "{}{text}{}", round.0, round.1);
                self.out.spots.push((start..self.out.text.len(), *mutant));
            }
            self.out.text.push_str(" }");
        }
    }
}
