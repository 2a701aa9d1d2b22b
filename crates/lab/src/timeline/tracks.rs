//! Which event on which track each record becomes.

use std::collections::BTreeSet;
use std::io;

use quietmm_sim::timeline::{Mark, Record, Timeline, What};
use quietmm_sim::{Own, Place, Room, Scope};

use super::event::{Event, Events, Kind, Said, us};

/// Numbers of tracks: viewers show them in this order. Each run has so many of its own.
const EACH_RUN: u32 = 100_000;
const SWEEPS: u32 = 1;
const KERNEL_SWEEPS: u32 = 2;
const KSWAPD: u32 = 1_000;
const DIRECT: u32 = 10_000;
const CPUS: u32 = 50_000;

/// Writes one run.
pub fn write(events: &mut Events<'_>, pid: u32, name: &str, timeline: &Timeline) -> io::Result<()> {
    let mut run = Run { events, pid, named: BTreeSet::new(), lanes: Vec::new() };
    run.name("process_name", None, name)?;
    run.order("process_sort_index", None, pid)?;
    let tasks = &timeline.tasks;
    for record in &timeline.records {
        run.record(record, tasks)?;
    }
    // After all that lasts: of what begins at one moment an arrow belongs to the innermost.
    timeline.records.iter().try_for_each(|record| run.arrows(record))?;
    if timeline.gone > 0 {
        let name = format!("{} records before this did not fit", timeline.gone);
        run.happens(0, timeline.from_ps, &name, &[])?;
    }
    Ok(())
}

struct Run<'e, 'w> {
    events: &'e mut Events<'w>,
    pid: u32,
    /// Tracks that have a name.
    named: BTreeSet<u32>,
    /// Until when each of the tracks of batches by tasks is taken.
    lanes: Vec<u64>,
}

fn cpu_track(cpu: u16) -> u32 {
    CPUS + 2 * u32::from(cpu)
}

/// A place's group, by which it can be found.
fn category(place: Place) -> &'static str {
    match place {
        Place::Core(Scope::IpiWait) => "wait for acknowledgement",
        Place::Core(scope) if scope.room() == Room::Locks => "wait for a lock",
        Place::Core(scope) => scope.room().name(),
        Place::Own(Own::User) => "user",
        Place::Own(Own::Idle | Own::Off) => "idle",
        Place::Own(Own::Stall) => "taken away",
        Place::Own(Own::Interrupt | Own::Kick | Own::Alarm | Own::Tick) => "interrupt",
        Place::Own(_) => "kernel",
    }
}

impl Run<'_, '_> {
    fn name(&mut self, what: &str, tid: Option<u32>, name: &str) -> io::Result<()> {
        let args = [("name", Said::Word(name))];
        self.events.write(&Event { args: &args, ..Event::new(Kind::Names, self.pid, tid, what) })
    }

    fn order(&mut self, what: &str, tid: Option<u32>, place: u32) -> io::Result<()> {
        let args = [("sort_index", Said::Number(place.into()))];
        self.events.write(&Event { args: &args, ..Event::new(Kind::Names, self.pid, tid, what) })
    }

    /// A track, which has its name before the first event on it.
    fn track(&mut self, track: u32, name: impl FnOnce() -> String) -> io::Result<u32> {
        let tid = self.pid * EACH_RUN + track;
        if self.named.insert(track) {
            self.name("thread_name", Some(tid), &name())?;
            self.order("thread_sort_index", Some(tid), track)?;
        }
        Ok(tid)
    }

    fn cpu(&mut self, cpu: u16) -> io::Result<u32> {
        self.track(cpu_track(cpu), || format!("CPU {cpu}"))
    }

    fn lasts(
        &mut self,
        tid: u32,
        record: &Record,
        name: &str,
        cat: &'static str,
        args: &[(&'static str, Said<'_>)],
    ) -> io::Result<()> {
        // Both ends are cut to whole nanoseconds, not the length: so what nests still does.
        let (from, to) = (record.from / 1000, record.to / 1000);
        let event = Event::new(Kind::Lasts, self.pid, Some(tid), name).at(from);
        self.events.write(&Event { dur: Some(us(to - from)), cat, args, ..event })
    }

    fn happens(
        &mut self,
        cpu: u16,
        ps: u64,
        name: &str,
        args: &[(&'static str, Said<'_>)],
    ) -> io::Result<()> {
        let tid = self.cpu(cpu)?;
        let event = Event::new(Kind::Happens, self.pid, Some(tid), name).at(ps / 1000);
        self.events.write(&Event { s: Some("t"), args, ..event })
    }

    fn counts(&mut self, ps: u64, name: &str, of: &'static str, value: u64) -> io::Result<()> {
        let args = [(of, Said::Number(value))];
        let event = Event::new(Kind::Counts, self.pid, None, name).at(ps / 1000);
        self.events.write(&Event { args: &args, ..event })
    }

