//! Where work runs: on a simulated machine, on one that boots, or on both.

pub mod beside;
pub mod metal;
pub mod recorded;
pub mod sim;

pub use beside::Beside;
