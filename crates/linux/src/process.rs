//! Processes and threads.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};

use quietmm::SpaceId;
use quietmm::platform::WaitKey;

use crate::areas::Areas;
use crate::capabilities::Capabilities;
use crate::filtering::Filtering;
use crate::left::{Leaving, Left};
use crate::meters::{Meter, Metered};
use crate::open::Shared;
use crate::signal::{Action, Info, Stack};
use crate::stop::Stopping;
use crate::sync::{Mutex, Spin};
use crate::terminal::Terminal;
use crate::timer::Timer;
use crate::trace::{Traced, Tracing};
use crate::tree::Inode;
use crate::usage::{Peak, Used};
use crate::uses::Use;

/// A file that is mapped.
#[derive(Clone)]
pub(crate) struct Mapped {
    pub inode: Arc<Inode>,
    pub path: Arc<[u8]>,
    /// What it shows with others may be written, or made so.
    pub may_write: bool,
}

impl PartialEq for Mapped {
    fn eq(&self, other: &Mapped) -> bool {
        Arc::ptr_eq(&self.inode, &other.inode) && self.may_write == other.may_write && self.path == other.path
    }
}

/// Which pages of what is locked stay in memory.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lock {
    /// All of them, from now on.
    All,
    /// Each from when it is used on.
    Used,
}

/// What is mapped, and where the heap ends.
#[derive(Clone, Default)]
pub(crate) struct Layout {
    pub areas: Areas<Mapped>,
    pub heap: u64,
    pub heap_end: u64,
    /// How what is mapped from now on is locked, if it is.
    pub locks_more: Option<Lock>,
    /// The program: nobody writes to it.
    pub runs: Option<Use>,
}

/// A space, and what lies in it. It ends when nobody has this any more.
pub(crate) struct Memory {
    pub space: SpaceId,
    pub layout: Mutex<Layout>,
    /// The most of it that was in memory.
    pub peak: Peak,
    /// What was announced of barriers, as `membarrier` has it.
    pub barriers: AtomicU32,
    left: Arc<Left>,
}

impl Memory {
    pub fn new(space: SpaceId, layout: Layout, left: &Arc<Left>) -> Arc<Memory> {
        let (peak, barriers) = (Peak::default(), AtomicU32::new(0));
        Arc::new(Memory { space, layout: Mutex::new(layout), peak, barriers, left: left.clone() })
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.left.add(Leaving::Space(self.space));
    }
}

/// Where a process is, and what it is called.
#[derive(Clone)]
pub(crate) struct Place {
    pub directory: Arc<Inode>,
    /// Where its paths begin that begin with a slash.
    pub root: Arc<Inode>,
    pub umask: u32,
    /// The path of its program.
    pub executable: Vec<u8>,
    /// Where its arguments lie in its memory, and its environment, as it may change them: with zeros between.
    pub arguments: Range<u64>,
    pub environment: Range<u64>,
    /// What the kernel told it when it began.
    pub auxiliary: Vec<u8>,
    /// The name that it has given itself, or its program's.
    pub name: Vec<u8>,
}

/// For whom a process acts: each real, effective, saved, and the one that files look at. Only what `chown`, `kill` and these calls themselves
/// ask depends on it: all files are everybody's.
#[derive(Clone, Default)]
pub(crate) struct Owner {
    pub users: [u32; 4],
    pub groups: [u32; 4],
    /// More groups that it is in.
    pub more: Vec<u32>,
    /// What it may, as it is told.
    pub capabilities: Capabilities,
}

impl Owner {
    /// It may do everything.
    pub fn is_root(&self) -> bool {
        self.users[1] == 0
    }
}

/// It has ended, with this status as `wait4` has it.
pub(crate) const ENDED: u64 = 1 << 32;

