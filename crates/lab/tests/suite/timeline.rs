//! `--timeline`: read as a viewer reads it, by the rules of the format and nothing of what wrote it, and held against `--json`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::LazyLock;

use serde::Deserialize;
use serde_json::Value;

use crate::common::{QUICK, folder, good, output, quietmm, refused, studies, text, with};

const RUN: &[&str] = &["run", "lru-file-mmap-read", "--machine", "uma-8", "--scale", "2048"];

/// An event as the format has it. What a reader does not know it leaves.
#[derive(Clone, Deserialize)]
struct Event {
    name: String,
    ph: String,
    #[serde(default)]
    cat: String,
    #[serde(default)]
    ts: f64,
    #[serde(default)]
    dur: f64,
    pid: u64,
    #[serde(default)]
    tid: u64,
    id: Option<u64>,
    bp: Option<String>,
    #[serde(default)]
    args: BTreeMap<String, Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct File {
    trace_events: Vec<Event>,
    other_data: Value,
}

/// A span on a track.
#[derive(Debug)]
struct Span {
    name: String,
    cat: String,
    from: u64,
    to: u64,
    args: BTreeMap<String, Value>,
}

/// An end of an arrow: track, moment, and the spans that it is in, the innermost last.
#[derive(Debug)]
struct End {
    track: String,
    ns: u64,
    within: Vec<String>,
}

/// What a viewer has of one process.
#[derive(Default, Debug)]
struct Process {
    name: String,
    tracks: BTreeMap<String, Vec<Span>>,
    /// Beginnings and ends of arrows, by name and number.
    begins: BTreeMap<(String, u64), End>,
    ends: BTreeMap<(String, u64), End>,
    counters: BTreeMap<String, Vec<(u64, u64)>>,
    happens: Vec<(String, BTreeMap<String, Value>)>,
}

/// Nanoseconds: the same whether a reader cuts or rounds.
fn ns(us: f64) -> u64 {
    let ns = (us * 1000.0).round();
    assert!(us >= 0.0 && (us * 1000.0).floor() == ns && us * 1000.0 - ns < 0.1, "{us} us");
    ns as u64
}

/// Reads events as viewers do: by time, and of those of one moment in the order of the file.
fn view(mut events: Vec<Event>) -> Vec<Process> {
    let mut names = BTreeMap::new();
    let mut processes: BTreeMap<u64, Process> = BTreeMap::new();
    for event in events.extract_if(.., |event| event.ph == "M") {
        let name = || event.args["name"].as_str().expect("a name").to_string();
        match event.name.as_str() {
            "process_name" => processes.entry(event.pid).or_default().name = name(),
            "thread_name" => {
                let before = names.insert(event.tid, (event.pid, name()));
                assert!(before.is_none(), "one track with two names");
            }
            _ => assert!(event.args["sort_index"].is_number()),
        }
    }
    events.sort_by(|a, b| a.ts.total_cmp(&b.ts));
    let mut open: BTreeMap<u64, Vec<(u64, String)>> = BTreeMap::new();
    for event in events {
        let process = processes.get_mut(&event.pid).expect("a process with a name");
        let at = ns(event.ts);
        if event.ph == "C" {
            for (of, value) in event.args {
                let counter = process.counters.entry(format!("{} {of}", event.name)).or_default();
                counter.push((at, value.as_u64().expect("a number")));
            }
            continue;
        }
        let (pid, track) = names.get(&event.tid).expect("a track with a name").clone();
        assert_eq!(pid, event.pid, "a track of one process");
        let open = open.entry(event.tid).or_default();
        while open.last().is_some_and(|(to, _)| *to <= at) {
            open.pop();
        }
        match event.ph.as_str() {
            "X" => {
                let to = at + ns(event.dur);
                assert!(event.dur >= 0.0, "{} ends before it begins", event.name);
                if let Some((outer, name)) = open.last() {
                    assert!(to <= *outer, "{} at {at} on {track} does not nest in {name}", event.name);
                }
                open.push((to, event.name.clone()));
                let Event { name, cat, args, .. } = event;
                process.tracks.entry(track).or_default().push(Span { name, cat, from: at, to, args });
            }
            "i" => process.happens.push((event.name, event.args)),
            end => {
                let within = open.iter().map(|(_, name)| name.clone()).collect();
                let id = event.id.expect("an arrow has a number");
                let (ends, bp) = match end {
                    "s" => (&mut process.begins, None),
                    "f" => (&mut process.ends, Some("e".to_string())),
                    other => panic!("an event that is {other}"),
                };
                assert_eq!(event.bp, bp);
                let before = ends.insert((event.name, id), End { track, ns: at, within });
                assert!(before.is_none(), "two arrows with one number");
            }
        }
    }
    processes.into_values().collect()
}

fn read(path: &Path) -> File {
    serde_json::from_reader(std::io::BufReader::new(fs::File::open(path).unwrap())).expect("JSON")
}

/// The events of all of a run, and its JSON.
fn whole(args: &[&str], name: &str) -> (Vec<Event>, Value) {
    let path = folder("timeline", name).join("trace.json");
    let more = ["--json", "--profile", "--from", "0s", "--timeline", text(&path)];
    let all = studies(&with(args, &more));
    assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "only the trace is left");
    let file = read(&path);
    assert_eq!(file.other_data["runs"][0]["records_that_did_not_fit"], 0);
    (file.trace_events, all[0]["runs"][0].clone())
}

