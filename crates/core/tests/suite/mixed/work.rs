//! What is done, drawn by chance.

use std::cell::{Cell, RefCell};
use std::sync::atomic::Ordering;

use quietmm::addr::PAGE_SIZE;
use quietmm::platform::{Cpus, DeviceError};
use quietmm::{
    Advice, Backing, Error, FileId, FrameNumber, Frames, GroupId, NodeId, NodePolicy, NodeSet, Offline,
    PageNumber, PageRange, PhysAddr, Pins, Prot, SpaceId, Term, UserAccess,
};

use super::model::{Backs, is_refused};
use crate::machine::swapping::take_free;
use crate::machine::{Host, Mm, Refuse, exhaust, give_back, pages, ticks};

pub const CPUS: u16 = 3;
pub const BASE: u32 = 0xfc00;
/// Blocks that can go offline: the second of the first node, and the other node's one.
pub const BLOCKS: [u32; 2] = [BASE + 1024, BASE + 2048];
/// Where small ranges lie: `SMALL` pages each, the first over the end of a table.
pub const PLACES: [u64; 2] = [0xfff0, 0x2400];
pub const SMALL: u64 = 32;
/// Where a large page is, and a few small ones behind it; and what is touched there.
pub const LARGE_AT: u64 = 0x40000;
pub const LARGE: u64 = 520;
pub const TOUCHED: [u64; 8] = [0, 1, 100, 255, 300, 511, 512, 517];
pub const LARGE_PARTS: [(u64, u64); 8] =
    [(0, 520), (0, 512), (0, 512), (0, 1), (100, 160), (511, 2), (512, 8), (1, 511)];
pub const SPACES: usize = 4;
/// A file on a device, a memory file, and a long one on a device: pages.
pub const FILES: [u64; 3] = [40, 40, LARGE];
pub const SLOTS: u64 = 2048;
pub const ENDLESS: u64 = 1 << 40;

pub type Out = Result<u64, Error>;

/// What a write to a file leaves in the first words of its pages: of one to three.
pub fn words_of(value: u64) -> impl Iterator<Item = u64> {
    (0..1 + value % 3).map(move |nth| value | nth << 32)
}

/// A page with that word.
fn page_of(word: u64) -> [u8; PAGE_SIZE as usize] {
    let mut page = [0; PAGE_SIZE as usize];
    page[..8].copy_from_slice(&word.to_ne_bytes());
    page
}

/// Numbers by chance, the same each time.
pub struct Chance(u64);

impl Chance {
    pub fn new(seed: u64) -> Chance {
        Chance(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }

    pub fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize]
    }
}

#[derive(Clone, Copy, Debug)]
pub enum Step {
    Map(usize, PageRange, Backs, Prot),
    Unmap(usize, PageRange),
    Protect(usize, PageRange, Prot),
    Move(usize, PageRange, u64),
    Remap(usize, PageRange, PageRange),
    Advise(usize, PageRange, Advice),
    Migrate(usize, PageRange, u16),
    MigrateAll(usize, PageRange, u16),
    Lock(usize, PageRange),
    Unlock(usize, PageRange),
    Place(usize, PageRange, u64),
    Fork(usize, usize),
    Renew(usize),
    Tables(usize),
    Read(usize, u64),
    Write(usize, u64, u64),
    FileRead(usize, u64),
    FileWrite(usize, u64, u64),
    SetSize(usize, u64),
    Punch(usize, u64, u64),
    WriteBack(usize),
    Evict(usize),
    ReadAhead(usize),
    MigrateFile(usize, u16),
    Pin(usize, u64, UserAccess, Term),
    Unpin(u64),
    DeviceWrites(u64, u64),
    /// A short I/O from its start to its end.
    WritePinned(usize, u64, u64),
    Demote(u16, bool),
    Offline(usize),
    Online,
    /// A device is to go, of which some pages cannot be read, or all can.
    SwapOff(usize, bool),
    SwapOn(usize),
    Group(usize, usize),
    Limit(usize, u64),
    NewGroup(usize),
    Lazy,
    Unload,
    /// This CPU goes, and comes back.
    Away,
    /// Memory in one piece, for a moment.
    Piece,
    Squeeze,
    Hold(usize),
    Release,
    Sweep,
    WritesFail(bool),
    Drain,
    Flusher,
}

