//! Who interrupts whom as a picture: a row for each who sends, a column for each who is interrupted.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use quietmm_host::blame::{Blame, Group, Whom};
use textwrap::Options;

use super::recorded;
use crate::report::plot::cells;
use crate::report::plot::palette::INK;
use crate::report::plot::{Canvas, Drawn, LETTER, Picture, WIDE, draw, letters};
use crate::report::value::count;

/// Rows and columns; what is left is one more.
const MOST: usize = 9;
/// The height of a row, and of a line of words above.
const ROW: i32 = 26;
const LINE: i32 = 16;
/// A column is at most so wide.
const COLUMN: i32 = 110;
/// The letters of a row's name, at most.
const LETTERS: usize = 22;
/// No cell is as dark as one can be: its number has to stand out, on light pages and on dark ones.
const LIGHTER: f64 = 7.0;

/// Counts by who interrupts and whom.
pub struct Matrix {
    rows: Vec<String>,
    columns: Vec<String>,
    counts: Vec<Vec<u64>>,
}

impl Matrix {
    /// Of all interrupts, by what `who` says of a group.
    pub fn of(blame: &Blame, who: impl Fn(&Group) -> String) -> Matrix {
        let mut sums: Vec<(String, &Whom, u64)> = Vec::new();
        for group in &blame.groups {
            let name = who(group);
            for (whom, count) in &group.victims {
                match sums.iter_mut().find(|sum| sum.0 == name && sum.1 == whom) {
                    Some(sum) => sum.2 += count,
                    None => sums.push((name.clone(), whom, *count)),
                }
            }
        }
        let rows = ranked(sums.iter().map(|(who, _, count)| (who.clone(), *count)));
        let columns = ranked(sums.iter().map(|(_, whom, count)| (recorded::name(whom).to_owned(), *count)));
        let mut counts = vec![vec![0; columns.len()]; rows.len()];
        let place = |names: &[String], name: &str| {
            names.iter().position(|known| known == name).unwrap_or(names.len() - 1)
        };
        for (who, whom, count) in &sums {
            counts[place(&rows, who)][place(&columns, recorded::name(whom))] += count;
        }
        Matrix { rows, columns, counts }
    }

    /// The picture; `None` where nobody was interrupted.
    pub fn picture(&self, title: &str) -> Drawn<Option<Picture>> {
        if self.rows.is_empty() {
            return Ok(None);
        }
        let letters = self.rows.iter().map(|name| name.chars().count().min(LETTERS)).max().unwrap_or(0);
        let left = LETTER as i32 * letters as i32 + 20;
        let column = ((WIDE as i32 - left) / self.columns.len() as i32).min(COLUMN);
        let heads: Vec<Vec<String>> = self.columns.iter().map(|name| wrapped(name, column)).collect();
        let top = LINE * heads.iter().map(Vec::len).max().unwrap_or(1) as i32 + 8;
        let height = top + (ROW + 2) * self.rows.len() as i32;
        let width = (left + column * self.columns.len() as i32).max(left + 240);
        let most = self.counts.iter().flatten().copied().max().unwrap_or(0) as f64;
        let about = self.rows.iter().zip(&self.counts).map(|(row, counts)| {
            let whom = self.columns.iter().zip(counts).filter(|(_, count)| **count > 0);
            let whom: Vec<String> = whom.map(|(name, count)| format!("{name} {count} times")).collect();
            format!("{row} interrupts {}", whom.join(", "))
        });
        let about = format!("{}.", about.collect::<Vec<_>>().join("; "));
        draw(title, about, (width as u32, height as u32), |canvas| {
            for (nth, lines) in heads.iter().enumerate() {
                let x = left + column * nth as i32 + column / 2;
                for (line, words) in lines.iter().rev().enumerate() {
                    cells::words(canvas, words, (x, top - 12 - LINE * line as i32), HPos::Center)?;
                }
            }
            for (row, counts) in self.counts.iter().enumerate() {
                let y = top + (ROW + 2) * row as i32;
                cells::words(canvas, &cut(&self.rows[row]), (left - 8, y + ROW / 2), HPos::Right)?;
                for (nth, &count) in counts.iter().enumerate() {
                    cell(canvas, (left + column * nth as i32, y), column - 2, count, most)?;
                }
            }
            Ok(())
        })
        .map(Some)
    }
}

