//! What is set for a terminal (`termios`), as programs have it.

use alloc::vec::Vec;

use crate::layout::Pack;

/// What is set for what comes in.
#[allow(missing_docs)]
pub(super) mod input {
    pub const STRIP: u32 = 0x20;
    pub const NL_TO_CR: u32 = 0x40;
    pub const NO_CR: u32 = 0x80;
    pub const CR_TO_NL: u32 = 0x100;
    pub const LOWER: u32 = 0x200;
    pub const FLOW: u32 = 0x400;
    pub const ANY_GOES_ON: u32 = 0x800;
    pub const BELL: u32 = 0x2000;
    pub const UTF8: u32 = 0x4000;
}

/// For what goes out.
#[allow(missing_docs)]
pub(super) mod output {
    pub const AT_ALL: u32 = 1;
    pub const UPPER: u32 = 2;
    pub const NL_TO_CR_NL: u32 = 4;
    pub const CR_TO_NL: u32 = 8;
    pub const NO_CR_AT_START: u32 = 0x10;
    pub const NL_RETURNS: u32 = 0x20;
    pub const TABS: u32 = 0x1800;
}

/// For what is done with it.
#[allow(missing_docs)]
pub mod local {
    pub const SIGNALS: u32 = 1;
    pub const LINES: u32 = 2;
    pub const ECHO: u32 = 8;
    pub const ECHO_ERASE: u32 = 0x10;
    pub const ECHO_KILL: u32 = 0x20;
    pub const ECHO_NL: u32 = 0x40;
    pub const NO_FLUSH: u32 = 0x80;
    pub const STOP_WRITERS: u32 = 0x100;
    pub const ECHO_CONTROL: u32 = 0x200;
    pub const ECHO_KILL_BY_ERASE: u32 = 0x800;
    pub const MORE: u32 = 0x8000;
}

/// Places of characters that mean something.
pub(super) mod at {
    pub const INTERRUPT: usize = 0;
    pub const QUIT: usize = 1;
    pub const ERASE: usize = 2;
    pub const KILL: usize = 3;
    pub const END: usize = 4;
    pub const TIME: usize = 5;
    pub const LEAST: usize = 6;
    pub const START: usize = 8;
    pub const STOP: usize = 9;
    pub const SUSPEND: usize = 10;
    pub const LINE: usize = 11;
    pub const AGAIN: usize = 12;
    pub const WORD: usize = 14;
    pub const NEXT: usize = 15;
    pub const LINE_TOO: usize = 16;
}

/// Bytes of `struct termios`, as system calls have it, and with two speeds behind it.
pub const SETTINGS: usize = 36;
pub const WITH_SPEEDS: usize = 44;
/// The same of old programs (`struct termio`).
pub const OLD: usize = 18;
const CHARACTERS: usize = 19;

/// What is set.
#[derive(Clone)]
pub struct Settings {
    /// Input, output, control, local.
    pub flags: [u32; 4],
    line: u8,
    pub(super) characters: [u8; CHARACTERS],
    speeds: [u32; 2],
}

impl Settings {
    pub(super) fn first() -> Settings {
        Settings {
            flags: [0x500, 5, 0xbf, 0x8a3b],
            line: 0,
            characters: [3, 28, 127, 21, 4, 0, 1, 0, 17, 19, 26, 0, 18, 15, 23, 22, 0, 0, 0],
            speeds: [38400; 2],
        }
    }

    /// As programs have it.
    pub fn pack(&self) -> Vec<u8> {
        let mut pack = self.flags.iter().fold(Pack::default(), |pack, &word| pack.word(word));
        pack.0.push(self.line);
        pack.0.extend(self.characters);
        pack.word(self.speeds[0]).word(self.speeds[1]).0
    }

    /// What a program wants: with speeds, if there are so many bytes.
    pub fn unpack(&self, bytes: &[u8]) -> Settings {
        const SIZE: u32 = 0x30;
        const RECEIVES: u32 = 0x80;
        let word =
            |at: usize| bytes.get(at..at + 4).map_or(0, |b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]));
        let mut new = self.clone();
        new.flags = [word(0), word(4), word(8), word(12)];
        // Neither has a wire: they send eight bits, without parity.
        new.flags[2] = new.flags[2] & !(SIZE | 0x100) | SIZE | RECEIVES;
        new.line = bytes.get(16).copied().unwrap_or(0);
        if let Some(characters) = bytes.get(17..SETTINGS) {
            new.characters.copy_from_slice(characters);
        }
        if bytes.len() >= WITH_SPEEDS {
            new.speeds = [word(36), word(40)];
        } else {
            const SPEEDS: [u32; 16] =
                [0, 50, 75, 110, 134, 150, 200, 300, 600, 1200, 1800, 2400, 4800, 9600, 19200, 38400];
            const HIGH: [u32; 16] = [
                0, 57600, 115_200, 230_400, 460_800, 500_000, 576_000, 921_600, 1_000_000, 1_152_000,
                1_500_000, 2_000_000, 2_500_000, 3_000_000, 3_500_000, 4_000_000,
            ];
            let code = new.flags[2] & 0x100f;
            let low = (code & 0xf) as usize;
            new.speeds = [if code & 0x1000 == 0 { SPEEDS[low] } else { HIGH[low] }; 2];
        }
        new
    }

    /// As old programs have it: halves, and the first eight characters.
    pub fn pack_old(&self) -> Vec<u8> {
        let mut pack = self.flags.iter().fold(Pack::default(), |pack, &word| pack.half(word as u16));
        pack.0.push(self.line);
        pack.0.extend(&self.characters[..8]);
        pack.zeros_to(OLD).0
    }

    /// What such a program wants, as one of today would say it: the upper halves stay.
    pub fn renewed_by_old(&self, bytes: &[u8; OLD]) -> Vec<u8> {
        let mut new = self.clone();
        for (flags, half) in new.flags.iter_mut().zip(bytes.chunks_exact(2)) {
            *flags = *flags & !0xffff | u32::from(u16::from_le_bytes([half[0], half[1]]));
        }
        new.line = bytes[8];
        new.characters[..8].copy_from_slice(&bytes[9..17]);
        let mut all = new.pack();
        all.truncate(SETTINGS);
        all
    }

    pub(super) fn input(&self, bit: u32) -> bool {
        self.flags[0] & bit != 0
    }

    pub(super) fn output(&self, bit: u32) -> bool {
        self.flags[1] & bit != 0
    }

    /// Whether this is set.
    pub fn local(&self, bit: u32) -> bool {
        self.flags[3] & bit != 0
    }

    /// Whether a byte is the one at this place. Zero is none.
    pub(super) fn is(&self, byte: u8, place: usize) -> bool {
        byte != 0 && self.characters[place] == byte
    }

    /// How many bytes a read waits for, and how long, in nanoseconds, if it does not wait for lines.
    pub fn least(&self) -> (usize, u64) {
        (self.characters[at::LEAST].into(), u64::from(self.characters[at::TIME]) * 100_000_000)
    }
}
