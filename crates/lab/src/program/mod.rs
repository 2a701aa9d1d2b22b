//! `quietmm boot --program`: a program of Linux on the machine that boots, its output and its exit code.
//!
//! [`words`] takes the command line apart, [`pack`] packs the files that the program will find, with what [`links`] finds that they
//! link to. The machine's lines are read here as they come: what the program writes is passed on at once.

mod links;
mod pack;
mod words;

use std::cell::RefCell;
use std::io::Write;
use std::sync::mpsc;
use std::time::{Duration, SystemTime};

use quietmm_emulator::{Accel, EMULATOR, End, Machine};
use serde_json::{Value as Json, json};

use crate::backend::metal::image;
use crate::cli::flags::BootArgs;
use crate::process::caller;
use crate::process::ending::{Ending, Failure};
use crate::process::interrupt;
use crate::process::output::Output;
use crate::study::named;

const CPUS: u32 = 8;
const MEMORY: u64 = 512;
const TIMEOUT: u64 = 600;
/// The disk's part for swap is so many times as large as the memory unless it is said; for what files have written there is as much as memory.
const SWAP: u64 = 3;
/// The exit code where a program failed after it asked for what is not there: the number of `ENOSYS`.
const NOT_THERE: u8 = 38;
/// Counts that are told: those of the core, and of the machine.
const COUNTS: [(&str, &str); 6] = [
    ("pgfault", "faults"),
    ("nr_tlb_remote_flush", "shootdowns"),
    ("ipis_sent", "IPIs"),
    ("pages_reclaimed", "pages reclaimed"),
    ("pswpout", "swapped out"),
    ("pswpin", "swapped in"),
];

/// What one boot said.
#[derive(Default)]
struct Said {
    output: Vec<u8>,
    errors: Vec<u8>,
    exit: Option<u8>,
    signal: Option<u8>,
    start: Option<String>,
    end: Option<(String, String)>,
    panic: Option<String>,
    counters: serde_json::Map<String, Json>,
    unknown: Vec<(String, String, u64)>,
}

/// Bytes as the machine writes them: a character for each.
fn bytes(text: &str) -> Vec<u8> {
    text.chars().map(|c| u8::try_from(u32::from(c)).unwrap_or(b'?')).collect()
}

impl Said {
    /// A line of the machine's.
    fn hear(&mut self, line: &str) {
        let Ok(Json::Object(object)) = serde_json::from_str::<Json>(line) else { return };
        let text = |key: &str| object.get(key).and_then(Json::as_str);
        let number = |key: &str| object.get(key).and_then(Json::as_u64);
        if let Some(out) = text("out") {
            self.output.extend(bytes(out));
        } else if let Some(err) = text("err") {
            self.errors.extend(bytes(err));
        } else if let Some(note) = text("note") {
            self.errors.extend(format!("{note}\n").bytes());
        } else if let Some(name) = text("unknown") {
            self.unknown.push((
                name.to_string(),
                text("by").unwrap_or_default().to_string(),
                number("count").unwrap_or(1),
            ));
        } else if let Some(start) = text("start") {
            self.start = Some(start.to_string());
        } else if let Some(panic) = text("panic") {
            self.panic.get_or_insert(panic.to_string());
        } else if let Some(end) = text("end").or_else(|| text("usage")) {
            self.end = Some((end.to_string(), text("why").unwrap_or_default().to_string()));
        } else if let Some(Json::Object(counters)) = object.get("counters") {
            self.counters.clone_from(counters);
        } else {
            let code = |key: &str| number(key).map(|code| code as u8);
            self.exit = self.exit.or(code("exit"));
            self.signal = self.signal.or(code("signal"));
        }
    }

    fn code(&self) -> u8 {
        let code = self.signal.map_or(self.exit.unwrap_or(1), |signal| 128 + signal);
        if code != 0 && !self.unknown.is_empty() { NOT_THERE } else { code }
    }

