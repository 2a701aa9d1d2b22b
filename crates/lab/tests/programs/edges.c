// What programs ask for at the edges of what calls promise: lengths that no number can say, words that are nowhere, signals that nobody
// wants any more, the end of what may be used of CPUs. A line for each part with how many checks failed.
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "checks.h"

#define PAGE 4096L
#define READ_WRITE (PROT_READ | PROT_WRITE)
#define OWN (MAP_PRIVATE | MAP_ANONYMOUS)
#define ALONE (1U << 31) // SS_AUTODISARM

static volatile int heard;
static void hear(int signal) { heard += signal > 0; }

static void handle(int signal) {
    struct sigaction action = {.sa_handler = hear};
    sigaction(signal, &action, 0);
}

// How a child ends that does this.
#define ENDS(...) ({ int status = -1; pid_t pid = fork(); if (!pid) { __VA_ARGS__; _exit(0); } waitpid(pid, &status, 0); status; })

static void memory(void) {
    char *four = mmap(0, 4 * PAGE, READ_WRITE, OWN, -1, 0);
    munmap(four + 2 * PAGE, PAGE);
    // Up to the hole.
    FAILS(mprotect(four, 4 * PAGE, PROT_READ), ENOMEM);
    CHECK(ENDS(four[PAGE] = 1) == SIGSEGV && ENDS(four[3 * PAGE] = 1) == 0);
    FAILS(msync(four, -PAGE, MS_SYNC), ENOMEM);
    CHECK(msync(four, -1UL, MS_SYNC) == 0 && mlock(four, -1UL) == 0 && munlock(four, -1UL) == 0);
    unsigned char there[2];
    FAILS(mincore(four, -1UL, there), ENOMEM);
    FAILS(mincore(four + 1, -1UL, there), EINVAL);
    char *later = mmap(0, 2 * PAGE, READ_WRITE, OWN | MAP_POPULATE | MAP_NONBLOCK, -1, 0);
    CHECK(mincore(later, 2 * PAGE, there) == 0 && !(there[0] & 1) && !(there[1] & 1));
    char *shared = mmap(0, PAGE, READ_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    FAILS(mremap(shared, 0, PAGE, 0), ENOMEM);
}

static long word(void *at, int what, unsigned value, void *time, void *other, unsigned third) {
    return syscall(SYS_futex, at, what, value, time, other, third);
}

static void words(void) {
    unsigned here = 5;
    struct timespec soon = {0, 1000000};
    FAILS(word(0, FUTEX_WAKE, 1, 0, 0, 0), EFAULT);
    FAILS(word((void *)0x1000, FUTEX_WAKE, 1, 0, 0, 0), EFAULT);
    CHECK(word((void *)0x1000, FUTEX_WAKE_PRIVATE, 1, 0, 0, 0) == 0);
    FAILS(word((void *)(1L << 47), FUTEX_WAKE_PRIVATE, 1, 0, 0, 0), EFAULT);
    FAILS(word(&here, FUTEX_WAKE | FUTEX_CLOCK_REALTIME, 1, 0, 0, 0), ENOSYS);
    FAILS(word(&here, FUTEX_WAIT | FUTEX_CLOCK_REALTIME, 5, &soon, 0, 0), ENOSYS);
    FAILS(word(&here, FUTEX_WAKE_OP, 1, (void *)1, (char *)&here + 1, 0), EINVAL);
    FAILS(word(&here, FUTEX_REQUEUE, 1, (void *)1, (char *)&here + 1, 0), EINVAL);
    // What nobody can write never changes.
    char *constant = mmap(0, PAGE, PROT_READ, OWN, -1, 0);
    FAILS(word(constant, FUTEX_WAIT, 0, &soon, 0, 0), EFAULT);
    FAILS(word(constant, FUTEX_WAKE, 1, 0, 0, 0), EFAULT);
    FAILS(word(constant, FUTEX_WAIT_PRIVATE, 0, &soon, 0, 0), ETIMEDOUT);
    CHECK(word(&here, FUTEX_WAKE, 1, 0, 0, 0) == 0);
}

static char stack[64 << 10];
static stack_t meanwhile;
static void look_at_stack(int signal) {
    (void)signal;
    int here;
    sigaltstack(0, &meanwhile);
    heard = (char *)&here > stack && (char *)&here < stack + sizeof stack;
}

static void signals(void) {
    sigset_t set, waits;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigprocmask(SIG_BLOCK, &set, 0);
    handle(SIGUSR1);
    kill(getpid(), SIGUSR1), raise(SIGUSR1);
    CHECK(sigpending(&waits) == 0 && sigismember(&waits, SIGUSR1));
    // Nobody wants it any more, and it does not come back.
    signal(SIGUSR1, SIG_IGN);
    CHECK(sigpending(&waits) == 0 && !sigismember(&waits, SIGUSR1));
    handle(SIGUSR1);
    sigprocmask(SIG_UNBLOCK, &set, 0);
    CHECK(heard == 0);

    // A stack that is named no more while it is used, and again after that.
    stack_t named = {.ss_sp = stack, .ss_size = sizeof stack, .ss_flags = (int)ALONE}, now;
    CHECK(sigaltstack(&named, 0) == 0 && sigaltstack(0, &now) == 0 && now.ss_flags == (int)ALONE);
    struct sigaction action = {.sa_handler = look_at_stack, .sa_flags = SA_ONSTACK};
    sigaction(SIGUSR2, &action, 0);
    raise(SIGUSR2);
    CHECK(heard == 1 && meanwhile.ss_flags == SS_DISABLE);
    CHECK(sigaltstack(0, &now) == 0 && now.ss_flags == (int)ALONE && now.ss_sp == stack && now.ss_size == sizeof stack);
    named.ss_flags = 0;
    CHECK(sigaltstack(&named, 0) == 0);
    raise(SIGUSR2);
    CHECK(heard == 1 && meanwhile.ss_flags == SS_ONSTACK);
    named.ss_flags = SS_DISABLE, heard = 0;
    CHECK(sigaltstack(&named, 0) == 0);
}

static int seven(void *nothing) { return (void)nothing, 7; }

static void children(void) {
    static char other[64 << 10];
    int status = 0;
    // One of whose end no `SIGCHLD` tells.
    int one = clone(seven, other + sizeof other, 0, 0);
    FAILS(waitpid(one, &status, 0), ECHILD);
    CHECK(waitpid(one, &status, __WCLONE) == one && WEXITSTATUS(status) == 7);
    one = clone(seven, other + sizeof other, SIGCHLD, 0);
    FAILS(waitpid(one, &status, __WCLONE), ECHILD);
    CHECK(waitpid(one, &status, __WALL) == one && WEXITSTATUS(status) == 7);
    one = clone(seven, other + sizeof other, 0, 0);
    siginfo_t info;
    CHECK(waitid(P_PID, one, &info, WEXITED | __WALL) == 0 && info.si_status == 7);
}

static void spends(struct rlimit most) {
    setrlimit(RLIMIT_CPU, &most);
    for (;;);
}

static void limits(void) {
    CHECK(ENDS(spends((struct rlimit){1, 5})) == SIGXCPU);
    CHECK(ENDS(spends((struct rlimit){1, 1})) == SIGKILL);
    handle(SIGXCPU);
    // Each second until the end.
    int status = ENDS({
        struct rlimit most = {1, 9}, now;
        setrlimit(RLIMIT_CPU, &most);
        while (heard < 2);
        getrlimit(RLIMIT_CPU, &now);
        _exit(now.rlim_cur == 3 && now.rlim_max == 9 ? 4 : 5);
    });
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 4);
    CHECK(heard == 0);
}

