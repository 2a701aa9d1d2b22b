//! What workloads measure operation by operation, or count, and a machine keeps.

/// An operation whose latency is kept.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Op {
    /// A system call that maps a range.
    Map,
    /// Touching each page of a range for the first time: a page fault each.
    Touch,
    /// A system call that unmaps a range, all of which was touched.
    Unmap,
    /// A system call that changes the rights of a range.
    Protect,
    /// A system call that gives advice on a range.
    Advise,
    /// A system call that moves a range.
    Move,
    /// A system call that forks a space with so many pages of its own.
    Fork,
    /// A first write to a page that a fork has left shared.
    Copy,
    /// A system call that ends a space.
    Exit,
    /// A task that wanted frames reclaimed once for itself, had lists drained, and looked again. The core's own
    /// measurement, like the next, with any workload.
    DirectReclaim,
    /// The per-CPU lists of frames were drained; alone, or as a part of that.
    Drain,
    /// All of that until it had its frames or was refused, with whatever it waited for in between.
    AllocStall,
    /// A block of frames is allocated, one of many in a row.
    BulkAlloc,
    /// And freed, one of many in a row.
    BulkFree,
    /// A block is allocated in a random mix of both.
    RandomAlloc,
    /// And freed, not in the order of allocation.
    RandomFree,
    /// A block is allocated and freed at once: both together.
    Pair,
    /// A block is freed that another CPU allocated.
    HandedFree,
    /// Scattered pages are mapped by `vmap`, touched and unmapped, and what comes between two of these.
    MapCycle,
    /// The same by `map_ram`.
    RamCycle,
    /// A `vunmap` of pages that were touched.
    Vunmap,
    /// An `unmap_aliases` when little waits for a flush.
    UnmapAliases,
    /// A `vmap` among many mappings of all sizes.
    MixMap,
    /// And a `vunmap`.
    MixUnmap,
}

impl Op {
    /// Its name in a report.
    pub const fn name(self) -> &'static str {
        match self {
            Op::Map => "map",
            Op::Touch => "touch",
            Op::Unmap => "unmap",
            Op::Protect => "protect",
            Op::Advise => "advise",
            Op::Move => "move",
            Op::Fork => "fork",
            Op::Copy => "copy",
            Op::Exit => "exit",
            Op::DirectReclaim => "direct-reclaim",
            Op::Drain => "drain",
            Op::AllocStall => "alloc-stall",
            Op::BulkAlloc => "bulk-alloc",
            Op::BulkFree => "bulk-free",
            Op::RandomAlloc => "random-alloc",
            Op::RandomFree => "random-free",
            Op::Pair => "pair",
            Op::HandedFree => "handed-free",
            Op::MapCycle => "map-cycle",
            Op::RamCycle => "ram-cycle",
            Op::Vunmap => "vunmap",
            Op::UnmapAliases => "unmap-aliases",
            Op::MixMap => "mix-map",
            Op::MixUnmap => "mix-unmap",
        }
    }

    /// Whether its latency by number of pages is worth a line each in a table of one run.
    pub const fn goes_by_pages(self) -> bool {
        use Op::{BulkAlloc, BulkFree, HandedFree, Pair, RandomAlloc, RandomFree, Unmap};
        matches!(self, Unmap | BulkAlloc | BulkFree | RandomAlloc | RandomFree | Pair | HandedFree)
    }
}

