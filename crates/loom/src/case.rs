//! What many cases begin with.

use quietmm::{Backing, Config, ListLimits, PageNumber, PageRange, Policy, Prot, SpaceId, UserAccess};

use crate::machine::Mm;

/// The first user page of every case.
pub const PAGE: u64 = 0x400;

/// A configuration without watermarks and without frames on per-CPU lists: few words.
pub fn bare(policy: &str) -> Config {
    let policy = Policy::parse(policy).expect("a policy");
    Config { page_lists: Some(ListLimits { batch: 1, high: 0 }), min_free: Some(0), ..Config::new(policy) }
}

/// So many pages from [`PAGE`] on.
pub fn pages(pages: u64) -> PageRange {
    PageRange::new(PageNumber(PAGE), pages)
}

/// The page with this number from [`PAGE`] on.
pub fn page(n: u64) -> PageRange {
    PageRange::new(PageNumber(PAGE + n), 1)
}

/// A space with so many pages in memory, that no CPU has loaded yet.
///
/// # Panics
/// If it cannot be had.
pub fn space_of_nobody(mm: &Mm, count: u64) -> SpaceId {
    let id = mm.create_space().expect("a space");
    mm.space(id).map(pages(count), Backing::Anonymous, Prot::ReadWrite).expect("a range");
    for page in PAGE..PAGE + count {
        mm.space(id).fault(PageNumber(page).addr(), UserAccess::Write).expect("memory");
    }
    id
}

/// The same, loaded on the CPU that asks.
///
/// # Panics
/// If it cannot be had.
pub fn space(mm: &Mm, count: u64) -> SpaceId {
    let id = space_of_nobody(mm, count);
    mm.space(id).switch_to().expect("it is live");
    id
}

/// CPU 1 has the space loaded, and its pages in its TLB.
///
/// # Panics
/// If the space is not live.
pub fn used_on_1(mm: &Mm, id: SpaceId, count: u64) {
    let p = mm.platform();
    p.on(1, || {
        mm.space(id).switch_to().expect("it is live");
        for page in PAGE..PAGE + count {
            p.read(page).expect("it is mapped");
        }
    });
}
