//! `quietmm sweep`: a grid of runs, on all cores, in a file that can be gone on with.
//!
//! [`args`] says what can be asked; a `--vary` is an [`axis`] with its [`values`]; all of them are the [`grid`], whose [`header`]
//! is the first line of the file. Each [`point`] is one `quietmm run` and one of the [`lines`]. A [`part`] of them can be run
//! elsewhere, and [`merge`] joins parts; [`embedded`] is all of it inside another program, point by point. Of the lines are made a [`tally`] and [`curves`], which become a [`table`] in the terminal, a [`page`], and all of it as [`csv`].

pub mod args;
mod axis;
mod csv;
mod curves;
pub mod embedded;
mod grid;
mod header;
mod lines;
mod merge;
mod page;
mod part;
mod point;
pub mod reader;
mod table;
mod tally;
mod values;

use std::path::Path;
use std::sync::Mutex;

use crate::process::ending::{Ending, Failure};
use crate::process::output::Output;
use crate::process::progress::{Lane, Progress};
use crate::process::{interrupt, jobs};
use crate::show::wrap::hanging;
use crate::study::file::Target;
use args::{MergeArgs, SweepArgs, SweepCommand, Views};
use curves::Curves;
use grid::Grid;
use lines::Lines;
use merge::Parts;
use tally::Tally;

/// So many points are looked at for one that can be run.
const LOOKED_AT: usize = 1000;

/// The files that were asked for beside the lines.
struct Targets {
    csv: Option<Target>,
    report: Option<Target>,
}

/// Runs a grid, or goes on with it, or joins its parts.
pub fn sweep(args: &SweepArgs, output: &mut Output) -> Result<Ending, Failure> {
    if let Some(SweepCommand::Merge(args)) = &args.command {
        return merged(args, output);
    }
    let (grid, mut opened) = Opened::of(args)?;
    measure(&grid, &mut opened.lines, args.machine.jobs, point::run)?;
    opened.conclude(output)
}

/// A grid's file, to be gone on with, and what is to be made of it.
struct Opened {
    lines: Lines,
    targets: Targets,
    /// Points that were there before.
    found: u64,
    /// It has a name, and is not what is printed.
    named: bool,
    broken: bool,
}

impl Opened {
    /// The grid of a command line, and its file.
    fn of(args: &SweepArgs) -> Result<(Grid, Opened), Failure> {
        let grid = Grid::of(args)?;
        let out = Target::asked("--out", args.out.as_deref(), &grid.inputs())?;
        let targets = Targets::of(&args.views, &grid.inputs(), out.as_ref())?;
        let part = args.shard.unwrap_or(part::Part::ALL);
        // Before there is a file: a grid of which nothing can be run is a slip.
        one_that_runs(&grid, part)?;
        let lines = match &out {
            Some(target) => Lines::open(target.path(), &grid.header)?,
            None => Lines::nameless(&grid.header)?,
        };
        let (found, named, broken) = (lines.done(), out.is_some(), args.work.broken.is_some());
        Ok((grid, Opened { lines, targets, found, named, broken }))
    }

    /// Puts what is done in order, and says what there is.
    fn conclude(&mut self, output: &mut Output) -> Result<Ending, Failure> {
        self.lines.finish()?;
        let now = format!("{} done now, {} before", self.lines.done() - self.found, self.found);
        conclude(&mut self.lines, &self.targets, self.broken, Some(now).filter(|_| self.named), output)
    }
}

/// Whether there is a point that can be run; if not, what is wrong with the first.
fn one_that_runs(grid: &Grid, part: part::Part) -> Result<(), Failure> {
    let mut points = part.points(grid.header.points).take(LOOKED_AT);
    let Some(why) = points.next().and_then(|first| point::refused(grid, first)) else { return Ok(()) };
    if points.any(|point| point::refused(grid, point).is_none()) { Ok(()) } else { Err(why) }
}

/// Runs what is missing, each by `run`.
fn measure(
    grid: &Grid,
    lines: &mut Lines,
    asked: Option<u16>,
    run: impl Fn(&Grid, u64, &Lane<'_>) -> Result<Option<String>, Failure> + Sync,
) -> Result<(), Failure> {
    interrupt::listen();
    let missing = lines.missing();
    let workers = jobs::workers(asked);
    let progress = Progress::new(missing.len(), workers);
    let lines = Mutex::new(lines);
    let job = |nth: usize| {
        let point = missing[nth];
        let lane = progress.lane(nth, &header::said(&grid.values, point));
        let Some(line) = run(grid, point, &lane)? else { return Ok(None) };
        lines.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).add(point, &line)?;
        lane.done();
        Ok(Some(()))
    };
    let ran = jobs::in_order(missing.len(), workers, interrupt::requested, job);
    progress.clear();
    ran.map(|_: Vec<Option<()>>| ())
}

/// Joins parts.
fn merged(args: &MergeArgs, output: &mut Output) -> Result<Ending, Failure> {
    let inputs: Vec<&Path> = args.parts.iter().map(std::path::PathBuf::as_path).collect();
    let out = Target::asked("--out", Some(&args.out), &inputs)?;
    let targets = Targets::of(&args.views, &inputs, out.as_ref())?;
    let mut parts = Parts::of(args)?;
    out.map_or(Ok(()), |out| parts.write(&out))?;
    let mut lines = Lines::read(&args.out)?;
    let broken = lines.header.with.contains_key("break");
    let parts =
        if args.parts.len() == 1 { "1 part".to_string() } else { format!("{} parts", args.parts.len()) };
    conclude(&mut lines, &targets, broken, Some(format!("of {parts}")), output)
}

