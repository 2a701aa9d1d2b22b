//! Bytes from one open file to another, by way of the kernel alone.

use alloc::sync::Arc;
use alloc::vec::Vec;

use super::MOST;
use crate::call::sockets::Extra;
use crate::errno::{Answer, Errno};
use crate::kernel::{AGAIN, Linux, Waited};
use crate::machine::Machine;
use crate::open::{Kind, Open, flag};
use crate::pipe::{Done, ROOM, WHOLE, Way};
use crate::process::Thread;
use crate::signal::number;
use crate::sync::key_of;
use crate::tree::Device;

/// Whether bytes can go there from a pipe without a look at them.
fn takes(open: &Open) -> bool {
    matches!(
        open.kind,
        Kind::File(_)
            | Kind::Text(..)
            | Kind::Pipe(_)
            | Kind::Both(..)
            | Kind::Socket(_)
            | Kind::Console(_)
            | Kind::Master(..)
            | Kind::Slave(..)
            | Kind::Device(..)
    )
}

impl<M: Machine> Linux<'_, M> {
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
            Kind::Device(Device::Zero | Device::Full, _) => bytes.resize(most, 0),
            Kind::Device(Device::Random, _) => {
                while bytes.len() < most {
                    bytes.extend(self.random().to_le_bytes());
                }
                bytes.truncate(most);
            }
            _ => return Err(Errno::EINVAL),
        }
        Ok(bytes)
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
                self.send_from(thread, open, socket, &[(0, len)], Extra::default(), &load)
            }
            _ => self.write_from(thread, open, len, at, &load),
        }
    }

    /// Moves bytes from one open file to another, with places or without; returns how many, and the places after that.
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
            if let (Kind::Socket(_), Kind::Pipe(end) | Kind::Both(_, end)) = (&from.kind, &to.kind) {
                // What comes of a socket does not go back.
                if let Err(error) = end.pipe.put_all(&piece) {
                    self.post_to_itself(thread, number::PIPE);
                    return Err(error);
                }
                self.changed(key_of(&*end.pipe));
                return Ok((piece.len() as u64, places));
            }
            let mut put = 0;
            while put < piece.len() {
                match self.put(thread, to, &piece[put..], places[1]) {
                    Ok(count @ 1..) => {
                        put += count as usize;
                        places[1] = places[1].map(|at| at + count);
                    }
                    // Nothing goes any more, if only because the thread is to end.
                    none => {
                        self.untake(from, &piece[put..], places[0].is_none());
                        done += put as u64;
                        places[0] = places[0].map(|at| at + put as u64);
                        return if done > 0 { Ok((done, places)) } else { none.map(|_| (0, places)) };
                    }
                }
            }
            done += piece.len() as u64;
            places[0] = places[0].map(|at| at + piece.len() as u64);
            // Whoever has something from a pipe waits for no more.
            if !matches!(from.kind, Kind::File(_) | Kind::Text(..)) || thread.is_dying() {
                break;
            }
            self.machine.cond_resched();
        }
        Ok((done, places))
    }

    /// What was taken and went nowhere is read again: by whoever reads where the file is, or from the pipe.
    fn untake(&self, from: &Open, piece: &[u8], moved: bool) {
        match &from.kind {
            Kind::File(_) | Kind::Text(..) if moved => {
                // Another thread may have set it meanwhile.
                from.offset.with(self.machine, |offset| *offset = offset.saturating_sub(piece.len() as u64));
            }
            Kind::Pipe(end) | Kind::Both(end, _) => {
                end.pipe.give_back(piece);
                self.changed(key_of(&*end.pipe));
            }
            _ => {}
        }
    }

    fn load_place(&self, at: u64) -> Result<Option<u64>, Errno> {
        if at == 0 { Ok(None) } else { self.load_long(at).map(Some) }
    }

    /// Moves bytes, with places that a program keeps, or the files.
    fn carry_at(&self, thread: &Thread, files: (&Arc<Open>, &Arc<Open>), at: [u64; 2], bytes: u64) -> Answer {
        let places = [self.load_place(at[0])?, self.load_place(at[1])?];
        // No place is beyond what a number can say, nor what comes after.
        let is_beyond = |place: &u64| place.checked_add(bytes).is_none_or(|end| end >> 63 != 0);
        if bytes >> 63 != 0 || places.iter().flatten().any(is_beyond) {
            return Err(Errno::EINVAL);
        }
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
        let (to, from) = (self.open_used(thread, to)?, self.open_used(thread, from)?);
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
        let (to, from) = (self.open_used(thread, to)?, self.open_used(thread, from)?);
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
        if flags as u32 != 0 || Arc::ptr_eq(target, source) && overlap {
            return Err(Errno::EINVAL);
        }
        self.carry_at(thread, (&from, &to), [from_at, to_at], bytes)
    }

    /// Copies what lies in a pipe to another, and leaves it there.
    pub(crate) fn tee(&self, thread: &Thread, [from, to, bytes, flags]: [u64; 4]) -> Answer {
        const NO_WAIT: u64 = 2;
        let (from, to) = (self.open_used(thread, from)?, self.open_used(thread, to)?);
        let source = match &from.kind {
            Kind::Pipe(end) | Kind::Both(end, _) => end.pipe.clone(),
            _ => return Err(Errno::EINVAL),
        };
        let target = match &to.kind {
            Kind::Pipe(end) | Kind::Both(_, end) => end.pipe.clone(),
            _ => return Err(Errno::EINVAL),
        };
        if !from.may_read() || !to.may_write() {
            return Err(Errno::EBADF);
        }
        if flags as u32 & !15 != 0 || Arc::ptr_eq(&source, &target) {
            return Err(Errno::EINVAL);
        }
        if bytes == 0 {
            return Ok(0);
        }
        if !self.machine.has_piece(ROOM as u64) {
            return Err(Errno::ENOMEM);
        }
        let at_once = flags & NO_WAIT != 0 || from.has(flag::NO_WAIT) || to.has(flag::NO_WAIT);
        loop {
            // Something there, and room for it.
            for (pipe, way) in [(&source, Way::Read), (&target, Way::Write)] {
                if !pipe.ready(way).0 {
                    if at_once {
                        return Err(Errno::EAGAIN);
                    }
                    if self.wait(thread, key_of(&**pipe), None, || pipe.ready(way).0) != Waited::Ready {
                        return Err(AGAIN);
                    }
                }
            }
            let most = target.room().saturating_sub(target.len()).min(bytes as usize);
            let piece = source.look(most);
            if piece.is_empty() {
                // Nobody writes any more, or somebody else was faster.
                if source.is_open(Way::Write) && most > 0 {
                    continue;
                }
                return Ok(0);
            }
            match target.write(&piece) {
                Ok(Done::Bytes(count)) => {
                    self.changed(key_of(&*target));
                    return Ok(count as u64);
                }
                Ok(Done::Wait) => {}
                Err(error) => {
                    self.post_to_itself(thread, number::PIPE);
                    return Err(error);
                }
            }
        }
    }

    /// Between a program's memory and a pipe: as much as there is room for, or what there is, once there is any.
    pub(crate) fn vmsplice(&self, thread: &Thread, [number, from, count, flags]: [u64; 4]) -> Answer {
        const NO_WAIT: u64 = 2;
        let open = self.open_used(thread, number)?;
        let mut vectors = self.vectors(from, count)?;
        if flags as u32 & !15 != 0 {
            return Err(Errno::EINVAL);
        }
        let (pipe, way) = match &open.kind {
            Kind::Pipe(end) => (end.pipe.clone(), end.way),
            Kind::Both(end, _) => (end.pipe.clone(), Way::Write),
            _ => return Err(Errno::EBADF),
        };
        let ready = || pipe.ready(way).0;
        if !ready() {
            if flags & NO_WAIT != 0 || open.has(flag::NO_WAIT) {
                return Err(Errno::EAGAIN);
            }
            if self.wait(thread, key_of(&*pipe), None, ready) != Waited::Ready {
                return Err(AGAIN);
            }
        }
        if way == Way::Read {
            return self.read(thread, number, &vectors, None);
        }
        let mut room = pipe.room().saturating_sub(pipe.len()).max(WHOLE) as u64;
        for (_, bytes) in &mut vectors {
            *bytes = (*bytes).min(room);
            room -= *bytes;
        }
        self.write(thread, number, &vectors, None)
    }

    /// Between a pipe and anything.
    pub(crate) fn splice(
        &self,
        thread: &Thread,
        [from, from_at, to, to_at, bytes, flags]: [u64; 6],
    ) -> Answer {
        const NO_WAIT: u64 = 2;
        let (from, to) = (self.open_used(thread, from)?, self.open_used(thread, to)?);
        let pipe = |open: &Open| match &open.kind {
            Kind::Pipe(end) | Kind::Both(end, _) => Some(end.pipe.clone()),
            _ => None,
        };
        let (source, target) = (pipe(&from), pipe(&to));
        if !from.may_read() || !to.may_write() {
            return Err(Errno::EBADF);
        }
        if flags as u32 & !15 != 0 || source.is_none() && target.is_none() || to.has(flag::APPEND) {
            return Err(Errno::EINVAL);
        }
        if let (Some(source), Some(target)) = (&source, &target)
            && Arc::ptr_eq(source, target)
        {
            return Err(Errno::EINVAL);
        }
        // Before anything is waited for.
        if !takes(&to) {
            return Err(Errno::EINVAL);
        }
        if source.is_some() && from_at != 0 || target.is_some() && to_at != 0 {
            return Err(Errno::ESPIPE);
        }
        let mut bytes = bytes;
        if let Some(target) = target {
            let has_room = || target.ready(Way::Write).0;
            let at_once = flags & NO_WAIT != 0 || to.has(flag::NO_WAIT);
            if at_once && !has_room() {
                return Err(Errno::EAGAIN);
            }
            // What is taken from a socket must go.
            let waits = matches!(from.kind, Kind::Socket(_));
            if waits && self.wait(thread, key_of(&*target), None, has_room) != Waited::Ready {
                return Err(AGAIN);
            }
            // What does not fit waits for the next call: as much as there is room for, or a piece once there is.
            bytes = bytes.min(target.room().saturating_sub(target.len()).max(WHOLE) as u64);
        }
        if flags & NO_WAIT != 0 && source.is_some_and(|source| !source.ready(Way::Read).0) {
            return Err(Errno::EAGAIN);
        }
        self.carry_at(thread, (&from, &to), [from_at, to_at], bytes.min(ROOM as u64))
    }
}
