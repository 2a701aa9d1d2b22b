//! A grid: every combination of what is varied, each a command line of `run`.

use std::collections::BTreeMap;
use std::path::Path;

use quietmm_sim::machine::Machine;
use quietmm_workloads::trace::Checksum;
use serde_json::{Map, Value as Json, json};

use crate::backend::{recorded, sim};
use crate::cli::flags::{Common, RunArgs, SimArgs};
use crate::process::ending::Failure;
use crate::shipped::SHIPPED;
use crate::study::{Ask, Plan, Study, named};
use crate::sweep::args::SweepArgs;
use crate::sweep::axis::{Axis, What};
use crate::sweep::header::{self, Header, Values};
use crate::sweep::values::{MOST, Value};

/// What runs where nothing is said.
const WORKLOAD: &str = "lru-file-mmap-read";
/// Its policy.
const POLICY: &str = "linux";

/// All points that a command line asks for.
pub struct Grid {
    axes: Vec<Axis>,
    /// What stays.
    base: RunArgs,
    /// The first line of its file.
    pub header: Header,
    /// The axes as the file has them.
    pub values: Vec<Values>,
    /// The scale of each workload on each machine where none is said, by the places on the axes of these.
    scales: BTreeMap<Vec<usize>, u32>,
}

impl Grid {
    /// The grid of a command line, or what is wrong with it.
    pub fn of(args: &SweepArgs) -> Result<Grid, Failure> {
        let axes = axes(args)?;
        let base = base(args)?;
        let count = axes.iter().try_fold(1u64, |all, axis| all.checked_mul(axis.values.len() as u64));
        if count.is_none_or(|count| count > MOST) {
            let lengths: Vec<String> =
                axes.iter().map(|axis| format!("{} {}", axis.values.len(), axis.name)).collect();
            let count = count.map_or("more than 2^64".to_string(), |count| count.to_string());
            return Err(Failure::Input(format!(
                "--vary: a grid of {count} points ({}); {MOST} at most",
                lengths.join(" x ")
            )));
        }
        let values: Vec<Values> = axes.iter().map(|axis| (axis.name.clone(), axis.values.clone())).collect();
        let header = Header::of(&values, Map::new(), args.shard);
        let mut grid = Grid { axes, base, header, values, scales: BTreeMap::new() };
        grid.header.files = files(&grid.axes, &grid.base)?;
        if grid.base.sim.machine.scale.is_none()
            && !grid.axes.iter().any(|axis| matches!(axis.what, What::Scale))
        {
            grid.scales = grid.one_scale();
        }
        // As if it had been said, where it can be.
        let one = grid.scales.values().next().copied().filter(|_| grid.scales.len() == 1);
        grid.header.with = with(args, &grid.axes, args.machine.scale.or(one));
        Ok(grid)
    }

    /// What a point asks for, or what is wrong with it.
    pub fn plan(&self, point: u64) -> Result<Plan, Failure> {
        planned(&self.at(&header::places(&self.values, point)))
    }

    /// The command line of a point.
    fn at(&self, places: &[usize]) -> RunArgs {
        let mut args = self.base.clone();
        args.sim.machine.scale = self.scales.get(&self.work(places)).copied().or(args.sim.machine.scale);
        for (axis, &place) in self.axes.iter().zip(places) {
            axis.what.put(&mut args, &axis.name, &axis.values[place]);
        }
        args
    }

    /// Which workload, on which machine.
    fn work(&self, places: &[usize]) -> Vec<usize> {
        let axes = self.axes.iter().zip(places);
        axes.filter(|(axis, _)| matches!(axis.what, What::Workload | What::Machine))
            .map(|(_, &place)| place)
            .collect()
    }

