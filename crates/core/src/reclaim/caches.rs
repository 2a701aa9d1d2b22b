//! The caches of the embedding kernel's own: they give back in proportion to what is looked at of the pages of programs, and all that they
//! have before anybody is told that there is no memory.

use crate::Manager;
use crate::addr::NodeId;
use crate::event::Event;
use crate::handle::GroupSlot;
use crate::platform::{Platform, Shrink};
use crate::reclaim::lru::LruType;
use crate::resched::{Work, cost};

/// Whoever gets nothing of the pages asks for this share first, 2^-12 as of a list of pages, and doubles it.
const PRIORITY: u32 = 12;

/// How much the caches are asked for.
#[derive(Clone, Copy)]
pub(super) enum Share {
    /// As much of what they have as was looked at of these pages.
    Of { scanned: u32, pages: u64 },
    /// More and more, up to everything, until so many frames came back: the pages have no more to give.
    Until(u32),
}

/// How many pages of a node there are to look at, before somebody does; where there are no caches nobody wants to know.
pub(super) fn pages_before<P: Platform>(
    mm: &Manager<'_, P>,
    node: NodeId,
    work: &mut Work<'_, '_, P>,
) -> u64 {
    let p = mm.platform();
    if p.shrinker().is_none() {
        return 0;
    }
    let anon = mm.swap_may_shrink();
    let groups = core::iter::once(GroupSlot::NONE).chain(mm.groups().slots(p));
    let mut pages = 0;
    for group in groups {
        pages += mm.lists(node, group).pages_of(p, |kind| kind == LruType::Files || anon);
        work.did(cost::ENTRY);
    }
    pages
}

/// Asks the caches. Returns how many frames came back. Needs interrupts on and no spin lock held. May wait.
pub(super) fn ask<P: Platform>(
    mm: &Manager<'_, P>,
    node: NodeId,
    share: Share,
    work: &mut Work<'_, '_, P>,
) -> u32 {
    let Some(shrinker) = mm.platform().shrinker() else { return 0 };
    let mut ask = |scanned, pages| {
        mm.might_sleep();
        let frames = shrinker.shrink(&Shrink { node, scanned, pages });
        mm.emit(Event::CachesAsked { frames });
        work.did(cost::RECLAIM);
        frames
    };
    let wanted = match share {
        Share::Of { scanned: 0, .. } => return 0,
        Share::Of { scanned, pages } => return ask(scanned.into(), pages.max(1)),
        Share::Until(wanted) => wanted,
    };
    let mut freed = 0_u32;
    for priority in (0..=PRIORITY).rev() {
        if freed >= wanted {
            break;
        }
        freed = freed.saturating_add(ask(1, 1 << priority));
    }
    freed
}

/// The same for whoever has no pages of programs at all, from the nodes near this one.
pub(super) fn ask_all<P: Platform>(mm: &Manager<'_, P>, from: NodeId, work: &mut Work<'_, '_, P>) -> u32 {
    ask(mm, from, Share::Until(mm.config().scan_batch), work)
}
