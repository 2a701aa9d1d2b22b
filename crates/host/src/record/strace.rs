//! Recording by the program strace, whose text is then imported.

use std::fs::File;
use std::io::{self, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::{Ended, Method, Missing, RecordError, Session, Told, What, child, perf, proc};
use crate::import;

/// Records by strace.
pub fn record(session: &Session<'_>) -> Result<Told, RecordError> {
    let text = session.options.out.with_extension(format!("{}.strace", std::process::id()));
    let told = run(session, &text);
    // Whether it was made or not.
    let _ = std::fs::remove_file(&text);
    told
}

fn run(session: &Session<'_>, text: &std::path::Path) -> Result<Told, RecordError> {
    let mut command = Command::new("strace");
    command.args(["-f", "-ttt", "-T", "-y", "-q", "-e", "trace=memory,process", "-o"]).arg(text);
    match &session.options.what {
        What::Command(words) => {
            // strace would say it in its own words, and nothing else would differ from a program that may not be traced.
            child::there(words)?;
            command.arg("--").args(words)
        }
        What::Process(process) => command.arg("-p").arg(process.to_string()).stdout(Stdio::null()),
    };
    let mut assembly = session.assembly(Method::Strace, false)?;
    if let What::Process(process) = session.options.what {
        // In strace's time.
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64;
        perf::begin(session, now, &proc::threads(process), &mut assembly)?;
    }
    let mut strace = command.spawn().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => {
            RecordError::lacks(Method::Strace, "strace is not installed", "sudo apt-get install strace")
        }
        _ => RecordError::Io(error),
    })?;
    let status = loop {
        if let Some(status) = strace.try_wait()? {
            break Some(status);
        }
        if session.is_over() {
            // Told to end, it lets a program go to which it came, and ends one that it began. If it is killed both go on; what it
            // has seen is written already, but for half a line. Before it has seen anything its program waits for it.
            let began = matches!(session.options.what, What::Command(_))
                && std::fs::metadata(text).is_ok_and(|text| text.len() > 0);
            let signal = if began { Signal::SIGKILL } else { Signal::SIGTERM };
            let _ = kill(Pid::from_raw(strace.id() as i32), signal);
            strace.wait()?;
            break None;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    };
    let input = File::open(text)
        .map_err(|error| RecordError::lacks(Method::Strace, format!("strace wrote nothing ({error})"), ""))?;
    let assembled = import::assemble(
        &mut BufReader::with_capacity(1 << 20, input),
        import::Form::Strace,
        &text.display().to_string(),
        assembly,
    );
    let assembled = match assembled {
        Ok(read) => read.assembled,
        Err(import::ImportError::Nothing { .. }) => {
            let what = "strace could not trace the program";
            return Err(RecordError::lacks(Method::Strace, what, "sudo sysctl kernel.yama.ptrace_scope=0"));
        }
        Err(error) => return Err(RecordError::Io(io::Error::other(error.to_string()))),
    };
    let ended = status.map(|status| match (status.code(), status.signal()) {
        (Some(code), _) => Ended::Code(code),
        (None, signal) => Ended::Signal(signal.unwrap_or(0)),
    });
    let missing = vec![
        Missing::new("page faults, CPUs and times on a CPU are not recorded: strace does not see them", ""),
        Missing::new("shootdowns are not recorded: strace does not see them", ""),
    ];
    Ok(Told { assembled, missing, faults: false, times: false, shootdowns: false, ended })
}
