//! Swap on the simulated machine: what comes back is what went out, whatever fails; what it costs other CPUs; and what a sweep
//! does to a hot set.

use crate::common;

use std::sync::{Arc, Mutex};

use common::{Figures, machine, policy, refusal, run, shared, spec, what};
use quietmm_sim::{Report, RunError, RunSpec, Workload};

fn harm(report: &Report) -> [u64; 3] {
    ["stale_accesses", "lost_writes", "wrong_contents"].map(|key| report.count(key))
}

fn threads_spec(text: &str) -> RunSpec {
    RunSpec { policy: policy(text), scale: 256, ..spec(Workload::SwapThreads) }
}

/// `swap-threads` on 16 MiB.
fn threads(text: &str) -> Arc<Report> {
    let report = shared(&threads_spec(text));
    assert_eq!(harm(&report), [0; 3], "{text}: {:#?}", report.stories);
    assert!(report.count("pswpout") > 8000 && report.count("pswpin") > 6000, "{text}: it swapped");
    report
}

#[test]
fn what_aging_and_unmapping_cost_others_and_what_they_do_not() {
    let sent = |text| threads(text).figure("ipis_sent_per_reclaimed_page");
    let (both, aging, unmap, none) = (
        sent("linux+unmap=per-page+aging=flush"),
        sent("linux+aging=flush"),
        sent("linux+unmap=per-page"),
        sent("linux"),
    );
    assert!(both > aging && both > unmap, "{both} {aging} {unmap}");
    // Every page that goes out is dirty, and a batch of them is flushed once, by one interrupt a CPU.
    assert!(none < 7.0 / 32.0 && unmap > 4.0 * none && aging > 4.0 * none, "{aging} {unmap} {none}");
}

#[test]
fn the_devices_are_all_used_and_their_commands_carry_several_pages() {
    let report = threads("linux");
    let (out, back) = (report.count("pswpout"), report.count("pswpin"));
    let commands = report.count("swap_commands");
    assert!(commands * 2 < out + back, "{commands} commands for {out} and {back} pages");
    assert!(report.count("io_interrupts") <= commands);
    let busy = report.figure("swap_busy_percent");
    assert!(busy > 10.0 && busy <= 100.0, "{busy}");
    assert!(report.figure("swapouts_per_s") * report.figure("elapsed_s") > 0.99 * out as f64);
    assert_eq!((report.count("swap_errors"), report.count("swap_lost")), (0, 0));
    assert_eq!(
        format!("{:?}", report.metrics),
        format!("{:?}", run(&threads_spec("linux")).metrics),
        "again the same"
    );
}

#[test]
fn a_device_of_lower_priority_is_used_last() {
    let at_once = |report: &Report| report.figure("swap_in_flight") / report.figure("swap_busy_percent");
    let wide = at_once(&threads("linux"));
    let mut in_turn = threads_spec("linux");
    in_turn.machine.set("priority_step", "1").expect("a machine with swap");
    // On one device more commands are on their way at once while it is busy, for the others are not.
    let narrow = at_once(&run(&in_turn));
    assert!(narrow > 1.5 * wide, "{narrow} {wide}");
}

#[test]
fn a_hot_set_outlives_a_sweep() {
    let report = run(&RunSpec { scale: 256, ..spec(Workload::ScanResist) });
    assert_eq!(harm(&report), [0; 3], "{:#?}", report.stories);
    let hot = report.count("scan_hot_pages");
    assert_eq!(hot, 4096 * 3 / 8);
    assert!(report.count("pgevicted") > 4 * hot, "a sweep went through");
    let (back, lost) = (report.count("scan_hot_refaults"), report.count("scan_hot_lost"));
    // Each hot thread has half a CPU: while another program runs there its pages look idle.
    assert!(back < hot / 4 && lost < hot / 4, "{back} and {lost} of {hot}");
}

#[test]
fn without_the_flush_a_page_that_stays_in_the_tlb_is_reclaimed_wrongly() {
    // Two seeds: whether the lists turn while a page is in use is a matter of chance.
    let wrong = |text: &str| {
        let of = |seed| {
            let mut spec = RunSpec { policy: policy(text), scale: 512, seed, ..spec(Workload::ScanResist) };
            // As large as the hot set: an entry stays until it is flushed.
            spec.machine.set("l2_entries", "65536").expect("so many");
            run(&spec).count("wrong_reclaims")
        };
        [1, 3].map(of).iter().sum::<u64>()
    };
    // With the flush, a page that is used for the first time just when it is taken: one in some ten runs.
    let (flushed, cached) = (wrong("linux+aging=flush"), wrong("linux"));
    assert!(cached > 8 * flushed && cached > 0, "{flushed} and {cached}");
}

