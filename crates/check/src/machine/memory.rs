//! The memory of the machine: real for tables and for the core's own, one number for each CPU where a page's content is.

use std::cell::Cell;

use quietmm::addr::{FrameNumber, PAGE_SIZE, PhysAddr};
use quietmm::platform::Store;
use quietmm_hardware::Arena;

/// CPUs at most, and so the numbers that a page holds: each CPU writes its own.
pub const LANES: usize = 4;

/// What a page of a program holds: a number of each CPU.
pub type Content = [u64; LANES];

/// The first frame. Not 0, so that a forgotten entry leads nowhere.
pub const BASE: u32 = 0x1000;

/// What the machine knows about a frame.
#[derive(Default)]
pub struct FrameState {
    /// How often it was freed: a translation that was cached in an earlier life is stale.
    pub life: Cell<u32>,
    /// In the allocator's hands.
    pub free: Cell<bool>,
    /// It holds content, not words.
    pub data: Cell<bool>,
    /// It is a page table, perhaps.
    pub table: Cell<bool>,
    /// It is the scenario's own: allocated by a script.
    pub lent: Cell<bool>,
    /// Devices that read from it now.
    pub going_out: Cell<u32>,
    /// Another device has written to it since one began to read it.
    pub device_wrote: Cell<bool>,
    /// Its content.
    pub content: Cell<Content>,
    /// The page of a file, or of a swap device, that it holds: it was read from there, or written there, in this life.
    pub holds: Cell<Option<(Store, u64)>>,
    /// Words of it were handed to the core since the memory was last wiped.
    dirty: Cell<bool>,
}

/// All frames.
pub struct Memory {
    arena: Arena,
    states: Vec<FrameState>,
    dirty: Cell<Vec<u32>>,
}

impl Memory {
    /// So many frames, all zeros.
    pub fn new(frames: u32) -> Memory {
        let arena = Arena::new(FrameNumber(BASE), frames).expect("a few megabytes");
        let states = (0..frames).map(|_| FrameState { free: Cell::new(true), ..FrameState::default() });
        Memory { arena, states: states.collect(), dirty: Cell::default() }
    }

    /// As it was when it was new.
    pub fn wipe(&self) {
        for state in &self.states {
            let life = state.life.get();
            if life != 0 || state.data.get() || state.lent.get() {
                state.content.set(Content::default());
            }
            state.life.set(0);
            state.free.set(true);
            state.data.set(false);
            state.table.set(false);
            state.lent.set(false);
            state.going_out.set(0);
            state.device_wrote.set(false);
            state.holds.set(None);
        }
        for frame in self.dirty.take() {
            self.states[frame as usize].dirty.set(false);
            // SAFETY: a frame of the block.
            unsafe {
                self.arena.start().add(frame as usize * PAGE_SIZE as usize).write_bytes(0, PAGE_SIZE as usize)
            };
        }
    }

    /// Whether every word is zero.
    pub fn is_wiped(&self) -> bool {
        let words = self.states.len() * (PAGE_SIZE as usize / 8);
        // SAFETY: the whole block, aligned, and initialised from the start.
        let words = unsafe { std::slice::from_raw_parts(self.arena.start().cast::<u64>(), words) };
        words.iter().all(|&word| word == 0)
    }

    /// What is known of a frame; nothing of one outside.
    pub fn state(&self, frame: FrameNumber) -> Option<&FrameState> {
        self.states.get(self.arena.index_of(frame)?)
    }

    /// From here on the page is in this frame. What swap keeps is of one page at a time: another that was there before is
    /// somewhere else by now. Of a file no page is ever another.
    pub fn set_holds(&self, frame: FrameNumber, store: Store, block: u64) {
        let page = Some((store, block));
        if let Store::Swap(_) = store {
            self.states
                .iter()
                .filter(|state| state.holds.get() == page)
                .for_each(|state| state.holds.set(None));
        }
        self.state(frame).into_iter().for_each(|state| state.holds.set(page));
    }

    /// Nothing is kept there any more.
    pub fn end_store(&self, store: Store) {
        let of_it = |state: &&FrameState| state.holds.get().is_some_and(|(its, _)| its == store);
        self.states.iter().filter(of_it).for_each(|state| state.holds.set(None));
    }

    /// The frame is not only touched by its content.
    pub fn will_be_written(&self, frame: FrameNumber) {
        let Some(index) = frame.0.checked_sub(BASE) else { return };
        if let Some(state) = self.states.get(index as usize)
            && !state.dirty.replace(true)
        {
            let mut dirty = self.dirty.take();
            dirty.push(index);
            self.dirty.set(dirty);
        }
    }

    /// Where a physical address is. Panics outside the memory: the core must never ask.
    pub fn direct(&self, at: PhysAddr) -> *mut u8 {
        self.will_be_written(FrameNumber((at.0 / PAGE_SIZE) as u32));
        self.arena.direct(at)
    }

    /// The frame in which an address of the host lies.
    pub fn frame_of(&self, at: *const u8) -> Option<FrameNumber> {
        self.arena.frame_of(at)
    }

    /// How far into the memory an address of the host lies.
    #[inline]
    pub fn offset_of(&self, at: *const u8) -> Option<u64> {
        self.arena.offset_of(at)
    }

    /// A word of a table; nothing outside the memory.
    pub fn word(&self, table: FrameNumber, index: usize) -> Option<*mut u64> {
        self.arena.word(table, index)
    }
}
