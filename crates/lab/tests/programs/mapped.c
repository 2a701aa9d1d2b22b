// What programs map in ways that are seldom asked for, and which pages of files are there. A line for each part with how many checks
// failed.
#define _GNU_SOURCE
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "checks.h"

#define PAGE 4096L
#define OWN (MAP_PRIVATE | MAP_ANONYMOUS)


static sigjmp_buf back;

static void on(int signal) { siglongjmp(back, signal); }

// What a byte is, or minus the signal that came instead.
static int load(volatile char *at) {
    int signal = sigsetjmp(back, 1);
    return signal ? -signal : *at;
}

static int store(volatile char *at, char value) {
    int signal = sigsetjmp(back, 1);
    if (!signal) *at = value;
    return -signal;
}

static char *own(long pages) { return mmap(0, pages * PAGE, PROT_READ | PROT_WRITE, OWN, -1, 0); }

// What a child exits with.
static int child(int (*work)(void)) {
    pid_t pid = fork();
    if (pid == 0) _exit(work());
    int status = -1;
    CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status));
    return WEXITSTATUS(status);
}

// Areas that grow down, also when the kernel writes there.
static void grows(void) {
    char *free = mmap(0, 1024 * PAGE, PROT_NONE, OWN, -1, 0);
    munmap(free, 1024 * PAGE);
    char *stack = mmap(free + 1000 * PAGE, 2 * PAGE, PROT_READ | PROT_WRITE, OWN | MAP_FIXED | MAP_GROWSDOWN, -1, 0);
    CHECK(stack == free + 1000 * PAGE);
    CHECK(store(stack - PAGE, 1) == 0 && store(stack - 3 * PAGE, 3) == 0 && load(stack - PAGE) == 1 && load(stack - 2 * PAGE) == 0);
    int pipes[2];
    CHECK(pipe(pipes) == 0 && write(pipes[1], "grown", 5) == 5 && read(pipes[0], stack - 6 * PAGE, 5) == 5);
    CHECK(!memcmp(stack - 6 * PAGE, "grown", 5));
    // All of it from its start on; of what does not grow, nothing.
    CHECK(mprotect(stack + PAGE, PAGE, PROT_READ | PROT_GROWSDOWN) == 0 && store(stack - 6 * PAGE, 1) == -SIGSEGV);
    FAILS(mprotect(own(1), PAGE, PROT_READ | PROT_GROWSDOWN), EINVAL);
    int here;
    CHECK(mprotect((void *)((long)&here & -PAGE), PAGE, PROT_READ | PROT_WRITE | PROT_GROWSDOWN) == 0);
    // Something stays free below it.
    char *other = mmap(free + 300 * PAGE, PAGE, PROT_READ, OWN | MAP_FIXED, -1, 0);
    CHECK(store(other + 100 * PAGE, 1) == -SIGSEGV && load(other - PAGE) == -SIGSEGV);
    FAILS(mmap(0, PAGE, PROT_READ, MAP_SHARED | MAP_ANONYMOUS | MAP_GROWSDOWN, -1, 0), EINVAL);
}

static char *left, *wiped, *usual;

static int look(void) {
    return (load(left) == -SIGSEGV) | (wiped[0] == 0) << 1 | (wiped[PAGE] == 0) << 2 | (usual[0] == 3) << 3;
}

