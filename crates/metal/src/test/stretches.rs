//! What is long, watched where instructions are the clock: how long it makes others wait.
//!
//! As `resched.rs` of the core's tests does it, which counts touches of memory; without other nodes, of which there are none. There is no disk
//! either: what is written to devices lies on the heap, and takes the same in each run.

use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use quietmm::{
    Advice, AllocFrom, Backing, CpuId, Error, FileId, FrameNumber, Frames, KernelProt, Manager, PageNumber,
    PageRange, Prot, SpaceId, UserAccess, VmapPlace,
};
use quietmm_workloads::{Params, TaskKind};

use super::Sys;
use super::team::check;
use crate::platform::Metal;
use crate::{clock, stretches};

type Mm = Manager<'static, Metal<true>>;

/// Pages of a long range: 32 MiB.
const COUNT: u64 = 8192;
/// Of one that is written out, which the heap keeps.
const WRITTEN: u64 = 2048;
/// VMAs of a range that has many.
const VMAS: u64 = 1500;
const AT: PageNumber = PageNumber(0x10_0000);
const TO: PageNumber = PageNumber(0x20_0000);
/// The device for swap, and its pages.
const DEVICE: u32 = 0;
const SWAP: u64 = 8192;
/// A group's limit, in pages.
const LIMIT: u64 = 1024;
/// Pages of the kernel range.
pub const KERNEL_PAGES: u64 = 1 << 18;

const ANON: Backing = Backing::Anonymous;

fn all() -> PageRange {
    PageRange::new(AT, COUNT)
}

fn space(mm: &Mm, backing: Backing, prot: Prot, pages: u64) -> Result<SpaceId, Error> {
    let id = mm.create_space()?;
    let range = PageRange::new(AT, pages);
    mm.space(id).map(range, backing, prot)?;
    let access = if prot == Prot::Read { UserAccess::Read } else { UserAccess::Write };
    mm.space(id).populate(range, access)?;
    Ok(id)
}

fn own(mm: &Mm) -> Result<SpaceId, Error> {
    space(mm, ANON, Prot::ReadWrite, COUNT)
}

/// A space with many VMAs side by side, of which no two can be merged.
fn striped(mm: &Mm) -> Result<SpaceId, Error> {
    let id = mm.create_space()?;
    let file = mm.create_file(1)?;
    for n in 0..VMAS {
        let range = PageRange::new(PageNumber(AT.0 + n), 1);
        mm.space(id).map(range, Backing::File { file, offset: 0 }, Prot::ReadWrite)?;
    }
    Ok(id)
}

fn file(mm: &Mm, pages: u64, prot: Prot) -> Result<(SpaceId, FileId), Error> {
    let file = mm.create_file(pages)?;
    let id = space(mm, Backing::File { file, offset: 0 }, prot, pages)?;
    mm.drain_lru_batch();
    Ok((id, file))
}

/// Large pages, each with one page in use.
fn large(mm: &Mm) -> Result<SpaceId, Error> {
    let id = mm.create_space()?;
    mm.space(id).map(all(), ANON, Prot::ReadWrite)?;
    mm.space(id).advise(all(), Advice::Large)?;
    mm.space(id).populate(all(), UserAccess::Write)?;
    Ok(id)
}

fn end(mm: &Mm, id: SpaceId) -> Result<(), Error> {
    mm.space(id).destroy()
}

fn many() -> PageRange {
    PageRange::new(AT, VMAS)
}

/// Work in a space with memory of its own, while there is swap.
fn with_swap(mm: &Mm, work: impl FnOnce(&Mm, SpaceId, PageRange) -> Result<(), Error>) -> Result<(), Error> {
    mm.swap().on(DEVICE, SWAP, 0)?;
    let id = space(mm, ANON, Prot::ReadWrite, WRITTEN)?;
    mm.drain_lru_batch();
    work(mm, id, PageRange::new(AT, WRITTEN))?;
    end(mm, id)?;
    mm.swap().off(DEVICE)
}

