//! A bar beside a number.

const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];

/// `value` of `most` as a bar of at most `width` characters: an eighth of a character if it is not nothing.
pub fn bar(value: f64, most: f64, width: usize) -> String {
    if value <= 0.0 || most <= 0.0 || !most.is_finite() {
        return String::new();
    }
    let eighths = ((value / most).min(1.0) * width as f64 * 8.0).round().max(1.0) as usize;
    "█".repeat(eighths / 8) + EIGHTHS[eighths % 8]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_as_long_as_its_share_and_never_longer_than_its_place() {
        assert_eq!(bar(1.0, 1.0, 3), "███");
        assert_eq!(bar(0.5, 1.0, 3), "█▌");
        assert_eq!(bar(0.0001, 1.0, 3), "▏");
        assert_eq!(bar(7.0, 1.0, 3), "███");
        assert_eq!((bar(0.0, 1.0, 3), bar(1.0, 0.0, 3)), (String::new(), String::new()));
    }
}
