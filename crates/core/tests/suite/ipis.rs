//! What each operation costs other CPUs, in interrupts. The table in `docs/ipis.md` is what this measures.

use crate::machine;

use std::cell::Cell;
use std::fmt::Write;

use machine::{Host, Mm, Setup, bare, pages};
use quietmm::{
    Advice, Backing, Config, Counter, FileId, FrameNumber, KernelProt, Migrated, NodeId, NodeSet, PageNumber,
    PageRange, Pins, Prot, Region, SpaceId, Term, UserAccess, VmapPlace,
};

/// A range is in the middle of a mapping of this many pages, so that its table stays in use; but what is to empty whole
/// tables begins at the first page.
const MAPPED: u64 = 1536;
const AT: u64 = 0x1000;
const INSIDE: u64 = AT + 256;
const TO: u64 = 0x4000;
const COUNTS: [u64; 3] = [1, 32, 512];
/// How many CPUs use the space, and whether all but the one that does the operation are lazy.
const MACHINES: [(u32, bool); 5] = [(1, false), (8, false), (48, false), (8, true), (48, true)];

/// Where kernel pages are mapped.
const KERNEL: PageNumber = PageNumber(0xf_fff8_0000_0000);

const FRAME: FrameNumber = FrameNumber(0xfc00);

/// Memory that comes later.
const LATER: Region = Region { start: FrameNumber(0x10c00), frames: 1024, node: NodeId(1) };

fn config() -> Config {
    Config { vmap: Some(PageRange::new(KERNEL, 1 << 18)), vmap_lazy: Some(u64::MAX), ..bare("quiet") }
}

thread_local! {
    /// The file that is mapped.
    static FILE: Cell<Option<FileId>> = const { Cell::new(None) };
}

/// So many pages there, all of one frame.
fn vmap(mm: &Mm<'_>, n: u64) {
    let place = VmapPlace { within: Some(PageRange::new(KERNEL, n + 1)), ..VmapPlace::ANYWHERE };
    let frames = vec![FRAME; n as usize];
    mm.vmap().map(&frames, place, KernelProt::ReadWrite).unwrap();
}

const BEGIN: &str = "<!-- measured: begin -->\n";
const END: &str = "<!-- measured: end -->\n";
const DOCUMENT: &str = include_str!("../../../../docs/ipis.md");

