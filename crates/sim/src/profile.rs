//! Where the CPUs' time went: every picosecond of every CPU belongs to one place.
//!
//! Each task has a stack of places that it is in: the core's scopes, which the core names, and the machine's own (user work,
//! traps, interrupts, …). Interrupts run on the stack of the task that they interrupt, so they nest like all else. Whenever a
//! stack changes, or another task comes, the time since the last change is charged to the innermost place. Nothing here
//! takes simulated time.

use std::cell::RefCell;
use std::fmt;

use quietmm::platform::WaitKey;
use quietmm::profile::{Room, Scope};

/// Somewhere a CPU's time goes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Place {
    /// A part of the core.
    Core(Scope),
    /// A part of the machine, or of the kernel round the core.
    Own(Own),
}

macro_rules! own {
    ($($variant:ident, $spent:ident, $name:literal, $about:literal;)*) => {
        /// What is not the core's.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
        #[repr(u8)]
        pub enum Own { $(#[doc = $about] $variant,)* }

        impl Own {
            const ALL: &'static [Own] = &[$(Own::$variant,)*];

            const fn name(self) -> &'static str {
                match self { $(Own::$variant => $name,)* }
            }

            const fn about(self) -> &'static str {
                match self { $(Own::$variant => $about,)* }
            }

            const fn spent(self) -> Spent {
                match self { $(Own::$variant => Spent::$spent,)* }
            }
        }
    };
}

own! {
    User, Busy, "user work", "programs, with their TLB misses";
    Kernel, Busy, "kernel round the core", "the scheduler, and what a workload does in the kernel";
    KernelAccess, Busy, "use of kernel addresses", "what a workload does with pages that are mapped in the kernel";
    OtherWork, Busy, "other kernel work", "the declared constant for what is not modelled: file system, accounting";
    Syscall, Busy, "system call", "into the kernel and back";
    Trap, Busy, "trap", "into a page fault and back";
    Interrupt, Busy, "interrupt", "into an interrupt and back";
    Kick, Busy, "interrupt: run queue", "the handler of the scheduler's interrupt";
    Alarm, Busy, "interrupt: alarm", "the handler of an alarm or of a device, which wakes a task";
    Tick, Busy, "interrupt: timer tick", "the handler of the periodic timer";
    Wake, Busy, "leaving idle", "an idle CPU takes time until it executes again";
    Switch, Busy, "task switch", "from one task's context to another's";
    Idle, Idle, "idle", "nothing to do";
    Off, Idle, "switched off", "offline";
    Stall, Idle, "taken away", "something below the kernel has the CPU (stall_every)";
}

/// Whether a CPU worked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Spent {
    /// It did.
    Busy,
    /// It had nothing to do, or was not there.
    Idle,
}

const PLACES: usize = Scope::ALL.len() + Own::ALL.len();
const _: () = assert!(PLACES <= 128, "`Seen` has a bit for each");

impl Place {
    const fn index(self) -> usize {
        match self {
            Place::Core(scope) => scope as usize,
            Place::Own(own) => Scope::ALL.len() + own as usize,
        }
    }

    fn at(index: usize) -> Place {
        match Scope::ALL.get(index) {
            Some(&scope) => Place::Core(scope),
            None => Place::Own(Own::ALL[index - Scope::ALL.len()]),
        }
    }

    /// The name in a profile.
    pub const fn name(self) -> &'static str {
        match self {
            Place::Core(scope) => scope.name(),
            Place::Own(own) => own.name(),
        }
    }

    /// What is counted there, in a line.
    pub const fn about(self) -> &'static str {
        match self {
            Place::Core(scope) => scope.about(),
            Place::Own(own) => own.about(),
        }
    }

    /// Whether a CPU that is there works.
    pub const fn spent(self) -> Spent {
        match self {
            Place::Core(_) => Spent::Busy,
            Place::Own(own) => own.spent(),
        }
    }

    /// It comes between: what it interrupts has not called it.
    const fn interrupts(self) -> bool {
        matches!(self, Place::Own(Own::Trap | Own::Interrupt | Own::Stall))
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// What a task that sleeps waits for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Wait {
    /// What this part of the core waits for: a lock, mostly.
    Core(Scope),
    /// A command of the disk.
    Device,
    /// What the workload waits for: others' parts, a moment.
    Workload,
}

