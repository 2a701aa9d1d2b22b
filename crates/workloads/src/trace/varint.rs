//! Variable-length integers: seven bits a byte, low bits first, the top bit says that more follow.
//!
//! Only the shortest form is read. Otherwise one trace could be written in many ways, and "the same
//! work" could no longer be told by comparing bytes.

use super::error::Fault;

/// The longest form of a `u64`.
pub(super) const MAX_BYTES: usize = 10;

/// One integer, written; at most [`MAX_BYTES`] long.
#[derive(Clone, Copy, Debug)]
pub(super) struct Varint {
    bytes: [u8; MAX_BYTES],
    length: usize,
}

impl Varint {
    pub(super) fn new(mut value: u64) -> Self {
        let mut bytes = [0; MAX_BYTES];
        let mut length = 0;
        for byte in &mut bytes {
            length += 1;
            *byte = (value & 0x7f) as u8;
            value >>= 7;
            if value == 0 {
                break;
            }
            *byte |= 0x80;
        }
        Self { bytes, length }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

/// Reads one integer at `*at` and moves `*at` behind it. On an error `*at` is the byte that is wrong.
pub(super) fn read(bytes: &[u8], at: &mut usize) -> Result<u64, Fault> {
    let mut value = 0u64;
    for step in 0..MAX_BYTES {
        let Some(&byte) = bytes.get(*at) else { return Err(Fault::RecordCut) };
        let bits = u64::from(byte & 0x7f);
        let shift = 7 * step as u32;
        if (bits << shift) >> shift != bits {
            return Err(Fault::Integer);
        }
        value |= bits << shift;
        if byte & 0x80 == 0 {
            if byte == 0 && step > 0 {
                return Err(Fault::Integer);
            }
            *at += 1;
            return Ok(value);
        }
        if step + 1 == MAX_BYTES {
            return Err(Fault::Integer);
        }
        *at += 1;
    }
    Err(Fault::Integer)
}

/// Small numbers for small distances in either direction: 0, -1, 1, -2, 2 become 0, 1, 2, 3, 4.
pub(super) const fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

/// The inverse of [`zigzag`].
pub(super) const fn unzigzag(value: u64) -> i64 {
    ((value >> 1) as i64) ^ -((value & 1) as i64)
}
