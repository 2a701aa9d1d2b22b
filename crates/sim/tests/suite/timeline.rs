//! The timeline, against the core's own counters, the account of CPU time, and what has been kept of who interrupts whom.

use crate::common;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use common::{Figures, machine, policy, run, shared, spec};
use quietmm_sim::timeline::{Mark, Record, Timeline, Wanted, What, Window};
use quietmm_sim::{Own, Place, Report, Room, RunSpec, Scope, Workload};

/// How far a CPU may run ahead of the others, in nanoseconds.
const SLACK_NS: u64 = 600;
const ALL: Wanted = Wanted { window: Window::Between { from: 0, to: u64::MAX }, most: usize::MAX };

/// All but the timeline and the host's own.
fn bytes(report: &Report) -> String {
    let Report { metrics, latencies, host, stories, notes, profile, traffic, .. } = report;
    format!("{metrics:?}\n{latencies:?}\n{stories:?}\n{notes:?}\n{profile:?}\n{traffic:?}\n{}", host.events)
}

fn timeline(report: &Report) -> &Timeline {
    report.timeline.as_ref().expect("it was asked for")
}

fn small(workload: Workload, name: &str, scale: u32, text: &str) -> RunSpec {
    let (profile, traffic) = (true, true);
    RunSpec { machine: machine(name), scale, policy: policy(text), profile, traffic, ..spec(workload) }
}

fn specs() -> [RunSpec; 6] {
    let mut stalls = small(Workload::Hotplug, "stress-4x4", 1, "linux");
    stalls.scale = Workload::Hotplug.default_scale();
    [
        small(Workload::Reader, "opteron-2x4", 2048, "linux"),
        small(Workload::Reader, "uma-8", 2048, "vanilla"),
        small(Workload::UnmapStorm, "uma-8", 1024, "linux"),
        small(Workload::VmapTouch, "opteron-2x4", 2048, "linux+vmap=sweep"),
        small(Workload::Reader, "uma-8", 2048, "quiet"),
        stalls,
    ]
}

fn asked(spec: &RunSpec) -> Arc<Report> {
    shared(&RunSpec { timeline: Some(ALL), ..spec.clone() })
}

fn sum<'a>(records: impl IntoIterator<Item = &'a Record>, of: impl Fn(&What) -> u64) -> u64 {
    records.into_iter().map(|record| of(&record.what)).sum()
}

/// The tracks of a CPU: what it did, and when it took no interrupts.
fn tracks(timeline: &Timeline) -> BTreeMap<(u16, bool), Vec<&Record>> {
    let mut tracks: BTreeMap<_, Vec<&Record>> = BTreeMap::new();
    for record in &timeline.records {
        match record.what {
            What::Task(_) | What::Place(_) => tracks.entry((record.cpu, false)).or_default().push(record),
            What::IrqsOff => tracks.entry((record.cpu, true)).or_default().push(record),
            _ => {}
        }
    }
    tracks
}

/// Time in which each place was innermost. Panics unless records nest.
fn innermost(track: &[&Record], own: &mut BTreeMap<String, u64>) {
    let mut open: Vec<&Record> = Vec::new();
    // By what they are, of which there are few, and only then by the name.
    let mut sums: Vec<(What, i64)> = Vec::new();
    let mut add = |what: What, ps: i64| match sums.iter_mut().find(|(other, _)| *other == what) {
        Some((_, sum)) => *sum += ps,
        None => sums.push((what, ps)),
    };
    for record in track {
        assert!(record.from <= record.to, "{record:?} ends before it begins");
        while open.last().is_some_and(|outer| outer.to <= record.from) {
            open.pop();
        }
        if let Some(outer) = open.last() {
            assert!(record.to <= outer.to, "{record:?} does not nest in {outer:?}");
            add(outer.what, -((record.to - record.from) as i64));
        }
        add(record.what, (record.to - record.from) as i64);
        open.push(record);
    }
    for (what, ps) in sums {
        *own.entry(format!("{what:?}")).or_default() += u64::try_from(ps).expect("no less than nothing");
    }
}

