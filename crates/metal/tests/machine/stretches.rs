//! How long the core makes others wait, in instructions, and the table of it in docs/stretches.md.

use std::collections::BTreeMap;

use super::Machine;

const DOCUMENT: &str = include_str!("../../../../docs/stretches.md");
const BEGIN: &str = "<!-- instructions: begin -->\n";
const END: &str = "<!-- instructions: end -->\n";

/// By what makes others wait: the most instructions, and what was done meanwhile.
pub type Longest = BTreeMap<String, (u64, String)>;

/// What a run of `test=stretches` has printed, with these words beside it.
pub fn measured(words: &str) -> Longest {
    // The others stand still, and no timer interrupts.
    let m = Machine { cpus: 2, mib: 512, period: Some(1_000_000_000), disk: false };
    let outcome = m.passes(&format!("test=stretches heap=64 {words}"));
    let of = |line: &str, key: &str| {
        let at = line.find(&format!("\"{key}\":")).expect("each line has all keys") + key.len() + 3;
        line[at..].trim_start_matches('"').split(['"', ',', '}']).next().unwrap_or_default().to_owned()
    };
    let lines = outcome.text.lines().filter(|line| line.starts_with("{\"stretch\":"));
    let row = |line| {
        let instructions = of(line, "instructions").parse().expect("a number");
        (of(line, "stretch"), (instructions, of(line, "during")))
    };
    lines.map(row).collect()
}

/// A bound for what was measured, in round numbers: a tenth above it or a little more.
fn bound(longest: u64) -> u64 {
    let step = (10_u64.pow(longest.max(10).ilog10()) / 2).max(5);
    (longest + longest / 10).div_ceil(step) * step
}

/// Each bound of the document holds, and is no more than twice what was measured; and nothing else makes others wait.
pub fn the_document_says(longest: &Longest) {
    let (head, rest) = DOCUMENT.split_once(BEGIN).expect("docs/stretches.md: no begin marker");
    let (table, tail) = rest.split_once(END).expect("docs/stretches.md: no end marker");
    if std::env::var_os("UPDATE").is_some() {
        let row = |(what, (longest, during)): (&String, &(u64, String))| {
            format!("| {what} | {} | {during} |\n", bound(*longest))
        };
        let rows: String = longest.iter().map(row).collect();
        let table =
            format!("| others wait for | instructions, at most | longest in |\n|---|--:|---|\n{rows}");
        let at = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/stretches.md");
        return std::fs::write(at, [head, BEGIN, &table, END, tail].concat()).unwrap();
    }
    let row = |line: &str| {
        let cells: Vec<_> = line.trim_matches('|').split('|').map(str::trim).collect();
        (cells[0].to_owned(), cells[1].parse::<u64>().expect("a number"))
    };
    let rows: BTreeMap<_, _> = table.lines().skip(2).map(row).collect();
    assert_eq!(
        rows.keys().collect::<Vec<_>>(),
        longest.keys().collect::<Vec<_>>(),
        "docs/stretches.md, in instructions"
    );
    for (what, bound) in rows {
        let (longest, during) = &longest[&what];
        assert!(
            *longest <= bound && bound <= 2 * longest.max(&50),
            "docs/stretches.md says of {what} {bound} instructions: it is {longest}, in {during}\n\
             If the change is meant: UPDATE=1 scripts/test-metal nobody_waits_longer"
        );
    }
}
