//! Write-back, and write-out by reclaim, against programs that write and operations that move pages about.

use quietmm::{Prot, Rule};

use super::before::{AT, FIRST, SECOND, TO, backing, crowded, pcp, showing, showing_watched, small, written};
use crate::scenario::Scenario;
use crate::task::Task;

pub(super) fn all() -> Vec<Scenario> {
    vec![
        write(),
        begun(),
        unmap(),
        protect(),
        protect_unsure(),
        moving(),
        merging(),
        remap(),
        reclaim(),
        asked(),
        asked_moving(),
        few_dirty(),
    ]
}

/// CPUs 0 and 1 have written to pages of a file.
fn dirty(name: &'static str, about: &'static str) -> Scenario {
    Scenario::new(name, about, "linux").cpus(3).machine(small).watch(AT, 4).before(|task| written(task, 2))
}

/// Only the first of the two in the middle is dirty: no flush for another one hides what this one lacks.
fn one_dirty(task: &Task<'_>) {
    showing(task, 2);
    for cpu in 0..2 {
        task.as_cpu(cpu, |task| task.promise(task.write(0, FIRST).is_ok(), "it is mapped"));
    }
}

fn writes_back(task: &Task<'_>) {
    task.write_back(0);
}

fn write() -> Scenario {
    dirty(
        "writeback-write",
        "a file is written back while programs write to it, by old entries and by faults",
    )
    .shows(&[Rule::CleanProtects, Rule::WriteWaitsForIo])
    .repeats(&[36])
    .cpu(|task| {
        let _ = task.write(0, AT);
        let _ = task.write(0, FIRST);
    })
    .cpu(|task| {
        let _ = task.write(0, FIRST);
    })
    .cpu(writes_back)
}

fn begun() -> Scenario {
    dirty(
        "writeback-begun",
        "a page is written back that one space has written to, while a program of another begins to, by a clean entry",
    )
    .shows(&[Rule::FlushWritable])
    .before(|task| {
        showing(task, 2);
        task.as_cpu(1, |task| task.promise(task.write(0, FIRST).is_ok(), "it is mapped"));
        // Write-back looks at this one first, before it is known that there is something to write.
        let other = task.create_space();
        task.map_as(other, AT, 4, backing(task, 0), Prot::ReadWrite);
        task.run_in(other);
        task.promise(task.peek(other, FIRST).is_ok(), "it is mapped");
    })
    .cpu(|task| {
        let _ = task.write(1, FIRST);
    })
    .cpu(writes_back)
}

fn unmap() -> Scenario {
    dirty("writeback-unmap", "a page is written back while another CPU unmaps it, and a third writes to it")
        .shows(&[Rule::TakenIsMapped])
        .repeats(&[4])
        .before(one_dirty)
        .cpu(|task| {
            task.unmap(0, FIRST, 1);
            task.map_as(0, FIRST, 1, backing(task, 1), Prot::Read);
            let _ = task.peek(0, FIRST);
        })
        .cpu(|task| {
            let _ = task.write(0, FIRST);
        })
        .cpu(writes_back)
}

fn protect() -> Scenario {
    dirty(
        "writeback-protect",
        "a page is written back while another CPU makes it read-only, and a third writes to it",
    )
    .shows(&[Rule::CleanProtects])
    .repeats(&[36])
    .cpu(|task| task.protect(0, FIRST, 2, Prot::Read))
    .cpu(|task| {
        let _ = task.write(0, FIRST);
    })
    .cpu(writes_back)
    .after(|task| task.protect(0, FIRST, 2, Prot::ReadWrite))
}

fn protect_unsure() -> Scenario {
    let mut same = protect();
    (same.name, same.about) = ("writeback-unsure", "the same where a clean entry lets a CPU write unseen");
    same.config.policy = quietmm::Policy::parse("vanilla").expect("a bundle");
    same.machine(|setup| setup.guarantees = false).before(|task| {
        written(task, 2);
        task.write_back(0);
        // Cached, writable, and clean.
        for cpu in 0..2 {
            task.as_cpu(cpu, |task| task.promise(task.peek(0, FIRST).is_ok(), "it is mapped"));
        }
    })
}

fn moving() -> Scenario {
    dirty(
        "writeback-move",
        "a page is written back while another CPU moves it, and a third writes at both addresses",
    )
    .shows(&[Rule::WriteWaitsForIo, Rule::TakenIsMapped])
    .repeats(&[4, 36])
    .before(one_dirty)
    .cpu(|task| {
        task.move_pages(0, FIRST, 1, TO);
        let _ = task.write(0, TO);
    })
    .cpu(|task| {
        let _ = task.write(0, FIRST);
        let _ = task.write(0, TO);
    })
    .cpu(writes_back)
}

