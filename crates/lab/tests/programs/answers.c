// What programs ask of the system, and what it answers: files' owners, times and attributes, memory that stays or moves, CPUs, priorities, what
// is used, and what `/proc` shows. Each in a process of its own: how it ends. The same on any Linux; some of it only where this program may do
// everything, or where files can have attributes: there it is not asked unless a word says so, as it does on the machine that boots.

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "until.h"

// The first check that fails ends the process with its line.
#define CHECK(holds) do { if (!(holds)) { printf("line %d: %s (%d)\n", __LINE__, #holds, errno); fflush(stdout); _exit(99); } } while (0)

static int strict;
static char place[64];

static const char *in(const char *name) {
    static char paths[4][128];
    static int next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", place, name);
    return path;
}

static int make(const char *name) {
    int file = open(in(name), O_CREAT | O_RDWR | O_TRUNC, 0644);
    CHECK(file >= 0);
    return file;
}

static struct stat of(const char *name) {
    struct stat found;
    CHECK(lstat(in(name), &found) == 0);
    return found;
}

// The number behind a name in a file of `/proc`.
static long told(const char *path, const char *name) {
    static char text[65536];
    int file = open(path, O_RDONLY), len = 0, got;
    CHECK(file >= 0);
    while ((got = read(file, text + len, sizeof text - 1 - len)) > 0) len += got;
    text[len] = 0;
    close(file);
    char *at = strstr(text, name);
    CHECK(at != NULL);
    return strtol(at + strlen(name), NULL, 0);
}

// Whoever opens one end of a pipe with a name meets whoever waits at the other, though that one goes at once.
static int meets(void) {
    alarm(HANGS);
    for (int i = 0; i < 150; i++) {
        CHECK(mkfifo(in("fifo"), 0600) == 0);
        pid_t child = fork();
        if (child == 0) {
            char bytes[8];
            int reader = open(in("fifo"), O_RDONLY);
            _exit(reader < 0 || read(reader, bytes, 8) != 2 || read(reader, bytes, 8) != 0);
        }
        int writer = open(in("fifo"), O_WRONLY), status = 0;
        CHECK(writer >= 0 && write(writer, "ab", 2) == 2 && close(writer) == 0);
        CHECK(waitpid(child, &status, 0) == child && status == 0 && unlink(in("fifo")) == 0);
    }
    return 0;
}

static int owners(void) {
    if (geteuid() != 0 && !strict) return 0;
    close(make("mine"));
    CHECK(chown(in("mine"), 3, 5) == 0 && of("mine").st_uid == 3 && of("mine").st_gid == 5);
    CHECK(chown(in("mine"), -1, 6) == 0 && of("mine").st_uid == 3 && of("mine").st_gid == 6);
    // Who has it run as its owner does not give that away with it.
    CHECK(chmod(in("mine"), 06755) == 0 && chown(in("mine"), 7, -1) == 0 && (of("mine").st_mode & 07777) == 0755);
    CHECK(symlink("mine", in("link")) == 0 && lchown(in("link"), 8, 9) == 0 && of("link").st_uid == 8 && of("mine").st_uid == 7);
    // What is made in a directory that gives its group has it, and gives it on.
    CHECK(mkdir(in("d"), 0755) == 0 && chown(in("d"), 0, 12) == 0 && chmod(in("d"), 02755) == 0);
    close(make("d/x"));
    CHECK(mkdir(in("d/e"), 0755) == 0 && of("d/x").st_gid == 12 && of("d/e").st_gid == 12 && (of("d/e").st_mode & 02000));
    CHECK(chmod(place, 0777) == 0);
    if (fork() == 0) {
        uid_t ids[3];
        gid_t groups[2] = {20, 21};
        CHECK(setgroups(2, groups) == 0 && getgroups(0, NULL) == 2 && getgroups(1, groups) == -1 && errno == EINVAL);
        CHECK(setresgid(11, 12, 13) == 0 && getgid() == 11 && getegid() == 12 && setresuid(30, 31, 32) == 0 && getuid() == 30 && geteuid() == 31);
        CHECK(getresuid(&ids[0], &ids[1], &ids[2]) == 0 && ids[0] == 30 && ids[1] == 31 && ids[2] == 32);
        CHECK(setuid(0) == -1 && errno == EPERM && setreuid(-1, 33) == -1 && errno == EPERM && seteuid(32) == 0 && geteuid() == 32 && seteuid(30) == 0);
        CHECK(chown(in("mine"), 30, -1) == -1 && errno == EPERM && chmod(in("mine"), 0) == -1 && errno == EPERM);
        close(make("theirs"));
        CHECK(of("theirs").st_uid == 30 && of("theirs").st_gid == 12 && chown(in("theirs"), 0, -1) == -1 && chown(in("theirs"), -1, 21) == 0);
        CHECK(of("theirs").st_gid == 21 && chown(in("theirs"), -1, 99) == -1 && errno == EPERM && setpriority(PRIO_PROCESS, 0, -1) == -1);
        CHECK(told("/proc/self/status", "Uid:") == 30 && told("/proc/self/status", "Gid:") == 11);
        _exit(0);
    }
    int status = 0;
    wait(&status);
    return WEXITSTATUS(status);
}

