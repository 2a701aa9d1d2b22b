//! Address spaces.

use core::mem::MaybeUninit;

use quietmm::{Advice, NodeId, PageNumber, Prot, SpaceId, UserAccess, VirtAddr};

use crate::error::{Error, answer, number};
use crate::file::File;
use crate::kernel::Kernel;
use crate::platform::Range;

/// An address space. It names this one only: once it has ended every call gets NO_SUCH_SPACE, for ever. All zeros is none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct Space {
    /// Which use of the place this is.
    pub life: u64,
    /// A small number that no other living space has; a later one may.
    pub slot: u32,
}

impl From<SpaceId> for Space {
    fn from(id: SpaceId) -> Self {
        let (slot, life) = id.into_raw();
        Space { life, slot }
    }
}

impl Space {
    const NONE: Space = Space { life: 0, slot: 0 };

    pub(crate) fn of(
        self,
        mm: &Kernel,
    ) -> Result<quietmm::Space<'_, 'static, crate::platform::Machine>, quietmm::Error> {
        let id = SpaceId::from_raw(self.slot, self.life).ok_or(quietmm::Error::NoSuchSpace)?;
        Ok(mm.mm().space(id))
    }
}

/// What may be done with a page.
#[repr(C)]
pub enum Protection {
    /// Nothing: its content is kept.
    None = 0,
    /// Read.
    Read = 1,
    /// Read and write.
    ReadWrite = 2,
    /// Read and execute.
    ReadExecute = 3,
    /// All of it, unless `write_xor_execute` forbids it.
    ReadWriteExecute = 4,
}

fn prot(number: u32) -> Option<Prot> {
    Prot::ALL.get(number as usize).copied()
}

/// What is behind a range.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Backing {
    /// One of `enum quietmm_backing_kind`.
    pub kind: u32,
    /// The file, where there is one.
    pub file: File,
    /// The file's page that the first one shows.
    pub offset: u64,
}

/// The kinds of what is behind a range.
#[repr(C)]
pub enum BackingKind {
    /// Memory of the space's own, zeros at first.
    Anonymous = 0,
    /// A file's pages, shared with all who map it.
    File = 1,
    /// A file's pages, and copies of the space's own of those that it writes.
    Private = 2,
}

/// What a space is told about a range.
#[repr(C)]
pub enum Advised {
    /// The content is not wanted any more (MADV_DONTNEED).
    Drop = 0,
    /// Large pages, where they can be had (MADV_HUGEPAGE).
    Large = 1,
    /// Small pages only (MADV_NOHUGEPAGE).
    Small = 2,
    /// It will be wanted soon (MADV_WILLNEED).
    WillNeed = 3,
    /// It will not be wanted soon (MADV_COLD).
    Cold = 4,
    /// It goes to its devices now (MADV_PAGEOUT).
    PageOut = 5,
    /// It is wanted now, for reading (MADV_POPULATE_READ).
    PopulateRead = 6,
    /// It is wanted now, for writing (MADV_POPULATE_WRITE).
    PopulateWrite = 7,
    /// The content is not wanted any more, unless it is written again before memory is short (MADV_FREE).
    Free = 8,
    /// Small pages become large ones now (MADV_COLLAPSE).
    Collapse = 9,
}

/// What the tables say of a page.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Entry {
    /// The frame, where there is one.
    pub frame: u32,
    /// Whether programs may read it.
    pub readable: bool,
    /// Whether programs may write it.
    pub writable: bool,
    /// Whether it is on a swap device.
    pub swapped: bool,
}

/// Makes an empty space. On; it may wait for memory. OUT_OF_MEMORY.
#[unsafe(no_mangle)]
pub extern "C" fn quietmm_create_space(mm: &Kernel, space: &mut MaybeUninit<Space>) -> Error {
    answer(mm.mm().create_space().map(Space::from), Some(space))
}

