//! At start: the core carves its bookkeeping out of the memory that the platform hands over.

use core::cmp::Reverse;

use crate::addr::{FrameNumber, MAX_NODES, NodeId, PAGE_SIZE, Region};
use crate::config::Config;
use crate::cpu::{CpuId, MAX_CPUS};
use crate::error::Error;
use crate::frame::{Zone, set_watermarks};
use crate::group::Groups;
use crate::kind::Kind;
use crate::memmap::{FrameTable, MAX_ORDER, SECTION, Sections, Slot};
use crate::percpu::{CpuSlot, ZoneLists};
use crate::platform::Platform;
use crate::policy::Free;
use crate::reclaim::{Bucket, GroupLists, Node, PER_BUCKET, Shadows};
use crate::root::Root;
use crate::space::Parked;
use crate::zeroed::Zeroed;

/// The most regions, each of which becomes a zone, those that may come later too.
const MAX_ZONES: usize = 255;

/// What was carved.
pub(crate) struct Carved<'p> {
    pub frames: FrameTable<'p>,
    pub zones: &'p [&'p Zone],
    pub cpus: &'p [&'p CpuSlot],
    /// Of each CPU, where operations park what they take out; empty where they do not.
    pub parked: &'p [&'p Parked],
    /// By node; `None` for a node with neither memory nor CPUs is never asked for.
    pub nodes: &'p [Option<&'p Node>; MAX_NODES],
    /// For each node the zones in the order in which an allocation tries them.
    pub fallback: &'p [u8],
    pub root: &'p Root,
    pub shadows: Shadows<'p>,
    pub groups: Groups<'p>,
    /// Of groups, by node; empty where there are none.
    pub group_lists: &'p [Option<GroupLists<'p>>],
    pub reserved: u64,
}

/// Cuts zeroed pieces off the front of a region.
struct Carver<'a, P: Platform> {
    p: &'a P,
    next: u64,
    end: u64,
}

impl<'a, P: Platform> Carver<'a, P> {
    fn carve<'p, T>(&mut self, count: usize) -> Result<&'p mut [core::mem::MaybeUninit<T>], Error> {
        let align = align_of::<T>() as u64;
        let start = self.next.next_multiple_of(align);
        let bytes = (size_of::<T>() as u64).checked_mul(count as u64).ok_or(Error::TooLittleMemory)?;
        let end = start.checked_add(bytes).ok_or(Error::TooLittleMemory)?;
        if end > self.end {
            return Err(Error::TooLittleMemory);
        }
        self.next = end;
        let at = self.p.direct(crate::addr::PhysAddr(start)).cast::<core::mem::MaybeUninit<T>>();
        // SAFETY: the platform handed this memory over and maps it (`Platform`'s contract); the cursor only
        // moves forward, so the piece is nobody else's; it is aligned as T and zeroed here.
        unsafe {
            core::ptr::write_bytes(at.cast::<u8>(), 0, bytes as usize);
            Ok(core::slice::from_raw_parts_mut(at, count))
        }
    }

    /// A piece of a type for which all zeros is a value.
    fn zeroed<'p, T: Zeroed>(&mut self, count: usize) -> Result<&'p [T], Error> {
        let piece = self.carve::<T>(count)?;
        // SAFETY: the piece is zeroed, and zeros are a valid T (`Zeroed`).
        Ok(unsafe { &*(core::ptr::from_mut(piece) as *const [T]) })
    }

    fn filled<'p, T: Copy>(&mut self, count: usize, value: impl Fn(usize) -> T) -> Result<&'p [T], Error> {
        let piece = self.carve::<T>(count)?;
        for (i, slot) in piece.iter_mut().enumerate() {
            slot.write(value(i));
        }
        // SAFETY: every element was just written.
        Ok(unsafe { &*(core::ptr::from_mut(piece) as *const [T]) })
    }
}

