// What programs seldom do, each in a process of its own: how it ends, and what it says. The same on any Linux.

#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include "until.h"

static char *self;
static volatile int handled;

static void handler(int signal) { handled++; }

// The handler's address is none that a CPU can go to.
static int nowhere(void) {
    struct { unsigned long handler, flags, restorer, mask; } action = {1UL << 47, 0x04000000, 1UL << 47, 0};
    syscall(SYS_rt_sigaction, SIGUSR1, &action, NULL, 8);
    kill(getpid(), SIGUSR1);
    return 0;
}

static void spoil(int signal, siginfo_t *info, void *context) {
    ucontext_t *c = context;
    c->uc_mcontext.gregs[REG_EFL] |= 0x3000;
    c->uc_mcontext.fpregs = (void *)1;
}

// What the handler returns to cannot be read.
static int torn(void) {
    struct sigaction action = {.sa_sigaction = spoil, .sa_flags = SA_SIGINFO};
    sigaction(SIGUSR1, &action, NULL);
    raise(SIGUSR1);
    return 0;
}

static void *sleeps(void *_) {
    for (;;) pause();
}

// Another thread sleeps while this one becomes another program.
static int becomes(void) {
    pthread_t thread;
    pthread_create(&thread, NULL, sleeps, NULL);
    usleep(20000);
    execl(self, self, "became", NULL);
    return 1;
}

// A signal that nobody handles is waited for.
static int waits(void) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    sigprocmask(SIG_BLOCK, &set, NULL);
    if (fork() == 0) _exit(3);
    int signal = sigwaitinfo(&set, NULL), status = 0;
    wait(&status);
    return signal == SIGCHLD ? WEXITSTATUS(status) : 99;
}

// Two buffers, and bytes for one.
static int reads(void) {
    int ends[2];
    char a[4], b[4];
    struct iovec into[2] = {{a, 4}, {b, 4}};
    if (pipe(ends) || write(ends[1], "four", 4) != 4) return 99;
    return readv(ends[0], into, 2);
}

// What is blocked comes while `pselect` waits.
static int selects(void) {
    sigset_t set, none;
    signal(SIGUSR1, handler);
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigprocmask(SIG_BLOCK, &set, NULL);
    kill(getpid(), SIGUSR1);
    sigemptyset(&none);
    int got = pselect(0, NULL, NULL, NULL, NULL, &none);
    return got == -1 && errno == EINTR ? handled : 99;
}

// No time has so many microseconds.
static int alarms(void) {
    struct itimerval timer = {{0, -1}, {0, 1}};
    return setitimer(ITIMER_REAL, &timer, NULL) == -1 ? errno : 99;
}

// A name goes nowhere, and stays.
static int renames(void) {
    char name[] = "/tmp/corners-XXXXXX";
    close(mkstemp(name));
    int failed = rename(name, "/proc/self/fd/99") == -1, there = access(name, F_OK) == 0;
    unlink(name);
    return 2 * failed + there;
}

// Names are taken away while they are read.
static int empties(void) {
    char name[] = "/tmp/corners-XXXXXX", path[64];
    if (!mkdtemp(name)) return 99;
    for (int i = 0; i < 1500; i++) {
        snprintf(path, sizeof path, "%s/%032d", name, i);
        close(open(path, O_CREAT | O_WRONLY, 0600));
    }
    DIR *all = opendir(name);
    int gone = 0;
    for (struct dirent *one; (one = readdir(all));)
        if (one->d_name[0] != '.' && unlinkat(dirfd(all), one->d_name, 0) == 0) gone++;
    closedir(all);
    return rmdir(name) == 0 && gone == 1500 ? 5 : 99;
}

// Two write at the end of one file.
static int appends(void) {
    char name[] = "/tmp/corners-XXXXXX";
    close(mkstemp(name));
    for (int i = 0; i < 2; i++)
        if (fork() == 0) {
            int to = open(name, O_WRONLY | O_APPEND);
            for (int n = 0; n < 500; n++)
                if (write(to, "0123456\n", 8) != 8) _exit(1);
            _exit(0);
        }
    while (wait(NULL) > 0) continue;
    struct stat it;
    stat(name, &it);
    unlink(name);
    return it.st_size == 8000 ? 6 : 99;
}

// A name that is replaced is there all the time.
static int replaces(void) {
    char name[] = "/tmp/corners-XXXXXX", other[64];
    int to, status = 0;
    close(mkstemp(name));
    snprintf(other, sizeof other, "%s.new", name);
    if (fork() == 0) {
        for (int i = 0; i < 3000; i++) {
            close(open(other, O_CREAT | O_WRONLY, 0600));
            if (rename(other, name)) _exit(1);
        }
        _exit(0);
    }
    while (waitpid(-1, &status, WNOHANG) == 0) {
        if ((to = open(name, O_RDONLY)) < 0) return 99;
        close(to);
    }
    unlink(name);
    return WEXITSTATUS(status) == 0 ? 8 : 98;
}

// A wait that is longer than any alarm is set for.
static int sleeps_long(void) {
    struct timespec from, to, time = {2, 100000000};
    clock_gettime(CLOCK_MONOTONIC, &from);
    int failed = nanosleep(&time, NULL);
    clock_gettime(CLOCK_MONOTONIC, &to);
    double took = (to.tv_sec - from.tv_sec) + (to.tv_nsec - from.tv_nsec) / 1e9;
    return failed == 0 && took >= 2.1 ? 9 : 99;
}

static sigjmp_buf back;

