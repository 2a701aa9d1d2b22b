//! A fresh machine for each run: the emulator, its exit code, and what it printed.

use std::fs::File;
use std::io::Read;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Boots that a control has where races are real, or a disk takes part.
const BOOTS: u32 = 6;
/// How long a machine may take. Alone on the host none takes a quarter of it.
const LIMIT: Duration = Duration::from_secs(60);

/// How the emulator executes.
#[derive(Clone, Copy, Debug)]
pub enum Accel {
    /// A host thread for each CPU: real races.
    Threads,
    /// CPUs take turns, and instructions are the clock: a timer interrupts each CPU about every so many instructions of its
    /// own, and any two runs are the same.
    Instructions {
        /// How many.
        period: u32,
    },
}

/// A machine.
#[derive(Clone, Copy, Debug)]
pub struct Machine {
    pub cpus: u32,
    pub mib: u32,
    pub accel: Accel,
    /// Whether it has a disk, empty at first.
    pub disk: bool,
}

/// How it ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    Well,
    Failed,
    Panicked,
    Usage,
    /// It did not end in time and was stopped.
    Stopped,
    /// The emulator's own.
    Other(Option<i32>),
}

/// What came of a run.
pub struct Outcome {
    pub end: End,
    pub text: String,
    what: String,
}

impl Machine {
    pub const fn threads(cpus: u32) -> Machine {
        Machine { cpus, mib: 128, accel: Accel::Threads, disk: false }
    }

    pub const fn instructions(period: u32) -> Machine {
        Machine { cpus: 4, mib: 64, accel: Accel::Instructions { period }, disk: false }
    }

    pub const fn with_mib(self, mib: u32) -> Machine {
        Machine { mib, ..self }
    }

    pub const fn with_disk(self) -> Machine {
        Machine { disk: true, ..self }
    }

    /// Boots the image with this command line.
    pub fn boot(self, words: &str) -> Outcome {
        let image = std::env::var("QUIETMM_IMAGE")
            .expect("QUIETMM_IMAGE names the image; scripts/test-metal sets it");
        let mut command = Command::new("qemu-system-x86_64");
        command.args([
            "-M",
            "microvm,pic=off,pit=off,rtc=off",
            "-cpu",
            "max",
            "-nodefaults",
            "-display",
            "none",
        ]);
        command.args(["-serial", "stdio", "-no-reboot", "-device", "isa-debug-exit,iobase=0xf4,iosize=0x04"]);
        command.args(["-smp", &self.cpus.to_string(), "-m", &format!("{}M", self.mib), "-kernel", &image]);
        let mut words = words.to_owned();
        match self.accel {
            Accel::Threads => command.args(["-accel", "tcg,thread=multi"]),
            Accel::Instructions { period } => {
                words += &format!(" period={period}");
                command.args(["-accel", "tcg,thread=single", "-icount", "shift=0,sleep=off"])
            }
        };
        let disk = self.disk.then(|| Scratch::new(256 << 20));
        if let Some(disk) = &disk {
            let drive = format!("id=disk,if=none,format=raw,cache=unsafe,file={}", disk.0.display());
            command.args(["-drive", &drive, "-device", "virtio-blk-device,drive=disk"]);
        }
        command.args(["-append", &words]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("qemu-system-x86_64 runs");
        let (mut out, mut err) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
        let mut text = String::new();
        let end = thread::scope(|scope| {
            let errors = scope.spawn(move || {
                let mut text = String::new();
                let _ = err.read_to_string(&mut text);
                text
            });
            let printed = scope.spawn(move || {
                let mut bytes = Vec::new();
                let _ = out.read_to_end(&mut bytes);
                String::from_utf8_lossy(&bytes).into_owned()
            });
            let began = Instant::now();
            let status = loop {
                if let Some(status) = child.try_wait().unwrap() {
                    break Some(status);
                }
                if began.elapsed() > LIMIT {
                    let _ = child.kill();
                    let _ = child.wait();
                    break None;
                }
                thread::sleep(Duration::from_millis(10));
            };
            text += &printed.join().unwrap();
            text += &errors.join().unwrap();
            match status.map(|status| status.code()) {
                None => End::Stopped,
                Some(Some(33)) => End::Well,
                Some(Some(35)) => End::Failed,
                Some(Some(37)) => End::Panicked,
                Some(Some(39)) => End::Usage,
                Some(other) => End::Other(other),
            }
        });
        Outcome { end, text, what: format!("{self:?}: {words}") }
    }

    /// Boots it; all must be well.
    #[track_caller]
    pub fn passes(self, words: &str) -> Outcome {
        self.boot(words).ended(End::Well)
    }

    /// Boots it; it must find something wrong. Where races are real it may not meet its moment, on a busy host above all: then
    /// it is booted again, a few times. Where instructions are counted once is enough.
    #[track_caller]
    pub fn fails(self, words: &str, how: &str) -> Outcome {
        self.until(words, |outcome| outcome.end == End::Failed).ended(End::Failed).says(how)
    }

    /// Boots it until it ends as wanted, as often as it may; gives the last.
    fn until(self, words: &str, wanted: impl Fn(&Outcome) -> bool) -> Outcome {
        // A disk answers when the host has time, also where instructions are counted.
        let real = self.disk || matches!(self.accel, Accel::Threads);
        let boots = if real { BOOTS } else { 1 };
        let mut outcome = self.boot(words);
        for _ in 1..boots {
            if wanted(&outcome) {
                break;
            }
            outcome = self.boot(words);
        }
        outcome
    }

    /// Boots it with a rule broken under which a program may write to any frame, the core's own too: it must be seen, by a
    /// wrong content, and however it goes on from there, or at least by a panic.
    #[track_caller]
    pub fn shows_harm(self, words: &str) {
        let harm = |outcome: &Outcome| {
            outcome.end == End::Panicked || outcome.text.contains("{\"wrong\":") && outcome.end != End::Well
        };
        let last = self.until(words, harm);
        let Outcome { end, text, what } = &last;
        assert!(harm(&last), "{what}: nothing was seen, and it ended {end:?}\n{text}");
    }
}

/// A file that goes when this does.
struct Scratch(PathBuf);

impl Scratch {
    fn new(bytes: u64) -> Scratch {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let nth = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("quietmm-disk-{}-{nth}", std::process::id()));
        File::create_new(&path)
            .and_then(|file| file.set_len(bytes))
            .expect("room for a disk that holds nothing");
        Scratch(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

impl Outcome {
    /// It must have ended so.
    #[track_caller]
    pub fn ended(self, how: End) -> Self {
        assert_eq!(self.end, how, "{}\n{}", self.what, self.text);
        self
    }

    /// It must have printed this.
    #[track_caller]
    pub fn says(self, what: &str) -> Self {
        assert!(self.text.contains(what), "{}: no '{what}' in\n{}", self.what, self.text);
        self
    }

    /// A counter.
    #[track_caller]
    pub fn counter(&self, name: &str) -> u64 {
        let key = format!("\"{name}\":");
        let at = self.text.find(&key).unwrap_or_else(|| panic!("{}: no {name} in\n{}", self.what, self.text));
        let digits = self.text[at + key.len()..].chars().take_while(char::is_ascii_digit);
        digits.collect::<String>().parse().unwrap()
    }
}
