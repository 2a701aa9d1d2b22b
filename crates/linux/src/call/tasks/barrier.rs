//! Barriers that other CPUs pass (`membarrier`): whoever asks for one need have none where it is fast.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use crate::errno::{Answer, Errno};
use crate::kernel::Linux;
use crate::machine::Machine;
use crate::process::{Process, Thread};

/// What may be asked for, a bit each.
mod ask {
    /// Which there are.
    pub const QUERY: u64 = 0;
    /// All programs pass one.
    pub const ALL: u64 = 1;
    /// Those that have said that they want to.
    pub const WILLING: u64 = 2;
    pub const BE_WILLING: u64 = 4;
    /// Those that share the caller's memory, once that was announced.
    pub const OWN: u64 = 8;
    pub const ANNOUNCE_OWN: u64 = 16;
    /// The same, and they fetch instructions anew.
    pub const FETCH: u64 = 32;
    pub const ANNOUNCE_FETCH: u64 = 64;
    /// What was announced.
    pub const ANNOUNCED: u64 = 512;
    /// There are no sequences here that would begin anew (`rseq`).
    pub const THERE: u64 =
        ALL | WILLING | BE_WILLING | OWN | ANNOUNCE_OWN | FETCH | ANNOUNCE_FETCH | ANNOUNCED;
}

impl<M: Machine> Linux<'_, M> {
    /// The other CPUs that run one of some programs pass a full barrier before this returns. An interrupt is one, and after it instructions
    /// are fetched anew; a CPU that comes to another program passes one by itself.
    pub(crate) fn membarrier(&self, thread: &Thread, what: u64, flags: u64) -> Answer {
        if flags as u32 != 0 {
            return Err(Errno::EINVAL);
        }
        let memory = thread.memory();
        // SeqCst: whoever asks from now on finds it.
        let announce = |bit: u64| memory.barriers.fetch_or(bit as u32, Ordering::SeqCst);
        let announced = || u64::from(memory.barriers.load(Ordering::SeqCst));
        let what = u64::from(what as u32);
        match what {
            ask::QUERY => return Ok(ask::THERE),
            ask::ANNOUNCED => return Ok(announced()),
            ask::BE_WILLING | ask::ANNOUNCE_OWN | ask::ANNOUNCE_FETCH => {
                announce(what);
                return Ok(0);
            }
            ask::OWN | ask::FETCH if announced() & what << 1 == 0 => return Err(Errno::EPERM),
            ask::ALL | ask::WILLING | ask::OWN | ask::FETCH => {}
            _ => return Err(Errno::EINVAL),
        }
        let is_meant = |process: &&Arc<Process>| {
            let its = process.memory.with(|memory| memory.clone());
            its.is_some_and(|its| match what {
                ask::ALL => true,
                ask::WILLING => u64::from(its.barriers.load(Ordering::SeqCst)) & ask::BE_WILLING != 0,
                _ => Arc::ptr_eq(&its, &memory),
            })
        };
        // In order, as they are kept. Whoever comes later begins with a barrier.
        let all: Vec<_> = self.processes.with(|all| all.values().cloned().collect());
        let meant: Vec<u32> = all.iter().filter(is_meant).map(|process| process.pid).collect();
        self.machine.barrier(&|pid| meant.binary_search(&pid).is_ok());
        Ok(0)
    }
}