/// The machine, and what is done to it.
pub struct World<'m, 'p> {
    pub mm: &'m Mm<'p>,
    pub host: &'p Host,
    pub files: [FileId; 3],
    pub spaces: [Cell<SpaceId>; SPACES],
    pub groups: [Cell<GroupId>; 2],
    pub pins: RefCell<Vec<Pins>>,
    pub held: RefCell<Vec<Frames>>,
    pub offline: RefCell<Vec<Offline>>,
    /// Swap devices that are in use.
    pub swap: [Cell<bool>; 2],
    /// CPUs that run no program.
    pub lazy: [Cell<bool>; CPUS as usize],
}

impl World<'_, '_> {
    fn word(&self, frame: FrameNumber) -> &std::sync::atomic::AtomicU64 {
        self.host.word(frame, 0)
    }

    fn access(&self, space: usize, page: u64, write: Option<u64>) -> Out {
        let id = self.spaces[space].get();
        self.mm.space(id).switch_to()?;
        self.lazy[usize::from(self.host.this_cpu().0)].set(false);
        match write {
            Some(value) => self.host.write(self.mm, id, page, value).map(|()| value),
            None => self.host.read(self.mm, id, page),
        }
    }

    /// Ends a space: CPUs that run in it leave it, or are lazy.
    fn end(&self, id: SpaceId) {
        for cpu in 0..CPUS {
            self.host.on(cpu, || match self.mm.loaded_space() == Some(id) {
                true if cpu % 2 == 0 => _ = self.act(Step::Lazy),
                true => self.mm.unload(),
                false => {}
            });
        }
        while let Err(error) = self.mm.space(id).destroy() {
            // A CPU that stands still is about to leave it.
            assert_eq!(error, Error::Busy);
            if self.host.is_aside() {
                self.host.stop();
            } else {
                assert!(self.host.resume_any(), "nobody is about to leave the space");
            }
        }
    }

