//! One figure of one policy: of a single run as it is, of several seeds as mean and spread.

use quietmm_sim::{Figure, Metric, Value};

/// A figure, and what it came to over the seeds.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// Which it is.
    pub figure: &'static Figure,
    /// The value, or the mean over the seeds.
    pub value: Value,
    /// The standard deviation over the seeds (of a sample: divided by n - 1), if there are several.
    pub spread: Option<f64>,
}

impl Sample {
    /// The value as a number.
    pub fn number(&self) -> f64 {
        self.value.number()
    }
}

/// The samples of all finished runs of one policy, in the order of the report.
pub fn samples(runs: &[&[Metric]]) -> Vec<Sample> {
    let Some(first) = runs.first() else { return Vec::new() };
    first.iter().map(|metric| over_seeds(metric, runs)).collect()
}

fn over_seeds(metric: &Metric, runs: &[&[Metric]]) -> Sample {
    let found = runs.iter().filter_map(|metrics| metrics.iter().find(|other| other.key == metric.key));
    let values: Vec<f64> = found.map(|other| other.value.number()).collect();
    let (value, spread) = match values.len() {
        0 | 1 => (metric.value, None),
        _ => {
            let (mean, spread) = mean_and_spread(&values);
            (Value::Real(mean), Some(spread))
        }
    };
    Sample { figure: metric.figure, value, spread }
}

/// Mean and standard deviation of a sample of at least two.
pub fn mean_and_spread(values: &[f64]) -> (f64, f64) {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|value| (value - mean) * (value - mean)).sum();
    (mean, (squares / (count - 1.0).max(1.0)).sqrt())
}

#[cfg(test)]
mod tests {
    use quietmm_sim::figures;

    use super::*;

    #[test]
    fn the_spread_is_that_of_a_sample() {
        assert_eq!(mean_and_spread(&[1.0, 3.0]), (2.0, 2.0_f64.sqrt()));
        assert_eq!(mean_and_spread(&[5.0, 5.0, 5.0]), (5.0, 0.0));
    }

    #[test]
    fn one_run_keeps_its_exact_value_and_several_have_mean_and_spread() {
        let (one, two) = ([figures::IPIS_SENT.int(u64::MAX)], [figures::IPIS_SENT.int(1)]);
        assert_eq!(samples(&[&one])[0].value, Value::Int(u64::MAX));
        assert!(samples(&[&one, &two])[0].spread.is_some());
    }
}
