//! Hardware that flushes the TLBs of all CPUs at the word of one: the trait behind `flush=broadcast`.

use crate::addr::{FrameNumber, PageRange};

/// What is flushed on every CPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Everywhere {
    /// Pages of the space whose top table is `root`, of whatever size their entries are, and all that CPUs keep of the tables
    /// on the way to them. At most [`Config::flush_ceiling`](crate::config::Config::flush_ceiling) pages.
    Pages {
        /// The top table.
        root: FrameNumber,
        /// The pages.
        range: PageRange,
    },
    /// All of that space, and of its tables.
    Space {
        /// The top table.
        root: FrameNumber,
    },
    /// All of every space, and of their tables.
    Spaces,
    /// Pages of the kernel range of [`Config`](crate::config::Config), whose entries are global, at most that many.
    KernelPages(PageRange),
    /// All of the kernel range.
    Kernel,
}

/// Flushes that hardware carries out on all CPUs, with no interrupt: AMD's INVLPGB and TLBSYNC (APM 3; since Zen 3), Arm's TLBI
/// of the inner shareable domain and DSB. `docs/embedding.md` says how each is asked for with these.
///
/// Calls come with interrupts off, and a CPU's [`sync`](Self::sync) comes on the CPU that has begun the flush. Any CPU may call at
/// any time; no lock of the core need be held.
///
/// # Safety
/// The core's memory safety rests on it. When `sync` returns, no CPU has anything left of what its caller has asked for
/// that it read from tables before [`flush`](Self::flush) was called, nor is any access through it still under way. This is so
///
/// - under every tag ([`UserTlb::load_space`](crate::platform::UserTlb::load_space)), whether the space is loaded there or not: the core
///   takes no note of whoever has been flushed;
/// - on every CPU from before it calls [`Manager::cpu_online`](crate::Manager::cpu_online) until after
///   [`Manager::cpu_offline`](crate::Manager::cpu_offline) has returned, lazy or not, and on the caller's own;
/// - after walks by any CPU have come to see what the caller wrote before: a fence may be needed first.
///
/// More may be flushed than was asked for.
pub unsafe trait Broadcast {
    /// Begins such a flush; it may go on when this returns.
    fn flush(&self, what: Everywhere);
    /// Waits until all flushes that this CPU has begun are done on every CPU.
    fn sync(&self);
}
