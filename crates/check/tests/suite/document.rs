//! The scenario in `docs/checking.md` is this one, and does what the document says.

use quietmm::Rule;
use quietmm_check::explore::{Budget, Search, Way};
use quietmm_check::scenario::Scenario;
use quietmm_check::task::Task;

const AT: u64 = 0x11f8;

#[rustfmt::skip]
fn lazy_return() -> Scenario {
    Scenario::new("lazy-return", "a CPU unmaps while another leaves lazy mode", "linux")
        .cpus(2)
        .shows(&[Rule::LazyReturnFlush])           // broken, these must be seen here
        .before(|task| {                           // CPU 0, nothing interleaved
            let space = task.create_space();
            task.map(space, AT, 2);
            for cpu in 0..2 {
                task.as_cpu(cpu, |task| {
                    task.run_in(space);
                    let _ = task.write(space, AT);
                });
            }
            task.as_cpu(1, Task::go_lazy);
        })
        .cpu(|task| task.unmap(0, AT, 1))          // CPU 0
        .cpu(|task| {                              // CPU 1
            task.leave_lazy();
            let _ = task.peek(0, AT);
        })
}

#[test]
fn the_scenario_of_the_document_is_this_one() {
    let (document, me) = (include_str!("../../../../docs/checking.md"), include_str!("document.rs"));
    let start = document.find("fn lazy_return()").expect("the document has it");
    let text = &document[start..start + document[start..].find("```").expect("the end of the code")];
    assert!(me.contains(text), "it is another:\n{text}");
}

#[test]
fn it_shows_what_it_says_and_nothing_else() {
    let scenario = lazy_return();
    let budget = Budget { random: 200, exhaustive: 500, departures: 2 };
    let broken = |rule| {
        Way::ALL.into_iter().find_map(|way| Search::new(&scenario, rule).go(way, 1, &budget, &mut |_| true))
    };
    assert!(broken(None).is_none());
    assert!(broken(Some(Rule::LazyReturnFlush)).is_some());
}
