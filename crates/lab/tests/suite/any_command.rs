//! Any command line: words of the grammar in any order, with values that are right, nearly right, and anything.

use crate::common;

use std::time::Duration;

use common::limits::{behaves, limited};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

const WORKLOADS: [&str; 6] =
    ["no-pressure", "fork-storm", "page-alloc", "vmap-mix", "lru-file-mmap-read", "lru-file-map-read"];

fn words(words: &[&'static str]) -> impl Strategy<Value = String> + use<> {
    select(words.to_vec()).prop_map(String::from)
}

/// Text as nobody means it. No NUL, which no argument can have.
fn anything() -> impl Strategy<Value = String> {
    prop_oneof![
        "[^\u{0}]{0,12}",
        words(&[
            "",
            "-",
            "--",
            "-1",
            "0",
            "1e9",
            "99999999999999999999",
            "../..",
            "/",
            "\u{1b}[31m",
            "a\nb",
            "=",
            ",",
            "%n"
        ]),
        (1usize..5000).prop_map(|n| "x".repeat(n)),
    ]
}

/// A flag with its value, if it takes one. No `--output`, and no `--scale`: see `command`.
fn flag() -> impl Strategy<Value = Vec<String>> {
    let number = || prop_oneof![6 => (0u32..5).prop_map(|n| n.to_string()), 2 => any::<u64>().prop_map(|n| n.to_string())];
    let key = words(&[
        "invlpg",
        "cost.pause",
        "tags",
        "tlb.l1_ways",
        "memory",
        "cpus",
        "nodes",
        "swap.size",
        "tick_hz",
        "mhz",
    ]);
    let value =
        words(&["0", "1", "7ns", "3us", "1s", "16MiB", "1GiB", "9e9", "-1", "true", "64TiB", "100000"]);
    let with = |name: &'static str, value: BoxedStrategy<String>| {
        let value = prop_oneof![9 => value, 1 => anything()];
        value.prop_map(move |value| vec![name.to_owned(), value]).boxed()
    };
    let machines = [
        "uma-8",
        "vm-8",
        "ssd-8",
        "stress-4x4",
        "numa-4x12",
        "uma-9",
        "/nowhere/m.toml",
        "Cargo.toml",
        ".",
        "/dev/null",
    ];
    let policies = [
        "vanilla",
        "linux",
        "quiet",
        "linux,quiet",
        "linux+vmap=eager,linux",
        "linux+x=y",
        "linux+",
        ",",
        "+",
    ];
    prop_oneof![
        with("--machine", words(&machines).boxed()),
        with("--cpus", number().boxed()),
        with("--set", (key, value).prop_map(|(key, value)| format!("{key}={value}")).boxed()),
        with("--set", (anything(), anything()).prop_map(|(key, value)| format!("{key}={value}")).boxed()),
        with("--seed", any::<u64>().prop_map(|n| n.to_string()).boxed()),
        with("--runs", number().prop_filter("a thousand runs take long", |n| n.len() != 3).boxed()),
        with("--break", words(&["flush-before-free", "flush-befor-free", "give-back-what-failed"]).boxed()),
        with("--trace", words(&["sort", "/nowhere", "Cargo.toml", "/dev/zero", "."]).boxed()),
        with("--threads", number().boxed()),
        with("--parts", number().boxed()),
        with("--policy", words(&policies).boxed()),
        with("--policies", words(&policies).boxed()),
        with("--jobs", number().boxed()),
        with("--timeline", words(&["/nowhere/t.json", "/dev/null", "-", "."]).boxed()),
        with("--report", words(&["/nowhere/page.html", "/dev/null", "-", "."]).boxed()),
        with("--svg", words(&["/nowhere/story.svg", "/dev/null", "-", "."]).boxed()),
        with("--last", words(&["1us", "0", "2.5ms", "1h", "9e9s"]).boxed()),
        with("--from", words(&["0s", "1ms", "-1", "10001s"]).boxed()),
        words(&[
            "--profile",
            "--json",
            "--csv",
            "--stats",
            "--explain",
            "--help",
            "--version",
            "-h",
            "--",
            "--no-such"
        ])
        .prop_map(|word| vec![word]),
    ]
}

