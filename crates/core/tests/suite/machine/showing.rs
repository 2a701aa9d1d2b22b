//! Spaces that show something, and what CPUs read and write in them.

use quietmm::{Backing, Entry, Error, FileId, FrameNumber, NodeId, PageNumber, Prot, Region, SpaceId};

use super::{Mm, Setup, pages};

pub const ANON: Backing = Backing::Anonymous;
pub const AT: u64 = 0xfff8; // 8 pages before the end of a table, and before numbers of more than 16 bits
pub const TO: u64 = 0x23f0;
/// The start of a large page.
pub const LARGE: u64 = 0x40000;

pub fn shared(file: FileId) -> Backing {
    Backing::File { file, offset: 0 }
}

pub fn private(file: FileId) -> Backing {
    Backing::Private { file, offset: 0 }
}

/// Something done to a space.
pub type Operation = fn(&Mm<'_>, SpaceId);

/// A space of this backing at `AT`, loaded on CPU 0.
pub fn mapped(mm: &Mm<'_>, backing: Backing, count: u64) -> SpaceId {
    let id = mm.create_space().unwrap();
    mm.space(id).map(pages(AT, count), backing, Prot::ReadWrite).unwrap();
    mm.space(id).switch_to().unwrap();
    id
}

pub fn write_all(mm: &Mm<'_>, id: SpaceId, count: u64) {
    (AT..AT + count).for_each(|page| mm.platform().write(mm, id, page, page).unwrap());
}

/// What a CPU that runs in the space reads.
pub fn read_in(mm: &Mm<'_>, id: SpaceId, page: u64) -> Result<u64, Error> {
    let before = mm.loaded_space();
    mm.space(id).switch_to().unwrap();
    let value = mm.platform().read(mm, id, page);
    mm.space(before.unwrap()).switch_to().unwrap();
    value
}

pub fn write_in(mm: &Mm<'_>, id: SpaceId, page: u64, value: u64) -> Result<(), Error> {
    let before = mm.loaded_space();
    mm.space(id).switch_to().unwrap();
    let done = mm.platform().write(mm, id, page, value);
    mm.space(before.unwrap()).switch_to().unwrap();
    done
}

pub fn entry(mm: &Mm<'_>, id: SpaceId, page: u64) -> Entry {
    mm.space(id).lookup(PageNumber(page)).unwrap()
}

pub fn frame(mm: &Mm<'_>, id: SpaceId, page: u64) -> FrameNumber {
    let entry = entry(mm, id, page);
    assert!(entry.is_present());
    entry.frame()
}

/// Two nodes of equal size; CPU 0 is on node 0.
pub fn two_nodes() -> Setup {
    let setup = Setup { nodes: 2, cpus: 2, ..Setup::default() };
    let region = |node: u16| Region {
        start: FrameNumber(setup.base + 2048 * u32::from(node)),
        frames: 2048,
        node: NodeId(node),
    };
    Setup { regions: Some(vec![region(0), region(1)]), ..setup }
}
