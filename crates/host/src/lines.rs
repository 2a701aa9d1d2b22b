//! Lines of an input of any size, in bounded memory.
//!
//! `BufRead::read_until` would take a gigabyte without a line feed into memory. Here a line that is longer than
//! `LONGEST` keeps its beginning only: such a line is no access anyway.

use std::io::{BufRead, ErrorKind, Result};

/// A line of more bytes is not read to its end, which it may not have.
pub const ENDLESS: u64 = 64 << 20;

/// What is kept of a line, in bytes.
const LONGEST: usize = 64 * 1024;

/// The lines of an input, with the place that has been reached.
pub struct Lines<'a> {
    input: &'a mut dyn BufRead,
    carry: Vec<u8>,
    /// Bytes of the buffer that the line lent last still occupies.
    lent: usize,
    /// Lines begun, so the number of the current line, from 1.
    pub number: u64,
    /// Bytes read, up to the end of the current line.
    pub bytes: u64,
}

/// A line without its line feed.
pub struct Text<'a> {
    /// What it says.
    pub bytes: &'a [u8],
    /// The line ends with a line feed. If not, it is the last and the input is cut, or it is longer than [`ENDLESS`].
    pub complete: bool,
    /// How much of the line was read, its line feed too.
    pub length: u64,
}

impl<'a> Lines<'a> {
    /// None was read.
    pub fn new(input: &'a mut dyn BufRead) -> Self {
        Self { input, carry: Vec::new(), lent: 0, number: 0, bytes: 0 }
    }

    /// The next line, or `None` at the end.
    pub fn read(&mut self) -> Result<Option<Text<'_>>> {
        self.input.consume(std::mem::take(&mut self.lent));
        self.carry.clear();
        let (mut begun, before) = (false, self.bytes);
        loop {
            let length = self.bytes - before;
            if length > ENDLESS {
                return Ok(Some(Text { bytes: &self.carry, complete: false, length }));
            }
            let buffer = match self.input.fill_buf() {
                Ok(buffer) => buffer,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            if buffer.is_empty() {
                return Ok(begun.then_some(Text { bytes: &self.carry, complete: false, length }));
            }
            let end = buffer.iter().position(|&byte| byte == b'\n');
            let taken = end.map_or(buffer.len(), |end| end + 1);
            self.bytes += taken as u64;
            let length = self.bytes - before;
            if !begun {
                self.number += 1;
            }
            match end {
                // The usual case: the line lies in the buffer and is lent from there, not copied.
                Some(end) if !begun => {
                    self.lent = taken;
                    let buffer = self.input.fill_buf()?;
                    return Ok(Some(Text { bytes: &buffer[..end], complete: true, length }));
                }
                _ => {
                    let text = &buffer[..end.unwrap_or(taken)];
                    let room = LONGEST - self.carry.len();
                    self.carry.extend_from_slice(&text[..text.len().min(room)]);
                    self.input.consume(taken);
                    begun = true;
                    if end.is_some() {
                        return Ok(Some(Text { bytes: &self.carry, complete: true, length }));
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::BufReader;

    fn all(text: &[u8], buffer: usize) -> Vec<(Vec<u8>, bool, u64, u64)> {
        let mut input = BufReader::with_capacity(buffer, text);
        let mut lines = Lines::new(&mut input);
        let mut found = Vec::new();
        while let Some(line) = lines.read().unwrap() {
            let (bytes, complete) = (line.bytes.to_vec(), line.complete);
            found.push((bytes, complete, lines.number, lines.bytes));
        }
        found
    }

    #[test]
    fn lines_are_the_same_whatever_the_buffer() {
        let text = b"one\n\nthree and more\nfour";
        let expected = vec![
            (b"one".to_vec(), true, 1, 4),
            (b"".to_vec(), true, 2, 5),
            (b"three and more".to_vec(), true, 3, 20),
            (b"four".to_vec(), false, 4, 24),
        ];
        for buffer in 1..30 {
            assert_eq!(all(text, buffer), expected, "buffer of {buffer} bytes");
        }
        assert!(all(b"", 8).is_empty());
    }

    #[test]
    fn a_line_without_end_does_not_fill_the_memory() {
        let found = all(&vec![b'x'; 10 * LONGEST], 4096);
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].0.len(), found[0].1, found[0].3), (LONGEST, false, 10 * LONGEST as u64));
    }

    #[test]
    fn a_line_that_does_not_end_is_given_up() {
        let mut input = BufReader::with_capacity(1 << 20, std::io::repeat(b'x'));
        let mut lines = Lines::new(&mut input);
        let line = lines.read().unwrap().unwrap();
        assert_eq!((line.bytes.len(), line.complete), (LONGEST, false));
        assert!((ENDLESS..ENDLESS + (2 << 20)).contains(&line.length), "{}", line.length);
    }
}
