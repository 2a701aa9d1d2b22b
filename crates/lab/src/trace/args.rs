//! The arguments of `trace import` and `trace show`.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::path::{Path, PathBuf};

use clap::Args;

use super::error::{ImportError, ShowError};
use super::import::import;
use super::options::Options;
use super::show::{Shown, show};
use super::summary::Summary;

const BUFFER: usize = 1 << 20;
/// So much of an input says what kind of text it is.
const HEAD: u64 = 1 << 18;

/// Make a trace of what valgrind's lackey, `perf script`, ftrace or `strace -f -ttt -T` printed
#[derive(Args, Clone, Debug)]
pub struct ImportArgs {
    /// The text, or - for the standard input; `valgrind --tool=lackey --trace-mem=yes` for accesses, the others for threads and calls
    pub input: PathBuf,
    /// The trace to write
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
    /// What was recorded, with its version [default: the first word of the command line]
    #[arg(long, value_name = "TEXT")]
    pub program: Option<String>,
    /// Its command line [default: the one that valgrind prints]
    #[arg(long, value_name = "TEXT")]
    pub command: Option<String>,
    /// Leave instruction fetches out
    #[arg(long)]
    pub no_fetch: bool,
    /// Stop after this many accesses
    #[arg(long, value_name = "ACCESSES")]
    pub limit: Option<u64>,
    /// Leave out this many accesses at the start
    #[arg(long, value_name = "ACCESSES", default_value_t = 0)]
    pub skip: u64,
    /// Fold accesses as long as they stay within this many pages (1: runs on one page only)
    #[arg(long, value_name = "PAGES", default_value_t = 128)]
    pub window: u32,
    /// ... and for at most this many accesses
    #[arg(long, value_name = "ACCESSES", default_value_t = 262_144)]
    pub epoch: u32,
    /// Accept this share of lines that are not lackey's, such as the program's own output
    #[arg(long, value_name = "PERCENT", default_value_t = 10)]
    pub foreign: u32,
}

impl ImportArgs {
    /// What the input is called in messages.
    #[must_use]
    pub fn source(&self) -> String {
        if self.is_standard() { "standard input".to_owned() } else { self.input.display().to_string() }
    }

    fn is_standard(&self) -> bool {
        self.input == Path::new("-")
    }

    /// The input, from its first byte on, and what it begins with.
    ///
    /// # Errors
    /// It cannot be opened or read.
    pub fn open(&self) -> Result<(Vec<u8>, Box<dyn BufRead>), ImportError> {
        let failed = |error| ImportError::Read { source: self.source(), line: 0, error };
        let mut input: Box<dyn BufRead> = if self.is_standard() {
            Box::new(BufReader::with_capacity(BUFFER, io::stdin().lock()))
        } else {
            Box::new(BufReader::with_capacity(BUFFER, File::open(&self.input).map_err(failed)?))
        };
        let mut head = Vec::new();
        input.by_ref().take(HEAD).read_to_end(&mut head).map_err(failed)?;
        Ok((head.clone(), Box::new(Cursor::new(head).chain(input))))
    }

    /// Imports what lackey printed.
    ///
    /// # Errors
    /// As [`import`].
    pub fn run(&self, input: &mut dyn BufRead) -> Result<Summary, ImportError> {
        let options = Options {
            program: self.program.clone(),
            command: self.command.clone(),
            fetches: !self.no_fetch,
            window: self.window,
            epoch: self.epoch,
            skip: self.skip,
            limit: self.limit,
            foreign_percent: self.foreign,
            ..Options::new(self.source())
        };
        import(input, &options, &self.output)
    }
}

/// Say what is in a trace
#[derive(Args, Clone, Debug)]
pub struct ShowArgs {
    /// The trace
    pub trace: PathBuf,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

impl ShowArgs {
    /// Reads the trace; print the result's text, or its JSON form if `json` is set.
    ///
    /// # Errors
    /// As [`show`].
    pub fn run(&self) -> Result<Shown, ShowError> {
        show(&self.trace)
    }
}
