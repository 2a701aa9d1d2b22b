//! This host: programs are recorded on it, and captures that were made elsewhere are imported.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufRead, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Subcommand};
use quietmm_host::import::{self, Form};
use quietmm_host::summary::{Calls, Summary};
use quietmm_workloads::trace::{AnyTrace, MAGIC};
use serde_json::{Map, Value, json};

use crate::backend::{recorded as traces, sim};
use crate::cost::{self, CostArgs};
use crate::process::ending::{Ending, Failure};
use crate::process::output::Output;
use crate::show::json;
use crate::trace::{ImportArgs, ShowArgs, load};

/// `quietmm record`
#[derive(Debug, Args)]
pub struct RecordArgs {
    /// The program and its arguments
    #[arg(
        value_name = "COMMAND",
        trailing_var_arg = true,
        required_unless_present = "pid",
        conflicts_with = "pid"
    )]
    command: Vec<OsString>,
    /// A process that runs, instead of a command
    #[arg(short, long, value_name = "PID", value_parser = clap::value_parser!(i32).range(1..), allow_negative_numbers = true)]
    pid: Option<i32>,
    /// For so many seconds at most
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=86_400), allow_negative_numbers = true)]
    seconds: Option<u64>,
    /// How: perf, ptrace or strace (default: the best that this host allows)
    #[arg(long, value_name = "METHOD", value_parser = ["perf", "ptrace", "strace"])]
    by: Option<String>,
    /// Where the recording goes (default: the program's name with .qtrace)
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// `quietmm machine`
#[derive(Debug, Subcommand)]
pub enum MachineCommand {
    /// Measure what this host takes, and print a machine file: quietmm machine measure > mine.toml
    Measure(MeasureArgs),
    /// What a measured rate of flush requests costs a machine, and where it goes
    Cost(CostArgs),
}

/// `quietmm machine measure`
#[derive(Debug, Args)]
pub struct MeasureArgs {
    /// The machine that has what user space cannot measure
    #[arg(long, value_name = "NAME|FILE", default_value = "modern-2x64")]
    base: String,
    /// What the machine is called
    #[arg(long, value_name = "NAME", default_value = "mine")]
    name: String,
}

/// Measures this host, or reckons.
pub fn machine(command: &MachineCommand, output: &mut Output) -> Result<Ending, Failure> {
    match command {
        MachineCommand::Measure(args) => measured(args, output),
        MachineCommand::Cost(args) => cost::cost(args, output),
    }
}

/// Measures this host.
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
fn measured(args: &MeasureArgs, output: &mut Output) -> Result<Ending, Failure> {
    use crate::process::ending::note;
    use quietmm_host::measure::{Base, OfBase, measure};

    let base = sim::load(&args.base)?;
    // Before some seconds go into what then has no name.
    let named = format!("name = {}\nbase = \"{}\"\n", json!(args.name), "uma-8");
    quietmm_sim::machine::Machine::parse(&named, "--name")
        .map_err(|error| Failure::Input(format!("--name: {error}")))?;
    let (cost, ns) = (&base.cost, |ps: u64| ps as f64 / 1e3);
    let measured = measure(&Base {
        name: base.name.clone(),
        trap: ns(cost.trap_enter + cost.trap_exit),
        irq_enter: ns(cost.irq_enter),
        irq_exit: ns(cost.irq_exit),
        flush_all: ns(cost.flush_all),
        ipi_send: ns(cost.ipi_send),
        goes: f64::from(cost.other_kernel_work_goes),
    });
    let measured =
        measured.map_err(|error| Failure::Run(format!("this host cannot be measured: {error}")))?;
    let others: Vec<OfBase> = base
        .constants()
        .into_iter()
        .filter_map(|constant| {
            let (section, name) = constant.key.split_once('.')?;
            Some((section.into(), name.into(), constant.value_text, constant.unit, constant.source))
        })
        .collect();
    let text = measured.to_toml(&args.name, base.year, &others);
    // What is printed must be what can be read: better to fail here than where it is used.
    quietmm_sim::machine::Machine::parse(&text, "what was measured")
        .map_err(|error| Failure::Run(format!("a bug of the measurement: {error}")))?;
    output.data(&text)?;
    // The file goes elsewhere.
    if let Some(busy) = measured.busy() {
        note(&busy);
    }
    Ok(Ending::Good)
}

/// Nothing is measured elsewhere.
#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
fn measured(_: &MeasureArgs, _: &mut Output) -> Result<Ending, Failure> {
    Err(Failure::Input("machines are measured on Linux on x86-64".into()))
}

