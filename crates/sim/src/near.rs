//! Names near a name that does not exist.

/// More near names than this are no help.
const MOST: usize = 3;
/// Longer than any name: none is near, and the distance is quadratic.
const LONGEST: usize = 80;

/// The names most like `word`, best first; those that contain it, or that it contains, count as near.
pub fn near<'a>(word: &str, names: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    if word.len() > LONGEST {
        return Vec::new();
    }
    let word = word.to_lowercase();
    let close = |name: &'a str| {
        let distance = strsim::damerau_levenshtein(&word, name);
        let part = word.len() >= 3 && (name.contains(&word) || word.contains(name));
        (distance <= 1 + name.len() / 5 || part).then_some((distance, name))
    };
    let mut close: Vec<(usize, &str)> = names.into_iter().filter_map(close).collect();
    close.sort_unstable();
    close.dedup();
    close.truncate(MOST);
    close.into_iter().map(|(_, name)| name).collect()
}

/// "unknown `what` '`word`'", with the near names, or with all of them when none is near.
pub fn unknown<'a>(what: &str, word: &str, names: impl IntoIterator<Item = &'a str>) -> String {
    let names: Vec<&str> = names.into_iter().collect();
    match (&near(word, names.iter().copied())[..], &names[..]) {
        ([], []) => format!("unknown {what} '{word}'; there is none"),
        ([], all) => format!("unknown {what} '{word}'; there are {}", all.join(", ")),
        (near, _) => format!("unknown {what} '{word}'; did you mean {}?", near.join(" or ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: [&str; 4] = ["lru-file-mmap-read", "no-pressure", "tlb-bystander", "trace"];

    #[test]
    fn a_slip_of_the_finger_or_a_part_of_a_name_finds_it() {
        assert_eq!(near("lru-file-map-read", NAMES), ["lru-file-mmap-read"]);
        assert_eq!(near("trcae", NAMES), ["trace"]);
        assert_eq!(near("bystander", NAMES), ["tlb-bystander"]);
        assert!(near(&"trace".repeat(100), NAMES).is_empty());
    }

    #[test]
    fn nothing_near_lists_everything() {
        let line = unknown("workload", "xyzzy", NAMES);
        assert!(NAMES.iter().all(|name| line.contains(name)), "{line}");
        assert_eq!(unknown("trace", "x", []), "unknown trace 'x'; there is none");
    }
}
