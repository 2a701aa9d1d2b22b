//! Tables. The one that memory-management people know has a label, then for each policy a value and its gain; where that is
//! wider than the page, each row is a block with a line for each policy.

use crate::show::bar::bar;
use crate::show::gain::Gain;

/// The space before a value, if there is room for it.
const WIDE: usize = 4;
/// The width of a gain in brackets, with the space before it.
const BRACKETS: usize = " (100.00%)".len();
/// The longest bar of a stacked table, and the shortest that says anything.
const LONGEST_BAR: usize = 30;
const SHORTEST_BAR: usize = 8;

/// One value in one column.
#[derive(Clone, Debug)]
pub struct Cell {
    /// As it is printed.
    pub value: String,
    /// What stands in brackets behind it.
    pub gain: Gain,
    /// As long as this its bar is.
    pub number: f64,
}

/// A line of the table.
#[derive(Clone, Debug)]
pub enum Line {
    /// What the label begins with where there is room for it, the label, a cell for each column, and a remark behind them.
    Row { prefix: String, label: String, cells: Vec<Cell>, remark: &'static str },
    /// A line of text across the table.
    Title(String),
    /// An empty line.
    Gap,
}

impl Line {
    /// A row whose label has no prefix.
    pub fn row(label: impl Into<String>, cells: Vec<Cell>) -> Line {
        Line::Row { prefix: String::new(), label: label.into(), cells, remark: "" }
    }
}

/// Lays the table out in at most `width` characters, as far as that goes. One column alone has no baseline and therefore no
/// brackets.
pub fn lay_out(columns: &[&str], lines: &[Line], width: usize) -> String {
    side_by_side(columns, lines, width, false)
        .or_else(|| side_by_side(columns, lines, width, true))
        .unwrap_or_else(|| stacked(columns, lines, width))
}

/// The table with a column for each policy, if it fits; a `terse` one has no prefixes, and no brackets in the first column.
fn side_by_side(columns: &[&str], lines: &[Line], width: usize, terse: bool) -> Option<String> {
    let label_of = |line: &Line| match line {
        Line::Row { prefix, label, .. } => {
            if terse {
                label.clone()
            } else {
                format!("{prefix}{label}")
            }
        }
        _ => String::new(),
    };
    let label_width = lines.iter().map(|line| count(&label_of(line))).max().unwrap_or(0);
    let brackets = |column: usize| match columns.len() {
        0 | 1 => 0,
        _ if terse && column == 0 => 0,
        _ => BRACKETS,
    };
    let cells = || {
        lines.iter().filter_map(|line| if let Line::Row { cells, .. } = line { Some(cells) } else { None })
    };
    let value_width = |column: usize| {
        let widest = cells().filter_map(|row| row.get(column)).map(|cell| count(&cell.value)).max();
        // A name wider than value and brackets widens the column.
        widest.unwrap_or(0).max(count(columns[column]).saturating_sub(brackets(column))).max(6)
    };
    let widths: Vec<(usize, usize)> = (0..columns.len()).map(|n| (value_width(n), brackets(n))).collect();
    let bare = label_width + widths.iter().map(|(value, brackets)| value + brackets).sum::<usize>();
    let space = (1..=WIDE).rev().find(|space| bare + space * columns.len() <= width)?;

    let mut header = " ".repeat(label_width);
    for (name, (value, brackets)) in columns.iter().zip(&widths) {
        let cell = space + value + brackets;
        header += &if *brackets == 0 { format!("{name:>cell$}") } else { centred(name, space, cell) };
    }
    let mut out = header.trim_end().to_string() + "\n";
    let mut titled = "";
    for line in lines {
        match line {
            Line::Gap => {}
            Line::Title(title) => out.push_str(title),
            Line::Row { prefix, cells, remark, .. } => {
                if terse && !prefix.is_empty() && titled != prefix {
                    titled = prefix;
                    out += &format!("{}\n", prefix.trim_end_matches('-'));
                }
                let mut text = format!("{:label_width$}", label_of(line));
                for (cell, (value, brackets)) in cells.iter().zip(&widths) {
                    text += &format!("{:>1$}", cell.value, space + value);
                    if *brackets > 0 {
                        text += &format!(" {}", cell.gain.brackets());
                    }
                }
                out.push_str(format!("{text} {remark}").trim_end());
            }
        }
        out.push('\n');
    }
    Some(out)
}

/// The table with a block for each row: a line for each policy, and a bar beside what differs.
fn stacked(columns: &[&str], lines: &[Line], width: usize) -> String {
    let name_width = columns.iter().map(|name| count(name)).max().unwrap_or(0);
    let mut out = String::new();
    for line in lines {
        match line {
            Line::Gap => {}
            Line::Title(title) => out += &format!("{title}\n"),
            Line::Row { prefix, label, cells, remark } => {
                out += format!("{prefix}{label} {remark}").trim_end();
                out.push('\n');
                let value_width = cells.iter().map(|cell| count(&cell.value)).max().unwrap_or(0);
                let most = cells.iter().map(|cell| cell.number).fold(0.0, f64::max);
                let differs = cells.iter().any(|cell| cell.number != most);
                let left = width.saturating_sub(2 + name_width + 2 + value_width + BRACKETS + 2);
                for (nth, (name, cell)) in columns.iter().zip(cells).enumerate() {
                    let gain = if nth == 0 { " ".repeat(BRACKETS - 1) } else { cell.gain.brackets() };
                    let bar = match left.min(LONGEST_BAR) {
                        room if differs && room >= SHORTEST_BAR => bar(cell.number, most, room),
                        _ => String::new(),
                    };
                    let text = format!("  {name:name_width$}  {:>value_width$} {gain}  {bar}", cell.value);
                    out += text.trim_end();
                    out.push('\n');
                }
            }
        }
        if !matches!(line, Line::Row { .. } | Line::Title(_)) {
            out.push('\n');
        }
    }
    out
}

/// Columns as wide as they need, two spaces between them. A letter for each says where its cells stand: `l` or `r`.
pub fn grid(places: &str, rows: &[Vec<String>]) -> String {
    let width =
        |n: usize| rows.iter().filter_map(|row| row.get(n)).map(|cell| count(cell)).max().unwrap_or(0);
    let widths: Vec<(char, usize)> = places.chars().enumerate().map(|(n, place)| (place, width(n))).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).map(|(cell, &(place, width))| match place {
            'l' => format!("{cell:width$}"),
            _ => format!("{cell:>width$}"),
        });
        let text = cells.collect::<Vec<_>>().join("  ");
        text.trim_end().to_string() + "\n"
    };
    rows.iter().map(line).collect()
}

