//! Read faults that map neighbours too, and read ahead, against what takes pages away. `AT` and `FIRST` are one window.

use quietmm::{Advice, Prot, Rule};

use super::before::{AT, FIRST, backing, crowded, make_idle, own, showing, small};
use super::reclaim::reclaims;
use crate::scenario::Scenario;
use crate::task::swap::{DEVICE, SLOTS, swapping};
use crate::task::{Task, range};

pub(super) fn all() -> Vec<Scenario> {
    vec![
        cut(),
        hole(),
        reclaim("around-reclaim", "linux"),
        reclaim("around-quiet", "quiet"),
        unmap(),
        ahead(),
        lock(),
        lazy(),
    ]
}

/// Of a file, its page that is mapped at `FIRST`.
const PAGE: u64 = FIRST - AT;

/// Four pages of a file in a space in which two CPUs run; of the first two no entry is left, and the file has both in memory.
fn around(name: &'static str, about: &'static str, policy: &str) -> Scenario {
    Scenario::new(name, about, policy)
        .machine(small)
        .config(|config| (config.fault_around, config.scan_batch) = (2, 1))
        .watch(AT, 4)
        .before(|task| {
            showing(task, 2);
            task.drop_pages(0, AT, 2);
        })
}

fn cut() -> Scenario {
    around("around-cut", "a fault maps the page beside its own, which is cut off the file meanwhile", "linux")
        .shows(&[Rule::AroundLooksAtPages])
        .cpu(|task| {
            let _ = task.peek(0, AT);
        })
        .cpu(|task| {
            task.set_file_len(0, PAGE);
            task.set_file_len(0, 8);
        })
        .after(|task| {
            task.write_file(0, PAGE, 7);
            task.promise(task.peek(0, FIRST) == Ok(7), "a program sees what is written to the file");
        })
}

fn hole() -> Scenario {
    around("around-hole", "a fault maps the page beside its own, which becomes a hole meanwhile", "quiet")
        .shows(&[Rule::AroundLooksAtPages])
        .cpu(|task| {
            let _ = task.peek(0, AT);
        })
        .cpu(|task| task.punch_hole(0, PAGE, 1))
        .after(|task| {
            task.write_file(0, PAGE, 7);
            task.promise(task.peek(0, FIRST) == Ok(7), "a program sees what is written to the file");
        })
}

fn reclaim(name: &'static str, policy: &'static str) -> Scenario {
    around(name, "reclaim takes pages that a fault on the one beside them maps", policy)
        .shows(&[Rule::FreezeBeforeFree])
        .cpus(3)
        .ticks(1)
        .config(|config| config.sweep_deadline = 3_000)
        .before(|task| {
            showing(task, 2);
            task.drop_pages(0, AT, 2);
            crowded(task, 2);
        })
        .cpu(|task| {
            let _ = task.peek(0, AT);
            let _ = task.peek(0, FIRST);
        })
        .cpu(|task| {
            let _ = task.peek(0, FIRST);
        })
        .cpu(reclaims)
        .after(|task| task.give_back(usize::MAX))
}

fn unmap() -> Scenario {
    around(
        "around-unmap",
        "a page is unmapped, and another one mapped there, while a fault on the one beside it maps it",
        "quiet",
    )
    .shows(&[Rule::FlushBeforeUnmapReturns])
    .cpu(|task| {
        let _ = task.peek(0, AT);
        let _ = task.peek(0, FIRST);
    })
    .cpu(|task| {
        task.unmap(0, FIRST, 1);
        task.map_as(0, FIRST, 1, backing(task, 6), Prot::ReadWrite);
    })
    .after(|task| {
        task.write_file(0, 6, 7);
        task.promise(task.peek(0, FIRST) == Ok(7), "a program sees what is mapped there");
    })
}

fn ahead() -> Scenario {
    around("ahead-cut", "faults read a file ahead, which becomes shorter and longer meanwhile", "linux")
        .shows(&[Rule::CutPagesAreUnmapped])
        .config(|config| config.read_ahead = 2)
        .before(|task| {
            task.create_space();
            task.create_file(8);
            task.map_as(0, AT, 4, backing(task, 0), Prot::ReadWrite);
            (0..2).for_each(|cpu| task.as_cpu(cpu, |task| task.run_in(0)));
        })
        .cpu(|task| {
            let _ = task.peek(0, AT);
            let _ = task.peek(0, FIRST);
        })
        .cpu(|task| {
            task.set_file_len(0, PAGE);
            task.set_file_len(0, 8);
        })
        .after(|task| {
            task.write_file(0, PAGE, 7);
            task.promise(task.peek(0, FIRST) == Ok(7), "a program sees what is written to the file");
        })
}

fn lock() -> Scenario {
    Scenario::new("lock-reclaim", "a range is locked while reclaim takes its pages", "linux")
        .machine(small)
        .config(|config| config.scan_batch = 1)
        .watch(AT, 4)
        .shows(&[Rule::LockedStays])
        .before(|task| {
            showing(task, 1);
            make_idle(task);
        })
        .cpu(|task| {
            let id = task.space(0);
            task.must("lock", |mm| mm.space(id).lock(range(AT, 2)));
            task.promise(resident(task) == 2, "what is locked is in memory");
        })
        .cpu(reclaims)
        .after(|task| {
            task.promise(resident(task) == 2, "what is locked stays in memory");
            task.give_back(usize::MAX);
        })
}

/// Of the pages that are locked, those that are in memory.
fn resident(task: &Task<'_>) -> u64 {
    let id = task.space(0);
    task.must("residency", |mm| mm.space(id).residency(range(AT, 2), &mut [0; 2]))
}

fn lazy() -> Scenario {
    Scenario::new(
        "free-reclaim",
        "reclaim drops a page whose content was not wanted, which a CPU writes again",
        "linux",
    )
    .cpus(3)
    .machine(small)
    .config(|config| {
        swapping(config);
        config.scan_batch = 1;
    })
    .watch(AT, 4)
    .shows(&[Rule::FlushBeforeDropReturns])
    .before(|task| {
        task.swap_on(DEVICE, SLOTS);
        own(task, 2);
        task.settle();
        task.take_all_memory();
    })
    .cpu(|task| {
        task.forget(0, AT, 1);
        task.advise(0, AT, 1, Advice::Free);
        let _ = task.write(0, AT);
    })
    .cpu(|task| {
        let _ = task.read(0, AT);
    })
    .cpu(reclaims)
    .after(|task| task.give_back(usize::MAX))
}
