//! All tests of this crate from outside, in one binary: the core is generic, and would be compiled anew for each.

mod document;
mod exhaustive;
mod files;
mod mutants;
mod refused;
mod sound;
