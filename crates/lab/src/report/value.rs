//! Numbers that `--json` has too: each with its place there (a JSON pointer), for programs that compare.

use maud::{Markup, html};
use serde_json::Value as Json;

use crate::show::units::grouped;

/// What a command prints with `--json`.
#[derive(Clone, Copy)]
pub struct Values<'a>(pub &'a Json);

impl Values<'_> {
    /// The number at this place.
    pub fn number(self, place: &str) -> Option<f64> {
        self.0.pointer(place).and_then(Json::as_f64)
    }

    /// A count, as a cell of a table.
    pub fn cell(self, place: &str) -> Markup {
        self.cell_as(place, count)
    }

    /// A number as a cell of a table, in these words.
    pub fn cell_as(self, place: &str, shown: impl FnOnce(f64) -> String) -> Markup {
        match (self.0.pointer(place), self.number(place)) {
            (Some(value), Some(number)) => {
                html! { td data-json=(place) data-value=(value) { (shown(number)) } }
            }
            _ => html! { td { "–" } },
        }
    }

    /// A number within a sentence.
    pub fn said(self, place: &str, shown: impl FnOnce(f64) -> String) -> Markup {
        match (self.0.pointer(place), self.number(place)) {
            (Some(value), Some(number)) => {
                html! { span data-json=(place) data-value=(value) { (shown(number)) } }
            }
            _ => html! { "–" },
        }
    }
}

/// A whole number.
pub fn count(number: f64) -> String {
    grouped(&format!("{number:.0}"))
}
