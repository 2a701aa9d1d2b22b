//! The simulated hardware under test: what it does with tables, entries and content, without a kernel where none is
//! needed.

use std::cell::RefCell;
use std::rc::Rc;

use quietmm::addr::{FrameNumber, PageRange};
use quietmm::platform::{Access, Hooks, KernelTlb, Memory, UserTlb};
use quietmm::{
    Backing, Config, CpuId, Entry, Error, Event, Kind, PageNumber, Policy, Prot, UserAccess, VirtAddr,
};
use quietmm_workloads::{Machine as _, TaskKind};

use crate::machine::Machine;
use crate::sim::{Sim, Stop, Watch};
use crate::story::Story;

struct Nobody;

impl Watch for Nobody {
    fn progress(&self, _done: u64, _total: u64) {}
    fn cancelled(&self) -> bool {
        false
    }
}

fn machine(cpus: u32, changes: &[(&str, &str)]) -> Machine {
    let mut machine = Machine::builtin("uma-8").unwrap().with_cpus(cpus).unwrap();
    machine.set("memory", "8MiB").unwrap();
    changes.iter().for_each(|(key, value)| machine.set(key, value).unwrap_or_else(|e| panic!("{e}")));
    machine
}

fn sim(cpus: u32, changes: &[(&str, &str)]) -> Sim<'static, true> {
    Sim::new(machine(cpus, changes), 8, 1, None, &Nobody).unwrap()
}

/// Tables by hand: root, two upper levels and a leaf table, one after the other.
const ROOT: FrameNumber = FrameNumber(16);
const UPPER: FrameNumber = FrameNumber(18);
const LEAF: FrameNumber = FrameNumber(19);
/// A page, and what it leads to.
const PAGE: PageNumber = PageNumber(0x10_0000);
const DATA: FrameNumber = FrameNumber(100);

fn entry(sim: &Sim<'_, true>, table: FrameNumber, index: usize) -> *mut u64 {
    sim.direct(table.phys()).cast::<u64>().wrapping_add(index)
}

fn put(sim: &Sim<'_, true>, table: FrameNumber, index: usize, to: Entry) {
    // SAFETY: inside a frame of the machine's memory; one thread.
    unsafe { *entry(sim, table, index) = to.0 };
}

fn get(sim: &Sim<'_, true>, table: FrameNumber, index: usize) -> Entry {
    // SAFETY: as in `put`.
    Entry(unsafe { *entry(sim, table, index) })
}

fn taken(sim: &Sim<'_, true>, frame: FrameNumber, kind: Kind) {
    sim.observe(&Event::Taken { frame, order: 0, kind });
}

/// A machine whose CPU 0 has the tables loaded, with two pages in the leaf table.
fn mapped(changes: &[(&str, &str)]) -> Sim<'static, true> {
    let sim = sim(2, changes);
    for i in 0..4 {
        let table = ROOT.add(i);
        taken(&sim, table, Kind::Table);
        if i < 3 {
            put(&sim, table, PAGE.index(3 - i), Entry::table(table.add(1)));
        }
    }
    for i in 0..2 {
        taken(&sim, DATA.add(i), Kind::Anon);
        let clean = Entry::page(DATA.add(i), Prot::ReadWrite);
        put(&sim, LEAF, PAGE.index(0) + i as usize, Entry(clean.0 & !Entry::ACCESSED));
    }
    sim.load_space(ROOT, 0, false);
    sim
}

fn at(page: u64) -> VirtAddr {
    PageNumber(PAGE.0 + page).addr()
}

/// The frame that an access uses.
fn used(sim: &Sim<'_, true>, page: u64, write: bool) -> Option<u32> {
    sim.translate(at(page), if write { UserAccess::Write } else { UserAccess::Read }, |frame| frame.0)
}

/// The core's `Unmapped` of a page.
fn cut(sim: &Sim<'_, true>, frame: FrameNumber) {
    sim.truth().cleared(frame, 1, (0, PAGE), 1, 0);
}