/// Whether the timeline of all of a run says what the run's other figures say.
fn adds_up(report: &Report, name: &str) {
    let timeline = timeline(report);
    let records = &timeline.records;
    assert_eq!((timeline.from_ps, timeline.to_ps, timeline.gone), (0, timeline.ended_ps, 0), "{name}");
    assert!(records.is_sorted_by_key(|record| record.from), "{name}");

    // Interrupts, and answers.
    let ipis = |what: &What| matches!(what, What::Ipi { .. });
    let ipis: Vec<&Record> = records.iter().filter(|record| ipis(&record.what)).collect();
    assert_eq!(ipis.len() as u64, report.count("ipis_sent"), "{name}: sent");
    let taken: BTreeSet<(u16, u64)> = ipis
        .iter()
        .filter_map(|record| match record.what {
            What::Ipi { target, taken: true } => Some((target, record.to)),
            _ => None,
        })
        .collect();
    assert_eq!(taken.len() as u64, report.count("ipis_received"), "{name}: received");
    let traffic = report.traffic.as_ref().expect("it was asked for");
    for (cpu, sent) in traffic.sent.iter().enumerate() {
        assert_eq!(ipis.iter().filter(|ipi| usize::from(ipi.cpu) == cpu).count() as u64, *sent, "{name}");
    }
    let targets = sum(records, |what| match what {
        What::Mark(Mark::Flush { targets, .. }) => u64::from(*targets),
        _ => 0,
    });
    let drained = report.count("drain_ipis_sent");
    let answers = sum(records, |what| u64::from(matches!(what, What::Acknowledged { .. })));
    // When memory goes offline CPUs are asked for pages that are bound for their lists: nothing counts that.
    let more = answers.checked_sub(targets + drained).expect("each that was asked answers");
    assert!(more == 0 || report.count("memory_blocks_offline") > 0, "{name}: {more} answers to nobody");

    // Time.
    let mut own = BTreeMap::new();
    let tracks = tracks(timeline);
    tracks.iter().filter(|((_, deaf), _)| !deaf).for_each(|(_, track)| innermost(track, &mut own));
    tracks.iter().filter(|((_, deaf), _)| *deaf).for_each(|(_, track)| {
        assert!(track.windows(2).all(|pair| pair[0].to <= pair[1].from && pair[0].from < pair[0].to));
    });
    let profile = report.profile.as_ref().expect("it was asked for");
    let all = u64::from(profile.cpus) * profile.span_ps;
    assert_eq!(own.values().sum::<u64>(), all, "{name}: every picosecond of every CPU once");
    // A free lock that is taken in no place.
    let tasks = own.iter().filter(|(what, _)| what.starts_with("Task")).map(|(_, ps)| ps).sum::<u64>();
    let (mut free_locks, mut more) = (0, tasks);
    for row in &profile.rows {
        let of = own.get(&format!("{:?}", What::Place(row.place))).copied().unwrap_or(0);
        let lock = matches!(row.place, Place::Core(scope) if scope.room() == Room::Locks);
        match row.place {
            // A lock that is free is its surroundings' time.
            _ if lock => free_locks += row.own_ps - of,
            Place::Own(Own::User | Own::Idle | Own::Off | Own::Stall | Own::Switch | Own::Syscall)
            | Place::Core(Scope::IpiWait | Scope::LocalFlush) => {
                assert_eq!(of, row.own_ps, "{name}: {}", row.place)
            }
            _ => more += of - row.own_ps,
        }
    }
    assert_eq!(more, free_locks, "{name}: and nothing else");

    // Reclaim, sweeps, memory.
    let batches = |given_back: bool| {
        sum(records, |what| match what {
            What::Batch { scanned, reclaimed, .. } => {
                u64::from(if given_back { *reclaimed } else { *scanned })
            }
            _ => 0,
        })
    };
    let both = |key: &str| report.count(&format!("{key}_kswapd")) + report.count(&format!("{key}_direct"));
    assert_eq!((batches(false), batches(true)), (both("pgscan"), both("pgsteal")), "{name}");
    let count = |is: fn(&What) -> bool| sum(records, |what| u64::from(is(what)));
    let sweeps = count(|what| matches!(what, What::Sweep { .. }));
    assert_eq!(sweeps, report.count("tlb_sweeps"), "{name}");
    let swept = count(|what| matches!(what, What::Mark(Mark::Swept)));
    assert_eq!(swept, report.count("tlb_sweep_flushes"), "{name}");
    let under_way = count(|what| matches!(what, What::KernelSweep { .. })) - report.count("vmap_sweeps");
    assert!(under_way <= 1, "{name}: {under_way}");
    let free: Vec<u64> = records
        .iter()
        .filter_map(|record| match record.what {
            What::Free { pages } => Some(u64::from(pages)),
            _ => None,
        })
        .collect();
    let last = traffic.moments.last().expect("a moment").used;
    let [first, end] = [free[0], free[free.len() - 1]];
    assert!(first <= traffic.frames && free.iter().all(|&free| free <= first), "{name}");
    assert!(first - end <= last + 1 && last <= first - end + 1, "{name}: {first} {end} {last}");
}

