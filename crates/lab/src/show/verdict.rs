//! What a comparison comes to, and why, in words: each policy against the first, what was published where it was, where the
//! tasks' time went, and whether anything was seen that must never be.

use quietmm_sim::{Figure, Policy, figures};

use crate::cli::flags::On;
use crate::show::beside;
use crate::show::cause::{Causes, IPIS};
use crate::show::gain::{self, Gain};
use crate::show::published::{self, Published};
use crate::show::text::never_short;
use crate::show::units::decimals;
use crate::study::result::{Column, Comparison};
use crate::study::sample::mean_and_spread;

/// CPUs that are idle for more than this share of the time are mentioned.
const MUCH_IDLE: f64 = 0.2;
/// A cause whose time changes by less than this, in per cent of the tasks' time before, explains nothing.
const NOTICEABLE: f64 = 1.0;
/// So many causes are named.
const CAUSES: usize = 3;

/// All of it, a sentence each.
pub fn verdict(of: &Comparison) -> Vec<String> {
    let columns = of.columns();
    let Some((base, others)) = columns.split_first() else { return vec!["nothing has finished".to_string()] };
    let mut said: Vec<String> = Vec::new();
    if of.place.on == On::Both {
        said.push(beside::verdict(&columns));
    } else {
        if never_short(of).is_some() {
            said.push("memory was never short: no policy of reclaim can make a difference".to_string());
        }
        // Without the first policy's runs nothing is the baseline.
        if base.policy == 0 {
            let published = |other: &Column<'_>| published::find(of).filter(|_| other.policy == 1);
            said.extend(others.iter().map(|other| against(of, base, other, published(other))));
        }
        said.extend(causes(base, others.is_empty()));
        let busiest = others.last().unwrap_or(base);
        said.extend(idle(of, busiest));
    }
    said.push(match (of.harm(), of.broken) {
        (none, None) if none.is_empty() => "no stale access".to_string(),
        (none, Some(rule)) if none.is_empty() => {
            format!("with {} broken nothing was seen of it", rule.name())
        }
        (harm, None) => harm.to_uppercase(),
        (harm, Some(rule)) => format!("with {} broken {harm}", rule.name()),
    });
    if of.interrupted {
        said.push(format!("only {} of {} runs finished", of.runs.len(), of.asked));
    }
    said
}

/// One policy against the first.
fn against(of: &Comparison, base: &Column<'_>, other: &Column<'_>, published: Option<&Published>) -> String {
    let name = other.name;
    if of.policies[base.policy].policy == of.policies[other.policy].policy {
        return format!("{name} is {}, by another name", base.name);
    }
    if same_in_everything(base, other) {
        let differ = difference(&of.policies[base.policy].policy, &of.policies[other.policy].policy);
        return format!(
            "{name}: the same in every figure as {}; they differ in {differ}, and none of that was in play",
            base.name
        );
    }
    let mut parts: Vec<String> = Vec::new();
    for (figure, what, better, worse) in [
        (&figures::ELAPSED, "elapsed", "better", "worse"),
        (&figures::INSTRUCTIONS, "instructions", "less", "more"),
        (&figures::SYSTEM, "system time", "less", "more"),
        (&figures::USER, "user time", "less", "more"),
    ] {
        let Some((percent, spread)) = change(base, other, figure) else { continue };
        let spread = spread.map_or(String::new(), |spread| format!(" ±{}", gain::plain(spread, 2)));
        let beside = published.and_then(|published| published.gain(figure.key));
        let beside =
            beside.map_or(String::new(), |gain| format!(" (published: {})", worded(gain, "", better, worse)));
        parts.push(format!("{what} {}{beside}", worded(percent, &spread, better, worse)));
    }
    let per_page = [base, other].map(|column| column.number(&figures::IPIS_PER_PAGE));
    if let [Some(before), Some(after)] = per_page
        && (before, after) != (0.0, 0.0)
    {
        let beside = published.map_or(String::new(), |published| {
            let (before, after) = published.per_page;
            format!(" (published, ticks included: {} -> {})", short(before), short(after))
        });
        let (before, after) = (short(before), short(after));
        parts.push(format!("IPIs received per reclaimed page {before} -> {after}{beside}"));
    }
    parts.extend(changed_most(base, other));
    format!("{name} against {}: {}", base.name, parts.join(", "))
}

