//! The files that there are at the beginning: those of the archive, devices, and what `/proc` and `/sys` show.

use alloc::sync::Arc;
use core::sync::atomic::Ordering;

use quietmm::Error;

use crate::archive;
use crate::kernel::{Linux, PROGRAM};
use crate::machine::Machine;
use crate::tree::{Body, Device, Inode, Made, mode};

impl<M: Machine> Linux<'_, M> {
    pub(crate) fn unpack(&self) -> Result<(), Error> {
        for member in archive::members(self.machine.archive()) {
            if !self.machine.has_room(0) {
                return Err(Error::OutOfMemory);
            }
            let path = member.path.strip_prefix(b"./").unwrap_or(member.path);
            let modified = u64::from(member.modified) * 1_000_000_000;
            let bytes = &self.machine.archive()[member.bytes.clone()];
            if path.is_empty() || path == b"." || path == PROGRAM {
                continue;
            }
            let inode = match member.mode & mode::KIND {
                mode::DIRECTORY => {
                    self.directories(path).mode.store(member.mode, Ordering::Relaxed);
                    continue;
                }
                mode::LINK => {
                    Inode::new(self.inode_number(), member.mode, modified, Body::Link(bytes.to_vec()))
                }
                mode::FILE => {
                    let content = self.new_content(bytes.len() as u64, Some(member.bytes.clone()))?;
                    Inode::new(self.inode_number(), member.mode, modified, Body::File(content))
                }
                _ => continue,
            };
            let at = path.iter().rposition(|&byte| byte == b'/');
            let (above, name) = at.map_or((&b""[..], path), |at| (&path[..at], &path[at + 1..]));
            // Of two members with one name the first counts.
            let _ = self.directories(above).put(name, inode);
        }
        Ok(())
    }

    /// The directory with this path, made with those on the way if it is missing.
    pub(crate) fn directories(&self, path: &[u8]) -> Arc<Inode> {
        path.split(|&byte| byte == b'/').filter(|name| !name.is_empty()).fold(
            self.root.clone(),
            |at, name| {
                if let Ok(Some(found)) = at.get(name)
                    && found.is_directory()
                {
                    return found;
                }
                let new = Inode::directory(self.inode_number(), 0o755, 0);
                let _ = at.put(name, new.clone());
                new
            },
        )
    }

    /// What programs expect to find.
    pub(crate) fn furnish(&self) {
        let dev = self.directories(b"dev");
        let devices = [
            ("null", Device::Null),
            ("zero", Device::Zero),
            ("full", Device::Full),
            ("random", Device::Random),
            ("urandom", Device::Random),
            ("tty", Device::Console),
            ("console", Device::Console),
        ];
        for (name, device) in devices {
            let inode = Inode::new(self.inode_number(), mode::DEVICE | 0o666, 0, Body::Device(device));
            let _ = dev.put(name.as_bytes(), inode);
        }
        let made = [
            ("proc/self", "maps", Made::Maps),
            ("proc/self", "smaps", Made::Maps),
            ("proc/self", "status", Made::Status),
            ("proc/self", "stat", Made::Stat),
            ("proc/self", "statm", Made::Statm),
            ("proc/self", "cmdline", Made::CommandLine),
            ("proc/self", "comm", Made::Name),
            ("proc/self", "mounts", Made::Mounts),
            ("proc/self", "oom_score_adj", Made::Number(0)),
            ("proc", "mounts", Made::Mounts),
            ("proc", "meminfo", Made::MemoryInfo),
            ("proc", "cpuinfo", Made::CpuInfo),
            ("proc", "uptime", Made::Uptime),
            ("proc", "loadavg", Made::LoadAverage),
            ("proc", "stat", Made::SystemStat),
            ("proc", "version", Made::Version),
            ("proc/sys/vm", "overcommit_memory", Made::Number(1)),
            ("proc/sys/vm", "max_map_count", Made::Number(self.mm.config().max_map_count.into())),
            ("proc/sys/kernel", "pid_max", Made::Number(32768)),
            ("sys/devices/system/cpu", "online", Made::Online),
            ("sys/devices/system/cpu", "possible", Made::Online),
            ("sys/devices/system/cpu", "present", Made::Online),
        ];
        for (directory, name, made) in made {
            let inode = Inode::new(self.inode_number(), mode::FILE | 0o444, 0, Body::Made(made));
            let _ = self.directories(directory.as_bytes()).put(name.as_bytes(), inode);
        }
        for cpu in 0..self.machine.possible_cpus() {
            self.directories(alloc::format!("sys/devices/system/cpu/cpu{cpu}").as_bytes());
        }
        let link =
            |to: &[u8]| Inode::new(self.inode_number(), mode::LINK | 0o777, 0, Body::Link(to.to_vec()));
        let proc = self.directories(b"proc");
        let _ = proc.put(b"thread-self", link(b"self"));
        let executable = Inode::new(self.inode_number(), mode::LINK | 0o777, 0, Body::Executable);
        let _ = self.directories(b"proc/self").put(b"exe", executable);
        let _ = self.directories(b"proc/self").put(b"fd", Inode::open_files(self.inode_number()));
        for (name, target) in [("fd", ""), ("stdin", "/0"), ("stdout", "/1"), ("stderr", "/2")] {
            let _ = dev.put(name.as_bytes(), link(alloc::format!("/proc/self/fd{target}").as_bytes()));
        }
        for directory in ["tmp", "dev/shm", "var/tmp", "root"] {
            self.directories(directory.as_bytes()).mode.store(mode::DIRECTORY | 0o1777, Ordering::Relaxed);
        }
    }
}
