//! `quietmm boot`, and `quietmm compare --on metal` and `--on both`: the same core on page tables, interrupts and processors
//! that we did not write.
//!
//! The way through: [`args`] has the flags, [`plan`] holds them against what exists, [`image`] finds the bootable image or has
//! it built, [`measure`] boots it once for each policy and seed, [`lines`] reads what each machine printed, [`figures`]
//! makes the same figures of it that the simulation has, [`text`] and [`json`] print them. [`both`] simulates the same
//! work too, and [`beside`] sets simulation and metal side by side.

pub mod args;
mod beside;
mod both;
mod figures;
mod image;
mod json;
mod lines;
mod measure;
mod plan;
mod progress;
mod text;

use crate::cli::{Common, CompareArgs};
use crate::ending::{Ending, Failure};
use crate::interrupt;
use crate::metal::args::{Asked, BootArgs, On};
use crate::metal::measure::Study;
use crate::output::Output;

/// `quietmm boot`.
pub fn boot(args: &BootArgs, output: &mut Output) -> Result<Ending, Failure> {
    show(&Asked::boot(args), output)
}

/// `quietmm compare --on metal`, or `--on both`.
pub fn compare(args: &CompareArgs, output: &mut Output) -> Result<Ending, Failure> {
    only_simulated(&args.common, args.on)?;
    let asked = Asked::compare(args);
    if args.on == On::Both { both::show(&asked, &args.common, output) } else { show(&asked, output) }
}

/// Boots all that was asked for, and shows it.
fn show(asked: &Asked<'_>, output: &mut Output) -> Result<Ending, Failure> {
    let plans = plan::plans(asked)?;
    interrupt::listen();
    let image = image::find(asked.machine.image.as_deref())?;
    let studies = measure::measure(plans, &image)?;
    if asked.json {
        output.text(&json::studies(&studies, asked.stats))?;
    } else {
        for (nth, study) in studies.iter().enumerate() {
            if nth > 0 {
                output.text("\n\n")?;
            }
            output.text(&text::study(study, asked))?;
        }
    }
    Ok(studies.iter().map(Study::ending).fold(Ending::Good, Ending::worse))
}

/// Refuses what says something only of a simulated machine.
fn only_simulated(common: &Common, on: On) -> Result<(), Failure> {
    let both = on == On::Both;
    let given = [
        ("--machine", common.machine.is_some() && !both),
        ("--scale", common.scale.is_some()),
        ("--trace", common.trace.is_some()),
        ("--parts", common.parts.is_some()),
        ("--profile", common.profile),
    ];
    match given.iter().find(|(_, given)| *given) {
        None => Ok(()),
        Some((flag, _)) => {
            let word = if both { "both" } else { "metal" };
            Err(Failure::Input(format!("{flag}: only the simulation has that; not with --on {word}")))
        }
    }
}