    /// The smallest of the scales that the points of a workload on a machine have by themselves: with another scale the work is
    /// another, and a curve over CPUs would have a step where they need more memory. Traces keep theirs: what is too small for a
    /// trace depends on the CPUs that replay it.
    fn one_scale(&self) -> BTreeMap<Vec<usize>, u32> {
        let matters = |axis: &Axis| match axis.what {
            What::Workload | What::Machine | What::Cpus => true,
            What::Constant(measure) => ["cpu.nodes", "memory.size"].contains(&&measure.full_name()[..]),
            _ => false,
        };
        let lengths: Vec<Values> = self
            .values
            .iter()
            .zip(&self.axes)
            .map(|((name, values), axis)| {
                (name.clone(), if matters(axis) { values.clone() } else { values[..1].to_vec() })
            })
            .collect();
        let mut scales: BTreeMap<Vec<usize>, u32> = BTreeMap::new();
        for nth in 0..lengths.iter().map(|(_, values)| values.len() as u64).product() {
            let places = header::places(&lengths, nth);
            let args = self.at(&places);
            let traced = named::workload(&args.workload).is_ok_and(|workload| workload.needs_trace());
            let scale = planned(&args).ok().filter(|_| !traced).and_then(|plan| plan.backend.place().scale);
            if let Some(scale) = scale {
                let least = scales.entry(self.work(&places)).or_insert(scale);
                *least = scale.min(*least);
            }
        }
        scales
    }

    /// Machines and traces that may be files.
    pub fn inputs(&self) -> Vec<&Path> {
        let machine = &self.base.sim.machine;
        let varied = self.axes.iter().filter(|axis| matches!(axis.what, What::Machine | What::Trace));
        let texts = varied.flat_map(|axis| &axis.values).filter_map(|value| match value {
            Value::Text(text) => Some(text),
            Value::Number(_) => None,
        });
        machine.names.iter().chain(&machine.trace).chain(texts).map(Path::new).collect()
    }
}

/// What a command line of `run` asks for.
fn planned(args: &RunArgs) -> Result<Plan, Failure> {
    let mut plans = Study::of(&Ask::run(args))?.plans;
    // One workload on one machine.
    plans.pop().ok_or_else(|| Failure::Input("nothing to run".to_string()))
}

/// What is varied, in order: several workloads first.
fn axes(args: &SweepArgs) -> Result<Vec<Axis>, Failure> {
    let wrong = |why: String| Failure::Input(why);
    let mut axes = Vec::new();
    if let [_, _, ..] = &args.workloads[..] {
        let names = args.workloads.iter().cloned().map(Value::Text).collect();
        axes.push(
            Axis::of("workload", What::Workload, names)
                .map_err(|why| wrong(format!("the workload {why}")))?,
        );
    }
    for text in &args.vary {
        axes.push(Axis::parse(text)?);
    }
    if axes.is_empty() {
        let line =
            "nothing is varied: give --vary NAME=VALUES, as --vary cpus=1,2,4..64 --vary policy=linux,quiet";
        return Err(wrong(line.to_string()));
    }
    let mut seen: BTreeMap<String, &str> = BTreeMap::new();
    for axis in &axes {
        if seen.insert(axis.what.full_name(), &axis.name).is_some() {
            return Err(wrong(format!(
                "--vary {}: it is varied twice; one list, with commas, has all its values",
                axis.name
            )));
        }
        if let Some(flag) = given(args, axis) {
            return Err(wrong(format!("{flag}: it is varied too; one of both")));
        }
    }
    Ok(axes)
}

/// How the command line says what stays, of something that is varied.
fn given(args: &SweepArgs, axis: &Axis) -> Option<String> {
    let (machine, work) = (&args.machine, &args.work);
    let flag = |given: bool, flag: &str| given.then(|| flag.to_string());
    let same = |key: &str| What::named(key).is_ok_and(|what| what.full_name() == axis.what.full_name());
    let set = work.sets.iter().find(|(key, _)| same(key));
    let said = match axis.what {
        What::Workload => flag(args.workloads.len() == 1, args.workloads.first().map_or("", String::as_str)),
        What::Machine => flag(!machine.names.is_empty(), "--machine"),
        What::Policy => flag(args.policy.is_some(), "--policy"),
        What::Cpus => flag(machine.cpus.is_some(), "--cpus"),
        What::Threads => flag(work.threads.is_some(), "--threads"),
        What::Scale => flag(machine.scale.is_some(), "--scale"),
        What::Parts => flag(machine.parts.is_some(), "--parts"),
        What::Trace => flag(machine.trace.is_some(), "--trace"),
        What::Seed => flag(work.seed != 1, "--seed"),
        What::Constant(_) => None,
    };
    said.or_else(|| set.map(|(key, value)| format!("--set {key}={value}")))
}

