//! Reclaim against everything that touches the same page. CPU 2 reclaims; it runs no program.

use quietmm::{Backing, FrameNumber, Prot, Rule};

use super::before::{
    AT, SECOND, TO, backing, crowded, make_idle, pcp, showing, showing_as, small, tagged, written,
};
use crate::scenario::Scenario;
use crate::task::Task;
use crate::task::swap::{DEVICE, SLOTS, swapping};

pub(super) fn all() -> Vec<Scenario> {
    vec![
        unmap(),
        protect(),
        moving(),
        drop(),
        fault(),
        copy(),
        share(),
        offline(),
        offline_own(),
        come(),
        stall(),
        caches("caches-stall", "linux", 2),
        caches("caches-one", "quiet", 1),
        fork(),
        exit(),
        lazy(),
        switch(),
        hotplug(),
    ]
}

/// Where memory may go offline: the core's own is in the block before.
const SECOND_BLOCK: FrameNumber = FrameNumber(0x1400);

/// Pages of a file that nobody has used since the last look, in a space in which CPUs 0 and 1 run; no memory is free.
pub(super) fn idle(name: &'static str, about: &'static str) -> Scenario {
    Scenario::new(name, about, "linux")
        .cpus(3)
        .machine(small)
        .config(|config| config.scan_batch = 1)
        .watch(AT, 4)
        .before(|task| {
            showing(task, 2);
            make_idle(task);
        })
        .after(give_all_back)
}

pub(super) fn give_all_back(task: &Task<'_>) {
    task.give_back(usize::MAX);
}

/// Two batches.
pub(super) fn reclaims(task: &Task<'_>) {
    task.reclaim();
    task.reclaim();
}

fn unmap() -> Scenario {
    idle("reclaim-unmap", "reclaim takes pages that another CPU unmaps, and a third has cached")
        .shows(&[Rule::DeferredBeforeUnmapReturns, Rule::FlushBeforeFree, Rule::NoteWhatWasFlushed])
        .repeats(&[1, 2])
        .cpu(|task| {
            task.unmap(0, SECOND, 1);
            task.unmap(0, AT, 1);
        })
        .cpu(|_| ())
        .cpu(reclaims)
}

fn protect() -> Scenario {
    idle("reclaim-protect", "reclaim takes a page that another CPU makes unreadable")
        .shows(&[Rule::DeferredBeforeUnmapReturns])
        .repeats(&[1])
        .cpu(|task| task.protect(0, AT, 1, Prot::None))
        .cpu(|_| ())
        .cpu(|task| task.reclaim_one())
}

fn moving() -> Scenario {
    idle(
        "reclaim-move",
        "reclaim takes a page that another CPU moves, and that a third wants at its new address",
    )
    .shows(&[Rule::DeferredBeforeUnmapReturns, Rule::FlushBeforeMove])
    .repeats(&[1, 5])
    .cpu(|task| {
        task.move_pages(0, AT, 1, TO);
        let _ = task.peek(0, TO);
    })
    .cpu(|_| ())
    .cpu(reclaims)
}

fn drop() -> Scenario {
    idle("reclaim-drop", "reclaim takes a page that another CPU gives up, and maps again")
        .shows(&[Rule::DeferredBeforeUnmapReturns, Rule::DirtyBeforeUnlock])
        .repeats(&[1, 4])
        .config(pcp)
        .before(|task| {
            written(task, 2);
            make_idle(task);
            task.give_back(2);
        })
        .cpu(|task| {
            task.drop_pages(0, AT, 1);
            let _ = task.peek(0, AT);
        })
        .cpu(|_| ())
        .cpu(|task| task.reclaim_one())
}

fn fault() -> Scenario {
    idle("reclaim-fault", "reclaim takes a page that one CPU has cached, and another faults in again")
        .shows(&[Rule::CacheUntilFlush, Rule::FreezeBeforeFree])
        .repeats(&[35])
        .config(pcp)
        .before(|task| {
            showing(task, 2);
            make_idle(task);
            // It has forgotten what CPU 1 has not; and it has the frame that it will need.
            task.evict();
            task.give_back(1);
        })
        .cpu(|task| {
            let _ = task.peek(0, AT);
        })
        .cpu(|task| {
            let _ = task.peek(0, AT);
        })
        .cpu(reclaims)
}

fn copy() -> Scenario {
    idle(
        "reclaim-copy",
        "reclaim takes a page that one CPU has cached, and of which another makes its own copy",
    )
    .shows(&[Rule::RefaultAfterFlush])
    .repeats(&[37])
    .config(pcp)
    .before(|task| {
        showing_as(task, 2, |file| Backing::Private { file, offset: 0 });
        make_idle(task);
        task.evict();
        task.give_back(1);
    })
    .cpu(|task| {
        let _ = task.write(0, AT);
    })
    .cpu(|task| {
        let _ = task.peek(0, AT);
    })
    .cpu(reclaims)
}

