//! What a machine noted of each CPU (`crates/metal/src/timeline.rs`), as the timeline that the simulation has.
//!
//! Notes have the clock of their CPU. What a CPU does lasts from one note to another; a task that sleeps within something goes on
//! there when it is switched to again, on whatever CPU. Which interrupt took which that was sent nobody notes: it is the first that
//! the other CPU took after that, by the clocks.

use std::collections::BTreeMap;

use quietmm_sim::timeline::{Record, Timeline, What};
use quietmm_sim::{Own, Place, Room, Scope};
use serde::Deserialize;

/// Locks that were taken faster were free, in nanoseconds.
const FREE: u64 = 1000;
/// Notes of all CPUs together, and of each.
const ALL: u32 = 1 << 15;
const LEAST: u32 = 64;
const MOST: u32 = 1 << 13;

/// Notes that each CPU keeps.
pub fn notes(cpus: u32) -> u32 {
    (ALL / cpus.max(1)).clamp(LEAST, MOST)
}

/// A line of the timeline.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(untagged)]
pub enum Part {
    /// The first.
    Names {
        /// When it was printed.
        ended: u64,
        /// Scopes of the core by number.
        scopes: Vec<String>,
        /// Tasks by number.
        tasks: Vec<String>,
    },
    /// Some notes of a CPU.
    Notes {
        /// Which CPU.
        cpu: u16,
        /// Notes before its first that were written over.
        lost: u64,
        /// When, what, and a number.
        notes: Vec<(u64, char, u32)>,
    },
}

/// A note, on its CPU.
#[derive(Clone, Copy)]
struct Note {
    at: u64,
    cpu: u16,
    what: char,
    of: u32,
}

/// Who is in places: a task, or whoever had the CPU when its notes begin.
type Who = Result<u32, u16>;

/// What is open, and since when on the CPU where it is now.
struct Open {
    place: Place,
    since: u64,
}

/// The timeline of these lines, if there are any.
pub fn timeline(parts: &[Part], cpus: u32) -> Option<Timeline> {
    let (ended, scopes, tasks) = parts.iter().find_map(|part| match part {
        Part::Names { ended, scopes, tasks } => Some((*ended, scopes, tasks)),
        Part::Notes { .. } => None,
    })?;
    let mut notes: Vec<Note> = Vec::new();
    // From when on all CPUs are known.
    let (mut from, mut gone) = (0, 0);
    let mut first_of = BTreeMap::new();
    for part in parts {
        if let Part::Notes { cpu, lost, notes: some } = part {
            if let (Some((at, ..)), true) = (some.first(), first_of.insert(*cpu, *lost == 0).is_none()) {
                from = if *lost > 0 { from.max(*at) } else { from };
                gone += lost;
            }
            notes.extend(some.iter().map(|&(at, what, of)| Note { at, cpu: *cpu, what, of }));
        }
    }
    // Stable: on one CPU in their order.
    notes.sort_by_key(|note| note.at);
    let scopes = scopes.iter().map(|name| Scope::ALL.iter().copied().find(|scope| scope.name() == name));
    let mut told = Told { scopes: scopes.collect(), ..Told::default() };
    for note in &notes {
        // Each begins with its idle task, which has its number.
        if first_of.remove(&note.cpu) == Some(true) {
            told.now.insert(note.cpu, (note.cpu.into(), note.at));
        }
        told.hear(note);
    }
    let to = notes.last().map_or(from, |note| note.at);
    told.close(to);
    let mut records = told.records;
    records.extend(interrupts(&notes, to));
    let inside = |record: &Record| match record.what {
        What::Ipi { .. } => record.from >= from * 1000,
        _ => record.to > from * 1000,
    };
    records.retain(inside);
    for record in &mut records {
        record.from = record.from.max(from * 1000);
    }
    // What holds others comes before them.
    records.sort_by_key(|record| (record.from, std::cmp::Reverse(record.to)));
    let ps = |ns: u64| ns * 1000;
    Some(Timeline {
        cpus,
        tasks: tasks.clone(),
        from_ps: ps(from),
        to_ps: ps(to),
        ended_ps: ps(ended),
        gone,
        records,
    })
}

/// What was told so far.
#[derive(Default)]
struct Told {
    scopes: Vec<Option<Scope>>,
    records: Vec<Record>,
    /// The task that has each CPU, and since when.
    now: BTreeMap<u16, (u32, u64)>,
    open: BTreeMap<Who, Vec<Open>>,
}

