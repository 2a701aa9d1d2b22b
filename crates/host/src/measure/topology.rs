//! What the host is: CPUs, nodes, memory; and on which CPU this thread runs.

use std::fs;
use std::io;

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

use super::Results;

/// CPUs on which this process may run.
pub fn online() -> Vec<u16> {
    let set = sched_getaffinity(Pid::from_raw(0)).unwrap_or_default();
    (0..CpuSet::count()).filter(|&cpu| set.is_set(cpu).unwrap_or(false)).map(|cpu| cpu as u16).collect()
}

/// This thread stays on a CPU from now on. Returns where it was allowed to run.
pub fn pin(cpu: u16) -> io::Result<CpuSet> {
    let before = sched_getaffinity(Pid::from_raw(0))?;
    let mut set = CpuSet::new();
    set.set(cpu.into())?;
    sched_setaffinity(Pid::from_raw(0), &set)?;
    Ok(before)
}

/// It may run there again.
pub fn unpin(before: &CpuSet) -> io::Result<()> {
    Ok(sched_setaffinity(Pid::from_raw(0), before)?)
}

/// The processor's name.
pub fn processor() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with("model name"));
    line.and_then(|line| line.split_once(':'))
        .map_or("an unknown processor".into(), |(_, name)| name.trim().into())
}

/// The node of a CPU.
pub fn node_of(cpu: u16) -> usize {
    let entries = fs::read_dir(format!("/sys/devices/system/cpu/cpu{cpu}")).into_iter().flatten().flatten();
    let node = |name: String| name.strip_prefix("node")?.parse().ok();
    entries.filter_map(|entry| node(entry.file_name().to_string_lossy().into_owned())).next().unwrap_or(0)
}

/// Distances between nodes that have CPUs.
fn distances() -> Vec<Vec<u32>> {
    let row = |node: usize| {
        let text = fs::read_to_string(format!("/sys/devices/system/node/node{node}/distance")).ok()?;
        let row: Option<Vec<u32>> = text.split_whitespace().map(|word| word.parse().ok()).collect();
        row
    };
    (0..64).map_while(row).collect()
}

/// Whether two of the description's nodes are so many hops apart as the file says: 1 for a distance of 20.
pub fn hops(a: usize, b: usize) -> f64 {
    let far = distances().get(a).and_then(|row| row.get(b)).copied().unwrap_or(10);
    (f64::from(far) - 10.0) / 10.0
}

/// CPUs, nodes and memory.
pub fn describe(results: &mut Results, online: &[u16]) {
    let says = "the host says so";
    results.count("cpu", "cpus", online.len() as u64, "CPUs", "CPUs on which this process may run");
    let matrix = distances();
    let square = matrix.iter().all(|row| row.len() == matrix.len()) && matrix.len() <= online.len();
    let matrix = if matrix.is_empty() || !square { vec![vec![10]] } else { matrix };
    results.count("cpu", "nodes", matrix.len() as u64, "nodes", says);
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kib = text
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:")?.split_whitespace().next()?.parse::<u64>().ok());
    match kib {
        // Whole frames, the same number on each node.
        Some(kib) => results.count("memory", "size", kib / 1024, "MiB", "MemTotal of /proc/meminfo"),
        None => results.not("memory.size", "/proc/meminfo does not say"),
    }
    let rows: Vec<String> = matrix.iter().map(|row| format!("{row:?}")).collect();
    results.constants.push(super::Constant {
        section: "memory",
        name: "distance",
        value: format!("[{}]", rows.join(", ")),
        unit: "SLIT",
        source: says.to_owned(),
    });
}
