//! What came of a plan: what text, JSON and CSV are rendered from. Its serialised form is an element of the list that `--json`
//! prints, the same for every command, backend and number of workloads.

use std::collections::BTreeSet;

use quietmm_sim::story::Story;
use quietmm_sim::timeline::Timeline;
use quietmm_sim::{Bin, Figure, Latency, Metric, Profile, Rule, Traffic, Value, figures};
use serde::ser::{Serialize, SerializeMap, Serializer};

use crate::backend::recorded::Recorded;
use crate::cli::flags::{AccelName, On};
use crate::process::ending::Ending;
use crate::show::units::grouped;
use crate::study::account::Account;
use crate::study::named::Named;
use crate::study::sample::{self, Sample, mean_and_spread};

/// One workload on one machine under some policies with some seeds.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Comparison {
    /// The workload's name.
    pub workload: &'static str,
    /// What it ran on.
    #[serde(flatten)]
    pub place: Place,
    /// The seed of the first run of each policy.
    pub seed: u64,
    /// The runs that finished: of the first policy those of all seeds, then of the second, and so on.
    pub runs: Vec<Run>,
    /// Mean and spread by policy, where several seeds ran.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub summary: Vec<Summary>,
    /// The policies, as they were named; the first is the baseline.
    pub policies: Vec<Named>,
    /// The rule that was broken.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "rule_name")]
    pub broken: Option<Rule>,
    /// Runs are missing.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub interrupted: bool,
    /// What it comes to, and why, in words: a sentence each.
    pub verdict: Vec<String>,
    /// What a reader must know.
    pub notes: Vec<String>,
    /// The command line that repeats it.
    pub command: String,
    /// Runs that were asked for, of all policies and seeds.
    #[serde(skip)]
    pub asked: usize,
    /// Where the figures are from: lines of a label and a text.
    #[serde(skip)]
    pub origin: Vec<(&'static str, String)>,
    /// What to do if memory was never short although the work is about that.
    #[serde(skip)]
    pub short: Option<String>,
}

/// What a plan runs on; what does not apply is left out.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Place {
    /// Simulated, booted, or both.
    pub on: On,
    /// The simulated machine as it was named, or the emulator.
    pub machine: String,
    /// CPUs.
    pub cpus: u32,
    /// Memory and work are divided by it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scale: Option<u32>,
    /// What is replayed.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "trace_name")]
    pub trace: Option<Recorded>,
    /// How many threads work, if that was chosen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threads: Option<u32>,
    /// How much other work there is, if that was chosen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parts: Option<u32>,
    /// How the emulator executes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accel: Option<AccelName>,
    /// The booted machine's memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_mib: Option<u64>,
    /// Its disk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk_mib: Option<u64>,
    /// Frames by which the work is sized, if not the machine's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub work_frames: Option<u64>,
    /// Instructions between two timer interrupts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub period: Option<u64>,
    /// Constants that were set.
    #[serde(rename = "set", skip_serializing_if = "Vec::is_empty", serialize_with = "map")]
    pub sets: Vec<(String, String)>,
}

/// One run that finished.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct Run {
    /// The policy, as it was named.
    pub policy: String,
    /// The seed.
    pub seed: u64,
    /// Frames that the core was given, where the machine decides that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frames: Option<u64>,
    /// All figures.
    pub metrics: Metrics,
    /// The same work, simulated, where it ran on both.
    #[serde(skip_serializing_if = "Metrics::is_empty")]
    pub simulation: Metrics,
    /// By how many per cent of metal's figure the simulation's is larger.
    #[serde(skip_serializing_if = "Vec::is_empty", serialize_with = "map")]
    pub difference_percent: Vec<(&'static str, Option<f64>)>,
    /// The curve of one-page shootdowns.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub curve: Vec<Point>,
    /// Latencies by operation, in nanoseconds.
    #[serde(skip_serializing_if = "Vec::is_empty", serialize_with = "timings")]
    pub latency: Vec<Timing>,
    /// How long operations took on a machine that boots.
    #[serde(skip_serializing_if = "Vec::is_empty", serialize_with = "map")]
    pub operations: Vec<(String, Operation)>,
    /// What workloads reported as it happened, as a machine that boots printed it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub shootdowns: Vec<serde_json::Value>,
    /// See `shootdowns`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub paces: Vec<serde_json::Value>,
    /// Where CPU time went, if that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<Account>,
    /// The first accesses that must never be, several lines each.
    #[serde(skip_serializing_if = "Vec::is_empty", serialize_with = "told")]
    pub stories: Vec<Story>,
    /// How a booted machine with a broken rule ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end: Option<String>,
    /// What depends on the host, if that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<Host>,
    /// Which of the policies it is: two may have one name.
    #[serde(skip)]
    pub column: usize,
    /// Where CPU time went: of every simulated run.
    #[serde(skip)]
    pub account: Option<Profile>,
    /// Who interrupts whom, for a report: of the first seed.
    #[serde(skip)]
    pub traffic: Option<Traffic>,
    /// What each CPU did when, for a timeline: of the first seed.
    #[serde(skip)]
    pub timeline: Option<Timeline>,
    /// What a reader must know of the run.
    #[serde(skip)]
    pub notes: Vec<String>,
}

