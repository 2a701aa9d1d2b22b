//! A pipe: bytes from those who write to those who read.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use crate::errno::Errno;
use crate::left::{Leaving, Left};
use crate::sync::{Spin, key_of};
use crate::tree::Inode;

/// Bytes that fit.
pub const ROOM: usize = 65536;
/// The most that may be asked for, but by whoever may do everything.
pub const MOST: usize = 1 << 20;
/// So many bytes go in one piece or not at all.
pub const WHOLE: usize = 4096;

/// What both ends share.
pub struct Pipe {
    bytes: Spin<VecDeque<u8>>,
    room: AtomicUsize,
    /// Ends that are open.
    ends: [AtomicU32; 2],
    /// How often an end of each kind was opened.
    opened: [AtomicU64; 2],
    /// How often something has changed for whoever has an end of each kind.
    changes: [AtomicU64; 2],
    left: Arc<Left>,
}

/// Which end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// Where bytes come out.
    Read,
    /// Where they go in.
    Write,
}

/// An end that is open.
pub struct End {
    /// The pipe.
    pub pipe: Arc<Pipe>,
    /// Which end.
    pub way: Way,
    /// Nobody had the other end open when this one was opened: how often it had been opened before.
    unmet: Option<u64>,
    /// The file by whose name it was opened.
    pub file: Option<Arc<Inode>>,
}

/// What can be done at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Done {
    /// So many bytes went. 0, of a read: it is empty, and nobody writes any more.
    Bytes(usize),
    /// It must be waited for.
    Wait,
}

impl Drop for End {
    fn drop(&mut self) {
        let last = self.pipe.bytes.with(|bytes| {
            let last = self.pipe.ends[self.way as usize].fetch_sub(1, Ordering::SeqCst) == 1;
            if last && !self.pipe.is_open(Way::Read) && !self.pipe.is_open(Way::Write) {
                // Whoever finds it by its name finds it empty.
                bytes.clear();
            }
            last
        });
        if last {
            // Whoever waits at the other end waits for nothing.
            self.pipe.change(Way::Read);
            self.pipe.change(Way::Write);
            self.pipe.left.add(Leaving::Key(key_of(&*self.pipe)));
        }
    }
}

impl End {
    /// As [`Pipe::ready`] has it; but who came before anybody wrote has not come to the end.
    pub fn ready(&self) -> (bool, bool) {
        // In this order: who opens it is there before that is counted.
        let is_unmet = self.unmet == Some(self.pipe.opened(Way::Write));
        let (ready, closed) = self.pipe.ready(self.way);
        if self.way == Way::Read && is_unmet {
            return (!self.pipe.is_empty(), false);
        }
        (ready, closed)
    }
}

/// The first bytes, up to so many; they stay there.
pub(crate) fn first(bytes: &VecDeque<u8>, most: usize) -> Vec<u8> {
    let (front, back) = bytes.as_slices();
    let at_front = front.len().min(most);
    [&front[..at_front], &back[..back.len().min(most - at_front)]].concat()
}

/// Takes as many as there is room for: there are no fewer.
pub(crate) fn take_first(bytes: &mut VecDeque<u8>, into: &mut [u8]) {
    let (front, back) = bytes.as_slices();
    let (to_front, to_back) = into.split_at_mut(front.len().min(into.len()));
    to_front.copy_from_slice(&front[..to_front.len()]);
    to_back.copy_from_slice(&back[..to_back.len()]);
    bytes.drain(..to_front.len() + to_back.len());
}

impl Pipe {
    /// A new one: both ends.
    pub fn open(left: &Arc<Left>) -> (End, End) {
        let pipe = Pipe::named(left);
        (pipe.end(Way::Read), pipe.end(Way::Write))
    }

    /// One that nobody has open: a file by which others find it.
    pub fn named(left: &Arc<Left>) -> Arc<Pipe> {
        Arc::new(Pipe {
            bytes: Spin::new(VecDeque::new()),
            room: AtomicUsize::new(ROOM),
            ends: Default::default(),
            opened: Default::default(),
            changes: Default::default(),
            left: left.clone(),
        })
    }

