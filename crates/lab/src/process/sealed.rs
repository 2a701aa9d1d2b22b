//! Lines of files with a checksum at their end: whatever is changed in one is noticed, down to a digit.

use quietmm_workloads::trace::Checksum;

/// What stands before the checksum.
const SUM: &str = ",\"sum\":\"";

/// The line of a JSON object: with its checksum as the last key, and a line feed.
#[must_use]
pub fn sealed(json: &str) -> String {
    let all = json.strip_suffix('}').unwrap_or(json);
    format!("{all}{SUM}{:016x}\"}}\n", Checksum::of(&[all.as_bytes()]))
}

/// The text of such a line, with its line feed or without, if it is as it was written.
#[must_use]
pub fn opened(line: &[u8]) -> Option<&str> {
    let text = str::from_utf8(line).ok()?;
    let text = text.strip_suffix('\n').unwrap_or(text);
    let (all, sum) = text.rsplit_once(SUM)?;
    let sum = u64::from_str_radix(sum.strip_suffix("\"}")?, 16).ok()?;
    (sum == Checksum::of(&[all.as_bytes()])).then_some(text)
}

/// Whether it ends with a checksum, right or wrong.
#[must_use]
pub fn has_sum(text: &str) -> bool {
    text.contains(SUM)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_changed_in_a_line_is_noticed_wherever_it_is() {
        let line = sealed(r#"{"item":7,"what":"page 0x11fe of \"A\""}"#);
        assert_eq!(opened(line.as_bytes()), Some(line.trim_end()));
        assert_eq!(opened(line.trim_end().as_bytes()), Some(line.trim_end()));
        for nth in 0..line.trim_end().len() {
            let mut changed = line.clone().into_bytes();
            changed[nth] ^= 1;
            assert!(opened(&changed).is_none(), "{nth}");
            assert!(opened(&line.as_bytes()[..nth]).is_none(), "{nth}");
        }
    }
}