fn count(run: &Value, key: &str) -> u64 {
    run["metrics"][key].as_u64().unwrap_or_else(|| panic!("{key}"))
}

/// Whether a trace of all of a run says what its figures say.
fn adds_up(events: Vec<Event>, run: &Value) {
    let all = view(events);
    let [process] = &all[..] else { panic!("{} processes", all.len()) };
    let spans = |name: &'static str| process.tracks.values().flatten().filter(move |span| span.name == name);

    // Arrows.
    let named = |ends: &BTreeMap<(String, u64), End>, name: &str| {
        ends.keys().filter(|(other, _)| other == name).count() as u64
    };
    assert_eq!(process.begins.len(), process.ends.len(), "each arrow has two ends");
    assert_eq!(named(&process.begins, "IPI"), count(run, "ipis_sent"), "sent");
    let taken: BTreeSet<(&str, u64)> = process
        .ends
        .iter()
        .filter(|((name, _), _)| name == "IPI")
        .map(|(_, end)| (&end.track[..], end.ns))
        .collect();
    assert_eq!(taken.len() as u64, count(run, "ipis_received"), "received");
    let asked: u64 = process
        .happens
        .iter()
        .filter(|(name, _)| name == "flush asked of others")
        .map(|(_, args)| args["cpus"].as_u64().unwrap())
        .sum();
    let asked = asked + count(run, "drain_ipis_sent");
    assert_eq!(named(&process.begins, "acknowledgement"), asked, "acknowledged");
    let flushes = process.happens.iter().filter(|(name, _)| name == "flush asked of others").count();
    assert_eq!(flushes as u64, count(run, "nr_tlb_remote_flush"), "flushes");
    let mut late = 0;
    for (key, begin) in &process.begins {
        let end = process.ends.get(key).unwrap_or_else(|| panic!("{key:?} has no end"));
        assert!(begin.ns <= end.ns && begin.track != end.track, "{begin:?} {end:?}");
        let (from, to) = if key.0 == "IPI" { ("ipi_call", "interrupt") } else { ("ipi_serve", "ipi_call") };
        assert!(begin.within.iter().any(|name| name == from), "{key:?}: {begin:?}");
        // Whoever waits may be over with it already, by a clock that is behind.
        let within = end.within.iter().any(|name| name == to);
        assert!(within || key.0 != "IPI", "{key:?}: {end:?}");
        late += usize::from(!within);
    }
    assert!(late * 50 <= process.begins.len(), "{late} of {}", process.begins.len());

    // Spans, by how often and how long.
    let lines = ["busy", "idle"].map(|kind| run["profile"][kind].as_array().unwrap().clone());
    let line = |name: &str, key: &str| {
        let line = lines.iter().flatten().find(|line| line["name"] == name);
        line.map_or(0, |line| line[key].as_u64().unwrap())
    };
    for name in ["ipi_wait", "ipi_serve", "tlb_flush", "interrupt", "interrupt: timer tick", "leaving idle"] {
        assert_eq!(spans(name).count() as u64, line(name, "calls"), "{name}");
    }
    for name in ["ipi_wait", "task switch", "unmap_batch_flush"] {
        let (spans, lasted) = spans(name).fold((0, 0), |(n, ns), span| (n + 1, ns + span.to - span.from));
        let total = line(name, "total_ps") / 1000;
        let of_interrupts = line("interrupt", "total_ps") / 1000;
        assert!(
            lasted + spans >= total && lasted <= total + spans + of_interrupts,
            "{name}: {lasted} {total}"
        );
    }
    let cpus = run["profile"]["cpus"].as_u64().unwrap();
    for cpu in 0..cpus {
        // Some task has it all the time.
        let mut tasks = process.tracks[&format!("CPU {cpu}")].iter().filter(|span| span.cat == "task");
        let first = tasks.next().expect("a task");
        let last = tasks.fold(first.to, |to, next| {
            assert_eq!(to, next.from, "CPU {cpu}");
            next.to
        });
        let end = run["profile"]["span_ps"].as_u64().unwrap() / 1000;
        assert_eq!((first.from, last), (0, end));
        assert!(process.tracks.contains_key(&format!("CPU {cpu}, interrupts off")));
    }

    // Reclaim, sweeps, memory.
    let batches = |key: &str| -> u64 {
        let batches = ["batch of the active list", "batch of the inactive list"].into_iter().flat_map(spans);
        batches.map(|span| span.args[key].as_u64().unwrap()).sum()
    };
    let both = |key: &str| count(run, &format!("{key}_kswapd")) + count(run, &format!("{key}_direct"));
    assert_eq!((batches("scanned"), batches("reclaimed")), (both("pgscan"), both("pgsteal")));
    assert!(process.tracks["kswapd/0"].iter().any(|span| span.name == "awake"));
    let sweeps = process.tracks.get("sweeps").map_or(0, Vec::len) as u64;
    assert_eq!(sweeps, count(run, "tlb_sweeps"), "sweeps");
    let free = &process.counters["free memory pages"];
    assert!(free.len() > 100 && free.is_sorted_by_key(|(at, _)| at));
    assert!(free.iter().any(|(_, pages)| *pages < free[0].1 / 4), "memory gets short");
}

