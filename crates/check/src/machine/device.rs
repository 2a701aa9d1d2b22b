//! What keeps pages: it takes as long as the schedule lets it, and fails where the schedule says so.

use std::ops::Range;

use quietmm::FileId;
use quietmm::addr::FrameNumber;
use quietmm::platform::{BlockDevice, DeviceError, Store, WriteRefused};

use super::{Content, Machine, Place, What};
use crate::act::Act;
use crate::violation::Violation;

impl Machine {
    /// Whether the device fails here.
    fn device_fails(&self) -> bool {
        if !self.running.get() || !self.setup.devices_fail {
            return false;
        }
        let ordinary = Act::run(self.current.get());
        let act = self.driver.borrow_mut().decide(ordinary.bit() | Act::DEVICE_FAILS.bit(), ordinary);
        act == Act::DEVICE_FAILS
    }

    /// Whoever asks a swap device for something asks one that is on, for a page that it has.
    fn judge_asked(&self, store: Store, block: u64) {
        let Store::Swap(device) = store else { return };
        let has = self.devices.borrow().get(&device).copied().unwrap_or(0);
        if block >= has {
            let said = format!("page {block} is asked of swap device {device}, which has {has}");
            self.fail(Violation::new("promise", self.current.get(), said));
        }
    }

    /// A page of a watched file, to which only programs write, is out: if it has changed, the file system had been asked. Whoever writes
    /// to it from here on asks anew.
    fn judge_leave(&self, to: Store, block: u64, content: &Content) {
        let asked = self.leave.borrow_mut().remove(&(to, block));
        let Store::File(file) = to else { return };
        let before = self.disk.borrow().get(&(to, block)).copied().unwrap_or_default();
        if !asked && before != *content && self.asking.borrow().contains(&file) {
            let said = format!("page {block} of {file:?} was written to, and its file system was not asked");
            self.fail(Violation::new("promise", self.current.get(), said));
        }
    }

    fn going_out(&self, frame: FrameNumber, by: i32) {
        if let Some(state) = self.memory.state(frame) {
            state.going_out.set(state.going_out.get().wrapping_add_signed(by));
        }
    }
}

impl BlockDevice for Machine {
    fn read(&self, from: Store, block: u64, frame: FrameNumber) -> Result<(), DeviceError> {
        self.point(Place::Disk, false);
        self.judge_asked(from, block);
        let fails = self.device_fails();
        let set = |content| self.memory.state(frame).into_iter().for_each(|state| state.content.set(content));
        // Until it is there, and for good if it fails, there is something else.
        set([u64::MAX; super::LANES]);
        self.point(Place::Disk, false);
        if !fails {
            set(self.disk.borrow().get(&(from, block)).copied().unwrap_or_default());
        }
        (0..self.setup.cpus).for_each(|lane| self.record(Place::Content(frame.0, lane), true));
        self.note(|| What::IsIn(from, block, !fails));
        // What was read is the page that was there; `set_holds` is for what takes its place.
        self.memory
            .state(frame)
            .into_iter()
            .for_each(|state| state.holds.set((!fails).then_some((from, block))));
        if fails {
            self.device_errors.set(self.device_errors.get() + 1);
            return Err(DeviceError::Failed);
        }
        Ok(())
    }

    fn write(&self, to: Store, block: u64, frame: FrameNumber) -> Result<(), DeviceError> {
        self.point(Place::Disk, true);
        self.judge_asked(to, block);
        self.note(|| What::GoesOut(to, block, frame));
        let content = self.memory.state(frame).map(|state| state.content.get()).unwrap_or_default();
        let device_wrote = || self.memory.state(frame).is_some_and(|state| state.device_wrote.replace(false));
        device_wrote();
        self.going_out(frame, 1);
        self.judge_going_out(frame);
        let fails = self.device_fails();
        self.point(Place::Disk, true);
        (0..self.setup.cpus).for_each(|lane| self.record(Place::Content(frame.0, lane), false));
        let after = self.memory.state(frame).map(|state| state.content.get()).unwrap_or_default();
        // What another device writes through a pin is written out again when that is through.
        if after != content && !device_wrote() {
            let said = format!("{frame:?} changed while a device read it");
            self.fail(Violation::new("INV-2", self.current.get(), said));
        }
        self.going_out(frame, -1);
        self.note(|| What::IsOut(to, block, !fails));
        if fails {
            self.device_errors.set(self.device_errors.get() + 1);
            return Err(DeviceError::Failed);
        }
        self.judge_leave(to, block, &content);
        self.disk.borrow_mut().insert((to, block), content);
        self.memory.set_holds(frame, to, block);
        Ok(())
    }
    fn forget(&self, _store: Store, _block: u64) {
        self.point(Place::Disk, true);
    }
    fn discard(&self, file: FileId, blocks: Range<u64>) -> Result<(), DeviceError> {
        self.point(Place::Disk, true);
        let here = |&(store, block): &(Store, u64)| store == Store::File(file) && blocks.contains(&block);
        self.disk.borrow_mut().retain(|key, _| !here(key));
        self.leave.borrow_mut().retain(|key| !here(key));
        Ok(())
    }
    fn page_mkwrite(&self, file: FileId, block: u64) -> Result<(), WriteRefused> {
        self.point(Place::Disk, true);
        self.leave.borrow_mut().insert((Store::File(file), block));
        Ok(())
    }
    fn end(&self, store: Store) {
        if let Store::Swap(device) = store {
            self.devices.borrow_mut().remove(&device);
        }
        self.disk.borrow_mut().retain(|key, _| key.0 != store);
        self.memory.end_store(store);
    }
}
