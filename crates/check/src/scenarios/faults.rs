//! Faults that let go of their space's VMAs while a device reads, against whoever changes what they had looked at.

use quietmm::{Backing, Prot, Rule};

use super::before::{AT, backing, small};
use crate::scenario::Scenario;
use crate::task::Task;

pub(super) fn all() -> Vec<Scenario> {
    vec![remap(), end()]
}

/// CPUs 0 and 1 run in a space that shows one page of a file, which is not in memory, and in which CPU 0 has written.
fn on_disk(name: &'static str, about: &'static str) -> Scenario {
    Scenario::new(name, about, "linux").machine(small).watch(AT, 1).before(|task| {
        let (space, file) = (task.create_space(), task.create_file(1));
        task.map_as(space, AT, 1, backing(task, 0), Prot::ReadWrite);
        for cpu in [1, 0] {
            task.as_cpu(cpu, |task| task.run_in(space));
        }
        task.promise(task.write(space, AT).is_ok(), "it is mapped");
        task.write_back(file);
        task.drop_pages(space, AT, 1);
        task.forget(space, AT, 1);
        task.settle();
        task.take_all_memory();
        let id = task.file(file);
        while task.mm().file(id).cached_pages() != Ok(0) {
            task.promise(task.reclaim(), "nobody holds it");
        }
        task.give_back(8);
    })
}

fn unmaps(task: &Task<'_>) {
    task.unmap(0, AT, 1);
}

fn remap() -> Scenario {
    on_disk("fault-remap", "a page is read for a fault while another CPU maps another file at its address")
        .shows(&[Rule::RetryLooksAnew])
        .cpu(|task| {
            let _ = task.peek(0, AT);
        })
        .cpu(|task| {
            unmaps(task);
            let other = task.create_file(1);
            let backing = Backing::File { file: task.file(other), offset: 0 };
            task.map_as(0, AT, 1, backing, Prot::ReadWrite);
        })
        .after(|task| {
            task.promise(task.peek(0, AT) == Ok(0), "the other file has a hole there");
            task.give_back(usize::MAX);
        })
}

fn end() -> Scenario {
    on_disk("fault-end", "a page is read for a fault, or cannot be, while another CPU ends its file")
        .machine(|setup| setup.devices_fail = true)
        .cpu(|task| {
            let _ = task.peek(0, AT);
        })
        .cpu(|task| {
            unmaps(task);
            let id = task.file(0);
            task.must("destroy_file", |mm| mm.file(id).destroy());
        })
        .after(|task| task.give_back(usize::MAX))
}
