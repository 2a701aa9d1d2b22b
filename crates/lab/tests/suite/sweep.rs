//! `quietmm sweep`: a grid whose file has the same bytes whoever ran what when, and in which nothing is another's.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::common::{self, good, output, page, refused, studies, text, with};

/// Twelve points that are done at once; with four CPUs there is too little memory for one of the scales.
const GRID: &[&str] = &[
    "sweep",
    "no-pressure",
    "--machine",
    "uma-8",
    "--scale",
    "2048",
    "--vary",
    "cpus=1,2..4",
    "--vary",
    "policy=linux,quiet",
    "--vary",
    "ipi_send=100ns..200ns",
];

fn folder(name: &str) -> PathBuf {
    common::folder("sweep", name)
}

/// What a sweep into this file leaves there.
fn swept(args: &[&str], out: &Path) -> String {
    let said = good(&with(args, &["--out", text(out)]));
    assert!(said.contains("results"), "{said}");
    fs::read_to_string(out).unwrap()
}

fn json(line: &str) -> Value {
    serde_json::from_str(line).expect("JSON")
}

/// The points of a file.
fn points(file: &str) -> Vec<Value> {
    file.lines().skip(1).map(json).collect()
}

/// The one line of an end with exit code 1, and what was printed before it.
fn failed(args: &[&str]) -> (String, String) {
    let got = output(args);
    let stderr = String::from_utf8(got.stderr).expect("UTF-8");
    assert_eq!((got.status.code(), stderr.lines().count()), (Some(1), 1), "{stderr}");
    (String::from_utf8(got.stdout).expect("UTF-8"), stderr)
}

#[test]
fn the_grid_has_every_combination_with_the_last_going_round_first() {
    let file = swept(GRID, &folder("order").join("all.jsonl"));
    let header = json(file.lines().next().unwrap());
    assert_eq!((&header["sweep"], &header["points"]), (&1.into(), &12.into()));
    assert_eq!(header["vary"]["ipi_send"], serde_json::json!(["100ns", "200ns"]));
    assert_eq!(header["with"]["scale"], 2048);
    let all = points(&file);
    assert_eq!(all.len(), 12);
    for (nth, line) in all.iter().enumerate() {
        assert_eq!(line["point"], nth);
        assert_eq!(line["at"]["cpus"], [1, 2, 4][nth / 4]);
        assert_eq!(line["at"]["policy"], ["linux", "quiet"][nth / 2 % 2]);
        assert_eq!(line["at"]["ipi_send"], ["100ns", "200ns"][nth % 2]);
        assert_eq!((&line["cpus"], &line["policy"]), (&line["at"]["cpus"], &line["at"]["policy"]));
    }
}

#[test]
fn a_point_is_what_run_prints_for_its_command() {
    let file = swept(GRID, &folder("run").join("all.jsonl"));
    for line in points(&file).iter().step_by(5) {
        let command = line["command"].as_str().unwrap().strip_prefix("quietmm ").unwrap();
        let study = common::study(&with(&command.split(' ').collect::<Vec<_>>(), &["--json"]));
        let run = &study["runs"][0];
        for (key, value) in run.as_object().unwrap() {
            assert_eq!(&line[key], value, "{key}");
        }
        for key in ["workload", "machine", "cpus", "scale", "set"] {
            assert_eq!(line[key], study[key], "{key}");
        }
        assert!(line["metrics"]["elapsed_s"].as_f64().unwrap() > 0.0);
    }
}

#[test]
fn the_same_bytes_come_from_any_number_of_jobs_and_without_a_file() {
    let folder = folder("jobs");
    let one = swept(&with(GRID, &["--jobs", "1"]), &folder.join("one.jsonl"));
    let four = swept(&with(GRID, &["--jobs", "4"]), &folder.join("four.jsonl"));
    assert_eq!(one, four);
    assert_eq!(one, good(&with(GRID, &["--jobs", "3"])));
    // The control: another grid has other bytes.
    assert_ne!(one, good(&with(GRID, &["--seed", "2"])));
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 2, "nothing is left beside them");
}

