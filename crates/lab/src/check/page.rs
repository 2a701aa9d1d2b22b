//! `--report`: what was tried, what came of it, and the counterexample as a picture. Its numbers are those of `--json`.

use std::path::Path;

use maud::{Markup, html};
use quietmm_check::explore::Way;
use quietmm_check::scenario::Scenario;
use quietmm_check::timeline::Story as Told;
use serde_json::Value as Json;

use super::args::{CheckArgs, DEPARTURES, SCHEDULES};
use super::coverage::percent;
use super::mutants::Row;
use super::story::{Story, WIDTH};
use crate::report::page::Page;
use crate::report::plot::axis::Axis;
use crate::report::plot::bars::{self, Bar};
use crate::report::plot::{Drawn, Picture, draw, palette, sequence};
use crate::report::value::{Values, count};
use crate::study::command::CommandLine;

/// Scenarios that a title can name.
const NAMED: usize = 3;
/// The width of a small picture.
const NARROW: u32 = 370;
/// Scenarios in a picture.
const MOST_DRAWN: usize = 10;
const AGAIN: &str = "The command above plays the same schedules again, on any host.";
/// What the columns of the ways hold.
const COUNTED: &str = "Schedules until one showed it; in brackets how many were tried where none did.";

/// The sound core under every scenario.
pub fn coverage(args: &CheckArgs, scenarios: &[Scenario], out: &Json, stories: &[Story]) -> Drawn<Page> {
    let values = Values(out);
    let pictures = stories.iter().enumerate().map(|(nth, story)| {
        let at = format!("/violations/{nth}");
        let scenario = scenarios.iter().find(|scenario| scenario.name == story.found.scenario);
        counterexample(values, &at, story, scenario)
    });
    let pictures = pictures.collect::<Drawn<Vec<Markup>>>()?;
    let names: Vec<&str> = scenarios.iter().map(|scenario| scenario.name).collect();
    let title = match &names[..] {
        some if some.len() <= NAMED => some.join(", "),
        all => format!("{} scenarios", all.len()),
    };
    let distinct = distinct(scenarios, out)?;
    let number = |place: &str| values.said(place, count);
    let points = out["points"].as_u64().unwrap_or(0);
    let complete = scenarios.len() - of_scenarios(out, "complete", &false.into());
    let part = html! {
        section id="s0" aria-labelledby="q0" {
            h2 id="q0" { "Does any order of what CPUs do break an invariant?" }
            (interrupted(out))
            ul class="verdict" {
                @if out["not_tried"].as_u64().is_some_and(|missing| missing > 0) {
                    li { (values.said("/not_tried", count)) " more scenarios were not tried." }
                }
                @if stories.is_empty() {
                    li { "No violation was found." }
                } @else {
                    @for story in stories {
                        li { (story.told.broken.as_ref().map_or(String::new(), |broken| broken.law())) " It is broken in " (story.found.scenario) "." }
                    }
                }
                li { (number("/schedules")) " schedules of " (scenarios.len()) (if scenarios.len() == 1 { " scenario" } else { " scenarios" })
                     " passed " (number("/steps")) " points." }
                li { "Of " (number("/points")) " decisions of the ordinary runs " (number("/departed")) " were made otherwise: "
                     (percent(out["departed"].as_u64().unwrap_or(0), points)) "." }
                @if !args.deep && args.ways().any(|way| way == Way::Exhaustive) {
                    li { "All orders with at most " (args.departures) (if args.departures == 1 { " departure" } else { " departures" })
                        " that could matter were tried in " (complete) " of " (scenarios.len()) "." }
                }
            }
            @for picture in &pictures { (picture) }
            h3 { "What was tried" }
            @if let Some(picture) = &distinct { div class="pictures" { (picture) } }
            div class="wide" {
                table {
                    thead {
                        tr {
                            @for head in ["scenario", "schedules", "distinct", "points", "departed", "all"] { th scope="col" { (head) } }
                            th scope="col" class="name" { "violation" }
                        }
                    }
                    tbody { @for (nth, scenario) in scenarios.iter().enumerate() { (covered(values, nth, scenario)) } }
                }
            }
            (meaning(&[
                ("schedules", "that were played, in all ways and with all kinds of hardware"),
                ("distinct", "of the exhaustive way, those that differ in something that matters"),
                ("points", "decisions of the ordinary run in which there was a choice"),
                ("departed", "of those, how many were made otherwise at least once"),
                ("all", "the exhaustive way came to its end"),
            ]))
            (from(args))
        }
    };
    Ok(Page { title: format!("check: {title}"), parts: vec![(title, part)], again: AGAIN })
}

