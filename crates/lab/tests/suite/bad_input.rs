//! What cannot be is refused in one line that says what would be right, with exit code 2.

use crate::common;

use std::path::PathBuf;

use common::{faults, refused};

#[track_caller]
fn names(args: &[&str], word: &str) {
    let line = refused(args);
    assert!(line.contains(word), "{args:?} should name {word}: {line}");
}

fn file(name: &str, content: &[u8]) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&path, content).unwrap();
    path
}

#[test]
fn an_unknown_name_lists_the_near_ones() {
    names(&["compare", "lru-file-map-read"], "lru-file-mmap-read");
    names(&["run", "bystander"], "tlb-bystander");
    names(&["compare", "--machine", "numa-4x21"], "numa-4x12");
    names(&["compare", "--policies", "linux,linxu"], "linux");
    names(&["run", "no-pressure", "--policy", "linux+unmap=per-pag"], "per-page");
    names(&["compare", "--break", "flush-befor-free"], "flush-before-free");
    names(&["compare", "--polices", "linux"], "--policies");
}

#[test]
fn an_empty_policy_is_refused() {
    refused(&["compare", "--policies", "linux,"]);
    refused(&["compare", "--policies", ""]);
}

#[test]
fn a_policy_that_is_there_twice_is_refused_and_one_of_another_name_is_called_so() {
    names(&["compare", "--policies", "linux,quiet,linux"], "linux is there twice");
    let small = [
        "compare",
        "no-pressure",
        "--machine",
        "uma-8",
        "--scale",
        "2048",
        "--policies",
        "linux,linux+unmap=batch",
    ];
    let said = common::good(&small);
    assert!(said.contains("linux+unmap=batch is linux, by another name"), "{said}");
}

#[test]
fn threads_are_for_who_takes_them_and_at_most_one_a_cpu() {
    names(&["run", "no-pressure", "--threads", "2"], "only swap-threads and vmap-touch");
    names(&["run", "vmap-touch", "--machine", "uma-8", "--threads", "9"], "1 to 8");
    names(&["run", "vmap-touch", "--threads", "0"], "1..=4096");
}

#[test]
fn numbers_out_of_range_say_the_range() {
    for cpus in ["0", "-1", "4097"] {
        names(&["compare", "--cpus", cpus], "1..=4096");
    }
    names(&["compare", "--cpus", "many"], "'--cpus <N>'");
    for (flag, value) in
        [("--scale", "0"), ("--runs", "0"), ("--seed", "-1"), ("--jobs", "0"), ("--scale", "0.5")]
    {
        names(&["compare", flag, value], flag);
    }
    names(&["compare", "--seed", "18446744073709551615", "--runs", "2"], "--seed");
}

#[test]
fn a_constant_that_does_not_exist_or_make_sense_is_refused() {
    names(&["compare", "--set", "nothing"], "KEY=VALUE");
    names(&["compare", "--set", "no_such_constant=5"], "no_such_constant");
    names(&["compare", "--set", "invlpg=-5ns"], "negative");
    names(&["compare", "--set", "cpus=9999"], "1 to 4096");
    names(&["compare", "--scale", "100000000"], "less than its tables need");
}

#[test]
fn a_machine_file_that_is_broken_or_missing_is_named() {
    let path = file("broken.toml", b"name = [");
    let path = path.to_str().unwrap();
    names(&["compare", "--machine", path], "broken.toml");
    names(&["compare", "--machine", "/nowhere/machine.toml"], "machine.toml");
    let path = file("empty.toml", b"");
    names(&["compare", "--machine", path.to_str().unwrap()], "empty.toml:1");
}

#[test]
fn all_faults_of_a_machine_file_are_said_at_once_each_with_its_line() {
    let path =
        file("unknown.toml", b"name = \"X\"\nfoo = 1\nbase = \"uma-8\"\n[cost]\nipi_send = 5\nivlpg = 3\n");
    let lines = faults(&["compare", "--machine", path.to_str().unwrap()]);
    let found: Vec<&str> = lines.iter().filter_map(|line| line.split("unknown.toml:").nth(1)).collect();
    let starts = [
        "1: the name `X`",
        "2: unknown key `foo`",
        "5: `ipi_send` is the number 5",
        "6: unknown key `ivlpg`",
    ];
    assert_eq!(found.len(), starts.len(), "{lines:?}");
    assert!(found.iter().zip(starts).all(|(line, start)| line.starts_with(start)), "{lines:?}");
    // The control: mended, it runs, and only what differs from its base had to be written.
    let good = b"name = \"mine\"\nbase = \"uma-8\"\n[cost]\nipi_send = { value = 5, unit = \"us\", source = \"measured\" }\n";
    let path = file("mine.toml", good);
    let listed = common::good(&["list", "--machine", path.to_str().unwrap()]);
    assert!(listed.contains("5 us (measured)"), "{listed}");
}

