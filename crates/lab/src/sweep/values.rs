//! The values of one `--vary`: a list, of which each part may be a range.

use quietmm_sim::machine::Amount;
use serde::{Deserialize, Serialize};

/// Values of one axis, and points of a grid, at most.
pub const MOST: u64 = 1_000_000;

/// One value. Numbers stay numbers; what has a unit, and names, are texts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Value {
    /// CPUs, seeds, and whatever else has no unit.
    Number(u64),
    /// Anything else, as the command line of `run` has it.
    Text(String),
}

impl std::fmt::Display for Value {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Value::Number(number) => number.fmt(f),
            Value::Text(text) => f.write_str(text),
        }
    }
}

/// How a range goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// By so much more.
    Plus(u64),
    /// By so many times as much.
    Times(u64),
}

/// How numbers of one kind are read and written.
pub trait Numbers {
    /// How a range goes on where nothing is said.
    fn usual(&self) -> Step;

    /// A value in its range.
    fn read(&self, text: &str) -> Result<Amount, String>;

    /// How much a step adds.
    fn step(&self, text: &str) -> Result<Amount, String>;

    /// As the command line has it.
    fn value(&self, amount: Amount) -> Value;
}

/// All values of a list of numbers and ranges.
pub fn numbers<N: Numbers>(list: &str, numbers: &N) -> Result<Vec<Value>, String> {
    let mut all = Vec::new();
    for part in list.split(',').map(str::trim) {
        let ends = part.split_once("..");
        let amounts = match ends {
            None => vec![numbers.read(part)?],
            Some((from, rest)) => range(part, from, rest, numbers)?,
        };
        all.extend(amounts.into_iter().map(|amount| numbers.value(amount)));
        if all.len() as u64 > MOST {
            return Err(format!("{} values; a grid has {MOST} points at most", all.len()));
        }
    }
    Ok(all)
}

/// `from..to`, `from..to:+step` or `from..to:xtimes`.
fn range<N: Numbers>(part: &str, from: &str, rest: &str, numbers: &N) -> Result<Vec<Amount>, String> {
    let (to, step) = rest.split_once(':').map_or((rest, None), |(to, step)| (to, Some(step.trim())));
    let (from, to) = (numbers.read(from.trim())?, numbers.read(to.trim())?);
    if from.cycles != to.cycles {
        return Err(format!("{part} goes from time to cycles; both ends in one of them"));
    }
    if from.count > to.count {
        return Err(format!("{part} goes down; the smaller end comes first"));
    }
    let step = match step {
        None => numbers.usual(),
        Some(step) => match (step.strip_prefix('+'), step.strip_prefix('x')) {
            (Some(more), _) => match numbers.step(more.trim())? {
                more if more.cycles != from.cycles => {
                    return Err(format!("{part} goes from time to cycles; the step in what the ends are in"));
                }
                more => Step::Plus(more.count),
            },
            (_, Some(times)) => {
                times.trim().parse().map(Step::Times).map_err(|_| {
                    format!("{part}: x{times} is no whole number of times; as in 1us..10ms:x10")
                })?
            }
            _ => {
                return Err(format!(
                    "{part}: a step is +SO MUCH or xTIMES, as in 0ns..1us:+250ns or 1..64:x4"
                ));
            }
        },
    };
    let counts = series(from.count, to.count, step).map_err(|why| format!("{part} {why}"))?;
    Ok(counts.into_iter().map(|count| Amount { count, ..from }).collect())
}

/// From one end to the other, both included.
fn series(from: u64, to: u64, step: Step) -> Result<Vec<u64>, String> {
    match step {
        Step::Plus(0) => return Err("never gets on with a step of nothing".to_string()),
        Step::Times(0 | 1) => return Err("never gets on; twice as much, x2, is the least".to_string()),
        Step::Times(_) if from == 0 && to > 0 => {
            return Err("never gets on: a multiple of nothing is nothing; begin above zero, or add with +"
                .to_string());
        }
        Step::Plus(more) if (to - from) / more >= MOST => {
            let count = u128::from((to - from) / more) + 1;
            return Err(format!("has {count} values; a grid has {MOST} points at most"));
        }
        _ => {}
    }
    let next = |&at: &u64| {
        let next = match step {
            Step::Plus(more) => at.checked_add(more),
            Step::Times(times) => at.checked_mul(times),
        };
        (at < to).then(|| next.unwrap_or(to).min(to))
    };
    Ok(std::iter::successors(Some(from), next).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers without units, to 1 << 40.
    struct Plain;

    impl Numbers for Plain {
        fn usual(&self) -> Step {
            Step::Times(2)
        }

        fn read(&self, text: &str) -> Result<Amount, String> {
            let count = text.parse().map_err(|_| format!("'{text}' is no number"))?;
            Ok(Amount { count, cycles: false })
        }

        fn step(&self, text: &str) -> Result<Amount, String> {
            self.read(text)
        }

        fn value(&self, amount: Amount) -> Value {
            Value::Number(amount.count)
        }
    }

    fn all(list: &str) -> Result<Vec<u64>, String> {
        let number = |value| match value {
            Value::Number(number) => number,
            Value::Text(_) => unreachable!("there are only numbers"),
        };
        numbers(list, &Plain).map(|all| all.into_iter().map(number).collect())
    }

    #[test]
    fn a_range_doubles_and_has_both_its_ends() {
        for (list, values) in [
            ("1,2,4..4096", &[1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096][..]),
            ("100..2000", &[100, 200, 400, 800, 1600, 2000]),
            ("7..7", &[7]),
            ("0..0", &[0]),
            ("1..100:x10", &[1, 10, 100]),
            ("1..50:x10", &[1, 10, 50]),
            ("0..10:+4, 20", &[0, 4, 8, 10, 20]),
            ("9..1:+1,3", &[]),
        ] {
            match all(list) {
                Ok(got) => assert_eq!(got, values, "{list}"),
                Err(wrong) => assert!(values.is_empty() && wrong.contains("goes down"), "{list}: {wrong}"),
            }
        }
        let last = u64::MAX;
        assert_eq!(all(&format!("{}..{last}", last - 1)), Ok(vec![last - 1, last]), "no overflow");
    }

    #[test]
    fn what_is_no_range_says_what_would_be() {
        for (list, why) in [
            ("0..8", "begin above zero"),
            ("1..8:x1", "x2, is the least"),
            ("1..8:+0", "a step of nothing"),
            ("1..8:2", "+SO MUCH or xTIMES"),
            ("1..8:xa", "no whole number of times"),
            ("1..", "no number"),
            ("1,,2", "no number"),
            ("", "no number"),
            ("1..1000000000:+1", "has 1000000000 values; a grid has 1000000 points"),
            ("1..600000:+1,1..600000:+1", "1200000 values; a grid"),
        ] {
            let wrong = all(list).unwrap_err();
            assert!(wrong.contains(why), "{list}: {wrong}");
        }
    }
}