/// `unmap-storm` reclaims nothing: what goes by reclaimed pages is the other workload's.
#[test]
fn each_workload_shows_what_it_is_about() {
    let of = |words: &[&str]| {
        let grid = ["--machine", "uma-8", "--scale", "2048", "--vary", "policy=linux,quiet", "--out"];
        let out = folder("about").join("all.jsonl");
        let said = good(&[&["sweep"], words, &grid, &[text(&out)]].concat());
        said.split_once("\nunmap-storm").expect("its table").1.to_string()
    };
    let (alone, beside) = (of(&["unmap-storm"]), of(&["lru-file-mmap-read", "unmap-storm"]));
    assert!(!beside.contains("IPIs received/page"), "{beside}");
    assert_eq!(alone.trim(), beside.trim());
}

#[test]
fn what_was_stopped_goes_on_and_ends_with_the_same_bytes() {
    let folder = folder("resume");
    let whole = swept(GRID, &folder.join("whole.jsonl"));
    let lines: Vec<&str> = whole.split_inclusive('\n').collect();
    let out = folder.join("part.jsonl");
    // Some lines, in the order in which they were done; the last of them cut, as by a kill; a header that is cut.
    let disorder = [lines[0], lines[9], lines[2], lines[5]].concat();
    let cut = lines[..7].concat() + &lines[7][..lines[7].len() / 2];
    for (there, missing) in [
        (disorder, 9),
        (cut, 6),
        (lines[..12].concat() + lines[12].trim_end(), 1),
        (lines[0].to_string(), 12),
        (lines[0][..40].to_string(), 12),
        (String::new(), 12),
        (whole.clone(), 0),
        // Done, but not in order.
        ([lines[0], lines[12]].concat() + &lines[1..12].concat(), 0),
    ] {
        fs::write(&out, &there).unwrap();
        let said = good(&with(GRID, &["--out", text(&out)]));
        let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(said.contains(&format!("{missing} done now, {} before", 12 - missing)), "{said}");
        assert!(fs::read_to_string(&out).unwrap() == whole, "{missing} were missing");
    }
}

#[test]
fn parts_that_ran_apart_are_together_the_bytes_of_one_run() {
    let folder = folder("shards");
    let whole = swept(GRID, &folder.join("whole.jsonl"));
    let parts: Vec<PathBuf> = (1..=5).map(|nth| folder.join(format!("part-{nth}.jsonl"))).collect();
    let mut count = 0;
    for (nth, part) in parts.iter().enumerate() {
        let shard = format!("{}/5", nth + 1);
        count += points(&swept(&with(GRID, &["--shard", &shard]), part)).len();
    }
    assert_eq!(count, 12);
    let out = folder.join("merged.jsonl");
    let names: Vec<&str> = parts.iter().rev().map(|part| text(part)).collect();
    let to = text(&out);
    let merge = |parts: &[&str]| -> Vec<String> {
        [&["sweep", "merge"], parts, &["--out", to]].concat().into_iter().map(str::to_string).collect()
    };
    let good = |args: Vec<String>| good(&args.iter().map(String::as_str).collect::<Vec<_>>());
    let refused = |args: Vec<String>| refused(&args.iter().map(String::as_str).collect::<Vec<_>>());
    good(merge(&names));
    assert!(fs::read_to_string(&out).unwrap() == whole);
    // A file that was replaced by what is in it.
    good(merge(&[text(&folder.join("whole.jsonl"))]));
    assert!(fs::read_to_string(&out).unwrap() == whole);

    // A part that is missing, there twice, not done, or of another grid is told; and what was there stays.
    fs::write(&out, "mine").unwrap();
    let line = refused(merge(&names[1..]));
    assert!(
        line.contains("missing, the first is point") && line.contains("--shard 5/5 is not named"),
        "{line}"
    );
    let line = refused(merge(&with(&names, &[names[0]])));
    assert!(line.contains("is in") && line.contains("each part once"), "{line}");
    let line = refused(merge(&with(&names, &[text(&folder.join("whole.jsonl"))])));
    assert!(line.contains("whole.jsonl") && line.contains("each part once"), "{line}");
    let other = folder.join("other.jsonl");
    swept(&with(GRID, &["--seed", "2", "--shard", "1/5"]), &other);
    let line = refused(merge(&with(&names[..4], &[text(&other)])));
    assert!(line.contains("no part of the grid") && line.contains("--seed is 2 there and 1 here"), "{line}");
    let first = fs::read_to_string(&parts[0]).unwrap();
    fs::write(&parts[0], first.split_inclusive('\n').take(2).collect::<String>()).unwrap();
    let line = refused(merge(&names));
    assert!(line.contains("part-1.jsonl is not done; run its command again"), "{line}");
    fs::write(&parts[0], first.replace("\"elapsed_s\":0.", "\"elapsed_s\":1.")).unwrap();
    let line = refused(merge(&names));
    assert!(line.contains("line 2 is not as it was written"), "{line}");
    assert!(refused(merge(&[text(&other), "/nowhere/x.jsonl"])).contains("/nowhere/x.jsonl"));
    assert_eq!(fs::read_to_string(&out).unwrap(), "mine");
    let line = refused(["sweep", "merge", text(&other), "--out", text(&other)].map(String::from).to_vec());
    assert!(line.contains("another name"), "{line}");
}

