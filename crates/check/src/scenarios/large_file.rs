//! 2 MiB of a file behind one entry, against whoever cuts the file, writes to it, or reclaims it.

use quietmm::{Advice, Backing, Prot, Rule, UserAccess};

use crate::scenario::Scenario;
use crate::task::{Task, range};

/// Where it is shown.
const LARGE: u64 = 0x4000;
/// Its last page, and the one before.
const LAST: u64 = 511;

pub(super) fn all() -> Vec<Scenario> {
    vec![cut(), split()]
}

fn scenario(name: &'static str, about: &'static str) -> Scenario {
    Scenario::new(name, about, "linux")
        .machine(|setup| setup.frames = 2048)
        .config(|config| (config.scan_batch, config.lru_batch) = (1, 64))
        .watch(LARGE + LAST - 1, 2)
}

/// CPUs run in a space that shows a file whose pages lie in one piece.
fn in_one_piece(task: &Task<'_>, cpus: u16) {
    let (space, file) = (task.create_space(), task.create_file(512));
    let show = || {
        let shown = Backing::File { file: task.file(file), offset: 0 };
        task.map_as(space, LARGE, 512, shown, Prot::ReadWrite);
    };
    show();
    let id = task.space(space);
    task.must("populate", |mm| mm.space(id).populate(range(LARGE, 512), UserAccess::Read));
    task.settle();
    task.must("advise", |mm| mm.space(id).advise(range(LARGE, 512), Advice::Collapse));
    task.unmap(space, LARGE, 512);
    show();
    for cpu in (0..cpus).rev() {
        task.as_cpu(cpu, |task| task.run_in(space));
    }
}

fn cut() -> Scenario {
    scenario(
        "large-file-cut",
        "a file becomes shorter and longer again, while a large entry comes that shows it",
    )
    .shows(&[Rule::LargeFileLocks])
    .before(|task| in_one_piece(task, 2))
    .cpu(|task| {
        task.collapse(0, LARGE);
        let _ = task.peek(0, LARGE + LAST);
    })
    .cpu(|task| {
        task.set_file_len(0, LAST);
        task.set_file_len(0, LAST + 1);
    })
    .after(|task| {
        task.write_file(0, LAST, 7);
        task.promise(task.peek(0, LARGE + LAST) == Ok(7), "a program sees what is written to the file");
    })
}

fn split() -> Scenario {
    scenario("large-file-split", "a program writes to a page that a large entry shows, and another reads the next, while the file becomes shorter")
        .cpus(3)
        .before(|task| {
            in_one_piece(task, 3);
            task.collapse(0, LARGE);
            task.as_cpu(1, |task| task.promise(task.peek(0, LARGE + LAST).is_ok(), "it is mapped"));
        })
        .cpu(|task| {
            let _ = task.write(0, LARGE + LAST - 1);
        })
        .cpu(|task| {
            let _ = task.peek(0, LARGE + LAST);
            let _ = task.peek(0, LARGE + LAST);
        })
        .cpu(|task| {
            task.set_file_len(0, LAST);
            task.set_file_len(0, LAST + 1);
        })
        .after(|task| {
            task.write_file(0, LAST, 7);
            task.promise(task.peek(0, LARGE + LAST) == Ok(7), "a program sees what is written to the file");
        })
}
