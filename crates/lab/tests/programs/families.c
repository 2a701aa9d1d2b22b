// What processes do at once to each other, and their threads to them: how they end, whom a signal reaches, who begins a session, who looks into whom, who
// adopts whom. A line for each part with how many checks failed.
//
//     families [NAME [ROUNDS]]
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "checks.h"
#include "until.h"

static int rounds = 100;

// Threads that go one by one, or at once: their process ends as the last one has.
static atomic_int ready, go;
static int first, waits;
static void *goes(void *unused) {
    ready = 1;
    while (!go) {}
    if (waits) CHECK(UNTIL(*(volatile int *)&first == 0));
    syscall(SYS_exit, 5);
    return unused;
}
static void exits(void) {
    for (int round = 0; round < rounds; round++) {
        pid_t pid = fork();
        if (!pid) {
            pthread_t thread;
            first = 1, waits = round & 1;
            syscall(SYS_set_tid_address, &first);
            pthread_create(&thread, 0, goes, 0);
            while (!ready) {}
            go = 1;
            syscall(SYS_exit, 3);
        }
        int status;
        CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status));
        CHECK(WEXITSTATUS(status) == 5 || (!(round & 1) && WEXITSTATUS(status) == 3));
    }
}

// A signal for a group reaches all of it, also who is made at that moment: the last of them closes the pipe.
static void groups(void) {
    atomic_int *made = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    // What there is to copy makes a fork longer.
    char *much = mmap(0, 2 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(much, 1, 2 << 20);
    for (int round = 0; round < rounds / 2; round++) {
        int ends[2];
        CHECK(pipe(ends) == 0);
        *made = 0;
        pid_t pid = fork();
        if (!pid) {
            setpgid(0, 0);
            close(ends[0]);
            for (int i = 0; i < 40; i++, ++*made)
                if (!fork()) for (;;) pause();
            for (;;) pause();
        }
        close(ends[1]);
        setpgid(pid, pid);
        while (*made < 2 + round % 7) {}
        for (volatile int i = round * 977 % 5000; i > 0; i--) {}
        CHECK(kill(-pid, round & 1 ? SIGTERM : SIGKILL) == 0);
        struct pollfd closed = {ends[0], POLLIN, 0};
        if (poll(&closed, 1, LONG) != 1) CHECK(!"all of them have gone"), kill(-pid, SIGKILL);
        CHECK(waitpid(pid, 0, 0) == pid);
        close(ends[0]);
    }
    munmap(made, 4096), munmap(much, 2 << 20);
}

// One of two threads begins a session, and then its process leads a group.
static pthread_barrier_t *pair;
static atomic_int *won, *here;
static void both(void) { pthread_barrier_wait(pair), ++*here; while (*here < 2) sched_yield(); }
static void *leads(void *unused) { both(); *won += setsid() > 0; return unused; }
static void sessions(void) {
    pthread_barrierattr_t shared;
    pthread_barrierattr_init(&shared), pthread_barrierattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
    pair = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0), won = (void *)(pair + 1), here = won + 1;
    for (int round = 0; round < rounds; round++) {
        pthread_barrier_init(pair, &shared, 2), *won = *here = 0;
        pid_t pid = fork();
        if (!pid) {
            pthread_t thread;
            pthread_create(&thread, 0, leads, 0), leads(0), pthread_join(thread, 0);
            _exit(0);
        }
        CHECK(waitpid(pid, 0, 0) == pid && *won == 1);
    }
    // Of two who lead sessions one gets a terminal.
    for (int round = 0; round < rounds; round++) {
        int master = posix_openpt(O_RDWR | O_NOCTTY);
        CHECK(grantpt(master) == 0 && unlockpt(master) == 0);
        int slave = open(ptsname(master), O_RDWR | O_NOCTTY);
        pthread_barrier_init(pair, &shared, 2), *won = *here = 0;
        pid_t pids[2];
        for (int i = 0; i < 2; i++) {
            if (!(pids[i] = fork())) {
                signal(SIGHUP, SIG_IGN), setsid(), both();
                *won += ioctl(slave, TIOCSCTTY, 0) == 0;
                // Nobody leaves before both have asked.
                pthread_barrier_wait(pair);
                _exit(0);
            }
        }
        for (int i = 0; i < 2; i++) CHECK(waitpid(pids[i], 0, 0) == pids[i]);
        CHECK(*won == 1);
        close(master), close(slave);
    }
}

// Whoever looks into a process that is killed meanwhile finds that it is gone.
static void *kills(void *pid) { for (volatile int n = 0; n < (int)((long)pid % 50) * 100; n++) {} kill((long)pid, SIGKILL); return 0; }
static void looks(void) {
    for (int round = 0; round < rounds; round++) {
        long word = 0;
        int status;
        pid_t pid = fork();
        if (!pid) ptrace(PTRACE_TRACEME, 0, 0, 0), raise(SIGSTOP), _exit(0);
        CHECK(waitpid(pid, &status, 0) == pid && WIFSTOPPED(status));
        pthread_t thread;
        pthread_create(&thread, 0, kills, (void *)(long)pid);
        for (errno = 0; word != -1 || !errno;) word = ptrace(PTRACE_PEEKDATA, pid, &rounds, 0);
        CHECK(errno == ESRCH || errno == EIO);
        pthread_join(thread, 0);
        CHECK(waitpid(pid, &status, 0) == pid && WIFSIGNALED(status));
    }
}

// Two that would adopt a process, one after the other, end at once with whoever made it: a third one does.
static void adopts(void) {
    volatile pid_t *pids = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0), self = getpid();
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    for (int round = 0; round < rounds; round++) {
        pids[1] = pids[2] = pids[3] = 0;
        pid_t first = fork();
        if (!first) {
            prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
            if (!fork()) {
                pids[1] = getpid();
                if (!fork()) {
                    pids[2] = getpid();
                    while (!pids[3]) usleep(100);
                    _exit(getppid() != self);
                }
                for (;;) pause();
            }
            for (;;) pause();
        }
        CHECK(UNTIL(pids[1] && pids[2]));
        kill(pids[1], SIGKILL), kill(first, SIGKILL);
        CHECK(waitpid(first, 0, 0) == first && waitpid(pids[1], 0, 0) == pids[1]);
        int status = -1;
        pids[3] = 1;
        CHECK(waitpid(pids[2], &status, 0) == pids[2] && status == 0);
    }
    prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0);
}

int main(int count, char **arguments) {
    static const struct part parts[] = {{"exit", exits}, {"kill of a group", groups}, {"setsid, TIOCSCTTY", sessions}, {"PTRACE_PEEKDATA", looks}, {"PR_SET_CHILD_SUBREAPER", adopts}};
    alarm(HANGS);
    if (count > 2) rounds = atoi(arguments[2]);
    PLAY(parts, count, arguments);
    return 0;
}