/// Ends a space, with all that is mapped in it: one flush. On; it may wait. BUSY while a CPU runs in it.
#[unsafe(no_mangle)]
pub extern "C" fn quietmm_space_destroy(mm: &Kernel, space: Space) -> Error {
    number(space.of(mm).and_then(|space| space.destroy()))
}

/// Maps a range; pages come by faults. `protection` is one of `enum quietmm_protection`. On; it may wait. No CPU is interrupted. OVERLAPS,
/// NOT_MAPPABLE, BAD_RANGE, NO_SUCH_FILE, MAP_COUNT, BAD_VALUE, OUT_OF_MEMORY. A file may be mapped beyond its end: an access there is BEYOND_FILE.
#[unsafe(no_mangle)]
pub extern "C" fn quietmm_space_map(
    mm: &Kernel,
    space: Space,
    range: Range,
    backing: Backing,
    protection: u32,
) -> Error {
    let file = File::id(backing.file).ok_or(quietmm::Error::NoSuchFile);
    let offset = backing.offset;
    let backing = match backing.kind {
        0 => Ok(quietmm::Backing::Anonymous),
        1 => file.map(|file| quietmm::Backing::File { file, offset }),
        2 => file.map(|file| quietmm::Backing::Private { file, offset }),
        _ => return Error::BadValue,
    };
    let Some(prot) = prot(protection) else { return Error::BadValue };
    number(space.of(mm).and_then(|space| space.map(range.into(), backing?, prot)))
}

/// Unmaps a range, all of which is mapped. When it returns no CPU can use any of it. On; it may wait. NOT_MAPPED, BAD_RANGE, MAP_COUNT,
/// OUT_OF_MEMORY.
#[unsafe(no_mangle)]
pub extern "C" fn quietmm_space_unmap(mm: &Kernel, space: Space, range: Range) -> Error {
    number(space.of(mm).and_then(|space| space.unmap(range.into())))
}

/// Changes what may be done with a range, all of which is mapped. When it returns no CPU has rights that were taken away. On; it may
/// wait. NOT_MAPPED, BAD_RANGE, BAD_VALUE, OUT_OF_MEMORY.
#[unsafe(no_mangle)]
pub extern "C" fn quietmm_space_protect(mm: &Kernel, space: Space, range: Range, protection: u32) -> Error {
    let Some(prot) = prot(protection) else { return Error::BadValue };
    number(space.of(mm).and_then(|space| space.protect(range.into(), prot)))
}

/// Makes a space that has the same mapped: memory of its own is copied when one of the two writes. On; it may wait.
/// OUT_OF_MEMORY.
#[unsafe(no_mangle)]
pub extern "C" fn quietmm_space_fork(mm: &Kernel, space: Space, child: &mut MaybeUninit<Space>) -> Error {
    answer(space.of(mm).and_then(|space| space.fork()).map(Space::from), Some(child))
}

/// Has the mapping that begins at page `start`, which is no file's, grow downwards when something below it is touched, until it has `most` pages. On; it may
/// wait. NOT_MAPPED, BAD_RANGE.
#[unsafe(no_mangle)]
pub extern "C" fn quietmm_space_grow_down(mm: &Kernel, space: Space, start: u64, most: u64) -> Error {
    number(space.of(mm).and_then(|space| space.grow_down(PageNumber(start), most)))
}

/// Says what a range is for: `advice` is one of `enum quietmm_advised`. On; it may wait. NOT_MAPPED, BAD_RANGE, BAD_VALUE, OUT_OF_MEMORY; to
/// make large pages, NOT_COLLAPSIBLE for the first 2 MiB that stay small; what
/// is to be there now, also what `quietmm_space_fault` says of the first page that cannot be.
#[unsafe(no_mangle)]
pub extern "C" fn quietmm_space_advise(mm: &Kernel, space: Space, range: Range, advice: u32) -> Error {
    let known = [
        Advice::Drop,
        Advice::Large,
        Advice::Small,
        Advice::WillNeed,
        Advice::Cold,
        Advice::PageOut,
        Advice::PopulateRead,
        Advice::PopulateWrite,
        Advice::Free,
        Advice::Collapse,
    ];
    let Some(&advice) = known.get(advice as usize) else { return Error::BadValue };
    number(space.of(mm).and_then(|space| space.advise(range.into(), advice)))
}

