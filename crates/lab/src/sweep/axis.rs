//! One direction of a grid: what is varied, and over which values.

use quietmm_sim::Policy;
use quietmm_sim::machine::{Amount, Measure};
use quietmm_sim::near::near;

use crate::backend::{recorded, sim};
use crate::cli::flags::RunArgs;
use crate::process::ending::Failure;
use crate::study::named;
use crate::sweep::values::{self, Numbers, Step, Value};

/// What `--vary` can name beside the constants of a machine.
const NAMES: [(&str, What); 9] = [
    ("workload", What::Workload),
    ("machine", What::Machine),
    ("policy", What::Policy),
    ("cpus", What::Cpus),
    ("threads", What::Threads),
    ("scale", What::Scale),
    ("parts", What::Parts),
    ("trace", What::Trace),
    ("seed", What::Seed),
];

/// What flags of other commands are called, and what is meant here.
const OTHERWISE: [(&str, &str); 5] = [
    ("policies", "policy"),
    ("machines", "machine"),
    ("workloads", "workload"),
    ("seeds", "seed"),
    ("runs", "seed"),
];

/// CPUs and threads, at most: what `--cpus` and `--threads` take.
const MOST_CPUS: u64 = 4096;

/// What is varied.
#[derive(Clone, Copy)]
pub enum What {
    Workload,
    Machine,
    Policy,
    Cpus,
    Threads,
    Scale,
    Parts,
    Trace,
    Seed,
    /// A constant of the machine, as by `--set`.
    Constant(Measure),
}

/// It, and its values.
pub struct Axis {
    /// As it was named.
    pub name: String,
    pub what: What,
    /// Each once.
    pub values: Vec<Value>,
}

impl Axis {
    /// From `NAME=VALUES`.
    pub fn parse(text: &str) -> Result<Axis, Failure> {
        let wrong = |why: String| Failure::Input(format!("--vary {text}: {why}"));
        let Some((name, list)) = text.split_once('=') else {
            return Err(wrong("must be NAME=VALUES, as cpus=1,2,4..64 or policy=linux,quiet".to_string()));
        };
        let name = name.trim();
        let what = What::named(name).map_err(wrong)?;
        if list.trim().is_empty() {
            return Err(wrong("no values; one at least, several with commas between them".to_string()));
        }
        Axis::of(name, what, what.values(list).map_err(wrong)?).map_err(wrong)
    }

    /// With these values, if each is there once.
    pub fn of(name: &str, what: What, values: Vec<Value>) -> Result<Axis, String> {
        let mut sorted: Vec<&Value> = values.iter().collect();
        sorted.sort_unstable();
        match sorted.windows(2).find(|two| two[0] == two[1]) {
            Some(two) => Err(format!("{} is there twice; once is enough", two[0])),
            None => Ok(Axis { name: name.to_string(), what, values }),
        }
    }
}

impl What {
    /// What is called so.
    pub fn named(name: &str) -> Result<What, String> {
        if let Some((_, what)) = NAMES.iter().find(|(known, _)| *known == name) {
            return Ok(*what);
        }
        if let Ok(measure) = Measure::of(name) {
            // All ways to name it are one: `cpus` has been found above.
            return Ok(if measure.full_name() == "cpu.cpus" { What::Cpus } else { What::Constant(measure) });
        }
        let names = NAMES.iter().map(|(name, _)| *name);
        let otherwise = OTHERWISE.iter().find(|(known, _)| *known == name);
        let near = otherwise
            .map_or_else(|| near(name, names.clone().chain(Measure::names())), |(_, meant)| vec![*meant]);
        let said = if near.is_empty() {
            let names = names.collect::<Vec<_>>().join(", ");
            format!("there are {names}, and the constants of a machine (quietmm list --machine NAME)")
        } else {
            format!("did you mean {}?", near.join(" or "))
        };
        Err(format!("nothing is called '{name}'; {said}"))
    }

    /// One name for all ways to say it.
    pub fn full_name(self) -> String {
        match self {
            What::Constant(measure) => measure.full_name(),
            What::Cpus => "cpu.cpus".to_string(),
            other => {
                NAMES.iter().find(|(_, what)| same(*what, other)).map_or("", |(name, _)| name).to_string()
            }
        }
    }

