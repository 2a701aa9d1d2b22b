// Threads and processes that tell others what to do with their memory: barriers that others pass (`membarrier`), several words to wait for
// (`futex_waitv`), advice about the memory of others (`process_madvise`), and terminals that are hung up. A line for each part with how many
// checks failed.
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/futex.h>
#include <linux/membarrier.h>
#include <pthread.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "checks.h"
#include "until.h"

#define PAGE 4096L

static long barrier(int what) { return syscall(SYS_membarrier, what, 0, 0); }

// Two who each write one word and read the other's: with a barrier between on both sides one of them at least sees what the other wrote. One
// of them has none of its own.
static struct {
    _Alignas(128) atomic_int mine;
    _Alignas(128) atomic_int other;
    _Alignas(128) atomic_int begun;
    _Alignas(128) atomic_int ended;
    _Alignas(128) int seen;
} words;

// What a word becomes that is not this any more.
static int changed(atomic_int *word, int from) {
    int now;
    for (long spins = 0; (now = atomic_load_explicit(word, memory_order_acquire)) == from; spins++)
        if (spins % 1024 == 1023) sched_yield();
    return now;
}

static void *fast(void *unused) {
    for (int round = 0; (round = changed(&words.begun, round)) > 0;) {
        atomic_store_explicit(&words.mine, round, memory_order_relaxed);
        atomic_signal_fence(memory_order_seq_cst);
        words.seen = atomic_load_explicit(&words.other, memory_order_relaxed);
        atomic_store_explicit(&words.ended, round, memory_order_release);
    }
    return 0;
}

// How often neither saw the other, in so many rounds, or as many as there are until the second is over, and some in any case: CPUs may be few.
static int neither(int what, int rounds) {
    pthread_t thread;
    time_t end = time(0);
    int bad = 0;
    memset(&words, 0, sizeof words);
    CHECK(pthread_create(&thread, 0, fast, 0) == 0);
    for (int round = 1; round <= rounds && (round <= 100 || time(0) <= end); round++) {
        atomic_store_explicit(&words.begun, round, memory_order_release);
        for (volatile int i = 0; i < round % 64; i++) continue;
        atomic_store_explicit(&words.other, round, memory_order_relaxed);
        if (barrier(what) != 0) bad++;
        int saw = atomic_load_explicit(&words.mine, memory_order_relaxed);
        changed(&words.ended, round - 1);
        bad += saw != round && words.seen != round;
    }
    atomic_store_explicit(&words.begun, -1, memory_order_release);
    CHECK(pthread_join(thread, 0) == 0);
    return bad;
}

static void passes(void) {
    long there = barrier(MEMBARRIER_CMD_QUERY), wanted = 0x7f;
    CHECK((there & wanted) == wanted);
    FAILS(barrier(3), EINVAL);
    FAILS(syscall(SYS_membarrier, MEMBARRIER_CMD_QUERY, 1, 0), EINVAL);
    FAILS(barrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED), EPERM);
    FAILS(barrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED_SYNC_CORE), EPERM);
    CHECK(barrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) == 0 && neither(MEMBARRIER_CMD_PRIVATE_EXPEDITED, 60000) == 0);
    FAILS(barrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED_SYNC_CORE), EPERM);
    CHECK(barrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED_SYNC_CORE) == 0);
    CHECK(neither(MEMBARRIER_CMD_PRIVATE_EXPEDITED_SYNC_CORE, 2000) == 0);
    CHECK(barrier(MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED) == 0 && neither(MEMBARRIER_CMD_GLOBAL_EXPEDITED, 2000) == 0);
    CHECK(neither(MEMBARRIER_CMD_GLOBAL, 20) == 0);
    // A child has its parent's word for it.
    pid_t pid = fork();
    int status = -1;
    if (pid == 0) _exit(barrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED) == 0 ? 5 : 6);
    CHECK(waitpid(pid, &status, 0) == pid && WEXITSTATUS(status) == 5);
}

static struct futex_waitv three[3];
static unsigned *shared;
static int came;

static void *waits(void *unused) {
    came = syscall(SYS_futex_waitv, three, 3, 0, 0, 0);
    return 0;
}

static long wake(unsigned *at, int private) { return syscall(SYS_futex, at, FUTEX_WAKE | (private ? FUTEX_PRIVATE_FLAG : 0), 1, 0, 0, 0); }

static long waitv(unsigned flags, void *time, int clock) { return syscall(SYS_futex_waitv, three, 3, flags, time, clock); }

