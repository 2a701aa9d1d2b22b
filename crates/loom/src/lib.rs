//! The core's orderings under `loom`: a machine whose shared words a model checker owns.
//!
//! It runs the *real* core. With `--cfg loom` each step on a shared word and each full fence goes to the platform
//! (`quietmm::step`), and `Machine` plays it on a word of `loom`'s. So a load may give any value that the C11 memory
//! model allows, in every interleaving that matters, and what the core keeps in raw memory (slots of CPUs, pools, page
//! tables) is modelled like anything else. Frames are cells that `loom` watches: a use of a frame that does not happen
//! before its next owner's first write is an error, whatever was read.
//!
//! | module | holds |
//! |---|---|
//! | `machine` | memory, TLBs, interrupts and sleep: the `Platform` |
//! | `words` | the words, and orderings that are taken out by their place in the source |
//! | `case` | what many cases begin with |
//! | `model` | a case: what is prepared, what each CPU does, and how it is checked |
//!
//! `scripts/loom` runs it; `docs/checking.md` says what is checked, and what that cannot see. Without the flag the crate is empty.

#![cfg(loom)]

pub mod case;
pub mod machine;
pub mod model;
pub mod words;

pub use machine::{Machine, Mm, Setup};
pub use model::{Fault, Model};
