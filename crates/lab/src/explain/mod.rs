//! `quietmm explain`: what a recorded program's shootdowns cost it, who causes them, what policies would change, here and on
//! larger machines, and what the program could.

mod advice;
mod matrix;
mod page;
mod recorded;
mod replay;

use std::path::{Path, PathBuf};

use clap::Args;
use quietmm_host::blame::Blame;
use quietmm_workloads::trace::{AnyTrace, Recording};
use serde_json::json;

use crate::backend::{recorded as traces, sim};
use crate::process::ending::{Ending, Failure};
use crate::process::output::Output;
use crate::report;
use crate::show::json;
use crate::study::file::Target;

const REPORT_HELP: &str = "\
Write a page to look at, beside what is printed: who interrupts whom by thread and by call, what it costs, the policies beside each \
other on each machine, what to change, and the command that repeats it. One file of HTML that any browser shows without a network, \
that can be printed and read aloud. A file of that name is replaced, in one step at the end";

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
    #[arg(long, value_name = "N,N,...", value_delimiter = ',', default_value = "64,128", value_parser = crate::cli::flags::cpus(), allow_negative_numbers = true)]
    cpus: Vec<u32>,
    /// Replay nothing: only what was recorded, and what to change
    #[arg(long)]
    no_replay: bool,
    /// How many host threads run side by side (default: every core); changes no figure
    #[arg(long, value_name = "N", value_parser = crate::cli::flags::jobs(), allow_negative_numbers = true)]
    jobs: Option<u16>,
    /// Write a page for a browser to this file: who interrupts whom, what it costs, policies beside each other, what to change
    #[arg(long, value_name = "FILE", long_help = REPORT_HELP)]
    report: Option<PathBuf>,
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
    let inputs = [name, &args.machine, &args.larger].map(Path::new);
    let target = Target::asked("--report", args.report.as_deref(), &inputs)?;
    let machine = sim::load(&args.machine)?;
    let blame = Blame::of(&recording);
    let width = output.width();
    let advice = advice::ranked(&recording, &blame, &machine);
    // What is wrong with the machines is said before anything is printed.
    let study = if args.no_replay { None } else { Some(replay::study(args)?) };
    let mut printed = Ok(());
    if !args.json {
        let first = recorded::text(&recording, &blame, &machine, width)
            + &advice::text(&advice, recording.header().about.shootdowns, width);
        printed = output.text(&first).and_then(|()| output.flush());
    }
    // A reader who leaves early leaves the page.
    if target.is_none() {
        std::mem::replace(&mut printed, Ok(()))?;
    }
    let (rows, ending) = match &study {
        Some(study) => replay::run(study, advice::spared_by_one_call(&advice, &blame))?,
        None => (Vec::new(), Ending::Good),
    };
    let all = json!({
        "recording": recorded::json(&recording, &machine),
        "shootdowns": blame.shootdowns,
        "groups": blame.groups.iter().map(recorded::group_json).collect::<Vec<_>>(),
        "change": advice.iter().map(advice::Advice::json).collect::<Vec<_>>(),
        "replays": rows.iter().map(replay::Row::json).collect::<Vec<_>>(),
    });
    if let Some(target) = &target {
        let told = page::Told {
            args,
            recording: &recording,
            blame: &blame,
            machine: &machine,
            advice: &advice,
            rows: &rows,
        };
        report::save(target, page::page(&told, &all))?;
    }
    printed?;
    if args.json {
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
