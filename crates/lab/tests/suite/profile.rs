//! `--profile`: one profile for each policy, beside figures that stay as they are.

use crate::common;

use common::{BYSTANDER, QUICK, good, quietmm, refused, study as json};
use serde_json::Value;

const BUFFERS: &[&str] =
    &["compare", "dir-buffers", "--cpus", "16", "--parts", "28", "--policies", "linux+vmap=eager,linux"];

fn with(args: &[&'static str], more: &[&'static str]) -> Vec<&'static str> {
    args.iter().chain(more).copied().collect()
}

/// Where each profile of a text begins.
fn starts(text: &str) -> Vec<usize> {
    text.match_indices("\nWhere CPU time went").map(|(at, _)| at).collect()
}

/// The text without its profiles: each goes on to the next empty line.
fn without_profiles(text: &str) -> String {
    let mut rest = text.to_string();
    while let Some(&start) = starts(&rest).first() {
        let end = rest[start + 1..].find("\n\n").map_or(rest.len(), |at| start + 1 + at + 1);
        rest.replace_range(start..end, "");
    }
    rest
}

#[test]
fn the_other_output_is_the_same_to_the_byte() {
    for args in [QUICK, BYSTANDER, BUFFERS] {
        let (plain, profiled) = (good(args), good(&with(args, &["--profile"])));
        let policies = if args[0] == "run" { 1 } else { 2 };
        assert_eq!((starts(&plain).len(), starts(&profiled).len()), (0, policies), "{profiled}");
        assert_eq!(plain, without_profiles(&profiled));
        if args == QUICK {
            assert_eq!(profiled, good(&with(args, &["--profile", "--jobs", "1"])));
        }
    }
    let mut profiled = json(&with(QUICK, &["--json", "--profile"]));
    for run in profiled["runs"].as_array_mut().expect("runs") {
        assert!(run.as_object_mut().expect("a run").remove("profile").is_some());
    }
    assert_eq!(profiled, json(&with(QUICK, &["--json"])));
}

#[test]
fn a_profile_fits_a_page_and_is_sorted_by_self_with_small_places_folded() {
    let text = good(&with(BUFFERS, &["--profile"]));
    for (nth, start) in starts(&text).into_iter().enumerate() {
        let section = &text[start + 1..];
        let section = &section[..section.find("\n\n").expect("an end")];
        assert!(section.lines().all(|line| line.chars().count() <= 80), "{section}");
        assert!(section.contains("Percentages are of busy time"), "{section}");
        let (_, rows) = section.split_once("where\n").expect("a head");
        let (rows, rooms) = rows.split_once("by room").expect("rooms");
        assert!(rooms.contains("vmap"), "{section}");
        let own = |line: &str| line.get(..7).and_then(|own| own.trim().parse::<f64>().ok());
        let shares: Vec<f64> = rows.lines().filter_map(own).collect();
        let (folded, shown) = shares.split_last().expect("rows");
        assert!(rows.contains("others, each below 0.1 %") && *folded < 5.0, "{section}");
        assert!(shown.is_sorted_by(|a, b| a >= b), "{section}");
        // Each is rounded to a hundredth.
        let sum: f64 = shares.iter().sum();
        assert!((sum - 100.0).abs() < 0.005 * shares.len() as f64, "{sum}: {section}");
        let first = rows.lines().next().expect("a row");
        let top = if nth == 0 { "  spin_lock(eager list)" } else { "  user work" };
        assert!(first.ends_with(top), "{section}");
        assert!(rows.lines().any(|line| line.ends_with("  idle") && own(line).is_none()), "{section}");
    }
}

#[test]
fn json_has_every_place_and_adds_up() {
    let all = json(&with(QUICK, &["--json", "--profile", "--runs", "2"]));
    let runs = all["runs"].as_array().expect("runs");
    assert_eq!(runs.len(), 4);
    for run in runs {
        let profile = &run["profile"];
        let number = |value: &Value| value.as_u64().unwrap_or_else(|| panic!("{value} in {profile}"));
        let sum = |key: &str| {
            let rows = profile[key].as_array().expect("rows");
            rows.iter().map(|row| number(&row["self_ps"])).sum::<u64>()
        };
        assert_eq!(sum("busy"), number(&profile["busy_ps"]));
        assert_eq!(sum("busy") + sum("idle"), number(&profile["cpus"]) * number(&profile["span_ps"]));
        let rows = profile["busy"].as_array().expect("rows");
        let fault = rows.iter().find(|row| row["name"] == "fault").expect("page faults");
        assert!(number(&fault["total_ps"]) > number(&fault["self_ps"]), "{fault}");
        assert!(fault["total_percent"].as_f64() > fault["self_percent"].as_f64(), "{fault}");
        assert!(profile["rooms"]["reclaim"]["total_percent"].as_f64() > Some(1.0), "{profile}");
    }
}

#[test]
fn what_is_shown_is_explained_if_asked() {
    let text = good(&with(QUICK, &["--profile", "--explain"]));
    let (before, meanings) = text.split_once("What time is charged to").expect("explanations");
    for name in ["other kernel work", "spin_lock(zone)", "ipi_wait", "idle"] {
        assert!(before.contains(name) && meanings.contains(&format!("\n  {name}\n")), "{name}: {text}");
    }
    assert!(!good(&with(QUICK, &["--explain"])).contains("What time is charged to"));
    assert!(good(&["compare", "--help"]).contains("perf report"));
}

#[test]
fn with_a_rule_broken_there_is_a_profile_too() {
    let text = good(&with(BYSTANDER, &["--break", "flush-before-free", "--profile"]));
    assert_eq!(starts(&text).len(), 1, "{text}");
}

#[test]
fn a_ratio_that_the_workload_does_not_have_is_refused() {
    let names = |args: &[&str], word: &str| {
        let line = refused(args);
        assert!(line.contains(word), "{args:?} should name {word}: {line}");
    };
    names(&["run", "dir-buffers", "--parts", "27"], "0, 1, 4, 28, 100");
    names(&["run", "dir-buffers", "--parts", "-1"], "--parts");
    names(&["run", "no-pressure", "--parts", "28"], "only dir-buffers");
    // The line that repeats it has the ratio.
    let got = quietmm(BUFFERS).output().expect("the command starts");
    let text = String::from_utf8(got.stdout).expect("UTF-8");
    let line = text.lines().find_map(|line| line.strip_prefix("repeat   quietmm ")).expect("a line");
    assert!(line.contains("--parts 28"), "{line}");
    assert_eq!(text, good(&line.split(' ').collect::<Vec<_>>()));
    assert_eq!(json(&with(BUFFERS, &["--json"]))["parts"], 28);
}