/// Moves what is mapped in a range to where `first` is its first page, with its content. On; it may wait. NOT_MAPPED, OVERLAPS, NOT_MAPPABLE,
/// BAD_RANGE, OUT_OF_MEMORY.
#[unsafe(no_mangle)]
pub extern "C" fn quietmm_space_move(mm: &Kernel, space: Space, range: Range, first: u64) -> Error {
    number(space.of(mm).and_then(|space| space.move_range(range.into(), PageNumber(first))))
}

/// Makes what is mapped in a range longer or shorter, and moves it if `to` begins elsewhere; or leaves all as it was. On; it may wait. NOT_MAPPED,
/// OVERLAPS, NOT_MAPPABLE, BAD_RANGE, MAP_COUNT, OUT_OF_MEMORY.
#[unsafe(no_mangle)]
pub extern "C" fn quietmm_space_remap(mm: &Kernel, space: Space, range: Range, to: Range) -> Error {
    number(space.of(mm).and_then(|space| space.remap(range.into(), to.into())))
}

/// Brings all of a range, and keeps its pages in memory until they are unlocked or unmapped. On; it may wait. NOT_MAPPED, BAD_RANGE, MAP_COUNT,
/// OUT_OF_MEMORY; what `quietmm_space_fault` says of a page that cannot be had. Then no more is locked than was.
#[unsafe(no_mangle)]
pub extern "C" fn quietmm_space_lock(mm: &Kernel, space: Space, range: Range) -> Error {
    number(space.of(mm).and_then(|space| space.lock(range.into())))
}

/// Has the pages of a range stay in memory that are there, and those that come when they are touched, and brings none. On; it may wait. NOT_MAPPED, BAD_RANGE,
/// MAP_COUNT, OUT_OF_MEMORY.
#[unsafe(no_mangle)]
pub extern "C" fn quietmm_space_lock_on_fault(mm: &Kernel, space: Space, range: Range) -> Error {
    number(space.of(mm).and_then(|space| space.lock_on_fault(range.into())))
}

/// Lets pages of a range be reclaimed again. On; it may wait. NOT_MAPPED, BAD_RANGE, MAP_COUNT, OUT_OF_MEMORY.
#[unsafe(no_mangle)]
pub extern "C" fn quietmm_space_unlock(mm: &Kernel, space: Space, range: Range) -> Error {
    number(space.of(mm).and_then(|space| space.unlock(range.into())))
}

/// How many pages of a space are locked. On; it may wait for whoever changes the space.
#[unsafe(no_mangle)]
pub extern "C" fn quietmm_space_locked_pages(
    mm: &Kernel,
    space: Space,
    pages: &mut MaybeUninit<u64>,
) -> Error {
    answer(space.of(mm).and_then(|space| space.locked_pages()), Some(pages))
}

/// What memory a space uses, in pages.
#[repr(C)]
pub struct SpaceUsage {
    /// Pages of its own in memory that it shows: copies that it made of files' pages too.
    pub anon: u64,
    /// Pages of files in memory that it shows.
    pub file: u64,
    /// Of both, those that are shown somewhere else too.
    pub shared: u64,
    /// Pages that are in swap, and not in memory at the moment.
    pub swapped: u64,
    /// Page tables.
    pub tables: u64,
}

