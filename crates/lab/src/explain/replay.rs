//! What policies would have cost, on this machine and on larger ones: the recording is replayed on each.

use std::borrow::Cow;

use quietmm_sim::{Figure, figures};
use serde_json::{Value, json};

use super::ExplainArgs;
use crate::cli::flags::{Common, MachineArgs, MetalArgs, On, SimArgs, WorkArgs};
use crate::process::ending::{Ending, Failure};
use crate::show;
use crate::show::cause::{Causes, IPIS};
use crate::show::table::grid;
use crate::show::units::{grouped, time};
use crate::show::wrap::hanging;
use crate::study::{Ask, Comparison, Form, Plan, Run, Study, measure};

/// Policies that are compared.
const POLICIES: [&str; 3] = ["linux+unmap=per-page", "linux", "quiet"];

/// Behind a policy: calls that follow each other at once are one.
const BATCHED: &str = ", one call";

/// A replay.
#[derive(Clone, Debug)]
pub struct Row {
    /// Where it was replayed.
    pub machine: String,
    /// With so many CPUs.
    pub cpus: u32,
    /// Under this policy.
    pub policy: String,
    /// Flush requests that CPUs received, and flushes for which somebody was asked.
    pub received: u64,
    asked: u64,
    /// Nanoseconds of CPU time: interrupts, of sender and receiver; in the kernel, all; from start to end.
    pub ipis: f64,
    system: f64,
    elapsed: f64,
    /// Requests that Linux sends to CPUs that have left the space: counted, not replayed.
    left: u64,
    /// Steps that were added or left out because the recording could not be so.
    mended: u64,
}

impl Row {
    fn of(comparison: &Comparison, run: &Run) -> Row {
        let number = |key: &str| run.metrics.get(key).map_or(0.0, quietmm_sim::Value::number);
        let seconds = |figure: &Figure| number(figure.key) * 1e9;
        Row {
            machine: comparison.place.machine.clone(),
            cpus: comparison.place.cpus,
            policy: run.policy.clone(),
            received: number("nr_tlb_remote_flush_received") as u64,
            asked: number("nr_tlb_remote_flush") as u64,
            ipis: Causes::of(run).map_or(0.0, |causes| causes.time(IPIS) / 1e3),
            system: seconds(&figures::SYSTEM),
            elapsed: seconds(&figures::ELAPSED),
            left: number(figures::LEFT_ASKED.key) as u64,
            mended: number(figures::STEPS_MENDED.key) as u64,
        }
    }

    /// The policy by its short name.
    pub fn name(&self) -> &str {
        self.policy.strip_prefix("linux+unmap=").unwrap_or(&self.policy)
    }

    /// The same with this part of all interrupts left out. Reckoned, not replayed: what else a call does is done all the same.
    fn without(&self, part: f64) -> Row {
        let left = |count: u64| (count as f64 * (1.0 - part)).round() as u64;
        Row {
            policy: format!("{}{BATCHED}", self.policy),
            received: left(self.received),
            asked: left(self.asked),
            ipis: self.ipis * (1.0 - part),
            system: self.system - self.ipis * part,
            ..self.clone()
        }
    }

    /// For programs.
    pub fn json(&self) -> Value {
        json!({
            "reckoned": self.policy.ends_with(BATCHED),
            "machine": self.machine,
            "cpus": self.cpus,
            "policy": self.policy,
            "received": self.received,
            "asked": self.asked,
            "ipis_ns": self.ipis,
            "system_ns": self.system,
            "elapsed_ns": self.elapsed,
            "left_asked": self.left,
            "steps_mended": self.mended,
        })
    }
}

/// The machine as it is, and the larger one with each number of CPUs.
pub fn study(args: &ExplainArgs) -> Result<Study, Failure> {
    let common = Common {
        work: WorkArgs { sets: Vec::new(), seed: 1, broken: None, threads: None },
        runs: 1,
        json: false,
        csv: false,
        stats: false,
        report: None,
        explain: false,
    };
    let mut machines = vec![(&args.machine, None)];
    machines.extend(args.cpus.iter().map(|&cpus| (&args.larger, Some(cpus))));
    let (workloads, policies) = (["trace".to_owned()], POLICIES.map(str::to_owned));
    let mut study = Study { plans: Vec::new(), jobs: args.jobs };
    for (machine, cpus) in machines {
        let machine = MachineArgs {
            names: vec![machine.clone()],
            cpus,
            trace: Some(args.recording.clone()),
            ..MachineArgs::default()
        };
        let sim = SimArgs { machine, ..SimArgs::default() };
        let ask = Ask {
            form: Form::Compare,
            on: On::Sim,
            workloads: &workloads,
            policies: &policies,
            cpus,
            sim: Cow::Owned(sim),
            metal: Cow::Owned(MetalArgs::default()),
            common: &common,
        };
        for plan in Study::of(&ask)?.plans {
            // The larger machine may be the machine itself.
            if study.plans.iter().all(|known| place(known) != place(&plan)) {
                study.plans.push(plan);
            }
        }
    }
    Ok(study)
}

