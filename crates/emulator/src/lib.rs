//! Boots the bare-metal image in QEMU, from a host: a fresh machine for each run, under a time limit. What it printed and
//! how it ended come back; nothing stays behind, neither a process nor a file.
//!
//! The command `quietmm boot` and the hardware tests of `quietmm-metal` both start their machines here.

mod scratch;

use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// The program that is started, by its name.
pub const EMULATOR: &str = "qemu-system-x86_64";
/// The package of Debian and Ubuntu that has it.
pub const PACKAGE: &str = "qemu-system-x86";
/// The most CPUs: what the image's APIC can name.
pub const MOST_CPUS: u32 = 255;

/// Registers that the image does not keep for programs: some look for what works on them, and not whether the kernel lets them.
const WITHOUT: &str = ",-xsave,-xsaveopt,-xsavec,-xgetbv1,-xsaves,-avx,-avx2,-f16c,-fma,-vaes,-vpclmulqdq,-avx512f,-fma4,-xop,-pku";

/// More of what a machine prints is thrown away, in bytes. A run prints some kilobytes.
const MOST_PRINTED: u64 = 16 << 20;
/// How often is looked whether the machine has ended, or should.
const LOOK: Duration = Duration::from_millis(10);

/// How the emulator executes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Accel {
    /// A host thread for each CPU: real races.
    Threads,
    /// CPUs take turns, and instructions are the clock: any two runs are the same.
    Instructions,
    /// The host's own processors, by KVM.
    Kvm,
}

/// A machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Machine {
    /// CPUs, at most [`MOST_CPUS`].
    pub cpus: u32,
    /// Memory, in MiB.
    pub mib: u64,
    /// How it executes.
    pub accel: Accel,
    /// The size of its disk in bytes, a multiple of 512, if it has one. It is all zeros at first, and gone with the machine.
    pub disk: Option<u64>,
}

/// How a machine ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// The run went well.
    Well,
    /// The run failed, or was refused.
    Failed,
    /// A panic, or an exception that nobody expected.
    Panicked,
    /// The image's command line makes no sense.
    Usage,
    /// It had not ended when its time was over, and was killed.
    Late,
    /// It was killed because the caller no longer wants it.
    Stopped,
    /// The emulator's own end: it could not start the machine, or something killed it. Its exit code, if it has one.
    Other(Option<i32>),
}

/// What came of a run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Outcome {
    /// How it ended.
    pub end: End,
    /// What the machine printed on its console.
    pub printed: String,
    /// What the emulator itself had to say.
    pub complained: String,
    /// How long it took.
    pub took: Duration,
}

/// Why there was no run.
#[derive(Debug)]
pub enum BootError {
    /// There is no emulator on this host.
    Missing,
    /// It cannot be started.
    Start(io::Error),
    /// There is no room for the machine's disk.
    Disk(io::Error),
}

impl fmt::Display for BootError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BootError::Missing => {
                write!(f, "{EMULATOR} is missing; on Debian or Ubuntu: sudo apt-get install {PACKAGE}")
            }
            BootError::Start(error) => write!(f, "cannot start {EMULATOR}: {error}"),
            BootError::Disk(error) => write!(f, "no room for the machine's disk: {error}"),
        }
    }
}

impl std::error::Error for BootError {}

impl Machine {
    /// Boots `image` with this command line. It is killed when it takes longer than `limit`, or as soon as `stop` says so,
    /// which is asked all the time.
    ///
    /// # Errors
    /// The emulator or the disk cannot be had. However the machine itself ends is an [`Outcome`].
    pub fn boot(
        &self,
        image: &Path,
        words: &str,
        limit: Duration,
        stop: &dyn Fn() -> bool,
    ) -> Result<Outcome, BootError> {
        self.boot_with(image, words, None, limit, stop, &|_| false)
    }

