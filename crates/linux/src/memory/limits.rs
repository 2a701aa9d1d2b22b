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
        let [space, data] =
            thread.process.limits.with(|limits| [limits[limit::SPACE][0], limits[limit::DATA][0]]);
        let sum = |counts: &dyn Fn(u8, bool) -> bool| -> u64 {
            let each = layout.areas.iter().map(|(start, area)| {
                let is_shared = matches!(area.what, What::File { shared: true, .. });
                if counts(area.rights, is_shared) { area.end - start } else { 0 }
            });
            each.sum()
        };
        if space != u64::MAX && sum(&|_, _| true).saturating_add(wanted.bytes) > space {
            return Err(Errno::ENOMEM);
        }
        let is_data = |of: u8, shared: bool| !shared && of & rights::WRITE != 0 && of & rights::GROWS == 0;
        if wanted.is_data && data != u64::MAX && sum(&is_data).saturating_add(wanted.bytes) > data {
            return Err(Errno::ENOMEM);
        }
        Ok(())
    }
}
