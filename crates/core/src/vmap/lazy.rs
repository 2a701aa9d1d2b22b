//! `vmap=lazy`: addresses from trees of extents; what is unmapped waits for a purge.

use super::entries;
use super::extent::{Owned, Purpose, Unmapped, Want};
use super::extent_cache::{self, defer};
use super::purge::{Effort, is_running, purge, throttle};
use super::request::VmapRequest;
use super::state::KernelRange;
use crate::Manager;
use crate::addr::{PageNumber, PageRange};
use crate::error::Error;
use crate::platform::Platform;
use crate::rule::Rule;
use crate::tlb::kernel::may_wait;

/// See [`Manager::make_kernel`].
pub(super) fn make<'p, P: Platform>(
    mm: &Manager<'p, P>,
    v: &KernelRange<'p>,
    VmapRequest { pages, place, purpose }: VmapRequest,
    fill: impl FnOnce(PageRange) -> Result<(), Error>,
) -> Result<PageRange, Error> {
    let p = mm.platform();
    let want = v.want(mm, pages, place)?;
    throttle(mm, v);
    let owned = match extent_cache::take(mm, v, &want) {
        Some(owned) => owned,
        None => take(mm, v, &want)?,
    };
    let range = PageRange::new(owned.place().start, pages);
    if let Err(error) = v.make_findable(mm, owned.place()).and_then(|()| fill(range)) {
        give_up(mm, v, owned);
        return Err(error);
    }
    v.extent(mm, owned.handle()).set_purpose(p, purpose, want.pages > pages);
    v.publish(mm, owned.place(), owned.in_use());
    Ok(range)
}

/// Gives an extent back that came to nothing (PITFALLS 26).
pub(super) fn give_up<'p, P: Platform>(mm: &Manager<'p, P>, v: &KernelRange<'p>, owned: Owned) {
    if !mm.platform().broken(Rule::GiveBackWhatFailed) {
        v.put_back(mm, owned.never_mapped());
    }
}

/// Takes an extent, after a purge if there is no room without. May wait.
pub(super) fn take<'p, P: Platform>(
    mm: &Manager<'p, P>,
    v: &KernelRange<'p>,
    want: &Want,
) -> Result<Owned, Error> {
    if let Some(owned) = v.take(mm, want)? {
        return Ok(owned);
    }
    // What is missing may be in the hands of a purge on another CPU: then there is room when it has ended (PITFALLS 25).
    let others = mm.platform().broken(Rule::WaitForPurge) && is_running(mm, v);
    if !others && may_wait(mm).is_ok() {
        for effort in [Effort::Begun, Effort::Hard] {
            if purge(mm, v, effort).is_some()
                && let Some(owned) = v.take(mm, want)?
            {
                return Ok(owned);
            }
        }
    }
    Err(Error::NoAddress)
}

/// Takes an extent out of use, clears its entries, and leaves the flush to a purge. Any context.
pub(super) fn unmap<'p, P: Platform>(
    mm: &Manager<'p, P>,
    v: &KernelRange<'p>,
    start: PageNumber,
    purpose: Purpose,
) -> Result<(), Error> {
    let p = mm.platform();
    let (handle, whole, range) = v.withdraw(mm, start, purpose)?;
    if purpose != Purpose::Alloc {
        entries::clear(mm, range);
        defer(mm, v, Unmapped::cleared(handle), whole, 0);
        return Ok(());
    }
    entries::take(mm, range);
    // A zone's lock may be held by whom this interrupts. INV-1 is the caller's where they are freed now: `Config` says so.
    let at_once = mm.config().vfree_at_once && may_wait(mm).is_ok() || p.broken(Rule::FramesWaitForPurge);
    if at_once {
        entries::free_taken(mm, range);
    }
    defer(mm, v, Unmapped::cleared(handle), whole, if at_once { 0 } else { range.pages });
    Ok(())
}