static void several(void) {
    static unsigned own[2];
    shared = mmap(0, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < 2; i++) three[i] = (struct futex_waitv){.uaddr = (unsigned long)&own[i], .flags = FUTEX_32 | FUTEX_PRIVATE_FLAG};
    three[2] = (struct futex_waitv){.uaddr = (unsigned long)shared, .flags = FUTEX_32};
    // Whichever is woken; of the others nobody stands any more.
    for (int i = 0; i < 3; i++) {
        pthread_t thread;
        unsigned *at = i < 2 ? &own[i] : shared;
        CHECK(pthread_create(&thread, 0, waits, 0) == 0);
        CHECK(UNTIL(wake(at, i < 2) == 1) && pthread_join(thread, 0) == 0 && came == i);
        CHECK(wake(&own[0], 1) == 0 && wake(&own[1], 1) == 0 && wake(shared, 0) == 0);
    }
    // Another process wakes it.
    pid_t pid = fork();
    if (pid == 0) _exit(!UNTIL(wake(shared, 0) == 1));
    int status = -1;
    CHECK(waitv(0, 0, 0) == 2 && waitpid(pid, &status, 0) == pid && status == 0);
    three[1].val = 7;
    FAILS(waitv(0, 0, 0), EAGAIN);
    CHECK(wake(&own[0], 1) == 0 && wake(shared, 0) == 0);
    three[1].val = 0;
    struct timespec soon, bad = {0, 1000000000};
    clock_gettime(CLOCK_MONOTONIC, &soon);
    soon.tv_sec += (soon.tv_nsec + 20000000) / 1000000000, soon.tv_nsec = (soon.tv_nsec + 20000000) % 1000000000;
    FAILS(waitv(0, &soon, CLOCK_MONOTONIC), ETIMEDOUT);
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    CHECK(now.tv_sec > soon.tv_sec || (now.tv_sec == soon.tv_sec && now.tv_nsec >= soon.tv_nsec));
    clock_gettime(CLOCK_REALTIME, &soon);
    FAILS(waitv(0, &soon, CLOCK_REALTIME), ETIMEDOUT);
    FAILS(waitv(0, &soon, 2), EINVAL);
    FAILS(waitv(0, &bad, CLOCK_MONOTONIC), EINVAL);
    FAILS(waitv(1, 0, 0), EINVAL);
    FAILS(syscall(SYS_futex_waitv, three, 0, 0, 0, 0), EINVAL);
    FAILS(syscall(SYS_futex_waitv, three, 129, 0, 0, 0), EINVAL);
    FAILS(syscall(SYS_futex_waitv, 0, 1, 0, 0, 0), EINVAL);
    FAILS(syscall(SYS_futex_waitv, (void *)8, 1, 0, 0, 0), EFAULT);
    three[1].flags = FUTEX_PRIVATE_FLAG;
    FAILS(waitv(0, 0, 0), EINVAL);
    three[1].flags = FUTEX_32, three[1].__reserved = 1;
    FAILS(waitv(0, 0, 0), EINVAL);
    three[1].__reserved = 0, three[1].uaddr++;
    FAILS(waitv(0, 0, 0), EINVAL);
    three[1].uaddr = 0;
    FAILS(waitv(0, 0, 0), EFAULT);
    CHECK(wake(&own[0], 1) == 0);
}

// Pages of a range that are in memory.
static int resident(char *at, long pages) {
    unsigned char there[16];
    int count = 0;
    CHECK(mincore(at, pages * PAGE, there) == 0);
    for (long i = 0; i < pages; i++) count += there[i] & 1;
    return count;
}

static long advise(int who, struct iovec *all, long many, int what) { return syscall(SYS_process_madvise, who, all, many, what, 0); }

