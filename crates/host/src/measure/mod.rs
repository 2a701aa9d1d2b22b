//! What this machine takes for what a memory manager does, measured from user space in well under a minute: a machine
//! description for the simulator, each constant with its spread and how it was got. What user space cannot see is left to
//! the machine that the description is based on.

mod chase;
mod cpuid;
mod others;
mod pairs;
mod shootdown;
mod stats;
mod system;
mod topology;

use std::fmt;
use std::io;

use stats::Spread;

/// What the description is based on, for what can only be measured together with something else. Nanoseconds.
#[derive(Clone, Debug)]
pub struct Base {
    /// Its name.
    pub name: String,
    /// `cost.trap_enter` and `cost.trap_exit`.
    pub trap: f64,
    /// `cost.irq_enter`.
    pub irq_enter: f64,
    /// `cost.irq_exit`.
    pub irq_exit: f64,
    /// `cost.flush_all`.
    pub flush_all: f64,
    /// `cost.ipi_send`.
    pub ipi_send: f64,
    /// `cost.other_kernel_work_goes`, percent.
    pub goes: f64,
}

/// One constant.
#[derive(Clone, PartialEq, Debug)]
pub struct Constant {
    /// The section of the description.
    pub section: &'static str,
    /// Its name there.
    pub name: &'static str,
    /// Its value, as it stands in the description.
    pub value: String,
    /// Its unit.
    pub unit: &'static str,
    /// How it was got.
    pub source: String,
}

/// What was measured.
#[derive(Clone, Debug)]
pub struct Measured {
    /// What the host calls its processor.
    pub processor: String,
    /// The constants, by section.
    pub constants: Vec<Constant>,
    /// What could not be measured, and why.
    pub not: Vec<String>,
    /// What the base says.
    pub base: String,
    /// The whole cost of an `mprotect` of one page by how many CPUs had it in their TLBs, in nanoseconds.
    pub shootdowns: Vec<(usize, Spread)>,
    /// Nanoseconds between each pair of CPUs for one move of a cache line.
    pub pairs: Vec<(u16, u16, Spread)>,
    /// The whole of a page fault that reads, and of one that writes.
    pub faults: [Spread; 2],
    /// What part of the CPUs other programs had meanwhile, in percent, if it was too much.
    pub busy: Option<u32>,
}

/// Results as they come in.
#[derive(Default)]
struct Results {
    constants: Vec<Constant>,
    not: Vec<String>,
}

impl Results {
    fn count(
        &mut self,
        section: &'static str,
        name: &'static str,
        value: u64,
        unit: &'static str,
        how: &str,
    ) {
        self.constants.push(Constant {
            section,
            name,
            value: value.to_string(),
            unit,
            source: how.to_owned(),
        });
    }

    /// A time in nanoseconds, to the picosecond at most.
    fn time(&mut self, name: &'static str, ns: f64, how: String) {
        let value = format!("{:.3}", ns.max(0.0));
        let value = value.trim_end_matches('0').trim_end_matches('.').to_owned();
        self.constants.push(Constant { section: "cost", name, value, unit: "ns", source: how });
    }

    fn spread(&mut self, name: &'static str, spread: Spread, how: &str) {
        self.time(name, spread.median, format!("measured: {how}; {spread}"));
    }

    fn not(&mut self, what: &str, why: impl fmt::Display) {
        self.not.push(format!("{what}: {why}"));
    }
}

/// Linux's `rwsem_rspin_threshold` adds half a microsecond for each of up to 30 readers to 10; for a writer that runs it looks as long as that has the lock.
const LOCK_SPIN: f64 = 25_000.0;

/// Measures. Takes some seconds, and wants a machine with nothing else to do.
///
/// # Errors
/// The host does not let this process have memory, threads or a CPU of its choice.
pub fn measure(base: &Base) -> io::Result<Measured> {
    let online = topology::online();
    let Some(&first) = online.first() else { return Err(io::Error::other("no CPU is online")) };
    let before = topology::pin(first)?;
    let others = others::Others::begin();
    let mut results = Results::default();
    topology::describe(&mut results, &online);
    cpuid::tlb(&mut results);
    chase::all(&mut results)?;
    let syscall = system::calls(&mut results);
    let faults = system::faults(&mut results, base)?;
    let pairs = pairs::all(&mut results, &online)?;
    let line = stats::median_of(pairs.iter().map(|pair| pair.2.median));
    let switch = system::switches(&mut results, first, syscall)?;
    let shootdowns = shootdown::all(&mut results, base, &online, line)?;
    if let Some(wake) = system::wakes(&mut results, base, &online, switch)? {
        shootdown::idle(&mut results, &online, wake)?;
        results.time(
            "lock_spin",
            LOCK_SPIN,
            "assumption: as long as Linux looks at most whether readers leave an rwsem".into(),
        );
    }
    system::ticks(&mut results, base, first);
    topology::unpin(&before)?;
    Ok(Measured {
        processor: topology::processor(),
        constants: results.constants,
        not: results.not,
        base: base.name.clone(),
        shootdowns,
        pairs,
        faults,
        busy: others.too_much(online.len()),
    })
}