fn share() -> Scenario {
    idle("reclaim-share", "reclaim takes a page of a file that two spaces show, and both write to")
        .shows(&[Rule::CacheUntilFlush, Rule::FreezeBeforeFree])
        .repeats(&[35])
        .config(pcp)
        .before(|task| {
            // CPU 0 has cached nothing: CPU 1's is the only use that a look finds.
            for cpu in 0..2 {
                let space = task.create_space();
                if cpu == 0 {
                    task.create_file(8);
                }
                task.map_as(space, AT, 4, backing(task, 0), Prot::ReadWrite);
                task.as_cpu(cpu, |task| {
                    task.run_in(space);
                    (AT..AT + 4).for_each(|page| task.bring(space, page));
                });
            }
            task.as_cpu(1, |task| (AT..AT + 4).for_each(|page| _ = task.peek(1, page)));
            task.settle();
            make_idle(task);
            task.give_back(1);
        })
        .cpu(|task| {
            let _ = task.write(0, AT);
        })
        .cpu(|task| {
            let _ = task.write(1, AT);
        })
        .cpu(reclaims)
}

fn offline() -> Scenario {
    Scenario::new(
        "offline-share",
        "memory goes offline with a page that two spaces show and write to: it moves",
        "linux",
    )
    .cpus(3)
    .machine(|setup| setup.frames = 2048)
    .watch(AT, 4)
    .shows(&[Rule::FlushBeforeMigrate, Rule::FreezeBeforeFree])
    .repeats(&[35])
    .before(|task| {
        for cpu in 0..2 {
            let space = task.create_space();
            if cpu == 0 {
                task.create_file(8);
            }
            task.map_as(space, AT, 4, backing(task, 0), Prot::ReadWrite);
            task.as_cpu(cpu, |task| task.run_in(space));
            // The tables.
            task.bring(space, AT + 1);
        }
        // The page is in the second block, and nothing else of theirs.
        task.take_all_below(SECOND_BLOCK);
        (0..2).for_each(|space| task.bring(space, AT));
        task.as_cpu(1, |task| _ = task.peek(1, AT));
        task.settle();
        task.begin_offline(SECOND_BLOCK);
        task.give_back(1);
    })
    .cpu(|task| {
        let _ = task.write(0, AT);
    })
    .cpu(|task| {
        let _ = task.write(1, AT);
    })
    .cpu(|task| task.finish_offline())
    .after(|task| {
        task.cancel_offline();
        give_all_back(task);
    })
}

fn offline_own() -> Scenario {
    Scenario::new(
        "offline-own",
        "memory goes offline with pages of a space that two CPUs write to: they move",
        "linux",
    )
    .cpus(3)
    .machine(|setup| setup.frames = 2048)
    .config(swapping)
    .watch(AT, 4)
    .shows(&[Rule::FlushBeforeMigrate])
    .before(|task| {
        let space = task.create_space();
        task.map(space, AT, 4);
        (0..2).for_each(|cpu| task.as_cpu(cpu, |task| task.run_in(space)));
        // The table.
        task.bring(space, AT + 2);
        // The pages are in the second block, and nothing else of theirs.
        task.take_all_below(SECOND_BLOCK);
        for cpu in 0..2 {
            task.as_cpu(cpu, |task| {
                (AT..AT + 2).for_each(|page| task.promise(task.write(0, page).is_ok(), "there is room"))
            });
        }
        task.settle();
        task.begin_offline(SECOND_BLOCK);
        // Room for them elsewhere, and for what reclaim needs.
        task.give_back(8);
    })
    .cpu(|task| {
        let _ = task.write(0, AT);
        let _ = task.read(0, AT);
    })
    .cpu(|task| {
        let _ = task.write(0, AT + 1);
    })
    .cpu(|task| task.finish_offline())
    .after(|task| {
        (AT..AT + 2).for_each(|page| task.promise(task.read(0, page).is_ok(), "it is somewhere"));
        task.cancel_offline();
        give_all_back(task);
    })
}

fn come() -> Scenario {
    Scenario::new(
        "block-comes",
        "two CPUs say that the same block of memory has come, and a third takes frames",
        "linux",
    )
    .cpus(3)
    .machine(|setup| {
        setup.frames = 1024;
        setup.later = 1024;
    })
    .shows(&[Rule::AddedOnce])
    .cpu(|task| _ = task.add_block(SECOND_BLOCK))
    .cpu(|task| _ = task.add_block(SECOND_BLOCK))
    .cpu(|task| {
        task.take_frames(2);
        task.give_back(2);
    })
    .after(|task| {
        task.promise(task.world.offline.borrow().len() == 1, "one of the two has it");
        task.bring_online();
    })
}

fn caches(name: &'static str, policy: &str, keeps: usize) -> Scenario {
    let config = if keeps == 1 { |task: &Task<'_>| keep(task, 1) } else { |task: &Task<'_>| keep(task, 2) };
    Scenario::new(
        name,
        "two tasks find no frame but in the kernel's own cache, and a third one drains",
        policy,
    )
    .cpus(3)
    .machine(|setup| {
        small(setup);
        setup.caches = true;
    })
    .before(config)
    .cpu(|task| task.reclaim_one())
    .cpu(|task| task.reclaim_one())
    .cpu(|task| task.drain(quietmm::Certainty::Likely))
    .after(|task| {
        let (had, wanted) = (task.world.frames.borrow().len(), task.world.numbers[0].get() as usize);
        task.promise(
            had == wanted + task.world.numbers[1].get() as usize,
            "what the cache has kept is theirs",
        );
        give_all_back(task);
        task.empty_cache();
    })
}