type Long = fn(&Mm, &'static str) -> Result<(), Error>;

/// What is made is watched only where it says so.
const ALL: &[(&str, Long)] = &[
    ("populate", |mm, name| {
        let id = mm.create_space()?;
        mm.space(id).map(all(), ANON, Prot::ReadWrite)?;
        stretches::of(name, || mm.space(id).populate(all(), UserAccess::Write))?;
        end(mm, id)
    }),
    ("unmap", |mm, name| {
        let id = own(mm)?;
        stretches::of(name, || mm.space(id).unmap(all()))?;
        end(mm, id)
    }),
    ("unmap of many VMAs", |mm, name| {
        let id = striped(mm)?;
        stretches::of(name, || mm.space(id).unmap(many()))?;
        end(mm, id)
    }),
    ("protect", |mm, name| {
        let id = own(mm)?;
        stretches::of(name, || mm.space(id).protect(all(), Prot::Read))?;
        end(mm, id)
    }),
    ("protect of many VMAs", |mm, name| {
        let id = striped(mm)?;
        stretches::of(name, || mm.space(id).protect(many(), Prot::Read))?;
        end(mm, id)
    }),
    ("drop", |mm, name| {
        let id = own(mm)?;
        stretches::of(name, || mm.space(id).advise(all(), Advice::Drop))?;
        end(mm, id)
    }),
    ("move", |mm, name| {
        let id = own(mm)?;
        stretches::of(name, || mm.space(id).move_range(all(), TO))?;
        end(mm, id)
    }),
    ("lock", |mm, name| {
        let id = mm.create_space()?;
        mm.space(id).map(all(), ANON, Prot::ReadWrite)?;
        stretches::of(name, || mm.space(id).lock(all()))?;
        end(mm, id)
    }),
    ("fork", |mm, name| {
        let id = own(mm)?;
        let child = stretches::of(name, || mm.space(id).fork())?;
        end(mm, child)?;
        end(mm, id)
    }),
    ("fork of many VMAs", |mm, name| {
        let id = striped(mm)?;
        let child = stretches::of(name, || mm.space(id).fork())?;
        end(mm, child)?;
        end(mm, id)
    }),
    ("fork of large pages", |mm, name| {
        let id = large(mm)?;
        let child = stretches::of(name, || mm.space(id).fork())?;
        end(mm, child)?;
        end(mm, id)
    }),
    ("fault of large pages", |mm, name| stretches::of(name, || large(mm)).and_then(|id| end(mm, id))),
    ("collapse", |mm, name| {
        let id = own(mm)?;
        stretches::of(name, || mm.space(id).advise(all(), Advice::Collapse))?;
        end(mm, id)
    }),
    ("destroy", |mm, name| {
        let id = own(mm)?;
        stretches::of(name, || end(mm, id))
    }),
    ("destroy with many VMAs", |mm, name| {
        let id = striped(mm)?;
        stretches::of(name, || end(mm, id))
    }),
    ("read_ahead", |mm, name| {
        let file = mm.create_file(COUNT)?;
        stretches::of(name, || mm.file(file).read_ahead(0, COUNT))?;
        mm.file(file).destroy()
    }),
    ("write_back", |mm, name| {
        let (id, file) = file(mm, WRITTEN, Prot::ReadWrite)?;
        stretches::of(name, || mm.file(file).write_back())?;
        end(mm, id)?;
        mm.file(file).destroy()
    }),
    ("read and write", |mm, name| {
        let file = mm.create_file(WRITTEN)?;
        let mut bytes = vec![1; (WRITTEN * 2048) as usize];
        stretches::of(name, || {
            mm.file(file).write(1, &bytes)?;
            mm.file(file).read(1, &mut bytes)
        })?;
        mm.file(file).destroy()
    }),
    ("set_size of what is mapped", |mm, name| {
        let (id, file) = file(mm, COUNT, Prot::Read)?;
        stretches::of(name, || mm.file(file).set_size(0))?;
        end(mm, id)?;
        mm.file(file).destroy()
    }),
    ("punch_hole", |mm, name| {
        let (id, file) = file(mm, COUNT, Prot::Read)?;
        end(mm, id)?;
        stretches::of(name, || mm.file(file).punch_hole(0, COUNT * 4096))?;
        mm.file(file).destroy()
    }),
    ("destroy of a file", |mm, name| {
        let (id, file) = file(mm, COUNT, Prot::Read)?;
        end(mm, id)?;
        stretches::of(name, || mm.file(file).destroy())
    }),
    ("a walk to many", |mm, name| {
        let (id, file) = file(mm, 1, Prot::ReadWrite)?;
        let mut others = Vec::new();
        for _ in 0..VMAS {
            others.push(space(mm, Backing::File { file, offset: 0 }, Prot::Read, 1)?);
        }
        stretches::of(name, || mm.file(file).write_back())?;
        others.into_iter().try_for_each(|id| end(mm, id))?;
        end(mm, id)?;
        mm.file(file).destroy()
    }),
    ("the flusher, with many files", |mm, name| {
        let files = (0..VMAS).map(|_| mm.create_file(1)).collect::<Result<Vec<_>, _>>()?;
        stretches::of(name, || mm.flusher());
        files.into_iter().try_for_each(|file| mm.file(file).destroy())
    }),
    ("collapse of a file", |mm, name| {
        let (id, file) = file(mm, COUNT, Prot::Read)?;
        stretches::of(name, || mm.space(id).advise(all(), Advice::Collapse))?;
        end(mm, id)?;
        mm.file(file).destroy()
    }),
    ("unmap behind large entries", |mm, name| {
        let (id, file) = file(mm, COUNT, Prot::Read)?;
        mm.space(id).advise(all(), Advice::Collapse)?;
        stretches::of(name, || mm.space(id).unmap(all()))?;
        end(mm, id)?;
        mm.file(file).destroy()
    }),
    ("free_empty_tables", |mm, name| {
        let id = mm.create_space()?;
        let tables = PageRange::new(AT, 200 * 512);
        mm.space(id).map(tables, ANON, Prot::ReadWrite)?;
        for at in (0..tables.pages).step_by(512) {
            let one = PageRange::new(PageNumber(AT.0 + at), 1);
            mm.space(id).populate(one, UserAccess::Write)?;
            mm.space(id).advise(one, Advice::Drop)?;
        }
        stretches::of(name, || mm.space(id).free_empty_tables())?;
        end(mm, id)
    }),
    ("swap_on", |mm, name| {
        stretches::of(name, || mm.swap().on(DEVICE, SWAP, 0))?;
        mm.swap().off(DEVICE)
    }),
    ("pages that go to swap", |mm, name| {
        with_swap(mm, |mm, id, some| stretches::of(name, || mm.space(id).advise(some, Advice::PageOut)))
    }),
    ("pages that come from swap", |mm, name| {
        with_swap(mm, |mm, id, some| {
            mm.space(id).advise(some, Advice::PageOut)?;
            stretches::of(name, || mm.space(id).advise(some, Advice::WillNeed))?;
            stretches::of(name, || mm.space(id).populate(some, UserAccess::Write))
        })
    }),
    ("a fork with pages in swap", |mm, name| {
        with_swap(mm, |mm, id, some| {
            mm.space(id).advise(some, Advice::PageOut)?;
            let child = stretches::of(name, || mm.space(id).fork())?;
            stretches::of(name, || end(mm, child))
        })
    }),
    ("swap_off", |mm, name| {
        with_swap(mm, |mm, id, some| {
            mm.space(id).advise(some, Advice::PageOut)?;
            stretches::of(name, || mm.swap().off(DEVICE))?;
            mm.swap().on(DEVICE, SWAP, 0)
        })
    }),
    ("a group at its limit", |mm, name| {
        with_swap(mm, |mm, id, _| {
            let group = mm.create_group(LIMIT)?;
            mm.space(id).set_group(Some(group))?;
            mm.space(id).map(PageRange::new(TO, 2 * LIMIT), ANON, Prot::ReadWrite)?;
            stretches::of(name, || mm.space(id).populate(PageRange::new(TO, 2 * LIMIT), UserAccess::Write))?;
            stretches::of(name, || mm.space(id).set_group(None))?;
            mm.group(group).destroy()
        })
    }),
    ("kernel pages", |mm, name| {
        let made =
            stretches::of(name, || mm.vmap().alloc(COUNT, VmapPlace::ANYWHERE, KernelProt::ReadWrite))?;
        mm.vmap().free(made.start)?;
        mm.vmap().purge().map(drop)
    }),
    ("a purge of kernel pages", |mm, name| {
        let made = mm.vmap().alloc(COUNT, VmapPlace::ANYWHERE, KernelProt::ReadWrite)?;
        mm.vmap().free(made.start)?;
        stretches::of(name, || mm.vmap().purge()).map(drop)
    }),
    ("kernel pages of frames", |mm, name| {
        let blocks = (0..8).map(|_| mm.frames().alloc(9, AllocFrom::HERE)).collect::<Result<Vec<_>, _>>()?;
        let first = blocks.iter().map(|block| block.first().0);
        let frames: Vec<_> = first.flat_map(|first| (first..first + 512).map(FrameNumber)).collect();
        let made =
            stretches::of(name, || mm.vmap().map(&frames, VmapPlace::ANYWHERE, KernelProt::ReadWrite))?;
        mm.vmap().unmap(made.start)?;
        mm.vmap().purge()?;
        blocks.into_iter().for_each(|block| mm.frames().free(block));
        Ok(())
    }),
    ("direct reclaim", |mm, name| {
        let (id, file) = file(mm, COUNT, Prot::Read)?;
        let held: Vec<Frames> = core::iter::from_fn(|| mm.frames().alloc(0, AllocFrom::NOW).ok()).collect();
        stretches::of(name, || {
            mm.frames().alloc(5, AllocFrom::HERE).into_iter().for_each(|block| mm.frames().free(block));
        });
        held.into_iter().for_each(|frames| mm.frames().free(frames));
        end(mm, id)?;
        mm.file(file).destroy()
    }),
    ("memory that goes and comes", |mm, _| {
        let (id, file) = file(mm, COUNT, Prot::Read)?;
        // One in the middle of what is in use, or else one that is free.
        let blocks: Vec<_> = mm.frames().blocks().collect();
        for block in blocks.into_iter().rev().take(8) {
            let leaving = stretches::of("begin_offline", || mm.frames().begin_offline(block))?;
            match stretches::of("finish_offline", || mm.frames().finish_offline(leaving)) {
                Ok(block) => stretches::of("bring_online", || mm.frames().bring_online(block)),
                Err(remains) => {
                    stretches::of("cancel_offline", || mm.frames().cancel_offline(remains.leaving))
                }
            }
        }
        end(mm, id)?;
        mm.file(file).destroy()
    }),
];

/// Each of them, one after the other; the longest of each kind is printed.
pub fn all_that_is_long(system: &Sys, _params: &Params<'static>) -> Result<(), Error> {
    check(system, clock::counts_instructions(), || "instructions are not the clock: use icount".into());
    let space = system.mm.create_space()?;
    system.spawn(String::from("long"), TaskKind::User(space), CpuId(0), |system| {
        for (name, long) in ALL {
            long(&system.mm, name).inspect_err(|error| {
                check(system, false, || alloc::format!("{name}: {error}"));
            })?;
        }
        Ok(())
    });
    Ok(())
}
