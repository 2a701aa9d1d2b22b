//! What differs where page tables are not those of x86-64: who sets accessed and dirty bits, and what a CPU keeps of an access that
//! it refused. With `QUIETMM_TEST_ARCHITECTURE` nearly all other tests run there too.

use std::panic::{AssertUnwindSafe, catch_unwind};

use quietmm::{
    Advice, Architecture, Backing, Counter, Entry, Error, KernelProt, PageNumber, Prot, Rule, SpaceId,
    UserAccess, VmapPlace,
};

use crate::machine;
use machine::kernel::kernel;
use machine::showing::{AT, LARGE, entry};
use machine::{Host, Mm, Setup, bare, pages};

fn on(architecture: Architecture) -> Host {
    Host::new(Setup { cpus: 2, architecture, ..Setup::default() })
}

/// Anonymous pages at `AT`, in a space that both CPUs have loaded.
fn space(mm: &Mm<'_>) -> SpaceId {
    let id = mm.create_space().unwrap();
    mm.space(id).map(pages(AT, 4), Backing::Anonymous, Prot::ReadWrite).unwrap();
    (0..2).for_each(|cpu| mm.platform().on(cpu, || mm.space(id).switch_to().unwrap()));
    id
}

fn bits(mm: &Mm<'_>, id: SpaceId, page: u64) -> (bool, bool) {
    let entry = entry(mm, id, page);
    (entry.has(Entry::ACCESSED), entry.has(Entry::DIRTY))
}

/// Faults since the last look.
fn faults(mm: &Mm<'_>, before: &mut u64) -> u64 {
    let now = mm.counter(Counter::PgFault);
    now - std::mem::replace(before, now)
}

#[test]
fn a_fault_sets_the_bits_that_no_cpu_sets() {
    let host = on(Architecture::Sv48);
    host.run(bare("linux"), |mm| {
        let (id, mut before) = (space(mm), 0);
        host.read(mm, id, AT).unwrap();
        assert_eq!((bits(mm, id, AT), faults(mm, &mut before)), ((true, false), 1));
        host.write(mm, id, AT, 5).unwrap();
        assert_eq!(
            (bits(mm, id, AT), faults(mm, &mut before)),
            ((true, true), 1),
            "the first write is a fault"
        );
        host.write(mm, id, AT, 6).unwrap();
        assert_eq!(faults(mm, &mut before), 0);
        // A page whose first access is a write costs one fault, not two.
        host.write(mm, id, AT + 1, 7).unwrap();
        assert_eq!((bits(mm, id, AT + 1), faults(mm, &mut before)), ((true, true), 1));
        // Where a CPU sets them there is no fault for it.
        host.make_cold(AT);
        host.read(mm, id, AT).unwrap();
        assert_eq!((bits(mm, id, AT), faults(mm, &mut before)), ((true, true), 1), "and keeps the other bit");
    });
    let host = on(Architecture::Sv48Adu);
    host.run(bare("linux"), |mm| {
        let (id, mut before) = (space(mm), 0);
        host.read(mm, id, AT).unwrap();
        host.write(mm, id, AT, 5).unwrap();
        assert_eq!((bits(mm, id, AT), faults(mm, &mut before)), ((true, true), 1));
    });
}

#[test]
fn a_large_page_is_marked_too() {
    let host =
        Host::new(Setup { cpus: 2, frames: 4096, architecture: Architecture::Sv48, ..Setup::default() });
    host.run(bare("linux"), |mm| {
        let id = space(mm);
        mm.space(id).map(pages(LARGE, 512), Backing::Anonymous, Prot::ReadWrite).unwrap();
        mm.space(id).advise(pages(LARGE, 512), Advice::Large).unwrap();
        host.write(mm, id, LARGE + 7, 1).unwrap();
        let entry = entry(mm, id, LARGE);
        assert!(entry.has(Entry::LARGE | Entry::ACCESSED | Entry::DIRTY), "{entry:?}");
        assert_eq!(host.read(mm, id, LARGE + 7), Ok(1));
        mm.space(id).protect(pages(LARGE + 7, 1), Prot::Read).unwrap();
        assert_eq!(host.read(mm, id, LARGE + 7), Ok(1), "it is small now, in the same frame");
        assert!(bits(mm, id, LARGE + 7).1 && mm.validate().broken.is_none());
    });
}

#[test]
fn a_bit_is_set_only_in_an_entry_that_permits_the_access() {
    let host = on(Architecture::Sv48);
    host.run(bare("linux"), |mm| {
        let id = space(mm);
        host.write(mm, id, AT, 5).unwrap();
        mm.space(id).protect(pages(AT, 1), Prot::None).unwrap();
        let before = host.raw_entry(AT);
        let fault = mm.space(id).fault(PageNumber(AT).addr(), UserAccess::Read);
        assert_eq!(fault, Err(Error::NotPermitted(PageNumber(AT))));
        assert_eq!(host.raw_entry(AT), before);
    });
}