/// A whole command line. What runs has a scale, so that a run that is right is short too.
fn command() -> impl Strategy<Value = Vec<String>> {
    let flags = || vec(flag(), 0..5).prop_map(|flags| flags.concat());
    let scale = || prop_oneof![9 => words(&["2048", "3000", "1024"]), 1 => words(&["4294967295", "100000", "0", "-1", "x", ""])];
    let work = (words(&["run", "compare"]), vec(words(&WORKLOADS), 0..3), scale(), flags()).prop_map(
        |(form, workloads, scale, flags)| {
            // On a small machine unless the flags say another.
            let machine = if flags.iter().any(|flag| flag == "--machine") {
                vec![]
            } else {
                vec!["--machine", "uma-8"]
            };
            let fixed =
                ["--scale".to_owned(), scale].into_iter().chain(machine.into_iter().map(String::from));
            [form].into_iter().chain(workloads).chain(fixed).chain(flags).collect::<Vec<_>>()
        },
    );
    let list = flags().prop_map(|flags| [vec!["list".to_owned()], flags].concat());
    let show = (anything(), flags())
        .prop_map(|(file, flags)| [vec!["trace".to_owned(), "show".to_owned(), file], flags].concat());
    let import = (anything(), words(&["--window", "--epoch", "--limit", "--skip", "--foreign"]), anything())
        .prop_map(|(file, flag, value)| {
            let words = ["trace", "import", &file, "--output", "/nowhere/x.qtrace", &flag, &value];
            words.map(str::to_owned).to_vec()
        });
    let recordings =
        ["own:threads=2,rounds=2", "own:threads=3,operation=fork,rounds=3", "sort", "own:", "own:x=1", ""];
    let explain =
        (prop_oneof![4 => words(&recordings), 1 => anything()], flags()).prop_map(|(file, flags)| {
            let fixed = ["explain", &file, "--larger", "uma-8", "--cpus", "2,8"].map(str::to_owned);
            let machine = if flags.iter().any(|flag| flag == "--machine") {
                vec![]
            } else {
                vec!["--machine".to_owned(), "uma-8".to_owned()]
            };
            [&fixed[..], &machine[..], &flags[..]].concat()
        });
    let vary = [
        "cpus=1,2..4",
        "seed=1..3",
        "policy=linux,quiet",
        "ipi_send=100ns..400ns",
        "invlpg=0ns..1us:+500ns",
        "lru_batch=1..8:x4",
        "clean_write_walks=true,false",
        "threads=1,2",
        "cpus=1..5000",
        "seed=0..99999999999",
        "x=1",
        "cpus=",
        "=",
        "cpus=4..1",
        "ipi_send=1..2",
        "workload=no-pressure,page-alloc",
        "machine=uma-8,vm-8",
        "trace=sort,own:threads=2,rounds=2",
        "parts=0,1",
    ];
    let vary = vec(prop_oneof![9 => words(&vary), 1 => anything()], 0..3);
    let views = vec(
        words(&[
            "--shard=1/2",
            "--shard=3/2",
            "--out=/nowhere/a",
            "--out=/dev/null",
            "--csv=.",
            "--report=-",
        ]),
        0..2,
    );
    let sweep = (vec(words(&WORKLOADS[..3]), 0..3), vary, views, flags()).prop_map(
        |(workloads, vary, views, flags)| {
            let vary = vary.into_iter().map(|values| format!("--vary={values}"));
            let fixed = ["--scale=2048", "--machine=uma-8"].map(String::from);
            ["sweep".to_owned()]
                .into_iter()
                .chain(workloads)
                .chain(vary)
                .chain(fixed)
                .chain(views)
                .chain(flags)
                .collect()
        },
    );
    let merge =
        (vec(prop_oneof![words(&["Cargo.toml", "/dev/zero", "/nowhere", "."]), anything()], 0..3), flags())
            .prop_map(|(parts, flags)| {
                ["sweep", "merge", "--out=/nowhere/a"]
                    .map(String::from)
                    .into_iter()
                    .chain(parts)
                    .chain(flags)
                    .collect()
            });
    // `demo` and what is short for nothing: a long run, and no grammar.
    let chaos = vec(anything(), 0..5)
        .prop_filter("a subcommand by chance", |words| words.first().is_none_or(|w| w != "demo"));
    let scenarios = ["unmap-lazy", "tables-lazy", "drain-online", "unmap-lzay", "", "-"];
    let asked = prop_oneof![
        3 => words(&["--mutant=tables-to-lazy", "--mutant=nonsense", "--mutant=", "--deep=1", "--departures=3", "--departures=9"]),
        1 => words(&["--replay=Cargo.toml", "--replay=/dev/null", "--replay=/dev/zero", "--replay=.", "--replay=/nowhere"]),
        1 => anything(),
    ];
    // What is found is not to be left in the sources.
    let check =
        (vec(words(&scenarios), 1..4), vec(asked, 0..3), flags()).prop_map(|(scenarios, asked, flags)| {
            let fixed = ["--schedules=20", "--save=/nowhere"].map(String::from);
            ["check".to_owned()]
                .into_iter()
                .chain(scenarios)
                .chain(fixed)
                .chain(asked)
                .chain(flags)
                .collect::<Vec<_>>()
        });
    prop_oneof![6 => work, 2 => list, 2 => show, 2 => import, 2 => explain, 3 => check, 4 => sweep, 1 => merge, 2 => chaos]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn any_command_line_ends_in_success_or_one_line(args in command()) {
        if let Err(wrong) = behaves(&args) {
            prop_assert!(false, "{args:?}: {wrong}");
        }
    }
}

