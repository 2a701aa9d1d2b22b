//! Only with `--cfg loom`: a word in the hands of a model has the methods of an atomic.

use core::marker::PhantomData;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::platform::Hooks;
use crate::step::Step;

/// A word in the hands of a model: it has the methods of an atomic.
pub(super) struct Modelled<'a, P, A, I> {
    p: &'a P,
    word: &'a A,
    holds: PhantomData<I>,
}

impl<'a, P, A, I> Modelled<'a, P, A, I> {
    pub fn new(p: &'a P, word: &'a A) -> Self {
        Modelled { p, word, holds: PhantomData }
    }
}

macro_rules! methods {
    ($atomic:ident, $int:ident) => {
        #[allow(dead_code, reason = "the words have no use for all of them yet")]
        impl<P: Hooks> Modelled<'_, P, $atomic, $int> {
            #[track_caller]
            fn step(&self, step: Step, order: Ordering) -> $int {
                self.p.model_step(self.word.into(), step, order).expect("only a replacement can fail") as $int
            }
            #[track_caller]
            pub fn load(&self, order: Ordering) -> $int {
                self.step(Step::Load, order)
            }
            #[track_caller]
            pub fn store(&self, value: $int, order: Ordering) {
                self.step(Step::Store(value.into()), order);
            }
            #[track_caller]
            pub fn swap(&self, value: $int, order: Ordering) -> $int {
                self.step(Step::Swap(value.into()), order)
            }
            #[track_caller]
            pub fn fetch_add(&self, value: $int, order: Ordering) -> $int {
                self.step(Step::Add(value.into()), order)
            }
            #[track_caller]
            pub fn fetch_sub(&self, value: $int, order: Ordering) -> $int {
                self.step(Step::Sub(value.into()), order)
            }
            #[track_caller]
            pub fn fetch_or(&self, value: $int, order: Ordering) -> $int {
                self.step(Step::Or(value.into()), order)
            }
            #[track_caller]
            pub fn fetch_and(&self, value: $int, order: Ordering) -> $int {
                self.step(Step::And(value.into()), order)
            }
            #[track_caller]
            pub fn fetch_max(&self, value: $int, order: Ordering) -> $int {
                self.step(Step::Max(value.into()), order)
            }
            #[track_caller]
            pub fn compare_exchange(
                &self,
                old: $int,
                new: $int,
                order: Ordering,
                _failure: Ordering,
            ) -> Result<$int, $int> {
                let played =
                    self.p.model_step(self.word.into(), Step::Replace(old.into(), new.into()), order);
                played.map(|was| was as $int).map_err(|is| is as $int)
            }
        }
    };
}

methods!(AtomicU32, u32);
methods!(AtomicU64, u64);
