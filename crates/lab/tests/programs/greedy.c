// Takes as much of the kernel's own memory as it is given: of each kind until it is refused. Then it lets go, and all works again. When most
// of it is taken it asks for what needs much at once.

#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096 };

// Directories with long names.
static int names(void) {
    char name[300];
    int made = 0;
    mkdir("/tmp/greedy", 0700);
    if (chdir("/tmp/greedy")) return -1;
    for (; made < 10000000; made++) {
        snprintf(name, sizeof name, "%0200d", made);
        if (mkdir(name, 0700)) break;
    }
    int error = errno;
    for (int i = 0; i < made; i++) {
        snprintf(name, sizeof name, "%0200d", i);
        if (rmdir(name)) return -2;
    }
    return made < 1000 ? -3 : error;
}

// What is written and not read.
static int bytes(int family) {
    static char piece[65536];
    int ends[2], error = 0;
    for (int child = 0; child < 60 && !error; child++) {
        pid_t pid = fork();
        if (pid < 0) return errno;
        if (pid == 0) {
            signal(SIGPIPE, SIG_IGN);
            for (;;) {
                if (family ? socketpair(AF_UNIX, SOCK_STREAM, 0, ends) : pipe(ends)) _exit(errno == EMFILE ? 0 : errno);
                fcntl(ends[1], F_SETFL, O_NONBLOCK);
                if (write(ends[1], piece, sizeof piece) < 0) _exit(errno);
            }
        }
        int status;
        // It stays as it is until all have had their turn.
        waitpid(pid, &status, 0);
        error = WEXITSTATUS(status);
    }
    return error;
}

