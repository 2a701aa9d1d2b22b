//! A machine whose hardware flushes all CPUs (`epyc-2x128`): nobody is interrupted, nothing stale is used, and it costs what it
//! costs.

use crate::common;

use common::{Figures, machine, policy, refusal, run, spec, what};
use quietmm_sim::{Report, Rule, RunError, RunSpec, Workload};

/// A workload on the first CPUs of such a machine, with so many MiB of memory.
fn on(workload: Workload, policy_text: &str, cpus: u32, mib: u64) -> RunSpec {
    let machine = machine("epyc-2x128").with_cpus(cpus).expect("so many CPUs");
    let scale = (machine.memory / (mib << 20)) as u32;
    RunSpec { machine, scale, policy: policy(policy_text), ..spec(workload) }
}

fn harm(report: &Report) -> [u64; 3] {
    ["stale_accesses", "lost_writes", "wrong_contents"].map(|key| report.count(key))
}

fn sound(spec: &RunSpec) -> Report {
    let report = run(spec);
    assert_eq!(harm(&report), [0; 3], "{}: {:#?}", what(spec), report.stories);
    report
}

#[test]
fn nobody_is_interrupted_where_hardware_flushes_all() {
    for workload in [Workload::UnmapStorm, Workload::Revisit] {
        let old = sound(&on(workload, "quiet+flush=ipi", 8, 32));
        let new = sound(&on(workload, "quiet", 8, 32));
        let name = workload.name();
        assert!(old.count("ipis_sent") > 0 && old.count("tlb_broadcasts") == 0, "{name}");
        assert!(new.count("tlb_broadcasts") > 0 && new.count("tlb_broadcast_entries") > 0, "{name}");
        // Lazy CPUs are made to let go of a space that ends.
        assert!(new.count("ipis_sent") * 20 < old.count("ipis_sent"), "{name}: {}", new.count("ipis_sent"));
    }
}

#[test]
fn a_cpu_waits_for_its_broadcasts_as_long_as_they_take() {
    let mut alone = on(Workload::UnmapStorm, "quiet", 8, 128);
    let wait = |spec: &RunSpec| sound(spec).figure("tlb_broadcast_wait_ns");
    // All pages of a flush need so many instructions, each after the other.
    let before = wait(&alone);
    assert!(before >= 800.0, "{before} ns: `broadcast_sync`");
    alone.machine.set("broadcast_sync", "10us").expect("a constant");
    let after = wait(&alone);
    assert!((9_000.0..9_500.0).contains(&(after - before)), "{before} and {after} ns");
    alone.machine.set("broadcast_pages", "1").expect("a constant");
    assert!(wait(&alone) > after + 500.0, "each page takes its turn");
}

#[test]
fn programs_at_random_find_what_they_should() {
    for (seed, text) in
        (7..15).zip(["quiet", "linux+flush=broadcast", "vanilla+flush=broadcast"].iter().cycle())
    {
        sound(&RunSpec { seed, ..on(Workload::Churn, text, 8, 64) });
    }
}

#[test]
fn what_is_not_waited_for_is_used() {
    let broken =
        |rule| RunSpec { broken: Some(rule), ..on(Workload::Revisit, "linux+flush=broadcast", 8, 32) };
    let report = run(&broken(Rule::SyncBroadcast));
    assert!(report.count("stale_accesses") > 1000, "{}", report.count("stale_accesses"));
    assert!(report.stories[0].to_string().contains("sync-broadcast"), "{}", report.stories[0]);
    let mut touch = on(Workload::VmapTouch, "linux+flush=broadcast", 8, 128);
    touch.machine.set("vmap_lazy_kib", "512").expect("a constant");
    sound(&touch);
    let report = run(&RunSpec { broken: Some(Rule::BroadcastGlobals), ..touch });
    assert!(report.count("stale_accesses") > 1000, "{}", report.count("stale_accesses"));
}

#[test]
fn a_machine_without_the_hardware_says_so() {
    let spec = RunSpec { policy: policy("linux+flush=broadcast"), ..spec(Workload::UnmapStorm) };
    let RunError::Refused(why) = refusal(&spec) else { panic!("not the user's to mend") };
    assert!(why.contains("does not have") && why.contains("epyc-2x128"), "{why}");
}