/// An operation, and how many flushes of other CPUs it may cost on a range of so many pages.
struct Operation {
    name: &'static str,
    /// Whether the memory is a file's.
    file: bool,
    prot: Prot,
    /// Whether it is to empty whole tables; the range begins at a table's border then.
    tables: bool,
    /// Whether the space must be used by nobody but lazily.
    needs_lazy: bool,
    before: fn(&Mm<'_>, SpaceId, u64, u64),
    /// Whether others use the range again after that.
    uses: bool,
    run: fn(&Mm<'_>, SpaceId, u64, u64),
    flushes: fn(u64) -> u64,
    /// Whether lazy CPUs are interrupted too.
    reaches_lazy: bool,
    /// The most pages that it takes.
    most: u64,
}

const PLAIN: Operation = Operation {
    name: "",
    file: false,
    prot: Prot::ReadWrite,
    tables: false,
    needs_lazy: false,
    before: |_, _, _, _| {},
    uses: true,
    run: |_, _, _, _| {},
    flushes: |_| 1,
    reaches_lazy: false,
    most: 512,
};

const OPERATIONS: [Operation; 32] = [
    Operation {
        name: "`map`",
        run: |mm, id, _, n| mm.space(id).map(pages(TO, n), Backing::Anonymous, Prot::ReadWrite).unwrap(),
        flushes: |_| 0,
        ..PLAIN
    },
    Operation { name: "`unmap`", run: |mm, id, at, n| mm.space(id).unmap(pages(at, n)).unwrap(), ..PLAIN },
    Operation {
        name: "`unmap` of a whole table",
        tables: true,
        run: |mm, id, at, n| mm.space(id).unmap(pages(at, n)).unwrap(),
        reaches_lazy: true,
        ..PLAIN
    },
    Operation {
        name: "`protect` to read-only",
        run: |mm, id, at, n| mm.space(id).protect(pages(at, n), Prot::Read).unwrap(),
        ..PLAIN
    },
    Operation {
        name: "`protect` to read and write",
        prot: Prot::Read,
        run: |mm, id, at, n| mm.space(id).protect(pages(at, n), Prot::ReadWrite).unwrap(),
        flushes: |_| 0,
        ..PLAIN
    },
    Operation {
        name: "`move_range`",
        run: |mm, id, at, n| mm.space(id).move_range(pages(at, n), PageNumber(TO)).unwrap(),
        ..PLAIN
    },
    Operation { name: "`fork`", run: |mm, id, _, _| _ = mm.space(id).fork().unwrap(), ..PLAIN },
    Operation {
        name: "`pin` and `unpin`",
        run: |mm, id, at, n| {
            for at in (at..at + n).step_by(Pins::MOST) {
                let some = pages(at, n.min(Pins::MOST as u64));
                mm.unpin(mm.space(id).pin(some, UserAccess::Write, Term::Long).unwrap());
            }
        },
        flushes: |_| 0,
        ..PLAIN
    },
    Operation {
        name: "write faults after a fork",
        before: |mm, id, _, _| _ = mm.space(id).fork().unwrap(),
        run: |mm, id, at, n| {
            (at..at + n)
                .for_each(|page| mm.space(id).fault(PageNumber(page).addr(), UserAccess::Write).unwrap());
        },
        flushes: |n| n,
        ..PLAIN
    },
    Operation {
        name: "`advise(Drop)`",
        run: |mm, id, at, n| mm.space(id).advise(pages(at, n), Advice::Drop).unwrap(),
        ..PLAIN
    },
    Operation {
        name: "`advise(Drop)` of a whole table",
        tables: true,
        run: |mm, id, at, n| mm.space(id).advise(pages(at, n), Advice::Drop).unwrap(),
        ..PLAIN
    },
    Operation {
        name: "`free_empty_tables`",
        file: true,
        tables: true,
        run: |mm, id, _, _| assert!(mm.space(id).free_empty_tables().unwrap() > 0),
        before: |mm, _, _, _| mm.file(FILE.get().unwrap()).set_size(0).unwrap(),
        uses: false,
        reaches_lazy: true,
        ..PLAIN
    },
    Operation {
        name: "`advise(Large)`",
        run: |mm, id, at, n| mm.space(id).advise(pages(at, n), Advice::Large).unwrap(),
        flushes: |_| 0,
        ..PLAIN
    },
    Operation {
        name: "`advise(Collapse)`",
        tables: true,
        run: |mm, id, at, n| mm.space(id).advise(pages(at, n), Advice::Collapse).unwrap(),
        reaches_lazy: true,
        ..PLAIN
    },
    Operation {
        name: "`advise(Cold)`",
        file: true,
        run: |mm, id, at, n| mm.space(id).advise(pages(at, n), Advice::Cold).unwrap(),
        flushes: |_| 0,
        ..PLAIN
    },
    Operation {
        name: "`advise(PageOut)`",
        file: true,
        run: |mm, id, at, n| mm.space(id).advise(pages(at, n), Advice::PageOut).unwrap(),
        flushes: |n| n.div_ceil(32),
        ..PLAIN
    },
    Operation {
        name: "`populate`",
        run: |mm, id, _, n| mm.space(id).populate(pages(AT + MAPPED - n, n), UserAccess::Write).unwrap(),
        flushes: |_| 0,
        ..PLAIN
    },
    Operation {
        name: "`remap`, longer in place",
        run: |mm, id, _, n| mm.space(id).remap(pages(AT, MAPPED), pages(AT, MAPPED + n)).unwrap(),
        flushes: |_| 0,
        ..PLAIN
    },
    Operation {
        name: "`remap`, elsewhere and longer",
        run: |mm, id, at, n| mm.space(id).remap(pages(at, n), pages(TO, n + 8)).unwrap(),
        ..PLAIN
    },
    Operation {
        name: "`migrate`",
        run: |mm, id, at, n| assert_eq!(mm.space(id).migrate(pages(at, n), NodeId(1)), Ok(n)),
        ..PLAIN
    },
    Operation {
        name: "`migrate_all` of a file's pages",
        file: true,
        before: |mm, _, _, _| mm.drain_lru_batches(),
        run: |mm, id, at, n| {
            let near = NodeSet::of(&[NodeId(0)]).unwrap();
            let done = mm.space(id).migrate_all(pages(at, n), near, NodeId(1));
            assert_eq!(done, Ok(Migrated { moved: n, stayed: 0 }));
        },
        flushes: |n| n.div_ceil(32),
        ..PLAIN
    },
    Operation {
        name: "`write_back`",
        file: true,
        run: |mm, _, _, n| assert_eq!(mm.file(FILE.get().unwrap()).write_back(), Ok(n)),
        flushes: |n| n.div_ceil(32),
        ..PLAIN
    },
    Operation {
        name: "`write_back_range`",
        file: true,
        run: |mm, _, at, n| assert_eq!(mm.file(FILE.get().unwrap()).write_back_range(at - AT, n), Ok(n)),
        flushes: |n| n.div_ceil(32),
        ..PLAIN
    },
    Operation {
        name: "`File::set_size`",
        file: true,
        run: |mm, _, _, _| mm.file(FILE.get().unwrap()).set_size(0).unwrap(),
        flushes: |n| n.div_ceil(32),
        ..PLAIN
    },
    Operation {
        name: "`Space::destroy`",
        needs_lazy: true,
        run: |mm, id, _, _| mm.space(id).destroy().unwrap(),
        reaches_lazy: true,
        ..PLAIN
    },
    Operation { name: "`Vmap::map`", run: |mm, _, _, n| vmap(mm, n), flushes: |_| 0, ..PLAIN },
    Operation {
        name: "`Vmap::unmap`",
        before: |mm, _, _, n| vmap(mm, n),
        run: |mm, _, _, _| mm.vmap().unmap(KERNEL).unwrap(),
        flushes: |_| 0,
        ..PLAIN
    },
    Operation {
        name: "`map_ram` and `unmap_ram`",
        run: |mm, _, _, n| {
            let range = mm.vmap().map_ram(&vec![FRAME; n as usize], KernelProt::ReadWrite).unwrap();
            mm.vmap().unmap_ram(range).unwrap();
        },
        flushes: |_| 0,
        most: 32,
        ..PLAIN
    },
    Operation {
        name: "`unmap_aliases` after `Vmap::unmap`",
        before: |mm, _, _, n| {
            vmap(mm, n);
            mm.vmap().unmap(KERNEL).unwrap();
        },
        run: |mm, _, _, _| mm.vmap().unmap_aliases().unwrap(),
        reaches_lazy: true,
        ..PLAIN
    },
    Operation {
        name: "`Vmap::purge` after 64 times `Vmap::unmap`",
        before: |mm, _, _, n| {
            let frames = vec![FRAME; n as usize];
            let map = || mm.vmap().map(&frames, VmapPlace::ANYWHERE, KernelProt::ReadWrite).unwrap();
            (0..64).for_each(|_| mm.vmap().unmap(map().start).unwrap());
        },
        run: |mm, _, _, _| _ = mm.vmap().purge().unwrap(),
        reaches_lazy: true,
        ..PLAIN
    },
    Operation {
        name: "`unmap_aliases`, nothing unmapped",
        before: |mm, _, _, n| vmap(mm, n),
        run: |mm, _, _, _| mm.vmap().unmap_aliases().unwrap(),
        flushes: |_| 0,
        ..PLAIN
    },
    Operation {
        name: "`add_block` and `bring_online`",
        run: |mm, _, _, _| {
            // SAFETY: the machine has it, and nobody uses it.
            let block = unsafe { mm.frames().add_block(LATER.start).unwrap() };
            mm.frames().bring_online(block);
        },
        flushes: |_| 0,
        most: 1,
        ..PLAIN
    },
];

/// Interrupts, full flushes and flushes of one page, on all CPUs together.
fn measure(operation: &Operation, count: u64, cpus: u32, lazy: bool) -> [u64; 3] {
    let region =
        |node, at: u32| Region { start: FrameNumber(FRAME.0 + at), frames: 2048, node: NodeId(node) };
    let regions = Some(vec![region(0, 0), region(1, 2048)]);
    let host = Host::new(Setup {
        cpus,
        nodes: 2,
        frames: 4096 + 1024,
        regions,
        later: vec![LATER],
        ..Setup::default()
    });
    host.run(config(), |mm| {
        let id = mm.create_space().unwrap();
        let at = if operation.tables { AT } else { INSIDE };
        let backing = if operation.file {
            let file = mm.create_file(MAPPED).unwrap();
            FILE.set(Some(file));
            Backing::File { file, offset: 0 }
        } else {
            Backing::Anonymous
        };
        mm.space(id).map(pages(AT, MAPPED), backing, operation.prot).unwrap();
        // CPU 0 first: what it touches comes from its node.
        for cpu in 0..cpus as u16 {
            host.on(cpu, || {
                mm.space(id).switch_to().unwrap();
                for page in at..at + count {
                    match operation.prot {
                        Prot::ReadWrite => host.write(mm, id, page, 1).unwrap(),
                        _ => assert_eq!(host.read(mm, id, page), Ok(0)),
                    }
                }
            });
        }
        (operation.before)(mm, id, at, count);
        for cpu in 1..cpus as u16 {
            host.on(cpu, || {
                let used = (at..at + count).all(|page| host.try_read(page).is_some());
                assert_eq!(used, operation.uses);
                if lazy {
                    mm.enter_lazy();
                }
            });
        }
        let counters = [Counter::IpisSent, Counter::LocalFlushAll, Counter::LocalFlushOne];
        let before = counters.map(|counter| mm.counter(counter));
        (operation.run)(mm, id, at, count);
        let now = counters.map(|counter| mm.counter(counter));
        [0, 1, 2].map(|i| now[i] - before[i])
    })
}

/// The rows, checked against what each operation may cost.
fn table() -> String {
    let mut text = String::from("| operation | pages |");
    for (cpus, lazy) in MACHINES {
        let (plural, lazy) = (if cpus == 1 { "" } else { "s" }, if lazy { ", others lazy" } else { "" });
        write!(text, " {cpus} CPU{plural}{lazy} |").unwrap();
    }
    text += "\n|---|--:|";
    text += &"--:|".repeat(MACHINES.len());
    text += "\n";
    for operation in &OPERATIONS {
        for count in
            COUNTS.into_iter().filter(|&count| count <= operation.most && (!operation.tables || count == 512))
        {
            write!(text, "| {} | {count} |", operation.name).unwrap();
            for (cpus, lazy) in MACHINES {
                if operation.needs_lazy && cpus > 1 && !lazy {
                    text += " |";
                    continue;
                }
                let [ipis, all, one] = measure(operation, count, cpus, lazy);
                let others = if lazy && !operation.reaches_lazy { 0 } else { u64::from(cpus) - 1 };
                let expected = others * (operation.flushes)(count);
                assert_eq!(ipis, expected, "{}, {count} pages, {cpus} CPUs, lazy: {lazy}", operation.name);
                match ipis {
                    0 => write!(text, " 0 ({all} + {one}) |").unwrap(),
                    _ => write!(text, " **{ipis}** ({all} + {one}) |").unwrap(),
                }
            }
            text += "\n";
        }
    }
    text
}

#[test]
fn the_document_says_what_each_operation_costs() {
    let (head, rest) = DOCUMENT.split_once(BEGIN).expect("docs/ipis.md: no begin marker");
    let (held, tail) = rest.split_once(END).expect("docs/ipis.md: no end marker");
    let table = table();
    if std::env::var_os("UPDATE").is_some() {
        let at = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/ipis.md");
        std::fs::write(at, [head, BEGIN, &table, END, tail].concat()).unwrap();
        return;
    }
    let differ = held.lines().zip(table.lines()).find(|(held, measured)| held != measured);
    assert!(
        held == table,
        "docs/ipis.md is not what was measured; first difference:\n{differ:#?}\n\
         If the change is meant: UPDATE=1 cargo test -p quietmm --test suite ipis"
    );
}
