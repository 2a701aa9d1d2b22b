//! Machine files and `--set` against whatever may be written in them: what is refused is refused in one line, what is
//! taken can be run, and the run ends.

use crate::common;

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use common::{machine, policy};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use quietmm_sim::machine::Machine;
use quietmm_sim::{RunError, RunSpec, Value, Watch, Workload, run};

/// Constants and other words that stand in machine files and after `--set`, by what they are short for.
fn keys() -> Vec<String> {
    let mut keys: Vec<String> =
        ["numa-4x12", "ssd-8"].iter().flat_map(|name| machine(name).constants()).map(|c| c.key).collect();
    keys.sort();
    keys.dedup();
    let bare: Vec<String> = keys.iter().filter_map(|key| Some(key.split_once('.')?.1.to_owned())).collect();
    keys.extend(bare);
    keys.extend(
        ["memory", "mhz", "min_free_kib", "vmap_lazy_kib", "vmap_shards", "name", ""].map(String::from),
    );
    keys
}

/// Numbers at the edges, of any size, and what only looks like one.
fn number() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => any::<u64>().prop_map(|n| n.to_string()),
        4 => (0u32..64).prop_map(|bits| (1u64 << bits).to_string()),
        4 => (0u32..130).prop_map(|n| n.to_string()),
        2 => (any::<i64>(), -30i32..30).prop_map(|(n, e)| format!("{n}e{e}")),
        2 => (any::<u32>(), any::<u32>()).prop_map(|(a, b)| format!("{a}.{b}")),
        1 => (1usize..400).prop_map(|n| "9".repeat(n)),
        1 => (1usize..400).prop_map(|n| format!("0.{}1", "0".repeat(n))),
        2 => select(vec![
            "-0", "-1", "+1", "1e999", "1e-999", "1e2147483648", "1e-2147483648", "nan", "inf", "0x10", "1__0", "_", ".",
            "e", "1e", "e1", "true", "no", "18446744073709551616", "340282366920938463463374607431768211456",
        ])
        .prop_map(String::from),
    ]
}

fn unit() -> impl Strategy<Value = String> {
    select(vec![
        "", "ps", "ns", "us", "\u{b5}s", "ms", "s", "cycles", "B", "KiB", "GiB", "TiB", "GB/s", "percent",
        "%", "Hz", "kHz", "CPUs", "nodes", "entries", "ways", "tags", "pages", "bool", "permille", "x",
    ])
    .prop_map(String::from)
}

/// One constant for `--set`.
fn setting() -> impl Strategy<Value = (String, String)> {
    let key = prop_oneof![9 => select(keys()), 1 => ".{0,20}"];
    let value = prop_oneof![
        9 => (0u32..40).prop_map(|bits| (1u64 << bits).to_string()),
        4 => (0u32..130).prop_map(|n| n.to_string()),
        4 => (0u32..130, select(vec!["ps", "ns", "us", "ms", "MiB", "GiB", "MB/s"])).prop_map(|(n, unit)| format!("{n}{unit}")),
        4 => (number(), unit()).prop_map(|(number, unit)| number + &unit),
        1 => ".{0,40}",
    ];
    (key, value)
}

/// What a line of a machine file may become.
#[derive(Clone, Debug)]
enum Change {
    Value(usize, String),
    Unit(usize, String),
    Drop(usize),
    Twice(usize),
    Swap(usize, usize),
    Cut(usize),
    Insert(usize, String),
}

fn change() -> impl Strategy<Value = Change> {
    let at = 0usize..200;
    let text = prop_oneof![
        "[\\[\\]{}=\",.'a-z0-9 \n]{0,30}",
        ".{0,30}",
        (1usize..3000).prop_map(|n| format!("x = {}", "[".repeat(n))),
        (1usize..3000).prop_map(|n| format!("x = {}", "{a=".repeat(n))),
        (1usize..3000).prop_map(|n| format!("[{}a]", "a.".repeat(n))),
    ];
    prop_oneof![
        6 => (at.clone(), number()).prop_map(|(at, number)| Change::Value(at, number)),
        2 => (at.clone(), unit()).prop_map(|(at, unit)| Change::Unit(at, unit)),
        1 => at.clone().prop_map(Change::Drop),
        1 => at.clone().prop_map(Change::Twice),
        1 => (at.clone(), at.clone()).prop_map(|(a, b)| Change::Swap(a, b)),
        1 => (0usize..16_000).prop_map(Change::Cut),
        2 => (at, text).prop_map(|(at, text)| Change::Insert(at, text)),
    ]
}