#[test]
fn a_file_that_is_another_s_stays_as_it_is() {
    let folder = folder("others");
    let out = folder.join("a.jsonl");
    let whole = swept(GRID, &out);
    let lines: Vec<&str> = whole.split_inclusive('\n').collect();
    let args = with(GRID, &["--out", text(&out)]);
    let line = refused(&with(&args, &["--vary", "seed=1,2"]));
    assert!(line.contains("--vary seed is nothing there and 1,2 here"), "{line}");
    let line = refused(&with(&args, &["--set", "invlpg=1us"]));
    assert!(line.contains("--set is nothing there and invlpg=1us here"), "{line}");
    let line = refused(&with(&args, &["--shard", "1/2"]));
    assert!(line.contains("--shard is nothing there and 1/2 here"), "{line}");
    assert!(fs::read_to_string(&out).unwrap() == whole);
    let revision = json(lines[0])["revision"].as_str().unwrap().to_string();
    // Without the sum of what it says, as older ones are.
    let bare = lines[0][..lines[0].rfind(",\"sum\"").unwrap()].to_string() + "}\n";
    for (there, why) in [
        ("name = \"mine\"\n".to_string(), "no file of a sweep"),
        ("mine".to_string(), "no file of a sweep"),
        (lines[0].replace(&revision, "of yore"), "its first line is damaged"),
        (lines[0].replace("\"sweep\":1", "\"sweep\":2"), "of form 2"),
        (bare.replace(&revision, "of yore"), "the revision is of yore there"),
        (lines[..2].concat() + &lines[1..].concat(), "line 3 is of point 0, which was there before"),
        (lines[..3].concat() + "{}\n", "line 4 is not as it was written"),
        (whole.replacen("\"elapsed_s\":0.", "\"elapsed_s\":1.", 1), "line 2 is not as it was written"),
    ] {
        fs::write(&out, &there).unwrap();
        let line = refused(&args);
        assert!(line.contains(why), "{line}");
        assert_eq!(fs::read_to_string(&out).unwrap(), there);
    }
}

#[test]
fn a_machine_that_was_changed_meanwhile_is_another() {
    let folder = folder("changed");
    let (machine, out) = (folder.join("mine.toml"), folder.join("a.jsonl"));
    let grid = ["sweep", "no-pressure", "--machine", text(&machine), "--scale", "2048", "--vary", "cpus=1,2"];
    fs::write(&machine, "name = \"mine\"\nbase = \"uma-8\"\n").unwrap();
    swept(&grid, &out);
    swept(&grid, &out);
    let changed = "[cost]\ninvlpg = { value = 7, unit = \"ns\", source = \"a test\" }\n";
    fs::write(&machine, format!("name = \"mine\"\nbase = \"uma-8\"\n{changed}")).unwrap();
    let line = refused(&with(&grid, &["--out", text(&out)]));
    assert!(line.contains("the checksum of") && line.contains("mine.toml"), "{line}");
    let line = refused(&with(&grid, &["--out", text(&machine)]));
    assert!(line.contains("another name"), "{line}");
}

