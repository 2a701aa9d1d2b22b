// What programs ask for at the edges of what calls promise: lengths that no number can say, words that are nowhere, signals that nobody
// wants any more, the end of what may be used of CPUs; which of several errors comes first, and how much is done before it. A line for
// each part with how many checks failed.
#define _GNU_SOURCE
#include <dirent.h>
#include <elf.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <linux/sched.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/shm.h>
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

static int file_of(long pages) {
    char name[] = "/tmp/edges-XXXXXX";
    int file = mkstemp(name);
    CHECK(unlink(name) == 0 && ftruncate(file, pages * PAGE) == 0);
    return file;
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
    // And what finds no place stays there; as far as there is memory it goes.
    CHECK(write(pipes[1], "abc", 3) == 3);
    FAILS(read(pipes[0], two + PAGE, 3), EFAULT);
    CHECK(read(pipes[0], two, 3) == 3 && !memcmp(two, "abc", 3));
    int zero = open("/dev/zero", O_RDONLY), other = file_of(0);
    CHECK(read(zero, two, 2 * PAGE) == PAGE && write(other, two, 2 * PAGE) == PAGE && lseek(other, 0, SEEK_END) == PAGE);
    CHECK(pread(other, two, 2 * PAGE, 0) == PAGE && pread(other, two + PAGE - 5, 10, 0) == 5);
    FAILS(pread(other, two + PAGE, 1, 0), EFAULT);
    close(zero), close(other);
    CHECK(flock(file, 32 | 64) == 0);
    FAILS(flock(file, 16), EINVAL);
    close(pipes[0]), close(pipes[1]), close(file), close(null);
}

static sigjmp_buf back;
static volatile siginfo_t came;

static void leap(int signal, siginfo_t *info, void *context) {
    (void)context;
    came = *info;
    siglongjmp(back, signal);
}

static void leaps(int signal, int flags) {
    struct sigaction action = {.sa_sigaction = leap, .sa_flags = SA_SIGINFO | flags};
    sigaction(signal, &action, 0);
}

// What a byte is, or minus the signal that came instead.
static int at(volatile char *place) {
    int signal = sigsetjmp(back, 1);
    return signal ? -signal : *place;
}

static int put(volatile char *place) {
    int signal = sigsetjmp(back, 1);
    if (!signal) *place = 1;
    return -signal;
}

// What a child does of which the checks are this one's.
#define CHILD(...) CHECK(ENDS(wrong = 0; __VA_ARGS__; fflush(stderr); _exit(wrong)) == 0)

static char *own(long pages) { return mmap(0, pages * PAGE, READ_WRITE, OWN, -1, 0); }

// How many areas lie there, as the process is told.
static int areas(char *from, long pages) {
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[512], *to = from + pages * PAGE;
    unsigned long start, end;
    int count = 0;
    while (fgets(line, sizeof line, maps))
        if (sscanf(line, "%lx-%lx", &start, &end) == 2) count += start < (unsigned long)to && end > (unsigned long)from;
    fclose(maps);
    return count;
}

