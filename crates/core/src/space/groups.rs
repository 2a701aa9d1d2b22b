//! Groups from outside: which there are, which space belongs where, and what they may have.

use core::sync::atomic::Ordering;

use crate::Manager;
use crate::addr::PageRange;
use crate::error::Error;
use crate::group::{GroupState, Members};
use crate::handle::{GroupId, GroupSlot};
use crate::platform::Platform;
use crate::resched::Work;
use crate::view::{Group, Space};
use crate::vma::SpaceState;

/// What a group is charged with. In pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct GroupUsage {
    /// Pages that it is charged with: anonymous ones, those in the caches of files, and page tables.
    pub charged: u64,
    /// Of these, pages that CPUs may hand out to its spaces without asking. They come back before anybody finds no room.
    pub stocked: u64,
    /// The most that it may be charged with.
    pub limit: u64,
    /// How often somebody found no room, and had to reclaim of the group's pages.
    pub hits: u64,
    /// Spaces that belong to it.
    pub spaces: u32,
}

impl<'p, P: Platform> Manager<'p, P> {
    /// A new group, without spaces, that may be charged with `limit` pages. What is charged to a group is listed for reclaim apart from all
    /// else; where no frame is free, reclaim takes of all groups in proportion to what they have.
    ///
    /// Where the places of all groups that ended are still charged with pages, it reclaims those of one after the other, until a place is
    /// free, and may wait.
    ///
    /// # Errors
    /// [`Error::NoGroups`] without [`Config::groups`](crate::Config::groups); [`Error::TooMany`] where so many exist.
    ///
    /// # Examples
    /// ```
    /// # use quietmm_doc::*;
    /// # doc(|mm| {
    /// let group = mm.create_group(64 << 20 >> 12)?; // 64 MiB
    /// let space = mm.space(mm.create_space()?);
    /// space.set_group(Some(group))?;
    /// # Ok(())
    /// # });
    /// ```
    pub fn create_group(&self, limit: u64) -> Result<GroupId, Error> {
        let (p, groups) = (self.platform(), self.groups());
        let members = groups.members.ok_or(Error::NoGroups)?;
        let work = &mut Work::begin(self);
        // Of many that there may be, without the lock.
        for group in groups.slots(p) {
            if self.is_unused(group)
                && let Some(new) = self.begin_group((members, group), limit)
            {
                return Ok(new);
            }
            work.did(1);
        }
        if let Some(new) = self.begin_another(members, limit) {
            return Ok(new);
        }
        for group in groups.slots(p) {
            work.did(1);
            // While this one waits another may have its place.
            let has_ended = || !self.groups().state(group).life.goes_on(p);
            if !has_ended() {
                continue;
            }
            self.return_stocks(group);
            self.shrink_group_while(group, &has_ended, work);
            if let Some(new) = self.begin_group((members, group), limit) {
                return Ok(new);
            }
        }
        Err(Error::TooMany)
    }

    /// Whether nobody has a group's place, and nobody is charged there any more.
    fn is_unused(&self, group: GroupSlot) -> bool {
        let (p, state) = (self.platform(), self.groups().state(group));
        !state.life.goes_on(p) && state.charged.pages.load(p, Ordering::Acquire) == 0
    }

    /// Begins a group in this place, if it is unused still.
    fn begin_group(&self, (members, group): (&Members, GroupSlot), limit: u64) -> Option<GroupId> {
        let _guard = members.lock.lock(self);
        self.is_unused(group).then(|| self.begin_in(group, limit))
    }

    /// The same in one that nobody has had yet, if there is any.
    fn begin_another(&self, members: &Members, limit: u64) -> Option<GroupId> {
        let p = self.platform();
        let _guard = members.lock.lock(self);
        let bound = members.bound.get(p);
        (bound < self.groups().states.len() as u32).then(|| {
            members.bound.set(p, bound + 1);
            self.begin_in(GroupSlot(bound + 1), limit)
        })
    }

    /// Under the lock.
    fn begin_in(&self, group: GroupSlot, limit: u64) -> GroupId {
        let (p, state) = (self.platform(), self.groups().state(group));
        state.limit.set(p, limit);
        state.hits.set(p, 0);
        state.members.set(p, 0);
        state.life.begin(p);
        self.groups().id(p, group)
    }

    /// A group, by the handle that a caller gave; its place may be another's at any moment, but for whoever holds the lock.
    fn find_group(&self, id: GroupId) -> Result<&'p GroupState, Error> {
        let found = self.groups().states.get(id.slot.0 as usize - 1).ok_or(Error::NoSuchGroup)?;
        if found.life.is(self.platform(), id.life) { Ok(found) } else { Err(Error::NoSuchGroup) }
    }

    /// A new space belongs to the group of another one, that is there to stay.
    pub(super) fn join_group(&self, space: &SpaceState, group: GroupSlot) {
        if group != GroupSlot::NONE {
            let p = self.platform();
            let _guard = self.groups().members.map(|members| members.lock.lock(self));
            let count = &self.groups().state(group).members;
            count.set(p, count.get(p) + 1);
            space.group.set(p, group.0);
        }
    }

    /// A space ends, or belongs elsewhere. By whoever has its VMAs alone.
    pub(super) fn leave_group(&self, space: &SpaceState) {
        let p = self.platform();
        let group = space.group_slot(p);
        if group != GroupSlot::NONE {
            let _guard = self.groups().members.map(|members| members.lock.lock(self));
            let count = &self.groups().state(group).members;
            count.set(p, count.get(p) - 1);
            space.group.set(p, GroupSlot::NONE.0);
        }
    }
}

