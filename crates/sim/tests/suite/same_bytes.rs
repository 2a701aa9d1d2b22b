//! The same spec gives the same report, whatever ran before and whatever runs beside it: nothing in a run may
//! depend on an address, a host clock, or the order of host threads.

use crate::common;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, Ordering};

use common::{Figures, machine, policy, run, spec};
use quietmm_sim::{Report, Rule, RunSpec, Watch, Workload};

/// Everything in a report that must not depend on the host, as text that shows every bit of every figure.
fn bytes(report: &Report) -> String {
    format!(
        "{:?}\n{:?}\n{:?}\n{:?}\n{}",
        report.metrics, report.latencies, report.stories, report.notes, report.host.events
    )
}

/// Small runs of different kinds: processes, threads, the bystander, a trace, and a rule broken.
fn specs() -> Vec<RunSpec> {
    let small = |workload: Workload, scale, cpus| {
        let mut spec = RunSpec { scale, ..spec(workload) };
        spec.machine = spec.machine.with_cpus(cpus).expect("so many of its CPUs");
        spec
    };
    let mut per_page = small(Workload::Reader, 4096, 12);
    per_page.policy = policy("linux+unmap=per-page");
    // The fewest CPUs with which it has a process that unmaps.
    let revisit = small(Workload::Revisit, 2048, 5);
    let storm = RunSpec { machine: machine("uma-8"), scale: 64, ..spec(Workload::UnmapStorm) };
    let mut broken = revisit.clone();
    broken.broken = Some(Rule::FlushBeforeUnmapReturns);
    vec![
        small(Workload::Reader, 4096, 12),
        per_page,
        small(Workload::SharedReader, 4096, 12),
        small(Workload::Bystander, 4096, 12),
        small(Workload::Replay, 1024, 2),
        revisit,
        storm,
        broken,
    ]
}

/// Panics in the middle of a run, while others wait on stacks of their own.
struct Falls(AtomicU32);

impl Watch for Falls {
    fn progress(&self, _done: u64, _total: u64) {
        assert!(self.0.fetch_add(1, Ordering::Relaxed) < 5, "it falls");
    }
    fn cancelled(&self) -> bool {
        false
    }
}

/// A sweep has one point's panic written down, and goes on in the same process.
#[test]
fn a_run_that_panics_leaves_nothing_behind() {
    for spec in &specs()[..3] {
        let before = bytes(&run(spec));
        let fell = catch_unwind(AssertUnwindSafe(|| quietmm_sim::run(spec, &Falls(AtomicU32::new(0)))));
        let said = fell.err().and_then(|what| what.downcast_ref::<&str>().map(|said| (*said).to_string()));
        assert_eq!(said.as_deref(), Some("it falls"), "{}", common::what(spec));
        assert_eq!(before, bytes(&run(spec)), "{}", common::what(spec));
    }
}

#[test]
fn the_same_spec_gives_the_same_report_whatever_ran_before_and_runs_beside_it() {
    let specs = specs();
    let all = || specs.iter().map(|spec| bytes(&run(spec))).collect::<Vec<_>>();
    // Two host threads at once, one of them in the opposite order: memory is handed out differently, and each
    // run has others before and beside it.
    let (forward, backward) = std::thread::scope(|scope| {
        let forward = scope.spawn(all);
        let backward = scope.spawn(|| {
            let mut reports: Vec<_> = specs.iter().rev().map(|spec| bytes(&run(spec))).collect();
            reports.reverse();
            reports
        });
        (forward.join().expect("runs end"), backward.join().expect("runs end"))
    });
    for ((spec, a), b) in specs.iter().zip(&forward).zip(&backward) {
        assert_eq!(a, b, "{}", common::what(spec));
    }
    assert!(
        forward.last().is_some_and(|report| report.contains("skipped a step")),
        "stories are compared too"
    );
}

#[test]
fn another_process_with_other_addresses_gives_the_same_report() {
    // The host lays out every process anew. The child runs this same test, told to print.
    const CHILD: &str = "SAME_BYTES_CHILD";
    let specs = specs();
    let own: String = [0, 5].iter().map(|&i| bytes(&run(&specs[i]))).collect();
    if std::env::var_os(CHILD).is_some() {
        println!("report:{}:end", own.replace('\n', "\\"));
        return;
    }
    let name = "same_bytes::another_process_with_other_addresses_gives_the_same_report";
    let child = std::process::Command::new(std::env::current_exe().expect("this test"))
        .args(["--exact", name, "--nocapture"])
        .env(CHILD, "1")
        // Moves the stack, and heap blocks with it.
        .env("PADDING", "x".repeat(5000))
        .output()
        .expect("the same test again");
    let out = String::from_utf8_lossy(&child.stdout);
    let said = out.split("report:").nth(1).and_then(|rest| rest.split(":end").next());
    assert_eq!(said, Some(own.replace('\n', "\\").as_str()));
}

#[test]
fn another_seed_gives_other_figures() {
    for mut spec in [specs().swap_remove(0), specs().swap_remove(5)] {
        let first = run(&spec);
        spec.seed = 2;
        let second = run(&spec);
        assert_ne!(bytes(&first), bytes(&second), "{}", common::what(&spec));
        assert_ne!(first.figure("elapsed_s"), second.figure("elapsed_s"), "{}", common::what(&spec));
    }
}
