//! Bytes between programs and files.

use alloc::string::ToString;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use crate::errno::{Answer, Errno};
use crate::kernel::{AGAIN, Linux, Waited};
use crate::machine::Machine;
use crate::open::{Counter, Kind, Open, flag};
use crate::pipe::{Done, End, ROOM, WHOLE, Way};
use crate::process::Thread;
use crate::procfs::SHOWN;
use crate::signal::{Info, number};
use crate::sync::key_of;
use crate::tree::{Body, Device, FIRST_PLACE, Inode, Named, seal};

/// Bytes that go through the kernel's buffer at a time.
const PIECE: usize = 64 << 10;
/// The same when the kernel's memory is short.
const SMALL_PIECE: usize = 4 << 10;
/// Bytes that one call moves at most.
const MOST: u64 = 0x7fff_f000;

/// Gives bytes from a place on.
pub(super) type Load<'a> = dyn Fn(u64, &mut [u8]) -> Result<(), Errno> + 'a;

impl<M: Machine> Linux<'_, M> {
    pub(crate) fn open_file(&self, thread: &Thread, number: u64) -> Result<Arc<Open>, Errno> {
        thread.process.files.with(|files| files.get(number))
    }

    pub(crate) fn read(&self, thread: &Thread, number: u64, into: &[(u64, u64)], at: Option<u64>) -> Answer {
        let open = self.open_file(thread, number)?;
        if !open.may_read() || open.has(flag::PATH) {
            return Err(Errno::EBADF);
        }
        if let Kind::Socket(socket) = &open.kind {
            if at.is_some() {
                return Err(Errno::ESPIPE);
            }
            return self.receive(thread, &open, socket, into, 0).map(|(done, received)| {
                // Nobody wants them.
                self.left.add_open(received.files);
                done
            });
        }
        if at.is_some_and(|at| at >> 63 != 0) {
            return Err(Errno::EINVAL);
        }
        let mut any = false;
        self.each(into, |to, bytes| {
            // Who has got something waits for no more.
            let is_drained = match &open.kind {
                Kind::Pipe(end) | Kind::Both(end, _) => end.pipe.is_empty(),
                Kind::Event(_) | Kind::Timer(..) | Kind::Signals(_) => true,
                _ => false,
            };
            if any && is_drained {
                return Ok(0);
            }
            any = true;
            self.read_one(thread, &open, to, bytes, at)
        })
    }

    pub(crate) fn write(&self, thread: &Thread, number: u64, from: &[(u64, u64)], at: Option<u64>) -> Answer {
        let open = self.open_file(thread, number)?;
        if !open.may_write() || open.has(flag::PATH) {
            return Err(Errno::EBADF);
        }
        if let Kind::Socket(socket) = &open.kind {
            if at.is_some() {
                return Err(Errno::ESPIPE);
            }
            if !self.machine.has_room(0) {
                return Err(Errno::ENOMEM);
            }
            return self.send(thread, &open, socket, from, super::sockets::Extra::default());
        }
        if at.is_some_and(|at| at >> 63 != 0) {
            return Err(Errno::EINVAL);
        }
        self.each(from, |from, bytes| self.write_one(thread, &open, from, bytes, at))
    }

    /// Bytes that go through the kernel's buffer at a time.
    pub(super) fn piece(&self) -> usize {
        if self.machine.has_room(0) { PIECE } else { SMALL_PIECE }
    }

    /// One buffer after the other, until one is not full, or fails.
    fn each(&self, buffers: &[(u64, u64)], mut work: impl FnMut(u64, u64) -> Answer) -> Answer {
        let mut sum = 0;
        for &(at, bytes) in buffers {
            if bytes == 0 {
                continue;
            }
            match work(at, bytes.min(MOST)) {
                Ok(done) => {
                    sum += done;
                    if done < bytes {
                        break;
                    }
                }
                Err(error) if sum == 0 => return Err(error),
                Err(_) => break,
            }
        }
        Ok(sum)
    }

    /// Reads bytes of something that has places, from `at`; `to` takes them.
    fn read_places(
        &self,
        thread: &Thread,
        open: &Open,
        mut at: u64,
        bytes: u64,
        mut to: impl FnMut(u64, &[u8]) -> Result<(), Errno>,
    ) -> Answer {
        let mut buffer = alloc::vec![0; self.piece().min(bytes as usize)];
        let mut done = 0;
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
                Kind::Text(text, _) => {
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
                Err(_) if done > 0 => break,
                Err(error) => return Err(error),
            }
            done += got as u64;
            at += got as u64;
            self.machine.cond_resched();
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
            Kind::Device(device, _) => self.read_device(thread, *device, to, bytes),
            _ if at.is_some() => Err(Errno::ESPIPE),
            Kind::Directory(_) => Err(Errno::EISDIR),
            Kind::Console(_) => Ok(0),
            Kind::Pipe(end) | Kind::Both(end, _) => self.read_pipe(thread, open, end, to, bytes),
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
                let all = self.read_signals(thread, open, mask.load(Ordering::SeqCst), bytes)?;
                self.machine.write_user(to, &all).map(|()| all.len() as u64)
            }
            Kind::Socket(_) | Kind::Poll(_) | Kind::Process(_) => Err(Errno::EINVAL),
        }
    }

    fn read_device(&self, thread: &Thread, device: Device, to: u64, bytes: u64) -> Answer {
        let mut piece = [0; 4096];
        match device {
            Device::Null | Device::Console => return Ok(0),
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
            self.machine.write_user(to + done, &piece[..len])?;
            done += len as u64;
            self.machine.cond_resched();
        }
        Ok(done)
    }

    fn read_pipe(&self, thread: &Thread, open: &Open, end: &End, to: u64, bytes: u64) -> Answer {
        let mut buffer = alloc::vec![0; (bytes as usize).min(self.piece())];
        let count = self.take_from_pipe(thread, open, end, &mut buffer)?;
        self.machine.write_user(to, &buffer[..count])?;
        Ok(count as u64)
    }

    /// Takes bytes out of a pipe, once there are any.
    fn take_from_pipe(
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

    fn write_one(&self, thread: &Thread, open: &Open, from: u64, bytes: u64, at: Option<u64>) -> Answer {
        let load = |done: u64, into: &mut [u8]| self.machine.read_user(from + done, into);
        self.write_from(thread, open, bytes, at, &load)
    }

    /// Writes bytes of the kernel's own.
    fn put(&self, thread: &Thread, open: &Arc<Open>, bytes: &[u8], at: Option<u64>) -> Answer {
        let load = |done: u64, into: &mut [u8]| {
            into.copy_from_slice(&bytes[done as usize..done as usize + into.len()]);
            Ok(())
        };
        let len = bytes.len() as u64;
        match &open.kind {
            Kind::Socket(socket) => {
                self.send_from(thread, open, socket, &[(0, len)], super::sockets::Extra::default(), &load)
            }
            _ => self.write_from(thread, open, len, at, &load),
        }
    }

    /// Writes bytes that `load` gives, by their place.
    fn write_from(
        &self,
        thread: &Thread,
        open: &Open,
        bytes: u64,
        at: Option<u64>,
        load: &Load<'_>,
    ) -> Answer {
        match &open.kind {
            Kind::File(inode) => match at {
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
            _ if at.is_some() => Err(Errno::ESPIPE),
            Kind::Directory(_) => Err(Errno::EISDIR),
            Kind::Text(..) => Ok(bytes),
            Kind::Device(Device::Full, _) => Err(Errno::ENOSPC),
            Kind::Device(Device::Console, _) => self.print(thread, 1, bytes, load),
            Kind::Device(..) => Ok(bytes),
            Kind::Console(which) => self.print(thread, *which, bytes, load),
            Kind::Pipe(end) | Kind::Both(_, end) => self.write_pipe(thread, open, end, bytes, load),
            Kind::Event(counter) => {
                if bytes < 8 {
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
            Kind::Timer(..) | Kind::Signals(_) | Kind::Socket(_) | Kind::Poll(_) | Kind::Process(_) => {
                Err(Errno::EINVAL)
            }
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

    /// Looks at the seals of a file and does what they may forbid. If it can have any, none is added meanwhile.
    pub(super) fn unless_sealed<R>(&self, inode: &Inode, work: impl FnOnce(u32) -> R) -> R {
        if inode.seals.load(Ordering::SeqCst) & seal::SEALABLE == 0 {
            return work(0);
        }
        inode.sealing.with(self.machine, |()| work(inode.seals.load(Ordering::SeqCst)))
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
        let mut buffer = alloc::vec![0; self.piece().min(bytes as usize)];
        let mut done = 0;
        while done < bytes && !thread.is_dying() {
            let piece = buffer.len().min((bytes - done) as usize);
            let put = from(done, &mut buffer[..piece]).and_then(|()| {
                self.unless_sealed(inode, |seals| {
                    if seals & seal::WRITE != 0
                        || seals & seal::GROW != 0 && at.saturating_add(piece as u64) > self.file_len(file)
                    {
                        return Err(Errno::EPERM);
                    }
                    self.mm.file(file).write(at, &buffer[..piece]).map_err(|error| match error {
                        quietmm::Error::BadRange => Errno::EFBIG,
                        other => other.into(),
                    })
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
            self.machine.cond_resched();
        }
        inode.modified.store(self.clock(), Ordering::Relaxed);
        Ok(done)
    }

    fn write_pipe(&self, thread: &Thread, open: &Open, end: &End, bytes: u64, load: &Load<'_>) -> Answer {
        let mut buffer = alloc::vec![0; (bytes as usize).min(self.piece())];
        let mut done = 0;
        if !self.machine.has_room(0) && bytes > 0 {
            return Err(Errno::ENOMEM);
        }
        while done < bytes {
            let len = buffer.len().min((bytes - done) as usize);
            // Up to so many bytes go in one piece.
            debug_assert!(len <= WHOLE || len == buffer.len() || done > 0);
            load(done, &mut buffer[..len])?;
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
                    if done > 0 {
                        break;
                    }
                    let word = u64::from(thread.process.pid);
                    self.post(&thread.process, None, Info { signal: number::PIPE, word, ..Info::default() });
                    return Err(error);
                }
            }
            self.changed(key_of(&*end.pipe));
        }
        Ok(done)
    }

    /// Up to so many bytes of what is open, as a read would have them: of a file from `at`, or from where it is, which moves on.
    fn get(&self, thread: &Thread, open: &Open, most: usize, at: Option<u64>) -> Result<Vec<u8>, Errno> {
        let mut bytes = Vec::new();
        match &open.kind {
            Kind::File(_) | Kind::Text(..) => {
                let mut take = |start: u64| {
                    self.read_places(thread, open, start, most as u64, |_, piece| {
                        bytes.extend_from_slice(piece);
                        Ok(())
                    })
                };
                match at {
                    Some(at) => take(at)?,
                    None => open.offset.with(self.machine, |offset| {
                        let done = take(*offset)?;
                        *offset += done;
                        Ok::<u64, Errno>(done)
                    })?,
                };
            }
            _ if at.is_some() => return Err(Errno::ESPIPE),
            Kind::Pipe(end) | Kind::Both(end, _) => {
                bytes.resize(most.min(ROOM), 0);
                let count = self.take_from_pipe(thread, open, end, &mut bytes)?;
                bytes.truncate(count);
            }
            Kind::Socket(socket) => bytes = self.receive_bytes(thread, open, socket, most)?,
            Kind::Device(Device::Zero, _) => bytes.resize(most, 0),
            Kind::Directory(_) => return Err(Errno::EISDIR),
            _ => return Err(Errno::EINVAL),
        }
        Ok(bytes)
    }

    /// Moves bytes from one open file to another, with places or without; gives how many, and the places after that.
    fn carry(
        &self,
        thread: &Thread,
        (from, to): (&Arc<Open>, &Arc<Open>),
        mut places: [Option<u64>; 2],
        bytes: u64,
    ) -> Result<(u64, [Option<u64>; 2]), Errno> {
        let mut done = 0;
        while done < bytes {
            let most = ((bytes - done) as usize).min(self.piece());
            let piece = match self.get(thread, from, most, places[0]) {
                Ok(piece) => piece,
                Err(_) if done > 0 => break,
                Err(error) => return Err(error),
            };
            if piece.is_empty() {
                break;
            }
            let mut put = 0;
            while put < piece.len() {
                match self.put(thread, to, &piece[put..], places[1]) {
                    Ok(count) => {
                        put += count as usize;
                        places[1] = places[1].map(|at| at + count);
                    }
                    Err(error) => {
                        // What was not taken is read again.
                        let back = (piece.len() - put) as u64;
                        if places[0].is_none() && matches!(from.kind, Kind::File(_)) {
                            from.offset.with(self.machine, |offset| *offset -= back);
                        }
                        done += put as u64;
                        places[0] = places[0].map(|at| at + put as u64);
                        return if done > 0 { Ok((done, places)) } else { Err(error) };
                    }
                }
            }
            done += piece.len() as u64;
            places[0] = places[0].map(|at| at + piece.len() as u64);
            // Who has something from a pipe waits for no more.
            if !matches!(from.kind, Kind::File(_) | Kind::Text(..)) || thread.is_dying() {
                break;
            }
            self.machine.cond_resched();
        }
        Ok((done, places))
    }

    fn load_place(&self, at: u64) -> Result<Option<u64>, Errno> {
        if at == 0 { Ok(None) } else { self.load_long(at).map(Some) }
    }

    /// Moves bytes, with places that a program keeps, or the files.
    fn carry_at(&self, thread: &Thread, files: (&Arc<Open>, &Arc<Open>), at: [u64; 2], bytes: u64) -> Answer {
        let places = [self.load_place(at[0])?, self.load_place(at[1])?];
        let (done, places) = self.carry(thread, files, places, bytes.min(MOST))?;
        for (at, place) in at.into_iter().zip(places) {
            if let Some(place) = place {
                self.machine.write_user(at, &place.to_le_bytes())?;
            }
        }
        Ok(done)
    }

    /// From a file to anything.
    pub(crate) fn sendfile(&self, thread: &Thread, [to, from, at, bytes, ..]: [u64; 6]) -> Answer {
        let (to, from) = (self.open_file(thread, to)?, self.open_file(thread, from)?);
        if !from.may_read() || !to.may_write() {
            return Err(Errno::EBADF);
        }
        if !matches!(from.kind, Kind::File(_) | Kind::Text(..)) || to.has(flag::APPEND) {
            return Err(Errno::EINVAL);
        }
        self.carry_at(thread, (&from, &to), [at, 0], bytes)
    }

    pub(crate) fn copy_file_range(
        &self,
        thread: &Thread,
        [from, from_at, to, to_at, bytes, flags]: [u64; 6],
    ) -> Answer {
        let (to, from) = (self.open_file(thread, to)?, self.open_file(thread, from)?);
        let (Kind::File(target), Kind::File(source)) = (&to.kind, &from.kind) else {
            let directory = matches!(to.kind, Kind::Directory(_)) || matches!(from.kind, Kind::Directory(_));
            return Err(if directory { Errno::EISDIR } else { Errno::EINVAL });
        };
        if !from.may_read() || !to.may_write() || to.has(flag::APPEND) {
            return Err(Errno::EBADF);
        }
        let places = [self.load_place(from_at)?, self.load_place(to_at)?];
        let start = |open: &Open, place: Option<u64>| {
            place.unwrap_or_else(|| open.offset.with(self.machine, |offset| *offset))
        };
        let (a, b) = (start(&from, places[0]), start(&to, places[1]));
        let overlap = a < b.saturating_add(bytes) && b < a.saturating_add(bytes);
        if flags != 0 || Arc::ptr_eq(target, source) && overlap {
            return Err(Errno::EINVAL);
        }
        self.carry_at(thread, (&from, &to), [from_at, to_at], bytes)
    }

    /// Between a pipe and anything.
    pub(crate) fn splice(
        &self,
        thread: &Thread,
        [from, from_at, to, to_at, bytes, flags]: [u64; 6],
    ) -> Answer {
        const NO_WAIT: u64 = 2;
        let (from, to) = (self.open_file(thread, from)?, self.open_file(thread, to)?);
        let pipe = |open: &Open| match &open.kind {
            Kind::Pipe(end) | Kind::Both(end, _) => Some(end.pipe.clone()),
            _ => None,
        };
        let (source, target) = (pipe(&from), pipe(&to));
        if !from.may_read() || !to.may_write() {
            return Err(Errno::EBADF);
        }
        if flags & !15 != 0 || source.is_none() && target.is_none() || to.has(flag::APPEND) {
            return Err(Errno::EINVAL);
        }
        if source.is_some() && from_at != 0 || target.is_some() && to_at != 0 {
            return Err(Errno::ESPIPE);
        }
        let mut bytes = bytes;
        if let Some(target) = target {
            // What does not fit waits for the next call: as much as there is room for, or a piece once there is.
            bytes = bytes.min((ROOM - target.len()).max(WHOLE) as u64);
            if flags & NO_WAIT != 0 && !target.ready(Way::Write).0 {
                return Err(Errno::EAGAIN);
            }
        }
        if flags & NO_WAIT != 0 && source.is_some_and(|source| !source.ready(Way::Read).0) {
            return Err(Errno::EAGAIN);
        }
        self.carry_at(thread, (&from, &to), [from_at, to_at], bytes.min(ROOM as u64))
    }

    pub(crate) fn lseek(&self, thread: &Thread, number: u64, by: i64, whence: u64) -> Answer {
        let open = self.open_file(thread, number)?;
        let end = match &open.kind {
            Kind::File(inode) => inode.file().map_or(0, |file| self.file_len(file)),
            Kind::Text(text, _) => text.len() as u64,
            Kind::Directory(_) => i64::MAX as u64,
            Kind::Device(..) => return Ok(0),
            _ => return Err(Errno::ESPIPE),
        };
        open.offset.with(self.machine, |offset| {
            let base = match whence {
                0 => 0,
                1 => *offset as i64,
                2 => end as i64,
                // Data everywhere, and one hole, at the end.
                3 | 4 if by < 0 || by as u64 >= end => return Err(Errno::ENXIO),
                3 => 0,
                4 => {
                    *offset = end;
                    return Ok(end);
                }
                _ => return Err(Errno::EINVAL),
            };
            let new = base.checked_add(by).filter(|&new| new >= 0).ok_or(Errno::EINVAL)?;
            *offset = new as u64;
            Ok(*offset)
        })
    }

    pub(super) fn set_len(&self, inode: &Inode, len: u64) -> Answer {
        let file = inode.file().ok_or(if inode.is_directory() { Errno::EISDIR } else { Errno::EINVAL })?;
        if len >> 63 != 0 {
            return Err(Errno::EINVAL);
        }
        self.unless_sealed(inode, |seals| {
            let now = self.file_len(file);
            if seals & seal::SHRINK != 0 && len < now || seals & seal::GROW != 0 && len > now {
                return Err(Errno::EPERM);
            }
            self.mm.file(file).set_size(len).map_err(|error| match error {
                quietmm::Error::BadRange => Errno::EFBIG,
                other => other.into(),
            })
        })?;
        inode.modified.store(self.clock(), Ordering::Relaxed);
        Ok(0)
    }

    pub(crate) fn ftruncate(&self, thread: &Thread, number: u64, len: u64) -> Answer {
        let open = self.open_file(thread, number)?;
        match &open.kind {
            Kind::File(inode) if open.may_write() => self.set_len(inode, len),
            _ => Err(Errno::EINVAL),
        }
    }

    pub(crate) fn truncate(&self, thread: &Thread, path: u64, len: u64) -> Answer {
        let path = self.load_path(path)?;
        let inode = self.walk(thread, None, &path, true)?.inode.ok_or(Errno::ENOENT)?;
        self.set_len(&inode, len)
    }

    pub(crate) fn fallocate(&self, thread: &Thread, number: u64, mode: u64, at: u64, bytes: u64) -> Answer {
        const KEEP: u64 = 1;
        const HOLE: u64 = 2;
        let open = self.open_file(thread, number)?;
        let Kind::File(inode) = &open.kind else { return Err(Errno::ENODEV) };
        let file = inode.file().ok_or(Errno::ENODEV)?;
        let end = at.checked_add(bytes).filter(|&end| bytes > 0 && end >> 63 == 0).ok_or(Errno::EINVAL)?;
        if !open.may_write() {
            return Err(Errno::EBADF);
        }
        match mode {
            0 if end > self.file_len(file) => self.set_len(inode, end),
            0 | KEEP => Ok(0),
            mode if mode == HOLE | KEEP => {
                self.unless_sealed(inode, |seals| {
                    if seals & seal::WRITE != 0 {
                        return Err(Errno::EPERM);
                    }
                    self.mm.file(file).punch_hole(at, bytes).map_err(Errno::from)
                })?;
                Ok(0)
            }
            _ => Err(Errno::EOPNOTSUPP),
        }
    }

    pub(crate) fn write_back(&self, inode: &Inode) -> Result<(), Errno> {
        if let Some(file) = inode.file() {
            self.mm.file(file).write_back()?;
        }
        Ok(())
    }

    pub(crate) fn fsync(&self, thread: &Thread, number: u64) -> Answer {
        let open = self.open_file(thread, number)?;
        match &open.kind {
            Kind::File(inode) => self.write_back(inode).map(|()| 0),
            Kind::Directory(_) => Ok(0),
            _ => Err(Errno::EINVAL),
        }
    }

    pub(crate) fn fadvise(&self, thread: &Thread, [number, at, bytes, advice, ..]: [u64; 6]) -> Answer {
        const NOT_NEEDED: u64 = 4;
        let open = self.open_file(thread, number)?;
        let inode = match &open.kind {
            Kind::File(inode) => inode,
            Kind::Pipe(_) => return Err(Errno::ESPIPE),
            _ => return Ok(0),
        };
        if advice == NOT_NEEDED
            && let Some(file) = inode.file()
        {
            let pages = if bytes == 0 { u64::MAX } else { bytes.div_ceil(4096) };
            self.mm.file(file).evict(at / 4096, pages)?;
        }
        Ok(0)
    }

    /// The names of processes in a directory behind a place, if it is the one where they are.
    fn numbers_behind(&self, directory: &Arc<Inode>, place: u64, most: usize) -> Vec<Named> {
        /// Their places come behind all others.
        const FIRST: u64 = 1 << 40;
        let proc = self.root.get(b"proc").ok().flatten();
        if proc.is_none_or(|proc| !Arc::ptr_eq(&proc, directory)) {
            return Vec::new();
        }
        let next = (place.max(FIRST) - FIRST + 1).min(u32::MAX.into()) as u32;
        let pids: Vec<u32> =
            self.processes.with(|all| all.range(next..).map(|(&pid, _)| pid).take(most).collect());
        let empty = |pid: u32| Inode::made(SHOWN | u64::from(pid) << 8, directory, Vec::new());
        let named = |pid: u32| (FIRST + u64::from(pid), pid.to_string().into_bytes(), empty(pid));
        pids.into_iter().map(named).collect()
    }

    pub(crate) fn getdents(&self, thread: &Thread, number: u64, to: u64, bytes: u64) -> Answer {
        let open = self.open_file(thread, number)?;
        let Kind::Directory(directory) = &open.kind else { return Err(Errno::ENOTDIR) };
        open.offset.with(self.machine, |offset| {
            // No more names at a time than there is memory for, however many there are.
            let bytes = (bytes as usize).min(self.piece());
            let most = bytes / 24 + 1;
            let parent = directory.parent().unwrap_or_else(|| directory.clone());
            let dots = [(1, b".".to_vec(), directory.clone()), (2, b"..".to_vec(), parent)];
            let listed = match &directory.body {
                Body::OpenFiles(_) => {
                    let numbers = thread.process.files.with(|files| files.numbers());
                    let named = |n: u64| (FIRST_PLACE + n, n.to_string().into_bytes(), Inode::opened(n));
                    let left = numbers.into_iter().filter(|n| FIRST_PLACE + n > *offset);
                    left.take(most).map(named).collect()
                }
                _ => {
                    let mut all = directory.behind(*offset, most)?;
                    all.extend(self.numbers_behind(directory, *offset, most));
                    all
                }
            };
            let all = dots.into_iter().chain(listed);
            let mut out: Vec<u8> = Vec::new();
            let mut place_now = *offset;
            for (place, name, inode) in all.filter(|&(place, ..)| place > *offset) {
                let len = (19 + name.len() + 1).next_multiple_of(8);
                if out.len() + len > bytes {
                    if out.is_empty() {
                        return Err(Errno::EINVAL);
                    }
                    break;
                }
                let start = out.len();
                out.extend(inode.number.to_le_bytes());
                out.extend(place.to_le_bytes());
                out.extend((len as u16).to_le_bytes());
                out.push((inode.mode.load(Ordering::Relaxed) >> 12) as u8);
                out.extend_from_slice(&name);
                out.resize(start + len, 0);
                place_now = place;
            }
            self.machine.write_user(to, &out)?;
            *offset = place_now;
            Ok(out.len() as u64)
        })
    }
}
