//! Page tables in which nothing is left while something is mapped there, against whoever walks them, or is about to leave something there.

use quietmm::{Backing, Prot, Rule};

use super::before::{AT, FIRST, SECOND, make_idle, own, showing, small};
use super::reclaim::{give_all_back, reclaims};
use crate::scenario::Scenario;
use crate::task::Task;

pub(super) fn all() -> Vec<Scenario> {
    vec![used(), lazy(), reclaimed(), dropped(), unmapped(), wanted()]
}

fn scenario(name: &'static str, about: &'static str) -> Scenario {
    Scenario::new(name, about, "linux").machine(small).watch(AT, 4)
}

/// Four pages that so many CPUs have used, and that are gone; their tables are there.
fn emptied(task: &Task<'_>, cpus: u16) {
    own(task, cpus);
    // One by one: no table goes with one.
    for page in AT..AT + 4 {
        task.drop_pages(0, page, 1);
    }
    task.forget(0, AT, 4);
}

fn uses(task: &Task<'_>) {
    let _ = task.write(0, FIRST);
    let _ = task.read(0, SECOND);
    let _ = task.read(0, FIRST);
}

fn used() -> Scenario {
    scenario("emptied-use", "empty page tables go while another CPU walks them, and wants something there")
        .shows(&[Rule::TablesAfterFlush])
        .before(|task| emptied(task, 2))
        .cpu(|task| task.free_empty_tables(0))
        .cpu(uses)
}

fn lazy() -> Scenario {
    scenario("emptied-lazy", "empty page tables go while CPUs are lazy in them, and come back")
        .cpus(3)
        .shows(&[Rule::TablesToLazy, Rule::TablesAfterFlush])
        .before(|task| {
            emptied(task, 3);
            task.as_cpu(1, Task::go_lazy);
            task.as_cpu(2, Task::go_lazy);
        })
        .cpu(|task| task.free_empty_tables(0))
        .cpu(|task| {
            if !task.leave_lazy() {
                task.run_in(0);
            }
            uses(task);
        })
}

fn reclaimed() -> Scenario {
    scenario(
        "emptied-reclaim",
        "a page table goes when the last page under it is reclaimed, while that goes on",
    )
    .cpus(3)
    .config(|config| config.scan_batch = 1)
    .shows(&[Rule::EmptiedIsAlone])
    .before(|task| {
        task.create_file(8);
        let space = task.create_space();
        task.map_as(space, AT, 1, Backing::File { file: task.file(0), offset: 0 }, Prot::ReadWrite);
        for cpu in [1, 0] {
            task.as_cpu(cpu, |task| {
                task.run_in(space);
                task.promise(task.peek(space, AT).is_ok(), "it is mapped");
            });
        }
        task.settle();
        make_idle(task);
    })
    .after(give_all_back)
    .cpu(|task| task.free_empty_tables(0))
    .cpu(|_| ())
    .cpu(reclaims)
}

fn dropped() -> Scenario {
    scenario(
        "drop-tables",
        "a CPU gives up all that lies under two page tables, and they go; another uses it",
    )
    .config(|config| config.flush_ceiling = 1)
    .shows(&[Rule::FlushBeforeDropReturns])
    .before(|task| own(task, 2))
    .cpu(|task| {
        task.drop_pages(0, AT, 4);
        task.forget(0, AT, 4);
        let _ = task.peek(0, FIRST);
    })
    .cpu(|task| {
        let _ = task.peek(0, FIRST);
        let _ = task.peek(0, SECOND);
    })
}

fn unmapped() -> Scenario {
    scenario(
        "emptied-unmap",
        "empty page tables go while another CPU unmaps what is mapped there, and maps it anew",
    )
    .shows(&[Rule::TablesAfterFlush])
    .before(|task| {
        showing(task, 2);
        for page in AT..AT + 4 {
            task.drop_pages(0, page, 1);
        }
    })
    .cpu(|task| task.free_empty_tables(0))
    .cpu(|task| {
        task.unmap(0, SECOND, 2);
        task.map(0, SECOND, 2);
        task.promise(task.write(0, SECOND).is_ok(), "it is mapped");
    })
}

fn wanted() -> Scenario {
    scenario(
        "emptied-stall",
        "a CPU wants a frame, and all memory is gone but for empty page tables that another CPU may walk",
    )
    .shows(&[Rule::TablesBeforeVictim])
    .before(|task| {
        emptied(task, 2);
        task.unload();
        task.take_all_memory();
    })
    .after(give_all_back)
    .cpu(|task| task.promise(task.reclaim(), "a table goes for it"))
    .cpu(|task| {
        task.go_lazy();
        task.leave_lazy();
        task.go_lazy();
    })
}
