//! What a running system needs of a machine, beyond the core's [`Platform`].

use quietmm::addr::Nanos;
use quietmm::platform::{Access, Shortage, WaitKey};
use quietmm::{CpuId, Error, FileId, NodeSet, Platform, UserAccess, VirtAddr};

use crate::latency::{Op, Pace, Shootdown, Tally};
use crate::task::TaskId;

/// A machine on which tasks can run.
pub trait Machine: Platform {
    /// Makes a context that, when it is first switched to, calls [`Kernel::run`] with this task.
    fn spawn(&self, task: TaskId);
    /// This CPU leaves the task that it runs and goes on with `to`. Returns when the task that left is
    /// switched to again. Interrupts are off.
    fn switch(&self, to: TaskId);
    /// Turns interrupts on and waits for one, in one step. Called with interrupts off; returns with them on
    /// after at least one was handled.
    fn idle(&self);
    /// Interrupts a CPU so that it looks at its run queue: [`Kernel::rescheduled`].
    fn kick(&self, cpu: CpuId);
    /// `count` user accesses within the page at `at`, as one piece of work that interrupts can split. Page
    /// faults come back through [`Kernel::fault`], whose error ends the access.
    ///
    /// # Errors
    /// What the fault handler said.
    fn access(&self, at: VirtAddr, count: u32, access: UserAccess) -> Result<(), Error>;
    /// `count` accesses of the kernel within the page at `at`, an address of the kernel range, as one piece of work that
    /// interrupts can split. Nobody resolves a page fault there.
    ///
    /// # Errors
    /// [`Error::NotMapped`]: nothing is mapped there, or what is may not be written to.
    fn kernel_access(&self, at: VirtAddr, count: u32, access: Access) -> Result<(), Error>;
    /// One user access that stores `value` in the word at `at`, through whatever translation the CPU has. Page
    /// faults as in [`access`](Self::access).
    ///
    /// A simulated machine keeps one number for a whole frame: workloads that look at what they have stored use
    /// one word of each page, the first.
    ///
    /// # Errors
    /// What the fault handler said.
    fn store(&self, at: VirtAddr, value: u64) -> Result<(), Error>;
    /// One user access that loads the word at `at`, likewise.
    ///
    /// # Errors
    /// What the fault handler said.
    fn load(&self, at: VirtAddr) -> Result<u64, Error>;
    /// The page at `at`, of which a whole one was just read, shows this page of a file that nobody writes to. A machine
    /// whose device makes up what such files hold looks whether that is what was read.
    fn shows(&self, at: VirtAddr, file: FileId, block: u64) {
        let _ = (at, file, block);
    }
    /// `count` accesses' worth of user computation that touches no memory of interest.
    fn compute(&self, count: u32);
    /// User computation that takes so many nanoseconds of this CPU, without what interrupts take.
    fn run_for(&self, ns: u64) {
        let until = self.now().0 + ns;
        while self.now().0 < until {
            self.compute(64);
        }
    }
    /// Work of the kernel that takes so many nanoseconds of this CPU, likewise, and is not memory management.
    fn work_for(&self, ns: u64) {
        self.run_for(ns);
    }
    /// For how many nanoseconds whoever waits for a lock that may sleep looks whether it is free, before it sleeps.
    fn lock_spin(&self) -> u64 {
        0
    }
    /// For how many nanoseconds requests to flush have kept this CPU from what it did, all in all.
    fn answering(&self) -> u64 {
        0
    }
    /// How many one of them takes, for a page.
    fn answer(&self) -> u64 {
        0
    }
    /// For how many nanoseconds this CPU has asked others to flush, and waited for them or for a lock without giving way, all in all.
    fn asking(&self) -> u64 {
        0
    }
    /// How many it takes to ask one CPU to flush a page, one that has nothing to do or is at work.
    fn ask(&self, idle: bool) -> u64 {
        let _ = idle;
        0
    }
    /// All alarms of this CPU go off on `to` instead, or where they are handed on to from there. Interrupts are off;
    /// called with the scheduler's lock held.
    fn hand_alarms(&self, to: CpuId);
    /// This CPU switches itself off: no timer ticks here, and interrupts are lost. Returns once another has switched
    /// it on, or had done so already. Its TLB may keep what it holds. Interrupts are off, before and after.
    fn switch_off(&self);
    /// Switches a CPU on that is off or about to be.
    fn switch_on(&self, cpu: CpuId);
    /// Whether anything has happened on this CPU since it was last asked that may have made another task's turn come: an
    /// interrupt, a wake-up from here, a switch. A machine that does not keep account says yes, and a lock is taken to look.
    fn may_give_way(&self) -> bool {
        true
    }
    /// The work that a kernel's page fault does outside memory management: file system, accounting. A real
    /// kernel does it itself.
    fn other_kernel_work(&self);
    /// At `at` this CPU is interrupted and wakes whoever waits with `key`.
    fn alarm(&self, at: Nanos, key: WaitKey);
    /// A workload that checks what it reads found something else; a line that says what. Counted, and never in order.
    fn wrong_content(&self, story: &str);
    /// `count` accesses were done by a task whose speed is reported.
    fn counted(&self, count: u64);
    /// An operation on a range of so many pages took so many nanoseconds.
    fn latency(&self, op: Op, pages: u64, ns: u64);
    /// So many more of what a workload counts. 0 says that it counts this at all.
    fn tally(&self, what: Tally, count: u64);
    /// From here on counts, as [`Tally::LeftAsked`], whom Linux asks for a flush because they once used the space, where this core does not. A machine that does
    /// not count it says nothing of it.
    fn count_left(&self) {}
    /// One CPU's pace.
    fn pace(&self, pace: &Pace);
    /// One CPU unmapped a page that others had cached.
    fn shootdown(&self, shootdown: &Shootdown);
    /// A task enters the kernel of its own will.
    fn enter_kernel(&self);
    /// And leaves it.
    fn leave_kernel(&self);
    /// Length of a time slice, in nanoseconds.
    fn time_slice(&self) -> u64;
    /// Tasks that reclaim ahead of need, for each node.
    fn kswapds(&self) -> u32 {
        1
    }
    /// The nodes on which new pages of programs' own memory come, if not on all.
    fn nodes_of_programs(&self) -> Option<NodeSet> {
        None
    }
    /// How long it takes, in nanoseconds, from an alarm that is set here until a task of `cpu` runs, if neither CPU has anything else to do.
    fn wake_lag(&self, _cpu: CpuId) -> u64 {
        0
    }
    /// Progress, for whoever watches: pages of work done.
    fn progressed(&self, pages: u64);
    /// The last user task has ended: stop.
    fn finished(&self);
}

