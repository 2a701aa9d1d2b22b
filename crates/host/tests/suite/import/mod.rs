//! Captures as text: what is sound is taken, what is not is told with its line, and nothing brings the importer down.

mod clocks;
mod long;

use std::io::BufRead;
use std::path::PathBuf;

use proptest::prelude::*;
use quietmm_host::import::{Form, ImportError, Imported, Options, import, unfit};
use quietmm_host::summary::Summary;
use quietmm_workloads::trace::AnyTrace;
use quietmm_workloads::trace::recording::{Event, Victim, What};

/// A place for a recording, gone with the value.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Place {
        Place(std::env::temp_dir().join(format!("quietmm-{}-{name}.qtrace", std::process::id())))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn imported(name: &str, input: &mut dyn BufRead, form: Form) -> Result<(Imported, Vec<u8>), ImportError> {
    let place = Place::new(name);
    let options = Options { source: "cap.txt".into(), program: Some("p".into()), ..Options::default() };
    let imported = import(input, form, &options, &place.0)?;
    Ok((imported, std::fs::read(&place.0).unwrap()))
}

fn parsed(bytes: &[u8]) -> (Summary, Vec<(u32, What<'_>)>) {
    let AnyTrace::Operations(recording) = AnyTrace::parse(bytes).unwrap() else { panic!("not a recording") };
    let events = recording.events().map(|Event { thread, what, .. }| (thread, what)).collect();
    (Summary::of(&recording, bytes.len() as u64), events)
}

/// The threads that end, in this order.
fn ends(events: &[(u32, What<'_>)]) -> Vec<u32> {
    events.iter().filter(|(_, what)| *what == What::End).map(|&(thread, _)| thread).collect()
}

fn notes(imported: &Imported) -> Vec<(u64, u64, &str)> {
    imported.notes.iter().map(|note| (note.line, note.count, note.what.as_str())).collect()
}

/// A map every ten milliseconds, from `at` seconds on.
fn maps(from: f64, count: u32) -> String {
    let line = |nth: u32| {
        let at = from + f64::from(nth) / 100.0;
        format!(
            "100 {at:.6} mmap(NULL, 4096, PROT_READ, MAP_PRIVATE|MAP_ANONYMOUS, -1, 0) = 0x7f{nth:08x}000 <0.000010>\n"
        )
    };
    (0..count).map(line).collect()
}

const PERF: &str = "\
 sort  1234/1234 [001]  7526.571669:      raw_syscalls:sys_enter: NR 9 (0, 2000, 3, 22, ffffffff, 0)
 sort  1234/1234 [001]  7526.571679:      raw_syscalls:sys_exit: NR 9 = 139970000003072
 sort  1234/1234 [001]  7526.571690:      exceptions:page_fault_user: address=0x7f4d7702b5e0 ip=0x1 error_code=0x6
 sort  1234/1234 [001]  7526.571700:      task:task_newtask: pid=1235 comm=sort clone_flags=3d0f00 oom_score_adj=0
 sort  1234/1234 [001]  7526.571705:      ipi:ipi_send_cpu: cpu=0 callsite=on_each_cpu_cond_mask+0x20 callback=generic_smp_call_function_single_interrupt+0x0
 sort  1234/1235 [000]  7526.571710:      tlb:tlb_flush: pages:2 reason:remote shootdown (1)
 sort  1234/1235 [000]  7526.571711:      tlb:tlb_flush: pages:2 reason:remote IPI send (4)
 sort  1234/1235 [000]  7526.571712:      syscalls:sys_enter_munmap: addr: 0x7f4d7702b000, len: 0x00002000
 sort  1234/1235 [000]  7526.571722:      syscalls:sys_exit_munmap: 0x0
 sort  1234/1235 [000]  7526.571730:      sched:sched_process_exit: comm=sort pid=1235 prio=120
";

const FTRACE: &str = "\
# tracer: nop
#           TASK-PID     TGID     CPU#  |||||  TIMESTAMP  FUNCTION
     my sort-1234    (   1234) [001] d.... 17284.993652: sys_mmap(addr: 0, len: 2000, prot: 3, flags: 22, fd: ffffffffffffffff, off: 0)
     my sort-1234    (   1234) [001] d.... 17284.993660: sys_mmap -> 0x7f4d77000000
     my sort-1234    (   1234) [001] d.... 17284.993670: page_fault_user: address=0x7f4d77000000 ip=0x1 error_code=0x6
CPU:1 [LOST 12 EVENTS]
     my sort-1234    (   1234) [001] d..2. 17284.993680: sched_switch: prev_comm=my sort prev_pid=1234 prev_prio=120 prev_state=S ==> next_comm=swapper/1 next_pid=0 next_prio=120
      <idle>-0       (-------) [001] d..2. 17284.994680: sched_switch: prev_comm=swapper/1 prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=my sort next_pid=1234 next_prio=120
     my sort-1234    (   1234) [001] d.... 17284.995000: sys_enter: NR 28 (7f4d77000000, 1000, 4, 0, 0, 0)
     my sort-1234    (   1234) [001] d.... 17284.995010: sys_exit: NR 28 = 0
";

const STRACE: &str = "\
100 1700000000.000001 execve(\"/usr/bin/sort\", [\"sort\", \"a, b\"], 0x7ffe /* 3 vars */) = 0 <0.000500>
100 1700000000.001000 mmap(NULL, 8192, PROT_READ|PROT_WRITE, MAP_PRIVATE|MAP_ANONYMOUS, -1, 0) = 0x7f0000000000 <0.000010>
100 1700000000.001100 openat(AT_FDCWD, \"/lib/x.so\", O_RDONLY) = 3 <0.000010>
100 1700000000.001200 mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, 3</lib/x.so>, 0x1000) = 0x7f0000010000 <0.000010>
101 1700000000.002050 munmap(0x7f0000000000, 4096) = 0 <0.000020>
100 1700000000.002000 clone3({flags=CLONE_VM|CLONE_FS|CLONE_THREAD|CLONE_SETTLS, child_tid=0x1, exit_signal=0} => {parent_tid=[101]}, 88) = 101 <0.000100>
100 1700000000.003000 mprotect(0x7f0000001000, 4096, PROT_NONE <unfinished ...>
101 1700000000.003010 madvise(0x7f0000010000, 4096, MADV_DONTNEED) = 0 <0.000010>
100 1700000000.003030 <... mprotect resumed>) = 0 <0.000030>
101 1700000000.003040 munmap(0x1, 1) = -1 EINVAL (Invalid argument) <0.000001>
101 1700000000.003050 +++ exited with 0 +++
100 1700000000.004000 fork() = 102 <0.000100>
102 1700000000.005000 +++ killed by SIGKILL +++
100 1700000000.004500 wait4(-1, NULL, 0, NULL) = 102 <0.001000>
100 1700000000.006000 +++ exited with 0 +++
";

#[test]
fn the_forms_are_told_apart() {
    assert_eq!(Form::of(PERF.as_bytes()), Some(Form::Events));
    assert_eq!(Form::of(FTRACE.as_bytes()), Some(Form::Events));
    assert_eq!(Form::of(STRACE.as_bytes()), Some(Form::Strace));
    assert_eq!(Form::of(b"==12== Lackey\nI  0023C790,2\n L 04222C50,8\n"), None);
    assert_eq!(Form::of(b""), None);
    assert_eq!(Form::of(&[0xff; 10_000]), None);
}

#[test]
fn perf_script_is_read() {
    let (imported, bytes) = imported("perf", &mut PERF.as_bytes(), Form::Events).unwrap();
    let (summary, events) = parsed(&bytes);
    assert_eq!(notes(&imported), []);
    assert_eq!((summary.threads, summary.spaces, summary.cpus), (2, 1, 2));
    assert_eq!((summary.faults, summary.received), (Some(1), Some(1)));
    assert_eq!(summary.victims, [1, 0, 0, 0]);
    assert_eq!((summary.calls["mmap"].took, summary.calls["munmap"].pages), (10_000, 2));
    assert_eq!(events.last(), Some(&(1, What::End)));
}

#[test]
fn threads_are_called_what_they_call_themselves_later() {
    let line = |name: &str, tid, at, what: &str| format!(" {name}  1234/{tid} [000]  7526.57{at}: {what}\n");
    let fault = "exceptions:page_fault_user: address=0x7f4d7702b5e0 ip=0x1 error_code=0x6";
    let text = PERF.replace(
        " sort  1234/1234 [001]  7526.571705",
        &(line("sort", 1235, 1701, fault)
            + &line("reader", 1235, 1702, fault)
            + &line("reader", 1235, 1703, fault)
            + " sort  1234/1234 [001]  7526.571705"),
    );
    let (_, bytes) = imported("names", &mut text.as_bytes(), Form::Events).unwrap();
    let (_, events) = parsed(&bytes);
    let names: Vec<&str> = events
        .iter()
        .filter_map(|(thread, what)| match what {
            What::Name(name) if *thread == 1 => Some(*name),
            _ => None,
        })
        .collect();
    // Its last line calls it as the capture has it.
    assert_eq!(names, ["sort", "reader", "sort"]);
}

#[test]
fn who_is_asked_to_flush_and_does_not_say_so_was_idle() {
    let sends = PERF.lines().find(|line| line.contains("ipi_send_cpu")).unwrap();
    let asks = |function: &str| {
        let (before, _) = sends.split_once("ipi:").unwrap();
        let asks = format!(
            "{before}csd:csd_queue_cpu: cpu=0 callsite=on_each_cpu_cond_mask+0x20/0x60 func={function} csd=0xffff9e5c7fa2e5c0"
        );
        let text = PERF.replace(sends, &asks);
        let mut lines: Vec<&str> = text.lines().filter(|line| !line.contains("remote shootdown")).collect();
        // Then it goes on.
        lines.push(" sort  1234/1234 [001]  7526.571740: exceptions:page_fault_user: address=0x7f4d7702b5e0 ip=0x1 error_code=0x6");
        let text = lines.join("\n") + "\n";
        let (imported, bytes) = imported("asks", &mut text.as_bytes(), Form::Events).unwrap();
        assert_eq!(notes(&imported), []);
        let (_, events) = parsed(&bytes);
        events.iter().filter(|(_, what)| matches!(what, What::Shootdown { victim: Victim::Idle, .. })).count()
    };
    assert_eq!([asks("flush_tlb_func"), asks("do_sync_core")], [1, 0]);
}

#[test]
fn call_stacks_of_perf_script_go_with_their_calls() {
    let stack = "\
\tffffffff81234567 do_syscall_64+0x57 ([kernel.kallsyms])
\t    7f0000001234 __munmap+0xb (/usr/lib/libc.so.6)
\t    55000000abcd free_all(int, char;)+0x1f (/usr/bin/sort)
\t    55000000ffff [unknown] (/usr/bin/sort)

";
    let enter = "addr: 0x7f4d7702b000, len: 0x00002000\n";
    let text = PERF.replace(enter, &format!("{enter}{stack}"));
    let (imported, bytes) = imported("stack", &mut text.as_bytes(), Form::Events).unwrap();
    let (_, events) = parsed(&bytes);
    assert_eq!(notes(&imported), []);
    let stack = What::Stack("__munmap;free_all(int, char);sort");
    assert!(events.contains(&(1, stack)), "{events:?}");
    let unmap = events.iter().find_map(|(_, what)| match what {
        What::Unmap { call, .. } => Some(call.stack),
        _ => None,
    });
    assert_eq!(unmap, Some(1));
}

#[test]
fn calls_that_end_while_another_of_their_space_is_under_way_are_counted() {
    let thread = "clone(child_stack=NULL, flags=CLONE_VM|CLONE_THREAD) = 2 <0.000010>";
    let process = "clone(child_stack=NULL, flags=SIGCHLD) = 2 <0.000010>";
    let drops = "madvise(0x7f0000001000, 4096, MADV_DONTNEED";
    // Thread 1 unmaps from 1000 to 1100 us, thread 2 calls from `from` to `to`.
    for (how, made, call, from, to, count) in [
        ("inside", thread, drops, 1050, 1060, 1),
        ("it begins inside", thread, drops, 1090, 1110, 1),
        ("it ends inside", thread, drops, 990, 1010, 1),
        ("before", thread, drops, 980, 999, 0),
        ("after", thread, drops, 1101, 1110, 0),
        ("advice that takes nothing", thread, &drops.replace("DONTNEED", "WILLNEED"), 1050, 1060, 0),
        ("rights", thread, "mprotect(0x7f0000001000, 4096, PROT_NONE", 1050, 1060, 1),
        ("in a space of its own", process, drops, 1050, 1060, 0),
    ] {
        let name = call.split('(').next().unwrap();
        let took = (to - from) as f64 / 1e6;
        let mut lines = [
            (100, 1, made.to_owned()),
            (1000, 1, "munmap(0x7f0000000000, 8192 <unfinished ...>".to_owned()),
            (1100, 1, "<... munmap resumed>) = 0 <0.000100>".to_owned()),
            (from, 2, format!("{call} <unfinished ...>")),
            (to, 2, format!("<... {name} resumed>) = 0 <{took:.6}>")),
        ];
        lines.sort();
        let text: String =
            lines.iter().map(|(at, tid, what)| format!("{tid} 1700000000.{at:06} {what}\n")).collect();
        let (_, bytes) = imported("overlap", &mut text.as_bytes(), Form::Strace).unwrap();
        assert_eq!(parsed(&bytes).0.overlapping, count, "{how}\n{text}");
    }
}

#[test]
fn ftrace_is_read_and_what_it_lost_is_counted() {
    let (imported, bytes) = imported("ftrace", &mut FTRACE.as_bytes(), Form::Events).unwrap();
    let (summary, events) = parsed(&bytes);
    assert_eq!((imported.lost, summary.lost), (12, 12));
    assert_eq!(notes(&imported), [(6, 1, "events are missing here, says the capture")]);
    assert!(events.contains(&(0, What::Sleep { ns: 1_000_000 })), "{events:?}");
    assert_eq!((summary.calls["mmap"].pages, summary.calls["madvise"].pages), (2, 1));
}

#[test]
fn strace_is_read_with_halves_and_threads_that_come_before_they_are_made() {
    let (imported, bytes) = imported("strace", &mut STRACE.as_bytes(), Form::Strace).unwrap();
    let (summary, events) = parsed(&bytes);
    assert_eq!(notes(&imported).iter().filter(|note| !note.2.contains("clock")).count(), 0, "{imported}");
    assert_eq!((summary.threads, summary.spaces), (3, 3));
    let calls = |name: &str| summary.calls[name].count;
    assert_eq!((calls("mmap"), calls("munmap"), calls("mprotect"), calls("madvise")), (2, 1, 1, 1));
    assert_eq!((calls("clone"), calls("fork")), (1, 1));
    assert!(events.contains(&(0, What::File("/lib/x.so"))), "{events:?}");
    assert!(events.contains(&(0, What::Join(2))), "{events:?}");
    assert_eq!((summary.calls["mprotect"].took, summary.calls["mprotect"].median), (30_000, 30_000));
}

#[test]
fn who_asked_for_a_call_stands_below_it_where_strace_was_told_so() {
    // As `strace -k` prints it: below the end of a call, also of one that is shown in two halves or was waited for.
    let text = "\
100 1700000000.001000 mmap(NULL, 8192, PROT_READ, MAP_PRIVATE|MAP_ANONYMOUS, -1, 0) = 0x7f0000000000 <0.000010>
 > /usr/lib/libc.so.6(mmap+0x17) [0xfe9d7]
 > /usr/bin/my prog(std::vector<int, a>::grow(int)+0x1d) [0x114d]
101 1700000000.001900 munmap(0x7f0000001000, 4096) = 0 <0.000010>
 > /usr/lib/libc.so.6() [0xfea37]
 > [unknown]
100 1700000000.002000 clone3({flags=CLONE_VM|CLONE_THREAD, exit_signal=0} => {parent_tid=[101]}, 88) = 101 <0.000100>
 > /usr/lib/libc.so.6(clone3+0x2c) [0xfe9d7]
100 1700000000.003000 munmap(0x7f0000000000, 4096 <unfinished ...>
101 1700000000.003010 brk(NULL) = 0x55ced9324000 <0.000008>
100 1700000000.003020 <... munmap resumed>) = 0 <0.000020>
 > /usr/lib/libc.so.6(munmap+0xb) [0xfea37]
100 1700000000.004000 munmap(0x7f0000001000, 4096) = 0 <0.000020>
";
    let (imported, bytes) = imported("stacks", &mut text.as_bytes(), Form::Strace).unwrap();
    assert_eq!(notes(&imported), [], "{imported}");
    let (_, events) = parsed(&bytes);
    let stacks: Vec<&str> = events
        .iter()
        .filter_map(|(_, what)| match what {
            What::Stack(text) => Some(*text),
            _ => None,
        })
        .collect();
    let calls: Vec<(u32, Option<&str>)> = events
        .iter()
        .filter_map(|&(thread, what)| match what {
            What::Map { call, .. } | What::Unmap { call, .. } | What::Start { call, .. } => {
                Some((thread, call))
            }
            _ => None,
        })
        .map(|(thread, call)| (thread, call.stack.checked_sub(1).map(|nth| stacks[nth as usize])))
        .collect();
    assert_eq!(
        calls,
        [
            (0, None),
            (0, Some("mmap;std::vector<int, a>::grow(int)")),
            (1, Some("clone3")),
            (1, Some("libc.so.6;[unknown]")),
            (0, Some("munmap")),
            (0, None),
        ]
    );
}

#[test]
fn a_program_that_another_thread_than_the_first_begins_has_a_space_of_its_own() {
    let text = "\
100 1700000000.001000 clone3({flags=CLONE_VM|CLONE_THREAD, exit_signal=0} => {parent_tid=[101]}, 88) = 101 <0.000100>
101 1700000000.002000 execve(\"/bin/ls\", [\"ls\"], 0x7ffe /* 3 vars */ <unfinished ...>
100 1700000000.003000 +++ superseded by execve in pid 101 +++
100 1700000000.003100 <... execve resumed>) = 0 <0.001100>
100 1700000000.004000 munmap(0x7f0000000000, 4096) = 0 <0.000020>
100 1700000000.005000 +++ exited with 0 +++
";
    let (imported, bytes) = imported("superseded", &mut text.as_bytes(), Form::Strace).unwrap();
    let (summary, events) = parsed(&bytes);
    assert_eq!(
        notes(&imported).iter().filter(|note| !note.2.contains("program seems")).count(),
        0,
        "{imported}"
    );
    assert_eq!((summary.threads, summary.spaces), (2, 2), "{summary}");
    assert_eq!(ends(&events), [1, 0]);
}

#[test]
fn so_it_has_in_perf_script() {
    // Lines of a thread say its number only, unless asked for more.
    let text = "\
 sort  100 [001]  7526.100000:  raw_syscalls:sys_enter: NR 56 (0, 0, 0, 0, 0, 0)
 sort  100 [001]  7526.100010:  task:task_newtask: pid=101 comm=sort clone_flags=10100 oom_score_adj=0
 sort  101 [001]  7526.100020:  raw_syscalls:sys_enter: NR 59 (0, 0, 0, 0, 0, 0)
 sort  100 [000]  7526.100030:  sched:sched_process_exit: comm=sort pid=100 prio=120 group_dead=false
 ls  100 [001]  7526.100040:  sched:sched_process_exec: filename=/bin/ls pid=100 old_pid=101
 ls  100 [001]  7526.100050:  raw_syscalls:sys_exit: NR 59 = 0
 ls  100 [001]  7526.100060:  sched:sched_process_exit: comm=ls pid=100 prio=120 group_dead=true
";
    let (_, bytes) = imported("superseded-perf", &mut text.as_bytes(), Form::Events).unwrap();
    let (summary, events) = parsed(&bytes);
    assert_eq!((summary.threads, summary.spaces), (2, 2), "{summary}");
    assert_eq!(ends(&events), [0, 1]);
}

#[test]
fn threads_of_a_process_that_runs_are_in_its_space_and_in_the_order_of_time() {
    // As `strace -f -p` shows them: nobody makes them.
    let line = |nth: u64| {
        let tid = 100 + nth % 3;
        format!("{tid} 1700000{:03}.000000 munmap(0x7f0000000000, 4096) = 0 <0.000010>\n", nth)
    };
    let text: String = (0..90).map(line).collect();
    let (imported, bytes) = imported("attached", &mut text.as_bytes(), Form::Strace).unwrap();
    let (summary, events) = parsed(&bytes);
    let told = "a thread that nobody is seen to make; taken for one of the process that came first";
    assert_eq!(notes(&imported), [(2, 2, told)]);
    assert_eq!((summary.threads, summary.spaces), (3, 1));
    // As long as it took, not once for each thread.
    assert!((89_000_000_000..90_000_000_000).contains(&imported.duration), "{imported}");
    let unmaps: Vec<u32> = events
        .iter()
        .filter(|(_, what)| matches!(what, What::Unmap { .. }))
        .map(|&(thread, _)| thread)
        .collect();
    assert_eq!(unmaps[..6], [0, 1, 2, 0, 1, 2]);
}

#[test]
fn threads_of_a_process_that_was_captured_while_it_ran_are_in_one_space_where_no_process_is_named() {
    // As `perf record -p` and `perf script` show them, each its number only.
    let call = |tid: u32, us: u32| {
        format!(
            " prog  {tid} [000]  10.{us:06}:  raw_syscalls:sys_enter: NR 11 (7f0000000000, 1000, 0, 0, 0, 0)
 prog  {tid} [000]  10.{:06}:  raw_syscalls:sys_exit: NR 11 = 0
",
            us + 5
        )
    };
    let spaces = |text: &str| {
        let (imported, bytes) = imported("unnamed", &mut text.as_bytes(), Form::Events).unwrap();
        let summary = parsed(&bytes).0;
        assert_eq!(summary.threads, 2);
        let told: Vec<(u64, u64, String)> = imported
            .notes
            .iter()
            .filter_map(|note| {
                Some((note.line, note.count, note.what.split_once("taken for ")?.1.to_owned()))
            })
            .collect();
        (summary.spaces, told)
    };
    let note = |line: u64, what: &str| [(line, 1, what.to_owned())];
    let two = call(100, 100) + &call(101, 200);
    assert_eq!(spaces(&two), (1, note(3, "one of the process that came first").to_vec()));
    // Where idle CPUs are in it, other programs may be.
    let idle = " swapper  0 [001]  10.000050:  sched:sched_switch: prev_comm=swapper/1 prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=prog next_pid=100 next_prio=120\n";
    assert_eq!(spaces(&(idle.to_owned() + &two)), (2, note(4, "a process of its own").to_vec()));
    // Whoever is being made may be anything, and is told by the end of the call that makes it.
    let fork = " prog  100 [000]  10.000150:  raw_syscalls:sys_enter: NR 57 (0, 0, 0, 0, 0, 0)\n";
    let forked = call(100, 100) + fork + &call(101, 200);
    assert_eq!(spaces(&forked), (2, note(4, "a process of its own").to_vec()));
    // Until then, and no longer.
    let fork_fails = " prog  100 [000]  10.000160:  raw_syscalls:sys_exit: NR 57 = -12\n";
    let failed = call(100, 100) + fork + fork_fails + &call(101, 200);
    assert_eq!(spaces(&failed), (1, note(5, "one of the process that came first").to_vec()));
    // Its lines may say it.
    let named = two.replace(" 100 ", " 99/100 ").replace(" 101 ", " 98/101 ");
    assert_eq!(spaces(&named), (2, vec![]));
}

#[test]
fn what_is_wrong_is_told_with_its_line_and_the_rest_is_taken() {
    let mut text = PERF.to_owned();
    text.push_str("nonsense\n");
    text.push_str(" sort  1234/1234 [001]  7526.500000:      raw_syscalls:sys_exit: NR 11 = 0\n");
    text.push_str(" sort  1234/1234 [001]  7526.600000:      block:block_rq_issue: 8,0 R 4096\n");
    text.push_str(" sort  1234/1234 [001]  7526.600001:      block:block_rq_issue: 8,0 R 4096\n");
    text.push_str(" sort  1234/1234 [001]  7526.6000");
    let (imported, bytes) = imported("wrong", &mut text.as_bytes(), Form::Events).unwrap();
    assert_eq!(
        notes(&imported),
        [
            (11, 1, "a line that is no event; left out"),
            (12, 1, "the clock jumps back; taken for the latest time before"),
            (12, 1, "a call without its beginning or end; left out"),
            (13, 2, "events `block_rq_issue` say nothing here; left out"),
            (15, 1, "the last line is cut; left out"),
        ]
    );
    let shown = imported.to_string();
    assert!(
        shown
            .contains("cap.txt:13: events `block_rq_issue` say nothing here; left out (2 times, first here)"),
        "{shown}"
    );
    assert_eq!(parsed(&bytes).0.calls["munmap"].count, 1);
}

#[test]
fn numbers_that_come_again_and_unknown_events_without_end_are_told_and_counted() {
    let mut text = PERF.to_owned();
    // The first thread makes 1235 once more, whose end was seen, and again, which was not.
    for us in [800, 810] {
        text.push_str(&format!(
            " sort  1234/1234 [001]  7526.571{us}:      task:task_newtask: pid=1235 comm=sort clone_flags=3d0f00 oom_score_adj=0\n"
        ));
    }
    for kind in 0..100 {
        text.push_str(&format!(" sort  1234/1234 [001]  7526.6{kind:05}:      odd:kind_{kind}: x\n"));
    }
    let (imported, bytes) = imported("again", &mut text.as_bytes(), Form::Events).unwrap();
    let (summary, events) = parsed(&bytes);
    assert_eq!((summary.threads, summary.most_alive), (4, 2));
    assert_eq!(events.iter().filter(|(_, what)| *what == What::End).count(), 2);
    let notes = notes(&imported);
    assert_eq!(notes[0], (12, 1, "a thread's number begins again, and its end was not seen"));
    assert_eq!(notes[1], (13, 1, "events `kind_0` say nothing here; left out"));
    let told: u64 = notes[1..].iter().map(|&(_, count, _)| count).sum();
    assert_eq!((told, notes.len()), (100, 41), "all are counted, in a bounded number of lines: {notes:?}");
    assert_eq!(notes[40], (52, 61, "lines of still other kinds; left out"));
}

#[test]
fn an_input_of_another_kind_is_refused_and_leaves_nothing() {
    let place = Place::new("other");
    let options = Options { source: "mail.txt".into(), ..Options::default() };
    let error = import(&mut b"Dear all,\nhello\n".as_slice(), Form::Events, &options, &place.0).unwrap_err();
    assert!(error.to_string().starts_with("mail.txt:2: no event that is known up to here; "), "{error}");
    assert!(!place.0.exists());
}

proptest! {
    #[test]
    fn damaged_captures_are_read_or_refused(
        which in 0usize..3,
        cuts in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0usize..4), 0..12),
    ) {
        let (text, form) = [(PERF, Form::Events), (FTRACE, Form::Events), (STRACE, Form::Strace)][which];
        let mut bytes = text.as_bytes().to_vec();
        for (at, byte, how) in cuts {
            let at = at.index(bytes.len());
            match how {
                0 => bytes[at] = byte,
                1 => drop(bytes.remove(at)),
                2 => bytes.insert(at, byte),
                _ => {
                    let line = bytes[at..].iter().position(|&byte| byte == b'\n').map_or(bytes.len(), |end| at + end);
                    bytes.extend_from_within(at..line);
                }
            }
            if bytes.is_empty() {
                break;
            }
        }
        for form in [form, Form::Events, Form::Strace] {
            match imported("damaged", &mut bytes.as_slice(), form) {
                Ok((_, recording)) => drop(parsed(&recording)),
                Err(error) => prop_assert!(error.to_string().starts_with("cap.txt:"), "{error}"),
            }
        }
    }
}

#[test]
fn what_is_no_text_to_import_is_told_with_what_makes_one() {
    for (head, right) in [
        (&b"\x1f\x8b\x08\0"[..], "gzip -dc FILE"),
        (b"PERFILE2\0\0", "perf script -i FILE"),
        (b"\x89QTRACE\n\x02\0", "quietmm trace show"),
        (b"100 12:00:00 munmap(0x1000, 4096) = 0\n", "strace -f -ttt"),
        (b"[pid   100] 12:00:00.5 munmap(0x1000, 4096) = 0 <0.1>\n", "strace -f -ttt"),
        (b"100      0.000012 munmap(0x1000, 4096) = 0 <0.1>\n", "strace -f -ttt"),
        (b"munmap(0x1000, 4096)          = 0\n", "strace -f -ttt"),
    ] {
        assert_eq!(Form::of(head), None, "{right}");
        assert!(unfit(head).is_some_and(|what| what.contains(right)), "{right}: {:?}", unfit(head));
    }
    for head in [
        PERF,
        FTRACE,
        STRACE,
        "==12== Lackey\nI  0023C790,2\n L 04222C50,8\n",
        "==12== Lackey\nf(x) = 2 (see below)\n",
        "",
    ] {
        assert_eq!(unfit(head.as_bytes()), None, "{head}");
    }
}

#[test]
fn ranges_that_no_space_has_are_left_out_and_told() {
    let long = ["18446744073709551615", "9223372036854775808"];
    let mut text = STRACE.to_owned();
    for (nth, length) in long.iter().enumerate() {
        text.push_str(&format!(
            "100 1700000000.00700{nth} madvise(0x7f0000010000, {length}, MADV_DONTNEED) = 0 <0.000001>\n"
        ));
    }
    // The kernel takes this one, and it changes nothing.
    text.push_str("100 1700000000.007008 madvise(0x7f0000010000, 0, MADV_DONTNEED) = 0 <0.000001>\n");
    text.push_str("100 1700000000.007009 brk(0xffffffffffffffff) = 0xffffffffffff0000 <0.000001>\n");
    let text = text.replace("100 1700000000.006000 +++ exited with 0 +++\n", "");
    let (imported, bytes) = imported("nowhere", &mut text.as_bytes(), Form::Strace).unwrap();
    assert_eq!(parsed(&bytes).0.calls["madvise"].count, 1);
    let told = notes(&imported).into_iter().find(|(.., note)| note.contains("in no address space"));
    assert_eq!(told.map(|(line, count, _)| (line, count)), Some((15, 3)), "{imported}");
}

#[test]
fn a_pipe_is_not_replaced_by_a_recording_and_of_a_link_the_file_is() {
    let place = Place::new("special");
    let link = place.0.with_extension("link");
    let pipe = std::process::Command::new("mkfifo").arg(&place.0).status().unwrap();
    assert!(pipe.success());
    std::os::unix::fs::symlink(&place.0, &link).unwrap();
    let _gone = Place(link.clone());
    for path in [&place.0, &link] {
        let refused = import(&mut STRACE.as_bytes(), Form::Strace, &Options::default(), path).unwrap_err();
        assert!(refused.to_string().contains("no file that can be replaced"), "{refused}");
        assert!(!std::fs::metadata(path).unwrap().is_file());
    }
    std::fs::remove_file(&place.0).unwrap();
    std::fs::write(&place.0, "old").unwrap();
    import(&mut STRACE.as_bytes(), Form::Strace, &Options::default(), &link).unwrap();
    assert!(link.is_symlink() && std::fs::read(&place.0).unwrap().starts_with(b"\x89QTRACE"));
}

#[test]
fn of_what_it_is_not_known_how_long_it_took_no_time_is_told() {
    let text = STRACE.replace(" <0.000010>", "");
    let (_, bytes) = imported("untimed", &mut text.as_bytes(), Form::Strace).unwrap();
    let (summary, _) = parsed(&bytes);
    assert_eq!((summary.calls["mmap"].count, summary.calls["mmap"].timed), (2, 0));
    let shown = summary.to_string();
    assert!(shown.contains("mmap         2 calls, 3 pages\n") && shown.contains(", on 1 CPU\n"), "{shown}");
}
