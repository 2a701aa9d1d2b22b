//! What the hardware guarantees, and what the core makes of it.

use quietmm::{Advice, Architecture, Entry, PageNumber, Prot, Rule};

use super::before::{AT, FIRST, make_idle, own, showing, small, spare};
use crate::scenario::Scenario;
use crate::task::swap::{DEVICE, SLOTS};
use crate::task::vmap::{BARE, kernel_range};
use crate::task::{Task, range};

/// Where a large page lies.
const LARGE: u64 = 0x4000;

pub(super) fn all() -> Vec<Scenario> {
    vec![no_guarantees(), age_large(), split("split-reclaim", "linux"), refusals()]
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
        task.swap_on(DEVICE, SLOTS);
        let space = task.create_space();
        task.create_file(8);
        task.map(space, LARGE, 512);
        task.must("advise", |mm| mm.space(task.space(space)).advise(range(LARGE, 512), Advice::Large));
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

/// The page of the large one that CPU 2 uses.
const USED: u64 = LARGE + 1;

/// CPUs 0 and 2 run in a space with a large page, which was read and never written, and which aging has found idle. Memory is
/// short.
fn idle_large(task: &Task<'_>) {
    task.swap_on(DEVICE, 2 * SLOTS);
    let space = task.create_space();
    task.create_file(16);
    task.map(space, LARGE, 512);
    task.must("advise", |mm| mm.space(task.space(space)).advise(range(LARGE, 512), Advice::Large));
    for cpu in [2, 0] {
        task.as_cpu(cpu, |task| {
            task.run_in(space);
            task.promise(task.peek(space, USED).is_ok(), "it is mapped");
        });
    }
    // For reclaim to take until the large page was looked at once.
    spare(task, 0, 6);
    task.take_all_blocks();
    let looks_used = |task: &Task<'_>| {
        let entry = task.must("lookup", |mm| mm.space(task.space(space)).lookup(PageNumber(LARGE)));
        task.promise(entry.has(Entry::LARGE), "it is still a large page");
        entry.has(Entry::ACCESSED)
    };
    while looks_used(task) {
        task.promise(task.reclaim(), "there is one to take");
    }
    // Now there is nothing but the large page.
    task.must("destroy_file", |mm| mm.file(task.file(0)).destroy());
    task.take_all_blocks();
}

/// Under this policy.
pub(super) fn split(name: &'static str, policy: &str) -> Scenario {
    Scenario::new(
        name,
        "a large page is made small while a program begins to write to it and reclaim takes it out",
        policy,
    )
    .cpus(3)
    .machine(|setup| setup.frames = 2048)
    .config(|config| (config.swap, config.scan_batch, config.lru_batch) = (true, 1, 64))
    .watch(LARGE, 2)
    .shows(&[Rule::SplitWhole])
    .before(idle_large)
    .cpu(|task| task.protect(0, LARGE + 2, 1, Prot::Read))
    .cpu(|task| task.reclaim_one())
    .cpu(|task| {
        let _ = task.write(0, USED);
    })
    .after(|task| task.give_back(usize::MAX))
}

fn refusals() -> Scenario {
    Scenario::new(
        "refusals",
        "CPUs keep that a page was not there, or could not be written to, while others map it and give rights",
        "linux",
    )
    .on(Architecture::Sv48)
    .config(|config| kernel_range(config, 64))
    .watch(AT, 2)
    .shows(&[Rule::ForgetRefusals])
    .before(|task| {
        own(task, 2);
        task.unmap(0, AT, 1);
        task.protect(0, FIRST, 1, Prot::Read);
        task.take_frames(1);
    })
    .cpu(|task| {
        task.map(0, AT, 1);
        let _ = task.write(0, AT);
        task.protect(0, FIRST, 1, Prot::ReadWrite);
        task.keep(task.vmap(0, 1, BARE));
    })
    .cpu(|task| {
        let _ = task.peek(0, AT);
        let _ = task.write(0, FIRST);
        let _ = task.read(0, FIRST);
    })
    .after(|task| {
        for cpu in 0..2 {
            task.as_cpu(cpu, |task| task.use_kernel(task.kept(0).start, task.frame(0)));
        }
    })
}

/// A large page that is used is found in use by whoever looks next.
fn in_use(task: &Task<'_>) {
    task.promise(task.read(0, LARGE).is_ok(), "it is mapped");
    let entry = task.must("lookup", |mm| mm.space(task.space(0)).lookup(PageNumber(LARGE)));
    task.promise(
        entry.has(Entry::ACCESSED),
        "a page that was used since it was looked at has its accessed bit set",
    );
}
