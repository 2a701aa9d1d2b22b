//! `vmap=sweep`: what is unmapped is free when each CPU has flushed by itself (INV-3). Timers fire at any point.

use quietmm::Rule;

use crate::scenario::Scenario;
use crate::task::Task;
use crate::task::vmap::{BARE, kernel_range};

pub(super) fn all() -> Vec<Scenario> {
    vec![small(), sweep(), idle(), online(), aliases(), short(), frames()]
}

/// Nanoseconds: a few looks.
const DEADLINE: u64 = 3_000;

/// Each page that is unmapped asks for a sweep.
fn sweeping(name: &'static str, about: &'static str) -> Scenario {
    Scenario::new(name, about, "linux+vmap=sweep")
        .cpus(3)
        .ticks(2)
        .config(|config| {
            kernel_range(config, 64);
            (config.vmap_lazy, config.sweep_deadline) = (Some(3), DEADLINE);
        })
        .before(used_by_all)
        .after(|task| task.unmap_aliases())
}

/// A sweep has come and gone. Two frames are mapped at pages that every CPU has used, and there are two more; CPU 2 is lazy.
fn used_by_all(task: &Task<'_>) {
    task.take_frames(4);
    let space = task.create_space();
    let first = task.vmap(3, 1, BARE);
    task.vunmap(first);
    tick_all(task);
    tick_all(task);
    for n in 0..2 {
        let range = task.vmap(n, 1, BARE);
        task.keep(range);
        (0..3).for_each(|cpu| task.as_cpu(cpu, |task| task.use_kernel(range.start, task.frame(n))));
    }
    task.as_cpu(2, |task| {
        task.run_in(space);
        task.go_lazy();
    });
}

fn tick_all(task: &Task<'_>) {
    (0..3).for_each(|cpu| task.as_cpu(cpu, Task::tick));
}

/// Unmaps what all have used, and maps until its address may come round.
fn map_again(task: &Task<'_>) {
    task.vunmap(task.kept(0));
    for _ in 0..2 {
        task.tick();
        let range = task.vmap(2, 1, BARE);
        task.vunmap(range);
    }
    task.vmap(2, 1, BARE);
}

fn uses(task: &Task<'_>) {
    task.use_kernel(task.kept(1).start, task.frame(1));
}

fn sweep() -> Scenario {
    sweeping("vmap-sweep", "an address is unmapped, swept and mapped again while others use kernel pages")
        .shows(&[Rule::NextKernelSweep, Rule::KernelSweepCountsAll, Rule::FlushBeforeKernelSwept])
        .cpu(map_again)
        .cpu(|task| {
            uses(task);
            task.vunmap(task.vmap(3, 1, BARE));
        })
        .cpu(|task| {
            uses(task);
            task.leave_lazy();
            uses(task);
        })
}

fn small() -> Scenario {
    sweeping("map-ram-sweep", "small maps of a full block are unmapped, swept and mapped again")
        .before(|task| {
            used_by_all(task);
            let all = task.map_ram_filled(2, 62);
            task.keep(all);
            let one = task.map_ram(2, 2);
            task.keep(one);
            (0..3).for_each(|cpu| task.as_cpu(cpu, |task| task.use_kernel(one.start, task.frame(2))));
        })
        .shows(&[Rule::NextKernelSweep, Rule::KernelSweepCountsAll, Rule::FlushBeforeKernelSwept])
        .config(|config| {
            kernel_range(config, 384);
            (config.vmap_lazy, config.sweep_deadline) = (Some(3), DEADLINE);
        })
        .cpu(|task| {
            task.unmap_ram(task.kept(3));
            for _ in 0..2 {
                task.tick();
                let range = task.map_ram_filled(3, 2);
                task.unmap_ram(range);
            }
        })
        .cpu(uses)
        .cpu(uses)
}

fn idle() -> Scenario {
    sweeping(
        "vmap-sweep-idle",
        "an address is swept and mapped again while one CPU halts, and another goes on",
    )
    .shows(&[Rule::IdleReturnSweep])
    .before(|task| {
        used_by_all(task);
        task.as_cpu(1, Task::go_idle);
    })
    .cpu(map_again)
    .cpu(|task| {
        task.leave_idle();
        uses(task);
    })
    .cpu(|task| {
        uses(task);
        task.go_idle();
        task.leave_idle();
        uses(task);
    })
}

fn online() -> Scenario {
    sweeping("vmap-sweep-online", "a CPU goes and comes while an address is swept and mapped again")
        .shows(&[Rule::OnlineFlushesKernel])
        .cpu(map_again)
        .cpu(|task| {
            task.go_offline();
            task.come_online();
            uses(task);
        })
        .cpu(uses)
}

fn aliases() -> Scenario {
    sweeping("vmap-sweep-aliases", "who must be certain flushes while a sweep is under way")
        .shows(&[Rule::AliasesBeginSweep])
        .before(|task| {
            used_by_all(task);
            // In which nobody has taken part yet.
            task.vunmap(task.vmap(2, 1, BARE));
        })
        .cpu(|task| {
            task.vunmap(task.kept(0));
            task.unmap_aliases();
            task.no_alias(task.frame(0));
        })
        .cpu(uses)
        .cpu(|task| {
            let range = task.vmap(3, 1, BARE);
            task.vunmap(range);
        })
}

fn short() -> Scenario {
    sweeping("vmap-sweep-short", "all addresses wait for a sweep: two CPUs want one, and one purges")
        .shows(&[Rule::KernelSweepCountsAll, Rule::FlushBeforeKernelSwept])
        .config(|config| {
            kernel_range(config, 8);
            (config.vmap_lazy, config.sweep_deadline) = (Some(3), DEADLINE);
        })
        .before(|task| {
            used_by_all(task);
            let rest = task.vmap_filled(3, 5, BARE);
            (0..3).for_each(|cpu| task.as_cpu(cpu, |task| task.use_kernel(rest.start, task.frame(3))));
            task.vunmap(rest);
            task.vunmap(task.kept(0));
        })
        .cpu(|task| {
            task.vmap_filled(2, 4, BARE);
        })
        .cpu(|task| task.unmap_aliases())
        .cpu(|task| {
            task.vmap(2, 1, BARE);
        })
}

fn frames() -> Scenario {
    sweeping("vmalloc-sweep", "ranges are freed while another CPU uses them, and a third wants their frames")
        .shows(&[Rule::FramesWaitForPurge, Rule::KernelSweepCountsAll, Rule::FlushBeforeKernelSwept])
        .before(|task| {
            used_by_all(task);
            for _ in 0..3 {
                let range = task.vmalloc(1);
                let frame = task.must("vmap_frame", |mm| mm.vmap().frame_at(range.start));
                (0..3).for_each(|cpu| task.as_cpu(cpu, |task| task.use_kernel(range.start, frame)));
                task.keep(range);
            }
        })
        .cpu(|task| {
            (2..5).for_each(|n| task.vfree(task.kept(n)));
            task.tick();
        })
        .cpu(uses)
        .cpu(|task| {
            task.unmap_aliases();
            task.vmalloc(2);
        })
}
