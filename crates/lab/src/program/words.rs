//! A command line as words, with quotes as a shell has them.

/// Splits it; `None` if a quote is not closed.
pub fn split(text: &str) -> Option<Vec<String>> {
    let (mut words, mut word) = (Vec::new(), None::<String>);
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            c if c.is_whitespace() => words.extend(word.take()),
            '\'' => {
                let word = word.get_or_insert_default();
                loop {
                    match chars.next()? {
                        '\'' => break,
                        c => word.push(c),
                    }
                }
            }
            '"' => {
                let word = word.get_or_insert_default();
                loop {
                    match chars.next()? {
                        '"' => break,
                        '\\' => match chars.next()? {
                            c @ ('"' | '\\' | '$' | '`') => word.push(c),
                            c => word.extend(['\\', c]),
                        },
                        c => word.push(c),
                    }
                }
            }
            '\\' => word.get_or_insert_default().push(chars.next()?),
            c => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    Some(words)
}

#[cfg(test)]
mod tests {
    use super::split;

    #[test]
    fn quotes_hold_words_together() {
        let whole = |text: &str| split(text).map(|words| words.join("|"));
        let cases = [
            ("", Some("")),
            ("  echo  a b ", Some("echo|a|b")),
            ("sh -c 'echo hello | wc'", Some("sh|-c|echo hello | wc")),
            (r#"a "b 'c' \" \n" d\ e ''"#, Some(r#"a|b 'c' " \n|d e|"#)),
            ("x'y'\"z\"", Some("xyz")),
            ("'open", None),
            ("\"open", None),
            ("end\\", None),
        ];
        for (text, expected) in cases {
            assert_eq!(whole(text).as_deref(), expected, "{text}");
        }
    }
}
