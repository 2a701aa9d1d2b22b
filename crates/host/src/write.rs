//! A recording on its way to a file: events are written as they come, the header when all are known.

use std::fs::File;
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use quietmm_workloads::trace::recording::{About, Event, RecordingEncoder, RecordingHeader, Sums};

/// Writes a recording beside its place, and puts it there when it is whole.
pub struct Writer {
    path: PathBuf,
    beside: PathBuf,
    file: BufWriter<File>,
    encoder: RecordingEncoder,
    header: u64,
    buffer: Vec<u8>,
}

impl Writer {
    /// Begins a recording of a machine with so many CPUs. The texts must be those of [`finish`](Self::finish).
    ///
    /// # Errors
    /// The file cannot be made, or a text is too long.
    pub fn begin(path: &Path, about: &About<'_>) -> io::Result<Writer> {
        let path = &place(path)?;
        let beside = beside(path);
        let mut bytes = Vec::new();
        let header = RecordingHeader { about: *about, sums: Sums::default() };
        header.encode(&mut bytes).map_err(|error| io::Error::other(error.to_string()))?;
        let mut file = BufWriter::with_capacity(1 << 20, File::create(&beside)?);
        file.write_all(&bytes)?;
        let encoder = RecordingEncoder::new(about.cpus);
        let (path, header) = (path.to_owned(), bytes.len() as u64);
        Ok(Writer { path, beside, file, encoder, header, buffer: Vec::new() })
    }

    /// Writes an event.
    ///
    /// # Errors
    /// The file cannot be written, or the event names what is not there.
    pub fn push(&mut self, event: &Event<'_>) -> io::Result<()> {
        self.buffer.clear();
        self.encoder
            .push(event, &mut self.buffer)
            .map_err(|error| io::Error::other(format!("a bug of the recorder: {error}")))?;
        self.file.write_all(&self.buffer)
    }

    /// Whether nothing was written.
    pub fn is_empty(&self) -> bool {
        self.encoder.finish().events == 0
    }

    /// When the last event was.
    pub fn last(&self) -> u64 {
        self.encoder.last()
    }

    /// Writes the header and puts the file in its place.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn finish(mut self, about: &About<'_>) -> io::Result<Sums> {
        let sums = self.encoder.finish();
        let about = About { duration: about.duration.max(self.last()), ..*about };
        let mut bytes = Vec::new();
        let header = RecordingHeader { about, sums };
        header.encode(&mut bytes).map_err(|error| io::Error::other(error.to_string()))?;
        if bytes.len() as u64 != self.header {
            return Err(io::Error::other("a bug of the recorder: its header has changed its length"));
        }
        self.file.seek(SeekFrom::Start(0))?;
        self.file.write_all(&bytes)?;
        self.file.flush()?;
        std::fs::rename(&self.beside, &self.path)?;
        Ok(sums)
    }
}

/// Whether a recording could be written there: one is begun beside it, and removed.
///
/// # Errors
/// Why not.
pub fn can(path: &Path) -> io::Result<()> {
    let beside = beside(&place(path)?);
    File::create(&beside).and_then(|_| std::fs::remove_file(&beside))
}

/// Where a link leads to, if it is one: the file is replaced, not the link. A device or a pipe would be lost if it were.
fn place(path: &Path) -> io::Result<PathBuf> {
    let wrong = |why: &str| Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    match std::fs::metadata(path) {
        Ok(found) if !found.is_file() => wrong("what is there is no file that can be replaced; another name"),
        Ok(_) => std::fs::canonicalize(path),
        Err(_) if path.file_name().is_none() => wrong("not the name of a file"),
        Err(_) => Ok(path.to_owned()),
    }
}

fn beside(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.part", std::process::id()));
    path.with_file_name(name)
}

impl Drop for Writer {
    fn drop(&mut self) {
        // After `finish` it is not there any more.
        let _ = std::fs::remove_file(&self.beside);
    }
}
