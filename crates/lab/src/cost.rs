//! `quietmm machine cost`: what so many flush requests a second cost a machine, and where it goes. No run: only the machine's
//! constants, for whoever has a rate, from `/proc/interrupts` or perf, and no recording.

use clap::Args;
use quietmm_host::summary::several;
use quietmm_sim::machine::Machine;

use crate::backend::sim;
use crate::process::ending::{Ending, Failure};
use crate::process::output::Output;
use crate::show::table::grid;
use crate::show::wrap::hanging;

/// `quietmm machine cost`
#[derive(Debug, Args)]
pub struct CostArgs {
    /// Flush requests that all CPUs received in a second: the line TLB of /proc/interrupts, twice, a second apart
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    received: f64,
    /// CPUs that each shootdown interrupts, on average
    #[arg(long, value_name = "N", default_value_t = 1.0)]
    targets: f64,
    /// Pages that each flushes
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pages: u32,
    /// The machine: a name, or a file such as `quietmm machine measure` prints
    #[arg(long, value_name = "NAME|FILE", default_value = "modern-2x64")]
    machine: String,
}

/// One part of what a request costs.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Part {
    who: &'static str,
    what: &'static str,
    /// Nanoseconds for each request that is received.
    ns: f64,
}

/// What a flush request costs, part by part.
fn parts(machine: &Machine, targets: f64, pages: u32) -> Vec<Part> {
    let cost = &machine.cost;
    let ns = |ps: u64| ps as f64 / 1e3;
    let one_by_one = pages <= machine.kernel.flush_ceiling;
    let flush = ns(if one_by_one { cost.invlpg * u64::from(pages) } else { cost.flush_all });
    // The mean distance to another CPU.
    let nodes = f64::from(machine.nodes);
    let apart: f64 =
        machine.distance.iter().flatten().map(|&distance| (f64::from(distance) - 10.0) / 10.0).sum();
    let hops = apart / (nodes * nodes);
    let line = ns(cost.line_local) + hops * ns(cost.line_hop);
    let flight = ns(cost.ipi_flight_local) + hops * ns(cost.ipi_flight_hop);
    let send = ns(cost.ipi_send) + hops * ns(cost.ipi_send_hop);
    let (enter, work) = (ns(cost.irq_enter), ns(cost.irq_work));
    let part = |who, what, ns| Part { who, what, ns };
    // What a shootdown waits for it waits for once, however many it interrupts.
    vec![
        part("interrupted", "interrupt, in and out", enter + ns(cost.irq_exit)),
        part("interrupted", "the kernel's work for any interrupt", work),
        part("interrupted", "request and answer, moved between CPUs", 2.0 * line),
        part("interrupted", "the flush", flush),
        part("sender", "sending", send),
        part("sender", "waiting while it is on its way", flight / targets),
        part("sender", "waiting for entry and work of the last", (enter + work) / targets),
        part("sender", "waiting for its flush and its answer", (flush + 2.0 * line) / targets),
    ]
}

/// Nanoseconds that whoever is interrupted to flush a page pays.
pub fn received(machine: &Machine) -> f64 {
    sum(machine, "interrupted")
}

/// Nanoseconds that whoever interrupts one CPU for it pays.
pub fn sent(machine: &Machine) -> f64 {
    sum(machine, "sender")
}

/// Nanoseconds that an idle CPU takes before it answers: its sender waits.
pub fn answers(machine: &Machine) -> f64 {
    machine.cost.idle_answer() as f64 / 1e3
}

/// Nanoseconds that whoever interrupts an idle CPU pays.
pub fn sent_to_idle(machine: &Machine) -> f64 {
    sent(machine) + answers(machine)
}

fn sum(machine: &Machine, who: &str) -> f64 {
    parts(machine, 1.0, 1).iter().filter(|part| part.who == who).map(|part| part.ns).sum()
}

/// Prints it.
pub fn cost(args: &CostArgs, output: &mut Output) -> Result<Ending, Failure> {
    let machine = sim::load(&args.machine)?;
    let most = f64::from(machine.cpus) - 1.0;
    if !(args.received.is_finite() && args.received >= 0.0) {
        return Err(Failure::Input(format!("--received {}: a rate of 0 or more", args.received)));
    }
    if !(args.targets >= 1.0 && args.targets <= most) {
        let (name, cpus) = (&machine.name, machine.cpus);
        return Err(Failure::Input(format!(
            "--targets {}: {name} has {cpus} CPUs; 1 to {most}",
            args.targets
        )));
    }
    let parts = parts(&machine, args.targets, args.pages);
    let percent = |ns: f64| args.received * ns / (f64::from(machine.cpus) * 1e9) * 100.0;
    let all: f64 = parts.iter().map(|part| part.ns).sum();
    let mut rows = vec![vec!["who".into(), "what".into(), "ns a request".into(), "of all CPU time".into()]];
    for Part { who, what, ns } in &parts {
        rows.push(vec![(*who).into(), (*what).into(), format!("{ns:.0}"), format!("{:.3} %", percent(*ns))]);
    }
    rows.push(vec!["all".into(), String::new(), format!("{all:.0}"), format!("{:.3} %", percent(all))]);
    let mut text = format!(
        "{:.0} flush requests received a second on {} ({}), {} a shootdown, {} each:\n\n",
        args.received,
        machine.name,
        several(machine.cpus.into(), "CPU"),
        args.targets,
        several(args.pages.into(), "page")
    );
    text.push_str(&grid("llrr", &rows));
    let share = format!(
        "{:.2} % of all CPU time, as much as {:.2} CPUs. Refills of what was flushed, and tasks that wait for locks meanwhile, come on top.",
        percent(all),
        args.received * all / 1e9
    );
    text.push('\n');
    text.push_str(&hanging(output.width(), "", &share));
    if percent(all) > 100.0 {
        text.push_str("That is more than there is: so many cannot have been received in a second.\n");
    }
    output.text(&text)?;
    Ok(Ending::Good)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_targets_share_the_wait_and_pay_for_the_sending() {
        let machine = Machine::builtin("uma-8").expect("a machine");
        let all = |targets, pages| parts(&machine, targets, pages).iter().map(|part| part.ns).sum::<f64>();
        assert!(all(1.0, 1) > all(7.0, 1), "what is waited for once is shared");
        let waits = |targets| {
            parts(&machine, targets, 1)
                .iter()
                .filter(|p| p.what.starts_with("waiting"))
                .map(|p| p.ns)
                .sum::<f64>()
        };
        assert!((waits(1.0) / waits(7.0) - 7.0).abs() < 1e-9);
        // Beyond the ceiling all is flushed at once.
        assert!(all(1.0, 33) > all(1.0, 34));
        assert!(parts(&machine, 1.0, 1).iter().all(|part| part.ns >= 0.0));
    }
}
