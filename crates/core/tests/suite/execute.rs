//! Execution is a right of its own: what is mapped to be read or written is not executed, and what loses that right is flushed.

use crate::machine;

use machine::race::at;
use machine::showing::{ANON, AT, LARGE, TO, frame, private, shared};
use machine::swapping::{DEVICE, is_out, squeeze, swapping};
use machine::{Mm, Setup, bare, pages, settled};
use quietmm::{
    Advice, Backing, Config, Counter, Entry, Error, KernelProt, PageNumber, PageRange, Prot, Rule, SpaceId,
    UserAccess, VmapPlace,
};

const COUNT: u64 = 4;

fn setup() -> Setup {
    Setup { cpus: 2, frames: 2048, ..Setup::default() }
}

fn space(mm: &Mm<'_>, backing: Backing, start: u64, count: u64, prot: Prot) -> SpaceId {
    let id = mm.create_space().unwrap();
    mm.space(id).map(pages(start, count), backing, prot).unwrap();
    (0..2).for_each(|cpu| mm.platform().on(cpu, || mm.space(id).switch_to().unwrap()));
    id
}

fn end(mm: &Mm<'_>, id: SpaceId) {
    (0..2).for_each(|cpu| mm.platform().on(cpu, || mm.unload()));
    mm.space(id).destroy().unwrap();
}

/// What a CPU may do with a page, by trying: with the faults that it takes.
fn may(mm: &Mm<'_>, id: SpaceId, page: u64) -> [bool; 3] {
    let host = mm.platform();
    let done =
        [host.read(mm, id, page), host.write(mm, id, page, page).map(|()| 0), host.execute(mm, id, page)];
    done.map(|done| {
        assert!(matches!(done, Ok(_) | Err(Error::NotPermitted(_))), "{done:?}");
        done.is_ok()
    })
}

fn of(prot: Prot) -> [bool; 3] {
    UserAccess::ALL.map(|access| prot.permits(access))
}

/// Kinds of memory, of which some is there.
fn kinds(mm: &Mm<'_>) -> [(&'static str, Backing, u64, u64); 4] {
    let file = mm.create_file(COUNT).unwrap();
    [
        ("its own", ANON, AT, COUNT),
        ("a file's", shared(file), AT, COUNT),
        ("a file's, privately", private(file), AT, COUNT),
        ("a large page", ANON, LARGE, 512),
    ]
}

#[test]
fn a_mapping_permits_what_it_says_and_nothing_else() {
    at(&setup(), &bare("linux"), None, |mm| {
        for (kind, backing, start, count) in kinds(mm) {
            for prot in Prot::ALL {
                let id = space(mm, backing, start, count, prot);
                if count == 512 {
                    mm.space(id).advise(pages(start, count), Advice::Large).unwrap();
                }
                for page in [start, start + 1] {
                    assert_eq!(may(mm, id, page), of(prot), "{kind}, {prot:?}");
                }
                assert_eq!(settled(mm).broken, None, "{kind}, {prot:?}");
                end(mm, id);
            }
        }
    });
}

/// From any rights to any others, with another CPU that has cached what it could: whoever loses a right is flushed, once, and nobody else is.
#[test]
fn rights_that_are_taken_cost_a_flush_and_rights_that_are_given_none() {
    let pairs = || Prot::ALL.into_iter().flat_map(|from| Prot::ALL.map(|to| (from, to)));
    at(&setup(), &bare("linux"), None, |mm| {
        let host = mm.platform();
        for (kind, backing, start, count) in kinds(mm) {
            for (from, to) in pairs() {
                let what = format!("{kind}, {from:?} to {to:?}");
                let id = space(mm, backing, start, count, from);
                if count == 512 {
                    mm.space(id).advise(pages(start, count), Advice::Large).unwrap();
                }
                for page in [start, start + 1] {
                    assert_eq!(host.on(1, || may(mm, id, page)), of(from), "{what}");
                }
                host.forget();
                mm.space(id).protect(pages(start, count), to).unwrap();
                let less = of(from).into_iter().zip(of(to)).any(|(had, has)| had && !has);
                assert_eq!(host.interrupts_to(1) > 0, less, "{what}");
                for page in [start, start + 1] {
                    let (cached, rights) = (host.on(1, || host.try_execute(page).is_some()), of(to));
                    assert!(rights[2] || !cached, "{what}: executed after all");
                    assert_eq!(host.on(1, || may(mm, id, page)), rights, "{what}");
                    assert_eq!(may(mm, id, page), rights, "{what}");
                }
                assert_eq!((host.stale.get(), settled(mm).broken), (0, None), "{what}");
                end(mm, id);
            }
        }
    });
}

