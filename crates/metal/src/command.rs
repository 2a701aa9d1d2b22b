//! The command line: words of the form `key=value`. README.md has the list.

use quietmm::{Policy, Rule};
use quietmm_workloads::Workload;

use crate::end::{End, Flat, end};
use crate::test::{self, Test};
use crate::{line, tasks};

/// What runs in this boot.
#[derive(Clone, Copy)]
pub enum What {
    /// A workload.
    Workload(Workload),
    /// A test.
    Test(&'static Test),
    /// Linux's programs, from the archive that the loader has brought.
    Program,
}

/// What was asked for.
#[derive(Clone, Copy)]
pub struct Command {
    /// What runs.
    pub what: What,
    /// By which policies.
    pub policy: Policy,
    /// The rule that is broken.
    pub broken: Option<Rule>,
    /// Varies what is random.
    pub seed: u64,
    /// Threads, where one may choose.
    pub threads: Option<u32>,
    /// Frames that the work is sized by; the machine's, if nothing is said.
    pub work: Option<u64>,
    /// Nanoseconds between ticks; and, if not 0, instructions of a CPU's own (by `icount`).
    pub tick_ns: u64,
    /// See `tick_ns`.
    pub period: u64,
    /// Whether pages of files that were never written are made up.
    pub tags: Option<bool>,
    /// CPUs that come late: the last ones.
    pub late: u32,
    /// MiB of memory that come later: the last ones.
    pub later: u32,
    /// MiB of heap.
    pub heap: u64,
    /// Pages of an LRU batch, and of a scan, if not the core's own.
    pub lru_batch: Option<u32>,
    /// See `lru_batch`.
    pub scan_batch: Option<u32>,
    /// Notes that each CPU keeps of what it does; 0 for none.
    pub timeline: u64,
    /// Tasks that programs' threads can have.
    pub tasks: u32,
    /// Each system call is printed.
    pub calls: bool,
    /// Pages of the disk that programs' memory is swapped to; three quarters of it if nothing is said.
    pub swap: Option<u64>,
    /// Seconds since 1970 when the machine begins.
    pub epoch: u64,
    /// Parts of the kernel range with locks of their own, if not the core's own number.
    pub vmap_shards: Option<u32>,
}

fn wrong(word: &str, why: &str) -> ! {
    line!("{{\"usage\":\"{}: {}\"}}", Flat(word), Flat(why));
    end(End::Usage)
}

fn number(word: &str, value: &str, most: u64) -> u64 {
    match value.parse() {
        Ok(n) if n <= most => n,
        _ => wrong(word, "not a number, or too large a one"),
    }
}

impl Command {
    /// What the words say; ends the machine with a word on what is wrong.
    pub fn parse(text: &'static str) -> Command {
        let mut what = None;
        let mut command = Command {
            what: What::Workload(Workload::Reader),
            policy: Policy::LINUX,
            broken: None,
            seed: 1,
            threads: None,
            work: None,
            tick_ns: 4_000_000,
            period: 0,
            tags: None,
            late: 0,
            later: 0,
            heap: 32,
            lru_batch: None,
            scan_batch: None,
            vmap_shards: None,
            timeline: 0,
            tasks: 256,
            calls: false,
            swap: None,
            epoch: 0,
        };
        for word in text.split_ascii_whitespace() {
            let Some((key, value)) = word.split_once('=') else { wrong(word, "not of the form key=value") };
            let short = |most| number(word, value, most) as u32;
            match key {
                "workload" => {
                    let work = Workload::parse(value).filter(|work| !work.needs_trace());
                    what = Some(What::Workload(work.unwrap_or_else(|| wrong(word, "no such workload here"))));
                }
                "test" => {
                    what = Some(What::Test(test::find(value).unwrap_or_else(|| wrong(word, "no such test"))));
                }
                "program" => match value {
                    "archive" => what = Some(What::Program),
                    _ => wrong(word, "programs come in the archive"),
                },
                "tasks" => command.tasks = short(tasks::MOST as u64 / 2),
                "calls" => command.calls = number(word, value, 1) == 1,
                "swap" => command.swap = Some(number(word, value, 1 << 40)),
                "epoch" => command.epoch = number(word, value, u32::MAX.into()),
                "policy" => match Policy::parse(value) {
                    Ok(policy) => command.policy = policy,
                    Err(error) => {
                        line!("{{\"usage\":\"{}\"}}", Flat(error));
                        end(End::Usage)
                    }
                },
                "break" => {
                    command.broken = Some(Rule::parse(value).unwrap_or_else(|| wrong(word, "no such rule")));
                }
                "seed" => command.seed = number(word, value, u64::MAX),
                "threads" => command.threads = Some(short(u32::MAX.into())),
                "work" => command.work = Some(number(word, value, 1 << 40)),
                "hz" => command.tick_ns = 1_000_000_000 / number(word, value, 1_000_000).max(1),
                "period" => command.period = number(word, value, 1 << 40),
                "content" => {
                    command.tags = match value {
                        "tags" => Some(true),
                        "zeros" => Some(false),
                        _ => wrong(word, "content is tags or zeros"),
                    };
                }
                "late" => command.late = short(u32::MAX.into()),
                "later" => command.later = short(1 << 20),
                "heap" => command.heap = number(word, value, 1 << 20),
                "lru_batch" => command.lru_batch = Some(short(64)),
                "scan_batch" => command.scan_batch = Some(short(64)),
                "vmap_shards" => command.vmap_shards = Some(short(64)),
                "timeline" => command.timeline = number(word, value, 1 << 16),
                // The emulator may say where its devices are: they are looked for.
                "virtio_mmio.device" => {}
                _ => wrong(word, "no such key"),
            }
        }
        command.what = what.unwrap_or_else(|| wrong("workload=, test= or program=", "what is to run?"));
        command
    }

    /// Whether pages of files that were never written are made up: for workloads that read them and look.
    pub fn tags(&self) -> bool {
        let reads = match self.what {
            What::Workload(work) => {
                matches!(
                    work,
                    Workload::Reader | Workload::SharedReader | Workload::NoPressure | Workload::Bystander
                )
            }
            What::Test(test) => test.tags,
            What::Program => false,
        };
        self.tags.unwrap_or(reads)
    }
}
