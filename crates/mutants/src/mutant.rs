//! A mutant: one small change of the source, as edits of its text.

use std::ops::Range;

use serde::{Deserialize, Serialize};

/// What is changed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// A condition is always true, or never.
    Condition,
    /// `<` becomes `<=`, and so on.
    Boundary,
    /// The opposite.
    Negation,
    /// Another operator.
    Operator,
    /// A part of a sum, a mask or a condition is left out.
    Term,
    /// Another number, or the other bool.
    Literal,
    /// A constant has another value, wherever it is used.
    Constant,
    /// Another constant or variant of the same type.
    Name,
    /// A statement is left out.
    Deletion,
    /// An error is ignored.
    Error,
    /// A function returns at once.
    Return,
    /// A loop does nothing, or ends after one round.
    Loop,
    /// An arm of a match is never taken.
    Arm,
    /// Two statements that stand side by side change places.
    Order,
    /// A guard is dropped at once.
    Guard,
    /// Two arguments change places.
    Arguments,
    /// Another method.
    Method,
    /// A range is longer or shorter by one.
    Range,
    /// A number is cut to fewer bits.
    Width,
}

/// A change of the text of one file.
#[derive(Clone, Debug)]
pub struct Edit {
    /// Its place in the list of files.
    pub file: usize,
    pub place: Place,
    /// What stands there in the mutant.
    pub text: String,
    /// Where the keyword `const` of its function stands, if it has one.
    pub const_fn: Option<Range<usize>>,
}

/// What an edit replaces.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Place {
    /// An expression with a value.
    Expr(Range<usize>),
    /// A statement, with its semicolon, or an expression without a value.
    Stmt(Range<usize>),
    /// Nothing: a statement is put in here.
    Before(usize),
    /// Two `let` statements that change places, and the names that they bind, as a pattern and as a value.
    Lets { range: Range<usize>, pattern: String, names: String },
    /// The arm whose pattern ends here is never taken.
    Arm(usize),
}

impl Place {
    pub fn range(&self) -> Range<usize> {
        match self {
            Place::Expr(range) | Place::Stmt(range) | Place::Lets { range, .. } => range.clone(),
            Place::Before(at) | Place::Arm(at) => *at..*at,
        }
    }
}

/// What names a mutant, also after other parts of the core have changed.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Key {
    /// Below `crates/core/src`.
    pub file: String,
    pub function: String,
    pub kind: Kind,
    /// What stands there.
    pub from: String,
    /// What stands there in the mutant.
    pub to: String,
    /// Which of those that are the same in all of this.
    pub nth: u32,
    /// Of the function's text.
    pub hash: u64,
}

#[derive(Clone, Debug)]
pub struct Mutant {
    pub key: Key,
    pub line: usize,
    /// The first says where it is.
    pub edits: Vec<Edit>,
}

impl Mutant {
    /// As a line for people.
    pub fn line(&self) -> String {
        self.described(&format!("{}:{}", self.key.file, self.line))
    }

    /// The same without the line, which changes.
    pub fn place_and_change(&self) -> String {
        self.described(&self.key.file)
    }

    fn described(&self, place: &str) -> String {
        let Key { function, from, to, .. } = &self.key;
        let to = if to.is_empty() { "(nothing)" } else { to };
        format!("{place}: {function}: {from} => {to}")
    }
}

/// FNV-1a: the same on every host and with every compiler.
pub fn hash(text: &str) -> u64 {
    text.split_whitespace()
        .flat_map(|word| word.bytes().chain([b' ']))
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// Without comments, with single spaces, and cut if it is long.
pub fn squeeze(text: &str) -> String {
    let text = without_comments(text);
    let words: Vec<&str> = text.split_whitespace().collect();
    let text = words.join(" ");
    match text.char_indices().nth(160) {
        Some((end, _)) => format!("{}... {:08x}", &text[..end], hash(&text) as u32),
        None => text,
    }
}

/// Without what stands behind `//`: the core has no string with that in a function.
pub fn without_comments(text: &str) -> String {
    let lines: Vec<&str> = text.lines().map(|line| line.split("//").next().unwrap_or(line)).collect();
    lines.join("\n")
}
