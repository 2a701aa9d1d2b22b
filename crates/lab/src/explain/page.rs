//! `--report`: what a recording says, as one page. Its numbers are those of `--json`.

use maud::{Markup, html};
use quietmm_host::blame::{Blame, Group};
use quietmm_sim::machine::Machine;
use quietmm_workloads::trace::Recording;
use serde_json::Value as Json;

use super::advice::{self, Advice};
use super::matrix::Matrix;
use super::recorded::{self, MOST};
use super::replay::{self, Row};
use super::{ExplainArgs, received};
use crate::cost;
use crate::report::page::Page;
use crate::report::plot::axis::{Axis, scaled};
use crate::report::plot::bars::{self, Bar};
use crate::report::plot::{Drawn, Picture, draw, palette};
use crate::report::value::{Values, count};
use crate::show::units::time;
use crate::study::command::CommandLine;

/// The width of one picture: two stand side by side.
const WIDTH: u32 = 370;

/// What there is to tell.
pub struct Told<'a> {
    /// What was asked.
    pub args: &'a ExplainArgs,
    /// What was recorded.
    pub recording: &'a Recording<'a>,
    /// Who is to blame.
    pub blame: &'a Blame,
    /// Where it was recorded.
    pub machine: &'a Machine,
    /// What to change.
    pub advice: &'a [Advice],
    /// What else it would have cost.
    pub rows: &'a [Row],
}

/// The page; `out` is what `--json` prints.
pub fn page(told: &Told<'_>, out: &Json) -> Drawn<Page> {
    let values = Values(out);
    let recorded = told.recording.header().about.shootdowns;
    let program = recorded::program(told.recording);
    let sentences = recorded::about(told.recording, told.machine);
    let part = html! {
        section id="s0" aria-labelledby="q0" {
            h2 id="q0" { "Whom does " (program) " interrupt, what does that cost, and what would change it?" }
            ul class="verdict" {
                @for said in &sentences { li { (said) } }
                li { (recorded::summary(told.recording, told.blame, told.machine)) }
                @if let Some(first) = told.advice.first() { li { "Most by " (first.worth()) "; what to do about that stands below." } }
            }
            (if recorded { who(told, values)? } else { calls(told.blame, values) })
            (cost(told, recorded)?)
            (change(told, recorded))
            @if !told.rows.is_empty() { (beside(told, values)?) }
            (from(told))
        }
    };
    let title = format!("explain: {program}");
    let again = "The command above says the same again.";
    Ok(Page { title, parts: vec![(program.to_owned(), part)], again })
}

/// Who interrupts whom, by thread and by call.
fn who(told: &Told<'_>, values: Values<'_>) -> Drawn<Markup> {
    let blame = told.blame;
    if blame.shootdowns == 0 {
        return Ok(html! { h3 { "Who interrupts whom" } p { "Nobody was interrupted for it." } });
    }
    let threads = Matrix::of(blame, |group| group.name.clone()).picture("By thread")?;
    let calls = Matrix::of(blame, |group| group.cause.name().to_owned()).picture("By call")?;
    let guilty: Vec<(usize, &Group)> =
        blame.groups.iter().enumerate().filter(|(_, group)| group.shootdowns > 0).collect();
    let rows = guilty.iter().map(|&(nth, group)| {
        let at = |key: &str| format!("/groups/{nth}/{key}");
        html! {
            tr {
                th scope="row" { (group.name) }
                td class="name" { (group.cause.name()) }
                @for key in ["calls", "interrupting_calls", "shootdowns"] { (values.cell(&at(key))) }
                td { (format!("{:.0} %", 100.0 * group.shootdowns as f64 / blame.shootdowns as f64)) }
                @for key in ["median_ns_interrupting", "median_ns_others"] { (values.cell_as(&at(key), time)) }
            }
        }
    });
    let rows: Vec<Markup> = rows.collect();
    Ok(html! {
        h3 { "Who interrupts whom" }
        p class="dim" {
            "Rows interrupt, columns are interrupted: so often a CPU was asked to flush while it ran them. The darker the more, by the square root."
        }
        div class="pictures" { @for picture in [&threads, &calls].into_iter().flatten() { (picture) } }
        div class="wide" {
            table {
                caption { "In all " (values.said("/shootdowns", count)) " interrupts. Calls that interrupt somebody beside those that do not: half of them take at most this." }
                thead {
                    tr {
                        th scope="col" { "who" } th scope="col" class="name" { "by" }
                        @for head in ["calls", "interrupting", "interrupts", "share", "such a call", "another"] { th scope="col" { (head) } }
                    }
                }
                tbody { @for row in &rows { (row) } }
            }
        }
        ul { @for (_, group) in guilty.iter().take(MOST) { li { (group.name) ", " (group.cause.name()) ": " (recorded::beside(group)) } } }
        details { summary { "The numbers" } (numbers(&guilty, values)) }
    })
}

