//! Files that are written beside what is printed: said before anything runs whether they can be.

use std::path::Path;

use quietmm_check::timeline::Story;

use super::args::CheckArgs;
use crate::process::ending::Failure;
use crate::report;
use crate::report::page::Page;
use crate::report::plot::{Drawn, sequence};
use crate::study::file::Target;

/// Those that were asked for.
pub struct Files {
    report: Option<Target>,
    svg: Option<Target>,
}

impl Files {
    /// Those of this command line, if all can be written.
    pub fn of(args: &CheckArgs) -> Result<Files, Failure> {
        if args.svg.is_some() && args.mutant.as_deref() == Some("all") {
            let why = "a picture is of one rule's counterexample: --mutant RULE";
            return Err(Failure::Input(format!("--svg: {why}")));
        }
        if let Some(folder) = args.save.as_deref().filter(|folder| !folder.is_dir()) {
            return Err(Failure::Input(format!(
                "--save {}: a directory that is there is needed",
                folder.display()
            )));
        }
        let inputs: Vec<&Path> = args.replay.as_deref().into_iter().collect();
        let files = Files {
            report: Target::asked("--report", args.report.as_deref(), &inputs)?,
            svg: Target::asked("--svg", args.svg.as_deref(), &inputs)?,
        };
        if let (Some(report), Some(svg)) = (&files.report, &files.svg) {
            svg.beside(report)?;
        }
        Ok(files)
    }

    /// Whether a page is wanted.
    pub fn has_report(&self) -> bool {
        self.report.is_some()
    }

    /// Writes them. Says what is not there to be written.
    pub fn write(
        &self,
        page: impl FnOnce() -> Drawn<Page>,
        told: Option<(String, &Story)>,
    ) -> Result<&'static str, Failure> {
        if let Some(target) = &self.report {
            report::save(target, page())?;
        }
        match (&self.svg, told) {
            (Some(target), Some((name, story))) => {
                let picture = sequence::picture(name, story)
                    .map_err(|why| Failure::Run(format!("the picture cannot be drawn: {why}")))?;
                target.write("picture", |to| to.write_all(picture.file().as_bytes()))?;
                Ok("")
            }
            (Some(_), None) => Ok("No picture was written: there is no counterexample to draw.\n"),
            (None, _) => Ok(""),
        }
    }
}
