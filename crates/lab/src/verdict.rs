//! One sentence for two policies: what the second gained, and what was published where it was.

use crate::gain::{self, Gain};
use crate::measure::{Column, Study};
use crate::published::Published;

/// CPUs that are idle for more than this share of the time are mentioned.
const MUCH_IDLE: f64 = 0.2;

/// The sentence, or nothing unless exactly two policies finished on sound rules.
pub fn verdict(study: &Study, columns: &[Column<'_>], published: Option<&Published>) -> Option<String> {
    let [base, other] = columns else { return None };
    if study.plan.broken.is_some() || study.interrupted() {
        return None;
    }
    let percent = |key: &str| {
        let (base, other) = (base.figure(key)?, other.figure(key)?);
        match Gain::of(base.better, base.number(), other.number()) {
            Gain::Percent(percent) => Some(percent),
            Gain::None | Gain::Undefined => None,
        }
    };
    let mut parts = Vec::new();
    for (key, name, better, worse) in [
        ("elapsed_s", "elapsed", "better", "worse"),
        ("system_s", "system time", "less", "more"),
        ("user_s", "user time", "less", "more"),
    ] {
        let Some(percent) = percent(key) else { continue };
        let beside = published.and_then(|published| published.gain(key));
        parts.push(format!(
            "{name} {}{}",
            worded(percent, better, worse),
            in_brackets(beside, better, worse)
        ));
    }
    let key = "ipis_per_reclaimed_page";
    if let (Some(before), Some(after)) = (base.figure(key), other.figure(key)) {
        let beside = published.map_or(String::new(), |published| {
            let (before, after) = published.per_page;
            format!(" (published, ticks included: {} -> {})", short(before), short(after))
        });
        let (before, after) = (before.number(), after.number());
        parts.push(format!("IPIs received per reclaimed page {} -> {}{beside}", short(before), short(after)));
    }
    // Where CPUs wait for a device, elapsed says little about what they do to each other.
    if let (Some(idle), Some(elapsed)) = (other.figure("idle_s"), other.figure("elapsed_s")) {
        let share = idle.number() / (elapsed.number() * f64::from(study.plan.machine.cpus));
        if share > MUCH_IDLE {
            parts.push(format!("CPUs idle {:.0}% of the time", 100.0 * share));
        }
    }
    parts.push(match study.harm_text() {
        none if none.is_empty() => "no stale access".to_string(),
        harm => harm.to_uppercase(),
    });
    Some(parts.join("; "))
}

fn short(value: f64) -> String {
    gain::plain(value, gain::decimals(value, 2))
}

fn worded(percent: f64, better: &str, worse: &str) -> String {
    let text = gain::plain(percent.abs(), 2);
    match text.as_str() {
        "0.00" => "the same".to_string(),
        _ => format!("{text}% {}", if percent > 0.0 { better } else { worse }),
    }
}

fn in_brackets(published: Option<f64>, better: &str, worse: &str) -> String {
    published.map_or(String::new(), |percent| format!(" (published: {})", worded(percent, better, worse)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_follow_the_sign() {
        assert_eq!(worded(24.396, "better", "worse"), "24.40% better");
        assert_eq!(worded(-5.0, "less", "more"), "5.00% more");
        assert_eq!(worded(0.001, "less", "more"), "the same");
    }
}
