//! Files that are made up when they are opened, as far as programs look.

mod maps;

use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt::Write;
use core::sync::atomic::Ordering;

use quietmm::{Counter, SpaceUsage};

use crate::areas::PAGE;
use crate::cpuinfo::cpuinfo;
use crate::kernel::Linux;
use crate::layout::text;
use crate::machine::Machine;
use crate::path::path_of;
use crate::process::{Process, Thread, limit};
use crate::sync::key_of;
use crate::tree::{Body, Inode, Made, mode};

/// In the numbers of what is shown of processes. No file that was made has such a number.
pub(crate) const SHOWN: u64 = 1 << 61;
/// Below the directory of a process: its links, what it has open, its threads; and a thread's own directory.
const LINKS: u64 = 100;
const OPENED: u64 = 110;
const THREADS: u64 = 111;
const THREAD: u64 = 112;
/// The directory of its namespaces, and what is in there from here on.
const SPACES: u64 = 115;
const SPACE: u64 = 116;
/// What is said of what it has open; and one of those.
const TOLD: u64 = 113;
const TOLD_ONE: u64 = 114;

/// The process whose directory this is.
pub(crate) fn shows(directory: &Inode) -> Option<u32> {
    process_of(directory).filter(|_| directory.number & 0xff == 0)
}

/// The process, or the thread, below whose directory something lies.
pub(crate) fn process_of(inode: &Inode) -> Option<u32> {
    (inode.number & SHOWN != 0).then_some((inode.number >> 8) as u32)
}

/// The process whose open files a directory tells of.
pub(crate) fn tells_of(directory: &Inode) -> Option<u32> {
    process_of(directory).filter(|_| directory.number & 0xff == TOLD)
}

/// Whether something lies below a process's directory: what does has no other name.
pub(crate) fn is_made_up(inode: &Inode) -> bool {
    inode.number & (SHOWN | 1 << 62) != 0
}

/// In the number of what lies in `/proc` and below no process's directory.
pub(crate) const OF_PROC: u64 = 1 << 60;

/// Whether this lies in `/proc`, or is that.
pub(crate) fn is_of_proc(inode: &Inode) -> bool {
    is_made_up(inode) || inode.number & OF_PROC != 0
}

/// What is said of one of a process's open files.
pub(crate) fn told(pid: u32, number: u64) -> Arc<Inode> {
    let made = Body::MadeOf(pid, None, Made::Opened(number as u32));
    Inode::new(SHOWN | u64::from(pid) << 8 | TOLD_ONE, mode::FILE | 0o400, 0, made)
}

/// The process whose threads a directory has.
pub(crate) fn threads_of(directory: &Inode) -> Option<u32> {
    process_of(directory).filter(|_| directory.number & 0xff == THREADS)
}

/// What is shown of each process, and of each thread.
const FILES: [(&str, Made); 29] = [
    ("stat", Made::Stat),
    ("status", Made::Status),
    ("statm", Made::Statm),
    ("cmdline", Made::CommandLine),
    ("comm", Made::Name),
    ("maps", Made::Maps),
    ("smaps", Made::Areas),
    ("environ", Made::Environment),
    ("auxv", Made::Auxiliary),
    ("limits", Made::Limits),
    ("io", Made::Counts),
    ("cgroup", Made::Fixed("0::/\n")),
    ("wchan", Made::Fixed("0")),
    ("oom_score", Made::Score),
    ("oom_score_adj", Made::Adjust),
    ("loginuid", Made::Fixed("4294967295")),
    ("sessionid", Made::Fixed("4294967295")),
    ("personality", Made::Identity),
    ("schedstat", Made::Fixed("0 0 0\n")),
    ("smaps_rollup", Made::Memory),
    ("mountinfo", Made::Fixed(MOUNTS)),
    ("mounts", Made::Mounts),
    ("uid_map", Made::Fixed(ALL_IDS)),
    ("gid_map", Made::Fixed(ALL_IDS)),
    ("projid_map", Made::Fixed(ALL_IDS)),
    ("setgroups", Made::Fixed("allow\n")),
    ("coredump_filter", Made::Fixed("00000033\n")),
    ("mem", Made::Space),
    ("pagemap", Made::PageMap),
];

