//! `quietmm boot` beside an emulator that does what each test wants: what comes of machines that end well, panic, hang, or
//! talk nonsense. Those that really boot are in `boot.rs`.

use crate::common;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::Duration;

use common::{quietmm, refused};
use serde_json::Value;

/// What the emulator's stand-in begins with: the words of the image's command line become variables.
const WORDS: &str = r#"#!/bin/sh
here=$(dirname "$0")
while [ $# -gt 0 ]; do
    case $1 in -append) words=$2 ;; -smp) cpus=$2 ;; -m) memory=$2 ;; -accel) accel=$2 ;; esac
    shift
done
for word in $words; do
    case $word in workload=*) workload=${word#*=} ;; policy=*) policy=${word#*=} ;; seed=*) seed=${word#*=} ;; esac
done
head() { echo "{\"workload\":\"$workload\",\"policy\":\"$policy\",\"seed\":$seed,\"cpus\":$cpus,\"frames\":1000}"; }
counters() { echo "{\"counters\":{\"ipis_sent\":$1,\"ipis_received\":$1,\"nr_tlb_remote_flush_received\":$1,\"pgsteal_kswapd\":1000,\"progress\":10,\"wrong_contents\":0,\"elapsed_ns\":50000}}"; }
"#;

/// A machine that ends well: with `per-page` it takes 400 interrupts, else 100.
const GOOD: &str = r#"head
case $policy in *per-page*) counters 400 ;; *) counters 100 ;; esac
echo '{"operation":"map-cycle","count":4,"mean_ns":100.500,"least_ns":90,"most_ns":120}'
echo '{"end":"well"}'
exit 33
"#;

struct Fake {
    dir: PathBuf,
}

impl Fake {
    /// An emulator that does this.
    fn new(name: &str, does: &str) -> Fake {
        let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("fake-{name}"));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join("image"), "no kernel").unwrap();
        let program = dir.join("qemu-system-x86_64");
        fs::write(&program, format!("{WORDS}{does}")).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        Fake { dir }
    }

    fn command(&self, args: &[&str]) -> Command {
        let path = format!("{}:{}", self.dir.display(), std::env::var("PATH").unwrap());
        let mut command = quietmm(args);
        command.arg("--image").arg(self.dir.join("image")).env("PATH", path);
        command
    }

    fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    fn good(&self, args: &[&str]) -> String {
        let got = self.run(args);
        let stderr = String::from_utf8_lossy(&got.stderr);
        assert_eq!((got.status.code(), &*stderr), (Some(0), ""), "{args:?}");
        String::from_utf8(got.stdout).unwrap()
    }

    /// The one line of a run that failed.
    #[track_caller]
    fn fails(&self, args: &[&str], code: i32) -> String {
        let got = self.run(args);
        let stderr = String::from_utf8(got.stderr).unwrap();
        assert_eq!(got.status.code(), Some(code), "{stderr}");
        assert_eq!(String::from_utf8_lossy(&got.stdout), "");
        assert!(stderr.starts_with("quietmm: ") && stderr.lines().count() == 1, "{stderr}");
        stderr
    }

    /// Runs it with a time limit, a longer one if the machine has not got as far as `far` says: the host may be slow.
    #[track_caller]
    fn is_late(&self, far: impl Fn(&str) -> bool) -> String {
        for seconds in ["1", "8", "64", "512"] {
            let line = self.fails(&with(&["--timeout", seconds]), 1);
            // Whoever waited for the machine would hear how it ended.
            assert!(line.contains(&format!("not ended after {seconds} s")), "{line}");
            if far(&line) {
                return line;
            }
        }
        panic!("it has not begun");
    }

    fn pid(&self) -> Option<String> {
        fs::read_to_string(self.dir.join("pid")).ok().filter(|pid| pid.ends_with('\n'))
    }

    /// Waits until the machine has written its number.
    fn until_it_runs(&self, command: &mut Child) {
        while self.pid().is_none() {
            assert_eq!(command.try_wait().unwrap(), None, "it has ended");
            sleep(Duration::from_millis(10));
        }
    }

    /// Whether the machine that wrote its number is still there.
    fn runs(&self) -> bool {
        let pid = self.pid().expect("the machine has started");
        Path::new("/proc").join(pid.trim()).exists()
    }
}

