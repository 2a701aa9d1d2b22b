//! Mappings that grow downwards, while others use and change what lies around.

use quietmm::{PageNumber, Prot, Rule};

use crate::scenario::Scenario;
use crate::task::Task;

/// The first page of a stack of two.
const STACK: u64 = 0x1200;
/// What lies below: pages that it could come to, and may not.
const BELOW: u64 = STACK - 300;

pub(super) fn all() -> Vec<Scenario> {
    vec![grow()]
}

fn stack(task: &Task<'_>) {
    let space = task.create_space();
    task.map(space, STACK, 2);
    task.map(space, BELOW, 1);
    let id = task.space(space);
    task.must("grow_down", |mm| mm.space(id).grow_down(PageNumber(STACK), 2048));
    for cpu in [1, 0] {
        task.as_cpu(cpu, |task| {
            task.run_in(space);
            task.promise(task.write(space, STACK).is_ok(), "it is mapped");
        });
    }
}

fn grow() -> Scenario {
    Scenario::new("stack-grow", "two CPUs touch what lies below a stack, and one changes the stack", "linux")
        .watch(STACK - 3, 4)
        .shows(&[Rule::StackGap])
        .before(stack)
        .cpu(|task| {
            task.promise(task.write(0, STACK - 2).is_ok(), "it grows");
            task.promise(task.write(0, BELOW + 100).is_err(), "it keeps away from what lies below");
        })
        .cpu(|task| {
            task.promise(task.write(0, STACK - 1).is_ok(), "it grows");
            task.protect(0, STACK, 1, Prot::Read);
            task.promise(task.write(0, STACK - 3).is_ok(), "it grows");
        })
        .after(|task| {
            let _ = task.read(0, STACK - 1);
            task.promise(task.read(0, STACK - 2).is_ok(), "it has grown");
        })
}
