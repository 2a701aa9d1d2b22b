//! One run of a test binary, under limits of its own CPU time: the host may be as busy as it likes.

use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};
use std::{fs, thread};

/// What runs tests: `libtest`, or something that talks like it.
pub struct Binary {
    pub path: PathBuf,
    /// Where its tests expect to be.
    pub folder: PathBuf,
}

/// How a run ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Ended {
    /// All tests passed.
    Passed,
    /// This one did not.
    Failed(String),
    /// The process died in this one.
    Died(String),
    /// This one took more time than it may, or more memory, or waits for ever.
    Hung(String),
}

/// How much CPU time a run took.
pub struct Run {
    pub ended: Ended,
    pub cpu: Duration,
}

/// Nothing of the core needs as much.
const MEMORY_BYTES: u64 = 6 << 30;
/// The CPU time of a process stands still for so long only if all its threads wait.
const IDLE: Duration = Duration::from_secs(20);

/// Runs these tests, one after the other, until the first that fails. `told` is what the core looks for in its environment.
pub fn run(binary: &Binary, tests: &[&str], told: &str, limit: Duration) -> Run {
    let mut command = Command::new(&binary.path);
    command
        .args(["--exact", "--test-threads=1"])
        .args(tests)
        .current_dir(&binary.folder)
        .env("QUIETMM_MUTANT", told)
        .env("RUST_BACKTRACE", "0")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut child = command.spawn().unwrap_or_else(|error| panic!("{}: {error}", binary.path.display()));
    let output = child.stdout.take().expect("asked for");
    let (send, lines) = mpsc::channel();
    let reader = thread::spawn(move || {
        let mut reader = BufReader::new(output);
        // Bytes: a test may print anything, and stop in the middle of it.
        let mut word = Vec::new();
        while reader.by_ref().take(1 << 16).read_until(b'\n', &mut word).is_ok_and(|read| read > 0) {
            if send.send(String::from_utf8_lossy(&word).into_owned()).is_err() {
                break;
            }
            word.clear();
        }
    });
    // In the order in which they run.
    let mut tests = tests.to_vec();
    tests.sort_unstable();
    let run = watch(&mut child, &lines, &tests, limit);
    let _ = child.kill();
    drop(lines);
    let _ = child.wait();
    let _ = reader.join();
    run
}

fn watch(child: &mut Child, lines: &mpsc::Receiver<String>, tests: &[&str], limit: Duration) -> Run {
    let mut passed = 0;
    let now = |passed: usize| tests.get(passed).copied().unwrap_or("?").to_string();
    let (mut cpu, mut since) = (Duration::ZERO, Instant::now());
    loop {
        match lines.recv_timeout(Duration::from_millis(20)) {
            Ok(line) => {
                let line = line.trim_end();
                if line.ends_with("FAILED") {
                    cpu = cpu_time(child).unwrap_or(cpu);
                    return Run { ended: Ended::Failed(now(passed)), cpu };
                }
                passed += usize::from(line == "ok" || line.ends_with("... ok"));
                if line.starts_with("test result: ok") {
                    cpu = cpu_time(child).unwrap_or(cpu);
                    return Run { ended: Ended::Passed, cpu };
                }
            }
            Err(RecvTimeoutError::Disconnected) => {
                return Run { ended: Ended::Died(now(passed)), cpu };
            }
            Err(RecvTimeoutError::Timeout) => {
                let used = cpu_time(child).unwrap_or(cpu);
                if used > cpu {
                    (cpu, since) = (used, Instant::now());
                }
                if used > limit || since.elapsed() > IDLE || memory(child) > MEMORY_BYTES {
                    return Run { ended: Ended::Hung(now(passed)), cpu };
                }
            }
        }
    }
}

/// User and system time of the process, in ticks of 10 ms.
fn cpu_time(child: &Child) -> Option<Duration> {
    let stat = fs::read_to_string(format!("/proc/{}/stat", child.id())).ok()?;
    // The name in parentheses may hold anything.
    let mut fields = stat.rsplit(')').next()?.split_whitespace().skip(11);
    let ticks: u64 = fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?;
    Some(Duration::from_millis(ticks * 10))
}

fn memory(child: &Child) -> u64 {
    let pages = fs::read_to_string(format!("/proc/{}/statm", child.id()))
        .ok()
        .and_then(|statm| statm.split_whitespace().nth(1)?.parse::<u64>().ok());
    pages.unwrap_or(0) * 4096
}

/// The names of all tests of a binary.
pub fn list(binary: &Binary) -> Vec<String> {
    let output = Command::new(&binary.path).arg("--list").current_dir(&binary.folder).output();
    let output = output.unwrap_or_else(|error| panic!("{}: {error}", binary.path.display()));
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().filter_map(|line| line.strip_suffix(": test")).map(ToString::to_string).collect()
}
