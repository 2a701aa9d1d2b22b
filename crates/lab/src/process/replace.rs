//! A file appears whole or not at all: it is written beside its place and renamed.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Writes `pieces` to `path`, replacing what is there in one step. On an error, nothing is left behind and what was
/// there stays.
pub fn replace(path: &Path, pieces: &[&[u8]]) -> io::Result<()> {
    let (partial, mut file) = beside(path)?;
    write_all(&mut file, pieces)?;
    fs::rename(&partial.0, path)?;
    // The name is gone, so there is nothing to remove.
    std::mem::forget(partial);
    Ok(())
}

/// Whether a file could be written there: one is begun beside it, and removed.
pub fn can(path: &Path) -> io::Result<()> {
    beside(path).map(|_| ())
}

/// A new file beside `path`, on the same file system.
fn beside(path: &Path) -> io::Result<(Partial, File)> {
    let Some(name) = path.file_name() else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not the name of a file"));
    };
    let mut beside = OsString::from(".");
    beside.push(name);
    beside.push(format!(".{}.partial", std::process::id()));
    let partial = path.with_file_name(beside);
    let file = OpenOptions::new().write(true).create_new(true).open(&partial)?;
    Ok((Partial(partial), file))
}

fn write_all(file: &mut File, pieces: &[&[u8]]) -> io::Result<()> {
    for piece in pieces {
        file.write_all(piece)?;
    }
    file.sync_all()
}

/// The file beside; removed when dropped, which happens on every way out but success.
struct Partial(PathBuf);

impl Drop for Partial {
    fn drop(&mut self) {
        // The error that led here is the one to report.
        let _ = fs::remove_file(&self.0);
    }
}
