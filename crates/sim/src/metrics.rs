//! What a run reports: one list of figures, each with its unit and what it means.

use quietmm::Counter;
use quietmm_workloads::Tally;

/// Which way is better.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Better {
    /// Less.
    Less,
    /// More.
    More,
    /// Neither: a count that explains others.
    Neither,
}

/// A figure.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Value {
    /// A count.
    Int(u64),
    /// Anything else, and the decimals worth printing.
    Real {
        /// The value.
        value: f64,
        /// Decimals.
        decimals: u8,
    },
}

/// A figure with its name.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Metric {
    /// Its key in JSON.
    pub key: &'static str,
    /// Its name in a table.
    pub label: &'static str,
    /// Its unit.
    pub unit: &'static str,
    /// Which way is better.
    pub better: Better,
    /// The figure.
    pub value: Value,
    /// What it means, in a line.
    pub about: &'static str,
}

impl Metric {
    /// A real number; less of it is better.
    pub fn real(
        key: &'static str,
        label: &'static str,
        unit: &'static str,
        value: f64,
        decimals: u8,
        about: &'static str,
    ) -> Metric {
        Metric { key, label, unit, better: Better::Less, value: Value::Real { value, decimals }, about }
    }

    /// A count.
    pub fn int(
        key: &'static str,
        label: &'static str,
        better: Better,
        value: u64,
        about: &'static str,
    ) -> Metric {
        Metric { key, label, unit: "", better, value: Value::Int(value), about }
    }

    /// What a workload counted.
    pub fn tally(what: Tally, value: u64) -> Metric {
        let (key, label, better, about) = match what {
            Tally::GroupsCompleted => (
                "hackbench_groups_completed",
                "groups completed",
                Better::More,
                "groups all of whose processes came to their own end",
            ),
            Tally::ProcessesKilled => (
                "hackbench_processes_killed",
                "processes killed",
                Better::Less,
                "processes that were ended because memory was out",
            ),
            Tally::ForksFailed => {
                ("hackbench_forks_failed", "forks failed", Better::Less, "processes that could not be made")
            }
            Tally::Messages => {
                ("hackbench_messages", "messages passed", Better::More, "messages that were received")
            }
            Tally::BlocksRefused => (
                "page_alloc_blocks_refused",
                "blocks refused",
                Better::Less,
                "blocks of frames that were wanted and could not be had",
            ),
            Tally::HotPages => (
                "scan_hot_pages",
                "hot pages",
                Better::Neither,
                "pages that are used all the time while others sweep",
            ),
            Tally::HotRefaults => (
                "scan_hot_refaults",
                "hot pages back",
                Better::Less,
                "times that a hot page had been reclaimed and was wanted during the sweeps",
            ),
            Tally::HotLost => (
                "scan_hot_lost",
                "hot pages lost",
                Better::Less,
                "hot pages that were gone when the sweeps were over",
            ),
            Tally::StepsMended => (
                "trace_steps_mended",
                "steps mended",
                Better::Neither,
                "steps of a recording that were impossible, or added because they must have been",
            ),
        };
        Metric::int(key, label, better, value, about)
    }

    /// More of it is better.
    pub fn more(mut self) -> Metric {
        self.better = Better::More;
        self
    }
}

/// What CPUs did to each other, from the core's counters: the same figures of any machine.
pub fn traffic(count: impl Fn(Counter) -> u64) -> Vec<Metric> {
    let per = |a: u64, b: u64| if b == 0 { 0.0 } else { a as f64 / b as f64 };
    let (sent, received) = (count(Counter::IpisSent), count(Counter::IpisReceived));
    let reclaimed = count(Counter::PgStealKswapd) + count(Counter::PgStealDirect);
    let real = |key, label, value, decimals, about| Metric::real(key, label, "", value, decimals, about);
    vec![
        Metric::int("ipis_sent", "IPIs sent", Better::Less, sent, "interrupts sent by the memory manager"),
        Metric::int("ipis_received", "IPIs received", Better::Less, received, "interrupts received from it"),
        Metric::int(
            "pages_reclaimed",
            "pages reclaimed",
            Better::Neither,
            reclaimed,
            "by kswapd and by tasks",
        ),
        real(
            "ipis_sent_per_reclaimed_page",
            "IPIs sent/page",
            per(sent, reclaimed),
            4,
            "IPIs sent for each page reclaimed",
        ),
        real(
            "ipis_per_reclaimed_page",
            "IPIs received/page",
            per(received, reclaimed),
            4,
            "IPIs received for each page reclaimed",
        ),
        real(
            "flushes_received_per_reclaimed_page",
            "flush requests/page",
            per(count(Counter::RemoteFlushReceived), reclaimed),
            4,
            "flushes that other CPUs asked for, received, for each page reclaimed: what Linux's TLB line counts",
        ),
        real(
            "pages_per_flush",
            "pages/flush",
            per(count(Counter::PgUnmapped), count(Counter::RemoteFlush)),
            2,
            "entries cleared for each flush asked of other CPUs",
        )
        .more(),
        Metric::int(
            "flushes_full",
            "full flushes",
            Better::Less,
            count(Counter::LocalFlushAll),
            Counter::LocalFlushAll.about(),
        ),
        Metric::int(
            "flushes_page",
            "single flushes",
            Better::Less,
            count(Counter::LocalFlushOne),
            Counter::LocalFlushOne.about(),
        ),
    ]
}