    fn values(self, list: &str) -> Result<Vec<Value>, String> {
        let numbers = |least, most, usual| values::numbers(list, &Whole { least, most, usual });
        let double = Step::Times(2);
        match self {
            What::Workload => names(list.split(','), |name| named::workload(name).map(|_| ())),
            What::Machine => names(list.split(','), |name| sim::load(name).map(|_| ())),
            What::Policy => names(list.split(','), |name| {
                Policy::parse(name).map(|_| ()).map_err(|error| Failure::Input(error.to_string()))
            }),
            What::Trace => {
                let all = traces(list);
                names(all.iter().map(String::as_str), |name| recorded::find(Some(name)).map(|_| ()))
            }
            What::Cpus | What::Threads => numbers(1, MOST_CPUS, double),
            What::Scale => numbers(1, u32::MAX.into(), double),
            What::Parts => numbers(0, u32::MAX.into(), double),
            What::Seed => numbers(0, u64::MAX, Step::Plus(1)),
            What::Constant(measure) if measure.is_ordered() => values::numbers(list, &measure),
            What::Constant(measure) => {
                let text = |part: &str| measure.read(part).map(|amount| Value::Text(measure.text(amount)));
                list.split(',').map(|part| text(part.trim())).collect()
            }
        }
    }

    /// Says on a command line of `run` that it has this value.
    pub fn put(self, args: &mut RunArgs, name: &str, value: &Value) {
        let text = || value.to_string();
        // What is in its range fits.
        let number = || match value {
            Value::Number(number) => u32::try_from(*number).ok(),
            Value::Text(_) => None,
        };
        let machine = &mut args.sim.machine;
        match self {
            What::Workload => args.workload = text(),
            What::Policy => args.policy = text(),
            What::Machine => machine.names = vec![text()],
            What::Trace => machine.trace = Some(text()),
            What::Cpus => machine.cpus = number(),
            What::Scale => machine.scale = number(),
            What::Parts => machine.parts = number(),
            What::Threads => args.common.work.threads = number(),
            What::Seed => {
                if let Value::Number(seed) = value {
                    args.common.work.seed = *seed;
                }
            }
            What::Constant(_) => args.common.work.sets.push((name.to_string(), text())),
        }
    }
}

fn same(a: What, b: What) -> bool {
    std::mem::discriminant(&a) == std::mem::discriminant(&b)
}

/// Names, each of which there is.
fn names<'a>(
    parts: impl Iterator<Item = &'a str>,
    check: impl Fn(&str) -> Result<(), Failure>,
) -> Result<Vec<Value>, String> {
    let one = |part: &str| match check(part) {
        Ok(()) => Ok(Value::Text(part.to_string())),
        Err(Failure::Faults(lines)) => Err(lines.join("; ")),
        Err(Failure::Input(why) | Failure::Run(why)) => Err(why),
        Err(other) => Err(format!("{other:?}")),
    };
    parts.map(|part| one(part.trim())).collect()
}

/// Traces, of which those of one's own have commas too: `sort,own:threads=2,pages=4,own:pages=8` are three.
fn traces(list: &str) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for part in list.split(',') {
        match all.last_mut().filter(|last| last.starts_with("own:") && !part.trim().starts_with("own:")) {
            Some(last) if part.contains('=') => last.extend([",", part]),
            _ => all.push(part.to_string()),
        }
    }
    all
}

/// Whole numbers without a unit.
struct Whole {
    least: u64,
    most: u64,
    usual: Step,
}

impl Numbers for Whole {
    fn usual(&self) -> Step {
        self.usual
    }

    fn read(&self, text: &str) -> Result<Amount, String> {
        let (least, most) = (self.least, self.most);
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let count = text.parse().ok().filter(|count| digits && (least..=most).contains(count));
        let count = count.ok_or_else(|| format!("'{text}' must be a whole number from {least} to {most}"))?;
        Ok(Amount { count, cycles: false })
    }

    fn step(&self, text: &str) -> Result<Amount, String> {
        Whole { least: 0, ..*self }.read(text)
    }

