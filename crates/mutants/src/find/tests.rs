//! Which mutants there are of a small text, and that what is written for the core itself can be read again.

use std::path::Path;

use crate::emit::{emit, numbers};
use crate::find::find;
use crate::mutant::Kind;
use crate::source::{self, Source};

fn changes(text: &str, kind: Kind) -> Vec<String> {
    let found = find(&[Source::of("ipi.rs", text.to_string()).expect("it can be read")], &|_| true);
    let of_kind = found.mutants.iter().filter(|mutant| mutant.key.kind == kind);
    of_kind.map(|mutant| format!("{} => {}", mutant.key.from, mutant.key.to)).collect()
}

#[test]
fn conditions_are_forced_and_boundaries_moved() {
    let text = "fn f(a: u32) -> bool { if a < 3 { return true; } false }";
    assert_eq!(changes(text, Kind::Condition), ["a < 3 => true", "a < 3 => false"]);
    assert_eq!(changes(text, Kind::Boundary), ["a < 3 => a <= 3"]);
    assert_eq!(changes(text, Kind::Literal), ["3 => 4", "3 => 2", "true => false", "false => true"]);
    assert_eq!(changes(text, Kind::Return), ["fn f => return true;", "fn f => return false;"]);
}

#[test]
fn statements_are_left_out_and_change_places() {
    let text = "fn f(p: &P) { one(p); two(p); }";
    assert_eq!(
        changes(text, Kind::Deletion),
        ["one(p); => (nothing)".replace("(nothing)", ""), "two(p); => ".into()]
    );
    assert_eq!(changes(text, Kind::Order), ["one(p); two(p); => two(p); one(p);"]);
    // What is bound by the first is needed by the second.
    assert_eq!(changes("fn f(p: &P) { let a = one(p); two(p, a); }", Kind::Order), Vec::<String>::new());
    assert_eq!(changes("fn f(p: &P) { let _guard = lock(p); two(p); }", Kind::Guard).len(), 1);
}

#[test]
fn what_is_done_when_a_rule_is_broken_is_left_alone() {
    let text = "fn f(p: &P) { if p.broken(Rule::X) { one(p); } if !p.broken(Rule::Y) { two(p); three(p); } }";
    assert_eq!(changes(text, Kind::Condition), Vec::<String>::new());
    assert_eq!(changes(text, Kind::Deletion), ["two(p); => ", "three(p); => "]);
}

#[test]
fn numbers_are_cut_where_they_are_compared_or_cast() {
    let text = "fn f(a: u64, b: u64) -> u32 { if a > b { a as u32 } else { 0 } }";
    assert_eq!(
        changes(text, Kind::Width),
        ["a > b => cut(&(a)) > cut(&(b))", "a as u32 => narrow(a) as u32"]
    );
    // A purge has a number, which grows for ever.
    let text = "fn f(a: u64, purge: u64) -> bool { a > purge }";
    assert_eq!(changes(text, Kind::Width), ["a > purge => narrow(&(a)) > narrow(&(purge))"]);
}

#[test]
fn a_constant_changes_wherever_it_is_used() {
    let text = "const MANY: u32 = 64;\nfn f(a: u32) -> u32 { a / MANY }\nfn g(a: u32) -> u32 { a % MANY }";
    let found = find(&[Source::of("ipi.rs", text.to_string()).expect("it can be read")], &|_| true);
    let constant: Vec<_> = found.mutants.iter().filter(|mutant| mutant.key.kind == Kind::Constant).collect();
    assert_eq!(constant.iter().map(|mutant| mutant.edits.len()).collect::<Vec<_>>(), [2, 2]);
}

#[test]
fn the_core_with_all_its_mutants_can_be_read() {
    let sources =
        source::read_core(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))).expect("the core");
    let found = find(&sources, &|path| crate::rooms::is_wanted(path, &[]));
    let numbers = numbers(&found.mutants);
    for (file, source) in sources.iter().enumerate() {
        let emitted = emit(&source.text, file, &found.mutants, &numbers);
        if let Err(error) = syn::parse_file(&emitted.text) {
            let line = emitted.text.lines().nth(error.span().start().line - 1);
            panic!("{}: {error} at {:?}: {line:?}", source.path, error.span().start());
        }
    }
    // And each is a change.
    let same: Vec<String> = found
        .mutants
        .iter()
        .filter(|mutant| mutant.key.from == mutant.key.to)
        .map(|mutant| mutant.line())
        .collect();
    assert_eq!(same, Vec::<String>::new());
}
