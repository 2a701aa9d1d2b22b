//! What is to be booted: one workload under some policies, with some seeds.

use std::time::Duration;

use quietmm_emulator::{Accel, Machine};
use quietmm_sim::{Policy, Rule, Workload};

use crate::ending::Failure;
use crate::metal::args::{AccelName, Asked};
use crate::near;
use crate::plan::{self, names, quoted};

/// Constants that `--set` takes: those of the core, and the image's own (`crates/metal/README.md`).
const SETTINGS: [&str; 7] = ["lru_batch", "scan_batch", "vmap_shards", "content", "heap", "hz", "late"];
/// Of these, those that only the image has.
pub const ONLY_IMAGE: [&str; 4] = ["content", "heap", "hz", "late"];

/// Memory below which the image's heap, 32 MiB unless it is told, leaves the core too little: it gets an eighth, in MiB.
const SMALL: u64 = 256;
/// The disk is so many times as large as the memory. Three quarters of it are for swap, the rest for files; what is not
/// written takes no room.
const DISK: u64 = 4;

/// One workload under some policies, with some seeds, on one machine.
#[derive(Clone, Debug)]
pub struct Plan {
    pub workload: Workload,
    /// The policies; the first is the baseline.
    pub policies: Vec<Policy>,
    /// Short names of the policies, by what differs.
    pub names: Vec<String>,
    pub machine: Machine,
    /// How it executes, as the command line has it.
    pub accel: AccelName,
    /// Frames by which the work is sized, if not the machine's.
    pub work: Option<u64>,
    /// Instructions of a CPU's own between two timer interrupts.
    pub period: Option<u64>,
    pub sets: Vec<(String, String)>,
    /// The seed of the first boot of each policy.
    pub seed: u64,
    /// How many seeds each policy is booted with.
    pub runs: u32,
    pub broken: Option<Rule>,
    pub threads: Option<u32>,
    /// How long a machine may take.
    pub limit: Duration,
}

impl Plan {
    /// How many boots there are: every policy with every seed.
    pub fn count(&self) -> usize {
        self.policies.len() * self.runs as usize
    }

    /// Policy, by its number, and seed of the boot with this index: all seeds of the first policy, then of the second.
    pub fn of(&self, index: usize) -> (usize, u64) {
        let runs = self.runs as usize;
        (index / runs, self.seed.wrapping_add((index % runs) as u64))
    }

    /// Whether two runs print the same. A disk answers when the host has time for it.
    pub fn repeats(&self) -> bool {
        self.machine.accel == Accel::Instructions && self.machine.disk.is_none()
    }

    /// The image's command line for this boot.
    pub fn words(&self, index: usize) -> String {
        let (policy, seed) = self.of(index);
        let mut words =
            format!("workload={} policy={} seed={seed}", self.workload.name(), self.policies[policy]);
        let mut put = |key: &str, value: &dyn std::fmt::Display| words += &format!(" {key}={value}");
        if let Some(frames) = self.work {
            put("work", &frames);
        }
        if let Some(rule) = self.broken {
            put("break", &rule.name());
        }
        if let Some(threads) = self.threads {
            put("threads", &threads);
        }
        if let Some(period) = self.period {
            put("period", &period);
        }
        if self.machine.mib < SMALL && !self.sets.iter().any(|(key, _)| key == "heap") {
            put("heap", &(self.machine.mib / 8).max(4));
        }
        self.sets.iter().for_each(|(key, value)| put(key, value));
        words
    }

