//! Names near a name that does not exist.

/// More near names than this are no help.
const MOST: usize = 3;

/// How alike two names must be (Jaro-Winkler, 0 to 1) to be worth a question.
const ALIKE: f64 = 0.8;

/// "unknown `what` '`word`'", with the near names, or with all of them when none is near.
pub fn unknown<'a>(what: &str, word: &str, names: impl IntoIterator<Item = &'a str>) -> String {
    let names: Vec<&str> = names.into_iter().collect();
    let near = near(word, &names);
    if !near.is_empty() {
        format!("unknown {what} '{word}'; did you mean {}?", near.join(" or "))
    } else if names.is_empty() {
        format!("unknown {what} '{word}'; there is none")
    } else {
        format!("unknown {what} '{word}'; there are {}", names.join(", "))
    }
}

/// The names most like `word`, best first; those that contain it, or that it contains, count as near.
fn near<'a>(word: &str, names: &[&'a str]) -> Vec<&'a str> {
    let word = word.to_lowercase();
    let mut scored: Vec<(f64, &str)> = names
        .iter()
        .map(|name| {
            let within = word.len() >= 3 && (name.contains(&word) || word.contains(name));
            let score = strsim::jaro_winkler(&word, name);
            (if within { score + 1.0 } else { score }, *name)
        })
        .filter(|(score, _)| *score >= ALIKE)
        .collect();
    scored.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(b.1)));
    scored.truncate(MOST);
    scored.into_iter().map(|(_, name)| name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: [&str; 4] = ["lru-file-mmap-read", "no-pressure", "tlb-bystander", "trace"];

    #[test]
    fn a_slip_of_the_finger_finds_its_name() {
        assert_eq!(near("lru-file-map-read", &NAMES), ["lru-file-mmap-read"]);
        assert_eq!(near("trcae", &NAMES), ["trace"]);
    }

    #[test]
    fn a_part_of_a_name_finds_it() {
        assert_eq!(near("bystander", &NAMES), ["tlb-bystander"]);
    }

    #[test]
    fn nothing_near_lists_everything() {
        let line = unknown("workload", "xyzzy", NAMES);
        assert!(NAMES.iter().all(|name| line.contains(name)), "{line}");
    }
}