static void sockets(void) {
    int stream = socket(AF_INET, SOCK_STREAM, 0);
    FAILS(send(stream, "a", 1, MSG_NOSIGNAL), EPIPE);
    handle(SIGPIPE);
    FAILS(send(stream, "a", 1, 0), EPIPE);
    CHECK(heard == 1);
    heard = 0;
    struct sockaddr_un name = {AF_UNIX, "edges.socket"};
    int named = socket(AF_UNIX, SOCK_DGRAM, 0);
    FAILS(send(named, "a", 1, 0), ENOTCONN);
    CHECK(bind(named, (void *)&name, sizeof name) == 0);
    FAILS(bind(named, (void *)&name, sizeof name), EADDRINUSE);
    strcpy(name.sun_path, "edges.other");
    FAILS(bind(named, (void *)&name, sizeof name), EINVAL);
    unlink("edges.socket"), unlink("edges.other");
    int packets = socket(AF_INET, SOCK_DGRAM, 0);
    FAILS(send(packets, "a", 1, 0), EDESTADDRREQ);
    close(stream), close(named), close(packets);
}

// A program of so many bytes of this one, open to write to if it is asked for.
static int copied(const char *name) {
    static char bytes[4 << 20];
    int from = open("/proc/self/exe", O_RDONLY), to = open(name, O_RDWR | O_CREAT | O_TRUNC, 0755);
    long read_ = read(from, bytes, sizeof bytes);
    CHECK(read_ > 0 && write(to, bytes, read_) == read_);
    close(from);
    return to;
}

