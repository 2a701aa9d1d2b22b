//! The steps that invariants rest on, by name, so that each can be left out to see what follows.
//!
//! The core asks [`Platform::broken`](crate::platform::Platform::broken) at each such step. A real platform
//! answers `false` and the question compiles to nothing; the simulated machine can answer `true` for one
//! rule, and then a stale access must be seen. `Rule` is also the index of the tests.

macro_rules! rules {
    ($($variant:ident, $name:literal, $invariant:literal, $about:literal;)*) => {
        /// A step that an invariant rests on.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[repr(u8)]
        #[non_exhaustive]
        pub enum Rule { $(#[doc = $about] $variant,)* }

        impl Rule {
            /// All of them, in the order of the documents.
            pub const ALL: &'static [Rule] = &[$(Rule::$variant,)*];

            /// The name on the command line.
            pub const fn name(self) -> &'static str {
                match self { $(Rule::$variant => $name,)* }
            }

            /// By its name.
            pub fn parse(name: &str) -> Option<Rule> {
                Self::ALL.iter().copied().find(|rule| rule.name() == name)
            }

            /// The invariant that rests on it.
            pub const fn invariant(self) -> &'static str {
                match self { $(Rule::$variant => $invariant,)* }
            }

            /// What the step is, in one line.
            pub const fn about(self) -> &'static str {
                match self { $(Rule::$variant => $about,)* }
            }
        }
    };
}

rules! {
    FlushBeforeFree, "flush-before-free", "INV-1",
        "flush every CPU that may hold an unmapped page before its frame is freed";
    FlushBeforeUnmapReturns, "flush-before-unmap-returns", "INV-4",
        "flush the unmapped range before unmap returns to its caller";
    DeferredBeforeUnmapReturns, "deferred-before-unmap-returns", "INV-4",
        "complete the flush that reclaim deferred for this space before unmap returns";
    FlushBeforeIo, "flush-before-io", "INV-2",
        "flush a page that was writable before its content is written out";
    AcknowledgeAfterFlush, "acknowledge-after-flush", "INV-5",
        "acknowledge a flush request after the flush, not before (here: the flush is left to a later request)";
    LazyReturnFlush, "lazy-return-flush", "INV-6",
        "compare generations when a CPU leaves lazy mode, and flush if it missed one";
    GenerationBeforeMask, "generation-before-mask", "INV-6",
        "raise the space's generation before its CPU mask is read";
    MaskBeforeGeneration, "mask-before-generation", "INV-6",
        "enter the space's CPU mask before its generation is read";
    SwitchFlush, "switch-flush", "INV-6",
        "flush a space's tag on the way in when its generation has moved on";
    TablesToLazy, "tables-to-lazy", "INV-9",
        "make lazy CPUs leave a space before its page tables are freed";
    ServeWhileWaiting, "serve-while-waiting", "INV-8",
        "keep serving flush requests while waiting with interrupts off";
    AtomicAccessedClear, "atomic-accessed-clear", "INV-10",
        "clear the accessed bit in one atomic step";
    RefaultAfterFlush, "refault-after-flush", "INV-12",
        "complete the deferred flush of an address before it is mapped again";
    FreezeBeforeFree, "freeze-before-free", "INV-1",
        "take a page from the page cache only when nobody else holds it";
    OfflineLeavesMasks, "offline-leaves-masks", "INV-6",
        "let go of the space, and leave its mask, before a CPU goes offline";
    OnlineStartsEmpty, "online-starts-empty", "INV-6",
        "forget all tags when a CPU comes online (here: they are taken for empty, and so for up to date)";
    LeaveMaskAfterLoad, "leave-mask-after-load", "INV-9",
        "leave the old space's CPU mask only after the new root is loaded";
    WaitForAcknowledgement, "wait-for-acknowledgement", "INV-5",
        "wait until every CPU that was asked to flush has acknowledged";
    WholeGeneration, "whole-generation", "INV-6",
        "compare generations whole when a CPU comes back (here: their low 8 bits)";
}

impl core::fmt::Display for Rule {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique() {
        for (i, a) in Rule::ALL.iter().enumerate() {
            assert!(Rule::ALL[i + 1..].iter().all(|b| a.name() != b.name()));
            assert_eq!(*a as usize, i);
        }
    }
}
