//! Where the CPUs' time went, as text and as JSON: what `perf report` would say, and what `perf sched` would.

use std::fmt::Write;

use quietmm_sim::{Profile, Row, Slept, Spent};
use serde_json::{Map, Value as Json, json};

use crate::json::real;
use crate::wrap::hanging;

/// Percent of the busy time below which a place is only counted.
const LEAST: f64 = 0.1;

/// The profile of one run.
pub fn table(title: &str, profile: &Profile) -> String {
    let busy = profile.busy_ps();
    let all = u128::from(profile.span_ps) * u128::from(profile.cpus);
    let mut out = String::from("\n");
    let plural = if profile.cpus == 1 { "" } else { "s" };
    out.push_str(&hanging(
        "",
        &format!(
            "Where CPU time went [{title}]: {} CPU{plural} for {}, busy {}% of it. Percentages are of busy time; total is \
             with what was called, without traps and interrupts that came between.",
            profile.cpus,
            ms(profile.span_ps),
            percent(busy, all),
        ),
    ));
    let _ = writeln!(out, "{:>7} {:>8} {:>15} {:>10}  where", "self %", "total %", "time", "calls");
    let of_busy = |ps| share(ps, busy.into());
    let works = |row: &&Row| row.place.spent() == Spent::Busy;
    let (shown, few): (Vec<&Row>, Vec<&Row>) = profile
        .rows
        .iter()
        .filter(works)
        .partition(|row| of_busy(row.own_ps) >= LEAST || of_busy(row.total_ps) >= LEAST);
    for row in shown {
        let shares = [row.own_ps, row.total_ps].map(|ps| percent(ps, busy.into()));
        line(&mut out, &shares, row.own_ps, row.calls, row.place.name());
    }
    if !few.is_empty() {
        let ps = few.iter().map(|row| row.own_ps).sum();
        let calls = few.iter().map(|row| row.calls).sum();
        let name = format!("{} others, each below {LEAST} %", few.len());
        line(&mut out, &[percent(ps, busy.into()), String::new()], ps, calls, &name);
    }
    for row in profile.rows.iter().filter(|row| !works(row)) {
        line(&mut out, &[String::new(), String::new()], row.own_ps, row.calls, row.place.name());
    }
    let mut rooms = profile.rooms.clone();
    rooms.sort_by_key(|(room, ps)| (u64::MAX - ps, *room));
    let rooms: Vec<String> =
        rooms.iter().map(|(room, ps)| format!("{} {}%", room.name(), percent(*ps, busy.into()))).collect();
    if !rooms.is_empty() {
        out.push_str(&hanging(
            "by room  ",
            &format!("{} (with what was called from there)", rooms.join(", ")),
        ));
    }
    if !profile.slept.is_empty() {
        let _ = writeln!(out, "{:>32} {:>10}  tasks slept for", "time", "times");
    }
    for Slept { wait, ps, count } in &profile.slept {
        line(&mut out, &[String::new(), String::new()], *ps, *count, wait.name());
    }
    out
}

fn line(out: &mut String, [own, total]: &[String; 2], ps: u64, calls: u64, name: &str) {
    let calls = if calls == 0 { "-".to_string() } else { calls.to_string() };
    let _ = writeln!(out, "{own:>7} {total:>8} {:>15} {calls:>10}  {name}", ms(ps));
}

/// What the places of these profiles are, each once.
pub fn explanations<'a>(profiles: impl Iterator<Item = &'a Profile>) -> String {
    let mut places: Vec<_> = profiles.flat_map(|profile| profile.rows.iter().map(|row| row.place)).collect();
    places.sort();
    places.dedup();
    let mut out = String::new();
    if !places.is_empty() {
        out.push_str("\nWhat time is charged to\n");
    }
    for place in places {
        out.push_str(&hanging("  ", place.name()));
        out.push_str(&hanging("      ", place.about()));
    }
    out
}