static void programs(void) {
    char *words[] = {"edges.copy", "sleeps", 0};
    int written = copied("edges.copy");
    // What is open to write to does not run, and what runs is not written to.
    FAILS(execve("edges.copy", words, environ), ETXTBSY);
    close(written);
    int begun[2];
    CHECK(pipe2(begun, O_CLOEXEC) == 0);
    pid_t pid = fork();
    if (!pid) execve("edges.copy", words, environ), _exit(1);
    close(begun[1]);
    char none;
    CHECK(read(begun[0], &none, 1) == 0 && close(begun[0]) == 0);
    FAILS(open("edges.copy", O_WRONLY), ETXTBSY);
    FAILS(open("edges.copy", O_RDWR), ETXTBSY);
    FAILS(truncate("edges.copy", 0), ETXTBSY);
    CHECK(open("edges.copy", O_RDONLY) >= 0);
    int status;
    CHECK(kill(pid, SIGKILL) == 0 && waitpid(pid, &status, 0) == pid && WTERMSIG(status) == SIGKILL);
    written = open("edges.copy", O_WRONLY);
    CHECK(written >= 0 && close(written) == 0 && unlink("edges.copy") == 0);
    FAILS(syscall(SYS_execveat, -1, "", 0, 0, 0), ENOENT);

    // Whether it is the same.
    pid_t own = getpid();
    int one = open("/dev/null", O_RDONLY), same = dup(one), other = open("/dev/null", O_RDONLY);
    CHECK(syscall(SYS_kcmp, own, own, 0, one, same) == 0 && syscall(SYS_kcmp, own, own, 0, one, other) > 0);
    CHECK(syscall(SYS_kcmp, own, own, 0, one, other) + syscall(SYS_kcmp, own, own, 0, other, one) == 3);
    CHECK(syscall(SYS_kcmp, own, own, 1, 0, 0) == 0);
    CHECK(ENDS(_exit(syscall(SYS_kcmp, own, getpid(), 1, 0, 0) > 0 && syscall(SYS_kcmp, own, getpid(), 0, one, one) == 0)) == 1 << 8);
    FAILS(syscall(SYS_kcmp, own, own, 0, one, 999), EBADF);
    FAILS(syscall(SYS_kcmp, own, 999999, 1, 0, 0), ESRCH);
    FAILS(syscall(SYS_kcmp, own, own, 99, 0, 0), EINVAL);
    close(one), close(same), close(other);
}

static void buffers(void) {
    int pipes[2], file = open("/proc/self/exe", O_RDONLY), null = open("/dev/null", O_RDWR);
    char *two = mmap(0, 2 * PAGE, READ_WRITE, OWN, -1, 0), byte;
    CHECK(pipe2(pipes, O_NONBLOCK) == 0 && munmap(two + PAGE, PAGE) == 0);
    // Where no program has memory.
    FAILS(syscall(SYS_read, file, two, -1UL), EFAULT);
    FAILS(syscall(SYS_pread64, file, two, 1UL << 47, 0), EFAULT);
    FAILS(syscall(SYS_write, null, two, 1UL << 47), EFAULT);
    FAILS(syscall(SYS_write, null, -1UL, 0), EFAULT);
    FAILS(syscall(SYS_read, 999, two, -1UL), EBADF);
    CHECK(write(null, two, 0) == 0);
    // What a pipe does not get as a whole it does not get.
    struct iovec parts[] = {{two, 2}, {two + PAGE, 3}};
    FAILS(writev(pipes[1], parts, 2), EFAULT);
    FAILS(write(pipes[1], two + PAGE - 2, 5), EFAULT);
    FAILS(read(pipes[0], &byte, 1), EAGAIN);
    CHECK(flock(file, 32 | 64) == 0);
    FAILS(flock(file, 16), EINVAL);
    close(pipes[0]), close(pipes[1]), close(file), close(null);
}

int main(int count, char **arguments) {
    static const struct part parts[] = {{"memory", memory}, {"words", words}, {"signals", signals}, {"children", children}, {"limits", limits}, {"sockets", sockets}, {"programs", programs}, {"buffers", buffers}};
    if (count > 1 && !strcmp(arguments[1], "sleeps")) return pause();
    PLAY(parts, count, arguments);
    return 0;
}