pub(crate) struct Process {
    pub pid: u32,
    pub parent: AtomicU32,
    pub group: AtomicU32,
    pub session: AtomicU32,
    pub memory: Spin<Option<Arc<Memory>>>,
    pub files: Shared,
    pub place: Spin<Place>,
    pub owner: Spin<Owner>,
    /// How willing it is that others run before it: 20 and that number, as `getpriority` has it, is 40 at most and 1 at least.
    pub nice: AtomicU32,
    /// What it has said of how it wants to be run.
    pub personality: AtomicU32,
    /// Where it wants its memory from: how, and the first node in the upper half.
    pub policy: AtomicU32,
    pub actions: Spin<[Action; 65]>,
    pub pending: AtomicU64,
    /// What is known of pending signals.
    pub infos: Spin<Vec<Info>>,
    pub threads: Spin<Vec<Arc<Thread>>>,
    /// All threads are to end: [`ENDED`] and the status.
    pub dying: AtomicU64,
    /// It has ended, likewise.
    pub ended: AtomicU64,
    /// The last signal for many that it was sent, or that was sent before it could be meant: see [`Announced`](crate::announced::Announced).
    pub heard: AtomicU64,
    /// See [`Stopping`].
    pub stopping: Spin<Stopping>,
    /// It is stopped.
    pub stopped: AtomicBool,
    /// Whoever made it waits until it has a space of its own.
    pub borrows: AtomicBool,
    /// When it gets an alarm, and how long until the next.
    pub alarm: Spin<(u64, u64)>,
    /// When it has used so much of CPUs that it gets a signal, and how much until the next: of the two kinds.
    pub meters: Spin<[(u64, u64); 2]>,
    /// Its timers, by number.
    pub timers: Spin<BTreeMap<u32, Ringer>>,
    /// Held from when one is found that is due until its signal is there.
    pub ringing: Mutex<()>,
    /// The sets of semaphores of which something may be undone when it ends.
    pub undo: Spin<Vec<alloc::sync::Weak<crate::semaphores::Set>>>,
    /// Since when it is.
    pub began: u64,
    /// How long threads of it that have ended ran, and children that were waited for.
    pub spent: [AtomicU64; 2],
    /// What it has used of memory.
    pub used: Used,
    /// It has said itself, or who made it, how much it may lock.
    pub limits_locks: AtomicBool,
    /// What it has said of itself.
    pub said: crate::said::Said,
    /// Its limits, soft and hard, by their numbers.
    pub limits: Spin<Limits>,
    /// The signal by which its parent hears that it has ended.
    pub ends_with: AtomicU32,
    /// The signal by which it hears that its parent has ended; 0 is none.
    pub with_parent: AtomicU32,
    /// The thread that made it.
    pub made_by: AtomicU32,
    /// By how many thousandths of all memory it is ended sooner, or later, than others when there is no more.
    pub adjust: AtomicI32,
    /// Whom it traces, and who traces it.
    pub tracing: Tracing,
    /// Its user had more threads than it may have when the process became theirs.
    pub crowds: AtomicBool,
    /// The terminal of its session.
    pub terminal: Spin<Option<Arc<Terminal>>>,
}

/// Limits, soft and hard, by their numbers.
pub(crate) type Limits = [[u64; 2]; 16];

/// Those that matter here.
pub(crate) mod limit {
    pub const CPU: usize = 0;
    pub const STACK: usize = 3;
    pub const CORE: usize = 4;
    pub const BYTES_OF_FILE: usize = 1;
    pub const DATA: usize = 2;
    pub const THREADS: usize = 6;
    pub const FILES: usize = 7;
    pub const LOCKED: usize = 8;
    pub const SPACE: usize = 9;
    /// Signals that wait, and bytes of queues of messages.
    pub const WAITING: usize = 11;
    pub const MESSAGES: usize = 12;
    /// How far before others: 20 less than the number, and by how much in real time.
    pub const NICE: usize = 13;
    pub const REAL_TIME: usize = 14;
}

/// Threads that there may be, as programs are told.
pub(crate) const MOST_THREADS: u64 = 32_768;

/// Bytes that a program may lock, as Linux has it of those that may not lock all; and, here, that it may be allowed to.
pub(crate) const MOST_LOCKED: u64 = 8 << 20;

/// Bytes that all queues of messages of a user take, at most.
const MOST_MESSAGES: u64 = 819_200;

