//! What was seen that must never be, and how it came to that: the lines of the terminal, and the same as sequence diagrams.

use maud::{Markup, html};

use quietmm_sim::story::Story;

use super::plot::{Drawn, Picture, sequence};
use crate::process::ending::Failure;
use crate::process::output::WIDTH;
use crate::show::text;
use crate::study::Run;
use crate::study::file::Target;
use crate::study::result::Comparison;

/// More stories than this are only counted.
const STORIES: usize = 3;

/// The part of a page; empty where nothing was seen.
pub fn part(of: &Comparison) -> Drawn<Markup> {
    let harm = text::harm(of, STORIES, WIDTH);
    let pictures = text::stories(of).into_iter().take(STORIES).map(picture);
    let pictures = pictures.collect::<Drawn<Vec<Option<Picture>>>>()?;
    Ok(html! {
        @if !harm.is_empty() {
            h3 { "What was seen that must never be" }
            @for picture in pictures.iter().flatten() { div class="pictures" { (picture) } }
            pre { (harm.trim()) }
        }
    })
}

/// Writes the first that can be drawn as a picture of its own. Says what is not there to be written.
pub fn write(target: &Target, all: &[Comparison]) -> Result<&'static str, Failure> {
    let wrong = |why| Failure::Run(format!("the picture cannot be drawn: {why}"));
    for told in all.iter().flat_map(text::stories) {
        if let Some(picture) = picture(told).map_err(wrong)? {
            target.write("picture", |to| to.write_all(picture.file().as_bytes()))?;
            return Ok("");
        }
    }
    Ok("\nNo picture was written: nothing was seen of which it is known how it came about.\n")
}

fn picture((run, story): (&Run, &Story)) -> Drawn<Option<Picture>> {
    sequence::of_run(format!("How it came to that: {}, seed {}", run.policy, run.seed), story)
}
