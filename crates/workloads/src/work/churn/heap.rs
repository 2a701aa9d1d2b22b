//! A thread's heap: anonymous memory of its own, with all others' more than there is. It checks what comes back from swap
//! devices, and gives up what does not.

use alloc::vec;

use quietmm::{Advice, Backing, Error, NodeId, PageNumber, PageRange, Prot};

use super::ledger::Shown;
use super::{HEAP, Thread};
use crate::machine::Machine;

/// Pages between two heaps of a process: as many as two tables show.
const APART: u64 = 1024;
/// Where pages of a heap are moved for a while.
const ELSEWHERE: u64 = 512;
/// Pages of a run.
const RUN: u64 = 16;
/// Marks what a child writes.
const CHILD: u64 = 0xc41;

impl<M: Machine> Thread<'_, '_, M> {
    fn heap_page(&self, i: u64) -> PageNumber {
        PageNumber(HEAP + self.place * APART + i)
    }

    fn heap_range(&self, (first, count): (u64, u64)) -> PageRange {
        PageRange::new(self.heap_page(first), count)
    }

    /// A few pages side by side.
    fn some_heap(&mut self) -> (u64, u64) {
        let all = self.heap.len() as u64;
        let first = self.pick(all);
        (first, RUN.min(all - first))
    }

    /// Without memory for it there is none.
    pub(super) fn map_heap(&mut self) {
        let pages = self.world.heap.min(ELSEWHERE);
        if pages == 0 {
            return;
        }
        let (space, range) = (self.process.space, self.heap_range((0, pages)));
        let mapped =
            self.system.syscall(|mm| mm.space(space).map(range, Backing::Anonymous, Prot::ReadWrite));
        if self.did("map a heap", range.start, mapped, true) {
            self.heap = vec![0; pages as usize];
        }
    }

    pub(super) fn heap_step(&mut self) {
        let run = self.some_heap();
        let each = run.0..run.0 + run.1;
        match self.pick(16) {
            0..5 => each.for_each(|i| self.check_heap(i)),
            5..10 => each.for_each(|i| self.write_heap(i)),
            10..13 => {
                for _ in 0..RUN / 2 {
                    let i = self.pick(self.heap.len() as u64);
                    self.check_heap(i);
                }
            }
            13 => self.protect_heap(run),
            14 => {
                self.drop_heap(run);
                let node = NodeId(self.pick(self.world.nodes) as u16);
                let (space, range) = (self.process.space, self.heap_range(run));
                let done = self.system.syscall(|mm| mm.space(space).migrate(range, node).map(|_| ()));
                self.did("migrate a heap", range.start, done, true);
            }
            _ => self.move_heap(run),
        }
    }

    /// What a page of the heap showed at `at`: its content, or that it is lost, which goes for this page alone.
    fn judge_heap(&mut self, what: &str, i: u64, at: PageNumber, found: Result<u64, Error>) {
        let expected = Shown::Value(self.heap[i as usize]);
        match found {
            Ok(value) if Shown::Value(value) == expected => {}
            Err(Error::OutOfMemory) => {}
            Err(Error::SwapDevice(page)) if page == at => {
                // Once there is memory for that.
                while !self.drop_page(i, at) {
                    self.nap();
                }
            }
            other => {
                let found =
                    other.map_or_else(|error| Shown::of(Err(error)), |value| Some(Shown::Value(value)));
                self.wrong(what, at, found, expected);
            }
        }
    }

    pub(super) fn check_heap(&mut self, i: u64) {
        self.check_heap_at(i, self.heap_page(i));
    }

    fn check_heap_at(&mut self, i: u64, at: PageNumber) {
        let found = self.system.load(at.addr());
        self.judge_heap("loaded from its heap", i, at, found);
    }

    fn write_heap(&mut self, i: u64) {
        let (at, value) = (self.heap_page(i), self.fresh());
        match self.system.store(at.addr(), value) {
            Ok(()) => self.heap[i as usize] = value,
            Err(error) => self.judge_heap("stored to its heap", i, at, Err(error)),
        }
    }

    /// Gives up the content of one page; it shows zeros then.
    fn drop_page(&mut self, i: u64, at: PageNumber) -> bool {
        let (space, range) = (self.process.space, PageRange::new(at, 1));
        let done = self.system.syscall(|mm| mm.space(space).advise(range, Advice::Drop));
        let done = self.did("give up a page of a heap", at, done, true);
        if done {
            self.heap[i as usize] = 0;
        }
        done
    }

    fn drop_heap(&mut self, run: (u64, u64)) {
        let (space, range) = (self.process.space, self.heap_range(run));
        let done = self.system.syscall(|mm| mm.space(space).advise(range, Advice::Drop));
        if self.did("drop a heap's content", range.start, done, true) {
            self.heap[run.0 as usize..(run.0 + run.1) as usize].fill(0);
        }
    }

    /// What may only be read stays as it is, in memory or not.
    fn protect_heap(&mut self, run: (u64, u64)) {
        let (space, range) = (self.process.space, self.heap_range(run));
        let done = self.system.syscall(|mm| mm.space(space).protect(range, Prot::Read));
        if !self.did("protect a heap", range.start, done, true) {
            return;
        }
        (run.0..run.0 + run.1).for_each(|i| self.check_heap(i));
        let value = self.fresh();
        let stored = self.system.store(range.start.addr(), value);
        self.stored(range.start, stored, Some(Prot::Read));
        self.until_done("protect a heap", range.start, |mm| mm.space(space).protect(range, Prot::ReadWrite));
    }

    /// Elsewhere, and back.
    fn move_heap(&mut self, run: (u64, u64)) {
        let (space, range) = (self.process.space, self.heap_range(run));
        let there = self.heap_page(run.0 + ELSEWHERE);
        let done = self.system.syscall(|mm| mm.space(space).move_range(range, there));
        if !self.did("move a heap", range.start, done, true) {
            return;
        }
        for i in run.0..run.0 + run.1 {
            self.check_heap_at(i, self.heap_page(i + ELSEWHERE));
        }
        let moved = PageRange::new(there, run.1);
        self.until_done("move a heap back", there, |mm| mm.space(space).move_range(moved, range.start));
    }

    /// Again while memory is short.
    fn until_done(
        &mut self,
        what: &str,
        at: PageNumber,
        work: impl Fn(&quietmm::Manager<'_, M>) -> Result<(), Error>,
    ) {
        loop {
            let done = self.system.syscall(|mm| work(mm));
            let again = done == Err(Error::OutOfMemory);
            self.did(what, at, done, true);
            if !again {
                return;
            }
            self.nap();
        }
    }

    /// In a child, whose heap is its own from the fork on: what it writes the parent must not see.
    pub(super) fn use_heap_of_child(&mut self) {
        if self.heap.is_empty() {
            return;
        }
        let run = self.some_heap();
        for i in run.0..run.0 + run.1 {
            let (at, expected) = (self.heap_page(i), self.heap[i as usize]);
            let found = Shown::of(self.system.load(at.addr()));
            if found.is_some_and(|found| found != Shown::Value(expected)) {
                self.wrong("loaded from its child's heap", at, found, Shown::Value(expected));
            }
            if self.pick(2) == 0 {
                let _ = self.system.store(at.addr(), CHILD << 32 | i);
            }
        }
    }
}
