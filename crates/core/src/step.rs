//! Only with `--cfg loom`: the words that CPUs share, as steps that a model plays.
//!
//! A word keeps its layout, so that all that the core lays over raw memory stays as it ships. Its content may be somewhere
//! else: [`Hooks::model_step`](crate::platform::Hooks::model_step) says where, and knows the place in the source that asks.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// What is done to a word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// Loads.
    Load,
    /// Stores.
    Store(u64),
    /// Swaps.
    Swap(u64),
    /// Adds.
    Add(u64),
    /// Subtracts.
    Sub(u64),
    /// Sets bits.
    Or(u64),
    /// Keeps only these bits.
    And(u64),
    /// Raises to at least this.
    Max(u64),
    /// Replaces the first by the second. Relaxed on failure.
    Replace(u64, u64),
}

/// A word where the core has it.
#[derive(Clone, Copy)]
pub enum Shared<'a> {
    /// Of 32 bits.
    Narrow(&'a AtomicU32),
    /// Of 64 bits.
    Wide(&'a AtomicU64),
}

/// Plays a [`Step`](crate::step::Step) on an atomic word, whoever's it is: those of `core`, or a model's with the same methods.
#[macro_export]
macro_rules! play_step {
    ($word:ident, $step:ident, $order:ident, $int:ident) => {
        match $step {
            $crate::step::Step::Load => Ok(u64::from($word.load($order))),
            $crate::step::Step::Store(value) => {
                $word.store(value as $int, $order);
                Ok(0)
            }
            $crate::step::Step::Swap(value) => Ok(u64::from($word.swap(value as $int, $order))),
            $crate::step::Step::Add(value) => Ok(u64::from($word.fetch_add(value as $int, $order))),
            $crate::step::Step::Sub(value) => Ok(u64::from($word.fetch_sub(value as $int, $order))),
            $crate::step::Step::Or(value) => Ok(u64::from($word.fetch_or(value as $int, $order))),
            $crate::step::Step::And(value) => Ok(u64::from($word.fetch_and(value as $int, $order))),
            $crate::step::Step::Max(value) => Ok(u64::from($word.fetch_max(value as $int, $order))),
            $crate::step::Step::Replace(old, new) => $word
                .compare_exchange(old as $int, new as $int, $order, ::core::sync::atomic::Ordering::Relaxed)
                .map(u64::from)
                .map_err(u64::from),
        }
    };
}

impl Shared<'_> {
    /// Where it lies.
    pub fn at(&self) -> *const u8 {
        match self {
            Shared::Narrow(word) => (&raw const **word).cast(),
            Shared::Wide(word) => (&raw const **word).cast(),
        }
    }

    /// Plays the step on the word itself; returns what was there.
    ///
    /// # Errors
    /// What the word holds, where [`Step::Replace`] found something else.
    pub fn play(self, step: Step, order: Ordering) -> Result<u64, u64> {
        match self {
            Shared::Narrow(word) => play_step!(word, step, order, u32),
            Shared::Wide(word) => play_step!(word, step, order, u64),
        }
    }
}

impl<'a> From<&'a AtomicU32> for Shared<'a> {
    fn from(word: &'a AtomicU32) -> Self {
        Shared::Narrow(word)
    }
}

impl<'a> From<&'a AtomicU64> for Shared<'a> {
    fn from(word: &'a AtomicU64) -> Self {
        Shared::Wide(word)
    }
}