    /// Does a step as the CPU that this is.
    pub fn act(&self, step: Step) -> Out {
        let mm = self.mm;
        let space = |space: usize| mm.space(self.spaces[space].get());
        let file = |file: usize| mm.file(self.files[file]);
        let node = |node: u64| NodeSet::of(&[NodeId(node as u16)]).unwrap();
        let anywhere = NodeSet::of(&[NodeId(0), NodeId(1)]).unwrap();
        match step {
            Step::Map(id, range, backs, prot) => {
                let backing = match backs {
                    Backs::Zeros => Backing::Anonymous,
                    Backs::File(file, offset) => Backing::File { file: self.files[file], offset },
                    Backs::Private(file, offset) => Backing::Private { file: self.files[file], offset },
                };
                space(id).map(range, backing, prot)?;
            }
            Step::Unmap(id, range) => space(id).unmap(range)?,
            Step::Protect(id, range, prot) => space(id).protect(range, prot)?,
            Step::Move(id, range, to) => space(id).move_range(range, PageNumber(to))?,
            Step::Remap(id, from, to) => space(id).remap(from, to)?,
            Step::Advise(id, range, advice) => space(id).advise(range, advice)?,
            Step::Migrate(id, range, node) => _ = space(id).migrate(range, NodeId(node))?,
            Step::MigrateAll(id, range, node) => {
                _ = space(id).migrate_all(range, anywhere, NodeId(node))?;
            }
            Step::Lock(id, range) => space(id).lock(range)?,
            Step::Unlock(id, range) => space(id).unlock(range)?,
            Step::Place(id, range, which) => {
                let policy = match which {
                    0 => NodePolicy::Local,
                    1 | 2 => NodePolicy::Preferred(NodeId(which as u16 - 1)),
                    3 | 4 => NodePolicy::Bind(node(which - 3)),
                    5 => NodePolicy::Bind(anywhere),
                    _ => NodePolicy::Interleave(anywhere),
                };
                space(id).set_node_policy(range, policy)?;
            }
            Step::Fork(from, to) => {
                let child = space(from).fork()?;
                self.end(self.spaces[to].replace(child));
            }
            Step::Renew(id) => {
                let new = mm.create_space()?;
                self.end(self.spaces[id].replace(new));
            }
            Step::Tables(id) => _ = space(id).free_empty_tables()?,
            Step::Read(id, page) => return self.access(id, page, None),
            Step::Write(id, page, value) => return self.access(id, page, Some(value)),
            Step::FileRead(id, page) => {
                let mut word = [0; 8];
                let some = file(id).read(page * PAGE_SIZE, &mut word)? > 0;
                return Ok(if some { u64::from_ne_bytes(word) } else { u64::MAX });
            }
            Step::FileWrite(id, page, value) => {
                let all: Vec<u8> = words_of(value).flat_map(page_of).collect();
                let done = file(id).write(page * PAGE_SIZE, &all)? as u64;
                assert!(done.is_multiple_of(PAGE_SIZE), "whole pages are written or not");
                return Ok(done / PAGE_SIZE);
            }
            Step::SetSize(id, len) => file(id).set_size(len * PAGE_SIZE)?,
            Step::Punch(id, first, count) => file(id).punch_hole(first * PAGE_SIZE, count * PAGE_SIZE)?,
            Step::WriteBack(id) => return file(id).write_back(),
            Step::Evict(id) => return file(id).evict(0, LARGE),
            Step::ReadAhead(id) => return file(id).read_ahead(0, LARGE),
            Step::MigrateFile(id, to) => {
                _ = file(id).migrate(0, LARGE, anywhere, NodeId(to))?;
            }
            Step::Pin(id, page, access, term) => {
                let pins = space(id).pin(pages(page, 1), access, term)?;
                let seen = self.word(pins.frames()[0]).load(Ordering::SeqCst);
                self.pins.borrow_mut().push(pins);
                return Ok(seen);
            }
            Step::Unpin(nth) => {
                let len = self.pins.borrow().len() as u64;
                let pins = (len > 0).then(|| self.pins.borrow_mut().swap_remove((nth % len) as usize));
                pins.into_iter().for_each(|pins| mm.unpin(pins));
            }
            Step::DeviceWrites(nth, value) => {
                let all = self.pins.borrow();
                let Some(pins) = all.get(nth as usize % all.len().max(1)) else { return Ok(0) };
                let word = self.word(pins.frames()[0]);
                let seen = word.load(Ordering::SeqCst);
                if pins.access() == UserAccess::Write {
                    word.store(value, Ordering::SeqCst);
                }
                return Ok(seen);
            }
            Step::WritePinned(id, page, value) => {
                let pins = space(id).pin(pages(page, 1), UserAccess::Write, Term::Short)?;
                self.word(pins.frames()[0]).store(value, Ordering::SeqCst);
                mm.unpin(pins);
            }
            Step::Demote(from, on) => {
                mm.frames().set_demotion(NodeId(1 - from), None)?;
                mm.frames().set_demotion(NodeId(from), on.then_some(NodeId(1 - from)))?;
            }
            Step::Offline(nth) => {
                let Ok(leaving) = mm.frames().begin_offline(FrameNumber(BLOCKS[nth])) else { return Ok(0) };
                match mm.frames().finish_offline(leaving) {
                    Ok(block) => self.offline.borrow_mut().push(block),
                    Err(remains) => mm.frames().cancel_offline(remains.leaving),
                }
            }
            Step::Online => {
                let blocks = self.offline.take();
                blocks.into_iter().for_each(|block| mm.frames().bring_online(block));
            }
            Step::SwapOff(device, good) if self.swap[device].get() => {
                let unreadable: Refuse = |_, block| (block % 4 == 1).then_some(DeviceError::Failed);
                self.host.refuse_reads.set((!good).then_some(unreadable));
                let off = mm.swap().off(device as u32);
                self.host.refuse_reads.set(None);
                off?;
                self.swap[device].set(false);
            }
            Step::SwapOn(device) if !self.swap[device].get() => {
                mm.swap().on(device as u32, SLOTS, device as i16)?;
                self.swap[device].set(true);
            }
            Step::SwapOff(..) | Step::SwapOn(_) => {}
            Step::Group(id, group) => space(id).set_group(self.groups.get(group).map(Cell::get))?,
            Step::Limit(group, limit) => mm.group(self.groups[group].get()).set_limit(limit)?,
            Step::NewGroup(group) => {
                if mm.group(self.groups[group].get()).destroy() != Err(Error::Busy) {
                    // Where all that ended have pages still, there is none for a while.
                    let new = mm.create_group(200).ok();
                    new.into_iter().for_each(|new| self.groups[group].set(new));
                }
            }
            Step::Lazy => {
                self.lazy[usize::from(self.host.this_cpu().0)].set(true);
                mm.enter_lazy();
            }
            Step::Unload => mm.unload(),
            Step::Away => {
                mm.cpu_offline()?;
                mm.cpu_online()?;
            }
            Step::Piece => {
                let piece = mm.frames().alloc_contiguous(512, PhysAddr(u64::MAX));
                piece.into_iter().for_each(|piece| mm.frames().free_contiguous(piece));
            }
            Step::Squeeze => {
                mm.drain_lru_batches();
                give_back(mm, exhaust(mm));
            }
            Step::Hold(left) => {
                let mut all = take_free(mm);
                let some = all.split_off(all.len().saturating_sub(left));
                give_back(mm, some);
                self.held.borrow_mut().extend(all);
            }
            Step::Release => give_back(mm, self.held.take()),
            Step::Sweep => {
                mm.begin_sweep();
                ticks(mm, &[0, 1, 2]);
            }
            Step::WritesFail(fail) => self.host.fail_writes.set(fail),
            Step::Drain => mm.drain_lru_batches(),
            Step::Flusher => _ = mm.flusher(),
        }
        Ok(0)
    }

