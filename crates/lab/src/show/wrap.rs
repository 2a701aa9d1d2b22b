//! Text wrapped to the width of a page, with a hanging indent.

use textwrap::{Options, WordSplitter};

/// `first` and then `text`, broken at spaces; further lines are indented by the width of `first`.
pub fn hanging(width: usize, first: &str, text: &str) -> String {
    let indent = " ".repeat(first.chars().count());
    let options = Options::new(width)
        .initial_indent(first)
        .subsequent_indent(&indent)
        .break_words(false)
        .word_splitter(WordSplitter::NoHyphenation);
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let filled = if words.is_empty() { first.to_string() } else { textwrap::fill(&words, options) };
    format!("{}\n", filled.trim_end())
}

/// Lines of a story, those that are too long broken under their own start: behind the time, if they have one.
pub fn story(width: usize, text: &str) -> String {
    let line = |line: &str| {
        let behind_time = line.find(" us  ").map_or(0, |at| at + " us  ".len());
        let start = behind_time.max(line.len() - line.trim_start().len());
        hanging(width, &line[..start], &line[start..])
    };
    text.trim_end().lines().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_text_hangs_under_its_start() {
        let text = hanging(80, "note  ", &"word ".repeat(30));
        assert!(text.lines().all(|line| line.chars().count() <= 80));
        assert!(text.lines().skip(1).all(|line| line.starts_with("      word")));
        assert_eq!(text.matches("word").count(), 30);
        assert_eq!(hanging(80, "note  ", ""), "note\n");
    }

    #[test]
    fn a_word_wider_than_the_page_stands_alone_and_is_not_broken() {
        let long = "linux+unmap=per-page".repeat(5);
        assert_eq!(hanging(80, "a ", &format!("{long} y")), format!("a {long}\n  y\n"));
    }

    #[test]
    fn a_story_keeps_its_columns() {
        let told = format!("CPU 0 read.\n    12.5 us  {}\n  INV-1", "word ".repeat(20));
        let lines = story(80, &told);
        let lines: Vec<&str> = lines.lines().collect();
        assert_eq!((lines[0], lines[3]), ("CPU 0 read.", "  INV-1"));
        assert!(lines[1].starts_with("    12.5 us  word") && lines[2].starts_with("             word"));
    }
}
