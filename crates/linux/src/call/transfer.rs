//! Bytes between programs and files: what all calls that move them have in common.

mod carry;
mod length;
mod page_map;
mod read;
mod sync;
mod write;

use alloc::sync::Arc;

use crate::errno::{Answer, Errno};
use crate::kernel::Linux;
use crate::machine::Machine;
use crate::memory::ALL;
use crate::open::{Open, flag};
use crate::process::Thread;

/// Bytes that go through the kernel's buffer at a time.
const PIECE: usize = 64 << 10;
/// The same when the kernel's memory is short.
const SMALL_PIECE: usize = 4 << 10;
/// Bytes that one call moves at most.
const MOST: u64 = 0x7fff_f000;

/// How many of so many bytes go where not all of them do.
pub(super) fn as_far_as(all: usize, mut goes: impl FnMut(usize) -> bool) -> usize {
    let (mut good, mut bad) = (0, all);
    while bad - good > 1 {
        let middle = good.midpoint(bad);
        *(if goes(middle) { &mut good } else { &mut bad }) = middle;
    }
    good
}

/// Gives bytes from a place on.
pub(super) type Load<'a> = dyn Fn(u64, &mut [u8]) -> Result<(), Errno> + 'a;

impl<M: Machine> Linux<'_, M> {
    pub(crate) fn open_file(&self, thread: &Thread, number: u64) -> Result<Arc<Open>, Errno> {
        thread.process.files.with(|files| files.get(number))
    }

    /// The same, of what is open to be used, and not only to be named (`O_PATH`).
    pub(crate) fn open_used(&self, thread: &Thread, number: u64) -> Result<Arc<Open>, Errno> {
        let open = self.open_file(thread, number)?;
        if open.has(flag::PATH) { Err(Errno::EBADF) } else { Ok(open) }
    }

    /// Bytes that go through the kernel's buffer at a time.
    pub(super) fn piece(&self) -> usize {
        if self.machine.has_room(0) { PIECE } else { SMALL_PIECE }
    }

    /// Whether all of the buffers lie where a program can have memory.
    fn can_be(buffers: &[(u64, u64)]) -> Result<(), Errno> {
        let fits = |&(at, bytes): &(u64, u64)| at.checked_add(bytes).is_some_and(|end| end <= ALL.end);
        if buffers.iter().all(fits) { Ok(()) } else { Err(Errno::EFAULT) }
    }

    /// What is a way and no store has no places, whoever asks.
    fn has_places(open: &Open, at: Option<u64>) -> Result<(), Errno> {
        if at.is_some() && open.flows() { Err(Errno::ESPIPE) } else { Ok(()) }
    }

    /// The last byte has a place that a number can say.
    fn can_reach(buffers: &[(u64, u64)], at: Option<u64>) -> Result<(), Errno> {
        let sum = |sum: u64, (_, bytes): &(u64, u64)| sum.saturating_add(*bytes);
        match at.map(|at| buffers.iter().fold(at, sum)) {
            Some(end) if end >> 63 != 0 => Err(Errno::EINVAL),
            _ => Ok(()),
        }
    }

    /// One buffer after the other, until one is not full, or fails.
    fn each(
        &self,
        buffers: &[(u64, u64)],
        place: Option<u64>,
        mut work: impl FnMut(u64, u64, Option<u64>) -> Answer,
    ) -> Answer {
        let mut sum = 0;
        for &(at, bytes) in buffers {
            if bytes == 0 {
                continue;
            }
            match work(at, bytes.min(MOST), place.map(|place| place.saturating_add(sum))) {
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
}
