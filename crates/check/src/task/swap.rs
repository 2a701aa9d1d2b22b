//! What a script can do with swap devices.

use quietmm::{Config, Error};

use crate::task::Task;

/// The number of the first swap device.
pub const DEVICE: u32 = 7;
/// Pages of a device: the fewest that there may be.
pub const SLOTS: u64 = 512;

/// The manager may swap.
pub fn swapping(config: &mut Config) {
    config.swap = true;
}

impl Task<'_> {
    /// Begins to use a swap device of so many pages.
    pub fn swap_on(&self, device: u32, slots: u64) {
        self.machine.devices.borrow_mut().insert(device, slots);
        self.must("swap_on", |mm| mm.swap().on(device, slots, 0));
    }

    /// Brings back what is on a swap device, and uses it no more.
    pub fn swap_off(&self, device: u32) -> Result<(), Error> {
        self.call("swap_off", |mm| mm.swap().off(device))
    }

    /// Reclaims until pages of the `n`th space are out. Before the scripts begin: all memory that was free is the
    /// scenario's from then on.
    pub fn swap_out(&self, n: usize, page: u64, pages: u64) {
        self.settle();
        self.take_all_memory();
        let space = self.space(n);
        let is_out = |page| {
            self.mm().space(space).lookup(quietmm::PageNumber(page)).is_ok_and(|entry| entry.is_swapped())
        };
        while !(page..page + pages).all(is_out) {
            self.promise(self.reclaim(), "there is a page to be reclaimed");
        }
    }

    /// The same until so many pages of the `n`th file are out.
    pub fn swap_file_out(&self, n: usize, pages: u64) {
        self.settle();
        self.take_all_memory();
        let file = self.file(n);
        while self.mm().file(file).swapped_pages() != Ok(pages) {
            self.promise(self.reclaim(), "there is a page to be reclaimed");
        }
    }
}
