//! Tests of the core on this hardware: one a boot, chosen by `test=NAME`. With `break=RULE` a step of the core is left out,
//! and the test must fail: the negative control.

use quietmm::Error;
use quietmm_workloads::{Params, System};

use crate::platform::Metal;

/// The system that tests run on.
pub type Sys = System<'static, Metal<true>>;

/// A test.
pub struct Test {
    /// Its name.
    pub name: &'static str,
    /// Pages of the kernel range that it needs.
    pub kernel_pages: Option<u64>,
    /// Makes its tasks, which report what is wrong by `wrong_content`.
    pub set_up: fn(&Sys, &Params<'static>) -> Result<(), Error>,
}

impl Test {
    /// Tasks that it makes at most.
    pub fn tasks(&self, cpus: u32) -> u32 {
        2 * cpus + 2
    }
}

static ALL: &[Test] = &[];

/// A test by its name.
pub fn find(name: &str) -> Option<&'static Test> {
    ALL.iter().find(|test| test.name == name)
}
