//! The heap of tasks and reports: blocks whose sizes are powers of two, each aligned to its size. A block that is too large is halved,
//! and halves that are both free become one again.
//!
//! A part of it is kept back for when the rest has no such block, however much is free there: what programs have the kernel keep may lie
//! between all that they let go of, and what a call needs while it runs is still to be had.

use core::alloc::{GlobalAlloc, Layout};
use core::ptr;
use core::sync::atomic::{AtomicUsize, Ordering};

use crate::lock::Lock;

const SMALLEST: u32 = 4;
const LARGEST: u32 = 26;
const CLASSES: usize = (LARGEST + 1) as usize;
/// Marks the first unit of a free block, with its class; all others have 0.
const FREE: u8 = 0x80;

/// What a free block begins with: its neighbours on the list of its class. 0 is nobody.
#[repr(C)]
struct Links {
    next: usize,
    last: usize,
}

struct Blocks {
    lists: [usize; CLASSES],
    /// A byte for each of the smallest blocks from `start` on.
    tags: *mut u8,
    start: usize,
    end: usize,
    left: usize,
}

// SAFETY: the blocks belong to whoever has this, which the lock decides.
unsafe impl Send for Blocks {}

/// The heap; empty until [`give`].
#[derive(Default)]
pub struct Heap;

const NONE: Blocks = Blocks { lists: [0; CLASSES], tags: ptr::null_mut(), start: 0, end: 0, left: 0 };
static BLOCKS: Lock<Blocks> = Lock::new(NONE);
static RESERVE: Lock<Blocks> = Lock::new(NONE);
static SIZE: AtomicUsize = AtomicUsize::new(0);
/// Where what is kept back begins: behind all else.
static BACK: AtomicUsize = AtomicUsize::new(usize::MAX);

impl Blocks {
    fn links(&mut self, block: usize) -> *mut Links {
        debug_assert!(block >= self.start && block < self.end);
        ptr::with_exposed_provenance_mut(block)
    }

    fn tag(&mut self, block: usize) -> *mut u8 {
        // SAFETY: there is a byte for each unit of the heap.
        unsafe { self.tags.add((block - self.start) >> SMALLEST) }
    }

    fn push(&mut self, block: usize, class: u32) {
        let head = self.lists[class as usize];
        // SAFETY: a free block is nobody's, and has room for its links; so has the one that was first.
        unsafe {
            self.links(block).write(Links { next: head, last: 0 });
            if head != 0 {
                (*self.links(head)).last = block;
            }
            self.tag(block).write(FREE | class as u8);
        }
        self.lists[class as usize] = block;
        self.left += 1 << class;
    }

    fn take(&mut self, block: usize, class: u32) {
        // SAFETY: it is free, so its links and those of its neighbours are what `push` wrote.
        unsafe {
            let Links { next, last } = self.links(block).read();
            match last {
                0 => self.lists[class as usize] = next,
                last => (*self.links(last)).next = next,
            }
            if next != 0 {
                (*self.links(next)).last = last;
            }
            self.tag(block).write(0);
        }
        self.left -= 1 << class;
    }

    fn get(&mut self, class: u32) -> Option<usize> {
        let from = (class..=LARGEST).find(|&from| self.lists[from as usize] != 0)?;
        let block = self.lists[from as usize];
        self.take(block, from);
        (class..from).rev().for_each(|half| self.push(block + (1 << half), half));
        Some(block)
    }

    /// The first part is for what is kept about the rest.
    fn give(&mut self, start: usize, bytes: usize) {
        let tags = (bytes >> SMALLEST).next_multiple_of(1 << 12);
        self.tags = ptr::with_exposed_provenance_mut(start);
        // SAFETY: the caller's, and nobody uses it yet.
        unsafe { self.tags.write_bytes(0, tags) };
        (self.start, self.end) = (start + tags, start + bytes);
        let mut at = self.start;
        while at + (1 << SMALLEST) <= self.end {
            let class = at.trailing_zeros().min((self.end - at).ilog2()).min(LARGEST);
            self.push(at, class);
            at += 1 << class;
        }
    }

    fn put(&mut self, mut block: usize, mut class: u32) {
        while class < LARGEST {
            let other = block ^ 1 << class;
            if other < self.start || other + (1 << class) > self.end {
                break;
            }
            // SAFETY: a tag of this heap.
            if unsafe { self.tag(other).read() } != FREE | class as u8 {
                break;
            }
            self.take(other, class);
            block = block.min(other);
            class += 1;
        }
        self.push(block, class);
    }
}

/// Hands over a run of memory, once: a sixteenth is kept back.
pub fn give(start: usize, bytes: usize) {
    let reserve = bytes / 16;
    RESERVE.with(|blocks| blocks.give(start + bytes - reserve, reserve));
    BACK.store(start + bytes - reserve, Ordering::Relaxed);
    BLOCKS.with(|blocks| {
        blocks.give(start, bytes - reserve);
        SIZE.store(blocks.left, Ordering::Relaxed);
    });
}

/// Bytes that are free.
pub fn left() -> usize {
    BLOCKS.with(|blocks| blocks.left)
}

/// Whether so many can be had in one piece.
pub fn has_piece(bytes: usize) -> bool {
    let class = bytes.next_power_of_two().trailing_zeros();
    BLOCKS.with(|blocks| (class..=LARGEST).any(|class| blocks.lists[class as usize] != 0))
}

/// Bytes that there are.
pub fn size() -> usize {
    SIZE.load(Ordering::Relaxed)
}

impl Heap {
    /// Empty.
    pub const fn new() -> Self {
        Heap
    }
}

fn class(layout: Layout) -> u32 {
    layout.size().max(layout.align()).next_power_of_two().trailing_zeros().max(SMALLEST)
}

// SAFETY: a block is on no list while it is in use, is as large as its class, and is aligned to its size.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let class = class(layout);
        let get = |from: &Lock<Blocks>| from.with(|blocks| blocks.get(class));
        let block = if class > LARGEST { None } else { get(&BLOCKS).or_else(|| get(&RESERVE)) };
        block.map_or(ptr::null_mut(), ptr::with_exposed_provenance_mut)
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        let block = block.expose_provenance();
        let from = if block >= BACK.load(Ordering::Relaxed) { &RESERVE } else { &BLOCKS };
        from.with(|blocks| blocks.put(block, class(layout)));
    }
}
