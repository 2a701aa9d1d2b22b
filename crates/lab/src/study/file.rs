//! Files that a study writes beside what it prints: said before anything runs whether they can be, and written whole or not at all.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::process::ending::Failure;
use crate::process::{interrupt, replace};
use crate::study::Ask;

/// A file that can be written.
pub struct Target {
    /// The flag that named it.
    flag: &'static str,
    path: PathBuf,
}

/// The files that were asked for.
#[derive(Default)]
pub struct Targets {
    /// The page.
    pub report: Option<Target>,
    /// The trace of what each CPU did.
    pub timeline: Option<Target>,
    /// How what a broken rule did came about, as a picture.
    pub svg: Option<Target>,
}

impl Targets {
    /// Those of this command line, if all can be written.
    pub fn of(ask: &Ask<'_>) -> Result<Targets, Failure> {
        let machine = &ask.sim.machine;
        let names = machine.names.iter().chain(&machine.trace).map(Path::new);
        let inputs: Vec<&Path> = names.chain(ask.metal.image.as_deref()).collect();
        let target = |flag, path: &Option<PathBuf>| Target::asked(flag, path.as_deref(), &inputs);
        let targets = Targets {
            report: target("--report", &ask.common.report)?,
            timeline: target("--timeline", &ask.sim.timeline)?,
            svg: target("--svg", &ask.sim.svg)?,
        };
        let all: Vec<&Target> = targets.report.iter().chain(&targets.timeline).chain(&targets.svg).collect();
        for (nth, one) in all.iter().enumerate() {
            all[..nth].iter().try_for_each(|other| one.beside(other))?;
        }
        Ok(targets)
    }
}

impl Target {
    /// The file of this flag, if there is one, and if it can be written. What is to be read is not written over.
    pub fn asked(
        flag: &'static str,
        path: Option<&Path>,
        inputs: &[&Path],
    ) -> Result<Option<Target>, Failure> {
        path.map(|path| Target::new(flag, path, inputs)).transpose()
    }

    fn new(flag: &'static str, path: &Path, inputs: &[&Path]) -> Result<Target, Failure> {
        let target = Target { flag, path: path.to_path_buf() };
        let wrong = |why: &str| Err(target.wrong(why));
        if path == Path::new("-") {
            return wrong("a file is needed; standard output has the text, or with --json or --csv the data");
        }
        let Some(name) = path.file_name().filter(|_| !path.as_os_str().as_encoded_bytes().ends_with(b"/"))
        else {
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
            if let Some(input) = inputs.iter().find(|input| target.is(input)) {
                return wrong(&format!("{} is what is to be run; another name", input.display()));
            }
        }
        match replace::can(path) {
            Ok(()) => Ok(target),
            Err(error) => wrong(&format!("{} cannot be written to: {error}", folder.display())),
        }
    }

    /// This is another file than that one.
    pub fn beside(&self, other: &Target) -> Result<(), Failure> {
        if self.is(&other.path) {
            let what = other.flag.trim_start_matches('-');
            return Err(self.wrong(&format!("the {what} is written there; another name")));
        }
        Ok(())
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn wrong(&self, why: &str) -> Failure {
        Failure::Input(format!("{} {}: {why}", self.flag, self.path.display()))
    }

    /// Whether both lead to one file, be it that it is not there yet.
    fn is(&self, other: &Path) -> bool {
        self.path == other || matches!((whole(&self.path), whole(other)), (Some(a), Some(b)) if a == b)
    }

    /// Has the file written, whole or not at all; what was there is replaced. `what` it is, for a message.
    pub fn write(
        &self,
        what: &str,
        write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> Result<(), Failure> {
        // A second Ctrl-C would leave half a file beside it.
        let _held = interrupt::hold();
        replace::replace_with(&self.path, write).map_err(|error| {
            Failure::Run(format!("the {what} {} cannot be written: {error}", self.path.display()))
        })
    }
}

/// The path by which one file has one name.
fn whole(path: &Path) -> Option<PathBuf> {
    let there = fs::canonicalize(path).ok();
    there.or_else(|| {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        Some(fs::canonicalize(folder).ok()?.join(path.file_name()?))
    })
}
