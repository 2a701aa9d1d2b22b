//! One event: what it says, and how it is written.

use super::super::error::Fault;
use super::super::varint::{self, Varint};

/// Page numbers are below this: addresses have 64 bits, and pages 12 of them.
const PAGES_END: u64 = 1 << 52;

/// A range of pages of a program's address space.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Pages {
    /// The first.
    pub start: u64,
    /// How many; not 0.
    pub count: u64,
}

impl Pages {
    /// The range, unless it is empty or ends beyond all addresses.
    #[must_use]
    pub fn new(start: u64, count: u64) -> Option<Pages> {
        (count > 0 && start.checked_add(count)? <= PAGES_END).then_some(Pages { start, count })
    }

    /// The pages that hold the bytes from `address` on.
    #[must_use]
    pub fn of_bytes(address: u64, bytes: u64) -> Option<Pages> {
        let last = address.checked_add(bytes.checked_sub(1)?)?;
        Pages::new(address >> 12, (last >> 12) - (address >> 12) + 1)
    }

    /// One past the last.
    #[must_use]
    pub fn end(self) -> u64 {
        self.start + self.count
    }
}

/// What a program may do with pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Rights {
    /// Read.
    pub read: bool,
    /// Write.
    pub write: bool,
    /// Execute.
    pub execute: bool,
}

impl Rights {
    /// From the bits of `PROT_READ` (1), `PROT_WRITE` (2) and `PROT_EXEC` (4); others are left out.
    #[must_use]
    pub const fn from_bits(bits: u64) -> Rights {
        Rights { read: bits & 1 != 0, write: bits & 2 != 0, execute: bits & 4 != 0 }
    }

    /// The same bits.
    #[must_use]
    pub const fn bits(self) -> u64 {
        self.read as u64 | (self.write as u64) << 1 | (self.execute as u64) << 2
    }
}

/// What a mapping shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Backing {
    /// Zeros, the space's own.
    Anonymous,
    /// A file, copied where it is written.
    Private {
        /// Its number: how many [`What::File`] were before its own.
        file: u32,
        /// Its first page that is shown.
        offset: u64,
    },
    /// A file, written for all who map it. Shared anonymous memory is a file without a name.
    Shared {
        /// Its number.
        file: u32,
        /// Its first page that is shown.
        offset: u64,
    },
}

/// What is known of a system call.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Call {
    /// How long it took, in nanoseconds; 0 if that is not known.
    pub took: u64,
    /// Who asked for it: 0 if that is not known, or 1 more than the number of [`What::Stack`] before its own.
    pub stack: u32,
}

/// Who was interrupted by a shootdown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Victim {
    /// Nobody knows, or a thread that is not recorded.
    Other,
    /// A CPU that had nothing to do.
    Idle,
    /// A CPU that had left the space before, of which the kernel had not taken note.
    Left,
    /// A recorded thread.
    Thread(u32),
}

