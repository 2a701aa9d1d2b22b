//! `free=sweep`: what is unmapped or dropped waits for a sweep (INV-14), while others use it. Timers fire at any point.

use quietmm::Rule;

use super::before::{AT, FIRST, SECOND, TO, own, small};
use crate::scenario::Scenario;
use crate::task::Task;

pub(super) fn all() -> Vec<Scenario> {
    vec![free(), address(), drop_touch(), moved(), forked(), lazy()]
}

/// Nanoseconds: a few looks.
const DEADLINE: u64 = 3_000;

/// Three CPUs run in a space of their own pages.
fn parked(name: &'static str, about: &'static str) -> Scenario {
    Scenario::new(name, about, "linux+free=sweep")
        .cpus(3)
        .ticks(2)
        .machine(small)
        .config(|config| config.sweep_deadline = DEADLINE)
        .watch(AT, 4)
        .before(|task| own(task, 3))
        .after(|task| task.give_back(usize::MAX))
}

fn peeks(task: &Task<'_>) {
    let _ = task.peek(0, FIRST);
    let _ = task.peek(0, SECOND);
}

/// The same, and no memory is free.
fn crowded(task: &Task<'_>) {
    own(task, 3);
    task.take_all_memory();
}

fn wants_memory(task: &Task<'_>) {
    task.unmap(0, FIRST, 2);
    task.promise(task.reclaim(), "what was unmapped can be had");
}

fn free() -> Scenario {
    parked("parked-free", "pages are unmapped that others use, and all memory is wanted")
        .shows(&[Rule::ParkUntilSwept, Rule::CountEveryCpu, Rule::FlushBeforeSwept])
        .before(crowded)
        .cpu(wants_memory)
        .cpu(peeks)
        .cpu(peeks)
}

fn address() -> Scenario {
    parked("parked-address", "pages are unmapped that others use, and something else is mapped there")
        .shows(&[Rule::ParkedAddressFlushed])
        .cpu(|task| {
            task.unmap(0, FIRST, 2);
            task.map(0, FIRST, 1);
            let _ = task.write(0, FIRST);
        })
        .cpu(peeks)
        .cpu(|task| {
            task.tick();
            peeks(task);
        })
}

fn drop_touch() -> Scenario {
    parked("parked-drop", "two CPUs touch anew what a third drops, and one of them has it cached")
        .shows(&[Rule::ParkedAddressFlushed])
        .cpu(|task| {
            task.drop_pages(0, FIRST, 2);
            task.forget(0, FIRST, 2);
            let _ = task.peek(0, FIRST);
        })
        .cpu(peeks)
        .cpu(|task| {
            task.run_in(0);
            peeks(task);
        })
}

fn moved() -> Scenario {
    parked("parked-move", "a page is moved to where another was unmapped")
        .shows(&[])
        .before(|task| {
            own(task, 3);
            task.map(0, TO, 1);
            let _ = task.write(0, TO);
        })
        .cpu(|task| {
            task.unmap(0, FIRST, 1);
            task.move_pages(0, TO, 1, FIRST);
        })
        .cpu(peeks)
        .cpu(peeks)
}

fn forked() -> Scenario {
    parked("parked-fork", "a parent unmaps what its child writes to, and a thread of the parent reads it")
        .shows(&[])
        .before(|task| {
            own(task, 3);
            let child = task.fork(0);
            task.as_cpu(1, |task| _ = task.read(0, FIRST));
            task.as_cpu(2, |task| task.run_in(child));
        })
        .cpu(wants_memory)
        .cpu(peeks)
        .cpu(|task| _ = task.write(1, FIRST))
}

fn lazy() -> Scenario {
    parked(
        "parked-lazy",
        "pages are unmapped and their memory is wanted while a CPU goes lazy and comes back",
    )
    .shows(&[Rule::LazyReturnSweep])
    .cpu(|task| {
        task.unmap(0, FIRST, 2);
        task.take_all_memory();
    })
    .cpu(|task| {
        task.go_lazy();
        task.leave_lazy();
        peeks(task);
    })
    .cpu(peeks)
}
