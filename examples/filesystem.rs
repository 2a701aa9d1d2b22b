//! A file system on the core, `files`, and what a kernel does with it: `read`, `write`, programs that map a file, `truncate`, holes, and
//! a disk that is full.
//!
//! The machine under it is that of the core's documentation, one CPU; the core's tests have several use it at once
//! (`crates/core/tests/suite/filesystem.rs`).
//!
//!     cargo run --example filesystem

mod files;

use std::cell::OnceCell;
use std::rc::Rc;

use files::{Disk, Files, FsError};
use quietmm::addr::PAGE_SIZE;
use quietmm::platform::Memory;
use quietmm::{
    Backing, Error, FileId, FrameNumber, Manager, PageNumber, PageRange, Prot, SpaceId, UserAccess,
};
use quietmm_doc::Host;

/// Where the program maps its file.
const AT: PageNumber = PageNumber(0x400);

/// A program of this space writes a byte at the start of a page: the page fault, and then the write.
fn store(mm: &Manager<'_, Host>, space: SpaceId, page: PageNumber, byte: u8) -> Result<(), Error> {
    mm.space(space).fault(page.addr(), UserAccess::Write)?;
    mm.platform().write_frame(mm.space(space).lookup(page)?.frame(), 0, &[byte]);
    Ok(())
}

fn shown_to_a_program(mm: &Manager<'_, Host>, file: FileId) -> Result<SpaceId, Error> {
    let space = mm.create_space()?;
    mm.space(space).map(PageRange::new(AT, 64), Backing::File { file, offset: 0 }, Prot::ReadWrite)?;
    Ok(space)
}

fn run(mm: &Manager<'_, Host>, disk: &Disk) -> Result<(), FsError> {
    let fs = Files { mm, disk };
    let (inode, notes) = (fs.create()?, fs.create_in_memory()?);
    fs.write(&notes, 0, b"never leaves memory")?;
    fs.write(&inode, 0, b"by a call")?;
    fs.truncate(&inode, 64 * PAGE_SIZE)?;
    println!("64 pages long, and {} of 16 blocks free", disk.free());

    let program = shown_to_a_program(mm, inode.file)?;
    let stored = (0..64).map(|page| store(mm, program, PageNumber(AT.0 + page), b'B'));
    let refused: Vec<Error> = stored.filter_map(Result::err).collect();
    println!("a program wrote to each: {} pages found no block, {} free", refused.len(), disk.free());
    assert_eq!((refused.len(), refused[0]), (48, Error::WriteRefused(PageNumber(AT.0 + 16))));
    assert_eq!(fs.write(&inode, 20 * PAGE_SIZE, b"neither does a call"), Err(FsError::NoSpace));

    fs.punch(&inode, PAGE_SIZE, 8 * PAGE_SIZE)?;
    println!("a hole of 8 pages: {} free", disk.free());
    store(mm, program, PageNumber(AT.0 + 20), b'C')?;
    fs.sync(&inode)?;
    mm.drain_lru_batch();
    let evicted = mm.file(inode.file).evict(0, 64)?;
    mm.space(program).destroy()?;
    let mut bytes = [0; 9];
    fs.read(&inode, 0, &mut bytes)?;
    println!("{evicted} pages evicted; read again: {:?}", String::from_utf8_lossy(&bytes));
    assert_eq!(&bytes, b"By a call");
    let mut words = [1; 2];
    fs.read(&inode, PAGE_SIZE, &mut words[..1])?;
    fs.read(&inode, 20 * PAGE_SIZE, &mut words[1..])?;
    assert_eq!(words, [0, b'C'], "a hole, and what came after");

    fs.remove(&inode)?;
    fs.remove(&notes)?;
    assert_eq!((disk.free(), disk.check()), (16, Ok(())));
    println!("removed, and all blocks are free");
    Ok(())
}

fn main() {
    let disk = OnceCell::new();
    quietmm_doc::doc_on(
        |memory| {
            let frame = move |frame: FrameNumber| memory.wrapping_add(frame.phys().0 as usize);
            Rc::<Disk>::clone(disk.get_or_init(|| Rc::new(Disk::new(16, frame))))
        },
        |mm| {
            run(mm, disk.get().expect("made before")).expect("the example holds");
            Ok(())
        },
    );
}
