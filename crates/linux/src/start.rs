//! The stack on which a program begins: arguments, environment, and what the kernel tells it of itself.

use alloc::vec::Vec;
use core::ops::Range;

use crate::errno::Errno;

/// A word that the kernel tells a program, by a number of `elf.h`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
#[allow(missing_docs)]
pub enum Aux {
    Table = 3,
    EntryBytes = 4,
    Entries = 5,
    PageBytes = 6,
    Base = 7,
    Entry = 9,
    User = 11,
    EffectiveUser = 12,
    Group = 13,
    EffectiveGroup = 14,
    Hardware = 16,
    Ticks = 17,
    Secure = 23,
    Random = 25,
    Name = 31,
    Platform = 15,
}

/// Bytes that arguments and environment may have together.
pub const MOST: usize = 2 << 20;

/// What a stack holds at a program's start, and where it points.
pub struct Start {
    /// From `pointer` up to the stack's end.
    pub bytes: Vec<u8>,
    /// The stack pointer.
    pub pointer: u64,
    /// The words about itself, as they lie there.
    pub aux: Vec<u8>,
    /// Where the texts of its arguments lie, and those of its environment.
    pub arguments: Range<u64>,
    /// They come right behind.
    pub environment: Range<u64>,
}

/// Packs a stack that ends at `end`. `Aux::Random`, `Aux::Name` and `Aux::Platform` are added here.
///
/// # Errors
/// `E2BIG`.
pub fn pack(
    end: u64,
    arguments: &[Vec<u8>],
    environment: &[Vec<u8>],
    name: &[u8],
    random: [u8; 16],
    aux: &[(Aux, u64)],
) -> Result<Start, Errno> {
    let strings: usize = arguments.iter().chain(environment).map(|text| text.len() + 1 + 8).sum();
    if strings > MOST {
        return Err(Errno::E2BIG);
    }
    // Downwards: a word of zeros, texts, random bytes; then, aligned, the words.
    let mut upper: Vec<u8> = Vec::new();
    let mut places = Vec::new();
    let texts = [name, b"x86_64"];
    for text in texts.into_iter().chain(arguments.iter().chain(environment).map(Vec::as_slice)) {
        places.push(upper.len() as u64);
        upper.extend_from_slice(text);
        upper.push(0);
    }
    let random_at = upper.len() as u64;
    upper.extend_from_slice(&random);
    upper.resize((upper.len() + 8).next_multiple_of(16), 0);
    let base = end - upper.len() as u64;
    let place = |index: usize| base + places.get(index).copied().unwrap_or(random_at);
    let split = place(texts.len() + arguments.len());
    let (arguments_at, environment_at) = (place(texts.len())..split, split..base + random_at);

    let mut words = Vec::new();
    words.push(arguments.len() as u64);
    words.extend((0..arguments.len()).map(|i| place(texts.len() + i)));
    words.push(0);
    words.extend((0..environment.len()).map(|i| place(texts.len() + arguments.len() + i)));
    words.push(0);
    let aux_at = words.len();
    let own = [(Aux::Random, base + random_at), (Aux::Name, place(0)), (Aux::Platform, place(1))];
    for &(key, value) in aux.iter().chain(&own) {
        words.extend([key as u64, value]);
    }
    words.extend([0, 0]);
    if !words.len().is_multiple_of(2) {
        words.push(0);
    }
    let pointer = base - 8 * words.len() as u64;
    let told: Vec<u8> = words[aux_at..].iter().flat_map(|word| word.to_le_bytes()).collect();
    let mut bytes: Vec<u8> = words.into_iter().flat_map(u64::to_le_bytes).collect();
    bytes.extend_from_slice(&upper);
    Ok(Start { bytes, pointer, aux: told, arguments: arguments_at, environment: environment_at })
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    const END: u64 = 0x7fff_ffff_f000;

    struct Stack(Start);

    impl Stack {
        fn word(&self, at: u64) -> u64 {
            let at = (at - self.0.pointer) as usize;
            u64::from_le_bytes(self.0.bytes[at..at + 8].try_into().unwrap())
        }
        fn text(&self, at: u64) -> &[u8] {
            let bytes = &self.0.bytes[(at - self.0.pointer) as usize..];
            bytes.split(|&byte| byte == 0).next().unwrap()
        }
    }

    #[test]
    fn a_program_finds_all_that_it_was_given() {
        for extra in 0..17 {
            let arguments = [b"sort".to_vec(), vec![b'a'; extra], b"".to_vec()];
            let environment = [b"PATH=/bin".to_vec()];
            let start =
                pack(END, &arguments, &environment, b"/bin/sort", [7; 16], &[(Aux::Entry, 0x1234)]).unwrap();
            assert_eq!(start.pointer % 16, 0);
            assert_eq!(start.pointer + start.bytes.len() as u64, END);
            let stack = Stack(start);
            let at = stack.0.pointer;
            assert_eq!(stack.word(at), 3);
            for (i, argument) in arguments.iter().enumerate() {
                assert_eq!(stack.text(stack.word(at + 8 + 8 * i as u64)), argument);
            }
            assert_eq!(stack.word(at + 32), 0);
            assert_eq!(stack.text(stack.word(at + 40)), b"PATH=/bin");
            assert_eq!(stack.word(at + 48), 0);
            assert_eq!(stack.0.arguments, stack.word(at + 8)..stack.word(at + 40));
            assert_eq!(stack.0.environment.end - stack.0.environment.start, 10);
            let mut aux = alloc::collections::BTreeMap::new();
            let mut place = at + 56;
            while stack.word(place) != 0 {
                aux.insert(stack.word(place), stack.word(place + 8));
                place += 16;
            }
            assert_eq!(aux[&9], 0x1234);
            assert_eq!(stack.text(aux[&31]), b"/bin/sort");
            assert_eq!(stack.text(aux[&15]), b"x86_64");
            assert_eq!(stack.word(aux[&25] & !7).to_le_bytes()[(aux[&25] & 7) as usize], 7);
        }
    }

    #[test]
    fn too_much_is_refused() {
        let pack = |bytes| pack(END, &[vec![b'a'; bytes]], &[], b"", [0; 16], &[]);
        assert!(pack(MOST - 9).is_ok());
        assert_eq!(pack(MOST).err(), Some(Errno::E2BIG));
    }
}
