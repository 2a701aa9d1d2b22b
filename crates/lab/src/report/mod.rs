//! `--report FILE`: what came of a study as one page for a browser, which loads nothing from anywhere.
//!
//! [`page`] is what all pages have; [`section`] is what there is to say of one comparison, in the order of a reader's questions. Each of the other files is one part of that. [`plot`] draws.

mod causes;
mod heat;
mod latencies;
mod machine;
mod memory;
mod page;
mod plot;
mod policies;
mod published;
mod section;
mod table;

use crate::process::ending::Failure;
use crate::study::Form;
use crate::study::file::Target;
use crate::study::result::Comparison;

/// Writes what came of a study.
pub fn write(target: &Target, all: &[Comparison], form: Form) -> Result<(), Failure> {
    let page =
        page::page(all, form).map_err(|why| Failure::Run(format!("the report cannot be drawn: {why}")))?;
    target.write("report", |to| to.write_all(page.as_bytes()))
}