/// What happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum What<'a> {
    /// The thread has this name from now on.
    Name(&'a str),
    /// A file is mapped from now on: the next number is its own.
    File(&'a str),
    /// A call stack, innermost function first, separated by `;`: the next number is its own.
    Stack(&'a str),
    /// The thread begins. Threads are numbered in the order of their beginnings.
    Start {
        /// Who made it; itself if that was before the recording.
        by: u32,
        /// It lives in its maker's space; otherwise in a copy of it (fork), or, if it made itself, in an empty one.
        shares: bool,
        /// The call that made it.
        call: Call,
    },
    /// It runs another program from now on, in a space of its own with nothing mapped.
    Exec(&'a str),
    /// It has ended.
    End,
    /// It was on no CPU until now: it had nothing to do, or waited for somebody.
    Sleep {
        /// Nanoseconds until it could go on, which is less than it was away if it then waited for a CPU that another recorded thread
        /// had; 0 if that is all it did.
        ns: u64,
    },
    /// It has waited for the end of a thread, or of the process whose first thread that is.
    Join(u32),
    /// It mapped pages; what was there before is gone.
    Map {
        /// Which.
        pages: Pages,
        /// With which rights.
        rights: Rights,
        /// What they show.
        backing: Backing,
        /// They were touched at once (`MAP_POPULATE`).
        populate: bool,
        /// The call.
        call: Call,
    },
    /// It unmapped pages.
    Unmap {
        /// Which.
        pages: Pages,
        /// The call.
        call: Call,
    },
    /// It changed rights.
    Protect {
        /// Of which pages.
        pages: Pages,
        /// What they are now.
        rights: Rights,
        /// The call.
        call: Call,
    },
    /// It gave advice.
    Advise {
        /// On which pages.
        pages: Pages,
        /// The number that Linux has for it, such as 4 for `MADV_DONTNEED`.
        advice: u32,
        /// The call.
        call: Call,
    },
    /// It moved or resized a mapping.
    Move {
        /// From.
        from: Pages,
        /// To.
        to: Pages,
        /// The call.
        call: Call,
    },
    /// A page fault.
    Fault {
        /// At which page.
        page: u64,
        /// It wrote.
        write: bool,
    },
    /// So many accesses to a page.
    Access {
        /// Which page.
        page: u64,
        /// Reads.
        reads: u32,
        /// Writes.
        writes: u32,
    },
    /// The kernel interrupted the event's CPU to flush, for the event's thread.
    Shootdown {
        /// Who ran there.
        victim: Victim,
        /// How many pages were flushed; 0 if all, or if that is not known.
        pages: u64,
    },
    /// Here events are missing.
    Lost {
        /// How many.
        count: u64,
    },
}

impl What<'_> {
    /// How long it took, in nanoseconds, beside what the thread ran before it: a sleep, or a call of which that is known.
    pub fn took(&self) -> u64 {
        match *self {
            What::Sleep { ns } => ns,
            What::Map { call, .. }
            | What::Unmap { call, .. }
            | What::Protect { call, .. }
            | What::Advise { call, .. }
            | What::Move { call, .. } => call.took,
            _ => 0,
        }
    }
}

/// One event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Event<'a> {
    /// When, in nanoseconds from the beginning; for a call, when it ended.
    pub at: u64,
    /// The thread, counted from 0.
    pub thread: u32,
    /// The CPU that it was on.
    pub cpu: u16,
    /// How long the thread ran on a CPU since its event before, calls not included, in nanoseconds.
    pub ran: u64,
    /// What happened.
    pub what: What<'a>,
}

/// What an event is written relative to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Context {
    pub at: u64,
    pub thread: u32,
    pub cpu: u16,
}

const NEW_THREAD: u8 = 1 << 5;
const NEW_CPU: u8 = 1 << 6;
const KIND: u8 = NEW_THREAD - 1;

/// [`Victim::Left`]: more than the number of any thread, so that older recordings mean what they did.
const LEFT: u64 = 1 << 33;
const ANONYMOUS: u64 = 0;
const PRIVATE: u64 = 1;
const SHARED: u64 = 2;

impl<'a> What<'a> {
    const fn kind(&self) -> u8 {
        match self {
            What::Name(_) => 0,
            What::File(_) => 1,
            What::Stack(_) => 2,
            What::Start { .. } => 3,
            What::Exec(_) => 4,
            What::End => 5,
            What::Sleep { .. } => 6,
            What::Join(_) => 7,
            What::Map { .. } => 8,
            What::Unmap { .. } => 9,
            What::Protect { .. } => 10,
            What::Advise { .. } => 11,
            What::Move { .. } => 12,
            What::Fault { .. } => 13,
            What::Access { .. } => 14,
            What::Shootdown { .. } => 15,
            What::Lost { .. } => 16,
        }
    }

