//! Files that become shorter and longer, or get a hole, while programs use them; and what the kernel copies into them.

use quietmm::{Error, Prot, Rule};

use super::before::{AT, FIRST, backing, showing, small};
use crate::scenario::Scenario;

pub(super) fn all() -> Vec<Scenario> {
    vec![fault(), hole(), copy(), longer()]
}

/// Of a file, its page that is mapped at `FIRST`.
const PAGE: u64 = FIRST - AT;

fn on_files(name: &'static str, about: &'static str) -> Scenario {
    Scenario::new(name, about, "linux").machine(small).watch(AT, 4)
}

fn fault() -> Scenario {
    on_files("cut-fault", "a file is emptied and made longer again, while a program of one space faults on it, and one of another has it")
        .shows(&[Rule::LookForCut, Rule::CutPagesAreUnmapped])
        .cpus(3)
        .before(|task| {
            showing(task, 2);
            task.drop_pages(0, FIRST, 1);
            let other = task.create_space();
            task.map_as(other, AT, 4, backing(task, 0), Prot::ReadWrite);
            task.as_cpu(1, |task| {
                task.run_in(other);
                task.promise(task.peek(other, FIRST).is_ok(), "it is mapped");
            });
        })
        .cpu(|task| {
            let _ = task.peek(0, FIRST);
            let _ = task.peek(0, FIRST);
        })
        .cpu(|task| {
            let _ = task.peek(1, FIRST);
            let _ = task.peek(1, FIRST);
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
    on_files("cut-hole", "a page of a file is made a hole, while a program reads it")
        .shows(&[Rule::ClosedWhileDiscarded])
        .before(|task| {
            showing(task, 1);
            task.write_file(0, PAGE, 7);
            task.write_back(0);
        })
        .cpu(|task| task.punch_hole(0, PAGE, 1))
        .cpu(|task| {
            task.run_in(0);
            let _ = task.peek(0, FIRST);
        })
        .after(|task| {
            task.promise(task.peek(0, FIRST) == Ok(0) && task.read_file(0, PAGE) == 0, "a hole is empty");
        })
}

fn copy() -> Scenario {
    on_files("copy-writeback", "the kernel copies something into a page of a file while it is written back")
        .shows(&[Rule::WriteLocksPage])
        .before(|task| {
            // No program has it, and so no flush lets one of the two go on.
            task.create_file(8);
            task.write_file(0, PAGE, 3);
        })
        .cpu(|task| {
            task.write_back(0);
        })
        .cpu(|task| task.write_file(0, PAGE, 7))
        .after(|task| {
            task.as_cpu(1, |task| task.promise(task.read_file(0, PAGE) == 7, "what was copied is there"));
        })
}

fn longer() -> Scenario {
    on_files(
        "write-longer",
        "the kernel copies something behind a file's end, while a program looks at what the file gains",
    )
    .shows(&[Rule::ContentBeforeLength])
    .before(|task| {
        showing(task, 1);
        task.set_file_len(0, PAGE);
    })
    .cpu(|task| task.write_file_page(0, PAGE, 7))
    .cpu(|task| {
        task.run_in(0);
        let seen = task.peek(0, FIRST);
        task.promise(matches!(seen, Ok(7) | Err(Error::BeyondFile)), "what a file gains is what was written");
    })
}