// Which of several errors comes first, where memory lies that is asked for vaguely, and limits that hold whatever is replaced.
static void mappings(void) {
    leaps(SIGSEGV, 0);
    int file = file_of(4), pipes[2], writes = open("/dev/zero", O_WRONLY), reads = open("/dev/zero", O_RDONLY);
    CHECK(pipe(pipes) == 0);
    FAILS(mmap(0, 0, PROT_READ, MAP_PRIVATE, 999, 0), EBADF);
    FAILS(mmap(0, 0, PROT_READ, MAP_PRIVATE, file, 0), EINVAL);
    FAILS(mmap(0, PAGE, PROT_READ, MAP_PRIVATE, pipes[1], 0), EACCES);
    FAILS(mmap(0, PAGE, PROT_READ, MAP_PRIVATE, pipes[0], 0), ENODEV);
    FAILS(mmap(0, PAGE, PROT_READ, MAP_PRIVATE, writes, 0), EACCES);
    FAILS(mmap(0, PAGE, READ_WRITE, MAP_SHARED, reads, 0), EACCES);
    FAILS(mmap(0, PAGE, PROT_READ, MAP_PRIVATE | MAP_GROWSDOWN, file, 0), EINVAL);
    // Where in no file its memory lies.
    CHECK(mmap(0, PAGE, PROT_READ, OWN, -1, -PAGE) != MAP_FAILED);
    CHECK((unsigned long)mmap((void *)PAGE, PAGE, PROT_READ, OWN, -1, 0) <= 0x10000);
    // Not where something else may grow to; and that may come near to what nobody may use.
    char *free = own(1024);
    munmap(free, 1024 * PAGE);
    char *grows = mmap(free + 1000 * PAGE, PAGE, READ_WRITE, OWN | MAP_FIXED | MAP_GROWSDOWN, -1, 0);
    CHECK(mmap(grows - PAGE, PAGE, PROT_READ, OWN, -1, 0) != grows - PAGE);
    free = own(64);
    CHECK(mprotect(free, 10 * PAGE, PROT_NONE) == 0 && munmap(free + 10 * PAGE, 20 * PAGE) == 0);
    grows = mmap(free + 20 * PAGE, PAGE, READ_WRITE, OWN | MAP_FIXED | MAP_GROWSDOWN, -1, 0);
    CHECK(put(grows - PAGE) == 0 && put(free + 10 * PAGE) == 0 && put(free + 9 * PAGE) == -SIGSEGV);
    CHILD({
        char *now = sbrk(0), *end = (char *)(((long)now + PAGE - 1) & -PAGE);
        CHECK(mmap(end + 3 * PAGE, PAGE, PROT_READ, OWN | MAP_FIXED, -1, 0) == end + 3 * PAGE);
        CHECK((char *)syscall(SYS_brk, end + 2 * PAGE) == end + 2 * PAGE && (char *)syscall(SYS_brk, end + 3 * PAGE) == end + 2 * PAGE);
    });
    if (geteuid() == 0) CHILD({
        struct rlimit none = {0, 0};
        CHECK(setrlimit(RLIMIT_MEMLOCK, &none) == 0 && setresuid(1, 1, 1) == 0);
        FAILS(mmap(0, PAGE, PROT_READ, OWN | MAP_LOCKED, -1, 0), EPERM);
    });
    CHILD({
        char *much = mmap(0, 64 << 20, PROT_NONE, OWN, -1, 0), line[256];
        long size = 0;
        FILE *status = fopen("/proc/self/status", "r");
        while (fgets(line, sizeof line, status)) sscanf(line, "VmSize: %ld", &size);
        struct rlimit most = {(size << 10) + (1 << 20), RLIM_INFINITY};
        CHECK(setrlimit(RLIMIT_AS, &most) == 0);
        FAILS(mmap(0, 32 << 20, PROT_NONE, OWN, -1, 0), ENOMEM);
        CHECK(mmap(much, 32 << 20, PROT_READ, OWN | MAP_FIXED, -1, 0) == much);
    });
    CHILD({
        struct rlimit most = {32 << 20, 32 << 20};
        CHECK(setrlimit(RLIMIT_DATA, &most) == 0);
        char *much = mmap(0, 64 << 20, PROT_READ, OWN, -1, 0);
        FAILS(mprotect(much, 64 << 20, READ_WRITE), ENOMEM);
        CHECK(mprotect(much, 1 << 20, READ_WRITE) == 0);
    });
    close(file), close(pipes[0]), close(pipes[1]), close(writes), close(reads);
}

