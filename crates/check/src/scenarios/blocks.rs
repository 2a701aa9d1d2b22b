//! Small kernel maps from per-CPU blocks of addresses, of 64 pages here.

use quietmm::{Rule, VmapPlace};

use crate::scenario::Scenario;
use crate::task::Task;
use crate::task::vmap::{BARE, kernel, kernel_range};

pub(super) fn all() -> Vec<Scenario> {
    vec![aliases(), reuse(), taken_away(), empty(), offline(), both_offline()]
}

/// CPU 0's block is full: of a map of 63 pages, and one of a page that all CPUs have used.
fn full(task: &Task<'_>) {
    task.take_frames(4);
    task.keep(task.map_ram_filled(0, 63));
    let last = task.map_ram(1, 1);
    task.keep(last);
    for cpu in 0..task.mm().platform().setup().cpus {
        task.as_cpu(cpu, |task| task.use_kernel(last.start, task.frame(1)));
    }
}

fn aliases() -> Scenario {
    Scenario::new("block-aliases", "a block is full and partly unmapped while others map and purge", "linux")
        .cpus(3)
        .config(|config| kernel_range(config, 256))
        .shows(&[Rule::AliasesInFullBlocks, Rule::FlushBeforeReuse])
        .repeats(&[21, 28])
        .before(full)
        .cpu(|task| {
            task.unmap_ram(task.kept(1));
            task.unmap_aliases();
            task.no_alias(task.frame(1));
        })
        .cpu(|task| task.unmap_ram(task.map_ram(2, 2)))
        .cpu(|task| task.unmap_aliases())
}

fn reuse() -> Scenario {
    Scenario::new(
        "block-reuse",
        "the last slot of a block is unmapped and wanted again while another CPU purges",
        "linux",
    )
    .config(|config| kernel_range(config, 64))
    .shows(&[Rule::FlushBeforeReuse, Rule::ForgetWhatWasFlushed])
    .repeats(&[22])
    .before(full)
    .cpu(|task| {
        task.unmap_ram(task.kept(1));
        // There is no other place than the one that was unmapped.
        task.map_ram(2, 1);
    })
    .cpu(|task| task.unmap_aliases())
    .after(|task| {
        task.unmap_aliases();
        task.promise(task.told().purged.get() == 1, "one page was unmapped, and it was flushed once");
    })
}

fn taken_away() -> Scenario {
    Scenario::new("block-taken", "an empty block is chosen, and another CPU wants its addresses", "linux")
        .config(|config| kernel_range(config, 192))
        .shows(&[Rule::ClaimBeforeAddress])
        .repeats(&[31])
        .before(|task| {
            task.take_frames(3);
            // CPU 0 has a block, and nothing in it.
            task.unmap_ram(task.map_ram(0, 1));
            task.unmap_aliases();
        })
        .cpu(|task| {
            let range = task.map_ram(0, 1);
            task.use_kernel(range.start, task.frame(0));
            task.keep(range);
        })
        .cpu(|task| {
            // A page where that block lies, and a block elsewhere.
            let there = VmapPlace { within: Some(kernel(0, 64)), ..BARE };
            let frame = task.frame(1);
            let taken =
                task.call("vmap", |mm| mm.vmap().map(&[frame], there, quietmm::KernelProt::ReadWrite));
            let small = task.map_ram(2, 1);
            task.use_kernel(small.start, task.frame(2));
            if let Ok(taken) = taken {
                task.use_kernel(taken.start, frame);
            }
        })
}

fn empty() -> Scenario {
    Scenario::new(
        "block-empty",
        "two CPUs map and unmap in blocks of their own, and a third wants all addresses",
        "linux",
    )
    .cpus(3)
    .config(|config| kernel_range(config, 192))
    .shows(&[Rule::EmptyBlocksGoBack])
    .repeats(&[27])
    .before(|task| task.take_frames(3))
    .cpu(|task| task.unmap_ram(task.map_ram(0, 1)))
    .cpu(|task| task.unmap_ram(task.map_ram(1, 1)))
    .cpu(|task| {
        let frame = task.frame(2);
        let place = VmapPlace { align: 64, ..BARE };
        let whole = task.call("vmap", |mm| mm.vmap().map(&[frame; 3], place, quietmm::KernelProt::ReadWrite));
        if let Ok(range) = whole {
            task.vunmap(task.given(range));
        }
    })
    .after(|task| task.vunmap(task.vmap_filled(0, 192, BARE)))
}

fn offline() -> Scenario {
    Scenario::new(
        "block-offline",
        "a CPU goes offline with a block, and comes back, while another wants all addresses",
        "linux",
    )
    .config(|config| kernel_range(config, 192))
    .shows(&[Rule::EmptyBlocksGoBack, Rule::FlushBeforeReuse])
    .repeats(&[27])
    .before(|task| {
        task.take_frames(3);
        task.as_cpu(1, |task| {
            let range = task.map_ram(0, 1);
            task.unmap_ram(range);
            task.keep(task.map_ram(1, 1));
            task.use_kernel(task.kept(0).start, task.frame(1));
        });
    })
    .cpu(|task| {
        task.unmap_aliases();
        task.unmap_ram(task.map_ram(2, 1));
    })
    .cpu(|task| {
        task.unmap_ram(task.kept(0));
        task.go_offline();
        task.come_online();
        task.unmap_ram(task.map_ram(2, 1));
    })
    .after(|task| {
        task.unmap_aliases();
        task.no_alias(task.frame(1));
        task.vunmap(task.vmap_filled(0, 192, BARE));
    })
}

fn both_offline() -> Scenario {
    Scenario::new(
        "block-offline-two",
        "two CPUs with blocks go offline at once, and a third wants all addresses",
        "linux",
    )
    .cpus(3)
    .config(|config| kernel_range(config, 192))
    .shows(&[Rule::EmptyBlocksGoBack])
    .repeats(&[11])
    .before(|task| {
        task.take_frames(2);
        for cpu in 1..3 {
            task.as_cpu(cpu, |task| task.keep(task.map_ram(0, 1)));
        }
    })
    .cpu(|task| task.unmap_ram(task.kept(0)))
    .cpu(|task| task.go_offline())
    .cpu(|task| task.go_offline())
    .after(|task| {
        // The core looks at itself while they are away.
        task.promise(task.mm().validate().broken.is_none(), "who is offline has left nothing behind");
        task.unmap_ram(task.kept(1));
        task.unmap_aliases();
        task.vunmap(task.vmap_filled(0, 192, BARE));
        for cpu in 1..3 {
            task.as_cpu(cpu, Task::come_online);
        }
    })
}
