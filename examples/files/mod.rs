//! A file system: files in memory, and files on a disk whose blocks are found when their pages are first written to.
//!
//! The core has the page cache, the mappings and the write-back. What is left for a file system is where a page lies, and whether there is
//! room for it. It is told so in two ways: its own calls (`write`, `truncate`, ...) find blocks before they make pages dirty, and
//! for programs that write through mappings the core asks by `page_mkwrite`. So a dirty page always has a block, and nothing that was
//! accepted is lost to a full disk.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use quietmm::addr::PAGE_SIZE;
use quietmm::platform::{BlockDevice, DeviceError, Store, WaitKey, WriteRefused};
use quietmm::{Error, FileId, FrameNumber, Manager, Platform};

type Page = [u8; PAGE_SIZE as usize];

/// An array of blocks, each of a page. One lock guards all of it; nothing is waited for under it, so the core may call with a page locked.
pub struct Disk {
    /// Where a frame lies: what a real disk's controller knows.
    frames: Box<dyn Fn(FrameNumber) -> *mut u8>,
    state: Mutex<State>,
}

struct State {
    blocks: Vec<Page>,
    free: Vec<usize>,
    /// The files on it, and where their pages lie. Files that are not here are in memory only.
    files: BTreeMap<FileId, BTreeMap<u64, Place>>,
    /// Pages that came to be written and had no block: none, if the core asks each time.
    homeless: u64,
}

/// Where a page lies.
struct Place {
    block: usize,
    /// Until its first write it is zeros, whatever the block holds.
    written: bool,
}

impl Disk {
    pub fn new(blocks: usize, frames: impl Fn(FrameNumber) -> *mut u8 + 'static) -> Disk {
        let state = State {
            blocks: vec![[0; PAGE_SIZE as usize]; blocks],
            free: (0..blocks).collect(),
            files: BTreeMap::new(),
            homeless: 0,
        };
        Disk { frames: Box::new(frames), state: Mutex::new(state) }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().expect("nobody panics with it")
    }

    /// Blocks that are nobody's.
    pub fn free(&self) -> usize {
        self.state().free.len()
    }

    /// Finds a block for each of these pages that has none; for all or for none of them.
    fn reserve(&self, file: FileId, pages: Range<u64>) -> Result<(), FsError> {
        let State { free, files, .. } = &mut *self.state();
        let Some(places) = files.get_mut(&file) else { return Ok(()) };
        let without: Vec<u64> = pages.filter(|page| !places.contains_key(page)).collect();
        if without.len() > free.len() {
            return Err(FsError::NoSpace);
        }
        let blocks = free.drain(free.len() - without.len()..);
        places.extend(without.into_iter().zip(blocks.map(|block| Place { block, written: false })));
        Ok(())
    }

    /// What does not add up: a block that two pages have, or nobody; a page that came to be written without one.
    pub fn check(&self) -> Result<(), String> {
        let state = self.state();
        let used = state.files.values().flat_map(BTreeMap::values).map(|place| place.block);
        let mut all: Vec<usize> = used.chain(state.free.iter().copied()).collect();
        all.sort_unstable();
        if !all.iter().copied().eq(0..state.blocks.len()) {
            return Err("a block that two have, or nobody".into());
        }
        match state.homeless {
            0 => Ok(()),
            pages => Err(format!("{pages} pages were to be written, and had no block")),
        }
    }
}

impl BlockDevice for Disk {
    fn read(&self, from: Store, page: u64, frame: FrameNumber) -> Result<(), DeviceError> {
        let Store::File(file) = from else { return Err(DeviceError::Failed) };
        let state = self.state();
        let place = state.files.get(&file).and_then(|places| places.get(&page)).filter(|place| place.written);
        let content = place.map_or(&[0; PAGE_SIZE as usize], |place| &state.blocks[place.block]);
        // SAFETY: the core lends the frame, which is a page long, until this returns.
        unsafe { (self.frames)(frame).copy_from(content.as_ptr(), content.len()) };
        Ok(())
    }

    fn write(&self, to: Store, page: u64, frame: FrameNumber) -> Result<(), DeviceError> {
        let Store::File(file) = to else { return Err(DeviceError::Failed) };
        let State { blocks, files, homeless, .. } = &mut *self.state();
        // What is in memory only stays there, dirty.
        let places = files.get_mut(&file).ok_or(DeviceError::Failed)?;
        let Some(place) = places.get_mut(&page) else {
            *homeless += 1;
            return Err(DeviceError::Failed);
        };
        place.written = true;
        let content = &mut blocks[place.block];
        // SAFETY: as above; nobody writes to it meanwhile (INV-2).
        unsafe { (self.frames)(frame).copy_to(content.as_mut_ptr(), content.len()) };
        Ok(())
    }

    fn discard(&self, file: FileId, pages: Range<u64>) -> Result<(), DeviceError> {
        let State { free, files, .. } = &mut *self.state();
        let Some(places) = files.get_mut(&file) else { return Ok(()) };
        free.extend(places.extract_if(pages, |_, _| true).map(|(_, place)| place.block));
        Ok(())
    }