/// Each who with each whom, and each call stack.
fn numbers(guilty: &[(usize, &Group)], values: Values<'_>) -> Markup {
    html! {
        div class="wide" {
            table {
                thead { tr { th scope="col" { "who" } th scope="col" class="name" { "by" } th scope="col" class="name" { "interrupts, or from" } th scope="col" { "times" } } }
                tbody {
                    @for (nth, group) in guilty {
                        @for (victim, (whom, _)) in group.victims.iter().enumerate() {
                            tr {
                                th scope="row" { (group.name) } td class="name" { (group.cause.name()) } td class="name" { (recorded::name(whom)) }
                                (values.cell(&format!("/groups/{nth}/victims/{victim}/count")))
                            }
                        }
                        @for (stack, (frames, _)) in group.stacks.iter().enumerate() {
                            tr {
                                th scope="row" { (group.name) } td class="name" { (group.cause.name()) }
                                td class="name" { "from " (frames.replace(';', " < ")) }
                                (values.cell(&format!("/groups/{nth}/stacks/{stack}/count")))
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Without shootdowns: what may have interrupted.
fn calls(blame: &Blame, values: Values<'_>) -> Markup {
    let shared: Vec<(usize, &Group)> =
        blame.groups.iter().enumerate().filter(|(_, group)| group.shared > 0).collect();
    html! {
        h3 { "Calls that may interrupt" }
        @if shared.is_empty() {
            p { "None." }
        } @else {
            div class="wide" {
                table {
                    thead {
                        tr {
                            th scope="col" { "who" } th scope="col" class="name" { "by" }
                            th scope="col" { "calls" } th scope="col" { "with others there" }
                        }
                    }
                    tbody {
                        @for (nth, group) in &shared {
                            tr {
                                th scope="row" { (group.name) } td class="name" { (group.cause.name()) }
                                (values.cell(&format!("/groups/{nth}/calls")))
                                (values.cell(&format!("/groups/{nth}/calls_with_others_there")))
                            }
                        }
                    }
                }
            }
            @let from: Vec<_> = shared.iter().filter_map(|(_, group)| Some((group, recorded::from(group)?))).take(MOST).collect();
            @if !from.is_empty() {
                ul { @for (group, from) in from { li { (group.name) ", " (group.cause.name()) ": " (from) } } }
            }
        }
    }
}

/// What interrupts cost, by call.
fn cost(told: &Told<'_>, recorded: bool) -> Drawn<Markup> {
    if told.advice.is_empty() || !recorded {
        return Ok(html! {});
    }
    let each =
        told.advice.iter().map(|advice| (advice.cause.name().to_owned(), advice.ns)).collect::<Vec<_>>();
    let picture = times("CPU time that interrupts took, by call", &each, |_| palette::colour(1))?;
    Ok(html! {
        h3 { "What it costs" }
        p class="dim" {
            "Interrupts times what one takes on " (told.machine.name) ", who interrupts and who is interrupted together: "
            (time(recorded::each(told.machine))) ", and " (time(cost::answers(told.machine))) " more where an idle CPU is interrupted."
        }
        div class="pictures" { (picture) }
    })
}

/// What to change in the program.
fn change(told: &Told<'_>, recorded: bool) -> Markup {
    html! {
        h3 { "What to change" }
        @if told.advice.is_empty() {
            p { (advice::nothing(recorded)) }
        } @else {
            ol { @for advice in told.advice { li { (advice.said()) } } }
        }
    }
}

/// The policies beside each other, on each machine.
fn beside(told: &Told<'_>, values: Values<'_>) -> Drawn<Markup> {
    let mut places: Vec<(&str, u32)> = Vec::new();
    for row in told.rows {
        if !places.contains(&(&row.machine, row.cpus)) {
            places.push((&row.machine, row.cpus));
        }
    }
    let mut pictures = Vec::new();
    for (machine, cpus) in places {
        let here: Vec<&Row> =
            told.rows.iter().filter(|row| row.machine == machine && row.cpus == cpus).collect();
        let place = format!("{}, {cpus} CPU{}", replay::short(machine), if cpus == 1 { "" } else { "s" });
        let counts: Vec<(String, f64)> =
            here.iter().map(|row| (row.name().to_owned(), row.received as f64)).collect();
        let spent: Vec<(String, f64)> = here.iter().map(|row| (row.name().to_owned(), row.ipis)).collect();
        pictures.push(counted(&format!("Flush requests received ({place})"), &counts)?);
        pictures.push(times(&format!("CPU time of interrupts ({place})"), &spent, palette::colour)?);
    }
    let rows = told.rows.iter().enumerate().map(|(nth, row)| {
        let at = |key: &str| format!("/replays/{nth}/{key}");
        html! {
            tr {
                th scope="row" { (replay::short(&row.machine)) }
                (values.cell(&at("cpus")))
                td class="name" { (row.name()) }
                @for key in ["received", "asked"] { (values.cell(&at(key))) }
                @for key in ["ipis_ns", "system_ns", "elapsed_ns"] { (values.cell_as(&at(key), time)) }
            }
        }
    });
    let rows: Vec<Markup> = rows.collect();
    Ok(html! {
        h3 { "What else it would have cost" }
        p class="dim" { "The recording, replayed under each policy on each machine. Less is better." }
        div class="pictures" { @for picture in &pictures { (picture) } }
        div class="wide" {
            table {
                @if received(told.recording).is_some() {
                    caption { "As recorded: " (values.said("/recording/received", count)) " received." }
                }
                thead {
                    tr {
                        th scope="col" { "machine" } th scope="col" { "CPUs" } th scope="col" class="name" { "policy" }
                        @for head in ["received", "asked", "IPIs", "kernel", "elapsed"] { th scope="col" { (head) } }
                    }
                }
                tbody { @for row in &rows { (row) } }
            }
        }
        p class="dim" { (replay::notes(told.rows)) }
    })
}

/// Bars of times in nanoseconds.
fn times(
    title: &str,
    all: &[(String, f64)],
    colour: impl Fn(usize) -> plotters::style::RGBColor,
) -> Drawn<Picture> {
    let (factor, unit) = scaled("ns", all.iter().map(|(_, ns)| *ns).fold(0.0, f64::max));
    let bar = |(nth, (name, ns)): (usize, &(String, f64))| Bar {
        name: name.clone(),
        pieces: vec![(ns * factor, colour(nth))],
        spread: 0.0,
        value: time(*ns),
    };
    picture(title, &unit, all.iter().enumerate().map(bar).collect())
}

/// Bars of counts.
fn counted(title: &str, all: &[(String, f64)]) -> Drawn<Picture> {
    let bar = |(nth, (name, number)): (usize, &(String, f64))| Bar {
        name: name.clone(),
        pieces: vec![(*number, palette::colour(nth))],
        spread: 0.0,
        value: count(*number),
    };
    picture(title, "flush requests", all.iter().enumerate().map(bar).collect())
}

fn picture(title: &str, label: &str, bars: Vec<Bar>) -> Drawn<Picture> {
    let about: Vec<String> = bars.iter().map(|bar| format!("{}: {}", bar.name, bar.value)).collect();
    let axis = Axis::from_zero(label, bars::most(&bars), 4);
    draw(title, format!("{}.", about.join("; ")), (WIDTH, bars::height(bars.len())), |canvas| {
        bars::draw(canvas, &bars, &axis, WIDTH)
    })
}

/// Where it is from, and how it can be had again.
fn from(told: &Told<'_>) -> Markup {
    let about = told.recording.header().about;
    let args = told.args;
    let mut command = CommandLine::new("explain", &args.recording);
    command.flag("--machine", &args.machine);
    if args.no_replay {
        command.word("--no-replay");
    } else {
        command.flag("--larger", &args.larger);
        command.flag("--cpus", args.cpus.iter().map(u32::to_string).collect::<Vec<_>>().join(","));
    }
    html! {
        h3 { "Where this is from" }
        dl {
            dt { "recording" } dd { (args.recording) }
            @if !about.command.is_empty() { dt { "of" } dd { code { (about.command) } } }
            dt { "recorded by" } dd { (about.method) }
            dt { "machine" } dd { (told.machine.name) ", " (told.machine.about) }
            dt { "repeat" } dd { code class="command" { (command) } }
        }
    }
}