impl Wait {
    const COUNT: usize = Scope::ALL.len() + 2;

    const fn index(self) -> usize {
        match self {
            Wait::Core(scope) => scope as usize,
            Wait::Device => Scope::ALL.len(),
            Wait::Workload => Scope::ALL.len() + 1,
        }
    }

    /// The name in a profile.
    pub const fn name(self) -> &'static str {
        match self {
            Wait::Core(scope) => scope.name(),
            Wait::Device => "device",
            Wait::Workload => "the workload's own",
        }
    }
}

/// A line of a profile. Times are picoseconds, summed over all CPUs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Row {
    /// Where.
    pub place: Place,
    /// Time in which this was innermost.
    pub own_ps: u64,
    /// The same with what it called, but for traps and interrupts that came between.
    pub total_ps: u64,
    /// How often it was entered.
    pub calls: u64,
}

/// Time in which tasks slept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Slept {
    /// What for.
    pub wait: Wait,
    /// Picoseconds until the task ran again, summed over all tasks.
    pub ps: u64,
    /// How often.
    pub count: u64,
}

/// Where the time of a run went.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Profile {
    /// CPUs of the machine.
    pub cpus: u32,
    /// From the start to the last CPU's clock at the end, in picoseconds. The rows' own times add up to `cpus` times this.
    pub span_ps: u64,
    /// Where any time was spent or anything was called, the most time first.
    pub rows: Vec<Row>,
    /// For each room of the core in which there was any, the time spent there or in what was called from there.
    pub rooms: Vec<(Room, u64)>,
    /// What tasks slept for, the longest first. Kernel tasks that have nothing to do are left out.
    pub slept: Vec<Slept>,
}

impl Profile {
    /// Time in which CPUs worked, in picoseconds, all of them.
    pub fn busy_ps(&self) -> u64 {
        let busy = self.rows.iter().filter(|row| row.place.spent() == Spent::Busy);
        busy.map(|row| row.own_ps).sum()
    }
}

/// Where one task is.
#[derive(Clone, Default)]
struct Stack {
    /// Contexts that were interrupted, the innermost last.
    interrupted: Vec<u32>,
    /// What it is about to sleep for, or sleeps for.
    wait: Option<Wait>,
    /// When it left its CPU, if it sleeps.
    left: Option<u64>,
}

#[derive(Clone, Copy, Default)]
struct Sum {
    own: u64,
    total: u64,
    calls: u64,
}

/// The account of one run. Cells: the simulator is one host thread.
pub(crate) struct Account(RefCell<Books>);

/// A place with all that it is in: a node of the tree of such. What comes between begins at the root, since what it interrupts has no part in it.
///
/// Time is added here only, to the innermost: what is in the totals of places and rooms is summed up at the end.
#[derive(Clone)]
struct Context {
    own: u64,
    calls: u64,
    parent: u32,
    place: u8,
}

/// The root: outside of all, a task is in the kernel round the core.
const OUTSIDE: u32 = 0;

impl Context {
    fn new(parent: u32, place: Place) -> Context {
        Context { own: 0, calls: 0, parent, place: place.index() as u8 }
    }

    fn place(&self) -> Place {
        Place::at(self.place.into())
    }
}

#[derive(Clone)]
struct Books {
    /// For each CPU until when its time is charged.
    since: Vec<u64>,
    /// For each task the context that it is in.
    at: Vec<u32>,
    stacks: Vec<Stack>,
    contexts: Vec<Context>,
    /// For each context, and each place that may be entered from there, the context that this is: `OUTSIDE` if it never was.
    entered: Vec<[u32; PLACES]>,
    waits: [(u64, u64); Wait::COUNT],
}

/// Who does what: a CPU, the task whose context it runs, and its clock.
#[derive(Clone, Copy)]
pub(crate) struct Now {
    pub cpu: u16,
    pub task: u32,
    pub ps: u64,
}

impl Account {
    pub fn new(cpus: usize, tasks: usize) -> Account {
        Account(RefCell::new(Books {
            since: vec![0; cpus],
            at: vec![OUTSIDE; tasks],
            stacks: (0..tasks).map(|_| Stack::default()).collect(),
            contexts: vec![Context::new(OUTSIDE, Place::Own(Own::Kernel))],
            entered: vec![[OUTSIDE; PLACES]],
            waits: [(0, 0); Wait::COUNT],
        }))
    }

