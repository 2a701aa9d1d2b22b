//! What happened on the machine, in order, and how often.

use std::cell::RefCell;

use quietmm::platform::{Everywhere, Memory, Store, WaitKey};
use quietmm::{Event, FrameNumber, Kind, Platform};

use super::Host;

/// One thing that happened, in the order in which it did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Happened {
    Interrupt(u16),
    FlushPage(u16, u64),
    FlushSpace(u16),
    FlushKernelPage(u16, u64),
    FlushKernel(u16),
    Broadcast(u16, Everywhere),
    DiskWrite(Store, u64),
    Event(Event),
}

/// All that happened since [`Host::forget`].
pub type Log = RefCell<Vec<Happened>>;

impl Host {
    pub(super) fn note(&self, what: Happened) {
        self.enter(&what);
        if let Happened::Event(Event::Taken { frame, order, kind: Kind::Anon | Kind::File | Kind::Table }) =
            what
        {
            self.soil(frame, order);
        }
        self.log.borrow_mut().push(what);
    }

    /// Whoever takes frames finds something in them: whoever wants them empty must see to it.
    fn soil(&self, first: FrameNumber, order: u8) {
        for frame in (0..1 << order).map(|n| first.add(n)) {
            // SAFETY: `direct` checks the frame's first byte, frames do not straddle the end, and it is nobody's yet.
            unsafe { self.direct(frame.phys()).write_bytes(0x5a, 4096) }
        }
    }

    pub fn forget(&self) {
        self.log.borrow_mut().clear();
    }

    pub fn count(&self, which: impl Fn(&Happened) -> bool) -> usize {
        self.log.borrow().iter().filter(|what| which(what)).count()
    }

    /// Interrupts sent to this CPU since [`forget`](Self::forget).
    pub fn interrupts_to(&self, cpu: u16) -> usize {
        self.count(|what| *what == Happened::Interrupt(cpu))
    }

    pub fn interrupts(&self) -> usize {
        self.count(|what| matches!(what, Happened::Interrupt(_)))
    }

    /// What was flushed on all CPUs by the hardware since then.
    pub fn broadcasts(&self) -> Vec<Everywhere> {
        let log = self.log.borrow();
        log.iter()
            .filter_map(|what| if let Happened::Broadcast(_, what) = what { Some(*what) } else { None })
            .collect()
    }

    /// Who was woken since this was last asked.
    pub fn take_woken(&self) -> Vec<WaitKey> {
        let all = self.woken.borrow();
        all[self.looked_at.replace(all.len())..].to_vec()
    }

    /// Full flushes and single flushes of a CPU.
    pub fn flushes(&self, cpu: u16) -> (usize, usize) {
        let single = |what: &Happened| matches!(what, Happened::FlushPage(c, _) if *c == cpu);
        (self.count(|what| *what == Happened::FlushSpace(cpu)), self.count(single))
    }

    /// Full and single flushes of kernel addresses on a CPU.
    pub fn kernel_flushes(&self, cpu: u16) -> (usize, usize) {
        let single = |what: &Happened| matches!(what, Happened::FlushKernelPage(c, _) if *c == cpu);
        (self.count(|what| *what == Happened::FlushKernel(cpu)), self.count(single))
    }
}