/// Something that a workload counts, and that its report shows.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Tally {
    /// Groups of `hackbench-oom` all of whose processes came to their own end.
    GroupsCompleted,
    /// Its processes that were ended because memory was out.
    ProcessesKilled,
    /// Its processes that could not be made.
    ForksFailed,
    /// Its messages that were received.
    Messages,
    /// Blocks that `page-alloc` wanted and did not get.
    BlocksRefused,
    /// Blocks of memory that came and were not there at the start.
    BlocksCame,
    /// Pages of `scan-resist` that are hot.
    HotPages,
    /// Of them those that came back while it was swept, each time.
    HotRefaults,
    /// And those that were gone when the sweeps were over.
    HotLost,
    /// Pages that the group of sweeps of `groups` may be charged with.
    GroupLimit,
    /// The most that it was charged with whenever somebody asked.
    GroupMost,
    /// Pages that were swept while it had that limit.
    GroupSwept,
    /// Nanoseconds that the neighbour's threads took alone, all together.
    AloneNs,
    /// The same beside the sweeps with their limit.
    LimitedNs,
    /// And without.
    UnlimitedNs,
    /// Interrupts of other CPUs received while it worked alone.
    AloneIpis,
    /// And beside the sweeps with their limit.
    LimitedIpis,
    /// And without.
    UnlimitedIpis,
    /// Pages of the neighbour that were gone when it had worked alone.
    AloneLost,
    /// And beside the sweeps with their limit.
    LimitedLost,
    /// And without.
    UnlimitedLost,
    /// Operations of a recording that were left out because they were impossible there, or added because they must have been.
    StepsMended,
    /// Pages of a recording that were read, and then written to: flushes that Linux does then, and this core does not.
    ZerosReplaced,
    /// Pages of files of a recording that came with others, and then were written to where they are copied: likewise.
    AroundReplaced,
    /// Calls of a recording that took out nothing and ended while others were under way: Linux flushes all of the space then, and this core does not.
    NestedFlushes,
    /// Calls of a recording that said of pages that they are cold: Linux flushes them then, and this core does not.
    AgedFlushes,
    /// Calls of a recording that dropped pages which nobody had the right to use: likewise.
    HiddenFlushes,
    /// CPUs that Linux asks for a flush of a recording's although they have left the space, and this core does not.
    LeftAsked,
}

impl Tally {
    /// All of them.
    pub const ALL: [Tally; 28] = [
        Tally::GroupsCompleted,
        Tally::ProcessesKilled,
        Tally::ForksFailed,
        Tally::Messages,
        Tally::BlocksRefused,
        Tally::BlocksCame,
        Tally::HotPages,
        Tally::HotRefaults,
        Tally::HotLost,
        Tally::GroupLimit,
        Tally::GroupMost,
        Tally::GroupSwept,
        Tally::AloneNs,
        Tally::LimitedNs,
        Tally::UnlimitedNs,
        Tally::AloneIpis,
        Tally::LimitedIpis,
        Tally::UnlimitedIpis,
        Tally::AloneLost,
        Tally::LimitedLost,
        Tally::UnlimitedLost,
        Tally::StepsMended,
        Tally::ZerosReplaced,
        Tally::AroundReplaced,
        Tally::NestedFlushes,
        Tally::AgedFlushes,
        Tally::HiddenFlushes,
        Tally::LeftAsked,
    ];

    /// Its name where a machine prints it.
    pub const fn name(self) -> &'static str {
        match self {
            Tally::GroupsCompleted => "groups_completed",
            Tally::ProcessesKilled => "processes_killed",
            Tally::ForksFailed => "forks_failed",
            Tally::Messages => "messages",
            Tally::BlocksRefused => "blocks_refused",
            Tally::BlocksCame => "blocks_came",
            Tally::HotPages => "hot_pages",
            Tally::HotRefaults => "hot_refaults",
            Tally::HotLost => "hot_lost",
            Tally::GroupLimit => "group_limit",
            Tally::GroupMost => "group_most_charged",
            Tally::GroupSwept => "group_swept",
            Tally::AloneNs => "neighbour_alone_ns",
            Tally::LimitedNs => "neighbour_limited_ns",
            Tally::UnlimitedNs => "neighbour_unlimited_ns",
            Tally::AloneIpis => "alone_ipis",
            Tally::LimitedIpis => "limited_ipis",
            Tally::UnlimitedIpis => "unlimited_ipis",
            Tally::AloneLost => "alone_lost",
            Tally::LimitedLost => "limited_lost",
            Tally::UnlimitedLost => "unlimited_lost",
            Tally::StepsMended => "steps_mended",
            Tally::ZerosReplaced => "zeros_replaced",
            Tally::AroundReplaced => "around_replaced",
            Tally::NestedFlushes => "nested_flushes",
            Tally::AgedFlushes => "aged_flushes",
            Tally::HiddenFlushes => "hidden_flushes",
            Tally::LeftAsked => "left_asked",
        }
    }
}

/// One CPU did an operation again and again, with so many times as much other work beside it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pace {
    /// Parts of other work to one of the operation.
    pub parts: u32,
    /// Operations.
    pub operations: u64,
    /// How long they took, other work included, in nanoseconds.
    pub ns: u64,
}

/// One CPU unmapped a page that others have cached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shootdown {
    /// CPUs that had it cached, with the one that unmapped it.
    pub cpus: u32,
    /// The sockets (nodes) that these are on.
    pub sockets: u32,
    /// Interrupts that it took.
    pub ipis: u64,
    /// How long the system call took, in nanoseconds.
    pub ns: u64,
}
