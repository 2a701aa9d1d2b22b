//! Spaces whose pages go to swap devices and come back.

use quietmm::{AllocFrom, Backing, Config, Error, Frames, PageNumber, Prot, SpaceId};

use super::{Mm, bare, exhaust, give_back, pages, settled};

pub const AT: u64 = 0x1000;
pub const DEVICE: u32 = 7;

/// Everything on lists at once, and small batches: so that single interleavings are few.
pub fn swapping(policy: &str) -> Config {
    Config { swap: true, lru_batch: 1, scan_batch: 4, ..bare(policy) }
}

/// A space with `count` anonymous pages, which this CPU has loaded, each written with its number.
pub fn anonymous(mm: &Mm<'_>, count: u64) -> SpaceId {
    let id = mm.create_space().unwrap();
    mm.space(id).map(pages(AT, count), Backing::Anonymous, Prot::ReadWrite).unwrap();
    mm.space(id).switch_to().unwrap();
    (AT..AT + count).for_each(|page| mm.platform().write(mm, id, page, page).unwrap());
    id
}

/// The same with a device of so many slots.
pub fn written(mm: &Mm<'_>, slots: u64, count: u64) -> SpaceId {
    mm.swap().on(DEVICE, slots, 0).unwrap();
    anonymous(mm, count)
}

/// All memory is wanted for a moment: what can be reclaimed is. What is free anyway goes in pieces, which is sooner done.
pub fn squeeze(mm: &Mm<'_>) {
    mm.drain_lru_batch();
    let pieces: Vec<_> = std::iter::from_fn(|| mm.frames().alloc(4, AllocFrom::NOW).ok()).collect();
    give_back(mm, exhaust(mm));
    give_back(mm, pieces);
}

/// All memory that is free is taken: whoever wants a frame has to reclaim.
pub fn take_free(mm: &Mm<'_>) -> Vec<Frames> {
    std::iter::from_fn(|| mm.frames().alloc(0, AllocFrom::NOW).ok()).collect()
}

/// One frame, by reclaim: a batch.
pub fn reclaim(mm: &Mm<'_>) {
    if let Ok(frame) = mm.frames().alloc(0, AllocFrom::HERE) {
        mm.frames().free(frame);
    }
}

pub fn is_out(mm: &Mm<'_>, id: SpaceId, page: u64) -> bool {
    mm.space(id).lookup(PageNumber(page)).unwrap().is_swapped()
}

/// What this CPU reads there, once it runs there.
pub fn read(mm: &Mm<'_>, id: SpaceId, page: u64) -> Result<u64, Error> {
    mm.space(id).switch_to().unwrap();
    mm.platform().read(mm, id, page)
}

pub fn write(mm: &Mm<'_>, id: SpaceId, page: u64, value: u64) -> Result<(), Error> {
    mm.space(id).switch_to().unwrap();
    mm.platform().write(mm, id, page, value)
}

pub fn sound(mm: &Mm<'_>) {
    assert_eq!(settled(mm).broken, None);
}

/// The end: CPUs leave, spaces end, and nothing is left on the devices, which go off.
pub fn end(mm: &Mm<'_>, spaces: &[SpaceId], devices: &[u32]) {
    let host = mm.platform();
    (0..host.setup.cpus as u16).for_each(|cpu| host.on(cpu, || mm.unload()));
    spaces.iter().for_each(|&id| mm.space(id).destroy().unwrap());
    devices.iter().for_each(|&device| mm.swap().off(device).unwrap());
    let end = settled(mm);
    assert_eq!((end.broken, end.anon, end.swapped, end.mapped), (None, 0, 0, 0));
}
