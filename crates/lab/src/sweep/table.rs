//! The first figures in the terminal: a row for each value of the axis that goes across, a column for each line of a picture.

use quietmm_sim::Figure;

use crate::report::policies::title;
use crate::show::gain::Gain;
use crate::show::table::{Cell, Line, lay_out};
use crate::show::units::Scale;
use crate::show::wrap::hanging;
use crate::study::sample::Sample;
use crate::sweep::curves::{Curves, View};
use crate::sweep::lines::Lines;

/// Figures that are shown: time, and interrupts.
const FIGURES: usize = 2;
/// Tables, and rows of each.
const MOST: usize = 3;
const MOST_ROWS: usize = 16;

/// All of it; what does not fit is in the results.
pub fn tables(lines: &Lines, curves: &Curves, width: usize) -> String {
    let views = curves.views(lines);
    let all: Vec<(&View<'_>, Vec<usize>)> =
        views.iter().flat_map(|view| view.frames().into_iter().map(move |frame| (view, frame))).collect();
    let mut text = String::new();
    for (view, frame) in all.iter().take(MOST) {
        let named = [view.workload.clone(), view.named(frame)].into_iter().filter(|name| !name.is_empty());
        text += &format!("\n{}\n{}", named.collect::<Vec<_>>().join(", "), table(view, frame, width));
    }
    if all.len() > MOST {
        text += &format!("\nand {} more such tables: --report and --csv have all\n", all.len() - MOST);
    }
    if let Some(said) = curves.unpaired() {
        text += &format!("\n{}", hanging(width, "", &said));
    }
    text
}

fn table(view: &View<'_>, frame: &[usize], width: usize) -> String {
    let lines = view.lines();
    let names: Vec<&str> = lines.iter().map(|(_, name)| name.as_str()).collect();
    let mut rows = Vec::new();
    for (nth, &figure) in view.figures.iter().take(FIGURES).enumerate() {
        let columns: Vec<Vec<(usize, Sample)>> =
            lines.iter().map(|(line, _)| view.samples(nth, figure, frame, *line)).collect();
        let all: Vec<&Sample> = columns.iter().flatten().map(|(_, sample)| sample).collect();
        let scale = Scale::of(figure, &all);
        if nth > 0 {
            rows.push(Line::Gap);
        }
        let unit = if scale.unit.is_empty() { String::new() } else { format!(", {}", scale.unit) };
        rows.push(Line::Title(title(figure).replacen(figure.label, &format!("{}{unit}", figure.label), 1)));
        let mut places: Vec<usize> = columns.iter().flatten().map(|(place, _)| *place).collect();
        places.sort_unstable();
        places.dedup();
        for &place in places.iter().take(MOST_ROWS) {
            let find = |column: &Vec<(usize, Sample)>| {
                column.iter().find(|(at, _)| *at == place).map(|(_, sample)| *sample)
            };
            let samples: Vec<Option<Sample>> = columns.iter().map(find).collect();
            let label = view.curves.roles.across.map_or("all".to_string(), |axis| {
                let (name, values) = &view.axes[axis];
                format!("{name} {}", values[place])
            });
            rows.push(Line::row(label, cells(figure, &samples, &scale)));
        }
        if places.len() > MOST_ROWS {
            rows.push(Line::Title(format!("and {} more", places.len() - MOST_ROWS)));
        }
    }
    lay_out(&names, &rows, width)
}

/// A row, with the gain over its first column.
fn cells(figure: &Figure, samples: &[Option<Sample>], scale: &Scale) -> Vec<Cell> {
    let base = samples.first().copied().flatten().map(|sample| sample.number());
    let cell = |sample: &Option<Sample>| match sample {
        None => Cell { value: "-".to_string(), gain: Gain::None, number: 0.0 },
        Some(sample) => {
            let gain = base.map_or(Gain::None, |base| Gain::of(figure.better, base, sample.number()));
            Cell { value: scale.show(sample), gain, number: sample.number() }
        }
    };
    samples.iter().map(cell).collect()
}
