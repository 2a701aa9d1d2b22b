//! Structures as programs have them, byte by byte.

use alloc::string::String;
use alloc::vec::Vec;

/// Bytes as text.
pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Packs words of several sizes.
#[derive(Default)]
pub struct Pack(pub Vec<u8>);

impl Pack {
    pub fn long(mut self, value: u64) -> Pack {
        self.0.extend(value.to_le_bytes());
        self
    }
    pub fn word(mut self, value: u32) -> Pack {
        self.0.extend(value.to_le_bytes());
        self
    }
    pub fn half(mut self, value: u16) -> Pack {
        self.0.extend(value.to_le_bytes());
        self
    }
    pub fn zeros_to(mut self, len: usize) -> Pack {
        self.0.resize(len, 0);
        self
    }
    /// Seconds and nanoseconds; before 1970 they are negative, and count up.
    pub fn time(self, ns: u64) -> Pack {
        let second = 1_000_000_000_i64;
        self.long((ns as i64).div_euclid(second) as u64).long((ns as i64).rem_euclid(second) as u64)
    }
}

/// What `stat` says.
pub struct Stat {
    /// The number of the file system that has it, as `/proc/*/mountinfo` has it.
    pub lies_on: u32,
    pub number: u64,
    pub mode: u32,
    pub links: u32,
    pub device: u64,
    pub bytes: u64,
    /// Pages that take room.
    pub pages: u64,
    /// Read, modified, changed.
    pub times: [u64; 3],
    /// Made.
    pub born: u64,
    pub owner: [u32; 2],
}

impl Stat {
    /// Blocks of 512 bytes: whole pages.
    fn blocks(&self) -> u64 {
        self.pages * 8
    }

    /// `struct stat`.
    pub fn pack(&self) -> Vec<u8> {
        let head = Pack::default()
            .long(self.lies_on.into())
            .long(self.number)
            .long(self.links.into())
            .word(self.mode)
            .word(self.owner[0])
            .word(self.owner[1])
            .word(0);
        let size = head.long(self.device).long(self.bytes).long(4096).long(self.blocks());
        self.times.into_iter().fold(size, Pack::time).zeros_to(144).0
    }

    /// `struct statx`.
    pub fn pack_extended(&self) -> Vec<u8> {
        let time = |pack: Pack, ns: u64| {
            let second = 1_000_000_000_i64;
            pack.long((ns as i64).div_euclid(second) as u64)
                .word((ns as i64).rem_euclid(second) as u32)
                .word(0)
        };
        let owner = self.owner;
        let head =
            Pack::default().word(0xfff).word(4096).long(0).word(self.links).word(owner[0]).word(owner[1]);
        let size = head
            .half(self.mode as u16)
            .half(0)
            .long(self.number)
            .long(self.bytes)
            .long(self.blocks())
            .long(0);
        let [read, modified, changed] = self.times;
        let times = [read, self.born, changed, modified].into_iter().fold(size, time);
        times
            .word((self.device >> 8) as u32)
            .word(self.device as u32 & 0xff)
            .word(0)
            .word(self.lies_on)
            .zeros_to(256)
            .0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stat_has_its_words_where_programs_look() {
        let stat = Stat {
            lies_on: 1,
            number: 7,
            mode: 0o100644,
            links: 3,
            device: 0x105,
            bytes: 5000,
            pages: 2,
            times: [1_000_000_003, 2_000_000_005, 3_000_000_007],
            born: 4_000_000_009,
            owner: [11, 12],
        };
        let plain = stat.pack();
        let long = |bytes: &[u8], at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
        assert_eq!(plain.len(), 144);
        assert_eq!(
            [8, 16, 40, 48, 56, 64, 72, 80, 88, 96, 104, 112].map(|at| long(&plain, at)),
            [7, 3, 0x105, 5000, 4096, 16, 1, 3, 2, 5, 3, 7]
        );
        assert_eq!((&plain[28..32], &plain[32..36]), (&[11, 0, 0, 0][..], &[12, 0, 0, 0][..]));
        assert_eq!(plain[24..28], 0o100644_u32.to_le_bytes());
        let more = stat.pack_extended();
        assert_eq!(more.len(), 256);
        assert_eq!([32, 40, 48].map(|at| long(&more, at)), [7, 5000, 16]);
        assert_eq!(more[28..30], 0o100644_u16.to_le_bytes());
        assert_eq!([64, 80, 96, 112].map(|at| long(&more, at)), [1, 4, 3, 2]);
        assert_eq!((&more[20..24], &more[24..28]), (&[11, 0, 0, 0][..], &[12, 0, 0, 0][..]));
        assert_eq!(more[128..136], [1, 0, 0, 0, 5, 0, 0, 0]);
    }
}