#[test]
fn a_trace_read_by_the_rules_of_its_format_says_what_json_says() {
    let (events, run) = whole(RUN, "all");
    assert!(count(&run, "ipis_sent") > 100);
    adds_up(events, &run);
    let (events, run) = whole(&with(RUN, &["--policy", "quiet"]), "quiet");
    assert!(count(&run, "tlb_sweeps") > 0);
    adds_up(events, &run);
}

/// A trace that adds up, and does not any more.
fn spoilt(spoil: impl FnOnce(&mut Vec<Event>)) {
    static SOUND: LazyLock<(Vec<Event>, Value)> = LazyLock::new(|| {
        let (events, run) = whole(&with(RUN, &["--cpus", "4"]), "to-be-spoilt");
        adds_up(events.clone(), &run);
        (events, run)
    });
    let (mut events, run) = SOUND.clone();
    spoil(&mut events);
    adds_up(events, &run);
}

fn first(events: &[Event], is: impl Fn(&Event) -> bool) -> usize {
    events.iter().position(is).expect("there is one")
}

#[test]
#[should_panic(expected = "each arrow has two ends")]
fn an_arrow_without_an_end_is_found() {
    spoilt(|events| {
        events.remove(first(events, |event| event.ph == "f"));
    });
}

#[test]
#[should_panic(expected = "does not nest")]
fn a_span_that_is_too_long_is_found() {
    spoilt(|events| {
        let nth = first(events, |event| event.name == "ipi_wait");
        events[nth].dur += 100.0;
    });
}

#[test]
#[should_panic(expected = "sent")]
fn an_interrupt_too_many_is_found() {
    spoilt(|events| {
        for ph in ["s", "f"] {
            let nth = first(events, |event| event.ph == ph);
            let id = Some(u64::MAX);
            events.push(Event { id, ..events[nth].clone() });
        }
    });
}