static void jump(int signal, siginfo_t *info, void *context) { siglongjmp(back, signal * 10 + info->si_code); }

// How a write to a byte ends: 0, or the signal and its reason.
static int touch(char *at) {
    int how = sigsetjmp(back, 1);
    if (how == 0) *at = 1;
    return how;
}

// A mapping is longer than its file, which becomes longer, and shorter.
static int beyond(void) {
    struct sigaction action = {.sa_sigaction = jump, .sa_flags = SA_SIGINFO};
    char name[] = "/tmp/corners-XXXXXX";
    int file = mkstemp(name);
    unlink(name);
    sigaction(SIGBUS, &action, NULL);
    if (ftruncate(file, 5000)) return 99;
    char *all = mmap(NULL, 5 * 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    int before = touch(all + 4096) == 0 && touch(all + 8192) == 72, failed = pread(file, all + 8192, 1, 0) == -1 && errno == EFAULT;
    if (ftruncate(file, 3 * 4096)) return 99;
    int after = touch(all + 8192) == 0 && touch(all + 3 * 4096) == 72;
    if (ftruncate(file, 1)) return 99;
    return before + 2 * failed + 4 * after + 8 * (touch(all + 8192) == 72) + 16 * (touch(all) == 0);
}

// What comes of a call to code that gives 7: that, or the signal and its reason.
static int call(void *at) {
    int how = sigsetjmp(back, 1);
    return how == 0 ? ((int (*)(void))at)() : how;
}

// Code is written, and executed only once it may be: on the heap, on the stack, in a file.
static int executes(void) {
    struct sigaction action = {.sa_sigaction = jump, .sa_flags = SA_SIGINFO};
    static const char code[] = "\xb8\x07\x00\x00\x00\xc3";
    char name[] = "/tmp/corners-XXXXXX", stack[64];
    int file = mkstemp(name), refused = 10 * SIGSEGV + SEGV_ACCERR;
    unlink(name);
    sigaction(SIGSEGV, &action, NULL);
    memcpy(stack, code, sizeof code);
    char *own = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memcpy(own, code, sizeof code);
    if (write(file, code, sizeof code) != sizeof code) return 99;
    char *mapped = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, file, 0);
    int data = call(own) == refused && call(stack) == refused && call(mapped) == refused;
    int given = mprotect(own, 4096, PROT_READ | PROT_EXEC) == 0 && mprotect(mapped, 4096, PROT_EXEC) == 0;
    int runs = call(own) == 7 && call(mapped) == 7 && touch(own) == refused;
    int taken = mprotect(own, 4096, PROT_READ | PROT_WRITE) == 0 && call(own) == refused && touch(own + 8) == 0;
    int both = mprotect(own, 4096, PROT_READ | PROT_WRITE | PROT_EXEC) == 0 && call(own) == 7 && touch(own + 8) == 0;
    return data + 2 * given + 4 * runs + 8 * taken + 16 * both;
}

static volatile char far[3 * 4096];

// A process writes to the memory of its child, and reads it: to pages that both still share, and not to its own.
static int reaches(void) {
    int ends[2], status = 0;
    far[4090] = 1;
    if (pipe(ends)) return 99;
    pid_t child = fork();
    if (child == 0) {
        char byte;
        _exit(read(ends[0], &byte, 1) == 1 ? far[4090] + far[4105] : 98);
    }
    char out[16] = {[0] = 4, [15] = 5}, in[16] = {0};
    struct iovec own[2] = {{out, 7}, {out + 7, 9}}, back[1] = {{in, 16}}, theirs[1] = {{(void *)(far + 4090), 16}}, nowhere[1] = {{(void *)8, 4}};
    int wrote = process_vm_writev(child, own, 2, theirs, 1, 0) == 16, kept = far[4090] == 1 && far[4105] == 0;
    int reads = process_vm_readv(child, back, 1, theirs, 1, 0) == 16 && memcmp(in, out, 16) == 0;
    int refused = process_vm_readv(child, back, 1, nowhere, 1, 0) == -1 && errno == EFAULT;
    int gone = process_vm_readv(0x3ffffff, back, 1, theirs, 1, 0) == -1 && errno == ESRCH;
    if (write(ends[1], "", 1) != 1) return 99;
    waitpid(child, &status, 0);
    return wrote + 2 * kept + 4 * reads + 8 * refused + 16 * gone + 32 * (WEXITSTATUS(status) == 9);
}

int main(int count, char **words) {
    const struct { const char *name; int (*run)(void); } all[] = {{"nowhere", nowhere}, {"torn", torn}, {"becomes", becomes},
        {"waits", waits}, {"reads", reads}, {"selects", selects}, {"alarms", alarms}, {"renames", renames}, {"empties", empties}, {"appends", appends}, {"replaces", replaces}, {"sleeps", sleeps_long}, {"beyond", beyond}, {"executes", executes}, {"reaches", reaches}};
    self = words[0];
    if (count > 1) {
        printf("%s\n", words[1]);
        return 7;
    }
    for (unsigned i = 0; i < sizeof all / sizeof *all; i++) {
        fflush(stdout);
        pid_t child = fork();
        if (child == 0) {
            alarm(HANGS);
            exit(all[i].run());
        }
        int status = 0;
        waitpid(child, &status, 0);
        if (WIFSIGNALED(status)) printf("%s: signal %d\n", all[i].name, WTERMSIG(status));
        else printf("%s: %d\n", all[i].name, WEXITSTATUS(status));
    }
    return 0;
}
