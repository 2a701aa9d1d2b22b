//! `vmap=eager`, as it was before: one lock, a list of areas walked first fit, and a flush on every CPU per unmap, waited
//! for under the lock.

use super::entries;
use super::extent::{Idle, Owned, Purpose, Unmapped, Want};
use super::request::{VmapPlace, VmapRequest};
use super::state::KernelRange;
use crate::Manager;
use crate::addr::{FrameNumber, PageNumber, PageRange};
use crate::charge::charge;
use crate::error::Error;
use crate::event::FlushReason;
use crate::frame::AllocFrom;
use crate::paging::KernelProt;
use crate::platform::Platform;
use crate::profile::Scope;
use crate::rule::Rule;
use crate::sync::Word32;
use crate::tlb::kernel;

/// Areas from the lowest up, each with the word that leads to it. Under the lock.
fn areas<'a, 'p, P: Platform>(
    mm: &'a Manager<'p, P>,
    v: &'a KernelRange<'p>,
) -> impl Iterator<Item = (u32, &'p Word32)> + use<'a, 'p, P> {
    let mut link = &v.state.eager.first;
    core::iter::from_fn(move || {
        let handle = link.get(mm.platform()).checked_sub(1)?;
        let from = core::mem::replace(&mut link, &v.extent(mm, handle).next);
        Some((handle, from))
    })
}

/// The first place, and the word that leads to the area behind it.
fn first_fit<'p, P: Platform>(
    mm: &Manager<'p, P>,
    v: &KernelRange<'p>,
    want: &Want,
) -> Option<(PageRange, &'p Word32)> {
    let _scope = charge(mm.platform(), Scope::EagerWalk);
    let p = mm.platform();
    let (mut end, mut link) = (v.range.start, &v.state.eager.first);
    for (handle, from) in areas(mm, v) {
        let area = v.extent(mm, handle).range(p);
        if let Some(place) = want.fit(PageRange::between(end, area.start)) {
            return Some((place, from));
        }
        (end, link) = (area.end(), &v.extent(mm, handle).next);
    }
    want.fit(PageRange::between(end, v.range.end())).map(|place| (place, link))
}

fn take<'p, P: Platform>(mm: &Manager<'p, P>, v: &KernelRange<'p>, want: &Want) -> Result<Owned, Error> {
    let p = mm.platform();
    let slot = v.state.extents.reserve(mm, AllocFrom::HERE)?.commit();
    let guard = v.state.eager.lock.lock(mm);
    let Some((place, link)) = first_fit(mm, v, want) else {
        drop(guard);
        v.state.extents.release(mm, slot);
        return Err(Error::NoAddress);
    };
    let extent = v.extent(mm, slot);
    extent.place(p, place);
    extent.set_purpose(p, Purpose::Unfinished, false);
    extent.next.set(p, link.get(p));
    link.set(p, slot + 1);
    Ok(Owned::new(slot, place))
}

/// Takes an area off the list. Under the lock.
fn unlink<'p, P: Platform>(mm: &Manager<'p, P>, v: &KernelRange<'p>, idle: &Idle) {
    let _scope = charge(mm.platform(), Scope::EagerWalk);
    let p = mm.platform();
    if let Some((handle, from)) = areas(mm, v).find(|(handle, _)| *handle == idle.handle()) {
        from.set(p, v.extent(mm, handle).next.get(p));
    }
}

/// See [`Manager::make_kernel`].
pub(super) fn make<'p, P: Platform>(
    mm: &Manager<'p, P>,
    v: &KernelRange<'p>,
    VmapRequest { pages, place, purpose }: VmapRequest,
    fill: impl FnOnce(PageRange) -> Result<(), Error>,
) -> Result<PageRange, Error> {
    let p = mm.platform();
    let want = v.want(mm, pages, place)?;
    let owned = take(mm, v, &want)?;
    let extent = v.extent(mm, owned.handle());
    extent.set_purpose(p, Purpose::Unfinished, want.pages > pages);
    let range = extent.mapped(p);
    if let Err(error) = fill(range) {
        if !p.broken(Rule::GiveBackWhatFailed) {
            let idle = owned.never_mapped();
            let guard = v.state.eager.lock.lock(mm);
            unlink(mm, v, &idle);
            drop(guard);
            v.state.extents.release(mm, idle.handle());
        }
        return Err(error);
    }
    let _guard = v.state.eager.lock.lock(mm);
    extent.set_purpose(p, purpose, want.pages > pages);
    let _ = owned.in_use();
    Ok(range)
}

