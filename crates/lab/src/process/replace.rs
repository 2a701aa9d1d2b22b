//! A file appears whole or not at all: it is written beside its place and renamed.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, IntoInnerError, Write};
use std::path::{Path, PathBuf};

/// Writes `pieces` to `path`, replacing what is there in one step. On an error, nothing is left behind and what was
/// there stays.
pub fn replace(path: &Path, pieces: &[&[u8]]) -> io::Result<()> {
    replace_with(path, |to| pieces.iter().try_for_each(|piece| to.write_all(piece)))
}

/// The same with whatever `write` writes, piece by piece.
pub fn replace_with(path: &Path, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let path = &followed(path);
    let (partial, file) = beside(path)?;
    let mut to = BufWriter::new(file);
    write(&mut to)?;
    to.into_inner().map_err(IntoInnerError::into_error)?.sync_all()?;
    fs::rename(&partial.0, path)?;
    // The name is gone, so there is nothing to remove.
    std::mem::forget(partial);
    Ok(())
}

/// Whether a file could be written there: one is begun beside it, and removed.
pub fn can(path: &Path) -> io::Result<()> {
    beside(&followed(path)).map(|_| ())
}

/// Where a link leads to, if it is one: the file is replaced, not the link.
fn followed(path: &Path) -> PathBuf {
    fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf())
}

/// A new file beside `path`, on the same file system.
fn beside(path: &Path) -> io::Result<(Partial, File)> {
    let Some(name) = path.file_name() else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not the name of a file"));
    };
    // A device or a pipe would be lost.
    if fs::metadata(path).is_ok_and(|found| !found.is_file()) {
        let why = "what is there is no file that can be replaced; another name";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    let mut beside = OsString::from(".");
    beside.push(name);
    beside.push(format!(".{}.partial", std::process::id()));
    let partial = path.with_file_name(beside);
    let file = OpenOptions::new().write(true).create_new(true).open(&partial)?;
    Ok((Partial(partial), file))
}

/// The file beside; removed when dropped, which happens on every way out but success.
struct Partial(PathBuf);

impl Drop for Partial {
    fn drop(&mut self) {
        // The error that led here is the one to report.
        let _ = fs::remove_file(&self.0);
    }
}
