// A machine whose CPUs are threads of this program: what `struct quietmm_platform` wants of one.
//
// An interrupt is a flag that its CPU looks at where interrupts come on, while it waits, and between two instructions of a program. An
// "instruction" is a read or a write of one word at a user address, by a TLB in software that walks the core's own page tables: who
// does not flush it sees the memory of others.
#ifndef MACHINE_H
#define MACHINE_H

#include "../../crates/capi/include/quietmm.h"

enum {
    WORKERS = 4,           // CPUs 0 to 3 run programs
    KSWAPD = WORKERS,      // and one for each node reclaims
    NODES = 2,
    CPUS = WORKERS + NODES,
    FRAMES = 2048,         // 8 MiB on node 0, where all CPUs are
    FAR = 256,             // 1 MiB behind them, on node 1, which has no CPU
    COMES = 3072,          // and from here on
    LATER = 1024,          // 4 MiB of node 0 that come later
    PAGE = 4096,
    SWAP_PAGES = 8192,
    FILE_PAGES = 512,
};

// What is wrong with a machine, to see that it is noticed.
enum broken { NOTHING, NO_FLUSH, FALSE_CPU, EARLY_WAIT, NO_MEMORY_THERE };

// The machine, and what its memory is.
struct quietmm_platform machine(enum broken broken);
extern const struct quietmm_region machine_memory[NODES];

// This thread is the CPU from now on, and interrupts call the manager.
void machine_be(unsigned cpu, const struct quietmm *mm);
unsigned machine_cpu(void);

// An instruction of a program in the loaded space: reads or writes the word at a user address. False: there is no page that allows it.
bool machine_read(uint64_t at, uint64_t *word);
bool machine_write(uint64_t at, uint64_t word);

// Between two instructions: an interrupt comes, if there is one; now and then the timer's.
void machine_step(void);

// What the handler of this machine's network card does, on each CPU, whenever the timer's has run: interrupts are off.
void machine_on_packet(void (*handler)(void));

// A frame as a device sees it: in memory, by no table.
volatile uint64_t *machine_frame(uint32_t frame);

// How many interrupts were sent.
unsigned machine_interrupts(void);
// How often a file system was asked whether a page may be written.
unsigned machine_asked(void);
// How many pages the disk has moved at once, at most.
unsigned machine_together(void);

#endif