impl<P: Platform> Group<'_, '_, P> {
    /// What the group is charged with now.
    ///
    /// # Errors
    /// [`Error::NoSuchGroup`].
    ///
    /// # Examples
    /// ```
    /// # use quietmm_doc::*;
    /// # doc(|mm| {
    /// let group = mm.group(mm.create_group(256)?);
    /// let space = mm.space(mm.create_space()?);
    /// space.set_group(Some(group.id()))?;
    /// space.map(PageRange::new(PageNumber(0x400), 4), Backing::Anonymous, Prot::ReadWrite)?;
    /// space.fault(PageNumber(0x400).addr(), UserAccess::Write)?;
    /// assert!(group.usage()?.charged > 0);
    /// # Ok(())
    /// # });
    /// ```
    pub fn usage(&self) -> Result<GroupUsage, Error> {
        let (mm, p) = (self.mm, self.mm.platform());
        let stocked = mm.stocked(self.id.slot);
        let _guard = mm.groups().members.map(|members| members.lock.lock(mm));
        let state = mm.find_group(self.id)?;
        Ok(GroupUsage {
            charged: state.charged.pages.get(p),
            stocked,
            limit: state.limit.get(p),
            hits: state.hits.get(p),
            spaces: state.members.get(p),
        })
    }

    /// Changes how many pages the group may be charged with. Where it has more, reclaims them as far as it can, and may wait; what stays
    /// is above the limit until it goes, and nothing is charged until then.
    ///
    /// # Errors
    /// [`Error::NoSuchGroup`].
    ///
    /// # Examples
    /// ```
    /// # use quietmm_doc::*;
    /// # doc(|mm| {
    /// let group = mm.group(mm.create_group(256)?);
    /// group.set_limit(128)?;
    /// assert_eq!(group.usage()?.limit, 128);
    /// # Ok(())
    /// # });
    /// ```
    pub fn set_limit(&self, pages: u64) -> Result<(), Error> {
        let (mm, p) = (self.mm, self.mm.platform());
        let state = {
            let _guard = mm.groups().members.map(|members| members.lock.lock(mm));
            let state = mm.find_group(self.id)?;
            state.limit.set(p, pages);
            state
        };
        // Whoever has ended it meanwhile, and begun another in its place, has said what that may have.
        let is_above = || state.life.is(p, self.id.life) && state.charged.pages.get(p) > state.limit.get(p);
        if is_above() {
            mm.return_stocks(self.id.slot);
            mm.shrink_group_while(self.id.slot, &is_above, &mut Work::begin(mm));
        }
        Ok(())
    }

    /// Ends a group that no space belongs to. Pages that it is still charged with, say in the caches of files, stay until reclaim takes
    /// them or they are freed; nobody is charged with them.
    ///
    /// # Errors
    /// [`Error::NoSuchGroup`]; [`Error::Busy`] while spaces belong to it.
    ///
    /// # Examples
    /// ```
    /// # use quietmm_doc::*;
    /// # doc(|mm| {
    /// let group = mm.group(mm.create_group(256)?);
    /// group.destroy()?;
    /// assert_eq!(group.usage(), Err(Error::NoSuchGroup));
    /// # Ok(())
    /// # });
    /// ```
    pub fn destroy(&self) -> Result<(), Error> {
        let (mm, p) = (self.mm, self.mm.platform());
        let _guard = mm.groups().members.map(|members| members.lock.lock(mm));
        let state = mm.find_group(self.id)?;
        if state.members.get(p) > 0 {
            return Err(Error::Busy);
        }
        state.life.end(p);
        Ok(())
    }
}

impl<P: Platform> Space<'_, '_, P> {
    /// Makes the space one of a group's, or of none. From then on that is charged with what the space wants anew; what it has stays charged
    /// where it is. A fork belongs where the space does that it was made of. May wait for operations on the space.
    ///
    /// # Errors
    /// [`Error::NoSuchSpace`], [`Error::NoSuchGroup`].
    ///
    /// # Examples
    /// ```
    /// # use quietmm_doc::*;
    /// # doc(|mm| {
    /// let group = mm.create_group(256)?;
    /// let space = mm.space(mm.create_space()?);
    /// space.set_group(Some(group))?;
    /// assert_eq!(space.group()?, Some(group));
    /// space.set_group(None)?;
    /// # Ok(())
    /// # });
    /// ```
    pub fn set_group(&self, group: Option<GroupId>) -> Result<(), Error> {
        let mm = self.mm;
        let (space, _alone) = mm.write_lock(self.id, PageRange::MAPPABLE)?;
        let Some(id) = group else {
            mm.leave_group(space);
            return Ok(());
        };
        let p = mm.platform();
        let _guard = mm.groups().members.ok_or(Error::NoSuchGroup)?.lock.lock(mm);
        let count = &mm.find_group(id)?.members;
        count.set(p, count.get(p) + 1);
        let before = space.group_slot(p);
        if before != GroupSlot::NONE {
            let count = &mm.groups().state(before).members;
            count.set(p, count.get(p) - 1);
        }
        space.group.set(p, id.slot.0);
        Ok(())
    }

    /// The group that the space belongs to.
    ///
    /// # Errors
    /// [`Error::NoSuchSpace`].
    ///
    /// # Examples
    /// ```
    /// # use quietmm_doc::*;
    /// # doc(|mm| {
    /// assert_eq!(mm.space(mm.create_space()?).group()?, None);
    /// # Ok(())
    /// # });
    /// ```
    pub fn group(&self) -> Result<Option<GroupId>, Error> {
        let (mm, p) = (self.mm, self.mm.platform());
        // A group ends, or a space leaves it, only under this lock.
        let _guard = mm.groups().members.map(|members| members.lock.lock(mm));
        let group = mm.find_space(self.id)?.group_slot(p);
        Ok((group != GroupSlot::NONE).then(|| mm.groups().id(p, group)))
    }
}
