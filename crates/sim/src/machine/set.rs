//! Changes to a machine: one constant, the number of CPUs.

use quietmm::Architecture;

use super::error::{MachineError, near, one_line, quoted};
use super::key::{self, KEYS, Key};
use super::parse::put;
use super::quantity::{Kind, is_positive, split_number};
use super::{MAX_CPUS, Machine, Note};

/// The source of a constant that was changed.
const BY_USER: &str = "set for this run";

impl Machine {
    /// Changes one constant: `invlpg` or `cost.invlpg` to `120ns` or `120 ns`. Only what has no dimension, or its unit in
    /// its name, is taken without a unit: `lru_batch=7`, `mhz=933`. `memory` is short for `memory.size`.
    ///
    /// The same checks hold as in a file, after each change. Setting `cpus` is [`Machine::with_cpus`]; `nodes`
    /// can only become fewer, since a file alone knows distances. Setting `mhz` changes what is given in cycles. What
    /// several sections of the machine have needs the section's name. `architecture` is no
    /// constant, and can be set too.
    ///
    /// # Errors
    /// An unknown key (with the near names), a bad value. The machine is then unchanged.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), MachineError> {
        let text = key.trim();
        let origin = format!("--set {}={}", one_line(text, 60), one_line(value, 60));
        let error = |wrong: String, right: String| MachineError::new(&origin, None, wrong, right);
        if text == "architecture" {
            let named = Architecture::parse(value.trim()).ok_or_else(|| {
                let names = Architecture::ALL.map(|known| format!("`{}`", known.name())).join(", ");
                error(format!("no architecture is called {}", quoted(value)), format!("one of {names}"))
            })?;
            self.architecture = named;
            return Ok(());
        }
        let Some(at) = key::find(text) else {
            return Err(match text {
                "distance" | "memory.distance" => {
                    error("distances are a matrix".into(), "a machine file with its own `distance`".into())
                }
                "name" | "about" | "year" => {
                    error(format!("`{text}` is no constant"), "a machine file with its own".into())
                }
                _ => error(format!("unknown constant {}", quoted(text)), near_keys(text)),
            });
        };
        let key = &KEYS[at];
        if !key::has_section(self, key.section) {
            let (what, such) =
                if key.section == key::SWAP { ("swap devices", "ssd-8") } else { ("slow node", "cxl-16") };
            let wrong = format!("{} has no {what}", self.name);
            return Err(error(wrong, format!("a machine with a section [{}], such as {such}", key.section)));
        }
        // Without swap devices and a slow node the name says which it is; `memory` always does.
        let alike = key::namesakes(self, text);
        if alike.len() > 1 {
            let right = alike.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(" or ");
            return Err(error(format!("several constants are called {}", quoted(text)), right));
        }
        let (value_text, unit) = number_and_unit(key, value).map_err(|(wrong, right)| error(wrong, right))?;
        let note = Note { value_text, unit, source: BY_USER.to_owned() };

