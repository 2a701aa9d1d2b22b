//! By how much a figure is better than the baseline's: positive is better, whichever way the figure points.

use quietmm_sim::Better;

/// What stands in the brackets beside a figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Gain {
    /// Nothing: the figure is neither good nor bad, or there is nothing to compare it with.
    None,
    /// The baseline is zero and this is not: no percentage says anything.
    Undefined,
    /// Per cent; positive is better.
    Percent(f64),
}

impl Gain {
    /// The gain of `value` over `base`.
    pub fn of(better: Better, base: f64, value: f64) -> Gain {
        let difference = match better {
            Better::Less => base - value,
            Better::More => value - base,
            Better::Neither => return Gain::None,
        };
        if difference == 0.0 {
            Gain::Percent(0.0)
        } else if base == 0.0 {
            Gain::Undefined
        } else {
            Gain::Percent(100.0 * difference / base)
        }
    }

    /// Nine characters, brackets included: `( 24.40%)`.
    pub fn brackets(self) -> String {
        match self {
            Gain::None => " ".repeat(9),
            Gain::Undefined => "(      -)".to_string(),
            Gain::Percent(percent) => {
                let fitting = [2, 1, 0]
                    .map(|decimals| plain(percent, decimals))
                    .into_iter()
                    .find(|text| text.len() <= 6);
                let beyond = if percent < 0.0 { "<-9999" } else { ">99999" };
                format!("({:>6}%)", fitting.as_deref().unwrap_or(beyond))
            }
        }
    }
}

/// Fixed decimals, and no minus before a zero.
pub fn plain(value: f64, decimals: usize) -> String {
    let text = format!("{value:.decimals$}");
    match text.strip_prefix('-') {
        Some(rest) if rest.bytes().all(|byte| matches!(byte, b'0' | b'.')) => rest.to_string(),
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gain_is_positive_where_it_is_better() {
        assert_eq!(Gain::of(Better::Less, 160.0, 120.0), Gain::Percent(25.0));
        assert_eq!(Gain::of(Better::Less, 120.0, 180.0), Gain::Percent(-50.0));
        assert_eq!(Gain::of(Better::More, 10.0, 15.0), Gain::Percent(50.0));
        assert_eq!(Gain::of(Better::More, 10.0, 5.0), Gain::Percent(-50.0));
        assert_eq!(Gain::of(Better::Neither, 10.0, 5.0), Gain::None);
    }

    #[test]
    fn a_baseline_of_zero_gives_no_percentage() {
        assert_eq!(Gain::of(Better::Less, 0.0, 5.0), Gain::Undefined);
        assert_eq!(Gain::of(Better::Less, 0.0, 0.0), Gain::Percent(0.0));
    }

    #[test]
    fn brackets_are_as_published_and_always_nine_wide() {
        assert_eq!(Gain::Percent(0.0).brackets(), "(  0.00%)");
        assert_eq!(Gain::of(Better::Less, 159.62, 120.68).brackets(), "( 24.40%)");
        assert_eq!(Gain::Percent(-0.001).brackets(), "(  0.00%)");
        assert_eq!(Gain::Percent(-123.456).brackets(), "(-123.5%)");
        for percent in
            [0.004, 99.999, 100.0, -99.999, -1234.5, 12345.6, -99999.4, 1e9, -1e9, 99999.6, -9999.96]
        {
            assert_eq!(Gain::Percent(percent).brackets().len(), 9, "{percent}");
        }
        assert_eq!(Gain::None.brackets().len(), 9);
        assert_eq!(Gain::Undefined.brackets().len(), 9);
    }
}
