//! `--report`: one page that loads nothing, whose numbers are those of `--json`, beside output that stays as it was.

use std::fs;
use std::path::PathBuf;
use std::process::Stdio;

use roxmltree::Node;
use serde_json::Value;

use crate::common::page::{of, read, speaks, stands_alone};
use crate::common::{QUICK, folder, good, output, quietmm, refused, studies, text, with};

/// The page of this command line, and its JSON.
fn both(args: &[&str], name: &str) -> (String, Vec<Value>) {
    let path = folder("report", name).join("page.html");
    let all = studies(&[args, &["--json", "--report", text(&path)]].concat());
    let left = fs::read_dir(path.parent().unwrap()).unwrap().count();
    assert_eq!(left, 1, "only the page is left");
    (fs::read_to_string(path).unwrap(), all)
}

/// The number of an element, by how many decimals it was printed with, is that.
fn same(node: &Node<'_, '_>, value: &Value, what: &str) {
    let shown = node.attribute("data-value").expect("a value");
    let exact: Value = serde_json::from_str(shown).expect("a number");
    assert_eq!(&exact, value, "{what}");
}

/// Holds every number of the page that has a name against JSON; says how many there were.
fn numbers(page: &str, all: &[Value]) -> usize {
    let mut count = 0;
    read(page, |page| {
        for (nth, section) in of(page.root_element(), "section").enumerate() {
            let study = &all[nth];
            let name = |node: &Node<'_, '_>| {
                let policy: usize = node.attribute("data-policy").unwrap().parse().unwrap();
                study["policies"][policy]["name"].clone()
            };
            let runs = |policy: &Value| {
                study["runs"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .filter(|run| run["policy"] == *policy)
                    .collect::<Vec<_>>()
            };
            let named = section.descendants().filter(|node| node.has_attribute("data-value"));
            for node in named {
                let policy = name(&node);
                let first = runs(&policy)[0];
                if let Some(key) = node.attribute("data-figure") {
                    match study.get("summary") {
                        None => same(&node, &first["metrics"][key], key),
                        Some(all) => {
                            let all = all.as_array().unwrap();
                            let of = &all.iter().find(|one| one["policy"] == policy).unwrap()["metrics"][key];
                            same(&node, &of["mean"], key);
                            if let Some(spread) = node.attribute("data-spread") {
                                assert_eq!(
                                    serde_json::from_str::<Value>(spread).unwrap(),
                                    of["stddev"],
                                    "{key}"
                                );
                            }
                        }
                    }
                } else if let Some(op) = node.attribute("data-latency") {
                    let (pages, key) =
                        (node.attribute("data-pages").unwrap(), node.attribute("data-key").unwrap());
                    same(&node, &first["latency"][op][pages][key], op);
                } else if let Some(point) = node.attribute("data-curve") {
                    let (nth, key) = (point.parse::<usize>().unwrap(), node.attribute("data-key").unwrap());
                    same(&node, &first["curve"][nth][key], key);
                } else {
                    // A run may end where a CPU has counted whom it is about to interrupt: at most all others of eight.
                    let key = node.attribute("data-sum").expect("a name");
                    let sum: u64 = node.attribute("data-value").unwrap().parse().expect("a number");
                    let counted = first["metrics"][key].as_u64().expect("a number");
                    assert!(sum <= counted && counted - sum < 8, "{key}: {sum} of {counted}");
                }
                count += 1;
            }
        }
    });
    count
}

const STORM: &[&str] = &["compare", "unmap-storm", "--machine", "uma-8", "--scale", "512"];

#[test]
fn every_number_is_that_of_json() {
    let several = with(QUICK, &["--runs", "2"]);
    // Six workloads with that of QUICK and STORM; a seventh that replays.
    let four = [
        "compare",
        "no-pressure",
        "tlb-bystander",
        "fork-storm",
        "page-alloc",
        "--machine",
        "uma-8",
        "--scale",
        "2048",
    ];
    let trace = ["run", "trace", "--trace", "sort"];
    for (name, args) in
        [("one", QUICK), ("several", &several), ("storm", STORM), ("four", &four), ("trace", &trace)]
    {
        let (page, all) = both(args, name);
        let count = numbers(&page, &all);
        assert!(count > 50, "{name}: {count}");
    }
}

#[test]
#[should_panic(expected = "elapsed_s")]
fn a_number_that_is_another_is_found() {
    let (page, mut all) = both(QUICK, "control");
    let elapsed = &mut all[0]["runs"][1]["metrics"]["elapsed_s"];
    *elapsed = (elapsed.as_f64().unwrap() * 1.000_001).into();
    numbers(&page, &all);
}

/// Holds the numbers at the ends of bars, and those of their words, against the table; says how many there were.
fn drawn(page: &str) -> usize {
    let mut count = 0;
    read(page, |page| {
        for section in of(page.root_element(), "section") {
            let row = |label: &str| {
                of(section, "tr").find(|row| {
                    let named = row.children().find(|head| head.has_tag_name("th"));
                    let named: String = named
                        .iter()
                        .flat_map(|head| head.children())
                        .filter(|one| one.is_text())
                        .filter_map(|one| one.text())
                        .collect();
                    row.children().any(|cell| cell.has_attribute("data-figure"))
                        && (named == label || named.starts_with(&format!("{label}, ")))
                })
            };
            for svg in of(section, "svg") {
                let title = of(svg, "title").next().and_then(|title| title.text()).expect("a title");
                let Some(row) = title.rsplit_once(" (").and_then(|(label, _)| row(label)) else { continue };
                let words: Vec<&str> =
                    of(svg, "text").filter_map(|word| word.text()).map(str::trim).collect();
                let told = of(svg, "desc").next().and_then(|said| said.text()).expect("words");
                for cell in row.children().filter(|cell| cell.has_attribute("data-figure")) {
                    let shown = cell.text().expect("a number").trim();
                    assert!(words.contains(&shown), "{title}: {shown} {words:?}");
                    assert!(told.contains(&format!(" {shown}")), "{title}: {shown} {told}");
                    count += 1;
                }
            }
        }
    });
    count
}

#[test]
fn a_picture_has_the_numbers_of_its_row() {
    for (name, args) in [("bars", QUICK), ("bars-several", &with(QUICK, &["--runs", "2"]))] {
        let (page, _) = both(args, name);
        assert!(drawn(&page) > 5);
        // The control: another number in the table.
        let at = page.find("data-figure=\"elapsed_s\"").expect("a cell");
        let (from, to) = (at + page[at..].find('>').unwrap() + 1, at + page[at..].find("</td>").unwrap());
        let other = format!("{}7{}", &page[..from], &page[to..]);
        assert!(std::panic::catch_unwind(|| drawn(&other)).is_err());
    }
}

#[test]
fn the_page_loads_nothing_and_says_in_words_what_its_pictures_show() {
    for (name, args) in [("words", QUICK), ("words-storm", STORM)] {
        let (page, _) = both(args, name);
        stands_alone(&page, 6);
        read(&page, |page| assert!(of(page.root_element(), "h3").count() > 3));
    }
}

#[test]
fn how_many_took_how_long_is_said_of_as_many_as_json_counts() {
    let (page, all) = both(STORM, "spread");
    let runs = all[0]["runs"].as_array().unwrap();
    read(&page, |page| {
        let drawn = of(page.root_element(), "svg").filter_map(|svg| {
            let said = |name| of(svg, name).next().and_then(|node| node.text());
            Some((said("title")?.strip_suffix(": how many took how long")?.to_string(), said("desc")?))
        });
        let drawn: Vec<_> = drawn.collect();
        assert!(drawn.iter().any(|(op, _)| op == "unmap"), "{drawn:?}");
        for (op, said) in drawn {
            for run in runs {
                let (policy, count) = (run["policy"].as_str().unwrap(), &run["latency"][&op]["all"]["count"]);
                let told =
                    said.split(';').find(|one| one.trim().starts_with(&format!("{policy}: most often")));
                let told = told.unwrap_or_else(|| panic!("{op}, {policy}: {said}"));
                assert!(
                    told.trim_end_matches('.').ends_with(&format!(" % of {count}")),
                    "{op}: {told}, {count}"
                );
            }
        }
    });
}

#[test]
fn what_is_printed_is_the_same_with_a_report_and_the_page_is_the_same_each_time() {
    let path = folder("report", "same").join("page.html");
    for form in [&[][..], &["--json"], &["--csv"]] {
        let args = with(QUICK, form);
        assert_eq!(good(&args), good(&with(&args, &["--report", text(&path)])), "{form:?}");
        if !form.is_empty() {
            continue;
        }
        let first = fs::read(&path).unwrap();
        good(&with(&args, &["--report", text(&path), "--jobs", "1"]));
        assert_eq!(first, fs::read(&path).unwrap(), "replaced by the same page");
    }
    let run = ["run", "no-pressure", "--machine", "uma-8", "--scale", "2048"];
    assert_eq!(good(&run), good(&with(&run, &["--report", text(&path)])));
}

#[test]
fn names_from_outside_stay_words() {
    let folder = folder("report", "names");
    let machine = folder.join("<b>&\"x'.toml");
    fs::write(&machine, "name = \"mine\"\nbase = \"uma-8\"\nabout = \"<i>&amp;\"\n").unwrap();
    let args =
        ["compare", "no-pressure", "--scale", "2048", "--machine", text(&machine), "--policies", "linux"];
    let (page, _) = both(&args, "names-page");
    read(&page, |page| {
        assert!(of(page.root_element(), "b").count() == 0 && of(page.root_element(), "i").count() == 0)
    });
    assert!(page.contains("&lt;b&gt;&amp;"), "{page}");
}

#[test]
fn four_thousand_cpus_fit_a_page() {
    let args = ["run", "vmap-touch", "--machine", "many-32x128", "--threads", "2", "--scale", "2048"];
    let (page, all) = both(&args, "many");
    assert!(page.len() < 5 << 20, "{}", page.len());
    assert!(numbers(&page, &all) > 20);
    read(&page, |page| {
        let said: Vec<_> = of(page.root_element(), "desc").filter_map(|said| said.text()).collect();
        assert!(said.iter().any(|said| said.contains("of 4096 CPUs")), "each CPU: {said:?}");
        assert!(
            said.iter().any(|said| said.contains("32 groups of 128 CPUs")),
            "from where to where: {said:?}"
        );
    });
}

const BROKEN: &[&str] =
    &["run", "tlb-bystander", "--machine", "uma-8", "--scale", "2048", "--break", "flush-before-free"];

/// What a story says of each CPU, as the terminal has it.
fn told(story: &str) -> Vec<&str> {
    let rows = story.lines().skip(1).filter_map(|line| line.split_once(" us  CPU "));
    rows.filter_map(|(_, said)| Some(said.split_once(' ')?.1)).collect()
}

/// Those that the words of a picture lack.
fn lacks<'a>(svg: &str, rows: &[&'a str]) -> Vec<&'a str> {
    let mut words = String::new();
    read(svg, |svg| {
        let all = of(svg.root_element(), "text").filter_map(|text| text.text());
        words = all.flat_map(str::split_whitespace).collect::<Vec<_>>().join(" ").replace("- ", "-");
    });
    rows.iter().copied().filter(|row| !words.contains(&row.replace("- ", "-"))).collect()
}