#[test]
fn a_timeline_changes_nothing_and_says_what_all_other_figures_say() {
    let mut sweeps = 0;
    for spec in specs() {
        let name = format!("{} with {}", spec.workload.name(), spec.policy);
        let (without, with) = (run(&spec), asked(&spec));
        assert!(without.timeline.is_none());
        let [left, right] = [bytes(&without), bytes(&with)];
        let differs = left.bytes().zip(right.bytes()).position(|(a, b)| a != b);
        let around =
            |text: &str, at: usize| text[at.saturating_sub(300)..(at + 60).min(text.len())].to_owned();
        assert_eq!(differs.map(|at| around(&left, at)), differs.map(|at| around(&right, at)), "{name}");
        assert_eq!(left.len(), right.len(), "{name}");
        adds_up(&with, &name);
        sweeps += with.count("tlb_sweeps");
    }
    assert!(sweeps > 0, "there are none to be counted");
}

#[test]
fn whoever_waits_for_an_answer_gets_it_while_it_waits() {
    let report = asked(&specs()[2]);
    let timeline = timeline(&report);
    let places = |scope: Scope| {
        let wanted = What::Place(Place::Core(scope));
        let mut of: BTreeMap<u16, Vec<(u64, u64)>> = BTreeMap::new();
        for record in timeline.records.iter().filter(|record| record.what == wanted) {
            of.entry(record.cpu).or_default().push((record.from, record.to));
        }
        of
    };
    let (calls, serves) = (places(Scope::IpiCall), places(Scope::IpiServe));
    let within = |of: &BTreeMap<u16, Vec<(u64, u64)>>, cpu: u16, ps: u64| {
        of.get(&cpu).is_some_and(|all| all.iter().any(|&(from, to)| from <= ps && ps < to))
    };
    let (mut count, mut late) = (0_u32, 0_u32);
    for record in &timeline.records {
        match record.what {
            What::Acknowledged { sender } => {
                assert!(within(&serves, record.cpu, record.from), "by who serves: {record:?}");
                // The sender may have seen it by its own clock: clocks differ by what CPUs may run ahead.
                let early =
                    (0..=SLACK_NS).any(|ns| within(&calls, sender, record.from.saturating_sub(ns * 1000)));
                assert!(early, "to who has asked: {record:?}");
                late += u32::from(!within(&calls, sender, record.from));
                count += 1;
            }
            What::Ipi { target, taken: true } => {
                assert!(within(&calls, record.cpu, record.from), "{record:?}");
                assert!(record.to > record.from && target != record.cpu, "{record:?}");
            }
            _ => {}
        }
    }
    assert!(count > 100 && late * 100 < count, "{late} of {count}");
}

