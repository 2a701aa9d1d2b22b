//! The file of a sweep: the header, then a line for each point that is done. Lines are added as points are done; when all are, the
//! file is written again in the order of the grid, so that it has the same bytes whoever ran what when.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, BufRead, BufReader, Read as _, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use crate::process::ending::Failure;
use crate::process::{interrupt, replace};
use crate::sweep::header::{Header, Values};
use crate::sweep::part::Part;
use crate::sweep::point::{self, Read};

/// No line is longer: a header of a million values, a run of some thousand latencies.
const LONGEST: u64 = 64 << 20;

/// Where a line is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    from: u64,
    length: u64,
}

/// A file with results.
pub struct Lines {
    file: File,
    /// What it is called in messages; of one without a name that it has none.
    path: Option<PathBuf>,
    pub header: Header,
    part: Part,
    axes: Vec<Values>,
    /// Of each point of the part, in order.
    places: Vec<Option<Place>>,
    done: u64,
    end: u64,
    /// The lines stand in the order of the grid,
    sorted: bool,
    /// of which the last is this one's.
    last: Option<u64>,
}

impl Lines {
    /// The file of this sweep: a new one, or one to go on with.
    pub fn open(path: &Path, header: &Header) -> Result<Lines, Failure> {
        let unusable = |error: io::Error| wrong(path, format!("cannot be used: {error}"));
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path);
        let file = file.map_err(unusable)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(wrong(path, "another sweep writes there; wait for it, or give another name"));
            }
            // A file system without locks.
            Err(TryLockError::Error(_)) => {}
        }
        let first = header.line();
        let length = file.metadata().map_err(unusable)?.len();
        let mut lines = Lines::of(file, Some(path.to_path_buf()), header.clone())?;
        // A header that is cut was never followed by anything.
        if length < first.len() as u64 && lines.head(length)? == first.as_bytes()[..length as usize] {
            lines.begin(&first)?;
            return Ok(lines);
        }
        let there = lines.scan()?;
        let differences = header.differences(&lines.header);
        if !differences.is_empty() {
            return Err(wrong(
                path,
                format!("another sweep is in it: {differences}; another name, or the same command"),
            ));
        }
        if there < length {
            lines.file.set_len(there).map_err(|error| lines.failed(error))?;
        }
        Ok(lines)
    }

    /// A file that has no name and goes with the command.
    pub fn nameless(header: &Header) -> Result<Lines, Failure> {
        let path = std::env::temp_dir().join(format!("quietmm-sweep-{}", std::process::id()));
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path);
        let file = file.map_err(|error| {
            Failure::Run(format!("{} cannot be written: {error}; --out FILE has the results", path.display()))
        })?;
        // Where an open file cannot lose its name it stays for whoever cleans up there.
        let _ = fs::remove_file(&path);
        let mut lines = Lines::of(file, None, header.clone())?;
        lines.begin(&header.line())?;
        Ok(lines)
    }

    /// A file to be read alone.
    pub fn read(path: &Path) -> Result<Lines, Failure> {
        // Opening a FIFO would wait for a writer.
        match fs::metadata(path) {
            Ok(found) if !found.is_file() => return Err(bad(path, "it is no file")),
            Err(error) => return Err(bad(path, &error.to_string())),
            Ok(_) => {}
        }
        let file = File::open(path).map_err(|error| bad(path, &error.to_string()))?;
        // The header is its own.
        let mut lines = Lines::of(file, Some(path.to_path_buf()), Header::of(&[], Default::default(), None))?;
        lines.scan()?;
        Ok(lines)
    }

    fn of(file: File, path: Option<PathBuf>, header: Header) -> Result<Lines, Failure> {
        let mut lines = Lines {
            file,
            path,
            header,
            part: Part::ALL,
            axes: Vec::new(),
            places: Vec::new(),
            done: 0,
            end: 0,
            sorted: true,
            last: None,
        };
        lines.lay_out();
        Ok(lines)
    }

    /// Room for what the header says.
    fn lay_out(&mut self) {
        self.part = self.header.part().unwrap_or(Part::ALL);
        self.axes = self.header.axes().unwrap_or_default();
        self.places = vec![None; self.part.count(self.header.points) as usize];
    }

    /// The beginning of the file.
    fn head(&mut self, length: u64) -> Result<Vec<u8>, Failure> {
        self.read_at(Place { from: 0, length }).map_err(|error| self.failed(error))
    }

    fn begin(&mut self, first: &str) -> Result<(), Failure> {
        self.file.set_len(0).map_err(|error| self.failed(error))?;
        self.end = 0;
        self.write(first.as_bytes())
    }

    /// Reads all of it: where what is whole ends.
    fn scan(&mut self) -> Result<u64, Failure> {
        let name = self.path.clone().unwrap_or_default();
        let unreadable = |error: io::Error| bad(&name, &error.to_string());
        let mut reader = BufReader::new(self.file.try_clone().map_err(unreadable)?);
        reader.seek(SeekFrom::Start(0)).map_err(unreadable)?;
        let (mut line, mut from) = (Vec::new(), 0);
        for number in 1.. {
            line.clear();
            let length = reader.by_ref().take(LONGEST).read_until(b'\n', &mut line).map_err(unreadable)?;
            let whole = line.last() == Some(&b'\n');
            if number == 1 {
                let text = line
                    .strip_suffix(b"\n")
                    .ok_or_else(|| bad(&name, "it is no file of a sweep; another name"))?;
                self.header = Header::read(text).map_err(|why| bad(&name, &why))?;
                self.lay_out();
            } else if length == 0 || (!whole && (length as u64) < LONGEST) {
                // The end, or a line that was being written when the command was killed.
                break;
            } else {
                let place = Place { from, length: length as u64 };
                let point = self.check(&line, place).map_err(|why| {
                    bad(&name, &format!("line {number} {why}; take the line out, and its point is run again"))
                })?;
                self.comes(point);
            }
            from += length as u64;
        }
        self.end = from;
        Ok(from)
    }

    /// Notes where the line of a point is, or says what is wrong with it.
    fn check(&mut self, line: &[u8], place: Place) -> Result<u64, String> {
        let (point, index) = point::whose(line, &self.axes, self.header.points, self.part)?;
        if self.places[index as usize].replace(place).is_some() {
            return Err(format!("is of point {point}, which was there before"));
        }
        self.done += 1;
        Ok(point)
    }

    /// Points that are not done, in order.
    pub fn missing(&self) -> Vec<u64> {
        self.points().filter(|(_, place)| place.is_none()).map(|(point, _)| point).collect()
    }

    /// Points that are done.
    pub fn done(&self) -> u64 {
        self.done
    }

    /// All of them, of this part.
    pub fn all(&self) -> u64 {
        self.places.len() as u64
    }

    /// The axes of the grid.
    pub fn axes(&self) -> &[Values] {
        &self.axes
    }

    /// Which part it is.
    pub fn part(&self) -> Part {
        self.part
    }

    /// Adds a line that somebody else has made, if it is whole and its point is missing; says whether it was.
    pub fn take(&mut self, line: &str) -> Result<bool, Failure> {
        let place = Place { from: self.end, length: line.len() as u64 };
        let point = Read::of(line.as_bytes()).map(|read| read.point);
        let index = point.and_then(|point| self.part.index(point));
        // Points are deterministic: one that was run twice is one result.
        if index.is_some_and(|index| matches!(self.places.get(index as usize), Some(Some(_)))) {
            return Ok(false);
        }
        let point = self
            .check(line.as_bytes(), place)
            .map_err(|why| Failure::Run(format!("{}: a line that came {why}", self.name())))?;
        self.write(line.as_bytes())?;
        self.comes(point);
        Ok(true)
    }

    /// Adds the line of a point that was missing.
    pub fn add(&mut self, point: u64, line: &str) -> Result<(), Failure> {
        let place = Place { from: self.end, length: line.len() as u64 };
        self.write(line.as_bytes())?;
        let Some(index) = self.part.index(point) else { return Ok(()) };
        self.places[index as usize] = Some(place);
        self.done += 1;
        self.comes(point);
        Ok(())
    }

    /// A point's line is the last of the file.
    fn comes(&mut self, point: u64) {
        self.sorted &= self.last.is_none_or(|last| last < point);
        self.last = Some(point);
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        let end = self.end;
        let written = self.file.seek(SeekFrom::Start(end)).and_then(|_| self.file.write_all(bytes));
        written.map_err(|error| self.failed(error))?;
        self.end += bytes.len() as u64;
        Ok(())
    }

    /// If all points are done, puts them into the order of the grid; in one step, if they are not.
    pub fn finish(&mut self) -> Result<(), Failure> {
        if self.done < self.all() {
            return Ok(());
        }
        let synced = self.file.sync_all();
        synced.map_err(|error| self.failed(error))?;
        let Some(path) = self.path.clone().filter(|_| !self.sorted) else { return Ok(()) };
        // A second Ctrl-C would leave half a file beside it.
        let _held = interrupt::hold();
        let header = self.header.line();
        let written = replace::replace_with(&path, |to| {
            to.write_all(header.as_bytes())?;
            self.there().into_iter().try_for_each(|point| to.write_all(&self.line(point)?))
        });
        written.map_err(|error| self.failed(error))
    }

    /// All lines that are there, in the order of the grid.
    pub fn each(&mut self, mut each: impl FnMut(u64, &[u8]) -> Result<(), Failure>) -> Result<(), Failure> {
        for point in self.there() {
            let line = self.line(point).map_err(|error| self.failed(error))?;
            each(point, &line)?;
        }
        Ok(())
    }

    /// The line of a point that is there.
    pub fn line(&mut self, point: u64) -> io::Result<Vec<u8>> {
        let place =
            self.part.index(point).and_then(|index| self.places.get(index as usize).copied().flatten());
        self.read_at(place.ok_or(io::ErrorKind::NotFound)?)
    }

    /// Points that are there, in order.
    pub fn there(&self) -> Vec<u64> {
        self.points().filter(|(_, place)| place.is_some()).map(|(point, _)| point).collect()
    }

    fn points(&self) -> impl Iterator<Item = (u64, &Option<Place>)> {
        self.part.points(self.header.points).zip(&self.places)
    }

    fn read_at(&mut self, place: Place) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; place.length as usize];
        self.file.seek(SeekFrom::Start(place.from))?;
        self.file.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    /// What it is called.
    pub fn name(&self) -> String {
        self.path.as_ref().map_or("the results".to_string(), |path| path.display().to_string())
    }

    fn failed(&self, error: io::Error) -> Failure {
        Failure::Run(format!("{} cannot be written or read: {error}", self.name()))
    }
}

fn wrong(path: &Path, why: impl std::fmt::Display) -> Failure {
    Failure::Input(format!("--out {}: {why}", path.display()))
}

fn bad(path: &Path, why: &str) -> Failure {
    Failure::Input(format!("{}: {why}", path.display()))
}