static int times_of(void) {
    int file = make("timed");
    struct timespec both[2] = {{5, 6}, {7, 8}}, one[2] = {{0, UTIME_OMIT}, {9, 10}};
    CHECK(futimens(file, both) == 0 && of("timed").st_atim.tv_sec == 5 && of("timed").st_atim.tv_nsec == 6 && of("timed").st_mtim.tv_nsec == 8);
    CHECK(of("timed").st_ctim.tv_sec > 1000000);
    CHECK(utimensat(AT_FDCWD, in("timed"), one, 0) == 0 && of("timed").st_atim.tv_sec == 5 && of("timed").st_mtim.tv_sec == 9);
    struct timeval old[2] = {{11, 12}, {13, 14}};
    CHECK(syscall(SYS_utimes, in("timed"), old) == 0 && of("timed").st_atim.tv_nsec == 12000 && of("timed").st_mtim.tv_sec == 13);
    CHECK(symlink("timed", in("tl")) == 0 && utimensat(AT_FDCWD, in("tl"), both, AT_SYMLINK_NOFOLLOW) == 0);
    CHECK(of("tl").st_mtim.tv_sec == 7 && of("timed").st_mtim.tv_sec == 13);
    both[0].tv_nsec = 1000000000;
    CHECK(futimens(file, both) == -1 && errno == EINVAL);
    // A file takes whole pages.
    CHECK(write(file, "x", 1) == 1 && fsync(file) == 0 && of("timed").st_blocks == 8 && of("timed").st_mtim.tv_sec > 1000000);
    // A directory changes with what is named in it, and counts those in it.
    CHECK(mkdir(in("td"), 0755) == 0);
    struct timespec then[2] = {{100, 0}, {100, 0}};
    nlink_t links = of("td").st_nlink;
    CHECK(links == 1 || links == 2);
    CHECK(utimensat(AT_FDCWD, in("td"), then, 0) == 0 && mkdir(in("td/a"), 0755) == 0 && of("td").st_mtim.tv_sec > 1000000);
    CHECK(links == 1 || of("td").st_nlink == 3);
    CHECK(utimensat(AT_FDCWD, in("td"), then, 0) == 0 && rmdir(in("td/a")) == 0 && of("td").st_mtim.tv_sec > 1000000 && of("td").st_nlink == links);
    // Two names change places.
    CHECK(mkdir(in("td/b"), 0755) == 0);
    close(make("td/b/c"));
    CHECK(syscall(SYS_renameat2, AT_FDCWD, in("timed"), AT_FDCWD, in("td/b"), RENAME_EXCHANGE) == 0);
    CHECK(S_ISREG(of("td/b").st_mode) && S_ISREG(of("timed/c").st_mode) && (links == 1 || of("td").st_nlink == 2));
    CHECK(syscall(SYS_renameat2, AT_FDCWD, in("td"), AT_FDCWD, in("td/b"), RENAME_EXCHANGE) == -1 && errno == EINVAL);
    return 0;
}

