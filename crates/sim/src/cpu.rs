//! The state of one simulated CPU.

use std::cell::{Cell, RefCell, UnsafeCell};
use std::collections::BTreeSet;

use quietmm::addr::FrameNumber;
use quietmm::platform::{Everywhere, WaitKey};
use quietmm_workloads::TaskId;

use crate::order::NEVER;
use crate::stalls::Stalls;
use crate::tlb::Tlb;

/// Address-space tags that a CPU keeps apart, however many the machine has: the core uses 16.
pub const MOST_TAGS: usize = 64;

/// What a CPU's time is spent on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Mode {
    /// User addresses and user computation.
    User = 0,
    /// The kernel.
    System = 1,
    /// Nothing.
    Idle = 2,
}

/// One CPU. All cells: the simulator is one host thread.
///
/// What every turn reads comes first and fills one line of the host's cache: with thousands of CPUs each turn
/// finds its CPU's state in memory, and a line of it costs more than most of the work done there.
#[repr(C, align(64))]
pub struct Cpu {
    /// Its clock, in picoseconds.
    pub now: Cell<u64>,
    /// At this time something else must be looked at: another CPU's turn, or an interrupt.
    pub limit: Cell<u64>,
    /// When the core's interrupt arrives, when the scheduler's does, and when the timer ticks.
    pub ipi_at: Cell<u64>,
    pub kick_at: Cell<u64>,
    pub tick_at: Cell<u64>,
    /// When the earliest alarm goes off.
    pub alarm_at: Cell<u64>,
    /// The task whose context it runs.
    pub task: Cell<TaskId>,
    /// What its translation hardware works with.
    pub root: Cell<FrameNumber>,
    pub tag: Cell<u16>,
    /// Its number.
    pub id: u16,
    /// Whether interrupts are on.
    pub irqs: Cell<bool>,
    /// It has told the engine when it goes on, and an interrupt may wake it before.
    pub parked: Cell<bool>,
    /// What it does.
    pub mode: Cell<Mode>,

    mode_since: Cell<u64>,
    spent: [Cell<u64>; 3],
    /// It is switched off; when it is switched on, if it has been; and interrupts that were lost on it.
    pub off: Cell<bool>,
    pub on_at: Cell<u64>,
    pub lost: Cell<u64>,
    /// All alarms, with what they wake.
    pub alarms: RefCell<BTreeSet<(u64, WaitKey)>>,
    pub roots: [Cell<FrameNumber>; MOST_TAGS],
    pub tlb: UnsafeCell<Tlb>,
    /// What it has begun to flush on all CPUs, and when the last of that is done.
    pub broadcasts: RefCell<Vec<Everywhere>>,
    pub broadcast_done: Cell<u64>,
    /// Work with interrupts off that is owed, in picoseconds, and by how many pages.
    pub owed: Cell<(u64, u32)>,
    /// When something takes the CPU away.
    pub stalls: Stalls,
    /// How long requests to flush have kept it from what it did, in picoseconds.
    pub answering: Cell<u64>,
    /// How long it has sent requests, and waited for others without leaving the CPU.
    pub asking: Cell<u64>,
    /// Counted for the report.
    pub ticks: Cell<u64>,
    pub kicks: Cell<u64>,
    pub alarmed: Cell<u64>,
    pub io_irqs: Cell<u64>,
    pub refills: Cell<u64>,
}

const _: () = assert!(std::mem::offset_of!(Cpu, mode_since) == 64);

impl Cpu {
    pub fn new(id: u16, first_tick: u64, tlb: Tlb, stalls: Stalls) -> Cpu {
        Cpu {
            id,
            now: Cell::new(0),
            limit: Cell::new(0),
            irqs: Cell::new(false),
            ipi_at: Cell::new(NEVER),
            kick_at: Cell::new(NEVER),
            tick_at: Cell::new(first_tick),
            alarm_at: Cell::new(NEVER),
            alarms: RefCell::new(BTreeSet::new()),
            off: Cell::new(false),
            on_at: Cell::new(NEVER),
            lost: Cell::new(0),
            parked: Cell::new(false),
            task: Cell::new(TaskId(id.into())),
            mode: Cell::new(Mode::System),
            mode_since: Cell::new(0),
            spent: [const { Cell::new(0) }; 3],
            root: Cell::new(FrameNumber::NONE),
            tag: Cell::new(0),
            roots: [const { Cell::new(FrameNumber::NONE) }; MOST_TAGS],
            tlb: UnsafeCell::new(tlb),
            broadcasts: RefCell::default(),
            broadcast_done: Cell::new(0),
            owed: Cell::new((0, 0)),
            stalls,
            answering: Cell::new(0),
            asking: Cell::new(0),
            ticks: Cell::new(0),
            kicks: Cell::new(0),
            alarmed: Cell::new(0),
            io_irqs: Cell::new(0),
            refills: Cell::new(0),
        }
    }

    /// The earliest interrupt that it would take now.
    #[inline]
    pub fn next_irq(&self) -> u64 {
        if self.irqs.get() {
            self.ipi_at.get().min(self.kick_at.get()).min(self.tick_at.get()).min(self.alarm_at.get())
        } else {
            NEVER
        }
    }

    /// From now on time counts as `mode`; returns what it counted as.
    pub fn enter(&self, mode: Mode) -> Mode {
        let (old, now) = (self.mode.get(), self.now.get());
        let spent = &self.spent[old as usize];
        spent.set(spent.get() + (now - self.mode_since.get()));
        self.mode_since.set(now);
        self.mode.set(mode);
        old
    }

    /// Closes the account at the end of a run: whoever does nothing goes on doing so until then.
    pub fn close(&self, end: u64) {
        self.now.set(self.now.get().max(end));
        self.enter(self.mode.get());
    }

    /// Time spent in a mode, in picoseconds, up to the last change.
    pub fn spent(&self, mode: Mode) -> u64 {
        self.spent[mode as usize].get()
    }
}
