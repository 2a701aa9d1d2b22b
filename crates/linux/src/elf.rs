//! A program's file: ELF for x86-64, as little of it as a kernel looks at.
//!
//! Whatever the file says is checked here: who loads it finds nothing that wraps or lies outside what a program may map.

use alloc::vec::Vec;

use crate::errno::Errno;

/// Bytes of a file's start that say what it is.
pub const HEADER: usize = 64;
/// Bytes of an entry of the table of segments.
pub const ENTRY: usize = 56;
/// Segments that a program may have.
const MOST: usize = 128;
/// Addresses that a program may ask for end here.
const END: u64 = (1 << 47) - 4096;

/// What a file's start says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// Where it begins to run; relative to where it is loaded, if it may lie anywhere.
    pub entry: u64,
    /// It may lie anywhere.
    pub anywhere: bool,
    /// Where in the file its table of segments lies.
    pub table: u64,
    /// And how many there are.
    pub count: usize,
}

/// A part of the file that is to be in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Segment {
    /// Its first address.
    pub at: u64,
    /// Where it begins in the file.
    pub offset: u64,
    /// How many bytes come from there.
    pub bytes: u64,
    /// And how many it has in memory; the rest are zeros.
    pub room: u64,
    /// It may be written to.
    pub write: bool,
    /// It may be executed.
    pub execute: bool,
}

/// What a program's segments say.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Plan {
    /// What is to be in memory, by address.
    pub segments: Vec<Segment>,
    /// Where its interpreter's name lies in the file, and how long it is, with the zero at its end.
    pub interpreter: Option<(u64, usize)>,
    /// The address of the table of segments, as loaded.
    pub table: u64,
    /// Its stack may be executed: it says so. What says nothing has none on this architecture.
    pub stack_execute: bool,
}

impl Plan {
    /// The first page's address, and the address after the last page.
    pub fn bounds(&self) -> (u64, u64) {
        let first = self.segments.first().map_or(0, |segment| segment.at & !4095);
        let end = self.segments.last().map_or(0, |last| (last.at + last.room).next_multiple_of(4096));
        (first, end)
    }
}