static int attributes(void) {
    char value[16], names[64];
    int file = make("noted");
    if (setxattr(in("noted"), "user.a", "one", 3, 0) == -1 && !strict) return 0;
    CHECK(getxattr(in("noted"), "user.a", NULL, 0) == 3 && getxattr(in("noted"), "user.a", value, 2) == -1 && errno == ERANGE);
    CHECK(fgetxattr(file, "user.a", value, 16) == 3 && memcmp(value, "one", 3) == 0);
    CHECK(fsetxattr(file, "user.a", "x", 1, XATTR_CREATE) == -1 && errno == EEXIST && fsetxattr(file, "user.b", "x", 1, XATTR_REPLACE) == -1 && errno == ENODATA);
    CHECK(fsetxattr(file, "user.b", "", 0, 0) == 0 && listxattr(in("noted"), names, 64) == 14 && memcmp(names, "user.a\0user.b", 14) == 0);
    CHECK(removexattr(in("noted"), "user.a") == 0 && getxattr(in("noted"), "user.a", value, 16) == -1 && errno == ENODATA);
    CHECK(setxattr(in("noted"), "wrong", "x", 1, 0) == -1 && errno == EOPNOTSUPP && setxattr("/dev/null", "user.a", "x", 1, 0) == -1 && errno == EPERM);
    return 0;
}

#define PAGE 4096

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

// Large pages of small ones, where they can be.
static int collapses(void) {
    const unsigned long large = 2 << 20;
    char *all = mmap(NULL, 5 * large, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), *small = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *p = (char *)(((unsigned long)all + large - 1) & ~(large - 1));
    FILE *known = fopen("/sys/kernel/mm/transparent_hugepage/enabled", "r");
    int has = strict || known;
    if (known) fclose(known);
    if (!has) return 0;
    for (unsigned long at = 0; at < 2 * large; at += PAGE) p[at] = (char)(at / PAGE);
    // The host may have no large page to spare, or be too old.
    int done = madvise(p, 2 * large, MADV_COLLAPSE);
    if (done != 0 && !strict) return 0;
    CHECK(done == 0);
    int kept = 1;
    for (unsigned long at = 0; at < 2 * large; at += PAGE) kept &= p[at] == (char)(at / PAGE) && p[at + 1] == 0;
    CHECK(kept && madvise(p, 2 * large, MADV_COLLAPSE) == 0);
    // Not aligned: what lies in it, and if that is nothing.
    CHECK(madvise(p + PAGE, large, MADV_COLLAPSE) == 0 && madvise(p, PAGE, MADV_COLLAPSE) == 0 && madvise(p, 0, MADV_COLLAPSE) == 0);
    CHECK(madvise(p + PAGE, PAGE, MADV_COLLAPSE) == -1 && errno == EINVAL && madvise(p + 1, large, MADV_COLLAPSE) == -1 && errno == EINVAL);
    CHECK(madvise(small, PAGE, MADV_COLLAPSE) == -1 && errno == EINVAL);
    CHECK(munmap(p + 3 * large, large) == 0 && madvise(p, 4 * large, MADV_COLLAPSE) == -1);
    return 0;
}