#[test]
fn a_point_that_fails_is_a_line_and_the_rest_goes_on() {
    let folder = folder("failed");
    let out = folder.join("a.jsonl");
    // The last number of CPUs needs more memory than the scale leaves.
    let grid = [
        "sweep",
        "no-pressure",
        "--machine",
        "uma-8",
        "--scale",
        "2048",
        "--vary",
        "cpus=1,16,2",
        "--vary",
        "seed=7..8",
    ];
    let table = folder.join("a.csv");
    let args = with(&grid, &["--out", text(&out), "--csv", text(&table)]);
    let (said, line) = failed(&args);
    assert!(
        line.contains("2 of 6 points failed; the first, point 2 (cpus=16, seed=7): uma-8 at scale"),
        "{line}"
    );
    assert!(said.contains("6 points: 3 cpus x 2 seed") && said.contains("failed"), "{said}");
    let file = fs::read_to_string(&out).unwrap();
    let with_error: Vec<bool> = points(&file).iter().map(|line| line["error"].is_string()).collect();
    assert_eq!(with_error, [false, false, true, true, false, false]);
    // It is not run again, and told again.
    assert_eq!(failed(&args).1, line);
    assert_eq!(fs::read_to_string(&out).unwrap(), file);
    let csv = fs::read_to_string(folder.join("a.csv")).unwrap();
    assert!(
        csv.lines().nth(3).unwrap().starts_with("2,16,7,uma-8 at scale") || csv.contains("2,16,7,\"uma-8"),
        "{csv}"
    );
}

#[test]
fn csv_has_a_line_for_each_point_and_a_column_for_each_figure() {
    let folder = folder("csv");
    let table = folder.join("a.csv");
    let file = swept(&with(GRID, &["--csv", text(&table)]), &folder.join("a.jsonl"));
    let csv = fs::read_to_string(&table).unwrap();
    let rows: Vec<Vec<&str>> = csv.lines().map(|line| line.split(',').collect()).collect();
    assert_eq!(rows[0][..5], ["point", "cpus", "policy", "ipi_send", "error"]);
    assert_eq!(rows.len(), 13);
    let all = points(&file);
    assert_eq!(rows[0].len() - 5, all[0]["metrics"].as_object().unwrap().len());
    for ((row, line), written) in rows[1..].iter().zip(&all).zip(file.lines().skip(1)) {
        for (key, value) in rows[0].iter().zip(row) {
            let exact = match *key {
                "error" => continue,
                "point" => &line["point"],
                "cpus" | "policy" | "ipi_send" => &line["at"][key],
                figure => {
                    let whole = [",", "}"].map(|end| format!("\"{figure}\":{value}{end}"));
                    assert!(
                        whole.iter().any(|text| written.contains(text)),
                        "{figure} {value}: to the last digit"
                    );
                    &line["metrics"][figure]
                }
            };
            assert_eq!(exact.as_str().map_or(exact.to_string(), str::to_string), *value, "{key}");
        }
    }
}

#[test]
fn the_terminal_has_a_table_whose_gains_are_those_of_the_lines() {
    let out = folder("table").join("a.jsonl");
    let said = good(&with(GRID, &["--out", text(&out)]));
    let all = points(&fs::read_to_string(&out).unwrap());
    let mut rows = 0;
    for send in ["100ns", "200ns"] {
        let from = said.find(&format!("no-pressure, ipi_send {send}\n")).expect("a table");
        let mut lines = said[from..].lines().skip(1);
        assert_eq!(lines.next().unwrap().split_whitespace().collect::<Vec<_>>(), ["linux", "quiet"]);
        assert!(lines.next().unwrap().starts_with("elapsed, "), "{said}");
        for (line, cpus) in lines.zip([1, 2, 4]) {
            let elapsed = |policy: &str| {
                let at = serde_json::json!({ "cpus": cpus, "policy": policy, "ipi_send": send });
                let point = all.iter().find(|line| line["at"] == at).expect("a point");
                point["metrics"]["elapsed_s"].as_f64().unwrap()
            };
            let gain = 100.0 * (elapsed("linux") - elapsed("quiet")) / elapsed("linux");
            assert!(line.starts_with(&format!("cpus {cpus} ")), "{line}");
            let shown: f64 = line.rsplit('(').next().unwrap().trim_end_matches("%)").trim().parse().unwrap();
            assert!((shown - gain).abs() <= 0.005_001, "{line}: {gain}");
            rows += 1;
        }
    }
    assert_eq!(rows, 6);
    let lone = ["sweep", "page-alloc", "--machine", "uma-8", "--scale", "2048", "--vary", "seed=1..3"];
    let said = good(&with(&lone, &["--out", text(&out.with_file_name("b.jsonl"))]));
    assert!(said.lines().any(|line| line.starts_with("all ") && line.contains('±')), "{said}");
}