// What changes mappings, and what becomes of those beside.
static void changes(void) {
    leaps(SIGSEGV, 0);
    int file = file_of(8);
    char *map = mmap(0, 6 * PAGE, READ_WRITE, MAP_SHARED, file, 0);
    CHECK(mprotect(map + PAGE, PAGE, PROT_READ) == 0 && areas(map, 6) == 3);
    CHECK(mprotect(map + PAGE, PAGE, READ_WRITE) == 0 && areas(map, 6) == 1);
    CHECK(mremap(map, 6 * PAGE, 8 * PAGE, MREMAP_MAYMOVE) != MAP_FAILED);
    CHECK(syscall(SYS_mprotect, own(1), 0, 0x1000) == 0 && syscall(SYS_mprotect, own(1), PAGE, READ_WRITE | 8) == 0);
    FAILS(syscall(SYS_mprotect, own(1), PAGE, 0x1000), EINVAL);
    // What goes may have holes.
    char *six = own(6);
    munmap(six + 2 * PAGE, PAGE);
    CHECK(mremap(six, 6 * PAGE, 6 * PAGE, 0) == six && mremap(six, 6 * PAGE, PAGE, 0) == six);
    CHECK(at(six) == 0 && at(six + PAGE) == -SIGSEGV && at(six + 4 * PAGE) == -SIGSEGV);
    char *shared = mmap(0, 4 * PAGE, READ_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    FAILS(mremap(shared + 2 * PAGE, 0, 2 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, shared + PAGE), EINVAL);
    CHECK(at(shared + 2 * PAGE) == 0);
    // What is locked is so a second time, and in another order.
    CHECK(mlock(shared, 2 * PAGE) == 0);
    FAILS(msync(mremap(shared, 0, PAGE, MREMAP_MAYMOVE), PAGE, MS_INVALIDATE), EBUSY);
    CHECK(syscall(SYS_remap_file_pages, shared, PAGE, 0, 1, 0) == 0);
    FAILS(msync(shared, PAGE, MS_INVALIDATE), EBUSY);
    // Up to what is locked, or is no memory of its own.
    char *three = own(3);
    three[0] = three[PAGE] = three[2 * PAGE] = 5;
    CHECK(mlock(three + PAGE, PAGE) == 0);
    FAILS(madvise(three, 3 * PAGE, MADV_DONTNEED), EINVAL);
    CHECK(three[0] == 0 && three[PAGE] == 5 && three[2 * PAGE] == 5);
    three[0] = 5;
    CHECK(mmap(three + PAGE, PAGE, READ_WRITE, MAP_PRIVATE | MAP_FIXED, file, 0) == three + PAGE);
    FAILS(madvise(three, 2 * PAGE, MADV_WIPEONFORK), EINVAL);
    CHILD(CHECK(three[0] == 0));
    close(file);
}

// Memory by number: whose it is, who may have it, and who had it last.
static void segments(void) {
    struct shmid_ds is;
    int id = shmget(IPC_PRIVATE, 5000, 0600);
    CHECK(shmctl(id, IPC_STAT, &is) == 0 && is.shm_atime == 0 && is.shm_lpid == 0 && is.shm_cpid == getpid());
    void *place = shmat(id, 0, 0);
    CHECK(shmctl(id, IPC_STAT, &is) == 0 && is.shm_atime > 0 && is.shm_dtime == 0 && is.shm_nattch == 1 && is.shm_lpid == getpid());
    CHECK(shmdt(place) == 0 && shmctl(id, IPC_STAT, &is) == 0 && is.shm_dtime > 0 && is.shm_nattch == 0);
    CHECK(is.shm_perm.uid == geteuid() && is.shm_perm.cuid == geteuid());
    is.shm_perm.mode = 0640;
    if (geteuid() == 0) is.shm_perm.uid = 1, is.shm_perm.gid = 2;
    CHECK(shmctl(id, IPC_SET, &is) == 0 && shmctl(id, IPC_STAT, &is) == 0 && (is.shm_perm.mode & 0777) == 0640);
    if (geteuid() == 0) {
        CHECK(is.shm_perm.uid == 1 && is.shm_perm.gid == 2 && is.shm_perm.cuid == 0);
        CHILD(CHECK(setresuid(1, 1, 1) == 0 && shmat(id, 0, 0) != (void *)-1));
        CHILD({
            CHECK(setresgid(7, 7, 7) == 0 && setresuid(5, 5, 5) == 0);
            FAILS(shmat(id, 0, 0), EACCES);
            FAILS(shmctl(id, IPC_STAT, &is), EACCES);
            FAILS(shmctl(id, IPC_RMID, 0), EPERM);
        });
    }
    FAILS(shmget(IPC_PRIVATE, 1L << 47, 0600), ENOMEM);
    FAILS(shmget(IPC_PRIVATE, -1UL, 0600), EINVAL);
    CHECK(shmctl(id, IPC_RMID, 0) == 0);
}

static unsigned wakes, moved;
static void *sleeps_at(void *word_) { return (void)word(word_, FUTEX_WAIT_PRIVATE, 0, 0, 0, 0), (void *)0; }
static int asleep(pid_t tid) {
    char name[64], line[256];
    snprintf(name, sizeof name, "/proc/self/task/%d/status", tid);
    FILE *status = fopen(name, "r");
    int is = 0;
    while (status && fgets(line, sizeof line, status)) is |= !strncmp(line, "State:\tS", 8);
    if (status) fclose(status);
    return is;
}

struct lock {
    struct robust_list_head head;
    struct robust_list entry;
    unsigned word;
};

static int runs_sleeper(void *name) { return execl(name, "edges", "sleeps", (char *)0); }

// Who asks to wake fewer than one wakes one; and what a thread leaves behind when it runs another program.
static void wakers(void) {
    pthread_t threads[4];
    FAILS(word(&wakes, 0x200 | FUTEX_WAKE, 1, 0, 0, 0), ENOSYS);
    FAILS(word(&wakes, FUTEX_CMP_REQUEUE, -1U, (void *)1, &moved, 77), EINVAL);
    FAILS(word(&wakes, FUTEX_CMP_REQUEUE, 1, (void *)1, &moved, 77), EAGAIN);
    for (int i = 0; i < 4; i++) CHECK(pthread_create(threads + i, 0, sleeps_at, &wakes) == 0);
    for (int slept = 0; slept < 4;) {
        slept = 0;
        DIR *tasks = opendir("/proc/self/task");
        for (struct dirent *task; (task = readdir(tasks));) slept += atoi(task->d_name) != getpid() && asleep(atoi(task->d_name));
        closedir(tasks);
        usleep(10000);
    }
    CHECK(word(&wakes, FUTEX_WAKE_PRIVATE, 0, 0, 0, 0) == 1 && word(&wakes, FUTEX_WAKE_PRIVATE, -1U, 0, 0, 0) == 1);
    CHECK(word(&wakes, FUTEX_REQUEUE_PRIVATE, 0, (void *)1, &moved, 0) == 1);
    CHECK(word(&wakes, FUTEX_WAKE_OP_PRIVATE, 0, 0, &moved, FUTEX_OP(FUTEX_OP_ADD, 0, FUTEX_OP_CMP_EQ, 0)) == 2);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], 0);

    struct lock *lock = mmap(0, PAGE, READ_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    lock->entry.next = &lock->head.list, lock->head.list.next = &lock->entry;
    lock->head.futex_offset = (char *)&lock->word - (char *)&lock->entry;
    int begun[2];
    char none;
    CHECK(pipe2(begun, O_CLOEXEC) == 0);
    pid_t pid = fork();
    if (!pid) {
        lock->word = getpid();
        syscall(SYS_set_robust_list, &lock->head, sizeof lock->head);
        _exit(runs_sleeper("/proc/self/exe"));
    }
    close(begun[1]);
    CHECK(read(begun[0], &none, 1) == 0 && lock->word == FUTEX_OWNER_DIED);
    CHECK(close(begun[0]) == 0 && kill(pid, SIGKILL) == 0 && waitpid(pid, 0, 0) == pid);
    // Its number becomes zero where others see it, and nowhere else.
    static pid_t here = 77;
    pid = clone(runs_sleeper, stack + sizeof stack, CLONE_VM | CLONE_VFORK | CLONE_CHILD_CLEARTID | SIGCHLD, "/proc/self/exe", 0, 0, &here);
    CHECK(here == 0 && kill(pid, SIGKILL) == 0 && waitpid(pid, 0, 0) == pid);
    lock->word = 77;
    pid = syscall(SYS_clone, CLONE_CHILD_CLEARTID | SIGCHLD, 0, 0, &lock->word, 0);
    if (!pid) _exit(0);
    CHECK(waitpid(pid, 0, 0) == pid && lock->word == 77);
}

