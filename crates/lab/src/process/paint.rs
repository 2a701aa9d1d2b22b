//! Colours, given to finished text: gains by their sign, and the words that a reader looks for. Whoever writes text knows
//! nothing of them.

use anstyle::{AnsiColor, Style};

const BETTER: Style = AnsiColor::Green.on_default();
const WORSE: Style = AnsiColor::Red.on_default();
const SAME: Style = Style::new().dimmed();
const LABEL: Style = Style::new().bold();
const LOUD: Style = AnsiColor::Yellow.on_default().bold();

/// What a line may begin with, and its style.
const LABELS: [(&str, Style); 5] = [
    ("verdict ", LABEL),
    ("repeat ", LABEL),
    ("INTERRUPTED", LOUD),
    ("NOTHING WAS RECLAIMED", LOUD),
    ("!!!", AnsiColor::Red.on_default().bold()),
];

/// `text` in colours.
pub fn paint(text: &str) -> String {
    text.split_inclusive('\n').map(line).collect()
}

fn line(line: &str) -> String {
    let (mut out, mut rest) = (String::new(), line);
    if let Some((label, style)) = LABELS.iter().find(|(label, _)| line.starts_with(label)) {
        out += &format!("{style}{label}{style:#}");
        rest = &line[label.len()..];
    }
    while let Some(at) = rest.find('(') {
        let (before, from) = rest.split_at(at);
        out += before;
        match gain(from) {
            Some((length, style)) => {
                out += &format!("{style}{}{style:#}", &from[..length]);
                rest = &from[length..];
            }
            None => {
                out.push('(');
                rest = &from[1..];
            }
        }
    }
    out + rest
}

/// The length of a gain in brackets that `text` begins with, and its colour.
fn gain(text: &str) -> Option<(usize, Style)> {
    let end = text.find("%)")?;
    let number = text[1..end].trim_start_matches([' ', '<', '>']);
    let value: f64 = number.parse().ok()?;
    let style = if value == 0.0 {
        SAME
    } else if value > 0.0 {
        BETTER
    } else {
        WORSE
    };
    Some((end + 2, style))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gains_have_the_colour_of_their_sign_and_the_text_stays_the_text() {
        let text = "User  9.57 (  0.00%)  9.56 ( 23.69%)  (a word)  (-11.45%)\nverdict  well\n(";
        let painted = paint(text);
        assert!(painted.contains("\u{1b}[32m( 23.69%)\u{1b}[0m") && painted.contains("\u{1b}[31m(-11.45%)"));
        let mut bare = String::new();
        let mut parts = painted.split('\u{1b}');
        bare += parts.next().unwrap_or("");
        parts.for_each(|part| bare += part.split_once('m').map_or("", |(_, text)| text));
        assert_eq!(bare, text);
    }
}