/// A CPU finds nothing at a page; another maps it. Says whether the first can use it then.
fn refused_and_mapped(broken: Option<Rule>) -> bool {
    let host = on(Architecture::Sv48Adu);
    host.run(bare("linux"), |mm| {
        let id = space(mm);
        host.broken.set(broken);
        assert_eq!(host.try_read(AT), None, "and it keeps that");
        host.on(1, || mm.space(id).fault(PageNumber(AT).addr(), UserAccess::Write).unwrap());
        let sent = mm.counter(Counter::IpisSent);
        assert_eq!(host.try_read(AT), None, "as long as it has not faulted");
        let used = catch_unwind(AssertUnwindSafe(|| host.read(mm, id, AT))).is_ok();
        assert_eq!(mm.counter(Counter::IpisSent), sent, "nobody else is interrupted for it");
        used
    })
}

#[test]
fn a_cpu_forgets_that_it_found_nothing_when_it_faults() {
    assert!(refused_and_mapped(None));
    assert!(!refused_and_mapped(Some(Rule::ForgetRefusals)), "it faults for ever");
}

#[test]
fn a_right_that_was_given_reaches_a_cpu_that_keeps_less() {
    let host = on(Architecture::Sv48Adu);
    host.run(bare("linux"), |mm| {
        let id = space(mm);
        host.write(mm, id, AT, 5).unwrap();
        mm.space(id).protect(pages(AT, 1), Prot::Read).unwrap();
        host.on(1, || assert_eq!(host.read(mm, id, AT), Ok(5)));
        let sent = mm.counter(Counter::IpisSent);
        mm.space(id).protect(pages(AT, 1), Prot::ReadWrite).unwrap();
        host.on(1, || {
            assert!(!host.try_write(AT, 6), "it has the page as one that is only read");
            host.write(mm, id, AT, 6).unwrap();
        });
        assert_eq!((host.read(mm, id, AT), mm.counter(Counter::IpisSent)), (Ok(6), sent));
    });
}

#[test]
fn a_kernel_address_that_was_nothing_is_found_after_a_fault() {
    let host = on(Architecture::Sv48);
    let config = kernel("linux", 64);
    let all = config.vmap.unwrap();
    host.run(config, |mm| {
        let alloc = |prot| mm.vmap().alloc(1, VmapPlace::ANYWHERE, prot).unwrap().start;
        for page in (all.start.0..all.end().0).map(PageNumber) {
            assert!(host.read_kernel(page).is_none(), "nothing is there, and the CPU keeps that");
            assert_eq!(mm.vmap().fault(page.addr(), UserAccess::Read), Err(Error::NotMapped(page)));
        }
        let [read, write] = [KernelProt::Read, KernelProt::ReadWrite].map(alloc);
        assert!(host.caches_kernel(0, read) && host.caches_kernel(0, write), "it still keeps that");
        assert!(host.read_kernel(read).is_some() && host.write_kernel(write, 1));
        assert_eq!(mm.vmap().fault(read.addr(), UserAccess::Write), Err(Error::NotPermitted(read)));
        assert!(!host.write_kernel(read, 1));
        let outside = PageNumber(all.end().0);
        assert_eq!(mm.vmap().fault(outside.addr(), UserAccess::Read), Err(Error::BadRange));
        [read, write].into_iter().for_each(|page| mm.vmap().free(page).unwrap());
    });
}

#[test]
fn a_fault_reports_its_flush() {
    let host = on(Architecture::Sv48Adu);
    host.run(bare("linux"), |mm| {
        let id = space(mm);
        let before = mm.counter(Counter::LocalFlushOne);
        host.read(mm, id, AT).unwrap();
        assert_eq!(mm.counter(Counter::LocalFlushOne), before + 1);
    });
}

/// Flushes of all of a space, and page by page, for an unmap with which tables go.
fn flushes_of_tables(architecture: Architecture) -> (u64, u64) {
    let host = on(architecture);
    host.run(bare("linux"), |mm| {
        let id = space(mm);
        (0..2).for_each(|cpu| host.on(cpu, || host.write(mm, id, AT, 1).unwrap()));
        let before = [Counter::LocalFlushAll, Counter::LocalFlushOne].map(|counter| mm.counter(counter));
        mm.space(id).unmap(pages(AT, 4)).unwrap();
        assert_eq!(host.stale.get(), 0, "{architecture:?}: a table is freed under a CPU that can walk it");
        let after = [Counter::LocalFlushAll, Counter::LocalFlushOne].map(|counter| mm.counter(counter));
        (after[0] - before[0], after[1] - before[1])
    })
}

#[test]
fn what_a_cpu_keeps_of_tables_goes_with_them() {
    assert_eq!(flushes_of_tables(Architecture::X86_64), (0, 8), "two CPUs, four pages");
    assert_eq!(flushes_of_tables(Architecture::Sv48), (2, 0), "a page's flush does not reach them");
}

#[test]
fn a_fault_that_finds_nothing_to_do_forgets_what_is_kept_of_tables() {
    let host = on(Architecture::Sv48Adu);
    host.run(bare("linux"), |mm| {
        let id = space(mm);
        host.write(mm, id, AT, 1).unwrap();
        let all = mm.counter(Counter::LocalFlushAll);
        mm.space(id).fault(PageNumber(AT + 1).addr(), UserAccess::Write).unwrap();
        assert_eq!(mm.counter(Counter::LocalFlushAll), all, "a page was missing");
        mm.space(id).fault(PageNumber(AT + 1).addr(), UserAccess::Write).unwrap();
        assert_eq!(mm.counter(Counter::LocalFlushAll), all + 1, "nothing was");
    });
}