/// The kernel's cache has these, and the scenario all others.
fn keep(task: &Task<'_>, frames: usize) {
    task.take_frames(frames);
    task.cache_all();
    task.take_all_memory();
    task.world.numbers[0].set(task.world.frames.borrow().len() as u64);
    task.world.numbers[1].set(frames as u64);
}

fn stall() -> Scenario {
    Scenario::new(
        "stall-write",
        "a task finds nothing, because another has sent the last pages to their device",
        "linux",
    )
    .machine(small)
    .config(|config| config.swap = true)
    .watch(AT, 4)
    .before(|task| {
        task.swap_on(DEVICE, SLOTS);
        let space = task.create_space();
        task.map(space, AT, 4);
        task.run_in(space);
        (AT..AT + 4).for_each(|page| task.promise(task.write(space, page).is_ok(), "there is memory"));
        task.settle();
        task.take_all_memory();
    })
    .cpu(|task| task.promise(task.reclaim(), "there are pages to swap out"))
    .cpu(|task| {
        while task.told().going_out.get() == 0 {
            task.wait();
        }
        task.promise(task.reclaim(), "they come back soon");
    })
    .after(give_all_back)
}

fn lazy() -> Scenario {
    idle("reclaim-lazy", "reclaim takes a page while a CPU leaves lazy mode, and another enters it")
        .shows(&[Rule::LazyReturnFlush])
        .repeats(&[10])
        .before(|task| {
            showing(task, 2);
            make_idle(task);
            task.as_cpu(1, Task::go_lazy);
        })
        .cpu(|task| {
            task.go_lazy();
            task.leave_lazy();
        })
        .cpu(|task| {
            task.leave_lazy();
        })
        .cpu(|task| task.reclaim_one())
}

fn switch() -> Scenario {
    idle("reclaim-switch", "reclaim takes a page while a CPU comes back to its space, and another leaves it")
        .machine(tagged)
        .shows(&[Rule::GenerationBeforeMask, Rule::MaskBeforeGeneration, Rule::SwitchFlush])
        .repeats(&[8, 9])
        .before(|task| {
            showing(task, 2);
            let other = task.create_space();
            make_idle(task);
            task.as_cpu(1, |task| task.run_in(other));
        })
        .cpu(|task| {
            task.run_in(1);
            task.run_in(0);
        })
        .cpu(|task| task.run_in(0))
        .cpu(|task| task.reclaim_one())
}

fn hotplug() -> Scenario {
    idle("reclaim-hotplug", "reclaim takes a page while one CPU that has it goes offline, and another comes")
        .machine(tagged)
        .shows(&[Rule::TakeBack, Rule::OnlineStartsEmpty])
        .repeats(&[11])
        .before(|task| {
            showing(task, 2);
            let other = task.create_space();
            make_idle(task);
            task.as_cpu(1, |task| {
                task.run_in(other);
                task.go_offline();
            });
        })
        .cpu(|task| task.go_offline())
        .cpu(|task| {
            task.come_online();
            task.run_in(0);
        })
        .cpu(reclaims)
        .after(|task| {
            task.come_online();
            give_all_back(task);
        })
}

fn exit() -> Scenario {
    idle("reclaim-exit", "reclaim takes pages of a space that ends, and in which a CPU is lazy")
        .shows(&[Rule::TablesToLazy])
        .repeats(&[7])
        .before(|task| {
            showing(task, 2);
            make_idle(task);
            task.unload();
            task.as_cpu(1, Task::go_lazy);
        })
        .cpu(|task| task.promise(task.end(0).is_ok(), "nobody runs there"))
        .cpu(|_| ())
        .cpu(reclaims)
}

fn fork() -> Scenario {
    idle(
        "reclaim-fork",
        "reclaim takes a space's only own page to swap while the space is forked, and its program writes",
    )
    .config(|config| config.swap = true)
    .config(|config| config.page_lists = Some(quietmm::ListLimits { batch: 1, high: 16 }))
    .shows(&[Rule::DeferredBeforeUnmapReturns, Rule::FlushBeforeForkReturns])
    .repeats(&[1])
    .before(|task| {
        task.swap_on(DEVICE, SLOTS);
        task.create_file(8);
        let space = task.create_space();
        task.map(space, TO, 1);
        for cpu in [1, 0] {
            task.as_cpu(cpu, |task| {
                task.run_in(space);
                task.promise(task.write(space, TO).is_ok(), "it is mapped");
            });
        }
        task.settle();
        // Reclaim takes turns: one of these; another, when it has seen that the own page is in use; the own page.
        crowded(task, 3);
        // What the fork needs.
        task.give_back(12);
    })
    .cpu(|task| {
        task.fork(0);
    })
    .cpu(|task| {
        let _ = task.write(0, TO);
    })
    .cpu(|task| {
        reclaims(task);
        task.reclaim();
    })
}
