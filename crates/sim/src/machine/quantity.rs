//! Exact decimals and units.
//!
//! A decimal number is multiplied by its unit's integer factor; what does not come out whole is refused, except for cycles,
//! which are rounded to the nearest picosecond.

use rust_decimal::Decimal;

/// What a constant measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Picoseconds.
    Time,
    /// Bytes.
    Size,
    /// KiB.
    Kib,
    /// Bytes a second.
    Bandwidth,
    /// Hundredths.
    Percent,
    /// Hertz.
    Frequency,
    /// Whether something holds: 1 or 0.
    Bool,
    /// A count of what the word names.
    Count(&'static str),
}

const TIME: &[(&str, u64)] = &[
    ("ps", 1),
    ("ns", 1_000),
    ("us", 1_000_000),
    ("\u{b5}s", 1_000_000),
    ("\u{3bc}s", 1_000_000),
    ("ms", 1_000_000_000),
    ("s", 1_000_000_000_000),
];
const SIZE: &[(&str, u64)] =
    &[("B", 1), ("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30), ("TiB", 1 << 40)];
const KIB: &[(&str, u64)] = &[("KiB", 1), ("MiB", 1 << 10), ("GiB", 1 << 20)];
const BANDWIDTH: &[(&str, u64)] = &[
    ("B/s", 1),
    ("KB/s", 1_000),
    ("MB/s", 1_000_000),
    ("GB/s", 1_000_000_000),
    ("KiB/s", 1 << 10),
    ("MiB/s", 1 << 20),
    ("GiB/s", 1 << 30),
];
const PERCENT: &[(&str, u64)] = &[("percent", 1), ("%", 1)];
const FREQUENCY: &[(&str, u64)] = &[("Hz", 1), ("kHz", 1_000), ("MHz", 1_000_000), ("GHz", 1_000_000_000)];

impl Kind {
    fn units(self) -> &'static [(&'static str, u64)] {
        match self {
            Kind::Time => TIME,
            Kind::Size => SIZE,
            Kind::Kib => KIB,
            Kind::Bandwidth => BANDWIDTH,
            Kind::Percent => PERCENT,
            Kind::Frequency => FREQUENCY,
            Kind::Bool => &[("bool", 1)],
            Kind::Count(_) => &[],
        }
    }

    /// The units that fit, as words for a message.
    pub(super) fn unit_names(self) -> String {
        match self {
            Kind::Count(word) => word.to_owned(),
            Kind::Time => "ps, ns, us, ms, s, or cycles where [cpu] mhz is given".to_owned(),
            other => other.units().iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", "),
        }
    }

    /// The unit that messages use for an example.
    pub(super) fn natural_unit(self) -> &'static str {
        match self {
            Kind::Time => "ns",
            Kind::Size => "B",
            Kind::Kib => "KiB",
            Kind::Bandwidth => "B/s",
            Kind::Percent => "percent",
            Kind::Frequency => "Hz",
            Kind::Bool => "bool",
            Kind::Count(word) => word,
        }
    }

    /// A value in base units, in the largest unit that keeps it whole: for messages.
    pub(super) fn show(self, value: u64) -> String {
        match self {
            Kind::Count(word) => format!("{value} {word}"),
            Kind::Percent => format!("{value} percent"),
            _ => {
                let whole = |&&(name, factor): &&(&str, u64)| name.is_ascii() && value.is_multiple_of(factor);
                let natural = (self.natural_unit(), 1);
                let (name, factor) = match value {
                    0 => natural,
                    _ => self
                        .units()
                        .iter()
                        .filter(whole)
                        .max_by_key(|unit| unit.1)
                        .copied()
                        .unwrap_or(natural),
                };
                format!("{} {name}", value / factor)
            }
        }
    }
}

/// Why a quantity was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// Not a decimal number.
    NotANumber,
    /// Neither `true` nor `false`, nor `yes` or `no`.
    NotABool,
    /// Below zero.
    Negative,
    /// `nan` or `inf`.
    NotFinite,
    /// More than any constant may be.
    TooLarge,
    /// Not a whole number of base units.
    TooFine,
    /// A unit of another kind, or no unit at all.
    Unit,
    /// In cycles, without a clock.
    NoClock,
}