    fn json(&self, policy: &str) -> Json {
        let unknown: Vec<Json> = self
            .unknown
            .iter()
            .map(|(name, by, count)| json!({"call": name, "by": by, "count": count}))
            .collect();
        json!({
            "policy": policy, "exit": self.exit, "signal": self.signal,
            "output": String::from_utf8_lossy(&self.output), "errors": String::from_utf8_lossy(&self.errors),
            "counters": self.counters, "unknown": unknown,
        })
    }
}

/// Boots it, under each policy.
pub fn boot(args: &BootArgs, output: &mut Output) -> Result<Ending, Failure> {
    let wrong = |why: &str| Err(Failure::Input(why.to_string()));
    let words = args.program.as_deref().and_then(words::split);
    let Some(words) = words.filter(|words| !words.is_empty()) else {
        return wrong("--program: a name and its arguments; each quote must be closed");
    };
    let common = &args.common;
    if common.runs > 1 || common.csv || common.report.is_some() || common.explain {
        return wrong("--runs, --csv, --report and --explain: not with --program");
    }
    if common.work.threads.is_some() {
        return wrong("--threads: not with --program");
    }
    let broken = common.work.broken.as_deref().map(named::rule).transpose()?;
    let policies = args.policies.iter().map(|name| named::policy(name)).collect::<Result<Vec<_>, _>>()?;
    let image = image::find(args.metal.image.as_deref())?;
    let environment = [
        ("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin"),
        ("HOME", "/root"),
        ("LC_ALL", "C"),
        ("TERM", "dumb"),
    ];
    let archive = pack::pack(&words, &args.with, args.root.as_deref(), &environment)?;
    let mib = args.metal.memory.unwrap_or(MEMORY);
    if (archive.len() as u64) >> 20 >= mib / 2 {
        return Err(Failure::Input(format!(
            "--memory {mib}M: the files take {} MiB, and the machine keeps them in memory; give it twice that at least",
            (archive.len() >> 20) + 1
        )));
    }
    interrupt::listen();
    let swap = args.swap.unwrap_or(SWAP * mib);
    let machine = Machine {
        cpus: args.cpus.unwrap_or(CPUS),
        mib,
        accel: Accel::Threads,
        disk: Some((swap + mib) << 20),
    };
    let limit = Duration::from_secs(args.metal.timeout.unwrap_or(TIMEOUT));
    let mut runs: Vec<Said> = Vec::new();
    let mut ending = Ending::Good;
    for named::Named { name, policy } in &policies {
        let epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |time| time.as_secs());
        let mut words = format!(
            "program=archive policy={policy} epoch={epoch} calls={} swap={}",
            u8::from(args.calls),
            swap << 8
        );
        match mib {
            0..128 => words += &format!(" tasks=64 heap={}", (mib / 4).max(8)),
            // More memory is for more threads, files and processes, and of each the kernel keeps something: of a thread its stack, of which
            // all have an eighth.
            _ => words += &format!(" tasks={} heap={}", (2 * mib).clamp(256, 2048), (mib / 8).clamp(32, 512)),
        }
        if let Some(rule) = broken {
            words += &format!(" break={}", rule.name());
        }
        common.work.sets.iter().for_each(|(key, value)| words += &format!(" {key}={value}"));
        let passes = runs.is_empty() && !common.json;
        let said = run(&machine, &image, &words, &archive, limit, passes.then_some(&mut *output))?;
        let Some(said) = said else { return Ok(Ending::Interrupted) };
        if let Some(first) = runs.first()
            && (first.output != said.output || first.code() != said.code())
        {
            return Err(Failure::Run(format!(
                "{name}: another output or exit code than under {}",
                args.policies[0]
            )));
        }
        if !common.json {
            tell(name, &said);
        }
        ending = Ending::Program(said.code());
        runs.push(said);
    }
    if common.json {
        let all: Vec<Json> =
            policies.iter().zip(&runs).map(|(policy, said)| said.json(&policy.name)).collect();
        output.data(&format!("{:#}\n", Json::Array(all)))?;
    }
    Ok(ending)
}

