#define _POSIX_C_SOURCE 200809L
#include "machine.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static _Alignas(PAGE) unsigned char memory[(COMES + LATER) * PAGE];
static unsigned char swap_pages[SWAP_PAGES * PAGE];
static unsigned char file_pages[FILE_PAGES * PAGE];
const struct quietmm_region machine_memory[NODES] = {
    {.start = 0, .frames = FRAMES, .node = 0},
    {.start = FRAMES, .frames = FAR, .node = 1},
};

static const struct quietmm *manager;
static enum broken how;
static atomic_bool pending[CPUS];
static atomic_uint sent;

// What each CPU has of its own.
enum { TLB = 64 };
static _Thread_local unsigned cpu;
static _Thread_local bool irqs_are_on = true;
static _Thread_local uint32_t loaded_root;
static _Thread_local struct {
    bool valid, writable, dirty;
    uint64_t page;
    uint32_t frame;
} tlb[TLB];

// Interrupts.

void machine_be(unsigned number, const struct quietmm *mm) {
    cpu = number;
    manager = mm;
}

unsigned machine_cpu(void) { return cpu; }
unsigned machine_interrupts(void) { return atomic_load(&sent); }

static void take_interrupt(void) {
    if (irqs_are_on && atomic_exchange(&pending[cpu], false)) {
        irqs_are_on = false;
        quietmm_on_interrupt(manager);
        irqs_are_on = true;
    }
}

static void (*_Atomic packet_comes)(void);

void machine_on_packet(void (*handler)(void)) { packet_comes = handler; }

void machine_step(void) {
    static _Thread_local unsigned steps;
    take_interrupt();
    if (++steps % 64 == 0) {
        irqs_are_on = false;
        quietmm_tick(manager);
        if (packet_comes) packet_comes();
        irqs_are_on = true;
    }
}

static uint32_t this_cpu(void *context) {
    (void)context;
    return how == FALSE_CPU && manager ? CPUS : cpu;
}

static bool is_online(void *context, uint32_t which) {
    (void)context;
    return which == 0;
}

static bool irqs_off(void *context) {
    (void)context;
    bool were_on = irqs_are_on;
    irqs_are_on = false;
    return were_on;
}

static void irqs_on(void *context) {
    (void)context;
    irqs_are_on = true;
    take_interrupt();
}

static void interrupt(void *context, const uint16_t *cpus, size_t count) {
    (void)context;
    for (size_t n = 0; n < count; n++) {
        atomic_fetch_add(&sent, 1);
        atomic_store(&pending[cpus[n]], true);
    }
}

