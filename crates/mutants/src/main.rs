//! Changes the core's source, one small change at a time, and looks whether a test sees it.
//!
//! The generic core takes a minute to compile, so all mutants are compiled at once, each behind its number ([`emit`]); those
//! that do not compile are taken out ([`compile`]). Each test is run once to see which mutants it reaches ([`judges`]), and
//! each mutant is then judged by the tests that reach it, the quickest first, in processes of their own ([`run`]).

mod command;
mod compile;
mod emit;
mod explained;
mod find;
mod judges;
mod mutant;
mod process;
mod report;
mod results;
mod rooms;
mod run;
mod sample;
mod smoke;
mod source;

use std::path::PathBuf;
use std::process::ExitCode;

fn main() -> ExitCode {
    let root = PathBuf::from(std::env::var_os("QUIETMM_ROOT").unwrap_or_else(|| ".".into()));
    let args: Vec<String> = std::env::args().skip(1).collect();
    match command::run(root, &args) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("mutants: {error}");
            ExitCode::FAILURE
        }
    }
}
