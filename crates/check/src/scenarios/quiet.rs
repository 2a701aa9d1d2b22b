//! `unmap=quiet`: what no CPU can have cached is taken without a flush (INV-13), against everything that may cache it again.
//! Mostly CPU 2 reclaims, and runs no program. Timers fire at any point.

use quietmm::{Backing, Entry, PageNumber, Prot, Rule};

use super::before::{AT, SECOND, TO, backing, crowded, make_idle, own, pcp, showing, small, spare, tagged};
use super::hardware;
use super::reclaim::reclaims;
use crate::scenario::Scenario;
use crate::task::Task;
use crate::task::swap::{DEVICE, SLOTS, swapping};

pub(super) fn all() -> Vec<Scenario> {
    let reclaim = vec![
        take(),
        read(),
        unsure(),
        write(),
        age(),
        age_again(),
        lazy(),
        share(),
        switch(),
        hotplug(),
        kernel(),
        exit(),
    ];
    let split =
        hardware::split("quiet-split", "quiet").ticks(1).config(|config| config.sweep_deadline = DEADLINE);
    reclaim.into_iter().chain([swap(), split]).chain(ranges()).collect()
}

/// Nanoseconds: a few looks. Whoever waits for a sweep that nobody's timer ends asks for it then.
const DEADLINE: u64 = 3_000;

/// Pages in a space in which CPUs 0 and 1 run, and have cached them.
fn quiet(name: &'static str, about: &'static str) -> Scenario {
    Scenario::new(name, about, "quiet")
        .cpus(3)
        .ticks(2)
        .machine(small)
        .config(|config| (config.scan_batch, config.sweep_deadline) = (1, DEADLINE))
        .watch(AT, 4)
        .after(|task| task.give_back(usize::MAX))
}

/// Pages of a file whose accessed bits were cleared, and which CPUs 0 and 1 have cached since before; no memory is free.
fn idle(task: &Task<'_>) {
    showing(task, 2);
    make_idle(task);
}

/// The same, and the bits are set; a look comes to an end.
fn used(task: &Task<'_>) {
    showing(task, 2);
    crowded(task, 2);
}

fn peeks(task: &Task<'_>) {
    let _ = task.peek(0, AT);
}

fn writes(task: &Task<'_>) {
    let _ = task.write(0, AT);
}

fn take() -> Scenario {
    quiet("quiet-take", "reclaim takes a page that nobody has cached, and a CPU begins to use it")
        .shows(&[Rule::TakeWhatWasJudged, Rule::FlushBeforeSwept])
        .cpus(2)
        .before(swept)
        .cpu(|task| task.reclaim_one())
        .cpu(peeks)
}

fn read() -> Scenario {
    quiet("quiet-read", "reclaim takes pages that nobody has used since a sweep, while two CPUs use them")
        .shows(&[
            Rule::StampWhatIsCleared,
            Rule::CountEveryCpu,
            Rule::FlushBeforeSwept,
            Rule::TakeWhatWasJudged,
        ])
        .before(idle)
        .cpu(peeks)
        .cpu(peeks)
        .cpu(reclaims)
}

fn unsure() -> Scenario {
    let mut scenario = quiet(
        "quiet-unsure",
        "the policy is refused where CPUs cache what is not accessed, and would take what they use",
    )
    .machine(|setup| setup.guarantees = false)
    .shows(&[Rule::AskGuarantees])
    .before(idle)
    .cpu(peeks)
    .cpu(peeks)
    .cpu(reclaims);
    scenario.refused = true;
    scenario
}

fn write() -> Scenario {
    quiet("quiet-write", "reclaim takes pages that were written, while one CPU reads them and another writes")
        .shows(&[Rule::CountEveryCpu, Rule::FlushBeforeSwept, Rule::TakeWhatWasJudged])
        .config(pcp)
        .before(|task| {
            showing(task, 2);
            task.promise(task.write(0, AT).is_ok(), "it is mapped");
            make_idle(task);
            task.give_back(1);
        })
        .cpu(writes)
        .cpu(peeks)
        .cpu(reclaims)
}

fn age() -> Scenario {
    quiet(
        "quiet-age",
        "an accessed bit is cleared while a sweep begins that another CPU joins, and uses the page again",
    )
    .shows(&[Rule::EpochAgainAfterClear, Rule::StampWhatIsCleared])
    .cpus(2)
    .before(|task| {
        showing(task, 2);
        spare(task, 4, 1);
        task.take_all_memory();
        // Looks at all of them, and takes the last.
        task.promise(task.reclaim(), "there is one to take");
        // The first was used since.
        task.evict();
        peeks(task);
    })
    .cpu(|task| {
        reclaims(task);
        reclaims(task);
    })
    .cpu(|task| {
        task.begin_sweep();
        task.tick();
        peeks(task);
    })
}