/// Seeds of `swap-churn` (every sixteenth has memory to spare), with changes to its machine.
fn churn(seeds: std::ops::Range<u64>, changes: &[(&str, &str)], check: impl Fn(&Report, &str) + Sync) {
    let seeds = Mutex::new(seeds);
    let work = || {
        while let Some(seed) = { seeds.lock().expect("no panic").next() } {
            let mut spec = RunSpec { seed, ..spec(Workload::SwapChurn) };
            changes.iter().for_each(|(key, value)| spec.machine.set(key, value).expect("a constant"));
            let (report, what) = (run(&spec), what(&spec));
            assert_eq!(harm(&report), [0; 3], "{what}: {:#?}", report.stories);
            check(&report, &what);
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(work);
        work();
    });
}

#[test]
fn what_comes_back_is_what_went_out_while_devices_fail_and_cpus_leave() {
    churn(1..9, &[], |report, what| {
        assert!(report.count("pswpout") > 500 && report.count("pswpin") > 500, "{what}: it swapped");
        assert!(report.count("swap_errors") > 0 && report.count("cpus_online") > 0, "{what}");
    });
}

#[test]
fn nothing_is_lost_while_no_device_fails() {
    churn(20..24, &[("read_errors", "0"), ("write_errors", "0")], |report, what| {
        assert_eq!((report.count("swap_errors"), report.count("swap_lost")), (0, 0), "{what}");
    });
}

#[test]
fn the_others_go_on_when_one_device_is_gone_and_one_is_full() {
    churn(33..37, &[("gone_at", "10ms"), ("full_at", "5ms")], |report, what| {
        assert!(report.count("swap_lost") > 0, "{what}: what the device had is lost");
        assert!(report.count("pswpout") > 200, "{what}");
    });
}

#[test]
fn a_machine_without_swap_devices_is_refused() {
    for workload in [Workload::SwapThreads, Workload::ScanResist, Workload::SwapChurn] {
        let RunError::Refused(why) = refusal(&RunSpec { machine: machine("uma-8"), ..spec(workload) }) else {
            panic!("not the user's to mend")
        };
        assert!(why.contains("uma-8 has none") && why.contains("ssd-8"), "{why}");
    }
}

/// `swap-threads` with memory of 64 MiB and a slow node.
fn tiers(sets: &[(&str, &str)]) -> Report {
    let mut spec = RunSpec { machine: machine("cxl-16"), ..threads_spec("linux") };
    sets.iter().for_each(|(key, value)| spec.machine.set(key, value).expect("a machine with a slow node"));
    let report = run(&spec);
    assert_eq!(harm(&report), [0; 3], "{sets:?}: {:#?}", report.stories);
    report
}

/// Pages of a program that is bound to the fast node leave that for the slow one before they go to swap.
#[test]
fn a_slow_node_takes_what_was_to_go_to_swap() {
    let bound = [("slow_fallback", "false"), ("slow.size", "20GiB")];
    let without = tiers(&bound);
    assert!(without.count("pswpout") > 50_000 && without.count("pswpin") > 50_000);
    assert_eq!(without.count("pgdemote"), 0, "nobody has asked for it");
    let with = tiers(&[bound[0], bound[1], ("demotion", "true")]);
    assert!(with.count("pgdemote") > 10_000, "{}", with.count("pgdemote"));
    for key in ["pswpout", "pswpin"] {
        assert!(
            with.count(key) * 3 < without.count(key),
            "{key}: {} {}",
            with.count(key),
            without.count(key)
        );
    }
    // New pages may come there: so it is used without demotion, too.
    let open = tiers(&[]);
    assert!(open.count("pswpout") * 4 < without.count("pswpout") * 3, "{}", open.count("pswpout"));
}

#[test]
fn what_is_on_the_slow_node_is_used_for_longer() {
    // Hot pages are among those that were demoted.
    let bound = [("slow_fallback", "false"), ("slow.size", "20GiB"), ("demotion", "true")];
    let user = |access| tiers(&[bound[0], bound[1], bound[2], ("slow.user_access", access)]).figure("user_s");
    let (near, far) = (user("2.5ns"), user("50ns"));
    assert!(far > 2.0 * near, "{near} {far}");
}