/// Namespaces: there is one of each kind, with the number that Linux's first one has.
const NAMESPACES: [(&str, &str); 10] = [
    ("cgroup", "cgroup:[4026531835]"),
    ("ipc", "ipc:[4026531839]"),
    ("mnt", "mnt:[4026531841]"),
    ("net", "net:[4026531840]"),
    ("pid", "pid:[4026531836]"),
    ("pid_for_children", "pid:[4026531836]"),
    ("time", "time:[4026531834]"),
    ("time_for_children", "time:[4026531834]"),
    ("user", "user:[4026531837]"),
    ("uts", "uts:[4026531838]"),
];

/// All users and groups are what they are.
const ALL_IDS: &str = "         0          0 4294967295\n";

const MOUNTS: &str = "1 0 0:1 / / rw - tmpfs none rw\n2 1 0:2 / /proc rw - proc proc rw\n";

/// What stands above the devices that memory is swapped to.
const SWAPS: &str = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n";

/// Places in the list of signals that processes hear of in one word.
fn signals(of: impl Fn(u32) -> bool) -> u64 {
    (1..=64).filter(|&signal| of(signal)).map(|signal| 1 << (signal - 1)).sum()
}

/// The namespaces of a process or a thread: links that lead nowhere.
fn namespaces(number: u32, proc: &Arc<Inode>) -> (Vec<u8>, Arc<Inode>) {
    let at = |n: u64| SHOWN | u64::from(number) << 8 | n;
    let link = |(n, (name, to)): (u64, (&str, &str))| {
        let body = Body::Link(to.as_bytes().to_vec());
        (name.as_bytes().to_vec(), Inode::new(at(n), mode::LINK | 0o777, 0, body))
    };
    let all = (SPACE..).zip(NAMESPACES).map(link).collect();
    (b"ns".to_vec(), Inode::made(at(SPACES), proc, all))
}

/// The directory of a process or a thread belongs to whom it acts as, and so does all in it. If others may not look into the process, root has
/// all but directories that are open to everybody.
fn owned(process: &Process, number: u64, proc: &Arc<Inode>, below: Vec<(Vec<u8>, Arc<Inode>)>) -> Arc<Inode> {
    let whose = process.owner.with(|owner| [owner.users[1], owner.groups[1]]);
    let is_open = process.said.open.load(Ordering::Relaxed);
    let give = |inode: &Inode| {
        let is_for_all = inode.mode.load(Ordering::Relaxed) == mode::DIRECTORY | 0o555;
        if is_open || is_for_all {
            inode.owner.iter().zip(whose).for_each(|(owner, id)| owner.store(id, Ordering::Relaxed));
        }
    };
    below.iter().for_each(|(_, inode)| give(inode));
    let made = Inode::made(number, proc, below);
    give(&made);
    made
}

/// CPUs that a set has, as `/proc` lists them: `0-3,5`.
fn listed(cpus: u32, has: impl Fn(u32) -> bool) -> String {
    let mut out = String::new();
    let mut cpu = 0;
    while cpu < cpus {
        if !has(cpu) {
            cpu += 1;
            continue;
        }
        let first = cpu;
        while cpu < cpus && has(cpu) {
            cpu += 1;
        }
        let comma = if out.is_empty() { "" } else { "," };
        // A string takes what it is given.
        let _ = match cpu - first {
            1 => write!(out, "{comma}{first}"),
            _ => write!(out, "{comma}{first}-{}", cpu - 1),
        };
    }
    out
}

