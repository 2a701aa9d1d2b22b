//! What the core says it has done, as far as scenarios have promises about it.

use std::cell::Cell;

use quietmm::Event;

/// Sums and greatest values since the manager was made.
#[derive(Default, Debug)]
pub struct Told {
    /// The most frames that went back to a zone under one hold of its lock.
    pub spilled: Cell<u32>,
    /// The most extents of kernel pages that became free under one hold of their lock.
    pub returned: Cell<u32>,
    /// Kernel pages that purges have flushed.
    pub purged: Cell<u64>,
    /// Pages that began to be written out.
    pub going_out: Cell<u32>,
    /// How often a purge was asked for because enough was unmapped.
    pub wanted: Cell<u32>,
}

impl Told {
    pub(crate) fn hear(&self, event: &Event) {
        match *event {
            Event::Spilled { frames } => self.spilled.set(self.spilled.get().max(frames)),
            Event::VmapReturned { extents } => self.returned.set(self.returned.get().max(extents)),
            Event::VmapPurged { pages } => self.purged.set(self.purged.get() + pages),
            Event::WriteBegins { .. } => self.going_out.set(self.going_out.get() + 1),
            Event::VmapPurgeWanted => self.wanted.set(self.wanted.get() + 1),
            _ => {}
        }
    }
}
