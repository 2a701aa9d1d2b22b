//! A page that is unmapped, and CPUs that use it.
#![cfg(loom)]

use quietmm::{Backing, PageRange, PageNumber, Prot, Rule, SpaceId, UserAccess};
use quietmm_loom::model::bare;
use quietmm_loom::{Fault, Mm, Model, Setup};

const PAGE: u64 = 0x400;

fn range(pages: u64) -> PageRange {
    PageRange::new(PageNumber(PAGE), pages)
}

/// A space with pages, loaded on CPU 0.
fn space(mm: &Mm, pages: u64) -> SpaceId {
    let id = mm.create_space().unwrap();
    mm.map(id, range(pages), Backing::Anonymous, Prot::ReadWrite).unwrap();
    mm.switch_to(id).unwrap();
    for page in PAGE..PAGE + pages {
        mm.fault(id, PageNumber(page).addr(), UserAccess::Write).unwrap();
    }
    id
}

fn unmap_and_user() -> Model<SpaceId> {
    Model::new(Setup { cpus: 2, tags: 1 }, bare("vanilla"), |mm| {
        let id = space(mm, 1);
        mm.platform().on(1, || {
            mm.switch_to(id).unwrap();
            mm.platform().read(PAGE).unwrap();
        });
        id
    })
    .cpu(|mm, id| mm.unmap(id, range(1)).unwrap())
    .cpu(|mm, _| {
        mm.platform().read(PAGE);
    })
}

#[test]
fn unmap_waits_for_who_uses() {
    unmap_and_user().holds();
}

#[test]
fn unmap_without_wait() {
    unmap_and_user().fails(Fault::Broken(Rule::WaitForAcknowledgement));
}
