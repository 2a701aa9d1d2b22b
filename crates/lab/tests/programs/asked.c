// What programs ask in calls that are seldom made: of how files are opened and named, of pipes, of clocks, of what a process says of
// itself, and of new processes. A line for each part with how many checks failed.
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/futex.h>
#include <linux/openat2.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "checks.h"

static int here, inside;

// Opens and closes; 0 if that went well.
static long how(int at, const char *path, unsigned long flags, unsigned long mode, unsigned long resolve) {
    struct open_how how = {.flags = flags, .mode = mode, .resolve = resolve};
    long number = syscall(SYS_openat2, at, path, &how, sizeof how);
    return number < 0 ? number : close(number);
}

// Ways that may not do everything.
static void ways(void) {
    CHECK(how(here, "file", O_RDONLY, 0, 0) == 0 && how(here, "new", O_CREAT | O_RDWR, 0600, 0) == 0);
    FAILS(how(here, "file", O_RDONLY, 0600, 0), EINVAL);
    FAILS(how(here, "file", 1UL << 40, 0, 0), EINVAL);
    FAILS(how(here, "file", O_RDONLY, 0, 1 << 20), EINVAL);
    FAILS(how(here, "link/below", O_RDONLY, 0, RESOLVE_NO_SYMLINKS), ELOOP);
    CHECK(how(here, "link", O_PATH | O_NOFOLLOW, 0, RESOLVE_NO_SYMLINKS) == 0);
    FAILS(how(inside, "up", O_RDONLY, 0, RESOLVE_BENEATH), EXDEV);
    FAILS(how(inside, "..", O_RDONLY, 0, RESOLVE_BENEATH), EXDEV);
    FAILS(how(inside, "/tmp", O_RDONLY, 0, RESOLVE_BENEATH), EXDEV);
    FAILS(how(here, "root", O_RDONLY, 0, RESOLVE_BENEATH), EXDEV);
    CHECK(how(inside, "below/..", O_RDONLY, 0, RESOLVE_BENEATH) == 0);
    CHECK(how(inside, "../../below", O_RDONLY, 0, RESOLVE_IN_ROOT) == 0 && how(inside, "/below", O_RDONLY, 0, RESOLVE_IN_ROOT) == 0);
    FAILS(how(here, "/proc/self/exe", O_RDONLY, 0, RESOLVE_NO_MAGICLINKS), ELOOP);
    FAILS(how(here, "/proc/self", O_RDONLY, 0, RESOLVE_NO_XDEV), EXDEV);
    struct {
        struct open_how how;
        long more;
    } longer = {.more = 1};
    FAILS(syscall(SYS_openat2, here, "file", &longer, sizeof longer), E2BIG);
    FAILS(syscall(SYS_openat2, here, "file", &longer, 16), EINVAL);
}

// Names, and files that are open to be named only.
static void names(void) {
    int path = openat(here, "file", O_PATH), file = openat(here, "file", O_RDWR);
    struct stat now;
    CHECK(fcntl(path, F_GETFL) == O_PATH && fstat(path, &now) == 0);
    FAILS(fchmod(path, 0600), EBADF);
    FAILS(lseek(path, 0, SEEK_SET), EBADF);
    FAILS(fsync(path), EBADF);
    int count;
    FAILS(ioctl(path, FIONREAD, &count), EBADF);
    FAILS(mmap(0, 4096, PROT_READ, MAP_PRIVATE, path, 0), EBADF);
    // Of a file by its number: root may, and who may not reads that there is none.
    if (geteuid() == 0) CHECK(linkat(file, "", here, "second", AT_EMPTY_PATH) == 0 && fstat(file, &now) == 0 && now.st_nlink == 2);
    FAILS(linkat(here, "file", here, "third", 1), EINVAL);
    FAILS(unlinkat(here, "file", 1), EINVAL);
    FAILS(openat(here, "file/", O_RDONLY), ENOTDIR);
    FAILS(openat(here, "inside", O_CREAT, 0600), EISDIR);
    FAILS(renameat(here, "inside/.", here, "other"), EBUSY);
    FAILS(unlinkat(here, "inside/..", AT_REMOVEDIR), ENOTEMPTY);
    char byte;
    FAILS(syscall(SYS_readlinkat, here, "link", &byte, 0), EINVAL);
    FAILS(dup3(file, 50, 1), EINVAL);
    FAILS(syscall(SYS_close_range, 60, 50, 0), EINVAL);
    FAILS(syscall(SYS_close_range, 50, 60, 8), EINVAL);
    FAILS(syscall(SYS_statx, here, "file", 0x10000000, 0xfff, &now), EINVAL);
    struct statfs system;
    FAILS(statfs("/nothing", &system), ENOENT);
    CHECK(statfs("/proc/self", &system) == 0 && system.f_type == 0x9fa0);
    CHECK(ioctl(file, 2, &count) == 0 && count == 4096);
    CHECK(lseek(file, 1000, SEEK_SET) == 1000 && ioctl(file, FIONREAD, &count) == 0 && count == 5 - 1000);
    struct iovec more = {"more", 4};
    CHECK(pwritev2(file, &more, 1, 2, RWF_APPEND) == 4 && lseek(file, 0, SEEK_CUR) == 1000 && lseek(file, 0, SEEK_END) == 9);
}

