//! One swap device: when its commands end, what becomes of them, what it holds.
//!
//! A command waits for one of `parallel` places, then for its turn on the device's one path for bytes, which reads and writes
//! share, and then takes its latency. So few commands at once find the latency, many the number of places or the
//! bandwidth, whichever is scarcer.

use quietmm::platform::DeviceError;
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256StarStar;

use crate::machine::Swap;
use crate::zeroed::Zeroed;

/// Most pages that one command moves: 128 KiB, as NVMe devices of 2014 took.
pub const MOST_PAGES: usize = 32;
/// What is found where nothing whole was ever written. A block holds its content with these bits flipped, so that zeros
/// of the host stand for it.
pub const GARBAGE: u64 = 0xdead_b10c_dead_b10c;

/// Which way pages go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// Into memory.
    In,
    /// Out of it.
    Out,
}

/// What a device did.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Done {
    /// Commands, and the pages that they moved or failed to.
    pub commands: u64,
    /// See `commands`.
    pub pages: u64,
    /// Pages that failed.
    pub failed: u64,
    /// Time in which it worked on at least one command, in picoseconds.
    pub busy: u64,
    /// Time of all commands from when they were given to their end, in picoseconds.
    pub in_flight: u64,
}

impl Done {
    /// That of both.
    pub fn and(self, other: &Done) -> Done {
        Done {
            commands: self.commands + other.commands,
            pages: self.pages + other.pages,
            failed: self.failed + other.failed,
            busy: self.busy + other.busy,
            in_flight: self.in_flight + other.in_flight,
        }
    }
}

/// One device.
pub struct Ssd {
    what: Swap,
    number: u32,
    blocks: Zeroed<u64>,
    /// When each of its places is free, and when its path for bytes is.
    places: Vec<u64>,
    path: u64,
    /// Until when it works on what it has been given.
    until: u64,
    rng: Xoshiro256StarStar,
    /// Its account.
    pub done: Done,
}

impl Ssd {
    /// An empty device. `seed` decides which of its pages fail.
    ///
    /// # Errors
    /// The host has no address space for its content.
    pub fn new(what: &Swap, number: u32, seed: u64) -> std::io::Result<Ssd> {
        let seed = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ u64::from(number);
        Ok(Ssd {
            what: what.clone(),
            number,
            blocks: Zeroed::new((what.size / 4096) as usize)?,
            places: vec![0; what.parallel as usize],
            path: 0,
            until: 0,
            rng: Xoshiro256StarStar::seed_from_u64(seed),
            done: Done::default(),
        })
    }

    /// Whether it takes no such command any more at `now`.
    pub fn refuses(&self, way: Way, now: u64) -> bool {
        let past = |at: u64| at > 0 && now >= at;
        let gone = self.number == self.what.devices - 1 && past(self.what.gone_at);
        gone || way == Way::Out && self.number == 0 && past(self.what.full_at)
    }

    /// A command for so many pages is given at `now`; tells when it ends.
    pub fn start(&mut self, way: Way, pages: usize, now: u64) -> u64 {
        let (latency, bandwidth) = match way {
            Way::In => (self.what.read_latency, self.what.read_bandwidth),
            Way::Out => (self.what.write_latency, self.what.write_bandwidth),
        };
        let place = self.places.iter_mut().min_by_key(|free_at| **free_at).expect("a device takes commands");
        let begins = now.max(*place);
        self.path = begins.max(self.path) + pages as u64 * (4096 * 1_000_000_000_000 / bandwidth);
        let ends = self.path + latency;
        *place = ends;
        let done = &mut self.done;
        (done.commands, done.pages) = (done.commands + 1, done.pages + pages as u64);
        done.in_flight += ends - now;
        done.busy += ends.saturating_sub(self.until.max(begins));
        self.until = self.until.max(ends);
        ends
    }

    /// What becomes of one page of a command that ends at `ends`.
    pub fn fate(&mut self, way: Way, block: u64, ends: u64) -> Result<(), DeviceError> {
        let rate = match way {
            Way::In => self.what.read_errors,
            Way::Out => self.what.write_errors,
        };
        let fate = if self.refuses(way, ends) {
            Err(DeviceError::Gone)
        } else if block as usize >= self.blocks.len() || rate > 0 && self.rng.next_u64() % 1000 < rate.into()
        {
            Err(DeviceError::Failed)
        } else {
            Ok(())
        };
        self.done.failed += u64::from(fate.is_err());
        fate
    }

