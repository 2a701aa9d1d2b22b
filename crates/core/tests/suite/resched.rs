//! Whatever is long lets other tasks run after a bounded piece of work, with no spin lock held.

use std::collections::BTreeMap;

use crate::machine;

use machine::showing::{self, ANON, AT, LARGE, TO, mapped, shared, write_all};
use machine::stretches::INTERRUPTS_OFF;
use machine::swapping::{self, DEVICE};
use machine::{Host, Mm, NO_PCP, Setup, bare, exhaust, give_back, pages, pcp};
use quietmm::platform::Cpus;
use quietmm::sync::SpinLock;
use quietmm::{
    Advice, AllocFrom, Backing, Config, FrameNumber, KernelProt, NodeId, PageNumber, PageRange, Prot, Region,
    SpaceId, UserAccess, VmapPlace,
};

/// Pages of a long range: 32 MiB.
const COUNT: u64 = 8192;
/// VMAs of a range that has many.
const VMAS: u64 = 1500;
/// No piece of work touches shared memory more often than this. A table of 512 pages that are let go one by one, with the
/// caches of the machine off, takes about half as many.
const MOST: u32 = 8000;

thread_local! {
    /// Where kernel pages begin that were just made.
    static KERNEL: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// Does something long; returns the most touches of shared memory between two places where others may run.
type Long = fn(&Mm<'_>) -> u32;

fn machine() -> Setup {
    let region = |node: u16| Region {
        start: FrameNumber(0xfc00 + 0x8000 * u32::from(node)),
        frames: 0x8000,
        node: NodeId(node),
    };
    let regions = Some(vec![region(0), region(1)]);
    Setup { nodes: 2, cpus: 2, frames: 0x10000, regions, ..Setup::default() }
}

/// Memory that comes later, where there is any.
const LATER: FrameNumber = FrameNumber(0x1fc00);
const BLOCKS: u32 = 8;
const COMES: &str = "memory that comes";

/// The same, and more of it that comes later.
fn machine_that_grows() -> Setup {
    let later = vec![Region { start: LATER, frames: BLOCKS * 1024, node: NodeId(1) }];
    Setup { frames: 0x10000 + BLOCKS * 1024, later, ..machine() }
}

fn own(mm: &Mm<'_>) -> SpaceId {
    let id = mapped(mm, ANON, COUNT);
    write_all(mm, id, COUNT);
    id
}

/// A space that shows a file all of which is in memory, where it can be large.
fn large_file(mm: &Mm<'_>) -> SpaceId {
    let (_, file) = file_pages(mm);
    let id = mm.create_space().unwrap();
    mm.space(id).map(pages(LARGE, COUNT), shared(file), Prot::Read).unwrap();
    mm.space(id).populate(pages(LARGE, COUNT), UserAccess::Read).unwrap();
    mm.drain_lru_batch();
    id
}

fn range<R>(
    mm: &Mm<'_>,
    id: SpaceId,
    work: impl FnOnce(&Mm<'_>, SpaceId) -> Result<R, quietmm::Error>,
) -> u32 {
    mm.platform().longest_stretch(|| _ = work(mm, id).unwrap())
}

/// A space with many VMAs side by side, of which no two can be merged.
fn striped(mm: &Mm<'_>) -> SpaceId {
    let id = mm.create_space().unwrap();
    let file = mm.create_file(1).unwrap();
    for n in 0..VMAS {
        mm.space(id).map(pages(AT + n, 1), Backing::File { file, offset: 0 }, Prot::ReadWrite).unwrap();
    }
    id
}

fn file_pages(mm: &Mm<'_>) -> (SpaceId, quietmm::FileId) {
    let file = mm.create_file(COUNT).unwrap();
    let id = mapped(mm, shared(file), COUNT);
    write_all(mm, id, COUNT);
    (id, file)
}

const ALL: &[(&str, Long)] = &[
    ("unmap", |mm| range(mm, own(mm), |mm, id| mm.space(id).unmap(pages(AT, COUNT)))),
    ("unmap, tables stay", |mm| {
        let id = own(mm);
        mm.space(id).map(pages(AT + COUNT, 512), ANON, Prot::Read).unwrap();
        mm.space(id).map(pages(AT - 512, 512), ANON, Prot::Read).unwrap();
        (0..COUNT).step_by(512).for_each(|n| mm.space(id).unmap(pages(AT + n, 1)).unwrap());
        (0..COUNT).step_by(512).for_each(|n| mm.space(id).map(pages(AT + n, 1), ANON, Prot::Read).unwrap());
        range(mm, id, |mm, id| mm.space(id).unmap(pages(AT, COUNT - 256)))
    }),
    ("unmap of what was never touched", |mm| {
        let id = mapped(mm, ANON, 1 << 33);
        (0..200).for_each(|n| mm.platform().write(mm, id, AT + (n << 20), n).unwrap());
        range(mm, id, |mm, id| mm.space(id).unmap(pages(AT, 1 << 33)))
    }),
    ("unmap of many VMAs", |mm| range(mm, striped(mm), |mm, id| mm.space(id).unmap(pages(AT, VMAS)))),
    ("protect", |mm| range(mm, own(mm), |mm, id| mm.space(id).protect(pages(AT, COUNT), Prot::Read))),
    ("protect of many VMAs", |mm| {
        range(mm, striped(mm), |mm, id| mm.space(id).protect(pages(AT, VMAS), Prot::Read))
    }),
    ("drop", |mm| range(mm, own(mm), |mm, id| mm.space(id).advise(pages(AT, COUNT), Advice::Drop))),
    ("free_empty_tables", |mm| {
        let id = mapped(mm, ANON, 200 * 512);
        for page in (AT..AT + 200 * 512).step_by(512) {
            mm.platform().write(mm, id, page, 1).unwrap();
            mm.space(id).advise(pages(page, 1), Advice::Drop).unwrap();
        }
        range(mm, id, |mm, id| mm.space(id).free_empty_tables())
    }),
    ("free_empty_tables where none is empty", |mm| {
        let id = mapped(mm, ANON, 400 * 512);
        (AT + 100..AT + 400 * 512)
            .step_by(512)
            .for_each(|page| mm.platform().write(mm, id, page, 1).unwrap());
        range(mm, id, |mm, id| mm.space(id).free_empty_tables())
    }),
    ("advice about many VMAs", |mm| {
        range(mm, striped(mm), |mm, id| mm.space(id).advise(pages(AT, VMAS), Advice::Small))
    }),
    ("move", |mm| {
        range(mm, own(mm), |mm, id| mm.space(id).move_range(pages(AT, COUNT), PageNumber(TO + COUNT)))
    }),
    ("move of many VMAs", |mm| {
        range(mm, striped(mm), |mm, id| mm.space(id).move_range(pages(AT, VMAS), PageNumber(TO + COUNT)))
    }),
    ("migrate", |mm| range(mm, own(mm), |mm, id| mm.space(id).migrate(pages(AT, COUNT), NodeId(1)))),
    ("fork", |mm| range(mm, own(mm), |mm, id| mm.space(id).fork())),
    ("fork of many VMAs", |mm| range(mm, striped(mm), |mm, id| mm.space(id).fork())),
    ("destroy_space", |mm| {
        let id = own(mm);
        mm.unload();
        range(mm, id, |mm, id| mm.space(id).destroy())
    }),
    ("destroy_space with many VMAs", |mm| range(mm, striped(mm), |mm, id| mm.space(id).destroy())),
    ("destroy_file", |mm| {
        let (id, file) = file_pages(mm);
        mm.space(id).unmap(pages(AT, COUNT)).unwrap();
        range(mm, id, |mm, _| mm.file(file).destroy())
    }),
    ("write_back", |mm| {
        let (id, file) = file_pages(mm);
        range(mm, id, |mm, _| mm.file(file).write_back())
    }),
    ("a walk to many", |mm| {
        let file = mm.create_file(1).unwrap();
        let id = mapped(mm, shared(file), 1);
        mm.platform().write(mm, id, AT, 1).unwrap();
        for _ in 0..VMAS {
            let id = mm.create_space().unwrap();
            mm.space(id).map(pages(AT, 1), shared(file), Prot::Read).unwrap();
        }
        range(mm, id, |mm, _| mm.file(file).write_back())
    }),
    ("direct reclaim", |mm| {
        file_pages(mm);
        mm.drain_lru_batch();
        let held: Vec<_> = std::iter::from_fn(|| mm.frames().alloc(0, AllocFrom::NOW).ok()).collect();
        // A block of eight does not come together by chance: batch after batch.
        let longest = mm.platform().longest_stretch(|| {
            mm.frames().alloc(5, AllocFrom::HERE).into_iter().for_each(|block| mm.frames().free(block));
        });
        give_back(mm, held);
        longest
    }),
    ("offline", |mm| {
        let (id, _) = file_pages(mm);
        mm.drain_lru_batch();
        let inside = showing::frame(mm, id, AT + COUNT / 2);
        let busy = mm.frames().blocks().filter(|block| block.0 <= inside.0).last().unwrap();
        mm.platform().longest_stretch(|| {
            match mm.frames().finish_offline(mm.frames().begin_offline(busy).unwrap()) {
                Ok(block) => mm.frames().bring_online(block),
                Err(remains) => mm.frames().cancel_offline(remains.leaving),
            }
        })
    }),
    ("populate", |mm| {
        let id = mapped(mm, ANON, COUNT);
        range(mm, id, |mm, id| mm.space(id).populate(pages(AT, COUNT), UserAccess::Write))
    }),
    ("lock", |mm| {
        let id = mapped(mm, ANON, COUNT);
        range(mm, id, |mm, id| mm.space(id).lock(pages(AT, COUNT)))
    }),
    ("read_ahead of what is cached", |mm| {
        let (id, file) = file_pages(mm);
        range(mm, id, |mm, _| mm.file(file).read_ahead(0, COUNT))
    }),
    ("the flusher, with many files", |mm| {
        (0..VMAS).for_each(|_| _ = mm.create_file(1).unwrap());
        mm.platform().longest_stretch(|| _ = mm.flusher())
    }),
    ("the flusher, with many files that have ended", |mm| {
        let files: Vec<_> = (0..VMAS).map(|_| mm.create_file(1).unwrap()).collect();
        files.into_iter().for_each(|file| mm.file(file).destroy().unwrap());
        mm.platform().longest_stretch(|| _ = mm.flusher())
    }),
    ("locked_pages of many VMAs", |mm| range(mm, striped(mm), |mm, id| mm.space(id).locked_pages())),
    ("kernel pages", |mm| {
        let longest = mm.platform().longest_stretch(|| {
            let made = mm.vmap().alloc(COUNT, VmapPlace::ANYWHERE, KernelProt::ReadWrite).unwrap();
            KERNEL.set(made.start.0);
        });
        mm.vmap().free(PageNumber(KERNEL.take())).unwrap();
        mm.vmap().purge().unwrap();
        longest
    }),
    ("a purge of kernel pages", |mm| {
        let made = mm.vmap().alloc(COUNT, VmapPlace::ANYWHERE, KernelProt::ReadWrite).unwrap();
        mm.vmap().free(made.start).unwrap();
        mm.platform().longest_stretch(|| _ = mm.vmap().purge().unwrap())
    }),
    ("kernel pages of frames", |mm| {
        let blocks: Vec<_> =
            (0..COUNT >> 9).map(|_| mm.frames().alloc(9, AllocFrom::HERE).unwrap()).collect();
        let first = blocks.iter().map(|block| block.first().0);
        let frames: Vec<_> = first.flat_map(|first| (first..first + 512).map(FrameNumber)).collect();
        let longest = mm.platform().longest_stretch(|| {
            let made = mm.vmap().map(&frames, VmapPlace::ANYWHERE, KernelProt::ReadWrite).unwrap();
            KERNEL.set(made.start.0);
        });
        mm.vmap().unmap(PageNumber(KERNEL.take())).unwrap();
        give_back(mm, blocks);
        longest
    }),
    ("swap_on", |mm| {
        let longest = mm.platform().longest_stretch(|| mm.swap().on(DEVICE, 1 << 22, 0).unwrap());
        mm.swap().off(DEVICE).unwrap();
        longest
    }),
    ("swap_off", |mm| {
        mm.swap().on(DEVICE, 4096, 0).unwrap();
        let id = swapping::anonymous(mm, 2048);
        mm.drain_lru_batch();
        give_back(mm, exhaust(mm));
        range(mm, id, |mm, _| mm.swap().off(DEVICE))
    }),
    ("residency of a file that is cached", |mm| {
        let (_, file) = file_pages(mm);
        let id = mapped(mm, shared(file), COUNT);
        let mut into = vec![0; COUNT as usize];
        range(mm, id, |mm, id| mm.space(id).residency(pages(AT, COUNT), &mut into))
    }),
    ("a hole in what is mapped", |mm| {
        let (id, file) = file_pages(mm);
        range(mm, id, |mm, _| mm.file(file).punch_hole(0, COUNT * 4096))
    }),
    ("a shorter file that is mapped", |mm| {
        let (id, file) = file_pages(mm);
        range(mm, id, |mm, _| mm.file(file).set_size(0))
    }),
    ("a collapse of a file", |mm| {
        let id = large_file(mm);
        range(mm, id, |mm, id| mm.space(id).advise(pages(LARGE, COUNT), Advice::Collapse))
    }),
    ("an unmap of a file behind large entries", |mm| {
        let id = large_file(mm);
        mm.space(id).advise(pages(LARGE, COUNT), Advice::Collapse).unwrap();
        range(mm, id, |mm, id| mm.space(id).unmap(pages(LARGE, COUNT)))
    }),
    ("swap: a fork of large pages", |mm| {
        let id = mapped(mm, ANON, COUNT);
        mm.space(id).advise(pages(AT, COUNT), Advice::Large).unwrap();
        (AT + 8..AT + COUNT - 512)
            .step_by(512)
            .for_each(|page| mm.platform().write(mm, id, page, 1).unwrap());
        range(mm, id, |mm, id| mm.space(id).fork())
    }),
    ("swap: a collapse", |mm| {
        range(mm, own(mm), |mm, id| mm.space(id).advise(pages(AT, COUNT), Advice::Collapse))
    }),
    ("swap: WillNeed of what another space has in memory", |mm| {
        mm.swap().on(DEVICE, 4096, 0).unwrap();
        let id = swapping::anonymous(mm, 2048);
        mm.drain_lru_batch();
        let child = mm.space(id).fork().unwrap();
        give_back(mm, exhaust(mm));
        (swapping::AT..swapping::AT + 2048).for_each(|page| _ = mm.platform().read(mm, id, page).unwrap());
        range(mm, child, |mm, id| mm.space(id).advise(pages(swapping::AT, 2048), Advice::WillNeed))
    }),
    (COMES, |mm| {
        mm.platform().longest_stretch(|| {
            for block in 0..BLOCKS {
                // SAFETY: the machine has it, and nobody uses it.
                let block = unsafe { mm.frames().add_block(LATER.add(block * 1024)).unwrap() };
                mm.frames().bring_online(block);
            }
        })
    }),
    ("swap_off, with many spaces that have ended", |mm| {
        let spaces: Vec<_> = (0..2 * VMAS).map(|_| mm.create_space().unwrap()).collect();
        spaces.into_iter().for_each(|id| mm.space(id).destroy().unwrap());
        mm.swap().on(DEVICE, 1024, 0).unwrap();
        mm.platform().longest_stretch(|| mm.swap().off(DEVICE).unwrap())
    }),
];

/// By what made others wait: the most touches meanwhile.
type Longest = BTreeMap<&'static str, u32>;

/// The most touches between two places where others may run, and the most with each lock held and with interrupts off.
fn longest(name: &str, policy: &str, resched_after: u32) -> (u32, Longest) {
    let (_, long) = ALL.iter().find(|(known, _)| *known == name).expect("one of them");
    let swap = name.starts_with("swap");
    let vmap = Some(PageRange::new(PageNumber::KERNEL_START, 1 << 20));
    let page_lists = if policy == POLICIES[1] { pcp(31) } else { Some(NO_PCP) };
    let machine = if name == COMES { machine_that_grows() } else { machine() };
    Host::new(machine).run(Config { resched_after, swap, vmap, page_lists, ..bare(policy) }, |mm| {
        mm.platform().longest_held(|| {
            let longest = long(mm);
            mm.drain_lru_batch();
            longest
        })
    })
}

const DOCUMENT: &str = include_str!("../../../../docs/stretches.md");
const BEGIN: &str = "<!-- measured: begin -->\n";
const END: &str = "<!-- measured: end -->\n";
/// One where CPUs have no lists of frames, and one where they do, with the locks that others do not take.
const POLICIES: [&str; 2] = ["linux", "quiet+free=sweep+drain=remote"];
const NO_POINT: &str = "no point to give way";

/// A bound for what was measured, in round numbers: a tenth above it or a little more.
fn bound(longest: u32) -> u32 {
    let step = (10_u32.pow(longest.max(10).ilog10()) / 2).max(5);
    (longest + longest / 10).div_ceil(step) * step
}

#[test]
fn what_is_long_lets_others_run_after_a_bounded_piece() {
    // By what makes others wait, and by what does it.
    let mut held = BTreeMap::<&str, Longest>::new();
    let mut found = Vec::new();
    for (name, _) in ALL {
        for policy in POLICIES {
            let (longest, of_each) = longest(name, policy, 1024);
            for (what, longest) in of_each.into_iter().chain([(NO_POINT, longest)]) {
                let most = held.entry(what).or_default().entry(*name).or_default();
                *most = (*most).max(longest);
            }
        }
        found.push((*name, held[NO_POINT][name], longest(name, "linux", u32::MAX).0));
    }
    println!("{found:#?}");
    let too_long: Vec<_> = found.iter().filter(|(_, longest, _)| *longest > MOST).collect();
    assert!(too_long.is_empty(), "{too_long:?}");
    // What is never let go is longer: the look sees it.
    let unseen: Vec<_> =
        found.iter().filter(|(_, longest, whole)| whole < longest || *whole <= MOST).collect();
    assert!(unseen.is_empty(), "{unseen:?}");
    the_document_says(&held);
}

/// Each bound of the document holds, is no more than twice what was measured, and names what comes near it; and nothing else makes others wait.
fn the_document_says(held: &BTreeMap<&str, Longest>) {
    let (head, rest) = DOCUMENT.split_once(BEGIN).expect("docs/stretches.md: no begin marker");
    let (table, tail) = rest.split_once(END).expect("docs/stretches.md: no end marker");
    if std::env::var_os("UPDATE").is_some() {
        let row = |(what, of): (&&str, &Longest)| {
            let (name, longest) = of.iter().max_by_key(|(_, longest)| **longest).expect("something");
            format!("| {what} | {} | {name} |\n", bound(*longest))
        };
        let rows: String = held.iter().map(row).collect();
        let table = format!("| others wait for | touches, at most | longest in |\n|---|--:|---|\n{rows}");
        let at = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/stretches.md");
        return std::fs::write(at, [head, BEGIN, &table, END, tail].concat()).unwrap();
    }
    let rows: BTreeMap<&str, (u32, &str)> = table
        .lines()
        .skip(2)
        .map(|line| {
            let cells: Vec<_> = line.trim_matches('|').split('|').map(str::trim).collect();
            (cells[0], (cells[1].parse().expect("a number"), cells[2]))
        })
        .collect();
    assert_eq!(rows.keys().collect::<Vec<_>>(), held.keys().collect::<Vec<_>>(), "docs/stretches.md");
    for (what, (bound, name)) in rows {
        let longest = *held[what].values().max().expect("something");
        let told = held[what].get(name).copied().unwrap_or(0);
        assert!(
            longest <= bound && bound <= 2 * longest.max(10) && 2 * told >= longest,
            "docs/stretches.md says of {what} {bound}, in {name}: it is {longest}, there {told}\n\
             If the change is meant: UPDATE=1 cargo test -p quietmm --test suite resched"
        );
    }
}

/// A lock that is held for long, and interrupts that are off for long, are seen as long as they are.
#[test]
fn what_is_held_for_long_is_seen() {
    let host = Host::new(Setup::default());
    host.run(bare("linux"), |mm| {
        let lock = SpinLock::<0>::new();
        let before = host.touches_of(0);
        let works = || (0..100).for_each(|_| _ = mm.frames().available());
        works();
        let touches = host.touches_of(0) - before;
        let ((), of_lock) = host.longest_held(|| {
            let held = lock.lock(mm);
            works();
            drop(held);
            works();
        });
        assert!(touches >= 100 && (touches..touches + 3).contains(&of_lock["spin_lock(embedding kernel)"]));
        let ((), deaf) = host.longest_held(|| {
            assert!(host.irqs_off());
            works();
            host.irqs_on();
            works();
        });
        assert_eq!(deaf[INTERRUPTS_OFF], touches);
    });
}

/// How often others may run in what `work` does after `prepare`.
fn rescheds<T>(resched_after: u32, prepare: impl FnOnce(&Mm<'_>) -> T, work: impl FnOnce(&Mm<'_>, T)) -> u32 {
    let host = Host::new(Setup::default());
    host.run(Config { resched_after, ..bare("linux") }, |mm| {
        let prepared = prepare(mm);
        let before = host.rescheds.get();
        work(mm, prepared);
        host.rescheds.get() - before
    })
}

#[test]
fn a_large_page_is_cleared_in_parts() {
    let fault = |resched_after| {
        let large = |mm: &Mm<'_>| {
            let id = mapped(mm, ANON, 2048);
            mm.space(id).advise(pages(AT, 2048), Advice::Large).unwrap();
            id
        };
        rescheds(resched_after, large, |mm, id| {
            mm.space(id).fault(PageNumber(0x10200).addr(), UserAccess::Write).unwrap();
            assert_eq!(mm.counter(quietmm::Counter::LargeFault), 1);
        })
    };
    assert_eq!((fault(1024), fault(u32::MAX)), (8, 0), "64 pages of 512 at a time");
}

#[test]
fn files_are_read_and_written_16_pages_at_a_time() {
    let file = |mm: &Mm<'_>| {
        let file = mm.create_file(64).unwrap();
        mm.file(file).write(0, &[1; 64 * 4096]).unwrap();
        file
    };
    let write =
        |after| rescheds(after, file, |mm, file| _ = mm.file(file).write(0, &[2; 64 * 4096]).unwrap());
    let read =
        |after| rescheds(after, file, |mm, file| _ = mm.file(file).read(0, &mut [0; 64 * 4096]).unwrap());
    assert_eq!((write(1024), read(1024)), (4, 4));
    assert_eq!((write(u32::MAX), read(u32::MAX)), (0, 0));
}

#[test]
#[cfg(debug_assertions)]
#[should_panic(expected = "with a spin lock held")]
fn who_gives_way_with_a_spin_lock_held_is_seen() {
    let host = Host::new(Setup::default());
    host.run(bare("linux"), |mm| {
        let id = mapped(mm, ANON, 2);
        let lock = SpinLock::<0>::new();
        let _held = lock.lock(mm);
        mm.space(id).unmap(pages(AT, 2)).unwrap();
    });
}
