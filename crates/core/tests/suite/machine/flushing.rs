//! Spaces that CPUs have cached, before it is decided who flushes what.

use quietmm::{Backing, FileId, Prot, SpaceId};

use super::{Mm, pages};

pub const AT: u64 = 0x1000;

/// A space with anonymous memory of `count` pages from `AT`, all written, loaded on `cpus`, each of which has
/// read every page.
pub fn shared(mm: &Mm<'_>, count: u64, cpus: &[u16]) -> SpaceId {
    let host = mm.platform();
    let id = mm.create_space().unwrap();
    mm.space(id).map(pages(AT, count), Backing::Anonymous, Prot::ReadWrite).unwrap();
    for &cpu in cpus {
        host.on(cpu, || {
            mm.space(id).switch_to().unwrap();
            (AT..AT + count).for_each(|page| host.write(mm, id, page, page).unwrap());
        });
    }
    host.forget();
    id
}

/// A file of `count` pages, shown at `AT`, read by each of `cpus`; the pages are on the LRU lists.
pub fn cached(mm: &Mm<'_>, count: u64, cpus: &[u16]) -> (SpaceId, FileId) {
    let host = mm.platform();
    let (id, file) = (mm.create_space().unwrap(), mm.create_file(count).unwrap());
    mm.space(id).map(pages(AT, count), Backing::File { file, offset: 0 }, Prot::ReadWrite).unwrap();
    for &cpu in cpus {
        host.on(cpu, || {
            mm.space(id).switch_to().unwrap();
            (AT..AT + count).for_each(|page| assert_eq!(host.read(mm, id, page), Ok(0)));
            mm.drain_lru_batch();
        });
    }
    host.forget();
    (id, file)
}