fn age_again() -> Scenario {
    quiet("quiet-age-again", "accessed bits are cleared while a sweep is under way that a CPU has not joined")
        .shows(&[Rule::StampsOfTwoSweeps])
        .before(|task| {
            used(task);
            task.begin_sweep();
        })
        .cpu(peeks)
        .cpu(peeks)
        .cpu(|task| {
            reclaims(task);
            task.reclaim();
        })
}

fn lazy() -> Scenario {
    quiet(
        "quiet-lazy",
        "reclaim takes pages while one CPU leaves lazy mode, and another enters it and comes back",
    )
    .shows(&[Rule::LazyReturnSweep])
    .before(|task| {
        idle(task);
        task.as_cpu(1, Task::go_lazy);
    })
    .cpu(|task| {
        task.go_lazy();
        task.leave_lazy();
        peeks(task);
    })
    .cpu(|task| {
        task.leave_lazy();
        peeks(task);
    })
    .cpu(reclaims)
}

fn share() -> Scenario {
    quiet("quiet-share", "reclaim takes a page of a file that two spaces show, and both write to")
        .config(pcp)
        .before(|task| {
            for cpu in 0..2 {
                let space = task.create_space();
                if cpu == 0 {
                    task.create_file(8);
                }
                task.map_as(space, AT, 4, backing(task, 0), Prot::ReadWrite);
                task.as_cpu(cpu, |task| {
                    task.run_in(space);
                    (AT..AT + 4).for_each(|page| _ = task.peek(space, page));
                });
            }
            task.settle();
            make_idle(task);
            task.give_back(1);
        })
        .cpu(writes)
        .cpu(|task| {
            let _ = task.write(1, AT);
        })
        .cpu(reclaims)
}

fn switch() -> Scenario {
    quiet("quiet-switch", "reclaim takes a page while one CPU comes back to its space, and another leaves it")
        .machine(tagged)
        .before(|task| {
            idle(task);
            let other = task.create_space();
            task.as_cpu(1, |task| task.run_in(other));
        })
        .cpu(|task| {
            task.run_in(1);
            task.run_in(0);
        })
        .cpu(|task| {
            task.run_in(0);
            peeks(task);
        })
        .cpu(reclaims)
}

fn hotplug() -> Scenario {
    quiet("quiet-hotplug", "reclaim takes a page while one CPU that has it goes offline, and another comes")
        .machine(tagged)
        .shows(&[Rule::OnlineStartsEmpty])
        .before(|task| {
            idle(task);
            let other = task.create_space();
            task.as_cpu(1, |task| {
                task.run_in(other);
                task.go_offline();
            });
        })
        .cpu(|task| task.go_offline())
        .cpu(|task| {
            task.come_online();
            task.run_in(0);
            peeks(task);
        })
        .cpu(reclaims)
        .after(|task| {
            task.come_online();
            task.give_back(usize::MAX);
        })
}

fn exit() -> Scenario {
    quiet("quiet-exit", "reclaim takes pages of a space that ends, and in which a CPU is lazy")
        .shows(&[Rule::TablesToLazy])
        .before(|task| {
            idle(task);
            task.unload();
            task.as_cpu(1, Task::go_lazy);
        })
        .cpu(|task| task.promise(task.end(0).is_ok(), "nobody runs there"))
        .cpu(|_| ())
        .cpu(reclaims)
}

fn kernel() -> Scenario {
    quiet("quiet-kernel", "the kernel reads pages for a program while reclaim takes them")
        .shows(&[Rule::CountEveryCpu, Rule::TakeWhatWasJudged])
        .before(idle)
        .cpu(|task| {
            let _ = task.kernel_peek(0, AT);
        })
        .cpu(|task| {
            let _ = task.kernel_peek(0, SECOND);
            let _ = task.kernel_peek(0, AT);
        })
        .cpu(reclaims)
}

/// Anonymous pages whose accessed bits were cleared, and which CPUs 0 and 1 have written; some pages that nobody maps are left
/// to take.
fn idle_own(task: &Task<'_>) {
    task.swap_on(DEVICE, SLOTS);
    task.create_file(16);
    own(task, 2);
    spare(task, 0, 12);
    task.take_all_memory();
    let is_used = |page| {
        let entry = task.must("lookup", |mm| mm.space(task.space(0)).lookup(PageNumber(page)));
        entry.has(Entry::ACCESSED)
    };
    while (AT..AT + 4).any(is_used) {
        task.promise(task.reclaim(), "there is one to take");
    }
}

