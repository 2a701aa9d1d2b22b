//! Files that are made up when they are opened, as far as programs look.

use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use crate::areas::{What, rights};
use crate::kernel::Linux;
use crate::layout::text;
use crate::machine::Machine;
use crate::path::path_of;
use crate::process::Process;
use crate::tree::{Body, Inode, Made, mode};

/// In the numbers of what is shown of processes. No file that was made has such a number.
pub(crate) const SHOWN: u64 = 1 << 61;

/// The process whose directory this is.
pub(crate) fn shows(directory: &Inode) -> Option<u32> {
    let is_one = directory.number & SHOWN != 0 && directory.number & 0xff == 0;
    is_one.then_some((directory.number >> 8) as u32)
}

impl<M: Machine> Linux<'_, M> {
    /// What is below `/proc` of a process that does not look itself.
    pub(crate) fn shown(&self, pid: u64) -> Option<Arc<Inode>> {
        let pid = u32::try_from(pid).ok()?;
        let process = self.processes.with(|all| all.get(&pid).cloned())?;
        let proc = self.root.get(b"proc").ok().flatten()?;
        let (executable, here) =
            process.place.with(|place| (place.executable.clone(), place.directory.clone()));
        let number = |n: u64| SHOWN | u64::from(pid) << 8 | n;
        let files = [
            ("stat", Made::Stat),
            ("status", Made::Status),
            ("statm", Made::Statm),
            ("cmdline", Made::CommandLine),
            ("comm", Made::Name),
            ("maps", Made::Maps),
        ];
        let links = [("exe", executable), ("cwd", path_of(&here))];
        let file =
            |(n, (name, made))| (name, Inode::new(number(n), mode::FILE | 0o444, 0, Body::MadeOf(pid, made)));
        let link = |(n, (name, to))| (name, Inode::new(number(n), mode::LINK | 0o777, 0, Body::Link(to)));
        let all = (1..).zip(files).map(file).chain((100..).zip(links).map(link));
        Some(Inode::made(number(0), &proc, all.collect()))
    }

    pub(crate) fn make(&self, process: &Arc<Process>, made: Made) -> Vec<u8> {
        let cpus = self.machine.possible_cpus();
        let (total, free) = self.machine.memory();
        let name = process.place.with(|place| text(&place.name));
        let own = || {
            // Who has ended has none.
            let Some(memory) = process.memory.with(|memory| memory.clone()) else { return 0 };
            memory.layout.with(self.machine, |layout| {
                layout.areas.iter().map(|(at, area)| (area.end - at) / 4096).sum::<u64>()
            })
        };
        let (pid, parent) = (process.pid, process.parent.load(Ordering::Relaxed));
        let up = self.now() / 1_000_000;
        let state = match () {
            () if process.ended.load(Ordering::SeqCst) != 0 => "Z (zombie)",
            () if process.is_stopped() => "T (stopped)",
            () if process
                .threads
                .with(|all| all.iter().all(|one| one.waits.with(|waits| waits.is_some()))) =>
            {
                "S (sleeping)"
            }
            () => "R (running)",
        };
        let made = match made {
            Made::Name => format!("{name}\n"),
            Made::Maps => self.maps(process),
            Made::CommandLine => return process.place.with(|place| place.arguments.clone()),
            Made::Status => {
                let threads = process.threads.with(|threads| threads.len());
                let kib = own() * 4;
                format!(
                    "Name:\t{name}\nUmask:\t0022\nState:\t{state}\nTgid:\t{pid}\nPid:\t{pid}\nPPid:\t{parent}\nTracerPid:\t0\nUid:\t0\t0\t0\t0\n\
                     Gid:\t0\t0\t0\t0\nVmSize:\t{kib} kB\nVmRSS:\t{kib} kB\nThreads:\t{threads}\n"
                )
            }
            Made::Stat => {
                let (group, session) = (process.group.load(Ordering::Relaxed), process.session.load(Ordering::Relaxed));
                let bytes = own() * 4096;
                format!(
                    "{pid} ({name}) {} {parent} {group} {session} 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 0 {bytes} {} 18446744073709551615 0 0 0 0 0 0 0 0 0 0 0 0 17 0 0 0 0 0 0\n",
                    &state[..1], bytes / 4096
                )
            }
            Made::Statm => format!("{0} {0} 0 0 0 {0} 0\n", own()),
            Made::Mounts => String::from("none / tmpfs rw 0 0\nproc /proc proc rw 0 0\n"),
            Made::MemoryInfo => format!(
                "MemTotal:       {total:>8} kB\nMemFree:        {free:>8} kB\nMemAvailable:   {free:>8} kB\nBuffers:               0 kB\n\
                 Cached:                0 kB\nSwapCached:            0 kB\nSwapTotal:             0 kB\nSwapFree:              0 kB\n"
            ),
            Made::CpuInfo => (0..cpus)
                .map(|cpu| {
                    format!(
                        "processor\t: {cpu}\nvendor_id\t: AuthenticAMD\nmodel name\t: emulated\ncpu MHz\t\t: 1000.000\ncpu cores\t: {cpus}\nflags\t\t: fpu sse sse2\n\n"
                    )
                })
                .collect(),
            Made::Online => if cpus == 1 { String::from("0\n") } else { format!("0-{}\n", cpus - 1) },
            Made::Uptime => format!("{0}.{1:02} {0}.{1:02}\n", up / 1000, up / 10 % 100),
            Made::LoadAverage => format!("0.00 0.00 0.00 1/1 {pid}\n"),
            Made::SystemStat => {
                let lines: String = (0..cpus).map(|cpu| format!("cpu{cpu} 0 0 0 0 0 0 0 0 0 0\n")).collect();
                format!("cpu  0 0 0 0 0 0 0 0 0 0\n{lines}intr 0\nctxt 0\nbtime 0\nprocesses 1\n")
            }
            Made::Version => String::from("Linux version 6.12.0\n"),
            Made::Number(number) => format!("{number}\n"),
        };
        made.into_bytes()
    }

    /// Memory that it takes at most to say what is mapped.
    pub(crate) fn bytes_of_maps(&self, process: &Process) -> u64 {
        const LINE: u64 = 512;
        let Some(memory) = process.memory.with(|memory| memory.clone()) else { return 0 };
        memory.layout.with(self.machine, |layout| LINE * layout.areas.iter().count() as u64)
    }

    fn maps(&self, process: &Process) -> String {
        let Some(memory) = process.memory.with(|memory| memory.clone()) else { return String::new() };
        memory.layout.with(self.machine, |layout| {
            let line = |(at, area): (u64, &crate::areas::Area<crate::process::Mapped>)| {
                let right = |bit: u8, letter: char| if area.rights & bit != 0 { letter } else { '-' };
                let (shared, page, number, path) = match &area.what {
                    What::Own(name) => ('p', 0, 0, String::from(*name)),
                    What::File { file, page, shared } => {
                        (if *shared { 's' } else { 'p' }, *page, file.inode.number, text(&file.path))
                    }
                };
                let head = format!(
                    "{at:08x}-{:08x} {}{}{}{shared} {:08x} 00:{:02x} {number}",
                    area.end,
                    right(rights::READ, 'r'),
                    right(rights::WRITE, 'w'),
                    right(rights::EXECUTE, 'x'),
                    page * 4096,
                    u8::from(number != 0),
                );
                if path.is_empty() { format!("{head} \n") } else { format!("{head:<72} {path}\n") }
            };
            layout.areas.iter().map(line).collect()
        })
    }
}