fn half(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn long(bytes: &[u8], at: usize) -> u64 {
    u64::from(word(bytes, at)) | u64::from(word(bytes, at + 4)) << 32
}

impl Header {
    /// Reads a file's first bytes.
    ///
    /// # Errors
    /// `ENOEXEC`: not a program for this machine.
    pub fn parse(bytes: &[u8]) -> Result<Header, Errno> {
        const MACHINE: u16 = 62;
        if bytes.len() < HEADER || &bytes[..7] != b"\x7fELF\x02\x01\x01" {
            return Err(Errno::ENOEXEC);
        }
        let anywhere = match half(bytes, 16) {
            2 => false,
            3 => true,
            _ => return Err(Errno::ENOEXEC),
        };
        let count = usize::from(half(bytes, 56));
        if half(bytes, 18) != MACHINE || usize::from(half(bytes, 54)) != ENTRY || !(1..=MOST).contains(&count)
        {
            return Err(Errno::ENOEXEC);
        }
        Ok(Header { entry: long(bytes, 24), anywhere, table: long(bytes, 32), count })
    }
}

/// Reads the table of segments of a file of so many bytes.
///
/// # Errors
/// `ENOEXEC`: a segment lies outside the file or outside what a program may map, they are out of order or overlap, or there is
/// none.
pub fn plan(header: &Header, table: &[u8], file_len: u64) -> Result<Plan, Errno> {
    const LOAD: u32 = 1;
    const INTERPRETER: u32 = 3;
    const GNU_STACK: u32 = 0x6474_e551;
    const LONGEST_NAME: u64 = 4096;
    if table.len() < header.count * ENTRY {
        return Err(Errno::ENOEXEC);
    }
    let mut plan = Plan { segments: Vec::new(), interpreter: None, table: 0, stack_execute: false };
    for entry in table.chunks_exact(ENTRY).take(header.count) {
        let (offset, at, bytes, room) = (long(entry, 8), long(entry, 16), long(entry, 32), long(entry, 40));
        let in_file = offset.checked_add(bytes).is_some_and(|end| end <= file_len);
        match word(entry, 0) {
            LOAD if room == 0 => {}
            LOAD => {
                let fits = at.checked_add(room).is_some_and(|end| end <= END);
                if !in_file || !fits || bytes > room || at % 4096 != offset % 4096 {
                    return Err(Errno::ENOEXEC);
                }
                let flags = word(entry, 4);
                let segment =
                    Segment { at, offset, bytes, room, write: flags & 2 != 0, execute: flags & 1 != 0 };
                let (_, end) = plan.bounds();
                if at & !4095 < end {
                    return Err(Errno::ENOEXEC);
                }
                if (offset..offset + bytes).contains(&header.table) {
                    plan.table = header.table - offset + at;
                }
                plan.segments.push(segment);
            }
            INTERPRETER => {
                if !in_file || !(2..=LONGEST_NAME).contains(&bytes) {
                    return Err(Errno::ENOEXEC);
                }
                plan.interpreter = Some((offset, bytes as usize));
            }
            GNU_STACK => plan.stack_execute = word(entry, 4) & 1 != 0,
            _ => {}
        }
    }
    if plan.segments.is_empty() { Err(Errno::ENOEXEC) } else { Ok(plan) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn header() -> Vec<u8> {
        let mut bytes = vec![0; HEADER];
        bytes[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
        bytes[16] = 2;
        bytes[18] = 62;
        bytes[24..32].copy_from_slice(&0x40_1000_u64.to_le_bytes());
        bytes[32] = 64;
        bytes[54] = ENTRY as u8;
        bytes[56] = 1;
        bytes
    }

    fn entry(kind: u32, [offset, at, bytes, room]: [u64; 4]) -> Vec<u8> {
        let mut entry = vec![0; ENTRY];
        entry[..4].copy_from_slice(&kind.to_le_bytes());
        entry[4] = 5;
        for (place, value) in [(8, offset), (16, at), (32, bytes), (40, room)] {
            entry[place..place + 8].copy_from_slice(&value.to_le_bytes());
        }
        entry
    }

    fn planned(entries: &[[u64; 4]], file_len: u64) -> Result<Plan, Errno> {
        let table: Vec<u8> = entries.iter().flat_map(|&e| entry(1, e)).collect();
        let header = Header { count: entries.len(), ..Header::parse(&header()).unwrap() };
        plan(&header, &table, file_len)
    }

    #[test]
    fn a_sound_program_is_read() {
        let found = Header::parse(&header()).unwrap();
        assert_eq!(found, Header { entry: 0x40_1000, anywhere: false, table: 64, count: 1 });
        let plan =
            planned(&[[0, 0x40_0000, 0x2000, 0x2345], [0x2400, 0x40_3400, 0x10, 0x10_0000]], 0x3000).unwrap();
        assert_eq!(plan.bounds(), (0x40_0000, 0x50_4000));
        assert_eq!(plan.table, 0x40_0040);
        assert!(plan.segments[0].execute && !plan.segments[0].write);
    }

    #[test]
    fn a_file_that_is_cut_off_anywhere_is_no_program() {
        let whole = header();
        for len in 0..HEADER {
            assert_eq!(Header::parse(&whole[..len]), Err(Errno::ENOEXEC), "{len} bytes");
        }
        let table = entry(1, [0, 0x40_0000, 0x2000, 0x2000]);
        let header = Header::parse(&whole).unwrap();
        for len in 0..ENTRY {
            assert_eq!(plan(&header, &table[..len], 0x2000), Err(Errno::ENOEXEC), "{len} bytes of the table");
        }
        // The segment ends where the file does, and not a byte later.
        assert!(plan(&header, &table, 0x2000).is_ok());
        assert_eq!(plan(&header, &table, 0x1fff), Err(Errno::ENOEXEC));
    }

    #[test]
    fn another_kind_of_file_is_no_program() {
        for (place, value) in
            [(0, b'x'), (4, 1), (5, 2), (6, 9), (16, 1), (16, 4), (18, 3), (54, 32), (56, 0), (56, 200)]
        {
            let mut bytes = header();
            bytes[place] = value;
            assert_eq!(Header::parse(&bytes), Err(Errno::ENOEXEC), "{value} at {place}");
        }
    }

    #[test]
    fn absurd_sizes_are_no_program() {
        let wrong = [
            [0, 0x40_0000, 0x2000, 0x1fff],      // more from the file than there is room
            [0, 0x40_0001, 0x2000, 0x2000],      // not the same place in its page
            [0, 0x40_0000, 0x10, u64::MAX],      // wraps
            [0, !4095, 0x10, 0x10],              // beyond addresses
            [0, (1 << 47) - 8192, 0x10, 0x2000], // reaches the last page
            [!4095, 0x40_0000, 0x2000, 0x2000],  // wraps in the file
        ];
        for segment in wrong {
            assert_eq!(planned(&[segment], 0x2000), Err(Errno::ENOEXEC), "{segment:x?}");
        }
        // Out of order, and in one page.
        let first = [0, 0x40_0000, 0x10, 0x10];
        assert_eq!(planned(&[first, [0x20, 0x40_0020, 8, 8]], 0x2000), Err(Errno::ENOEXEC));
        assert_eq!(planned(&[first, [0, 0x30_0000, 8, 8]], 0x2000), Err(Errno::ENOEXEC));
        assert_eq!(planned(&[], 0x2000), Err(Errno::ENOEXEC));
    }

    #[test]
    fn an_interpreters_name_lies_in_the_file() {
        let header = Header { count: 2, ..Header::parse(&header()).unwrap() };
        let with = |name: [u64; 4]| {
            let table: Vec<u8> =
                [entry(1, [0, 0x40_0000, 0x10, 0x10]), entry(3, name)].into_iter().flatten().collect();
            plan(&header, &table, 0x1000).map(|plan| plan.interpreter)
        };
        assert_eq!(with([0x100, 0, 28, 28]), Ok(Some((0x100, 28))));
        for wrong in [[0x100, 0, 1, 1], [0xff8, 0, 9, 9], [u64::MAX, 0, 9, 9], [0, 0, 5000, 5000]] {
            assert_eq!(with(wrong), Err(Errno::ENOEXEC), "{wrong:x?}");
        }
    }

    #[test]
    fn a_stack_is_executed_only_where_the_program_says_so() {
        let header = Header { count: 2, ..Header::parse(&header()).unwrap() };
        let with = |flags: Option<u8>| {
            let mut stack = entry(0x6474_e551, [0; 4]);
            match flags {
                Some(flags) => stack[4] = flags,
                None => stack[0] = 0,
            }
            let table = [entry(1, [0, 0x40_0000, 0x10, 0x10]), stack].concat();
            plan(&header, &table, 0x1000).unwrap().stack_execute
        };
        assert_eq!([None, Some(6), Some(7)].map(with), [false, false, true]);
    }

    #[test]
    fn whatever_a_file_says_it_is_refused_or_lies_where_it_may() {
        const FILE: u64 = 0x3000;
        let mut state = 1_u64;
        let mut draw = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        let (mut taken, mut refused) = (0, 0);
        for round in 0..200_000 {
            let mut first = header();
            first[56] = 3;
            let mut table: Vec<u8> = [
                entry(1, [0, 0x40_0000, 0x2000, 0x2345]),
                entry(1, [0x2400, 0x40_3400, 0x10, 0x10_0000]),
                entry(3, [0x100, 0, 28, 28]),
            ]
            .concat();
            for _ in 0..1 + draw() % 4 {
                let at = draw() as usize % (first.len() + table.len());
                let value = [0, 0xff, draw() as u8][draw() as usize % 3];
                *first.iter_mut().chain(&mut table).nth(at).unwrap() = value;
            }
            let Ok(found) = Header::parse(&first).and_then(|header| plan(&header, &table, FILE)) else {
                refused += 1;
                continue;
            };
            taken += 1;
            let mut end = 0;
            for segment in &found.segments {
                let Segment { at, offset, bytes, room, .. } = *segment;
                assert!(offset + bytes <= FILE && bytes <= room && room > 0, "round {round}: {segment:x?}");
                assert!(at & !4095 >= end && at + room <= END, "round {round}: {segment:x?} after {end:#x}");
                assert_eq!(at % 4096, offset % 4096, "round {round}");
                end = (at + room).next_multiple_of(4096);
            }
            if let Some((at, bytes)) = found.interpreter {
                assert!(at + bytes as u64 <= FILE && bytes > 1, "round {round}");
            }
        }
        assert!(taken > 10_000 && refused > 10_000, "{taken} taken, {refused} refused");
    }
}