impl Told {
    fn who(&self, cpu: u16) -> Who {
        self.now.get(&cpu).map(|(task, _)| *task).ok_or(cpu)
    }

    fn hear(&mut self, &Note { at, cpu, what, of }: &Note) {
        let interrupt = || Place::Own([Own::Interrupt, Own::Kick, Own::Tick][of.min(2) as usize]);
        match what {
            't' => self.switch(cpu, at, of),
            'e' => self.enter(cpu, at, self.scope(of)),
            'l' => self.leave(cpu, at, self.scope(of)),
            'i' => self.enter(cpu, at, Some(interrupt())),
            'o' => self.leave(cpu, at, Some(interrupt())),
            'u' => self.enter(cpu, at, Some(Place::Own(Own::User))),
            'v' => self.leave(cpu, at, Some(Place::Own(Own::User))),
            'z' => self.enter(cpu, at, Some(Place::Own(Own::Idle))),
            'w' => self.leave(cpu, at, Some(Place::Own(Own::Idle))),
            // Interrupts that are sent come by themselves; what is not known is not shown.
            _ => {}
        }
    }

    fn scope(&self, of: u32) -> Option<Place> {
        self.scopes.get(of as usize).copied().flatten().map(Place::Core)
    }

    fn enter(&mut self, cpu: u16, at: u64, place: Option<Place>) {
        let who = self.who(cpu);
        if let Some(place) = place {
            self.open.entry(who).or_default().push(Open { place, since: at });
        }
    }

    fn leave(&mut self, cpu: u16, at: u64, place: Option<Place>) {
        let open = self.open.entry(self.who(cpu)).or_default();
        // What was entered before the first note is left without a beginning.
        let Some(nth) = open.iter().rposition(|open| Some(open.place) == place) else { return };
        for closed in open.split_off(nth) {
            record(&mut self.records, cpu, closed.since, at, What::Place(closed.place));
        }
    }

    /// What the old task is in it is in no longer here; what the new one is in it is in again.
    fn switch(&mut self, cpu: u16, at: u64, task: u32) {
        self.pause(cpu, at);
        self.now.insert(cpu, (task, at));
        for open in self.open.entry(Ok(task)).or_default() {
            open.since = at;
        }
    }

    fn pause(&mut self, cpu: u16, at: u64) {
        // What holds others first.
        if let Some((task, since)) = self.now.get(&cpu) {
            record(&mut self.records, cpu, *since, at, What::Task(*task));
        }
        for open in self.open.entry(self.who(cpu)).or_default() {
            record(&mut self.records, cpu, open.since, at, What::Place(open.place));
        }
    }

    /// What goes on at the end goes on until then.
    fn close(&mut self, at: u64) {
        let there: Vec<u16> = self.now.keys().copied().collect();
        let unknown: Vec<u16> = self.open.keys().filter_map(|who| who.err()).collect();
        for cpu in there.iter().chain(unknown.iter().filter(|cpu| !there.contains(cpu))) {
            self.pause(*cpu, at);
        }
    }
}

fn record(records: &mut Vec<Record>, cpu: u16, from: u64, to: u64, what: What) {
    let lock = matches!(what, What::Place(Place::Core(scope)) if scope.room() == Room::Locks);
    if to > from && !(lock && to - from < FREE) {
        records.push(Record { from: from * 1000, to: to * 1000, cpu, what });
    }
}

