//! What `/proc` says of a process.

use std::fs;

/// CPUs that the machine may have: one more than the highest number.
pub fn possible_cpus() -> u16 {
    let text = fs::read_to_string("/sys/devices/system/cpu/possible").unwrap_or_default();
    let last = text.trim().rsplit([',', '-']).next().and_then(|number| number.parse::<u16>().ok());
    last.map_or(1, |last| last.saturating_add(1))
}

/// CPUs that are online.
pub fn online_cpus() -> Vec<u16> {
    let text = fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_else(|_| "0".into());
    let range = |part: &str| {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        Some(from.parse::<u16>().ok()?..=to.parse::<u16>().ok()?)
    };
    text.trim().split(',').filter_map(range).flatten().collect()
}

/// A process's name.
pub fn name(process: i32) -> Option<String> {
    fs::read_to_string(format!("/proc/{process}/comm")).ok().map(|name| name.trim().to_owned())
}

/// Its command line.
pub fn command(process: i32) -> String {
    let bytes = fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
    let words = bytes.split(|&byte| byte == 0).filter(|word| !word.is_empty());
    words.map(String::from_utf8_lossy).collect::<Vec<_>>().join(" ")
}

/// Its threads; the one that has the process's number first.
pub fn threads(process: i32) -> Vec<i32> {
    let entries = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let mut threads: Vec<i32> =
        entries.filter_map(|entry| entry.file_name().to_string_lossy().parse().ok()).collect();
    threads.sort_unstable_by_key(|&tid| (tid != process, tid));
    threads
}

/// The CPU on which a thread ran last.
pub fn last_cpu(tid: i32) -> Option<u16> {
    let text = fs::read_to_string(format!("/proc/{tid}/stat")).ok()?;
    // Behind the name, which may have anything in it: field 39, counted from 1.
    text.rsplit_once(')')?.1.split_whitespace().nth(36)?.parse().ok()
}

/// The process that a thread belongs to.
pub fn process_of(tid: i32) -> Option<i32> {
    let text = fs::read_to_string(format!("/proc/{tid}/status")).ok()?;
    text.lines().find_map(|line| line.strip_prefix("Tgid:"))?.trim().parse().ok()
}

/// A mapping, as `/proc/PID/maps` has it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mapping {
    pub address: u64,
    pub length: u64,
    pub offset: u64,
    pub prot: u64,
    pub shared: bool,
    pub path: String,
}

/// What is mapped in a process.
pub fn maps(process: i32) -> Vec<Mapping> {
    let text = fs::read_to_string(format!("/proc/{process}/maps")).unwrap_or_default();
    text.lines().filter_map(mapping).collect()
}

fn mapping(line: &str) -> Option<Mapping> {
    let mut words = line.splitn(6, ' ');
    let (from, to) = words.next()?.split_once('-')?;
    let (rights, offset) = (words.next()?, words.next()?);
    let path = words.nth(2).unwrap_or("").trim();
    let address = u64::from_str_radix(from, 16).ok()?;
    let bit = |at: usize, letter: u8, bit: u64| {
        if rights.as_bytes().get(at) == Some(&letter) { bit } else { 0 }
    };
    Some(Mapping {
        address,
        length: u64::from_str_radix(to, 16).ok()?.checked_sub(address)?,
        offset: u64::from_str_radix(offset, 16).ok()?,
        prot: bit(0, b'r', 1) | bit(1, b'w', 2) | bit(2, b'x', 4),
        shared: rights.ends_with('s'),
        path: path.to_owned(),
    })
}

/// What is in the way of events that the kernel keeps for privileged users.
pub fn perf_event_paranoid() -> Option<i32> {
    fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_maps_is_read() {
        let line =
            "7f0de2028000-7f0de2050000 r-xp 00001000 fe:00 1234     /usr/lib/x86_64-linux-gnu/libc so.6";
        let found = mapping(line).unwrap();
        assert_eq!((found.address, found.length), (0x7f0d_e202_8000, 0x28000));
        assert_eq!((found.offset, found.prot, found.shared), (0x1000, 5, false));
        assert_eq!(found.path, "/usr/lib/x86_64-linux-gnu/libc so.6");
        assert_eq!(mapping("7ffd000-7ffe000 rw-s 0 00:00 0").unwrap().path, "");
        assert_eq!(mapping("nonsense"), None);
    }

    #[test]
    fn this_process_is_found() {
        let own = std::process::id() as i32;
        assert!(name(own).is_some() && threads(own).first() == Some(&own));
        assert!(maps(own).iter().any(|mapping| mapping.path == "[stack]"));
        assert_eq!(process_of(own), Some(own));
        assert!(last_cpu(own).is_some_and(|cpu| cpu < possible_cpus()));
        assert!(!online_cpus().is_empty());
    }
}
