//! The commands.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use crate::compile::{self, Compiled, Places};
use crate::find::{self, Found};
use crate::judges::{Judge, Set};
use crate::mutant::Mutant;
use crate::results::{Results, Verdict};
use crate::run::{self, Order};
use crate::sample::Sample;
use crate::source::{self, Source};
use crate::{explained, report, rooms, smoke};

const HELP: &str = "\
Changes the core's source, one small change at a time, and looks whether a test sees it.

    scripts/mutants run [ROOM...]         judge what has not been judged; Ctrl-C loses nothing
        --sets core,long,check,sim        by these tests (default: core,long,check)
        --left                            only those that survived so far: a smaller copy, quickly built
        --again                           those that survived are judged once more, by new tests
        --sample N                        of each room only N, chosen by chance
        --seed S                          by another chance than that of 1
        --match TEXT                      only mutants whose line holds TEXT
        --only TEXT                       only by tests whose name holds TEXT
        --jobs N                          so many processes at a time
    scripts/mutants survivors [ROOM...]   what no test has seen, and who reaches it (of a sample, too)
    scripts/mutants list [ROOM...]        all mutants (of a sample, too)
    scripts/mutants report [ROOM...]      the score by room (of a sample, too)
        --write                           into docs/mutation.md
    scripts/mutants smoke                 does the tool itself work? A few mutants of fixed choice

A room is a file or folder of crates/core/src: tlb, ipi, vmap/extent_cache.rs. None means all that are mutated.
";

/// What was asked for.
struct Asked {
    rooms: Vec<String>,
    sets: Vec<Set>,
    jobs: usize,
    left: bool,
    again: bool,
    write: bool,
    sample: Option<Sample>,
    holding: Option<String>,
    only: Option<String>,
}

fn parse(args: &[String]) -> Result<Asked, String> {
    let jobs = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let sets = vec![Set::Core, Set::Long, Set::Check];
    let mut asked = Asked {
        rooms: Vec::new(),
        sets,
        jobs,
        left: false,
        again: false,
        write: false,
        sample: None,
        holding: None,
        only: None,
    };
    let (mut each, mut seed) = (None, 1);
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or_else(|| format!("{arg} needs a value"));
        match arg.as_str() {
            "--left" => asked.left = true,
            "--again" => asked.again = true,
            "--write" => asked.write = true,
            "--match" => asked.holding = Some(value()?.clone()),
            "--only" => asked.only = Some(value()?.clone()),
            "--jobs" => asked.jobs = value()?.parse().map_err(|_| "--jobs needs a number".to_string())?,
            "--sample" => each = Some(value()?.parse().map_err(|_| "--sample needs a number".to_string())?),
            "--seed" => seed = value()?.parse().map_err(|_| "--seed needs a number".to_string())?,
            "--sets" => {
                let set = |name: &str| Set::ALL.into_iter().find(|set| set.name() == name);
                let sets = value()?
                    .split(',')
                    .map(|name| set(name).ok_or_else(|| format!("no set is called {name}")));
                asked.sets = sets.collect::<Result<_, _>>()?;
            }
            option if option.starts_with('-') => return Err(format!("no option is called {option}")),
            room => asked.rooms.push(room.to_string()),
        }
    }
    asked.sample = each.map(|each| Sample { each, seed });
    Ok(asked)
}