/// The profile of one run: picoseconds, and percentages of busy time.
pub fn json(profile: &Profile) -> Json {
    let busy = profile.busy_ps();
    let percent = |ps| real(share(ps, busy.into()));
    let row = |row: &Row| {
        let mut out = Map::new();
        let mut put = |key: &str, value| out.insert(key.to_string(), value);
        put("name", json!(row.place.name()));
        put("self_ps", json!(row.own_ps));
        put("total_ps", json!(row.total_ps));
        if row.place.spent() == Spent::Busy {
            put("self_percent", percent(row.own_ps));
            put("total_percent", percent(row.total_ps));
        }
        put("calls", json!(row.calls));
        Json::Object(out)
    };
    let (works, idles): (Vec<&Row>, Vec<&Row>) =
        profile.rows.iter().partition(|row| row.place.spent() == Spent::Busy);
    let room = |(room, ps): &(quietmm_sim::Room, u64)| {
        (room.name().to_string(), json!({ "total_ps": ps, "total_percent": percent(*ps) }))
    };
    let slept = |slept: &Slept| json!({ "name": slept.wait.name(), "ps": slept.ps, "count": slept.count });
    json!({
        "cpus": profile.cpus,
        "span_ps": profile.span_ps,
        "busy_ps": busy,
        "busy": works.into_iter().map(row).collect::<Vec<_>>(),
        "idle": idles.into_iter().map(row).collect::<Vec<_>>(),
        "rooms": profile.rooms.iter().map(room).collect::<Map<_, _>>(),
        "slept": profile.slept.iter().map(slept).collect::<Vec<_>>(),
    })
}

fn share(ps: u64, of: u128) -> f64 {
    if of == 0 { 0.0 } else { 100.0 * ps as f64 / of as f64 }
}

fn percent(ps: u64, of: u128) -> String {
    format!("{:.2}", share(ps, of))
}

/// Milliseconds, to the microsecond.
fn ms(ps: u64) -> String {
    let us = ps.saturating_add(500_000) / 1_000_000;
    format!("{}.{:03} ms", us / 1000, us % 1000)
}

#[cfg(test)]
mod tests {
    use quietmm_sim::{Own, Place, Room, Scope, Wait};

    use super::*;

    fn profile() -> Profile {
        let row = |place, own_ps, total_ps, calls| Row { place, own_ps, total_ps, calls };
        Profile {
            cpus: 2,
            span_ps: 1_000_000_000,
            rows: vec![
                row(Place::Own(Own::User), 1_000_000_000, 1_000_000_000, 7),
                row(Place::Core(Scope::EagerListLock), 599_000_000, 599_500_000, 12),
                row(Place::Own(Own::Idle), 400_000_000, 400_000_000, 1),
                row(Place::Core(Scope::Vunmap), 500_000, 600_000_000, 4),
                row(Place::Core(Scope::LocalFlush), 300_000, 300_000, 4),
                row(Place::Core(Scope::IpiServe), 200_000, 200_000, 2),
            ],
            rooms: vec![(Room::Locks, 599_500_000), (Room::Vmap, 600_000_000)],
            slept: vec![Slept { wait: Wait::Device, ps: 5_000_000_000, count: 3 }],
        }
    }

    #[test]
    fn the_percentages_are_of_busy_time_and_what_is_small_is_folded() {
        let text = table("eager, seed 1", &profile());
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        let row = |name: &str| {
            let line = text.lines().find(|line| line.ends_with(&format!("  {name}")));
            line.unwrap_or_else(|| panic!("{name} in {text}"))
                .split_whitespace()
                .collect::<Vec<_>>()
                .join(" ")
        };
        assert!(text.contains("busy 80.00% of it"), "{text}");
        assert_eq!(row("user work"), "62.50 62.50 1.000 ms 7 user work");
        assert_eq!(row("spin_lock(eager list)"), "37.44 37.47 0.599 ms 12 spin_lock(eager list)");
        assert_eq!(row("vunmap"), "0.03 37.50 0.001 ms 4 vunmap");
        assert_eq!(row("2 others, each below 0.1 %"), "0.03 0.001 ms 6 2 others, each below 0.1 %");
        assert_eq!(row("idle"), "0.400 ms 1 idle");
        assert_eq!(row("device"), "5.000 ms 3 device");
        assert!(text.contains("by room  vmap 37.50%, locks 37.47%"), "{text}");
    }

    #[test]
    fn a_machine_that_does_nothing_has_a_profile_too() {
        let nothing = Profile { cpus: 1, span_ps: 0, rows: vec![], rooms: vec![], slept: vec![] };
        assert!(table("x", &nothing).contains("1 CPU for 0.000 ms, busy 0.00%"));
        assert_eq!(json(&nothing)["busy_ps"], 0);
    }
}
