//! Pages that go to swap and come back, against who uses, unmaps and ends them, and devices that fail.

use quietmm::Rule;

use crate::scenario::Scenario;
use crate::task::{Task, range};
use crate::task_swap::{DEVICE, swapping};

/// The page that everything is about.
const AT: u64 = 0x11f8;

pub(super) fn all() -> Vec<Scenario> {
    vec![dirty(), clean(), unmap(), errors()]
}

/// Two pages in a space in which CPUs 1 and 2 run, which both have written to, and two that nobody has touched.
fn written(task: &Task<'_>) {
    task.swap_on(DEVICE);
    let space = task.create_space();
    task.map(space, AT, 4);
    for cpu in 1..3 {
        task.as_cpu(cpu, |task| {
            task.run_in(space);
            task.promise(task.write(space, AT).is_ok() && task.write(space, AT + 1).is_ok(), "there is memory");
        });
    }
}

/// The same; no memory is free.
fn in_memory(task: &Task<'_>) {
    written(task);
    task.settle();
    task.take_all_memory();
}

/// The same, and both pages are out.
fn out(task: &Task<'_>) {
    written(task);
    task.swap_out(0, AT, 2);
}

/// The same, and both pages are back, clean.
fn back(task: &Task<'_>) {
    out(task);
    task.give_back(2);
    for cpu in 1..3 {
        task.as_cpu(cpu, |task| {
            task.promise(task.peek(0, AT).is_ok() && task.peek(0, AT + 1).is_ok(), "there is memory");
        });
    }
    task.settle();
    task.take_all_memory();
}

/// Both are used, if there is memory for them.
fn use_both(task: &Task<'_>) {
    let _ = (task.read(0, AT), task.write(0, AT + 1));
}

/// Takes a frame by reclaim, which takes some more, and gives it back.
fn reclaim(task: &Task<'_>) {
    if task.reclaim() {
        task.give_back(1);
    }
}

/// No memory is free: CPU 0 reclaims, and CPUs 1 and 2 run in the space.
fn reclaimed(name: &'static str, about: &'static str, policy: &str) -> Scenario {
    Scenario::new(name, about, policy)
        .cpus(3)
        .watch(AT, 4)
        .config(swapping)
        .cpu(reclaim)
        .after(|task| task.give_back(usize::MAX))
}

fn dirty() -> Scenario {
    reclaimed("swap-dirty", "reclaim swaps pages out that two CPUs use and want back", "linux")
        .shows(&[Rule::SwapInLocks])
        .repeats(&[3, 34, 35])
        .before(in_memory)
        .cpu(use_both)
        .cpu(use_both)
}

fn clean() -> Scenario {
    reclaimed("swap-clean", "reclaim drops clean pages of the swap cache that two CPUs use and want back", "linux")
        .shows(&[Rule::CacheUntilFlush])
        .repeats(&[35])
        .before(back)
        .cpu(use_both)
        .cpu(use_both)
}

fn errors() -> Scenario {
    reclaimed("swap-errors", "a device fails now and then, while pages go out and are wanted back", "linux")
        .machine(|setup| setup.devices_fail = true)
        .shows(&[Rule::KeepWhatFailed])
        .repeats(&[34])
        .before(in_memory)
        .cpu(use_both)
        .cpu(use_both)
}

fn unmap() -> Scenario {
    Scenario::new("swap-unmap", "pages are read back while another CPU unmaps them", "linux")
        .cpus(3)
        .watch(AT, 4)
        .config(swapping)
        .shows(&[Rule::SlotHeldWhileRead])
        .repeats(&[34])
        .before(|task| {
            out(task);
            task.give_back(3);
        })
        .cpu(|_| ())
        .cpu(|task| {
            let _ = (task.peek(0, AT), task.peek(0, AT + 1));
        })
        .cpu(|task| {
            task.must("unmap", |mm| mm.unmap(task.space(0), range(AT, 2)));
            task.forget(0, AT, 2);
        })
        .after(|task| task.give_back(usize::MAX))
}