#[test]
fn what_is_printed_is_the_same_with_a_timeline_and_the_trace_is_the_same_each_time() {
    let path = folder("timeline", "same").join("trace.json");
    for form in [&[][..], &["--json"], &["--csv"]] {
        let args = with(QUICK, form);
        assert_eq!(good(&args), good(&with(&args, &["--timeline", text(&path)])), "{form:?}");
        if !form.is_empty() {
            continue;
        }
        let first = fs::read(&path).unwrap();
        good(&with(&args, &["--timeline", text(&path), "--jobs", "1"]));
        assert!(first == fs::read(&path).unwrap(), "replaced by the same trace");
    }
}

#[test]
fn a_comparison_has_a_process_for_each_policy_within_its_window() {
    let path = folder("timeline", "compare").join("trace.json");
    let windows = [
        (&[][..], None),
        (&["--last", "500us"], None),
        (&["--from", "2ms", "--to", "3.5ms"], Some((2_000_000, 3_500_000))),
        (&["--to", "1ms"], Some((0, 1_000_000))),
    ];
    for (flags, window) in windows {
        let runs = if flags.is_empty() { "2" } else { "1" };
        good(&[QUICK, flags, &["--runs", runs, "--timeline", text(&path)]].concat());
        let file = read(&path);
        let runs = file.other_data["runs"].as_array().unwrap().clone();
        let processes = view(file.trace_events);
        let names: Vec<&str> = processes.iter().map(|process| &process.name[..]).collect();
        let of = |policy: &str| format!("{policy}: lru-file-mmap-read on uma-8, seed 1");
        assert_eq!(names, [of("linux+unmap=per-page"), of("linux")], "the first seed of each");
        for (run, process) in runs.iter().zip(&processes) {
            let end = run["run_ended_ns"].as_u64().unwrap();
            let last = if flags.is_empty() { 2_000_000 } else { 500_000 };
            let (from, to) = window.unwrap_or((end - last, end));
            assert_eq!((run["from_ns"].as_u64(), run["to_ns"].as_u64()), (Some(from), Some(to)), "{flags:?}");
            let spans = || process.tracks.values().flatten();
            assert!(spans().all(|span| from <= span.from && span.to <= to));
            assert!(spans().any(|span| span.from == from) && spans().any(|span| span.to == to));
            assert!(process.begins.len() == process.ends.len() && spans().count() > 100);
        }
    }
}

#[test]
fn what_cannot_be_is_refused_before_anything_runs() {
    let folder = folder("timeline", "wrong");
    let file = folder.join("file");
    fs::write(&file, "mine").unwrap();
    // Runs of hours, if they began.
    let long = ["compare", "--scale", "1"];
    for (path, why) in [
        (folder.join("none/trace.json"), "there is no directory"),
        (file.join("trace.json"), "is no directory"),
        (folder.clone(), "no file that can be replaced"),
        (PathBuf::from("-"), "a file is needed"),
        (PathBuf::from("/proc/trace.json"), "cannot be written to"),
    ] {
        let line = refused(&with(&long, &["--timeline", text(&path)]));
        assert!(line.contains("--timeline") && line.contains(why), "{line}");
    }
    let path = folder.join("trace.json");
    let asked = with(&long, &["--timeline", text(&path)]);
    for (flags, why) in [
        (&["--report", text(&path)][..], "the report is written there"),
        (&["--from", "3ms", "--to", "3ms"], "--from must be before --to"),
        (&["--last", "0ms"], "shows nothing"),
        (&["--last", "1ms", "--to", "3ms"], "cannot be used with"),
        (&["--last", "1h"], "must be a time"),
    ] {
        let line = refused(&with(&asked, flags));
        assert!(line.contains(why), "{line}");
    }
    assert!(refused(&["compare", "--on", "both", "--timeline", text(&path)]).contains("--timeline"));
    for flag in ["--from", "--to", "--last"] {
        assert!(refused(&with(&long, &[flag, "1ms"])).contains("--timeline"), "{flag} alone");
    }
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 1, "nothing was written");
    assert_eq!(fs::read_to_string(&file).unwrap(), "mine");
}

