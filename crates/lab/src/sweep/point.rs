//! One point: a run, and the line that says what came of it.

use std::panic::{AssertUnwindSafe, catch_unwind};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

use crate::process::ending::Failure;
use crate::process::plain;
use crate::process::progress::Lane;
use crate::process::sealed;
use crate::study::measure;
use crate::study::{Place, Plan, Run};
use crate::sweep::grid::Grid;
use crate::sweep::header;
use crate::sweep::part::Part;

/// A point's line: where it stands, what `run --json` has for it, and the command. One that failed has an error instead.
#[derive(Serialize)]
struct Line<'a> {
    point: u64,
    at: &'a Map<String, Json>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    workload: Option<&'static str>,
    #[serde(flatten)]
    place: Option<Place>,
    #[serde(flatten)]
    run: Option<Run>,
    #[serde(skip_serializing_if = "Option::is_none")]
    command: Option<String>,
}

/// What is read of a line again.
#[derive(Deserialize)]
pub struct Read {
    pub point: u64,
    pub at: Map<String, Json>,
    #[serde(default)]
    pub error: Option<String>,
    #[serde(default)]
    pub metrics: Map<String, Json>,
}

/// Runs a point. Its line, or nothing after Ctrl-C.
pub fn run(grid: &Grid, point: u64, lane: &Lane<'_>) -> Result<Option<String>, Failure> {
    told(grid, point, || {
        let plan = grid.plan(point)?;
        let run = measure::one(&plan, 0, plan.seed, lane)?;
        Ok(run.map(|run| (plan, run)))
    })
}

/// The line of what a point's work comes to. One that panics is a point that failed, and no other's affair: it has nothing that
/// others have.
pub fn told(
    grid: &Grid,
    point: u64,
    work: impl FnOnce() -> Result<Option<(Plan, Run)>, Failure>,
) -> Result<Option<String>, Failure> {
    let at = header::at(&grid.values, point);
    let none = Line { point, at: &at, error: None, workload: None, place: None, run: None, command: None };
    let done = catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|what| {
        let said = what.downcast_ref::<String>().map(String::as_str);
        let said = said.or_else(|| what.downcast_ref::<&str>().copied());
        Err(Failure::Run(format!("a panic, which is a bug: {}", said.unwrap_or("it does not say why"))))
    });
    let failed = |why: &str| Ok(Some(line(&Line { error: Some(why), ..none })));
    match done {
        Ok(None) => Ok(None),
        Ok(Some((plan, run))) => {
            let mut place = plan.backend.place();
            place.threads = plan.threads;
            let run = Run { host: None, ..run };
            let (workload, command) = (Some(plan.workload.name()), Some(plan.command()));
            let all =
                Line { point, at: &at, error: None, workload, place: Some(place), run: Some(run), command };
            Ok(Some(line(&all)))
        }
        Err(Failure::Input(why) | Failure::Run(why)) => failed(&why),
        Err(Failure::Faults(lines)) => failed(&lines.join("; ")),
        Err(other) => Err(other),
    }
}

/// What is wrong with the command line of a point, if it cannot be run.
pub fn refused(grid: &Grid, point: u64) -> Option<Failure> {
    grid.plan(point).err()
}

/// With a checksum at its end: whatever is changed in it is noticed.
fn line(line: &Line<'_>) -> String {
    let json = serde_json::to_string(line).unwrap_or_default();
    sealed::sealed(&plain::plain(&json))
}

impl Read {
    /// What is in a line, if it is as it was written.
    pub fn of(line: &[u8]) -> Option<Read> {
        serde_json::from_str(sealed::opened(line.ends_with(b"\n").then_some(line)?)?).ok()
    }
}

/// Whose line this is: its point, and where that stands in the part; or what is wrong with it, behind "line N".
pub fn whose(line: &[u8], axes: &[header::Values], points: u64, part: Part) -> Result<(u64, u64), String> {
    let read = Read::of(line).ok_or("is not as it was written")?;
    let point = read.point;
    let index = (point < points).then(|| part.index(point)).flatten();
    let index = index.ok_or_else(|| format!("is of point {point}, which is not of this file"))?;
    if read.at != header::at(axes, point) {
        return Err(format!("is of point {point}, which is at {}", header::said(axes, point)));
    }
    Ok((point, index))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_reads_back_and_what_is_changed_in_it_is_noticed() {
        let at: Map<String, Json> = serde_json::from_str(r#"{"cpus":4}"#).unwrap();
        let whole = Line {
            point: 7,
            at: &at,
            error: Some("no \"memory\"\u{202e}"),
            workload: None,
            place: None,
            run: None,
            command: None,
        };
        let text = line(&whole);
        assert!(text.starts_with(r#"{"point":7,"at":{"cpus":4},"error":"#), "{text}");
        let read = Read::of(text.as_bytes()).unwrap();
        assert_eq!((read.point, read.at, read.error.as_deref()), (7, at.clone(), whole.error));
        for nth in 0..text.len() {
            let mut changed = text.clone().into_bytes();
            changed[nth] ^= 1;
            assert!(Read::of(&changed).is_none(), "{nth}");
            assert!(Read::of(&text.as_bytes()[..nth]).is_none(), "{nth}");
        }
    }
}
