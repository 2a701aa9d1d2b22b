//! Text wrapped to the width of a page, with a hanging indent.

/// The width of what is meant to be read as text. Fixed: output is the same in every window.
pub const WIDTH: usize = 80;

/// `first` and then `text`, broken at spaces; further lines are indented by the width of `first`.
pub fn hanging(first: &str, text: &str) -> String {
    let indent = first.chars().count();
    let mut out = first.to_string();
    let mut column = indent;
    for (nth, word) in text.split_whitespace().enumerate() {
        let width = word.chars().count();
        if nth > 0 && column + 1 + width > WIDTH {
            out.push('\n');
            out.extend(std::iter::repeat_n(' ', indent));
            column = indent;
        } else if nth > 0 {
            out.push(' ');
            column += 1;
        }
        out.push_str(word);
        column += width;
    }
    out.truncate(out.trim_end().len());
    out.push('\n');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_text_hangs_under_its_start() {
        let text = hanging("note  ", &"word ".repeat(30));
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH));
        assert!(text.lines().skip(1).all(|line| line.starts_with("      word")));
        assert_eq!(text.matches("word").count(), 30);
    }

    #[test]
    fn a_word_wider_than_the_page_stands_alone() {
        let long = "x".repeat(100);
        assert_eq!(hanging("a ", &format!("{long} y")), format!("a {long}\n  y\n"));
    }
}
