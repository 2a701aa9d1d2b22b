//! What the hardware of a CPU does: it walks tables, keeps what it found, and uses frames by it.

use std::sync::atomic::AtomicU64;

use loom::sync::atomic::Ordering;
use quietmm::addr::{PageNumber, PhysAddr};
use quietmm::step::{Shared, Step};
use quietmm::{Architecture, Entry, FrameNumber};
use quietmm_hardware::{Access, Found, Rules, walk};

use super::Machine;
use quietmm::platform::Memory;

/// Of the models' machine: an entry's word is the entry.
const ARCHITECTURE: Architecture = Architecture::X86_64;

impl Machine {
    fn entry_word(&self, table: FrameNumber, index: usize) -> &AtomicU64 {
        let at = self.direct(PhysAddr(table.phys().0 + 8 * index as u64));
        // SAFETY: inside the memory (`direct` checks), aligned, and only used as an atomic.
        unsafe { AtomicU64::from_ptr(at.cast()) }
    }

    fn walk(&self, root: FrameNumber, page: u64) -> Option<FrameNumber> {
        self.walk_and_set(root, page, Access::kernel(false))
    }

    /// The frame of a page whose entry permits this, and in which the bits for it are set by then: in one step with the look.
    fn walk_and_set(&self, root: FrameNumber, page: u64, access: Access) -> Option<FrameNumber> {
        let leaf = walk(ARCHITECTURE, root, PageNumber(page), |_, table, index| {
            self.use_frame(table, false);
            // Acquire: hardware reads the next table by what it found in this one.
            let word = Shared::Wide(self.entry_word(table, index));
            Some(self.words.step(word, Step::Load, Ordering::Acquire).unwrap_or_default())
        })?;
        let (word, mut entry) = (self.entry_word(leaf.table, leaf.index), leaf.entry);
        let rules = Rules { architecture: ARCHITECTURE, clean_write_walks: true };
        while let Found::Use { sets } = rules.found(entry, access) {
            if sets == 0 {
                return Some(entry.frame());
            }
            let set = Step::Replace(entry.0, entry.0 | sets);
            // Relaxed: hardware orders nothing by it.
            match self.words.step(Shared::Wide(word), set, Ordering::Relaxed) {
                Ok(_) => return Some(entry.frame()),
                Err(now) => entry = Entry(now),
            }
        }
        None
    }

    /// The hardware of this CPU walks the tables of the space that is loaded, as it may at any time.
    #[track_caller]
    pub fn walk_loaded(&self) {
        let root = self.here().tlb.borrow().root;
        root.into_iter().for_each(|root| self.use_frame(root, false));
    }

    /// This CPU reads a page of its space through its TLB; returns its frame. `None` is a page fault.
    #[track_caller]
    pub fn read(&self, page: u64) -> Option<FrameNumber> {
        let tlb = &self.here().tlb;
        let (root, tag) = (tlb.borrow().root?, tlb.borrow().tag);
        let cached = tlb.borrow().cached.get(&(tag, page)).copied();
        let frame = match cached {
            Some((frame, _)) => frame,
            None => {
                let frame = self.walk(root, page)?;
                tlb.borrow_mut().cached.insert((tag, page), (frame, false));
                frame
            }
        };
        self.use_frame(frame, false);
        Some(frame)
    }

    /// The same with a write: what is cached counts if it was written through before; else the tables are walked, and the
    /// entry's dirty bit is set in one step, if it still permits that.
    #[track_caller]
    pub fn write(&self, page: u64) -> Option<FrameNumber> {
        let tlb = &self.here().tlb;
        let (root, tag) = (tlb.borrow().root?, tlb.borrow().tag);
        let cached = tlb.borrow().cached.get(&(tag, page)).copied();
        let frame = match cached {
            Some((frame, true)) => frame,
            _ => {
                let frame = self.walk_and_set(root, page, Access::user(true))?;
                tlb.borrow_mut().cached.insert((tag, page), (frame, true));
                frame
            }
        };
        self.use_frame(frame, true);
        Some(frame)
    }

    /// The same with a kernel page.
    #[track_caller]
    pub fn read_kernel(&self, page: PageNumber) -> Option<FrameNumber> {
        let tlb = &self.here().tlb;
        let root = self.kernel_root.get()?;
        let cached = tlb.borrow().kernel.get(&page.0).copied();
        let frame = match cached {
            Some(frame) => frame,
            None => {
                let frame = self.walk(root, page.0)?;
                tlb.borrow_mut().kernel.insert(page.0, frame);
                frame
            }
        };
        self.use_frame(frame, false);
        Some(frame)
    }

    /// A word of a frame, for what CPUs of a model tell each other.
    #[track_caller]
    pub fn word(&self, frame: FrameNumber, step: Step, order: Ordering) -> u64 {
        // SAFETY: the first word of a frame (`direct` checks) that a case has for this, only used as an atomic.
        let word = unsafe { AtomicU64::from_ptr(self.direct(frame.phys()).cast()) };
        self.words.step(Shared::Wide(word), step, order).unwrap_or_default()
    }
}