/// Holds each number of a page against the lines; says how many there were.
fn numbers(page: &str, all: &[Value]) -> usize {
    let mut count = 0;
    page::read(page, |page| {
        for node in page.descendants().filter(|node| node.has_attribute("data-figure")) {
            let attribute = |name: &str| node.attribute(name).expect(name);
            let (key, point) = (attribute("data-figure"), attribute("data-point").parse::<usize>().unwrap());
            let value = json(attribute("data-value"));
            let seeds: usize = attribute("data-seeds").parse().unwrap();
            if seeds == 1 {
                assert_eq!(value, all[point]["metrics"][key], "{key} of {point}");
            } else {
                let at = |line: &Value| {
                    let mut at = line["at"].as_object().unwrap().clone();
                    at.remove("seed");
                    at
                };
                let same = all.iter().filter(|line| at(line) == at(&all[point]));
                let each: Vec<f64> = same.map(|line| line["metrics"][key].as_f64().unwrap()).collect();
                assert_eq!(each.len(), seeds);
                let mean = each.iter().sum::<f64>() / seeds as f64;
                assert_eq!(value.as_f64(), Some(mean), "{key} of {point}");
            }
            count += 1;
        }
    });
    count
}

#[test]
fn the_page_has_the_numbers_of_the_lines_and_loads_nothing() {
    let folder = folder("page");
    let report = folder.join("a.html");
    let seeds = [
        "sweep",
        "page-alloc",
        "no-pressure",
        "--machine",
        "uma-8",
        "--scale",
        "2048",
        "--vary",
        "seed=1..3",
        "--vary",
        "cpus=1,2..4",
    ];
    let own = [
        "sweep",
        "page-alloc",
        "--machine",
        "uma-8",
        "--vary",
        "cpus=1,2",
        "--vary",
        "invlpg=100cycles,200cycles",
    ];
    let names =
        ["sweep", "no-pressure", "--machine", "uma-8", "--scale", "2048", "--vary", "policy=vanilla,linux"];
    for (nth, (grid, groups, pictures)) in
        [(GRID, 12, 4), (&seeds[..], 6, 4), (&names[..], 2, 2), (&own[..], 4, 2)].into_iter().enumerate()
    {
        let file = swept(&with(grid, &["--report", text(&report)]), &folder.join(format!("{nth}.jsonl")));
        let (page, all) = (fs::read_to_string(&report).unwrap(), points(&file));
        assert!(numbers(&page, &all) >= 2 * groups, "{}", numbers(&page, &all));
        page::stands_alone(&page, pictures);
        // The command that it tells has the same bytes.
        page::read(&page, |page| {
            let told = page.descendants().find(|node| node.attribute("class") == Some("command"));
            let told =
                told.and_then(|node| node.text()).and_then(|line| line.strip_prefix("quietmm ")).unwrap();
            assert!(good(&told.split(' ').collect::<Vec<_>>()) == file, "{told}");
        });
        // From the file that is there, the same page again.
        good(&with(grid, &["--out", text(&folder.join(format!("{nth}.jsonl"))), "--report", text(&report)]));
        assert!(fs::read_to_string(&report).unwrap() == page);
    }
}

#[test]
#[should_panic(expected = "elapsed_s")]
fn a_number_of_the_page_that_is_another_is_found() {
    let folder = folder("control");
    let report = folder.join("a.html");
    let file = swept(&with(GRID, &["--report", text(&report)]), &folder.join("a.jsonl"));
    let mut all = points(&file);
    let elapsed = &mut all[5]["metrics"]["elapsed_s"];
    *elapsed = (elapsed.as_f64().unwrap() * 1.000_001).into();
    numbers(&fs::read_to_string(&report).unwrap(), &all);
}