#[test]
fn what_a_broken_rule_did_is_a_picture_that_says_what_the_terminal_says() {
    let folder = folder("report", "broken");
    let (svg, page) = (folder.join("story.svg"), folder.join("page.html"));
    let files = ["--svg", text(&svg), "--report", text(&page)];
    assert_eq!(good(BROKEN), good(&with(BROKEN, &files)), "what is printed is the same");
    let all: Value = serde_json::from_str(&good(&with(BROKEN, &["--json"]))).unwrap();
    let stories = all[0]["runs"][0]["stories"].as_array().unwrap();
    let rows = told(stories[0].as_str().unwrap());
    assert!(rows.len() >= 3 && rows.iter().any(|row| row.starts_with("skipped a step")), "{rows:?}");
    let drawn = fs::read_to_string(&svg).unwrap();
    read(&drawn, |svg| speaks(svg.root_element()));
    assert_eq!(lacks(&drawn, &rows), Vec::<&str>::new());
    assert!(drawn.contains("Broken here: INV-1") && drawn.contains("prefers-color-scheme: dark"));
    // The page has it too, and the text; a control knows another story's words.
    let page = fs::read_to_string(&page).unwrap();
    stands_alone(&page, 7);
    assert!(page.contains("How it came to that: linux, seed 1") && page.contains("skipped a step"));
    let other = good(&with(&[&BROKEN[..7], &["flush-before-io"]].concat(), &["--json"]));
    assert_eq!(lacks(&drawn, &["cleared the entry of 0xbad000 in space 7"]).len(), 1);
    assert!(!other.contains(rows[0]), "{other}");
}

