//! `quietmm check`: tables, files, errors; the same bytes twice.

use crate::common;

use common::page::{of, pointers, read, speaks, stands_alone};
use common::{folder, good, output, refused, text, with};
use serde_json::Value;

fn json(text: &str) -> Value {
    serde_json::from_str(text).expect("JSON")
}

#[test]
fn a_sound_core_gets_a_table_and_no_violation() {
    let args = ["check", "unmap-lazy", "tables-lazy", "unmap-lazy", "--schedules", "60"];
    let text = good(&args);
    assert_eq!(text.lines().filter(|line| line.starts_with("unmap-lazy")).count(), 1, "{text}");
    assert!(
        text.contains("departed") && text.contains("2 scenarios") && text.ends_with("No violation.\n"),
        "{text}"
    );
    let as_json = json(&good(&[&args[..], &["--json"]].concat()));
    assert_eq!(as_json["violations"], Value::Array(Vec::new()));
    assert!(as_json["scenarios"][0]["schedules"].as_u64() >= Some(120));
}

#[test]
fn the_same_seed_prints_the_same_bytes_with_any_number_of_threads() {
    let args =
        ["check", "unmap-switch", "reclaim-fault", "--schedules", "100", "--seed", "5", "--json", "--jobs"];
    let one = good(&[&args[..], &["1"]].concat());
    assert_eq!(one, good(&[&args[..], &["1"]].concat()));
    assert_eq!(one, good(&[&args[..], &["3"]].concat()));
    let other =
        good(&["check", "unmap-switch", "reclaim-fault", "--schedules", "100", "--seed", "6", "--json"]);
    assert_ne!(one, other, "another seed, other schedules");
}

#[test]
fn a_way_alone_does_its_part_and_all_of_them_are_the_whole() {
    let tried = |more: &[&str]| {
        let args = [&["check", "unmap-switch", "--schedules", "50", "--json"], more].concat();
        json(&good(&args))["schedules"].as_u64().unwrap()
    };
    let ways = ["random", "priorities", "exhaustive"];
    let each = ways.map(|way| tried(&["--way", way]));
    assert_eq!(each[..2], [50, 50]);
    assert_eq!(each[2], tried(&["--way", "exhaustive", "--seed", "7"]), "whatever the seed");
    assert_eq!(each.iter().sum::<u64>(), tried(&[]));
    assert_eq!(tried(&["--way", "exhaustive,random"]), each[0] + each[2]);
    let mutant = ["check", "--mutant", "flush-before-unmap-returns", "--schedules", "200"];
    let text = good(&[&mutant[..], &["--way", "priorities"]].concat());
    assert!(text.contains("priorities") && !text.contains("exhaustive"), "{text}");
    let as_json = json(&good(&[&mutant[..], &["--way", "exhaustive", "--json"]].concat()));
    assert_eq!((&as_json["rules"][0]["random"], &as_json["found"]), (&Value::Null, &1.into()));
    assert_eq!(as_json["missed_by_random_found_by_exhaustive"], Value::Array(Vec::new()), "nobody has tried");
    let said = refused(&["check", "--way", "cleverly"]);
    assert!(said.contains("random, priorities, exhaustive"), "{said}");
}

#[test]
fn a_broken_rule_is_found_drawn_saved_and_played_again() {
    let folder = folder("check", "mutant");
    let save = folder.to_str().unwrap();
    let text =
        good(&["check", "--mutant", "flush-before-unmap-returns", "--schedules", "200", "--save", save]);
    assert!(
        text.contains("1 of 1 found") && text.contains("SKIPS") && text.contains("left out, at step"),
        "{text}"
    );
    let files: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    let [file] = &files[..] else { panic!("one file: {files:?}") };
    let file = file.to_str().unwrap();
    let again = good(&["check", "--replay", file]);
    assert!(again.contains("SKIPS") && again.contains("left out, at step"), "{again}");
    assert_eq!(again, good(&["check", "--replay", file]), "exactly");
    assert_eq!(json(&good(&["check", "--replay", file, "--json"]))["as_saved"], Value::Bool(true));

    // Without the rule it breaks nothing, and says that it did not do what it says.
    let text = std::fs::read_to_string(file).unwrap();
    let sound: String =
        text.lines().filter(|line| !line.starts_with("rule")).map(|line| format!("{line}\n")).collect();
    let path = folder.join("sound.toml");
    std::fs::write(&path, sound).unwrap();
    let got = output(&["check", "--replay", path.to_str().unwrap()]);
    assert_eq!(got.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&got.stdout).contains("this run broke nothing"));
}

