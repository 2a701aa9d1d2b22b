//! Published figures beside computed ones, where the comparison is the same.

use maud::{Markup, html};

use super::plot::axis::Axis;
use super::plot::bars::{self, Bar};
use super::plot::{Drawn, WIDE, draw, palette};
use super::table::{breakable, gained, number};
use crate::show::gain::{Gain, plain};
use crate::show::published::{self, Row};
use crate::show::units::Scale;
use crate::study::result::{Column, Comparison};
use crate::study::sample::Sample;

/// A figure of which both are known.
struct Both<'a> {
    row: &'a Row,
    samples: [&'a Sample; 2],
    /// What was published, and what was computed, in per cent.
    gains: [f64; 2],
}

/// The table, and the gains of both side by side.
pub fn beside(of: &Comparison, columns: &[Column<'_>]) -> Drawn<Markup> {
    let Some(published) = published::find(of).filter(|_| columns.len() == of.policies.len()) else {
        return Ok(html! {});
    };
    let both = |row: &'static Row| {
        let samples = [columns[0].get(row.key)?, columns[1].get(row.key)?];
        let gain = Gain::of(samples[0].figure.better, samples[0].number(), samples[1].number());
        match (row.gain(), gain) {
            (Gain::Percent(published), Gain::Percent(computed)) => {
                Some(Both { row, samples, gains: [published, computed] })
            }
            _ => None,
        }
    };
    let all: Vec<Both<'_>> = published.rows.iter().filter_map(both).collect();
    let bars: Vec<Bar> = all.iter().flat_map(Both::bars).collect();
    let about: Vec<String> = all
        .iter()
        .map(|one| {
            format!(
                "{}: published {}%, computed {}%",
                one.name(),
                plain(one.gains[0], 1),
                plain(one.gains[1], 1)
            )
        })
        .collect();
    let least = all.iter().flat_map(|one| one.gains).fold(0.0, f64::min);
    let axis = Axis::from_zero("gain, per cent", bars::most(&bars), 5);
    let size = (WIDE, bars::height(bars.len()));
    // A bar has a length: a loss is in the table.
    let picture = (least >= 0.0).then(|| {
        draw("Gains, published and computed", format!("{}.", about.join("; ")), size, |canvas| {
            bars::draw(canvas, &bars, &axis, WIDE)
        })
    });
    let picture = picture.transpose()?;
    Ok(html! {
        h3 { "Beside what was published" }
        p class="dim" {
            (published.source) ". Memory and work are divided by the scale here, so times differ and gains can be compared; "
            "the difference is that of the gains, in points."
        }
        div class="wide" {
            table {
                thead {
                    tr {
                        td rowspan="2" {}
                        th scope="colgroup" colspan="2" { "published" }
                        th scope="colgroup" colspan="2" { "computed" }
                        th scope="col" rowspan="2" { "difference" }
                    }
                    tr {
                        @for _ in 0..2 { @for column in &columns[..2] { th scope="col" { (breakable(column.name)) } } }
                    }
                }
                tbody { @for one in &all { (one.row()) } }
            }
        }
        @if let Some(picture) = &picture { div class="pictures" { (picture) } }
    })
}

impl Both<'_> {
    fn name(&self) -> &str {
        self.row.label.strip_prefix("published ").unwrap_or(self.row.label)
    }

    fn bars(&self) -> [Bar; 2] {
        let bar = |what: &str, nth: usize| Bar {
            name: format!("{}, {what}", self.name()),
            pieces: vec![(self.gains[nth], if nth == 0 { palette::REST } else { palette::colour(1) })],
            spread: 0.0,
            value: format!("{}%", plain(self.gains[nth], 1)),
        };
        [bar("published", 0), bar("computed", 1)]
    }

    fn row(&self) -> Markup {
        let scale = Scale::of(self.samples[0].figure, &self.samples);
        html! {
            tr {
                th scope="row" { (self.name()) }
                td { (plain(self.row.before, self.row.decimals)) }
                td { (plain(self.row.after, self.row.decimals)) (gained(Gain::Percent(self.gains[0]))) }
                @for (policy, sample) in self.samples.iter().enumerate() {
                    td data-figure=(sample.figure.key) data-policy=(policy) data-value=(number(sample.value)) {
                        (scale.show(sample)) @if !scale.unit.is_empty() { " " (scale.unit) }
                        @if policy > 0 { (gained(Gain::Percent(self.gains[1]))) }
                    }
                }
                td { (format!("{:+.2}", self.gains[1] - self.gains[0])) }
            }
        }
    }
}
