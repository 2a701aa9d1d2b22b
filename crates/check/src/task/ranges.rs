//! Operations on ranges, and what they do to what programs expect.

use quietmm::addr::{NodeId, PAGE_SIZE};
use quietmm::{Advice, Error, NodeSet, PageNumber, Prot};

use super::{Task, range};

impl Task<'_> {
    /// Unmaps pages; what was written there is given up.
    pub fn unmap(&self, n: usize, page: u64, pages: u64) {
        let id = self.space(n);
        self.must("unmap", |mm| mm.space(id).unmap(range(page, pages)));
        self.forget(n, page, pages);
    }

    /// Changes what may be done with pages.
    pub fn protect(&self, n: usize, page: u64, pages: u64, prot: Prot) {
        let id = self.space(n);
        self.must("protect", |mm| mm.space(id).protect(range(page, pages), prot));
    }

    /// Says what pages will be used for.
    pub fn advise(&self, n: usize, page: u64, pages: u64, advice: Advice) {
        let id = self.space(n);
        self.must("advise", |mm| mm.space(id).advise(range(page, pages), advice));
    }

    /// Gives up what is in pages; of a file's pages that is nothing.
    pub fn drop_pages(&self, n: usize, page: u64, pages: u64) {
        self.advise(n, page, pages, Advice::Drop);
    }

    /// Moves pages elsewhere, with what was written there.
    pub fn move_pages(&self, n: usize, from: u64, pages: u64, to: u64) {
        let id = self.space(n);
        self.machine.watch(to, pages);
        self.must("move_range", |mm| mm.space(id).move_range(range(from, pages), PageNumber(to)));
        self.moved(n, from, to, pages);
    }

    /// Makes the small pages of an aligned 2 MiB a large one, if they may be and there is a frame.
    pub fn collapse(&self, n: usize, page: u64) {
        let id = self.space(n);
        let _ = self.call("advise", |mm| mm.space(id).advise(range(page, 512), Advice::Collapse));
    }

    /// Gives the page tables of a space back in which nothing is left.
    pub fn free_empty_tables(&self, n: usize) {
        let id = self.space(n);
        self.must("free_empty_tables", |mm| mm.space(id).free_empty_tables());
    }

    /// Moves pages to frames of another node; returns how many went.
    pub fn migrate(&self, n: usize, page: u64, pages: u64, node: u16) -> u64 {
        let id = self.space(n);
        self.must("migrate", |mm| mm.space(id).migrate(range(page, pages), NodeId(node)))
    }

    /// Moves pages to frames of another node, whoever else shows them.
    pub fn migrate_all(&self, n: usize, page: u64, pages: u64, node: u16) {
        let (id, from) = (self.space(n), NodeSet::of(&[NodeId(0), NodeId(1)]).expect("two nodes"));
        let _ =
            self.must("migrate_all", |mm| mm.space(id).migrate_all(range(page, pages), from, NodeId(node)));
    }

    /// Moves all cached pages of a file to frames of another node.
    pub fn migrate_file(&self, n: usize, node: u16) {
        let (id, from) = (self.file(n), NodeSet::of(&[NodeId(0), NodeId(1)]).expect("two nodes"));
        let _ = self.must("migrate_file", |mm| mm.file(id).migrate(0, u64::MAX, from, NodeId(node)));
    }

    /// Forks a space; returns the child's number in the world. What the child must see is for the script to say.
    pub fn fork(&self, n: usize) -> usize {
        let id = self.space(n);
        let child = self.must("fork", |mm| mm.space(id).fork());
        self.world.spaces.borrow_mut().push(child);
        self.world.spaces.borrow().len() - 1
    }

    /// Ends a space, unless somebody runs there.
    pub fn end(&self, n: usize) -> Result<(), Error> {
        let id = self.space(n);
        self.call("destroy_space", |mm| mm.space(id).destroy())?;
        self.forget(n, 0, u64::MAX);
        Ok(())
    }

    /// Flushes a space.
    pub fn flush(&self, n: usize) {
        let id = self.space(n);
        self.must("flush_space", |mm| mm.space(id).flush());
    }

    /// Writes a file's dirty pages out; returns how many.
    pub fn write_back(&self, file: usize) -> u64 {
        let id = self.file(file);
        self.must("write_back", |mm| mm.file(id).write_back())
    }

    /// What the kernel's flusher does each time.
    pub fn flush_dirty(&self) -> u64 {
        self.must("flusher", |mm| Ok(mm.flusher()))
    }

    /// Pages of files that are dirty.
    pub fn dirty_pages(&self) -> u64 {
        self.mm.dirty_pages()
    }

    /// Makes a file as long as so many pages.
    pub fn set_file_len(&self, file: usize, pages: u64) {
        let id = self.file(file);
        self.must("set_file_len", |mm| mm.file(id).set_size(pages * PAGE_SIZE));
    }

    /// Makes so many pages of a file a hole.
    pub fn punch_hole(&self, file: usize, first: u64, pages: u64) {
        let id = self.file(file);
        self.must("punch_hole", |mm| mm.file(id).punch_hole(first * PAGE_SIZE, pages * PAGE_SIZE));
    }

    /// The kernel writes this CPU's number of a page of a file, by copy.
    pub fn write_file(&self, file: usize, page: u64, value: u64) {
        let (id, at) = (self.file(file), page * PAGE_SIZE + 8 * u64::from(self.id));
        self.must("write_file", |mm| mm.file(id).write(at, &value.to_ne_bytes()));
    }

    /// The same of every CPU's number.
    pub fn write_file_page(&self, file: usize, page: u64, value: u64) {
        let (id, whole) = (self.file(file), value.to_ne_bytes().repeat(PAGE_SIZE as usize / 8));
        self.must("write_file_page", |mm| mm.file(id).write(page * PAGE_SIZE, &whole));
    }

    /// Reads this CPU's number.
    pub fn read_file(&self, file: usize, page: u64) -> u64 {
        let (id, at, mut word) = (self.file(file), page * PAGE_SIZE + 8 * u64::from(self.id), [0; 8]);
        self.must("read_file", |mm| mm.file(id).read(at, &mut word));
        u64::from_ne_bytes(word)
    }
}