struct action {
    void *handler;
    unsigned long flags;
    void *restorer;
    unsigned long mask;
};

static void hear_of(int signal, siginfo_t *info, void *context) { (void)signal, (void)context, came = *info; }

static void first(int signal) { heard = heard ? heard : signal; }

// What is kept of what is said of signals, who has sent one, and what comes when there is no room for a handler.
static void senders(void) {
    struct action said = {(void *)1, 0x84000400UL | 1UL << 40, 0, -1UL}, kept;
    CHECK(syscall(SYS_rt_sigaction, SIGUSR1, &said, 0, 8) == 0 && syscall(SYS_rt_sigaction, SIGUSR1, 0, &kept, 8) == 0);
    CHECK(kept.mask == ~(1UL << 8 | 1UL << 18) && kept.flags == 0x84000000UL);
    siginfo_t queued = {.si_code = SI_QUEUE};
    FAILS(kill(9999999, 99), ESRCH);
    FAILS(kill(getpid(), 99), EINVAL);
    FAILS(syscall(SYS_rt_sigqueueinfo, 9999999, 99, &queued), ESRCH);
    FAILS(syscall(SYS_tgkill, getpid(), 9999999, 99), ESRCH);
    FAILS(syscall(SYS_tgkill, getpid(), getpid(), 99), EINVAL);
    CHILD({
        struct sigaction action = {.sa_sigaction = hear_of, .sa_flags = SA_SIGINFO};
        sigaction(SIGUSR1, &action, 0), sigaction(SIGCHLD, &action, 0);
        uid_t user = geteuid() == 0 ? 5 : getuid();
        CHECK(setresuid(user, user, user) == 0 && kill(getpid(), SIGUSR1) == 0 && came.si_uid == user && came.si_pid == getpid());
        came.si_uid = 0;
        CHECK(raise(SIGUSR1) == 0 && came.si_uid == user && came.si_code == SI_TKILL);
        CHECK(ENDS(_exit(3)) == 3 << 8 && came.si_uid == user && came.si_status == 3);
        pid_t pid = fork();
        if (!pid) _exit(4);
        CHECK(waitid(P_PID, pid, &queued, WEXITED) == 0 && queued.si_uid == user);
    });
    // On a stack that is none.
    CHILD({
        stack_t other = {.ss_sp = stack, .ss_size = sizeof stack};
        sigaltstack(&other, 0);
        leaps(SIGSEGV, SA_ONSTACK), leaps(SIGUSR2, 0);
        int signal = sigsetjmp(back, 1);
        long pid = getpid(), number = SYS_tgkill;
        if (!signal) __asm__ volatile("mov $0x9000, %%rsp; syscall" : "+a"(number) : "D"(pid), "S"(pid), "d"(SIGUSR2) : "rcx", "r11", "memory");
        CHECK(signal == SIGSEGV && came.si_code == SI_KERNEL);
    });
    // Faults are heard before all others, whoever sends them.
    CHILD({
        struct sigaction action = {.sa_handler = first};
        sigset_t all;
        sigfillset(&all), sigfillset(&action.sa_mask);
        sigprocmask(SIG_SETMASK, &all, 0);
        sigaction(SIGHUP, &action, 0), sigaction(SIGSEGV, &action, 0), sigaction(SIGTERM, &action, 0);
        heard = 0, kill(getpid(), SIGHUP), kill(getpid(), SIGTERM), kill(getpid(), SIGSEGV);
        sigemptyset(&all), sigprocmask(SIG_SETMASK, &all, 0);
        CHECK(heard == SIGSEGV);
    });
    // Whose memory is lent has the stack of handlers too.
    static stack_t now;
    stack_t named = {.ss_sp = stack, .ss_size = sizeof stack};
    now.ss_flags = 99;
    CHECK(sigaltstack(&named, 0) == 0);
    pid_t pid = vfork();
    if (!pid) sigaltstack(0, &now), _exit(0);
    CHECK(waitpid(pid, 0, 0) == pid && now.ss_flags == 0 && now.ss_sp == stack);
    named.ss_flags = SS_DISABLE;
    CHECK(sigaltstack(&named, 0) == 0);
    unsigned long set = 0;
    struct timespec soon = {0, 0};
    struct { void *set; unsigned long bytes; } both = {&set, 4};
    FAILS(syscall(SYS_rt_sigsuspend, &set, 4), EINVAL);
    FAILS(syscall(SYS_rt_sigtimedwait, &set, 0, &soon, 4), EINVAL);
    FAILS(syscall(SYS_rt_sigpending, &set, 16), EINVAL);
    FAILS(syscall(SYS_signalfd4, -1, &set, 4, 0), EINVAL);
    FAILS(syscall(SYS_ppoll, 0, 0, &soon, &set, 4), EINVAL);
    FAILS(syscall(SYS_pselect6, 0, 0, 0, 0, &soon, &both), EINVAL);
}