    /// The same, with an archive that the loader hands over. `heard` gets each line as it comes, on another thread, and what it says it has
    /// taken is not in the outcome.
    ///
    /// # Errors
    /// As of [`boot`](Self::boot).
    pub fn boot_with(
        &self,
        image: &Path,
        words: &str,
        archive: Option<&[u8]>,
        limit: Duration,
        stop: &dyn Fn() -> bool,
        heard: &(dyn Fn(&str) -> bool + Sync),
    ) -> Result<Outcome, BootError> {
        let began = Instant::now();
        let archive = archive.map(archive_file).transpose().map_err(BootError::Disk)?;
        let mut command = self.command(image, words)?;
        if let Some(archive) = &archive {
            // By way of this process: the file has no name, and the emulator does not inherit it.
            let path = format!("/proc/{}/fd/{}", std::process::id(), archive.as_raw_fd());
            command.args(["-initrd", &path]);
        }
        let mut child = command.spawn().map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => BootError::Missing,
            _ => BootError::Start(error),
        })?;
        let (out, err) = (child.stdout.take(), child.stderr.take());
        let (end, printed, complained) = thread::scope(|scope| {
            let printed = scope.spawn(move || lines(out, heard));
            let complained = scope.spawn(move || text(err));
            let end = until_ended(&mut child, began, limit, stop);
            (end, printed.join().unwrap_or_default(), complained.join().unwrap_or_default())
        });
        let end = end.map_err(BootError::Start)?;
        Ok(Outcome { end, printed, complained, took: began.elapsed() })
    }

    fn command(&self, image: &Path, words: &str) -> Result<Command, BootError> {
        let mut command = Command::new(EMULATOR);
        command.args([
            "-M",
            "microvm,pic=off,pit=off,rtc=off",
            "-nodefaults",
            "-display",
            "none",
            "-no-reboot",
        ]);
        command.args(["-device", "isa-debug-exit,iobase=0xf4,iosize=0x04"]);
        command.args(["-smp", &self.cpus.to_string(), "-m", &format!("{}M", self.mib)]);
        command.args(match self.accel {
            Accel::Threads => &["-accel", "tcg,thread=multi"][..],
            Accel::Instructions => &["-accel", "tcg,thread=single", "-icount", "shift=0,sleep=off"],
            Accel::Kvm => &["-accel", "kvm"],
        });
        let cpu = match self.accel {
            // Some hosts announce registers of theirs that they do not let the emulator set.
            Accel::Kvm => "host,-arch-capabilities",
            Accel::Threads | Accel::Instructions => "max",
        };
        command.args(["-cpu", &format!("{cpu}{WITHOUT}")]);
        command.arg("-kernel").arg(image).args(["-append", words]);
        // Not by `stdio`: standard input may be the disk.
        command.args(["-serial", "file:/proc/self/fd/1"]);
        let input = match self.disk {
            None => Stdio::null(),
            Some(bytes) => {
                let drive = "id=disk,if=none,format=raw,cache=unsafe,file=/proc/self/fd/0";
                command.args(["-drive", drive, "-device", "virtio-blk-device,drive=disk"]);
                scratch::nameless(bytes).map_err(BootError::Disk)?.into()
            }
        };
        command.stdin(input).stdout(Stdio::piped()).stderr(Stdio::piped());
        // In a group of its own: Ctrl-C at the terminal is for the caller, who says when the machine has to stop.
        command.process_group(0);
        Ok(command)
    }
}

fn archive_file(bytes: &[u8]) -> io::Result<File> {
    let mut file = scratch::nameless(0)?;
    file.write_all(bytes)?;
    Ok(file)
}

/// All lines that nobody takes, up to [`MOST_PRINTED`]; what is no UTF-8 is replaced.
fn lines(from: Option<impl Read>, heard: &(dyn Fn(&str) -> bool + Sync)) -> String {
    let Some(from) = from else { return String::new() };
    let (mut from, mut kept, mut line) = (BufReader::new(from), String::new(), Vec::new());
    loop {
        line.clear();
        // No line is longer than all that is kept: who prints no end of line is cut.
        match (&mut from).take(MOST_PRINTED).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return kept,
            Ok(_) => {}
        }
        let text = String::from_utf8_lossy(&line);
        if !heard(text.trim_end_matches('\n')) && (kept.len() + text.len()) as u64 <= MOST_PRINTED {
            kept += &text;
        }
    }
}

/// All that comes, up to [`MOST_PRINTED`]; what is no UTF-8 is replaced.
fn text(from: Option<impl Read>) -> String {
    let Some(from) = from else { return String::new() };
    let mut from = from.take(MOST_PRINTED);
    let mut bytes = Vec::new();
    // What could be read until an error is what there is.
    let _ = from.read_to_end(&mut bytes);
    // The rest goes nowhere: a pipe that nobody reads would hold the machine up.
    let _ = io::copy(from.get_mut(), &mut io::sink());
    String::from_utf8_lossy(&bytes).into_owned()
}

fn until_ended(
    child: &mut Child,
    began: Instant,
    limit: Duration,
    stop: &dyn Fn() -> bool,
) -> io::Result<End> {
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(end(status));
        }
        let end = if stop() {
            End::Stopped
        } else if began.elapsed() > limit {
            End::Late
        } else {
            thread::sleep(LOOK);
            continue;
        };
        // It may have ended by itself in between: then there is nothing to kill.
        let _ = child.kill();
        child.wait()?;
        return Ok(end);
    }
}

/// The image's codes: twice what it writes to the exit port, and one more.
fn end(status: ExitStatus) -> End {
    match status.code() {
        Some(33) => End::Well,
        Some(35) => End::Failed,
        Some(37) => End::Panicked,
        Some(39) => End::Usage,
        other => End::Other(other),
    }
}
