//! `quietmm trace`: recordings of real programs in, and what is in them out.

use crate::cli::TraceCommand;
use crate::host;
use crate::process::ending::{Ending, Failure};
use crate::process::output::Output;
use crate::show::json;
use crate::trace::ImportError;

/// Imports a recording, or shows a trace.
pub fn obey(command: &TraceCommand, output: &mut Output) -> Result<Ending, Failure> {
    match command {
        TraceCommand::Import(args) => {
            let failed = |error: ImportError| match error {
                ImportError::Unsound { .. } => Failure::Run(error.to_string()),
                ImportError::Write { error: ref why, .. } if host::is_full(why) => {
                    Failure::Run(error.to_string())
                }
                _ => Failure::Input(error.to_string()),
            };
            let (head, mut input) = args.open().map_err(failed)?;
            if let Some(text) = host::import(args, &head, &mut input)? {
                output.text(&text)?;
                return Ok(Ending::Good);
            }
            let summary = args.run(&mut input).map_err(failed)?;
            output.text(&format!("{}: {summary}\n", args.output.display()))?;
        }
        TraceCommand::Show(args) => {
            if let Some(text) = host::show(args)? {
                if args.json {
                    output.data(&text)?
                } else {
                    output.text(&text)?
                }
                return Ok(Ending::Good);
            }
            let shown = args.run().map_err(|error| Failure::Input(error.to_string()))?;
            if args.json {
                output.data(&json::pretty(&shown))?;
            } else {
                output.text(&shown.to_string())?;
            }
        }
    }
    Ok(Ending::Good)
}
