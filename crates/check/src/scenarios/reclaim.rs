//! Reclaim against everything that touches the same page.

use quietmm::Rule;

use crate::scenario::Scenario;
use crate::task::{Task, range};

/// The page that everything is about.
const AT: u64 = 0x11f8;

pub(super) fn all() -> Vec<Scenario> {
    vec![unmap()]
}

/// A file's page in one space; every CPU but the last runs there. No memory is free.
fn shared_space(task: &Task<'_>) {
    let (space, _file) = (task.create_space(), task.create_file(4));
    let backing = quietmm::Backing::File { file: task.file(0), offset: 0 };
    task.map_as(space, AT, 2, backing, quietmm::Prot::ReadWrite);
    for cpu in 0..2 {
        task.as_cpu(cpu, |task| {
            task.run_in(space);
            let _ = task.peek(space, AT);
            let _ = task.peek(space, AT + 1);
        });
    }
    task.mm().drain_lru_batch();
    task.take_all_memory();
}

fn unmap() -> Scenario {
    Scenario::new("reclaim-unmap", "reclaim takes a page that another CPU unmaps, and a third uses", "linux")
        .cpus(3)
        .watch(AT, 2)
        .shows(&[Rule::DeferredBeforeUnmapReturns, Rule::FlushBeforeFree])
        .repeats(&[1])
        .before(shared_space)
        .cpu(|task| {
            task.must("unmap", |mm| mm.unmap(task.space(0), range(AT, 2)));
            task.forget(0, AT, 2);
        })
        .cpu(|task| {
            let _ = task.peek(0, AT);
        })
        .cpu(|task| {
            task.reclaim();
            task.reclaim();
        })
        .after(|task| task.give_back(usize::MAX))
}
