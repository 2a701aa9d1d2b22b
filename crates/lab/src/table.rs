//! The table that memory-management people know: a label, then for each policy a value and its gain.
//!
//! Columns are as wide as their content needs. The space between them shrinks first, so that two policies fit
//! into 80 columns when they can; the window's width is never asked, so that the same runs print the same bytes.

use crate::gain::Gain;
use crate::wrap::WIDTH;

/// The space before a value, if there is room for it.
const WIDE: usize = 4;

/// One value in one column.
#[derive(Clone, Debug)]
pub struct Cell {
    /// As it is printed.
    pub value: String,
    /// What stands in brackets behind it.
    pub gain: Gain,
}

/// A line of the table.
#[derive(Clone, Debug)]
pub enum Line {
    /// A label, a cell for each column, and a remark behind them (a unit).
    Row(String, Vec<Cell>, &'static str),
    /// A line of text across the table.
    Title(String),
    /// An empty line.
    Gap,
}

/// Lays the table out. One column alone has no baseline and therefore no brackets.
pub fn lay_out(columns: &[String], lines: &[Line]) -> String {
    let rows = || {
        lines.iter().filter_map(|line| {
            if let Line::Row(label, cells, _) = line { Some((label, cells)) } else { None }
        })
    };
    let label_width = rows().map(|(label, _)| width(label)).max().unwrap_or(0);
    let bracket_width = if columns.len() > 1 { " (100.00%)".len() } else { 0 };
    let value_widths: Vec<usize> = (0..columns.len())
        .map(|column| {
            let widest =
                rows().filter_map(|(_, cells)| cells.get(column)).map(|cell| width(&cell.value)).max();
            // A name wider than value and brackets widens the column.
            widest.unwrap_or(0).max(width(&columns[column]).saturating_sub(bracket_width)).max(6)
        })
        .collect();
    let bare = label_width + value_widths.iter().map(|value| value + bracket_width).sum::<usize>();
    let space = (1..=WIDE).rev().find(|space| bare + space * columns.len() <= WIDTH).unwrap_or(1);

    let mut header = " ".repeat(label_width);
    for (name, value_width) in columns.iter().zip(&value_widths) {
        let cell_width = space + value_width + bracket_width;
        if bracket_width == 0 {
            header.push_str(&pad_left(name, cell_width));
        } else {
            header.push_str(&centre(name, space, cell_width));
        }
    }
    let mut out = header.trim_end().to_string() + "\n";
    for line in lines {
        match line {
            Line::Gap => {}
            Line::Title(title) => out.push_str(title),
            Line::Row(label, cells, remark) => {
                let mut text = label.clone() + &" ".repeat(label_width - width(label));
                for (cell, value_width) in cells.iter().zip(&value_widths) {
                    text.push_str(&pad_left(&cell.value, space + value_width));
                    if bracket_width > 0 {
                        text.push(' ');
                        text.push_str(&cell.gain.brackets());
                    }
                }
                if !remark.is_empty() {
                    text.push(' ');
                    text.push_str(remark);
                }
                out.push_str(text.trim_end());
            }
        }
        out.push('\n');
    }
    out
}

fn width(text: &str) -> usize {
    text.chars().count()
}

fn pad_left(text: &str, to: usize) -> String {
    " ".repeat(to.saturating_sub(width(text))) + text
}

/// `text` in the middle of what is left of `to` after the first `from` characters.
fn centre(text: &str, from: usize, to: usize) -> String {
    let left = from + (to - from).saturating_sub(width(text)) / 2;
    let text = " ".repeat(left) + text;
    let right = to.saturating_sub(width(&text));
    text + &" ".repeat(right)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(label: &str, cells: &[(&str, Gain)]) -> Line {
        let cells =
            cells.iter().map(|(value, gain)| Cell { value: value.to_string(), gain: *gain }).collect();
        Line::Row(label.to_string(), cells, "")
    }

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| name.to_string()).collect()
    }

    #[test]
    fn the_published_row_looks_as_published() {
        let cells = [("159.62", Gain::Percent(0.0)), ("120.68", Gain::Percent(24.396))];
        let table = lay_out(&names(&["per-page", "batch"]), &[row("Ops lru-file-mmap-read-elapsed", &cells)]);
        let lines: Vec<&str> = table.lines().collect();
        assert_eq!(lines[1], "Ops lru-file-mmap-read-elapsed    159.62 (  0.00%)    120.68 ( 24.40%)");
        assert_eq!(lines[0].split_whitespace().collect::<Vec<_>>(), ["per-page", "batch"]);
    }

    #[test]
    fn two_policies_fit_into_eighty_columns_by_giving_up_space() {
        let cells = [("143500000", Gain::Percent(0.0)), ("1234567", Gain::Percent(-5.0))];
        let table = lay_out(
            &names(&["per-page", "batch"]),
            &[row("Ops lru-file-mmap-read-shared-time_stddv", &cells)],
        );
        assert!(table.lines().all(|line| line.len() <= WIDTH), "{table}");
    }

    #[test]
    fn long_names_and_many_columns_stay_aligned() {
        let long = "unmap=per-page,drain=holding-cpus";
        let cells = [("1", Gain::None), ("2", Gain::Undefined), ("3", Gain::Percent(1.0))];
        let table = lay_out(&names(&["a", long, "c"]), &[row("x", &cells), row("longer", &cells)]);
        let lines: Vec<&str> = table.lines().collect();
        assert!(lines[0].contains(long));
        assert_eq!(lines[1].find("( "), lines[2].find("( "));
        assert!(lines[0].len() <= lines[1].len());
    }

    #[test]
    fn one_column_has_no_brackets() {
        let table = lay_out(&names(&["linux"]), &[row("elapsed", &[("1.50", Gain::Percent(0.0))])]);
        assert!(!table.contains('('));
    }
}