// How a file ends that is to be run: with its code, or 200 and the error.
static int ran(char *name, char *argument) {
    char *words[] = {name, "true", argument, 0};
    return ENDS(execve(name, words, environ); _exit(errno == E2BIG ? 207 : errno < 50 ? 150 + errno : 255)) >> 8;
}

static void script(const char *name, const char *text, int bytes) {
    int file = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0755);
    CHECK(write(file, text, bytes) == bytes && close(file) == 0);
}

// What runs: scripts that name scripts, and names that are cut off.
static void scripts(void) {
    char own_name[4096] = "", text[5000], name[32];
    CHECK(readlink("/proc/self/exe", own_name, sizeof own_name - 1) > 0);
    char *nothing[] = {0};
    // Who is given no words has an empty one.
    CHECK(ENDS(execve(own_name, nothing, environ)) == 33 << 8);
    script("edges.script", "#!/bin/sh\r\n", 11);
    CHECK(ran("./edges.script", 0) == 150 + ENOENT);
    memset(text, 'x', sizeof text);
    memcpy(text, "#!/", 3);
    script("edges.script", text, 400);
    CHECK(ran("./edges.script", 0) == 150 + ENOEXEC);
    memset(text + 200, ' ', 100);
    script("edges.script", text, 400);
    CHECK(ran("./edges.script", 0) == 150 + ENOENT);
    for (int i = 1; i <= 6; i++) {
        snprintf(name, sizeof name, "edges.%d", i);
        int bytes = i == 1 ? symlink(own_name, "edges.own"), snprintf(text, sizeof text, "#!edges.own true\n") : snprintf(text, sizeof text, "#!edges.%d\n", i - 1);
        script(name, text, bytes);
    }
    CHECK(ran("edges.5", 0) == 0 && ran("edges.6", 0) == 150 + ELOOP);
    for (int i = 1; i <= 6; i++) snprintf(name, sizeof name, "edges.%d", i), unlink(name);
    // An interpreter that is none.
    struct {
        Elf64_Ehdr head;
        Elf64_Phdr parts[2];
        char interpreter[16];
    } program = {
        .head = {{127, 'E', 'L', 'F', 2, 1, 1}, ET_DYN, EM_X86_64, 1, 0, sizeof(Elf64_Ehdr), 0, 0, sizeof(Elf64_Ehdr), sizeof(Elf64_Phdr), 2, 0, 0, 0},
        .parts = {{PT_INTERP, PF_R, sizeof(Elf64_Ehdr) + 2 * sizeof(Elf64_Phdr), 0, 0, 11, 11, 1}, {PT_LOAD, PF_R, 0, 0, 0, sizeof program, sizeof program, PAGE}},
        .interpreter = "edges.text",
    };
    script("edges.script", (char *)&program, sizeof program);
    CHECK(ran("./edges.script", 0) == 150 + ENOENT);
    script("edges.text", text, 300);
    CHECK(ran("./edges.script", 0) == 255);
    script("edges.text", text, 3);
    CHECK(ran("./edges.script", 0) == 150 + EIO);
    unlink("edges.text"), unlink("edges.script"), unlink("edges.own");
    // One word has no more than 128 KiB.
    char *word_ = malloc(132000);
    memset(word_, 'a', 131072);
    word_[131071] = 0;
    CHECK(ran(own_name, word_) == 0);
    word_[131071] = 'a', word_[131072] = 0;
    CHECK(ran(own_name, word_) == 207);
    // What is ignored stays so, and no more of it.
    CHECK(ENDS({
        struct action said = {(void *)1, 0x14000002, 0, 5};
        syscall(SYS_rt_sigaction, SIGUSR1, &said, 0, 8);
        execl(own_name, "edges", "ignores", (char *)0);
    }) == 0);
}

