//! A process: how it is made, what it does, and how it gives back all it had, also when it is ended in the middle.

use core::sync::atomic::Ordering;

use quietmm::{AllocFrom, Backing, Error, Frames, PageNumber, PageRange, Prot, SpaceId, UserAccess};

use super::socket::{Put, Socket};
use super::{BASE, HEAP_PAGES, MEMBERS, RECEIVERS, STACK, STACK_PAGES, World, key, parents_key};
use crate::guarded::Guarded;
use crate::latency::Tally;
use crate::machine::Machine;
use crate::system::System;

/// log2 of the frames of a kernel stack: 16 KiB, as Linux on x86-64 since 3.15 (half of that before).
const KERNEL_STACK: u8 = 2;
/// Accesses that a process does to a page of its own when it touches it first.
const FIRST_ACCESSES: u32 = 64;
/// Accesses to a message of 100 bytes.
const ACCESSES: u32 = 13;
/// Accesses' worth of what a socket does to send or receive a message, and what we do not model: about 1 us (an
/// assumption).
const SOCKET_WORK: u32 = 1000;

/// What a process is given before it begins.
pub struct Newborn {
    stack: Frames,
    space: SpaceId,
}

/// Where a process finds itself.
pub enum Cradle {
    /// It was made.
    Made(Newborn),
    /// It could not be.
    Empty,
}

impl Newborn {
    /// What fork does of it, in the parent.
    pub fn make<M: Machine>(system: &System<'_, M>) -> Result<Newborn, Error> {
        system.syscall(|mm| {
            let stack = mm.frames().alloc(KERNEL_STACK, AllocFrom::HERE)?;
            match system.create_space() {
                Ok(space) => Ok(Newborn { stack, space }),
                Err(error) => {
                    mm.frames().free(stack);
                    Err(error)
                }
            }
        })
    }
}

impl World {
    /// The whole life of a process, which begins when the parent has made it, or could not.
    pub(super) fn live<M: Machine>(&self, system: &System<'_, M>, me: u32) -> Result<(), Error> {
        let found = self.cradles[me as usize].with(&system.mm, Option::take);
        let Some(Cradle::Made(Newborn { stack, space })) = found else {
            self.group(me).leave(system, me);
            self.group(me).ended(system, false);
            return Ok(());
        };
        let lived = system.run_in(space, || {
            let settled = self.settle_in(system, space, me);
            if self.unready.fetch_sub(1, Ordering::AcqRel) == 1 {
                system.mm.platform().wake(parents_key());
            }
            settled?;
            self.work(system, me)
        });
        self.group(me).leave(system, me);
        // Out of its space again.
        system.syscall(|mm| mm.frames().free(stack));
        let gone = system.end_space(space);
        let picked = self.victims.has_ended(me);
        self.group(me).ended(system, !picked);
        match lived {
            // It was told to end and did.
            Err(Error::OutOfMemory) if picked => gone,
            lived => lived.and(gone),
        }
    }

    /// Maps what it has of its own and touches all of it.
    fn settle_in<M: Machine>(&self, system: &System<'_, M>, space: SpaceId, me: u32) -> Result<(), Error> {
        for range in [PageRange::new(BASE, HEAP_PAGES), PageRange::new(STACK, STACK_PAGES)] {
            system.syscall(|mm| mm.space(space).map(range, Backing::Anonymous, Prot::ReadWrite))?;
            for page in range.start.0..range.end().0 {
                self.victims.may_go_on(me)?;
                system.access(PageNumber(page).addr(), FIRST_ACCESSES, UserAccess::Write)?;
                self.victims.grows(me);
                system.mm.platform().progressed(1);
            }
        }
        Ok(())
    }

    /// Waits for the start, and sends or receives.
    fn work<M: Machine>(&self, system: &System<'_, M>, me: u32) -> Result<(), Error> {
        // Acquire: partner of the Release in `make_all`.
        let started = || self.started.load(Ordering::Acquire);
        system.mm.platform().wait(key(me), &mut || started() || self.victims.is_dying(me));
        let sockets = &self.group(me).sockets;
        if let Some(socket) = sockets.get((me % MEMBERS) as usize) {
            return self.receive(system, me, socket);
        }
        let mut spare = None;
        let sent = (0..self.rounds)
            .flat_map(|_| sockets)
            .enumerate()
            .try_for_each(|(nth, socket)| self.send(system, me, (nth as u32, socket), &mut spare));
        if let Some(frame) = spare {
            system.mm.frames().free(frame);
        }
        sent
    }

    /// Sends one message, unless nobody is there to read it.
    fn send<M: Machine>(
        &self,
        system: &System<'_, M>,
        me: u32,
        (nth, socket): (u32, &Guarded<Socket>),
        spare: &mut Option<Frames>,
    ) -> Result<(), Error> {
        let m = system.mm.platform();
        system.access(STACK.addr(), ACCESSES, UserAccess::Read)?;
        m.compute(SOCKET_WORK);
        loop {
            self.victims.may_go_on(me)?;
            match system.syscall(|mm| socket.with(mm, |socket| socket.put(me, spare))) {
                Put::NeedsFrame => {
                    *spare = Some(system.syscall(|mm| mm.frames().alloc(0, AllocFrom::HERE))?);
                }
                Put::Full => {
                    let blocked = || socket.with(&system.mm, |socket| socket.blocks(me));
                    m.wait(key(me), &mut || self.victims.is_dying(me) || !blocked());
                }
                Put::Done { first } => {
                    if first {
                        m.wake(key(me - me % MEMBERS + nth % RECEIVERS));
                    }
                    return Ok(());
                }
                Put::Closed => return Ok(()),
            }
        }
    }

    /// Receives until no sender is left.
    fn receive<M: Machine>(
        &self,
        system: &System<'_, M>,
        me: u32,
        socket: &Guarded<Socket>,
    ) -> Result<(), Error> {
        let m = system.mm.platform();
        let mut received = 0;
        let result = loop {
            if let Err(killed) = self.victims.may_go_on(me) {
                break Err(killed);
            }
            // Asked before the look: what was sent before the last one ended is seen by it.
            let at_end = self.group(me).is_at_end();
            match system.syscall(|mm| socket.with(mm, Socket::take)) {
                Some(taken) => {
                    taken.freed.into_iter().for_each(|frame| system.mm.frames().free(frame));
                    taken.woken.into_iter().for_each(|sender| m.wake(key(sender)));
                    m.compute(SOCKET_WORK);
                    if let Err(error) = system.access(STACK.addr(), ACCESSES, UserAccess::Write) {
                        break Err(error);
                    }
                    received += 1;
                    m.progressed(1);
                }
                None if at_end => break Ok(()),
                None => {
                    let empty = || socket.with(&system.mm, |socket| socket.is_empty());
                    let over = || self.group(me).is_at_end() || self.victims.is_dying(me);
                    m.wait(key(me), &mut || over() || !empty());
                }
            }
        };
        m.tally(Tally::Messages, received);
        result
    }
}
