//! Kernel ranges: what one CPU unmaps and maps again, while others use, map and purge.

use quietmm::{Error, KernelProt, Rule, VmapPlace};

use crate::scenario::Scenario;
use crate::task::Task;
use crate::task::vmap::{BARE, kernel, kernel_range};

pub(super) fn all() -> Vec<Scenario> {
    vec![purge(), eager(), online(), frees(), exhaustion(), short(), guard(), hole(), many(), count()]
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
    Scenario::new(
        "vmap-purge",
        "an address is unmapped, purged and mapped again while others use kernel pages",
        "linux",
    )
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

fn eager() -> Scenario {
    Scenario::new(
        "vmap-eager",
        "an address is unmapped and mapped again, each unmap flushed at once",
        "vanilla",
    )
    .cpus(3)
    .config(|config| kernel_range(config, 64))
    .shows(&[Rule::FlushBeforeReuse, Rule::KernelFlushToLazy])
    .repeats(&[28])
    .before(used_by_all)
    .cpu(|task| {
        task.vunmap(task.kept(0));
        task.no_alias(task.frame(0));
        task.vmap(2, 1, BARE);
    })
    .cpu(|task| task.vunmap(task.vmap(3, 1, BARE)))
    .cpu(|task| {
        task.use_kernel(task.kept(1).start, task.frame(1));
        task.leave_lazy();
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
    Scenario::new(
        "vmalloc-purge",
        "three ranges are freed while another CPU purges and wants their frames",
        "linux",
    )
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

fn exhaustion() -> Scenario {
    Scenario::new("vmap-exhaustion", "all addresses wait for a purge: one CPU purges, two want one", "linux")
        .cpus(3)
        .config(|config| kernel_range(config, 16))
        .shows(&[Rule::WaitForPurge, Rule::FlushBeforeReuse])
        .repeats(&[25])
        .before(|task| {
            task.take_frames(3);
            let ranges = [(); 4].map(|()| task.vmap_filled(0, 4, BARE));
            for cpu in 0..3 {
                task.as_cpu(cpu, |task| task.use_kernel(ranges[0].start, task.frame(0)));
            }
            ranges.into_iter().for_each(|range| task.vunmap(range));
        })
        .cpu(|task| {
            task.vmap(1, 1, BARE);
        })
        .cpu(|task| task.unmap_aliases())
        .cpu(|task| {
            task.vmap(2, 1, BARE);
        })
}

fn short() -> Scenario {
    Scenario::new(
        "vmalloc-short",
        "a CPU wants two frames, of which there is one, while another maps and unmaps",
        "linux",
    )
    .config(|config| kernel_range(config, 8))
    .shows(&[Rule::GiveBackWhatFailed])
    .repeats(&[26])
    .before(|task| {
        // The tables, slots and words that it takes are there.
        task.vfree(task.vmalloc(2));
        task.unmap_aliases();
        task.take_all_memory();
        task.give_back(1);
    })
    .cpu(|task| {
        let range = task.try_vmalloc(2);
        task.promise(range == Err(Error::OutOfMemory), "there are not two frames");
    })
    .cpu(|task| task.vunmap(task.vmap(0, 2, BARE)))
    .after(|task| {
        task.unmap_aliases();
        task.vunmap(task.vmap_filled(0, 8, BARE));
        task.unmap_aliases();
        task.give_back(usize::MAX);
    })
}

fn guard() -> Scenario {
    Scenario::new(
        "vmap-guard",
        "two ranges with guard pages, which just fit, and requests that make no sense",
        "linux",
    )
    .config(|config| kernel_range(config, 4))
    .shows(&[Rule::GuardPage, Rule::CheckRequest])
    .repeats(&[29, 32])
    .before(|task| task.take_frames(2))
    .cpu(guarded)
    .cpu(guarded)
}

fn guarded(task: &Task<'_>) {
    let odd = VmapPlace { align: 3, ..BARE };
    let frame = task.frame(0);
    let refused = task.call("vmap", |mm| mm.vmap().map(&[frame], odd, KernelProt::ReadWrite));
    task.promise(refused == Err(Error::BadAlignment(3)), "an alignment of 3 pages is refused");
    let refused = task.call("vmap", |mm| mm.vmap().map(&[], BARE, KernelProt::ReadWrite));
    task.promise(refused == Err(Error::BadRange), "a range of no pages is refused");
    let range = task.vmap(usize::from(task.id()), 1, VmapPlace::ANYWHERE);
    let beyond = task.call("vmap_frame", |mm| mm.vmap().frame_at(range.end()));
    task.promise(beyond.is_err(), "the page behind the range leads nowhere");
}

fn hole() -> Scenario {
    Scenario::new(
        "vmap-hole",
        "an aligned range that fits into the last hole only, while another CPU unmaps",
        "linux",
    )
    .config(|config| kernel_range(config, 16))
    .shows(&[Rule::ExactFit])
    .repeats(&[29])
    .before(|task| {
        task.take_frames(1);
        // All but the four pages from the fourth on, and the last.
        let within = |pages| VmapPlace { within: Some(pages), ..BARE };
        task.keep(task.vmap_filled(0, 4, within(kernel(0, 4))));
        task.vmap_filled(0, 7, within(kernel(8, 7)));
    })
    .cpu(|task| {
        let range = task.vmap_filled(0, 4, VmapPlace { align: 4, ..BARE });
        task.promise(range == kernel(4, 4) || range == kernel(0, 4), "it lies in a hole");
    })
    .cpu(|task| task.vunmap(task.kept(0)))
}

fn many() -> Scenario {
    Scenario::new("vmap-many", "a purge of more ranges than become free under one hold of a lock", "linux")
        .config(|config| kernel_range(config, 40))
        .shows(&[Rule::BoundedHold])
        .repeats(&[30])
        .before(|task| {
            task.take_frames(2);
            let ranges: Vec<_> = (0..40).map(|_| task.vmap(0, 1, BARE)).collect();
            ranges.into_iter().for_each(|range| task.vunmap(range));
            task.unmap_aliases();
        })
        .cpu(|task| {
            // No CPU has two pages in a row in its cache.
            task.vmap_filled(0, 2, BARE);
        })
        .cpu(|task| {
            task.vmap(1, 1, BARE);
        })
        .after(|task| {
            task.promise(task.told().returned.get() <= 32, "at most 32 ranges become free under one hold")
        })
}

fn count() -> Scenario {
    Scenario::new(
        "vmap-count",
        "less is unmapped than a purge is asked for, while another CPU purges",
        "linux",
    )
    .cpus(3)
    .config(|config| {
        kernel_range(config, 64);
        config.vmap_lazy = Some(10);
    })
    .shows(&[Rule::CountBeforeWaiting, Rule::ForgetWhatWasFlushed])
    .repeats(&[22, 24])
    .before(|task| {
        task.take_frames(1);
        task.keep(task.vmap_filled(0, 4, BARE));
        task.keep(task.vmap_filled(0, 3, BARE));
    })
    .cpu(|task| task.vunmap(task.kept(0)))
    .cpu(|task| task.unmap_aliases())
    .cpu(|task| task.vunmap(task.kept(1)))
    .after(|task| {
        task.unmap_aliases();
        task.promise(task.told().purged.get() == 7, "seven pages were unmapped, and each was flushed once");
        task.promise(task.told().wanted.get() == 0, "nobody asks for a purge of less than ten pages");
    })
}