    /// One more end that is open.
    pub fn end(self: &Arc<Pipe>, way: Way) -> End {
        self.end_before(way, way).0
    }

    /// One more end that is open; and how often one of the `other` kind was opened before, if none was open then. In one step: who
    /// waits for this end, and goes as soon as it is there, was there before or is counted.
    pub fn end_before(self: &Arc<Pipe>, way: Way, other: Way) -> (End, Option<u64>) {
        let before = self.bytes.with(|_| {
            let before = (!self.is_open(other)).then(|| self.opened(other));
            self.ends[way as usize].fetch_add(1, Ordering::SeqCst);
            self.opened[way as usize].fetch_add(1, Ordering::SeqCst);
            before
        });
        self.change(Way::Read);
        self.change(Way::Write);
        let unmet = before.filter(|_| way != other);
        (End { pipe: self.clone(), way, unmet, file: None }, before)
    }

    fn change(&self, way: Way) {
        self.changes[way as usize].fetch_add(1, Ordering::SeqCst);
    }

    /// How often something has changed for whoever has an end of this kind: bytes came, or room, or whoever is at the other end.
    pub fn changes(&self, way: Way) -> u64 {
        self.changes[way as usize].load(Ordering::SeqCst)
    }

    /// How often an end of this kind was opened.
    pub fn opened(&self, way: Way) -> u64 {
        self.opened[way as usize].load(Ordering::SeqCst)
    }

    /// Whether somebody has an end of this kind open.
    pub fn is_open(&self, way: Way) -> bool {
        self.ends[way as usize].load(Ordering::SeqCst) > 0
    }

    /// Takes what there is, as much as fits.
    pub fn read(&self, into: &mut [u8]) -> Done {
        // Before the look: whoever writes last, writes before they close.
        let written = self.is_open(Way::Write);
        let count = self.bytes.with(|bytes| {
            let count = bytes.len().min(into.len());
            take_first(bytes, &mut into[..count]);
            count
        });
        if count > 0 {
            self.change(Way::Write);
        }
        if count == 0 && written && !into.is_empty() { Done::Wait } else { Done::Bytes(count) }
    }

    /// Bytes that were taken come first again.
    pub fn give_back(&self, taken: &[u8]) {
        self.bytes.with(|bytes| {
            bytes.extend(taken);
            bytes.rotate_right(taken.len());
        });
        self.change(Way::Read);
    }

    /// What there is, up to so many bytes; it stays there.
    pub fn look(&self, most: usize) -> Vec<u8> {
        self.bytes.with(|bytes| first(bytes, most))
    }

    /// Puts in what fits; up to [`WHOLE`] bytes go in one piece.
    ///
    /// # Errors
    /// `EPIPE`: nobody reads any more.
    pub fn write(&self, from: &[u8]) -> Result<Done, Errno> {
        if !self.is_open(Way::Read) {
            return Err(Errno::EPIPE);
        }
        let done = self.bytes.with(|bytes| {
            let room = self.room().saturating_sub(bytes.len());
            let fits = if from.len() <= WHOLE { room >= from.len() } else { room > 0 };
            if !fits {
                return Done::Wait;
            }
            let count = from.len().min(room);
            bytes.extend(&from[..count]);
            Done::Bytes(count)
        });
        if done != Done::Wait {
            self.change(Way::Read);
        }
        Ok(done)
    }

    /// Puts in all of it, though there may be no room: bytes that cannot go back to where they come from.
    ///
    /// # Errors
    /// `EPIPE`: nobody reads any more.
    pub fn put_all(&self, from: &[u8]) -> Result<(), Errno> {
        if !self.is_open(Way::Read) {
            return Err(Errno::EPIPE);
        }
        self.bytes.with(|bytes| bytes.extend(from));
        self.change(Way::Read);
        Ok(())
    }