    /// There is memory again, more of it the more often it was not enough.
    pub fn relieve(&self, times: u32) {
        self.act(Step::Release).unwrap();
        self.act(Step::WritesFail(false)).unwrap();
        (0..2).for_each(|group| _ = self.act(Step::Limit(group, ENDLESS)));
        if times > 3 {
            self.act(Step::Online).unwrap();
            (0..2).for_each(|device| _ = self.act(Step::SwapOn(device)));
            self.act(Step::Drain).unwrap();
            self.act(Step::Sweep).unwrap();
        }
        if times == 7 {
            for space in 0..SPACES {
                for page in (0..SMALL).flat_map(|n| PLACES.map(|at| at + n)).chain(LARGE_AT..LARGE_AT + LARGE)
                {
                    _ = self.act(Step::Place(space, pages(page, 1), 0));
                }
            }
        }
    }

    /// The same again and again while memory is short.
    pub fn insist(&self, step: Step) -> Out {
        let mut out = self.act(step);
        // A large frame may not be had at all.
        let most = if matches!(step, Step::Advise(_, _, Advice::Collapse)) { 1 } else { 20 };
        for times in 0..most {
            if !is_refused(out) {
                break;
            }
            self.relieve(times);
            out = self.act(step);
        }
        out
    }
}

/// A range, most often a small one.
pub fn range(chance: &mut Chance, place: u64) -> PageRange {
    if place == LARGE_AT {
        let (from, count) = chance.of(&LARGE_PARTS);
        return pages(LARGE_AT + from, count);
    }
    let most = chance.of(&[3, 3, 8, SMALL]);
    let from = if chance.below(2) == 0 { 13 + chance.below(5) } else { chance.below(SMALL) };
    pages(place + from, 1 + chance.below(most.min(SMALL - from)))
}

/// The pages that are used most.
pub fn near() -> impl Iterator<Item = u64> {
    PLACES.into_iter().flat_map(|at| at + 13..at + 18).chain(LARGE_AT..LARGE_AT + 2)
}

pub fn touched(chance: &mut Chance, place: u64) -> u64 {
    match chance.below(3) {
        _ if place == LARGE_AT => LARGE_AT + chance.of(&TOUCHED),
        0 => place + chance.below(SMALL),
        _ => place + 13 + chance.below(5),
    }
}

