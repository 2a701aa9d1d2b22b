//! A profile says where time went and takes none itself.

use crate::common;

use common::{Figures, machine, policy, run, shared, spec};
use quietmm_sim::{Own, Place, Profile, Report, Room, Rule, RunSpec, Scope, Wait, Workload};

/// All but the profile and the host's own.
fn bytes(report: &Report) -> String {
    let Report { metrics, latencies, host, stories, notes, .. } = report;
    format!("{metrics:?}\n{latencies:?}\n{stories:?}\n{notes:?}\n{}", host.events)
}

fn profile(report: &Report) -> &Profile {
    report.profile.as_ref().expect("it was asked for")
}

fn specs() -> Vec<RunSpec> {
    let small = |workload, scale| RunSpec { scale, ..spec(workload) };
    let mut storm = small(Workload::UnmapStorm, 64);
    storm.machine = machine("uma-8");
    let mut bystander = small(Workload::Bystander, 4096);
    bystander.machine = bystander.machine.with_cpus(12).expect("a quarter of its CPUs");
    let mut revisit = small(Workload::Revisit, 2048);
    revisit.machine = revisit.machine.with_cpus(5).expect("five of its CPUs");
    let mut buffers = small(Workload::DirBuffers, 1024);
    buffers.machine = buffers.machine.with_cpus(8).expect("eight of its CPUs");
    let broken = Some(Rule::FlushBeforeUnmapReturns);
    vec![
        small(Workload::Reader, 2048),
        bystander,
        RunSpec { policy: policy("linux+vmap=eager"), ..buffers },
        storm,
        RunSpec { broken, ..revisit },
        spec(Workload::Hotplug),
    ]
}

#[test]
fn a_profile_changes_nothing_else_and_adds_up_to_all_cpus_for_the_whole_time() {
    for (nth, spec) in specs().into_iter().enumerate() {
        let (without, with) = (shared(&spec), shared(&RunSpec { profile: true, ..spec.clone() }));
        assert!(without.profile.is_none());
        assert_eq!(bytes(&without), bytes(&with), "{}", spec.workload.name());
        let profile = profile(&with);
        let all: u64 = profile.rows.iter().map(|row| row.own_ps).sum();
        assert_eq!(all, u64::from(profile.cpus) * profile.span_ps, "{}", spec.workload.name());
        // The clock of the last task's CPU is read in nanoseconds; another CPU may be ahead of it by the engine's slack and what it does in one
        // piece: it wakes, and takes a tick.
        let beyond = profile.span_ps as f64 / 1e12 - with.figure("elapsed_s");
        let cost = &spec.machine.cost;
        let piece = cost.idle_wake + cost.tick_work + cost.irq_enter + cost.irq_exit;
        assert!((0.0..piece as f64 / 1e12 + 1e-6).contains(&beyond), "{}: {beyond} s", spec.workload.name());
        // Twice the same; `without` and `with` have shown so much of the rest of all.
        if nth % 3 == 0 {
            assert_eq!(Some(profile), run(&RunSpec { profile: true, ..spec.clone() }).profile.as_ref());
        }
    }
}

fn of(profile: &Profile, place: Place) -> f64 {
    let row = profile.rows.iter().find(|row| row.place == place);
    row.map_or(0.0, |row| row.own_ps as f64 / profile.busy_ps() as f64)
}

fn room(profile: &Profile, room: Room) -> f64 {
    let found = profile.rooms.iter().find(|(other, _)| *other == room);
    found.map_or(0.0, |(_, ps)| *ps as f64 / profile.busy_ps() as f64)
}

#[test]
fn the_one_lock_of_the_list_is_at_the_top_of_the_old_way_and_gone_from_the_new() {
    let with = |text: &str| {
        let mut spec = RunSpec { policy: policy(text), scale: 512, ..spec(Workload::DirBuffers) };
        spec.machine = spec.machine.with_cpus(32).expect("half of its CPUs");
        run(&RunSpec { parts: Some(28), profile: true, ..spec })
    };
    let (eager, lazy) = (with("linux+vmap=eager"), with("linux"));
    let old = profile(&eager);
    let lock = Place::Core(Scope::EagerListLock);
    assert_eq!(old.rows[0].place, lock, "{:?}", old.rows);
    assert!(of(old, lock) > 0.5);
    // Two takes for a map and one for an unmap.
    let calls = |place| old.rows.iter().find(|row| row.place == place).map_or(0, |row| row.calls);
    assert_eq!(calls(lock), 3 * calls(Place::Core(Scope::MapRam)));
    let new = profile(&lazy);
    assert_eq!(of(new, lock), 0.0);
    assert_eq!(new.rows[0].place, Place::Own(Own::User), "{:?}", new.rows);
    assert!(room(new, Room::Vmap) < room(old, Room::Vmap) / 2.0);
    // One ratio alone has no figure of the others.
    assert!(lazy.metrics.iter().all(|metric| metric.key != "ops_per_s_1"));
}

#[test]
fn batching_takes_the_time_that_reclaim_waits_for_other_cpus() {
    let with = |text: &str| {
        let mut spec = RunSpec { policy: policy(text), scale: 2048, profile: true, ..spec(Workload::Reader) };
        spec.machine = machine("uma-8");
        run(&spec)
    };
    let (per_page, batch) = (with("linux+unmap=per-page"), with("linux"));
    for report in [&per_page, &batch] {
        let served = profile(report).rows.iter().find(|row| row.place == Place::Core(Scope::IpiServe));
        let served = served.map_or(0, |row| row.calls);
        let received = report.count("ipis_received");
        assert!(served <= received && served > received * 9 / 10, "{served} of {received} found work");
    }
    let waited = |report| of(profile(report), Place::Core(Scope::IpiWait));
    assert!(waited(&per_page) > 4.0 * waited(&batch), "{} {}", waited(&per_page), waited(&batch));
}

#[test]
fn tasks_that_wait_for_the_disk_or_a_page_are_shown_apart() {
    let report = run(&RunSpec { profile: true, ..spec(Workload::Churn) });
    let profile = profile(&report);
    let slept = |wait| profile.slept.iter().find(|slept| slept.wait == wait).map_or(0, |slept| slept.count);
    assert!(slept(Wait::Device) > 0 && slept(Wait::Core(Scope::PageLock)) > 0, "{:?}", profile.slept);
    let cpu = of(profile, Place::Core(Scope::PageLock));
    let most = profile.slept.iter().map(|slept| slept.ps).max();
    assert!(most > Some((cpu * profile.busy_ps() as f64) as u64), "sleeping is no CPU time");
}
