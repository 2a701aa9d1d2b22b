//! Tasks in step: one leads, one on each other CPU follows.

use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicU32, Ordering};

use quietmm::{CpuId, Error, SpaceId};
use quietmm_workloads::{Kernel, Machine, TaskKind};

use super::Sys;
use quietmm::platform::Cpus;

/// A leader on CPU 0, and followers on all others.
pub struct Team {
    step: AtomicU32,
    done: AtomicU32,
    failed: AtomicU32,
    /// How many follow.
    pub followers: u32,
}

/// What a step is to its followers: its number, from 1, and the CPU that follows.
pub struct Step {
    /// Which.
    pub number: u32,
    /// Who.
    pub cpu: u32,
}

impl Team {
    /// Makes the tasks, in one space. `follow` is called for each step on each CPU but the first; `lead` calls
    /// [`step`](Self::step), `steps` times.
    pub fn spawn(
        system: &Sys,
        space: SpaceId,
        steps: u32,
        lead: impl FnOnce(&Sys, &Team) -> Result<(), Error> + 'static,
        follow: impl Fn(&Sys, Step) -> Result<(), Error> + Clone + 'static,
    ) {
        let followers = system.mm.platform().possible_cpus() - 1;
        let team = Arc::new(Team {
            step: AtomicU32::new(0),
            done: AtomicU32::new(0),
            failed: AtomicU32::new(0),
            followers,
        });
        for cpu in 1..=followers {
            let (team, follow) = (team.clone(), follow.clone());
            system.spawn(
                format!("follower/{cpu}"),
                TaskKind::User(space),
                CpuId(cpu as u16),
                move |system| {
                    for number in 1..=steps {
                        // Acquire: partner of the Release in `begin`.
                        wait_until(system, || team.step.load(Ordering::Acquire) >= number);
                        if let Err(error) = follow(system, Step { number, cpu }) {
                            wrong(system, format!("step {number} on CPU {cpu}: {error}"));
                        }
                        // Release: partner of the Acquire in `finish`.
                        team.done.fetch_add(1, Ordering::Release);
                    }
                    Ok(())
                },
            );
        }
        system.spawn(String::from("leader"), TaskKind::User(space), CpuId(0), move |system| {
            let result = lead(system, &team);
            // Nobody waits for a leader that has given up.
            team.failed.store(1, Ordering::Relaxed);
            team.step.store(steps, Ordering::Release);
            result
        });
    }

    /// Lets the followers begin with the next step.
    pub fn begin(&self) {
        self.done.store(0, Ordering::Relaxed);
        // Release: partner of the Acquire of those who wait for it.
        self.step.fetch_add(1, Ordering::Release);
    }

    /// Waits until all have done it.
    pub fn finish(&self, system: &Sys) {
        // Acquire: partner of the Release with which each says so.
        wait_until(system, || self.done.load(Ordering::Acquire) == self.followers);
    }

    /// One step of all followers.
    pub fn step(&self, system: &Sys) {
        self.begin();
        self.finish(system);
    }
}

/// Waits as a program that spins: its CPU is not idle, and does not leave its space.
pub fn wait_until(system: &Sys, ready: impl Fn() -> bool) {
    while !ready() {
        system.mm.platform().pause(1_000);
        system.cond_resched();
    }
}

/// Something is not as it must be.
pub fn wrong(system: &Sys, story: String) {
    system.mm.platform().wrong_content(&story);
}

/// Says so, unless it is true.
pub fn check(system: &Sys, is_so: bool, story: impl FnOnce() -> String) {
    if !is_so {
        wrong(system, story());
    }
}
