//! What all pages have: a head, a way to each comparison, and where the page is from.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::plot::Drawn;
use super::section;
use crate::process::plain;
use crate::study::Form;
use crate::study::result::Comparison;

const STYLE: &str = include_str!("style.css");
/// Of which revision this build is: see `build.rs`.
const REVISION: &str = env!("QUIETMM_REVISION");

/// The whole page.
pub fn page(all: &[Comparison], form: Form) -> Drawn<String> {
    let sections = all.iter().enumerate().map(|(nth, of)| section::section(of, nth, form));
    let sections = sections.collect::<Drawn<Vec<Markup>>>()?;
    let title = title(all);
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { "quietmm: " (title) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                header {
                    p class="kind" { "quietmm report" }
                    h1 { (title) }
                }
                @if all.len() > 1 {
                    nav aria-label="Comparisons" {
                        ol {
                            @for (nth, of) in all.iter().enumerate() {
                                li { a href={ "#s" (nth) } { (of.workload) " on " (of.place.machine) } }
                            }
                        }
                    }
                }
                main { @for section in &sections { (section) } }
                footer {
                    p {
                        "Computed by quietmm " (env!("CARGO_PKG_VERSION")) ", revision "
                        code { (REVISION) } ". The commands above print the same figures again."
                    }
                }
            }
        }
    };
    // What a machine or a file was called may hold anything.
    Ok(plain::plain(&page.into_string()).into_owned())
}

fn title(all: &[Comparison]) -> String {
    match all {
        [of] => format!("{} on {}", of.workload, of.place.machine),
        _ => format!("{} comparisons", all.len()),
    }
}
