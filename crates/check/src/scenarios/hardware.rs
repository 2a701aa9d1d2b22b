//! What the hardware guarantees, and what the core makes of it.

use quietmm::{Advice, Entry, PageNumber, Rule};

use super::before::{AT, make_idle, showing, small, spare};
use crate::scenario::Scenario;
use crate::task::{Task, range};

/// Where a large page lies.
const LARGE: u64 = 0x4000;

pub(super) fn all() -> Vec<Scenario> {
    vec![no_guarantees(), age_large()]
}

fn no_guarantees() -> Scenario {
    let mut scenario = Scenario::new(
        "no-guarantees",
        "a policy that needs what the machine does not guarantee is refused, and would lose a write",
        "linux",
    )
    .cpus(3)
    .machine(|setup| {
        small(setup);
        setup.guarantees = false;
    })
    .config(|config| config.scan_batch = 1)
    .watch(AT, 4)
    .shows(&[Rule::AskGuarantees])
    .repeats(&[39])
    .before(|task| {
        showing(task, 2);
        make_idle(task);
    })
    .cpu(|task| {
        let _ = task.write(0, AT);
    })
    .cpu(|_| ())
    .cpu(|task| task.reclaim_one())
    .after(|task| task.give_back(usize::MAX));
    scenario.refused = true;
    scenario
}

fn age_large() -> Scenario {
    Scenario::new(
        "age-large",
        "aging clears the accessed bit of a large page that another CPU goes on using",
        "linux",
    )
    .machine(|setup| setup.frames = 2048)
    .config(|config| (config.swap, config.scan_batch) = (true, 1))
    .shows(&[Rule::LargeAgingFlushes])
    .repeats(&[33])
    .before(|task| {
        task.must("swap_on", |mm| mm.swap_on(0, 512, 0));
        let space = task.create_space();
        task.create_file(8);
        task.map(space, LARGE, 512);
        task.must("advise", |mm| mm.advise(task.space(space), range(LARGE, 512), Advice::Large));
        task.run_in(space);
        task.promise(task.write(space, LARGE).is_ok(), "it is mapped");
        // Pages for reclaim to take without a flush: only aging's is left. It takes turns, and looks at the large one
        // the second time.
        spare(task, 0, 3);
        task.take_all_blocks();
    })
    .cpu(|task| {
        let _ = task.peek(0, LARGE);
    })
    .cpu(|task| {
        task.reclaim();
        task.reclaim();
    })
    .after(|task| {
        in_use(task);
        task.give_back(usize::MAX);
    })
}

/// A large page that is used is found in use by whoever looks next.
fn in_use(task: &Task<'_>) {
    task.promise(task.read(0, LARGE).is_ok(), "it is mapped");
    let entry = task.must("lookup", |mm| mm.lookup(task.space(0), PageNumber(LARGE)));
    task.promise(
        entry.has(Entry::ACCESSED),
        "a page that was used since it was looked at has its accessed bit set",
    );
}
