//! Pages that go to swap and come back, against whoever uses, unmaps and ends them, and devices that fail.

use std::ops::Range;

use quietmm::{Advice, Rule};

use crate::scenario::Scenario;
use crate::task::swap::{DEVICE, SLOTS, swapping};
use crate::task::{Task, range};

/// The page that everything is about.
const AT: u64 = 0x11f8;
/// Pages that are mapped there. Reclaim takes two at a time.
const PAGES: u64 = 4;

pub(super) fn all() -> Vec<Scenario> {
    vec![
        dirty(),
        clean(),
        fork(),
        errors(),
        unmap(),
        exit(),
        off(),
        other(),
        back_while_dropped(),
        unmapped_while_dropped(),
        unreadable(),
        family(),
    ]
}

/// Four pages in a space in which CPUs 1 and 2 run, both of which have written to them.
fn written(task: &Task<'_>) {
    written_by(task, 1..3);
}

/// The same of other CPUs.
fn written_by(task: &Task<'_>, cpus: Range<u16>) {
    task.swap_on(DEVICE, SLOTS);
    let space = task.create_space();
    task.map(space, AT, PAGES);
    for cpu in cpus {
        task.as_cpu(cpu, |task| {
            task.run_in(space);
            let all = (AT..AT + PAGES).all(|page| task.write(space, page).is_ok());
            task.promise(all, "there is memory");
        });
    }
}

/// The same; no memory is free.
fn in_memory(task: &Task<'_>) {
    written(task);
    task.settle();
    task.take_all_memory();
}

/// The same, and all pages are out.
fn out(task: &Task<'_>) {
    written(task);
    task.swap_out(0, AT, PAGES);
}

/// The same, and all pages are back, clean.
fn back(task: &Task<'_>) {
    out(task);
    task.give_back(PAGES as usize);
    for cpu in 1..3 {
        task.as_cpu(cpu, |task| {
            let all = (AT..AT + PAGES).all(|page| task.peek(0, page).is_ok());
            task.promise(all, "there is memory");
        });
    }
    task.settle();
    task.take_all_memory();
}

/// Two pages are used, for which there is memory from here on.
fn use_two(task: &Task<'_>) {
    task.give_back(1);
    let _ = (task.read(0, AT), task.write(0, AT + 1));
}

/// Takes a frame by reclaim, which takes some more, and gives it back.
fn reclaim(task: &Task<'_>) {
    if task.reclaim() {
        task.give_back(1);
    }
}

/// What is left in memory goes out, and what nobody wants is freed.
fn squeeze(task: &Task<'_>) {
    task.settle();
    task.take_all_memory();
    while task.reclaim() {}
    task.give_back(usize::MAX);
}

/// No memory is free: CPU 0 reclaims, and CPUs 1 and 2 run in the space.
fn reclaimed(name: &'static str, about: &'static str, policy: &str) -> Scenario {
    Scenario::new(name, about, policy)
        .cpus(3)
        .watch(AT, PAGES)
        .config(|config| {
            swapping(config);
            config.scan_batch = 2;
        })
        .cpu(reclaim)
        .after(|task| task.give_back(usize::MAX))
}

fn dirty() -> Scenario {
    reclaimed("swap-dirty", "reclaim swaps pages out that two CPUs use and want back", "linux")
        .shows(&[Rule::SwapInLocks])
        .repeats(&[3, 34, 35])
        .before(in_memory)
        .cpu(use_two)
        .cpu(use_two)
}

fn clean() -> Scenario {
    reclaimed(
        "swap-clean",
        "reclaim drops clean pages of the swap cache that two CPUs use and want back",
        "linux",
    )
    .shows(&[Rule::CacheUntilFlush])
    .repeats(&[35])
    .before(back)
    .cpu(use_two)
    .cpu(use_two)
}

fn errors() -> Scenario {
    reclaimed("swap-errors", "a device fails now and then, while pages go out and are wanted back", "linux")
        .machine(|setup| setup.devices_fail = true)
        .shows(&[Rule::KeepWhatFailed])
        .repeats(&[34])
        .before(in_memory)
        .cpu(use_two)
        .cpu(use_two)
}

fn fork() -> Scenario {
    reclaimed("swap-fork", "reclaim swaps pages out of a space that is forked, and used", "linux")
        .shows(&[Rule::FlushBeforeIo])
        .repeats(&[3, 35])
        .before(in_memory)
        .cpu(|task| {
            task.give_back(8);
            let parent = task.space(0);
            let child = task.must("fork", |mm| mm.space(parent).fork());
            task.world.spaces.borrow_mut().push(child);
            task.inherit(0, 1);
        })
        .cpu(|task| {
            let _ = (task.read(0, AT), task.read(0, AT + 1));
        })
}

fn unmap() -> Scenario {
    Scenario::new("swap-unmap", "pages are read back while another CPU unmaps them", "linux")
        .cpus(3)
        .watch(AT, PAGES)
        .config(swapping)
        .shows(&[Rule::SlotHeldWhileRead])
        .repeats(&[34])
        .before(|task| {
            out(task);
            task.give_back(PAGES as usize);
        })
        .cpu(|_| ())
        .cpu(|task| {
            let _ = (task.peek(0, AT), task.peek(0, AT + 1));
        })
        .cpu(|task| {
            task.must("unmap", |mm| mm.space(task.space(0)).unmap(range(AT, 2)));
            task.forget(0, AT, 2);
        })
        .after(squeeze)
}