#[test]
fn a_number_with_a_dimension_needs_its_unit() {
    names(&["compare", "--set", "ipi_send=5"], "`ipi_send` of 5 has no unit; `ipi_send=5ns`");
    names(&["compare", "--set", "memory=64"], "has no unit");
    names(&["run", "no-pressure", "--set", "device.bandwidth=7e6"], "has no unit");
    let taken = ["run", "no-pressure", "--machine", "uma-8", "--scale", "2048", "--csv"];
    for set in ["lru_batch=7", "tick_hz=100", "mhz=3000", "ipi_send=0", "ipi_send=5ns", "tags=2"] {
        common::good(&[&taken[..], &["--set", set]].concat());
    }
}

#[test]
fn a_trace_that_is_none_is_named() {
    for (name, content) in
        [("empty.qtrace", &b""[..]), ("foreign.qtrace", b"#!/bin/sh\necho no trace at all\n")]
    {
        let path = file(name, content);
        names(&["run", "trace", "--trace", path.to_str().unwrap()], name);
        names(&["trace", "show", path.to_str().unwrap()], name);
    }
    names(&["run", "trace", "--trace", "/nowhere/at.qtrace"], "at.qtrace");
    names(&["run", "trace", "--trace", "no-such-name"], "no-such-name");
    names(&["run", "no-pressure", "--trace", "sort"], "trace");
}

#[test]
fn a_recording_cut_in_a_line_leaves_nothing_behind() {
    let input = file("cut.lackey", b"==1== Lackey\nI  04001000,3\n L 0400");
    let out = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("cut.qtrace");
    let _ = std::fs::remove_file(&out);
    let line = refused(&["trace", "import", input.to_str().unwrap(), "--output", out.to_str().unwrap()]);
    assert!(line.contains("cut.lackey:3"), "{line}");
    assert!(!out.exists());
}

#[test]
fn a_recording_of_what_cannot_be_is_replayed_to_its_end_and_says_so() {
    // A null pointer among others: the first 64 KiB cannot be mapped.
    let input = concat!(env!("CARGO_MANIFEST_DIR"), "/corpus/recordings/odd.perf");
    let out = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("odd.qtrace");
    let out = out.to_str().unwrap();
    let told = common::good(&["trace", "import", input, "--output", out]);
    let found: Vec<&str> = told.lines().filter_map(|line| line.split("odd.perf:").nth(1)).collect();
    let starts = [
        "6: the clock jumps back",
        "8: a thread's number begins again",
        "9: events `unknown` say nothing here",
        "10: a line that is no event",
        "11: a call without its beginning or end",
        "13: the last line is cut",
        "13: the program seems to be app",
    ];
    assert_eq!(found.len(), starts.len(), "{told}");
    assert!(found.iter().zip(starts).all(|(line, start)| line.starts_with(start)), "{told}");
    let text = common::good(&["run", "trace", "--trace", out, "--machine", "uma-8"]);
    assert!(text.contains("steps mended") && text.contains("pages below 0x10000"), "{text}");
}

/// A capture that says who unmaps what, of one thread.
const STRACE: &str = "100 1700000000.000001 munmap(0x7f0000000000, 4096) = 0 <0.000500>\n";

