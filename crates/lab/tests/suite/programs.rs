//! Programs that nobody here wrote, and one that maps and unmaps from all threads, on the machine that boots. What they print is
//! what they print on the host.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::{Duration, UNIX_EPOCH};

fn quietmm(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_quietmm")).args(args).output().expect("it runs")
}

fn boot(program: &str, args: &[&str]) -> Output {
    let image =
        std::env::var("QUIETMM_IMAGE").expect("QUIETMM_IMAGE names the image; scripts/test-metal sets it");
    // A limit that says that it hangs, however busy the host is.
    let fixed = ["boot", "--program", program, "--image", &image];
    let limit: &[&str] = if args.contains(&"--timeout") { &[] } else { &["--timeout", "3600"] };
    quietmm(&[&fixed, args, limit].concat())
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A directory for one test, gone with it.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let path = std::env::temp_dir().join(format!("quietmm-programs-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a directory for temporary files");
        Scratch(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What cannot be removed stays behind.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A program of ours, built for any Linux.
fn built(name: &str, scratch: &Scratch) -> String {
    let source = &format!("{}/tests/programs/{name}.c", env!("CARGO_MANIFEST_DIR"));
    let program = scratch.0.join(name).to_string_lossy().into_owned();
    let built = Command::new("cc").args(["-O1", "-static", "-pthread", "-o", &program, source]).status();
    assert!(built.is_ok_and(|status| status.success()), "cc builds {source}");
    program
}

/// Forks, pipes, files, arithmetic, exit codes.
const SCRIPT: &str = "i=0; while [ $i -lt 40 ]; do echo $(($(echo $i) * 7919 % 1000)) line $i; i=$((i+1)); done | sort -n | tee /tmp/sorted | \
    awk '{ s += $1; n++ } END { print s, n }'; wc -l < /tmp/sorted; grep -c 9 /tmp/sorted; sed -n 3p /tmp/sorted; (echo sub; exit 3); echo $?; \
    for i in 1 2 3 4 5 6 7 8 9; do (exit $i); echo $?; done | sort -rn | head -2; rm /tmp/sorted; test -e /tmp/sorted || echo gone; exit 7";

#[test]
#[ignore = "boots machines: scripts/test-metal"]
fn a_shell_with_pipes_prints_what_it_prints_on_the_host_unless_fork_leaves_out_its_flush() {
    let host =
        Command::new("busybox").args(["sh", "-c", SCRIPT]).output().expect("busybox; scripts/need qemu");
    assert_eq!(host.status.code(), Some(7));
    let program = format!("busybox sh -c '{}'", SCRIPT.replace('\'', "'\\''"));
    let on =
        |cpus: &str, more: &[&str]| boot(&program, &[&["--cpus", cpus, "--memory", "128M"], more].concat());
    for (cpus, policies) in [("1", "linux"), ("8", "linux,quiet")] {
        let ran = on(cpus, &["--policies", policies]);
        assert_eq!(text(&ran.stdout), text(&host.stdout), "{}", text(&ran.stderr));
        assert_eq!(ran.status.code(), Some(7), "{}", text(&ran.stderr));
    }
    // What a parent writes then its child sees: nothing comes out right, if it comes to an end.
    let broken = on("4", &["--break", "flush-before-fork-returns", "--timeout", "8"]);
    assert_ne!((broken.stdout, broken.status.code()), (host.stdout, Some(7)));
}

#[test]
#[ignore = "boots machines: scripts/test-metal"]
fn all_threads_map_and_unmap_and_find_what_they_wrote() {
    let scratch = Scratch::new("churn");
    let program = built("threads", &scratch);
    for policy in ["linux", "quiet"] {
        let ran = boot(
            &format!("{program} churn 8 40"),
            &["--cpus", "4", "--memory", "128M", "--policies", policy],
        );
        assert_eq!(text(&ran.stdout), "churn: 8 threads, 40 rounds, 0 wrong\n", "{}", text(&ran.stderr));
        assert_eq!(ran.status.code(), Some(0));
    }
}

#[test]
#[ignore = "boots machines: scripts/test-metal"]
fn a_page_that_is_mapped_anew_shows_nothing_old_unless_the_flush_is_left_out() {
    let scratch = Scratch::new("remap");
    let program = format!("{} remap 3 50", built("threads", &scratch));
    let machine = ["--cpus", "4", "--memory", "128M"];
    let sound = boot(&program, &machine);
    assert_eq!(text(&sound.stdout), "remap: 3 threads, 50 rounds, 0 wrong\n", "{}", text(&sound.stderr));
    let broken = boot(&program, &[&machine[..], &["--break", "flush-before-unmap-returns"]].concat());
    assert_eq!(broken.status.code(), Some(1), "{}{}", text(&broken.stdout), text(&broken.stderr));
    assert!(!text(&broken.stdout).contains(" 0 wrong"), "{}", text(&broken.stdout));
}

#[test]
#[ignore = "boots machines: scripts/test-metal"]
fn what_programs_wait_for_and_tell_each_other_is_as_on_the_host() {
    let scratch = Scratch::new("waits");
    let program = built("waits", &scratch);
    let host = Command::new(&program).output().expect("it runs");
    assert!(text(&host.stdout).lines().all(|line| line.ends_with(": 0")), "{}", text(&host.stdout));
    prints(&program, &["--with", "sh", "--memory", "128M"], &text(&host.stdout));
}

#[test]
#[ignore = "boots machines: scripts/test-metal"]
fn what_programs_ask_of_the_system_is_answered_as_on_the_host() {
    let scratch = Scratch::new("answers");
    let program = built("answers", &scratch);
    let host = Command::new(&program).output().expect("it runs");
    assert!(text(&host.stdout).lines().all(|line| line.ends_with(": 0")), "{}", text(&host.stdout));
    // Asked for all of it, whatever the host leaves out.
    prints(&format!("{program} all"), &["--memory", "128M"], &text(&host.stdout));
    // A program of Debian's that uses what works on long registers where a CPU has it, and does not ask whether the kernel keeps them.
    let sum = Command::new("cksum").arg(&program).output().expect("cksum");
    // And what a directory of the host's is like: who may do what there, and when it was last written.
    let kept = scratch.0.join("kept");
    fs::create_dir(&kept)
        .and_then(|()| fs::set_permissions(&kept, Permissions::from_mode(0o750)))
        .expect("new");
    fs::File::open(&kept)
        .and_then(|kept| kept.set_modified(UNIX_EPOCH + Duration::from_secs(987_654_321)))
        .expect("its own");
    let looks = r#"sh -c 'cksum /answers; stat -c "%a %Y" /kept'"#;
    let root = scratch.0.to_string_lossy();
    let with = ["--with", "cksum", "--with", "stat"];
    let ran = boot(looks, &[&["--root", &root, "--cpus", "1", "--memory", "64M"][..], &with].concat());
    let first = |bytes: &[u8]| text(bytes).split(' ').next().map(String::from);
    assert!(text(&ran.stdout).ends_with("\n750 987654321\n"), "{}{}", text(&ran.stdout), text(&ran.stderr));
    assert_eq!(first(&ran.stdout), first(&sum.stdout), "{}", text(&ran.stderr));
}

#[test]
#[ignore = "boots machines: scripts/test-metal"]
fn terminals_and_what_programs_were_found_to_need_are_as_on_the_host() {
    let scratch = Scratch::new("terminals");
    let program = built("terminals", &scratch);
    let host = Command::new(&program).output().expect("it runs");
    assert!(text(&host.stdout).lines().all(|line| line.ends_with(": 0")), "{}", text(&host.stdout));
    prints(&program, &["--memory", "128M"], &text(&host.stdout));
}

#[test]
#[ignore = "boots machines: scripts/test-metal"]
fn queues_requests_and_what_the_network_says_of_itself_are_as_on_the_host() {
    let scratch = Scratch::new("queues");
    let program = built("queues", &scratch);
    let host = Command::new(&program).current_dir(&scratch.0).output().expect("it runs");
    // Whoever may not have queues of messages on this host hears that there; here all parts end well.
    let well = "mailboxes: 0\nroom for mailboxes: 0\nrequests: 0\nnetwork: 0\nports: 0\n";
    assert_eq!(text(&host.stdout), well, "{}", text(&host.stderr));
    prints(&program, &["--memory", "64M"], well);
}

#[test]
#[ignore = "boots machines: scripts/test-metal"]
fn names_and_what_may_be_done_with_them_are_as_on_the_host() {
    let scratch = Scratch::new("names");
    let program = built("names", &scratch);
    let host = Command::new(&program).current_dir(&scratch.0).output().expect("it runs");
    let well = "ports: 0\nended: 0\nurgent: 0\ndescribed: 0\nwatched: 0\nnameless: 0\nrights: 0\n";
    assert_eq!(text(&host.stdout), well, "{}", text(&host.stderr));
    prints(&program, &["--memory", "64M"], well);
}

#[test]
#[ignore = "boots machines: scripts/test-metal"]
fn who_looks_into_others_and_steers_them_sees_what_it_sees_on_the_host() {
    let scratch = Scratch::new("traced");
    let program = built("traced", &scratch);
    let host = Command::new(&program).output().expect("it runs");
    let well = "calls: 0\nmemory: 0\nsignals: 0\nsteps: 0\nmade: 0\nothers: 0\napart: 0\nwaiting: 0\n";
    assert_eq!(text(&host.stdout), well, "{}", text(&host.stderr));
    prints(&program, &["--memory", "64M"], well);
}

#[test]
#[ignore = "boots machines: scripts/test-metal"]
fn what_programs_hear_by_signals_and_of_memory_and_keys_is_as_on_the_host() {
    let scratch = Scratch::new("told");
    let program = built("told", &scratch);
    let host = Command::new(&program).output().expect("it runs");
    // Whoever may not have keys on this host hears that there; here all parts end well.
    let well = "comes: 0\nnotes: 0\nused: 0\nspaces: 0\nkeys: 0\n";
    let without_keys = |text: &str| text.split("keys").next().map(String::from);
    assert_eq!(without_keys(&text(&host.stdout)), without_keys(well), "{}", text(&host.stderr));
    prints(&program, &["--memory", "128M"], well);
}

#[test]
#[ignore = "boots machines: scripts/test-metal"]
fn what_programs_seldom_map_and_which_pages_of_files_are_there_is_as_on_the_host() {
    let scratch = Scratch::new("mapped");
    let program = built("mapped", &scratch);
    let host = Command::new(&program).output().expect("it runs");
    assert!(text(&host.stdout).lines().all(|line| line.ends_with(": 0")), "{}", text(&host.stderr));
    prints(&program, &["--memory", "128M"], &text(&host.stdout));
}

#[test]
#[ignore = "boots machines: scripts/test-metal"]
fn what_programs_seldom_ask_is_answered_as_on_the_host() {
    let scratch = Scratch::new("asked");
    let program = built("asked", &scratch);
    let host = Command::new(&program).output().expect("it runs");
    assert!(text(&host.stdout).lines().all(|line| line.ends_with(": 0")), "{}", text(&host.stderr));
    prints(&program, &["--memory", "128M"], &text(&host.stdout));
}

#[test]
#[ignore = "boots machines: scripts/test-metal"]
fn calls_that_are_filtered_and_limits_of_users_are_as_on_the_host() {
    let scratch = Scratch::new("barred");
    let program = built("barred", &scratch);
    let host = Command::new(&program).output().expect("it runs");
    assert!(text(&host.stdout).lines().all(|line| line.ends_with(": 0")), "{}", text(&host.stderr));
    prints(&program, &["--memory", "64M"], &text(&host.stdout));
}

#[test]
#[ignore = "boots machines: scripts/test-metal"]
fn barriers_of_others_words_to_wait_for_and_advice_to_others_are_as_on_the_host() {
    let scratch = Scratch::new("barriers");
    let program = built("barriers", &scratch);
    let host = Command::new(&program).output().expect("it runs");
    assert!(text(&host.stdout).lines().all(|line| line.ends_with(": 0")), "{}", text(&host.stderr));
    prints(&program, &["--memory", "64M"], &text(&host.stdout));
    // Each barrier is an interrupt of the other CPU. That neither sees the other without, nobody sees in an emulator.
    let ran = boot(&format!("{program} passes"), &["--cpus", "4", "--memory", "64M", "--json"]);
    let all = text(&ran.stdout);
    let kicks = all.split("\"kicks\": ").nth(1).and_then(|rest| rest.split(&[',', '\n', ' '][..]).next());
    assert!(kicks.and_then(|count| count.parse::<u64>().ok()).is_some_and(|count| count > 100), "{all}");
    // What one process says of another's pages goes to swap, which the host may not have, and nothing else.
    let ran = boot(&format!("{program} others"), &["--cpus", "1", "--memory", "64M"]);
    assert_eq!((told(&ran, " swapped out"), told(&ran, " swapped in")), (7, 7), "{}", text(&ran.stderr));
}

#[test]
#[ignore = "boots machines: scripts/test-metal"]
fn what_calls_promise_at_their_edges_is_as_on_the_host() {
    no_check_fails("edges");
}

#[test]
#[ignore = "boots machines: scripts/test-metal"]
fn what_calls_keep_for_whom_it_is_meant_is_as_on_the_host() {
    ["kept", "sockets"].into_iter().for_each(no_check_fails);
}

#[test]
#[ignore = "boots machines: scripts/test-metal"]
fn what_others_may_not_and_who_asks_for_too_much_is_as_on_the_host() {
    no_check_fails("ruled");
    // More memory is for more threads.
    let scratch = Scratch::new("crowd");
    let ran = boot(&format!("{} crowd", built("ruled", &scratch)), &["--cpus", "4", "--memory", "256M"]);
    assert_eq!(text(&ran.stdout), "crowd: 0\n", "{}", text(&ran.stderr));
}

#[test]
#[ignore = "boots machines: scripts/test-metal"]
fn what_calls_say_exactly_is_as_on_the_host() {
    no_check_fails("exact");
}

#[test]
#[ignore = "boots machines: scripts/test-metal"]
fn what_is_done_beside_each_other_ends_as_on_the_host() {
    ["beside", "families"].into_iter().for_each(no_check_fails);
}

#[test]
#[ignore = "boots machines: scripts/test-metal"]
fn only_who_runs_uses_a_cpu() {
    no_check_fails("meters");
}

#[test]
#[ignore = "boots machines: scripts/test-metal"]
fn whoever_waits_hears_of_what_others_do() {
    no_check_fails("woken");
}

/// No check of this program fails on the host, with 1 CPU, or with 4.
#[track_caller]
fn no_check_fails(name: &str) {
    let scratch = Scratch::new(name);
    let program = built(name, &scratch);
    let host = Command::new(&program).current_dir(&scratch.0).output().expect("it runs");
    assert!(text(&host.stdout).lines().all(|line| line.ends_with(": 0")), "{}", text(&host.stderr));
    prints(&program, &["--memory", "64M"], &text(&host.stdout));
}

/// With 1 CPU and with 4 it prints this, and ends well.
#[track_caller]
fn prints(program: &str, options: &[&str], what: &str) {
    for cpus in ["1", "4"] {
        let ran = boot(program, &[options, &["--cpus", cpus]].concat());
        assert_eq!(text(&ran.stdout), what, "{cpus} CPUs: {}", text(&ran.stderr));
        assert_eq!(ran.status.code(), Some(0), "{}", text(&ran.stderr));
    }
}

/// A count that the summary tells.
fn told(ran: &Output, name: &str) -> u64 {
    let errors = text(&ran.stderr);
    let before = errors.split(name).next().unwrap_or_default().trim_end();
    before
        .rsplit(' ')
        .next()
        .and_then(|count| count.parse().ok())
        .unwrap_or_else(|| panic!("{name}: {errors}"))
}

#[test]
#[ignore = "boots machines: scripts/test-metal"]
fn memory_that_is_short_goes_to_swap_and_comes_back() {
    let scratch = Scratch::new("swap");
    let program = format!("{} swap 20", built("short", &scratch));
    for (cpus, policy) in [("1", "linux"), ("4", "quiet")] {
        let machine = ["--cpus", cpus, "--memory", "24M", "--swap", "64M", "--policies", policy];
        let ran = boot(&program, &machine);
        assert_eq!(text(&ran.stdout), "swap: 0 wrong\n", "{cpus} CPUs, {policy}: {}", text(&ran.stderr));
        // 20 MiB are written, each page several times, and 12 MiB at most are in memory.
        assert!(told(&ran, " swapped out") > 2000, "{}", text(&ran.stderr));
        assert!(told(&ran, " swapped in") > 2000, "{}", text(&ran.stderr));
    }
    let swap = "sh -c 'while read -r name kind size rest; do echo $kind $size; done < /proc/swaps'";
    let on = |size: &str| text(&boot(swap, &["--cpus", "1", "--memory", "64M", "--swap", size]).stdout);
    assert_eq!([on("32M"), on("0")], ["Type Size\npartition 32768\n", "Type Size\n"]);
}

/// Where no victim is chosen it is whoever wants a page next, and one of those who have little.
#[test]
#[ignore = "boots machines: scripts/test-metal"]
fn when_memory_and_swap_are_full_one_process_ends_and_the_others_live() {
    let scratch = Scratch::new("end");
    let program = format!("{} end", built("short", &scratch));
    for (cpus, swap) in [("1", "0"), ("3", "8M")] {
        let ran = boot(&program, &["--cpus", cpus, "--memory", "24M", "--swap", swap]);
        let said = "without end: 9\nhas less: 0\nhas most: 9\nothers: 0 wrong\n";
        assert_eq!(text(&ran.stdout), said, "{cpus} CPUs: {}", text(&ran.stderr));
        assert_eq!(ran.status.code(), Some(0), "{}", text(&ran.stderr));
        assert_eq!(text(&ran.stderr).matches("is ended, with").count(), 2, "{}", text(&ran.stderr));
    }
    // The first program itself: its code is that of the signal.
    let ran =
        boot("sh -c 'x=1; while :; do x=$x$x; done'", &["--cpus", "1", "--memory", "24M", "--swap", "0"]);
    assert_eq!(ran.status.code(), Some(137), "{}", text(&ran.stderr));
}

/// What is refused has an error of its own, 12: `ENOMEM`. The last kind of it ends itself.
#[test]
#[ignore = "boots machines: scripts/test-metal"]
fn no_program_takes_all_of_the_kernels_memory() {
    let scratch = Scratch::new("greedy");
    let program = built("greedy", &scratch);
    let machine = ["--with", "sh,cat", "--cpus", "2", "--memory", "64M", "--set", "heap=4"];
    let ran = boot(&program, &machine);
    let refused = "names 12, pipes 12, sockets 12, areas 12, processes -9\n";
    // When most is taken: what needs much at once is done with little, or refused.
    let much = "lists 0, words 12, goes 0, pieces 12, signals 0, circles 0\n";
    assert_eq!(text(&ran.stdout), format!("{refused}{refused}{much}works\n"), "{}", text(&ran.stderr));
    assert_eq!(ran.status.code(), Some(0), "{}", text(&ran.stderr));
}

#[test]
#[ignore = "boots machines: scripts/test-metal"]
fn system_calls_by_chance_leave_the_kernel_as_it_is() {
    let scratch = Scratch::new("fuzz");
    let program = built("fuzz", &scratch);
    for (seed, cpus) in [(1, "1"), (2, "3")] {
        let ran = boot(&format!("{program} {seed} 25 400"), &["--cpus", cpus, "--memory", "64M"]);
        assert_eq!(ran.status.code(), Some(0), "seed {seed}: {}", text(&ran.stderr));
        assert!(text(&ran.stdout).ends_with("fuzz: 25 children, and here still\n"), "{}", text(&ran.stderr));
    }
}

#[test]
#[ignore = "boots machines: scripts/test-metal"]
fn what_programs_seldom_do_ends_as_on_the_host() {
    let scratch = Scratch::new("corners");
    let program = built("corners", &scratch);
    let host = Command::new(&program).output().expect("it runs");
    // It shows something: two ends by a signal, and each of the others another code.
    let said = [
        "nowhere: signal 11",
        "torn: signal 11",
        "became",
        "becomes: 7",
        "waits: 3",
        "reads: 4",
        "selects: 1",
    ];
    assert_eq!(text(&host.stdout).lines().take(7).collect::<Vec<_>>(), said);
    prints(&program, &["--memory", "128M"], &text(&host.stdout));
}

#[test]
#[ignore = "boots machines: scripts/test-metal"]
fn a_file_that_is_no_program_does_not_start_and_a_bad_pointer_ends_one() {
    let scratch = Scratch::new("wrong");
    let root = scratch.0.to_string_lossy().into_owned();
    std::fs::write(scratch.0.join("cut"), b"\x7fELF\x02\x01\x01").expect("a file");
    let busybox = std::fs::read("/bin/busybox").expect("busybox; scripts/need qemu");
    std::fs::write(scratch.0.join("short"), &busybox[..200_000]).expect("a file");
    for name in ["cut", "short"] {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(scratch.0.join(name), mode).expect("its owner's");
        let ran = boot(&format!("/{name}"), &["--root", &root, "--cpus", "1", "--memory", "128M"]);
        assert_eq!(ran.status.code(), Some(2), "{}", text(&ran.stderr));
        assert!(text(&ran.stderr).contains("does not start: error 8"), "{}", text(&ran.stderr));
    }
    let ran = boot("busybox sh -c 'kill -SEGV $$'", &["--cpus", "1", "--memory", "128M"]);
    assert_eq!(ran.status.code(), Some(139), "{}", text(&ran.stderr));
}

#[test]
fn what_cannot_be_is_refused_before_anything_boots() {
    let wrong = [
        (vec!["boot", "--program", "nobody-has-this-program"], "neither in --root nor on this host"),
        (vec!["boot", "--program", "sh -c 'open"], "each quote must be closed"),
        (vec!["boot", "--program", ""], "a name and its arguments"),
        (vec!["boot", "--program", "true", "--root", "/nobody/has/this"], "No such file"),
        (
            vec!["boot", "--program", "true", "--with", "sh,nobody-has-this-program"],
            "--with: nobody-has-this-program",
        ),
        (vec!["boot", "churn", "--with", "sh"], "cannot be used with"),
        (vec!["boot", "--with", "sh"], "--program"),
        (vec!["boot", "--program", "true", "--runs", "2"], "not with --program"),
        (vec!["boot", "churn", "--program", "true"], "cannot be used with"),
        (vec!["boot", "--program", "true", "--swap", "1M"], "a size from 2M"),
        (vec!["boot", "churn", "--swap", "64M"], "cannot be used with"),
        (vec!["boot", "churn", "--root", "/"], "cannot be used with"),
        (vec!["boot"], "required"),
    ];
    for (args, why) in wrong {
        let image = std::env::current_exe().expect("this test");
        let image = image.to_string_lossy();
        let mut args = args;
        if args.len() > 1 {
            args.extend(["--image", &image]);
        }
        let ran = quietmm(&args);
        assert_eq!(ran.status.code(), Some(2), "{args:?}: {}", text(&ran.stderr));
        assert!(text(&ran.stderr).contains(why), "{args:?}: {}", text(&ran.stderr));
    }
}