const READER: &[&str] = &["boot", "lru-file-mmap-read"];

/// The only element of the list that is the JSON.
fn only(text: &str) -> Value {
    let all: Vec<Value> = serde_json::from_str(text).unwrap();
    assert_eq!(all.len(), 1, "{text}");
    all[0].clone()
}

fn with(args: &[&'static str]) -> Vec<&'static str> {
    READER.iter().chain(args).copied().collect()
}

#[test]
fn the_table_is_the_simulations_and_the_first_policy_is_the_baseline() {
    let fake = Fake::new("table", GOOD);
    let text = fake.good(READER);
    assert_eq!(
        text.lines().next().unwrap().split_whitespace().collect::<Vec<_>>(),
        ["linux+unmap=per-page", "linux"]
    );
    let row = |label: &str| {
        text.lines().find(|line| line.starts_with(label)).unwrap_or_else(|| panic!("{label}: {text}"))
    };
    assert!(row("IPIs sent ").contains("400 (  0.00%)") && row("IPIs sent ").contains("100 ( 75.00%)"));
    assert!(row("IPIs received/page").contains("0.1000 ( 75.00%)"), "{text}");
    // Times of host threads are shown and not judged.
    assert!(
        !row("Ops lru-file-mmap-read-elapsed").contains('%') && !row("map-cycle, ns").contains('%'),
        "{text}"
    );
    let counted = fake.good(&with(&["--accel", "icount"]));
    assert!(
        counted.contains("map-cycle, instructions") && counted.contains("instructions/page"),
        "{counted}"
    );
}

#[test]
fn json_has_every_figure_of_every_boot() {
    let fake = Fake::new("json", GOOD);
    let all = only(&fake.good(&with(&["--json", "--runs", "2", "--seed", "5"])));
    let runs = all["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 4);
    assert_eq!((&runs[0]["policy"], &runs[1]["seed"]), (&"linux+unmap=per-page".into(), &6.into()));
    assert_eq!(runs[0]["metrics"]["flushes_received_per_reclaimed_page"].as_f64(), Some(0.4));
    assert_eq!(runs[3]["metrics"]["ipis_received"], 100);
    assert_eq!(runs[3]["operations"]["map-cycle"]["least"], 90);
    // 2 GiB of files with 512 MiB of memory: the readers' files are ten times what the work is sized by.
    assert_eq!((&all["memory_mib"], &all["work_frames"]), (&512.into(), &52_429.into()));
    let line = all["command"].as_str().unwrap().strip_prefix("quietmm ").unwrap().to_string();
    let again: Vec<&str> = line.split(' ').chain(["--json"]).collect();
    let again = only(&fake.good(&again));
    assert_eq!(again, all, "the line that repeats it");
}

#[test]
fn a_machine_that_panics_says_where() {
    let fake = Fake::new(
        "panic",
        "head\necho 'half a li'\necho '{\"panic\":\"at reclaim.rs:7: no frame\",\"cpu\":3}'\nexit 37\n",
    );
    let line = fake.fails(READER, 1);
    assert!(
        line.contains("panicked on CPU 3: at reclaim.rs:7: no frame")
            && line.contains("linux+unmap=per-page, seed 1"),
        "{line}"
    );
}

#[test]
fn a_machine_that_hangs_is_killed_when_its_time_is_over() {
    let fake = Fake::new("hang", "echo $$ >\"$here/pid\"\nhead\nexec sleep 600\n");
    let line = fake.is_late(|_| fake.pid().is_some());
    assert!(line.contains("--timeout"), "{line}");
    assert!(!fake.runs());
}

#[test]
fn a_machine_that_never_stops_talking_is_killed_too() {
    let fake = Fake::new("endless", "exec yes '{\"wrong\":\"nonsense\"} and more'\n");
    fake.is_late(|line| line.contains("and more"));
}

#[test]
fn rubbish_is_no_result() {
    for (name, does, says) in [
        ("silent", "exit 33\n", "without a word on how"),
        ("binary", "printf '\\000\\377\\033[2J\\n{\\n'\nexit 33\n", "without a word on how"),
        ("foreign", "echo '{\"end\":\"well\"}'\nexit 33\n", "does not say what it ran"),
        ("countless", "head\necho '{\"end\":\"well\"}'\nexit 33\n", "no counters"),
        (
            "other",
            "policy=quiet\nhead\ncounters 1\necho '{\"end\":\"well\"}'\nexit 33\n",
            "not what was asked for",
        ),
        ("usage", "echo '{\"usage\":\"work=1: no such key\"}'\nexit 39\n", "work=1: no such key"),
        (
            "broken",
            "echo 'cannot load the kernel' >&2\nexit 1\n",
            "ended with code 1: cannot load the kernel",
        ),
        (
            "failed",
            "head\ncounters 1\necho '{\"end\":\"failed\",\"why\":\"2 contents were wrong\"}'\nexit 35\n",
            "2 contents were wrong",
        ),
        ("signal", "kill -9 $$\n", "by a signal"),
    ] {
        let line = Fake::new(name, does).fails(READER, 1);
        assert!(line.contains(says), "{name}: {line}");
        assert!(!line.contains('\u{1b}'), "{name}: {line}");
    }
    let refused = "echo '{\"end\":\"refused\",\"why\":\"memory is too small\"}'\nexit 35\n";
    assert!(Fake::new("refused", refused).fails(READER, 2).contains("memory is too small"));
}

#[test]
fn what_a_broken_rule_leads_to_is_the_result() {
    let harm = "head\necho '{\"wrong\":\"0x1000 shows 2\",\"cpu\":1}'\ncounters 5\necho '{\"end\":\"failed\",\"why\":\"1 contents\"}'\nexit 35\n";
    let fake = Fake::new("harm", harm);
    let text = fake.good(&with(&["--break", "flush-before-free", "--policies", "linux"]));
    assert!(text.contains("CPU 1: 0x1000 shows 2") && text.contains("flush-before-free"), "{text}");
    let panics = Fake::new("harm-panic", "echo '{\"panic\":\"gone\",\"cpu\":0}'\nexit 37\n");
    let text = panics.good(&with(&["--break", "flush-before-free", "--policies", "linux"]));
    assert!(text.contains("panicked on CPU 0: gone"), "{text}");
}

#[test]
fn an_interruption_prints_what_has_finished_and_leaves_no_machine() {
    let fake = Fake::new(
        "interrupted",
        &format!("case $policy in linux) echo $$ >\"$here/pid\"; exec sleep 600 ;; esac\n{GOOD}"),
    );
    let mut child = fake.command(READER).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    fake.until_it_runs(&mut child);
    // Twice: the second must not leave before the machine is gone.
    for _ in 0..2 {
        let sent = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
        assert!(sent.success());
    }
    let got = child.wait_with_output().unwrap();
    assert_eq!(got.status.code(), Some(130));
    assert!(!fake.runs());
}

#[test]
fn one_interruption_shows_the_policies_that_finished() {
    let fake = Fake::new(
        "once",
        &format!("case $policy in linux) echo $$ >\"$here/pid\"; exec sleep 600 ;; esac\n{GOOD}"),
    );
    let report = fake.dir.join("page.html");
    let args = [READER, &["--report", report.to_str().unwrap()]].concat();
    let mut child = fake.command(&args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    fake.until_it_runs(&mut child);
    Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    let got = child.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&got.stdout);
    assert_eq!(got.status.code(), Some(130), "{text}");
    assert!(text.starts_with("INTERRUPTED: 1 of 2 runs") && text.contains("400"), "{text}");
    assert!(text.contains("only 1 of 2 runs finished"), "{text}");
    let page = fs::read_to_string(report).unwrap();
    assert!(
        page.contains("Interrupted: 1 of 2 runs finished") && page.contains("data-value=\"400\""),
        "{page}"
    );
    assert!(!fake.runs());
}

#[test]
fn a_report_has_what_a_machine_that_boots_counts() {
    let fake = Fake::new("report", GOOD);
    let report = fake.dir.join("page.html");
    let args = [READER, &["--report", report.to_str().unwrap()]].concat();
    assert_eq!(fake.good(READER), fake.good(&args));
    let page = fs::read_to_string(&report).unwrap();
    for (policy, ipis) in [(0, 400), (1, 100)] {
        let cell = format!("data-figure=\"ipis_sent\" data-policy=\"{policy}\" data-value=\"{ipis}\"");
        assert!(page.contains(&cell), "{cell}: {page}");
    }
    assert!(page.contains("map-cycle, ns") && page.contains("<svg "), "{page}");
    // Only the simulation sees who interrupts whom.
    assert!(!page.contains("Who interrupts whom"), "{page}");
}

#[test]
fn swap_gets_a_disk_that_has_no_name() {
    let does = format!(
        "stat -L -c %s /proc/self/fd/0 >\"$here/size\"; readlink /proc/self/fd/0 >\"$here/name\"\n{GOOD}"
    );
    let fake = Fake::new("disk", &does);
    fake.good(&["boot", "swap-threads", "--memory", "64M", "--policies", "linux"]);
    let read = |name| fs::read_to_string(fake.dir.join(name)).unwrap();
    assert_eq!(read("size").trim(), (256u64 << 20).to_string());
    assert!(read("name").trim().ends_with("(deleted)"), "{}", read("name"));
    fake.good(&with(&["--policies", "linux"]));
    assert_eq!(read("name").trim(), "/dev/null", "readers need none");
}

#[test]
fn a_missing_emulator_is_named_with_its_package() {
    let fake = Fake::new("missing", "");
    let got = fake.command(READER).env("PATH", "/nowhere").output().unwrap();
    let line = String::from_utf8_lossy(&got.stderr);
    assert_eq!(got.status.code(), Some(1), "{line}");
    assert!(
        line.contains("qemu-system-x86_64 is missing") && line.contains("apt-get install qemu-system-x86"),
        "{line}"
    );
    assert_eq!(line.lines().count(), 1);
}

#[test]
fn without_an_image_one_line_says_how_to_get_it() {
    // Outside of the repository, which is looked for where the command lies and where it is called.
    let dir = std::env::temp_dir().join(format!("quietmm-elsewhere-{}", std::process::id()));
    fs::create_dir_all(&dir).unwrap();
    let program = dir.join("quietmm");
    // By a process of its own: another test's child would hold a file that this one writes, and it could not be run.
    let copied = Command::new("cp").arg(env!("CARGO_BIN_EXE_quietmm")).arg(&program).status().unwrap();
    assert!(copied.success());
    let got = Command::new(&program).args(READER).current_dir(&dir).output().unwrap();
    fs::remove_dir_all(&dir).unwrap();
    let line = String::from_utf8_lossy(&got.stderr);
    assert_eq!(got.status.code(), Some(2), "{line}");
    assert!(
        line.contains("--image") && line.contains("scripts/metal") && line.lines().count() == 1,
        "{line}"
    );
}

#[track_caller]
fn names(args: &[&str], word: &str) {
    let line = refused(args);
    assert!(line.contains(word), "{args:?} should name {word}: {line}");
}

#[test]
fn what_cannot_be_is_refused_before_anything_boots() {
    names(&["boot"], "WORKLOAD");
    names(&["boot", "lru-file-map-read"], "lru-file-mmap-read");
    names(&["boot", "trace"], "no trace");
    for cpus in ["0", "-1", "256"] {
        names(&["boot", "churn", "--cpus", cpus], "1..=255");
    }
    names(&["boot", "churn", "--cpus", "many"], "--cpus");
    names(&["compare", "churn", "--on", "metal", "--cpus", "256"], "1 to 255");
    for memory in ["0", "-1", "15M", "1025G", "lots", "1.5G", "99999999999999999999G"] {
        names(&["boot", "churn", "--memory", memory], "16M to 1024G");
    }
    names(&["boot", "churn", "--policies", "linxu"], "linux");
    names(&["boot", "churn", "--accel", "hvf"], "icount");
    names(&["boot", "churn", "--break", "flush-befor-free"], "flush-before-free");
    names(&["boot", "churn", "--period", "1000"], "icount");
    names(&["boot", "churn", "--threads", "2"], "only swap-threads and vmap-touch");
    names(&["boot", "vmap-touch", "--cpus", "4", "--threads", "5"], "1 to 4");
    names(&["boot", "churn", "--set", "ipi_send=2us"], "lru_batch");
    names(&["boot", "churn", "--set", "hz=1 test=lazy"], "without spaces");
    names(&["boot", "churn", "--timeout", "0"], "1..=86400");
    names(&["boot", "churn", "--image", "/nowhere/image"], "/nowhere/image");
    names(&["boot", "churn", "--image", "/"], "no image");
    names(&["boot", "churn", "--seed", "18446744073709551615", "--runs", "2"], "--seed");
    names(&["compare", "--memory", "512M"], "--on metal");
    names(&["compare", "--on", "metal", "--scale", "4"], "--scale");
    names(&["compare", "--on", "metal", "--machine", "uma-8"], "--machine");
    names(&["compare", "--on", "both", "--machine", "numa-4x12"], "4 nodes");
    names(&["compare", "--on", "both", "--break", "flush-before-free"], "--break");
    names(&["compare", "--on", "moon"], "metal");
}

#[test]
fn both_has_each_policy_on_both_and_how_far_they_differ() {
    let fake = Fake::new("both", GOOD);
    let args = ["compare", "--on", "both", "--work", "2M", "--json"];
    // The core of a machine with 1000 frames has no room for readers of four CPUs: the simulation says so.
    let line = fake.fails(&args, 2);
    assert!(line.contains("simulated: ") && line.contains("memory"), "{line}");
    let fake = Fake::new("both-larger", &GOOD.replacen("head", "head | sed 's/:1000}/:8000}/'", 1));
    let report = fake.dir.join("page.html");
    let all = only(&fake.good(&[&args[..], &["--report", report.to_str().unwrap()]].concat()));
    let page = fs::read_to_string(report).unwrap();
    assert!(page.contains("data-side=\"metal\"") && page.contains("data-side=\"simulation\""), "{page}");
    let pair = &all["runs"][0];
    let (metal, simulated) =
        (pair["metrics"]["ipis_received"].as_f64(), pair["simulation"]["ipis_received"].as_f64());
    assert_eq!((metal, &pair["frames"]), (Some(400.0), &8000.into()));
    let far = 100.0 * (simulated.unwrap() - 400.0) / 400.0;
    assert!((pair["difference_percent"]["ipis_received"].as_f64().unwrap() - far).abs() < 1e-5);
    assert_eq!((&all["accel"], &all["cpus"]), (&"icount".into(), &4.into()));
    let text = fake.good(&args[..5]);
    assert!(
        text.contains("verdict  linux+unmap=per-page: IPIs ") && text.contains("beside   uma-8 with 4 CPUs"),
        "{text}"
    );
}