    fn record(&mut self, record: &Record, tasks: &[String]) -> io::Result<()> {
        let Record { from, cpu, .. } = *record;
        match record.what {
            What::Task(task) => {
                let tid = self.cpu(cpu)?;
                let name = tasks.get(task as usize).map_or("a task", String::as_str);
                self.lasts(tid, record, name, "task", &[])
            }
            What::Place(place) => {
                let tid = self.cpu(cpu)?;
                self.lasts(tid, record, place.name(), category(place), &[])
            }
            What::IrqsOff => {
                let tid = self.track(cpu_track(cpu) + 1, || format!("CPU {cpu}, interrupts off"))?;
                self.lasts(tid, record, "interrupts off", "interrupts off", &[])
            }
            What::Kswapd { node } => {
                let tid = self.kswapd(node)?;
                self.lasts(tid, record, "awake", "reclaim", &[])
            }
            What::Batch { kswapd, active, scanned, reclaimed } => {
                let tid = match kswapd {
                    Some(node) => self.kswapd(node)?,
                    None => self.lane(record)?,
                };
                let name = if active { "batch of the active list" } else { "batch of the inactive list" };
                let number = |n: u32| Said::Number(n.into());
                let args = [
                    ("scanned", number(scanned)),
                    ("reclaimed", number(reclaimed)),
                    ("cpu", number(cpu.into())),
                ];
                self.lasts(tid, record, name, "reclaim", &args)
            }
            What::Sweep { number, flushed, forced } => {
                let tid = self.track(SWEEPS, || "sweeps".to_string())?;
                self.sweep(tid, record, "epoch", [number, flushed, forced])
            }
            What::KernelSweep { number, flushed, forced } => {
                let tid = self.track(KERNEL_SWEEPS, || "sweeps of kernel addresses".to_string())?;
                self.sweep(tid, record, "epoch of kernel addresses", [number, flushed, forced])
            }
            What::Free { pages } => self.counts(from, "free memory", "pages", pages.into()),
            What::Ipi { target, taken: false } => {
                let args = [("to", Said::Number(target.into()))];
                self.happens(cpu, from, "an interrupt that is lost, or on its way at the end", &args)
            }
            What::Ipi { taken: true, .. } | What::Acknowledged { .. } => Ok(()),
            What::Mark(mark) => self.mark(record, mark),
        }
    }

    fn kswapd(&mut self, node: u16) -> io::Result<u32> {
        self.track(KSWAPD + u32::from(node), || format!("kswapd/{node}"))
    }

    /// A track for a batch by a task that needs memory, on which there is none at this time.
    fn lane(&mut self, record: &Record) -> io::Result<u32> {
        let free = self.lanes.iter().position(|until| *until <= record.from);
        let lane = free.unwrap_or_else(|| {
            self.lanes.push(0);
            self.lanes.len() - 1
        });
        self.lanes[lane] = record.to;
        self.track(DIRECT + lane as u32, || format!("direct reclaim {}", lane + 1))
    }

    fn sweep(
        &mut self,
        tid: u32,
        record: &Record,
        counter: &str,
        [number, flushed, forced]: [u32; 3],
    ) -> io::Result<()> {
        self.counts(record.from, counter, "sweeps begun", number.into())?;
        let args = [("flushed", Said::Number(flushed.into())), ("interrupted", Said::Number(forced.into()))];
        self.lasts(tid, record, &format!("sweep {number}"), "sweep", &args)
    }

    fn mark(&mut self, record: &Record, mark: Mark) -> io::Result<()> {
        let number = |n: u32| Said::Number(n.into());
        let Record { cpu, from, .. } = *record;
        match mark {
            Mark::Flush { reason, targets } => {
                let reason = format!("{reason:?}");
                let args = [("reason", Said::Word(&reason)), ("cpus", number(targets))];
                self.happens(cpu, from, "flush asked of others", &args)
            }
            Mark::BatchFlushed { pages, targets } => {
                let args = [("pages", number(pages)), ("cpus", number(targets))];
                self.happens(cpu, from, "batch flushed", &args)
            }
            Mark::Purged { pages } => {
                self.happens(cpu, from, "kernel addresses flushed", &[("pages", number(pages))])
            }
            Mark::KswapdWoken => self.happens(cpu, from, "kswapd woken", &[]),
            Mark::Swept => self.happens(cpu, from, "flushed for a sweep", &[]),
            Mark::KernelSwept => self.happens(cpu, from, "flushed for a sweep of kernel addresses", &[]),
            Mark::OutOfMemory => self.happens(cpu, from, "out of memory", &[]),
            Mark::Offline => self.happens(cpu, from, "offline", &[]),
            Mark::Online => self.happens(cpu, from, "online", &[]),
        }
    }

    fn arrows(&mut self, record: &Record) -> io::Result<()> {
        match record.what {
            What::Ipi { target, taken: true } => {
                self.arrow("IPI", (record.cpu, record.from), (target, record.to))
            }
            What::Acknowledged { sender } => {
                self.arrow("acknowledgement", (record.cpu, record.from), (sender, record.to))
            }
            _ => Ok(()),
        }
    }

    fn arrow(&mut self, name: &'static str, from: (u16, u64), to: (u16, u64)) -> io::Result<()> {
        let id = Some(self.events.arrow());
        for (kind, (cpu, ps), bp) in [(Kind::ArrowBegins, from, None), (Kind::ArrowEnds, to, Some("e"))] {
            let tid = self.cpu(cpu)?;
            let event = Event::new(kind, self.pid, Some(tid), name).at(ps / 1000);
            self.events.write(&Event { id, bp, cat: name, ..event })?;
        }
        Ok(())
    }
}
