//! What shells and manuals are told of the command line.

use std::path::PathBuf;

use clap::{Args, CommandFactory};

use super::Cli;
use crate::process::ending::{Ending, Failure};
use crate::process::output::Output;

/// `quietmm completions`
#[derive(Debug, Args)]
pub struct CompletionsArgs {
    /// The shell
    pub shell: clap_complete::Shell,
}

/// `quietmm man`
#[derive(Debug, Args)]
pub struct ManArgs {
    /// Write a page for each command into this folder (default: print that of `quietmm`)
    pub folder: Option<PathBuf>,
}

/// Prints what a shell reads.
pub fn completions(args: &CompletionsArgs, output: &mut Output) -> Result<Ending, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "quietmm", &mut script);
    output.bytes(&script)?;
    Ok(Ending::Good)
}

/// Prints the manual page, or writes all.
pub fn man(args: &ManArgs, output: &mut Output) -> Result<Ending, Failure> {
    if let Some(folder) = &args.folder {
        let wrong = |error| Failure::Input(format!("{}: {error}", folder.display()));
        std::fs::create_dir_all(folder).map_err(wrong)?;
        clap_mangen::generate_to(Cli::command(), folder).map_err(wrong)?;
        return Ok(Ending::Good);
    }
    let mut page = Vec::new();
    clap_mangen::Man::new(Cli::command()).render(&mut page).map_err(Failure::Output)?;
    output.bytes(&page)?;
    Ok(Ending::Good)
}
