//! `quietmm explain`: who interrupts whom, what it cost, what else it would have cost, and what to change.

use crate::common::page::{of, pointers, read, stands_alone};
use crate::common::{folder, good, output, refused, text, with};

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

/// Two threads of a program; one of them gives memory back four times, and interrupts the other each time.
const PERF: &str = "\
 app  50/50 [000]  1.000000:  raw_syscalls:sys_enter: NR 9 (0, 40000, 3, 22, ffffffff, 0)
 app  50/50 [000]  1.000010:  raw_syscalls:sys_exit: NR 9 = 139970000003072
 app  50/50 [000]  1.000020:  task:task_newtask: pid=51 comm=app clone_flags=3d0f00 oom_score_adj=0
";

/// A recording of them, as `trace import` makes it.
fn recording(name: &str) -> PathBuf {
    interrupts(name, "app  50/51")
}

/// The same, by whom the CPU was used that is interrupted.
fn interrupts(name: &str, whom: &str) -> PathBuf {
    let base = 139_970_000_003_072_u64;
    let mut text = PERF.to_owned();
    for round in 0..4u64 {
        let (at, page) = (1.001 + 0.0001 * round as f64, base + round * 4096);
        let touch = |tid, after: f64| {
            format!(
                " app  50/{tid} [{}]  {:.6}:  exceptions:page_fault_user: address={page:#x} ip=0x1 error_code=0x6\n",
                tid - 50,
                at + after
            )
        };
        text += &(touch(50, 0.0) + &touch(51, 0.000_005));
        let lines = [
            (
                50,
                20,
                format!(
                    "raw_syscalls:sys_enter: NR 28 ({page:x}, 1000, 4, 0, 0, 0)\n\t 7f00 drop_page+0x1 (/app)\n"
                ),
            ),
            (50, 22, "ipi:ipi_send_cpu: cpu=1 callsite=on_each_cpu+0x20 callback=generic_smp+0x0".to_owned()),
            (51, 25, "tlb:tlb_flush: pages:1 reason:remote shootdown (1)".to_owned()),
            (50, 30, "raw_syscalls:sys_exit: NR 28 = 0".to_owned()),
        ];
        for (tid, us, what) in lines {
            let after = f64::from(us) / 1e6;
            let who = if what.starts_with("tlb:") { whom.to_owned() } else { format!("app  50/{tid}") };
            text += &format!(" {who} [{}]  {:.6}:  {what}\n", tid - 50, at + after);
        }
    }
    // The other thread is there to the end.
    text +=
        " app  50/51 [1]  1.002000:  exceptions:page_fault_user: address=0x1000000 ip=0x1 error_code=0x6\n";
    let place = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (from, to) = (place.join(format!("{name}.txt")), place.join(format!("{name}.qtrace")));
    fs::write(&from, text).unwrap();
    good(&["trace", "import", from.to_str().unwrap(), "--output", to.to_str().unwrap()]);
    to
}

#[test]
fn whoever_interrupts_an_idle_cpu_waits_until_it_answers() {
    let explain = |path: &Path, how: &[&str]| {
        let words = ["explain", path.to_str().unwrap(), "--no-replay", "--machine", "modern-2x64"];
        good(&[&words[..], how].concat())
    };
    let all = |path: &Path| serde_json::from_str::<Value>(&explain(path, &["--json"])).unwrap();
    let (works, idle) = (recording("works"), interrupts("sleeps", "swapper  0/0"));
    let spent = |path: &Path| all(path)["change"][0]["cpu_ns"].as_f64().unwrap();
    let costs = &all(&idle)["recording"];
    let answers =
        costs["ns_each_sender_to_idle"].as_f64().unwrap() - costs["ns_each_sender"].as_f64().unwrap();
    assert!((answers - 4000.0).abs() < 0.1, "as the machine's idle_wake: {answers}");
    assert!((spent(&idle) - spent(&works) - 4.0 * answers).abs() < 0.1, "four times");
    let said = |path: &Path| explain(path, &[]).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(said(&idle).contains("and 4.00 us more where one is idle (4): "), "{}", said(&idle));
    assert!(!said(&works).contains("idle"), "{}", said(&works));
}

