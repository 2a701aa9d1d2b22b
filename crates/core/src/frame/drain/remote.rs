//! `remote`: the drainer takes the frames off the lists of others itself. Each list has a lock that its CPU takes for
//! every change, nearly always without waiting; nobody is interrupted.

use super::drained::Drained;
use crate::Manager;
use crate::cpu::CpuId;
use crate::frame::percpu::PcpAccess;
use crate::platform::Platform;

/// Takes what others and this CPU hold. By `force` no CPU is passed because it seems to hold nothing.
pub(super) fn take<P: Platform>(mm: &Manager<'_, P>, force: bool) -> Drained {
    let p = mm.platform();
    let (mut frames, mut holders) = (0, 0);
    let mut empty = |cpu: CpuId| {
        let held = mm.slot(cpu).pages.held(p) > 0;
        holders += u32::from(held);
        if held || force {
            // The section ends before the zones' locks are taken.
            let chain = PcpAccess::of(mm, cpu, |section| section.detach());
            frames += mm.put_chain(chain);
        }
    };
    if force {
        mm.online().for_each(p, &mut empty);
    } else {
        mm.holders().for_each(p, &mut empty);
    }
    Drained { frames, sent: 0, holders: Some(holders) }
}
