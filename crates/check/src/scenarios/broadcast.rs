//! `flush=broadcast`: hardware flushes all CPUs, one after the other and as late as it may, against CPUs that use what is
//! flushed, come back to it, or go and come.

use quietmm::{Error, Rule};

use super::before::{AT, FIRST, SECOND, comes_back, crowded, make_idle, own, showing, small, tagged};
use super::reclaim::reclaims;
use crate::scenario::Scenario;
use crate::task::Task;
use crate::task::vmap::{BARE, kernel_range};

const POLICY: &str = "linux+flush=broadcast";

pub(super) fn all() -> Vec<Scenario> {
    vec![
        unmap(),
        lazy(),
        switch(),
        online(),
        tables(),
        moved(),
        exit(),
        deferred(),
        batch(),
        sweep(),
        purge(),
    ]
}

fn broadcast(name: &'static str, about: &'static str) -> Scenario {
    Scenario::new(name, about, POLICY)
        .cpus(3)
        .machine(tagged)
        .machine(|setup| setup.broadcast = true)
        .watch(AT, 4)
        .before(|task| own(task, 3))
}

/// A program that looks at the page that is unmapped, and at its neighbour.
fn looks(task: &Task<'_>) {
    let _ = task.peek(0, FIRST);
    let _ = task.read(0, AT);
}

/// One that becomes lazy, comes back, and looks.
fn lazy_for_a_moment(task: &Task<'_>) {
    task.go_lazy();
    task.leave_lazy();
    looks(task);
}

/// One that walks to the pages that reclaim takes.
fn peeks(task: &Task<'_>) {
    let _ = task.peek(0, AT);
    let _ = task.peek(0, FIRST);
}

fn unmap() -> Scenario {
    broadcast("broadcast-unmap", "two CPUs unmap what they and a third write to")
        .shows(&[Rule::SyncBroadcast, Rule::FlushBeforeUnmapReturns])
        .cpu(|task| task.unmap(0, FIRST, 1))
        .cpu(|task| {
            let _ = task.write(0, FIRST);
            task.unmap(0, SECOND, 1);
        })
        .cpu(|task| {
            let _ = task.write(0, SECOND);
            looks(task);
        })
}

fn lazy() -> Scenario {
    broadcast(
        "broadcast-lazy",
        "a CPU unmaps while one leaves lazy mode and another, who runs there, enters it",
    )
    .shows(&[Rule::SyncBroadcast])
    .before(|task| {
        own(task, 3);
        task.as_cpu(1, Task::go_lazy);
    })
    .cpu(|task| {
        task.unmap(0, FIRST, 1);
        task.unmap(0, SECOND, 1);
    })
    .cpu(|task| {
        task.leave_lazy();
        looks(task);
    })
    .cpu(lazy_for_a_moment)
}

fn switch() -> Scenario {
    broadcast("broadcast-switch", "a CPU unmaps while another comes back to the space, under its tag")
        .shows(&[Rule::SyncBroadcast])
        .before(|task| {
            own(task, 3);
            let other = task.create_space();
            task.as_cpu(1, |task| task.run_in(other));
        })
        .cpu(|task| task.unmap(0, FIRST, 1))
        .cpu(|task| {
            task.run_in(0);
            looks(task);
        })
        .cpu(looks)
}

fn online() -> Scenario {
    broadcast("broadcast-online", "a CPU unmaps while another goes offline and comes back to the space")
        .shows(&[Rule::SyncBroadcast])
        .cpu(|task| task.unmap(0, FIRST, 1))
        .cpu(comes_back)
        .cpu(looks)
}

/// What is moved leaves a table that leads to nothing, beside one that is in use, under the same tables.
fn moved() -> Scenario {
    const BESIDE: u64 = AT + 0x400;
    // Under tables of its own.
    const FAR: u64 = AT + (1 << 27);
    broadcast("broadcast-moved", "a page moves away, and then its neighbours go, with the tables above all of them, while CPUs walk there")
        .shows(&[Rule::TablesAfterFlush])
        .before(|task| {
            own(task, 3);
            task.map(0, BESIDE, 1);
            task.as_cpu(1, |task| _ = task.write(0, BESIDE));
        })
        .cpu(|task| {
            task.move_pages(0, BESIDE, 1, FAR);
            task.unmap(0, AT, 4);
        })
        .cpu(|task| {
            let _ = task.peek(0, BESIDE);
            let _ = task.peek(0, AT);
        })
        .cpu(|task| {
            let _ = task.peek(0, AT);
            let _ = task.peek(0, FAR);
        })
}

