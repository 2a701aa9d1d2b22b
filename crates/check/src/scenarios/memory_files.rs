//! Pages that programs share in a memory file, which go to swap and come back, against whoever uses them or cuts the file.

use quietmm::{Backing, Prot, Rule};

use super::before::small;
use crate::scenario::Scenario;
use crate::task::Task;
use crate::task::swap::{DEVICE, SLOTS, swapping};

/// Where the file is mapped.
const AT: u64 = 0x11f8;
/// Its pages.
const PAGES: u64 = 4;

pub(super) fn all() -> Vec<Scenario> {
    vec![swap(), cut()]
}

/// Two spaces show a memory file, in which CPUs 1 and 2 run; both have written to all of its pages.
fn written(task: &Task<'_>) {
    task.swap_on(DEVICE, SLOTS);
    let file = task.create_memory_file(PAGES);
    for cpu in 1..3 {
        let space = task.create_space();
        let shown = Backing::File { file: task.file(file), offset: 0 };
        task.map_as(space, AT, PAGES, shown, Prot::ReadWrite);
        task.as_cpu(cpu, |task| {
            task.run_in(space);
            let all = (AT..AT + PAGES).all(|page| task.write(space, page).is_ok());
            task.promise(all, "there is memory");
        });
    }
}

/// The same, and all pages are out.
fn out(task: &Task<'_>) {
    written(task);
    task.swap_file_out(0, PAGES);
}

fn shared(name: &'static str, about: &'static str) -> Scenario {
    Scenario::new(name, about, "linux").cpus(3).machine(small).watch(AT, PAGES).config(|config| {
        swapping(config);
        config.scan_batch = 2;
    })
}

/// Two pages are used, for which there is memory from here on.
fn use_two(task: &Task<'_>, space: usize) {
    task.give_back(1);
    let _ = (task.read(space, AT), task.write(space, AT + 1));
}

fn swap() -> Scenario {
    shared(
        "shared-swap",
        "reclaim swaps pages out that two spaces share, and programs of both use and want back",
    )
    .shows(&[Rule::BackIsDirty])
    .before(out)
    .cpu(|task| {
        if task.reclaim() {
            task.give_back(1);
        }
    })
    .cpu(|task| use_two(task, 0))
    .cpu(|task| use_two(task, 1))
    .after(|task| {
        // What is left in memory goes, so that what swap has is read again.
        task.settle();
        task.take_all_memory();
        while task.reclaim() {}
        task.give_back(usize::MAX);
    })
}

fn cut() -> Scenario {
    shared(
        "shared-swap-cut",
        "a memory file whose pages are in swap is emptied and made longer again, while programs of two spaces fault on it",
    )
    .shows(&[Rule::BackInsideFile])
    .before(|task| {
        out(task);
        task.give_back(usize::MAX);
        (0..2).for_each(|space| task.forget(space, AT, PAGES));
    })
    .cpu(|task| {
        task.set_file_len(0, 1);
        task.set_file_len(0, PAGES);
    })
    .cpu(|task| {
        let _ = task.peek(0, AT + 1);
    })
    .cpu(|task| {
        let _ = task.peek(1, AT + 1);
    })
    .after(|task| {
        for cpu in 1..3 {
            task.as_cpu(cpu, |task| {
                let zeros = task.peek(usize::from(cpu) - 1, AT + 1) == Ok(0);
                task.promise(zeros, "what the file has lost is not there");
            });
        }
    })
}