    fn value(&self, amount: Amount) -> Value {
        Value::Number(amount.count)
    }
}

impl Numbers for Measure {
    fn usual(&self) -> Step {
        Step::Times(2)
    }

    fn read(&self, text: &str) -> Result<Amount, String> {
        Measure::read(*self, text)
    }

    fn step(&self, text: &str) -> Result<Amount, String> {
        self.difference(text)
    }

    fn value(&self, amount: Amount) -> Value {
        let text = self.text(amount);
        text.parse().map_or(Value::Text(text), Value::Number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> String {
        match Axis::parse(text) {
            Ok(axis) => axis.values.iter().map(Value::to_string).collect::<Vec<_>>().join(" "),
            Err(Failure::Input(why)) => why,
            Err(other) => panic!("{other:?}"),
        }
    }

    #[test]
    fn each_kind_of_value_reads_as_the_flag_of_its_name() {
        for (text, values) in [
            ("cpus=1,2,4..4096", "1 2 4 8 16 32 64 128 256 512 1024 2048 4096"),
            ("cpu.cpus=2", "2"),
            ("policy=linux,linux+free=sweep", "linux linux+free=sweep"),
            ("ipi_send=100ns..2us", "100ns 200ns 400ns 800ns 1600ns 2us"),
            ("ipi_send=0ns..1us:+250ns", "0ns 250ns 500ns 750ns 1us"),
            ("cost.invlpg=100cycles..400cycles", "100cycles 200cycles 400cycles"),
            ("memory=1GiB..4GiB:+1GiB", "1GiB 2GiB 3GiB 4GiB"),
            ("time_slice=1us..3us:+500ns", "1us 1500ns 2us 2500ns 3us"),
            ("other_kernel_work_goes=0..100:+50", "0% 50% 100%"),
            ("lru_batch=1..14", "1 2 4 8 14"),
            ("seed=1..5", "1 2 3 4 5"),
            ("clean_write_walks=true,false", "true false"),
            ("workload = no-pressure, unmap-storm", "no-pressure unmap-storm"),
            ("machine=uma-8,vm-8", "uma-8 vm-8"),
            (
                "trace=sort,own:threads=2,pages=4,own:pages=8,sqlite",
                "sort own:threads=2,pages=4 own:pages=8 sqlite",
            ),
        ] {
            assert_eq!(shown(text), values, "{text}");
        }
        assert_eq!(Axis::parse("lru_batch=7").unwrap().values, [Value::Number(7)], "without a unit a number");
    }

    #[test]
    fn what_cannot_be_varied_says_what_can() {
        for (text, why) in [
            ("cpus", "must be NAME=VALUES"),
            ("cpus=", "no values"),
            ("cpus=0", "from 1 to 4096"),
            ("cpus=1..5000", "from 1 to 4096"),
            ("cpus=1,2,1", "1 is there twice"),
            ("ipi_send=1us,1000ns", "1us is there twice"),
            ("ipi_send=100..200", "has no unit"),
            ("ipi_send=100ns..200cycles", "from time to cycles"),
            ("ipi_send=1us..2h", "has the unit"),
            ("ipi_sned=1us", "did you mean ipi_send"),
            ("policies=linux", "did you mean policy"),
            ("xyzzy=1", "workload, machine, policy"),
            ("policy=linux,qiet", "qiet"),
            ("policy=linux,", "unknown policy ''"),
            ("workload=no-presure", "did you mean no-pressure"),
            ("machine=uma-9", "uma-8"),
            ("seed=-1", "whole number from 0"),
            ("clean_write_walks=1", "no bool"),
        ] {
            let said = shown(text);
            assert!(said.starts_with(&format!("--vary {text}: ")) && said.contains(why), "{text}: {said}");
        }
    }

    #[test]
    fn one_thing_has_one_full_name() {
        let full = |name: &str| What::named(name).map(What::full_name);
        assert_eq!(full("memory"), full("memory.size"));
        assert_eq!(full("cpus"), full("cpu.cpus"));
        assert_ne!(full("cpus"), full("threads"));
    }
}
