//! Pictures, drawn by a library. Each is an image with a title and a description for whoever does not see it; its colours are those of
//! a light page, and [`DARK`] has for each what stands for it on a dark one.

pub mod axis;
pub mod bars;
pub mod cells;
pub mod lines;
pub mod palette;
pub mod sequence;

use std::error::Error;

use maud::{Markup, PreEscaped, Render, html};
use plotters::coord::Shift;
use plotters::prelude::*;

use crate::REVISION;
use crate::process::plain;

/// Where is drawn.
pub type Canvas<'a> = DrawingArea<SVGBackend<'a>, Shift>;
/// What the library could not do.
pub type Drawn<T> = Result<T, Box<dyn Error>>;

/// The size that the library takes for letters of twelve units.
pub const LETTERS: f64 = 15.0;
/// The width of a letter of that size, about.
pub const LETTER: u32 = 7;
/// The width of a picture across the page.
pub const WIDE: u32 = 760;

/// The colours of pictures on a dark page: rules of a style sheet.
pub const DARK: &str = include_str!("dark.css");
/// What stands behind a picture that is a file of its own, on light and on dark.
const GROUND: [&str; 2] = ["#ffffff", "#14171b"];

/// A picture with its title; what is to be seen in it stands in the picture, in words.
pub struct Picture {
    /// What it shows.
    title: String,
    width: u32,
    svg: String,
}

/// Draws a picture of this size.
pub fn draw(
    title: impl Into<String>,
    about: impl Into<String>,
    (width, height): (u32, u32),
    draw: impl FnOnce(&Canvas<'_>) -> Drawn<()>,
) -> Drawn<Picture> {
    let mut svg = String::new();
    {
        let canvas = SVGBackend::with_string(&mut svg, (width, height)).into_drawing_area();
        draw(&canvas)?;
        canvas.present()?;
    }
    let (title, about) = (title.into(), about.into());
    // What the library begins with says nothing to whoever does not see.
    let inside = svg.split_once('>').map_or("", |(_, inside)| inside);
    let named = html! { title { (title) } desc { (about) } }.into_string();
    let svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" role=\"img\" viewBox=\"0 0 {width} {height}\" \
         font-family=\"sans-serif\">{named}{}",
        inside.replace(">\n", ">")
    );
    Ok(Picture { title, width, svg })
}

impl Picture {
    /// As a file of its own, with all its colours.
    pub fn file(&self) -> String {
        let [light, dark] = GROUND;
        let style = format!(
            "<style>svg {{ background: {light}; }} rect {{ shape-rendering: crispEdges; }}\n\
             @media (prefers-color-scheme: dark) {{ svg {{ background: {dark}; }}\n{DARK}}}</style>"
        );
        let by = format!("<!-- quietmm {}, revision {} -->", env!("CARGO_PKG_VERSION"), REVISION);
        let svg = self.svg.replacen("<title>", &format!("{by}{style}<title>"), 1);
        format!("{}\n", plain::plain(&svg))
    }
}

impl Render for Picture {
    fn render(&self) -> Markup {
        let svg = self.svg.replacen("<svg ", &format!("<svg style=\"max-width:{}px\" ", self.width), 1);
        html! {
            figure style={ "flex:1 1 " (self.width.min(340)) "px" } {
                figcaption { (self.title) }
                (PreEscaped(svg))
            }
        }
    }
}

/// Letters in this colour.
pub fn letters(colour: &RGBColor) -> TextStyle<'static> {
    ("sans-serif", LETTERS).into_font().color(colour)
}