/// Records a program.
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
pub fn record(args: &RecordArgs, output: &mut Output) -> Result<Ending, Failure> {
    use crate::process::interrupt;
    use quietmm_host::record::{Ended, Method, Options, RecordError, What, record};

    let what = args.pid.map_or_else(|| What::Command(args.command.clone()), What::Process);
    let name = match &what {
        What::Command(words) => {
            words.first().and_then(|word| Path::new(word).file_name()).map(OsString::from)
        }
        What::Process(process) => Some(OsString::from(process.to_string())),
    };
    let out = args.output.clone().unwrap_or_else(|| {
        let mut name = name.unwrap_or_else(|| "program".into());
        name.push(".qtrace");
        PathBuf::from(name)
    });
    let method = args.by.as_deref().and_then(|name| Method::ALL.into_iter().find(|m| m.name() == name));
    let at_most = args.seconds.map(Duration::from_secs);
    interrupt::listen();
    let recorded = record(&Options { what, method, at_most, out: out.clone() }, &interrupt::requested);
    let recorded = recorded.map_err(|error| match error {
        RecordError::Output(error) => Failure::Input(format!("{}: {error}", out.display())),
        RecordError::Io(error) => Failure::Run(format!("{}: {error}", out.display())),
        error => Failure::Input(error.to_string()),
    })?;
    let mut text = match read(&out)? {
        Some((bytes, _)) => parsed(&bytes, &out)?.to_string(),
        None => String::new(),
    };
    for missing in &recorded.missing {
        text.push_str(&format!("{missing}\n"));
    }
    for (count, what) in recorded.odd.of_a_recording().into_iter().filter(|&(count, _)| count > 0) {
        let times = if count == 1 { String::new() } else { format!(" ({count} times)") };
        text.push_str(&format!("{what}{times}\n"));
    }
    if recorded.lost > 0 {
        let were = if recorded.lost == 1 { "event was" } else { "events were" };
        text.push_str(&format!("{} {were} lost: the host was too busy to take them\n", recorded.lost));
    }
    match recorded.ended {
        Some(Ended::Code(0)) => {}
        Some(Ended::Code(code)) => text.push_str(&format!("the program ended with exit code {code}\n")),
        Some(Ended::Signal(signal)) => text.push_str(&format!("the program was ended by signal {signal}\n")),
        None => text.push_str("the program goes on\n"),
    }
    text.push_str(&format!("replay it: quietmm compare trace --trace {}\n", out.display()));
    output.text(&text)?;
    Ok(Ending::Good)
}

/// Nothing is recorded elsewhere.
#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
pub fn record(_: &RecordArgs, _: &mut Output) -> Result<Ending, Failure> {
    let wrong = "programs are recorded on Linux on x86-64; elsewhere `quietmm trace import` takes a capture";
    Err(Failure::Input(wrong.into()))
}

/// Imports a capture of threads and calls. Nothing if the input, which begins like this, is something else, such as lackey's.
pub fn import(args: &ImportArgs, head: &[u8], input: &mut dyn BufRead) -> Result<Option<String>, Failure> {
    let source = args.source();
    if let Some(what) = import::unfit(head) {
        return Err(Failure::Input(format!("{source}: {what}")));
    }
    let Some(form) = Form::of(head) else { return Ok(None) };
    let options = import::Options { source, program: args.program.clone(), command: args.command.clone() };
    let imported = import::import(input, form, &options, &args.output);
    let imported = imported.map_err(|error| match &error {
        import::ImportError::Write { error: why, .. } if is_full(why) => Failure::Run(error.to_string()),
        _ => Failure::Input(error.to_string()),
    })?;
    Ok(Some(format!("{}: {imported}\n", args.output.display())))
}

/// Whether something was in order, and the disk had no room for it.
pub fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
    )
}

/// What is in a recording of threads. Nothing if the trace is one of accesses.
pub fn show(args: &ShowArgs) -> Result<Option<String>, Failure> {
    if let Some(own) = args.trace.to_str().map(traces::own).transpose()?.flatten() {
        let shown = parsed(&own.recording(), &args.trace)?;
        return Ok(Some(if args.json { json::pretty(&to_json(&shown)) } else { shown.to_string() }));
    }
    let Some((bytes, true)) = read(&args.trace)? else { return Ok(None) };
    let shown = parsed(&bytes, &args.trace)?;
    Ok(Some(if args.json { json::pretty(&to_json(&shown)) } else { shown.to_string() }))
}

/// The same, for programs.
fn to_json(shown: &Summary) -> Value {
    let calls = |(name, calls): (&&str, &Calls)| {
        let Calls { count, pages, took, timed, median } = calls;
        (
            (*name).to_owned(),
            json!({ "count": count, "pages": pages, "timed": timed, "ns": took, "median_ns": median }),
        )
    };
    let [threads, idle, left, others] = shown.victims;
    json!({
        "program": shown.program,
        "command": shown.command,
        "method": shown.method,
        "bounded": shown.bounded,
        "cpus": shown.cpus,
        "threads": shown.threads,
        "most_alive": shown.most_alive,
        "spaces": shown.spaces,
        "events": shown.events,
        "lost": shown.lost,
        "duration_ns": shown.duration,
        "ran_ns": shown.ran,
        "faults": shown.faults,
        "write_faults": shown.write_faults,
        "calls": shown.calls.iter().map(calls).collect::<Map<_, _>>(),
        "overlapping_calls": shown.overlapping,
        "flushes_received": shown.received,
        "flushes_received_machine": shown.machine,
        "victims": { "threads": threads, "idle": idle, "left": left, "others": others },
        "file_bytes": shown.file_bytes,
    })
}

/// The bytes of a trace, and whether it is a recording of threads; nothing if it is no trace at all.
fn read(path: &Path) -> Result<Option<(Vec<u8>, bool)>, Failure> {
    // Opening a FIFO would wait for a writer.
    if !path.is_file() {
        return Ok(None);
    }
    let mut head = Vec::new();
    let opened = File::open(path).and_then(|file| file.take(10).read_to_end(&mut head));
    if opened.is_err() || !head.starts_with(&MAGIC) {
        return Ok(None);
    }
    let bytes = load(path).map_err(|error| Failure::Input(error.to_string()))?;
    let threads = matches!(head.get(8..10), Some([2, 0]));
    Ok(Some((bytes, threads)))
}

fn parsed(bytes: &[u8], path: &Path) -> Result<Summary, Failure> {
    match AnyTrace::parse(bytes) {
        Ok(AnyTrace::Operations(recording)) => Ok(Summary::of(&recording, bytes.len() as u64)),
        Ok(AnyTrace::Accesses(_)) => Err(Failure::Input(format!("{}: a trace of accesses", path.display()))),
        Err(error) => Err(Failure::Input(format!("{}: {error}", path.display()))),
    }
}
