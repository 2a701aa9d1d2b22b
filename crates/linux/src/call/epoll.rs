//! `epoll`: waiting for many files, named beforehand.

use alloc::sync::Arc;

use super::poll::event::{ERROR, HANG_UP, IN, OUT};
use crate::epoll::{EXCLUSIVE, Epoll, Looks};
use crate::errno::{Answer, Errno};
use crate::kernel::{Linux, Waited};
use crate::layout::Pack;
use crate::machine::Machine;
use crate::open::{Kind, Open, flag};
use crate::process::Thread;
use crate::tree::Device;

/// Bytes of `struct epoll_event`.
const EVENT: usize = 12;

impl<M: Machine> Linux<'_, M> {
    pub(crate) fn epoll_create(&self, thread: &Thread, flags: u32) -> Answer {
        if flags & !flag::CLOSE_ON_EXEC != 0 {
            return Err(Errno::EINVAL);
        }
        let open =
            Open::new(Kind::Poll(Epoll::default()), flag::READ_WRITE, b"anon_inode:[eventpoll]".to_vec());
        thread.process.files.with(|files| files.add(open, flags & flag::CLOSE_ON_EXEC != 0, 0))
    }

    pub(crate) fn epoll_ctl(&self, thread: &Thread, [set, what, number, at]: [u64; 4]) -> Answer {
        let mut event = [0; EVENT];
        if what != 2 {
            self.machine.read_user(at, &mut event)?;
        }
        let (own, open) = (self.open_used(thread, set)?, self.open_used(thread, number)?);
        let events = u32::from_le_bytes(event[..4].try_into().expect("4 bytes"));
        let data = u64::from_le_bytes(event[4..].try_into().expect("8 bytes"));
        // What is always ready is not waited for.
        let is_ready = match &open.kind {
            Kind::File(_) | Kind::Directory(_) | Kind::Space(..) | Kind::PageMap(..) => true,
            Kind::Device(device, _) => *device != Device::Console,
            _ => false,
        };
        if is_ready {
            return Err(Errno::EPERM);
        }
        let Kind::Poll(epoll) = &own.kind else { return Err(Errno::EINVAL) };
        if Arc::ptr_eq(&own, &open) {
            return Err(Errno::EINVAL);
        }
        // Of those who wait one is woken, not all: of what is no set, for these events, and once and for all.
        const MAY_BE: u32 = EXCLUSIVE | 1 << 31 | 1 << 29 | IN | OUT | ERROR | HANG_UP;
        let is_set = matches!(open.kind, Kind::Poll(_));
        if what != 2 && events & EXCLUSIVE != 0 && (what == 3 || is_set || events & !MAY_BE != 0) {
            return Err(Errno::EINVAL);
        }
        let number = number as u32 as u64;
        match what {
            // One at a time, where sets are put into sets: two at once could make a circle.
            1 if is_set => {
                self.nesting.with(|()| epoll.add(&own, number, &open, events, data))?;
            }
            1 => epoll.add(&own, number, &open, events, data)?,
            2 => epoll.remove(number, &open)?,
            3 => epoll.change(number, &open, events, data)?,
            _ => return Err(Errno::EINVAL),
        }
        // Whoever waits at the set looks at the new one too.
        self.changed(crate::sync::key_of(&*own));
        Ok(0)
    }

    /// Waits until some are ready, and tells of up to `most`.
    pub(crate) fn epoll_wait(
        &self,
        thread: &Thread,
        [set, to, most]: [u64; 3],
        time: Option<u64>,
        mask: Option<u64>,
    ) -> Answer {
        let own: Arc<Open> = self.open_file(thread, set)?;
        let Kind::Poll(epoll) = &own.kind else { return Err(Errno::EINVAL) };
        if !(1..=1 << 24).contains(&(most as i32)) {
            return Err(Errno::EINVAL);
        }
        // More come with the next call.
        let most = (most as usize).min(1024);
        if let Some(mask) = mask {
            self.mask_meanwhile(thread, mask);
        }
        let until = time.map(|time| self.end_of_wait(thread, time));
        let mut found = alloc::vec::Vec::new();
        let how = self.watch(
            thread,
            until,
            || {
                let looks = Looks::default();
                epoll.first(&|open| self.due(open, &looks))
            },
            || {
                let looks = Looks::default();
                found = epoll.collect(most, &mut |open| self.look(thread, open, &looks));
                !found.is_empty()
            },
        );
        if how == Waited::Interrupted {
            return Err(Self::unless_handled(thread, until));
        }
        let all = found.iter().fold(Pack::default(), |all, &(events, data)| all.word(events).long(data));
        self.machine.write_user(to, &all.0)?;
        Ok(found.len() as u64)
    }
}
