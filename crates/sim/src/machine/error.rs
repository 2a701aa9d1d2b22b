//! What was wrong with a machine, in one line.

use std::fmt;

/// Why a machine description was refused.
///
/// Displays as one line, `FILE:LINE: what was wrong; what would be right`. `LINE` is left out where there is
/// none: a file that cannot be read, a name that is not known, a `--set`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachineError {
    origin: String,
    line: Option<usize>,
    wrong: String,
    right: String,
}

impl MachineError {
    pub(super) fn new(
        origin: &str,
        line: Option<usize>,
        wrong: impl Into<String>,
        right: impl Into<String>,
    ) -> Self {
        MachineError { origin: origin.to_owned(), line, wrong: wrong.into(), right: right.into() }
    }

    /// The file, or what else the text came from.
    #[must_use]
    pub fn origin(&self) -> &str {
        &self.origin
    }

    /// The line, counted from 1.
    #[must_use]
    pub fn line(&self) -> Option<usize> {
        self.line
    }

    /// What was wrong.
    #[must_use]
    pub fn wrong(&self) -> &str {
        &self.wrong
    }

    /// What would be right.
    #[must_use]
    pub fn right(&self) -> &str {
        &self.right
    }
}

impl fmt::Display for MachineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&one_line(&self.origin, usize::MAX))?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        write!(f, ": {}; {}", one_line(&self.wrong, 300), one_line(&self.right, 300))
    }
}

impl std::error::Error for MachineError {}

/// `text` without line breaks and other characters that a terminal would act on, and not longer than `most`
/// characters.
pub(super) fn one_line(text: &str, most: usize) -> String {
    let mut out = String::new();
    for (at, c) in text.chars().enumerate() {
        if at == most {
            out.push_str("...");
            break;
        }
        // U+2028.. and the bidirectional controls break or reorder a line without being `control`.
        if c.is_control() || matches!(c, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}') {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
    }
    out
}

/// `text` as it is shown when it is quoted from an input: in backquotes, one line, short.
pub(super) fn quoted(text: &str) -> String {
    format!("`{}`", one_line(text, 60))
}

/// The candidates that look most like `text`, as words for "did you mean", or nothing.
pub(super) fn near<'a>(text: &str, candidates: impl Iterator<Item = &'a str>) -> Option<String> {
    // Longer than any name: no name is near, and the distance is quadratic.
    if text.len() > 80 {
        return None;
    }
    let text = text.to_lowercase();
    let mut close: Vec<(usize, &str)> = candidates
        .filter_map(|candidate| {
            let distance = strsim::damerau_levenshtein(&text, candidate);
            let part = text.len() >= 3 && (candidate.contains(&text) || text.contains(candidate));
            (distance <= 1 + candidate.len() / 5 || part).then_some((distance, candidate))
        })
        .collect();
    close.sort_unstable();
    close.dedup();
    close.truncate(3);
    let names: Vec<String> = close.iter().map(|(_, name)| format!("`{name}`")).collect();
    (!names.is_empty()).then(|| names.join(" or "))
}
