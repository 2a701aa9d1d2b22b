//! The machine's disk.

use std::ops::Range;

use quietmm::Platform;
use quietmm::addr::{FrameNumber, Nanos};
use quietmm::platform::{BlockDevice, DeviceError, Store, WaitKey};
use quietmm_workloads::Machine as _;

use crate::sim::Sim;

/// Keys of those who wait for a command.
pub(crate) const COMMANDS: Range<u64> = 1 << 32..1 << 48;

impl<const FAULTS: bool> Sim<'_, FAULTS> {
    /// Waits for one command of the disk.
    pub(crate) fn command(&self, latency: u64) {
        let now = self.cpu().now.get();
        let done = {
            let mut slots = self.disk.borrow_mut();
            let slot = slots.iter_mut().min_by_key(|free_at| **free_at).expect("a disk takes commands");
            *slot = now.max(*slot) + latency + 4096 * 1_000_000_000_000 / self.machine.device.bandwidth;
            *slot
        };
        self.io.set(self.io.get() + 1);
        let (done, key) = (Nanos(done.div_ceil(1000)), WaitKey::Own(COMMANDS.start | self.io.get()));
        self.alarm(done, key);
        self.wait(key, &mut || self.now() >= done);
    }
}

/// The disk: `parallel` commands at once, each with its latency and its share of the bandwidth.
///
/// It moves a page's content at some moment of the command; here at its end, the worst for whoever lets the page
/// change meanwhile.
impl<const FAULTS: bool> BlockDevice for Sim<'_, FAULTS> {
    fn read(&self, from: Store, block: u64, frame: FrameNumber) -> Result<(), DeviceError> {
        let known = self.written.borrow().contains_key(&(from, block));
        if known {
            self.command(self.machine.device.read_latency);
            let content = self.written.borrow().get(&(from, block)).copied().unwrap_or(0);
            self.set_content(frame, content);
        } else {
            self.clear_frame(frame); // a hole
        }
        Ok(())
    }
    fn forget(&self, _store: Store, _block: u64) {
        self.unmodelled(self.machine.cost.other_kernel_work_goes);
    }
    fn end(&self, store: Store) {
        self.written.borrow_mut().retain(|(of, _), _| *of != store);
    }
    fn write(&self, to: Store, block: u64, frame: FrameNumber) -> Result<(), DeviceError> {
        self.command(self.machine.device.write_latency);
        self.written.borrow_mut().insert((to, block), self.content(frame));
        Ok(())
    }
}
