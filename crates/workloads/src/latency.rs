//! What workloads measure operation by operation, and a machine keeps.

/// An operation whose latency is kept.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Op {
    /// A system call that maps a range.
    Map,
    /// Touching each page of a range for the first time: a page fault each.
    Touch,
    /// A system call that unmaps a range, all of which was touched.
    Unmap,
    /// A system call that forks a space with so many pages of its own.
    Fork,
    /// A first write to a page that a fork has left shared.
    Copy,
    /// A system call that ends a space.
    Exit,
}

impl Op {
    /// Its name in a report.
    pub const fn name(self) -> &'static str {
        match self {
            Op::Map => "map",
            Op::Touch => "touch",
            Op::Unmap => "unmap",
            Op::Fork => "fork",
            Op::Copy => "copy",
            Op::Exit => "exit",
        }
    }
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
