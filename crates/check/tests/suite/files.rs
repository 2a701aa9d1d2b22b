//! Files of counterexamples that people, or bit rot, have changed: an error in words, never a panic, never a long run.

use proptest::prelude::*;
use quietmm_check::replay::{Replay, Unreadable};
use quietmm_check::scenarios;

const GOOD: &str = r#"
format = 1
scenario = "reclaim-unmap"
rule = "flush-before-free"
hardware = "quiet"
invariant = "INV-1"
what = "seen"
departures = [[0, "run 1"], [7, "interrupt 0"]]
"#;

fn error(text: &str) -> Unreadable {
    Replay::parse(text).err().expect("it is wrong")
}

#[test]
fn what_is_wrong_is_said() {
    assert!(Replay::parse(GOOD).is_ok());
    assert!(matches!(error(""), Unreadable::Syntax { .. }));
    assert!(matches!(error(&GOOD.replace("format = 1", "format = 2")), Unreadable::Format(2)));
    assert!(matches!(error(&GOOD.replace("flush-before-free", "nonsense")), Unreadable::Unknown("rule", _)));
    assert!(matches!(error(&GOOD.replace("\"quiet\"", "\"loud\"")), Unreadable::Unknown("hardware", _)));
    assert!(matches!(error(&GOOD.replace("run 1", "run 99")), Unreadable::Unknown("act", _)));
    assert!(matches!(error(&GOOD.replace("[7,", "[0,")), Unreadable::Departures(_)));
    assert!(matches!(error(&format!("{GOOD}\nmore = 1")), Unreadable::Syntax { .. }));
}

#[test]
fn a_schedule_that_cannot_be_is_played_as_far_as_it_can() {
    let all = scenarios::all();
    for scenario in all.iter().step_by(9) {
        let text = GOOD.replace(
            "[7, \"interrupt 0\"]",
            "[3, \"device fails\"], [9, \"run 3\"], [4000000000, \"evict 1\"]",
        );
        let mut replay = Replay::parse(&text).expect("well formed");
        replay.broken = None;
        let outcome = replay.run(scenario);
        assert_eq!(outcome.violation, None, "{}", scenario.name);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_text_is_read_or_refused(text in ".{0,300}") {
        let _ = Replay::parse(&text);
    }

    #[test]
    fn any_change_to_a_good_file_is_read_or_refused(at in 0..GOOD.len(), with in ".{0,6}") {
        let mut text = String::from(&GOOD[..at]);
        text.push_str(&with);
        text.push_str(&GOOD[at + 1..]);
        let _ = Replay::parse(&text);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_schedule_is_played(list in prop::collection::btree_map(0u32..3000, 0usize..15, 0..40), which in 0usize..1000) {
        let acts = ["run 0", "run 1", "run 2", "run 3", "interrupt 0", "interrupt 1", "interrupt 2", "evict 0", "evict 1", "fetch 0", "fetch 1", "fetch 2", "evict 3", "device fails", "tick 1"];
        let departures: Vec<String> = list.iter().map(|(at, &act)| format!("[{at}, {:?}]", acts[act])).collect();
        let text = GOOD.replace("[[0, \"run 1\"], [7, \"interrupt 0\"]]", &format!("[{}]", departures.join(", "))).replace("\"quiet\"", "\"fickle\"");
        let mut replay = Replay::parse(&text).expect("well formed");
        replay.broken = None;
        let all = scenarios::all();
        let outcome = replay.run(&all[which % all.len()]);
        prop_assert_eq!(outcome.violation, None);
    }
}
