//! What all programs share, and what becomes of them: starts, faults, waits, ends.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::ops::Range;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};

use quietmm::addr::Nanos;
use quietmm::platform::WaitKey;
use quietmm::{Error, FileId, Manager, UserAccess, VirtAddr};

use crate::announced::Announced;
use crate::archive;
use crate::errno::Errno;
use crate::exec::Named;
use crate::frame::Frame;
use crate::futex::Futexes;
use crate::layout::text;
use crate::left::{Leaving, Left};
use crate::locks::Locks;
use crate::machine::Machine;
use crate::mailbox::Mailbox;
use crate::messages::Queue;
use crate::numbered::Numbered;
use crate::open::{Files, Kind, Open, Shared, flag};
use crate::process::{Place, Process, Thread};
use crate::requests::Context;
use crate::semaphores::Set;
use crate::shared::Segment;
use crate::signal::{self, Info, number};
use crate::socket::Names;
use crate::sync::{Mutex, Spin, key_of};
use crate::terminal::Terminal;
use crate::tree::{Body, Content, Device, Inode, mode};
use crate::watches::Watches;

/// What keeps the pages of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Kept {
    /// Memory and swap, as of all memory that programs share.
    InMemory,
    /// The machine's device.
    OnDevice,
    /// The same, and what was not written yet lies in this part of the archive.
    InArchive(Range<usize>),
}

/// Whether a thread goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum Flow {
    /// Back to the program.
    Goes,
    /// It has ended.
    Ends,
}

/// How the first program has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ending {
    /// By itself, with this code.
    Code(u8),
    /// By this signal.
    Signal(u8),
}

/// A system call that is not there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unknown {
    /// What it is called.
    pub name: String,
    /// Which program asked for it.
    pub by: String,
    /// How often.
    pub count: u64,
}

/// What a machine's programs share.
pub struct Linux<'p, M: Machine> {
    pub(crate) mm: &'p Manager<'p, M>,
    pub(crate) machine: &'p M,
    pub(crate) root: Arc<Inode>,
    pub(crate) left: Arc<Left>,
    pub(crate) processes: Spin<BTreeMap<u32, Arc<Process>>>,
    /// With the lock of these held.
    pub(crate) announced: Spin<Announced>,
    pub(crate) futexes: Futexes,
    /// Sockets by name.
    pub(crate) names: Arc<Names>,
    /// How many wait for one of several things.
    watchers: AtomicU64,
    /// Held while one set of watched files is put into another.
    pub(crate) nesting: Spin<()>,
    /// Held while a name is moved or taken away, or a file gets one more.
    pub(crate) moving: Spin<()>,
    /// Who wants to hear what happens to files, and how many there are.
    pub(crate) watches: Spin<Vec<Weak<Watches>>>,
    pub(crate) watching: AtomicU32,
    /// Files of which somebody wants to hear by a signal that something has come, or what happens in them, and how many there are.
    pub(crate) hearing: Spin<Vec<Weak<Open>>>,
    pub(crate) heard: AtomicU32,
    pub(crate) noting: Spin<Vec<Weak<Open>>>,
    pub(crate) noted: AtomicU32,
    /// Locks of files.
    pub(crate) locks: Spin<Locks>,
    /// Shared memory by number.
    pub(crate) segments: Spin<BTreeMap<u32, Segment>>,
    /// Semaphores and messages by number.
    pub(crate) semaphores: Numbered<Set>,
    pub(crate) queues: Numbered<Queue>,
    /// Queues of messages by name.
    pub(crate) mailboxes: Spin<BTreeMap<Vec<u8>, Arc<Mailbox>>>,
    /// Contexts of reads and writes that are asked for and heard of later, by process and address.
    pub(crate) contexts: Spin<BTreeMap<(u32, u64), Arc<Context>>>,
    /// Keys.
    pub(crate) keys: Spin<crate::keys::Keys>,
    /// Terminals by number.
    pub(crate) terminals: Spin<BTreeMap<u32, Arc<Terminal>>>,
    next_inode: AtomicU64,
    next_tid: AtomicU32,
    random: AtomicU64,
    /// Seconds since 1970 when the machine began.
    epoch: u64,
    pub(crate) unknown: Spin<BTreeMap<(u64, Vec<u8>), u64>>,
    /// Nobody runs any more: the first program has ended.
    pub(crate) over: AtomicBool,
    alarms_changed: AtomicU32,
    /// A process is being ended for want of memory.
    pub(crate) ending: AtomicBool,
    /// Each call is noted.
    pub(crate) notes_calls: AtomicBool,
    /// What the machine is called.
    pub(crate) host: Spin<Vec<u8>>,
}

