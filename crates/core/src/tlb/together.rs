//! Flushes of one space that several CPUs want at the same time, made one.
//!
//! Whoever wants a flush adds its pages to those that wait. Whoever finds nobody flushing takes all that wait, flushes them at once,
//! and says up to whom that was. The others wait for it. So however many unmap at the same time, a CPU is interrupted once for all who
//! came while it answered the last time.
//!
//! ```text
//!   this CPU                           who flushes
//!   entries cleared                    takes the pages, and reads how many have asked
//!   under the lock: pages added,       flushes
//!     I am the n-th who asks           done = as many as had asked
//!   done >= n: they are gone
//! ```
//!
//! Entries are cleared before their pages are added, and the flush begins after they are taken: so it covers them.

use super::flush::flush;
use crate::Manager;
use crate::addr::{PageNumber, PageRange};
use crate::charge::charge;
use crate::event::FlushReason;
use crate::handle::SpaceId;
use crate::platform::Platform;
use crate::profile::Scope;
use crate::rule::Rule;

/// Flushes pages of a space as [`flush`] does, with those that others want flushed in it. With interrupts on; may wait.
///
/// At most one IPI per CPU that uses the space, for all who are served.
pub(crate) fn flush_together<P: Platform>(
    mm: &Manager<'_, P>,
    id: SpaceId,
    range: Option<PageRange>,
    reason: FlushReason,
    tables: bool,
) {
    const ALL: PageRange = PageRange::between(PageNumber(0), PageNumber::USER_END);
    let (p, all) = (mm.platform(), &mm.space_at(id).together);
    let range = range.unwrap_or(ALL);
    let (range, tables, asked) = if all.begin(p) {
        all.take_with(mm, range, tables)
    } else {
        let mine = all.add(mm, range, tables);
        let mut flushes = false;
        let waiting = charge(p, Scope::IpiWait);
        p.wait(all.key(), &mut || {
            let is_done = all.is_done(p, mine) || p.broken(Rule::WaitForWhoFlushes);
            flushes = !is_done && all.begin(p);
            is_done || flushes
        });
        drop(waiting);
        if !flushes {
            return;
        }
        // Whoever ended just before this one began may have flushed for it too.
        if all.is_done(p, mine) {
            return all.end(p);
        }
        all.take(mm)
    };
    flush(mm, id, Some(range).filter(|&range| range != ALL), reason, tables);
    all.done(p, if p.broken(Rule::FlushedIsWhatWasTaken) { all.asked(p) } else { asked });
    all.end(p);
}