#[test]
fn what_took_no_time_has_no_rate_and_one_of_something_has_no_s() {
    let place = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (from, to) = (place.join("at-once.txt"), place.join("at-once.qtrace"));
    let capture = "\
 app  50/50 [000]  1.000000:  exceptions:page_fault_user: address=0x7f4d77000000 ip=0x1 error_code=0x6
 app  50/50 [000]  1.000000:  tlb:tlb_flush: pages:1 reason:remote shootdown (1)
";
    fs::write(&from, capture).unwrap();
    let said = good(&["trace", "import", text(&from), "--output", text(&to)]);
    assert!(
        said.contains("4 events of 1 thread in 0.000 s, from 2 lines; 0 lost; 1 shootdown received"),
        "{said}"
    );
    let said = good(&["explain", "--no-replay", text(&to)]);
    assert!(
        said.starts_with("the program: 0 s on 1 CPU, 1 thread (") && said.contains("no rate can be told"),
        "{said}"
    );
}

fn json(args: &[&str]) -> Value {
    serde_json::from_str(&good(&[&["explain", "--json"], args].concat())).expect("JSON")
}

#[test]
fn it_says_who_interrupts_whom_what_it_cost_and_what_to_change() {
    let file = recording("explained");
    let file = file.to_str().unwrap();
    let args = ["explain", file, "--machine", "uma-8", "--larger", "uma-8", "--cpus", "4,8"];
    let text = good(&args);
    assert_eq!(text, good(&[&args[..], &["--jobs", "1"]].concat()), "the same bytes");
    for said in [
        "CPUs were interrupted 4 times to flush for it",
        "app  madvise      4             4           4  100 %",
        "interrupts app (4).",
        "Most often (4) from drop_page.",
        " 1. madvise (4 interrupts",
        "process_madvise",
        "as recorded",
    ] {
        assert!(text.contains(said), "{said}: {text}");
    }
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    // Of the machine itself once, and of the same with fewer CPUs.
    assert_eq!(text.matches(" per-page   ").count(), 2, "{text}");
    assert_eq!(text.matches("linux, one call").count(), 2, "{text}");
}

#[test]
fn json_has_the_same_and_the_replay_interrupts_as_often_as_the_program_did() {
    let file = recording("json");
    let all = json(&[file.to_str().unwrap(), "--machine", "uma-8", "--larger", "uma-8", "--cpus", "2"]);
    assert_eq!((&all["shootdowns"], &all["recording"]["received"]), (&4.into(), &4.into()));
    let group = &all["groups"][0];
    assert_eq!((&group["cause"], &group["interrupting_calls"]), (&"madvise".into(), &4.into()));
    assert_eq!(group["stacks"][0]["stack"], "drop_page");
    assert_eq!(
        (&all["change"][0]["shootdowns"], &all["change"][0]["saved_by_bursts"]),
        (&4.into(), &3.into())
    );
    let replays = all["replays"].as_array().unwrap();
    assert_eq!(replays.len(), 8);
    // Four calls in one burst: three of four interrupts are spared.
    let reckoned: Vec<&Value> = replays.iter().filter(|row| row["reckoned"] == true).collect();
    assert_eq!((reckoned.len(), &reckoned[0]["received"]), (2, &1.into()));
    assert!(reckoned[0]["system_ns"].as_f64() < replays[0]["system_ns"].as_f64());
    let linux = replays.iter().find(|row| row["policy"] == "linux" && row["cpus"] == 2).unwrap();
    assert_eq!(linux["received"], 4, "{linux}");
    assert!(linux["ipis_ns"].as_f64() > Some(0.0) && linux["ipis_ns"].as_f64() < linux["system_ns"].as_f64());
}

