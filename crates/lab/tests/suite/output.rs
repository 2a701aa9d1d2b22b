//! What a comparison prints: the same bytes every time, JSON with all keys, and no panic when nobody reads.

use crate::common;

use std::io::Read;
use std::path::Path;
use std::process::Stdio;

use common::{BYSTANDER, QUICK, good, output, quietmm};
use serde_json::Value;

fn with(args: &[&'static str]) -> Vec<&'static str> {
    QUICK.iter().chain(args).copied().collect()
}

fn json(args: &[&str]) -> Value {
    serde_json::from_str(&good(args)).expect("JSON")
}

#[test]
fn the_same_command_prints_the_same_bytes() {
    let first = good(&with(&["--runs", "2"]));
    assert_eq!(first, good(&with(&["--runs", "2"])));
    assert_eq!(first, good(&with(&["--runs", "2", "--jobs", "1"])));
    assert_eq!(first, good(&with(&["--runs", "2", "--jobs", "4"])));
}

#[test]
fn the_line_that_repeats_a_comparison_repeats_it() {
    let first = good(&with(&["--seed", "7"]));
    let line =
        first.lines().find_map(|line| line.strip_prefix("repeat   quietmm ")).expect("a line that repeats");
    assert_eq!(first, good(&line.split(' ').collect::<Vec<_>>()));
}

#[test]
fn the_table_has_the_published_form() {
    let text = good(QUICK);
    let mut lines = text.lines();
    let columns: Vec<&str> = lines.next().unwrap().split_whitespace().collect();
    assert_eq!(columns, ["per-page", "batch"]);
    let elapsed = lines.next().unwrap();
    assert!(elapsed.starts_with("Ops lru-file-mmap-read-elapsed "), "{elapsed}");
    assert!(elapsed.contains("(  0.00%)") && elapsed.ends_with("%)"), "{elapsed}");
    for label in [
        "time_range",
        "time_stddv",
        "\nUser ",
        "\nSystem ",
        "\nElapsed ",
        "\nmachine ",
        "\nscale ",
        "\nseed ",
    ] {
        assert!(text.contains(label), "{label} is missing:\n{text}");
    }
}

#[test]
fn json_has_the_promised_keys_in_order() {
    let all = json(&with(&["--json"]));
    let keys: Vec<&String> = all.as_object().unwrap().keys().collect();
    assert_eq!(keys[..6], ["workload", "machine", "cpus", "scale", "seed", "runs"]);
    let runs = all["runs"].as_array().unwrap();
    assert_eq!(runs[0]["policy"], "linux+unmap=per-page");
    assert_eq!(runs[1]["policy"], "linux");
    for run in runs {
        assert!(run.get("host").is_none() && run.get("seed").is_none());
        for key in [
            "elapsed_s",
            "time_range_s",
            "time_stddev_s",
            "user_s",
            "system_s",
            "interrupts_per_s",
            "ipis_sent",
            "ipis_received",
            "pages_reclaimed",
            "ipis_per_reclaimed_page",
            "flushes_full",
            "flushes_page",
            "stale_accesses",
            "window_accesses",
        ] {
            assert!(run["metrics"][key].is_number(), "{key}: {run}");
        }
        assert!(run["metrics"]["ipis_sent"].is_u64());
    }
}

#[test]
fn the_host_appears_only_with_stats() {
    let all = json(&with(&["--json", "--stats"]));
    for key in ["host_s", "events", "reclaimed_pages_per_host_s", "host_peak_rss_mib"] {
        assert!(all["runs"][0]["host"][key].is_number(), "{key}");
    }
    assert!(good(&with(&["--stats"])).contains("host seconds"));
    assert!(!good(QUICK).contains("host seconds"));
}

#[test]
fn several_seeds_give_runs_and_a_summary() {
    let all = json(&with(&["--json", "--runs", "2", "--seed", "5"]));
    let seeds: Vec<u64> =
        all["runs"].as_array().unwrap().iter().map(|run| run["seed"].as_u64().unwrap()).collect();
    assert_eq!(seeds, [5, 6, 5, 6]);
    let summary = all["summary"].as_array().unwrap();
    assert_eq!(summary.len(), 2);
    assert!(summary[0]["metrics"]["elapsed_s"]["mean"].is_number());
    assert!(summary[0]["metrics"]["elapsed_s"]["stddev"].is_number());
    assert!(good(&with(&["--runs", "2"])).contains('±'));
}

#[test]
fn several_workloads_give_an_array() {
    let all = json(&with(&["no-pressure", "--json"]));
    let names: Vec<&Value> = all.as_array().unwrap().iter().map(|study| &study["workload"]).collect();
    assert_eq!(names, ["lru-file-mmap-read", "no-pressure"]);
}

#[test]
fn a_broken_rule_is_expected_to_show() {
    let args = [BYSTANDER, &["--break", "flush-before-free"]].concat();
    let text = good(&args);
    assert!(text.contains("with flush-before-free broken"), "{text}");
    let all = json(&[&args[..], &["--json"]].concat());
    assert_eq!(all["broken"], "flush-before-free");
    assert!(all["runs"][0]["metrics"]["stale_accesses"].as_u64().unwrap() > 0);
    let story = all["runs"][0]["stories"][0].as_str().unwrap();
    assert!(story.contains("through a stale TLB entry") && story.contains("flush-before-free"), "{story}");
    assert!(text.lines().all(|line| line.len() <= 80 || line.starts_with("repeat ")), "{text}");

    // The control: with the rule kept, the same work uses nothing stale, and nothing is told.
    let all = json(&[BYSTANDER, &["--json"]].concat());
    assert_eq!(all["runs"][0]["metrics"]["stale_accesses"], 0);
    assert!(all["runs"][0].get("stories").is_none());
}

#[test]
fn small_figures_are_not_rounded_to_nothing() {
    let text = good(QUICK);
    let row = text.lines().find(|line| line.contains("-time_stddv")).unwrap();
    let value = row.split_whitespace().nth(2).unwrap();
    let digits = value.trim_start_matches(['0', '.']).len();
    assert!(digits >= 3, "{row}");
}

#[test]
fn the_shipped_traces_can_be_shown() {
    let traces = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../traces");
    let mut shown = 0;
    for entry in std::fs::read_dir(traces).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "qtrace") {
            assert!(
                json(&["trace", "show", path.to_str().unwrap(), "--json"])["accesses"].as_u64() > Some(0)
            );
            shown += 1;
        }
    }
    assert_eq!(shown, json(&["list", "--json"])["traces"].as_array().unwrap().len());
}

