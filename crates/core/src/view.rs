//! What callers do with a space, a file, a group, frames, kernel ranges and swap: each through a view of the manager.
//!
//! A view is a reference and at most a handle: it costs nothing to make, owns nothing and promises nothing, so make one where
//! it is needed. A kernel keeps handles. Each room writes its own methods.

use crate::Manager;
use crate::handle::{FileId, GroupId, SpaceId};
use crate::platform::Platform;

/// An address space, named by its handle: [`Manager::space`] makes this view.
///
/// Every method returns [`Error::NoSuchSpace`](crate::Error::NoSuchSpace) once the space has ended.
#[doc(alias = "mm_struct")]
pub struct Space<'m, 'p, P: Platform> {
    pub(crate) mm: &'m Manager<'p, P>,
    pub(crate) id: SpaceId,
}

/// A file, of which programs see pages through mappings and the kernel through reads and writes: [`Manager::file`] makes this view.
///
/// Every method returns [`Error::NoSuchFile`](crate::Error::NoSuchFile) once the file has ended.
#[doc(alias = "address_space")]
pub struct File<'m, 'p, P: Platform> {
    pub(crate) mm: &'m Manager<'p, P>,
    pub(crate) id: FileId,
}

/// The page frames: who gets one, what each CPU keeps, and memory that goes and comes. [`Manager::frames`] makes this view.
#[doc(alias = "buddy")]
pub struct FrameAllocator<'m, 'p, P: Platform> {
    pub(crate) mm: &'m Manager<'p, P>,
}

/// The kernel range of [`Config::vmap`](crate::Config::vmap): [`Manager::vmap`] makes this view.
///
/// Every method returns [`Error::NoKernelRange`](crate::Error::NoKernelRange) where there is none.
#[doc(alias = "vmalloc")]
pub struct Vmap<'m, 'p, P: Platform> {
    pub(crate) mm: &'m Manager<'p, P>,
}

/// The swap devices: [`Manager::swap`] makes this view.
pub struct Swap<'m, 'p, P: Platform> {
    pub(crate) mm: &'m Manager<'p, P>,
}

/// A group of spaces with a limit on their memory, named by its handle: [`Manager::group`] makes this view.
///
/// Every method returns [`Error::NoSuchGroup`](crate::Error::NoSuchGroup) once the group has ended.
#[doc(alias = "mem_cgroup")]
pub struct Group<'m, 'p, P: Platform> {
    pub(crate) mm: &'m Manager<'p, P>,
    pub(crate) id: GroupId,
}

impl<'p, P: Platform> Manager<'p, P> {
    /// The space of this handle, whether it lives or not: the view's methods look.
    ///
    /// # Examples
    /// ```
    /// # use quietmm_doc::*;
    /// # doc(|mm| {
    /// let id = mm.create_space()?; // what a kernel keeps
    /// let space = mm.space(id); // what it works with
    /// space.switch_to()?;
    /// # Ok(())
    /// # });
    /// ```
    pub fn space(&self, id: SpaceId) -> Space<'_, 'p, P> {
        Space { mm: self, id }
    }

    /// The file of this handle, whether it lives or not: the view's methods look.
    ///
    /// # Examples
    /// ```
    /// # use quietmm_doc::*;
    /// # doc(|mm| {
    /// let id = mm.create_file(1)?;
    /// mm.file(id).write(0, b"text")?;
    /// # Ok(())
    /// # });
    /// ```
    pub fn file(&self, id: FileId) -> File<'_, 'p, P> {
        File { mm: self, id }
    }

    /// The group of this handle, whether it lives or not: the view's methods look.
    ///
    /// # Examples
    /// ```
    /// # use quietmm_doc::*;
    /// # doc(|mm| {
    /// let id = mm.create_group(256)?;
    /// mm.group(id).set_limit(512)?;
    /// # Ok(())
    /// # });
    /// ```
    pub fn group(&self, id: GroupId) -> Group<'_, 'p, P> {
        Group { mm: self, id }
    }

    /// The page frames.
    ///
    /// # Examples
    /// ```
    /// # use quietmm_doc::*;
    /// # doc(|mm| {
    /// let block = mm.frames().alloc(0, AllocFrom::HERE)?;
    /// mm.frames().free(block);
    /// # Ok(())
    /// # });
    /// ```
    pub fn frames(&self) -> FrameAllocator<'_, 'p, P> {
        FrameAllocator { mm: self }
    }

    /// The kernel range.
    ///
    /// # Examples
    /// ```
    /// # use quietmm_doc::*;
    /// # doc(|mm| {
    /// let stack = mm.vmap().alloc(4, VmapPlace::ANYWHERE, KernelProt::ReadWrite)?;
    /// mm.vmap().free(stack.start)?;
    /// # Ok(())
    /// # });
    /// ```
    pub fn vmap(&self) -> Vmap<'_, 'p, P> {
        Vmap { mm: self }
    }

    /// The swap devices.
    ///
    /// # Examples
    /// ```
    /// # use quietmm_doc::*;
    /// # doc(|mm| {
    /// mm.swap().on(0, 1024, 0)?;
    /// # Ok(())
    /// # });
    /// ```
    pub fn swap(&self) -> Swap<'_, 'p, P> {
        Swap { mm: self }
    }
}

macro_rules! copied {
    ($($view:ident)*) => {$(
        impl<P: Platform> Clone for $view<'_, '_, P> {
            fn clone(&self) -> Self {
                *self
            }
        }

        impl<P: Platform> Copy for $view<'_, '_, P> {}
    )*};
}

copied!(Space File Group FrameAllocator Vmap Swap);

impl<P: Platform> Space<'_, '_, P> {
    /// The handle.
    ///
    /// # Examples
    /// ```
    /// # use quietmm_doc::*;
    /// # doc(|mm| {
    /// let id = mm.create_space()?;
    /// assert_eq!(mm.space(id).id(), id);
    /// # Ok(())
    /// # });
    /// ```
    pub fn id(&self) -> SpaceId {
        self.id
    }
}

impl<P: Platform> File<'_, '_, P> {
    /// The handle.
    ///
    /// # Examples
    /// ```
    /// # use quietmm_doc::*;
    /// # doc(|mm| {
    /// let id = mm.create_file(1)?;
    /// assert_eq!(mm.file(id).id(), id);
    /// # Ok(())
    /// # });
    /// ```
    pub fn id(&self) -> FileId {
        self.id
    }
}

impl<P: Platform> Group<'_, '_, P> {
    /// The handle.
    ///
    /// # Examples
    /// ```
    /// # use quietmm_doc::*;
    /// # doc(|mm| {
    /// let id = mm.create_group(256)?;
    /// assert_eq!(mm.group(id).id(), id);
    /// # Ok(())
    /// # });
    /// ```
    pub fn id(&self) -> GroupId {
        self.id
    }
}
