//! An array of zeros that takes the host's memory only where it is used: a machine of 16 TiB has 4 billion frames.

use std::cell::Cell;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

/// The array. Its length never changes.
pub struct Zeroed<T: Zero> {
    map: memmap2::MmapMut,
    len: usize,
    of: PhantomData<T>,
}

/// What may be made of zero bytes.
///
/// # Safety
/// All bytes 0 must be a valid value, which needs no drop, of an alignment of at most 4096.
pub unsafe trait Zero {}

// SAFETY: 0 is a `u32`.
unsafe impl Zero for u32 {}
// SAFETY: 0 is a `u64`.
unsafe impl Zero for u64 {}
// SAFETY: 0 is `false`, and a `Cell` has the layout of what it holds.
unsafe impl Zero for Cell<bool> {}
// SAFETY: 0 is a `u64`, and a `Cell` has the layout of what it holds.
unsafe impl Zero for Cell<u64> {}

impl<T: Zero> Zeroed<T> {
    /// `len` zeros.
    pub fn new(len: usize) -> std::io::Result<Zeroed<T>> {
        let bytes = (len * size_of::<T>()).max(1);
        let map = memmap2::MmapOptions::new().len(bytes).no_reserve_swap().map_anon()?;
        Ok(Zeroed { map, len, of: PhantomData })
    }
}

impl<T: Zero> Deref for Zeroed<T> {
    type Target = [T];
    #[inline]
    fn deref(&self) -> &[T] {
        // SAFETY: the map holds `len` of them, is page-aligned and lives as long as `self`; zeros are a `T`.
        unsafe { std::slice::from_raw_parts(self.map.as_ptr().cast(), self.len) }
    }
}

impl<T: Zero> DerefMut for Zeroed<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as above, and `self` is borrowed alone.
        unsafe { std::slice::from_raw_parts_mut(self.map.as_mut_ptr().cast(), self.len) }
    }
}
