//! The machine's block devices: one for files, and those for swap.
//!
//! Transfers of one call all begin at once, each on its device, and the call returns when all are done. Pages of one swap
//! device whose blocks are side by side go in one command of at most [`MOST_PAGES`], as a block layer merges them; pages of
//! files go one by one. Each command costs the CPU `io_submit` and, when it is done, an interrupt to the CPU that gave it, with
//! `io_complete`; the interrupt of a swap device serves all of that device's commands that are done by then, as NVMe does.
//!
//! A page's content moves at some moment of its command; here at the end of the call, the worst for whoever lets the
//! page change meanwhile. What a failed transfer leaves behind is garbage.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ops::Range;

use quietmm::FileId;
use quietmm::addr::{FrameNumber, Nanos};
use quietmm::platform::{BlockDevice, Cpus, DeviceError, Memory, Services, Store, Transfer, WaitKey};
use quietmm_workloads::Machine as _;

use crate::keys::{CALL, COMMAND};
use crate::order::NEVER;
use crate::sim::Sim;
use crate::ssd::{GARBAGE, MOST_PAGES, Way};

/// A command on its way.
pub(crate) struct Command {
    /// The call that it is part of.
    call: u64,
    /// The swap device, if it is one.
    device: Option<u32>,
}

/// Commands and calls on their way, by number.
#[derive(Default)]
pub(crate) struct Flying {
    commands: BTreeMap<u64, Command>,
    /// Commands of each call that are not done.
    calls: BTreeMap<u64, u32>,
    last_call: u64,
    last_command: u64,
}

impl Flying {
    /// A call begins. It has one thing to do: to give all its commands.
    fn begin(&mut self) -> u64 {
        self.last_call += 1;
        self.calls.insert(self.last_call, 1);
        self.last_call
    }

    /// It gives a command.
    fn add(&mut self, call: u64, device: Option<u32>) -> u64 {
        self.last_command += 1;
        *self.calls.entry(call).or_default() += 1;
        self.commands.insert(self.last_command, Command { call, device });
        self.last_command
    }

    /// One thing that a call had to do is done; tells whether that was the last.
    fn end(&mut self, call: u64) -> bool {
        let Some(left) = self.calls.get_mut(&call) else { return false };
        *left -= 1;
        if *left == 0 {
            self.calls.remove(&call);
            return true;
        }
        false
    }
}

/// The number of the command whose end an alarm with this key is.
fn command(key: WaitKey) -> Option<u64> {
    match key {
        WaitKey::Own(key) if key & !(COMMAND - 1) == COMMAND => Some(key - COMMAND),
        _ => None,
    }
}

