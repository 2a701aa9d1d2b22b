//! How much a process may have mapped.

use crate::areas::{Wanted, What, rights};
use crate::errno::Errno;
use crate::kernel::Linux;
use crate::machine::Machine;
use crate::process::{Layout, Thread, limit};

/// How many times all memory and swap a program may ask for at once. Linux refuses what is more than all there is; programs come here
/// from larger machines.
const TIMES: u64 = 16;
/// What is never too much, and costs no look at how much there is: no machine has less than 16 MiB.
const NEVER: u64 = TIMES * (16 << 20);

impl<M: Machine> Linux<'_, M> {
    /// Whether a process may have so much more mapped.
    pub(super) fn may_have(&self, thread: &Thread, layout: &Layout, wanted: Wanted) -> Result<(), Errno> {
        if wanted.counts && wanted.bytes > NEVER {
            let swap: u64 = self.mm.swap().usage().slots * 4;
            let all = (self.machine.memory().0 + swap) << 10;
            if wanted.bytes > all.saturating_mul(TIMES) {
                return Err(Errno::ENOMEM);
            }
        }
        let space = thread.process.limits.with(|limits| limits[limit::SPACE][0]);
        let all = || -> u64 { layout.areas.iter().map(|(start, area)| area.end - start).sum() };
        if space != u64::MAX && all().saturating_add(wanted.bytes) > space {
            return Err(Errno::ENOMEM);
        }
        if wanted.is_data { self.may_have_data(thread, layout, wanted.bytes) } else { Ok(()) }
    }

    /// Whether so much more of what it has mapped may be its own to write.
    pub(super) fn may_have_data(&self, thread: &Thread, layout: &Layout, bytes: u64) -> Result<(), Errno> {
        let data = thread.process.limits.with(|limits| limits[limit::DATA][0]);
        if data == u64::MAX {
            return Ok(());
        }
        let each = layout.areas.iter().map(|(start, area)| {
            let is_own = !matches!(area.what, What::File { shared: true, .. });
            let is_data = is_own && area.rights & (rights::WRITE | rights::GROWS) == rights::WRITE;
            if is_data { area.end - start } else { 0 }
        });
        if each.sum::<u64>().saturating_add(bytes) > data { Err(Errno::ENOMEM) } else { Ok(()) }
    }
}
