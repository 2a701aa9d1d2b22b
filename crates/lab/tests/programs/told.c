// What programs are told: by signals, of what comes and what happens in directories; of memory that was used; of namespaces and keys. A line for
// each part with how many checks failed.
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "checks.h"
#include "until.h"

// Signals that came: how many, and the last.
static volatile int count;
static volatile struct {
    int signal, code, number;
    long band;
} last;

static void on(int signal, siginfo_t *info, void *unused) {
    (void)unused;
    count++;
    last.signal = signal;
    last.code = info->si_code;
    last.number = info->si_fd;
    last.band = info->si_band;
}

static int came(int signal, int code) {
    int found = count == 1 && last.signal == signal && last.code == code;
    if (!found) fprintf(stderr, "%d times, signal %d, code %d, band %lx\n", count, last.signal, last.code, last.band);
    count = 0;
    return found;
}

static void listen_to(int signal) {
    struct sigaction action = {.sa_sigaction = on, .sa_flags = SA_SIGINFO};
    CHECK(sigaction(signal, &action, 0) == 0);
    count = 0;
}

static void comes(void) {
    listen_to(SIGIO);
    listen_to(SIGRTMIN);
    listen_to(SIGURG);
    int ends[2];
    char byte;
    CHECK(pipe(ends) == 0 && fcntl(ends[0], F_SETFL, O_ASYNC) == 0 && fcntl(ends[0], F_GETFL) == O_ASYNC);
    // Nobody hears.
    CHECK(write(ends[1], "x", 1) == 1 && count == 0);
    CHECK(fcntl(ends[0], F_SETOWN, getpid()) == 0 && fcntl(ends[0], F_GETOWN) == getpid());
    CHECK(write(ends[1], "x", 1) == 1 && came(SIGIO, SI_KERNEL));
    CHECK(write(ends[1], "x", 1) == 1 && came(SIGIO, SI_KERNEL));
    CHECK(fcntl(ends[0], F_SETSIG, SIGRTMIN) == 0 && fcntl(ends[0], F_GETSIG) == SIGRTMIN);
    FAILS(fcntl(ends[0], F_SETSIG, 99), EINVAL);
    FAILS(fcntl(ends[0], F_SETOWN, 99999999), ESRCH);
    CHECK(write(ends[1], "x", 1) == 1 && came(SIGRTMIN, POLL_IN) && last.number == ends[0] && last.band == 0x41);
    CHECK(read(ends[0], &byte, 1) == 1 && count == 0);
    // From another process, while this one sleeps.
    pid_t self = getpid(), other = fork();
    if (other == 0) _exit(!UNTIL(state_of(self) == 'S') || write(ends[1], "y", 1) != 1);
    int status = -1;
    while (waitpid(other, &status, 0) == -1 && errno == EINTR) continue;
    CHECK(status == 0 && came(SIGRTMIN, POLL_IN));
    CHECK(close(ends[1]) == 0 && came(SIGRTMIN, POLL_IN));
    struct f_owner_ex who = {0}, own = {F_OWNER_TID, getpid()};
    CHECK(fcntl(ends[0], F_GETOWN_EX, &who) == 0 && who.type == F_OWNER_PID && who.pid == getpid());
    CHECK(fcntl(ends[0], F_SETOWN_EX, &own) == 0 && fcntl(ends[0], F_GETOWN_EX, &who) == 0 && who.type == F_OWNER_TID);
    CHECK(fcntl(ends[0], F_SETOWN, -getpgrp()) == 0 && fcntl(ends[0], F_GETOWN_EX, &who) == 0 && who.type == F_OWNER_PGRP && who.pid == getpgrp());
    close(ends[0]);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    int pid = getpid(), yes = 1;
    CHECK(ioctl(ends[0], SIOCSPGRP, &pid) == 0 && ioctl(ends[0], FIOASYNC, &yes) == 0 && fcntl(ends[0], F_GETOWN) == pid);
    CHECK(fcntl(ends[0], F_SETSIG, SIGRTMIN) == 0);
    CHECK(write(ends[1], "y", 1) == 1 && came(SIGRTMIN, POLL_IN));
    CHECK(read(ends[0], &byte, 1) == 1 && count == 0);
    CHECK(send(ends[1], "!", 1, MSG_OOB) == 1 && count > 0);
    count = 0;
    CHECK(fcntl(ends[0], F_SETFL, 0) == 0 && write(ends[1], "y", 1) == 1 && count == 0);
    CHECK(fcntl(ends[0], F_SETFL, O_ASYNC) == 0 && count == 0);
    CHECK(close(ends[1]) == 0 && came(SIGRTMIN, POLL_HUP) && last.band == 0x18);
    close(ends[0]);
    // Of a file nothing comes.
    int file = open("/proc/self/exe", O_RDONLY);
    CHECK(file >= 0 && (fcntl(file, F_GETFL) & O_ASYNC) == 0 && fcntl(file, F_SETFL, O_ASYNC) == 0 && (fcntl(file, F_GETFL) & O_ASYNC) == 0);
    FAILS(ioctl(file, FIOASYNC, &yes), ENOTTY);
    close(file);
    char place[] = "/tmp/told-XXXXXX";
    CHECK(mkdtemp(place) && chdir(place) == 0);
    int heard = inotify_init();
    CHECK(inotify_add_watch(heard, ".", IN_CREATE) > 0 && fcntl(heard, F_SETOWN, getpid()) == 0 && fcntl(heard, F_SETFL, O_ASYNC) == 0);
    CHECK(mkdir("a", 0700) == 0 && came(SIGIO, SI_KERNEL));
    CHECK(rmdir("a") == 0 && count == 0);
    close(heard);
    CHECK(rmdir(place) == 0 && chdir("/") == 0);
}