#[test]
fn code_that_becomes_data_is_flushed_before_protect_returns() {
    for broken in [None, Some(Rule::FlushBeforeProtectReturns)] {
        let stale = at(&setup(), &bare("linux"), broken, |mm| {
            let host = mm.platform();
            let id = space(mm, ANON, AT, COUNT, Prot::ReadExecute);
            host.on(1, || host.execute(mm, id, AT).unwrap());
            mm.space(id).protect(pages(AT, COUNT), Prot::Read).unwrap();
            // To be read it may be cached all the same.
            let executed = host.on(1, || host.try_execute(AT));
            (executed.is_some(), host.stale.get() > 0)
        });
        assert_eq!(stale == (false, false), broken.is_none(), "{broken:?}: {stale:?}");
    }
}

#[test]
fn what_is_written_is_executed_once_it_is_code() {
    at(&setup(), &bare("linux"), None, |mm| {
        let host = mm.platform();
        let id = space(mm, ANON, AT, COUNT, Prot::ReadWrite);
        host.write(mm, id, AT, 7).unwrap();
        assert_eq!(host.execute(mm, id, AT), Err(Error::NotPermitted(PageNumber(AT))));
        mm.space(id).protect(pages(AT, 1), Prot::ReadExecute).unwrap();
        assert_eq!(host.on(1, || host.execute(mm, id, AT)), Ok(7));
        assert_eq!(host.write(mm, id, AT, 8), Err(Error::NotPermitted(PageNumber(AT))));
        assert_eq!(
            host.execute(mm, id, AT + 1),
            Err(Error::NotPermitted(PageNumber(AT + 1))),
            "a page further"
        );
    });
}

/// A right goes with the page: to a child, to another address, to swap and back, from a large page to small ones.
#[test]
fn a_right_goes_where_the_page_goes() {
    at(&setup(), &swapping("linux"), None, |mm| {
        let host = mm.platform();
        mm.swap().on(DEVICE, 512, 0).unwrap();
        let id = space(mm, ANON, AT, COUNT, Prot::ReadWriteExecute);
        (AT..AT + COUNT).for_each(|page| host.write(mm, id, page, page).unwrap());
        mm.space(id).protect(pages(AT, 2), Prot::ReadExecute).unwrap();
        let code = |id, start: u64| {
            mm.space(id).switch_to().unwrap();
            (start..start + 2).for_each(|page| {
                assert_eq!(host.execute(mm, id, page), Ok(page - start + AT));
                assert_eq!(host.write(mm, id, page, 0), Err(Error::NotPermitted(PageNumber(page))));
            });
            (start + 2..start + COUNT)
                .for_each(|page| assert_eq!(host.execute(mm, id, page), Ok(page - start + AT)));
        };
        let child = mm.space(id).fork().unwrap();
        code(child, AT);
        // The copy of a write may be executed as the page could.
        host.write(mm, child, AT + 2, AT + 2).unwrap();
        assert_ne!(frame(mm, child, AT + 2), frame(mm, id, AT + 2));
        code(child, AT);
        squeeze(mm);
        assert!(is_out(mm, id, AT));
        code(id, AT);
        mm.space(id).move_range(pages(AT, COUNT), PageNumber(TO)).unwrap();
        code(id, TO);
        mm.space(id).protect(pages(TO, 1), Prot::None).unwrap();
        mm.space(id).protect(pages(TO, 1), Prot::ReadExecute).unwrap();
        code(id, TO);
    });
    at(&setup(), &bare("linux"), None, |mm| {
        let host = mm.platform();
        let id = space(mm, ANON, LARGE, 512, Prot::ReadExecute);
        mm.space(id).advise(pages(LARGE, 512), Advice::Large).unwrap();
        assert_eq!(host.execute(mm, id, LARGE + 5), Ok(0));
        mm.space(id).protect(pages(LARGE, 1), Prot::Read).unwrap();
        assert_eq!(mm.counter(Counter::LargeSplit), 1);
        assert!(host.execute(mm, id, LARGE).is_err());
        assert_eq!((host.try_execute(LARGE + 5), host.execute(mm, id, LARGE + 6)), (Some(0), Ok(0)));
    });
}

