//! One figure of one policy: of a single run as it is, of several seeds as mean and spread.

use quietmm_sim::{Better, Metric, Value};

use crate::gain;

/// What a metric is, and what it came to.
#[derive(Clone, Debug)]
pub struct Figure {
    /// The name in JSON.
    pub key: &'static str,
    /// The name in a table.
    pub label: &'static str,
    /// The unit, empty for a plain number.
    pub unit: &'static str,
    /// Which way is better.
    pub better: Better,
    /// What it means, in a sentence.
    pub about: &'static str,
    /// The value, or the mean over the seeds.
    pub value: Value,
    /// The standard deviation over the seeds (of a sample: divided by n - 1), if there are several.
    pub spread: Option<f64>,
}

impl Figure {
    /// The value as a number.
    pub fn number(&self) -> f64 {
        number(self.value)
    }

    /// How many decimals it takes to say anything: a row shows the most that any of its figures needs.
    pub fn decimals(&self) -> usize {
        match (self.value, self.spread) {
            (Value::Int(_), _) => 0,
            (Value::Real { value, decimals }, None) => gain::decimals(value, usize::from(decimals)),
            // Means of whole numbers: what is behind the point says something only about a few.
            (Value::Real { value, decimals: 0 }, Some(spread)) => {
                usize::from(value.abs() < 100.0 && spread > 0.0)
            }
            (Value::Real { value, decimals }, Some(_)) => gain::decimals(value, usize::from(decimals)),
        }
    }

    /// The value as a table shows it.
    pub fn shown(&self, decimals: usize) -> String {
        match (self.value, self.spread) {
            (Value::Int(value), None) => value.to_string(),
            (Value::Real { value, .. }, None) => gain::plain(value, decimals),
            (value, Some(spread)) => {
                format!("{} ±{}", gain::plain(number(value), decimals), gain::plain(spread, decimals))
            }
        }
    }
}

/// The figures of all finished runs of one policy, in the order of the report.
pub fn figures(runs: &[&[Metric]]) -> Vec<Figure> {
    let Some(first) = runs.first() else { return Vec::new() };
    first.iter().map(|metric| over_seeds(metric, runs)).collect()
}

fn over_seeds(metric: &Metric, runs: &[&[Metric]]) -> Figure {
    let values: Vec<f64> = runs
        .iter()
        .filter_map(|metrics| metrics.iter().find(|other| other.key == metric.key))
        .map(|other| number(other.value))
        .collect();
    let (value, spread) = match (values.len(), metric.value) {
        (0 | 1, value) => (value, None),
        (_, value) => {
            let (mean, spread) = mean_and_spread(&values);
            let decimals = match value {
                Value::Int(_) => 0,
                Value::Real { decimals, .. } => decimals,
            };
            (Value::Real { value: mean, decimals }, Some(spread))
        }
    };
    let Metric { key, label, unit, better, about, .. } = *metric;
    Figure { key, label, unit, better, about, value, spread }
}

/// Mean and standard deviation of a sample of at least two.
pub fn mean_and_spread(values: &[f64]) -> (f64, f64) {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|value| (value - mean) * (value - mean)).sum();
    (mean, (squares / (count - 1.0).max(1.0)).sqrt())
}

/// A value as a number.
pub fn number(value: Value) -> f64 {
    match value {
        Value::Int(value) => value as f64,
        Value::Real { value, .. } => value,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_spread_is_that_of_a_sample() {
        assert_eq!(mean_and_spread(&[1.0, 3.0]), (2.0, 2.0_f64.sqrt()));
        assert_eq!(mean_and_spread(&[5.0, 5.0, 5.0]), (5.0, 0.0));
    }

    #[test]
    fn one_run_shows_its_exact_value_and_several_show_mean_and_spread() {
        let figure = |value, spread| Figure {
            key: "k",
            label: "l",
            unit: "",
            better: Better::Less,
            about: "",
            value,
            spread,
        };
        let shown = |figure: Figure| figure.shown(figure.decimals());
        assert_eq!(shown(figure(Value::Int(u64::MAX), None)), u64::MAX.to_string());
        assert_eq!(shown(figure(Value::Real { value: 120.678, decimals: 2 }, None)), "120.68");
        assert_eq!(shown(figure(Value::Real { value: 120.678, decimals: 2 }, Some(0.123))), "120.68 ±0.12");
        assert_eq!(shown(figure(Value::Real { value: 0.00467, decimals: 2 }, None)), "0.00467");
        assert_eq!(shown(figure(Value::Real { value: 3.5, decimals: 0 }, Some(0.5))), "3.5 ±0.5");
    }
}
