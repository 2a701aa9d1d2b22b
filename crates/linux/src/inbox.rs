//! What waits at a socket until it is received: packets, or the bytes of a stream, of which one may be urgent.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use crate::errno::Errno;
use crate::left::Left;
use crate::open::Open;
use crate::pipe::{first, take_first};
use crate::sync::Spin;

/// Bytes that are sent and not received at most, unless it is said otherwise.
pub const ROOM: usize = 212_992;
/// Bytes that each packet is counted with beyond its own.
pub(crate) const OVERHEAD: usize = 256;

/// Who sends.
#[derive(Clone, PartialEq, Eq)]
pub struct Sender {
    /// From which address.
    pub address: Arc<[u8]>,
    /// The process, its user and its group, as whoever receives may ask to be told.
    pub who: [u32; 3],
}

impl Sender {
    /// Nobody knows who it is.
    pub const UNKNOWN: [u32; 3] = [0, 65_534, 65_534];

    /// One of whom only that is known.
    pub fn at(address: &Arc<[u8]>) -> Sender {
        Sender { address: address.clone(), who: Self::UNKNOWN }
    }
}

/// What one send has left.
pub struct Packet {
    /// What is left of it.
    pub bytes: VecDeque<u8>,
    /// Who sent it.
    pub from: Sender,
    /// Open files that come with it.
    pub files: Vec<Arc<Open>>,
}

#[derive(Default)]
struct Content {
    packets: VecDeque<Packet>,
    bytes: usize,
    /// Nobody sends any more.
    ended: bool,
    /// Nobody receives any more; and the socket is gone.
    closed: bool,
    gone: bool,
    /// Whether whoever sent here broke off.
    broken: Broken,
    /// The last byte of the stream that was sent as urgent, until what is read goes past it.
    mark: Option<Mark>,
}

/// A byte of a stream that need not wait until those before it are read.
struct Mark {
    /// Bytes that come before it.
    before: usize,
    /// Somebody has taken it, out of its turn.
    is_taken: bool,
}

impl Content {
    /// Whether the next byte is the urgent one.
    fn is_at_mark(&self) -> bool {
        self.mark.as_ref().is_some_and(|mark| mark.before == 0)
    }

    /// Bytes that are there, those that nobody reads in their turn too.
    fn all(&self) -> usize {
        self.packets.iter().map(|packet| packet.bytes.len()).sum()
    }

    /// The next byte is the urgent one and goes unread, as who reads wants it.
    fn pass_mark(&mut self) {
        self.mark = None;
        if let Some(packet) = self.packets.front_mut() {
            packet.bytes.pop_front();
            self.bytes -= 1;
            if packet.bytes.is_empty() {
                self.bytes -= OVERHEAD;
                self.packets.pop_front();
            }
        }
    }
}

/// Whether the other end broke off: it was closed with bytes that it had not read, never taken in, or something was sent to it that it does not hear any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Broken {
    /// It did not.
    #[default]
    No,
    /// It did, and nobody has heard of that, as this error.
    Yes(Errno),
    /// That was said.
    Said,
}

/// What has been sent to a socket.
pub struct Inbox {
    content: Spin<Content>,
    /// How often something has come here, how often room has, and how often one of the ends has said its last.
    pub(crate) changes: [AtomicU64; 3],
    /// Bytes that wait here beside what whoever sends may have on its way.
    pub(crate) takes: AtomicUsize,
    /// Whether who sends is to be noted: whoever receives asks for it, or nobody has taken it in yet.
    pub asks_who: AtomicBool,
    /// Whether the urgent byte is read among the others, and not beside them.
    pub is_inline: AtomicBool,
    left: Arc<Left>,
}

/// What came of a look into an inbox.
pub struct Received {
    /// The bytes, as many as were wanted.
    pub bytes: Vec<u8>,
    /// How long the packet was.
    pub whole: usize,
    /// Who sent it.
    pub from: Sender,
    /// What came with it.
    pub files: Vec<Arc<Open>>,
    /// The urgent byte comes next: no read goes over it.
    pub is_at_mark: bool,
}

impl Received {
    /// Nothing, from nobody.
    pub fn nothing() -> Received {
        let (bytes, files) = (Vec::new(), Vec::new());
        Received { bytes, whole: 0, from: Sender::at(&Arc::from([])), files, is_at_mark: false }
    }
}

/// Whether something can be sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sent {
    /// So many bytes went.
    Bytes(usize),
    /// It must be waited for.
    Wait,
    /// Nobody receives any more.
    Closed,
}

impl Inbox {
    /// An empty one.
    pub fn new(left: &Arc<Left>, takes: usize) -> Arc<Inbox> {
        let (content, changes) = (Spin::default(), Default::default());
        let (takes, asks_who, is_inline) = (AtomicUsize::new(takes), Default::default(), Default::default());
        Arc::new(Inbox { content, changes, takes, asks_who, is_inline, left: left.clone() })
    }

