//! Where the CPUs' time went, as text: what `perf report` would say, and what `perf sched` would.

use quietmm_sim::{Profile, Row, Slept, Spent};

use crate::show::bar::bar;
use crate::show::table::grid;
use crate::show::units::{grouped, time};
use crate::show::wrap::hanging;
use crate::study::account::share;

/// Percent of the busy time below which a place is only counted.
const LEAST: f64 = 0.1;
/// The longest bar beside a share.
const BAR: usize = 10;

/// The profile of one run.
pub fn table(title: &str, profile: &Profile, width: usize) -> String {
    let busy = u128::from(profile.busy_ps());
    let all = u128::from(profile.span_ps) * u128::from(profile.cpus);
    let plural = if profile.cpus == 1 { "" } else { "s" };
    let head = format!(
        "Where CPU time went [{title}]: {} CPU{plural} for {}, busy {:.2}% of it. Percentages are of busy time; total is \
         with what was called, without traps and interrupts that came between.",
        profile.cpus,
        time(profile.span_ps as f64 / 1e3),
        share(profile.busy_ps(), all),
    );
    let percent = |ps| format!("{:.2}", share(ps, busy));
    let row = |shares: [String; 3], ps: u64, calls: u64, name: &str| {
        let calls = if calls == 0 { "-".to_string() } else { grouped(&calls.to_string()) };
        let [own, bar, total] = shares;
        vec![own, bar, total, time(ps as f64 / 1e3), calls, name.to_string()]
    };
    let mut rows = vec![["self %", "", "total %", "time", "calls", "where"].map(String::from).to_vec()];
    let (works, idles): (Vec<&Row>, Vec<&Row>) =
        profile.rows.iter().partition(|row| row.place.spent() == Spent::Busy);
    let much = |row: &&Row| share(row.own_ps, busy) >= LEAST || share(row.total_ps, busy) >= LEAST;
    let (shown, few): (Vec<&Row>, Vec<&Row>) = works.into_iter().partition(much);
    rows.extend(shown.iter().map(|one| {
        let bar = bar(share(one.own_ps, busy), 100.0, BAR);
        row([percent(one.own_ps), bar, percent(one.total_ps)], one.own_ps, one.calls, one.place.name())
    }));
    if !few.is_empty() {
        let (ps, calls) = (few.iter().map(|row| row.own_ps).sum(), few.iter().map(|row| row.calls).sum());
        let name = format!("{} others, each below {LEAST} %", few.len());
        rows.push(row([percent(ps), String::new(), String::new()], ps, calls, &name));
    }
    rows.extend(idles.iter().map(|one| row(Default::default(), one.own_ps, one.calls, one.place.name())));
    let mut out = format!("\n{}{}", hanging(width, "", &head), grid("rlrrrl", &rows));
    let mut rooms = profile.rooms.clone();
    rooms.sort_by_key(|(room, ps)| (u64::MAX - ps, *room));
    let rooms: Vec<String> =
        rooms.iter().map(|(room, ps)| format!("{} {}%", room.name(), percent(*ps))).collect();
    if !rooms.is_empty() {
        let text = format!("{} (with what was called from there)", rooms.join(", "));
        out += &hanging(width, "by room  ", &text);
    }
    if !profile.slept.is_empty() {
        let mut rows = vec![["time", "times", "tasks slept for"].map(String::from).to_vec()];
        rows.extend(profile.slept.iter().map(|Slept { wait, ps, count }| {
            vec![time(*ps as f64 / 1e3), grouped(&count.to_string()), wait.name().to_string()]
        }));
        out += &grid("rrl", &rows);
    }
    out
}

/// What the places of these profiles are, each once.
pub fn explanations<'a>(profiles: impl Iterator<Item = &'a Profile>, width: usize) -> String {
    let mut places: Vec<_> = profiles.flat_map(|profile| profile.rows.iter().map(|row| row.place)).collect();
    places.sort();
    places.dedup();
    let mut out = String::new();
    if !places.is_empty() {
        out.push_str("\nWhat time is charged to\n");
    }
    for place in places {
        out += &hanging(width, "  ", place.name());
        out += &hanging(width, "      ", place.about());
    }
    out
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
                row(Place::Core(Scope::ZoneLock), 599_000_000, 599_500_000, 12),
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
        let text = table("eager, seed 1", &profile(), 80);
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        let row = |name: &str| {
            let line = text.lines().find(|line| line.ends_with(&format!("  {name}")));
            let words = line.unwrap_or_else(|| panic!("{name} in {text}")).split_whitespace();
            words.filter(|word| word.is_ascii()).collect::<Vec<_>>().join(" ")
        };
        assert!(text.contains("busy 80.00% of it"), "{text}");
        assert_eq!(row("user work"), "62.50 62.50 1.00 ms 7 user work");
        assert_eq!(row("spin_lock(zone)"), "37.44 37.47 599 us 12 spin_lock(zone)");
        assert_eq!(row("vunmap"), "0.03 37.50 500 ns 4 vunmap");
        assert_eq!(row("2 others, each below 0.1 %"), "0.03 500 ns 6 2 others, each below 0.1 %");
        assert_eq!(row("idle"), "400 us 1 idle");
        assert_eq!(row("device"), "5.00 ms 3 device");
        assert!(text.contains("by room  vmap 37.50%, locks 37.47%"), "{text}");
    }

    #[test]
    fn a_machine_that_does_nothing_has_a_profile_too() {
        let nothing = Profile { cpus: 1, span_ps: 0, rows: vec![], rooms: vec![], slept: vec![] };
        assert!(table("x", &nothing, 80).contains("1 CPU for 0 s, busy 0.00%"));
    }
}