static void notes(void) {
    listen_to(SIGIO);
    listen_to(SIGRTMIN);
    char place[] = "/tmp/told-XXXXXX";
    CHECK(mkdtemp(place) && chdir(place) == 0);
    int directory = open(".", O_RDONLY);
    CHECK(fcntl(directory, F_NOTIFY, DN_CREATE) == 0);
    int file = open("a", O_RDWR | O_CREAT, 0600);
    CHECK(file >= 0 && came(SIGIO, SI_KERNEL));
    CHECK(mkdir("b", 0700) == 0 && count == 0);
    CHECK(fcntl(directory, F_SETSIG, SIGRTMIN) == 0 && fcntl(directory, F_NOTIFY, DN_MODIFY | DN_DELETE | DN_ATTRIB | DN_MULTISHOT) == 0);
    CHECK(write(file, "x", 1) == 1 && came(SIGRTMIN, POLL_MSG) && last.number == directory && last.band == 0x441);
    CHECK(fchmod(file, 0644) == 0 && came(SIGRTMIN, POLL_MSG));
    CHECK(rmdir("b") == 0 && came(SIGRTMIN, POLL_MSG));
    CHECK(fcntl(directory, F_NOTIFY, 0) == 0);
    CHECK(unlink("a") == 0 && count == 0);
    FAILS(fcntl(file, F_NOTIFY, DN_CREATE), ENOTDIR);
    CHECK(fcntl(directory, F_NOTIFY, DN_CREATE) == 0 && close(directory) == 0);
    int again = open("a", O_RDWR | O_CREAT, 0600);
    CHECK(again >= 0 && count == 0 && unlink("a") == 0 && rmdir(place) == 0 && chdir("/") == 0);
    close(again);
    close(file);
}

static long most(int whose, long *faults) {
    struct rusage used;
    CHECK(getrusage(whose, &used) == 0);
    if (faults) *faults = used.ru_minflt;
    return used.ru_maxrss;
}

