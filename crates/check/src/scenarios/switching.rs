//! Flushes against CPUs that come to a space and leave it: lazily, under a tag, for good.

use quietmm::{Error, Rule};

use super::before::{AT, FIRST, SECOND, TO, own, small, tagged};
use crate::scenario::Scenario;
use crate::task::Task;

pub(super) fn all() -> Vec<Scenario> {
    vec![
        unmap_lazy(),
        unmap_switch(),
        unmap_away(),
        tables_lazy(),
        tables_use(),
        exit_switch(),
        exit_lazy(),
        exit_enter(),
        exit_return(),
    ]
}

/// Two CPUs run in a space of their own pages; there is another space.
fn two_spaces(task: &Task<'_>) {
    own(task, 2);
    let other = task.create_space();
    task.map(other, TO, 2);
}

/// A program that looks at the page that is unmapped, and at its neighbour.
fn looks(task: &Task<'_>) {
    let _ = task.peek(0, FIRST);
    let _ = task.read(0, AT);
}

fn unmap_lazy() -> Scenario {
    Scenario::new("unmap-lazy", "a CPU unmaps while others leave lazy mode and enter it", "linux")
        .cpus(3)
        .machine(small)
        .watch(AT, 4)
        .shows(&[Rule::LazyReturnFlush, Rule::GenerationBeforeMask])
        .repeats(&[9, 10])
        .before(|task| {
            own(task, 3);
            task.as_cpu(1, Task::go_lazy);
        })
        .cpu(|task| task.unmap(0, FIRST, 1))
        .cpu(|task| {
            task.leave_lazy();
            looks(task);
        })
        .cpu(|task| {
            task.go_lazy();
            task.leave_lazy();
            looks(task);
        })
}

fn unmap_switch() -> Scenario {
    Scenario::new(
        "unmap-switch",
        "a CPU unmaps while another comes back to the space, under its tag",
        "linux",
    )
    .machine(tagged)
    .watch(AT, 4)
    .shows(&[Rule::MaskBeforeGeneration, Rule::SwitchFlush, Rule::GenerationBeforeMask])
    .repeats(&[8, 9])
    .before(|task| {
        two_spaces(task);
        task.as_cpu(1, |task| task.run_in(1));
    })
    .cpu(|task| task.unmap(0, FIRST, 1))
    .cpu(|task| {
        task.run_in(0);
        looks(task);
    })
}

fn unmap_away() -> Scenario {
    Scenario::new("unmap-away", "a CPU unmaps, which is the 256th flush that others miss", "linux")
        .cpus(3)
        .machine(tagged)
        .watch(AT, 4)
        .shows(&[Rule::WholeGeneration, Rule::LazyReturnFlush, Rule::SwitchFlush])
        .repeats(&[15])
        .before(|task| {
            own(task, 3);
            let other = task.create_space();
            task.as_cpu(1, Task::go_lazy);
            task.as_cpu(2, |task| task.run_in(other));
            (0..255).for_each(|_| task.flush(0));
        })
        .cpu(|task| task.unmap(0, FIRST, 1))
        .cpu(|task| {
            task.leave_lazy();
            looks(task);
        })
        .cpu(|task| {
            task.run_in(0);
            looks(task);
        })
}

fn tables_lazy() -> Scenario {
    Scenario::new("tables-lazy", "page tables go while CPUs are lazy in them, and come back", "linux")
        .cpus(3)
        .machine(small)
        .watch(AT, 4)
        .shows(&[Rule::TablesToLazy, Rule::TablesAfterFlush])
        .repeats(&[7])
        .before(|task| {
            own(task, 3);
            task.as_cpu(1, Task::go_lazy);
            task.as_cpu(2, Task::go_lazy);
        })
        .cpu(|task| task.unmap(0, AT, 4))
        .cpu(|task| {
            if !task.leave_lazy() {
                task.run_in(0);
            }
            looks(task);
        })
}

fn tables_use() -> Scenario {
    Scenario::new("tables-use", "page tables without a page in them go while another CPU walks them", "linux")
        .machine(small)
        .watch(AT, 4)
        .shows(&[Rule::TablesAfterFlush])
        .repeats(&[7])
        .before(|task| {
            own(task, 2);
            task.drop_pages(0, AT, 4);
            task.forget(0, AT, 4);
        })
        .cpu(|task| task.unmap(0, AT, 4))
        .cpu(|task| {
            let _ = task.peek(0, FIRST);
            let _ = task.peek(0, SECOND);
        })
}

/// Ends the first space: whoever is still there is in the way, until it has gone.
fn ends(task: &Task<'_>) {
    while task.end(0).is_err() {
        task.wait();
    }
}

fn exit_switch() -> Scenario {
    Scenario::new("exit-switch", "a space ends while another CPU switches away from it", "linux")
        .machine(tagged)
        .watch(AT, 4)
        .shows(&[Rule::LeaveMaskAfterLoad])
        .repeats(&[8])
        .before(|task| {
            two_spaces(task);
            task.unload();
        })
        .cpu(ends)
        .cpu(|task| task.run_in(1))
}

fn exit_lazy() -> Scenario {
    Scenario::new(
        "exit-lazy",
        "a space ends while one CPU is lazy in it and another, also lazy, leaves it",
        "linux",
    )
    .cpus(3)
    .machine(small)
    .watch(AT, 4)
    .shows(&[Rule::TablesToLazy, Rule::LeaveMaskAfterLoad])
    .repeats(&[7, 8])
    .before(|task| {
        own(task, 3);
        task.create_space();
        task.unload();
        task.as_cpu(1, Task::go_lazy);
        task.as_cpu(2, Task::go_lazy);
    })
    .cpu(ends)
    .cpu(|task| task.run_in(1))
}

/// Tries to end the first space once: somebody may be there.
fn tries_to_end(task: &Task<'_>) {
    let ended = task.end(0);
    task.promise(matches!(ended, Ok(()) | Err(Error::Busy)), "a space ends, or somebody is there");
}

fn exit_enter() -> Scenario {
    Scenario::new(
        "exit-enter",
        "a space ends while other CPUs, one of them lazy elsewhere, switch to it",
        "linux",
    )
    .cpus(3)
    .machine(tagged)
    .watch(AT, 4)
    .shows(&[Rule::EndBeforeMask, Rule::LifeAfterMask, Rule::LifeAfterLazy])
    .before(|task| {
        two_spaces(task);
        task.unload();
        task.as_cpu(1, |task| task.run_in(1));
        task.as_cpu(2, |task| {
            task.run_in(1);
            task.go_lazy();
        });
    })
    .cpu(tries_to_end)
    .cpu(comes)
    .cpu(comes)
}

fn exit_return() -> Scenario {
    Scenario::new("exit-return", "a space ends while CPUs that are lazy in it come back", "linux")
        .cpus(3)
        .machine(small)
        .watch(AT, 4)
        .shows(&[Rule::LifeAfterLazy, Rule::EndBeforeMask])
        .before(|task| {
            own(task, 3);
            task.unload();
            task.as_cpu(1, Task::go_lazy);
            task.as_cpu(2, Task::go_lazy);
        })
        .cpu(tries_to_end)
        .cpu(comes)
        .cpu(|task| {
            if task.leave_lazy() {
                looks(task);
            }
        })
}

/// Runs in the first space, if it has not ended.
fn comes(task: &Task<'_>) {
    if task.try_run_in(0).is_ok() {
        looks(task);
    }
}
