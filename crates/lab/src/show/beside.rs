//! Simulation and metal side by side, as text.

use quietmm_sim::Figure;

use crate::backend::beside::{ROWS, difference};
use crate::show::gain::{self, Gain};
use crate::show::table::{self, Cell, Line};
use crate::show::text::Depth;
use crate::show::units::Scale;
use crate::study::result::Column;
use crate::study::sample::Sample;

/// A difference above this many per cent is pointed at.
const MUCH: f64 = 10.0;

/// Both samples of a figure: metal's and the simulation's.
pub type Pair<'a> = (&'a Sample, &'a Sample);

fn pair<'a>(column: &'a Column<'_>, key: &str) -> Option<Pair<'a>> {
    let find = |samples: &'a [Sample]| samples.iter().find(|sample| sample.figure.key == key);
    Some((find(&column.samples)?, find(&column.simulated)?))
}

/// The rows that say anything, not those that are zero on both: those that matter, or all that both machines have.
pub fn pairs<'a>(column: &'a Column<'_>, all: bool) -> impl Iterator<Item = Pair<'a>> {
    let keys = column.samples.iter().map(|sample| sample.figure.key);
    let others = keys.filter(move |key| all && !ROWS.contains(key));
    let pairs = ROWS.into_iter().chain(others).filter_map(|key| pair(column, key));
    pairs.filter(|(metal, simulated)| metal.number() != 0.0 || simulated.number() != 0.0)
}

fn far((metal, simulated): Pair<'_>) -> Option<f64> {
    difference(metal.number(), simulated.number())
}

/// Whether a difference is pointed at.
fn is_much(far: Option<f64>) -> bool {
    far.is_none_or(|far| far.abs() > MUCH)
}

/// The table: for each policy its rows on both machines.
pub fn table(columns: &[Column<'_>], depth: &Depth) -> String {
    let block = |column: &Column<'_>| {
        let title = Line::Title(column.name.to_string());
        let row = |pair: Pair<'_>| {
            let (metal, simulated) = pair;
            let scale = Scale::of(metal.figure, &[metal, simulated]);
            let far = far(pair);
            let cell =
                |sample: &Sample, gain| Cell { value: scale.show(sample), gain, number: sample.number() };
            let far_gain = far.map_or(Gain::Undefined, Gain::Percent);
            let cells = vec![cell(metal, Gain::None), cell(simulated, far_gain)];
            let remark = if is_much(far) { "*" } else { "" };
            Line::Row { prefix: String::new(), label: metal.figure.label.to_string(), cells, remark }
        };
        [title].into_iter().chain(pairs(column, depth.all).map(row)).collect::<Vec<_>>()
    };
    let blocks: Vec<Vec<Line>> = columns.iter().map(block).collect();
    table::lay_out(&["metal", "simulation"], &blocks.join(&Line::Gap), depth.width)
}

/// The figures of the table, each once.
pub fn rows(columns: &[Column<'_>], all: bool) -> Vec<&'static Figure> {
    let mut rows: Vec<&'static Figure> = Vec::new();
    for (metal, _) in columns.iter().flat_map(|column| pairs(column, all)) {
        if !rows.iter().any(|known| known.key == metal.figure.key) {
            rows.push(metal.figure);
        }
    }
    rows
}

/// How far the three counts differ that matter most, and how many rows differ much.
pub fn verdict(columns: &[Column<'_>]) -> String {
    let signed = |column: &Column<'_>, key| match pair(column, key) {
        None => "not counted".to_string(),
        Some(pair) => match far(pair) {
            Some(far) => format!("{}{}%", if far > 0.0 { "+" } else { "" }, gain::plain(far, 1)),
            None if pair.1.number() == 0.0 => "none".to_string(),
            None => "none on metal".to_string(),
        },
    };
    let mut parts: Vec<String> = Vec::new();
    let (mut much, mut all) = (0, 0);
    for column in columns {
        let [ipis, flushes, pages] = ["ipis_received", "nr_tlb_remote_flush_received", "pages_reclaimed"]
            .map(|key| signed(column, key));
        parts
            .push(format!("{}: IPIs {ipis}, flush requests {flushes}, pages reclaimed {pages}", column.name));
        for pair in pairs(column, false) {
            all += 1;
            much += usize::from(is_much(far(pair)));
        }
    }
    parts.push(format!(
        "{much} of {all} rows differ by more than {MUCH}% (*): docs/fidelity.md has the causes that were found"
    ));
    parts.join("; ")
}