    /// What a block holds.
    pub fn read(&self, block: u64) -> u64 {
        self.blocks.get(block as usize).copied().unwrap_or(0) ^ GARBAGE
    }

    /// It holds this from now on.
    pub fn write(&mut self, block: u64, content: u64) {
        if let Some(held) = self.blocks.get_mut(block as usize) {
            *held = content ^ GARBAGE;
        }
    }

    /// Nothing is kept any more.
    pub fn wipe(&mut self) {
        self.blocks.fill(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: u64 = 1_000_000;

    fn two() -> Swap {
        Swap {
            devices: 2,
            size: 1 << 20,
            read_latency: 80 * US,
            write_latency: 20 * US,
            parallel: 2,
            // A page in one microsecond, and in two.
            read_bandwidth: 4_096_000_000,
            write_bandwidth: 2_048_000_000,
            ..Swap::default()
        }
    }

    fn ssd(what: &Swap, number: u32) -> Ssd {
        Ssd::new(what, number, 7).unwrap()
    }

    #[test]
    fn so_many_commands_go_at_once_as_there_are_places() {
        let mut ssd = ssd(&two(), 0);
        let ends: Vec<u64> = (0..3).map(|_| ssd.start(Way::In, 1, 0) / US).collect();
        // The third waits for the first's place.
        assert_eq!(ends, [81, 82, 81 + 81]);
        assert_eq!((ssd.done.commands, ssd.done.busy / US), (3, 162));
        assert_eq!(ssd.done.in_flight / US, 81 + 82 + 162);
        assert_eq!(ssd.start(Way::Out, 1, 1000 * US) / US, 1022);
        assert_eq!(ssd.done.busy / US, 162 + 22, "it rested in between");
    }

    #[test]
    fn all_commands_share_the_bandwidth() {
        let mut ssd = ssd(&Swap { parallel: 64, ..two() }, 0);
        let last = (0..20).map(|_| ssd.start(Way::Out, MOST_PAGES, 0)).max().unwrap();
        assert_eq!(last / US, 20 * 32 * 2 + 20);
        let mixed = ssd.start(Way::In, 1, 0);
        assert_eq!(mixed / US, 20 * 32 * 2 + 1 + 80, "reads wait behind the bytes of writes");
    }

    #[test]
    fn errors_come_at_their_rate_and_are_the_same_each_time() {
        let what = Swap { read_errors: 100, ..two() };
        let fates = |number, seed| {
            let mut ssd = Ssd::new(&what, number, seed).unwrap();
            (0..1000).map(|i| ssd.fate(Way::In, i % 256, 0).is_err()).collect::<Vec<_>>()
        };
        let failed = fates(0, 7).iter().filter(|&&failed| failed).count();
        assert!((60..140).contains(&failed), "{failed}");
        assert_eq!(fates(0, 7), fates(0, 7));
        assert_ne!(fates(0, 7), fates(0, 8));
        assert_ne!(fates(0, 7), fates(1, 7));
        let mut sound = ssd(&what, 0);
        assert!((0..256).all(|i| sound.fate(Way::Out, i, 0).is_ok()), "writes have a rate of their own");
        assert_eq!(sound.fate(Way::Out, 256, 0), Err(DeviceError::Failed), "beyond its end");
    }

    #[test]
    fn the_last_device_goes_away_and_the_first_is_full_at_their_times() {
        let what = Swap { gone_at: 50 * US, full_at: 90 * US, ..two() };
        let (mut first, mut last) = (ssd(&what, 0), ssd(&what, 1));
        assert_eq!(last.fate(Way::In, 1, 49 * US), Ok(()));
        assert_eq!(last.fate(Way::In, 1, 50 * US), Err(DeviceError::Gone));
        assert!(last.refuses(Way::Out, 50 * US) && !first.refuses(Way::Out, 50 * US));
        assert_eq!(first.fate(Way::Out, 1, 90 * US), Err(DeviceError::Gone));
        assert_eq!(first.fate(Way::In, 1, 90 * US), Ok(()), "what it has it gives back");
    }

    #[test]
    fn a_block_that_was_never_written_holds_garbage() {
        let mut ssd = ssd(&two(), 0);
        assert_eq!(ssd.read(3), GARBAGE);
        ssd.write(3, 0);
        assert_eq!((ssd.read(3), ssd.read(4)), (0, GARBAGE));
        ssd.wipe();
        assert_eq!((ssd.read(3), ssd.read(1 << 40)), (GARBAGE, GARBAGE));
    }
}
