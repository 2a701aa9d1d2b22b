//! What can happen next: one of the CPUs goes on, an interrupt arrives, hardware does something of itself, a device fails.

use std::fmt;

/// CPUs that an act can name.
const CPUS: u8 = 8;

/// One thing that can happen next.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Act(u8);

/// Which kind of thing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// The CPU goes on with what it was doing.
    Run(u16),
    /// The interrupt that is on its way to the CPU arrives.
    Interrupt(u16),
    /// The CPU's timer fires.
    Tick(u16),
    /// The CPU forgets all that it has cached.
    Evict(u16),
    /// The CPU fetches all translations that it can, and sets their accessed bits.
    Fetch(u16),
    /// The same for writes that never come: it sets the dirty bits too.
    FetchToWrite(u16),
    /// The device cannot do what it was asked to.
    DeviceFails,
    /// The run is over.
    End,
}

impl Act {
    /// The run is over.
    pub const END: Act = Act(63);
    /// The device fails.
    pub const DEVICE_FAILS: Act = Act(4 * CPUS);

    /// The CPU goes on.
    pub const fn run(cpu: u16) -> Act {
        Act(cpu as u8)
    }
    /// Its interrupt arrives.
    pub const fn interrupt(cpu: u16) -> Act {
        Act(CPUS + cpu as u8)
    }
    /// Its timer fires.
    pub const fn tick(cpu: u16) -> Act {
        Act(5 * CPUS + cpu as u8)
    }
    /// It forgets.
    pub const fn evict(cpu: u16) -> Act {
        Act(2 * CPUS + cpu as u8)
    }
    /// It fetches.
    pub const fn fetch(cpu: u16) -> Act {
        Act(3 * CPUS + cpu as u8)
    }

    /// It fetches, to write.
    pub const fn fetch_to_write(cpu: u16) -> Act {
        Act(6 * CPUS + cpu as u8)
    }

    /// What it is.
    pub const fn kind(self) -> Kind {
        let cpu = (self.0 % CPUS) as u16;
        match self.0 / CPUS {
            0 => Kind::Run(cpu),
            1 => Kind::Interrupt(cpu),
            2 => Kind::Evict(cpu),
            3 => Kind::Fetch(cpu),
            4 => Kind::DeviceFails,
            5 => Kind::Tick(cpu),
            6 => Kind::FetchToWrite(cpu),
            _ => Kind::End,
        }
    }

    /// Its bit in a set.
    pub const fn bit(self) -> u64 {
        1 << self.0
    }

    /// The acts of a set, in their order.
    pub fn of_set(mut set: u64) -> impl Iterator<Item = Act> {
        std::iter::from_fn(move || {
            let next = set.trailing_zeros();
            set &= set.wrapping_sub(1);
            (next < 64).then_some(Act(next as u8))
        })
    }

    /// By its name, as `Display` writes it.
    pub fn parse(text: &str) -> Option<Act> {
        (0..7 * CPUS).map(Act).find(|act| act.to_string() == text)
    }
}

impl fmt::Display for Act {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind() {
            Kind::Run(cpu) => write!(f, "run {cpu}"),
            Kind::Interrupt(cpu) => write!(f, "interrupt {cpu}"),
            Kind::Tick(cpu) => write!(f, "tick {cpu}"),
            Kind::Evict(cpu) => write!(f, "evict {cpu}"),
            Kind::Fetch(cpu) => write!(f, "fetch {cpu}"),
            Kind::FetchToWrite(cpu) => write!(f, "fetch {cpu} to write"),
            Kind::DeviceFails => f.write_str("device fails"),
            Kind::End => f.write_str("end"),
        }
    }
}

impl fmt::Debug for Act {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_back() {
        for act in [
            Act::run(3),
            Act::interrupt(0),
            Act::tick(3),
            Act::evict(1),
            Act::fetch(2),
            Act::fetch_to_write(1),
            Act::DEVICE_FAILS,
        ] {
            assert_eq!(Act::parse(&act.to_string()), Some(act));
        }
        assert_eq!(Act::parse("run 9"), None);
    }

    #[test]
    fn a_set_gives_its_acts_in_order() {
        let acts = [Act::run(0), Act::run(2), Act::interrupt(1)];
        let set = acts.iter().map(|act| act.bit()).sum();
        assert!(Act::of_set(set).eq(acts));
    }
}