/// A shipped machine's file with some of its lines changed.
fn changed(name: &str, changes: &[Change]) -> String {
    let text = Machine::builtin_text(name).expect("a shipped machine");
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    for change in changes {
        let count = lines.len().max(1);
        if lines.is_empty() {
            lines.push(String::new());
        }
        // Only lines with a constant have something to be changed: the nearest one behind.
        let constant = |at: usize| (at % count..count).find(|&i| lines[i].contains("value = ")).unwrap_or(0);
        match change {
            Change::Value(at, number) => {
                let at = constant(*at);
                lines[at] = replaced(&lines[at], "value = ", ',', number);
            }
            Change::Unit(at, unit) => {
                let at = constant(*at);
                lines[at] = replaced(&lines[at], "unit = \"", '"', unit);
            }
            Change::Drop(at) => drop(lines.remove(at % count)),
            Change::Twice(at) => lines.insert(at % count, lines[at % count].clone()),
            Change::Swap(a, b) => lines.swap(a % count, b % count),
            Change::Insert(at, text) => lines.insert(at % count, text.clone()),
            Change::Cut(at) => {
                let whole = lines.join("\n");
                let end = (0..=(*at).min(whole.len())).rev().find(|&end| whole.is_char_boundary(end));
                lines = whole[..end.unwrap_or(0)].lines().map(str::to_owned).collect();
            }
        }
    }
    lines.join("\n")
}

/// `line` with what stands between `before` and the next `end` replaced.
fn replaced(line: &str, before: &str, end: char, by: &str) -> String {
    let Some((head, rest)) = line.split_once(before) else { return line.to_owned() };
    let tail = rest.find(end).map_or("", |at| &rest[at..]);
    format!("{head}{before}{by}{tail}")
}

/// All of a machine's constants, whatever they were written as.
fn constants(machine: &Machine) -> String {
    let Machine { cpus, nodes, memory, distance, tlb, cost, device, swap, guarantees, kernel, .. } = machine;
    format!(
        "{cpus} {nodes} {memory} {distance:?} {tlb:?} {cost:?} {device:?} {swap:?} {guarantees:?} {kernel:?}"
    )
}

/// A message in one line, of a length that can be read.
fn is_one_line(message: &str) -> bool {
    !message.is_empty() && message.chars().count() < 800 && !message.chars().any(char::is_control)
}

/// Somebody who presses Ctrl-C after so many million events: a slow machine makes much work of little. The host's time is not
/// asked: what comes of a run must not depend on it.
struct Patience(AtomicU32);

impl Patience {
    fn new() -> Patience {
        Patience::of(8)
    }
    fn of(millions: u32) -> Patience {
        Patience(AtomicU32::new(millions))
    }
}

impl Watch for Patience {
    // At progress too it is asked whether to stop; that is not counted.
    // Relaxed: one thread tells and is asked.
    fn progress(&self, _done: u64, _total: u64) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
    fn cancelled(&self) -> bool {
        self.0.fetch_sub(1, Ordering::Relaxed) == 1
    }
}

