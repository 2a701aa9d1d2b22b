//! This host measured: whatever it is and however busy, what comes of it is a number for each constant, and says how.

use quietmm_host::measure::{Base, measure};

#[test]
fn every_constant_has_a_value_and_says_how_it_was_got() {
    let base = Base {
        name: "a base".into(),
        trap: 400.0,
        irq_enter: 275.0,
        irq_exit: 146.0,
        flush_all: 77.0,
        ipi_send: 147.0,
        goes: 50.0,
    };
    let measured = measure(&base).unwrap();
    let names: Vec<_> = measured.constants.iter().map(|constant| constant.name).collect();
    for name in
        ["cpus", "nodes", "distance", "syscall", "pause", "cache_hit", "walk_step", "clear_frame", "invlpg"]
    {
        assert_eq!(names.iter().filter(|&&found| found == name).count(), 1, "{name} in {names:?}");
    }
    for constant in &measured.constants {
        let value = constant.value.parse::<f64>();
        assert!(constant.name == "distance" || value.is_ok_and(|value| value >= 0.0), "{constant:?}");
        assert!(!constant.source.is_empty() && !constant.unit.is_empty(), "{constant:?}");
    }
    // Where there is one CPU it says that nothing could be sent; else what a shootdown takes is there.
    let cpus = std::thread::available_parallelism().map_or(1, |cpus| cpus.get());
    assert!(cpus == 1 || names.contains(&"ipi_flight_local") || !measured.not.is_empty());
    assert!(
        measured.shootdowns.first().is_some_and(|(targets, spread)| *targets == 0 && spread.median > 0.0)
    );
}