// What a child gets of memory.
static void inherits(void) {
    left = own(1), wiped = own(2), usual = own(1);
    left[0] = 1, wiped[0] = wiped[PAGE] = 2, usual[0] = 3;
    CHECK(madvise(left, PAGE, MADV_DONTFORK) == 0 && madvise(wiped, 2 * PAGE, MADV_WIPEONFORK) == 0);
    CHECK(child(look) == 15 && left[0] == 1 && wiped[0] == 2);
    CHECK(madvise(left, PAGE, MADV_DOFORK) == 0 && madvise(wiped, PAGE, MADV_KEEPONFORK) == 0);
    CHECK(child(look) == 12);
    char *shared = mmap(0, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    FAILS(madvise(shared, PAGE, MADV_WIPEONFORK), EINVAL);
}

static int share_zero(void) {
    usual[0] = 9;
    return 0;
}

static char *grown;

static int lacks_all(void) {
    for (int i = 0; i < 8; i++)
        if (load(grown + i * PAGE) != -SIGSEGV) return 1;
    return load(left) == -SIGSEGV ? 0 : 2;
}

// What was said of memory is said of what it gains where it is, and elsewhere, and of what is left behind: it stays one thing.
static void stays_so(void) {
    grown = own(5);
    CHECK(munmap(grown + 2 * PAGE, 3 * PAGE) == 0 && madvise(grown, 2 * PAGE, MADV_DONTFORK) == 0);
    CHECK(mremap(grown, 2 * PAGE, 4 * PAGE, 0) == grown);
    char *next = mmap(grown + 4 * PAGE, PAGE, PROT_READ, OWN | MAP_FIXED, -1, 0);
    CHECK(next == grown + 4 * PAGE);
    grown = mremap(grown, 4 * PAGE, 8 * PAGE, MREMAP_MAYMOVE);
    CHECK(grown != MAP_FAILED);
    left = grown;
    grown = mremap(left, 8 * PAGE, 8 * PAGE, MREMAP_MAYMOVE | MREMAP_DONTUNMAP);
    CHECK(grown != MAP_FAILED && child(lacks_all) == 0);
}

// Kinds of mappings that are refused, or lie somewhere else.
static void kinds(void) {
    FAILS(mmap(0, PAGE, PROT_READ, MAP_SHARED_VALIDATE | MAP_ANONYMOUS, -1, 0), EINVAL);
    FAILS(mmap(0, PAGE, PROT_READ, OWN | MAP_HUGETLB | 13 << 26, -1, 0), EINVAL);
    FAILS(shmget(IPC_PRIVATE, 2 << 20, 0600 | IPC_CREAT | SHM_HUGETLB), geteuid() ? EPERM : ENOMEM);
    char *low = mmap(0, PAGE, PROT_READ, OWN | MAP_32BIT, -1, 0);
    CHECK(low != MAP_FAILED && (unsigned long)low < 1UL << 31);
    // More than any machine has, unless nothing is to be there for it.
    FAILS(mmap(0, 1L << 45, PROT_READ | PROT_WRITE, OWN, -1, 0), ENOMEM);
    void *much = mmap(0, 1L << 45, PROT_NONE, OWN | MAP_NORESERVE, -1, 0);
    CHECK(much != MAP_FAILED && munmap(much, 1L << 45) == 0);
    CHECK(!malloc(1L << 45));
    int zero = open("/dev/zero", O_RDWR);
    usual = mmap(0, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, zero, 0);
    CHECK(usual != MAP_FAILED && child(share_zero) == 0 && usual[0] == 9);
    FAILS(mmap(0, PAGE, PROT_READ, MAP_SHARED_VALIDATE | MAP_SYNC, zero, 0), EOPNOTSUPP);
    char *locked = own(1);
    CHECK(mlock(locked, PAGE) == 0);
    FAILS(msync(locked, PAGE, MS_INVALIDATE), EBUSY);
    locked[0] = 5;
    FAILS(madvise(locked, PAGE, MADV_DONTNEED), EINVAL);
    CHECK(madvise(locked, PAGE, 24) == 0 && locked[0] == 0);
    CHECK(madvise(own(1), PAGE, MADV_MERGEABLE) == 0);
    // Large pages of memory that is shared, and nothing of what is not there.
    char *place = mmap(0, 6 << 20, PROT_NONE, OWN, -1, 0);
    place = (char *)(((long)place + (2 << 20) - 1) & -(2L << 20));
    char *shared = mmap(place, 2 << 20, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    FAILS(madvise(shared, 2 << 20, 25), EINVAL);
    memset(shared, 6, 2 << 20);
    int large = madvise(shared, 2 << 20, 25);
    CHECK((large == 0 || errno == EINVAL) && shared[0] == 6 && shared[(2 << 20) - 1] == 6);
    char *only_read = mmap(0, PAGE, PROT_READ, OWN, -1, 0);
    FAILS(madvise(only_read, PAGE, 23), EINVAL);
}

static int too_much(void) {
    struct rlimit most = {4 << 20, 4 << 20};
    if (setrlimit(RLIMIT_DATA, &most)) return 1;
    if (mmap(0, 8 << 20, PROT_READ | PROT_WRITE, OWN, -1, 0) != MAP_FAILED || errno != ENOMEM) return 2;
    if (mmap(0, 8 << 20, PROT_READ, OWN, -1, 0) == MAP_FAILED) return 3;
    if (sbrk(8 << 20) != (void *)-1) return 4;
    return 0;
}

static void limits(void) { CHECK(child(too_much) == 0); }

static long blocks(int file) {
    struct stat now;
    return fstat(file, &now) ? -1 : now.st_blocks / 8;
}

// What was never written to takes no room, and is found to be a hole.
static void holes(void) {
    char name[] = "/tmp/mapped-XXXXXX";
    int file = mkstemp(name);
    unlink(name);
    CHECK(ftruncate(file, 1 << 20) == 0 && blocks(file) == 0);
    FAILS(lseek(file, 0, SEEK_DATA), ENXIO);
    CHECK(pwrite(file, "x", 1, 500000) == 1 && blocks(file) == 1);
    CHECK(lseek(file, 0, SEEK_DATA) == 499712 && lseek(file, 499713, SEEK_DATA) == 499713);
    CHECK(lseek(file, 0, SEEK_HOLE) == 0 && lseek(file, 500000, SEEK_HOLE) == 503808);
    CHECK(fallocate(file, 0, 0, 65536) == 0 && blocks(file) == 17);
    CHECK(fallocate(file, FALLOC_FL_KEEP_SIZE, 1 << 20, 65536) == 0 && blocks(file) == 33 && lseek(file, 0, SEEK_END) == 1 << 20);
    CHECK(fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 100, 65536) == 0 && blocks(file) == 18);
    CHECK(fallocate(file, FALLOC_FL_ZERO_RANGE, 2 << 20, 8192) == 0 && lseek(file, 0, SEEK_END) == (2 << 20) + 8192);
    CHECK(ftruncate(file, 5000) == 0 && blocks(file) == 1);
    // What programs write through a mapping is never taken for a hole.
    char *map = mmap(0, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    CHECK(ftruncate(file, 4 * PAGE) == 0);
    map[3 * PAGE] = 7;
    CHECK(lseek(file, 3 * PAGE, SEEK_DATA) == 3 * PAGE);
    // And it becomes a hole when it is not wanted there any more.
    CHECK(madvise(map + 3 * PAGE, PAGE, MADV_REMOVE) == 0 && map[3 * PAGE] == 0);
    FAILS(madvise(own(1), PAGE, MADV_REMOVE), EINVAL);
    char *mine = mmap(0, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
    FAILS(madvise(mine, PAGE, MADV_REMOVE), EACCES);
    FAILS(fallocate(memfd_create("mapped", 0), FALLOC_FL_ZERO_RANGE, 0, PAGE), EOPNOTSUPP);
}

// What a program has of its own of a file goes with the pages that the file loses, in memory or not, and stays over a hole.
static void shorter(void) {
    for (int kind = 0; kind < 4; kind++) {
        char name[] = "/tmp/mapped-XXXXXX";
        int file = kind & 1 ? memfd_create("mapped", 0) : mkstemp(name);
        if (!(kind & 1)) unlink(name);
        CHECK(ftruncate(file, 4 * PAGE) == 0);
        char *map = mmap(0, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
        map[0] = 1, map[PAGE] = 2, map[2 * PAGE] = 3;
        if (kind & 2) CHECK(madvise(map, 3 * PAGE, MADV_PAGEOUT) == 0);
        CHECK(fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, PAGE, PAGE) == 0 && load(map + PAGE) == 2);
        CHECK(ftruncate(file, PAGE + 1) == 0 && load(map + 2 * PAGE) == -SIGBUS && load(map + PAGE) == 2);
        CHECK(ftruncate(file, 4 * PAGE) == 0);
        CHECK(load(map) == 1 && load(map + PAGE) == 2 && load(map + 2 * PAGE) == 0);
        munmap(map, 4 * PAGE);
        close(file);
    }
}

// A file in memory that cannot become a program.
static void sealed(void) {
    int file = memfd_create("mapped", 8);
    CHECK(file >= 0 && fcntl(file, F_GET_SEALS) == 32 && fchmod(file, 0600) == 0);
    FAILS(fchmod(file, 0700), EPERM);
    FAILS(memfd_create("mapped", 8 | 16), EINVAL);
}

// A file that is mapped counts as read, where that is kept; and of many areas the highest that go are there for the next that fit.
static void mapped(void) {
    struct timespec times[2] = {{5, 0}, {9, 0}};
    struct stat is[2];
    char *at = 0, byte;
    for (int maps = 0; maps < 2; maps++) {
        int file = open("mapped.tmp", O_RDWR | O_CREAT | O_TRUNC, 0600);
        CHECK(write(file, "x", 1) == 1 && futimens(file, times) == 0);
        if (maps) CHECK((at = mmap(0, PAGE, PROT_READ, MAP_SHARED, file, 0)) != MAP_FAILED && *at == 'x' && munmap(at, PAGE) == 0);
        else CHECK(pread(file, &byte, 1, 0) == 1);
        CHECK(fstat(file, &is[maps]) == 0 && is[maps].st_mtim.tv_sec == 9);
        close(file), unlink("mapped.tmp");
    }
    CHECK((is[0].st_atim.tv_sec > 9) == (is[1].st_atim.tv_sec > 9));
    // What may not be brought is locked all the same.
    int file = open("mapped.tmp", O_RDWR | O_CREAT | O_TRUNC, 0600);
    CHECK(ftruncate(file, PAGE) == 0 && (at = mmap(0, 2 * PAGE, PROT_READ, MAP_SHARED, file, 0)) != MAP_FAILED);
    FAILS(mlock(at, 2 * PAGE), ENOMEM);
    for (int i = 0; i < 2; i++) FAILS(msync(at + i * PAGE, PAGE, MS_SYNC | MS_INVALIDATE), EBUSY);
    CHECK(munlock(at, 2 * PAGE) == 0 && msync(at, 2 * PAGE, MS_SYNC | MS_INVALIDATE) == 0);
    munmap(at, 2 * PAGE), close(file), unlink("mapped.tmp");
    CHECK((at = mmap(0, 2 * PAGE, PROT_NONE, OWN, -1, 0)) != MAP_FAILED && mprotect(at, PAGE, PROT_READ | PROT_WRITE) == 0);
    FAILS(mlock(at, 2 * PAGE), ENOMEM);
    FAILS(madvise(at + PAGE, PAGE, MADV_DONTNEED), EINVAL);
    CHECK(mprotect(at, 2 * PAGE, PROT_READ | PROT_WRITE) == 0 && store(at + PAGE, 1) == 0);
    FAILS(madvise(at + PAGE, PAGE, MADV_DONTNEED), EINVAL);
    CHECK(munlock(at, 2 * PAGE) == 0 && madvise(at + PAGE, PAGE, MADV_DONTNEED) == 0 && load(at + PAGE) == 0);
    munmap(at, 2 * PAGE);
    // Each beside the last, and one in the middle that goes is there for the next of its size.
    static char *all[4000];
    for (int i = 0; i < 4000; i++) CHECK((all[i] = mmap(0, PAGE, i & 1 ? PROT_READ : PROT_NONE, OWN, -1, 0)) != MAP_FAILED);
    CHECK(munmap(all[2000], PAGE) == 0 && mmap(0, PAGE, PROT_READ, OWN, -1, 0) == all[2000]);
    CHECK(munmap(all[1000], PAGE) == 0 && munmap(all[3000], PAGE) == 0);
    at = mmap(0, 2 * PAGE, PROT_READ, OWN, -1, 0);
    CHECK(at < all[3999] || at > all[0]);
    CHECK(mmap(0, PAGE, PROT_READ, OWN, -1, 0) == all[1000] && mmap(0, PAGE, PROT_READ, OWN, -1, 0) == all[3000]);
    for (int i = 0; i < 4000; i++) CHECK(munmap(all[i], PAGE) == 0);
    munmap(at, 2 * PAGE);
}

// A line of what there is of memory, in KiB; -1: there is none.
static long of_memory(const char *name) {
    char line[128], format[64];
    long found = -1;
    FILE *info = fopen("/proc/meminfo", "r");
    snprintf(format, sizeof format, "%s: %%ld kB", name);
    while (info && found < 0 && fgets(line, sizeof line, info)) sscanf(line, format, &found);
    if (info) fclose(info);
    return found;
}

// Memory that holds what files say can be had, and is told as cached.
static void cached(void) {
    char some[65536];
    int file = open("/proc/self/exe", O_RDONLY);
    while (read(file, some, sizeof some) > 0) {}
    close(file);
    CHECK(of_memory("Cached") >= 256 && of_memory("MemAvailable") >= of_memory("Cached") / 4);
    CHECK(of_memory("Active(file)") >= 0 && of_memory("Inactive(anon)") >= 0);
    CHECK(of_memory("Active(file)") + of_memory("Inactive(file)") >= 256);
}

// What is told of a page: in memory, in swap, of a file. Not whether it was written to: not every Linux knows.
static long word_of(int map, char *at) {
    unsigned long word = 0;
    CHECK(pread(map, &word, sizeof word, (unsigned long)at / PAGE * sizeof word) == sizeof word);
    return word >> 61;
}

// Which pages there are.
static void told(void) {
    enum { OF_FILE = 1, SWAPPED = 2, PRESENT = 4 };
    int map = open("/proc/self/pagemap", O_RDONLY), file = memfd_create("shown", 0);
    char *at = own(4), *shown;
    CHECK(map >= 0 && ftruncate(file, 2 * PAGE) == 0);
    shown = mmap(0, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    // By themselves, whatever lies beside them.
    madvise(at, 4 * PAGE, MADV_NOHUGEPAGE), madvise(shown, 2 * PAGE, MADV_NOHUGEPAGE);
    at[PAGE] = shown[PAGE] = 1;
    CHECK(word_of(map, at) == 0 && word_of(map, at + PAGE) == PRESENT);
    CHECK(!(word_of(map, shown) & PRESENT) && word_of(map, shown + PAGE) == (PRESENT | OF_FILE));
    // Words in a row, and on from there.
    unsigned long words[2] = {1, 0};
    CHECK(lseek(map, (unsigned long)at / PAGE * 8, SEEK_SET) > 0 && read(map, words, 16) == 16);
    CHECK(!(words[0] >> 63) && words[1] >> 63 && read(map, words, 8) == 8 && !(words[0] >> 63));
    CHECK(munmap(at, 4 * PAGE) == 0 && word_of(map, at + PAGE) == 0);
    FAILS(pread(map, words, 7, 0), EINVAL);
    FAILS(pread(map, words, 8, 4), EINVAL);
    volatile long nowhere = 1;
    FAILS(pread(map, (void *)nowhere, 8, 0), EFAULT);
    CHECK(pread(map, words, 8, 1L << 40) == 0 && pread(map, words, 16, (1L << 47) / PAGE * 8 - 16) == 8);
    FAILS(write(map, words, 8), EBADF);
}

int main(int count, char **arguments) {
    signal(SIGSEGV, on);
    signal(SIGBUS, on);
    // The first one before there is memory that grows down to where something was.
    const struct part parts[] = {{"stays so", stays_so}, {"grows", grows}, {"inherits", inherits}, {"kinds", kinds}, {"limits", limits}, {"holes", holes}, {"shorter", shorter}, {"sealed", sealed}, {"mapped", mapped}, {"cached", cached}, {"told", told}};
    PLAY(parts, count, arguments);
    return 0;
}