/// The regions that may come later.
fn later<P: Platform>(p: &P) -> impl Iterator<Item = Region> + use<'_, P> {
    (0..=MAX_ZONES).map_while(|nth| p.later_region(nth))
}

/// Whether regions are sorted and disjoint, and none is empty or reaches too far.
fn are_good(mut regions: impl Iterator<Item = Region>) -> bool {
    let place = |end: u64, region: Region| {
        let start = u64::from(region.start.0);
        let after = start + u64::from(region.frames);
        let good = region.frames > 0 && start >= end && after <= u64::from(FrameNumber::END.0);
        good.then_some(after)
    };
    regions.try_fold(0, place).is_some()
}

fn check<P: Platform>(p: &P, regions: &[Region]) -> Result<(), Error> {
    if regions.is_empty() {
        return Err(Error::TooLittleMemory);
    }
    let whole = |r: Region| r.start.0.is_multiple_of(SECTION) && r.frames.is_multiple_of(SECTION);
    if !are_good(regions.iter().copied()) || !are_good(later(p)) || !later(p).all(whole) {
        return Err(Error::BadRegion);
    }
    let apart = |a: &Region, b: Region| a.start >= b.start.add(b.frames) || b.start >= a.start.add(a.frames);
    if !later(p).all(|b| regions.iter().all(|a| apart(a, b))) {
        return Err(Error::BadRegion);
    }
    let cpus = p.possible_cpus();
    let of_cpus = (0..cpus.min(MAX_CPUS)).map(|c| p.node_of(CpuId(c as u16)));
    let nodes = regions.iter().copied().chain(later(p)).map(|r| r.node).chain(of_cpus);
    if cpus == 0
        || cpus > MAX_CPUS
        || regions.len() + later(p).count() > MAX_ZONES
        || nodes.max() >= Some(NodeId(MAX_NODES as u16))
    {
        return Err(Error::BadTopology);
    }
    Ok(())
}

