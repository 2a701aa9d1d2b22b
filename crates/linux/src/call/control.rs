//! Calls about the numbers of open files.

use alloc::sync::Arc;

use crate::errno::{Answer, Errno};
use crate::kernel::Linux;
use crate::machine::Machine;
use crate::open::{Counter, Files, Kind, Open, flag};
use crate::pipe::Pipe;
use crate::process::Thread;

/// Asked of any file.
const NO_WAIT: u64 = 0x5421;
const SIGNALS: u64 = 0x5452;
const CLOSE_ON_EXEC: u64 = 0x5451;
const NOT_ON_EXEC: u64 = 0x5450;

impl<M: Machine> Linux<'_, M> {
    pub(crate) fn close(&self, thread: &Thread, number: u64) -> Answer {
        let gone = thread.process.files.with(|files| files.take(number))?;
        self.closed(thread, gone);
        Ok(0)
    }

    pub(crate) fn close_range(&self, thread: &Thread, first: u64, last: u64, flags: u64) -> Answer {
        const ON_EXEC: u64 = 4;
        /// Of a table of its own.
        const UNSHARED: u64 = 2;
        if first as u32 > last as u32 || flags & !(ON_EXEC | UNSHARED) != 0 {
            return Err(Errno::EINVAL);
        }
        if flags & UNSHARED != 0 {
            thread.process.files.unshare();
        }
        let numbers = thread.process.files.with(|files| files.numbers());
        for number in numbers.into_iter().filter(|number| (first..=last).contains(number)) {
            if flags & ON_EXEC != 0 {
                let mark = |files: &mut Files| files.close_on_exec(number).map(|cloexec| *cloexec = true);
                let _ = thread.process.files.with(mark);
            } else {
                // Another thread may have been faster.
                let _ = self.close(thread, number);
            }
        }
        Ok(0)
    }

    pub(crate) fn dup(&self, thread: &Thread, number: u64) -> Answer {
        thread.process.files.with(|files| {
            let open = files.get(number)?;
            files.add(open, false, 0)
        })
    }

    pub(crate) fn dup_to(&self, thread: &Thread, from: u64, to: u64, flags: u64, same: bool) -> Answer {
        let cloexec = flags & u64::from(flag::CLOSE_ON_EXEC) != 0;
        if flags & !u64::from(flag::CLOSE_ON_EXEC) != 0 {
            return Err(Errno::EINVAL);
        }
        if from == to && !same {
            return Err(Errno::EINVAL);
        }
        let open = self.open_file(thread, from)?;
        if from == to {
            return Ok(to);
        }
        let gone = thread.process.files.with(|files| files.replace(to, open, cloexec))?;
        gone.into_iter().for_each(|gone| self.closed(thread, gone));
        Ok(to)
    }

    pub(crate) fn fcntl(&self, thread: &Thread, number: u64, what: u64, with: u64) -> Answer {
        /// What is asked of a number alone: others with the same, and how it is opened.
        const OF_NUMBER: [u64; 5] = [0, 1, 2, 3, 1030];
        let open = self.open_file(thread, number)?;
        let files = &thread.process.files;
        if open.has(flag::PATH) && !OF_NUMBER.contains(&what) {
            return Err(Errno::EBADF);
        }
        match what {
            0 | 1030 if with >= files.with(|files| files.most()) as u64 => Err(Errno::EINVAL),
            0 => files.with(|files| files.add(open, false, with as usize)),
            1030 => files.with(|files| files.add(open, true, with as usize)),
            1 => files.with(|files| files.close_on_exec(number).map(|cloexec| u64::from(*cloexec))),
            2 => files
                .with(|files| files.close_on_exec(number).map(|cloexec| *cloexec = with & 1 != 0))
                .map(|()| 0),
            3 => Ok(open.shown_flags().into()),
            4 => {
                let later = flag::LATER & !flag::SIGNALS;
                open.set_flags(later, with as u32);
                let signals = with as u32 & flag::SIGNALS != 0;
                if open.has(flag::SIGNALS) != signals {
                    // Where nothing ever comes nobody hears of it.
                    let _ = self.set_signals(thread, &open, number, signals);
                }
                Ok(0)
            }
            8..=11 | 15 | 16 | 1026 => self.hearer_call(thread, &open, number, what, with),
            5..=7 | 36..=38 => self.record_lock(thread, (&open, number), what, with),
            // Nobody is told when a file is opened that it is leased.
            1025 => Ok(2),
            1033 => self.seals(&open, Some(with)),
            1034 => self.seals(&open, None),
            1031 | 1032 => {
                let (Kind::Pipe(end) | Kind::Both(end, _)) = &open.kind else { return Err(Errno::EBADF) };
                if what == 1032 {
                    return Ok(end.pipe.room() as u64);
                }
                let room = end.pipe.set_room(u64::from(with as u32))?;
                self.changed(crate::sync::key_of(&*end.pipe));
                Ok(room as u64)
            }
            _ => Err(Errno::EINVAL),
        }
    }

    pub(crate) fn ioctl(&self, thread: &Thread, number: u64, what: u64, with: u64) -> Answer {
        const BYTES_TO_READ: u64 = 0x541b;
        const BYTES_TO_SEND: u64 = 0x5411;
        const BYTES_OF_BLOCK: u64 = 2;
        const IS_AT_MARK: u64 = 0x8905;
        let open = self.open_used(thread, number)?;
        match (what, &open.kind) {
            // Those that are of any file alike.
            (NO_WAIT | CLOSE_ON_EXEC | NOT_ON_EXEC | SIGNALS, _) => {
                self.ioctl_of_any(thread, &open, number, what, with)
            }
            (_, Kind::Master(side, _) | Kind::Slave(side, _)) => {
                self.ioctl_terminal(thread, &open, &side.terminal, what, with)
            }
            (BYTES_TO_READ, Kind::Pipe(end) | Kind::Both(end, _)) => {
                self.machine.write_user(with, &(end.pipe.len() as u32).to_le_bytes()).map(|()| 0)
            }
            (BYTES_TO_READ, Kind::Watches(watches)) => {
                self.machine.write_user(with, &(watches.bytes() as u32).to_le_bytes()).map(|()| 0)
            }
            (BYTES_TO_READ, Kind::Socket(socket)) if socket.state.with(|state| state.waiting.is_some()) => {
                Err(Errno::EINVAL)
            }
            // Of the network nothing waits to be sent.
            (BYTES_TO_SEND, Kind::Socket(socket)) => {
                let there = socket.peer().filter(|_| socket.family == crate::socket::UNIX);
                let bytes = there.map_or(0, |peer| peer.inbox.len(true)) as u32;
                self.machine.write_user(with, &bytes.to_le_bytes()).map(|()| 0)
            }
            (BYTES_TO_READ, Kind::Socket(socket)) => {
                let bytes = socket.inbox.len(socket.is_stream()) as u32;
                self.machine.write_user(with, &bytes.to_le_bytes()).map(|()| 0)
            }
            (IS_AT_MARK, Kind::Socket(socket))
                if socket.is_stream() && socket.family != crate::socket::UNIX =>
            {
                let (_, is_next) = socket.inbox.urgency();
                self.machine.write_user(with, &u32::from(is_next).to_le_bytes()).map(|()| 0)
            }
            // Who hears of it.
            (0x8901 | 0x8902, Kind::Socket(_)) => {
                let who = self.load_word(with)?;
                self.hearer_call(thread, &open, number, 8, who.into())
            }
            (0x8903 | 0x8904, Kind::Socket(_)) => {
                let who = self.hearer_call(thread, &open, number, 9, 0)? as u32;
                self.machine.write_user(with, &who.to_le_bytes()).map(|()| 0)
            }
            (0x8910..=0x8950, Kind::Socket(_)) => self.ioctl_interface(what, with),
            (BYTES_OF_BLOCK, Kind::File(_)) => {
                self.machine.write_user(with, &4096_u32.to_le_bytes()).map(|()| 0)
            }
            (BYTES_TO_READ, Kind::File(inode)) => {
                let at = open.offset.with(self.machine, |offset| *offset);
                // Fewer than none behind its end.
                let bytes = inode.file().map_or(0, |file| self.file_len(file)).wrapping_sub(at) as u32;
                self.machine.write_user(with, &bytes.to_le_bytes()).map(|()| 0)
            }
            // Nothing else is a terminal.
            _ => Err(Errno::ENOTTY),
        }
    }

    fn ioctl_of_any(&self, thread: &Thread, open: &Arc<Open>, number: u64, what: u64, with: u64) -> Answer {
        match what {
            NO_WAIT => {
                let on = self.load_word(with)? != 0;
                open.set_flags(flag::NO_WAIT, if on { flag::NO_WAIT } else { 0 });
                Ok(0)
            }
            CLOSE_ON_EXEC | NOT_ON_EXEC => {
                let on = what == CLOSE_ON_EXEC;
                thread
                    .process
                    .files
                    .with(|files| files.close_on_exec(number).map(|cloexec| *cloexec = on))?;
                Ok(0)
            }
            SIGNALS => {
                let on = self.load_word(with)? != 0;
                if open.has(flag::SIGNALS) != on {
                    self.set_signals(thread, open, number, on)?;
                }
                Ok(0)
            }
            _ => Err(Errno::ENOTTY),
        }
    }

    pub(crate) fn pipe(&self, thread: &Thread, to: u64, flags: u32) -> Answer {
        if flags & !(flag::CLOSE_ON_EXEC | flag::NO_WAIT | 0o40_000) != 0 {
            return Err(Errno::EINVAL);
        }
        let (reader, writer) = Pipe::open(&self.left);
        let cloexec = flags & flag::CLOSE_ON_EXEC != 0;
        let reader = Open::new(Kind::Pipe(reader), flags, b"pipe".to_vec());
        let writer = Open::new(Kind::Pipe(writer), flags | flag::WRITE_ONLY, b"pipe".to_vec());
        let (first, second) = thread.process.files.with(|files| {
            let first = files.add(reader, cloexec, 0)?;
            match files.add(writer, cloexec, 0) {
                Ok(second) => Ok((first, second)),
                Err(error) => {
                    let _ = files.take(first);
                    Err(error)
                }
            }
        })?;
        let mut numbers = [0; 8];
        numbers[..4].copy_from_slice(&(first as u32).to_le_bytes());
        numbers[4..].copy_from_slice(&(second as u32).to_le_bytes());
        self.machine.write_user(to, &numbers).inspect_err(|_| {
            let gone = thread.process.files.with(|files| [files.take(first), files.take(second)]);
            drop(gone);
        })?;
        Ok(0)
    }

    pub(crate) fn eventfd(&self, thread: &Thread, count: u64, flags: u32) -> Answer {
        const BY_ONE: u32 = 1;
        if flags & !(BY_ONE | flag::NO_WAIT | flag::CLOSE_ON_EXEC) != 0 {
            return Err(Errno::EINVAL);
        }
        let kind = Kind::Event(Counter::new(count as u32 as u64, flags & BY_ONE != 0));
        let open = Open::new(kind, flags & flag::NO_WAIT | flag::READ_WRITE, b"eventfd".to_vec());
        thread.process.files.with(|files| files.add(open, flags & flag::CLOSE_ON_EXEC != 0, 0))
    }
}