/// A decimal number that is not negative, exactly.
fn decimal(text: &str) -> Result<Decimal, Refusal> {
    let text = text.trim();
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (text, None),
    };
    let bare = mantissa.strip_prefix(['+', '-']).unwrap_or(mantissa);
    if exponent.is_none() && matches!(bare, "inf" | "nan" | "infinity" | "NaN") {
        return Err(Refusal::NotFinite);
    }
    let digits = bare.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'.' | b'_'));
    if !digits || !bare.bytes().any(|b| b.is_ascii_digit()) || bare.matches('.').count() > 1 {
        return Err(Refusal::NotANumber);
    }
    let small = bare.bytes().take_while(|&b| b != b'.').all(|b| matches!(b, b'0' | b'_'));
    let beyond = |small: bool| if small { Refusal::TooFine } else { Refusal::TooLarge };
    let number = Decimal::from_str_exact(&bare.replace('_', "")).map_err(|_| beyond(small))?;
    let number = match exponent {
        None => number,
        Some(exponent) => {
            let digits = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
            if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
                return Err(Refusal::NotANumber);
            }
            let scaled = Decimal::from_scientific(&format!("{number}e{exponent}"));
            scaled.map_err(|_| beyond(exponent.starts_with('-')))?
        }
    };
    if mantissa.starts_with('-') && !number.is_zero() {
        return Err(Refusal::Negative);
    }
    Ok(number.normalize())
}

/// Whether it is a number above zero.
pub(super) fn is_positive(text: &str) -> bool {
    decimal(text).is_ok_and(|number| !number.is_zero())
}

/// `text` in `unit`, as a whole number of the kind's base units.
pub(super) fn base_units(kind: Kind, text: &str, unit: &str, hz: Option<u64>) -> Result<u64, Refusal> {
    if kind == Kind::Bool {
        return match (text, unit) {
            ("true" | "yes", "bool") => Ok(1),
            ("false" | "no", "bool") => Ok(0),
            (_, "bool") => Err(Refusal::NotABool),
            _ => Err(Refusal::Unit),
        };
    }
    let number = decimal(text)?;
    // Not negative, and 28 decimals at most.
    let (digits, scale) = (number.mantissa().unsigned_abs(), 10_u128.pow(number.scale()));
    let times = |a: u128, b: u128| a.checked_mul(b).ok_or(Refusal::TooLarge);
    if kind == Kind::Time && unit == "cycles" {
        let hz = u128::from(hz.filter(|&hz| hz != 0).ok_or(Refusal::NoClock)?);
        let (parts, whole) = (times(digits, 1_000_000_000_000)?, times(hz, scale)?);
        let rounded = parts / whole + u128::from(parts % whole >= whole.div_ceil(2));
        return u64::try_from(rounded).map_err(|_| Refusal::TooLarge);
    }
    let factor = match kind {
        Kind::Count(word) if unit == word => 1,
        _ => kind.units().iter().find(|(name, _)| *name == unit).ok_or(Refusal::Unit)?.1,
    };
    let parts = times(digits, factor.into())?;
    if !parts.is_multiple_of(scale) {
        return Err(Refusal::TooFine);
    }
    u64::try_from(parts / scale).map_err(|_| Refusal::TooLarge)
}

/// Splits `120ns`, `120 ns` or `120` into the number and the unit, which may be empty.
pub(super) fn split_number(text: &str) -> (&str, &str) {
    let text = text.trim();
    let bytes = text.as_bytes();
    let mut end = 0;
    while end < bytes.len() {
        let b = bytes[end];
        let sign = matches!(b, b'+' | b'-') && (end == 0 || matches!(bytes[end - 1], b'e' | b'E'));
        let exponent = matches!(b, b'e' | b'E')
            && end > 0
            && matches!(bytes.get(end + 1), Some(b'0'..=b'9' | b'+' | b'-'));
        if !(b.is_ascii_digit() || matches!(b, b'.' | b'_') || sign || exponent) {
            break;
        }
        end += 1;
    }
    if end == 0 {
        // No digits: the whole is the number, so that `nan` and `fast` are refused as numbers.
        return (text, "");
    }
    (&text[..end], text[end..].trim())
}
