//! Where the CPUs' time went, as programs read it: picoseconds, and percentages of busy time.

use quietmm_sim::{Profile, Row, Spent};
use serde::Serialize;

/// The profile of one run.
#[derive(Clone, Debug, Serialize)]
pub struct Account {
    cpus: u32,
    span_ps: u64,
    busy_ps: u64,
    busy: Vec<Line>,
    idle: Vec<Line>,
    #[serde(serialize_with = "super::result::map")]
    rooms: Vec<(&'static str, Room)>,
    slept: Vec<Slept>,
}

#[derive(Clone, Debug, Serialize)]
struct Line {
    name: &'static str,
    self_ps: u64,
    total_ps: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    self_percent: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    total_percent: Option<f64>,
    calls: u64,
}

#[derive(Clone, Debug, Serialize)]
struct Room {
    total_ps: u64,
    total_percent: f64,
}

#[derive(Clone, Debug, Serialize)]
struct Slept {
    name: &'static str,
    ps: u64,
    count: u64,
}

/// What part of the whole this is, in per cent; 0 of nothing.
pub fn share(ps: u64, of: u128) -> f64 {
    if of == 0 { 0.0 } else { 100.0 * ps as f64 / of as f64 }
}

impl Account {
    /// Of this profile.
    pub fn of(profile: &Profile) -> Account {
        let busy_ps = profile.busy_ps();
        let percent = |ps| share(ps, busy_ps.into());
        let line = |row: &Row| {
            let busy = row.place.spent() == Spent::Busy;
            Line {
                name: row.place.name(),
                self_ps: row.own_ps,
                total_ps: row.total_ps,
                self_percent: busy.then(|| percent(row.own_ps)),
                total_percent: busy.then(|| percent(row.total_ps)),
                calls: row.calls,
            }
        };
        let of =
            |spent| profile.rows.iter().filter(move |row| row.place.spent() == spent).map(line).collect();
        let room = |&(room, ps): &(quietmm_sim::Room, u64)| {
            (room.name(), Room { total_ps: ps, total_percent: percent(ps) })
        };
        let slept =
            |slept: &quietmm_sim::Slept| Slept { name: slept.wait.name(), ps: slept.ps, count: slept.count };
        Account {
            cpus: profile.cpus,
            span_ps: profile.span_ps,
            busy_ps,
            busy: of(Spent::Busy),
            idle: of(Spent::Idle),
            rooms: profile.rooms.iter().map(room).collect(),
            slept: profile.slept.iter().map(slept).collect(),
        }
    }
}
