//! What came of a study, for people and for programs: all of it rendered from [`Comparison`].

mod bar;
pub mod beside;
pub mod cause;
pub mod csv;
pub mod gain;
pub mod json;
mod latencies;
pub mod profile;
pub mod published;
pub mod rows;
pub mod table;
pub mod text;
pub mod units;
pub mod verdict;
pub mod wrap;

use crate::cli::flags::Common;
use crate::process::ending::{Ending, Failure};
use crate::process::output::Output;
use crate::study::file::Targets;
use crate::study::result::Comparison;
use crate::study::{Form, Study, measure};
use crate::{report, timeline};
use text::Depth;

/// Runs a study, writes the files that were asked for, and prints what came of it.
pub fn run(
    study: &Study,
    form: Form,
    common: &Common,
    files: &Targets,
    output: &mut Output,
) -> Result<Ending, Failure> {
    let mut all = measure::measure(study)?;
    if !common.stats {
        all.iter_mut().flat_map(|comparison| &mut comparison.runs).for_each(|run| run.host = None);
    }
    // Before the first line: a reader of that may leave early. And what went wrong is said after the last.
    let report = files.report.as_ref().map_or(Ok(()), |target| report::write(target, &all, form));
    let svg = files.svg.as_ref().map_or(Ok(""), |target| report::stories::write(target, &all));
    let timeline = files.timeline.as_ref().map_or(Ok(()), |target| timeline::write(target, &all));
    if common.json {
        output.data(&json::pretty(&all))?;
    } else if common.csv {
        output.data(&csv::table(&all)?)?;
    } else {
        let profile = all.iter().flat_map(|one| &one.runs).any(|run| run.profile.is_some());
        let depth = Depth {
            all: common.stats || form == Form::Run,
            explain: common.explain,
            profile,
            brief: false,
            width: output.width(),
        };
        for (nth, comparison) in all.iter().enumerate() {
            if nth > 0 {
                output.text("\n\n")?;
            }
            output.text(&text::comparison(comparison, &depth))?;
        }
        output.text(svg.as_ref().map_or("", |said| *said))?;
    }
    report.and(timeline)?;
    svg?;
    Ok(ending(&all))
}

/// The worst of all endings.
pub fn ending(all: &[Comparison]) -> Ending {
    all.iter().map(Comparison::ending).fold(Ending::Good, Ending::worse)
}
