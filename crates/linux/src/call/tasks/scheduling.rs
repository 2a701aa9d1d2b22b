//! On which CPUs threads run, what they want of the scheduler, and a barrier of all CPUs.

use alloc::sync::Arc;

use crate::errno::{Answer, Errno};
use crate::kernel::Linux;
use crate::machine::Machine;
use crate::process::{Process, Thread};

impl<M: Machine> Linux<'_, M> {
    pub(crate) fn get_affinity(&self, bytes: u64, to: u64) -> Answer {
        let cpus = self.machine.possible_cpus() as usize;
        let len = cpus.div_ceil(64) * 8;
        if (bytes as usize) < len || !bytes.is_multiple_of(8) {
            return Err(Errno::EINVAL);
        }
        let mut set = alloc::vec![0_u8; len];
        (0..cpus).for_each(|cpu| set[cpu / 8] |= 1 << (cpu % 8));
        self.machine.write_user(to, &set)?;
        Ok(len as u64)
    }

    /// A set of one CPU is where the calling thread goes; of others it is taken as all CPUs.
    pub(crate) fn set_affinity(&self, thread: &Thread, tid: u64, bytes: u64, from: u64) -> Answer {
        let mut set = alloc::vec![0; (bytes as usize).min(512)];
        self.machine.read_user(from, &mut set)?;
        let cpus = self.machine.possible_cpus() as usize;
        let mut meant =
            (0..cpus).filter(|cpu| set.get(cpu / 8).is_some_and(|byte| byte >> (cpu % 8) & 1 != 0));
        let first = meant.next().ok_or(Errno::EINVAL)?;
        if tid == 0 || tid == u64::from(thread.tid) {
            self.machine.prefer(meant.next().is_none().then_some(first as u32));
        }
        Ok(0)
    }

    /// What a thread wants of the scheduler, and its priority. It is kept, and all are served alike.
    pub(crate) fn scheduling(
        &self,
        thread: &Thread,
        tid: u64,
        new: Option<(Option<u32>, u32)>,
    ) -> Result<(u32, u32), Errno> {
        const RESET: u32 = 0x4000_0000;
        let all: alloc::vec::Vec<_> = self.processes.with(|all| all.values().cloned().collect());
        let find = |process: &Arc<Process>| {
            process.threads.with(|all| all.iter().find(|one| u64::from(one.tid) == tid).cloned())
        };
        let found = if tid == 0 { None } else { Some(all.iter().find_map(find).ok_or(Errno::ESRCH)?) };
        let kept = found.as_ref().map_or(&thread.scheduling, |found| &found.scheduling);
        let (old, old_priority) = kept.with(|kept| *kept);
        if let Some((how, priority)) = new {
            let how = how.map_or(old, |how| how & !RESET);
            let fits = match how {
                0 | 3 | 5 => priority == 0,
                1 | 2 => (1..=99).contains(&priority),
                _ => false,
            };
            if !fits {
                return Err(Errno::EINVAL);
            }
            kept.with(|kept| *kept = (how, priority));
        }
        Ok((old, old_priority))
    }

    pub(crate) fn getcpu(&self, cpu: u64, node: u64) -> Answer {
        let here = u32::from(self.machine.this_cpu().0);
        for (at, value) in [(cpu, here), (node, 0)] {
            if at != 0 {
                self.machine.write_user(at, &value.to_le_bytes())?;
            }
        }
        Ok(0)
    }

    /// All CPUs have passed a full barrier when each has been interrupted, or was not in a program of this process: no such
    /// interrupt is sent for programs. The private kinds are not offered, and libraries do without them.
    pub(crate) fn membarrier(&self, what: u64) -> Answer {
        if what == 0 { Ok(0) } else { Err(Errno::EINVAL) }
    }
}
