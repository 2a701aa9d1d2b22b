//! The machines inside the command, and how a machine is found.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use super::Machine;
use super::error::{MachineError, near, quoted};

const BUILTIN: [(&str, &str); 16] = [
    ("numa-4x12", include_str!("../../../../machines/numa-4x12.toml")),
    ("uma-8", include_str!("../../../../machines/uma-8.toml")),
    ("vm-8", include_str!("../../../../machines/vm-8.toml")),
    ("modern-2x64", include_str!("../../../../machines/modern-2x64.toml")),
    ("epyc-2x128", include_str!("../../../../machines/epyc-2x128.toml")),
    ("epyc-2x256", include_str!("../../../../machines/epyc-2x256.toml")),
    ("numa-8x15", include_str!("../../../../machines/numa-8x15.toml")),
    ("many-8x64", include_str!("../../../../machines/many-8x64.toml")),
    ("many-32x128", include_str!("../../../../machines/many-32x128.toml")),
    ("opteron-2x4", include_str!("../../../../machines/opteron-2x4.toml")),
    ("sn2-64", include_str!("../../../../machines/sn2-64.toml")),
    ("ssd-8", include_str!("../../../../machines/ssd-8.toml")),
    ("ssd-8-today", include_str!("../../../../machines/ssd-8-today.toml")),
    ("cxl-16", include_str!("../../../../machines/cxl-16.toml")),
    ("stress-4x4", include_str!("../../../../machines/stress-4x4.toml")),
    ("stress-swap", include_str!("../../../../machines/stress-swap.toml")),
];

/// A machine file is not larger.
const MOST_BYTES: u64 = 1 << 20;

impl Machine {
    /// Names of the machines inside the command.
    pub fn builtin_names() -> impl Iterator<Item = &'static str> {
        BUILTIN.iter().map(|(name, _)| *name)
    }

    /// A machine inside the command.
    #[must_use]
    pub fn builtin(name: &str) -> Option<Machine> {
        let (name, text) = BUILTIN.iter().find(|(known, _)| *known == name)?;
        Machine::parse(text, name).ok()
    }

    /// The one line that says what a machine inside the command is.
    #[must_use]
    pub fn builtin_about(name: &str) -> Option<String> {
        Machine::builtin(name).map(|machine| machine.about)
    }

    /// The file of a machine inside the command: where to start one's own.
    #[must_use]
    pub fn builtin_text(name: &str) -> Option<&'static str> {
        BUILTIN.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
    }

    /// A machine by its name, or from a file. It is a file when it has a `/`, ends in `.toml`, or is there.
    ///
    /// # Errors
    /// An unknown name, with the near ones; a file that cannot be read; what [`Machine::parse`] refuses.
    pub fn load(name_or_path: &str) -> Result<Machine, MachineError> {
        if let Some(machine) = Machine::builtin(name_or_path) {
            return Ok(machine);
        }
        let is_path = name_or_path.contains('/')
            || name_or_path.ends_with(".toml")
            || (!name_or_path.is_empty() && Path::new(name_or_path).exists());
        if is_path {
            return Machine::parse(&read(name_or_path)?, name_or_path);
        }
        let all = || Machine::builtin_names().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
        let names =
            near(name_or_path, Machine::builtin_names()).unwrap_or_else(|| format!("one of {}", all()));
        let wrong = format!("no machine is called {}", quoted(name_or_path));
        Err(MachineError::new(
            "machine",
            None,
            wrong,
            format!("{names}, or the path of a file that ends in .toml"),
        ))
    }
}

/// The text of a machine file.
fn read(path: &str) -> Result<String, MachineError> {
    let error = |line: Option<usize>, wrong: String, right: &str| MachineError::new(path, line, wrong, right);
    let unreadable =
        |io: std::io::Error| error(None, format!("cannot be read: {io}"), "a readable machine file");
    // Asked before opening: opening a FIFO would wait for a writer.
    let kind = std::fs::metadata(path).map_err(unreadable)?.file_type();
    if !kind.is_file() {
        let wrong = if kind.is_dir() { "a directory" } else { "not a regular file" };
        return Err(error(None, wrong.into(), "a machine file"));
    }
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|file| file.take(MOST_BYTES + 1).read_to_end(&mut bytes))
        .map_err(unreadable)?;
    if bytes.len() as u64 > MOST_BYTES {
        return Err(error(None, "larger than 1 MiB".into(), "a machine file, which has a few KiB"));
    }
    String::from_utf8(bytes).map_err(|utf8| {
        let good = &utf8.as_bytes()[..utf8.utf8_error().valid_up_to()];
        let line = good.iter().filter(|&&b| b == b'\n').count() + 1;
        error(Some(line), "not UTF-8".into(), "a text file in UTF-8")
    })
}
