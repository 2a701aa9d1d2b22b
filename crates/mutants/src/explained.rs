//! Mutants that no test can see, each with its reason: they behave like the core, or differ in speed alone.

use crate::mutant::Mutant;

/// A pattern, and why.
pub struct Explained {
    pub pattern: String,
    pub why: String,
}

/// The list that comes along.
pub fn list() -> Vec<Explained> {
    parse(include_str!("../explained.txt"))
}

/// Lines as `mutants survivors` prints them, without the number of the line; `*` stands for any text. What is indented below
/// is the reason.
fn parse(text: &str) -> Vec<Explained> {
    let mut all: Vec<Explained> = Vec::new();
    for line in text.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty()) {
        match line.strip_prefix("    ") {
            None => all.push(Explained { pattern: line.trim().to_string(), why: String::new() }),
            Some(why) => {
                // Several patterns may share a reason.
                for entry in all.iter_mut().rev().take_while(|entry| entry.why.is_empty()) {
                    entry.why = why.trim().to_string();
                }
            }
        }
    }
    all
}

/// Why nobody can see this one, if that is known.
pub fn why<'a>(list: &'a [Explained], mutant: &Mutant) -> Option<&'a Explained> {
    let text = mutant.place_and_change();
    list.iter().find(|entry| matches(&entry.pattern, &text))
}

fn matches(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = parts.next().and_then(|first| text.strip_prefix(first)) else { return false };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else { return rest.is_empty() };
    for part in parts {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_stand_for_any_text() {
        assert!(matches("a.rs: f: x => y", "a.rs: f: x => y"));
        assert!(matches("a.rs: f: * => *", "a.rs: f: x < 3 => x <= 3"));
        assert!(matches("a.rs: *", "a.rs: f: x => y"));
        assert!(!matches("a.rs: f: x => y", "a.rs: f: x => yy"));
        assert!(!matches("a.rs: g: *", "a.rs: f: x => y"));
        assert!(!matches("a*b*b", "ab"));
    }

    #[test]
    fn patterns_share_the_reason_below_them() {
        let list = parse("# text\n\na: f: x => y\nb: f: x => y\n    the same\nc: f: x => y\n    other\n");
        let all: Vec<(&str, &str)> =
            list.iter().map(|entry| (&entry.pattern[..1], entry.why.as_str())).collect();
        assert_eq!(all, [("a", "the same"), ("b", "the same"), ("c", "other")]);
    }

    #[test]
    fn each_entry_has_a_reason() {
        assert!(list().iter().all(|entry| !entry.why.is_empty()));
    }
}
