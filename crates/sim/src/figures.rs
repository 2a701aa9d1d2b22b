//! The one table of figures: what each is called, its unit, which way is better, and what it means.
//!
//! Everything that reports a figure names it from here, whatever machine it was counted on: the simulation, a machine that
//! boots. The core's counters stand in the core ([`Counter`]); [`of`] makes figures of them.

use quietmm::Counter;
use quietmm_workloads::Tally;

use crate::near::near;

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

/// Where in a table a figure stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Group {
    /// What mmtests calls the operations of a workload.
    Ops,
    /// CPU time of the whole machine.
    Times,
    /// What CPUs did to each other.
    Traffic,
    /// What was seen that must never be: nothing, or a bug.
    Harm,
    /// What swap did, on machines that swap.
    Swap,
    /// What one workload measures.
    Own,
    /// What only a machine that boots counts.
    Image,
    /// All others, shown when everything is.
    Rest,
}

/// What a figure is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Figure {
    /// Its key in JSON.
    pub key: &'static str,
    /// Its name in a table.
    pub label: &'static str,
    /// Its unit; empty for a plain number.
    pub unit: &'static str,
    /// Which way is better.
    pub better: Better,
    /// Decimals worth printing, in `unit`; 0 for a count.
    pub decimals: u8,
    /// Where it stands.
    pub group: Group,
    /// The key of a figure that it repeats where both are equal.
    pub twin: &'static str,
    /// What it means, in a line.
    pub about: &'static str,
}

/// What a figure came to.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Value {
    /// A count.
    Int(u64),
    /// Anything else.
    Real(f64),
}

impl Value {
    /// As a number.
    #[must_use]
    pub fn number(self) -> f64 {
        match self {
            Value::Int(value) => value as f64,
            Value::Real(value) => value,
        }
    }
}

/// A figure and what it came to.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Metric {
    /// Which it is.
    pub figure: &'static Figure,
    /// What it came to.
    pub value: Value,
}

impl std::ops::Deref for Metric {
    type Target = Figure;

    fn deref(&self) -> &Figure {
        self.figure
    }
}

impl Figure {
    /// It came to this count.
    pub fn int(&'static self, value: u64) -> Metric {
        Metric { figure: self, value: Value::Int(value) }
    }

    /// It came to this number.
    pub fn real(&'static self, value: f64) -> Metric {
        Metric { figure: self, value: Value::Real(value) }
    }
}

macro_rules! figures {
    ($($group:ident { $($name:ident $key:literal $label:literal $unit:literal $decimals:literal $better:ident $about:literal
        $(= $twin:literal)?;)* })*) => {
        $($(
            #[doc = $about]
            pub static $name: Figure = Figure {
                key: $key,
                label: $label,
                unit: $unit,
                better: Better::$better,
                decimals: $decimals,
                group: Group::$group,
                twin: concat!($($twin)?),
                about: $about,
            };
        )*)*
        static ALL: &[&Figure] = &[$($(&$name,)*)*];
    };
}

