//! Cells that are the darker the more they hold, on a grid of whole units so that no seam shows.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::palette::{EMPTY, HEAT, QUIET};
use super::{Canvas, Drawn, letters};

/// Steps of darkness: more cannot be told apart, and make the page longer.
const STEPS: f64 = 24.0;
/// The lightest that is still something.
const LIGHTEST: f64 = 0.1;

/// How dark `value` of `most` is. By the square root: what is little beside the most is still seen.
pub fn darkness(value: f64, most: f64) -> f64 {
    if value <= 0.0 || most <= 0.0 {
        return 0.0;
    }
    let step = ((value / most).min(1.0).sqrt() * STEPS).round() / STEPS;
    LIGHTEST + (1.0 - LIGHTEST) * step
}

/// The cells of a row, from the left: each so wide and high, with its upper left corner at `(x, y)`.
pub fn row(
    canvas: &Canvas<'_>,
    (x, y): (i32, i32),
    (width, height): (i32, i32),
    values: &[f64],
    most: f64,
) -> Drawn<()> {
    // What is alike stands together: a quiet machine is one rectangle.
    let mut nth = 0;
    while nth < values.len() {
        let dark = darkness(values[nth], most);
        let alike = values[nth..].iter().take_while(|value| darkness(**value, most) == dark).count();
        if dark > 0.0 {
            let (from, to) = (x + width * nth as i32, x + width * (nth + alike) as i32);
            canvas.draw(&Rectangle::new([(from, y), (to, y + height)], HEAT.mix(dark).filled()))?;
        }
        nth += alike;
    }
    Ok(())
}

/// The ground on which cells stand.
pub fn ground(canvas: &Canvas<'_>, (x, y): (i32, i32), (width, height): (i32, i32)) -> Drawn<()> {
    Ok(canvas.draw(&Rectangle::new([(x, y), (x + width, y + height)], EMPTY.filled()))?)
}

/// Words at a place.
pub fn words(canvas: &Canvas<'_>, text: &str, at: (i32, i32), across: HPos) -> Drawn<()> {
    let style = letters(&QUIET).pos(Pos::new(across, VPos::Center));
    Ok(canvas.draw(&Text::new(text.to_string(), at, style))?)
}

/// What the darkness means, with its left end at `(x, y)`.
pub fn key(canvas: &Canvas<'_>, (x, y): (i32, i32), most: &str) -> Drawn<()> {
    words(canvas, "0", (x, y), HPos::Left)?;
    let boxes = 8;
    for nth in 0..boxes {
        // As far apart as the numbers are, not as the darkness is.
        let share = f64::from(nth) / f64::from(boxes - 1);
        let left = x + 12 + 14 * nth;
        let colour = if nth == 0 { EMPTY.to_rgba() } else { HEAT.mix(darkness(share, 1.0)) };
        canvas.draw(&Rectangle::new([(left, y - 6), (left + 14, y + 6)], colour.filled()))?;
    }
    words(canvas, most, (x + 12 + 14 * boxes + 6, y), HPos::Left)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_not_drawn_and_a_little_is_seen() {
        assert_eq!((darkness(0.0, 9.0), darkness(3.0, 0.0), darkness(9.0, 9.0)), (0.0, 0.0, 1.0));
        assert!(darkness(1.0, 1e9) >= LIGHTEST);
        assert!(darkness(2.0, 9.0) > darkness(1.0, 9.0));
    }
}
