//! A TOML text to a machine.
//!
//! The text is read as a tree with spans, not through `serde`: each complaint then has its line, and numbers come
//! as the text that was written.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::error::{MachineError, near, one_line, quoted};
use super::key::{self, KEYS, Key, Need, SECTIONS, SWAP};
use super::quantity::{Kind, Refusal, base_units};
use super::{Machine, Note};

/// What a constant looks like, for messages.
const SHAPE: &str = "{ value = 100, unit = \"ns\", source = \"where it is from\" }";

/// What stands at the top of a file besides the sections.
const HEAD: [&str; 3] = ["name", "about", "year"];

/// Longest source text, in bytes.
const MOST_SOURCE: usize = 2000;

impl Machine {
    /// Reads a machine from TOML. `origin` is the file's name, for messages.
    ///
    /// # Errors
    /// The first thing that is wrong, with its line.
    pub fn parse(text: &str, origin: &str) -> Result<Machine, MachineError> {
        Reader { text, origin }.machine()
    }
}

struct Reader<'t> {
    text: &'t str,
    origin: &'t str,
}

/// A constant as it stands in the file.
struct Written {
    value_text: String,
    unit: String,
    source: String,
    line: usize,
}

type Node<'t> = Spanned<DeValue<'t>>;

impl<'t> Reader<'t> {
    fn machine(&self) -> Result<Machine, MachineError> {
        let root = DeTable::parse(self.text).map_err(|error| {
            let line = self.line_at(error.span().map_or(0, |span| span.start));
            self.error(
                line,
                format!("not TOML: {}", error.message()),
                format!("sections of `name = {SHAPE}`"),
            )
        })?;
        let root = root.get_ref();
        if root.is_empty() {
            return Err(self.error(
                1,
                "nothing in it",
                format!("name, about, year and the sections {}", section_list()),
            ));
        }
        self.refuse_unknown(root, "", HEAD.into_iter().chain(SECTIONS))?;

        let mut machine = Machine::blank();
        machine.name = self.name(root)?;
        machine.about = self.head_text(root, "about", "one line that says what machine this is")?;
        machine.year = self.year(root)?;

        // Where each constant stands, for what is checked at the end; the distances first, as in the notes.
        let mut lines = vec![1; KEYS.len() + 1];
        for section in SECTIONS {
            self.section(root, section, &mut machine, &mut lines)?;
        }
        key::check(&machine).map_err(|conflict| {
            self.error(lines[conflict.key.map_or(0, |at| at + 1)], conflict.wrong, conflict.right)
        })?;
        Ok(machine)
    }

