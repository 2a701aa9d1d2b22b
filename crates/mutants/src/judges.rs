//! What judges the mutants: sets of tests, how long each takes, and which mutants it reaches.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use std::{fs, io, thread};

use serde::{Deserialize, Serialize};

use crate::compile::{Places, build};
use crate::process::{self, Binary, Ended};

/// A set of tests.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Set {
    /// The core's own tests, but for the long ones.
    Core,
    /// The long ones.
    Long,
    /// The checker's scenarios, each under some hundred schedules.
    Check,
    /// The simulator's tests.
    Sim,
}

impl Set {
    pub const ALL: [Set; 4] = [Set::Core, Set::Long, Set::Check, Set::Sim];

    pub fn name(self) -> &'static str {
        match self {
            Set::Core => "core",
            Set::Long => "long",
            Set::Check => "check",
            Set::Sim => "sim",
        }
    }

    /// Builds it in the copy.
    pub fn build(self, places: &Places) -> io::Result<Vec<Binary>> {
        let args: &[&str] = match self {
            Set::Core | Set::Long => &["test", "--no-run", "-p", "quietmm", "--lib", "--test", "suite"],
            Set::Check => &["build", "-p", "quietmm-judge"],
            Set::Sim => &["test", "--no-run", "-p", "quietmm-sim", "--test", "suite"],
        };
        let package = if let Set::Sim = self { "sim" } else { "core" };
        let folder = places.copy().join("crates").join(package);
        let built = build(places, args)?;
        let binary = |path| Binary { path, folder: folder.clone() };
        Ok(built.into_iter().map(binary).collect())
    }
}

/// A test, and what is known of it.
#[derive(Clone, Serialize, Deserialize)]
pub struct Test {
    /// Its binary's place in the list.
    pub binary: usize,
    pub name: String,
    /// What it takes with no mutant.
    pub cpu: Duration,
    /// The numbers of the mutants that it reaches.
    pub reaches: BTreeSet<u32>,
}

/// A set that is ready to judge.
pub struct Judge {
    pub set: Set,
    pub binaries: Vec<Binary>,
    pub tests: Vec<Test>,
}

#[derive(Serialize, Deserialize)]
struct Known {
    built: Vec<(PathBuf, u64)>,
    tests: Vec<Test>,
}

impl Known {
    /// What is lost if it fails is time.
    fn save(&self, path: &Path) {
        let _ = serde_json::to_vec(self).map(|text| fs::write(path, text));
    }
}

impl Judge {
    /// Runs each test once whose name holds `only`, unless that was done with just these binaries.
    ///
    /// One that fails with no mutant is left out: it reads the core's source, which is not the same here.
    ///
    /// # Errors
    /// When many do.
    pub fn new(set: Set, places: &Places, jobs: usize, only: &str) -> io::Result<Judge> {
        let binaries = set.build(places)?;
        let built: Vec<(PathBuf, u64)> =
            binaries.iter().map(|binary| (binary.path.clone(), written(&binary.path))).collect();
        let of = if set == Set::Long { Set::Core } else { set };
        let path = places.ours.join(format!("reach-{}.json", of.name()));
        let known: Option<Known> = fs::read(&path).ok().and_then(|text| serde_json::from_slice(&text).ok());
        let known = known.filter(|known| known.built == built).unwrap_or(Known { built, tests: Vec::new() });
        let is_known =
            |at: usize, name: &str| known.tests.iter().any(|test| test.binary == at && test.name == name);
        let all: Vec<(usize, String)> = binaries
            .iter()
            .enumerate()
            .flat_map(|(at, binary)| process::list(binary).into_iter().map(move |name| (at, name)))
            .filter(|(at, name)| !is_known(*at, name) && name.contains(only))
            .collect();
        let (next, known, failed) = (AtomicUsize::new(0), Mutex::new(known), Mutex::new(Vec::new()));
        thread::scope(|scope| {
            for job in 0..jobs {
                let (all, binaries, next, known, failed, path) =
                    (&all, &binaries, &next, &known, &failed, &path);
                let file = places.ours.join(format!("reach-{job}.tmp"));
                scope.spawn(move || {
                    while let Some((binary, name)) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
                        let _ = fs::remove_file(&file);
                        let told = format!("reach:{}", file.display());
                        // Where long tests do not judge they are not run to their ends: there would be no end to that.
                        let most = if set == Set::Core { LONG * 3 } else { Duration::from_secs(1200) };
                        let run = process::run(&binaries[*binary], &[name], &told, most);
                        if set == Set::Core && matches!(run.ended, Ended::Hung(_)) {
                            continue;
                        }
                        if run.ended != Ended::Passed {
                            failed.lock().expect("no panic").push(format!("{name}: {:?}", run.ended));
                            continue;
                        }
                        let reaches = reached(&fs::read(&file).unwrap_or_default());
                        let mut known = known.lock().expect("no panic");
                        known.tests.push(Test { binary: *binary, name: name.clone(), cpu: run.cpu, reaches });
                        if known.tests.len() % 20 == 0 {
                            known.save(path);
                        }
                    }
                    let _ = fs::remove_file(&file);
                });
            }
        });
        let failed = failed.into_inner().expect("no panic");
        failed.iter().for_each(|failed| println!("left out, because it fails without any mutant: {failed}"));
        if failed.len() > 5 && failed.len() * 20 > all.len() {
            return Err(io::Error::other(
                "too many tests fail without any mutant: nothing can be said with the rest",
            ));
        }
        let mut known = known.into_inner().expect("no panic");
        known.tests.sort_by(|one, two| (one.cpu, &one.name).cmp(&(two.cpu, &two.name)));
        known.save(&path);
        known.tests.retain(|test| test.name.contains(only));
        Ok(Judge::of(set, binaries, known.tests))
    }

    fn of(set: Set, binaries: Vec<Binary>, mut tests: Vec<Test>) -> Judge {
        match set {
            Set::Core => tests.retain(|test| test.cpu < LONG),
            Set::Long => tests.retain(|test| test.cpu >= LONG),
            Set::Check | Set::Sim => {}
        }
        Judge { set, binaries, tests }
    }
}

/// CPU time of a long test.
const LONG: Duration = Duration::from_millis(700);

/// When a file was written, in nanoseconds.
fn written(path: &PathBuf) -> u64 {
    let time = fs::metadata(path).and_then(|metadata| metadata.modified()).unwrap_or(SystemTime::UNIX_EPOCH);
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}

/// The numbers in what `mutation.rs` writes: the first of a run, and how many.
fn reached(bytes: &[u8]) -> BTreeSet<u32> {
    let number = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().expect("four of them"));
    bytes
        .chunks_exact(8)
        .flat_map(|pair| number(&pair[..4])..number(&pair[..4]) + number(&pair[4..]))
        .collect()
}
