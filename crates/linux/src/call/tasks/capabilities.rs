//! Calls about what a process may: answered as Linux does.

use alloc::sync::Arc;

use crate::capabilities::{ALL, LAST, MAY_CHANGE};
use crate::errno::{Answer, Errno};
use crate::kernel::Linux;
use crate::layout::Pack;
use crate::machine::Machine;
use crate::process::{Process, Thread};

impl<M: Machine> Linux<'_, M> {
    /// How many words of each kind a program gives and takes; one that asks what there are is told.
    fn words(&self, head: u64) -> Result<u32, Errno> {
        match self.load_word(head)? {
            0x1998_0330 => Ok(1),
            0x2007_1026 | 0x2008_0522 => Ok(2),
            _ => {
                self.machine.write_user(head, &0x2008_0522_u32.to_le_bytes())?;
                Err(Errno::EINVAL)
            }
        }
    }

    fn meant_by(&self, thread: &Thread, head: u64) -> Result<Arc<Process>, Errno> {
        let pid = self.load_word(head + 4)?;
        if (pid as i32) < 0 {
            return Err(Errno::EINVAL);
        }
        if pid == 0 { Ok(thread.process.clone()) } else { self.process_with(pid).ok_or(Errno::ESRCH) }
    }

    pub(crate) fn capget(&self, thread: &Thread, head: u64, to: u64) -> Answer {
        let words = match self.words(head) {
            // Whoever asks only for what there is.
            Err(Errno::EINVAL) if to == 0 => return Ok(0),
            words => words?,
        };
        let process = self.meant_by(thread, head)?;
        if to == 0 {
            return Ok(0);
        }
        let all = process.owner.with(|owner| owner.capabilities);
        let sets = [all.effective, all.permitted, all.inheritable];
        let word = |at: u32| move |set: u64| (set >> (32 * at)) as u32;
        let pack = (0..words)
            .fold(Pack::default(), |pack, at| sets.into_iter().map(word(at)).fold(pack, Pack::word));
        self.machine.write_user(to, &pack.0).map(|()| 0)
    }

    pub(crate) fn capset(&self, thread: &Thread, head: u64, from: u64) -> Answer {
        let words = self.words(head)?;
        let process = self.meant_by(thread, head)?;
        if process.pid != thread.process.pid {
            return Err(Errno::EPERM);
        }
        let mut sets = [0_u64; 3];
        for at in 0..u64::from(words) {
            for (index, set) in (0..).zip(&mut sets) {
                *set |= u64::from(self.load_word(from + 12 * at + 4 * index)?) << (32 * at);
            }
        }
        let [effective, permitted, inheritable] = sets.map(|set| set & ALL);
        process.owner.with(|owner| {
            let now = &mut owner.capabilities;
            let may_inherit = if now.effective & MAY_CHANGE != 0 { now.bounding } else { now.permitted };
            if permitted & !now.permitted != 0
                || effective & !permitted != 0
                || inheritable & !(now.inheritable | may_inherit) != 0
            {
                return Err(Errno::EPERM);
            }
            (now.effective, now.permitted, now.inheritable) = (effective, permitted, inheritable);
            now.ambient &= permitted & inheritable;
            Ok(0)
        })
    }

    /// `prctl` as far as it is about rights.
    pub(super) fn control_rights(&self, thread: &Thread, [what, value, more, ..]: [u64; 5]) -> Answer {
        const KEEPS: u64 = 7;
        const KEEP: u64 = 8;
        const CAN_HAVE: u64 = 23;
        const GIVE_UP: u64 = 24;
        thread.process.owner.with(|owner| {
            let now = &mut owner.capabilities;
            let bit = 1_u64.checked_shl(value as u32).filter(|_| value <= LAST);
            match what {
                KEEPS => Ok(now.stay.into()),
                KEEP if value > 1 => Err(Errno::EINVAL),
                KEEP => {
                    now.stay = value == 1;
                    Ok(0)
                }
                CAN_HAVE => bit.map(|bit| u64::from(now.bounding & bit != 0)).ok_or(Errno::EINVAL),
                GIVE_UP if now.effective & MAY_CHANGE == 0 => Err(Errno::EPERM),
                GIVE_UP => {
                    now.bounding &= !bit.ok_or(Errno::EINVAL)?;
                    Ok(0)
                }
                // Those that programs of others keep: is set, raise, lower, all away.
                _ => {
                    let bit = 1_u64.checked_shl(more as u32).filter(|_| more <= LAST);
                    match (value, bit) {
                        (1, Some(bit)) => Ok(u64::from(now.ambient & bit != 0)),
                        (2, Some(bit)) if now.permitted & now.inheritable & bit == 0 => Err(Errno::EPERM),
                        (2, Some(bit)) => {
                            now.ambient |= bit;
                            Ok(0)
                        }
                        (3, Some(bit)) => {
                            now.ambient &= !bit;
                            Ok(0)
                        }
                        (4, _) if more == 0 => {
                            now.ambient = 0;
                            Ok(0)
                        }
                        _ => Err(Errno::EINVAL),
                    }
                }
            }
        })
    }
}
