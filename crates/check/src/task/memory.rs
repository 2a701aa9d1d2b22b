//! What a script's program does: read and write, and what it may expect to find.

use quietmm::{Backing, Error, FileId, PageNumber, Prot, SpaceId, UserAccess};

use super::{Task, range};
use crate::machine::What;

/// Faults at one access after which it will never succeed.
pub(super) const FAULTS: u32 = 50;

impl Task<'_> {
    /// The `n`th space.
    pub fn space(&self, n: usize) -> SpaceId {
        self.world.spaces.borrow()[n]
    }

    /// The `n`th file.
    pub fn file(&self, n: usize) -> FileId {
        self.world.files.borrow()[n]
    }

    /// Makes a space; returns its number in the world.
    pub fn create_space(&self) -> usize {
        let id = self.must("create_space", |mm| mm.create_space());
        self.world.spaces.borrow_mut().push(id);
        self.world.spaces.borrow().len() - 1
    }

    /// Makes a file of so many pages; returns its number in the world.
    pub fn create_file(&self, pages: u64) -> usize {
        let id = self.must("create_file", |mm| mm.create_file(pages));
        self.world.files.borrow_mut().push(id);
        self.world.files.borrow().len() - 1
    }

    /// The same of one that goes to swap.
    pub fn create_memory_file(&self, pages: u64) -> usize {
        let id = self.must("create_memory_file", |mm| mm.create_memory_file(pages));
        self.world.files.borrow_mut().push(id);
        self.world.files.borrow().len() - 1
    }

    /// The same, and its file system is asked before a program writes to it.
    pub fn create_watched_file(&self, pages: u64) -> usize {
        let file = self.create_file(pages);
        let id = self.file(file);
        self.must("watch_writes", |mm| mm.file(id).watch_writes());
        self.machine.asking.borrow_mut().insert(id);
        file
    }

    /// Maps anonymous memory in the `n`th space, to read and write.
    pub fn map(&self, n: usize, page: u64, pages: u64) {
        self.map_as(n, page, pages, Backing::Anonymous, Prot::ReadWrite);
    }

    /// Maps whatever it is.
    pub fn map_as(&self, n: usize, page: u64, pages: u64, backing: Backing, prot: Prot) {
        let id = self.space(n);
        self.machine.watch(page, pages);
        self.must("map", |mm| mm.space(id).map(range(page, pages), backing, prot));
    }

    /// The page is mapped, and no program has used it yet.
    pub fn bring(&self, n: usize, page: u64) {
        let id = self.space(n);
        self.must("fault", |mm| mm.space(id).fault(PageNumber(page).addr(), UserAccess::Read));
    }

    /// The kernel reads this CPU's number in a page for the program, as in a system call; an error where that is not allowed.
    pub fn kernel_peek(&self, n: usize, page: u64) -> Result<u64, Error> {
        self.try_until(n, page, UserAccess::Read, || self.machine.kernel_reads(page))
    }

    /// The program reads its own number in a page; an error where that is not allowed (any more).
    pub fn peek(&self, n: usize, page: u64) -> Result<u64, Error> {
        self.access(n, page, None)
    }

    /// The same, and it must be what this CPU wrote last.
    pub fn read(&self, n: usize, page: u64) -> Result<(), Error> {
        let found = self.peek(n, page)?;
        let key = (self.space(n), page, self.id);
        let wanted = self.world.ledger.borrow().get(&key).copied();
        if let Some(wanted) = wanted.filter(|&wanted| wanted != found) {
            self.fail(
                "content",
                format!("CPU {} reads {found} from page {page:#x}, and wrote {wanted}", self.id),
            );
        }
        Ok(())
    }

    /// The program writes a new number there.
    pub fn write(&self, n: usize, page: u64) -> Result<(), Error> {
        let value = self.world.written.get() + 1;
        self.world.written.set(value);
        self.access(n, page, Some(value))?;
        self.world.ledger.borrow_mut().insert((self.space(n), page, self.id), value);
        Ok(())
    }

    /// What was written to these pages is given up.
    pub fn forget(&self, n: usize, page: u64, pages: u64) {
        let space = self.space(n);
        self.world
            .ledger
            .borrow_mut()
            .retain(|key, _| key.0 != space || !(page..page + pages).contains(&key.1));
    }

    /// What was written in one space can be read in another: after a fork.
    pub fn inherit(&self, from: usize, to: usize) {
        let (from, to) = (self.space(from), self.space(to));
        let mut ledger = self.world.ledger.borrow_mut();
        let copies: Vec<_> = ledger
            .iter()
            .filter(|(key, _)| key.0 == from)
            .map(|(key, &value)| ((to, key.1, key.2), value))
            .collect();
        ledger.extend(copies);
    }

    /// What was written at some pages is at others from now on.
    pub fn moved(&self, n: usize, from: u64, to: u64, pages: u64) {
        let space = self.space(n);
        let mut ledger = self.world.ledger.borrow_mut();
        for page in 0..pages {
            for lane in 0..self.machine.setup().cpus {
                if let Some(value) = ledger.remove(&(space, from + page, lane)) {
                    // What was written there since the pages are there is newer.
                    ledger.entry((space, to + page, lane)).or_insert(value);
                }
            }
        }
    }

    /// The program executes what lies in a page; an error where that is not allowed (any more).
    pub fn execute(&self, n: usize, page: u64) -> Result<u64, Error> {
        self.try_until(n, page, UserAccess::Execute, || self.machine.fetch_from(page))
    }

    fn access(&self, n: usize, page: u64, write: Option<u64>) -> Result<u64, Error> {
        let access = if write.is_some() { UserAccess::Write } else { UserAccess::Read };
        self.try_until(n, page, access, || self.machine.access(page, write))
    }

    /// Tries it, and again after each fault.
    fn try_until(
        &self,
        n: usize,
        page: u64,
        access: UserAccess,
        access_it: impl Fn() -> Option<u64>,
    ) -> Result<u64, Error> {
        let id = self.space(n);
        for _ in 0..FAULTS {
            if self.mm_loaded() != Some(id) || !self.machine.cpu().user.get() {
                return Err(Error::NoSuchSpace);
            }
            if let Some(value) = access_it() {
                return Ok(value);
            }
            self.machine.note(|| What::Fault(page));
            self.call("fault", |mm| mm.space(id).fault(PageNumber(page).addr(), access))?;
        }
        self.fail("livelock", format!("page {page:#x} faults again and again"))
    }

    /// What is loaded here, without a point.
    fn mm_loaded(&self) -> Option<SpaceId> {
        let running = self.machine.running.replace(false);
        let loaded = self.mm.loaded_space();
        self.machine.running.set(running);
        loaded
    }
}