#[test]
fn a_window_after_the_end_is_said_and_leaves_what_was_there() {
    let path = folder("timeline", "late").join("trace.json");
    fs::write(&path, "mine").unwrap();
    let got = output(&with(RUN, &["--from", "100s", "--timeline", text(&path)]));
    assert_eq!(got.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&got.stderr).contains("the longest run ended after"));
    assert_eq!(String::from_utf8_lossy(&got.stdout), good(RUN), "the figures are printed");
    assert_eq!(fs::read_to_string(&path).unwrap(), "mine");
}

#[test]
fn a_reader_who_leaves_early_leaves_the_trace() {
    let path = folder("timeline", "early").join("trace.json");
    let args = with(RUN, &["--last", "10us", "--timeline", text(&path)]);
    let mut child = quietmm(&args).stdout(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert!(!view(read(&path).trace_events).is_empty());
}

/// What a machine that boots noted, and its JSON.
fn booted(args: &[&str], name: &str) -> (File, Value) {
    let image = std::env::var("QUIETMM_IMAGE").expect("scripts/test-metal sets it");
    let path = folder("timeline", name).join("trace.json");
    let fixed =
        ["--image", &image, "--timeout", "3600", "--policies", "linux", "--json", "--timeline", text(&path)];
    let all = studies(&[&["boot"], args, &fixed].concat());
    (read(&path), all[0]["runs"][0].clone())
}

/// Whether its arrows lead from calls to interrupts; says how many there are, with those that were not taken.
fn leads(events: Vec<Event>) -> u64 {
    let all = view(events);
    let [process] = &all[..] else { panic!("{} processes", all.len()) };
    for (key, begin) in &process.begins {
        let end = process.ends.get(key).unwrap_or_else(|| panic!("{key:?} has no end"));
        assert!(begin.ns <= end.ns && begin.track != end.track, "{begin:?} {end:?}");
        // The first and the last that a CPU noted may have begun before what was kept, or not have ended in it.
        let at_an_edge = |of: &End| {
            let spans = &process.tracks[&of.track];
            spans.iter().all(|span| span.from >= of.ns) || spans.iter().all(|span| span.to <= of.ns)
        };
        for (of, name) in [(begin, "ipi_call"), (end, "interrupt")] {
            assert!(at_an_edge(of) || of.within.iter().any(|within| within == name), "{of:?}");
        }
    }
    let lost =
        process.happens.iter().filter(|(name, _)| name.starts_with("an interrupt that is lost")).count();
    for name in ["fault", "ipi_wait", "ipi_serve", "user work", "idle"] {
        assert!(process.tracks.values().flatten().any(|span| span.name == name), "{name}");
    }
    (process.begins.len() + lost) as u64
}

#[test]
#[ignore = "boots machines: scripts/test-metal"]
fn a_machine_that_boots_shows_its_last_interrupts_from_call_to_handler() {
    for accel in ["icount", "tcg"] {
        let args = ["unmap-storm", "--cpus", "4", "--memory", "64M", "--work", "1M", "--accel", accel];
        let (file, run) = booted(&args, accel);
        assert!(file.other_data["runs"][0]["records_that_did_not_fit"].as_u64() > Some(0));
        let arrows = leads(file.trace_events.clone());
        assert!(arrows > 10 && arrows < count(&run, "ipis_sent"), "{accel}: {arrows}");
        // The negative control: an arrow without an end is found.
        let mut spoilt = file.trace_events;
        spoilt.remove(spoilt.iter().position(|event| event.ph == "f").expect("an arrow"));
        assert!(std::panic::catch_unwind(|| leads(spoilt)).is_err());
    }
}

#[test]
fn a_machine_that_boots_has_no_window() {
    for flag in ["--last", "--from", "--to"] {
        assert!(refused(&["boot", "unmap-storm", "--timeline", "x.json", flag, "1ms"]).contains(flag));
        let compare = ["compare", "unmap-storm", "--on", "metal", "--timeline", "x.json", flag, "1ms"];
        assert!(refused(&compare).contains(flag));
    }
    assert!(refused(&["compare", "--on", "both", "--timeline", "x.json"]).contains("--timeline"));
}