/// Carves, and hands all other frames to the buddy allocator's zones (still empty: see [`fill`]).
pub(crate) fn carve<'p, P: Platform>(
    p: &'p P,
    regions: &[Region],
    config: &Config,
) -> Result<Carved<'p>, Error> {
    check(p, regions)?;
    // Of one that comes later nothing is touched, and nothing of the core's lies there.
    let all = || regions.iter().copied().chain(later(p));
    let zone_count = all().count();
    let end_frame = all().map(|r| r.start.0 + r.frames).max().unwrap_or(0);
    // One carver at a time walks the regions: the bookkeeping of a region lies in the region, so that it is
    // local to those who allocate there. Later pieces go where the carver of their node stands.
    let mut at = [0u64; MAX_ZONES];
    for (next, region) in at.iter_mut().zip(regions) {
        *next = region.start.phys().0;
    }
    let with = |index: usize, at: &[u64; MAX_ZONES]| -> Carver<'p, P> {
        let region = &regions[index];
        Carver { p, next: at[index], end: region.start.phys().0 + u64::from(region.frames) * PAGE_SIZE }
    };
    let place = |node: NodeId| regions.iter().position(|r| r.node == node).unwrap_or(0);

    let count = end_frame.div_ceil(SECTION);
    let frames = FrameTable(carve_sections(regions, count, &with, &mut at)?);
    let charged =
        if config.groups > 0 { Some(carve_sections(regions, count, &with, &mut at)?) } else { None };

    let mut nodes = [None::<&'p Node>; MAX_NODES];
    let mut zones = [None::<&'p Zone>; MAX_ZONES];
    for (i, region) in all().enumerate() {
        let index = if i < regions.len() { i } else { place(region.node) };
        let mut carver = with(index, &at);
        let piece = carver.carve::<Zone>(1)?;
        let zone = piece[0].as_mut_ptr();
        // SAFETY: zeroed memory of the right size, nobody else's; the atomics inside are valid as zeros and
        // the plain fields are written before anybody reads them.
        let zone = unsafe {
            (&raw mut (*zone).start).write(region.start);
            (&raw mut (*zone).end).write(region.start.add(region.frames));
            (&raw mut (*zone).node).write(region.node);
            (&raw mut (*zone).index).write(i as u16);
            &*zone
        };
        zone.init(p);
        if i >= regions.len() {
            zone.begin_absent(p);
        }
        match config.page_lists {
            Some(limits) => zone.limits.choose(p, limits),
            None => {
                let cpus = (0..p.possible_cpus()).map(|c| CpuId(c as u16));
                let local = cpus.filter(|&c| p.node_of(c) == region.node).count() as u32;
                // Memory without CPUs is everybody's.
                zone.limits.share(p, if local == 0 { p.possible_cpus() } else { local });
            }
        }
        zones[i] = Some(zone);
        at[index] = carver.next;
    }
    let cpu_count = p.possible_cpus() as usize;
    for cpu in (0..cpu_count).map(|c| CpuId(c as u16)) {
        let node = p.node_of(cpu);
        let mut carver = with(place(node), &at);
        if nodes[node.0 as usize].is_none() {
            nodes[node.0 as usize] = Some(&carver.zeroed::<Node>(1)?[0]);
        }
        at[place(node)] = carver.next;
    }
    for region in all() {
        let slot = &mut nodes[region.node.0 as usize];
        if slot.is_none() {
            let index = place(region.node);
            let mut carver = with(index, &at);
            *slot = Some(&carver.zeroed::<Node>(1)?[0]);
            at[index] = carver.next;
        }
    }
    let mut first = with(0, &at);
    let cpus = first.carve::<&'p CpuSlot>(cpu_count)?;
    let parked = first.carve::<&'p Parked>(if config.policy.free == Free::Sweep { cpu_count } else { 0 })?;
    at[0] = first.next;
    for (c, place_of_slot) in cpus.iter_mut().enumerate() {
        let index = place(p.node_of(CpuId(c as u16)));
        let mut carver = with(index, &at);
        let slot = &carver.zeroed::<CpuSlot>(1)?[0];
        slot.pages.init(p, carver.zeroed::<ZoneLists>(zone_count)?);
        place_of_slot.write(slot);
        if let Some(place) = parked.get_mut(c) {
            place.write(&carver.zeroed(1)?[0]);
        }
        at[index] = carver.next;
    }
    let mut group_lists = [None; MAX_NODES];
    let mut groups = Groups::NONE;
    if let Some(pages) = charged {
        for (node, lists) in group_lists.iter_mut().enumerate().filter(|&(node, _)| nodes[node].is_some()) {
            let index = place(NodeId(node as u16));
            let mut carver = with(index, &at);
            let (of, turn) = (carver.zeroed(config.groups as usize)?, &carver.zeroed(1)?[0]);
            *lists = Some(GroupLists { of, turn });
            at[index] = carver.next;
        }
        let mut first = with(0, &at);
        groups = Groups {
            states: first.zeroed(config.groups as usize)?,
            stocks: first.zeroed(cpu_count)?,
            members: Some(&first.zeroed(1)?[0]),
            pages,
        };
        at[0] = first.next;
    }
    let mut parts: [&'p [Bucket]; MAX_ZONES] = [&[]; MAX_ZONES];
    let with_shadows = if config.shadows { regions.len() } else { 0 };
    for (i, region) in regions[..with_shadows].iter().enumerate() {
        let mut carver = with(i, &at);
        parts[i] = carver.zeroed(region.frames.div_ceil(PER_BUCKET as u32) as usize)?;
        at[i] = carver.next;
    }
    let mut first = with(0, &at);
    let parts = first.filled(with_shadows, |i| parts[i])?;
    let shadows = Shadows::new(parts, regions.iter().map(|r| u64::from(r.frames)).sum());
    let zone_list = first.filled(zone_count, |i| zones[i].expect("written above"))?;
    let node_list = &first.filled(1, |_| nodes)?[0];
    let group_lists =
        first.filled(if config.groups > 0 { MAX_NODES } else { 0 }, |node| group_lists[node])?;
    let root = &first.zeroed::<Root>(1)?[0];
    let order = first.carve::<u8>(MAX_NODES * zone_count)?;
    at[0] = first.next;
    for (node, row) in order.chunks_exact_mut(zone_count).enumerate() {
        for (i, slot) in row.iter_mut().enumerate() {
            slot.write(i as u8);
        }
        // SAFETY: the row was just written.
        let row = unsafe { &mut *(core::ptr::from_mut(row) as *mut [u8]) };
        if nodes[node].is_some() {
            let far = |zone: &Zone| p.distance(NodeId(node as u16), zone.node);
            // High memory first: low frames are the only ones that some devices reach.
            row.sort_unstable_by_key(|&z| {
                (far(zone_list[usize::from(z)]), Reverse(zone_list[usize::from(z)].start))
            });
        }
    }
    let mut reserved = 0;
    for (i, region) in regions.iter().enumerate() {
        let used = at[i].div_ceil(PAGE_SIZE) - u64::from(region.start.0);
        if used + 8 > u64::from(region.frames) {
            return Err(Error::TooLittleMemory);
        }
        reserved += used;
        mark(p, frames, i, region, used as u32);
    }
    // SAFETY: all elements were written.
    let (cpus, parked, fallback) = unsafe {
        (
            &*(core::ptr::from_mut(cpus) as *const [&'p CpuSlot]),
            &*(core::ptr::from_mut(parked) as *const [&'p Parked]),
            &*(core::ptr::from_mut(order) as *const [u8]),
        )
    };
    Ok(Carved {
        frames,
        zones: zone_list,
        cpus,
        parked,
        nodes: node_list,
        fallback,
        root,
        shadows,
        groups,
        group_lists,
        reserved,
    })
}

/// For each frame of each region a `T`, and the slots for those that come later.
fn carve_sections<'p, P: Platform + 'p, T: Zeroed>(
    regions: &[Region],
    count: u32,
    with: &impl Fn(usize, &[u64; MAX_ZONES]) -> Carver<'p, P>,
    at: &mut [u64; MAX_ZONES],
) -> Result<Sections<'p, T>, Error> {
    let mut first = with(0, at);
    let sections = Sections::new(first.zeroed::<Slot<T>>(count as usize)?);
    at[0] = first.next;
    for (i, region) in regions.iter().enumerate() {
        let mut carver = with(i, at);
        for section in region.start.0 / SECTION..=(region.start.0 + region.frames - 1) / SECTION {
            let n = FrameNumber(section * SECTION);
            if sections.find(n).is_none() {
                sections.put(n, carver.zeroed::<T>(SECTION as usize)?);
            }
        }
        at[i] = carver.next;
    }
    Ok(sections)
}

/// Gives each frame of a region its place; the carved ones stay reserved.
fn mark<P: Platform>(p: &P, frames: FrameTable<'_>, zone: usize, region: &Region, used: u32) {
    for i in 0..region.frames {
        let kind = if i < used { Kind::Reserved } else { Kind::Tail };
        frames.get(region.start.add(i)).set_place(p, (zone, region.node), kind);
    }
}

/// Frees every frame that was not carved, in the largest blocks that fit.
pub(crate) fn fill<P: Platform>(mm: &crate::Manager<'_, P>) {
    let p = mm.platform();
    set_watermarks(mm);
    for zone in mm.zones().filter(|zone| zone.has_memory(p)) {
        let guard = zone.lock(mm);
        let mut n = zone.start;
        while n < zone.end {
            if mm.memmap().get(n).kind(p) == Kind::Reserved {
                n = n.add(1);
                continue;
            }
            let room = zone.end.0 - n.0;
            let order = n.0.trailing_zeros().min(room.ilog2()).min(MAX_ORDER.into()) as u8;
            guard.put(n, order);
            n = n.add(1 << order);
        }
    }
}