    fn page_mkwrite(&self, file: FileId, page: u64) -> Result<(), WriteRefused> {
        self.reserve(file, page..page + 1).map_err(|_| WriteRefused)
    }

    fn end(&self, store: Store) {
        let State { free, files, .. } = &mut *self.state();
        let Store::File(file) = store else { return };
        free.extend(files.remove(&file).into_iter().flatten().map(|(_, place)| place.block));
    }
}

/// What a call of the file system may say.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FsError {
    /// The disk is full.
    NoSpace,
    /// What the core said.
    Core(Error),
}

impl From<Error> for FsError {
    fn from(error: Error) -> Self {
        FsError::Core(error)
    }
}

/// A file, as long as somebody has it.
pub struct Inode {
    /// What to map.
    pub file: FileId,
    /// Somebody changes it: from the search for blocks to the write nobody else takes them away.
    busy: AtomicBool,
}

/// The file system's calls.
pub struct Files<'a, 'p, P: Platform> {
    pub mm: &'a Manager<'p, P>,
    pub disk: &'a Disk,
}

/// An inode is this task's until this is dropped.
struct Alone<'a, P: Platform>(&'a Inode, &'a P);

impl<P: Platform> Drop for Alone<'_, P> {
    fn drop(&mut self) {
        self.0.busy.store(false, Ordering::Release);
        self.1.wake(WaitKey::Own(self.0.file.index().into()));
    }
}

/// The page in which a byte lies, unless that is its first.
fn cut_page(at: u64) -> Range<u64> {
    at / PAGE_SIZE..at.div_ceil(PAGE_SIZE)
}

impl<'a, P: Platform> Files<'a, '_, P> {
    /// A new file, empty, whose pages never leave memory.
    pub fn create_in_memory(&self) -> Result<Inode, FsError> {
        let file = self.mm.create_file(1)?;
        self.mm.file(file).set_size(0)?;
        Ok(Inode { file, busy: AtomicBool::new(false) })
    }

    /// A new file on the disk, empty.
    pub fn create(&self) -> Result<Inode, FsError> {
        let inode = self.create_in_memory()?;
        self.disk.state().files.insert(inode.file, BTreeMap::new());
        self.mm.file(inode.file).watch_writes()?;
        Ok(inode)
    }

    /// A kernel's own sleeping lock.
    fn alone<'i>(&self, inode: &'i Inode) -> Alone<'i, P>
    where
        'a: 'i,
    {
        let p = self.mm.platform();
        p.wait(WaitKey::Own(inode.file.index().into()), &mut || !inode.busy.swap(true, Ordering::Acquire));
        Alone(inode, p)
    }

    pub fn read(&self, inode: &Inode, at: u64, into: &mut [u8]) -> Result<usize, FsError> {
        Ok(self.mm.file(inode.file).read(at, into)?)
    }

    /// Writes; the file becomes longer where it has to.
    pub fn write(&self, inode: &Inode, at: u64, from: &[u8]) -> Result<usize, FsError> {
        let (_alone, file) = (self.alone(inode), self.mm.file(inode.file));
        let (old, end) = (file.size()?, at + from.len() as u64);
        if end > old {
            // First: what a file gains has no blocks.
            self.set_size(inode, old, end)?;
        }
        let pages = at / PAGE_SIZE..end.div_ceil(PAGE_SIZE);
        let written = self.disk.reserve(inode.file, pages).and_then(|()| Ok(file.write(at, from)?));
        let reached = at + written.unwrap_or(0) as u64;
        if end > old && reached < end {
            self.set_size(inode, end, if written.is_ok() { reached.max(old) } else { old })?;
        }
        written
    }

    pub fn truncate(&self, inode: &Inode, len: u64) -> Result<(), FsError> {
        let _alone = self.alone(inode);
        self.set_size(inode, self.mm.file(inode.file).size()?, len)
    }

    /// The page in which the shorter length ends gets zeros behind it, and so is dirty.
    fn set_size(&self, inode: &Inode, old: u64, len: u64) -> Result<(), FsError> {
        self.disk.reserve(inode.file, cut_page(old.min(len)))?;
        Ok(self.mm.file(inode.file).set_size(len)?)
    }

    /// Makes bytes zeros, and lets go of the blocks of whole pages.
    pub fn punch(&self, inode: &Inode, at: u64, len: u64) -> Result<(), FsError> {
        let (_alone, file) = (self.alone(inode), self.mm.file(inode.file));
        let end = (at + len).min(file.size()?.next_multiple_of(PAGE_SIZE));
        if at >= end {
            return Ok(());
        }
        // The pages at both ends stay, and become dirty.
        [at, end].into_iter().try_for_each(|edge| self.disk.reserve(inode.file, cut_page(edge)))?;
        Ok(file.punch_hole(at, end - at)?)
    }

    /// Has all of a file on the disk.
    pub fn sync(&self, inode: &Inode) -> Result<(), FsError> {
        self.mm.file(inode.file).write_back()?;
        Ok(())
    }

    /// Ends a file, which nobody maps.
    pub fn remove(&self, inode: &Inode) -> Result<(), FsError> {
        let _alone = self.alone(inode);
        Ok(self.mm.file(inode.file).destroy()?)
    }
}
