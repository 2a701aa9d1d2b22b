/* quietmm: a memory manager for machines with many CPUs that leaves other CPUs alone.
 *
 * The kernel fills `struct quietmm_platform`, hands over memory with `quietmm_init`, and has page frames, address spaces, files, kernel
 * addresses, swap, reclaim, and the TLB flushes that these need. docs/embedding.md is the guide, examples/c a program that does it.
 *
 * In comments "on" and "off" are interrupts on this CPU when a function is called. "It may wait": it calls the platform's `wait`, or waits for
 * other CPUs; then interrupts are on, no spin lock is held, and the stack is a task's. "Any context but a handler" is also with
 * spin locks of the kernel's own held, but not inside an interrupt handler: that may have come while its CPU holds a lock of the core's.
 *
 * Most functions answer with `enum quietmm_error`; after an error nothing has changed, unless it says otherwise, and what an answer would
 * have gone to is as it was. The pointer to the manager is one that `quietmm_init` has given. Pointers for answers are not NULL, unless it says
 * that they may be.
 *
 * No panic leaves the library. It does not panic on input. Where it finds itself at fault, or a platform that breaks its promise, it calls
 * `quietmm_panicked`, which the kernel brings.
 */

#ifndef QUIETMM_H
#define QUIETMM_H

/* Made by cbindgen from crates/capi/src: change it there. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// The kernel brings this: the core cannot go on, and `what` says why. Any context, with any locks held. It does not return.
#ifdef __cplusplus
extern "C"
#endif
void quietmm_panicked(const char *what) __attribute__((noreturn));

// No node in particular: that of this CPU first.
#define QUIETMM_ANY_NODE 65535

// What came of a call. Numbers keep their meaning; new ones come at the end.
//
// After an error nothing has changed, unless the call says otherwise.
enum quietmm_error {
    // It is done.
    QUIETMM_ERROR_OK = 0,
    // No frame could be had, not even by reclaim.
    QUIETMM_ERROR_OUT_OF_MEMORY = 1,
    // As many spaces, mappings or files exist as the core can name.
    QUIETMM_ERROR_TOO_MANY = 2,
    // No memory was handed over, or too little for the bookkeeping.
    QUIETMM_ERROR_TOO_LITTLE_MEMORY = 3,
    // Two regions overlap, or one is empty or reaches beyond 8 TiB; or one that may come later is not of whole blocks of 1024 frames.
    QUIETMM_ERROR_BAD_REGION = 4,
    // More CPUs than 4096 or none, or a node beyond 63.
    QUIETMM_ERROR_BAD_TOPOLOGY = 5,
    // A setting is out of its range.
    QUIETMM_ERROR_BAD_SETTING = 6,
    // The policy needs a guarantee that the platform does not declare, or hardware that it does not have.
    QUIETMM_ERROR_GUARANTEE_MISSING = 7,
    // Not a live address space.
    QUIETMM_ERROR_NO_SUCH_SPACE = 8,
    // Not a live file.
    QUIETMM_ERROR_NO_SUCH_FILE = 9,
    // The range is empty, reaches beyond user addresses, or wraps.
    QUIETMM_ERROR_BAD_RANGE = 10,
    // No program may map this page.
    QUIETMM_ERROR_NOT_MAPPABLE = 11,
    // What is asked of the file lies beyond its end.
    QUIETMM_ERROR_BEYOND_FILE = 12,
    // Something is mapped there already.
    QUIETMM_ERROR_OVERLAPS = 13,
    // The space has as many mappings as it may.
    QUIETMM_ERROR_MAP_COUNT = 14,
    // Nothing is mapped there.
    QUIETMM_ERROR_NOT_MAPPED = 15,
    // The mapping does not allow this access.
    QUIETMM_ERROR_NOT_PERMITTED = 16,
    // A CPU still runs in this space, a mapping still uses this file, or another block of the region is on its way
    // offline.
    QUIETMM_ERROR_BUSY = 17,
    // The frame is not managed by the core.
    QUIETMM_ERROR_NO_SUCH_FRAME = 18,
    // The frame is not allocated in a block of this order: a double free, or a wrong order.
    QUIETMM_ERROR_NOT_ALLOCATED = 19,
    // An order above 10.
    QUIETMM_ERROR_BAD_ORDER = 20,
    // Not the start of a block of memory that could go offline, or come.
    QUIETMM_ERROR_BAD_BLOCK = 21,
    // The frame can never be freed: it holds the core's bookkeeping.
    QUIETMM_ERROR_NOT_MOVABLE = 22,
    // A node that does not exist.
    QUIETMM_ERROR_NO_SUCH_NODE = 23,
    // The device could not read the page.
    QUIETMM_ERROR_DEVICE = 24,
    // The swap device that has this page cannot give it back.
    QUIETMM_ERROR_SWAP_DEVICE = 25,
    // Swap was not asked for in the configuration.
    QUIETMM_ERROR_NO_SWAP = 26,
    // Not a swap device that is in use, or one that is already.
    QUIETMM_ERROR_NO_SUCH_SWAP_DEVICE = 27,
    // No kernel range was given in the configuration.
    QUIETMM_ERROR_NO_KERNEL_RANGE = 28,
    // An alignment that is not a power of two, or larger than the kernel range.
    QUIETMM_ERROR_BAD_ALIGNMENT = 29,
    // No run of kernel addresses is long enough, not even after a purge.
    QUIETMM_ERROR_NO_ADDRESS = 30,
    // The kernel pages from here on were not mapped by the call that this one belongs to.
    QUIETMM_ERROR_WRONG_RELEASE = 31,
    // This CPU is offline, or has never come online.
    QUIETMM_ERROR_NOT_ONLINE = 32,
    // This CPU is online already.
    QUIETMM_ERROR_ALREADY_ONLINE = 33,
    // Interrupts must be on: this policy waits for other CPUs here.
    QUIETMM_ERROR_NEEDS_INTERRUPTS = 34,
    // A device may not write to this page for an unbounded time: it is a file's.
    QUIETMM_ERROR_NOT_PINNABLE = 35,
    // The page has as many pins as can be counted.
    QUIETMM_ERROR_TOO_MANY_PINS = 36,
    // Pages may not be written and executed at once.
    QUIETMM_ERROR_WRITE_AND_EXECUTE = 37,
    // The file system lets nobody write to the page of its file.
    QUIETMM_ERROR_WRITE_REFUSED = 38,
    // Groups were not asked for in the configuration.
    QUIETMM_ERROR_NO_GROUPS = 39,
    // Not a live group.
    QUIETMM_ERROR_NO_SUCH_GROUP = 40,
    // The space's group is charged with all the memory that it may have, and none of it could be reclaimed.
    QUIETMM_ERROR_LIMIT_REACHED = 41,
    // These 2 MiB cannot be a large page: a page is pinned, or not all of it is one mapping of the program's own memory.
    QUIETMM_ERROR_NOT_COLLAPSIBLE = 42,
    // The block of memory came already, or was here from the start.
    QUIETMM_ERROR_ALREADY_HERE = 43,
    // An error that this header does not know yet.
    QUIETMM_ERROR_OTHER = 255,
    // The storage is too small, or not aligned: see `quietmm_storage_size`.
    QUIETMM_ERROR_BAD_STORAGE = 256,
    // A function of the platform is missing that the core cannot do without.
    QUIETMM_ERROR_NO_CALLBACK = 257,
    // Not the name of a policy.
    QUIETMM_ERROR_BAD_POLICY = 258,
    // A number that none of its enum's values has.
    QUIETMM_ERROR_BAD_VALUE = 259,
    // No counter has this name.
    QUIETMM_ERROR_NO_SUCH_COUNTER = 260,
};

// What a program or the kernel tries to do with a page.
enum quietmm_access {
    // Read.
    QUIETMM_ACCESS_READ = 0,
    // Write.
    QUIETMM_ACCESS_WRITE = 1,
    // Fetch an instruction.
    QUIETMM_ACCESS_EXECUTE = 2,
};

// How page tables are written.
enum quietmm_architecture {
    // x86-64 with four levels.
    QUIETMM_ARCHITECTURE_X86_64 = 0,
    // RISC-V's Sv48, where a fault sets accessed and dirty bits.
    QUIETMM_ARCHITECTURE_SV48 = 1,
    // The same, where hardware sets them (Svadu).
    QUIETMM_ARCHITECTURE_SV48_ADU = 2,
};

// What the translation hardware guarantees beyond the necessary, as bits. A wrong one costs memory safety.
enum quietmm_guarantee {
    // A write through a cached entry whose dirty bit is clear walks the table again, and faults if the entry is gone. x86-64 does.
    QUIETMM_GUARANTEE_CLEAN_WRITE_WALKS = 1,
    // An accessed bit that is cleared without a flush does no worse than stay clear while the entry is cached. x86-64.
    QUIETMM_GUARANTEE_UNFLUSHED_ACCESSED = 2,
    // A CPU caches no entry of a page whose accessed bit is clear, and sets it in a step that fails where the entry has changed.
    QUIETMM_GUARANTEE_ACCESSED_BEFORE_CACHED = 4,
};

// The kinds of what somebody waits for. Two keys are the same where all three fields are.
enum quietmm_wait_kind {
    // A node's kswapd has work.
    QUIETMM_WAIT_KIND_KSWAPD = 0,
    // The readers of a sleeping lock have left it.
    QUIETMM_WAIT_KIND_LOCK = 1,
    // The writer of a sleeping lock has left it.
    QUIETMM_WAIT_KIND_READERS = 2,
    // The turn of one writer of a sleeping lock.
    QUIETMM_WAIT_KIND_TURN = 3,
    // A page that is being reclaimed or written out.
    QUIETMM_WAIT_KIND_PAGE = 4,
    // Enough of the kernel range waits for a purge.
    QUIETMM_WAIT_KIND_VMAP_PURGE = 5,
    // Fewer pages are being written out.
    QUIETMM_WAIT_KIND_PAGE_OUT = 6,
    // Something of the platform's own.
    QUIETMM_WAIT_KIND_OWN = 7,
    // Too many pages of files are dirty.
    QUIETMM_WAIT_KIND_FLUSHER = 8,
};

// What a frame is used for.
enum quietmm_kind {
    // The kernel's own, or the core's.
    QUIETMM_KIND_KERNEL = 4,
    // A page table.
    QUIETMM_KIND_TABLE = 5,
    // Memory of a space's own.
    QUIETMM_KIND_ANON = 6,
    // A page of a file.
    QUIETMM_KIND_FILE = 7,
};

// The kinds of flushes on every CPU.
enum quietmm_everywhere_kind {
    // Pages of one space, of whatever size their entries are, and all that CPUs keep of the tables on the way to them.
    QUIETMM_EVERYWHERE_KIND_PAGES = 0,
    // All of one space, and of its tables.
    QUIETMM_EVERYWHERE_KIND_SPACE = 1,
    // All of every space, and of their tables.
    QUIETMM_EVERYWHERE_KIND_SPACES = 2,
    // Pages of the kernel range, whose entries are global.
    QUIETMM_EVERYWHERE_KIND_KERNEL_PAGES = 3,
    // All of the kernel range.
    QUIETMM_EVERYWHERE_KIND_KERNEL = 4,
};

// What came of a transfer.
enum quietmm_io {
    // It is done.
    QUIETMM_IO_DONE = 0,
    // Not this block, not this time.
    QUIETMM_IO_FAILED = 1,
    // The device is not there any more.
    QUIETMM_IO_GONE = 2,
};

// The kinds of what keeps pages.
enum quietmm_store_kind {
    // A file.
    QUIETMM_STORE_KIND_FILE = 0,
    // A swap device.
    QUIETMM_STORE_KIND_SWAP = 1,
};

// The kinds of policies for nodes.
enum quietmm_node_policy_kind {
    // On the node of the CPU that touches them, or the nearest that has memory: what a space begins with.
    QUIETMM_NODE_POLICY_KIND_LOCAL = 0,
    // On the one node that is named, or the nearest to it that has memory.
    QUIETMM_NODE_POLICY_KIND_PREFERRED = 1,
    // On these, and on no other: if no memory comes there, a fault is OUT_OF_MEMORY.
    QUIETMM_NODE_POLICY_KIND_BIND = 2,
    // On these by turns, one page after the other.
    QUIETMM_NODE_POLICY_KIND_INTERLEAVE = 3,
};

// What may be done with a page.
enum quietmm_protection {
    // Nothing: its content is kept.
    QUIETMM_PROTECTION_NONE = 0,
    // Read.
    QUIETMM_PROTECTION_READ = 1,
    // Read and write.
    QUIETMM_PROTECTION_READ_WRITE = 2,
    // Read and execute.
    QUIETMM_PROTECTION_READ_EXECUTE = 3,
    // All of it, unless `write_xor_execute` forbids it.
    QUIETMM_PROTECTION_READ_WRITE_EXECUTE = 4,
};

// The kinds of what is behind a range.
enum quietmm_backing_kind {
    // Memory of the space's own, zeros at first.
    QUIETMM_BACKING_KIND_ANONYMOUS = 0,
    // A file's pages, shared with all who map it.
    QUIETMM_BACKING_KIND_FILE = 1,
    // A file's pages, and copies of the space's own of those that it writes.
    QUIETMM_BACKING_KIND_PRIVATE = 2,
};

// What a space is told about a range.
enum quietmm_advised {
    // The content is not wanted any more (MADV_DONTNEED).
    QUIETMM_ADVISED_DROP = 0,
    // Large pages, where they can be had (MADV_HUGEPAGE).
    QUIETMM_ADVISED_LARGE = 1,
    // Small pages only (MADV_NOHUGEPAGE).
    QUIETMM_ADVISED_SMALL = 2,
    // It will be wanted soon (MADV_WILLNEED).
    QUIETMM_ADVISED_WILL_NEED = 3,
    // It will not be wanted soon (MADV_COLD).
    QUIETMM_ADVISED_COLD = 4,
    // It goes to its devices now (MADV_PAGEOUT).
    QUIETMM_ADVISED_PAGE_OUT = 5,
    // It is wanted now, for reading (MADV_POPULATE_READ).
    QUIETMM_ADVISED_POPULATE_READ = 6,
    // It is wanted now, for writing (MADV_POPULATE_WRITE).
    QUIETMM_ADVISED_POPULATE_WRITE = 7,
    // The content is not wanted any more, unless it is written again before memory is short (MADV_FREE).
    QUIETMM_ADVISED_FREE = 8,
    // Small pages become large ones now (MADV_COLLAPSE).
    QUIETMM_ADVISED_COLLAPSE = 9,
};

// How an allocation looks for frames.
enum quietmm_look {
    // Nobody waits: any context but a handler.
    QUIETMM_LOOK_NOW = 0,
    // It may wait while pages are reclaimed for it: on, no spin lock.
    QUIETMM_LOOK_MAY_RECLAIM = 1,
};

// What the kernel may do with its pages.
enum quietmm_kernel_protection {
    // Read.
    QUIETMM_KERNEL_PROTECTION_READ = 0,
    // Read and write.
    QUIETMM_KERNEL_PROTECTION_READ_WRITE = 1,
    // Read and execute.
    QUIETMM_KERNEL_PROTECTION_READ_EXECUTE = 2,
};

// How long pins last.
enum quietmm_pin_term {
    // For an I/O that ends by itself.
    QUIETMM_PIN_TERM_SHORT = 0,
    // For as long as a program likes.
    QUIETMM_PIN_TERM_LONG = 1,
};

// How far a block of memory is on its way.
enum quietmm_block_state {
    // It is in use, or it is not known.
    QUIETMM_BLOCK_STATE_ONLINE = 0,
    // Nothing is allocated from it any more.
    QUIETMM_BLOCK_STATE_LEAVING = 1,
    // The kernel may take it away.
    QUIETMM_BLOCK_STATE_OFFLINE = 2,
};

// The memory manager. It lies in the storage that `quietmm_init` was given, for ever.
struct quietmm;

// A half-open range of virtual pages: addresses divided by 4096.
struct quietmm_range {
    // The first page.
    uint64_t first;
    // How many.
    uint64_t pages;
};

// What is chosen when the manager is made: `quietmm_config` fills it with Linux's settings, and what differs is set then.
struct quietmm_config {
    // The policy of every mechanism: "vanilla", "linux", "quiet", and what differs: "linux+drain=remote+vmap=lazy".
    const char *policy;
    // Kernel pages that the core may give out, in the upper half of addresses. No pages: none.
    struct quietmm_range vmap;
    // Parts of that range with locks of their own: 1 to 4096. 0: one for each CPU, of 64 MiB at least.
    uint32_t vmap_shards;
    // Kernel pages that are unmapped and wait, before a purge is asked for. 0: by the CPUs that are online.
    uint64_t vmap_lazy;
    // Pages that a CPU gathers before it puts them on an LRU list: 1 to 64.
    uint32_t lru_batch;
    // Pages that one scan looks at and one unmap batch takes: 1 to 64.
    uint32_t scan_batch;
    // Pages above which a flush takes everything: at least 1.
    uint32_t flush_ceiling;
    // Frames that go from a zone to a CPU's list, or back, at a time: 1 to 63. 0: by the size of the zone.
    uint32_t page_list_batch;
    // With a batch: more frames on a list than this, and a batch goes back. 0: none is kept on lists.
    uint32_t page_list_high;
    // Frames kept free in all zones together. 0: by the size of memory.
    uint32_t min_free;
    // Pages that may be on their way to devices before tasks that reclaim must wait: at least 1.
    uint32_t pageout_limit;
    // Mappings that a space may have: at least 1.
    uint32_t max_map_count;
    // Pages of the largest window that is read ahead of a sequential use of a file: 0 for none, or a power of two up to 512. Linux: 32.
    uint32_t read_ahead;
    // Pages of the aligned window in which a read fault maps what is in a file's cache: a power of two up to 64. Linux: 16.
    uint32_t fault_around;
    // The most groups of spaces that there may be at once, up to 65536. 0: none, which costs nothing.
    uint32_t groups;
    // Dirty pages of files above which `quietmm_flusher` writes some back. 0: it does not look at their number.
    uint64_t dirty_background;
    // Dirty pages of files at which who writes to one more writes some back first. 0: no limit.
    uint64_t dirty_limit;
    // How long a page of a file may be dirty before `quietmm_flusher` writes it back, in nanoseconds. 0: it does not look at their age.
    uint64_t dirty_expire;
    // How much a task does in the core before it calls `cond_resched`, in looks at page-table entries: at least 1.
    uint32_t resched_after;
    // How long a sweep is waited for before CPUs that have not taken part are interrupted, in nanoseconds.
    uint64_t sweep_deadline;
    // Reclaim remembers which pages it took: 4 bytes for each frame.
    bool shadows;
    // Memory of a space's own may be reclaimed: `quietmm_swap_on` is allowed.
    bool swap;
    // `quietmm_vmap_free` frees frames before their addresses are flushed, as Linux does: a CPU may still use them.
    bool vfree_at_once;
    // No mapping may be written and executed at once.
    bool write_xor_execute;
};

// A run of memory that is handed over, or may come later.
struct quietmm_region {
    // Its first frame: its physical address, divided by 4096.
    uint32_t start;
    // How many frames.
    uint32_t frames;
    // Its node.
    uint16_t node;
};

// What somebody waits for.
struct quietmm_wait_key {
    // One of `enum quietmm_wait_kind`.
    uint32_t kind;
    // The ticket, of a turn.
    uint32_t ticket;
    // The node, lock, frame, or the platform's own number.
    uint64_t what;
};

// A group of spaces. It names this one only: once it has ended every call gets NO_SUCH_GROUP, for ever. All zeros is none.
struct quietmm_group {
    // Which use of the place this is.
    uint64_t life;
    // A small number, from 1 on, that no other living group has; a later one may.
    uint32_t slot;
};

// What could not be had.
struct quietmm_shortage {
    // One of `enum quietmm_kind`.
    uint32_t kind;
    // log2 of the frames in the block.
    uint32_t order;
    // The node that was asked first; all others were asked too, but for those on which the page may not come.
    uint32_t node;
    // Those on which it may come, bit n for node n: a victim that has memory on none of them is of no use.
    uint64_t nodes;
    // The group that has all that it may have, where that is what is short: a victim is to be found in it. All zeros: memory is short.
    struct quietmm_group group;
};

// How much of what the kernel keeps for itself is to go: `scanned` of `pages`, rounded up.
struct quietmm_shrink {
    // The node on which memory is short. Frames of others are welcome too.
    uint32_t node;
    // So many pages of programs and files were looked at,
    uint64_t scanned;
    // out of so many. At least one.
    uint64_t pages;
};

// What is flushed on every CPU.
struct quietmm_everywhere {
    // One of `enum quietmm_everywhere_kind`.
    uint32_t kind;
    // The frame of the space's top table, where it is about one space.
    uint32_t root;
    // The pages, where it is about some.
    struct quietmm_range range;
};

// A file. It names this one only: once it has ended every call gets NO_SUCH_FILE, for ever. All zeros is none.
struct quietmm_file {
    // Which use of the place this is.
    uint64_t life;
    // A small number that no other living file has; a later one may.
    uint32_t slot;
};

// What keeps a page.
struct quietmm_store {
    // One of `enum quietmm_store_kind`.
    uint32_t kind;
    // The number of a swap device, as it came to `quietmm_swap_on`.
    uint32_t device;
    // The file. No later one has this handle; its `slot` is small, and is used again.
    struct quietmm_file file;
};

// One page of several that are on their way at once.
struct quietmm_transfer {
    // What keeps it.
    struct quietmm_store store;
    // Its place there, in pages from the start.
    uint64_t block;
    // Its frame.
    uint32_t frame;
    // What came of it: one of `enum quietmm_io`. FAILED until the device says otherwise.
    uint32_t result;
};

// Transfers of pages, each with the `context` of the platform. On, no spin lock held; they may wait. **When one returns the device
// is done with the frame**, also after an error. A write must not need memory that only reclaim can free.
struct quietmm_device {
    // Fill a frame with the page; a hole of a file is zeros. Answers with one of `enum quietmm_io`.
    uint32_t (*read)(void *context, struct quietmm_store from, uint64_t block, uint32_t frame);
    // Write a frame out. Answers with one of `enum quietmm_io`.
    uint32_t (*write)(void *context, struct quietmm_store to, uint64_t block, uint32_t frame);
    // Fill the frames of several pages, at most 32 at a time: a device that takes several commands starts all before it waits for the first. Each gets its
    // `result`. NULL: one after the other.
    void (*read_all)(void *context, struct quietmm_transfer *transfers, size_t count);
    // The same for writing.
    void (*write_all)(void *context, struct quietmm_transfer *transfers, size_t count);
    // These blocks of a file are zeros from now on, until they are written again. NULL: files neither grow nor get holes.
    uint32_t (*discard)(void *context, struct quietmm_file file, uint64_t first, uint64_t count);
    // A page of a file that `quietmm_file_watch_writes` was called for is about to become writable through a shared mapping: true if it may. The page
    // is locked: call nothing of its file. NULL: all may.
    bool (*page_mkwrite)(void *context, struct quietmm_file file, uint64_t block);
    // The page has left memory, for whoever keeps something for cached pages: its content is wanted as before. A hint that may come late, when the page is back
    // or its file has ended. May be NULL.
    void (*forget)(void *context, struct quietmm_store store, uint64_t block);
    // The file has ended, or the swap device is not used any more: its number may be used again when this has returned. May be NULL.
    void (*end)(void *context, struct quietmm_store store);
};

// The machine: what the kernel brings. Functions get `context`, and are called from every CPU at once.
//
// "Off" and "on" are interrupts when the core calls. The guide, docs/embedding.md, says of each what must be true when it returns,
// and what breaks otherwise: the core's memory safety rests on it. A function may be NULL where it says so, else `quietmm_init`
// refuses. A CPU that is inside the core switches no task but in `wait`, `cond_resched`, `out_of_memory`, `shrink` and the device's functions.
struct quietmm_platform {
    // The first argument of each function.
    void *context;
    // One more than the highest CPU number that can ever come online: 1 to 4096.
    uint32_t possible_cpus;
    // Tags of address spaces that each CPU can hold at once. 0 or 1: none, every load flushes.
    uint16_t tags;
    // What the hardware guarantees: bits of `enum quietmm_guarantee`.
    uint32_t guarantees;
    // How page tables are written: one of `enum quietmm_architecture`.
    uint32_t architecture;
    // The CPU that executes this, below `possible_cpus`. On and off, all the time.
    uint32_t (*this_cpu)(void *context);
    // Whether a CPU answers interrupts from now on. In `quietmm_init` only: later CPUs call `quietmm_cpu_online`.
    bool (*is_online)(void *context, uint32_t cpu);
    // The node of a CPU, always the same, 0 to 63. NULL: there is one node.
    uint32_t (*node_of)(void *context, uint32_t cpu);
    // The distance between nodes: 10 is local. NULL: 10, and 20 to others.
    uint32_t (*distance)(void *context, uint32_t from, uint32_t to);
    // Turn interrupts off on this CPU; says whether they were on.
    bool (*irqs_off)(void *context);
    // Turn them on again.
    void (*irqs_on)(void *context);
    // Interrupt these CPUs, never this one; each then calls `quietmm_on_interrupt`, off. At most 64 at a time: more come with
    // further calls. Off, and spin locks may be held. What this CPU wrote before, the handler must see. May be NULL where there is one CPU.
    void (*interrupt)(void *context, const uint16_t *cpus, size_t count);
    // A clock in nanoseconds that never runs backwards on one CPU.
    uint64_t (*now)(void *context);
    // Spin for about so many nanoseconds. On and off, spin locks may be held: no other task may run.
    void (*pause)(void *context, uint32_t ns);
    // Where a physical address is mapped for the core, writable, for ever. Never NULL.
    void *(*direct)(void *context, uint64_t at);
    // Fill a frame with zeros.
    void (*clear_frame)(void *context, uint32_t frame);
    // Copy a frame. A program may write to `from` meanwhile.
    void (*copy_frame)(void *context, uint32_t from, uint32_t to);
    // Copy bytes out of a frame, from its byte `at` on. Programs may write there meanwhile. NULL: a plain copy.
    void (*read_frame)(void *context, uint32_t from, size_t at, void *into, size_t len);
    // The other way. NULL: a plain copy.
    void (*write_frame)(void *context, uint32_t to, size_t at, const void *from, size_t len);
    // Memory that is not there yet and may come by `quietmm_memory_add`: fills in the region of this number, from 0; false behind the last one. Sorted, of whole blocks
    // of 1024 frames, each at a multiple of 1024, and none of them handed over. In `quietmm_init` only, several times. NULL: none.
    bool (*later_region)(void *context, size_t nth, struct quietmm_region *region);
    // Flush one page of the kernel range on this CPU, whose entry is global. Off. May be NULL without `vmap`.
    void (*flush_kernel_page)(void *context, uint64_t page);
    // Flush all of the kernel range on this CPU. Off. May be NULL without `vmap`.
    void (*flush_kernel)(void *context);
    // Put the kernel's half into a new top-level table. NULL: there is none.
    void (*prepare_root)(void *context, uint32_t root);
    // Flush one page of the loaded space on this CPU (INVLPG), and what it keeps of the tables on the way to it. Off.
    void (*flush_page)(void *context, uint64_t page);
    // Flush all non-global entries of the loaded space on this CPU, and what it keeps of its tables. Off.
    void (*flush_space)(void *context);
    // Load the space whose top table is the frame `root` under `tag`. Without `keep` no entry of this tag may be left. Off.
    void (*load_space)(void *context, uint32_t root, uint16_t tag, bool keep);
    // Wait until `ready(with)` answers true, and never ask it again then. On, no spin lock held; other tasks may run. Whoever makes it
    // true calls `wake` with the same key. NULL: spin.
    void (*wait)(void *context, struct quietmm_wait_key key, bool (*ready)(void *with), void *with);
    // All who wait with this key look again. Any context; it must not wait. NULL with `wait`.
    void (*wake)(void *context, struct quietmm_wait_key key);
    // Another task may run first, if its turn has come. On, no spin lock held. May be NULL.
    void (*cond_resched)(void *context);
    // No frame can be had. Pick a victim and answer true: try again; false: this task gets the error. NULL: false.
    bool (*out_of_memory)(void *context, struct quietmm_shortage short_of);
    // Memory is short: give up this share of what the kernel keeps for itself, with `quietmm_frames_free`, and answer how many frames went
    // back. On, no spin lock held; the task may hold whatever the kernel held when it asked for memory. NULL: there are no such caches.
    uint32_t (*shrink)(void *context, struct quietmm_shrink ask);
    // Begin a flush on every CPU by hardware (INVLPGB). NULL: there is no such hardware.
    void (*broadcast)(void *context, struct quietmm_everywhere what);
    // Wait until all that this CPU has begun are done on every CPU (TLBSYNC). NULL with `broadcast`.
    void (*broadcast_sync)(void *context);
    // What is behind file pages and swap. Without `read` and `write` there is none: files are all holes, and pages that were
    // written stay in memory.
    struct quietmm_device device;
};

// Pages on the lists that reclaim looks at.
struct quietmm_lru_pages {
    // Anonymous pages and those of memory files that were not used lately.
    uint64_t inactive_anon;
    // The others of these.
    uint64_t active_anon;
    // Cached pages of files that were not used lately.
    uint64_t inactive_file;
    // The others of these.
    uint64_t active_file;
};

// What a look at every frame found.
struct quietmm_audit {
    // Frames handed over.
    uint64_t total;
    // Taken at start for bookkeeping.
    uint64_t reserved;
    // Free.
    uint64_t free;
    // Offline, or isolated on the way there.
    uint64_t offline;
    // Of those that are free, on per-CPU lists.
    uint64_t pcp;
    // Page tables.
    uint64_t tables;
    // In the core's pools and page-cache indexes.
    uint64_t pools;
    // Allocated by the kernel, all frames of each block.
    uint64_t kernel;
    // Pages of spaces' own memory.
    uint64_t anon;
    // Cached file pages.
    uint64_t file;
    // Pages of a batch that was never flushed: leaks.
    uint64_t leaked;
    // Unmap batches in use: leaks, where nobody reclaims.
    uint64_t batches;
    // Of `quietmm_vmap_alloc`, or waiting for the purge of their addresses.
    uint64_t vmalloc;
    // Of these, frames that wait for a purge.
    uint64_t unpurged;
    // Pages that programs unmapped or dropped, and that wait for a sweep.
    uint64_t parked;
    // Pins.
    uint64_t pinned;
    // Entries in all spaces that lead to pages.
    uint64_t mapped;
    // Entries in all spaces that name swap slots.
    uint64_t swapped;
    // The first thing that does not add up, in words; empty if all does.
    char broken[128];
};

// An address space. It names this one only: once it has ended every call gets NO_SUCH_SPACE, for ever. All zeros is none.
struct quietmm_space {
    // Which use of the place this is.
    uint64_t life;
    // A small number that no other living space has; a later one may.
    uint32_t slot;
};

// What is behind a range.
struct quietmm_backing {
    // One of `enum quietmm_backing_kind`.
    uint32_t kind;
    // The file, where there is one.
    struct quietmm_file file;
    // The file's page that the first one shows.
    uint64_t offset;
};

// What memory a space uses, in pages.
struct quietmm_space_usage {
    // Pages of its own in memory that it shows: copies that it made of files' pages too.
    uint64_t anon;
    // Pages of files in memory that it shows.
    uint64_t file;
    // Of both, those that are shown somewhere else too.
    uint64_t shared;
    // Pages that are in swap, and not in memory at the moment.
    uint64_t swapped;
    // Page tables.
    uint64_t tables;
};

// On which nodes pages of a space's own come. Those of files come where they are touched.
struct quietmm_node_policy {
    // One of `enum quietmm_node_policy_kind`.
    uint32_t kind;
    // The nodes that it names, bit n for node n. LOCAL names none.
    uint64_t nodes;
};

// What became of pages that were to move.
struct quietmm_migrated {
    // Pages that moved.
    uint64_t moved;
    // Pages in memory that were to move and are where they were.
    uint64_t stayed;
};

// What the tables say of a page.
struct quietmm_entry {
    // The frame, where there is one.
    uint32_t frame;
    // Whether programs may read it.
    bool readable;
    // Whether programs may write it.
    bool writable;
    // Whether it is on a swap device.
    bool swapped;
};

// What a group has, in pages.
struct quietmm_group_usage {
    // What it is charged with: its stocks too.
    uint64_t charged;
    // Of that, what CPUs keep in stock for it, and nobody uses.
    uint64_t stocked;
    // What it may be charged with.
    uint64_t limit;
    // How often somebody found it at its limit.
    uint64_t hits;
    // Spaces that belong to it.
    uint32_t spaces;
};

// Frames that are pinned. It goes with the request to the device; it may be moved, and only one of its copies is used.
struct quietmm_pins {
    // How many. 0: none, or none any more.
    uint32_t count;
    // The frames, one for each page, in the order of the pages.
    uint32_t frames[32];
    // The core's own.
    uint64_t kept[17];
};

// What one open use of a file remembers of where it reads, so that sequential use is read ahead: one for each descriptor.
// `quietmm_read_ahead_begin` fills it. Threads may share it.
struct quietmm_read_ahead {
    // The core's own.
    uint64_t kept[1];
};

// A block on its way: `quietmm_memory_begin_offline` fills it, or `quietmm_memory_add`. It may be moved, and only one of its copies is used.
struct quietmm_block {
    // Its first frame.
    uint32_t first;
    // One of `enum quietmm_block_state`.
    uint32_t state;
    // The core's own.
    uint32_t kept;
};

// Where in the kernel range something is to be. NULL: anywhere, with a guard page.
struct quietmm_place {
    // The address is a multiple of so many pages, a power of two. 0 is 1.
    uint64_t align;
    // Only here. No pages: anywhere in the kernel range.
    struct quietmm_range within;
    // The node of frames that come with it, or QUIETMM_ANY_NODE.
    uint16_t node;
    // Leave one page behind it unmapped.
    bool guard;
};

// How full swap is.
struct quietmm_swap_usage {
    // Slots of all devices in use.
    uint64_t slots;
    // Slots that are not free.
    uint64_t used;
    // Of these, slots whose page is in memory too.
    uint64_t cached;
    // Slots of devices that take no pages at the moment.
    uint64_t failing;
};

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// What a number says, in words; of one that is no error's, that too. Never null. Any context.
const char *quietmm_error_text(uint32_t error);

// Fills a configuration with Linux's settings, but for read-ahead and fault-around, which it leaves out, and the policy "vanilla", which needs no guarantee. Any context.
void quietmm_config(struct quietmm_config *config);

// How many bytes of storage `quietmm_init` wants. Any context.
size_t quietmm_storage_size(void);

// Of what its address must be a multiple. Any context.
size_t quietmm_storage_align(void);

// Takes over memory. Once, on one CPU, before any other uses the manager; interrupts may be on. The platform's struct is copied.
//
// `regions` are `count` runs of memory, sorted and disjoint, below 8 TiB. The core takes at most 64 bytes of each frame for its
// books, and some 3 KiB for each possible CPU. If it is refused, `why`, unless it is NULL, gets the reason in words, with a zero byte, cut off
// after `room` bytes.
//
// BAD_STORAGE, NO_CALLBACK, BAD_POLICY, BAD_VALUE, BAD_SETTING, GUARANTEE_MISSING, BAD_REGION, BAD_TOPOLOGY, TOO_LITTLE_MEMORY: nothing is kept, and the
// storage may be used again.
//
// # Safety
// `storage` is `size` bytes that are the core's from now on. The regions' memory is nobody else's, and goes to one manager, once.
// Each function of the platform keeps its promise, for ever: the core's memory safety rests on it.
enum quietmm_error quietmm_init(uint8_t *storage,
                                size_t size,
                                const struct quietmm_platform *platform,
                                const struct quietmm_region *regions,
                                size_t count,
                                const struct quietmm_config *config,
                                char *why,
                                size_t room,
                                const struct quietmm **made);

// For the handler of the interrupt that `interrupt` sends. Off; it does not wait. It flushes and acknowledges before it returns: the sender spins.
void quietmm_on_interrupt(const struct quietmm *mm);

// Serves what other CPUs want of this one: for a kernel that spins for a lock of its own with interrupts off. Any context but a
// non-maskable interrupt.
void quietmm_serve(const struct quietmm *mm);

// For the handler of each CPU's periodic timer, off. With the policies unmap=quiet, free=sweep and vmap=sweep; with others it does nothing.
void quietmm_tick(const struct quietmm *mm);

// In an idle loop before the halt, off: with vmap=sweep other CPUs need not wait for this one. Optional.
void quietmm_enter_idle(const struct quietmm *mm);

// After the halt, before anything of the kernel range is used. Any context.
void quietmm_leave_idle(const struct quietmm *mm);

// This CPU comes: before any other call on it, on the kernel's own root. On or off. ALREADY_ONLINE.
enum quietmm_error quietmm_cpu_online(const struct quietmm *mm);

// This CPU goes: in its idle task, on; it may wait. After it, it calls nothing of the core but `quietmm_cpu_online`. NOT_ONLINE.
enum quietmm_error quietmm_cpu_offline(const struct quietmm *mm);

// Whether a CPU is online: a moment's truth. Any context.
bool quietmm_is_online(const struct quietmm *mm, uint32_t cpu);

// How many CPUs are online: a moment's truth. Any context.
uint32_t quietmm_online_cpus(const struct quietmm *mm);

// Reclaims ahead of need on a node: the body of the endless loop of a kernel thread, which has called `quietmm_enter_lazy`. On; it
// waits until there is work. NO_SUCH_NODE.
enum quietmm_error quietmm_kswapd(const struct quietmm *mm,
                                  uint16_t node);

// From now on pages that reclaim would take out of memory on a node move to node `to`, while that has room; to none with -1. On; it may wait. NO_SUCH_NODE; BAD_SETTING for
// a circle; OUT_OF_MEMORY.
enum quietmm_error quietmm_set_demotion(const struct quietmm *mm,
                                        uint16_t node,
                                        int32_t to);

// Where the pages of a node move to; -1: nowhere. Any context.
int32_t quietmm_demotion(const struct quietmm *mm, uint16_t node);

// Writes back files of which a page is dirty for too long, or as long as too many are, as the configuration says: for a kernel thread, every
// few seconds, and when it is woken with `QUIETMM_WAIT_KIND_FLUSHER`. Returns how many pages were written. On; it may wait.
uint64_t quietmm_flusher(const struct quietmm *mm);

// Pages of files that are dirty, where the configuration has them counted. Any context.
uint64_t quietmm_dirty_pages(const struct quietmm *mm);

// How many pages reclaim can look at, of all nodes and groups. A sum of moments. Any context.
void quietmm_lru_pages(const struct quietmm *mm, struct quietmm_lru_pages *pages);

// Puts the pages that this CPU has gathered onto the LRU lists. Any context but a handler.
void quietmm_drain_lru_batch(const struct quietmm *mm);

// The same for every CPU. On; it waits for those that it interrupts.
void quietmm_drain_lru_batches(const struct quietmm *mm);

// Begins a sweep, if none is under way and the policy wants any: each CPU flushes once, at its next tick. Any context.
void quietmm_begin_sweep(const struct quietmm *mm);

// Whether the last sweep is over. Any context but a handler.
bool quietmm_sweep_is_over(const struct quietmm *mm);

// How many counters there are. Any context.
size_t quietmm_counters(void);

// The name of a counter, by its place: into `room` bytes, with a zero byte. BAD_VALUE beyond the last. Any context.
//
// # Safety
// `into` has `room` bytes.
enum quietmm_error quietmm_counter_name(size_t place,
                                        char *into,
                                        size_t room);

// A counter by its name ("pgfault", "ipis_sent"), summed over all CPUs. While they run it is a sum of moments. Any context. NO_SUCH_COUNTER.
//
// # Safety
// `name` ends with a zero byte.
enum quietmm_error quietmm_counter(const struct quietmm *mm,
                                   const char *name,
                                   uint64_t *value);

// Walks all frames, lists, tables and trees, and compares; answers whether all adds up. Nothing else may run meanwhile, on any CPU.
bool quietmm_validate(const struct quietmm *mm,
                      struct quietmm_audit *audit);

// Makes an empty space. On; it may wait for memory. OUT_OF_MEMORY.
enum quietmm_error quietmm_create_space(const struct quietmm *mm, struct quietmm_space *space);

// Ends a space, with all that is mapped in it: one flush. On; it may wait. BUSY while a CPU runs in it.
enum quietmm_error quietmm_space_destroy(const struct quietmm *mm, struct quietmm_space space);

// Maps a range; pages come by faults. `protection` is one of `enum quietmm_protection`. On; it may wait. No CPU is interrupted. OVERLAPS,
// NOT_MAPPABLE, BAD_RANGE, NO_SUCH_FILE, MAP_COUNT, BAD_VALUE, OUT_OF_MEMORY. A file may be mapped beyond its end: an access there is BEYOND_FILE.
enum quietmm_error quietmm_space_map(const struct quietmm *mm,
                                     struct quietmm_space space,
                                     struct quietmm_range range,
                                     struct quietmm_backing backing,
                                     uint32_t protection);

// Unmaps a range, all of which is mapped. When it returns no CPU can use any of it. On; it may wait. NOT_MAPPED, BAD_RANGE, MAP_COUNT,
// OUT_OF_MEMORY.
enum quietmm_error quietmm_space_unmap(const struct quietmm *mm,
                                       struct quietmm_space space,
                                       struct quietmm_range range);

// Changes what may be done with a range, all of which is mapped. When it returns no CPU has rights that were taken away. On; it may
// wait. NOT_MAPPED, BAD_RANGE, BAD_VALUE, OUT_OF_MEMORY.
enum quietmm_error quietmm_space_protect(const struct quietmm *mm,
                                         struct quietmm_space space,
                                         struct quietmm_range range,
                                         uint32_t protection);

// Makes a space that has the same mapped: memory of its own is copied when one of the two writes. On; it may wait.
// OUT_OF_MEMORY.
enum quietmm_error quietmm_space_fork(const struct quietmm *mm,
                                      struct quietmm_space space,
                                      struct quietmm_space *child);

// Has the mapping that begins at page `start`, which is no file's, grow downwards when something below it is touched, until it has `most` pages. On; it may
// wait. NOT_MAPPED, BAD_RANGE.
enum quietmm_error quietmm_space_grow_down(const struct quietmm *mm,
                                           struct quietmm_space space,
                                           uint64_t start,
                                           uint64_t most);

// Says what a range is for: `advice` is one of `enum quietmm_advised`. On; it may wait. NOT_MAPPED, BAD_RANGE, BAD_VALUE, OUT_OF_MEMORY; to
// make large pages, NOT_COLLAPSIBLE for the first 2 MiB that stay small; what
// is to be there now, also what `quietmm_space_fault` says of the first page that cannot be.
enum quietmm_error quietmm_space_advise(const struct quietmm *mm,
                                        struct quietmm_space space,
                                        struct quietmm_range range,
                                        uint32_t advice);

// Moves what is mapped in a range to where `first` is its first page, with its content. On; it may wait. NOT_MAPPED, OVERLAPS, NOT_MAPPABLE,
// BAD_RANGE, OUT_OF_MEMORY.
enum quietmm_error quietmm_space_move(const struct quietmm *mm,
                                      struct quietmm_space space,
                                      struct quietmm_range range,
                                      uint64_t first);

// Makes what is mapped in a range longer or shorter, and moves it if `to` begins elsewhere; or leaves all as it was. On; it may wait. NOT_MAPPED,
// OVERLAPS, NOT_MAPPABLE, BAD_RANGE, MAP_COUNT, OUT_OF_MEMORY.
enum quietmm_error quietmm_space_remap(const struct quietmm *mm,
                                       struct quietmm_space space,
                                       struct quietmm_range range,
                                       struct quietmm_range to);

// Brings all of a range, and keeps its pages in memory until they are unlocked or unmapped. On; it may wait. NOT_MAPPED, BAD_RANGE, MAP_COUNT,
// OUT_OF_MEMORY; what `quietmm_space_fault` says of a page that cannot be had. Then no more is locked than was.
enum quietmm_error quietmm_space_lock(const struct quietmm *mm,
                                      struct quietmm_space space,
                                      struct quietmm_range range);

// Has the pages of a range stay in memory that are there, and those that come when they are touched, and brings none. On; it may wait. NOT_MAPPED, BAD_RANGE,
// MAP_COUNT, OUT_OF_MEMORY.
enum quietmm_error quietmm_space_lock_on_fault(const struct quietmm *mm,
                                               struct quietmm_space space,
                                               struct quietmm_range range);

// Lets pages of a range be reclaimed again. On; it may wait. NOT_MAPPED, BAD_RANGE, MAP_COUNT, OUT_OF_MEMORY.
enum quietmm_error quietmm_space_unlock(const struct quietmm *mm,
                                        struct quietmm_space space,
                                        struct quietmm_range range);

// How many pages of a space are locked. On; it may wait for whoever changes the space.
enum quietmm_error quietmm_space_locked_pages(const struct quietmm *mm,
                                              struct quietmm_space space,
                                              uint64_t *pages);

// Counts what memory a space uses: it looks at each entry. On; it may wait, also for whoever changes the space: not from `out_of_memory`.
enum quietmm_error quietmm_space_usage(const struct quietmm *mm,
                                       struct quietmm_space space,
                                       struct quietmm_space_usage *usage);

// Gives the page tables back in which nothing is left, though something is mapped where they lie; how many. On; it may wait, also for whoever changes the space.
enum quietmm_error quietmm_space_free_empty_tables(const struct quietmm *mm,
                                                   struct quietmm_space space,
                                                   uint64_t *tables);

// Says for each page of a range whether it is in memory: 1 or 0 in a byte each, all 0 after an error. On; it may wait. NOT_MAPPED, BAD_RANGE.
//
// # Safety
// `into` has a byte for each page.
enum quietmm_error quietmm_space_residency(const struct quietmm *mm,
                                           struct quietmm_space space,
                                           struct quietmm_range range,
                                           uint8_t *into);

// Moves the pages of a range to frames of another node; `moved`, unless it is NULL, gets how many. On; it may wait. NO_SUCH_NODE,
// BAD_RANGE, NOT_MAPPED, OUT_OF_MEMORY.
enum quietmm_error quietmm_space_migrate(const struct quietmm *mm,
                                         struct quietmm_space space,
                                         struct quietmm_range range,
                                         uint16_t node,
                                         uint64_t *moved);

// Chooses on which nodes pages of the space's own come from now on in a range, all of which is mapped; those that are there stay. On; it may wait. NO_SUCH_NODE,
// also for BIND to nodes without memory; BAD_VALUE for a kind that is none, or nodes that do not go with it; BAD_SETTING for no node at all; TOO_MANY for the 64th set of
// nodes; BAD_RANGE, NOT_MAPPED, MAP_COUNT, OUT_OF_MEMORY.
enum quietmm_error quietmm_space_set_node_policy(const struct quietmm *mm,
                                                 struct quietmm_space space,
                                                 struct quietmm_range range,
                                                 struct quietmm_node_policy policy);

// The same for all that is mapped in the space from now on. On; it may wait. NO_SUCH_NODE, BAD_VALUE, BAD_SETTING, TOO_MANY.
enum quietmm_error quietmm_space_set_default_node_policy(const struct quietmm *mm,
                                                         struct quietmm_space space,
                                                         struct quietmm_node_policy policy);

// On which nodes pages of the space's own come where `page` is. On; it may wait for whoever changes the space. NOT_MAPPED.
enum quietmm_error quietmm_space_node_policy(const struct quietmm *mm,
                                             struct quietmm_space space,
                                             uint64_t page,
                                             struct quietmm_node_policy *policy);

// Moves the pages of a range that lie on the nodes `from`, bit n for node n, to frames of another node, whoever shows them, those of files too; `done`, unless it is
// NULL, gets what became of them. On, no lock; it may wait. NO_SUCH_NODE, BAD_RANGE, NOT_MAPPED, OUT_OF_MEMORY.
enum quietmm_error quietmm_space_migrate_all(const struct quietmm *mm,
                                             struct quietmm_space space,
                                             struct quietmm_range range,
                                             uint64_t from,
                                             uint16_t node,
                                             struct quietmm_migrated *done);

// Resolves a page fault at an address in bytes: `access` is one of `enum quietmm_access`. On, on a task's stack, no spin lock: it may wait
// for memory and for devices. OK: the program tries again. NOT_MAPPED, NOT_PERMITTED, BEYOND_FILE: its own fault. DEVICE, SWAP_DEVICE: its
// content cannot be had. OUT_OF_MEMORY. NOT_ONLINE.
enum quietmm_error quietmm_space_fault(const struct quietmm *mm,
                                       struct quietmm_space space,
                                       uint64_t at,
                                       uint32_t access);

// What the tables say of a page now. On; it may wait for whoever changes the space. BAD_RANGE.
enum quietmm_error quietmm_space_lookup(const struct quietmm *mm,
                                        struct quietmm_space space,
                                        uint64_t page,
                                        struct quietmm_entry *entry);

// Flushes a range on every CPU that may have it. Any context but a handler. BAD_RANGE.
enum quietmm_error quietmm_space_flush_range(const struct quietmm *mm,
                                             struct quietmm_space space,
                                             struct quietmm_range range);

// Flushes all of a space on every CPU that may have it. Any context but a handler.
enum quietmm_error quietmm_space_flush(const struct quietmm *mm, struct quietmm_space space);

// Loads a space on this CPU, and leaves lazy mode. Any context but a handler; it does not wait. NOT_ONLINE.
enum quietmm_error quietmm_space_switch_to(const struct quietmm *mm, struct quietmm_space space);

// This CPU touches no user address until `quietmm_leave_lazy` has returned or `quietmm_space_switch_to` has: flushes pass it by. Any
// context but a handler.
void quietmm_enter_lazy(const struct quietmm *mm);

// This CPU catches up with what it missed. Answers whether a space is loaded, which `space`, unless it is NULL, gets. Any context but a handler.
bool quietmm_leave_lazy(const struct quietmm *mm,
                        struct quietmm_space *space);

// Lets go of the loaded space: this CPU runs on the kernel's own root. Any context but a handler.
void quietmm_unload(const struct quietmm *mm);

// Answers whether a space is loaded on this CPU, which `space`, unless it is NULL, gets.
bool quietmm_loaded_space(const struct quietmm *mm, struct quietmm_space *space);

// Makes a group, without spaces, that may be charged with `limit` pages. On; it may wait. NO_GROUPS unless `groups` was set when the manager was
// made; TOO_MANY.
enum quietmm_error quietmm_create_group(const struct quietmm *mm,
                                        uint64_t limit,
                                        struct quietmm_group *group);

// Ends a group. Pages that it is still charged with stay until reclaim takes them. On. NO_SUCH_GROUP; BUSY while spaces belong to it.
enum quietmm_error quietmm_group_destroy(const struct quietmm *mm,
                                         struct quietmm_group group);

// Changes what a group may be charged with, and reclaims what is above it as far as it can. On; it may wait. NO_SUCH_GROUP.
enum quietmm_error quietmm_group_set_limit(const struct quietmm *mm,
                                           struct quietmm_group group,
                                           uint64_t pages);

// What a group is charged with now. A moment's truth. Any context but a handler. NO_SUCH_GROUP.
enum quietmm_error quietmm_group_usage(const struct quietmm *mm,
                                       struct quietmm_group group,
                                       struct quietmm_group_usage *usage);

// Makes a space one of a group's, or of none if `group` is all zeros: from then on that is charged with what the space wants anew. A fork of it
// belongs there too. On; it may wait. NO_SUCH_SPACE, NO_SUCH_GROUP.
enum quietmm_error quietmm_space_set_group(const struct quietmm *mm,
                                           struct quietmm_space space,
                                           struct quietmm_group group);

// The group that a space belongs to: all zeros if to none. Any context but a handler. NO_SUCH_SPACE.
enum quietmm_error quietmm_space_group(const struct quietmm *mm,
                                       struct quietmm_space space,
                                       struct quietmm_group *group);

// Pins the frames of a range of at most 32 pages for a device: `access`, one of `enum quietmm_access`, is what the device does; `term` is one
// of `enum quietmm_pin_term`. Until `quietmm_unpin` they are nobody else's, and the program goes on to see its own memory there. On; it may
// wait. All or nothing: BAD_RANGE, BAD_VALUE, NOT_PINNABLE, TOO_MANY_PINS, and all that `quietmm_space_fault` says.
enum quietmm_error quietmm_space_pin(const struct quietmm *mm,
                                     struct quietmm_space space,
                                     struct quietmm_range range,
                                     uint32_t access,
                                     uint32_t term,
                                     struct quietmm_pins *pins);

// The device is through: what it may have written is dirty from now on. Any context but a handler. BAD_VALUE if there are none any more.
//
// # Safety
// `quietmm_space_pin` has filled it, and no copy of it was given back.
enum quietmm_error quietmm_unpin(const struct quietmm *mm,
                                 struct quietmm_pins *pins);

// The same from the handler of the device's interrupt, for those that programs still map. Answers whether some are left, for a task to give to
// `quietmm_unpin`. Any context.
//
// # Safety
// That of `quietmm_unpin`.
bool quietmm_unpin_in_interrupt(const struct quietmm *mm,
                                struct quietmm_pins *pins);

// Makes a file of so many pages, all holes: the device is asked with the handle. On; it may wait for memory. OUT_OF_MEMORY, BAD_RANGE.
enum quietmm_error quietmm_create_file(const struct quietmm *mm,
                                       uint64_t pages,
                                       struct quietmm_file *file);

// The same of a file that no device keeps: what is written to it stays in memory, or goes to swap. Memory that programs share is such a file. On; it may
// wait for memory. OUT_OF_MEMORY, BAD_RANGE above 2^36 pages.
enum quietmm_error quietmm_create_memory_file(const struct quietmm *mm,
                                              uint64_t pages,
                                              struct quietmm_file *file);

// Pages of a memory file that are in swap; of other files 0. Any context.
enum quietmm_error quietmm_file_swapped_pages(const struct quietmm *mm,
                                              struct quietmm_file file,
                                              uint64_t *pages);

// Ends a file; what is still dirty is dropped. On; it may wait. BUSY while something maps it.
enum quietmm_error quietmm_file_destroy(const struct quietmm *mm, struct quietmm_file file);

// Reads `len` bytes from the byte `at` on; `got` gets how many came: fewer where the file ends, or where a page could not be had. What lies behind these
// is zeros then, all of it after an error. `into` is no program's memory. On; it may wait. BAD_VALUE if it is NULL; DEVICE, OUT_OF_MEMORY if not a
// single byte came.
//
// # Safety
// `into` has `len` bytes.
enum quietmm_error quietmm_file_read(const struct quietmm *mm,
                                     struct quietmm_file file,
                                     uint64_t at,
                                     void *into,
                                     size_t len,
                                     size_t *got);

// A use that has not begun. Any context.
void quietmm_read_ahead_begin(struct quietmm_read_ahead *open);

// `quietmm_file_read` for a use of the file that may be sequential.
//
// # Safety
// `into` has `len` bytes. `quietmm_read_ahead_begin` has filled `open`.
enum quietmm_error quietmm_file_read_with(const struct quietmm *mm,
                                          struct quietmm_file file,
                                          const struct quietmm_read_ahead *open,
                                          uint64_t at,
                                          void *into,
                                          size_t len,
                                          size_t *got);

// Reads pages that will be wanted soon, as many as there is memory for without reclaim; `came`, unless it is NULL, gets how many. On; it may
// wait.
enum quietmm_error quietmm_file_read_ahead(const struct quietmm *mm,
                                           struct quietmm_file file,
                                           uint64_t first,
                                           uint64_t pages,
                                           uint64_t *came);

// From now on the device's `page_mkwrite` is called before a page of this file becomes writable through a shared mapping, each time anew once it was
// written out. On; it may wait. BUSY while something maps the file: best done when it is made.
enum quietmm_error quietmm_file_watch_writes(const struct quietmm *mm,
                                             struct quietmm_file file);

// Writes `len` bytes from the byte `at` on; the file becomes longer where it has to. `put` gets how many went: fewer where a page could not be
// had. `from` is no program's memory. On; it may wait. BAD_RANGE; BAD_VALUE if it is NULL; DEVICE, OUT_OF_MEMORY if not a single byte went.
//
// # Safety
// `from` has `len` bytes.
enum quietmm_error quietmm_file_write(const struct quietmm *mm,
                                      struct quietmm_file file,
                                      uint64_t at,
                                      const void *from,
                                      size_t len,
                                      size_t *put);

// How long it is, in bytes. On; it may wait for whoever changes that.
enum quietmm_error quietmm_file_size(const struct quietmm *mm, struct quietmm_file file, uint64_t *bytes);

// Makes it longer, with zeros, or shorter, while programs map it: their next access beyond the end is BEYOND_FILE. On; it may wait.
// BAD_RANGE, DEVICE, OUT_OF_MEMORY.
enum quietmm_error quietmm_file_set_size(const struct quietmm *mm,
                                         struct quietmm_file file,
                                         uint64_t bytes);

// Makes `len` bytes from the byte `at` on zeros, without memory or blocks behind whole pages. On; it may wait. BAD_RANGE, OUT_OF_MEMORY; DEVICE: if
// the device cannot `discard` whole pages, the file shows what it has of them.
enum quietmm_error quietmm_file_punch_hole(const struct quietmm *mm,
                                           struct quietmm_file file,
                                           uint64_t at,
                                           uint64_t len);

// Writes all dirty pages to the device; `pages`, unless it is NULL, gets how many. On; it may wait. OUT_OF_MEMORY; DEVICE:
// the others are written, and what was not taken stays dirty.
enum quietmm_error quietmm_file_write_back(const struct quietmm *mm,
                                           struct quietmm_file file,
                                           uint64_t *pages);

// The same of `pages` pages from `first` on.
enum quietmm_error quietmm_file_write_back_range(const struct quietmm *mm,
                                                 struct quietmm_file file,
                                                 uint64_t first,
                                                 uint64_t pages,
                                                 uint64_t *written);

// Lets go of cached pages, of `pages` from `first` on, that are clean and used by nobody; `gone`, unless it is NULL, gets how many went. On; it
// may wait.
enum quietmm_error quietmm_file_evict(const struct quietmm *mm,
                                      struct quietmm_file file,
                                      uint64_t first,
                                      uint64_t pages,
                                      uint64_t *gone);

// Moves the cached pages, of `pages` from `first` on, that lie on the nodes `from`, bit n for node n, to frames of another node, mapped or not; `done`, unless it is
// NULL, gets what became of them. On, no lock; it may wait. NO_SUCH_NODE.
enum quietmm_error quietmm_file_migrate(const struct quietmm *mm,
                                        struct quietmm_file file,
                                        uint64_t first,
                                        uint64_t pages,
                                        uint64_t from,
                                        uint16_t node,
                                        struct quietmm_migrated *done);

// How many of its pages are in memory. Any context but a handler.
enum quietmm_error quietmm_file_cached_pages(const struct quietmm *mm,
                                             struct quietmm_file file,
                                             uint64_t *pages);

// Allocates 2^`order` frames, not cleared, `node` or QUIETMM_ANY_NODE first; `first` gets the first. `look` is one of `enum quietmm_look`, which says in
// what context. BAD_ORDER, BAD_VALUE, NO_SUCH_NODE, OUT_OF_MEMORY.
enum quietmm_error quietmm_frames_alloc(const struct quietmm *mm,
                                        uint8_t order,
                                        uint16_t node,
                                        uint32_t look,
                                        uint32_t *first);

// The same below the physical address `below`, as a whole: in regions that end there at the latest. With `look` MAY_RECLAIM pages are moved out of 4 MiB
// if need be. BAD_ORDER, BAD_VALUE, NO_SUCH_NODE, OUT_OF_MEMORY.
enum quietmm_error quietmm_frames_alloc_below(const struct quietmm *mm,
                                              uint8_t order,
                                              uint64_t below,
                                              uint16_t node,
                                              uint32_t look,
                                              uint32_t *first);

// Allocates `frames` frames in one piece that begins at a multiple of 4 MiB and lies below the physical address `below` (UINT64_MAX: anywhere), not cleared;
// `first` gets the first. Each goes back by itself, with order 0. On, no spin lock; pages may have to move, and CPUs be interrupted.
// BAD_SETTING, OUT_OF_MEMORY.
enum quietmm_error quietmm_frames_alloc_contiguous(const struct quietmm *mm,
                                                   uint32_t frames,
                                                   uint64_t below,
                                                   uint32_t *first);

// Gives a block back, of the order in which it was allocated. Any context but a handler. NO_SUCH_FRAME, NOT_ALLOCATED, BAD_ORDER.
enum quietmm_error quietmm_frames_free(const struct quietmm *mm,
                                       uint32_t first,
                                       uint8_t order);

// Allocates 2^`order` frames, not cleared, in the handler of an interrupt of the kernel's own: those that lie on this CPU's lists. `first` gets the first. Any
// context. OUT_OF_MEMORY where there is none on them, be it that much is free elsewhere: tasks bring them by `quietmm_frames_alloc`.
enum quietmm_error quietmm_frames_alloc_in_handler(const struct quietmm *mm,
                                                   uint8_t order,
                                                   uint32_t *first);

// Gives a block back in the handler of an interrupt of the kernel's own, to this CPU's lists. Any context. BUSY where they do not keep it: it is not free, and a
// task gives it to `quietmm_frames_free`. NO_SUCH_FRAME, NOT_ALLOCATED.
enum quietmm_error quietmm_frames_free_in_handler(const struct quietmm *mm,
                                                  uint32_t first,
                                                  uint8_t order);

// Puts the frames on per-CPU lists back into their zones: with `certain` every one that was there when it was called. Answers how
// many. On, no spin lock; it may interrupt CPUs, as the policy says.
uint32_t quietmm_frames_drain(const struct quietmm *mm,
                              bool certain);

// The same for this CPU alone. Any context but a handler.
void quietmm_frames_drain_here(const struct quietmm *mm);

// Free frames in all zones, without those on per-CPU lists.
uint64_t quietmm_frames_available(const struct quietmm *mm);

// Free frames on per-CPU lists.
uint64_t quietmm_frames_on_lists(const struct quietmm *mm);

// Frames that the core's books took at start.
uint64_t quietmm_frames_reserved(const struct quietmm *mm);

// How many free frames of a node each CPU keeps on its lists: `batch` go from the zone or back at a time, 1 to 63; more than `high`, and one goes
// back. Any context but a handler. BAD_SETTING, NO_SUCH_NODE.
enum quietmm_error quietmm_frames_set_list_limits(const struct quietmm *mm,
                                                  uint16_t node,
                                                  uint32_t batch,
                                                  uint32_t high);

// What these limits are. Any context. NO_SUCH_NODE for a node that has no memory, and gets none later.
enum quietmm_error quietmm_frames_list_limits(const struct quietmm *mm,
                                              uint16_t node,
                                              uint32_t *batch,
                                              uint32_t *high);

// The first frame of the block of this place, from 0. BAD_VALUE beyond the last. Those with the core's books can never go offline.
enum quietmm_error quietmm_memory_block(const struct quietmm *mm,
                                        size_t place,
                                        uint32_t *first);

// Begins to take the block of 1024 frames at `first` offline: nothing is allocated from it any more. At most one of a region at a time. On; it
// may wait. BAD_BLOCK, NO_SUCH_FRAME if it is offline already, NOT_MOVABLE, BUSY.
enum quietmm_error quietmm_memory_begin_offline(const struct quietmm *mm,
                                                uint32_t first,
                                                struct quietmm_block *block);

// Empties a block that leaves. OK: it is offline. BUSY: `used`, unless it is NULL, gets a frame that is in use; try again, or cancel. BAD_VALUE if it
// does not leave. On; it may wait.
//
// # Safety
// `quietmm_memory_begin_offline` has filled it, or `quietmm_memory_add`, and no copy of it was used.
enum quietmm_error quietmm_memory_finish_offline(const struct quietmm *mm,
                                                 struct quietmm_block *block,
                                                 uint32_t *used);

// A block that leaves stays. BAD_VALUE if it does not leave. On.
//
// # Safety
// That of `quietmm_memory_finish_offline`.
enum quietmm_error quietmm_memory_cancel_offline(const struct quietmm *mm, struct quietmm_block *block);

// The block of 1024 frames at `first` has come, of a region of the platform's `later_region`: it is offline, until `quietmm_memory_bring_online`. What is kept
// about its frames takes 8 frames of memory that is here, and with groups 9, for good. On; it may wait. BAD_BLOCK, ALREADY_HERE also if it is offline since, OUT_OF_MEMORY.
//
// # Safety
// The block's memory is there, `direct` maps it, and it is nobody else's, for ever or until it is offline again.
enum quietmm_error quietmm_memory_add(const struct quietmm *mm,
                                      uint32_t first,
                                      struct quietmm_block *block);

// A block that is offline comes back, free. BAD_VALUE if it is not offline. On.
//
// # Safety
// That of `quietmm_memory_finish_offline`.
enum quietmm_error quietmm_memory_bring_online(const struct quietmm *mm, struct quietmm_block *block);

// Maps frames of the caller's, one after the other; `mapped` gets where. `protection` is one of `enum quietmm_kernel_protection`. On; it may wait.
// NO_KERNEL_RANGE, NO_ADDRESS, BAD_ALIGNMENT, BAD_RANGE, BAD_VALUE, NO_SUCH_FRAME, OUT_OF_MEMORY.
//
// # Safety
// `which` are `count` frames.
enum quietmm_error quietmm_vmap_map(const struct quietmm *mm,
                                    const uint32_t *which,
                                    size_t count,
                                    const struct quietmm_place *where_to,
                                    uint32_t protection,
                                    struct quietmm_range *mapped);

// Unmaps what `quietmm_vmap_map` has mapped from this page on. The frames are the caller's, but may still be seen at the old address
// until `quietmm_vmap_unmap_aliases`. Any context, handlers too; with vmap=eager on, and it waits. NOT_MAPPED,
// WRONG_RELEASE, BAD_RANGE, NO_KERNEL_RANGE, NEEDS_INTERRUPTS.
enum quietmm_error quietmm_vmap_unmap(const struct quietmm *mm,
                                      uint64_t first);

// Maps frames that come with it (vmalloc); `mapped` gets where. On; it may wait. The errors of `quietmm_vmap_map`, NO_SUCH_NODE.
enum quietmm_error quietmm_vmap_alloc(const struct quietmm *mm,
                                      uint64_t pages,
                                      const struct quietmm_place *where_to,
                                      uint32_t protection,
                                      struct quietmm_range *mapped);

// Unmaps and frees what `quietmm_vmap_alloc` has made from this page on. Context and errors as of `quietmm_vmap_unmap`.
enum quietmm_error quietmm_vmap_free(const struct quietmm *mm,
                                     uint64_t first);

// Maps at most 64 frames for a short time; `mapped` gets where. On; it may wait. The errors of `quietmm_vmap_map`.
//
// # Safety
// `which` are `count` frames.
enum quietmm_error quietmm_vmap_map_ram(const struct quietmm *mm,
                                        const uint32_t *which,
                                        size_t count,
                                        uint32_t protection,
                                        struct quietmm_range *mapped);

// Unmaps all that one `quietmm_vmap_map_ram` has mapped. Context and errors as of `quietmm_vmap_unmap`.
enum quietmm_error quietmm_vmap_unmap_ram(const struct quietmm *mm, struct quietmm_range range);

// When it returns no CPU has an old translation of what was unmapped before. On; it waits for those that it interrupts. NO_KERNEL_RANGE, NEEDS_INTERRUPTS.
enum quietmm_error quietmm_vmap_unmap_aliases(const struct quietmm *mm);

// Flushes what was unmapped, and makes its addresses free; `pages`, unless it is NULL, gets how many. On; it may wait. NO_KERNEL_RANGE, NEEDS_INTERRUPTS.
enum quietmm_error quietmm_vmap_purge(const struct quietmm *mm,
                                      uint64_t *pages);

// The body of the endless loop of a kernel thread that purges when enough waits. On; it waits. NO_KERNEL_RANGE.
enum quietmm_error quietmm_vmap_purger(const struct quietmm *mm);

// Pages of addresses that were unmapped and are not free yet. NO_KERNEL_RANGE.
enum quietmm_error quietmm_vmap_waits(const struct quietmm *mm, uint64_t *pages);

// What is mapped around a page. Any context, but with vmap=eager. NO_KERNEL_RANGE, NOT_MAPPED.
enum quietmm_error quietmm_vmap_find(const struct quietmm *mm, uint64_t page, struct quietmm_range *mapped);

// The frame at a page of the kernel range. NO_KERNEL_RANGE, NOT_MAPPED.
enum quietmm_error quietmm_vmap_frame_at(const struct quietmm *mm, uint64_t page, uint32_t *frame);

// On RISC-V, for the handler of faults at addresses of the kernel range: OK is to try again. `access` is one of `enum quietmm_access`.
enum quietmm_error quietmm_vmap_fault(const struct quietmm *mm,
                                      uint64_t at,
                                      uint32_t access);

// Takes a device of so many pages into use; a higher priority is filled first. On; it may wait. NO_SWAP, BAD_RANGE, NO_SUCH_SWAP_DEVICE, TOO_MANY,
// OUT_OF_MEMORY.
enum quietmm_error quietmm_swap_on(const struct quietmm *mm,
                                   uint32_t device,
                                   uint64_t pages,
                                   int16_t priority);

// Brings all of a device's pages back into memory, and lets go of it. On; it may wait. NO_SUCH_SWAP_DEVICE; SWAP_DEVICE, OUT_OF_MEMORY: it
// gets no new pages, and can be asked again.
enum quietmm_error quietmm_swap_off(const struct quietmm *mm,
                                    uint32_t device);

// How full swap is. A moment's truth.
void quietmm_swap_usage(const struct quietmm *mm, struct quietmm_swap_usage *usage);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* QUIETMM_H */
