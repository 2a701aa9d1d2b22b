//! The header of a recording.

use super::super::checksum::Checksum;
use super::super::encode::EncodeError;
use super::super::error::{Fault, TraceError};
use super::super::header::{FIXED_BYTES, MAGIC, RECORDING_VERSION, u16_at, u32_at, u64_at};

const FLAG_FAULTS: u16 = 1;
const FLAG_BOUNDED: u16 = 2;
const FLAG_TIMES: u16 = 4;
const FLAG_SHOOTDOWNS: u16 = 8;
/// A count that is not known.
const UNKNOWN: u64 = u64::MAX;

/// What whoever records knows of the whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct About<'a> {
    /// What was recorded.
    pub program: &'a str,
    /// The command line.
    pub command: &'a str,
    /// How it was recorded.
    pub method: &'a str,
    /// Page faults are in it.
    pub faults: bool,
    /// The program did more than was recorded.
    pub bounded: bool,
    /// For how long threads ran and slept is in it.
    pub times: bool,
    /// Shootdowns are in it.
    pub shootdowns: bool,
    /// CPUs of the machine that it was recorded on, 1 to 65,535.
    pub cpus: u16,
    /// From the beginning to the end, in nanoseconds; at least the time of the last event.
    pub duration: u64,
    /// Events that were lost, as far as that is known.
    pub lost: u64,
    /// What the kernel itself counted.
    pub received: Shootdowns,
}

/// Flush requests that CPUs received while a program ran, as the kernel counted them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Shootdowns {
    /// All CPUs, whoever they were for.
    pub machine: Option<u64>,
    /// For the program.
    pub program: Option<u64>,
}

/// What a body adds up to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Sums {
    /// Threads.
    pub threads: u32,
    /// Events.
    pub events: u64,
    /// Length in bytes.
    pub bytes: u64,
    /// Checksum.
    pub checksum: u64,
}

/// The header of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordingHeader<'a> {
    /// What the recorder knew.
    pub about: About<'a>,
    /// What the body adds up to.
    pub sums: Sums,
}

impl<'a> RecordingHeader<'a> {
    /// Appends the header to `out`; the body follows it. Its length depends on the texts alone.
    ///
    /// # Errors
    /// A text that is longer than 65,535 bytes.
    pub fn encode(&self, out: &mut impl Extend<u8>) -> Result<(), EncodeError> {
        let RecordingHeader { about, sums } = self;
        let length = |text: &str| {
            u16::try_from(text.len()).map_err(|_| EncodeError::TextTooLong { bytes: text.len() })
        };
        let flags = [
            (about.faults, FLAG_FAULTS),
            (about.bounded, FLAG_BOUNDED),
            (about.times, FLAG_TIMES),
            (about.shootdowns, FLAG_SHOOTDOWNS),
        ];
        let flags = flags.iter().map(|&(set, flag)| if set { flag } else { 0 }).sum();
        let mut fixed = [0; FIXED_BYTES];
        fixed[..8].copy_from_slice(&MAGIC);
        for (at, value) in [
            (8, RECORDING_VERSION),
            (10, flags),
            (12, length(about.program)?),
            (14, length(about.command)?),
            (20, length(about.method)?),
            (22, about.cpus),
        ] {
            fixed[at..at + 2].copy_from_slice(&value.to_le_bytes());
        }
        fixed[16..20].copy_from_slice(&4096u32.to_le_bytes());
        fixed[24..28].copy_from_slice(&sums.threads.to_le_bytes());
        for (at, value) in [
            (32, sums.events),
            (40, about.duration),
            (48, about.lost),
            (56, about.received.machine.unwrap_or(UNKNOWN)),
            (64, about.received.program.unwrap_or(UNKNOWN)),
            (80, sums.bytes),
            (88, sums.checksum),
        ] {
            fixed[at..at + 8].copy_from_slice(&value.to_le_bytes());
        }
        let texts = [about.program, about.command, about.method];
        let sum =
            Checksum::of(&[&fixed[..96], texts[0].as_bytes(), texts[1].as_bytes(), texts[2].as_bytes()]);
        fixed[96..].copy_from_slice(&sum.to_le_bytes());
        out.extend(fixed);
        texts.iter().for_each(|text| out.extend(text.bytes()));
        Ok(())
    }

    /// Reads a header and returns it with the body that follows, whose length is right and content unchecked.
    pub(super) fn decode(bytes: &'a [u8]) -> Result<(Self, &'a [u8]), TraceError> {
        let short = |need: usize| Fault::TooShort { need: need as u64 }.at(bytes.len());
        let Some((fixed, rest)) = bytes.split_first_chunk::<FIXED_BYTES>() else {
            return Err(short(FIXED_BYTES));
        };
        let [program, command, method] = [12, 14, 20].map(|at| usize::from(u16_at(fixed, at)));
        let length = program + command + method;
        let Some((texts, body)) = rest.split_at_checked(length) else {
            return Err(short(FIXED_BYTES + length));
        };
        let computed = Checksum::of(&[&fixed[..96], texts]);
        if computed != u64_at(fixed, 96) {
            return Err(Fault::HeaderChecksum { found: u64_at(fixed, 96), computed }.at(96));
        }
        let flags = u16_at(fixed, 10);
        if flags & !(FLAG_FAULTS | FLAG_BOUNDED | FLAG_TIMES | FLAG_SHOOTDOWNS) != 0 {
            return Err(Fault::Flags { found: flags }.at(10));
        }
        if u32_at(fixed, 16) != 4096 {
            return Err(Fault::PageBytes { found: u32_at(fixed, 16) }.at(16));
        }
        if u32_at(fixed, 28) != 0 || u64_at(fixed, 72) != 0 {
            return Err(Fault::Event.at(28));
        }
        if u16_at(fixed, 22) == 0 {
            return Err(Fault::Cpu.at(22));
        }
        let text = |from: usize, length: usize| {
            core::str::from_utf8(&texts[from..from + length])
                .map_err(|error| Fault::Text.at(FIXED_BYTES + from + error.valid_up_to()))
        };
        let known = |at| Some(u64_at(fixed, at)).filter(|&count| count != UNKNOWN);
        let about = About {
            program: text(0, program)?,
            command: text(program, command)?,
            method: text(program + command, method)?,
            faults: flags & FLAG_FAULTS != 0,
            bounded: flags & FLAG_BOUNDED != 0,
            times: flags & FLAG_TIMES != 0,
            shootdowns: flags & FLAG_SHOOTDOWNS != 0,
            cpus: u16_at(fixed, 22),
            duration: u64_at(fixed, 40),
            lost: u64_at(fixed, 48),
            received: Shootdowns { machine: known(56), program: known(64) },
        };
        let sums = Sums {
            threads: u32_at(fixed, 24),
            events: u64_at(fixed, 32),
            bytes: u64_at(fixed, 80),
            checksum: u64_at(fixed, 88),
        };
        let (have, start) = (body.len() as u64, FIXED_BYTES + length);
        if have < sums.bytes {
            let need = sums.bytes.saturating_add(start as u64);
            return Err(Fault::TooShort { need }.at(bytes.len()));
        }
        if have > sums.bytes {
            // Below `have`, so it fits in a `usize`.
            return Err(Fault::TooLong.at(start + sums.bytes as usize));
        }
        Ok((Self { about, sums }, body))
    }
}