figures! {
    Ops {
        ELAPSED "elapsed_s" "elapsed" "s" 2 Less "from the start until the last task has ended";
        // Where threads race for the host's processors, time is shown and not judged.
        ELAPSED_UNJUDGED "elapsed_s" "elapsed" "s" 2 Neither
            "from the first task's start to the last one's end, by the machine's clock";
        TIME_RANGE "time_range_s" "time_range" "s" 2 Less "the slowest task's time less the fastest's";
        TIME_STDDEV "time_stddev_s" "time_stddv" "s" 2 Less "standard deviation of tasks' times";
    }
    Times {
        USER "user_s" "User" "s" 2 Less "CPU time in user mode, all CPUs";
        SYSTEM "system_s" "System" "s" 2 Less "CPU time in the kernel, all CPUs";
        IDLE "idle_s" "Idle" "s" 2 Less "time that CPUs had nothing to do";
    }
    Traffic {
        INTERRUPTS_PER_S "interrupts_per_s" "interrupts/s" "/s" 0 Less
            "IPIs and interrupts of scheduler, devices and alarms that arrived in a second, all CPUs; ticks apart";
        TICKS_PER_S "ticks_per_s" "ticks/s" "/s" 0 Less "timer ticks in a second, all CPUs";
        IPIS_SENT "ipis_sent" "IPIs sent" "" 0 Less "interrupts sent by the memory manager";
        IPIS_RECEIVED "ipis_received" "IPIs received" "" 0 Less "interrupts received from it" = "ipis_sent";
        PAGES_RECLAIMED "pages_reclaimed" "pages reclaimed" "" 0 Neither "by kswapd and by tasks";
        IPIS_SENT_PER_PAGE "ipis_sent_per_reclaimed_page" "IPIs sent/page" "" 4 Less
            "IPIs sent for each page reclaimed" = "ipis_per_reclaimed_page";
        IPIS_PER_PAGE "ipis_per_reclaimed_page" "IPIs received/page" "" 4 Less "IPIs received for each page reclaimed";
        FLUSHES_PER_PAGE "flushes_received_per_reclaimed_page" "flush requests/page" "" 4 Less
            "flushes that other CPUs asked for, received, for each page reclaimed: what Linux's TLB line counts"
            = "ipis_per_reclaimed_page";
        PAGES_PER_FLUSH "pages_per_flush" "pages/flush" "" 2 Neither "entries cleared for each flush asked of other CPUs";
        FLUSHES_FULL "flushes_full" "full flushes" "" 0 Less "flushes of a CPU's whole TLB but the global entries";
        FLUSHES_PAGE "flushes_page" "single flushes" "" 0 Less "pages flushed one by one";
        FLUSH_TARGETS "flush_targets" "CPUs flushed or lazy" "" 0 Less
            "CPUs that had pages of a flush: interrupted, or lazy and left alone";
        TLB_REFILLS "tlb_refills" "TLB refills" "" 0 Less "translations fetched by a walk of the tables";
        WINDOW_ACCESSES "window_accesses" "window accesses" "" 0 Neither "uses of a page whose flush was legally deferred";
    }
    Harm {
        STALE_ACCESSES "stale_accesses" "stale accesses" "" 0 Less "uses of a page that was no longer there: 0, or a bug";
        LOST_WRITES "lost_writes" "lost writes" "" 0 Less
            "writes to a file that were neither written out nor in memory any more: 0, or a bug";
        WRONG_CONTENTS "wrong_contents" "wrong contents" "" 0 Less
            "reads that were checked and that found something else: 0, or a bug";
    }
    Swap {
        SWAPOUTS_PER_S "swapouts_per_s" "swap-outs/s" "/s" 0 More "pages written to swap devices in a second";
        SWAPINS_PER_S "swapins_per_s" "swap-ins/s" "/s" 0 More "pages read from swap devices in a second";
        WRONG_RECLAIMS "wrong_reclaims" "wrong reclaims" "" 0 Less
            "pages reclaimed although they were used since they were looked at before";
        WRONG_RECLAIMS_PERCENT "wrong_reclaims_percent" "wrong reclaims, share" "%" 3 Less
            "of a hundred reclaimed pages so many wrongly";
        SWAP_COMMANDS "swap_commands" "swap commands" "" 0 Less
            "commands to swap devices; pages side by side share one";
        SWAP_PAGES_PER_COMMAND "swap_pages_per_command" "pages/swap command" "" 2 More "pages of a command in the mean";
        SWAP_BUSY "swap_busy_percent" "swap devices busy" "%" 1 Less
            "of the time in which a device worked on at least one command, in the mean of all devices";
        SWAP_IN_FLIGHT "swap_in_flight" "swap commands at once" "" 2 Less
            "commands that were given to a device and not done, in the mean of time and devices";
        SWAP_COMMAND "swap_command_us" "swap command" "us" 1 Less
            "time of a command with its waiting for others, in the mean";
        SWAP_ERRORS "swap_errors" "swap errors" "" 0 Less "pages that a device did not read or write";
        IO_INTERRUPTS "io_interrupts" "I/O interrupts" "" 0 Less "interrupts of block devices whose commands had ended";
    }
    Own {
        BYSTANDER "bystander_ns_per_access" "bystander, access" "ns" 3 Less
            "time of one access of the hot set, with all that comes between";
        GROUPS_COMPLETED "hackbench_groups_completed" "groups completed" "" 0 More
            "groups all of whose processes came to their own end";
        PROCESSES_KILLED "hackbench_processes_killed" "processes killed" "" 0 Less
            "processes that were ended because memory was out";
        FORKS_FAILED "hackbench_forks_failed" "forks failed" "" 0 Less "processes that could not be made";
        MESSAGES "hackbench_messages" "messages passed" "" 0 More "messages that were received";
        BLOCKS_REFUSED "page_alloc_blocks_refused" "blocks refused" "" 0 Less
            "blocks of frames that were wanted and could not be had";
        BLOCKS_CAME "memory_blocks_came" "memory that came" "" 0 Neither
            "blocks of memory that were not there at the start and came";
        HOT_PAGES "scan_hot_pages" "hot pages" "" 0 Neither "pages that are used all the time while others sweep";
        HOT_REFAULTS "scan_hot_refaults" "hot pages back" "" 0 Less
            "times that a hot page had been reclaimed and was wanted during the sweeps";
        HOT_LOST "scan_hot_lost" "hot pages lost" "" 0 Less "hot pages that were gone when the sweeps were over";
        GROUP_LIMIT "group_limit" "limit" "" 0 Neither
            "pages that the group which sweeps may be charged with";
        GROUP_MOST "group_most_charged" "most charged" "" 0 Less
            "the most pages that it was charged with while it had that limit";
        GROUP_SWEPT "group_swept" "pages swept" "" 0 Neither
            "pages that it went through while it had that limit";
        ALONE_NS "group_neighbour_alone_ns" "neighbour, alone" "ns" 0 Less
            "time of all threads of a neighbour group for its work, alone";
        LIMITED_NS "group_neighbour_limited_ns" "neighbour, others limited" "ns" 0 Less
            "the same work beside the group that sweeps and has a limit";
        UNLIMITED_NS "group_neighbour_unlimited_ns" "neighbour, no limit" "ns" 0 Less
            "the same beside the group that sweeps and has none, by what it did in a time";
        ALONE_IPIS "group_alone_ipis" "IPIs, alone" "" 0 Less
            "interrupts received while the neighbour worked alone";
        LIMITED_IPIS "group_limited_ipis" "IPIs, others limited" "" 0 Less
            "the same beside the group that sweeps and has a limit";
        UNLIMITED_IPIS "group_unlimited_ipis" "IPIs, no limit" "" 0 Less
            "the same beside the group that sweeps and has none";
        ALONE_LOST "group_alone_lost" "pages lost, alone" "" 0 Less
            "pages of the neighbour that were gone when it had worked alone";
        LIMITED_LOST "group_limited_lost" "pages lost, others limited" "" 0 Less
            "the same beside the group that sweeps and has a limit";
        UNLIMITED_LOST "group_unlimited_lost" "pages lost, no limit" "" 0 Less
            "the same beside the group that sweeps and has none";
        STEPS_MENDED "trace_steps_mended" "steps mended" "" 0 Neither
            "steps of a recording that were impossible, or added because they must have been";
        ZEROS_REPLACED "trace_zeros_replaced" "zeros replaced" "" 0 Neither
            "first writes to pages that were only read: Linux flushes its page of zeros there";
        AROUND_REPLACED "trace_around_replaced" "pages of files replaced" "" 0 Neither
            "first writes to pages of files that came with others: Linux copies and flushes them there";
        NESTED_FLUSHES "trace_nested_flushes" "nested flushes" "" 0 Neither
            "calls that found nothing and ended while others were under way: Linux flushes all then";
        AGED_FLUSHES "trace_aged_flushes" "flushes of cold pages" "" 0 Neither
            "calls that said of pages that they are cold (MADV_COLD): Linux flushes them then";
        HIDDEN_FLUSHES "trace_hidden_flushes" "flushes of hidden pages" "" 0 Neither
            "calls that dropped pages which nobody may use (PROT_NONE): Linux flushes them then";
        LEFT_ASKED "trace_left_asked" "CPUs that had left" "" 0 Neither
            "requests to flush of CPUs that have left the space: Linux sends them, and this counts only";
        SHOOTDOWN_16 "shootdown_16_cpus_2_sockets_us" "shootdown 16 CPUs/2 sockets" "us" 2 Less
            "mean time to unmap one page that 16 CPUs on 2 sockets have cached, 8 on each";
        SHOOTDOWN_ALL "shootdown_all_cpus_us" "shootdown all CPUs" "us" 2 Less
            "mean time to unmap one page that all CPUs have cached";
        DIRECT_RECLAIM_MEAN "direct_reclaim_mean_us" "direct reclaim, mean" "us" 2 Less
            "how long a task took to reclaim once for itself, to have lists drained, and to look again";
        DIRECT_RECLAIM_P50 "direct_reclaim_p50_us" "direct reclaim, p50" "us" 2 Less "half of them took no longer";
        DIRECT_RECLAIM_P99 "direct_reclaim_p99_us" "direct reclaim, p99" "us" 2 Less "99 of 100 took no longer";
        DRAIN_P50 "drain_p50_us" "drain, p50" "us" 2 Less "how long it took to drain the per-CPU lists";
        DRAIN_P99 "drain_p99_us" "drain, p99" "us" 2 Less "99 of 100 took no longer";
        ALLOC_STALL_P50 "alloc_stall_p50_us" "allocation stall, p50" "us" 2 Less
            "how long a task waited for frames in all, until it had them or was refused" = "direct_reclaim_p50_us";
        ALLOC_STALL_P99 "alloc_stall_p99_us" "allocation stall, p99" "us" 2 Less "99 of 100 took no longer"
            = "direct_reclaim_p99_us";
        FORK_MEAN "fork_mean_ns" "fork, mean" "ns" 0 Less "a process forks while its other threads write";
        FORK_P50 "fork_p50_ns" "fork, p50" "ns" 0 Less "half of them took no longer";
        FORK_P99 "fork_p99_ns" "fork, p99" "ns" 0 Less "99 of 100 took no longer";
        COPY_MEAN "copy_mean_ns" "copy, mean" "ns" 0 Less "a child's first write to a page";
        COPY_P99 "copy_p99_ns" "copy, p99" "ns" 0 Less "99 of 100 took no longer";
        EXIT_MEAN "exit_mean_ns" "exit, mean" "ns" 0 Less "a child's space ends";
        OPS_0 "ops_per_s_0" "operations/s, nothing else" "/s" 0 More "buffers mapped, searched and unmapped, all CPUs";
        OPS_1 "ops_per_s_1" "operations/s, 1 part" "/s" 0 More "the same, with as much other work";
        OPS_4 "ops_per_s_4" "operations/s, 4 parts" "/s" 0 More "the same, with 4 times as much other work";
        OPS_28 "ops_per_s_28" "operations/s, 28 parts" "/s" 0 More "the same, with 28 times as much other work";
        OPS_100 "ops_per_s_100" "operations/s, 100 parts" "/s" 0 More "the same, with 100 times as much other work";
        MAP_CYCLE "ns_per_op" "vmap, touch, vunmap" "ns" 0 Less
            "mean time in which a thread maps 4 scattered pages by vmap, touches each, and unmaps them";
        RAM_CYCLE "ns_per_op_ram" "map_ram, touch, unmap_ram" "ns" 0 Less "the same by map_ram and unmap_ram";
        VUNMAP_MEAN "vunmap_mean_ns" "vunmap, mean" "ns" 0 Less "4 pages that were touched are unmapped by vunmap";
        UNMAP_ALIASES_MEAN "unmap_aliases_mean_ns" "unmap_aliases, mean" "ns" 0 Less
            "after one such vunmap, unmap_aliases: what it left for later is flushed";
        MIX_MAP_MEAN "vmap_mix_map_mean_ns" "vmap among many, mean" "ns" 0 Less "1 to 100 pages are mapped by vmap";
        MIX_UNMAP_MEAN "vmap_mix_unmap_mean_ns" "vunmap among many, mean" "ns" 0 Less "and unmapped by vunmap";
        UNMAP_1_MEAN "unmap_1_mean_ns" "unmap 1 page, mean" "ns" 0 Less
            "a thread unmaps one page while all others unmap too";
        UNMAP_1_P50 "unmap_1_p50_ns" "unmap 1 page, p50" "ns" 0 Less "half of them took no longer";
        UNMAP_1_P99 "unmap_1_p99_ns" "unmap 1 page, p99" "ns" 0 Less "99 of 100 took no longer";
        UNMAP_1_MAX "unmap_1_max_ns" "unmap 1 page, max" "ns" 0 Less "the longest";
        UNMAP_MEAN "unmap_mean_ns" "unmap, mean" "ns" 0 Less "a thread unmaps a range while all others unmap too";
        UNMAP_P50 "unmap_p50_ns" "unmap, p50" "ns" 0 Less "half of them took no longer";
        UNMAP_P99 "unmap_p99_ns" "unmap, p99" "ns" 0 Less "99 of 100 took no longer";
        UNMAP_MAX "unmap_max_ns" "unmap, max" "ns" 0 Less "the longest";
    }
    Image {
        INSTRUCTIONS "instructions" "instructions" "" 0 Less
            "of all CPUs, from the first task's start to the last one's end; waits for a timer count as if they were";
        INSTRUCTIONS_PER_PAGE "instructions_per_page" "instructions/page" "" 1 Less
            "of all CPUs, for each page of work: the program's own are in it";
        PAGES_CHECKED "pages_checked" "pages checked" "" 0 Neither
            "pages whose content was held against what it should be";
        DISK_READS "disk_reads" "pages read from the disk" "" 0 Neither "by virtio-blk";
        DISK_WRITES "disk_writes" "pages written to the disk" "" 0 Neither "by virtio-blk";
    }
    Rest {
        TICKS "ticks" "ticks" "" 0 Neither "timer ticks, all CPUs";
        KICKS "kicks" "kicks" "" 0 Neither "the scheduler's interrupts";
        ALARMS "alarms" "alarms" "" 0 Neither "timer interrupts for tasks that sleep";
        USER_FAULTS "user_faults" "page faults" "" 0 Neither "faults of programs, in ring 3";
        BROADCAST_ENTRIES "tlb_broadcast_entries" "entries broadcast away" "" 0 Neither
            "TLB entries of all CPUs that broadcasts have flushed";
        BROADCAST_WAIT "tlb_broadcast_wait_ns" "broadcast, wait" "ns" 0 Less
            "how long a CPU waited for its broadcasts to be done everywhere, in the mean";
        PROGRESS "progress" "pages of work" "" 0 Neither "pages that the workload has done";
        COUNTED "counted" "accesses counted" "" 0 Neither "of the hot set, by bystanders";
    }
}

