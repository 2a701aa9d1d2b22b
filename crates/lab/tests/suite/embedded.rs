//! The command inside another program: what it prints, what it complains of, and how it is stopped.

use crate::common;

use std::fs;
use std::thread;
use std::time::Duration;

use quietmm_lab::{Caller, Sweep, obey};

fn quietmm(words: &[String]) -> std::process::Command {
    common::quietmm(&words.iter().map(String::as_str).collect::<Vec<_>>())
}

fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_string).collect()
}

#[test]
fn it_answers_what_the_command_prints_and_complains_as_it_does() {
    for line in [
        "compare unmap-storm --machine uma-8 --scale 1024 --policies linux,quiet --runs 2 --json",
        "run unmap-storm --machine uma-8 --scale 1024",
        "list --json",
        "--version",
        "run nothing-of-this-name",
        "run unmap-storm --set ipi_send=2parsecs",
        "compare --polices linux",
        "sweep merge nowhere.jsonl --out x.jsonl",
    ] {
        let words = words(line);
        let there = quietmm(&words).output().unwrap();
        let here = obey(&words, &Caller::default());
        assert_eq!(Some(i32::from(here.code)), there.status.code(), "{line}");
        assert_eq!(String::from_utf8_lossy(&here.output), String::from_utf8_lossy(&there.stdout), "{line}");
        let complaints: String = here.complaints.iter().map(|said| format!("quietmm: {said}\n")).collect();
        assert_eq!(complaints, String::from_utf8_lossy(&there.stderr), "{line}");
    }
}

/// Work that takes much longer than the test waits.
const LONG: &str = "compare lru-file-mmap-read --machine uma-8 --scale 1 --policies linux,quiet";

#[test]
fn its_caller_stops_it_and_nobody_else_and_sees_how_far_it_is() {
    let (stopped, other) = (Caller::default(), Caller::default());
    let answer = thread::scope(|scope| {
        let long = scope.spawn(|| obey(&words(LONG), &stopped));
        while stopped.progress().0 == 0 {
            assert!(!long.is_finished(), "it has ended");
            thread::sleep(Duration::from_millis(5));
        }
        let line = "run unmap-storm --machine uma-8 --scale 1024 --json";
        stopped.stop();
        assert_eq!(obey(&words(line), &other).code, 0, "another call goes on");
        long.join().unwrap()
    });
    assert_eq!((answer.code, answer.output.len()), (130, 0));
    assert!(!answer.complaints[0].contains("and 100% of all"), "{:?}", answer.complaints);
    let (done, all) = stopped.progress();
    assert!(all == 2000 && 0 < done && done < all, "{done} of {all}");
    assert_eq!(other.progress(), (1000, 1000));
}

#[test]
fn points_that_come_in_any_order_and_twice_make_the_bytes_of_one_sweep() {
    let folder = common::folder("embedded", "sweep");
    let (one, other) = (folder.join("one.jsonl"), folder.join("other.jsonl"));
    let grid = "unmap-storm --machine uma-8 --scale 1024 --vary policy=linux,quiet --vary seed=1..4";
    let with = |out: &std::path::Path| [words(grid), vec!["--out".into(), common::text(out).into()]].concat();
    let by_command = quietmm(&[vec!["sweep".to_string()], with(&one)].concat()).output().unwrap();
    assert!(by_command.status.success());
    let caller = Caller::default();
    // Whoever runs points knows nothing of the file.
    let worker = Sweep::of(&words(grid)).unwrap();
    {
        let mut sweep = Sweep::open(&with(&other)).unwrap();
        assert_eq!((worker.header(), sweep.missing()), (sweep.header(), (0..8).collect()));
        for points in [&[7, 2][..], &[0]] {
            for line in worker.run(points, &caller).unwrap() {
                assert_eq!(sweep.take(&line), Ok(true));
                assert_eq!(sweep.take(&line), Ok(false), "once is enough");
                assert_eq!(sweep.take(&line.replace("\"point\":", "\"point\":1")).unwrap_err().code, 1);
            }
        }
        assert_eq!(sweep.counts(), (8, 3));
        assert_eq!(sweep.conclude(&caller).code, 130, "not all is done");
    }
    let mut sweep = Sweep::open(&with(&other)).unwrap();
    let missing = sweep.missing();
    assert_eq!(missing, [1, 3, 4, 5, 6]);
    for line in worker.run(&missing, &caller).unwrap().iter().rev() {
        assert_eq!(sweep.take(line), Ok(true));
    }
    assert_eq!(sweep.conclude(&caller).code, 0);
    assert_eq!(fs::read(&one).unwrap(), fs::read(&other).unwrap());
    assert!(worker.run(&[8], &caller).unwrap_err().complaints[0].contains("the grid has 8"));
    caller.stop();
    assert_eq!(worker.run(&[0, 1], &caller), Ok(vec![]), "it was stopped");
}
