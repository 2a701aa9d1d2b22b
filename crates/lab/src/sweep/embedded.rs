//! A sweep inside another program, point by point: whoever spreads points over threads, processes or machines runs them by their numbers, and
//! puts the lines that come back, in any order, into the file. It ends with the bytes of `quietmm sweep`.

use crate::cli::{self, Command};
use crate::process::caller::{self, Caller};
use crate::process::ending::{self, Failure};
use crate::process::progress::Progress;
use crate::sweep::args::SweepArgs;
use crate::sweep::grid::Grid;
use crate::sweep::{Opened, point};
use crate::{Answer, answered};

/// A grid, and its file where there is one.
pub struct Sweep {
    grid: Grid,
    opened: Option<Opened>,
}

impl Sweep {
    /// The grid of the words that follow `quietmm sweep`, to run its points; no file is touched. Errors are those of the command.
    pub fn of(words: &[String]) -> Result<Sweep, Answer> {
        let args = read(words)?;
        let grid = Grid::of(&args).map_err(refused)?;
        Ok(Sweep { grid, opened: None })
    }

    /// The same with its file, which is begun, or gone on with, as by the command; nobody else writes it for as long as this lives. The words need `--out`.
    pub fn open(words: &[String]) -> Result<Sweep, Answer> {
        let args = read(words)?;
        if args.out.is_none() {
            return Err(refused(Failure::Input("a sweep in pieces needs --out FILE".to_string())));
        }
        let (grid, opened) = Opened::of(&args).map_err(refused)?;
        Ok(Sweep { grid, opened: Some(opened) })
    }

    /// The first line of the file: two sweeps with the same are the same, down to the revision of the program.
    #[must_use]
    pub fn header(&self) -> String {
        self.grid.header.line()
    }

    /// Points whose lines the file has not yet, in order; none without a file.
    #[must_use]
    pub fn missing(&self) -> Vec<u64> {
        self.opened.as_ref().map_or(Vec::new(), |opened| opened.lines.missing())
    }

    /// Points that the file should have, and has: of one part, if it is one.
    #[must_use]
    pub fn counts(&self) -> (u64, u64) {
        self.opened.as_ref().map_or((0, 0), |opened| (opened.lines.all(), opened.lines.done()))
    }

    /// Runs these points one after another, on this thread, and returns their lines; less of them if the caller stops it.
    pub fn run(&self, points: &[u64], caller: &Caller) -> Result<Vec<String>, Answer> {
        let run = || {
            let progress = Progress::new(points.len(), 1);
            let mut lines = Vec::with_capacity(points.len());
            for (nth, &point) in points.iter().enumerate() {
                if point >= self.grid.header.points {
                    let most = self.grid.header.points;
                    return Err(Failure::Input(format!("point {point}: the grid has {most}, from 0")));
                }
                let lane = progress.lane(nth, "");
                let Some(line) = point::run(&self.grid, point, &lane)? else { break };
                lane.done();
                lines.push(line);
            }
            Ok(lines)
        };
        caller::serve(Some(caller.clone()), run).map_err(refused)
    }

    /// Puts a line into the file, if it is whole and its point is missing; says whether it was.
    pub fn take(&mut self, line: &str) -> Result<bool, Answer> {
        self.opened.as_mut().map_or(Ok(false), |opened| opened.lines.take(line)).map_err(refused)
    }

    /// Lets go of the file, for others to write.
    pub fn close(&mut self) {
        self.opened = None;
    }

    /// Ends with the file as the command does: in order if all points are there, with what else was asked for, and with what the command prints.
    pub fn conclude(&mut self, caller: &Caller) -> Answer {
        let Some(opened) = &mut self.opened else {
            return refused(Failure::Input("a sweep without a file has no end".to_string()));
        };
        caller::serve(Some(caller.clone()), || answered(|output| opened.conclude(output)))
    }
}

fn read(words: &[String]) -> Result<Box<SweepArgs>, Answer> {
    let words: Vec<String> = std::iter::once("sweep".to_string()).chain(words.iter().cloned()).collect();
    match cli::read(&words) {
        Ok(Command::Sweep(args)) if args.command.is_none() => Ok(Box::new(args)),
        Ok(_) => Err(refused(Failure::Input("a sweep in pieces has a grid".to_string()))),
        Err(unread) => {
            Err(Answer { code: unread.code, output: unread.help.into_bytes(), complaints: unread.complaints })
        }
    }
}

/// An end without anything done.
fn refused(failure: Failure) -> Answer {
    let (code, complaints) = ending::said(Err(failure));
    Answer { code, output: Vec::new(), complaints }
}