static int stays(void) {
    char *pages = mmap(NULL, 64 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    long before = told("/proc/self/status", "VmLck:");
    unsigned char there[4];
    // What a program needs no more may be there still until it is written. A file's is not its own.
    char *own = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), *shown = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    own[0] = 1, own[PAGE] = 2;
    CHECK(madvise(own, PAGE, MADV_FREE) == 0 && (own[0] == 1 || own[0] == 0) && own[PAGE] == 2);
    own[0] = 3;
    CHECK(own[0] == 3 && madvise(shown, PAGE, MADV_FREE) == -1 && errno == EINVAL && mlock(own, PAGE) == 0);
    CHECK(madvise(own, PAGE, MADV_FREE) == -1 && errno == EINVAL && own[0] == 3 && munmap(own, 2 * PAGE) == 0 && munmap(shown, PAGE) == 0);
    CHECK(mlock(pages + 1, 3 * PAGE) == 0 && told("/proc/self/status", "VmLck:") - before == 16 && mincore(pages, 4 * PAGE, there) == 0 && there[0] & there[3] & 1);
    CHECK(madvise(pages, PAGE, MADV_DONTNEED) == -1 && errno == EINVAL && mprotect(pages, PAGE, PROT_READ) == 0);
    CHECK(madvise(pages, PAGE, MADV_DONTNEED) == -1 && errno == EINVAL && munlock(pages, PAGE) == 0 && madvise(pages, PAGE, MADV_DONTNEED) == 0);
    CHECK(told("/proc/self/status", "VmLck:") - before == 12 && munmap(pages + PAGE, PAGE) == 0 && told("/proc/self/status", "VmLck:") - before == 8);
    CHECK(mlock(pages, 3 * PAGE) == -1 && errno == ENOMEM && munlock(pages, 3 * PAGE) == -1 && errno == ENOMEM);
    // What is to stay from when it is used on counts at once, and comes when it is used.
    char *used = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(mlock2(used, 4 * PAGE, MLOCK_ONFAULT) == 0 && told("/proc/self/status", "VmLck:") - before == 24 && mincore(used, 4 * PAGE, there) == 0 && !(there[0] & 1));
    used[PAGE] = 1;
    CHECK(mincore(used, 4 * PAGE, there) == 0 && there[1] & 1 && !(there[2] & 1) && madvise(used, PAGE, MADV_DONTNEED) == -1 && munmap(used, 4 * PAGE) == 0);
    CHECK(mlock2(used, 4 * PAGE, MLOCK_ONFAULT) == -1 && errno == ENOMEM && mlockall(MCL_FUTURE | MCL_ONFAULT) == 0);
    used = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(told("/proc/self/status", "VmLck:") - before == 24 && mincore(used, 4 * PAGE, there) == 0 && !(there[0] & 1) && munmap(used, 4 * PAGE) == 0);
    CHECK(mlock2(pages + 8 * PAGE, PAGE, 2) == -1 && errno == EINVAL && mlockall(MCL_ONFAULT) == -1 && errno == EINVAL);
    if (fork() == 0) {
        CHECK(told("/proc/self/status", "VmLck:") == 0);
        _exit(madvise(pages + 3 * PAGE, PAGE, MADV_DONTNEED) != 0);
    }
    int status = 0;
    wait(&status);
    CHECK(status == 0 && munlockall() == 0 && told("/proc/self/status", "VmLck:") == 0);
    if (strict) {
        // Of who may lock all, limits say nothing: there, perhaps.
        struct rlimit limit = {8 * PAGE, 8 * PAGE};
        CHECK(setrlimit(RLIMIT_MEMLOCK, &limit) == 0 && mlock(pages + 8 * PAGE, 8 * PAGE) == 0 && mlock(pages + 16 * PAGE, 1) == -1 && errno == ENOMEM);
        CHECK(mlock(pages + 8 * PAGE, PAGE) == 0 && mlockall(MCL_CURRENT) == -1 && errno == ENOMEM && mlockall(MCL_FUTURE) == 0);
        CHECK(mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED && errno == EAGAIN && munlockall() == 0);
        CHECK(mlockall(MCL_FUTURE) == 0 && mmap(NULL, 2 * PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED);
        CHECK(told("/proc/self/status", "VmLck:") == 8 && munlockall() == 0 && setrlimit(RLIMIT_MEMLOCK, &(struct rlimit){0, 0}) == 0);
        CHECK(mlock(pages, PAGE) == -1 && errno == EPERM && mlockall(MCL_CURRENT) == -1 && errno == EPERM);
    }
    return 0;
}

static int moves(void) {
    char *from = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), *to;
    strcpy(from + PAGE, "moved");
    to = mremap(from, 4 * PAGE, 4 * PAGE, MREMAP_MAYMOVE | MREMAP_DONTUNMAP);
    if (to == MAP_FAILED && errno == EINVAL && !strict) return 0;
    CHECK(to != MAP_FAILED && to != from && strcmp(to + PAGE, "moved") == 0 && from[PAGE] == 0);
    from[PAGE] = 1;
    CHECK(to[PAGE] == 'm' && mremap(from, PAGE, 2 * PAGE, MREMAP_MAYMOVE | MREMAP_DONTUNMAP) == MAP_FAILED && errno == EINVAL);
    CHECK(mremap(from, 0, PAGE, MREMAP_MAYMOVE) == MAP_FAILED && errno == EINVAL);
    char *shared = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0), *twice;
    twice = mremap(shared + PAGE, 0, PAGE, MREMAP_MAYMOVE);
    CHECK(twice != MAP_FAILED && twice != shared + PAGE);
    shared[PAGE] = 7;
    CHECK(*twice == 7 && munmap(shared, 2 * PAGE) == 0 && *twice == 7);
    return 0;
}