/// What came of an import of what is piped in.
fn piped(input: &[u8], out: &std::path::Path) -> std::process::Output {
    use std::io::Write as _;
    let mut command = common::quietmm(&["trace", "import", "-", "--output", common::text(out)]);
    command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
    let mut child = command.stderr(std::process::Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    child.wait_with_output().unwrap()
}

#[test]
fn a_capture_may_come_through_a_pipe_and_what_is_none_is_told_for_what_it_is() {
    let folder = common::folder("bad_input", "piped");
    let out = folder.join("out.qtrace");
    let taken = piped(STRACE.as_bytes(), &out);
    assert_eq!(taken.status.code(), Some(0), "{}", String::from_utf8_lossy(&taken.stderr));
    assert!(common::good(&["trace", "show", common::text(&out)]).contains("munmap       1 call, 1 page, "));
    for (input, right) in [(&b"\x1f\x8b\x08"[..], "gzip -dc"), (b"PERFILE2", "perf script")] {
        let refused = piped(input, &folder.join("none.qtrace"));
        let said = String::from_utf8_lossy(&refused.stderr);
        assert!(refused.status.code() == Some(2) && said.contains(right), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }
    names(
        &["trace", "import", common::text(&out), "--output", common::text(&folder.join("x"))],
        "a trace already",
    );
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1, "nothing else is left");
}

#[cfg(unix)]
#[test]
fn a_pipe_is_not_replaced_by_a_trace() {
    let folder = common::folder("bad_input", "special");
    let pipe = folder.join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    for (name, text) in [("a.strace", STRACE), ("a.lackey", "==1== Lackey\n L 04222c50,8\n")] {
        std::fs::write(folder.join(name), text).unwrap();
        let input = folder.join(name);
        names(
            &["trace", "import", common::text(&input), "--output", common::text(&pipe)],
            "no file that can be replaced",
        );
    }
    assert!(!std::fs::metadata(&pipe).unwrap().is_file());
}

#[test]
fn a_workload_of_ones_own_is_shown_and_what_is_wrong_with_it_has_a_line() {
    let shown = common::good(&["trace", "show", "own:threads=3,rounds=5"]);
    assert!(shown.contains("threads      3, at most 3 at once; 1 space\n"), "{shown}");
    let path = file("own.toml", b"# mine\nthreads = 3\npages = 0\n");
    for command in [&["trace", "show"][..], &["explain", "--no-replay"], &["run", "trace", "--trace"]] {
        names(&[command, &[path.to_str().unwrap()]].concat(), "own.toml:3: pages=0: 1 to 65536");
    }
}

#[test]
fn what_could_not_be_kept_in_the_end_is_refused_before_it_is_made() {
    names(&["check", "unmap-write", "--save", "/nowhere/at/all"], "--save /nowhere/at/all: a directory");
    names(&["machine", "measure", "--name", "A B"], "--name");
    names(&["machine", "measure", "--name", ""], "--name");
}

#[test]
fn a_counterexample_that_cannot_be_read_is_named_with_the_line() {
    let path = file("cut.replay.toml", b"format = 1\nscenario = \"reclaim-unmap\"\nrule = \"fl");
    names(&["check", "--replay", path.to_str().unwrap()], "cut.replay.toml:3: ");
}

#[test]
fn a_rate_that_cannot_be_is_called_so() {
    names(&["machine", "cost", "--received", "-1"], "a rate of 0 or more");
    let more = "so many cannot have been received";
    assert!(common::good(&["machine", "cost", "--received", "1e18"]).contains(more));
    assert!(!common::good(&["machine", "cost", "--received", "12000"]).contains(more));
}

#[test]
fn what_is_missing_is_said_in_one_line() {
    names(&["run"], "WORKLOAD");
    names(&["compar"], "compare");
    names(&["xyzzy"], "demo");
    names(&["trace", "import"], "--output");
}

/// Memory that is small enough for a trace of a few pages is less than CPUs need: no such scale is offered.
#[test]
fn what_is_advised_where_memory_was_never_short_is_not_refused() {
    let trace = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus/traces/small.qtrace");
    let run = ["run", "trace", "--trace", common::text(&trace), "--machine", "uma-8"];
    let said = |args: &[&str]| common::good(args).split_whitespace().collect::<Vec<_>>().join(" ");
    let mut told = said(&run);
    assert!(told.contains("memory was never short"), "{told}");
    for _ in 0..8 {
        let advised = told
            .split_once("try --scale ")
            .map(|(_, rest)| rest.split([',', ' ']).next().unwrap().to_string());
        let Some(scale) = advised else { break };
        told = said(&common::with(&run, &["--scale", &scale]));
    }
    assert!(told.contains("try more --cpus, or a longer trace"), "{told}");
}