fn tables() -> Scenario {
    broadcast("broadcast-tables", "page tables go while CPUs are lazy in them, and come back")
        .machine(small)
        .shows(&[Rule::SyncBroadcast, Rule::TablesAfterFlush])
        .before(|task| {
            own(task, 3);
            task.as_cpu(1, Task::go_lazy);
        })
        .cpu(|task| task.unmap(0, AT, 4))
        .cpu(|task| {
            if !task.leave_lazy() {
                task.run_in(0);
            }
            looks(task);
        })
        .cpu(looks)
}

fn exit() -> Scenario {
    broadcast("broadcast-exit", "a space ends while one CPU is lazy in it and another comes back")
        .shows(&[Rule::TablesToLazy])
        .before(|task| {
            own(task, 3);
            task.unload();
            task.as_cpu(1, Task::go_lazy);
            task.as_cpu(2, Task::go_lazy);
        })
        .cpu(|task| {
            let ended = task.end(0);
            task.promise(matches!(ended, Ok(()) | Err(Error::Busy)), "a space ends, or somebody is there");
        })
        .cpu(|_| ())
        .cpu(|task| {
            if task.leave_lazy() {
                looks(task);
            }
        })
}

/// Pages of a file that nobody has used since the last look, which CPUs 0 and 1 have cached; no memory is free.
fn idle(name: &'static str, about: &'static str) -> Scenario {
    broadcast(name, about)
        .config(|config| config.scan_batch = 1)
        .before(|task| {
            showing(task, 2);
            make_idle(task);
        })
        .after(|task| task.give_back(usize::MAX))
}

fn deferred() -> Scenario {
    idle("broadcast-deferred", "reclaim takes pages that another CPU unmaps, and a third has cached")
        .shows(&[Rule::DeferredWidensBroadcast])
        .cpu(|task| {
            task.unmap(0, AT, 2);
            task.unmap(0, SECOND, 1);
        })
        .cpu(looks)
        .cpu(reclaims)
}

fn batch() -> Scenario {
    idle("broadcast-batch", "reclaim takes pages while one CPU reads them and another leaves lazy mode")
        .shows(&[Rule::SyncBroadcast, Rule::FlushBeforeFree])
        .cpu(peeks)
        .cpu(lazy_for_a_moment)
        .cpu(reclaims)
}

fn sweep() -> Scenario {
    Scenario {
        config: quietmm::Config { sweep_deadline: 3_000, ..Scenario::new("", "", "quiet").config },
        ..broadcast(
            "broadcast-sweep",
            "reclaim waits for a sweep, and ends it by broadcast, while one CPU uses its pages and another leaves lazy mode",
        )
    }
    .config(|config| config.scan_batch = 1)
    .shows(&[Rule::SyncBroadcast])
    .before(|task| {
        showing(task, 2);
        crowded(task, 2);
    })
    .cpu(peeks)
    .cpu(lazy_for_a_moment)
    .cpu(reclaims)
    .after(|task| task.give_back(usize::MAX))
}

fn purge() -> Scenario {
    broadcast(
        "broadcast-purge",
        "kernel pages are purged and mapped again while a CPU comes online, and one is lazy",
    )
    .config(|config| kernel_range(config, 64))
    .shows(&[Rule::BroadcastGlobals, Rule::SyncBroadcast, Rule::FlushBeforeReuse, Rule::OnlineFlushesKernel])
    .before(|task| {
        task.take_frames(4);
        let space = task.create_space();
        for n in 0..2 {
            let range = task.vmap(n, 1, BARE);
            task.keep(range);
            (0..3).for_each(|cpu| task.as_cpu(cpu, |task| task.use_kernel(range.start, task.frame(n))));
        }
        task.as_cpu(2, |task| {
            task.run_in(space);
            task.go_lazy();
        });
    })
    .cpu(|task| {
        task.vunmap(task.kept(0));
        task.unmap_aliases();
        task.no_alias(task.frame(0));
        task.vmap(2, 1, BARE);
    })
    .cpu(|task| {
        task.go_offline();
        task.come_online();
        task.use_kernel(task.kept(1).start, task.frame(1));
    })
    .cpu(|task| {
        task.use_kernel(task.kept(1).start, task.frame(1));
        task.leave_lazy();
    })
}
