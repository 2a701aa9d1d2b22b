// A kernel in C around the core, on threads: four CPUs share a space that is larger than memory, a file, and a swap device, and look at
// each other's pages. Two more run kswapd, one for the node where all CPUs are and one for another that has memory only.
//
//     scripts/c-library            builds the library and runs this, with its controls
//     embed [POLICY] [BROKEN]      BROKEN: no-flush, false-cpu, early-wait, no-memory
#define _POSIX_C_SOURCE 200809L
#include "machine.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Each worker has a part of the memory that all see. Together it does not fit.
enum { OWN = 700, PAGES = WORKERS * OWN, ROUNDS = 20000, CHUNK = 8 };
static const uint64_t HEAP = 0x400, TEXT = 0x40000, ELSEWHERE = 0x80000;

static const struct quietmm *mm;
static struct quietmm_space shared;
static struct quietmm_file file;

#define CHECK(that)                                                                       \
    do {                                                                                  \
        if (!(that)) {                                                                    \
            fprintf(stderr, "%s:%d: CPU %u: %s\n", __FILE__, __LINE__, machine_cpu(), #that); \
            _Exit(2);                                                                     \
        }                                                                                 \
    } while (0)
#define DONE(call) CHECK((call) == QUIETMM_ERROR_OK)
#define REFUSED(call, error) CHECK((call) == QUIETMM_ERROR_##error)

// What each page may show: in its first word the number of the last write, in the second whose page it is. `issued` is told before a
// write, `gone` after the page was unmapped or dropped: nobody who looks later may see an older write.
static _Atomic uint64_t issued[PAGES], gone[PAGES];

static struct quietmm_range pages(uint64_t first, uint64_t count) {
    return (struct quietmm_range){.first = first, .pages = count};
}
static uint64_t address(uint64_t page) { return (HEAP + page) * PAGE; }

static uint64_t chance(uint64_t *seed) {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    return *seed >> 11;
}

static void write_page(uint64_t page) {
    uint64_t next = atomic_load(&issued[page]) + 1;
    atomic_store(&issued[page], next);
    CHECK(machine_write(address(page) + 8, page + 1));
    CHECK(machine_write(address(page), next));
}

// A page of one's own shows the last write, or zeros if that is gone; a page of another's, whatever may be there by now.
static void look_at(uint64_t page, bool own, uint64_t *seen) {
    uint64_t least = atomic_load(&gone[page]), version, whose;
    if (!machine_read(address(page), &version) || !machine_read(address(page) + 8, &whose)) {
        CHECK(!own); // its owner has it unmapped
        return;
    }
    uint64_t most = atomic_load(&issued[page]);
    CHECK(whose == 0 || whose == page + 1);
    CHECK(version <= most && (version == 0 || (version > least && version >= seen[page])));
    if (own) CHECK(version == (most == least ? 0 : most));
    if (version > seen[page]) seen[page] = version;
}

// Both CPUs that see the file agree, by whatever way they look.
static void use_file(const struct quietmm_read_ahead *open, uint64_t page, uint64_t word) {
    uint64_t back = 0;
    size_t moved;
    DONE(quietmm_file_write(mm, file, page * PAGE, &word, sizeof word, &moved));
    CHECK(moved == sizeof word && machine_read((TEXT + page) * PAGE, &back) && back == word);
    CHECK(machine_write((TEXT + page) * PAGE, word + 1));
    if (word % 3 == 0) DONE(quietmm_file_evict(mm, file, page, 1, NULL));
    DONE(quietmm_file_read_with(mm, file, open, page * PAGE, &back, sizeof back, &moved));
    CHECK(moved == sizeof back && back == word + 1);
}

// A child sees what its parent had, and the parent nothing of what it writes.
static void fork_one(uint64_t page) {
    struct quietmm_space child;
    uint64_t before, now;
    CHECK(machine_read(address(page), &before));
    DONE(quietmm_space_fork(mm, shared, &child));
    DONE(quietmm_space_switch_to(mm, child));
    CHECK(machine_read(address(page), &now) && now == before);
    CHECK(machine_write(address(page), 1ull << 60));
    CHECK(machine_read(address(page), &now) && now == 1ull << 60);
    DONE(quietmm_space_switch_to(mm, shared));
    CHECK(machine_read(address(page), &now) && now == before);
    DONE(quietmm_space_destroy(mm, child));
    REFUSED(quietmm_space_switch_to(mm, child), NO_SUCH_SPACE);
}

// A device writes to memory of the program's, by its frames, while the program goes on and memory is short.
static void device_writes(uint64_t page, uint64_t word) {
    struct quietmm_pins pins;
    struct quietmm_range buffer = pages(HEAP + page, 2);
    uint64_t there;
    DONE(quietmm_space_pin(mm, shared, buffer, QUIETMM_ACCESS_WRITE, QUIETMM_PIN_TERM_SHORT, &pins));
    CHECK(pins.count == 2);
    for (uint64_t n = 0; n < 2; n++) {
        machine_frame(pins.frames[n])[2] = word + n;
        for (uint64_t other = 0; other < 8; other++) write_page(page / OWN * OWN + (page + word + other * 61) % OWN);
        CHECK(machine_read(address(page + n) + 16, &there) && there == word + n);
        CHECK(machine_write(address(page + n) + 16, word + n + 1) && machine_frame(pins.frames[n])[2] == word + n + 1);
    }
    DONE(quietmm_unpin(mm, &pins));
    REFUSED(quietmm_unpin(mm, &pins), BAD_VALUE);
    CHECK(machine_read(address(page) + 16, &there) && there == word + 1);
}

// What is locked stays in memory while all else goes.
static void lock_some(uint64_t page, uint64_t round) {
    struct quietmm_range some = pages(HEAP + page, CHUNK);
    uint8_t there[CHUNK];
    DONE(quietmm_space_lock(mm, shared, some));
    // Locked already; no less from now on.
    DONE(quietmm_space_lock_on_fault(mm, shared, some));
    for (uint64_t other = 0; other < 32; other++) write_page(page / OWN * OWN + (page + round + other * 61) % OWN);
    DONE(quietmm_space_residency(mm, shared, some, there));
    for (int n = 0; n < CHUNK; n++) CHECK(there[n] == 1);
    DONE(quietmm_space_unlock(mm, shared, some));
}

// A network card takes a frame for each packet, in the handler of its interrupt, and the next one gives it back. What the lists of this CPU
// do not keep its task frees.
static atomic_uint packets, put_off;
static _Thread_local uint32_t packet, left;
static _Thread_local bool has_packet, has_left, is_down;

static void packet_comes(void) {
    uint32_t frame;
    if (is_down) return;
    if (has_packet) {
        CHECK(*machine_frame(packet) == packet + 1ull); // nobody else has had it
        enum quietmm_error freed = has_left ? QUIETMM_ERROR_BUSY : quietmm_frames_free_in_handler(mm, packet, 0);
        if (freed && has_left) return;
        CHECK(freed == QUIETMM_ERROR_OK || freed == QUIETMM_ERROR_BUSY);
        if (freed) {
            left = packet;
            has_left = true;
        } else {
            REFUSED(quietmm_frames_free_in_handler(mm, packet, 0), NOT_ALLOCATED);
        }
        has_packet = false;
    } else if (quietmm_frames_alloc_in_handler(mm, 0, &frame) == QUIETMM_ERROR_OK) {
        *machine_frame(frame) = frame + 1ull;
        packet = frame;
        has_packet = true;
        atomic_fetch_add(&packets, 1);
    }
}

static void free_packets(bool all) {
    // The handler changes `has_left` to true only, and leaves it alone as long as it is true.
    if (has_left) {
        DONE(quietmm_frames_free(mm, left, 0));
        atomic_fetch_add(&put_off, 1);
        has_left = false;
    }
    if (all && has_packet) DONE(quietmm_frames_free(mm, packet, 0));
    is_down = all;
}

static void work(unsigned cpu) {
    uint64_t seed = 0x9e3779b97f4a7c15 + cpu, mine = (uint64_t)cpu * OWN;
    uint64_t *seen = calloc(PAGES, sizeof *seen);
    struct quietmm_read_ahead open;
    quietmm_read_ahead_begin(&open);
    CHECK(seen);
    DONE(quietmm_space_switch_to(mm, shared));
    for (uint64_t round = 0; round < ROUNDS; round++) {
        uint64_t page = mine + chance(&seed) % OWN, chunk = mine + chance(&seed) % (OWN - CHUNK);
        struct quietmm_range part = pages(HEAP + chunk, CHUNK);
        free_packets(false);
        switch (chance(&seed) % 256) {
        case 0: // what it unmaps is gone for all
            DONE(quietmm_space_unmap(mm, shared, part));
            CHECK(!machine_write(address(chunk), 1));
            for (uint64_t n = chunk; n < chunk + CHUNK; n++) atomic_store(&gone[n], atomic_load(&issued[n]));
            DONE(quietmm_space_map(mm, shared, part, (struct quietmm_backing){.kind = QUIETMM_BACKING_KIND_ANONYMOUS},
                                   QUIETMM_PROTECTION_READ_WRITE));
            break;
        case 1:
            DONE(quietmm_space_advise(mm, shared, part, QUIETMM_ADVISED_DROP));
            for (uint64_t n = chunk; n < chunk + CHUNK; n++) atomic_store(&gone[n], atomic_load(&issued[n]));
            break;
        case 2: // what may not be written is not
            DONE(quietmm_space_protect(mm, shared, part, QUIETMM_PROTECTION_READ));
            CHECK(!machine_write(address(chunk), 1));
            look_at(chunk, true, seen);
            DONE(quietmm_space_protect(mm, shared, part, QUIETMM_PROTECTION_READ_WRITE));
            break;
        case 3:
            if (round % 8 == 0) fork_one(page);
            break;
        case 4: { // there and back
            DONE(quietmm_space_move(mm, shared, part, ELSEWHERE + chunk));
            CHECK(!machine_write(address(chunk), 1));
            DONE(quietmm_space_move(mm, shared, pages(ELSEWHERE + chunk, CHUNK), HEAP + chunk));
            look_at(chunk, true, seen);
            break;
        }
        case 5:
        case 6: use_file(&open, cpu * (FILE_PAGES / WORKERS) + round % (FILE_PAGES / WORKERS), round); break;
        case 7: { // a kernel's own
            uint32_t frame;
            struct quietmm_range there;
            DONE(quietmm_frames_alloc(mm, 1, QUIETMM_ANY_NODE, QUIETMM_LOOK_MAY_RECLAIM, &frame));
            DONE(quietmm_vmap_map(mm, (uint32_t[]){frame + 1, frame}, 2, NULL, QUIETMM_KERNEL_PROTECTION_READ_WRITE, &there));
            uint32_t found;
            DONE(quietmm_vmap_frame_at(mm, there.first + 1, &found));
            CHECK(found == frame);
            DONE(quietmm_vmap_unmap(mm, there.first));
            DONE(quietmm_vmap_unmap_aliases(mm));
            DONE(quietmm_frames_free(mm, frame, 1));
            break;
        }
        case 8: device_writes(chunk, round); break;
        case 9: lock_some(chunk, round); break;
        default:
            if (chance(&seed) % 4) {
                write_page(page);
            } else {
                uint64_t any = chance(&seed) % PAGES;
                look_at(any, any / OWN == cpu, seen);
            }
        }
    }
    for (uint64_t page = mine; page < mine + OWN; page++) look_at(page, true, seen);
    free_packets(true);
    free(seen);
    quietmm_unload(mm);
}

// CPUs come, work, and go.
static atomic_uint working = WORKERS;

static void *cpu_begins(void *number) {
    machine_be((unsigned)(uintptr_t)number, mm);
    DONE(quietmm_cpu_online(mm));
    REFUSED(quietmm_cpu_online(mm), ALREADY_ONLINE);
    CHECK(quietmm_is_online(mm, machine_cpu()));
    if (machine_cpu() >= KSWAPD) {
        quietmm_enter_lazy(mm);
        for (;;) DONE(quietmm_kswapd(mm, (uint16_t)(machine_cpu() - KSWAPD)));
    }
    work(machine_cpu());
    DONE(quietmm_cpu_offline(mm));
    atomic_fetch_sub(&working, 1);
    return NULL;
}

static uint64_t counter(const char *name) {
    uint64_t value;
    DONE(quietmm_counter(mm, name, &value));
    return value;
}

// Nothing of what is wrong is carried out, and each has its number.
static void refuse(void) {
    struct quietmm_space none = {0}, ended, forged;
    size_t moved;
    struct quietmm_entry entry;
    uint32_t frame;
    uint64_t value;
    struct quietmm_backing own = {.kind = QUIETMM_BACKING_KIND_ANONYMOUS};
    REFUSED(quietmm_space_fault(mm, none, PAGE, QUIETMM_ACCESS_READ), NO_SUCH_SPACE);
    DONE(quietmm_create_space(mm, &ended));
    DONE(quietmm_space_destroy(mm, ended));
    REFUSED(quietmm_space_destroy(mm, ended), NO_SUCH_SPACE);
    forged = (struct quietmm_space){.slot = ended.slot, .life = ended.life + 1}; // the number of a place in which nothing lives
    REFUSED(quietmm_space_destroy(mm, forged), NO_SUCH_SPACE);
    forged = (struct quietmm_space){.slot = 1u << 30, .life = 1};
    REFUSED(quietmm_space_switch_to(mm, forged), NO_SUCH_SPACE);
    REFUSED(quietmm_file_destroy(mm, (struct quietmm_file){0}), NO_SUCH_FILE);
    REFUSED(quietmm_file_read(mm, file, 0, NULL, 8, &moved), BAD_VALUE);
    REFUSED(quietmm_file_write(mm, file, 0, NULL, 8, &moved), BAD_VALUE);
    DONE(quietmm_file_read(mm, file, 0, NULL, 0, &moved));
    REFUSED(quietmm_space_set_group(mm, shared, (struct quietmm_group){.slot = 3, .life = 1}), NO_SUCH_GROUP);
    REFUSED(quietmm_space_map(mm, shared, pages(HEAP, 1), own, 99), BAD_VALUE);
    REFUSED(quietmm_space_map(mm, shared, pages(0, 1), own, QUIETMM_PROTECTION_READ), NOT_MAPPABLE);
    REFUSED(quietmm_space_map(mm, shared, pages(HEAP, UINT64_MAX), own, QUIETMM_PROTECTION_READ), BAD_RANGE);
    REFUSED(quietmm_space_map(mm, shared, pages(HEAP, 1), own, QUIETMM_PROTECTION_READ), OVERLAPS);
    REFUSED(quietmm_space_fault(mm, shared, ELSEWHERE * PAGE, QUIETMM_ACCESS_READ), NOT_MAPPED);
    REFUSED(quietmm_space_lookup(mm, shared, 1ull << 40, &entry), BAD_RANGE);
    REFUSED(quietmm_frames_alloc(mm, 11, QUIETMM_ANY_NODE, QUIETMM_LOOK_NOW, &frame), BAD_ORDER);
    DONE(quietmm_frames_alloc(mm, 0, QUIETMM_ANY_NODE, QUIETMM_LOOK_NOW, &frame));
    DONE(quietmm_frames_free(mm, frame, 0));
    REFUSED(quietmm_frames_free(mm, frame, 0), NOT_ALLOCATED);
    DONE(quietmm_frames_alloc_below(mm, 2, UINT64_C(1) << 32, QUIETMM_ANY_NODE, QUIETMM_LOOK_NOW, &frame));
    DONE(quietmm_frames_free(mm, frame, 2));
    REFUSED(quietmm_frames_alloc_below(mm, 0, 0, QUIETMM_ANY_NODE, QUIETMM_LOOK_NOW, &frame), OUT_OF_MEMORY);
    REFUSED(quietmm_frames_alloc_contiguous(mm, 0, UINT64_MAX, &frame), BAD_SETTING);
    DONE(quietmm_frames_alloc_contiguous(mm, 100, UINT64_MAX, &frame));
    for (uint32_t i = 0; i < 100; i++)
        DONE(quietmm_frames_free(mm, frame + i, 0));
    REFUSED(quietmm_frames_free(mm, COMES, 0), NO_SUCH_FRAME);
    REFUSED(quietmm_frames_free_in_handler(mm, COMES, 0), NO_SUCH_FRAME);
    REFUSED(quietmm_frames_alloc_in_handler(mm, 11, &frame), OUT_OF_MEMORY);
    // No list has blocks of 16 frames: a task frees them.
    DONE(quietmm_frames_alloc(mm, 4, QUIETMM_ANY_NODE, QUIETMM_LOOK_NOW, &frame));
    REFUSED(quietmm_frames_free_in_handler(mm, frame, 4), BUSY);
    DONE(quietmm_frames_free(mm, frame, 4));
    CHECK(quietmm_online_cpus(mm) == 1 && quietmm_is_online(mm, 0) && !quietmm_is_online(mm, 1) && !quietmm_is_online(mm, 1u << 16));
    uint32_t batch, high;
    DONE(quietmm_frames_set_list_limits(mm, 1, 3, 9));
    DONE(quietmm_frames_list_limits(mm, 1, &batch, &high));
    CHECK(batch == 3 && high == 9);
    REFUSED(quietmm_frames_list_limits(mm, NODES, &batch, &high), NO_SUCH_NODE);
    REFUSED(quietmm_counter(mm, "no such", &value), NO_SUCH_COUNTER);
    CHECK(strcmp(quietmm_error_text(QUIETMM_ERROR_NO_SUCH_SPACE), "not a live address space") == 0);
}

// Memory goes, block by block, and comes back; what is in use keeps its block here: later it would be all of them.
static void memory_goes(void) {
    struct quietmm_block block = {0};
    uint32_t first, used, held, went = 0;
    REFUSED(quietmm_memory_finish_offline(mm, &block, NULL), BAD_VALUE);
    DONE(quietmm_frames_alloc(mm, 0, QUIETMM_ANY_NODE, QUIETMM_LOOK_NOW, &held));
    quietmm_frames_drain(mm, true);
    uint64_t before = quietmm_frames_available(mm);
    for (size_t place = 0; quietmm_memory_block(mm, place, &first) == QUIETMM_ERROR_OK; place++) {
        REFUSED(quietmm_memory_begin_offline(mm, first + 1, &block), BAD_BLOCK);
        enum quietmm_error begun = quietmm_memory_begin_offline(mm, first, &block);
        if (begun == QUIETMM_ERROR_NOT_MOVABLE) continue; // the core's books
        DONE(begun);
        if (quietmm_memory_finish_offline(mm, &block, &used) == QUIETMM_ERROR_BUSY) {
            CHECK(used / 1024 == first / 1024);
            DONE(quietmm_memory_cancel_offline(mm, &block));
            continue;
        }
        CHECK(block.state == QUIETMM_BLOCK_STATE_OFFLINE && held / 1024 != first / 1024);
        CHECK(quietmm_frames_available(mm) == before - 1024);
        REFUSED(quietmm_memory_begin_offline(mm, first, &(struct quietmm_block){0}), NO_SUCH_FRAME);
        DONE(quietmm_memory_bring_online(mm, &block));
        went++;
    }
    CHECK(went > 0 && quietmm_frames_available(mm) == before);
    DONE(quietmm_frames_free(mm, held, 0));
    quietmm_frames_drain(mm, true);
}

// Memory comes that was not there at the start, is used, goes, and comes back.
static void memory_comes(void) {
    struct quietmm_block block, other = {0};
    uint32_t frame;
    REFUSED(quietmm_memory_add(mm, COMES + 1, &other), BAD_BLOCK);
    REFUSED(quietmm_memory_add(mm, 0, &other), ALREADY_HERE);
    REFUSED(quietmm_memory_begin_offline(mm, COMES, &other), NO_SUCH_FRAME);
    uint64_t before = quietmm_frames_available(mm);
    DONE(quietmm_memory_add(mm, COMES, &block));
    CHECK(block.first == COMES && block.state == QUIETMM_BLOCK_STATE_OFFLINE);
    REFUSED(quietmm_memory_add(mm, COMES, &other), ALREADY_HERE);
    DONE(quietmm_memory_bring_online(mm, &block));
    CHECK(quietmm_frames_available(mm) > before + LATER - 64);
    DONE(quietmm_frames_alloc(mm, 9, QUIETMM_ANY_NODE, QUIETMM_LOOK_NOW, &frame));
    CHECK(frame >= COMES); // high memory is used first
    DONE(quietmm_frames_free(mm, frame, 9));
    DONE(quietmm_memory_begin_offline(mm, COMES, &block));
    DONE(quietmm_memory_finish_offline(mm, &block, NULL));
    DONE(quietmm_memory_bring_online(mm, &block));
}

// The node of a page of the loaded space, which is there once it was written to.
static unsigned node_of(struct quietmm_space space, uint64_t page) {
    struct quietmm_entry entry;
    DONE(quietmm_space_lookup(mm, space, HEAP + page, &entry));
    CHECK(entry.frame != UINT32_MAX);
    return entry.frame >= FRAMES && entry.frame < FRAMES + FAR;
}

// Pages come on the nodes that are chosen, and move from one to the other.
static void placed(void) {
    enum { SOME = 16, NEAR = 1, BOTH = 3, THERE = 2 };
    struct quietmm_backing own = {.kind = QUIETMM_BACKING_KIND_ANONYMOUS};
    struct quietmm_node_policy found, bind = {.kind = QUIETMM_NODE_POLICY_KIND_BIND, .nodes = THERE},
                                      turns = {.kind = QUIETMM_NODE_POLICY_KIND_INTERLEAVE, .nodes = BOTH},
                                      prefer = {.kind = QUIETMM_NODE_POLICY_KIND_PREFERRED, .nodes = THERE};
    struct quietmm_range all = pages(HEAP, 4 * SOME);
    struct quietmm_space space, child;
    struct quietmm_migrated moved;
    struct quietmm_file of_both;
    uint64_t word;
    size_t put;
    DONE(quietmm_create_space(mm, &space));
    DONE(quietmm_space_map(mm, space, all, own, QUIETMM_PROTECTION_READ_WRITE));
    DONE(quietmm_space_set_node_policy(mm, space, pages(HEAP, SOME), bind));
    DONE(quietmm_space_set_node_policy(mm, space, pages(HEAP + SOME, SOME), turns));
    const struct quietmm_node_policy *const each[] = {&bind, &turns, &prefer};
    for (int n = 0; n < 3; n++) {
        DONE(quietmm_space_set_node_policy(mm, space, pages(HEAP + 3 * SOME, 1), *each[n]));
        DONE(quietmm_space_node_policy(mm, space, HEAP + 3 * SOME, &found));
        CHECK(found.kind == each[n]->kind && found.nodes == each[n]->nodes);
    }
    DONE(quietmm_space_node_policy(mm, space, HEAP + 2 * SOME, &found));
    CHECK(found.kind == QUIETMM_NODE_POLICY_KIND_LOCAL && found.nodes == 0);
    REFUSED(quietmm_space_node_policy(mm, space, HEAP - 1, &found), NOT_MAPPED);
    REFUSED(quietmm_space_set_node_policy(mm, space, pages(HEAP - 1, 2), bind), NOT_MAPPED);
    DONE(quietmm_space_switch_to(mm, space));
    for (uint64_t n = 0; n < 4 * SOME; n++) {
        // The last quarter by the policy that the space has by then.
        if (n == 3 * SOME) {
            DONE(quietmm_space_set_default_node_policy(mm, space, prefer));
            DONE(quietmm_space_unmap(mm, space, pages(HEAP + n, SOME)));
            DONE(quietmm_space_map(mm, space, pages(HEAP + n, SOME), own, QUIETMM_PROTECTION_READ_WRITE));
        }
        CHECK(machine_write(address(n), n + 1));
        uint64_t quarter = n / SOME;
        CHECK(node_of(space, n) == (quarter == 1 ? (HEAP + n) % 2 : quarter != 2));
    }

    // What only this space shows, then also what it shares with a child.
    DONE(quietmm_space_migrate(mm, space, pages(HEAP, SOME), 0, &word));
    CHECK(word == SOME);
    DONE(quietmm_space_fork(mm, space, &child));
    DONE(quietmm_space_migrate_all(mm, space, all, NEAR, 1, &moved));
    CHECK(moved.moved == 2 * SOME + SOME / 2 && moved.stayed == 0);
    for (uint64_t n = 0; n < 4 * SOME; n++)
        CHECK(node_of(child, n) == 1 && machine_read(address(n), &word) && word == n + 1);

    // More than a node has: what is bound to it goes to swap, and not elsewhere.
    struct quietmm_range most = pages(HEAP + 4 * SOME, FAR + SOME);
    DONE(quietmm_space_map(mm, space, most, own, QUIETMM_PROTECTION_READ_WRITE));
    DONE(quietmm_space_set_node_policy(mm, space, most, bind));
    for (uint64_t n = 0; n < most.pages; n++) {
        CHECK(machine_write(address(4 * SOME + n), n));
        CHECK(node_of(space, 4 * SOME + n) == 1);
    }
    for (uint64_t n = 0; n < most.pages; n++) CHECK(machine_read(address(4 * SOME + n), &word) && word == n);
    DONE(quietmm_space_unmap(mm, space, most));
    DONE(quietmm_create_file(mm, 2, &of_both));
    DONE(quietmm_file_write(mm, of_both, 0, &word, sizeof word, &put));
    DONE(quietmm_file_migrate(mm, of_both, 0, 2, BOTH, 1, &moved));
    CHECK(moved.moved == 1 && moved.stayed == 0);
    DONE(quietmm_file_migrate(mm, of_both, 0, 2, NEAR, 1, &moved));
    CHECK(moved.moved == 0 && moved.stayed == 0);
    REFUSED(quietmm_file_migrate(mm, of_both, 0, 2, NEAR, NODES, &moved), NO_SUCH_NODE);
    DONE(quietmm_file_destroy(mm, of_both));

    prefer.nodes = BOTH;
    REFUSED(quietmm_space_set_node_policy(mm, space, all, prefer), BAD_VALUE);
    prefer.nodes = 1 << NODES;
    REFUSED(quietmm_space_set_node_policy(mm, space, all, prefer), NO_SUCH_NODE);
    bind.nodes = 1 << NODES;
    REFUSED(quietmm_space_set_default_node_policy(mm, space, bind), NO_SUCH_NODE);
    bind.nodes = 0;
    REFUSED(quietmm_space_set_default_node_policy(mm, space, bind), BAD_SETTING);
    bind.kind = 4;
    REFUSED(quietmm_space_set_default_node_policy(mm, space, bind), BAD_VALUE);
    REFUSED(quietmm_set_demotion(mm, 0, 0), BAD_SETTING);
    REFUSED(quietmm_set_demotion(mm, 0, NODES), NO_SUCH_NODE);
    DONE(quietmm_set_demotion(mm, 0, 1));
    REFUSED(quietmm_set_demotion(mm, 1, 0), BAD_SETTING);
    CHECK(quietmm_demotion(mm, 0) == 1 && quietmm_demotion(mm, 1) == -1);
    DONE(quietmm_set_demotion(mm, 0, -1));
    quietmm_unload(mm);
    DONE(quietmm_space_destroy(mm, child));
    DONE(quietmm_space_destroy(mm, space));
}

// A group has no more than its limit, and what it has not in memory is in swap; what it frees is charged to it no more.
static void limited(void) {
    enum { LIMIT = 96, MOST = 400 };
    struct quietmm_backing own = {.kind = QUIETMM_BACKING_KIND_ANONYMOUS};
    struct quietmm_group group, found;
    struct quietmm_group_usage charged;
    struct quietmm_space_usage uses;
    struct quietmm_space space;
    uint64_t word;
    DONE(quietmm_create_group(mm, LIMIT, &group));
    DONE(quietmm_create_space(mm, &space));
    DONE(quietmm_space_set_group(mm, space, group));
    DONE(quietmm_space_group(mm, space, &found));
    CHECK(found.slot == group.slot && found.life == group.life);
    DONE(quietmm_space_map(mm, space, pages(HEAP, MOST), own, QUIETMM_PROTECTION_READ_WRITE));
    DONE(quietmm_space_switch_to(mm, space));
    for (uint64_t n = 0; n < MOST; n++) {
        CHECK(machine_write(address(n), n + 1));
        DONE(quietmm_group_usage(mm, group, &charged));
        CHECK(charged.charged <= LIMIT && charged.spaces == 1);
    }
    CHECK(charged.hits > 0);
    DONE(quietmm_space_usage(mm, space, &uses));
    CHECK(uses.anon + uses.swapped == MOST && uses.anon + uses.tables <= LIMIT && uses.file == 0 && uses.shared == 0);
    for (uint64_t n = 0; n < MOST; n++) CHECK(machine_read(address(n), &word) && word == n + 1);
    DONE(quietmm_space_advise(mm, space, pages(HEAP, MOST), QUIETMM_ADVISED_FREE));
    for (uint64_t n = 0; n < MOST; n++) CHECK(machine_read(address(n), &word) && (word == n + 1 || word == 0));
    REFUSED(quietmm_group_destroy(mm, group), BUSY);
    DONE(quietmm_space_set_group(mm, space, (struct quietmm_group){0}));
    quietmm_unload(mm);
    DONE(quietmm_space_destroy(mm, space));
    quietmm_drain_lru_batches(mm);
    DONE(quietmm_group_usage(mm, group, &charged));
    CHECK(charged.spaces == 0 && charged.charged == charged.stocked);
    DONE(quietmm_group_set_limit(mm, group, LIMIT / 2));
    DONE(quietmm_group_destroy(mm, group));
    REFUSED(quietmm_group_usage(mm, group, &charged), NO_SUCH_GROUP);
}

// The file system hears of the first write to a page, and may refuse it.
static void watched(void) {
    struct quietmm_file watched;
    struct quietmm_space space;
    uint64_t written;
    DONE(quietmm_create_file(mm, 2, &watched));
    DONE(quietmm_file_watch_writes(mm, watched));
    DONE(quietmm_create_space(mm, &space));
    struct quietmm_backing of_file = {.kind = QUIETMM_BACKING_KIND_FILE, .file = watched};
    DONE(quietmm_space_map(mm, space, pages(HEAP, 2), of_file, QUIETMM_PROTECTION_READ_WRITE));
    REFUSED(quietmm_file_watch_writes(mm, watched), BUSY);
    DONE(quietmm_space_switch_to(mm, space));
    for (uint64_t n = 1; n <= 3; n++) {
        CHECK(machine_write(address(0), n) && machine_write(address(0), n) && machine_asked() == n);
        DONE(quietmm_file_write_back(mm, watched, &written));
        CHECK(written == 1);
    }
    REFUSED(quietmm_space_fault(mm, space, address(1), QUIETMM_ACCESS_WRITE), WRITE_REFUSED);
    quietmm_unload(mm);
    DONE(quietmm_space_destroy(mm, space));
    DONE(quietmm_file_destroy(mm, watched));
}

// A start that is refused says why, and leaves the storage as good as new.
static void start(struct quietmm_platform platform, const char *policy) {
    size_t align = quietmm_storage_align(), size = (quietmm_storage_size() + align - 1) / align * align;
    uint8_t *storage = aligned_alloc(align, size);
    struct quietmm_config config;
    char why[200];
    CHECK(storage);
    quietmm_config(&config);
    config.policy = "linux+drain=never";
    REFUSED(quietmm_init(storage, size, &platform, machine_memory, NODES, &config, why, sizeof why, &mm), BAD_POLICY);
    CHECK(strstr(why, "remote"));
    config.policy = policy;
    config.swap = true;
    config.read_ahead = 32;
    config.fault_around = 16;
    config.groups = 4;
    config.vmap = pages(0xffff900000000, 1 << 16);
    REFUSED(quietmm_init(storage + 1, size, &platform, machine_memory, NODES, &config, why, sizeof why, &mm), BAD_STORAGE);
    REFUSED(quietmm_init(storage, size, &platform, NULL, NODES, &config, why, sizeof why, &mm), BAD_REGION);
    CHECK(strstr(why, "NULL"));
    struct quietmm_platform lacking = platform;
    lacking.flush_space = NULL;
    REFUSED(quietmm_init(storage, size, &lacking, machine_memory, NODES, &config, why, sizeof why, &mm), NO_CALLBACK);
    CHECK(strstr(why, "flush_space"));
    config.scan_batch = 0;
    REFUSED(quietmm_init(storage, size, &platform, machine_memory, NODES, &config, why, sizeof why, &mm), BAD_SETTING);
    CHECK(strstr(why, "scan_batch"));
    config.scan_batch = 32;
    enum quietmm_error made = quietmm_init(storage, size, &platform, machine_memory, NODES, &config, why, sizeof why, &mm);
    if (made) fprintf(stderr, "%s: %s\n", quietmm_error_text(made), why);
    DONE(made);
}

static enum broken broken(const char *name) {
    static const char *const names[] = {"nothing", "no-flush", "false-cpu", "early-wait", "no-memory"};
    for (int n = 0; n < 5; n++) {
        if (strcmp(name, names[n]) == 0) return (enum broken)n;
    }
    fprintf(stderr, "nothing that can be broken: %s\n", name);
    _Exit(1);
}

int main(int count, char **arguments) {
    const char *policy = count > 1 ? arguments[1] : "quiet";
    start(machine(broken(count > 2 ? arguments[2] : "nothing")), policy);
    machine_be(0, mm);
    memory_goes();

    struct quietmm_backing own = {.kind = QUIETMM_BACKING_KIND_ANONYMOUS};
    DONE(quietmm_swap_on(mm, 0, SWAP_PAGES, 0));
    limited();
    watched();
    DONE(quietmm_create_file(mm, FILE_PAGES, &file));
    DONE(quietmm_create_space(mm, &shared));
    DONE(quietmm_space_map(mm, shared, pages(HEAP, PAGES), own, QUIETMM_PROTECTION_READ_WRITE));
    struct quietmm_backing of_file = {.kind = QUIETMM_BACKING_KIND_FILE, .file = file};
    DONE(quietmm_space_map(mm, shared, pages(TEXT, FILE_PAGES), of_file, QUIETMM_PROTECTION_READ_WRITE));
    refuse();
    placed();
    DONE(quietmm_set_demotion(mm, 0, 1));
    machine_on_packet(packet_comes);

    pthread_t threads[CPUS];
    for (uintptr_t cpu = 1; cpu < CPUS; cpu++) CHECK(pthread_create(&threads[cpu], NULL, cpu_begins, (void *)cpu) == 0);
    work(0);
    // Others may still want an answer of this one.
    for (atomic_fetch_sub(&working, 1); atomic_load(&working); ) machine_step();

    CHECK(atomic_load(&packets) > 0 && machine_together() > 1 && counter("pgdemote") > 0);
    CHECK(counter("pswpout") > 0 && counter("pswpin") > 0 && counter("pgevicted") > 0 && counter("swap_lost") == 0);
    printf("%s: %llu faults, %llu pages reclaimed, %llu demoted, %llu swapped in, %u packets (%u freed by tasks), %u interrupts sent\n",
           policy, (unsigned long long)counter("pgfault"), (unsigned long long)counter("pgevicted"),
           (unsigned long long)counter("pgdemote"), (unsigned long long)counter("pswpin"), atomic_load(&packets),
           atomic_load(&put_off), machine_interrupts());

    // The end: nothing is left, and all adds up.
    struct quietmm_audit audit;
    struct quietmm_swap_usage swap;
    uint64_t locked;
    DONE(quietmm_space_locked_pages(mm, shared, &locked));
    CHECK(locked == 0);
    DONE(quietmm_space_destroy(mm, shared));
    DONE(quietmm_file_write_back(mm, file, NULL));
    DONE(quietmm_file_destroy(mm, file));
    quietmm_drain_lru_batches(mm);
    quietmm_swap_usage(mm, &swap);
    CHECK(swap.slots == SWAP_PAGES);
    // What kswapd had in its hands when the space ended has its slot until somebody looks at it again: at the latest whoever takes the device off.
    DONE(quietmm_swap_off(mm, 0));
    quietmm_swap_usage(mm, &swap);
    CHECK(swap.slots == 0 && swap.used == 0);
    DONE(quietmm_vmap_purge(mm, NULL));
    quietmm_frames_drain(mm, true);
    memory_comes();
    quietmm_frames_drain(mm, true);
    if (!quietmm_validate(mm, &audit)) {
        fprintf(stderr, "%s\n", audit.broken);
        return 2;
    }
    CHECK(audit.anon == 0 && audit.file == 0 && audit.kernel == 0 && audit.mapped == 0 && audit.pinned == 0);
    return 0;
}
