// What calls keep for whom it is meant: a signal for the thread whose call it comes of, bytes that did not go for whoever reads next, a lock
// for whoever waits. A line for each part with how many checks failed.
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "checks.h"
#include "until.h"

static volatile int heard;
static void hear(int signal) { heard += signal > 0; }

// A thread that blocks a signal does what it comes of: it waits for this thread, though another would hear it.
static void *does(void *of) {
    int pipes[2], sockets[2], signal = *(int *)of;
    sigset_t one, waits;
    sigemptyset(&one), sigaddset(&one, signal);
    pthread_sigmask(SIG_BLOCK, &one, 0);
    CHECK(pipe(pipes) == 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) == 0);
    close(pipes[0]), close(sockets[0]);
    for (int turn = 0; turn < 2; turn++) {
        if (signal == SIGPIPE) FAILS(write(turn ? pipes[1] : sockets[1], "x", 1), EPIPE);
        if (signal == SIGXFSZ) FAILS(ftruncate(fileno(tmpfile()), 4096), EFBIG);
        siginfo_t info = {0};
        CHECK(sigpending(&waits) == 0 && sigismember(&waits, signal) == 1 && heard == 0);
        CHECK(sigtimedwait(&one, &info, &(struct timespec){0, 0}) == signal && info.si_code == SI_USER && info.si_pid == getpid());
    }
    close(pipes[1]), close(sockets[1]);
    return 0;
}

static void signals(void) {
    struct rlimit limit, old;
    getrlimit(RLIMIT_FSIZE, &old);
    limit = old, limit.rlim_cur = 100;
    setrlimit(RLIMIT_FSIZE, &limit);
    for (int turn = 0; turn < 2; turn++) {
        int which = turn ? SIGXFSZ : SIGPIPE;
        struct sigaction action = {.sa_handler = hear};
        sigaction(which, &action, 0);
        pthread_t thread;
        CHECK(pthread_create(&thread, 0, does, &which) == 0 && pthread_join(thread, 0) == 0 && heard == 0);
    }
    setrlimit(RLIMIT_FSIZE, &old);
}

// What finds no room stays in the pipe.
static void bytes(void) {
    int sockets[2], pipes[2], left = 0;
    char all[4096] = {0};
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, sockets) == 0 && pipe(pipes) == 0);
    while (write(sockets[0], all, sizeof all) > 0) {}
    CHECK(write(pipes[1], "hello", 5) == 5);
    FAILS(splice(pipes[0], 0, sockets[0], 0, 5, SPLICE_F_NONBLOCK), EAGAIN);
    CHECK(ioctl(pipes[0], FIONREAD, &left) == 0 && left == 5 && read(pipes[0], all, 9) == 5 && !memcmp(all, "hello", 5));
    for (int i = 0; i < 2; i++) close(sockets[i]), close(pipes[i]);
}

static int lock(int file, int how, int kind, long at) {
    struct flock lock = {.l_type = kind, .l_start = at, .l_len = 1};
    return fcntl(file, how, &lock);
}

// Nobody waits for itself, and who waits for more has let go of what it had.
static void locks(void) {
    char name[] = "kept.XXXXXX";
    int file = mkstemp(name), other = open(name, O_RDWR), pipes[2], status = -1;
    unlink(name);
    CHECK(file >= 0 && other >= 0 && pipe(pipes) == 0);
    CHECK(flock(file, LOCK_SH) == 0 && flock(other, LOCK_SH) == 0);
    FAILS(flock(file, LOCK_EX | LOCK_NB), EWOULDBLOCK);
    CHECK(flock(other, LOCK_EX | LOCK_NB) == 0);
    FAILS(flock(file, LOCK_SH | LOCK_NB), EWOULDBLOCK);
    CHECK(flock(other, LOCK_UN) == 0 && flock(file, LOCK_EX | LOCK_NB) == 0);
    int more[2];
    CHECK(pipe(more) == 0 && flock(pipes[0], LOCK_EX | LOCK_NB) == 0 && flock(more[0], LOCK_EX | LOCK_NB) == 0);
    CHECK(lock(file, F_SETLK, F_WRLCK, 0) == 0);
    pid_t pid = fork();
    if (!pid) {
        alarm(HANGS);
        char well = lock(file, F_SETLK, F_WRLCK, 1) == 0;
        _exit(write(pipes[1], &well, 1) != 1 || lock(file, F_SETLKW, F_WRLCK, 0) != 0);
    }
    char well = 0;
    CHECK(read(pipes[0], &well, 1) == 1 && well && UNTIL(state_of(pid) == 'S'));
    FAILS(lock(file, F_SETLKW, F_WRLCK, 1), EDEADLK);
    FAILS(lock(file, F_SETLK, F_RDLCK, 1), EAGAIN);
    CHECK(lock(file, F_SETLK, F_UNLCK, 0) == 0 && waitpid(pid, &status, 0) == pid && status == 0);
    CHECK(lock(file, F_SETLKW, F_WRLCK, 1) == 0);
    close(file), close(other);
    for (int i = 0; i < 2; i++) close(pipes[i]), close(more[i]);
}

int main(int count, char **arguments) {
    static const struct part parts[] = {{"signals", signals}, {"bytes", bytes}, {"locks", locks}};
    PLAY(parts, count, arguments);
    return 0;
}
