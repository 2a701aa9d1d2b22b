//! Groups of spaces that have a limit together.

use core::mem::MaybeUninit;

use quietmm::GroupId;

use crate::error::{Error, answer, number};
use crate::kernel::Kernel;
use crate::platform::Machine;
use crate::space::Space;

/// A group of spaces. It names this one only: once it has ended every call gets NO_SUCH_GROUP, for ever. All zeros is none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct Group {
    /// Which use of the place this is.
    pub life: u64,
    /// A small number, from 1 on, that no other living group has; a later one may.
    pub slot: u32,
}

impl From<Option<GroupId>> for Group {
    fn from(id: Option<GroupId>) -> Self {
        let (slot, life) = id.map_or((0, 0), GroupId::into_raw);
        Group { life, slot }
    }
}

impl Group {
    fn id(self) -> Result<GroupId, quietmm::Error> {
        GroupId::from_raw(self.slot, self.life).ok_or(quietmm::Error::NoSuchGroup)
    }

    fn of(self, mm: &Kernel) -> Result<quietmm::Group<'_, 'static, Machine>, quietmm::Error> {
        Ok(mm.mm().group(self.id()?))
    }
}

/// What a group has, in pages.
#[repr(C)]
pub struct GroupUsage {
    /// What it is charged with: its stocks too.
    pub charged: u64,
    /// Of that, what CPUs keep in stock for it, and nobody uses.
    pub stocked: u64,
    /// What it may be charged with.
    pub limit: u64,
    /// How often somebody found it at its limit.
    pub hits: u64,
    /// Spaces that belong to it.
    pub spaces: u32,
}

/// Makes a group, without spaces, that may be charged with `limit` pages. On; it may wait. NO_GROUPS unless `groups` was set when the manager was
/// made; TOO_MANY.
#[unsafe(no_mangle)]
pub extern "C" fn quietmm_create_group(mm: &Kernel, limit: u64, group: &mut MaybeUninit<Group>) -> Error {
    answer(mm.mm().create_group(limit).map(|id| Some(id).into()), Some(group))
}

/// Ends a group. Pages that it is still charged with stay until reclaim takes them. On. NO_SUCH_GROUP; BUSY while spaces belong to it.
#[unsafe(no_mangle)]
pub extern "C" fn quietmm_group_destroy(mm: &Kernel, group: Group) -> Error {
    number(group.of(mm).and_then(|group| group.destroy()))
}

/// Changes what a group may be charged with, and reclaims what is above it as far as it can. On; it may wait. NO_SUCH_GROUP.
#[unsafe(no_mangle)]
pub extern "C" fn quietmm_group_set_limit(mm: &Kernel, group: Group, pages: u64) -> Error {
    number(group.of(mm).and_then(|group| group.set_limit(pages)))
}

/// What a group is charged with now. A moment's truth. Any context but a handler. NO_SUCH_GROUP.
#[unsafe(no_mangle)]
pub extern "C" fn quietmm_group_usage(
    mm: &Kernel,
    group: Group,
    usage: &mut MaybeUninit<GroupUsage>,
) -> Error {
    let now = group.of(mm).and_then(|group| group.usage());
    let now = now.map(|now| GroupUsage {
        charged: now.charged,
        stocked: now.stocked,
        limit: now.limit,
        hits: now.hits,
        spaces: now.spaces,
    });
    answer(now, Some(usage))
}

/// Makes a space one of a group's, or of none if `group` is all zeros: from then on that is charged with what the space wants anew. A fork of it
/// belongs there too. On; it may wait. NO_SUCH_SPACE, NO_SUCH_GROUP.
#[unsafe(no_mangle)]
pub extern "C" fn quietmm_space_set_group(mm: &Kernel, space: Space, group: Group) -> Error {
    let group = match group {
        Group { life: 0, slot: 0 } => Ok(None),
        group => group.id().map(Some),
    };
    number(space.of(mm).and_then(|space| space.set_group(group?)))
}

/// The group that a space belongs to: all zeros if to none. Any context but a handler. NO_SUCH_SPACE.
#[unsafe(no_mangle)]
pub extern "C" fn quietmm_space_group(mm: &Kernel, space: Space, group: &mut MaybeUninit<Group>) -> Error {
    answer(space.of(mm).and_then(|space| space.group()).map(Group::from), Some(group))
}