static void used(void) {
    long before, after;
    CHECK(most(RUSAGE_SELF, &before) > 0);
    size_t bytes = 24 << 20;
    char *area = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(area != MAP_FAILED && madvise(area, bytes, MADV_NOHUGEPAGE) == 0);
    memset(area, 1, bytes);
    CHECK(munmap(area, bytes) == 0);
    long peak = most(RUSAGE_SELF, &after);
    CHECK(peak >= 24 << 10 && peak < 60 << 10 && after - before >= 6144);
    long held = 0, there = 0;
    char line[256];
    FILE *file = fopen("/proc/self/status", "r");
    while (file && fgets(line, sizeof line, file)) {
        sscanf(line, "VmHWM: %ld", &held);
        sscanf(line, "VmRSS: %ld", &there);
    }
    if (file) fclose(file);
    CHECK(held >= 24 << 10 && there < held - (20 << 10));
    pid_t child = fork();
    if (child == 0) {
        char *more = mmap(0, 2 * bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        memset(more, 1, 2 * bytes);
        _exit(0);
    }
    struct rusage of;
    int status;
    CHECK(wait4(child, &status, 0, &of) == child && of.ru_maxrss >= 48 << 10 && of.ru_maxrss < 90 << 10);
    CHECK(most(RUSAGE_CHILDREN, 0) >= of.ru_maxrss);
}

static void spaces(void) {
    const char *names[] = {"cgroup", "ipc", "mnt", "net", "pid", "time", "user", "uts"};
    for (unsigned i = 0; i < sizeof names / sizeof *names; i++) {
        char path[64], own[64] = {0}, other[64] = {0}, kind[64];
        sprintf(path, "/proc/self/ns/%s", names[i]);
        CHECK(readlink(path, own, sizeof own - 1) > 0);
        sprintf(path, "/proc/%d/task/%d/ns/%s", getpid(), getpid(), names[i]);
        CHECK(readlink(path, other, sizeof other - 1) > 0 && !strcmp(own, other));
        sprintf(kind, "%s:[40265", names[i]);
        CHECK(!strncmp(own, kind, strlen(kind)));
    }
    struct stat about;
    CHECK(lstat("/proc/self/exe", &about) == 0 && about.st_size == 0 && about.st_nlink == 1);
}

static long key(long what, long a, long b, long c, long d) { return syscall(SYS_keyctl, what, a, b, c, d); }

static void keys(void) {
    long ring = key(1, 0, 0, 0, 0);
    CHECK(ring > 0 && key(0, -3, 0, 0, 0) == ring);
    long first = syscall(SYS_add_key, "user", "told", "secret", 6, -3);
    CHECK(first > 0 && key(10, -3, (long)"user", (long)"told", 0) == first);
    char bytes[100] = {0};
    CHECK(key(11, first, (long)bytes, sizeof bytes, 0) == 6 && !memcmp(bytes, "secret", 6));
    CHECK(key(2, first, (long)"other", 5, 0) == 0 && key(11, first, (long)bytes, sizeof bytes, 0) == 5 && !memcmp(bytes, "other", 5));
    CHECK(key(6, first, (long)bytes, sizeof bytes, 0) > 0 && !strncmp(bytes, "user;0;0;", 9) && strstr(bytes, ";told"));
    FAILS(key(10, -3, (long)"user", (long)"nobody's", 0), ENOKEY);
    FAILS(syscall(SYS_add_key, "nothing", "told", "x", 1, -3), ENODEV);
    CHECK(key(9, first, ring, 0, 0) == 0);
    FAILS(key(10, -3, (long)"user", (long)"told", 0), ENOKEY);
}

int main(int count, char **arguments) {
    CHECK(setpgid(0, 0) == 0 || getpgrp() == getpid());
    const struct part parts[] = {{"comes", comes}, {"notes", notes}, {"used", used}, {"spaces", spaces}, {"keys", keys}};
    PLAY(parts, count, arguments);
    return 0;
}
