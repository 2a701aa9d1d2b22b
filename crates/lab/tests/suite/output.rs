//! What a comparison prints: the same bytes every time, JSON with all keys, and no panic when nobody reads.

use crate::common;

use std::io::Read;
use std::path::Path;
use std::process::Stdio;

use common::{BYSTANDER, QUICK, good, output, quietmm, studies, study};
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
    assert_eq!(columns, ["linux+unmap=per-page", "linux"], "as they were typed");
    let elapsed = lines.next().unwrap();
    assert!(elapsed.starts_with("Ops lru-file-mmap-read-elapsed, ms "), "{elapsed}");
    assert!(elapsed.contains("(  0.00%)") && elapsed.ends_with("%)"), "{elapsed}");
    for label in ["time_range", "time_stddv", "\nUser, ", "\nSystem, ", "\nmachine ", "\nscale ", "\nseed "] {
        assert!(text.contains(label), "{label} is missing:\n{text}");
    }
}

#[test]
fn json_has_the_promised_keys_in_order() {
    let all = study(&with(&["--json"]));
    let keys: Vec<&String> = all.as_object().unwrap().keys().collect();
    assert_eq!(keys[..7], ["workload", "on", "machine", "cpus", "scale", "seed", "runs"]);
    assert_eq!(all["policies"][0]["choices"]["unmap"], "per-page");
    assert!(all["verdict"].as_array().is_some_and(|said| said.len() > 1), "{}", all["verdict"]);
    let runs = all["runs"].as_array().unwrap();
    assert_eq!(runs[0]["policy"], "linux+unmap=per-page");
    assert_eq!(runs[1]["policy"], "linux");
    for run in runs {
        assert!(run.get("host").is_none() && run["seed"] == 1);
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
    let all = study(&with(&["--json", "--stats"]));
    for key in ["host_s", "events", "reclaimed_pages_per_host_s", "host_peak_rss_mib"] {
        assert!(all["runs"][0]["host"][key].is_number(), "{key}");
    }
    assert!(good(&with(&["--stats"])).contains("host seconds"));
    assert!(!good(QUICK).contains("host seconds"));
}

#[test]
fn several_seeds_give_runs_and_a_summary() {
    let all = study(&with(&["--json", "--runs", "2", "--seed", "5"]));
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
fn every_workload_on_every_machine_is_an_element_of_the_list() {
    let args = [
        "compare",
        "lru-file-mmap-read",
        "no-pressure",
        "--machine",
        "uma-8,vm-8",
        "--scale",
        "256",
        "--json",
    ];
    let all = studies(&[&args[..], &["--set", "memory=2GiB"]].concat());
    let names: Vec<[&Value; 2]> = all.iter().map(|study| [&study["workload"], &study["machine"]]).collect();
    let expected = ["lru-file-mmap-read", "no-pressure"].map(|work| [[work, "uma-8"], [work, "vm-8"]]);
    assert_eq!(names, expected.concat());
    // One alone is a list too.
    assert_eq!(studies(&with(&["--json"])).len(), 1);
}

#[test]
fn csv_has_a_line_for_each_figure_of_each_run_and_the_same_numbers_as_json() {
    let args = with(&["--runs", "2"]);
    let csv = good(&[&args[..], &["--csv"]].concat());
    let mut lines = csv.lines();
    assert_eq!(lines.next(), Some("workload,on,machine,cpus,scale,policy,seed,figure,value,unit"));
    let all = study(&[&args[..], &["--json"]].concat());
    let mut figures = 0;
    for run in all["runs"].as_array().unwrap() {
        for (key, value) in run["metrics"].as_object().unwrap() {
            let start = format!(
                "lru-file-mmap-read,sim,uma-8,8,2048,{},{},{key},",
                run["policy"].as_str().unwrap(),
                run["seed"]
            );
            let line =
                csv.lines().find_map(|line| line.strip_prefix(&start)).unwrap_or_else(|| panic!("{start}"));
            let number: f64 = line.split(',').next().unwrap().parse().unwrap();
            let same = value.as_f64().unwrap();
            assert!((number - same).abs() <= 1e-12 * same.abs(), "{line}: {same}");
            figures += 1;
        }
    }
    assert_eq!(lines.count(), figures);
}

#[test]
fn a_verdict_says_against_what_by_how_much_and_why() {
    let args = ["compare", "lru-file-mmap-read", "--machine", "uma-8", "--scale", "2048", "--runs", "3"];
    let text = good(&args);
    let (_, verdict) = text.split_once("\nverdict  ").expect("a verdict");
    let verdict =
        verdict.split_once("\n\n").expect("an end").0.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(verdict.starts_with("linux against linux+unmap=per-page: elapsed "), "{verdict}");
    assert!(
        verdict.contains('±') && verdict.contains("IPIs") && verdict.contains("tasks' time"),
        "{verdict}"
    );
    assert!(verdict.ends_with("no stale access"), "{verdict}");
    // Of three there are two verdicts, and who differs in nothing that was in play is told so.
    let args = [
        "compare",
        "no-pressure",
        "--machine",
        "uma-8",
        "--scale",
        "2048",
        "--policies",
        "vanilla,linux,quiet",
    ];
    let text = good(&args);
    assert!(text.contains("linux: the same in every figure as vanilla; they differ in unmap,"), "{text}");
    assert!(text.contains("quiet against vanilla: elapsed "), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 80 || line.starts_with("repeat ")), "{text}");
}

#[test]
fn where_several_threads_wait_for_a_lock_the_verdict_names_it() {
    let text = good(&["run", "unmap-storm", "--machine", "numa-8x15", "--cpus", "64", "--scale", "512"]);
    let verdict = text.split_once("\nverdict  ").expect("a verdict").1;
    assert!(verdict.contains("waiting for the lock of a"), "{text}");
}

#[test]
fn nothing_is_shown_twice_or_as_nothing() {
    let text = good(&["run", "lru-file-mmap-read", "--machine", "uma-8", "--scale", "2048"]);
    let (table, _) = text.split_once("\n\nHow long").expect("a table");
    let rows: Vec<(&str, &str)> = table.lines().skip(1).filter_map(|line| line.rsplit_once(' ')).collect();
    assert!(
        rows.len() > 20 && rows.iter().all(|(_, value)| value.contains(|c| ('1'..='9').contains(&c))),
        "{table}"
    );
    for (label, twice) in [("IPIs sent ", "IPIs received "), ("full flushes", "nr_tlb_local_flush_all")] {
        assert!(table.contains(label) && !table.contains(twice), "{table}");
    }
}

#[test]
fn a_long_time_is_told_in_a_unit_that_is_read() {
    let text = good(&["run", "unmap-storm", "--machine", "uma-8", "--scale", "512"]);
    let row = text.lines().find(|line| line.starts_with("unmap, mean, ")).expect("a row");
    let value: f64 = row.split_whitespace().last().unwrap().parse().unwrap();
    assert!((0.9..1000.0).contains(&value), "{row}");
    assert!(text.lines().any(|line| line.starts_with("map") && line.contains(" us")), "{text}");
}

#[test]
fn work_that_is_about_short_memory_says_first_where_it_never_was() {
    let calm = ["run", "trace", "--trace", "sort", "--machine", "uma-8", "--scale", "16"];
    let text = good(&calm);
    assert!(text.starts_with("NOTHING WAS RECLAIMED: memory was never short"), "{text}");
    // What it says to try is memory that is too small.
    assert!(text.contains("try --scale 256"), "{text}");
    let tried = good(&["run", "trace", "--trace", "sort", "--machine", "uma-8", "--scale", "256"]);
    assert!(tried.contains("pages reclaimed") && !tried.contains("NOTHING WAS RECLAIMED"), "{tried}");
    // The control: unless one says otherwise a trace runs in memory that is too small for it.
    let text = good(&["run", "trace", "--trace", "sort"]);
    assert!(!text.contains("NOTHING WAS RECLAIMED") && text.contains("pages reclaimed"), "{text}");
    // And work that is not about memory says nothing of it.
    let text = good(&["run", "no-pressure", "--machine", "uma-8", "--scale", "2048"]);
    assert!(!text.contains("NOTHING WAS RECLAIMED"), "{text}");
}

#[test]
fn what_a_shell_or_a_manual_reads_is_printed() {
    for shell in ["bash", "zsh", "fish"] {
        let script = good(&["completions", shell]);
        assert!(script.contains("compare") && script.contains("policies"), "{shell}");
    }
    assert!(good(&["man"]).contains(".TH quietmm"));
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("man");
    assert_eq!(good(&["man", folder.to_str().unwrap()]), "");
    assert!(std::fs::read_to_string(folder.join("quietmm-compare.1")).unwrap().contains("policies"));
}

#[test]
fn a_broken_rule_is_expected_to_show() {
    let args = [BYSTANDER, &["--break", "flush-before-free"]].concat();
    let text = good(&args);
    assert!(text.contains("with flush-before-free broken"), "{text}");
    let all = study(&[&args[..], &["--json"]].concat());
    assert_eq!(all["broken"], "flush-before-free");
    assert!(all["runs"][0]["metrics"]["stale_accesses"].as_u64().unwrap() > 0);
    let story = all["runs"][0]["stories"][0].as_str().unwrap();
    assert!(story.contains("through a stale TLB entry") && story.contains("flush-before-free"), "{story}");
    assert!(text.lines().all(|line| line.len() <= 80 || line.starts_with("repeat ")), "{text}");

    // The control: with the rule kept, the same work uses nothing stale, and nothing is told.
    let all = study(&[BYSTANDER, &["--json"]].concat());
    assert_eq!(all["runs"][0]["metrics"]["stale_accesses"], 0);
    assert!(all["runs"][0].get("stories").is_none());
}

#[test]
fn small_figures_are_not_rounded_to_nothing() {
    let text = good(QUICK);
    let row = text.lines().find(|line| line.contains("-time_stddv")).unwrap();
    let value = row.split_whitespace().nth(3).unwrap();
    let digits = value.trim_start_matches(['0', '.']).replace('.', "").len();
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
    let row = table.lines().find(|line| line.starts_with("pages reclaimed")).unwrap();
    assert!(meanings.contains(row.split("  ").next().unwrap()));
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
    assert_eq!(good(&["help"]), good(&["--help"]));
    assert!(good(&["help", "compare"]).contains("--policies"));
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
    for args in [&["list"][..], &["--help"], &["run", "--help"], &["--version"]] {
        let Ok(full) = std::fs::OpenOptions::new().write(true).open("/dev/full") else { return };
        let got = quietmm(args).stdout(full).stderr(Stdio::piped()).output().unwrap();
        assert_eq!(got.status.code(), Some(1), "{args:?}");
        assert!(String::from_utf8_lossy(&got.stderr).starts_with("quietmm: cannot write"), "{args:?}");
    }
}

#[test]
fn a_pipe_gets_no_progress_bar() {
    assert_eq!(output(QUICK).stderr, b"");
}
