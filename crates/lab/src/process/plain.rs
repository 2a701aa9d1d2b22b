//! Text that only says something: file names, names of programs and whatever else comes from outside cannot move the
//! cursor, change colours or turn the direction of what a terminal shows.

use std::borrow::Cow;
use std::fmt::Write;

/// `text` with every control character but the line feed, and every character that breaks or reorders a line, as
/// `\u001b`. The form is JSON's, where such a character can stand only in a string: so JSON stays the same JSON.
pub fn plain(text: &str) -> Cow<'_, str> {
    escaped(text, |c| acts(c) && c != '\n')
}

/// The same, in one line: line feeds too.
pub fn line(text: &str) -> Cow<'_, str> {
    escaped(text, acts)
}

/// `text` with at most `most` characters: the beginning, which says what is wrong, and the end, which says what would be
/// right.
pub fn short(text: &str, most: usize) -> Cow<'_, str> {
    let count = text.chars().count();
    if count <= most {
        return Cow::Borrowed(text);
    }
    let tail = most / 2;
    let head: String = text.chars().take(most - tail - 3).collect();
    let tail: String = text.chars().skip(count - tail).collect();
    Cow::Owned(format!("{head}...{tail}"))
}

/// Whether a terminal would act on it rather than show it.
fn acts(c: char) -> bool {
    // U+2028.. and the bidirectional controls break or reorder a line without being `control`.
    c.is_control() || matches!(c, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

fn escaped(text: &str, which: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(&which) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if which(c) {
            // A `String` takes everything.
            let _ = write!(out, "\\u{:04x}", u32::from(c));
        } else {
            out.push(c);
        }
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_would_act_on_is_shown_as_its_number() {
        assert_eq!(plain("a\u{1b}[31mb\r\nc\u{9b}d\u{202e}e"), "a\\u001b[31mb\\u000d\nc\\u009bd\\u202ee");
        assert_eq!(line("one\ntwo"), "one\\u000atwo");
        assert_eq!(plain("räume ± 5 µs\n"), "räume ± 5 µs\n");
    }

    #[test]
    fn a_long_text_keeps_its_beginning_and_its_end() {
        assert_eq!(short("as it is", 8), "as it is");
        assert_eq!(short("0123456789µ", 9), "01...789µ".to_owned());
    }

    #[test]
    fn json_stays_the_same_json() {
        let value = serde_json::json!({ "name": "x\u{1b}\u{7f}\u{202e}\n" });
        let text = serde_json::to_string_pretty(&value).unwrap();
        let again: serde_json::Value = serde_json::from_str(&plain(&text)).unwrap();
        assert_eq!(again, value);
        assert!(!plain(&text).contains('\u{7f}'));
    }
}