/// The gain in per cent, and its spread over the seeds that both have.
fn change(base: &Column<'_>, other: &Column<'_>, figure: &Figure) -> Option<(f64, Option<f64>)> {
    let percent = |better, base, value| match Gain::of(better, base, value) {
        Gain::Percent(percent) => Some(percent),
        Gain::None | Gain::Undefined => None,
    };
    let (before, after) = (base.get(figure.key)?, other.get(figure.key)?);
    let whole = percent(before.figure.better, before.number(), after.number())?;
    let pairs = base.runs.iter().filter_map(|run| {
        let same = other.runs.iter().find(|other| other.seed == run.seed)?;
        let [before, after] = [run.metrics.get(figure.key)?, same.metrics.get(figure.key)?];
        percent(figure.better, before.number(), after.number())
    });
    let each: Vec<f64> = pairs.collect();
    Some((whole, (each.len() > 1).then(|| mean_and_spread(&each).1)))
}

/// What takes the most more or less time than with the first policy.
fn changed_most(base: &Column<'_>, other: &Column<'_>) -> Option<String> {
    let [before, after] = [base, other].map(accounts);
    let mean =
        |all: &[Causes], of: &dyn Fn(&Causes) -> f64| all.iter().map(of).sum::<f64>() / all.len() as f64;
    let whole = mean(&before, &|causes| causes.all);
    let time = |all: &[Causes], cause: &str| mean(all, &|causes| causes.time(cause));
    let points = |cause: &str| 100.0 * (time(&after, cause) - time(&before, cause)).abs() / whole;
    let names = || before.iter().chain(&after).flat_map(Causes::names);
    let most = names().max_by(|a, b| points(a).total_cmp(&points(b)))?;
    let [was, is] = [&before, &after].map(|all| told(all, most));
    (points(most) >= NOTICEABLE)
        .then(|| format!("what changed most is {most}: {was} of the tasks' time before, {is} after"))
}

/// What the tasks' time goes to with this policy.
fn causes(column: &Column<'_>, alone: bool) -> Option<String> {
    let all = accounts(column);
    let first = all.first().filter(|causes| causes.all > 0.0)?;
    let mut names: Vec<&str> = first.names().take(CAUSES).collect();
    if !names.contains(&IPIS) {
        names.push(IPIS);
    }
    let parts: Vec<String> = names.iter().map(|cause| format!("{cause} {}", told(&all, cause))).collect();
    let with = if alone { String::new() } else { format!(" with {}", column.name) };
    Some(format!("the tasks' time{with} goes to {}", parts.join(", ")))
}

/// Where CPUs wait for a device, elapsed says little about what they do to each other.
fn idle(of: &Comparison, column: &Column<'_>) -> Option<String> {
    let (idle, elapsed) = (column.number(&figures::IDLE)?, column.number(&figures::ELAPSED)?);
    let share = idle / (elapsed * f64::from(of.place.cpus));
    (share > MUCH_IDLE).then(|| format!("CPUs idle {:.0}% of the time", 100.0 * share))
}

fn accounts(column: &Column<'_>) -> Vec<Causes> {
    column.runs.iter().filter_map(|run| Causes::of(run)).collect()
}

/// Mean and spread of a cause's share, in per cent.
fn share(all: &[Causes], cause: &str) -> (f64, f64) {
    let shares: Vec<f64> = all.iter().map(|causes| causes.percent(cause)).collect();
    if shares.is_empty() { (0.0, 0.0) } else { mean_and_spread(&shares) }
}

/// The same in words.
fn told(all: &[Causes], cause: &str) -> String {
    let (mean, spread) = share(all, cause);
    let decimals = usize::from(mean < 10.0);
    let spread = if all.len() > 1 { format!(" ±{}", gain::plain(spread, decimals)) } else { String::new() };
    format!("{}{spread}%", gain::plain(mean, decimals))
}

fn same_in_everything(base: &Column<'_>, other: &Column<'_>) -> bool {
    let of = |column: &Column<'_>| -> Vec<(&str, f64)> {
        column.samples.iter().map(|sample| (sample.figure.key, sample.number())).collect()
    };
    of(base) == of(other)
}

/// The mechanisms in which two policies differ.
fn difference(a: &Policy, b: &Policy) -> String {
    let pairs = Policy::mechanisms().iter().zip(a.choices().into_iter().zip(b.choices()));
    let names: Vec<&str> = pairs.filter(|(_, (a, b))| a != b).map(|(mechanism, _)| mechanism.name).collect();
    names.join(", ")
}

fn short(value: f64) -> String {
    gain::plain(value, decimals(value, 2))
}

fn worded(percent: f64, spread: &str, better: &str, worse: &str) -> String {
    let text = gain::plain(percent.abs(), 2);
    match text.as_str() {
        "0.00" => "the same".to_string(),
        _ => format!("{text}{spread}% {}", if percent > 0.0 { better } else { worse }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_follow_the_sign() {
        assert_eq!(worded(24.396, "", "better", "worse"), "24.40% better");
        assert_eq!(worded(-5.0, " ±0.10", "less", "more"), "5.00 ±0.10% more");
        assert_eq!(worded(0.001, "", "less", "more"), "the same");
    }
}