/// There were no blocks then: an area like any other, without a guard.
pub(super) fn map_ram<'p, P: Platform>(
    mm: &Manager<'p, P>,
    v: &KernelRange<'p>,
    frames: &[FrameNumber],
    prot: KernelProt,
) -> Result<PageRange, Error> {
    let place = VmapPlace { guard: false, ..VmapPlace::ANYWHERE };
    let asked = VmapRequest { pages: frames.len() as u64, place, purpose: Purpose::Ram };
    make(mm, v, asked, |range| entries::set(mm, range, frames, prot))
}

pub(super) fn unmap_ram<'p, P: Platform>(
    mm: &Manager<'p, P>,
    v: &KernelRange<'p>,
    range: PageRange,
) -> Result<(), Error> {
    release(mm, v, range.start, Purpose::Ram, Some(range.pages))
}

pub(super) fn unmap<'p, P: Platform>(
    mm: &Manager<'p, P>,
    v: &KernelRange<'p>,
    start: PageNumber,
    purpose: Purpose,
) -> Result<(), Error> {
    release(mm, v, start, purpose, None)
}

fn release<'p, P: Platform>(
    mm: &Manager<'p, P>,
    v: &KernelRange<'p>,
    start: PageNumber,
    purpose: Purpose,
    pages: Option<u64>,
) -> Result<(), Error> {
    let p = mm.platform();
    kernel::may_wait(mm)?;
    let guard = v.state.eager.lock.lock(mm);
    let (handle, range) = covering(mm, v, start).ok_or(Error::NotMapped(start))?;
    if range.start != start || v.extent(mm, handle).purpose(p) != purpose {
        return Err(Error::WrongRelease(start));
    }
    if pages.is_some_and(|pages| pages != range.pages) {
        return Err(Error::BadRange);
    }
    if purpose == Purpose::Alloc {
        entries::take(mm, range);
    } else {
        entries::clear(mm, range);
    }
    if !p.broken(Rule::FlushBeforeReuse) {
        kernel::flush(mm, range, FlushReason::KernelUnmap);
    }
    // Flushed, and still under the lock: as soon as the area is off the list its entries may be somebody else's.
    entries::free_taken(mm, range);
    let idle = Unmapped::cleared(handle).flushed();
    unlink(mm, v, &idle);
    drop(guard);
    v.state.extents.release(mm, idle.handle());
    Ok(())
}

/// The area that holds a page, once it is finished. Under the lock.
fn covering<'p, P: Platform>(
    mm: &Manager<'p, P>,
    v: &KernelRange<'p>,
    page: PageNumber,
) -> Option<(u32, PageRange)> {
    let _scope = charge(mm.platform(), Scope::EagerWalk);
    let p = mm.platform();
    let finished = |handle: u32| v.extent(mm, handle).purpose(p) != Purpose::Unfinished;
    areas(mm, v)
        .map(|(handle, _)| (handle, v.extent(mm, handle).mapped(p)))
        .take_while(|(_, range)| range.start <= page)
        .find(|&(handle, range)| range.contains(page) && finished(handle))
}

pub(super) fn find<'p, P: Platform>(
    mm: &Manager<'p, P>,
    v: &KernelRange<'p>,
    page: PageNumber,
) -> Option<PageRange> {
    let _guard = v.state.eager.lock.lock(mm);
    covering(mm, v, page).map(|(_, range)| range)
}

/// For a look at a quiet system.
pub(super) fn each<'p, P: Platform>(mm: &Manager<'p, P>, v: &KernelRange<'p>, mut each: impl FnMut(u32)) {
    areas(mm, v).for_each(|(handle, _)| each(handle));
}
