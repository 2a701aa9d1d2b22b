//! What all pages have: a head, a way to each part, and where the page is from.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::plot::DARK;
use crate::REVISION;
use crate::process::plain;

const STYLE: &str = include_str!("style.css");

/// What a page has, each part under its name in the way to it.
pub struct Page {
    /// What it is about.
    pub title: String,
    /// Its parts, each a `section` with the id `s` and its number.
    pub parts: Vec<(String, Markup)>,
    /// How the figures can be had again: the end of a sentence.
    pub again: &'static str,
}

impl Page {
    /// The whole page.
    pub fn html(&self) -> String {
        let page = html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    meta name="color-scheme" content="light dark";
                    title { "quietmm: " (self.title) }
                    style { (PreEscaped(STYLE)) "@media (prefers-color-scheme: dark) {\n" (PreEscaped(DARK)) "}\n" }
                }
                body {
                    header {
                        p class="kind" { "quietmm report" }
                        h1 { (self.title) }
                    }
                    @if self.parts.len() > 1 {
                        nav aria-label="Contents" {
                            ol { @for (nth, (name, _)) in self.parts.iter().enumerate() { li { a href={ "#s" (nth) } { (name) } } } }
                        }
                    }
                    main { @for (_, part) in &self.parts { (part) } }
                    footer {
                        p {
                            "Computed by quietmm " (env!("CARGO_PKG_VERSION")) ", revision " code { (REVISION) } ". " (self.again)
                        }
                    }
                }
            }
        };
        // What a machine or a file was called may hold anything.
        plain::plain(&page.into_string()).into_owned()
    }
}
