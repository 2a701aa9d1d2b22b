//! Swap as the machine sees it: devices come into use, and what they and the pages did is reported.

use quietmm::{Counter, Error, Manager};
use quietmm_workloads::System;

use crate::figures::{self, Metric};
use crate::sim::Sim;
use crate::ssd::Done;

/// The first device's priority.
const HIGHEST: i16 = 1000;

impl<const FAULTS: bool> Sim<'_, FAULTS> {
    /// All swap devices come into use, before the machine runs.
    ///
    /// # Errors
    /// Those of [`Swap::on`](quietmm::Swap::on).
    pub(crate) fn swap_on<'p>(&'p self, system: &System<'p, Self>) -> Result<(), Error> {
        let Some(swap) = &self.machine.swap else { return Ok(()) };
        for device in 0..swap.devices {
            let priority = HIGHEST - (device * swap.priority_step).min(HIGHEST as u32) as i16;
            system.mm.swap().on(device, swap.size / 4096, priority)?;
        }
        Ok(())
    }

    /// What reclaim and the devices did, in `elapsed` seconds.
    pub(crate) fn swapping(&self, mm: &Manager<'_, Self>, elapsed: f64, reclaimed: u64) -> Vec<Metric> {
        let wrong = self.truth().wrong_reclaims;
        let per = |a: f64, b: f64| if b > 0.0 { a / b } else { 0.0 };
        let mut list = vec![
            figures::WRONG_RECLAIMS.int(wrong),
            figures::WRONG_RECLAIMS_PERCENT.real(100.0 * per(wrong as f64, reclaimed as f64)),
        ];
        let Some(swap) = &self.machine.swap else { return list };
        let all = self.ssds.borrow().iter().fold(Done::default(), |all, ssd| all.and(&ssd.done));
        let time = elapsed * 1e12;
        let io_irqs = self.cpus.iter().map(|cpu| cpu.io_irqs.get()).sum::<u64>();
        let rate = |counter| per(mm.counter(counter) as f64, elapsed);
        list.extend([
            figures::SWAPOUTS_PER_S.real(rate(Counter::PswpOut)),
            figures::SWAPINS_PER_S.real(rate(Counter::PswpIn)),
            figures::SWAP_COMMANDS.int(all.commands),
            figures::SWAP_PAGES_PER_COMMAND.real(per(all.pages as f64, all.commands as f64)),
            figures::SWAP_BUSY.real(100.0 * per(all.busy as f64, time * f64::from(swap.devices))),
            figures::SWAP_IN_FLIGHT.real(per(all.in_flight as f64, time * f64::from(swap.devices))),
            figures::SWAP_COMMAND.real(per(all.in_flight as f64, all.commands as f64) / 1e6),
            figures::SWAP_ERRORS.int(all.failed),
            figures::IO_INTERRUPTS.int(io_irqs),
        ]);
        list
    }
}
