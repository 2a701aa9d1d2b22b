//! What other programs did meanwhile: their part of the CPUs' time, for a host that is busy measures itself too slow.

use std::fs;
use std::time::Instant;

/// More than this part of the CPUs is too much.
const MOST: f64 = 0.1;

/// When it began, and what had been spent by then, in seconds: by all, and by this process.
pub struct Others {
    began: Instant,
    all: f64,
    own: f64,
}

impl Others {
    /// From now on.
    pub fn begin() -> Others {
        Others { began: Instant::now(), all: all(), own: own() }
    }

    /// What part of so many CPUs others had since then, in percent, if it is too much.
    pub fn too_much(&self, cpus: usize) -> Option<u32> {
        let had = (all() - self.all) - (own() - self.own);
        part(had, cpus as f64 * self.began.elapsed().as_secs_f64())
    }
}

fn part(had: f64, of: f64) -> Option<u32> {
    let part = had / of;
    (part > MOST).then_some((100.0 * part).min(100.0) as u32)
}

/// Seconds that all CPUs were at work; what a hypervisor took from them counts too.
fn all() -> f64 {
    // SAFETY: a number in, a number out.
    let ticks = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    worked(&fs::read_to_string("/proc/stat").unwrap_or_default()) as f64 / ticks.max(1) as f64
}

/// The first line: user, nice, system, idle, iowait, irq, softirq, steal, and parts of the first two.
fn worked(stat: &str) -> u64 {
    let line = stat.lines().next().unwrap_or("");
    let numbers = line.split_whitespace().skip(1).take(8).map(|number| number.parse::<u64>().unwrap_or(0));
    numbers.enumerate().filter(|(nth, _)| !matches!(nth, 3 | 4)).map(|(_, number)| number).sum()
}

/// Seconds of this process.
fn own() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes one timespec.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) };
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_all_but_idleness_and_a_tenth_of_the_cpus_is_too_much() {
        assert_eq!(worked("cpu  1 20 300 4000 50000 600000 7000000 80000000 9 9\ncpu0 1 1"), 87_600_321);
        assert_eq!(worked(""), 0);
        assert_eq!((part(1.0, 20.0), part(5.0, 20.0), part(50.0, 20.0)), (None, Some(25), Some(100)));
        assert_eq!(part(-0.01, 20.0), None);
    }
}