// Bytes between pipes.
static void pipes(void) {
    int one[2], file = openat(here, "file", O_RDWR);
    CHECK(pipe2(one, O_NONBLOCK) == 0 && write(one[1], "bytes", 5) == 5);
    FAILS(splice(one[0], 0, one[1], 0, 5, 0), EINVAL);
    struct iovec bytes = {"abc", 3};
    FAILS(vmsplice(file, &bytes, 1, 0), EBADF);
    struct statfs system;
    CHECK(fstatfs(one[0], &system) == 0 && system.f_type == 0x50495045);
}

// Clocks, numbers by chance, and words that others wait for.
static void times(void) {
    struct timespec least;
    CHECK(clock_getres(CLOCK_MONOTONIC, &least) == 0 && least.tv_nsec == 1);
    CHECK(clock_getres(CLOCK_REALTIME_COARSE, &least) == 0 && least.tv_nsec >= 1000000);
    FAILS(clock_getres(99, &least), EINVAL);
    clockid_t clock;
    CHECK(clock_getcpuclockid(getpid(), &clock) == 0 && clock_getcpuclockid(12345678, &clock) == ESRCH);
    char bytes[8];
    FAILS(syscall(SYS_getrandom, bytes, 8, 8), EINVAL);
    int word = 0;
    FAILS(syscall(SYS_futex, &word, FUTEX_WAKE_BITSET, 1, 0, 0, 0), EINVAL);
    FAILS(syscall(SYS_futex, &word, FUTEX_CMP_REQUEUE, -1, 1, &word, 0), EINVAL);
    stack_t stack = {.ss_sp = malloc(65536), .ss_size = 65536, .ss_flags = 8};
    FAILS(sigaltstack(&stack, 0), EINVAL);
    FAILS(syscall(SYS_tgkill, getpid(), -1, 0), EINVAL);
}

// What a process says of itself is kept, and goes to its children as far as it should.
static void says(void) {
    CHECK(prctl(PR_GET_DUMPABLE) == 1 && prctl(PR_SET_DUMPABLE, 0) == 0 && prctl(PR_GET_DUMPABLE) == 0);
    FAILS(prctl(PR_SET_DUMPABLE, 2), EINVAL);
    CHECK(prctl(PR_SET_DUMPABLE, 1) == 0);
    CHECK(prctl(PR_SET_TIMERSLACK, 1000) == 0 && prctl(PR_GET_TIMERSLACK) == 1000);
    CHECK(prctl(PR_SET_TIMERSLACK, 0) == 0 && prctl(PR_GET_TIMERSLACK) == 50000);
    FAILS(prctl(PR_SET_NO_NEW_PRIVS, 0, 0, 0, 0), EINVAL);
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1);
    CHECK(syscall(SYS_ioprio_set, 1, 0, 2 << 13 | 4) == 0 && syscall(SYS_ioprio_get, 1, 0) == (2 << 13 | 4));
    FAILS(syscall(SYS_ioprio_set, 1, 0, 7 << 13), EINVAL);
    FAILS(syscall(SYS_ioprio_get, 9, 0), EINVAL);
    FAILS(sched_getscheduler(-1), EINVAL);
    struct sched_param none = {0};
    CHECK(sched_setscheduler(0, SCHED_BATCH | SCHED_RESET_ON_FORK, &none) == 0);
    CHECK(sched_getscheduler(0) == (SCHED_BATCH | SCHED_RESET_ON_FORK) && sched_setscheduler(0, SCHED_OTHER, &none) == 0);
    siginfo_t info;
    FAILS(waitid(P_PID, -5, &info, WEXITED), EINVAL);
}

