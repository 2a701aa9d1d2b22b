//! What happened, in words.

use quietmm::Event;
use quietmm::addr::{FrameNumber, PageRange};
use quietmm::event::Revoked;
use quietmm::platform::{Everywhere, Store, WaitKey};

use crate::machine::What;

/// Short names for frames: `A`, `B`, … in the order in which they are told of.
#[derive(Default)]
pub(super) struct Names {
    frames: Vec<FrameNumber>,
}

impl Names {
    fn frame(&mut self, frame: FrameNumber) -> String {
        let n = self.frames.iter().position(|&known| known == frame).unwrap_or_else(|| {
            self.frames.push(frame);
            self.frames.len() - 1
        });
        let letter = char::from(b'A' + (n % 26) as u8);
        if n < 26 { format!("frame {letter}") } else { format!("frame {letter}{}", n / 26) }
    }

    /// The same in a sentence, for those that were told of.
    pub(super) fn in_words(&self, text: &str) -> String {
        let mut text = text.to_string();
        for (n, frame) in self.frames.iter().enumerate() {
            let letter = char::from(b'A' + (n % 26) as u8);
            let name = if n < 26 { format!("frame {letter}") } else { format!("frame {letter}{}", n / 26) };
            text = text.replace(&format!("{frame:?}"), &name);
        }
        text
    }

    /// In words, if it belongs to the story that ends with `seen`.
    pub(super) fn tell(&mut self, what: &What, seen: &str) -> Option<String> {
        Some(match what {
            What::Call("fault") => return None,
            What::Call(name) => format!("{name}() {{"),
            What::Return("fault", true) => return None,
            What::Return("fault", false) => "the fault fails".to_string(),
            What::Return(name, ok) => format!("}} {name}{}", if *ok { "" } else { ": error" }),
            What::Begins => return None,
            What::Has(all) if all.is_empty() => return None,
            What::Has(all) => {
                let one = |(page, frame, dirty): &(u64, FrameNumber, bool)| {
                    format!("{page:#x} in {}{}", self.frame(*frame), if *dirty { " (written)" } else { "" })
                };
                format!("has cached {}", all.iter().map(one).collect::<Vec<_>>().join(", "))
            }
            What::Core(event) => return self.event(event, seen),
            What::Skip(rule) => format!("SKIPS {rule}"),
            What::FlushPage(page) => format!("flushes page {page:#x}"),
            What::FlushSpace => "flushes its space".to_string(),
            What::FlushKernelPage(page) => format!("flushes kernel page {page:#x}"),
            What::FlushKernel => "flushes all kernel pages".to_string(),
            What::Broadcast(what) => format!("flushes {} on all CPUs", self.everywhere(*what)),
            What::Synced(_) => "that is done".to_string(),
            What::Load(root, keep) => {
                let root = self.frame(*root);
                format!("loads the tables in {root}{}", if *keep { ", keeps its TLB" } else { ", flushes" })
            }
            What::Interrupt(cpu) => format!("interrupts CPU {cpu} -->"),
            What::Arrives => "--> interrupt".to_string(),
            What::Ticks => "--> timer".to_string(),
            What::Leaves => "<-- done".to_string(),
            What::Access { page, frame, write, cached } => {
                let (does, how) =
                    (if *write { "writes" } else { "reads" }, if *cached { ", by its TLB" } else { "" });
                format!("{does} page {page:#x} in {}{how}", self.frame(*frame))
            }
            What::Fault(page) => format!("page {page:#x} faults"),
            What::Sleeps(key) => format!("sleeps for {}", self.key(key)),
            What::Wakes => "goes on".to_string(),
            What::Spins => "spins".to_string(),
            What::Fetched { page, frame } => {
                format!("caches page {page:#x} in {} of itself", self.frame(*frame))
            }
            What::Evicted => "the TLB forgets everything".to_string(),
            What::GoesOut(store, block, frame) => {
                format!("{} begins to read {} for page {block}", of_store(*store), self.frame(*frame))
            }
            What::IsOut(store, block, ok) => {
                format!("{} has page {block}{}", of_store(*store), if *ok { "" } else { ": FAILED" })
            }
            What::IsIn(store, block, ok) => {
                format!("page {block} from {}{}", of_store(*store), if *ok { "" } else { ": FAILED" })
            }
            What::Says(text) => (*text).to_string(),
            What::Done => "has done its work".to_string(),
            What::Broken(invariant) => format!("*** {invariant}"),
        })
    }

