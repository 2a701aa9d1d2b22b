//! Why it takes as long as it does: what the tasks' time goes to, from the account of a run.
//!
//! The tasks' time is what CPUs worked, and what tasks slept for a lock or a device; not what a workload waits for of its own
//! accord, and not idle time that follows from either.

use quietmm_sim::{Own, Place, Profile, Room, Scope, Spent, Wait, figures};

use crate::study::Run;

/// IPIs: sending, flying, waiting for acknowledgements, carrying out.
pub const IPIS: &str = "IPIs";

/// What a run's time went to, in picoseconds, the most first.
pub struct Causes {
    parts: Vec<(String, f64)>,
    /// Of all tasks.
    pub all: f64,
}

impl Causes {
    /// Of a run that kept an account.
    pub fn of(run: &Run) -> Option<Causes> {
        let profile = run.account.as_ref()?;
        let received = run.metrics.get(figures::IPIS_RECEIVED.key).map_or(0.0, quietmm_sim::Value::number);
        let mut causes = Causes { parts: Vec::new(), all: 0.0 };
        causes.add_work(profile, received);
        for slept in &profile.slept {
            let cause = match slept.wait {
                Wait::Core(scope) => core(scope),
                Wait::Device => "waiting for the device".to_string(),
                Wait::Workload => continue,
            };
            causes.add(cause, slept.ps as f64);
        }
        causes.parts.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        Some(causes)
    }

    fn add_work(&mut self, profile: &Profile, ipis: f64) {
        for row in profile.rows.iter().filter(|row| row.place.spent() == Spent::Busy) {
            let ps = row.own_ps as f64;
            match row.place {
                Place::Core(scope) => self.add(core(scope), ps),
                // Into an interrupt and back: of these so many are IPIs.
                Place::Own(Own::Interrupt) => {
                    let part = if row.calls == 0 { 0.0 } else { (ipis / row.calls as f64).min(1.0) };
                    self.add(IPIS.to_string(), ps * part);
                    self.add("other interrupts".to_string(), ps * (1.0 - part));
                }
                Place::Own(_) => self.add(row.place.name().to_string(), ps),
            }
        }
    }

    fn add(&mut self, cause: String, ps: f64) {
        self.all += ps;
        match self.parts.iter_mut().find(|(known, _)| *known == cause) {
            Some((_, sum)) => *sum += ps,
            None => self.parts.push((cause, ps)),
        }
    }

    /// Picoseconds that went to this.
    pub fn time(&self, cause: &str) -> f64 {
        self.parts.iter().find(|(known, _)| known == cause).map_or(0.0, |(_, ps)| *ps)
    }

    /// Per cent that went to this.
    pub fn percent(&self, cause: &str) -> f64 {
        if self.all == 0.0 { 0.0 } else { 100.0 * self.time(cause) / self.all }
    }

    /// All of them, the most first.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().map(|(cause, _)| cause.as_str())
    }
}

/// What a part of the core is called as a cause.
fn core(scope: Scope) -> String {
    match scope.room() {
        Room::Ipi => IPIS.to_string(),
        Room::Tlb => "TLB flushes".to_string(),
        // Whoever waits for a lock is in its scope.
        Room::Locks => {
            format!("waiting for {}", scope.about().strip_prefix("taking ").unwrap_or(scope.name()))
        }
        Room::Paging => "faults and address spaces".to_string(),
        Room::Reclaim => "reclaim".to_string(),
        Room::Frame => "frame allocation".to_string(),
        Room::Vmap => "kernel mappings".to_string(),
        room => room.name().to_string(),
    }
}

#[cfg(test)]
mod tests {
    use quietmm_sim::{Row, Slept};

    use super::*;
    use crate::study::result::Metrics;

    #[test]
    fn waiting_asleep_and_awake_is_one_cause_and_interrupts_are_shared_out() {
        let lock = *Scope::ALL.iter().find(|scope| scope.room() == Room::Locks).unwrap();
        let row = |place, own_ps, calls| Row { place, own_ps, total_ps: own_ps, calls };
        let profile = Profile {
            cpus: 2,
            span_ps: 1000,
            rows: vec![
                row(Place::Own(Own::User), 200, 1),
                row(Place::Core(lock), 100, 1),
                row(Place::Own(Own::Interrupt), 80, 4),
                row(Place::Core(Scope::IpiWait), 20, 1),
                row(Place::Own(Own::Idle), 5000, 1),
            ],
            rooms: vec![],
            slept: vec![
                Slept { wait: Wait::Core(lock), ps: 600, count: 1 },
                Slept { wait: Wait::Workload, ps: 9000, count: 1 },
            ],
        };
        let metrics = Metrics(vec![figures::IPIS_RECEIVED.int(3)]);
        let run = Run { account: Some(profile), metrics, ..Run::default() };
        let causes = Causes::of(&run).unwrap();
        assert_eq!(causes.all, 1000.0);
        let first = causes.names().next().unwrap();
        assert!(first.contains("lock"), "{first}");
        assert_eq!(causes.percent(first), 70.0);
        assert_eq!(causes.percent(IPIS), 8.0);
        assert_eq!(causes.percent("user work"), 20.0);
    }
}