/// Where most came out differently, if the order was another.
fn distinct(scenarios: &[Scenario], out: &Json) -> Drawn<Option<Picture>> {
    let runs = |nth: usize| out["scenarios"][nth]["distinct"].as_u64().unwrap_or(0);
    let mut most: Vec<usize> = (0..scenarios.len()).filter(|&nth| runs(nth) > 0).collect();
    most.sort_by_key(|&nth| std::cmp::Reverse(runs(nth)));
    most.truncate(MOST_DRAWN);
    let bar = |&nth: &usize| Bar {
        name: scenarios[nth].name.to_string(),
        pieces: vec![(runs(nth) as f64, palette::colour(1))],
        spread: 0.0,
        value: count(runs(nth) as f64),
    };
    let bars: Vec<Bar> = most.iter().map(bar).collect();
    if bars.is_empty() {
        return Ok(None);
    }
    let title = if bars.len() < scenarios.len() {
        format!("Runs that differ in something that matters: the {} scenarios with most", bars.len())
    } else {
        "Runs that differ in something that matters".to_string()
    };
    by_name(title, "distinct runs", &bars).map(Some)
}

/// Scenarios of which this is so.
fn of_scenarios(out: &Json, key: &str, is: &Json) -> usize {
    out["scenarios"].as_array().map_or(0, |all| all.iter().filter(|one| one[key] == *is).count())
}

fn covered(values: Values<'_>, nth: usize, scenario: &Scenario) -> Markup {
    let at = |key: &str| format!("/scenarios/{nth}/{key}");
    let one = &values.0["scenarios"][nth];
    let points = one["points"].as_u64().unwrap_or(0);
    html! {
        tr {
            th scope="row" { abbr title=(scenario.about) { (scenario.name) } }
            @for key in ["schedules", "distinct", "points"] { (values.cell(&at(key))) }
            (values.cell_as(&at("departed"), |departed| percent(departed as u64, points)))
            td { (if one["complete"] == true { "yes" } else { "no" }) }
            td class="name" { (one["violation"].as_str().unwrap_or("–")) }
        }
    }
}

/// Each rule left out in turn: the story of the only one, or those of all that were seen.
pub fn mutants(
    args: &CheckArgs,
    rows: &[Row],
    out: &Json,
    (story, others): (Option<&Story>, &[Story]),
) -> Drawn<Page> {
    let values = Values(out);
    let title = match rows {
        [row] => row.rule.name().to_string(),
        _ => format!("{} rules, each left out in turn", rows.len()),
    };
    let found = rows.iter().filter(|row| row.first().is_some()).count();
    let drawn = story.map(|story| counterexample(values, "/counterexample", story, None)).transpose()?;
    let others = others.iter().map(folded).collect::<Drawn<Vec<Markup>>>()?;
    let by_way = if rows.len() > 1 { Some(found_by(args, rows)?) } else { None };
    let list = |key: &str| -> Vec<&str> {
        out[key].as_array().map_or(Vec::new(), |all| all.iter().filter_map(Json::as_str).collect())
    };
    let (missed, blind) = (list("missed"), list("missed_by_random_found_by_exhaustive"));
    let open = list("not_tried");
    let part = html! {
        section id="s0" aria-labelledby="q0" {
            h2 id="q0" { (if rows.len() == 1 { "Is it seen when this step is left out?" } else { "Is it seen when a step is left out?" }) }
            (interrupted(out))
            ul class="verdict" {
                @match rows {
                    [row] => li { (if found == 1 { "Yes. " } else { "No schedule that was tried shows it. " }) "Left out: " (row.rule.about()) "." },
                    _ => li { (values.said("/found", count)) " of " (values.said("/mutants", count)) " were seen." },
                }
                @if let Some(broken) = story.and_then(|story| story.told.broken.as_ref()) { li { (broken.law()) } }
                @if !open.is_empty() { li { "Not tried to the end: " (open.join(", ")) "." } }
                @if !missed.is_empty() && rows.len() > 1 { li { "Missed: " (missed.join(", ")) "." } }
                @if !blind.is_empty() { li { "Missed by the random walk, found by the exhaustive way: " (blind.join(", ")) "." } }
            }
            @if let Some(drawn) = &drawn { (drawn) }
            @if let Some(picture) = &by_way { div class="pictures" { (picture) } }
            h3 { "What found it" }
            p class="dim" { (COUNTED) }
            div class="wide" {
                table {
                    thead {
                        tr {
                            th scope="col" { "rule" } th scope="col" class="name" { "breaks" } th scope="col" class="name" { "in scenario" }
                            @for way in args.ways() { th scope="col" { (way.name()) } }
                        }
                    }
                    tbody { @for (nth, row) in rows.iter().enumerate() { (hunted(args, values, nth, row)) } }
                }
            }
            (meaning(&[
                ("random", "at each decision, by chance, anything that can happen"),
                ("priorities", "random priorities, with one to four changes"),
                ("exhaustive", "all that departs from the ordinary order at few decisions, where the order of two accesses changes"),
            ]))
            @if !others.is_empty() {
                h3 { "How each goes" }
                @for other in &others { (other) }
            }
            (from(args))
        }
    };
    Ok(Page { title: format!("check: {title}"), parts: vec![(title, part)], again: AGAIN })
}