/// The command line that all points share.
fn base(args: &SweepArgs) -> Result<RunArgs, Failure> {
    if let [_, _, ..] = &args.machine.names[..] {
        let names = args.machine.names.join(",");
        return Err(Failure::Input(format!("--machine {names}: one; several by --vary machine={names}")));
    }
    let workload = match &args.workloads[..] {
        [one] => one.clone(),
        _ => WORKLOAD.to_string(),
    };
    args.workloads.iter().try_for_each(|name| named::workload(name).map(|_| ()))?;
    let common = Common {
        work: args.work.clone(),
        runs: 1,
        json: false,
        csv: false,
        stats: false,
        report: None,
        explain: false,
    };
    let sim = SimArgs { machine: args.machine.clone(), ..SimArgs::default() };
    let policy = args.policy.clone().unwrap_or(POLICY.to_string());
    Ok(RunArgs { workload, policy, sim, common })
}

/// What stays, by the flag that says it.
fn with(args: &SweepArgs, axes: &[Axis], scale: Option<u32>) -> Map<String, Json> {
    let (machine, work) = (&args.machine, &args.work);
    let varied = |name: &str| axes.iter().any(|axis| axis.what.full_name() == name);
    let mut with = Map::new();
    let mut put = |name: &str, value: Option<Json>| {
        if let Some(value) = value {
            with.insert(name.to_string(), value);
        }
    };
    let workload = args.workloads.first().map_or(WORKLOAD, String::as_str);
    put("workload", (!varied("workload")).then(|| json!(workload)));
    put("policy", (!varied("policy")).then(|| json!(args.policy.as_deref().unwrap_or(POLICY))));
    put("machine", machine.names.first().map(|name| json!(name)));
    put("cpus", machine.cpus.map(Json::from));
    put("threads", work.threads.map(Json::from));
    put("scale", scale.map(Json::from));
    put("parts", machine.parts.map(Json::from));
    put("trace", machine.trace.as_ref().map(|name| json!(name)));
    put("seed", (!varied("seed")).then(|| json!(work.seed)));
    put("break", work.broken.as_ref().map(|rule| json!(rule)));
    let sets: Vec<String> = work.sets.iter().map(|(key, value)| format!("{key}={value}")).collect();
    put("set", (!sets.is_empty()).then(|| json!(sets)));
    with
}

/// Checksums of what is in machines and traces that do not come with the command.
fn files(axes: &[Axis], base: &RunArgs) -> Result<Map<String, Json>, Failure> {
    let of = |what: fn(&What) -> bool| {
        axes.iter().filter(move |axis| what(&axis.what)).flat_map(|axis| &axis.values).map(Value::to_string)
    };
    let machine = &base.sim.machine;
    let machines = machine.names.iter().cloned().chain(of(|what| matches!(what, What::Machine)));
    let traces = machine.trace.iter().cloned().chain(of(|what| matches!(what, What::Trace)));
    let mut files = Map::new();
    let mut put = |name: String, bytes: &[u8]| {
        files.insert(name, json!(format!("{:016x}", Checksum::of(&[bytes]))));
    };
    for name in machines.filter(|name| !Machine::builtin_names().any(|known| known == name)) {
        let constants = format!("{:?}", sim::load(&name)?.constants());
        put(name, constants.as_bytes());
    }
    for name in traces.filter(|name| !SHIPPED.iter().any(|shipped| shipped.name == name)) {
        let bytes = recorded::find(Some(&name))?.bytes;
        put(name, &bytes);
    }
    Ok(files)
}