    fn write(&self, put: &mut impl FnMut(&[u8])) {
        let mut number = |value: u64| put(Varint::new(value).bytes());
        let call = |call: Call, number: &mut dyn FnMut(u64)| {
            number(call.took);
            number(call.stack.into());
        };
        match *self {
            What::Name(text) | What::File(text) | What::Stack(text) | What::Exec(text) => {
                number(text.len() as u64);
                put(text.as_bytes());
            }
            What::Start { by, shares, call: made } => {
                number(u64::from(by) << 1 | u64::from(shares));
                call(made, &mut number);
            }
            What::End => {}
            What::Sleep { ns } => number(ns),
            What::Join(thread) => number(thread.into()),
            What::Map { pages, rights, backing, populate, call: made } => {
                number(pages.start);
                number(pages.count);
                let (shape, file) = match backing {
                    Backing::Anonymous => (ANONYMOUS, None),
                    Backing::Private { file, offset } => (PRIVATE, Some((file, offset))),
                    Backing::Shared { file, offset } => (SHARED, Some((file, offset))),
                };
                number(shape << 4 | u64::from(populate) << 3 | rights.bits());
                if let Some((file, offset)) = file {
                    number(file.into());
                    number(offset);
                }
                call(made, &mut number);
            }
            What::Unmap { pages, call: made } => {
                number(pages.start);
                number(pages.count);
                call(made, &mut number);
            }
            What::Protect { pages, rights, call: made } => {
                number(pages.start);
                number(pages.count);
                number(rights.bits());
                call(made, &mut number);
            }
            What::Advise { pages, advice, call: made } => {
                number(pages.start);
                number(pages.count);
                number(advice.into());
                call(made, &mut number);
            }
            What::Move { from, to, call: made } => {
                for value in [from.start, from.count, to.start, to.count] {
                    number(value);
                }
                call(made, &mut number);
            }
            What::Fault { page, write } => number(page << 1 | u64::from(write)),
            What::Access { page, reads, writes } => {
                number(page);
                number(reads.into());
                number(writes.into());
            }
            What::Shootdown { victim, pages } => {
                number(match victim {
                    Victim::Other => 0,
                    Victim::Idle => 1,
                    Victim::Left => LEFT,
                    Victim::Thread(thread) => u64::from(thread) + 2,
                });
                number(pages);
            }
            What::Lost { count } => number(count),
        }
    }

    fn read(kind: u8, input: &mut Input<'a, '_>) -> Result<Self, Fault> {
        Ok(match kind {
            0 => What::Name(input.text()?),
            1 => What::File(input.text()?),
            2 => What::Stack(input.text()?),
            3 => {
                let made = input.number()?;
                let by = u32::try_from(made >> 1).map_err(|_| Fault::Thread)?;
                What::Start { by, shares: made & 1 != 0, call: input.call()? }
            }
            4 => What::Exec(input.text()?),
            5 => What::End,
            6 => What::Sleep { ns: input.number()? },
            7 => What::Join(input.small()?),
            8 => {
                let (pages, shape) = (input.pages()?, input.number()?);
                let backing = match shape >> 4 {
                    ANONYMOUS => Backing::Anonymous,
                    PRIVATE => Backing::Private { file: input.small()?, offset: input.page()? },
                    SHARED => Backing::Shared { file: input.small()?, offset: input.page()? },
                    _ => return Err(Fault::Event),
                };
                let (rights, populate) = (Rights::from_bits(shape), shape & 8 != 0);
                What::Map { pages, rights, backing, populate, call: input.call()? }
            }
            9 => What::Unmap { pages: input.pages()?, call: input.call()? },
            10 => {
                let (pages, bits) = (input.pages()?, input.number()?);
                if bits > 7 {
                    return Err(Fault::Event);
                }
                What::Protect { pages, rights: Rights::from_bits(bits), call: input.call()? }
            }
            11 => What::Advise { pages: input.pages()?, advice: input.small()?, call: input.call()? },
            12 => What::Move { from: input.pages()?, to: input.pages()?, call: input.call()? },
            13 => {
                let fault = input.number()?;
                if fault >> 1 >= PAGES_END {
                    return Err(Fault::Pages64);
                }
                What::Fault { page: fault >> 1, write: fault & 1 != 0 }
            }
            14 => What::Access { page: input.page()?, reads: input.small()?, writes: input.small()? },
            15 => {
                let victim = match input.number()? {
                    0 => Victim::Other,
                    1 => Victim::Idle,
                    LEFT => Victim::Left,
                    thread => Victim::Thread(u32::try_from(thread - 2).map_err(|_| Fault::Thread)?),
                };
                What::Shootdown { victim, pages: input.number()? }
            }
            16 => What::Lost { count: input.number()? },
            _ => return Err(Fault::Event),
        })
    }
}

