//! What happened, for people who want to know how.

use quietmm::addr::FrameNumber;
use quietmm::platform::{Everywhere, Store, WaitKey};
use quietmm::{Event, Rule};

/// What somebody sleeps for, in words that are the same on every host.
pub fn key(key: &WaitKey) -> String {
    match key {
        WaitKey::Page(frame) => format!("{frame:?}"),
        WaitKey::Lock(_) | WaitKey::Readers(_) | WaitKey::Turn(..) => "a lock".to_string(),
        WaitKey::Kswapd(_) => "work".to_string(),
        WaitKey::VmapPurge => "enough to purge".to_string(),
        WaitKey::PageOut => "pages to be out".to_string(),
        WaitKey::Flusher => "too many dirty pages".to_string(),
        WaitKey::Own(n) => format!("event {n}"),
    }
}

/// One thing that happened.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The point of the run.
    pub step: u32,
    /// Where.
    pub cpu: u16,
    /// What.
    pub what: What,
}

/// What happened.
#[derive(Clone, Debug)]
pub enum What {
    /// What the CPU has cached when the scripts begin: pages with their frames, and whether it has written to them.
    Has(Vec<(u64, FrameNumber, bool)>),
    /// Everything is there; the scripts begin.
    Begins,
    /// The script calls the core.
    Call(&'static str),
    /// And comes back; `false` with an error.
    Return(&'static str, bool),
    /// The core says so.
    Core(Event),
    /// A step was left out.
    Skip(Rule),
    /// The CPU flushed a page.
    FlushPage(u64),
    /// All of its loaded space.
    FlushSpace,
    /// A kernel page.
    FlushKernelPage(u64),
    /// All kernel pages.
    FlushKernel,
    /// It asked the hardware to flush this on all CPUs.
    Broadcast(Everywhere),
    /// And waited until that was done, on these CPUs: all that were online.
    Synced(Vec<u16>),
    /// It loaded a space; whether it kept what it had cached of it.
    Load(FrameNumber, bool),
    /// It interrupted another.
    Interrupt(u16),
    /// An interrupt arrived.
    Arrives,
    /// Its timer fired.
    Ticks,
    /// And was dealt with.
    Leaves,
    /// A program read or wrote a page, through the TLB or by a walk.
    Access {
        /// The page.
        page: u64,
        /// Its frame.
        frame: FrameNumber,
        /// Written.
        write: bool,
        /// From the TLB.
        cached: bool,
    },
    /// A program's access faulted.
    Fault(u64),
    /// It sleeps.
    Sleeps(WaitKey),
    /// It goes on.
    Wakes,
    /// It spins.
    Spins,
    /// Hardware cached an entry before anybody used it.
    Fetched {
        /// The page.
        page: u64,
        /// Its frame.
        frame: FrameNumber,
    },
    /// Hardware forgot everything.
    Evicted,
    /// A device begins to read a page of memory.
    GoesOut(Store, u64, FrameNumber),
    /// And has ended.
    IsOut(Store, u64, bool),
    /// A device has filled a page.
    IsIn(Store, u64, bool),
    /// The script says something.
    Says(&'static str),
    /// The script has ended.
    Done,
    /// This was broken.
    Broken(&'static str),
}
