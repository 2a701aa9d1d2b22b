//! `quietmm boot` with machines that really boot. `scripts/test-metal` runs them: they need the emulator and the image.

use crate::common;

use common::good;
use serde_json::Value;

fn image() -> String {
    std::env::var("QUIETMM_IMAGE").expect("QUIETMM_IMAGE names the image; scripts/test-metal sets it")
}

/// The only element of the list that is the JSON.
fn only(text: &str) -> Value {
    let all: Vec<Value> = serde_json::from_str(text).unwrap();
    assert_eq!(all.len(), 1, "{text}");
    all[0].clone()
}

fn boot(args: &[&str]) -> String {
    let image = image();
    // A limit that says that it hangs, however busy the host is.
    let fixed = ["--image", image.as_str(), "--timeout", "3600"];
    good(&[args, &fixed].concat())
}

/// Readers of 50 MiB of files in all, with 32 MiB of memory.
const SMALL: &[&str] = &["boot", "lru-file-mmap-read", "--cpus", "4", "--memory", "32M", "--work", "5M"];

#[test]
#[ignore = "boots machines: scripts/test-metal"]
fn a_batch_takes_fewer_interrupts_and_every_page_is_checked() {
    let all = only(&boot(&[SMALL, &["--json"]].concat()));
    let metric = |run: usize, key: &str| {
        all["runs"][run]["metrics"][key].as_u64().unwrap_or_else(|| panic!("{key}: {all}"))
    };
    for run in [0, 1] {
        assert!(metric(run, "pages_reclaimed") > 5000 && metric(run, "pages_checked") >= 12_800, "{all}");
        assert_eq!(metric(run, "wrong_contents"), 0);
    }
    assert!(metric(1, "ipis_received") * 3 < metric(0, "ipis_received"), "{all}");
}

/// What two runs print alike. The emulator hands the processor on early where the host disturbs it: on a busy one not every run is the same.
fn twice<T: PartialEq>(run: impl Fn() -> T) -> T {
    let mut runs = vec![run()];
    loop {
        let next = run();
        if runs.contains(&next) {
            return next;
        }
        runs.push(next);
        assert!(runs.len() < 6, "six runs, and no two of them the same");
    }
}

#[test]
#[ignore = "boots machines: scripts/test-metal"]
fn two_runs_that_count_instructions_print_the_same_bytes() {
    let counted = |seed| {
        boot(&[SMALL, &["--accel", "icount", "--policies", "linux", "--stats", "--seed", seed]].concat())
    };
    // What depends on the host is the one line that may differ.
    let same = |text: String| {
        text.lines().filter(|line| !line.starts_with("host seconds")).map(str::to_string).collect::<Vec<_>>()
    };
    twice(|| same(counted("3")));
    let json = |seed| {
        boot(&[SMALL, &["--accel", "icount", "--policies", "linux", "--json", "--seed", seed]].concat())
    };
    assert_ne!(twice(|| json("3")), json("4"), "the seed makes a difference: equal runs mean something");
}

#[test]
#[ignore = "boots machines: scripts/test-metal"]
fn instructions_per_operation_are_the_same_in_every_run() {
    let args = [
        "boot",
        "vmap-touch",
        "--cpus",
        "2",
        "--memory",
        "64M",
        "--threads",
        "1",
        "--accel",
        "icount",
        "--json",
    ];
    let cycles = |text: String| only(&text)["runs"][1]["operations"]["map-cycle"].clone();
    let first = twice(|| cycles(boot(&args)));
    assert!(first["count"].as_u64().unwrap() > 1000 && first["least"].as_u64().unwrap() > 100, "{first}");
}

#[test]
#[ignore = "boots machines: scripts/test-metal"]
fn what_swaps_has_a_disk() {
    let text =
        boot(&["boot", "swap-threads", "--cpus", "2", "--memory", "24M", "--policies", "linux", "--json"]);
    let all = only(&text);
    let metrics = &all["runs"][0]["metrics"];
    assert!(
        metrics["disk_writes"].as_u64().unwrap() > 1000 && metrics["disk_reads"].as_u64().unwrap() > 1000,
        "{text}"
    );
}

#[test]
#[ignore = "boots machines: scripts/test-metal"]
fn a_flush_that_is_left_out_is_seen_on_metal_too() {
    let churn = "boot churn --cpus 4 --memory 64M --policies linux --accel icount --period";
    let words = |period| churn.split(' ').chain([period]).collect::<Vec<_>>();
    // Where timers interrupt decides whether one run sees it: any other order of instructions is another chance.
    let is_seen = |period| {
        let broken = only(&boot(&[&words(period)[..], &["--break", "clean-protects", "--json"]].concat()));
        broken["runs"][0]["end"] != "well"
    };
    assert!(["199", "211", "223"].into_iter().any(is_seen));
    // The control: with all rules kept it ends well, or the command would fail.
    boot(&words("211"));
}

#[test]
#[ignore = "boots machines: scripts/test-metal"]
fn simulation_and_metal_reclaim_the_same_pages_of_the_same_work() {
    let text =
        boot(&["compare", "--on", "both", "--cpus", "4", "--memory", "64M", "--policies", "linux", "--json"]);
    let all = only(&text);
    let far = |key: &str| {
        all["runs"][0]["difference_percent"][key].as_f64().unwrap_or_else(|| panic!("{key}: {text}"))
    };
    for key in ["pages_reclaimed", "pgfault", "pgalloc"] {
        assert!(far(key).abs() < 10.0, "{key}: {}", far(key));
    }
}
