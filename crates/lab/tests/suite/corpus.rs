//! Every input of `corpus/` through the command, under limits: seeds, and what once broke something. What each is, and
//! the exit code that it must have, stands in `corpus/README.md`.

use crate::common;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::limits::behaves;

const TABLE: &str = include_str!("../../corpus/README.md");

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus")
}

/// A place of this name that is empty.
fn scratch(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_file(&path);
    path
}

/// The table's files of one kind, each with its exit code.
fn listed(kind: &str) -> BTreeMap<String, i32> {
    let rows = TABLE.lines().filter_map(|line| line.strip_prefix("| `"));
    let row = |row: &str| {
        let (file, rest) = row.split_once("` | ").expect("a row of the table");
        let (code, what) = rest.split_once(" | ").expect("a row of the table");
        assert!(what.len() > 3, "{file}: the table does not say what it is");
        (file.to_owned(), code.parse().expect("an exit code"))
    };
    rows.map(row).filter(|(file, _)| file.starts_with(&format!("{kind}/"))).collect()
}

/// Runs each file of one kind, as many command lines as `commands` makes of it, and holds the last exit code of each
/// against the table.
fn all(kind: &str, commands: impl Fn(&Path) -> Vec<Vec<String>>) {
    let mut wrong = Vec::new();
    for (file, code) in listed(kind) {
        let mut last = None;
        for args in commands(&corpus().join(&file)) {
            match behaves(&args) {
                Ok(code) => last = Some(code),
                Err(what) => wrong.push(format!("{file}: {what}")),
            }
        }
        if last != Some(code) {
            wrong.push(format!("{file}: exit {last:?}, the table says {code}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path that is text")
}

#[test]
fn the_table_and_the_folder_are_the_same() {
    for kind in ["machines", "traces", "recordings", "settings", "arguments"] {
        let entries = fs::read_dir(corpus().join(kind)).expect("a folder of the corpus");
        let mut files: Vec<String> = entries
            .map(|entry| format!("{kind}/{}", entry.expect("a file").file_name().to_string_lossy()))
            .collect();
        files.sort();
        assert_eq!(files, listed(kind).into_keys().collect::<Vec<_>>());
    }
}

#[test]
fn machines_are_run_or_refused() {
    all("machines", |file| {
        let file = text(file);
        vec![
            words(&["list", "--machine", file]),
            words(&["list", "--machine", file, "--json"]),
            words(&["run", "no-pressure", "--machine", file, "--scale", "1"]),
        ]
    });
}

#[test]
fn traces_are_shown_and_replayed_or_refused() {
    all("traces", |file| {
        let file = text(file);
        vec![
            words(&["run", "trace", "--trace", file, "--machine", "uma-8", "--scale", "1024"]),
            words(&["trace", "show", file, "--json"]),
            words(&["trace", "show", file]),
        ]
    });
}

#[test]
fn recordings_are_imported_or_refused() {
    let out = scratch("corpus.qtrace");
    all("recordings", |file| vec![words(&["trace", "import", text(file), "--output", text(&out)])]);
    assert_eq!(behaves(&words(&["trace", "show", text(&out)])), Ok(0));
}

#[test]
fn settings_are_taken_or_refused() {
    let base = words(&["run", "no-pressure", "--machine", "ssd-8", "--scale", "256", "--set"]);
    // The machine alone runs: what is refused below is refused for what is set.
    assert_eq!(behaves(&base[..base.len() - 1]), Ok(0));
    let mut wrong = Vec::new();
    for (file, code) in listed("settings") {
        let lines = fs::read_to_string(corpus().join(&file)).expect("a file of the corpus");
        for line in lines.lines() {
            let ended = behaves(&[&base[..], &words(&[line])].concat());
            // What is taken may make a run that fails: it must say so, and end.
            if ended != Ok(code) && (code != 0 || ended != Ok(1)) {
                wrong.push(format!("{file}: {line:?}: {ended:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn command_lines_are_obeyed_or_refused() {
    all("arguments", |file| {
        let lines = fs::read_to_string(file).expect("a file of the corpus");
        vec![lines.strip_suffix('\n').unwrap_or(&lines).split('\n').map(str::to_owned).collect()]
    });
}

/// What cannot stand in a folder: a pipe that nobody writes to, and a trace larger than memory.
#[test]
fn a_pipe_is_not_waited_for_and_a_huge_trace_is_not_read() {
    let pipe = scratch("pipe.qtrace");
    assert!(Command::new("mkfifo").arg(&pipe).status().expect("mkfifo").success());
    let huge = scratch("huge.qtrace");
    let mut bytes = fs::read(corpus().join("traces/small.qtrace")).expect("a file of the corpus");
    bytes[80..88].copy_from_slice(&(1u64 << 40).to_le_bytes());
    fs::write(&huge, &bytes).expect("a place for it");
    fs::File::options()
        .write(true)
        .open(&huge)
        .expect("it is there")
        .set_len(1 << 40)
        .expect("a sparse file");
    for file in [&pipe, &huge] {
        for args in [
            words(&["trace", "show", text(file)]),
            words(&["run", "trace", "--trace", text(file)]),
            words(&["list", "--machine", text(file)]),
        ] {
            assert_eq!(behaves(&args), Ok(2), "{args:?}");
        }
    }
    fs::remove_file(&huge).expect("it is there");
}