#[test]
fn another_architecture_has_its_scenarios_and_its_files() {
    let text = good(&["check", "unmap-lazy", "--architecture", "riscv-sv48", "--schedules", "40"]);
    assert!(text.contains("1 scenario on riscv-sv48") && text.ends_with("No violation.\n"), "{text}");
    let folder = folder("check", "architecture");
    let save = folder.to_str().unwrap();
    let args = ["check", "--mutant", "forget-refusals", "--schedules", "200", "--save", save];
    let text = good(&args);
    assert!(text.contains("1 of 1 found") && text.contains("faults again and again"), "{text}");
    let file = folder.join("refusals.forget-refusals.replay.toml");
    assert!(std::fs::read_to_string(&file).unwrap().contains("architecture = \"riscv-sv48\""));
    let again = json(&good(&["check", "--replay", file.to_str().unwrap(), "--json"]));
    assert_eq!((&again["as_saved"], &again["architecture"]), (&Value::Bool(true), &"riscv-sv48".into()));
    assert!(refused(&["check", "--architecture", "vax"]).contains("riscv-sv48"));
}

#[test]
fn a_mutants_counterexample_is_kept_only_where_one_says() {
    let folder = folder("check", "nothing-left");
    let args = ["check", "--mutant", "tables-to-lazy", "--schedules", "50"];
    let got = common::quietmm(&args).current_dir(&folder).output().unwrap();
    let text = String::from_utf8_lossy(&got.stdout);
    assert_eq!(got.status.code(), Some(0), "{text}");
    assert!(text.contains("SKIPS") && text.contains("--save DIR"), "{text}");
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0);
}

#[test]
fn what_is_counted_of_mutants_is_in_the_json() {
    let folder = folder("check", "counted");
    let save = folder.to_str().unwrap();
    let args = ["check", "--mutant", "tables-to-lazy", "--schedules", "50", "--json", "--save", save];
    let found = json(&good(&args));
    assert_eq!((&found["mutants"], &found["found"]), (&Value::from(1), &Value::from(1)));
    assert_eq!(found["missed"], Value::Array(Vec::new()));
    assert_eq!(found["counterexample"]["invariant"], "INV-9");
    // Where no scenario can show it, it is missed, and that is no success.
    let args = ["check", "shoot-shoot", "--mutant", "tables-to-lazy", "--schedules", "5", "--json"];
    let got = output(&args);
    assert_eq!(got.status.code(), Some(1));
    assert_eq!(json(&String::from_utf8(got.stdout).unwrap())["missed"][0], "tables-to-lazy");
}

#[test]
fn what_cannot_be_is_refused_in_a_line() {
    assert!(refused(&["check", "unmap-lzay"]).contains("unmap-lazy"));
    assert!(refused(&["check", "--mutant", "flush-befor-free"]).contains("flush-before-free"));
    assert!(refused(&["check", "--schedules", "0"]).contains("--schedules"));
    assert!(refused(&["check", "--departures", "7"]).contains("--departures"));
    assert!(refused(&["check", "--replay", "/nonexistent/file"]).contains("/nonexistent/file"));
    assert!(refused(&["check", "--deep", "--mutant", "all"]).contains("--deep"));
    assert!(refused(&["check", "--replay", "/proc/version"]).contains("/proc/version"));
    let folder = folder("check", "bad");
    for (name, text) in
        [("empty", ""), ("binary", "\u{0}\u{1}\u{7f}"), ("other", "a = 1\n"), ("deep", &"[".repeat(100_000))]
    {
        let path = folder.join(name);
        std::fs::write(&path, text).unwrap();
        assert!(refused(&["check", "--replay", path.to_str().unwrap()]).contains(name));
    }
    let path = folder.join("bytes");
    std::fs::write(&path, [0xff, 0xfe, 0]).unwrap();
    assert!(refused(&["check", "--replay", path.to_str().unwrap()]).contains("not UTF-8; a file that"));
    let unknown =
        "format = 1\nscenario = \"unmap-lzay\"\nhardware = \"quiet\"\ninvariant = \"INV-1\"\nwhat = \"\"\n";
    let path = folder.join("unknown");
    std::fs::write(&path, unknown).unwrap();
    assert!(refused(&["check", "--replay", path.to_str().unwrap()]).contains("unmap-lazy"));
}

