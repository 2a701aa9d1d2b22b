//! From lackey's text to a trace, in one pass over an input of any size.

use std::io::BufRead;
use std::path::Path;

use quietmm_workloads::trace::{BodyEncoder, FIXED_BYTES, Header, Record, Trace};

use super::compact::{GAP, compact};
use super::error::ImportError;
use super::fold::{Fold, Full, MOST_PAGES, MOST_RECORDS};
use super::line::{Access, Kind, Line};
use super::options::Options;
use super::show::MOST_BYTES;
use super::summary::Summary;
use crate::process::replace::replace;
use quietmm_host::lines::{ENDLESS, Lines};

const PAGE_SHIFT: u32 = 12;

/// A few foreign lines are accepted whatever their share: a short recording has short output around it.
const FOREIGN_FREE: u64 = 64;
/// What is left of a trace for its body, whatever its texts.
const MOST_BODY: u64 = MOST_BYTES - (FIXED_BYTES + 2 * u16::MAX as usize) as u64;
/// An input that has shown no access in so many lines is not lackey's; its other gigabytes are not read.
const LINES_BEFORE_GIVING_UP: u64 = 1_000_000;

/// Reads lackey's output from `input` and writes a trace to `out`. Memory is bounded by the distinct pages and the
/// folded records, not by the input.
///
/// An access that crosses a page counts for both pages; a modify is a read and a write.
///
/// # Errors
/// Says at which line the input is wrong and what would be right. `out` is then as it was before.
pub fn import(input: &mut dyn BufRead, options: &Options, out: &Path) -> Result<Summary, ImportError> {
    let (summary, trace) = translate(input, options)?;
    replace(out, &[&trace]).map_err(|error| ImportError::Write { path: out.to_owned(), error })?;
    Ok(summary)
}

/// What [`import()`] does, with the trace in memory.
pub(super) fn translate(
    input: &mut dyn BufRead,
    options: &Options,
) -> Result<(Summary, Vec<u8>), ImportError> {
    options.check()?;
    let mut reading = Reading::new(options);
    let mut lines = Lines::new(input);
    reading.read(&mut lines)?;
    reading.check()?;
    reading.encode()
}

/// An import under way.
struct Reading<'a> {
    options: &'a Options,
    fold: Fold,
    line: u64,
    accesses: u64,
    access_lines: u64,
    left_out: u64,
    valgrind_lines: u64,
    foreign_lines: u64,
    first_foreign: Option<u64>,
    command: Option<String>,
    exited: bool,
    killed: bool,
    limit_reached: bool,
}

impl<'a> Reading<'a> {
    fn new(options: &'a Options) -> Self {
        Self {
            options,
            fold: Fold::new(options.window, options.epoch),
            line: 0,
            accesses: 0,
            access_lines: 0,
            left_out: 0,
            valgrind_lines: 0,
            foreign_lines: 0,
            first_foreign: None,
            command: None,
            exited: false,
            killed: false,
            limit_reached: false,
        }
    }

    fn source(&self) -> String {
        self.options.source.clone()
    }

    fn read(&mut self, lines: &mut Lines<'_>) -> Result<(), ImportError> {
        while !self.limit_reached {
            let line = match lines.read() {
                Ok(Some(text)) if text.complete => Line::read(text.bytes),
                Ok(Some(text)) if text.length > ENDLESS => {
                    let (line, most) = (self.line + 1, ENDLESS);
                    return Err(ImportError::Endless { source: self.source(), line, most });
                }
                Ok(Some(_)) => {
                    return Err(ImportError::Cut {
                        source: self.source(),
                        line: lines.number,
                        byte: lines.bytes,
                    });
                }
                Ok(None) => break,
                Err(error) => {
                    return Err(ImportError::Read {
                        source: self.source(),
                        line: lines.number.max(1),
                        error,
                    });
                }
            };
            self.line += 1;
            match line {
                Line::Access(access) => self.access(access)?,
                Line::Valgrind(text) => self.valgrind(text),
                Line::Foreign => {
                    self.foreign_lines += 1;
                    self.first_foreign.get_or_insert(self.line);
                    if self.access_lines == 0 && self.line >= LINES_BEFORE_GIVING_UP {
                        break;
                    }
                }
            }
        }
        Ok(())
    }

