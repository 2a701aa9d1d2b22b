//! Standard output that may be closed by its reader at any time.

use std::io::{self, BufWriter, StdoutLock, Write};

use crate::ending::Failure;
use crate::plain::plain;

/// Buffered standard output. A reader who leaves early (`| head`) ends the command quietly.
pub struct Output {
    writer: BufWriter<StdoutLock<'static>>,
}

impl Output {
    /// Locks standard output for as long as it lives.
    pub fn stdout() -> Output {
        Output { writer: BufWriter::new(io::stdout().lock()) }
    }

    /// Writes `text`, without what a terminal would act on ([`plain`]).
    pub fn text(&mut self, text: &str) -> Result<(), Failure> {
        self.writer.write_all(plain(text).as_bytes()).map_err(failure)
    }

    /// Hands everything to the reader.
    pub fn flush(&mut self) -> Result<(), Failure> {
        self.writer.flush().map_err(failure)
    }
}

fn failure(error: io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::BrokenPipe => Failure::Closed,
        _ => Failure::Output(error),
    }
}