#[test]
fn without_a_scale_all_points_of_a_workload_have_one() {
    let grid =
        ["sweep", "page-alloc", "--machine", "uma-8", "--vary", "cpus=1,2", "--vary", "memory=2GiB,16GiB"];
    let scales: Vec<Value> = points(&good(&grid)).iter().map(|line| line["scale"].clone()).collect();
    let own = |memory: &str| {
        let set = format!("memory={memory}");
        studies(&["run", "page-alloc", "--machine", "uma-8", "--set", &set, "--json"])[0]["scale"]
            .as_u64()
            .unwrap()
    };
    let least = own("2GiB").min(own("16GiB"));
    assert!(scales.iter().all(|scale| scale.as_u64() == Some(least)), "{scales:?}");
}

#[test]
fn what_cannot_be_swept_says_what_can() {
    let folder = folder("wrong");
    for (args, why) in [
        (&[][..], "nothing is varied: give --vary"),
        (&["no-pressure"], "nothing is varied"),
        (&["--vary", "cpus"], "must be NAME=VALUES"),
        (&["--vary", "cpsu=1,2"], "did you mean cpus"),
        (&["--vary", "cpus=1,2", "--vary", "cpu.cpus=3"], "it is varied twice"),
        (&["--vary", "cpus=1,2", "--cpus", "3"], "--cpus: it is varied too"),
        (
            &["--vary", "ipi_send=1us,2us", "--set", "cost.ipi_send=3us"],
            "--set cost.ipi_send=3us: it is varied too",
        ),
        (&["no-pressure", "--vary", "workload=page-alloc"], "no-pressure: it is varied too"),
        (&["no-pressure", "no-pressure"], "no-pressure is there twice"),
        (&["no-presure", "--vary", "cpus=1"], "did you mean no-pressure"),
        (&["--vary", "cpus=1", "--policy", "lniux"], "linux"),
        (&["--vary", "cpus=1", "--machine", "uma-8,vm-8"], "--vary machine=uma-8,vm-8"),
        (
            &["--vary", "seed=1..100000", "--vary", "cpus=1..4096:+1"],
            "a grid of 409600000 points (100000 seed x 4096 cpus); 1000000 at most",
        ),
        (&["--vary", "seed=1..1000000000"], "1000000000 values"),
        (&["--vary", "seed=0..18446744073709551615"], "values; a grid has 1000000 points at most"),
        (&["no-pressure", "--vary", "threads=1,2"], "no-pressure has the threads that it has"),
        (&["--vary", "cpus=1", "--shard", "3/2"], "1/2 to 2/2"),
        (&["--vary", "cpus=1", "--out", "-"], "a file is needed"),
        (&["--vary", "cpus=1", "--out", "/nowhere/a.jsonl"], "there is no directory"),
        (&["--vary", "cpus=1", "--out", "/dev/null"], "no file that can be replaced"),
        (&["--vary", "cpus=1", "--csv", "x", "--report", "x"], "the csv is written there"),
        (&["merge"], "PART"),
        (&["merge", "/nowhere/a"], "--out"),
    ] {
        let line = refused(&with(&["sweep"], args));
        assert!(line.contains(why), "{args:?}: {line}");
    }
    assert_eq!(fs::read_dir(folder).unwrap().count(), 0);
    assert!(!Path::new("x").exists());
}

#[test]
fn a_reader_who_leaves_early_is_no_failure() {
    let mut child = common::quietmm(GRID).stdout(std::process::Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn harm_without_a_broken_rule_would_be_an_end_of_its_own_and_with_one_is_what_was_asked_for() {
    let grid = ["sweep", "tlb-bystander", "--machine", "uma-8", "--scale", "2048", "--vary", "cpus=4"];
    let file = good(&with(&grid, &["--break", "flush-before-free"]));
    let stale = points(&file)[0]["metrics"]["stale_accesses"].as_u64().unwrap();
    assert!(stale > 0 && points(&file)[0]["stories"].is_array());
}
