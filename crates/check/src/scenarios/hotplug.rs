//! CPUs that go and come against whoever flushes.

use quietmm::Rule;

use super::before::{AT, FIRST, SECOND, comes_back, own, small, tagged};
use crate::scenario::Scenario;
use crate::task::Task;

pub(super) fn all() -> Vec<Scenario> {
    vec![unmap_offline(), unmap_restart(), unmap_online()]
}

fn unmap_offline() -> Scenario {
    Scenario::new("unmap-offline", "a CPU unmaps twice while another goes offline for good", "linux")
        .machine(small)
        .watch(AT, 4)
        .shows(&[Rule::TakeBack, Rule::OfflineLeavesMasks])
        .repeats(&[11, 18])
        .before(|task| own(task, 2))
        .cpu(|task| {
            task.unmap(0, FIRST, 1);
            task.unmap(0, SECOND, 1);
        })
        .cpu(|task| task.go_offline())
        .after(|task| task.as_cpu(1, Task::come_online))
}

fn unmap_restart() -> Scenario {
    Scenario::new(
        "unmap-restart",
        "a CPU unmaps while another goes offline and comes back to the space",
        "linux",
    )
    .machine(small)
    .watch(AT, 4)
    .shows(&[Rule::OfflineLeavesMasks])
    .repeats(&[11])
    .before(|task| own(task, 2))
    .cpu(|task| task.unmap(0, FIRST, 1))
    .cpu(comes_back)
}

fn unmap_online() -> Scenario {
    Scenario::new("unmap-online", "a CPU unmaps while another comes online, with its old tags", "linux")
        .machine(tagged)
        .watch(AT, 4)
        .shows(&[Rule::OnlineStartsEmpty])
        .repeats(&[11])
        .before(|task| {
            own(task, 2);
            let other = task.create_space();
            task.as_cpu(1, |task| {
                task.run_in(other);
                task.go_offline();
            });
        })
        .cpu(|task| task.unmap(0, FIRST, 1))
        .cpu(|task| {
            task.come_online();
            task.run_in(0);
            let _ = task.read(0, FIRST);
        })
}