/// The same as words, a bit each: `f,ffffffff`.
fn masked(cpus: u32, has: impl Fn(u32) -> bool) -> String {
    let bits = |at: u32| (0..32).filter(move |bit| 32 * at + bit < cpus);
    let word = |at: u32| bits(at).filter(|bit| has(32 * at + bit)).fold(0_u32, |word, bit| word | 1 << bit);
    let digits = if cpus < 32 { cpus.div_ceil(4) as usize } else { 8 };
    let words: Vec<String> =
        (0..cpus.div_ceil(32)).rev().map(|at| format!("{:0digits$x}", word(at))).collect();
    words.join(",")
}

impl<M: Machine> Linux<'_, M> {
    /// What is below `/proc` of a process, or below its `task` of a thread of it.
    pub(crate) fn shown(&self, directory: &Inode, number: u64) -> Option<Arc<Inode>> {
        let number = u32::try_from(number).ok()?;
        let pid = threads_of(directory).unwrap_or(number);
        let process = self.processes.with(|all| all.get(&pid).cloned())?;
        let proc = self.root.get(b"proc").ok().flatten()?;
        let (executable, here, root) = process
            .place
            .with(|place| (place.executable.clone(), place.directory.clone(), place.root.clone()));
        let net = if threads_of(directory).is_some() { &b"../../../net"[..] } else { b"../net" };
        let links =
            [("exe", executable), ("cwd", path_of(&here)), ("root", path_of(&root)), ("net", net.to_vec())];
        if threads_of(directory).is_some() {
            self.tids_behind(pid, number.checked_sub(1)?, 1).first().filter(|tid| **tid == number)?;
            let mut below = self.shown_of(number, pid, Some(number), &links);
            below.push(namespaces(number, &proc));
            return Some(owned(&process, SHOWN | u64::from(number) << 8 | THREAD, &proc, below));
        }
        let mut all = self.shown_of(pid, pid, None, &links);
        all.push(namespaces(pid, &proc));
        all.push((b"task".to_vec(), Inode::made(SHOWN | u64::from(pid) << 8 | THREADS, &proc, Vec::new())));
        Some(owned(&process, SHOWN | u64::from(pid) << 8, &proc, all))
    }

    /// Threads of a process behind one, up to so many, in order.
    pub(crate) fn tids_behind(&self, pid: u32, last: u32, most: usize) -> Vec<u32> {
        let Some(process) = self.processes.with(|all| all.get(&pid).cloned()) else { return Vec::new() };
        let mut all: Vec<u32> = process.threads.with(|all| all.iter().map(|thread| thread.tid).collect());
        if all.is_empty() {
            // Whoever has ended is there until it was waited for.
            all.push(pid);
        }
        all.retain(|&tid| tid > last);
        all.sort_unstable();
        all.truncate(most);
        all
    }

    /// What is in the directory of a process, or of a thread of it.
    fn shown_of(
        &self,
        number: u32,
        pid: u32,
        tid: Option<u32>,
        links: &[(&str, Vec<u8>)],
    ) -> Vec<(Vec<u8>, Arc<Inode>)> {
        let number = |n: u64| SHOWN | u64::from(number) << 8 | n;
        let file = |(n, (name, made)): (u64, (&str, Made))| {
            let rights = match made {
                Made::Name | Made::Adjust => 0o644,
                Made::Space => 0o600,
                Made::PageMap => 0o400,
                _ => 0o444,
            };
            let body = Body::MadeOf(pid, tid, made);
            (name.as_bytes().to_vec(), Inode::new(number(n), mode::FILE | rights, self.clock(), body))
        };
        let link = |(n, (name, to)): (u64, &(&str, Vec<u8>))| {
            (name.as_bytes().to_vec(), Inode::new(number(n), mode::LINK | 0o777, 0, Body::Link(to.clone())))
        };
        let files = (1..).zip(FILES).map(file);
        let mut all: Vec<_> = files.chain((LINKS..).zip(links).map(link)).collect();
        for (name, what) in [(b"fd".to_vec(), OPENED), (b"fdinfo".to_vec(), TOLD)] {
            all.push((name, Inode::open_files(SHOWN | u64::from(pid) << 8 | what)));
        }
        all
    }

    /// What a thread is called: its process's name, unless it has another.
    pub(crate) fn name_of(&self, process: &Arc<Process>, tid: u32) -> Vec<u8> {
        let find = |threads: &mut Vec<Arc<Thread>>| {
            threads
                .iter()
                .find(|thread| thread.tid == tid)
                .map(|thread| thread.name.with(|name| name.clone()))
        };
        let own = if tid == process.pid { None } else { process.threads.with(find) };
        own.filter(|name| !name.is_empty()).unwrap_or_else(|| process.place.with(|place| place.name.clone()))
    }

    pub(crate) fn set_name(&self, process: &Arc<Process>, tid: u32, name: Vec<u8>) {
        if tid == process.pid {
            process.place.with(|place| place.name = name);
            return;
        }
        let thread = process.thread(tid);
        if let Some(thread) = thread {
            thread.name.with(|now| *now = name);
        }
    }

    /// The arguments as they lie in the process's memory now. One that has written over their end has given itself a title, which may go on where its
    /// environment was: up to the first zero.
    fn command_line(&self, process: &Process) -> Vec<u8> {
        let (there, behind) = process.place.with(|place| (place.arguments.clone(), place.environment.end));
        let arguments = self.look_into(process, there.clone());
        if arguments.len() as u64 != there.end - there.start || arguments.last().is_none_or(|&last| last == 0)
        {
            return arguments;
        }
        let mut title = self.look_into(process, there.start..behind);
        let end = title.iter().position(|&byte| byte == 0).map_or(title.len(), |zero| zero + 1);
        title.truncate(end);
        title
    }

    pub(crate) fn make(&self, process: &Arc<Process>, tid: Option<u32>, made: Made) -> Vec<u8> {
        let cpus = self.machine.possible_cpus();
        let (total, free) = self.machine.memory();
        let name = text(&self.name_of(process, tid.unwrap_or(process.pid)));
        let up = self.now() / 1_000_000;
        let made = match made {
            Made::Name => {
                return [self.name_of(process, tid.unwrap_or(process.pid)), b"\n".to_vec()].concat();
            }
            Made::Maps => self.maps(process, false),
            Made::Areas => self.maps(process, true),
            Made::Memory => {
                let kib = self.usage_of(process).resident() * 4;
                format!(
                    "00400000-7ffffffff000 ---p 00000000 00:00 0 {:>27} [rollup]\nRss:            {kib:>8} kB\nPss:            {kib:>8} kB\n",
                    ""
                )
            }
            Made::CommandLine => return self.command_line(process),
            Made::Environment => {
                let there = process.place.with(|place| place.environment.clone());
                return self.look_into(process, there);
            }
            Made::Auxiliary => return process.place.with(|place| place.auxiliary.clone()),
            Made::Status => self.status(process, tid, &name),
            Made::Stat => self.stat_line(process, tid, &name),
            Made::Statm => {
                let usage = self.usage_of(process);
                format!(
                    "{} {} {} 0 0 {} 0\n",
                    self.mapped_pages(process),
                    usage.resident(),
                    usage.file,
                    usage.anon
                )
            }
            Made::Limits => limits(process),
            Made::Score => format!("{}\n", self.score(process)),
            Made::Adjust => format!("{}\n", process.adjust.load(Ordering::Relaxed)),
            Made::Sockets(table) => self.connections(table),
            Made::HostName => return [self.host.with(|host| host.clone()), b"\n".to_vec()].concat(),
            Made::Opened(number) => self.tell_open(process, number.into()),
            // They are opened as themselves.
            Made::Space | Made::PageMap => String::new(),
            Made::Swaps => {
                let usage = self.mm.swap().usage();
                let line =
                    format!("{:<40}partition\t{}\t\t{}\t\t-2\n", "/dev/vda", usage.slots * 4, usage.used * 4);
                format!("{SWAPS}{}", if usage.slots == 0 { "" } else { &line })
            }
            Made::Identity => format!("{:08x}\n", process.personality.load(Ordering::Relaxed)),
            Made::Counts => {
                ["rchar", "wchar", "syscr", "syscw", "read_bytes", "write_bytes", "cancelled_write_bytes"]
                    .map(|name| format!("{name}: 0\n"))
                    .concat()
            }
            Made::Host => {
                let [a, b] = [self.random(), self.random()];
                let (c, d) = (a & 0xfff | 0x4000, b >> 48 & 0x3fff | 0x8000);
                format!(
                    "{:08x}-{:04x}-{c:04x}-{d:04x}-{:012x}\n",
                    a >> 32,
                    a >> 16 & 0xffff,
                    b & 0xffff_ffff_ffff
                )
            }
            Made::Mounts => String::from("none / tmpfs rw 0 0\nproc /proc proc rw 0 0\n"),
            Made::MemoryInfo => {
                let line = |(name, kib): (&str, u64)| format!("{:<15} {kib:>8} kB\n", format!("{name}:"));
                let swap = self.mm.swap().usage();
                let (slots, left) = (swap.slots * 4, (swap.slots - swap.used.min(swap.slots)) * 4);
                let dirty = self.mm.dirty_pages() * 4;
                let lists = self.mm.frames().lru_pages();
                let [idle, used] =
                    [[lists.inactive_anon, lists.inactive_file], [lists.active_anon, lists.active_file]]
                        .map(|all| all.map(|pages| pages * 4));
                let cached = lists.file() * 4;
                // A part of what is cached is of use: half, but no more than a little of the memory.
                let available = free + cached - (cached / 2).min(total / 64);
                // What is not counted has no line, as where Linux does not count it.
                let lines = [
                    ("MemTotal", total),
                    ("MemFree", free),
                    ("MemAvailable", available),
                    ("Buffers", 0),
                    ("Cached", cached),
                    ("SwapCached", swap.cached * 4),
                    ("Active", used[0] + used[1]),
                    ("Inactive", idle[0] + idle[1]),
                    ("Active(anon)", used[0]),
                    ("Inactive(anon)", idle[0]),
                    ("Active(file)", used[1]),
                    ("Inactive(file)", idle[1]),
                    ("SwapTotal", slots),
                    ("SwapFree", left),
                    ("Dirty", dirty),
                    ("CommitLimit", total / 2 + slots),
                    ("VmallocTotal", 34_359_738_367),
                ];
                let pages = "HugePages_Total:       0\nHugePages_Free:        0\nHugePages_Rsvd:        0\nHugePages_Surp:        0\nHugepagesize:       2048 kB\n";
                lines.into_iter().map(line).chain([String::from(pages)]).collect()
            }
            Made::CpuInfo => cpuinfo(cpus, |leaf| self.machine.cpuid(leaf)),
            Made::Online => {
                if cpus == 1 {
                    String::from("0\n")
                } else {
                    format!("0-{}\n", cpus - 1)
                }
            }
            Made::Uptime => format!("{0}.{1:02} {0}.{1:02}\n", up / 1000, up / 10 % 100),
            Made::LoadAverage => {
                let processes = self.processes.with(|all| all.len());
                format!("0.00 0.00 0.00 1/{processes} {}\n", process.pid)
            }
            Made::SystemStat => {
                let all: Vec<_> = self.processes.with(|all| all.values().cloned().collect());
                let running =
                    all.iter().filter(|process| self.state_of(process, None).starts_with('R')).count();
                // Which CPU a process used is not counted: each has its share of what all used.
                let spent =
                    |process: &Arc<Process>| self.spent(process) + process.spent[1].load(Ordering::Relaxed);
                let used = all.iter().map(spent).sum::<u64>() / 10_000_000;
                let share = |used: u64, cpus: u64| {
                    format!("{used} 0 0 {} 0 0 0 0 0 0\n", (cpus * up / 10).saturating_sub(used))
                };
                let lines: String =
                    (0..cpus).map(|cpu| format!("cpu{cpu} {}", share(used / u64::from(cpus), 1))).collect();
                let began = self.clock() / 1_000_000_000 - self.now() / 1_000_000_000;
                let (whole, made) = (share(used, cpus.into()), self.tids_made());
                let [interrupts, switches] = self.machine.interrupts_and_switches();
                format!(
                    "cpu  {whole}{lines}intr {interrupts}\nctxt {switches}\nbtime {began}\nprocesses {made}\nprocs_running {running}\nprocs_blocked 0\n"
                )
            }
            Made::Counters => {
                let line = |name: &str, count: u64| format!("{name} {count}\n");
                let counted =
                    Counter::ALL.iter().map(|&counter| line(counter.name(), self.mm.counter(counter)));
                core::iter::once(line("nr_free_pages", self.mm.frames().available())).chain(counted).collect()
            }
            Made::Version => String::from("Linux version 6.12.0 (quietmm) #1 SMP\n"),
            Made::Number(number) => format!("{number}\n"),
            Made::Fixed(text) => String::from(text),
            Made::Mask(from, to) => masked(cpus, |cpu| (from..to).contains(&cpu)) + "\n",
        };
        made.into_bytes()
    }

    /// Pages that are mapped.
    fn mapped_pages(&self, process: &Process) -> u64 {
        // Whoever has ended has none.
        let Some(memory) = process.memory.with(|memory| memory.clone()) else { return 0 };
        memory
            .layout
            .with(self.machine, |layout| layout.areas.iter().map(|(at, area)| (area.end - at) / PAGE).sum())
    }

    pub(crate) fn usage_of(&self, process: &Process) -> SpaceUsage {
        let memory = process.memory.with(|memory| memory.clone());
        memory.and_then(|memory| self.mm.space(memory.space).usage().ok()).unwrap_or_default()
    }

    fn state_of(&self, process: &Process, tid: Option<u32>) -> &'static str {
        // Who was stopped and was let go on runs, though no CPU may have had time for it yet.
        let goes_on = |key| key == key_of(&process.stopping) && !process.is_stopped();
        let sleeps = |thread: &Arc<Thread>| thread.waits.with(|waits| waits.is_some_and(|key| !goes_on(key)));
        let meant = |thread: &&Arc<Thread>| tid.is_none_or(|tid| thread.tid == tid);
        match () {
            () if process.ended.load(Ordering::SeqCst) != 0 => "Z (zombie)",
            () if self.is_held(process, tid) => "t (tracing stop)",
            () if process.is_stopped() => "T (stopped)",
            () if process.threads.with(|all| all.iter().filter(meant).all(sleeps)) => "S (sleeping)",
            () => "R (running)",
        }
    }

    /// Whether a tracer holds a thread, or the first.
    fn is_held(&self, process: &Process, tid: Option<u32>) -> bool {
        let meant = |thread: &&Arc<Thread>| thread.tid == tid.unwrap_or(process.pid);
        let thread = process.threads.with(|all| all.iter().find(meant).cloned());
        thread.is_some_and(|thread| thread.traced.state.with(|state| state.stop.is_some()))
    }

    fn status(&self, process: &Arc<Process>, tid: Option<u32>, name: &str) -> String {
        let (pid, parent) = (process.pid, process.parent.load(Ordering::Relaxed));
        let tid = tid.unwrap_or(pid);
        let state = self.state_of(process, Some(tid));
        let umask = process.place.with(|place| place.umask);
        let owner = process.owner.with(|owner| owner.clone());
        let rights = owner.capabilities;
        let tabs = |ids: [u32; 4]| format!("{}\t{}\t{}\t{}", ids[0], ids[1], ids[2], ids[3]);
        let more: String = owner.more.iter().map(|group| format!("{group} ")).collect();
        let (group, session) =
            (process.group.load(Ordering::Relaxed), process.session.load(Ordering::Relaxed));
        let slots = process
            .files
            .with(|files| files.numbers().last().map_or(64, |last| (last + 1).next_power_of_two().max(64)));
        let usage = self.usage_of(process);
        let (size, resident) = (self.mapped_pages(process) * 4, usage.resident() * 4);
        let peak = self.peak_of(process).max(resident);
        let memory = process.memory.with(|memory| memory.clone());
        let locked = memory.map_or(0, |memory| self.mm.space(memory.space).locked_pages().unwrap_or(0) * 4);
        let threads = process.threads.with(|threads| threads.len());
        let thread = process.thread(tid);
        let (pending, mask, within) = thread.as_ref().map_or((0, 0, [u64::MAX; 4]), |thread| {
            let mask = thread.mask.load(Ordering::SeqCst);
            (thread.pending.load(Ordering::SeqCst), mask, thread.within.with(|within| *within))
        });
        let no_gain = u32::from(process.said.no_gain.load(Ordering::Relaxed));
        let (filtered, filters) =
            thread.as_ref().map_or((0, 0), |thread| (thread.filtering.how(), thread.filtering.count()));
        let tracer = thread.as_ref().map_or(0, |thread| thread.traced.state.with(|state| state.tracer));
        let shared = process.pending.load(Ordering::SeqCst);
        let (ignored, caught) = process.actions.with(|actions| {
            (
                signals(|signal| actions[signal as usize].handler == 1),
                signals(|signal| actions[signal as usize].handler > 1),
            )
        });
        let waiting = process.infos.with(|infos| infos.len());
        let cpus = self.machine.possible_cpus();
        let has = |cpu: u32| within.get(cpu as usize / 64).is_none_or(|word| word >> (cpu % 64) & 1 != 0);
        let allowed = masked(cpus, has);
        let list = listed(cpus, has);
        format!(
            "Name:\t{name}\nUmask:\t{umask:04o}\nState:\t{state}\nTgid:\t{pid}\nNgid:\t0\nPid:\t{tid}\nPPid:\t{parent}\nTracerPid:\t{tracer}\nUid:\t{}\nGid:\t{}\n\
             FDSize:\t{slots}\nGroups:\t{more}\nNStgid:\t{pid}\nNSpid:\t{tid}\nNSpgid:\t{group}\nNSsid:\t{session}\nVmPeak:\t{size:>8} kB\nVmSize:\t{size:>8} kB\n\
             VmLck:\t{locked:>8} kB\nVmPin:\t{:>8} kB\nVmHWM:\t{peak:>8} kB\nVmRSS:\t{resident:>8} kB\nRssAnon:\t{:>8} kB\nRssFile:\t{:>8} kB\nRssShmem:\t{:>8} kB\n\
             VmData:\t{size:>8} kB\nVmStk:\t{:>8} kB\nVmExe:\t{:>8} kB\nVmLib:\t{:>8} kB\nVmPTE:\t{:>8} kB\nVmSwap:\t{:>8} kB\nHugetlbPages:\t{:>8} kB\n\
             CoreDumping:\t0\nTHP_enabled:\t1\nThreads:\t{threads}\nSigQ:\t{waiting}/65536\nSigPnd:\t{pending:016x}\nShdPnd:\t{shared:016x}\nSigBlk:\t{mask:016x}\n\
             SigIgn:\t{ignored:016x}\nSigCgt:\t{caught:016x}\nCapInh:\t{:016x}\nCapPrm:\t{:016x}\nCapEff:\t{:016x}\nCapBnd:\t{:016x}\nCapAmb:\t{:016x}\nNoNewPrivs:\t{no_gain}\n\
             Seccomp:\t{filtered}\nSeccomp_filters:\t{filters}\nCpus_allowed:\t{allowed}\nCpus_allowed_list:\t{list}\nMems_allowed:\t1\nMems_allowed_list:\t0\n\
             voluntary_ctxt_switches:\t0\nnonvoluntary_ctxt_switches:\t0\n",
            tabs(owner.users),
            tabs(owner.groups),
            0,
            usage.anon * 4,
            usage.file * 4,
            usage.shared * 4,
            132,
            0,
            0,
            usage.tables * 4,
            usage.swapped * 4,
            0,
            rights.inheritable,
            rights.permitted,
            rights.effective,
            rights.bounding,
            rights.ambient,
        )
    }

    fn stat_line(&self, process: &Arc<Process>, tid: Option<u32>, name: &str) -> String {
        let (pid, parent) = (process.pid, process.parent.load(Ordering::Relaxed));
        let state = &self.state_of(process, tid)[..1];
        let (group, session) =
            (process.group.load(Ordering::Relaxed), process.session.load(Ordering::Relaxed));
        let own = process.terminal.with(|own| own.clone());
        let (terminal, front) =
            own.map_or((0, -1), |own| (crate::terminal::device(own.number), i64::from(own.owners().0)));
        let threads = process.threads.with(|threads| threads.len());
        let nice = 20 - i64::from(process.nice.load(Ordering::Relaxed));
        let (bytes, resident) = (self.mapped_pages(process) * PAGE, self.usage_of(process).resident());
        let began = process.began / 10_000_000;
        let [faults, below] = process.used.faults.each_ref().map(|faults| faults.load(Ordering::Relaxed));
        let ticks = match tid.map(|tid| process.thread(tid)) {
            Some(thread) => thread.map_or(0, |thread| thread.ran().read(self.now())),
            None => self.spent(process),
        } / 10_000_000;
        let code = process.ended.load(Ordering::SeqCst) as u32 & 0xffff;
        format!(
            "{} ({name}) {state} {parent} {group} {session} {terminal} {front} 4194304 {faults} {below} 0 0 {ticks} 0 0 0 {} {nice} {threads} 0 {began} {bytes} {resident} 18446744073709551615 \
             0 0 0 0 0 0 0 0 0 0 0 0 17 0 0 0 0 0 0 0 0 0 0 0 0 0 {code}\n",
            tid.unwrap_or(pid),
            20 + nice,
        )
    }
}