/// A machine that was taken has a run that ends: with a report, with one line that says why not, or, if it is slow, when it
/// is told to.
fn runs(machine: &Machine, workload: Workload, policy: &str) -> Result<(), TestCaseError> {
    // Little memory: what is hostile here is the machine, not the amount of work.
    let room = ((u64::from(machine.cpus) << 20) + (u64::from(machine.nodes) << 22)).max(8 << 20);
    let spec = RunSpec {
        scale: u32::try_from(machine.memory / room).unwrap_or(u32::MAX).max(1),
        policy: self::policy(policy),
        machine: machine.clone(),
        ..common::spec(workload)
    };
    match run(&spec, &Patience::new()) {
        Ok(report) => {
            let stale = report.metrics.iter().find(|metric| metric.key == "stale_accesses");
            prop_assert!(
                matches!(stale.map(|metric| metric.value), Some(Value::Int(0))),
                "{:?}",
                report.stories
            );
        }
        Err(RunError::Refused(why) | RunError::Failed(why)) => prop_assert!(is_one_line(&why), "{why}"),
        Err(RunError::Cancelled) => {}
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn any_text_is_a_machine_or_one_line(text in prop_oneof![".{0,200}", "[\\[\\]{}=\"#,.'a-z0-9_ \n-]{0,400}"]) {
        if let Err(error) = Machine::parse(&text, "m.toml") {
            prop_assert!(error.to_string().lines().all(is_one_line), "{}", error);
        }
    }

    #[test]
    fn a_changed_machine_is_a_machine_or_one_line(
        name in select(Machine::builtin_names().collect::<Vec<_>>()),
        changes in vec(change(), 1..5),
    ) {
        let text = changed(name, &changes);
        match Machine::parse(&text, "m.toml") {
            Err(error) => {
                prop_assert!(error.to_string().lines().all(is_one_line), "{}", error);
                let lines = 1..=text.lines().count().max(1) + 1;
                prop_assert!(error.faults().iter().all(|one| lines.contains(&one.line.unwrap_or(0))), "{}", error);
            }
            Ok(machine) => prop_assert!(machine.constants().iter().all(|c| !c.source.is_empty())),
        }
    }

    #[test]
    fn any_setting_is_taken_whole_or_refused_in_one_line(
        name in select(vec!["numa-4x12", "ssd-8", "many-32x128"]),
        settings in vec(setting(), 1..6),
    ) {
        let mut machine = machine(name);
        for (key, value) in settings {
            let before = machine.clone();
            match machine.set(&key, &value) {
                Err(error) => {
                    prop_assert!(is_one_line(&error.to_string()), "{}", error);
                    prop_assert_eq!(&machine, &before);
                }
                // What is listed afterwards sets the same again.
                Ok(()) => {
                    let mut again = machine.clone();
                    for constant in machine.constants().iter().filter(|c| c.key != "memory.distance") {
                        let value = format!("{} {}", constant.value_text, constant.unit);
                        again.set(&constant.key, &value).unwrap_or_else(|error| panic!("{error}"));
                    }
                    prop_assert_eq!(constants(&again), constants(&machine));
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn a_machine_that_is_taken_has_runs_that_end(
        name in select(vec!["uma-8", "numa-4x12", "ssd-8", "stress-4x4", "vm-8"]),
        cpus in 1u32..=12,
        settings in vec(setting(), 1..40),
        workload in select(vec![
            Workload::NoPressure, Workload::Reader, Workload::UnmapStorm, Workload::PageAlloc, Workload::VmapMix,
            Workload::ForkStorm, Workload::ScanResist,
        ]),
        policy in select(vec!["vanilla", "linux", "quiet", "linux+vmap=eager+unmap=per-page"]),
    ) {
        let mut machine = machine(name).with_cpus(cpus).expect("fewer CPUs");
        for (key, value) in settings {
            let before = machine.clone();
            // As many CPUs as are asked for would take long, not fail.
            if machine.set(&key, &value).is_ok() && machine.cpus > 16 {
                machine = before;
            }
        }
        runs(&machine, workload, policy)?;
    }
}

/// What random settings once found.
#[test]
fn a_machine_of_many_tags_and_one_cpu_runs() {
    let mut machine = machine("uma-8").with_cpus(1).expect("fewer CPUs");
    machine.set("tags", "65").expect("in range");
    runs(&machine, Workload::UnmapStorm, "vanilla").unwrap_or_else(|error| panic!("{error}"));
}

/// Somebody who stops a run when asked at a moment at which nothing was done: a question at each page would not do.
#[derive(Default)]
struct BetweenPages(AtomicBool);

impl Watch for BetweenPages {
    // Relaxed: one thread tells and is asked.
    fn progress(&self, _done: u64, _total: u64) {
        self.0.store(true, Ordering::Relaxed);
    }
    fn cancelled(&self) -> bool {
        !self.0.swap(false, Ordering::Relaxed)
    }
}

#[test]
fn a_run_without_progress_can_be_stopped() {
    // Whoever waits for a lock spins a hundred million times while its line is on its way.
    let mut machine = machine("uma-8");
    machine.set("line_local", "1s").expect("in range");
    let spec = RunSpec { machine, scale: 1024, ..common::spec(Workload::SharedReader) };
    assert_eq!(run(&spec, &BetweenPages::default()).err(), Some(RunError::Cancelled));
}

/// A CPU may be in the middle of anything, with the scheduler's lock held for one.
#[test]
fn a_run_is_stopped_wherever_its_cpus_are() {
    let mut machine = machine("uma-8");
    machine.set("line_local", "100us").expect("in range");
    let spec = RunSpec { machine, scale: 1024, ..common::spec(Workload::ForkStorm) };
    for millions in 1..=6 {
        let ended = run(&spec, &Patience::of(millions));
        assert_eq!(ended.err(), Some(RunError::Cancelled), "{millions}");
    }
}

/// In words: where nobody presses Ctrl-C it ends all the same.
#[test]
fn a_run_in_which_nothing_gets_done_is_given_up() {
    let mut machine = machine("uma-8");
    machine.set("line_local", "1s").expect("in range");
    let spec = RunSpec { machine, scale: 1024, ..common::spec(Workload::SharedReader) };
    let error = common::refusal(&spec).to_string();
    assert!(error.contains("nothing gets done") && is_one_line(&error), "{error}");
}

#[test]
fn what_no_host_or_core_can_have_is_refused() {
    let refused = |workload, sets: &[(&str, &str)], scale| {
        let mut machine = machine("ssd-8");
        let mut set =
            |(key, value): &(&str, &str)| machine.set(key, value).map_err(|error| error.to_string());
        if let Err(error) = sets.iter().try_for_each(&mut set) {
            return error;
        }
        let spec = RunSpec { machine, scale, ..common::spec(workload) };
        run(&spec, &Patience::new()).expect_err("it ran").to_string()
    };
    for (sets, scale, what) in [
        // 17 TiB of 4 KiB frames are more than 2^32: as many as 1 TiB if they are cut off.
        (&[("memory", "17TiB")][..], 1, "more than frames can be numbered; at most 8192 GiB"),
        (&[("memory", "9TiB")], 1, "more than frames can be numbered"),
        (&[("memory", "17TiB")], 1_000_000_000, "less than its tables need"),
        (&[("tick_hz", "100000"), ("tick_work", "10us")], 64, "leave a CPU no time"),
        (&[("memory", "64GiB"), ("cpus", "4096"), ("l2_entries", "65536")], 64, "more than can be simulated"),
        (&[("swap.size", "1MiB")], 64, "2 MiB to 16 TiB"),
    ] {
        let error = refused(Workload::NoPressure, sets, scale);
        assert!(error.contains(what) && is_one_line(&error), "{sets:?}: {error}");
    }
}
