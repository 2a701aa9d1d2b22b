//! The hardware as machine descriptions set it: guarantees that are withdrawn, stalls.

use crate::common;

use common::{Figures, policy, refusal, run, shared, spec};
use quietmm_sim::{Report, RunError, RunSpec, Workload};

fn with(changes: &[(&str, &str)]) -> RunSpec {
    let mut spec = RunSpec { scale: 2048, ..spec(Workload::Revisit) };
    spec.machine = spec.machine.with_cpus(5).expect("five of its CPUs");
    changes.iter().for_each(|(key, value)| spec.machine.set(key, value).unwrap_or_else(|e| panic!("{e}")));
    spec
}

fn figures(report: &Report) -> String {
    format!("{:?} {:?}", report.metrics, report.stories)
}

#[test]
fn a_policy_whose_guarantee_the_machine_withdraws_is_refused() {
    for (policy_text, guarantee) in
        [("linux", "clean_write_walks"), ("vanilla+aging=no-flush", "unflushed_accessed")]
    {
        let key = format!("guarantees.{guarantee}");
        let spec = RunSpec { policy: policy(policy_text), ..with(&[(&key, "false")]) };
        let RunError::Refused(why) = refusal(&spec) else { panic!("{policy_text} ran") };
        assert!(why.contains(&format!("rests on {guarantee}, which uma-8 does not guarantee")), "{why}");
        assert!(why.contains(&format!("--set {key}=true")), "{why}");
    }
}

#[test]
fn stalls_change_what_happens_and_not_that_it_is_the_same_again() {
    let changes = [("stall_every", "200us"), ("stall", "20us")];
    let report = shared(&with(&changes));
    assert_eq!(figures(&report), figures(&run(&with(&changes))));
    let calm = shared(&with(&[]));
    assert_ne!(figures(&report), figures(&calm));
    assert!(report.figure("elapsed_s") > calm.figure("elapsed_s"));
    assert_eq!(report.count("lost_writes"), 0);
    assert_eq!(figures(&calm), figures(&run(&with(&[("stall", "20us")]))), "never is never, however long");
}
