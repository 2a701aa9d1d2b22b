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

/// Lines of a story, those that are too long broken under their own start: behind the time, if they have one.
pub fn story(text: &str) -> String {
    let line = |line: &str| {
        let behind_time = line.find(" us  ").map_or(0, |at| at + " us  ".len());
        let start = behind_time.max(line.len() - line.trim_start().len());
        hanging(&line[..start], &line[start..])
    };
    text.trim_end().lines().map(line).collect()
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

    #[test]
    fn a_story_keeps_its_columns() {
        let told = format!("CPU 0 read.\n    12.5 us  {}\n  INV-1", "word ".repeat(20));
        let lines = story(&told);
        let lines: Vec<&str> = lines.lines().collect();
        assert_eq!((lines[0], lines[3]), ("CPU 0 read.", "  INV-1"));
        assert!(lines[1].starts_with("    12.5 us  word") && lines[2].starts_with("             word"));
    }
}
