//! Operations on ranges against programs that use them.

use quietmm::{Advice, PageNumber, Prot, Rule};

use super::before::{AT, FIRST, SECOND, TO, backing, own, small};
use crate::scenario::Scenario;
use crate::task::swap::{DEVICE, SLOTS, swapping};
use crate::task::{Task, range};

pub(super) fn all() -> Vec<Scenario> {
    vec![
        unmap_write(),
        unmap_fault(),
        unmap_unmap(),
        unmap_map(),
        unmap_entered(),
        enter_another(),
        protect_write(),
        protect_kernel(),
        protect_execute(),
        drop_write(),
        drop_drop(),
        drop_fault(),
        move_write(),
        migrate_write(),
        migrate_share(),
        migrate_copy(),
        migrate_free(),
        migrate_locked(),
        fork_write(),
        fork_unsure(),
        shoot_shoot(),
    ]
}

/// Two CPUs run in a space of their own pages.
fn two(name: &'static str, about: &'static str) -> Scenario {
    Scenario::new(name, about, "linux").machine(small).watch(AT, 4).before(|task| own(task, 2))
}

/// A program that uses both pages in the middle, if it may.
fn uses(task: &Task<'_>) {
    let _ = task.write(0, FIRST);
    let _ = task.read(0, SECOND);
}

fn unmap_write() -> Scenario {
    two("unmap-write", "a CPU unmaps what another writes to")
        .shows(&[Rule::FlushBeforeUnmapReturns, Rule::AcknowledgeAfterFlush, Rule::WaitForAcknowledgement])
        .repeats(&[1, 12, 13])
        .cpu(|task| task.unmap(0, FIRST, 2))
        .cpu(uses)
}

fn unmap_fault() -> Scenario {
    Scenario::new("unmap-fault", "a CPU unmaps what another touches for the first time", "linux")
        .machine(small)
        .watch(AT, 4)
        .shows(&[Rule::LookForVisibleReaders, Rule::LeavingIsUnmapped])
        .before(|task| {
            let space = task.create_space();
            task.map(space, AT, 8);
            for cpu in [1, 0] {
                task.as_cpu(cpu, |task| task.run_in(space));
            }
            // So many faults that those who come after share the VMAs without being counted.
            for page in AT + 4..AT + 8 {
                task.promise(task.write(space, page).is_ok(), "it is mapped");
            }
        })
        .cpu(|task| task.unmap(0, FIRST, 2))
        .cpu(uses)
}

fn unmap_unmap() -> Scenario {
    // Whoever unmaps lets go of the VMAs for the flush where another waits for them: so three.
    Scenario::new("unmap-unmap", "three CPUs unmap at the same time what all have cached", "linux")
        .cpus(3)
        .machine(small)
        .watch(AT, 4)
        .shows(&[Rule::WaitForWhoFlushes, Rule::FlushedIsWhatWasTaken])
        .before(|task| own(task, 3))
        .cpu(|task| task.unmap(0, FIRST, 1))
        .cpu(|task| task.unmap(0, SECOND, 1))
        .cpu(|task| task.unmap(0, AT, 1))
}

fn unmap_map() -> Scenario {
    let about = "a CPU unmaps all that lies under a table, and another maps something there and writes to it";
    Scenario::new("unmap-map", about, "linux")
        .machine(small)
        .watch(TO, 4)
        .shows(&[Rule::TablesAfterFlush])
        .before(|task| {
            let space = task.create_space();
            task.map(space, TO, 2);
            for cpu in [1, 0] {
                task.as_cpu(cpu, |task| {
                    task.run_in(space);
                    task.promise(task.write(space, TO).is_ok(), "it is mapped");
                });
            }
        })
        .cpu(|task| task.unmap(0, TO, 2))
        .cpu(|task| {
            task.map(0, TO + 2, 2);
            task.promise(task.write(0, TO + 2).is_ok(), "it is mapped");
            let _ = task.read(0, TO);
        })
}