static void *naps(void *tid) {
    *(volatile pid_t *)tid = gettid();
    while (*(volatile pid_t *)tid) usleep(1000);
    return NULL;
}

static int places(void) {
    cpu_set_t all, one, now;
    CHECK(sched_getaffinity(0, sizeof all, &all) == 0 && CPU_COUNT(&all) >= 1);
    int first = 0, last = 0;
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) if (CPU_ISSET(cpu, &all)) last = cpu;
    while (!CPU_ISSET(first, &all)) first++;
    CPU_ZERO(&one);
    CHECK(sched_setaffinity(0, sizeof one, &one) == -1 && errno == EINVAL);
    // All but the first, if there is another; then one alone, and the last: it is there, and a child too.
    cpu_set_t rest = all;
    if (first != last) CPU_CLR(first, &rest);
    for (int round = 0; round < 20; round++) {
        CHECK(sched_setaffinity(0, sizeof rest, &rest) == 0 && CPU_ISSET(sched_getcpu(), &rest));
        CPU_ZERO(&one);
        CPU_SET(round % 2 ? first : last, &one);
        CHECK(sched_setaffinity(0, sizeof one, &one) == 0 && sched_getcpu() == (round % 2 ? first : last));
        CHECK(sched_getaffinity(0, sizeof now, &now) == 0 && CPU_EQUAL(&now, &one));
    }
    if (fork() == 0) _exit(sched_getcpu() != first || sched_getaffinity(0, sizeof now, &now) != 0 || !CPU_EQUAL(&now, &one));
    int status = 0;
    wait(&status);
    volatile pid_t tid = 0;
    pthread_t thread;
    CHECK(status == 0 && sched_setaffinity(0, sizeof all, &all) == 0 && pthread_create(&thread, NULL, naps, (void *)&tid) == 0);
    while (!tid) usleep(100);
    CHECK(sched_setaffinity(tid, sizeof rest, &rest) == 0 && sched_getaffinity(tid, sizeof now, &now) == 0 && CPU_EQUAL(&now, &rest));
    CHECK(sched_getaffinity(0, sizeof now, &now) == 0 && CPU_EQUAL(&now, &all) && sched_getaffinity(1 << 28, sizeof now, &now) == -1 && errno == ESRCH);
    // What it is called is shown, and can be changed, by others too.
    char path[64], name[32] = "", link[64] = "";
    CHECK(pthread_setname_np(thread, "napper") == 0 && pthread_getname_np(thread, name, 32) == 0 && strcmp(name, "napper") == 0);
    sprintf(path, "/proc/self/task/%d/comm", tid);
    int file = open(path, O_RDONLY);
    CHECK(file >= 0 && read(file, name, 32) == 7 && memcmp(name, "napper\n", 7) == 0 && told("/proc/self/status", "Threads:") == 2);
    sprintf(path, "%d", getpid());
    CHECK(readlink("/proc/self", link, 64) == (int)strlen(path) && strncmp(link, path, strlen(path)) == 0);
    tid = 0;
    pthread_join(thread, NULL);
    // Who is willing that others run first hands that on, and takes it back only if it may.
    CHECK(getpriority(PRIO_PROCESS, 0) >= -20 && setpriority(PRIO_PROCESS, 0, 15) == 0 && getpriority(PRIO_PROCESS, 0) == 15 && nice(2) == 17);
    if (fork() == 0) _exit(getpriority(PRIO_PROCESS, 0));
    wait(&status);
    CHECK(prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0) == 0 && prctl(PR_CAPBSET_READ, 1000, 0, 0, 0) == -1 && errno == EINVAL);
    CHECK(WEXITSTATUS(status) == 17 && setpriority(PRIO_PROCESS, 1 << 28, 0) == -1 && errno == ESRCH);
    return 0;
}

