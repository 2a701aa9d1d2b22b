//! FNV-1a, 64 bits: five lines, no table.
//!
//! Each step (exclusive or, then a multiplication by an odd number) is a bijection of the state, so any change
//! confined to one byte changes the sum. It guards against damage, not against malice: a forged file with a
//! right sum is caught, where it matters, by the bounds that [`super::Trace::parse`] checks.

/// A checksum under way.
#[derive(Clone, Copy, Debug)]
pub struct Checksum(u64);

impl Checksum {
    pub(super) const fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    pub(super) fn add(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }

    pub(super) const fn value(self) -> u64 {
        self.0
    }

    /// The sum of several pieces, one after the other.
    #[must_use]
    pub fn of(pieces: &[&[u8]]) -> u64 {
        let mut sum = Self::new();
        for piece in pieces {
            sum.add(piece);
        }
        sum.value()
    }
}