/// Those of the first program.
pub(crate) fn first_limits() -> Limits {
    let mut limits = [[u64::MAX; 2]; 16];
    // Half of all, as Linux has it.
    limits[limit::THREADS] = [MOST_THREADS / 2; 2];
    limits[limit::WAITING] = limits[limit::THREADS];
    limits[limit::MESSAGES] = [MOST_MESSAGES; 2];
    limits[limit::STACK][0] = crate::exec::STACK;
    limits[limit::CORE][0] = 0;
    limits[limit::LOCKED] = [MOST_LOCKED; 2];
    (limits[limit::NICE], limits[limit::REAL_TIME]) = ([0; 2], [0; 2]);
    limits[limit::FILES] = [crate::open::USUAL as u64, crate::open::MOST as u64];
    limits
}

/// What a timer goes by.
#[derive(Clone)]
pub(crate) enum Clock {
    /// The machine's clock, or one that is ahead of it.
    Machine(u64),
    /// What somebody uses of CPUs.
    Cpus(Metered),
}

/// A timer that rings by a signal.
pub(crate) struct Ringer {
    pub timer: Timer,
    pub clock: Clock,
    /// 0: none.
    pub signal: u32,
    /// The thread that is meant, if not any.
    pub thread: Option<u32>,
    pub value: u64,
    /// How often more than once it had expired when it was heard.
    pub overruns: u64,
    /// When it rang last.
    pub rang: u64,
}

impl Ringer {
    /// What has been used by whom it is about, and by how many, if it goes by that; of one that is gone, nothing, by nobody.
    pub fn used(&self, now: u64) -> Option<(u64, u64)> {
        match &self.clock {
            Clock::Machine(_) => None,
            Clock::Cpus(metered) => Some(metered.read(now).unwrap_or((0, 0))),
        }
    }

    /// Whether what it goes by is what this process uses, or a thread, which is no more than one.
    pub fn is_of(&self, process: &Arc<Process>) -> bool {
        match &self.clock {
            Clock::Cpus(Metered::Process(of)) => of.as_ptr() == Arc::as_ptr(process),
            _ => true,
        }
    }
}

/// A thread.
pub struct Thread {
    pub(crate) tid: u32,
    pub(crate) process: Arc<Process>,
    pub(crate) mask: AtomicU64,
    /// The mask to come back to once a handler has been chosen: of `sigsuspend` and the like.
    pub(crate) old_mask: Spin<Option<u64>>,
    pub(crate) pending: AtomicU64,
    pub(crate) infos: Spin<Vec<Info>>,
    pub(crate) stack: Spin<Option<Stack>>,
    pub(crate) clear_tid: AtomicU64,
    /// Where the list begins of the locks that it holds and others share; 0 for nowhere.
    pub(crate) robust: AtomicU64,
    /// Where its number is to be written when it begins; 0 for nowhere.
    pub(crate) set_tid: AtomicU64,
    pub(crate) fs: AtomicU64,
    /// What it waits for, where a signal may end that.
    pub(crate) waits: Spin<Option<WaitKey>>,
    /// The name that it has given itself, if it is not its process's first.
    pub(crate) name: Spin<Vec<u8>>,
    /// What it wants of the scheduler, and its priority.
    pub(crate) scheduling: Spin<(u32, u32)>,
    /// CPUs on which it may run, a bit each.
    pub(crate) within: Spin<[u64; 4]>,
    /// They have changed, and it does not know yet.
    pub(crate) moves: AtomicBool,
    /// How long it has run.
    pub(crate) ran: Meter,
    /// This thread alone is to end: it wants to, with this code, or another one runs a new program.
    pub(crate) dying: AtomicBool,
    pub(crate) code: AtomicU32,
    /// When a wait ends that was interrupted and is made again; and the call that `restart_syscall` makes again.
    pub(crate) deadline: Spin<Option<u64>>,
    pub(crate) restarts: AtomicU64,
    /// Who looks into it.
    pub(crate) traced: Traced,
    /// How its calls are filtered.
    pub(crate) filtering: Filtering,
}