    /// How many bytes more may come of one who may have so many on their way.
    fn room(&self, content: &Content, sends: usize) -> usize {
        (self.takes.load(Ordering::Relaxed) + sends).saturating_sub(content.bytes)
    }

    pub(crate) fn comes(&self) {
        self.changes[0].fetch_add(1, Ordering::SeqCst);
    }

    /// There may be room now.
    pub fn goes(&self) {
        self.changes[1].fetch_add(1, Ordering::SeqCst);
    }

    /// Whatever somebody waits for, it hears of this.
    fn ends(&self) {
        self.changes[2].fetch_add(1, Ordering::SeqCst);
    }

    /// Takes up to `most` bytes: of a stream from as many packets of one sender as it takes, up to one with files; of others from one. `None`: there is
    /// nothing yet. With `peek` it stays. A read ends before the urgent byte, and one that begins there goes past it.
    pub fn receive(&self, most: usize, stream: bool, peek: bool) -> Option<Received> {
        let mut received = Received::nothing();
        let is_inline = self.is_inline.load(Ordering::Relaxed);
        let found = self.content.with(|content| {
            let passes = content.is_at_mark() && most > 0;
            if passes && !peek && is_inline {
                content.mark = None;
            } else if passes && !peek {
                content.pass_mark();
            }
            let skip = usize::from(passes && peek && !is_inline);
            let ahead = content.mark.as_ref().filter(|_| !passes).map(|mark| mark.before);
            let most = ahead.map_or(most, |before| most.min(before));
            // A packet that is no more than the urgent byte is looked over.
            let over = usize::from(
                skip > 0 && content.packets.front().is_some_and(|packet| packet.bytes.len() == skip),
            );
            if content.packets.len() <= over {
                return content.ended || content.closed;
            }
            if peek {
                let packet = &content.packets[over];
                let skip = skip - over;
                received.whole = packet.bytes.len() - skip;
                received.bytes = first(&packet.bytes, most + skip).split_off(skip);
                received.from = packet.from.clone();
                received.files.clone_from(&packet.files);
                if !packet.files.is_empty() {
                    self.left.flights.take();
                }
                return true;
            }
            let mut first = true;
            while let Some(packet) = content.packets.front_mut() {
                if !first
                    && (received.bytes.len() == most
                        || !received.files.is_empty()
                        || received.from.who != packet.from.who)
                {
                    break;
                }
                let take = packet.bytes.len().min(most - received.bytes.len());
                if first {
                    received.whole = packet.bytes.len();
                    received.from = packet.from.clone();
                }
                if !packet.files.is_empty() {
                    received.files = core::mem::take(&mut packet.files);
                    self.left.flights.take();
                }
                let before = received.bytes.len();
                received.bytes.resize(before + take, 0);
                take_first(&mut packet.bytes, &mut received.bytes[before..]);
                content.bytes -= take;
                first = false;
                let done = packet.bytes.is_empty() || !stream;
                if done {
                    let left = packet.bytes.len();
                    content.bytes -= left + OVERHEAD;
                    content.packets.pop_front();
                }
                if !done || !stream {
                    break;
                }
            }
            if let Some(mark) = &mut content.mark {
                mark.before -= received.bytes.len();
                received.is_at_mark = mark.before == 0;
            }
            true
        });
        if found && !peek {
            self.goes();
        }
        found.then_some(received)
    }

    /// Puts a packet in, whole; of a stream as much as there is room for, and nothing behind the end.
    pub fn send(
        &self,
        bytes: &[u8],
        from: &Sender,
        files: Vec<Arc<Open>>,
        stream: bool,
        sends: usize,
    ) -> Sent {
        self.send_as(bytes, from, files, (stream, false), sends)
    }

    /// The same; of a stream the last byte may be urgent, once it goes in. Another before it is as all others now; but who has read all that came before that does
    /// not read it.
    pub fn send_as(
        &self,
        bytes: &[u8],
        from: &Sender,
        files: Vec<Arc<Open>>,
        (stream, is_urgent): (bool, bool),
        sends: usize,
    ) -> Sent {
        let sent = self.content.with(|content| {
            if content.closed || content.ended {
                return Sent::Closed;
            }
            let room = self.room(content, sends);
            let fits = if stream { room.saturating_sub(OVERHEAD).min(bytes.len()) } else { bytes.len() };
            // What may be on its way is reckoned before, so that one packet may be more than is left; where it comes it must fit.
            let needs = if sends > 0 { 1 } else { bytes.len() + OVERHEAD };
            let is_full =
                if stream { fits == 0 && !bytes.is_empty() } else { room < needs && content.bytes > 0 };
            if is_full {
                return Sent::Wait;
            }
            let is_urgent = is_urgent && fits == bytes.len();
            if is_urgent && content.is_at_mark() && !self.is_inline.load(Ordering::Relaxed) {
                content.pass_mark();
            }
            content.bytes += fits;
            match content.packets.back_mut() {
                // Small pieces of a stream become one.
                Some(last)
                    if stream
                        && files.is_empty()
                        && last.files.is_empty()
                        && last.from.who == from.who
                        && last.bytes.len() < ROOM / 4 =>
                {
                    last.bytes.extend(&bytes[..fits]);
                }
                _ => {
                    content.bytes += OVERHEAD;
                    let bytes = VecDeque::from(bytes[..fits].to_vec());
                    content.packets.push_back(Packet { bytes, from: from.clone(), files });
                }
            }
            if is_urgent {
                content.mark = Some(Mark { before: content.all() - 1, is_taken: false });
            }
            Sent::Bytes(fits)
        });
        if let Sent::Bytes(_) = sent {
            self.comes();
        }
        sent
    }