impl<'a> Event<'a> {
    /// Hands the bytes of this event to `put`. Its time is not before the context's.
    pub(super) fn write(&self, context: &mut Context, put: &mut impl FnMut(&[u8])) {
        let (thread, cpu) = (self.thread != context.thread, self.cpu != context.cpu);
        let flags = if thread { NEW_THREAD } else { 0 } | if cpu { NEW_CPU } else { 0 };
        put(&[self.what.kind() | flags]);
        if thread {
            put(Varint::new(self.thread.into()).bytes());
        }
        if cpu {
            put(Varint::new(self.cpu.into()).bytes());
        }
        put(Varint::new(self.at - context.at).bytes());
        put(Varint::new(self.ran).bytes());
        self.what.write(put);
        *context = Context { at: self.at, thread: self.thread, cpu: self.cpu };
    }

    /// Reads the event at `*at` and moves `*at` behind it; on an error `*at` is near what is wrong.
    pub(super) fn read(bytes: &'a [u8], at: &mut usize, context: &mut Context) -> Result<Self, Fault> {
        let first = *bytes.get(*at).ok_or(Fault::RecordCut)?;
        if first & 0x80 != 0 {
            return Err(Fault::Event);
        }
        *at += 1;
        let mut input = Input { bytes, at };
        let mut next = *context;
        if first & NEW_THREAD != 0 {
            next.thread = input.small()?;
            if next.thread == context.thread {
                return Err(Fault::Integer);
            }
        }
        if first & NEW_CPU != 0 {
            next.cpu = u16::try_from(input.number()?).map_err(|_| Fault::Cpu)?;
            if next.cpu == context.cpu {
                return Err(Fault::Integer);
            }
        }
        next.at = context.at.checked_add(input.number()?).ok_or(Fault::Count)?;
        let ran = input.number()?;
        let what = What::read(first & KIND, &mut input)?;
        *context = next;
        Ok(Event { at: next.at, thread: next.thread, cpu: next.cpu, ran, what })
    }
}

/// Integers and texts of an event.
struct Input<'a, 'p> {
    bytes: &'a [u8],
    at: &'p mut usize,
}

impl<'a> Input<'a, '_> {
    fn number(&mut self) -> Result<u64, Fault> {
        varint::read(self.bytes, self.at)
    }

    fn small(&mut self) -> Result<u32, Fault> {
        let start = *self.at;
        u32::try_from(self.number()?).map_err(|_| {
            *self.at = start;
            Fault::Count
        })
    }

    fn page(&mut self) -> Result<u64, Fault> {
        Some(self.number()?).filter(|&page| page < PAGES_END).ok_or(Fault::Pages64)
    }

    fn pages(&mut self) -> Result<Pages, Fault> {
        Pages::new(self.number()?, self.number()?).ok_or(Fault::Pages64)
    }

    fn call(&mut self) -> Result<Call, Fault> {
        Ok(Call { took: self.number()?, stack: self.small()? })
    }

    fn text(&mut self) -> Result<&'a str, Fault> {
        let length = self.number()?;
        let rest = &self.bytes[*self.at..];
        let length = usize::try_from(length).ok().filter(|&length| length <= rest.len());
        let text = core::str::from_utf8(&rest[..length.ok_or(Fault::RecordCut)?]).map_err(|_| Fault::Text)?;
        *self.at += text.len();
        Ok(text)
    }
}
