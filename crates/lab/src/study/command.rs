//! Command lines that are printed to be used again.

/// A command line, word by word.
#[derive(Clone, Debug)]
pub struct CommandLine(Vec<String>);

impl CommandLine {
    /// It begins with `quietmm`, this command, and this word.
    pub fn new(command: &str, word: &str) -> CommandLine {
        let mut line = CommandLine::of(command);
        line.word(word);
        line
    }

    /// It begins with `quietmm` and this command.
    pub fn of(command: &str) -> CommandLine {
        CommandLine(["quietmm", command].map(str::to_string).to_vec())
    }

    /// Adds a word.
    pub fn word(&mut self, word: &str) {
        self.0.push(quoted(word));
    }

    /// It begins with `quietmm` and this command.
    pub fn bare(command: &str) -> CommandLine {
        CommandLine(["quietmm", command].map(str::to_string).to_vec())
    }

    /// Adds a flag with its value.
    pub fn flag(&mut self, name: &str, value: impl std::fmt::Display) {
        self.0.extend([name.to_string(), quoted(&value.to_string())]);
    }

    /// Adds a flag if it has a value.
    pub fn option(&mut self, name: &str, value: Option<impl std::fmt::Display>) {
        if let Some(value) = value {
            self.flag(name, value);
        }
    }

    /// Adds constants that were set.
    pub fn sets(&mut self, sets: &[(String, String)]) {
        sets.iter().for_each(|(key, value)| self.flag("--set", format!("{key}={value}")));
    }
}

impl std::fmt::Display for CommandLine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0.join(" "))
    }
}

/// A word as a POSIX shell reads it back.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=+,./:@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_string()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_survives_a_shell() {
        let mut line = CommandLine::new("run", "trace");
        line.flag("--machine", "my machine.toml");
        line.option("--scale", Some(4));
        line.option("--cpus", None::<u32>);
        line.sets(&[("name".to_string(), "it's".to_string())]);
        assert_eq!(
            line.to_string(),
            r"quietmm run trace --machine 'my machine.toml' --scale 4 --set 'name=it'\''s'"
        );
    }
}
