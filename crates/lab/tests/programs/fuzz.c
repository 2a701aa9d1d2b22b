// System calls by chance, with arguments of which some make sense: the kernel must survive them all. Not for a real Linux: as root it
// would do harm there.
//
//     fuzz SEED CHILDREN CALLS

#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static uint64_t state;

static uint64_t next(void) {
    state += 0x9e3779b97f4a7c15;
    uint64_t x = state;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
    x = (x ^ x >> 27) * 0x94d049bb133111eb;
    return x ^ x >> 31;
}

static uint64_t below(uint64_t most) { return next() % most; }

static char *area;  // 64 pages that can be written, 16 that can be read, 16 of nothing
enum { PAGE = 4096, WRITE = 64 * PAGE, READ = 16 * PAGE, NONE = 16 * PAGE, PATHS = 8 };

static uint64_t place(void) {
    switch (below(12)) {
    case 0: return 0;
    case 1: return (uint64_t)area + WRITE + below(READ);
    case 2: return (uint64_t)area + WRITE + READ + below(NONE);
    case 3: return (uint64_t)area + WRITE + READ - below(64);
    case 4: return next();
    case 5: return 0x7fffffffe000 + below(8192);
    case 6: return (uint64_t)area + PAGE * below(96);
    case 7: return (uint64_t)area + 64 * below(PATHS);
    default: return (uint64_t)area + 8 * below(WRITE / 8);
    }
}

static uint64_t number(void) {
    switch (below(10)) {
    case 0: return 0;
    case 1: return -below(200);
    case 2: return 1ULL << below(64);
    case 3: return next();
    case 4: return (uint32_t)next();
    case 5: return PAGE * below(200);
    case 6: return (1ULL << below(64)) - 1 + below(3);
    default: return below(70);
    }
}

static uint64_t argument(void) {
    switch (below(4)) {
    case 0: return number();
    case 1: return below(24);
    default: return place();
    }
}

// Those that end this process or another, or wait for ever by intent.
static int left_out(long call) {
    static const short all[] = {SYS_exit, SYS_exit_group, SYS_kill, SYS_tkill, SYS_tgkill, SYS_rt_sigqueueinfo, SYS_rt_tgsigqueueinfo, SYS_reboot,
        SYS_rt_sigreturn, SYS_fork, SYS_vfork, SYS_clone, 435, SYS_pidfd_send_signal, SYS_pause, SYS_rt_sigsuspend, SYS_alarm, SYS_setitimer, SYS_seccomp};
    for (unsigned i = 0; i < sizeof all / sizeof *all; i++)
        if (call == all[i]) return 1;
    return 0;
}

static void child(int calls) {
    static const char *const paths[PATHS] = {"/tmp/a", "/tmp/b/c", "/proc/self/maps", "/dev/zero", "/tmp", "/proc/self/fd/3", "x", "/tmp/./d/../a"};
    area = mmap(NULL, WRITE + READ + NONE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < WRITE / 8; i++) ((uint64_t *)area)[i] = below(3) ? argument() : 0;
    for (int i = 0; i < PATHS; i++) strcpy(area + 64 * i, paths[i]);
    mprotect(area + WRITE, READ, PROT_READ);
    mprotect(area + WRITE + READ, NONE, PROT_NONE);
    alarm(1);
    for (int i = 0; i < calls; i++) {
        long call = below(8) ? below(335) : 424 + below(36);
        if (left_out(call)) continue;
        uint64_t a[6];
        for (int n = 0; n < 6; n++) a[n] = argument();
        // What was mapped may be gone: then this ends here, by a signal.
        syscall(call, a[0], a[1], a[2], a[3], a[4], a[5]);
    }
    _exit(0);
}

int main(int count, char **words) {
    uint64_t seed = strtoull(count > 1 ? words[1] : "1", NULL, 0);
    int children = count > 2 ? atoi(words[2]) : 20, calls = count > 3 ? atoi(words[3]) : 200;
    for (int i = 0; i < children; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            state = seed * 1000003 + i;
            setpgid(0, 0);
            // What they print is nobody's business.
            dup2(open("/dev/null", O_RDWR), 1);
            dup2(1, 2);
            if (i % 3 == 0) {
                // Two at once, in one space.
                fork();
            }
            child(calls);
        }
        // It may have blocked all that could wake it.
        int status, waited = 0;
        while (waitpid(pid, &status, WNOHANG) == 0) {
            usleep(1000);
            if (++waited == 1500) kill(pid, SIGKILL);
            if (waited == 600000) { printf("fuzz: child %d does not die\n", i); return 1; }
        }
        kill(-pid, SIGKILL);
    }
    printf("fuzz: %d children, and here still\n", children);
    return 0;
}