    /// The task goes into a place.
    pub fn enter(&self, now: Now, place: Place) {
        let books = &mut *self.0.borrow_mut();
        let within = books.charge(now);
        let parent = if place.interrupts() {
            books.stacks[now.task as usize].interrupted.push(within);
            OUTSIDE
        } else {
            within
        };
        let entered = books.child(parent, place);
        books.contexts[entered as usize].calls += 1;
        books.at[now.task as usize] = entered;
    }

    /// And out again.
    pub fn leave(&self, now: Now, place: Place) {
        let books = &mut *self.0.borrow_mut();
        let innermost = books.charge(now);
        let left = &books.contexts[innermost as usize];
        debug_assert_eq!(left.place(), place, "places nest");
        books.at[now.task as usize] = if place.interrupts() {
            books.stacks[now.task as usize].interrupted.pop().unwrap_or(OUTSIDE)
        } else {
            left.parent
        };
    }

    /// The CPU leaves the task's context for another's.
    pub fn depart(&self, now: Now) {
        let mut books = self.0.borrow_mut();
        let _ = books.charge(now);
        let stack = &mut books.stacks[now.task as usize];
        stack.left = stack.wait.map(|_| now.ps);
    }

    /// A CPU has come back to the task's context.
    pub fn arrive(&self, now: Now) {
        let mut books = self.0.borrow_mut();
        let stack = &mut books.stacks[now.task as usize];
        if let (Some(wait), Some(left)) = (stack.wait, stack.left.take()) {
            books.slept(wait, left, now.ps);
        }
    }

    /// The task is about to sleep until somebody wakes `key`; returns what it was about to sleep for before.
    pub fn begin_wait(&self, task: u32, key: WaitKey) -> Option<Wait> {
        let books = &mut *self.0.borrow_mut();
        let stack = &mut books.stacks[task as usize];
        let innermost = match books.at[task as usize] {
            OUTSIDE => None,
            context => Some(books.contexts[context as usize].place()),
        };
        let wait = match (key, innermost) {
            // It has nothing to do.
            (WaitKey::Kswapd(_) | WaitKey::VmapPurge, _) => None,
            (WaitKey::Own(key), _) if crate::keys::COMMANDS.contains(&key) => Some(Wait::Device),
            (_, Some(Place::Core(scope))) => Some(Wait::Core(scope)),
            _ => Some(Wait::Workload),
        };
        std::mem::replace(&mut stack.wait, wait)
    }

    /// It goes on.
    pub fn end_wait(&self, task: u32, before: Option<Wait>) {
        self.0.borrow_mut().stacks[task as usize].wait = before;
    }

    /// The profile up to the latest of the CPUs' clocks; `at` gives each CPU's task. Whoever does something at the end
    /// goes on doing so until then, and who sleeps sleeps.
    pub fn close(&self, at: impl Iterator<Item = Now>) -> Profile {
        // The run may go on after this, until it comes to rest.
        let mut books = self.0.borrow().clone();
        let at: Vec<Now> = at.collect();
        let span = at.iter().map(|now| now.ps).max().unwrap_or(0);
        for &now in &at {
            let _ = books.charge(Now { ps: span, ..now });
        }
        for task in 0..books.stacks.len() {
            let stack = &mut books.stacks[task];
            if let (Some(wait), Some(left)) = (stack.wait, stack.left.replace(span)) {
                books.slept(wait, left, span);
            }
        }
        books.profile(span)
    }
}

impl Books {
    /// Charges a CPU's time up to now. Returns the context that its task is in.
    #[inline]
    fn charge(&mut self, now: Now) -> u32 {
        let since = std::mem::replace(&mut self.since[now.cpu as usize], now.ps);
        let innermost = self.at[now.task as usize];
        self.contexts[innermost as usize].own += now.ps - since;
        innermost
    }

    /// The context of a place that is entered from another context.
    #[inline]
    fn child(&mut self, parent: u32, place: Place) -> u32 {
        match self.entered[parent as usize][place.index()] {
            OUTSIDE => self.new_child(parent, place),
            child => child,
        }
    }

    #[cold]
    fn new_child(&mut self, parent: u32, place: Place) -> u32 {
        let child = self.contexts.len() as u32;
        self.contexts.push(Context::new(parent, place));
        self.entered.push([OUTSIDE; PLACES]);
        self.entered[parent as usize][place.index()] = child;
        child
    }

