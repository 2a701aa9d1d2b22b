//! Which CPUs are online. `hotplug` says so.

use core::sync::atomic::Ordering;

use super::presence::Presence;
use crate::Manager;
use crate::cpu::CpuId;
use crate::cpumask::CpuMask;
use crate::platform::Platform;

impl<P: Platform> Manager<'_, P> {
    /// Whether the core counts on this CPU; not on one that cannot exist. A moment's truth, for any CPU but the caller's
    /// own.
    ///
    /// # Examples
    /// ```
    /// # use quietmm_doc::*;
    /// # doc(|mm| {
    /// assert!(mm.is_online(CpuId(0)) && !mm.is_online(CpuId(1)));
    /// # Ok(())
    /// # });
    /// ```
    pub fn is_online(&self, cpu: CpuId) -> bool {
        let possible = u32::from(cpu.0) < self.platform().possible_cpus();
        possible && self.slot(cpu).presence.word.load(self.platform(), Ordering::Acquire) != Presence::OFFLINE
    }

    /// CPUs that are online.
    pub(crate) fn online(&self) -> &CpuMask {
        &self.root.online
    }

    /// How many CPUs are online. A moment's truth.
    ///
    /// # Examples
    /// ```
    /// # use quietmm_doc::*;
    /// # doc(|mm| {
    /// assert_eq!(mm.online_cpus(), 1);
    /// # Ok(())
    /// # });
    /// ```
    pub fn online_cpus(&self) -> u32 {
        self.root.online_cpus.load(self.platform(), Ordering::Relaxed)
    }
}
