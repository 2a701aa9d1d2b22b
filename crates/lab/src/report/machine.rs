//! Where the figures are from: the machine, the policies, and the command that repeats them.

use maud::{Markup, html};
use quietmm_sim::Policy;

use crate::study::result::Comparison;

/// All of it.
pub fn part(of: &Comparison, nth: usize) -> Markup {
    let mechanisms = Policy::mechanisms();
    let choices: Vec<Vec<String>> = of
        .policies
        .iter()
        .map(|named| named.policy.choices().iter().map(ToString::to_string).collect())
        .collect();
    html! {
        h3 id={ "from" (nth) } { "Where this is from" }
        dl {
            @for (label, text) in &of.origin { dt { (label) } dd { (text) } }
            @for note in &of.notes { dt { "note" } dd { (note) } }
            dt { "repeat" }
            dd { code class="command" { (of.command) } }
        }
        details {
            summary { "What each policy does" }
            div class="wide" {
                table {
                    thead { tr { th scope="col" { "mechanism" } @for named in &of.policies { th scope="col" { (super::table::breakable(&named.name)) } } } }
                    tbody {
                        @for (row, mechanism) in mechanisms.iter().enumerate() {
                            tr {
                                th scope="row" { (mechanism.name) }
                                @for policy in &choices {
                                    td class={ "name" @if policy.get(row) != choices[0].get(row) { " differs" } } {
                                        (policy.get(row).map_or("", |choice| choice.as_str()))
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}
