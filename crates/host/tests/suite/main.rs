//! All tests of this crate from outside, in one binary.

mod assemble;
mod blame;
mod import;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod measure;
mod own;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod record;