#[test]
fn scenarios_are_listed() {
    let text = good(&["list"]);
    assert!(text.contains("Scenarios") && text.contains("unmap-lazy"), "{text}");
    assert!(json(&good(&["list", "--json"]))["scenarios"].as_array().is_some_and(|all| all.len() > 20));
}

const MUTANT: &[&str] = &["check", "--mutant", "deferred-before-unmap-returns", "--schedules", "200"];
const SOUND: &[&str] = &["check", "unmap-lazy", "reclaim-unmap", "--schedules", "60"];
const SEVERAL: &[&str] =
    &["check", "--mutant", "all", "--schedules", "1", "--departures", "0", "tables-lazy"];

/// The page of this command line, and what it prints with `--json`.
fn both(args: &[&str], name: &str) -> (String, Value) {
    let path = folder("check", name).join("page.html");
    let out = output(&with(args, &["--json", "--report", text(&path)]));
    (std::fs::read_to_string(path).unwrap(), json(&String::from_utf8(out.stdout).unwrap()))
}

#[test]
fn a_page_has_the_numbers_of_json_and_the_counterexample_as_a_picture() {
    for (name, args, numbers, pictures) in
        [("page-one", MUTANT, 4, 1), ("page-sound", SOUND, 12, 1), ("page-all", SEVERAL, 80, 3)]
    {
        let (page, json) = both(args, name);
        let count = pointers(&page, &json);
        assert!(count >= numbers, "{name}: {count}");
        stands_alone(&page, pictures);
    }
    // What is printed is the same, and the page is the same each time.
    let path = folder("check", "page-same").join("page.html");
    assert_eq!(good(MUTANT), good(&with(MUTANT, &["--report", text(&path)])));
    let first = std::fs::read(&path).unwrap();
    good(&with(MUTANT, &["--report", text(&path), "--jobs", "1"]));
    assert_eq!(first, std::fs::read(&path).unwrap());
}

/// Of many rules each that was seen has its picture, which is that of the rule alone.
#[test]
fn the_page_of_all_rules_draws_each_that_was_seen() {
    let (page, json) = both(SEVERAL, "page-each");
    let found: Vec<&str> = json["rules"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|rule| {
            ["random", "priorities", "exhaustive"].iter().any(|way| rule[way]["scenario"].is_string())
        })
        .map(|rule| rule["rule"].as_str().unwrap())
        .collect();
    assert!(found.len() >= 2, "{found:?}");
    let titles = |page: &str| {
        let mut titles = Vec::new();
        read(page, |page| {
            let title = |svg| of(svg, "title").next().and_then(|title| title.text()).map(str::to_string);
            titles = of(page.root_element(), "svg").filter_map(title).collect();
        });
        titles
    };
    let all = titles(&page);
    for rule in &found {
        assert!(all.contains(&format!("tables-lazy, {rule} broken")), "{rule}: {all:?}");
    }
    assert_eq!(all.iter().filter(|title| title.ends_with(" broken")).count(), found.len(), "and no other");
}

#[test]
#[should_panic(expected = "/schedules")]
fn a_number_of_a_page_that_is_another_is_found() {
    let (page, mut json) = both(SOUND, "page-control");
    json["schedules"] = 1.into();
    pointers(&page, &json);
}

/// Words of a picture, lines of one row joined, without indents.
fn words(svg: &str) -> String {
    let mut words = Vec::new();
    read(svg, |svg| {
        words = of(svg.root_element(), "text").filter_map(|text| text.text()).map(str::to_string).collect();
    });
    words.join(" ").split_whitespace().collect::<Vec<_>>().join(" ")
}