fn swap() -> Scenario {
    quiet(
        "quiet-swap",
        "reclaim swaps pages out that nobody has used since a sweep, while two CPUs write to them",
    )
    .config(swapping)
    .shows(&[Rule::CountEveryCpu, Rule::FlushBeforeSwept, Rule::TakeWhatWasJudged])
    .before(|task| {
        idle_own(task);
        task.must("destroy_file", |mm| mm.file(task.file(0)).destroy());
        task.take_all_memory();
    })
    .cpu(writes)
    .cpu(writes)
    .cpu(reclaims)
}

/// Operations on what nobody has used since a sweep, while a CPU uses it.
fn ranges() -> Vec<Scenario> {
    vec![
        quiet("quiet-unmap", "pages that nobody has used since a sweep are unmapped, while a CPU uses them")
            .shows(&[Rule::FlushBeforeSwept])
            .before(swept)
            .cpu(|task| {
                task.unmap(0, SECOND, 1);
                task.unmap(0, AT, 1);
            })
            .cpu(peeks)
            .cpu(|task| task.reclaim_one()),
        quiet("quiet-tables", "such pages go with their tables, while a CPU walks there")
            .shows(&[Rule::TablesAfterFlush])
            .before(swept)
            .cpu(|task| task.unmap(0, AT, 4))
            .cpu(peeks)
            .cpu(|task| task.reclaim_one()),
        quiet("quiet-protect", "such pages become read-only, and unreadable, while a CPU writes to them")
            .shows(&[Rule::FlushBeforeSwept])
            .before(swept)
            .cpu(|task| {
                task.protect(0, AT, 1, Prot::Read);
                task.protect(0, AT, 1, Prot::None);
            })
            .cpu(writes)
            .cpu(|task| task.reclaim_one())
            .after(|task| {
                task.protect(0, AT, 1, Prot::ReadWrite);
                task.give_back(usize::MAX);
            }),
        quiet("quiet-drop", "such pages are given up and mapped again, while a CPU writes to them")
            .config(pcp)
            .shows(&[Rule::FlushBeforeSwept])
            .before(|task| {
                swept(task);
                task.give_back(2);
            })
            .cpu(|task| {
                task.drop_pages(0, AT, 2);
                peeks(task);
            })
            .cpu(writes)
            .cpu(|task| task.reclaim_one()),
        quiet("quiet-move", "such pages are moved, while a CPU uses them")
            .shows(&[Rule::FlushBeforeSwept])
            .before(|task| {
                // Its table is there.
                swept(task);
                task.map(0, TO + 8, 1);
                task.give_back(4);
                task.promise(task.write(0, TO + 8).is_ok(), "there is memory");
            })
            .cpu(|task| {
                task.move_pages(0, AT, 1, TO);
                let _ = task.peek(0, TO);
            })
            .cpu(peeks)
            .cpu(|task| task.reclaim_one()),
        quiet(
            "quiet-fork",
            "a space is forked of which nobody has used a page since a sweep, while a CPU writes there",
        )
        .config(swapping)
        .before(swept_own)
        .cpu(|task| {
            task.fork(0);
        })
        .cpu(writes)
        .cpu(|task| task.reclaim_one()),
        quiet("quiet-migrate", "such pages move to other frames, while a CPU writes to them")
            .config(swapping)
            .machine(|setup| (setup.nodes, setup.frames) = (2, 384))
            .shows(&[Rule::FlushBeforeSwept])
            .before(swept_own)
            .cpu(|task| {
                task.migrate(0, AT, 4, 1);
            })
            .cpu(writes)
            .cpu(|_| ()),
        quiet("quiet-copy", "reclaim takes a page of which a CPU makes its own copy, while another reads it")
            .config(pcp)
            .shows(&[Rule::FlushBeforeSwept])
            .before(|task| {
                super::before::showing_as(task, 2, |file| Backing::Private { file, offset: 0 });
                make_idle(task);
                task.give_back(1);
            })
            .cpu(writes)
            .cpu(peeks)
            .cpu(reclaims),
    ]
}

fn swept(task: &Task<'_>) {
    idle(task);
    task.sweep();
}

fn swept_own(task: &Task<'_>) {
    idle_own(task);
    task.sweep();
    task.give_back(12);
}
