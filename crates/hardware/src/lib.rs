//! The abstract hardware under the simulator, the checker, the models and the core's tests: what every CPU of an
//! architecture does with page tables, and the memory in which they lie.
//!
//! | module | holds |
//! |---|---|
//! | [`mod@walk`] | the way from a top table to an entry |
//! | [`rules`] | what a CPU does with what it has cached, and with what a walk has found: a table for each architecture |
//! | [`arena`] | memory on the host, at physical addresses |
//!
//! What they differ in stays with them: the simulator adds what all this costs, the checker chooses what hardware does of
//! itself, and the models play each word under all orders that a CPU may see.

pub mod arena;
pub mod rules;
pub mod walk;

pub use arena::Arena;
pub use rules::{Access, Found, Hit, Rules};
pub use walk::{Leaf, walk};