fn place(plan: &Plan) -> (String, u32) {
    let place = plan.backend.place();
    (place.machine, place.cpus)
}

/// Replays. Where one call for each burst would spare a part of all interrupts, `linux` stands there with it too.
pub fn run(study: &Study, spared: f64) -> Result<(Vec<Row>, Ending), Failure> {
    let all = measure::measure(study)?;
    let mut rows = Vec::new();
    for (one, run) in all.iter().flat_map(|one| one.runs.iter().map(move |run| (one, run))) {
        let row = Row::of(one, run);
        let batched = (row.policy == "linux" && spared > 0.0).then(|| row.without(spared));
        rows.extend([Some(row), batched].into_iter().flatten());
    }
    Ok((rows, show::ending(&all)))
}

/// A machine's name, or that of its file: a path is longer than a column.
pub fn short(machine: &str) -> String {
    let name = machine.rsplit('/').next().unwrap_or(machine);
    name.strip_suffix(".toml").unwrap_or(name).to_owned()
}

/// As a table.
pub fn text(rows: &[Row], received: Option<u64>, width: usize) -> String {
    let mut text = String::from("\nReplayed:\n\n");
    let head = ["machine", "CPUs", "policy", "received", "asked", "IPIs", "kernel", "elapsed"];
    let mut cells = vec![head.map(String::from).to_vec()];
    if let Some(received) = received {
        let mut row = vec![String::new(); head.len()];
        (row[2], row[3]) = ("as recorded".to_owned(), grouped(&received.to_string()));
        cells.push(row);
    }
    let mut before = None;
    for row in rows {
        let place = (&row.machine, row.cpus);
        let shown = before.replace(place) != Some(place);
        let once = |text: String| if shown { text } else { String::new() };
        cells.push(vec![
            once(short(&row.machine)),
            once(row.cpus.to_string()),
            row.name().to_owned(),
            grouped(&row.received.to_string()),
            grouped(&row.asked.to_string()),
            time(row.ipis),
            time(row.system),
            time(row.elapsed),
        ]);
    }
    text += &grid("lrlrrrrr", &cells);
    text.push('\n');
    text + &hanging(width, "", &notes(rows))
}

/// What the columns are, and what to know of them.
pub fn notes(rows: &[Row]) -> String {
    let mut said = String::from(
        "received: flush requests that CPUs received; asked: flushes that interrupted somebody; IPIs: CPU time of senders and \
         receivers; kernel: all CPU time there; per-page: linux+unmap=per-page. Policies differ in how they reclaim, and quiet in that it leaves out flushes of what no CPU \
         can have: where memory is not short they come to the same, but for Linux's page of zeros, which only the others replace and flush. The program has as many threads on a larger machine as here.",
    );
    if let Some(row) = rows.iter().find(|row| row.policy == "linux" && row.left > 0) {
        said += &format!(
            " Since 6.14 Linux asks CPUs that have left the space as well: on {} {} more, counted and not replayed.",
            short(&row.machine),
            grouped(&row.left.to_string())
        );
    }
    if rows.iter().any(|row| row.policy.ends_with(BATCHED)) {
        said += " One call: the row above it without the interrupts that one process_madvise for each burst of madvise would \
                 have spared, in the proportion of the recording; reckoned, not replayed.";
    }
    if let Some(mended) = rows.iter().map(|row| row.mended).max().filter(|&mended| mended > 0) {
        said += &format!(
            " {} added or left out in the replay, because impossible as recorded.",
            if mended == 1 {
                "1 step was".to_owned()
            } else {
                format!("{} steps were", grouped(&mended.to_string()))
            }
        );
    }
    said
}