#[test]
fn a_configuration_forbids_writing_and_executing_at_once() {
    let config = Config { write_xor_execute: true, ..bare("linux") };
    at(&setup(), &config, None, |mm| {
        let host = mm.platform();
        let id = space(mm, ANON, AT, COUNT, Prot::ReadWrite);
        let (range, both) = (pages(AT, COUNT), Prot::ReadWriteExecute);
        host.write(mm, id, AT, 7).unwrap();
        let before = settled(mm);
        assert_eq!(mm.space(id).protect(range, both), Err(Error::WriteAndExecute));
        assert_eq!(mm.space(id).map(pages(TO, 1), ANON, both), Err(Error::WriteAndExecute));
        assert_eq!(settled(mm), before);
        assert_eq!(may(mm, id, AT), of(Prot::ReadWrite));
        mm.space(id).protect(range, Prot::ReadExecute).unwrap();
        assert_eq!(may(mm, id, AT), of(Prot::ReadExecute));
    });
    at(&setup(), &bare("linux"), None, |mm| {
        let id = space(mm, ANON, AT, COUNT, Prot::ReadWriteExecute);
        assert_eq!(may(mm, id, AT), [true; 3], "where it is not forbidden");
    });
}

/// Of the kernel's own range too: what a CPU keeps of a refusal is forgotten only where there is a right.
#[test]
fn a_kernel_page_is_executed_where_that_is_said() {
    let kernel = PageRange::new(PageNumber::KERNEL_START, 1 << 12);
    at(&setup(), &Config { vmap: Some(kernel), ..bare("linux") }, None, |mm| {
        for (prot, executes) in [(KernelProt::ReadWrite, false), (KernelProt::ReadExecute, true)] {
            let page = mm.vmap().alloc(1, VmapPlace::ANYWHERE, prot).unwrap().start;
            assert_eq!(mm.platform().may_execute(page), executes);
            assert_eq!(mm.vmap().fault(page.addr(), UserAccess::Execute).is_ok(), executes);
            mm.vmap().free(page).unwrap();
        }
    });
}

/// What the documents say of an entry's bits.
#[test]
fn no_page_of_a_program_is_executable_by_default() {
    at(&setup(), &bare("linux"), None, |mm| {
        let id = space(mm, ANON, AT, COUNT, Prot::ReadWrite);
        mm.space(id).fault(PageNumber(AT).addr(), UserAccess::Write).unwrap();
        let entry = mm.space(id).lookup(PageNumber(AT)).unwrap();
        assert!(entry.has(Entry::NO_EXECUTE) && !entry.permits(UserAccess::Execute));
        assert_eq!(
            mm.space(id).fault(PageNumber(AT).addr(), UserAccess::Execute),
            Err(Error::NotPermitted(PageNumber(AT)))
        );
    });
}
