//! Kernel ranges: what one CPU unmaps and maps again, while others use, map and purge.

use quietmm::Rule;

use crate::scenario::Scenario;
use crate::task::Task;
use crate::task_kernel::{BARE, kernel_range};

pub(super) fn all() -> Vec<Scenario> {
    vec![purge(), online(), frees()]
}

/// Three frames; the first is mapped at a page that every CPU has used, and the second at another, for good. CPU 2 is lazy.
fn used_by_all(task: &Task<'_>) {
    task.take_frames(4);
    let space = task.create_space();
    for n in 0..2 {
        let range = task.vmap(n, 1, BARE);
        task.keep(range);
        for cpu in 0..task.mm().platform().setup().cpus {
            task.as_cpu(cpu, |task| task.use_kernel(range.start, task.frame(n)));
        }
    }
    if task.mm().platform().setup().cpus > 2 {
        task.as_cpu(2, |task| {
            task.run_in(space);
            task.go_lazy();
        });
    }
}

/// Unmaps what all have used, makes sure that nobody can use it, and maps something else there.
fn map_again(task: &Task<'_>) {
    task.vunmap(task.kept(0));
    task.unmap_aliases();
    task.no_alias(task.frame(0));
    task.vmap(2, 1, BARE);
}

fn purge() -> Scenario {
    Scenario::new("vmap-purge", "an address is unmapped, purged and mapped again while others use kernel pages", "linux")
        .cpus(3)
        .config(|config| kernel_range(config, 64))
        .shows(&[Rule::FlushBeforeReuse, Rule::KernelFlushToLazy, Rule::ForgetWhatWasFlushed])
        .repeats(&[22, 28])
        .before(used_by_all)
        .cpu(map_again)
        .cpu(|task| task.vunmap(task.vmap(3, 1, BARE)))
        .cpu(|task| {
            task.use_kernel(task.kept(1).start, task.frame(1));
            task.leave_lazy();
            task.use_kernel(task.kept(1).start, task.frame(1));
        })
        .after(|task| {
            task.unmap_aliases();
            task.promise(task.told().purged.get() == 2, "two pages were unmapped, and each was flushed once");
        })
}

fn online() -> Scenario {
    Scenario::new("vmap-online", "a CPU goes and comes while an address is purged and mapped again", "linux")
        .config(|config| kernel_range(config, 64))
        .shows(&[Rule::OnlineFlushesKernel])
        .before(used_by_all)
        .cpu(map_again)
        .cpu(|task| {
            task.go_offline();
            task.come_online();
            task.use_kernel(task.kept(1).start, task.frame(1));
        })
        .after(|task| task.no_alias(task.frame(0)))
}

fn frees() -> Scenario {
    Scenario::new("vmalloc-purge", "three ranges are freed while another CPU purges and wants their frames", "linux")
        .config(|config| kernel_range(config, 64))
        .shows(&[Rule::FramesWaitForPurge, Rule::NextBeforeRelease])
        .repeats(&[23, 28])
        .before(|task| (0..3).for_each(|_| task.keep(task.vmalloc(1))))
        .cpu(|task| (0..3).for_each(|n| task.vfree(task.kept(n))))
        .cpu(|task| {
            task.unmap_aliases();
            task.vmalloc(2);
        })
}
