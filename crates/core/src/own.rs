//! Words of one owner that others may look at.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

macro_rules! own {
    ($($(#[$doc:meta])* $name:ident($atomic:ty) is $int:ty;)*) => {$(
        $(#[$doc])*
        #[repr(transparent)]
        pub struct $name($atomic);

        impl $name {
            /// With this value.
            #[cfg(test)]
            pub const fn new(value: $int) -> Self {
                $name(<$atomic>::new(value))
            }

            #[inline(always)]
            pub fn get(&self) -> $int {
                // Relaxed: only the owner relies on it, and what it reads it has written itself.
                self.0.load(Ordering::Relaxed)
            }

            #[inline(always)]
            pub fn set(&self, value: $int) {
                // Relaxed: likewise.
                self.0.store(value, Ordering::Relaxed);
            }
        }
    )*};
}

own! {
    /// Like a `Cell`: only its owner, a CPU with its interrupts off, say, writes it and relies on it. Others may look, as
    /// [`Manager::validate`](crate::Manager::validate) does: a moment's truth, and no undefined behaviour. On all hardware it is a plain load or
    /// store, and so it is no step of a schedule either: what CPUs agree by are the words of `sync`.
    OwnU32(AtomicU32) is u32;
    /// The same of 64 bits.
    OwnU64(AtomicU64) is u64;
}
