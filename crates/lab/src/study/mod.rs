//! What is run, and what came of it.
//!
//! A [`Study`] is a grid: workloads x machines x policies x seeds, made from a command line by `resolve.rs`. Each workload on each
//! machine is a [`Plan`], which runs where its [`Backend`] says. [`measure`] runs all of them, and
//! makes a [`Comparison`] of each plan: what every output is rendered from, and whose serialised form is the JSON.

pub mod account;
pub mod ask;
pub mod command;
pub mod file;
pub mod measure;
pub mod named;
pub mod plan;
mod resolve;
pub mod result;
pub mod sample;

pub use ask::{Ask, Form};
pub use named::Named;
pub use plan::{Backend, Plan, Study};
pub use result::{Comparison, Place, Run};
