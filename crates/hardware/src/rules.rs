//! What a CPU may and must do with an access: by what it has cached for the page, and then by what a walk finds.
//!
//! | what is cached | x86-64 | x86-64 without the guarantee for writes | RISC-V, Svade | RISC-V, Svadu |
//! |---|---|---|---|---|
//! | nothing | walk | walk | walk | walk |
//! | it forbids the access, or is a refusal | walk | walk | **fault** | **fault** |
//! | it permits, and needs no bit | use | use | use | use |
//! | a write, and its dirty bit is clear | walk | use, unseen | **fault** | walk |
//!
//! | what the walk found | x86-64, RISC-V with Svadu | RISC-V, Svade |
//! |---|---|---|
//! | it forbids the access, or nothing is there | fault | fault |
//! | it permits, and lacks bits | set them in one step with the look, then cache and use it | fault |
//! | it permits, and has them | cache and use it | cache and use it |
//!
//! A fault of x86-64 leaves nothing cached for the page (Intel SDM 3A 4.10.2.3, 4.10.4.3). One of RISC-V may leave what was
//! found, be it nothing: a refusal, which lasts until the page is flushed (privileged specification, 12.2.1). The checker and the
//! core's tests do the worst that they may: they keep it. The simulator keeps none, and walks where a fault without a look is allowed.

use quietmm::{Architecture, Entry};

/// Who tries what.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Access {
    /// By a program, or by the kernel, which may use what programs may not.
    pub user: bool,
    /// It writes.
    pub write: bool,
    /// It fetches an instruction.
    pub fetch: bool,
}

impl Access {
    /// A program's.
    pub const fn user(write: bool) -> Access {
        Access { user: true, write, fetch: false }
    }

    /// A program's next instruction.
    pub const fn fetch() -> Access {
        Access { user: true, write: false, fetch: true }
    }

    /// The kernel's.
    pub const fn kernel(write: bool) -> Access {
        Access { user: false, write, fetch: false }
    }

    /// Whether an entry permits it.
    #[inline]
    pub const fn is_permitted(self, entry: Entry) -> bool {
        let user = if self.user { Entry::USER } else { 0 };
        let write = if self.write { Entry::WRITABLE } else { 0 };
        entry.has(Entry::PRESENT | user | write) && !(self.fetch && entry.has(Entry::NO_EXECUTE))
    }

    /// The bits that an entry must have when it is used for it.
    const fn bits(self) -> u64 {
        Entry::ACCESSED | if self.write { Entry::DIRTY } else { 0 }
    }
}

/// What comes of an access by what is cached for its page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hit {
    /// The frame is used.
    Use,
    /// The frame is written to; that it is dirty the CPU notes in what it has cached, and nowhere else.
    UseUnseen,
    /// The tables are walked.
    Walk,
    /// The access faults, with no look at the tables.
    Fault,
}

/// What comes of it by what a walk has found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Found {
    /// The frame is used, and the entry cached, once these bits are set in it; of an entry that is still the same.
    Use {
        /// Bits that it lacks.
        sets: u64,
    },
    /// The access faults.
    Fault,
}

/// The rules of a machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rules {
    /// Its architecture.
    pub architecture: Architecture,
    /// Whether a write through a clean cached entry walks again, where the CPU sets dirty bits
    /// ([`Guarantees`](quietmm::platform::Guarantees)).
    pub clean_write_walks: bool,
}

impl Rules {
    /// By what is cached for the page. [`Entry::NONE`] is a refusal.
    #[inline]
    pub const fn hit(&self, cached: Option<Entry>, access: Access) -> Hit {
        let Some(entry) = cached else { return Hit::Walk };
        if !access.is_permitted(entry) {
            return if self.architecture.keeps_refusals() { Hit::Fault } else { Hit::Walk };
        }
        if entry.has(access.bits()) {
            Hit::Use
        } else if !self.architecture.sets_accessed() {
            Hit::Fault
        } else if !access.write {
            // It was accessed when it was cached.
            Hit::Use
        } else if self.clean_write_walks {
            Hit::Walk
        } else {
            Hit::UseUnseen
        }
    }