/// What stands in the rows and below them in the terminal, that the picture lacks.
fn lacks(svg: &str, drawn: &str) -> Vec<String> {
    let has = words(svg).replace("- ", "-");
    let parts = drawn
        .lines()
        .skip_while(|line| !line.contains("the scripts begin"))
        .flat_map(|line| line.split("  "));
    let parts = parts.map(|part| part.trim().trim_matches('-').trim().replace("- ", "-"));
    let said = parts.take_while(|part| !part.starts_with("Not saved")).filter(|part| part.len() > 3);
    said.filter(|part| !has.contains(part.strip_prefix("INV-4: ").unwrap_or(part))).collect()
}

#[test]
fn a_picture_says_what_the_terminal_says() {
    let path = folder("check", "picture").join("one.svg");
    let drawn = good(&with(MUTANT, &["--svg", text(&path)]));
    assert_eq!(drawn, good(MUTANT));
    let svg = std::fs::read_to_string(&path).unwrap();
    read(&svg, |svg| speaks(svg.root_element()));
    assert_eq!(lacks(&svg, &drawn), Vec::<String>::new(), "{drawn}");
    for needed in ["SKIPS", "Broken here: INV-4", "An operation that promises", "prefers-color-scheme: dark"]
    {
        assert!(svg.contains(needed), "{needed}");
    }
    // The negative control: of another counterexample the words are missing.
    let other = good(&["check", "--mutant", "tables-to-lazy", "--schedules", "50"]);
    assert!(!lacks(&svg, &other).is_empty());
    // A file that is played again is the same picture.
    let folder = folder("check", "picture-again");
    good(&with(MUTANT, &["--save", text(&folder)]));
    let saved = folder.join("reclaim-unmap.deferred-before-unmap-returns.replay.toml");
    let again = folder.join("again.svg");
    let page = folder.join("again.html");
    let args = ["check", "--replay", text(&saved), "--svg", text(&again), "--report", text(&page)];
    good(&args);
    assert_eq!(svg, std::fs::read_to_string(again).unwrap());
    let page = std::fs::read_to_string(page).unwrap();
    stands_alone(&page, 1);
    assert_eq!(pointers(&page, &json(&good(&["check", "--replay", text(&saved), "--json"]))), 1);
}

#[test]
fn where_nothing_is_broken_no_picture_is_written_and_it_says_so() {
    let folder = folder("check", "nothing-to-draw");
    let path = folder.join("one.svg");
    assert!(good(&with(SOUND, &["--svg", text(&path)])).contains("No picture was written"));
    assert!(!path.exists());
    // What cannot be written is said before anything is tried, as is what would be no one picture.
    let none = folder.join("none/one.svg");
    assert!(refused(&["check", "--deep", "--svg", text(&none)]).contains("there is no directory"));
    assert!(refused(&["check", "--mutant", "all", "--svg", text(&path)]).contains("--mutant RULE"));
    let both = ["check", "--svg", text(&path), "--report", text(&path)];
    assert!(refused(&both).contains("another name"));
    // By another way to it, be it that it is not there yet.
    let round = folder.join("../nothing-to-draw/one.svg");
    let both = ["check", "--svg", text(&path), "--report", text(&round)];
    assert!(refused(&both).contains("another name"));
    let file = folder.join("mine.replay.toml");
    std::fs::write(&file, "mine").unwrap();
    assert!(refused(&["check", "--replay", text(&file), "--svg", text(&file)]).contains("another name"));
}

#[test]
fn the_picture_of_the_document_is_of_the_counterexample_that_it_shows() {
    let (document, svg) =
        (include_str!("../../../../docs/checking.md"), include_str!("../../../../docs/counterexample.svg"));
    let block =
        document.split("```").find(|block| block.contains("--svg counterexample.svg")).expect("a block");
    assert!(block.contains("the scripts begin"), "{block}");
    assert_eq!(lacks(svg, block), Vec::<String>::new());
}