#[test]
fn a_walk_sets_accessed_and_dirty_bits_and_needs_rights() {
    let sim = mapped(&[]);
    assert_eq!(used(&sim, 0, false), Some(DATA.0));
    assert!(get(&sim, LEAF, 0).has(Entry::ACCESSED) && !get(&sim, LEAF, 0).has(Entry::DIRTY));
    assert_eq!(used(&sim, 0, true), Some(DATA.0));
    assert!(get(&sim, LEAF, 0).has(Entry::DIRTY));
    assert_eq!(used(&sim, 2, false), None, "nothing is there");

    put(&sim, LEAF, 2, Entry::page(DATA, Prot::Read));
    assert!(used(&sim, 2, false).is_some() && used(&sim, 2, true).is_none(), "it may be read only");
    put(&sim, LEAF, 3, Entry(Entry::page(DATA, Prot::ReadWrite).0 & !Entry::USER));
    assert_eq!(used(&sim, 3, false), None, "it is not the user's");
}

#[test]
fn what_is_data_is_not_executed_though_it_is_cached() {
    let sim = mapped(&[]);
    let executed = |page| sim.translate(at(page), UserAccess::Execute, |frame| frame.0);
    assert_eq!((used(&sim, 0, true), executed(0)), (Some(DATA.0), None));
    put(&sim, LEAF, 2, Entry::page(DATA, Prot::ReadExecute));
    assert_eq!((executed(2), used(&sim, 2, false), used(&sim, 2, true)), (Some(DATA.0), Some(DATA.0), None));
    // It stays cached as code until the flush, or until a fault.
    assert_eq!(executed(2), Some(DATA.0));
    put(&sim, LEAF, 2, Entry::page(DATA, Prot::Read));
    assert_eq!(executed(2), Some(DATA.0));
    sim.flush_page(at(2));
    assert_eq!(executed(2), None);
}

#[test]
fn a_dirty_entry_without_the_right_to_write_is_not_written_through() {
    let sim = mapped(&[]);
    put(&sim, LEAF, 0, Entry(Entry::page(DATA, Prot::Read).0 | Entry::DIRTY));
    assert!(used(&sim, 0, false).is_some());
    assert_eq!(used(&sim, 0, true), None);
}

/// `mapped`, with a large page at `PAGE` in place of the leaf table.
fn mapped_large(changes: &[(&str, &str)]) -> Sim<'static, true> {
    let sim = mapped(changes);
    let large = Entry::page(FrameNumber(512), Prot::ReadWrite).0 & !Entry::ACCESSED | Entry::LARGE;
    put(&sim, UPPER, PAGE.index(1), Entry(large));
    sim
}

#[test]
fn a_large_page_leads_to_512_frames_and_its_bits_are_one_level_up() {
    for entries in ["16", "0"] {
        let sim = mapped_large(&[("large_entries", entries)]);
        assert_eq!((used(&sim, 0, false), used(&sim, 511, false)), (Some(512), Some(1023)));
        let bits = get(&sim, UPPER, PAGE.index(1));
        assert!(bits.has(Entry::ACCESSED | Entry::LARGE) && !bits.has(Entry::DIRTY));
        assert_eq!(used(&sim, 5, true), Some(517));
        assert!(get(&sim, UPPER, PAGE.index(1)).has(Entry::DIRTY));
        let refills = if entries == "0" { 3 } else { 2 };
        assert_eq!(sim.cpu().refills.get(), refills, "{entries} entries");
    }
}

#[test]
fn a_cached_large_entry_outlives_the_table_and_is_judged_by_the_small_frame() {
    let sim = mapped_large(&[]);
    assert!(used(&sim, 0, false).is_some());
    put(&sim, UPPER, PAGE.index(1), Entry::NONE);
    // The second half of the page is unmapped, and one frame of it is freed.
    sim.truth().cleared(FrameNumber(768), 256, (0, PageNumber(PAGE.0 + 256)), 1, 0);
    assert_eq!(used(&sim, 0, false), Some(512));
    assert_eq!((sim.truth().window, sim.truth().stale), (0, 0));
    assert_eq!(used(&sim, 300, false), Some(812));
    assert_eq!((sim.truth().window, sim.truth().stale), (1, 0));
    sim.observe(&Event::Freed { frame: FrameNumber(812), order: 0 });
    used(&sim, 300, false);
    used(&sim, 301, false);
    assert_eq!((sim.truth().window, sim.truth().stale), (2, 1));
    sim.flush_page(at(7));
    assert_eq!(used(&sim, 300, false), None, "a flush of any page drops the large entry");
}