static long made(struct clone_args asked) {
    long pid = syscall(SYS_clone3, &asked, sizeof asked);
    if (pid == 0) _exit(0);
    if (pid > 0) waitpid(pid, 0, 0);
    return pid;
}
#define MADE(...) made((struct clone_args){__VA_ARGS__})

// What is refused of what makes processes, waits for them and looks into them.
static void makers(void) {
    unsigned long longer[20] = {[4] = SIGCHLD, [15] = 1};
    FAILS(MADE(.stack = 0x10000, .exit_signal = SIGCHLD), EINVAL);
    FAILS(MADE(.stack_size = 0x10000, .exit_signal = SIGCHLD), EINVAL);
    FAILS(MADE(.flags = SIGCHLD), EINVAL);
    FAILS(MADE(.exit_signal = 256 + SIGCHLD), EINVAL);
    FAILS(MADE(.flags = CLONE_PARENT, .exit_signal = SIGCHLD), EINVAL);
    FAILS(MADE(.flags = CLONE_DETACHED, .exit_signal = SIGCHLD), EINVAL);
    FAILS(MADE(.flags = CLONE_VM | CLONE_SIGHAND | CLONE_CLEAR_SIGHAND, .exit_signal = SIGCHLD), EINVAL);
    FAILS(syscall(SYS_clone3, longer, sizeof longer), E2BIG);
    CHECK(MADE(.exit_signal = SIGCHLD) > 0);
    // Numbers that it is to have.
    pid_t numbers[40] = {0}, own = getpid();
    FAILS(MADE(.set_tid_size = 1, .exit_signal = SIGCHLD), EINVAL);
    FAILS(MADE(.set_tid = (uintptr_t)numbers, .exit_signal = SIGCHLD), EINVAL);
    FAILS(MADE(.set_tid = (uintptr_t)numbers, .set_tid_size = 40, .exit_signal = SIGCHLD), EINVAL);
    FAILS(MADE(.set_tid = (uintptr_t)numbers, .set_tid_size = 1, .exit_signal = SIGCHLD), EINVAL);
    FAILS(MADE(.set_tid = 8, .set_tid_size = 1, .exit_signal = SIGCHLD), EFAULT);
    numbers[0] = -1;
    FAILS(MADE(.set_tid = (uintptr_t)numbers, .set_tid_size = 1, .exit_signal = SIGCHLD), EINVAL);
    FAILS(MADE(.set_tid = (uintptr_t)&own, .set_tid_size = 1, .exit_signal = SIGCHLD), geteuid() ? EPERM : EEXIST);
    FAILS(MADE(.flags = 0x200000000, .cgroup = 999, .exit_signal = SIGCHLD), EBADF);
    FAILS(wait4(-2147483647 - 1, 0, 0, 0), ESRCH);
    struct iovec some = {longer, 4}, none = {longer, 0};
    CHECK(process_vm_readv(9999999, &some, 1, &none, 1, 0) == 0 && process_vm_readv(9999999, &none, 1, &some, 1, 0) == 0);
    FAILS(process_vm_readv(9999999, &some, 1, &some, 1, 0), ESRCH);
}