fn unmap_entered() -> Scenario {
    let about = "a CPU unmaps a mapping in which a fault is that did not wait for who maps another";
    Scenario::new("unmap-entered", about, "linux")
        .cpus(3)
        .machine(small)
        .watch(AT, 4)
        .shows(&[Rule::WaitUntilInsideLeave])
        .before(|task| {
            let space = task.create_space();
            task.map(space, AT, 4);
            for cpu in [2, 1, 0] {
                task.as_cpu(cpu, |task| task.run_in(space));
            }
            // So that CPU 1 remembers the mapping.
            task.as_cpu(1, |task| task.promise(task.write(space, AT + 3).is_ok(), "it is mapped"));
        })
        .cpu(|task| task.unmap(0, AT, 4))
        .cpu(uses)
        .cpu(|task| task.map(0, TO, 1))
}

fn enter_another() -> Scenario {
    let about = "a CPU that remembers a mapping touches where that was, while another maps; its slot is another mapping's";
    Scenario::new("enter-another", about, "linux")
        .machine(small)
        .watch(AT, 4)
        .shows(&[Rule::LookAgainInside])
        .before(|task| {
            let space = task.create_space();
            task.map(space, AT, 4);
            for cpu in [1, 0] {
                task.as_cpu(cpu, |task| task.run_in(space));
            }
            task.as_cpu(1, |task| task.promise(task.write(space, AT + 3).is_ok(), "it is mapped"));
            task.unmap(space, AT, 4);
            task.map(space, TO, 1);
        })
        .cpu(|task| task.map(0, TO + 1, 1))
        .cpu(uses)
}

fn protect_write() -> Scenario {
    two("protect-write", "a CPU makes read-only, and then unreadable, what another writes to")
        .shows(&[Rule::FlushBeforeProtectReturns])
        .repeats(&[1])
        .cpu(|task| {
            task.protect(0, FIRST, 2, Prot::Read);
            task.protect(0, FIRST, 1, Prot::None);
        })
        .cpu(uses)
        .after(|task| task.protect(0, FIRST, 2, Prot::ReadWrite))
}

fn protect_execute() -> Scenario {
    two(
        "protect-execute",
        "a CPU makes code of what another writes to, and data of it again, while that executes it",
    )
    .shows(&[Rule::FlushBeforeProtectReturns])
    .repeats(&[1])
    .cpu(|task| {
        task.protect(0, FIRST, 2, Prot::ReadExecute);
        task.promise(task.execute(0, FIRST).is_ok(), "it is code");
        task.protect(0, FIRST, 2, Prot::ReadWrite);
        task.promise(task.execute(0, SECOND).is_err(), "it is data");
    })
    .cpu(|task| {
        let _ = task.execute(0, FIRST);
        let _ = task.write(0, FIRST);
        let _ = task.execute(0, SECOND);
    })
}

fn protect_kernel() -> Scenario {
    two("protect-kernel", "a CPU makes pages unreadable that the kernel reads for a program")
        .shows(&[Rule::FlushBeforeProtectReturns])
        .repeats(&[1])
        .cpu(|task| {
            task.protect(0, FIRST, 2, Prot::None);
            task.promise(task.kernel_peek(0, FIRST).is_err(), "nobody may read it, the kernel neither");
            task.unmap(0, SECOND, 1);
        })
        .cpu(|task| {
            let _ = task.write(0, FIRST);
            let _ = task.kernel_peek(0, FIRST);
            let _ = task.kernel_peek(0, SECOND);
        })
        .after(|task| task.protect(0, FIRST, 1, Prot::ReadWrite))
}

fn drop_write() -> Scenario {
    two("drop-write", "a CPU gives up what another writes to")
        .shows(&[Rule::FlushBeforeDropReturns])
        .repeats(&[1])
        .cpu(|task| {
            task.drop_pages(0, FIRST, 2);
            // Whatever the other writes from here on stays, but nobody knows what came before.
            task.forget(0, FIRST, 2);
        })
        .cpu(|task| {
            let _ = task.peek(0, SECOND);
            let _ = task.peek(0, FIRST);
        })
}

