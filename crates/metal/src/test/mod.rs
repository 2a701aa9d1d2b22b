//! Tests of the core on this hardware: one a boot, chosen by `test=NAME`. With `break=RULE` a step of the core is left out,
//! and the test must fail: the negative control. `crates/metal/tests` says which are run how.

mod accessed;
mod away;
mod ends;
mod execute;
mod kernel;
mod large_file;
mod reclaim;
mod stretches;
mod team;
mod unmap;

use quietmm::Error;
use quietmm_workloads::{Params, System};

use crate::platform::Metal;

/// The system that tests run on.
pub type Sys = System<'static, Metal<true>>;

type SetUp = fn(&Sys, &Params<'static>) -> Result<(), Error>;

/// A test.
pub struct Test {
    /// Its name.
    pub name: &'static str,
    /// Pages of the kernel range that it needs.
    pub kernel_pages: Option<u64>,
    /// Whether pages of files that were never written are made up.
    pub tags: bool,
    /// Whether anonymous pages can go to swap, and the groups that there may be.
    pub swap: (bool, u32),
    /// Makes its tasks, which report what is wrong by `wrong_content`.
    pub set_up: SetUp,
}

impl Test {
    const fn new(name: &'static str, set_up: SetUp) -> Test {
        Test { name, kernel_pages: None, tags: false, swap: (false, 0), set_up }
    }

    /// Tasks that it makes at most.
    pub fn tasks(&self, cpus: u32) -> u32 {
        cpus + 2
    }
}

static ALL: &[Test] = &[
    Test::new("stale-unmap", unmap::stale),
    Test::new("clean-write", unmap::clean_write),
    Test::new("dirty-write", unmap::dirty_write),
    Test::new("execute", execute::rights),
    Test::new("large-file", large_file::loses_a_page),
    Test { tags: true, ..Test::new("batch", reclaim::batch) },
    Test::new("write-back", reclaim::write_back),
    Test::new("accessed-first", accessed::first),
    Test::new("accessed-first-unflushed", accessed::first_unflushed),
    Test::new("accessed-taken", accessed::taken),
    Test::new("accessed-taken-unflushed", accessed::taken_unflushed),
    Test::new("sweep", accessed::sweep),
    Test::new("lazy-sweep", accessed::lazy_sweep),
    Test::new("lazy", away::lazy),
    Test::new("hotplug", away::hotplug),
    Test::new("late", away::late),
    Test { kernel_pages: Some(kernel::PAGES), ..Test::new("vunmap", kernel::vunmap) },
    Test {
        kernel_pages: Some(stretches::KERNEL_PAGES),
        swap: (true, 1),
        ..Test::new("stretches", stretches::all_that_is_long)
    },
    Test::new("panics", ends::panics),
    Test::new("overflow", ends::overflow),
];

/// A test by its name.
pub fn find(name: &str) -> Option<&'static Test> {
    ALL.iter().find(|test| test.name == name)
}