#[test]
fn every_row_is_explained() {
    let text = good(&[BYSTANDER, &["--explain"]].concat());
    let (table, meanings) = text.split_once("What the rows mean").expect("explanations");
    let elapsed = table.lines().find(|line| line.starts_with("Ops")).unwrap();
    assert!(meanings.contains(elapsed.split("  ").next().unwrap()));
}

#[test]
fn list_names_everything_that_can_be_chosen() {
    let text = good(&["list"]);
    for name in [
        "lru-file-mmap-read",
        "unmap-storm",
        "numa-4x12",
        "numa-8x15",
        "vanilla",
        "per-page",
        "flush-before-free",
    ] {
        assert!(text.contains(name), "{name}");
    }
    let all = json(&["list", "--json"]);
    for key in ["workloads", "machines", "rules"] {
        assert!(all[key].as_array().unwrap().iter().all(|entry| entry["about"] != ""), "{key}");
    }
    assert!(!json(&["list", "--machine", "numa-4x12", "--json"])["constants"].as_array().unwrap().is_empty());
}

#[test]
fn help_has_examples() {
    assert!(good(&["--help"]).contains("quietmm compare"));
    assert!(good(&["compare", "--help"]).contains("--policies"));
}

#[test]
fn a_reader_who_leaves_early_ends_it_quietly() {
    for args in [&["list"][..], QUICK, &["compare", "--help"]] {
        let mut child = quietmm(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let mut stderr = String::new();
        child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
        assert_eq!(stderr, "", "{args:?}");
        assert_eq!(child.wait().unwrap().code(), Some(0), "{args:?}");
    }
}

#[test]
fn a_full_disk_is_an_error() {
    let Ok(full) = std::fs::OpenOptions::new().write(true).open("/dev/full") else { return };
    let got = quietmm(&["list"]).stdout(full).stderr(Stdio::piped()).output().unwrap();
    assert_eq!(got.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&got.stderr).starts_with("quietmm: cannot write"));
}

#[test]
fn a_pipe_gets_no_progress_bar() {
    assert_eq!(output(QUICK).stderr, b"");
}