static uint64_t now(void *context) {
    (void)context;
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

// A CPU that spins lets the host's other threads run: there may be fewer processors than CPUs. It sleeps, for as short as can be: where other
// programs want the processors, who yields waits for all of them each time, and who wakes does not.
static void pause_for(void *context, uint32_t ns) {
    (void)context;
    (void)ns;
    take_interrupt();
    nanosleep(&(struct timespec){.tv_nsec = 1}, NULL);
}

// Each CPU has one task, so whoever waits looks again and again, as a halted CPU would after each interrupt.
static void wait_for(void *context, struct quietmm_wait_key key, bool (*ready)(void *with), void *with) {
    if (how == EARLY_WAIT && key.kind != QUIETMM_WAIT_KIND_KSWAPD) return;
    while (!ready(with)) {
        pause_for(context, 0);
        if (key.kind == QUIETMM_WAIT_KIND_KSWAPD) nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
    }
}

static void wake(void *context, struct quietmm_wait_key key) {
    (void)context;
    (void)key;
}

// Memory.

static void *direct(void *context, uint64_t at) {
    (void)context;
    return how == NO_MEMORY_THERE ? NULL : memory + at;
}

static bool later_region(void *context, size_t nth, struct quietmm_region *region) {
    (void)context;
    *region = (struct quietmm_region){.start = COMES, .frames = LATER, .node = 0};
    return nth == 0;
}

volatile uint64_t *machine_frame(uint32_t frame) { return (volatile uint64_t *)(memory + (uint64_t)frame * PAGE); }

static void clear_frame(void *context, uint32_t frame) { memset(direct(context, (uint64_t)frame * PAGE), 0, PAGE); }

// Programs may write to `from` meanwhile, a word at a time.
static void copy_words(_Atomic uint64_t *to, _Atomic uint64_t *from) {
    for (int n = 0; n < PAGE / 8; n++) {
        uint64_t word = atomic_load_explicit(&from[n], memory_order_relaxed);
        atomic_store_explicit(&to[n], word, memory_order_relaxed);
    }
}

static void copy_frame(void *context, uint32_t from, uint32_t to) {
    copy_words(direct(context, (uint64_t)to * PAGE), direct(context, (uint64_t)from * PAGE));
}

// The TLB.

static void flush_page(void *context, uint64_t page) {
    (void)context;
    if (how != NO_FLUSH && tlb[page % TLB].page == page) tlb[page % TLB].valid = false;
}

static void flush_space(void *context) {
    (void)context;
    for (int n = 0; n < TLB; n++) {
        if (how != NO_FLUSH) tlb[n].valid = false;
    }
}

static void load_space(void *context, uint32_t root, uint16_t tag, bool keep) {
    (void)tag;
    (void)keep;
    loaded_root = root;
    flush_space(context);
}

enum { PRESENT = 1, WRITABLE = 2, USER = 4, ACCESSED = 32, DIRTY = 64 };

// As the hardware walks: four levels of tables, and accessed and dirty bits that are set in one step, which fails if the entry has
// changed, before the entry is cached.
static bool walk(uint64_t page, bool write) {
    uint32_t table = loaded_root;
    for (int level = 3; table != 0; level--) {
        _Atomic uint64_t *at = (_Atomic uint64_t *)(memory + (uint64_t)table * PAGE) + (page >> 9 * level) % 512;
        uint64_t entry = atomic_load(at);
        uint64_t wanted = PRESENT | USER | (write ? WRITABLE : 0), set;
        do {
            if ((entry & wanted) != wanted) return false;
            set = entry | ACCESSED | (write && level == 0 ? DIRTY : 0);
        } while (set != entry && !atomic_compare_exchange_weak(at, &entry, set));
        table = (uint32_t)(entry >> 12 & 0xffffffff);
        if (level == 0) {
            tlb[page % TLB].valid = true;
            tlb[page % TLB].page = page;
            tlb[page % TLB].frame = table;
            tlb[page % TLB].writable = entry & WRITABLE;
            tlb[page % TLB].dirty = set & DIRTY;
            return true;
        }
    }
    return false;
}

// Where a user address leads. A write through an entry that is not dirty walks again: `QUIETMM_GUARANTEE_CLEAN_WRITE_WALKS`.
static _Atomic uint64_t *translate(uint64_t at, bool write) {
    uint64_t page = at / PAGE;
    for (;;) {
        bool hit = tlb[page % TLB].valid && tlb[page % TLB].page == page;
        if (hit && (!write || (tlb[page % TLB].writable && tlb[page % TLB].dirty))) break;
        if (walk(page, write)) break;
        // The page fault, on the task's stack and with interrupts on. What it answers is the program's affair.
        struct quietmm_space space;
        if (!quietmm_loaded_space(manager, &space)) return NULL;
        if (quietmm_space_fault(manager, space, at, write ? QUIETMM_ACCESS_WRITE : QUIETMM_ACCESS_READ)) return NULL;
    }
    return (_Atomic uint64_t *)(memory + (uint64_t)tlb[page % TLB].frame * PAGE + at % PAGE);
}

bool machine_read(uint64_t at, uint64_t *word) {
    machine_step();
    _Atomic uint64_t *there = translate(at, false);
    if (there) *word = atomic_load(there);
    return there != NULL;
}

bool machine_write(uint64_t at, uint64_t word) {
    machine_step();
    _Atomic uint64_t *there = translate(at, true);
    if (there) atomic_store(there, word);
    return there != NULL;
}

// The disk: one file, and one swap device.

static void *block_of(struct quietmm_store store, uint64_t block) {
    bool is_swap = store.kind == QUIETMM_STORE_KIND_SWAP;
    if (block >= (is_swap ? SWAP_PAGES : FILE_PAGES)) abort();
    return (is_swap ? swap_pages : file_pages) + block * PAGE;
}

static uint32_t read_block(void *context, struct quietmm_store from, uint64_t block, uint32_t frame) {
    copy_words(direct(context, (uint64_t)frame * PAGE), block_of(from, block));
    return QUIETMM_IO_DONE;
}

static uint32_t write_block(void *context, struct quietmm_store to, uint64_t block, uint32_t frame) {
    copy_words(block_of(to, block), direct(context, (uint64_t)frame * PAGE));
    return QUIETMM_IO_DONE;
}

// Several at once.
static atomic_uint together;

static void note_together(size_t count) {
    unsigned most = atomic_load(&together);
    while (count > most && !atomic_compare_exchange_weak(&together, &most, (unsigned)count)) {}
}
unsigned machine_together(void) { return atomic_load(&together); }

static void read_blocks(void *context, struct quietmm_transfer *transfers, size_t count) {
    note_together(count);
    for (struct quietmm_transfer *one = transfers; one < transfers + count; one++) {
        if (one->result != QUIETMM_IO_FAILED) abort(); // nothing has come of it yet
        one->result = read_block(context, one->store, one->block, one->frame);
    }
}

static void write_blocks(void *context, struct quietmm_transfer *transfers, size_t count) {
    note_together(count);
    for (struct quietmm_transfer *one = transfers; one < transfers + count; one++)
        one->result = write_block(context, one->store, one->block, one->frame);
}

static uint32_t discard(void *context, struct quietmm_file file, uint64_t first, uint64_t count) {
    (void)context;
    (void)file;
    memset(file_pages + first * PAGE, 0, count * PAGE);
    return QUIETMM_IO_DONE;
}

// A file system that lets the first page be written, and no other.
static unsigned asked;

static bool page_mkwrite(void *context, struct quietmm_file file, uint64_t block) {
    (void)context;
    (void)file;
    asked++;
    return block == 0;
}
unsigned machine_asked(void) { return asked; }

// No thread translates kernel addresses here, so there is nothing to forget.
static void flush_kernel_page(void *context, uint64_t page) {
    (void)context;
    (void)page;
}
static void flush_kernel(void *context) { (void)context; }

struct quietmm_platform machine(enum broken broken) {
    how = broken;
    return (struct quietmm_platform){
        .possible_cpus = CPUS,
        // `walk` and `translate` are such hardware.
        .guarantees = QUIETMM_GUARANTEE_CLEAN_WRITE_WALKS | QUIETMM_GUARANTEE_UNFLUSHED_ACCESSED |
                      QUIETMM_GUARANTEE_ACCESSED_BEFORE_CACHED,
        .this_cpu = this_cpu,
        .is_online = is_online,
        .irqs_off = irqs_off,
        .irqs_on = irqs_on,
        .interrupt = interrupt,
        .now = now,
        .pause = pause_for,
        .direct = direct,
        .clear_frame = clear_frame,
        .copy_frame = copy_frame,
        .later_region = later_region,
        .flush_kernel_page = flush_kernel_page,
        .flush_kernel = flush_kernel,
        .flush_page = flush_page,
        .flush_space = flush_space,
        .load_space = load_space,
        .wait = wait_for,
        .wake = wake,
        .device = {.read = read_block,
                   .write = write_block,
                   .read_all = read_blocks,
                   .write_all = write_blocks,
                   .discard = discard,
                   .page_mkwrite = page_mkwrite},
    };
}

void quietmm_panicked(const char *what) {
    fprintf(stderr, "quietmm: %s\n", what);
    _Exit(3);
}
