//! `quietmm explain`: what a recorded program's shootdowns cost it, who causes them, what policies would change, here and on
//! larger machines, and what the program could.

mod advice;
mod recorded;
mod replay;

use clap::Args;
use quietmm_host::blame::Blame;
use quietmm_workloads::trace::{AnyTrace, Recording};
use serde_json::json;

use crate::backend::{recorded as traces, sim};
use crate::process::ending::{Ending, Failure};
use crate::process::output::Output;
use crate::show::json;

/// `quietmm explain`
#[derive(Debug, Args)]
pub struct ExplainArgs {
    /// A recording of `quietmm record` or `quietmm trace import`
    #[arg(value_name = "RECORDING")]
    recording: String,
    /// The machine that it was recorded on: a name, or a file such as `quietmm machine measure` prints
    #[arg(long, value_name = "NAME|FILE", default_value = "modern-2x64")]
    machine: String,
    /// The larger machine on which it is replayed too
    #[arg(long, value_name = "NAME|FILE", default_value = "modern-2x64")]
    larger: String,
    /// With so many CPUs each time
    #[arg(long, value_name = "N,N,...", value_delimiter = ',', default_value = "64,128", value_parser = crate::cli::flags::cpus())]
    cpus: Vec<u32>,
    /// Replay nothing: only what was recorded, and what to change
    #[arg(long)]
    no_replay: bool,
    /// How many host threads run side by side (default: every core); changes no figure
    #[arg(long, value_name = "N", value_parser = crate::cli::flags::jobs(), allow_negative_numbers = true)]
    jobs: Option<u16>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Explains.
pub fn explain(args: &ExplainArgs, output: &mut Output) -> Result<Ending, Failure> {
    let name = &args.recording;
    let trace = traces::find(Some(name))?;
    // It was parsed when it was found.
    let Ok(AnyTrace::Operations(recording)) = AnyTrace::parse(&trace.bytes) else {
        let wrong = "a trace of accesses, which knows no threads; a recording of `quietmm record` is needed";
        return Err(Failure::Input(format!("{name}: {wrong}")));
    };
    let machine = sim::load(&args.machine)?;
    let blame = Blame::of(&recording);
    let width = output.width();
    let advice = advice::ranked(&recording, &blame, &machine);
    // What is wrong with the machines is said before anything is printed.
    let study = if args.no_replay { None } else { Some(replay::study(args)?) };
    if !args.json {
        output.text(&recorded::text(&recording, &blame, &machine, width))?;
        output.text(&advice::text(&advice, recording.header().about.shootdowns, width))?;
        output.flush()?;
    }
    let (rows, ending) = match &study {
        Some(study) => replay::run(study, advice::spared_by_one_call(&advice, &blame))?,
        None => (Vec::new(), Ending::Good),
    };
    if args.json {
        let all = json!({
            "recording": recorded::json(&recording, &machine),
            "shootdowns": blame.shootdowns,
            "groups": blame.groups.iter().map(recorded::group_json).collect::<Vec<_>>(),
            "change": advice.iter().map(advice::Advice::json).collect::<Vec<_>>(),
            "replays": rows.iter().map(replay::Row::json).collect::<Vec<_>>(),
        });
        output.data(&json::pretty(&all))?;
    } else if study.is_some() {
        output.text(&replay::text(&rows, received(&recording), width))?;
    }
    Ok(ending)
}

/// Flush requests that CPUs received for the program, if that was recorded.
fn received(recording: &Recording<'_>) -> Option<u64> {
    let about = recording.header().about;
    about.shootdowns.then_some(about.received.program).flatten()
}