/// Counts what memory a space uses: it looks at each entry. On; it may wait, also for whoever changes the space: not from `out_of_memory`.
#[unsafe(no_mangle)]
pub extern "C" fn quietmm_space_usage(
    mm: &Kernel,
    space: Space,
    usage: &mut MaybeUninit<SpaceUsage>,
) -> Error {
    let now = space.of(mm).and_then(|space| space.usage());
    let now = now.map(|now| SpaceUsage {
        anon: now.anon,
        file: now.file,
        shared: now.shared,
        swapped: now.swapped,
        tables: now.tables,
    });
    answer(now, Some(usage))
}

/// Gives the page tables back in which nothing is left, though something is mapped where they lie; how many. On; it may wait, also for whoever changes the space.
#[unsafe(no_mangle)]
pub extern "C" fn quietmm_space_free_empty_tables(
    mm: &Kernel,
    space: Space,
    tables: &mut MaybeUninit<u64>,
) -> Error {
    answer(space.of(mm).and_then(|space| space.free_empty_tables()), Some(tables))
}

/// Says for each page of a range whether it is in memory: 1 or 0 in a byte each, all 0 after an error. On; it may wait. NOT_MAPPED, BAD_RANGE.
///
/// # Safety
/// `into` has a byte for each page.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn quietmm_space_residency(
    mm: &Kernel,
    space: Space,
    range: Range,
    into: *mut u8,
) -> Error {
    let Ok(len) = usize::try_from(range.pages) else { return Error::BadRange };
    if len == 0 || into.is_null() {
        return Error::BadRange;
    }
    // SAFETY: the caller's promise. They are zeroed first, since C may not have written them yet.
    let into = unsafe {
        into.write_bytes(0, len);
        core::slice::from_raw_parts_mut(into, len)
    };
    number(space.of(mm).and_then(|space| space.residency(range.into(), into).map(drop)))
}

/// Moves the pages of a range to frames of another node; `moved`, unless it is NULL, gets how many. On; it may wait. NO_SUCH_NODE,
/// BAD_RANGE, NOT_MAPPED, OUT_OF_MEMORY.
#[unsafe(no_mangle)]
pub extern "C" fn quietmm_space_migrate(
    mm: &Kernel,
    space: Space,
    range: Range,
    node: u16,
    moved: Option<&mut MaybeUninit<u64>>,
) -> Error {
    answer(space.of(mm).and_then(|space| space.migrate(range.into(), NodeId(node))), moved)
}

/// On which nodes pages of a space's own come. Those of files come where they are touched.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct NodePolicy {
    /// One of `enum quietmm_node_policy_kind`.
    pub kind: u32,
    /// The nodes that it names, bit n for node n. LOCAL names none.
    pub nodes: u64,
}

/// The kinds of policies for nodes.
#[repr(C)]
pub enum NodePolicyKind {
    /// On the node of the CPU that touches them, or the nearest that has memory: what a space begins with.
    Local = 0,
    /// On the one node that is named, or the nearest to it that has memory.
    Preferred = 1,
    /// On these, and on no other: if no memory comes there, a fault is OUT_OF_MEMORY.
    Bind = 2,
    /// On these by turns, one page after the other.
    Interleave = 3,
}

impl NodePolicy {
    fn of_core(policy: quietmm::NodePolicy) -> NodePolicy {
        use quietmm::NodePolicy as P;
        let bits = |set: quietmm::NodeSet| set.iter().fold(0, |bits, node| bits | 1 << node.0);
        let (kind, nodes) = match policy {
            P::Local => (NodePolicyKind::Local, 0),
            P::Preferred(node) => (NodePolicyKind::Preferred, 1 << node.0),
            P::Bind(set) => (NodePolicyKind::Bind, bits(set)),
            P::Interleave(set) => (NodePolicyKind::Interleave, bits(set)),
        };
        NodePolicy { kind: kind as u32, nodes }
    }

