//! Ctrl-C: what has finished is printed, and the exit code says that the rest is missing.

use crate::common;

use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use common::quietmm;

/// Work that takes much longer than the test waits.
const LONG: &[&str] = &["compare", "lru-file-mmap-read", "--machine", "uma-8", "--scale", "1", "--jobs", "1"];

fn interrupt(child: &Child) {
    let sent = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
}

#[test]
fn an_interruption_before_anything_has_finished_says_so() {
    let child = quietmm(LONG).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    sleep(Duration::from_millis(700));
    interrupt(&child);
    let got = child.wait_with_output().unwrap();
    assert_eq!(got.status.code(), Some(130));
    assert_eq!(String::from_utf8_lossy(&got.stdout), "");
    assert_eq!(String::from_utf8_lossy(&got.stderr).lines().count(), 1);
}
