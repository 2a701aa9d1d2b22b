//! Faults that a review found: each test fails until its fault is mended.
#![allow(missing_docs, clippy::all)]

#[path = "../suite/machine/mod.rs"]
mod machine;

use machine::faults::own;
use machine::showing::{self, ANON};
use machine::swapping::{DEVICE, swapping, write};
use machine::{Host, Mm, Setup, bare, pages};
use quietmm::{
    Advice, Backing, Config, FrameNumber, KernelProt, NodeId, PageNumber, PageRange, Prot, Region, SpaceId, UserAccess,
    VmapPlace,
};

/// All of these CPUs have cached `count` pages of a space.
fn used(mm: &Mm<'_>, id: SpaceId, count: u64, cpus: &[u16]) {
    const AT: u64 = machine::faults::AT;
    for &cpu in cpus {
        mm.platform().on(cpu, || {
            (AT..AT + count).for_each(|page| mm.platform().write(mm, id, page, page).unwrap());
        });
    }
}

/// What is moved away leaves its tables behind, empty. A CPU that touches the old place keeps them; then the table above them goes with what lies
/// beside: the flush is of that alone.
#[test]
fn tables_that_a_move_has_left_are_flushed_when_they_go_with_those_above() {
    const AT: u64 = machine::faults::AT;
    const BESIDE: u64 = AT + 0x400;
    const FAR: u64 = AT + (1 << 27);
    let host = Host::new(Setup { cpus: 2, tags: 2, frames: 1024, broadcast: true, ..Setup::default() });
    host.run(bare("linux+flush=broadcast"), |mm| {
        let id = own(mm, 2, &[0, 1]);
        mm.space(id).map(pages(BESIDE, 1), Backing::Anonymous, Prot::ReadWrite).unwrap();
        used(mm, id, 2, &[0, 1]);
        host.on(1, || host.write(mm, id, BESIDE, 7).unwrap());
        mm.space(id).move_range(pages(BESIDE, 1), PageNumber(FAR)).unwrap();
        let left = mm.space(id).usage().unwrap().tables;
        // Nothing is mapped there: the program has an error, and the CPU keeps the way.
        host.on(1, || assert_eq!(host.try_read(BESIDE), None));
        host.forget();
        assert_eq!(host.stale.get(), 0);
        mm.space(id).unmap(pages(AT, 2)).unwrap();
        println!("{left} tables, then {}; {:?}", mm.space(id).usage().unwrap().tables, host.broadcasts());
        assert_eq!(host.stale.get(), 0, "a table is freed that CPU 1 may walk (INV-9)");
    });
}

/// Whoever moves a page on and on has no more tables for it than it needs.
#[test]
fn a_move_takes_its_tables_along() {
    const AT: u64 = machine::faults::AT;
    let host = Host::new(Setup { cpus: 1, frames: 1024, ..Setup::default() });
    host.run(bare("linux"), |mm| {
        let id = own(mm, 1, &[0]);
        used(mm, id, 1, &[0]);
        for n in 0..50 {
            mm.space(id).move_range(pages(AT + 0x200 * n, 1), PageNumber(AT + 0x200 * (n + 1))).unwrap();
        }
        let usage = mm.space(id).usage().unwrap();
        assert!(usage.tables < 8, "{usage:?}");
    });
}

/// Whoever wants no limit says the highest number there is.
#[test]
fn a_stack_without_a_limit_grows_and_is_split() {
    const STACK: u64 = 0x10100;
    let host = Host::new(Setup { cpus: 2, ..Setup::default() });
    host.run(swapping("linux"), |mm| {
        let id = mm.create_space().unwrap();
        mm.space(id).map(pages(STACK, 2), ANON, Prot::ReadWrite).unwrap();
        mm.space(id).grow_down(PageNumber(STACK), u64::MAX).unwrap();
        mm.space(id).switch_to().unwrap();
        write(mm, id, STACK - 3, 3).unwrap();
        mm.space(id).protect(pages(STACK, 1), Prot::Read).unwrap();
        write(mm, id, STACK - 9, 9).unwrap();
    });
}

const AT: u64 = showing::AT;
const COUNT: u64 = 8192;
const MOST: u32 = 8000;