static void others(void) {
    char *mine = mmap(0, 16 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int to[2], from[2];
    char byte;
    CHECK(pipe(to) == 0 && pipe(from) == 0);
    pid_t pid = fork();
    if (pid == 0) {
        // Only its own pages are asked about.
        for (int i = 0; i < 16; i++) mine[i * PAGE] = i + 1;
        int well = resident(mine, 16) == 16;
        CHECK(write(from[1], "x", 1) == 1 && read(to[0], &byte, 1) == 1);
        // Two ranges went out, and come back as they were. Those stay that have no room there, or are still with the CPU that had them first.
        int left = resident(mine, 16);
        for (int i = 0; i < 16; i++) well &= mine[i * PAGE] == i + 1;
        CHECK(write(from[1], &left, sizeof left) == sizeof left && read(to[0], &byte, 1) == 1);
        _exit(well ? 5 : 6);
    }
    int who = syscall(SYS_pidfd_open, pid, 0), left = 0, status = -1;
    struct iovec all[3] = {{mine, 4 * PAGE}, {mine + 8 * PAGE, 2 * PAGE}, {mine + 15 * PAGE, 100}};
    CHECK(who >= 0 && read(from[0], &byte, 1) == 1);
    CHECK(advise(who, all, 3, MADV_PAGEOUT) == 6 * PAGE + 100 && write(to[1], "x", 1) == 1);
    CHECK(read(from[0], &left, sizeof left) == sizeof left && left >= 9);
    CHECK(advise(who, all, 3, MADV_COLD) == 6 * PAGE + 100 && advise(who, all, 3, MADV_WILLNEED) == 6 * PAGE + 100);
    // What changes something is for one's own memory.
    FAILS(advise(who, all, 3, MADV_DONTNEED), EINVAL);
    FAILS(advise(who, all, 3, MADV_FREE), EINVAL);
    FAILS(advise(who, all, 3, 999), EINVAL);
    FAILS(syscall(SYS_process_madvise, who, all, 3, MADV_COLD, 1), EINVAL);
    FAILS(advise(who, all, 2000, MADV_COLD), EINVAL);
    FAILS(advise(who, (void *)8, 3, MADV_COLD), EFAULT);
    FAILS(advise(-1, all, 3, MADV_COLD), EBADF);
    FAILS(advise(to[0], all, 3, MADV_COLD), EBADF);
    CHECK(advise(who, all, 0, MADV_COLD) == 0);
    // As far as it goes.
    all[1].iov_base = mine + 1;
    CHECK(advise(who, all, 3, MADV_COLD) == 4 * PAGE);
    all[0].iov_base = 0;
    FAILS(advise(who, all, 3, MADV_COLD), ENOMEM);
    all[0].iov_base = mine, all[1].iov_base = mine + 8 * PAGE;
    if (getuid() == 0) {
        pid_t other = fork();
        if (other == 0) {
            wrong = 0;
            CHECK(setuid(4321) == 0);
            FAILS(advise(who, all, 3, MADV_COLD), EACCES);
            _exit(wrong);
        }
        CHECK(waitpid(other, &status, 0) == other && status == 0);
    }
    CHECK(write(to[1], "x", 1) == 1 && waitpid(pid, &status, 0) == pid && WEXITSTATUS(status) == 5);
    FAILS(advise(who, all, 3, MADV_COLD), ESRCH);
    FAILS(syscall(SYS_pidfd_open, pid, 0), ESRCH);
    FAILS(syscall(SYS_pidfd_open, getpid(), 1), EINVAL);
}

static volatile sig_atomic_t hung;

static void on(int signal) { hung |= 1 << signal; }

static int leads(int master) {
    char name[64];
    int own, byte = 0;
    signal(SIGHUP, on), signal(SIGCONT, on);
    CHECK(setsid() > 0 && ioctl(master, TIOCGPTN, &own) == 0);
    snprintf(name, sizeof name, "/dev/pts/%d", own);
    int slave = open(name, O_RDWR);
    CHECK(slave >= 0 && open("/dev/tty", O_RDWR) >= 0 && write(slave, "a", 1) == 1);
    CHECK(syscall(SYS_vhangup) == 0 && hung == (1 << SIGHUP | 1 << SIGCONT));
    // It is open and of no use any more; the session has none, and may open it anew.
    FAILS(open("/dev/tty", O_RDWR), ENXIO);
    FAILS(write(slave, "b", 1), EIO);
    CHECK(read(slave, &byte, 1) == 0);
    FAILS(ioctl(slave, FIONREAD, &byte), EIO);
    struct pollfd one = {.fd = slave, .events = POLLIN};
    CHECK(poll(&one, 1, 0) == 1 && one.revents & POLLHUP);
    int again = open(name, O_RDWR);
    CHECK(again >= 0 && write(again, "c", 1) == 1 && open("/dev/tty", O_RDWR) >= 0);
    close(slave);
    CHECK(write(again, "d", 1) == 1);
    if (getuid() == 0) {
        pid_t pid = fork();
        int status = -1;
        if (pid == 0) {
            wrong = 0;
            CHECK(setuid(4321) == 0);
            FAILS(syscall(SYS_vhangup), EPERM);
            CHECK(write(again, "e", 1) == 1);
            _exit(wrong);
        }
        CHECK(waitpid(pid, &status, 0) == pid && status == 0);
    }
    return wrong;
}

static void hangs(void) {
    // Of whoever may not, nobody hears more than that.
    if (getuid()) return;
    int master = open("/dev/ptmx", O_RDWR | O_NOCTTY), unlocked = 0, status = -1;
    CHECK(master >= 0 && ioctl(master, TIOCSPTLCK, &unlocked) == 0);
    pid_t pid = fork();
    if (pid == 0) {
        wrong = 0;
        _exit(leads(master));
    }
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
}

int main(int count, char **arguments) {
    const struct part parts[] = {{"passes", passes}, {"several", several}, {"others", others}, {"hangs", hangs}};
    PLAY(parts, count, arguments);
    return 0;
}