#[test]
fn a_machine_of_ones_own_goes_by_the_name_of_its_file() {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("explained-mine.toml");
    fs::write(&path, "name = \"mine\"\nbase = \"uma-8\"\n").unwrap();
    let args = ["explain", "own:threads=1,rounds=2", "--machine", path.to_str().unwrap(), "--cpus", "64"];
    let text = good(&args);
    assert!(
        text.contains("\nexplained-mine     8  per-page")
            && text.contains("\nmodern-2x64       64  per-page"),
        "{text}"
    );
    assert!(text.contains("1 thread (") && text.contains("no call can have interrupted anybody"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
}

#[test]
fn where_nobody_recorded_interrupts_it_says_so_and_what_may() {
    let own = "own:threads=3,operation=munmap,rounds=20,sharing=2";
    let text = good(&["explain", own, "--no-replay"]);
    assert!(text.contains("was not recorded") && text.contains("record --by perf"), "{text}");
    assert!(text.contains("munmap (60 calls that may interrupt)"), "{text}");
    assert!(!text.contains("Replayed"));
    let all = json(&[own, "--machine", "uma-8", "--larger", "uma-8", "--cpus", "8"]);
    assert_eq!((&all["recording"]["received"], &all["change"][0]["cpu_ns"]), (&Value::Null, &Value::Null));
    assert!(all["replays"][1]["received"].as_u64() > Some(0));
}

#[test]
fn who_asked_is_said_where_strace_was_told_to_look() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (capture, trace) = (folder.join("stacks.strace"), folder.join("stacks.qtrace"));
    let calls = "\
100 1700000000.001000 mmap(NULL, 8192, PROT_READ, MAP_PRIVATE|MAP_ANONYMOUS, -1, 0) = 0x7f0000000000 <0.000010>
100 1700000000.002000 clone3({flags=CLONE_VM|CLONE_THREAD, exit_signal=0} => {parent_tid=[101]}, 88) = 101 <0.000100>
100 1700000000.003000 munmap(0x7f0000000000, 4096) = 0 <0.000020>
 > /usr/lib/libc.so.6(munmap+0xb) [0xfea37]
 > /usr/bin/program(purge+0x12) [0x1137]
";
    fs::write(&capture, calls).unwrap();
    good(&["trace", "import", capture.to_str().unwrap(), "-o", trace.to_str().unwrap()]);
    let text = good(&["explain", trace.to_str().unwrap(), "--no-replay"]);
    assert!(text.contains("munmap: Most often (1) from munmap < purge."), "{text}");
    assert_eq!(
        json(&[trace.to_str().unwrap(), "--no-replay"])["groups"][0]["stacks"][0]["stack"],
        "munmap;purge"
    );
}

#[test]
fn what_cannot_be_explained_is_one_line() {
    assert!(refused(&["explain", "sort"]).contains("knows no threads"));
    assert!(refused(&["explain", "/nowhere/x.qtrace"]).contains("/nowhere/x.qtrace"));
    assert!(refused(&["explain", "own:threads=2", "--machine", "uma-9"]).contains("uma-8"));
    assert!(refused(&["explain", "own:threads=2", "--larger", "uma-9"]).contains("uma-8"));
    assert!(refused(&["explain", "own:threads=2", "--cpus", "0"]).contains("--cpus"));
    let help = String::from_utf8(output(&["explain", "--help"]).stdout).unwrap();
    assert!(help.contains("Examples:") && help.contains("machine measure"), "{help}");
}

/// The page of this command line, and what it prints with `--json`.
fn page(args: &[&str], name: &str) -> (String, Value) {
    let path = folder("explain", name).join("page.html");
    let all = json(&with(args, &["--report", text(&path)]));
    (fs::read_to_string(path).unwrap(), all)
}

#[test]
fn a_page_has_the_numbers_of_json_and_says_who_interrupts_whom() {
    let file = recording("page");
    let args = [text(&file), "--machine", "uma-8", "--larger", "uma-8", "--cpus", "2"];
    let (recorded, all) = page(&args, "page");
    // Both matrices, what it costs, and two pictures of each machine.
    stands_alone(&recorded, 7);
    assert!(pointers(&recorded, &all) > 40);
    read(&recorded, |page| {
        let said: Vec<_> = of(page.root_element(), "desc").filter_map(|said| said.text()).collect();
        assert!(said.contains(&"app interrupts app 4 times."), "by thread: {said:?}");
        assert!(said.contains(&"madvise interrupts app 4 times."), "by call: {said:?}");
    });
    // What is printed stays the same.
    let (whole, path) = (with(&["explain"], &args), folder("explain", "same").join("page.html"));
    assert_eq!(good(&whole), good(&with(&whole, &["--report", text(&path)])));
    assert_eq!(recorded, fs::read_to_string(path).unwrap());
    // Without interrupts in the recording, and without replays.
    let own = "own:threads=3,operation=munmap,rounds=20,sharing=2";
    let (unknown, all) = page(&[own, "--no-replay"], "unknown");
    stands_alone(&unknown, 0);
    assert!(pointers(&unknown, &all) > 1 && unknown.contains("was not recorded"));
    // What is read is not written over.
    let line = refused(&with(&whole, &["--report", text(&file)]));
    assert!(line.contains("another name"), "{line}");
}

#[test]
#[should_panic(expected = "/shootdowns")]
fn a_number_of_a_page_that_is_another_is_found() {
    let file = recording("page-control");
    let (page, mut all) = page(&[text(&file), "--no-replay"], "control");
    all["shootdowns"] = 5.into();
    pointers(&page, &all);
}
