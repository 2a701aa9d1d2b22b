//! Times that do not go on as they should: one bad one, a clock that was set, lines out of order.

use quietmm_host::import::Form;

use super::{imported, maps, notes, parsed};

#[test]
fn one_bad_time_does_not_make_what_follows_late() {
    let sound = maps(1000.0, 100);
    for bad in ["8589934592.000000", "1700000.500000", "0.000001"] {
        let mut text = maps(999.0, 100);
        text.push_str(&sound.lines().next().unwrap().replace("1000.000000", bad));
        text.push('\n');
        text.push_str(&sound);
        let (imported, bytes) = imported("bad-time", &mut text.as_bytes(), Form::Strace).unwrap();
        let (summary, _) = parsed(&bytes);
        assert_eq!(summary.calls["mmap"].count, 201, "{bad}");
        assert!((1_990_000_000..2_000_000_000).contains(&imported.duration), "{bad}: {}", imported.duration);
        let [(101, _, note)] = notes(&imported)[..] else { panic!("{imported}") };
        assert!(note.starts_with("the clock jumps"), "{note}");
    }
}

#[test]
fn a_clock_that_was_set_is_followed() {
    // A day and more ahead, and an hour back: a second each, less what it takes to believe it.
    for set in [90_000.0, -900.0, 4e9] {
        let text = maps(1000.0, 100) + &maps(1001.0 + set, 100);
        let (imported, _) = imported("set", &mut text.as_bytes(), Form::Strace).unwrap();
        assert!((1_700_000_000..2_000_000_000).contains(&imported.duration), "{set}: {}", imported.duration);
        // Each call has two times, and the last that does not fit is followed.
        assert!(matches!(notes(&imported)[..], [(101, 16, _)]), "{set}: {imported}");
    }
    // Within a day it may be so.
    let text = maps(1000.0, 100) + &maps(4601.0, 100);
    let (imported, _) = imported("later", &mut text.as_bytes(), Form::Strace).unwrap();
    assert_eq!((imported.duration / 1_000_000_000, &notes(&imported)[..]), (3601, &[][..]));
}

#[test]
fn lines_out_of_order_do_not_make_it_longer() {
    let text = maps(1000.0, 1000);
    let mut lines: Vec<&str> = text.lines().collect();
    // By the digits of a number that has nothing to do with the order.
    lines.sort_by_key(|line| {
        line.bytes().fold(7u32, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()))
    });
    let shuffled = lines.join("\n") + "\n";
    let (imported, _) = imported("shuffled", &mut shuffled.as_bytes(), Form::Strace).unwrap();
    assert!(imported.duration <= 10_000_000_000, "{}", imported.duration);
    assert!(notes(&imported).iter().any(|(.., note)| note.starts_with("the clock jumps back")), "{imported}");
}