#[test]
fn a_walk_goes_on_from_the_table_that_is_remembered() {
    let sim = mapped(&[]);
    assert!(used(&sim, 0, false).is_some());
    put(&sim, UPPER, PAGE.index(1), Entry::NONE);
    assert_eq!(used(&sim, 1, false), Some(DATA.0 + 1), "no look at the upper tables");
    sim.flush_page(at(1));
    assert_eq!(used(&sim, 1, false), None);
    assert_eq!(used(&sim, 0, false), Some(DATA.0), "its TLB entry was not flushed");

    let sim = mapped(&[("walk_cache", "0")]);
    assert!(used(&sim, 0, false).is_some());
    put(&sim, UPPER, PAGE.index(1), Entry::NONE);
    assert_eq!(used(&sim, 1, false), None);
}

#[test]
fn a_table_freed_while_a_cpu_remembers_it_is_stale_at_once_and_when_it_is_walked() {
    let sim = mapped(&[]);
    assert!(used(&sim, 0, false).is_some());
    sim.observe(&Event::Freed { frame: LEAF, order: 0 });
    assert_eq!(sim.truth().stale, 1);
    assert!(sim.truth().stories[0].said.contains("CPU 0 remembers"), "{:?}", sim.truth().stories);
    assert!(used(&sim, 1, false).is_some());
    assert_eq!(sim.truth().stale, 2);
    assert!(sim.truth().stories[1].said.contains("by way of frame 0x13"), "{:?}", sim.truth().stories);
}

#[test]
fn a_table_that_was_flushed_or_belongs_to_another_tag_may_be_freed() {
    let sim = mapped(&[]);
    assert!(used(&sim, 0, false).is_some());
    sim.flush_space();
    sim.observe(&Event::Freed { frame: LEAF, order: 0 });
    assert_eq!(sim.truth().stale, 0);

    let sim = mapped(&[]);
    assert!(used(&sim, 0, false).is_some());
    sim.load_space(FrameNumber(30), 1, true);
    sim.observe(&Event::Freed { frame: LEAF, order: 0 });
    assert_eq!(sim.truth().stale, 0, "what another tag remembers is not walked before its next load");
}

#[test]
fn a_root_freed_while_a_cpu_has_it_loaded_is_stale() {
    let sim = mapped(&[]);
    sim.make_current(1);
    sim.observe(&Event::Freed { frame: ROOT, order: 0 });
    assert_eq!(sim.truth().stale, 1);
    assert!(sim.truth().stories[0].said.contains("CPU 0 has loaded"), "{:?}", sim.truth().stories);

    let sim = mapped(&[]);
    sim.load_space(FrameNumber(30), 0, false);
    sim.observe(&Event::Freed { frame: ROOT, order: 0 });
    assert_eq!(sim.truth().stale, 0);
}

#[test]
fn a_mapping_that_leads_to_a_free_frame_is_stale() {
    let sim = mapped(&[]);
    sim.observe(&Event::Freed { frame: DATA, order: 0 });
    assert!(used(&sim, 0, false).is_some());
    assert_eq!(sim.truth().stale, 1);
    taken(&sim, DATA, Kind::Anon);
    sim.flush_space();
    assert!(used(&sim, 0, false).is_some());
    assert_eq!(sim.truth().stale, 1);
}

#[test]
fn a_write_to_a_page_that_is_being_written_out_is_stale_even_where_it_is_mapped() {
    let sim = mapped(&[]);
    assert!(used(&sim, 0, true).is_some());
    sim.observe(&Event::WriteBegins { frame: DATA });
    assert!(used(&sim, 0, false).is_some() && used(&sim, 1, true).is_some());
    assert_eq!(sim.truth().stale, 0, "reads do no harm, nor do writes to other pages");
    assert!(used(&sim, 0, true).is_some());
    assert_eq!(sim.truth().stale, 1);
    assert!(sim.truth().stories[0].said.contains("through a valid mapping"), "{:?}", sim.truth().stories);
    sim.observe(&Event::WriteEnds { frame: DATA, ok: true });
    assert!(used(&sim, 0, true).is_some());
    assert_eq!(sim.truth().stale, 1);
}

