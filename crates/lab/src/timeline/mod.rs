//! `--timeline FILE`: what each CPU did when, as a trace for Perfetto's and Chrome's viewers.
//!
//! The format is Chrome's JSON (the "Trace Event Format"), which both read. [`event`] is one of its events, and writes them one by one;
//! [`tracks`] says what of a run becomes which event on which track.

mod event;
mod tracks;

use quietmm_sim::timeline::{Wanted, Window};
use serde_json::json;

use crate::REVISION;
use crate::cli::flags::On;
use crate::process::ending::{Failure, note};
use crate::process::plain;
use crate::show::units::grouped;
use crate::study::Ask;
use crate::study::file::Target;
use crate::study::result::{Comparison, Run};
use event::Events;

/// What is shown unless something else is asked for, in picoseconds.
const LAST: u64 = 2_000_000_000;
/// Records of all runs together: some hundred bytes each in the file, which viewers can hold.
const MOST: usize = 1 << 20;

/// Which part of each run a command line asks for, if it does.
pub fn wanted(ask: &Ask<'_>) -> Result<Option<Wanted>, Failure> {
    let sim = &ask.sim;
    if sim.timeline.is_none() {
        return Ok(None);
    }
    let window = match (sim.from, sim.to) {
        (None, None) => Window::Last(sim.last.unwrap_or(LAST)),
        (from, to) => Window::Between { from: from.unwrap_or(0), to: to.unwrap_or(u64::MAX) },
    };
    match window {
        Window::Last(0) => Err(Failure::Input("--last: a timeline of no time shows nothing".to_string())),
        Window::Between { from, to } if from >= to => {
            Err(Failure::Input("--from must be before --to".to_string()))
        }
        _ => {
            let runs = ask.workloads.len() * ask.policies.len() * sim.machine.names.len().max(1);
            Ok(Some(Wanted { window, most: (MOST / runs.max(1)).max(1) }))
        }
    }
}

/// Writes the timelines of a study.
pub fn write(target: &Target, all: &[Comparison]) -> Result<(), Failure> {
    let runs: Vec<(&Comparison, &Run)> = all
        .iter()
        .flat_map(|of| of.runs.iter().map(move |run| (of, run)))
        .filter(|(_, run)| run.timeline.is_some())
        .collect();
    let timelines = || runs.iter().filter_map(|(_, run)| run.timeline.as_ref());
    if timelines().all(|timeline| timeline.records.is_empty()) {
        let ended = timelines().map(|timeline| timeline.ended_ps).max().unwrap_or(0);
        let why = format!(
            "the timeline has nothing to show: the longest run ended after {} us",
            grouped(&(ended / 1_000_000).to_string())
        );
        return Err(Failure::Run(why));
    }
    // A machine that boots keeps the last of what it does, however long it runs, and is not asked for more.
    let simulated = runs.iter().filter(|(of, _)| of.place.on == On::Sim);
    let gone: u64 =
        simulated.filter_map(|(_, run)| run.timeline.as_ref()).map(|timeline| timeline.gone).sum();
    if gone > 0 {
        let (gone, most) = (grouped(&gone.to_string()), grouped(&MOST.to_string()));
        note(&format!(
            "the timeline has the last {most} records at most: {gone} before them did not fit; a smaller window, with --from and --to"
        ));
    }
    target.write("timeline", |to| {
        let mut events = Events::begin(to)?;
        for (nth, (of, run)) in runs.iter().enumerate() {
            if let Some(timeline) = &run.timeline {
                let Run { policy, seed, .. } = run;
                let name = format!("{policy}: {} on {}, seed {seed}", of.workload, of.place.machine);
                tracks::write(&mut events, nth as u32 + 1, &plain::line(&name), timeline)?;
            }
        }
        let about = runs.iter().enumerate().filter_map(|(nth, (of, run))| {
            let timeline = run.timeline.as_ref()?;
            Some(json!({
                "pid": nth + 1,
                "policy": run.policy,
                "seed": run.seed,
                "command": of.command,
                "from_ns": timeline.from_ps / 1000,
                "to_ns": timeline.to_ps / 1000,
                "run_ended_ns": timeline.ended_ps / 1000,
                "records": timeline.records.len(),
                "records_that_did_not_fit": timeline.gone,
            }))
        });
        let by = format!("quietmm {}, revision {REVISION}", env!("CARGO_PKG_VERSION"));
        events.end(&json!({ "by": by, "runs": about.collect::<Vec<_>>() }))
    })
}