    /// By what a walk has found.
    #[inline]
    pub const fn found(&self, entry: Entry, access: Access) -> Found {
        let sets = access.bits() & !entry.0;
        if !access.is_permitted(entry) || sets != 0 && !self.architecture.sets_accessed() {
            Found::Fault
        } else {
            Found::Use { sets }
        }
    }

    /// What a fault leaves cached for the page, where a walk has found this: an entry that permits less, or a refusal.
    #[inline]
    pub const fn refusal(&self, found: Option<Entry>) -> Option<Entry> {
        match found {
            _ if !self.architecture.keeps_refusals() => None,
            Some(entry) if entry.has(Entry::PRESENT | Entry::ACCESSED) => found,
            _ => Some(Entry::NONE),
        }
    }
}

#[cfg(test)]
mod tests {
    use quietmm::{FrameNumber, Prot};

    use super::*;

    const READ: Access = Access::user(false);
    const WRITE: Access = Access::user(true);

    /// The documents' two tables, a row for each line.
    #[test]
    fn the_rules_are_those_of_the_tables() {
        let x86 = Rules { architecture: Architecture::X86_64, clean_write_walks: true };
        let unseen = Rules { clean_write_walks: false, ..x86 };
        let ade = Rules { architecture: Architecture::Sv48, ..x86 };
        let adu = Rules { architecture: Architecture::Sv48Adu, ..x86 };
        let all = [x86, unseen, ade, adu];
        let clean = Entry::page(FrameNumber(5), Prot::ReadWrite);
        let dirty = Entry(clean.0 | Entry::DIRTY);
        let (read_only, idle) = (Entry::page(FrameNumber(5), Prot::Read), Entry(clean.0 & !Entry::ACCESSED));
        let hits = |cached, access| all.map(|rules| rules.hit(cached, access));
        use Hit::{Fault, Use, UseUnseen, Walk};
        assert_eq!(hits(None, READ), [Walk; 4]);
        assert_eq!(hits(Some(read_only), WRITE), [Walk, Walk, Fault, Fault]);
        assert_eq!(hits(Some(Entry::NONE), READ), [Walk, Walk, Fault, Fault]);
        assert_eq!(hits(Some(clean), READ), [Use; 4]);
        assert_eq!(hits(Some(dirty), WRITE), [Use; 4]);
        assert_eq!(hits(Some(clean), WRITE), [Walk, UseUnseen, Fault, Walk]);
        assert_eq!(ade.hit(Some(idle), READ), Fault);

        let found = |entry, access| all.map(|rules| rules.found(entry, access));
        assert_eq!(found(Entry::NONE, READ), [Found::Fault; 4]);
        assert_eq!(found(read_only, WRITE), [Found::Fault; 4]);
        assert_eq!(found(clean, READ), [Found::Use { sets: 0 }; 4]);
        let sets = Found::Use { sets: Entry::ACCESSED | Entry::DIRTY };
        assert_eq!(found(idle, WRITE), [sets, sets, Found::Fault, sets]);

        assert_eq!(all.map(|rules| rules.refusal(None)), [None, None, Some(Entry::NONE), Some(Entry::NONE)]);
        assert_eq!(
            (adu.refusal(Some(read_only)), ade.refusal(Some(idle))),
            (Some(read_only), Some(Entry::NONE))
        );
        // What is fetched is what is read, where that may be executed.
        let code = Entry::page(FrameNumber(5), Prot::ReadExecute);
        assert_eq!(hits(Some(code), Access::fetch()), [Use; 4]);
        assert_eq!(hits(Some(dirty), Access::fetch()), [Walk, Walk, Fault, Fault]);
        assert_eq!(found(code, Access::fetch()), [Found::Use { sets: 0 }; 4]);
        assert_eq!(found(dirty, Access::fetch()), [Found::Fault; 4]);
        // The kernel may use what programs may not.
        let kernel = Entry(dirty.0 & !Entry::USER);
        assert!(!READ.is_permitted(kernel) && Access::kernel(true).is_permitted(kernel));
    }
}