    fn everywhere(&mut self, what: Everywhere) -> String {
        let pages = |range: PageRange| match range.pages {
            1 => format!("page {:#x}", range.start.0),
            pages => format!("{pages} pages from {:#x}", range.start.0),
        };
        match what {
            Everywhere::Pages { range, .. } => pages(range),
            Everywhere::Space { root } => format!("the tables in {}", self.frame(root)),
            Everywhere::Spaces => "all spaces".to_string(),
            Everywhere::KernelPages(range) => format!("kernel {}", pages(range)),
            Everywhere::Kernel => "all kernel pages".to_string(),
        }
    }

    fn key(&mut self, key: &WaitKey) -> String {
        if let WaitKey::Page(frame) = key { self.frame(*frame) } else { crate::machine::key(key) }
    }

    /// What of the core's events belongs to the story.
    fn event(&mut self, event: &Event, seen: &str) -> Option<String> {
        let matters =
            |names: &Self, frame| names.frames.contains(&frame) || seen.contains(&format!("{frame:?}"));
        Some(match *event {
            Event::Mapped { page, frame, .. } => format!("maps page {:#x} to {}", page.0, self.frame(frame)),
            Event::Unmapped { page, frame, deferred, .. } => {
                let later = if deferred { ", flush deferred" } else { "" };
                format!("clears the entry of page {:#x} ({}){later}", page.0, self.frame(frame))
            }
            Event::Cleaned { page, frame, .. } => {
                format!("makes page {:#x} ({}) clean and read-only", page.0, self.frame(frame))
            }
            Event::Freed { frame, .. } if matters(self, frame) => format!("frees {}", self.frame(frame)),
            Event::Taken { frame, kind, .. } if matters(self, frame) => {
                format!("takes {} for {kind:?}", self.frame(frame))
            }
            Event::Revoked { range, what, .. } => {
                let what = match what {
                    Revoked::All => "",
                    Revoked::Writes => ", writes",
                    Revoked::Execution => ", execution",
                };
                format!("promises: {} pages from {:#x}{what}", range.pages, range.start.0)
            }
            Event::RemoteFlush { reason, targets } => format!("asks {targets} CPUs to flush ({reason:?})"),
            Event::LazySkipped => "leaves a lazy CPU alone".to_string(),
            Event::BatchFlushed { pages, targets } => format!("flushed {pages} pages on {targets} others"),
            Event::DeferredCompleted => "completes what was deferred".to_string(),
            Event::Parked { pages } => format!("parks {pages} pages until a sweep is over"),
            Event::SweepBegun => "a sweep begins".to_string(),
            Event::Swept => "has taken part in the sweep".to_string(),
            Event::KernelSweepBegun => "a sweep of kernel pages begins".to_string(),
            Event::KernelSwept => "has taken part in the sweep of kernel pages".to_string(),
            Event::KernelSweepOver => "finds that all have taken part".to_string(),
            Event::FlushSpared { .. } => "owes no flush".to_string(),
            Event::FlushServed => "has flushed, as asked".to_string(),
            Event::CpuOffline => "is offline".to_string(),
            Event::CpuOnline => "is online".to_string(),
            Event::Copied => "copies the page".to_string(),
            Event::SwapLost => "the content is lost, and said so".to_string(),
            Event::VmapPurged { pages } => format!("purges {pages} kernel pages"),
            Event::Drained { frames, sent, .. } => format!("drains {frames} frames, asked {sent} CPUs"),
            _ => return None,
        })
    }
}

fn of_store(store: Store) -> String {
    match store {
        Store::File(n) => format!("file {}", n.index()),
        Store::Swap(n) => format!("swap {n}"),
    }
}