/// Figures; as a map from their keys.
#[derive(Clone, Debug, Default)]
pub struct Metrics(pub Vec<Metric>);

/// A point of the curve of one-page shootdowns.
#[derive(Clone, Copy, Debug, serde::Serialize)]
pub struct Point {
    /// CPUs that had the page cached.
    pub cpus: u32,
    /// Their sockets.
    pub sockets: u32,
    /// Shootdowns.
    pub rounds: u64,
    /// Mean time.
    pub mean_us: f64,
    /// Half of them took no longer.
    pub p50_us: f64,
    /// 99 of 100 took no longer.
    pub p99_us: f64,
    /// IPIs of one.
    pub ipis: f64,
}

/// How long an operation took.
#[derive(Clone, Debug)]
pub struct Timing {
    /// Its name.
    pub op: &'static str,
    /// By pages; in a table only if these lines are worth it.
    pub by_pages: Vec<(u64, Latency)>,
    /// Whether they are.
    pub goes_by_pages: bool,
    /// Whatever the pages.
    pub all: Latency,
    /// How the times are spread: for a picture.
    pub bins: Vec<Bin>,
}

/// How long an operation took on a machine that boots: in nanoseconds, or in instructions.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Operation {
    /// Operations.
    pub count: u64,
    /// In the mean.
    pub mean: f64,
    /// At least.
    pub least: u64,
    /// At most.
    pub most: u64,
}

/// What depends on the host.
#[derive(Clone, Copy, Debug, Default, serde::Serialize)]
pub struct Host {
    /// Seconds.
    pub host_s: f64,
    /// Events of the simulation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub events: Option<u64>,
    /// Pages reclaimed in a second of the host's time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reclaimed_pages_per_host_s: Option<f64>,
    /// The most memory that the process had so far.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_peak_rss_mib: Option<u64>,
}

/// One policy over its seeds.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Summary {
    /// The policy, as it was named.
    pub policy: String,
    /// Seeds that finished.
    pub runs: usize,
    /// Mean and spread of each figure.
    #[serde(serialize_with = "map")]
    pub metrics: Vec<(&'static str, Spread)>,
}

/// Mean and standard deviation of a figure.
#[derive(Clone, Copy, Debug, serde::Serialize)]
pub struct Spread {
    /// The mean.
    pub mean: f64,
    /// The standard deviation of the sample.
    pub stddev: f64,
}

/// One policy's finished runs.
pub struct Column<'a> {
    /// Which of the policies it is.
    pub policy: usize,
    /// As it was named.
    pub name: &'a str,
    /// Its runs, by seed.
    pub runs: Vec<&'a Run>,
    /// Over all of them.
    pub samples: Vec<Sample>,
    /// And of the simulation beside them.
    pub simulated: Vec<Sample>,
}

impl Place {
    /// So many CPUs of this machine, and nothing else.
    pub fn of(on: On, machine: &str, cpus: u32) -> Place {
        Place {
            on,
            machine: machine.to_string(),
            cpus,
            scale: None,
            trace: None,
            threads: None,
            parts: None,
            accel: None,
            memory_mib: None,
            disk_mib: None,
            work_frames: None,
            period: None,
            sets: Vec::new(),
        }
    }
}

impl Column<'_> {
    /// The figure with this key.
    pub fn get(&self, key: &str) -> Option<&Sample> {
        self.samples.iter().find(|sample| sample.figure.key == key)
    }

    /// This figure as a number.
    pub fn number(&self, figure: &Figure) -> Option<f64> {
        self.get(figure.key).map(Sample::number)
    }
}

