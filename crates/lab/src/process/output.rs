//! Standard output that may be closed by its reader at any time.

use std::io::{self, BufWriter, StdoutLock, Write};

use anstream::{AutoStream, ColorChoice};

use crate::process::ending::Failure;
use crate::process::paint::paint;
use crate::process::plain::plain;

/// The width of text that nobody's window limits.
pub const WIDTH: usize = 80;
/// A narrower window breaks the lines itself.
const LEAST_WIDTH: usize = 40;

/// Buffered standard output. A reader who leaves early (`| head`) ends the command quietly.
pub struct Output {
    writer: Writer,
    /// A terminal with colours, and nobody said `NO_COLOR`.
    colours: bool,
    width: usize,
}

/// Where it goes.
enum Writer {
    Stdout(BufWriter<StdoutLock<'static>>),
    /// For whoever runs the command inside another program.
    Kept(Vec<u8>),
}

impl Output {
    /// Locks standard output for as long as it lives.
    pub fn stdout() -> Output {
        let stdout = io::stdout();
        let colours = AutoStream::choice(&stdout) != ColorChoice::Never;
        // Only of a terminal: a pipe gets the same bytes whatever the window.
        let window = terminal_size::terminal_size_of(&stdout).map(|(width, _)| usize::from(width.0));
        let width = window.map_or(WIDTH, |width| width.max(LEAST_WIDTH));
        Output { writer: Writer::Stdout(BufWriter::new(stdout.lock())), colours, width }
    }

    /// Nothing is printed: what comes is kept, as it would be for a pipe.
    pub fn kept() -> Output {
        Output { writer: Writer::Kept(Vec::new()), colours: false, width: WIDTH }
    }

    /// What was kept.
    pub fn taken(self) -> Vec<u8> {
        match self.writer {
            Writer::Stdout(_) => Vec::new(),
            Writer::Kept(bytes) => bytes,
        }
    }

    /// Characters in a line.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Writes `text`, without what a terminal would act on ([`plain`]), in colours if it is a terminal.
    pub fn text(&mut self, text: &str) -> Result<(), Failure> {
        let text = plain(text);
        if self.colours { self.bytes(paint(&text).as_bytes()) } else { self.bytes(text.as_bytes()) }
    }

    /// The same without colours: what programs read.
    pub fn data(&mut self, text: &str) -> Result<(), Failure> {
        self.bytes(plain(text).as_bytes())
    }

    /// Writes what shells read, as it is.
    pub fn bytes(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        match &mut self.writer {
            Writer::Stdout(writer) => writer.write_all(bytes).map_err(failure),
            Writer::Kept(kept) => {
                kept.extend_from_slice(bytes);
                Ok(())
            }
        }
    }

    /// Hands everything to the reader.
    pub fn flush(&mut self) -> Result<(), Failure> {
        match &mut self.writer {
            Writer::Stdout(writer) => writer.flush().map_err(failure),
            Writer::Kept(_) => Ok(()),
        }
    }
}

fn failure(error: io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::BrokenPipe => Failure::Closed,
        _ => Failure::Output(error),
    }
}
