//! What a process says of itself: the base of `fs`, its name, its limits.

use core::sync::atomic::{AtomicBool, Ordering};

use crate::capabilities;
use crate::errno::{Answer, Errno};
use crate::kernel::Linux;
use crate::layout::Pack;
use crate::machine::Machine;
use crate::process::{Thread, limit};
use crate::signal::number;

impl<M: Machine> Linux<'_, M> {
    pub(crate) fn arch_prctl(&self, thread: &Thread, what: u64, value: u64) -> Answer {
        const SET_FS: u64 = 0x1002;
        const GET_FS: u64 = 0x1003;
        match what {
            SET_FS if value >> 47 != 0 => Err(Errno::EPERM),
            SET_FS => {
                thread.fs.store(value, Ordering::Relaxed);
                self.machine.set_fs(value);
                Ok(0)
            }
            GET_FS => self.machine.write_user(value, &thread.fs().to_le_bytes()).map(|()| 0),
            _ => Err(Errno::EINVAL),
        }
    }

    pub(crate) fn prctl(&self, thread: &Thread, all: [u64; 5]) -> Answer {
        let [what, value, ..] = all;
        const SET_NAME: u64 = 15;
        const GET_NAME: u64 = 16;
        const TELL_OF_PARENT: u64 = 1;
        const TOLD_OF_PARENT: u64 = 2;
        let said = &thread.process.said;
        let keep = |word: &AtomicBool| {
            word.store(value != 0, Ordering::Relaxed);
            Ok(0)
        };
        match what {
            SET_NAME => {
                let mut name = self.load_text(value, 4095)?;
                name.truncate(15);
                self.set_name(&thread.process, thread.tid, name);
                Ok(0)
            }
            GET_NAME => {
                let mut name = self.name_of(&thread.process, thread.tid);
                name.resize(16, 0);
                self.machine.write_user(value, &name).map(|()| 0)
            }
            TELL_OF_PARENT if value > u64::from(number::LAST) => Err(Errno::EINVAL),
            TELL_OF_PARENT => {
                thread.process.with_parent.store(value as u32, Ordering::Relaxed);
                Ok(0)
            }
            TOLD_OF_PARENT => {
                let signal = thread.process.with_parent.load(Ordering::Relaxed);
                self.machine.write_user(value, &signal.to_le_bytes()).map(|()| 0)
            }
            3 => Ok(said.open.load(Ordering::Relaxed).into()),
            4 if value > 1 => Err(Errno::EINVAL),
            4 => keep(&said.open),
            29 => {
                said.set_slack(value);
                Ok(0)
            }
            30 => Ok(said.slack()),
            36 => keep(&said.adopts),
            37 => {
                let adopts = u32::from(said.adopts.load(Ordering::Relaxed));
                self.machine.write_user(value, &adopts.to_le_bytes()).map(|()| 0)
            }
            // It cannot be taken back.
            38 if value != 1 || all[2..] != [0; 3] => Err(Errno::EINVAL),
            38 => keep(&said.no_gain),
            39 => Ok(said.no_gain.load(Ordering::Relaxed).into()),
            41 => keep(&said.small_pages),
            42 => Ok(said.small_pages.load(Ordering::Relaxed).into()),
            // Time is counted as it is used, and may be read; whoever is told of broken memory, as is usual.
            13 => Ok(0),
            14 => {
                if value == 0 {
                    Ok(0)
                } else {
                    Err(Errno::EINVAL)
                }
            }
            25 => self.machine.write_user(value, &1_u32.to_le_bytes()).map(|()| 0),
            34 => Ok(2),
            40 => self
                .machine
                .write_user(value, &thread.clear_tid.load(Ordering::SeqCst).to_le_bytes())
                .map(|()| 0),
            7 | 8 | 23 | 24 | 47 => self.control_rights(thread, all),
            // How root's programs get theirs: in one way.
            27 | 28 => Ok(0),
            21 => Ok(thread.filtering.how().into()),
            22 => self.filter_as(thread, value, all[2]),
            _ => Err(Errno::EINVAL),
        }
    }

    pub(crate) fn prlimit(&self, thread: &Thread, [pid, what, new, old]: [u64; 4]) -> Answer {
        let process = self.process_of(thread, pid)?;
        let what = what as u32 as usize;
        let mut now = process.limits.with(|limits| limits.get(what).copied()).ok_or(Errno::EINVAL)?;
        if new != 0 {
            let wanted = [self.load_long(new)?, self.load_long(new + 8)?];
            if wanted[0] > wanted[1] {
                return Err(Errno::EINVAL);
            }
            // Only who may take more than others lets itself have more.
            let takes_more = thread.process.owner.with(|owner| owner.may(capabilities::TAKES_MORE));
            // As many as there can be, whoever asks.
            if what == limit::FILES && wanted[1] > crate::open::MOST as u64 {
                return Err(Errno::EPERM);
            }
            // In one step with the look: another thread may have less by now.
            now = process.limits.with(|limits| {
                if wanted[1] > limits[what][1] && !takes_more {
                    return Err(Errno::EPERM);
                }
                if what == limit::FILES {
                    process.files.with(|files| files.limit(wanted[0]));
                }
                Ok(core::mem::replace(&mut limits[what], wanted))
            })?;
            if what == limit::CPU {
                self.alarm_changed();
            }
            if what == limit::LOCKED {
                process.limits_locks.store(true, Ordering::Relaxed);
            }
        }
        if old != 0 {
            self.machine.write_user(old, &Pack::default().long(now[0]).long(now[1]).0)?;
        }
        Ok(0)
    }
}
