//! A fresh machine for each run: the emulator, its exit code, and what it printed.

pub mod stretches;

use std::path::Path;
use std::time::Duration;

use quietmm_emulator::Accel;
pub use quietmm_emulator::End;

/// Boots that a control has where races are real, or a disk takes part.
const BOOTS: u32 = 6;
/// How long a machine may take before it counts as one that hangs. Alone on the host none takes a hundredth of it: nothing
/// depends on how busy the host is.
const LIMIT: Duration = Duration::from_secs(1800);
/// How long the first boot of a control may take where races are real, and each further one twice as long: a program that may write to any frame may
/// leave a machine that hangs and says nothing, and another boot says more. On a host that is too busy for the first a later one has the time.
const PATIENCE: Duration = Duration::from_secs(120);
/// The size of a disk, in bytes.
const DISK: u64 = 256 << 20;

/// A machine, and how a timer interrupts it.
#[derive(Clone, Copy, Debug)]
pub struct Machine {
    pub cpus: u32,
    pub mib: u64,
    /// A timer that interrupts each CPU about every so many instructions of its own: CPUs take turns, and any two runs are
    /// the same. Without it each CPU is a host thread: real races.
    pub period: Option<u32>,
    /// Whether it has a disk, empty at first.
    pub disk: bool,
}

/// What came of a run.
pub struct Outcome {
    pub end: End,
    pub text: String,
    what: String,
}

impl Machine {
    pub const fn threads(cpus: u32) -> Machine {
        Machine { cpus, mib: 128, period: None, disk: false }
    }

    pub const fn instructions(period: u32) -> Machine {
        Machine { cpus: 4, mib: 64, period: Some(period), disk: false }
    }

    pub const fn with_mib(self, mib: u64) -> Machine {
        Machine { mib, ..self }
    }

    pub const fn with_disk(self) -> Machine {
        Machine { disk: true, ..self }
    }

    /// Boots the image with this command line.
    pub fn boot(self, words: &str) -> Outcome {
        self.boot_for(words, LIMIT)
    }

    fn boot_for(self, words: &str, limit: Duration) -> Outcome {
        let image = std::env::var("QUIETMM_IMAGE")
            .expect("QUIETMM_IMAGE names the image; scripts/test-metal sets it");
        let (accel, words) = match self.period {
            None => (Accel::Threads, words.to_owned()),
            Some(period) => (Accel::Instructions, format!("{words} period={period}")),
        };
        let disk = self.disk.then_some(DISK);
        let machine = quietmm_emulator::Machine { cpus: self.cpus, mib: self.mib, accel, disk };
        let outcome = machine
            .boot(Path::new(&image), &words, limit, &|| false)
            .unwrap_or_else(|error| panic!("{error}"));
        let text = outcome.printed + &outcome.complained;
        Outcome { end: outcome.end, text, what: format!("{self:?}: {words}") }
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

    /// Boots it until it ends as wanted, as often as it may; returns the last.
    fn until(self, words: &str, wanted: impl Fn(&Outcome) -> bool) -> Outcome {
        // A disk answers when the host has time, also where instructions are counted.
        let real = self.disk || self.period.is_none();
        if !real {
            return self.boot(words);
        }
        let mut outcome = self.boot_for(words, PATIENCE);
        for boot in 1..BOOTS {
            if wanted(&outcome) {
                break;
            }
            outcome = self.boot_for(words, LIMIT.min(PATIENCE * (1 << boot)));
        }
        outcome
    }

    /// Boots it with a rule broken under which a program may write to any frame, the core's own too: it must be seen, by a
    /// wrong content, and however it goes on from there, or at least by a panic.
    #[track_caller]
    pub fn shows_harm(self, words: &str) {
        let last = self.until(words, Outcome::is_harm);
        let Outcome { end, text, what } = &last;
        assert!(last.is_harm(), "{what}: nothing was seen, and it ended {end:?}\n{text}");
    }

    /// The same in one of so many seeds: where instructions are counted, each that is new anywhere has all runs meet other moments.
    #[track_caller]
    pub fn shows_harm_in_some(self, words: &str, seeds: u32) {
        let seen = |seed| self.boot(&format!("{words} seed={seed}")).is_harm();
        assert!((1..=seeds).any(seen), "{self:?}: {words}: nothing was seen in {seeds} seeds");
    }
}

impl Outcome {
    fn is_harm(&self) -> bool {
        self.end == End::Panicked || self.text.contains("{\"wrong\":") && self.end != End::Well
    }

    /// It must have ended so.
    #[track_caller]
    pub fn ended(self, how: End) -> Self {
        let late = if self.end == End::Late {
            "it had not ended in its time, half an hour of the host's if it is no control\n"
        } else {
            ""
        };
        assert_eq!(self.end, how, "{}\n{late}{}", self.what, self.text);
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
