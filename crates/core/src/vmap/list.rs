//! Lists of handles that are joined in one step, under somebody's lock. First in, first out: what comes round in equal times
//! stays in the cache longer than what lies at the bottom of a pile.

use crate::platform::Platform;
use crate::sync::Word32;

/// Handles, plus one, from the first to the last. Where a handle's link is, the caller says.
#[repr(C)]
#[derive(Default)]
pub(super) struct HandleList {
    pub first: Word32,
    /// Believed only where there is a first one.
    last: Word32,
}

impl HandleList {
    pub fn is_empty<P: Platform>(&self, p: &P) -> bool {
        self.first.get(p) == 0
    }

    /// Puts it behind all others; `link_of` says where a link is.
    pub fn push<'p, P: Platform>(&self, p: &P, link_of: impl Fn(u32) -> &'p Word32, handle: u32) {
        link_of(handle).set(p, 0);
        if self.is_empty(p) {
            self.first.set(p, handle + 1);
        } else {
            link_of(self.last.get(p) - 1).set(p, handle + 1);
        }
        self.last.set(p, handle + 1);
    }

    /// Takes the first one off.
    pub fn pop<'p, P: Platform>(&self, p: &P, link_of: impl Fn(u32) -> &'p Word32) -> Option<u32> {
        let handle = self.first.get(p).checked_sub(1)?;
        self.first.set(p, link_of(handle).get(p));
        Some(handle)
    }

    /// Takes all of another list, and puts it behind what is here.
    pub fn take_over<'p, P: Platform>(&self, p: &P, other: &HandleList, link_of: impl Fn(u32) -> &'p Word32) {
        let first = other.first.get(p);
        if first == 0 {
            return;
        }
        if self.is_empty(p) {
            self.first.set(p, first);
        } else {
            link_of(self.last.get(p) - 1).set(p, first);
        }
        self.last.set(p, other.last.get(p));
        other.first.set(p, 0);
    }

    /// Takes all: the first one, plus one.
    pub fn take_all<P: Platform>(&self, p: &P) -> u32 {
        let first = self.first.get(p);
        if first != 0 {
            self.first.set(p, 0);
        }
        first
    }

    /// Takes one out that fits, of the first so many; returns it, and what `fits` said, which gives the link too.
    pub fn take_one<'p, P: Platform, T>(
        &self,
        p: &P,
        looks: usize,
        fits: impl Fn(u32) -> (&'p Word32, Option<T>),
    ) -> Option<(u32, T)> {
        let (mut from, mut before) = (None, None);
        let mut next = self.first.get(p);
        for _ in 0..looks {
            let handle = next.checked_sub(1)?;
            let (link, found) = fits(handle);
            next = link.get(p);
            if let Some(found) = found {
                from.unwrap_or(&self.first).set(p, next);
                if let (0, Some(before)) = (next, before) {
                    self.last.set(p, before + 1);
                }
                return Some((handle, found));
            }
            (from, before) = (Some(link), Some(handle));
        }
        None
    }

    /// For a look at a quiet system.
    pub fn each<'p, P: Platform>(
        &self,
        p: &P,
        link_of: impl Fn(u32) -> &'p Word32,
        mut each: impl FnMut(u32),
    ) {
        let mut next = self.first.get(p);
        while let Some(handle) = next.checked_sub(1) {
            each(handle);
            next = link_of(handle).get(p);
        }
    }
}
