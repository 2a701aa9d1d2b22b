//! The importer on small recordings, whole, cut and foreign; folding against a slow model of itself.

use std::fs;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

use quietmm_workloads::trace::{Record, Trace};

use super::error::{ImportError, ShowError};
use super::fold::Fold;
use super::import::{import, translate};
use super::options::Options;
use super::show::{Shown, show};
use super::summary::Summary;

/// A directory of one test, removed at its end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(test: &str) -> Self {
        let path = std::env::temp_dir().join(format!("quietmm-trace-{test}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn out(&self) -> PathBuf {
        self.0.join("out.qtrace")
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

const SMALL: &str = "\
==12== Lackey, an example Valgrind tool
==12== Command: ./hello big world
I  00401000,3
 L 1ffeffffff,2
the program says hello
 M 00402010,4
 S 00402018,8
I  00401003,4
==12== Exit code:       0
";

fn options() -> Options {
    Options::new("small.lk")
}

fn import_text(text: &str, options: &Options, out: &Path) -> Result<Summary, ImportError> {
    import(&mut text.as_bytes(), options, out)
}

fn records(path: &Path) -> Vec<Record> {
    Trace::parse(&fs::read(path).unwrap()).unwrap().records().collect()
}

fn record(page: u32, reads: u32, writes: u32) -> Record {
    Record { page, reads, writes }
}

#[test]
fn a_recording_becomes_a_trace() {
    let scratch = Scratch::new("whole");
    let summary = import_text(SMALL, &options(), &scratch.out()).unwrap();
    // Pages 401, 402, 1ffefff and 1fff000: the load crosses a page, the modify is two accesses.
    assert_eq!((summary.accesses, summary.reads, summary.writes, summary.pages), (7, 5, 2, 4));
    assert_eq!((summary.foreign_lines, summary.first_foreign, summary.valgrind_lines), (1, Some(5), 3));
    assert!(!summary.bounded);
    // 0x401 -> 1; 0x1ffefff is 511 modulo 512 and the gap shrinks to at least 512.
    let expected = [record(1, 2, 0), record(1023, 1, 0), record(1024, 1, 0), record(2, 1, 2)];
    assert_eq!(records(&scratch.out()), expected);
    assert_eq!(scratch.names(), ["out.qtrace"]);

    let shown = show(&scratch.out()).unwrap();
    assert_eq!((shown.program.as_str(), shown.command.as_str()), ("./hello", "./hello big world"));
    assert_eq!((shown.pages, shown.pages_written, shown.span, shown.tables), (4, 1, 1025, 3));
    assert_eq!((shown.accesses, shown.records, shown.working_set.most), (7, 4, 4));
    assert_eq!(shown.file_bytes, summary.bytes);
    let json = serde_json::to_value(&shown).unwrap();
    assert_eq!(json["working_set"]["mean"], 4);
    assert_eq!(json["folded"][0]["records"], 2);
    assert!(shown.to_string().contains("7: 5 reads (with instruction fetches), 2 writes"));
}

#[test]
fn a_program_that_a_signal_ended_is_a_part_of_its_run() {
    let scratch = Scratch::new("signal");
    let text = SMALL
        .replace("==12== Exit", "==12== Process terminating with default action of signal 15\n==12== Exit");
    assert!(import_text(&text, &options(), &scratch.out()).unwrap().bounded);
    assert!(show(&scratch.out()).unwrap().bounded);
}

#[test]
fn a_window_of_one_page_keeps_each_run() {
    let scratch = Scratch::new("runs");
    let options = Options { window: 1, ..options() };
    import_text(SMALL, &options, &scratch.out()).unwrap();
    let expected =
        [record(1, 1, 0), record(1023, 1, 0), record(1024, 1, 0), record(2, 1, 2), record(1, 1, 0)];
    assert_eq!(records(&scratch.out()), expected);
}

#[test]
fn fetches_can_be_left_out() {
    let scratch = Scratch::new("fetches");
    let summary = import_text(SMALL, &Options { fetches: false, ..options() }, &scratch.out()).unwrap();
    assert_eq!((summary.accesses, summary.left_out, summary.pages), (5, 2, 3));
    assert!(!show(&scratch.out()).unwrap().fetches);
}

#[test]
fn a_start_can_be_skipped() {
    let scratch = Scratch::new("skip");
    let summary = import_text(SMALL, &Options { skip: 3, ..options() }, &scratch.out()).unwrap();
    assert_eq!((summary.accesses, summary.left_out, summary.bounded), (4, 3, true));
    let error = import_text(SMALL, &Options { skip: 8, ..options() }, &scratch.out()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "small.lk:9: all 7 accesses are left out; a smaller --skip or no --no-fetch would leave some"
    );
}

/// Returns its text, then fails.
struct Failing<'a>(&'a [u8]);

impl Read for Failing<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.0.read(buffer)? {
            0 => Err(io::Error::other("the disk is gone")),
            read => Ok(read),
        }
    }
}

