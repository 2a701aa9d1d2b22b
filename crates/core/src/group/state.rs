//! What is kept about a group, and about a page's group.

use crate::addr::FrameNumber;
use crate::handle::{GroupId, GroupSlot};
use crate::life::Life;
use crate::memmap::Sections;
use crate::platform::Hooks;
use crate::profile::Scope;
use crate::sync::{SpinLock, Word32, Word64};
use crate::zeroed::Zeroed;

/// What the core keeps about a group.
#[repr(C, align(64))]
pub(crate) struct GroupState {
    /// Which use of the slot this is. Pages may be charged to it after its end.
    pub life: Life,
    /// Pages that it may be charged with.
    pub limit: Word64,
    /// Spaces that belong to it.
    pub members: Word32,
    /// How often somebody found no room.
    pub hits: Word64,
    /// On a line of its own: whoever charges writes it.
    pub charged: Charged,
}

/// Pages that a group is charged with, those in stocks too; and on how many CPUs its stocks are.
#[repr(C, align(64))]
pub(crate) struct Charged {
    pub pages: Word64,
    pub stocks: Word32,
}

/// What a CPU may hand out of one group: the group's slot above, the pages below. Others take it whole.
#[repr(C, align(64))]
pub(crate) struct Stock(pub Word64);

/// What there is once. The lock guards who belongs where, and which groups live.
#[repr(C)]
pub(crate) struct Members {
    pub lock: SpinLock<{ Scope::GroupsLock as u8 }>,
    /// One more than the highest slot that was ever used.
    pub bound: Word32,
}

// SAFETY: atomics and locks only.
unsafe impl Zeroed for GroupState {}
// SAFETY: an atomic.
unsafe impl Zeroed for Stock {}
// SAFETY: atomics and locks only.
unsafe impl Zeroed for Members {}

/// All groups, and for each frame the slot of the group that is charged with it. Where there are none, empty.
#[derive(Clone, Copy)]
pub(crate) struct Groups<'p> {
    pub states: &'p [GroupState],
    /// By CPU.
    pub stocks: &'p [Stock],
    pub members: Option<&'p Members>,
    pub pages: Sections<'p, Word32>,
}

impl<'p> Groups<'p> {
    pub const NONE: Groups<'p> = Groups { states: &[], stocks: &[], members: None, pages: Sections::NONE };

    /// Whether there can be any.
    #[inline(always)]
    pub fn exist(&self) -> bool {
        self.members.is_some()
    }

    /// What is kept about a group that is not [`GroupSlot::NONE`].
    pub fn state(&self, group: GroupSlot) -> &'p GroupState {
        &self.states[group.0 as usize - 1]
    }

    /// The word that says which group is charged with a frame.
    fn word(&self, n: FrameNumber) -> &'p Word32 {
        self.pages.get(n).expect("the section of a frame that was handed over")
    }

    /// The group that is charged with a frame. Always `NONE` where no groups exist.
    #[inline(always)]
    pub fn of_frame<P: Hooks>(&self, p: &P, n: FrameNumber) -> GroupSlot {
        if self.exist() { GroupSlot(self.word(n).get(p)) } else { GroupSlot::NONE }
    }

    /// By whoever has the frame alone.
    pub fn set_of_frame<P: Hooks>(&self, p: &P, n: FrameNumber, group: GroupSlot) {
        self.word(n).set(p, group.0);
    }

    /// The slots that groups have or had.
    pub fn slots<P: Hooks>(&self, p: &P) -> impl Iterator<Item = GroupSlot> + use<P> {
        (1..=self.members.map_or(0, |members| members.bound.get(p))).map(GroupSlot)
    }

    /// The handle of the group in a slot.
    pub fn id<P: crate::platform::Platform>(&self, p: &P, group: GroupSlot) -> GroupId {
        GroupId { slot: group, life: self.state(group).life.now(p) }
    }
}
