//! `quietmm trace`: recordings of real programs in, and what is in them out.

use crate::cli::TraceCommand;
use crate::ending::{Ending, Failure};
use crate::host;
use crate::json;
use crate::output::Output;
use crate::trace::ImportError;

/// Imports a recording, or shows a trace.
pub fn obey(command: &TraceCommand, output: &mut Output) -> Result<Ending, Failure> {
    match command {
        TraceCommand::Import(args) => {
            if let Some(text) = host::import(args)? {
                output.text(&text)?;
                return Ok(Ending::Good);
            }
            let summary = args.run().map_err(|error| match error {
                ImportError::Unsound { .. } => Failure::Run(error.to_string()),
                _ => Failure::Input(error.to_string()),
            })?;
            output.text(&format!("{}: {summary}\n", args.output.display()))?;
        }
        TraceCommand::Show(args) => {
            if let Some(text) = host::show(args)? {
                output.text(&text)?;
                return Ok(Ending::Good);
            }
            let shown = args.run().map_err(|error| Failure::Input(error.to_string()))?;
            let text = if args.json { json::pretty(&shown.to_json()) } else { shown.to_string() };
            output.text(&text)?;
            if !text.ends_with('\n') {
                output.text("\n")?;
            }
        }
    }
    Ok(Ending::Good)
}
