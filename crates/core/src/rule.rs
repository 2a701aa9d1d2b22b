//! The steps that invariants rest on, by name, so that each can be left out to see what follows.
//!
//! The core asks [`Hooks::broken`](crate::platform::Hooks::broken) at each such step. A real platform
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
    WaitForWhoFlushes, "wait-for-who-flushes", "INV-4",
        "wait until whoever flushes a space at the moment has flushed for this unmap too";
    FlushedIsWhatWasTaken, "flushed-is-what-was-taken", "INV-4",
        "count who asked before a flush of several unmaps began, not who asks during it, as flushed";
    ClaimWhatIsDropped, "claim-what-is-dropped", "INV-1",
        "claim a table under which a drop takes pages out, so that no other drop lets go of them before they are flushed";
    FaultWaitsForDrop, "fault-waits-for-drop", "INV-1",
        "let a fault that finds what a drop has taken out wait until that has let go of the page";
    LeavingIsUnmapped, "leaving-is-unmapped", "INV-4",
        "refuse a fault in a VMA that is being unmapped";
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
    SlotHeldWhileRead, "slot-held-while-read", "INV-2",
        "keep a swap slot while its page is being read back, though no entry names it any more";
    LargeAgingFlushes, "large-aging-flushes", "none",
        "flush a large page whose accessed bit aging clears, whatever the policy";
    StampWhatIsCleared, "stamp-what-is-cleared", "INV-13",
        "stamp an entry whose accessed bit is cleared (here: with a sweep that is over)";
    EpochAgainAfterClear, "epoch-again-after-clear", "INV-13",
        "look again which sweep is the last once the accessed bit is clear: one may have begun before";
    StampsOfTwoSweeps, "stamps-of-two-sweeps", "INV-13",
        "take the stamps of the next two sweeps for unswept (here: only of the next)";
    CountEveryCpu, "count-every-cpu", "INV-13",
        "take a sweep for over only when each CPU has flushed";
    FlushBeforeSwept, "flush-before-swept", "INV-13",
        "note that a CPU has taken part in a sweep after its flush (here: the flush is left to the next sweep)";
    LazyReturnSweep, "lazy-return-sweep", "INV-13",
        "take part in the sweeps that went by when a CPU leaves lazy mode";
    TakeWhatWasJudged, "take-what-was-judged", "INV-13",
        "take an entry out without a flush only if it still says what was judged";
    ParkUntilSwept, "park-until-swept", "INV-14",
        "free a parked page only when its sweep is over";
    ParkedAddressFlushed, "parked-address-flushed", "INV-14",
        "flush a parked page's address before anything else is mapped there, if its sweep is not over";
    SyncBroadcast, "sync-broadcast", "INV-1",
        "wait until all CPUs have carried out a flush by broadcast before anything that it flushed is let go";
    DeferredWidensBroadcast, "deferred-widens-broadcast", "INV-4",
        "flush the whole space by broadcast, not only a range, where reclaim has deferred a flush in it";
    BroadcastGlobals, "broadcast-globals", "INV-3",
        "flush global entries too by a broadcast that is for kernel addresses";
    SplitWhole, "split-whole", "INV-1",
        "finish the table that takes a large page's place before reclaim can find it there";
    CacheUntilFlush, "cache-until-flush", "INV-12",
        "keep a clean page in its cache, a file's or that of swap, until its entries are flushed";
    SwapInLocks, "swap-in-locks", "INV-12",
        "wait for a page of the swap cache that is being reclaimed, written out or read, before it is mapped";
    KeepWhatFailed, "keep-what-failed", "INV-2",
        "keep a page in memory, and dirty, when the device did not take it";
    FlushBeforeProtectReturns, "flush-before-protect-returns", "INV-4",
        "flush the range whose rights were taken away before protect returns";
    FlushBeforeForkReturns, "flush-before-fork-returns", "INV-4",
        "flush what is read-only from now on before fork returns";
    FlushBeforeMove, "flush-before-move", "INV-4",
        "flush the old addresses before the pages appear at the new ones";
    FlushBeforeDropReturns, "flush-before-drop-returns", "INV-4",
        "flush a range whose content is given up before its frames are let go";
    FlushBeforeMigrate, "flush-before-migrate", "INV-2",
        "flush a page that moves to another frame before it is copied";
    ContentBeforeFound, "content-before-found", "INV-12",
        "keep whoever finds a page of a cache in its new frame waiting until its content is there";
    MovedStaysDirty, "moved-stays-dirty", "INV-2",
        "have a page that moves to another frame stay dirty, if its file, or its slot, has older content";
    FlushBeforeCollapse, "flush-before-collapse", "INV-2",
        "flush small pages before they are copied into a large one";
    CollapseIsAlone, "collapse-is-alone", "INV-12",
        "have the reverse map alone while small pages, and their table, are taken out for a large one";
    LargeFileLocks, "large-file-locks", "INV-12",
        "lock the pages of a file while a large entry comes that shows them";
    FlushNarrowed, "flush-narrowed", "INV-1",
        "flush a read-only entry too before its page moves and its old frame is freed";
    FlushBeforeCopyMaps, "flush-before-copy-maps", "INV-12",
        "flush the old frame's address before a write fault maps its copy there";
    TakenIsMapped, "taken-is-mapped", "INV-2",
        "flush before write-back a space in which an operation has taken entries out and not flushed yet";
    CleanProtects, "clean-protects", "INV-11",
        "clear a dirty bit only together with the right to write, and flush";
    FlushWritable, "flush-writable", "INV-2",
        "flush a clean entry too from which write-back takes the right to write: a write may have begun";
    WriteWaitsForIo, "write-waits-for-io", "INV-2",
        "let no fault give the right to write to a page that is being written out";
    DirtyBeforeUnlock, "dirty-before-unlock", "INV-2",
        "move an entry's dirty bit to its page before the table's lock is dropped";
    NoteWhatWasFlushed, "note-what-was-flushed", "INV-4",
        "note as flushed the generation that the flush covered, not what others deferred meanwhile";
    TablesBeforeVictim, "tables-before-victim", "none",
        "give page tables in which nothing is left back before the embedding kernel is asked for a victim";
    EmptiedIsAlone, "emptied-is-alone", "INV-9",
        "have the reverse map alone while a table in which nothing is left is taken out from under what stays mapped";
    TablesAfterFlush, "tables-after-flush", "INV-9",
        "free page tables only after a flush that lazy CPUs hear too";
    WalkBeforeIo, "walk-before-io", "INV-2",
        "look for the entries of a dirty page before it is written out even if it seems to have none";
    RewalkAfterMerge, "rewalk-after-merge", "INV-2",
        "begin a reverse-map walk anew when VMAs were merged while it gave way: what they show may lie behind it";
    WaitUntilInsideLeave, "wait-until-inside-leave", "INV-4",
        "wait until the faults in a VMA have left it before it is changed";
    LookAgainInside, "look-again-inside", "INV-4",
        "look whether a VMA that a CPU remembers still holds the page, once nobody can change it";
    LookForVisibleReaders, "look-for-visible-readers", "INV-4",
        "wait for those who share a space's VMAs without being counted before the VMAs are changed";
    RetryLooksAnew, "retry-looks-anew", "INV-4",
        "look anew what an address shows when a fault has read a page with the VMAs of its space let go";
    AskGuarantees, "ask-guarantees", "INV-2",
        "refuse a policy whose architecture guarantee the machine does not declare";
    OfflineLeavesMasks, "offline-leaves-masks", "INV-6",
        "let go of the space, and leave its mask, before a CPU goes offline";
    OnlineStartsEmpty, "online-starts-empty", "INV-6",
        "forget all tags when a CPU comes online (here: they are taken for empty, and so for up to date)";
    LeaveMaskAfterLoad, "leave-mask-after-load", "INV-9",
        "leave the old space's CPU mask only after the new root is loaded";
    EndBeforeMask, "end-before-mask", "INV-9",
        "mark a space as ending before its CPU mask is read, to see whether it is used";
    LifeAfterMask, "life-after-mask", "INV-9",
        "look whether a space has ended once its CPU mask is entered, and do not load it then";
    LifeAfterLazy, "life-after-lazy", "INV-9",
        "look whether the loaded space has ended when a CPU leaves lazy mode, and unload it then";
    WaitForAcknowledgement, "wait-for-acknowledgement", "INV-5",
        "wait until every CPU that was asked to flush has acknowledged";
    OwnDrainSet, "own-drain-set", "INV-7",
        "gather the CPUs to drain in a set that no other drain writes into";
    ForceAsksAll, "force-asks-all", "INV-7",
        "ask every CPU when a drain must be certain, whether it seems to hold frames or not";
    OfflineDrainsLists, "offline-drains-lists", "INV-7",
        "give back the frames on a CPU's lists before it goes offline";
    DrainInChunks, "drain-in-chunks", "latency",
        "hold a zone's lock for a bounded number of drained frames at a time";
    CountWithList, "count-with-list", "INV-7",
        "take a list's count together with its frames";
    TakeBack, "take-back", "INV-8",
        "take a request back from a CPU that has gone offline and will never see it";
    LimitsAtPush, "limits-at-push", "INV-7",
        "read a list's limits where frames are put on it, not before";
    RemoteTakesLock, "remote-takes-lock", "INV-7",
        "take a CPU's lock before its lists are emptied from elsewhere";
    WholeGeneration, "whole-generation", "INV-6",
        "compare generations whole when a CPU comes back (here: their low 8 bits)";
    FlushBeforeReuse, "flush-before-reuse", "INV-3",
        "flush every CPU before an unmapped kernel address is free again";
    KernelFlushToLazy, "kernel-flush-to-lazy", "INV-3",
        "flush kernel addresses on lazy CPUs too: the kernel uses them there";
    OnlineFlushesKernel, "online-flushes-kernel", "INV-3",
        "flush all kernel addresses when a CPU comes online";
    NextKernelSweep, "next-kernel-sweep", "INV-3",
        "let what is unmapped wait for the next sweep of kernel addresses that begins (here: for the last that has begun)";
    KernelSweepCountsAll, "kernel-sweep-counts-all", "INV-3",
        "take a sweep of kernel addresses for over only when each CPU has flushed, the lazy ones too";
    FlushBeforeKernelSwept, "flush-before-kernel-swept", "INV-3",
        "note that a CPU has taken part in a sweep of kernel addresses after its flush (here: that is left out)";
    IdleReturnSweep, "idle-return-sweep", "INV-3",
        "take part in the sweeps of kernel addresses that went by when a CPU leaves the idle loop";
    AliasesBeginSweep, "aliases-begin-sweep", "INV-3",
        "begin a sweep for who must be certain, even if one is under way, in which some CPUs have taken part before";
    FramesWaitForPurge, "frames-wait-for-purge", "INV-1",
        "free the frames of a kernel range only after its flush";
    PinnedIsMapped, "pinned-is-mapped", "INV-15",
        "leave a pinned page in its tables, where reclaim and migrations look for pages to take or to move";
    ForkCopiesPinned, "fork-copies-pinned", "INV-15",
        "copy a page that is pinned for the child of a fork, so that its owner never has to";
    PinOwnPage, "pin-own-page", "INV-15",
        "copy a page of a space's own that others have too before it is pinned";
    DirtyBeforeUnpin, "dirty-before-unpin", "INV-15",
        "note that a page was written to before a pin by which it may be is let go";
    CutStaysClean, "cut-stays-clean", "INV-15",
        "make no page dirty that was cut off its file while it was pinned";
    LookForCut, "look-for-cut", "INV-12",
        "look under the table's lock whether a page of a file has been cut off, before it is mapped";
    AroundLooksAtPages, "around-looks-at-pages", "INV-12",
        "map a page that lies beside one that is wanted only if nobody works on it, or has cut it off";
    CutPagesAreUnmapped, "cut-pages-are-unmapped", "INV-12",
        "take every entry of a page out, and flush, before it leaves its file's cache though others hold it";
    ClosedWhileDiscarded, "closed-while-discarded", "none",
        "let no page of a hole into the cache until the device knows of the hole";
    ContentBeforeLength, "content-before-length", "none",
        "make a file longer only with what is written there: a program that maps it would find zeros, and what it stores would be written over";
    BegunDropEnds, "begun-drop-ends", "none",
        "drop what is left of a range of which a part was dropped, though others have unmapped some of it meanwhile, and do not say that it is not mapped";
    StackGap, "stack-gap", "none",
        "leave room between a mapping that grows downwards and the one below it";
    LockedStays, "locked-stays", "none",
        "leave every page in memory that a locked range shows";
    AskBeforeWrite, "ask-before-write", "none",
        "ask the file system before a page of a file that it watches becomes writable in a shared mapping";
    MovedIsReadOnly, "moved-is-read-only", "none",
        "take the right to write from an entry that moves, if its page was written out on the way and its file system asks to know";
    WriteLocksPage, "write-locks-page", "INV-2",
        "lock a page of the cache before the kernel writes to it: a device may be reading it";
    AliasesInFullBlocks, "aliases-in-full-blocks", "INV-3",
        "flush what was unmapped in a block that has no room left, and still has maps";
    ForgetWhatWasFlushed, "forget-what-was-flushed", "none",
        "forget the slots of a block that were unmapped once they are flushed";
    NextBeforeRelease, "next-before-release", "INV-3",
        "read the next extent of a purge before this one is given back";
    CountBeforeWaiting, "count-before-waiting", "none",
        "count what waits for a purge before a purge can find it";
    WaitForPurge, "wait-for-purge", "none",
        "wait for a running purge before saying that no address is free";
    GiveBackWhatFailed, "give-back-what-failed", "none",
        "give the addresses back when their tables or frames cannot be had";
    EmptyBlocksGoBack, "empty-blocks-go-back", "none",
        "give the addresses of a block back when nothing in it is mapped any more";
    GuardPage, "guard-page", "none",
        "leave the page after a kernel range unmapped where that was asked for";
    ExactFit, "exact-fit", "none",
        "look into holes that are long enough only if they lie well, where no other is left";
    BoundedHold, "bounded-hold", "none",
        "let go of a shard's lock after some extents of a purge";
    ClaimBeforeAddress, "claim-before-address", "INV-3",
        "read where a block lies only after a slot of it was claimed";
    ForgetRefusals, "forget-refusals", "none",
        "flush the page of a fault on the CPU that faulted, where the hardware keeps that it refused the access";
    StocksBeforeRefusal, "stocks-before-refusal", "none",
        "take back what CPUs may hand out of a group before its pages are reclaimed, or nobody gets more";
    ListsBeforeRefusal, "lists-before-refusal", "none",
        "put pages of a group that CPUs have on their way to its lists there before anybody is refused one";
    BackIsDirty, "back-is-dirty", "none",
        "make a page of a memory file dirty when it comes back from swap: nothing else has its content then";
    BackInsideFile, "back-inside-file", "none",
        "let no page of a memory file come back from swap to where the file has been cut, or gets a hole";
    WriteBackAtLimit, "write-back-at-limit", "none",
        "write some pages back before another becomes dirty, where as many are as may be";
    AddedOnce, "added-once", "none",
        "tell one of two that their block of memory has come, when both say so at once";
    CheckRequest, "check-request", "none",
        "refuse a length or an alignment that makes no sense";
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