/// How many each way found.
fn found_by(args: &CheckArgs, rows: &[Row]) -> Drawn<Picture> {
    let bar = |(nth, way): (usize, Way)| {
        let found = rows.iter().filter(|row| row.found_by(way)).count();
        Bar {
            name: way.name().to_string(),
            pieces: vec![(found as f64, palette::colour(nth))],
            spread: 0.0,
            value: format!("{found} of {}", rows.len()),
        }
    };
    let bars: Vec<Bar> = args.ways().enumerate().map(bar).collect();
    by_name("Rules that each way found".to_string(), "rules", &bars)
}

fn by_name(title: String, label: &str, bars: &[Bar]) -> Drawn<Picture> {
    let about: Vec<String> = bars.iter().map(|bar| format!("{}: {}", bar.name, bar.value)).collect();
    let axis = Axis::from_zero(label, bars::most(bars), 4);
    draw(title, format!("{}.", about.join("; ")), (NARROW, bars::height(bars.len())), |canvas| {
        bars::draw(canvas, bars, &axis, NARROW)
    })
}

fn hunted(args: &CheckArgs, values: Values<'_>, nth: usize, row: &Row) -> Markup {
    let found = row.first().and_then(|hunted| hunted.found.as_ref());
    let (broke, scenario) = found.map_or(("–", "–"), |found| (found.violation.invariant, found.scenario));
    html! {
        tr {
            th scope="row" { abbr title=(row.rule.about()) { (row.rule.name()) } }
            td class="name" { (broke) }
            td class="name" { (scenario) }
            @for way in args.ways() {
                (values.cell_as(&format!("/rules/{nth}/{}/schedules", way.name()), |schedules| {
                    let said = count(schedules);
                    if row.found_by(way) { said } else { format!("({said})") }
                }))
            }
        }
    }
}

/// A file, run again.
pub fn replay(
    file: &Path,
    scenario: &Scenario,
    expected: &str,
    out: &Json,
    (name, told): (&str, &Told),
) -> Drawn<Page> {
    let values = Values(out);
    let broke = out["invariant"].as_str().unwrap_or("nothing");
    let missed = out["missed_departures"].as_u64().unwrap_or(0);
    let mut command = CommandLine::of("check");
    command.flag("--replay", file.display());
    let part = html! {
        section id="s0" aria-labelledby="q0" {
            h2 id="q0" { "What does this file do?" }
            ul class="verdict" {
                li { "It broke " (broke) (if broke == expected { ", as the file says." } else { "; the file says " })
                     @if broke != expected { (expected) "." } }
                @if let Some(broken) = &told.broken { li { (broken.law()) } }
                li { "The run passed " (values.said("/steps", count)) " points." }
                @if missed > 0 { li { (values.said("/missed_departures", count)) " departures could not be made: the core has changed since." } }
            }
            (picture(name, told, Some(scenario))?)
            h3 { "Where this is from" }
            dl {
                dt { "file" } dd { (file.display()) }
                dt { "repeat" } dd { code class="command" { (command) } }
            }
        }
    };
    let again = "The command above does the same again, on any host.";
    Ok(Page { title: format!("check: {name}"), parts: vec![(name.to_string(), part)], again })
}

