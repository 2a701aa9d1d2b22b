//! Where the page goes.

use std::fs;
use std::path::{Path, PathBuf};

use crate::process::ending::Failure;
use crate::process::{interrupt, replace};
use crate::study::Ask;

/// A file that a page can be written to.
pub struct Place(PathBuf);

/// The file that was asked for, if a page can be written there: said before anything runs.
pub fn place(ask: &Ask<'_>) -> Result<Option<Place>, Failure> {
    let Some(path) = &ask.common.report else { return Ok(None) };
    let wrong = |why: &str| Err(Failure::Input(format!("--report {}: {why}", path.display())));
    if path == Path::new("-") {
        return wrong("a file is needed; standard output has the text, or with --json or --csv the data");
    }
    let Some(name) = path.file_name().filter(|_| !path.as_os_str().as_encoded_bytes().ends_with(b"/")) else {
        return wrong("not the name of a file");
    };
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match fs::metadata(folder) {
        Err(_) => return wrong(&format!("there is no directory {}", folder.display())),
        Ok(found) if !found.is_dir() => return wrong(&format!("{} is no directory", folder.display())),
        Ok(_) => {}
    }
    if let Ok(found) = fs::metadata(path) {
        if !found.is_file() {
            return wrong(&format!("{} is no file that can be replaced", name.display()));
        }
        let inputs =
            ask.sim.machines.iter().chain(&ask.sim.trace).map(Path::new).chain(ask.metal.image.as_deref());
        if let Some(input) = inputs.into_iter().find(|input| same(input, path)) {
            return wrong(&format!("{} is what is to be run; another name", input.display()));
        }
    }
    match replace::can(path) {
        Ok(()) => Ok(Some(Place(path.clone()))),
        Err(error) => wrong(&format!("{} cannot be written to: {error}", folder.display())),
    }
}

/// Whether both lead to one file.
fn same(a: &Path, b: &Path) -> bool {
    matches!((fs::canonicalize(a), fs::canonicalize(b)), (Ok(a), Ok(b)) if a == b)
}

impl Place {
    /// Writes the page, whole or not at all; what was there is replaced.
    pub fn write(&self, page: &[u8]) -> Result<(), Failure> {
        // A second Ctrl-C would leave half a file beside it.
        let _held = interrupt::hold();
        replace::replace(&self.0, &[page]).map_err(|error| {
            Failure::Run(format!("the report {} cannot be written: {error}", self.0.display()))
        })
    }
}