/// What a machine calls.
pub trait Kernel {
    /// An interrupt from [`Cpus::interrupt`](quietmm::platform::Cpus::interrupt). Interrupts are off.
    fn interrupted(&self);
    /// An interrupt from [`Machine::kick`]. Interrupts are off.
    fn rescheduled(&self);
    /// The periodic timer. Interrupts are off.
    fn ticked(&self);
    /// A page fault of the task that runs here. Interrupts are on.
    ///
    /// # Errors
    /// Why it cannot be resolved.
    fn fault(&self, at: VirtAddr, access: UserAccess) -> Result<(), Error>;
    /// A task's whole life. Never returns for an idle task; for others the context is never switched to
    /// again after this has switched away for the last time.
    fn run(&self, task: TaskId);
    /// [`Services::wait`](quietmm::platform::Services::wait) of the task that runs here.
    fn wait(&self, key: WaitKey, ready: &mut dyn FnMut() -> bool);
    /// [`Services::wake`](quietmm::platform::Services::wake).
    fn wake(&self, key: WaitKey);
    /// [`Services::cond_resched`](quietmm::platform::Services::cond_resched).
    fn cond_resched(&self);
    /// [`Services::out_of_memory`](quietmm::platform::Services::out_of_memory).
    fn out_of_memory(&self, short: &Shortage) -> bool;
}
