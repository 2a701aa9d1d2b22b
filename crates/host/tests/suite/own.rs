//! Workloads of one's own: what is asked for is in the recording, and what cannot be is told.

use quietmm_host::own::{Operation, Own};
use quietmm_host::summary::Summary;
use quietmm_workloads::trace::AnyTrace;

fn summary(text: &str) -> Summary {
    let bytes = Own::parse(text).unwrap().recording();
    match AnyTrace::parse(&bytes).unwrap() {
        AnyTrace::Operations(recording) => Summary::of(&recording, bytes.len() as u64),
        AnyTrace::Accesses(_) => panic!("not a recording of threads"),
    }
}

#[test]
fn each_operation_is_there_as_often_as_it_was_asked_for() {
    for (name, calls) in [("munmap", 1), ("madvise", 1), ("mprotect", 2), ("mremap", 1), ("fork", 1)] {
        let found = summary(&format!("threads=6,processes=2,operation={name},pages=4,rounds=10,sharing=2"));
        assert_eq!(found.calls[name].count, 6 * 10 * calls, "{name}");
        assert_eq!(found.faults, Some(6 * 10 * 4 * 3), "each page by three threads");
        let spaces = if name == "fork" { 2 + 60 } else { 2 };
        assert_eq!((found.spaces, found.most_alive), (spaces, if name == "fork" { 7 } else { 6 }), "{name}");
    }
}

#[test]
fn a_file_says_the_same_as_a_line() {
    let file = "# mine\nthreads = 16\noperation = \"madvise\" # of 4 pages\npages = 4\nthink = \"1_000us\"\n";
    let line = Own::parse("threads=16,operation=madvise,pages=4,rate=1000").unwrap();
    assert_eq!(Own::parse(file), Ok(line.clone()));
    assert_eq!((line.operation, line.think), (Operation::Madvise, 1_000_000));
    let uneven = summary("threads=7,processes=3,rounds=2");
    assert_eq!((uneven.threads, uneven.spaces), (7, 3));
}

#[test]
fn what_cannot_be_is_told_with_what_would_be_right() {
    for (text, wrong) in [
        ("threads", "`threads` has no value; KEY=VALUE"),
        ("threads=0", "threads=0: 1 to 4096"),
        ("think=5", "think=5: a time up to 10 s, such as 100us"),
        ("think=99999999999999999999s", "think=99999999999999999999s: a time up to 10 s, such as 100us"),
        ("operation=swapoff", "operation=swapoff: one of munmap, madvise, mprotect, mremap, fork"),
        (
            "thread=3",
            "unknown word `thread`; threads, processes, operation, pages, rounds, rate, think, sharing",
        ),
        ("threads=2,processes=3", "3 processes of 2 threads; a process has one at least"),
        ("threads=4,processes=2,sharing=2", "sharing=2: a process has 1 other threads; 0 to 1"),
        ("threads=4, threads=8", "threads is there twice; one of them"),
        ("rate=5,think=1us", "think is there beside rate; one of them"),
        ("threads=4096,rounds=1000000", "more than 20 million events; fewer threads, rounds or pages"),
    ] {
        assert_eq!(Own::parse(text).unwrap_err().to_string(), wrong);
    }
}

#[test]
fn what_is_wrong_in_a_file_is_told_with_its_line() {
    let line = |text: &str| Own::parse(text).unwrap_err().line;
    assert_eq!(line("# mine\nthreads = 4\npages = 0\n"), Some(3));
    assert_eq!(line("threads = 4\npages = 1\nthreads = 8\n"), Some(3));
    assert_eq!(line("threads = 2\nprocesses = 3\n"), None, "two lines say that together");
}