#[test]
fn behind_the_limit_nothing_is_read() {
    let scratch = Scratch::new("limit");
    let mut input = BufReader::new(Failing(SMALL.as_bytes()));
    let limited = Options { limit: Some(4), ..options() };
    let summary = import(&mut input, &limited, &scratch.out()).unwrap();
    // The modify that brings the accesses to the limit is not split.
    assert_eq!((summary.accesses, summary.lines, summary.bounded), (5, 6, true));

    let mut input = BufReader::new(Failing(SMALL.as_bytes()));
    let error = import(&mut input, &options(), &scratch.out()).unwrap_err();
    assert_eq!(error.to_string(), "small.lk:9: the disk is gone; the input must be readable to its end");
}

#[test]
fn a_recording_cut_within_a_line_leaves_the_old_trace_alone() {
    let scratch = Scratch::new("cut");
    fs::write(scratch.out(), "old").unwrap();
    for length in 0..SMALL.len() {
        let text = &SMALL[..length];
        let result = import_text(text, &options(), &scratch.out());
        if text.ends_with('\n') && text.contains("I  ") {
            // Nothing is broken, but valgrind did not report the end: a part of the run.
            assert!(result.unwrap().bounded);
            fs::write(scratch.out(), "old").unwrap();
            continue;
        }
        let (lines, error) = (text.split('\n').count(), result.unwrap_err().to_string());
        if !text.is_empty() && !text.ends_with('\n') {
            let expected =
                format!("small.lk:{lines}: the line is cut at byte {length}, the end of the input;");
            assert!(error.starts_with(&expected), "{error}");
        }
        assert_eq!(fs::read(scratch.out()).unwrap(), b"old");
        assert_eq!(scratch.names(), ["out.qtrace"]);
    }
}

#[test]
fn a_foreign_file_is_told_what_is_expected() {
    let scratch = Scratch::new("foreign");
    for text in ["", "hello\nworld\n", "==1== Memcheck, a memory error detector\n"] {
        let error = import_text(text, &options(), &scratch.out()).unwrap_err().to_string();
        let lines = text.lines().count();
        let expected = format!("small.lk:{lines}: no access in {lines} lines; the output of 'valgrind");
        assert!(error.starts_with(&expected), "{error}");
        assert!(scratch.names().is_empty());
    }
    let mut endless = BufReader::new(io::repeat(b'\n'));
    assert!(matches!(import(&mut endless, &options(), &scratch.out()), Err(ImportError::NoAccess { .. })));
}

#[test]
fn some_output_of_the_program_is_accepted_but_not_more() {
    let scratch = Scratch::new("share");
    let mixed = |foreign: usize| format!("{}{}", " L 00001000,8\n".repeat(900), "out\n".repeat(foreign));
    assert_eq!(import_text(&mixed(100), &options(), &scratch.out()).unwrap().foreign_lines, 100);
    let error = import_text(&mixed(101), &options(), &scratch.out()).unwrap_err().to_string();
    assert!(
        error.starts_with("small.lk:901: the first of 101 foreign lines among 1001; at most 10%"),
        "{error}"
    );
    let generous = Options { foreign_percent: 20, ..options() };
    assert!(import_text(&mixed(101), &generous, &scratch.out()).is_ok());
}

#[test]
fn an_output_that_cannot_be_written_is_reported() {
    let scratch = Scratch::new("write");
    // A directory in the way is noticed late, at the renaming: what was written beside it must go.
    let directory = scratch.0.join("directory");
    fs::create_dir(&directory).unwrap();
    for out in [directory, scratch.0.join("missing/out.qtrace"), PathBuf::from("/")] {
        let error = import_text(SMALL, &options(), &out).unwrap_err();
        assert!(matches!(error, ImportError::Write { .. }), "{error}");
    }
    assert_eq!(scratch.names(), ["directory"]);
}

