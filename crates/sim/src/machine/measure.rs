//! Values of one constant as whole numbers, for whoever goes from one value to another: `100ns` to `2us`.

use super::error::quoted;
use super::key::{self, KEYS, Key};
use super::parse::{refused, within};
use super::quantity::{Kind, base_units};
use super::set::{near_keys, number_and_unit};

/// What a constant measures.
#[derive(Clone, Copy)]
pub struct Measure(&'static Key);

/// A value of a constant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Amount {
    /// So many of the constant's smallest unit: picoseconds, bytes.
    pub count: u64,
    /// Of cycles instead, which are as long as a machine's clock says.
    pub cycles: bool,
}

impl Measure {
    /// Of the constant of this name, as [`Machine::set`](super::Machine::set) takes it.
    ///
    /// # Errors
    /// What is wrong with the name, and what would be right.
    pub fn of(name: &str) -> Result<Measure, String> {
        match key::find(name) {
            Some(at) => Ok(Measure(&KEYS[at])),
            None => Err(format!("unknown constant {}; {}", quoted(name), near_keys(name))),
        }
    }

    /// Names of all constants, without their sections.
    pub fn names() -> impl Iterator<Item = &'static str> {
        KEYS.iter().map(|key| key.name)
    }

    /// Section and name: the same for all ways to name one constant.
    #[must_use]
    pub fn full_name(self) -> String {
        self.0.full_name()
    }

    /// Whether its values have an order; those that are true or false have none.
    #[must_use]
    pub fn is_ordered(self) -> bool {
        self.0.kind != Kind::Bool
    }

    /// The unit of [`Amount::count`]; empty where there is none.
    #[must_use]
    pub fn smallest_unit(self) -> &'static str {
        match self.0.kind {
            Kind::Time => "ps",
            Kind::Count(_) | Kind::Bool => "",
            kind => kind.natural_unit(),
        }
    }

    /// Reads a value with its unit, which must be in the constant's range. How long cycles are is not asked.
    ///
    /// # Errors
    /// What is wrong with it, and what would be right.
    pub fn read(self, text: &str) -> Result<Amount, String> {
        let (amount, number, unit) = self.parse(text)?;
        if !amount.cycles {
            within(self.0, amount.count, &number, &unit).map_err(words)?;
        }
        Ok(amount)
    }

    /// Reads the difference of two values, which may be smaller than any.
    ///
    /// # Errors
    /// What is wrong with it, and what would be right.
    pub fn difference(self, text: &str) -> Result<Amount, String> {
        self.parse(text).map(|(amount, ..)| amount)
    }

    /// A value of any size, and what it was read from.
    fn parse(self, text: &str) -> Result<(Amount, String, String), String> {
        let key = self.0;
        let (number, unit) = number_and_unit(key, text).map_err(words)?;
        let cycles = key.kind == Kind::Time && unit == "cycles";
        // A clock of a terahertz has cycles of a picosecond: they are only counted here.
        let clock = cycles.then_some(1_000_000_000_000);
        let count = base_units(key.kind, &number, &unit, clock)
            .map_err(|refusal| words(refused(key, refusal, &number, &unit)))?;
        Ok((Amount { count, cycles }, number, unit))
    }

    /// A value as [`Machine::set`](super::Machine::set) takes it, in the largest unit that keeps it whole.
    #[must_use]
    pub fn text(self, amount: Amount) -> String {
        let Amount { count, cycles } = amount;
        match self.0.kind {
            _ if cycles => format!("{count}cycles"),
            Kind::Bool => (count != 0).to_string(),
            Kind::Count(_) => count.to_string(),
            Kind::Percent => format!("{count}%"),
            kind => kind.show(count).replace(' ', ""),
        }
    }
}

fn words((wrong, right): (String, String)) -> String {
    format!("{wrong}; {right}")
}

#[cfg(test)]
mod tests {
    use super::super::Machine;
    use super::*;

    #[test]
    fn a_value_is_the_same_whatever_its_unit_and_reads_back() {
        for (name, texts, shown) in [
            ("ipi_send", &["1us", "1000ns", "1_000 ns", "0.001ms"][..], "1us"),
            ("cost.ipi_send", &["2500ns", "2.5us"], "2500ns"),
            ("invlpg", &["200cycles", "200 cycles"], "200cycles"),
            ("memory", &["1GiB", "1024MiB"], "1GiB"),
            ("flush_ceiling", &["33", "33 pages"], "33"),
            ("other_kernel_work_goes", &["50", "50%"], "50%"),
            ("clean_write_walks", &["false", "no"], "false"),
            ("device.bandwidth", &["500MB/s", "0.5GB/s"], "500MB/s"),
            ("min_free_kib", &["2048", "2MiB"], "2MiB"),
        ] {
            let measure = Measure::of(name).unwrap();
            for text in texts {
                let amount = measure.read(text).unwrap();
                assert_eq!(measure.text(amount), shown, "{name} {text}");
                assert_eq!(measure.read(shown), Ok(amount));
                Machine::builtin("uma-8").unwrap().set(name, shown).unwrap();
            }
        }
    }

    #[test]
    fn what_a_constant_cannot_be_is_refused_as_by_set() {
        for (name, text, why) in [
            ("ipi_send", "5", "has no unit"),
            ("ipi_send", "5KiB", "has the unit"),
            ("ipi_send", "2000s", "0 ns to 1 s"),
            ("ipi_send", "fast", "not a decimal number"),
            ("tags", "0", "1 to 4096"),
            ("memory", "-1GiB", "negative"),
        ] {
            let wrong = Measure::of(name).unwrap().read(text).unwrap_err();
            let set = Machine::builtin("uma-8").unwrap().set(name, text).unwrap_err().to_string();
            assert!(wrong.contains(why) && set.ends_with(&wrong), "{wrong}\n{set}");
        }
        let wrong = Measure::of("ipi_sned").err().unwrap();
        assert!(wrong.contains("`ipi_send`"), "{wrong}");
    }
}
