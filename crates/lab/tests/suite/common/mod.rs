//! Runs the built command.

#![allow(dead_code, reason = "each test binary uses its own part")]

#[cfg(unix)]
pub mod limits;
pub mod page;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// The policies of which something was published.
const TWO: &str = "linux+unmap=per-page,linux";

/// A comparison that is done at once: little memory, few CPUs.
pub const QUICK: &[&str] =
    &["compare", "lru-file-mmap-read", "--machine", "uma-8", "--scale", "2048", "--policies", TWO];

/// A run whose threads use freed memory as soon as no flush comes before it is freed.
pub const BYSTANDER: &[&str] = &["run", "tlb-bystander", "--machine", "uma-8", "--scale", "2048"];

/// The command with these arguments.
pub fn quietmm(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_quietmm"));
    command.args(args).stdin(Stdio::null());
    command
}

/// What it printed, and how it ended.
pub fn output(args: &[&str]) -> Output {
    quietmm(args).output().expect("the command starts")
}

/// Standard output of a run that succeeds in silence.
pub fn good(args: &[&str]) -> String {
    let got = output(args);
    let stderr = String::from_utf8_lossy(&got.stderr);
    assert_eq!(got.status.code(), Some(0), "{args:?}: {stderr}");
    assert_eq!(stderr, "", "{args:?}");
    String::from_utf8(got.stdout).expect("output is UTF-8")
}

/// The list that is the JSON of whatever was run.
pub fn studies(args: &[&str]) -> Vec<serde_json::Value> {
    let all: serde_json::Value = serde_json::from_str(&good(args)).expect("JSON");
    all.as_array().expect("a list").clone()
}

/// Its only element.
pub fn study(args: &[&str]) -> serde_json::Value {
    let mut all = studies(args);
    assert_eq!(all.len(), 1, "{args:?}");
    all.remove(0)
}

/// The lines of a refusal of a file, with exit code 2.
pub fn faults(args: &[&str]) -> Vec<String> {
    let got = output(args);
    let stderr = String::from_utf8(got.stderr).expect("errors are UTF-8");
    assert_eq!((got.status.code(), got.stdout.len()), (Some(2), 0), "{args:?}: {stderr}");
    assert!(stderr.lines().all(|line| line.starts_with("quietmm: ")), "{args:?}: {stderr}");
    stderr.lines().map(str::to_string).collect()
}

/// The one line of a refusal with exit code 2.
pub fn refused(args: &[&str]) -> String {
    let got = output(args);
    let stderr = String::from_utf8(got.stderr).expect("errors are UTF-8");
    assert_eq!(got.status.code(), Some(2), "{args:?}: {stderr}");
    assert_eq!(String::from_utf8_lossy(&got.stdout), "", "{args:?}");
    assert!(stderr.starts_with("quietmm: ") && stderr.ends_with('\n'), "{args:?}: {stderr}");
    assert_eq!(stderr.lines().count(), 1, "{args:?}: {stderr}");
    stderr
}

/// A folder for one test alone.
pub fn folder(tests: &str, name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(tests).join(name);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// A path as an argument.
pub fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

/// A command line with more behind it.
pub fn with<'a>(args: &[&'a str], more: &[&'a str]) -> Vec<&'a str> {
    args.iter().chain(more).copied().collect()
}
