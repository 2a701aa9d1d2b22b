//! A TOML text to a machine.
//!
//! The text is read as a tree with spans, not through `serde`: that would stop at the first fault, and a file of one's own
//! has several. Each complaint has its line, and numbers come as the text that was written.

use std::cell::RefCell;

use quietmm::Architecture;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::error::{Fault, MOST_FAULTS, MachineError, near, one_line, quoted};
use super::key::{self, KEYS, Key, Need, SECTIONS, SLOW, SWAP};
use super::quantity::{Kind, Refusal, base_units};
use super::{Machine, Note};

/// What a constant looks like, for messages.
const SHAPE: &str = "{ value = 100, unit = \"ns\", source = \"where it is from\" }";
const DISTANCE: &str = "`distance = { value = [[10, 20], [20, 10]], unit = \"SLIT\", source = \"...\" }`";

/// What stands at the top of a file besides the sections.
const HEAD: [&str; 5] = ["base", "name", "about", "year", "architecture"];

/// Longest source text, in bytes.
const MOST_SOURCE: usize = 2000;

impl Machine {
    /// Reads a machine from TOML. `origin` is the file's name, for messages. A file with `base = "uma-8"` gives only what
    /// differs from that shipped machine.
    ///
    /// # Errors
    /// All that is wrong, each with its line.
    pub fn parse(text: &str, origin: &str) -> Result<Machine, MachineError> {
        let reader = Reader { text, faults: RefCell::default() };
        let machine = reader.machine();
        match (reader.faults.into_inner(), machine) {
            (faults, Some(machine)) if faults.is_empty() => Ok(machine),
            (faults, _) => Err(MachineError::of(origin, faults)),
        }
    }
}

/// Reads on after a fault: what cannot be read is `None`, and its fault is noted.
struct Reader<'t> {
    text: &'t str,
    faults: RefCell<Vec<Fault>>,
}

type Node<'t> = Spanned<DeValue<'t>>;

impl<'t> Reader<'t> {
    fn machine(&self) -> Option<Machine> {
        let root = match DeTable::parse(self.text) {
            Ok(root) => root,
            Err(error) => {
                let line = self.line_at(error.span().map_or(0, |span| span.start));
                let right = format!("sections of `name = {SHAPE}`");
                return self.refuse(line, format!("not TOML: {}", error.message()), right);
            }
        };
        let root = root.get_ref();
        if root.is_empty() {
            let sections = SECTIONS.map(|section| format!("[{section}]")).join(" ");
            let right = format!("name, about, year and the sections {sections}, or name and base");
            return self.refuse(1, "nothing in it", right);
        }
        self.refuse_unknown(root, "", HEAD.into_iter().chain(SECTIONS));
        let (base, based) = (self.base(root), root.contains_key("base"));
        let mut machine = base.clone().unwrap_or_else(Machine::blank);
        let year = self.year(root, based);
        let about = match root.get("about") {
            None if based => Some(format!("{}, with other constants", machine.name)),
            _ => self.head_text(root, "about", "one line that says what machine this is"),
        };
        machine.name = self.name(root).unwrap_or_default();
        machine.about = about.unwrap_or_default();
        machine.year = year.unwrap_or(machine.year);
        if let Some(architecture) = self.architecture(root) {
            machine.architecture = architecture;
        }

        // Where each constant stands, for what is checked at the end; the distances first, as in the notes.
        let mut lines = vec![1; KEYS.len() + 1];
        for section in SECTIONS {
            // What is not there is missed only without a base, or in a section that the base does not have.
            let whole = !based || base.as_ref().is_some_and(|base| !key::has_section(base, section));
            self.section(root, section, whole, &mut machine, &mut lines);
        }
        if base.is_some() {
            machine.recount_cycles().err().and_then(|(wrong, right)| self.refuse::<()>(1, wrong, right));
        }
        // What is missing or out of range would only lead to complaints that follow from it.
        if self.faults.borrow().is_empty() {
            for conflict in key::check(&machine) {
                let line = lines[conflict.key.map_or(0, |at| at + 1)];
                self.refuse::<()>(line, conflict.wrong, conflict.right);
            }
        }
        Some(machine)
    }