// Every other page has other rights.
static int areas(void) {
    for (int turn = 0; turn < 40; turn++) {
        long count = 60000;
        char *all = mmap(NULL, count * PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (all == MAP_FAILED) return errno;
        for (long i = 0; i < count; i += 2)
            if (mprotect(all + i * PAGE, PAGE, PROT_NONE)) return errno;
        pid_t pid = fork();
        if (pid < 0) return errno;
        if (pid > 0) {
            int status;
            waitpid(pid, &status, 0);
            return WEXITSTATUS(status);
        }
        munmap(all, count * PAGE / 2);
    }
    return 0;
}

// Processes of processes.
static int processes(void) {
    int count = 0;
    for (; count < 100000; count++) {
        pid_t pid = fork();
        if (pid == 0) {
            pause();
            _exit(0);
        }
        if (pid < 0) break;
    }
    int error = errno;
    signal(SIGTERM, SIG_IGN);
    kill(0, SIGKILL);
    return error;
}

// Fills a directory until it is refused, and is there then; says how many names.
static int fill(const char *path, int len) {
    char name[300];
    int made = 0;
    mkdir(path, 0700);
    if (chdir(path)) return 0;
    for (; made < 10000000; made++) {
        snprintf(name, sizeof name, "%0*d", len, made);
        if (mkdir(name, 0700)) break;
    }
    return made;
}

// Takes names away, but for each so many.
static void unfill(int made, int len, int but) {
    char name[300];
    for (int i = 0; i < made; i++) {
        snprintf(name, sizeof name, "%0*d", len, i);
        if (i % but) rmdir(name);
    }
}

// All names of a directory that has as many as can be.
static int lists(void) {
    mkdir("/tmp/lists", 0700);
    DIR *all = opendir("/tmp/lists");
    int made = fill("/tmp/lists", 200), seen = 0;
    while (readdir(all)) seen++;
    unfill(made, 200, 1 << 30);
    return made < 1000 || seen != made + 2 ? 98 : 0;
}

// Very many short words.
static int words(void) {
    static char *all[200001];
    for (int i = 0; i < 200000; i++) all[i] = "x";
    int made = fill("/tmp/words", 20);
    unfill(300, 20, 1 << 30);
    execve("/bin/cat", all, all);
    int error = errno;
    unfill(made, 20, 1 << 30);
    return error;
}

// Very many areas go at once.
static int goes(void) {
    long count = 60000;
    char *all = mmap(NULL, count * PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    for (long i = 0; i < count && !mprotect(all + i * PAGE, PAGE, PROT_NONE); i += 2) continue;
    int made = fill("/tmp/goes", 20), failed = madvise(all, count * PAGE, MADV_DONTNEED) || munmap(all, count * PAGE);
    unfill(made, 20, 1 << 30);
    return failed;
}

// Names that stay lie between all that is free, and pipes take what is whole.
static int pieces(void) {
    static char piece[65536];
    int self = open("/proc/self/exe", O_RDONLY), ends[2], made = fill("/tmp/pieces", 40), error;
    unfill(made, 40, 100);
    while (pipe(ends) == 0 && write(ends[1], piece, sizeof piece) == sizeof piece) continue;
    error = errno;
    if (read(self, piece, sizeof piece) <= 0) error = 97;
    if (chdir("/tmp/pieces") == 0) unfill(made + 1, 40, 1 << 30), rmdir("0000000000000000000000000000000000000000");
    for (int i = 100; i < made; i += 100) {
        char name[64];
        snprintf(name, sizeof name, "%040d", i);
        rmdir(name);
    }
    return error;
}

static void *sleeps(void *_) {
    for (;;) pause();
    return NULL;
}

// As many signals as can wait, for each thread.
static int signals(void) {
    sigset_t set;
    pthread_t thread;
    int threads = 0, sent = 0, made;
    sigfillset(&set);
    sigprocmask(SIG_BLOCK, &set, NULL);
    while (threads < 60 && pthread_create(&thread, NULL, sleeps, NULL) == 0) threads++;
    made = fill("/tmp/signals", 20);
    for (int tid = getpid(); tid < getpid() + threads; tid++)
        for (int i = 0; i < 2000 && syscall(SYS_tgkill, getpid(), tid, 40) == 0; i++) sent++;
    unfill(made, 20, 1 << 30);
    return threads < 10 || sent < 1000 ? 96 : 0;
}

// Sockets that lie in themselves, which nobody has any more.
static int circles(void) {
    static char bytes[4000];
    for (int i = 0; i < 3000; i++) {
        int pair[2];
        char control[CMSG_SPACE(sizeof(int))] = {0};
        struct iovec part = {bytes, sizeof bytes};
        struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
        if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair)) return errno;
        *CMSG_FIRSTHDR(&message) = (struct cmsghdr){CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS};
        memcpy(CMSG_DATA(CMSG_FIRSTHDR(&message)), &pair[1], sizeof(int));
        if (sendmsg(pair[0], &message, 0) != sizeof bytes) return errno;
        close(pair[0]);
        close(pair[1]);
    }
    return 0;
}

int main(void) {
    for (int turn = 0; turn < 2; turn++) {
        int got[5] = {0};
        for (int kind = 0; kind < 5; kind++) {
            pid_t pid = fork();
            if (pid == 0) {
                setpgid(0, 0);
                _exit(kind == 0 ? names() : kind == 1 ? bytes(0) : kind == 2 ? bytes(1) : kind == 3 ? areas() : processes());
            }
            int status;
            if (pid < 0 || waitpid(pid, &status, 0) < 0) return 1;
            got[kind] = WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
        }
        printf("names %d, pipes %d, sockets %d, areas %d, processes %d\n", got[0], got[1], got[2], got[3], got[4]);
        fflush(stdout);
    }
    const struct { const char *name; int (*run)(void); } all[] = {{"lists", lists}, {"words", words}, {"goes", goes}, {"pieces", pieces}, {"signals", signals}, {"circles", circles}};
    for (unsigned i = 0; i < sizeof all / sizeof *all; i++) {
        pid_t pid = fork();
        if (pid == 0) _exit(all[i].run());
        int status;
        if (pid < 0 || waitpid(pid, &status, 0) < 0) return 1;
        printf("%s %d%s", all[i].name, WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status), i == 5 ? "\n" : ", ");
        fflush(stdout);
    }
    return system("echo works | cat");
}