impl<const FAULTS: bool> Sim<'_, FAULTS> {
    /// Moves pages, and waits until all are done.
    fn transfer(&self, all: &mut [Transfer], way: Way) {
        let mut order: Vec<usize> = (0..all.len()).collect();
        order.sort_by_key(|&i| (all[i].store, all[i].block));
        let call = self.flying.borrow_mut().begin();
        let (mut at, mut last) = (0, 0);
        while at < order.len() {
            let first = &all[order[at]];
            let follows = |n: usize| {
                let next = order.get(at + n).map(|&i| &all[i]);
                next.is_some_and(|t| t.store == first.store && t.block == first.block + n as u64)
            };
            let ends = match first.store {
                Store::File(_) => self.file_command(&mut all[order[at]], way, call),
                Store::Swap(device) => {
                    let run = (1..MOST_PAGES).take_while(|&n| follows(n)).count();
                    let pages = &order[at..=at + run];
                    at += run;
                    self.swap_command(all, pages, device, way, call)
                }
            };
            last = last.max(ends);
            at += 1;
        }
        if !self.flying.borrow_mut().end(call) && last > 0 {
            let done = Nanos(last.div_ceil(1000));
            self.wait(WaitKey::Own(CALL | call), &mut || self.now() >= done);
        }
        for transfer in all {
            self.move_content(transfer, way);
        }
    }

    /// Gives a command to the device of files. Tells when it ends: 0 if there is nothing to wait for.
    fn file_command(&self, transfer: &mut Transfer, way: Way, call: u64) -> u64 {
        transfer.result = Ok(());
        let device = &self.machine.device;
        let latency = match way {
            Way::Out => device.write_latency,
            Way::In if self.written.borrow().contains_key(&(transfer.store, transfer.block)) => {
                device.read_latency
            }
            Way::In => {
                self.clear_frame(transfer.frame); // a hole
                return 0;
            }
        };
        self.charge(self.machine.cost.io_submit);
        let now = self.cpu().now.get();
        let ends = {
            let mut places = self.disk.borrow_mut();
            let place = places.iter_mut().min_by_key(|free_at| **free_at).expect("a disk takes commands");
            *place = now.max(*place) + latency + 4096 * 1_000_000_000_000 / device.bandwidth;
            *place
        };
        self.ends_at(ends, call, None);
        ends
    }

    /// Gives one command to a swap device, for pages side by side.
    fn swap_command(&self, all: &mut [Transfer], pages: &[usize], device: u32, way: Way, call: u64) -> u64 {
        self.charge(self.machine.cost.io_submit);
        let now = self.cpu().now.get();
        let mut ssds = self.ssds.borrow_mut();
        let given = ssds.get_mut(device as usize).filter(|ssd| !ssd.refuses(way, now));
        let Some(ssd) = given else {
            pages.iter().for_each(|&i| all[i].result = Err(DeviceError::Gone));
            if let Some(ssd) = ssds.get_mut(device as usize) {
                ssd.done.failed += pages.len() as u64;
            }
            return 0;
        };
        let ends = ssd.start(way, pages.len(), now);
        for &i in pages {
            all[i].result = ssd.fate(way, all[i].block, ends);
        }
        drop(ssds);
        self.ends_at(ends, call, Some(device));
        ends
    }

    /// The CPU's own cost of a command, where a machine has it apart.
    fn charge(&self, ps: u64) {
        if ps > 0 {
            self.advance(ps);
        }
    }

    /// When a command ends this CPU is interrupted.
    fn ends_at(&self, ends: u64, call: u64, device: Option<u32>) {
        let command = self.flying.borrow_mut().add(call, device);
        self.alarm(Nanos(ends.div_ceil(1000)), WaitKey::Own(COMMAND | command));
    }

    /// What a transfer that is over leaves in memory or on its device.
    fn move_content(&self, transfer: &Transfer, way: Way) {
        let Transfer { store, block, frame, result } = *transfer;
        match (store, way) {
            (Store::File(_), Way::In) => {
                if let Some(&content) = self.written.borrow().get(&(store, block)) {
                    self.set_content(frame, content);
                }
            }
            (Store::File(_), Way::Out) => {
                _ = self.written.borrow_mut().insert((store, block), self.content(frame))
            }
            (Store::Swap(device), _) => {
                let mut ssds = self.ssds.borrow_mut();
                let Some(ssd) = ssds.get_mut(device as usize) else { return };
                match (way, result) {
                    (Way::In, Ok(())) => self.set_content(frame, ssd.read(block)),
                    (Way::In, Err(_)) => self.set_content(frame, GARBAGE),
                    (Way::Out, Ok(())) => ssd.write(block, self.content(frame)),
                    (Way::Out, Err(DeviceError::Failed)) => ssd.write(block, GARBAGE),
                    (Way::Out, Err(DeviceError::Gone)) => {}
                }
            }
        }
    }

    /// An alarm of this CPU went off. If it is the end of a command, its interrupt is served; otherwise returns false.
    pub(crate) fn command_ended(&self, key: WaitKey) -> bool {
        let Some(mut number) = command(key) else { return false };
        let cpu = self.cpu();
        cpu.io_irqs.set(cpu.io_irqs.get() + 1);
        loop {
            self.charge(self.machine.cost.io_complete);
            let ended = self.flying.borrow_mut().commands.remove(&number);
            let Some(Command { call, device }) = ended else { return true };
            let last = self.flying.borrow_mut().end(call);
            if last {
                self.kernel().wake(WaitKey::Own(CALL | call));
            }
            match device.and_then(|device| self.next_ended(device, &cpu.now)) {
                Some(next) => number = next,
                None => return true,
            }
        }
    }

    /// Another command of the same device that has ended by now, on this CPU.
    fn next_ended(&self, device: u32, now: &Cell<u64>) -> Option<u64> {
        let cpu = self.cpu();
        let mut alarms = cpu.alarms.borrow_mut();
        let flying = self.flying.borrow();
        let of_device = |n: &u64| flying.commands.get(n).is_some_and(|c| c.device == Some(device));
        let due = alarms.iter().take_while(|(at, _)| *at <= now.get());
        let next = due.copied().find(|(_, key)| command(*key).is_some_and(|n| of_device(&n)))?;
        alarms.remove(&next);
        cpu.alarm_at.set(alarms.first().map_or(NEVER, |alarm| alarm.0));
        command(next.1)
    }
}

impl<const FAULTS: bool> BlockDevice for Sim<'_, FAULTS> {
    fn read(&self, from: Store, block: u64, frame: FrameNumber) -> Result<(), DeviceError> {
        let mut one = [Transfer::new(from, block, frame)];
        self.transfer(&mut one, Way::In);
        one[0].result
    }
    fn write(&self, to: Store, block: u64, frame: FrameNumber) -> Result<(), DeviceError> {
        let mut one = [Transfer::new(to, block, frame)];
        self.transfer(&mut one, Way::Out);
        one[0].result
    }
    fn read_all(&self, transfers: &mut [Transfer]) {
        self.transfer(transfers, Way::In);
    }
    fn write_all(&self, transfers: &mut [Transfer]) {
        self.transfer(transfers, Way::Out);
    }
    fn forget(&self, _store: Store, _block: u64) {
        self.unmodelled(self.machine.cost.other_kernel_work_goes);
    }
    fn discard(&self, file: FileId, blocks: Range<u64>) -> Result<(), DeviceError> {
        let here = |&(store, block): &(Store, u64)| store == Store::File(file) && blocks.contains(&block);
        self.written.borrow_mut().retain(|key, _| !here(key));
        Ok(())
    }
    fn end(&self, store: Store) {
        match store {
            Store::File(_) => self.written.borrow_mut().retain(|(of, _), _| *of != store),
            Store::Swap(device) => {
                if let Some(ssd) = self.ssds.borrow_mut().get_mut(device as usize) {
                    ssd.wipe();
                }
            }
        }
    }
}