fn drop_drop() -> Scenario {
    two("drop-drop", "two CPUs give up the same pages, with the VMAs shared")
        .shows(&[Rule::ClaimWhatIsDropped])
        .cpu(|task| {
            task.drop_pages(0, FIRST, 2);
            task.forget(0, FIRST, 2);
        })
        .cpu(|task| {
            task.drop_pages(0, FIRST, 2);
            task.forget(0, FIRST, 2);
            let _ = task.peek(0, SECOND);
        })
}

fn drop_fault() -> Scenario {
    two("drop-fault", "a CPU gives up what another writes to, with the VMAs shared, and that one faults")
        .shows(&[Rule::FaultWaitsForDrop])
        .cpu(|task| {
            task.drop_pages(0, FIRST, 2);
            task.forget(0, FIRST, 2);
        })
        .cpu(|task| {
            let _ = task.write(0, FIRST);
            let _ = task.write(0, SECOND);
        })
}

fn move_write() -> Scenario {
    two("move-write", "a CPU moves what another writes to, at the old address and at the new one")
        .shows(&[Rule::FlushBeforeMove])
        .repeats(&[5])
        .cpu(|task| task.move_pages(0, FIRST, 2, TO))
        .cpu(|task| {
            uses(task);
            let _ = task.write(0, TO);
        })
}

fn migrate_write() -> Scenario {
    two("migrate-write", "a page that is written to, and one that is only read, move to another node")
        .machine(|setup| (setup.frames, setup.nodes) = (384, 2))
        .shows(&[Rule::FlushBeforeMigrate, Rule::FlushNarrowed])
        .repeats(&[6])
        .before(|task| {
            own(task, 2);
            task.protect(0, SECOND, 1, Prot::Read);
            for cpu in 0..2 {
                task.as_cpu(cpu, |task| task.promise(task.read(0, SECOND).is_ok(), "it may be read"));
            }
        })
        .cpu(|task| {
            // The other CPU is on node 1, and touched them first.
            task.promise(task.migrate(0, FIRST, 2, 0) == 2, "there is room");
            let _ = task.read(0, SECOND);
        })
        .cpu(uses)
}

fn migrate_share() -> Scenario {
    Scenario::new(
        "migrate-share",
        "a page of a file that two spaces show, and one writes to, moves to another node",
        "linux",
    )
    .machine(|setup| (setup.frames, setup.nodes) = (384, 2))
    .watch(AT, 4)
    .shows(&[Rule::FlushBeforeMigrate, Rule::FreezeBeforeFree])
    .repeats(&[6])
    .before(|task| {
        for cpu in 0..2 {
            let space = task.create_space();
            if cpu == 0 {
                task.create_file(4);
            }
            task.map_as(space, AT, 4, backing(task, 0), Prot::ReadWrite);
            task.as_cpu(cpu, |task| task.run_in(space));
            task.bring(space, AT);
        }
        task.as_cpu(1, |task| task.promise(task.write(1, AT).is_ok(), "it is mapped"));
        task.settle();
    })
    .cpu(|task| {
        // CPU 0 is on node 0, and touched it first.
        task.migrate_file(0, 1);
        let _ = task.read(0, AT);
    })
    .cpu(|task| {
        let _ = task.write(1, AT);
    })
}

fn reads(task: &Task<'_>) {
    task.promise(task.read_file(0, 0) == 7, "what was written to the file is there");
}

fn migrate_copy() -> Scenario {
    Scenario::new(
        "migrate-copy",
        "a page of a file that somebody reads by copy moves to another node, and is reclaimed there",
        "linux",
    )
    .machine(|setup| (setup.frames, setup.nodes) = (384, 2))
    .shows(&[Rule::ContentBeforeFound, Rule::MovedStaysDirty])
    .repeats(&[6])
    .before(|task| {
        task.create_file(4);
        task.as_cpu(1, |task| task.write_file(0, 0, 7));
        task.settle();
    })
    .cpu(|task| task.migrate_file(0, 0))
    .cpu(reads)
    .after(|task| {
        task.settle();
        task.take_all_memory();
        while task.mm().file(task.file(0)).cached_pages() != Ok(0) {
            task.promise(task.reclaim(), "there is a page to be reclaimed");
        }
        task.give_back(8);
        task.as_cpu(1, reads);
    })
}

