//! Samples, and what they say together. Another program on the same CPU makes samples larger, never smaller, so the middle
//! of many short ones says more than the mean.

use std::fmt;
use std::time::Instant;

/// The middle of samples and their quartiles, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Spread {
    /// Half of the samples are smaller.
    pub median: f64,
    /// A quarter is.
    pub low: f64,
    /// Three quarters are.
    pub high: f64,
}

impl Spread {
    /// Of samples, in any order. None make zeros.
    pub fn of(samples: &mut [f64]) -> Spread {
        samples.sort_unstable_by(f64::total_cmp);
        let at =
            |part: usize| samples.get(((samples.len().max(1) - 1) * part + 2) / 4).copied().unwrap_or(0.0);
        Spread { median: at(2), low: at(1), high: at(3) }
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.1} ns ({:.1} to {:.1})", self.median, self.low, self.high)
    }
}

/// The middle one.
pub fn median_of(samples: impl Iterator<Item = f64>) -> f64 {
    Spread::of(&mut samples.collect::<Vec<_>>()).median
}

/// How long one of `times` steps takes that `work` does in a row, `rounds` times.
pub fn timed(rounds: usize, times: usize, mut work: impl FnMut(usize)) -> Spread {
    work(times);
    let mut samples: Vec<f64> = (0..rounds)
        .map(|_| {
            let begin = Instant::now();
            work(times);
            begin.elapsed().as_nanos() as f64 / times as f64
        })
        .collect();
    Spread::of(&mut samples)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quartiles_are_samples() {
        assert_eq!(Spread::of(&mut []), Spread::default());
        assert_eq!(Spread::of(&mut [3.0]), Spread { median: 3.0, low: 3.0, high: 3.0 });
        assert_eq!(Spread::of(&mut [5.0, 1.0, 4.0, 2.0, 3.0]), Spread { median: 3.0, low: 2.0, high: 4.0 });
    }
}