        let mut changed = self.clone();
        put(&mut changed, at, key, note).map_err(|(wrong, right)| error(wrong, right))?;
        match key.name {
            "cpus" => {
                let cpus = changed.cpus;
                changed = self.clone().spread(cpus, self.nodes.min(cpus));
            }
            "nodes" => {
                let nodes = changed.nodes;
                if nodes > self.nodes {
                    return Err(error(
                        format!("the distances of only {} nodes are known", self.nodes),
                        format!("1 to {} nodes, or a machine file with its own `distance`", self.nodes),
                    ));
                }
                changed = self.clone().spread(self.cpus, nodes);
            }
            "mhz" => changed.recount_cycles().map_err(|(wrong, right)| error(wrong, right))?,
            _ => {}
        }
        if let Some(conflict) = key::check(&changed).into_iter().next() {
            return Err(error(conflict.wrong, conflict.right));
        }
        *self = changed;
        Ok(())
    }

    /// The machine with another number of CPUs, spread over the nodes evenly. With fewer CPUs than nodes, the
    /// first `cpus` nodes are left, and all memory is theirs.
    ///
    /// # Errors
    /// 0 CPUs, more than [`MAX_CPUS`], or less memory than so many CPUs need.
    pub fn with_cpus(self, cpus: u32) -> Result<Machine, MachineError> {
        let origin = format!("{} with {cpus} CPUs", self.name);
        let error = |wrong: String, right: String| MachineError::new(&origin, None, wrong, right);
        if !(1..=MAX_CPUS).contains(&cpus) {
            return Err(error(format!("a machine of {cpus} CPUs"), format!("1 to {MAX_CPUS} CPUs")));
        }
        if cpus == self.cpus {
            return Ok(self);
        }
        let nodes = self.nodes.min(cpus);
        let machine = self.spread(cpus, nodes);
        match key::check(&machine).into_iter().next() {
            Some(conflict) => Err(error(conflict.wrong, conflict.right)),
            None => Ok(machine),
        }
    }

    /// Sets CPUs and nodes, which are not more than before, and keeps the notes true.
    fn spread(mut self, cpus: u32, nodes: u32) -> Machine {
        let changes = [("cpus", self.cpus, cpus), ("nodes", self.nodes, nodes)];
        for (name, _, new) in changes.into_iter().filter(|(_, old, new)| old != new) {
            if let Some(at) = key::find(name) {
                let note = &mut self.notes[at + 1];
                note.value_text = new.to_string();
                note.source = BY_USER.to_owned();
            }
        }
        self.cpus = cpus;
        if nodes < self.nodes {
            self.nodes = nodes;
            self.distance.truncate(nodes as usize);
            for row in &mut self.distance {
                row.truncate(nodes as usize);
            }
            self.notes[0].value_text = self.distance_text();
        }
        self
    }

    /// Works out again what is given in cycles, after the clock changed.
    pub(super) fn recount_cycles(&mut self) -> Result<(), (String, String)> {
        for (at, key) in KEYS.iter().enumerate() {
            if self.notes[at + 1].unit == "cycles" {
                let note = self.notes[at + 1].clone();
                put(self, at, key, note)?;
            }
        }
        Ok(())
    }
}

/// `120ns` as the number and the unit, which only what has no dimension, or its unit in its name, may leave out.
pub(super) fn number_and_unit(key: &Key, value: &str) -> Result<(String, String), (String, String)> {
    let (number, unit) = match key.kind {
        Kind::Bool => (value.trim().trim_end_matches("bool").trim(), ""),
        _ => split_number(value),
    };
    let number = number.replace('_', "");
    let unit = match (unit, key.bare_unit()) {
        ("", Some(unit)) => unit,
        ("", None) if is_positive(&number) => {
            let (name, number) = (key.name, one_line(&number, 60));
            let right = format!("`{name}={number}{}`; {}", key.kind.natural_unit(), key.kind.unit_names());
            return Err((format!("`{name}` of {number} has no unit"), right));
        }
        // Nothing is nothing in every unit, and what is no number is refused by whoever reads it.
        ("", None) => key.kind.natural_unit(),
        (unit, _) => unit,
    };
    Ok((number, unit.to_owned()))
}

/// The names most like `text`, or where to find all.
pub(super) fn near_keys(text: &str) -> String {
    let full: Vec<String> = KEYS.iter().map(Key::full_name).collect();
    let bare = text.rsplit('.').next().unwrap_or(text);
    // The right name in the wrong section.
    if let Some(at) = key::find(bare) {
        return format!("`{}`", full[at]);
    }
    near(bare, KEYS.iter().map(|key| key.name))
        .or_else(|| near(text, full.iter().map(String::as_str)))
        .unwrap_or_else(|| "a constant of the machine's file, such as `cost.invlpg`".to_owned())
}