#[test]
fn where_nothing_was_seen_no_picture_is_written_and_it_says_so() {
    let path = folder("report", "nothing").join("story.svg");
    let quiet =
        ["run", "page-alloc", "--machine", "uma-8", "--scale", "2048", "--break", "flush-before-free"];
    assert!(good(&with(&quiet, &["--svg", text(&path)])).contains("No picture was written"));
    assert!(!path.exists());
    let sound = &BROKEN[..6];
    assert!(refused(&with(sound, &["--svg", text(&path)])).contains("--break"));
    let both = ["--svg", text(&path), "--report", text(&path)];
    assert!(refused(&with(BROKEN, &both)).contains("another name"));
}

#[test]
fn a_link_to_a_page_stays_one() {
    let folder = folder("report", "link");
    let [page, link] = ["page.html", "link.html"].map(|name| folder.join(name));
    std::fs::write(&page, "mine").unwrap();
    std::os::unix::fs::symlink(&page, &link).unwrap();
    let run = ["run", "no-pressure", "--machine", "uma-8", "--scale", "2048", "--report", text(&link)];
    good(&run);
    assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
    assert!(std::fs::read_to_string(&page).unwrap().starts_with("<!DOCTYPE html>"));
}

#[test]
fn a_place_that_cannot_be_written_is_refused_before_anything_runs() {
    let folder = folder("report", "wrong");
    let file = folder.join("file");
    fs::write(&file, "mine").unwrap();
    for (path, why) in [
        (folder.join("none/page.html"), "there is no directory"),
        (file.join("page.html"), "is no directory"),
        (folder.clone(), "no file that can be replaced"),
        (PathBuf::from("/dev/null"), "no file that can be replaced"),
        (PathBuf::from("-"), "a file is needed"),
        (PathBuf::from("/proc/page.html"), "cannot be written to"),
    ] {
        // A run of hours, if it began.
        let line = refused(&["compare", "--scale", "1", "--report", text(&path)]);
        assert!(line.contains(why), "{line}");
    }
    // What is to be run is not written over.
    let machine = folder.join("mine.toml");
    fs::write(&machine, "name = \"mine\"\nbase = \"uma-8\"\n").unwrap();
    let line = refused(&["run", "no-pressure", "--machine", text(&machine), "--report", text(&machine)]);
    assert!(line.contains("is what is to be run"), "{line}");
    assert_eq!(fs::read_to_string(&machine).unwrap(), "name = \"mine\"\nbase = \"uma-8\"\n");
    // An option that other commands do not have.
    assert!(refused(&["list", "--report", "x"]).contains("--report"));
}

#[test]
fn a_reader_who_leaves_early_leaves_the_page() {
    let path = folder("report", "early").join("page.html");
    let mut child = quietmm(&with(QUICK, &["--report", text(&path)])).stdout(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert!(fs::read_to_string(&path).unwrap().ends_with("</html>"));
}

#[test]
fn a_refused_run_leaves_what_was_there() {
    let path = folder("report", "kept").join("page.html");
    fs::write(&path, "mine").unwrap();
    let got = output(&with(QUICK, &["--set", "memory=1MiB", "--report", text(&path)]));
    assert_eq!(got.status.code(), Some(2));
    assert_eq!(fs::read_to_string(&path).unwrap(), "mine");
}