/// The figure with this key, the core's counters among them.
#[must_use]
pub fn find(key: &str) -> Option<&'static Figure> {
    let counters = || Counter::ALL.iter().map(|&counter| of(counter));
    ALL.iter()
        .copied()
        .find(|figure| figure.key == key)
        .or_else(|| counters().find(|figure| figure.key == key))
}

/// The same, or what to say of a key that no figure has.
pub fn named(key: &str) -> Result<&'static Figure, String> {
    find(key).ok_or_else(|| {
        let keys = ALL.iter().map(|figure| figure.key);
        match &near(key, keys.chain(Counter::ALL.iter().map(|&counter| of(counter).key)))[..] {
            [] => format!("unknown figure '{key}'; those of a run are in its metrics"),
            near => format!("unknown figure '{key}'; did you mean {}?", near.join(" or ")),
        }
    })
}

/// The figure of a counter of the core: under its own name, which is Linux's where Linux counts the same.
pub fn of(counter: Counter) -> &'static Figure {
    static COUNTERS: [Figure; Counter::ALL.len()] = {
        let mut all = [counted(Counter::ALL[0]); Counter::ALL.len()];
        let mut nth = 1;
        while nth < all.len() {
            all[nth] = counted(Counter::ALL[nth]);
            nth += 1;
        }
        all
    };
    &COUNTERS[counter as usize]
}

