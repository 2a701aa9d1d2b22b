//! What is mapped, and what may be done with it: the words of the public interface.

use crate::addr::{NodeId, NodeSet};
use crate::handle::FileId;

/// What programs may do with mapped pages. Instructions are fetched only where that is said.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Prot {
    /// Nothing: every access is an error. The pages keep their content.
    None,
    /// Read.
    Read,
    /// Read and write.
    ReadWrite,
    /// Read and execute: code.
    ReadExecute,
    /// All of it: for programs that make code where it lies, unless [`Config::write_xor_execute`](crate::Config::write_xor_execute) forbids it.
    ReadWriteExecute,
}

impl Prot {
    /// All of them.
    pub const ALL: [Prot; 5] =
        [Prot::None, Prot::Read, Prot::ReadWrite, Prot::ReadExecute, Prot::ReadWriteExecute];

    /// Without the right to write.
    pub(crate) const fn read_only(self) -> Prot {
        match self {
            Prot::ReadWrite => Prot::Read,
            Prot::ReadWriteExecute => Prot::ReadExecute,
            other => other,
        }
    }

    /// Whether it permits the access.
    pub const fn permits(self, access: UserAccess) -> bool {
        match access {
            UserAccess::Read => !matches!(self, Prot::None),
            UserAccess::Write => matches!(self, Prot::ReadWrite | Prot::ReadWriteExecute),
            UserAccess::Execute => matches!(self, Prot::ReadExecute | Prot::ReadWriteExecute),
        }
    }
}

/// What the kernel may do with pages of its own range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KernelProt {
    /// Read.
    Read,
    /// Read and write.
    ReadWrite,
    /// Read and execute: code that was loaded.
    ReadExecute,
}

/// What a user access does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UserAccess {
    /// It reads.
    Read,
    /// It writes.
    Write,
    /// It fetches an instruction.
    Execute,
}

impl UserAccess {
    /// All of them.
    pub const ALL: [UserAccess; 3] = [UserAccess::Read, UserAccess::Write, UserAccess::Execute];
}

/// What a mapping shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Backing {
    /// Zeros until written, this space's own.
    Anonymous,
    /// Pages of a file, from page `offset` on, shared: what is written reaches the file, and all who map it.
    File {
        /// The file.
        file: FileId,
        /// Its first page that is shown.
        offset: u64,
    },
    /// Pages of a file, from page `offset` on, privately: the first write to a page copies it, and the copy is
    /// this space's own. Pages that were not written show the file as it is.
    Private {
        /// The file.
        file: FileId,
        /// Its first page that is shown.
        offset: u64,
    },
}

impl Backing {
    /// The file and its first page, if it is one.
    pub(crate) fn file(self) -> Option<(FileId, u64)> {
        match self {
            Backing::Anonymous => None,
            Backing::File { file, offset } | Backing::Private { file, offset } => Some((file, offset)),
        }
    }
}

/// On which nodes the anonymous pages of a range come (Linux: its memory policy).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[doc(alias = "mempolicy")]
pub enum NodePolicy {
    /// On the node of the CPU that touches them, or the nearest that has memory.
    #[default]
    #[doc(alias = "MPOL_LOCAL")]
    Local,
    /// On this node, or the nearest to it that has memory.
    #[doc(alias = "MPOL_PREFERRED")]
    Preferred(NodeId),
    /// On these, and on no other: memory is reclaimed there, and if none comes a fault fails.
    #[doc(alias = "MPOL_BIND")]
    Bind(NodeSet),
    /// On these by turns, one page after the other; large pages too. Where one has no memory, on the nearest to it.
    #[doc(alias = "MPOL_INTERLEAVE")]
    Interleave(NodeSet),
}

/// What a program says of the use that it will make of a range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Advice {
    /// Its content is not needed: anonymous pages become zeros again, private ones show their file again, shared
    /// ones stay in the file's cache (`MADV_DONTNEED`).
    #[doc(alias = "MADV_DONTNEED")]
    Drop,
    /// Large pages, where the range is anonymous and a large frame is free when it is touched.
    #[doc(alias = "MADV_HUGEPAGE")]
    Large,
    /// Small pages, from the next touch on; large pages that are there stay.
    #[doc(alias = "MADV_NOHUGEPAGE")]
    Small,
    /// It will be wanted soon: what is on devices is read, of files as much as needs no reclaim.
    #[doc(alias = "MADV_WILLNEED")]
    WillNeed,
    /// It will not be wanted soon: reclaim takes it first.
    #[doc(alias = "MADV_COLD")]
    Cold,
    /// It will not be wanted for a while: it goes to its devices now.
    #[doc(alias = "MADV_PAGEOUT")]
    PageOut,
    /// Its content is not needed, unless it is written again: reclaim drops pages of a program's own memory without a look at swap. What is
    /// read meanwhile is what was there, or zeros. Without [`Config::swap`](crate::Config::swap) nothing would take them, and it is
    /// [`Drop`](Self::Drop).
    #[doc(alias = "MADV_FREE")]
    Free,
    /// It is to be in large pages now, where it is in small ones: each aligned 2 MiB of memory of the program's own that one mapping shows, and of which some
    /// page is in memory or in swap. What was not touched is zeros then, and takes memory. And 2 MiB of a file all of which is in memory, as long as nobody writes to
    /// it: its pages come to lie in one piece.
    #[doc(alias = "MADV_COLLAPSE")]
    Collapse,
    /// It is wanted now, for reading: [`Space::populate`](crate::Space::populate).
    #[doc(alias = "MADV_POPULATE_READ")]
    PopulateRead,
    /// It is wanted now, for writing.
    #[doc(alias = "MADV_POPULATE_WRITE")]
    PopulateWrite,
}