    /// Whether a read would not wait; whether nobody sends any more; whether nobody receives any more.
    pub fn state(&self) -> (bool, bool, bool) {
        self.content.with(|content| {
            let is_urgent = content.is_at_mark() && !self.is_inline.load(Ordering::Relaxed);
            let is_alone = is_urgent && content.all() == 1;
            let some = !content.packets.is_empty() && !is_alone;
            (some || content.ended || content.closed, content.ended, content.closed)
        })
    }

    /// Whether there is room for one who may have so many bytes on their way.
    pub fn has_room(&self, sends: usize) -> bool {
        self.content.with(|content| self.room(content, sends) > OVERHEAD)
    }

    /// Bytes in it: all of a stream, up to the urgent byte if that is read beside the others, or of the next packet.
    pub fn len(&self, stream: bool) -> usize {
        self.content.with(|content| match &content.mark {
            Some(mark) if !self.is_inline.load(Ordering::Relaxed) => mark.before,
            _ if stream => content.all(),
            _ => content.packets.front().map_or(0, |packet| packet.bytes.len()),
        })
    }

    /// The urgent byte, if nobody has taken it; it stays there to be looked at, or is taken.
    pub fn urgent(&self, stays: bool) -> Option<u8> {
        if self.is_inline.load(Ordering::Relaxed) {
            return None;
        }
        self.content.with(|content| {
            let mark = content.mark.as_mut().filter(|mark| !mark.is_taken)?;
            mark.is_taken = !stays;
            let mut place = mark.before;
            content.packets.iter().find_map(|packet| {
                let byte = packet.bytes.get(place).copied();
                place = place.wrapping_sub(packet.bytes.len());
                byte
            })
        })
    }

    /// Whether there is an urgent byte that nobody has taken or read; and whether it comes next.
    pub fn urgency(&self) -> (bool, bool) {
        self.content
            .with(|content| (content.mark.as_ref().is_some_and(|mark| !mark.is_taken), content.is_at_mark()))
    }

    /// Nobody sends any more: whoever did broke off, which is said once what came before is read.
    pub fn break_off(&self, said: Errno) {
        self.content.with(|content| (content.ended, content.broken) = (true, Broken::Yes(said)));
        self.ends();
    }

    /// Whether whoever sent here broke off.
    pub fn broken(&self) -> Broken {
        self.content.with(|content| content.broken)
    }

    /// What is to be said of that now; with `read`, only if nothing is left to be read, and not if it was sent to one that had said all: then it reads the end.
    pub fn take_break(&self, read: bool) -> Option<Errno> {
        self.content.with(|content| match content.broken {
            Broken::Yes(said) if !read || said == Errno::ECONNRESET && content.packets.is_empty() => {
                content.broken = Broken::Said;
                Some(said)
            }
            _ => None,
        })
    }

    /// Whether something is left to be read.
    pub(crate) fn is_left(&self) -> bool {
        self.content.with(|content| !content.packets.is_empty())
    }

    /// Nobody sends any more.
    pub fn end(&self) {
        self.content.with(|content| content.ended = true);
        self.ends();
    }

    /// Nobody receives any more but what is there.
    pub fn close_behind(&self) {
        self.content.with(|content| content.closed = true);
        self.ends();
    }

    /// Bytes that it is counted with.
    #[cfg(test)]
    pub(crate) fn counted(&self) -> usize {
        self.content.with(|content| content.bytes)
    }

    /// Goes through the open files that lie in it.
    pub(crate) fn each_file(&self, each: &mut dyn FnMut(&Arc<Open>)) {
        self.content.with(|content| content.packets.iter().flat_map(|packet| &packet.files).for_each(each));
    }

    /// Whether its socket is gone.
    pub fn is_gone(&self) -> bool {
        self.content.with(|content| content.gone)
    }

    /// Nobody receives any more; what was there is gone, but for files that were on their way.
    #[must_use = "files that lie in each other are closed one after the other"]
    pub fn close(&self) -> Vec<Arc<Open>> {
        let gone = self.content.with(|content| {
            (content.closed, content.gone) = (true, true);
            (content.bytes, content.mark) = (0, None);
            core::mem::take(&mut content.packets)
        });
        self.ends();
        gone.into_iter().flat_map(|packet| packet.files).collect()
    }
}