/// Where the archive says what is to run: arguments, an empty one, the environment, each with a zero at its end.
pub(crate) const PROGRAM: &[u8] = b".program";
/// What comes by itself comes no more often, in nanoseconds: alarms and timers of a process, and looks at what a wait is not for.
pub(crate) const SHORTEST: u64 = 1_000_000;
/// How far ahead a wait sets an alarm, in nanoseconds: one that ends early leaves its alarm until then.
const FARTHEST: u64 = 1_000_000_000;
/// Calls that are not there of which a machine takes note.
const MOST_UNKNOWN: usize = 1024;

/// The call is to be made again, unless a handler says otherwise. No program sees this number.
pub(crate) const AGAIN: Errno = Errno(512);
/// The same, whatever a handler says: the signals that have come are seen to first.
pub(crate) const AFTER_SIGNALS: Errno = Errno(513);
/// The same, unless any handler has run; and the same by `restart_syscall`, until the time at which it would have ended. Tracers see these.
pub(crate) const UNLESS_HANDLED: Errno = Errno(514);
pub(crate) const RESTART: Errno = Errno(516);

/// Whether a call is to be made again.
pub(crate) fn is_again(error: Errno) -> bool {
    [AGAIN, AFTER_SIGNALS, UNLESS_HANDLED, RESTART].contains(&error)
}

/// How `siginfo` says that a process has ended: why, and its code or signal.
pub(crate) fn how_ended(status: u64) -> (i32, u64) {
    let status = status & 0xffff;
    if status & 0x7f == 0 { (1, status >> 8) } else { (2, status & 0x7f) }
}

/// How a wait ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Waited {
    Ready,
    Late,
    Interrupted,
}

impl<'p, M: Machine> Linux<'p, M> {
    /// A system with the archive's files, and no program yet.
    ///
    /// # Errors
    /// The core's: no memory for so many files.
    pub fn new(mm: &'p Manager<'p, M>, machine: &'p M, epoch: u64) -> Result<Self, Error> {
        let linux = Linux {
            mm,
            machine,
            root: Inode::directory(1, 0o755, 0),
            left: Arc::default(),
            processes: Spin::default(),
            announced: Spin::default(),
            futexes: Futexes::default(),
            names: Arc::default(),
            watchers: AtomicU64::new(0),
            nesting: Spin::default(),
            moving: Spin::default(),
            watches: Spin::default(),
            watching: AtomicU32::new(0),
            hearing: Spin::default(),
            heard: AtomicU32::new(0),
            noting: Spin::default(),
            noted: AtomicU32::new(0),
            locks: Spin::default(),
            segments: Spin::default(),
            semaphores: Numbered::default(),
            queues: Numbered::default(),
            mailboxes: Spin::default(),
            contexts: Spin::default(),
            keys: Spin::default(),
            terminals: Spin::default(),
            next_inode: AtomicU64::new(2),
            next_tid: AtomicU32::new(1),
            random: AtomicU64::new(0x9e37_79b9_7f4a_7c15),
            epoch,
            unknown: Spin::default(),
            over: AtomicBool::new(false),
            alarms_changed: AtomicU32::new(0),
            ending: AtomicBool::new(false),
            notes_calls: AtomicBool::new(false),
            host: Spin::new(b"quietmm".to_vec()),
        };
        linux.unpack()?;
        linux.furnish();
        Ok(linux)
    }

    pub(crate) fn inode_number(&self) -> u64 {
        self.next_inode.fetch_add(1, Ordering::Relaxed)
    }

    /// A file of the core's, of so many bytes.
    pub(crate) fn new_content(&self, bytes: u64, kept: Kept) -> Result<Content, Error> {
        let pages = bytes.div_ceil(4096).max(1);
        let file = match kept {
            Kept::InMemory => self.mm.create_memory_file(pages)?,
            Kept::OnDevice | Kept::InArchive(_) => self.mm.create_file(pages)?,
        };
        let there = if matches!(kept, Kept::InArchive(_)) { bytes.div_ceil(4096) } else { 0 };
        let content = Content::new(file, there, matches!(kept, Kept::InMemory), &self.left);
        if let Kept::InArchive(part) = kept {
            // Before its length is set: that reads the last page.
            self.machine.keep(file, part);
        }
        self.mm.file(file).set_size(bytes)?;
        Ok(content)
    }

