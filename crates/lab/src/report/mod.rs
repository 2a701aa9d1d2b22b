//! `--report FILE`: what came of a study as one page for a browser, which loads nothing from anywhere.
//!
//! [`page`] is what all pages have, those of `check` and `explain` too; [`section`] is what there is to say of one comparison, in the order of a reader's questions. Each of the other files is one part of that. [`plot`] draws.

mod causes;
mod heat;
mod latencies;
mod machine;
mod memory;
pub mod page;
pub mod plot;
pub mod policies;
mod published;
pub mod section;
pub mod stories;
pub mod table;
pub mod value;

use page::Page;
use plot::Drawn;

use crate::process::ending::Failure;
use crate::study::Form;
use crate::study::file::Target;
use crate::study::result::Comparison;

/// Writes what came of a study.
pub fn write(target: &Target, all: &[Comparison], form: Form) -> Result<(), Failure> {
    let part = |(nth, of): (usize, &Comparison)| {
        Ok((format!("{} on {}", of.workload, of.place.machine), section::section(of, nth, form)?))
    };
    let parts = all.iter().enumerate().map(part).collect::<Drawn<Vec<_>>>();
    let again = "The commands above print the same figures again.";
    let page = parts.map(|parts| {
        let title = match &parts[..] {
            [(name, _)] => name.clone(),
            _ => format!("{} comparisons", parts.len()),
        };
        Page { title, parts, again }
    });
    save(target, page)
}

/// Writes a page, if it could be drawn.
pub fn save(target: &Target, page: Drawn<Page>) -> Result<(), Failure> {
    let page = page.map_err(|why| Failure::Run(format!("the report cannot be drawn: {why}")))?;
    target.write("report", |to| to.write_all(page.html().as_bytes()))
}