    fn access(&mut self, access: Access) -> Result<(), ImportError> {
        self.access_lines += 1;
        let (reads, writes) = match access.kind {
            Kind::Fetch | Kind::Load => (1, 0),
            Kind::Store => (0, 1),
            Kind::Modify => (1, 1),
        };
        let first = access.address >> PAGE_SHIFT;
        let last = (access.address + (access.size - 1)) >> PAGE_SHIFT;
        for page in first..=last {
            let accesses = u64::from(reads + writes);
            if (access.kind == Kind::Fetch && !self.options.fetches) || self.left_out < self.options.skip {
                self.left_out += accesses;
                continue;
            }
            self.fold.add(page, reads, writes).map_err(|full| match full {
                Full::Pages => {
                    ImportError::TooManyPages { source: self.source(), line: self.line, most: MOST_PAGES }
                }
                Full::Records => {
                    ImportError::TooManyRecords { source: self.source(), line: self.line, most: MOST_RECORDS }
                }
            })?;
            self.accesses += accesses;
        }
        self.limit_reached = self.options.limit.is_some_and(|limit| self.accesses >= limit);
        Ok(())
    }

    fn valgrind(&mut self, text: &[u8]) {
        self.valgrind_lines += 1;
        if let Some(command) = text.strip_prefix(b"Command: ") {
            self.command.get_or_insert_with(|| String::from_utf8_lossy(command).trim().to_owned());
        }
        self.exited |= text.starts_with(b"Exit code:");
        // Lackey reports an exit code of 0 also for a program that a signal ended.
        self.killed |= text.starts_with(b"Process terminating");
    }

    fn check(&self) -> Result<(), ImportError> {
        if self.accesses == 0 {
            return Err(ImportError::NoAccess {
                source: self.source(),
                line: self.line,
                left_out: self.left_out,
            });
        }
        let percent = u64::from(self.options.foreign_percent);
        let accepted = FOREIGN_FREE.max(self.line / 100 * percent + self.line % 100 * percent / 100);
        match self.first_foreign {
            Some(line) if self.foreign_lines > accepted => Err(ImportError::Foreign {
                source: self.source(),
                line,
                foreign: self.foreign_lines,
                lines: self.line,
                percent: self.options.foreign_percent,
            }),
            _ => Ok(()),
        }
    }

    fn encode(self) -> Result<(Summary, Vec<u8>), ImportError> {
        let source = self.source();
        let encode_error = |error| ImportError::Encode { source: source.clone(), error };
        let (ids, records) = self.fold.finish();
        let numbers = compact(&ids).map_err(|span| ImportError::Span {
            source: source.clone(),
            line: self.line,
            span,
        })?;
        let mut encoder = BodyEncoder::new();
        let mut body = Vec::new();
        for &Record { page, reads, writes } in &records {
            let page = numbers[page as usize];
            encoder.push(Record { page, reads, writes }, &mut body).map_err(encode_error)?;
            if body.len() as u64 > MOST_BODY {
                let (line, most) = (self.line, MOST_BYTES);
                return Err(ImportError::TooLarge { source: source.clone(), line, most });
            }
        }
        drop(records);

        let command = self.options.command.clone().or(self.command).unwrap_or_default();
        let first_word = command.split_whitespace().next().unwrap_or("").to_owned();
        let program = self.options.program.clone().unwrap_or(first_word);
        let header = Header {
            program: &program,
            command: &command,
            fetches: self.options.fetches,
            bounded: self.limit_reached || self.options.skip > 0 || !self.exited || self.killed,
            page_bytes: 1 << PAGE_SHIFT,
            window: self.options.window,
            epoch: self.options.epoch,
            gap: GAP,
            pages: ids.len() as u64,
            span: encoder.span(),
            totals: encoder.finish(),
        };
        let mut file = Vec::new();
        header.encode(&mut file).map_err(encode_error)?;
        file.extend_from_slice(&body);
        // A trace that cannot be read must not get the name of one.
        Trace::parse(&file).map_err(|error| ImportError::Unsound { source: source.clone(), error })?;
        let summary = Summary {
            lines: self.line,
            valgrind_lines: self.valgrind_lines,
            foreign_lines: self.foreign_lines,
            first_foreign: self.first_foreign,
            accesses: header.totals.accesses(),
            reads: header.totals.reads,
            writes: header.totals.writes,
            left_out: self.left_out,
            pages: header.pages,
            span: header.span,
            records: header.totals.records,
            bytes: file.len() as u64,
            bounded: header.bounded,
        };
        Ok((summary, file))
    }
}