/// Carries out what the command line says.
pub fn run(root: PathBuf, args: &[String]) -> io::Result<ExitCode> {
    let Some((command, rest)) = args.split_first() else {
        print!("{HELP}");
        return Ok(ExitCode::SUCCESS);
    };
    let asked = match parse(rest) {
        Ok(asked) => asked,
        Err(error) => {
            eprintln!("mutants: {error}\n\n{HELP}");
            return Ok(ExitCode::from(2));
        }
    };
    let places = Places::new(root.canonicalize()?);
    std::fs::create_dir_all(&places.ours)?;
    let sources = source::read_core(&places.root)?;
    if let Some(room) = asked
        .rooms
        .iter()
        .find(|room| !sources.iter().any(|source| rooms::is_wanted(&source.path, &[(*room).clone()])))
    {
        eprintln!("mutants: {room} is no room that is mutated: {}", rooms::ROOMS.join(", "));
        return Ok(ExitCode::from(2));
    }
    let mut found = find::find(&sources, &|path| rooms::is_wanted(path, &asked.rooms));
    let all = rooms::counts(&compile::without_refused(&places, found.mutants.clone()));
    if let Some(sample) = asked.sample {
        sample.choose(&mut found.mutants);
    }
    let _lock = if ["run", "smoke"].contains(&command.as_str()) { Some(places.lock()?) } else { None };
    let mut results = Results::open(&places.ours.join("results.jsonl"))?;
    match command.as_str() {
        "run" => judge(&places, &sources, found, &asked, &mut results, &all),
        "list" => {
            found.mutants.iter().for_each(|mutant| println!("{}", mutant.line()));
            Ok(ExitCode::SUCCESS)
        }
        "survivors" => {
            print!("{}", report::survivors(&found.mutants, &results));
            Ok(ExitCode::SUCCESS)
        }
        "report" => {
            let mutants = compile::without_refused(&places, found.mutants);
            let table = report::table(&mutants, &results, &all);
            print!("{table}");
            report::stale(&mutants, &results).iter().for_each(|line| eprintln!("explained.txt: {line}"));
            if asked.write {
                std::fs::write(
                    places.root.join("docs/mutation.md"),
                    document(&places, &asked, &table, report::unseen(&mutants, &results))?,
                )?;
            }
            Ok(ExitCode::SUCCESS)
        }
        "smoke" => smoke::smoke(&places, &sources, found, asked.jobs),
        _ => {
            eprintln!("{HELP}");
            Ok(ExitCode::from(2))
        }
    }
}

fn judge(
    places: &Places,
    sources: &[Source],
    mut found: Found,
    asked: &Asked,
    results: &mut Results,
    all: &BTreeMap<String, usize>,
) -> io::Result<ExitCode> {
    let list = explained::list();
    let is_open = |mutant: &Mutant| {
        let killed = matches!(results.known.get(&mutant.key), Some(Verdict::Killed { .. }));
        let named = asked.holding.as_ref().is_none_or(|text| mutant.line().contains(text));
        let left = !asked.left || !killed && explained::why(&list, mutant).is_none();
        left && named
    };
    found.mutants.retain(is_open);
    let Compiled { mutants, numbers } = compile::compile(places, sources, found)?;
    println!("{} mutants", mutants.len());
    let order = Order { mutants: &mutants, numbers: &numbers, jobs: asked.jobs, again: asked.again };
    for &set in &asked.sets {
        let judge = Judge::new(set, places, asked.jobs, asked.only.as_deref().unwrap_or_default())?;
        run::run(&order, &judge, results)?;
    }
    print!("{}", report::table(&mutants, results, all));
    Ok(ExitCode::SUCCESS)
}

fn document(
    places: &Places,
    asked: &Asked,
    table: &str,
    (unseen, sets): (Vec<String>, Vec<&str>),
) -> io::Result<String> {
    let git = Command::new("git")
        .args(["log", "-1", "--format=%h, %cs"])
        .current_dir(&places.root)
        .output()
        .map(|output| String::from_utf8_lossy(&output.stdout).trim().to_string())?;
    let reasons = explained::list();
    let rooms = asked.rooms.join(" ");
    let sample = asked
        .sample
        .map_or_else(|| rooms.clone(), |sample| format!("{rooms} {}", sample.to_string().replace('`', "")));
    let mut text = include_str!("document.md.in")
        .replace("REVISION", &git)
        .replace("SAMPLE", &sample)
        .replace("TABLE", table.trim_end());
    text = text.replace("SETS", &sets.join(","));
    let unseen: String = unseen.iter().map(|line| format!("    {line}\n")).collect();
    text = text.replace("UNSEEN\n", &unseen);
    let mut told = BTreeSet::new();
    for entry in &reasons {
        if told.insert(&entry.why) {
            text.push_str(&format!("- {}\n", entry.why));
        }
    }
    Ok(text)
}
