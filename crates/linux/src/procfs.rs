//! Files that are made up when they are opened, as far as programs look.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use crate::areas::{What, rights};
use crate::kernel::Linux;
use crate::layout::text;
use crate::machine::Machine;
use crate::process::Thread;
use crate::tree::Made;

impl<M: Machine> Linux<'_, M> {
    pub(crate) fn make(&self, thread: &Thread, made: Made) -> Vec<u8> {
        let process = &thread.process;
        let cpus = self.machine.possible_cpus();
        let (total, free) = self.machine.memory();
        let name = process.place.with(|place| text(&place.name));
        let own = || {
            let memory = thread.memory();
            memory.layout.with(self.machine, |layout| {
                layout.areas.iter().map(|(at, area)| (area.end - at) / 4096).sum::<u64>()
            })
        };
        let (pid, parent) = (process.pid, process.parent.load(Ordering::Relaxed));
        let up = self.now() / 1_000_000;
        let made = match made {
            Made::Maps => self.maps(thread),
            Made::CommandLine => return process.place.with(|place| place.arguments.clone()),
            Made::Status => {
                let threads = process.threads.with(|threads| threads.len());
                let kib = own() * 4;
                format!(
                    "Name:\t{name}\nUmask:\t0022\nState:\tR (running)\nTgid:\t{pid}\nPid:\t{pid}\nPPid:\t{parent}\nTracerPid:\t0\nUid:\t0\t0\t0\t0\n\
                     Gid:\t0\t0\t0\t0\nVmSize:\t{kib} kB\nVmRSS:\t{kib} kB\nThreads:\t{threads}\n"
                )
            }
            Made::Stat => {
                let (group, session) = (process.group.load(Ordering::Relaxed), process.session.load(Ordering::Relaxed));
                let bytes = own() * 4096;
                format!(
                    "{pid} ({name}) R {parent} {group} {session} 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 0 {bytes} {} 18446744073709551615 0 0 0 0 0 0 0 0 0 0 0 0 17 0 0 0 0 0 0\n",
                    bytes / 4096
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
    pub(crate) fn bytes_of_maps(&self, thread: &Thread) -> u64 {
        const LINE: u64 = 512;
        let memory = thread.memory();
        memory.layout.with(self.machine, |layout| LINE * layout.areas.iter().count() as u64)
    }

    fn maps(&self, thread: &Thread) -> String {
        let memory = thread.memory();
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
