//! What `docs/rules.md` says of rules and tests is so.

use quietmm::Rule;

const RULES: &str = include_str!("../../../../docs/rules.md");

/// A file of tests, as the document names it: of this directory, or by its path from the top.
fn source(file: &str) -> String {
    let from = if file.contains('/') { "../.." } else { "tests/suite" };
    let at = format!("{}/{from}/{file}.rs", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(&at).unwrap_or_else(|error| panic!("{at}: {error}"))
}

/// What is between backticks in a text.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

#[test]
fn every_rule_and_every_test_of_the_document_exists() {
    let (_, faults) = RULES.split_once("## Known faults").expect("docs/rules.md: the list of faults");
    let named: Vec<_> = quoted(faults).collect();
    let (_, broken) = faults.split_once("## Where each rule is broken").expect("the list of controls");
    for rule in Rule::ALL {
        let row = broken.lines().find(|line| line.starts_with(&format!("| `{rule}` |")));
        let tests =
            quoted(row.unwrap_or_else(|| panic!("docs/rules.md does not say who breaks {rule}"))).skip(1);
        let files: Vec<_> = tests.filter_map(|test| test.split_once(".rs").map(|(file, _)| file)).collect();
        assert!(!files.is_empty(), "docs/rules.md names no test that breaks {rule}");
        for file in files {
            assert!(source(file).contains(&format!("Rule::{rule:?}")), "{file}.rs does not break {rule}");
        }
        assert!(named.contains(&rule.name()), "docs/rules.md names no fault for the rule {rule}");
    }
    let tests = named.iter().filter_map(|name| name.split_once(".rs: "));
    let mut checked = 0;
    for (file, test) in tests {
        let is_test = [format!("#[test]\nfn {test}()"), format!("parts!(\n    {test},\n")];
        assert!(is_test.iter().any(|text| source(file).contains(text)), "{file}.rs has no test {test}");
        checked += 1;
    }
    assert!(checked >= 60, "only {checked} tests are named");
    // And back: the tests of faults are in the document.
    for file in
        ["pitfalls", "entries", "hotplug", "parallel", "drain", "offline", "vmap_pitfalls", "swap_pitfalls"]
    {
        let text = source(file);
        let tests = text.lines().filter_map(|line| line.strip_prefix("fn p")?.strip_suffix("() {"));
        for test in tests.filter(|test| test.starts_with(|first: char| first.is_ascii_digit())) {
            let name = format!("{file}.rs: p{test}");
            assert!(named.contains(&name.as_str()), "docs/rules.md does not name {name}");
        }
    }
}
