//! Bytes from a program to what is open.

use alloc::sync::Arc;

use super::{Load, PIECE, as_far_as};
use crate::areas::PAGE;
use crate::call::sockets::Extra;
use crate::errno::{Answer, Errno};
use crate::kernel::{AGAIN, Linux, Waited};
use crate::machine::Machine;
use crate::open::{Counter, Kind, Open, flag};
use crate::pipe::{Done, End, WHOLE};
use crate::process::Thread;
use crate::signal::number;
use crate::sync::key_of;
use crate::tree::{Device, Inode, seal};

/// The place where a file ends.
const AT_END: u64 = u64::MAX;

impl<M: Machine> Linux<'_, M> {
    pub(crate) fn write(&self, thread: &Thread, number: u64, from: &[(u64, u64)], at: Option<u64>) -> Answer {
        if at.is_some_and(|at| at >> 63 != 0) {
            return Err(Errno::EINVAL);
        }
        let open = self.open_file(thread, number)?;
        self.write_open(thread, &open, from, at)
    }

    /// The same of what is open; [`AT_END`] is a place.
    fn write_open(&self, thread: &Thread, open: &Arc<Open>, from: &[(u64, u64)], at: Option<u64>) -> Answer {
        Self::has_places(open, at)?;
        if !open.may_write() || open.has(flag::PATH) {
            return Err(Errno::EBADF);
        }
        Self::can_be(from)?;
        Self::can_reach(from, at.filter(|&at| at != AT_END))?;
        if let Kind::Socket(socket) = &open.kind {
            if !self.machine.has_room(0) {
                return Err(Errno::ENOMEM);
            }
            return self.send(thread, open, socket, from, Extra::default());
        }
        // All in one piece, if it is small: nobody else's bytes come between.
        let sum = from.iter().fold(0_u64, |sum, (_, bytes)| sum.saturating_add(*bytes));
        // A counter takes each by itself.
        let is_apart = matches!(open.kind, Kind::Space(..) | Kind::Event(_));
        if from.len() > 1 && !is_apart && sum <= PIECE as u64 && sum <= self.piece() as u64 {
            let mut all = alloc::vec![0; sum as usize];
            let mut rest = &mut all[..];
            let load = |(at, bytes): &(u64, u64)| {
                let (piece, more) = core::mem::take(&mut rest).split_at_mut(*bytes as usize);
                rest = more;
                self.machine.read_user(*at, piece)
            };
            // What cannot be read is written as far as it can.
            if from.iter().try_for_each(load).is_ok() {
                let load = |done: u64, into: &mut [u8]| {
                    into.copy_from_slice(&all[done as usize..done as usize + into.len()]);
                    Ok(())
                };
                return self.write_from(thread, open, sum, at, &load);
            }
            // Into a pipe a page goes as a whole or not at all.
            if matches!(open.kind, Kind::Pipe(_) | Kind::Both(..)) && sum <= PAGE {
                return Err(Errno::EFAULT);
            }
        }
        self.each(from, at, |from, bytes, at| self.write_one(thread, open, from, bytes, at))
    }

    /// Writes at the end of a file, from where it is on with no place, and leaves it where it is with one.
    pub(crate) fn append(&self, thread: &Thread, number: u64, from: &[(u64, u64)], at: u64) -> Answer {
        let open = self.open_file(thread, number)?;
        let Kind::File(_) = &open.kind else { return self.write(thread, number, from, None) };
        if at != u64::MAX {
            return self.write_open(thread, &open, from, Some(AT_END));
        }
        // Where the file is afterwards, nobody else's bytes come between: in one step with where its end was.
        open.offset.with(self.machine, |offset| {
            let done = self.write_open(thread, &open, from, Some(AT_END))?;
            *offset = open.inode().and_then(|inode| inode.file()).map_or(*offset, |file| self.file_len(file));
            Ok(done)
        })
    }

    fn write_one(&self, thread: &Thread, open: &Open, from: u64, bytes: u64, at: Option<u64>) -> Answer {
        if let Kind::Space(memory, _) = &open.kind {
            return self.each_of_space(open, memory, (from, bytes), at, true);
        }
        let load = |done: u64, into: &mut [u8]| self.machine.read_user(from + done, into);
        self.write_from(thread, open, bytes, at, &load)
    }

    /// Writes bytes that `load` gives, by their place.
    pub(super) fn write_from(
        &self,
        thread: &Thread,
        open: &Open,
        bytes: u64,
        at: Option<u64>,
        load: &Load<'_>,
    ) -> Answer {
        let done = self.write_it(thread, open, bytes, at, load)?;
        if done > 0 {
            self.happened_to(open, crate::watches::event::MODIFY);
        }
        Ok(done)
    }

    fn write_it(&self, thread: &Thread, open: &Open, bytes: u64, at: Option<u64>, load: &Load<'_>) -> Answer {
        match &open.kind {
            Kind::File(inode) => match at {
                // The end, which is where it is only as long as nobody else writes there.
                Some(AT_END) => {
                    let file = inode.file().ok_or(Errno::EINVAL)?;
                    inode.append.with(self.machine, |()| {
                        self.write_places(thread, inode, self.file_len(file), bytes, load)
                    })
                }
                Some(at) if !open.has(flag::APPEND) => self.write_places(thread, inode, at, bytes, load),
                _ => open.offset.with(self.machine, |offset| {
                    let file = inode.file().ok_or(Errno::EINVAL)?;
                    let write = |start| {
                        Ok::<_, Errno>((start, self.write_places(thread, inode, start, bytes, load)?))
                    };
                    let (start, done) = if open.has(flag::APPEND) {
                        inode.append.with(self.machine, |()| write(self.file_len(file)))?
                    } else {
                        write(*offset)?
                    };
                    if at.is_none() {
                        *offset = start + done;
                    }
                    Ok(done)
                }),
            },
            _ if at.is_some() && !matches!(open.kind, Kind::Device(..)) => Err(Errno::ESPIPE),
            Kind::Space(..) | Kind::PageMap(..) => Err(Errno::EINVAL),
            Kind::Directory(_) => Err(Errno::EISDIR),
            Kind::Text(_, inode) => {
                // What can be written there is a name; everything else is taken, and changes nothing.
                if let crate::tree::Body::MadeOf(pid, tid, crate::tree::Made::Name) = &inode.body {
                    let mut name = alloc::vec![0; bytes.min(16) as usize];
                    load(0, &mut name)?;
                    let end = name.iter().position(|&byte| byte == 0 || byte == b'\n').unwrap_or(name.len());
                    name.truncate(end.min(15));
                    let process = self.processes.with(|all| all.get(pid).cloned()).ok_or(Errno::ESRCH)?;
                    self.set_name(&process, tid.unwrap_or(*pid), name);
                }
                if let crate::tree::Body::MadeOf(pid, _, crate::tree::Made::Adjust) = &inode.body {
                    let mut word = alloc::vec![0; bytes.min(16) as usize];
                    load(0, &mut word)?;
                    let word = core::str::from_utf8(&word).map_err(|_| Errno::EINVAL)?;
                    let adjust = word.trim().parse().map_err(|_| Errno::EINVAL)?;
                    if !(-1000..=1000).contains(&adjust) {
                        return Err(Errno::EINVAL);
                    }
                    let process = self.processes.with(|all| all.get(pid).cloned()).ok_or(Errno::ESRCH)?;
                    process.adjust.store(adjust, core::sync::atomic::Ordering::Relaxed);
                }
                Ok(bytes)
            }
            Kind::Device(Device::Full, _) => Err(Errno::ENOSPC),
            Kind::Device(Device::Console, _) => self.print(thread, 1, bytes, load),
            Kind::Device(..) => Ok(bytes),
            Kind::Console(which) => self.print(thread, *which, bytes, load),
            Kind::Master(side, _) => self.write_master(thread, open, &side.terminal, bytes, load),
            Kind::Slave(side, _) => self.write_slave(thread, open, side, bytes, load),
            Kind::Pipe(end) | Kind::Both(_, end) => {
                let done = self.write_pipe(thread, open, end, bytes, load)?;
                if done > 0
                    && let Some(inode) = open.inode()
                {
                    inode.touch(self.clock());
                }
                Ok(done)
            }
            Kind::Event(counter) => {
                if bytes != 8 {
                    return Err(Errno::EINVAL);
                }
                let mut more = [0; 8];
                load(0, &mut more)?;
                let more = u64::from_le_bytes(more);
                if more > Counter::MOST {
                    return Err(Errno::EINVAL);
                }
                if !counter.add(more) {
                    if open.has(flag::NO_WAIT) {
                        return Err(Errno::EAGAIN);
                    }
                    if self.wait(thread, key_of(counter), None, || counter.add(more)) != Waited::Ready {
                        return Err(AGAIN);
                    }
                }
                self.changed(key_of(counter));
                Ok(8)
            }
            Kind::Timer(..)
            | Kind::Signals(_)
            | Kind::Socket(_)
            | Kind::Poll(_)
            | Kind::Process(_)
            | Kind::Watches(_)
            | Kind::Mailbox(_) => Err(Errno::EINVAL),
        }
    }

    fn print(&self, thread: &Thread, which: u32, bytes: u64, load: &Load<'_>) -> Answer {
        let mut piece = [0; 1024];
        let mut done = 0;
        while done < bytes && !thread.is_dying() {
            let len = (bytes - done).min(1024) as usize;
            match load(done, &mut piece[..len]) {
                Ok(()) => self.machine.console(which, &piece[..len]),
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
            }
            done += len as u64;
            self.machine.cond_resched();
        }
        Ok(done)
    }

    /// Writes bytes to a file, from `at`; `from` gives them.
    fn write_places(
        &self,
        thread: &Thread,
        inode: &Inode,
        mut at: u64,
        bytes: u64,
        mut from: impl FnMut(u64, &mut [u8]) -> Result<(), Errno>,
    ) -> Answer {
        let file = inode.file().ok_or(Errno::EINVAL)?;
        let bytes = self.within_limit(thread, at, bytes)?;
        if bytes > 0 {
            self.drop_marks(thread, inode);
        }
        let mut buffer = alloc::vec![0; self.piece().min(bytes as usize)];
        let mut done = 0;
        while done < bytes && !thread.is_dying() {
            let mut piece = buffer.len().min((bytes - done) as usize);
            let mut loaded = from(done, &mut buffer[..piece]);
            let is_last = loaded == Err(Errno::EFAULT);
            if is_last {
                piece = as_far_as(piece, |bytes| from(done, &mut buffer[..bytes]).is_ok());
                if piece > 0 {
                    loaded = from(done, &mut buffer[..piece]);
                }
            }
            let put = loaded.and_then(|()| {
                self.unless_sealed(inode, |seals| {
                    if seals & seal::WRITE != 0
                        || seals & seal::GROW != 0 && at.saturating_add(piece as u64) > self.file_len(file)
                    {
                        return Err(Errno::EPERM);
                    }
                    let write = || {
                        self.mm.file(file).write(at, &buffer[..piece]).map_err(|error| match error {
                            quietmm::Error::BadRange => Errno::EFBIG,
                            other => Errno::from(other),
                        })
                    };
                    let put = match inode.growing() {
                        Some(growing) if at.saturating_add(piece as u64) > self.file_len(file) => {
                            growing.with(self.machine, |()| write())?
                        }
                        _ => write()?,
                    };
                    if let Some(extents) = inode.extents().filter(|_| put > 0) {
                        let end = (at + put as u64).div_ceil(PAGE);
                        extents.with(|extents| extents.write(at / PAGE..end));
                    }
                    Ok(put)
                })
            });
            match put {
                Ok(0) => break,
                Ok(put) => {
                    done += put as u64;
                    at += put as u64;
                }
                Err(_) if done > 0 => break,
                Err(error) => return Err(error),
            }
            if is_last {
                break;
            }
            self.machine.cond_resched();
        }
        inode.touch(self.clock());
        Ok(done)
    }

    fn write_pipe(&self, thread: &Thread, open: &Open, end: &End, bytes: u64, load: &Load<'_>) -> Answer {
        let mut buffer = alloc::vec![0; (bytes as usize).min(self.piece())];
        let mut done = 0;
        if !self.machine.has_room(0) && bytes > 0 {
            return Err(Errno::ENOMEM);
        }
        while done < bytes {
            let mut len = buffer.len().min((bytes - done) as usize);
            // Up to so many bytes go in one piece.
            debug_assert!(len <= WHOLE || len == buffer.len() || done > 0);
            let mut loaded = load(done, &mut buffer[..len]);
            if loaded.is_err() && len > WHOLE {
                // As many pieces as can be read.
                len = WHOLE;
                loaded = load(done, &mut buffer[..len]);
            }
            if let Err(error) = loaded {
                return if done > 0 { Ok(done) } else { Err(error) };
            }
            let mut put = end.pipe.write(&buffer[..len]);
            if put == Ok(Done::Wait) {
                if open.has(flag::NO_WAIT) {
                    return if done > 0 { Ok(done) } else { Err(Errno::EAGAIN) };
                }
                let how = self.wait(thread, key_of(&*end.pipe), None, || {
                    put = end.pipe.write(&buffer[..len]);
                    put != Ok(Done::Wait)
                });
                if how != Waited::Ready {
                    return if done > 0 { Ok(done) } else { Err(AGAIN) };
                }
            }
            match put {
                Ok(Done::Bytes(count)) => done += count as u64,
                Ok(Done::Wait) => {}
                Err(error) => {
                    // Whoever has written some of it is told too.
                    self.post_to_itself(thread, number::PIPE);
                    return if done > 0 { Ok(done) } else { Err(error) };
                }
            }
            self.changed(key_of(&*end.pipe));
        }
        Ok(done)
    }
}