/// A constant of the base, for what was not measured: section, name, value, unit, source.
pub type OfBase = (String, String, String, String, String);

impl Measured {
    /// That the host was too busy to be measured, if it was.
    #[must_use]
    pub fn busy(&self) -> Option<String> {
        let say = |percent| {
            format!(
                "Other programs had {percent} % of the CPUs meanwhile: what is measured here is too slow, so measure again without them"
            )
        };
        self.busy.map(say)
    }

    /// The machine description: a whole TOML file that says what was measured, and has the rest from `others`, marked.
    #[must_use]
    pub fn to_toml(&self, name: &str, year: u32, others: &[OfBase]) -> String {
        let mut text = format!("# Measured by `quietmm machine measure` on {}.\n#\n", plain(&self.processor));
        if let Some(busy) = self.busy() {
            text.push_str(&format!("# {busy}.\n#\n"));
        }
        text.push_str(&format!("# What user space cannot measure is that of {}, and says so.\n", self.base));
        self.not.iter().for_each(|not| text.push_str(&format!("# - {}\n", plain(not))));
        text.push_str("#\n# An mprotect of one page that so many other CPUs have in their TLBs, whole:\n");
        for (targets, spread) in &self.shootdowns {
            text.push_str(&format!("#   {targets}: {spread}\n"));
        }
        let [read, write] = self.faults;
        text.push_str(&format!("# A page fault, whole: one that reads {read}; one that writes {write}\n"));
        text.push_str(&format!(
            "\nname = \"{name}\"\nabout = \"{}, as measured\"\nyear = {year}\n",
            quotable(&self.processor)
        ));
        let measured = |section: &str, name: &str| {
            self.constants.iter().any(|constant| constant.section == section && constant.name == name)
        };
        let others = others.iter().filter(|(section, name, ..)| !measured(section, name));
        let others: Vec<_> = others.collect();
        let mut sections: Vec<&str> = self.constants.iter().map(|constant| constant.section).collect();
        sections.extend(others.iter().map(|other| other.0.as_str()));
        let mut seen = Vec::new();
        sections.retain(|&section| {
            let new = !seen.contains(&section);
            seen.push(section);
            new
        });
        let line = |name: &str, value: &str, unit: &str, source: &str| {
            format!("{name} = {{ value = {value}, unit = \"{unit}\", source = \"{}\" }}\n", quotable(source))
        };
        for section in sections {
            text.push_str(&format!("\n[{section}]\n"));
            for constant in self.constants.iter().filter(|constant| constant.section == section) {
                text.push_str(&line(constant.name, &constant.value, constant.unit, &constant.source));
            }
            for (_, name, value, unit, source) in others.iter().filter(|other| other.0 == section) {
                text.push_str(&line(
                    name,
                    value,
                    unit,
                    &format!("not measured, from {}: {source}", self.base),
                ));
            }
        }
        text
    }
}

/// What may stand between quotes in TOML.
fn quotable(text: &str) -> String {
    plain(text).replace(['"', '\\'], "'")
}

fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_description_says_all_of_each_constant() {
        let mut results = Results::default();
        results.count("cpu", "cpus", 2, "CPUs", "the host says so");
        results.spread("syscall", Spread::of(&mut [70.0, 70.5, 71.0, 72.0, 72.5]), "getppid \"again\"");
        let measured = Measured {
            processor: "A \"CPU\"\n9000".into(),
            constants: results.constants,
            not: vec!["idle: busy".into()],
            base: "uma-8".into(),
            shootdowns: vec![(1, Spread::of(&mut [5.0]))],
            pairs: Vec::new(),
            faults: [Spread::default(); 2],
            busy: Some(37),
        };
        let other = |section: &str, name: &str| -> OfBase {
            (section.into(), name.into(), "3".into(), "ns".into(), "a book".into())
        };
        let others = [other("cost", "syscall"), other("cost", "pause"), other("device", "read_latency")];
        let text = measured.to_toml("mine", 2025, &others);
        assert!(text.contains("name = \"mine\"\nabout = \"A 'CPU' 9000, as measured\"\n"), "{text}");
        let rest = "pause = { value = 3, unit = \"ns\", source = \"not measured, from uma-8: a book\" }\n\n[device]\n";
        assert!(text.contains(rest), "{text}");
        assert_eq!(text.matches("syscall = ").count(), 1);
        assert!(text.contains("\n# Other programs had 37 % of the CPUs meanwhile"), "{text}");
        let quiet = Measured { busy: None, ..measured }.to_toml("mine", 2025, &others);
        assert!(!quiet.contains("Other programs"), "{quiet}");
        let line = "syscall = { value = 71, unit = \"ns\", source = \"measured: getppid 'again'; 71.0 ns (70.5 to 72.0)\" }";
        assert!(text.contains(line), "{text}");
    }
}