// How much is left of a time, and which files can be waited for.
static void waiters(void) {
    int set = epoll_create1(0), file = file_of(1), pipes[2];
    CHECK(pipe(pipes) == 0);
    struct epoll_event event = {.events = EPOLLIN};
    FAILS(epoll_ctl(pipes[0], EPOLL_CTL_ADD, file, &event), EPERM);
    FAILS(epoll_ctl(pipes[0], EPOLL_CTL_ADD, pipes[1], &event), EINVAL);
    FAILS(epoll_ctl(set, EPOLL_CTL_MOD, set, &event), EINVAL);
    FAILS(epoll_ctl(set, EPOLL_CTL_DEL, set, &event), EINVAL);
    FAILS(epoll_ctl(set, EPOLL_CTL_ADD, 999, (void *)1), EFAULT);
    struct timeval time = {0, 10000};
    CHECK(select(0, 0, 0, 0, &time) == 0 && time.tv_sec == 0 && time.tv_usec == 0);
    fd_set writes;
    FD_ZERO(&writes);
    FD_SET(pipes[1], &writes);
    time = (struct timeval){1000, 500000};
    CHECK(select(pipes[1] + 1, 0, &writes, 0, &time) == 1 && time.tv_sec >= 900 && time.tv_sec <= 1000 && time.tv_usec != 500000);
    struct timespec fine = {0, 1000000};
    CHECK(syscall(SYS_pselect6, 0, 0, 0, 0, &fine, 0) == 0 && fine.tv_sec == 0 && fine.tv_nsec == 0);
    fine = (struct timespec){0, 1000000};
    CHECK(syscall(SYS_ppoll, 0, 0, &fine, 0, 8) == 0 && fine.tv_sec == 0 && fine.tv_nsec == 0);
    fine = (struct timespec){0, 1000000000};
    FAILS(syscall(SYS_pselect6, 0, 0, 0, 0, &fine, 0), EINVAL);
    static fd_set many[64];
    time = (struct timeval){0, 0};
    CHECK(syscall(SYS_select, 5000, many, 0, 0, &time) == 0);
    FAILS(select(-1, 0, 0, 0, &time), EINVAL);
    close(set), close(file), close(pipes[0]), close(pipes[1]);
}

static volatile int steps, nested;
static void count_steps(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)info, (void)context;
    // Its own flag is back when this returns, but not while it runs; the one that does nothing stays.
    unsigned long now;
    __asm__ volatile("pushfq; pop %0" : "=r"(now));
    if (now & 0x100) _exit(99);
    steps++, nested += now >> 14 & 1;
}

// Who goes by its own steps does so after each, and after a call; only the lower half of a register says which call.
static void stepping(void) {
    struct sigaction action = {.sa_sigaction = count_steps, .sa_flags = SA_SIGINFO}, old;
    CHECK(sigaction(SIGTRAP, &action, &old) == 0);
    __asm__ volatile("sub $128, %%rsp; pushfq; orq $0x100, (%%rsp); popfq; nop; nop; nop; pushfq; andq $~0x100, (%%rsp); popfq; add $128, %%rsp" ::: "memory", "cc");
    CHECK(steps == 6);
    steps = 0;
    long answer = SYS_getpid;
    __asm__ volatile("sub $128, %%rsp; pushfq; orq $0x4100, (%%rsp); popfq; syscall; nop; pushfq; andq $~0x4100, (%%rsp); popfq; add $128, %%rsp" : "+a"(answer)::"rcx", "r11", "memory", "cc");
    CHECK(answer == getpid() && steps >= 4 && nested == steps - 1);
    CHECK(sigaction(SIGTRAP, &old, 0) == 0);
    static const unsigned long uppers[] = {1, 0x40000000, 0x80000000, 0xffffffff};
    for (unsigned i = 0; i < sizeof uppers / sizeof *uppers; i++) {
        answer = uppers[i] << 32 | SYS_getpid;
        __asm__ volatile("syscall" : "+a"(answer)::"rcx", "r11", "memory");
        CHECK(answer == getpid());
    }
}

