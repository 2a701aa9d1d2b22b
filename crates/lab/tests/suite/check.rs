//! `quietmm check`: tables, files, errors; the same bytes twice.

use crate::common;

use std::path::PathBuf;

use common::{good, output, refused};
use serde_json::Value;

fn folder(name: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir(&path).unwrap();
    path
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).expect("JSON")
}

#[test]
fn a_sound_core_gets_a_table_and_no_violation() {
    let args = ["check", "unmap-lazy", "tables-lazy", "unmap-lazy", "--schedules", "60"];
    let text = good(&args);
    assert_eq!(text.lines().filter(|line| line.starts_with("unmap-lazy")).count(), 1, "{text}");
    assert!(
        text.contains("departed") && text.contains("2 scenarios") && text.ends_with("No violation.\n"),
        "{text}"
    );
    let as_json = json(&good(&[&args[..], &["--json"]].concat()));
    assert_eq!(as_json["violations"], Value::Array(Vec::new()));
    assert!(as_json["scenarios"][0]["schedules"].as_u64() >= Some(120));
}

#[test]
fn the_same_seed_prints_the_same_bytes_with_any_number_of_threads() {
    let args =
        ["check", "unmap-switch", "reclaim-fault", "--schedules", "100", "--seed", "5", "--json", "--jobs"];
    let one = good(&[&args[..], &["1"]].concat());
    assert_eq!(one, good(&[&args[..], &["1"]].concat()));
    assert_eq!(one, good(&[&args[..], &["3"]].concat()));
    let other =
        good(&["check", "unmap-switch", "reclaim-fault", "--schedules", "100", "--seed", "6", "--json"]);
    assert_ne!(one, other, "another seed, other schedules");
}

#[test]
fn a_broken_rule_is_found_drawn_saved_and_played_again() {
    let folder = folder("mutant");
    let save = folder.to_str().unwrap();
    let text =
        good(&["check", "--mutant", "flush-before-unmap-returns", "--schedules", "200", "--save", save]);
    assert!(
        text.contains("1 of 1 found") && text.contains("SKIPS") && text.contains("left out, at step"),
        "{text}"
    );
    let files: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    let [file] = &files[..] else { panic!("one file: {files:?}") };
    let file = file.to_str().unwrap();
    let again = good(&["check", "--replay", file]);
    assert!(again.contains("SKIPS") && again.contains("left out, at step"), "{again}");
    assert_eq!(again, good(&["check", "--replay", file]), "exactly");
    assert_eq!(json(&good(&["check", "--replay", file, "--json"]))["as_saved"], Value::Bool(true));

    // Without the rule it breaks nothing, and says that it did not do what it says.
    let text = std::fs::read_to_string(file).unwrap();
    let sound: String =
        text.lines().filter(|line| !line.starts_with("rule")).map(|line| format!("{line}\n")).collect();
    let path = folder.join("sound.toml");
    std::fs::write(&path, sound).unwrap();
    let got = output(&["check", "--replay", path.to_str().unwrap()]);
    assert_eq!(got.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&got.stdout).contains("this run broke nothing"));
}

#[test]
fn a_mutants_counterexample_is_kept_only_where_one_says() {
    let folder = folder("nothing-left");
    let args = ["check", "--mutant", "tables-to-lazy", "--schedules", "50"];
    let got = common::quietmm(&args).current_dir(&folder).output().unwrap();
    let text = String::from_utf8_lossy(&got.stdout);
    assert_eq!(got.status.code(), Some(0), "{text}");
    assert!(text.contains("SKIPS") && text.contains("--save DIR"), "{text}");
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0);
}

#[test]
fn what_is_counted_of_mutants_is_in_the_json() {
    let folder = folder("counted");
    let save = folder.to_str().unwrap();
    let args = ["check", "--mutant", "tables-to-lazy", "--schedules", "50", "--json", "--save", save];
    let found = json(&good(&args));
    assert_eq!((&found["mutants"], &found["found"]), (&Value::from(1), &Value::from(1)));
    assert_eq!(found["missed"], Value::Array(Vec::new()));
    assert_eq!(found["counterexample"]["invariant"], "INV-9");
    // Where no scenario can show it, it is missed, and that is no success.
    let args = ["check", "shoot-shoot", "--mutant", "tables-to-lazy", "--schedules", "5", "--json"];
    let got = output(&args);
    assert_eq!(got.status.code(), Some(1));
    assert_eq!(json(&String::from_utf8(got.stdout).unwrap())["missed"][0], "tables-to-lazy");
}

#[test]
fn what_cannot_be_is_refused_in_a_line() {
    assert!(refused(&["check", "unmap-lzay"]).contains("unmap-lazy"));
    assert!(refused(&["check", "--mutant", "flush-befor-free"]).contains("flush-before-free"));
    assert!(refused(&["check", "--schedules", "0"]).contains("--schedules"));
    assert!(refused(&["check", "--departures", "7"]).contains("--departures"));
    assert!(refused(&["check", "--replay", "/nonexistent/file"]).contains("/nonexistent/file"));
    assert!(refused(&["check", "--deep", "--mutant", "all"]).contains("--deep"));
    assert!(refused(&["check", "--replay", "/proc/version"]).contains("/proc/version"));
    let folder = folder("bad");
    for (name, text) in
        [("empty", ""), ("binary", "\u{0}\u{1}\u{7f}"), ("other", "a = 1\n"), ("deep", &"[".repeat(100_000))]
    {
        let path = folder.join(name);
        std::fs::write(&path, text).unwrap();
        assert!(refused(&["check", "--replay", path.to_str().unwrap()]).contains(name));
    }
    let unknown =
        "format = 1\nscenario = \"unmap-lzay\"\nhardware = \"quiet\"\ninvariant = \"INV-1\"\nwhat = \"\"\n";
    let path = folder.join("unknown");
    std::fs::write(&path, unknown).unwrap();
    assert!(refused(&["check", "--replay", path.to_str().unwrap()]).contains("unmap-lazy"));
}

#[test]
fn scenarios_are_listed() {
    let text = good(&["list"]);
    assert!(text.contains("Scenarios") && text.contains("unmap-lazy"), "{text}");
    assert!(json(&good(&["list", "--json"]))["scenarios"].as_array().is_some_and(|all| all.len() > 20));
}
