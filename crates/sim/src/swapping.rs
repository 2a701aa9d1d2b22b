//! Swap as the machine sees it: devices come into use, and what they and the pages did is reported.

use quietmm::{Counter, Error, Manager};
use quietmm_workloads::System;

use crate::metrics::{Better, Metric};
use crate::sim::Sim;
use crate::ssd::Done;

/// The first device's priority.
const HIGHEST: i16 = 1000;

impl<const FAULTS: bool> Sim<'_, FAULTS> {
    /// All swap devices come into use, before the machine runs.
    ///
    /// # Errors
    /// Those of [`Manager::swap_on`].
    pub(crate) fn swap_on<'p>(&'p self, system: &System<'p, Self>) -> Result<(), Error> {
        let Some(swap) = &self.machine.swap else { return Ok(()) };
        for device in 0..swap.devices {
            let priority = HIGHEST - (device * swap.priority_step).min(HIGHEST as u32) as i16;
            system.mm.swap_on(device, swap.size / 4096, priority)?;
        }
        Ok(())
    }

    /// What reclaim and the devices did, in `elapsed` seconds.
    pub(crate) fn swapping(&self, mm: &Manager<'_, Self>, elapsed: f64, reclaimed: u64) -> Vec<Metric> {
        let wrong = self.truth().wrong_reclaims;
        let per = |a: f64, b: f64| if b > 0.0 { a / b } else { 0.0 };
        let mut list = vec![
            Metric::int(
                "wrong_reclaims",
                "wrong reclaims",
                Better::Less,
                wrong,
                "pages reclaimed although they were used since they were looked at before",
            ),
            Metric::real(
                "wrong_reclaims_percent",
                "wrong reclaims, %",
                "%",
                100.0 * per(wrong as f64, reclaimed as f64),
                3,
                "of a hundred reclaimed pages so many wrongly",
            ),
        ];
        let Some(swap) = &self.machine.swap else { return list };
        let all = self.ssds.borrow().iter().fold(Done::default(), |all, ssd| all.and(&ssd.done));
        let time = elapsed * 1e12;
        let io_irqs = self.cpus.iter().map(|cpu| cpu.io_irqs.get()).sum::<u64>();
        let rate = |counter| per(mm.counter(counter) as f64, elapsed);
        list.extend([
            Metric::real(
                "swapouts_per_s",
                "swap-outs/s",
                "/s",
                rate(Counter::PswpOut),
                0,
                "pages written to swap devices in a second",
            )
            .more(),
            Metric::real(
                "swapins_per_s",
                "swap-ins/s",
                "/s",
                rate(Counter::PswpIn),
                0,
                "pages read from swap devices in a second",
            )
            .more(),
            Metric::int(
                "swap_commands",
                "swap commands",
                Better::Less,
                all.commands,
                "commands to swap devices; pages side by side share one",
            ),
            Metric::real(
                "swap_pages_per_command",
                "pages/swap command",
                "",
                per(all.pages as f64, all.commands as f64),
                2,
                "pages of a command in the mean",
            )
            .more(),
            Metric::real(
                "swap_busy_percent",
                "swap devices busy, %",
                "%",
                100.0 * per(all.busy as f64, time * f64::from(swap.devices)),
                1,
                "of the time in which a device worked on at least one command, in the mean of all devices",
            ),
            Metric::real(
                "swap_in_flight",
                "swap commands at once",
                "",
                per(all.in_flight as f64, time * f64::from(swap.devices)),
                2,
                "commands that were given to a device and not done, in the mean of time and devices",
            ),
            Metric::real(
                "swap_command_us",
                "swap command, us",
                "us",
                per(all.in_flight as f64, all.commands as f64) / 1e6,
                1,
                "time of a command with its waiting for others, in the mean",
            ),
            Metric::int(
                "swap_errors",
                "swap errors",
                Better::Less,
                all.failed,
                "pages that a device did not read or write",
            ),
            Metric::int(
                "io_interrupts",
                "I/O interrupts",
                Better::Less,
                io_irqs,
                "interrupts of block devices whose commands had ended",
            ),
        ]);
        list
    }
}