fn exit() -> Scenario {
    Scenario::new("swap-exit", "a page is read back, with those beside it of a space that ends", "linux")
        .cpus(3)
        .watch(AT, PAGES)
        .config(swapping)
        .shows(&[Rule::SlotHeldWhileRead])
        .repeats(&[34])
        .before(|task| {
            task.swap_on(DEVICE, SLOTS);
            for cpu in 1..3 {
                let n = task.create_space();
                task.map(n, AT, PAGES);
                task.as_cpu(cpu, |task| {
                    task.run_in(n);
                    task.promise(task.write(n, AT).is_ok(), "there is memory");
                });
            }
            task.as_cpu(2, |task| task.unload());
            (0..2).for_each(|n| task.swap_out(n, AT, 1));
            task.give_back(4);
        })
        .cpu(|_| ())
        .cpu(|task| {
            let _ = task.read(0, AT);
        })
        .cpu(|task| {
            let space = task.space(1);
            task.must("destroy_space", |mm| mm.space(space).destroy());
            task.forget(1, AT, PAGES);
        })
        .after(squeeze)
}

fn off() -> Scenario {
    Scenario::new("swap-off", "a device goes off while two CPUs use what is on it", "linux")
        .cpus(3)
        .watch(AT, PAGES)
        .config(swapping)
        .repeats(&[34])
        .before(|task| {
            out(task);
            task.give_back(8);
        })
        .cpu(|task| task.promise(task.swap_off(DEVICE).is_ok(), "all pages come back"))
        .cpu(|task| {
            let _ = (task.read(0, AT), task.write(0, AT + 1));
        })
        .cpu(|task| {
            task.must("unmap", |mm| mm.space(task.space(0)).unmap(range(AT + 2, 1)));
            task.forget(0, AT + 2, 1);
        })
        .after(|task| task.give_back(usize::MAX))
}

fn other() -> Scenario {
    Scenario::new(
        "swap-other",
        "pages go out while their device goes off, and another one comes in its place",
        "linux",
    )
    .watch(AT, PAGES)
    .config(swapping)
    .before(|task| {
        task.swap_on(DEVICE + 1, SLOTS);
        // A CPU turns to the second one first.
        written_by(task, 0..1);
        task.swap_on(DEVICE + 2, SLOTS);
        task.settle();
    })
    .cpu(|task| task.advise(0, AT, 2, Advice::PageOut))
    .cpu(|task| {
        task.promise(task.swap_off(DEVICE).is_ok(), "all pages come back");
        // Its slots have other numbers: where the one was there is no room for it.
        task.swap_on(DEVICE + 3, 2 * SLOTS);
    })
}

fn back_while_dropped() -> Scenario {
    Scenario::new("swap-drop", "pages that are out are dropped while another CPU wants them back", "linux")
        .cpus(3)
        .watch(AT, PAGES)
        .config(swapping)
        .before(|task| {
            written_by(task, 0..2);
            task.swap_out(0, AT, PAGES);
            task.give_back(8);
        })
        .cpu(|task| {
            task.drop_pages(0, AT, 2);
            task.forget(0, AT, 2);
            task.promise(task.peek(0, AT) == Ok(0), "what was written is dropped");
        })
        .cpu(|task| {
            let _ = (task.peek(0, AT), task.peek(0, AT + 1));
        })
        .after(squeeze)
}

fn unmapped_while_dropped() -> Scenario {
    Scenario::new(
        "swap-drop-unmap",
        "pages of which one is out are dropped while another CPU unmaps the last of them",
        "linux",
    )
    .shows(&[Rule::BegunDropEnds])
    .watch(AT, PAGES)
    .config(swapping)
    .before(|task| {
        written_by(task, 0..2);
        task.advise(0, AT + 1, 1, Advice::PageOut);
    })
    .cpu(|task| {
        let done = task.call("advise", |mm| mm.space(task.space(0)).advise(range(AT, 3), Advice::Drop));
        task.forget(0, AT, 3);
        let dropped = task.peek(0, AT) == Ok(0);
        task.promise(dropped == done.is_ok(), "what is refused has changed nothing");
    })
    .cpu(|task| task.unmap(0, AT + 2, 1))
    .after(squeeze)
}

/// Mappings without a page, so many that there is more than one slab of `anon_vma`s.
const OTHERS: u64 = 40;
const OTHERS_AT: u64 = 0x1000;

fn family() -> Scenario {
    Scenario::new(
        "swap-family",
        "reclaim looks for who maps a page, and the memory of its `anon_vma` is given back meanwhile",
        "linux",
    )
    .watch(AT, PAGES)
    .config(|config| {
        swapping(config);
        config.scan_batch = 2;
    })
    .before(|task| {
        task.swap_on(DEVICE, SLOTS);
        let space = task.create_space();
        task.run_in(space);
        (0..OTHERS).for_each(|n| task.map(space, OTHERS_AT + 2 * n, 1));
        task.map(space, AT, PAGES);
        task.promise((AT..AT + PAGES).all(|page| task.write(space, page).is_ok()), "there is memory");
        // In the second slab there is only that `anon_vma`, and only one is in the first.
        (1..OTHERS).for_each(|n| task.unmap(space, OTHERS_AT + 2 * n, 1));
        task.settle();
        task.take_all_memory();
    })
    .cpu(reclaim)
    .cpu(|task| {
        task.unmap(0, OTHERS_AT, 1);
        task.unmap(0, AT, PAGES);
    })
    .after(|task| task.give_back(usize::MAX))
}

fn unreadable() -> Scenario {
    Scenario::new("swap-unreadable", "two CPUs want pages back, and the device fails now and then", "linux")
        .cpus(3)
        .machine(|setup| setup.devices_fail = true)
        .watch(AT, PAGES)
        .config(swapping)
        .shows(&[Rule::SwapInLocks])
        .repeats(&[34])
        .before(|task| {
            out(task);
            task.give_back(8);
        })
        .cpu(|_| ())
        .cpu(use_two)
        .cpu(use_two)
        .after(squeeze)
}