/// Interrupts from CPU to CPU, with where they were taken. One that is taken may be for several that were sent.
fn interrupts(notes: &[Note], end: u64) -> Vec<Record> {
    let mut taken: BTreeMap<u16, Vec<u64>> = BTreeMap::new();
    for note in notes.iter().filter(|note| note.what == 'i' && note.of == 0) {
        taken.entry(note.cpu).or_default().push(note.at);
    }
    let sent = notes.iter().filter(|note| note.what == 's');
    sent.map(|note| {
        let target = note.of as u16;
        let there = taken.get(&target).and_then(|all| all.get(all.partition_point(|at| *at < note.at)));
        let what = What::Ipi { target, taken: there.is_some() };
        Record { from: note.at * 1000, to: there.copied().unwrap_or(end) * 1000, cpu: note.cpu, what }
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Part {
        let scopes = Scope::ALL.iter().map(|scope| scope.name().to_string()).collect();
        let tasks = ["idle/0", "idle/1", "a", "b"].map(String::from).to_vec();
        Part::Names { ended: 9000, scopes, tasks }
    }

    fn number(scope: Scope) -> u32 {
        scope as u32
    }

    fn of(cpu: u16, lost: u64, notes: &[(u64, char, u32)]) -> Part {
        Part::Notes { cpu, lost, notes: notes.to_vec() }
    }

    /// Where a place was, in nanoseconds.
    fn at(timeline: &Timeline, what: What) -> Vec<(u16, u64, u64)> {
        let of = timeline.records.iter().filter(|record| record.what == what);
        of.map(|record| (record.cpu, record.from / 1000, record.to / 1000)).collect()
    }

    #[test]
    fn a_task_that_sleeps_goes_on_where_it_was_on_another_cpu() {
        let (fault, page) = (number(Scope::Fault), number(Scope::PageLock));
        let first = [(0, 't', 2), (1000, 'e', fault), (1100, 'e', page), (2000, 't', 0)];
        let second = [(5000, 't', 2), (6000, 'l', page), (6500, 'l', fault), (7000, 't', 1)];
        let timeline = timeline(&[names(), of(0, 0, &first), of(1, 0, &second)], 2).unwrap();
        let fault = What::Place(Place::Core(Scope::Fault));
        assert_eq!(at(&timeline, fault), [(0, 1000, 2000), (1, 5000, 6500)]);
        // Of locks 1000 ns and more.
        assert_eq!(at(&timeline, What::Place(Place::Core(Scope::PageLock))), [(1, 5000, 6000)]);
        assert_eq!(at(&timeline, What::Task(2)), [(0, 0, 2000), (1, 5000, 7000)]);
        assert_eq!((timeline.from_ps, timeline.to_ps, timeline.ended_ps), (0, 7_000_000, 9_000_000));
    }

    #[test]
    fn an_interrupt_leads_to_the_first_that_is_taken_after_it() {
        let sends = [(100, 's', 1), (900, 's', 1), (1500, 's', 1), (2000, 's', 1)];
        let takes =
            [(50, 'i', 0), (60, 'o', 0), (1000, 'i', 0), (1200, 'o', 0), (1600, 'i', 1), (1700, 'o', 1)];
        let timeline = timeline(&[names(), of(0, 0, &sends), of(1, 0, &takes)], 2).unwrap();
        let taken = What::Ipi { target: 1, taken: true };
        assert_eq!(at(&timeline, taken), [(0, 100, 1000), (0, 900, 1000)], "one is taken for both");
        assert_eq!(at(&timeline, What::Ipi { target: 1, taken: false }).len(), 2, "a kick takes none");
        assert_eq!(at(&timeline, What::Place(Place::Own(Own::Interrupt))).len(), 2);
    }

    #[test]
    fn what_is_shown_begins_where_all_cpus_are_known_and_nests() {
        let fault = number(Scope::Fault);
        // The first CPU has lost what was before 3000: what it leaves it entered before.
        let first =
            [(3000, 'l', fault), (4000, 'u', 0), (4100, 'e', fault), (4500, 'l', fault), (5000, 'v', 0)];
        let second = [(1000, 't', 3), (2000, 'z', 0), (6000, 'w', 0)];
        let timeline = timeline(&[names(), of(0, 7, &first), of(1, 0, &second)], 2).unwrap();
        assert_eq!((timeline.from_ps, timeline.gone), (3_000_000, 7));
        assert!(timeline.records.iter().all(|record| record.from >= 3_000_000), "{:?}", timeline.records);
        assert_eq!(at(&timeline, What::Place(Place::Own(Own::Idle))), [(1, 3000, 6000)]);
        let order: Vec<_> =
            timeline.records.iter().filter(|record| record.cpu == 0).map(|record| record.what).collect();
        let user = What::Place(Place::Own(Own::User));
        assert_eq!(
            order,
            [user, What::Place(Place::Core(Scope::Fault))],
            "what holds others comes before them"
        );
        assert_eq!(super::timeline(&[of(0, 0, &first)], 2), None, "without names there is nothing to tell");
    }

    #[test]
    fn notes_are_bounded_whatever_the_machine() {
        assert_eq!([1, 8, 255].map(notes), [8192, 4096, 128]);
    }
}