// Who may have whom served better, and who sets clocks.
static void serves(void) {
    struct timespec time = {0, 1000000000};
    FAILS(clock_settime(CLOCK_REALTIME, &time), EINVAL);
    FAILS(syscall(SYS_clock_settime, CLOCK_REALTIME, (void *)8), EFAULT);
    time.tv_nsec = 0;
    FAILS(clock_settime(CLOCK_MONOTONIC, &time), EINVAL);
    FAILS(clock_settime(CLOCK_PROCESS_CPUTIME_ID, &time), EINVAL);
    clockid_t clock;
    CHECK(clock_getcpuclockid(getpid(), &clock) == 0);
    FAILS(clock_settime(clock, &time), EPERM);
    pid_t child = fork();
    if (child == 0) {
        struct sched_param none = {0}, some = {.sched_priority = 1};
        struct rlimit no = {0, 0};
        cpu_set_t all;
        // Its parent is another's then.
        int root = getuid() == 0;
        wrong = 0;
        CHECK(setrlimit(RLIMIT_NICE, &no) == 0 && setrlimit(RLIMIT_RTPRIO, &no) == 0 && sched_getaffinity(0, sizeof all, &all) == 0);
        if (root) CHECK(setresuid(7, 7, 7) == 0);
        FAILS(sched_setscheduler(0, SCHED_FIFO, &some), EPERM);
        FAILS(setpriority(PRIO_PROCESS, 0, -1), EACCES);
        CHECK(setpriority(PRIO_PROCESS, 0, 5) == 0);
        FAILS(setpriority(PRIO_PROCESS, 0, 4), EACCES);
        CHECK(sched_setscheduler(0, SCHED_OTHER | SCHED_RESET_ON_FORK, &none) == 0);
        FAILS(sched_setscheduler(0, SCHED_BATCH, &none), EPERM);
        CHECK(sched_setscheduler(0, SCHED_IDLE | SCHED_RESET_ON_FORK, &none) == 0);
        FAILS(sched_setscheduler(0, SCHED_OTHER | SCHED_RESET_ON_FORK, &none), EPERM);
        if (root) {
            FAILS(sched_setscheduler(getppid(), SCHED_OTHER, &none), EPERM);
            FAILS(sched_setparam(getppid(), &none), EPERM);
            FAILS(sched_setaffinity(getppid(), sizeof all, &all), EPERM);
            FAILS(setpriority(PRIO_PROCESS, getppid(), 19), EPERM);
            FAILS(syscall(SYS_ioprio_set, 1, getppid(), 2 << 13 | 4), EPERM);
        }
        _exit(wrong);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

static long clone_with(unsigned long flags, unsigned long bytes) {
    struct clone_args ask = {.flags = flags, .exit_signal = SIGCHLD};
    long pid = syscall(SYS_clone3, &ask, bytes);
    if (pid == 0) _exit(0);
    return pid < 0 ? pid : waitpid(pid, 0, 0) == pid ? 0 : -2;
}

// New processes, and who is the parent of those that lose theirs.
static void children(void) {
    CHECK(clone_with(0, sizeof(struct clone_args)) == 0 && clone_with(CLONE_PARENT_SETTID, sizeof(struct clone_args)) == 0);
    FAILS(clone_with(CLONE_SIGHAND, sizeof(struct clone_args)), EINVAL);
    FAILS(clone_with(1UL << 40, sizeof(struct clone_args)), EINVAL);
    FAILS(clone_with(0, 5000), E2BIG);
    int adopts = 0, told[2];
    CHECK(prctl(PR_SET_CHILD_SUBREAPER, 1) == 0 && prctl(PR_GET_CHILD_SUBREAPER, &adopts) == 0 && adopts == 1);
    CHECK(pipe(told) == 0);
    pid_t me = getpid(), child = fork();
    if (child == 0) {
        if (fork() == 0) {
            // Until its parent is gone.
            while (getppid() != me) usleep(1000);
            CHECK(write(told[1], "x", 1) == 1);
            _exit(7);
        }
        _exit(3);
    }
    int status;
    char byte;
    CHECK(waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 3);
    CHECK(read(told[0], &byte, 1) == 1 && wait(&status) > 0 && WEXITSTATUS(status) == 7);
    CHECK(prctl(PR_SET_CHILD_SUBREAPER, 0) == 0);
}

int main(int count, char **arguments) {
    char name[] = "/tmp/asked-XXXXXX";
    CHECK(mkdtemp(name) != 0);
    here = open(name, O_DIRECTORY | O_RDONLY);
    CHECK(mkdirat(here, "inside", 0700) == 0 && mkdirat(here, "inside/below", 0700) == 0);
    CHECK(symlinkat("inside", here, "link") == 0 && symlinkat("../..", here, "inside/up") == 0 && symlinkat("/tmp", here, "root") == 0);
    inside = openat(here, "inside", O_DIRECTORY | O_RDONLY);
    int file = openat(here, "file", O_CREAT | O_RDWR, 0600);
    CHECK(write(file, "hello", 5) == 5);
    const struct part parts[] = {{"ways", ways}, {"names", names}, {"pipes", pipes}, {"times", times}, {"says", says}, {"serves", serves}, {"children", children}};
    PLAY(parts, count, arguments);
    const char *all[] = {"second", "new", "file", "link", "root", "inside/up"};
    for (unsigned i = 0; i < sizeof all / sizeof *all; i++) unlinkat(here, all[i], 0);
    unlinkat(here, "inside/below", AT_REMOVEDIR);
    unlinkat(here, "inside", AT_REMOVEDIR);
    rmdir(name);
    return 0;
}