/// Limits, as a table.
fn limits(process: &Process) -> String {
    const NAMES: [(usize, &str, &str); 16] = [
        (0, "Max cpu time", "seconds"),
        (limit::BYTES_OF_FILE, "Max file size", "bytes"),
        (2, "Max data size", "bytes"),
        (limit::STACK, "Max stack size", "bytes"),
        (limit::CORE, "Max core file size", "bytes"),
        (5, "Max resident set", "bytes"),
        (6, "Max processes", "processes"),
        (limit::FILES, "Max open files", "files"),
        (limit::LOCKED, "Max locked memory", "bytes"),
        (limit::SPACE, "Max address space", "bytes"),
        (10, "Max file locks", "locks"),
        (11, "Max pending signals", "signals"),
        (12, "Max msgqueue size", "bytes"),
        (13, "Max nice priority", ""),
        (14, "Max realtime priority", ""),
        (15, "Max realtime timeout", "us"),
    ];
    let all = process.limits.with(|limits| *limits);
    let value = |value: u64| if value == u64::MAX { String::from("unlimited") } else { format!("{value}") };
    let mut out = format!("{:<25} {:<20} {:<20} {:<10}\n", "Limit", "Soft Limit", "Hard Limit", "Units");
    for (at, name, unit) in NAMES {
        let [soft, hard] = all[at].map(value);
        // A string takes what it is given.
        let _ = match unit {
            "" => writeln!(out, "{name:<25} {soft:<20} {hard:<20} "),
            _ => writeln!(out, "{name:<25} {soft:<20} {hard:<20} {unit:<10}"),
        };
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpus_are_listed_as_runs() {
        let list = |word: u32, cpus| listed(cpus, |cpu| word >> cpu & 1 != 0);
        assert_eq!([masked(4, |cpu| cpu != 1), masked(48, |cpu| cpu > 30)], ["d", "0000ffff,80000000"]);
        assert_eq!([list(1, 1), list(0xf, 4), list(0b1011, 4), list(0, 4)], ["0", "0-3", "0-1,3", ""]);
    }
}
