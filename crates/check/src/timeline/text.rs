//! The terminal's drawing: a column for each CPU, time downwards, and the invariant's sentence at the end.

use std::fmt::Write;

use super::{Row, Story};

/// The narrowest column that can be read.
const NARROW: usize = 18;

impl Story {
    /// Draws it, in lines of at most `width` characters.
    pub fn text(&self, width: usize) -> String {
        let cpus = usize::from(self.cpus);
        let column = ((width.saturating_sub(7)) / cpus).saturating_sub(2).max(NARROW);
        let mut text = String::new();
        let mut rows = Rows { text: &mut text, column, cpus };
        rows.row("step", &(0..cpus).map(|cpu| format!("CPU {cpu}")).collect::<Vec<_>>());
        rows.row("----", &vec!["-".repeat(column.min(24)); cpus]);
        for row in &self.rows {
            match row {
                Row::Across(said) => rows.rule(said),
                Row::Of(event) => {
                    let mut cells = vec![String::new(); cpus];
                    cells[usize::from(event.cpu)].clone_from(&event.said);
                    rows.row(&event.step.to_string(), &cells);
                }
            }
        }
        if let Some(broken) = &self.broken {
            let _ = writeln!(text, "\n{}", broken.law());
            for said in &broken.said {
                let _ = writeln!(text, "{said}");
            }
        }
        text
    }
}

struct Rows<'t> {
    text: &'t mut String,
    column: usize,
    cpus: usize,
}

impl Rows<'_> {
    /// A line across all columns.
    fn rule(&mut self, text: &str) {
        let _ = writeln!(self.text, "       -- {text} --");
    }

    /// One row, in as many lines as its longest cell needs.
    fn row(&mut self, step: &str, cells: &[String]) {
        let wrapped: Vec<Vec<String>> = cells.iter().map(|cell| wrap(cell, self.column)).collect();
        let lines = wrapped.iter().map(Vec::len).max().unwrap_or(0).max(1);
        for line in 0..lines {
            let mut row = format!("{:>5}  ", if line == 0 { step } else { "" });
            for (cpu, cell) in wrapped.iter().enumerate() {
                let part = cell.get(line).map_or("", String::as_str);
                row.push_str(part);
                if cpu + 1 < self.cpus {
                    let pad = (self.column + 2).saturating_sub(part.chars().count());
                    row.extend(std::iter::repeat_n(' ', pad));
                }
            }
            let _ = writeln!(self.text, "{}", row.trim_end());
        }
    }
}

/// Breaks at spaces; a word that is too long stands alone.
fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            // What follows the first line is indented.
            Some(_) => lines.push(format!("  {word}")),
            None => lines.push(word.to_string()),
        }
    }
    lines
}