    /// A file that gets its name in this directory: what is in `/dev/shm` is memory that programs share.
    pub(crate) fn new_file_in(&self, directory: &Arc<Inode>, rights: u32) -> Result<Arc<Inode>, Errno> {
        let inside = |at: Arc<Inode>, name: &[u8]| at.get(name).ok().flatten();
        let shared = inside(self.root.clone(), b"dev").and_then(|dev| inside(dev, b"shm"));
        let is_memory = shared.is_some_and(|shared| Arc::ptr_eq(&shared, directory));
        self.new_file(if is_memory { Kept::InMemory } else { Kept::OnDevice }, rights)
    }

    pub(crate) fn new_file(&self, kept: Kept, rights: u32) -> Result<Arc<Inode>, Errno> {
        let content = self.new_content(0, kept)?;
        let mode = mode::FILE | rights & 0o7777;
        Ok(Inode::new(self.inode_number(), mode, self.clock(), Body::File(content)))
    }

    pub(crate) fn file_len(&self, file: FileId) -> u64 {
        self.mm.file(file).size().unwrap_or(0)
    }

    /// Nanoseconds since the machine began.
    pub(crate) fn now(&self) -> u64 {
        self.machine.now().0
    }

    /// Nanoseconds since 1970.
    pub(crate) fn clock(&self) -> u64 {
        self.epoch * 1_000_000_000 + self.now()
    }