    /// The command line that repeats this plan, defaults spelled out. `on` is what `compare` was asked for; without it, `boot`.
    pub fn command(&self, on: Option<&str>) -> String {
        let mut words = vec!["quietmm".to_string()];
        let mut flag = |name: &str, value: &str| words.extend([name.to_string(), quoted(value)]);
        flag(if on.is_some() { "compare" } else { "boot" }, self.workload.name());
        if let Some(on) = on {
            flag("--on", on);
        }
        flag("--cpus", &self.machine.cpus.to_string());
        flag("--memory", &format!("{}M", self.machine.mib));
        if let Some(frames) = self.work {
            flag("--work", &format!("{}K", frames * 4));
        }
        let policies: Vec<String> = self.policies.iter().map(Policy::to_string).collect();
        flag("--policies", &policies.join(","));
        let accel = clap::ValueEnum::to_possible_value(&self.accel);
        flag("--accel", accel.as_ref().map_or("tcg", clap::builder::PossibleValue::get_name));
        if let Some(period) = self.period {
            flag("--period", &period.to_string());
        }
        for (key, value) in &self.sets {
            flag("--set", &format!("{key}={value}"));
        }
        if let Some(threads) = self.threads {
            flag("--threads", &threads.to_string());
        }
        flag("--seed", &self.seed.to_string());
        if self.runs > 1 {
            flag("--runs", &self.runs.to_string());
        }
        if let Some(rule) = self.broken {
            flag("--break", rule.name());
        }
        words.join(" ")
    }
}

/// Plans for all workloads, or what is wrong with the first thing that does not go.
pub fn plans(asked: &Asked<'_>) -> Result<Vec<Plan>, Failure> {
    let wrong = |why: String| -> Result<Vec<Plan>, Failure> { Err(Failure::Input(why)) };
    let workloads = asked.workloads.iter().map(|name| plan::workload(name)).collect::<Result<Vec<_>, _>>()?;
    let policies = asked.policies.iter().map(|text| plan::policy(text)).collect::<Result<Vec<_>, _>>()?;
    let broken = asked.broken.map(plan::rule).transpose()?;
    if asked.period.is_some() && asked.accel != AccelName::Icount {
        return wrong("--period: only with --accel icount are instructions the clock".to_string());
    }
    if asked.seed.checked_add(u64::from(asked.runs) - 1).is_none() {
        return wrong(format!("--seed {} leaves no room for {} seeds", asked.seed, asked.runs));
    }
    // What stands beside has constants of its own, and says itself what is none.
    let (sets, others): (Vec<_>, Vec<_>) =
        asked.sets.iter().cloned().partition(|(key, _)| SETTINGS.contains(&key.as_str()));
    for (key, value) in sets.iter().chain(others.iter().filter(|_| !asked.beside)) {
        if !SETTINGS.contains(&key.as_str()) {
            return wrong(near::unknown("constant", key, SETTINGS));
        }
        if value.contains(|c: char| c.is_whitespace() || c == '"') {
            return wrong(format!("--set {key}: a value without spaces"));
        }
    }
    workloads
        .into_iter()
        .map(|workload| {
            let name = workload.name();
            if workload.needs_trace() {
                return Err(Failure::Input(format!(
                    "{name} does not boot: the image holds no trace; quietmm compare {name} simulates it"
                )));
            }
            plan::check_threads(workload, asked.threads)?;
            if let Some(threads) = asked.threads.filter(|&threads| threads > asked.cpus) {
                let wrong = format!("--threads {threads}: the machine has {0} CPUs; 1 to {0}", asked.cpus);
                return Err(Failure::Input(wrong));
            }
            let disk = workload.needs_swap().then_some((DISK * asked.memory) << 20);
            Ok(Plan {
                workload,
                policies: policies.clone(),
                names: names(&policies),
                machine: Machine { cpus: asked.cpus, mib: asked.memory, accel: asked.accel.accel(), disk },
                accel: asked.accel,
                work: asked.machine.work.or_else(|| work(workload, asked.memory)),
                period: asked.period,
                sets: sets.clone(),
                seed: asked.seed,
                runs: asked.runs,
                broken,
                threads: asked.threads,
                limit: Duration::from_secs(asked.machine.seconds()),
            })
        })
        .collect()
}

/// Frames by which the work is sized unless one says. Readers read ten times that: two fifths of memory make files of four
/// times the memory, 2 GiB with 512 MiB, which reclaims three quarters of them and takes an emulator seconds.
fn work(workload: Workload, mib: u64) -> Option<u64> {
    let frames = mib * 256;
    matches!(workload, Workload::Reader | Workload::SharedReader).then(|| (frames * 2).div_ceil(5))
}