    /// Sums over all contexts: of each place, and of each room of the core.
    fn sums(&self) -> ([Sum; PLACES], [u64; Room::ALL.len()]) {
        let (mut places, mut rooms) = ([Sum::default(); PLACES], [0u64; Room::ALL.len()]);
        places[self.contexts[0].place as usize].total += self.contexts[0].own;
        for (mut at, context) in (OUTSIDE..).zip(&self.contexts) {
            places[context.place as usize].own += context.own;
            places[context.place as usize].calls += context.calls;
            // One that is in itself counts once.
            let (mut seen, mut seen_rooms) = (0u128, 0u32);
            const { assert!(Room::ALL.len() <= u32::BITS as usize) };
            while at != OUTSIDE {
                let Context { place, parent, .. } = self.contexts[at as usize];
                if seen & 1 << place == 0 {
                    seen |= 1 << place;
                    places[place as usize].total += context.own;
                }
                if let Place::Core(scope) = Place::at(place.into()) {
                    seen_rooms |= 1 << scope.room() as u32;
                }
                at = parent;
            }
            for room in Room::ALL.iter().filter(|&&room| seen_rooms & 1 << room as u32 != 0) {
                rooms[*room as usize] += context.own;
            }
        }
        (places, rooms)
    }

    fn slept(&mut self, wait: Wait, from: u64, to: u64) {
        let (ps, count) = &mut self.waits[wait.index()];
        // The CPU that it goes on with may be behind the one that it left, by the engine's slack.
        *ps += to.saturating_sub(from);
        *count += 1;
    }

