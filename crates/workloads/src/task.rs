//! A task: what it does, where it may run, how it ended.

use alloc::boxed::Box;
use alloc::string::String;

use quietmm::{CpuId, Error, NodeId, SpaceId};

use crate::machine::Machine;
use crate::system::System;

/// A task, by its place in the system's table. The first are the CPUs' idle tasks.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct TaskId(pub u32);

/// What a task does.
pub type Body<'p, M> = Box<dyn FnOnce(&System<'p, M>) -> Result<(), Error> + 'p>;

/// What kind of task it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TaskKind {
    /// Runs when a CPU has nothing else to do; lazy.
    Idle,
    /// Kernel work that touches no user address, on any CPU of a node; lazy.
    Kernel(NodeId),
    /// Runs in a user space, on one CPU.
    User(SpaceId),
    /// Runs in a user space; the system does not wait for it to end.
    Background(SpaceId),
}

impl TaskKind {
    /// The space that it needs loaded.
    pub fn space(self) -> Option<SpaceId> {
        match self {
            TaskKind::User(space) | TaskKind::Background(space) => Some(space),
            TaskKind::Idle | TaskKind::Kernel(_) => None,
        }
    }
}

/// What can be said of a task at the end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TaskReport {
    /// Its name.
    pub name: String,
    /// Its kind.
    pub kind: TaskKind,
    /// When it first ran, in nanoseconds of the machine's clock.
    pub started: u64,
    /// When it ended, if it did.
    pub ended: Option<u64>,
    /// How it ended.
    pub result: Result<(), Error>,
}

/// A set of CPUs, a bit each. Those that have no bit here are in each set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cpus(pub [u64; 4]);

impl Cpus {
    /// All of them.
    pub const ALL: Cpus = Cpus([u64::MAX; 4]);

    /// Whether this one is in it.
    pub fn has(&self, cpu: CpuId) -> bool {
        self.0.get(cpu.index() / 64).is_none_or(|word| word >> (cpu.index() % 64) & 1 != 0)
    }
}

/// Whether a task wants to run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    Runnable,
    Waiting,
    Ended,
}

pub(crate) struct Task<'p, M: Machine> {
    pub report: TaskReport,
    pub state: State,
    /// Where it runs while that CPU is online.
    pub home: CpuId,
    /// Where it runs or ran last.
    pub cpu: CpuId,
    /// It is on a CPU, or that CPU has not left its context yet.
    pub on_cpu: bool,
    /// It may go to another CPU when its own is busy: to one of these.
    pub roams: bool,
    pub within: Cpus,
    /// It stands in a run queue.
    pub queued: bool,
    pub body: Option<Body<'p, M>>,
}
