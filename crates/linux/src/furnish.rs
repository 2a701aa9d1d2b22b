//! The files that there are at the beginning: those of the archive, devices, and what `/proc` and `/sys` show.

mod settings;

use alloc::sync::Arc;
use core::sync::atomic::Ordering;

use quietmm::Error;

use crate::archive;
use crate::connections::Table;
use crate::kernel::{Kept, Linux, PROGRAM};
use crate::machine::Machine;
use crate::process::MOST_THREADS;
use crate::procfs::OF_PROC;
use crate::socket::kind;
use crate::tree::{Body, Device, Inode, Made, mode};

/// What there is of a network.
const INTERFACES: &str = "Inter-|   Receive                                                |  Transmit\n face |bytes    packets errs drop fifo frame compressed multicast|bytes    \
                          packets errs drop fifo colls carrier compressed\n    lo:       0       0    0    0    0     0          0         0        0       0    0    \
                          0    0     0       0          0\n";

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
                    let directory = self.directories(path);
                    directory.mode.store(member.mode, Ordering::Relaxed);
                    directory.touch(modified);
                    directory.accessed.store(modified, Ordering::Relaxed);
                    continue;
                }
                mode::LINK => {
                    Inode::new(self.inode_number(), member.mode, modified, Body::Link(bytes.to_vec()))
                }
                mode::FILE => {
                    let content =
                        self.new_content(bytes.len() as u64, Kept::InArchive(member.bytes.clone()))?;
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

    /// The number of a new file in this directory, named from the root on.
    fn number_in(&self, directory: &[u8]) -> u64 {
        let is_of_proc = directory == b"proc" || directory.starts_with(b"proc/");
        self.inode_number() | if is_of_proc { OF_PROC } else { 0 }
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
                let new = Inode::directory(self.number_in(path), 0o755, 0);
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
            ("tty", Device::Own),
            ("ptmx", Device::Terminals),
            ("console", Device::Console),
        ];
        for (name, device) in devices {
            let inode = Inode::new(self.inode_number(), mode::DEVICE | 0o666, 0, Body::Device(device));
            let _ = dev.put(name.as_bytes(), inode);
        }
        let made = [
            ("proc", "meminfo", Made::MemoryInfo),
            ("proc", "cpuinfo", Made::CpuInfo),
            ("proc", "uptime", Made::Uptime),
            ("proc", "loadavg", Made::LoadAverage),
            ("proc", "stat", Made::SystemStat),
            ("proc", "version", Made::Version),
            ("proc", "filesystems", Made::Fixed("nodev\ttmpfs\nnodev\tproc\nnodev\tsysfs\n")),
            ("proc", "cmdline", Made::Fixed("quietmm\n")),
            ("proc", "swaps", Made::Swaps),
            ("proc", "devices", Made::Fixed("Character devices:\n  1 mem\n  5 /dev/tty\n\nBlock devices:\n")),
            ("proc", "partitions", Made::Fixed("major minor  #blocks  name\n\n")),
            ("proc", "modules", Made::Fixed("")),
            ("proc", "diskstats", Made::Fixed("")),
            ("proc", "vmstat", Made::Counters),
            ("proc/net", "dev", Made::Fixed(INTERFACES)),
            ("proc/net", "tcp", Made::Sockets(Table::Network { kind: kind::STREAM, long: false })),
            ("proc/net", "tcp6", Made::Sockets(Table::Network { kind: kind::STREAM, long: true })),
            ("proc/net", "udp", Made::Sockets(Table::Network { kind: kind::PACKETS, long: false })),
            ("proc/net", "udp6", Made::Sockets(Table::Network { kind: kind::PACKETS, long: true })),
            ("proc/net", "unix", Made::Sockets(Table::Unix)),
            ("proc/sys/vm", "overcommit_memory", Made::Number(1)),
            ("proc/sys/vm", "overcommit_ratio", Made::Number(50)),
            ("proc/sys/vm", "swappiness", Made::Number(60)),
            ("proc/sys/vm", "nr_hugepages", Made::Number(0)),
            ("proc/sys/vm", "mmap_min_addr", Made::Number(65536)),
            ("proc/sys/vm", "max_map_count", Made::Number(self.mm.config().max_map_count.into())),
            ("proc/sys/fs", "file-max", Made::Fixed("9223372036854775807\n")),
            ("proc/sys/fs", "nr_open", Made::Number(crate::open::MOST as u64)),
            ("proc/sys/fs", "pipe-max-size", Made::Number(crate::pipe::MOST as u64)),
            ("proc/sys/net/core", "somaxconn", Made::Number(4096)),
            ("proc/sys/net/core", "rmem_max", Made::Number(crate::socket::ROOM as u64)),
            ("proc/sys/net/core", "wmem_max", Made::Number(crate::socket::ROOM as u64)),
            ("proc/sys/net/ipv4", "ip_local_port_range", Made::Fixed("32768\t60999\n")),
            ("proc/sys/kernel", "pid_max", Made::Number(32768)),
            ("proc/sys/fs", "dir-notify-enable", Made::Number(1)),
            ("proc/sys/kernel", "threads-max", Made::Number(MOST_THREADS)),
            ("proc/sys/kernel", "ngroups_max", Made::Number(65536)),
            ("proc/sys/kernel", "cap_last_cap", Made::Number(40)),
            ("proc/sys/kernel", "randomize_va_space", Made::Number(0)),
            ("proc/sys/kernel", "ostype", Made::Fixed("Linux\n")),
            ("proc/sys/kernel", "osrelease", Made::Fixed("6.12.0\n")),
            ("proc/sys/kernel", "version", Made::Fixed("#1 SMP\n")),
            ("proc/sys/kernel", "hostname", Made::HostName),
            ("proc/sys/kernel", "domainname", Made::Fixed("(none)\n")),
            ("proc/sys/kernel", "core_pattern", Made::Fixed("core\n")),
            ("proc/sys/kernel", "shmmax", Made::Fixed("18446744073692774399\n")),
            ("proc/sys/kernel", "shmall", Made::Fixed("18446744073692774399\n")),
            ("proc/sys/kernel", "shmmni", Made::Number(4096)),
            ("proc/sys/kernel", "sem", Made::Fixed("32000\t1024000000\t500\t32000\n")),
            ("proc/sys/kernel", "msgmax", Made::Number(8192)),
            ("proc/sys/kernel", "msgmnb", Made::Number(16384)),
            ("proc/sys/kernel", "msgmni", Made::Number(32000)),
            ("proc/sys/kernel/random", "uuid", Made::Host),
            ("proc/sys/kernel/random", "boot_id", Made::Fixed("6b1f7a20-3c4d-4e5f-8a9b-0c1d2e3f4a5b\n")),
            ("proc/sys/kernel/random", "entropy_avail", Made::Number(256)),
            ("sys/devices/system/cpu", "online", Made::Online),
            ("sys/devices/system/cpu", "possible", Made::Online),
            ("sys/devices/system/cpu", "present", Made::Online),
            ("sys/devices/system/node", "online", Made::Number(0)),
            ("sys/devices/system/node", "possible", Made::Number(0)),
            ("sys/devices/system/node", "has_cpu", Made::Number(0)),
            ("sys/devices/system/node", "has_memory", Made::Number(0)),
            ("sys/devices/system/node/node0", "cpulist", Made::Online),
            ("sys/devices/system/node/node0", "cpumap", Made::Mask(0, self.machine.possible_cpus())),
            ("sys/devices/system/node/node0", "distance", Made::Number(10)),
            ("sys/kernel/mm/transparent_hugepage", "enabled", Made::Fixed("always [madvise] never\n")),
            ("sys/kernel/mm/transparent_hugepage", "hpage_pmd_size", Made::Number(2 << 20)),
        ];
        let settings =
            settings::SETTINGS.iter().map(|&(directory, name, text)| (directory, name, Made::Fixed(text)));
        for (directory, name, made) in made.into_iter().chain(settings) {
            let number = self.number_in(directory.as_bytes());
            let inode = Inode::new(number, mode::FILE | 0o444, self.clock(), Body::Made(made));
            let _ = self.directories(directory.as_bytes()).put(name.as_bytes(), inode);
        }
        for cpu in 0..self.machine.possible_cpus() {
            // Each is a core of its own, in a package of its own.
            let place = alloc::format!("sys/devices/system/cpu/cpu{cpu}/topology");
            let files = [
                ("core_id", Made::Number(0)),
                ("physical_package_id", Made::Number(cpu.into())),
                ("thread_siblings_list", Made::Number(cpu.into())),
                ("core_siblings_list", Made::Number(cpu.into())),
                ("core_cpus_list", Made::Number(cpu.into())),
                ("package_cpus_list", Made::Number(cpu.into())),
                ("die_id", Made::Number(0)),
                ("thread_siblings", Made::Mask(cpu, cpu + 1)),
                ("core_siblings", Made::Mask(cpu, cpu + 1)),
            ];
            for (name, made) in files {
                let inode =
                    Inode::new(self.inode_number(), mode::FILE | 0o444, self.clock(), Body::Made(made));
                let _ = self.directories(place.as_bytes()).put(name.as_bytes(), inode);
            }
        }
        let link = |from: &[u8], body| Inode::new(self.number_in(from), mode::LINK | 0o777, 0, body);
        let proc = self.directories(b"proc");
        for (name, of_thread) in [("self", false), ("thread-self", true)] {
            let _ = proc.put(name.as_bytes(), link(b"proc", Body::Itself(of_thread)));
        }
        let _ = proc.put(b"mounts", link(b"proc", Body::Link(b"self/mounts".to_vec())));
        for (name, target) in [("fd", ""), ("stdin", "/0"), ("stdout", "/1"), ("stderr", "/2")] {
            let to = alloc::format!("/proc/self/fd{target}").into_bytes();
            let _ = dev.put(name.as_bytes(), link(b"dev", Body::Link(to)));
        }
        self.directories(b"dev/pts");
        for directory in ["tmp", "dev/shm", "var/tmp", "root"] {
            self.directories(directory.as_bytes()).mode.store(mode::DIRECTORY | 0o1777, Ordering::Relaxed);
        }
    }
}