/// Some step, most often in this space and place. Of those that others may be in the middle of: the last space comes by fork alone, and pins are
/// short.
pub fn draw(chance: &mut Chance, value: u64, (id, place): (usize, u64), beside: bool) -> Step {
    let (part, page) = (range(chance, place), touched(chance, place));
    let small = pages(part.start.0, part.pages.min(8));
    let file = chance.below(3) as usize;
    let file_page = if chance.below(8) == 0 { chance.below(40) } else { chance.below(10) };
    let node = chance.below(2) as u16;
    let prot = chance.of(&[Prot::None, Prot::Read, Prot::ReadWrite, Prot::ReadWrite, Prot::ReadWrite]);
    let to = |chance: &mut Chance| match part.start.0 >= LARGE_AT {
        true => LARGE_AT + chance.of(&TOUCHED).min(LARGE - part.pages),
        false => chance.of(&PLACES) + chance.below(SMALL - part.pages + 1),
    };
    match chance.below(100) {
        0..7 => {
            let whole = part.start.0 >= LARGE_AT;
            let of = if whole { 2 } else { chance.below(2) as usize };
            let offset = if whole { part.start.0 - LARGE_AT } else { chance.below(6) };
            let backs =
                chance.of(&[Backs::Zeros, Backs::Zeros, Backs::File(of, offset), Backs::Private(of, offset)]);
            Step::Map(id, part, backs, Prot::ReadWrite)
        }
        7..9 => Step::Unmap(id, part),
        9..11 => Step::Protect(id, part, prot),
        11..13 => Step::Move(id, part, to(chance)),
        13..15 if part.start.0 < LARGE_AT => {
            let count = 1 + chance.below(SMALL / 2);
            let to = if chance.below(2) == 0 {
                part.start.0
            } else {
                chance.of(&PLACES) + chance.below(SMALL / 2)
            };
            Step::Remap(id, part, pages(to, count))
        }
        13..17 => Step::Advise(id, part, Advice::Drop),
        17..23 => Step::Advise(id, part, Advice::Free),
        23..25 => Step::Advise(id, part, chance.of(&[Advice::Cold, Advice::PageOut, Advice::PageOut])),
        25 => Step::Advise(id, part, Advice::WillNeed),
        26..28 => Step::Advise(id, small, chance.of(&[Advice::PopulateRead, Advice::PopulateWrite])),
        28 => Step::Advise(id, pages(LARGE_AT, 512), chance.of(&[Advice::Large, Advice::Small])),
        29..31 => Step::Advise(id, pages(LARGE_AT, 512), Advice::Collapse),
        31..33 => Step::Migrate(id, part, node),
        33..35 => Step::MigrateAll(id, part, node),
        35..37 => Step::Lock(id, small),
        37 => Step::Unlock(id, part),
        38..40 => Step::Place(id, part, chance.below(7)),
        40..43 if beside => Step::Fork(id, SPACES - 1),
        40..42 => Step::Fork(id, (id + 1 + chance.below(SPACES as u64 - 1) as usize) % SPACES),
        42 => Step::Renew(id),
        43 => Step::Tables(id),
        44..50 => Step::Read(id, page),
        50..60 => Step::Write(id, page, value),
        60 => Step::FileRead(file, file_page),
        61..63 => Step::FileWrite(file, file_page, value),
        63..65 if file < 2 => Step::SetSize(file, chance.of(&[40, 40, 40, file_page])),
        63..66 => Step::Punch(file, file_page, 1 + chance.below(4)),
        66 => Step::WriteBack(file),
        67 => chance.of(&[Step::Evict(file), Step::ReadAhead(file)]),
        68 => Step::MigrateFile(file, node),
        69..71 if beside => Step::WritePinned(id, page, value),
        69 => {
            let access = chance.of(&[UserAccess::Read, UserAccess::Write]);
            Step::Pin(id, page, access, chance.of(&[Term::Short, Term::Long]))
        }
        70 => Step::WritePinned(id, page, value),
        71..73 if beside => Step::Squeeze,
        71 => Step::Unpin(value),
        72 => Step::DeviceWrites(chance.below(8), value),
        73..75 => Step::Demote(node, chance.below(3) > 0),
        75..78 => Step::Offline(chance.below(2) as usize),
        78 => Step::Online,
        79 => Step::SwapOff(chance.below(2) as usize, beside || chance.below(3) > 0),
        80..82 => Step::SwapOn(chance.below(2) as usize),
        82 => Step::Group(id, chance.below(3) as usize),
        83..85 => Step::Limit(chance.below(2) as usize, chance.of(&[20, 40, 100, ENDLESS])),
        85 => Step::NewGroup(chance.below(2) as usize),
        86 => Step::Lazy,
        87 => chance.of(&[Step::Piece, Step::Piece, if beside { Step::Piece } else { Step::Unload }]),
        88 => Step::Away,
        89..92 => Step::Squeeze,
        92..94 => Step::Hold(chance.below(60) as usize),
        94 => Step::Release,
        95 => Step::Sweep,
        96 => Step::WritesFail(chance.below(3) == 0),
        97 => Step::Flusher,
        _ => Step::Drain,
    }
}
