//! The one wrapper round memory that several CPUs share. Every access goes through [`Hooks::touch`].

#[cfg(not(loom))]
use core::sync::atomic::fence;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

#[cfg(loom)]
use super::modelled;
use crate::platform::{Access, Hooks};

macro_rules! word {
    ($name:ident, $atomic:ident, $int:ident, $about:literal) => {
        #[doc = $about]
        #[derive(Default)]
        #[repr(transparent)]
        pub struct $name($atomic);

        impl $name {
            /// With this value.
            pub const fn new(value: $int) -> Self {
                $name($atomic::new(value))
            }

            #[cfg(not(loom))]
            #[inline(always)]
            fn touch<P: Hooks>(&self, p: &P, access: Access) -> &$atomic {
                p.touch((&raw const self.0).cast(), access);
                &self.0
            }
            /// The same word, whose content a model may have.
            #[cfg(loom)]
            fn touch<'a, P: Hooks>(
                &'a self,
                p: &'a P,
                access: Access,
            ) -> modelled::Modelled<'a, P, $atomic, $int> {
                p.touch((&raw const self.0).cast(), access);
                modelled::Modelled::new(p, &self.0)
            }
            /// What lies there, unseen by the machine: for events, and for looks at what nobody else changes meanwhile.
            #[allow(dead_code, reason = "of one of the words")]
            #[inline(always)]
            pub(crate) fn unseen(&self) -> $int {
                self.0.load(Ordering::Relaxed)
            }
            /// Loads.
            #[cfg_attr(loom, track_caller)]
            #[inline(always)]
            pub fn load<P: Hooks>(&self, p: &P, order: Ordering) -> $int {
                self.touch(p, Access::Read).load(order)
            }
            /// Stores.
            #[cfg_attr(loom, track_caller)]
            #[inline(always)]
            pub fn store<P: Hooks>(&self, p: &P, value: $int, order: Ordering) {
                self.touch(p, Access::Write).store(value, order)
            }
            /// Loads under a lock or by the only writer.
            #[cfg_attr(loom, track_caller)]
            #[inline(always)]
            pub fn get<P: Hooks>(&self, p: &P) -> $int {
                self.load(p, Ordering::Relaxed)
            }
            /// Stores under a lock.
            #[cfg_attr(loom, track_caller)]
            #[inline(always)]
            pub fn set<P: Hooks>(&self, p: &P, value: $int) {
                self.store(p, value, Ordering::Relaxed)
            }
            /// Swaps.
            #[cfg_attr(loom, track_caller)]
            #[inline(always)]
            pub fn swap<P: Hooks>(&self, p: &P, value: $int, order: Ordering) -> $int {
                self.touch(p, Access::Rmw).swap(value, order)
            }
            /// Adds; returns what was there.
            #[cfg_attr(loom, track_caller)]
            #[inline(always)]
            pub fn fetch_add<P: Hooks>(&self, p: &P, value: $int, order: Ordering) -> $int {
                self.touch(p, Access::Rmw).fetch_add(value, order)
            }
            /// Subtracts; returns what was there.
            #[cfg_attr(loom, track_caller)]
            #[inline(always)]
            pub fn fetch_sub<P: Hooks>(&self, p: &P, value: $int, order: Ordering) -> $int {
                self.touch(p, Access::Rmw).fetch_sub(value, order)
            }
            /// Sets bits; returns what was there.
            #[cfg_attr(loom, track_caller)]
            #[inline(always)]
            pub fn fetch_or<P: Hooks>(&self, p: &P, value: $int, order: Ordering) -> $int {
                self.touch(p, Access::Rmw).fetch_or(value, order)
            }
            /// Keeps only these bits; returns what was there.
            #[cfg_attr(loom, track_caller)]
            #[inline(always)]
            pub fn fetch_and<P: Hooks>(&self, p: &P, value: $int, order: Ordering) -> $int {
                self.touch(p, Access::Rmw).fetch_and(value, order)
            }
            /// Raises to at least `value`; returns what was there.
            #[cfg_attr(loom, track_caller)]
            #[inline(always)]
            pub fn fetch_max<P: Hooks>(&self, p: &P, value: $int, order: Ordering) -> $int {
                self.touch(p, Access::Rmw).fetch_max(value, order)
            }
            /// Replaces `old` by `new`, or returns what is there instead. Relaxed on failure.
            #[cfg_attr(loom, track_caller)]
            #[inline(always)]
            pub fn replace<P: Hooks>(
                &self,
                p: &P,
                old: $int,
                new: $int,
                order: Ordering,
            ) -> Result<$int, $int> {
                self.touch(p, Access::Rmw).compare_exchange(old, new, order, Ordering::Relaxed)
            }
        }
    };
}

word!(Word32, AtomicU32, u32, "32 bits that several CPUs may use.");
word!(Word64, AtomicU64, u64, "64 bits that several CPUs may use.");

/// Orders a store before a load of something else, on all CPUs that do the same.
#[cfg_attr(loom, track_caller)]
#[inline(always)]
pub(crate) fn full_fence<P: Hooks>(p: &P) {
    #[cfg(not(loom))]
    {
        let _ = p;
        fence(Ordering::SeqCst);
    }
    #[cfg(loom)]
    p.model_fence();
}