impl Thread {
    pub(crate) fn new(tid: u32, process: &Arc<Process>, mask: u64) -> Arc<Thread> {
        Arc::new(Thread {
            tid,
            process: process.clone(),
            mask: AtomicU64::new(mask),
            old_mask: Spin::default(),
            pending: AtomicU64::new(0),
            infos: Spin::default(),
            stack: Spin::default(),
            clear_tid: AtomicU64::new(0),
            robust: AtomicU64::new(0),
            set_tid: AtomicU64::new(0),
            fs: AtomicU64::new(0),
            waits: Spin::default(),
            scheduling: Spin::default(),
            name: Spin::default(),
            within: Spin::new([u64::MAX; 4]),
            moves: AtomicBool::new(false),
            ran: Meter::default(),
            dying: AtomicBool::new(false),
            code: AtomicU32::new(0),
            deadline: Spin::default(),
            restarts: AtomicU64::new(0),
            traced: Traced::default(),
            filtering: Filtering::default(),
        })
    }

    /// How far before others it is to be woken: not at all, unless it is for real time.
    pub(crate) fn priority(&self) -> u32 {
        self.scheduling.with(|&mut (_, priority)| priority)
    }

    /// How long it has run: whoever lets it run says when it begins, and when it rests.
    pub fn ran(&self) -> &Meter {
        &self.ran
    }

    /// Its number.
    pub fn tid(&self) -> u32 {
        self.tid
    }

    /// The number of its process.
    pub fn pid(&self) -> u32 {
        self.process.pid
    }

    /// The base of its `fs`.
    pub fn fs(&self) -> u64 {
        self.fs.load(Ordering::Relaxed)
    }

    /// The space that it runs in.
    pub fn space(&self) -> Option<SpaceId> {
        self.process.memory.with(|memory| memory.as_ref().map(|memory| memory.space))
    }

    pub(crate) fn memory(&self) -> Arc<Memory> {
        self.process.memory.with(|memory| memory.clone()).expect("a thread that runs has a space")
    }

    /// Signals that were sent to it, or to its process.
    pub(crate) fn waiting_signals(&self) -> u64 {
        self.pending.load(Ordering::SeqCst) | self.process.pending.load(Ordering::SeqCst)
    }

    /// Signals that it should see to.
    pub(crate) fn signals(&self) -> u64 {
        self.waiting_signals() & !self.mask.load(Ordering::SeqCst)
    }

    /// Which of these signals it sees to first: one of its own before those of its process.
    pub(crate) fn first_of(&self, signals: u64) -> u32 {
        let own = self.pending.load(Ordering::SeqCst) & signals;
        crate::signal::first_of(if own != 0 { own } else { signals })
    }

    pub(crate) fn is_dying(&self) -> bool {
        self.dying.load(Ordering::SeqCst) || self.process.dying.load(Ordering::SeqCst) != 0
    }

    /// Its process is stopped, and nobody wants it to go on all the same.
    pub(crate) fn is_stopped(&self) -> bool {
        self.process.is_stopped() && !self.traced.passes.load(Ordering::SeqCst)
    }

    /// How it ends, as `wait4` says it.
    pub(crate) fn status(&self) -> u32 {
        match self.process.dying.load(Ordering::SeqCst) {
            0 => self.code.load(Ordering::Relaxed) << 8,
            status => (status & !ENDED) as u32,
        }
    }

    /// Whether a wait is to end.
    pub(crate) fn is_interrupted(&self) -> bool {
        self.is_dying() || self.signals() != 0 || self.is_to_trap()
    }

    /// Whether anything is to be done before it goes on.
    pub fn has_work(&self) -> bool {
        self.is_interrupted() || self.is_stopped() || self.moves.load(Ordering::Relaxed)
    }
}

impl Process {
    /// What a signal says of whoever sends it, or of whom it tells: the process and its user.
    pub(crate) fn names_itself(&self) -> u64 {
        self.names(self.pid)
    }

    /// The same of a thread of it.
    pub(crate) fn names(&self, tid: u32) -> u64 {
        u64::from(tid) | u64::from(self.owner.with(|owner| owner.users[0])) << 32
    }

    pub fn action(&self, signal: u32) -> Action {
        self.actions.with(|actions| actions[signal as usize])
    }

    /// All its threads are to end, with this status, unless another was first.
    pub fn die(&self, status: u32) {
        let _ = self.dying.compare_exchange(0, ENDED | u64::from(status), Ordering::SeqCst, Ordering::SeqCst);
    }
}