static int shown(void) {
    char path[64], link[128] = "", bytes[8];
    int ends[2], hold[2];
    CHECK(pipe(ends) == 0 && pipe(hold) == 0);
    pid_t child = fork();
    if (child == 0) {
        int file = open(in("shown"), O_CREAT | O_RDWR, 0600);
        CHECK(dup2(file, 77) == 77 && write(77, "theirs", 6) == 6 && write(ends[1], "x", 1) == 1);
        close(hold[1]);
        _exit(read(hold[0], bytes, 1) != 0);
    }
    CHECK(read(ends[0], bytes, 1) == 1);
    sprintf(path, "/proc/%d/fd/77", child);
    int len = readlink(path, link, 127), file = open(path, O_RDONLY);
    CHECK(len > 6 && strcmp(link + len - 6, "/shown") == 0 && file >= 0 && read(file, bytes, 8) == 6 && memcmp(bytes, "theirs", 6) == 0);
    sprintf(path, "/proc/%d/environ", child);
    file = open(path, O_RDONLY);
    CHECK(file >= 0 && read(file, bytes, 8) > 0);
    long faults = told("/proc/vmstat", "\npgfault ");
    char *fresh = mmap(NULL, 64 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < 64; i++) fresh[i * PAGE] = 1;
    // Counted by CPUs for themselves, and added up now and then: on the host.
    CHECK(told("/proc/vmstat", "nr_free_pages ") > 0 && (!strict || told("/proc/vmstat", "\npgfault ") - faults >= 64));
    CHECK(told("/proc/self/limits", "Max open files") > 0);
    close(hold[1]);
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    // A pipe opened once more as a directory is none; what is in it can be had twice.
    sprintf(path, "/proc/self/fd/%d", ends[0]);
    CHECK(open(path, O_PATH | O_DIRECTORY) == -1 && errno == ENOTDIR);
    int other[2];
    CHECK(pipe(other) == 0 && write(ends[1], "copied", 6) == 6 && tee(ends[0], other[1], 100, 0) == 6 && tee(ends[0], ends[1], 1, 0) == -1 && errno == EINVAL);
    CHECK(read(ends[0], bytes, 8) == 6 && read(other[0], bytes, 8) == 6 && memcmp(bytes, "copied", 6) == 0 && tee(ends[0], other[1], 1, SPLICE_F_NONBLOCK) == -1 && errno == EAGAIN);
    int on = 1;
    CHECK(ioctl(ends[0], FIOASYNC, &on) == 0 && fcntl(ends[0], F_GETFL) & O_ASYNC && fcntl(ends[0], F_SETOWN, getpid()) == 0 && fcntl(ends[0], F_GETOWN) == getpid());
    // As many files as the limit says, and a number far away.
    struct rlimit limit;
    CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    limit.rlim_cur = limit.rlim_max;
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0 && (limit.rlim_max < 4096 || (dup2(ends[0], 4095) == 4095 && fcntl(4095, F_GETFD) == 0)));
    return 0;
}

