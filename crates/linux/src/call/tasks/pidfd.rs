//! Processes as open files.

use alloc::sync::Arc;
use core::sync::atomic::Ordering;

use crate::announced::Sender;
use crate::errno::{Answer, Errno};
use crate::kernel::Linux;
use crate::machine::Machine;
use crate::open::{Kind, Open, flag as open_flag};
use crate::process::{Process, Thread};
use crate::signal::{Info, number};

impl<M: Machine> Linux<'_, M> {
    /// A process as an open file: it can be read, as `poll` has it, once it has ended.
    pub(super) fn open_process(&self, thread: &Thread, process: &Arc<Process>, flags: u32) -> Answer {
        let open = Open::new(
            Kind::Process(process.clone()),
            flags & open_flag::NO_WAIT | open_flag::READ_WRITE,
            b"anon_inode:[pidfd]".to_vec(),
        );
        thread.process.files.with(|files| files.add(open, true, 0))
    }

    pub(crate) fn pidfd_open(&self, thread: &Thread, pid: u64, flags: u64) -> Answer {
        if flags & !u64::from(open_flag::NO_WAIT) != 0 || pid as i32 <= 0 {
            return Err(Errno::EINVAL);
        }
        let process = self.process_of(thread, pid)?;
        if process.pid != pid as u32 {
            // It is a thread's.
            return Err(Errno::EINVAL);
        }
        self.open_process(thread, &process, flags as u32)
    }

    pub(super) fn process_behind(&self, thread: &Thread, number: u64) -> Result<Arc<Process>, Errno> {
        match &self.open_file(thread, number)?.kind {
            Kind::Process(process) => Ok(process.clone()),
            // Its directory below `/proc`.
            Kind::Directory(inode) if crate::procfs::shows(inode).is_some() => {
                let pid = crate::procfs::shows(inode).unwrap_or_default();
                self.processes.with(|all| all.get(&pid).cloned()).ok_or(Errno::ESRCH)
            }
            _ => Err(Errno::EBADF),
        }
    }

    /// What another process has open, here too.
    pub(crate) fn pidfd_getfd(&self, thread: &Thread, [number, theirs, flags]: [u64; 3]) -> Answer {
        if flags != 0 {
            return Err(Errno::EINVAL);
        }
        let process = match &self.open_file(thread, number)?.kind {
            Kind::Process(process) => process.clone(),
            _ => return Err(Errno::EBADF),
        };
        if process.ended.load(Ordering::SeqCst) != 0 {
            return Err(Errno::ESRCH);
        }
        if !self.may_look_into(thread, &process) {
            return Err(Errno::EPERM);
        }
        let open = process.files.with(|files| files.get(theirs))?;
        thread.process.files.with(|files| files.add(open, true, 0))
    }

    /// The memory of a process that is about to end is given back: it is when it ends.
    pub(crate) fn process_mrelease(&self, thread: &Thread, number: u64, flags: u64) -> Answer {
        if flags as u32 != 0 {
            return Err(Errno::EINVAL);
        }
        let process = match &self.open_file(thread, number)?.kind {
            Kind::Process(process) => process.clone(),
            _ => return Err(Errno::EBADF),
        };
        match process.dying.load(Ordering::SeqCst) {
            0 => Err(Errno::EINVAL),
            _ if process.ended.load(Ordering::SeqCst) != 0 => Err(Errno::ESRCH),
            _ => Ok(0),
        }
    }

    pub(crate) fn pidfd_send_signal(
        &self,
        thread: &Thread,
        [number, signal, info, flags]: [u64; 4],
    ) -> Answer {
        let process = self.process_behind(thread, number)?;
        if flags != 0 || signal > u64::from(number::LAST) {
            return Err(Errno::EINVAL);
        }
        if process.ended.load(Ordering::SeqCst) != 0 {
            // Until it was waited for, it is there.
            return self.processes.with(|all| all.get(&process.pid).map(|_| 0)).ok_or(Errno::ESRCH);
        }
        if info != 0 {
            // One that was sent on says itself which it is.
            if self.load_word(info)? != signal as u32 {
                return Err(Errno::EINVAL);
            }
            return self.sigqueue(thread, None, [process.pid.into(), signal, info]);
        }
        if !Sender::of(&thread.process).may_signal(&process, signal as u32) {
            return Err(Errno::EPERM);
        }
        if signal != 0 {
            let word = thread.process.names_itself();
            self.post(&process, None, Info { signal: signal as u32, word, ..Info::default() });
        }
        Ok(0)
    }
}
