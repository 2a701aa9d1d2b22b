//! Small pages that become a large one, against whoever uses, takes, pins or frees them.

use quietmm::{Advice, Rule, UserAccess};

use super::before::spare;
use crate::scenario::Scenario;
use crate::task::swap::{DEVICE, SLOTS, swapping};
use crate::task::{Task, range};

/// Where they lie.
const LARGE: u64 = 0x4000;
/// Pages that are there before.
const PAGES: u64 = 3;

pub(super) fn all() -> Vec<Scenario> {
    vec![write(), reclaim(), pin()]
}

/// So many CPUs run in a space with a few small pages, to which all have written.
fn small(task: &Task<'_>, cpus: u16) {
    let space = task.create_space();
    task.map(space, LARGE, 512);
    for cpu in (0..cpus).rev() {
        task.as_cpu(cpu, |task| {
            task.run_in(space);
            for page in LARGE..LARGE + PAGES {
                task.promise(task.write(space, page).is_ok(), "it is mapped");
            }
        });
    }
    task.settle();
}

fn scenario(name: &'static str, about: &'static str) -> Scenario {
    Scenario::new(name, about, "linux").machine(|setup| setup.frames = 2048).watch(LARGE, 2)
}

fn write() -> Scenario {
    scenario("collapse-write", "small pages become a large one while another CPU writes to them")
        .shows(&[Rule::FlushBeforeCollapse])
        .before(|task| small(task, 2))
        .cpu(|task| task.collapse(0, LARGE))
        .cpu(|task| {
            let _ = task.write(0, LARGE);
            let _ = task.write(0, LARGE + 1);
            let _ = task.read(0, LARGE);
        })
}

fn reclaim() -> Scenario {
    scenario("collapse-reclaim", "small pages become a large one while reclaim takes them")
        .shows(&[Rule::CollapseIsAlone])
        .config(swapping)
        .before(|task| {
            // With room for all of them: whoever reclaims comes to an end soon.
            task.swap_on(DEVICE, 2 * SLOTS);
            small(task, 1);
            // Whoever reclaims finds these, whatever becomes of the others.
            task.create_file(8);
            spare(task, 0, 2);
            let id = task.space(0);
            task.must("advise", |mm| mm.space(id).advise(range(LARGE, 512), Advice::Cold));
        })
        .cpu(|task| task.collapse(0, LARGE))
        .cpu(|task| {
            task.take_all_blocks();
            task.reclaim_one();
            task.give_back(usize::MAX);
        })
}

fn pin() -> Scenario {
    scenario("collapse-pin", "a page is pinned and used while it is to become part of a large one")
        .shows(&[Rule::PinnedIsMapped])
        .before(|task| small(task, 2))
        .cpu(|task| task.collapse(0, LARGE))
        .cpu(|task| {
            let pins = task.pin(0, LARGE, UserAccess::Write);
            task.both_see(&pins, 0, LARGE);
            task.unpin(pins);
        })
}
