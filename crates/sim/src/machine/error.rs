//! What was wrong with a machine, a line for each fault.

use std::fmt;

/// More faults of one file are only counted.
pub(super) const MOST_FAULTS: usize = 20;

/// Why a machine description was refused: everything that is wrong with it, as far as it could be read.
///
/// Displays as a line for each fault, `FILE:LINE: what was wrong; what would be right`. `LINE` is left out where there is
/// none: a file that cannot be read, a name that is not known, a `--set`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachineError {
    origin: String,
    faults: Vec<Fault>,
    /// Faults beyond those that are kept.
    more: usize,
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The line, counted from 1.
    pub line: Option<usize>,
    /// What was wrong.
    pub wrong: String,
    /// What would be right.
    pub right: String,
}

impl MachineError {
    pub(super) fn new(
        origin: &str,
        line: Option<usize>,
        wrong: impl Into<String>,
        right: impl Into<String>,
    ) -> Self {
        MachineError::of(origin, vec![Fault { line, wrong: wrong.into(), right: right.into() }])
    }

    /// All that is wrong, in the order of lines.
    pub(super) fn of(origin: &str, mut faults: Vec<Fault>) -> Self {
        let more = faults.len().saturating_sub(MOST_FAULTS);
        faults.truncate(MOST_FAULTS);
        faults.sort_by_key(|fault| fault.line);
        MachineError { origin: origin.to_owned(), faults, more }
    }

    /// All that is wrong, in the order of lines.
    #[must_use]
    pub fn faults(&self) -> &[Fault] {
        &self.faults
    }
}

impl fmt::Display for MachineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let origin = one_line(&self.origin, usize::MAX);
        for (nth, Fault { line, wrong, right }) in self.faults.iter().enumerate() {
            let gap = if nth == 0 { "" } else { "\n" };
            let line = line.map_or_else(String::new, |line| format!(":{line}"));
            write!(f, "{gap}{origin}{line}: {}; {}", one_line(wrong, 300), one_line(right, 300))?;
        }
        if self.more > 0 {
            write!(f, "\n{origin}: and {} more; mend these first", self.more)?;
        }
        Ok(())
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
    let close = crate::near::near(text, candidates);
    let names: Vec<String> = close.iter().map(|name| format!("`{name}`")).collect();
    (!names.is_empty()).then(|| names.join(" or "))
}