    fn profile(&self, span_ps: u64) -> Profile {
        let row = |(index, &Sum { own, total, calls }): (usize, &Sum)| Row {
            place: Place::at(index),
            own_ps: own,
            total_ps: total,
            calls,
        };
        let (places, rooms) = self.sums();
        let mut rows: Vec<Row> = places.iter().enumerate().map(row).collect();
        rows.retain(|row| row.calls > 0 || row.own_ps > 0);
        rows.sort_by_key(|row| (u64::MAX - row.own_ps, row.place));
        let waits = Scope::ALL.iter().map(|&scope| Wait::Core(scope)).chain([Wait::Device, Wait::Workload]);
        let slept =
            |wait: Wait| Slept { wait, ps: self.waits[wait.index()].0, count: self.waits[wait.index()].1 };
        let mut slept: Vec<Slept> = waits.map(slept).filter(|slept| slept.count > 0).collect();
        slept.sort_by_key(|slept| (u64::MAX - slept.ps, slept.wait));
        let rooms = Room::ALL.iter().map(|&room| (room, rooms[room as usize]));
        Profile {
            cpus: self.since.len() as u32,
            span_ps,
            rows,
            rooms: rooms.filter(|(_, ps)| *ps > 0).collect(),
            slept,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAULT: Place = Place::Core(Scope::Fault);
    const LOCK: Place = Place::Core(Scope::ZoneLock);
    const TASKS: usize = 4;

    fn at(cpu: u16, task: u32, ps: u64) -> Now {
        Now { cpu, task, ps }
    }

    fn row(profile: &Profile, place: Place) -> (u64, u64, u64) {
        let row = profile.rows.iter().find(|row| row.place == place);
        row.map_or((0, 0, 0), |row| (row.own_ps, row.total_ps, row.calls))
    }

    fn adds_up(profile: &Profile) {
        let all: u64 = profile.rows.iter().map(|row| row.own_ps).sum();
        assert_eq!(all, u64::from(profile.cpus) * profile.span_ps, "{profile:?}");
    }

    #[test]
    fn time_is_the_innermost_places_and_in_the_total_of_all_round_it() {
        let account = Account::new(1, TASKS);
        account.enter(at(0, 0, 10), FAULT);
        account.enter(at(0, 0, 15), LOCK);
        account.leave(at(0, 0, 35), LOCK);
        account.leave(at(0, 0, 40), FAULT);
        let profile = account.close([at(0, 0, 100)].into_iter());
        assert_eq!(row(&profile, FAULT), (10, 30, 1));
        assert_eq!(row(&profile, LOCK), (20, 20, 1));
        assert_eq!(row(&profile, Place::Own(Own::Kernel)), (70, 70, 0));
        assert_eq!(profile.rooms, [(Room::Locks, 20), (Room::Paging, 30)]);
        adds_up(&profile);
    }

    #[test]
    fn a_place_within_itself_is_in_its_total_once() {
        let account = Account::new(1, TASKS);
        account.enter(at(0, 0, 0), FAULT);
        account.enter(at(0, 0, 10), LOCK);
        account.enter(at(0, 0, 20), FAULT);
        let profile = account.close([at(0, 0, 60)].into_iter());
        assert_eq!(row(&profile, FAULT), (50, 60, 2));
        assert_eq!(row(&profile, LOCK), (10, 50, 1));
        adds_up(&profile);
    }

    #[test]
    fn an_interrupt_is_nobodys_but_its_own() {
        let (user, irq) = (Place::Own(Own::User), Place::Own(Own::Interrupt));
        let account = Account::new(1, TASKS);
        account.enter(at(0, 0, 0), user);
        account.enter(at(0, 0, 30), irq);
        account.enter(at(0, 0, 35), Place::Core(Scope::IpiServe));
        account.leave(at(0, 0, 45), Place::Core(Scope::IpiServe));
        account.leave(at(0, 0, 50), irq);
        account.leave(at(0, 0, 90), user);
        let profile = account.close([at(0, 0, 90)].into_iter());
        assert_eq!(row(&profile, user), (70, 70, 1));
        assert_eq!(row(&profile, irq), (10, 20, 1));
        assert_eq!(profile.rooms, [(Room::Ipi, 10)]);
        assert_eq!(profile.busy_ps(), 90);
        adds_up(&profile);
    }

    #[test]
    fn a_task_that_waits_goes_on_in_its_place_on_another_cpu() {
        let idle = Place::Own(Own::Idle);
        let lock = Place::Core(Scope::VmasLock);
        let account = Account::new(2, TASKS);
        // CPU 1 is idle in task 1; task 2 waits on CPU 0 and goes on on CPU 1, whose clock is another.
        account.enter(at(1, 1, 0), idle);
        account.enter(at(0, 2, 5), FAULT);
        account.enter(at(0, 2, 10), lock);
        let before = account.begin_wait(2, WaitKey::Lock(0));
        account.depart(at(0, 2, 12));
        account.enter(at(0, 0, 12), idle);
        account.leave(at(1, 1, 40), idle);
        account.depart(at(1, 1, 41));
        account.arrive(at(1, 2, 41));
        account.end_wait(2, before);
        account.leave(at(1, 2, 43), lock);
        account.leave(at(1, 2, 50), FAULT);
        let profile = account.close([at(0, 0, 30), at(1, 2, 50)].into_iter());
        assert_eq!(row(&profile, lock), (2 + 2, 4, 1));
        assert_eq!(row(&profile, FAULT), (5 + 7, 16, 1));
        assert_eq!(row(&profile, idle), (38 + 40, 78, 2));
        assert_eq!(profile.slept, [Slept { wait: Wait::Core(Scope::VmasLock), ps: 29, count: 1 }]);
        adds_up(&profile);
    }

    #[test]
    fn who_still_sleeps_at_the_end_has_slept_until_then_and_who_has_nothing_to_do_does_not_count() {
        let account = Account::new(1, TASKS);
        for (task, key) in
            [(1, WaitKey::Own(crate::keys::COMMANDS.start)), (2, WaitKey::VmapPurge), (3, WaitKey::Own(7))]
        {
            let _ = account.begin_wait(task, key);
            account.depart(at(0, task, 10 * u64::from(task)));
        }
        let profile = account.close([at(0, 0, 100)].into_iter());
        let slept = |wait, ps| Slept { wait, ps, count: 1 };
        assert_eq!(profile.slept, [slept(Wait::Device, 90), slept(Wait::Workload, 70)]);
        adds_up(&profile);
    }

    #[test]
    fn a_look_at_the_account_does_not_change_it() {
        let account = Account::new(1, TASKS);
        account.enter(at(0, 0, 10), FAULT);
        let first = account.close([at(0, 0, 20)].into_iter());
        assert_eq!(first, account.close([at(0, 0, 20)].into_iter()));
        account.leave(at(0, 0, 30), FAULT);
        assert_eq!(row(&account.close([at(0, 0, 30)].into_iter()), FAULT), (20, 20, 1));
    }
}