/// What came of it, on standard error.
fn tell(policy: &str, said: &Said) {
    if caller::current().is_some() {
        return;
    }
    let how = match (said.exit, said.signal) {
        (_, Some(signal)) => format!("ended by signal {signal}"),
        (exit, None) => format!("exit {}", exit.unwrap_or(0)),
    };
    let count = |key: &str| said.counters.get(key).and_then(Json::as_u64).unwrap_or(0);
    let counts: Vec<String> = COUNTS.iter().map(|(key, name)| format!("{} {name}", count(key))).collect();
    eprintln!("{policy}: {how}; {}", counts.join(", "));
    for (name, by, count) in &said.unknown {
        let times = if *count == 1 { "once".to_string() } else { format!("{count} times") };
        eprintln!("not there: {name}, asked for {times} by {by}");
    }
}

/// One boot; `None` after Ctrl-C. What the program writes is passed on to `output`, if there is one.
fn run(
    machine: &Machine,
    image: &std::path::Path,
    words: &str,
    archive: &[u8],
    limit: Duration,
    output: Option<&mut Output>,
) -> Result<Option<Said>, Failure> {
    let quiet = output.is_none() || caller::current().is_some();
    let (sender, receiver) = mpsc::channel::<String>();
    // What has been heard, where it goes, how much of both kinds has gone, and what was in the way.
    let state = RefCell::new((Said::default(), output, [0; 2], None::<Failure>));
    let listen = || {
        let (said, output, passed, failed) = &mut *state.borrow_mut();
        receiver.try_iter().for_each(|line| said.hear(&line));
        if let Some(output) = output.as_deref_mut()
            && failed.is_none()
            && passed[0] < said.output.len()
        {
            *failed = output.bytes(&said.output[passed[0]..]).and_then(|()| output.flush()).err();
            passed[0] = said.output.len();
        }
        if !quiet && passed[1] < said.errors.len() {
            // Nobody may be listening.
            let _ = std::io::stderr().write_all(&said.errors[passed[1]..]);
            passed[1] = said.errors.len();
        }
        failed.is_some() || interrupt::requested()
    };
    let running = interrupt::hold();
    let heard = move |line: &str| sender.send(line.to_string()).is_ok();
    let outcome = machine.boot_with(image, words, Some(archive), limit, &listen, &heard);
    drop(running);
    let outcome = outcome.map_err(|error| Failure::Run(error.to_string()))?;
    listen();
    let (said, _, _, failed) = state.into_inner();
    if let Some(failed) = failed {
        return Err(failed);
    }
    if let Some(start) = &said.start {
        return Err(Failure::Input(start.clone()));
    }
    let why = |text: &str| Err(Failure::Run(text.to_string()));
    match (outcome.end, &said.end) {
        (End::Stopped, _) => Ok(None),
        (End::Well, Some((end, _))) if end == "well" => Ok(Some(said)),
        (End::Failed, Some((end, text))) if end == "refused" => Err(Failure::Input(text.clone())),
        (End::Failed, Some((_, text))) => why(&format!("the run failed: {text}")),
        (End::Usage, Some((text, _))) => Err(Failure::Input(text.clone())),
        (End::Late, _) => {
            why(&format!("the machine had not ended after {} s and was killed (--timeout)", limit.as_secs()))
        }
        (End::Panicked, _) => {
            why(&format!("the machine panicked: {}", said.panic.as_deref().unwrap_or("it does not say why")))
        }
        _ => why(&format!("{EMULATOR} ended without a word on how: {}", outcome.complained)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_failed_for_want_of_a_call_has_a_code_of_its_own() {
        let mut said = Said::default();
        said.hear(r#"{"out":"a\u00ff\n"}"#);
        said.hear("what is no line of the machine's");
        said.hear(r#"{"exit":1}"#);
        assert_eq!(said.output, b"a\xff\n");
        assert_eq!(said.code(), 1);
        said.hear(r#"{"unknown":"socket","by":"sort","count":2}"#);
        assert_eq!(said.code(), NOT_THERE);
        assert_eq!(Said { exit: Some(0), unknown: said.unknown, ..Said::default() }.code(), 0);
        assert_eq!(Said { signal: Some(11), ..Said::default() }.code(), 139);
    }
}