    /// Whether a read, or a write of a few bytes, would not wait; and whether the other end is closed.
    pub fn ready(&self, way: Way) -> (bool, bool) {
        let len = self.bytes.with(|bytes| bytes.len());
        match way {
            Way::Read => {
                let closed = !self.is_open(Way::Write);
                (len > 0 || closed, closed)
            }
            Way::Write => {
                let closed = !self.is_open(Way::Read);
                (self.room().saturating_sub(len) >= WHOLE || closed, closed)
            }
        }
    }

    /// Bytes that fit.
    pub fn room(&self) -> usize {
        self.room.load(Ordering::SeqCst)
    }

    /// From now on so many fit, or a little more; returns how many.
    ///
    /// # Errors
    /// `EINVAL`: too many for any pipe; `EBUSY`: there are more in it.
    pub fn set_room(&self, wanted: u64) -> Result<usize, Errno> {
        if wanted > 1 << 31 {
            return Err(Errno::EINVAL);
        }
        let room = (wanted as usize).max(WHOLE).next_power_of_two();
        if room > MOST {
            return Err(Errno::EPERM);
        }
        self.bytes.with(|bytes| {
            if bytes.len() > room {
                return Err(Errno::EBUSY);
            }
            self.room.store(room, Ordering::SeqCst);
            Ok(room)
        })?;
        self.change(Way::Write);
        Ok(room)
    }