// What a script is told it is called, that was named by a descriptor.
static void named(void) {
    char own_name[4096] = "", wanted[4200];
    CHECK(readlink("/proc/self/exe", own_name, sizeof own_name - 1) > 0 && mkdir("edges.named", 0755) == 0);
    int at = open("edges.named", O_RDONLY | O_DIRECTORY), closed = open("edges.named", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int made = openat(at, "script", O_WRONLY | O_CREAT, 0755), length = snprintf(wanted, sizeof wanted, "#!%s named\n", own_name);
    CHECK(made >= 0 && write(made, wanted, length) == length && close(made) == 0);
    int script = openat(at, "script", O_RDONLY);
    snprintf(wanted, sizeof wanted, "/dev/fd/%d/script", at);
    CHECK(ENDS(execveat(at, "script", (char *[]){"x", wanted, 0}, environ, 0)) == 0);
    snprintf(wanted, sizeof wanted, "/dev/fd/%d", script);
    CHECK(ENDS(execveat(script, "", (char *[]){"x", wanted, 0}, environ, AT_EMPTY_PATH)) == 0);
    // By way of what is open, up from it, and to nothing by way of what is no directory.
    struct stat by_way, there;
    snprintf(wanted, sizeof wanted, "/proc/self/fd/%d/script", at);
    CHECK(stat(wanted, &by_way) == 0 && fstat(script, &there) == 0 && by_way.st_ino == there.st_ino && access(wanted, X_OK) == 0);
    int again = open(wanted, O_RDONLY);
    CHECK(again >= 0 && close(again) == 0);
    snprintf(wanted, sizeof wanted, "/proc/self/fd/%d/../edges.named/new", at);
    CHECK(mkdir(wanted, 0700) == 0 && fstatat(at, "new", &there, 0) == 0 && rmdir(wanted) == 0);
    snprintf(wanted, sizeof wanted, "/proc/self/fd/%d/x", script);
    FAILS(stat(wanted, &by_way), ENOTDIR);
    FAILS(execveat(999, "", (char *[]){"x", 0}, environ, AT_EMPTY_PATH), EBADF);
    // Nobody could open it.
    FAILS(execveat(closed, "script", (char *[]){"x", 0}, environ, 0), ENOENT);
    CHECK(fcntl(script, F_SETFD, FD_CLOEXEC) == 0);
    FAILS(execveat(script, "", (char *[]){"x", 0}, environ, AT_EMPTY_PATH), ENOENT);
    FAILS(open("edges.named", O_TMPFILE | O_CREAT | O_RDWR, 0600), EINVAL);
    CHECK(unlinkat(at, "script", 0) == 0 && rmdir("edges.named") == 0);
    close(at), close(closed), close(script);
}

int main(int count, char **arguments) {
    static const struct part parts[] = {{"memory", memory}, {"words", words}, {"signals", signals}, {"children", children}, {"limits", limits}, {"sockets", sockets}, {"programs", programs}, {"buffers", buffers}, {"mappings", mappings}, {"changes", changes}, {"segments", segments}, {"wakers", wakers}, {"senders", senders}, {"scripts", scripts}, {"makers", makers}, {"waiters", waiters}, {"stepping", stepping}, {"named", named}};
    if (count == 1 && !arguments[0][0]) return 33;
    if (count > 1 && !strcmp(arguments[1], "true")) return 0;
    if (count > 2 && !strcmp(arguments[1], "named")) return count == 3 || strcmp(arguments[2], arguments[3]) != 0;
    if (count > 1 && !strcmp(arguments[1], "sleeps")) return pause();
    if (count > 1 && !strcmp(arguments[1], "ignores")) {
        struct action kept;
        return syscall(SYS_rt_sigaction, SIGUSR1, 0, &kept, 8) || kept.handler != (void *)1 || kept.flags || kept.mask;
    }
    PLAY(parts, count, arguments);
    return 0;
}
