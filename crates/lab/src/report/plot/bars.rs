//! A bar for each policy, with its name above it and its value behind it; of one piece or of several.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::axis::Axis;
use super::palette::{GRID, INK, QUIET};
use super::{Canvas, Drawn, LETTER, letters};

/// Units for each bar, with its name.
const EACH: u32 = 42;
/// Units below all bars.
const BELOW: u32 = 48;

/// A bar.
pub struct Bar {
    /// Whose it is.
    pub name: String,
    /// Its pieces: how long, in which colour.
    pub pieces: Vec<(f64, RGBColor)>,
    /// How far it may be off, to both sides.
    pub spread: f64,
    /// What stands behind it.
    pub value: String,
}

impl Bar {
    fn length(&self) -> f64 {
        self.pieces.iter().map(|(length, _)| length).sum()
    }
}

/// Where the longest ends.
pub fn most(bars: &[Bar]) -> f64 {
    bars.iter().map(|bar| bar.length() + bar.spread).fold(0.0, f64::max)
}

/// The height of a picture of so many.
pub fn height(bars: usize) -> u32 {
    EACH * bars as u32 + BELOW
}

/// Draws them.
pub fn draw(canvas: &Canvas<'_>, bars: &[Bar], axis: &Axis, width: u32) -> Drawn<()> {
    let letters_behind = bars.iter().map(|bar| bar.value.chars().count()).max().unwrap_or(0) as u32;
    let behind = LETTER * letters_behind + 14;
    let count = bars.len() as f64;
    let margin = axis.longest() * LETTER / 2 + 2;
    let right = behind.max(margin).min(width / 2);
    let mut chart = ChartBuilder::on(canvas)
        .margin_left(4)
        .margin_right(right)
        .x_label_area_size(BELOW - 4)
        .build_cartesian_2d(axis.clone(), 0.0..count)?;
    chart
        .configure_mesh()
        .disable_y_mesh()
        .disable_y_axis()
        .axis_style(GRID)
        .bold_line_style(GRID)
        .light_line_style(TRANSPARENT)
        .x_desc(axis.label.as_str())
        .label_style(letters(&QUIET))
        .axis_desc_style(letters(&QUIET))
        .draw()?;
    for (nth, bar) in bars.iter().enumerate() {
        let top = count - nth as f64;
        let name = letters(&INK).pos(Pos::new(HPos::Left, VPos::Center));
        chart.draw_series([Text::new(bar.name.clone(), (axis.ends.0, top - 0.27), name)])?;
        let (upper, lower) = (top - 0.5, top - 0.88);
        let mut from = axis.ends.0;
        for &(length, colour) in &bar.pieces {
            chart.draw_series([Rectangle::new([(from, upper), (from + length, lower)], colour.filled())])?;
            from += length;
        }
        if bar.spread > 0.0 {
            let (middle, ends) =
                ((upper + lower) / 2.0, ((from - bar.spread).max(axis.ends.0), from + bar.spread));
            chart
                .draw_series([PathElement::new([(ends.0, middle), (ends.1, middle)], INK.stroke_width(2))])?;
            for end in [ends.0, ends.1] {
                let mark = [(end, middle - 0.1), (end, middle + 0.1)];
                chart.draw_series([PathElement::new(mark, INK.stroke_width(2))])?;
            }
        }
        let value = letters(&INK).pos(Pos::new(HPos::Left, VPos::Center));
        let text = EmptyElement::at((from + bar.spread, (upper + lower) / 2.0))
            + Text::new(bar.value.clone(), (6, 0), value);
        chart.draw_series([text])?;
    }
    Ok(())
}
