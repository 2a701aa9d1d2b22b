//! `Manager::validate` sees what is under way: without that it would see nothing that is left undone either. An audit at every
//! place where the core lets others run, and where devices and other CPUs are waited for, finds something of each kind.

use crate::machine;

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;

use machine::showing::{LARGE, private, shared};
use machine::swapping::{DEVICE, squeeze, swapping};
use machine::{Host, Mm, Setup, pages, pcp};
use quietmm::{Advice, Backing, Config, PageNumber, Prot};

const AT: u64 = 0x1000;
const PAGES: u64 = 40;
/// One of so many places where the core lets others run.
const OF_SO_MANY: u32 = 23;

type Said = Rc<RefCell<BTreeSet<&'static str>>>;

/// An audit at the next so many places of these kinds.
fn listen(mm: &Mm<'_>, said: &Said) {
    let audit = |said: &Said| {
        let said = Rc::clone(said);
        move |mm: &Mm<'_>| said.borrow_mut().extend(mm.validate().broken)
    };
    let host = mm.platform();
    let (some, places) = (audit(said), Cell::new(0_u32));
    host.at_cond_resched(move |mm| {
        if places.replace(places.get() + 1).is_multiple_of(OF_SO_MANY) {
            some(mm);
        }
    });
    for hooks in [&host.on_disk_write, &host.on_disk_read, &host.on_forget, &host.on_pause, &host.on_rotated]
    {
        (0..8).for_each(|_| hooks.borrow_mut().push_back(Box::new(audit(said))));
    }
}

fn quiet(mm: &Mm<'_>) {
    let host = mm.platform();
    *host.on_cond_resched.borrow_mut() = None;
    for hooks in [&host.on_disk_write, &host.on_disk_read, &host.on_forget, &host.on_pause, &host.on_rotated]
    {
        hooks.borrow_mut().clear();
    }
}

#[test]
fn an_audit_in_the_middle_of_something_says_so() {
    let host = Host::new(Setup { cpus: 2, frames: 2048, ..Setup::default() });
    let said = Said::default();
    let config = Config { page_lists: pcp(1), ..swapping("linux") };
    host.run(config, |mm| {
        mm.swap().on(DEVICE, 512, 0).unwrap();
        let file = mm.create_file(PAGES).unwrap();
        let id = mm.create_space().unwrap();
        mm.space(id).map(pages(AT, PAGES), Backing::Anonymous, Prot::ReadWrite).unwrap();
        mm.space(id).map(pages(AT + 64, PAGES), shared(file), Prot::ReadWrite).unwrap();
        mm.space(id).map(pages(AT + 128, PAGES), private(file), Prot::ReadWrite).unwrap();
        mm.space(id).map(pages(LARGE, 512), Backing::Anonymous, Prot::ReadWrite).unwrap();
        mm.space(id).advise(pages(LARGE, 512), Advice::Large).unwrap();
        let touch = || {
            for cpu in [1, 0] {
                host.on(cpu, || {
                    mm.space(id).switch_to().unwrap();
                    for at in [AT, AT + 64, AT + 128, LARGE] {
                        (at..at + PAGES).for_each(|page| host.write(mm, id, page, page).unwrap());
                    }
                });
            }
        };
        touch();
        host.hold_interrupts.set(true);
        listen(mm, &said);
        let child = mm.space(id).fork().unwrap();
        touch();
        mm.file(file).write_back().unwrap();
        squeeze(mm);
        touch();
        mm.space(id).protect(pages(AT, 20), Prot::Read).unwrap();
        mm.space(id).protect(pages(AT, 20), Prot::ReadWrite).unwrap();
        mm.space(id).move_range(pages(AT + 4, 20), PageNumber(AT + 0x2000)).unwrap();
        mm.space(id).unmap(pages(AT + 64, PAGES)).unwrap();
        mm.space(child).destroy().unwrap();
        host.hold_interrupts.set(false);
        quiet(mm);
        assert_eq!(mm.validate().broken, None);
    });
    for what in [
        "a CPU's request that somebody has not acknowledged",
        "a page that is locked, or was never read, and nobody works on it",
        "a space's VMAs are locked",
        "an entry with other rights than its VMA",
        "an unmap batch that nobody flushes",
        "mapping counts and entries that lead to pages differ",
        "page tables that no space reaches",
        "pages of an unmap batch that was never flushed",
        "users of swap slots and entries that name slots differ",
    ] {
        assert!(said.borrow().contains(what), "nobody said: {what}");
    }
}
