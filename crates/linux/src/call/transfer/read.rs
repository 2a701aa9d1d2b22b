//! Bytes from what is open to a program.

use alloc::sync::Arc;

use super::as_far_as;
use crate::call::poll::event::{ERROR, HANG_UP, IN};
use crate::epoll::Looks;
use crate::errno::{Answer, Errno};
use crate::kernel::{AGAIN, Linux, Waited};
use crate::machine::Machine;
use crate::open::{Kind, Open, flag};
use crate::pipe::{Done, End};
use crate::process::Thread;
use crate::sync::key_of;
use crate::tree::Device;

impl<M: Machine> Linux<'_, M> {
    /// As the flags of a read say: some do not wait.
    pub(crate) fn read_as(
        &self,
        thread: &Thread,
        number: u64,
        into: &[(u64, u64)],
        at: Option<u64>,
        flags: u64,
    ) -> Answer {
        const NO_WAIT: u64 = 8;
        if flags & NO_WAIT != 0 && at.is_none() {
            let open = self.open_used(thread, number)?;
            let waits = open.flows()
                || matches!(
                    open.kind,
                    Kind::Event(_)
                        | Kind::Timer(..)
                        | Kind::Signals(_)
                        | Kind::Watches(_)
                        | Kind::Master(..)
                        | Kind::Slave(..)
                );
            // That it could be written to says nothing of what there is to read.
            let found = || self.look(thread, &open, &Looks::default()).0 & (IN | ERROR | HANG_UP);
            if waits && open.may_read() && found() == 0 {
                return Err(Errno::EAGAIN);
            }
        }
        self.read(thread, number, into, at)
    }

    pub(crate) fn read(&self, thread: &Thread, number: u64, into: &[(u64, u64)], at: Option<u64>) -> Answer {
        if at.is_some_and(|at| at >> 63 != 0) {
            return Err(Errno::EINVAL);
        }
        let open = self.open_file(thread, number)?;
        Self::has_places(&open, at)?;
        if !open.may_read() || open.has(flag::PATH) {
            return Err(Errno::EBADF);
        }
        Self::can_be(into)?;
        if let Kind::Socket(socket) = &open.kind {
            return self.receive(thread, &open, socket, into, 0).map(|(done, received)| {
                // Nobody wants them.
                self.left.add_open(received.files);
                done
            });
        }
        Self::can_reach(into, at)?;
        let mut any = false;
        self.each(into, at, |to, bytes, at| {
            // Whoever has got something waits for no more.
            let is_drained = match &open.kind {
                Kind::Pipe(end) | Kind::Both(end, _) => end.pipe.is_empty(),
                Kind::Event(_) | Kind::Timer(..) | Kind::Signals(_) | Kind::Watches(_) | Kind::Slave(..) => {
                    true
                }
                Kind::Master(side, _) => !side.terminal.master_ready().0,
                _ => false,
            };
            if any && is_drained {
                return Ok(0);
            }
            any = true;
            self.read_one(thread, &open, to, bytes, at)
        })
    }

    /// Reads bytes of something that has places, from `at`; `to` takes them.
    pub(super) fn read_places(
        &self,
        thread: &Thread,
        open: &Open,
        mut at: u64,
        bytes: u64,
        mut to: impl FnMut(u64, &[u8]) -> Result<(), Errno>,
    ) -> Answer {
        let mut buffer = alloc::vec![0; self.piece().min(bytes as usize)];
        let mut done = 0;
        if let Kind::File(inode) = &open.kind {
            inode.note_read(self.clock());
        }
        let text = match &open.kind {
            Kind::Text(text, inode) => self.text_of(thread, (text, inode), at)?,
            _ => Arc::default(),
        };
        while done < bytes && !thread.is_dying() {
            let piece = buffer.len().min((bytes - done) as usize);
            let got = match &open.kind {
                Kind::File(inode) => {
                    let file = inode.file().ok_or(Errno::EINVAL)?;
                    match self.mm.file(file).read(at, &mut buffer[..piece]) {
                        Ok(got) => got,
                        Err(_) if done > 0 => break,
                        Err(error) => return Err(error.into()),
                    }
                }
                Kind::Text(..) => {
                    let rest = text.get(at.min(text.len() as u64) as usize..).unwrap_or_default();
                    let got = rest.len().min(piece);
                    buffer[..got].copy_from_slice(&rest[..got]);
                    got
                }
                _ => return Err(Errno::ESPIPE),
            };
            if got == 0 {
                break;
            }
            match to(done, &buffer[..got]) {
                Ok(()) => {}
                Err(error) => {
                    let fits = |bytes: usize| to(done, &buffer[..bytes]).is_ok();
                    let part = if error == Errno::EFAULT { as_far_as(got, fits) } else { 0 };
                    done += part as u64;
                    if done == 0 {
                        return Err(error);
                    }
                    break;
                }
            }
            done += got as u64;
            at += got as u64;
            self.machine.cond_resched();
        }
        if done > 0 {
            self.happened_to(open, crate::watches::event::ACCESS);
        }
        Ok(done)
    }

    fn read_one(&self, thread: &Thread, open: &Open, to: u64, bytes: u64, at: Option<u64>) -> Answer {
        let store = |done: u64, from: &[u8]| self.machine.write_user(to + done, from);
        match &open.kind {
            Kind::File(_) | Kind::Text(..) => match at {
                Some(at) => self.read_places(thread, open, at, bytes, store),
                None => open.offset.with(self.machine, |offset| {
                    let done = self.read_places(thread, open, *offset, bytes, store)?;
                    *offset += done;
                    Ok(done)
                }),
            },
            Kind::Space(memory, _) => self.each_of_space(open, memory, (to, bytes), at, false),
            Kind::PageMap(memory, _) => self.read_page_map(thread, open, memory, (to, bytes), at),
            Kind::Device(device, _) => self.read_device(thread, *device, to, bytes),
            Kind::Directory(_) => Err(Errno::EISDIR),
            _ if at.is_some() => Err(Errno::ESPIPE),
            Kind::Console(_) => Ok(0),
            Kind::Master(side, _) => self.read_master(thread, open, &side.terminal, to, bytes),
            Kind::Slave(side, _) => self.read_slave(thread, open, side, to, bytes),
            Kind::Pipe(end) | Kind::Both(end, _) => {
                let done = self.read_pipe(thread, open, end, to, bytes)?;
                if done > 0
                    && let Some(inode) = &end.file
                {
                    inode.note_read(self.clock());
                    self.happened_to(open, crate::watches::event::ACCESS);
                }
                Ok(done)
            }
            Kind::Event(counter) => {
                if bytes < 8 {
                    return Err(Errno::EINVAL);
                }
                let mut value = counter.take();
                if value.is_none() && !open.has(flag::NO_WAIT) {
                    let how = self.wait(thread, key_of(counter), None, || {
                        value = counter.take();
                        value.is_some()
                    });
                    if how != Waited::Ready {
                        return Err(AGAIN);
                    }
                }
                let value = value.ok_or(Errno::EAGAIN)?;
                self.changed(key_of(counter));
                self.machine.write_user(to, &value.to_le_bytes())?;
                Ok(8)
            }
            Kind::Timer(timer, _) => {
                if bytes < 8 {
                    return Err(Errno::EINVAL);
                }
                let count = self.read_timer(thread, open, timer)?;
                self.machine.write_user(to, &count.to_le_bytes()).map(|()| 8)
            }
            Kind::Signals(mask) => {
                let all = self.read_signals(thread, open, mask, bytes)?;
                self.machine.write_user(to, &all).map(|()| all.len() as u64)
            }
            Kind::Watches(watches) => {
                let all = self.read_watches(thread, open, watches, bytes)?;
                self.machine.write_user(to, &all).map(|()| all.len() as u64)
            }
            Kind::Socket(_) | Kind::Poll(_) | Kind::Process(_) | Kind::Mailbox(_) => Err(Errno::EINVAL),
        }
    }

    fn read_device(&self, thread: &Thread, device: Device, to: u64, bytes: u64) -> Answer {
        let mut piece = [0; 4096];
        match device {
            Device::Null | Device::Console | Device::Own | Device::Terminals | Device::Absent(_) => {
                return Ok(0);
            }
            Device::Zero | Device::Full | Device::Random => {}
        }
        let mut done = 0;
        while done < bytes && !thread.is_dying() {
            let len = (bytes - done).min(4096) as usize;
            if device == Device::Random {
                for word in piece.chunks_exact_mut(8) {
                    word.copy_from_slice(&self.random().to_le_bytes());
                }
            }
            if let Err(error) = self.machine.write_user(to + done, &piece[..len]) {
                let fits = |bytes: usize| self.machine.write_user(to + done, &piece[..bytes]).is_ok();
                done += as_far_as(len, fits) as u64;
                return if done > 0 { Ok(done) } else { Err(error) };
            }
            done += len as u64;
            self.machine.cond_resched();
        }
        Ok(done)
    }

    fn read_pipe(&self, thread: &Thread, open: &Open, end: &End, to: u64, bytes: u64) -> Answer {
        let mut done = 0;
        // It may hold more than goes in one piece.
        while done < bytes && !(done > 0 && (end.pipe.is_empty() || thread.is_dying())) {
            let mut buffer = alloc::vec![0; ((bytes - done) as usize).min(self.piece())];
            let count = if done == 0 {
                self.take_from_pipe(thread, open, end, &mut buffer)?
            } else {
                // Whoever has got something waits for no more, though another was faster.
                let Done::Bytes(count) = end.pipe.read(&mut buffer) else { break };
                self.changed(key_of(&*end.pipe));
                count
            };
            if let Err(error) = self.machine.write_user(to + done, &buffer[..count]) {
                // What finds no place stays there.
                let part =
                    as_far_as(count, |bytes| self.machine.write_user(to + done, &buffer[..bytes]).is_ok());
                end.pipe.give_back(&buffer[part..count]);
                self.changed(key_of(&*end.pipe));
                done += part as u64;
                return if done > 0 { Ok(done) } else { Err(error) };
            }
            done += count as u64;
            // That was all there was, or the end.
            if count < buffer.len() {
                break;
            }
        }
        Ok(done)
    }

    /// Takes bytes out of a pipe, once there are any.
    pub(super) fn take_from_pipe(
        &self,
        thread: &Thread,
        open: &Open,
        end: &End,
        into: &mut [u8],
    ) -> Result<usize, Errno> {
        let mut done = end.pipe.read(into);
        if done == Done::Wait {
            if open.has(flag::NO_WAIT) {
                return Err(Errno::EAGAIN);
            }
            let how = self.wait(thread, key_of(&*end.pipe), None, || {
                done = end.pipe.read(into);
                done != Done::Wait
            });
            if how != Waited::Ready {
                return Err(AGAIN);
            }
        }
        let Done::Bytes(count) = done else { return Err(Errno::EAGAIN) };
        self.changed(key_of(&*end.pipe));
        Ok(count)
    }
}
