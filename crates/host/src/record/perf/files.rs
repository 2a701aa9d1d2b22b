//! Files that may be open: each event of each thread takes one for each CPU, and a shell allows 1024.

use std::io;

use super::super::{Missing, proc};

/// Events of a thread, and the one whose ring they share.
const EVENTS: u64 = 6;
/// For whole CPUs, and for all else.
const BESIDE: u64 = 3;
const OTHERS: u64 = 100;

/// What events of these threads take.
fn needed(threads: &[i32]) -> u64 {
    let cpus = proc::online_cpus().len() as u64;
    cpus * (EVENTS * threads.len() as u64 + BESIDE) + OTHERS
}

fn limit() -> libc::rlimit {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the kernel writes one limit.
    unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) };
    limit
}

/// Allows as many as these threads need, as far as this process may. A program that was started keeps its own limit.
pub fn raise(threads: &[i32]) {
    let (needed, limit) = (needed(threads), limit());
    if limit.rlim_cur >= needed {
        return;
    }
    let set = |limit: libc::rlimit| {
        // SAFETY: the kernel reads one limit.
        unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) == 0 }
    };
    let both = libc::rlimit { rlim_cur: needed, rlim_max: limit.rlim_max.max(needed) };
    if !set(both) {
        set(libc::rlimit { rlim_cur: limit.rlim_max, ..limit });
    }
}

/// What to say if there were too few.
pub fn missing(error: &io::Error, threads: &[i32]) -> Option<Missing> {
    if error.raw_os_error() != Some(libc::EMFILE) {
        return None;
    }
    let (needed, allowed) = (needed(threads), limit().rlim_cur);
    let what = format!(
        "events of so many threads on so many CPUs take {needed} open files, and {allowed} are allowed"
    );
    Some(Missing::new(what, format!("sudo prlimit --pid $$ --nofile={needed}")))
}