// Whoever watches files hears what happens to them, in order.
static int watched(void) {
    char events[4096], said[1024] = "";
    int set = inotify_init1(IN_NONBLOCK | IN_CLOEXEC), file = make("first");
    CHECK(set >= 0 && inotify_add_watch(set, place, IN_CREATE | IN_DELETE | IN_MOVE | IN_CLOSE_WRITE) == 1 && inotify_add_watch(set, in("first"), IN_MODIFY | IN_DELETE_SELF | IN_OPEN) == 2);
    CHECK(inotify_add_watch(set, in("nowhere"), IN_OPEN) == -1 && errno == ENOENT && inotify_rm_watch(set, 9) == -1 && errno == EINVAL);
    CHECK(read(set, events, sizeof events) == -1 && errno == EAGAIN && write(file, "abc", 3) == 3);
    close(make("second"));
    CHECK(rename(in("second"), in("third")) == 0 && mkdir(in("fourth"), 0700) == 0 && close(file) == 0 && unlink(in("first")) == 0 && inotify_rm_watch(set, 1) == 0);
    unsigned ready = 0, cookie = 0;
    CHECK(ioctl(set, FIONREAD, &ready) == 0 && ready > 100);
    int len = read(set, events, sizeof events);
    CHECK(len == (int)ready);
    for (char *at = events; at < events + len;) {
        struct inotify_event *event = (void *)at;
        sprintf(said + strlen(said), "%d:%x:%s ", event->wd, event->mask, event->len ? event->name : "");
        if (event->cookie) {
            CHECK(!cookie || cookie == event->cookie);
            cookie = event->cookie;
        }
        at += sizeof *event + event->len;
    }
    const char *expected = "2:2: 1:100:second 1:8:second 1:40:second 1:80:third 1:40000100:fourth 1:8:first 2:400: 2:8000: 1:200:first 1:8000: ";
    if (strcmp(said, expected)) printf("%s\n", said);
    CHECK(strcmp(said, expected) == 0 && cookie && rmdir(in("fourth")) == 0 && read(set, events, sizeof events) == -1 && errno == EAGAIN);
    return 0;
}

static volatile sig_atomic_t heard;
static void hear(int signal) { heard = signal; }

static int spent(void) {
    struct rusage before, after;
    struct itimerval time = {{0, 0}, {0, 30000}};
    signal(SIGPROF, hear);
    signal(SIGXFSZ, hear);
    CHECK(getrusage(RUSAGE_SELF, &before) == 0 && setitimer(ITIMER_PROF, &time, NULL) == 0);
    while (heard != SIGPROF) ;
    CHECK(getrusage(RUSAGE_SELF, &after) == 0 && getrusage(7, &after) == -1 && errno == EINVAL);
    long used = (after.ru_utime.tv_sec - before.ru_utime.tv_sec + after.ru_stime.tv_sec - before.ru_stime.tv_sec) * 1000000
        + after.ru_utime.tv_usec - before.ru_utime.tv_usec + after.ru_stime.tv_usec - before.ru_stime.tv_usec;
    CHECK(used >= 20000);
    if (fork() == 0) {
        do CHECK(getrusage(RUSAGE_SELF, &after) == 0); while (after.ru_utime.tv_sec * 1000000 + after.ru_utime.tv_usec + after.ru_stime.tv_usec < 20000);
        _exit(0);
    }
    int status = 0;
    CHECK(wait4(-1, &status, 0, &after) > 0 && status == 0 && after.ru_utime.tv_usec + after.ru_stime.tv_usec > 0);
    // A file becomes no longer than it may.
    struct rlimit limit = {1000, RLIM_INFINITY};
    int file = make("long");
    char bytes[1500] = {0};
    CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0 && write(file, bytes, 1500) == 1000 && heard == SIGPROF);
    CHECK(write(file, bytes, 1) == -1 && errno == EFBIG && heard == SIGXFSZ && ftruncate(file, 2000) == -1 && errno == EFBIG && pwrite(file, bytes, 1500, 0) == 1000);
    return 0;
}

