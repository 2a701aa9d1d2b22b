// Takes as much of the kernel's own memory as it is given: of each kind until it is refused. Then it lets go, and all works again.

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
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
    return system("echo works | cat");
}