#[test]
fn a_write_through_a_clean_entry_walks_again_unless_the_guarantee_is_withdrawn() {
    let sim = mapped(&[]);
    assert!(sim.guarantees().clean_write_walks() && sim.guarantees().unflushed_accessed());
    assert!(used(&sim, 0, false).is_some());
    put(&sim, LEAF, 0, Entry::NONE);
    cut(&sim, DATA);
    assert_eq!(used(&sim, 0, true), None);

    let sim = mapped(&[("guarantees.clean_write_walks", "no"), ("unflushed_accessed", "false")]);
    assert!(!sim.guarantees().clean_write_walks() && !sim.guarantees().unflushed_accessed());
    assert!(used(&sim, 0, false).is_some() && used(&sim, 1, false).is_some());
    put(&sim, LEAF, 0, Entry::NONE);
    cut(&sim, DATA);
    assert_eq!(used(&sim, 0, true), Some(DATA.0), "it goes through");
    assert_eq!(get(&sim, LEAF, 0), Entry::NONE, "and the table does not hear of it");
    assert_eq!(used(&sim, 1, true), Some(DATA.0 + 1));
    assert!(!get(&sim, LEAF, 1).has(Entry::DIRTY), "not even where the entry is still there");
}

#[test]
fn clearing_and_copying_a_frame_moves_its_content() {
    let sim = mapped(&[]);
    sim.set_content(DATA, 7);
    sim.copy_frame(DATA, DATA.add(1));
    assert_eq!(sim.content(DATA.add(1)), 7);
    sim.clear_frame(DATA);
    assert_eq!((sim.content(DATA), sim.content(DATA.add(1))), (0, 7));
}

#[test]
fn what_is_stored_is_loaded_after_it_was_on_the_disk() {
    let sim = sim(2, &[]);
    let config = Config { min_free: Some(64), ..Config::new(Policy::parse("linux").unwrap()) };
    let system = sim.system(config).unwrap();
    let space = system.mm.create_space().unwrap();
    let pages = 2 * sim.machine.memory / 4096;
    let file = system.mm.create_file(pages).unwrap();
    let show = PageRange::new(PAGE, pages);
    system.mm.space(space).map(show, Backing::File { file, offset: 0 }, Prot::ReadWrite).unwrap();
    let wrong = Rc::new(RefCell::new(Vec::new()));
    let found = Rc::clone(&wrong);
    system.spawn("writer".into(), TaskKind::User(space), CpuId(1), move |system| {
        // Every third page stays a hole.
        let value = |page: u64| if page.is_multiple_of(3) { 0 } else { page + 1 };
        for page in (0..pages).filter(|&page| value(page) != 0) {
            system.store(at(page), value(page))?;
        }
        for page in 0..pages {
            let seen = system.load(at(page))?;
            if seen != value(page) {
                found.borrow_mut().push((page, seen));
            }
        }
        // A frame that held something is zeros to whoever gets it next.
        system.mm.space(space).unmap(show)?;
        system.mm.space(space).map(PageRange::new(PAGE, 64), Backing::Anonymous, Prot::ReadWrite)?;
        for page in 0..64 {
            let seen = system.load(at(page))?;
            if seen != 0 {
                found.borrow_mut().push((page, seen));
            }
        }
        Ok(())
    });
    assert_eq!(sim.run(&system), Stop::Finished);
    assert!(system.reports().iter().all(|task| task.result.is_ok()), "{:?}", system.reports());
    assert_eq!(*wrong.borrow(), []);
    assert!(sim.written.borrow().len() as u64 > pages / 4, "memory was short, and pages were written out");
    assert_eq!((sim.truth().stale, sim.truth().lost), (0, 0), "{:?}", sim.truth().stories);
}

/// `mapped`, with a page at a kernel address that leads to `DATA`, by the same lower tables.
fn mapped_in_the_kernel() -> (Sim<'static, true>, VirtAddr) {
    let sim = mapped(&[]);
    let page = PageNumber(PageNumber::KERNEL_START.0 + PAGE.0 + 2);
    put(&sim, ROOT, page.index(3), Entry::table(ROOT.add(1)));
    put(&sim, LEAF, page.index(0), of_the_kernel(DATA));
    (sim, page.addr())
}

fn of_the_kernel(frame: FrameNumber) -> Entry {
    Entry(frame.phys().0 | Entry::PRESENT | Entry::WRITABLE | Entry::DIRTY | Entry::GLOBAL)
}