    /// The machine that the file starts from, if it names one.
    fn base(&self, root: &DeTable<'t>) -> Option<Machine> {
        let node = root.get("base")?;
        let right = "a shipped machine, such as `base = \"uma-8\"`";
        let name = self.text_of(node, "base", right)?;
        Machine::builtin(&name).or_else(|| {
            let right = near(&name, Machine::builtin_names()).unwrap_or_else(|| right.to_owned());
            self.refuse(self.line_of(node), format!("no machine is called {}", quoted(&name)), right)
        })
    }

    fn name(&self, root: &DeTable<'t>) -> Option<String> {
        let right = "1 to 64 lower-case letters, digits, `-`, `_` and `.`, such as `name = \"uma-8\"`";
        let name = self.head_text(root, "name", right)?;
        let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'-' | b'_' | b'.');
        if name.len() > 64 || !name.bytes().all(plain) {
            let line = root.get("name").map_or(1, |node| self.line_of(node));
            return self.refuse(line, format!("the name {}", quoted(&name)), right);
        }
        Some(name)
    }

    fn architecture(&self, root: &DeTable<'t>) -> Option<Architecture> {
        let names = || Architecture::ALL.into_iter().map(Architecture::name);
        let node = root.get("architecture")?;
        let right =
            format!("one of {}", names().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", "));
        let name = self.text_of(node, "architecture", &right)?;
        Architecture::parse(&name).or_else(|| {
            let right = near(&name, names()).unwrap_or(right);
            self.refuse(self.line_of(node), format!("no architecture is called {}", quoted(&name)), right)
        })
    }

    fn head_text(&self, root: &DeTable<'t>, key: &str, right: &str) -> Option<String> {
        match root.get(key) {
            Some(node) => self.text_of(node, key, right),
            None => self.refuse(1, format!("no `{key}`"), right),
        }
    }

    fn year(&self, root: &DeTable<'t>, optional: bool) -> Option<u32> {
        let right = "a year from 1980 to 2100, such as `year = 2015`";
        let Some(node) = root.get("year") else {
            return if optional { None } else { self.refuse(1, "no `year`", right) };
        };
        let year = match node.get_ref() {
            DeValue::Integer(n) => u32::from_str_radix(n.as_str(), n.radix()).ok(),
            _ => None,
        };
        year.filter(|year| (1980..=2100).contains(year)).or_else(|| {
            self.refuse(self.line_of(node), format!("`year` is {}", describe(node.get_ref())), right)
        })
    }

    /// Reads all constants of a section. If it must be `whole`, what has no default must be there.
    fn section(
        &self,
        root: &DeTable<'t>,
        section: &str,
        whole: bool,
        machine: &mut Machine,
        lines: &mut [usize],
    ) -> Option<()> {
        let keys = || KEYS.iter().enumerate().filter(move |(_, key)| key.section == section);
        let must = |key: &Key| whole && matches!(key.need, Need::Required);
        let distance = section == "memory";
        let names = || keys().map(|(_, key)| key.name).chain(distance.then_some("distance"));
        let Some(node) = root.get(section) else {
            if [SWAP, SLOW].contains(&section) || !keys().any(|(_, key)| must(key)) {
                return None;
            }
            let names: Vec<_> = names().take(8).collect();
            let more = if names.len() == 8 { ", ..." } else { "" };
            let right = format!("[{section}] with {}{more}", names.join(", "));
            return self.refuse(1, format!("no section [{section}]"), right);
        };
        let line = self.line_of(node);
        let Some(table) = node.get_ref().as_table() else {
            let wrong = format!("`{section}` is {}", describe(node.get_ref()));
            return self.refuse(line, wrong, format!("a section [{section}]"));
        };
        self.refuse_unknown(table, section, names());
        for (at, key) in keys() {
            if let Some(node) = table.get(key.name) {
                lines[at + 1] = self.line_of(node);
                self.constant(machine, at, key, node);
            }
        }
        let missing: Vec<&Key> =
            keys().map(|(_, key)| key).filter(|key| must(key) && !table.contains_key(key.name)).collect();
        if let Some(first) = missing.first() {
            let names: Vec<String> = missing.iter().map(|key| format!("`{}`", key.name)).collect();
            let (name, unit, range) = (first.name, first.kind.natural_unit(), first.range());
            let right = format!("`{name} = {{ value = ..., unit = \"{unit}\", source = \"...\" }}`, {range}");
            self.refuse::<()>(line, format!("no {} in [{section}]", names.join(", ")), right);
        }
        match table.get("distance").filter(|_| distance) {
            Some(node) => {
                lines[0] = self.line_of(node);
                self.distance(machine, node)
            }
            None if distance && whole => {
                self.refuse(line, "no `distance` in [memory]", format!("{DISTANCE}, nodes x nodes"))
            }
            None => None,
        }
    }

    /// The parts of a constant: the value's node, its unit and its source.
    fn parts<'n>(
        &self,
        name: &str,
        node: &'n Node<'t>,
        shape: &str,
    ) -> Option<(&'n Node<'t>, String, String)> {
        let line = self.line_of(node);
        let shape = format!("`{name} = {shape}`");
        let Some(table) = node.get_ref().as_table() else {
            let wrong = format!("`{name}` is {}, without unit and source", describe(node.get_ref()));
            return self.refuse(line, wrong, shape);
        };
        self.refuse_unknown(table, name, ["value", "unit", "source"].into_iter())?;
        let part = |part: &str| match table.get(part) {
            Some(node) => Some(node),
            None => self.refuse(line, format!("`{name}` has no {part}"), &shape),
        };
        let (value, unit, source) = (part("value")?, part("unit")?, part("source")?);
        let unit = self.text_of(unit, &format!("{name}.unit"), &shape)?;
        let right = "one line that says where the value is from, or `assumption: ...`";
        let source_text = self.text_of(source, &format!("{name}.source"), right)?;
        if source_text.len() > MOST_SOURCE {
            let wrong = format!("the source of `{name}` has {} bytes", source_text.len());
            return self.refuse(self.line_of(source), wrong, format!("at most {MOST_SOURCE}"));
        }
        Some((value, unit, source_text))
    }

    fn constant(&self, machine: &mut Machine, at: usize, key: &Key, node: &Node<'t>) -> Option<()> {
        let unit = key.kind.natural_unit();
        let example = if key.kind == Kind::Bool { "true" } else { "100" };
        let shape = format!("{{ value = {example}, unit = \"{unit}\", source = \"where it is from\" }}");
        let (value, unit, source) = self.parts(key.name, node, &shape)?;
        let line = self.line_of(value);
        let value_text = match value.get_ref() {
            DeValue::Integer(n) if n.radix() == 10 => n.as_str().replace('_', ""),
            DeValue::Integer(n) => match u128::from_str_radix(&n.as_str().replace('_', ""), n.radix()) {
                Ok(value) => value.to_string(),
                Err(_) => {
                    let wrong = refusal_text(key, Refusal::TooLarge, &unit, "it");
                    return self.refuse(line, wrong, key.range());
                }
            },
            DeValue::Float(n) => n.as_str().replace('_', ""),
            DeValue::Boolean(value) if key.kind == Kind::Bool => value.to_string(),
            other => {
                let shape = if key.kind == Kind::Bool { "" } else { "a number without quotes, " };
                let wrong = format!("the value of `{}` is {}", key.name, describe(other));
                return self.refuse(line, wrong, format!("{shape}{}", key.range()));
            }
        };
        match put(machine, at, key, Note { value_text, unit, source }) {
            Ok(()) => Some(()),
            Err((wrong, right)) => self.refuse(line, wrong, right),
        }
    }

    fn distance(&self, machine: &mut Machine, node: &Node<'t>) -> Option<()> {
        let shape = "{ value = [[10, 20], [20, 10]], unit = \"SLIT\", source = \"where it is from\" }";
        let (value, unit, source) = self.parts("distance", node, shape)?;
        if unit != "SLIT" {
            let wrong = format!("the unit of `distance` is {}", quoted(&unit));
            return self.refuse(self.line_of(node), wrong, "`SLIT`, where 10 is local");
        }
        let number = |node: &Node<'t>| match node.get_ref() {
            DeValue::Integer(n) => u32::from_str_radix(&n.as_str().replace('_', ""), n.radix()).ok(),
            _ => None,
        };
        let mut rows = Vec::new();
        for row in value.get_ref().as_array().or_else(|| self.no_distance(value))? {
            let cells = row.get_ref().as_array().or_else(|| self.no_distance(row))?.iter();
            let cells = cells.map(|cell| number(cell).or_else(|| self.no_distance(cell)));
            rows.push(cells.collect::<Option<Vec<u32>>>()?);
        }
        machine.distance = rows;
        machine.notes[0] = Note { value_text: machine.distance_text(), unit, source };
        Some(())
    }

    fn no_distance<T>(&self, node: &Node<'t>) -> Option<T> {
        let wrong = format!("{} in the distance matrix", describe(node.get_ref()));
        self.refuse(self.line_of(node), wrong, DISTANCE)
    }

    /// Text that is not empty and stands in one line.
    fn text_of(&self, node: &Node<'t>, name: &str, right: &str) -> Option<String> {
        let line = self.line_of(node);
        match node.get_ref().as_str() {
            None => self.refuse(line, format!("`{name}` is {}", describe(node.get_ref())), right),
            Some(text) if text.trim().is_empty() => self.refuse(line, format!("`{name}` is empty"), right),
            Some(text) if one_line(text, usize::MAX) != text => {
                self.refuse(line, format!("`{name}` has a line break or control character"), right)
            }
            Some(text) => Some(text.trim().to_owned()),
        }
    }

    /// Refuses all keys that are not among `known`.
    fn refuse_unknown<'k>(
        &self,
        table: &DeTable<'t>,
        place: &str,
        known: impl Iterator<Item = &'k str> + Clone,
    ) -> Option<()> {
        let mut unknown: Vec<_> =
            table.keys().filter(|key| !known.clone().any(|name| name == key.get_ref().as_ref())).collect();
        unknown.sort_by_key(|key| key.span().start);
        let place_text = match place {
            "" => String::new(),
            place if SECTIONS.contains(&place) => format!(" in [{place}]"),
            place => format!(" in `{place}`"),
        };
        for key in &unknown {
            let text: &str = key.get_ref().as_ref();
            let elsewhere = KEYS.iter().find(|key| key.name == text && key.section != place);
            let right = || match (elsewhere, near(text, known.clone())) {
                (Some(key), _) => format!("`{text}` stands in [{}]", key.section),
                (None, Some(names)) => names,
                (None, None) => {
                    let names: Vec<_> = known.clone().map(|name| format!("`{name}`")).collect();
                    format!("one of {}", names.join(", "))
                }
            };
            // Names near thousands of wrong ones are of no use.
            let right = if self.faults.borrow().len() < MOST_FAULTS { right() } else { String::new() };
            let wrong = format!("unknown key {}{place_text}", quoted(text));
            self.refuse::<()>(self.line_at(key.span().start), wrong, right);
        }
        unknown.is_empty().then_some(())
    }

    /// Notes a fault.
    fn refuse<T>(&self, line: usize, wrong: impl Into<String>, right: impl Into<String>) -> Option<T> {
        let fault = Fault { line: Some(line), wrong: wrong.into(), right: right.into() };
        self.faults.borrow_mut().push(fault);
        None
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
    let (text, unit) = (&note.value_text, &note.unit);
    let value = base_units(key.kind, text, unit, machine.hz).map_err(|why| refused(key, why, text, unit))?;
    within(key, value, text, unit)?;
    (key.put)(machine, value);
    machine.notes[at + 1] = note;
    Ok(())
}

/// What was wrong with a value in a unit, and what would be right.
pub(super) fn refused(key: &Key, refusal: Refusal, value: &str, unit: &str) -> (String, String) {
    let right = match refusal {
        Refusal::Unit => key.kind.unit_names(),
        Refusal::NoClock => "`mhz` in [cpu], or a unit of time".to_owned(),
        _ => key.range(),
    };
    (refusal_text(key, refusal, unit, value), right)
}

/// Whether a value, which was written like this, is in the range of its constant.
pub(super) fn within(key: &Key, value: u64, text: &str, unit: &str) -> Result<(), (String, String)> {
    if value < key.least || value > key.most {
        let wrong = format!("`{}` of {} {}", key.name, one_line(text, 60), one_line(unit, 60));
        return Err((wrong, key.range()));
    }
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