    /// Bytes in it.
    pub fn len(&self) -> usize {
        self.bytes.with(|bytes| bytes.len())
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn bytes_come_out_in_order_and_then_the_end() {
        let left = Arc::default();
        let (reader, writer) = Pipe::open(&left);
        let mut buffer = [0; 4];
        assert_eq!(reader.pipe.read(&mut buffer), Done::Wait);
        assert_eq!(writer.pipe.write(b"hello"), Ok(Done::Bytes(5)));
        assert_eq!(reader.pipe.read(&mut buffer), Done::Bytes(4));
        assert_eq!(&buffer, b"hell");
        drop(writer);
        assert_eq!(left.take().len(), 1, "whoever reads is told");
        assert_eq!(reader.pipe.read(&mut buffer), Done::Bytes(1), "what was written is still there");
        assert_eq!(reader.pipe.read(&mut buffer), Done::Bytes(0));
    }

    #[test]
    fn the_end_is_reached_when_every_writer_is_gone() {
        let (reader, writer) = Pipe::open(&Arc::default());
        let again = reader.pipe.end(Way::Write);
        drop(writer);
        assert_eq!(reader.pipe.read(&mut [0; 4]), Done::Wait);
        assert_eq!(again.pipe.write(b"x"), Ok(Done::Bytes(1)));
        drop(again);
        assert_eq!(reader.pipe.read(&mut [0; 4]), Done::Bytes(1));
        assert_eq!(reader.pipe.read(&mut [0; 4]), Done::Bytes(0));
    }

    #[test]
    fn a_full_pipe_takes_few_bytes_whole_or_not_at_all() {
        let (reader, writer) = Pipe::open(&Arc::default());
        assert_eq!(writer.pipe.write(&vec![1; ROOM + 10]), Ok(Done::Bytes(ROOM)));
        assert_eq!(writer.pipe.write(b"x"), Ok(Done::Wait));
        assert_eq!(reader.pipe.read(&mut [0; 10]), Done::Bytes(10));
        assert_eq!(writer.pipe.write(&[2; 11]), Ok(Done::Wait), "in one piece");
        assert_eq!(writer.pipe.write(&[2; WHOLE + 1]), Ok(Done::Bytes(10)), "too many for that");
        assert!(!writer.pipe.ready(Way::Write).0);
    }

    #[test]
    fn what_was_taken_in_vain_comes_first_again() {
        let (reader, writer) = Pipe::open(&Arc::default());
        assert_eq!(writer.pipe.write(b"hello"), Ok(Done::Bytes(5)));
        let mut buffer = [0; 5];
        assert_eq!(reader.pipe.read(&mut buffer[..3]), Done::Bytes(3));
        reader.pipe.give_back(&buffer[1..3]);
        assert_eq!((reader.pipe.read(&mut buffer), &buffer[..4]), (Done::Bytes(4), &b"ello"[..]));
    }

    #[test]
    fn what_cannot_go_back_finds_room() {
        let (reader, writer) = Pipe::open(&Arc::default());
        assert_eq!(writer.pipe.write(&vec![1; ROOM]), Ok(Done::Bytes(ROOM)));
        assert_eq!((writer.pipe.put_all(b"end"), writer.pipe.write(b"x")), (Ok(()), Ok(Done::Wait)));
        assert_eq!(reader.pipe.read(&mut vec![0; ROOM]), Done::Bytes(ROOM));
        let mut buffer = [0; 4];
        assert_eq!((reader.pipe.read(&mut buffer), &buffer[..3]), (Done::Bytes(3), &b"end"[..]));
        drop(reader);
        assert_eq!(writer.pipe.put_all(b"x"), Err(Errno::EPIPE));
    }

    #[test]
    fn a_pipe_can_have_other_room() {
        let (reader, writer) = Pipe::open(&Arc::default());
        assert_eq!((reader.pipe.set_room(5000), reader.pipe.room()), (Ok(8192), 8192));
        assert_eq!(writer.pipe.write(&vec![1; ROOM]), Ok(Done::Bytes(8192)));
        assert_eq!(writer.pipe.set_room(1), Err(Errno::EBUSY));
        assert_eq!(writer.pipe.set_room(1 << 40), Err(Errno::EINVAL));
        assert_eq!(writer.pipe.set_room(MOST as u64 + 1), Err(Errno::EPERM));
        assert_eq!(reader.pipe.read(&mut vec![0; 8000]), Done::Bytes(8000));
        assert_eq!((writer.pipe.set_room(0), writer.pipe.write(&[1; 4000])), (Ok(4096), Ok(Done::Wait)));
    }

    #[test]
    fn a_pipe_with_a_name_is_empty_once_nobody_has_it_open() {
        let pipe = Pipe::named(&Arc::default());
        assert_eq!(pipe.write(b"x"), Err(Errno::EPIPE));
        let (reader, writer) = (pipe.end(Way::Read), pipe.end(Way::Write));
        assert_eq!(pipe.write(b"x"), Ok(Done::Bytes(1)));
        drop((reader, writer));
        assert_eq!((pipe.len(), pipe.opened(Way::Read)), (0, 1));
        let _reader = pipe.end(Way::Read);
        assert_eq!(pipe.read(&mut [0; 4]), Done::Bytes(0));
    }

    #[test]
    fn who_came_before_anybody_wrote_has_not_come_to_the_end() {
        let pipe = Pipe::named(&Arc::default());
        let (reader, _) = pipe.end_before(Way::Read, Way::Write);
        assert_eq!((reader.ready(), pipe.read(&mut [0; 4])), ((false, false), Done::Bytes(0)));
        drop(pipe.end_before(Way::Write, Way::Read));
        assert_eq!(reader.ready(), (true, true));
        let (reader, writer) = Pipe::open(&Arc::default());
        drop(writer);
        assert_eq!(reader.ready(), (true, true));
    }

    /// Whoever opens one end while somebody waits at the other has met it, though it goes at once.
    #[test]
    fn who_was_there_when_an_end_was_opened_has_been_met() {
        let pipe = Pipe::named(&Arc::default());
        let (writer, before) = pipe.end_before(Way::Write, Way::Read);
        assert_eq!(before, Some(0));
        let (reader, before) = pipe.end_before(Way::Read, Way::Write);
        assert_eq!((before, pipe.opened(Way::Read)), (None, 1), "each sees the other");
        drop((reader, writer));
        assert_eq!(pipe.end_before(Way::Read, Way::Write).1, Some(1));
    }

    #[test]
    fn nobody_reads_is_an_error() {
        let (reader, writer) = Pipe::open(&Arc::default());
        drop(reader);
        assert_eq!(writer.pipe.write(b"x"), Err(Errno::EPIPE));
        assert_eq!(writer.pipe.ready(Way::Write), (true, true));
    }
}
