//! The command under limits: whatever it is asked, it ends soon, in little memory, with an exit code of its own and at most
//! one line of complaint.

use std::process::{Command, ExitStatus, Stdio};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};
use std::{fmt, io};

/// Address space that it may have, in KiB: the simulated memory of a small machine, its bookkeeping, and room.
const ROOM_KIB: u64 = 6 << 20;
/// Faults of a file that are told, and the line that counts the others.
const MOST_FAULTS: usize = 21;

/// How long it may take before it counts as one that never ends. Hundreds of times what any of these commands needs, so that
/// nothing depends on how busy the host is.
const PATIENCE: Duration = Duration::from_secs(1800);

/// How it ended.
pub struct Ended {
    /// `None`: it did not, and was killed.
    pub status: Option<ExitStatus>,
    /// What it printed.
    pub stdout: Vec<u8>,
    /// What it complained of.
    pub stderr: Vec<u8>,
}

/// Runs a command under the limits, and waits no longer than `patience`.
pub fn limited(program: &str, args: &[String], patience: Duration) -> io::Result<Ended> {
    let mut child = Command::new("sh")
        .args(["-c", &format!("ulimit -v {ROOM_KIB} && exec \"$0\" \"$@\""), program])
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let drain = |pipe: Option<Box<dyn io::Read + Send>>| {
        thread::spawn(move || {
            let mut bytes = Vec::new();
            pipe.map(|mut pipe| pipe.read_to_end(&mut bytes));
            bytes
        })
    };
    let stdout = drain(child.stdout.take().map(|pipe| Box::new(pipe) as _));
    let stderr = drain(child.stderr.take().map(|pipe| Box::new(pipe) as _));
    let began = Instant::now();
    let status = loop {
        match child.try_wait()? {
            Some(status) => break Some(status),
            None if began.elapsed() > patience => {
                child.kill()?;
                child.wait()?;
                break None;
            }
            None => sleep(Duration::from_millis(2)),
        }
    };
    let bytes = |thread: thread::JoinHandle<Vec<u8>>| thread.join().unwrap_or_default();
    Ok(Ended { status, stdout: bytes(stdout), stderr: bytes(stderr) })
}

/// Runs `quietmm` under the limits. Returns its exit code, or what it did that it must never do.
pub fn behaves(args: &[String]) -> Result<i32, String> {
    let ended = limited(env!("CARGO_BIN_EXE_quietmm"), args, PATIENCE);
    ended.map_err(|error| error.to_string())?.judged()
}

impl Ended {
    /// The exit code, or what is wrong with how it ended.
    pub fn judged(&self) -> Result<i32, String> {
        let wrong = |what: &str| Err(format!("{what}: {self}"));
        let (Ok(stdout), Ok(stderr)) = (str::from_utf8(&self.stdout), str::from_utf8(&self.stderr)) else {
            return wrong("not UTF-8");
        };
        let acts = |c: char| c.is_control() && c != '\n';
        let code = match self.status.map(|status| status.code()) {
            None => return wrong("it did not end, or the host is very slow"),
            Some(None) => return wrong("a signal ended it"),
            Some(Some(code @ 0..=2)) => code,
            Some(Some(_)) => return wrong("a foreign exit code"),
        };
        if stderr.contains("panicked") || stdout.contains("panicked") {
            return wrong("a panic");
        }
        if stdout.contains(acts) || stderr.contains(acts) {
            return wrong("control characters");
        }
        let help = stderr.starts_with("What memory-management policies do")
            || stderr.starts_with("Import a recording of a real program");
        match code {
            0 if !stderr.is_empty() => wrong("a complaint, and yet success"),
            // Without a subcommand the help is what it has to say.
            2 if help => Ok(code),
            1 if stderr.lines().count() != 1 => wrong("not one line"),
            // A machine's file is refused with a line for each fault.
            2 if !(1..=MOST_FAULTS).contains(&stderr.lines().count()) => wrong("not one line"),
            1 | 2
                if stderr
                    .lines()
                    .any(|line| !line.starts_with("quietmm: ") || line.chars().count() > 1200) =>
            {
                wrong("not a line of its own")
            }
            2 if !stdout.is_empty() => wrong("output, and yet refused"),
            _ => Ok(code),
        }
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |bytes: &[u8]| String::from_utf8_lossy(&bytes[..bytes.len().min(2000)]).into_owned();
        write!(f, "{:?}, stdout {:?}, stderr {:?}", self.status, shown(&self.stdout), shown(&self.stderr))
    }
}