fn migrate_free() -> Scenario {
    two(
        "migrate-free",
        "a page moves to another node, while its space becomes the only one and says that it is not wanted",
    )
    .machine(|setup| (setup.frames, setup.nodes) = (384, 2))
    .config(swapping)
    .repeats(&[6])
    .before(|task| {
        task.swap_on(DEVICE, SLOTS);
        own(task, 2);
        task.fork(0);
        task.settle();
    })
    .cpu(|task| task.migrate_all(0, FIRST, 2, 0))
    .cpu(|task| {
        task.promise(task.end(1).is_ok(), "nobody runs there");
        task.forget(0, FIRST, 2);
        task.advise(0, FIRST, 2, Advice::Free);
    })
    .after(|task| {
        // The page is wanted again, and goes out with what is written now.
        task.promise(task.write(0, FIRST).is_ok(), "it is mapped");
        task.settle();
        task.advise(0, FIRST, 1, Advice::PageOut);
    })
}

fn migrate_locked() -> Scenario {
    two(
        "migrate-locked",
        "a locked page moves by way of a child, while its own space moves pages there, and while another that is locked ends",
    )
    .cpus(3)
    .machine(|setup| (setup.frames, setup.nodes) = (384, 2))
    .config(swapping)
    .before(|task| {
        task.swap_on(DEVICE, SLOTS);
        own(task, 2);
        let id = task.space(0);
        task.must("lock", |mm| mm.space(id).lock(range(FIRST, 1)));
        // What moves is locked in the first child, too, and not in the second.
        for child in [task.fork(0), task.fork(0)] {
            task.inherit(0, child);
        }
        let child = task.space(1);
        task.must("lock", |mm| mm.space(child).lock_on_fault(range(FIRST, 1)));
        task.settle();
    })
    .cpu(|task| _ = task.migrate(0, FIRST, 1, 1))
    .cpu(|task| task.migrate_all(2, FIRST, 1, 0))
    .cpu(|task| {
        let child = task.space(1);
        task.must("destroy_space", |mm| mm.space(child).destroy());
        task.forget(1, AT, 4);
    })
    .after(|task| {
        let id = task.space(0);
        let entry = task.must("lookup", |mm| mm.space(id).lookup(PageNumber(FIRST)));
        task.promise(entry.is_present(), "what is locked stays in memory");
    })
}

fn fork_write() -> Scenario {
    two("fork-write", "a space is forked while its other CPU writes, and both go on")
        .shows(&[Rule::FlushBeforeForkReturns, Rule::FlushBeforeCopyMaps])
        .repeats(&[1, 37])
        .cpu(|task| {
            task.fork(0);
            let _ = task.read(0, FIRST);
            let _ = task.write(0, SECOND);
        })
        .cpu(uses)
}

fn fork_unsure() -> Scenario {
    let mut same = fork_write();
    (same.name, same.about) = ("fork-unsure", "the same where a clean entry lets a CPU write unseen");
    same.config.policy = quietmm::Policy::parse("vanilla").expect("a bundle");
    same.machine(|setup| setup.guarantees = false).before(|task| {
        own(task, 1);
        // Cached and writable, and clean as far as CPU 1 knows.
        task.as_cpu(1, |task| {
            task.run_in(0);
            (AT..AT + 4).for_each(|page| task.promise(task.peek(0, page).is_ok(), "it is mapped"));
        });
    })
}

fn shoot_shoot() -> Scenario {
    two("shoot-shoot", "two CPUs flush each other, with interrupts off")
        .shows(&[Rule::ServeWhileWaiting])
        .repeats(&[14])
        .cpu(|task| task.deaf(|| task.flush(0)))
        .cpu(|task| task.deaf(|| task.flush(0)))
}