const fn counted(counter: Counter) -> Figure {
    let name = counter.name();
    let (group, twin) = match counter {
        Counter::WorkingsetRefault | Counter::WorkingsetActivate | Counter::Throttled => (Group::Swap, ""),
        Counter::LocalFlushAll => (Group::Rest, FLUSHES_FULL.key),
        Counter::LocalFlushOne => (Group::Rest, FLUSHES_PAGE.key),
        Counter::RemoteFlushReceived => (Group::Rest, IPIS_RECEIVED.key),
        _ => (Group::Rest, ""),
    };
    let (label, about) = (name, counter.about());
    Figure { key: name, label, unit: "", better: Better::Neither, decimals: 0, group, twin, about }
}

/// The figure of what a workload counts.
pub fn of_tally(what: Tally) -> &'static Figure {
    match what {
        Tally::GroupsCompleted => &GROUPS_COMPLETED,
        Tally::ProcessesKilled => &PROCESSES_KILLED,
        Tally::ForksFailed => &FORKS_FAILED,
        Tally::Messages => &MESSAGES,
        Tally::BlocksRefused => &BLOCKS_REFUSED,
        Tally::BlocksCame => &BLOCKS_CAME,
        Tally::HotPages => &HOT_PAGES,
        Tally::HotRefaults => &HOT_REFAULTS,
        Tally::HotLost => &HOT_LOST,
        Tally::GroupLimit => &GROUP_LIMIT,
        Tally::GroupMost => &GROUP_MOST,
        Tally::GroupSwept => &GROUP_SWEPT,
        Tally::AloneNs => &ALONE_NS,
        Tally::LimitedNs => &LIMITED_NS,
        Tally::UnlimitedNs => &UNLIMITED_NS,
        Tally::AloneIpis => &ALONE_IPIS,
        Tally::LimitedIpis => &LIMITED_IPIS,
        Tally::UnlimitedIpis => &UNLIMITED_IPIS,
        Tally::AloneLost => &ALONE_LOST,
        Tally::LimitedLost => &LIMITED_LOST,
        Tally::UnlimitedLost => &UNLIMITED_LOST,
        Tally::StepsMended => &STEPS_MENDED,
        Tally::ZerosReplaced => &ZEROS_REPLACED,
        Tally::AroundReplaced => &AROUND_REPLACED,
        Tally::NestedFlushes => &NESTED_FLUSHES,
        Tally::AgedFlushes => &AGED_FLUSHES,
        Tally::HiddenFlushes => &HIDDEN_FLUSHES,
        Tally::LeftAsked => &LEFT_ASKED,
    }
}

