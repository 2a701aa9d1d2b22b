//! Programs recorded on this host. What a method may not do here it says, with a command; what it does is what the program did.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;

use quietmm_host::record::{Ended, Method, Options, RecordError, Recorded, What, record};
use quietmm_host::summary::Summary;
use quietmm_workloads::trace::AnyTrace;

const THREADS: u64 = 3;
const ROUNDS: u64 = 40;
/// So many pages nothing else unmaps.
const PAGES: u64 = 19;
const SUBJECT: &str = "QUIETMM_TEST_SUBJECT";
const ENDLESS: &str = "QUIETMM_TEST_ENDLESS_SUBJECT";
const LIMITED: &str = "QUIETMM_TEST_LIMITED_RECORDER";

/// What is recorded: this test, when it is asked to be. Threads map, touch and unmap; then the process forks.
#[test]
fn subject() {
    if std::env::var_os(SUBJECT).is_none() {
        return;
    }
    let work = || {
        for _ in 0..ROUNDS {
            let bytes = (PAGES * 4096) as usize;
            let (prot, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
            // SAFETY: a new mapping that is written inside and unmapped.
            unsafe {
                let at = libc::mmap(std::ptr::null_mut(), bytes, prot, flags, -1, 0);
                assert_ne!(at, libc::MAP_FAILED);
                at.cast::<u8>().write_volatile(1);
                libc::munmap(at, bytes);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(work);
        }
    });
    let status = Command::new("/bin/sh").args(["-c", "exit 3"]).status().unwrap();
    assert_eq!(status.code(), Some(3));
}

fn place(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("quietmm-record-{}-{name}.qtrace", std::process::id()))
}

fn run(name: &str, method: Option<Method>, words: &[&str]) -> Result<(Recorded, Vec<u8>), RecordError> {
    let out = place(name);
    let what = What::Command(words.iter().map(OsString::from).collect());
    let recorded = record(&Options { what, method, at_most: None, out: out.clone() }, &|| false)?;
    let bytes = std::fs::read(&out).unwrap();
    std::fs::remove_file(&out).unwrap();
    Ok((recorded, bytes))
}

fn summary(bytes: &[u8]) -> Summary {
    match AnyTrace::parse(bytes).unwrap() {
        AnyTrace::Operations(recording) => Summary::of(&recording, bytes.len() as u64),
        AnyTrace::Accesses(_) => panic!("not a recording of threads"),
    }
}

fn unmaps_of_so_many(bytes: &[u8]) -> u64 {
    let AnyTrace::Operations(recording) = AnyTrace::parse(bytes).unwrap() else { panic!("not a recording") };
    let unmaps = recording.events().filter(|event| {
        use quietmm_workloads::trace::recording::What;
        matches!(event.what, What::Unmap { pages, .. } if pages.count == PAGES)
    });
    unmaps.count() as u64
}

/// The program as a whole, by one method; or why that method cannot.
fn whole(method: Option<Method>) -> Result<(Recorded, Vec<u8>), RecordError> {
    let own = std::env::current_exe().unwrap();
    let name = method.map_or("best", Method::name);
    // The environment says that it is the subject; `env` sets it for this child alone.
    let setting = format!("{SUBJECT}=1");
    let words =
        ["/usr/bin/env", &setting, own.to_str().unwrap(), "--exact", "record::subject", "--test-threads=1"];
    run(name, method, &words)
}

fn holds(method: Option<Method>) {
    let (recorded, bytes) = match whole(method) {
        Ok(done) => done,
        // Said, not silent: which is the same as what `quietmm record` says.
        Err(RecordError::NotAllowed(why)) => {
            assert!(method.is_some() && !why.is_empty(), "without a method, one must work here");
            assert!(why.iter().all(|(_, missing)| !missing.what.is_empty()));
            eprintln!("not tested here: {why:?}; the best method is, by another test");
            return;
        }
        Err(error) => panic!("{error}"),
    };
    let summary = summary(&bytes);
    assert_eq!(recorded.ended, Some(Ended::Code(0)), "{summary}");
    assert_eq!(recorded.lost, 0);
    assert_eq!(unmaps_of_so_many(&bytes), THREADS * ROUNDS, "{summary}");
    // Its own threads and the test's; sh is a process, and so is what env was before.
    assert!(u64::from(summary.threads) >= 2 + THREADS && summary.spaces >= 3, "{summary}");
    if let Some(faults) = summary.faults {
        assert!(faults >= THREADS * ROUNDS, "{summary}");
    }
    assert!(summary.faults.is_some() || !recorded.missing.is_empty(), "what is missing is told");
}