fn merging() -> Scenario {
    dirty(
        "writeback-merge",
        "a file is written back while one of two spaces that map it joins two VMAs, and its program writes",
    )
    .shows(&[Rule::RewalkAfterMerge])
    .before(|task| {
        showing(task, 1);
        task.protect(0, AT, 1, Prot::Read);
        let other = task.create_space();
        task.map_as(other, AT, 4, backing(task, 0), Prot::ReadWrite);
        task.as_cpu(1, |task| {
            task.run_in(other);
            task.promise(task.write(other, FIRST).is_ok(), "it is mapped");
        });
        task.promise(task.write(0, FIRST).is_ok(), "it is mapped");
    })
    .cpu(|task| {
        task.protect(0, AT, 1, Prot::ReadWrite);
        let _ = task.write(0, FIRST);
    })
    .cpu(|_| ())
    .cpu(writes_back)
}

fn remap() -> Scenario {
    dirty("writeback-fault", "a dirty page that nobody maps is written back while a program maps it again")
        .shows(&[Rule::WriteWaitsForIo])
        .repeats(&[36])
        .before(|task| {
            written(task, 2);
            task.drop_pages(0, AT, 4);
        })
        .cpu(|task| {
            let _ = task.peek(0, FIRST);
            let _ = task.write(0, FIRST);
        })
        .cpu(|task| {
            let _ = task.write(0, SECOND);
        })
        .cpu(writes_back)
}

fn reclaim() -> Scenario {
    dirty("pageout-fault", "reclaim writes out a dirty page that nobody maps, while a program maps it again")
        .shows(&[Rule::WalkBeforeIo, Rule::FreezeBeforeFree])
        .repeats(&[35, 36])
        .config(|config| config.scan_batch = 1)
        .config(pcp)
        .before(|task| {
            showing(task, 1);
            let _ = task.write(0, AT);
            task.drop_pages(0, AT, 4);
            crowded(task, 2);
            task.give_back(2);
        })
        .cpu(|task| {
            let _ = task.peek(0, AT);
            let _ = task.write(0, AT);
        })
        .cpu(|task| {
            task.reclaim();
        })
        .after(|task| task.give_back(usize::MAX))
}

/// A watched file, to the first page in the middle of which CPU 0 has written.
fn one_asked_for(task: &Task<'_>) {
    showing_watched(task, 2);
    task.promise(task.write(0, FIRST).is_ok(), "it is mapped");
}

fn asked() -> Scenario {
    dirty(
        "mkwrite-writeback",
        "a watched file is written back while programs write to it: its file system is asked again",
    )
    .shows(&[Rule::AskBeforeWrite])
    .before(one_asked_for)
    .cpu(|task| {
        let _ = task.write(0, FIRST);
        let _ = task.write(0, SECOND);
    })
    .cpu(|task| {
        let _ = task.write(0, FIRST);
    })
    .cpu(writes_back)
    .after(writes_back)
}

fn asked_moving() -> Scenario {
    dirty(
        "mkwrite-move",
        "a page of a watched file is written back while another CPU moves it, and then writes to it",
    )
    .shows(&[Rule::MovedIsReadOnly])
    .before(one_asked_for)
    .cpu(|task| {
        task.move_pages(0, FIRST, 1, TO);
        let _ = task.write(0, TO);
    })
    .cpu(|_| ())
    .cpu(writes_back)
    .after(writes_back)
}

fn few_dirty() -> Scenario {
    Scenario::new(
        "dirty-limit",
        "one page may be dirty: two CPUs write to a file through mappings and by a call, and a third writes back what is too much",
        "linux",
    )
    .cpus(3)
    .machine(small)
    .watch(AT, 4)
    .shows(&[Rule::WriteBackAtLimit])
    .config(|config| (config.dirty_limit, config.dirty_background) = (1, 1))
    .before(|task| showing(task, 2))
    .cpu(|task| {
        let _ = task.write(0, AT);
        let _ = task.write(0, FIRST);
    })
    .cpu(|task| {
        let _ = task.write(0, FIRST);
        task.write_file(0, 2, 5);
    })
    .cpu(|task| _ = task.flush_dirty())
    .after(|task| {
        task.promise(task.dirty_pages() <= 2, "no more pages are dirty than two who write at once make so");
        task.write_back(0);
        task.promise(task.dirty_pages() == 0, "all are clean, and counted so");
    })
}