impl Comparison {
    /// The policies of which at least one run finished; by the seeds that all of these have, if there are such.
    pub fn columns(&self) -> Vec<Column<'_>> {
        let seeds = self.compared();
        let all = self.policies.iter().enumerate().map(|(policy, named)| {
            let counts = |run: &&Run| run.column == policy && seeds.contains(&run.seed);
            let runs: Vec<&Run> = self.runs.iter().filter(counts).collect();
            let of = |metrics: fn(&Run) -> &Metrics| {
                sample::samples(&runs.iter().map(|run| &metrics(run).0[..]).collect::<Vec<_>>())
            };
            let (samples, simulated) = (of(|run| &run.metrics), of(|run| &run.simulation));
            Column { policy, name: &named.name, samples, simulated, runs }
        });
        all.filter(|column| !column.runs.is_empty()).collect()
    }

    /// The seeds whose runs are compared: where some runs did not finish, those that all policies have of which one did.
    pub fn compared(&self) -> BTreeSet<u64> {
        let of = |policy| self.runs.iter().filter(move |run| run.column == policy).map(|run| run.seed);
        in_common((0..self.policies.len()).map(|policy| of(policy).collect()))
    }

    /// Mean and spread by policy.
    pub fn summaries(&self) -> Vec<Summary> {
        let values = |column: &Column<'_>, key: &str| -> Vec<f64> {
            column.runs.iter().filter_map(|run| run.metrics.get(key)).map(Value::number).collect()
        };
        let summary = |column: Column<'_>| {
            let metrics = column.samples.iter().map(|sample| {
                let (mean, stddev) = mean_and_spread(&values(&column, sample.figure.key));
                (sample.figure.key, Spread { mean, stddev })
            });
            let metrics = metrics.collect();
            Summary { policy: column.name.to_string(), runs: column.runs.len(), metrics }
        };
        self.columns().into_iter().map(summary).collect()
    }

    /// What all runs saw that must never be: how often, and what, in words. Empty if nothing.
    pub fn harm(&self) -> String {
        let kinds = [
            (&figures::STALE_ACCESSES, "stale access", "stale accesses"),
            (&figures::LOST_WRITES, "lost write", "lost writes"),
            (&figures::WRONG_CONTENTS, "wrong content", "wrong contents"),
        ];
        let counted = kinds.map(|(figure, one, many)| {
            let found = self.runs.iter().filter_map(|run| run.metrics.get(figure.key));
            let count = found.map(|value| value.number() as u64).sum::<u64>();
            (count, if count == 1 { one } else { many })
        });
        let seen = counted.iter().filter(|(count, _)| *count > 0);
        seen.map(|(count, what)| format!("{} {what}", grouped(&count.to_string())))
            .collect::<Vec<_>>()
            .join(", ")
    }

    /// How the command ends because of this. With a broken rule harm is what was asked for.
    pub fn ending(&self) -> Ending {
        if self.interrupted {
            Ending::Interrupted
        } else if !self.harm().is_empty() && self.broken.is_none() {
            Ending::Stale
        } else {
            Ending::Good
        }
    }
}

impl Metrics {
    /// The value with this key.
    pub fn get(&self, key: &str) -> Option<Value> {
        self.0.iter().find(|metric| metric.key == key).map(|metric| metric.value)
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Serialize for Metrics {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(Some(self.0.len()))?;
        for metric in &self.0 {
            match metric.value {
                Value::Int(value) => map.serialize_entry(metric.key, &value)?,
                Value::Real(value) => map.serialize_entry(metric.key, &value)?,
            }
        }
        map.end()
    }
}

/// Pairs as a map that keeps their order.
pub fn map<K: Serialize, V: Serialize, S: Serializer>(pairs: &[(K, V)], to: S) -> Result<S::Ok, S::Error> {
    to.collect_map(pairs.iter().map(|(key, value)| (key, value)))
}

fn rule_name<S: Serializer>(rule: &Option<Rule>, to: S) -> Result<S::Ok, S::Error> {
    rule.map(Rule::name).serialize(to)
}

fn trace_name<S: Serializer>(trace: &Option<Recorded>, to: S) -> Result<S::Ok, S::Error> {
    trace.as_ref().map(|trace| &trace.name).serialize(to)
}

/// By operation, then by pages, and for all.
/// As text.
fn told<S: Serializer>(stories: &[Story], to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(stories.iter().map(Story::to_string))
}

fn timings<S: Serializer>(timings: &[Timing], to: S) -> Result<S::Ok, S::Error> {
    struct Pages<'a>(&'a Timing);
    impl Serialize for Pages<'_> {
        fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
            let each = self.0.by_pages.iter().map(|(pages, one)| (pages.to_string(), one));
            to.collect_map(each.chain([("all".to_string(), &self.0.all)]))
        }
    }
    to.collect_map(timings.iter().map(|timing| (timing.op, Pages(timing))))
}

/// What all of these have that have anything; if that is nothing, what any has.
fn in_common(each: impl Iterator<Item = BTreeSet<u64>>) -> BTreeSet<u64> {
    let each: Vec<BTreeSet<u64>> = each.filter(|seeds| !seeds.is_empty()).collect();
    let common = each.iter().cloned().reduce(|some, more| &some & &more).filter(|common| !common.is_empty());
    common.unwrap_or_else(|| each.into_iter().flatten().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_that_all_have_are_those_that_are_compared() {
        let common = |each: &[&[u64]]| -> Vec<u64> {
            in_common(each.iter().map(|seeds| seeds.iter().copied().collect())).into_iter().collect()
        };
        assert_eq!(common(&[&[1, 2, 3], &[1, 2]]), [1, 2]);
        assert_eq!(common(&[&[1, 2, 3], &[1, 2, 3]]), [1, 2, 3]);
        assert_eq!(common(&[&[1, 2], &[]]), [1, 2], "one that has none takes nothing from the others");
        assert_eq!(common(&[&[1], &[2]]), [1, 2]);
    }
}