#[test]
fn the_best_method_records_what_the_program_did() {
    holds(None);
}

#[test]
fn perf_does_or_says_why_not() {
    holds(Some(Method::Perf));
}

#[test]
fn ptrace_does() {
    holds(Some(Method::Ptrace));
}

#[test]
fn strace_does_or_says_why_not() {
    holds(Some(Method::Strace));
}

#[test]
fn the_program_is_as_nice_as_without_a_recorder() {
    let own = Command::new("/bin/nice").output().or_else(|_| Command::new("nice").output()).unwrap();
    let own: i32 = String::from_utf8(own.stdout).unwrap().trim().parse().unwrap();
    let (recorded, _) = run("nice", None, &["/bin/sh", "-c", "exit $((20 + $(nice)))"]).unwrap();
    assert_eq!(recorded.ended, Some(Ended::Code(20 + own)));
}

#[test]
fn how_the_program_ended_is_told() {
    for (script, ended) in [("exit 7", Ended::Code(7)), ("kill -9 $$", Ended::Signal(9))] {
        let (recorded, _) = run("ended", Some(Method::Ptrace), &["/bin/sh", "-c", script]).unwrap();
        assert_eq!(recorded.ended, Some(ended));
    }
}

#[test]
fn a_program_that_is_not_there_is_an_error_and_no_file() {
    for method in [None, Some(Method::Ptrace), Some(Method::Strace)] {
        for name in ["/nonexistent/program", "nonexistent-program"] {
            let error = run("absent", method, &[name]).unwrap_err();
            assert!(error.to_string().starts_with(&format!("{name}: No such file")), "{error}");
        }
        assert!(!place("absent").exists());
    }
}

#[test]
fn nothing_runs_whose_recording_cannot_be_written() {
    let (folder, ran) = (place("folder"), place("ran"));
    std::fs::create_dir(&folder).unwrap();
    for (out, method) in
        [(folder.clone(), None), (folder.join("none/x"), Some(Method::Strace)), ("/".into(), None)]
    {
        let what = What::Command(["/usr/bin/touch".into(), ran.clone().into_os_string()].to_vec());
        let error = record(&Options { what, method, at_most: None, out }, &|| false).unwrap_err();
        assert!(matches!(error, RecordError::Output(_)), "{error}");
    }
    assert!(!ran.exists() && std::fs::read_dir(&folder).unwrap().next().is_none());
    std::fs::remove_dir(&folder).unwrap();
}

#[test]
fn the_ends_of_threads_are_in_a_recording_by_strace() {
    let shell = ["/bin/sh", "-c", "for i in 1 2 3 4 5 6; do /bin/true; done; exit 0"];
    match run("ends", Some(Method::Strace), &shell) {
        Ok((_, bytes)) => {
            let summary = summary(&bytes);
            assert_eq!((summary.threads, summary.most_alive), (7, 2), "{summary}");
        }
        Err(RecordError::NotAllowed(why)) => eprintln!("not tested here: {why:?}"),
        Err(error) => panic!("{error}"),
    }
}

/// A process that goes when the test does, whatever becomes of that.
struct Sleeper(std::process::Child);

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_recording_of_a_process_ends_when_it_is_told_and_the_process_goes_on() {
    let mut sleeper = Sleeper(Command::new("/bin/sleep").arg("100000").spawn().unwrap());
    let child = &mut sleeper.0;
    // Its loader maps what it needs after it has begun; then it sleeps.
    while !std::fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap().contains("(sleep) S") {
        std::thread::yield_now();
    }
    for method in [None, Some(Method::Ptrace)] {
        let out = place("attached");
        let at_most = Some(std::time::Duration::ZERO);
        let options = Options { what: What::Process(child.id() as i32), method, at_most, out: out.clone() };
        let recorded = record(&options, &|| false).unwrap();
        assert_eq!((recorded.ended, recorded.sums.threads), (None, 1));
        let summary = summary(&std::fs::read(&out).unwrap());
        assert!(summary.bounded && summary.calls["mmap"].count > 5, "what was mapped before: {summary}");
        std::fs::remove_file(&out).unwrap();
        assert_eq!(child.try_wait().unwrap(), None, "it still runs");
    }
}

/// Threads that map, touch and unmap until they are ended.
#[test]
fn endless_subject() {
    if std::env::var_os(ENDLESS).is_none() {
        return;
    }
    let work = || loop {
        // SAFETY: a new mapping that is unmapped.
        unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let at = libc::mmap(std::ptr::null_mut(), 4096, libc::PROT_READ, flags, -1, 0);
            libc::munmap(at, 4096);
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    };
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(work);
        }
    });
}