    /// As the core has it, if it is one.
    fn to_core(self) -> Option<quietmm::NodePolicy> {
        use quietmm::NodePolicy as P;
        match self.kind {
            0 if self.nodes == 0 => Some(P::Local),
            1 if self.nodes.is_power_of_two() => {
                Some(P::Preferred(NodeId(self.nodes.trailing_zeros() as u16)))
            }
            2 => Some(P::Bind(node_set(self.nodes))),
            3 => Some(P::Interleave(node_set(self.nodes))),
            _ => None,
        }
    }
}

/// Chooses on which nodes pages of the space's own come from now on in a range, all of which is mapped; those that are there stay. On; it may wait. NO_SUCH_NODE,
/// also for BIND to nodes without memory; BAD_VALUE for a kind that is none, or nodes that do not go with it; BAD_SETTING for no node at all; TOO_MANY for the 64th set of
/// nodes; BAD_RANGE, NOT_MAPPED, MAP_COUNT, OUT_OF_MEMORY.
#[unsafe(no_mangle)]
pub extern "C" fn quietmm_space_set_node_policy(
    mm: &Kernel,
    space: Space,
    range: Range,
    policy: NodePolicy,
) -> Error {
    let Some(policy) = policy.to_core() else { return Error::BadValue };
    number(space.of(mm).and_then(|space| space.set_node_policy(range.into(), policy)))
}

/// The same for all that is mapped in the space from now on. On; it may wait. NO_SUCH_NODE, BAD_VALUE, BAD_SETTING, TOO_MANY.
#[unsafe(no_mangle)]
pub extern "C" fn quietmm_space_set_default_node_policy(
    mm: &Kernel,
    space: Space,
    policy: NodePolicy,
) -> Error {
    let Some(policy) = policy.to_core() else { return Error::BadValue };
    number(space.of(mm).and_then(|space| space.set_default_node_policy(policy)))
}

/// On which nodes pages of the space's own come where `page` is. On; it may wait for whoever changes the space. NOT_MAPPED.
#[unsafe(no_mangle)]
pub extern "C" fn quietmm_space_node_policy(
    mm: &Kernel,
    space: Space,
    page: u64,
    policy: &mut MaybeUninit<NodePolicy>,
) -> Error {
    let found = space.of(mm).and_then(|space| space.node_policy(PageNumber(page)));
    answer(found.map(NodePolicy::of_core), Some(policy))
}

/// What became of pages that were to move.
#[repr(C)]
pub struct Migrated {
    /// Pages that moved.
    pub moved: u64,
    /// Pages in memory that were to move and are where they were.
    pub stayed: u64,
}

impl From<quietmm::Migrated> for Migrated {
    fn from(done: quietmm::Migrated) -> Migrated {
        Migrated { moved: done.moved, stayed: done.stayed }
    }
}

/// The nodes of which the bits are set.
pub(crate) fn node_set(bits: u64) -> quietmm::NodeSet {
    let mut nodes = [NodeId(0); 64];
    let mut len = 0;
    for node in (0..64).filter(|node| bits & 1 << node != 0) {
        nodes[len] = NodeId(node);
        len += 1;
    }
    quietmm::NodeSet::of(&nodes[..len]).unwrap_or_default()
}

/// Moves the pages of a range that lie on the nodes `from`, bit n for node n, to frames of another node, whoever shows them, those of files too; `done`, unless it is
/// NULL, gets what became of them. On, no lock; it may wait. NO_SUCH_NODE, BAD_RANGE, NOT_MAPPED, OUT_OF_MEMORY.
#[unsafe(no_mangle)]
pub extern "C" fn quietmm_space_migrate_all(
    mm: &Kernel,
    space: Space,
    range: Range,
    from: u64,
    node: u16,
    done: Option<&mut MaybeUninit<Migrated>>,
) -> Error {
    let migrate =
        |space: quietmm::Space<'_, '_, _>| space.migrate_all(range.into(), node_set(from), NodeId(node));
    answer(space.of(mm).and_then(migrate).map(Migrated::from), done)
}

