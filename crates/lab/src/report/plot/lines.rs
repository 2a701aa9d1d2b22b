//! Lines: one for each policy, told apart by colour and by marks or strokes.

use plotters::prelude::*;

use super::axis::Axis;
use super::palette::{GRID, QUIET, colour, mark as mark_of};
use super::{Canvas, Drawn, LETTER, letters};

/// Units of the half of the mark that is drawn last; those below are larger, so that each is seen where all are in one place.
const MARK: i32 = 3;
const LARGER: i32 = 2;
const LARGEST: i32 = 7;

/// A line.
pub struct Line {
    /// Which colour and which mark.
    pub nth: usize,
    /// From point to point.
    pub points: Vec<(f64, f64)>,
}

/// How points are told apart beside their colour.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Told {
    /// Each point has a mark.
    ByMarks,
    /// Too many points for marks: the line is whole, or broken.
    ByStrokes,
}

/// Draws them.
pub fn draw(canvas: &Canvas<'_>, lines: &[Line], (x, y): (&Axis, &Axis), told: Told) -> Drawn<()> {
    let right = x.ticks.last().map_or(0, |(_, number)| number.chars().count() as u32) * LETTER / 2 + 8;
    let mut chart = ChartBuilder::on(canvas)
        .margin_top(10)
        .margin_left(6)
        .margin_right(right)
        .x_label_area_size(44)
        .y_label_area_size(y.longest() * LETTER + 32)
        .build_cartesian_2d(x.clone(), y.clone())?;
    chart
        .configure_mesh()
        .axis_style(GRID)
        .bold_line_style(GRID)
        .light_line_style(TRANSPARENT)
        .x_desc(x.label.as_str())
        .y_desc(y.label.as_str())
        .label_style(letters(&QUIET))
        .axis_desc_style(letters(&QUIET))
        .draw()?;
    for (nth, line) in lines.iter().enumerate() {
        let mark = (MARK + LARGER * (lines.len() - 1 - nth) as i32).min(LARGEST);
        let (points, colour) = (line.points.iter().copied(), colour(line.nth));
        let style = colour.stroke_width(2);
        match (told, mark_of(line.nth)) {
            (Told::ByStrokes, 1) => chart.draw_series(DashedLineSeries::new(points, 8, 5, style))?,
            (Told::ByStrokes, 2) => chart.draw_series(DashedLineSeries::new(points, 2, 4, style))?,
            _ => chart.draw_series(LineSeries::new(points, style))?,
        };
        if told == Told::ByMarks {
            let filled = colour.filled();
            for &at in &line.points {
                match mark_of(line.nth) {
                    0 => chart.draw_series([Circle::new(at, mark, filled)])?,
                    1 => chart.draw_series([TriangleMarker::new(at, mark + 1, filled)])?,
                    _ => {
                        let corners = [(-mark, -mark), (mark, mark)];
                        chart.draw_series([EmptyElement::at(at) + Rectangle::new(corners, filled)])?
                    }
                };
            }
        }
    }
    Ok(())
}
