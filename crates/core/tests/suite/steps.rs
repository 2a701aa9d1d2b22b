//! Each place of the core that flushes, acknowledges, orders, or changes who is asked to flush can be left out by name, or
//! says here why it need not.

use std::path::{Path, PathBuf};

/// What such a place looks like.
const STEPS: [&str; 15] = [
    ".flush_page(",
    ".flush_space()",
    ".flush_kernel_page(",
    ".flush_kernel()",
    "hardware.flush(",
    "hardware.sync()",
    "tlb::flush(",
    "kernel::flush(",
    "complete_deferred(",
    "acknowledge(",
    ".cpus.0.insert(",
    ".cpus.0.remove(",
    "presence.word.store(",
    "presence.word.set(",
    ".raise(",
];

/// Functions with such a step and no rule of their own, and why.
const WITHOUT: &[(&str, &str, &str)] = &[
    ("hotplug/mod.rs", "note_presence", "before any CPU but this one uses the manager"),
    ("space/map.rs", "destroy", "its flush is for lazy CPUs only, and asks `tables-to-lazy` in `tlb::flush`"),
    (
        "space/parked.rs",
        "park",
        "its own flush is no promise; what it completes, and raises, is INV-4 and INV-6 as ever",
    ),
    ("space/parked.rs", "settle", "asks `parked-address-flushed` in `may_be_used`"),
    ("space/parked.rs", "settle_one", "the same"),
    ("space/range.rs", "flush", "asks the rule of whoever calls it, in `flush_by`"),
    ("tlb/local.rs", "mark_lazy", "a CPU that is not marked as lazy is flushed: nothing is lost without it"),
    ("reclaim/aging/flush.rs", "clear", "a policy: nothing rests on it, `aging=no-flush` does without"),
    ("tlb/kernel.rs", "local", "does what it was asked to; who asks has the rule"),
    ("tlb/local.rs", "local", "the same"),
    ("tlb/local.rs", "catch_up", "the same: `lazy-return-flush`, `acknowledge-after-flush`"),
];

fn sources(folder: &Path, into: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("the sources") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            sources(&path, into);
        } else if path.extension().is_some_and(|kind| kind == "rs") {
            into.push(path);
        }
    }
}

/// A function: its name and its text.
struct Function {
    name: String,
    text: String,
}

/// All functions of a source, those inside others as part of these. What is only for tests ends it.
fn functions(text: &str) -> Vec<Function> {
    let mut all = Vec::new();
    let mut inside: Option<(usize, Function)> = None;
    for line in text.lines().take_while(|line| !line.starts_with("#[cfg(test)]")) {
        let indent = line.len() - line.trim_start().len();
        // A string is no code, and a comment is none.
        let code = line.split("//").next().unwrap_or("");
        if let Some((depth, function)) = &mut inside {
            function.text.push_str(code);
            function.text.push('\n');
            if line.trim_end() == format!("{}}}", " ".repeat(*depth)) {
                all.extend(inside.take().map(|(_, function)| function));
            }
        } else if let Some((_, rest)) = code.split_once("fn ")
            && !code.trim_start().starts_with("//")
            && !code.trim_end().ends_with(';')
        {
            let name = rest.split(['(', '<']).next().unwrap_or("").to_string();
            let function = Function { name, text: format!("{code}\n") };
            if code.trim_end().ends_with('}') {
                all.push(function);
            } else {
                inside = Some((indent, function));
            }
        }
    }
    all
}

/// Functions that have a step and no rule: file and name.
fn without_rules(sources: impl Iterator<Item = (String, String)>) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for (file, text) in sources {
        for function in functions(&text) {
            let body = function.text.split_once('{').map_or("", |(_, body)| body);
            if STEPS.iter().any(|step| body.contains(step)) && !function.text.contains("Rule::") {
                found.push((file.clone(), function.name));
            }
        }
    }
    found
}

fn core() -> Vec<(String, String)> {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    sources(&top, &mut files);
    files.sort();
    let name = |path: &Path| path.strip_prefix(&top).expect("below it").display().to_string();
    files.iter().map(|path| (name(path), std::fs::read_to_string(path).expect("a source"))).collect()
}

#[test]
fn each_step_that_an_invariant_rests_on_has_a_rule() {
    let found = without_rules(core().into_iter());
    let known =
        |one: &&(String, String)| !WITHOUT.iter().any(|(file, name, _)| *file == one.0 && *name == one.1);
    let new: Vec<_> = found.iter().filter(known).collect();
    assert!(new.is_empty(), "without a rule that can be broken: {new:?}");
    for (file, name, _) in WITHOUT {
        assert!(
            found.contains(&(file.to_string(), name.to_string())),
            "{file}: {name} has a rule by now, or is gone"
        );
    }
}

#[test]
fn a_step_without_a_rule_is_seen() {
    let text = "impl A {\n    fn quiet(&self) {\n        space.cpus.0.remove(p, here);\n    }\n    fn told(&self) {\n        if !p.broken(Rule::X) {\n            p.flush_space();\n        }\n    }\n}\n";
    let found = without_rules([("a.rs".to_string(), text.to_string())].into_iter());
    assert_eq!(found, [("a.rs".to_string(), "quiet".to_string())]);
}