/// Writes and prints what is there; of what has a file, only that it is, and `how` it came there.
fn conclude(
    lines: &mut Lines,
    targets: &Targets,
    broken: bool,
    how: Option<String>,
    output: &mut Output,
) -> Result<Ending, Failure> {
    let tally = Tally::of(lines)?;
    let interrupted = lines.done() < lines.all();
    let csv = targets.csv.as_ref().map_or(Ok(()), |target| csv::write(target, lines, &tally));
    let curves = Curves::of(lines, &tally)?;
    let report = targets.report.as_ref().map_or(Ok(()), |target| page::write(target, lines, &tally, &curves));
    match how {
        Some(how) => {
            output.text(&summary(lines, &tally, &how, output.width()))?;
            output.text(&table::tables(lines, &curves, output.width()))?;
        }
        None => {
            output.data(&lines.header.line())?;
            lines.each(|_, line| output.bytes(line))?;
        }
    }
    output.flush()?;
    csv.and(report)?;
    if interrupted {
        return Ok(Ending::Interrupted);
    }
    if tally.harmed > 0 && !broken {
        return Ok(Ending::Stale);
    }
    match tally.errors.first() {
        Some((point, why)) => {
            let (failed, done, said) = (tally.failed, tally.done, header::said(lines.axes(), *point));
            Err(Failure::Run(format!(
                "{failed} of {done} points failed; the first, point {point} ({said}): {why}"
            )))
        }
        None => Ok(Ending::Good),
    }
}

/// What there is, in a few lines.
fn summary(lines: &Lines, tally: &Tally, how: &str, width: usize) -> String {
    let mut text = String::new();
    let mut say = |label: &str, said: &str| text += &hanging(width, &format!("{label:9}"), said);
    let (done, all) = (lines.done(), lines.all());
    let axes = lines.axes().iter().map(|(name, values)| format!("{} {name}", values.len()));
    let axes = axes.collect::<Vec<_>>().join(" x ");
    let of = match &lines.header.shard {
        Some(shard) => format!("{all} of {} points, the part {shard} of {axes}", lines.header.points),
        None => format!("{all} points: {axes}"),
    };
    if done < all {
        let rest = all - done;
        say(
            "INTERRUPTED  ",
            &format!("{done} of {all} points are done; the same command runs the {rest} that are missing"),
        );
    }
    say("grid", &of);
    say("results", &format!("{}: {how}", lines.name()));
    if tally.failed > 0 {
        say("failed", &format!("{}, whose lines say why", tally.failed));
    }
    if tally.harmed > 0 {
        say(
            "harm",
            &format!("at {} points memory was used after it was freed, or data was lost", tally.harmed),
        );
    }
    text
}

impl Targets {
    fn of(views: &Views, inputs: &[&Path], out: Option<&Target>) -> Result<Targets, Failure> {
        let csv = Target::asked("--csv", views.csv.as_deref(), inputs)?;
        let report = Target::asked("--report", views.report.as_deref(), inputs)?;
        let all: Vec<&Target> = out.into_iter().chain(&csv).chain(&report).collect();
        for (nth, one) in all.iter().enumerate() {
            all[..nth].iter().try_for_each(|other| one.beside(other))?;
        }
        Ok(Targets { csv, report })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{self, Command};

    /// What a sweep of four points leaves in its file, of which some panic.
    fn swept(name: &str, jobs: u16, panics: &[u64]) -> (String, Option<Failure>) {
        let out = std::env::temp_dir().join(format!("quietmm-{}-{name}.jsonl", std::process::id()));
        let words = "sweep no-pressure --machine uma-8 --scale 2048 --vary cpus=1,2 --vary seed=1,2 --out";
        let words: Vec<String> =
            words.split(' ').map(str::to_string).chain([out.display().to_string()]).collect();
        let Ok(Command::Sweep(args)) = cli::read(&words) else { unreachable!("a sweep") };
        let Ok((grid, mut opened)) = Opened::of(&args) else { unreachable!("it can be run") };
        let run = |grid: &Grid, point: u64, lane: &Lane<'_>| {
            if panics.contains(&point) {
                return point::told(grid, point, || panic!("frame {point} is nobody's"));
            }
            point::run(grid, point, lane)
        };
        measure(&grid, &mut opened.lines, Some(jobs), run).unwrap_or_else(|_| unreachable!("it goes on"));
        let ended = opened.conclude(&mut Output::kept()).err();
        let file = std::fs::read_to_string(&out).expect("it was written");
        std::fs::remove_file(&out).expect("it is there");
        (file, ended)
    }

    #[test]
    fn a_panic_is_its_point_s_error_and_the_others_know_nothing_of_it() {
        let (sound, ended) = swept("sound", 1, &[]);
        assert!(ended.is_none(), "the control: without it all is well");
        for jobs in [1, 3] {
            let (file, ended) = swept("panics", jobs, &[1, 2]);
            let (lines, all): (Vec<&str>, Vec<&str>) = (file.lines().collect(), sound.lines().collect());
            assert_eq!(lines.len(), 5, "the header, and a line for each point");
            assert_eq!((lines[0], lines[1], lines[4]), (all[0], all[1], all[4]));
            assert!(
                lines[2].contains(r#""error":"a panic, which is a bug: frame 1 is nobody's""#),
                "{}",
                lines[2]
            );
            assert!(lines[3].contains("frame 2 is nobody's"), "{}", lines[3]);
            assert!(
                matches!(ended, Some(Failure::Run(why)) if why.starts_with("2 of 4 points failed; the first, point 1"))
            );
        }
    }
}
