//! One comparison, in the order of a reader's questions: what was asked, what it comes to, by how much, why, and from where.

use maud::{Markup, html};

use super::plot::{Drawn, palette};
use super::{causes, heat, latencies, machine, memory, policies, published, stories, table};
use crate::cli::flags::On;
use crate::process::output::WIDTH;
use crate::show::{profile, text};
use crate::study::Form;
use crate::study::result::{Column, Comparison};

/// The `nth` comparison of a page.
pub fn section(of: &Comparison, nth: usize, form: Form) -> Drawn<Markup> {
    let columns = of.columns();
    let both = of.place.on == On::Both;
    Ok(html! {
        section id={ "s" (nth) } aria-labelledby={ "q" (nth) } {
            h2 id={ "q" (nth) } { (question(of)) }
            @if of.interrupted {
                p class="loud" { "Interrupted: " (of.runs.len()) " of " (of.asked) " runs finished. What follows is of those." }
            }
            @if let Some(short) = text::never_short(of) {
                p class="loud" { "Nothing was reclaimed: " (short) }
            }
            ul class="verdict" { @for said in &of.verdict { li { (capital(&said.replace(" -> ", "\u{a0}→ "))) "." } } }
            @if columns.is_empty() {
                p { "No run finished." }
            } @else {
                @if !both {
                    (key(&columns.iter().map(|column| (column.policy, column.name)).collect::<Vec<_>>(), "policies"))
                    (policies::pictures(&columns)?)
                }
                (table::table(of, &columns, form))
                (published::beside(of, &columns)?)
                (causes::part(&columns)?)
                (latencies::part(&columns)?)
                (heat::part(&columns)?)
                (memory::part(&columns)?)
                @if columns.iter().any(|column| column.runs.iter().any(|run| run.profile.is_some())) {
                    (accounts(&columns))
                }
            }
            (stories::part(of)?)
            (machine::part(of, nth))
        }
    })
}

fn question(of: &Comparison) -> String {
    let names: Vec<&str> = of.policies.iter().map(|named| &named.name[..]).collect();
    let place = &of.place;
    let plural = if place.cpus == 1 { "" } else { "s" };
    let wherever = format!("{}, {} CPU{plural}", place.machine, place.cpus);
    match &names[..] {
        [] => format!("{} on {wherever}", of.workload),
        [one] => format!("What does {} do under {one}? ({wherever})", of.workload),
        [base, others @ ..] => {
            let does = if others.len() == 1 { "does" } else { "do" };
            let others = others.join(" and ");
            format!("How {does} {others} compare with {base} on {}? ({wherever})", of.workload)
        }
    }
}

/// With a capital at its beginning, unless that is a name.
fn capital(said: &str) -> String {
    let name = said.split_once(" against ").is_some()
        || said.split_once(':').is_some_and(|(name, _)| !name.contains(' '));
    let mut chars = said.chars();
    match chars.next() {
        Some(first) if !name => first.to_uppercase().chain(chars).collect(),
        _ => said.to_string(),
    }
}

/// Which colour is whose.
pub fn key(names: &[(usize, &str)], of: &str) -> Markup {
    html! {
        @if names.len() > 1 {
            ul class="key" aria-label={ "Colours of the " (of) } {
                @for (nth, name) in names {
                    li { span class={ "mark m" (palette::mark(*nth)) " " (palette::class(*nth)) } aria-hidden="true" {} (name) }
                }
            }
        }
    }
}

/// Where CPU time went, as `--profile` prints it.
fn accounts(columns: &[Column<'_>]) -> Markup {
    let firsts = columns.iter().filter_map(|column| Some((column.name, *column.runs.first()?)));
    html! {
        h3 { "Where CPU time went" }
        @for (name, run) in firsts {
            @if let Some(account) = &run.account {
                details {
                    summary { (name) ", seed " (run.seed) }
                    pre { (profile::table(&format!("{name}, seed {}", run.seed), account, WIDTH).trim()) }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentence_begins_with_a_capital_and_a_name_stays_as_it_was_typed() {
        assert_eq!(capital("no stale access"), "No stale access");
        assert_eq!(capital("the tasks' time goes to x"), "The tasks' time goes to x");
        assert_eq!(capital("linux against vanilla: the same"), "linux against vanilla: the same");
        assert_eq!(capital("quiet: the same in every figure"), "quiet: the same in every figure");
    }
}
