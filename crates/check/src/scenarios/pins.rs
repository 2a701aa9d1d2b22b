//! Devices that use pages of programs, against whoever would take these away, move, copy or cut them.

use quietmm::{Rule, UserAccess};

use super::before::{AT, FIRST, SECOND, crowded, own, showing, small};
use crate::scenario::Scenario;
use crate::task::Task;
use crate::task::swap::{DEVICE, SLOTS, swapping};

pub(super) fn all() -> Vec<Scenario> {
    vec![reclaim(), fork(), migrate(), unmap(), cut(), written_back()]
}

/// Of a file, its page that is mapped at `FIRST`.
const PAGE: u64 = FIRST - AT;

/// Two CPUs run in a space of their own pages.
fn two(name: &'static str, about: &'static str) -> Scenario {
    Scenario::new(name, about, "linux").machine(small).watch(AT, 4).before(|task| own(task, 2))
}

/// A device writes to a page that a program uses, too.
fn device(task: &Task<'_>) {
    let pins = task.pin(0, FIRST, UserAccess::Write);
    task.both_see(&pins, 0, FIRST);
    task.unpin(pins);
}

fn reclaim() -> Scenario {
    two("pin-reclaim", "a page is pinned and used while it is reclaimed, and then its space is forked")
        .shows(&[Rule::PinnedIsMapped])
        .config(|config| {
            swapping(config);
            config.scan_batch = 2;
        })
        .before(|task| {
            task.swap_on(DEVICE, SLOTS);
            own(task, 2);
            task.settle();
            task.take_all_memory();
        })
        .cpu(|task| {
            let reclaimed = task.reclaim();
            task.give_back(usize::MAX);
            task.promise(reclaimed, "not all pages are pinned");
            task.fork(0);
        })
        .cpu(device)
}

fn fork() -> Scenario {
    two("pin-fork", "pages are pinned and used while their space is forked")
        .shows(&[Rule::ForkCopiesPinned, Rule::PinOwnPage])
        .cpu(|task| {
            let child = task.fork(0);
            let _ = task.read(0, FIRST);
            task.run_in(child);
            task.promise(task.peek(child, FIRST).is_ok(), "the child has a copy");
        })
        .cpu(|task| {
            device(task);
            let pins = task.pin(0, SECOND, UserAccess::Read);
            task.both_see(&pins, 0, SECOND);
            task.unpin(pins);
        })
}

fn migrate() -> Scenario {
    two("pin-migrate", "a page is pinned and used while it is to move to another node")
        .machine(|setup| (setup.frames, setup.nodes) = (384, 2))
        .shows(&[Rule::PinnedIsMapped])
        .cpu(|task| {
            task.migrate(0, FIRST, 2, 0);
        })
        .cpu(device)
}

fn unmap() -> Scenario {
    two("pin-unmap", "a device goes on to use pages that are unmapped, and then their space ends")
        .before(|task| {
            own(task, 2);
            // A device writes there.
            task.forget(0, FIRST, 2);
            task.world
                .pins
                .borrow_mut()
                .extend([FIRST, SECOND].map(|page| task.pin(0, page, UserAccess::Write)));
        })
        .cpu(|task| {
            task.unmap(0, FIRST, 1);
            task.unload();
            let _ = task.end(0);
        })
        .cpu(|task| {
            task.unload();
            while let Some(pins) = { task.world.pins.borrow_mut().pop() } {
                let value = task.device_writes(&pins);
                task.promise(task.device_reads(&pins) == value, "the frame is nobody else's");
                task.unpin(pins);
            }
        })
}

fn cut() -> Scenario {
    Scenario::new(
        "pin-cut",
        "a device is through with a page that was cut off its file, while reclaim looks at it",
        "linux",
    )
    .machine(small)
    .watch(AT, 4)
    .shows(&[Rule::CutStaysClean])
    .before(|task| {
        showing(task, 2);
        task.world.pins.borrow_mut().push(task.pin(0, FIRST, UserAccess::Write));
        task.set_file_len(0, PAGE);
        task.set_file_len(0, 8);
        crowded(task, 2);
    })
    .cpu(|task| task.reclaim_one())
    .cpu(|task| {
        for pins in task.world.pins.take() {
            task.device_writes(&pins);
            task.unpin(pins);
        }
    })
    .after(|task| {
        task.give_back(usize::MAX);
        task.as_cpu(1, |task| task.promise(task.peek(0, FIRST) == Ok(0), "what was cut off is not there"));
    })
}

fn written_back() -> Scenario {
    Scenario::new("pin-writeback", "a page of a file is written back while a device writes to it", "linux")
        .machine(small)
        .watch(AT, 4)
        .shows(&[Rule::DirtyBeforeUnpin])
        .before(|task| showing(task, 2))
        .cpu(|task| {
            task.write_back(0);
        })
        .cpu(|task| {
            let pins = task.pin(0, FIRST, UserAccess::Write);
            task.world.numbers[0].set(task.device_writes(&pins));
            task.unpin(pins);
        })
        .after(|task| {
            // Nothing of it is in memory any more.
            task.write_back(0);
            task.settle();
            task.take_all_memory();
            while task.reclaim() {}
            task.give_back(usize::MAX);
            let written = task.world.numbers[0].get();
            task.as_cpu(1, |task| {
                task.promise(task.peek(0, FIRST) == Ok(written), "the device has what was written")
            });
        })
}