fn threads_of(process: u32) -> usize {
    std::fs::read_dir(format!("/proc/{process}/task")).map_or(0, Iterator::count)
}

fn endless() -> Sleeper {
    let own = std::env::current_exe().unwrap();
    let words = ["--exact", "record::endless_subject", "--test-threads=1"];
    let subject = Sleeper(
        Command::new(own).args(words).env(ENDLESS, "1").stdout(std::process::Stdio::null()).spawn().unwrap(),
    );
    // The test's own two, too.
    while threads_of(subject.0.id()) < 2 + THREADS as usize {
        std::thread::yield_now();
    }
    subject
}

/// Records a process, when it is asked to: in a process that may open few files.
#[test]
fn limited_recorder() {
    let Some(process) = std::env::var_os(LIMITED) else { return };
    let what = What::Process(process.to_str().unwrap().parse().unwrap());
    let (out, at_most) = (place("limited"), Some(std::time::Duration::ZERO));
    match record(&Options { what, method: Some(Method::Perf), at_most, out: out.clone() }, &|| false) {
        Ok(_) => std::fs::remove_file(&out).unwrap(),
        Err(error) => assert!(!error.to_string().contains("files"), "{error}"),
    }
}

#[test]
fn as_many_files_are_open_as_events_of_all_threads_on_all_cpus_take() {
    let subject = endless();
    let own = std::env::current_exe().unwrap();
    let status = Command::new("/bin/sh")
        .args(["-c", "ulimit -S -n 40; exec \"$0\" --exact record::limited_recorder --nocapture"])
        .arg(own)
        .env(LIMITED, subject.0.id().to_string())
        .status();
    assert!(status.unwrap().success());
}

/// How many threads unmap something in a recording.
fn unmapping(bytes: &[u8]) -> usize {
    use quietmm_workloads::trace::recording::What;
    let AnyTrace::Operations(recording) = AnyTrace::parse(bytes).unwrap() else { panic!() };
    let unmaps = recording.events().filter(|event| matches!(event.what, What::Unmap { .. }));
    unmaps.map(|event| event.thread).collect::<std::collections::BTreeSet<u32>>().len()
}

#[test]
fn all_threads_of_a_process_that_runs_are_in_its_space_by_every_method() {
    let subject = endless();
    let process = subject.0.id();
    for method in Method::ALL {
        // For longer if a busy host has kept one of them from its work all the time.
        for seconds in [1, 8, 64, 512] {
            let out = place("running");
            let at_most = Some(std::time::Duration::from_secs(seconds));
            let what = What::Process(process as i32);
            match record(&Options { what, method: Some(method), at_most, out: out.clone() }, &|| false) {
                Ok(recorded) => {
                    let bytes = std::fs::read(&out).unwrap();
                    std::fs::remove_file(&out).unwrap();
                    let summary = summary(&bytes);
                    assert_eq!((summary.threads, summary.spaces), (2 + THREADS as u32, 1), "{summary}");
                    assert_eq!(recorded.odd.back_in_time, 0, "{}", method.name());
                    if unmapping(&bytes) == THREADS as usize {
                        break;
                    }
                    assert!(seconds < 512, "{}: {summary}", method.name());
                }
                Err(RecordError::NotAllowed(why)) => {
                    eprintln!("not tested here: {why:?}");
                    break;
                }
                Err(error) => panic!("{error}"),
            }
        }
    }
}

#[test]
fn a_program_goes_on_when_its_recording_ends_by_every_method() {
    for method in Method::ALL {
        let (out, number) = (place("goes-on"), place("number"));
        let script = format!("echo $$ > {}; exec sleep 100000", number.display());
        let what = What::Command(["/bin/sh".into(), "-c".into(), script.into()].to_vec());
        let written = number.clone();
        let runs = move || std::fs::read_to_string(&written).is_ok_and(|text| text.ends_with('\n'));
        match record(&Options { what, method: Some(method), at_most: None, out: out.clone() }, &runs) {
            Ok(recorded) => {
                assert_eq!(recorded.ended, None);
                let process: i32 = std::fs::read_to_string(&number).unwrap().trim().parse().unwrap();
                // SAFETY: of the program that was begun here.
                assert_eq!(unsafe { libc::kill(process, libc::SIGKILL) }, 0, "{}", method.name());
                std::fs::remove_file(&out).unwrap();
                std::fs::remove_file(&number).unwrap();
            }
            Err(RecordError::NotAllowed(why)) => eprintln!("not tested here: {why:?}"),
            Err(error) => panic!("{error}"),
        }
    }
}