/// A counterexample: how it was found, and its picture.
fn counterexample(values: Values<'_>, at: &str, story: &Story, scenario: Option<&Scenario>) -> Drawn<Markup> {
    let found = &story.found;
    let departures = found.schedule.len();
    Ok(html! {
        (picture(&story.name(), &story.told, scenario)?)
        p class="dim" {
            "Found by " (found.way.name()) " after " (values.said(&format!("{at}/after"), count)) " schedules, with hardware that is "
            (found.hardware.name()) ". It departed from the ordinary order at " (story.was) ", and was shrunk to " (departures) "."
        }
        @if let Some(Ok(file)) = &story.saved {
            dl { dt { "play it again" } dd { code class="command" { "quietmm check --replay " (file.display()) } } }
        }
    })
}

/// One of many counterexamples: its picture, behind a line that says whose it is.
fn folded(story: &Story) -> Drawn<Markup> {
    let found = &story.found;
    let rule = found.broken.map_or("no rule", |rule| rule.name());
    Ok(html! {
        details {
            summary { (rule) ": " (found.violation.invariant) " in " (found.scenario) }
            @if let Some(rule) = found.broken { p { "Left out: " (rule.about()) "." } }
            div class="pictures" { (sequence::picture(story.name(), &story.told)?) }
            p class="dim" {
                "Found by " (found.way.name()) ", with hardware that is " (found.hardware.name()) ", and shrunk from " (story.was) " to "
                (found.schedule.len()) (if found.schedule.len() == 1 { " departure." } else { " departures." })
            }
        }
    })
}

/// The sequence diagram, and the same as the terminal has it.
fn picture(name: &str, told: &Told, scenario: Option<&Scenario>) -> Drawn<Markup> {
    Ok(html! {
        h3 { "How it goes" }
        @if let Some(scenario) = scenario { p { (scenario.name) ": " (scenario.about) "." } }
        div class="pictures" { (sequence::picture(name, told)?) }
        details {
            summary { "The same as text" }
            pre { (told.text(WIDTH)) }
        }
    })
}

fn interrupted(out: &Json) -> Markup {
    html! {
        @if out["interrupted"] == true { p class="loud" { "Interrupted: what follows is of what had been tried by then." } }
    }
}

fn meaning(words: &[(&str, &str)]) -> Markup {
    html! {
        details {
            summary { "What the columns mean" }
            dl { @for (word, said) in words { dt { (word) } dd { (said) } } }
        }
    }
}

/// How it can be had again.
fn from(args: &CheckArgs) -> Markup {
    let mut command = CommandLine::of("check");
    args.scenarios.iter().for_each(|name| command.word(name));
    command.option("--architecture", args.architecture.map(|architecture| architecture.name()));
    command.option("--mutant", args.mutant.as_ref());
    command.option(
        "--way",
        (!args.way.is_empty()).then(|| args.ways().map(Way::name).collect::<Vec<_>>().join(",")),
    );
    command.option("--schedules", (args.schedules != SCHEDULES).then_some(args.schedules));
    command.option("--departures", (args.departures != DEPARTURES).then_some(args.departures));
    command.option("--seed", (args.seed != 1).then_some(args.seed));
    if args.deep {
        command.word("--deep");
    }
    html! {
        h3 { "Where this is from" }
        dl {
            dt { "schedules" } dd { (count(args.schedules as f64)) " of each random way and scenario; for each kind of hardware twice as many of the exhaustive way" }
            @if let Some(architecture) = args.architecture { dt { "architecture" } dd { (architecture.name()) } }
            dt { "departures" } dd { "at most " (args.departures) " in the exhaustive way" }
            dt { "seed" } dd { (args.seed) }
            dt { "repeat" } dd { code class="command" { (command) } }
        }
    }
}