/// A run whose timeline is spoilt, as the controls of `adds_up`.
fn spoilt(spoil: impl FnOnce(&mut Vec<Record>)) {
    let mut report = Arc::unwrap_or_clone(asked(&small(Workload::UnmapStorm, "uma-8", 1024, "linux")));
    adds_up(&report, "as it is");
    spoil(&mut report.timeline.as_mut().expect("it was asked for").records);
    adds_up(&report, "spoilt");
}

fn first(records: &[Record], is: fn(&What) -> bool) -> usize {
    records.iter().position(|record| is(&record.what)).expect("there is one")
}

#[test]
#[should_panic(expected = "spoilt: sent")]
fn an_interrupt_that_is_missing_is_seen() {
    spoilt(|records| {
        records.remove(first(records, |what| matches!(what, What::Ipi { .. })));
    });
}

#[test]
#[should_panic(expected = "each that was asked answers")]
fn an_answer_that_is_missing_is_seen() {
    spoilt(|records| {
        records.remove(first(records, |what| matches!(what, What::Acknowledged { .. })));
    });
}

#[test]
#[should_panic(expected = "does not nest")]
fn a_place_that_ends_too_late_is_seen() {
    let wait = |what: &What| *what == What::Place(Place::Core(Scope::IpiWait));
    spoilt(|records| {
        let nth = first(records, wait);
        records[nth].to += 100_000_000;
    });
}

#[test]
fn a_window_has_of_each_record_what_is_within_it_and_a_bound_is_held() {
    let spec = small(Workload::UnmapStorm, "uma-8", 1024, "linux");
    let whole = asked(&spec);
    let whole = timeline(&whole);
    let end = whole.ended_ps;
    let of = |window, most| run(&RunSpec { timeline: Some(Wanted { window, most }), ..spec.clone() });
    let (from, to) = (end / 3, end / 2);
    let windows = [
        (Window::Between { from, to }, from, to),
        (Window::Last(end / 4), end - end / 4, end),
        (Window::Between { from: to, to: u64::MAX }, to, end),
    ];
    for (window, from, to) in windows {
        let report = of(window, usize::MAX);
        let part = timeline(&report);
        assert_eq!((part.from_ps, part.to_ps, part.ended_ps, part.gone), (from, to, end, 0));
        let lasts = |what: &What| matches!(what, What::Task(_) | What::Place(_) | What::IrqsOff);
        let sort = |mut records: Vec<Record>| {
            records.retain(|record| lasts(&record.what));
            let of = |record: &Record| (record.cpu, record.from, record.to);
            let name = |record: &Record| format!("{:?}", record.what);
            records.sort_by(|a, b| of(a).cmp(&of(b)).then_with(|| name(a).cmp(&name(b))));
            records
        };
        let cut: Vec<Record> = whole
            .records
            .iter()
            .filter(|record| record.from < to && record.to > from)
            .map(|record| Record { from: record.from.max(from), to: record.to.min(to), ..*record })
            .collect();
        assert!(sort(part.records.clone()) == sort(cut), "{window:?}");
        assert!(part.records.len() < whole.records.len());
    }
    // Of too much the newest stay, and what stays is whole.
    let report = of(Window::Last(u64::MAX), 1000);
    let part = timeline(&report);
    assert!(part.records.len() <= 1000 && part.gone > 0 && part.from_ps > 0, "{}", part.records.len());
    let mut own = BTreeMap::new();
    tracks(part).iter().filter(|((_, deaf), _)| !deaf).for_each(|(_, track)| innermost(track, &mut own));
    let all = u64::from(part.cpus) * (part.to_ps - part.from_ps);
    assert_eq!(own.values().sum::<u64>(), all, "every picosecond of every CPU once");
}
