//! At start: the core carves its bookkeeping out of the memory that the platform hands over.

use crate::addr::{FrameNumber, NodeId, PAGE_SIZE};
use crate::config::{Config, ListLimits, Region};
use crate::cpu::{CpuId, MAX_CPUS};
use crate::error::Error;
use crate::frame::{Zone, set_watermarks, watermarks};
use crate::group::Groups;
use crate::kind::Kind;
use crate::memmap::{Frame, FrameTable, MAX_ORDER, NODE_SHIFT, SECTION, ZONE_SHIFT};
use crate::percpu::{CpuSlot, ZoneLists};
use crate::platform::Platform;
use crate::reclaim::{Bucket, GroupLists, Node, PER_BUCKET, Shadows};
use crate::root::Root;
use crate::sync::Word32;

/// The most nodes.
pub(crate) const MAX_NODES: usize = 64;
/// The most regions, each of which becomes a zone.
const MAX_ZONES: usize = 255;

/// What was carved.
pub(crate) struct Carved<'p> {
    pub frames: FrameTable<'p>,
    pub zones: &'p [&'p Zone],
    pub cpus: &'p [&'p CpuSlot],
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
    fn zeroed<'p, T: crate::zeroed::Zeroed>(&mut self, count: usize) -> Result<&'p [T], Error> {
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

fn check<P: Platform>(p: &P, regions: &[Region]) -> Result<(), Error> {
    if regions.is_empty() {
        return Err(Error::TooLittleMemory);
    }
    let mut end = 0u64;
    for region in regions {
        let start = u64::from(region.start.0);
        let (before, after) = (end, start + u64::from(region.frames));
        if region.frames == 0 || start < before || after > u64::from(FrameNumber::END.0) {
            return Err(Error::BadRegion);
        }
        end = after;
    }
    let cpus = p.possible_cpus();
    let nodes =
        regions.iter().map(|r| r.node).chain((0..cpus.min(MAX_CPUS)).map(|c| p.node_of(CpuId(c as u16))));
    if cpus == 0
        || cpus > MAX_CPUS
        || regions.len() > MAX_ZONES
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
    let end_frame = regions.last().map_or(0, |r| r.start.0 + r.frames);
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
    let mut first = with(0, &at);
    let sections = first.carve::<*const Frame>(count as usize)?;
    at[0] = first.next;
    for slot in sections.iter_mut() {
        slot.write(core::ptr::null());
    }
    for (i, region) in regions.iter().enumerate() {
        let mut carver = with(i, &at);
        for section in region.start.0 / SECTION..=(region.start.0 + region.frames - 1) / SECTION {
            let slot = &mut sections[section as usize];
            // SAFETY: written above.
            if unsafe { slot.assume_init() }.is_null() {
                slot.write(carver.zeroed::<Frame>(SECTION as usize)?.as_ptr());
            }
        }
        at[i] = carver.next;
    }
    // SAFETY: each non-null entry holds SECTION frames that stay for as long as the platform's memory.
    let frames = unsafe { FrameTable::new(sections.as_ptr().cast(), count) };

    let charged = if config.groups > 0 { Some(carve_charged(regions, count, &with, &mut at)?) } else { None };

    let mut nodes = [None::<&'p Node>; MAX_NODES];
    let mut zones = [None::<&'p Zone>; MAX_ZONES];
    let all = regions.iter().map(|r| u64::from(r.frames)).sum();
    for (i, region) in regions.iter().enumerate() {
        let mut carver = with(i, &at);
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
        let limits = || {
            let cpus = (0..p.possible_cpus()).map(|c| CpuId(c as u16));
            let local = cpus.filter(|&c| p.node_of(c) == region.node).count() as u32;
            // Memory without CPUs is everybody's.
            let cpus = if local == 0 { p.possible_cpus() } else { local };
            zone.limits.share_large(p, region.frames, cpus);
            ListLimits::linux(region.frames.into(), watermarks(config, region.frames, all).low.into(), cpus)
        };
        zone.limits.set(p, config.page_lists.unwrap_or_else(limits));
        zones[i] = Some(zone);
        at[i] = carver.next;
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
    for region in regions {
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
    at[0] = first.next;
    for (c, place_of_slot) in cpus.iter_mut().enumerate() {
        let index = place(p.node_of(CpuId(c as u16)));
        let mut carver = with(index, &at);
        let slot = &carver.zeroed::<CpuSlot>(1)?[0];
        slot.pages.init(p, carver.zeroed::<ZoneLists>(regions.len())?);
        place_of_slot.write(slot);
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
    let zone_list = first.filled(regions.len(), |i| zones[i].expect("written above"))?;
    let node_list = &first.filled(1, |_| nodes)?[0];
    let group_lists =
        first.filled(if config.groups > 0 { MAX_NODES } else { 0 }, |node| group_lists[node])?;
    let root = &first.zeroed::<Root>(1)?[0];
    let order = first.carve::<u8>(MAX_NODES * regions.len())?;
    at[0] = first.next;
    for (node, row) in order.chunks_exact_mut(regions.len()).enumerate() {
        for (i, slot) in row.iter_mut().enumerate() {
            slot.write(i as u8);
        }
        // SAFETY: the row was just written.
        let row = unsafe { &mut *(core::ptr::from_mut(row) as *mut [u8]) };
        if nodes[node].is_some() {
            let far = |z: u8| p.distance(NodeId(node as u16), regions[z as usize].node);
            // High memory first: low frames are the only ones that some devices reach.
            row.sort_unstable_by_key(|&z| (far(z), u8::MAX - z));
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
    let (cpus, fallback) = unsafe {
        (&*(core::ptr::from_mut(cpus) as *const [&'p CpuSlot]), &*(core::ptr::from_mut(order) as *const [u8]))
    };
    let cpus: &'p [&'p CpuSlot] = cpus;
    for (c, slot) in cpus.iter().enumerate() {
        let node = p.node_of(CpuId(c as u16));
        slot.pages.set_nearest(fallback[usize::from(node.0) * regions.len()].into());
    }
    Ok(Carved {
        frames,
        zones: zone_list,
        cpus,
        nodes: node_list,
        fallback,
        root,
        shadows,
        groups,
        group_lists,
        reserved,
    })
}

/// For each frame of each region the word that says which group is charged with it.
fn carve_charged<'p, P: Platform + 'p>(
    regions: &[Region],
    count: u32,
    with: &impl Fn(usize, &[u64; MAX_ZONES]) -> Carver<'p, P>,
    at: &mut [u64; MAX_ZONES],
) -> Result<&'p [Option<&'p [Word32]>], Error> {
    let mut first = with(0, at);
    let sections = first.carve::<Option<&'p [Word32]>>(count as usize)?;
    at[0] = first.next;
    sections.iter_mut().for_each(|slot| {
        slot.write(None);
    });
    // SAFETY: every element was just written.
    let sections = unsafe { &mut *(core::ptr::from_mut(sections) as *mut [Option<&'p [Word32]>]) };
    for (i, region) in regions.iter().enumerate() {
        let mut carver = with(i, at);
        let last = (region.start.0 + region.frames - 1) / SECTION;
        for slot in &mut sections[(region.start.0 / SECTION) as usize..=last as usize] {
            if slot.is_none() {
                *slot = Some(carver.zeroed(SECTION as usize)?);
            }
        }
        at[i] = carver.next;
    }
    Ok(sections)
}

/// Gives each frame of a region its place; the carved ones stay reserved.
fn mark<P: Platform>(p: &P, frames: FrameTable<'_>, zone: usize, region: &Region, used: u32) {
    for i in 0..region.frames {
        let frame = frames.get(region.start.add(i));
        let kind = if i < used { Kind::Reserved } else { Kind::Tail };
        let place = (region.node.0 as u32) << NODE_SHIFT | (zone as u32) << ZONE_SHIFT;
        frame.state.set(p, place | kind as u32);
    }
}

/// Frees every frame that was not carved, in the largest blocks that fit.
pub(crate) fn fill<P: Platform>(mm: &crate::Manager<'_, P>) {
    let p = mm.platform();
    set_watermarks(mm);
    for zone in mm.zones() {
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