/// Refills, stale accesses and window accesses so far.
fn seen(sim: &Sim<'_, true>) -> [u64; 3] {
    [sim.cpu().refills.get(), sim.truth().stale, sim.truth().window]
}

#[test]
fn a_global_entry_outlives_spaces_and_goes_with_a_flush_of_kernel_addresses() {
    let (sim, at) = mapped_in_the_kernel();
    let touch = || sim.kernel_access(at, 1, Access::Write);
    assert_eq!(used(&sim, 0, false), Some(DATA.0));
    touch().unwrap();
    assert_eq!(seen(&sim), [2, 0, 0]);
    sim.load_space(ROOT, 0, false);
    sim.flush_space();
    touch().unwrap();
    assert_eq!(seen(&sim), [2, 0, 0], "it is still there");
    sim.flush_kernel_page(at);
    touch().unwrap();
    sim.flush_kernel();
    touch().unwrap();
    assert_eq!(seen(&sim), [4, 0, 0]);
    assert_eq!(sim.translate(at, UserAccess::Read, |_| ()), None, "it is not the user's");
}

#[test]
fn a_stale_use_of_a_kernel_address_is_seen() {
    let (sim, at) = mapped_in_the_kernel();
    let touch = || sim.kernel_access(at, 1, Access::Read);
    touch().unwrap();
    put(&sim, LEAF, at.page().index(0), Entry::NONE);
    touch().unwrap();
    // Two looks each: at the start of an access and at its end.
    assert_eq!(seen(&sim), [1, 0, 2], "unmapped, and not flushed yet");
    put(&sim, LEAF, at.page().index(0), of_the_kernel(DATA.add(1)));
    touch().unwrap();
    assert_eq!(seen(&sim), [1, 2, 2], "the address is another mapping's");
    put(&sim, LEAF, at.page().index(0), of_the_kernel(DATA));
    sim.observe(&Event::Freed { frame: DATA, order: 0 });
    touch().unwrap();
    assert_eq!(seen(&sim), [1, 4, 2], "the frame is free");
    let stories = sim.truth().stories.iter().map(Story::to_string).collect::<Vec<_>>().join("\n");
    for part in ["though the address leads to frame 0x65 by now", "after the frame was freed"] {
        assert!(stories.contains(part), "{part}: {stories}");
    }
    sim.flush_kernel();
    put(&sim, LEAF, at.page().index(0), Entry::NONE);
    assert_eq!(touch(), Err(Error::NotMapped(at.page())), "nobody resolves a fault there");
}

#[test]
fn a_read_only_kernel_page_is_not_written_to() {
    let (sim, at) = mapped_in_the_kernel();
    put(&sim, LEAF, at.page().index(0), Entry(of_the_kernel(DATA).0 & !Entry::WRITABLE));
    sim.kernel_access(at, 1, Access::Read).unwrap();
    assert!(sim.kernel_access(at, 1, Access::Write).is_err());
}

/// How many pages were reclaimed wrongly when a page that its CPU has cached was looked at twice, and used in between
/// or not. The look clears the accessed bit, and flushes or not, as aging does.
fn wrongly(flush: bool, uses: bool) -> u64 {
    let sim = mapped(&[]);
    let look = || {
        let seen = get(&sim, LEAF, 0);
        put(&sim, LEAF, 0, Entry(seen.0 & !Entry::ACCESSED));
        if flush {
            sim.flush_page(at(0));
        }
        sim.observe(&Event::Looked { frame: DATA, used: seen.has(Entry::ACCESSED) });
        seen.has(Entry::ACCESSED)
    };
    assert_eq!(used(&sim, 0, false), Some(DATA.0));
    assert!(look(), "it was walked to");
    if uses {
        assert_eq!(used(&sim, 0, false), Some(DATA.0));
    }
    let seen = look();
    assert_eq!(seen, flush && uses, "a cached entry sets no bit");
    if !seen {
        sim.observe(&Event::Evicted { frame: DATA });
    }
    sim.truth().wrong_reclaims
}

#[test]
fn a_page_is_wrongly_reclaimed_if_it_was_used_through_an_entry_that_was_not_flushed() {
    assert_eq!(wrongly(false, true), 1);
    assert_eq!(wrongly(true, true), 0, "with the flush its use is seen, and it stays");
    assert_eq!(wrongly(false, false), 0, "it was idle");
    assert_eq!(wrongly(true, false), 0);
}
