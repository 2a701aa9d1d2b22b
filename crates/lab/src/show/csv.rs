//! CSV: a line for each figure of each run, so that any tool can group, filter and plot.

use std::io;

use csv::Writer;
use quietmm_sim::Metric;
use serde::Serialize;

use crate::cli::flags::On;
use crate::process::ending::Failure;
use crate::study::result::{Comparison, Run};

#[derive(Serialize)]
struct Line<'a> {
    workload: &'a str,
    on: On,
    machine: &'a str,
    cpus: u32,
    scale: Option<u32>,
    policy: &'a str,
    seed: u64,
    figure: &'a str,
    value: f64,
    unit: &'a str,
}

/// The whole table, with a header.
pub fn table(all: &[Comparison]) -> Result<String, Failure> {
    let mut writer = Writer::from_writer(Vec::new());
    let wrong = |error: io::Error| Failure::Output(error);
    for comparison in all {
        for run in &comparison.runs {
            // Where both ran, the machine that boots comes first.
            let on = if comparison.place.on == On::Both { On::Metal } else { comparison.place.on };
            let sides = [(on, &run.metrics), (On::Sim, &run.simulation)];
            for (on, metric) in sides.iter().flat_map(|(on, side)| side.0.iter().map(move |one| (*on, one))) {
                writer.serialize(line(comparison, run, on, metric)).map_err(|error| wrong(error.into()))?;
            }
        }
    }
    let bytes = writer.into_inner().map_err(|error| wrong(error.into_error()))?;
    String::from_utf8(bytes).map_err(|error| wrong(io::Error::other(error)))
}

fn line<'a>(comparison: &'a Comparison, run: &'a Run, on: On, metric: &Metric) -> Line<'a> {
    let place = &comparison.place;
    Line {
        workload: comparison.workload,
        on,
        machine: &place.machine,
        cpus: place.cpus,
        scale: place.scale,
        policy: &run.policy,
        seed: run.seed,
        figure: metric.figure.key,
        value: metric.value.number(),
        unit: metric.figure.unit,
    }
}