/// Resolves a page fault at an address in bytes: `access` is one of `enum quietmm_access`. On, on a task's stack, no spin lock: it may wait
/// for memory and for devices. OK: the program tries again. NOT_MAPPED, NOT_PERMITTED, BEYOND_FILE: its own fault. DEVICE, SWAP_DEVICE: its
/// content cannot be had. OUT_OF_MEMORY. NOT_ONLINE.
#[unsafe(no_mangle)]
pub extern "C" fn quietmm_space_fault(mm: &Kernel, space: Space, at: u64, access: u32) -> Error {
    let Some(access) = user_access(access) else { return Error::BadValue };
    number(space.of(mm).and_then(|space| space.fault(VirtAddr(at), access)))
}

pub(crate) fn user_access(number: u32) -> Option<UserAccess> {
    UserAccess::ALL.get(number as usize).copied()
}

/// What the tables say of a page now. On; it may wait for whoever changes the space. BAD_RANGE.
#[unsafe(no_mangle)]
pub extern "C" fn quietmm_space_lookup(
    mm: &Kernel,
    space: Space,
    page: u64,
    entry: &mut MaybeUninit<Entry>,
) -> Error {
    let found = space.of(mm).and_then(|space| space.lookup(PageNumber(page)));
    let seen = found.map(|found| Entry {
        frame: if found.is_present() { found.frame().0 } else { u32::MAX },
        readable: found.permits(UserAccess::Read),
        writable: found.permits(UserAccess::Write),
        swapped: found.is_swapped(),
    });
    answer(seen, Some(entry))
}

/// Flushes a range on every CPU that may have it. Any context but a handler. BAD_RANGE.
#[unsafe(no_mangle)]
pub extern "C" fn quietmm_space_flush_range(mm: &Kernel, space: Space, range: Range) -> Error {
    number(space.of(mm).and_then(|space| space.flush_range(range.into())))
}

/// Flushes all of a space on every CPU that may have it. Any context but a handler.
#[unsafe(no_mangle)]
pub extern "C" fn quietmm_space_flush(mm: &Kernel, space: Space) -> Error {
    number(space.of(mm).and_then(|space| space.flush()))
}

/// Loads a space on this CPU, and leaves lazy mode. Any context but a handler; it does not wait. NOT_ONLINE.
#[unsafe(no_mangle)]
pub extern "C" fn quietmm_space_switch_to(mm: &Kernel, space: Space) -> Error {
    number(space.of(mm).and_then(|space| space.switch_to()))
}

/// This CPU touches no user address until `quietmm_leave_lazy` has returned or `quietmm_space_switch_to` has: flushes pass it by. Any
/// context but a handler.
#[unsafe(no_mangle)]
pub extern "C" fn quietmm_enter_lazy(mm: &Kernel) {
    mm.mm().enter_lazy();
}

/// This CPU catches up with what it missed. Answers whether a space is loaded, which `space`, unless it is NULL, gets. Any context but a handler.
#[unsafe(no_mangle)]
pub extern "C" fn quietmm_leave_lazy(mm: &Kernel, space: Option<&mut MaybeUninit<Space>>) -> bool {
    tell(mm.mm().leave_lazy(), space)
}

/// Lets go of the loaded space: this CPU runs on the kernel's own root. Any context but a handler.
#[unsafe(no_mangle)]
pub extern "C" fn quietmm_unload(mm: &Kernel) {
    mm.mm().unload();
}

/// Answers whether a space is loaded on this CPU, which `space`, unless it is NULL, gets.
#[unsafe(no_mangle)]
pub extern "C" fn quietmm_loaded_space(mm: &Kernel, space: Option<&mut MaybeUninit<Space>>) -> bool {
    tell(mm.mm().loaded_space(), space)
}

fn tell(loaded: Option<SpaceId>, space: Option<&mut MaybeUninit<Space>>) -> bool {
    if let Some(space) = space {
        space.write(loaded.map_or(Space::NONE, Space::from));
    }
    loaded.is_some()
}