#[test]
fn options_out_of_range_are_refused() {
    let scratch = Scratch::new("options");
    for wrong in [
        Options { window: 0, ..options() },
        Options { epoch: 0, ..options() },
        Options { epoch: 1 << 31, ..options() },
    ] {
        assert!(matches!(import_text(SMALL, &wrong, &scratch.out()), Err(ImportError::Option { .. })));
    }
}

#[test]
fn what_is_no_trace_is_not_shown() {
    let scratch = Scratch::new("show");
    fs::write(scratch.out(), SMALL).unwrap();
    let error = show(&scratch.out()).unwrap_err().to_string();
    let right =
        "a .qtrace file begins with the bytes 89 'QTRACE' 0a; `quietmm trace import` makes one of a text";
    assert!(error.ends_with(&format!("out.qtrace: byte 0: not a trace; {right}")), "{error}");
    import_text(SMALL, &options(), &scratch.out()).unwrap();
    let mut bytes = fs::read(scratch.out()).unwrap();
    bytes.pop();
    fs::write(scratch.out(), bytes).unwrap();
    assert!(matches!(show(&scratch.out()), Err(ShowError::Trace { .. })));
    assert!(matches!(show(&scratch.0.join("missing")), Err(ShowError::Read { .. })));
}

#[test]
fn a_damaged_recording_is_imported_or_refused() {
    // In memory: a file that is written and synced for each of 1,800 recordings takes a minute on a slow disk.
    for at in 0..SMALL.len() {
        for byte in [b'\n', b',', b' ', b'L', b'f', b'=', 0, 0xff] {
            let mut text = SMALL.as_bytes().to_vec();
            text[at] = byte;
            if let Ok((summary, file)) = translate(&mut text.as_slice(), &options()) {
                let shown = Shown::of(&Trace::parse(&file).unwrap(), file.len() as u64);
                assert_eq!((shown.pages, shown.accesses), (summary.pages, summary.accesses), "byte {at}");
            }
        }
    }
}

/// The rule of epochs as it is stated, without any index.
fn folded(accesses: &[(u64, bool)], window: usize, epoch: usize) -> Vec<Record> {
    let mut records: Vec<Record> = Vec::new();
    let mut first_touch: Vec<u64> = Vec::new();
    let mut current: Vec<Record> = Vec::new();
    let mut taken = 0;
    for &(page, write) in accesses {
        if !first_touch.contains(&page) {
            first_touch.push(page);
        }
        let id = first_touch.iter().position(|&known| known == page).unwrap() as u32;
        let known = current.iter().any(|record| record.page == id);
        if taken == epoch || (!known && current.len() == window) {
            records.append(&mut current);
            taken = 0;
        }
        if !current.iter().any(|record| record.page == id) {
            current.push(record(id, 0, 0));
        }
        let entry = current.iter_mut().find(|record| record.page == id).unwrap();
        entry.reads += u32::from(!write);
        entry.writes += u32::from(write);
        taken += 1;
    }
    records.append(&mut current);
    records
}

#[test]
fn folding_is_what_its_rule_says() {
    let mut state = 7u64;
    let mut random = |below: u64| {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (state >> 33) % below
    };
    for (window, epoch) in [(1, 1), (1, 100), (2, 7), (5, 1000), (64, 50), (3, 20)] {
        for _ in 0..20 {
            // A multiple of the cache's size apart, some pages share one of its ways.
            let accesses: Vec<(u64, bool)> =
                (0..500).map(|_| (random(9) * 512 + random(2), random(3) == 0)).collect();
            let mut fold = Fold::new(window, epoch);
            for &(page, write) in &accesses {
                fold.add(page, u32::from(!write), u32::from(write)).unwrap();
            }
            let (ids, records) = fold.finish();
            assert_eq!(records, folded(&accesses, window as usize, epoch as usize), "{window} {epoch}");
            assert_eq!(records.iter().map(Record::accesses).sum::<u64>(), 500);
            assert!(ids.keys().is_sorted());
        }
    }
}
