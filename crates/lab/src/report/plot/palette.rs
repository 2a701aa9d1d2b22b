//! Few colours, which people who do not tell red from green can tell apart too: those of Okabe and Ito, and greys.

use plotters::style::RGBColor;

/// Words.
pub const INK: RGBColor = RGBColor(0x1f, 0x24, 0x2b);
/// Words beside.
pub const QUIET: RGBColor = RGBColor(0x5a, 0x64, 0x70);
/// Lines to read values by.
pub const GRID: RGBColor = RGBColor(0xdf, 0xe3, 0xe8);
/// Where a place holds nothing.
pub const EMPTY: RGBColor = RGBColor(0xee, 0xf0, 0xf3);
/// More or less of something.
pub const HEAT: RGBColor = RGBColor(0x00, 0x5a, 0x9c);
/// What is everything else.
pub const REST: RGBColor = RGBColor(0x9a, 0xa3, 0xad);

const COLOURS: [RGBColor; 6] = [
    RGBColor(0xd5, 0x5e, 0x00),
    RGBColor(0x00, 0x72, 0xb2),
    RGBColor(0x00, 0x9e, 0x73),
    RGBColor(0xcc, 0x79, 0xa7),
    RGBColor(0xe6, 0x9f, 0x00),
    RGBColor(0x56, 0xb4, 0xe9),
];

/// The colour of the `nth` of several; after six they come again.
pub fn colour(nth: usize) -> RGBColor {
    COLOURS[nth % COLOURS.len()]
}

/// The same for a style sheet: the class of the `nth`.
pub fn class(nth: usize) -> String {
    format!("c{}", nth % COLOURS.len())
}

/// The mark of the `nth`, or its stroke, of three: where a colour comes again it has another one.
pub fn mark(nth: usize) -> usize {
    (nth + nth / COLOURS.len()) % 3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eighteen_lines_look_different() {
        let all: std::collections::BTreeSet<_> = (0..18).map(|nth| (class(nth), mark(nth))).collect();
        assert_eq!(all.len(), 18);
    }

    #[test]
    fn each_colour_has_one_for_dark_pages_in_the_style_sheet() {
        let dark = include_str!("dark.css");
        for RGBColor(r, g, b) in COLOURS.iter().chain(&[INK, QUIET, GRID, EMPTY, HEAT, REST]) {
            let name = format!("\"#{r:02X}{g:02X}{b:02X}\"");
            assert!(dark.contains(&name), "{name}");
        }
    }
}
