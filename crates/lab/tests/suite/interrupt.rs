//! Ctrl-C: what has finished is printed, and the exit code says that the rest is missing.

use crate::common;

use std::fs;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use common::quietmm;

/// Work that takes much longer than the test waits.
const LONG: &[&str] = &["compare", "lru-file-mmap-read", "--machine", "uma-8", "--scale", "1", "--jobs", "1"];

fn json(text: &str) -> serde_json::Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn interrupt(child: &Child) {
    let sent = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
}

/// Waits until the command listens for Ctrl-C: until then it would end as any other program.
fn until_it_listens(child: &mut Child) {
    const SIGINT: u32 = 2;
    let status = format!("/proc/{}/status", child.id());
    let listens = || {
        let text = fs::read_to_string(&status).unwrap_or_default();
        let caught = text.lines().find_map(|line| line.strip_prefix("SigCgt:"));
        let caught = caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
        caught >> (SIGINT - 1) & 1 == 1
    };
    while !listens() {
        assert_eq!(child.try_wait().unwrap(), None, "it has ended");
        sleep(Duration::from_millis(5));
    }
}

#[test]
fn an_interruption_before_anything_has_finished_says_so() {
    let mut child = quietmm(LONG).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    until_it_listens(&mut child);
    interrupt(&child);
    let got = child.wait_with_output().unwrap();
    assert_eq!(got.status.code(), Some(130));
    assert_eq!(String::from_utf8_lossy(&got.stdout), "");
    assert_eq!(String::from_utf8_lossy(&got.stderr).lines().count(), 1);
}

/// A sweep of which the first point is done at once, and the second takes much longer than the test waits.
const SWEEP: &[&str] =
    &["sweep", "lru-file-mmap-read", "--machine", "uma-8", "--jobs", "1", "--vary", "scale=2048,1", "--out"];

#[test]
fn an_interrupted_sweep_keeps_what_was_done_and_nobody_else_writes_meanwhile() {
    let folder = common::folder("interrupt", "sweep");
    let out = folder.join("a.jsonl");
    let args = common::with(SWEEP, &[common::text(&out)]);
    let mut child = quietmm(&args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let lines = || fs::read_to_string(&out).unwrap_or_default().matches('\n').count();
    while lines() < 2 {
        assert_eq!(child.try_wait().unwrap(), None, "it has ended");
        sleep(Duration::from_millis(5));
    }
    let line = common::refused(&args);
    assert!(line.contains("another sweep writes there"), "{line}");
    interrupt(&child);
    let got = child.wait_with_output().unwrap();
    let said = String::from_utf8(got.stdout).unwrap();
    assert_eq!((got.status.code(), String::from_utf8_lossy(&got.stderr).as_ref()), (Some(130), ""));
    assert!(said.starts_with("INTERRUPTED  1 of 2 points are done; the same command runs the 1"), "{said}");
    assert_eq!((lines(), fs::read_dir(&folder).unwrap().count()), (2, 1));
}

#[test]
fn an_interruption_before_anything_has_finished_leaves_the_files_that_were_there() {
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("interrupted");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    let [page, trace] = ["page.html", "trace.json"].map(|name| folder.join(name));
    [&page, &trace].iter().for_each(|path| fs::write(path, "mine").unwrap());
    let files = ["--report", page.to_str().unwrap(), "--timeline", trace.to_str().unwrap()];
    let args = [LONG, &files].concat();
    let mut child = quietmm(&args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    until_it_listens(&mut child);
    interrupt(&child);
    assert_eq!(child.wait_with_output().unwrap().status.code(), Some(130));
    [&page, &trace].iter().for_each(|path| assert_eq!(fs::read_to_string(path).unwrap(), "mine"));
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 2, "nothing is left beside it");
}

/// What a search that was stopped never came to is told neither as tried nor as missed.
#[test]
fn an_interrupted_check_tells_what_was_not_tried() {
    let stopped = |args: &[&str]| {
        let mut child = quietmm(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        until_it_listens(&mut child);
        interrupt(&child);
        let got = child.wait_with_output().unwrap();
        assert_eq!(got.status.code(), Some(130), "{args:?}");
        String::from_utf8(got.stdout).unwrap()
    };
    let said = stopped(&["check", "--schedules", "1000000", "--jobs", "1"]);
    assert!(said.contains("INTERRUPTED") && said.ends_with("No violation so far.\n"), "{said}");
    let all = json(&common::good(&["list", "--json"]))["scenarios"].as_array().unwrap().len();
    let rows = said.lines().take_while(|line| !line.is_empty()).count();
    assert!(rows < all / 2, "rows of what was tried: {rows} lines, {all} scenarios");
    let rules = stopped(&["check", "--mutant", "all", "--schedules", "1000000", "--jobs", "1", "--json"]);
    let rules = json(&rules);
    let number = |key: &str| rules[key].as_array().unwrap().len();
    let asked = rules["mutants"].as_u64().unwrap() as usize;
    assert!(number("not_tried") > asked / 2, "{} of {asked}", number("not_tried"));
    assert_eq!(number("missed"), 0, "{}", rules["missed"]);
}