    fn name(&self, root: &DeTable<'t>) -> Result<String, MachineError> {
        let right = "1 to 64 lower-case letters, digits, `-`, `_` and `.`, such as `name = \"uma-8\"`";
        let name = self.head_text(root, "name", right)?;
        let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'-' | b'_' | b'.');
        if name.len() > 64 || !name.bytes().all(plain) {
            let line = root.get("name").map_or(1, |node| self.line_of(node));
            return Err(self.error(line, format!("the name {}", quoted(&name)), right));
        }
        Ok(name)
    }

    fn head_text(&self, root: &DeTable<'t>, key: &str, right: &str) -> Result<String, MachineError> {
        let node = root.get(key).ok_or_else(|| self.error(1, format!("no `{key}`"), right))?;
        self.text_of(node, key, right)
    }

    fn year(&self, root: &DeTable<'t>) -> Result<u32, MachineError> {
        let right = "a year from 1980 to 2100, such as `year = 2015`";
        let node = root.get("year").ok_or_else(|| self.error(1, "no `year`", right))?;
        let year = match node.get_ref() {
            DeValue::Integer(n) => u32::from_str_radix(n.as_str(), n.radix()).ok(),
            _ => None,
        };
        year.filter(|year| (1980..=2100).contains(year)).ok_or_else(|| {
            self.error(self.line_of(node), format!("`year` is {}", describe(node.get_ref())), right)
        })
    }

    /// Reads all constants of a section.
    fn section(
        &self,
        root: &DeTable<'t>,
        section: &str,
        machine: &mut Machine,
        lines: &mut [usize],
    ) -> Result<(), MachineError> {
        let keys = || KEYS.iter().enumerate().filter(move |(_, key)| key.section == section);
        let distance = section == "memory";
        let names = || keys().map(|(_, key)| key.name).chain(distance.then_some("distance"));
        let Some(node) = root.get(section) else {
            if section == SWAP || keys().all(|(_, key)| !matches!(key.need, Need::Required)) {
                return Ok(());
            }
            let names: Vec<_> = names().take(8).collect();
            let more = if names.len() == 8 { ", ..." } else { "" };
            return Err(self.error(
                1,
                format!("no section [{section}]"),
                format!("[{section}] with {}{more}", names.join(", ")),
            ));
        };
        let Some(table) = node.get_ref().as_table() else {
            return Err(self.error(
                self.line_of(node),
                format!("`{section}` is {}", describe(node.get_ref())),
                format!("a section [{section}]"),
            ));
        };
        self.refuse_unknown(table, section, names())?;
        for (at, key) in keys() {
            match table.get(key.name) {
                Some(node) => {
                    let written = self.constant(key, node)?;
                    lines[at + 1] = written.line;
                    self.store(machine, at, key, written)?;
                }
                None if matches!(key.need, Need::Required) => {
                    return Err(self.error(
                        self.line_of(node),
                        format!("no `{}` in [{section}]", key.name),
                        format!(
                            "`{} = {{ value = ..., unit = \"{}\", source = \"...\" }}`, {}",
                            key.name,
                            key.kind.natural_unit(),
                            key.range()
                        ),
                    ));
                }
                None => {}
            }
        }
        if distance {
            let right = "`distance = { value = [[10, 20], [20, 10]], unit = \"SLIT\", source = \"...\" }`";
            let node = table.get("distance").ok_or_else(|| {
                self.error(self.line_of(node), "no `distance` in [memory]", format!("{right}, nodes x nodes"))
            })?;
            lines[0] = self.line_of(node);
            self.distance(machine, node, right)?;
        }
        Ok(())
    }

    /// The parts of a constant: the value's node, its unit and its source.
    fn parts<'n>(
        &self,
        name: &str,
        node: &'n Node<'t>,
        shape: &str,
    ) -> Result<(&'n Node<'t>, String, String), MachineError> {
        let line = self.line_of(node);
        let Some(table) = node.get_ref().as_table() else {
            return Err(self.error(
                line,
                format!("`{name}` is {}, without unit and source", describe(node.get_ref())),
                format!("`{name} = {shape}`"),
            ));
        };
        self.refuse_unknown(table, name, ["value", "unit", "source"].into_iter())?;
        let part = |part: &str| {
            table.get(part).ok_or_else(|| {
                self.error(line, format!("`{name}` has no {part}"), format!("`{name} = {shape}`"))
            })
        };
        let (value, unit, source) = (part("value")?, part("unit")?, part("source")?);
        let unit = self.text_of(unit, &format!("{name}.unit"), &format!("`{name} = {shape}`"))?;
        let right = "one line that says where the value is from, or `assumption: ...`";
        let source_text = self.text_of(source, &format!("{name}.source"), right)?;
        if source_text.len() > MOST_SOURCE {
            let wrong = format!("the source of `{name}` has {} bytes", source_text.len());
            return Err(self.error(self.line_of(source), wrong, format!("at most {MOST_SOURCE}")));
        }
        Ok((value, unit, source_text))
    }

    fn constant(&self, key: &Key, node: &Node<'t>) -> Result<Written, MachineError> {
        let unit = key.kind.natural_unit();
        let example = if key.kind == Kind::Bool { "true" } else { "100" };
        let shape = format!("{{ value = {example}, unit = \"{unit}\", source = \"where it is from\" }}");
        let (value, unit, source) = self.parts(key.name, node, &shape)?;
        let line = self.line_of(value);
        let value_text = match value.get_ref() {
            DeValue::Integer(n) if n.radix() == 10 => n.as_str().replace('_', ""),
            DeValue::Integer(n) => u128::from_str_radix(&n.as_str().replace('_', ""), n.radix())
                .map_err(|_| {
                    self.error(line, refusal_text(key, Refusal::TooLarge, &unit, "it"), key.range())
                })?
                .to_string(),
            DeValue::Float(n) => n.as_str().replace('_', ""),
            DeValue::Boolean(value) if key.kind == Kind::Bool => value.to_string(),
            other => {
                let shape = if key.kind == Kind::Bool { "" } else { "a number without quotes, " };
                return Err(self.error(
                    line,
                    format!("the value of `{}` is {}", key.name, describe(other)),
                    format!("{shape}{}", key.range()),
                ));
            }
        };
        Ok(Written { value_text, unit, source, line })
    }

    fn store(
        &self,
        machine: &mut Machine,
        at: usize,
        key: &Key,
        written: Written,
    ) -> Result<(), MachineError> {
        let Written { value_text, unit, source, line } = written;
        let note = Note { value_text, unit, source };
        put(machine, at, key, note).map_err(|(wrong, right)| self.error(line, wrong, right))
    }

    fn distance(&self, machine: &mut Machine, node: &Node<'t>, right: &str) -> Result<(), MachineError> {
        let shape = "{ value = [[10, 20], [20, 10]], unit = \"SLIT\", source = \"where it is from\" }";
        let (value, unit, source) = self.parts("distance", node, shape)?;
        if unit != "SLIT" {
            return Err(self.error(
                self.line_of(node),
                format!("the unit of `distance` is {}", quoted(&unit)),
                "`SLIT`, where 10 is local",
            ));
        }
        let row_error = |node: &Node<'t>| {
            let wrong = format!("{} in the distance matrix", describe(node.get_ref()));
            self.error(self.line_of(node), wrong, right)
        };
        let rows = value.get_ref().as_array().ok_or_else(|| row_error(value))?;
        let number = |node: &Node<'t>| match node.get_ref() {
            DeValue::Integer(n) => {
                u32::from_str_radix(&n.as_str().replace('_', ""), n.radix()).map_err(|_| row_error(node))
            }
            _ => Err(row_error(node)),
        };
        let row = |node: &Node<'t>| -> Result<Vec<u32>, MachineError> {
            node.get_ref().as_array().ok_or_else(|| row_error(node))?.iter().map(number).collect()
        };
        machine.distance = rows.iter().map(row).collect::<Result<_, _>>()?;
        machine.notes[0] = Note { value_text: machine.distance_text(), unit, source };
        Ok(())
    }

    /// Text that is not empty and stands in one line.
    fn text_of(&self, node: &Node<'t>, name: &str, right: &str) -> Result<String, MachineError> {
        let text = node.get_ref().as_str().ok_or_else(|| {
            self.error(self.line_of(node), format!("`{name}` is {}", describe(node.get_ref())), right)
        })?;
        if text.trim().is_empty() {
            return Err(self.error(self.line_of(node), format!("`{name}` is empty"), right));
        }
        if one_line(text, usize::MAX) != text {
            let wrong = format!("`{name}` has a line break or control character");
            return Err(self.error(self.line_of(node), wrong, right));
        }
        Ok(text.trim().to_owned())
    }

    /// Refuses the first key that is not one of `known`.
    fn refuse_unknown<'k>(
        &self,
        table: &DeTable<'t>,
        place: &str,
        known: impl Iterator<Item = &'k str> + Clone,
    ) -> Result<(), MachineError> {
        let Some(key) = table
            .keys()
            .filter(|key| !known.clone().any(|name| name == key.get_ref().as_ref()))
            .min_by_key(|key| key.span().start)
        else {
            return Ok(());
        };
        let text: &str = key.get_ref().as_ref();
        let place_text = match place {
            "" => String::new(),
            place if SECTIONS.contains(&place) => format!(" in [{place}]"),
            place => format!(" in `{place}`"),
        };
        let elsewhere = KEYS.iter().find(|key| key.name == text && key.section != place);
        let right = match (near(text, known.clone()), elsewhere) {
            (_, Some(key)) => format!("`{text}` stands in [{}]", key.section),
            (Some(names), None) => names,
            (None, None) => {
                let names: Vec<_> = known.map(|name| format!("`{name}`")).collect();
                format!("one of {}", names.join(", "))
            }
        };
        Err(self.error(
            self.line_at(key.span().start),
            format!("unknown key {}{place_text}", quoted(text)),
            right,
        ))
    }

    fn error(&self, line: usize, wrong: impl Into<String>, right: impl Into<String>) -> MachineError {
        MachineError::new(self.origin, Some(line), wrong, right)
    }

    fn line_of(&self, node: &Node<'t>) -> usize {
        self.line_at(node.span().start)
    }

    fn line_at(&self, at: usize) -> usize {
        let before = &self.text.as_bytes()[..at.min(self.text.len())];
        before.iter().filter(|&&b| b == b'\n').count() + 1
    }
}