fn cell(canvas: &Canvas<'_>, (x, y): (i32, i32), width: i32, held: u64, most: f64) -> Drawn<()> {
    cells::ground(canvas, (x, y), (width, ROW))?;
    cells::row(canvas, (x, y), (width, ROW), &[held as f64], LIGHTER * most)?;
    if held > 0 {
        let style = letters(&INK).pos(Pos::new(HPos::Center, VPos::Center));
        canvas.draw(&Text::new(count(held as f64), (x + width / 2, y + ROW / 2), style))?;
    }
    Ok(())
}

/// Names by their sums, the most first; behind a few all others are one.
fn ranked(counted: impl Iterator<Item = (String, u64)>) -> Vec<String> {
    let mut sums: Vec<(String, u64)> = Vec::new();
    for (name, count) in counted {
        match sums.iter_mut().find(|sum| sum.0 == name) {
            Some(sum) => sum.1 += count,
            None => sums.push((name, count)),
        }
    }
    sums.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    let rest = sums.len().saturating_sub(MOST);
    let mut names: Vec<String> = sums.into_iter().map(|(name, _)| name).collect();
    if rest > 1 {
        names.truncate(MOST);
        names.push(format!("{rest} more"));
    }
    names
}

fn wrapped(name: &str, column: i32) -> Vec<String> {
    let width = (column / LETTER as i32 - 1).max(4) as usize;
    textwrap::wrap(name, Options::new(width)).into_iter().map(|line| line.into_owned()).collect()
}

/// A name that has room.
fn cut(name: &str) -> String {
    if name.chars().count() <= LETTERS {
        return name.to_owned();
    }
    name.chars().take(LETTERS - 1).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use quietmm_host::blame::Cause;

    fn group(name: &str, cause: Cause, victims: &[(&str, u64)]) -> Group {
        Group {
            name: name.to_owned(),
            cause,
            calls: 0,
            shared: 0,
            guilty: 0,
            shootdowns: victims.iter().map(|(_, count)| count).sum(),
            took: [0; 2],
            medians: [None; 2],
            bursts: 0,
            pages: 0,
            alike: None,
            victims: victims
                .iter()
                .map(|(name, count)| (Whom::Threads((*name).to_owned()), *count))
                .collect(),
            stacks: Vec::new(),
        }
    }

    #[test]
    fn every_interrupt_is_in_one_cell_and_those_that_have_no_room_are_in_the_last() {
        let name = |nth: u64| format!("thread {nth}");
        let mut groups = vec![
            group("a", Cause::Munmap, &[("b", 3), ("a", 1)]),
            group("a", Cause::Madvise, &[("b", 2)]),
            group("b", Cause::Munmap, &[("a", 9)]),
        ];
        let matrix =
            Matrix::of(&Blame { shootdowns: 15, groups: groups.clone() }, |group| group.name.clone());
        assert_eq!(
            (&matrix.rows[..], &matrix.columns[..]),
            (&["b", "a"].map(String::from)[..], &["a", "b"].map(String::from)[..])
        );
        assert_eq!(matrix.counts, [[9, 0], [1, 5]]);
        groups.extend((0..20).map(|nth| group(&name(nth), Cause::Fork, &[("b", 1)])));
        let matrix = Matrix::of(&Blame { shootdowns: 35, groups }, |group| group.name.clone());
        assert_eq!((matrix.rows.len(), &matrix.rows[MOST][..]), (MOST + 1, "13 more"));
        assert_eq!(matrix.counts.iter().flatten().sum::<u64>(), 35);
        assert_eq!(matrix.counts[MOST], [13, 0], "b is interrupted most now");
    }
}