fn count(text: &str) -> usize {
    text.chars().count()
}

/// `text` in the middle of what is left of `to` after the first `from` characters.
fn centred(text: &str, from: usize, to: usize) -> String {
    format!("{}{text:^1$}", " ".repeat(from), to - from)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(label: &str, cells: &[(&str, Gain)]) -> Line {
        let cell = |(value, gain): &(&str, Gain)| {
            let number = value.parse().unwrap_or(0.0);
            Cell { value: value.to_string(), gain: *gain, number }
        };
        let (prefix, label) = label.split_once('|').unwrap_or(("", label));
        let cells = cells.iter().map(cell).collect();
        Line::Row { prefix: prefix.to_string(), label: label.to_string(), cells, remark: "" }
    }

    #[test]
    fn the_published_row_looks_as_published() {
        let cells = [("159.62", Gain::Percent(0.0)), ("120.68", Gain::Percent(24.396))];
        let table = lay_out(&["vanilla", "linux"], &[row("Ops lru-file-mmap-read-|elapsed", &cells)], 80);
        let lines: Vec<&str> = table.lines().collect();
        assert_eq!(lines[1], "Ops lru-file-mmap-read-elapsed    159.62 (  0.00%)    120.68 ( 24.40%)");
        assert_eq!(lines[0].split_whitespace().collect::<Vec<_>>(), ["vanilla", "linux"]);
    }

    #[test]
    fn a_table_gives_up_space_then_its_prefixes_and_then_stands_in_blocks() {
        let cells = [
            ("143500000", Gain::Percent(0.0)),
            ("1234567", Gain::Percent(-5.0)),
            ("71750000", Gain::Percent(50.0)),
        ];
        let names = ["vanilla", "linux", "quiet"];
        let of = |columns: usize, width| {
            let rows = [row("Ops lru-file-mmap-read-shared-|time_stddv", &cells[..columns])];
            lay_out(&names[..columns], &rows, width)
        };
        let two = of(2, 80);
        assert!(two.lines().all(|line| line.len() <= 80) && two.contains("shared-time_stddv "), "{two}");
        let terse = of(3, 80);
        assert!(terse.contains("Ops lru-file-mmap-read-shared\ntime_stddv "), "{terse}");
        assert!(terse.lines().all(|line| line.len() <= 80) && !terse.contains("(  0.00%)"), "{terse}");
        let blocks = of(3, 50);
        let lines: Vec<&str> = blocks.lines().collect();
        assert_eq!(lines[0], "Ops lru-file-mmap-read-shared-time_stddv");
        assert!(lines[1].starts_with("  vanilla  143500000") && lines[1].ends_with('█'), "{blocks}");
        assert!(lines[3].contains("71750000 ( 50.00%)  █"), "{blocks}");
        assert!(lines.iter().all(|line| line.chars().count() <= 50), "{blocks}");
    }

    #[test]
    fn long_names_and_many_columns_stay_aligned() {
        let long = "unmap=per-page,drain=holding-cpus";
        let cells = [("1", Gain::None), ("2", Gain::Undefined), ("3", Gain::Percent(1.0))];
        let table = lay_out(&["a", long, "c"], &[row("x", &cells), row("longer", &cells)], 120);
        let lines: Vec<&str> = table.lines().collect();
        assert!(lines[0].contains(long));
        assert_eq!(lines[1].find("( "), lines[2].find("( "));
        assert!(lines[0].len() <= lines[1].len());
    }

    #[test]
    fn one_column_has_no_brackets() {
        let table = lay_out(&["linux"], &[row("elapsed", &[("1.50", Gain::Percent(0.0))])], 80);
        assert!(!table.contains('('));
    }

    #[test]
    fn the_cells_of_a_grid_stand_under_each_other() {
        let rows = [["a", "1", "x"], ["bcd", "1000", "y"]].map(|row| row.map(String::from).to_vec());
        assert_eq!(grid("lrl", &rows), "a       1  x\nbcd  1000  y\n");
    }
}