/// Checks a constant against its kind and range and stores it with its note. On refusal: what was wrong, what
/// would be right.
pub(super) fn put(machine: &mut Machine, at: usize, key: &Key, note: Note) -> Result<(), (String, String)> {
    let refuse = |refusal: Refusal| {
        let right = match refusal {
            Refusal::Unit => key.kind.unit_names(),
            Refusal::NoClock => "`mhz` in [cpu], or a unit of time".to_owned(),
            _ => key.range(),
        };
        (refusal_text(key, refusal, &note.unit, &note.value_text), right)
    };
    let value = base_units(key.kind, &note.value_text, &note.unit, machine.hz).map_err(refuse)?;
    if value < key.least || value > key.most {
        let wrong =
            format!("`{}` of {} {}", key.name, one_line(&note.value_text, 60), one_line(&note.unit, 60));
        return Err((wrong, key.range()));
    }
    (key.put)(machine, value);
    machine.notes[at + 1] = note;
    Ok(())
}

fn refusal_text(key: &Key, refusal: Refusal, unit: &str, value: &str) -> String {
    let name = key.name;
    let value = quoted(value);
    match refusal {
        Refusal::NotABool => format!("`{name}`: {value} is no bool"),
        Refusal::NotANumber => format!("`{name}`: {value} is not a decimal number"),
        Refusal::Negative => format!("`{name}`: {value} is negative"),
        Refusal::NotFinite => format!("`{name}`: {value} is not finite"),
        Refusal::TooLarge => format!("`{name}`: {value} is absurdly large"),
        Refusal::TooFine => {
            format!("`{name}`: {value} {} is not a whole number of the smallest unit", one_line(unit, 60))
        }
        Refusal::Unit => format!("`{name}` has the unit {}", quoted(unit)),
        Refusal::NoClock => format!("`{name}` is in cycles, but the clock is not given"),
    }
}

/// What a TOML value is, as words.
fn describe(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) => format!("the string {}", quoted(text)),
        DeValue::Integer(n) => format!("the number {}", one_line(n.as_str(), 40)),
        DeValue::Float(n) => format!("the number {}", one_line(n.as_str(), 40)),
        DeValue::Boolean(value) => format!("the boolean {value}"),
        DeValue::Datetime(_) => "a date".to_owned(),
        DeValue::Array(_) => "an array".to_owned(),
        DeValue::Table(_) => "a table".to_owned(),
    }
}

fn section_list() -> String {
    SECTIONS.map(|section| format!("[{section}]")).join(" ")
}
