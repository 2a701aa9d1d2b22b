//! Who must be asked for a flush, and who is left alone.

use core::sync::atomic::Ordering;

use crate::Manager;
use crate::event::Event;
use crate::percpu::{CpuGuard, Presence};
use crate::platform::Platform;
use crate::rule::Rule;
use crate::vma::SpaceState;

/// Puts into `targets` the CPUs of the space's mask but this one, those that are offline and, if they may be left
/// alone, the lazy.
pub(super) fn choose<P: Platform>(here: &CpuGuard<'_, '_, P>, space: &SpaceState, tables: bool) {
    let p = here.mm.platform();
    let targets = &here.slot().targets;
    space.cpus.0.add_to(p, targets);
    targets.remove(here.cpu);
    leave_alone(here, !tables || p.broken(Rule::TablesToLazy));
}

/// Takes out of `targets` who needs no flush (INV-6). CPUs that are offline hold nothing, and start with nothing
/// when they come back. Lazy ones, where asked for, compare generations before they touch a user address again,
/// and the generation was raised before this looks.
pub(super) fn leave_alone<P: Platform>(here: &CpuGuard<'_, '_, P>, lazy: bool) {
    let (mm, p) = (here.mm, here.mm.platform());
    let targets = &here.slot().targets;
    for cpu in targets.iter() {
        // Acquire: partner of the Releases of `enter_lazy` and `cpu_offline`: its last use comes before.
        match mm.slot(cpu).presence.word.load(p, Ordering::Acquire) {
            Presence::OFFLINE => targets.remove(cpu),
            Presence::LAZY if lazy => {
                targets.remove(cpu);
                mm.emit(Event::LazySkipped);
            }
            _ => {}
        }
    }
}

/// Whether a CPU other than this one has the space loaded lazily: only a flush for tables that go interrupts it. A moment's truth.
pub(crate) fn others_are_lazy<P: Platform>(mm: &Manager<'_, P>, space: &SpaceState) -> bool {
    let (p, here) = (mm.platform(), mm.platform().this_cpu());
    let is_lazy = |cpu| mm.slot(cpu).presence.word.load(p, Ordering::Relaxed) == Presence::LAZY;
    space.cpus.0.any(p, |cpu| cpu != here && is_lazy(cpu))
}