type Long = fn(&Mm<'_>) -> u32;

fn big() -> Setup {
    let region = |node: u16| Region {
        start: FrameNumber(0xfc00 + 0x8000 * u32::from(node)),
        frames: 0x8000,
        node: NodeId(node),
    };
    let regions = Some(vec![region(0), region(1)]);
    Setup { nodes: 2, cpus: 2, frames: 0x10000, regions, ..Setup::default() }
}

fn range<R>(mm: &Mm<'_>, id: SpaceId, work: impl FnOnce(&Mm<'_>, SpaceId) -> Result<R, quietmm::Error>) -> u32 {
    mm.platform().longest_stretch(|| _ = work(mm, id).unwrap())
}

const MORE: &[(&str, Long)] = &[
    ("populate", |mm| {
        let id = showing::mapped(mm, ANON, COUNT);
        range(mm, id, |mm, id| mm.space(id).populate(pages(AT, COUNT), UserAccess::Write))
    }),
    ("advise(PopulateWrite)", |mm| {
        let id = showing::mapped(mm, ANON, COUNT);
        range(mm, id, |mm, id| mm.space(id).advise(pages(AT, COUNT), Advice::PopulateWrite))
    }),
    ("lock", |mm| {
        let id = showing::mapped(mm, ANON, COUNT);
        range(mm, id, |mm, id| mm.space(id).lock(pages(AT, COUNT)))
    }),
    ("read_ahead of what is cached", |mm| {
        let file = mm.create_file(COUNT).unwrap();
        let id = showing::mapped(mm, showing::shared(file), COUNT);
        showing::write_all(mm, id, COUNT);
        range(mm, id, |mm, _| mm.file(file).read_ahead(0, COUNT))
    }),
    ("vmap alloc", |mm| {
        let mut made = None;
        let longest = mm.platform().longest_stretch(|| {
            made = Some(mm.vmap().alloc(COUNT, VmapPlace::ANYWHERE, KernelProt::ReadWrite).unwrap());
        });
        mm.vmap().free(made.unwrap().start).unwrap();
        mm.vmap().purge().unwrap();
        longest
    }),
    ("vmap purge", |mm| {
        let made = mm.vmap().alloc(COUNT, VmapPlace::ANYWHERE, KernelProt::ReadWrite).unwrap();
        mm.vmap().free(made.start).unwrap();
        mm.platform().longest_stretch(|| _ = mm.vmap().purge().unwrap())
    }),
    ("swap on", |mm| {
        let longest = mm.platform().longest_stretch(|| mm.swap().on(DEVICE, 1 << 22, 0).unwrap());
        mm.swap().off(DEVICE).unwrap();
        longest
    }),
];

#[test]
fn more_that_is_long_lets_others_run() {
    let found: Vec<_> = MORE
        .iter()
        .map(|(name, long)| {
            let swap = *name == "swap on";
            let vmap = Some(PageRange::new(PageNumber::KERNEL_START, 1 << 20));
            let config = Config { swap, vmap, ..bare("linux") };
            let longest = Host::new(big()).run(config, |mm| {
                let longest = long(mm);
                mm.drain_lru_batch();
                longest
            });
            (*name, longest)
        })
        .collect();
    println!("{found:#?}");
    let too_long: Vec<_> = found.iter().filter(|(_, longest)| *longest > MOST).collect();
    assert!(too_long.is_empty(), "{too_long:?}");
}

/// A page that is of no other space goes, be it large: this CPU has brought it in, nobody else has touched it.
#[test]
fn all_of_a_large_page_is_paged_out() {
    const LARGE: u64 = 0x40000;
    let host = Host::new(Setup { frames: 4096, ..Setup::default() });
    let config = Config { swap: true, ..bare("linux") };
    host.run(config, |mm| {
        mm.swap().on(DEVICE, 2048, 0).unwrap();
        let id = mm.create_space().unwrap();
        mm.space(id).map(pages(LARGE, 512), Backing::Anonymous, Prot::ReadWrite).unwrap();
        mm.space(id).advise(pages(LARGE, 512), Advice::Large).unwrap();
        mm.space(id).switch_to().unwrap();
        (LARGE..LARGE + 512).for_each(|page| host.write(mm, id, page, page).unwrap());
        let remains = || {
            mm.space(id).advise(pages(LARGE, 512), Advice::PageOut).unwrap();
            mm.space(id).usage().unwrap().anon
        };
        // The second time is the control.
        let remain = [remains(), remains()];
        mm.drain_lru_batch();
        assert_eq!(remain, [0, 0]);
    });
}