/// The controls: what must never be is seen.
#[test]
fn what_a_command_must_not_do_is_seen() {
    let within = |patience: u64, script: &str| {
        let args = ["-c", script].map(String::from);
        limited("sh", &args, Duration::from_secs(patience)).expect("a shell").judged()
    };
    let judged = |script: &str| within(1800, script);
    let waited = within(1, "exec sleep 100000").expect_err("it went on");
    assert!(waited.starts_with("it did not end"), "{waited}");
    for (script, what) in [
        ("echo \"thread 'main' panicked at x.rs\" >&2; exit 1", "a panic"),
        ("exit 101", "a foreign exit code"),
        ("kill -ABRT $$", "a signal ended it"),
        ("echo 'quietmm: one' >&2; echo two >&2; exit 2", "not a line of its own"),
        ("for i in $(seq 30); do echo 'quietmm: x' >&2; done; exit 2", "not one line"),
        ("echo 'quietmm: one' >&2; echo 'quietmm: two' >&2; exit 1", "not one line"),
        ("exit 2", "not one line"),
        ("echo 'error: x' >&2; exit 2", "not a line of its own"),
        ("echo some; echo 'quietmm: x' >&2; exit 2", "output, and yet refused"),
        ("echo 'quietmm: x' >&2", "a complaint, and yet success"),
        ("printf '\\033[31mred\\n'", "control characters"),
        ("printf '\\377\\n'", "not UTF-8"),
    ] {
        let wrong = judged(script).expect_err(script);
        assert!(wrong.starts_with(what), "{script}: {wrong}");
    }
    assert_eq!(judged("echo 'quietmm: x; y' >&2; exit 2"), Ok(2));
    assert_eq!(judged("echo done"), Ok(0));
    // And the limit of memory holds: this asks for more.
    let hog = judged("v=$(ulimit -v); [ \"$v\" != unlimited ] && echo \"$v\"");
    assert_eq!(hog, Ok(0));
}
