//! What `/proc` says of an open file (`fdinfo`).

use alloc::format;
use alloc::string::String;
use core::sync::atomic::Ordering;

use crate::kernel::Linux;
use crate::machine::Machine;
use crate::open::{Kind, flag};
use crate::process::Process;

const SECOND: u64 = 1_000_000_000;

impl<M: Machine> Linux<'_, M> {
    /// What is said of what a process has open under a number; nothing, once it is closed.
    pub(crate) fn tell_open(&self, process: &Process, number: u64) -> String {
        let found = process.files.with(|files| {
            let open = files.get(number).ok()?;
            let cloexec = files.close_on_exec(number).is_ok_and(|cloexec| *cloexec);
            Some((open, cloexec))
        });
        let Some((open, cloexec)) = found else { return String::new() };
        let at = match &open.kind {
            // It may be what is read just now, and tells of itself.
            Kind::Text(..) => open.offset.try_with(self.machine, |offset| *offset).unwrap_or(0),
            _ => open.offset.with(self.machine, |offset| *offset),
        };
        let flags = open.shown_flags() | if cloexec { flag::CLOSE_ON_EXEC } else { 0 };
        let inode = open.inode().map_or_else(|| open.number(), |inode| inode.number);
        let more = match &open.kind {
            Kind::Event(counter) => format!(
                "eventfd-count: {:16x}\neventfd-id: {}\neventfd-semaphore: {}\n",
                counter.now(),
                open.number(),
                u8::from(counter.by_one)
            ),
            Kind::Signals(mask) => format!("sigmask:\t{:016x}\n", mask.load(Ordering::SeqCst)),
            Kind::Timer(timer, clock) => {
                let now = self.now();
                let (left, every) = timer.left(now);
                format!(
                    "clockid: {clock}\nticks: {}\nsettime flags: 00\nit_value: ({}, {})\nit_interval: ({}, {})\n",
                    timer.ticks(now),
                    left / SECOND,
                    left % SECOND,
                    every / SECOND,
                    every % SECOND
                )
            }
            Kind::Poll(set) => set.describe(),
            Kind::Watches(watches) => watches.describe(),
            Kind::Process(process) => {
                let ended = process.ended.load(Ordering::SeqCst) != 0;
                let pid = if ended { -1 } else { i64::from(process.pid) };
                format!("Pid:\t{pid}\nNSpid:\t{pid}\n")
            }
            _ => String::new(),
        };
        format!("pos:\t{at}\nflags:\t0{flags:o}\nmnt_id:\t1\nino:\t{inode}\n{more}")
    }
}
