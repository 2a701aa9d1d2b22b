//! The command: all of it is the library beside.

use std::process::ExitCode;

fn main() -> ExitCode {
    quietmm_lab::main()
}