static int both_kinds(void) {
    struct sockaddr_in short_one = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct sockaddr_in6 long_one = {.sin6_family = AF_INET6}, mapped = {.sin6_family = AF_INET6}, got;
    socklen_t len = sizeof short_one;
    // One port in both kinds of addresses, if the longer ones are to be alone.
    int first = socket(AF_INET, SOCK_STREAM, 0), second = socket(AF_INET6, SOCK_STREAM, 0), on = 1, value = 0;
    if (second < 0 && !strict) return 0;
    CHECK(bind(first, (void *)&short_one, len) == 0 && getsockname(first, (void *)&short_one, &len) == 0 && listen(first, 5) == 0);
    long_one.sin6_port = short_one.sin_port;
    CHECK(bind(second, (void *)&long_one, sizeof long_one) == -1 && (errno == EADDRINUSE || !strict));
    if (errno != EADDRINUSE) return 0;
    CHECK(setsockopt(second, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on) == 0 && bind(second, (void *)&long_one, sizeof long_one) == 0);
    len = sizeof value;
    CHECK(getsockopt(second, IPPROTO_IPV6, IPV6_V6ONLY, &value, &len) == 0 && value == 1);
    // Who goes to a short address by a long socket is there by such an address too, and is seen by the short one.
    mapped.sin6_port = short_one.sin_port;
    memcpy(&mapped.sin6_addr, "\0\0\0\0\0\0\0\0\0\0\xff\xff\x7f\0\0\1", 16);
    for (int kind = 0; kind < 2; kind++) {
        int guest = socket(AF_INET6, kind ? SOCK_DGRAM : SOCK_STREAM, 0);
        CHECK(connect(guest, (void *)&mapped, sizeof mapped) == 0);
        len = sizeof got;
        CHECK(getsockname(guest, (void *)&got, &len) == 0 && len == sizeof got && memcmp(&got.sin6_addr, &mapped.sin6_addr, 16) == 0 && got.sin6_port);
        // Nobody is there: the next send says so.
        struct pollfd told = {guest, 0, 0};
        if (kind) CHECK(send(guest, "x", 1, 0) == 1 && poll(&told, 1, LONG) == 1 && send(guest, "x", 1, 0) == -1 && errno == ECONNREFUSED && send(guest, "x", 1, 0) == 1);
        if (kind) continue;
        len = sizeof short_one;
        CHECK(accept(first, (void *)&short_one, &len) >= 0 && len == sizeof short_one && short_one.sin_family == AF_INET && short_one.sin_port == got.sin6_port);
    }
    return 0;
}

int main(int argc, char **argv) {
    (void)argv;
    strict = argc > 1;
    strcpy(place, "/tmp/answers-XXXXXX");
    CHECK(mkdtemp(place) != NULL);
    const struct { const char *name; int (*run)(void); } all[] = {{"meets", meets}, {"owners", owners}, {"times", times_of}, {"attributes", attributes}, {"stays", stays}, {"collapses", collapses}, {"moves", moves}, {"places", places}, {"shown", shown}, {"watched", watched}, {"spent", spent}, {"both kinds", both_kinds}};
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
    char command[96];
    snprintf(command, sizeof command, "rm -rf %s", place);
    return strict ? 0 : system(command);
}