    /// A number that nobody expects, and that is the same in each run that goes the same way.
    pub(crate) fn random(&self) -> u64 {
        let mut x = self.random.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed) ^ self.now() << 20;
        x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ x >> 31
    }

    pub(crate) fn new_tid(&self) -> u32 {
        self.next_tid.fetch_add(1, Ordering::Relaxed)
    }

    /// Threads that there have been.
    pub(crate) fn tids_made(&self) -> u32 {
        self.next_tid.load(Ordering::Relaxed) - 1
    }

    /// Starts the archive's program, as process 1.
    ///
    /// # Errors
    /// Why not, in words.
    pub fn start(&self) -> Result<(), String> {
        let archive = self.machine.archive();
        let member = archive::members(archive).find(|member| member.path == PROGRAM);
        let member = member.ok_or("the archive does not say what is to run")?;
        let mut words: Vec<Vec<u8>> =
            archive[member.bytes].split(|&byte| byte == 0).map(<[u8]>::to_vec).collect();
        words.pop();
        let split = words.iter().position(Vec::is_empty).unwrap_or(words.len());
        let environment = words.split_off(split);
        let environment = environment.get(1..).unwrap_or_default();
        let pid = self.new_tid();
        let place = Place {
            directory: self.root.clone(),
            root: self.root.clone(),
            umask: 0o022,
            executable: Vec::new(),
            arguments: 0..0,
            environment: 0..0,
            auxiliary: Vec::new(),
            name: b"kernel".to_vec(),
        };
        let process = Arc::new(Process {
            pid,
            parent: AtomicU32::new(0),
            // As of a program that a shell has started: it leads neither.
            group: AtomicU32::new(0),
            session: AtomicU32::new(0),
            memory: Spin::default(),
            files: Shared::new(Files::new()),
            place: Spin::new(place),
            owner: Spin::default(),
            nice: AtomicU32::new(20),
            personality: AtomicU32::new(0),
            policy: AtomicU32::new(0),
            actions: Spin::new([signal::Action::default(); 65]),
            pending: AtomicU64::new(0),
            infos: Spin::default(),
            threads: Spin::default(),
            dying: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            heard: AtomicU64::new(0),
            undo: Spin::default(),
            stopping: Spin::default(),
            stopped: AtomicBool::new(false),
            borrows: AtomicBool::new(false),
            alarm: Spin::default(),
            meters: Spin::default(),
            timers: Spin::default(),
            ringing: Mutex::new(()),
            said: Default::default(),
            limits: Spin::new(crate::process::first_limits()),
            began: self.now(),
            spent: Default::default(),
            ends_with: AtomicU32::new(0),
            with_parent: AtomicU32::new(0),
            made_by: AtomicU32::new(0),
            adjust: AtomicI32::new(0),
            used: Default::default(),
            limits_locks: AtomicBool::new(false),
            tracing: Default::default(),
            crowds: AtomicBool::new(false),
            terminal: Spin::default(),
        });
        let null = self.directories(b"dev").get(b"null").ok().flatten().ok_or("no /dev/null")?;
        let input = Open::new(Kind::Device(Device::Null, null), 0, b"/dev/null".to_vec());
        let console = |which| Open::new(Kind::Console(which), flag::WRITE_ONLY, b"/dev/console".to_vec());
        process.files.with(|files| {
            for open in [input, console(1), console(2)] {
                files.add(open, false, 0).map_err(|_| "no room for open files")?;
            }
            Ok::<(), &str>(())
        })?;
        let thread = Thread::new(pid, &process, 0);
        process.threads.with(|threads| threads.push(thread.clone()));
        self.processes.with(|all| all.insert(pid, process.clone()));
        let program = words.first().cloned().ok_or("no program is named")?;
        let program = self.search(&program, environment);
        let failed = |error: Errno| alloc::format!("{} does not start: error {}", text(&program), error.0);
        let mut frame = Box::new(Frame::begin(0, 0));
        let named = Named::by_path(program.clone());
        self.exec(&thread, &mut frame, named, words.clone(), environment.to_vec()).map_err(failed)?;
        self.machine.enter_space(None);
        self.machine.begin(thread, frame).map_err(failed)
    }

    /// A program by its name: where `PATH` has it.
    fn search(&self, name: &[u8], environment: &[Vec<u8>]) -> Vec<u8> {
        if name.contains(&b'/') {
            return name.to_vec();
        }
        let path = environment.iter().find_map(|word| word.strip_prefix(b"PATH="));
        let mut all = path.unwrap_or(b"/bin:/usr/bin").split(|&byte| byte == b':').map(|directory| {
            let mut whole = directory.to_vec();
            whole.push(b'/');
            whole.extend_from_slice(name);
            whole
        });
        let from = crate::path::From {
            root: &self.root,
            directory: &self.root,
            process: 0,
            thread: 0,
            shown: &|_, _| None,
            is_open: &|_, _| false,
            directory_open: &|_, _| None,
            may_search: &|_| true,
            within: crate::path::Within::default(),
        };
        let is_there =
            |path: &Vec<u8>| crate::path::walk(&from, path, true).is_ok_and(|found| found.inode.is_some());
        all.find(is_there).unwrap_or_else(|| name.to_vec())
    }

    /// Whoever serves alarms of programs: never returns.
    pub fn serve_alarms(&self) -> ! {
        let key = key_of(&self.unknown);
        loop {
            let now = self.now();
            let mut next = u64::MAX;
            let all: Vec<_> = self.processes.with(|all| all.values().cloned().collect());
            for process in all {
                next = next.min(self.ring(&process, now)).min(self.look_at_meters(&process, now));
            }
            let changed = self.alarms_changed.swap(0, Ordering::SeqCst);
            if changed != 0 {
                continue;
            }
            if next != u64::MAX {
                self.machine.alarm(Nanos(next), key);
            }
            self.machine
                .wait(key, &mut || self.alarms_changed.load(Ordering::SeqCst) != 0 || self.now() >= next);
            // However many alarms there are, others have their turn.
            self.machine.cond_resched();
        }
    }

    /// Somebody has set an alarm.
    pub(crate) fn alarm_changed(&self) {
        self.alarms_changed.store(1, Ordering::SeqCst);
        self.machine.wake(key_of(&self.unknown));
    }

    pub(crate) fn nap(&self, ns: u64) {
        let here = ();
        let (until, key) = (self.now() + ns, key_of(&here));
        self.machine.alarm(Nanos(until), key);
        self.machine.wait(key, &mut || self.now() >= until);
    }

    pub(crate) fn note_unknown(&self, thread: &Thread, number: u64) {
        let by = thread.process.place.with(|place| place.name.clone());
        self.unknown.with(|all| {
            if all.len() < MOST_UNKNOWN || all.contains_key(&(number, by.clone())) {
                *all.entry((number, by)).or_default() += 1;
            }
        });
    }

    /// From now on each call is noted on the console, with what it was given and what it answered.
    pub fn note_calls(&self) {
        self.notes_calls.store(true, Ordering::Relaxed);
    }

    /// Waits, until `ready`, or a signal, or a time.
    pub(crate) fn wait(
        &self,
        thread: &Thread,
        key: WaitKey,
        until: Option<u64>,
        mut ready: impl FnMut() -> bool,
    ) -> Waited {
        if ready() {
            return Waited::Ready;
        }
        self.hear(thread);
        thread.waits.with(|waits| *waits = Some(key));
        let how = loop {
            let look = until.map(|until| until.min(self.now().saturating_add(FARTHEST)));
            if let Some(look) = look {
                self.machine.alarm(Nanos(look), key);
            }
            let mut how = Waited::Ready;
            let mut tells = false;
            self.machine.wait(key, &mut || {
                how = if ready() {
                    Waited::Ready
                } else if thread.is_interrupted() {
                    Waited::Interrupted
                } else if look.is_some_and(|look| self.now() >= look) {
                    Waited::Late
                } else {
                    // Whoever looked may have been the last who had what another waits for the end of.
                    tells = self.left.tells();
                    return tells;
                };
                tells = false;
                true
            });
            if tells {
                self.left.take_keys().into_iter().for_each(|key| self.changed(key));
                continue;
            }
            // It goes on as if nothing had been.
            if how == Waited::Interrupted && self.stops_here(thread) {
                thread.waits.with(|waits| *waits = Some(key));
                continue;
            }
            if how != Waited::Late || look == until {
                break how;
            }
        };
        thread.waits.with(|waits| *waits = None);
        if how == Waited::Late {
            // What was to ring before has.
            self.ring(&thread.process, self.now());
        }
        how
    }

    /// When a wait of so many nanoseconds ends: if it is made again, when it would have ended.
    pub(crate) fn end_of_wait(&self, thread: &Thread, ns: u64) -> u64 {
        thread.deadline.with(Option::take).unwrap_or_else(|| self.now().saturating_add(ns))
    }

    /// A wait has been interrupted that ends then: a handler makes it fail, and if none runs, since another thread has taken the signal, it is
    /// made again and ends when it would have ended.
    pub(crate) fn unless_handled(thread: &Thread, until: Option<u64>) -> Errno {
        thread.deadline.with(|at| *at = until);
        UNLESS_HANDLED
    }

    /// Waits until `ready`, whatever signals come, but for one that ends the thread.
    pub(crate) fn wait_to_the_death(&self, thread: &Thread, key: WaitKey, mut ready: impl FnMut() -> bool) {
        // Each signal wakes it, and it looks.
        thread.waits.with(|waits| *waits = Some(key));
        self.machine.wait(key, &mut || ready() || thread.is_dying());
        thread.waits.with(|waits| *waits = None);
    }

    /// Whoever waits for this looks again, and so does who waits for one of several things.
    pub(crate) fn changed(&self, key: WaitKey) {
        self.machine.wake(key);
        // Partner: the count in `watch`, before its look.
        core::sync::atomic::fence(Ordering::SeqCst);
        if self.watchers.load(Ordering::SeqCst) > 0 {
            self.machine.wake(key_of(&self.watchers));
        }
    }

    /// Waits until `ready`, which looks at several things; `due` says when one of them comes by itself.
    pub(crate) fn watch(
        &self,
        thread: &Thread,
        until: Option<u64>,
        due: impl Fn() -> Option<u64>,
        mut ready: impl FnMut() -> bool,
    ) -> Waited {
        self.watchers.fetch_add(1, Ordering::SeqCst);
        core::sync::atomic::fence(Ordering::SeqCst);
        // What has come, and was not what the wait is for, may come again with each nanosecond.
        let mut soonest = 0;
        let how = loop {
            let when = || until.into_iter().chain(due().map(|at| at.max(soonest))).min();
            let look = when();
            // Whoever wakes it may have set one of them for an earlier time.
            let mut is_sooner = false;
            let how = self.wait(thread, key_of(&self.watchers), look, || {
                let is_ready = ready();
                is_sooner = !is_ready && when().is_some_and(|at| look.is_none_or(|look| at < look));
                is_ready || is_sooner
            });
            if how == Waited::Ready && is_sooner {
                continue;
            }
            if how != Waited::Late || until.is_some_and(|until| self.now() >= until) {
                break how;
            }
            soonest = self.now() + SHORTEST;
        };
        self.watchers.fetch_sub(1, Ordering::SeqCst);
        how
    }

    /// Ends what nobody has any more, and wakes whoever waits for such.
    pub(crate) fn settle(&self) {
        let mut later = Vec::new();
        let mut closed = false;
        self.left.add_open(self.left.flights.lost());
        loop {
            for leaving in self.left.take() {
                match leaving {
                    Leaving::Key(key) => self.changed(key),
                    Leaving::Terminal(number) => self.terminal_over(number),
                    Leaving::File(file) => {
                        // A space that is about to end still shows it.
                        if self.mm.file(file).destroy() == Err(Error::Busy) {
                            later.push(leaving);
                        }
                    }
                    Leaving::Space(space) => {
                        // A CPU that had it a moment ago may still be on its way to another.
                        while self.mm.space(space).destroy() == Err(Error::Busy) {
                            self.nap(1_000);
                        }
                        self.left.spaces[1].fetch_add(1, Ordering::SeqCst);
                    }
                }
            }
            // One after the other: what is in the last of them comes to the list again.
            let Some(open) = self.left.take_open() else { break };
            drop(open);
            closed = true;
        }
        later.into_iter().for_each(|leaving| self.left.add(leaving));
        if closed {
            self.unlocked();
        }
    }

    /// A page fault of the program that runs here.
    pub fn fault(&self, thread: &Arc<Thread>, frame: &mut Frame, at: u64, access: UserAccess) -> Flow {
        thread.process.used.faults[0].fetch_add(1, Ordering::Relaxed);
        if at < VirtAddr::USER_END.0 {
            let mut resolved = self.resolve(thread, at, access);
            while resolved == Err(Error::OutOfMemory) && self.make_room(thread) {
                resolved = self.resolve(thread, at, access);
            }
            match resolved {
                Ok(()) => return self.leave(thread, frame, None),
                Err(error) => self.fault_signal(thread, frame, at, error),
            }
        } else {
            self.fault_signal(thread, frame, at, Error::NotMapped(VirtAddr(at).page()));
        }
        self.leave(thread, frame, None)
    }

    fn fault_signal(&self, thread: &Arc<Thread>, frame: &Frame, at: u64, error: Error) {
        let (signal, code) = match error {
            Error::NotMapped(_) => (number::SEGMENT, 1),
            Error::NotPermitted(_) => (number::SEGMENT, 2),
            Error::BeyondFile | Error::WriteRefused(_) => (number::BUS, 2),
            Error::OutOfMemory => (number::KILL, 0),
            _ => (number::BUS, 3),
        };
        self.force(thread, Info { signal, code, word: at, value: 0, error: 0 });
        if thread.process.action(signal).handler < 2 && !thread.traced.is() {
            let name = thread.process.place.with(|place| text(&place.name));
            let rip = frame.registers.rip;
            self.machine.note(format_args!("{name}: {error} (address {at:#x}, instruction {rip:#x})"));
        }
    }

    /// Another exception of the program that runs here.
    pub fn trap(&self, thread: &Arc<Thread>, frame: &mut Frame, vector: u64) -> Flow {
        let signal = match vector {
            0 | 16 | 19 => number::ARITHMETIC,
            1 | 3 => number::TRAP,
            6 => number::ILLEGAL,
            // Segments, of the stack or not there, and what is not aligned.
            11 | 12 | 17 => number::BUS,
            _ => number::SEGMENT,
        };
        // What `siginfo` says: why, and where; of an access that no page forbids, nothing.
        let (code, word) = match vector {
            0 => (1, frame.registers.rip),
            1 => (2, frame.registers.rip),
            6 => (2, frame.registers.rip),
            16 | 19 => (7, frame.registers.rip),
            17 => (1, 0),
            _ => (128, 0),
        };
        if vector == 1 {
            Self::stepped(thread, frame);
        }
        let rip = frame.registers.rip;
        if thread.process.action(signal).handler < 2 && !thread.traced.is() {
            let name = thread.process.place.with(|place| text(&place.name));
            self.machine.note(format_args!("{name}: exception {vector} at {rip:#x}"));
        }
        self.force(thread, Info { signal, code, word, value: 0, error: 0 });
        self.leave(thread, frame, None)
    }

    /// Whether the first program has ended.
    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }

    /// A thread is about to run for the first time, in its space.
    pub fn begins(&self, thread: &Arc<Thread>) {
        let at = thread.set_tid.load(Ordering::SeqCst);
        if at != 0 {
            // Whoever has named a bad place finds nothing there.
            let _ = self.machine.write_user(at, &thread.tid.to_le_bytes());
        }
    }
}
