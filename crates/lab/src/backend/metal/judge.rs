//! What is to be thought of a boot, by how it ended and what it printed.

use std::time::Duration;

use quietmm_emulator::{EMULATOR, End, Outcome};

use super::lines::{Last, Printed};

/// More of a foreign text is not repeated, in characters.
const MOST_QUOTED: usize = 200;

/// What is to be thought of a boot.
#[derive(Debug, PartialEq, Eq)]
pub enum Verdict {
    Well,
    /// Ctrl-C.
    Stopped,
    /// What was asked for does not go on this machine.
    Refused(String),
    /// It did not go well: what one wants to see where a rule was broken.
    Wrong(String),
    /// It says nothing of the core, broken or not.
    Never(String),
}

/// Judges a boot that should have run this workload, under this policy, on so many CPUs.
pub fn judge(ran: &(&str, String, u64), limit: Duration, outcome: &Outcome, printed: &Printed) -> Verdict {
    let why = |text: &str| quoted(text).unwrap_or_else(|| "it does not say why".to_string());
    match (outcome.end, &printed.last) {
        (End::Stopped, _) => Verdict::Stopped,
        (End::Well, Some(Last::Well)) => match foreign(ran, printed) {
            None => Verdict::Well,
            Some(what) => Verdict::Never(what),
        },
        (End::Failed, Some(Last::Failed(text))) => Verdict::Wrong(format!("the run failed: {}", why(text))),
        (End::Failed, Some(Last::Refused(text))) => Verdict::Refused(why(text)),
        (End::Usage, Some(Last::Usage(text))) => {
            Verdict::Never(format!("the image does not know what was asked of it: {}", why(text)))
        }
        (End::Panicked, Some(Last::Panicked { text, cpu })) => {
            let cpu = cpu.map_or_else(String::new, |cpu| format!(" on CPU {cpu}"));
            Verdict::Wrong(format!("the machine panicked{cpu}: {}", why(text)))
        }
        (End::Late, _) => {
            let seconds = limit.as_secs();
            let said = saying(outcome, printed);
            Verdict::Wrong(format!(
                "the machine had not ended after {seconds} s and was killed (--timeout){said}"
            ))
        }
        (End::Other(code), _) => {
            let code = code.map_or_else(|| "by a signal".to_string(), |code| format!("with code {code}"));
            Verdict::Never(format!("{EMULATOR} ended {code}{}", saying(outcome, printed)))
        }
        (End::Well | End::Failed | End::Usage | End::Panicked, _) => Verdict::Never(format!(
            "the machine ended without a word on how; is this the image of this version?{}",
            saying(outcome, printed)
        )),
    }
}

/// What shows that something else ran than what was asked for.
fn foreign(asked: &(&str, String, u64), printed: &Printed) -> Option<String> {
    let Some(head) = &printed.head else { return Some("the image does not say what it ran".to_string()) };
    if (head.workload.as_str(), head.policy.as_str(), head.cpus) != (asked.0, asked.1.as_str(), asked.2) {
        let (workload, policy, cpus) = (&head.workload, &head.policy, head.cpus);
        return Some(format!(
            "the image ran {workload} with {policy} on {cpus} CPUs, which is not what was asked for"
        ));
    }
    printed.counters.is_empty().then(|| "the image printed no counters".to_string())
}

/// The emulator's complaint, or else the first line that makes no sense.
fn saying(outcome: &Outcome, printed: &Printed) -> String {
    let complaint = outcome.complained.lines().map(str::trim).find(|line| !line.is_empty());
    let strange = || printed.strange.as_deref().map(|line| format!("it printed '{line}'"));
    complaint
        .map(str::to_string)
        .or_else(strange)
        .and_then(|text| quoted(&text))
        .map_or_else(String::new, |text| format!(": {text}"))
}

/// A text of others, made fit for one line of a terminal; nothing if it is empty.
fn quoted(text: &str) -> Option<String> {
    let clean: String =
        text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(MOST_QUOTED).collect();
    Some(clean.trim().to_string()).filter(|text| !text.is_empty())
}