/// What CPUs did to each other, from the core's counters: the same figures of any machine.
pub fn traffic(count: impl Fn(Counter) -> u64) -> Vec<Metric> {
    let per = |a: u64, b: u64| if b == 0 { 0.0 } else { a as f64 / b as f64 };
    let (sent, received) = (count(Counter::IpisSent), count(Counter::IpisReceived));
    let reclaimed = count(Counter::PgStealKswapd) + count(Counter::PgStealDirect);
    vec![
        IPIS_SENT.int(sent),
        IPIS_RECEIVED.int(received),
        PAGES_RECLAIMED.int(reclaimed),
        IPIS_SENT_PER_PAGE.real(per(sent, reclaimed)),
        IPIS_PER_PAGE.real(per(received, reclaimed)),
        FLUSHES_PER_PAGE.real(per(count(Counter::RemoteFlushReceived), reclaimed)),
        PAGES_PER_FLUSH
            .real(per(count(Counter::PgUnmapped), count(Counter::RemoteFlush) + count(Counter::Broadcasts))),
        FLUSHES_FULL.int(count(Counter::LocalFlushAll)),
        FLUSHES_PAGE.int(count(Counter::LocalFlushOne)),
    ]
}

/// Adds each counter that is not in the list under its own name.
pub fn add_counters(list: &mut Vec<Metric>, count: impl Fn(Counter) -> Option<u64>) {
    for &counter in Counter::ALL {
        if !list.iter().any(|metric| metric.key == counter.name()) {
            list.extend(count(counter).map(|value| of(counter).int(value)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_means_one_thing_and_what_repeats_another_names_it() {
        let counters = Counter::ALL.iter().map(|&counter| of(counter));
        let all: Vec<&Figure> = ALL.iter().copied().chain(counters).collect();
        for figure in &all {
            let same = all.iter().filter(|other| other.key == figure.key);
            // The traffic between CPUs has better names than the counters; time is judged or not.
            let known = ["ipis_sent", "ipis_received", "elapsed_s"].contains(&figure.key);
            assert_eq!(same.count(), if known { 2 } else { 1 }, "{}", figure.key);
            let twin = all.iter().find(|other| other.key == figure.twin);
            assert!(figure.twin.is_empty() || twin.is_some(), "{}", figure.key);
            assert!(!figure.about.is_empty() && !figure.label.is_empty(), "{}", figure.key);
        }
        assert!(Counter::ALL.iter().all(|&counter| of(counter).key == counter.name()));
    }
}
